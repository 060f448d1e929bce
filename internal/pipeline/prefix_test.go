package pipeline

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"

	"historyd/internal/durable/crashfs"
	"historyd/internal/history"
	"historyd/internal/projection"
	"historyd/internal/store"
	"historyd/internal/wire"
)

// newTimedBench is newBench with a clock of the test's.
func newTimedBench(t *testing.T, now func() time.Time) *bench {
	t.Helper()
	b := &bench{t: t, disk: crashfs.New()}
	s, err := store.Open(store.Options{
		FS: b.disk, Now: now,
		NewID: func(string) string { return fmt.Sprintf("01%024d", minted.Add(1)) },
	})
	if err != nil {
		t.Fatal(err)
	}
	b.stop = func() { _ = s.Close() }
	t.Cleanup(b.stop)
	b.Pipeline = newPipeline(t, s, projection.Options{UnknownTools: "keep"}, nil)
	return b
}

// A sent is what a client hands to a provider: what stands ahead of the messages, and
// the messages.
type sent struct{ head, messages []byte }

// follows reports whether s is the one before with something behind. What closes a
// message whose provider wants roles to take turns is no part of the prefix.
func (s sent) follows(before sent) bool {
	return bytes.Equal(s.head, before.head) && bytes.HasPrefix(s.messages, before.messages)
}

// send renders a replay.
func send(b *bench, c Conversation, format wire.Format, ask Ask) (sent, Replayed) {
	b.t.Helper()
	r := b.replay(c, ask)
	show := wire.Show{Messages: r.Messages, Authority: true}
	if r.Summary != nil {
		show.Summary = r.Summary.Text
	}
	for _, d := range r.Added {
		show.Added = append(show.Added, wire.Declaration(d))
	}
	shown := wire.Render(format, show)
	var head bytes.Buffer
	fmt.Fprintf(&head, "%s\n%s\n%s", show.Summary, shown.System, shown.Tools)
	return sent{head.Bytes(), shown.Messages}, r
}

// An exchange is one turn of an agent: what a person said, two rounds of tools, an answer.
// Each step is followed by a replay, as an agent asks for one before each call of a model.
func exchange(turn int) [][]history.Message {
	id := func(n int) string { return fmt.Sprintf("call-%d-%d", turn, n) }
	two := calls(id(1), "search", `{"q":"`+strings.Repeat("flights ", 1+turn%5)+`"}`)
	two.Content = append(two.Content, calls(id(2), "look_up", `{"user":7}`).Content...)
	two.Usage = []byte(fmt.Sprintf(`{"output_tokens":%d}`, 30+turn%9))
	results := answers(id(1), strings.Repeat("a result of some length ", 3+turn%7))
	answer := said(history.Assistant, strings.Repeat("what the answer says ", 4+turn%6))
	answer.Usage = []byte(`{"output_tokens":40}`)
	return [][]history.Message{
		{said(history.User, fmt.Sprintf("question %d: %s", turn, strings.Repeat("please ", turn%11)))},
		{two, results, answers(id(2), "found")},
		{calls(id(3), "book", `{"n":1}`), answers(id(3), "booked")},
		{answer},
	}
}

// Each time that what is sent is not the last with something behind, a provider reads it
// all anew, at ten times the price of what it has cached. That happens at a fold, which
// cannot be helped, and must happen at no other time:
//
//   - without a budget;
//   - with one that after the summary and the tools has room for twice the turns between
//     two folds (10 of 5) and an eighth more, when turns are of much the same size: what
//     they will need is made free at the fold. In smaller ones it is also each time that
//     three tenths of the room have been filled.
//
// Before the first folds, while nothing is known of them or the summary grows, a window
// may pass the budget once more. In mode full the request declares its tools, or a call of
// one more changes what stands ahead of the messages.
func TestWhatIsSentChangesItsBeginningOnceAFold(t *testing.T) {
	const turns = 200
	declared := []string{"search", "look_up", "book"}
	type row struct {
		name   string
		format wire.Format
		ask    Ask

		last             sent
		fold             int64
		folds, changes   int
		trimmed, replays int
	}
	rows := []*row{
		{name: "text", format: wire.Native, ask: Ask{}},
		{name: "text for OpenAI", format: wire.OpenAI, ask: Ask{}},
		{name: "text for Anthropic", format: wire.Anthropic, ask: Ask{}},
		{name: "full", format: wire.Native, ask: Ask{Full: true, Tools: declared}},
		{name: "full for OpenAI", format: wire.OpenAI, ask: Ask{Full: true, Tools: declared}},
		{name: "full for Anthropic", format: wire.Anthropic, ask: Ask{Full: true, Tools: declared}},
		{name: "text in a budget", format: wire.Native, ask: Ask{MaxTokens: 2700}},
		{name: "full in a budget", format: wire.Native, ask: Ask{Full: true, MaxTokens: 4600, Tools: declared, ToolTokens: 300}},
		{name: "full in a budget for OpenAI", format: wire.OpenAI, ask: Ask{Full: true, MaxTokens: 4600, Tools: declared, ToolTokens: 300}},
		{name: "full in a budget for Anthropic", format: wire.Anthropic, ask: Ask{Full: true, MaxTokens: 4600, Tools: declared, ToolTokens: 300}},
	}
	b, c := newBench(t, projection.Options{UnknownTools: "keep"}), conversation(t, "ann")
	for turn := range turns {
		for _, msgs := range exchange(turn) {
			b.record(c, Turn{Messages: msgs})
			for _, x := range rows {
				now, r := send(b, c, x.format, x.ask)
				if x.replays++; x.replays > 1 && !now.follows(x.last) {
					x.changes++
				}
				if r.Summary != nil && r.Summary.ThroughSeq != x.fold {
					x.folds, x.fold = x.folds+1, r.Summary.ThroughSeq
				}
				if x.ask.MaxTokens > 0 && (r.Report.OverBudget || r.Tokens > x.ask.MaxTokens) {
					t.Fatalf("%s: turn %d: %d tokens, report %+v", x.name, turn, r.Tokens, r.Report)
				}
				if r.Report.DroppedTurns > 0 {
					x.trimmed++
				}
				x.last = now
			}
		}
	}
	for _, x := range rows {
		t.Logf("%s: %d folds, %d changes, turns left out of %d of %d replays", x.name, x.folds, x.changes, x.trimmed, x.replays)
		if x.changes > x.folds || x.folds < 30 {
			t.Errorf("%s: the beginning changed %d times in %d folds", x.name, x.changes, x.folds)
		}
		if x.ask.MaxTokens > 0 && x.trimmed < turns {
			t.Errorf("%s: the budget left something out of %d replays alone", x.name, x.trimmed)
		}
	}
}

// Nothing of a replay is of the time at which it is made.
func TestReplaysOfOneRecordAreTheSameBytes(t *testing.T) {
	now := time.Date(2031, 5, 6, 7, 8, 9, 0, time.UTC)
	b := newTimedBench(t, func() time.Time { return now })
	c := conversation(t, "ann")
	for turn := range 40 {
		for _, msgs := range exchange(turn) {
			b.record(c, Turn{Messages: msgs})
		}
	}
	b.record(c, Turn{Messages: []history.Message{said(history.User, "more"), calls("open", "search", "{}")}})
	for _, format := range []wire.Format{wire.Native, wire.OpenAI, wire.Anthropic, wire.Responses, wire.Gemini} {
		for _, ask := range []Ask{{}, {Full: true}, {Full: true, MaxTokens: 3000}} {
			first, _ := send(b, c, format, ask)
			for i := range 100 {
				now = now.Add(61 * time.Second)
				again, _ := send(b, c, format, ask)
				if !bytes.Equal(again.head, first.head) || !bytes.Equal(again.messages, first.messages) {
					t.Fatalf("%s, %+v: replay %d differs", format, ask, i)
				}
			}
		}
	}
}
