package store

import (
	"sync/atomic"
	"testing"
	"time"

	"historyd/internal/durable/crashfs"
)

// A disk that hangs fails nothing. Ready tells it all the same, for a write and for the opening of a conversation.
func TestADiskThatHangsIsNotReady(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"WriteAt", "Sync", "ReadDir"} {
		fsys := newBook(t, 2).closed.Kill()
		var passed atomic.Int64
		s, err := Open(Options{FS: fsys, NewID: safeIDs(), Now: func() time.Time { return time.Unix(1_800_000_000, passed.Load()) }})
		if err != nil {
			t.Fatal(err)
		}
		hangs, heals := make(chan struct{}, 9), make(chan struct{})
		fsys.FailWhen(func(op crashfs.Op) error {
			if op.Kind == kind {
				hangs <- struct{}{}
				<-heals
			}
			return nil
		})
		done := make(chan error)
		go func() {
			_, err := s.Log(ann, "a").Append(t.Context(), batch("slow"))
			done <- err
		}()
		<-hangs
		passed.Store(int64(stallAfter) - 1)
		if err := s.Ready(); err != nil {
			t.Errorf("%s that takes a little: %v", kind, err)
		}
		passed.Store(int64(stallAfter))
		if s.Ready() == nil {
			t.Errorf("ready while %s hangs", kind)
		}
		close(heals)
		if err := <-done; err != nil {
			t.Errorf("the append in the end: %v", err)
		}
		if err := s.Ready(); err != nil {
			t.Errorf("not ready after %s has come back: %v", kind, err)
		}
		fsys.Heal()
		_ = s.Close()
	}
}
