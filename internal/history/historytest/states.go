package historytest

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"historyd/internal/history"
)

var states = []one{
	{"what was never written reads empty and makes nothing", unused},
	{"the state follows what is written", stateFollows},
	{"the title is the beginning of the first thing a person said", titles},
	{"times and ids go forward", forward},
}

func unused(t *testing.T, e Engine) {
	before := slices.Sorted(slices.Values(e.Names()))
	l := e.Log("ann", "unused")
	s := mustState(t, l)
	s.Name = ""
	if diff := cmp.Diff(history.State{}, s); diff != "" {
		t.Errorf("State of what does not exist: %s", diff)
	}
	v := mustView(t, l)
	for range v.Records(1, everything) {
		t.Error("a record in what does not exist")
	}
	for range v.Backward(everything) {
		t.Error("a record in what does not exist")
	}
	if v.Damage() != nil || v.State().Exists() || v.State().ETag() != `"0-0"` {
		t.Errorf("a view of what does not exist: %+v, %+v", v.State(), v.Damage())
	}
	v.Close()
	_, err := l.FindCalls(background, "c", false)
	wantError(t, "FindCalls", err, history.ErrNotFound)
	versionSeen(t, l)
	mustClear(t, l)
	if now := slices.Sorted(slices.Values(e.Names())); !slices.Equal(before, now) {
		t.Errorf("reading made names: %q became %q", before, now)
	}
}

func stateFollows(t *testing.T, e Engine) {
	l := e.Log("ann", "default")
	bytes := int64(0)
	for i, tt := range []struct {
		messages []history.Message
		turns    int64
		answered bool
	}{
		{[]history.Message{{Role: history.System, Status: history.Complete, Content: []history.Block{history.Text("sys")}}}, 0, false},
		{[]history.Message{person("a")}, 1, false},
		{[]history.Message{{Role: history.User, Kind: history.Reference, Status: history.Complete, Content: []history.Block{history.Text("ref")}}}, 1, false},
		{[]history.Message{call("c", "f"), result("c", "r")}, 1, true},
		{[]history.Message{person("b"), person("c"), answer("x")}, 3, true},
	} {
		r := mustAppend(t, l, history.Batch{Messages: tt.messages})
		for range 2 {
			s := mustState(t, l)
			if s.Turns != tt.turns || s.Answered != tt.answered || s.Messages != r.LastSeq || s.LastSeq != r.LastSeq {
				t.Errorf("step %d: %+v", i, s)
			}
			if s.Name != "default" || s.Epoch != r.Epoch || s.Damage != nil || s.LastID != r.IDs[len(r.IDs)-1] {
				t.Errorf("step %d: %+v", i, s)
			}
			v := mustView(t, l)
			if in := v.State(); in.ETag() != s.ETag() || in.Turns != s.Turns || in.Bytes != s.Bytes {
				t.Errorf("step %d: the view says %+v, the state %+v", i, in, s)
			}
			v.Close()
			reopen(t, e)
			l = e.Log("ann", "default")
			if again := mustState(t, l); !cmp.Equal(s, again) {
				t.Errorf("step %d, before a restart (-) and after it (+):\n%s", i, cmp.Diff(s, again))
			}
		}
		s := mustState(t, l)
		if s.Bytes <= bytes {
			t.Errorf("step %d: %d bytes after %d", i, s.Bytes, bytes)
		}
		bytes = s.Bytes
	}
}

func titles(t *testing.T, e Engine) {
	for i, tt := range []struct {
		messages []history.Message
		want     string
	}{
		{[]history.Message{person("hello")}, "hello"},
		{[]history.Message{answer("no"), person("  two\n\twords\x00 ")}, "two words"},
		{[]history.Message{person(" "), person("second")}, "second"},
		{[]history.Message{{Role: history.User, Kind: history.Reference, Status: history.Complete, Content: []history.Block{history.Text("ref")}}}, ""},
		{[]history.Message{person("\u202e\u2066\u200b"), person("a\u202eb\u2069 c\u2028d \U000e0041👩\u200d👧")}, "ab c d 👩\u200d👧"},
		{[]history.Message{person(strings.Repeat("é", 500))}, strings.Repeat("é", 80)},
		{[]history.Message{person(strings.Repeat("x", 4095) + "🎉")}, strings.Repeat("x", 80)},
	} {
		l := e.Log("ann", "c"+string(rune('0'+i)))
		mustAppend(t, l, history.Batch{Messages: tt.messages})
		if tt.want != "" {
			mustAppend(t, l, said("later"))
		}
		for range 2 {
			if got := mustState(t, l).Title; got != tt.want {
				t.Errorf("title %d is %q, want %q", i, got, tt.want)
			}
			reopen(t, e)
			l = e.Log("ann", "c"+string(rune('0'+i)))
		}
	}
}

func forward(t *testing.T, e Engine) {
	l := e.Log("ann", "default")
	start := time.Now().Add(-time.Second).UTC()
	var s history.State
	for range 5 {
		before := s
		mustAppend(t, l, said("a", "b"))
		s = mustState(t, l)
		if before.Exists() && (s.LastID <= before.LastID || s.UpdatedAt.Before(before.UpdatedAt) || !s.CreatedAt.Equal(before.CreatedAt)) {
			t.Errorf("%+v after %+v", s, before)
		}
	}
	if s.CreatedAt.Before(start) || s.UpdatedAt.After(time.Now().Add(time.Second)) {
		t.Errorf("created at %v, updated at %v", s.CreatedAt, s.UpdatedAt)
	}
}
