// Package fault breaks what the built daemon stands on, while many clients use all of it, and holds what is found
// afterwards to what was answered.
package fault

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"historyd/test/built"
)

var (
	cycles = flag.Int("fault.cycles", 200, "how often the daemon is killed under load")
	long   = flag.Bool("fault.long", false, "break everything at every place, not at some")
)

func TestMain(m *testing.M) {
	flag.Parse()
	code := m.Run()
	built.Remove()
	os.Exit(code)
}

// patience is how long anything is waited for that should take a moment.
const patience = 60 * time.Second

// server is one data directory, and the process that serves it on a socket beside it.
type server struct {
	t      testing.TB
	path   string
	dir    string
	file   string // of its configuration
	socket string
	token  string
	env    []string // beside that of the test
	ulimit string   // of the shell that starts it; empty when none does
	client *http.Client

	built.Process // that runs, or ran last
}

// newServer makes a caller in a data directory, which is made if there is none. The settings are those of a
// configuration file.
func newServer(t testing.TB, dir string, settings map[string]any) *server {
	t.Helper()
	s := prepare(t, dir, settings)
	s.token = s.caller("operator", "ann")
	return s
}

// caller makes a caller and returns its token.
func (s *server) caller(kind, id string) string {
	s.t.Helper()
	out, err := exec.Command(s.path, "token", "create", "--data-dir", s.dir, "--kind", kind, "--id", id).Output()
	if err != nil {
		s.t.Fatalf("token create: %v: %s", err, out)
	}
	return strings.TrimSpace(string(out))
}

// prepare is a server whose data directory has callers already.
func prepare(t testing.TB, dir string, settings map[string]any) *server {
	t.Helper()
	path, err := built.Path()
	if err != nil {
		t.Fatal(err)
	}
	beside := t.TempDir()
	s := &server{t: t, path: path, dir: dir, file: filepath.Join(beside, "historyd.yaml"), socket: filepath.Join(beside, "s")}
	config := map[string]any{
		"listen":     map[string]any{"tcp": "", "unix": s.socket},
		"log":        map[string]any{"level": "warn", "format": "text"},
		"compaction": map[string]any{"keep_verbatim_turns": 2, "fold_batch": 1},
	}
	for k, v := range settings {
		config[k] = v
	}
	if err := os.WriteFile(s.file, encode(t, config), 0o600); err != nil {
		t.Fatal(err)
	}
	s.client = s.newClient()
	t.Cleanup(func() {
		s.kill()
		s.client.CloseIdleConnections()
	})
	return s
}

// newClient has connections of its own, which are to be closed.
func (s *server) newClient() *http.Client {
	return &http.Client{Timeout: patience, Transport: &http.Transport{
		MaxIdleConnsPerHost: 64,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", s.socket)
		},
	}}
}

// begin starts the daemon and waits until it answers.
func (s *server) begin() {
	s.t.Helper()
	if err := s.start(); err != nil {
		s.t.Fatalf("%v: %s", err, s.log())
	}
}

// start starts the daemon, and returns when it answers or has ended.
func (s *server) start() error {
	args := []string{s.path, "serve", "--config", s.file, "--data-dir", s.dir}
	if s.ulimit != "" {
		args = append([]string{"/bin/sh", "-c", "ulimit " + s.ulimit + ` && exec "$@"`, "sh"}, args...)
	}
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Env = append(os.Environ(), s.env...)
	s.ForgetLog()
	told, err := s.Start(cmd)
	if err != nil {
		return err
	}
	s.client.CloseIdleConnections()
	for end := time.Now().Add(patience); time.Now().Before(end); {
		conn, err := net.Dial("unix", s.socket)
		if err == nil {
			_ = conn.Close()
			return nil
		}
		select {
		case <-told:
			return fmt.Errorf("the daemon ends: %w", s.End(syscall.SIGKILL))
		case <-time.After(2 * time.Millisecond):
		}
	}
	return errors.New("the daemon does not answer")
}

func (s *server) log() string { return string(s.Log()) }

func (s *server) kill() { _ = s.End(syscall.SIGKILL) }

// stop ends the daemon as a service manager does, and holds it to a clean end.
func (s *server) stop() {
	s.t.Helper()
	if err := s.End(syscall.SIGTERM); err != nil {
		s.t.Errorf("the daemon ended with %v: %s", err, s.log())
	}
}

// check runs the judge, and returns what it finds.
func (s *server) check() (findings []string) {
	out, err := exec.Command(s.path, "check", "--json", s.dir).Output()
	for line := range strings.Lines(string(out)) {
		if !strings.HasPrefix(line, `{"summary"`) {
			findings = append(findings, strings.TrimSpace(line))
		}
	}
	if err != nil && len(findings) == 0 {
		findings = []string{err.Error()}
	}
	return findings
}

// answer is what came of a request: status 0 when nothing did.
type answer struct {
	status int
	body   []byte
	header http.Header
}

// code is the code of an answer that is an error.
func (a answer) code() string {
	var p struct{ Code string }
	_ = json.Unmarshal(a.body, &p)
	return p.Code
}

// try makes a request; whatever goes wrong with it is no answer.
func (s *server) try(method, path string, body []byte, header ...string) answer {
	return s.tryBy(s.client, method, path, body, header...)
}

// tryBy is try on the connections of another client.
func (s *server) tryBy(client *http.Client, method, path string, body []byte, header ...string) answer {
	req, err := http.NewRequest(method, "http://localhost"+path, bytes.NewReader(body))
	if err != nil {
		return answer{}
	}
	req.Header.Set("Authorization", "Bearer "+s.token)
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	for i := 0; i < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	// A transport repeats what it takes for safe to repeat; here every request is one.
	req.GetBody = nil
	resp, err := client.Do(req)
	if err != nil {
		return answer{}
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return answer{}
	}
	return answer{resp.StatusCode, text, resp.Header}
}

// do is try on a daemon that nothing happens to; want is the status.
func (s *server) do(want int, method, path string, body []byte, header ...string) []byte {
	s.t.Helper()
	a := s.try(method, path, body, header...)
	if a.status != want {
		s.t.Fatalf("%s %s: status %d, want %d: %.300s; log: %s", method, path, a.status, want, a.body, s.log())
	}
	return a.body
}

// scratch is a directory for data that no disk has to keep: in memory where that can be mounted.
func scratch(t testing.TB) string {
	t.Helper()
	dir := t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=256m,mode=0700"); err == nil {
		t.Cleanup(func() { unmount(t, dir) })
	}
	return filepath.Join(dir, "data")
}

func unmount(t testing.TB, dir string) {
	if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
		t.Errorf("unmount %s: %v", dir, err)
	}
}

func encode(t testing.TB, v any) []byte {
	t.Helper()
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return b
}
