package projection

import (
	"iter"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// stride is how many bytes of a spelling share one note of where they come from.
const stride = 32

// A spelling is a text with the escapes of some encodings undone, and where in the
// text each of its bytes comes from. A value that is found in a spelling stands in
// the text, however it was escaped there. It takes about twice the memory of its bytes,
// for texts are long.
type spelling struct {
	text  string
	of    *spelling // with one encoding more; nil when this is the text itself
	steps []byte    // how much further in of the next byte comes from
	notes []int     // where in of the first byte of each stride comes from
}

// at returns where in the text byte i of the spelling comes from.
func (s *spelling) at(i int) int {
	for ; s.of != nil; s = s.of {
		from := s.notes[i/stride]
		for _, n := range s.steps[i/stride*stride : i] {
			from += int(n)
		}
		i = from
	}
	return i
}

// An escape undoes what stands at the beginning of s: it appends the bytes meant
// to dst and returns how much of s they were, 0 when there is no escape.
type escape struct {
	marks string // the bytes that an escape begins with
	undo  func(dst []byte, s string) ([]byte, int)
}

var (
	jsonEscape    = escape{`\`, undoJSON}
	percentEscape = escape{`%`, undoPercent}
	formEscape    = escape{`%+`, undoForm}
)

// spellings are tried on every text: JSON up to three deep, URLs, forms, and a URL
// or a form in JSON or JSON in them.
var spellings = [][]escape{
	{},
	{jsonEscape},
	{jsonEscape, jsonEscape},
	{jsonEscape, jsonEscape, jsonEscape},
	{percentEscape},
	{formEscape},
	{percentEscape, jsonEscape},
	{formEscape, jsonEscape},
	{jsonEscape, percentEscape},
	{jsonEscape, formEscape},
}

// spelled yields the text and each spelling that differs from it.
func spelled(text string) iter.Seq[*spelling] {
	return func(yield func(*spelling) bool) {
		for _, escapes := range spellings {
			s, ok := &spelling{text: text}, true
			for _, e := range escapes {
				if s, ok = s.undo(e); !ok {
					break
				}
			}
			if ok && !yield(s) {
				return
			}
		}
	}
}

// undo returns the spelling with the escapes undone, and false when there are none.
func (s *spelling) undo(e escape) (*spelling, bool) {
	if !strings.ContainsAny(s.text, e.marks) {
		return s, false
	}
	var text strings.Builder
	text.Grow(len(s.text))
	u := &spelling{of: s, steps: make([]byte, 0, len(s.text)), notes: make([]int, 0, len(s.text)/stride+1)}
	meant, escaped := make([]byte, 0, utf8.UTFMax), false
	for i := 0; i < len(s.text); {
		plain := strings.IndexAny(s.text[i:], e.marks)
		if plain < 0 {
			plain = len(s.text) - i
		}
		meant, n := meant, 0
		if at := i + plain; at < len(s.text) {
			if meant, n = e.undo(meant, s.text[at:]); n == 0 {
				plain++ // the mark is no escape
			}
		}
		text.WriteString(s.text[i : i+plain])
		u.step(i, plain, 1)
		i += plain
		if n > 0 {
			escaped = true
			text.Write(meant)
			u.step(i, len(meant), 0)
			u.steps[len(u.steps)-1] = byte(n)
			i += n
		}
	}
	if len(u.steps)%stride == 0 {
		u.notes = append(u.notes, len(s.text))
	}
	u.text = text.String()
	return u, escaped
}

// step notes that so many bytes come from there on, each that much further in than the one before.
func (s *spelling) step(from, bytes int, each byte) {
	before := len(s.steps)
	s.steps = s.steps[:before+bytes]
	for i := before; i < len(s.steps); i++ {
		s.steps[i] = each
	}
	for i := len(s.notes) * stride; i < len(s.steps); i += stride {
		s.notes = append(s.notes, from+(i-before)*int(each))
	}
}

// undoJSON knows the escapes of JSON, and \' and \x41 of its relatives.
func undoJSON(dst []byte, s string) ([]byte, int) {
	if len(s) < 2 {
		return dst, 0
	}
	switch c := s[1]; c {
	case '"', '\\', '/', '\'':
		return append(dst, c), 2
	case 'n':
		return append(dst, '\n'), 2
	case 't':
		return append(dst, '\t'), 2
	case 'r':
		return append(dst, '\r'), 2
	case 'b':
		return append(dst, '\b'), 2
	case 'f':
		return append(dst, '\f'), 2
	case 'x':
		if r, ok := hexNumber(s, 2, 2); ok {
			return utf8.AppendRune(dst, r), 4
		}
	case 'u':
		r, ok := hexNumber(s, 2, 4)
		if ok && !utf16.IsSurrogate(r) {
			return utf8.AppendRune(dst, r), 6
		}
		if ok && strings.HasPrefix(s[6:], `\u`) {
			low, _ := hexNumber(s, 8, 4)
			if r := utf16.DecodeRune(r, low); r != utf8.RuneError {
				return utf8.AppendRune(dst, r), 12
			}
		}
	}
	return dst, 0
}

func undoPercent(dst []byte, s string) ([]byte, int) {
	if b, ok := hexNumber(s, 1, 2); ok {
		return append(dst, byte(b)), 3
	}
	return dst, 0
}

func undoForm(dst []byte, s string) ([]byte, int) {
	if s[0] == '+' {
		return append(dst, ' '), 1
	}
	return undoPercent(dst, s)
}

// hexNumber reads the n hexadecimal digits at s[from:].
func hexNumber(s string, from, n int) (rune, bool) {
	if len(s) < from+n {
		return 0, false
	}
	number, err := strconv.ParseUint(s[from:from+n], 16, 32)
	return rune(number), err == nil
}
