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
	"time"

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

// Messages reports whether DecodeAppend and AppendMessages speak f.
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

// A Document is a conversation to import.
type Document struct {
	CreatedAt  time.Time // zero when the document does not say
	Messages   []history.Message
	Categories map[string]string // of its tools, as in Append; nil when the document does not say
}

// Purpose says for whom messages are written.
type Purpose int

// The purposes.
const (
	ForModel  Purpose = iota // only what the provider takes in a request
	ForExport                // everything that came in comes back
)

// AppendMessages appends the messages as the elements of an array, separated by
// commas and without the brackets; in JSONL each ends with a line feed instead. One
// message may become several of a provider's, or none. The caller has asked
// Messages or Documents before: any other format panics.
func AppendMessages(dst []byte, f Format, msgs []history.Message, p Purpose) []byte {
	switch f {
	case Native:
		for i := range msgs {
			if i > 0 {
				dst = append(dst, ',')
			}
			dst = history.AppendMessage(dst, &msgs[i])
		}
		return dst
	case JSONL:
		for i := range msgs {
			dst = append(history.AppendMessage(dst, &msgs[i]), '\n')
		}
		return dst
	}
	if p == ForModel {
		return append(dst, Render(f, Show{Messages: msgs}).Messages...)
	}
	e := NewExporter(f)
	for i := range msgs {
		dst = e.Append(dst, &msgs[i])
	}
	return e.End(dst)
}
