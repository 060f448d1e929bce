package store

import (
	"cmp"
	"context"
	"encoding/json/jsontext"
	"errors"
	"fmt"
	"slices"

	"historyd/internal/history"
)

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
	b := lookBack{t: t, snap: snap, known: t.trail.Load(), mark: markOf(id), next: snap.last + 1, search: search{id: id, all: all}}
	err = b.walk(ctx)
	l.store.trails.learn(t.trail, b.known, b.met())
	switch {
	case err != nil:
		return nil, err
	case len(b.found) == 0:
		return nil, history.ErrNotFound
	}
	return b.found, nil
}

// A lookBack goes from the end of a record back, past the stretches that are known not
// to hold the id.
type lookBack struct {
	search
	t     *transcript
	snap  *snapshot
	known *trail
	mark  uint32 // of the id

	next   int64     // the seq behind the line that is looked at
	seen   int64     // bytes so far
	within place     // where a known stretch begins that has to be read
	run    stretch   // what is being read
	fresh  []stretch // what was read before, the newest first
}

// walk ends with what is found, at the beginning of the record, or with an error.
func (b *lookBack) walk(ctx context.Context) error {
	for at := (place{b.snap.seg, b.snap.off}); ; {
		s := b.known.endingAt(at)
		if s == nil || s.holds(b.mark) {
			var done bool
			var err error
			if s, done, err = b.read(ctx, at); err != nil || done {
				return err
			}
		}
		if s == nil {
			break
		}
		if err := b.meet(s.first, s.last, s.size); err != nil {
			return err
		}
		at = s.begin
	}
	if b.next > 1 {
		return b.damaged()
	}
	return nil
}

func (b *lookBack) damaged() error {
	return fmt.Errorf("%w: before message %d", history.ErrDamaged, b.next)
}

// read looks through the lines before a place, up to a stretch that can be passed;
// done when the search has ended. Without either, the record has.
func (b *lookBack) read(ctx context.Context, at place) (s *stretch, done bool, err error) {
	for p, err := range b.t.backward(b.snap, at, chained{}) {
		if err = cmp.Or(err, ctx.Err()); err != nil {
			return nil, false, classify(err)
		}
		if s := b.known.endingAt(place{p.segment, p.end()}); s != nil {
			b.fresh = b.met()
			if !s.holds(b.mark) {
				return s, false, nil
			}
			b.within = s.begin
		}
		if done, err := b.line(p); err != nil || done {
			return nil, done, err
		}
	}
	return nil, false, nil
}

// line looks through one line.
func (b *lookBack) line(p placed) (done bool, err error) {
	first, last, ok := seqsOf(p.raw)
	if !p.good || !ok {
		return false, b.damaged()
	}
	if err := b.meet(first, last, int64(len(p.raw))); err != nil {
		return false, err
	}
	if at := (place{p.segment, p.off}); at.compare(b.within) < 0 || b.within.none() {
		if b.run.add(p, first, last); b.run.full() {
			b.fresh = b.met()
		}
	}
	if !lineCouldHold(p.raw, b.id) {
		return false, nil
	}
	c, err := b.t.readable(p)
	if err != nil || c == nil {
		return false, cmp.Or(err, history.ErrDamaged)
	}
	return b.commit(c)
}

// meet moves on over the messages from first to last.
func (b *lookBack) meet(first, last, size int64) error {
	if last+1 < b.next {
		return b.damaged()
	}
	b.next = min(b.next, first)
	if b.seen += size; b.seen > lookBackBytes && first < b.snap.last-history.MinLookBack {
		return history.ErrTooFar
	}
	return nil
}

// met is what was read so far, with the run at its end.
func (b *lookBack) met() []stretch {
	if b.run.size > 0 {
		b.fresh = append(b.fresh, b.run)
		b.run = stretch{}
	}
	return b.fresh
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
