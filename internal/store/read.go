package store

import (
	"bytes"
	"encoding/json/jsontext"
	"errors"
	"io"
	"iter"
	"slices"

	"historyd/internal/history"
	"historyd/internal/strictjson"
)

// placed is an item and the segment that it is in.
type placed struct {
	item
	segment int
}

// readable decodes a placed item; nil, and the damage told, when it is none.
func (t *transcript) readable(p placed) (*commit, error) {
	if !p.good {
		t.tellDamage(place{p.segment, p.off}, int64(len(p.raw)), 0)
		return nil, nil
	}
	c, err := parseCommit(p.raw)
	if err != nil {
		return nil, errors.Join(history.ErrDamaged, err)
	}
	return c, nil
}

// records yields the messages of a snapshot with from <= seq <= to, ascending.
func (t *transcript) records(snap *snapshot, from, to int64) iter.Seq2[history.Record, error] {
	return func(yield func(history.Record, error) bool) {
		from, to := max(from, 1), min(to, snap.last)
		if !snap.exists || from > to {
			return
		}
		seen := from - 1
		bad := place{} // right before the line that is looked at
		for p, err := range t.forward(snap, from) {
			if err != nil {
				yield(history.Record{}, classify(err))
				return
			}
			c, err := t.readable(p)
			if err != nil {
				yield(history.Record{}, err)
				return
			}
			if c == nil {
				bad = place{p.segment, p.off}
				continue
			}
			if bad.none() {
				bad = place{p.segment, p.off}
			}
			if p.broken || c.First > seen+1 {
				t.tellDamage(bad, 0, max(0, c.First-seen-1))
			}
			bad = place{}
			t.tellLost(c)
			if c.First > to && to < snap.last {
				return
			}
			for r, err := range t.recordsOf(c) {
				if err != nil {
					yield(r, err)
					return
				}
				if r.Seq >= from && r.Seq <= to && !yield(r, nil) {
					return
				}
			}
			seen = max(seen, c.Last)
			if c.Last >= to && c.First <= c.Last && to < snap.last {
				return
			}
		}
		if to == snap.last && seen < to && !bad.none() { // the end is lost
			t.tellDamage(bad, 0, to-seen)
		}
	}
}

// descending yields the messages of a snapshot with seq < before, the newest first.
func (t *transcript) descending(snap *snapshot, before int64) iter.Seq2[history.Record, error] {
	return func(yield func(history.Record, error) bool) {
		next := min(before, snap.last+1) // the seq behind the line that is looked at
		for p, err := range t.backwardFrom(snap, before) {
			if err != nil {
				yield(history.Record{}, classify(err))
				return
			}
			c, err := t.readable(p)
			if err != nil {
				yield(history.Record{}, err)
				return
			}
			if c == nil {
				continue
			}
			if c.Last+1 < next {
				t.tellDamage(place{p.segment, p.end()}, 0, next-c.Last-1)
			}
			next = min(next, c.First)
			t.tellLost(c)
			var records []history.Record
			for r, err := range t.recordsOf(c) {
				if err != nil {
					yield(history.Record{}, err)
					return
				}
				records = append(records, r)
			}
			for _, r := range slices.Backward(records) {
				if t.files.ended() {
					yield(history.Record{}, history.ErrGone)
					return
				}
				if r.Seq < before && !yield(r, nil) {
					return
				}
			}
		}
	}
}

// recordsOf yields the messages of a commit, as long as the conversation is there.
func (t *transcript) recordsOf(c *commit) iter.Seq2[history.Record, error] {
	return func(yield func(history.Record, error) bool) {
		for r, err := range recordsOf(c) {
			if err == nil && t.files.ended() {
				r, err = history.Record{}, history.ErrGone
			}
			if !yield(r, err) || err != nil {
				return
			}
		}
	}
}

// tellLost tells of the segments that a header says were lost before it.
func (t *transcript) tellLost(c *commit) {
	if c.Header == nil {
		return
	}
	for _, n := range c.Header.Lost {
		t.tellDamage(place{n, 0}, 0, 0)
	}
}

// forward yields the items from the line on that holds seq, to the end of the snapshot.
func (t *transcript) forward(snap *snapshot, seq int64) iter.Seq2[placed, error] {
	return func(yield func(placed, error) bool) {
		fail := func(err error) { yield(placed{}, err) }
		numbers := t.upTo(snap)
		i, err := t.files.segmentWith(numbers, seq)
		if err != nil {
			fail(err)
			return
		}
		chain := chained{}
		for n, first := numbers[i], true; n != 0; first = false {
			next, end, behind, err := t.extent(snap, n)
			if err == nil {
				err = t.ours(n)
			}
			if err != nil {
				fail(err)
				return
			}
			off := int64(0)
			if first {
				if off, chain, err = t.files.offsetOf(n, end, seq); err != nil {
					fail(err)
					return
				}
			}
			s := newScanner(t.files.reader(n), off, end)
			s.chain, s.behind = chain, behind
			for {
				it, err := s.next()
				if errors.Is(err, io.EOF) {
					break
				}
				if err != nil {
					fail(err)
					return
				}
				if !yield(placed{it, n}, nil) {
					return
				}
			}
			n, chain = next, s.chain
		}
	}
}

// upTo is the segments that a snapshot knows.
func (t *transcript) upTo(snap *snapshot) []int {
	numbers := t.files.list()
	i, found := slices.BinarySearch(numbers, snap.seg)
	if found {
		i++
	}
	return numbers[:max(1, i)]
}

// extent returns where the valid part of segment n ends, the segment behind it, and
// what that one continues.
func (t *transcript) extent(snap *snapshot, n int) (next int, end int64, behind chained, err error) {
	if n == snap.seg {
		return 0, snap.off, chained{}, nil
	}
	next, h, err := t.files.following(n)
	if err != nil {
		return 0, 0, chained{}, err
	}
	if next > snap.seg {
		next = 0
	}
	if next != 0 && h.ok && h.after.Segment == n {
		end, err = t.files.sealedEnd(n, h)
	} else {
		end, err = t.files.size(n)
	}
	return next, end, h.prev, err
}

// backward yields the items before a place, the nearest first. behind is what the line
// at that place continues, if it is known.
func (t *transcript) backward(snap *snapshot, at place, behind chained) iter.Seq2[placed, error] {
	return func(yield func(placed, error) bool) {
		numbers := t.upTo(snap)
		i, found := slices.BinarySearch(numbers, at.Segment)
		if !found {
			i = len(numbers) - 1
		}
		end := at.Offset
		for n := numbers[i]; ; {
			if err := t.ours(n); err != nil {
				yield(placed{}, err)
				return
			}
			if !t.backwardIn(n, end, behind, yield) {
				return
			}
			prev, off, link, err := t.before(snap, numbers, n)
			if err != nil {
				yield(placed{}, err)
				return
			}
			if prev == 0 {
				return
			}
			n, end, behind = prev, off, link
		}
	}
}

// before returns the segment that segment n continues, where its valid part ends, and
// the checksum that n continues.
func (t *transcript) before(snap *snapshot, numbers []int, n int) (int, int64, chained, error) {
	h, err := t.files.headerOf(n)
	if err != nil {
		return 0, 0, chained{}, err
	}
	if h.ok {
		if !slices.Contains(numbers, h.after.Segment) {
			return 0, 0, chained{}, nil
		}
		end, err := t.files.sealedEnd(h.after.Segment, h)
		return h.after.Segment, end, h.prev, err
	}
	i, _ := slices.BinarySearch(numbers, n)
	if i == 0 {
		return 0, 0, chained{}, nil
	}
	size, err := t.files.size(numbers[i-1])
	return numbers[i-1], size, chained{}, err
}

// maxGlued is how far back a reader goes at once for a good line before a bad one.
const maxGlued = 64 << 20

// backwardIn yields the items of [0, end) of one segment from the end; false when
// the reader has had enough or got an error.
func (t *transcript) backwardIn(n int, end int64, behind chained, yield func(placed, error) bool) bool {
	size := int64(16 << 10)
	for end > 0 {
		from := max(0, end-size)
		chunk, err := t.readStretch(n, from, end)
		if err != nil {
			yield(placed{}, classify(err))
			return false
		}
		if from > 0 {
			// The stretch begins within a line: leave that one for the next round.
			i := bytes.IndexByte(chunk, '\n')
			if i < 0 || i == len(chunk)-1 {
				size *= 4
				continue
			}
			chunk, from = chunk[i+1:], from+int64(i+1)
		}
		items, err := itemsOf(chunk, from, behind)
		if err != nil {
			yield(placed{}, err)
			return false
		}
		if from > 0 && len(items) > 0 && !items[0].good && size < maxGlued {
			size *= 4 // lines that were glued together are told apart by the one before them
			continue
		}
		for _, it := range slices.Backward(items) {
			if !yield(placed{it, n}, nil) {
				return false
			}
		}
		end, behind = from, chained{}
		if len(items) > 0 && items[0].good {
			behind.sum, behind.known = prevOf(items[0].raw)
		}
		size = min(size*2, 1<<20)
	}
	return true
}

func itemsOf(chunk []byte, from int64, behind chained) ([]item, error) {
	s := newScanner(func(p []byte, off int64) (int, error) {
		return copy(p, chunk[off-from:]), nil
	}, from, from+int64(len(chunk)))
	s.chunk, s.behind = len(chunk), behind
	var items []item
	for {
		it, err := s.next()
		if errors.Is(err, io.EOF) {
			return items, nil
		}
		if err != nil {
			return nil, err
		}
		items = append(items, it)
	}
}

// backwardFrom yields the items with messages before seq, the nearest first.
func (t *transcript) backwardFrom(snap *snapshot, seq int64) iter.Seq2[placed, error] {
	return func(yield func(placed, error) bool) {
		if !snap.exists || seq <= 1 {
			return
		}
		end, behind := place{snap.seg, snap.off}, chained{}
		if seq <= snap.last {
			for p, err := range t.forward(snap, seq) {
				if err != nil {
					yield(placed{}, classify(err))
					return
				}
				first, last, ok := seqsOf(p.raw)
				if !p.good || !ok || last < seq {
					continue
				}
				end = place{p.segment, p.off}
				behind.sum, behind.known = prevOf(p.raw)
				if first < seq && !yield(p, nil) {
					return
				}
				break
			}
		}
		t.backward(snap, end, behind)(yield)
	}
}

// recordsOf yields the messages of a commit.
func recordsOf(c *commit) iter.Seq2[history.Record, error] {
	return func(yield func(history.Record, error) bool) {
		if len(c.Messages) == 0 {
			return
		}
		seq := c.First
		for _, v := range (strictjson.Value{Raw: c.Messages}).Elements() {
			if !yield(history.Record{Seq: seq, JSON: jsontext.Value(v.Raw), Note: c.Note, Last: c.Last}, nil) {
				return
			}
			seq++
		}
	}
}
