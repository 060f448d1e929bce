package wire

import (
	"errors"
	"strconv"

	"historyd/internal/history"
	"historyd/internal/strictjson"
)

// Unreadable tells that something of a document could not be read.
type Unreadable struct {
	First  error           // *strictjson.SyntaxError, *TooLarge or *ArchiveError
	Faults *history.Faults // of the whole document
	Alone  bool            // nothing is wrong but more of the same kind, and it is not the archive
}

func (e *Unreadable) Error() string   { return e.First.Error() }
func (e *Unreadable) Unwrap() []error { return []error{e.First, e.Faults} }

// spoilt counts what could not be read.
type spoilt struct {
	first  error
	faults int
	mixed  bool // they are not all of one kind
}

// errEnded tells that the document cannot be read on, which has been noted.
var errEnded = errors.New("ended")

// place is the path of an element.
func place(i int) string { return "messages[" + strconv.Itoa(i) + "]" }

// spoil notes why something could not be read; false when that is no fault of the document.
func (d *Reader) spoil(path string, err error) bool {
	var syntax *strictjson.SyntaxError
	var large *TooLarge
	var torn *ArchiveError
	switch {
	case errors.As(err, &torn):
		d.faults.Add(path, history.CodeInvalidMessage, torn.Offset, "%s", torn)
	case errors.As(err, &syntax):
		d.faults.Add(path, history.CodeInvalidJSON, syntax.Offset, "%s", syntax)
	case errors.As(err, &large):
		d.faults.Add(large.Path, history.CodeTooLarge, -1, "has %d bytes, over the limit of %d", large.Actual, large.Limit)
	default:
		return false
	}
	s := &d.spoilt
	if s.first == nil {
		s.first = err
	}
	var first *strictjson.SyntaxError
	s.mixed = s.mixed || torn != nil || errors.As(s.first, &first) != (syntax != nil)
	s.faults++
	return true
}

// pass notes why an element could not be read, and keeps its place.
func (d *Reader) pass(i int, err error, yield func(history.Message, error) bool) error {
	if !d.spoil(place(i), err) {
		return err
	}
	if !yield(history.Message{Seq: int64(i)}, nil) {
		return errStopped
	}
	return nil
}

// unreadable is what the reading ends with.
func (d *Reader) unreadable() error {
	s := &d.spoilt
	if s.first == nil {
		return nil
	}
	return &Unreadable{s.first, &d.faults, !s.mixed && s.faults == d.count()}
}
