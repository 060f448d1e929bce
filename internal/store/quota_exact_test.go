package store

import (
	"errors"
	"sync/atomic"
	"syscall"
	"testing"

	"historyd/internal/durable/crashfs"
	"historyd/internal/history"
)

func TestQuotaIsExactBehindALineWithoutItsNewline(t *testing.T) {
	t.Parallel()
	b := newBook(t, 2)
	text := b.text("a")
	fsys := b.broken("a", text[:len(text)-1])
	s := openWith(t, fsys, Quota{Bytes: 1 << 40})
	if _, err := s.Log(ann, "a").Append(t.Context(), batch("more")); err != nil {
		t.Fatal(err)
	}
	exact(t, "an append behind a line without its newline", s, fsys, ann)
}

// TestQuotaIsWeighedOnceAtATime gives an account up while it is weighed in vain.
func TestQuotaIsWeighedOnceAtATime(t *testing.T) {
	t.Parallel()
	fsys := newBook(t, 2).closed.Kill()
	s := openWith(t, fsys, Quota{Bytes: 1 << 40})
	var failed atomic.Bool
	fsys.FailWhen(func(op crashfs.Op) error {
		if op.Kind == "List" && failed.CompareAndSwap(false, true) {
			s.ledger.giveUp(ann)
			return syscall.EIO
		}
		return nil
	})
	if _, err := s.ledger.enter(ann); err == nil {
		t.Fatal("weighed, though nothing could be listed")
	}
	if s.ledger.of[ann] == nil {
		t.Error("the account that took the place of the one that failed is forgotten: its users and the next would not know of each other")
	}
	if _, err := s.Log(ann, "a").Append(t.Context(), batch("more")); err != nil {
		t.Fatal(err)
	}
	exact(t, "after a weighing that failed", s, fsys, ann)
}

// TestQuotaIsExactWhenAnImportFailsLate appends as soon as an import has failed of which nobody knows what it did.
func TestQuotaIsExactWhenAnImportFailsLate(t *testing.T) {
	t.Parallel()
	fsys := newBook(t, 2).closed.Kill()
	s := openWith(t, fsys, Quota{Bytes: 1 << 40})
	l := s.Log(ann, "a")
	dir := s.dirOf(transcriptKey{ann, "a"})
	var swapped, weighed atomic.Bool
	fsys.FailWhen(func(op crashfs.Op) error {
		switch {
		case op.Kind == "Exchange":
			swapped.Store(true)
			return syscall.EIO
		case op.Kind == "List" && op.Name == dir && swapped.Load() && weighed.CompareAndSwap(false, true):
			done := make(chan error)
			go func() {
				_, err := l.Append(t.Context(), batch("meanwhile"))
				done <- err
			}()
			if err := <-done; err != nil {
				t.Errorf("an append behind the import: %v", err)
			}
		}
		return nil
	})
	if err := importing(history.Replace)(t, l); err == nil || !weighed.Load() {
		t.Fatalf("the import: %v, and its conversation was weighed: %t", err, weighed.Load())
	}
	fsys.Heal()
	if _, err := s.Log(ann, "b").Append(t.Context(), batch("more")); err != nil {
		t.Fatal(err)
	}
	exact(t, "after an import that failed late", s, fsys, ann)
}

// TestQuotaCountsAnImportOfNothing remembers the key of one, for which a conversation begins.
func TestQuotaCountsAnImportOfNothing(t *testing.T) {
	t.Parallel()
	for limit, want := range map[int64]bool{3: true, 2: false} {
		fsys := newBook(t, 2).closed.Kill()
		s := openWith(t, fsys, Quota{Conversations: limit})
		_, err := s.Log(ann, "new").Import(t.Context(), history.Import{Mode: history.Extend, Key: "k", Messages: slices2(nil)})
		if _, full := errors.AsType[*history.QuotaExceeded](err); full == want || !full && err != nil {
			t.Errorf("where %d conversations may be: %v", limit, err)
		}
		exact(t, "an import of nothing", s, fsys, ann)
	}
}
