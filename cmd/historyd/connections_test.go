package main

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"historyd/internal/identity"
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

func TestConnectionsAreCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCrowd(t, 2)
		own := endpoints{{network: "tcp", gate: c.listener}, {network: "tcp", gate: newLimitListener(make(pipes), 5)}, {network: "unix", gate: newLimitListener(make(pipes), 7)}}
		counted := func(what, open, waiting, evicted string) {
			t.Helper()
			want := strings.NewReplacer("OPEN", open, "WAITING", waiting, "EVICTED", evicted).Replace(`
# HELP historyd_connections Connections that have a place.
# TYPE historyd_connections gauge
historyd_connections{network="tcp"} OPEN
historyd_connections{network="unix"} 0
# HELP historyd_connections_evicted_total Idle connections that were closed because others needed their place.
# TYPE historyd_connections_evicted_total counter
historyd_connections_evicted_total{network="tcp"} EVICTED
historyd_connections_evicted_total{network="unix"} 0
# HELP historyd_connections_limit Places for connections.
# TYPE historyd_connections_limit gauge
historyd_connections_limit{network="tcp"} 7
historyd_connections_limit{network="unix"} 7
# HELP historyd_connections_waiting Connections that wait for a place.
# TYPE historyd_connections_waiting gauge
historyd_connections_waiting{network="tcp"} WAITING
historyd_connections_waiting{network="unix"} 0
`)
			if err := testutil.CollectAndCompare(own, strings.NewReader(want)); err != nil {
				t.Errorf("%s: %v", what, err)
			}
		}
		counted("nobody", "0", "0", "0")
		clients := []net.Conn{c.arrive(), c.arrive()}
		first, second := c.next(), c.next()
		counted("two", "2", "0", "0")
		clients = append(clients, c.arrive())
		counted("a third waits", "2", "1", "0")
		connState(first, http.StateIdle)
		third := c.next()
		counted("an idle one gave way", "2", "0", "1")
		_ = second.Close()
		counted("one has closed", "1", "0", "1")
		_ = third.Close()
		counted("all have closed", "0", "0", "1")
		_ = c.listener.Close()
		for _, client := range clients {
			_ = client.Close()
		}
	})
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
		if got := len(c.listener.groups); got != 1 {
			t.Errorf("there are connections of %d callers, want only the one that is open", got)
		}
		_ = c.listener.Close()
		_ = client.Close()
		_ = other.Close()
	})
}

// callerOf is the scope of an operator.
func callerOf(t *testing.T, id string) identity.Scope {
	t.Helper()
	c, err := identity.NewCaller(string(identity.Operator), id, "", "")
	if err != nil {
		t.Fatal(err)
	}
	return c.Scope()
}

// in lets one more client in, whose request is one of a caller.
func (c *crowd) in(t *testing.T, of identity.Scope) (client net.Conn, served *connection) {
	t.Helper()
	client = c.arrive()
	served, ok := c.next().(*connection)
	if !ok {
		t.Fatal("it is not let in")
	}
	connState(served, http.StateActive)
	heard(connContext(t.Context(), served), of)
	return client, served
}

func TestWhoHasMostConnectionsGivesWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ann, bob := callerOf(t, "ann"), callerOf(t, "bob")
		c := newCrowd(t, 5)
		bobs, bobsConn := c.in(t, bob)
		connState(bobsConn, http.StateIdle) // for the longest of all
		var anns []net.Conn
		var conns []*connection
		for range 4 {
			client, conn := c.in(t, ann)
			anns, conns = append(anns, client), append(conns, conn)
		}
		connState(conns[2], http.StateIdle)
		connState(conns[1], http.StateIdle)
		knocks := []net.Conn{c.arrive()}
		if c.next() == nil || !cutOff(anns[2]) || cutOff(anns[1]) || cutOff(bobs) {
			t.Error("want the longest idle of ann's to give way, who has most")
		}
		_ = c.listener.Close()
		for _, client := range append(append(anns, bobs), knocks...) {
			_ = client.Close()
		}
	})
}

func TestOfCallersWithAsManyTheLongestIdleGivesWay(t *testing.T) {
	for range 20 { // they are looked at in any order
		synctest.Test(t, func(t *testing.T) {
			c := newCrowd(t, 3)
			var clients []net.Conn
			var conns []*connection
			for _, id := range []string{"ann", "bob", "eve"} {
				client, conn := c.in(t, callerOf(t, id))
				clients, conns = append(clients, client), append(conns, conn)
			}
			for _, i := range []int{1, 2, 0} {
				connState(conns[i], http.StateIdle)
			}
			clients = append(clients, c.arrive())
			if c.next() == nil || cutOff(clients[0]) || !cutOff(clients[1]) || cutOff(clients[2]) {
				t.Error("want bob's to give way")
			}
			_ = c.listener.Close()
			for _, client := range clients {
				_ = client.Close()
			}
		})
	}
}

func TestWhoHasFewConnectionsIsSparedForAMoment(t *testing.T) {
	idle := func(_ *connection, anns []*connection) { connState(anns[len(anns)-1], http.StateIdle) }
	nothing := func(*connection, []*connection) {}
	for _, tt := range []struct {
		name                  string
		anns, strangers, eves int  // connections, all busy
		waits                 bool // the one that comes, at first
		then                  func(bobs *connection, anns []*connection)
		spare                 bool
	}{
		{"one of ann's turns idle", 4, 0, 0, true, idle, true},
		{"bob asks again", 4, 0, 0, true, func(bobs *connection, anns []*connection) {
			connState(bobs, http.StateActive)
			connState(bobs, http.StateIdle)
			idle(bobs, anns)
		}, true},
		{"two of ann's become bob's", 4, 0, 0, true, func(bobs *connection, anns []*connection) {
			for _, c := range anns[:2] {
				heard(context.WithValue(context.Background(), connectionKey{}, c), bobs.of)
			}
		}, false},
		{"the moment passes", 4, 0, 0, true, func(*connection, []*connection) { time.Sleep(moment) }, false},
		{"some may be ann's, too, and one of hers turns idle", 3, 2, 0, true, idle, true},
		{"ann has but half", 2, 0, 1, false, nothing, false},
		{"ann has one, too", 1, 0, 0, false, nothing, false},
	} {
		synctest.Test(t, func(t *testing.T) {
			c := newCrowd(t, 1+tt.anns+tt.strangers+tt.eves)
			bobs, bobsConn := c.in(t, callerOf(t, "bob"))
			connState(bobsConn, http.StateIdle)
			clients := []net.Conn{bobs}
			var anns []*connection
			for range tt.anns {
				client, conn := c.in(t, callerOf(t, "ann"))
				clients, anns = append(clients, client), append(anns, conn)
			}
			for i := range tt.strangers + tt.eves {
				of := identity.Scope{}
				if i >= tt.strangers {
					of = callerOf(t, "eve")
				}
				client, _ := c.in(t, of)
				clients = append(clients, client)
			}
			clients = append(clients, c.arrive())
			in := c.next() != nil
			if in == tt.waits {
				t.Errorf("%s: it is let in at once: %t", tt.name, in)
			}
			tt.then(bobsConn, anns)
			if !in && c.next() == nil {
				t.Errorf("%s: it waits still", tt.name)
			}
			if cutOff(bobs) == tt.spare {
				t.Errorf("%s: bob's connection stays: %t, want %t", tt.name, !tt.spare, tt.spare)
			}
			_ = c.listener.Close()
			for _, client := range clients {
				_ = client.Close()
			}
		})
	}
}

// A place is not kept by who begins a header and doesn't end it, nor by who has asked and asks no more.
func TestConnectionsThatSayNothingAreClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &daemon{settings: settings{Config: Default()}, log: slog.New(slog.DiscardHandler)}
		srv, l := d.newServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})), make(pipes)
		done := make(chan error)
		go func() { done <- srv.Serve(l) }()
		for _, said := range []string{"", "GET / HTTP/1.1\r\nHost: x", "GET / HTTP/1.1\r\nHost: x\r\n\r\n"} {
			client, server := net.Pipe()
			l <- server
			if _, err := io.WriteString(client, said); err != nil {
				t.Fatal(err)
			}
			_ = client.SetReadDeadline(time.Now().Add(time.Hour))
			if _, err := io.Copy(io.Discard, client); err != nil {
				t.Errorf("after %q: got %v, want the connection closed", said, err)
			}
			_ = client.Close()
		}
		_ = srv.Close()
		<-done
	})
}
