package pipeline

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json/v2"
	"errors"
	"fmt"
	"hash"

	"historyd/internal/history"
	"historyd/internal/projection"
)

// A Turn is what an agent did, to be added at the end of a conversation.
type Turn struct {
	Messages   []history.Message
	Categories map[string]string      // of tools, by name; "*" names all the others
	Key        string                 // idempotency key; none when empty
	IfMatch    func(etag string) bool // nil means no condition
	Stays      bool                   // as in history.Batch
}

// Recorded tells what was committed, and what was altered before.
type Recorded struct {
	history.Receipt
	Changes []Change
}

// A Change is one thing that was altered before it was stored.
type Change struct {
	Seq           int64
	Block         int
	Action        string
	Category      string
	Reason        string
	OriginalChars int64
}

// Record adds the turn at the end of the conversation, whole or not at all, after
// projection. It is durable once Record returns nil. A key that was used before
// gives the first answer again, and a request that projects to something else
// history.ErrKeyMismatch.
func (p *Pipeline) Record(ctx context.Context, c Conversation, t Turn) (Recorded, error) {
	out, err := p.record(ctx, c, t)
	p.metrics.appended(out.Receipt, err)
	p.added(c, out.Receipt, err)
	return out, err
}

func (p *Pipeline) record(ctx context.Context, c Conversation, t Turn) (Recorded, error) {
	log := p.open(c)
	kept, err := p.policy.Load().Keep(t.Messages, projection.Request{
		Categories: t.Categories,
		FindCalls:  finder(ctx, log),
	})
	if err != nil {
		return Recorded{}, fmt.Errorf("project: %w", err)
	}
	print, stored := &fingerprint{}, tally{}
	if t.Key != "" { // else nothing is compared
		print = newFingerprint("append")
	}
	for i := range kept.Messages {
		m := kept.Messages[i]
		size := int64(0)
		if m.ClientID != "" {
			// Whoever sends a turn again may make its messages anew, with other ids.
			size = int64(len(`,"client_id":""`) + len(m.ClientID))
			m.ClientID = ""
		}
		stored.message(size + print.add(&m))
	}
	for _, c := range kept.Changes {
		stored.change(c)
	}
	receipt, err := log.Append(ctx, history.Batch{
		Messages:    kept.Messages,
		Key:         t.Key,
		Fingerprint: print.sum(kept.Categories),
		IfMatch:     t.IfMatch,
		Note:        note{Changes: noted(kept.Changes), Categories: kept.Categories}.encode(),
		Fold:        p.compactor,
		Stays:       t.Stays,
	})
	if err != nil {
		return Recorded{}, fmt.Errorf("append: %w", located(err, t.Messages))
	}
	// From here on the turn is durable, and nothing may make a failure of it.
	p.folded(ctx, c, receipt)
	if receipt.Replayed {
		return p.recall(ctx, receipt), nil
	}
	p.metrics.stored("append", &stored)
	return Recorded{receipt, changes(noted(kept.Changes), receipt.FirstSeq)}, nil
}

// located says of an attachment that is not there where the turn names it first.
func located(err error, msgs []history.Message) error {
	var missing *history.NoAttachment
	if !errors.As(err, &missing) {
		return err
	}
	var faults history.Faults
	var look func(blocks []history.Block, path string)
	look = func(blocks []history.Block, path string) {
		for i := range blocks {
			at := fmt.Sprintf("%s.content[%d]", path, i)
			if b := &blocks[i]; len(faults.List) == 0 && b.Media() && b.Attachment == missing.Name {
				faults.Add(at+".attachment", history.CodeInvalidMessage, -1, "the conversation holds no attachment of this name: send its bytes as data")
			}
			look(blocks[i].Content, at)
		}
	}
	for i := range msgs {
		look(msgs[i].Content, fmt.Sprintf("messages[%d]", i))
	}
	if where := faults.Err(); where != nil {
		return fmt.Errorf("%w: %w", err, where)
	}
	return err
}

// recall makes the first answer again from its receipt.
func (p *Pipeline) recall(ctx context.Context, receipt history.Receipt) Recorded {
	n, err := readNote(receipt.Note)
	if err != nil {
		p.log.ErrorContext(ctx, "note of a replayed append not readable", "error", err)
	}
	return Recorded{receipt, changes(n.Changes, receipt.FirstSeq)}
}

func changes(list []notedChange, first int64) []Change {
	var out []Change
	for _, c := range list {
		out = append(out, Change{first + int64(c.Message), c.Block, c.Action, c.Category, c.Reason, c.OriginalChars})
	}
	return out
}

// finder looks calls up in the record for results that arrive after them. Whatever
// keeps it from an answer is an error, which projection takes as a reason to withhold.
func finder(ctx context.Context, log history.Log) func(string, bool) ([]projection.Found, error) {
	return func(id string, all bool) ([]projection.Found, error) {
		calls, err := log.FindCalls(ctx, id, all)
		if errors.Is(err, history.ErrNotFound) {
			return nil, nil
		}
		if err != nil {
			return nil, fmt.Errorf("find calls: %w", err)
		}
		var found []projection.Found
		var n note
		for i, call := range calls {
			if i == 0 || !bytes.Equal(call.Note, calls[i-1].Note) {
				if n, err = readNote(call.Note); err != nil {
					return nil, err
				}
			}
			f := projection.Found{Name: call.Name}
			category, told := n.Categories[call.Name]
			if told {
				f.Categories = map[string]string{call.Name: category}
			}
			if call.Withheld != "" && call.Withheld != projection.Unknown && call.Withheld != category {
				// An import brought the call as it was withheld before.
				found = append(found, projection.Found{Name: call.Name, Categories: map[string]string{call.Name: call.Withheld}})
				if !told {
					continue
				}
			}
			found = append(found, f)
		}
		return found, nil
	}
}

// A fingerprint tells one request from another by what is kept of it, so that it
// says nothing of a withheld value.
type fingerprint struct {
	hash hash.Hash // nil where sizes alone are asked for
	line []byte    // for use again
}

func newFingerprint(door string) *fingerprint {
	f := &fingerprint{hash: sha256.New()}
	fmt.Fprintln(f.hash, door)
	return f
}

// add adds a message, and returns its size.
func (f *fingerprint) add(m *history.Message) int64 {
	of := *m
	of.Seq = 0
	f.line = append(history.AppendMessage(f.line[:0], &of), '\n')
	if f.hash != nil {
		f.hash.Write(f.line)
	}
	return int64(len(f.line))
}

// sum ends the fingerprint with what the request said of the tools called.
func (f *fingerprint) sum(categories map[string]string) [32]byte {
	if f.hash == nil {
		return [32]byte{}
	}
	if len(categories) > 0 {
		// Encoding a map of strings cannot fail but for invalid UTF-8, which the doors refuse.
		v, _ := json.Marshal(categories, json.Deterministic(true))
		f.hash.Write(v)
	}
	return [32]byte(f.hash.Sum(nil))
}
