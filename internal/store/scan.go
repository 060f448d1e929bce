package store

import (
	"bytes"
	"errors"
	"io"
	"strconv"
)

// An item is what a scanner meets: a whole frame, or a stretch that holds none.
type item struct {
	off    int64
	raw    []byte // without the newline; valid until the next call
	sum    uint32
	good   bool
	broken bool // good, but it does not continue the chain: lines before it are missing or foreign
	ended  bool // a newline followed
}

func (it *item) end() int64 {
	end := it.off + int64(len(it.raw))
	if it.ended {
		end++
	}
	return end
}

// A scanner walks the lines of one stretch of a segment.
type scanner struct {
	readAt func(p []byte, off int64) (int, error)
	end    int64 // of the stretch

	buf     []byte
	bufOff  int64 // of buf[0]
	at      int64 // next byte to look at
	chunk   int   // bytes of the next read
	chain   chained
	behind  chained // what the line behind the stretch says that it continues
	pending []item
}

// chained is the checksum that the next line continues from, if it is known.
type chained struct {
	sum   uint32
	known bool
}

// Bytes that a scanner reads at once, when it walks and when it probes.
const (
	scanChunk  = 64 << 10
	probeChunk = 8 << 10
)

func newScanner(readAt func([]byte, int64) (int, error), off, end int64) *scanner {
	return &scanner{readAt: readAt, bufOff: off, at: off, end: end, chunk: scanChunk}
}

// skipLine goes to the beginning of the next line; false when there is none.
func (s *scanner) skipLine() (bool, error) {
	for from := 0; ; {
		b := s.buf[s.at-s.bufOff:]
		if i := bytes.IndexByte(b[from:], '\n'); i >= 0 {
			s.at += int64(from + i + 1)
			return s.at < s.end, nil
		}
		from = len(b)
		if more, err := s.fill(); err != nil || !more {
			return false, err
		}
	}
}

// fill reads on behind the buffer, and forgets what lies before the next line.
func (s *scanner) fill() (bool, error) {
	have := s.bufOff + int64(len(s.buf))
	if have >= s.end {
		return false, nil
	}
	kept := s.buf[s.at-s.bufOff:]
	n := min(int64(max(s.chunk, len(kept))), s.end-have)
	next := make([]byte, len(kept), len(kept)+int(n))
	copy(next, kept)
	got, err := s.readAt(next[len(kept):len(kept)+int(n)], have)
	if err != nil && !errors.Is(err, io.EOF) {
		return false, err
	}
	if got == 0 {
		s.end = have // the file is shorter than it was taken for
		return false, nil
	}
	s.buf, s.bufOff = next[:len(kept)+got], s.at
	return true, nil
}

// next returns the next item; io.EOF behind the last.
func (s *scanner) next() (item, error) {
	if len(s.pending) > 0 {
		it := s.pending[0]
		s.pending = s.pending[1:]
		return it, nil
	}
	if s.at >= s.end {
		return item{}, io.EOF
	}
	line, ended, err := s.line()
	if err != nil {
		return item{}, err
	}
	if len(line) == 0 && !ended {
		return item{}, io.EOF
	}
	it := item{off: s.at, raw: line, ended: ended}
	s.at = it.end()
	if it.sum, it.good = frameIs(line); !it.good {
		return s.salvage(it)
	}
	s.follow(&it)
	return it, nil
}

func (s *scanner) follow(it *item) {
	if prev, ok := prevOf(it.raw); !ok || s.chain.known && prev != s.chain.sum {
		it.broken = true
	}
	s.chain = chained{it.sum, true}
}

func (s *scanner) line() ([]byte, bool, error) {
	for from := 0; ; {
		b := s.buf[s.at-s.bufOff:]
		if i := bytes.IndexByte(b[from:], '\n'); i >= 0 {
			return b[:from+i], true, nil
		}
		from = len(b)
		more, err := s.fill()
		if err != nil {
			return nil, false, err
		}
		if !more {
			return s.buf[s.at-s.bufOff:], false, nil
		}
	}
}

// salvage splits a line that is no frame into the frames that it holds and what is between.
func (s *scanner) salvage(bad item) (item, error) {
	behind := s.behind
	if s.at < s.end {
		next, _, err := s.line()
		if err != nil {
			return item{}, err
		}
		behind = chained{}
		if _, ok := frameIs(next); ok {
			behind.sum, behind.known = prevOf(next)
		}
	}
	found := framesIn(bad.raw, s.chain, behind, bad.off == 0)
	at := 0
	add := func(from, to int, good bool, sum uint32) {
		if from < to || good {
			s.pending = append(s.pending, item{off: bad.off + int64(from), raw: bad.raw[from:to:to], good: good, sum: sum})
		}
	}
	for _, f := range found {
		add(at, f.start, false, 0)
		add(f.start, f.end, true, f.sum)
		at = f.end
		s.chain = chained{f.sum, true}
	}
	if at < len(bad.raw) || len(found) == 0 {
		add(at, len(bad.raw), false, 0)
	}
	if len(s.pending) == 0 { // an empty line
		bad.good = false
		return bad, nil
	}
	s.pending[len(s.pending)-1].ended = bad.ended
	it := s.pending[0]
	s.pending = s.pending[1:]
	return it, nil
}

// prevOf reads the checksum that a frame says it continues from, without decoding
// the frame: the first such member is historyd's, text is always behind it.
func prevOf(line []byte) (uint32, bool) {
	const name = `"prev":"`
	i := bytes.Index(line, []byte(name))
	if i < 0 || len(line) < i+len(name)+crcDigits {
		return 0, false
	}
	return parseHex(line[i+len(name) : i+len(name)+crcDigits])
}

// seqsOf reads the first and last seq of a frame in the same way.
func seqsOf(line []byte) (first, last int64, ok bool) {
	const name, then = `"seq":`, `,"last":`
	i := bytes.Index(line, []byte(name))
	if i < 0 {
		return 0, 0, false
	}
	rest := line[i+len(name):]
	j := bytes.Index(rest, []byte(then))
	if j < 0 {
		return 0, 0, false
	}
	first, err := strconv.ParseInt(string(rest[:j]), 10, 64)
	rest = rest[j+len(then):]
	k := bytes.IndexByte(rest, ',')
	if err != nil || k < 0 {
		return 0, 0, false
	}
	last, err = strconv.ParseInt(string(rest[:k]), 10, 64)
	return first, last, err == nil
}
