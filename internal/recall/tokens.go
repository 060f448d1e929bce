package recall

import (
	"sync"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/cases"
	"golang.org/x/text/unicode/norm"
)

// maxTokenRunes is where a token is cut: what is longer is found by its beginning.
const maxTokenRunes = 64

// maxFolds is how many foldings of characters a tokenizer remembers.
const maxFolds = 4096

// A tokenizer makes terms of text, the same ones for messages and for queries: runs of letters and digits after NFKC,
// case folded, without diacritics. Scripts that put no space between words give pairs of neighbours, and the last
// character of a run alone, so that one character is found as the beginning of a term. Not safe for concurrent use.
type tokenizer struct {
	folds map[rune]string
	fold  cases.Caser
	word  []byte
	runes int
	from  int
	to    int

	pair     []byte // the last character of a run without spaces, then the one before it is gone
	pairFrom int
	pairTo   int
	run      int // its length so far

	query bool // the last character of a run of two or more is left out
	visit func(term []byte, from, to int)
}

var tokenizers = sync.Pool{New: func() any {
	return &tokenizer{folds: map[rune]string{}, fold: cases.Fold()}
}}

// eachToken visits the terms of text in order, with where they stand, in bytes. A term is valid during the call only.
// Each call is one position, and so is what a query leaves out, which has a nil term.
func eachToken(text string, query bool, visit func(term []byte, from, to int)) {
	t := tokenizers.Get().(*tokenizer)
	t.query, t.visit = query, visit
	t.text(text)
	t.visit = nil
	tokenizers.Put(t)
}

func (t *tokenizer) text(text string) {
	t.word, t.pair, t.runes, t.run = t.word[:0], t.pair[:0], 0, 0
	for i := 0; i < len(text); {
		c := text[i]
		if c < utf8.RuneSelf {
			switch {
			case 'a' <= c && c <= 'z', '0' <= c && c <= '9':
				t.letter(rune(c), i, i+1)
			case 'A' <= c && c <= 'Z':
				t.letter(rune(c)+'a'-'A', i, i+1)
			default:
				t.end()
			}
			i++
			continue
		}
		n := max(1, norm.NFKC.NextBoundaryInString(text[i:], true))
		part := text[i : i+n]
		if !norm.NFKC.IsNormalString(part) {
			part = norm.NFKC.String(part)
		}
		for _, r := range part {
			t.rune(r, i, i+n)
		}
		i += n
	}
	t.end()
}

// rune takes one character of a text in NFKC.
func (t *tokenizer) rune(r rune, from, to int) {
	switch {
	case unspaced(r):
		t.character(r, from, to)
	case unicode.Is(unicode.Cf, r) && r != '\u200b': // invisible, but for the space without width
	case unicode.IsLetter(r), unicode.IsNumber(r), unicode.IsMark(r):
		for _, f := range t.folded(r) {
			t.letter(f, from, to)
		}
	default:
		t.end()
	}
}

// folded is what a character becomes, perhaps nothing.
func (t *tokenizer) folded(r rune) string {
	if s, ok := t.folds[r]; ok {
		return s
	}
	var out []rune
	for _, f := range norm.NFKD.String(t.fold.String(string(r))) {
		switch plain, ok := strokes[f]; {
		case ok:
			out = append(out, []rune(plain)...)
		case unicode.IsMark(f) && diacritic(f):
		case unicode.IsLetter(f), unicode.IsNumber(f), unicode.IsMark(f):
			out = append(out, f)
		}
	}
	if len(t.folds) >= maxFolds {
		clear(t.folds)
	}
	t.folds[r] = string(out)
	return t.folds[r]
}

// strokes are letters whose diacritic is a part of them for Unicode.
var strokes = map[rune]string{
	'ø': "o", 'đ': "d", 'ð': "d", 'ł': "l", 'ħ': "h", 'ŧ': "t", 'ı': "i", 'æ': "ae", 'œ': "oe", 'þ': "th", 'ς': "σ",
}

// diacritic reports whether a mark is left out of terms. Vowel signs of scripts that write them as marks stay.
func diacritic(r rune) bool {
	switch {
	case 0x0300 <= r && r <= 0x036f, 0x1ab0 <= r && r <= 0x1aff, 0x1dc0 <= r && r <= 0x1dff, 0x20d0 <= r && r <= 0x20ff:
		return true
	case 0x0591 <= r && r <= 0x05c7, 0x064b <= r && r <= 0x065f, r == 0x0670:
		return true
	}
	return false
}

// unspaced reports whether a character is of a script that parts words by nothing one could see.
func unspaced(r rune) bool {
	if r < 0x0e00 {
		return false
	}
	return r == 'ー' || unicode.In(r, unicode.Han, unicode.Hiragana, unicode.Katakana, unicode.Hangul, unicode.Bopomofo,
		unicode.Thai, unicode.Lao, unicode.Khmer, unicode.Myanmar)
}

// letter adds to the word.
func (t *tokenizer) letter(r rune, from, to int) {
	if t.run > 0 {
		t.endRun()
	}
	if t.runes == 0 {
		t.from = from
	}
	t.to = to
	if t.runes++; t.runes <= maxTokenRunes {
		t.word = utf8.AppendRune(t.word, r)
	}
}

// character adds to the run of characters without spaces.
func (t *tokenizer) character(r rune, from, to int) {
	t.endWord()
	before := len(t.pair)
	t.pair = utf8.AppendRune(t.pair, r)
	if t.run++; t.run > 1 {
		t.visit(t.pair, t.pairFrom, to)
		t.pair = append(t.pair[:0], t.pair[before:]...)
	}
	t.pairFrom, t.pairTo = from, to
}

func (t *tokenizer) end() {
	t.endWord()
	t.endRun()
}

func (t *tokenizer) endWord() {
	if t.runes > 0 {
		t.visit(t.word, t.from, t.to)
		t.word, t.runes = t.word[:0], 0
	}
}

func (t *tokenizer) endRun() {
	if t.run == 0 {
		return
	}
	if t.query && t.run > 1 {
		t.visit(nil, t.pairFrom, t.pairTo)
	} else {
		t.visit(t.pair, t.pairFrom, t.pairTo)
	}
	t.pair, t.run = t.pair[:0], 0
}
