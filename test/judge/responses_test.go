package judge

import (
	"strings"
	"testing"
)

func TestReasoningAndWhatItLedToGoTogether(t *testing.T) {
	const (
		rs  = `{"type":"reasoning","id":"rs_N","summary":[]}`
		ws  = `{"type":"web_search_call","id":"ws_N","action":{}}`
		fc  = `{"type":"function_call","id":"fc_N","call_id":"c","name":"f","arguments":"{}"}`
		out = `{"type":"function_call_output","call_id":"c","output":"x"}`
		msg = `{"type":"message","id":"msg_N","role":"assistant","content":[]}`
		own = `{"role":"user","content":"x"}`
	)
	n := func(item, number string) string { return strings.ReplaceAll(item, "N", number) }
	for _, tt := range []struct{ name, made, sent, want string }{
		{"together", rs + "," + ws, rs + "," + ws, ""},
		{"without its reasoning", rs + "," + ws, ws, `messages[0] was provided without its required 'reasoning' item: "rs_N".`},
		{"without its id", rs + "," + fc + "," + out, strings.Replace(fc, `"id":"fc_N",`, "", 1) + "," + out, ""},
		{"behind an item of the same reasoning", rs + "," + fc + "," + ws, ws, `without its required 'reasoning' item: "rs_N"`},
		{"of later reasoning", n(rs, "1") + "," + fc + "," + n(rs, "2") + "," + ws, n(rs, "2") + "," + ws, ""},
		{"of two, one of them missing", n(rs, "1") + "," + n(rs, "2") + "," + ws, n(rs, "2") + "," + ws, `"rs_1"`},
		{"after somebody spoke", rs + "," + own + "," + ws, ws, ""},
		{"after a result", rs + "," + fc + "," + out + "," + msg, msg, ""},
		{"of no reasoning", msg + "," + ws, ws, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := Parted([]byte("["+tt.made+"]"), []byte("["+tt.sent+"]"))
			if tt.want == "" && len(got) > 0 || tt.want != "" && (len(got) != 1 || !strings.Contains(got[0], tt.want)) {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}

func TestResponses(t *testing.T) {
	const (
		call      = `{"type":"function_call","id":"fc_1","call_id":"c","name":"f","arguments":"{}","status":"completed"}`
		output    = `{"type":"function_call_output","call_id":"c","output":"x"}`
		pair      = call + "," + output
		custom    = `{"type":"custom_tool_call","call_id":"c","name":"g","input":"x"}`
		reasoning = `{"type":"reasoning","id":"rs_1","summary":[{"type":"summary_text","text":"x"}],"content":[{"type":"reasoning_text","text":"x"}],"encrypted_content":"x"}`
		message   = `{"type":"message","id":"msg_1","role":"assistant","status":"completed","phase":"commentary","content":[{"type":"output_text","text":"x","annotations":[]}]}`
		user      = `{"role":"user","content":"x"}`
		computer  = `{"type":"computer_call","id":"cu_1","call_id":"c","action":{},"pending_safety_checks":[],"status":"completed"}`
		shell     = `{"type":"local_shell_call","id":"s","call_id":"c","action":{},"status":"completed"}`
		ran       = `{"type":"shell_call_output","call_id":"c","output":[{"stdout":"x","stderr":"","outcome":{"type":"exit","exit_code":0}}]}`
		patched   = `{"type":"apply_patch_call_output","call_id":"c","status":"completed"}`
		tools     = `{"type":"function","name":"f","parameters":{"type":"object"}},{"type":"custom","name":"g"}`
	)
	say := func(parts string) string { return `{"role":"user","content":[` + parts + `]}` }
	image := func(url string) string { return `{"type":"input_image","detail":"auto","image_url":"` + url + `"}` }
	swap := func(s, old, new string) string { return strings.ReplaceAll(s, old, new) }
	x := func(n int) string { return strings.Repeat("x", n) }
	judged(t, "responses", tools, []verdict{
		{"an item of an unknown type", `{"type":"thought"}`, `{"type":"message","role":"user","content":"x"}`, "", "is no type that the input may hold"},
		{"a role that nobody has", `{"role":"tool","content":"x"}`, `{"role":"developer","content":"x"},{"role":"system","content":[{"type":"input_text","text":"x"}]}`, "", "must be one of"},
		{"no content", `{"role":"user"}`, user, "", "lacks content"},
		{"content of another type", `{"role":"user","content":null}`, user, "", "must be a string or a list of parts"},
		{"no parts", say(``), say(`{"type":"input_text","text":"x"}`), "", "is empty"},
		{"a part of the user by the assistant", `{"role":"assistant","content":[{"type":"input_text","text":"x"}]}`, `{"role":"assistant","content":[{"type":"output_text","text":"x","annotations":[]},{"type":"refusal","refusal":"x"}]}`, "", "is no type that a message of this role may hold"},
		{"a part of the assistant by the user", say(`{"type":"output_text","text":"x","annotations":[]}`), `{"role":"assistant","content":"x","phase":"final_answer"}`, "", "is no type that a message of this role may hold"},
		{"a text without annotations", swap(message, `,"annotations":[]`, ``), message, "", "lacks annotations"},
		{"a phase that there is not", swap(message, "commentary", "begin"), message, "", "phase must be one of"},
		{"a phase of the user", `{"role":"user","content":"x","phase":"commentary"}`, user, "", "belongs to assistant messages"},
		{"an id of the user's", `{"role":"user","content":"x","id":"msg_1"}`, `{"role":"user","status":"completed","content":[{"type":"input_text","text":"x"}]}`, "", "is no member"},
		{"an answer with an id and no status", swap(message, `"status":"completed",`, ``), message, "", "lacks status"},
		{"an answer with a status and no id", swap(message, `"id":"msg_1",`, ``), message, "", "lacks id"},
		{"an answer with an id and no type", swap(message, `"type":"message",`, ``), message, "", "lacks type"},
		{"a status that there is not", swap(message, `"completed"`, `"done"`), message, "", "status must be one of"},
		{"an id with another beginning, message", swap(message, "msg_1", "rs_1"), message, "", "begins with 'msg'"},
		{"an id with another beginning, call", swap(pair, "fc_1", "call_1"), pair, "", "begins with 'fc'"},
		{"an id with another beginning, reasoning", swap(reasoning, "rs_1", "1") + "," + call + "," + output, reasoning + "," + pair, "", "begins with 'rs'"},
		{"an id of 65", swap(message, "msg_1", "msg_"+x(61)), swap(message, "msg_1", "msg_"+x(60)), "", "maximum length 64"},
		{"a call id of 65", swap(pair, `"c"`, `"`+x(65)+`"`), swap(pair, `"c"`, `"`+x(64)+`"`), "", "maximum length 64"},
		{"an id twice", message + "," + message, message + "," + swap(message, "msg_1", "msg_2"), "", "duplicate item found"},
		{"reasoning twice", reasoning + "," + message + "," + reasoning + "," + pair, reasoning + "," + message + "," + swap(reasoning, "rs_1", "rs_2") + "," + pair, "", "duplicate item found with id \"rs_1\""},
		{"reasoning that leads to nothing", reasoning, reasoning + "," + message, "", "without its required following item"},
		{"reasoning before the user", reasoning + "," + user, reasoning + `,{"role":"assistant","content":"x"}`, "", "without its required following item"},
		{"reasoning before an output", call + "," + reasoning + "," + output, reasoning + "," + custom + `,{"type":"custom_tool_call_output","call_id":"c","output":"x"}`, "", "without its required following item"},
		{"reasoning without an id", swap(reasoning, `"id":"rs_1",`, ``) + "," + message, reasoning + "," + swap(reasoning, "rs_1", "rs_2") + "," + message, "", "lacks id"},
		{"reasoning without a summary", swap(swap(reasoning, "summary_text", "text"), "reasoning_text", "text") + "," + message, swap(reasoning, `[{"type":"summary_text","text":"x"}]`, "[]") + "," + message, "", "must be one of"},
		{"a call without an output", call, pair, "", "no tool output found for function call \"c\""},
		{"an output without a call", output, pair, "", "no tool call found for function call output with call_id"},
		{"an output before its call", output + "," + call, call + "," + user + "," + output, "", "no tool call found"},
		{"an output of another type", custom + "," + output, custom + `,{"type":"custom_tool_call_output","call_id":"c","output":"x"}`, "", "no tool call found"},
		{"a second output", pair + "," + output, pair + "," + swap(pair, "fc_1", "fc_2"), "", "no tool call found"},
		{"a computer without an output", computer, computer + `,{"type":"computer_call_output","call_id":"c","output":{}}`, "", "no tool output found"},
		{"a computer without checks", swap(computer, `"pending_safety_checks":[],`, ``), computer + `,{"type":"computer_call_output","call_id":"c","output":{}}`, "", "lacks pending_safety_checks"},
		{"a shell without an output", shell, shell + `,{"type":"local_shell_call_output","id":"s","output":"x"}`, "", "no tool output found"},
		{"a shell without what it is to do", swap(shell, `"action":{},`, ``), shell + `,{"type":"local_shell_call_output","id":"s","output":"x"}`, "", "lacks action"},
		{"a shell without commands", `{"type":"shell_call","call_id":"c","action":{}},` + ran, `{"type":"shell_call","call_id":"c","action":{"commands":["ls"]}},` + ran, "", "lacks commands"},
		{"a shell that does not say how it ended", `{"type":"shell_call","call_id":"c","action":{"commands":["ls"]}},` + swap(ran, `,"outcome":{"type":"exit","exit_code":0}`, ``), `{"type":"shell_call","call_id":"c","action":{"commands":["ls"]}},` + ran, "", "lacks outcome"},
		{"a patch without a status", `{"type":"apply_patch_call","call_id":"c","operation":{"type":"delete_file","path":"x"}},` + patched, `{"type":"apply_patch_call","call_id":"c","status":"completed","operation":{"type":"delete_file","path":"x"}},` + patched, "", "lacks status"},
		{"code without its outputs", `{"type":"code_interpreter_call","id":"ci_1","status":"completed","container_id":"x","code":"1"}`, `{"type":"code_interpreter_call","id":"ci_1","status":"completed","container_id":"x","code":"1","outputs":null}`, "", "lacks outputs"},
		{"an image without a status", `{"type":"image_generation_call","id":"ig_1","result":"AAAA"}`, `{"type":"image_generation_call","id":"ig_1","status":"completed","result":"AAAA"}`, "", "lacks status"},
		{"a file search without a status", `{"type":"file_search_call","id":"fs_1","queries":["x"]}`, `{"type":"file_search_call","id":"fs_1","queries":["x"],"status":"completed","results":null}`, "", "lacks status"},
		{"tools of a server without names", `{"type":"mcp_list_tools","id":"mcpl_1","server_label":"s","tools":[{}]}`, `{"type":"mcp_list_tools","id":"mcpl_1","server_label":"s","tools":[{"name":"n","input_schema":{}}]}`, "", "lacks name"},
		{"arguments that are an object", swap(pair, `"{}"`, `{}`), pair, "", "arguments must be a string"},
		{"input that is an object", swap(custom, `"input":"x"`, `"input":{}`), custom + `,{"type":"custom_tool_call_output","call_id":"c","output":[{"type":"input_text","text":"x"}]}`, "", "input must be a string"},
		{"a name with a blank", swap(pair, `"f"`, `"a b"`), swap(pair, `"name":`, `"namespace":"n","name":`), "", "must match"},
		{"an output of parts of the assistant", call + "," + swap(output, `"x"`, `[{"type":"output_text","text":"x","annotations":[]}]`), call + "," + swap(output, `"x"`, `[`+image("https://x")+`]`), "", "is no type that an output may hold"},
		{"a compaction of nothing", `{"type":"compaction"}`, `{"type":"compaction","id":"cmp_1","encrypted_content":"x"}`, "", "lacks encrypted_content"},
		{"a compaction that is too large", `{"type":"compaction","encrypted_content":"` + x(maxCompaction+1) + `"}`, `{"type":"compaction","encrypted_content":"` + x(maxCompaction) + `"}`, "", "the limit is 20 MB"},
		{"a reference", `{"type":"item_reference","id":"msg_1"}`, message, "", "items are not persisted when store is set to false"},
		{"reasoning that is stored only", swap(reasoning, `,"encrypted_content":"x"`, ``) + "," + message, reasoning + "," + message, "", "items are not persisted when store is set to false"},
		{"a search of nothing", `{"type":"web_search_call","id":"ws_1"}`, `{"type":"web_search_call","id":"ws_1","action":{},"status":"completed"}`, "", "lacks action"},
		{"a hosted call of another shape", `{"type":"mcp_call","name":"x","arguments":{}}`, `{"type":"mcp_call","id":"mcp_1","server_label":"s","name":"x","arguments":"{}"}`, "", "arguments must be a string"},
		{"an image without a detail", say(`{"type":"input_image","image_url":"https://x"}`), say(image("https://x")), "", "lacks detail"},
		{"an image of nothing", say(`{"type":"input_image","detail":"auto"}`), say(`{"type":"input_image","detail":"low","file_id":"x"}`), "", "must have one of image_url and file_id"},
		{"an image that is too large", say(image("data:image/png;base64," + tooLarge)), say(image("data:image/png;base64," + fits)), "", "the limit is 5 MB"},
		{"an image that is none", say(image("data:image/svg+xml;base64,AAAA")), say(image("data:image/webp;base64,AAAA")), "", "is no data: URL of an image"},
		{"too many images", say(times(101, image("https://x"))), say(times(100, image("https://x"))), "", "at most 100"},
		{"a file of nothing", say(`{"type":"input_file","filename":"x"}`), say(`{"type":"input_file","file_id":"x"}`), "", "must have one of file_id"},
		{"a file without a name", say(`{"type":"input_file","file_data":"AAAA"}`), say(`{"type":"input_file","file_data":"data:application/pdf;base64,AAAA","filename":"x"}`), "", "lacks filename"},
		{"a video", say(`{"type":"input_file","file_data":"data:video/mp4;base64,AAAA","filename":"x"}`), say(`{"type":"input_file","file_data":"data:text/csv;base64,AAAA","filename":"x"}`), "", "unsupported MIME type, video/mp4"},
		{"a file at no URL", say(`{"type":"input_file","file_url":"x"}`), say(`{"type":"input_file","file_url":"https://x"}`), "", "is no URL"},
		{"a sound in another form", say(`{"type":"input_audio","input_audio":{"data":"AAAA","format":"ogg"}}`), say(`{"type":"input_audio","input_audio":{"data":"AAAA","format":"mp3"}}`), "", "format must be one of"},
		{"a text that is too long", `{"role":"user","content":"` + x(10*maxContent+1) + `"}`, `{"role":"user","content":"` + x(10*maxContent) + `"}`, "", "string too long"},
	})
}
