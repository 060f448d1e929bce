package recall

import (
	"encoding/binary"
	"slices"
	"strings"

	"historyd/internal/history"
)

// A stretch is messages of a conversation that an index covers: those in it that have text are documents.
type stretch struct {
	name          string
	epoch         string
	from, through int64
	last          string // id of the message at through; "" when that can't be read
}

// A doc is a message as the index knows it.
type doc struct {
	stretch uint32 // index of its stretch
	seq     int64
	at      int64 // Unix milliseconds
	role    uint8 // index in roleNumbers
	ref     bool  // of kind reference
	length  uint32
}

// postings are the places of one term, of each document in ascending order:
//
//	varint(number - number before)  the first one counts from -1
//	varint(position delta << 1 | more) ...
type postings struct {
	data []byte
	df   int32 // documents
	last int32 // the newest document
	pos  int32 // the newest position in it
	off  int32 // of that in data
}

// A memtable is what is indexed and not written yet. Guarded by its caller's lock.
type memtable struct {
	stretches []stretch
	newest    map[string]int // index of the newest stretch, by name
	rows      []byte         // of the documents, as in a segment
	terms     map[string]*postings
	tokens    int64
	text      int64 // bytes indexed
	size      int64 // of memory, roughly
	marked    []byte
}

func newMemtable() *memtable {
	return &memtable{newest: map[string]int{}, terms: map[string]*postings{}}
}

// What things take in memory, roughly.
const (
	sizeOfTerm    = 144
	sizeOfDoc     = 40
	sizeOfStretch = 160
)

// blockGap keeps phrases from going over the end of a block.
const blockGap = 16

// cover says that the messages of a stretch are indexed.
func (m *memtable) cover(s stretch) int {
	if i, ok := m.newest[s.name]; ok && m.stretches[i].epoch == s.epoch && m.stretches[i].through == s.from-1 {
		m.stretches[i].through, m.stretches[i].last = s.through, s.last
		return i
	}
	i := len(m.stretches)
	m.stretches = append(m.stretches, s)
	m.newest[s.name] = i
	m.size += sizeOfStretch + int64(len(s.name)+len(s.epoch)+len(s.last))
	return i
}

// add indexes a message, which must stand in that stretch.
func (m *memtable) add(in int, msg *passage) {
	d, position := int32(m.docs()), int32(0)
	length := uint32(0)
	for _, text := range msg.texts {
		m.text += int64(len(text))
		eachToken(text, false, func(term []byte, _, _ int) {
			m.post(term, d, position)
			if s := stem(term); len(s) != len(term) {
				m.marked = append(append(m.marked[:0], stemMark...), s...)
				m.post(m.marked, d, position)
			}
			position++
			length++
		})
		position += blockGap
		eachAlias(text, func(name, abbr string) { m.alias(d, name, abbr) })
	}
	if length == 0 {
		return
	}
	m.tokens += int64(length)
	m.rows = appendDoc(m.rows, doc{uint32(in), msg.seq, msg.at, msg.role, msg.ref, length})
	m.size += sizeOfDoc
}

func (m *memtable) post(term []byte, d, position int32) {
	p := m.terms[string(term)]
	if p == nil {
		p = &postings{last: -1}
		m.terms[string(term)] = p
		m.size += sizeOfTerm + int64(len(term))
	}
	was := len(p.data)
	p.add(d, position)
	m.size += int64(len(p.data)-was) * 3 / 2
}

func (p *postings) add(d, position int32) {
	delta := position
	if p.df > 0 && p.last == d {
		p.data[p.off] |= 1
		delta -= p.pos
	} else {
		p.data = binary.AppendUvarint(p.data, uint64(d-p.last))
		p.last = d
		p.df++
	}
	p.off, p.pos = int32(len(p.data)), position
	p.data = binary.AppendUvarint(p.data, uint64(delta)<<1)
}

// A passage is what of a message is indexed.
type passage struct {
	seq   int64
	at    int64
	role  uint8
	ref   bool
	texts []string
}

// passageOf returns what of a message is searched: its text and that of tool results. Not what was withheld, nor
// what is for the model alone: thinking, arguments, what only a provider understands. And nothing that was recalled,
// whoever put it into the record: it stands where it was said, and each recall would find more of itself.
func passageOf(m *history.Message) (passage, bool) {
	role := roleNumber(m.Role)
	if m.Rewound || m.Synthetic || role < 0 {
		return passage{}, false
	}
	p := passage{seq: m.Seq, at: m.At.UnixMilli(), role: uint8(role), ref: m.Kind == history.Reference}
	p.texts = appendTexts(nil, m.Content)
	return p, true
}

func appendTexts(to []string, blocks []history.Block) []string {
	for i := range blocks {
		switch b := &blocks[i]; {
		case b.Redacted != nil, b.Synthetic:
		case b.Type == history.TextBlock:
			to = appendUnframed(to, b.Text)
		case b.Type == history.ToolResult:
			to = appendTexts(to, b.Content)
		}
	}
	return to
}

// The next make a memtable a source of a search.

func (m *memtable) docs() int { return len(m.rows) / docSize }

func (m *memtable) counts() (docs int, tokens int64) { return m.docs(), m.tokens }

func (m *memtable) find(term string) (entry, error) {
	if p := m.terms[term]; p != nil {
		return entry{df: int(p.df), inline: p.data}, nil
	}
	return entry{}, nil
}

func (m *memtable) list(e entry) (termList, error) { return termList{e.inline, e.df}, nil }

func (m *memtable) expand(prefix string, visit func(term []byte, df int, load func() (termList, error)) bool) error {
	var terms []string
	for term := range m.terms {
		if strings.HasPrefix(term, prefix) {
			terms = append(terms, term)
		}
	}
	slices.Sort(terms)
	for _, term := range terms {
		p := m.terms[term]
		if !visit([]byte(term), int(p.df), func() (termList, error) { return termList{p.data, int(p.df)}, nil }) {
			break
		}
	}
	return nil
}

func (m *memtable) docRows() ([]byte, error) { return m.rows, nil }

func (m *memtable) stretch(i uint32) (stretch, error) { return m.stretches[i], nil }

func (m *memtable) of(name string) ([]uint32, error) {
	if _, ok := m.newest[name]; !ok {
		return nil, nil
	}
	var all []uint32
	for i := range m.stretches {
		if m.stretches[i].name == name {
			all = append(all, uint32(i))
		}
	}
	return all, nil
}
