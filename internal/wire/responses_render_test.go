package wire

import (
	"encoding/base64"
	"fmt"
	"strings"
	"testing"

	"historyd/internal/history"
	"historyd/test/judge"
)

// shownResponses renders items of Responses as they come back to their model.
func shownResponses(t *testing.T, items string, s Show) Shown {
	t.Helper()
	msgs := decodeAppend(t, Responses, "["+items+"]")
	for i := range msgs {
		msgs[i].Seq = int64(i + 1)
		if msgs[i].Role == history.Assistant {
			msgs[i].Model = "m1"
		}
	}
	out := responsesShown(t, msgs, s)
	judgeResponses(t, out)
	for _, why := range judge.Parted([]byte("["+items+"]"), []byte("["+string(out.Messages)+"]")) {
		t.Errorf("refused: %s\n%s\n%s", why, items, out.Messages)
	}
	return out
}

func TestItemsGoWithTheReasoningThatLedToThem(t *testing.T) {
	const (
		user   = `{"type":"message","role":"user","content":"x"}`
		say    = `{"type":"message","role":"assistant","content":"y"}`
		call   = `{"type":"function_call","call_id":"c","name":"f","arguments":"{}"}`
		result = `{"type":"function_call_output","call_id":"c","output":"r"}`
		rs     = `{"type":"reasoning","id":"rs_1","summary":[],"encrypted_content":"e"}`
		stored = `{"type":"reasoning","id":"rs_2","summary":[]}`
		search = `{"type":"web_search_call","id":"ws_1","status":"completed","action":{"type":"search","query":"q"}}`
		drawn  = `{"type":"image_generation_call","id":"ig_1","status":"completed","result":"iVBORw0KGgo="}`
		torn   = `{"type":"code_interpreter_call","id":"ci_1","status":"completed","container_id":"x","code":"1","outputs":null}`
		shell  = `{"type":"local_shell_call","id":"lsh_1","call_id":"lsh_1","status":"completed","action":{"type":"exec","command":["ls"],"env":{}}}`
		ran    = `{"type":"local_shell_call_output","id":"lsh_1","output":"r"}`
		image  = `{"type":"message","role":"assistant","content":"[image: not shown here]"}`
	)
	for _, tt := range []struct{ name, in, want, report string }{
		{"a search", stored + "," + search + "," + say, say, `,"withheld_thinking":1,"withheld_opaque":1`},
		{"a search with its reasoning", rs + "," + search + "," + say, rs + "," + search + "," + say, ""},
		{"a search of one of two", stored + "," + rs + "," + search + "," + say, say, `,"withheld_thinking":2,"withheld_opaque":1`},
		{"a search of later reasoning", stored + "," + say + "," + rs + "," + search, say + "," + rs + "," + search, `,"withheld_thinking":1`},
		{"behind another item", stored + "," + say + "," + search, say, `,"withheld_thinking":1,"withheld_opaque":1`},
		{"behind an item that is withheld", rs + "," + torn + "," + search + "," + say, say, `,"withheld_thinking":1,"withheld_opaque":2`},
		{"an image", stored + "," + drawn, image, `,"withheld_thinking":1,"dropped_media":1`},
		{"an image behind an item that is withheld", rs + "," + torn + "," + drawn, image, `,"withheld_thinking":1,"withheld_opaque":1,"dropped_media":1`},
		{"a shell of the client's", stored + "," + shell + "," + ran,
			`{"type":"function_call","call_id":"lsh_1","name":"local_shell","arguments":"{\"type\":\"exec\",\"command\":[\"ls\"],\"env\":{}}"},{"type":"function_call_output","call_id":"lsh_1","output":"r"}`, `,"withheld_thinking":1`},
		{"after the user spoke", stored + "," + user + "," + search, user + "," + search, `,"withheld_thinking":1`},
		{"after a result", stored + "," + call + "," + result + "," + search, call + "," + result + "," + search, `,"withheld_thinking":1`},
		{"before a result that is moved", stored + "," + call + "," + search + "," + result, call + "," + result, `,"withheld_thinking":1,"withheld_opaque":1`},
		{"after a result from before the call", result + "," + stored + "," + call + "," + search, call + "," + result, `,"withheld_thinking":1,"withheld_opaque":1`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			out := shownResponses(t, tt.in, Show{Tools: []byte(everyTool)})
			if got := string(out.Messages); got != tt.want {
				t.Errorf("%s\n got %s\nwant %s", tt.in, got, tt.want)
			}
			if report := string(out.Report.AppendMembers(nil)); report != tt.report {
				t.Errorf("report %s, want %s", report, tt.report)
			}
		})
	}
}

// Each row is something for which the provider refuses a request, or forgets what was said.
func TestWhatResponsesRefusesIsNotShown(t *testing.T) {
	const (
		user   = `{"type":"message","role":"user","content":"x"}`
		say    = `{"type":"message","role":"assistant","content":"y"}`
		call   = `{"type":"function_call","call_id":"c","name":"f","arguments":"{}"}`
		result = `{"type":"function_call_output","call_id":"c","output":"r"}`
		rs     = `{"type":"reasoning","id":"rs_1","summary":[],"encrypted_content":"e"}`
	)
	long := strings.Repeat("z", 65)
	interrupted := func(out string) bool {
		return strings.Contains(out, `{"type":"function_call_output","call_id":"c","output":"This call was interrupted`)
	}
	for _, tt := range []struct{ name, in, want, report string }{
		{"a call without output", user + "," + call, "", ""},
		{"an output without a call", user + "," + result + "," + say, user + "," + say, ""},
		{"an output before its call", result + "," + call + "," + say, call + "," + result + "," + say, ""},
		{"something between a call and its output", call + "," + user + "," + result, call + "," + result + "," + user, ""},
		{"two outputs for a call", call + "," + result + "," + result, call + "," + result, ""},
		{"calls of one id", call + "," + result + "," + call + "," + result, call + "," + result + "," + call + "," + result, ""},

		{"reasoning and what it led to", rs + "," + say, rs + "," + say, ""},
		{"reasoning before a call", rs + "," + call + "," + result, rs + "," + call + "," + result, ""},
		{"reasoning at the end", user + "," + rs, user, `,"withheld_thinking":1`},
		{"reasoning without what it led to", rs + "," + user + "," + say, user + "," + say, `,"withheld_thinking":1`},
		{"reasoning that led to nothing to show", rs + `,{"type":"web_search_call","id":"ws_1","status":"completed"},` + say, say, `,"withheld_thinking":1,"withheld_opaque":1`},
		{"reasoning before an empty text", rs + `,{"type":"message","role":"assistant","content":""},` + say, rs + "," + say, `,"dropped_empty":1`},
		{"reasoning twice", rs + "," + say + "," + rs + "," + say, rs + "," + say + "," + say, `,"withheld_thinking":1`},
		{"reasoning that is stored only", `{"type":"reasoning","id":"rs_1","summary":[{"type":"summary_text","text":"s"}]},` + say, say, `,"withheld_thinking":1`},
		{"reasoning without an id", `{"type":"reasoning","summary":[],"encrypted_content":"e"},` + say, say, `,"withheld_thinking":1`},
		{"reasoning with another id", `{"type":"reasoning","id":"msg_1","summary":[],"encrypted_content":"e"},` + say, say, `,"withheld_thinking":1`},
		{"reasoning with a long id", `{"type":"reasoning","id":"rs_` + long + `","summary":[],"encrypted_content":"e"},` + say, say, `,"withheld_thinking":1`},
		{"all of reasoning", `{"type":"reasoning","id":"rs_1","status":"completed","summary":[{"type":"summary_text","text":"a"},{"type":"summary_text","text":"b"}],"content":[{"type":"reasoning_text","text":"c"}],"encrypted_content":"e"},` + say,
			`{"type":"reasoning","id":"rs_1","summary":[{"type":"summary_text","text":"a"},{"type":"summary_text","text":"b"}],"content":[{"type":"reasoning_text","text":"c"}],"encrypted_content":"e"},` + say, ""},

		{"ids of what is stored", `{"type":"message","id":"msg_1","role":"assistant","status":"completed","content":[{"type":"output_text","text":"y","annotations":[],"logprobs":[]}]},` +
			`{"type":"function_call","id":"fc_1","call_id":"c","name":"f","arguments":"{}","status":"completed"},{"type":"function_call_output","id":"fco_1","call_id":"c","output":"r","status":"completed"}`,
			say + "," + call + "," + result, ""},
		{"a reference", `{"type":"item_reference","id":"msg_1"},` + user, user, `,"withheld_opaque":1`},
		{"a long id", strings.ReplaceAll(call+","+result, `"c"`, `"`+long+`"`), strings.ReplaceAll(call+","+result, `"c"`, `"`+derivedID(long)+`"`), `,"mapped_ids":1`},
		{"an id of other signs", strings.ReplaceAll(call+","+result, `"c"`, `"ç"`), strings.ReplaceAll(call+","+result, `"c"`, `"`+derivedID("ç")+`"`), `,"mapped_ids":1`},
		{"an id of another provider", strings.ReplaceAll(call+","+result, `"c"`, `"call_1|fc_2"`), strings.ReplaceAll(call+","+result, `"c"`, `"call_1|fc_2"`), ""},

		{"phases", `{"type":"message","role":"assistant","content":"y","phase":"commentary"},{"type":"message","role":"assistant","content":[{"type":"output_text","text":"z","annotations":[]}],"phase":"final_answer"},{"type":"message","role":"assistant","content":"y","phase":"other"}`,
			`{"type":"message","role":"assistant","phase":"commentary","content":"y"},{"type":"message","role":"assistant","phase":"final_answer","content":"z"},` + say, ""},
		{"phase of calls that are joined", `{"type":"message","role":"assistant","content":"y","phase":"commentary"},` + call + `,{"type":"function_call","call_id":"d","name":"f","arguments":"{}"},{"type":"function_call_output","call_id":"d","output":"r"},` + result,
			`{"type":"message","role":"assistant","phase":"commentary","content":"y"},` + call + `,{"type":"function_call","call_id":"d","name":"f","arguments":"{}"},` + result + `,{"type":"function_call_output","call_id":"d","output":"r"}`, ""},
		{"a refusal", `{"type":"message","id":"msg_1","role":"assistant","status":"completed","content":[{"type":"refusal","refusal":"no"}]}`,
			`{"type":"message","role":"assistant","content":[{"type":"refusal","refusal":"no"}]}`, ""},
		{"an empty message", user + `,{"type":"message","role":"assistant","content":""}`, user, `,"dropped_empty":1`},
		{"an answer of nothing", user + `,{"type":"message","id":"msg_1","role":"assistant","status":"incomplete","content":[]}`, user, `,"withheld_opaque":1`},
		{"system and developer", `{"role":"system","content":"s"},{"role":"developer","content":"d"},` + user, user, ""},
		{"an easy message without a type", `{"role":"user","content":"x"}`, user, ""},
		{"NUL", `{"type":"message","role":"user","content":"a\u0000"}`, `{"type":"message","role":"user","content":"a` + "\uFFFD" + `"}`, `,"replaced_characters":1`},
		{"markers of the prompt cache", `{"type":"message","role":"user","content":[{"type":"input_text","text":"x","prompt_cache_breakpoint":{}}]}`, user, ""},
		{"invalid arguments", strings.Replace(call, `{}`, `{\"a\":`, 1) + "," + result, strings.Replace(call, `{}`, `{\"a\":`, 1) + "," + result, ""},
		{"a custom call", `{"type":"custom_tool_call","call_id":"c","name":"f","input":"ls"},{"type":"function_call_output","call_id":"c","output":"r"}`,
			`{"type":"custom_tool_call","call_id":"c","name":"f","input":"ls"},{"type":"custom_tool_call_output","call_id":"c","output":"r"}`, ""},
		{"an output of nothing", call + `,{"type":"function_call_output","call_id":"c","output":[]}`, call + `,{"type":"function_call_output","call_id":"c","output":""}`, ""},
		{"compaction", `{"type":"compaction","id":"cmp_1","encrypted_content":"e"},` + user, `{"type":"compaction","encrypted_content":"e"},` + user, ""},
		{"results that only the store has", `{"type":"file_search_call","id":"fs_1","status":"completed","queries":["q"],"results":null},` + say, say, `,"withheld_opaque":1`},
		{"an item twice", `{"type":"web_search_call","id":"ws_1","status":"completed","action":{"type":"search"}},{"type":"web_search_call","id":"ws_1","status":"completed","action":{"type":"search"}}`,
			`{"type":"web_search_call","id":"ws_1","status":"completed","action":{"type":"search"}}`, `,"withheld_opaque":1`},
		{"an approval of nothing", `{"type":"mcp_approval_response","approval_request_id":"mcpr_1","approve":true},` + user, user, `,"withheld_opaque":1`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			out := shownResponses(t, tt.in, Show{Model: "m1"})
			got := string(out.Messages)
			if tt.want == "" {
				if !strings.HasPrefix(got, user+","+call) || !interrupted(got) {
					t.Errorf("got %s", got)
				}
			} else if got != tt.want {
				t.Errorf("%s\n got %s\nwant %s", tt.in, got, tt.want)
			}
			if report := string(out.Report.AppendMembers(nil)); report != tt.report {
				t.Errorf("report %s, want %s", report, tt.report)
			}
		})
	}
}

func TestWhatOnlyOneModelKnowsGoesNowhereElse(t *testing.T) {
	const items = `{"type":"reasoning","id":"rs_1","summary":[],"encrypted_content":"e"},{"type":"web_search_call","id":"ws_1","status":"completed","action":{"type":"search","query":"q"}},
		{"type":"message","role":"assistant","content":[{"type":"output_text","text":"y","annotations":[{"type":"file_path","file_id":"f","index":1}]}]},
		{"type":"image_generation_call","id":"ig_1","status":"completed","result":"iVBORw0KGgo="}`
	const bare = `{"type":"message","role":"assistant","content":"y"},{"type":"message","role":"assistant","content":"[image: not shown here]"}`
	const all = `{"type":"reasoning","id":"rs_1","summary":[],"encrypted_content":"e"},{"type":"web_search_call","id":"ws_1","status":"completed","action":{"type":"search","query":"q"}},` +
		`{"type":"message","role":"assistant","content":[{"type":"output_text","text":"y","annotations":[{"type":"file_path","file_id":"f","index":1}]}]},` +
		`{"type":"image_generation_call","id":"ig_1","status":"completed","result":"iVBORw0KGgo="}`
	for _, tt := range []struct{ provider, model, want string }{
		{"", "", all}, {"openai", "m1", all}, {"", "m1", all}, {"openai", "m2", bare}, {"azure", "m1", bare}, {"azure", "", bare},
	} {
		out := shownResponses(t, items, Show{Provider: tt.provider, Model: tt.model})
		if got := string(out.Messages); got != tt.want {
			t.Errorf("to %s %s\n got %s\nwant %s", tt.provider, tt.model, got, tt.want)
		}
		if got, want := string(out.Report.AppendMembers(nil)), `,"withheld_thinking":1,"withheld_opaque":1,"dropped_media":1`; tt.want == bare && got != want {
			t.Errorf("to %s %s: report %s, want %s", tt.provider, tt.model, got, want)
		}
	}
}

// A tool that the provider knows and the client runs is shown as such where the request
// has it, and the call is whole.
func TestCallsOfToolsThatTheProviderKnows(t *testing.T) {
	lists := corpus(t, Responses)
	for _, tt := range []struct{ document, tools, want string }{
		{"shell", everyTool, "shell_call shell_call_output"},
		{"shell", `[{"type":"web_search"}]`, "function_call function_call_output"},
		{"shell", "", "function_call function_call_output"},
		{"shell_empty", everyTool, "function_call function_call_output"}, // nothing says how it ended
		{"local_shell", everyTool, "local_shell_call local_shell_call_output"},
		{"apply_patch", everyTool, strings.TrimSpace(strings.Repeat("apply_patch_call apply_patch_call_output ", 3))},
		{"computer", everyTool, "computer_call computer_call_output"},
		{"computer", "", "function_call function_call_output"},
		{"computer_actions", everyTool, "function_call function_call_output computer_call computer_call_output function_call function_call_output"},
	} {
		s := Show{Model: "m1"}
		if tt.tools != "" {
			s.Tools = []byte(tt.tools)
		}
		out := shownResponses(t, strings.Trim(strings.TrimSpace(lists[tt.document]), "[]"), s)
		var kinds []string
		for _, item := range numbered("[" + string(out.Messages) + "]").([]any) {
			kinds = append(kinds, item.(map[string]any)["type"].(string))
		}
		if got := strings.Join(kinds, " "); got != tt.want {
			t.Errorf("%s with %s\n got %s\nwant %s", tt.document, tt.tools, got, tt.want)
		}
	}
}

func TestMediaInResponses(t *testing.T) {
	const call = `{"type":"function_call","call_id":"c","name":"f","arguments":"{}"}`
	for _, tt := range []struct{ in, want string }{
		{`{"type":"message","role":"user","content":[{"type":"input_image","image_url":"data:image/png;base64,iVBORw0KGgo="},{"type":"input_image","image_url":"ftp://e.example"}]}`,
			`{"type":"message","role":"user","content":[{"type":"input_image","image_url":"data:image/png;base64,iVBORw0KGgo=","detail":"auto"},{"type":"input_text","text":"[image: not shown here]"}]}`},
		{call + `,{"type":"function_call_output","call_id":"c","output":[{"type":"input_image","image_url":"data:image/png;base64,iVBORw0KGgo=","detail":"low"},{"type":"input_text","text":"x"},{"type":"input_audio","input_audio":{"data":"AAAA","format":"wav"}}]}`,
			call + `,{"type":"function_call_output","call_id":"c","output":[{"type":"input_image","image_url":"data:image/png;base64,iVBORw0KGgo=","detail":"low"},{"type":"input_text","text":"x"},{"type":"input_text","text":"[audio: not shown here]"}]}`},
		{`{"type":"message","role":"user","content":[{"type":"input_file","file_data":"JVBERi0="},{"type":"input_file","file_data":"data:text/plain;charset=utf-8;base64,aGk=","filename":"a"},{"type":"input_file","file_url":"https://e.example/a","filename":"a"},{"type":"input_file","file_id":"file-1","filename":"a"},{"type":"input_image","file_id":"file-2"}]}`,
			`{"type":"message","role":"user","content":[{"type":"input_file","file_data":"data:application/pdf;base64,JVBERi0=","filename":"document.pdf"},{"type":"input_file","file_data":"data:text/plain;base64,aGk=","filename":"a"},{"type":"input_file","file_url":"https://e.example/a"},{"type":"input_file","file_id":"file-1"},{"type":"input_image","file_id":"file-2","detail":"auto"}]}`},
		{`{"type":"message","role":"user","content":[{"type":"input_audio","input_audio":{"data":"AAAA","format":"mp3"}}]}`,
			`{"type":"message","role":"user","content":[{"type":"input_audio","input_audio":{"data":"AAAA","format":"mp3"}}]}`},
		{`{"type":"message","role":"user","content":[{"type":"input_image","image_url":"data:Image/JPG;base64,AAAA"},{"type":"input_file","file_data":"data:Text/Plain ;base64,aGk=","filename":"a"},{"type":"input_image","image_url":"https://"}]}`,
			`{"type":"message","role":"user","content":[{"type":"input_image","image_url":"data:image/jpeg;base64,AAAA","detail":"auto"},{"type":"input_file","file_data":"data:text/plain;base64,aGk=","filename":"a"},{"type":"input_text","text":"[image: not shown here]"}]}`},
		{`{"type":"message","role":"user","content":[{"type":"input_file","file_data":"data:video/mp4;base64,AAAA","filename":"a"},{"type":"input_file","file_data":"data:application/x-sh;base64,aGk=","filename":"a"},{"type":"input_file","file_data":"data:application/msword;base64,AAAA","filename":"a"}]}`,
			`{"type":"message","role":"user","content":[{"type":"input_text","text":"[document: not shown here]"},{"type":"input_file","file_data":"data:text/plain;base64,aGk=","filename":"a"},{"type":"input_file","file_data":"data:application/msword;base64,AAAA","filename":"a"}]}`},
		{`{"type":"message","role":"user","content":[{"type":"input_image","image_url":"data:image/tiff;base64,AAAA"}]}`,
			`{"type":"message","role":"user","content":"[image: not shown here]"}`},
		{fmt.Sprintf(`{"type":"message","role":"user","content":[{"type":"input_image","image_url":"data:image/png;base64,%s"}]}`, base64.StdEncoding.EncodeToString(make([]byte, 4_000_000))),
			`{"type":"message","role":"user","content":"[image: not shown here]"}`},
	} {
		out := shownResponses(t, tt.in, Show{Model: "m1"})
		if got := string(out.Messages); got != tt.want {
			t.Errorf("got %s\nwant %s", got, tt.want)
		}
	}
}

func TestSummaryAndToolsOfResponses(t *testing.T) {
	const call = `{"type":"function_call","call_id":"c","name":"a.b","arguments":"{}"},{"type":"function_call_output","call_id":"c","output":"r"},
		{"type":"custom_tool_call","call_id":"d","name":"z","input":"x"},{"type":"custom_tool_call_output","call_id":"d","output":"r"}`
	for authority, role := range map[bool]string{true: "developer", false: "user"} {
		out := shownResponses(t, call, Show{Summary: "before", Authority: authority, Tools: []byte(` [ {"type":"web_search"} ] `)})
		if want := `{"type":"message","role":"` + role + `","content":"before"},`; !strings.HasPrefix(string(out.Messages), want) {
			t.Errorf("got %s, want it to begin with %s", out.Messages, want)
		}
		mapped := ""
		for name, original := range out.Names {
			if original == "a.b" {
				mapped = name
			}
		}
		if len(out.Refusals) != 2 || out.Refusals[0].Name != mapped || out.Refusals[1].Name != "z" {
			t.Fatalf("refusals %+v of the names %v", out.Refusals, out.Names)
		}
		want := `{"type":"web_search"},{"type":"function","name":"` + mapped + `","description":"` + out.Refusals[0].Refusal + `","parameters":{"type":"object"},"strict":false},` +
			`{"type":"custom","name":"z","description":"` + out.Refusals[1].Refusal + `"}`
		if got := string(out.Tools); got != want {
			t.Errorf("tools\n got %s\nwant %s", got, want)
		}
		if !strings.Contains(string(out.Messages), `"name":"`+mapped+`"`) {
			t.Errorf("the call is not of %s: %s", mapped, out.Messages)
		}
	}
}

func TestNamespacesAreKeptWhereTheyAreDeclared(t *testing.T) {
	const items = `{"type":"function_call","call_id":"c","name":"open","arguments":"{}","namespace":"crm"},{"type":"function_call_output","call_id":"c","output":"r"}`
	for tools, want := range map[string]bool{everyTool: true, `[{"type":"function","name":"open","parameters":{"type":"object"}}]`: false} {
		out := shownResponses(t, items, Show{Model: "m1", Tools: []byte(tools)})
		if got := strings.Contains(string(out.Messages), `"namespace":"crm"`); got != want {
			t.Errorf("%s: namespace %v in %s", tools, got, out.Messages)
		}
	}
}

// The other formats' histories become items, too.
func TestForeignHistoriesAsResponses(t *testing.T) {
	for _, tt := range []struct {
		from     Format
		in, want string
	}{
		{OpenAI, `[{"role":"user","content":[{"type":"text","text":"a"},{"type":"image_url","image_url":{"url":"https://e.example/x","detail":"low"}},{"type":"file","file":{"file_id":"file-1"}}]},
			{"role":"assistant","content":"b","refusal":"no","tool_calls":[{"id":"c","type":"custom","custom":{"name":"f","input":"x"}}]},{"role":"tool","tool_call_id":"c","content":"d"}]`,
			`{"type":"message","role":"user","content":[{"type":"input_text","text":"a"},{"type":"input_image","image_url":"https://e.example/x","detail":"low"},{"type":"input_file","file_id":"file-1"}]},` +
				`{"type":"message","role":"assistant","content":[{"type":"output_text","text":"b","annotations":[]},{"type":"refusal","refusal":"no"}]},` +
				`{"type":"custom_tool_call","call_id":"c","name":"f","input":"x"},{"type":"custom_tool_call_output","call_id":"c","output":"d"}`},
		{Native, `[{"role":"assistant","provider":"anthropic","model":"m1","content":[{"type":"thinking","text":"t","signature":"s"},{"type":"text","text":"a"},{"type":"tool_call","id":"toolu_1","name":"f","arguments":{"a":1.0}},
			{"type":"opaque","provider":"anthropic","data":{"type":"server_tool_use"}}]},{"role":"tool","content":[{"type":"tool_result","call_id":"toolu_1","content":[{"type":"text","text":"b"},{"type":"text","text":"c"}],"is_error":true}]}]`,
			`{"type":"message","role":"assistant","content":"a"},{"type":"function_call","call_id":"toolu_1","name":"f","arguments":"{\"a\":1.0}"},` +
				`{"type":"function_call_output","call_id":"toolu_1","output":[{"type":"input_text","text":"b"},{"type":"input_text","text":"c"}]}`},
		{Native, `[{"role":"assistant","content":[{"type":"tool_call","id":"c","name":"f","arguments":1},{"type":"tool_call","id":"c","name":"f","arguments":2}]},
			{"role":"tool","content":[{"type":"tool_result","call_id":"c","content":"a"},{"type":"tool_result","call_id":"c","content":"b"}]}]`,
			`{"type":"function_call","call_id":"c","name":"f","arguments":"1"},{"type":"function_call","call_id":"call_1b69f307432f285923ec9bca","name":"f","arguments":"2"},` +
				`{"type":"function_call_output","call_id":"c","output":"a"},{"type":"function_call_output","call_id":"call_1b69f307432f285923ec9bca","output":"b"}`},
	} {
		out := responsesShown(t, decodeAppend(t, tt.from, tt.in), Show{})
		judgeResponses(t, out)
		if got := string(out.Messages); got != tt.want {
			t.Errorf("got %s\nwant %s", got, tt.want)
		}
	}
}

// An agent may stop at any message of a real conversation.
func TestRealConversationsAsResponses(t *testing.T) {
	for n, msgs := range conversations(t) {
		for end := 1 + n%7; end <= len(msgs); end += 7 {
			judgeResponses(t, responsesShown(t, msgs[:end], Show{Model: "m"}))
		}
		// As items they say the same: what one call said is one item.
		again, err := DecodeDocument(Responses, false, []byte(encode(Responses, msgs, ForExport)), 0)
		if err != nil {
			t.Fatal(err)
		}
		got := responsesShown(t, again.Messages, Show{Model: ""})
		if want := responsesShown(t, msgs, Show{Model: ""}); string(got.Messages) != string(want.Messages) {
			t.Fatalf("conversation %d\n got %s\nwant %s", n, got.Messages, want.Messages)
		}
	}
}
