package wire

import (
	"strings"
	"testing"
)

func TestToolRoom(t *testing.T) {
	list := func(n int) []byte {
		return []byte("[" + strings.TrimSuffix(strings.Repeat(`{"type":"x"},`, n), ",") + "]")
	}
	for _, tt := range []struct {
		f           Format
		tools       []byte
		names, want int
	}{
		{OpenAI, nil, 0, 128}, {Responses, list(100), 1, 28}, {OpenAI, list(127), 127, 1}, {OpenAI, list(128), 128, -1}, {Responses, list(200), 0, -1},
		{Gemini, list(1), 500, 12}, {Anthropic, list(1000), 1000, 0}, {Native, list(1000), 1000, 0},
	} {
		if got := ToolRoom(tt.f, tt.tools, tt.names); got != tt.want {
			t.Errorf("%s with %d bytes of tools of %d names: %d, want %d", tt.f, len(tt.tools), tt.names, got, tt.want)
		}
	}
}
