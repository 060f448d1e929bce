package compaction

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"historyd/internal/history"
	"historyd/internal/identity"
)

// MinModelChars is the least MaxSummaryChars that leaves room for what a model writes.
const MinModelChars = 1000

// A Record is where the conversations of all callers are kept.
type Record interface {
	Log(scope identity.Scope, conversation string) history.Log
}

// SummariserOptions configures a Summariser. Record and Endpoint are required.
type SummariserOptions struct {
	Record   Record
	Endpoint Endpoint
	// MaxSummaryChars is that of the Compactor. 0 means 8000.
	MaxSummaryChars int
	// Clean is what happens to any text before it is kept. nil means nothing.
	Clean      func(text string) string
	Workers    int              // conversations at a time, one less of one caller; 0 means 3
	Now        func() time.Time // nil means time.Now
	Logger     *slog.Logger     // nil means no log
	Registerer prometheus.Registerer
}

// A Summariser asks a model to put into words what folds have covered, beside the
// conversations and never in their way. A conversation is tried once a fold, and once
// when it is met for the first time since the start; what does not come to a good end
// leaves the digest as it is until the next fold. It may be used from many goroutines.
type Summariser struct {
	record    Record
	endpoint  *endpoint
	textLimit int
	clean     func(string) string
	now       func() time.Time
	log       *slog.Logger
	results   *prometheus.CounterVec
	seconds   prometheus.Histogram

	ctx     context.Context // of the workers; done once Close is called
	stop    context.CancelFunc
	workers sync.WaitGroup
	ready   chan struct{} // holds one when there may be something to do

	mu     sync.Mutex // guards what follows
	known  map[subject]phase
	agenda *agenda
	met    acquaintance
	closed bool
}

// subject is a conversation to be summarised. Nothing of one is ever in reach while
// another is worked on: all that a job holds, it has read through this.
type subject struct {
	scope        identity.Scope
	conversation string
}

// phase is where a subject is on its way. Absent means that nothing is to be done.
type phase int

const (
	waits phase = iota + 1
	runs
	runsAgain // and is to be looked at once more
)

// NewSummariser starts the workers. Its errors name the field.
func NewSummariser(o SummariserOptions) (*Summariser, error) {
	switch {
	case o.Record == nil:
		return nil, errors.New("Record is required")
	case o.MaxSummaryChars != 0 && o.MaxSummaryChars < MinModelChars:
		return nil, fmt.Errorf("MaxSummaryChars is %d: must be at least %d for a model", o.MaxSummaryChars, MinModelChars)
	case o.Workers < 0:
		return nil, fmt.Errorf("%s must not be negative", "Workers")
	}
	e, err := newEndpoint(o.Endpoint)
	if err != nil {
		return nil, fmt.Errorf("Endpoint: %w", err)
	}
	if o.MaxSummaryChars == 0 {
		o.MaxSummaryChars = 8000
	}
	s := &Summariser{
		record: o.Record, endpoint: e, textLimit: textLimit(o.MaxSummaryChars), clean: o.Clean, now: o.Now, log: o.Logger,
		ready: make(chan struct{}, 1), known: map[subject]phase{}, met: newAcquaintance(),
	}
	if s.clean == nil {
		s.clean = func(text string) string { return text }
	}
	if s.now == nil {
		s.now = time.Now
	}
	if s.log == nil {
		s.log = slog.New(slog.DiscardHandler)
	}
	s.ctx, s.stop = context.WithCancel(context.Background())
	if o.Workers == 0 {
		o.Workers = 3
	}
	s.agenda = newAgenda(o.Workers)
	s.count(o.Registerer)
	for range o.Workers {
		s.workers.Go(s.work)
	}
	return s, nil
}

func (s *Summariser) count(reg prometheus.Registerer) {
	s.results = promauto.With(reg).NewCounterVec(prometheus.CounterOpts{
		Name: "historyd_summaries_total",
		Help: "Times that a model was to summarise a conversation, by result: recorded, none, stale, refused, overflow, failed, dropped, stopping.",
	}, []string{"result"})
	for _, result := range []string{"recorded", "none", "stale", "refused", "overflow", "failed", "dropped", "stopping"} {
		s.results.WithLabelValues(result)
	}
	promauto.With(reg).NewGaugeFunc(prometheus.GaugeOpts{
		Name: "historyd_summaries_waiting",
		Help: "Conversations that wait for a model.",
	}, s.countWaiting)
	s.seconds = promauto.With(reg).NewHistogram(prometheus.HistogramOpts{
		Name:    "historyd_summaries_seconds",
		Help:    "Time from the beginning of a summary by a model to its end, whatever that was.",
		Buckets: []float64{0.1, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 900},
	})
}

func (s *Summariser) countWaiting() float64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return float64(s.agenda.waiting)
}

// Wake says that a conversation has a new fold. It never waits: what there is no room
// for is left until the next fold.
func (s *Summariser) Wake(scope identity.Scope, conversation string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	j := subject{scope, conversation}
	s.met.meet(j)
	switch s.known[j] {
	case waits, runsAgain:
	case runs:
		s.known[j] = runsAgain
	default:
		s.enqueue(j)
	}
}

// Met reports whether a conversation was met before, and notes that it is now. Who was
// not may have a fold from before the start that waits for its words: see Waits.
func (s *Summariser) Met(scope identity.Scope, conversation string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.met.meet(subject{scope, conversation})
}

// Waits reports whether the newest fold of a conversation has not been put into words.
func Waits(s history.State) bool {
	return s.Summary != nil && s.Summary.TextSeq < s.Summary.ThroughSeq && s.Prose == nil
}

// enqueue gives a subject to the workers. s.mu is held.
func (s *Summariser) enqueue(j subject) {
	if s.closed {
		return
	}
	s.known[j] = waits
	if dropped, full := s.agenda.add(j); full {
		delete(s.known, dropped)
		s.results.WithLabelValues("dropped").Inc()
	}
	s.poke()
}

func (s *Summariser) poke() {
	select {
	case s.ready <- struct{}{}:
	default:
	}
}

// Close ends what is under way and waits for it. Nothing is lost but the work.
func (s *Summariser) Close() {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.stop()
	s.workers.Wait()
	s.endpoint.close()
}

// work is one worker; it ends with Close.
func (s *Summariser) work() {
	for s.ctx.Err() == nil {
		j, ok := s.take()
		if !ok {
			select {
			case <-s.ctx.Done():
			case <-s.ready:
			}
			continue
		}
		s.attend(j)
		s.leave(j)
	}
}

func (s *Summariser) take() (subject, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	j, ok := s.agenda.next()
	if ok {
		s.known[j] = runs
		s.poke() // there may be more, for another worker
	}
	return j, ok
}

func (s *Summariser) leave(j subject) {
	s.mu.Lock()
	defer s.mu.Unlock()
	again := s.known[j] == runsAgain
	delete(s.known, j)
	s.agenda.done(j)
	if again {
		s.enqueue(j)
	}
	s.poke() // what waited for its caller's place may be taken
}

// Ends of an attempt that leave the digest as it is. None holds anything of a
// conversation, or of what a model said.
var (
	errNone     = errors.New("there is nothing to put into words")
	errGap      = errors.New("messages that the summary covers cannot be read")
	errOverflow = errors.New("the model takes no request as small as this")
	errTooMany  = errors.New("it would take too many requests")
	errRefused  = errors.New("the answer is no summary")
)

// attend makes one attempt and accounts for it.
func (s *Summariser) attend(j subject) {
	began := s.now()
	err := s.attempt(j)
	result := "failed"
	switch {
	case err == nil:
		result = "recorded"
	case errors.Is(err, errNone):
		result = "none"
	case s.ctx.Err() != nil, errors.Is(err, history.ErrClosed):
		result = "stopping"
	case errors.Is(err, history.ErrPrecondition), errors.Is(err, history.ErrGone):
		result = "stale"
	case errors.Is(err, errRefused):
		result = "refused"
	case errors.Is(err, errOverflow), errors.Is(err, errTooMany):
		result = "overflow"
	}
	s.results.WithLabelValues(result).Inc()
	if result != "none" {
		s.seconds.Observe(s.now().Sub(began).Seconds())
	}
	switch result {
	case "refused", "overflow", "failed":
		s.log.Warn("no summary by the model, the digest stays", "scope", j.scope, "result", result, "error", err)
	default:
		s.log.Debug("summary by the model", "scope", j.scope, "result", result)
	}
}

// attempt keeps a panic from ending the process.
func (s *Summariser) attempt(j subject) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = fmt.Errorf("a panic with a %T", v)
		}
	}()
	return s.summarise(s.ctx, s.record.Log(j.scope, j.conversation))
}

// summarise puts into words what the newest fold of a conversation covers: what the
// model said of the older part, and the messages since.
func (s *Summariser) summarise(ctx context.Context, log history.Log) error {
	view, err := log.View(ctx)
	if err != nil {
		return fmt.Errorf("view: %w", err)
	}
	defer view.Close()
	state := view.State()
	covered := state.Summary
	if !Waits(state) {
		return errNone
	}
	f, err := s.feed(view, covered)
	if err != nil {
		return err
	}
	defer f.close()
	p := history.Prose{
		// It may be from before a setting was lowered.
		Text: s.capped(covered.Text), Model: s.endpoint.Name, ThroughSeq: covered.ThroughSeq, Turns: covered.Turns, Messages: covered.Messages,
	}
	if err := s.tell(ctx, log, state.Epoch, f, &p); err != nil {
		return err
	}
	p.At = s.now()
	if err := log.Summarise(ctx, state.Epoch, p); err != nil {
		return fmt.Errorf("record a summary: %w", err)
	}
	return nil
}

const (
	maxParts    = 32  // requests for which a summary is planned
	maxRequests = 128 // that it takes at the most, when the model takes less than was thought
	minPart     = 100 // tokens of what was said below which a request is not made smaller
)

// tell gives the model what was said, part by part, each with the summary so far, and
// puts the last one into p.
func (s *Summariser) tell(ctx context.Context, log history.Log, epoch string, f *feed, p *history.Prose) error {
	size := int64(s.endpoint.MaxInputTokens)
	hash := sha256.New()
	answered := false
	for range maxRequests {
		room := min(size, s.room(p.Text))
		part, err := f.part(room)
		if err != nil {
			return err
		}
		if len(part) == 0 {
			if !answered {
				return errNone
			}
			p.InputHash = hex.EncodeToString(hash.Sum(nil))
			return nil
		}
		now, err := log.State(ctx)
		if err != nil {
			return fmt.Errorf("state: %w", err)
		}
		if now.Epoch != epoch || now.Summary == nil || now.Summary.ThroughSeq != p.ThroughSeq {
			return fmt.Errorf("a fold later: %w", history.ErrPrecondition)
		}
		in := newInput(p.Text, part)
		said, err := s.endpoint.ask(ctx, s.orders(), in.request)
		if errors.Is(err, errOverflow) {
			if size = room / 2; size < minPart {
				return err
			}
			f.back(part)
			continue
		}
		if err != nil {
			return err
		}
		if p.Text, err = s.judge(said, in); err != nil {
			return err
		}
		hash.Write([]byte(in.request))
		p.InputChars += in.chars
		answered = true
	}
	return errTooMany
}
