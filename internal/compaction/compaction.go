// Package compaction decides when older turns of a conversation leave the window
// for its running summary, and writes the digest that says what they held. A fold
// reads no file, knows no clock, and asks no model: the same messages give the
// same digest, to the byte, however they were batched.
//
// A Summariser asks a model, beside the conversation and never in its way, to put a
// summary into words. What it answers is recorded and takes effect at the next fold.
//
// The unit of folding is a turn; one of more than 200 messages may be parted
// inside, where no recent call waits for its result. Each unit becomes one line,
// and lines give way only from the oldest. A line quotes what was said so that
// nothing in it can pass for another line, for the frame, or for an instruction
// of ours; it never holds arguments, results or thinking.
package compaction

import (
	"fmt"
	"iter"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"historyd/internal/history"
)

const (
	partSize = 200    // messages after which a turn may be parted inside
	reach    = 10_000 // messages after which a call counts as abandoned for good
	maxCount = 1_000_000

	minSummaryChars = 500
)

// Options configures a Compactor. All of it may be left zero.
type Options struct {
	// KeepVerbatimTurns is how many of the newest turns always stay in the window.
	// 0 means 10.
	KeepVerbatimTurns int
	// FoldBatch is how many turns leave the window together. 0 means 5.
	FoldBatch int
	// MaxSummaryChars bounds the frame with all that is in it, in code points. 0
	// means 8000; below 500 is refused.
	MaxSummaryChars int
	// Registerer takes the counters. nil means that nobody reads them.
	Registerer prometheus.Registerer
}

// A Compactor is a history.Folder. It holds no state but its counters, and may be
// used from many goroutines.
type Compactor struct {
	keep, batch int
	maxChars    int
	textLimit   int // of a model's text as it is quoted, in code points
	lineLimit   int // a line of this many code points always fits into a frame without such a text
	part, reach int64

	folds *prometheus.CounterVec
	turns prometheus.Counter
}

var _ history.Folder = (*Compactor)(nil)

// New makes a Compactor. Its errors name the field.
func New(o Options) (*Compactor, error) {
	c := &Compactor{keep: o.KeepVerbatimTurns, batch: o.FoldBatch, maxChars: o.MaxSummaryChars, part: partSize, reach: reach}
	for _, f := range []struct {
		name          string
		value         *int
		standard, min int
	}{
		{"KeepVerbatimTurns", &c.keep, 10, 1},
		{"FoldBatch", &c.batch, 5, 1},
		{"MaxSummaryChars", &c.maxChars, 8000, minSummaryChars},
	} {
		if *f.value == 0 {
			*f.value = f.standard
		}
		if *f.value < f.min || *f.value > maxCount {
			return nil, fmt.Errorf("%s is %d: must be from %d to %d", f.name, *f.value, f.min, maxCount)
		}
	}
	c.textLimit = textLimit(c.maxChars)
	c.lineLimit = c.maxChars - maxFrame - 1
	c.count(o.Registerer)
	return c, nil
}

func (c *Compactor) count(reg prometheus.Registerer) {
	c.folds = promauto.With(reg).NewCounterVec(prometheus.CounterOpts{
		Name: "historyd_folds_total",
		Help: "Times that older turns were looked at for folding, by result: folded, none, failed.",
	}, []string{"result"})
	for _, result := range []string{"folded", "none", "failed"} {
		c.folds.WithLabelValues(result)
	}
	c.turns = promauto.With(reg).NewCounter(prometheus.CounterOpts{
		Name: "historyd_folded_turns_total",
		Help: "Turns that left a window for a summary.",
	})
}

// Turns is how many turns a fold leaves in the window, and after how many more the next
// one is due.
func (c *Compactor) Turns() (keep, batch int) { return c.keep, c.batch }

// Due reports whether the batch brought the window to a point where a fold may be
// possible: a whole batch of turns more than is kept, or another 200 messages when
// long turns could have been parted often enough.
func (c *Compactor) Due(before, after history.Window) bool {
	if c.batches(after.Turns) > c.batches(before.Turns) {
		return true
	}
	return after.Messages/c.part > before.Messages/c.part &&
		after.Turns+after.Messages/c.part >= int64(c.keep+c.batch)
}

// batches is how many whole batches of turns there are beyond those that are kept.
func (c *Compactor) batches(turns int64) int64 {
	return max(0, (turns-int64(c.keep))/int64(c.batch))
}

// Fold extends prev, or what a model has written in its place, by the units that
// leave the window, or returns nil when none does. It decides as if it had been asked after each message, so that it does not
// matter how they were batched. It never parts a call from a result that the
// window holds; where that forbids every boundary, it waits for a later batch.
//
// The window is read once and not kept: what stays in memory is a line for each
// unit of the last 10,000 messages, up to 16 KiB of each of the newest 64 that are not long, some bytes for each that cannot be parted from
// those, and as many of their lines as a summary has room for.
func (c *Compactor) Fold(prev *history.Summary, messages iter.Seq2[history.Message, error]) (*history.Summary, error) {
	w := newWindow(c, prev)
	for m, err := range messages {
		if err != nil {
			c.folds.WithLabelValues("failed").Inc()
			return nil, fmt.Errorf("read the window: %w", err)
		}
		w.add(&m)
	}
	w.fold(w.messages)
	if w.folded == 0 {
		c.folds.WithLabelValues("none").Inc()
		return nil, nil
	}
	c.folds.WithLabelValues("folded").Inc()
	c.turns.Add(float64(w.turns))
	return &w.summary, nil
}
