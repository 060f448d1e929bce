package wire

import (
	"encoding/base64"
	"encoding/json/jsontext"
	"iter"
	"slices"
	"strings"

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

// filtered appends those members of an object that keep says go out; none of anything else.
func (o *object) filtered(raw jsontext.Value, keep func(name string, v strictjson.Value) bool) {
	for name, v := range membersOf(raw) {
		if keep(name, v) {
			o.member(name, v)
		}
	}
}

// extras appends the members of an extra, but for those named, in any case: they are
// written otherwise, or mean something else here. So do those by which another format
// carries calls and results.
func (o *object) extras(raw jsontext.Value, but ...string) {
	carries := history.CarriesTools(raw)
	o.filtered(raw, func(name string, v strictjson.Value) bool {
		return !clash(name, but) && !(carries && carriesAlone(name, v))
	})
}

// carriesAlone reports whether one member carries calls or results.
func carriesAlone(name string, v strictjson.Value) bool {
	var alone extra
	alone.add(name, v.Raw)
	return history.CarriesTools(alone.value())
}

// clash reports whether a name is one of known, in any case.
func clash(name string, known []string) bool {
	return slices.ContainsFunc(known, func(k string) bool { return strings.EqualFold(k, name) })
}

// membersOf is the members of an object, none of anything else.
func membersOf(raw jsontext.Value) iter.Seq2[string, strictjson.Value] {
	v := strictjson.Value{Raw: raw}
	if raw == nil || v.Kind() != '{' {
		return func(func(string, strictjson.Value) bool) {}
	}
	return v.Members()
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
