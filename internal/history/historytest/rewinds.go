package historytest

import (
	"errors"
	"fmt"
	"iter"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"historyd/internal/history"
)

var rewinds = []one{
	{"a rewind leaves the record and marks what it ended", rewindMarks},
	{"a rewind gives another epoch and makes old versions void", rewindEpoch},
	{"a rewind that changes nothing commits nothing", rewindTwice},
	{"what cannot be rewound is refused", rewindRefused},
	{"a rewind below a fold takes the summary back", rewindBelowFold},
	{"rewound calls are found", rewoundCalls},
	{"rewound messages that an import brings count as such", importedRewound},
	{"an import that extends leaves what is rewound", extendRewound},
	{"appends and rewinds at once are in some order", rewindsAtOnce},
	{"any rewinds, folds and restarts behave like a list", rewindsLikeAList},
}

func mustRewind(t tb, l history.Log, through int64) history.Receipt {
	t.Helper()
	r, err := l.Rewind(background, history.Rewind{Through: through})
	if err != nil {
		t.Fatalf("Rewind through %d: %v", through, err)
	}
	return r
}

// standing lists the messages of a conversation that are not rewound, read both ways.
func standing(t tb, l history.Log) (seqs []int64) {
	t.Helper()
	for _, m := range content(t, l) {
		if !m.Rewound {
			seqs = append(seqs, m.Seq)
		}
	}
	v := mustView(t, l)
	defer v.Close()
	back, err := collect(v.Backward(everything), everything)
	if err != nil {
		t.Fatalf("Backward: %v", err)
	}
	var again []int64
	for _, m := range slices.Backward(back) {
		if !m.Rewound {
			again = append(again, m.Seq)
		}
	}
	if !slices.Equal(seqs, again) {
		t.Fatalf("forwards %d stand, backwards %d", seqs, again)
	}
	return seqs
}

func wantStanding(t tb, l history.Log, want ...int64) {
	t.Helper()
	if got := standing(t, l); !slices.Equal(got, want) {
		t.Fatalf("messages %d stand, want %d", got, want)
	}
}

func rewindMarks(t *testing.T, e Engine) {
	l := e.Log("ann", "default")
	mustAppend(t, l, said("a", "b", "c"))
	mustAppend(t, l, batchOf(answer("d"), person("e")))
	before := mustState(t, l)
	view := mustView(t, l)
	defer view.Close()
	r := mustRewind(t, l, 2)
	if r.LastSeq != 5 || r.Added != 0 || r.FirstSeq != 0 || r.Epoch == before.Epoch {
		t.Errorf("receipt %+v", r)
	}
	if old, err := collect(view.Records(1, everything), everything); err != nil || slices.ContainsFunc(old, func(m history.Message) bool { return m.Rewound }) {
		t.Errorf("a view of before shows %+v, %v", old, err)
	}
	for range 2 {
		wantTexts(t, l, "a", "b", "c", "d", "e")
		wantStanding(t, l, 1, 2)
		s := mustState(t, l)
		if s.LastSeq != 5 || s.Messages != 5 || s.Turns != before.Turns || s.Title != before.Title || !s.Answered || s.CreatedAt != before.CreatedAt {
			t.Errorf("State %+v, before %+v", s, before)
		}
		reopen(t, e)
		l = e.Log("ann", "default")
	}
	if r := mustAppend(t, l, said("f", "g")); r.FirstSeq != 6 {
		t.Errorf("the append after a rewind: %+v", r)
	}
	wantStanding(t, l, 1, 2, 6, 7)
	mustRewind(t, l, 6)
	wantStanding(t, l, 1, 2, 6)
	mustRewind(t, l, 2) // over what is rewound
	wantStanding(t, l, 1, 2)
	mustAppend(t, l, said("h"))
	mustRewind(t, l, 8) // nothing to do
	wantStanding(t, l, 1, 2, 8)
	mustRewind(t, l, 0)
	wantStanding(t, l)
	mustRewind(t, l, 0)
	reopen(t, e)
	l = e.Log("ann", "default")
	wantStanding(t, l)
	mustAppend(t, l, said("i"))
	wantStanding(t, l, 9)
	mustClear(t, l)
	mustAppend(t, l, said("j"))
	wantStanding(t, l, 1)
}

func rewindEpoch(t *testing.T, e Engine) {
	l := e.Log("ann", "default")
	mustAppend(t, l, said("a", "b"))
	seen := map[string]bool{mustState(t, l).Epoch: true}
	for _, through := range []int64{1, 0} {
		tag := mustState(t, l).ETag()
		match := func(etag string) bool { return etag == tag }
		r, err := l.Rewind(background, history.Rewind{Through: through, IfMatch: match})
		if err != nil || seen[r.Epoch] {
			t.Fatalf("Rewind through %d: %+v, %v", through, r, err)
		}
		seen[r.Epoch] = true
		if s := mustState(t, l); s.Epoch != r.Epoch || s.LastSeq != 2 {
			t.Fatalf("State %+v after %+v", s, r)
		}
		_, err = l.Append(background, history.Batch{Messages: said("x").Messages, IfMatch: match})
		wantError(t, "Append to the version of before", err, history.ErrPrecondition)
		_, err = l.Rewind(background, history.Rewind{Through: 0, IfMatch: match})
		wantError(t, "Rewind of the version of before", err, history.ErrPrecondition)
		epoch := r.Epoch
		reopen(t, e)
		l = e.Log("ann", "default")
		if s := mustState(t, l); s.Epoch != epoch {
			t.Fatalf("after a restart the epoch is %s, want %s", s.Epoch, epoch)
		}
	}
	r := mustAppend(t, l, keyed("k", "c"))
	mustRewind(t, l, 0)
	if again := mustAppend(t, l, keyed("k", "c")); !again.Replayed || again.FirstSeq != r.FirstSeq {
		t.Errorf("a key of before a rewind: %+v", again)
	}
}

func rewindTwice(t *testing.T, e Engine) {
	l := e.Log("ann", "default")
	mustAppend(t, l, said("a", "b", "c", "d"))
	same := func(through int64) {
		t.Helper()
		before := mustState(t, l)
		r, err := l.Rewind(background, history.Rewind{Through: through, Before: func() error { return errBad },
			IfMatch: func(etag string) bool { return etag == before.ETag() }})
		if err != nil || r.Epoch != before.Epoch || r.LastSeq != before.LastSeq || r.Added != 0 {
			t.Errorf("Rewind through %d, where it ends already: %+v, %v", through, r, err)
		}
		if diff := cmp.Diff(before, mustState(t, l)); diff != "" {
			t.Errorf("Rewind through %d changed the state:\n%s", through, diff)
		}
		_, err = l.Rewind(background, history.Rewind{Through: through, IfMatch: func(string) bool { return false }})
		wantError(t, "Rewind of another version", err, history.ErrPrecondition)
	}
	same(4)
	mustRewind(t, l, 2)
	same(2)
	reopen(t, e)
	l = e.Log("ann", "default")
	same(2)
	mustAppend(t, l, said("e"))
	same(5)
	before := mustState(t, l)
	if r := mustRewind(t, l, 2); r.Epoch == before.Epoch { // over what was said since
		t.Errorf("Rewind through 2 with another message behind it: %+v", r)
	}
	wantStanding(t, l, 1, 2)
	mustRewind(t, l, 0)
	same(0)
	wantStanding(t, l)
}

func rewindRefused(t *testing.T, e Engine) {
	l := e.Log("ann", "default")
	_, err := l.Rewind(background, history.Rewind{})
	wantError(t, "Rewind of nothing", err, history.ErrNotFound)
	mustAppend(t, l, said("a"))
	before := mustState(t, l)
	for _, through := range []int64{-1, 2, everything} {
		_, err := l.Rewind(background, history.Rewind{Through: through})
		wantError(t, fmt.Sprintf("Rewind through %d", through), err, history.ErrNoSuchMessage)
	}
	_, err = l.Rewind(background, history.Rewind{Through: 7, IfMatch: func(string) bool { return false }})
	wantError(t, "Rewind of another version", err, history.ErrPrecondition)
	if diff := cmp.Diff(before, mustState(t, l)); diff != "" {
		t.Errorf("refused rewinds changed the state: %s", diff)
	}
	mustAppend(t, l, said("b", "c", "d"))
	mustRewind(t, l, 2)
	mustAppend(t, l, said("e"))
	before = mustState(t, l)
	for _, through := range []int64{3, 4} {
		_, err := l.Rewind(background, history.Rewind{Through: through})
		wantError(t, fmt.Sprintf("Rewind through %d, which is rewound", through), err, history.ErrNoSuchMessage)
	}
	if diff := cmp.Diff(before, mustState(t, l)); diff != "" {
		t.Errorf("refused rewinds changed the state: %s", diff)
	}
	wantStanding(t, l, 1, 2, 5)
	mustClear(t, l)
	_, err = l.Rewind(background, history.Rewind{})
	wantError(t, "Rewind after a clear", err, history.ErrNotFound)
}

func rewindBelowFold(t *testing.T, e Engine) {
	l := e.Log("ann", "default")
	f := newKeeping(t)
	summaries := []*history.Summary{nil}
	for i := range 20 {
		b := said(fmt.Sprint(i + 1))
		b.Fold = f
		mustAppend(t, l, b)
		f.stand = append(f.stand, int64(i+1))
		summaries = append(summaries, mustState(t, l).Summary)
	}
	if summaries[20] == nil || summaries[20].ThroughSeq < 10 {
		t.Fatalf("the summary of 20 messages is %+v", summaries[20])
	}
	for _, through := range []int64{19, 13, 7, 4, 1, 0} {
		mustRewind(t, l, through)
		for range 2 {
			if diff := cmp.Diff(summaries[through], mustState(t, l).Summary); diff != "" {
				t.Fatalf("rewound through %d, the summary as it was (-) and as it is (+): %s", through, diff)
			}
			reopen(t, e)
			l = e.Log("ann", "default")
		}
	}
}

func rewoundCalls(t *testing.T, e Engine) {
	l := e.Log("ann", "default")
	mustAppend(t, l, batchOf(person("a"), call("c", "f")))
	mustRewind(t, l, 1)
	found, err := l.FindCalls(background, "c", false)
	if err != nil || len(found) != 1 || found[0].Name != "f" {
		t.Errorf("FindCalls of a rewound call: %+v, %v", found, err)
	}
}

func importedRewound(t *testing.T, e Engine) {
	l := e.Log("ann", "default")
	f := newKeeping(t)
	var doc []history.Message
	for i, m := range document(40) {
		m.Rewound = i%3 == 1
		if !m.Rewound {
			f.stand = append(f.stand, int64(i+1))
		}
		doc = append(doc, m)
	}
	f.loose = true // how an import is cut into commits is the engine's
	mustImport(t, l, history.Import{Mode: history.Create, Messages: all(doc...), Fold: f})
	wantStanding(t, l, f.stand...)
	f.loose = false
	for i := range 20 {
		if i == 10 {
			mustRewind(t, l, 45)
			f.stand = slices.DeleteFunc(f.stand, func(seq int64) bool { return seq > 45 })
			reopen(t, e)
			l = e.Log("ann", "default")
		}
		b := said(fmt.Sprint(i))
		b.Fold = f
		r := mustAppend(t, l, b)
		f.stand = append(f.stand, r.LastSeq)
		wantStanding(t, l, f.stand...)
	}
}

func extendRewound(t *testing.T, e Engine) {
	l := e.Log("ann", "default")
	mustImport(t, l, history.Import{Mode: history.Create, Messages: all(document(5)...)})
	mustRewind(t, l, 2)
	r := mustImport(t, l, history.Import{Mode: history.Extend, Messages: all(document(7)...)})
	if r.Skipped != 5 || r.Added != 2 {
		t.Errorf("receipt %+v", r)
	}
	for range 2 {
		wantStanding(t, l, 1, 2, 6, 7)
		reopen(t, e)
		l = e.Log("ann", "default")
	}
	mustRewind(t, l, 6)
	wantStanding(t, l, 1, 2, 6)
	mustImport(t, l, history.Import{Mode: history.Replace, Messages: all(document(3)...)})
	wantStanding(t, l, 1, 2, 3)
}

func rewindsAtOnce(t *testing.T, e Engine) {
	l := e.Log("ann", "default")
	mustAppend(t, l, said("start"))
	together(6, func(i int) {
		for j := range 10 {
			if i == 0 {
				if _, err := l.Rewind(background, history.Rewind{Through: 1}); err != nil {
					t.Errorf("Rewind: %v", err)
				}
				continue
			}
			if _, err := l.Append(background, said(fmt.Sprint(i, " ", j), "second")); err != nil {
				t.Errorf("Append: %v", err)
			}
		}
	})
	for range 2 {
		msgs := content(t, l)
		wantCounted(t, msgs)
		if len(msgs) != 101 || msgs[0].Rewound {
			t.Fatalf("%d messages, the first rewound %t", len(msgs), msgs[0].Rewound)
		}
		for i := 2; i < len(msgs); i++ {
			if msgs[i-1].Rewound != msgs[i].Rewound && (msgs[i].Rewound || i%2 == 0) {
				t.Fatalf("message %d stands and %d is rewound", i, i+1)
			}
		}
		reopen(t, e)
		l = e.Log("ann", "default")
	}
}

// keeping is a folder that knows which messages stand. It folds all but the last two
// once there are five.
type keeping struct {
	t     tb
	stand []int64 // but for those of the batch under way
	loose bool    // an import is under way: only the order is looked at
	due   history.Window
}

func newKeeping(t tb) *keeping { return &keeping{t: t} }

func (f *keeping) Due(before, after history.Window) bool {
	f.due = after
	if before.Messages > after.Messages || before.Turns > after.Turns || before.Messages < 0 || before.Turns < 0 {
		f.t.Errorf("Due(%+v, %+v)", before, after)
	}
	return after.Messages >= 5
}

func (f *keeping) Fold(prev *history.Summary, window iter.Seq2[history.Message, error]) (*history.Summary, error) {
	next := history.Summary{Source: "toy"}
	if prev != nil {
		next = *prev
		next.Lines = append([]string(nil), prev.Lines...)
	}
	var msgs []history.Message
	for m, err := range window {
		if err != nil {
			return nil, err
		}
		if m.Rewound || !slices.Contains(f.stand, m.Seq) && len(f.stand) > 0 && m.Seq <= f.stand[len(f.stand)-1] {
			f.t.Errorf("the window has the rewound message %d", m.Seq)
		}
		msgs = append(msgs, m)
	}
	if !f.loose {
		f.compare(next.ThroughSeq, msgs)
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
	return &next, nil
}

// compare holds a window to what stands behind a fold.
func (f *keeping) compare(through int64, msgs []history.Message) {
	var want, got []int64
	for _, seq := range f.stand {
		if seq > through {
			want = append(want, seq)
		}
	}
	turns := int64(0)
	for i := range msgs {
		got = append(got, msgs[i].Seq)
		if msgs[i].StartsTurn() {
			turns++
		}
	}
	if f.due.Messages != int64(len(msgs)) || f.due.Turns != turns {
		f.t.Errorf("the window was said to be %+v, and has %d messages and %d turns", f.due, len(msgs), turns)
	}
	if len(got) < len(want) || !slices.Equal(got[:len(want)], want) {
		f.t.Errorf("behind %d the window has %d, and %d stand", through, got, want)
	}
}
