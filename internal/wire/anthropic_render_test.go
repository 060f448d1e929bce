package wire

import (
	"strings"
	"testing"

	"historyd/internal/history"
	"historyd/test/judge"
)

// shown renders what a native client said, with every tool that is called declared,
// and asks the judge.
func shown(t *testing.T, f Format, s Show, native string) Shown {
	t.Helper()
	if native != "" {
		s.Messages = append(s.Messages, decodeAppend(t, Native, "["+native+"]")...)
	}
	out := Render(f, s)
	for _, why := range refusals(f, out) {
		t.Errorf("refused: %s\n%s\n%s", why, native, out.Messages)
	}
	return out
}

func refusals(f Format, out Shown) []string {
	list := func(elements []byte) []byte { return append(append([]byte{'['}, elements...), ']') }
	var tools []byte
	if out.Tools != nil {
		tools = list(out.Tools)
	}
	return judge.Check(string(f), list(out.Messages), out.System, tools)
}

// native messages by which the tests say things.
const (
	saidX   = `{"role":"user","content":"x"}`
	callC   = `{"role":"assistant","content":[{"type":"tool_call","id":"c","name":"f","arguments":{"a":1}}]}`
	resultC = `{"role":"tool","content":[{"type":"tool_result","call_id":"c","content":"r"}]}`
)

func by(model, blocks string) string {
	return `{"role":"assistant","provider":"anthropic","model":"` + model + `","content":[` + blocks + `]}`
}

func TestAnthropicRender(t *testing.T) {
	const (
		x      = `{"role":"user","content":[{"type":"text","text":"x"}]}`
		call   = `{"type":"tool_use","id":"c","name":"f","input":{"a":1}}`
		signed = `{"type":"thinking","text":"t","signature":"s"}`
		hidden = `{"type":"thinking","text":"","encrypted":"e"}`
		think  = `{"type":"thinking","thinking":"t","signature":"s"}`
		search = `{"type":"server_tool_use","id":"srvtoolu_1","name":"web_search","input":{"q":1.0}}`
		found  = `{"type":"web_search_tool_result","tool_use_id":"srvtoolu_1","content":[]}`
	)
	user := func(blocks string) string { return `{"role":"user","content":[` + blocks + `]}` }
	assistant := func(blocks string) string { return `{"role":"assistant","content":[` + blocks + `]}` }
	text := func(s string) string { return `{"type":"text","text":"` + s + `"}` }
	opaque := func(data string) string { return `{"type":"opaque","provider":"anthropic","data":` + data + `}` }
	said := func(blocks string) string { return `{"role":"user","content":[` + blocks + `]}` }
	results := func(blocks string) string { return `{"role":"tool","content":[` + blocks + `]}` }
	res := func(id, content string) string {
		return `{"type":"tool_result","call_id":"` + id + `","content":` + content + `}`
	}
	many := func(parts ...string) string { return strings.Join(parts, ",") }
	calls := many(callC, resultC)
	for _, tt := range []struct{ name, native, want, report string }{
		{"a talk", many(saidX, by("m", text("y"))), many(x, assistant(text("y"))), ""},
		{"results first, then texts", many(saidX, by("m", `{"type":"tool_call","id":"a","name":"f","arguments":{}},{"type":"tool_call","id":"b","name":"f","arguments":{}}`),
			results(res("b", `"2"`)), results(res("a", `[{"type":"text","text":"1","extra":{"cache_control":{"type":"ephemeral"}}}]`)), said(text("y")), saidX),
			many(x, assistant(`{"type":"tool_use","id":"a","name":"f","input":{}},{"type":"tool_use","id":"b","name":"f","input":{}}`),
				user(`{"type":"tool_result","tool_use_id":"a","content":[{"type":"text","text":"1"}]},{"type":"tool_result","tool_use_id":"b","content":[{"type":"text","text":"2"}]},`+text("y")+","+text("x"))),
			`,"merged":1`},
		{"the assistant first", by("m", text("y")), many(user(text(noBeginning)), assistant(text("y"))), `,"inserted":1`},
		{"roles twice", many(saidX, saidX, by("m", text("y ")), by("n", text("z"))), many(user(text("x")+","+text("x")), assistant(text("y")+","+text("z"))), `,"merged":2,"trimmed_text":1`},
		{"an answer that is gone", many(saidX, by("m", text(`\n`)), said(text("y")), by("m", text("z"))), many(user(text("x")+","+text("y")), assistant(text("z"))),
			`,"merged":1,"dropped_empty":1`},
		{"nothing at all", said(text("")), "", `,"dropped_empty":1`},
		{"white space", many(said(text("")+","+text(" ")+","+text("x")), by("m", text(" ")+","+text("y")+","+text(`\t`)+","+text(""))),
			many(user(text(" ")+","+text("x")), assistant(text(" ")+","+text("y"))), `,"dropped_empty":3`},
		{"white space beside a call", many(saidX, by("m", text(`\n\n`)+`,{"type":"tool_call","id":"c","name":"f","arguments":{"a":1}}`), resultC),
			many(x, assistant(call), user(`{"type":"tool_result","tool_use_id":"c","content":[{"type":"text","text":"r"}]}`)), `,"dropped_empty":1`},
		{"white space at the end, before a call", many(saidX, by("m", text("y ")+`,{"type":"tool_call","id":"c","name":"f","arguments":{"a":1}}`), resultC),
			many(x, assistant(text("y ")+","+call), user(`{"type":"tool_result","tool_use_id":"c","content":[{"type":"text","text":"r"}]}`)), ""},
		{"NUL", many(said(text(`a\u0000b`)), by("m", `{"type":"tool_call","id":"c","name":"f","arguments":{"k\u0000":"\\u0000"}}`), results(res("c", `"\u0000"`))),
			many(user(text("a\uFFFDb")), assistant(`{"type":"tool_use","id":"c","name":"f","input":{"k`+"\uFFFD"+`":"\\u0000"}}`), user(`{"type":"tool_result","tool_use_id":"c","content":[{"type":"text","text":"`+"\uFFFD"+`"}]}`)),
			`,"replaced_characters":3`},

		{"thinking goes back", many(saidX, by("m", signed+","+hidden+","+text("y"))), many(x, assistant(think+`,{"type":"redacted_thinking","data":"e"},`+text("y"))), ""},
		{"a space between thinking", many(saidX, by("m", signed+","+text(" ")+","+signed+","+text("y"))), many(x, assistant(think+","+text(" ")+","+think+","+text("y"))), ""},
		{"thinking of another model", many(saidX, by("n", signed+","+text("y")), saidX, by("m", text("z"))), many(x, assistant(text("y")), x, assistant(text("z"))), `,"withheld_thinking":1`},
		{"thinking unsigned beside signed", many(saidX, by("m", signed+`,{"type":"thinking","text":"u"},`+text("y"))), many(x, assistant(text("y"))), `,"withheld_thinking":2`},
		{"thinking with what nobody knows", many(saidX, by("m", `{"type":"thinking","text":"t","encrypted":"e"},`+text("y"))), many(x, assistant(text("y"))), `,"withheld_thinking":1`},
		{"a space between thinking and something else", many(saidX, by("m", signed+","+text(" ")+","+opaque(`{"type":"compaction","content":null}`)+","+signed+`,{"type":"tool_call","id":"c","name":"f","arguments":{"a":1}}`), resultC),
			many(x, assistant(think+`,{"type":"compaction","content":null},`+think+","+call), user(`{"type":"tool_result","tool_use_id":"c","content":[{"type":"text","text":"r"}]}`)), `,"dropped_empty":1`},
		{"nothing but thinking", many(saidX, by("m", signed+","+text(" ")+","+hidden), said(text("y"))), user(text("x") + "," + text("y")), `,"merged":1,"withheld_thinking":2,"dropped_empty":1`},
		{"thinking that another answer follows", many(saidX, by("m", signed), by("m", text("y"))), many(x, assistant(think+","+text("y"))), `,"merged":1`},
		{"thinking of another provider", many(saidX, `{"role":"assistant","provider":"openai","model":"m","content":[`+signed+","+text("y")+`]}`), many(x, assistant(text("y"))), `,"withheld_thinking":1`},

		{"a server tool", many(saidX, by("n", opaque(search)+","+opaque(found)+","+text("y")), saidX, by("m", text("z"))), many(x, assistant(search+","+found+","+text("y")), x, assistant(text("z"))), ""},
		{"a server tool over a pause", many(saidX, by("m", opaque(search)), by("m", opaque(found)+","+text("y"))), many(x, assistant(search+","+found+","+text("y"))), `,"merged":1`},
		{"a server tool without a result", many(saidX, by("m", opaque(search)+","+text("y"))), many(x, assistant(text("y"))), `,"withheld_opaque":1`},
		{"a result of no server tool", many(saidX, by("m", opaque(found)), said(text("y")), by("m", opaque(search))), user(text("x") + "," + text("y")), `,"merged":1,"withheld_opaque":2`},
		{"a server tool over a word of the user's", many(saidX, by("m", opaque(search)), said(text("y")), by("m", opaque(found)+","+text("z"))), many(x, assistant(search+","+found), user(text("y")), assistant(text("z"))), `,"moved_hosted":1`},
		{"a server tool over a call of the client's", many(saidX, by("m", text("t")+","+opaque(search)+`,{"type":"tool_call","id":"c","name":"f","arguments":{"a":1},"extra":{"caller":{"type":"code","tool_id":"srvtoolu_1"}}}`), resultC, by("m", opaque(found)+","+text("z"))),
			many(x, assistant(text("t")+","+search+","+found+","+call), user(`{"type":"tool_result","tool_use_id":"c","content":[`+text("r")+`]}`), assistant(text("z"))), `,"moved_hosted":1`},
		{"a server tool over two calls of the client's, and again", many(saidX, by("m", opaque(search)), said(text("y")), by("m", text("v")), said(text("w")), by("m", opaque(found)), said(text("y")), by("m", opaque(found)+","+text("z"))),
			many(x, assistant(search+","+found), user(text("y")), assistant(text("v")), user(text("w")+","+text("y")), assistant(text("z"))), `,"merged":1,"withheld_opaque":1,"moved_hosted":1`},
		{"a server tool again", many(saidX, by("m", opaque(search)+","+opaque(found)+","+opaque(search)+","+opaque(found))), many(x, assistant(search+","+found)), `,"withheld_opaque":2`},
		{"a result of another server tool", many(saidX, by("m", opaque(search)+","+opaque(strings.Replace(found, "web_search", "web_fetch", 1))+","+text("y"))), many(x, assistant(text("y"))), `,"withheld_opaque":2`},
		{"a search without what it found", many(saidX, by("m", opaque(search)+","+opaque(strings.Replace(found, "[]", `[{"type":"web_search_result","url":"u","title":"t"}]`, 1))+","+text("y"))), many(x, assistant(text("y"))), `,"withheld_opaque":2`},
		{"a search that failed", many(saidX, by("m", opaque(search)+","+opaque(strings.Replace(found, "[]", `{"type":"web_search_tool_result_error","error_code":"x"}`, 1))+","+text("y"))),
			many(x, assistant(search+","+strings.Replace(found, "[]", `{"type":"web_search_tool_result_error","error_code":"x"}`, 1)+","+text("y"))), ""},
		{"a server tool with marks", many(saidX, by("m", opaque(strings.Replace(search, `"id"`, `"cache_control":{"type":"ephemeral"},"id"`, 1))+","+opaque(found)+","+text("y"))),
			many(x, assistant(search+","+found+","+text("y"))), ""},
		{"server tools of another provider", many(saidX, `{"role":"assistant","provider":"openai","model":"m","content":[`+opaque(search)+","+opaque(found)+","+text("y")+`]}`), many(x, assistant(text("y"))), `,"withheld_opaque":2`},
		{"server blocks of a user", many(said(opaque(search) + "," + opaque(found) + "," + text("x"))), x, `,"withheld_opaque":2`},
		{"compaction", many(saidX, by("m", opaque(`{"type":"compaction","content":"so far","encrypted_content":"e"}`)+","+opaque(`{"type":"compaction","content":null}`)+","+opaque(`{"type":"compaction","content":""}`)+","+text("y"))),
			many(x, assistant(`{"type":"compaction","content":"so far","encrypted_content":"e"},{"type":"compaction","content":null},`+text("y"))), `,"withheld_opaque":1`},
		{"compaction by another model", many(saidX, by("n", opaque(`{"type":"compaction","content":"so far"}`)+","+text("y")), saidX, by("m", text("z"))),
			many(x, assistant(text("y")), x, assistant(text("z"))), `,"withheld_opaque":1`},
		{"citations", many(saidX, by("m", `{"type":"text","text":"y","extra":{"citations":[{"type":"t","file_id":null,"n":1.0}],"cache_control":{"type":"ephemeral"}}},{"type":"text","text":"z","extra":{"citations":null}}`)),
			many(x, assistant(`{"type":"text","text":"y","citations":[{"type":"t","n":1.0}]},`+text("z"))), ""},
		{"citations of another provider", many(saidX, `{"role":"assistant","provider":"openai","model":"m","content":[{"type":"text","text":"y","extra":{"citations":[{"type":"t"}]}}]}`),
			many(x, assistant(text("y"))), ""},
		{"a refusal of another provider", many(saidX, `{"role":"assistant","provider":"openai","model":"m","content":[{"type":"opaque","provider":"openai","data":{"type":"refusal","refusal":"no"}}]}`),
			many(x, assistant(text("no"))), ""},
		{"a block of the user's for another provider", many(said(`{"type":"opaque","provider":"openai","data":{"type":"file"}},` + text("x"))), x, `,"withheld_opaque":1`},
		{"uploads and search results", many(said(opaque(`{"type":"container_upload","file_id":"f"}`) + "," + opaque(`{"type":"search_result","source":"s","title":"t","content":[{"type":"text","text":"c","cache_control":null}],"citations":{"enabled":true}}`) + "," +
			opaque(`{"type":"search_result","source":"s"}`) + "," + opaque(`{"type":"image","source":{"type":"file","file_id":"f"}}`))),
			user(`{"type":"container_upload","file_id":"f"},{"type":"search_result","source":"s","title":"t","content":[` + text("c") + `]},{"type":"image","source":{"type":"file","file_id":"f"}}`), `,"withheld_opaque":1`},

		{"ids and names", many(saidX, by("m", `{"type":"tool_call","id":"a|b:c","name":"f.g","arguments":{}},{"type":"tool_call","id":"c","name":"","arguments":"x"}`), results(res("c", `"2"`)+","+res("a|b:c", `"1"`))),
			many(x, assistant(`{"type":"tool_use","id":"call_37338c046cc789754a0a035e","name":"f_g_d2bb54faa8e6774441b14fc37d9febbb","input":{}},{"type":"tool_use","id":"c","name":"unnamed_e3b0c44298fc1c149afbf4c8996fb924","input":{"_arguments":"\"x\""}}`),
				user(`{"type":"tool_result","tool_use_id":"call_37338c046cc789754a0a035e","content":[{"type":"text","text":"1"}]},{"type":"tool_result","tool_use_id":"c","content":[{"type":"text","text":"2"}]}`)), `,"mapped_ids":1,"wrapped_arguments":1`},
		{"callers", many(saidX, by("m", opaque(search)+","+opaque(found)+`,{"type":"tool_call","id":"c","name":"f","arguments":{},"extra":{"caller":{"type":"direct"},"cache_control":{}}},
			{"type":"tool_call","id":"d","name":"f","arguments":{},"extra":{"caller":{"type":"code","tool_id":"srvtoolu_1"}}},{"type":"tool_call","id":"e","name":"f","arguments":{},"extra":{"caller":{"type":"code","tool_id":"srvtoolu_2"}}}`),
			results(res("c", `"1"`)+","+res("d", `"2"`)+","+res("e", `"3"`))),
			many(x, assistant(search+","+found+`,{"type":"tool_use","id":"c","name":"f","input":{},"caller":{"type":"direct"}},{"type":"tool_use","id":"d","name":"f","input":{},"caller":{"type":"code","tool_id":"srvtoolu_1"}},{"type":"tool_use","id":"e","name":"f","input":{}}`),
				user(`{"type":"tool_result","tool_use_id":"c","content":[{"type":"text","text":"1"}]},{"type":"tool_result","tool_use_id":"d","content":[{"type":"text","text":"2"}]},{"type":"tool_result","tool_use_id":"e","content":[{"type":"text","text":"3"}]}`)), ""},
		{"results of nothing", many(saidX, callC, results(`{"type":"tool_result","call_id":"c","content":" ","is_error":true}`), callC, results(res("c", `[]`)), callC, results(res("c", `[{"type":"text","text":"\n"},{"type":"text","text":""}]`))),
			"", `,"inserted":1,"dropped_empty":2,"mapped_ids":2`},
		{"results of several blocks", many(saidX, calls, strings.Replace(callC, `"c"`, `"d"`, 1), results(`{"type":"tool_result","call_id":"d","is_error":true,"content":[{"type":"text","text":"a"},{"type":"text","text":" "},
			{"type":"image","url":"https://e.example","extra":{"cache_control":{}}},{"type":"audio","url":"https://e.example"},{"type":"opaque","provider":"anthropic","data":{"type":"tool_reference","tool_name":"f"}},{"type":"opaque","provider":"anthropic","data":{"type":"tool_reference","tool_name":"g"}}]}`)),
			many(x, assistant(call), user(`{"type":"tool_result","tool_use_id":"c","content":[{"type":"text","text":"r"}]}`), assistant(strings.Replace(call, `"c"`, `"d"`, 1)),
				user(`{"type":"tool_result","tool_use_id":"d","content":[`+text("a")+","+text(" ")+`,{"type":"image","source":{"type":"url","url":"https://e.example"}},`+text("[audio: not shown here]")+`,{"type":"tool_reference","tool_name":"f"}],"is_error":true}`)),
			`,"withheld_opaque":1,"dropped_media":1`},

		{"images", many(said(`{"type":"image","media_type":"image/JPG","data":"AAAA"},{"type":"image","media_type":"image/tiff","data":"AAAA"},{"type":"image","url":"ftp://e.example"},{"type":"audio","data":"AAAA"}`), by("m", `{"type":"image","media_type":"image/png","data":"AAAA"}`)),
			many(user(`{"type":"image","source":{"type":"base64","media_type":"image/jpeg","data":"AAAA"}},`+text("[image: not shown here]")+","+text("[image: not shown here]")+","+text("[audio: not shown here]")), assistant(text("[image: not shown here]"))), `,"dropped_media":4`},
		{"documents", many(said(`{"type":"document","media_type":"application/pdf","data":"AAAA","filename":"t","extra":{"context":"c","citations":{"enabled":true},"cache_control":{"type":"ephemeral"}}},{"type":"document","media_type":"text/plain","data":"aGk=","extra":{"citations":{"enabled":true}}},{"type":"document","url":"https://e.example/a.pdf","extra":{"citations":{"enabled":true}}}`)),
			user(`{"type":"document","source":{"type":"base64","media_type":"application/pdf","data":"AAAA"},"title":"t","context":"c","citations":{"enabled":true}},{"type":"document","source":{"type":"text","media_type":"text/plain","data":"hi"},"citations":{"enabled":true}},{"type":"document","source":{"type":"url","url":"https://e.example/a.pdf"},"citations":{"enabled":true}}`), ""},
		{"documents of which some ask for citations", said(`{"type":"document","url":"https://e.example/a.pdf","extra":{"citations":{"enabled":true}}},{"type":"document","url":"https://e.example/b.pdf"},` + opaque(`{"type":"document","source":{"type":"content","content":"x"},"citations":{"enabled":true}}`)),
			user(`{"type":"document","source":{"type":"url","url":"https://e.example/a.pdf"}},{"type":"document","source":{"type":"url","url":"https://e.example/b.pdf"}},{"type":"document","source":{"type":"content","content":"x"}}`), ""},
		{"documents with images of nothing and of something", said(opaque(`{"type":"document","source":{"type":"content","content":[{"type":"text","text":"a"},{"type":"image"}]}}`) + "," +
			opaque(`{"type":"document","source":{"type":"content","content":[{"type":"image","source":{"type":"base64","media_type":"image/png","data":""}}]}}`) + "," +
			opaque(`{"type":"document","title":{},"source":{"type":"file","file_id":"f"}}`) + "," +
			opaque(`{"type":"document","source":{"type":"content","content":[{"type":"image","source":{"type":"base64","media_type":"image/png","data":"AAAA"}}]}}`)),
			user(`{"type":"document","source":{"type":"content","content":[{"type":"image","source":{"type":"base64","media_type":"image/png","data":"AAAA"}}]}}`), `,"withheld_opaque":3`},
		{"documents of other types", many(said(`{"type":"document","media_type":"text/html","data":"AAAA"},{"type":"document","media_type":"text/plain","data":"/w=="},{"type":"document","media_type":"text/plain","data":"IA=="},{"type":"document","media_type":"text/csv","url":"https://e.example"}`)),
			user(strings.Join([]string{text("[document: not shown here]"), text("[document: not shown here]"), text("[document: not shown here]"), text("[document: not shown here]")}, ",")), `,"dropped_media":4`},
		{"a system message", many(`{"role":"system","content":"s"}`, saidX), x, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := Show{Added: []Declaration{{Name: "f"}, {Name: "f.g"}, {Name: ""}}}
			out := shown(t, Anthropic, s, tt.native)
			if got := string(out.Messages); got != tt.want && !strings.HasPrefix(tt.name, "results of nothing") {
				t.Errorf("%s\n got %s\nwant %s", tt.native, got, tt.want)
			}
			if got := string(out.Report.AppendMembers(nil)); got != tt.report {
				t.Errorf("report %s, want %s", got, tt.report)
			}
		})
	}
}

func TestAnthropicSummaryAndTools(t *testing.T) {
	const sum = `so "far"`
	for _, tt := range []struct {
		name, native         string
		authority            bool
		messages, system     string
		added                []Declaration
		given, tools, report string
	}{
		{name: "an operator's", native: saidX, authority: true, messages: `{"role":"user","content":[{"type":"text","text":"x"}]}`, system: `"so \"far\""`},
		{name: "a peer's", native: saidX, messages: `{"role":"user","content":[{"type":"text","text":"so \"far\""},{"type":"text","text":"x"}]}`},
		{name: "a peer's, before an answer", native: by("m", `{"type":"text","text":"y"}`),
			messages: `{"role":"user","content":[{"type":"text","text":"so \"far\""}]},{"role":"assistant","content":[{"type":"text","text":"y"}]}`},
		{name: "a peer's, alone", messages: `{"role":"user","content":[{"type":"text","text":"so \"far\""}]}`},
		{name: "tools", native: saidX, authority: true, messages: `{"role":"user","content":[{"type":"text","text":"x"}]}`, system: `"so \"far\""`,
			given: `[ {"name":"z", "input_schema":{"type":"object"},"cache_control":{"type":"ephemeral"}} ]`,
			added: []Declaration{{Name: "g", Refusal: "not callable"}, {Name: "a.b"}, {Name: "c", Custom: true}},
			tools: `{"name":"z", "input_schema":{"type":"object"},"cache_control":{"type":"ephemeral"}},{"name":"a_b_2e7336dc8eba87ef472df568c35482ab","input_schema":{"type":"object"}},` +
				`{"name":"c","input_schema":{"type":"object"}},{"name":"g","description":"not callable","input_schema":{"type":"object"}}`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := Show{Summary: sum, Authority: tt.authority, Added: tt.added}
			if tt.given != "" {
				s.Tools = []byte(tt.given)
			}
			out := shown(t, Anthropic, s, tt.native)
			if string(out.Messages) != tt.messages || string(out.System) != tt.system || string(out.Tools) != tt.tools {
				t.Errorf("got messages %s\nsystem %s\ntools %s\nwant messages %s\nsystem %s\ntools %s", out.Messages, out.System, out.Tools, tt.messages, tt.system, tt.tools)
			}
		})
	}
}

// Ids that the history repeats are told apart, and each result goes to its own call.
func TestAnthropicIDsAreUnique(t *testing.T) {
	msgs := []history.Message{{Role: history.User, Kind: history.Person, Content: []history.Block{history.Text("x")}}}
	for seq := range int64(5) {
		call := history.Block{Type: history.ToolCall, ID: "call_0", Name: "f", Arguments: []byte("{}")}
		result := history.Block{Type: history.ToolResult, CallID: "call_0", Plain: true, Content: []history.Block{history.Text("r")}}
		msgs = append(msgs, history.Message{Role: history.Assistant, Seq: seq, Content: []history.Block{call, call}},
			history.Message{Role: history.Tool, Content: []history.Block{result, result}})
	}
	out := shown(t, Anthropic, Show{Messages: msgs, Added: []Declaration{{Name: "f"}}}, "")
	if out.Report.MappedIDs != 9 {
		t.Errorf("%d ids mapped, want 9", out.Report.MappedIDs)
	}
}

// Over the limits the oldest go; what has no bytes at hand is told.
func TestAnthropicMediaLimits(t *testing.T) {
	image := func(n int) history.Block {
		b := history.Block{Type: history.ImageBlock, MediaType: "image/png"}
		b.SetData(make([]byte, n))
		return b
	}
	lost := history.Block{Type: history.ImageBlock, MediaType: "image/png", Attachment: image(1).Attachment}
	file := history.Block{Type: history.OpaqueBlock, Provider: "anthropic", Opaque: []byte(`{"type":"image","source":{"type":"file","file_id":"f"}}`)}
	m := history.Message{Role: history.User, Content: []history.Block{lost, image(4_000_000), file}}
	for range 101 {
		m.Content = append(m.Content, image(10))
	}
	m.Content = append(m.Content, file)
	out := shown(t, Anthropic, Show{Messages: []history.Message{m}}, "")
	if out.Report.WithheldOpaque != 1 {
		t.Errorf("%d files withheld, want the older one, which there is no room for", out.Report.WithheldOpaque)
	}
	if got := strings.Count(string(out.Messages), "not shown here"); got != 22 || out.Report.DroppedMedia != 22 {
		t.Errorf("%d placeholders, %d counted, want 22", got, out.Report.DroppedMedia)
	}
}
