package pipeline

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json/jsontext"
	"errors"
	"fmt"
	"iter"
	"strconv"
	"time"

	"historyd/internal/history"
	"historyd/internal/projection"
)

// A Document is a whole conversation that comes in as one value.
type Document struct {
	Messages   []history.Message
	Categories map[string]string // of tools, as in Turn
	CreatedAt  time.Time         // zero means unknown; only a new record takes it
	Mode       history.ImportMode
	Repair     bool // drop what cannot be right instead of refusing the document
	// Faults are what its reader found wrong. Such a document is not imported: what
	// else is wrong with its messages is told, too.
	Faults *history.Faults
	Key    string // idempotency key; none when empty
}

// Imported tells what became of a document.
type Imported struct {
	history.Receipt
	Skipped  []Skipped // in the record already
	Repaired []Repaired
	Changed  map[string]int64 // how many values of what was added projection altered, by action; nil when none
}

// Skipped names a message of the document that the record holds already.
type Skipped struct {
	Index int    `json:"index"` // in the document
	ID    string `json:"id"`
}

// Repaired tells what of the document was left out to make it right.
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
func (p *Pipeline) Import(ctx context.Context, c Conversation, d Document) (Imported, error) {
	out, err := p.load(ctx, c, d)
	p.metrics.imported(d.Mode, out.Receipt, err)
	return out, err
}

func (p *Pipeline) load(ctx context.Context, c Conversation, d Document) (Imported, error) {
	kept, positions, told, err := p.admit(d)
	if err != nil {
		return Imported{}, err
	}
	sum, sizes := fingerprint("import "+string(d.Mode), kept)
	var have map[int]bool // messages that the record holds already
	receipt, err := p.open(c).Import(ctx, history.Import{
		Mode:        d.Mode,
		Messages:    each(kept.Messages),
		CreatedAt:   func() time.Time { return d.CreatedAt },
		Key:         d.Key,
		Fingerprint: func() [32]byte { return sum },
		Remember:    note{Categories: kept.Categories}.encode,
		Note: func(skipped []int64) jsontext.Value {
			told.Skipped, have = nil, map[int]bool{}
			for _, i := range skipped {
				told.Skipped = append(told.Skipped, Skipped{positions[i], kept.Messages[i].ID})
				have[int(i)] = true
			}
			told.Changed = counted(kept.Changes, have)
			return note{Import: &told}.encode()
		},
		Fold: p.compactor,
	})
	if err != nil {
		return Imported{}, fmt.Errorf("import: %w", err)
	}
	// As in Record: nothing may make a failure of it any more.
	if receipt.Replayed {
		n, err := readNote(receipt.Note)
		if err != nil || n.Import == nil {
			p.log.ErrorContext(ctx, "note of a replayed import not readable", "error", err)
			n.Import = &importNote{}
		}
		told = *n.Import
	} else {
		p.metrics.stored("import", sizes, kept.Changes, have)
	}
	return Imported{receipt, told.Skipped, told.Repaired, told.Changed}, nil
}

// admit checks and projects the messages of a document. positions are theirs in it.
func (p *Pipeline) admit(d Document) (kept projection.Kept, positions []int, told importNote, err error) {
	// A repair may drop messages; Seq, which an import has no use for, carries the place.
	placed := make([]history.Message, len(d.Messages))
	for i, m := range d.Messages {
		m.Seq = int64(i)
		placed[i] = m
	}
	var faults history.Faults
	if d.Faults != nil {
		faults = *d.Faults
	}
	checker := projection.NewChecker(d.Repair, &faults)
	var checked []history.Message
	for i, m := range placed {
		if m, ok := checker.Message(int64(i), m); ok {
			checked = append(checked, m)
		}
	}
	repaired, _ := checker.Repaired()
	if err := faults.Err(); err != nil {
		return kept, nil, told, fmt.Errorf("check: %w", err)
	}
	for _, r := range repaired {
		told.Repaired = append(told.Repaired, Repaired(r))
	}
	positions = make([]int, len(checked))
	for i := range checked {
		positions[i] = int(checked[i].Seq)
		checked[i].Seq = 0
	}
	kept, err = p.policy.Load().Keep(checked, projection.Request{Categories: d.Categories})
	if err != nil {
		return kept, nil, told, fmt.Errorf("project: %w", err)
	}
	deriveIDs(kept.Messages)
	return kept, positions, told, nil
}

// counted counts the changes by action, but for those of messages that were skipped.
func counted(changes []projection.Change, skipped map[int]bool) map[string]int64 {
	var n map[string]int64
	for _, c := range changes {
		if skipped[c.Message] {
			continue
		}
		if n == nil {
			n = map[string]int64{}
		}
		n[c.Action]++
	}
	return n
}

// deriveIDs gives an id to each message that has none.
func deriveIDs(msgs []history.Message) {
	taken := make(map[string]bool, len(msgs))
	for i := range msgs {
		if id := msgs[i].ID; id != "" {
			taken[id] = true
		}
	}
	alike := map[[sha256.Size]byte]int{}
	var line []byte
	for i := range msgs {
		if msgs[i].ID != "" {
			continue
		}
		line = history.AppendMessage(line[:0], &msgs[i])
		content := sha256.Sum256(line)
		for msgs[i].ID == "" || taken[msgs[i].ID] {
			alike[content]++
			msgs[i].ID = derivedID(content, alike[content])
		}
		taken[msgs[i].ID] = true
	}
}

func derivedID(content [sha256.Size]byte, occurrence int) string {
	sum := sha256.Sum256(strconv.AppendInt(content[:], int64(occurrence), 10))
	return "imp_" + hex.EncodeToString(sum[:16])
}

func each(msgs []history.Message) iter.Seq2[history.Message, error] {
	return func(yield func(history.Message, error) bool) {
		for _, m := range msgs {
			if !yield(m, nil) {
				return
			}
		}
	}
}

// An Export is a conversation pinned for reading it whole, which takes no more
// memory than a message. Whoever opened it closes it.
type Export struct {
	State   history.State
	Summary *Summary
	view    history.View

	lastNote jsontext.Value
	said     *projection.Said
}

// Categories returns what agents said of their tools with the messages that Records
// has yielded so far; an import takes it, and so withholds no more of them than is
// withheld now. Where they said different things of one tool, the mildest holds.
func (e *Export) Categories() map[string]string { return e.said.Categories() }

// Damage tells what of the conversation could not be read so far; nil when nothing was.
func (e *Export) Damage() *history.Damage { return e.view.Damage() }

func (e *Export) remember(v jsontext.Value) error {
	if v == nil || bytes.Equal(v, e.lastNote) {
		return nil
	}
	e.lastNote = bytes.Clone(v)
	n, err := readNote(v)
	if err != nil {
		return err
	}
	e.said.Add(n.Categories)
	return nil
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
