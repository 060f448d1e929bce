package projection

import "unicode/utf8"

// Classes of bytes.
const (
	sign  = iota
	lower // must stand beside upper and digit
	upper
	digit
	space
	line
	beyond // ASCII
)

var classes = func() (table [256]uint8) {
	for c := range table {
		switch {
		case c >= utf8.RuneSelf:
			table[c] = beyond
		case 'a' <= c && c <= 'z':
			table[c] = lower
		case 'A' <= c && c <= 'Z':
			table[c] = upper
		case '0' <= c && c <= '9':
			table[c] = digit
		case c == '\n' || c == '\r':
			table[c] = line
		case c <= ' ':
			table[c] = space
		}
	}
	return table
}()

// Vocabularies know fewer words of other languages than of English. Words count as such
// for so many bytes behind a letter with an accent, and after so many words of which none
// is one that English prose is full of.
const (
	accentReach = 150
	plainWords  = 8
)

// price estimates a text by the runs that tokenizers part it into: words at their case,
// digits by three, signs and white space by what often stands together, and other
// scripts by the character. The figures are for the vocabulary of GPT-4, which takes up to
// twice as many tokens as later ones for scripts other than Latin.
func price(s string) cents {
	n, accents, plain, last := cents(0), 0, 0, uint8(space)
	for i := 0; i < len(s); {
		start, class := i, classes[s[i]]
		switch class {
		case lower:
			rare := i < accents || plain > plainWords
			for i++; i < len(s) && s[i]-'a' < 26; {
				i++
			}
			if i == len(s) || classes[s[i]]-upper > digit-upper {
				n += word(cents(i-start), rare) // most of prose
			} else {
				var c cents
				c, i = alphanumerics(s, start, rare)
				n += c
			}
			if last == space {
				plain++
				if english(s[start:i]) {
					plain = 0
				}
			}
		case upper, digit:
			var c cents
			c, i = alphanumerics(s, i, i < accents || plain > plainWords)
			n += c
		case space:
			i = run(s, i+1, space)
			// The last space goes with what is behind it, unless that is a digit.
			if i < len(s) && classes[s[i]] == digit {
				n += 100
			}
			if i-start > 1 {
				n += 80 + cents(i-start)
			}
		case beyond:
			r, size := utf8.DecodeRuneInString(s[i:])
			i += size
			if 0xc0 <= r && r < 0x250 {
				accents = i + accentReach
			}
			n += character(r)
		case sign:
			i = run(s, i+1, sign)
			switch s[start] {
			case ',', '.', '-', ';', ':', '?', '!', '\'':
			default:
				plain = 0 // no prose
			}
			n += signs(s[start:i], i < len(s) && classes[s[i]]-lower < 2)
		case line:
			i = run(s, i+1, line)
			if last == sign {
				n += 30
			} else {
				n += 95
			}
		}
		last = class
	}
	return n
}

// run returns where a run of a class ends that goes on until i at least.
func run(s string, i int, class uint8) int {
	for i < len(s) && classes[s[i]] == class {
		i++
	}
	return i
}

// alphanumerics prices letters and digits in a row, and returns where they end. In a long
// row small and capital letters that take turns are no words: base64, or a key.
func alphanumerics(s string, i int, rare bool) (n cents, end int) {
	begin, capitals, small := i, 0, 0
	for i < len(s) {
		start, class := i, classes[s[i]]
		if class-lower > digit-lower {
			break
		}
		i = run(s, i, class)
		switch length := i - start; {
		case class == digit:
			n += cents(length+2) / 3 * 100
			continue
		case class == upper && length > 1:
			capitals++
			n += 20 + 40*cents(length)
			continue
		case class == upper:
			capitals++
			i = run(s, i, lower)
			small += i - start - 1
		default:
			small += length
		}
		n += word(cents(i-start), rare)
	}
	if i-begin >= 20 && capitals*8 >= i-begin && small > 1 {
		n += n * 38 / 100
	}
	return n, i
}

// english reports whether a word is one of those that make up a fifth of English prose
// and are in no other language.
func english(s string) bool {
	switch len(s) {
	case 2:
		return s == "of" || s == "to" || s == "it"
	case 3:
		return s == "the" || s == "and" || s == "for" || s == "you"
	case 4:
		return s == "that" || s == "with" || s == "this"
	}
	return false
}

// word prices a run of small letters, of which the first may be a capital; rare is one that
// vocabularies know less of.
func word(length cents, rare bool) cents {
	c := cents(97)
	switch {
	case length > 12:
		c = 153 + 30*(length-12)
	case length > 4:
		c = 97 + 7*(length-4)
	}
	if rare {
		c += c * 9 / 20
	}
	return c
}

// signs prices a run of signs: a token takes several that are alike, and the last one
// often goes with a word behind it.
func signs(s string, before bool) cents {
	n, more := cents(100), cents(30)
	if before {
		n = 60
	}
	if len(s) > 3 && s[0] == s[1] && s[0] == s[len(s)-1] {
		more = 2
	}
	return n + more*cents(len(s)-1)
}

// scripts are what a character of each costs up to the one that is named, from the one
// before on.
var scripts = [...]struct {
	end  rune
	each cents
}{
	{0x100, 55},     // Latin of the west
	{0x250, 70},     // Latin
	{0x370, 100},    // phonetic letters, combining marks
	{0x400, 100},    // Greek
	{0x530, 54},     // Cyrillic
	{0x590, 150},    // Armenian
	{0x600, 110},    // Hebrew
	{0x700, 85},     // Arabic
	{0x980, 118},    // Syriac to Devanagari
	{0xe00, 150},    // Bengali to Sinhala
	{0xe80, 92},     // Thai
	{0x1e00, 220},   // Lao to combining marks: Georgian, Ethiopic, Khmer
	{0x1f00, 60},    // Latin with two accents, as Vietnamese has
	{0x2000, 150},   // Greek with more accents
	{0x2100, 100},   // punctuation
	{0x2e80, 170},   // symbols
	{0x3400, 97},    // kana, punctuation of ideographs
	{0x4e00, 300},   // rare ideographs
	{0xa000, 138},   // ideographs
	{0xac00, 300},   // Yi to Javanese
	{0xd7b0, 132},   // Hangul
	{0xf900, 300},   // private use
	{0x10000, 110},  // forms of presentation, wide letters
	{0x1f000, 330},  // other planes
	{0x1fb00, 250},  // emoji
	{0x110000, 330}, // rarer ideographs
}

// blocks has the place in scripts of each sixteen characters of the first plane, within
// which none ends.
var blocks = func() (table [1 << 12]uint8) {
	n := uint8(0)
	for i := range table {
		for scripts[n].end <= rune(i<<4) {
			n++
		}
		table[i] = n
	}
	return table
}()

// character prices one character beyond ASCII.
func character(r rune) cents {
	if r < 1<<16 {
		return scripts[blocks[r>>4]].each
	}
	i := len(scripts) - 1
	for i > 0 && r < scripts[i-1].end {
		i--
	}
	return scripts[i].each
}
