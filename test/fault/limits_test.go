package fault

import (
	"fmt"
	"math"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// limit sets what the daemon that runs may have.
func (s *server) limit(resource int, most uint64) {
	s.t.Helper()
	var now unix.Rlimit
	err := unix.Prlimit(s.Pid(), resource, nil, &now)
	if err == nil {
		now.Cur = min(most, now.Max)
		err = unix.Prlimit(s.Pid(), resource, &now, nil)
	}
	if err != nil {
		s.t.Fatalf("prlimit: %v", err)
	}
}

// segmentOf is the file of the only conversation of this kind of caller.
func (s *server) segmentOf(kind string) string {
	s.t.Helper()
	found, err := filepath.Glob(filepath.Join(s.dir, "transcripts", kind, "*", "*", "*.jsonl"))
	if err != nil || len(found) != 1 {
		s.t.Fatalf("segments: %q, %v", found, err)
	}
	return found[0]
}

func sizeOf(t testing.TB, name string) int64 {
	t.Helper()
	info, err := os.Stat(name)
	if err != nil {
		t.Fatal(err)
	}
	return info.Size()
}

// TestAFileMayGrowToEveryByteOfALine lets no file of the daemon grow past each byte of the line that an append writes: the
// append is refused, nothing of it stays, and the next one works.
func TestAFileMayGrowToEveryByteOfALine(t *testing.T) {
	t.Parallel()
	s := newServer(t, scratch(t), map[string]any{"recall": map[string]any{"local": false}, "compaction": map[string]any{"keep_verbatim_turns": 1000}})
	d := newDriver(t, s, 1)
	c := d.shared[0]
	s.begin()
	d.append(c, d.next(1), true)
	name := s.segmentOf("operator")
	before := sizeOf(t, name)
	d.append(c, d.next(1), true)
	length := sizeOf(t, name) - before
	step := 1
	if testing.Short() {
		step = 17
	}
	for at := 0; at < int(length)-40; at += step { // lines differ a little in length
		size := sizeOf(t, name)
		s.limit(unix.RLIMIT_FSIZE, uint64(size)+uint64(at))
		b := d.next(1)
		if a := d.append(c, b, true); a.status != http.StatusInsufficientStorage || a.code() != "disk_full" {
			t.Fatalf("an append with room for %d bytes: %d %.300s", at, a.status, a.body)
		}
		if now := sizeOf(t, name); now != size {
			t.Fatalf("after an append with room for %d bytes the file has %d bytes, had %d", at, now, size)
		}
		s.limit(unix.RLIMIT_FSIZE, math.MaxUint64)
		if at%50 < step { // more would make a long record
			if a := d.append(c, b, true); a.status != http.StatusCreated {
				t.Fatalf("after an append with room for %d bytes: %d %.300s", at, a.status, a.body)
			}
		}
	}
	d.verify()
	s.stop()
	if found := s.check(); len(found) > 0 {
		t.Errorf("check finds %v", found)
	}
	t.Logf("%d bytes of a line, %v", length, d.figures)
}

// TestNoFileCanBeOpened takes all descriptors from the daemon, more and more of them: what needs one is refused, and all
// works again when there are some.
func TestNoFileCanBeOpened(t *testing.T) {
	t.Parallel()
	s := newServer(t, scratch(t), map[string]any{"store": map[string]any{"open_files": 16}})
	d := newDriver(t, s, 4)
	s.begin()
	bystander := d.bystander()
	for _, c := range d.shared {
		d.append(c, d.next(3), true)
	}
	open, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", s.Pid()))
	if err != nil {
		t.Fatal(err)
	}
	refused := 0
	for spare := 2; spare >= -12; spare -= 2 {
		s.limit(unix.RLIMIT_NOFILE, uint64(len(open)+spare))
		for _, c := range d.shared {
			for _, a := range []answer{d.append(c, d.next(1), true), d.replace(c, d.next(2)), d.clear(c), d.append(c, d.next(2), true)} {
				if a.status == http.StatusServiceUnavailable {
					refused++
				}
			}
		}
		s.limit(unix.RLIMIT_NOFILE, 1<<10)
		d.retry(rng(spare + 10))
		d.verify()
		bystander(t)
		if a := s.try("GET", "/readyz", nil); a.status != http.StatusOK {
			t.Fatalf("not ready with files to open: %s", a.body)
		}
	}
	if refused == 0 {
		t.Error("nothing was refused")
	}
	s.kill()
	if found := s.check(); len(found) > 0 {
		t.Errorf("check finds %v", found)
	}
	t.Logf("%d refused for want of a file, %v", refused, d.figures)
}

// TestASmallFileSystem fills one while many clients go on, again and again: all that is acknowledged is there, reads and
// clears work, and so does everything once there is room.
func TestASmallFileSystem(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=1m,mode=0700"); err != nil {
		t.Skipf("no tmpfs can be mounted here, so none is filled: %v", err)
	}
	t.Cleanup(func() { unmount(t, dir) })
	s := newServer(t, filepath.Join(dir, "data"), map[string]any{"recall": map[string]any{"local": false}})
	d := newDriver(t, s, 3)
	s.begin()
	bystander := d.bystander()
	rounds := 3
	if *long {
		rounds = 50
	}
	for round := range rounds {
		d.what = fmt.Sprintf("round %d", round)
		for full := 0; full < 20; {
			for _, c := range d.shared {
				a := d.append(c, batch{d.next(0).name, 60}, true)
				if a.status == http.StatusInsufficientStorage && a.code() == "disk_full" {
					full++
				}
			}
		}
		other := filepath.Join(dir, "other")
		occupy(t, other)
		for _, c := range d.shared {
			if a := d.append(c, d.next(1), true); a.status != http.StatusInsufficientStorage {
				d.fatalf("an append with nothing free: %d %.300s", a.status, a.body)
			}
		}
		d.verify()
		bystander(t)
		if a := d.clear(d.shared[round%3]); a.status != http.StatusNoContent {
			d.fatalf("a clear with nothing free: %d %.300s", a.status, a.body)
		}
		if err := os.Remove(other); err != nil {
			t.Fatal(err)
		}
		if a := d.append(d.shared[round%3], d.next(1), true); a.status != http.StatusCreated {
			d.fatalf("an append with some room: %d %.300s", a.status, a.body)
		}
		s.kill()
		if found := s.check(); len(found) > 0 {
			d.fatalf("check finds %v", found)
		}
		s.begin()
		d.verify()
		for _, c := range d.shared {
			d.clear(c)
		}
		d.sweep(filesOf(t, s.dir))
	}
	t.Logf("%d rounds, %v", rounds, d.figures)
}

// occupy takes all that is left of a file system, as others may.
func occupy(t testing.TB, name string) {
	t.Helper()
	f, err := os.Create(name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for size := 64 << 10; size > 0; {
		if _, err := f.Write(make([]byte, size)); err != nil {
			size /= 2
		}
	}
}

// TestAReadOnlyFileSystem makes the file system read-only under a daemon that has nothing open for writing, and starts one
// on it: it ends with an error that says why. When it can be written to again, all is there.
func TestAReadOnlyFileSystem(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=16m,mode=0700"); err != nil {
		t.Skipf("no tmpfs can be mounted here, so none is made read-only: %v", err)
	}
	t.Cleanup(func() { unmount(t, dir) })
	s := newServer(t, filepath.Join(dir, "data"), nil)
	d := newDriver(t, s, 2)
	s.begin()
	for _, c := range d.shared {
		d.append(c, d.next(4), true)
	}
	s.stop()
	remount := func(flags uintptr) error { return unix.Mount("tmpfs", dir, "tmpfs", unix.MS_REMOUNT|flags, "") }
	if err := remount(unix.MS_RDONLY); err != nil {
		t.Fatal(err)
	}
	if err := s.start(); err == nil || !strings.Contains(s.log(), "read-only file system") {
		t.Errorf("a start on a read-only file system: %v: %s", err, s.log())
	}
	if found := s.check(); len(found) > 0 {
		t.Errorf("check of a read-only file system finds %v", found)
	}
	if err := remount(0); err != nil {
		t.Fatal(err)
	}
	s.begin()
	d.verify()
	d.append(d.shared[0], d.next(1), true)
	d.verify()
}
