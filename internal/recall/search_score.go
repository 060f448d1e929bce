package recall

import (
	"cmp"
	"encoding/binary"
	"math"
	"math/bits"
	"slices"
	"sync"
	"sync/atomic"

	"historyd/internal/history"
)

// scores are what is known of the documents of one source while it is searched.
type scores struct {
	score []float64
	held  []float32 // of the weight of what was asked
	hits  []uint8   // units that had to be there and were, in their order
	out   []bool
	norm  []float32 // what the length of a document makes of how often a word is in it
	last  []uint16  // the newest step that met a document
	at    []uint64  // where: bit n stands for the positions n, n+64, …
	best  float64   // of score

	known []float32 // by stretch, of the weight of what was asked: what is anywhere in it
	seen  []uint16  // by stretch, the newest step that met it
	rows  []byte

	times []uint16 // that any of several terms was met, 0 but for the documents in met
	marks []uint64 // where
	met   []int32
}

var scoreRooms = sync.Pool{New: func() any { return &scores{} }}

// zeroed returns n zeros, in s if there is room.
func zeroed[T any](s []T, n int) []T {
	if cap(s) < n {
		return make([]T, n)
	}
	s = s[:n]
	clear(s)
	return s
}

func (r *scores) reset(n int) {
	r.score, r.held, r.hits, r.out = zeroed(r.score, n), zeroed(r.held, n), zeroed(r.hits, n), zeroed(r.out, n)
	r.norm, r.last, r.at = zeroed(r.norm, n), zeroed(r.last, n), zeroed(r.at, n)
	r.times, r.marks, r.met = zeroed(r.times, n), zeroed(r.marks, n), r.met[:0]
	r.known, r.seen, r.best = r.known[:0], r.seen[:0], 0
}

// measure sets what the lengths of documents make, and has room for their stretches.
func (r *scores) measure(rows []byte, average float64) {
	r.rows = rows
	stretches := 0
	for d := range r.norm {
		row := rows[d*docSize:]
		r.norm[d] = float32(bm25K1 * (1 - bm25B + bm25B*max(shortLength, float64(rowLength(row))/average)))
		stretches = max(stretches, int(rowStretch(row))+1)
	}
	r.known, r.seen = zeroed(r.known, stretches), zeroed(r.seen, stretches)
}

// maxScorers is how many sources of one search are gone through at a time, each with room of its own.
const maxScorers = 4

// sideBySide does something with each of so many sources, f.width of them at a time. It returns the number of the source
// that an error is of, and panics where one of its goroutines did.
func (f *finder) sideBySide(sources int, work func(worker, source int) error) (int, error) {
	var (
		next   atomic.Int64
		failed = make([]error, sources)
		broken = make([]any, min(f.width, sources))
		wg     sync.WaitGroup
	)
	for worker := range broken {
		wg.Go(func() {
			defer func() { broken[worker] = recover() }() // for whoever asked, as if there were no goroutines
			for i := next.Add(1) - 1; i < int64(sources); i = next.Add(1) - 1 {
				failed[i] = work(worker, int(i))
			}
		})
	}
	wg.Wait()
	for _, v := range broken {
		if v != nil {
			panic(v)
		}
	}
	for i, err := range failed {
		if err != nil {
			return i, err
		}
	}
	return 0, nil
}

// score ranks the documents of all sources. It returns the number of the source that an error is of.
func (f *finder) score(sources []source) (int, error) {
	parts := make([]*finder, f.width)
	for i := range parts {
		part := *f
		part.best, part.total = candidates{newest: f.best.newest}, 0
		part.room = scoreRooms.Get().(*scores)
		defer scoreRooms.Put(part.room)
		parts[i] = &part
	}
	if i, err := f.sideBySide(len(sources), func(worker, i int) error { return parts[worker].source(sources[i]) }); err != nil {
		return i, err
	}
	for _, part := range parts {
		f.total += part.total
		for _, c := range part.best.list {
			f.best.keep(c, f.max)
		}
	}
	return 0, nil
}

func (f *finder) source(s source) error {
	n, _ := s.counts()
	var within []uint32
	if f.query.Conversation != "" {
		var err error
		if within, err = s.of(f.query.Conversation); err != nil || len(within) == 0 {
			return err
		}
	}
	if n == 0 {
		return nil
	}
	rows, err := s.docRows()
	if err != nil {
		return err
	}
	f.room.reset(n)
	f.room.measure(rows, f.average)
	must, st := uint8(0), step{}
	for i := range f.units {
		u := &f.units[i]
		if err := f.unit(s, u, f.weights[i], must, &st); err != nil {
			return err
		}
		if u.must {
			must++
		}
	}
	return f.choose(s, within, must)
}

// A step is one term of a query that counts, in their order.
type step struct {
	number uint16  // from 1
	weight float64 // of this one
	before float64 // of the one before, if that is near it in the query
}

// next goes on to the next term.
func (st *step) next(weight float64) {
	st.number++
	st.weight, st.before = weight, st.weight
}

// unit adds what one unit says of the documents of a source; must is how many units before it had to be there.
func (f *finder) unit(s source, u *unit, weights []float64, must uint8, st *step) error {
	room := f.room
	if len(u.terms) > 1 && (u.must || u.not) {
		sum := 0.0
		for _, w := range weights {
			sum += w
		}
		st.number, st.weight = st.number+2, 0 // It is near nothing.
		return f.phrase(s, u, func(d, times int) { room.note(u, d, must, sum, times, &step{number: st.number}, 0) })
	}
	for i, term := range u.terms {
		at := st
		if u.not || u.common {
			at = &step{}
		} else {
			st.next(weights[i])
		}
		err := f.united(s, u, term, func(d, times int, where uint64) { room.note(u, d, must, weights[i], times, at, where) })
		if err != nil {
			return err
		}
		if err := f.ctx.Err(); err != nil {
			return err
		}
	}
	return nil
}

// note adds what a part of a unit, of that weight, says of a document.
func (r *scores) note(u *unit, d int, must uint8, weight float64, times int, st *step, where uint64) {
	switch {
	case u.not:
		r.out[d] = true
		return
	case !u.must:
	case r.hits[d] == must:
		r.hits[d]++
	default:
		return
	}
	n := float64(times)
	score := r.score[d] + weight*n*(bm25K1+1)/(n+float64(r.norm[d]))
	r.held[d] += float32(weight)
	if st.number > 0 {
		if before := r.at[d]; r.last[d]+1 == st.number && (bits.RotateLeft64(before, 1)|bits.RotateLeft64(before, 2))&where != 0 {
			score += nearWeight * (st.before + weight) / 2
		}
		r.last[d], r.at[d] = st.number, where
		if in := rowStretch(r.rows[d*docSize:]); r.seen[in] != st.number {
			r.seen[in] = st.number
			r.known[in] += float32(weight)
		}
	}
	r.score[d] = score
	r.best = max(r.best, score)
}

// asking returns the message that another one of its stretch answers, or -1: the last of the user before it.
func (r *scores) asking(i int, in uint32) int {
	for k := i - 1; k >= max(0, i-maxAside); k-- {
		if row := r.rows[k*docSize:]; rowStretch(row) == in && rowRole(row) == roleNumber(history.User) {
			return k
		}
	}
	return -1
}

// united visits the documents with any of the terms that a unit's term stands for, as if they were one.
func (f *finder) united(s source, u *unit, term string, visit func(d, times int, where uint64)) error {
	room := f.room
	var lists []termList
	err := f.each(s, u, term, func(_ int, load func() (termList, error)) error {
		l, err := load()
		if len(lists) > 0 || u.prefix {
			return cmp.Or(err, room.collect(l))
		}
		lists = append(lists, l)
		return err
	})
	if err != nil || len(lists) == 0 && len(room.met) == 0 {
		return err
	}
	if len(room.met) == 0 {
		return eachDoc(lists[0].data, len(room.score), visit)
	}
	for _, l := range lists {
		if err := room.collect(l); err != nil {
			return err
		}
	}
	for _, d := range room.met {
		visit(int(d), int(room.times[d]), room.marks[d])
		room.times[d], room.marks[d] = 0, 0
	}
	room.met = room.met[:0]
	return nil
}

// collect adds a list to what was met.
func (r *scores) collect(l termList) error {
	return eachDoc(l.data, len(r.times), func(d, times int, where uint64) {
		if r.times[d] == 0 {
			r.met = append(r.met, int32(d))
		}
		r.times[d] = uint16(min(int(r.times[d])+times, math.MaxUint16))
		r.marks[d] |= where
	})
}

// eachDoc visits the documents of a list, all of them below n, with how often and where the term is in them. A list is, for
// each document, how far it is from the one before, and then its places, of which the lowest bit says that another follows.
func eachDoc(data []byte, n int, visit func(d, times int, where uint64)) error {
	d := -1
	for i := 0; i < len(data); {
		if c := data[i]; c < 0x80 { // most are near
			d, i = d+int(c), i+1
		} else {
			v, size := binary.Uvarint(data[i:])
			if size <= 0 || v > uint64(n) {
				return errTorn
			}
			d, i = d+int(v), i+size
		}
		if d < 0 || d >= n {
			return errTorn
		}
		times, position, where := 0, uint64(0), uint64(0)
		for more := uint64(1); more != 0; times++ {
			if i == len(data) {
				return errTorn
			}
			v := uint64(data[i])
			if i++; v >= 0x80 {
				var size int
				if v, size = binary.Uvarint(data[i-1:]); size <= 0 {
					return errTorn
				}
				i += size - 1
			}
			more = v & 1
			position += v >> 1
			where |= 1 << (position & 63)
		}
		visit(d, times, where)
	}
	return nil
}

func listOf(s source, term string) (termList, error) {
	e, err := s.find(term)
	if err != nil || e.df == 0 {
		return termList{}, err
	}
	return s.list(e)
}

// phrase visits the documents in which the terms of a unit stand as in the query.
func (f *finder) phrase(s source, u *unit, visit func(d, times int)) error {
	var was, is starts
	for i, term := range u.terms {
		l, err := listOf(s, term)
		if err != nil {
			return err
		}
		is.docs, is.ends, is.at = is.docs[:0], is.ends[:0], is.at[:0]
		k := 0
		want := func(d int) bool {
			for k < len(was.docs) && int(was.docs[k]) < d {
				k++
			}
			return i == 0 || k < len(was.docs) && int(was.docs[k]) == d
		}
		err = eachPlace(l.data, len(f.room.score), want, func(d int, at []int32) {
			before := len(is.at)
			for _, p := range at {
				begin := p - u.places[i]
				if i > 0 && !was.has(k, begin) {
					continue
				}
				is.at = append(is.at, begin)
			}
			if len(is.at) > before {
				is.docs, is.ends = append(is.docs, int32(d)), append(is.ends, int32(len(is.at)))
			}
		})
		if err != nil {
			return err
		}
		if was, is = is, was; len(was.docs) == 0 {
			return nil
		}
		if err := f.ctx.Err(); err != nil {
			return err
		}
	}
	for k, d := range was.docs {
		visit(int(d), len(was.of(k)))
	}
	return nil
}

// starts are where a phrase may begin: documents in ascending order, and of each where its places end in at.
type starts struct{ docs, ends, at []int32 }

// of are the places of the document number k.
func (s *starts) of(k int) []int32 {
	if k == 0 {
		return s.at[:s.ends[0]]
	}
	return s.at[s.ends[k-1]:s.ends[k]]
}

func (s *starts) has(k int, begin int32) bool {
	_, ok := slices.BinarySearch(s.of(k), begin)
	return ok
}

// eachPlace visits the documents of a list that are wanted, with the positions in each.
func eachPlace(data []byte, n int, want func(d int) bool, visit func(d int, at []int32)) error {
	d := -1
	var at []int32
	for c := (scan{b: data}); c.more(); {
		d += int(c.uvarint())
		if c.bad || d < 0 || d >= n {
			return errTorn
		}
		at = at[:0]
		position := int32(0)
		for {
			v := c.uvarint()
			if c.bad {
				return errTorn
			}
			position += int32(v >> 1)
			at = append(at, position)
			if v&1 == 0 {
				break
			}
		}
		if want(d) {
			visit(d, at)
		}
	}
	return nil
}
