package accept

import (
	"encoding/json"
	"testing"

	"historyd/test/samples"
)

// conversation is one of the sample conversations, in Chat Completions form.
type conversation struct {
	Name     string            `json:"conversation"`
	Messages []json.RawMessage `json:"messages"`
	parsed   []message
}

type message struct {
	Role       string  `json:"role"`
	Content    *string `json:"content"`
	ToolCallID string  `json:"tool_call_id"`
	ToolCalls  []struct {
		ID       string `json:"id"`
		Function struct {
			Name      string `json:"name"`
			Arguments string `json:"arguments"`
		} `json:"function"`
	} `json:"tool_calls"`
}

// conversations reads the sample conversations, which lie beside the project.
func conversations(t *testing.T) []conversation {
	t.Helper()
	var all []conversation
	for _, line := range samples.Need(t) {
		c := decode[conversation](t, line)
		for _, m := range c.Messages {
			c.parsed = append(c.parsed, decode[message](t, m))
		}
		all = append(all, c)
	}
	if testing.Short() {
		all = all[:20]
	}
	return all
}

// turns parts a conversation where a user speaks.
func (c conversation) turns() [][]json.RawMessage {
	var out [][]json.RawMessage
	for i, m := range c.Messages {
		if c.parsed[i].Role == "user" || len(out) == 0 {
			out = append(out, nil)
		}
		out[len(out)-1] = append(out[len(out)-1], m)
	}
	return out
}

func appendBody(t *testing.T, turn []json.RawMessage, categories map[string]string) []byte {
	t.Helper()
	v := map[string]any{"messages": turn}
	if categories != nil {
		v["tool_categories"] = categories
	}
	return encode(t, v)
}
