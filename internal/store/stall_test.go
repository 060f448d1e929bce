package store

import (
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"historyd/internal/durable/crashfs"
	"historyd/internal/history"
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

// Appends that wait for one that hangs, however long, wait in line: each seq is given once.
func TestAppendsBehindOneThatHangsAreCounted(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"WriteAt", "Sync"} {
		fsys := crashfs.New()
		s := mustOpen(t, fsys)
		l := s.Log(ann, "new")
		hangs, heals := make(chan struct{}), make(chan struct{})
		var once sync.Once
		fsys.FailWhen(func(op crashfs.Op) error {
			if op.Kind == kind {
				once.Do(func() { close(hangs); <-heals })
			}
			return nil
		})
		const n = 200
		var all sync.WaitGroup
		receipts, errs := make([]history.Receipt, n), make([]error, n)
		all.Go(func() { receipts[0], errs[0] = l.Append(t.Context(), batch("0")) })
		<-hangs
		for i := 1; i < n; i++ {
			all.Go(func() { receipts[i], errs[i] = l.Append(t.Context(), batch(fmt.Sprint(i))) })
		}
		close(heals)
		all.Wait()
		var seqs []int64
		want := make([]string, n)
		for i, r := range receipts {
			if errs[i] != nil {
				t.Fatalf("%s hangs: append %d: %v", kind, i, errs[i])
			}
			seqs = append(seqs, r.FirstSeq)
			want[r.FirstSeq-1] = fmt.Sprintf("%d:%d", r.FirstSeq, i)
		}
		slices.Sort(seqs)
		if seqs = slices.Compact(seqs); len(seqs) != n || seqs[0] != 1 || seqs[n-1] != n {
			t.Errorf("%s hangs: %d seqs, from %d to %d", kind, len(seqs), seqs[0], seqs[len(seqs)-1])
		}
		if got := texts(t, l); !slices.Equal(got, want) {
			t.Errorf("%s hangs: read %q", kind, got)
		}
		_ = s.Close()
		mustCheck(t, fsys)
	}
}
