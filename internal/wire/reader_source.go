package wire

import (
	"bufio"
	"bytes"
	"errors"
	"io"

	"historyd/internal/strictjson"
)

// A source is what a document is read from. It knows how far it was read, keeps what
// was looked at ahead, and stops where it is told to.
type source struct {
	r     io.Reader
	ahead []byte // read below, and not handed out yet
	given int64  // bytes handed out
	limit int64  // of given; 0 for none
	over  bool   // somebody wanted more than that
	ended bool   // r has ended
	err   error  // of r, but not its end
}

var errOver = errors.New("over the limit")

// allow sets how far may be read, from the beginning on; 0 lifts the limit.
func (s *source) allow(limit int64) { s.limit, s.over = limit, false }

func (s *source) Read(p []byte) (int, error) {
	if s.limit > 0 {
		if s.given >= s.limit {
			s.over = true
			return 0, errOver
		}
		p = p[:min(int64(len(p)), s.limit-s.given)]
	}
	if len(s.ahead) > 0 {
		n := copy(p, s.ahead)
		if s.ahead = s.ahead[n:]; len(s.ahead) == 0 {
			s.ahead = nil
		}
		s.given += int64(n)
		return n, nil
	}
	n, err := s.below(p)
	s.given += int64(n)
	return n, err
}

func (s *source) below(p []byte) (int, error) {
	if s.err != nil {
		return 0, s.err
	}
	if s.ended {
		return 0, io.EOF
	}
	n, err := s.r.Read(p)
	switch {
	case err == io.EOF:
		s.ended = true
	case err != nil:
		s.err = err
	}
	if n > 0 {
		err = nil // it comes back when there is nothing before it
	}
	return n, err
}

// lookAhead reads until so many bytes wait to be handed out, or as many as there are.
func (s *source) lookAhead(n int) {
	for len(s.ahead) < n {
		if len(s.ahead) == cap(s.ahead) {
			grown := make([]byte, len(s.ahead), min(max(2*cap(s.ahead), 4<<10), n))
			copy(grown, s.ahead)
			s.ahead = grown
		}
		got, err := s.below(s.ahead[len(s.ahead):cap(s.ahead)])
		s.ahead = s.ahead[:len(s.ahead)+got]
		if err != nil {
			return
		}
	}
}

// refuseMark refuses a document that begins with a byte order mark, as it tells.
func (s *source) refuseMark() error {
	const mark = "\ufeff"
	s.lookAhead(len(mark))
	if bytes.HasPrefix(s.ahead, []byte(mark)) {
		return &strictjson.SyntaxError{Offset: 0, Reason: "a byte order mark: save the document without it"}
	}
	return nil
}

// sizeOf counts the bytes of the JSON value that begins there, as far as it goes.
func sizeOf(r io.Reader) int64 {
	in := bufio.NewReaderSize(r, 32<<10)
	n, depth := int64(0), 0
	for {
		c, err := in.ReadByte()
		if err != nil {
			return n
		}
		n++
		switch c {
		case '"':
			for c, err = in.ReadByte(); err == nil && c != '"'; c, err = in.ReadByte() {
				if n++; c == '\\' {
					_, _ = in.ReadByte() // whatever it is, also when nothing comes
					n++
				}
			}
			n++
		case '{', '[':
			depth++
		case '}', ']':
			depth--
		}
		if depth == 0 && (c == '"' || c == '}' || c == ']') {
			return n
		}
	}
}
