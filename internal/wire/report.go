package wire

import "strconv"

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
