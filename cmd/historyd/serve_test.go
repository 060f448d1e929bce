package main

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"testing"
)

// What is served when the daemon has waited long enough ends with a cause, which tells it from a client that has left.
func TestRequestsThatAreCutOffHaveACause(t *testing.T) {
	d := &daemon{settings: onPort0(), log: slog.New(slog.DiscardHandler)}
	cause := make(chan error, 1)
	d.server = d.newServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/cut" {
			go d.cutOff()
		}
		<-r.Context().Done()
		cause <- context.Cause(r.Context())
	}))
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error)
	go func() { served <- d.server.Serve(l) }()
	for _, tt := range []struct {
		path string
		want error
	}{{"/left", context.Canceled}, {"/cut", errCut}} {
		conn, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		if _, err := io.WriteString(conn, "GET "+tt.path+" HTTP/1.1\r\nHost: x\r\n\r\n"); err != nil {
			t.Fatal(err)
		}
		if tt.path == "/left" {
			conn.Close()
		}
		if got := <-cause; got != tt.want {
			t.Errorf("%s: ended by %v, want %v", tt.path, got, tt.want)
		}
	}
	if err := <-served; !errors.Is(err, http.ErrServerClosed) {
		t.Error(err)
	}
}
