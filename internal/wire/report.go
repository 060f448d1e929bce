package wire

import (
	"strconv"

	"historyd/internal/history"
)

// A Report counts, by kind, what a render changed so that the provider accepts it.
type Report struct {
	Merged             int64 // messages joined with the one before, for the order of roles
	Inserted           int64 // placeholder messages and texts, where a provider wants something
	WithheldThinking   int64 // blocks of thinking by another model, or unsigned
	WithheldSignatures int64 // signatures of another model's
	WithheldOpaque     int64 // blocks that only another provider knows
	DroppedMedia       int64 // images, documents and sounds that have no place, or no bytes
	DroppedEmpty       int64 // messages and blocks of nothing
	MappedIDs          int64 // ids of calls
	WrappedArguments   int64 // arguments that are no object
	ReplacedCharacters int64 // texts with characters that the provider refuses
	TrimmedText        int64 // texts whose trailing white space went
	MovedMedia         int64 // images of results that stand in a message of their own
	MovedHosted        int64 // results of the provider's own tools, brought to their calls
}

// AppendMembers appends the counts that are not zero as members of an object, each with a
// comma before it.
func (r *Report) AppendMembers(dst []byte) []byte {
	for _, c := range []struct {
		name string
		n    int64
	}{
		{"merged", r.Merged}, {"inserted", r.Inserted},
		{"withheld_thinking", r.WithheldThinking}, {"withheld_signatures", r.WithheldSignatures},
		{"withheld_opaque", r.WithheldOpaque}, {"dropped_media", r.DroppedMedia},
		{"moved_media", r.MovedMedia}, {"moved_hosted", r.MovedHosted}, {"dropped_empty", r.DroppedEmpty}, {"mapped_ids", r.MappedIDs},
		{"wrapped_arguments", r.WrappedArguments}, {"replaced_characters", r.ReplacedCharacters},
		{"trimmed_text", r.TrimmedText},
	} {
		if c.n > 0 {
			dst = append(dst, ',', '"')
			dst = append(dst, c.name...)
			dst = append(dst, '"', ':')
			dst = strconv.AppendInt(dst, c.n, 10)
		}
	}
	return dst
}

// signedMembers are what a vendor of Chat Completions wants back with an answer, signatures among it.
var signedMembers = []string{"reasoning_details", "extra_content"}

// signaturesBeside counts the signatures that an answer bears beside its blocks.
func signaturesBeside(m *history.Message) (n int64) {
	if m.Role != history.Assistant || m.Extra == nil {
		return 0
	}
	for _, name := range signedMembers {
		if k := memberNamed(m.Extra, name).Kind(); k == '[' || k == '{' {
			n++
		}
	}
	return n
}

// signatures counts those of a block in whichever format it came, so that each format tells
// the same of what it has no place for. Thinking, and what only its provider knows, is
// withheld with its signature and counted as that.
func signatures(b *history.Block) (n int64) {
	switch b.Type {
	case history.ThinkingBlock, history.OpaqueBlock, history.ToolResult:
	case history.ToolCall:
		if b.Signature != "" {
			n++
		}
		if signedElsewhere(b) {
			n++
		}
	default:
		if b.Extra != nil && textOf(b.Extra, "thoughtSignature") != "" && !isTrue(b.Extra, "thought") {
			n++
		}
	}
	return n
}

// signedElsewhere reports whether a call has the signature that a vendor of Chat Completions gives it.
func signedElsewhere(b *history.Block) bool {
	return b.Type == history.ToolCall && b.Extra != nil && memberNamed(b.Extra, "extra_content").Kind() == '{'
}
