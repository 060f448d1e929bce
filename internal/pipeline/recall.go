package pipeline

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"historyd/internal/history"
	"historyd/internal/identity"
	"historyd/internal/recall"
)

// What a search takes and gives is recall's; whoever asks needs to know pipeline alone.
type (
	Query       = recall.Query
	Results     = recall.Results
	RecallState = recall.State
)

// The orders, limits and errors of a search.
const (
	Best          = recall.Best
	Newest        = recall.Newest
	MaxQueryChars = recall.MaxQueryChars
	MaxResults    = recall.MaxResults
)

var (
	ErrBadQuery  = recall.ErrBadQuery
	ErrBadCursor = recall.ErrBadCursor
)

// A Searcher is the full-text index of the record. *recall.Index is one.
type Searcher interface {
	recall.Searcher
	// Touch says that something was added to the conversation. It never waits, nor does Doubt.
	Touch(scope identity.Scope, conversation string)
	// Doubt says that something may have been, or may be yet.
	Doubt(scope identity.Scope, conversation string)
	// Forget removes all of the conversation, durably, and keeps it out until done is
	// called. It comes before the change of the record, and done after it; after an
	// error there is no done.
	Forget(ctx context.Context, scope identity.Scope, conversation string) (done func(), err error)
	ForgetAll(ctx context.Context, scope identity.Scope) (done func(), err error)
}

// A Recaller asks retrievers. *recall.Recaller is one.
type Recaller interface {
	Recall(ctx context.Context, ask recall.Ask) recall.Recalled
}

// nothing stands in for what is not configured.
type nothing struct{}

// Search has searched none of the record.
func (nothing) Search(context.Context, identity.Scope, recall.Query) (recall.Results, error) {
	return recall.Results{Behind: true}, nil
}
func (nothing) Touch(identity.Scope, string) {}
func (nothing) Doubt(identity.Scope, string) {}
func (nothing) Forget(context.Context, identity.Scope, string) (func(), error) {
	return func() {}, nil
}
func (nothing) ForgetAll(context.Context, identity.Scope) (func(), error) {
	return func() {}, nil
}
func (nothing) Recall(context.Context, recall.Ask) recall.Recalled {
	return recall.Recalled{Skipped: true}
}

// A RecallAsk asks for what is already known.
type RecallAsk struct {
	Workspace string // the caller's
	// Query is what to look for. When it is blank the newest thing that a person said
	// is, and only on the first turn: while no answer is in the record.
	Query string
	// Store keeps what was found as a reference message, so that later replays show
	// what the model saw.
	Store bool
	// For is the replay that it goes with; nil when there is none. What that leaves out
	// for its limit is recalled.
	For *Ask
}

// Recalled is what is known. Skipped says that nobody was asked: the query is too short,
// or there is none.
type Recalled struct {
	recall.Recalled
	Seq  int64  // of the reference message; 0 when none is stored
	ETag string // of the conversation then; empty when none was stored
	// NotStored is why it is not, though that was asked for.
	NotStored error
}

// Recall asks the retrievers. Whatever they do, and whether what they found can be
// stored or not, it answers within about the deadline of the configuration; its error is
// one of reading the conversation. What is shown verbatim anyway is not recalled, nor what
// a stored recall says that is shown. With Store, a recall of the same query that is
// stored since the last answer is given again instead, so that a retry stores nothing twice.
func (p *Pipeline) Recall(ctx context.Context, c Conversation, ask RecallAsk) (Recalled, error) {
	ask.Query = strings.TrimSpace(ask.Query)
	now, err := p.look(ctx, c, ask)
	if err != nil {
		return Recalled{}, err
	}
	if ask.Store && now.stored != nil {
		return again(now.stored), nil
	}
	question := recall.Ask{Scope: c.Scope, Workspace: ask.Workspace, Conversation: c.Name, Query: now.query}
	if question.Through, err = p.through(ctx, c, ask, now.state.Summary); err != nil {
		return Recalled{}, err
	}
	if question.Shown, err = p.shown(ctx, c, question.Through); err != nil {
		return Recalled{}, err
	}
	for last := false; ; last = true {
		out := Recalled{Recalled: p.recaller.Recall(ctx, question)}
		if !ask.Store || out.Text == "" {
			return out, nil
		}
		err := p.store(ctx, c, ask, now, &out)
		if errors.Is(err, errFaded) && !last {
			continue // what is gone is not found any more
		}
		if err != nil && ctx.Err() != nil {
			return Recalled{}, err // nobody waits for it
		}
		out.NotStored = err
		return out, nil
	}
}

// through is the newest message that is not shown verbatim anyway.
func (p *Pipeline) through(ctx context.Context, c Conversation, ask RecallAsk, s *history.Summary) (seq int64, err error) {
	if s != nil {
		seq = s.ThroughSeq
	}
	if ask.For == nil || ask.For.MaxTokens == 0 {
		return seq, nil
	}
	limited := *ask.For
	limited.Inline = false
	r, err := p.replay(ctx, c, limited)
	if errors.Is(err, history.ErrGone) {
		r, err = p.replay(ctx, c, limited)
	}
	return max(seq, r.Left), err
}

// A glimpse is what a recall has to know of its conversation.
type glimpse struct {
	state  history.State
	query  string           // what to look for; "" when that is nothing
	stored *history.Message // the recall of it that is stored since the last answer
}

// How many messages are looked at, and how many with those that were rewound.
const (
	maxGlimpse = 64
	maxPassed  = 1000
)

// look finds out what to look for, and whether that was done before.
func (p *Pipeline) look(ctx context.Context, c Conversation, ask RecallAsk) (glimpse, error) {
	g, err := p.lookOnce(ctx, c, ask)
	if errors.Is(err, history.ErrGone) {
		g, err = p.lookOnce(ctx, c, ask)
	}
	return g, err
}

func (p *Pipeline) lookOnce(ctx context.Context, c Conversation, ask RecallAsk) (g glimpse, err error) {
	if ask.Query != "" && !ask.Store {
		g.state, err = p.State(ctx, c)
		g.query = ask.Query
		return g, err
	}
	view, err := p.open(c).View(ctx)
	if err != nil {
		return g, fmt.Errorf("view: %w", err)
	}
	defer view.Close()
	g.state = view.State()
	said, stored, err := back(ctx, view)
	if err != nil {
		return g, err
	}
	if g.query = ask.Query; g.query == "" && !g.state.Answered {
		g.query = said
	}
	for _, m := range stored {
		if mark, _ := recalledIn(&m); mark.Recall.Query == queryMark(g.query) {
			g.stored = &m
			break
		}
	}
	return g, nil
}

// back reads back to the last answer. It returns the newest thing that a person said, and
// what was recalled, newest first.
func back(ctx context.Context, view history.View) (said string, stored []history.Message, err error) {
	n, passed := 0, 0
	for r, err := range view.Backward(view.State().LastSeq + 1) {
		if err == nil {
			err = ctx.Err()
		}
		if err != nil {
			return "", nil, fmt.Errorf("look back: %w", err)
		}
		m, err := decode(r)
		if err != nil {
			return "", nil, err
		}
		if passed++; m.Rewound && passed <= maxPassed {
			continue
		}
		if n++; m.Rewound || m.Role == history.Assistant || n > maxGlimpse {
			break
		}
		if _, ok := recalledIn(&m); ok {
			stored = append(stored, m)
		}
		if m.StartsTurn() && said == "" {
			said = saidIn(&m)
		}
	}
	return said, stored, nil
}

func saidIn(m *history.Message) string {
	var texts []string
	for i := range m.Content {
		if b := &m.Content[i]; b.Type == history.TextBlock && strings.TrimSpace(b.Text) != "" {
			texts = append(texts, b.Text)
		}
	}
	return strings.TrimSpace(strings.Join(texts, "\n"))
}

// Search finds messages in all conversations of the scope. Errors are those of recall.Index.
func (p *Pipeline) Search(ctx context.Context, scope identity.Scope, q recall.Query) (recall.Results, error) {
	found, err := p.index.Search(ctx, scope, q)
	if err != nil {
		return recall.Results{}, fmt.Errorf("search: %w", err)
	}
	return found, nil
}

// added tells the index of a commit, and of one that may have been made though that is
// not known, or may still be: nobody waits for what was begun, but it goes on.
func (p *Pipeline) added(c Conversation, r history.Receipt, err error) {
	switch result(r, err) {
	case "ok":
		p.index.Touch(c.Scope, c.Name)
	case "canceled", "failed":
		p.index.Doubt(c.Scope, c.Name)
	}
}

// A forgetting takes a conversation out of the index before its record is cleared,
// rewound or replaced. So when that is answered, and after a crash, no word of what is
// gone is in the index; and an index that can't forget keeps the change from being made,
// instead of making a failure of one that is durable.
type forgetting struct {
	index Searcher
	done  func() // nil until something was forgotten
}

// begin comes right before the change. Its error ends the change.
func (f *forgetting) begin(ctx context.Context, c Conversation) (err error) {
	if f.done, err = f.index.Forget(ctx, c.Scope, c.Name); err != nil {
		return unforgotten(err)
	}
	return nil
}

// end comes after the change, whether it was made or not.
func (f *forgetting) end() {
	if f.done != nil {
		f.done()
	}
}

func unforgotten(err error) error {
	return fmt.Errorf("take it out of the index: %w: %w", history.ErrUnavailable, err)
}
