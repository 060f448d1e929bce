// Package retention lets conversations go by themselves: whole ones, when nothing was
// written to them for long enough, or when their caller has more than is to be kept. It
// knows nothing of files of conversations; the record is asked, and clears.
//
// What is in use is never touched: the record clears a conversation only while nobody
// else has it and nothing was written since it was judged. Which is older is decided by
// ids, never by the clock; the clock says only how long ago something was, and is not
// believed when it jumps.
package retention

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"historyd/internal/durable"
	"historyd/internal/identity"
)

// Rules say what is kept. A zero keeps for ever.
type Rules struct {
	MaxAge   time.Duration // since the newest activity in a conversation
	MaxBytes int64         // of all conversations of one caller
}

// A Conversation is what is known of one that may go.
type Conversation struct {
	Scope  identity.Scope
	Name   string
	Newest string    // id of its newest activity
	At     time.Time // of that
	Bytes  int64
}

// A Record keeps the conversations of all callers.
type Record interface {
	// Survey hands each conversation to visit that can be judged, those of one caller
	// next to each other.
	Survey(ctx context.Context, visit func(Conversation) error) error

	// Expire clears a conversation, durably, if nobody uses it and newest is the id of
	// its newest activity still; false when it was left alone. before is called when it
	// is about to go, and its error keeps it.
	Expire(ctx context.Context, scope identity.Scope, name, newest string, before func() error) (bool, error)

	// Writes is a number that is another one after anything was written.
	Writes() uint64
}

// An Index holds words of conversations.
type Index interface {
	// Forget removes all of a conversation, durably, and keeps it out until done is called.
	Forget(ctx context.Context, scope identity.Scope, name string) (done func(), err error)
}

// Options configures a Sweeper. Record and FS are required, and a rule.
type Options struct {
	Rules
	Record Record
	FS     durable.FS // of the data directory; a file of it says when the clock was last looked at
	Index  Index      // nil when there is none

	Now        func() time.Time      // nil means time.Now
	Logger     *slog.Logger          // nil means no log
	Registerer prometheus.Registerer // nil means unregistered metrics
}

// A Sweeper applies the rules in the background, from New to Close.
type Sweeper struct {
	rules   Rules
	record  Record
	index   Index
	clock   *clock
	now     func() time.Time
	log     *slog.Logger
	metrics *metrics

	life context.Context // ends with Close
	end  context.CancelFunc
	work sync.WaitGroup

	// Of the worker alone.
	seen   uint64    // Record.Writes before the last sweep
	due    time.Time // when the next conversation will be too old; zero when none will
	again  bool      // the last sweep did not do everything
	pace   pace
	fails  int   // sweeps in a row
	failed error // the first of this sweep
}

// New starts a Sweeper, or returns an error that names the option which is wrong.
func New(o Options) (*Sweeper, error) {
	switch {
	case o.Record == nil:
		return nil, errors.New("retention: Options.Record is required")
	case o.FS == nil:
		return nil, errors.New("retention: Options.FS is required")
	case o.MaxAge < 0 || o.MaxBytes < 0:
		return nil, errors.New("retention: Options.MaxAge and MaxBytes must not be negative")
	case o.MaxAge == 0 && o.MaxBytes == 0:
		return nil, errors.New("retention: Options.MaxAge or MaxBytes is required")
	}
	s := &Sweeper{rules: o.Rules, record: o.Record, index: o.Index, now: o.Now, log: o.Logger, metrics: newMetrics(o.Registerer), again: true}
	if s.now == nil {
		s.now = time.Now
	}
	if s.log == nil {
		s.log = slog.New(slog.DiscardHandler)
	}
	s.clock = &clock{fsys: o.FS, maxAge: o.MaxAge, log: s.log}
	s.life, s.end = context.WithCancel(context.Background())
	s.work.Go(s.run)
	return s, nil
}

// Close ends what is under way, at the next conversation, and waits for it.
func (s *Sweeper) Close() {
	s.end()
	s.work.Wait()
}

// Sweeps begin so long after each other, sooner where things age sooner, and later where
// they fail.
const (
	usual   = 10 * time.Second
	fastest = time.Second
	slowest = 10 * time.Minute
)

// run is the worker; it ends with Close.
func (s *Sweeper) run() {
	every := usual
	if s.rules.MaxAge > 0 {
		every = min(usual, max(fastest, s.rules.MaxAge/10))
	}
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-s.life.Done():
			return
		case <-timer.C:
		}
		s.look()
		timer.Reset(min(slowest, every<<min(s.fails, 10)))
	}
}

// look sweeps if there may be something to do.
func (s *Sweeper) look() {
	now := s.wall()
	held := s.tick(now)
	writes := s.record.Writes()
	old := s.rules.MaxAge > 0 && !held && !s.due.IsZero() && !now.Before(s.due)
	if !s.again && writes == s.seen && !old {
		return
	}
	s.seen = writes
	err := s.sweep(now)
	switch {
	case s.life.Err() != nil:
	case err == nil:
		s.fails = 0
		s.metrics.sweeps.WithLabelValues("done").Inc()
	default:
		s.again = true
		s.fails++
		s.metrics.sweeps.WithLabelValues("failed").Inc()
		s.log.Error("not all conversations were removed that had to go", "error", err)
	}
}

// wall is the time of day alone. Two moments that carry a monotonic reading, too, are as far apart as by that,
// however the clock was set between them.
func (s *Sweeper) wall() time.Time { return s.now().Round(0) }

// tick looks at the clock, and reports whether nothing is too old by it.
func (s *Sweeper) tick(now time.Time) (held bool) {
	held = s.clock.tick(now)
	s.metrics.hold(held)
	return held
}
