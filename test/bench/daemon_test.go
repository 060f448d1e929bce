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
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"historyd/test/built"
)

// daemon is the built historyd on a loopback port.
type daemon struct {
	addr  string
	token string
	dir   string
	cmd   *exec.Cmd
}

// startDaemon builds and starts the daemon on an empty data directory.
func startDaemon(tb testing.TB) *daemon {
	tb.Helper()
	path, err := built.Path()
	if err != nil {
		tb.Fatal(err)
	}
	d := &daemon{dir: filepath.Join(tb.TempDir(), "data")}
	out, err := exec.Command(path, "token", "create", "--data-dir", d.dir, "--kind", "operator", "--id", "bench").Output()
	if err != nil {
		tb.Fatalf("token create: %v", err)
	}
	d.token = strings.TrimSpace(string(out))
	d.start(tb)
	return d
}

func (d *daemon) start(tb testing.TB) {
	tb.Helper()
	path, err := built.Path()
	if err != nil {
		tb.Fatal(err)
	}
	d.cmd = exec.Command(path, "serve", "--data-dir", d.dir, "--listen", "127.0.0.1:0")
	d.cmd.Stderr = os.Stderr
	d.cmd.Env = append(os.Environ(), "HISTORYD_LOG_LEVEL=warn", "HISTORYD_DEBUG_LISTEN="+os.Getenv("BENCH_DEBUG_LISTEN"))
	stdout, err := d.cmd.StdoutPipe()
	if err != nil {
		tb.Fatal(err)
	}
	if err := d.cmd.Start(); err != nil {
		tb.Fatal(err)
	}
	line, err := bufio.NewReader(stdout).ReadString('\n')
	at := strings.Index(line, "http://")
	if err != nil || at < 0 {
		d.stop()
		tb.Fatalf("no address is printed: %q, %v", line, err)
	}
	d.addr = strings.TrimSpace(line[at+len("http://"):])
}

func (d *daemon) stop() {
	_ = d.cmd.Process.Kill()
	_ = d.cmd.Wait()
}

func (d *daemon) restart(tb testing.TB) {
	tb.Helper()
	d.stop()
	d.start(tb)
}

func TestMain(m *testing.M) {
	code := m.Run()
	built.Remove()
	os.Exit(code)
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
