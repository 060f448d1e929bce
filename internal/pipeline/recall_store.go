package pipeline

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json/jsontext"
	"encoding/json/v2"
	"errors"
	"fmt"

	"historyd/internal/history"
	"historyd/internal/identity"
	"historyd/internal/recall"
)

// recallMark is what the metadata of a stored recall says of it. Only the server makes
// messages that are synthetic, so nobody else's metadata is taken for one.
type recallMark struct {
	Recall struct {
		Query      string         `json:"query"` // queryMark of it
		Retrievers []markedStatus `json:"retrievers"`
		Truncated  bool           `json:"truncated,omitzero"`
	} `json:"recall"`
}

type markedStatus struct {
	Name   string `json:"name"`
	Status string `json:"status"`
	Hits   int    `json:"hits"`
}

// queryMark tells one query from another without saying it.
func queryMark(query string) string {
	sum := sha256.Sum256([]byte(query))
	return hex.EncodeToString(sum[:8])
}

// reference makes a message of what was recalled: text that the server put in.
func reference(query string, r *recall.Recalled) history.Message {
	var mark recallMark
	mark.Recall.Query = queryMark(query)
	for _, s := range r.Retrievers {
		mark.Recall.Retrievers = append(mark.Recall.Retrievers, markedStatus{s.Name, string(s.Status), s.Hits})
	}
	mark.Recall.Truncated = r.Truncated
	metadata, err := json.Marshal(mark)
	if err != nil {
		metadata = nil // names of retrievers are plain, so never
	}
	return history.Message{
		Role: history.User, Kind: history.Reference, Status: history.Complete, Synthetic: true,
		Content: []history.Block{history.Text(r.Text)}, Metadata: jsontext.Value(metadata),
	}
}

// recalledIn returns what a message that reference made says; false of any other.
func recalledIn(m *history.Message) (mark recallMark, ok bool) {
	if !m.Synthetic || m.Kind != history.Reference || m.Metadata == nil || m.Imported || len(m.Content) != 1 {
		return mark, false
	}
	err := json.Unmarshal(m.Metadata, &mark)
	return mark, err == nil && mark.Recall.Retrievers != nil
}

// again is a stored recall as it was answered, but for its items.
func again(m *history.Message) Recalled {
	mark, _ := recalledIn(m)
	out := Recalled{Seq: m.Seq}
	out.Text, out.Truncated = m.Content[0].Text, mark.Recall.Truncated
	for _, s := range mark.Recall.Retrievers {
		out.Retrievers = append(out.Retrievers, recall.Status{Name: s.Name, Status: recall.State(s.Status), Hits: s.Hits})
	}
	return out
}

// maxStores is how often a recall is tried to be stored in a conversation that moves on.
const maxStores = 8

// errFaded is for what was found in a conversation that was cleared or rewound meanwhile.
var errFaded = fmt.Errorf("what was recalled is gone: %w", history.ErrGone)

// store keeps what was recalled at the end of a conversation that was seen as in now,
// unless somebody else did so meanwhile: then out becomes theirs. Nothing is stored in
// another life of the conversation, none that is gone where it was found, and none for a
// turn that is over.
func (p *Pipeline) store(ctx context.Context, c Conversation, ask RecallAsk, now glimpse, out *Recalled) error {
	query, epoch := now.query, now.state.Epoch
	for range maxStores {
		if err := p.stand(ctx, c.Scope, out.Items); err != nil {
			return err
		}
		seen := now.state.ETag()
		done, err := p.Record(ctx, c, Turn{
			Messages: []history.Message{reference(query, &out.Recalled)},
			IfMatch:  func(etag string) bool { return etag == seen },
		})
		if err == nil {
			out.Seq, out.ETag = done.LastSeq, history.ETag(done.Epoch, done.LastSeq)
			return nil
		}
		if !errors.Is(err, history.ErrPrecondition) {
			return fmt.Errorf("store a recall: %w", err)
		}
		if now, err = p.look(ctx, c, ask); err != nil {
			return err
		}
		switch {
		case epoch != "" && now.state.Epoch != epoch:
			return fmt.Errorf("store a recall: %w", history.ErrGone)
		case now.query != query:
			return fmt.Errorf("store a recall for a turn that is over: %w", history.ErrPrecondition)
		case now.stored != nil:
			*out = again(now.stored)
			return nil
		}
		epoch = now.state.Epoch
	}
	return fmt.Errorf("store a recall: %w", history.ErrPrecondition)
}

// stand returns errFaded when an item is of a conversation that was cleared or rewound
// since: what is gone must not come back by being remembered.
func (p *Pipeline) stand(ctx context.Context, scope identity.Scope, items []recall.Item) error {
	checked := map[string]bool{}
	for _, it := range items {
		if it.Conversation == "" || checked[it.Conversation] {
			continue
		}
		checked[it.Conversation] = true
		s, err := p.State(ctx, Conversation{scope, it.Conversation})
		if err != nil {
			return err
		}
		if s.Epoch != it.Epoch {
			return errFaded
		}
	}
	return nil
}

// shown returns the recalls that are stored and shown verbatim, newest first: those after
// that message, among the last of the conversation.
func (p *Pipeline) shown(ctx context.Context, c Conversation, through int64) ([]string, error) {
	blocks, err := p.shownOnce(ctx, c, through)
	if errors.Is(err, history.ErrGone) {
		blocks, err = p.shownOnce(ctx, c, through)
	}
	return blocks, err
}

func (p *Pipeline) shownOnce(ctx context.Context, c Conversation, through int64) (blocks []string, err error) {
	view, err := p.open(c).View(ctx)
	if err != nil {
		return nil, fmt.Errorf("view: %w", err)
	}
	defer view.Close()
	read := 0
	for r, err := range view.Backward(view.State().LastSeq + 1) {
		if err == nil {
			err = ctx.Err()
		}
		if err != nil {
			return nil, fmt.Errorf("look back for recalls: %w", err)
		}
		if read++; r.Seq <= through || read > maxPassed {
			break
		}
		m, err := decode(r)
		if err != nil {
			return nil, err
		}
		if _, ok := recalledIn(&m); ok && !m.Rewound {
			blocks = append(blocks, m.Content[0].Text)
		}
	}
	return blocks, nil
}
