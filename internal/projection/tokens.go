package projection

import (
	"encoding/json/jsontext"

	"historyd/internal/history"
)

// What is counted whatever it holds, in tokens. The bytes of media are no part of a
// message, so each kind has one size: a full image, two pages, a minute of sound.
const (
	messageTokens  = 4 // a message, for what a provider puts around it
	callTokens     = 6
	resultTokens   = 4
	imageTokens    = 1600
	documentTokens = 3000
	audioTokens    = 1500
)

// EstimateTokens says about how many tokens a message takes, by all that a full replay
// shows of it. It asks no vocabulary. The estimate of a text of some length lies between
// 0.8 and 1.35 of what the vocabularies of OpenAI's models make of it, of two the larger.
func EstimateTokens(m *history.Message) int64 {
	written, rest := estimate(m.Content)
	return messageTokens + written.tokens() + rest
}

// EstimateText says about how many tokens a text takes.
func EstimateText(s string) int64 { return price(s).tokens() }

// EstimateJSON says about how many tokens raw JSON takes, such as declarations of tools.
func EstimateJSON(raw jsontext.Value) int64 { return price(string(raw)).tokens() }

// estimate counts blocks: what is written in them, and in tokens what has a fixed size.
func estimate(blocks []history.Block) (written cents, rest int64) {
	for i := range blocks {
		b := &blocks[i]
		switch b.Type {
		case history.TextBlock:
			written += price(b.Text)
		case history.ThinkingBlock:
			// What is encrypted is billed as what it hides.
			written += price(b.Text) + cents(len(b.Encrypted))*100/6
		case history.ToolCall:
			written += price(b.Name) + price(b.ArgumentString())
			rest += callTokens
		case history.ToolResult:
			w, r := estimate(b.Content)
			written, rest = written+w, rest+r+resultTokens
		case history.OpaqueBlock:
			written += price(string(b.Opaque))
		case history.DocumentBlock:
			rest += documentTokens
		case history.AudioBlock:
			rest += audioTokens
		default:
			rest += imageTokens
		}
	}
	return written, rest
}

// cents are hundredths of a token.
type cents int64

func (c cents) tokens() int64 { return (int64(c) + 99) / 100 }
