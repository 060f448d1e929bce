package historytest

import (
	"errors"
	"fmt"
	"iter"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"historyd/internal/history"
)

var folds = []one{
	{"the window is what is not folded, the batch included", exactWindow},
	{"batches at once fold in order", foldsAtOnce},
	{"imports fold as they go", foldsInImports},
	{"the summary survives a restart as it was", summaryAfterRestart},
	{"a folder that fails or panics fails no append", badFolders},
	{"a summary that covers nothing more, or too much, is not taken", nonsense},
	{"a folder may stop reading", lazyFolder},
	{"what was folded can still be read", foldedIsKept},
}

// folder is a toy: once batch turns more than keep are in the window it folds all
// but the last keep. It holds the engine to the promises made to folders.
type folder struct {
	t           tb
	keep, batch int64

	mu      sync.Mutex // guards what follows
	last    *history.Summary
	due     []history.Window // after, of each call
	through int64            // the newest seq seen
}

func newFolder(t tb, keep, batch int64) *folder { return &folder{t: t, keep: keep, batch: batch} }

func (f *folder) Due(before, after history.Window) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.due = append(f.due, after)
	if before.Turns > after.Turns || before.Messages > after.Messages || after.Turns < 0 || before.Turns < 0 {
		f.t.Errorf("Due(%+v, %+v)", before, after)
	}
	return after.Turns >= f.keep+f.batch
}

func (f *folder) Fold(prev *history.Summary, window iter.Seq2[history.Message, error]) (*history.Summary, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if diff := cmp.Diff(f.last, prev); diff != "" {
		f.t.Errorf("the summary before (-) and the one handed in (+):\n%s", diff)
	}
	next := history.Summary{Source: "toy"}
	if prev != nil {
		next = *prev
		next.Lines = append([]string(nil), prev.Lines...)
	}
	var turns [][]history.Message
	seq := next.ThroughSeq
	for m, err := range window {
		if err != nil {
			return nil, err
		}
		if seq++; m.Seq != seq {
			f.t.Errorf("the window has seq %d where %d is due", m.Seq, seq)
			return nil, errors.New("a gap")
		}
		if len(turns) == 0 || m.StartsTurn() {
			turns = append(turns, nil)
		}
		turns[len(turns)-1] = append(turns[len(turns)-1], m)
	}
	f.through = seq
	if w := f.due[len(f.due)-1]; w.Messages != seq-next.ThroughSeq {
		f.t.Errorf("the window was said to be %+v and has %d messages", w, seq-next.ThroughSeq)
	}
	for _, turn := range turns[:max(0, int64(len(turns))-f.keep)] {
		last := turn[len(turn)-1]
		next.Lines = append(next.Lines, strings.Join(textsOf(turn), "+"))
		next.Turns++
		next.Messages += int64(len(turn))
		next.ThroughSeq, next.At = last.Seq, last.At
	}
	f.last = &next
	return &next, nil
}

func exactWindow(t *testing.T, e Engine) {
	l := e.Log("ann", "default")
	f := newFolder(t, 2, 3)
	for i := range 60 {
		b := said(fmt.Sprint("q", i))
		for j := range i % 4 {
			b.Messages = append(b.Messages, answer(fmt.Sprintf("a%d.%d", i, j)))
		}
		b.Fold = f
		if i%7 == 3 {
			b.Fold = nil // the next that folds sees these, too
		}
		before := f.last
		r := mustAppend(t, l, b)
		if f.last != before && f.through != r.LastSeq {
			t.Errorf("append %d: the window ended at %d, the batch at %d", i, f.through, r.LastSeq)
		}
		s := mustState(t, l)
		if diff := cmp.Diff(f.last, s.Summary); diff != "" {
			t.Fatalf("append %d: the summary made (-) and in the state (+):\n%s", i, diff)
		}
		if i%11 == 10 {
			reopen(t, e)
			l = e.Log("ann", "default")
		}
	}
	if f.last == nil || f.last.Turns < 55 || len(f.last.Lines) != int(f.last.Turns) || f.last.Lines[3] != "q3+a3.0+a3.1+a3.2" {
		t.Errorf("after 60 turns the summary is %+v", f.last)
	}
}

func foldsAtOnce(t *testing.T, e Engine) {
	l := e.Log("ann", "default")
	f := newFolder(t, 3, 2)
	together(80, func(i int) {
		b := said(fmt.Sprint("q", i))
		b.Messages = append(b.Messages, answer(fmt.Sprint("a", i)))
		b.Fold = f
		if _, err := l.Append(background, b); err != nil {
			t.Errorf("Append: %v", err)
		}
	})
	reopen(t, e)
	l = e.Log("ann", "default")
	s := mustState(t, l)
	if diff := cmp.Diff(f.last, s.Summary); diff != "" {
		t.Fatalf("the summary made (-) and in the state (+):\n%s", diff)
	}
	if s.Summary.Turns < 76 || s.Summary.Turns > 78 {
		t.Errorf("%d of 80 turns are folded, want all but 3 or 4", s.Summary.Turns)
	}
	msgs := content(t, l)
	for i, line := range s.Summary.Lines {
		if want := textOf(msgs[2*i]) + "+" + textOf(msgs[2*i+1]); line != want {
			t.Errorf("line %d is %q, want %q", i, line, want)
		}
	}
}

// turnsFrom makes n turns of three messages.
func turnsFrom(first, n int) (msgs []history.Message) {
	for i := first; i < first+n; i++ {
		id := fmt.Sprint("c", i)
		msgs = append(msgs, person(fmt.Sprint("q", i)), call(id, "search"), answer(fmt.Sprint("a", i)))
	}
	return msgs
}

func foldsInImports(t *testing.T, e Engine) {
	l := e.Log("ann", "default")
	f := newFolder(t, 5, 4)
	total := int64(0)
	check := func(what string) {
		t.Helper()
		s := mustState(t, l)
		if diff := cmp.Diff(f.last, s.Summary); diff != "" {
			t.Errorf("%s: the summary made (-) and in the state (+):\n%s", what, diff)
		}
		if s.Turns != total || s.Summary == nil || total-s.Summary.Turns < 5 || total-s.Summary.Turns > 150 || s.Summary.ThroughSeq != 3*s.Summary.Turns {
			t.Errorf("%s: %d turns, summary %+v", what, s.Turns, s.Summary)
		}
	}
	mustImport(t, l, history.Import{Mode: history.Create, Messages: all(turnsFrom(0, 400)...), Fold: f})
	total = 400
	check("a new record")
	mustImport(t, l, history.Import{Mode: history.Extend, Messages: all(turnsFrom(400, 300)...), Fold: f})
	total = 700
	check("an extended one")
	b := history.Batch{Messages: turnsFrom(700, 10), Fold: f}
	mustAppend(t, l, b)
	total = 710
	check("an append after it")
	reopen(t, e)
	l = e.Log("ann", "default")
	check("a restart")
	f.last = nil
	mustImport(t, l, history.Import{Mode: history.Replace, Messages: all(turnsFrom(0, 200)...), Fold: f})
	total = 200
	check("a replaced one")
}

func summaryAfterRestart(t *testing.T, e Engine) {
	l := e.Log("ann", "default")
	f := newFolder(t, 1, 1)
	b := said("a\u2028<&>\"", "b", "c")
	b.Fold = f
	mustAppend(t, l, b)
	mustAppend(t, l, said("d"))
	before := mustState(t, l)
	reopen(t, e)
	l = e.Log("ann", "default")
	if diff := cmp.Diff(before, mustState(t, l)); diff != "" {
		t.Errorf("before a restart (-) and after it (+):\n%s", diff)
	}
	v := mustView(t, l)
	defer v.Close()
	if diff := cmp.Diff(before.Summary, v.State().Summary); diff != "" {
		t.Errorf("before a restart (-) and in a view after it (+):\n%s", diff)
	}
}

// badFolder does what its fields say.
type badFolder struct {
	due  func() bool
	fold func(prev *history.Summary, window iter.Seq2[history.Message, error]) (*history.Summary, error)
}

func (f badFolder) Due(_, _ history.Window) bool { return f.due == nil || f.due() }

func (f badFolder) Fold(prev *history.Summary, window iter.Seq2[history.Message, error]) (*history.Summary, error) {
	return f.fold(prev, window)
}

func badFolders(t *testing.T, e Engine) {
	for name, f := range map[string]history.Folder{
		"error": badFolder{fold: func(*history.Summary, iter.Seq2[history.Message, error]) (*history.Summary, error) {
			return &history.Summary{ThroughSeq: 1}, errors.New("no")
		}},
		"panic":        badFolder{fold: func(*history.Summary, iter.Seq2[history.Message, error]) (*history.Summary, error) { panic("no") }},
		"panic in due": badFolder{due: func() bool { panic("no") }},
		"panic while reading": badFolder{fold: func(_ *history.Summary, window iter.Seq2[history.Message, error]) (*history.Summary, error) {
			for range window {
				panic("no")
			}
			return nil, nil
		}},
		"nothing": badFolder{fold: func(*history.Summary, iter.Seq2[history.Message, error]) (*history.Summary, error) { return nil, nil }},
	} {
		l := e.Log("ann", name)
		good := newFolder(t, 1, 1)
		for _, folder := range []history.Folder{f, good, f} {
			b := said("a", "b")
			b.Fold = folder
			mustAppend(t, l, b)
			mustImport(t, l, history.Import{Mode: history.Extend, Messages: all(person("c")), Fold: folder})
		}
		wantTexts(t, l, "a", "b", "c", "a", "b", "c", "a", "b", "c")
		if diff := cmp.Diff(good.last, mustState(t, l).Summary); diff != "" {
			t.Errorf("%s: the summary of the good folder (-) and in the state (+):\n%s", name, diff)
		}
	}
}

func nonsense(t *testing.T, e Engine) {
	l := e.Log("ann", "default")
	f := newFolder(t, 1, 1)
	b := said("a", "b", "c")
	b.Fold = f
	mustAppend(t, l, b)
	for _, through := range []int64{-1, 0, 1, 2, 99} {
		b := said("d")
		b.Fold = badFolder{fold: func(*history.Summary, iter.Seq2[history.Message, error]) (*history.Summary, error) {
			return &history.Summary{ThroughSeq: through, Lines: []string{"nonsense"}}, nil
		}}
		mustAppend(t, l, b)
		if diff := cmp.Diff(f.last, mustState(t, l).Summary); diff != "" {
			t.Errorf("a summary through %d was taken:\n%s", through, diff)
		}
	}
	reopen(t, e)
	if diff := cmp.Diff(f.last, mustState(t, e.Log("ann", "default")).Summary); diff != "" {
		t.Errorf("after a restart:\n%s", diff)
	}
}

func lazyFolder(t *testing.T, e Engine) {
	l := e.Log("ann", "default")
	due := 0
	f := badFolder{
		due: func() bool { due++; return due == 3 },
		fold: func(_ *history.Summary, window iter.Seq2[history.Message, error]) (*history.Summary, error) {
			for m, err := range window {
				return &history.Summary{ThroughSeq: m.Seq, Lines: []string{textOf(m)}, Turns: 1, Messages: 1, At: m.At}, err
			}
			return nil, errors.New("the window is empty")
		},
	}
	for _, text := range []string{"a", "b", "c"} {
		b := said(text)
		b.Fold = f
		mustAppend(t, l, b)
	}
	if s := mustState(t, l); s.Summary == nil || s.Summary.ThroughSeq != 1 || s.Summary.Lines[0] != "a" {
		t.Fatalf("summary %+v", s.Summary)
	}
	// The folder that comes next sees two turns, and what it adds.
	b := said("d")
	seen := history.Window{}
	b.Fold = dueOnly{func(_, after history.Window) { seen = after }}
	mustAppend(t, l, b)
	if want := (history.Window{Turns: 3, Messages: 3}); seen != want {
		t.Errorf("the window is %+v, want %+v", seen, want)
	}
}

// dueOnly is asked and never folds.
type dueOnly struct {
	asked func(before, after history.Window)
}

func (d dueOnly) Due(before, after history.Window) bool { d.asked(before, after); return false }

func (d dueOnly) Fold(*history.Summary, iter.Seq2[history.Message, error]) (*history.Summary, error) {
	panic("never due")
}

func foldedIsKept(t *testing.T, e Engine) {
	l := e.Log("ann", "default")
	f := newFolder(t, 1, 1)
	var want []string
	for i := range 30 {
		b := said(fmt.Sprint("q", i))
		b.Fold = f
		mustAppend(t, l, b)
		want = append(want, fmt.Sprint("q", i))
	}
	reopen(t, e)
	wantTexts(t, e.Log("ann", "default"), want...)
}
