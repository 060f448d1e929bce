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
