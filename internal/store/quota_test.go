package store

import (
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"historyd/internal/durable/crashfs"
	"historyd/internal/history"
	"historyd/internal/identity"
)

var bob = func() identity.Scope {
	c, err := identity.NewCaller(string(identity.Mesh), "bob", "", "")
	if err != nil {
		panic(err)
	}
	return c.Scope()
}()

// tester is a test, of rapid's or not.
type tester interface {
	Helper()
	Fatalf(format string, args ...any)
}

// onDiskOf is what a caller's conversations take, by the files that there are.
func onDiskOf(fsys *crashfs.FS, scope identity.Scope) weight {
	var w weight
	begun := map[string]bool{}
	for name, text := range fsys.Files() {
		rest, ok := strings.CutPrefix(name, transcriptsName+"/"+scope.Dir()+"/")
		if !ok || strings.HasPrefix(rest, ".") {
			continue
		}
		w.bytes += int64(len(text))
		dir, file, _ := strings.Cut(rest, "/")
		if _, segment := segmentNumber(file); segment {
			begun[dir] = true
		}
	}
	w.conversations = int64(len(begun))
	return w
}

// booked is what a caller's account says, if there is one that counts everything.
func booked(s *Store, scope identity.Scope) (used weight, ok bool, err error) {
	l := s.ledger
	l.mu.Lock()
	defer l.mu.Unlock()
	a := l.of[scope]
	if a == nil || !a.begun || len(a.missing) > 0 {
		return weight{}, false, nil
	}
	if a.held != (weight{}) || a.users != 0 || l.writing != 0 {
		return a.used, true, fmt.Errorf("%+v is held by %d users, and %d bytes are about to be written", a.held, a.users, l.writing)
	}
	return a.used, true, nil
}

// exact compares what a caller's account says with the files, when nobody writes.
func exact(t tester, what string, s *Store, fsys *crashfs.FS, scope identity.Scope) weight {
	t.Helper()
	there := onDiskOf(fsys, scope)
	if used, ok, err := booked(s, scope); ok && (used != there || err != nil) {
		t.Fatalf("%s: booked are %+v, on disk are %+v, %v", what, used, there, err)
	}
	return there
}

func openWith(t tester, fsys *crashfs.FS, q Quota) *Store {
	t.Helper()
	s, err := Open(Options{FS: fsys, NewID: counterIDs(), Now: func() time.Time { return time.Unix(1_800_000_000, 0) }, Quota: q})
	if err != nil {
		t.Fatalf("Open: %v", err)
	}
	return s
}

// doors are all ways in which a caller's conversations grow. Each is of a message, and is
// given the log of a conversation that may be there.
var doors = []struct {
	name string
	in   func(t *testing.T, l history.Log) error
}{
	{"append", func(t *testing.T, l history.Log) error {
		_, err := l.Append(t.Context(), batch("one more"))
		return err
	}},
	{"append with a key", func(t *testing.T, l history.Log) error {
		b := batch("one more")
		b.Key = "another"
		_, err := l.Append(t.Context(), b)
		return err
	}},
	{"append that folds", func(t *testing.T, l history.Log) error {
		b := batch("1", "2", "3", "4")
		b.Fold = everyThird{}
		_, err := l.Append(t.Context(), b)
		return err
	}},
	{"append with pictures", func(t *testing.T, l history.Log) error {
		_, err := l.Append(t.Context(), history.Batch{Messages: []history.Message{
			shown("one", []byte(strings.Repeat("picture", 99))), shown("other", []byte("another picture")),
			shown("the first again", []byte(strings.Repeat("picture", 99)))}})
		return err
	}},
	{"import that makes", importing(history.Create)},
	{"import that extends", importing(history.Extend)},
	{"import that replaces", importing(history.Replace)},
}

func importing(mode history.ImportMode) func(t *testing.T, l history.Log) error {
	return func(t *testing.T, l history.Log) error {
		msgs := made("p7", 5)
		for i := range msgs {
			msgs[i].ID = fmt.Sprint("p7-", i)
		}
		_, err := l.Import(t.Context(), history.Import{Mode: mode, Messages: slices2(msgs)})
		return err
	}
}

func TestQuotaOfBytesIsExactAtEveryDoor(t *testing.T) {
	t.Parallel()
	b := newBook(t, 2)
	for _, door := range doors {
		for _, conversation := range []string{"a", "new"} {
			what := door.name + " to " + conversation
			if door.name == "import that makes" && conversation == "a" {
				continue
			}
			run := func(limit int64) (*crashfs.FS, *Store, error) {
				fsys := b.closed.Kill()
				s := openWith(t, fsys, Quota{Bytes: limit})
				err := door.in(t, s.Log(ann, conversation))
				exact(t, what, s, fsys, ann)
				return fsys, s, err
			}
			fsys, _, err := run(1 << 40)
			if err != nil {
				t.Fatalf("%s: %v", what, err)
			}
			size := onDiskOf(fsys, ann).bytes
			if fsys, s, err := run(size); err != nil || onDiskOf(fsys, ann).bytes != size || s.Ready() != nil {
				t.Errorf("%s: with just as much as it takes: %v, and %d bytes on disk, want %d", what, err, onDiskOf(fsys, ann).bytes, size)
			}
			fsys, s, err := run(size - 1)
			full, ok := errors.AsType[*history.QuotaExceeded](err)
			if !ok || full.What != "bytes" || full.Limit != size-1 || full.Actual > size || full.Actual <= full.Limit {
				t.Errorf("%s: with a byte less: %v, %+v, want one over %d", what, err, full, size-1)
			}
			if got, want := fsys.Files(), b.closed.Files(); !maps.EqualFunc(got, want, func(a, b []byte) bool { return string(a) == string(b) }) {
				t.Errorf("%s: what was refused left %d files, there were %d", what, len(got), len(want))
			}
			if s.Ready() != nil {
				t.Errorf("%s: a quota that is used up makes the store unready: %v", what, s.Ready())
			}
		}
	}
}

func TestQuotaOfConversationsIsExactAtEveryDoor(t *testing.T) {
	t.Parallel()
	for _, door := range doors {
		fsys := newBook(t, 2).closed.Kill()
		s := openWith(t, fsys, Quota{Conversations: 3})
		for i, conversation := range []string{"new", "newer", "newest"} {
			err := door.in(t, s.Log(ann, conversation))
			full, refused := errors.AsType[*history.QuotaExceeded](err)
			if i == 0 && err != nil || i > 0 && (!refused || *full != history.QuotaExceeded{What: "conversations", Limit: 3, Actual: 4}) {
				t.Errorf("%s: conversation %d of 3: %v", door.name, i+3, err)
			}
		}
		if door.name != "import that makes" {
			if err := door.in(t, s.Log(ann, "a")); err != nil {
				t.Errorf("%s: to one that is there: %v", door.name, err)
			}
		}
		if w := exact(t, door.name, s, fsys, ann); w.conversations != 3 {
			t.Errorf("%s: %d conversations", door.name, w.conversations)
		}
		if err := s.Log(ann, "new").Clear(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := door.in(t, s.Log(ann, "newest")); err != nil {
			t.Errorf("%s: after one was cleared: %v", door.name, err)
		}
		exact(t, door.name, s, fsys, ann)
		_ = s.Close()
		mustCheck(t, fsys)
	}
}

// TestQuotaFullLeavesTheRestWorking fills up one caller.
func TestQuotaFullLeavesTheRestWorking(t *testing.T) {
	t.Parallel()
	fsys, reg := crashfs.New(), prometheus.NewRegistry()
	s, err := Open(Options{FS: fsys, NewID: safeIDs(), Quota: Quota{Bytes: 5000}, Registerer: reg})
	if err != nil {
		t.Fatal(err)
	}
	l := s.Log(ann, "a")
	var full *history.QuotaExceeded
	n := 0
	for ; ; n++ {
		b := batch("words")
		b.Key = fmt.Sprint(n)
		if _, err = l.Append(t.Context(), b); err != nil {
			break
		}
	}
	if !errors.As(err, &full) || n < 2 {
		t.Fatalf("append %d: %v", n, err)
	}
	if got := testutil.ToFloat64(s.metrics.refusals.WithLabelValues("bytes")); got != 1 {
		t.Errorf("%v refusals are counted, want 1", got)
	}
	if got := texts(t, l); len(got) != n {
		t.Errorf("%d messages are read, want %d", len(got), n)
	}
	again := batch("words")
	again.Key = "0"
	if r, err := l.Append(t.Context(), again); err != nil || !r.Replayed {
		t.Errorf("what was sent before: %+v, %v", r, err)
	}
	if _, err := s.Log(bob, "a").Append(t.Context(), batch(strings.Repeat("bob's ", 300))); err != nil {
		t.Errorf("another caller: %v", err)
	}
	for range 3 {
		if _, err := l.Rewind(t.Context(), history.Rewind{Through: 1}); err != nil {
			t.Errorf("a rewind: %v", err)
		}
	}
	exact(t, "full", s, fsys, ann)
	if err := importing(history.Replace)(t, l); err != nil {
		t.Errorf("an import that is smaller than what it replaces: %v", err)
	}
	if err := l.Clear(t.Context()); err != nil {
		t.Errorf("a clear: %v", err)
	}
	if _, err := l.Append(t.Context(), batch("words")); err != nil {
		t.Errorf("after a clear: %v", err)
	}
	exact(t, "after a clear", s, fsys, ann)
}

// TestQuotaRewindsAreNoWayAroundIt rewinds until that is refused, too.
func TestQuotaRewindsAreNoWayAroundIt(t *testing.T) {
	t.Parallel()
	fsys := crashfs.New()
	s := openWith(t, fsys, Quota{})
	if _, err := s.Log(ann, "a").Append(t.Context(), batch(slices.Repeat([]string{"x"}, 1000)...)); err != nil {
		t.Fatal(err)
	}
	_ = s.Close()
	limit := onDiskOf(fsys, ann).bytes
	s = openWith(t, fsys, Quota{Bytes: limit})
	for n := range 1000 {
		_, err := s.Log(ann, "a").Rewind(t.Context(), history.Rewind{Through: int64(999 - n)})
		if over, full := errors.AsType[*history.QuotaExceeded](err); full && n > 20 && over.Limit == limit {
			break
		}
		if err != nil {
			t.Fatalf("rewind %d: %v", n, err)
		}
	}
	if w := exact(t, "rewound often", s, fsys, ann); w.bytes > limit+overdraft || w.bytes < limit+overdraft-2000 {
		t.Errorf("%d bytes are there, of %d and %d", w.bytes, limit, overdraft)
	}
	if err := s.Log(ann, "a").Clear(t.Context()); err != nil {
		t.Error(err)
	}
}

// TestQuotaIsNotPassedTogether has many append at once, to conversations of their own and
// to shared ones, where there is room for some.
func TestQuotaIsNotPassedTogether(t *testing.T) {
	t.Parallel()
	one := func() int64 {
		fsys := crashfs.New()
		s := openWith(t, fsys, Quota{})
		if _, err := s.Log(ann, "c00").Append(t.Context(), batch("the same size")); err != nil {
			t.Fatal(err)
		}
		return onDiskOf(fsys, ann).bytes
	}()
	fsys := crashfs.New()
	s, err := Open(Options{FS: fsys, NewID: safeIDs(), Now: func() time.Time { return time.Unix(1_800_000_000, 0) }, Quota: Quota{Bytes: 20*one + one/2}})
	if err != nil {
		t.Fatal(err)
	}
	const all = 60
	var went, arrived atomic.Int64
	var wg sync.WaitGroup
	settled := make(chan struct{}) // closed when each is refused, or about to write
	arrive := func() {
		if arrived.Add(1) == all {
			close(settled)
		}
	}
	fsys.FailWhen(func(op crashfs.Op) error {
		if op.Kind == "WriteAt" {
			arrive()
			<-settled
		}
		return nil
	})
	for i := range all {
		wg.Go(func() {
			_, err := s.Log(ann, fmt.Sprintf("c%02d", i)).Append(t.Context(), batch("the same size"))
			if _, full := errors.AsType[*history.QuotaExceeded](err); full {
				arrive()
			} else if err != nil {
				t.Errorf("append %d: %v", i, err)
			} else {
				went.Add(1)
			}
		})
	}
	wg.Wait()
	if w := exact(t, "many at once", s, fsys, ann); went.Load() != 20 || w.bytes != 20*one {
		t.Errorf("%d of 60 went through, want 20; %d bytes are there, of %d", went.Load(), w.bytes, 20*one)
	}
}

// TestQuotaRefusesOneOfAGroup has three appends share a write, where there is no room for
// the second. Nothing of that may be in what the third finds.
func TestQuotaRefusesOneOfAGroup(t *testing.T) {
	t.Parallel()
	for _, conversation := range []string{"a", "new"} {
		fsys := newBook(t, 2).closed.Kill()
		s, err := Open(Options{FS: fsys, NewID: counterIDs(), SegmentBytes: 1500, Quota: Quota{Bytes: onDiskOf(fsys, ann).bytes + 6000}})
		if err != nil {
			t.Fatal(err)
		}
		big := history.Batch{Key: "big", Fold: everyThird{}, Messages: []history.Message{
			user("a"), user("b"), user("c"), user("d"), shown(strings.Repeat("x", 4000), []byte(strings.Repeat("picture", 300)))}}
		first, third := batch("first"), batch("third")
		first.Key, third.Key = "first", "third"
		var group []*pending
		for _, b := range []history.Batch{first, big, third} {
			group = append(group, &pending{batch: b})
		}
		if conversation == "new" { // the one that is refused begins it
			group[0], group[1] = group[1], group[0]
		}
		tr, err := s.acquire(t.Context(), transcriptKey{ann, conversation})
		if err != nil {
			t.Fatal(err)
		}
		if err := tr.change.lock(t.Context()); err != nil {
			t.Fatal(err)
		}
		tr.commitGroup(group)
		tr.change.unlock()
		s.release(tr)
		for _, p := range group {
			if _, full := errors.AsType[*history.QuotaExceeded](p.err); full != (p.batch.Key == "big") || !full && p.err != nil {
				t.Errorf("%s: %s: %v", conversation, p.batch.Key, p.err)
			}
		}
		exact(t, conversation, s, fsys, ann)
		small := batch("small")
		small.Key = "big"
		if r, err := s.Log(ann, conversation).Append(t.Context(), small); err != nil || r.Replayed {
			t.Errorf("%s: the key of what was refused: %+v, %v", conversation, r, err)
		}
		_ = s.Close()
		fsys = fsys.Crash(rng(1))
		if got := strings.Join(texts(t, mustOpen(t, fsys).Log(ann, conversation)), " "); !strings.HasSuffix(got, ":first 4:third 5:small") &&
			got != "1:first 2:third 3:small" {
			t.Errorf("%s holds %q", conversation, got)
		}
		mustCheck(t, fsys)
	}
}

// TestQuotaStopsAnImportEarly has a document without an end.
func TestQuotaStopsAnImportEarly(t *testing.T) {
	t.Parallel()
	for _, mode := range []history.ImportMode{history.Create, history.Replace} {
		fsys := newBook(t, 2).closed.Kill()
		s := openWith(t, fsys, Quota{Bytes: 100_000})
		taken := 0
		endless := iter.Seq2[history.Message, error](func(yield func(history.Message, error) bool) {
			for taken = range 1 << 20 {
				if !yield(shown(strings.Repeat("x", 1000), []byte(fmt.Sprint("picture ", taken))), nil) {
					return
				}
			}
		})
		_, err := s.Log(ann, "new").Import(t.Context(), history.Import{Mode: mode, Messages: endless})
		if _, full := errors.AsType[*history.QuotaExceeded](err); !full || taken > 100 {
			t.Errorf("%s: after %d messages: %v", mode, taken, err)
		}
		exact(t, string(mode), s, fsys, ann)
	}
}
