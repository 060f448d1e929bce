// Package users runs the built daemon as one user of the machine and calls it as others: what they can't do, whom they
// are taken for, and what is left behind when root gives the commands. Only root can become somebody else, so for
// anybody else the tests are skipped.
package users

import (
	"bufio"
	"bytes"
	"context"
	"errors"
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

	"historyd/test/asuser"
	"historyd/test/built"
)

// The users of these tests. None of them needs to be known to the machine.
const (
	owner  = 64470 // runs the daemon
	ann    = 64471
	bob    = 64472
	eve    = 64473
	nobody = 65534 // whom the kernel gives for a user that it can't tell
	friend = 64480 // a group
)

func TestMain(m *testing.M) {
	code := m.Run()
	built.Remove()
	os.Exit(code)
}

// as calls fn as another user, of one group besides its own or none.
func as(t *testing.T, uid, group int, fn func()) {
	t.Helper()
	if err := asuser.Do(uid, group, fn); err != nil {
		t.Fatalf("become uid %d: %v", uid, err)
	}
}

// home is a place of the owner below one of root, as /var/lib and /run are.
type home struct {
	t                 *testing.T
	program           string
	root, data, place string
	socket            string
}

func newHome(t *testing.T) *home {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("only root can become another user")
	}
	program, err := built.Path()
	if err != nil {
		t.Fatal(err)
	}
	root, err := os.MkdirTemp("", "historyd")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(root) })
	h := &home{t: t, program: program, root: root, data: filepath.Join(root, "data"), place: filepath.Join(root, "run")}
	h.socket = filepath.Join(h.place, "s")
	err = errors.Join(os.Chmod(root, 0o755),
		os.Mkdir(h.data, 0o700), os.Chown(h.data, owner, owner),
		os.Mkdir(h.place, 0o755), os.Chown(h.place, owner, owner))
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// command is a run of the program as a user, with a home that holds nothing. It is ended after a while.
func (h *home) command(uid int, args ...string) *exec.Cmd {
	ctx, cancel := context.WithTimeout(h.t.Context(), 20*time.Second)
	h.t.Cleanup(cancel)
	cmd := exec.CommandContext(ctx, h.program, args...)
	cmd.Dir = h.root
	cmd.Env = []string{"HOME=" + filepath.Join(h.root, "home"), "PATH=/usr/bin:/bin"}
	if uid != 0 {
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(uid), Groups: []uint32{friend}}}
	}
	return cmd
}

// run runs the program to its end, which must be a good one, and returns what it printed.
func (h *home) run(uid int, args ...string) string {
	h.t.Helper()
	cmd := h.command(uid, args...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		h.t.Fatalf("uid %d: historyd %s: %v: %s%s", uid, strings.Join(args, " "), err, out, stderr.Bytes())
	}
	return strings.TrimSpace(string(out))
}

// refused runs the program to an end with the exit code 1, and returns what it said.
func (h *home) refused(uid int, args ...string) string {
	h.t.Helper()
	out, err := h.command(uid, args...).CombinedOutput()
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != 1 {
		h.t.Fatalf("uid %d: historyd %s: got %v, want exit code 1: %s", uid, strings.Join(args, " "), err, out)
	}
	return string(out)
}

// serve starts the daemon as its owner, on the socket alone, and returns its process id.
func (h *home) serve(env ...string) int {
	h.t.Helper()
	cmd := h.command(owner, "serve", "--data-dir", h.data, "--listen", "", "--socket", h.socket)
	cmd.Env = append(cmd.Env, env...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		h.t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		h.t.Fatal(err)
	}
	h.t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	if line, err := bufio.NewReader(stdout).ReadString('\n'); !strings.Contains(line, h.socket) {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		h.t.Fatalf("it does not listen: %q, %v: %s", line, err, stderr.Bytes())
	}
	return cmd.Process.Pid
}

// dial connects as a user.
func (h *home) dial(uid, group int) (conn net.Conn, err error) {
	as(h.t, uid, group, func() { conn, err = net.Dial("unix", h.socket) })
	if err == nil {
		h.t.Cleanup(func() { _ = conn.Close() })
		err = conn.SetDeadline(time.Now().Add(20 * time.Second))
	}
	return conn, err
}

func (h *home) mustDial(uid int) net.Conn {
	h.t.Helper()
	conn, err := h.dial(uid, 0)
	if err != nil {
		h.t.Fatalf("uid %d can't connect: %v", uid, err)
	}
	return conn
}

// whoami asks on a connection, with header lines, who is calling: "401", or kind and id.
func whoami(t *testing.T, conn net.Conn, header ...string) string {
	t.Helper()
	request := "GET /v1/whoami HTTP/1.1\r\nHost: localhost\r\n"
	for _, h := range header {
		request += h + "\r\n"
	}
	if _, err := io.WriteString(conn, request+"\r\n"); err != nil {
		t.Fatal(err)
	}
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	if resp.StatusCode != http.StatusOK {
		return fmt.Sprint(resp.StatusCode)
	}
	return string(body)
}
