package strictjson

import "bytes"

// A decoder costs more than most objects take in which a member is looked for. What is
// here relies on the document having passed Check: it knows where values end, and nothing
// else of JSON.

// seek finds a member by its name as written; sure is false where a name before it has
// escapes, and for anything but an object.
func (v Value) seek(name string) (m Value, there, sure bool) {
	raw := v.Raw
	if len(raw) == 0 || raw[0] != '{' {
		return Value{}, false, false
	}
	for i := blanks(raw, 1); raw[i] != '}'; {
		end := ending(raw, i)
		written := raw[i+1 : end-1]
		if bytes.IndexByte(written, '\\') >= 0 {
			return Value{}, false, false
		}
		from := blanks(raw, blanks(raw, end)+1) // behind the colon
		to := ending(raw, from)
		if string(written) == name {
			return Value{raw[from:to:to], v.Offset + int64(from)}, true, true
		}
		if i = blanks(raw, to); raw[i] == ',' {
			i = blanks(raw, i+1)
		}
	}
	return Value{}, false, true
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
	depth := 0
	for ; i < len(raw); i++ {
		switch raw[i] {
		case '"':
			for i++; raw[i] != '"'; i++ {
				if raw[i] == '\\' {
					i++
				}
			}
		case '[', '{':
			depth++
		case ']', '}':
			if depth--; depth < 0 {
				return i // of a number or a word that it follows
			}
		case ',', ' ', '\n', '\r', '\t':
			if depth == 0 {
				return i
			}
			continue
		default:
			continue
		}
		if depth == 0 {
			return i + 1
		}
	}
	return i
}
