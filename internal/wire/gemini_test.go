package wire

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"historyd/internal/history"
	"historyd/internal/projection"
)

func TestGeminiFaultsAreTold(t *testing.T) {
	user := func(part string) string { return `{"role":"user","parts":[` + part + `]}` }
	model := func(part string) string { return `{"role":"model","parts":[` + part + `]}` }
	for _, tt := range []struct{ name, content, want string }{
		{"no object", `"x"`, "messages[0]"},
		{"an unknown role", `{"role":"system","parts":[{"text":"x"}]}`, "messages[0].role"},
		{"a role in another case", `{"Role":"user","parts":[{"text":"x"}]}`, "messages[0].role!"},
		{"a role that is no text", `{"role":1,"parts":[{"text":"x"}]}`, "messages[0].role"},
		{"no parts of the user's", `{"role":"user"}`, "messages[0].parts"},
		{"an empty list of parts", `{"role":"function","parts":[]}`, "messages[0].parts"},
		{"parts that are no list", `{"parts":{"text":"x"}}`, "messages[0].parts"},
		{"an answer in members", `{"role":"model","parts":[],"0":{"text":"x"}}`, "messages[0].parts"},
		{"an answer in members, without parts", `{"0":{"text":"x"}}`, "messages[0].parts"},
		{"a part that is no object", user(`"x"`), "messages[0].parts[0]"},
		{"two kinds of data", user(`{"text":"x","fileData":{"fileUri":"gs://x"}}`), "messages[0].parts[0].fileData"},
		{"two kinds of data, one empty", model(`{"text":"","functionCall":{"name":"f"}}`), "messages[0].parts[0].functionCall"},
		{"a text that is none", user(`{"text":1}`), "messages[0].parts[0].text"},
		{"a member in another case", user(`{"Text":"x"}`), "messages[0].parts[0].text!"},
		{"a member with a dash", model(`{"function-call":{"name":"f"}}`), "messages[0].parts[0].functionCall!"},
		{"half snake, half camel", model(`{"function_Call":{"name":"f"}}`), "messages[0].parts[0].functionCall!"},
		{"both spellings", model(`{"functionCall":{"name":"f"},"function_call":null}`), "messages[0].parts[0].functionCall!"},
		{"both spellings inside", user(`{"inlineData":{"mimeType":"a/b","mime_type":"a/b","data":"AAAA"}}`), "messages[0].parts[0].inlineData.mimeType!"},
		{"a thinking user", user(`{"text":"x","thought":true}`), "messages[0].parts[0].thought"},
		{"a thought that is no flag", model(`{"text":"x","thought":"yes"}`), "messages[0].parts[0].thought"},
		{"a signature that is no base64", model(`{"text":"x","thoughtSignature":"*"}`), "messages[0].parts[0].thoughtSignature"},
		{"a signature that is no text", model(`{"text":"x","thoughtSignature":[1]}`), "messages[0].parts[0].thoughtSignature"},
		{"a call of the user", user(`{"functionCall":{"name":"f"}}`), "messages[0].parts[0].functionCall"},
		{"a call that is no object", model(`{"functionCall":"f"}`), "messages[0].parts[0].functionCall"},
		{"a call of nothing", model(`{"functionCall":{"args":{}}}`), "messages[0].parts[0].functionCall.name"},
		{"a call with an odd name", model(`{"functionCall":{"name":null}}`), "messages[0].parts[0].functionCall.name"},
		{"a call with an odd id", model(`{"functionCall":{"id":7,"name":"f"}}`), "messages[0].parts[0].functionCall.id"},
		{"a call with a long id", model(`{"functionCall":{"id":"` + strings.Repeat("x", maxID+1) + `","name":"f"}}`), "messages[0].parts[0].functionCall.id"},
		{"arguments as text", model(`{"functionCall":{"name":"f","args":"{}"}}`), "messages[0].parts[0].functionCall.args"},
		{"arguments in pieces", model(`{"functionCall":{"name":"f","partialArgs":[{"jsonPath":"$.a","stringValue":"s"}]}}`), "messages[0].parts[0].functionCall.partialArgs"},
		{"a result of the model", model(`{"functionResponse":{"name":"f","response":{}}}`), "messages[0].parts[0].functionResponse"},
		{"a result that is no object", user(`{"functionResponse":[]}`), "messages[0].parts[0].functionResponse"},
		{"a result of nothing", user(`{"functionResponse":{"response":{}}}`), "messages[0].parts[0].functionResponse.name"},
		{"a response that nests too deep", user(`{"functionResponse":{"name":"f","response":` + strings.Repeat("[", 60) + strings.Repeat("]", 60) + `}}`), "messages[0].parts[0].functionResponse.response"},
		{"a result with odd parts", user(`{"functionResponse":{"name":"f","parts":{}}}`), "messages[0].parts[0].functionResponse.parts"},
		{"a result with an odd part", user(`{"functionResponse":{"name":"f","parts":[1]}}`), "messages[0].parts[0].functionResponse.parts[0]"},
		{"a result with a call in it", user(`{"functionResponse":{"name":"f","parts":[{"functionCall":{"name":"g"}}]}}`), "messages[0].parts[0].functionResponse.parts[0]"},
		{"data of nothing", user(`{"inlineData":{"mimeType":"image/png","data":""}}`), "messages[0].parts[0].inlineData.data messages[0].parts[0].inlineData.data"},
		{"data that is no base64", user(`{"inlineData":{"mimeType":"image/png","data":"a"}}`), "messages[0].parts[0].inlineData.data"},
		{"no data", user(`{"inlineData":{"mimeType":"image/png"}}`), "messages[0].parts[0].inlineData.data"},
		{"data that is no object", user(`{"inlineData":"AAAA"}`), "messages[0].parts[0].inlineData"},
		{"no address", user(`{"fileData":{"mimeType":"image/png"}}`), "messages[0].parts[0].fileData.fileUri"},
		{"an address of data", user(`{"fileData":{"fileUri":"data:image/png;base64,AAAA"}}`), "messages[0].parts[0].fileData.fileUri"},
		{"code that is no object", model(`{"executableCode":"x"}`), "messages[0].parts[0].executableCode"},
		{"calls of another format", model(`{"text":"x","tool_calls":[{"id":"c"}]}`), "messages[0].parts[0]"},
		{"calls of another format in a part", model(`{"tool_use":{"id":"c"}}`), "messages[0].parts[0]"},
		{"calls of another format as a part", user(`{"type":"tool_result","content":"x"}`), "messages[0].parts[0]"},
		{"calls beside a call", model(`{"functionCall":{"name":"f","tool_calls":[1]}}`), "messages[0].parts[0].functionCall"},
		{"calls in a content", `{"role":"model","function_call":{"name":"f"},"parts":[{"text":"x"}]}`, "messages[0]"},
		{"our mark in a content", `{"role":"user","_gemini":{"more":true},"parts":[{"text":"x"}]}`, "messages[0]"},
		{"our mark in a part", model(`{"functionCall":{"name":"f"},"_gemini":{"id":false}}`), "messages[0].parts[0]"},
		{"our name of a server's call", model(`{"serverToolCall":{"toolType":"x"}}`), "messages[0].parts[0]"},
		{"our name for a tool in a result", user(`{"functionResponse":{"name":"f","response":{}},"name":"g"}`), "messages[0].parts[0]"},
		{"a deep response", user(`{"functionResponse":{"name":"f","response":{"a":` + strings.Repeat("[", 59) + strings.Repeat("]", 59) + `}}}`), "messages[0].parts[0].functionResponse.response"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, err := DecodeDocument(Gemini, true, []byte(tt.content), 0)
			if err == nil {
				t.Fatalf("%s is taken in", tt.content)
			}
			if got := told(t, err); got != tt.want {
				t.Errorf("%s\n got %s\nwant %s", tt.content, got, tt.want)
			}
			if strings.Contains(err.Error(), "stringValue") {
				t.Errorf("the error holds what was sent: %v", err)
			}
		})
	}
}

// Python's library writes names in snake_case, and null for all that is not there. What
// stands there is read as what it is; the null members come back under camelCase names.
func TestGeminiReadsSnakeCase(t *testing.T) {
	for _, tt := range []struct{ snake, camel string }{
		{`{"role":"model","parts":[{"function_call":{"name":"f","args":{"some_arg":1}},"thought_signature":"AP_Y"}]}`,
			`{"role":"model","parts":[{"functionCall":{"name":"f","args":{"some_arg":1}},"thoughtSignature":"AP_Y"}]}`},
		{`{"parts":[{"function_response":{"name":"f","response":{"a_b":1},"will_continue":null}}]}`,
			`{"parts":[{"functionResponse":{"name":"f","response":{"a_b":1},"willContinue":null}}]}`},
		{`{"role":"user","parts":[{"inline_data":{"mime_type":"image/png","data":"__79","display_name":"x"},"file_data":null,"video_metadata":{"start_offset":"1s"}}]}`,
			`{"role":"user","parts":[{"inlineData":{"mimeType":"image/png","data":"//79","displayName":"x"},"fileData":null,"videoMetadata":{"start_offset":"1s"}}]}`},
		{`{"role":"user","parts":[{"file_data":{"mime_type":"image/png","file_uri":"gs://x"}}]}`,
			`{"role":"user","parts":[{"fileData":{"mimeType":"image/png","fileUri":"gs://x"}}]}`},
		{`{"role":"model","parts":[{"executable_code":{"language":"PYTHON","code":"x"}},{"code_execution_result":{"outcome":"OUTCOME_OK"}},{"tool_call":{"tool_type":"T","args":{"a_b":1}}},{"tool_response":{"tool_type":"T"}}]}`,
			`{"role":"model","parts":[{"executableCode":{"language":"PYTHON","code":"x"}},{"codeExecutionResult":{"outcome":"OUTCOME_OK"}},{"toolCall":{"toolType":"T","args":{"a_b":1}}},{"toolResponse":{"toolType":"T"}}]}`},
	} {
		msgs := throughNative(t, decodeAppend(t, Gemini, "["+tt.snake+"]"))
		sameJSON(t, encode(Gemini, msgs, ForExport), "["+tt.camel+"]")
	}
}

// shape lists messages as role and blocks, calls and results with their ids.
func shape(msgs []history.Message) string {
	var list []string
	for i := range msgs {
		s := string(msgs[i].Role) + ":"
		for _, b := range msgs[i].Content {
			s += " " + string(b.Type) + b.ID + b.CallID
		}
		list = append(list, s)
	}
	return strings.Join(list, ", ")
}

func TestGeminiPairsCallsWithoutIDs(t *testing.T) {
	call := func(name string) string { return `{"functionCall":{"name":"` + name + `"}}` }
	answer := func(name string) string {
		return `{"functionResponse":{"name":"` + name + `","response":{"result":"x"}}}`
	}
	model := func(parts ...string) string { return `{"role":"model","parts":[` + strings.Join(parts, ",") + `]}` }
	user := func(parts ...string) string { return `{"parts":[` + strings.Join(parts, ",") + `]}` }
	const called, result = "assistant: tool_callgemini_0_f tool_callgemini_0_g tool_callgemini_1_f", "tool: tool_resultgemini_0_f tool_resultgemini_0_g tool_resultgemini_1_f"
	for _, tt := range []struct{ name, contents, want string }{
		{"in order", model(call("f"), call("g"), call("f")) + "," + user(answer("f"), answer("g"), answer("f")), called + ", " + result},
		{"calls alone", model(call("f"), call("g"), call("f")), called},
		{"results alone", user(answer("f"), answer("g"), answer("f")), result},
		{"in another order", model(call("f"), call("g")) + "," + user(answer("g"), answer("f")), "assistant: tool_callgemini_0_f tool_callgemini_0_g, tool: tool_resultgemini_0_g tool_resultgemini_0_f"},
		{"in two contents", model(call("f"), call("f")) + "," + user(answer("f")) + "," + user(answer("f")), "assistant: tool_callgemini_0_f tool_callgemini_1_f, tool: tool_resultgemini_0_f, tool: tool_resultgemini_1_f"},
		{"of another name", model(call("f")) + "," + user(answer("h")), "assistant: tool_callgemini_0_f, tool: tool_resultgemini_0_f"},
		{"the call has an id", model(`{"functionCall":{"id":"a","name":"f"}}`) + "," + user(answer("f")), "assistant: tool_calla, tool: tool_resulta"},
		{"one result has an id", model(`{"functionCall":{"id":"a","name":"f"}}`, call("f")) + "," + user(`{"functionResponse":{"id":"a","name":"f","response":{}}}`, answer("f")), "assistant: tool_calla tool_callgemini_0_f, tool: tool_resulta tool_resultgemini_0_f"},
		{"a text between", model(call("f"), call("g")) + "," + user(answer("f"), `{"text":"x"}`, answer("g")), "assistant: tool_callgemini_0_f tool_callgemini_0_g, tool: tool_resultgemini_0_f, user: text, tool: tool_resultgemini_0_g"},
		{"odd names", model(call("a.b"), call("")), "assistant: tool_callgemini_0_2fd7b10e52cb9f40a36b3ea6 tool_callgemini_0_e3b0c44298fc1c149afbf4c8"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := shape(decodeAppend(t, Gemini, "["+tt.contents+"]"))
			if tt.name == "odd names" {
				// Only that they are plain, and not the same.
				ids := strings.Fields(strings.ReplaceAll(got, "tool_call", ""))[1:]
				for _, id := range ids {
					if len(id) > 40 || strings.Trim(id, nameSigns) != "" {
						t.Errorf("id %q is not one that everybody takes", id)
					}
				}
				if ids[0] == ids[1] {
					t.Errorf("both ids are %q", ids[0])
				}
				return
			}
			if got != tt.want {
				t.Errorf("%s\n got %s\nwant %s", tt.contents, got, tt.want)
			}
		})
	}
}

func TestGeminiBlocks(t *testing.T) {
	for _, tt := range []struct{ name, content, want string }{
		{"thinking", `{"role":"model","parts":[{"text":"hm","thought":true,"thoughtSignature":"AP/Y"}]}`, `{"type":"thinking","text":"hm","signature":"AP/Y"}`},
		{"a signed text", `{"role":"model","parts":[{"text":"x","thoughtSignature":"AP_Y"}]}`, `{"type":"text","text":"x","extra":{"thoughtSignature":"AP_Y"}}`},
		{"a signed call", `{"role":"model","parts":[{"functionCall":{"id":"a","name":"f","args":{ "x" : 1.0 }},"thoughtSignature":"AP_Y"}]}`, `{"type":"tool_call","id":"a","name":"f","arguments":{"x":1.0},"signature":"AP_Y"}`},
		{"a call without anything", `{"role":"model","parts":[{"functionCall":{"name":"f"}}]}`, `{"type":"tool_call","id":"gemini_0_f","name":"f","arguments":{},"extra":{"_gemini":{"args":false,"id":false}}}`},
		{"a result", `{"role":"user","parts":[{"functionResponse":{"id":"a","name":"f","response":{"result":"x"}}}]}`, `{"type":"tool_result","call_id":"a","content":"x","is_error":false,"extra":{"name":"f"}}`},
		{"an output", `{"role":"user","parts":[{"functionResponse":{"id":"a","name":"f","response":{"output":"x"}}}]}`, `{"type":"tool_result","call_id":"a","content":"x","is_error":false,"extra":{"name":"f","_gemini":{"response":"output"}}}`},
		{"an error", `{"role":"user","parts":[{"functionResponse":{"id":"a","name":"f","response":{"error":"x"}}}]}`, `{"type":"tool_result","call_id":"a","content":"x","is_error":true,"extra":{"name":"f"}}`},
		{"an object", `{"role":"user","parts":[{"functionResponse":{"id":"a","name":"f","response":{"b": 1.0, "a":2}}}]}`, `{"type":"tool_result","call_id":"a","content":"{\"b\":1.0,\"a\":2}","is_error":false,"extra":{"name":"f","_gemini":{"response":"json"}}}`},
		{"a server's call", `{"role":"model","parts":[{"toolCall":{"toolType":"T"}}]}`, `{"type":"opaque","provider":"google","data":{"serverToolCall":{"toolType":"T"}}}`},
		{"code", `{"role":"model","parts":[{"executableCode":{"code":"x"},"thought":true}]}`, `{"type":"opaque","provider":"google","data":{"executableCode":{"code":"x"},"thought":true}}`},
		{"a file", `{"role":"user","parts":[{"fileData":{"mimeType":"audio/mp3","fileUri":"gs://a","displayName":"n"}}]}`, `{"type":"audio","media_type":"audio/mp3","url":"gs://a","filename":"n"}`},
		{"an image", `{"role":"user","parts":[{"inlineData":{"mimeType":"image/png","data":"__79"}}]}`, `{"type":"image","media_type":"image/png","attachment":"` + history.AttachmentName([]byte{0xff, 0xfe, 0xfd}) + `"}`},
		{"a video", `{"role":"user","parts":[{"inlineData":{"mimeType":"video/mp4","data":"__79"}}]}`, `{"type":"document","media_type":"video/mp4","attachment":"` + history.AttachmentName([]byte{0xff, 0xfe, 0xfd}) + `"}`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			msgs := decodeAppend(t, Gemini, "["+tt.content+"]")
			if got := string(history.AppendBlock(nil, &msgs[0].Content[0])); got != tt.want {
				t.Errorf("%s\n got %s\nwant %s", tt.content, got, tt.want)
			}
		})
	}
}

// A signature is bytes that are no text: NUL, and what is no UTF-8.
func TestGeminiSignaturesKeepTheirBytes(t *testing.T) {
	signature := base64.StdEncoding.EncodeToString([]byte{0x00, 0xff, 0xd8})
	list := `[{"role":"user","parts":[{"text":"x"}]},{"role":"model","parts":[{"functionCall":{"name":"f","args":{}},"thoughtSignature":"` + signature + `"}]},` +
		`{"role":"user","parts":[{"functionResponse":{"name":"f","response":{"result":"x"}}}]}]`
	msgs := throughNative(t, decodeAppend(t, Gemini, list))
	sameJSON(t, encode(Gemini, msgs, ForExport), list)
	sameJSON(t, "["+string(Render(Gemini, Show{Messages: msgs}).Messages)+"]", list)
}

func TestGeminiResponsesAfterACut(t *testing.T) {
	msgs := decodeAppend(t, Gemini, `[{"role":"user","parts":[{"functionResponse":{"id":"a","name":"f","response":{"a":"long","b":1}}}]}]`)
	b := &msgs[0].Content[0]
	b.Content = []history.Block{history.Text("{\"a\":\"lo\n[... 9 characters cut ...]\n}")}
	want := `[{"role":"user","parts":[{"functionResponse":{"id":"a","name":"f","response":{"result":"{\"a\":\"lo\n[... 9 characters cut ...]\n}"}}}]}]`
	sameJSON(t, encode(Gemini, msgs, ForExport), want)
	b.Content = []history.Block{history.Text(`{"a":"[withheld: wallet]","b":1}`)}
	sameJSON(t, encode(Gemini, msgs, ForExport), `[{"role":"user","parts":[{"functionResponse":{"id":"a","name":"f","response":{"a":"[withheld: wallet]","b":1}}}]}]`)
	*b = history.Block{Type: history.ToolResult, CallID: "a", Plain: true, Content: []history.Block{history.Text("[withheld: wallet]")}}
	call := decodeAppend(t, Gemini, `[{"role":"model","parts":[{"functionCall":{"id":"a","name":"f","args":{}}}]}]`)
	sameJSON(t, encode(Gemini, append(call, msgs...), ForExport), `[{"role":"model","parts":[{"functionCall":{"id":"a","name":"f","args":{}}}]},`+
		`{"role":"user","parts":[{"functionResponse":{"id":"a","name":"f","response":{"result":"[withheld: wallet]"}}}]}]`)
}

// What another format brought is written as the provider's clients keep it.
func TestGeminiExportOfOtherFormats(t *testing.T) {
	for _, tt := range []struct{ name, native, want string }{
		{"results of one batch share a content",
			`[{"role":"assistant","content":[{"type":"tool_call","id":"a","name":"f","arguments":{"x":1}},{"type":"tool_call","id":"b","name":"g","arguments_text":"{"}]},
			{"role":"tool","content":[{"type":"tool_result","call_id":"b","content":"2"}]},{"role":"tool","content":[{"type":"tool_result","call_id":"a","content":[{"type":"text","text":"1"},{"type":"text","text":"one"}],"is_error":true}]},{"role":"user","content":"x"}]`,
			`[{"role":"model","parts":[{"functionCall":{"id":"a","name":"f","args":{"x":1}}},{"functionCall":{"id":"b","name":"g","args":{"_arguments":"{"}}}]},
			{"role":"user","parts":[{"functionResponse":{"id":"b","name":"g","response":{"result":"2"}}},{"functionResponse":{"id":"a","name":"f","response":{"error":"1\none"}}}]},{"role":"user","parts":[{"text":"x"}]}]`},
		{"foreign thinking goes without its signature",
			`[{"role":"assistant","provider":"anthropic","content":[{"type":"thinking","text":"hm","signature":"AAAA"},{"type":"text","text":"x"}]}]`,
			`[{"role":"model","parts":[{"text":"hm","thought":true},{"text":"x"}]}]`},
		{"foreign opaque blocks are kept as they are",
			`[{"role":"user","content":[{"type":"opaque","provider":"openai","data":{"type":"video"}}]}]`,
			`[{"role":"user","parts":[{"type":"opaque","provider":"openai","data":{"type":"video"}}]}]`},
		{"a name of the bytes where they are not at hand",
			`[{"role":"user","content":[{"type":"image","media_type":"image/png","attachment":"sha256:` + strings.Repeat("0", 64) + `"}]}]`,
			`[{"role":"user","parts":[{"type":"image","media_type":"image/png","attachment":"sha256:` + strings.Repeat("0", 64) + `"}]}]`},
		{"marks that somebody else made do no harm",
			`[{"role":"user","content":"x","extra":{"_gemini":{"more":true,"role":"model"},"parts":[],"Role":"model"}},
			{"role":"assistant","content":[{"type":"tool_call","id":"a","name":"f","arguments":{"x":1},"extra":{"thoughtSignature":"*","text":"no","_gemini":{"args":false,"id":"b","level":{"name":"g","args":{"y":1}}}}}]}]`,
			`[{"role":"user","parts":[{"text":"x"}]},{"role":"model","parts":[{"functionCall":{"name":"f","args":{"x":1}}}]}]`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			sameJSON(t, encode(Gemini, decodeAppend(t, Native, tt.native), ForExport), tt.want)
		})
	}
}

func TestGeminiToolNames(t *testing.T) {
	for _, tt := range []struct {
		tools string
		want  []string
		bad   bool
	}{
		{`[{"functionDeclarations":[{"name":"a"},{"name":"b"}]},{"googleSearch":{}},{"function_declarations":[{"name":"c"}],"codeExecution":{}}]`, []string{"a", "b", "c"}, false},
		{`[{"functionDeclarations":null}]`, nil, false},
		{`["a"]`, nil, true},
		{`[{"functionDeclarations":{"name":"a"}}]`, nil, true},
		{`[{"functionDeclarations":[{"description":"a"}]}]`, nil, true},
	} {
		got, err := ToolNames(Gemini, []byte(tt.tools))
		if tt.bad != (err != nil) || !tt.bad && !slices.Equal(got, tt.want) {
			t.Errorf("ToolNames(%s) = %q, %v, want %q", tt.tools, got, err, tt.want)
		}
	}
}

func BenchmarkGeminiRender(b *testing.B) {
	var list []string
	for i := range 5 {
		list = append(list, `{"role":"user","content":"and the next question, number `+fmt.Sprint(i)+`?"}`,
			`{"role":"assistant","content":[{"type":"text","text":"I look."},{"type":"tool_call","id":"c`+fmt.Sprint(i)+`","name":"get_user","arguments":{"id":2512292042121000001}}]}`,
			`{"role":"tool","content":[{"type":"tool_result","call_id":"c`+fmt.Sprint(i)+`","content":`+string(must(json.Marshal(strings.Repeat(`{"name":"x"} `, 60))))+`}]}`,
			`{"role":"assistant","content":"`+strings.Repeat("some words ", 60)+`"}`)
	}
	msgs := decodeAppend(b, Native, "["+strings.Join(list, ",")+"]")
	for _, f := range []Format{Native, Gemini} {
		b.Run(string(f), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				b.SetBytes(int64(len(Render(f, Show{Messages: msgs}).Messages)))
			}
		})
	}
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// An id that was made here must not come back as one that was given, not even where the
// rest of a call is withheld.
func TestWithheldGeminiCallsHaveNoMoreIDsThanTheyCameWith(t *testing.T) {
	const contents = `[{"role":"model","parts":[{"functionCall":{"name":"look","args":{"a":1}}},{"functionCall":{"name":"wallet_send","args":{"to":"CANARYabcd"}}},` +
		`{"functionCall":{"id":null,"name":"wallet_send","args":{"to":"CANARYefgh"}}},{"functionCall":{"id":"","name":"look","args":{"a":"CANARYabcd"}}},{"functionCall":{"id":"c","name":"wallet_send","args":{}}}]},` +
		`{"role":"user","parts":[{"functionResponse":{"name":"look","response":{"result":"seen"}}},{"functionResponse":{"name":"wallet_send","response":{"result":"CANARYijkl"}}},` +
		`{"functionResponse":{"id":null,"name":"wallet_send","response":{"error":"CANARYmnop"}}},{"functionResponse":{"id":"","name":"look","response":{"result":"seen too"}}},{"functionResponse":{"id":"c","name":"wallet_send","response":{"output":"CANARYqrst"}}}]}]`
	p, err := projection.New(projection.Options{Tools: []projection.Rule{{Match: "wallet_*", Category: "wallet"}, {Match: "look", Category: "agent"}}})
	if err != nil {
		t.Fatal(err)
	}
	kept, err := p.Keep(decodeAppend(t, Gemini, contents), projection.Request{})
	if err != nil {
		t.Fatal(err)
	}
	const exported = `[{"role":"model","parts":[{"functionCall":{"name":"look","args":{"a":1}}},{"functionCall":{"name":"wallet_send","args":{"_withheld":"wallet"}}},` +
		`{"functionCall":{"id":null,"name":"wallet_send","args":{"_withheld":"wallet"}}},{"functionCall":{"id":"","name":"look","args":{"a":"CANARYabcd"}}},{"functionCall":{"id":"c","name":"wallet_send","args":{"_withheld":"wallet"}}}]},` +
		`{"role":"user","parts":[{"functionResponse":{"name":"look","response":{"result":"seen"}}},{"functionResponse":{"name":"wallet_send","response":{"result":"[withheld: wallet]"}}},` +
		`{"functionResponse":{"id":null,"name":"wallet_send","response":{"error":"[withheld: wallet]"}}},{"functionResponse":{"id":"","name":"look","response":{"result":"seen too"}}},{"functionResponse":{"id":"c","name":"wallet_send","response":{"result":"[withheld: wallet]"}}}]}]`
	if got := encode(Gemini, kept.Messages, ForExport); got != exported {
		t.Errorf("exported\n got %s\nwant %s", got, exported)
	}
	asked := geminiShow(append([]history.Message{{Role: history.User, Status: history.Complete, Content: []history.Block{history.Text("q")}}}, kept.Messages...))
	replayed := `[{"role":"user","parts":[{"text":"q"}]},` + strings.NewReplacer(`"id":null,`, ``, `"id":"",`, ``,
		`{"a":1}}`, `{"a":1}},"thoughtSignature":"`+geminiUnsigned+`"`).Replace(exported)[1:]
	if got := "[" + string(geminiJudged(t, asked).Messages) + "]"; got != replayed {
		t.Errorf("replayed\n got %s\nwant %s", got, replayed)
	}
	again, err := p.Keep(decodeAppend(t, Gemini, exported), projection.Request{})
	if err != nil {
		t.Fatal(err)
	}
	if got, want := encode(Native, again.Messages, ForExport), encode(Native, kept.Messages, ForExport); got != want {
		t.Errorf("imported again\n got %s\nwant %s", got, want)
	}
}
