// Package attack does to the built daemon what its enemies would: web pages, other callers, hostile text, broken HTTP.
package attack

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"historyd/test/built"
)

var (
	long      = flag.Bool("attack.long", false, "also do what takes minutes")
	inProcess = flag.Int("attack.inprocess", 10_000, "hostile requests to the handler")
	overWire  = flag.Int("attack.wire", 2_000, "hostile requests to the daemon")
	seed      = flag.Uint64("attack.seed", 1, "what the hostile requests depend on")
	update    = flag.Bool("update", false, "rewrite the golden files")
)

func TestMain(m *testing.M) {
	flag.Parse()
	code := m.Run()
	built.Remove()
	os.Exit(code)
}

// patience is how long anything is waited for that should take a moment.
const patience = 60 * time.Second

// target is a daemon with three callers: mallory, who attacks, and ann and bob, whose records are looked for. Ann and
// mallory differ in their kind alone from others of that name.
type target struct {
	t      testing.TB
	path   string
	dir    string
	addr   string
	client *http.Client

	built.Process
	ann, bob, mallory caller
}

// caller is somebody with a token, or without one.
type caller struct {
	d     *target
	token string
}

// secret is what bob says, and nobody else may come to see.
const secret = "zqbobssecret"

// newTarget starts a daemon with bob's secret in it. The settings are those of a configuration file.
func newTarget(t testing.TB, settings map[string]any) *target {
	t.Helper()
	path, err := built.Path()
	if err != nil {
		t.Fatal(err)
	}
	d := &target{t: t, path: path, dir: filepath.Join(t.TempDir(), "data")}
	d.client = &http.Client{Timeout: patience, Transport: &http.Transport{MaxIdleConnsPerHost: 16}}
	d.ann, d.bob, d.mallory = d.caller("operator", "ann"), d.caller("mesh", "bob"), d.caller("operator", "mallory")
	t.Cleanup(d.kill) // also when it does not come to serve
	d.start(settings)
	for _, name := range []string{"default", "x", "diary"} {
		d.bob.do(201, "POST", "/v1/conversations/"+name+"/turns", said(secret+" of "+name))
	}
	return d
}

func (d *target) caller(kind, id string) caller {
	d.t.Helper()
	out, err := exec.Command(d.path, "token", "create", "--data-dir", d.dir, "--kind", kind, "--id", id).Output()
	if err != nil {
		d.t.Fatalf("token create: %v: %s", err, out)
	}
	return caller{d, strings.TrimSpace(string(out))}
}

// start starts the daemon under a command, if one is given, and waits until it serves.
func (d *target) start(settings map[string]any, under ...string) {
	d.t.Helper()
	config := map[string]any{"listen": map[string]any{"tcp": "127.0.0.1:0"}, "log": map[string]any{"level": "debug", "format": "json"}}
	for k, v := range settings {
		config[k] = v
	}
	file := filepath.Join(d.t.TempDir(), "historyd.yaml")
	text, err := json.Marshal(config)
	if err == nil {
		err = os.WriteFile(file, text, 0o600)
	}
	if err != nil {
		d.t.Fatal(err)
	}
	args := append(under, d.path, "serve", "--config", file, "--data-dir", d.dir)
	cmd := exec.Command(args[0], args[1:]...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // the command and the daemon end together
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		d.t.Fatal(err)
	}
	told, err := d.Start(cmd)
	if err != nil {
		d.t.Fatal(err)
	}
	serving := make(chan string, 1)
	go func() {
		line, _ := bufio.NewReader(stdout).ReadString('\n')
		if _, addr, ok := strings.Cut(strings.TrimSpace(line), "http://"); ok {
			serving <- addr
		}
	}()
	select {
	case d.addr = <-serving:
	case <-told:
		d.t.Fatalf("the daemon ends: %s", d.Log())
	case <-time.After(patience):
		d.t.Fatalf("the daemon does not serve: %s", d.Log())
	}
}

func (d *target) kill() { _ = d.end(syscall.SIGKILL) }

// stop ends the daemon as a service manager does, and holds it to a clean end.
func (d *target) stop() {
	d.t.Helper()
	if err := d.end(syscall.SIGTERM); err != nil {
		d.t.Errorf("the daemon ended with %v: %s", err, tail(d.Log()))
	}
}

func (d *target) end(how syscall.Signal) error {
	d.client.CloseIdleConnections()
	return d.End(how)
}

// check lets the judge look at the data directory of a daemon that has stopped.
func (d *target) check() {
	d.t.Helper()
	if out, err := exec.Command(d.path, "check", d.dir).CombinedOutput(); err != nil {
		d.t.Errorf("check: %v: %s", err, out)
	}
}

// answer is a whole response.
type answer struct {
	status int
	header http.Header
	body   []byte
	last   bool // the connection is closed behind it
}

// code is that of an answer that is a problem.
func (a answer) code() string {
	var p struct{ Code string }
	_ = json.Unmarshal(a.body, &p)
	return p.Code
}

// mustBeProblem holds an error to what is said of all errors.
func (a answer) mustBeProblem(t testing.TB, what string) {
	t.Helper()
	var p struct {
		Status    int
		Code      string
		RequestID string `json:"request_id"`
	}
	if err := json.Unmarshal(a.body, &p); err != nil || p.Status != a.status || p.Code == "" || p.RequestID != a.header.Get("X-Request-Id") ||
		a.header.Get("Content-Type") != "application/problem+json" {
		t.Errorf("%s: no problem but %d %v: %.300s", what, a.status, a.header, a.body)
	}
}

func (c caller) try(method, path string, body []byte, header ...string) (answer, error) {
	req, err := http.NewRequestWithContext(context.Background(), method, "http://"+c.d.addr+path, bytes.NewReader(body))
	if err != nil {
		return answer{}, err
	}
	if c.token != "" {
		req.Header.Set("Authorization", "Bearer "+c.token)
	}
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	for i := 0; i < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	resp, err := c.d.client.Do(req)
	if err != nil {
		return answer{}, err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	return answer{resp.StatusCode, resp.Header, text, resp.Close}, err
}

// do is try of a request that is answered with a status.
func (c caller) do(want int, method, path string, body []byte, header ...string) []byte {
	c.d.t.Helper()
	a, err := c.try(method, path, body, header...)
	if err != nil || a.status != want {
		c.d.t.Fatalf("%s %s: %v, %d, want %d: %.500s", method, path, err, a.status, want, a.body)
	}
	return a.body
}

// all is everything that a caller has, in the daemon's words.
func (c caller) all() string {
	c.d.t.Helper()
	var b strings.Builder
	list := c.do(200, "GET", "/v1/conversations?limit=1000", nil)
	var page struct{ Data []struct{ Name string } }
	if err := json.Unmarshal(list, &page); err != nil {
		c.d.t.Fatal(err)
	}
	b.Write(list)
	for _, conversation := range page.Data {
		b.Write(c.do(200, "GET", "/v1/conversations/"+conversation.Name+"/messages?limit=1000", nil))
	}
	return b.String()
}

// unharmed returns what fails the test when another caller's record is no longer what it was.
func (c caller) unharmed() func() {
	c.d.t.Helper()
	was := c.all()
	return func() {
		c.d.t.Helper()
		if now := c.all(); now != was {
			c.d.t.Errorf("another caller's record is\n%s\nwas\n%s", now, was)
		}
	}
}

// said is an append of a turn.
func said(text string) []byte {
	return fmt.Appendf(nil, `{"messages":[{"role":"user","content":%q},{"role":"assistant","content":"noted"}]}`, text)
}

// wire is a connection on which bytes are sent as they are.
type wire struct {
	conn net.Conn
	in   *bufio.Reader
}

func (d *target) dial() *wire {
	d.t.Helper()
	conn, err := net.Dial("tcp", d.addr)
	if err != nil {
		d.t.Fatal(err)
	}
	d.t.Cleanup(func() { _ = conn.Close() })
	_ = conn.SetDeadline(time.Now().Add(patience))
	return &wire{conn, bufio.NewReader(conn)}
}

// next is the next response, to a request of that method; io.EOF when the daemon has closed the connection instead.
func (w *wire) next(method string) (answer, error) {
	if _, err := w.in.Peek(1); err != nil {
		if errors.Is(err, syscall.ECONNRESET) { // it closed with something of ours unread
			err = io.EOF
		}
		return answer{}, err
	}
	resp, err := http.ReadResponse(w.in, &http.Request{Method: method})
	if err != nil {
		return answer{}, err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if resp.Close && errors.Is(err, syscall.ECONNRESET) {
		err = nil
	}
	return answer{resp.StatusCode, resp.Header, text, resp.Close}, err
}

// metric is the sum of a metric over its labels, or a series of it.
func (d *target) metric(name string) (sum float64) {
	d.t.Helper()
	for line := range strings.Lines(string(d.ann.do(200, "GET", "/metrics", nil))) {
		series, value, _ := strings.Cut(strings.TrimSpace(line), " ")
		if of, _, _ := strings.Cut(series, "{"); of == name || series == name {
			n, err := strconv.ParseFloat(value, 64)
			if err != nil {
				d.t.Fatal(err)
			}
			sum += n
		}
	}
	return sum
}

// contents is what all files below a directory hold, and their names.
func contents(t testing.TB, dir string) []byte {
	t.Helper()
	var all bytes.Buffer
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) { // what is put aside goes by itself
			return nil
		}
		if err != nil {
			return err
		}
		fmt.Fprintln(&all, path)
		if !e.Type().IsRegular() {
			return nil
		}
		b, err := os.ReadFile(path)
		all.Write(b)
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all.Bytes()
}

// tail is the end of a text.
func tail(b []byte) []byte { return b[max(0, len(b)-2000):] }
