package projection

import (
	"bytes"
	"slices"
	"strings"
	"unicode"

	"historyd/internal/history"
	"historyd/internal/strictjson"
)

// Text returns what a text replay shows of a message: the blocks with something
// written in them of a user or assistant message, unchanged, in a message otherwise
// the same. An assistant's refusal is shown as text. It is false when there is nothing
// to show, which is so too of messages that were rewound, that the server made, and of
// a provider's error that an import took for an answer.
func Text(m *history.Message) (history.Message, bool) {
	if m.Role != history.User && m.Role != history.Assistant || m.Synthetic || m.Rewound || ProviderError(m) {
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

// written reports whether there is something written in a text block.
func written(b *history.Block) bool {
	return b.Type == history.TextBlock && strings.TrimSpace(b.Text) != ""
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

// ProviderError reports whether an assistant message is marked as the text of an error.
func ProviderError(m *history.Message) bool {
	if m.Role != history.Assistant || strictjson.Check(m.Extra) != nil || m.Extra.Kind() != '{' {
		return false
	}
	extra := strictjson.Document(m.Extra)
	if v, there := extra.Member("isApiErrorMessage"); there && v.Kind() == 't' {
		return true
	}
	v, there := extra.Member("error")
	return there && !v.IsNull() && v.Kind() != 'f'
}

// attachmentTokens is what an image, document or audio counts, whatever its size.
const attachmentTokens = 1000

// messageTokens is what a provider adds to each message.
const messageTokens = 4

// EstimateTokens says about how many tokens a message takes: a token for four
// letters, digits or spaces of ASCII, for two signs of it, for one ideograph, kana
// or hangul, for two characters of other scripts. It counts all that a full replay
// shows.
func EstimateTokens(m *history.Message) int64 {
	return messageTokens + (blockQuarters(m.Content)+3)/4
}

// blockQuarters counts blocks in quarters of a token.
func blockQuarters(blocks []history.Block) int64 {
	n := int64(0)
	for i := range blocks {
		b := &blocks[i]
		switch b.Type {
		case history.TextBlock, history.ThinkingBlock:
			n += quarters(b.Text) + quarters(b.Encrypted)
		case history.ToolCall:
			n += quarters(b.Name) + quarters(b.ArgumentString())
		case history.ToolResult:
			n += blockQuarters(b.Content)
		case history.OpaqueBlock:
			n += quarters(string(b.Opaque))
		default:
			n += 4 * attachmentTokens
		}
	}
	return n
}

func quarters(s string) int64 {
	n := int64(0)
	for _, r := range s {
		switch {
		case r < 0x80 && (r <= ' ' || '0' <= r && r <= '9' || 'A' <= r && r <= 'Z' || 'a' <= r && r <= 'z'):
			n++
		case r < 0x1100: // no script of the next case begins before
			n += 2
		case unicode.In(r, unicode.Han, unicode.Hiragana, unicode.Katakana, unicode.Hangul, unicode.Bopomofo),
			0x3000 <= r && r <= 0x303f, 0xff00 <= r && r <= 0xffef:
			n += 4
		default:
			n += 2
		}
	}
	return n
}

// Fit returns the newest whole turns whose estimate is at most maxTokens, how many
// older ones it left out, and whether even the newest, which always stays, is over.
// What comes before the first turn belongs to it.
func Fit(msgs []history.Message, maxTokens int64) (kept []history.Message, droppedTurns int, over bool) {
	starts := []int{0}
	for i, begun := 0, false; i < len(msgs); i++ {
		if !msgs[i].StartsTurn() {
			continue
		}
		if begun {
			starts = append(starts, i)
		}
		begun = true
	}
	total, end, first := int64(0), len(msgs), len(starts)-1
	for t := first; t >= 0; t-- {
		for i := starts[t]; i < end; i++ {
			total += EstimateTokens(&msgs[i])
		}
		if total > maxTokens && t < len(starts)-1 {
			break
		}
		over = total > maxTokens
		end, first = starts[t], t
		if over {
			break
		}
	}
	return slices.Clip(msgs[starts[first]:]), first, over
}
