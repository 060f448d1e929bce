package wire

import (
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

func (o *object) null(name string) { o.raw(name, jsontext.Value("null")) }

// member appends a member as it was decoded.
func (o *object) member(name string, v strictjson.Value) {
	o.element()
	o.dst = append(history.AppendString(o.dst, name), ':')
	o.dst = append(o.dst, v.Raw...)
}
