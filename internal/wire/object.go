package wire

import (
	"encoding/base64"
	"encoding/json/jsontext"

	"historyd/internal/history"
	"historyd/internal/strictjson"
)

// object appends JSON, token by token, with the commas between. It holds only
// where it stands, so it nests by itself.
type object struct {
	dst   []byte
	comma bool // the next member or element is not the first
}

func (o *object) open() {
	o.dst = append(o.dst, '{')
	o.comma = false
}

func (o *object) close() {
	o.dst = append(o.dst, '}')
	o.comma = true
}

func (o *object) openList() {
	o.dst = append(o.dst, '[')
	o.comma = false
}

func (o *object) closeList() {
	o.dst = append(o.dst, ']')
	o.comma = true
}

func (o *object) element() {
	if o.comma {
		o.dst = append(o.dst, ',')
	}
	o.comma = true
}

// name begins a member whose name needs no escaping.
func (o *object) name(name string) {
	o.element()
	o.dst = append(o.dst, '"')
	o.dst = append(o.dst, name...)
	o.dst = append(o.dst, '"', ':')
}

func (o *object) text(name, s string) {
	o.name(name)
	o.dst = history.AppendString(o.dst, s)
}

func (o *object) raw(name string, v jsontext.Value) {
	o.name(name)
	o.dst = append(o.dst, v...)
}

// base64 appends a member that is bytes.
func (o *object) base64(name string, data []byte) {
	o.name(name)
	o.dst = append(o.dst, '"')
	o.dst = base64.StdEncoding.AppendEncode(o.dst, data)
	o.dst = append(o.dst, '"')
}

func (o *object) null(name string) { o.raw(name, jsontext.Value("null")) }

// member appends a member as it was decoded.
func (o *object) member(name string, v strictjson.Value) {
	o.element()
	o.dst = append(history.AppendString(o.dst, name), ':')
	o.dst = append(o.dst, v.Raw...)
}

// memberNamed returns a member of an object, or the zero Value.
func memberNamed(raw jsontext.Value, name string) strictjson.Value {
	if raw.Kind() != '{' {
		return strictjson.Value{}
	}
	v, _ := strictjson.Value{Raw: raw}.Member(name)
	return v
}

func textOf(raw jsontext.Value, name string) string {
	s, _ := memberNamed(raw, name).Text()
	return s
}

func kindOf(raw jsontext.Value, name string) jsontext.Kind { return memberNamed(raw, name).Kind() }

// objectOf returns the value when it is an object.
func objectOf(v strictjson.Value) jsontext.Value {
	if v.Kind() != '{' {
		return nil
	}
	return v.Raw
}
