package main

import (
	"errors"
	"io"
	"net"
	"net/http"
	"testing"
	"testing/synctest"
)

// pipes is a listener of connections that are handed to it.
type pipes chan net.Conn

func (p pipes) Accept() (net.Conn, error) {
	c, ok := <-p
	if !ok {
		return nil, net.ErrClosed
	}
	return c, nil
}

func (p pipes) Close() error { close(p); return nil }
func (pipes) Addr() net.Addr { return &net.TCPAddr{} }

// crowd knocks at a limitListener, whose connections come out of accepted.
type crowd struct {
	listener *limitListener
	knock    pipes
	accepted chan net.Conn
}

func newCrowd(t *testing.T, places int) *crowd {
	knock := make(pipes)
	c := &crowd{newLimitListener(knock, places), knock, make(chan net.Conn, 100)}
	go func() { // ends when the listener is closed
		defer close(c.accepted)
		for {
			conn, err := c.listener.Accept()
			if err != nil {
				if !errors.Is(err, net.ErrClosed) {
					t.Errorf("accept: %v", err)
				}
				return
			}
			c.accepted <- conn
		}
	}()
	return c
}

// arrive is one more client. It returns once it is let in or waits.
func (c *crowd) arrive() (client net.Conn) {
	client, server := net.Pipe()
	c.knock <- server
	synctest.Wait()
	return client
}

// next is the connection that was let in, or nil.
func (c *crowd) next() net.Conn {
	synctest.Wait()
	select {
	case conn := <-c.accepted:
		return conn
	default:
		return nil
	}
}

// cutOff reports whether the other end of a client's connection is closed.
func cutOff(client net.Conn) bool {
	gone := make(chan error, 1)
	go func() {
		_, err := client.Read(make([]byte, 1))
		gone <- err
	}()
	synctest.Wait()
	select {
	case err := <-gone:
		return errors.Is(err, io.EOF)
	default:
		return false
	}
}

func TestWhoWaitsGetsThePlaceThatComesFree(t *testing.T) {
	for _, tt := range []struct {
		name string
		free func(first, second net.Conn)
		gone int // which of the first two is cut off
	}{
		{"one turns idle", func(first, _ net.Conn) { connState(first, http.StateIdle) }, 0},
		{"one closes", func(_, second net.Conn) { _ = second.Close() }, 1},
		{"one closes that was idle before", func(first, _ net.Conn) {
			connState(first, http.StateActive)
			_ = first.Close()
			_ = first.Close() // frees no second place
		}, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newCrowd(t, 2)
				clients := []net.Conn{c.arrive(), c.arrive()}
				first, second := c.next(), c.next()
				clients = append(clients, c.arrive())
				if c.next() != nil {
					t.Fatal("a third was let in while two are busy")
				}
				tt.free(first, second)
				if third := c.next(); third == nil {
					t.Fatal("the third still waits")
				}
				if !cutOff(clients[tt.gone]) {
					t.Errorf("connection %d is open, want it closed", tt.gone)
				}
				// There are two again, both busy.
				clients = append(clients, c.arrive())
				if c.next() != nil {
					t.Error("a fourth was let in while two are busy")
				}
				_ = c.listener.Close()
				if !cutOff(clients[3]) {
					t.Error("who waits at a closed listener is not told")
				}
				for _, client := range clients {
					_ = client.Close()
				}
			})
		})
	}
}

func TestTheLongestIdleConnectionGivesWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCrowd(t, 3)
		var clients, conns []net.Conn
		for i := range 5 {
			clients = append(clients, c.arrive())
			conn := c.next()
			if conn == nil {
				t.Fatalf("connection %d waits, want the place of an idle one", i)
			}
			conns = append(conns, conn)
			connState(conn, http.StateIdle)
			if i == 2 { // the first is now the last of them
				connState(conns[0], http.StateActive)
				connState(conns[0], http.StateIdle)
			}
		}
		for i, client := range clients {
			if got, want := cutOff(client), i == 1 || i == 2; got != want {
				t.Errorf("connection %d of 5 with 3 places is closed: %v, want %v", i, got, want)
			}
		}
		_ = c.listener.Close()
		for _, client := range clients {
			_ = client.Close()
		}
	})
}

func TestAnIdleConnectionStaysWhileNobodyWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCrowd(t, 1)
		client := c.arrive()
		conn := c.next()
		for range 3 {
			connState(conn, http.StateActive)
			connState(conn, http.StateIdle)
		}
		if cutOff(client) {
			t.Error("it is closed")
		}
		connState(conn, http.StateActive)
		other := c.arrive()
		connState(conn, http.StateIdle)
		if c.next() == nil {
			t.Error("the other still waits")
		}
		// What the server says of a connection that has left counts no more.
		connState(conn, http.StateActive)
		connState(conn, http.StateIdle)
		if got := c.listener.idle.Len(); got != 0 {
			t.Errorf("%d connections are idle, want none", got)
		}
		_ = c.listener.Close()
		_ = client.Close()
		_ = other.Close()
	})
}
