package users

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

// mustBeAllOf sees that everything under a directory is one user's alone.
func mustBeAllOf(t *testing.T, dir string, uid uint32) {
	t.Helper()
	seen := 0
	err := filepath.WalkDir(dir, func(name string, _ fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := os.Lstat(name)
		if err != nil {
			return err
		}
		seen++
		if st := info.Sys().(*syscall.Stat_t); st.Uid != uid || st.Gid != uid || st.Mode&0o077 != 0 {
			t.Errorf("%s is of uid %d, gid %d, mode %04o, want %d, %d and nothing for others", name, st.Uid, st.Gid, st.Mode&0o7777, uid, uid)
		}
		return nil
	})
	if err != nil || seen < 2 {
		t.Errorf("%s: %d files seen, %v", dir, seen, err)
	}
}

func TestWhatRootDoesIsTheOwners(t *testing.T) {
	h := newHome(t)
	first := h.run(0, "token", "create", "--data-dir", h.data, "--kind", "operator", "--id", "first")
	mustBeAllOf(t, h.data, owner)
	h.serve("HISTORYD_LISTEN_UNIX_MODE=0666")
	second := h.run(0, "token", "create", "--data-dir", h.data, "--kind", "mesh", "--id", "second")
	for _, token := range []string{first, second} {
		if got := whoami(t, h.mustDial(eve), "Authorization: Bearer "+token); !strings.Contains(got, `"id":`) {
			t.Errorf("a token that root has made: got %s, want that it is let in", got)
		}
	}
	for line := range strings.Lines(h.run(0, "token", "list", "--data-dir", h.data)) {
		if id, _, _ := strings.Cut(line, " "); strings.Contains(line, " second ") {
			h.run(0, "token", "revoke", "--data-dir", h.data, id)
		}
	}
	if got := whoami(t, h.mustDial(eve), "Authorization: Bearer "+second); got != "401" {
		t.Errorf("a token that root has revoked: got %s, want 401", got)
	}
	if got := h.run(0, "check", h.data); !strings.HasPrefix(got, "sound") {
		t.Errorf("check by root while the daemon runs: %s", got)
	}
	if got := h.run(0, "stats", h.data); !strings.Contains(got, "0 callers with conversations") {
		t.Errorf("stats by root while the daemon runs: %s", got)
	}
	h.run(0, "export", "--data-dir", h.data, "--socket", h.socket, "--token-file", h.file("t", first), "--all", "-o", filepath.Join(h.root, "backup")+"/")
	mustBeAllOf(t, h.data, owner)
}

// file writes a file of root's.
func (h *home) file(name, text string) string {
	h.t.Helper()
	name = filepath.Join(h.root, name)
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		h.t.Fatal(err)
	}
	return name
}

// Where the owner itself can't get to, as with a backup in a directory of root's.
func TestRootChecksACopyThatItsOwnerCantReach(t *testing.T) {
	h := newHome(t)
	h.token("ann")
	vault := filepath.Join(h.root, "vault")
	if err := os.Mkdir(vault, 0o700); err != nil {
		t.Fatal(err)
	}
	copied := filepath.Join(vault, "copy")
	if out, err := exec.Command("cp", "-a", h.data, copied).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	// The daemon makes the rest; a copy without it is no data directory yet.
	if got := h.run(0, "check", copied); !strings.HasPrefix(got, "sound") {
		t.Errorf("got %s", got)
	}
	if err := os.WriteFile(filepath.Join(copied, "callers.json"), []byte("{}"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := h.refused(0, "check", copied); !strings.Contains(got, "callers.json callers ") {
		t.Errorf("with callers that are none: got %s, want a finding", got)
	}
}

func TestOnlyRootBecomesTheOwner(t *testing.T) {
	h := newHome(t)
	h.token("ann")
	if err := os.Chmod(h.data, 0o755); err != nil { // so that another can get there at all
		t.Fatal(err)
	}
	for _, args := range [][]string{
		{"token", "create", "--data-dir", h.data, "--kind", "mesh", "--id", "eve"},
		{"token", "list", "--data-dir", h.data},
		{"check", h.data},
		{"stats", h.data},
	} {
		got := h.refused(eve, args...)
		if !strings.Contains(got, "uid "+strconv.Itoa(owner)) {
			t.Errorf("historyd %s: got %q, want it to say whose it is", strings.Join(args, " "), got)
		}
	}
}

func TestRootIsToldAsWhomToServe(t *testing.T) {
	h := newHome(t)
	h.token("ann")
	got := h.refused(0, "serve", "--data-dir", h.data, "--listen", "127.0.0.1:0")
	if want := "run it as that user (sudo -u '#" + strconv.Itoa(owner) + "' historyd serve)"; !strings.Contains(got, want) {
		t.Errorf("got %q, want it to say %q", got, want)
	}
}

func TestRootMakesNoCallersFileThatTheDaemonCantRead(t *testing.T) {
	h := newHome(t)
	h.token("ann")
	elsewhere := filepath.Join(h.root, "elsewhere")
	if err := os.Mkdir(elsewhere, 0o755); err != nil {
		t.Fatal(err)
	}
	create := func() (string, error) {
		cmd := h.command(0, "token", "create", "--data-dir", h.data, "--kind", "mesh", "--id", "bob")
		cmd.Env = append(cmd.Env, "HISTORYD_CALLERS_FILE="+filepath.Join(elsewhere, "callers.json"))
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	if out, err := create(); err == nil || !strings.Contains(out, "give that user a directory for it") {
		t.Errorf("in a directory of root's: got %v, %s", err, out)
	}
	if entries, err := os.ReadDir(elsewhere); err != nil || len(entries) > 0 {
		t.Errorf("left there: %v, %v", entries, err)
	}
	// But what is a credential is root's.
	store := filepath.Join(h.root, "credstore")
	cmd := h.command(0, "token", "create", "--data-dir", h.data, "--kind", "mesh", "--id", "bob")
	cmd.Env = append(cmd.Env, "HISTORYD_CALLERS_FILE="+filepath.Join(store, "historyd.callers"))
	if err := os.Mkdir(store, 0o700); err != nil {
		t.Fatal(err)
	}
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("in a store of credentials: %v: %s", err, out)
	}
	mustBeAllOf(t, store, 0)
	if err := os.Chown(elsewhere, owner, owner); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if out, err := create(); err != nil {
			t.Errorf("in a directory of the owner's: %v: %s", err, out)
		}
	}
	if err := os.Chmod(elsewhere, 0o700); err != nil {
		t.Fatal(err)
	}
	mustBeAllOf(t, elsewhere, owner)
}

// inSystem runs a script, as root, in a system of its own: with another /etc, which knows the user historyd and, when
// installed, its unit, and with nothing in /var/lib. DATA is the data directory of the service.
func (h *home) inSystem(installed bool, script string) (string, error) {
	h.t.Helper()
	setup := `set -e
mount -t tmpfs -o mode=755 none /var/lib
mount -t tmpfs -o mode=755 none /etc
mkdir -p /etc/systemd/system /etc/historyd
printf 'root:x:0:0::/root:/bin/sh\nhistoryd:x:OWNER:OWNER::/var/lib/historyd:/bin/sh\n' > /etc/passwd
printf 'root:x:0:\nhistoryd:x:OWNER:\n' > /etc/group
export HOME="$PWD/home"
historyd() { PROGRAM "$@"; }
as_owner() { setpriv --reuid OWNER --regid OWNER --clear-groups PROGRAM "$@"; }
DATA=/var/lib/historyd
`
	setup = strings.NewReplacer("OWNER", strconv.Itoa(owner), "PROGRAM", h.program).Replace(setup)
	if installed {
		setup += "touch /etc/systemd/system/historyd.service\n"
	}
	cmd := exec.Command("unshare", "--mount", "--propagation", "private", "sh", "-c", setup+script)
	cmd.Dir = h.root
	cmd.Env = []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin"}
	out, err := cmd.CombinedOutput()
	if bytes.Contains(out, []byte("unshare failed")) || bytes.Contains(out, []byte("mount: ")) || errors.Is(err, exec.ErrNotFound) {
		h.t.Skipf("no system of its own: %s", out)
	}
	return string(out), err
}

func TestRootMeansTheDataDirectoryOfTheService(t *testing.T) {
	h := newHome(t)
	for _, tt := range []struct {
		name      string
		installed bool
		script    string
		want      string
	}{
		{"the directory is there", false, `install -d -m 700 -o historyd -g historyd $DATA
historyd token create --kind operator --id a >/dev/null
as_owner token create --kind mesh --id b >/dev/null
historyd token list | wc -l
find $DATA ! -user historyd; find /var/lib -name .local; ls -d home 2>&1`, "3\nls: cannot access 'home': No such file or directory"},
		{"only the unit is", true, `historyd token create --kind operator --id a >/dev/null
stat -c '%U %G %a' $DATA $DATA/callers.json; ls -d home 2>&1`, "shown again.\nhistoryd historyd 700\nhistoryd historyd 600\nls: cannot access 'home': No such file or directory"},
		{"its configuration file says where", true, `echo 'data_dir: /var/lib/other' > /etc/historyd/historyd.yaml
historyd token create --kind operator --id a >/dev/null
stat -c '%U %a %n' /var/lib/*`, "shown again.\nhistoryd 700 /var/lib/other\n"},
		{"another is given", true, `historyd token create --data-dir /var/lib/mine --kind operator --id a >/dev/null
stat -c '%U %a %n' /var/lib/*`, "shown again.\nroot 700 /var/lib/mine\n"},
		{"there is no user for it", true, `echo 'root:x:0:0::/root:/bin/sh' > /etc/passwd
historyd token create --kind operator --id a; ls /var/lib`, "there is no user historyd to make it for"},
		{"nothing of it is there", false, `historyd config print | grep ^data_dir`, `/home/.local/state/historyd" # default, from HOME`},
		{"root would serve there", true, `historyd serve --listen 127.0.0.1:0 --bootstrap-operator a; ls /var/lib`, "start the service (systemctl start historyd)"},
		{"a list makes nothing", true, `historyd token list; ls /var/lib`, "there is no directory /var/lib/historyd (default, of the service)"},
		{"a check finds it", false, `install -d -m 700 -o historyd -g historyd $DATA
as_owner token create --kind mesh --id b >/dev/null
historyd check`, "sound: 0 callers"},
	} {
		out, err := h.inSystem(tt.installed, tt.script)
		if !strings.Contains(out, tt.want) {
			t.Errorf("%s: got %v and\n%swant it to say\n%s", tt.name, err, out, tt.want)
		}
	}
}
