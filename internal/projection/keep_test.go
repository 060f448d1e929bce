package projection

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"historyd/internal/history"
)

// wallet is a request that calls pay a wallet tool and leaves all others known.
var wallet = Request{Categories: map[string]string{"pay": "wallet", "*": "agent"}}

func TestWithheldArguments(t *testing.T) {
	text := func(s string) history.Block {
		return history.Block{Type: history.ToolCall, ID: "c", Name: "pay", ArgumentsText: &s}
	}
	signed := call("c", "pay", `{"pin":"hunter2"}`)
	signed.Signature, signed.Extra = "hunter2", raw(`{"input":"hunter2"}`)
	for _, tt := range []struct {
		name string
		in   history.Block
	}{
		{"an object", call("c", "pay", `{"password":"hunter2"}`)},
		{"a nested array", call("c", "pay", `{"a":[{"b":["hunter2"]}]}`)},
		{"a number", call("c", "pay", `1234`)},
		{"null", call("c", "pay", `null`)},
		{"nothing", call("c", "pay", `{}`)},
		{"an escaped value", call("c", "pay", `{"pass\u0077ord":"\u0068unter2"}`)},
		{"text with its own spacing", call("c", "pay", `{ "password" : "hunter2" }`)},
		{"an escaped quotation mark", call("c", "pay", `{"h":"Authorization: Bearer hunter2\"","n":1}`)},
		{"free text", text("send hunter2 to bob")},
		{"broken JSON", text(`{"password":"hunter2`)},
		{"signature and unknown members", signed},
		{"in base64", call("c", "pay", `{"blob":"aHVudGVyMg=="}`)},
		{"in a URL", call("c", "pay", `{"url":"https://u:hunter2@h.example"}`)},
		{"a marker that nobody set", call("c", "pay", `{"_withheld":"hunter2"}`)},
	} {
		t.Run(tt.name, func(t *testing.T) {
			kept := keep(t, policy(t, Options{}), wallet, message(history.Assistant, history.Text("ok"), tt.in))
			want := `{"role":"assistant","status":"complete","content":[{"type":"text","text":"ok"},` +
				`{"type":"tool_call","id":"c","name":"pay","arguments":{"_withheld":"wallet"},"redacted":{"category":"wallet","reason":"category"}}]}` + "\n"
			if got := show(kept.Messages); got != want {
				t.Errorf("kept %swant %s", got, want)
			}
			change := Change{Message: 0, Block: 1, Action: "redacted", Category: "wallet", Reason: "category"}
			if len(kept.Changes) != 1 || kept.Changes[0] != change {
				t.Errorf("Changes = %+v, want %+v", kept.Changes, change)
			}
		})
	}
}

func TestANullOfAnOpenToolIsNoRedaction(t *testing.T) {
	m := calling("c", "weather", `null`)
	kept := keep(t, policy(t, Options{}), wallet, m)
	if got, want := show(kept.Messages), show([]history.Message{m}); got != want || len(kept.Changes) > 0 {
		t.Errorf("kept %s with changes %+v, want %s", got, kept.Changes, want)
	}
}

func TestAWithheldResultKeepsItsPlace(t *testing.T) {
	b := resultOf("c", history.Text("hunter2"), history.Block{Type: history.ImageBlock, MediaType: "image/png", URL: "https://hunter2"})
	b.IsError, b.Extra = true, raw(`{"raw":"hunter2"}`)
	kept := keep(t, policy(t, Options{}), wallet, calling("c", "pay", "{}"), message(history.Tool, b))
	want := `{"role":"tool","status":"complete","content":[{"type":"tool_result","call_id":"c","content":"[withheld: wallet]","is_error":true,"redacted":{"category":"wallet","reason":"category"}}]}` + "\n"
	if got := show(kept.Messages[1:]); got != want {
		t.Errorf("kept %swant %s", got, want)
	}
}

// TestResultGoesByTheCallItAnswers holds T8: its own append first, then the record.
func TestResultGoesByTheCallItAnswers(t *testing.T) {
	found := func(name string, categories map[string]string) func(string, bool) ([]Found, error) {
		return func(string, bool) ([]Found, error) { return []Found{{name, categories}}, nil }
	}
	nothing := func(string, bool) ([]Found, error) { return nil, nil }
	broken := func(string, bool) ([]Found, error) { return nil, history.ErrTooFar }
	const payKept, paid, unknown = "", "wallet/category", "unknown/unknown_tool"
	for _, tt := range []struct {
		name   string
		find   func(string, bool) ([]Found, error)
		msgs   []history.Message
		strict string // how the last result is withheld
		lax    string // with unknown tools kept
	}{
		{"a call in the append", broken, []history.Message{calling("c", "pay", "{}"), answering("c", "x")}, paid, paid},
		{"a call in the record", found("pay", nil), []history.Message{answering("c", "x")}, paid, paid},
		{"a call in the record, in another case", found("PAY ", nil), []history.Message{answering("c", "x")}, paid, paid},
		{"what its append said", found("tool", map[string]string{"tool": "wallet"}), []history.Message{answering("c", "x")}, paid, paid},
		{"what its append said is not loosened", found("pay", map[string]string{"pay": "agent"}), []history.Message{answering("c", "x")}, paid, paid},
		{"what its append said makes known", found("tool", map[string]string{"tool": "misc"}), []history.Message{answering("c", "x")}, payKept, payKept},
		{"a call in the record that nobody knows", found("tool", nil), []history.Message{answering("c", "x")}, unknown, payKept},
		{"the append before the record", found("pay", nil), []history.Message{calling("c", "clock", "{}"), answering("c", "x")}, payKept, payKept},
		{"no call", nothing, []history.Message{answering("c", "x")}, unknown, payKept},
		{"no record", nil, []history.Message{answering("c", "x")}, unknown, payKept},
		{"no answer from the record", broken, []history.Message{answering("c", "x")}, "unknown/call_not_found", "unknown/call_not_found"},
		{"the nearest call of a repeated id", broken, []history.Message{calling("c", "pay", "{}"), answering("c", "x"), calling("c", "clock", "{}"), answering("c", "x")}, payKept, payKept},
		{"the nearest unanswered call of a repeated id", broken,
			[]history.Message{calling("c", "pay", "{}"), calling("c", "clock", "{}"), answering("c", "x"), answering("c", "x")}, paid, paid},
		{"one id twice in a message, the stricter holds", broken,
			[]history.Message{message(history.Assistant, call("c", "pay", "{}"), call("c", "clock", "{}")), answering("c", "x")}, paid, paid},
		{"a second answer", nothing, []history.Message{calling("c", "pay", "{}"), answering("c", "x"), answering("c", "x")}, paid, paid},
		{"a second answer that may be of the record", found("pay", nil), []history.Message{calling("c", "clock", "{}"), answering("c", "x"), answering("c", "x")}, paid, paid},
		{"a second answer of an open tool", nothing, []history.Message{calling("c", "clock", "{}"), answering("c", "x"), answering("c", "x")}, payKept, payKept},
	} {
		t.Run(tt.name, func(t *testing.T) {
			for unknownTools, want := range map[string]string{"redact": tt.strict, "keep": tt.lax} {
				p := policy(t, Options{UnknownTools: unknownTools, Tools: []Rule{{"clock", "misc"}}})
				r := Request{Categories: map[string]string{"pay": "wallet"}, FindCalls: tt.find}
				kept := keep(t, p, r, tt.msgs...)
				if got := mark(&kept.Messages[len(tt.msgs)-1].Content[0]); got != want {
					t.Errorf("unknown tools %s: withheld as %q, want %q", unknownTools, got, want)
				}
			}
		})
	}
}

// TestTheStrictestOfAllCandidatesHolds holds T8 where a result may answer several calls.
func TestTheStrictestOfAllCandidatesHolds(t *testing.T) {
	p := policy(t, Options{Tools: []Rule{{"pay", "wallet"}, {"clock", "misc"}, {"look", "misc"}}})
	const paid = "wallet/category"
	named := func(m history.Message, extra string) history.Message {
		m.Extra = raw(extra)
		return m
	}
	inResult := func(extra string) history.Message {
		b := result("c", "x")
		b.Extra = raw(extra)
		return message(history.Tool, b)
	}
	for _, tt := range []struct {
		name   string
		record []Found
		msgs   []history.Message
		want   string // how each result is withheld, one after the other
		all    bool   // the record is asked for every call
	}{
		{"several calls in the record", []Found{{Name: "clock"}, {Name: "pay"}}, []history.Message{answering("c", "x")}, paid, false},
		{"one call in the record", []Found{{Name: "clock"}}, []history.Message{answering("c", "x")}, "", false},
		{"several results ask for all", []Found{{Name: "clock"}, {Name: "pay"}}, []history.Message{answering("c", "x"), answering("c", "y")}, paid + " " + paid, true},
		{"one of several is of its own append", []Found{{Name: "clock"}}, []history.Message{answering("c", "x"), calling("c", "look", "{}"), answering("c", "y")}, " ", false},
		{"a second answer is of any call of the id", nil,
			[]history.Message{calling("c", "pay", "{}"), answering("c", "x"), calling("c", "clock", "{}"), answering("c", "y"), answering("c", "z")}, paid + "  " + paid, false},
		{"its message names another tool", []Found{{Name: "clock"}}, []history.Message{named(answering("c", "x"), `{"role":"function","name":"PAY"}`)}, paid, false},
		{"it names another tool itself", []Found{{Name: "clock"}}, []history.Message{inResult(`{"name":"pay"}`)}, paid, false},
		{"in another case", []Found{{Name: "clock"}}, []history.Message{inResult(`{"Name":"pay"}`)}, paid, false},
		{"another tool than the call of its append", nil, []history.Message{calling("c", "clock", "{}"), named(answering("c", "x"), `{"name":"pay"}`)}, paid, false},
		{"an unknown tool", nil, []history.Message{calling("c", "clock", "{}"), named(answering("c", "x"), `{"name":"tool"}`)}, "unknown/unknown_tool", false},
		{"the tool of its call", nil, []history.Message{calling("c", "clock", "{}"), named(answering("c", "x"), `{"name":"Clock"}`)}, "", false},
		{"the tool of a call that only its append knew", []Found{{"tool", map[string]string{"tool": "misc"}}}, []history.Message{named(answering("c", "x"), `{"name":"tool"}`)}, "", false},
		{"a name that is no string", nil, []history.Message{calling("c", "clock", "{}"), named(answering("c", "x"), `{"name":{"pay":1}}`)}, "", false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			all := false
			find := func(_ string, every bool) ([]Found, error) { all = every; return tt.record, nil }
			kept := keep(t, p, Request{FindCalls: find}, tt.msgs...)
			var marks []string
			for i := range kept.Messages {
				if kept.Messages[i].Role == history.Tool {
					marks = append(marks, mark(&kept.Messages[i].Content[0]))
				}
			}
			if got := strings.Join(marks, " "); got != tt.want || all != tt.all {
				t.Errorf("withheld as %q, all calls asked for: %v; want %q, %v", got, all, tt.want, tt.all)
			}
			again := keep(t, p, Request{FindCalls: find}, kept.Messages...)
			if got, want := show(again.Messages), show(kept.Messages); got != want {
				t.Errorf("kept again\n%swant\n%s", got, want)
			}
		})
	}
}

func TestAResultBeforeItsCallIsWithheldWithIt(t *testing.T) {
	p := policy(t, Options{UnknownTools: "keep"})
	kept := keep(t, p, wallet, answering("c", "secret"), calling("c", "pay", "{}"))
	if got := mark(&kept.Messages[0].Content[0]); got != "wallet/category" {
		t.Errorf("withheld as %q", got)
	}
}

func TestTheRecordIsAskedOnceForAnId(t *testing.T) {
	asked := 0
	find := func(string, bool) ([]Found, error) { asked++; return nil, errors.New("gone") }
	keep(t, policy(t, Options{}), Request{FindCalls: find}, answering("c", "x"), answering("c", "x"))
	if asked != 1 {
		t.Errorf("asked %d times", asked)
	}
}

// TestWhatStandsBesideAWithheldPart holds that a copy of it does not get around it.
func TestWhatStandsBesideAWithheldPart(t *testing.T) {
	opaque := func(data string) history.Block {
		return history.Block{Type: history.OpaqueBlock, Provider: "p", Opaque: raw(data)}
	}
	thinking := func(text string) history.Block { return history.Block{Type: history.ThinkingBlock, Text: text} }
	secret := call("c", "pay", `{"pin":"hunter2"}`)
	annotated := history.Text("I pay with hunter2.")
	annotated.Extra = raw(`{"call":"hunter2"}`)
	plain := history.Text("I pay with hunter2.")
	for _, tt := range []struct {
		name    string
		in      history.Message
		want    history.Message
		changes []Change // after the one of the call or result
	}{
		{"an opaque copy", message(history.Assistant, opaque(`{"in":"\u0068unter2"}`), secret), message(history.Assistant, secret),
			[]Change{{Block: 0, Action: "dropped", Category: "wallet", Reason: "echo"}}},
		{"something else opaque", message(history.Assistant, secret, opaque(`{"in":"x"}`)), message(history.Assistant, secret, opaque(`{"in":"x"}`)), nil},
		{"thinking of it", message(history.Assistant, thinking("the PIN is hunter2"), secret), message(history.Assistant, secret),
			[]Change{{Block: 0, Action: "dropped", Category: "wallet", Reason: "echo"}}},
		{"thinking of something else", message(history.Assistant, thinking("hm"), secret), message(history.Assistant, thinking("hm"), secret), nil},
		{"its text stays, what is around it goes", message(history.Assistant, annotated, secret), message(history.Assistant, plain, secret),
			[]Change{{Block: 0, Action: "dropped", Category: "wallet", Reason: "echo"}}},
		{"unknown members", with(message(history.Assistant, secret), func(m *history.Message) { m.Extra = raw(`{"n":1}`) }), message(history.Assistant, secret),
			[]Change{{Block: -1, Action: "dropped", Category: "wallet", Reason: "category"}}},
		{"metadata that repeat it", with(message(history.Assistant, secret), func(m *history.Message) { m.Metadata = raw(`{"config":{"api_key":"hunter2"}}`) }), message(history.Assistant, secret),
			[]Change{{Block: -1, Action: "dropped", Category: "wallet", Reason: "echo"}}},
		{"metadata that do not", with(message(history.Assistant, secret), func(m *history.Message) { m.Metadata = raw(`{"n":1}`) }),
			with(message(history.Assistant, secret), func(m *history.Message) { m.Metadata = raw(`{"n":1}`) }), nil},
		{"usage that repeats it", with(message(history.Assistant, secret), func(m *history.Message) { m.Usage = raw(`{"hunter2":1}`) }), message(history.Assistant, secret),
			[]Change{{Block: -1, Action: "dropped", Category: "wallet", Reason: "echo"}}},
		{"metadata that repeat a result", with(answering("c", "balance: 12.50"), func(m *history.Message) { m.Metadata = raw(`{"raw":"balance: 12.50"}`) }), answering("c", "balance: 12.50"),
			[]Change{{Block: -1, Action: "dropped", Category: "wallet", Reason: "echo"}}},
		{"an opaque copy of a result", message(history.Tool, opaque(`["balance: 12.50"]`), result("c", "balance: 12.50")), answering("c", "balance: 12.50"),
			[]Change{{Block: 0, Action: "dropped", Category: "wallet", Reason: "echo"}}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p := policy(t, Options{})
			before := calling("c", "pay", `{"pin":"hunter2"}`)
			kept := keep(t, p, wallet, before, tt.in)
			want := keep(t, p, wallet, before, tt.want)
			if got, want := show(kept.Messages), show(want.Messages); got != want {
				t.Errorf("kept\n%swant\n%s", got, want)
			}
			var changes []Change
			for _, c := range kept.Changes {
				if c.Action == "dropped" {
					c.Message = 0
					changes = append(changes, c)
				}
			}
			if len(changes) != len(tt.changes) || len(changes) > 0 && changes[0] != tt.changes[0] {
				t.Errorf("dropped %+v, want %+v", changes, tt.changes)
			}
		})
	}
}

// TestNoMessageRepeatsWhatIsWithheld holds that the place of a copy does not matter.
func TestNoMessageRepeatsWhatIsWithheld(t *testing.T) {
	p := policy(t, Options{})
	annotated := history.Text("hunter2")
	annotated.Extra = raw(`{"a":"hunter2"}`)
	signed := call("d", "open", `{"pin":"hunter2"}`)
	open := signed
	signed.Extra = raw(`{"a":"hunter2"}`)
	answer := message(history.Assistant, history.Text("hunter2"))
	alone := func(role history.Role) history.Message {
		return message(role, history.Block{Type: history.OpaqueBlock, Provider: "historyd", Opaque: raw(`{"_withheld":"wallet"}`)})
	}
	opaque := history.Block{Type: history.OpaqueBlock, Provider: "p", Opaque: raw(`["hunter2"]`)}
	for _, tt := range []struct {
		name     string
		in, want history.Message
	}{
		{"metadata of an answer", with(answer, func(m *history.Message) { m.Metadata = raw(`{"a":"hunter2"}`) }), answer},
		{"metadata of a user", with(said("hi"), func(m *history.Message) { m.Metadata = raw(`{"a":"\u0068unter2"}`) }), said("hi")},
		{"metadata that repeat a result", with(said("hi"), func(m *history.Message) { m.Metadata = raw(`{"a":"balance 12.50"}`) }), said("hi")},
		{"unknown members", with(answer, func(m *history.Message) { m.Extra = raw(`{"a":"hunter2"}`) }), answer},
		{"other unknown members", with(answer, func(m *history.Message) { m.Extra = raw(`{"a":"hunter"}`) }), with(answer, func(m *history.Message) { m.Extra = raw(`{"a":"hunter"}`) })},
		{"unknown members of a text", message(history.User, annotated), message(history.User, history.Text("hunter2"))},
		{"unknown members of an open call", message(history.Assistant, signed), message(history.Assistant, open)},
		{"a model", with(answer, func(m *history.Message) { m.Model = "my-hunter2-model" }), answer},
		{"a provider", with(answer, func(m *history.Message) { m.Provider = "hunter2" }), answer},
		{"thinking", message(history.Assistant, history.Block{Type: history.ThinkingBlock, Text: "so hunter2"}, history.Text("ok")), message(history.Assistant, history.Text("ok"))},
		{"nothing but thinking", message(history.Assistant, history.Block{Type: history.ThinkingBlock, Text: "t", Signature: "hunter2"}), alone(history.Assistant)},
		{"nothing but something opaque", message(history.Tool, opaque), alone(history.Tool)},
		{"something opaque of a user", message(history.User, history.Text("hi"), opaque), said("hi")},
		{"the provider of something opaque", message(history.System, history.Block{Type: history.OpaqueBlock, Provider: "hunter2", Opaque: raw(`1`)}, history.Text("hi")), message(history.System, history.Text("hi"))},
	} {
		t.Run(tt.name, func(t *testing.T) {
			around := []history.Message{calling("c", "pay", `{"pin":"hunter2"}`), answering("c", "balance 12.50")}
			for at := range 3 {
				in := slices.Insert(slices.Clone(around), at, tt.in)
				kept := keep(t, p, wallet, in...)
				if got, want := show(kept.Messages[at:at+1]), show([]history.Message{tt.want}); got != want {
					t.Errorf("at %d: kept %swant %s", at, got, want)
				}
				if _, err := history.ParseStored(history.AppendMessage(nil, &kept.Messages[at])); err != nil {
					t.Errorf("at %d: cannot be read back: %v", at, err)
				}
				if again := keep(t, p, wallet, kept.Messages...); show(again.Messages) != show(kept.Messages) {
					t.Errorf("at %d: kept again %s", at, show(again.Messages))
				}
			}
		})
	}
}

func TestAValueSpreadOverTextsOfAResultIsWithheld(t *testing.T) {
	const m = "[withheld: wallet]"
	image := history.Block{Type: history.ImageBlock, MediaType: "image/png", URL: "https://h.example/x.png"}
	texts := func(list ...string) (blocks []history.Block) {
		for _, s := range list {
			blocks = append(blocks, history.Text(s))
		}
		return blocks
	}
	for _, tt := range []struct {
		name     string
		in, want []history.Block
	}{
		{"two", texts("PIN hun", "ter2 ok", "end"), texts(m, m, "end")},
		{"three", texts("PIN h", "unter", "", "2 ok"), texts(m, m, "", m)},
		{"beside others", texts("hunter2 is hun", "ter2", "hunter2!"), texts(m, m, m+"!")},
		{"an image between", []history.Block{history.Text("hun"), image, history.Text("ter2")}, []history.Block{history.Text(m), image, history.Text(m)}},
		{"escapes", texts(`"\u00`, `68unter2"`), texts(m, m)},
		{"whole ones that meet", texts("x hunter2", "hunter2 y"), texts("x "+m, m+" y")},
		{"only parts", texts("hun", "ted"), texts("hun", "ted")},
	} {
		t.Run(tt.name, func(t *testing.T) {
			kept := keep(t, policy(t, Options{}), wallet, calling("c", "pay", `{"x":"hunter2"}`), calling("d", "open", "{}"), message(history.Tool, resultOf("d", tt.in...)))
			if got, want := show(kept.Messages[2:]), show([]history.Message{message(history.Tool, resultOf("d", tt.want...))}); got != want {
				t.Errorf("kept %swant %s", got, want)
			}
		})
	}
}

func with(m history.Message, alter func(*history.Message)) history.Message {
	alter(&m)
	return m
}

// TestClaimsOfAnImport holds that a mark counts only on what is really withheld or cut.
func TestClaimsOfAnImport(t *testing.T) {
	p := policy(t, Options{MaxToolResultChars: 200})
	claimed := func(b history.Block, category, reason string) history.Block {
		b.Redacted = &history.Redaction{Category: category, Reason: reason}
		return b
	}
	cutClaimed := func(b history.Block) history.Block {
		b.Truncated = &history.Truncation{OriginalChars: 5000, OriginalBytes: 5000}
		return b
	}
	nested := resultOf("o", claimed(history.Text("abc"), "wallet", "category"))
	for _, tt := range []struct {
		name string
		in   history.Block
		want history.Block
	}{
		{"a withheld call", claimed(call("c", "pay", `{"_withheld":"wallet"}`), "wallet", "category"), claimed(call("c", "pay", `{"_withheld":"wallet"}`), "wallet", "category")},
		{"under another of our labels", claimed(call("c", "pay", `{"_withheld":"unknown"}`), "unknown", "unknown_tool"), claimed(call("c", "pay", `{"_withheld":"unknown"}`), "unknown", "unknown_tool")},
		{"a value as a label", claimed(call("c", "pay", `{"_withheld":"hunter2"}`), "hunter2", "category"), claimed(call("c", "pay", `{"_withheld":"wallet"}`), "wallet", "category")},
		{"a value as a reason", claimed(call("c", "pay", `{"_withheld":"wallet"}`), "wallet", "hunter2"), claimed(call("c", "pay", `{"_withheld":"wallet"}`), "wallet", "category")},
		{"an empty label", claimed(call("c", "pay", `{"_withheld":""}`), "", "category"), claimed(call("c", "pay", `{"_withheld":"wallet"}`), "wallet", "category")},
		{"a claim on arguments", claimed(call("c", "pay", `{"a":1}`), "wallet", "category"), claimed(call("c", "pay", `{"_withheld":"wallet"}`), "wallet", "category")},
		{"a foreign mark of an open tool", claimed(call("c", "open", `{"_withheld":"medical"}`), "medical", "category"), claimed(call("c", "open", `{"_withheld":"medical"}`), "medical", "category")},
		{"a claim on arguments of an open tool", claimed(call("c", "open", `{"a":1}`), "wallet", "category"), call("c", "open", `{"a":1}`)},
		{"a withheld result", claimed(result("p", "[withheld: wallet]"), "wallet", "category"), claimed(result("p", "[withheld: wallet]"), "wallet", "category")},
		{"a value as the label of a result", claimed(result("p", "[withheld: hunter2]"), "hunter2", "category"), claimed(result("p", "[withheld: wallet]"), "wallet", "category")},
		{"a claim on a result", claimed(result("p", "balance"), "wallet", "category"), claimed(result("p", "[withheld: wallet]"), "wallet", "category")},
		{"a mark on a result of an open tool", claimed(result("o", "[withheld: wallet]"), "wallet", "category"), claimed(result("o", "[withheld: wallet]"), "wallet", "category")},
		{"a claim on a result of an open tool", claimed(result("o", "sunny"), "wallet", "category"), result("o", "sunny")},
		{"a claim inside a result", nested, resultOf("o", history.Text("abc"))},
		{"a claim on text", claimed(history.Text("abc"), "wallet", "category"), history.Text("abc")},
		{"cut, but without a marker", cutClaimed(result("o", "sunny")), result("o", "sunny")},
		{"cut, with a marker", cutClaimed(result("o", "sun"+marker(4990)+"ny")), cutClaimed(result("o", "sun"+marker(4990)+"ny"))},
		{"cut text", cutClaimed(history.Text("abc")), history.Text("abc")},
	} {
		t.Run(tt.name, func(t *testing.T) {
			role := map[history.BlockType]history.Role{history.ToolCall: history.Assistant, history.ToolResult: history.Tool, history.TextBlock: history.User}[tt.in.Type]
			calls := message(history.Assistant, call("p", "pay", "{}"), call("o", "open", "{}"))
			in := []history.Message{calls, message(role, tt.in)}
			kept := keep(t, p, wallet, in...)
			got, want := show(kept.Messages[1:]), show([]history.Message{message(role, tt.want)})
			if got != want {
				t.Errorf("kept %swant %s", got, want)
			}
			if told, altered := len(kept.Changes) > 1, got != show(in[1:]); told != altered {
				t.Errorf("altered is %v, but Changes = %+v", altered, kept.Changes)
			}
		})
	}
}

func TestKeepLeavesItsInputAlone(t *testing.T) {
	msgs := []history.Message{
		said("hi"),
		with(calling("c", "pay", `{"pin":"hunter2"}`), func(m *history.Message) { m.Extra = raw(`{"a":1}`) }),
		message(history.Tool, resultOf("d", history.Text("hunter2 "+strings.Repeat("x", 5000))), result("c", "hunter2")),
	}
	before := show(msgs)
	keep(t, policy(t, Options{UnknownTools: "keep"}), wallet, msgs...)
	if got := show(msgs); got != before {
		t.Errorf("input became\n%swas\n%s", got, before)
	}
}

func TestWhatPeopleAndModelsSayIsNotAltered(t *testing.T) {
	msgs := []history.Message{
		said("my PIN is hunter2"),
		message(history.Assistant, history.Text("hunter2, "+strings.Repeat("very long ", 1000)), call("c", "pay", `{"pin":"hunter2"}`), call("d", "open", `{"pin":"hunter2"}`)),
		message(history.System, history.Text("hunter2")),
	}
	kept := keep(t, policy(t, Options{}), wallet, msgs...)
	for i := range msgs {
		for j, b := range msgs[i].Content {
			if b.ID == "c" {
				continue
			}
			if got := string(history.AppendBlock(nil, &kept.Messages[i].Content[j])); got != string(history.AppendBlock(nil, &b)) {
				t.Errorf("message %d block %d became %s", i, j, got)
			}
		}
	}
}

// That a call came without an id is said by three constants, and nothing else goes with them.
func TestTheMarkOfNoIDStaysBesideWhatIsWithheld(t *testing.T) {
	p := policy(t, Options{})
	for _, tt := range []struct{ extra, want string }{
		{`{"_gemini":{"id":false}}`, `{"_gemini":{"id":false}}`},
		{`{"name":"pay","_gemini":{"response":"json","id":null,"level":{"a":"hunter2"}},"a":"hunter2"}`, `{"_gemini":{"id":null}}`},
		{`{"_gemini":{"id":""}}`, `{"_gemini":{"id":""}}`},
		{`{"_gemini":{"id":"hunter2"}}`, ``}, {`{"_gemini":{"id":true}}`, ``}, {`{"_gemini":{"id":{"a":"hunter2"}}}`, ``}, {`{"_gemini":"hunter2"}`, ``}, {`{"id":false}`, ``},
	} {
		c, open, r := call("c", "pay", `{"pin":"hunter2","words":["_gemini","false"]}`), call("d", "open", `{}`), result("c", "balance: 12.50")
		for _, b := range []*history.Block{&c, &open, &r} {
			b.Extra = raw(tt.extra)
		}
		kept := keep(t, p, wallet, message(history.Assistant, c, open), message(history.Tool, r))
		for _, b := range []history.Block{kept.Messages[0].Content[0], kept.Messages[1].Content[0]} {
			if string(b.Extra) != tt.want {
				t.Errorf("beside a withheld %s stays %s of %s, want %s", b.Type, b.Extra, tt.extra, tt.want)
			}
		}
		if got := string(kept.Messages[0].Content[1].Extra); strings.Contains(got, "hunter2") || tt.want != "" && got != tt.want {
			t.Errorf("beside an open call stays %s of %s, want %s", got, tt.extra, tt.want)
		}
		if again := keep(t, p, wallet, kept.Messages...); show(again.Messages) != show(kept.Messages) || len(again.Changes) > 0 {
			t.Errorf("kept again %s changes %+v", show(again.Messages), again.Changes)
		}
	}
}
