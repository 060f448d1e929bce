package wire

import (
	"strings"
	"testing"

	"historyd/internal/history"
)

func TestAnthropicFaultsAreAllTold(t *testing.T) {
	block := func(b string) string { return `{"role":"user","content":[` + b + `]}` }
	answer := func(b string) string { return `{"role":"assistant","content":[` + b + `]}` }
	for _, tt := range []struct{ name, msg, want string }{
		{"not an object", `[]`, "messages[0]"},
		{"nothing", `{}`, "messages[0].role messages[0].content"},
		{"bad role", `{"role":"tool","content":"x"}`, "messages[0].role"},
		{"case variants", `{"role":"user","ROLE":"system","content":"x","Content":"y"}`, "messages[0].role! messages[0].content!"},
		{"no content", `{"role":"user"}`, "messages[0].content"},
		{"null content", `{"role":"assistant","content":null}`, "messages[0].content"},
		{"no blocks", block(``), "messages[0].content"},
		{"an answer in members", `{"role":"assistant","content":[],"0":{"type":"text","text":"x"}}`, "messages[0].content"},
		{"our mark", `{"role":"user","content":"x","anthropic":{"joined":true}}`, "messages[0]"},
		{"our mark in another case", `{"role":"user","content":"x","Anthropic":1}`, "messages[0].anthropic!"},

		{"block that is no object", block(`"x"`), "messages[0].content[0]"},
		{"block without a type", block(`{"text":"x"},{"Type":"text"}`), "messages[0].content[0].type messages[0].content[1].type!"},
		{"type that is no string", block(`{"type":1}`), "messages[0].content[0].type"},
		{"text without text", block(`{"type":"text"},{"type":"text","text":null},{"type":"text","text":"a","Text":"b"}`),
			"messages[0].content[0].text messages[0].content[1].text messages[0].content[2].text!"},
		{"image without a source", block(`{"type":"image"},{"type":"image","source":"x"},{"type":"image","source":{}}`),
			"messages[0].content[0].source messages[0].content[1].source messages[0].content[2].source.type"},
		{"image that is no base64", block(`{"type":"image","source":{"type":"base64","media_type":"image/png","data":"AAA"}}`), "messages[0].content[0].source.data"},
		{"image of nothing", block(`{"type":"image","source":{"type":"base64","media_type":"","data":""}}`),
			"messages[0].content[0].source.media_type messages[0].content[0].source.data"},
		{"image at a data URL", block(`{"type":"image","source":{"type":"url","url":"data:image/png;base64,AAAA"}}`), "messages[0].content[0].source.url"},
		{"image at no URL", block(`{"type":"image","source":{"type":"url"}}`), "messages[0].content[0].source.url"},
		{"image in a system message", `{"role":"system","content":[{"type":"image","source":{"type":"url","url":"https://e.example"}}]}`, "messages[0].content[0].type"},
		{"document of a number", block(`{"type":"document","source":{"type":"base64","media_type":"application/pdf","data":1}}`),
			"messages[0].content[0].source.data"},

		{"call of nothing", answer(`{"type":"tool_use"}`), "messages[0].content[0].id messages[0].content[0].name messages[0].content[0].input"},
		{"call with an empty id", answer(`{"type":"tool_use","id":"","name":"f","input":{}}`), "messages[0].content[0].id"},
		{"call with a long id", answer(`{"type":"tool_use","id":"` + strings.Repeat("x", 1025) + `","name":"f","input":{}}`), "messages[0].content[0].id"},
		{"input that is no object", answer(`{"type":"tool_use","id":"a","name":"f","input":"{}"},{"type":"tool_use","id":"b","name":"f","input":[]}`),
			"messages[0].content[0].input messages[0].content[1].input"},
		{"input in another case", answer(`{"type":"tool_use","id":"a","name":"f","input":{},"Input":{"a":1}}`), "messages[0].content[0].input!"},
		{"call of a user", block(`{"type":"tool_use","id":"a","name":"f","input":{}}`), "messages[0].content[0].type"},
		{"result of nothing", block(`{"type":"tool_result"}`), "messages[0].content[0].tool_use_id"},
		{"result of another type", block(`{"type":"tool_result","tool_use_id":"a","content":{"a":1},"is_error":"no"}`),
			"messages[0].content[0].content messages[0].content[0].is_error"},
		{"result of an assistant", answer(`{"type":"tool_result","tool_use_id":"a"}`), "messages[0].content[0].type"},
		{"result in a result", block(`{"type":"text","text":"x"},{"type":"tool_result","tool_use_id":"a","content":[{"type":"text","text":"x"},{"type":"tool_result","tool_use_id":"b"}]}`),
			"messages[0].content[1].content[1].type"},
		{"call in a result", block(`{"type":"tool_result","tool_use_id":"a","content":[{"type":"tool_use","id":"a","name":"f","input":{}}]}`),
			"messages[0].content[0].content[0].type"},
		{"thinking of a user", block(`{"type":"thinking","thinking":"x","signature":"s"},{"type":"redacted_thinking","data":"x"}`),
			"messages[0].content[0].type messages[0].content[1].type"},
		{"thinking of nothing", answer(`{"type":"thinking"},{"type":"thinking","thinking":"x","signature":1},{"type":"redacted_thinking"}`),
			"messages[0].content[0].thinking messages[0].content[1].signature messages[0].content[2].data"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, err := DecodeAppend(Anthropic, []byte(`{"messages":[`+tt.msg+`]}`), 0)
			if err == nil {
				t.Fatalf("%s is taken in", tt.msg)
			}
			if got := told(t, err); got != tt.want {
				t.Errorf("%s\n got faults at %q\nwant           %q", tt.msg, got, tt.want)
			}
		})
	}
}

// What a client's calls and results could hide in is refused wherever it could be kept unread.
func TestAnthropicRefusesHiddenTraffic(t *testing.T) {
	for _, tt := range []struct{ msg, want string }{
		{`{"role":"assistant","content":"x","tool_calls":[{"id":"c"}]}`, "messages[0]"},
		{`{"role":"user","content":"x","parts":[{"x":1}]}`, "messages[0]"},
		{`{"role":"user","content":[{"type":"text","text":"x","toolUse":{"a":1}}]}`, "messages[0].content[0]"},
		{`{"role":"user","content":[{"type":"Tool_Use","id":"a"},{"type":"tool-result"},{"type":"function_call"},{"type":"toolCall"}]}`,
			"messages[0].content[0] messages[0].content[1] messages[0].content[2] messages[0].content[3]"},
		{`{"role":"user","content":[{"type":"novel","content":[{"type":"tool_result"}]}]}`, "messages[0].content[0]"},
		{`{"role":"user","content":[{"type":"novel","functionResponse":{"a":1}}]}`, "messages[0].content[0]"},
		{`{"role":"user","content":[{"type":"document","source":{"type":"content","content":[{"type":"tool_use","id":"a"}]}}]}`, "messages[0].content[0]"},
		{`{"role":"user","content":[{"type":"image","source":{"type":"url","url":"https://e.example","parts":[1]}}]}`, "messages[0].content[0].source"},
		{`{"role":"assistant","content":[{"type":"tool_use","id":"a","name":"f","input":{},"function_call":{"name":"g"}}]}`, "messages[0].content[0]"},
		{`{"role":"user","content":[{"type":"tool_result","tool_use_id":"a","tool_results":[1]}]}`, "messages[0].content[0]"},
		{`{"role":"assistant","content":[{"type":"thinking","thinking":"x","tool_uses":[1]}]}`, "messages[0].content[0]"},
	} {
		_, err := DecodeAppend(Anthropic, []byte(`{"messages":[`+tt.msg+`]}`), 0)
		if err == nil {
			t.Errorf("%s is taken in", tt.msg)
		} else if got := told(t, err); got != tt.want {
			t.Errorf("%s: faults at %q, want %q", tt.msg, got, tt.want)
		}
	}
}

func TestAnthropicIsReadAsWhatItIs(t *testing.T) {
	for _, tt := range []struct{ in, native string }{
		{`{"role":"user","content":[{"type":"text","text":"a"},{"type":"tool_result","tool_use_id":"c","content":"r","is_error":true},{"type":"tool_result","tool_use_id":"d"},{"type":"text","text":"b"}]}`,
			`{"role":"user","kind":"user","status":"complete","content":[{"type":"text","text":"a"}],"extra":{"anthropic":{"list":true}}},` +
				`{"role":"tool","status":"complete","content":[{"type":"tool_result","call_id":"c","content":"r","is_error":true},` +
				`{"type":"tool_result","call_id":"d","content":[],"is_error":false}],"extra":{"anthropic":{"joined":true}}},` +
				`{"role":"user","kind":"user","status":"complete","content":[{"type":"text","text":"b"}],"extra":{"anthropic":{"joined":true}}}`},
		{`{"role":"assistant","model":"m","content":[{"type":"thinking","thinking":"t","signature":"s"},{"type":"redacted_thinking","data":"d"},{"type":"tool_use","id":"c","name":"f","input":{"b":1.0,"a":2},"caller":{"type":"direct"}}]}`,
			`{"role":"assistant","model":"m","provider":"anthropic","status":"complete","content":[{"type":"thinking","text":"t","signature":"s"},` +
				`{"type":"thinking","text":"","encrypted":"d"},{"type":"tool_call","id":"c","name":"f","arguments":{"b":1.0,"a":2},"extra":{"caller":{"type":"direct"}}}],"extra":{"model":"m"}}`},
		{`{"role":"user","content":[{"type":"document","title":"t","source":{"type":"text","media_type":"text/plain","data":"hello"},"context":"c"},{"type":"novel","x":1}]}`,
			`{"role":"user","kind":"user","status":"complete","content":[{"type":"document","media_type":"text/plain",` +
				`"attachment":"sha256:2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824","filename":"t","extra":{"context":"c"}},` +
				`{"type":"opaque","provider":"anthropic","data":{"type":"novel","x":1}}]}`},
		{`{"role":"system","content":"s"}`, `{"role":"system","status":"complete","content":[{"type":"text","text":"s"}]}`},
	} {
		msgs := decodeAppend(t, Anthropic, "["+tt.in+"]")
		if got := encode(Native, msgs, ForExport); got != "["+tt.native+"]" {
			t.Errorf("%s\n got %s\nwant [%s]", tt.in, got, tt.native)
		}
	}
}

// Extra comes from native clients and other formats, too: whatever is in it, the result
// means what the message means, and can be read again.
func TestAnthropicExportOfOthersMessages(t *testing.T) {
	for _, tt := range []struct {
		format   Format
		in, want string
	}{
		{Native, `{"role":"user","content":"x","extra":{"role":"assistant","content":[],"Role":"system","anthropic":{"list":true},"a":1}}`,
			`{"role":"user","a":1,"content":[{"type":"text","text":"x"}]}`},
		{Native, `{"role":"user","content":"x","extra":{"anthropic":{"joined":true,"empty":true}}}`, `{"role":"user","content":"x"}`},
		{Native, `{"role":"assistant","content":[{"type":"text","text":"x"}],"extra":{"anthropic":{"empty":true}}}`, `{"role":"assistant","content":"x"}`},
		{Native, `{"role":"tool","content":[{"type":"tool_result","call_id":"c","content":"x","is_error":true,"extra":{"is_error":false,"content":[],"tool_use_id":"d"}}]}`,
			`{"role":"user","content":[{"type":"tool_result","tool_use_id":"c","content":"x","is_error":true}]}`},
		{Native, `{"role":"assistant","content":[{"type":"thinking","text":"t","signature":"s","encrypted":"e"},{"type":"thinking","text":"u","extra":{"signature":"","data":1}}]}`,
			`{"role":"assistant","content":[{"type":"thinking","thinking":"t","signature":"s","encrypted":"e"},{"type":"thinking","thinking":"u","signature":"","data":1}]}`},
		{Native, `{"role":"assistant","content":[{"type":"tool_call","id":"c","name":"f","arguments_text":"{\"a\"","extra":{"input":{}}},{"type":"tool_call","id":"d","name":"f","arguments":[1]}]}`,
			`{"role":"assistant","content":[{"type":"tool_use","id":"c","name":"f","input":{"_arguments":"{\"a\""}},{"type":"tool_use","id":"d","name":"f","input":{"_arguments":"[1]"}}]}`},
		{Native, `{"role":"user","content":[{"type":"image","attachment":"sha256:` + strings.Repeat("0", 64) + `","media_type":"image/png"},{"type":"audio","data":"AAAA"},{"type":"opaque","provider":"openai","data":{"type":"file"}}]}`,
			`{"role":"user","content":[{"type":"image","source":{"type":"attachment","attachment":"sha256:` + strings.Repeat("0", 64) + `","media_type":"image/png"}},` +
				`{"type":"audio","source":{"type":"base64","data":"AAAA"}},{"type":"opaque","provider":"openai","data":{"type":"file"}}]}`},
		{OpenAI, `{"role":"assistant","content":null,"tool_calls":[{"id":"c","type":"function","function":{"name":"f","arguments":"{\"a\":1}"}}]},{"role":"tool","tool_call_id":"c","content":"r"}`,
			`{"role":"assistant","content":[{"type":"tool_use","id":"c","name":"f","input":{"a":1}}]},{"role":"user","content":[{"type":"tool_result","tool_use_id":"c","content":"r"}]}`},
		{OpenAI, `{"role":"assistant","content":null,"function_call":{"name":"f","arguments":"{}","x":true}}`,
			`{"role":"assistant","content":[{"type":"tool_use","id":"function_call","name":"f","input":{}}]}`},
	} {
		got := encode(Anthropic, decodeAppend(t, tt.format, "["+tt.in+"]"), ForExport)
		if got != "["+tt.want+"]" {
			t.Errorf("%s\n got %s\nwant [%s]", tt.in, got, tt.want)
		}
		decodeAppend(t, Anthropic, got)
	}
}

func TestAnthropicToolNames(t *testing.T) {
	got, err := ToolNames(Anthropic, []byte(`[{"name":"f","input_schema":{"type":"object"}},{"type":"web_search_20250305","name":"web_search","max_uses":5},{"type":"mcp_toolset","mcp_server_name":"s"}]`))
	if err != nil || strings.Join(got, " ") != "f web_search" {
		t.Errorf("names %q, %v", got, err)
	}
	_, err = ToolNames(Anthropic, []byte(`[{"type":"custom"},{},"x",{"type":"function","function":{"name":"f"}}]`))
	if err == nil || told(t, err) != "tools[0] tools[1] tools[2]" {
		t.Errorf("bad tools: %v", err)
	}
}

func FuzzAnthropic(f *testing.F) {
	for _, list := range corpus(f, Anthropic) {
		f.Add([]byte(list))
	}
	f.Fuzz(func(t *testing.T, list []byte) {
		a, err := DecodeAppend(Anthropic, []byte(`{"messages":`+string(list)+`}`), 1<<20)
		if err != nil {
			return
		}
		out := encode(Anthropic, throughNative(t, a.Messages), ForExport)
		sameJSON(t, out, string(list))
		for i := range a.Messages {
			if _, err := history.ParseStored(history.AppendMessage(nil, &a.Messages[i])); err != nil {
				t.Fatalf("stored form: %v", err)
			}
		}
		again := decodeAppend(t, Anthropic, out)
		if got, want := encode(Native, again, ForExport), encode(Native, a.Messages, ForExport); got != want {
			t.Fatalf("decoded again\n got %s\nwant %s", got, want)
		}
	})
}
