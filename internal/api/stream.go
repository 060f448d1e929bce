package api

import (
	"context"
	"net/http"
	"strconv"
)

// holdBack is how much of a streamed response is kept until it is sent, so that a
// failure before that is still a problem of its own.
const holdBack = 256 << 10

// A stream is a response that is written while the record is read, so that its
// size costs no memory. Only its client is hurried: reading the record takes as long
// as it takes, and ends when the client has gone.
type stream struct {
	x      *exchange
	header map[string]string // set when the response begins
	buf    []byte
	begun  bool
}

// opening returns the context in which a stream's view of the record is opened. That is
// a look like any other, which somebody else may be in the way of.
func opening(r *http.Request) (context.Context, context.CancelFunc) {
	return context.WithTimeout(r.Context(), deadline)
}

// write adds to the response; an error means that nobody reads it any more.
func (s *stream) write(p []byte) error {
	for len(p) > 0 {
		n := min(len(p), holdBack) // so that what is much is not held twice
		s.buf = append(s.buf, p[:n]...)
		if err := s.spill(); err != nil {
			return err
		}
		p = p[n:]
	}
	return nil
}

// spill sends what has gathered, when it is much.
func (s *stream) spill() error {
	if len(s.buf) < holdBack {
		return nil
	}
	s.begin()
	return s.flush()
}

func (s *stream) begin() {
	if s.begun {
		return
	}
	s.begun = true
	for name, value := range s.header {
		s.x.Header()[name] = []string{value}
	}
	s.x.WriteHeader(http.StatusOK)
}

func (s *stream) flush() error {
	s.x.boundWrites()
	err := s.x.presence.take(func() error { return s.x.flow(s.buf) })
	s.buf = s.buf[:0]
	return err
}

// end completes the response.
func (s *stream) end() error {
	if !s.begun {
		s.x.Header()["Content-Length"] = []string{strconv.Itoa(len(s.buf))}
		s.begin()
	}
	// What cannot be written has no reader any more.
	_ = s.flush()
	return nil
}
