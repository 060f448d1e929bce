package wire

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"historyd/internal/history"
	"historyd/test/samples"
)

func TestOpenAIFaultsAreAllTold(t *testing.T) {
	call := func(item string) string { return `{"role":"assistant","tool_calls":[` + item + `]}` }
	part := func(p string) string { return `{"role":"user","content":[` + p + `]}` }
	for _, tt := range []struct{ name, msg, want string }{
		{"not an object", `[]`, "messages[0]"},
		{"nothing", `{}`, "messages[0].role"},
		{"bad role", `{"role":"king","content":"x"}`, "messages[0].role"},
		{"role in another case", `{"role":"User","content":"x"}`, "messages[0].role"},
		{"case variants", `{"role":"user","ROLE":"system","content":"x","\u212aind":1,"Tool_calls":[],"contenT":"y"}`,
			"messages[0].role! messages[0].tool_calls! messages[0].content!"},
		{"no content", `{"role":"user"}`, "messages[0].content"},
		{"null content", `{"role":"user","content":null}`, "messages[0].content"},
		{"empty content", `{"role":"system","content":[]}`, "messages[0].content"},
		{"content of another type", `{"role":"developer","content":{"a":1}}`, "messages[0].content"},
		{"numeric members", `{"role":"assistant","content":[],"0":{"type":"text"}}`, "messages[0].content"},
		{"numeric members beside null", `{"role":"assistant","content":null,"0":{"type":"text"}}`, "messages[0].content"},
		{"words where nobody looks for them", `{"role":"assistant","contents":"x"}`, "messages[0].content"},
		{"name", `{"role":"user","content":"x","name":{}}`, "messages[0].name"},
		{"calls of a user", `{"role":"user","content":"x","tool_calls":[{"id":"c"}],"function_call":{},"refusal":"r","audio":{},"tool_call_id":"c"}`,
			"messages[0].tool_calls messages[0].function_call messages[0].refusal messages[0].audio messages[0].tool_call_id"},
		{"wrong types", `{"role":"assistant","content":5,"tool_calls":{},"function_call":"f","refusal":1,"audio":"a"}`,
			"messages[0].content messages[0].refusal messages[0].audio messages[0].tool_calls messages[0].function_call"},
		{"an answer to a call by the assistant", `{"role":"assistant","content":"x","tool_call_id":"c"}`, "messages[0].tool_call_id"},

		{"result without anything", `{"role":"tool"}`, "messages[0].tool_call_id messages[0].content"},
		{"result of null", `{"role":"tool","tool_call_id":null,"content":null}`, "messages[0].tool_call_id messages[0].content"},
		{"empty id", `{"role":"tool","tool_call_id":"","content":"x"}`, "messages[0].tool_call_id"},
		{"long id", `{"role":"tool","tool_call_id":"` + strings.Repeat("x", 1025) + `","content":"x"}`, "messages[0].tool_call_id"},
		{"calls in a result", `{"role":"tool","tool_call_id":"c","content":"x","tool_calls":[{}]}`, "messages[0].tool_calls"},
		{"function without a name", `{"role":"function","content":"x","name":null}`, "messages[0].name"},
		{"function without content", `{"role":"function","name":"f"}`, "messages[0].content"},

		{"call that is no object", call(`"x"`), "messages[0].tool_calls[0]"},
		{"call of nothing", call(`{}`), "messages[0].tool_calls[0].type messages[0].tool_calls[0].id"},
		{"call without a function", call(`{"id":"c","type":"function"}`), "messages[0].tool_calls[0].function"},
		{"arguments as an object", call(`{"id":"c","type":"function","function":{"name":"f","arguments":{"a":1}}}`), "messages[0].tool_calls[0].function.arguments"},
		{"function of nothing", call(`{"id":1,"type":"function","function":{}}`),
			"messages[0].tool_calls[0].id messages[0].tool_calls[0].function.name messages[0].tool_calls[0].function.arguments"},
		{"custom without input", call(`{"id":"c","type":"custom","custom":{"name":"f","arguments":"x"}}`), "messages[0].tool_calls[0].custom.input"},
		{"variants in a call", call(`{"id":"c","ID":"d","type":"function","function":{"name":"f","arguments":"","Arguments":"x"}}`),
			"messages[0].tool_calls[0].id! messages[0].tool_calls[0].function.arguments!"},
		{"arguments beside the function", call(`{"id":"c","type":"function","function":{"name":"f","arguments":""},"custom":{"input":"x"},"function_call":{"arguments":"x"}}`),
			"messages[0].tool_calls[0].custom messages[0].tool_calls[0].function_call"},
		{"type null", call(`{"id":"c","type":null,"function":{"name":"f","arguments":""}}`), "messages[0].tool_calls[0].type"},
		{"function_call of nothing", `{"role":"assistant","function_call":{}}`, "messages[0].function_call.name messages[0].function_call.arguments"},

		{"part that is no object", part(`"x"`), "messages[0].content[0]"},
		{"part without a type", part(`{"text":"x"},{"Type":"text"}`), "messages[0].content[0].type messages[0].content[1].type!"},
		{"part of a type that is no string", part(`{"type":1}`), "messages[0].content[0].type"},
		{"text without text", part(`{"type":"text"},{"type":"text","text":null}`), "messages[0].content[0].text messages[0].content[1].text"},
		{"text in another case", part(`{"type":"text","text":"a","Text":"b"}`), "messages[0].content[0].text!"},
		{"image", part(`{"type":"image_url"},{"type":"image_url","image_url":"https://e.example"},{"type":"image_url","image_url":{"URL":"x"}}`),
			"messages[0].content[0].image_url messages[0].content[1].image_url messages[0].content[2].image_url.url! messages[0].content[2].image_url.url"},
		{"inline images of another spelling", part(`{"type":"image_url","image_url":{"url":"data:image/png;base64,AA A"}},{"type":"image_url","image_url":{"url":" DATA:,x"}}`),
			"messages[0].content[0].image_url.url messages[0].content[1].image_url.url"},
		{"inline sounds and files of another spelling", part(`{"type":"input_audio","input_audio":{"data":"A","format":"wav"}},{"type":"input_audio","input_audio":{"format":"wav"}},` +
			`{"type":"input_audio","input_audio":[]},{"type":"file","file":{"file_data":""}},{"type":"file","file":{"File_Data":"AAAA"}},{"type":"file","file":{"file_data":"data:;base64,AAAA"}},{"type":"file","file":{"file_data":7}}`),
			"messages[0].content[0].input_audio.data messages[0].content[1].input_audio.data messages[0].content[2].input_audio messages[0].content[3].file.file_data " +
				"messages[0].content[4].file.file_data! messages[0].content[5].file.file_data messages[0].content[6].file.file_data"},
		{"sound of an answer", `{"role":"assistant","audio":{"id":"a","data":"A","Data":"AAAA"}}`, "messages[0].audio.data messages[0].audio.data!"},
		{"a name of ours", `{"role":"assistant","content":[{"type":"image_url","image_url":{"url":"https://e.example"},"member":"images"}],"images":[{"type":"image_url","image_url":{"url":"data:x"},"member":1}]}`,
			"messages[0].content[0].member messages[0].images[0].image_url.url messages[0].images[0].member"},
		{"image in a system message", `{"role":"system","content":[{"type":"text","text":"a"},{"type":"image_url","image_url":{"url":"https://e.example"}}]}`, "messages[0].content[1].type"},
		{"refusal", `{"role":"assistant","content":[{"type":"refusal","refusal":1}]}`, "messages[0].content[0].refusal"},
		{"calls and results among the parts", part(`{"type":"tool_use"},{"type":"tool-result"},{"type":"functionCall"},{"type":"mcp_call"},{"type":"tool_call"}`),
			"messages[0].content[0].type messages[0].content[1].type messages[0].content[2].type messages[0].content[3].type messages[0].content[4].type"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, err := DecodeAppend(OpenAI, []byte(`{"messages":[`+tt.msg+`]}`), 0)
			if err == nil {
				t.Fatalf("%s is taken in", tt.msg)
			}
			if got := told(t, err); got != tt.want {
				t.Errorf("%s\n got faults at %q\nwant           %q", tt.msg, got, tt.want)
			}
		})
	}
}

func TestOpenAIMessagesComeBackAsTheyWere(t *testing.T) {
	for _, msg := range []string{
		`{"role":"user","content":"a && b < c \u0000 \ud83c\udf89","name":"ann"}`,
		`{"role":"developer","content":[{"type":"text","text":"a"},{"type":"text","text":""}],"name":"x"}`,
		`{"role":"system","content":""}`,
		`{"role":"user","content":[{"type":"text","text":"a","prompt_cache_breakpoint":{"type":"x"}}],"tool_calls":null,"tool_call_id":null}`,
		`{"role":"user","content":[{"type":"text","text":"a"},{"type":"image_url","image_url":{"url":"https://e.example/x","detail":"low","x":1.0},"y":[1e400]},
			{"type":"file","file":{"file_id":"file-1"}},{"type":"video_url","video_url":{"url":"https://e.example/v"},"TYPE2":null}]}`,
		`{"role":"assistant","content":"x","refusal":null,"annotations":[],"audio":null,"tool_calls":[],"function_call":null,"reasoning_content":"r","usage":{"a":1}}`,
		`{"role":"assistant","content":null,"refusal":"no"}`,
		`{"role":"assistant","content":"x","refusal":"no","audio":{"id":"a","transcript":"t"}}`,
		`{"role":"assistant","content":null,"audio":{"id":"a"}}`,
		`{"role":"assistant","content":[{"type":"refusal","refusal":"no"}],"refusal":"no","member":"refusal"}`,
		`{"role":"assistant","content":null,"tool_calls":[
			{"id":"c","index":0,"type":"function","function":{"name":"f","arguments":" {\"id\":2512292042121000001,\"x\":1.0,\"y\":1e400}\n","strict":true},"extra_content":{"google":{"thought_signature":"AP/Y"}}},
			{"id":"c","type":"function","function":{"name":"","arguments":""},"custom":null},
			{"id":"d","type":"custom","custom":{"name":"g","input":"{\"a\":1}","x":1},"function":null,"function_call":null},
			{"id":"e","type":"custom","custom":{"name":"g","input":"rm -rf <&>"}},
			{"id":"f","type":"mcp","mcp":{"name":"pay","arguments":{"a":[1.0]}},"name":null},
			{"id":"g","type":"function_call","name":"h","arguments":"{}"},
			{"id":"function_call","type":"function","function":{"name":"f","arguments":"{"},"member":"refusal"},
			{"id":"h","type":"empty"}]}`,
		`{"role":"assistant","content":"","function_call":{"name":"f","arguments":"{}","x":1},"tool_calls":[{"id":"c","type":"function","function":{"name":"f","arguments":"null"}}]}`,
		`{"role":"function","name":"f","content":"x"}`,
		`{"role":"function","name":"f","content":null,"tool_call_id":null}`,
		`{"role":"tool","tool_call_id":"c","name":"f","content":""}`,
		`{"role":"tool","tool_call_id":"c","content":[{"type":"text","text":"x"}]}`,
		`{"role":"tool","tool_call_id":"c","content":[],"tool_calls":[],"isApiErrorMessage":true}`,
		`{"role":"tool","tool_call_id":"c","content":[{"type":"text","text":"x","a":1},{"type":"image_url","image_url":{"url":"https://e.example"}}],"ARTIFACT":{"a":{}}}`,
	} {
		sameJSON(t, encode(OpenAI, decodeAppend(t, OpenAI, "["+msg+"]"), ForExport), "["+msg+"]")
	}
}

func TestWhatMeansTheSameIsWrittenInOneWay(t *testing.T) {
	for _, tt := range []struct{ in, out string }{
		{`{"role":"user","content":[{"type":"text","text":"x"}]}`, `{"role":"user","content":"x"}`},
		{`{"tool_calls":[{"function":{"arguments":"{}","name":"f"},"id":"c"}],"role":"assistant"}`,
			`{"role":"assistant","content":null,"tool_calls":[{"id":"c","type":"function","function":{"name":"f","arguments":"{}"}}]}`},
		{`{"role":"assistant","content":[],"tool_calls":[{"id":"c","type":"function","function":{"name":"f","arguments":"{}"}}]}`,
			`{"role":"assistant","content":null,"tool_calls":[{"id":"c","type":"function","function":{"name":"f","arguments":"{}"}}]}`},
	} {
		if got := encode(OpenAI, decodeAppend(t, OpenAI, "["+tt.in+"]"), ForExport); got != "["+tt.out+"]" {
			t.Errorf("%s\n got %s\nwant [%s]", tt.in, got, tt.out)
		}
	}
}

// Where a call of a type unknown here names its tool nobody knows, and a wrong guess
// would let it pass by a rule.
func TestACallOfAnyTypeIsACallWithoutAName(t *testing.T) {
	for _, tt := range []struct{ item, arguments string }{
		{`{"id":"c","type":"mcp","mcp":{"name":"pay","to":"x"}}`, `{"mcp":{"name":"pay","to":"x"}}`},
		{`{"id":"c","type":"mcp","name":"open","function":{"name":"pay"}}`, `{"name":"open","function":{"name":"pay"}}`},
		{`{"id":"c","type":"web_search","query":"q"}`, `{"query":"q"}`},
		{`{"id":"c","type":"Function","Function":null,"x":{"name":"pay"}}`, ""},
		{`{"id":"c","type":"shell"}`, `{}`},
	} {
		a, err := DecodeAppend(OpenAI, []byte(`{"messages":[{"role":"assistant","tool_calls":[`+tt.item+`]}]}`), 0)
		if err != nil {
			if tt.arguments != "" {
				t.Errorf("%s: %v", tt.item, err)
			}
			continue
		}
		msgs := a.Messages
		b := msgs[0].Content[0]
		if b.Type != history.ToolCall || b.Name != "" || string(b.Arguments) != tt.arguments {
			t.Errorf("%s: %s %q with %s, want a call without a name with %s", tt.item, b.Type, b.Name, b.Arguments, tt.arguments)
		}
		// What stands in place of withheld arguments goes where every client looks for arguments.
		b.Arguments, b.Redacted = history.WithheldArguments("wallet"), &history.Redaction{Category: "wallet", Reason: "r"}
		msgs[0].Content = []history.Block{b}
		for p, name := range map[Purpose]string{ForModel: "unnamed_e3b0c44298fc1c149afbf4c8996fb924", ForExport: ""} {
			want := `[{"role":"assistant","content":null,"tool_calls":[{"id":"c","type":"function","function":{"name":"` + name +
				`","arguments":"{\"_withheld\":\"wallet\"}"}}]}]`
			if got := encode(OpenAI, msgs, p); got != want {
				t.Errorf("withheld: got %s\nwant %s", got, want)
			}
		}
	}
}

// What other formats carry calls in is refused wherever it could be kept unread.
func TestUnknownMembersThatCarryCallsAreRefused(t *testing.T) {
	for _, tt := range []struct{ msg, want string }{
		{`{"role":"assistant","content":"x","toolCalls":[{"x":1}]}`, "messages[0]"},
		{`{"role":"user","content":"x","TOOL-USES":1}`, "messages[0]"},
		{`{"role":"assistant","content":"x","additional_kwargs":{"a":1,"tool_calls":[{}]}}`, "messages[0]"},
		{`{"role":"tool","tool_call_id":"c","content":"x","function_response":{"a":1}}`, "messages[0]"},
		{`{"role":"user","content":[{"type":"text","text":"x","tool_calls":[1]}]}`, "messages[0].content[0]"},
		{`{"role":"user","content":[{"type":"image_url","image_url":{"url":"https://e.example","parts":[1]},"toolUse":1}]}`,
			"messages[0].content[0] messages[0].content[0].image_url"},
		{`{"role":"user","content":[{"type":"x","functionCall":{"name":"f"}}]}`, "messages[0].content[0]"},
		{`{"role":"user","content":[{"type":"x","content":[{"type":"tool_use"}]}]}`, "messages[0].content[0]"},
		{`{"role":"assistant","tool_calls":[{"id":"c","type":"function","function":{"name":"f","arguments":"","tool_calls":[1]},"tool_use":{"a":1}}]}`,
			"messages[0].tool_calls[0] messages[0].tool_calls[0].function"},
		{`{"role":"assistant","function_call":{"name":"f","arguments":"","tool_calls":[1]}}`, "messages[0].function_call"},
	} {
		_, err := DecodeAppend(OpenAI, []byte(`{"messages":[`+tt.msg+`]}`), 0)
		if err == nil {
			t.Errorf("%s is taken in", tt.msg)
		} else if got := told(t, err); got != tt.want {
			t.Errorf("%s: faults at %q, want %q", tt.msg, got, tt.want)
		}
	}
	silent := `[{"role":"assistant","content":[{"type":"text","text":"x","tool_use":null},{"type":"x","tool_calls":[]}],"toolCalls":[],"additional_kwargs":{"tool_calls":[],"a":1},"parts":""}]`
	sameJSON(t, encode(OpenAI, decodeAppend(t, OpenAI, silent), ForExport), silent)
}

// Extra comes from native clients, too: whatever is in it, the result is strict
// JSON and means what the message means.
func TestNoExtraChangesWhatAMessageSays(t *testing.T) {
	for _, tt := range []struct{ native, want string }{
		{`{"role":"user","content":"x","extra":{"role":"developer","content":"y","Role":"system","NAME":1,"name":5,"a":1}}`,
			`{"role":"user","content":"x","a":1}`},
		{`{"role":"system","content":"x","extra":{"role":"assistant"}}`, `{"role":"system","content":"x"}`},
		{`{"role":"tool","content":[{"type":"tool_result","call_id":"c","content":"x"}],"extra":{"role":"function","name":"f","tool_call_id":null}}`,
			`{"role":"tool","content":"x","tool_call_id":"c","name":"f"}`},
		{`{"role":"assistant","content":[{"type":"tool_call","id":"c","name":"f","arguments":{"a":1},"extra":{"id":"d","type":"function","function":{"name":"g","Arguments":"x","z":1},"custom":{"input":"x"},"function_call":{},"index":0}}]}`,
			`{"role":"assistant","content":null,"tool_calls":[{"id":"c","type":"function","function":{"name":"f","arguments":"{\"a\":1}","z":1},"index":0}]}`},
		{`{"role":"assistant","content":[{"type":"tool_call","id":"c","name":"f","arguments":{"ID":"d"},"extra":{"type":"mcp"}}]}`,
			`{"role":"assistant","content":null,"tool_calls":[{"id":"c","type":"function","function":{"name":"f","arguments":"{\"ID\":\"d\"}"}}]}`},
		{`{"role":"user","content":[{"type":"image","url":"https://e.example","extra":{"type":"text","image_url":{"url":"x","Url":"y","detail":"low"}}}]}`,
			`{"role":"user","content":[{"type":"image_url","image_url":{"url":"https://e.example","detail":"low"}}]}`},
		{`{"role":"user","content":[{"type":"opaque","provider":"openai","data":{"type":"refusal","refusal":"x"},"extra":{"member":"refusal"}}]}`,
			`{"role":"user","content":[{"type":"refusal","refusal":"x"}]}`},
	} {
		if got := encode(OpenAI, decodeAppend(t, Native, "["+tt.native+"]"), ForExport); got != "["+tt.want+"]" {
			t.Errorf("%s\n got %s\nwant [%s]", tt.native, got, tt.want)
		}
	}
}

// conversations are the sample conversations as they are taken in.
func conversations(t *testing.T) [][]history.Message {
	t.Helper()
	var all [][]history.Message
	for i, line := range samples.Need(t) {
		doc, err := DecodeDocument(OpenAI, false, line, 0)
		if err != nil {
			t.Fatalf("conversation %d: %v", i, err)
		}
		all = append(all, doc.Messages)
	}
	if len(all) != 150 {
		t.Errorf("%d conversations, want 150", len(all))
	}
	return all
}

func TestRealConversationsComeBackAsTheyWere(t *testing.T) {
	type message struct {
		ToolCalls []struct {
			Function struct{ Arguments string }
		} `json:"tool_calls"`
	}
	lines := samples.Need(t)
	for n, msgs := range conversations(t) {
		var given struct {
			Conversation string
			Messages     json.RawMessage
		}
		if err := json.Unmarshal(lines[n], &given); err != nil {
			t.Fatal(err)
		}
		out := encode(OpenAI, msgs, ForExport)
		sameJSON(t, out, string(given.Messages))
		var was, is []message
		if err := errors.Join(json.Unmarshal(given.Messages, &was), json.Unmarshal([]byte(out), &is)); err != nil {
			t.Fatal(err)
		}
		for i := range was {
			for j, call := range was[i].ToolCalls {
				if got, want := is[i].ToolCalls[j].Function.Arguments, call.Function.Arguments; got != want {
					t.Errorf("%s, message %d: arguments %q, want %q", given.Conversation, i, got, want)
				}
			}
		}
		checkNative(t, msgs)
	}
}

func TestAPartOfAnotherFormatNamesThatFormat(t *testing.T) {
	for _, tt := range []struct{ kind, want string }{
		{"tool_use", "name it with the parameter format (anthropic)"},
		{"function_call_output", "name it with the parameter format (responses)"},
		{"a_tool", "not among the parts"},
	} {
		_, err := DecodeAppend(OpenAI, []byte(`{"messages":[{"role":"assistant","content":[{"type":"`+tt.kind+`"}]}]}`), 0)
		if err == nil || !strings.HasSuffix(err.Error(), tt.want) {
			t.Errorf("a part %s: got %v, want an error that ends with %q", tt.kind, err, tt.want)
		}
	}
}
