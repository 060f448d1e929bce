package projection

import (
	"strings"
	"testing"
	"unicode/utf8"

	"historyd/internal/history"
	"historyd/internal/strictjson"
)

// FuzzKeep takes any import through the rules: what comes out can be stored, read
// back, and taken through them again without a change.
func FuzzKeep(f *testing.F) {
	f.Add(`[{"role":"assistant","content":[{"type":"tool_call","id":"c","name":"pay","arguments":{"pin":"hunter2"}}]},{"role":"tool","content":[{"type":"tool_result","call_id":"c","content":"hunter2"}]}]`, "pay", "wallet")
	f.Add(`[{"role":"assistant","content":[{"type":"tool_call","id":"c","name":"x","arguments_text":"{\"a\":\"hun\\u0074er2\",}"},{"type":"thinking","text":"hunter2"}],"metadata":{"a":"hunter2"}},{"role":"tool","content":[{"type":"tool_result","call_id":"d","content":[{"type":"text","text":"%68unter2 \\u0068unter2"}],"truncated":{"original_chars":9}}]}]`, "*", "agent")
	f.Add(`[{"role":"tool","content":[{"type":"tool_result","call_id":"d","content":"a\n[... 999999999999999999 characters cut by historyd; the full text is not stored ...]\nb","truncated":{"original_chars":9,"original_bytes":9}}]}]`, "a*", "files")
	f.Add(`[{"role":"assistant","content":[{"type":"opaque","provider":"p","data":{"type":"mcp_tool_use","id":"m","name":"pay","input":{"pin":"hunter2"}}},{"type":"opaque","provider":"p","data":{"type":"mcp_tool_result","tool_use_id":"m","content":"hunter2"}},{"type":"opaque","provider":"p","data":{"type":"web_search_call"}}]}]`, "web*", "files")
	p := policy(f, Options{MaxToolResultChars: 200, Withhold: []Withhold{{"wallet", true, false}, {"files", true, true}}, Tools: []Rule{{"pay", "wallet"}}})
	f.Fuzz(func(t *testing.T, doc, tool, category string) {
		if strictjson.Check([]byte(doc)) != nil || strictjson.Document([]byte(doc)).Kind() != '[' {
			return
		}
		var faults history.Faults
		var msgs []history.Message
		for _, v := range strictjson.Document([]byte(doc)).Elements() {
			msgs = append(msgs, history.ParseMessage(v, "m", history.ImportDoor, &faults))
		}
		if faults.Err() != nil {
			return
		}
		before := show(msgs)
		r := Request{Categories: map[string]string{tool: category}}
		kept, err := p.Keep(msgs, r)
		if err != nil {
			return
		}
		if show(msgs) != before {
			t.Fatal("the input was altered")
		}
		for i := range kept.Messages {
			stored := history.AppendMessage(nil, &kept.Messages[i])
			if err := strictjson.Check(stored); err != nil {
				t.Fatalf("%v in %s", err, stored)
			}
			back, err := history.ParseStored(stored)
			if err != nil {
				t.Fatalf("%v in %s", err, stored)
			}
			Text(&back)
		}
		again, err := p.Keep(kept.Messages, r)
		if err != nil || len(again.Changes) > 0 || show(again.Messages) != show(kept.Messages) {
			t.Fatalf("kept\n%sand again, %v,\n%s%+v", show(kept.Messages), err, show(again.Messages), again.Changes)
		}
	})
}

// FuzzCut cuts any text: the outcome is within the limit, never longer, of whole
// code points, says how much is gone, and is cut no further.
func FuzzCut(f *testing.F) {
	f.Add(strings.Repeat("x", 201), "", uint16(0))
	f.Add(strings.Repeat("x", 199)+"🎉", "y", uint16(1))
	f.Add(strings.Repeat("e\u0301", 300), marker(5), uint16(400))
	f.Add(strings.Repeat("👩‍👩‍👧", 100), strings.Repeat("🇫🇷", 100), uint16(30))
	f.Fuzz(func(t *testing.T, a, b string, more uint16) {
		if !utf8.ValidString(a) || !utf8.ValidString(b) {
			return
		}
		limit := minToolResultChars + int(more%1000)
		in := resultOf("c", history.Text(a), history.Text(b))
		got, _ := cutResult(t, limit, in)
		text := textOf(&got)
		if len(text) > len(a+b) || !utf8.ValidString(text) {
			t.Fatalf("%d bytes became %d", len(a+b), len(text))
		}
		if chars(a+b) <= int64(limit) {
			if text != a+b || got.Truncated != nil {
				t.Fatal("altered")
			}
			return
		}
		gone := measure(&got).gone
		head, tail, _ := strings.Cut(text, marker(gone))
		if chars(text) > int64(limit) || got.Truncated.OriginalChars != chars(a+b) || chars(head)+chars(tail)+gone != chars(a+b) && !strings.Contains(a+b, marker(gone)) ||
			!strings.HasPrefix(a+b, head) || !strings.HasSuffix(a+b, tail) {
			t.Fatalf("%d characters, %d gone, of %d, in %q", chars(text), gone, chars(a+b), text)
		}
		if again, changes := cutResult(t, limit, got); textOf(&again) != text || changes != nil {
			t.Fatalf("cut again: %q", textOf(&again))
		}
	})
}
