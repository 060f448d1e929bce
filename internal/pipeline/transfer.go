package pipeline

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"time"

	"historyd/internal/history"
)

// A Source is a document that is being read. It is read once, from the beginning to
// the end, and holds no more of it than a message or an attachment.
type Source interface {
	// Messages yields the messages in order; the Seq of each is its position in the
	// document. An error ends the document; one that brings *history.Faults has those that
	// Faults tells. What is wrong with a message is told by
	// Faults, and the message is good only for looking at the whole then. Of one that could
	// not be read at all there is nothing but the Seq.
	Messages() iter.Seq2[history.Message, error]
	// Attachments yields the bytes that messages name, each verified against its name. Where
	// it gives no type, it is the one that a message gives first.
	// It is called after Messages has ended.
	Attachments() iter.Seq2[history.Attachment, error]
	// Faults are what is wrong with the document so far, all when Messages has ended.
	// It may be nil.
	Faults() *history.Faults
	// Categories are those of the document's tools, as in Turn. They are known once
	// the first message has been yielded.
	Categories() map[string]string
	// CreatedAt is known once Messages has ended. Zero means unknown; only a new record
	// takes it.
	CreatedAt() time.Time
}

// A Document is a whole conversation that comes in as one value.
type Document struct {
	Source Source
	Mode   history.ImportMode
	Repair bool   // drop or replace what cannot be right instead of refusing the document
	Key    string // idempotency key; none when empty
}

// Imported tells what became of a document.
type Imported struct {
	history.Receipt
	Skipped       []Skipped // in the record already: the first MaxTold
	SkippedTotal  int64
	Repaired      []Repaired // the first MaxTold
	RepairedTotal int64
	Changed       map[string]int64 // how many values of what was added projection altered, by action; nil when none
}

// MaxTold is how many messages that were skipped, and how many repairs, are told one by one.
const MaxTold = history.MaxSkipped

// Skipped names a message of the document that the record holds already.
type Skipped struct {
	Index int64  `json:"index"` // in the document
	ID    string `json:"id"`
}

// Repaired tells what of the document was left out or replaced to make it right.
type Repaired struct {
	Path   string `json:"path"`
	Code   string `json:"code"`
	Detail string `json:"detail"`
}

// Import adds the document to the conversation, whole or not at all, after the
// same projection as an append. What is wrong with it is a *history.Faults that
// tells all. A message without an id gets one that depends on its content and on
// how many like it came before, so that the same document, or a longer one of the
// same beginning, adds only what is new.
//
// A document without messages adds nothing, and makes no conversation of none; that it
// should replace one is a fault.
//
// The document is taken in parts: what is held of it does not grow with its length,
// but for 16 bytes a message or an attachment that comes with one, as many twice for a call
// that waits for its result, and less than 100 for each of up to 100,000 attachments that
// come behind the messages.
func (p *Pipeline) Import(ctx context.Context, c Conversation, d Document) (Imported, error) {
	out, err := p.load(ctx, c, d)
	p.added(c, out.Receipt, err)
	p.metrics.imported(d.Mode, out.Receipt, err)
	return out, err
}

func (p *Pipeline) load(ctx context.Context, c Conversation, d Document) (Imported, error) {
	log := p.open(c)
	in := newIntake(d, p.policy.Load(), p.maxMessages)
	if d.Mode == history.Extend {
		view, err := log.View(ctx)
		if err != nil {
			return Imported{}, fmt.Errorf("view: %w", err)
		}
		defer view.Close()
		if err := in.know(ctx, view); err != nil {
			return Imported{}, fmt.Errorf("read the record: %w", err)
		}
	}
	f := forgetting{index: p.index}
	defer f.end()
	var before func() error
	if d.Mode == history.Replace {
		before = func() error { return f.begin(ctx, c) }
	}
	receipt, err := log.Import(ctx, history.Import{
		Mode:        d.Mode,
		Before:      before,
		Messages:    in.messages(ctx),
		Attachments: in.attachments(ctx),
		Key:         d.Key,
		CreatedAt:   d.Source.CreatedAt,
		Fingerprint: in.fingerprint,
		Remember:    in.remember,
		Note:        in.note,
		Mend:        in.mend,
		Fold:        p.compactor,
	})
	if errors.Is(err, errNothing) {
		state, serr := log.State(ctx)
		receipt, err = history.Receipt{Epoch: state.Epoch, LastSeq: state.LastSeq}, serr
		in.note(nil)
	}
	if err != nil {
		return Imported{}, fmt.Errorf("import: %w", err)
	}
	// As in Record: nothing may make a failure of it any more.
	p.folded(ctx, c, receipt)
	told := p.toldOf(ctx, in, &receipt)
	return Imported{
		Receipt:       receipt,
		Skipped:       told.Skipped,
		SkippedTotal:  max(told.SkippedTotal, int64(len(told.Skipped))),
		Repaired:      told.Repaired,
		RepairedTotal: max(told.RepairedTotal, int64(len(told.Repaired))),
		Changed:       told.Changed,
	}, nil
}

// toldOf is what an import has to tell; one that was made before tells what it told then.
func (p *Pipeline) toldOf(ctx context.Context, in *intake, receipt *history.Receipt) importNote {
	if !receipt.Replayed {
		p.metrics.stored("import", &in.tally)
		told := in.told
		told.SkippedTotal = receipt.Skipped
		return told
	}
	n, err := readNote(receipt.Note)
	if err != nil {
		p.log.ErrorContext(ctx, "note of a replayed import not readable", "error", err)
	}
	if n.Import == nil { // an import that changed nothing left no note
		return importNote{}
	}
	return *n.Import
}
