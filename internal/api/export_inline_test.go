package api

import (
	"bytes"
	"encoding/json/jsontext"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"historyd/internal/history"
	"historyd/internal/wire"
	"historyd/test/growth"
)

type gathered []byte

func (g *gathered) write(p []byte) error {
	*g = append(*g, p...)
	return nil
}

// What is written piece by piece is what the message with all its bytes would be.
func TestBytesOfAttachmentsStandWhereTheirMarksStood(t *testing.T) {
	random := make([]byte, maxHeld/2)
	source := rand.NewChaCha8([32]byte{1})
	store := map[string][]byte{}
	block := func(typ history.BlockType, mediaType string, data []byte, extra string) history.Block {
		name := history.AttachmentName(data)
		store[name] = data
		b := history.Block{Type: typ, MediaType: mediaType, Attachment: name}
		if extra != "" {
			b.Extra = jsontext.Value(extra)
		}
		return b
	}
	var content []history.Block
	for range 3 { // more than is held
		_, _ = source.Read(random)
		content = append(content, block(history.ImageBlock, "image/png", bytes.Clone(random), ""))
	}
	text := []byte(strings.Repeat("\"é\n\u2028 <& ", 60_000))
	content = append(content,
		block(history.DocumentBlock, "text/plain", text, ""),
		block(history.DocumentBlock, "text/plain", text, `{"source":{"type":"base64"}}`),
		block(history.DocumentBlock, "application/pdf", []byte("%PDF"), ""),
		block(history.AudioBlock, "audio/wav", []byte{0xff}, ""),
		history.Block{Type: history.ImageBlock, Attachment: "sha256:" + strings.Repeat("0", 64)},
		content[0])
	said := history.Message{Role: history.User, Content: content}
	answer := history.Message{Role: history.Tool, Content: []history.Block{{Type: history.ToolResult, CallID: "c", Content: content}}}
	sound := history.Message{Role: history.Assistant, Content: []history.Block{
		block(history.AudioBlock, "audio/wav", []byte("sound"), `{"member":"audio"}`), block(history.ImageBlock, "image/png", []byte("drawn"), `{"member":"images"}`), history.Text("x"),
	}}
	read := func(name string) ([]byte, error) { return store[name], nil }
	formats := map[string]func(m *history.Message) []byte{"native": func(m *history.Message) []byte { return history.AppendInline(nil, m) }}
	for _, f := range []wire.Format{wire.OpenAI, wire.Responses, wire.Anthropic, wire.Gemini} {
		formats[string(f)] = func(m *history.Message) []byte {
			e := wire.NewExporter(f)
			return e.End(e.Append(nil, m))
		}
	}
	for name, write := range formats {
		var in inliner
		for i, m := range []history.Message{said, answer, sound, {Role: history.User, Content: []history.Block{history.Text("x")}}} {
			whole, marked := clone(m), clone(m)
			whole.MediaBlocks(func(b *history.Block) { b.Data = store[b.Attachment] })
			in.begin()
			if err := in.mark(&marked, read); err != nil {
				t.Fatal(err)
			}
			var got gathered
			if err := in.write(write(&marked), &got, read); err != nil {
				t.Fatal(err)
			}
			if want := write(&whole); !bytes.Equal(got, want) {
				t.Errorf("%s: message %d: %d bytes that differ from the %d wanted at %d", name, i, len(got), len(want), differ(got, want))
			}
		}
	}
}

func TestAMessageOfManyAttachmentsIsWrittenOnce(t *testing.T) {
	data := []byte("\x89PNG")
	read := func(string) ([]byte, error) { return data, nil }
	write := func(images int) time.Duration {
		block := history.Block{Type: history.ImageBlock, MediaType: "image/png", Attachment: history.AttachmentName(data)}
		m := history.Message{Role: history.User, Content: slices.Repeat([]history.Block{block}, images)}
		var in inliner
		in.begin()
		must(t, in.mark(&m, read))
		text := history.AppendInline(nil, &m)
		return growth.Work(t, 5, func() {
			var got gathered
			must(t, in.write(text, &got, read))
		})
	}
	const times = 16
	if ratio := float64(write(times*500)) / float64(write(500)); ratio > 4*times {
		t.Errorf("%d times as many attachments take %.0f times as long", times, ratio)
	}
}

func clone(m history.Message) history.Message {
	var copied func(blocks []history.Block) []history.Block
	copied = func(blocks []history.Block) []history.Block {
		out := append([]history.Block(nil), blocks...)
		for i := range out {
			if out[i].Content != nil {
				out[i].Content = copied(out[i].Content)
			}
		}
		return out
	}
	m.Content = copied(m.Content)
	return m
}

func differ(a, b []byte) int {
	n := min(len(a), len(b))
	for i := range n {
		if a[i] != b[i] {
			return i
		}
	}
	return n
}
