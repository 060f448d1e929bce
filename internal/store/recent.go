package store

import "historyd/internal/history"

// recent is the newest messages of a transcript as they came in, so that a fold
// need not read and decode what was written a moment ago. It may hold none.
type recent struct {
	messages []history.Message // without a gap, up to the last one committed
	size     int               // bytes, roughly
}

// maxRecent bounds what one transcript holds so.
const maxRecent = 48 << 10

// take adds messages that have become durable, and lets go of what is folded. When
// there is too much it lets go of everything: the disk has it.
func (r *recent) take(added []history.Message, folded int64) {
	for i := range added {
		r.size += roughSize(&added[i])
	}
	r.messages = append(r.messages, added...)
	drop := 0
	for drop < len(r.messages) && r.messages[drop].Seq <= folded {
		r.size -= roughSize(&r.messages[drop])
		drop++
	}
	if drop > 0 {
		r.messages = append([]history.Message(nil), r.messages[drop:]...)
	}
	if r.size > maxRecent {
		*r = recent{}
	}
}
