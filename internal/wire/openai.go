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

func (openAICodec) exporter() exporter { return &openAIExporter{} }

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
