package api

import (
	"bytes"
	"crypto/rand"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"unicode/utf8"

	"historyd/internal/history"
)

// A message may name any number of attachments, and each is a third longer in base64. So a
// message that holds their bytes is first written with a mark in place of each, which no
// format can tell from bytes of that kind; and where the marks came out the bytes are
// encoded piece by piece, as they are sent. In memory is one attachment at a time, beside
// those few that are held.

const (
	maxHeld = 8 << 20   // bytes of a message's attachments that are not read twice
	step    = 192 << 10 // bytes of an attachment that are encoded at a time: a multiple of three
)

// markLength and markHead are of a mark: so many bytes that nobody can have written, then
// the number of the attachment in digits. Both are multiples of three, so that its base64
// begins with that of the head.
const (
	markLength = 24
	markHead   = 18
)

// An inliner writes messages with the bytes of their attachments. The zero one is ready.
type inliner struct {
	heads   [][]byte            // as they come out: base64 of text, of other bytes, and text as it is
	of      map[string]*bytesIn // of the message under way, by name
	order   []*bytesIn
	held    int
	scratch []byte
}

// bytesIn is an attachment of the message under way.
type bytesIn struct {
	name string
	mark []byte // nil when the bytes cannot be had
	data []byte // nil when it is to be read again
}

const (
	headOfText = iota
	headOfBytes
	headAsText
)

// begin forgets the message before.
func (in *inliner) begin() {
	in.of, in.order, in.held = map[string]*bytesIn{}, in.order[:0], 0
	if in.heads != nil {
		return
	}
	random := make([]byte, markHead)
	rand.Read(random)
	text := []byte(hex.EncodeToString(random)[:markHead])
	random[0] = 0xff // which is no UTF-8
	in.heads = [][]byte{headOfText: encoded(text), headOfBytes: encoded(random), headAsText: text}
}

func encoded(b []byte) []byte { return base64.StdEncoding.AppendEncode(nil, b) }

// mark puts marks into a message, whose blocks are nobody else's, after begin.
func (in *inliner) mark(m *history.Message, read func(name string) ([]byte, error)) (err error) {
	m.MediaBlocks(func(b *history.Block) {
		if b.Attachment == "" || err != nil {
			return
		}
		a := in.of[b.Attachment]
		if a == nil {
			var data []byte
			if data, err = read(b.Attachment); err != nil {
				return
			}
			a = in.add(b.Attachment, data)
		}
		b.Data = a.mark
	})
	return err
}

func (in *inliner) add(name string, data []byte) *bytesIn {
	a := &bytesIn{name: name}
	in.of[name] = a
	if data == nil {
		return a
	}
	head := in.heads[headAsText]
	if !utf8.Valid(data) {
		head, _ = base64.StdEncoding.DecodeString(string(in.heads[headOfBytes]))
	}
	a.mark = fmt.Appendf(bytes.Clone(head), "%0*d", markLength-markHead, len(in.order))
	in.order = append(in.order, a)
	if in.held+len(data) <= maxHeld {
		a.data, in.held = data, in.held+len(data)
	}
	return a
}

// next finds where a head comes out next from a place on; the end of b when it does not.
func (in *inliner) next(b []byte, head, from int) int {
	if i := bytes.Index(b[from:], in.heads[head]); i >= 0 {
		return from + i
	}
	return len(b)
}

// write writes a message that has been marked, and the bytes in place of the marks.
func (in *inliner) write(b []byte, out sink, read func(name string) ([]byte, error)) error {
	if len(in.order) == 0 {
		return out.write(b)
	}
	// Each head is looked for behind the last one of its own alone: of one there may be very many, and none of another.
	next, done := make([]int, len(in.heads)), 0
	for h := range next {
		next[h] = in.next(b, h, 0)
	}
	for {
		at := slices.Min(next)
		if at == len(b) {
			return out.write(b[done:])
		}
		head := slices.Index(next, at)
		size := markLength
		if head != headAsText {
			size = base64.StdEncoding.EncodedLen(markLength)
		}
		mark := b[at : at+size]
		if head != headAsText {
			mark, _ = base64.StdEncoding.DecodeString(string(mark))
		}
		n, err := strconv.Atoi(string(mark[markHead:]))
		if err != nil {
			panic("api: a mark of an attachment was altered")
		}
		if err := out.write(b[done:at]); err != nil {
			return err
		}
		if err := in.writeBytes(in.order[n], head == headAsText, out, read); err != nil {
			return err
		}
		done = at + size
		for h := range next {
			if next[h] < done {
				next[h] = in.next(b, h, done)
			}
		}
	}
}

// errLost tells that bytes could be read, and then could not: the head of their message
// is out, which cannot be undone.
var errLost = errors.New("an attachment was lost while its message was written")

func (in *inliner) writeBytes(a *bytesIn, asText bool, out sink, read func(name string) ([]byte, error)) error {
	data := a.data
	if data == nil {
		var err error
		if data, err = read(a.name); err != nil {
			return err
		}
		if data == nil {
			return errLost
		}
	}
	for len(data) > 0 {
		n := min(len(data), step)
		if asText {
			for n < len(data) && !utf8.RuneStart(data[n]) {
				n--
			}
			text := history.AppendString(in.scratch[:0], string(data[:n]))
			in.scratch = text
			if err := out.write(text[1 : len(text)-1]); err != nil {
				return err
			}
		} else {
			in.scratch = base64.StdEncoding.AppendEncode(in.scratch[:0], data[:n])
			if err := out.write(in.scratch); err != nil {
				return err
			}
		}
		data = data[n:]
	}
	return nil
}
