package store

import (
	"context"
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
