package projection

import (
	"fmt"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"historyd/internal/history"
	"historyd/internal/strictjson"
)

func opaque(json string) history.Block {
	return history.Block{Type: history.OpaqueBlock, Provider: "p", Opaque: raw(json)}
}

// drawHosted makes a message of what others than the client ran.
func drawHosted(t *rapid.T) history.Message {
	id := rapid.SampledFrom([]string{"h", "i"}).Draw(t, "hosted id")
	word := rapid.SampledFrom([]string{"hunter2", "swordfish"}).Draw(t, "hosted word")
	tool := rapid.SampledFrom([]string{"pay", "open", "remote", "tool"}).Draw(t, "hosted tool")
	m := message(history.Assistant)
	for range rapid.IntRange(1, 3).Draw(t, "hosted blocks") {
		m.Content = append(m.Content, opaque(rapid.SampledFrom([]string{
			fmt.Sprintf(`{"type":"mcp_tool_use","id":%q,"name":%q,"input":{"x":%q}}`, id, tool, word),
			fmt.Sprintf(`{"type":"mcp_tool_result","tool_use_id":%q,"content":%q}`, id, word),
			fmt.Sprintf(`{"type":"mcp_call","id":%q,"name":%q,"arguments":"{}","output":%q}`, id, tool, word),
		}).Draw(t, "hosted block")))
	}
	return m
}

func TestToolsThatOthersRun(t *testing.T) {
	const (
		pay     = `{"type":"mcp_tool_use","id":"m1","name":"Pay","server_name":"s","input":{"pin":"hunter2"}}`
		open    = `{"type":"mcp_tool_use","id":"m1","name":"open","input":{}}`
		strange = `{"type":"mcp_tool_use","id":"m1","name":"strange","input":{}}`
		result  = `{"type":"mcp_tool_result","tool_use_id":"m1","is_error":false,"content":[{"type":"text","text":"balance"}]}`
		search  = `{"type":"server_tool_use","id":"s1","name":"web_search","input":{"query":"q"}}`
		found   = `{"type":"web_search_tool_result","tool_use_id":"s1","content":[{"type":"web_search_result","title":"t"}]}`
	)
	for _, tt := range []struct {
		name string
		in   []string
		gone []bool
		lax  bool // unknown tools are kept
	}{
		{"a server's tool of a withheld category", []string{pay, result}, []bool{true, true}, true},
		{"a server's tool of another", []string{open, result}, []bool{false, false}, false},
		{"a server's tool that nobody knows", []string{strange, result}, []bool{true, true}, false},
		{"and when those are kept", []string{strange, result}, []bool{false, false}, true},
		{"a result of nothing known", []string{result}, []bool{true}, false},
		{"a second answer", []string{pay, result, result}, []bool{true, true, true}, true},
		{"a second call of the id, and its answer", []string{open, `{"type":"mcp_tool_result","tool_use_id":"m1","content":[]}`, pay, result}, []bool{false, false, true, true}, true},
		{"an answer before its call", []string{result, pay}, []bool{true, true}, true},
		{"a provider's own tool", []string{search, found}, []bool{false, false}, false},
		{"a provider's own tool of which something is said", []string{`{"type":"server_tool_use","id":"s1","name":"code_execution","input":{}}`, `{"type":"code_execution_tool_result","tool_use_id":"s1","content":{}}`}, []bool{true, true}, true},
		{"the same by its type alone", []string{`{"type":"code_execution_tool_result","tool_use_id":"s1","content":{}}`, `{"type":"code_execution_call","code":"x"}`}, []bool{true, true}, true},
		{"items of calls", []string{
			`{"type":"web_search_call","id":"w","action":{"query":"q"}}`, `{"type":"file_search_call","queries":["q"],"results":[{"name":"n","arguments":"{}"}]}`,
			`{"type":"code_interpreter_call","code":"1+1","outputs":[]}`, `{"type":"image_generation_call","result":"aGk="}`,
		}, []bool{false, false, false, false}, false},
		{"a server's call with its output", []string{`{"type":"mcp_call","id":"m","name":"pay","arguments":"{\"pin\":\"hunter2\"}","output":"done"}`}, []bool{true}, true},
		{"a request for leave, and its answer", []string{`{"type":"mcp_approval_request","id":"r","name":"pay","arguments":"{}"}`, `{"type":"mcp_approval_response","approval_request_id":"r","approve":true}`}, []bool{true, true}, true},
		{"a list of tools", []string{`{"type":"mcp_list_tools","server_label":"s","tools":[{"name":"pay","input_schema":{}}]}`}, []bool{false}, false},
		{"inside of something else", []string{`{"type":"x","items":[` + pay + `]}`}, []bool{true}, true},
		{"a name that another member has", []string{`{"type":"compaction","name":"pay","content":"c"}`, `"pay"`, `[1]`}, []bool{false, false, false}, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			o := Options{Tools: []Rule{{"pay", "wallet"}, {"open", "misc"}, {"code_execution", "files"}}}
			if tt.lax {
				o.UnknownTools = "keep"
			}
			p := policy(t, o)
			m := message(history.Assistant, history.Text("so"))
			var want []history.Block
			for i, in := range tt.in {
				m.Content = append(m.Content, opaque(in))
				if !tt.gone[i] {
					want = append(want, opaque(in))
				}
			}
			kept := keep(t, p, Request{}, m)
			wanted := message(history.Assistant, append([]history.Block{history.Text("so")}, want...)...)
			if got, want := show(kept.Messages), show([]history.Message{wanted}); got != want {
				t.Errorf("kept %swant %s", got, want)
			}
			if got, want := len(kept.Changes), len(tt.in)-len(want); got != want {
				t.Errorf("%d changes of %d: %+v", got, want, kept.Changes)
			}
			again := keep(t, p, Request{}, kept.Messages...)
			if len(again.Changes) > 0 {
				t.Errorf("again: %+v", again.Changes)
			}
		})
	}
}

func TestARequestTightensTheToolsThatOthersRun(t *testing.T) {
	p := policy(t, Options{UnknownTools: "keep"})
	m := message(history.Assistant, opaque(`{"type":"server_tool_use","id":"s","name":"web_fetch","input":{"url":"u"}}`), opaque(`{"type":"web_fetch_tool_result","tool_use_id":"s","content":{}}`))
	kept := keep(t, p, Request{Categories: map[string]string{"web_fetch": "files"}}, m)
	want := []Change{{0, 0, Dropped, "files", reasonCategory, 0}, {0, 1, Dropped, "files", reasonCategory, 0}}
	if len(kept.Changes) != 2 || kept.Changes[0] != want[0] || kept.Changes[1] != want[1] {
		t.Errorf("changes %+v, want %+v", kept.Changes, want)
	}
	if c := kept.Messages[0].Content; len(c) != 1 || c[0].Provider != ourProvider {
		t.Errorf("what is left: %+v", c)
	}
}

func TestValuesOfToolsThatOthersRunAreLookedFor(t *testing.T) {
	p := policy(t, Options{Tools: []Rule{{"pay", "wallet"}, {"open", "misc"}}})
	kept := keep(t, p, Request{},
		message(history.Assistant, opaque(`{"type":"mcp_call","name":"pay","arguments":"{\"pin\":\"hunter2\"}","output":"the balance is 4711"}`), call("o", "open", "{}")),
		answering("o", "hunter2 is the PIN, the balance is 4711"),
		message(history.Assistant, history.Block{Type: history.ThinkingBlock, Text: "so the balance is 4711"}, history.Text("ok")))
	if got, want := textOf(&kept.Messages[1].Content[0]), "[withheld: wallet] is the PIN, the balance is 4711"; got != want {
		t.Errorf("result %q, want %q", got, want)
	}
	if got := kept.Messages[2].Content; len(got) != 1 {
		t.Errorf("a thought that repeats the answer: %+v", got)
	}
}

func TestToolTrafficInsideOfAResult(t *testing.T) {
	p := policy(t, Options{Tools: []Rule{{"pay", "wallet"}, {"open", "misc"}}})
	kept := keep(t, p, Request{}, calling("o", "open", "{}"), message(history.Tool, resultOf("o",
		opaque(`{"type":"mcp_call","name":"pay","arguments":"{}","output":"balance"}`), opaque(`{"type":"web_search_call"}`), history.Text("ok"))))
	if got := kept.Messages[1].Content[0].Content; len(got) != 2 || len(kept.Changes) != 1 || kept.Changes[0].Category != "wallet" {
		t.Errorf("kept %+v, changes %+v", got, kept.Changes)
	}
}

func TestMediaOfAResultGoesWithIt(t *testing.T) {
	p := policy(t, Options{Tools: []Rule{{"pay", "wallet"}, {"open", "misc"}}})
	media := func(typ, data string) history.Block {
		b := history.Block{Type: history.ImageBlock, MediaType: typ}
		b.SetData([]byte(data))
		return b
	}
	binary := "\x89PNG\x00\xff hunter2 "
	kept := keep(t, p, Request{}, message(history.User, media("text/plain", "hunter2")),
		message(history.Assistant, call("p", "pay", `{"pin":"hunter2"}`), call("o", "open", "{}")),
		message(history.Tool, resultOf("p", media("image/png", "secret"))),
		message(history.Tool, resultOf("o", media("image/png", binary), media("", "PIN hunter2"), media("text/plain", binary), media("", "harmless"))))
	var left []string
	for i := range kept.Messages {
		kept.Messages[i].MediaBlocks(func(b *history.Block) { left = append(left, string(b.Data)) })
	}
	if got, want := fmt.Sprintf("%q", left), fmt.Sprintf("%q", []string{"hunter2", binary, "harmless"}); got != want {
		t.Errorf("left %s, want %s", got, want)
	}
}

// What a provider sent may have very many members, none of which is anything.
func TestManyMembersOfAProviderTakeLittleMemory(t *testing.T) {
	var b strings.Builder
	for i := range 100_000 {
		fmt.Fprintf(&b, `"%06d":1,`, i)
	}
	v := strictjson.Value{Raw: []byte("{" + strings.TrimSuffix(b.String(), ",") + "}")}
	if got := taken(func() { hostedIn(v) }) / float64(len(v.Raw)); got > 3 {
		t.Errorf("%.1f times their bytes are asked for in all", got)
	}
}
