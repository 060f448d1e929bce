package store

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
	"syscall"
	"testing"

	"historyd/internal/durable/crashfs"
	"historyd/internal/history"
)

// used is the sum of the sizes of all files.
func used(fsys *crashfs.FS) (n int64) {
	for _, text := range fsys.Files() {
		n += int64(len(text))
	}
	return n
}

func TestCrashNotWhenTheDiskIsFull(t *testing.T) {
	t.Parallel()
	big := strings.Repeat("x", 12_000)
	for _, conversation := range []string{"a", "new"} {
		for room := int64(0); room < 16_000; room += 611 {
			what := fmt.Sprintf("room for %d bytes in %s", room, conversation)
			b := newBook(t, 2)
			fsys := b.closed.Kill()
			s := mustOpen(t, fsys)
			l := s.Log(ann, conversation)
			before, want := fsys.Files(), texts(t, l)
			fsys.SetCapacity(used(fsys) + room)
			_, err := l.Append(t.Context(), batch(big))
			if err == nil {
				if room < 12_000 {
					t.Fatalf("%s: an append of 12 kB went through", what)
				}
				continue
			}
			if !errors.Is(err, history.ErrFull) || errors.Is(err, history.ErrUnavailable) || s.Ready() == nil {
				t.Fatalf("%s: error %v, ready %v", what, err, s.Ready())
			}
			for name, text := range fsys.Files() {
				if strings.HasSuffix(name, ".jsonl") && !bytes.Equal(text, before[name]) {
					t.Fatalf("%s: %s has %d bytes, had %d", what, name, len(text), len(before[name]))
				}
			}
			if got := texts(t, l); !slices.Equal(got, want) {
				t.Fatalf("%s: read %q", what, got)
			}
			mustCheck(t, fsys)
			fsys.SetCapacity(-1)
			if _, err := l.Append(t.Context(), batch("ok")); err != nil || s.Ready() != nil {
				t.Fatalf("%s: with room again: %v, ready %v", what, err, s.Ready())
			}
			want = append(want, fmt.Sprintf("%d:ok", len(want)+1))
			if d := wantContent(t, what, l, want); d != nil {
				t.Fatalf("%s: damage %+v", what, d)
			}
			_ = s.Close()
			mustCheck(t, fsys)
		}
	}
}

func TestCrashNotWhenAnImportFillsTheDisk(t *testing.T) {
	t.Parallel()
	for _, mode := range []history.ImportMode{history.Create, history.Extend, history.Replace} {
		for room := int64(0); room < 30_000; room += 1999 {
			b := newBook(t, 2)
			fsys := b.closed.Kill()
			s := mustOpen(t, fsys)
			conversation := "a"
			if mode == history.Create {
				conversation = "new"
			}
			l, before := s.Log(ann, conversation), fsys.Files()
			fsys.SetCapacity(used(fsys) + room)
			_, err := l.Import(t.Context(), history.Import{Mode: mode, Messages: slices2(made("1", 40))})
			if !errors.Is(err, history.ErrFull) {
				t.Fatalf("%s with room for %d: %v", mode, room, err)
			}
			for name, text := range fsys.Files() {
				if !bytes.Equal(text, before[name]) {
					t.Fatalf("%s with room for %d: %s has changed or is new", mode, room, name)
				}
			}
			wantContent(t, "after it", l, b.want[conversation])
			fsys.SetCapacity(-1)
			if _, err := l.Import(t.Context(), history.Import{Mode: mode, Messages: slices2(made("1", 40))}); err != nil || s.Ready() != nil {
				t.Fatalf("%s with room again: %v, ready %v", mode, err, s.Ready())
			}
			_ = s.Close()
			mustCheck(t, fsys)
		}
	}
}

func TestCrashNotWhenAFullDiskIsCleared(t *testing.T) {
	t.Parallel()
	b := newBook(t, 3)
	fsys := b.closed.Kill()
	s := mustOpen(t, fsys)
	fsys.SetCapacity(used(fsys))
	if _, err := s.Log(ann, "b").Append(t.Context(), batch("more")); !errors.Is(err, history.ErrFull) {
		t.Fatalf("Append on a full disk: %v", err)
	}
	if err := s.Log(ann, "a").Clear(t.Context()); err != nil {
		t.Fatalf("Clear on a full disk: %v", err)
	}
	if _, err := s.Log(ann, "b").Append(t.Context(), batch("more")); err != nil || s.Ready() != nil {
		t.Fatalf("Append after a clear: %v, ready %v", err, s.Ready())
	}
	_ = s.Close()
	mustCheck(t, fsys)
}

// TestCrashAFailedSyncIsNotRepeated fails one sync of a segment in each way, and
// watches what is done to that file from then on.
func TestCrashAFailedSyncIsNotRepeated(t *testing.T) {
	t.Parallel()
	for _, evict := range []bool{false, true} {
		b := newBook(t, 2)
		fsys := b.closed.Kill()
		s, err := Open(Options{FS: fsys, NewID: safeIDs(), OpenFiles: 1})
		if err != nil {
			t.Fatal(err)
		}
		l := s.Log(ann, "a")
		texts(t, l)
		failed, dropped := false, false
		fsys.FailWhen(func(op crashfs.Op) error {
			if op.Name != b.files["a"] {
				return nil
			}
			switch {
			case op.Kind == "Sync" && !failed:
				failed = true
				return syscall.EIO
			case op.Kind == "DropCache":
				dropped = true
			case failed && (op.Kind == "WriteAt" || op.Kind == "Truncate" || op.Kind == "Sync" && !dropped):
				t.Errorf("%s of a file whose sync has failed", op.Kind)
			}
			return nil
		})
		if _, err := l.Append(t.Context(), batch("lost")); !errors.Is(err, history.ErrUnavailable) || !dropped || s.Ready() == nil {
			t.Fatalf("Append whose sync fails: %v; page cache dropped: %t; ready %v", err, dropped, s.Ready())
		}
		wantContent(t, "after a failed sync", l, b.want["a"])
		if evict {
			texts(t, s.Log(ann, "b"))
			wantContent(t, "read anew", l, b.want["a"])
			if s.Ready() == nil {
				t.Error("ready before a sync has worked again")
			}
		}
		if _, err := l.Append(t.Context(), batch("kept")); err != nil || s.Ready() != nil {
			t.Fatalf("the next append: %v, ready %v", err, s.Ready())
		}
		want := append(slices.Clone(b.want["a"]), "3:kept")
		wantContent(t, "after the next append", l, want)
		fsys = fsys.Crash(rng(1))
		s = mustOpen(t, fsys)
		if d := wantContent(t, "after a power cut", s.Log(ann, "a"), want); d != nil {
			t.Errorf("damage %+v", d)
		}
		_ = s.Close()
		mustCheck(t, fsys)
	}
}

// TestCrashAHalfOfAGroupThatIsShownStays has room for the first of two lines, and a disk
// that cannot cut the half of the second.
func TestCrashAHalfOfAGroupThatIsShownStays(t *testing.T) {
	t.Parallel()
	b := newBook(t, 2)
	fsys := b.closed.Kill()
	s, err := Open(Options{FS: fsys, NewID: safeIDs(), OpenFiles: 1})
	if err != nil {
		t.Fatal(err)
	}
	tr, err := s.acquire(t.Context(), transcriptKey{ann, "a"})
	if err != nil {
		t.Fatal(err)
	}
	fsys.SetCapacity(used(fsys) + 700)
	fsys.FailWhen(func(op crashfs.Op) error {
		if op.Kind == "Truncate" {
			return syscall.EIO
		}
		return nil
	})
	group := []*pending{{batch: batch("first")}, {batch: batch("second")}}
	if err := tr.change.lock(t.Context()); err != nil {
		t.Fatal(err)
	}
	tr.commitGroup(group)
	tr.change.unlock()
	s.release(tr)
	if group[0].err == nil || group[1].err == nil {
		t.Fatal("the group went through")
	}
	fsys.Heal()
	fsys.SetCapacity(-1)
	wantContent(t, "another conversation", s.Log(ann, "b"), b.want["b"])
	s.reading.Wait()
	want := append(slices.Clone(b.want["a"]), "3:first")
	wantContent(t, "what is left", s.Log(ann, "a"), want)
	for seed := range 10 {
		next := fsys.Crash(rng(seed))
		again := mustOpen(t, next)
		wantContent(t, "after a power cut", again.Log(ann, "a"), want)
		_ = again.Close()
	}
}

// After a failed sync the last line is read again. That it can't be read at the moment is no damage.
func TestCrashAFailureToLookAgainIsNoDamage(t *testing.T) {
	t.Parallel()
	b := newBook(t, 2)
	fsys := b.closed.Kill()
	s := mustOpen(t, fsys)
	l := s.Log(ann, "a")
	texts(t, l)
	before, err := l.State(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	failing := "Sync"
	fsys.FailWhen(func(op crashfs.Op) error {
		if op.Name == b.files["a"] && op.Kind == failing {
			return syscall.EIO
		}
		return nil
	})
	for _, failing = range []string{"Sync", "ReadAt", "ReadAt"} {
		if _, err := l.Append(t.Context(), batch("lost")); !errors.Is(err, history.ErrUnavailable) || s.Ready() == nil {
			t.Fatalf("Append when %s fails: %v, ready %v", failing, err, s.Ready())
		}
	}
	failing = ""
	if _, err := l.Append(t.Context(), batch("kept")); err != nil || s.Ready() != nil {
		t.Fatalf("Append when it can be read: %v, ready %v", err, s.Ready())
	}
	if d := wantContent(t, "in the end", l, append(slices.Clone(b.want["a"]), "3:kept")); d != nil {
		t.Errorf("damage %+v", d)
	}
	if after, err := l.State(t.Context()); err != nil || after.Epoch != before.Epoch {
		t.Errorf("the epoch is %s, was %s: %v", after.Epoch, before.Epoch, err)
	}
	_ = s.Close()
	mustCheck(t, fsys)
}

// Whatever can't be read at the moment has its class, forward and back.
func TestCrashNotWhenALookFails(t *testing.T) {
	t.Parallel()
	fsys := crashfs.New()
	open := func() *Store {
		s, err := Open(Options{FS: fsys, NewID: safeIDs(), SegmentBytes: 1, OpenFiles: 2})
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	s := open()
	for range 4 {
		if _, err := s.Log(ann, "a").Append(t.Context(), batch("x")); err != nil {
			t.Fatal(err)
		}
	}
	_ = s.Close()
	for _, back := range []bool{false, true} {
		for at := 0; ; at++ {
			s := open()
			v, err := s.Log(ann, "a").View(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			last := v.State().LastSeq
			records := v.Records(1, last)
			if back {
				records = v.Backward(last)
			}
			fsys.FailAt(fsys.Ops()+at, crashfs.Before, syscall.EMFILE, true)
			for _, err := range records {
				if err != nil && !errors.Is(err, history.ErrUnavailable) {
					t.Errorf("back %t, operation %d fails: %v", back, at, err)
				}
			}
			reached := fsys.Reached()
			fsys.Heal()
			v.Close()
			_ = s.Close()
			if !reached {
				break
			}
		}
	}
}
