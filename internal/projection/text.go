package projection

import (
	"bytes"
	"slices"
	"strings"

	"historyd/internal/history"
	"historyd/internal/strictjson"
)

// Text returns what a text replay shows of a message: the blocks with something
// written in them of a user or assistant message, unchanged, in a message otherwise
// the same. An assistant's refusal is shown as text. It is false when there is nothing
// to show, which is so too of messages that were rewound, that the server made but for
// references, and of a provider's error that an import took for an answer.
func Text(m *history.Message) (history.Message, bool) {
	if m.Role != history.User && m.Role != history.Assistant || m.Synthetic && m.Kind != history.Reference || m.Rewound || m.ProviderError() {
		return history.Message{}, false
	}
	shown := *m
	if i := slices.IndexFunc(m.Content, func(b history.Block) bool { return !written(&b) }); i >= 0 {
		shown.Content = nil
		for i := range m.Content {
			b := &m.Content[i]
			if written(b) {
				shown.Content = append(shown.Content, *b)
			} else if text := refusal(m, b); strings.TrimSpace(text) != "" {
				shown.Content = append(shown.Content, history.Text(text))
			}
		}
	}
	return shown, len(shown.Content) > 0
}

// written reports whether somebody wrote something in a block.
func written(b *history.Block) bool {
	return b.Said() && strings.TrimSpace(b.Text) != ""
}

// refusal returns what an assistant said in a block that is its refusal to answer, as
// OpenAI's formats have it.
func refusal(m *history.Message, b *history.Block) string {
	if m.Role != history.Assistant || b.Type != history.OpaqueBlock || b.Provider != "openai" && b.Provider != "responses" ||
		!bytes.Contains(b.Opaque, []byte(`"refusal"`)) || strictjson.Check(b.Opaque) != nil || b.Opaque.Kind() != '{' {
		return ""
	}
	data := strictjson.Document(b.Opaque)
	kind, _ := data.Member("type")
	if name, _ := kind.Text(); name != "refusal" {
		return ""
	}
	said, _ := data.Member("refusal")
	text, _ := said.Text()
	return text
}
