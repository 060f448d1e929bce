package api

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"historyd/internal/projection"
)

// BenchmarkHotReplay compares a replay that was answered before with a bare handler
// that writes the same bytes, each over 64 connections of its own, in turns. of-bare
// is the share of the bare handler's rate that the replay reaches.
func BenchmarkHotReplay(b *testing.B) {
	d := newDaemon(b, projection.Options{}, func(o *Options) { o.Logger = nil })
	for i := range 10 {
		d.say("ann", "x", fmt.Sprintf("question %d %s", i, strings.Repeat("word ", 20)))
	}
	body := d.get("ann", replayOfX).body
	bare := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Content-Length", strconv.Itoa(len(body)))
		_, _ = io.WriteString(w, body)
	}))
	b.Cleanup(bare.Close)
	clients := map[string]*herd{}
	for name, address := range map[string]string{"bare": bare.Listener.Addr().String(), "replay": d.host} {
		clients[name] = newHerd(b, address, fmt.Sprintf("GET %s HTTP/1.1\r\nHost: %s\r\nAuthorization: Bearer %s\r\n\r\n", replayOfX, address, d.tokens["ann"]), len(body))
	}
	took := map[string]time.Duration{}
	for b.Loop() {
		for name, h := range clients {
			took[name] += h.ask(b, 50)
		}
	}
	b.ReportMetric(float64(took["bare"])/float64(took["replay"]), "of-bare")
	b.ReportMetric(float64(took["replay"].Nanoseconds())/float64(b.N*50*len(clients["replay"].conns)), "ns/replay")
	b.ReportMetric(0, "ns/op")
}

// herd is 64 clients that ask the same.
type herd struct {
	conns   []net.Conn
	readers []*bufio.Reader
	request string
	size    int
}

func newHerd(b *testing.B, address, request string, size int) *herd {
	h := &herd{request: request, size: size}
	for range 64 {
		conn, err := net.Dial("tcp", address)
		must(b, err)
		b.Cleanup(func() { conn.Close() })
		h.conns = append(h.conns, conn)
		h.readers = append(h.readers, bufio.NewReaderSize(conn, 16<<10))
	}
	return h
}

// ask lets each client ask so many times, and returns how long all took.
func (h *herd) ask(b *testing.B, times int) time.Duration {
	began := time.Now()
	var wg sync.WaitGroup
	for i, conn := range h.conns {
		wg.Go(func() {
			for range times {
				_, err := io.WriteString(conn, h.request)
				if err == nil {
					err = discard(h.readers[i], h.size)
				}
				if err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	return time.Since(began)
}

// discard reads a response whose body has that size, with no more work than it takes.
func discard(in *bufio.Reader, size int) error {
	status, err := in.ReadSlice('\n')
	if err != nil {
		return err
	}
	if !strings.HasPrefix(string(status), "HTTP/1.1 200") {
		return fmt.Errorf("%s", status)
	}
	for {
		line, err := in.ReadSlice('\n')
		if err != nil {
			return err
		}
		if len(line) == 2 {
			_, err := in.Discard(size)
			return err
		}
	}
}

// BenchmarkFullReplay compares full replays of a window of 20 messages in each format
// with a native text replay of it, in turns, none of them from the cache. FORMAT-of-text
// is how many times as long one takes.
func BenchmarkFullReplay(b *testing.B) {
	d := newHandler(b, projection.Options{UnknownTools: "keep"}, func(o *Options) { o.Logger = nil })
	said := strings.Repeat("word ", 40)
	var body strings.Builder
	for i := range 5 {
		fmt.Fprintf(&body, `{"role":"user","content":"%s"},
			{"role":"assistant","content":[{"type":"text","text":"%[1]s"},{"type":"tool_call","id":"call_%d","name":"look_up","arguments":{"n":%[2]d,"text":"%[1]s"}}]},
			{"role":"tool","content":[{"type":"tool_result","call_id":"call_%[2]d","content":"%[1]s"}]},
			{"role":"assistant","content":"%[1]s"},`, said, i)
	}
	send := func(method, path, body string) int {
		r := httptest.NewRequest(method, "http://127.0.0.1"+path, strings.NewReader(body))
		r = r.WithContext(context.WithValue(r.Context(), http.LocalAddrContextKey, &net.TCPAddr{Port: 80}))
		r.Header.Set("Authorization", "Bearer "+d.tokens["ann"])
		r.Header.Set("Content-Type", "application/json")
		w := httptest.NewRecorder()
		d.handler.ServeHTTP(w, r)
		return w.Code
	}
	if code := send("POST", turns, `{"messages":[`+strings.TrimSuffix(body.String(), ",")+`]}`); code != http.StatusCreated {
		b.Fatal(code)
	}
	took := map[string]time.Duration{}
	n := 0
	for b.Loop() {
		for _, what := range []string{"text&format=native", "full&format=native", "full&format=openai", "full&format=anthropic", "full&format=responses", "full&format=gemini"} {
			began := time.Now()
			for range 20 {
				n++
				if code := send("GET", fmt.Sprintf("%s?mode=%s&max_tokens=%d", replayOfX, what, 1_000_000+n), ""); code != http.StatusOK {
					b.Fatal(code)
				}
			}
			took[what] += time.Since(began)
		}
	}
	for what, t := range took {
		if format, full := strings.CutPrefix(what, "full&format="); full {
			b.ReportMetric(float64(t)/float64(took["text&format=native"]), format+"-of-text")
		}
	}
	b.ReportMetric(float64(took["text&format=native"].Nanoseconds())/float64(20*b.N), "ns/text")
	b.ReportMetric(0, "ns/op")
}
