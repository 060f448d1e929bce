// Package bench measures the daemon over HTTP against what the machine can do
// without it, both in one interleaved run, so that the figures are ratios.
package bench

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/oklog/ulid/v2"
	"github.com/prometheus/client_golang/prometheus"

	"historyd/internal/api"
	"historyd/internal/compaction"
	"historyd/internal/durable"
	"historyd/internal/identity"
	"historyd/internal/pipeline"
	"historyd/internal/projection"
	"historyd/internal/store"
)

// daemon is the whole of historyd but its command line, on a loopback port.
type daemon struct {
	addr  string
	token string
	dir   string
	store *store.Store
	stop  func()
}

func startDaemon(tb testing.TB, dir string) *daemon {
	tb.Helper()
	must := func(err error) {
		if err != nil {
			tb.Fatal(err)
		}
	}
	must(os.Chmod(dir, 0o700))
	fsys, err := durable.Open(dir)
	must(err)
	reg := prometheus.NewRegistry()
	var mu sync.Mutex
	entropy := ulid.DefaultEntropy()
	st, err := store.Open(store.Options{FS: fsys, Registerer: reg, NewID: func(after string) string {
		mu.Lock()
		defer mu.Unlock()
		for {
			if id := ulid.MustNew(ulid.Now(), entropy).String(); id > after {
				return id
			}
		}
	}})
	must(err)
	policy, err := projection.New(projection.Options{})
	must(err)
	comp, err := compaction.New(compaction.Options{Registerer: reg})
	must(err)
	pipe, err := pipeline.New(pipeline.Options{Engine: st, Policy: policy, Compactor: comp, Registerer: reg})
	must(err)
	file := identity.OpenFile(fsys, "callers.json")
	caller, err := identity.NewCaller("operator", "bench", "", "")
	must(err)
	token := tokenOf(tb, file, caller)
	callers, err := identity.NewRegistry(identity.Options{File: file, Path: filepath.Join(dir, "callers.json")})
	must(err)
	handler, err := api.New(api.Options{Pipeline: pipe, Callers: callers, Registerer: reg, Gatherer: reg})
	must(err)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(err)
	server := &http.Server{Handler: handler, ReadHeaderTimeout: 5 * time.Second}
	done := make(chan struct{})
	go func() { defer close(done); _ = server.Serve(l) }()
	d := &daemon{addr: l.Addr().String(), token: token, dir: dir, store: st}
	d.stop = func() {
		_ = server.Close()
		<-done
		must(st.Close())
	}
	return d
}

func tokenOf(tb testing.TB, file *identity.File, caller identity.Caller) string {
	tb.Helper()
	token, _, err := file.Create(identity.NewToken{Caller: caller})
	if err != nil {
		tb.Fatal(err)
	}
	return token
}

// client is one keep-alive connection that sends prepared requests. It costs little,
// so that the daemon is measured and not the client.
type client struct {
	conn net.Conn
	r    *bufio.Reader
}

func dial(tb testing.TB, addr string) *client {
	tb.Helper()
	c, err := net.Dial("tcp", addr)
	if err != nil {
		tb.Fatal(err)
	}
	return &client{c, bufio.NewReaderSize(c, 64<<10)}
}

func (d *daemon) request(method, path string, body []byte) []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, "%s %s HTTP/1.1\r\nHost: %s\r\nAuthorization: Bearer %s\r\n", method, path, d.addr, d.token)
	if body != nil {
		fmt.Fprintf(&b, "Content-Type: application/json\r\nContent-Length: %d\r\n", len(body))
	}
	b.WriteString("\r\n")
	b.Write(body)
	return b.Bytes()
}

// do sends a request and returns the status and the length of the body.
func (c *client) do(request []byte) (status, length int, err error) {
	if _, err := c.conn.Write(request); err != nil {
		return 0, 0, err
	}
	line, err := c.r.ReadSlice('\n')
	if err != nil || len(line) < 12 {
		return 0, 0, fmt.Errorf("status line: %w", err)
	}
	status, _ = strconv.Atoi(string(line[9:12]))
	for {
		line, err = c.r.ReadSlice('\n')
		if err != nil {
			return 0, 0, err
		}
		if len(line) <= 2 {
			break
		}
		if v, ok := bytes.CutPrefix(line, []byte("Content-Length: ")); ok {
			length, _ = strconv.Atoi(string(bytes.TrimSpace(v)))
		}
	}
	_, err = io.CopyN(io.Discard, c.r, int64(length))
	return status, length, err
}

// rate runs n workers for d and returns operations a second.
func rate(tb testing.TB, n int, d time.Duration, op func(worker int) error) float64 {
	tb.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), d)
	defer cancel()
	counts := make([]int, n)
	errs := make([]error, n)
	start := time.Now()
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() {
			for ctx.Err() == nil {
				if errs[i] = op(i); errs[i] != nil {
					return
				}
				counts[i]++
			}
		})
	}
	wg.Wait()
	total := 0
	for i := range counts {
		if errs[i] != nil {
			tb.Fatalf("worker %d: %v", i, errs[i])
		}
		total += counts[i]
	}
	return float64(total) / time.Since(start).Seconds()
}
