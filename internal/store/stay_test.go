package store

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"historyd/internal/durable"
	"historyd/internal/durable/crashfs"
	"historyd/internal/history"
)

// Whoever stays stands still while its commit hangs, whatever it gave up, and hears what became of it. Only so many do.
func TestWhoStaysCommitsItself(t *testing.T) {
	t.Parallel()
	fsys := crashfs.New()
	s, err := Open(Options{FS: fsys, NewID: safeIDs()})
	if err != nil {
		t.Fatal(err)
	}
	hung, heals := make(chan struct{}, 2*maxStanding), make(chan struct{})
	fsys.FailWhen(func(op crashfs.Op) error {
		if op.Kind == "Sync" {
			hung <- struct{}{}
			<-heals
		}
		return nil
	})
	ctx, cancel := context.WithCancel(t.Context())
	var clients sync.WaitGroup
	outcomes := make(chan error, maxStanding)
	for i := range maxStanding {
		clients.Go(func() {
			_, err := s.Log(ann, fmt.Sprint(i)).Append(ctx, batch("x"))
			outcomes <- err
		})
	}
	for range maxStanding {
		<-hung
	}
	cancel()
	late, stop := context.WithCancel(t.Context())
	clients.Go(func() {
		<-hung
		stop()
	})
	inTime(t, func() {
		if _, err := s.Log(ann, "one more").Append(late, batch("x")); !errors.Is(err, context.Canceled) {
			t.Errorf("one more that hangs: %v", err)
		}
	})
	if n := len(outcomes); n > 0 {
		t.Errorf("%d return while the disk hangs", n)
	}
	close(heals)
	clients.Wait()
	for range maxStanding {
		if err := <-outcomes; err != nil {
			t.Errorf("an append that stayed: %v", err)
		}
	}
	if n := s.standing.Load(); n != 0 {
		t.Errorf("%d commit in the end", n)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}

// Whoever stays opens the conversation itself, too, and others wait for that as long as they like.
func TestWhoStaysLoadsItself(t *testing.T) {
	t.Parallel()
	fsys := newBook(t, 2).closed.Kill()
	s := mustOpen(t, fsys)
	hung, heals := make(chan struct{}, 99), make(chan struct{})
	fsys.FailWhen(func(op crashfs.Op) error {
		if op.Kind == "ReadDir" {
			hung <- struct{}{}
			<-heals
		}
		return nil
	})
	ctx, cancel := context.WithCancel(t.Context())
	outcome := make(chan error, 1)
	go func() {
		_, err := s.Log(ann, "a").Append(ctx, batch("more"))
		outcome <- err
	}()
	<-hung
	cancel()
	if n := s.standing.Load(); n != 1 {
		t.Errorf("%d stand still while a directory hangs", n)
	}
	inTime(t, func() {
		if _, err := s.Log(ann, "a").State(ctx); !errors.Is(err, context.Canceled) {
			t.Errorf("another who has left: %v", err)
		}
	})
	if len(outcome) > 0 {
		t.Error("the append returns while a directory hangs")
	}
	close(heals)
	if err := <-outcome; err != nil && !errors.Is(err, context.Canceled) {
		t.Errorf("an append that nobody waits for: %v", err)
	}
	if n := s.standing.Load(); n != 0 {
		t.Errorf("%d stand still in the end", n)
	}
	if _, err := s.Log(ann, "a").Append(t.Context(), batch("more")); err != nil {
		t.Error(err)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}

// Before a commit has begun, whoever stays may leave: it is not made then, and what comes after it is.
func TestWhoStaysMayLeaveWhileItWaits(t *testing.T) {
	t.Parallel()
	s := mustOpen(t, crashfs.New())
	l := s.Log(ann, "a")
	tr, err := s.acquire(t.Context(), transcriptKey{ann, "a"})
	if err != nil {
		t.Fatal(err)
	}
	if err := tr.change.lock(t.Context()); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var first sync.WaitGroup
	first.Go(func() {
		if _, err := l.Append(ctx, batch("left")); !errors.Is(err, context.Canceled) {
			t.Errorf("an append that nobody waits for: %v", err)
		}
	})
	await(t, tr, func() bool { return tr.leading })
	cancel()
	first.Wait()
	var second sync.WaitGroup
	second.Go(func() {
		if _, err := l.Append(t.Context(), batch("stayed")); err != nil {
			t.Error(err)
		}
	})
	await(t, tr, func() bool { return len(tr.queue) == 1 })
	tr.change.unlock()
	second.Wait()
	s.release(tr)
	if got := texts(t, l); !slices.Equal(got, []string{"1:stayed"}) {
		t.Errorf("read %q", got)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}

// A leader that stays leads one group: what came meanwhile is committed by another, in one.
func TestWhoStaysLeavesTheRestToOthers(t *testing.T) {
	t.Parallel()
	const n = 20
	fsys := crashfs.New()
	s := mustOpen(t, fsys)
	l := s.Log(ann, "a")
	if _, err := l.Append(t.Context(), batch("0")); err != nil {
		t.Fatal(err)
	}
	hung, heals, syncs := make(chan struct{}, n), make(chan struct{}), 0
	fsys.FailWhen(func(op crashfs.Op) error {
		if op.Kind == "Sync" {
			syncs++
			hung <- struct{}{}
			<-heals
		}
		return nil
	})
	var first, rest sync.WaitGroup
	appends := func(clients *sync.WaitGroup, text string) {
		clients.Go(func() {
			if _, err := l.Append(t.Context(), batch(text)); err != nil {
				t.Error(err)
			}
		})
	}
	appends(&first, "1")
	<-hung
	for i := range n {
		appends(&rest, fmt.Sprint("rest ", i))
	}
	tr := s.open[transcriptKey{ann, "a"}].t
	await(t, tr, func() bool { return len(tr.queue) == n })
	heals <- struct{}{}
	inTime(t, first.Wait) // while the next commit hangs
	<-hung
	close(heals)
	rest.Wait()
	if syncs != 2 {
		t.Errorf("%d syncs for an append alone and %d together", syncs, n)
	}
	if got := texts(t, l); len(got) != n+2 {
		t.Errorf("read %q", got)
	}
	await(t, tr, func() bool { return !tr.leading })
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}

// A commit that panics fails all of its group, as if the disk had: nobody knows what became of it. The next begins a segment.
func TestAPanicIsAFailureToOthers(t *testing.T) {
	t.Parallel()
	s := mustOpen(t, crashfs.New())
	l := s.Log(ann, "a")
	keyed := batch("x")
	keyed.Key = "k"
	if _, err := l.Append(t.Context(), keyed); err != nil {
		t.Fatal(err)
	}
	tr, err := s.acquire(t.Context(), transcriptKey{ann, "a"})
	if err != nil {
		t.Fatal(err)
	}
	if err := tr.change.lock(t.Context()); err != nil {
		t.Fatal(err)
	}
	var clients sync.WaitGroup
	clients.Go(func() {
		defer func() {
			if recover() == nil {
				t.Error("the panic is swallowed")
			}
		}()
		_, _ = l.Append(t.Context(), history.Batch{Stays: true, IfMatch: func(string) bool { panic("of the caller's") }})
	})
	await(t, tr, func() bool { return len(tr.queue) == 1 })
	clients.Go(func() {
		if _, err := l.Append(t.Context(), batch("y")); !errors.Is(err, history.ErrUnavailable) {
			t.Errorf("beside a panic: %v", err)
		}
	})
	await(t, tr, func() bool { return len(tr.queue) == 2 })
	tr.change.unlock()
	clients.Wait()
	if err := s.Ready(); !errors.Is(err, history.ErrUnavailable) {
		t.Errorf("ready: %v", err)
	}
	segment := tr.state.Load().seg
	if r, err := l.Append(t.Context(), keyed); err != nil || !r.Replayed {
		t.Errorf("a key that is there: %+v, %v", r, err)
	}
	if _, err := l.Append(t.Context(), batch("z")); err != nil {
		t.Error(err)
	}
	if now := tr.state.Load().seg; now <= segment {
		t.Errorf("segment %d follows %d", now, segment)
	}
	s.release(tr)
	if err := s.Ready(); err != nil {
		t.Errorf("after the next commit: %v", err)
	}
	if got := texts(t, l); !slices.Equal(got, []string{"1:x", "2:z"}) {
		t.Errorf("read %q", got)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}

// await polls what the queue guards.
func await(t *testing.T, tr *transcript, done func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); ; runtime.Gosched() {
		tr.queueMu.Lock()
		ok := done()
		tr.queueMu.Unlock()
		switch {
		case ok:
			return
		case time.Now().After(end):
			t.Fatal("it does not come to pass")
		}
	}
}

// An open conversation holds no messages longer than it takes to commit them. Not in parallel: the heap is everybody's.
func TestWhatIsCommittedLeavesTheMemory(t *testing.T) {
	fsys, err := durable.Open(privateDir(t))
	if err != nil {
		t.Fatal(err)
	}
	s := mustOpen(t, fsys)
	const size = 8 << 20
	inUse := func() int64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	if _, err := s.Log(ann, "a").Append(t.Context(), batch("x")); err != nil {
		t.Fatal(err)
	}
	before := inUse()
	if _, err := s.Log(ann, "a").Append(t.Context(), batch(strings.Repeat("x", size))); err != nil {
		t.Fatal(err)
	}
	if more := inUse() - before; more > size/2 {
		t.Errorf("%d bytes more are in use after an append of %d", more, size)
	}
	if err := errors.Join(s.Close(), fsys.Close()); err != nil {
		t.Error(err)
	}
}
