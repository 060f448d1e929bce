package store

import (
	"context"
	"slices"

	"historyd/internal/history"
)

// A span is a stretch of rewound messages, both ends included.
type span struct{ from, to int64 }

// rewinding is what a line says that ends the conversation at a message. From each
// such line the one before it can be found; every rewindCheckpoint-th one lists all
// the spans.
type rewinding struct {
	Through int64      `json:"through"`
	Before  place      `json:"before"`
	Spans   [][2]int64 `json:"spans,omitzero"`
}

// rewindCheckpoint is after how many rewinds one lists all spans, so that no more
// lines than that are read to know them.
const rewindCheckpoint = 64

// rewound is the spans of a record, ascending and apart from each other. It is never
// changed once published.
type rewound []span

// through returns the spans as they are after a rewind of a record of last messages.
func (w rewound) through(seq, last int64) rewound {
	out := slices.Clone(w)
	if seq >= last {
		return out
	}
	next := span{seq + 1, last}
	for len(out) > 0 && out[len(out)-1].to >= next.from-1 {
		next.from = min(next.from, out[len(out)-1].from)
		out = out[:len(out)-1]
	}
	return append(out, next)
}

// at returns the span that holds seq, or else the first one behind it.
func (w rewound) at(seq int64) (int, bool) {
	return slices.BinarySearchFunc(w, seq, func(s span, seq int64) int {
		switch {
		case s.to < seq:
			return -1
		case s.from > seq:
			return 1
		}
		return 0
	})
}

func (w rewound) has(seq int64) bool {
	_, in := w.at(seq)
	return in
}

// count is how many messages of from <= seq <= to are rewound.
func (w rewound) count(from, to int64) (n int64) {
	i, _ := w.at(from)
	for ; i < len(w) && w[i].from <= to; i++ {
		n += min(to, w[i].to) - max(from, w[i].from) + 1
	}
	return n
}

// standing is the newest message up to seq that is not rewound; 0 when all are.
func (w rewound) standing(seq int64) int64 {
	if i, in := w.at(seq); in {
		return w[i].from - 1
	}
	return seq
}

// Rewind implements history.Log.
func (l *log) Rewind(ctx context.Context, r history.Rewind) (receipt history.Receipt, err error) {
	err = l.use(ctx, func(t *transcript) (err error) {
		receipt, err = t.lockedRewind(ctx, r)
		return err
	})
	return receipt, err
}

func (t *transcript) lockedRewind(ctx context.Context, r history.Rewind) (history.Receipt, error) {
	if err := t.change.lock(ctx); err != nil {
		return history.Receipt{}, err
	}
	defer t.change.unlock()
	if t.ended() {
		return history.Receipt{}, errRetry
	}
	old := t.state.Load()
	state := t.history(old)
	switch {
	case old.unreadable:
		return history.Receipt{}, history.ErrDamaged
	case !state.Exists():
		return history.Receipt{}, history.ErrNotFound
	case r.IfMatch != nil && !r.IfMatch(state.ETag()):
		return history.Receipt{}, history.ErrPrecondition
	case r.Through < 0 || r.Through > old.last || old.rewound.has(r.Through):
		return history.Receipt{}, history.ErrNoSuchMessage
	case r.Through == old.rewound.standing(old.last) && old.settled(): // it ends there already
		return history.Receipt{Epoch: state.Epoch, LastSeq: old.last}, nil
	}
	sp, err := t.spend()
	if err != nil {
		return history.Receipt{}, t.failure(err)
	}
	defer sp.end()
	snap, err := t.mend(old)
	if err != nil {
		return history.Receipt{}, t.failure(err)
	}
	d := t.newDraft(snap, &scratch{})
	if err := d.rewind(r.Through); err != nil {
		return history.Receipt{}, t.failure(err)
	}
	if err := d.finish(sp, true, r.Before); err != nil {
		return history.Receipt{}, err
	}
	return history.Receipt{Epoch: d.snap.totals.Epoch, LastSeq: d.snap.last}, nil
}

// settled reports whether nothing can come to light behind the last line: what an append left that failed is ended by
// the next line alone.
func (s *snapshot) settled() bool {
	return !s.begin && !s.newLife && s.torn == 0 && len(s.dead) == 0
}

// rewind appends the line of a rewind.
func (d *draft) rewind(through int64) error {
	t := d.t
	from, err := t.stateAt(t.state.Load(), d.snap.rewound.standing(through))
	if err != nil {
		return err
	}
	at := t.now()
	d.start(at)
	c := &commit{First: d.snap.last + 1, Last: d.snap.last, ID: t.store.newID(d.snap.id), At: at,
		Prev: checksum(d.snap.sum), Totals: d.snap.totals}
	r := &rewinding{Through: through, Before: c.Totals.Rewound}
	spans := d.snap.rewound.through(through, c.Last)
	since := d.snap.rewinds + 1
	if since%rewindCheckpoint == 0 {
		since = 0
		r.Spans = [][2]int64{}
		for _, s := range spans {
			r.Spans = append(r.Spans, [2]int64{s.from, s.to})
		}
	}
	c.Rewind = r
	c.Totals.Epoch = randomHex(8)
	c.Totals.Rewound = d.here()
	if from.fold != c.Totals.Fold {
		c.Totals.Prose, d.snap.prose = place{}, nil // it is of a fold that is taken back
	}
	c.Totals.Fold, c.Totals.FoldedSeq, c.Totals.FoldedTurns = from.fold, from.foldedSeq, from.foldedTurns
	c.Totals.OutTurns = c.Totals.Turns - from.foldedTurns - from.window.Turns
	c.Totals.OutMessages = c.Last - from.foldedSeq - from.window.Messages
	d.snap.rewound, d.snap.rewinds = spans, since
	d.line(c)
	d.commits++
	d.snap.summary = nil
	if !d.snap.totals.Fold.none() {
		return t.loadSummary(&d.snap)
	}
	return nil
}

// standpoint is what folding had come to when a message was the last one.
type standpoint struct {
	fold        place
	foldedSeq   int64
	foldedTurns int64
	window      history.Window
}

// stateAt finds the standpoint of message seq, which is not rewound: then nothing
// before it was rewound after it came in, and its line tells it, or the one before
// that where the line folded beyond it.
func (t *transcript) stateAt(snap *snapshot, seq int64) (standpoint, error) {
	if seq == 0 {
		return standpoint{}, nil
	}
	var messages []history.Message // of the line with the message, up to it
	for p, err := range t.backwardFrom(snap, seq+1) {
		if err != nil {
			return standpoint{}, err
		}
		c, err := t.readable(p)
		if err != nil {
			return standpoint{}, err
		}
		if c == nil || messages == nil && (c.First > c.Last || c.First > seq) {
			continue
		}
		if messages != nil {
			return standpointOf(c, messages), nil
		}
		after := standpointOf(c, nil)
		messages = []history.Message{}
		for r, err := range recordsOf(c) {
			if err != nil {
				return standpoint{}, err
			}
			m, err := r.Message()
			if err != nil {
				return standpoint{}, history.ErrDamaged
			}
			if r.Seq <= seq {
				messages = append(messages, m)
			} else {
				after.move(&m, -1)
			}
		}
		if after.foldedSeq <= seq {
			return after, nil
		}
	}
	return standpointOf(&commit{}, messages), nil
}

// standpointOf is what a line tells, with the messages that came in behind it.
func standpointOf(c *commit, behind []history.Message) standpoint {
	t := &c.Totals
	s := standpoint{t.Fold, t.FoldedSeq, t.FoldedTurns, windowOf(t, c.Last)}
	for i := range behind {
		s.move(&behind[i], 1)
	}
	return s
}

func (s *standpoint) move(m *history.Message, by int64) {
	if m.Rewound {
		return
	}
	s.window.Messages += by
	if m.StartsTurn() {
		s.window.Turns += by
	}
}

// windowOf counts what a record of last messages has in its window.
func windowOf(t *totals, last int64) history.Window {
	// Where lines are missing the counts may not go together.
	return history.Window{Turns: max(0, t.Turns-t.FoldedTurns-t.OutTurns), Messages: max(0, last-t.FoldedSeq-t.OutMessages)}
}

func spansOf(r *rewinding) (spans rewound) {
	for _, s := range r.Spans {
		spans = append(spans, span{s[0], s[1]})
	}
	return spans
}

// loadRewound reads which messages are rewound: lines of rewinds backwards to one that
// lists the rest.
func (t *transcript) loadRewound(snap *snapshot) error {
	var back []*commit // newest first
	var known rewound
	missed := false
	for at := snap.totals.Rewound; !at.none(); {
		c, err := t.commitAt(at)
		if err != nil {
			return err
		}
		if c == nil || c.Rewind == nil {
			// The line is damaged: go on from the nearest one before it.
			t.tellDamage(at, 0, 0)
			missed = true
			c, err = t.commitBefore(snap, at)
			if err != nil {
				return err
			}
			if c == nil || c.Totals.Rewound == at {
				break
			}
			at = c.Totals.Rewound
			continue
		}
		if c.Rewind.Spans != nil {
			known = spansOf(c.Rewind)
			break
		}
		back = append(back, c)
		at = c.Rewind.Before
	}
	for _, c := range slices.Backward(back) {
		known = known.through(c.Rewind.Through, c.Last)
	}
	snap.rewound, snap.rewinds = known, len(back)
	if missed { // what stands again is in the window
		snap.totals.OutMessages = known.count(snap.totals.FoldedSeq+1, snap.last)
	}
	return nil
}
