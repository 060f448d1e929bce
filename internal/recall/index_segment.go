package recall

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"iter"
	"slices"
	"sort"

	"historyd/internal/durable"
	"historyd/internal/identity"
)

// A segment is a file that is written once:
//
//	"historyd index 3\n"
//	long postings and blocks of the dictionary, as they come
//	index of the blocks: for each its first term, offset, length, checksum
//	documents, 18 bytes each
//	stretches, sorted by name: a table of offsets, then the entries
//	numbers of the segments that this one was made of
//	footer
//
// The footer, and by it every part, has a checksum, which is compared whenever the part is read. So nothing needs to be
// synced: what a power cut tore is found out when it is met, deleted, and indexed again.
const (
	segmentMagic  = "historyd index 3\n"
	segmentSuffix = ".idx"
	footerSize    = 32 + 4*8 + 4*partSize + 8 + 4
	partSize      = 16
	docSize       = 18
	blockSize     = 4 << 10
	inlineSize    = 32 // postings up to here stand in the dictionary
)

// errTorn is for a segment that is not what was written. Its messages are indexed again.
var errTorn = errors.New("torn segment of the index")

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// A part is a stretch of the file.
type part struct {
	off int64
	len uint32
	crc uint32
}

// A segment is what is kept in memory of a file. It never changes.
type segment struct {
	number int
	docs   int
	tokens int64
	text   int64 // bytes that were indexed
	runs   int   // stretches
	size   int64

	blocks, rows, stretches, replaced part
}

func segmentName(n int) string { return fmt.Sprintf("%08d%s", n, segmentSuffix) }

// segmentNumber reads the name of a segment; ok is false for any other name.
func segmentNumber(name string) (n int, ok bool) {
	if _, err := fmt.Sscanf(name, "%08d", &n); err != nil || n < 1 || name != segmentName(n) {
		return 0, false
	}
	return n, true
}

// callerMark stands in every segment, so that a file in the wrong directory, or with other terms, is no segment.
func callerMark(scope identity.Scope) [32]byte {
	return sha256.Sum256([]byte(segmentMagic + scope.Dir()))
}

func appendPart(b []byte, p part) []byte {
	b = binary.LittleEndian.AppendUint64(b, uint64(p.off))
	b = binary.LittleEndian.AppendUint32(b, p.len)
	return binary.LittleEndian.AppendUint32(b, p.crc)
}

func readPart(b []byte) part {
	return part{int64(binary.LittleEndian.Uint64(b)), binary.LittleEndian.Uint32(b[8:]), binary.LittleEndian.Uint32(b[12:])}
}

func (s *segment) footer(mark [32]byte) []byte {
	b := append([]byte(nil), mark[:]...)
	for _, n := range []int64{int64(s.docs), s.tokens, s.text, int64(s.runs)} {
		b = binary.LittleEndian.AppendUint64(b, uint64(n))
	}
	for _, p := range []part{s.blocks, s.rows, s.stretches, s.replaced} {
		b = appendPart(b, p)
	}
	b = binary.LittleEndian.AppendUint64(b, uint64(s.size))
	return binary.LittleEndian.AppendUint32(b, crc32.Checksum(b, castagnoli))
}

// readFooter returns what is known of the segment in f, or errTorn.
func readFooter(f durable.File, number int, mark [32]byte) (*segment, error) {
	size, err := f.Size()
	if err != nil {
		return nil, err
	}
	if size < int64(len(segmentMagic))+footerSize {
		return nil, errTorn
	}
	b := make([]byte, footerSize)
	if err := readFull(f, b, size-footerSize); err != nil {
		return nil, err
	}
	sum := binary.LittleEndian.Uint32(b[footerSize-4:])
	if crc32.Checksum(b[:footerSize-4], castagnoli) != sum || !bytes.Equal(b[:32], mark[:]) {
		return nil, errTorn
	}
	s := &segment{number: number, size: size}
	s.docs = int(binary.LittleEndian.Uint64(b[32:]))
	s.tokens = int64(binary.LittleEndian.Uint64(b[40:]))
	s.text = int64(binary.LittleEndian.Uint64(b[48:]))
	s.runs = int(binary.LittleEndian.Uint64(b[56:]))
	for i, p := range []*part{&s.blocks, &s.rows, &s.stretches, &s.replaced} {
		*p = readPart(b[64+i*partSize:])
		if p.off < 0 || p.off+int64(p.len) > size {
			return nil, errTorn
		}
	}
	if int64(binary.LittleEndian.Uint64(b[64+4*partSize:])) != size || s.docs < 0 || s.rows.len != uint32(s.docs*docSize) {
		return nil, errTorn
	}
	return s, nil
}

func readFull(f durable.File, b []byte, off int64) error {
	n, err := f.ReadAt(b, off)
	if n == len(b) {
		return nil
	}
	if err == nil || errors.Is(err, io.EOF) {
		return errTorn
	}
	return err
}

// An openSegment is a segment opened for one search. Not safe for concurrent use.
type openSegment struct {
	*segment
	file  durable.File
	cache *blockCache

	starts  []blockStart     // of the dictionary, read when first asked for
	known   map[string]entry // terms looked up before
	docData []byte           // rows, read when first asked for
}

// A blockStart says where a block of the dictionary begins, and with which term.
type blockStart struct {
	term []byte
	at   part
}

func (r *openSegment) close() { r.file.Close() }

// load reads a part, from the cache if keep.
func (r *openSegment) load(p part, keep bool) ([]byte, error) {
	if b := r.cache.find(r.segment, p.off); keep && b != nil {
		return b, nil
	}
	b := make([]byte, p.len)
	if err := readFull(r.file, b, p.off); err != nil {
		return nil, err
	}
	if crc32.Checksum(b, castagnoli) != p.crc {
		return nil, errTorn
	}
	if keep {
		r.cache.put(r.segment, p.off, b)
	}
	return b, nil
}

func (r *openSegment) counts() (docs int, tokens int64) { return r.docs, r.tokens }

// find looks a term up in the dictionary. One that is not there has no documents.
func (r *openSegment) find(term string) (entry, error) {
	if e, ok := r.known[term]; ok {
		return e, nil
	}
	if r.starts == nil {
		if err := r.readStarts(); err != nil {
			return entry{}, err
		}
	}
	i, exact := slices.BinarySearchFunc(r.starts, term, func(s blockStart, term string) int { return cmp.Compare(string(s.term), term) })
	if !exact {
		i--
	}
	if i < 0 {
		return entry{}, nil
	}
	block, err := r.load(r.starts[i].at, true)
	if err != nil {
		return entry{}, err
	}
	var found entry
	c := scan{b: block}
	for c.more() {
		if e := c.entry(); string(e.term) >= term { // They are in order.
			if string(e.term) == term {
				found = e
			}
			break
		}
	}
	if c.err() != nil {
		return entry{}, c.err()
	}
	if r.known == nil {
		r.known = map[string]entry{}
	}
	r.known[term] = found
	return found, nil
}

func (r *openSegment) readStarts() error {
	index, err := r.load(r.blocks, true)
	if err != nil {
		return err
	}
	c := scan{b: index}
	for c.more() {
		r.starts = append(r.starts, blockStart{c.bytes(), part{int64(c.uvarint()), uint32(c.uvarint()), uint32(c.uvarint())}})
	}
	return c.err()
}

// expand visits the terms that begin with prefix, in order, until visit returns false.
func (r *openSegment) expand(prefix string, visit func(term []byte, df int, load func() (termList, error)) bool) error {
	for e, err := range r.entries(prefix) {
		if err != nil {
			return err
		}
		if !visit(e.term, e.df, func() (termList, error) { return r.list(e) }) {
			break
		}
	}
	return nil
}

// entries yields the entries whose terms begin with prefix, in order. An entry is valid until the next.
func (r *openSegment) entries(prefix string) iter.Seq2[entry, error] {
	return func(yield func(entry, error) bool) {
		index, err := r.load(r.blocks, prefix != "")
		if err != nil {
			yield(entry{}, err)
			return
		}
		c := scan{b: index}
		before, any := part{}, false
		for c.more() {
			first := c.bytes()
			p := part{int64(c.uvarint()), uint32(c.uvarint()), uint32(c.uvarint())}
			if any && string(first) >= prefix && !r.block(before, prefix, yield) {
				return
			}
			before, any = p, true
		}
		if c.err() != nil {
			yield(entry{}, c.err())
			return
		}
		if any {
			r.block(before, prefix, yield)
		}
	}
}

// block yields the entries of one block; false when there is nothing more to yield.
func (r *openSegment) block(p part, prefix string, yield func(entry, error) bool) bool {
	b, err := r.load(p, prefix != "")
	if err != nil {
		yield(entry{}, err)
		return false
	}
	c := scan{b: b}
	for c.more() {
		e := c.entry()
		if c.bad {
			break
		}
		if bytes.HasPrefix(e.term, []byte(prefix)) {
			if !yield(e, nil) {
				return false
			}
		} else if string(e.term) > prefix {
			return false
		}
	}
	if c.err() != nil {
		yield(entry{}, c.err())
		return false
	}
	return true
}

// list returns the postings of an entry.
func (r *openSegment) list(e entry) (termList, error) {
	if e.inline != nil {
		return termList{e.inline, e.df}, nil
	}
	b, err := r.load(e.long, false)
	return termList{b, e.df}, err
}

// docRows are long enough for all documents; the footer was checked for that.
func (r *openSegment) docRows() (rows []byte, err error) {
	if r.docData == nil {
		r.docData, err = r.load(r.rows, true)
	}
	return r.docData, err
}

func (r *openSegment) doc(i int) (doc, error) {
	rows, err := r.docRows()
	if err != nil || (i+1)*docSize > len(rows) {
		return doc{}, errors.Join(err, errTorn)
	}
	return readDoc(rows[i*docSize:]), nil
}

func rowStretch(b []byte) uint32 { return uint32(binary.LittleEndian.Uint16(b)) }
func rowRole(b []byte) int       { return int(b[14] & 15) }
func rowLength(b []byte) uint32  { return uint32(b[15]) | uint32(b[16])<<8 | uint32(b[17])<<16 }

func readDoc(b []byte) doc {
	return doc{
		stretch: rowStretch(b),
		seq:     int64(binary.LittleEndian.Uint32(b[2:])) | int64(binary.LittleEndian.Uint16(b[6:]))<<32,
		at:      int64(binary.LittleEndian.Uint32(b[8:])) | int64(int16(binary.LittleEndian.Uint16(b[12:])))<<32,
		role:    b[14] & 15,
		ref:     b[14]&16 != 0,
		length:  rowLength(b),
	}
}

func appendDoc(b []byte, d doc) []byte {
	b = binary.LittleEndian.AppendUint16(b, uint16(d.stretch))
	b = binary.LittleEndian.AppendUint32(b, uint32(d.seq))
	b = binary.LittleEndian.AppendUint16(b, uint16(d.seq>>32))
	b = binary.LittleEndian.AppendUint32(b, uint32(d.at))
	b = binary.LittleEndian.AppendUint16(b, uint16(d.at>>32))
	flags, length := d.role, min(d.length, 1<<24-1)
	if d.ref {
		flags |= 16
	}
	return append(b, flags, byte(length), byte(length>>8), byte(length>>16))
}

// stretchAt reads an entry of the table of stretches.
func stretchAt(table []byte, i uint32) (stretch, error) {
	if len(table) < 4 || i >= binary.LittleEndian.Uint32(table) || len(table) < 8+4*int(i) {
		return stretch{}, errTorn
	}
	off := binary.LittleEndian.Uint32(table[4+4*i:])
	if int64(off) > int64(len(table)) {
		return stretch{}, errTorn
	}
	c := scan{b: table[off:]}
	s := stretch{name: string(c.bytes()), epoch: string(c.bytes())}
	s.from = int64(c.uvarint())
	s.through = s.from + int64(c.uvarint())
	s.last = string(c.bytes())
	return s, c.err()
}

func (r *openSegment) stretch(i uint32) (stretch, error) {
	table, err := r.load(r.stretches, true)
	if err != nil {
		return stretch{}, err
	}
	return stretchAt(table, i)
}

// of returns which stretches are of a conversation.
func (r *openSegment) of(name string) ([]uint32, error) {
	table, err := r.load(r.stretches, true)
	if err != nil {
		return nil, err
	}
	if len(table) < 4 {
		return nil, errTorn
	}
	n := int(binary.LittleEndian.Uint32(table))
	var bad error
	first := sort.Search(n, func(i int) bool {
		s, err := stretchAt(table, uint32(i))
		bad = errors.Join(bad, err)
		return s.name >= name
	})
	var all []uint32
	for i := uint32(first); bad == nil && int(i) < n; i++ {
		s, err := stretchAt(table, i)
		if err != nil {
			return nil, err
		}
		if s.name != name {
			break
		}
		all = append(all, i)
	}
	return all, bad
}

// all yields every stretch.
func (r *openSegment) all(visit func(stretch)) error {
	table, err := r.load(r.stretches, false)
	if err != nil {
		return err
	}
	if len(table) < 4 {
		return errTorn
	}
	for i := range binary.LittleEndian.Uint32(table) {
		s, err := stretchAt(table, i)
		if err != nil {
			return err
		}
		visit(s)
	}
	return nil
}

// An entry is a term of the dictionary.
type entry struct {
	term   []byte
	df     int
	inline []byte // nil when the postings are long
	long   part
}

// A scan reads a part from the front. After a fault it has no more.
type scan struct {
	b   []byte
	bad bool
}

func (c *scan) more() bool { return !c.bad && len(c.b) > 0 }

func (c *scan) err() error {
	if c.bad {
		return errTorn
	}
	return nil
}

func (c *scan) uvarint() uint64 {
	if len(c.b) > 0 && c.b[0] < 0x80 { // most are
		v := c.b[0]
		c.b = c.b[1:]
		return uint64(v)
	}
	v, n := binary.Uvarint(c.b)
	if n <= 0 {
		c.bad, c.b = true, nil
		return 0
	}
	c.b = c.b[n:]
	return v
}

func (c *scan) bytes() []byte {
	n := c.uvarint()
	if c.bad || n > uint64(len(c.b)) {
		c.bad, c.b = true, nil
		return nil
	}
	b := c.b[:n:n]
	c.b = c.b[n:]
	return b
}

// entry reads a term: its length and bytes, how many documents, then its postings as they are, or nothing and where
// they stand.
func (c *scan) entry() entry {
	e := entry{term: c.bytes(), df: int(c.uvarint())}
	e.inline = c.bytes()
	if len(e.inline) == 0 {
		e.inline = nil
		e.long = part{int64(c.uvarint()), uint32(c.uvarint()), uint32(c.uvarint())}
	}
	return e
}
