package wire

import (
	"historyd/internal/history"
	"historyd/internal/strictjson"
)

// openAICodec speaks Chat Completions.
type openAICodec struct{}

func (openAICodec) lists() []string { return []string{"messages"} }

func (openAICodec) provider() string { return openAIProvider }

func (openAICodec) decode(d *decoder, v strictjson.Value, path string) []history.Message {
	return []history.Message{d.openAIMessage(v, path)}
}

func (openAICodec) exporter() exporter { return &openAIWriter{purpose: ForExport} }

// toolNames takes a function or a custom tool.
func (openAICodec) toolNames(tool strictjson.Value) ([]string, bool) {
	for _, kind := range []string{"function", "custom"} {
		name := memberNamed(memberNamed(tool.Raw, kind).Raw, "name")
		if s, ok := name.Text(); ok {
			return []string{s}, true
		}
	}
	return nil, false
}

func (openAICodec) render(s *Show) Shown {
	w := openAIWriter{purpose: ForModel}
	for i := range s.Messages {
		w.message(&s.Messages[i])
	}
	return Shown{Messages: w.dst}
}

func (w *openAIWriter) add(o *object, m *history.Message) {
	w.dst = o.dst
	w.message(m)
	o.dst = w.dst
}

func (w *openAIWriter) end(*object) {}
