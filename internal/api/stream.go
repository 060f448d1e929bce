package api

import (
	"context"
	"net/http"
	"strconv"
	"time"
)

// holdBack is how much of a streamed response is kept until it is sent, so that a
// failure before that is still a problem of its own.
const holdBack = 256 << 10

// A stream is a response that is written while the record is read, so that its
// size costs no memory.
type stream struct {
	x      *exchange
	header map[string]string // set when the response begins
	buf    []byte
	begun  bool
	late   *time.Timer // ends the reading
}

// newStream returns a stream and the context to read the record in, which ends when
// the record was read for the deadline with nothing to write: a long response may
// take longer, as long as it goes on. The caller calls done when all has been read.
func newStream(x *exchange, r *http.Request) (st *stream, ctx context.Context, done func()) {
	ctx, cancel := context.WithCancel(r.Context())
	st = &stream{x: x, late: time.AfterFunc(deadline, cancel)}
	return st, ctx, func() {
		st.late.Stop()
		cancel()
	}
}

// write adds to the response; an error means that nobody reads it any more.
func (s *stream) write(p []byte) error {
	s.buf = append(s.buf, p...)
	return s.spill()
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
	s.late.Stop() // writing has a limit of its own
	defer s.late.Reset(deadline)
	s.x.boundWrites()
	_, err := s.x.Write(s.buf)
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
