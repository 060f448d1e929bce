package wire

import (
	"strings"
	"testing"

	"historyd/test/judge"
)

// A provider that speaks two formats gets what only one of them has in that one alone.
func TestOpaqueBlocksGoBackInTheFormatThatTheyCameIn(t *testing.T) {
	for _, tt := range []struct{ name, body, target string }{
		{"a hosted item", `{"model":"gpt-5","provider":"azure","messages":[{"type":"message","role":"user","content":"x"},{"type":"web_search_call","id":"ws_1","status":"completed","action":{"type":"search","query":"q"}},{"type":"message","role":"assistant","id":"msg_1","status":"completed","content":[{"type":"output_text","text":"hi","annotations":[]}]}]}`, "azure"},
		{"a list of tools", `{"model":"gpt-5","provider":"openrouter","messages":[{"type":"message","role":"user","content":"x"},{"type":"mcp_list_tools","id":"mcpl_1","server_label":"s","tools":[]},{"type":"message","role":"assistant","id":"msg_1","status":"completed","content":[{"type":"output_text","text":"hi","annotations":[]}]}]}`, "openrouter"},
		{"a file of the provider's", `{"model":"gpt-5","provider":"openai","messages":[{"type":"message","role":"user","content":[{"type":"input_text","text":"x"},{"type":"input_image","file_id":"f","detail":"auto"}]},{"type":"message","role":"assistant","content":"hi"}]}`, "openai"},
	} {
		a, err := DecodeAppend(Responses, []byte(tt.body), 0)
		if err != nil {
			t.Fatalf("%s: %v", tt.name, err)
		}
		for _, f := range []Format{OpenAI, Anthropic, Gemini} {
			shown := Render(f, Show{Messages: a.Messages, Provider: tt.target, Model: "gpt-5"})
			body := "[" + string(shown.Messages) + "]"
			if why := judge.Check(string(f), []byte(body), shown.System, nil); len(why) > 0 || strings.Contains(body, "ws_1") || strings.Contains(body, "mcpl_1") {
				t.Errorf("%s in %s: %q %s", tt.name, f, why, body)
			}
			if shown.Report.WithheldOpaque == 0 {
				t.Errorf("%s in %s: nothing is told", tt.name, f)
			}
		}
	}
}
