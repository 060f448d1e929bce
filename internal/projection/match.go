package projection

import (
	"bytes"
	"cmp"
	"slices"
)

// maxNodes bounds the memory of one automaton, which is some thirty times as much. More
// values than it holds are looked for in several passes.
const maxNodes = 1 << 20

// A value is text that must not be kept, and the category that withholds it.
type value struct{ text, category string }

// A span is a stretch of a text that repeats withheld values.
type span struct {
	from, to int
	longest  int // of the values in it
	category string
}

// A search finds where values stand in texts, in any spelling. The values come one by
// one and are held only until there are enough for a pass, so that many short ones do not
// take many times the memory of the bytes that they stand in. Its cost is linear in the
// texts and in the values, but for the passes.
type search struct {
	texts   []map[string][]span // the spans of each that has some, in order, neither overlapping nor touching
	longest int                 // of the texts
	room    int                 // bytes of values for one pass
	batch   []value
	size    int // bytes in the batch
	machine automaton
}

func newSearch(texts ...map[string][]span) *search {
	s := &search{texts: texts, room: maxNodes}
	for _, list := range texts {
		for t := range list {
			s.longest = max(s.longest, len(t))
		}
	}
	return s
}

// add looks for one more value, of which the first of equal ones counts.
func (s *search) add(v value) {
	if len(v.text) > s.longest {
		return // no spelling is longer than its text
	}
	if n := len(s.batch); n > 0 && s.size+len(v.text) > s.room {
		if s.batch[n-1].text == v.text {
			return
		}
		s.pack()
		if s.size+len(v.text) > s.room || s.size > s.room/2 {
			s.pass()
		}
	}
	s.batch = append(s.batch, v)
	s.size += len(v.text)
}

// pack puts the batch in order, each value once: those that come again and again must not cost
// a pass each time.
func (s *search) pack() {
	slices.SortStableFunc(s.batch, func(a, b value) int { return cmp.Compare(a.text, b.text) })
	s.batch = slices.CompactFunc(s.batch, func(a, b value) bool { return a.text == b.text })
	s.size = 0
	for _, v := range s.batch {
		s.size += len(v.text)
	}
}

// pass looks for the values of the batch, which is empty then.
func (s *search) pass() {
	s.pack()
	if len(s.batch) == 0 {
		return
	}
	s.machine.build(s.batch, s.size)
	for _, list := range s.texts {
		for t, spans := range list {
			for spelt := range spelled(t) {
				if more := s.machine.scan(spelt); len(more) > 0 {
					spans = merge(append(spans, more...)) // at once, for most are the same in each
				}
			}
			list[t] = spans
		}
	}
	s.batch, s.size = s.batch[:0], 0
}

// merge puts the spans in order and makes one of those that overlap or touch.
func merge(spans []span) []span {
	slices.SortStableFunc(spans, func(a, b span) int { return cmp.Compare(a.from, b.from) })
	merged := spans[:1]
	for _, s := range spans[1:] {
		if last := &merged[len(merged)-1]; s.from <= last.to {
			last.join(s)
		} else {
			merged = append(merged, s)
		}
	}
	return merged
}

func (s *span) join(t span) {
	s.from, s.to = min(s.from, t.from), max(s.to, t.to)
	if t.longest > s.longest {
		s.longest, s.category = t.longest, t.category
	}
}

// An automaton finds many values in one pass over a text (Aho and Corasick). Its
// nodes are the beginnings of values, the short before the long, node 0 the empty
// one. The children of a node follow one another.
type automaton struct {
	values []value  // sorted
	label  []byte   // the last byte of the beginning
	child  []uint32 // the first child; those of node n end where those of n+1 begin
	fail   []uint32 // the longest other beginning that this one ends with
	ends   []uint32 // 1 + the longest value that this one ends with; 0 is none
}

// build makes the automaton of values of size bytes together, in order, none empty and
// none equal. It holds on to them, and uses its memory again.
func (a *automaton) build(values []value, size int) {
	a.values = values
	a.label = append(slices.Grow(a.label[:0], size+1), 0)
	a.child = append(slices.Grow(a.child[:0], size+2), 0)
	a.fail = append(slices.Grow(a.fail[:0], size+1), 0)
	a.ends = append(slices.Grow(a.ends[:0], size+1), 0)
	// The values that begin as the node does.
	type stretch struct{ from, to uint32 }
	level, deeper := []stretch{{0, uint32(len(values))}}, []stretch(nil)
	for n, depth := 0, 0; len(level) > 0; depth++ {
		deeper = deeper[:0]
		for _, s := range level {
			a.child = append(a.child[:n], uint32(len(a.label)))
			if n > 0 && a.ends[n] == 0 {
				a.ends[n] = a.ends[a.fail[n]]
			}
			for from := s.from; from < s.to; {
				if len(values[from].text) == depth {
					from++ // the node itself
					continue
				}
				c, to := values[from].text[depth], from+1
				for to < s.to && values[to].text[depth] == c {
					to++
				}
				a.grow(n, c, depth+1, int(from))
				deeper = append(deeper, stretch{from, to})
				from = to
			}
			n++
		}
		level, deeper = deeper, level
	}
	a.child = append(a.child, uint32(len(a.label)))
}

// grow adds the child of node n for the byte, the beginning of that length of the value.
func (a *automaton) grow(n int, c byte, length, value int) {
	fail, end := uint32(0), uint32(0)
	if n > 0 {
		fail = a.step(a.fail[n], c)
	}
	if len(a.values[value].text) == length {
		end = uint32(value + 1)
	}
	a.label = append(a.label, c)
	a.fail = append(a.fail, fail)
	a.ends = append(a.ends, end)
}

// step returns the longest beginning that n followed by the byte ends with.
func (a *automaton) step(n uint32, c byte) uint32 {
	for {
		first := a.child[n]
		if i := indexByte(a.label[first:a.child[n+1]], c); i >= 0 {
			return first + uint32(i)
		}
		if n == 0 {
			return 0
		}
		n = a.fail[n]
	}
}

// indexByte is bytes.IndexByte of sorted bytes, which most often are one or two.
func indexByte(list []byte, c byte) int {
	if len(list) > 16 {
		return bytes.IndexByte(list, c)
	}
	for i, b := range list {
		if b >= c {
			if b == c {
				return i
			}
			break
		}
	}
	return -1
}

// scan returns where values stand in the spelling, as spans of its text, merged.
func (a *automaton) scan(s *spelling) []span {
	var spans []span
	n := uint32(0)
	for i := range len(s.text) {
		n = a.step(n, s.text[i])
		if a.ends[n] == 0 {
			continue
		}
		v := a.values[a.ends[n]-1]
		hit := span{s.at(i + 1 - len(v.text)), s.at(i + 1), len(v.text), v.category}
		// Hits come in the order of their ends, so only the last spans can touch this one.
		for len(spans) > 0 && spans[len(spans)-1].to >= hit.from {
			hit.join(spans[len(spans)-1])
			spans = spans[:len(spans)-1]
		}
		spans = append(spans, hit)
	}
	return spans
}
