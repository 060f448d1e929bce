package projection

import (
	"bytes"
	"cmp"
	"slices"
)

// maxNodes bounds the memory of one automaton. More values than it holds are
// looked for in several passes.
const maxNodes = 1 << 22

// A value is text that must not be kept, and the category that withholds it.
type value struct{ text, category string }

// A span is a stretch of a text that repeats withheld values.
type span struct {
	from, to int
	longest  int // of the values in it
	category string
}

// find returns where the values stand in the texts, in any spelling: the spans of
// each text that has some, in order, neither overlapping nor touching. Its cost is
// linear in the values and in the texts.
func find(values []value, texts []string) map[string][]span {
	longest := 0
	for _, t := range texts {
		longest = max(longest, len(t))
	}
	// No spelling is longer than its text.
	values = slices.DeleteFunc(slices.Clone(values), func(v value) bool { return len(v.text) > longest })
	found := map[string][]span{}
	for len(values) > 0 {
		n, size := 1, len(values[0].text)
		for n < len(values) && size+len(values[n].text) <= maxNodes {
			size += len(values[n].text)
			n++
		}
		a := newAutomaton(values[:n], size)
		values = values[n:]
		for _, t := range texts {
			spans := found[t]
			for s := range spelled(t) {
				spans = append(spans, a.scan(s)...)
			}
			if len(spans) > 0 {
				found[t] = merge(spans)
			}
		}
	}
	return found
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

// newAutomaton is made from values of size bytes together, none empty. Of equal
// values the first counts.
func newAutomaton(values []value, size int) *automaton {
	values = slices.Clone(values)
	slices.SortStableFunc(values, func(a, b value) int { return cmp.Compare(a.text, b.text) })
	values = slices.CompactFunc(values, func(a, b value) bool { return a.text == b.text })
	a := &automaton{
		values: values,
		label:  make([]byte, 1, size+1),
		child:  make([]uint32, 1, size+2),
		fail:   make([]uint32, 1, size+1),
		ends:   make([]uint32, 1, size+1),
	}
	// The values that begin as the node does, and how long that is.
	type stretch struct{ from, to, depth int }
	level := []stretch{{0, len(values), 0}}
	for n := 0; len(level) > 0; {
		var deeper []stretch
		for _, s := range level {
			a.child = append(a.child[:n], uint32(len(a.label)))
			if n > 0 && a.ends[n] == 0 {
				a.ends[n] = a.ends[a.fail[n]]
			}
			for from := s.from; from < s.to; {
				if len(values[from].text) == s.depth {
					from++ // the node itself
					continue
				}
				c, to := values[from].text[s.depth], from+1
				for to < s.to && values[to].text[s.depth] == c {
					to++
				}
				a.grow(n, c, s.depth+1, from)
				deeper = append(deeper, stretch{from, to, s.depth + 1})
				from = to
			}
			n++
		}
		level = deeper
	}
	a.child = append(a.child, uint32(len(a.label)))
	return a
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
		if i := bytes.IndexByte(a.label[first:a.child[n+1]], c); i >= 0 {
			return first + uint32(i)
		}
		if n == 0 {
			return 0
		}
		n = a.fail[n]
	}
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
