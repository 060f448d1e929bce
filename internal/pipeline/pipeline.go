// Package pipeline is the order of things: what happens, and in which order, to
// messages on their way into the record and on their way out of it. It knows
// nothing of HTTP, of provider formats, nor of where the record is kept.
//
// Record and Import are the only ways in, and both let nothing reach the engine
// that projection has not passed. Reads never create or write anything.
package pipeline

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"

	"historyd/internal/compaction"
	"historyd/internal/history"
	"historyd/internal/identity"
	"historyd/internal/projection"
)

// An Engine keeps the conversations of all callers, each behind the wall of its scope.
type Engine interface {
	Log(scope identity.Scope, conversation string) history.Log
	// List returns one page, newest activity first. An unknown cursor is history.ErrNotFound.
	List(ctx context.Context, scope identity.Scope, cursor string, limit int) (history.Listing, error)
	// ClearAll is Clear for every conversation of the scope.
	ClearAll(ctx context.Context, scope identity.Scope) error
	// Ready returns nil while a write would be accepted.
	Ready() error
}

// A Summariser is told of each fold, once it is durable. It must not keep its caller.
type Summariser interface {
	Wake(scope identity.Scope, conversation string)
	// Met reports whether it was told of the conversation before, and notes that it is now.
	Met(scope identity.Scope, conversation string) bool
}

// Options configures a Pipeline. Engine, Policy and Compactor are required.
type Options struct {
	Engine    Engine
	Policy    *projection.Policy
	Compactor *compaction.Compactor

	Summariser Summariser // nil means that summaries are digests

	MaxClosureTools int // declarations that a replay adds to a request's at most; 0 means 64

	Index    Searcher // of the record; nil means that nothing is found
	Recaller Recaller // nil means that nothing is recalled

	Registerer prometheus.Registerer // nil means unregistered metrics
	Logger     *slog.Logger          // nil means no log
}

// A Pipeline may be used from many goroutines.
type Pipeline struct {
	engine    Engine
	policy    atomic.Pointer[projection.Policy]
	compactor *compaction.Compactor
	writer    Summariser
	index     Searcher
	recaller  Recaller
	metrics   *metrics
	log       *slog.Logger

	maxClosureTools int
	maxMessages     int64 // of one import
}

// New returns a pipeline, or an error that names the option which is missing.
func New(o Options) (*Pipeline, error) {
	switch {
	case o.Engine == nil:
		return nil, errors.New("pipeline: Options.Engine is required")
	case o.Policy == nil:
		return nil, errors.New("pipeline: Options.Policy is required")
	case o.Compactor == nil:
		return nil, errors.New("pipeline: Options.Compactor is required")
	case o.MaxClosureTools < 0:
		return nil, errors.New("pipeline: Options.MaxClosureTools must not be negative")
	}
	p := &Pipeline{
		engine:    o.Engine,
		compactor: o.Compactor,
		writer:    o.Summariser,
		index:     o.Index,
		recaller:  o.Recaller,
		metrics:   newMetrics(o.Registerer),
		log:       o.Logger,

		maxClosureTools: o.MaxClosureTools,
		maxMessages:     maxMessages,
	}
	if p.log == nil {
		p.log = slog.New(slog.DiscardHandler)
	}
	if p.index == nil {
		p.index = nothing{}
	}
	if p.recaller == nil {
		p.recaller = nothing{}
	}
	p.policy.Store(o.Policy)
	return p, nil
}

// SetPolicy swaps the rules of projection. What is on its way in keeps the rules
// that it met.
func (p *Pipeline) SetPolicy(policy *projection.Policy) { p.policy.Store(policy) }

// folded tells the summariser of a commit with a fold, and of one to a conversation that
// was not met since the start if its fold waits since before that.
func (p *Pipeline) folded(ctx context.Context, c Conversation, r history.Receipt) {
	if p.writer == nil || r.Replayed {
		return
	}
	waits := r.Folded
	if !waits && !p.writer.Met(c.Scope, c.Name) {
		s, err := p.State(ctx, c)
		waits = err == nil && compaction.Waits(s)
	}
	if waits {
		p.writer.Wake(c.Scope, c.Name)
	}
}

// Clean is what happens to a text that a model wrote of a conversation before it is
// kept: it passes projection like what it said in it.
func (p *Pipeline) Clean(text string) string {
	kept, err := p.policy.Load().Keep([]history.Message{{Role: history.Assistant, Status: history.Complete, Content: []history.Block{history.Text(text)}}}, projection.Request{})
	if err != nil || len(kept.Messages) != 1 {
		return ""
	}
	var out strings.Builder
	for i := range kept.Messages[0].Content {
		if b := &kept.Messages[0].Content[i]; b.Type == history.TextBlock {
			out.WriteString(b.Text)
		}
	}
	return out.String()
}

// A Conversation names one record: a caller's scope, and the caller's name for it.
type Conversation struct {
	Scope identity.Scope
	Name  string
}

func (p *Pipeline) open(c Conversation) history.Log { return p.engine.Log(c.Scope, c.Name) }

// State returns what is known of the conversation without reading its messages;
// the zero State when there is none.
func (p *Pipeline) State(ctx context.Context, c Conversation) (history.State, error) {
	s, err := p.open(c).State(ctx)
	if err != nil {
		return history.State{}, fmt.Errorf("state: %w", err)
	}
	return s, nil
}

// List returns one page of the caller's conversations, newest activity first.
func (p *Pipeline) List(ctx context.Context, scope identity.Scope, cursor string, limit int) (history.Listing, error) {
	l, err := p.engine.List(ctx, scope, cursor, limit)
	if err != nil {
		return history.Listing{}, fmt.Errorf("list conversations: %w", err)
	}
	return l, nil
}

// Clear removes the conversation, from the index, too; nil when there is none. Durable
// once it returns nil; after an error it has to be called again.
func (p *Pipeline) Clear(ctx context.Context, c Conversation) error {
	f := forgetting{index: p.index}
	defer f.end()
	err := f.begin(ctx, c)
	if err == nil {
		err = p.open(c).Clear(ctx)
	}
	if err != nil {
		return fmt.Errorf("clear: %w", err)
	}
	p.metrics.clears.WithLabelValues("one").Inc()
	return nil
}

// ClearAll removes every conversation of the scope. Durable once it returns nil.
func (p *Pipeline) ClearAll(ctx context.Context, scope identity.Scope) error {
	done, err := p.index.ForgetAll(ctx, scope)
	if err != nil {
		return fmt.Errorf("clear all: %w", unforgotten(err))
	}
	defer done()
	if err := p.engine.ClearAll(ctx, scope); err != nil {
		return fmt.Errorf("clear all: %w", err)
	}
	p.metrics.clears.WithLabelValues("all").Inc()
	return nil
}

// Ready returns nil while a write would be accepted.
func (p *Pipeline) Ready() error { return p.engine.Ready() }

// A Summary is a running summary with the words in which a model is shown it.
type Summary struct {
	Text string
	*history.Summary
}

// Frame returns the summary as a model is shown it; nil for nil.
func (p *Pipeline) Frame(s *history.Summary) *Summary {
	if s == nil {
		return nil
	}
	return &Summary{p.compactor.Frame(s), s}
}

// frameWithin is Frame for room for about so many tokens. It reports whether that is
// less than the whole.
func (p *Pipeline) frameWithin(s *history.Summary, tokens int64) (framed *Summary, less bool) {
	if s == nil {
		return nil, false
	}
	text, shown := p.compactor.FrameWithin(s, tokens)
	return &Summary{text, shown}, shown != s
}
