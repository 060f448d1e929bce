package wire

import (
	"io"
	"strings"
	"testing"
	"time"

	"historyd/test/growth"
)

// Reading a message takes no longer for each of its parts because there are many of them.
func TestReadingAMessageTakesAsLongAsItIs(t *testing.T) {
	for _, tt := range []struct {
		name              string
		format            Format
		head, piece, tail string
	}{
		{"results and texts by turns", Anthropic, `{"role":"user","content":[`, `{"type":"tool_result","tool_use_id":"a","content":"r"},{"type":"text","text":"a"}`, `]}`},
		{"calls", Anthropic, `{"role":"assistant","content":[`, `{"type":"tool_use","id":"a","name":"f","input":{}}`, `]}`},
		{"results and texts by turns", Gemini, `{"role":"user","parts":[`, `{"functionResponse":{"name":"f","response":{"result":"r"}}},{"text":"a"}`, `]}`},
		{"calls without ids", Gemini, `{"role":"model","parts":[`, `{"functionCall":{"name":"f","args":{}}}`, `]}`},
		{"calls", OpenAI, `{"role":"assistant","content":null,"tool_calls":[`, `{"id":"a","type":"function","function":{"name":"f","arguments":"{}"}}`, `]}`},
		{"parts", Responses, `{"type":"message","role":"user","content":[`, `{"type":"input_text","text":"a"}`, `]}`},
		{"blocks", Native, `{"role":"user","content":[`, `{"type":"text","text":"a"}`, `]}`},
	} {
		read := func(pieces int) time.Duration {
			body := []byte(`{"messages":[` + tt.head + strings.Repeat(tt.piece+",", pieces-1) + tt.piece + tt.tail + `]}`)
			return growth.Work(t, 5, func() {
				if _, err := DecodeAppend(tt.format, body, 0); err != nil {
					t.Fatalf("%s, %s: %v", tt.format, tt.name, err)
				}
			})
		}
		const times = 16
		if ratio := float64(read(times*200)) / float64(read(200)); ratio > 4*times {
			t.Errorf("%s, %s: %d times as many take %.0f times as long", tt.format, tt.name, times, ratio)
		}
	}
}

// counted tells how much was read.
type counted struct {
	r io.Reader
	n int
}

func (c *counted) Read(p []byte) (int, error) {
	n, err := c.r.Read(p)
	c.n += n
	return n, err
}
