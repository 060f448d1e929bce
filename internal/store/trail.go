package store

import (
	"bytes"
	"cmp"
	"hash/crc32"
	"slices"
	"sync"
	"sync/atomic"

	"historyd/internal/history"
)

// Limits of a trail, and of how many there are.
const (
	stretchBytes = 64 << 10 // after which one stretch ends and another begins
	stretchMarks = 512
	shortStretch = 16 << 10 // of which nothing is kept unless it touches another
	maxMarks     = 1 << 16  // of one trail
	maxTrails    = 32
)

// A trail tells of stretches at the end of a record which ids of calls stand in them,
// so that the search for a call of long ago reads none of the others. It is made of what
// such searches have read, holds for as long as the record, since that is only ever
// added to, and may be lost at any time. It is never changed once published.
type trail struct {
	stretches []stretch // ascending, none over another
}

// A stretch is lines that follow one another, all of them good.
type stretch struct {
	begin, end  place
	first, last int64 // seqs, as a line has them
	size        int64
	marks       []uint32
}

// trails are those that are kept.
type trails struct {
	mu   sync.Mutex
	kept []*atomic.Pointer[trail] // the last used behind
}

// learn adds what was read to a trail, unless that is another by now.
func (ts *trails) learn(of *atomic.Pointer[trail], known *trail, fresh []stretch) {
	if len(fresh) == 0 {
		return
	}
	next := known.with(fresh)
	if next == nil || !of.CompareAndSwap(known, next) {
		return
	}
	ts.mu.Lock()
	defer ts.mu.Unlock()
	if i := slices.Index(ts.kept, of); i >= 0 {
		ts.kept = slices.Delete(ts.kept, i, i+1)
	} else if len(ts.kept) >= maxTrails {
		ts.kept[0].Store(nil)
		ts.kept = slices.Delete(ts.kept, 0, 1)
	}
	ts.kept = append(ts.kept, of)
}

// endingAt returns the stretch that ends at a place, or nil.
func (t *trail) endingAt(at place) *stretch {
	if t == nil {
		return nil
	}
	i, found := slices.BinarySearchFunc(t.stretches, at, func(s stretch, at place) int { return s.end.compare(at) })
	if !found {
		return nil
	}
	return &t.stretches[i]
}

// with is the trail with more stretches in it; nil when there is nothing to keep.
func (t *trail) with(fresh []stretch) *trail {
	list := slices.Clone(fresh)
	if t != nil {
		list = append(list, t.stretches...)
	}
	slices.SortFunc(list, func(a, b stretch) int { return a.end.compare(b.end) })
	joined := list[:0]
	for _, s := range list {
		if n := len(joined); n > 0 && joined[n-1].end == s.begin && joined[n-1].room(&s) {
			joined[n-1] = joined[n-1].and(&s)
		} else {
			joined = append(joined, s)
		}
	}
	var kept []stretch // the newest first
	marks := 0
	for i := len(joined) - 1; i >= 0; i-- {
		s := &joined[i]
		touches := i > 0 && joined[i-1].end == s.begin || i+1 < len(joined) && s.end == joined[i+1].begin
		if s.size < shortStretch && !touches {
			continue
		}
		if marks += len(s.marks) + 1; marks > maxMarks {
			break
		}
		kept = append(kept, *s)
	}
	if len(kept) == 0 {
		return nil
	}
	slices.Reverse(kept)
	return &trail{kept}
}

// add puts a line before the stretch.
func (s *stretch) add(p placed, first, last int64) {
	if s.size == 0 {
		s.end, s.first, s.last = place{p.segment, p.end()}, first, last
	}
	s.begin, s.first = place{p.segment, p.off}, min(s.first, first)
	s.size += int64(len(p.raw))
	s.marks = appendMarks(s.marks, p.raw)
}

func (s *stretch) full() bool { return s.size >= stretchBytes || len(s.marks) >= stretchMarks }

// room reports whether the next stretch may be one with this one.
func (s *stretch) room(next *stretch) bool {
	return s.size+next.size <= stretchBytes && len(s.marks)+len(next.marks) <= stretchMarks
}

// and is one stretch of this and the next one.
func (s *stretch) and(next *stretch) stretch {
	return stretch{
		begin: s.begin, end: next.end, first: min(s.first, next.first), last: max(s.last, next.last),
		size: s.size + next.size, marks: slices.Concat(s.marks, next.marks),
	}
}

// holds reports whether an id with that mark stands there; another id may have the same.
func (s *stretch) holds(mark uint32) bool { return slices.Contains(s.marks, mark) }

// markOf is the mark of an id.
func markOf(id string) uint32 { return crc32.Checksum(history.AppendString(nil, id), castagnoli) }

// appendMarks appends the marks of all ids of calls that stand in a line, of calls and
// of results. It may take something else for one.
func appendMarks(dst []uint32, line []byte) []uint32 {
	for _, before := range []string{`"tool_call","id":`, `"call_id":`} {
		for rest := line; ; {
			_, after, found := bytes.Cut(rest, []byte(before))
			if !found {
				break
			}
			n := 1
			for n < len(after) && after[n] != '"' {
				if after[n] == '\\' {
					n++
				}
				n++
			}
			rest = after[min(n+1, len(after)):]
			dst = append(dst, crc32.Checksum(after[:len(after)-len(rest)], castagnoli))
		}
	}
	return dst
}

// compare orders places as they follow one another in a record.
func (p place) compare(q place) int {
	return cmp.Or(cmp.Compare(p.Segment, q.Segment), cmp.Compare(p.Offset, q.Offset))
}
