package disk

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"historyd/internal/durable"
	"historyd/internal/durable/crashfs"
)

func mount(t *testing.T, fsys *crashfs.FS) (string, durable.FS) {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "data")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	d, err := Mount(dir, fsys)
	if err != nil {
		t.Skipf("no FUSE file system can be mounted here: %v", err)
	}
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	})
	real, err := durable.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = real.Close() })
	return dir, real
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// write makes a file and returns it, open.
func write(t *testing.T, fsys durable.FS, name, text string) durable.File {
	t.Helper()
	f, err := fsys.Create(name)
	must(t, err)
	_, err = f.WriteAt([]byte(text), 0)
	must(t, err)
	t.Cleanup(func() { _ = f.Close() })
	return f
}

func read(t *testing.T, f durable.File) string {
	t.Helper()
	b := make([]byte, 100)
	n, _ := f.ReadAt(b, 0)
	return string(bytes.TrimRight(b[:n], "\x00"))
}

func TestWhatTheProcessDoesIsDoneBelow(t *testing.T) {
	below := crashfs.New()
	_, fsys := mount(t, below)
	must(t, fsys.Mkdir("a"))
	f := write(t, fsys, "a/x", "hello")
	must(t, f.Truncate(4))
	must(t, fsys.Mkdir("b"))
	must(t, fsys.Rename("a/x", "b/y"))
	if err := fsys.Rename("b/y", "a"); !errors.Is(err, syscall.EEXIST) {
		t.Errorf("rename over a name: %v", err)
	}
	must(t, fsys.Link("b/y", "b/z"))
	must(t, fsys.Exchange("a", "b"))
	must(t, fsys.Remove("a/z"))
	must(t, fsys.Remove("b"))
	if files := below.Files(); len(files) != 1 || string(files["a/y"]) != "hell" {
		t.Errorf("below are %q", files)
	}
	entries, err := fsys.ReadDir("a")
	if err != nil || len(entries) != 1 || entries[0] != (durable.Entry{Name: "y", Size: 4, Mode: 0o600}) {
		t.Errorf("above are %+v, %v", entries, err)
	}
	must(t, fsys.Remove("a/y"))
	if size, err := f.Size(); err != nil || size != 4 {
		t.Errorf("a file that was removed has %d bytes, %v", size, err)
	}
}

func TestSyncsArriveBelow(t *testing.T) {
	below := crashfs.New()
	_, fsys := mount(t, below)
	f := write(t, fsys, "x", "hello")
	var mu sync.Mutex // the detector of races doesn't see that a system call waits for its answer
	var kinds []string
	below.FailWhen(func(op crashfs.Op) error {
		mu.Lock()
		defer mu.Unlock()
		if op.Kind == "Sync" || op.Kind == "SyncDir" {
			kinds = append(kinds, op.Kind+" "+op.Name)
		}
		return nil
	})
	must(t, f.Sync())
	must(t, fsys.Mkdir("d"))
	must(t, fsys.SyncDir("d"))
	must(t, fsys.SyncDir("."))
	mu.Lock()
	defer mu.Unlock()
	if want := []string{"Sync x", "SyncDir d", "SyncDir ."}; len(kinds) != 3 || kinds[0] != want[0] || kinds[1] != want[1] || kinds[2] != want[2] {
		t.Errorf("below there was %q, want %q", kinds, want)
	}
}

func TestFaultsArriveAbove(t *testing.T) {
	for _, fault := range []syscall.Errno{syscall.EIO, syscall.ENOSPC, syscall.EROFS, syscall.EMFILE} {
		below := crashfs.New()
		_, fsys := mount(t, below)
		f := write(t, fsys, "x", "hello")
		below.FailAt(below.Ops(), crashfs.Before, fault, true)
		_, werr := f.WriteAt([]byte("more"), 5)
		_, cerr := fsys.Create("y")
		_, oerr := fsys.Open("x", false)
		for what, err := range map[string]error{
			"write": werr, "create": cerr, "open": oerr, "sync": f.Sync(), "cut": f.Truncate(1),
			"rename": fsys.Rename("x", "z"), "mkdir": fsys.Mkdir("d"), "remove": fsys.Remove("x"), "syncdir": fsys.SyncDir("."),
		} {
			if !errors.Is(err, fault) {
				t.Errorf("%s: %v, want %v", what, err, fault)
			}
		}
		below.Heal()
	}
}

func TestAShortWriteIsShort(t *testing.T) {
	below := crashfs.New()
	dir, fsys := mount(t, below)
	_ = write(t, fsys, "x", "hello")
	fd, err := unix.Open(filepath.Join(dir, "x"), unix.O_RDWR, 0)
	must(t, err)
	defer unix.Close(fd)
	for n := 0; n == 0; { // how short is random, and of nothing the error is told
		below.FailAt(below.Ops(), crashfs.Short, syscall.ENOSPC, false)
		n, err = unix.Pwrite(fd, bytes.Repeat([]byte("m"), 1000), 5)
		if n >= 1000 || n <= 0 && err != syscall.ENOSPC {
			t.Fatalf("%d of 1000 bytes are written, %v", n, err)
		}
		n = max(n, 0)
	}
}

// A failed sync leaves in the page cache what is gone from the disk, until the process drops that.
func TestAFailedSyncLooksWritten(t *testing.T) {
	below := crashfs.New()
	_, fsys := mount(t, below)
	f := write(t, fsys, "x", "old.")
	must(t, f.Sync())
	_ = read(t, f) // so that the page is cached
	_, err := f.WriteAt([]byte("new."), 0)
	must(t, err)
	below.FailAt(below.Ops(), crashfs.Before, syscall.EIO, false)
	if err := f.Sync(); !errors.Is(err, syscall.EIO) {
		t.Fatalf("sync: %v", err)
	}
	if err := f.Sync(); err != nil {
		t.Errorf("a second sync: %v, want the success that a kernel tells", err)
	}
	if got := read(t, f); got != "new." {
		t.Errorf("%q is read, want what was written", got)
	}
	must(t, f.DropCache())
	if got := read(t, f); got != "old." {
		t.Errorf("%q is read with an empty cache, want what the disk has", got)
	}
}
