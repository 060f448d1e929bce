package pipeline

import (
	"context"
	"encoding/json/jsontext"
	"encoding/json/v2"
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
	// Touch says that something was added to the conversation. It never waits.
	Touch(scope identity.Scope, conversation string)
	// Forget removes all of the conversation, durably. It comes after the change of the record.
	Forget(ctx context.Context, scope identity.Scope, conversation string) error
	ForgetAll(ctx context.Context, scope identity.Scope) error
}

// A Recaller asks retrievers. *recall.Recaller is one.
type Recaller interface {
	Recall(ctx context.Context, ask recall.Ask) recall.Recalled
}

// nothing stands in for what is not configured.
type nothing struct{}

func (nothing) Search(context.Context, identity.Scope, recall.Query) (recall.Results, error) {
	return recall.Results{}, nil
}
func (nothing) Touch(identity.Scope, string)                         {}
func (nothing) Forget(context.Context, identity.Scope, string) error { return nil }
func (nothing) ForgetAll(context.Context, identity.Scope) error      { return nil }
func (nothing) Recall(context.Context, recall.Ask) recall.Recalled   { return recall.Recalled{} }

// A RecallAsk asks for what is already known.
type RecallAsk struct {
	Workspace string // the caller's
	// Query is what to look for. When it is empty the newest thing that a person said
	// is, and only on the first turn: while no answer is in the record.
	Query string
	// Store keeps what was found as a reference message, so that later replays show
	// what the model saw.
	Store bool
}

// Recalled is what is known.
type Recalled struct {
	recall.Recalled
	Skipped bool   // not the first turn, or there is nothing to ask for
	Seq     int64  // of the reference message; 0 when none is stored
	ETag    string // of the conversation then; empty when none was stored
}

// recallMark is what the metadata of a stored recall says of it.
type recallMark struct {
	Recall struct {
		Retrievers []markedStatus `json:"retrievers"`
		Truncated  bool           `json:"truncated,omitzero"`
	} `json:"recall"`
}

type markedStatus struct {
	Name   string `json:"name"`
	Status string `json:"status"`
	Hits   int    `json:"hits"`
}

// Recall asks the retrievers. Whatever they do, it answers within the deadline of the
// configuration; its error is one of reading or of storing. What is shown verbatim
// anyway is not recalled. With Store, a recall that is stored since the last answer is
// given again instead, so that a retry stores nothing twice.
func (p *Pipeline) Recall(ctx context.Context, c Conversation, ask RecallAsk) (Recalled, error) {
	now, err := p.look(ctx, c, ask.Query == "" || ask.Store)
	if err != nil {
		return Recalled{}, err
	}
	query := ask.Query
	if query == "" {
		query = now.said
		if now.state.Answered || query == "" {
			return Recalled{Skipped: true}, nil
		}
	}
	if ask.Store && now.stored != nil {
		return again(now.stored), nil
	}
	through := int64(0)
	if s := now.state.Summary; s != nil {
		through = s.ThroughSeq
	}
	out := Recalled{Recalled: p.recaller.Recall(ctx, recall.Ask{
		Scope: c.Scope, Workspace: ask.Workspace, Conversation: c.Name, Query: query, Through: through,
	})}
	if !ask.Store || out.Text == "" {
		return out, nil
	}
	done, err := p.Record(ctx, c, Turn{Messages: []history.Message{reference(&out.Recalled)}})
	if err != nil {
		return Recalled{}, fmt.Errorf("store a recall: %w", err)
	}
	out.Seq, out.ETag = done.LastSeq, history.ETag(done.Epoch, done.LastSeq)
	return out, nil
}

// reference makes a message of what was recalled: text that software put in.
func reference(r *recall.Recalled) history.Message {
	var mark recallMark
	for _, s := range r.Retrievers {
		mark.Recall.Retrievers = append(mark.Recall.Retrievers, markedStatus{s.Name, string(s.Status), s.Hits})
	}
	mark.Recall.Truncated = r.Truncated
	metadata, err := json.Marshal(mark)
	if err != nil {
		metadata = nil // names of retrievers are plain, so never
	}
	return history.Message{
		Role: history.User, Kind: history.Reference, Status: history.Complete,
		Content: []history.Block{history.Text(r.Text)}, Metadata: jsontext.Value(metadata),
	}
}

// recalledIn returns what a message that reference made says; false of any other.
func recalledIn(m *history.Message) (mark recallMark, ok bool) {
	if m.Role != history.User || m.Kind != history.Reference || m.Metadata == nil || m.Imported || len(m.Content) != 1 {
		return mark, false
	}
	err := json.Unmarshal(m.Metadata, &mark)
	return mark, err == nil && mark.Recall.Retrievers != nil
}

func again(m *history.Message) Recalled {
	mark, _ := recalledIn(m)
	out := Recalled{Seq: m.Seq}
	out.Text, out.Truncated = m.Content[0].Text, mark.Recall.Truncated
	for _, s := range mark.Recall.Retrievers {
		out.Retrievers = append(out.Retrievers, recall.Status{Name: s.Name, Status: recall.State(s.Status), Hits: s.Hits})
	}
	return out
}

// A glimpse is what a recall has to know of its conversation.
type glimpse struct {
	state  history.State
	said   string           // the newest thing that a person said, since the last answer
	stored *history.Message // the recall that is stored since the last answer
}

// maxGlimpse is how many messages are looked at.
const maxGlimpse = 64

func (p *Pipeline) look(ctx context.Context, c Conversation, back bool) (g glimpse, err error) {
	view, err := p.open(c).View(ctx)
	if err != nil {
		return g, fmt.Errorf("view: %w", err)
	}
	defer view.Close()
	g.state = view.State()
	if !back || !g.state.Exists() {
		return g, nil
	}
	n := 0
	for r, err := range view.Backward(g.state.LastSeq + 1) {
		if err == nil {
			err = ctx.Err()
		}
		if err != nil {
			return g, fmt.Errorf("look back: %w", err)
		}
		m, err := decode(r)
		if err != nil {
			return g, err
		}
		if m.Role == history.Assistant || n == maxGlimpse {
			break
		}
		n++
		if m.Rewound {
			continue
		}
		if _, ok := recalledIn(&m); ok && g.stored == nil {
			g.stored = &m
		}
		if m.StartsTurn() && g.said == "" {
			g.said = saidIn(&m)
		}
	}
	return g, nil
}

func saidIn(m *history.Message) string {
	var texts []string
	for i := range m.Content {
		if b := &m.Content[i]; b.Type == history.TextBlock && strings.TrimSpace(b.Text) != "" {
			texts = append(texts, b.Text)
		}
	}
	return strings.Join(texts, "\n")
}

// Search finds messages in all conversations of the scope. Errors are those of recall.Index.
func (p *Pipeline) Search(ctx context.Context, scope identity.Scope, q recall.Query) (recall.Results, error) {
	found, err := p.index.Search(ctx, scope, q)
	if err != nil {
		return recall.Results{}, fmt.Errorf("search: %w", err)
	}
	return found, nil
}

// forget takes a conversation whose record was cleared, rewound or replaced out of the
// index. Only when it has worked is the change complete.
func (p *Pipeline) forget(ctx context.Context, c Conversation) error {
	if err := p.index.Forget(ctx, c.Scope, c.Name); err != nil {
		return fmt.Errorf("take it out of the index: %w: %w", history.ErrUnavailable, err)
	}
	return nil
}
