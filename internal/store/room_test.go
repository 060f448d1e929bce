package store

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"historyd/internal/durable"
	"historyd/internal/durable/crashfs"
	"historyd/internal/history"
)

// errNoDescriptor is what the disk says of an open for which none is left.
var errNoDescriptor = fmt.Errorf("%w: %w", durable.ErrNoDescriptor, syscall.EMFILE)

// scarce lets so many files and locks be open at a time, and a name be looked up with one more.
func scarce(fsys *crashfs.FS, most int) {
	fsys.FailWhen(func(op crashfs.Op) error {
		if slices.Contains([]string{"Open", "Create", "Mkdir", "ReadDir", "SyncDir"}, op.Kind) && fsys.OpenHandles() >= most {
			return errNoDescriptor
		}
		return nil
	})
}

// More conversations than descriptors are written to and read, with a bound that allows for all of them: those that are
// idle give theirs, the least recently used first, and the log says so once.
func TestIdleConversationsGiveTheirDescriptors(t *testing.T) {
	t.Parallel()
	var logs bytes.Buffer
	fsys, reg := crashfs.New(), prometheus.NewRegistry()
	s, err := Open(Options{FS: fsys, NewID: safeIDs(), Registerer: reg, Logger: slog.New(slog.NewTextHandler(&logs, nil))})
	if err != nil {
		t.Fatal(err)
	}
	const many, most = 60, 20
	scarce(fsys, most)
	for round := range 2 {
		for i := range many {
			l := s.Log(ann, fmt.Sprint("c", i))
			if _, err := l.Append(t.Context(), batch(fmt.Sprint(round))); err != nil {
				t.Fatalf("round %d: append to conversation %d: %v", round, i, err)
			}
			if err := s.Ready(); err != nil {
				t.Fatalf("round %d: not ready after conversation %d: %v", round, i, err)
			}
		}
	}
	for i := range many {
		if got := texts(t, s.Log(ann, fmt.Sprint("c", i))); strings.Join(got, " ") != "1:0 2:1" {
			t.Errorf("conversation %d: read %q", i, got)
		}
	}
	for i := range many {
		_, open := s.open[transcriptKey{ann, fmt.Sprint("c", i)}]
		if oldest, newest := i < many-most, i >= many-(most-roomAtOnce)+1; open && oldest || !open && newest {
			t.Errorf("conversation %d of %d is open: %t", i, many, open)
		}
	}
	if n := testutil.ToFloat64(s.metrics.closings); n < many {
		t.Errorf("%v conversations counted as closed for others, want more than %d", n, many)
	}
	if n := strings.Count(logs.String(), "no file can be opened"); n != 1 || !strings.Contains(logs.String(), "times=1 closed=8 open=") {
		t.Errorf("told %d times, want once: %s", n, &logs)
	}
	_ = s.Close()
	if n := fsys.OpenHandles(); n != 0 {
		t.Errorf("%d files left open", n)
	}
	fsys.Heal()
	mustCheck(t, fsys)
}

// What is in use is not closed for others: where nothing is idle an open is refused.
func TestWhatIsInUseKeepsItsDescriptors(t *testing.T) {
	t.Parallel()
	fsys := crashfs.New()
	s := mustOpen(t, fsys)
	var views []history.View
	for i := range 5 {
		l := s.Log(ann, fmt.Sprint("c", i))
		if _, err := l.Append(t.Context(), batch("x")); err != nil {
			t.Fatal(err)
		}
		v, err := l.View(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		views = append(views, v)
	}
	scarce(fsys, fsys.OpenHandles())
	_, err := s.Log(ann, "more").Append(t.Context(), batch("x"))
	if !errors.Is(err, history.ErrUnavailable) || !errors.Is(err, syscall.EMFILE) || s.Ready() == nil {
		t.Errorf("one more than there are descriptors: %v, ready %v", err, s.Ready())
	}
	for i, v := range views {
		for _, err := range v.Records(1, 1) {
			if err != nil {
				t.Errorf("conversation %d in use: %v", i, err)
			}
		}
		v.Close()
	}
	// With some idle there is room again, and it need not be a write that finds out.
	if err := s.Ready(); err != nil {
		t.Errorf("not ready with idle conversations: %v", err)
	}
	if _, err := s.Log(ann, "more").Append(t.Context(), batch("x")); err != nil {
		t.Errorf("with idle conversations: %v", err)
	}
	_ = s.Close()
}

// A lack of descriptors passes, and readiness comes back with it, though nobody writes; whatever was refused meanwhile.
func TestReadinessComesBackWithADescriptor(t *testing.T) {
	t.Parallel()
	for _, kinds := range []string{"Open Create ReadDir Mkdir SyncDir", "Create", "SyncDir", "Mkdir", "ReadDir"} {
		fsys := crashfs.New()
		s := mustOpen(t, fsys)
		fsys.FailWhen(func(op crashfs.Op) error {
			if slices.Contains(strings.Fields(kinds), op.Kind) || op.Name == formatName {
				return errNoDescriptor
			}
			return nil
		})
		if _, err := s.Log(ann, "a").Append(t.Context(), batch("x")); !errors.Is(err, history.ErrUnavailable) {
			t.Fatalf("%s: append without a descriptor: %v", kinds, err)
		}
		if s.Ready() == nil {
			t.Errorf("%s: ready without a descriptor", kinds)
		}
		fsys.Heal()
		if err := s.Ready(); err != nil {
			t.Errorf("%s: with descriptors again: %v", kinds, err)
		}
		if n := s.countFailing(); n != 0 {
			t.Errorf("%s: %v conversations still wait for a sync", kinds, n)
		}
		if _, err := s.Log(ann, "a").Append(t.Context(), batch("x")); err != nil {
			t.Errorf("%s: append with descriptors again: %v", kinds, err)
		}
		_ = s.Close()
		mustCheck(t, fsys)
	}
}

// What is wrong with the disk is not forgotten for a descriptor that was lacking later.
func TestALackOfDescriptorsHidesNoFailure(t *testing.T) {
	t.Parallel()
	for _, broken := range []string{"Sync", "ReadDir"} { // the first fails a commit, the second before there is one
		b := newBook(t, 2)
		fsys := b.closed.Kill()
		s := mustOpen(t, fsys)
		fsys.FailWhen(func(op crashfs.Op) error {
			if op.Kind == broken {
				return syscall.EIO
			}
			return nil
		})
		if _, err := s.Log(ann, "a").Append(t.Context(), batch("x")); !errors.Is(err, syscall.EIO) {
			t.Fatalf("%s fails: %v", broken, err)
		}
		fsys.FailWhen(func(op crashfs.Op) error {
			if op.Kind == "Open" || op.Kind == "Create" || op.Kind == "ReadDir" {
				return errNoDescriptor
			}
			return nil
		})
		for _, conversation := range []string{"a", "b"} {
			if _, err := s.Log(ann, conversation).Append(t.Context(), batch("x")); !errors.Is(err, syscall.EMFILE) {
				t.Fatalf("append without a descriptor: %v", err)
			}
		}
		fsys.Heal()
		if s.Ready() == nil {
			t.Errorf("ready after %s has failed and no write has worked since", broken)
		}
		for _, conversation := range []string{"b", "a"} {
			if broken == "Sync" && s.Ready() == nil {
				t.Errorf("ready before the conversation whose sync failed was written to")
			}
			if _, err := s.Log(ann, conversation).Append(t.Context(), batch("x")); err != nil {
				t.Fatal(err)
			}
		}
		if err := s.Ready(); err != nil {
			t.Errorf("not ready after writes that work: %v", err)
		}
		_ = s.Close()
	}
}

// Nor is one of which the lack of a descriptor is a part only: a new segment fails, and cannot be taken away again.
func TestALackOfDescriptorsBesideAFailureHidesNoFailure(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ broken, lacking string }{
		{"Sync", "Remove"}, {"SyncDir", "Remove"}, {"Remove", "SyncDir"},
	} {
		fsys := crashfs.New()
		s := mustOpen(t, fsys)
		dir := s.dirOf(transcriptKey{ann, "a"})
		fsys.FailWhen(func(op crashfs.Op) error {
			switch {
			case !strings.HasPrefix(op.Name, dir):
			case op.Kind == tt.broken:
				return syscall.EIO
			case op.Kind == tt.lacking:
				return errNoDescriptor
			}
			return nil
		})
		if _, err := s.Log(ann, "a").Append(t.Context(), batch("x")); !errors.Is(err, syscall.EIO) {
			t.Fatalf("append where %s fails, and %s for want of a descriptor: %v", tt.broken, tt.lacking, err)
		}
		fsys.Heal()
		if s.Ready() == nil {
			t.Errorf("ready after %s has failed, and %s for want of a descriptor, and no write has worked since", tt.broken, tt.lacking)
		}
		if _, err := s.Log(ann, "a").Append(t.Context(), batch("x")); err != nil {
			t.Fatal(err)
		}
		if err := s.Ready(); err != nil {
			t.Errorf("not ready after a write that works: %v", err)
		}
		_ = s.Close()
	}
}
