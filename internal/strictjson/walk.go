package strictjson

import (
	"bytes"
	"encoding/json/jsontext"
	"iter"
)

// A walk goes from byte to byte: a decoder for each value costs more than most values take,
// and reads what is inside of it once more at each level. It relies on the document having
// passed Check, and knows where values end, and nothing else of JSON.

// Members yields the members of an object, in order, names decoded.
func (v Value) Members() iter.Seq2[string, Value] {
	return func(yield func(string, Value) bool) {
		v.members(func(name []byte, m Value) bool { return yield(unquoted(name), m) })
	}
}

// Member returns the named member of an object.
func (v Value) Member(name string) (found Value, there bool) {
	v.members(func(written []byte, m Value) bool {
		if bytes.IndexByte(written, '\\') < 0 {
			there = string(written[1:len(written)-1]) == name
		} else {
			there = unquoted(written) == name
		}
		if there {
			found = m
		}
		return !there
	})
	return found, there
}

// Elements yields the elements of an array, in order.
func (v Value) Elements() iter.Seq2[int, Value] {
	return func(yield func(int, Value) bool) {
		raw := v.Raw
		for i, n := v.inside('['), 0; raw[i] != ']'; n++ {
			end := ending(raw, i)
			if !yield(n, v.part(i, end)) {
				return
			}
			i = next(raw, end)
		}
	}
}

// members visits the members of an object until visit is false. Names are as written.
func (v Value) members(visit func(name []byte, m Value) bool) {
	raw := v.Raw
	for i := v.inside('{'); raw[i] != '}'; {
		end := ending(raw, i)
		from := blanks(raw, blanks(raw, end)+1) // behind the colon
		to := ending(raw, from)
		if !visit(raw[i:end:end], v.part(from, to)) {
			return
		}
		i = next(raw, to)
	}
}

// inside returns where the first part of an object or an array begins, or its end.
func (v Value) inside(bracket byte) int {
	i := blanks(v.Raw, 0)
	if v.Raw[i] != bracket {
		panic("strictjson: a walk into a value of another kind")
	}
	return blanks(v.Raw, i+1)
}

func (v Value) part(from, to int) Value { return Value{v.Raw[from:to:to], v.Offset + int64(from)} }

// unquoted decodes a string.
func unquoted(quoted []byte) string {
	if bytes.IndexByte(quoted, '\\') < 0 {
		return string(quoted[1 : len(quoted)-1])
	}
	return string(must(jsontext.AppendUnquote(nil, quoted)))
}

// next returns where the part behind the one that ends at i begins, or the bracket does
// that ends them all.
func next(raw []byte, i int) int {
	if i = blanks(raw, i); raw[i] == ',' {
		i = blanks(raw, i+1)
	}
	return i
}

// blanks returns where the white space at i ends.
func blanks(raw []byte, i int) int {
	for raw[i] == ' ' || raw[i] == '\n' || raw[i] == '\r' || raw[i] == '\t' {
		i++
	}
	return i
}

// ending returns where the value at i ends.
func ending(raw []byte, i int) int {
	for depth := 0; ; i++ {
		switch raw[i] {
		case '"':
			i = closing(raw, i)
			if depth == 0 {
				return i + 1
			}
		case '[', '{':
			depth++
		case ']', '}':
			if depth == 0 {
				return i // the value is a number or a word
			}
			if depth--; depth == 0 {
				return i + 1
			}
		case ',', ' ', '\n', '\r', '\t':
			if depth == 0 {
				return i
			}
		}
	}
}

// closing returns where the quote is that closes the string at i.
func closing(raw []byte, i int) int {
	for i++; ; i++ {
		i += bytes.IndexByte(raw[i:], '"')
		escapes := 0
		for raw[i-1-escapes] == '\\' {
			escapes++
		}
		if escapes%2 == 0 {
			return i
		}
	}
}
