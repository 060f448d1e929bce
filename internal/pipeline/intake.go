package pipeline

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json/jsontext"
	"errors"
	"fmt"
	"iter"
	"strconv"

	"historyd/internal/history"
	"historyd/internal/projection"
)

// Limits of an import.
const (
	maxMessages     = 2_000_000
	maxPartMessages = 10_000
	maxPartBytes    = 8 << 20
)

// errUnread marks what the source of a document says of it.
var errUnread = errors.New("not readable")

// A mark is the beginning of a SHA-256, which stands for an id or for a content.
type mark [16]byte

func markOf(text []byte) mark {
	sum := sha256.Sum256(text)
	return mark(sum[:])
}

// An intake is an import under way. It takes a document part by part through the same
// rules as an append, and hands on only what has passed them; once there is a fault it
// hands on nothing more, and reads on to find all others.
type intake struct {
	doc     Document
	policy  *projection.Policy
	most    int64 // messages
	checker *projection.Checker
	keeper  *projection.Keeper // nil until the categories are known, and when they are wrong
	begun   bool
	missed  bool           // something could not be read
	faults  history.Faults // beside those of the source

	view history.View      // of the record to extend, else nil
	have map[mark]struct{} // ids that it holds

	count  int64             // messages met
	part   []history.Message // not yet kept
	places []int64           // theirs in the document
	size   int

	print   *fingerprint
	alike   map[mark]int64 // messages without an id that are there more than once, by content
	handed  int64
	skipped map[int64]Skipped // those to be skipped, by position among those handed on
	there   map[mark]struct{} // attachments whose bytes have come
	named   map[[sha256.Size]byte]naming
	namings int
	kinds   kinds
	lost    map[[sha256.Size]byte]struct{} // attachments that are missing
	tally   tally
	told    importNote
}

func newIntake(d Document, policy *projection.Policy, most int64) *intake {
	in := &intake{
		doc:     d,
		policy:  policy,
		most:    most,
		print:   newFingerprint("import " + string(d.Mode)),
		alike:   map[mark]int64{},
		skipped: map[int64]Skipped{},
		there:   map[mark]struct{}{},
		named:   map[[sha256.Size]byte]naming{},
		kinds:   kinds{},
		lost:    map[[sha256.Size]byte]struct{}{},
	}
	in.checker = projection.NewChecker(d.Repair, &in.faults)
	return in
}

// know notes which messages the record holds, so that those which it will skip are
// counted as nothing.
func (in *intake) know(ctx context.Context, view history.View) error {
	in.view, in.have = view, map[mark]struct{}{}
	for r, err := range view.Records(1, view.State().LastSeq) {
		if err == nil {
			err = ctx.Err()
		}
		if err != nil {
			return err
		}
		id, err := idOf(r)
		if err != nil {
			return err
		}
		in.have[markOf(id)] = struct{}{}
	}
	return nil
}

// idOf returns the id of a record, without reading all of it where it can.
func idOf(r history.Record) ([]byte, error) {
	if rest, ok := bytes.CutPrefix(r.JSON, []byte(`{"id":"`)); ok {
		if id, _, ok := bytes.Cut(rest, []byte{'"'}); ok && bytes.IndexByte(id, '\\') < 0 {
			return id, nil
		}
	}
	m, err := decode(r)
	return []byte(m.ID), err
}

// messages yields what may be kept, or ends with what is wrong.
func (in *intake) messages(ctx context.Context) iter.Seq2[history.Message, error] {
	return func(yield func(history.Message, error) bool) {
		var unread error
		for m, err := range in.doc.Source.Messages() {
			if unread = in.unread(err); unread != nil {
				break
			}
			if err != nil {
				err = fromSource("document", err)
			} else {
				err = ctx.Err()
			}
			if err != nil {
				yield(history.Message{}, err)
				return
			}
			if !in.take(m, yield) {
				return
			}
		}
		if !in.flush(yield) {
			return
		}
		nothing := in.nothing()
		if in.faulty() || nothing != nil {
			err := in.bring(ctx, func(history.Attachment) bool { return true })
			yield(history.Message{}, cmp.Or(err, in.verdict(unread), nothing))
		}
	}
}

// fromSource says that the source failed.
func fromSource(what string, err error) error {
	return fmt.Errorf("read the %s: %w: %w", what, errUnread, err)
}

// unread returns an error of the source that is told with the faults, which it brings.
func (in *intake) unread(err error) error {
	var faults *history.Faults
	if !errors.As(err, &faults) {
		return nil
	}
	in.missed = true
	return fromSource("document", err)
}

// verdict is what is wrong: what the source says of its faults, if there are no others.
func (in *intake) verdict(unread error) error {
	switch {
	case unread != nil && len(in.faults.List) == 0:
		return unread
	case in.faulty():
		return in.err()
	}
	return nil
}

// errNothing ends an import of nothing to a conversation that is not there: it makes none.
var errNothing = errors.New("nothing to import")

// nothing is errNothing, or nil when there is something to do. To put nothing in the
// place of a conversation is a fault.
func (in *intake) nothing() error {
	switch {
	case in.handed > 0 || in.faulty():
	case in.doc.Mode == history.Replace:
		in.faults.Add("messages", history.CodeInvalidMessage, -1, "the document has no messages to put in the place of others: to have none, clear the conversation")
	case in.view == nil || !in.view.State().Exists():
		return errNothing
	}
	return nil
}

// take adds a message to the part, and is false when nobody wants more.
func (in *intake) take(m history.Message, yield func(history.Message, error) bool) bool {
	index := m.Seq
	m.Seq = 0
	if in.count++; in.count > in.most {
		if in.count == in.most+1 {
			in.faults.Add("messages", history.CodeInvalidMessage, -1, "the document has over %d messages: split it, and import the parts with mode append", in.most)
		}
		return true
	}
	if m.Role == "" && len(m.Content) == 0 {
		in.missed = true
		in.checker.Missed()
		return true
	}
	m, ok := in.checker.Message(index, m)
	if !ok {
		return true
	}
	in.print.line = history.AppendMessage(in.print.line[:0], &m)
	size := len(in.print.line)
	m.MediaBlocks(func(b *history.Block) { size += len(b.Data) })
	if len(in.part) == maxPartMessages || len(in.part) > 0 && in.size+size > maxPartBytes {
		if !in.flush(yield) {
			return false
		}
	}
	in.part, in.places, in.size = append(in.part, m), append(in.places, index), in.size+size
	return true
}

// flush hands on what may be kept of the part.
func (in *intake) flush(yield func(history.Message, error) bool) bool {
	if !in.begun {
		in.begun = true
		var wrong *history.Faults
		var err error
		if in.keeper, err = in.policy.Keeper(in.doc.Source.Categories()); errors.As(err, &wrong) {
			addFaults(&in.faults, wrong)
		}
	}
	part, places := in.part, in.places
	in.part, in.places, in.size = nil, nil, 0
	if in.keeper == nil {
		return true
	}
	kept := in.keeper.Keep(part)
	changes := kept.Changes
	for i := range kept.Messages {
		n := 0
		for n < len(changes) && changes[n].Message == i {
			n++
		}
		m := &kept.Messages[i]
		if !in.faulty() {
			in.identify(m)
		}
		in.name(m, places[i])
		if !in.faulty() && !in.hand(m, places[i], changes[:n], yield) {
			return false
		}
		changes = changes[n:]
	}
	return true
}

// hand hands one message on.
func (in *intake) hand(m *history.Message, index int64, changes []projection.Change, yield func(history.Message, error) bool) bool {
	size := in.print.add(m)
	if _, there := in.have[markOf([]byte(m.ID))]; there {
		if in.told.SkippedTotal++; len(in.skipped) < MaxTold {
			in.skipped[in.handed] = Skipped{index, m.ID}
		}
	} else {
		in.tally.message(size)
		for _, c := range changes {
			in.tally.change(c)
		}
	}
	in.handed++
	return yield(*m, nil)
}

// identify gives an id to a message that has none.
func (in *intake) identify(m *history.Message) {
	if m.ID != "" {
		return
	}
	line := history.AppendMessage(in.print.line[:0], m)
	content := sha256.Sum256(line)
	short := mark(content[:])
	for n := in.alike[short] + 1; ; n++ {
		m.ID = derivedID(content, n)
		if !in.checker.Take(m.ID) {
			continue
		}
		if n > 1 { // most are there once
			in.alike[short] = n
		}
		return
	}
}

func derivedID(content [sha256.Size]byte, occurrence int64) string {
	sum := sha256.Sum256(strconv.AppendInt(content[:], occurrence, 10))
	return "imp_" + hex.EncodeToString(sum[:16])
}

// faulty reports whether anything wrong has been found.
func (in *intake) faulty() bool {
	s := in.doc.Source.Faults()
	return len(in.faults.List) > 0 || s != nil && len(s.List) > 0
}

// err tells everything wrong that has been found, what the source found first.
func (in *intake) err() error {
	var all history.Faults
	if s := in.doc.Source.Faults(); s != nil {
		addFaults(&all, s)
	}
	addFaults(&all, &in.faults)
	return fmt.Errorf("check: %w", all.Err())
}

func addFaults(to, from *history.Faults) {
	n := min(history.MaxFaults-len(to.List), len(from.List))
	to.List = append(to.List, from.List[:n]...)
	to.More += len(from.List) - n + from.More
}

// fingerprint is called when everything has been handed on, as remember and note are.
func (in *intake) fingerprint() [32]byte { return in.print.sum(in.keeper.Categories()) }

func (in *intake) remember() jsontext.Value {
	return note{Categories: in.keeper.Categories()}.encode()
}

// note tells what a replayed receipt has to tell again. An engine may skip others than
// were to be expected when there was another import meanwhile; those have no entry.
func (in *intake) note(skipped []int64) jsontext.Value {
	in.told.Skipped, in.told.Repaired = nil, nil
	for _, at := range skipped {
		if s, known := in.skipped[at]; known {
			in.told.Skipped = append(in.told.Skipped, s)
		}
	}
	repaired, total := in.checker.Repaired()
	for _, r := range repaired {
		in.told.Repaired = append(in.told.Repaired, Repaired(r))
	}
	in.told.RepairedTotal = total
	in.told.Changed = in.tally.byAction()
	return note{Import: &in.told}.encode()
}
