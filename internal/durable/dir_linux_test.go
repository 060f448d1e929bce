package durable_test

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"historyd/internal/durable"
)

// TestMain is the other process of the lock test when lockDir is set.
func TestMain(m *testing.M) {
	if dir := os.Getenv(lockDir); dir != "" {
		takeLock(dir)
		return
	}
	os.Exit(m.Run())
}

const lockDir = "DURABLE_TEST_LOCK_DIR"

// takeLock says whether it got the lock and keeps it until stdin ends.
func takeLock(dir string) {
	fsys, err := durable.Open(dir)
	if err != nil {
		panic(err)
	}
	lock, err := fsys.Lock("LOCK")
	switch {
	case errors.Is(err, durable.ErrLocked):
		_, _ = os.Stdout.WriteString("locked\n")
		return
	case err != nil:
		panic(err)
	}
	_, _ = os.Stdout.WriteString("mine\n")
	_, _ = io.Copy(io.Discard, os.Stdin)
	_ = lock.Close()
}

func TestALockShutsOtherProcessesOutUntilItsOwnerIsGone(t *testing.T) {
	fsys, dir := scratch(t)
	other := func() (string, *exec.Cmd) {
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), lockDir+"="+dir)
		_, err := cmd.StdinPipe() // Left open: the child ends only by being killed.
		must(t, err)
		out, err := cmd.StdoutPipe()
		must(t, err)
		must(t, cmd.Start())
		line, err := bufio.NewReader(out).ReadString('\n')
		must(t, err)
		return strings.TrimSpace(line), cmd
	}
	lock, err := fsys.Lock("LOCK")
	must(t, err)
	said, cmd := other()
	if said != "locked" {
		t.Errorf("with the lock taken the other process says %q", said)
	}
	must(t, cmd.Wait())
	must(t, lock.Close())

	said, cmd = other()
	if said != "mine" {
		t.Errorf("with the lock free the other process says %q", said)
	}
	_, err = fsys.Lock("LOCK")
	wantErr(t, "lock held by another process", err, durable.ErrLocked)
	if got, want := content(t, fsys, "LOCK"), fmt.Sprintln(cmd.Process.Pid); got != want {
		t.Errorf("LOCK says %q, want %q", got, want)
	}
	must(t, cmd.Process.Kill())
	_ = cmd.Wait()
	lock, err = fsys.Lock("LOCK")
	must(t, err)
	must(t, lock.Close())
}

// What LOCK says is for people: neither a pid that is nobody's keeps others out, nor one that is somebody else's by now, and
// what holds the lock holds it whatever stands there.
func TestALockIsNotWhatItsFileSays(t *testing.T) {
	fsys, dir := scratch(t)
	ended := exec.Command("true")
	must(t, ended.Run())
	for _, says := range []string{fmt.Sprintln(ended.Process.Pid), fmt.Sprintln(os.Getpid()), "1\n", "", "no pid"} {
		must(t, os.WriteFile(filepath.Join(dir, "LOCK"), []byte(says), 0o600))
		lock, err := fsys.Lock("LOCK")
		if err != nil {
			t.Errorf("with %q left in LOCK: %v", says, err)
			continue
		}
		must(t, os.WriteFile(filepath.Join(dir, "LOCK"), []byte(says), 0o600))
		_, err = fsys.Lock("LOCK")
		wantErr(t, fmt.Sprintf("taken, with %q in LOCK", says), err, durable.ErrLocked)
		must(t, lock.Close())
	}
}

func TestLinksAreNotFollowed(t *testing.T) {
	fsys, dir := scratch(t)
	outside := t.TempDir()
	must(t, os.WriteFile(filepath.Join(outside, "f"), []byte("theirs"), 0o600))
	must(t, os.Symlink(filepath.Join(outside, "f"), filepath.Join(dir, "file")))
	must(t, os.Symlink(outside, filepath.Join(dir, "dir")))
	must(t, os.Symlink(filepath.Join(outside, "new"), filepath.Join(dir, "dangling")))
	must(t, fsys.Mkdir("real"))
	must(t, os.Symlink("real", filepath.Join(dir, "inside")))
	put(t, fsys, "f", "ours")

	open := func(name string) error { _, err := fsys.Open(name, true); return err }
	create := func(name string) error { _, err := fsys.Create(name); return err }
	list := func(name string) error { _, err := fsys.ReadDir(name); return err }
	lock := func(name string) error { _, err := fsys.Lock(name); return err }
	for _, tt := range []struct {
		what string
		got  error
		want error
	}{
		{"open a link", open("file"), durable.ErrUnsafe},
		{"lock a link", lock("file"), durable.ErrUnsafe},
		{"lock a dangling link", lock("dangling"), durable.ErrUnsafe},
		{"open through a link", open("dir/f"), durable.ErrUnsafe},
		{"create over a link", create("dangling"), fs.ErrExist},
		{"create through a link", create("dir/new"), durable.ErrUnsafe},
		{"create through a link inside", create("inside/new"), durable.ErrUnsafe},
		{"mkdir through a link", fsys.Mkdir("dir/new"), durable.ErrUnsafe},
		{"mkdir all through a link", durable.MkdirAll(fsys, "inside/new"), durable.ErrUnsafe},
		{"mkdir all at a link", durable.MkdirAll(fsys, "inside"), durable.ErrUnsafe},
		{"list a link", list("dir"), durable.ErrUnsafe},
		{"sync a link", fsys.SyncDir("dir"), durable.ErrUnsafe},
		{"rename through a link", fsys.Rename("f", "dir/new"), durable.ErrUnsafe},
		{"replace through a link", fsys.Replace("dir/f", "f"), durable.ErrUnsafe},
		{"exchange through a link", fsys.Exchange("dir/f", "f"), durable.ErrUnsafe},
		{"link through a link", fsys.Link("dir/f", "x"), durable.ErrUnsafe},
		{"remove through a link", fsys.Remove("dir/f"), durable.ErrUnsafe},
	} {
		wantErr(t, tt.what, tt.got, tt.want)
	}
	must(t, durable.WriteFile(fsys, "file", []byte("replaced")))
	must(t, durable.RemoveAll(fsys, "dir"))
	if got, err := os.ReadFile(filepath.Join(outside, "f")); string(got) != "theirs" || err != nil {
		t.Errorf("outside: got %q, %v", got, err)
	}
	if entries, err := os.ReadDir(outside); len(entries) != 1 || err != nil {
		t.Errorf("outside: %v, %v", entries, err)
	}
	if got, want := content(t, fsys, "file"), "replaced"; got != want {
		t.Errorf("file: got %q, want %q", got, want)
	}
}

func TestOnlyPrivateRegularFilesOfOursAreOpened(t *testing.T) {
	fsys, dir := scratch(t)
	at := func(name string) string { return filepath.Join(dir, name) }
	must(t, syscall.Mkfifo(at("pipe"), 0o600))
	must(t, syscall.Mknod(at("socket"), syscall.S_IFSOCK|0o600, 0))
	for _, name := range []string{"group", "world", "theirs", "original"} {
		put(t, fsys, name, "x")
	}
	must(t, os.Chmod(at("group"), 0o640))
	must(t, os.Chmod(at("world"), 0o602))
	must(t, os.Link(at("original"), at("hardlink")))
	must(t, fsys.Mkdir("loose"))
	must(t, os.Chmod(at("loose"), 0o710))
	bad := []string{"pipe", "socket", "group", "world"}
	if os.Geteuid() == 0 {
		must(t, os.Chown(at("theirs"), 4242, 4242))
		bad = append(bad, "theirs")
	}
	for _, name := range bad {
		for _, write := range []bool{false, true} {
			_, err := fsys.Open(name, write)
			wantErr(t, fmt.Sprintf("Open(%s, %t)", name, write), err, durable.ErrUnsafe)
		}
		_, err := fsys.Lock(name)
		wantErr(t, "Lock "+name, err, durable.ErrUnsafe)
	}
	if got := content(t, fsys, "hardlink"); got != "x" {
		t.Errorf("hard link: got %q", got)
	}
	_, err := fsys.ReadDir("loose")
	wantErr(t, "list a loose directory", err, durable.ErrUnsafe)
	must(t, fsys.Mkdir("loose/deep"))
	put(t, fsys, "loose/deep/file", "x")
	must(t, os.Chmod(at("loose/deep"), 0o755))
	if err := durable.RemoveAll(fsys, "loose"); err != nil {
		t.Errorf("remove a loose directory: %v", err)
	}
	if _, err := os.Stat(at("loose")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the loose directory after its removal: %v", err)
	}
	if _, err := fsys.Open("group", false); !strings.Contains(fmt.Sprint(err), "chmod 600") {
		t.Errorf("no advice in %q", err)
	} else if strings.Contains(err.Error(), dir) {
		t.Errorf("absolute path in %q", err)
	}
}

func TestTheRootMustBeOursAndPrivate(t *testing.T) {
	dir := t.TempDir()
	must(t, os.Chmod(dir, 0o750))
	_, err := durable.Open(dir)
	wantErr(t, "open a loose root", err, durable.ErrUnsafe)
	if !strings.Contains(fmt.Sprint(err), "chmod 700") {
		t.Errorf("no advice in %q", err)
	}
	fsys, err := durable.OpenAny(dir)
	must(t, err)
	put(t, fsys, "f", "x")
	must(t, os.Chmod(filepath.Join(dir, "f"), 0o644))
	_, err = fsys.Open("f", false)
	wantErr(t, "open a loose file below any root", err, durable.ErrUnsafe)
	must(t, fsys.Close())

	must(t, os.Chmod(dir, 0o700))
	link := filepath.Join(t.TempDir(), "link")
	must(t, os.Symlink(dir, link))
	for _, name := range []string{link, link + "/", filepath.Join(dir, "f")} {
		_, err = durable.Open(name)
		wantErr(t, "open "+name, err, durable.ErrUnsafe)
	}
	_, err = durable.Open(filepath.Join(dir, "no"))
	wantErr(t, "open nothing", err, fs.ErrNotExist)
	if os.Geteuid() == 0 {
		must(t, os.Chown(dir, 4242, 4242))
		_, err = durable.Open(dir)
		wantErr(t, "open the root of another", err, durable.ErrUnsafe)
	}
}

func TestModesDoNotDependOnTheUmask(t *testing.T) {
	for _, umask := range []int{0, 0o022, 0o777} {
		fsys, _ := scratch(t)
		old := syscall.Umask(umask)
		err := errors.Join(fsys.Mkdir("d"), durable.MkdirAll(fsys, "m/n"), durable.WriteFile(fsys, "d/f", []byte("x")))
		lock, lerr := fsys.Lock("LOCK")
		syscall.Umask(old)
		must(t, errors.Join(err, lerr))
		must(t, lock.Close())
		for _, dir := range []string{".", "d", "m"} {
			entries, err := fsys.ReadDir(dir)
			must(t, err)
			for _, e := range entries {
				want := fs.FileMode(0o600)
				if e.Dir {
					want = 0o700
				}
				if e.Mode.Perm() != want {
					t.Errorf("umask %03o: %s/%s has mode %v, want %v", umask, dir, e.Name, e.Mode, want)
				}
			}
		}
	}
}

func TestADirectoryThatMovedIsStillTheRoot(t *testing.T) {
	fsys, dir := scratch(t)
	must(t, os.Rename(dir, dir+".moved"))
	must(t, os.Mkdir(dir, 0o700))
	put(t, fsys, "f", "x")
	if _, err := os.Stat(filepath.Join(dir+".moved", "f")); err != nil {
		t.Error(err)
	}
}

func TestCredentialsMayBeReadByAGroupAndNoMore(t *testing.T) {
	dir := t.TempDir()
	fsys, err := durable.OpenCredentials(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer fsys.Close()
	for _, tt := range []struct {
		mode os.FileMode
		ok   bool
	}{
		{0o400, true}, {0o440, true}, {0o600, true}, {0o640, true},
		{0o444, false}, {0o660, false}, {0o620, false}, {0o604, false}, {0o602, false}, {0o650, false},
	} {
		name := filepath.Join(dir, "c")
		if err := errors.Join(os.WriteFile(name, []byte("x"), 0o600), os.Chmod(name, tt.mode)); err != nil {
			t.Fatal(err)
		}
		f, err := fsys.Open("c", false)
		if (err == nil) != tt.ok || err != nil && !errors.Is(err, durable.ErrUnsafe) {
			t.Errorf("mode %04o: got %v, want ok %v", tt.mode, err, tt.ok)
		}
		if err == nil {
			_ = f.Close()
		}
		_ = os.Remove(name)
	}
	if err := os.Symlink("/etc/passwd", filepath.Join(dir, "l")); err != nil {
		t.Fatal(err)
	}
	if _, err := fsys.Open("l", false); !errors.Is(err, durable.ErrUnsafe) {
		t.Errorf("a link: got %v", err)
	}
	if os.Geteuid() != 0 {
		return
	}
	name := filepath.Join(dir, "o")
	if err := errors.Join(os.WriteFile(name, nil, 0o400), os.Chown(name, 4478, 4478)); err != nil {
		t.Fatal(err)
	}
	if _, err := fsys.Open("o", false); !errors.Is(err, durable.ErrUnsafe) {
		t.Errorf("another user's: got %v", err)
	}
}
