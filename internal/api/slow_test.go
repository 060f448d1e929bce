package api

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"historyd/internal/history"
	"historyd/internal/projection"
)

// pipe is a listener for one connection that is no socket, so that its time is the
// test's.
type pipe struct {
	conns chan net.Conn
}

type tcpLike struct{ net.Conn }

func (tcpLike) LocalAddr() net.Addr { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 4478} }

func (p pipe) Accept() (net.Conn, error) {
	c, ok := <-p.conns
	if !ok {
		return nil, net.ErrClosed
	}
	return tcpLike{c}, nil
}

func (p pipe) Close() error   { close(p.conns); return nil }
func (p pipe) Addr() net.Addr { return &net.TCPAddr{} }

// dial serves h for one connection.
func dial(t *testing.T, h http.Handler) net.Conn {
	p := pipe{make(chan net.Conn, 1)}
	srv := &http.Server{Handler: h}
	done := make(chan struct{})
	go func() {
		_ = srv.Serve(p)
		close(done)
	}()
	client, server := net.Pipe()
	p.conns <- server
	t.Cleanup(func() {
		client.Close()
		srv.Close()
		<-done
	})
	return client
}

func TestABodyMayTakeLongButNotStall(t *testing.T) {
	for _, tt := range []struct {
		name   string
		piece  int
		pause  time.Duration
		status int
	}{
		{"long and steady", 8 << 10, 25 * time.Second, 201},
		{"stalled", 8 << 10, 31 * time.Second, 400},
		{"drop by drop", 16, 20 * time.Second, 400},
	} {
		synctest.Test(t, func(t *testing.T) {
			d := newHandler(t, projection.Options{})
			conn := dial(t, d.handler)
			body := bodyOf(100 << 10)
			var sender sync.WaitGroup
			sender.Go(func() {
				_, _ = fmt.Fprintf(conn, "POST %s HTTP/1.1\r\nHost: localhost:4478\r\nAuthorization: Bearer %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n", turns, d.tokens["ann"], len(body))
				for rest := body; rest != ""; {
					n := min(tt.piece, len(rest))
					if _, err := io.WriteString(conn, rest[:n]); err != nil {
						return
					}
					rest = rest[n:]
					time.Sleep(tt.pause)
				}
			})
			res, err := http.ReadResponse(bufio.NewReader(conn), nil)
			must(t, err)
			text, _ := io.ReadAll(res.Body)
			if res.StatusCode != tt.status || tt.status == 400 && !strings.Contains(string(text), "did not arrive in time") {
				t.Errorf("%s: %d %s", tt.name, res.StatusCode, text)
			}
			conn.Close()
			sender.Wait()
		})
	}
}

func TestAClientThatDoesNotReadIsLeft(t *testing.T) {
	for _, path := range []string{"/export", "/messages", "/replay"} {
		synctest.Test(t, func(t *testing.T) {
			d := newHandler(t, projection.Options{})
			long := history.Message{Role: history.User, Kind: history.Person, Status: history.Complete, Content: []history.Block{history.Text(strings.Repeat("long ", 200_000))}}
			_, err := d.engine.Log(d.caller("ann").Scope(), "x").Append(t.Context(), history.Batch{Messages: []history.Message{long}})
			must(t, err)
			conn := dial(t, d.handler)
			_, err = fmt.Fprintf(conn, "GET /v1/conversations/x%s HTTP/1.1\r\nHost: localhost:4478\r\nAuthorization: Bearer %s\r\n\r\n", path, d.tokens["ann"])
			must(t, err)
			time.Sleep(2 * writeStall)
			synctest.Wait()
			v, _ := d.handler.(*server).visitors.Load(d.caller("ann"))
			if n := len(v.(*visitor).places); n != 0 {
				t.Errorf("%s: %d requests still wait for their readers", path, n)
			}
		})
	}
}
