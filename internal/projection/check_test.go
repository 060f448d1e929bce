package projection

import (
	"slices"
	"strings"
	"testing"

	"historyd/internal/history"
)

// check leads a Checker through the messages.
func check(msgs []history.Message, repair bool, faults *history.Faults) (kept []history.Message, repaired []Repair) {
	c := NewChecker(repair, faults)
	for i, m := range msgs {
		if m, ok := c.Message(int64(i), m); ok {
			kept = append(kept, m)
		}
	}
	repaired, _ = c.Repaired()
	return kept, repaired
}

func TestAHistoryIsChecked(t *testing.T) {
	id := func(m history.Message, id string) history.Message { m.ID = id; return m }
	const dup, orphan = "duplicate_id", "orphan_result"
	for _, tt := range []struct {
		name string
		in   []history.Message
		want []string // path and code
		kept []history.Message
	}{
		{"call and result", []history.Message{calling("c", "f", "{}"), answering("c", "x")}, nil, nil},
		{"a call without an answer", []history.Message{calling("c", "f", "{}"), said("go on")}, nil, nil},
		{"a repeated id", []history.Message{calling("c", "f", "{}"), answering("c", "x"), calling("c", "f", "{}"), answering("c", "x")}, nil, nil},
		{"two unanswered of one id", []history.Message{calling("c", "f", "{}"), calling("c", "f", "{}"), answering("c", "x"), answering("c", "x")}, nil, nil},
		{"one id twice in a message", []history.Message{message(history.Assistant, call("c", "f", "{}"), call("c", "g", "{}")), message(history.Tool, result("c", "x"), result("c", "y"))}, nil, nil},
		{"messages without an id", []history.Message{said("a"), said("b")}, nil, nil},
		{"a result without a call", []history.Message{said("a"), answering("c", "x")}, []string{"messages[1].content[0] " + orphan}, []history.Message{said("a")}},
		{"a result before its call", []history.Message{answering("c", "x"), calling("c", "f", "{}")}, []string{"messages[0].content[0] " + orphan}, []history.Message{calling("c", "f", "{}")}},
		{"a second answer", []history.Message{calling("c", "f", "{}"), message(history.Tool, result("c", "x"), result("c", "y"), result("c", "z"))},
			[]string{"messages[1].content[1] " + orphan, "messages[1].content[2] " + orphan}, []history.Message{calling("c", "f", "{}"), answering("c", "x")}},
		{"an id twice", []history.Message{id(said("a"), "1"), id(said("b"), "1"), id(said("c"), "2")}, []string{"messages[1] " + dup}, []history.Message{id(said("a"), "1"), id(said("c"), "2")}},
		{"a call in a message of a repeated id", []history.Message{id(said("a"), "1"), id(calling("c", "f", "{}"), "1"), answering("c", "x")},
			[]string{"messages[1] " + dup, "messages[2].content[0] " + orphan}, []history.Message{id(said("a"), "1")}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			before := show(tt.in)
			var faults history.Faults
			kept, repaired := check(tt.in, false, &faults)
			if show(kept) != before || repaired != nil {
				t.Errorf("kept %s and repaired %v without being asked to", show(kept), repaired)
			}
			var paths, want []string
			for _, f := range faults.List {
				paths = append(paths, f.Path)
				if f.Code != history.CodeInvalidMessage || !strings.HasSuffix(f.Detail, ": with repair=true it is left out") {
					t.Errorf("fault %+v", f)
				}
			}
			for _, w := range tt.want {
				path, _, _ := strings.Cut(w, " ")
				want = append(want, path)
			}
			if !slices.Equal(paths, want) {
				t.Errorf("faults at %v, want %v", paths, want)
			}
			kept, repaired = check(tt.in, true, nil)
			var told []string
			for _, r := range repaired {
				told = append(told, r.Path+" "+r.Code)
				if strings.Contains(r.Detail, "repair=true") {
					t.Errorf("what is repaired tells how to: %s", r.Detail)
				}
			}
			if !slices.Equal(told, tt.want) {
				t.Errorf("repaired %v, want %v", told, tt.want)
			}
			if tt.kept == nil {
				tt.kept = tt.in
			}
			if got, want := show(kept), show(tt.kept); got != want {
				t.Errorf("kept %s, want %s", got, want)
			}
			if again, more := check(kept, true, nil); show(again) != show(kept) || more != nil {
				t.Errorf("the repaired history is repaired again: %v", more)
			}
			if show(tt.in) != before {
				t.Error("the input was altered")
			}
		})
	}
}

// A result may be of a call in a message that nobody could read.
func TestResultsBehindAMissedMessageAreNotCalledWrong(t *testing.T) {
	var faults history.Faults
	c := NewChecker(false, &faults)
	c.Message(0, answering("a", "x"))
	c.Missed()
	c.Message(2, answering("b", "x"))
	if len(faults.List) != 1 || faults.List[0].Path != "messages[0].content[0]" {
		t.Errorf("faults: %v", faults.List)
	}
}
