package store

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"

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
	return v.t.records(v.snap, from, to)
}

func (v *view) Backward(before int64) iter.Seq2[history.Record, error] {
	return v.t.descending(v.snap, before)
}

// lookBackBytes is how far FindCall goes back at the least, beside MinLookBack messages.
const lookBackBytes = 16 << 20

// FindCall implements history.Log. A line is decoded only when it has the id in it.
// What is missing or unreadable on the way might have held the call: that is
// ErrDamaged, so that nobody takes it for a call that never was.
func (l *log) FindCall(ctx context.Context, id string) (history.FoundCall, error) {
	t, err := l.store.acquire(ctx, l.key)
	if err != nil {
		return history.FoundCall{}, err
	}
	defer l.store.release(t)
	snap := t.state.Load()
	if snap.unreadable {
		return history.FoundCall{}, history.ErrDamaged
	}
	if !snap.exists {
		return history.FoundCall{}, history.ErrNotFound
	}
	var seen int64
	next := snap.last + 1 // the seq behind the line that is looked at
	for p, err := range t.backward(snap, place{snap.seg, snap.off}) {
		if err = cmp.Or(err, ctx.Err()); err != nil {
			return history.FoundCall{}, classify(err)
		}
		seen += int64(len(p.raw))
		first, last, ok := seqsOf(p.raw)
		if !p.good || !ok || last+1 < next {
			return history.FoundCall{}, fmt.Errorf("%w: before message %d", history.ErrDamaged, next)
		}
		next = min(next, first)
		if seen > lookBackBytes && ok && first < snap.last-history.MinLookBack {
			return history.FoundCall{}, history.ErrTooFar
		}
		if !lineCouldHold(p.raw, id) {
			continue
		}
		if found, ok, err := t.callIn(p, id); err != nil || ok {
			return found, err
		}
	}
	if next > 1 {
		return history.FoundCall{}, fmt.Errorf("%w: before message %d", history.ErrDamaged, next)
	}
	return history.FoundCall{}, history.ErrNotFound
}

func (t *transcript) callIn(p placed, id string) (history.FoundCall, bool, error) {
	c, err := t.readable(p)
	if err != nil || c == nil {
		return history.FoundCall{}, false, err
	}
	found, ok := history.FoundCall{Note: c.Note}, false
	for r, err := range recordsOf(c) {
		if err != nil {
			return found, false, err
		}
		m, err := r.Message()
		if err != nil {
			return found, false, errors.Join(history.ErrDamaged, err)
		}
		for i := range m.Content {
			if b := &m.Content[i]; b.Type == history.ToolCall && b.ID == id {
				found.Name, found.Withheld, ok = b.Name, "", true
				if b.Redacted != nil {
					found.Withheld = b.Redacted.Category
				}
			}
		}
	}
	return found, ok, nil
}
