package store

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"sync/atomic"
	"testing"

	"pgregory.net/rapid"

	"historyd/internal/durable"
	"historyd/internal/durable/crashfs"
	"historyd/internal/history"
)

// metered counts the bytes that are read.
type metered struct {
	durable.FS
	read atomic.Int64
}

func (m *metered) Create(name string) (durable.File, error) {
	f, err := m.FS.Create(name)
	return meteredFile{f, m}, err
}

func (m *metered) Open(name string, write bool) (durable.File, error) {
	f, err := m.FS.Open(name, write)
	if err != nil {
		return nil, err
	}
	return meteredFile{f, m}, nil
}

type meteredFile struct {
	durable.File
	m *metered
}

func (f meteredFile) ReadAt(p []byte, off int64) (int, error) {
	n, err := f.File.ReadAt(p, off)
	f.m.read.Add(int64(n))
	return n, err
}

// lateResults appends n calls one by one, then a result for each, as a daemon does, and
// returns how many bytes the searches for the calls have read.
func lateResults(t *testing.T, n int) int64 {
	t.Helper()
	disk := &metered{FS: crashfs.New()}
	s := mustOpen(t, disk)
	defer s.Close()
	l := s.Log(ann, "a")
	for i := range n {
		add(t, l, callOf(fmt.Sprint("call-", i), "f"))
	}
	before := disk.read.Load()
	for i := range n {
		id := fmt.Sprint("call-", i)
		if found, err := l.FindCalls(t.Context(), id, false); err != nil || len(found) != 1 {
			t.Fatalf("FindCalls(%s) = %v, %v", id, found, err)
		}
		add(t, l, answerTo(id, "late"))
	}
	return disk.read.Load() - before
}

func TestASearchForAnOldCallReadsNoMoreInALongerRecord(t *testing.T) {
	few, many := lateResults(t, 1000)/1000, lateResults(t, 4000)/4000
	t.Logf("%d bytes a search over 1000 calls, %d over 4000", few, many)
	if many > 2*few {
		t.Errorf("a search in a record four times as long reads %d bytes, %d in the short one", many, few)
	}
}

// TestSearchesThatEndHalfWayLeaveNothingToReadAgain looks for calls right behind what an
// earlier search has read, so that none of the searches gets as far as that.
func TestSearchesThatEndHalfWayLeaveNothingToReadAgain(t *testing.T) {
	read := func(n int) int64 {
		disk := &metered{FS: crashfs.New()}
		s := mustOpen(t, disk)
		defer s.Close()
		l := s.Log(ann, "a")
		filling := user(strings.Repeat("and so on ", 20))
		for range 200 {
			add(t, l, filling)
		}
		if _, err := l.FindCalls(t.Context(), "none", false); !errors.Is(err, history.ErrNotFound) {
			t.Fatalf("FindCalls: %v", err)
		}
		for i := range n {
			add(t, l, callOf(fmt.Sprint("call-", i), "f"))
		}
		before := disk.read.Load()
		for i := range n {
			if found, err := l.FindCalls(t.Context(), fmt.Sprint("call-", i), false); err != nil || len(found) != 1 {
				t.Fatalf("FindCalls: %v, %v", found, err)
			}
		}
		return disk.read.Load() - before
	}
	if few, many := read(1000)/1000, read(4000)/4000; many > 2*few {
		t.Errorf("a search among four times as many calls reads %d bytes, %d among the few", many, few)
	}
}

// TestWhatIsKnownOfARecordChangesNoSearch draws records and searches: each finds the same
// as one that knows nothing of the record.
func TestWhatIsKnownOfARecordChangesNoSearch(t *testing.T) {
	filling := strings.Repeat("and so on ", 1000)
	rapid.Check(t, func(rt *rapid.T) {
		s, err := Open(Options{FS: crashfs.New(), NewID: safeIDs(), SegmentBytes: rapid.SampledFrom([]int64{0, 100_000}).Draw(rt, "segments")})
		if err != nil {
			rt.Fatal(err)
		}
		defer s.Close()
		l := s.Log(ann, "a")
		ids := rapid.SampledFrom([]string{"a", "b", `"`, `\`, "é", "c\\\"d", "none"})
		for range rapid.IntRange(1, 60).Draw(rt, "steps") {
			id := ids.Draw(rt, "id")
			switch rapid.SampledFrom([]string{"call", "answer", "fill", "find", "find", "find"}).Draw(rt, "what") {
			case "call":
				add(t, l, callOf(id, "f"), callOf(ids.Draw(rt, "other"), "g"))
			case "answer":
				add(t, l, answerTo(id, id))
			case "fill":
				for range rapid.IntRange(1, 12).Draw(rt, "much") {
					add(t, l, user(filling))
				}
			default:
				sameSearch(rt, s, l, id, rapid.Bool().Draw(rt, "all"))
			}
		}
	})
}

func sameSearch(t *rapid.T, s *Store, l history.Log, id string, all bool) {
	got, gotErr := l.FindCalls(context.Background(), id, all)
	tr, err := s.acquire(context.Background(), l.(*log).key)
	if err != nil {
		t.Fatal(err)
	}
	defer s.release(tr)
	known := tr.trail.Swap(nil)
	want, wantErr := l.FindCalls(context.Background(), id, all)
	tr.trail.Store(known)
	if known != nil {
		for i := 1; i < len(known.stretches); i++ {
			if a, b := known.stretches[i-1], known.stretches[i]; a.end.compare(b.begin) > 0 {
				t.Fatalf("a stretch up to %v lies over one from %v", a.end, b.begin)
			}
		}
	}
	if !reflect.DeepEqual(got, want) || !errors.Is(gotErr, wantErr) && !errors.Is(wantErr, gotErr) {
		t.Fatalf("FindCalls(%q, %v) = %v, %v; want %v, %v", id, all, got, gotErr, want, wantErr)
	}
}

func TestWhatIsKnownOfRecordsIsBounded(t *testing.T) {
	s := mustOpen(t, crashfs.New())
	defer s.Close()
	var calls history.Message
	for i := range 5000 {
		calls.Content = append(calls.Content, callOf(fmt.Sprint("call-", i), "f").Content...)
	}
	calls.Role, calls.Status = history.Assistant, history.Complete
	known := func(name string) (marks, stretches int) {
		tr, err := s.acquire(t.Context(), s.Log(ann, name).(*log).key)
		if err != nil {
			t.Fatal(err)
		}
		defer s.release(tr)
		if tr := tr.trail.Load(); tr != nil {
			for _, s := range tr.stretches {
				marks += len(s.marks)
			}
			stretches = len(tr.stretches)
		}
		return marks, stretches
	}
	trails := 0
	for c := range maxTrails + 3 {
		l := s.Log(ann, fmt.Sprint("c", c))
		add(t, l, user("short"))
		_, _ = l.FindCalls(t.Context(), "none", false)
		if _, n := known(fmt.Sprint("c", c)); n > 0 {
			t.Fatal("of a short record something is kept")
		}
		for range 15 {
			add(t, l, calls)
		}
		if _, err := l.FindCalls(t.Context(), "none", false); !errors.Is(err, history.ErrNotFound) {
			t.Fatalf("FindCalls: %v", err)
		}
		marks, _ := known(fmt.Sprint("c", c))
		if marks == 0 || marks > maxMarks {
			t.Errorf("%d marks are kept, at most %d", marks, maxMarks)
		}
	}
	for c := range maxTrails + 3 {
		if _, n := known(fmt.Sprint("c", c)); n > 0 {
			trails++
		}
	}
	if trails != maxTrails {
		t.Errorf("%d trails are kept, want %d", trails, maxTrails)
	}
}
