package wire

import (
	"encoding/json/jsontext"

	"historyd/internal/history"
	"historyd/internal/strictjson"
)

// A codec is a provider's format, in both directions. It holds no state.
type codec interface {
	// decode reads one element of the provider's list: a message, an item, a content.
	// It may be several messages of ours, and is one at the least unless a fault is
	// noted. What is not modelled is kept as an opaque block.
	decode(d *decoder, v strictjson.Value, path string) []history.Message

	// exporter writes what decode read, so that the same comes back.
	exporter() exporter

	// render writes the messages as a request for a model holds them.
	render(s *Show) Shown

	// toolNames returns the names that one element of a request's tools declares;
	// false when it is no declaration.
	toolNames(tool strictjson.Value) ([]string, bool)

	// lists are the members by which an object document may hold the list.
	lists() []string

	// provider is the one whose format it is, for assistant messages that name none.
	provider() string
}

// codecs are the providers' formats that are spoken.
var codecs = map[Format]codec{Anthropic: anthropicCodec{}, Gemini: geminiCodec{}, OpenAI: openAICodec{}, Responses: responsesCodec{}}

// An exporter writes elements of a provider's list. Several messages of ours that were
// one element come one after the other, so it may leave an element open.
type exporter interface {
	add(o *object, m *history.Message)
	end(o *object)
}

// Show is what a model is to be shown.
type Show struct {
	// Messages are repaired. The bytes of attachments are at hand, where they could be
	// read. In mode text they hold nothing but text.
	Messages []history.Message
	Summary  string // framed; empty for none
	// Authority lets the summary ride in the system position.
	Authority bool
	// Tools is the request's list, as given, which ToolNames has read; nil for none.
	Tools jsontext.Value
	// Added are the tools to be declared beside them.
	Added []Declaration
	// Provider and Model are those asked; empty when the request does not say.
	Provider, Model string

	given map[string]bool // names that Tools declares; nil when nothing is added
}

// A Declaration is a tool that is declared because the history names it, or because
// it was granted.
type Declaration struct {
	Name    string
	Refusal string // what stands as its description; empty when it may be called
	Custom  bool   // it takes free text instead of an object
}

// Shown is a request's part that is about the history.
type Shown struct {
	Messages []byte // elements separated by commas, without the brackets
	System   []byte // one value; nil for none
	Tools    []byte // elements as in Messages; nil for none
	// Refusals are the added tools that may not be called, by their names as declared.
	Refusals []Declaration
	// Names has the original of each name that had to be mapped.
	Names  map[string]string
	Report Report
}

// Render writes what a model is to be shown. The caller has asked Messages before:
// any other format panics. It is deterministic, and while nothing but messages is
// added at the end, what it wrote before is the beginning of what it writes, but for
// a last message that grows, and for results of a last message: a provider gets them in
// the order of their calls, in whichever they came.
func Render(f Format, s Show) Shown {
	s.note(f)
	if f == Native {
		return renderNative(&s)
	}
	s.Messages = inCallOrder(s.Messages)
	return codecs[f].render(&s)
}

// room is about how many bytes the texts of a render take, so that it grows seldom.
func (s *Show) room() int {
	const aBlock = 100 // the names around it
	n := len(s.Summary) + aBlock
	var visit func(blocks []history.Block)
	visit = func(blocks []history.Block) {
		for i := range blocks {
			b := &blocks[i]
			n += aBlock + len(b.Text) + len(b.Arguments) + len(b.Opaque)
			visit(b.Content)
		}
	}
	for i := range s.Messages {
		visit(s.Messages[i].Content)
	}
	return n
}

// target is whom a render is for: origins are compared with it.
type target struct{ provider, model string }

// target returns who is asked. A request that names no model goes on with the one
// that answered last.
func (s *Show) target(own string) target {
	t := target{s.Provider, s.Model}
	if t.provider == "" {
		t.provider = own
	}
	for i := len(s.Messages) - 1; i >= 0 && t.model == ""; i-- {
		if m := &s.Messages[i]; m.Role == history.Assistant && !m.Synthetic {
			t.model = m.Model
			break
		}
	}
	return t
}

// made reports whether the message came from there; its values without meaning to
// others, such as signatures, go nowhere else.
func (t target) made(m *history.Message) bool {
	return m.Provider == t.provider && m.Model == t.model
}

// An Exporter writes a conversation as a provider's list, message by message.
type Exporter struct {
	f Format
	o object
	e exporter
}

// NewExporter is for a provider's format.
func NewExporter(f Format) *Exporter { return &Exporter{f: f, e: codecs[f].exporter()} }

// Append appends the elements of a message, each after the first with a comma before
// it. The last one may be left open.
func (e *Exporter) Append(dst []byte, m *history.Message) []byte {
	e.o.dst = dst
	if foreign(e.f, m) {
		m = translated(e.f, m)
	}
	e.e.add(&e.o, m)
	return e.o.dst
}

// End appends what closes an element that was left open.
func (e *Exporter) End(dst []byte) []byte {
	e.o.dst = dst
	e.e.end(&e.o)
	return e.o.dst
}
