package pipeline

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"historyd/internal/history"
	"historyd/internal/projection"
)

// counted returns the estimate of all that a replay without usage holds.
func counted(r Replayed, ask Ask) int64 {
	n := r.summaryTokens()
	for i := range r.Messages {
		n += projection.EstimateTokens(&r.Messages[i])
	}
	for i := range r.Added {
		n += r.Added[i].Tokens()
	}
	if ask.Full {
		n += ask.ToolTokens
	}
	return n
}

// Whatever the budget, a replay keeps to it, or is of one turn and says so; also where
// exchanges become text, which takes more than the calls did.
func TestReplaysKeepToAnyBudget(t *testing.T) {
	b := newBench(t, projection.Options{UnknownTools: "keep"})
	p, err := New(Options{Engine: b.engine, Policy: b.policy.Load(), Compactor: b.compactor, MaxClosureTools: 3})
	if err != nil {
		t.Fatal(err)
	}
	c := conversation(t, "ann")
	for turn := range 33 {
		name := fmt.Sprintf("tool-%d", turn%9)
		b.record(c, Turn{Messages: []history.Message{
			said(history.User, strings.Repeat("go on ", 1+turn%7)), calls("c", name, `{}`), answers("c", "found"), said(history.Assistant, "done"),
		}})
	}
	for _, ask := range []Ask{
		{}, {ToolTokens: 1000}, {Full: true}, {Full: true, ToolTokens: 200, Tools: []string{"tool-1", "tool-2"}},
		{Full: true, Granted: []string{"a", "b", "tool-3", "c", "d"}, Role: "guest"},
	} {
		all, err := p.Replay(context.Background(), c, ask)
		if err != nil {
			t.Fatal(err)
		}
		for ask.MaxTokens = all.Tokens + 20; ask.MaxTokens > 0; ask.MaxTokens -= 13 {
			got, err := p.Replay(context.Background(), c, ask)
			if err != nil {
				t.Fatal(err)
			}
			if want := counted(got, ask); got.Tokens != want {
				t.Fatalf("%+v: says %d tokens, has %d", ask, got.Tokens, want)
			}
			if got.Report.OverBudget != (got.Tokens > ask.MaxTokens) {
				t.Fatalf("%+v: %d tokens, over %t", ask, got.Tokens, got.Report.OverBudget)
			}
			turns := len(slices.DeleteFunc(slices.Clone(got.Messages), func(m history.Message) bool { return !m.StartsTurn() }))
			if turns == 0 || got.Report.OverBudget && turns != 1 {
				t.Fatalf("%+v: %d turns for %d tokens, over %t", ask, turns, got.Tokens, got.Report.OverBudget)
			}
			if got.Report.DroppedTurns == 0 != (got.Report.DroppedMessages == 0) {
				t.Fatalf("%+v: report %+v", ask, got.Report)
			}
		}
	}
}

// What a replay leaves out of mode text counts for the scale all the same, and unknown
// usage for nothing.
func TestReportedUsageScalesWhatFollows(t *testing.T) {
	b := newBench(t, projection.Options{UnknownTools: "keep"})
	text := strings.Repeat("the word ", 300)
	replays := func(name, usage string) (tokens [2]int64) {
		c := Conversation{conversation(t, "ann").Scope, name}
		answer := calls("c", "write", `{"text":"`+text+`"}`)
		if usage != "" {
			answer.Usage = []byte(usage)
		}
		b.record(c, Turn{Messages: []history.Message{said(history.User, "go"), answer, answers("c", "ok"), said(history.Assistant, text)}})
		return [2]int64{b.replay(c, Ask{}).Tokens, b.replay(c, Ask{Full: true}).Tokens}
	}
	plain := replays("plain", "")
	if got := replays("unknown", `{"output_tokens":null}`); got != plain {
		t.Errorf("unknown usage: %v tokens, want %v", got, plain)
	}
	half := projection.EstimateText(text) / 2
	got := replays("more", fmt.Sprintf(`{"output_tokens":%d}`, 3*half))
	for mode, n := range got {
		if more := n - plain[mode]; more < half-20 || more > half+20 {
			t.Errorf("mode %d: %d more tokens, want about %d", mode, more, half)
		}
	}
}
