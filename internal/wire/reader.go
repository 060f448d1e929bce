package wire

import (
	"bytes"
	"encoding/json/jsontext"
	"errors"
	"fmt"
	"io"
	"iter"
	"slices"
	"time"

	"historyd/internal/history"
	"historyd/internal/strictjson"
)

// Bounds of what a Reader holds beside one message.
const (
	lookAhead  = 16 << 20 // of a document, to find the categories behind its messages
	maxMember  = 16 << 20 // one member of the document that is not the list
	maxNames   = 1 << 20  // all names of the document's members together
	readAround = 64 << 10 // white space around a value
)

// A Reader reads a document to import, message by message: in native form a whole
// export, in a provider's its list or an object that has one, in tar a native document
// with its attachments beside it; with ndjson, and always in JSONL, a message a line.
// It holds one message at a time and what it looks ahead. It is read once, from the
// beginning to the end, by one goroutine.
//
// What is wrong with messages is gathered in Faults, and the reading goes on: in lines
// behind the next line feed, in a list as long as it is JSON whose elements have an end.
// Where it is not, that is the last fault. An error of the reader below ends the reading
// and comes back as it is.
type Reader struct {
	decoder
	src       *source
	dec       *jsontext.Decoder
	tar       *archive // nil unless the format is Tar
	lines     bool
	start     int64            // offset of the document's first byte
	names     int              // bytes of names of members so far
	met       map[string]bool  // names of members of the document
	there     map[string]bool  // those of them that are known
	atList    bool             // the next value is the list
	listed    bool             // the list has been met
	alone     strictjson.Value // the only element, where a text stands for the list
	ended     bool             // nothing more is to be read
	known     bool             // the categories are known, or it is known that nobody looked far enough
	ahead     bool             // they were found by looking ahead
	createdAt time.Time
	category  map[string]string
	broken    bool // the document ended before its end
	spoilt    spoilt
}

// NewReader begins to read a document: up to its first message, and further where its
// categories have to be found. A message of more than maxMessage bytes is refused, not
// counting white space and the bytes of attachments, and so is an attachment; 0 means
// no limit. Errors are *strictjson.SyntaxError, *TooLarge, *ArchiveError, those of the reader below and
// ErrUnsupported.
func NewReader(f Format, ndjson bool, r io.Reader, maxMessage int64) (*Reader, error) {
	if !f.Documents() {
		return nil, ErrUnsupported
	}
	d := &Reader{src: &source{r: r}, lines: ndjson || f == JSONL, met: map[string]bool{}, there: map[string]bool{}}
	d.decoder = decoder{format: f, door: history.ImportDoor, maxMessage: maxMessage}
	if f == Tar {
		d.format, d.lines = Native, false
		if err := d.openTar(); err != nil {
			return nil, err
		}
		if d.ended {
			return d, nil
		}
	}
	if err := d.src.refuseMark(); err != nil {
		return nil, err
	}
	if d.lines {
		return d, nil
	}
	if err := d.open(); err != nil {
		return nil, err
	}
	return d, nil
}

// Messages yields the messages in order. The Seq of each is the position of its
// element in the document, from 0 on. One that a fault was noted for is good for
// nothing but keeping its place, and of one that could not be read at all there is
// nothing but its Seq; then *Unreadable comes in the end.
func (d *Reader) Messages() iter.Seq2[history.Message, error] {
	return func(yield func(history.Message, error) bool) {
		var err error
		switch {
		case d.alone.Raw != nil:
			only := d.alone
			d.alone = strictjson.Value{}
			err = d.yield(only, 0, yield)
		case d.ended:
			return
		case d.lines:
			err = d.readLines(yield)
		default:
			err = d.readDocument(yield)
		}
		d.ended = true
		if err == errStopped {
			return
		}
		if d.broken = err != nil; err == nil || err == errEnded || d.spoil("", err) {
			err = d.unreadable()
		}
		if err != nil {
			yield(history.Message{}, err)
		}
	}
}

// errStopped tells that nobody wants more.
var errStopped = errors.New("stopped")

// Attachments yields the attachments of a tar, each verified against its name, once
// Messages has ended, without a type: the messages have it. Other documents have none. It ends with *Unreadable when one of
// them could not be read, or some of the document.
func (d *Reader) Attachments() iter.Seq2[history.Attachment, error] {
	return func(yield func(history.Attachment, error) bool) {
		var err error
		switch {
		case !d.ended:
		case d.broken:
			err = d.unreadable()
		case d.tar != nil:
			if err = d.readAttachments(yield); err == nil || d.spoil("attachments", err) {
				err = d.unreadable()
			}
		}
		d.tar = nil
		if err != nil && err != errStopped {
			yield(history.Attachment{}, err)
		}
	}
}

// Faults are what is wrong with the document so far. What it points to goes on growing
// while there is something to read.
func (d *Reader) Faults() *history.Faults { return &d.faults }

// Categories are those of the document's tools; nil when it does not say.
func (d *Reader) Categories() map[string]string { return d.category }

// CreatedAt is known once Messages has ended; zero when the document does not say.
func (d *Reader) CreatedAt() time.Time { return d.createdAt }

// yield hands on the messages of an element.
func (d *Reader) yield(v strictjson.Value, i int, yield func(history.Message, error) bool) error {
	msgs := d.element(v, i)
	if d.tooLarge != nil {
		err := d.tooLarge
		d.tooLarge = nil
		return d.pass(i, err, yield)
	}
	for j := range msgs {
		msgs[j].Seq = int64(i)
		if !yield(msgs[j], nil) {
			return errStopped
		}
	}
	return nil
}

// open reads a JSON document up to its list.
func (d *Reader) open() error {
	// What is strict about a value is looked at when it has been read, so that the next
	// one can be.
	d.dec = jsontext.NewDecoder(d.src, jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))
	d.src.allow(readAround)
	kind := d.dec.PeekKind()
	d.start = d.dec.InputOffset() + int64(leading(d.dec.UnreadBuffer(), " \t\r\n"))
	switch {
	case kind == '{':
		if _, err := d.dec.ReadToken(); err != nil {
			return d.failure(err, 0)
		}
		return d.readMembers()
	case kind == '[' && d.format != Native:
		d.atList, d.listed, d.known = true, true, true
		return nil
	}
	v, err := d.value(maxMember, 0, "document")
	if err != nil {
		return err
	}
	d.wrongKind(v)
	d.ended = true
	return d.end()
}

func (d *Reader) wrongKind(v strictjson.Value) {
	if d.format == Native {
		d.fault(v, "", "the document must be an object with version, type and messages; a list needs the format of its messages ("+providers+")")
	} else {
		d.fault(v, "", "the document is a list of messages, or an object with one as %s", d.listNames())
	}
}

// readDocument reads the list, and what the document holds after it.
func (d *Reader) readDocument(yield func(history.Message, error) bool) error {
	if !d.atList {
		return nil
	}
	d.atList = false
	inObject := d.dec.StackDepth() > 0
	if _, err := d.dec.ReadToken(); err != nil {
		return d.failure(err, 0)
	}
	depth := d.dec.StackDepth()
	for i := 0; ; i++ {
		d.src.allow(d.dec.InputOffset() + readAround)
		if d.dec.PeekKind() == ']' {
			break
		}
		v, err := d.value(d.most(), depth, place(i))
		switch {
		case err == nil:
			err = d.yield(v, i, yield)
		case v.Raw != nil:
			err = d.pass(i, err, yield)
		case d.spoil(place(i), err):
			return errEnded
		}
		if err != nil {
			return err
		}
	}
	if _, err := d.dec.ReadToken(); err != nil {
		return d.failure(err, depth)
	}
	if !inObject {
		return d.end()
	}
	if err := d.readMembers(); err != nil || d.ended {
		return err
	}
	if d.atList {
		panic("wire: a second list")
	}
	return nil
}

// value reads the next value, which is so many levels deep, of at most that many bytes.
// With an error it is there, too, when the decoder has got behind it.
func (d *Reader) value(most int64, depth int, path string) (strictjson.Value, error) {
	if most > 0 {
		d.src.allow(d.dec.InputOffset() + most + readAround)
	} else {
		d.src.allow(0)
	}
	raw, err := d.dec.ReadValue()
	if err != nil {
		return strictjson.Value{}, d.refused(err, most, depth, path)
	}
	v := strictjson.Value{Raw: raw, Offset: d.dec.InputOffset() - int64(len(raw))}
	if err = strict(v, depth); err == nil && most > 0 && int64(len(raw)) > most {
		err = d.large(path, most, int64(len(raw)))
	}
	return v, err
}

// large refuses a value; of a message the limit is told that clients know.
func (d *Reader) large(path string, most, size int64) error {
	if most == d.most() {
		most = d.maxMessage
	}
	return &TooLarge{path, most, size}
}

// strict holds a value to the limits of a document in which it is so many levels deep.
func strict(v strictjson.Value, depth int) error {
	var wrong *strictjson.SyntaxError
	if !errors.As(strictjson.CheckDepth(v.Raw, strictjson.MaxDepth-depth), &wrong) {
		return nil
	}
	reason := wrong.Reason
	if reason == fmt.Sprintf("nesting over %d levels", strictjson.MaxDepth-depth) {
		reason = fmt.Sprintf("nesting over %d levels", strictjson.MaxDepth)
	}
	return &strictjson.SyntaxError{Offset: v.Offset + wrong.Offset, Reason: reason}
}

// refused says why a value could not be read.
func (d *Reader) refused(err error, most int64, depth int, path string) error {
	begun := d.dec.UnreadBuffer()
	before := leading(begun, ",: \t\r\n")
	begun = begun[before:]
	at := d.dec.InputOffset() + int64(before)
	if d.src.over && d.src.err == nil {
		if len(begun) == 0 {
			return &strictjson.SyntaxError{Offset: at, Reason: "too much white space"}
		}
		d.src.allow(0)
		return d.large(path, most, sizeOf(io.MultiReader(bytes.NewReader(slices.Clone(begun)), d.src)))
	}
	return d.failed(err, depth)
}

// failed is the first thing wrong with a value, or a name, that could not be read. The
// decoder does not know all that is strict.
func (d *Reader) failed(err error, depth int) error {
	begun := d.dec.UnreadBuffer()
	before := leading(begun, ",: \t\r\n")
	begun = begun[before:]
	at := d.dec.InputOffset() + int64(before)
	failure := d.failure(err, depth)
	var whole, part *strictjson.SyntaxError
	if errors.As(failure, &whole) && whole.Offset > at {
		// It is told as it is of a document that lies in memory: with all of its last token.
		d.src.allow(0)
		token := make([]byte, 4<<10)
		n, _ := io.ReadFull(d.src, token)
		v := strictjson.Value{Raw: slices.Concat(begun, token[:n]), Offset: at}
		if errors.As(strict(v, depth), &part) && (part.Reason != tooEarly || n < len(token)) {
			return part
		}
	}
	return failure
}

// tooEarly is what strictjson says of a document that was cut.
const tooEarly = "the document ends too early"

// failure turns what the decoder says into an error of ours.
func (d *Reader) failure(err error, depth int) error {
	if d.src.err != nil {
		return d.below()
	}
	if d.src.over {
		return &strictjson.SyntaxError{Offset: d.dec.InputOffset(), Reason: "too much white space, or a name that is too long"}
	}
	offset, reason := d.dec.InputOffset(), "not valid JSON"
	var se *jsontext.SyntacticError
	if errors.As(err, &se) {
		offset = se.ByteOffset
	}
	switch {
	case errors.Is(err, jsontext.ErrDuplicateName):
		reason = "a duplicate name in one object"
	case errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, io.EOF):
		reason, offset = tooEarly, d.src.given
	}
	return &strictjson.SyntaxError{Offset: offset, Reason: reason}
}

// end refuses anything but white space after the document.
func (d *Reader) end() error {
	at := d.dec.InputOffset()
	rest := d.dec.UnreadBuffer()
	d.src.allow(0)
	buf := make([]byte, 32<<10)
	for {
		if blank := leading(rest, " \t\r\n"); blank < len(rest) {
			return &strictjson.SyntaxError{Offset: at + int64(blank), Reason: "data after the value"}
		}
		at += int64(len(rest))
		n, err := d.src.Read(buf)
		rest = buf[:n]
		if n == 0 && err != nil {
			return d.below()
		}
	}
}

// below is what went wrong with the reader below, as it said, if anything did.
func (d *Reader) below() error {
	if d.tar != nil && d.src.err != nil {
		return d.tar.failure(d.src.err)
	}
	return d.src.err
}

// leading counts the bytes at the beginning that are of the set.
func leading(b []byte, set string) int { return len(b) - len(bytes.TrimLeft(b, set)) }
