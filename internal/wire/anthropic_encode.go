package wire

import (
	"encoding/json/jsontext"
	"slices"
	"unicode/utf8"

	"historyd/internal/history"
	"historyd/internal/strictjson"
)

// anthropicExporter writes everything that came in. A block that Anthropic has no
// form for is written as the native block.
type anthropicExporter struct {
	open bool // the list of a user message, for what is joined to it
}

func (x *anthropicExporter) end(o *object) {
	if x.open {
		o.closeList()
		o.close()
	}
	x.open = false
}

func (x *anthropicExporter) add(o *object, m *history.Message) {
	role := "user"
	if m.Role == history.Assistant || m.Role == history.System {
		role = string(m.Role)
	}
	if !x.open || role != "user" || !marked(m, joinedMark) {
		x.end(o)
		o.element()
		o.open()
		o.text("role", role)
		o.extras(m.Extra, anthropicMembers...)
		switch bare := m.Role != history.Tool && bareText(m.Content); {
		case bare && role == "assistant" && m.Content[0].Text == "" && marked(m, emptyMark):
			o.raw("content", jsontext.Value("[]"))
			o.close()
			return
		case bare && !marked(m, listMark):
			o.text("content", m.Content[0].Text)
			o.close()
			return
		}
		o.name("content")
		o.openList()
		x.open = true
	}
	for i := range m.Content {
		o.element()
		exportBlock(o, &m.Content[i], map[history.Role]int{history.Assistant: inAssistant, history.System: inSystem}[m.Role])
	}
	if role != "user" {
		x.end(o)
	}
}

// exportBlock writes a block where it stands, so that it can be read there.
func exportBlock(o *object, b *history.Block, place int) {
	switch b.Type {
	case history.OpaqueBlock:
		own := b.Provider == anthropicProvider && b.Opaque.Kind() == '{'
		o.opaque(b, own, func(d *decoder, v strictjson.Value) history.Block { return d.anthropicBlock(v, "", place) }, func(s string) {
			part := history.Text(s)
			exportBlock(o, &part, place)
		})
		return
	case history.ThinkingBlock:
		exportThinking(o, b)
		return
	case history.ImageBlock, history.DocumentBlock, history.AudioBlock:
		exportMedia(o, b)
		return
	}
	o.open()
	switch b.Type {
	case history.ToolCall:
		o.text("type", "tool_use")
		o.text("id", b.ID)
		o.text("name", b.Name)
		o.raw("input", inputOf(b))
		o.extras(b.Extra, anthropicTypes["tool_use"]...)
	case history.ToolResult:
		exportResult(o, b)
	default:
		o.text("type", "text")
		o.text("text", b.Text)
		o.extras(b.Extra, anthropicTypes["text"]...)
	}
	o.close()
}

func exportResult(o *object, b *history.Block) {
	o.text("type", "tool_result")
	o.text("tool_use_id", b.CallID)
	switch {
	case b.Plain && len(b.Content) == 1:
		o.text("content", b.Content[0].Text)
	case len(b.Content) > 0:
		o.name("content")
		o.openList()
		for i := range b.Content {
			o.element()
			exportBlock(o, &b.Content[i], inResult)
		}
		o.closeList()
	default:
		if v := memberNamed(b.Extra, "content"); v.IsNull() || string(v.Raw) == "[]" {
			o.raw("content", v.Raw)
		}
	}
	if b.IsError {
		o.raw("is_error", jsontext.Value("true"))
	} else if v := memberNamed(b.Extra, "is_error"); v.IsNull() || v.Kind() == 'f' {
		o.raw("is_error", v.Raw)
	}
	o.extras(b.Extra, anthropicTypes["tool_result"]...)
}

func exportThinking(o *object, b *history.Block) {
	o.open()
	if b.Text == "" && b.Signature == "" && (b.Encrypted != "" || textOf(b.Extra, "type") == redactedThinking) {
		o.text("type", redactedThinking)
		o.text("data", b.Encrypted)
		o.extras(b.Extra, anthropicTypes[redactedThinking]...)
		o.close()
		return
	}
	o.text("type", "thinking")
	o.text("thinking", b.Text)
	if b.Signature != "" {
		o.text("signature", b.Signature)
	} else if v := memberNamed(b.Extra, "signature"); v.IsNull() || string(v.Raw) == `""` {
		o.raw("signature", v.Raw)
	}
	except := anthropicTypes["thinking"]
	if b.Encrypted != "" {
		o.text("encrypted", b.Encrypted)
		except = append(slices.Clip(except), "encrypted")
	}
	o.extras(b.Extra, except...)
	o.close()
}

// exportMedia writes an image or a document, and a sound in the same way. What is not
// at hand is named.
func exportMedia(o *object, b *history.Block) {
	level := objectOf(memberNamed(b.Extra, "source"))
	o.open()
	o.text("type", string(b.Type))
	o.name("source")
	o.open()
	switch typ := sourceType(b); {
	case typ == "url":
		o.text("type", typ)
		o.text("url", b.URL)
		o.extras(level, "type", "url")
	case b.Data == nil:
		o.text("type", "attachment")
		o.text("attachment", b.Attachment)
		if b.MediaType != "" {
			o.text("media_type", b.MediaType)
		}
		o.extras(level, "type", "media_type", "data", "attachment")
	default:
		if given := textOf(level, "type"); given == "base64" || given == "text" && b.Type == history.DocumentBlock && utf8.Valid(b.Data) {
			typ = given
		}
		writeSource(o, typ, b.MediaType, b.Data)
		o.extras(level, "type", "media_type", "data")
	}
	o.close()
	except := []string{"type", "source"}
	if b.Filename != "" {
		o.text("title", b.Filename)
		except = append(except, "title")
	}
	o.extras(b.Extra, except...)
	o.close()
}

// writeSource writes the members of a source of bytes.
func writeSource(o *object, typ, mediaType string, data []byte) {
	o.text("type", typ)
	if mediaType != "" {
		o.text("media_type", mediaType)
	}
	if typ == "text" {
		o.text("data", string(data))
		return
	}
	o.base64("data", data)
}
