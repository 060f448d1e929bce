package store

import (
	"context"
	"encoding/json/jsontext"
	"iter"
	"testing"

	"historyd/internal/durable/crashfs"
	"historyd/internal/history"
)

func callOf(id, tool string) history.Message {
	return history.Message{Role: history.Assistant, Status: history.Complete, Content: []history.Block{
		{Type: history.ToolCall, ID: id, Name: tool, Arguments: jsontext.Value(`{}`)},
	}}
}

func answerTo(id, text string) history.Message {
	return history.Message{Role: history.Tool, Status: history.Complete, Content: []history.Block{
		{Type: history.ToolResult, CallID: id, Content: []history.Block{history.Text(text)}, Plain: true},
	}}
}

func add(t testing.TB, l history.Log, msgs ...history.Message) {
	t.Helper()
	if _, err := l.Append(context.Background(), history.Batch{Messages: msgs}); err != nil {
		t.Fatalf("Append: %v", err)
	}
}

// A patient folder is always due and lets nothing leave.
type patient struct{ met int64 }

func (p *patient) Due(_, _ history.Window) bool { return true }

func (p *patient) Fold(_ *history.Summary, window iter.Seq2[history.Message, error]) (*history.Summary, error) {
	for _, err := range window {
		if err != nil {
			return nil, err
		}
		p.met++
	}
	return nil, nil
}

// A window that nothing can leave is read ever less often, by appends and by an import.
func TestAWindowThatNothingCanLeaveIsNotReadAgainAndAgain(t *testing.T) {
	by := map[string]func(l history.Log, n int, f history.Folder){
		"appends": func(l history.Log, n int, f history.Folder) {
			for range n {
				if _, err := l.Append(t.Context(), history.Batch{Messages: []history.Message{callOf("c", "f")}, Fold: f}); err != nil {
					t.Fatal(err)
				}
			}
		},
		"an import": func(l history.Log, n int, f history.Folder) {
			messages := func(yield func(history.Message, error) bool) {
				for range n * 8 {
					if !yield(callOf("c", "f"), nil) {
						return
					}
				}
			}
			if _, err := l.Import(t.Context(), history.Import{Mode: history.Create, Messages: messages, Fold: f}); err != nil {
				t.Fatal(err)
			}
		},
	}
	for name, fill := range by {
		read := func(n int) int64 {
			s := mustOpen(t, crashfs.New())
			defer s.Close()
			var f patient
			fill(s.Log(ann, "a"), n, &f)
			return f.met / int64(n)
		}
		if few, many := read(1000), read(4000); many > 2*few {
			t.Errorf("%s: %d messages are read for each, %d where there are four times as many", name, few, many)
		}
	}
}

// What is folded, and what is rewound, lets a window be read at once.
func TestAWindowIsReadAgainAfterARewind(t *testing.T) {
	s := mustOpen(t, crashfs.New())
	defer s.Close()
	l := s.Log(ann, "a")
	var f patient
	fill := func() int64 {
		before := f.met
		if _, err := l.Append(t.Context(), history.Batch{Messages: []history.Message{user("x")}, Fold: &f}); err != nil {
			t.Fatal(err)
		}
		return f.met - before
	}
	for range 2 * brief {
		add(t, l, user("x"))
	}
	if fill() == 0 || fill() != 0 {
		t.Fatal("a long window is not read once")
	}
	if _, err := l.Rewind(t.Context(), history.Rewind{Through: 2*brief - 10}); err != nil {
		t.Fatal(err)
	}
	if n := fill(); n != 2*brief-9 {
		t.Errorf("after a rewind %d messages are read", n)
	}
}
