package users

import (
	"encoding/binary"
	"errors"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

// caller is how whoami shows a mesh caller.
func caller(id string) string {
	return `{"kind":"mesh","id":"` + id + `","permission_scope":"","workspace":""}`
}

func (h *home) token(id string, args ...string) string {
	h.t.Helper()
	return h.run(owner, append([]string{"token", "create", "--data-dir", h.data, "--kind", "mesh", "--id", id}, args...)...)
}

func TestOtherUsersCanNeitherReadNorConnectNorReplace(t *testing.T) {
	h := newHome(t)
	h.token("ann", "--uid", strconv.Itoa(owner))
	pid := h.serve()
	proc := "/proc/" + strconv.Itoa(pid) + "/"
	mine := filepath.Join(h.root, "elsewhere")
	read := func(name string) error {
		f, err := os.Open(name)
		if err == nil {
			_, err = f.Read(make([]byte, 1))
			_ = f.Close()
		}
		return err
	}
	for _, tt := range []struct {
		name string
		try  func() error
	}{
		{"list the data directory", func() error { return read(h.data) }},
		{"read the callers", func() error { return read(filepath.Join(h.data, "callers.json")) }},
		{"take the lock", func() error { return read(filepath.Join(h.data, "LOCK")) }},
		{"rename the data directory", func() error { return os.Rename(h.data, mine) }},
		{"remove a file of it", func() error { return os.Remove(filepath.Join(h.data, "callers.json")) }},
		{"put a file into it", func() error { return os.WriteFile(filepath.Join(h.data, "x"), nil, 0o600) }},
		{"connect", func() error {
			conn, err := net.Dial("unix", h.socket)
			if err == nil {
				_ = conn.Close()
			}
			return err
		}},
		{"rename the socket", func() error { return os.Rename(h.socket, mine) }},
		{"rename the directory of the socket", func() error { return os.Rename(h.place, mine) }},
		{"remove the socket", func() error { return os.Remove(h.socket) }},
		{"open the socket to all", func() error { return os.Chmod(h.socket, 0o666) }},
		{"put a socket beside it", func() error { _, err := net.Listen("unix", h.socket+"2"); return err }},
		{"put a link over it", func() error { return os.Symlink(mine, h.socket+"3") }},
		{"read the environment of the process", func() error { return read(proc + "environ") }},
		{"read its memory", func() error { return read(proc + "mem") }},
		{"list its files", func() error { return read(proc + "fd") }},
		{"stop it", func() error { return syscall.Kill(pid, syscall.SIGTERM) }},
	} {
		var err error
		as(t, eve, 0, func() { err = tt.try() })
		if !errors.Is(err, syscall.EACCES) && !errors.Is(err, syscall.EPERM) {
			t.Errorf("another user tries to %s: got %v, want that it may not", tt.name, err)
		}
	}
	if got, want := whoami(t, h.mustDial(owner)), caller("ann"); got != want {
		t.Errorf("after it all: got %s, want %s", got, want)
	}
}

func TestADirectoryOfAnotherUserIsRefused(t *testing.T) {
	for _, tt := range []struct {
		uid  int
		want string
	}{
		{ann, "permission denied"},
		{0, "data is a directory of uid " + strconv.Itoa(owner) + " with mode 0700, want a directory of uid 0"},
	} {
		h := newHome(t)
		h.token("ann")
		got := h.refused(tt.uid, "serve", "--data-dir", h.data, "--listen", "127.0.0.1:0")
		if !strings.Contains(got, tt.want) {
			t.Errorf("uid %d: got %q, want it to say %q", tt.uid, got, tt.want)
		}
	}
}

func TestAPeerIsWhomItsUidStandsFor(t *testing.T) {
	h := newHome(t)
	first := h.token("ann", "--uid", strconv.Itoa(ann))
	h.token("bob", "--uid", strconv.Itoa(bob))
	h.token("root", "--uid", "0")
	other := h.token("other")
	h.serve("HISTORYD_LISTEN_UNIX_MODE=0666")
	for _, tt := range []struct {
		name   string
		uid    int
		header []string
		want   string
	}{
		{"the first", ann, nil, caller("ann")},
		{"the second", bob, nil, caller("bob")},
		{"a third, who is nobody here", eve, nil, "401"},
		{"who runs the daemon, nobody here either", owner, nil, "401"},
		{"root", 0, nil, caller("root")},
		{"a uid that is never an identity", nobody, nil, "401"},
		{"a token goes before the uid", ann, []string{"Authorization: Bearer " + other}, caller("other")},
		{"a token of somebody's own", eve, []string{"Authorization: Bearer " + other}, caller("other")},
		{"a wrong token does not fall back", ann, []string{"Authorization: Bearer " + first + "x"}, "401"},
		{"nor does an empty one", ann, []string{"Authorization:"}, "401"},
		{"nor another scheme", ann, []string{"Authorization: Basic YW5uOg=="}, "401"},
		{"no header makes somebody of a uid", eve, []string{
			"X-Uid: " + strconv.Itoa(ann), "X-Forwarded-User: ann", "X-Remote-User: ann", "Remote-User: ann",
			"X-Forwarded-For: 127.0.0.1", "Forwarded: for=127.0.0.1", "From: ann",
		}, "401"},
		{"nor somebody else", bob, []string{"X-Uid: " + strconv.Itoa(ann), "X-Forwarded-User: ann"}, caller("bob")},
	} {
		if got := whoami(t, h.mustDial(tt.uid), tt.header...); got != tt.want {
			t.Errorf("%s (uid %d): got %s, want %s", tt.name, tt.uid, got, tt.want)
		}
	}
}

// The uid counts that connected, whoever holds the connection later; whom it stands for is looked up for each request.
func TestAConnectionIsOfTheUserWhoMadeIt(t *testing.T) {
	h := newHome(t)
	h.token("ann", "--uid", strconv.Itoa(ann))
	h.token("bob", "--uid", strconv.Itoa(bob))
	h.serve("HISTORYD_LISTEN_UNIX_MODE=0666")
	conn := h.mustDial(ann)
	as(t, bob, 0, func() {
		if got, want := whoami(t, conn), caller("ann"); got != want {
			t.Errorf("handed on: got %s, want %s", got, want)
		}
	})
	for line := range strings.Lines(h.run(owner, "token", "list", "--data-dir", h.data)) {
		if id, _, _ := strings.Cut(line, " "); strings.Contains(line, " ann ") {
			h.run(owner, "token", "revoke", "--data-dir", h.data, id)
		}
	}
	if got := whoami(t, conn); got != "401" {
		t.Errorf("after its last token was revoked: got %s, want 401", got)
	}
}

func TestTheGroupOfTheSocketMayConnect(t *testing.T) {
	h := newHome(t)
	h.token("ann", "--uid", strconv.Itoa(ann))
	h.serve("HISTORYD_LISTEN_UNIX_MODE=0660", "HISTORYD_LISTEN_UNIX_GROUP="+strconv.Itoa(friend))
	if _, err := h.dial(ann, 0); !errors.Is(err, syscall.EACCES) {
		t.Errorf("outside of the group: got %v, want that it may not", err)
	}
	for uid, want := range map[int]string{ann: caller("ann"), eve: "401"} {
		conn, err := h.dial(uid, friend)
		if err != nil {
			t.Errorf("uid %d in the group: %v", uid, err)
		} else if got := whoami(t, conn); got != want {
			t.Errorf("uid %d in the group: got %s, want %s", uid, got, want)
		}
	}
}

func TestASocketIsNotGivenToAGroupThatTheDaemonIsNotIn(t *testing.T) {
	h := newHome(t)
	h.token("ann")
	cmd := h.command(owner, "serve", "--data-dir", h.data, "--listen", "", "--socket", h.socket)
	cmd.Env = append(cmd.Env, "HISTORYD_LISTEN_UNIX_MODE=0660", "HISTORYD_LISTEN_UNIX_GROUP=0")
	out, err := cmd.CombinedOutput()
	if err == nil || !strings.Contains(string(out), "listen.unix: set mode and group of "+h.socket) {
		t.Errorf("got %v, want a refusal that names the socket: %s", err, out)
	}
	if _, err := os.Lstat(h.socket); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the socket is there: %v", err)
	}
}

// systemd leaves credentials to root where a list of those who may read can be kept with them, and gives them to the
// daemon's user elsewhere.
func TestTheCallersMayBeACredential(t *testing.T) {
	for _, tt := range []struct {
		name  string
		place func(name string) error
		ok    bool
	}{
		{"the daemon's", func(name string) error { return os.Chown(name, owner, owner) }, true},
		{"root's, that the daemon may read", func(name string) error { return letRead(name, owner) }, true},
		{"root's, that all may read", func(name string) error { return os.Chmod(name, 0o444) }, false},
		{"somebody else's", func(name string) error { return errors.Join(os.Chown(name, ann, owner), os.Chmod(name, 0o440)) }, false},
	} {
		h := newHome(t)
		token := h.token("ann")
		secrets := filepath.Join(h.root, "secrets")
		callers := filepath.Join(secrets, "callers")
		if err := errors.Join(os.Mkdir(secrets, 0o755), os.Rename(filepath.Join(h.data, "callers.json"), callers),
			os.Chown(callers, 0, 0), os.Chmod(callers, 0o400), tt.place(callers)); err != nil {
			t.Fatalf("%s: %v", tt.name, err)
		}
		env := []string{"CREDENTIALS_DIRECTORY=" + secrets, "HISTORYD_CALLERS_FILE=$CREDENTIALS_DIRECTORY/callers", "HISTORYD_LISTEN_UNIX_MODE=0666"}
		if tt.ok {
			h.serve(env...)
			if got, want := whoami(t, h.mustDial(eve), "Authorization: Bearer "+token), caller("ann"); got != want {
				t.Errorf("%s: got %s, want %s", tt.name, got, want)
			}
			continue
		}
		cmd := h.command(owner, "serve", "--data-dir", h.data, "--listen", "", "--socket", h.socket)
		cmd.Env = append(cmd.Env, env...)
		if out, err := cmd.CombinedOutput(); err == nil || !strings.Contains(string(out), "open callers") {
			t.Errorf("%s: got %v, want it refused: %s", tt.name, err, out)
		}
	}
}

// letRead puts a user on the list of those who may read a file of root's.
func letRead(name string, uid int) error {
	const me, user, group, mask, others, nobody = 1, 2, 4, 16, 32, 1<<32 - 1
	list := binary.LittleEndian.AppendUint32(nil, 2)
	for _, e := range []struct {
		tag, perm uint16
		id        uint32
	}{{me, 4, nobody}, {user, 4, uint32(uid)}, {group, 0, nobody}, {mask, 4, nobody}, {others, 0, nobody}} {
		list = binary.LittleEndian.AppendUint16(list, e.tag)
		list = binary.LittleEndian.AppendUint16(list, e.perm)
		list = binary.LittleEndian.AppendUint32(list, e.id)
	}
	return syscall.Setxattr(name, "system.posix_acl_access", list, 0)
}
