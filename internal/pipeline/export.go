package pipeline

import (
	"bytes"
	"context"
	"encoding/json/jsontext"
	"errors"
	"fmt"
	"iter"

	"historyd/internal/history"
	"historyd/internal/projection"
)

// An Export is a conversation pinned for reading it whole, which takes no more
// memory than a message or an attachment, and the names of attachments. Whoever
// opened it closes it.
type Export struct {
	State   history.State
	Summary *Summary
	view    history.View

	notes noteReader
	said  *projection.Said
	named []*Attached
}

// An Attached is an attachment that messages of an export name.
type Attached struct {
	Name      string
	MediaType string // as the first message that gives one says
}

// Export opens the conversation; history.ErrNotFound when there is none.
func (p *Pipeline) Export(ctx context.Context, c Conversation) (*Export, error) {
	view, err := p.open(c).View(ctx)
	if err != nil {
		return nil, fmt.Errorf("view: %w", err)
	}
	e := &Export{State: view.State(), view: view, said: p.policy.Load().Said()}
	if !e.State.Exists() {
		view.Close()
		return nil, fmt.Errorf("export: %w", history.ErrNotFound)
	}
	e.Summary = p.Frame(e.State.Summary)
	p.metrics.exports.Inc()
	return e, nil
}

// Scan reads the conversation once through, so that Categories, Attachments and Damage
// tell all before anything is written. It reads every attachment, to find out which
// are lost.
func (e *Export) Scan(ctx context.Context) error {
	e.named = nil
	known, types := map[string]*Attached{}, kinds{}
	for r, err := range e.Records(ctx) {
		if err != nil {
			return err
		}
		if !bytes.Contains(r.JSON, []byte(`"attachment":"`)) {
			continue
		}
		m, err := decode(r)
		if err != nil {
			return err
		}
		m.MediaBlocks(func(b *history.Block) {
			if b.Attachment == "" {
				return
			}
			a := known[b.Attachment]
			if a == nil {
				a = &Attached{Name: b.Attachment}
				known[a.Name], e.named = a, append(e.named, a)
			}
			if a.MediaType == "" {
				a.MediaType = types.of(b.MediaType)
			}
		})
	}
	for _, a := range e.named {
		got, err := e.Attachment(ctx, a.Name)
		if err != nil && !errors.Is(err, history.ErrNotFound) && !errors.Is(err, history.ErrDamaged) {
			return err
		}
		if a.MediaType == "" {
			a.MediaType = types.of(got.MediaType)
		}
	}
	return nil
}

// Attachments are those that Scan has found, in the order in which they are named first.
func (e *Export) Attachments() []*Attached { return e.named }

// Attachment reads the bytes of one that a message names.
func (e *Export) Attachment(ctx context.Context, name string) (history.Attachment, error) {
	if err := ctx.Err(); err != nil {
		return history.Attachment{}, err
	}
	a, err := e.view.Named(name)
	if err != nil {
		return history.Attachment{}, fmt.Errorf("attachment: %w", err)
	}
	return a, nil
}

// Categories returns what agents said of their tools with the messages that Scan or
// Records has read so far; an import takes it, and so withholds no more of them than
// is withheld now. Where they said different things of one tool, the mildest holds.
func (e *Export) Categories() map[string]string { return e.said.Categories() }

// Damage tells what of the conversation could not be read so far; nil when nothing was.
func (e *Export) Damage() *history.Damage { return e.view.Damage() }

func (e *Export) remember(v jsontext.Value) error {
	n, err := e.notes.read(v)
	if err != nil {
		return err
	}
	e.said.Add(n.Categories)
	return nil
}

// Records yields what is stored, from the first message to the last.
func (e *Export) Records(ctx context.Context) iter.Seq2[history.Record, error] {
	return func(yield func(history.Record, error) bool) {
		for r, err := range e.view.Records(1, e.State.LastSeq) {
			if err == nil {
				err = errors.Join(ctx.Err(), e.remember(r.Note))
			}
			if err != nil {
				yield(history.Record{}, fmt.Errorf("read the record: %w", err))
				return
			}
			if !yield(r, nil) {
				return
			}
		}
	}
}

// Decode reads a record, as Replay does.
func (e *Export) Decode(r history.Record) (history.Message, error) { return decode(r) }

// Close ends the reading.
func (e *Export) Close() { e.view.Close() }
