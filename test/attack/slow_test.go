package attack

import (
	"bufio"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// A dawdler is a way to hold a connection: what it sends at once, and what it sends a byte a second.
type dawdler struct {
	name       string
	text, drip string
	limit      time.Duration // that the documents give such a connection
}

// unread is an answer that nobody reads. Its end can't be seen by who doesn't read.
const unread = "an answer that nobody reads"

// dawdlers are those of strangers, and of a caller.
func (d *target) dawdlers() []dawdler {
	stranger := "Host: " + d.addr + "\r\n"
	known := stranger + "Authorization: Bearer " + d.mallory.token + "\r\nContent-Type: application/json\r\n"
	return []dawdler{
		{"says nothing", "", "", 5 * time.Second},
		{"a header a byte a second", "GET /v1/whoami HTTP/1.1\r\n" + stranger + "X-A: ", "x", 5 * time.Second},
		{"a header a byte a second, by a caller", "GET /v1/whoami HTTP/1.1\r\n" + known + "X-A: ", "x", 5 * time.Second},
		{"a body a byte a second, by a stranger", "POST /v1/history/turns HTTP/1.1\r\n" + stranger + "Content-Length: 100000\r\n\r\n", " ", 30 * time.Second},
		{"a body a byte a second", "POST /v1/history/turns HTTP/1.1\r\n" + known + "Content-Length: 100000\r\n\r\n", " ", 35 * time.Second},
		{"an import a byte a second", "POST /v1/history/import HTTP/1.1\r\n" + known + "Transfer-Encoding: chunked\r\n\r\n", "1\r\n \r\n", 35 * time.Second},
		{unread, "GET /v1/conversations/long/export HTTP/1.1\r\n" + known + "\r\n", "", 95 * time.Second},
		{"a connection that is idle", "GET /healthz HTTP/1.1\r\n" + stranger + "\r\n", "", 60 * time.Second},
	}
}

// dawdle holds a connection until it is closed or that is told to stop, and says which.
func (d *target) dawdle(w dawdler, stop <-chan struct{}, opened func()) (closed bool) {
	conn, err := net.Dial("tcp", d.addr)
	if err != nil {
		return true
	}
	defer conn.Close()
	_ = conn.(*net.TCPConn).SetReadBuffer(4096)
	_, _ = io.WriteString(conn, w.text)
	opened()
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		select {
		case <-stop:
			return false
		case <-tick.C:
		}
		if w.drip != "" {
			if _, err := io.WriteString(conn, w.drip); err != nil {
				return true
			}
		}
		if !stays(conn, w) {
			return true
		}
	}
}

// stays looks whether the daemon has closed a connection, and reads nothing that it need not.
func stays(conn net.Conn, w dawdler) bool {
	if w.name == unread {
		return true
	}
	_ = conn.SetReadDeadline(time.Now().Add(time.Millisecond))
	buf := make([]byte, 512)
	for {
		if _, err := conn.Read(buf); err != nil {
			return errors.Is(err, os.ErrDeadlineExceeded)
		}
	}
}

// A crowd is many dawdlers, who come again when they are sent away.
type crowd struct {
	stop         chan struct{}
	all          sync.WaitGroup
	come, closed atomic.Int64
}

func (d *target) gather(n int) *crowd {
	c := &crowd{stop: make(chan struct{})}
	ways := d.dawdlers()
	for i := range n {
		c.all.Go(func() {
			for d.dawdle(ways[i%len(ways)], c.stop, func() { c.come.Add(1) }) {
				c.closed.Add(1)
			}
		})
	}
	return c
}

func (c *crowd) leave() {
	close(c.stop)
	c.all.Wait()
}

// grace is how much later than at its limit a connection may be closed, on a machine that is busy.
const grace = 15 * time.Second

// TestSlowConnectionsAreClosedInTime has one of each. A short run has no time for those that may stay for long.
func TestSlowConnectionsAreClosedInTime(t *testing.T) {
	t.Parallel()
	d := newTarget(t, nil)
	for range 20 {
		d.mallory.do(201, "POST", "/v1/conversations/long/turns", said(strings.Repeat("at length ", 10_000)))
	}
	var all sync.WaitGroup
	for _, w := range d.dawdlers() {
		if w.limit > 10*time.Second && !*long || w.name == unread {
			continue
		}
		all.Go(func() {
			stop, began := make(chan struct{}), time.Now()
			timer := time.AfterFunc(w.limit+grace, func() { close(stop) })
			defer timer.Stop()
			if !d.dawdle(w, stop, func() {}) {
				t.Errorf("%s: is served for more than %s", w.name, time.Since(began))
			}
			t.Logf("%s: closed after %s, of %s", w.name, time.Since(began).Round(time.Second), w.limit)
		})
	}
	all.Wait()
	d.stop()
}

// peak is the most memory that the daemon has had, in MiB.
func (d *target) peak() int64 {
	d.t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", d.Pid()))
	if err != nil {
		d.t.Skipf("SKIPPED: no /proc to read the memory of a process from: %v", err)
	}
	_, rest, _ := strings.Cut(string(status), "VmHWM:")
	kib, err := strconv.ParseInt(strings.Fields(rest)[0], 10, 64)
	if err != nil {
		d.t.Fatal(err)
	}
	return kib >> 10
}

// work does what a good client does, and tells how long each request took. Each has to succeed.
func (c caller) work(requests int) (took []time.Duration) {
	c.d.t.Helper()
	for i := range requests {
		began := time.Now()
		switch i % 4 {
		case 0:
			c.do(201, "POST", "/v1/conversations/desk/turns", said("work"))
		case 1:
			c.do(200, "GET", "/v1/conversations/desk/messages?limit=10&order=desc", nil)
		case 2:
			c.do(200, "GET", "/v1/conversations/desk/replay", nil)
		case 3:
			c.do(200, "GET", "/v1/whoami", nil)
		}
		took = append(took, time.Since(began))
	}
	return took
}

func p99(took []time.Duration) time.Duration {
	slices.Sort(took)
	return took[len(took)*99/100]
}

func TestAThousandSlowConnectionsKeepNobodyFromWork(t *testing.T) {
	d := newTarget(t, map[string]any{"log": map[string]any{"level": "warn", "format": "json"}})
	for range 20 {
		d.mallory.do(201, "POST", "/v1/conversations/long/turns", said(strings.Repeat("at length ", 10_000)))
	}
	rounds, requests := 1, 100
	if *long {
		rounds, requests = 3, 1000
	}
	var idle, crowded []time.Duration
	for range rounds {
		idle = append(idle, d.ann.work(requests)...)
		c := d.gather(1000)
		await(t, "a thousand connections are open", func() bool { return c.come.Load() >= 1000 })
		await(t, "those who do not read, but for some, are refused", func() bool { return d.refusals("rate_limited") > 90 })
		crowded = append(crowded, d.ann.work(requests)...)
		await(t, "slow headers are sent away", func() bool { return c.closed.Load() > 100 })
		if *long {
			until := time.Now().Add(150 * time.Second)
			for time.Now().Before(until) {
				crowded = append(crowded, d.ann.work(requests/10)...)
			}
		}
		c.leave()
	}
	ratio := float64(p99(crowded)) / float64(p99(idle))
	t.Logf("p99 of a good client: %v alone, %v among a thousand slow ones, %.1f times; memory at most %d MiB", p99(idle), p99(crowded), ratio, d.peak())
	if peak := d.peak(); peak > 128 {
		t.Errorf("the daemon took %d MiB", peak)
	}
	d.ann.work(4)
	d.stop()
	d.check()
}

// TestLargeReplaysThatNobodyReadsAreBounded asks for many that differ, so that none is answered from what is known.
func TestLargeReplaysThatNobodyReadsAreBounded(t *testing.T) {
	d := newTarget(t, nil)
	for range 4 {
		image := make([]byte, 3_000_000)
		copy(image, "\x89PNG\r\n\x1a\n")
		for i := 8; i < len(image); i++ {
			image[i] = byte(rand.Uint32())
		}
		d.mallory.do(201, "POST", "/v1/conversations/x/turns", fmt.Appendf(nil, `{"messages":[{"role":"user","content":[{"type":"image","media_type":"image/png","data":%q}]}]}`, base64.StdEncoding.EncodeToString(image)))
	}
	const n, places = 48, 8
	for i := range n {
		w := d.dial()
		_ = w.conn.(*net.TCPConn).SetReadBuffer(4096)
		_, _ = fmt.Fprintf(w.conn, "GET /v1/conversations/x/replay?mode=full&format=openai&max_tokens=%d HTTP/1.1\r\nHost: %s\r\nAuthorization: Bearer %s\r\n\r\n", 100_000+i, d.addr, d.mallory.token)
	}
	await(t, "all but those that have places are refused", func() bool { return d.refusals("rate_limited") >= n-places })
	d.ann.work(20)
	t.Logf("%d MiB", d.peak())
	if peak := d.peak(); peak > 640 {
		t.Errorf("the daemon took %d MiB", peak)
	}
}

// TestLargeBodiesThatNeverEndAreBounded has each come to all but its end.
func TestLargeBodiesThatNeverEndAreBounded(t *testing.T) {
	d := newTarget(t, nil)
	const n, places, size = 64, 16, 7 << 20
	part := []byte(strings.Repeat(" ", size))
	var all sync.WaitGroup
	for range n {
		w := d.dial()
		all.Go(func() { // ends with the connection
			_, _ = fmt.Fprintf(w.conn, "POST /v1/history/turns HTTP/1.1\r\nHost: %s\r\nAuthorization: Bearer %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n", d.addr, d.mallory.token, size+100)
			_, _ = w.conn.Write(part)
		})
	}
	await(t, "all but those that have places are refused", func() bool { return d.refusals("rate_limited") >= n-places })
	d.ann.work(20)
	t.Logf("%d MiB", d.peak())
	if peak := d.peak(); peak > 320 {
		t.Errorf("the daemon took %d MiB", peak)
	}
	d.kill()
	all.Wait()
}

// TestAppendsOfVeryManyMessagesAreBounded sends some at once that are small for their bytes and large for their messages.
func TestAppendsOfVeryManyMessagesAreBounded(t *testing.T) {
	d := newTarget(t, nil)
	const n, messages = 8, 40_000
	body := `{"messages":[` + strings.Repeat(`{"role":"user","content":"a"},`, messages-1) + `{"role":"user","content":"a"}]}`
	statuses := make(chan string, n)
	for i := range n {
		w := d.dial()
		go func() {
			_, _ = fmt.Fprintf(w.conn, "POST /v1/conversations/many%d/turns HTTP/1.1\r\nHost: %s\r\nAuthorization: Bearer %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s",
				i, d.addr, d.mallory.token, len(body), body)
			line, _ := bufio.NewReader(w.conn).ReadString('\n')
			statuses <- line
		}()
	}
	recorded := 0
	for range n {
		switch line := <-statuses; {
		case strings.HasPrefix(line, "HTTP/1.1 201 "):
			recorded++
		case !strings.HasPrefix(line, "HTTP/1.1 429 "):
			t.Errorf("answered %q", line)
		}
	}
	d.ann.work(20)
	t.Logf("%d of %d recorded, %d MiB", recorded, n, d.peak())
	if peak := d.peak(); peak > 400 || recorded == 0 {
		t.Errorf("the daemon took %d MiB for %d", peak, recorded)
	}
}

// await polls until something has come to pass.
func await(t testing.TB, what string, done func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !done(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("it does not come to pass that %s", what)
		}
	}
}
