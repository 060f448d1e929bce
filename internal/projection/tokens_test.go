package projection

import (
	"strings"
	"testing"

	"historyd/internal/history"
)

func TestEstimateTokens(t *testing.T) {
	image := history.Block{Type: history.ImageBlock, URL: "u"}
	for _, tt := range []struct {
		name     string
		in       history.Message
		min, max int64
	}{
		{"nothing", said(""), 4, 4},
		{"words", said(strings.Repeat("the word ", 100)), 190, 230},
		{"signs", said(strings.Repeat("{}", 100)), 50, 105},
		{"digits", said(strings.Repeat("1234567", 100)), 238, 238},
		{"ideographs", said(strings.Repeat("漢", 1000)), 700, 1500},
		{"kana", said(strings.Repeat("か", 1000)), 700, 1500},
		{"hangul", said(strings.Repeat("한", 1000)), 700, 1500},
		{"ideographs of later planes", said(strings.Repeat("𠀀", 1000)), 2500, 3500},
		{"Cyrillic", said(strings.Repeat("ж", 1000)), 500, 700},
		{"white space is not letters", said(strings.Repeat(" ", 1000)), 5, 20},
		{"broken UTF-8", said(strings.Repeat("\xff", 100)), 50, 300},
		{"a call", calling("c", "name", `{"a":12}`), 14, 20},
		{"a result", answering("c", strings.Repeat("the word ", 100)), 194, 234},
		{"an image", message(history.User, image), 1604, 1604},
		{"an image in a result", message(history.Tool, resultOf("c", history.Text("word"), image)), 1609, 1609},
		{"a document", message(history.User, history.Block{Type: history.DocumentBlock, URL: "u"}), 3004, 3004},
		{"a sound", message(history.User, history.Block{Type: history.AudioBlock, URL: "u"}), 1504, 1504},
		{"thinking", message(history.Assistant, history.Block{Type: history.ThinkingBlock, Text: "word", Signature: strings.Repeat("s", 1000)}), 5, 6},
		{"encrypted thinking", message(history.Assistant, history.Block{Type: history.ThinkingBlock, Encrypted: strings.Repeat("s", 600)}), 104, 104},
		{"opaque data", message(history.Assistant, history.Block{Type: history.OpaqueBlock, Opaque: raw(`{"some":"data"}`)}), 7, 12},
	} {
		if got := EstimateTokens(&tt.in); got < tt.min || got > tt.max {
			t.Errorf("%s: %d tokens, want %d to %d", tt.name, got, tt.min, tt.max)
		}
	}
}

// More of a text is never fewer tokens, up to the edge of a run.
func TestTextsThatGrowAreNotEstimatedLower(t *testing.T) {
	const slack = 2
	for name, text := range texts(t) {
		text, last := text[:min(len(text), 1500)], int64(0)
		for i := range text {
			n := EstimateText(text[:i])
			if n+slack < last {
				t.Errorf("%s: %d tokens for %d bytes after %d", name, n, i, last)
			}
			last = max(last, n)
		}
	}
}
