// Package strictjson says which JSON historyd accepts, and walks it. It decodes
// into no Go types: a Value is a stretch of the document, with its offset.
//
// Accepted is RFC 8259 text of one value, in valid UTF-8, without a duplicate
// name in any object, without lone surrogates, nested at most MaxDepth deep, with
// numbers of at most MaxNumber characters. Walking a Value that Check has not
// passed is a mistake of the caller and panics.
package strictjson

import (
	"bytes"
	"encoding/json/jsontext"
	"errors"
	"fmt"
	"io"
)

// Limits of an accepted document.
const (
	MaxDepth  = 64 // levels of arrays and objects
	MaxNumber = 64 // characters of one number
)

// SyntaxError tells where a document is not acceptable. Reason is a constant
// phrase: nothing of the document is in it.
type SyntaxError struct {
	Offset int64 // bytes from the start of the document
	Reason string
}

func (e *SyntaxError) Error() string {
	return fmt.Sprintf("%s at byte %d", e.Reason, e.Offset)
}

// Check reports the first fault of doc as a *SyntaxError, or nil.
func Check(doc []byte) error { return CheckDepth(doc, MaxDepth) }

// CheckDepth is Check with a limit of its own on nesting.
func CheckDepth(doc []byte, maxDepth int) error {
	dec := jsontext.NewDecoder(bytes.NewBuffer(doc))
	for first := true; ; first = false {
		tok, err := dec.ReadToken()
		if err == io.EOF && !first {
			return nil
		}
		if err != nil {
			return syntaxError(doc, dec, err)
		}
		if dec.StackDepth() > maxDepth {
			return &SyntaxError{dec.InputOffset() - 1, fmt.Sprintf("nesting over %d levels", maxDepth)}
		}
		if tok.Kind() == '0' {
			if n := len(tok.String()); n > MaxNumber {
				return &SyntaxError{dec.InputOffset() - int64(n), fmt.Sprintf("a number over %d characters", MaxNumber)}
			}
		}
		if dec.StackDepth() == 0 {
			return checkRest(doc, dec)
		}
	}
}

// checkRest refuses anything but white space after the one value.
func checkRest(doc []byte, dec *jsontext.Decoder) error {
	at := dec.InputOffset()
	if rest := bytes.TrimLeft(doc[at:], " \t\r\n"); len(rest) > 0 {
		return &SyntaxError{int64(len(doc) - len(rest)), "data after the value"}
	}
	return nil
}

func syntaxError(doc []byte, dec *jsontext.Decoder, err error) error {
	offset, reason := dec.InputOffset(), "not valid JSON"
	var se *jsontext.SyntacticError
	if errors.As(err, &se) {
		offset = se.ByteOffset
	}
	switch {
	case errors.Is(err, jsontext.ErrDuplicateName):
		reason = "a duplicate name in one object"
	case errors.Is(err, io.ErrUnexpectedEOF), err == io.EOF:
		reason, offset = "the document ends too early", int64(len(doc))
	}
	return &SyntaxError{offset, reason}
}

// A Value is one JSON value inside a document that Check has passed.
type Value struct {
	Raw    jsontext.Value // as written, without surrounding white space
	Offset int64          // of Raw within the document
}

// Document returns the one value of a document that Check has passed.
func Document(doc []byte) Value {
	trimmed := bytes.TrimLeft(doc, " \t\r\n")
	offset := int64(len(doc) - len(trimmed))
	return Value{bytes.TrimRight(trimmed, " \t\r\n"), offset}
}

// Kind is the first byte of the value, with '0' for every number and 't' or 'f' for booleans.
func (v Value) Kind() jsontext.Kind { return v.Raw.Kind() }

// IsNull reports whether the value is null.
func (v Value) IsNull() bool { return v.Kind() == 'n' }

// Text returns the decoded string, and whether the value is one.
func (v Value) Text() (string, bool) {
	if v.Kind() != '"' {
		return "", false
	}
	return unquoted(v.Raw), true
}

// Compact returns the value without white space between its tokens. Strings,
// numbers and the order of members stay as they were written.
func (v Value) Compact() jsontext.Value {
	if !bytes.ContainsAny(v.Raw, " \t\r\n") {
		return bytes.Clone(v.Raw)
	}
	c := jsontext.Value(bytes.Clone(v.Raw))
	if err := c.Compact(); err != nil {
		panic("strictjson: unchecked value")
	}
	return c
}

func must[T any](t T, err error) T {
	if err != nil {
		panic("strictjson: unchecked value: " + err.Error())
	}
	return t
}
