package projection

import (
	"encoding/json/jsontext"

	"historyd/internal/history"
	"historyd/internal/strictjson"
)

// CodeMissingAttachment is of a Repair: there were no bytes of an image, a document or a sound.
const CodeMissingAttachment = "missing_attachment"

// maxMissing is how many levels the block that was there may take: a document is two,
// and five more are around it when it is in a result.
const maxMissing = strictjson.MaxDepth - 7

// Missing mends the blocks whose attachments are lost: in the place of each stands a
// text, made by the server, that says so, with what was known of it among its unknown
// members.
func Missing(m *history.Message, lost func(attachment string) bool) {
	m.MediaBlocks(func(b *history.Block) {
		if b.Attachment == "" || !lost(b.Attachment) {
			return
		}
		was := history.AppendBlock([]byte(`{"missing":`), b)
		if strictjson.CheckDepth(append(was, '}'), maxMissing) != nil {
			b.Extra = nil
			was = history.AppendBlock([]byte(`{"missing":`), b)
		}
		*b = history.Text("[" + string(b.Type) + ": its bytes are missing]")
		b.Synthetic, b.Extra = true, jsontext.Value(append(was, '}'))
	})
}
