package projection

import (
	"encoding/json/jsontext"
	"errors"
	"strings"
	"testing"

	"historyd/internal/history"
)

func policy(t testing.TB, o Options) *Policy {
	t.Helper()
	p, err := New(o)
	if err != nil {
		t.Fatalf("New(%+v): %v", o, err)
	}
	return p
}

func keep(t testing.TB, p *Policy, r Request, msgs ...history.Message) Kept {
	t.Helper()
	kept, err := p.Keep(msgs, r)
	if err != nil {
		t.Fatalf("Keep: %v", err)
	}
	return kept
}

func message(role history.Role, blocks ...history.Block) history.Message {
	m := history.Message{Role: role, Status: history.Complete, Content: blocks}
	if role == history.User {
		m.Kind = history.Person
	}
	return m
}

// said is a user message of one text.
func said(text string) history.Message { return message(history.User, history.Text(text)) }

// calling is an assistant message of one call.
func calling(id, tool, arguments string) history.Message {
	return message(history.Assistant, call(id, tool, arguments))
}

// answering is a tool message of one result.
func answering(id, text string) history.Message { return message(history.Tool, result(id, text)) }

func call(id, tool, arguments string) history.Block {
	b := history.Block{Type: history.ToolCall, ID: id, Name: tool}
	b.SetArguments(arguments)
	return b
}

func result(id, text string) history.Block {
	return history.Block{Type: history.ToolResult, CallID: id, Plain: true, Content: []history.Block{history.Text(text)}}
}

// resultOf is a result of several blocks.
func resultOf(id string, blocks ...history.Block) history.Block {
	return history.Block{Type: history.ToolResult, CallID: id, Content: blocks}
}

func raw(s string) jsontext.Value { return jsontext.Value(s) }

// show writes messages as they would be stored, one a line.
func show(msgs []history.Message) string {
	var s []byte
	for i := range msgs {
		s = append(history.AppendMessage(s, &msgs[i]), '\n')
	}
	return string(s)
}

func TestNewNamesTheWrongField(t *testing.T) {
	for _, tt := range []struct {
		name string
		in   Options
		want string // the beginning of the error
	}{
		{"the limit has no room for a marker", Options{MaxToolResultChars: 199}, "MaxToolResultChars:"},
		{"the limit is negative", Options{MaxToolResultChars: -1}, "MaxToolResultChars:"},
		{"no such way with unknown tools", Options{UnknownTools: "drop"}, "UnknownTools:"},
		{"a category without a name", Options{Withhold: []Withhold{{" ", true, true}}}, "Withhold[0].Category:"},
		{"a category of two lines", Options{Withhold: []Withhold{{"a\nb", true, true}}}, "Withhold[0].Category:"},
		{"a category too long for a marker", Options{Withhold: []Withhold{{strings.Repeat("é", 129), true, true}}}, "Withhold[0].Category:"},
		{"a category twice", Options{Withhold: []Withhold{{"a", true, true}, {"A ", true, false}}}, "Withhold[1].Category:"},
		{"a rule without a match", Options{Tools: []Rule{{"x", "a"}, {" ", "a"}}}, "Tools[1].Match:"},
		{"a rule with * before its end", Options{Tools: []Rule{{"*_wallet", "wallet"}}}, "Tools[0].Match:"},
		{"a rule with * in it and at its end", Options{Tools: []Rule{{"pay*now*", "wallet"}}}, "Tools[0].Match:"},
		{"a rule without a category", Options{Tools: []Rule{{"x", ""}}}, "Tools[0].Category:"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, err := New(tt.in)
			var wrong *FieldError
			if !errors.As(err, &wrong) || wrong.Field+":" != tt.want || !strings.HasPrefix(err.Error(), tt.want+" ") {
				t.Errorf("New(%+v) = %v, want %s …", tt.in, err, tt.want)
			}
		})
	}
}

func TestFoldMakesNamesAlikeThatDifferInCase(t *testing.T) {
	for _, tt := range []struct {
		a, b string
		want bool
	}{
		{"Wallet_Send", " wallet_send\t", true},
		{"PASSWORD ", "pass\u0077ord", true},
		{"K", "\u212a", true},        // the sign for kelvin
		{"ſend", "SEND", true},       // long s
		{"ΣΑΣ", "σας", true},         // final sigma
		{"straße", "STRASSE", false}, // simple folding keeps the length
		{"wallet send", "wallet_send", false},
	} {
		if got := fold(tt.a) == fold(tt.b); got != tt.want {
			t.Errorf("fold(%q) == fold(%q) is %v, want %v", tt.a, tt.b, got, tt.want)
		}
	}
}

// TestCategoryOfATool holds the order in which a tool gets its category (T7).
func TestCategoryOfATool(t *testing.T) {
	options := Options{
		Withhold: []Withhold{{"wallet", true, true}, {"files", true, true}, {"in", true, false}, {"out", false, true}, {"open", false, false}},
		Tools: []Rule{
			{"Wallet_Balance", "open"}, {"wallet_*", "wallet"}, {"read", "in"}, {"fetch", "out"}, {"clock", "misc"},
			{"READ", "files"}, // never reached
		},
	}
	withheld := func(category string) string { return category + "/category" }
	const unknown = "unknown/unknown_tool"
	for _, tt := range []struct {
		name       string
		tool       string
		categories map[string]string
		arguments  string // category and reason, "" for kept
		results    string
	}{
		{"the server knows it", "wallet_send", nil, withheld("wallet"), withheld("wallet")},
		{"in another case, with space", " WALLET_send ", nil, withheld("wallet"), withheld("wallet")},
		{"the first match wins", "wallet_balance", nil, "", ""},
		{"a category that withholds arguments", "read", nil, withheld("in"), ""},
		{"a category that withholds results", "fetch", nil, "", withheld("out")},
		{"a category that is not listed", "clock", nil, "", ""},
		{"nobody knows it", "wallets", nil, unknown, unknown},
		{"a tool without a name", "", nil, unknown, unknown},
		{"the request adds", "send", map[string]string{"send": "wallet"}, withheld("wallet"), withheld("wallet")},
		{"the label is the server's spelling", "send", map[string]string{" SEND ": " Wallet "}, withheld("wallet"), withheld("wallet")},
		{"any category counts as known", "send", map[string]string{"send": "weather"}, "", ""},
		{"an empty category says nothing", "send", map[string]string{"send": " "}, unknown, unknown},
		{"the request cannot loosen", "wallet_send", map[string]string{"wallet_send": "open"}, withheld("wallet"), withheld("wallet")},
		{"the request tightens one part", "read", map[string]string{"read": "files"}, withheld("in"), withheld("files")},
		{"the request tightens a kept tool", "clock", map[string]string{"clock": "files"}, withheld("files"), withheld("files")},
		{"exact beats prefix", "send_all", map[string]string{"send_all": "open", "send_*": "wallet"}, "", ""},
		{"the longest prefix wins", "send_all", map[string]string{"send*": "wallet", "Send_*": "open", "*": "files"}, "", ""},
		{"a shorter prefix is met", "sending", map[string]string{"send*": "wallet", "send_*": "open"}, withheld("wallet"), withheld("wallet")},
		{"the rest names unknown ones", "send", map[string]string{"*": "wallet"}, withheld("wallet"), withheld("wallet")},
		{"the rest makes known", "send", map[string]string{"*": "agent"}, "", ""},
		{"the rest is not of what the request names", "send", map[string]string{"send": "open", "*": "wallet"}, "", ""},
		{"the rest is not of what the server names", "clock", map[string]string{"*": "wallet"}, "", ""},
		{"two cases of one name, the stricter holds", "send", map[string]string{"send": "open", "Send": "in", "SEND": "out"}, withheld("in"), withheld("out")},
		{"the rest does not make known what has no name", " ", map[string]string{"*": "agent"}, unknown, unknown},
		{"nor does that name", "", map[string]string{"": "agent"}, unknown, unknown},
		{"but it tightens", "", map[string]string{"*": "in"}, withheld("in"), unknown},
		{"a star inside is a letter", "wal*let", map[string]string{"wal*let": "open", "wal*": "wallet"}, "", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			kept := keep(t, policy(t, options), Request{Categories: tt.categories}, calling("c", tt.tool, `{"n":1}`), answering("c", "ok"))
			b := kept.Messages[0].Content[0]
			if got := mark(&b); got != tt.arguments {
				t.Errorf("arguments withheld as %q, want %q", got, tt.arguments)
			}
			if b.ID != "c" || b.Name != tt.tool {
				t.Errorf("id, name = %q, %q, want c, %q", b.ID, b.Name, tt.tool)
			}
			if got := mark(&kept.Messages[1].Content[0]); got != tt.results {
				t.Errorf("result withheld as %q, want %q", got, tt.results)
			}
			lax := options
			lax.UnknownTools = "keep"
			kept = keep(t, policy(t, lax), Request{Categories: tt.categories}, calling("c", tt.tool, `{"n":1}`), answering("c", "ok"))
			for i, want := range []string{tt.arguments, tt.results} {
				want = strings.TrimPrefix(want, unknown)
				if got := mark(&kept.Messages[i].Content[0]); got != want {
					t.Errorf("with unknown tools kept, message %d withheld as %q, want %q", i, got, want)
				}
			}
		})
	}
}

func TestACallWithoutANameIsUnknownToTheServerToo(t *testing.T) {
	p := policy(t, Options{Tools: []Rule{{"*", "misc"}}})
	kept := keep(t, p, Request{}, calling("c", "", "{}"), answering("c", "x"))
	for i := range kept.Messages {
		if got := mark(&kept.Messages[i].Content[0]); got != "unknown/unknown_tool" {
			t.Errorf("message %d withheld as %q", i, got)
		}
	}
}

// mark returns how a block is marked as redacted.
func mark(b *history.Block) string {
	if b.Redacted == nil {
		return ""
	}
	return b.Redacted.Category + "/" + b.Redacted.Reason
}

func TestWalletAndFilesAreWithheldByDefault(t *testing.T) {
	p := policy(t, Options{})
	for _, category := range []string{"wallet", "files"} {
		kept := keep(t, p, Request{Categories: map[string]string{"*": category}}, calling("c", "f", `{}`), answering("c", "ok"))
		for i := range kept.Messages {
			if got, want := mark(&kept.Messages[i].Content[0]), category+"/category"; got != want {
				t.Errorf("message %d withheld as %q, want %q", i, got, want)
			}
		}
	}
	kept := keep(t, policy(t, Options{Withhold: []Withhold{}}), Request{Categories: map[string]string{"*": "wallet"}}, calling("c", "f", `{}`))
	if got := mark(&kept.Messages[0].Content[0]); got != "" {
		t.Errorf("with an empty list, withheld as %q", got)
	}
}

func TestALongCategoryIsRefusedWithoutItsName(t *testing.T) {
	_, err := policy(t, Options{}).Keep(nil, Request{Categories: map[string]string{"f": strings.Repeat("secret", 30)}})
	faults, ok := err.(*history.Faults)
	if !ok || len(faults.List) != 1 || faults.List[0].Path != "tool_categories" || strings.Contains(err.Error(), "secret") {
		t.Errorf("Keep = %v, want one fault at tool_categories", err)
	}
}

func TestCategoriesOfCalledToolsAreRemembered(t *testing.T) {
	p := policy(t, Options{Withhold: []Withhold{{"in", true, false}, {"out", false, true}}, Tools: []Rule{{"clock", "misc"}}})
	categories := map[string]string{"a*": "Weather ", "b": "OUT", "c": "in", "C": "out", "*": "agent", "unused": "x"}
	kept := keep(t, p, Request{Categories: categories},
		message(history.Assistant, call("1", "Abc", "{}"), call("2", "b", "{}"), call("3", "c", "{}"), call("4", "d", "{}"), call("5", "clock", "{}")))
	want := map[string]string{"Abc": "Weather", "b": "out", "c": "out", "d": "agent"}
	if len(kept.Categories) != len(want) {
		t.Errorf("Categories = %v, want %v", kept.Categories, want)
	}
	for tool, category := range want {
		if got := kept.Categories[tool]; got != category {
			t.Errorf("Categories[%q] = %q, want %q", tool, got, category)
		}
	}
	if kept := keep(t, p, Request{}, calling("1", "f", "{}")); kept.Categories != nil {
		t.Errorf("Categories = %v, want nil", kept.Categories)
	}
}
