package wire

import (
	"encoding/json/jsontext"

	"historyd/internal/history"
	"historyd/internal/strictjson"
)

// How a message of Anthropic lies in the model:
//
//	role user                   role user, and role tool for each run of tool_result blocks in it;
//	                            what is not the first of its message has extra {"anthropic":{"joined":true}}
//	a list of one bare text     extra {"anthropic":{"list":true}}; without it content was a string
//	an answer of no blocks      one empty text, extra {"anthropic":{"empty":true}}
//	model of an answer          extra, and the message's own
//	text                        text, its citations and whatever else in extra
//	image, document             image, document; what else the source has in extra {"source":{…}}, and its type
//	                            where that is not the one that sourceType tells; title is the file name
//	… of a file, of content     opaque
//	thinking, redacted_thinking thinking, the latter with nothing but Encrypted; one of nothing at all has extra {"type":…}
//	tool_use                    tool_call
//	tool_result                 tool_result; extra {"is_error":false}, {"content":[]} where it says so
//	other blocks                opaque, data = the block
//	everything else             extra of the message or of the block
//
// Given back are the same JSON values.

// anthropicProvider marks opaque blocks that Anthropic made.
const anthropicProvider = "anthropic"

// anthropicMark is the member of a message's extra that is ours. No client may send it.
const anthropicMark = "anthropic"

// The marks, each true.
const (
	joinedMark = "joined" // to the message before
	listMark   = "list"   // content was a list, though one bare text
	emptyMark  = "empty"  // content was an empty list
)

// marked reports whether a message has a mark.
func marked(m *history.Message, mark string) bool {
	return m.Extra != nil && kindOf(memberNamed(m.Extra, anthropicMark).Raw, mark) == 't'
}

// addMark marks a message, of which e is the extra.
func addMark(e *extra, mark string) {
	e.add(anthropicMark, jsontext.Value(`{"`+mark+`":true}`))
}

// anthropicCodec speaks Anthropic Messages.
type anthropicCodec struct{}

func (anthropicCodec) lists() []string { return []string{"messages"} }

func (anthropicCodec) provider() string { return anthropicProvider }

func (anthropicCodec) decode(d *decoder, v strictjson.Value, path string) []history.Message {
	return d.anthropicMessage(v, path)
}

func (anthropicCodec) exporter() exporter { return &anthropicExporter{} }

func (anthropicCodec) render(s *Show) Shown { return renderAnthropic(s) }

// toolNames takes a tool of the client or of the server. A set of tools has a type and no name.
func (anthropicCodec) toolNames(tool strictjson.Value) ([]string, bool) {
	if name, ok := memberNamed(tool.Raw, "name").Text(); ok {
		return []string{name}, true
	}
	typ := textOf(tool.Raw, "type")
	return nil, typ != "" && typ != "custom"
}
