package wire

import (
	"historyd/internal/history"
	"historyd/internal/strictjson"
)

// opaque writes an opaque block as what came in, when own says that it is of this format
// and it is read as that again, and else as the native block, which comes in as something
// that nobody knows. What is not even that becomes a text.
func (o *object) opaque(b *history.Block, own bool, read func(*decoder, strictjson.Value) history.Block, text func(string)) {
	readable := func(raw []byte) bool {
		var d decoder
		return read(&d, strictjson.Value{Raw: raw}).Type == history.OpaqueBlock && d.count() == 0
	}
	raw := []byte(b.Opaque)
	if !own || !readable(raw) {
		bare := *b
		if isItem(b) {
			bare.Extra = nil
		}
		raw = history.AppendBlock(nil, &bare)
		if !readable(raw) {
			text(placeholder(b))
			return
		}
	}
	o.dst = append(o.dst, raw...)
	o.comma = true
}
