// Package replay makes what a model is sent of a conversation, out of the sample
// conversations and of records in which everything went wrong that a generator knows.
// It is for tests.
package replay

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"

	"historyd/internal/history"
	"historyd/internal/projection"
	"historyd/internal/strictjson"
	"historyd/internal/wire"
	"historyd/test/samples"
)

// Model and Provider are who answers in the conversations; Provider is as the format
// has it, so that every format is one's own once.
const Model = "model-1"

// Providers are who is asked in a format.
var Providers = map[wire.Format]string{
	wire.OpenAI: "openai", wire.Responses: "openai", wire.Anthropic: "anthropic", wire.Gemini: "google",
}

// Formats are those of the providers.
var Formats = []wire.Format{wire.OpenAI, wire.Responses, wire.Anthropic, wire.Gemini}

// Conversations reads the sample conversations, which lie beside the project, seen
// from a package in a folder of test. os.ErrNotExist tells that they are not there.
func Conversations() ([][]history.Message, error) {
	lines, err := samples.Airline()
	if err != nil {
		return nil, err
	}
	var all [][]history.Message
	for _, line := range lines {
		if err := strictjson.Check(line); err != nil {
			return nil, fmt.Errorf("sample conversation %d: %w", len(all), err)
		}
		list, _ := strictjson.Document(line).Member("messages")
		msgs, err := Decode(wire.OpenAI, string(list.Raw))
		if err != nil {
			return nil, fmt.Errorf("sample conversation %d: %w", len(all), err)
		}
		all = append(all, number(msgs))
	}
	return all, nil
}

// Corpus reads the documents that cover a format, by their names: lists of a provider,
// which lie with the codecs, seen from a package in a folder of test.
func Corpus(f wire.Format) (map[string][]history.Message, error) {
	names, err := filepath.Glob(filepath.Join("..", "..", "internal", "wire", "testdata", string(f), "*.json"))
	if err != nil {
		return nil, fmt.Errorf("list the documents of %s: %w", f, err)
	}
	all := map[string][]history.Message{}
	for _, name := range names {
		text, err := os.ReadFile(name)
		if err != nil {
			return nil, fmt.Errorf("read a document of %s: %w", f, err)
		}
		msgs, err := Decode(f, string(text))
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		all[filepath.Base(name)] = number(msgs)
	}
	return all, nil
}

// Decode reads a provider's list as an append would.
func Decode(f wire.Format, list string) ([]history.Message, error) {
	a, err := wire.DecodeAppend(f, []byte(`{"model":"`+Model+`","messages":`+list+`}`), 0)
	return a.Messages, err
}

// number gives the messages their places.
func number(msgs []history.Message) []history.Message {
	for i := range msgs {
		msgs[i].Seq = int64(i + 1)
		msgs[i].ID = "m" + strconv.Itoa(i+1)
	}
	return msgs
}

// An Asked says what a request has besides the history.
type Asked struct {
	Tools   string // elements of the format's list
	Granted []string
	Role    string
	Summary string
	Peer    bool // who asks has no authority
	Model   string
}

// A Request is what a model is sent, and what was done to the history for it.
type Request struct {
	Format   wire.Format
	Asked    Asked
	Messages []byte // a list
	System   []byte // nil for none
	Tools    []byte // a list; nil for none
	Window   []history.Message
	Repairs  projection.Repairs
	Closed   projection.Closed
	Shown    wire.Shown
}

// Make makes the request of a full replay.
func Make(f wire.Format, msgs []history.Message, a Asked) (Request, error) {
	r := Request{Format: f, Asked: a}
	for i := range msgs {
		if m := &msgs[i]; m.Role != history.System && !m.Rewound && !m.ProviderError() {
			r.Window = append(r.Window, *m)
		}
	}
	show := wire.Show{Summary: a.Summary, Authority: !a.Peer, Provider: Providers[f], Model: a.Model}
	var names []string
	if a.Tools != "" {
		show.Tools = []byte("[" + a.Tools + "]")
		var err error
		if names, err = wire.ToolNames(f, show.Tools); err != nil {
			return r, fmt.Errorf("tools of %s: %w", f, err)
		}
	}
	repaired, repairs := projection.RepairPairs(r.Window)
	r.Repairs = repairs
	r.Closed = projection.CloseTools(repaired, projection.Closure{
		Tools: names, Granted: a.Granted, Role: a.Role, Written: func(name string) string { return wire.WrittenName(f, name) },
	})
	show.Messages = r.Closed.Messages
	for _, d := range r.Closed.Added {
		show.Added = append(show.Added, wire.Declaration(d))
	}
	r.Shown = wire.Render(f, show)
	r.Messages, r.System = list(r.Shown.Messages), r.Shown.System
	if r.Shown.Tools != nil {
		r.Tools = list(r.Shown.Tools)
	}
	return r, nil
}

// Items are what Responses made of a record, with all their ids.
func Items(msgs []history.Message) []byte {
	e := wire.NewExporter(wire.Responses)
	items := []byte{'['}
	for i := range msgs {
		items = e.Append(items, &msgs[i])
	}
	return append(e.End(items), ']')
}

// list puts the brackets around elements.
func list(elements []byte) []byte {
	return append(append([]byte{'['}, elements...), ']')
}
