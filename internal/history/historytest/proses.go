package historytest

import (
	"errors"
	"fmt"
	"iter"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"historyd/internal/history"
)

var proses = []one{
	{"a prose is handed to the next fold, once", proseTaken},
	{"a prose changes nothing that a reader sees", proseUnseen},
	{"a prose that is not of the newest fold is refused", proseRefused},
	{"a newer prose takes the place of one that was not taken", proseReplaced},
	{"a rewind voids the prose of a fold that it takes back, and no other", proseRewound},
	{"an import that extends takes the prose, one that replaces does not", proseImported},
	{"appends and proses at once are in some order", prosesAtOnce},
	{"any proses, folds, rewinds and restarts behave like a list", prosesLikeAList},
}

// writing is a folder that folds all but the last two messages once there are five, and
// builds on a prose.
type writing struct {
	t     tb
	given *history.Prose // with the last call
	last  *history.Summary
}

func (f *writing) Due(_, after history.Window) bool { return after.Messages >= 5 }

func (f *writing) Fold(prev *history.Summary, window iter.Seq2[history.Message, error]) (*history.Summary, error) {
	var next history.Summary
	f.given = nil
	if prev != nil {
		next = *prev
		next.Lines = slices.Clone(prev.Lines)
		f.given = prev.Next
	}
	next.Source = "toy"
	if p := next.Next; p != nil {
		if p.ThroughSeq != next.ThroughSeq {
			f.t.Errorf("a prose through %d is handed with a summary through %d", p.ThroughSeq, next.ThroughSeq)
		}
		next.Text, next.TextSeq, next.Model, next.Lines = p.Text, p.ThroughSeq, p.Model, nil
	}
	var msgs []history.Message
	for m, err := range window {
		if err != nil {
			return nil, err
		}
		msgs = append(msgs, m)
	}
	if len(msgs) < 3 {
		return nil, errors.New("too few")
	}
	for _, m := range msgs[:len(msgs)-2] {
		next.Lines = append(next.Lines, fmt.Sprint(m.Seq))
		next.ThroughSeq, next.At = m.Seq, m.At
		next.Messages++
		next.Turns++
	}
	own := next
	own.Next = nil
	f.last = &own
	return &next, nil // with Next: an engine keeps none
}

func proseOf(text string, s *history.Summary) history.Prose {
	return history.Prose{
		Text: text, Model: "m", ThroughSeq: s.ThroughSeq, Turns: s.Turns, Messages: s.Messages,
		InputHash: "ab12", InputChars: 7, At: time.Date(2026, 11, 30, 4, 5, 6, 7000, time.UTC),
	}
}

// written appends n messages one by one, under a folder, and returns the state.
func written(t tb, l history.Log, f history.Folder, n int) history.State {
	t.Helper()
	for i := range n {
		b := said(fmt.Sprint("m", i))
		b.Fold = f
		before := mustState(t, l).Summary
		r := mustAppend(t, l, b)
		if folded := !cmp.Equal(before, mustState(t, l).Summary); r.Folded != folded {
			t.Errorf("append %d: the receipt says folded %t, the state %t", i, r.Folded, folded)
		}
	}
	return mustState(t, l)
}

func mustSummarise(t tb, l history.Log, p history.Prose) {
	t.Helper()
	if err := l.Summarise(background, mustState(t, l).Epoch, p); err != nil {
		t.Fatalf("Summarise through %d: %v", p.ThroughSeq, err)
	}
}

func wantProse(t tb, l history.Log, want *history.Prose) {
	t.Helper()
	v := mustView(t, l)
	defer v.Close()
	for what, got := range map[string]*history.Prose{"state": mustState(t, l).Prose, "view": v.State().Prose} {
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatalf("the prose recorded (-) and in the %s (+):\n%s", what, diff)
		}
	}
}

func proseTaken(t *testing.T, e Engine) {
	l := e.Log("ann", "default")
	f := &writing{t: t}
	s := written(t, l, f, 5)
	for round := range 4 {
		p := proseOf(fmt.Sprint("words of round ", round, " \"<\u2028"), s.Summary)
		mustSummarise(t, l, p)
		for i := range 2 {
			wantProse(t, l, &p)
			reopen(t, e)
			l = e.Log("ann", "default")
			s = written(t, l, f, 1)
			if i == 0 && cmp.Equal(s.Summary.Text, p.Text) {
				t.Fatal("the prose took effect without a fold")
			}
		}
		for tries := 0; s.Prose != nil && tries < 5; tries++ {
			s = written(t, l, f, 1)
		}
		if f.given == nil || s.Summary.Text != p.Text || s.Summary.TextSeq != p.ThroughSeq || s.Summary.Model != "m" || len(s.Summary.Lines) != 3 {
			t.Fatalf("round %d: %+v was handed, the summary is %+v", round, f.given, s.Summary)
		}
		for range 2 {
			if diff := cmp.Diff(f.last, mustState(t, l).Summary); diff != "" {
				t.Fatalf("the summary made (-) and in the state (+):\n%s", diff)
			}
			wantProse(t, l, nil)
			reopen(t, e)
			l = e.Log("ann", "default")
		}
		if s = written(t, l, f, 3); f.given != nil {
			t.Fatalf("%+v is handed again", f.given)
		}
	}
}

func proseUnseen(t *testing.T, e Engine) {
	l := e.Log("ann", "default")
	k := keyed("k", "a", "b", "c", "d", "e")
	k.Fold = &writing{t: t}
	first := mustAppend(t, l, k)
	before := mustState(t, l)
	p := proseOf("words", before.Summary)
	for range 3 {
		mustSummarise(t, l, p)
	}
	for range 2 {
		after := mustState(t, l)
		if after.Bytes <= before.Bytes {
			t.Errorf("the record had %d bytes and has %d", before.Bytes, after.Bytes)
		}
		after.Bytes, after.Prose = before.Bytes, nil
		if diff := cmp.Diff(before, after); diff != "" {
			t.Errorf("before (-) and after (+):\n%s", diff)
		}
		wantTexts(t, l, "a", "b", "c", "d", "e")
		if again := mustAppend(t, l, keyed("k", "a", "b", "c", "d", "e")); !again.Replayed || again.Folded || again.LastSeq != first.LastSeq {
			t.Errorf("the append with its key again: %+v", again)
		}
		reopen(t, e)
		l = e.Log("ann", "default")
	}
	if r := mustAppend(t, l, said("f")); r.FirstSeq != 6 {
		t.Errorf("the next message is %d", r.FirstSeq)
	}
	wantTexts(t, l, "a", "b", "c", "d", "e", "f")
}

func proseRefused(t *testing.T, e Engine) {
	l := e.Log("ann", "default")
	f := &writing{t: t}
	refused := func(what, epoch string, through int64) {
		t.Helper()
		names, before := e.Names(), mustState(t, l)
		p := proseOf("words", &history.Summary{ThroughSeq: through})
		wantError(t, what, l.Summarise(background, epoch, p), history.ErrPrecondition)
		if diff := cmp.Diff(before, mustState(t, l)); diff != "" {
			t.Errorf("%s changed the state:\n%s", what, diff)
		}
		if !before.Exists() && !slices.Equal(names, e.Names()) {
			t.Errorf("%s made something: %q", what, e.Names())
		}
	}
	refused("a prose of nothing", "", 0)
	refused("a prose of nothing with an epoch", "0011223344556677", 3)
	s := written(t, l, nil, 5)
	refused("a prose without a fold", s.Epoch, 0)
	refused("a prose without a fold through the last message", s.Epoch, 5)
	s = written(t, l, f, 1)
	for through := range s.LastSeq + 2 {
		if through != s.Summary.ThroughSeq {
			refused(fmt.Sprint("a prose through ", through), s.Epoch, through)
		}
	}
	refused("a prose of another epoch", "0011223344556677", s.Summary.ThroughSeq)
	if err := l.Summarise(background, s.Epoch, proseOf("", s.Summary)); err == nil || mustState(t, l).Prose != nil {
		t.Errorf("a prose without words: %v", err)
	}
	old := s.Summary.ThroughSeq
	s = written(t, l, f, 3)
	refused("a prose of the fold before", s.Epoch, old)
	mustRewind(t, l, s.LastSeq-1)
	refused("a prose from before a rewind", s.Epoch, s.Summary.ThroughSeq)
	mustClear(t, l)
	refused("a prose from before a clear", s.Epoch, s.Summary.ThroughSeq)
	again := written(t, l, f, 9)
	refused("a prose of the life before", s.Epoch, again.Summary.ThroughSeq)
	if mustState(t, l).Prose != nil {
		t.Error("something was recorded")
	}
}

func proseReplaced(t *testing.T, e Engine) {
	l := e.Log("ann", "default")
	f := &writing{t: t}
	s := written(t, l, f, 5)
	for _, text := range []string{"one", "two", "three"} {
		p := proseOf(text, s.Summary)
		mustSummarise(t, l, p)
		wantProse(t, l, &p)
	}
	reopen(t, e)
	l = e.Log("ann", "default")
	if s = written(t, l, f, 3); s.Summary.Text != "three" {
		t.Errorf("the summary is %+v", s.Summary)
	}
}

func proseRewound(t *testing.T, e Engine) {
	l := e.Log("ann", "default")
	f := &writing{t: t}
	first := written(t, l, f, 5).Summary
	mustSummarise(t, l, proseOf("first", first))
	s := written(t, l, f, 4) // folded through 6, with the words
	if s.Summary.Text != "first" || s.Summary.ThroughSeq != 6 {
		t.Fatalf("the summary is %+v", s.Summary)
	}
	p := proseOf("second", s.Summary)
	mustSummarise(t, l, p)
	mustRewind(t, l, 8)
	for range 2 {
		wantProse(t, l, &p)
		if diff := cmp.Diff(s.Summary, mustState(t, l).Summary); diff != "" {
			t.Fatalf("a rewind behind the fold changed the summary:\n%s", diff)
		}
		reopen(t, e)
		l = e.Log("ann", "default")
	}
	mustRewind(t, l, 7)
	for range 2 {
		wantProse(t, l, nil)
		if diff := cmp.Diff(first, mustState(t, l).Summary); diff != "" {
			t.Fatalf("the summary is not the one of before:\n%s", diff)
		}
		reopen(t, e)
		l = e.Log("ann", "default")
	}
	if s = written(t, l, f, 3); s.Summary.Text != "" || f.given != nil {
		t.Errorf("a void prose was taken: %+v", s.Summary)
	}
}

func proseImported(t *testing.T, e Engine) {
	l := e.Log("ann", "default")
	f := &writing{t: t}
	s := written(t, l, f, 5)
	mustSummarise(t, l, proseOf("words", s.Summary))
	r := mustImport(t, l, history.Import{Mode: history.Extend, Messages: all(turnsFrom(0, 5)...), Fold: f})
	s = mustState(t, l)
	if !r.Folded || s.Summary.Text != "words" || s.Summary.TextSeq != 3 || s.Prose != nil {
		t.Errorf("extended: %+v, %+v", r, s.Summary)
	}
	p := proseOf("more", s.Summary)
	mustSummarise(t, l, p)
	mustImport(t, l, history.Import{Mode: history.Extend, Messages: all(person("alone"))})
	wantProse(t, l, &p)
	mustImport(t, l, history.Import{Mode: history.Replace, Messages: all(turnsFrom(0, 5)...), Fold: f})
	wantProse(t, l, nil)
	wantError(t, "a prose of what was replaced", l.Summarise(background, s.Epoch, p), history.ErrPrecondition)
	if s = mustState(t, l); s.Summary == nil || s.Summary.Text != "" {
		t.Errorf("replaced: %+v", s.Summary)
	}
}

func prosesAtOnce(t *testing.T, e Engine) {
	l := e.Log("ann", "default")
	f := newKeeping(t)
	f.loose = true
	epoch := written(t, l, f, 5).Epoch
	before := content(t, l)
	together(60, func(i int) {
		if i%6 == 0 {
			s := mustState(t, l)
			err := l.Summarise(background, epoch, proseOf(fmt.Sprint("words ", i), s.Summary))
			if err != nil && !errors.Is(err, history.ErrPrecondition) {
				t.Errorf("Summarise: %v", err)
			}
			return
		}
		b := said(fmt.Sprint(i), fmt.Sprint(i, "+"))
		b.Fold = f
		if _, err := l.Append(background, b); err != nil {
			t.Errorf("Append: %v", err)
		}
	})
	after := content(t, l)
	if diff := cmp.Diff(before, after[:len(before)]); diff != "" || len(after) != len(before)+100 {
		t.Fatalf("%d messages, and of those before:\n%s", len(after), diff)
	}
	for i := len(before); i < len(after); i += 2 {
		if textOf(after[i])+"+" != textOf(after[i+1]) {
			t.Errorf("%q is followed by %q", textOf(after[i]), textOf(after[i+1]))
		}
	}
	state := mustState(t, l)
	if p := state.Prose; p != nil && p.ThroughSeq != state.Summary.ThroughSeq {
		t.Errorf("the prose goes through %d, the fold through %d", p.ThroughSeq, state.Summary.ThroughSeq)
	}
	reopen(t, e)
	if diff := cmp.Diff(state, mustState(t, e.Log("ann", "default"))); diff != "" {
		t.Errorf("after a restart:\n%s", diff)
	}
}

// prosesLikeAList models a conversation by the states that it has been in.
func prosesLikeAList(t *testing.T, e Engine) {
	conversation := 0
	rapid.Check(t, func(t *rapid.T) {
		conversation++
		name := fmt.Sprint("c", conversation)
		l := e.Log("ann", name)
		f := &writing{t: t}
		var prose *history.Prose
		var stale []history.State
		texts := 0
		t.Repeat(map[string]func(*rapid.T){
			"append": func(t *rapid.T) {
				f.t = t
				b := said("a", "b")
				if rapid.IntRange(0, 3).Draw(t, "fold") > 0 {
					b.Fold = f
				}
				if r := mustAppend(t, l, b); !r.Folded {
					return
				}
				if diff := cmp.Diff(prose, f.given); diff != "" {
					t.Fatalf("the prose recorded (-) and handed (+):\n%s", diff)
				}
				if diff := cmp.Diff(f.last, mustState(t, l).Summary); diff != "" {
					t.Fatalf("the summary made (-) and in the state (+):\n%s", diff)
				}
				prose = nil
			},
			"prose": func(t *rapid.T) {
				s := mustState(t, l)
				if s.Summary == nil {
					t.Skip("nothing is folded")
				}
				texts++
				p := proseOf(fmt.Sprint("text ", texts), s.Summary)
				mustSummarise(t, l, p)
				prose, stale = &p, append(stale, s)
			},
			"stale prose": func(t *rapid.T) {
				if len(stale) == 0 {
					t.Skip("none was there")
				}
				old := rapid.SampledFrom(stale).Draw(t, "state")
				s := mustState(t, l)
				err := l.Summarise(background, old.Epoch, proseOf("stale", old.Summary))
				if s.Summary != nil && s.Epoch == old.Epoch && s.Summary.ThroughSeq == old.Summary.ThroughSeq {
					p := proseOf("stale", old.Summary)
					prose = &p
				} else if !errors.Is(err, history.ErrPrecondition) {
					t.Fatalf("a stale prose: %v", err)
				}
			},
			"rewind": func(t *rapid.T) {
				s := mustState(t, l)
				if s.LastSeq == 0 {
					t.Skip("nothing is there")
				}
				stand := append([]int64{0}, standing(t, l)...)
				mustRewind(t, l, rapid.SampledFrom(stand[max(0, len(stand)-8):]).Draw(t, "through"))
				if !cmp.Equal(s.Summary, mustState(t, l).Summary) {
					prose = nil
				}
			},
			"restart": func(t *rapid.T) {
				if rapid.IntRange(0, 3).Draw(t, "luck") > 0 {
					t.Skip("not this time")
				}
				reopen(t, e)
				l = e.Log("ann", name)
			},
			"": func(t *rapid.T) { wantProse(t, l, prose) },
		})
	})
}
