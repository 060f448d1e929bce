// Package accept drives the built daemon as its users do, with real conversations,
// and kills it while they write.
package accept

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"historyd/test/built"
)

func TestMain(m *testing.M) {
	code := m.Run()
	built.Remove()
	os.Exit(code)
}

// daemon is one data directory and the process that serves it, which may be killed
// and started again at the same address.
type daemon struct {
	t    *testing.T
	path string
	dir  string
	addr string
	env  []string
	file string // of its configuration; empty is none

	built.Process // its log is that of all its lives
}

func newDaemon(t *testing.T, env ...string) *daemon {
	t.Helper()
	path, err := built.Path()
	if err != nil {
		t.Fatal(err)
	}
	addr := freeAddress(t)
	d := &daemon{t: t, path: path, dir: filepath.Join(t.TempDir(), "data"), addr: addr,
		env: append(os.Environ(), append(env, "HISTORYD_LOG_LEVEL=debug", "HISTORYD_LOG_FORMAT=json")...)}
	t.Cleanup(d.kill)
	return d
}

// taken are the ports that daemons of this process have.
var taken sync.Map

// freeAddress is one that stays free while a daemon is down: from below the ports that the kernel gives to whoever asks
// for any.
func freeAddress(t *testing.T) string {
	t.Helper()
	for range 100 {
		port := 15_000 + rand.IntN(15_000)
		if _, double := taken.LoadOrStore(port, true); double {
			continue
		}
		l, err := net.Listen("tcp", fmt.Sprint("127.0.0.1:", port))
		if err != nil {
			continue
		}
		_ = l.Close()
		return l.Addr().String()
	}
	t.Fatal("there is no free port")
	return ""
}

// configure gives the daemon a configuration file from its next start on. JSON is YAML, too.
func (d *daemon) configure(config any) {
	d.t.Helper()
	d.file = filepath.Join(d.t.TempDir(), "historyd.yaml")
	if err := os.WriteFile(d.file, encode(d.t, config), 0o600); err != nil {
		d.t.Fatal(err)
	}
}

// token makes a caller.
func (d *daemon) token(kind, id, permission string) string {
	return d.tokenIn("", kind, id, permission)
}

// tokenIn makes a caller of a workspace.
func (d *daemon) tokenIn(workspace, kind, id, permission string) string {
	d.t.Helper()
	out, err := d.command("token", "create", "--data-dir", d.dir, "--kind", kind, "--id", id,
		"--permission-scope", permission, "--workspace", workspace).Output()
	if err != nil {
		d.t.Fatalf("token create: %v: %s", err, out)
	}
	return strings.TrimSpace(string(out))
}

// begin starts the daemon, for the first time or again, and waits until it serves.
func (d *daemon) begin() {
	d.t.Helper()
	d.start()
	d.awaitReady()
}

func (d *daemon) start() {
	d.t.Helper()
	args := []string{"serve", "--data-dir", d.dir, "--listen", d.addr}
	if d.file != "" {
		args = append(args, "--config", d.file)
	}
	if _, err := d.Start(d.command(args...)); err != nil {
		d.t.Fatal(err)
	}
}

func (d *daemon) awaitReady() {
	d.t.Helper()
	for range 500 {
		resp, err := http.Get("http://" + d.addr + "/readyz")
		if err == nil {
			_ = resp.Body.Close()
			if resp.StatusCode == http.StatusOK {
				return
			}
		}
		time.Sleep(10 * time.Millisecond)
	}
	d.t.Fatalf("the daemon does not get ready: %s", d.Log())
}

// kill ends the process without a word.
func (d *daemon) kill() { _ = d.End(syscall.SIGKILL) }

// stop ends the process as systemd does, and holds it to a clean end.
func (d *daemon) stop() {
	d.t.Helper()
	if err := d.End(syscall.SIGTERM); err != nil {
		d.t.Errorf("the daemon ended with %v: %s", err, d.Log())
	}
}

// caller is somebody who talks to the daemon.
type caller struct {
	d     *daemon
	token string
}

// errDown tells that no whole answer came: the daemon was killed meanwhile, or it took too long.
var errDown = errors.New("no answer")

// patience is how long anything is waited for that should take a moment.
const patience = 30 * time.Second

// await polls until something has come to pass.
func await(t *testing.T, what string, done func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !done(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("it does not come to pass that %s", what)
		}
	}
}

func (c caller) try(method, path string, body []byte, header ...string) (int, []byte, http.Header, error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, "http://"+c.d.addr+path, bytes.NewReader(body))
	if err != nil {
		return 0, nil, nil, err
	}
	req.Header.Set("Authorization", "Bearer "+c.token)
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	for i := 0; i < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	resp, err := http.DefaultTransport.RoundTrip(req)
	if err != nil {
		return 0, nil, nil, errDown
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		return 0, nil, nil, errDown
	}
	return resp.StatusCode, b, resp.Header, nil
}

// do is try on a daemon that nobody kills; want is the status.
func (c caller) do(want int, method, path string, body []byte, header ...string) []byte {
	c.d.t.Helper()
	status, b, _, err := c.try(method, path, body, header...)
	if err != nil || status != want {
		c.d.t.Fatalf("%s %s: status %d, want %d: %v: %.300s", method, path, status, want, err, b)
	}
	return b
}

// together runs subtests all at once, however few processors there are: they mostly wait.
func together[T any](t *testing.T, cases []T, name func(T) string, run func(*testing.T, T)) {
	var all sync.WaitGroup
	for _, c := range cases {
		all.Go(func() { t.Run(name(c), func(t *testing.T) { run(t, c) }) })
	}
	all.Wait()
}

func encode(t *testing.T, v any) []byte {
	t.Helper()
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func decode[T any](t *testing.T, b []byte) T {
	t.Helper()
	var v T
	d := json.NewDecoder(bytes.NewReader(b))
	d.UseNumber()
	if err := d.Decode(&v); err != nil {
		t.Fatalf("decode: %v: %.200s", err, b)
	}
	return v
}

func (d *daemon) command(args ...string) *exec.Cmd {
	cmd := exec.Command(d.path, args...)
	cmd.Env = d.env
	return cmd
}
