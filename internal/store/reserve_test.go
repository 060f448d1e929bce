package store

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"historyd/internal/durable"
	"historyd/internal/durable/crashfs"
	"historyd/internal/history"
)

func openReserving(t *testing.T, fsys durable.FS, reserve int64) *Store {
	t.Helper()
	s, err := Open(Options{FS: fsys, NewID: safeIDs(), Now: func() time.Time { return time.Unix(1_800_000_000, 0) }, Reserve: reserve})
	if err != nil {
		t.Fatalf("Open: %v", err)
	}
	return s
}

// fillUp appends until there is no room, and returns how often that went well.
func fillUp(t *testing.T, l history.Log, text string) (n int) {
	t.Helper()
	for ; n < 100_000; n++ {
		_, err := l.Append(t.Context(), batch(text))
		if errors.Is(err, history.ErrFull) {
			return n
		}
		if err != nil {
			t.Fatalf("append %d: %v", n, err)
		}
	}
	t.Fatal("the disk does not fill up")
	return 0
}

// vital does what must find room on a full disk, and ends with a clear.
func vital(t *testing.T, s *Store, fsys durable.FS, filled string, n int) {
	t.Helper()
	l := s.Log(ann, filled)
	if s.Ready() == nil {
		t.Error("ready on a full disk")
	}
	if got := len(texts(t, l)); got != n {
		t.Errorf("%d messages are read, want %d", got, n)
	}
	if _, err := l.Rewind(t.Context(), history.Rewind{Through: 1}); err != nil {
		t.Errorf("a rewind: %v", err)
	}
	if err := durable.WriteFile(fsys, "callers.json", []byte(strings.Repeat("token ", 200))); err != nil {
		t.Errorf("a token: %v", err)
	}
	mustCheck(t, fsys)
	if err := l.Clear(t.Context()); err != nil {
		t.Errorf("a clear: %v", err)
	}
	if _, err := l.Append(t.Context(), batch("after")); err != nil || s.Ready() != nil {
		t.Errorf("after a clear: %v, ready: %v", err, s.Ready())
	}
}

func TestReserveIsLeftFree(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ capacity, reserve, floor int64 }{
		{200_000, 10_000, 10_000},
		{200_000, 1 << 30, 12_500}, // a sixteenth
		{200_000, 0, 0},
	} {
		fsys := crashfs.New()
		fsys.SetCapacity(tt.capacity)
		s := openReserving(t, fsys, tt.reserve)
		n := fillUp(t, s.Log(ann, "a"), "some words")
		free, _, err := fsys.Free()
		if err != nil || free < tt.floor || free > tt.floor+2000 {
			t.Errorf("a reserve of %d in %d leaves %d, want %d and little more: %v", tt.reserve, tt.capacity, free, tt.floor, err)
		}
		if tt.floor > 0 {
			vital(t, s, fsys, "a", n)
		}
		_ = s.Close()
		mustCheck(t, fsys)
	}
}

// TestRewindsLeaveHalfOfTheReserve rewinds what can be, until there is no room: clears need some.
func TestRewindsLeaveHalfOfTheReserve(t *testing.T) {
	t.Parallel()
	const reserve = 8000
	fsys := crashfs.New()
	fsys.SetCapacity(reserve * 16)
	s := openReserving(t, fsys, reserve)
	l := s.Log(ann, "a")
	n := fillUp(t, l, "some words")
	if _, err := l.Append(t.Context(), batch("some words")); err == nil || !strings.Contains(err.Error(), "reserved for rewinds and clears") {
		t.Errorf("an append is refused: %v", err)
	}
	rewound := 0
	for ; rewound < n; rewound++ {
		if _, err := l.Rewind(t.Context(), history.Rewind{Through: int64(n - rewound - 1)}); errors.Is(err, history.ErrFull) {
			if !strings.Contains(err.Error(), "half of the reserve is for clears alone") {
				t.Errorf("a rewind is refused: %v", err)
			}
			break
		} else if err != nil {
			t.Fatalf("rewind %d: %v", rewound, err)
		}
	}
	if free, _, err := fsys.Free(); err != nil || rewound < 5 || free < reserve/2 || free > reserve/2+1000 {
		t.Errorf("%d rewinds leave %d bytes of a reserve of %d: %v", rewound, free, reserve, err)
	}
	if err := l.Clear(t.Context()); err != nil {
		t.Errorf("a clear: %v", err)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	mustCheck(t, fsys)
}

// TestReserveIsExact has a disk on which an append just fits, and one of a byte less.
func TestReserveIsExact(t *testing.T) {
	t.Parallel()
	b := newBook(t, 2)
	for _, door := range doors {
		if strings.HasPrefix(door.name, "import") {
			continue // it is built beside what is there
		}
		for _, conversation := range []string{"a", "new"} {
			fsys := b.closed.Kill()
			before := used(fsys)
			if err := door.in(t, openReserving(t, fsys, 0).Log(ann, conversation)); err != nil {
				t.Fatal(err)
			}
			took := used(fsys) - before
			for _, short := range []int64{0, 1} {
				fsys := b.closed.Kill()
				s := openReserving(t, fsys, 100)
				fsys.SetCapacity(used(fsys) + took + 100 - short)
				err := door.in(t, s.Log(ann, conversation))
				if errors.Is(err, history.ErrFull) != (short == 1) || short == 0 && err != nil {
					t.Errorf("%s to %s, %d bytes short: %v", door.name, conversation, short, err)
				}
				if short == 1 && used(fsys) != before {
					t.Errorf("%s to %s: what was refused left %d bytes", door.name, conversation, used(fsys)-before)
				}
			}
		}
	}
}

// TestReserveIsKeptByImports watches the room while one is taken and built.
func TestReserveIsKeptByImports(t *testing.T) {
	t.Parallel()
	for _, mode := range []history.ImportMode{history.Create, history.Extend, history.Replace} {
		for _, tt := range []struct {
			fills           string
			memory, picture int
		}{{"the spool", 300, 0}, {"attachments", 300, 9000}, {"the new record", 1 << 20, 0}} {
			fsys := newBook(t, 2).closed.Kill()
			s := openReserving(t, fsys, 8000)
			s.spoolMemory = tt.memory
			before := fsys.Files()
			capacity := used(fsys) + 8000*16
			fsys.SetCapacity(capacity)
			least := int64(1 << 60)
			fsys.FailWhen(func(op crashfs.Op) error {
				if op.Kind == "SyncDir" || op.Kind == "Sync" || op.Kind == "Remove" {
					least = min(least, capacity-used(fsys))
				}
				return nil
			})
			var msgs []history.Message
			for i := range 400 {
				m := user(strings.Repeat("x", 500))
				if tt.picture > 0 {
					m = shown("x", []byte(fmt.Sprint(i, strings.Repeat("p", tt.picture))))
				}
				msgs = append(msgs, m)
			}
			_, err := s.Log(ann, "new").Import(t.Context(), history.Import{Mode: mode, Messages: slices2(msgs)})
			fsys.Heal()
			if !errors.Is(err, history.ErrFull) || least < 8000 {
				t.Errorf("%s, %s: %v; %d bytes were free at the least", mode, tt.fills, err, least)
			}
			if got := fsys.Files(); len(got) != len(before) {
				t.Errorf("%s, %s: %d files are left, there were %d", mode, tt.fills, len(got), len(before))
			}
		}
	}
}

// TestReserveIsKeptByManyAtOnce lets all who may write do so at the same moment.
func TestReserveIsKeptByManyAtOnce(t *testing.T) {
	t.Parallel()
	const all, room, reserve = 40, 50_000, 20_000
	fsys := crashfs.New()
	s := openReserving(t, fsys, reserve)
	fsys.SetCapacity(used(fsys) + room*16)
	if _, err := s.Log(ann, "filler").Append(t.Context(), batch(strings.Repeat("x", 15*room-reserve))); err != nil {
		t.Fatal(err)
	}
	arrived, settled := make(chan struct{}, all), make(chan struct{})
	fsys.FailWhen(func(op crashfs.Op) error {
		if op.Kind == "WriteAt" {
			arrived <- struct{}{}
			<-settled
		}
		return nil
	})
	var wg sync.WaitGroup
	for i := range all {
		wg.Go(func() {
			_, err := s.Log(ann, fmt.Sprint("c", i)).Append(t.Context(), batch(strings.Repeat("x", 5000)))
			if errors.Is(err, history.ErrFull) {
				arrived <- struct{}{}
			} else if err != nil {
				t.Errorf("append %d: %v", i, err)
			}
		})
	}
	for range all {
		<-arrived
	}
	close(settled)
	wg.Wait()
	if free, _, _ := fsys.Free(); free < reserve || free > reserve+6000 {
		t.Errorf("%d bytes are free, want %d and little more", free, reserve)
	}
}

func TestReserveIsKeptByWhatIsDisposable(t *testing.T) {
	t.Parallel()
	fsys := crashfs.New()
	fsys.SetCapacity(100_000)
	s := openReserving(t, fsys, 5000)
	f, err := s.Disposable().Create("words")
	if err != nil {
		t.Fatal(err)
	}
	room := 100_000 - used(fsys) - 5000
	if n, err := f.WriteAt(make([]byte, room+1), 0); !errors.Is(err, history.ErrFull) || n != 0 {
		t.Errorf("a byte too much: %d bytes are written, %v", n, err)
	}
	if n, err := f.WriteAt(make([]byte, room), 0); err != nil || int64(n) != room {
		t.Errorf("what there is room for: %d bytes are written, %v", n, err)
	}
	if err := errors.Join(f.Close(), s.Close()); err != nil {
		t.Error(err)
	}
}

// TestReserveOnASmallFileSystem fills a tmpfs, and then takes what is left of it.
func TestReserveOnASmallFileSystem(t *testing.T) {
	dir := t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=4m,mode=0700"); err != nil {
		t.Skipf("no tmpfs can be mounted here, so no real file system is filled: %v", err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	for _, reserve := range []int64{64 << 10, 0} {
		data := filepath.Join(dir, fmt.Sprint("data", reserve))
		if err := os.Mkdir(data, 0o700); err != nil {
			t.Fatal(err)
		}
		fsys, err := durable.Open(data)
		if err != nil {
			t.Fatal(err)
		}
		s := openReserving(t, fsys, reserve)
		if _, err := s.Log(ann, "other").Append(t.Context(), batch("x")); err != nil {
			t.Fatal(err)
		}
		n := fillUp(t, s.Log(ann, "a"), strings.Repeat("x", 5000))
		if reserve > 0 {
			if free, _, err := fsys.Free(); err != nil || free < reserve {
				t.Errorf("%d bytes are free, of a reserve of %d: %v", free, reserve, err)
			}
			vital(t, s, fsys, "a", n)
			n = fillUp(t, s.Log(ann, "a"), strings.Repeat("x", 5000)) + 1 // vital left one
		}
		occupy(t, filepath.Join(dir, "others"))
		if _, err := s.Log(ann, "other").Append(t.Context(), batch(strings.Repeat("x", 9000))); !errors.Is(err, history.ErrFull) {
			t.Errorf("an append with nothing free: %v", err)
		}
		mustCheck(t, fsys)
		if got := len(texts(t, s.Log(ann, "a"))); got != n {
			t.Errorf("with nothing free %d messages are read, want %d", got, n)
		}
		if err := s.Log(ann, "a").Clear(t.Context()); err != nil {
			t.Errorf("a clear with nothing free: %v", err)
		}
		if _, err := s.Log(ann, "other").Append(t.Context(), batch("y")); err != nil || s.Ready() != nil {
			t.Errorf("an append after it: %v, ready: %v", err, s.Ready())
		}
		if err := errors.Join(s.Close(), os.Remove(filepath.Join(dir, "others"))); err != nil {
			t.Fatal(err)
		}
		mustCheck(t, fsys)
		if err := errors.Join(fsys.Close(), os.RemoveAll(data)); err != nil {
			t.Fatal(err)
		}
	}
}

// occupy takes all that is left of a file system.
func occupy(t *testing.T, name string) {
	t.Helper()
	f, err := os.OpenFile(name, os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	for size := 64 << 10; size > 0; {
		if _, err := f.Write(make([]byte, size)); err == nil {
			continue
		} else if !errors.Is(err, syscall.ENOSPC) {
			t.Fatal(err)
		}
		size /= 2
	}
	if err := f.Close(); err != nil && !errors.Is(err, fs.ErrClosed) {
		t.Fatal(err)
	}
}
