package accept

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// line is a connection to the daemon on which bytes are sent as they are.
type line struct {
	t    *testing.T
	conn net.Conn
	in   *bufio.Reader
}

func (d *daemon) line() *line {
	d.t.Helper()
	conn, err := net.Dial("tcp", d.addr)
	if err != nil {
		d.t.Fatal(err)
	}
	d.t.Cleanup(func() { _ = conn.Close() })
	return &line{d.t, conn, bufio.NewReader(conn)}
}

func (l *line) send(text string) {
	l.t.Helper()
	if _, err := io.WriteString(l.conn, text); err != nil {
		l.t.Fatal(err)
	}
}

// answer is the status of the next response, 0 when there is none in that time.
func (l *line) answer(within time.Duration) (status int, header http.Header, body string) {
	l.t.Helper()
	if err := l.conn.SetReadDeadline(time.Now().Add(within)); err != nil {
		l.t.Fatal(err)
	}
	if _, err := l.in.Peek(1); errors.Is(err, os.ErrDeadlineExceeded) {
		return 0, nil, ""
	}
	if err := l.conn.SetReadDeadline(time.Now().Add(patience)); err != nil {
		l.t.Fatal(err)
	}
	resp, err := http.ReadResponse(l.in, nil)
	if err != nil {
		l.t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil && resp.StatusCode != 431 { // whose connection is reset behind it
		l.t.Fatal(err)
	}
	return resp.StatusCode, resp.Header, string(text)
}

// whoami is a request by a caller.
func (c caller) whoami() string {
	return "GET /v1/whoami HTTP/1.1\r\nHost: " + c.d.addr + "\r\nAuthorization: Bearer " + c.token + "\r\n\r\n"
}

const turn = `{"messages":[{"role":"user","content":"hi"}]}`

// begin is an append of a caller that is being served until end.
func (l *line) begin(c caller, conversation string) {
	l.t.Helper()
	l.send(fmt.Sprintf("POST /v1/conversations/%s/turns HTTP/1.1\r\nHost: %s\r\nAuthorization: Bearer %s\r\nContent-Type: application/json\r\n"+
		"Content-Length: %d\r\nExpect: 100-continue\r\n\r\n", conversation, c.d.addr, c.token, len(turn)))
	if status, _, text := l.answer(patience); status != 100 { // which it says when it reads the body
		l.t.Fatalf("an append is not begun: %d %s", status, text)
	}
	l.send(turn[:len(turn)-1])
}

func (l *line) end() {
	l.t.Helper()
	l.send(turn[len(turn)-1:])
	if status, _, text := l.answer(patience); status != 201 {
		l.t.Errorf("an append that took long: %d %s", status, text)
	}
}

// busy are connections on which appends are being served.
func (c caller) busy(n int) (lines []*line) {
	c.d.t.Helper()
	for i := range n {
		l := c.d.line()
		l.begin(c, fmt.Sprint("c", i))
		lines = append(lines, l)
	}
	return lines
}

// limited is a daemon with limits of its own, and two callers.
func limited(t *testing.T, limits map[string]any) (d *daemon, ann, bob caller) {
	t.Helper()
	d = newDaemon(t)
	d.configure(map[string]any{"limits": limits})
	ann, bob = caller{d, d.token("operator", "ann", "")}, caller{d, d.token("mesh", "bob", "")}
	d.begin()
	return d, ann, bob
}

func TestLimitOfHeadersIsExact(t *testing.T) {
	t.Parallel()
	const limit = 9000
	d, ann, _ := limited(t, map[string]any{"header": strconv.Itoa(limit)})
	for _, size := range []int{limit - 1, limit, limit + 1} {
		l := d.line()
		for range 2 { // on one connection, too
			head, tail := strings.TrimSuffix(ann.whoami(), "\r\n")+"X-Long: ", "\r\n\r\n"
			l.send(head + strings.Repeat("x", size-len(head)-len(tail)) + tail)
			status, _, _ := l.answer(patience)
			if want := map[bool]int{true: 200, false: 431}[size <= limit]; status != want {
				t.Errorf("headers of %d bytes, of %d: %d, want %d", size, limit, status, want)
			}
			if size > limit {
				break // that connection is closed
			}
		}
	}
}

func TestLimitsOfBodiesAreExact(t *testing.T) {
	t.Parallel()
	const body, message, imported = 6000, 3000, 20_000
	_, ann, _ := limited(t, map[string]any{"body": strconv.Itoa(body), "message": strconv.Itoa(message), "import": strconv.Itoa(imported)})
	pad := func(before, after string, size int) []byte {
		return []byte(before + strings.Repeat("x", size-len(before)-len(after)) + after)
	}
	user := func(size int) string { return string(pad(`{"role":"user","content":"`, `"}`, size)) }
	for _, tt := range []struct {
		name, path string
		limit      int
		code       string
		text       func(size int) []byte
	}{
		{"a body", "turns", body, "body_too_large", func(size int) []byte {
			return pad(`{"model":"`, `","messages":[`+user(2500)+`,`+user(2500)+`]}`, size)
		}},
		{"a message", "turns", message, "message_too_large", func(size int) []byte { return []byte(`{"messages":[` + user(size) + `]}`) }},
		{"an import", "import?format=openai&mode=replace", imported, "body_too_large", func(size int) []byte {
			list := strings.Repeat(user(2000)+",", 9)
			return []byte("[" + list + user(size-len(list)-2) + "]")
		}},
	} {
		for _, size := range []int{tt.limit - 1, tt.limit, tt.limit + 1} {
			status, text, _, err := ann.try("POST", "/v1/conversations/c/"+tt.path, tt.text(size))
			if err != nil {
				t.Fatal(err)
			}
			if size <= tt.limit {
				if status != 201 {
					t.Errorf("%s of %d bytes, of %d: %d %s", tt.name, size, tt.limit, status, text)
				}
				continue
			}
			p := decode[struct {
				Code          string
				Limit, Actual int
			}](t, text)
			if status != 413 || p.Code != tt.code || p.Limit != tt.limit || p.Actual != size {
				t.Errorf("%s of %d bytes, of %d: %d %s", tt.name, size, tt.limit, status, text)
			}
		}
	}
}

func TestLimitOfConnectionsIsExact(t *testing.T) {
	t.Parallel()
	d, ann, bob := limited(t, map[string]any{"connections": 4})
	busy := ann.busy(3)
	fourth := d.line()
	fourth.send(bob.whoami())
	if status, _, _ := fourth.answer(patience); status != 200 {
		t.Fatalf("the fourth of 4: %d", status)
	}
	fourth.begin(bob, "c")
	fifth := d.line()
	fifth.send(bob.whoami())
	if status, _, _ := fifth.answer(300 * time.Millisecond); status != 0 {
		t.Errorf("the fifth of 4 is served while all are busy: %d", status)
	}
	busy[0].end()
	if status, _, _ := fifth.answer(patience); status != 200 {
		t.Errorf("the fifth, when one is idle: %d", status)
	}
	for _, l := range append(busy[1:], fourth) {
		l.end()
	}
}

func TestLimitOfConcurrencyIsExactAndOfEachCaller(t *testing.T) {
	t.Parallel()
	const limit = 3
	d, ann, bob := limited(t, map[string]any{"per_caller_concurrency": limit})
	busy := ann.busy(limit - 1)
	ann.do(200, "GET", "/v1/whoami", nil) // one more is served as long as there are fewer
	busy = append(busy, ann.busy(1)...)
	first, second := d.line(), d.line()
	first.send(ann.whoami())
	second.send(ann.whoami())
	for _, l := range []*line{first, second} {
		if status, _, _ := l.answer(300 * time.Millisecond); status != 0 {
			t.Errorf("one more than %d is served at once: %d", limit, status)
		}
	}
	bob.do(200, "GET", "/v1/whoami", nil)
	busy[0].end()
	for _, l := range []*line{first, second} {
		if status, _, text := l.answer(patience); status != 200 {
			t.Errorf("one that waited, when there is a place: %d %s", status, text)
		}
	}
	busy[0].begin(ann, "c")
	first.send(ann.whoami())
	status, header, text := first.answer(patience)
	if status != 429 || header.Get("Retry-After") != "1" || !strings.Contains(text, "rate_limited") {
		t.Errorf("one that waited for long: %d %v %s", status, header, text)
	}
	for _, l := range busy {
		l.end()
	}
}

// awaitInFlight waits until so many requests are served or wait besides the one that asks.
func (d *daemon) awaitInFlight(c caller, n int) {
	d.t.Helper()
	await(d.t, fmt.Sprint(n, " requests are in flight"), func() bool {
		return strings.Contains(string(c.do(200, "GET", "/metrics", nil)), fmt.Sprintf("\nhistoryd_http_requests_in_flight %d\n", n+1))
	})
}

func TestLimitOfTheRateIsOfEachCaller(t *testing.T) {
	t.Parallel()
	// The first is served at once, the second when its turn comes, and the third would wait for more than 5 s.
	_, ann, bob := limited(t, map[string]any{"per_caller_rate": 0.3})
	var served sync.WaitGroup
	ann.do(200, "GET", "/v1/whoami", nil)
	served.Go(func() { ann.do(200, "GET", "/v1/whoami", nil) })
	bob.d.awaitInFlight(bob, 1)
	status, text, header, err := ann.try("GET", "/v1/whoami", nil)
	if after, aerr := strconv.Atoi(header.Get("Retry-After")); err != nil || status != 429 || aerr != nil || after < 1 || after > 2 {
		t.Errorf("the third: %d %v %s, %v", status, header, text, err)
	}
	bob.do(200, "GET", "/v1/whoami", nil)
	served.Wait()
}

// TestOneCallerDoesNotTakeAllConnections has a caller ask on more connections than there
// are, while none of its requests is done. Others are served before those that wait are
// told that they waited for long.
func TestOneCallerDoesNotTakeAllConnections(t *testing.T) {
	t.Parallel()
	const connections, places, wait = 32, 4, 32 / 4
	d, ann, bob := limited(t, map[string]any{"connections": connections, "per_caller_concurrency": places})
	kept := d.line() // by somebody who asks now and then
	kept.send(bob.whoami())
	if status, _, _ := kept.answer(patience); status != 200 {
		t.Fatalf("another caller: %d", status)
	}
	busy := ann.busy(places)
	var waiting []*line
	for range wait {
		l := d.line()
		l.send(ann.whoami())
		waiting = append(waiting, l)
	}
	d.awaitInFlight(bob, places+wait)
	more := make(chan *line, 3*connections)
	for range 3 * connections {
		l := d.line()
		go func() { // ends when it has an answer, or with the daemon
			if _, err := io.WriteString(l.conn, ann.whoami()); err == nil {
				_, _ = l.in.Peek(1)
			}
			more <- l
		}()
	}
	for range 3 {
		l := d.line()
		l.send(bob.whoami())
		if status, _, text := l.answer(patience); status != 200 {
			t.Fatalf("another caller: %d %s", status, text)
		}
	}
	for _, l := range waiting {
		if status, _, _ := l.answer(time.Millisecond); status != 0 {
			t.Fatalf("one that waits was answered with %d before another caller was served", status)
		}
	}
	for range 3 * connections {
		<-more // one after the other found that too many wait
	}
	kept.send(bob.whoami())
	if status, _, _ := kept.answer(patience); status != 200 {
		t.Errorf("another caller on the connection that it kept: %d", status)
	}
	for _, l := range busy {
		l.end()
	}
}
