package wire

import (
	"encoding/json"
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"

	"historyd/internal/history"
)

func TestResponsesFaultsAreAllTold(t *testing.T) {
	part := func(p string) string { return `{"type":"message","role":"user","content":[` + p + `]}` }
	for _, tt := range []struct{ name, item, want string }{
		{"no object", `"x"`, "messages[0]"},
		{"nothing", `{}`, "messages[0].type"},
		{"type in another case", `{"Type":"message"}`, "messages[0].type!"},
		{"type no string", `{"type":1,"role":"user"}`, "messages[0].type"},
		{"type empty", `{"type":""}`, "messages[0].type"},
		{"no role", `{"type":"message","content":"x"}`, "messages[0].role"},
		{"another role", `{"role":"tool","content":"x"}`, "messages[0].role"},
		{"no content", `{"role":"user"}`, "messages[0].content"},
		{"content null", `{"role":"assistant","content":null}`, "messages[0].content"},
		{"no parts", `{"role":"user","content":[]}`, "messages[0].content"},
		{"an answer in members", `{"role":"assistant","content":[],"0":{"type":"output_text","text":"x"}}`, "messages[0].content"},
		{"variants", `{"role":"user","Role":"system","content":"x","CONTENT":"y","Phase":1}`,
			"messages[0].role! messages[0].content! messages[0].phase!"},
		{"wrong kinds", `{"role":"user","content":"x","id":1,"status":[],"phase":{}}`, "messages[0].id messages[0].status messages[0].phase"},
		{"calls in a message", `{"role":"assistant","content":"x","tool_calls":[{"id":"c"}]}`, "messages[0]"},
		{"image of a system", `{"role":"system","content":[{"type":"input_image","image_url":"https://e.example"}]}`, "messages[0].content[0].type"},
		{"inline file of a developer", `{"role":"developer","content":[{"type":"input_file","filename":"a","file_data":"AAAA"}]}`, "messages[0].content[0].type"},

		{"part no object", part(`1`), "messages[0].content[0]"},
		{"part without type", part(`{"text":"x"},{"Type":"x"}`), "messages[0].content[0].type messages[0].content[1].type!"},
		{"part with calls", part(`{"type":"tool_use"},{"type":"function_call"},{"type":"x","toolCalls":[1]},{"type":"input_text","text":"x","tool_calls":[1]}`),
			"messages[0].content[0].type messages[0].content[1].type messages[0].content[2] messages[0].content[3]"},
		{"text", part(`{"type":"input_text"},{"type":"output_text","text":1},{"type":"text","text":"a","Text":"b"}`),
			"messages[0].content[0].text messages[0].content[1].text messages[0].content[2].text!"},
		{"phase in a part", part(`{"type":"input_text","text":"x","phase":"commentary"},{"type":"x","phase":1}`),
			"messages[0].content[0].phase messages[0].content[1].phase"},
		{"images", part(`{"type":"input_image","image_url":1},{"type":"input_image","image_url":"data:image/png,x"},{"type":"input_image","image_url":"data:image/png;base64,A"}`),
			"messages[0].content[0].image_url messages[0].content[1].image_url messages[0].content[2].image_url"},
		{"files", part(`{"type":"input_file","file_data":"A"},{"type":"input_file","file_url":"data:a/b;base64,AAAA"},{"type":"input_file","file_data":"AAAA","file_url":"https://e.example"},{"type":"input_file","file_data":"data:;x"}`),
			"messages[0].content[0].file_data messages[0].content[1].file_url messages[0].content[2].file_url messages[0].content[3].file_data"},
		{"audio", part(`{"type":"input_audio"},{"type":"input_audio","input_audio":{}},{"type":"input_audio","input_audio":{"data":"!","format":1}}`),
			"messages[0].content[0].input_audio messages[0].content[1].input_audio.data messages[0].content[2].input_audio.data messages[0].content[2].input_audio.format"},
		{"refusal", `{"type":"message","role":"assistant","content":[{"type":"refusal","refusal":1}]}`, "messages[0].content[0].refusal"},

		{"call of nothing", `{"type":"function_call"}`, "messages[0].call_id messages[0].name messages[0].arguments"},
		{"call of wrong kinds", `{"type":"function_call","call_id":"","name":1,"arguments":{},"id":1,"Call_ID":"x"}`,
			"messages[0].call_id messages[0].name messages[0].arguments messages[0].id messages[0].call_id!"},
		{"call with a long id", `{"type":"custom_tool_call","call_id":"` + strings.Repeat("x", 1025) + `","name":"f","input":""}`, "messages[0].call_id"},
		{"custom without input", `{"type":"custom_tool_call","call_id":"c","name":"f","arguments":"x"}`, "messages[0].input"},
		{"call with calls", `{"type":"function_call","call_id":"c","name":"f","arguments":"","tool_calls":[1]}`, "messages[0]"},
		{"shell of nothing", `{"type":"shell_call"}`, "messages[0].call_id messages[0].action"},
		{"shell", `{"type":"shell_call","call_id":"c","action":"ls"}`, "messages[0].action"},
		{"patch", `{"type":"apply_patch_call","call_id":"c","operation":null}`, "messages[0].operation"},
		{"computer", `{"type":"computer_call","call_id":"c","action":null,"actions":{}}`, "messages[0].actions"},

		{"output of nothing", `{"type":"function_call_output"}`, "messages[0].call_id messages[0].output"},
		{"output null", `{"type":"custom_tool_call_output","call_id":"c","output":null}`, "messages[0].output"},
		{"output an object", `{"type":"function_call_output","call_id":"c","output":{}}`, "messages[0].output"},
		{"output parts", `{"type":"function_call_output","call_id":"c","output":[{"type":"tool_result"},1]}`, "messages[0].output[0].type messages[0].output[1]"},
		{"local shell output of none", `{"type":"local_shell_call_output","output":"x"}`, "messages[0].call_id"},
		{"shell output", `{"type":"shell_call_output","call_id":"c","output":[1,{"stdout":1,"type":"x"}]}`,
			"messages[0].output[0] messages[0].output[1].stdout messages[0].output[1].type messages[0].output[1].stderr"},
		{"computer output", `{"type":"computer_call_output","call_id":"c","output":[]}`, "messages[0].output"},
		{"patch output", `{"type":"apply_patch_call_output","call_id":"c","output":[]}`, "messages[0].output"},

		{"reasoning of nothing", `{"type":"reasoning"}`, "messages[0].summary"},
		{"reasoning", `{"type":"reasoning","id":1,"summary":"x","content":1,"encrypted_content":[],"Summary":[]}`,
			"messages[0].id messages[0].summary messages[0].content messages[0].encrypted_content messages[0].summary!"},
		{"reasoning with calls", `{"type":"reasoning","summary":[],"functionCall":{"name":"f"}}`, "messages[0]"},
		{"drawn", `{"type":"image_generation_call","id":1,"result":"AAA"}`, "messages[0].id messages[0].result"},

		{"another provider's call", `{"type":"tool_use","id":"c","name":"f","input":{}}`, "messages[0].type"},
		{"a call of an unknown type", `{"type":"plan","id":"p","call_id":"c","code":"x"}`, "messages[0].type"},
		{"arguments of an unknown type", `{"type":"x","Arguments":"{}"}`, "messages[0].type"},
		{"an unknown type with calls in it", `{"type":"x","toolCalls":[1]}`, "messages[0].type"},
		{"a hosted type with a client's call in it", `{"type":"compaction","content":[{"type":"tool_use"}]}`, "messages[0].type"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, err := DecodeAppend(Responses, []byte(`{"messages":[`+tt.item+`]}`), 0)
			if err == nil {
				t.Fatalf("%s is taken in", tt.item)
			}
			if got := told(t, err); got != tt.want {
				t.Errorf("%s\n got faults at %q\nwant           %q", tt.item, got, tt.want)
			}
		})
	}
}

func TestNoFaultOfResponsesTellsWhatAClientSent(t *testing.T) {
	const canary = "canary"
	for _, item := range []string{
		`{"type":"canary","canary":"canary","call_id":"canary"}`, `{"type":"canary","Type":1}`,
		`{"role":"canary","content":{"canary":1}}`, `{"role":"user","content":[{"type":"canary_tool"},{"type":"input_image","image_url":"data:canary"}]}`,
		`{"type":"function_call","call_id":["canary"],"canary":1}`, `{"type":"reasoning","summary":"canary"}`,
		`{"type":"shell_call_output","call_id":"canary","output":["canary",{"canary":1}]}`,
	} {
		_, err := DecodeAppend(Responses, []byte(`{"messages":[`+item+`]}`), 0)
		var faults *history.Faults
		if !errors.As(err, &faults) {
			t.Errorf("%s: %v", item, err)
			continue
		}
		for _, f := range faults.List {
			if strings.Contains(f.Path+f.Detail, canary) {
				t.Errorf("%s: %+v", item, f)
			}
		}
	}
}

// One item is one message, and what rules about tools look at is where they look.
func TestItemsOfResponsesAsMessages(t *testing.T) {
	for _, tt := range []struct{ item, want string }{
		{`{"role":"user","content":"x"}`,
			`{"role":"user","kind":"user","status":"complete","content":[{"type":"text","text":"x"}],"extra":{"type":"none"}}`},
		{`{"type":"message","id":"msg_1","role":"assistant","status":"incomplete","phase":"commentary","content":[{"type":"output_text","text":"x","annotations":[]}]}`,
			`{"role":"assistant","provider":"openai","status":"incomplete","content":[{"type":"text","text":"x","extra":{"type":"output_text","annotations":[],"phase":"commentary"}}],"extra":{"id":"msg_1","status":"incomplete"}}`},
		{`{"type":"message","role":"developer","content":"x"}`,
			`{"role":"system","status":"complete","content":[{"type":"text","text":"x"}],"extra":{"role":"developer"}}`},
		{`{"type":"function_call","id":"fc_1","call_id":"c","name":"f","arguments":"{\"a\": 1}","status":"completed"}`,
			`{"role":"assistant","provider":"openai","status":"complete","content":[{"type":"tool_call","id":"c","name":"f","arguments":{"a":1},"arguments_text":"{\"a\": 1}","extra":{"id":"fc_1","status":"completed"}}]}`},
		{`{"type":"custom_tool_call","call_id":"c","name":"f","input":"ls"}`,
			`{"role":"assistant","provider":"openai","status":"complete","content":[{"type":"tool_call","id":"c","name":"f","arguments_text":"ls","extra":{"type":"custom"}}]}`},
		{`{"type":"shell_call","call_id":"c","action":{"commands":["ls"]}}`,
			`{"role":"assistant","provider":"openai","status":"complete","content":[{"type":"tool_call","id":"c","name":"shell","arguments":{"commands":["ls"]},"extra":{"type":"shell_call"}}]}`},
		{`{"type":"local_shell_call","id":"lsh_1","call_id":"c","status":"completed","action":{"type":"exec","command":["ls"],"env":{}}}`,
			`{"role":"assistant","provider":"openai","status":"complete","content":[{"type":"tool_call","id":"c","name":"local_shell","arguments":{"type":"exec","command":["ls"],"env":{}},"extra":{"type":"local_shell_call","id":"lsh_1","status":"completed"}}]}`},
		{`{"type":"apply_patch_call","call_id":"c","status":"completed","operation":{"type":"delete_file","path":"a"}}`,
			`{"role":"assistant","provider":"openai","status":"complete","content":[{"type":"tool_call","id":"c","name":"apply_patch","arguments":{"type":"delete_file","path":"a"},"extra":{"type":"apply_patch_call","status":"completed"}}]}`},
		{`{"type":"computer_call","id":"cu_1","call_id":"c","status":"completed","pending_safety_checks":[],"action":{"type":"wait"}}`,
			`{"role":"assistant","provider":"openai","status":"complete","content":[{"type":"tool_call","id":"c","name":"computer","arguments":{"type":"wait"},"extra":{"type":"computer_call","id":"cu_1","status":"completed","pending_safety_checks":[]}}]}`},
		{`{"type":"function_call_output","call_id":"c","output":"x","id":"fco_1"}`,
			`{"role":"tool","status":"complete","content":[{"type":"tool_result","call_id":"c","content":"x","is_error":false,"extra":{"id":"fco_1"}}]}`},
		{`{"type":"apply_patch_call_output","call_id":"c","status":"failed","output":"no"}`,
			`{"role":"tool","status":"complete","content":[{"type":"tool_result","call_id":"c","content":"no","is_error":true,"extra":{"type":"apply_patch_call_output","status":"failed"}}]}`},
		{`{"type":"shell_call_output","call_id":"c","output":[{"stdout":"a","stderr":"b","outcome":{"type":"exit","exit_code":1}}]}`,
			`{"role":"tool","status":"complete","content":[{"type":"tool_result","call_id":"c","content":[{"type":"text","text":"a","extra":{"type":"stdout"}},{"type":"text","text":"b","extra":{"type":"stderr","outcome":{"type":"exit","exit_code":1}}}],"is_error":false,"extra":{"type":"shell_call_output"}}]}`},
		{`{"type":"reasoning","id":"rs_1","summary":[{"type":"summary_text","text":"s"}],"encrypted_content":"e"}`,
			`{"role":"assistant","provider":"openai","status":"complete","content":[{"type":"thinking","text":"s","encrypted":"e","extra":{"id":"rs_1"}}]}`},
		{`{"type":"reasoning","id":"rs_1","summary":[],"content":[{"type":"reasoning_text","text":"r"}]}`,
			`{"role":"assistant","provider":"openai","status":"complete","content":[{"type":"thinking","text":"r","extra":{"id":"rs_1","summary":[],"content":[{"type":"reasoning_text","text":"r"}]}}]}`},
		{`{"type":"web_search_call","id":"ws_1","status":"completed","action":{"type":"search"}}`,
			`{"role":"assistant","provider":"openai","status":"complete","content":[{"type":"opaque","provider":"openai","data":{"type":"web_search_call","id":"ws_1","status":"completed","action":{"type":"search"}},"extra":{"item":true}}]}`},
		{`{"type":"image_generation_call","id":"ig_1","status":"completed","result":"iVBORw0KGgo="}`,
			`{"role":"assistant","provider":"openai","status":"complete","content":[{"type":"image","media_type":"image/png","attachment":"sha256:4c4b6a3be1314ab86138bef4314dde022e600960d8689a2c8f8631802d20dab6","extra":{"type":"image_generation_call","id":"ig_1","status":"completed"}}]}`},
	} {
		if got := encode(Native, decodeAppend(t, Responses, "["+tt.item+"]"), ForExport); got != "["+tt.want+"]" {
			t.Errorf("%s\n got %s\nwant [%s]", tt.item, got, tt.want)
		}
	}
}

// Extra comes from native clients, too: whatever is in it, an export is strict JSON
// and means what the message means.
func TestNoExtraChangesWhatAnItemSays(t *testing.T) {
	for _, tt := range []struct{ native, want string }{
		{`{"role":"user","content":"x","extra":{"role":"developer","type":"function_call","content":"y","a":1}}`,
			`{"type":"message","role":"user","content":"x","a":1}`},
		{`{"role":"assistant","content":[{"type":"tool_call","id":"c","name":"f","arguments":{"a":1},"extra":{"call_id":"d","NAME":"g","arguments":"x","type":"function_call_output","z":1}}],"extra":{"name":"h","q":1}}`,
			`{"type":"function_call","call_id":"c","name":"f","arguments":"{\"a\":1}","z":1,"q":1}`},
		{`{"role":"assistant","content":[{"type":"tool_call","id":"c","name":"shell","arguments":[1],"extra":{"type":"shell_call"}}]}`,
			`{"type":"function_call","call_id":"c","name":"shell","arguments":"[1]"}`},
		{`{"role":"tool","content":[{"type":"tool_result","call_id":"c","content":"x","extra":{"type":"shell_call","output":1}},{"type":"tool_result","call_id":"d","content":[{"type":"text","text":"x","extra":{"type":"stdout"}}],"extra":{"type":"shell_call_output"}}]}`,
			`{"type":"function_call_output","call_id":"c","output":"x"},{"type":"function_call_output","call_id":"d","output":[{"type":"input_text","text":"x"}]}`},
		{`{"role":"assistant","content":[{"type":"thinking","text":"hm","signature":"s","extra":{"summary":1}},{"type":"text","text":"a"},{"type":"text","text":"b","extra":{"phase":"final_answer"}},{"type":"opaque","provider":"anthropic","data":{"type":"x"},"extra":{"item":true}}]}`,
			`{"type":"reasoning","summary":[{"type":"summary_text","text":"hm"}]},{"type":"message","role":"assistant","content":"a"},` +
				`{"type":"message","role":"assistant","content":[{"type":"output_text","text":"b"},{"type":"opaque","provider":"anthropic","data":{"type":"x"},"extra":{"item":true}}],"phase":"final_answer"}`},
	} {
		got := encode(Responses, decodeAppend(t, Native, "["+tt.native+"]"), ForExport)
		sameJSON(t, got, "["+tt.want+"]")
		if _, err := DecodeAppend(Native, []byte(`{"messages":[{"role":"user","content":"x","metadata":{"a":`+got+`}}]}`), 0); err != nil {
			t.Errorf("%s: %v", got, err)
		}
	}
}

func TestWithheldItemsAreStillCalls(t *testing.T) {
	msgs := decodeAppend(t, Native, `[{"role":"assistant","content":[{"type":"tool_call","id":"c","name":"shell","arguments":{"_withheld":"files"}}]},
		{"role":"tool","content":[{"type":"tool_result","call_id":"c","content":"[withheld: files]"}]}]`)
	sameJSON(t, encode(Responses, msgs, ForExport), `[{"type":"function_call","call_id":"c","name":"shell","arguments":"{\"_withheld\":\"files\"}"},
		{"type":"function_call_output","call_id":"c","output":"[withheld: files]"}]`)
}

func TestToolNamesOfResponses(t *testing.T) {
	for _, tt := range []struct{ tool, want string }{
		{`{"type":"function","name":"f","parameters":{},"strict":true}`, "f"},
		{`{"type":"custom","name":"g"}`, "g"},
		{`{"type":"namespace","name":"crm","description":"d","tools":[{"type":"function","name":"a"},{"type":"custom","name":"b"}]}`, "a b"},
		{`{"type":"web_search"}`, ""}, {`{"type":"shell"}`, "shell"}, {`{"type":"mcp","server_label":"s"}`, ""},
		{`{"type":"new","name":"n"}`, "n"},
		{`{"type":"function"}`, "!"}, {`{"type":"function","name":1}`, "!"}, {`{"type":"namespace","name":"x"}`, "!"},
		{`{"name":"f"}`, "!"}, {`{}`, "!"}, {`"f"`, "!"}, {`{"type":"","name":"f"}`, "!"},
	} {
		names, err := ToolNames(Responses, []byte("["+tt.tool+"]"))
		got := strings.Join(names, " ")
		if err != nil {
			got = "!"
			if at := told(t, err); at != "tools[0]" {
				t.Errorf("%s: fault at %q", tt.tool, at)
			}
		}
		if got != tt.want {
			t.Errorf("%s: names %q, want %q", tt.tool, got, tt.want)
		}
	}
}

func TestDocumentsOfResponses(t *testing.T) {
	item := `{"type":"message","role":"user","content":"x"}`
	for _, doc := range []string{"[" + item + "]", `{"input":[` + item + `],"model":"m","store":false}`, `{"items":[` + item + `]}`, `{"model":"m","input":"x","stream":true}`} {
		d, err := DecodeDocument(Responses, false, []byte(doc), 0)
		if err != nil || len(d.Messages) != 1 || d.Messages[0].Content[0].Text != "x" {
			t.Errorf("%s: %d messages, %v", doc, len(d.Messages), err)
		}
	}
	for doc, want := range map[string]string{
		`{"object":"list","data":[` + item + `],"has_more":false}`: "object",
		`{"data":[` + item + `],"object":"list"}`:                  "object",
		`{"data":[` + item + `]}`:                                  "input",
		`{"input":7}`:                                              "input",
		`{"input":"x","items":[` + item + `]}`:                     "items",
		`"x"`:                                                      "",
	} {
		_, err := DecodeDocument(Responses, false, []byte(doc), 0)
		if got := told(t, err); got != want {
			t.Errorf("%s: faults at %q, want %q", doc, got, want)
		}
	}
	lines, err := DecodeDocument(Responses, true, []byte(item+"\n"+item+"\n"), 0)
	if err != nil || len(lines.Messages) != 2 {
		t.Errorf("lines: %d messages, %v", len(lines.Messages), err)
	}
}

// checkResponsesItems wants what was decoded to come back, and to be decoded to the same again.
func checkResponsesItems(t check, msgs []history.Message) {
	t.Helper()
	checkNative(t, msgs)
	if len(msgs) == 0 {
		return
	}
	out := encode(Responses, msgs, ForExport)
	again, err := DecodeAppend(Responses, []byte(`{"messages":`+out+`}`), 0)
	if err != nil {
		t.Fatalf("the export cannot be decoded: %v\n%s", err, out)
	}
	// The order of members may have changed.
	got, want := encode(Native, again.Messages, ForExport), encode(Native, msgs, ForExport)
	if !reflect.DeepEqual(numbered(got), numbered(want)) {
		t.Fatalf("decoded again\n got %s\nwant %s\nfrom %s", got, want, out)
	}
}

// corpusItems are the items of all documents, in a fixed order.
func corpusItems(t testing.TB) []string {
	t.Helper()
	lists := corpus(t, Responses)
	if len(lists) < 60 {
		t.Fatalf("%d documents, want 60 at the least", len(lists))
	}
	var names, items []string
	for name := range lists {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		var list []json.RawMessage
		if err := json.Unmarshal([]byte(lists[name]), &list); err != nil {
			t.Fatal(err)
		}
		for _, item := range list {
			items = append(items, string(item))
		}
	}
	return items
}

func FuzzResponses(f *testing.F) {
	for _, item := range corpusItems(f) {
		f.Add([]byte(`{"messages":[` + item + `]}`))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		a, err := DecodeAppend(Responses, body, 1<<20)
		if err != nil {
			return
		}
		for i := range a.Messages {
			a.Messages[i].Model = ""
			if a.Messages[i].Role == history.Assistant {
				a.Messages[i].Provider = openAIProvider
			}
		}
		checkResponsesItems(t, a.Messages)
	})
}

// What the other formats hold can be taken in again from an export as items.
func TestExportsOfOtherFormatsAsItemsAreTakenIn(t *testing.T) {
	for _, f := range providerFormats() {
		for name, list := range corpus(t, f) {
			out := encode(Responses, decodeAppend(t, f, list), ForExport)
			if _, err := DecodeAppend(Responses, []byte(`{"messages":`+out+`}`), 0); err != nil {
				t.Errorf("%s of %s: %v\n%s", name, f, err, out)
			}
		}
	}
}
