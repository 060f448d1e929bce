package projection

import (
	"encoding/json/jsontext"
	"strings"
	"testing"

	"historyd/internal/history"
	"historyd/internal/strictjson"
)

func TestAMissingAttachmentLeavesAText(t *testing.T) {
	block := func(typ history.BlockType, data string) history.Block {
		b := history.Block{Type: typ, MediaType: "x/y", Extra: jsontext.Value(`{"a":[1e400]}`)}
		b.SetData([]byte(data))
		b.Data = nil
		return b
	}
	deep := block(history.AudioBlock, "lost")
	nested := func(levels int) history.Block {
		b := block(history.ImageBlock, "lost")
		b.Extra = jsontext.Value(`{"a":` + strings.Repeat("[", levels) + strings.Repeat("]", levels) + `}`)
		return b
	}
	deep.Extra = nested(57).Extra
	url := history.Block{Type: history.ImageBlock, URL: "https://example.com/x.png"}
	m := message(history.User, history.Text("see"), block(history.ImageBlock, "lost"), block(history.DocumentBlock, "kept"), deep, url)
	tool := message(history.Tool, history.Block{Type: history.ToolResult, CallID: "c", Content: []history.Block{block(history.ImageBlock, "lost"), nested(54), nested(55)}})
	lost := func(name string) bool { return name == history.AttachmentName([]byte("lost")) }
	kept := show([]history.Message{message(history.User, m.Content[0], m.Content[2], url)})
	Missing(&m, lost)
	Missing(&tool, lost)
	if got := show([]history.Message{message(history.User, m.Content[0], m.Content[2], m.Content[4])}); got != kept {
		t.Errorf("others are %s, want %s", got, kept)
	}
	for _, b := range []history.Block{m.Content[1], m.Content[3], tool.Content[0].Content[0]} {
		if b.Type != history.TextBlock || !b.Synthetic || !strings.HasSuffix(b.Text, ": its bytes are missing]") {
			t.Errorf("in its place stands %+v", b)
		}
	}
	if m.Content[1].Text != "[image: its bytes are missing]" || m.Content[3].Text != "[audio: its bytes are missing]" || !strings.Contains(string(m.Content[1].Extra), `"extra":{"a":[1e400]}`) {
		t.Errorf("the texts are %+v", m.Content)
	}
	for _, m := range []history.Message{m, tool} {
		// A document that holds the message is two levels.
		if err := strictjson.CheckDepth(history.AppendMessage(nil, &m), strictjson.MaxDepth-2); err != nil {
			t.Errorf("the message fits into no document: %v", err)
		}
		if _, err := history.ParseStored(history.AppendMessage(nil, &m)); err != nil {
			t.Errorf("the message cannot be read: %v", err)
		}
	}
	if whole, cut := string(tool.Content[0].Content[1].Extra), string(tool.Content[0].Content[2].Extra); !strings.Contains(whole, "[[") || strings.Contains(cut, "[[") {
		t.Errorf("what was around the images is %s and %s", whole, cut)
	}
	if _, shown := Text(&tool); shown {
		t.Error("a result is shown as said")
	}
	alone := message(history.User, m.Content[1])
	if _, shown := Text(&alone); shown {
		t.Error("what stands for an image is shown as said")
	}
}
