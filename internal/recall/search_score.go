package recall

import (
	"encoding/binary"
	"math"
	"slices"
	"sync"
)

// scores are what is known of the documents of one source while it is searched.
type scores struct {
	score []float64
	held  []float32 // of the weight of what was asked
	hits  []uint8   // units that had to be there and were, in their order
	out   []bool
	times []uint16 // that any of several terms was met
}

var scoreRooms = sync.Pool{New: func() any { return &scores{} }}

func (r *scores) reset(n int) {
	r.score = append(r.score[:0], make([]float64, n)...)
	r.held = append(r.held[:0], make([]float32, n)...)
	r.hits = append(r.hits[:0], make([]uint8, n)...)
	r.out = append(r.out[:0], make([]bool, n)...)
}

// score ranks the documents of all sources.
func (f *finder) score(sources []source) (int, error) {
	for i, s := range sources {
		if err := f.source(s); err != nil {
			return i, err
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
	length, err := s.lengths()
	if err != nil {
		return err
	}
	f.room.reset(n)
	must := uint8(0)
	for i := range f.units {
		u := &f.units[i]
		if err := f.unit(s, u, f.weights[i], length, must); err != nil {
			return err
		}
		if u.must {
			must++
		}
	}
	return f.choose(s, within, must)
}

// unit adds what one unit says of the documents of a source; must is how many units before it had to be there.
func (f *finder) unit(s source, u *unit, weights []float64, length func(int) uint32, must uint8) error {
	room := f.room
	norm := func(d int, times float64) float64 {
		return times * (bm25K1 + 1) / (times + bm25K1*(1-bm25B+bm25B*float64(length(d))/f.average))
	}
	if len(u.terms) > 1 && (u.must || u.not) {
		sum := 0.0
		for _, w := range weights {
			sum += w
		}
		return f.phrase(s, u, func(d, times int) { room.note(u, d, must, sum, norm(d, float64(times))) })
	}
	for i, term := range u.terms {
		var bad error
		if u.prefix || u.stem != "" {
			bad = f.united(s, u, term, func(d, times int) { room.note(u, d, must, weights[i], norm(d, float64(times))) })
		} else {
			var l termList
			if l, bad = listOf(s, term); bad == nil {
				bad = eachDoc(l.data, len(room.score), func(d, times int) { room.note(u, d, must, weights[i], norm(d, float64(times))) })
			}
		}
		if bad != nil {
			return bad
		}
		if err := f.ctx.Err(); err != nil {
			return err
		}
	}
	return nil
}

// note adds what a part of a unit, of that weight, says of a document.
func (r *scores) note(u *unit, d int, must uint8, weight, times float64) {
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
	r.score[d] += weight * times
	r.held[d] += float32(weight)
}

// united visits the documents with any of the terms that a unit stands for, as if they were one.
func (f *finder) united(s source, u *unit, term string, visit func(d, times int)) error {
	room := f.room
	room.times = append(room.times[:0], make([]uint16, len(room.score))...)
	err := f.each(s, u, term, func(_ int, load func() (termList, error)) error {
		l, err := load()
		if err != nil {
			return err
		}
		return eachDoc(l.data, len(room.times), func(d, times int) {
			room.times[d] = uint16(min(int(room.times[d])+times, math.MaxUint16))
		})
	})
	if err != nil {
		return err
	}
	for d, times := range room.times {
		if times > 0 {
			visit(d, int(times))
		}
	}
	return nil
}

// eachDoc visits the documents of a list, all of them below n. A list is, for each document, how far it is from the one
// before, and then its places, of which the lowest bit says that another follows.
func eachDoc(data []byte, n int, visit func(d, times int)) error {
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
		times := 0
		for more := true; more; times++ {
			if i == len(data) {
				return errTorn
			}
			more = data[i]&1 != 0
			for data[i] >= 0x80 {
				if i++; i == len(data) {
					return errTorn
				}
			}
			i++
		}
		visit(d, times)
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
	var starts map[int][]int32 // where the phrase may begin, by document
	for i, term := range u.terms {
		l, err := listOf(s, term)
		if err != nil {
			return err
		}
		next := map[int][]int32{}
		err = eachPlace(l.data, len(f.room.score), func(d int) bool { return i == 0 || starts[d] != nil }, func(d int, at []int32) {
			var kept []int32
			for _, p := range at {
				begin := p - u.places[i]
				if i == 0 {
					kept = append(kept, begin)
				} else if _, ok := slices.BinarySearch(starts[d], begin); ok {
					kept = append(kept, begin)
				}
			}
			if len(kept) > 0 {
				next[d] = kept
			}
		})
		if err != nil {
			return err
		}
		if starts = next; len(starts) == 0 {
			return nil
		}
		if err := f.ctx.Err(); err != nil {
			return err
		}
	}
	for d, at := range starts {
		visit(d, len(at))
	}
	return nil
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
