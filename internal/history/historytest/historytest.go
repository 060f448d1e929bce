// Package historytest is the suite that every engine behind history.Log has to
// pass. It knows no engine: it asks for what the interface promises, and for
// nothing of how it is kept. Faults of disks are for the tests of each engine.
package historytest

import (
	"context"
	"encoding/json/jsontext"
	"errors"
	"fmt"
	"iter"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"historyd/internal/history"
)

// A Harness starts engines for the suite.
type Harness struct {
	// Open starts an engine on empty storage. What it needs ends with the test.
	Open func(t *testing.T) Engine
}

// An Engine is one storage and what runs on it.
type Engine interface {
	// Log returns a conversation of a caller, both of them short words.
	Log(caller, conversation string) history.Log

	// Reopen stops the engine in good order and starts it again on the same storage.
	// Logs and views of before are void.
	Reopen() error

	// Names lists what is in storage, files or keys, so that one can see that reading
	// makes nothing.
	Names() []string
}

// one is a case of the suite. It gets an engine of its own.
type one struct {
	name string
	run  func(*testing.T, Engine)
}

// Run holds an engine to the contract of history.Log.
func Run(t *testing.T, h Harness) {
	for _, group := range []struct {
		name  string
		cases []one
	}{
		{"appends", appends},
		{"keys", keys},
		{"conditions", conditions},
		{"clears", clears},
		{"reads", reads},
		{"folds", folds},
		{"imports", imports},
		{"imports and others", importsAmongOthers},
		{"attachments", attachments},
		{"imported attachments", importedAttachments},
		{"rewinds", rewinds},
		{"proses", proses},
		{"befores", befores},
		{"calls", calls},
		{"states", states},
	} {
		t.Run(group.name, func(t *testing.T) {
			for _, c := range group.cases {
				t.Run(c.name, func(t *testing.T) {
					t.Parallel()
					c.run(t, h.Open(t))
				})
			}
		})
	}
}

// tb is what testing.T and rapid.T share.
type tb = rapid.TB

var background = context.Background()

func person(text string) history.Message {
	return history.Message{Role: history.User, Kind: history.Person, Status: history.Complete, Content: []history.Block{history.Text(text)}}
}

func answer(text string) history.Message {
	return history.Message{Role: history.Assistant, Status: history.Complete, Content: []history.Block{history.Text(text)}}
}

func call(id, name string) history.Message {
	return history.Message{Role: history.Assistant, Status: history.Complete, Content: []history.Block{
		{Type: history.ToolCall, ID: id, Name: name, Arguments: jsontext.Value(`{"q":1}`)},
	}}
}

func result(id, text string) history.Message {
	return history.Message{Role: history.Tool, Status: history.Complete, Content: []history.Block{
		{Type: history.ToolResult, CallID: id, Plain: true, Content: []history.Block{history.Text(text)}},
	}}
}

// said makes a batch of what a person said.
func said(texts ...string) history.Batch {
	var b history.Batch
	for _, s := range texts {
		b.Messages = append(b.Messages, person(s))
	}
	return b
}

// keyed is said with an idempotency key, and a fingerprint of the texts.
func keyed(key string, texts ...string) history.Batch {
	b := said(texts...)
	b.Key = key
	copy(b.Fingerprint[:], strings.Join(texts, "\x00"))
	return b
}

func mustAppend(t tb, l history.Log, b history.Batch) history.Receipt {
	t.Helper()
	r, err := l.Append(background, b)
	if err != nil {
		t.Fatalf("Append of %d messages: %v", len(b.Messages), err)
	}
	return r
}

// all yields messages as an import takes them.
func all(msgs ...history.Message) iter.Seq2[history.Message, error] {
	return func(yield func(history.Message, error) bool) {
		for _, m := range msgs {
			if !yield(m, nil) {
				return
			}
		}
	}
}

func mustImport(t tb, l history.Log, imp history.Import) history.Receipt {
	t.Helper()
	r, err := l.Import(background, imp)
	if err != nil {
		t.Fatalf("Import (%s): %v", imp.Mode, err)
	}
	return r
}

func mustState(t tb, l history.Log) history.State {
	t.Helper()
	s, err := l.State(background)
	if err != nil {
		t.Fatalf("State: %v", err)
	}
	return s
}

func mustView(t tb, l history.Log) history.View {
	t.Helper()
	v, err := l.View(background)
	if err != nil {
		t.Fatalf("View: %v", err)
	}
	return v
}

func mustClear(t tb, l history.Log) {
	t.Helper()
	if err := l.Clear(background); err != nil {
		t.Fatalf("Clear: %v", err)
	}
}

func reopen(t tb, e Engine) {
	t.Helper()
	if err := e.Reopen(); err != nil {
		t.Fatalf("Reopen: %v", err)
	}
}

// collect decodes what a view yields, at most n messages of it.
func collect(records iter.Seq2[history.Record, error], n int) ([]history.Message, error) {
	var msgs []history.Message
	for r, err := range records {
		if err != nil {
			return msgs, err
		}
		m, err := r.Message()
		if err != nil {
			return msgs, err
		}
		if m.Seq != r.Seq || r.Last < r.Seq {
			return msgs, fmt.Errorf("the record of seq %d holds a message of seq %d, of a commit that ends with %d", r.Seq, m.Seq, r.Last)
		}
		if msgs = append(msgs, m); len(msgs) == n {
			break
		}
	}
	return msgs, nil
}

const everything = 1 << 30

// content reads a whole conversation.
func content(t tb, l history.Log) []history.Message {
	t.Helper()
	v := mustView(t, l)
	defer v.Close()
	msgs, err := collect(v.Records(1, v.State().LastSeq), everything)
	if err != nil {
		t.Fatalf("Records: %v", err)
	}
	if d := v.Damage(); d != nil {
		t.Fatalf("damage: %+v", d)
	}
	return msgs
}

// textOf is the text of a message's first block.
func textOf(m history.Message) string {
	b := m.Content[0]
	if b.Type == history.ToolResult {
		b = b.Content[0]
	}
	return b.Text
}

func textsOf(msgs []history.Message) []string {
	var texts []string
	for _, m := range msgs {
		texts = append(texts, textOf(m))
	}
	return texts
}

// wantTexts compares the whole content with texts, and the seqs with 1, 2, 3 …
func wantTexts(t tb, l history.Log, want ...string) {
	t.Helper()
	msgs := content(t, l)
	if got := textsOf(msgs); fmt.Sprintf("%q", got) != fmt.Sprintf("%q", want) {
		t.Fatalf("the record holds %q, want %q", got, want)
	}
	wantCounted(t, msgs)
	s := mustState(t, l)
	if s.LastSeq != int64(len(want)) || s.Messages != int64(len(want)) {
		t.Fatalf("State has LastSeq %d and %d messages, want %d", s.LastSeq, s.Messages, len(want))
	}
}

// wantCounted checks that seqs are 1, 2, 3 …
func wantCounted(t tb, msgs []history.Message) {
	t.Helper()
	for i, m := range msgs {
		if m.Seq != int64(i+1) {
			t.Fatalf("message %d has seq %d", i+1, m.Seq)
		}
	}
}

func wantError(t tb, what string, got, want error) {
	t.Helper()
	if !errors.Is(got, want) {
		t.Fatalf("%s: got error %v, want %v", what, got, want)
	}
}
