package store

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"math"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

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

// A wedge is a disk on which operations of some kind hang while it is told to, watched by a store. It is for a bubble.
type wedge struct {
	*Store
	t    *testing.T
	fsys *crashfs.FS
	logs bytes.Buffer
}

func newWedge(t *testing.T) *wedge {
	w := &wedge{t: t, fsys: newBook(t, 2).closed.Kill()}
	var err error
	w.Store, err = Open(Options{FS: w.fsys, NewID: safeIDs(), Registerer: prometheus.NewRegistry(), Logger: slog.New(slog.NewTextHandler(&w.logs, nil))})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var watching sync.WaitGroup
	watching.Go(func() { w.Watch(ctx) })
	t.Cleanup(func() {
		cancel()
		watching.Wait()
		_ = w.Close()
	})
	return w
}

// during has operations of a kind hang for a time while something is done, and returns what the log was told.
func (w *wedge) during(kind string, lasts time.Duration, do func(i int), many int) (told string) {
	w.t.Helper()
	heals := make(chan struct{})
	w.fsys.FailWhen(func(op crashfs.Op) error {
		if op.Kind == kind {
			<-heals
		}
		return nil
	})
	from := w.logs.Len()
	var under sync.WaitGroup
	for i := range many {
		under.Go(func() { do(i) })
	}
	time.Sleep(lasts)
	w.fsys.Heal()
	close(heals)
	under.Wait()
	time.Sleep(2 * watchEvery)
	synctest.Wait()
	return w.logs.String()[from:]
}

// A disk that hangs is told in one line within seconds, whatever waits for it, and so is its end.
func TestADiskThatHangsIsTold(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		kind, operation string
		do              func(ctx context.Context, s *Store) error
	}{
		{"Sync", "sync", func(ctx context.Context, s *Store) error {
			_, err := s.Log(ann, "a").Append(ctx, batch("x"))
			return err
		}},
		{"WriteAt", "write", func(ctx context.Context, s *Store) error {
			_, err := s.Log(ann, "a").Append(ctx, batch("x"))
			return err
		}},
		{"Sync", "sync", func(ctx context.Context, s *Store) error {
			_, err := s.Log(ann, "a").Rewind(ctx, history.Rewind{Through: 1})
			return err
		}},
		{"WriteAt", "write", func(ctx context.Context, s *Store) error {
			_, err := s.Log(ann, "a").Rewind(ctx, history.Rewind{Through: 1})
			return err
		}},
		{"Sync", "preparing an import", func(ctx context.Context, s *Store) error {
			_, err := s.Log(ann, "new").Import(ctx, history.Import{Mode: history.Create, Messages: slices2(made("1", 40))})
			return err
		}},
		{"Rename", "putting an import in its place", func(ctx context.Context, s *Store) error {
			_, err := s.Log(ann, "new").Import(ctx, history.Import{Mode: history.Create, Messages: slices2(made("1", 40))})
			return err
		}},
		{"Rename", "moving a cleared conversation away", func(ctx context.Context, s *Store) error { return s.Log(ann, "a").Clear(ctx) }},
		{"ReadDir", "opening a conversation", func(ctx context.Context, s *Store) error { _, err := s.Log(ann, "a").State(ctx); return err }},
	} {
		synctest.Test(t, func(t *testing.T) {
			w := newWedge(t)
			told := w.during(tt.kind, 90*time.Second, func(int) {
				if err := tt.do(t.Context(), w.Store); err != nil {
					t.Errorf("%s of %s: %v", tt.kind, tt.operation, err)
				}
			}, 1)
			want := regexp.MustCompile(`^time=\S+ level=WARN msg="the disk hangs: .*" operation="?` + tt.operation + `"? for=[34]s late=1 times=1
time=\S+ level=INFO msg="the disk no longer hangs" after=1m30s operations=1
$`)
			if !want.MatchString(told) {
				t.Errorf("%s of %s hangs: told %q", tt.kind, tt.operation, told)
			}
		})
	}
}

// What is told goes by time, not by how much waits or how often it happens; the metrics have all of it.
func TestADiskThatHangsIsToldOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWedge(t)
		appending := func(i int) {
			if _, err := w.Log(ann, fmt.Sprint("c", i)).Append(t.Context(), batch("x")); err != nil {
				t.Errorf("append to conversation %d: %v", i, err)
			}
		}
		if told := w.during("Sync", lateAfter-time.Millisecond, appending, 20); told != "" {
			t.Errorf("told of a sync that took a little: %s", told)
		}
		told := w.during("Sync", 5*time.Second, appending, 20)
		if strings.Count(told, "the disk hangs") != 1 || !strings.Contains(told, "late=20 times=1") || !strings.Contains(told, "after=5s operations=20") {
			t.Errorf("20 appends that waited: told %q", told)
		}
		for range 3 {
			if told := w.during("Sync", 5*time.Second, appending, 20); told != "" {
				t.Errorf("told again within a minute: %s", told)
			}
		}
		time.Sleep(gossipEvery)
		if told := w.during("Sync", 5*time.Second, appending, 1); strings.Count(told, "the disk hangs") != 1 || !strings.Contains(told, "times=4") || !strings.Contains(told, "no longer") {
			t.Errorf("after a minute: told %q", told)
		}
		// One that began within that minute and goes on beyond it is told, too: it may last for hours.
		if told := w.during("Sync", 2*gossipEvery, appending, 1); strings.Count(told, "the disk hangs") != 1 || !strings.Contains(told, "times=1") || !strings.Contains(told, "after=2m0s") {
			t.Errorf("one that lasts: told %q", told)
		}
		if n := testutil.ToFloat64(w.metrics.stalls); n != 6 {
			t.Errorf("%v times counted, want 6", n)
		}
	})
}

// While the disk hangs the metrics say for how long, and do not wait for it themselves.
func TestTheMetricsDoNotHangWithTheDisk(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWedge(t)
		w.during("Sync", 5*time.Second, func(i int) {
			if i == 0 {
				_, _ = w.Log(ann, "a").Append(t.Context(), batch("x"))
				return
			}
			time.Sleep(4 * time.Second)
			if age := w.stalls.oldest(time.Now()); age != 4*time.Second {
				t.Errorf("the oldest is %v old, want 4 s", age)
			}
			w.fsys.FailWhen(func(op crashfs.Op) error {
				t.Errorf("the disk that hangs is asked for %s", op.Kind)
				return nil
			})
			if free, size, kept := w.disk(); !math.IsNaN(free) || !math.IsNaN(size) || !math.IsNaN(kept) {
				t.Errorf("a disk that hangs has %v free of %v", free, size)
			}
			w.refused(fmt.Errorf("%w: %w", history.ErrUnavailable, errNoDescriptor))
			if w.Ready() == nil {
				t.Error("ready while the disk hangs and no file could be opened")
			}
			w.fsys.Heal()
		}, 2)
		if age := w.stalls.oldest(time.Now()); age != 0 {
			t.Errorf("something is still under way, for %v", age)
		}
	})
}
