package systemd

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
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

	"historyd/test/asuser"
)

// Where the package puts things.
const (
	address = "127.0.0.1:4478"
	socket  = "/run/historyd/historyd.sock"
	dataDir = "/var/lib/historyd"
	config  = "/etc/historyd/historyd.yaml"
)

// patience is how long a test waits for what must happen.
const patience = 40 * time.Second

// run runs a program to a good end and returns what it printed.
func run(t *testing.T, name string, args ...string) string {
	t.Helper()
	out, err := command(t, name, args...)
	if err != nil {
		t.Fatalf("%s %s: %v: %s", name, strings.Join(args, " "), err, out)
	}
	return out
}

// command runs a program and returns both its outputs.
func command(t *testing.T, name string, args ...string) (string, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	out, err := exec.CommandContext(ctx, name, args...).CombinedOutput()
	return strings.TrimSpace(string(out)), err
}

// token makes a token, as root.
func token(t *testing.T, id string, args ...string) string {
	t.Helper()
	out, err := exec.Command("historyd", append([]string{"token", "create", "--kind", "mesh", "--id", id}, args...)...).Output()
	if err != nil {
		t.Fatalf("token create: %v", err)
	}
	return strings.TrimSpace(string(out))
}

// await waits until something holds.
func await(t *testing.T, what string, holds func() bool) {
	t.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(patience); !holds(); <-tick.C {
		if time.Now().After(end) {
			t.Fatalf("%s: it did not happen", what)
		}
	}
}

// show is a property of a unit.
func show(t *testing.T, unit, property string) string {
	t.Helper()
	return run(t, "systemctl", "show", "--property="+property, "--value", unit)
}

func number(t *testing.T, unit, property string) int {
	t.Helper()
	n, err := strconv.Atoi(show(t, unit, property))
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// dial connects as root, to the loopback or to the socket.
func dial(network string) (net.Conn, error) {
	where := address
	if network == "unix" {
		where = socket
	}
	conn, err := net.DialTimeout(network, where, patience)
	if err == nil {
		err = conn.SetDeadline(time.Now().Add(patience))
	}
	return conn, err
}

// ask makes a request on a connection.
func ask(conn net.Conn, method, path, bearer, body string) (status int, answer string, err error) {
	request := method + " " + path + " HTTP/1.1\r\nHost: " + address + "\r\nConnection: close\r\n"
	if bearer != "" {
		request += "Authorization: Bearer " + bearer + "\r\n"
	}
	if body != "" {
		request += "Content-Type: application/json\r\nContent-Length: " + strconv.Itoa(len(body)) + "\r\n"
	}
	if _, err := io.WriteString(conn, request+"\r\n"+body); err != nil {
		return 0, "", err
	}
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		return 0, "", err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	return resp.StatusCode, string(text), err
}

// get connects and asks, and wants an answer.
func get(t *testing.T, network, path, bearer string) string {
	t.Helper()
	conn, err := dial(network)
	if err != nil {
		t.Fatalf("%s: %v", network, err)
	}
	defer conn.Close()
	status, answer, err := ask(conn, "GET", path, bearer, "")
	if err != nil {
		t.Fatalf("%s: GET %s: %v", network, path, err)
	}
	return fmt.Sprintf("%d %s", status, answer)
}

// wantAnswer sees that both sockets are answered.
func wantAnswer(t *testing.T) {
	t.Helper()
	for _, network := range []string{"tcp", "unix"} {
		if got, want := get(t, network, "/readyz", ""), `200 {"status":"ok"}`; got != want {
			t.Errorf("%s: readyz: got %s, want %s", network, got, want)
		}
	}
}

func wantWhoami(t *testing.T, bearer, id string) {
	t.Helper()
	if got := get(t, "tcp", "/v1/whoami", bearer); !strings.Contains(got, `"id":"`+id+`"`) {
		t.Errorf("whoami: got %s, want %s", got, id)
	}
}

// wantOwned sees that all in the data directory is the service's alone.
func wantOwned(t *testing.T) {
	t.Helper()
	if got := run(t, "find", dataDir, "(", "!", "-user", "historyd", "-o", "!", "-group", "historyd", "-o", "-perm", "/077", ")"); got != "" {
		t.Errorf("not the service's alone: %s", got)
	}
}

// as connects to the unix socket as another user, and says who it is there.
func as(t *testing.T, uid, group int) string {
	t.Helper()
	var conn net.Conn
	var err error
	if uerr := asuser.Do(uid, group, func() { conn, err = net.Dial("unix", socket) }); uerr != nil {
		t.Fatal(uerr)
	}
	if errors.Is(err, syscall.EACCES) {
		return "EACCES"
	}
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	status, answer, err := ask(conn, "GET", "/v1/whoami", "", "")
	if err != nil {
		t.Fatal(err)
	}
	if status != http.StatusOK {
		return strconv.Itoa(status)
	}
	return answer
}

func groupID(t *testing.T) int {
	t.Helper()
	gid, err := strconv.Atoi(run(t, "sh", "-c", "getent group historyd | cut -d: -f3"))
	if err != nil {
		t.Fatal(err)
	}
	return gid
}

func write(t *testing.T, name, text string) {
	t.Helper()
	if err := errors.Join(os.MkdirAll(filepath.Dir(name), 0o755), os.WriteFile(name, []byte(text), 0o644)); err != nil {
		t.Fatal(err)
	}
}

// dropIn puts a drop-in of the service in force until undo.
func dropIn(t *testing.T, text string) (undo func()) {
	t.Helper()
	const name = "/etc/systemd/system/historyd.service.d/test.conf"
	write(t, name, text)
	reload := func() {
		run(t, "systemctl", "daemon-reload")
		run(t, "systemctl", "restart", "historyd.service")
	}
	reload()
	return func() {
		if err := os.Remove(name); err != nil {
			t.Fatal(err)
		}
		reload()
	}
}
