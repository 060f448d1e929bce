package store

import (
	"cmp"
	"context"
	"encoding/json/jsontext"
	"errors"
	"fmt"
	"iter"
	"slices"

	"historyd/internal/history"
)

// State implements history.Log.
func (l *log) State(ctx context.Context) (history.State, error) {
	t, err := l.store.acquire(ctx, l.key)
	if err != nil {
		return history.State{}, err
	}
	defer l.store.release(t)
	snap := t.state.Load()
	if snap.unreadable {
		return history.State{}, history.ErrDamaged
	}
	state := t.history(snap)
	state.Title = t.titleAt(snap)
	return state, nil
}

// titleAt reads the title once: it never changes in the life of a transcript.
func (t *transcript) titleAt(snap *snapshot) string {
	if snap.totals.Title.none() {
		return ""
	}
	if known := t.title.Load(); known != nil {
		return *known
	}
	c, err := t.commitAt(snap.totals.Title)
	if err != nil {
		return "" // it is read again the next time
	}
	title := ""
	if c != nil {
		title = titleIn(c)
	}
	t.title.Store(&title)
	return title
}

func titleIn(c *commit) string {
	for r, err := range recordsOf(c) {
		if err != nil {
			return ""
		}
		if m, err := r.Message(); err == nil && m.StartsTurn() && titleOf(&m) != "" {
			return titleOf(&m)
		}
	}
	return ""
}

// View implements history.Log.
func (l *log) View(ctx context.Context) (history.View, error) {
	t, err := l.store.acquire(ctx, l.key)
	if err != nil {
		return nil, err
	}
	snap := t.state.Load()
	if snap.unreadable {
		l.store.release(t)
		return nil, history.ErrDamaged
	}
	return &view{t: t, snap: snap, state: t.history(snap)}, nil
}

// view is a transcript as it was at one moment, pinned open.
type view struct {
	t      *transcript
	snap   *snapshot
	state  history.State
	closed bool
}

func (v *view) State() history.State { return v.state }

func (v *view) Damage() *history.Damage { return v.t.damaged() }

func (v *view) Close() {
	if !v.closed {
		v.closed = true
		v.t.store.release(v.t)
	}
}

func (v *view) Records(from, to int64) iter.Seq2[history.Record, error] {
	return v.snap.marked(v.t.records(v.snap, from, to))
}

func (v *view) Backward(before int64) iter.Seq2[history.Record, error] {
	return v.snap.marked(v.t.descending(v.snap, before))
}

// marked marks what is rewound.
func (s *snapshot) marked(records iter.Seq2[history.Record, error]) iter.Seq2[history.Record, error] {
	if len(s.rewound) == 0 {
		return records
	}
	return func(yield func(history.Record, error) bool) {
		for r, err := range records {
			if err == nil && s.rewound.has(r.Seq) {
				r.JSON = history.MarkRewound(r.JSON)
			}
			if !yield(r, err) {
				return
			}
		}
	}
}

// lookBackBytes is how far FindCalls goes back at the least, beside MinLookBack messages.
const lookBackBytes = 16 << 20

// FindCalls implements history.Log. A line is decoded only when it has the id in it.
// What is missing or unreadable on the way might have held a call: that is
// ErrDamaged, so that nobody takes it for a call that never was.
func (l *log) FindCalls(ctx context.Context, id string, all bool) ([]history.FoundCall, error) {
	t, err := l.store.acquire(ctx, l.key)
	if err != nil {
		return nil, err
	}
	defer l.store.release(t)
	snap := t.state.Load()
	if snap.unreadable {
		return nil, history.ErrDamaged
	}
	if !snap.exists {
		return nil, history.ErrNotFound
	}
	s := search{id: id, all: all}
	var seen int64
	next := snap.last + 1 // the seq behind the line that is looked at
	for p, err := range t.backward(snap, place{snap.seg, snap.off}, chained{}) {
		if err = cmp.Or(err, ctx.Err()); err != nil {
			return nil, classify(err)
		}
		seen += int64(len(p.raw))
		first, last, ok := seqsOf(p.raw)
		if !p.good || !ok || last+1 < next {
			return nil, fmt.Errorf("%w: before message %d", history.ErrDamaged, next)
		}
		next = min(next, first)
		if seen > lookBackBytes && first < snap.last-history.MinLookBack {
			return nil, history.ErrTooFar
		}
		if !lineCouldHold(p.raw, id) {
			continue
		}
		c, err := t.readable(p)
		if err != nil || c == nil {
			return nil, cmp.Or(err, history.ErrDamaged)
		}
		if done, err := s.commit(c); err != nil || done {
			return s.found, err
		}
	}
	if next > 1 {
		return nil, fmt.Errorf("%w: before message %d", history.ErrDamaged, next)
	}
	if len(s.found) == 0 {
		return nil, history.ErrNotFound
	}
	return s.found, nil
}

// search is one FindCalls on its way back.
type search struct {
	id      string
	all     bool
	found   []history.FoundCall
	told    map[[2]string]bool // names and labels in found, of the commit that is looked at
	answers int                // met, of calls that were not met yet
}

// commit looks through one commit, and reports whether the search ends there.
func (s *search) commit(c *commit) (done bool, err error) {
	var msgs []history.Message
	for r, err := range recordsOf(c) {
		if err != nil {
			return false, err
		}
		m, err := r.Message()
		if err != nil {
			return false, errors.Join(history.ErrDamaged, err)
		}
		msgs = append(msgs, m)
	}
	s.told = map[[2]string]bool{}
	for _, m := range slices.Backward(msgs) {
		if s.message(&m, c.Note) {
			return true, nil
		}
	}
	return false, nil
}

// message looks through one message, which holds calls or answers.
func (s *search) message(m *history.Message, note jsontext.Value) (done bool) {
	count := 0
	for i := range m.Content {
		switch b := &m.Content[i]; {
		case b.Type == history.ToolCall && b.ID == s.id:
			count++
		case b.Type == history.ToolResult && b.CallID == s.id:
			s.answers++
		}
	}
	if done = count > s.answers && !s.all; done {
		s.found, s.told = nil, map[[2]string]bool{}
	}
	s.answers = max(s.answers-count, 0)
	for i := range m.Content {
		b := &m.Content[i]
		if b.Type != history.ToolCall || b.ID != s.id {
			continue
		}
		call := history.FoundCall{Name: b.Name, Note: note}
		if b.Redacted != nil {
			call.Withheld = b.Redacted.Category
		}
		if key := [2]string{call.Name, call.Withheld}; !s.told[key] {
			s.told[key] = true
			s.found = append(s.found, call)
		}
	}
	return done
}
