package recall

import (
	"bytes"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"iter"
	"maps"
	"slices"
	"strings"

	"historyd/internal/durable"
)

// Limits of a segment.
const (
	maxSegmentText      = 8 << 20
	maxSegmentDocs      = 20_000
	maxSegmentStretches = 20_000 // less than 1<<16, which is what a document has room for
)

// writeBuffer is how much of a segment is written at once.
const writeBuffer = 256 << 10

// A segmentWriter writes one segment from front to back. Its first error ends it.
type segmentWriter struct {
	file   durable.File
	buf    []byte
	off    int64 // of the end of buf
	err    error
	block  []byte // of the dictionary, not written yet
	first  []byte // its first term
	blocks []byte
}

func newSegmentWriter(f durable.File) *segmentWriter {
	w := &segmentWriter{file: f}
	w.write([]byte(segmentMagic))
	return w
}

func (w *segmentWriter) write(b []byte) part {
	p := part{w.off, uint32(len(b)), crc32.Checksum(b, castagnoli)}
	w.buf = append(w.buf, b...)
	w.off += int64(len(b))
	if len(w.buf) >= writeBuffer {
		w.drain()
	}
	return p
}

func (w *segmentWriter) drain() {
	if w.err == nil && len(w.buf) > 0 {
		_, w.err = w.file.WriteAt(w.buf, w.off-int64(len(w.buf)))
	}
	w.buf = w.buf[:0]
}

func appendBytes(b, s []byte) []byte {
	return append(binary.AppendUvarint(b, uint64(len(s))), s...)
}

func appendVarPart(b []byte, p part) []byte {
	b = binary.AppendUvarint(b, uint64(p.off))
	b = binary.AppendUvarint(b, uint64(p.len))
	return binary.AppendUvarint(b, uint64(p.crc))
}

// term adds a term. They come in ascending order.
func (w *segmentWriter) term(term []byte, df int, data []byte) {
	if len(w.block) == 0 {
		w.first = append(w.first[:0], term...)
	}
	w.block = binary.AppendUvarint(appendBytes(w.block, term), uint64(df))
	if len(data) <= inlineSize {
		w.block = appendBytes(w.block, data)
	} else {
		w.block = appendVarPart(append(w.block, 0), w.write(data))
	}
	if len(w.block) >= blockSize {
		w.endBlock()
	}
}

func (w *segmentWriter) endBlock() {
	if len(w.block) > 0 {
		w.blocks = appendVarPart(appendBytes(w.blocks, w.first), w.write(w.block))
		w.block = w.block[:0]
	}
}

// finish writes what comes behind the dictionary.
func (w *segmentWriter) finish(s *segment, rows []byte, stretches []stretch, replaced []int, mark [32]byte) error {
	w.endBlock()
	s.runs = len(stretches)
	s.blocks = w.write(w.blocks)
	s.rows = w.write(rows)
	table := binary.LittleEndian.AppendUint32(nil, uint32(len(stretches)))
	var entries []byte
	for i := range stretches {
		e := &stretches[i]
		table = binary.LittleEndian.AppendUint32(table, uint32(4+4*len(stretches)+len(entries)))
		entries = appendBytes(appendBytes(entries, []byte(e.name)), []byte(e.epoch))
		entries = binary.AppendUvarint(entries, uint64(e.from))
		entries = binary.AppendUvarint(entries, uint64(e.through-e.from))
		entries = appendBytes(entries, []byte(e.last))
	}
	s.stretches = w.write(append(table, entries...))
	var numbers []byte
	for _, n := range replaced {
		numbers = binary.AppendUvarint(numbers, uint64(n))
	}
	s.replaced = w.write(numbers)
	s.size = w.off + footerSize
	w.write(s.footer(mark))
	w.drain()
	return w.err
}

// ordered returns the stretches sorted by name, and for each old index the new one.
func ordered(stretches []stretch) ([]stretch, []uint32) {
	order := make([]int, len(stretches))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return strings.Compare(stretches[a].name, stretches[b].name) })
	sorted, to := make([]stretch, len(order)), make([]uint32, len(order))
	for i, old := range order {
		sorted[i], to[old] = stretches[old], uint32(i)
	}
	return sorted, to
}

// writeMemtable writes what a memtable holds.
func writeMemtable(f durable.File, m *memtable, mark [32]byte) (*segment, error) {
	w := newSegmentWriter(f)
	for _, term := range slices.Sorted(maps.Keys(m.terms)) {
		p := m.terms[term]
		w.term([]byte(term), int(p.df), p.data)
	}
	stretches, to := ordered(m.stretches)
	rows := make([]byte, 0, len(m.rows))
	for i := range m.docs() {
		d := readDoc(m.rows[i*docSize:])
		d.stretch = to[d.stretch]
		rows = appendDoc(rows, d)
	}
	s := &segment{docs: m.docs(), tokens: m.tokens, text: m.text}
	return s, w.finish(s, rows, stretches, nil, mark)
}

// mergeSegments writes what several segments hold, in that order.
func mergeSegments(f durable.File, from []*openSegment, mark [32]byte) (*segment, error) {
	s := &segment{}
	var stretches []stretch
	var docs []doc
	var bases []int
	var replaced []int
	for _, r := range from {
		base := uint32(len(stretches))
		if err := r.all(func(e stretch) { stretches = append(stretches, e) }); err != nil {
			return nil, err
		}
		bases = append(bases, len(docs))
		for i := range r.docs {
			d, err := r.doc(i)
			if err != nil {
				return nil, err
			}
			if int(base+d.stretch) >= len(stretches) {
				return nil, errTorn
			}
			d.stretch += base
			docs = append(docs, d)
		}
		s.docs, s.tokens, s.text = s.docs+r.docs, s.tokens+r.tokens, s.text+r.text
		replaced = append(replaced, r.number)
	}
	w := newSegmentWriter(f)
	if err := mergeTerms(w, from, bases); err != nil {
		return nil, err
	}
	stretches, to := ordered(stretches)
	rows := make([]byte, 0, len(docs)*docSize)
	for _, d := range docs {
		d.stretch = to[d.stretch]
		rows = appendDoc(rows, d)
	}
	return s, w.finish(s, rows, stretches, replaced, mark)
}

// mergeTerms writes the terms of several segments in order.
func mergeTerms(w *segmentWriter, from []*openSegment, bases []int) (err error) {
	type head struct {
		entry
		next func() (entry, error, bool)
		ok   bool
	}
	heads := make([]head, len(from))
	for i, r := range from {
		next, stop := iter.Pull2(r.entries(""))
		defer stop()
		heads[i].next = next
	}
	advance := func(h *head) {
		e, bad, ok := h.next()
		h.entry, h.ok = e, ok
		err = errors.Join(err, bad)
	}
	for i := range heads {
		advance(&heads[i])
	}
	var term, data []byte
	for err == nil && w.err == nil {
		least := -1
		for i := range heads {
			if heads[i].ok && (least < 0 || bytes.Compare(heads[i].term, heads[least].term) < 0) {
				least = i
			}
		}
		if least < 0 {
			return nil
		}
		term, data = append(term[:0], heads[least].term...), data[:0]
		df, last := 0, -1
		for i := range heads {
			h := &heads[i]
			if !h.ok || !bytes.Equal(h.term, term) {
				continue
			}
			l, bad := from[i].list(h.entry)
			if bad != nil {
				return bad
			}
			if data, last, bad = appendPostings(data, l.data, bases[i], last); bad != nil {
				return bad
			}
			df += l.df
			advance(h)
		}
		w.term(term, df, data)
	}
	return errors.Join(err, w.err)
}

// appendPostings adds a list whose first document is number base of the whole.
func appendPostings(to, data []byte, base, last int) ([]byte, int, error) {
	d := base - 1
	for c := (scan{b: data}); c.more(); {
		d += int(c.uvarint())
		to = binary.AppendUvarint(to, uint64(d-last))
		last = d
		n := positionBytes(c.b)
		if n < 0 {
			return nil, 0, errTorn
		}
		to = append(to, c.b[:n]...)
		c.b = c.b[n:]
	}
	return to, last, nil
}

// positionBytes is how long the positions of one document are; -1 when they do not end.
func positionBytes(b []byte) int {
	begin := true
	more := false
	for i, c := range b {
		if begin {
			more = c&1 != 0
		}
		if begin = c < 0x80; begin && !more {
			return i + 1
		}
	}
	return -1
}
