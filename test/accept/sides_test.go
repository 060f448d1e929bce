package accept

import (
	"encoding/json"
	"strings"
	"testing"
)

var replayFormats = []string{"native", "openai", "anthropic", "responses", "gemini"}

// A field is one thing that was said, and where it stands in what a provider is sent.
type field struct{ who, what, text string }

// A sent is a replay as a provider gets it.
type sent struct {
	Messages []json.RawMessage
	System   json.RawMessage
	Tools    json.RawMessage
	Summary  *struct {
		Text  string
		Turns int64
	}
	Report struct {
		MappedNames  map[string]string `json:"mapped_names"`
		DroppedBlank int64             `json:"dropped_blank"`
	}
}

// members are those of an object, or none.
type members map[string]json.RawMessage

// fields reads a replay in a format, with the names of tools as they were in the record.
func (s *sent) fields(t *testing.T, format string) (all []field) {
	t.Helper()
	for _, raw := range s.Messages {
		m := decode[members](t, raw)
		role := strings.Replace(m.text(t, "role"), "model", "assistant", 1)
		switch {
		case m.text(t, "type") == "function_call":
			all = s.call(t, all, m, "arguments")
		case m.text(t, "type") == "function_call_output":
			all = append(all, field{"tool", "result", strings.Join(texts(t, m["output"]), "|")})
		case role == "tool" && format == "openai":
			all = append(all, field{"tool", "result", strings.Join(texts(t, m["content"]), "|")})
		case format == "gemini":
			for _, part := range decode[[]members](t, m["parts"]) {
				all = s.part(t, all, role, part)
			}
		default:
			for _, text := range texts(t, m["content"]) {
				all = append(all, field{role, "text", text})
			}
			for _, b := range parts(t, m["content"]) {
				all = s.part(t, all, role, b)
			}
			if m["tool_calls"] != nil {
				for _, call := range decode[[]members](t, m["tool_calls"]) {
					all = s.call(t, all, decode[members](t, call["function"]), "arguments")
				}
			}
		}
	}
	return all
}

// part reads a part of a message that is not read as its text.
func (s *sent) part(t *testing.T, all []field, role string, b members) []field {
	t.Helper()
	switch typ := b.text(t, "type"); {
	case typ == "tool_use":
		return s.call(t, all, b, "input")
	case typ == "tool_call":
		return s.call(t, all, b, "arguments")
	case typ == "tool_result":
		return append(all, field{"tool", "result", strings.Join(texts(t, b["content"]), "|")})
	case b["functionCall"] != nil:
		return s.call(t, all, decode[members](t, b["functionCall"]), "args")
	case b["functionResponse"] != nil:
		response := decode[members](t, decode[members](t, b["functionResponse"])["response"])
		return append(all, field{"tool", "result", response.text(t, "result")})
	case typ == "" && b["text"] != nil:
		return append(all, field{role, "text", b.text(t, "text")})
	}
	return all
}

func (s *sent) call(t *testing.T, all []field, m members, arguments string) []field {
	t.Helper()
	name, args := m.text(t, "name"), m[arguments]
	if was, mapped := s.Report.MappedNames[name]; mapped {
		name = was
	}
	if len(args) > 0 && args[0] == '"' {
		args = json.RawMessage(m.text(t, arguments))
	}
	return append(all, field{"assistant", "name", name}, field{"assistant", "arguments", decode[members](t, args).text(t, "q")})
}

// text is a member that is a string, "" when it is none.
func (m members) text(t *testing.T, name string) string {
	t.Helper()
	if v := m[name]; len(v) > 0 && v[0] == '"' {
		return decode[string](t, v)
	}
	return ""
}

// parts are those of a content that is a list.
func parts(t *testing.T, content json.RawMessage) []members {
	t.Helper()
	if len(content) == 0 || content[0] != '[' {
		return nil
	}
	return decode[[]members](t, content)
}

// texts are the texts of a content.
func texts(t *testing.T, content json.RawMessage) (all []string) {
	t.Helper()
	if len(content) > 0 && content[0] == '"' {
		return []string{decode[string](t, content)}
	}
	for _, b := range parts(t, content) {
		if b["text"] != nil {
			all = append(all, b.text(t, "text"))
		}
	}
	return all
}
