package historytest

import (
	"encoding/json/jsontext"
	"fmt"
	"testing"

	"historyd/internal/history"
)

var calls = []one{
	{"a call is found with the note of its append", callWithNote},
	{"the newest call of an id is found", newestCall},
	{"only calls are found", onlyCalls},
	{"strange ids are found", strangeIDs},
	{"a call 1,000 messages back is found", lookBack},
	{"an imported call is found", importedCall},
}

func wantCall(t tb, l history.Log, id, name, note string) {
	t.Helper()
	got, err := l.FindCall(background, id)
	if err != nil || got.Name != name || string(got.Note) != note {
		t.Fatalf("FindCall(%q) = %q with note %s, %v; want %q with note %s", id, got.Name, got.Note, err, name, note)
	}
}

func callWithNote(t *testing.T, e Engine) {
	l := e.Log("ann", "default")
	for i := range 20 {
		b := history.Batch{Messages: []history.Message{person("q"), call(fmt.Sprint("c", i), fmt.Sprint("f", i))}}
		if i%2 == 0 {
			b.Note = jsontext.Value(fmt.Sprintf(`{"i":%d}`, i))
		}
		mustAppend(t, l, b)
	}
	for range 2 {
		wantCall(t, l, "c19", "f19", "")
		wantCall(t, l, "c18", "f18", `{"i":18}`)
		wantCall(t, l, "c0", "f0", `{"i":0}`)
		_, err := l.FindCall(background, "c20")
		wantError(t, "FindCall", err, history.ErrNotFound)
		_, err = e.Log("ann", "other").FindCall(background, "c0")
		wantError(t, "FindCall in another conversation", err, history.ErrNotFound)
		reopen(t, e)
		l = e.Log("ann", "default")
	}
}

func newestCall(t *testing.T, e Engine) {
	l := e.Log("ann", "default")
	two := history.Message{Role: history.Assistant, Status: history.Complete, Content: []history.Block{
		{Type: history.ToolCall, ID: "c", Name: "f2", Arguments: jsontext.Value(`{}`)},
		{Type: history.ToolCall, ID: "c", Name: "f3", Arguments: jsontext.Value(`{}`)},
	}}
	for i, msgs := range [][]history.Message{
		{call("c", "f0")}, {call("c", "f0"), call("c", "f1")}, {person("between")}, {two}, {person("c")}, {call("d", "c")},
	} {
		mustAppend(t, l, history.Batch{Messages: msgs, Note: jsontext.Value(fmt.Sprint(i))})
		want := []string{"f0", "f1", "f1", "f3", "f3", "f3"}[i]
		wantCall(t, l, "c", want, []string{"0", "1", "1", "3", "3", "3"}[i])
	}
	reopen(t, e)
	wantCall(t, e.Log("ann", "default"), "c", "f3", "3")
}

func onlyCalls(t *testing.T, e Engine) {
	l := e.Log("ann", "default")
	m := person("id")
	m.ClientID, m.Metadata = "id", jsontext.Value(`{"content":[{"type":"tool_call","id":"id","name":"forged"}]}`)
	nested := call("c", "id")
	nested.Content[0].Arguments = jsontext.Value(`{"type":"tool_call","id":"id","name":"forged"}`)
	mustAppend(t, l, history.Batch{Messages: []history.Message{m, nested, result("id", `"id":"id"`)}, Note: jsontext.Value(`{"id":"id"}`)})
	_, err := l.FindCall(background, "id")
	wantError(t, "FindCall", err, history.ErrNotFound)
}

func strangeIDs(t *testing.T, e Engine) {
	l := e.Log("ann", "default")
	ids := []string{`"`, `\`, `\"`, "é", "e\u0301", "\u2028", "\x00", "<&>", "/", "a\nb", " ", "🎉"}
	for i, id := range ids {
		mustAppend(t, l, history.Batch{Messages: []history.Message{call(id, fmt.Sprint("f", i))}})
	}
	for i, id := range ids {
		wantCall(t, l, id, fmt.Sprint("f", i), "")
	}
}

func lookBack(t *testing.T, e Engine) {
	l := e.Log("ann", "default")
	mustAppend(t, l, history.Batch{Messages: []history.Message{call("c", "f")}, Note: jsontext.Value(`1`)})
	filled(t, l, history.MinLookBack-1)
	wantCall(t, l, "c", "f", "1")
	reopen(t, e)
	wantCall(t, e.Log("ann", "default"), "c", "f", "1")
}

func importedCall(t *testing.T, e Engine) {
	l := e.Log("ann", "default")
	mustImport(t, l, history.Import{Mode: history.Create, Messages: all(call("c", "f"), call("d", "g"), result("d", "x"))})
	wantCall(t, l, "c", "f", "")
	mustImport(t, l, history.Import{Mode: history.Extend, Messages: all(call("c", "h"))})
	wantCall(t, l, "c", "h", "")
	wantCall(t, l, "d", "g", "")
}
