package api

import (
	"encoding/json/jsontext"
	"fmt"
	"strings"
	"testing"

	"historyd/internal/history"
	"historyd/internal/projection"
	"historyd/test/judge"
)

// everyFormat is how a conversation comes in and goes out.
var everyFormat = append([]string{"native"}, providers...)

// A NUL that somebody said is in the record. No search of others fails for it, and no provider is sent it.
func TestOneNULSpoilsNothing(t *testing.T) {
	d := newDaemon(t, projection.Options{UnknownTools: "keep"})
	want(t, d.post("ann", turns, `{"messages":[{"role":"user","content":"apple a\u0000b pear"},
		{"role":"assistant","content":[{"type":"tool_call","id":"c","name":"f","arguments":{"k\u0000":"v\u0000"}}]},
		{"role":"tool","content":[{"type":"tool_result","call_id":"c","content":"r\u0000s"}]},{"role":"assistant","content":"\u0000"}]}`), 201, "")
	d.say("ann", "other", "another apple")
	for query, want := range map[string]int{"apple": 2, "pear": 1, "another": 1, "a%00b": 1, "%22a+b%22": 1} {
		got := d.get("ann", "/v1/search?q="+query)
		if n := strings.Count(got.body, `"seq":`); got.status != 200 || n != want {
			t.Errorf("a search for %s: %d, %d messages, want %d: %s", query, got.status, n, want, got.body)
		}
	}
	if page := d.get("ann", "/v1/conversations/x/messages").body; !strings.Contains(page, `apple a\u0000b pear`) {
		t.Errorf("the record holds %s", page)
	}
	for _, format := range providers {
		r := as[fullReply](t, d.get("ann", fullOfX+"&format="+format))
		if why := judge.Check(format, r.Messages, r.System, r.Tools); len(why) > 0 || !strings.Contains(string(r.Messages), "apple a\uFFFDb pear") || r.Report["replaced_characters"] == nil {
			t.Errorf("%s: %q, report %v: %s", format, why, r.Report, r.Messages)
		}
	}
}

// callOf is an answer that calls f with these arguments, in each format.
func callOf(format, arguments string) string {
	text := string(history.AppendString(nil, arguments))
	return map[string]string{
		"native":    `{"role":"assistant","content":[{"type":"tool_call","id":"c","name":"f","arguments":` + arguments + `}]}`,
		"openai":    `{"role":"assistant","content":null,"tool_calls":[{"id":"c","type":"function","function":{"name":"f","arguments":` + text + `}}]}`,
		"anthropic": `{"role":"assistant","content":[{"type":"tool_use","id":"c","name":"f","input":` + arguments + `}]}`,
		"responses": `{"type":"function_call","call_id":"c","name":"f","arguments":` + text + `}`,
		"gemini":    `{"role":"model","parts":[{"functionCall":{"id":"c","name":"f","args":` + arguments + `}}]}`,
	}[format]
}

// Whatever format a call comes in by, its arguments go out in each of the formats as they came: numbers, the order of members,
// escapes, and signs that HTML or JavaScript would have escaped.
func TestArgumentsGoThroughEveryFormatAsTheyAre(t *testing.T) {
	d := newDaemon(t, projection.Options{UnknownTools: "keep"})
	for i, arguments := range []string{
		`{"id":2512292042121000001,"x":1.0,"y":1e400,"z":-0,"w":1E5,"v":0.10,"u":1e-999}`,
		`{"b":1,"a":{"d":[],"c":{}},"":null}`,
		`{"cmd":"a && b < c > d","html":"</script><!-- é 🎉","nbsp":"\u00a0\u2028\ud83c\udf89\/"}`,
		`{"template":"%s {{x}} ${y} \\u003c \" ' ","type":"text","_withheld":"no"}`,
	} {
		for _, from := range everyFormat {
			name := fmt.Sprint("/v1/conversations/", from, i)
			want(t, d.post("ann", name+"/turns?format="+from, `{"messages":[`+callOf(from, arguments)+`]}`), 201, "")
			for _, to := range everyFormat {
				for _, path := range []string{"/replay?mode=full&format=" + to, "/export?format=" + to} {
					var compact jsontext.Value = []byte(d.get("ann", name+path).body)
					must(t, compact.Compact(jsontext.PreserveRawStrings(true)))
					in, text := string(compact), string(history.AppendString(nil, arguments))
					if !strings.Contains(in, `:`+arguments) && !strings.Contains(in, `"arguments":`+text) {
						t.Errorf("from %s, %s: %s, want %s", from, path, in, arguments)
					}
				}
			}
		}
	}
}

// strange are conversations with members that historyd does not know in every part that a format has, and bytes that are no text.
var strange = map[string]string{
	"openai": `[{"role":"user","content":[{"type":"text","text":"x","zz":{"b":1.0,"a":1e400}},{"type":"image_url","image_url":{"url":"data:image/png;base64,iVBOR3g=","detail":"low","zz":1},"zz":2},{"type":"input_audio","input_audio":{"data":"iVBOR3g=","format":"wav","zz":1}},{"type":"file","file":{"file_data":"data:application/pdf;base64,iVBOR3g=","filename":"f","zz":1}}],"zz":3},
		{"role":"assistant","content":"y","tool_calls":[{"id":"c","type":"function","function":{"name":"f","arguments":"{}","zz":{"b":1.0,"a":1e400}},"zz":2}],"zz":3},
		{"role":"tool","tool_call_id":"c","content":"r","zz":4}]`,
	"anthropic": `[{"role":"user","content":[{"type":"text","text":"x","zz":{"b":1.0,"a":1e400}},{"type":"image","source":{"type":"base64","media_type":"image/png","data":"iVBOR3g=","zz":1},"zz":2},{"type":"document","source":{"type":"text","media_type":"text/plain","data":"doc","zz":1},"title":"t","context":"c","citations":{"enabled":true},"zz":2}],"zz":3},
		{"role":"assistant","content":[{"type":"thinking","thinking":"h","signature":"s","zz":{"b":1.0,"a":1e400}},{"type":"redacted_thinking","data":"d","zz":1},{"type":"tool_use","id":"c","name":"f","input":{},"caller":{"type":"direct"},"zz":1}]},
		{"role":"user","content":[{"type":"tool_result","tool_use_id":"c","content":[{"type":"text","text":"r","zz":{"b":1.0,"a":1e400}}],"zz":2},{"type":"newblock","zz":1}]}]`,
	"responses": `[{"type":"message","role":"user","content":[{"type":"input_text","text":"x","zz":{"b":1.0,"a":1e400}},{"type":"input_image","image_url":"data:image/png;base64,iVBOR3g=","detail":"auto","zz":1},{"type":"input_file","file_data":"data:application/pdf;base64,iVBOR3g=","filename":"f","zz":1}],"zz":2},
		{"type":"reasoning","id":"rs","summary":[{"type":"summary_text","text":"s","zz":{"b":1.0,"a":1e400}}],"encrypted_content":"e","zz":1},
		{"type":"function_call","id":"fc_1","call_id":"c","name":"f","arguments":"{}","status":"completed","zz":{"b":1.0,"a":1e400}},
		{"type":"function_call_output","id":"o","call_id":"c","output":[{"type":"input_text","text":"r","zz":{"b":1.0,"a":1e400}}],"zz":2},
		{"type":"message","id":"msg_1","role":"assistant","status":"completed","phase":"final_answer","content":[{"type":"output_text","text":"y","annotations":[{"type":"url_citation","url":"u","start_index":0,"end_index":1,"title":"t"}],"logprobs":[],"zz":{"b":1.0,"a":1e400}}],"zz":3},
		{"type":"compaction","id":"cmp","encrypted_content":"x"}]`,
	"gemini": `[{"role":"user","parts":[{"text":"x","zz":{"b":1.0,"a":1e400}},{"inlineData":{"mimeType":"image/png","data":"iVBOR3g=","displayName":"n"},"videoMetadata":{"fps":1},"zz":1},{"fileData":{"fileUri":"gs://x","mimeType":"image/png"},"partMetadata":{"a":1}}]},
		{"role":"model","parts":[{"text":"h","thought":true,"thoughtSignature":"AP/Y","zz":{"b":1.0,"a":1e400}},{"functionCall":{"id":"i","name":"f","args":{},"zz":1},"zz":2,"thoughtSignature":"AP/Y"},{"executableCode":{"language":"PYTHON","code":"x"}}]},
		{"role":"user","parts":[{"functionResponse":{"id":"i","name":"f","response":{"result":"r","zz":{"b":1.0,"a":1e400}},"scheduling":"SILENT","zz":2},"zz":3}]}]`,
}

// What historyd does not know of comes back where it stood, also from the import of an export, of either kind.
func TestUnknownMembersComeBackWhereTheyStood(t *testing.T) {
	d := newDaemon(t, projection.Options{UnknownTools: "keep"})
	for format, list := range strange {
		x, y, z := "/v1/conversations/x-"+format, "/v1/conversations/y-"+format, "/v1/conversations/z-"+format
		want(t, d.post("ann", x+"/turns?format="+format, `{"messages":`+list+`}`), 201, "")
		want(t, d.post("ann", y+"/import", d.get("ann", x+"/export").body), 201, "")
		want(t, d.post("ann", z+"/import?format="+format, d.get("ann", x+"/export?format="+format).body), 201, "")
		var in jsontext.Value = []byte(list)
		must(t, in.Canonicalize(jsontext.CanonicalizeRawFloats(false)))
		for _, name := range []string{x, y, z} {
			var out jsontext.Value = []byte(d.get("ann", name+"/export?format="+format).body)
			must(t, out.Canonicalize(jsontext.CanonicalizeRawFloats(false)))
			if string(out) != string(in) {
				t.Errorf("%s: %s\nwant %s", name, out, in)
			}
			if got := d.get("ann", name+"/messages").body; strings.Count(got, `{"b":1.0,"a":1e400}`) < 2 {
				t.Errorf("%s: the record holds %s", name, got)
			}
		}
	}
}

// blanks are turns in which somebody said nothing, or not a word, with what each format has for that.
var blanks = map[string][]string{
	"native": {
		`{"role":"assistant","content":" "}`, `{"role":"assistant","content":""}`, `{"role":"assistant","content":[{"type":"text","text":" "},{"type":"text","text":"x"}]}`,
		`{"role":"user","content":"\n"}`, `{"role":"user","content":""}`, `{"role":"system","content":" "}`, `{"role":"assistant","content":"\u00a0\u200b\u0000"}`, `{"role":"assistant","content":"x \n"}`,
		`{"role":"assistant","content":[{"type":"tool_call","id":"c","name":"f","arguments":{}}]},{"role":"tool","content":[{"type":"tool_result","call_id":"c","content":""}]}`,
		`{"role":"assistant","content":[{"type":"tool_call","id":"c","name":"f","arguments":{}}]},{"role":"tool","content":[{"type":"tool_result","call_id":"c","content":[]}]}`,
		`{"role":"assistant","content":[{"type":"tool_call","id":"c","name":"f","arguments":{}}]},{"role":"tool","content":[{"type":"tool_result","call_id":"c","content":[{"type":"text","text":" "}],"is_error":true}]}`,
	},
	"openai": {
		`{"role":"assistant","content":null}`, `{"role":"assistant","content":""}`, `{"role":"user","content":[{"type":"text","text":""}]}`,
		`{"role":"assistant","content":"","tool_calls":[{"id":"c","type":"function","function":{"name":"f","arguments":""}}]},{"role":"tool","tool_call_id":"c","content":""}`,
	},
	"anthropic": {
		`{"role":"assistant","content":[]}`, `{"role":"assistant","content":[{"type":"text","text":""}]}`, `{"role":"user","content":" "}`,
		`{"role":"assistant","content":[{"type":"thinking","thinking":"a","signature":"s"},{"type":"text","text":" "},{"type":"thinking","thinking":"b","signature":"t"},{"type":"tool_use","id":"c","name":"f","input":{}}]},
			{"role":"user","content":[{"type":"tool_result","tool_use_id":"c"}]}`,
		`{"role":"assistant","content":[{"type":"text","text":"\n\n"},{"type":"tool_use","id":"c","name":"f","input":{}}]},{"role":"user","content":[{"type":"tool_result","tool_use_id":"c","content":[],"is_error":true}]}`,
	},
	"responses": {
		`{"type":"message","role":"assistant","content":[{"type":"output_text","text":"","annotations":[]}]}`, `{"type":"message","role":"user","content":""}`,
		`{"type":"function_call","call_id":"c","name":"f","arguments":""},{"type":"function_call_output","call_id":"c","output":""}`,
		`{"type":"function_call","call_id":"c","name":"f","arguments":"{}"},{"type":"function_call_output","call_id":"c","output":[]}`,
	},
	"gemini": {
		`{"role":"model","parts":[]}`, `{"role":"model","parts":[{"text":""}]}`, `{"role":"user","parts":[{"text":""}]}`,
		`{"role":"model","parts":[{"functionCall":{"name":"f"}}]},{"role":"user","parts":[{"functionResponse":{"name":"f","response":{}}}]}`,
	},
}

// Nothing that is empty or blank ends a conversation: it is kept, and each provider accepts what it is sent from then on.
func TestBlankTextsEndNoConversation(t *testing.T) {
	d := newDaemon(t, projection.Options{UnknownTools: "keep"})
	n := 0
	for from, list := range blanks {
		for _, messages := range list {
			for _, before := range []string{"", "said"} {
				n++
				name := fmt.Sprint("/v1/conversations/c", n)
				if before != "" {
					d.say("ann", fmt.Sprint("c", n), before)
				}
				want(t, d.post("ann", name+"/turns?format="+from, `{"messages":[`+messages+`]}`), 201, "")
				for range 2 { // the second time somebody has gone on
					for _, to := range providers {
						for _, mode := range []string{"text", "full"} {
							r := as[fullReply](t, d.get("ann", name+"/replay?mode="+mode+"&format="+to))
							if why := judge.Check(to, r.Messages, r.System, r.Tools); len(why) > 0 && string(r.Messages) != "[]" {
								t.Errorf("%s behind %q, mode %s for %s: %q: %s", messages, before, mode, to, why, r.Messages)
							}
						}
					}
					d.say("ann", fmt.Sprint("c", n), "go on")
				}
				if got := d.get("ann", name+"/export?format="+from); got.status != 200 || !jsontext.Value(got.body).IsValid() {
					t.Errorf("%s: the export is %d %s", messages, got.status, got.body)
				}
			}
		}
	}
	// Signed thinking stays where it was, and so does the blank between two of them.
	want(t, d.post("ann", turns+"?format=anthropic", `{"messages":[{"role":"user","content":"q"},`+blanks["anthropic"][3]+`]}`), 201, "")
	if got := d.get("ann", fullOfX+"&format=anthropic").body; !strings.Contains(got, `"signature":"s"},{"type":"text","text":" "},{"type":"thinking","thinking":"b","signature":"t"}`) {
		t.Errorf("thinking is sent as %s", got)
	}
	for _, body := range []string{`{"messages":[]}`, `{"messages":[{"role":"assistant","content":[]}]}`, `{"messages":[{"role":"assistant"}]}`, `{"messages":[{"role":"assistant","content":null}]}`} {
		want(t, d.post("ann", turns, body), 400, "invalid_message")
	}
}

// The same state gives the same bytes, also where an answer is made of what has no order of its own.
func TestEveryAnswerIsTheSameBytesAgain(t *testing.T) {
	d := newDaemon(t, projection.Options{UnknownTools: "keep"})
	for i := range 12 {
		want(t, d.post("ann", turns, fmt.Sprintf(`{"messages":[{"role":"user","content":"q%d","metadata":{"b":1,"a":2},"zz":1,"aa":2},
			{"role":"assistant","content":[{"type":"tool_call","id":"c%[1]d","name":"tool.%[1]d","arguments":{"b":1,"a":2}}],"usage":{"z":1,"a":2}},
			{"role":"tool","content":[{"type":"tool_result","call_id":"c%[1]d","content":"r","is_error":true}]},
			{"role":"assistant","content":"a"}],"tool_categories":{"z":"y","a":"b","*":"general"}}`, i)), 201, "")
	}
	requests := map[string]string{"/v1/conversations": "", "/v1/conversations/x": "", "/v1/conversations/x/messages": "", "/v1/conversations/x/export?format=jsonl": "", "/v1/conversations/x/export?format=tar": "", "/openapi.json": ""}
	for _, format := range everyFormat {
		requests["/v1/conversations/x/export?format="+format] = ""
		requests["/v1/conversations/x/replay?format="+format] = ""
		requests[replayOfX+"?mode=full&format="+format] = fmt.Sprintf(`{"tools":[%s],"granted":["z","y","tool.3","tool.4","w"],"role":"r"}`, tools[format])
	}
	send := func(path, body string) string {
		if body == "" {
			return d.get("ann", path).body
		}
		return d.post("ann", path, body).body
	}
	for path, body := range requests {
		first := send(path, body)
		for i := range 30 {
			if i%3 == 0 {
				d.handler.(*server).replays.forgetAll(d.caller("ann").Scope())
			}
			if again := send(path, body); again != first {
				t.Fatalf("%s: answer %d is %s\nthe first was %s", path, i+2, again, first)
			}
		}
	}
}

// tools declares one, in each format.
var tools = map[string]string{
	"native": `{"name":"t","parameters":{"type":"object"}}`, "openai": fmt.Sprintf(mappedTool["openai"], "t"), "anthropic": fmt.Sprintf(mappedTool["anthropic"], "t"),
	"responses": fmt.Sprintf(mappedTool["responses"], "t"), "gemini": fmt.Sprintf(mappedTool["gemini"], "t"),
}

// What stands for a withheld value is told from what somebody wrote: beside it stands that it was withheld, and never beside
// the other.
func TestAMaskIsToldFromWhatSomebodyWrote(t *testing.T) {
	d := newDaemon(t, projection.Options{})
	for _, written := range []string{"***", "…", "[REDACTED]", "[withheld: wallet]", `{\"_withheld\":\"wallet\"}`, "\\n[... 46081 characters cut by historyd; the full text is not stored ...]\\n"} {
		body := `{"messages":[{"role":"user","content":"` + written + `"},
			{"role":"assistant","content":[{"type":"text","text":"` + written + `"},{"type":"tool_call","id":"c","name":"echo","arguments":{"_withheld":"` + written + `"}}]},
			{"role":"tool","content":[{"type":"tool_result","call_id":"c","content":"` + written + `"}]}],"tool_categories":{"echo":"general"}}`
		want(t, d.post("ann", turns, body), 201, "")
		got := d.get("ann", "/v1/conversations/x/messages?order=desc&limit=3").body
		if strings.Contains(got, "redacted") || strings.Contains(got, "truncated") || strings.Count(got, written) != 4 {
			t.Errorf("%s: the record holds %s", written, got)
		}
	}
	want(t, d.post("ann", "/v1/conversations/z/turns", `{"messages":[{"role":"assistant","content":[{"type":"tool_call","id":"c","name":"pay","arguments":{"password":"hunter2"}}]}],"tool_categories":{"pay":"wallet"}}`), 201, "")
	if got := d.get("ann", "/v1/conversations/z/messages").body; !strings.Contains(got, `"arguments":{"_withheld":"wallet"},"redacted":{"category":"wallet","reason":"category"}`) {
		t.Errorf("the record holds %s", got)
	}
}
