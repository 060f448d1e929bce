package bench

import (
	"bytes"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// rounds and slice bound one figure: so many rounds of one slice for each side.
const (
	rounds = 8
	slice  = 400 * time.Millisecond
)

func median(v []float64) float64 {
	slices.Sort(v)
	return v[len(v)/2]
}

// BenchmarkAppend compares durable appends of 1 KB messages over HTTP, each client
// on a conversation of its own, with as many goroutines that each write the same
// bytes to a file of their own and sync it.
func BenchmarkAppend(b *testing.B) {
	for _, clients := range []int{1, 8, 64} {
		b.Run(fmt.Sprintf("clients=%d", clients), func(b *testing.B) {
			d := startDaemon(b)
			defer d.stop()
			body := []byte(`{"messages":[{"role":"user","content":"` + strings.Repeat("x", 1024) + `"}]}`)
			conns, requests := make([]*client, clients), make([][]byte, clients)
			for i := range clients {
				conns[i] = dial(b, d.addr)
				requests[i] = d.request("POST", fmt.Sprintf("/v1/conversations/c%d/turns", i), body)
			}
			viaHTTP := func(i int) error {
				status, _, err := conns[i].do(requests[i])
				if err == nil && status != http.StatusCreated {
					err = fmt.Errorf("status %d", status)
				}
				return err
			}
			rate(b, clients, slice/4, viaHTTP)
			raw := rawWriter(b, clients, lineSize(b, d.dir))
			rate(b, clients, slice/4, raw)
			var ratios, ours []float64
			for range rounds {
				mine := rate(b, clients, slice, viaHTTP)
				disk := rate(b, clients, slice, raw)
				ratios, ours = append(ratios, mine/disk), append(ours, mine)
			}
			b.ReportMetric(median(ratios), "ratio")
			b.ReportMetric(median(ours), "appends/s")
			b.ReportMetric(0, "ns/op")
		})
	}
}

// lineSize is how many bytes the daemon writes for one such append.
func lineSize(b *testing.B, dir string) int {
	paths, err := filepath.Glob(filepath.Join(dir, "transcripts/*/*/*/*.jsonl"))
	if err != nil || len(paths) == 0 {
		b.Fatalf("no segment: %v", err)
	}
	content, err := os.ReadFile(paths[0])
	if err != nil {
		b.Fatal(err)
	}
	lines := bytes.SplitAfter(bytes.TrimSuffix(content, []byte("\n")), []byte("\n"))
	return len(lines[len(lines)-1])
}

func rawWriter(b *testing.B, n, size int) func(int) error {
	files, offsets := make([]*os.File, n), make([]int64, n)
	dir := b.TempDir()
	for i := range files {
		f, err := os.Create(filepath.Join(dir, fmt.Sprint(i)))
		if err != nil {
			b.Fatal(err)
		}
		b.Cleanup(func() { _ = f.Close() })
		files[i] = f
	}
	line := bytes.Repeat([]byte("x"), size)
	return func(i int) error {
		if _, err := files[i].WriteAt(line, offsets[i]); err != nil {
			return err
		}
		offsets[i] += int64(size)
		return syscall.Fdatasync(int(files[i].Fd()))
	}
}

// BenchmarkHotReplay compares the replay of 20 messages of 64 clients with a bare
// handler that writes the same bytes.
func BenchmarkHotReplay(b *testing.B) {
	const clients = 64
	d := startDaemon(b)
	defer d.stop()
	c := dial(b, d.addr)
	for i := range 10 {
		body := fmt.Sprintf(`{"messages":[{"role":"user","content":"question %d %s"},{"role":"assistant","content":"answer %s"}]}`,
			i, strings.Repeat("q", 200), strings.Repeat("a", 400))
		if status, _, err := c.do(d.request("POST", "/v1/history/turns", []byte(body))); err != nil || status != 201 {
			b.Fatalf("append: %d %v", status, err)
		}
	}
	replay := d.request("GET", "/v1/history/replay?format=openai", nil)
	status, length, err := c.do(replay)
	if err != nil || status != 200 {
		b.Fatalf("replay: %d %v", status, err)
	}
	bareAddr := bareServer(b, bytes.Repeat([]byte("x"), length))
	bare := []byte("GET /v1/history/replay?format=openai HTTP/1.1\r\nHost: " + bareAddr + "\r\nAuthorization: Bearer " + d.token + "\r\n\r\n")
	ours, theirs := make([]*client, clients), make([]*client, clients)
	for i := range clients {
		ours[i], theirs[i] = dial(b, d.addr), dial(b, bareAddr)
	}
	var ratios, rates []float64
	for range rounds {
		mine := rate(b, clients, slice, func(i int) error { _, _, err := ours[i].do(replay); return err })
		floor := rate(b, clients, slice, func(i int) error { _, _, err := theirs[i].do(bare); return err })
		ratios, rates = append(ratios, mine/floor), append(rates, mine)
	}
	b.ReportMetric(median(ratios), "ratio")
	b.ReportMetric(median(rates), "replays/s")
	b.ReportMetric(0, "ns/op")
}

func bareServer(b *testing.B, body []byte) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Content-Length", fmt.Sprint(len(body)))
		_, _ = w.Write(body)
	})}
	done := make(chan struct{})
	go func() { defer close(done); _ = server.Serve(l) }()
	b.Cleanup(func() { _ = server.Close(); <-done })
	return l.Addr().String()
}
