package compaction

import (
	"slices"
	"strconv"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"
)

// appendQuoted appends s as a JSON string in which nothing can be taken for the
// end of a line, a delimiter, or a direction to whoever displays it. It is cut so
// that at most limit code points stand between the quotes; what is missing is
// then counted behind them, where no text can say so.
func appendQuoted(dst []byte, s string, limit int) []byte {
	dst = append(slices.Grow(dst, min(len(s), limit)+len("\"… (1000000 more)")), '"')
	size := 0
	for i, r := range s {
		if literal(r) && size < limit {
			dst = append(dst, byte(r))
			size++
			continue
		}
		mark := len(dst)
		dst = appendEscaped(dst, r)
		if size += utf8.RuneCount(dst[mark:]); size > limit {
			return appendCut(dst[:mark], int64(utf8.RuneCountInString(s[i:])))
		}
	}
	return append(dst, '"')
}

// appendCut ends a quotation of which n code points are missing.
func appendCut(dst []byte, n int64) []byte {
	dst = append(dst, "\"… ("...)
	dst = strconv.AppendInt(dst, n, 10)
	return append(dst, " more)"...)
}

func appendEscaped(dst []byte, r rune) []byte {
	switch {
	case r == '"' || r == '\\':
		return append(dst, '\\', byte(r))
	case r == '\n':
		return append(dst, `\n`...)
	case r == '\r':
		return append(dst, `\r`...)
	case r == '\t':
		return append(dst, `\t`...)
	case literal(r):
		return append(dst, byte(r))
	case r < utf8.RuneSelf || unicode.In(r, unicode.Cc, unicode.Cf, unicode.Zl, unicode.Zp):
		if hi, lo := utf16.EncodeRune(r); hi != unicode.ReplacementChar {
			return appendHex(appendHex(dst, hi), lo)
		}
		return appendHex(dst, r)
	}
	return utf8.AppendRune(dst, r)
}

// literal reports whether r is of ASCII and stands for itself.
func literal(r rune) bool {
	return r >= ' ' && r < 0x7f && r != '<' && r != '>' && r != '"' && r != '\\'
}

func appendHex(dst []byte, r rune) []byte {
	const digits = "0123456789abcdef"
	return append(dst, '\\', 'u', digits[r>>12&15], digits[r>>8&15], digits[r>>4&15], digits[r&15])
}

// plain reports whether a tool's name needs no quotes: it is what providers let
// through, and has nothing that a line is built of.
func plain(name string) bool {
	for i := range len(name) {
		switch c := name[i]; {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9', c == '_', c == '.', c == '-':
		default:
			return false
		}
	}
	return name != "" && len(name) <= 64
}
