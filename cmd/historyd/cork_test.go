package main

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"historyd/internal/api"
)

// written is a connection that says what is written to it, write by write.
type written struct {
	net.Conn
	writes []string
	err    error
}

func (w *written) Write(p []byte) (int, error) {
	if w.err != nil {
		return 0, w.err
	}
	w.writes = append(w.writes, string(p))
	return len(p), nil
}

func TestAHeadLeavesWithWhatComesNext(t *testing.T) {
	under := &written{}
	c := &connection{Conn: under}
	write := func(s string) {
		t.Helper()
		if n, err := c.Write([]byte(s)); n != len(s) || err != nil {
			t.Fatalf("write of %q: %d, %v", s, n, err)
		}
	}
	leaves := func(when string, want ...string) {
		t.Helper()
		if !slices.Equal(under.writes, want) {
			t.Errorf("%s: got %q, want %q", when, under.writes, want)
		}
		under.writes = nil
	}
	write("a")
	leaves("without a cork", "a")
	c.Cork()
	write("head")
	leaves("the head alone")
	write("body")
	leaves("with the body", "head", "body") // a connection of the network takes both at once
	write("more")
	leaves("what comes then", "more")
	if err := c.Uncork(); err != nil {
		t.Fatal(err)
	}
	leaves("nothing was kept")
	c.Cork()
	write("all")
	if err := c.Uncork(); err != nil {
		t.Fatal(err)
	}
	leaves("nothing came next", "all")

	c.Cork()
	write("head")
	under.err = errors.New("broken")
	if n, err := c.Write([]byte("body")); n != 0 || !errors.Is(err, under.err) {
		t.Errorf("on a broken connection: %d, %v", n, err)
	}
	c.Cork()
	_, _ = c.Write([]byte("head"))
	if err := c.Uncork(); !errors.Is(err, under.err) {
		t.Errorf("a head on a broken connection: %v", err)
	}
}

// Answers of any length arrive as they were written, also where the cork is left in by a handler that panics.
func TestAnswersOfAnyLengthArriveThroughACork(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	answer := func(n int) string { return strings.Repeat("0123456789", n/10+1)[:n] }
	srv := &http.Server{ConnContext: connContext, ConnState: connState, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n, err := strconv.Atoi(r.URL.Query().Get("n"))
		if err != nil {
			t.Error(err)
		}
		if r.URL.Query().Has("length") {
			w.Header().Set("Content-Length", strconv.Itoa(n))
		}
		cork := api.CorkOf(r.Context())
		cork.Cork()
		_, _ = io.WriteString(w, answer(n))
		if r.URL.Query().Has("panic") {
			panic(http.ErrAbortHandler)
		}
		if err := cork.Uncork(); err != nil {
			t.Error(err)
		}
	})}
	go func() { _ = srv.Serve(newLimitListener(l, 10)) }() // ends with Close
	client := &http.Client{Transport: &http.Transport{}, Timeout: time.Minute}
	t.Cleanup(func() {
		client.CloseIdleConnections()
		_ = srv.Close()
	})
	for _, n := range []int{0, 1, 2000, 3900, 4000, 4095, 4096, 4097, 5000, 70_000, 1_000_000} {
		for _, more := range []string{"", "&length", "&panic", "&length&panic"} {
			res, err := client.Get(fmt.Sprintf("http://%s/?n=%d%s", l.Addr(), n, more))
			if err == nil {
				var got []byte
				got, err = io.ReadAll(res.Body)
				_ = res.Body.Close()
				if err == nil && string(got) != answer(n) && !strings.Contains(more, "panic") {
					t.Errorf("%d%s: got %d bytes that differ", n, more, len(got))
				}
			}
			if err != nil && !strings.Contains(more, "panic") {
				t.Errorf("%d%s: %v", n, more, err)
			}
		}
		res, err := client.Head(fmt.Sprintf("http://%s/?n=%d&length", l.Addr(), n))
		if err != nil || res.ContentLength != int64(n) {
			t.Errorf("HEAD of %d: %v, %v", n, res, err)
		}
	}
}
