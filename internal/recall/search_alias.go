package recall

import (
	"cmp"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// A record explains abbreviations where they are first used, as in "Houston (IAH)". Such a pair is indexed both ways,
// so that a question with one of the two finds messages with the other.
const (
	aliasMark    = "\x02" // begins "mark, stem, mark, the other" and, for all such terms of a stem, "mark, stem", of all stems, the mark. No token begins so.
	maxAliases   = 4      // of one word
	leastAliases = 2      // messages that have to explain it: once may be a slip
	minAbbr      = 2      // letters
	maxAbbr      = 6
	aliasReach   = 64 // bytes before an abbreviation in which its name stands
)

// eachAlias visits the abbreviations that a text explains, each with the last word of its name.
func eachAlias(text string, visit func(name, abbr string)) {
	for i := 0; ; {
		at := strings.IndexByte(text[i:], '(')
		if at < 0 {
			return
		}
		i += at + 1
		n := 0
		for i+n < len(text) && 'A' <= text[i+n] && text[i+n] <= 'Z' {
			n++
		}
		if n < minAbbr || n > maxAbbr || i+n == len(text) || text[i+n] != ')' {
			continue
		}
		abbr := text[i : i+n]
		if name := nameBefore(text[:i-1], abbr); name != "" {
			visit(name, strings.ToLower(abbr))
		}
	}
}

// nameBefore returns the last word before an abbreviation, as a term, if it is a name that the abbreviation stands for. Initials
// stand for more than the last word.
func nameBefore(text, abbr string) string {
	// The reach comes first: a text may be one long line of abbreviations.
	for cut := len(text) - aliasReach; cut > 0; cut++ {
		if utf8.RuneStart(text[cut]) {
			text = text[cut:]
			break
		}
	}
	text = text[strings.LastIndexByte(text, '\n')+1:]
	var last string
	var initials []rune
	eachToken(text, true, func(term []byte, from, _ int) {
		r, _ := utf8.DecodeRuneInString(text[from:])
		initials = append(initials, r)
		last = string(term)
	})
	if len(initials) == 0 || !unicode.IsUpper(initials[len(initials)-1]) || len(last) < minAbbr || common[last] {
		return ""
	}
	if n := len(abbr); len(initials) >= n && string(initials[len(initials)-n:]) == abbr {
		return ""
	}
	return last
}

// alias notes that a document explains an abbreviation.
func (m *memtable) alias(d int32, name, abbr string) {
	if common[abbr] {
		return
	}
	name, abbr = string(stem([]byte(name))), string(stem([]byte(abbr)))
	for _, term := range []string{aliasMark, aliasMark + name, aliasMark + name + aliasMark + abbr, aliasMark + abbr, aliasMark + abbr + aliasMark + name} {
		if p := m.terms[term]; p == nil || p.last != d {
			m.post([]byte(term), d, 0)
		}
	}
}

// aliases lets what the record explains as the same count for a word that is asked for, unless it is asked for, too. It
// returns the number of the source that an error is of.
func (f *finder) aliases(sources []source) (int, error) {
	var explained []int // sources that hold any
	for k, s := range sources {
		any, err := s.find(aliasMark)
		if err != nil {
			return k, err
		}
		if any.df > 0 {
			explained = append(explained, k)
		}
	}
	if len(explained) == 0 {
		return 0, nil
	}
	said := map[string]bool{}
	for i := range f.units {
		said[f.units[i].stem] = true
	}
	for i := range f.units {
		u := &f.units[i]
		if u.stem == "" || u.must || u.common {
			continue
		}
		prefix := aliasMark + u.stem + aliasMark
		times := map[string]int{}
		for _, k := range explained {
			s := sources[k]
			any, err := s.find(aliasMark + u.stem)
			if err == nil && any.df > 0 {
				err = s.expand(prefix, func(term []byte, df int, _ func() (termList, error)) bool {
					times[string(term[len(prefix):])] += df
					return true
				})
			}
			if err != nil {
				return k, err
			}
		}
		for term, n := range times {
			if n >= leastAliases && !said[term] {
				u.alias = append(u.alias, term)
			}
		}
		slices.SortFunc(u.alias, func(a, b string) int {
			return cmp.Or(cmp.Compare(times[b], times[a]), strings.Compare(a, b))
		})
		u.alias = u.alias[:min(len(u.alias), maxAliases)]
	}
	return 0, nil
}

// forms are the terms that a unit's term stands for, if it is no prefix.
func (u *unit) forms(term string) []string {
	if u.stem == "" {
		return []string{term}
	}
	all := []string{u.stem, stemMark + u.stem}
	for _, other := range u.alias {
		all = append(all, other, stemMark+other)
	}
	return all
}

// A frequency is in how many documents a term of a unit is, by itself and by each of its aliases.
type frequency []int

// most is that of the commonest: what is explained as the same mostly stands beside it, and counts no more than once.
func (q frequency) most() int { return slices.Max(q) }

// frequencies counts the terms of all units in all sources. It returns the number of the source that an error is of.
func (f *finder) frequencies(sources []source) (counts [][]frequency, of int, err error) {
	each := make([][][]frequency, len(sources))
	of, err = f.sideBySide(len(sources), func(_, i int) (err error) {
		each[i], err = f.frequenciesIn(sources[i])
		return err
	})
	if err != nil {
		return nil, of, err
	}
	counts = each[0]
	for _, more := range each[1:] {
		for i := range counts {
			for j := range counts[i] {
				for k := range counts[i][j] {
					counts[i][j][k] += more[i][j][k]
				}
			}
		}
	}
	return counts, 0, nil
}

// frequenciesIn are, for each unit, those of its terms in one source.
func (f *finder) frequenciesIn(s source) ([][]frequency, error) {
	counts := make([][]frequency, len(f.units))
	for i := range f.units {
		u := &f.units[i]
		for _, term := range u.terms {
			q := make(frequency, 1+len(u.alias))
			for k := range q {
				alone := *u
				if alone.alias = nil; k > 0 {
					alone = unit{stem: u.alias[k-1]}
				}
				err := f.each(s, &alone, term, func(n int, _ func() (termList, error)) error {
					q[k] += n
					return nil
				})
				if err != nil {
					return nil, err
				}
			}
			counts[i] = append(counts[i], q)
		}
	}
	return counts, nil
}
