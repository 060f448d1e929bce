package historytest

import (
	"encoding/json/jsontext"
	"fmt"
	"slices"
	"strings"
	"testing"

	"historyd/internal/history"
)

var calls = []one{
	{"a call is found with the note of its append", callWithNote},
	{"the nearest unanswered call of an id is found", nearestCall},
	{"all calls of an id are found when none is unanswered, and when asked", allCalls},
	{"only calls are found", onlyCalls},
	{"strange ids are found", strangeIDs},
	{"a call 1,000 messages back is found", lookBack},
	{"an imported call is found", importedCall},
	{"a search that goes on is bounded", boundedSearch},
}

func wantCall(t tb, l history.Log, id, name, note string) {
	t.Helper()
	wantCalls(t, l, id, false, name+" "+note)
}

// wantCalls compares what is found in any order, each as its name and its note.
func wantCalls(t tb, l history.Log, id string, all bool, want ...string) {
	t.Helper()
	found, err := l.FindCalls(background, id, all)
	var got []string
	for _, c := range found {
		got = append(got, c.Name+" "+string(c.Note))
	}
	slices.Sort(got)
	slices.Sort(want)
	if got = slices.Compact(got); err != nil || !slices.Equal(got, want) {
		t.Fatalf("FindCalls(%q, %v) = %q, %v; want %q", id, all, got, err, want)
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
		_, err := l.FindCalls(background, "c20", false)
		wantError(t, "FindCalls", err, history.ErrNotFound)
		_, err = e.Log("ann", "other").FindCalls(background, "c0", false)
		wantError(t, "FindCalls in another conversation", err, history.ErrNotFound)
		reopen(t, e)
		l = e.Log("ann", "default")
	}
}

func nearestCall(t *testing.T, e Engine) {
	l := e.Log("ann", "default")
	two := call("c", "f2")
	two.Content = append(two.Content, call("c", "f3").Content...)
	for i, tt := range []struct {
		msgs []history.Message
		want []string
	}{
		{[]history.Message{call("c", "f0")}, []string{"f0 0"}},
		{[]history.Message{call("c", "f9"), call("c", "f1")}, []string{"f1 1"}},
		{[]history.Message{person("between")}, []string{"f1 1"}},
		{[]history.Message{two}, []string{"f2 3", "f3 3"}},
		{[]history.Message{person("c"), call("d", "c")}, []string{"f2 3", "f3 3"}},
		{[]history.Message{result("c", "x")}, []string{"f2 3", "f3 3"}},
		{[]history.Message{result("d", "c"), result("c", "x")}, []string{"f1 1"}},
		{[]history.Message{result("c", "x"), call("c", "f4"), call("c", "f5"), result("c", "x")}, []string{"f4 7"}},
		{[]history.Message{result("c", "x")}, []string{"f9 1"}},
		{[]history.Message{result("c", "x")}, []string{"f0 0"}},
	} {
		mustAppend(t, l, history.Batch{Messages: tt.msgs, Note: jsontext.Value(fmt.Sprint(i))})
		wantCalls(t, l, "c", false, tt.want...)
	}
	reopen(t, e)
	wantCall(t, e.Log("ann", "default"), "c", "f0", "0")
}

func allCalls(t *testing.T, e Engine) {
	l := e.Log("ann", "default")
	for i, msgs := range [][]history.Message{
		{call("c", "f0")}, {call("c", "f1"), call("d", "g")}, {result("c", "x")}, {result("c", "x")},
	} {
		mustAppend(t, l, history.Batch{Messages: msgs, Note: jsontext.Value(fmt.Sprint(i))})
	}
	for range 2 {
		wantCalls(t, l, "c", false, "f0 0", "f1 1")
		wantCalls(t, l, "c", true, "f0 0", "f1 1")
		wantCalls(t, l, "d", true, "g 1")
		mustAppend(t, l, history.Batch{Messages: []history.Message{result("c", "once too often")}})
	}
	mustAppend(t, l, history.Batch{Messages: []history.Message{call("c", "f2")}})
	wantCalls(t, l, "c", false, "f2 ")
	wantCalls(t, l, "c", true, "f0 0", "f1 1", "f2 ")
	_, err := l.FindCalls(background, "e", true)
	wantError(t, "FindCalls", err, history.ErrNotFound)
}

// boundedSearch holds that a search which goes on behind a call ends as one that
// found nothing: with everything there is, or with ErrTooFar.
func boundedSearch(t *testing.T, e Engine) {
	l := e.Log("ann", "default")
	mustAppend(t, l, history.Batch{Messages: []history.Message{call("c", "far")}})
	for range 9 {
		mustAppend(t, l, history.Batch{Messages: []history.Message{person(strings.Repeat("x", 2<<20))}})
	}
	filled(t, l, history.MinLookBack)
	mustAppend(t, l, history.Batch{Messages: []history.Message{call("c", "near")}})
	wantCall(t, l, "c", "near", "")
	check := func(all bool) {
		t.Helper()
		if found, err := l.FindCalls(background, "c", all); err == nil && !slices.ContainsFunc(found, func(c history.FoundCall) bool { return c.Name == "far" }) {
			t.Errorf("FindCalls(c, %v) = %v without the far call", all, found)
		} else if err != nil {
			wantError(t, "FindCalls", err, history.ErrTooFar)
		}
	}
	check(true)
	mustAppend(t, l, history.Batch{Messages: []history.Message{result("c", "x")}})
	check(false)
}

func onlyCalls(t *testing.T, e Engine) {
	l := e.Log("ann", "default")
	m := person("id")
	m.ClientID, m.Metadata = "id", jsontext.Value(`{"content":[{"type":"tool_call","id":"id","name":"forged"}]}`)
	nested := call("c", "id")
	nested.Content[0].Arguments = jsontext.Value(`{"type":"tool_call","id":"id","name":"forged"}`)
	mustAppend(t, l, history.Batch{Messages: []history.Message{m, nested, result("id", `"id":"id"`)}, Note: jsontext.Value(`{"id":"id"}`)})
	_, err := l.FindCalls(background, "id", false)
	wantError(t, "FindCalls", err, history.ErrNotFound)
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
