package projection

import (
	"slices"
	"strings"
	"unicode/utf8"

	"historyd/internal/history"
	"historyd/internal/strictjson"
)

// minEcho is how many code points a value has at least to be looked for elsewhere:
// shorter ones stand everywhere.
const minEcho = 4

// maxNested is how deep text is opened that stands in strings of other text. Each
// level doubles the escapes.
const maxNested = 8

// values collects what of withheld parts must not be repeated elsewhere.
type values struct {
	each   func(value) // is told of each, of some more than once
	within []document  // long ones found in strings, to be read when what they stand in is not in memory any more
}

// lengthy is from how many bytes on a document waits: each in another takes both.
const lengthy = 4 << 10

// A document is JSON that stands in a string that is so deep in others.
type document struct {
	text, category string
	nested         int
}

// A latest holds the values that came last, each once.
type latest struct {
	list []value
	seen map[string]int // where in list
}

// enough is for how many values a latest holds it gives up the old ones: twice as many as
// are ever carried, for none is shorter than minEcho bytes.
const enough = 2 * maxCarried / minEcho

func (l *latest) add(v value) {
	if _, there := l.seen[v.text]; there {
		return
	}
	if len(l.list) == enough {
		l.list = newest(l.list, maxCarried)
		clear(l.seen)
		for i, v := range l.list {
			l.seen[v.text] = i
		}
	}
	if l.seen == nil {
		l.seen = map[string]int{}
	}
	l.seen[v.text] = len(l.list)
	l.list = append(l.list, v)
}

// after returns them behind the earlier ones, each once. Of equal ones the category of
// the first counts.
func (l *latest) after(earlier []value) []value {
	var all []value
	for _, v := range earlier {
		if i, again := l.seen[v.text]; again {
			l.list[i].category = v.category
		} else {
			all = append(all, v)
		}
	}
	return append(all, l.list...)
}

// newest returns the last of the values that take up to so many bytes together, as
// copies that hold nothing else.
func newest(list []value, bytes int) []value {
	var kept []value
	for _, v := range slices.Backward(list) {
		if n := len(v.text); n <= bytes {
			bytes -= n
			kept = append(kept, value{strings.Clone(v.text), v.category})
		}
	}
	slices.Reverse(kept)
	return kept
}

// open reads the documents that were found in strings, and those in them.
func (vs *values) open() {
	for len(vs.within) > 0 {
		last := len(vs.within) - 1
		d := vs.within[last]
		vs.within[last] = document{}
		vs.within = vs.within[:last]
		vs.read(d)
	}
}

func (vs *values) read(d document) {
	vs.json(strictjson.Document([]byte(d.text)), d.category, d.nested)
}

// arguments collects the string values of the arguments of a withheld call.
func (vs *values) arguments(b *history.Block, category string) {
	defer vs.open()
	switch {
	case b.Arguments != nil && strictjson.Check(b.Arguments) == nil:
		v := strictjson.Document(b.Arguments)
		if s, ok := v.Text(); ok {
			vs.freeText(s, category)
			return
		}
		vs.json(v, category, 0)
	case b.Arguments != nil:
		vs.freeText(string(b.Arguments), category)
	case b.ArgumentsText != nil:
		vs.freeText(*b.ArgumentsText, category)
	}
}

// result collects the texts of a withheld result.
func (vs *values) result(b *history.Block, category string) {
	defer vs.open()
	for i := range b.Content {
		vs.freeText(b.Content[i].Text, category)
	}
}

// members collects what stands in members of an object: arguments, or an answer.
func (vs *values) members(list []strictjson.Value, category string) {
	defer vs.open()
	for _, v := range list {
		if s, ok := v.Text(); ok {
			vs.freeText(s, category)
		} else {
			vs.json(v, category, 0)
		}
	}
}

// json collects the string values of JSON. Names of members are not values.
func (vs *values) json(v strictjson.Value, category string, nested int) {
	switch v.Kind() {
	case '{':
		for _, m := range v.Members() {
			vs.json(m, category, nested)
		}
	case '[':
		for _, e := range v.Elements() {
			vs.json(e, category, nested)
		}
	case '"':
		s, _ := v.Text()
		vs.text(s, category, nested)
	}
}

// text collects a string, and what is in it when it holds JSON, or is quoted in it
// when it nearly does.
func (vs *values) text(s, category string, nested int) {
	if json, almost := vs.piece(s, category, nested); almost && !json {
		vs.quoted(s, category, nested+1)
	}
}

// piece collects a string, and notes what is in it when it holds JSON. almost tells
// that it begins as JSON does.
func (vs *values) piece(s, category string, nested int) (json, almost bool) {
	vs.add(s, category)
	trimmed := strings.TrimSpace(s)
	if trimmed == "" || nested >= maxNested || !strings.ContainsRune(`{["`, rune(trimmed[0])) {
		return false, false
	}
	if strictjson.Check([]byte(trimmed)) != nil {
		return false, trimmed[0] == '{'
	}
	if d := (document{trimmed, category, nested + 1}); len(trimmed) < lengthy {
		vs.read(d)
	} else {
		vs.within = append(vs.within, d)
	}
	return true, true
}

// freeText collects a text that may or may not be JSON: itself, its lines, and
// what is quoted in it.
func (vs *values) freeText(s, category string) {
	json, _ := vs.piece(s, category, 0)
	for line := range strings.FieldsFuncSeq(s, func(r rune) bool { return r == '\n' || r == '\r' }) {
		vs.add(line, category)
	}
	if !json {
		vs.quoted(s, category, 0)
	}
}

// quoted collects what stands between quotation marks of one sort. A text may
// begin inside a quotation, so what stands outside is collected, too.
func (vs *values) quoted(s, category string, nested int) {
	collect := func(piece string) {
		vs.piece(piece, category, nested+1)
		if plain, ok := (&spelling{text: piece}).undo(jsonEscape); ok {
			vs.piece(plain.text, category, nested+1)
		}
	}
	for _, quote := range []byte{'"', '\'', '`'} {
		if strings.IndexByte(s, quote) < 0 {
			continue
		}
		start := 0
		for i := 0; i < len(s); i++ {
			switch s[i] {
			case quote:
				collect(s[start:i])
				start = i + 1
			case '\\':
				i++
			}
		}
		collect(s[start:])
	}
}

// add collects a string that is long enough, without the white space around it: it
// may get lost where the string is repeated.
func (vs *values) add(s, category string) {
	trimmed := strings.TrimSpace(s)
	if trimmed == "" {
		return
	}
	if utf8.RuneCountInString(trimmed) >= minEcho {
		s = trimmed
	}
	if utf8.RuneCountInString(s) >= minEcho {
		vs.each(value{s, category})
	}
}
