package store

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"iter"

	"historyd/internal/durable"
	"historyd/internal/history"
)

// spoolMemory is how much of an import that is being taken is held in memory.
const spoolMemory = 4 << 20

// spoolHead is what stands before each message in a spool: its length and its CRC-32C.
const spoolHead = 8

// A spool holds messages until they are all there: in memory, and from a certain size
// on in a file of staging, which is never synced since no crash needs it. It belongs
// to one goroutine.
type spool struct {
	fsys   durable.FS
	room   func(bytes int64, write func() error) error // lets it write to the file, or not
	name   string
	memory int
	file   durable.File // nil as long as memory is enough
	made   bool         // the file may be there
	size   int64        // of the file
	buf    []byte       // what comes behind it
	text   int64        // bytes of the messages
}

func newSpool(fsys durable.FS, memory int) *spool {
	return &spool{fsys: fsys, name: stagingName + "/" + randomHex(16) + partSuffix, memory: memory,
		room: func(_ int64, write func() error) error { return write() }}
}

// add appends a message, without the bytes of its attachments.
func (s *spool) add(m *history.Message) error {
	at := len(s.buf)
	s.buf = append(s.buf, make([]byte, spoolHead)...)
	s.buf = history.AppendMessage(s.buf, m)
	line := s.buf[at+spoolHead:]
	s.text += int64(len(line))
	binary.BigEndian.PutUint32(s.buf[at:], uint32(len(line)))
	binary.BigEndian.PutUint32(s.buf[at+4:], crc32.Checksum(line, castagnoli))
	if len(s.buf) < s.memory {
		return nil
	}
	return s.spill()
}

// spill moves what is in memory to the file.
func (s *spool) spill() error {
	if s.file == nil {
		s.made = true // or perhaps not, if that fails
		f, err := s.fsys.Create(s.name)
		if err != nil {
			return fmt.Errorf("make a spool: %w", err)
		}
		s.file = f
	}
	err := s.room(int64(len(s.buf)), func() error {
		_, err := s.file.WriteAt(s.buf, s.size)
		return err
	})
	if err != nil {
		return fmt.Errorf("write to a spool: %w", err)
	}
	s.size += int64(len(s.buf))
	s.buf = s.buf[:0]
	return nil
}

// all yields the messages in the order in which they came.
func (s *spool) all() iter.Seq2[history.Message, error] {
	return func(yield func(history.Message, error) bool) {
		var chunk []byte
		from := int64(0) // of chunk, in the file
		for {
			line, n, err := spooled(chunk)
			switch {
			case err != nil:
				yield(history.Message{}, err)
				return
			case n == 0 && from+int64(len(chunk)) < s.size:
				if chunk, from, err = s.more(chunk, from); err != nil {
					yield(history.Message{}, err)
					return
				}
				continue
			case n == 0 && s.size > 0 && len(chunk) > 0:
				yield(history.Message{}, errSpool)
				return
			case n == 0:
				s.rest(yield)
				return
			}
			chunk, from = chunk[n:], from+int64(n)
			m, err := history.ParseStored(line)
			if !yield(m, err) || err != nil {
				return
			}
		}
	}
}

// rest yields the messages that are in memory.
func (s *spool) rest(yield func(history.Message, error) bool) {
	for at := 0; at < len(s.buf); {
		line, n, err := spooled(s.buf[at:])
		var m history.Message
		if err == nil {
			m, err = history.ParseStored(line)
		}
		if !yield(m, err) || err != nil {
			return
		}
		at += n
	}
}

// errSpool is for a spool that does not say what was put into it.
var errSpool = fmt.Errorf("%w: a spool is not as it was written", history.ErrUnavailable)

// spooled takes the first message of a chunk; n is 0 when the chunk ends before it does.
func spooled(chunk []byte) (line []byte, n int, err error) {
	if len(chunk) < spoolHead {
		return nil, 0, nil
	}
	n = spoolHead + int(binary.BigEndian.Uint32(chunk))
	if len(chunk) < n {
		return nil, 0, nil
	}
	line = chunk[spoolHead:n]
	if crc32.Checksum(line, castagnoli) != binary.BigEndian.Uint32(chunk[4:]) {
		return nil, 0, errSpool
	}
	return line, n, nil
}

// more reads on in the file behind a chunk.
func (s *spool) more(chunk []byte, from int64) ([]byte, int64, error) {
	have := from + int64(len(chunk))
	next := make([]byte, len(chunk)+int(min(int64(max(scanChunk*4, len(chunk))), s.size-have)))
	copy(next, chunk)
	n, err := s.file.ReadAt(next[len(chunk):], have)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, 0, fmt.Errorf("read a spool: %w", err)
	}
	if len(chunk)+n < len(next) {
		return nil, 0, errSpool
	}
	return next, from, nil
}

// close gives the file free and leaves it.
func (s *spool) close() {
	if s.buf = nil; s.file != nil {
		_ = s.file.Close()
		s.file = nil
	}
}

// drop removes the spool.
func (s *spool) drop() error {
	there := s.made
	if s.close(); !there {
		return nil
	}
	s.made = false
	if err := s.fsys.Remove(s.name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove a spool: %w", err)
	}
	return nil
}
