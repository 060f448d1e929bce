package wire

import (
	"strings"
	"testing"
)

// What providers are known to say without saying anything is taken in, comes back as it
// was, and is replayed as what they take.
func TestWhatProvidersEmitIsTakenInAndReplayed(t *testing.T) {
	const (
		user  = `{"role":"user","content":"x"}`
		parts = `{"role":"user","parts":[{"text":"x"}]}`
	)
	for _, tt := range []struct {
		name   string
		format Format
		in     string
		want   string // of the replay
		report Report
	}{
		{"redacted thinking of nothing", Anthropic, user + `,{"role":"assistant","content":[{"type":"redacted_thinking","data":""},{"type":"text","text":"y"}]}`,
			`{"role":"user","content":[{"type":"text","text":"x"}]},{"role":"assistant","content":[{"type":"text","text":"y"}]}`, Report{WithheldThinking: 1}},
		{"an answer of no blocks", Anthropic, user + `,{"role":"assistant","content":[]}`,
			`{"role":"user","content":[{"type":"text","text":"x"}]}`, Report{DroppedEmpty: 1}},
		{"thinking without a word", Anthropic, user + `,{"role":"assistant","content":[{"type":"thinking","thinking":"","signature":"s"},{"type":"text","text":"y"}]}`,
			`{"role":"user","content":[{"type":"text","text":"x"}]},{"role":"assistant","content":[{"type":"thinking","thinking":"","signature":"s"},{"type":"text","text":"y"}]}`, Report{}},
		{"a result without content", Anthropic, user + `,{"role":"assistant","content":[{"type":"tool_use","id":"a","name":"f","input":{}}]},{"role":"user","content":[{"type":"tool_result","tool_use_id":"a"}]}`,
			`{"role":"user","content":[{"type":"text","text":"x"}]},{"role":"assistant","content":[{"type":"tool_use","id":"a","name":"f","input":{}}]},{"role":"user","content":[{"type":"tool_result","tool_use_id":"a"}]}`, Report{}},
		{"a content without parts", Gemini, parts + `,{"role":"model"}`, parts, Report{DroppedEmpty: 1}},
		{"a content of no parts", Gemini, parts + `,{"role":"model","parts":[]}`, parts, Report{DroppedEmpty: 1}},
		{"a content of nothing", Gemini, parts + `,{}`, parts, Report{DroppedEmpty: 1}},
		{"a response that is a string", Gemini, parts + `,{"role":"model","parts":[{"functionCall":{"name":"f"}}]},{"role":"user","parts":[{"functionResponse":{"name":"f","response":"{\"a\":1}"}}]}`,
			parts + `,{"role":"model","parts":[{"functionCall":{"name":"f","args":{}},"thoughtSignature":"` + geminiUnsigned + `"}]},{"role":"user","parts":[{"functionResponse":{"name":"f","response":{"result":"{\"a\":1}"}}}]}`, Report{}},
		{"a response that is a list", Gemini, parts + `,{"role":"model","parts":[{"functionCall":{"name":"f"}}]},{"role":"user","parts":[{"functionResponse":{"name":"f","response":[1, 2.50]}}]}`,
			parts + `,{"role":"model","parts":[{"functionCall":{"name":"f","args":{}},"thoughtSignature":"` + geminiUnsigned + `"}]},{"role":"user","parts":[{"functionResponse":{"name":"f","response":{"result":"[1,2.50]"}}}]}`, Report{}},
		{"a filtered answer", OpenAI, user + `,{"role":"assistant","content":null,"refusal":null,"annotations":[]}`, user + `,{"role":"assistant","content":""}`, Report{}},
		{"an answer without content", OpenAI, user + `,{"role":"assistant"}`, user + `,{"role":"assistant","content":""}`, Report{}},
		{"null content with a refusal", OpenAI, user + `,{"role":"assistant","content":null,"refusal":"no"}`, user + `,{"role":"assistant","content":[{"type":"refusal","refusal":"no"}]}`, Report{}},
		{"a call without arguments", OpenAI, `{"role":"assistant","content":null,"tool_calls":[{"id":"a","type":"function","function":{"name":"f","arguments":""}}]},{"role":"tool","tool_call_id":"a","content":""}`,
			`{"role":"assistant","content":null,"tool_calls":[{"id":"a","type":"function","function":{"name":"f","arguments":""}}]},{"role":"tool","content":"","tool_call_id":"a"}`, Report{}},
		{"reasoning without a summary", Responses, `{"type":"reasoning","id":"rs_1","summary":[],"encrypted_content":"e"},{"type":"function_call","call_id":"a","name":"f","arguments":""},{"type":"function_call_output","call_id":"a","output":""}`,
			`{"type":"reasoning","id":"rs_1","summary":[],"encrypted_content":"e"},{"type":"function_call","call_id":"a","name":"f","arguments":""},{"type":"function_call_output","call_id":"a","output":""}`, Report{}},
		{"an answer of no parts", Responses, `{"role":"user","content":"x"},{"type":"message","id":"msg_1","role":"assistant","status":"incomplete","content":[]}`,
			`{"type":"message","role":"user","content":"x"}`, Report{WithheldOpaque: 1}},
		{"an image that is not there yet", Responses, `{"role":"user","content":"x"},{"type":"image_generation_call","id":"ig_1","status":"failed","result":null}`,
			`{"type":"message","role":"user","content":"x"}`, Report{WithheldOpaque: 1}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			msgs := decodeAppend(t, tt.format, "["+tt.in+"]")
			sameJSON(t, encode(tt.format, msgs, ForExport), "["+tt.in+"]")
			s := Show{Messages: msgs}
			if strings.Contains(tt.in, `"f"`) {
				s.Added = []Declaration{{Name: "f"}}
			}
			out := Render(tt.format, s)
			sameJSON(t, "["+string(out.Messages)+"]", "["+tt.want+"]")
			if out.Report != tt.report {
				t.Errorf("report %+v, want %+v", out.Report, tt.report)
			}
			for _, why := range refusals(tt.format, out) {
				t.Errorf("refused: %s", why)
			}
			// Every other format shows it in some form that it takes.
			for _, f := range providerFormats() {
				for _, why := range refusals(f, Render(f, s)) {
					t.Errorf("refused as %s: %s", f, why)
				}
			}
		})
	}
}
