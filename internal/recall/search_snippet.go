package recall

import (
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

const (
	snippetRunes = 240
	snippetLead  = 40       // runes before the first word found
	maxScanned   = 64 << 10 // bytes of a text that are looked through at a time
)

// A marker finds the words of a query in texts.
type marker struct {
	words    map[string]bool
	stems    map[string]bool
	prefixes []string
}

func (f *finder) marker() *marker {
	m := &marker{words: map[string]bool{}, stems: map[string]bool{}}
	for _, u := range f.units {
		switch {
		case u.not:
		case u.prefix:
			m.prefixes = append(m.prefixes, u.terms...)
		case u.stem != "":
			m.stems[u.stem] = true
			for _, other := range u.alias {
				m.stems[other] = true
			}
		default:
			for _, t := range u.terms {
				m.words[t] = true
			}
		}
	}
	return m
}

func (m *marker) wants(term []byte) bool {
	return m.words[string(term)] || m.stems[string(stem(term))] || slices.ContainsFunc(m.prefixes, func(p string) bool {
		return strings.HasPrefix(string(term), p)
	})
}

// A foundWord is where a word of the query stands in a text, in bytes.
type foundWord struct {
	from, to int
	term     string
}

// places finds the words in a text; in the rest of a long one only when there were none so far.
func (m *marker) places(text string) (all []foundWord) {
	for off := 0; off < len(text) && len(all) == 0; {
		end := len(text)
		if end-off > maxScanned {
			end = off + maxScanned
			if i := strings.LastIndexAny(text[off:end], " \n\t"); i > 0 {
				end = off + i
			}
			for !utf8.RuneStart(text[end]) {
				end--
			}
		}
		eachToken(text[off:end], false, func(term []byte, from, to int) {
			if m.wants(term) {
				all = append(all, foundWord{off + from, off + to, string(term)})
			}
		})
		off = end
	}
	return all
}

// snippet returns the stretch of the texts with the most different words, on one line, and where they stand in it.
func (m *marker) snippet(texts []string) (string, [][2]int) {
	var text string
	var in []foundWord
	most, first := -1, 0
	for _, t := range texts {
		found := m.places(t)
		at, n := densest(t, found)
		if n > most {
			text, in, first, most = t, found, at, n
		}
	}
	start := 0
	if len(in) > 0 {
		start = back(text, in[first].from, snippetLead)
	}
	return cut(text, start, in)
}

// densest returns the word found that begins the window with the most different ones.
func densest(text string, found []foundWord) (at, most int) {
	for i := range found {
		seen := map[string]bool{}
		for _, p := range found[i:] {
			// A byte is a rune at the most.
			if p.to-found[i].from > snippetRunes-snippetLead {
				break
			}
			seen[p.term] = true
		}
		if len(seen) > most {
			at, most = i, len(seen)
		}
		if i > 2000 {
			break
		}
	}
	return at, most
}

// back is up to n runes before from, at the beginning of a word where there is one.
func back(text string, from, n int) int {
	start, word := from, from
	for ; n > 0 && start > 0; n-- {
		r, size := utf8.DecodeLastRuneInString(text[:start])
		if unicode.IsSpace(r) {
			word = start
		}
		start -= size
	}
	if start > 0 && word > start {
		return word
	}
	return start
}

// cut makes the snippet that begins at start. Code points stay code points, so that marks are easy to find; those that
// are not seen, or that turn the direction of what stands beside the snippet, are left out.
func cut(text string, start int, in []foundWord) (string, [][2]int) {
	var b strings.Builder
	var marks [][2]int
	n := 0
	if start > 0 {
		b.WriteRune('…')
		n++
	}
	for i, r := range text[start:] {
		if n >= snippetRunes {
			b.WriteRune('…')
			break
		}
		if unicode.Is(unicode.Cf, r) && r != '\u200c' && r != '\u200d' { // joiners: scripts and emoji need them
			continue
		}
		at := start + i
		for len(in) > 0 && in[0].to <= at {
			in = in[1:]
		}
		if len(in) > 0 && in[0].from <= at && at < in[0].to {
			if k := len(marks) - 1; k >= 0 && marks[k][1] == n && at > in[0].from {
				marks[k][1]++
			} else {
				marks = append(marks, [2]int{n, n + 1})
			}
		}
		if unicode.IsControl(r) || unicode.IsSpace(r) {
			r = ' '
		}
		b.WriteRune(r)
		n++
	}
	return b.String(), marks
}
