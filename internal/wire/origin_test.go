package wire

import (
	"strings"
	"testing"
)

// An export in another format holds none of the marks and members of the one that a
// message came in; what stands in a native block is not the format's.
func TestNoExportHoldsMarksOfAnotherFormat(t *testing.T) {
	for _, tt := range []struct {
		from   Format
		list   string
		absent []string
	}{
		{Gemini, `[{"role":"user","parts":[{"text":"x","videoMetadata":{"fps":1}}]},{"role":"model","parts":[{"text":"y","thoughtSignature":"c2ln"},{"functionCall":{"name":"f","args":null}}]},{"role":"user","parts":[{"functionResponse":{"name":"f","response":{"a":1}}},{"text":"z"}]}]`,
			[]string{"_gemini", "thoughtSignature", "videoMetadata", "c2ln"}},
		{Anthropic, `[{"role":"user","content":[{"type":"text","text":"x"}]},{"role":"assistant","content":[{"type":"tool_use","id":"c","name":"f","input":{}}]},{"role":"user","content":[{"type":"tool_result","tool_use_id":"c","content":"r"},{"type":"text","text":"y","cache_control":{"type":"ephemeral"}}]}]`,
			[]string{"joined", `"list"`, "cache_control"}},
		{Responses, `[{"role":"user","content":[{"type":"input_text","text":"x"}]},{"type":"message","id":"msg_1","role":"assistant","status":"completed","phase":"commentary","content":[{"type":"output_text","text":"y","annotations":[{"type":"x"}],"logprobs":[]}]},
			{"type":"web_search_call","id":"ws_1","status":"completed"},{"type":"function_call","id":"fc_1","call_id":"c","name":"f","arguments":"{}","status":"completed"},{"type":"function_call_output","call_id":"c","output":"r"},
			{"type":"shell_call","id":"sh_1","call_id":"d","action":{"commands":["ls"]},"status":"completed"}]`,
			[]string{`"phase"`, "logprobs", `"item"`, "msg_1", "fc_1", "shell_call", "sh_1"}},
		{OpenAI, `[{"role":"developer","content":"d"},{"role":"user","content":"x"},{"role":"assistant","content":null,"reasoning_content":"hm","tool_calls":[{"id":"c","type":"custom","custom":{"name":"f","input":"i","odd":1}}]},{"role":"assistant","content":null,"function_call":{"name":"g","arguments":"{}"}},{"role":"function","name":"g","content":"r"}]`,
			[]string{"member", "reasoning_content", `"odd"`, `"function"`}},
	} {
		msgs := decodeAppend(t, tt.from, tt.list)
		sameJSON(t, encode(tt.from, msgs, ForExport), tt.list)
		for _, f := range providerFormats() {
			if f == tt.from {
				continue
			}
			out := encode(f, msgs, ForExport)
			for _, name := range tt.absent {
				if strings.Contains(out, name) && !(f == OpenAI && name == `"function"`) {
					t.Errorf("%s as %s holds %s: %s", tt.from, f, name, out)
				}
			}
			if siblings := f == OpenAI || f == Responses; tt.from == OpenAI && siblings != strings.Contains(out, "custom") {
				t.Errorf("%s as %s: the kind of the call: %s", tt.from, f, out)
			}
		}
	}
}
