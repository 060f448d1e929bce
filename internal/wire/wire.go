// Package wire turns the messages of wire formats into those of package history
// and back. It is pure: no clock, no disk, no policy. What is withheld, cut or
// left out of a replay is decided elsewhere, before and after.
//
// Everything that comes in passes strictjson and the same limits as a native
// message, so that what was decoded from any format can be exported and imported
// as a native document. No error holds anything of what a client sent.
package wire

import (
	"errors"
	"fmt"

	"historyd/internal/history"
)

// A Format names how messages are written.
type Format string

// The formats with a name. Those that are neither Messages nor Documents are
// reserved and answer ErrUnsupported, as unknown names do.
const (
	Native    Format = "native"
	OpenAI    Format = "openai" // Chat Completions
	Anthropic Format = "anthropic"
	Responses Format = "responses"
	Gemini    Format = "gemini"
	Tar       Format = "tar"
	JSONL     Format = "jsonl" // native, one message a line
)

// ErrUnsupported tells that a format is not spoken here.
var ErrUnsupported = errors.New("unsupported format")

// Messages reports whether DecodeAppend and Render speak f.
func (f Format) Messages() bool { return f == Native || codecs[f] != nil }

// Documents reports whether NewReader speaks f.
func (f Format) Documents() bool { return f.Messages() || f == JSONL || f == Tar }

// TooLarge tells of a message over the limit of bytes.
type TooLarge struct {
	Path          string // such as messages[3]
	Limit, Actual int64
}

func (e *TooLarge) Error() string {
	return fmt.Sprintf("%s has %d bytes, over the limit of %d", e.Path, e.Actual, e.Limit)
}

// An Append is the body of a request to append.
type Append struct {
	Messages        []history.Message
	Categories      map[string]string // of tools, as the request names them; nil when it names none
	Model, Provider string            // already filled in where an assistant message had none
}
