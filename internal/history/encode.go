package history

import (
	"bytes"
	"encoding/base64"
	"encoding/json/jsontext"
	"slices"
	"strconv"
	"time"
)

// TimeFormat is how a time is written: UTC, microseconds.
const TimeFormat = "2006-01-02T15:04:05.000000Z"

// AppendTime appends t as a JSON string in TimeFormat.
func AppendTime(dst []byte, t time.Time) []byte {
	dst = append(dst, '"')
	dst = t.UTC().AppendFormat(dst, TimeFormat)
	return append(dst, '"')
}

// AppendString appends s as a JSON string. Nothing is escaped that need not be.
func AppendString(dst []byte, s string) []byte {
	dst, err := jsontext.AppendQuote(dst, s)
	if err != nil {
		// Text in the model is valid UTF-8: both doors check it.
		panic("history: invalid UTF-8 in a message")
	}
	return dst
}

// AppendMessage appends the message as one line of compact JSON, its members in a
// fixed order. It is the native form, and the form on disk.
func AppendMessage(dst []byte, m *Message) []byte { return appendMessage(dst, m, false) }

// AppendInline is AppendMessage with the bytes of attachments that are at hand in
// place of their names, as a self-contained document has them.
func AppendInline(dst []byte, m *Message) []byte { return appendMessage(dst, m, true) }

func appendMessage(dst []byte, m *Message, inline bool) []byte {
	o := openObject(dst)
	o.text("id", m.ID)
	o.text("client_id", m.ClientID)
	if m.Seq != 0 {
		o.int("seq", m.Seq)
	}
	if !m.At.IsZero() {
		o.name("at")
		o.dst = AppendTime(o.dst, m.At)
	}
	o.flag("tz_assumed", m.TZAssumed)
	o.text("role", string(m.Role))
	o.text("kind", string(m.Kind))
	o.text("model", m.Model)
	o.text("provider", m.Provider)
	o.text("status", string(m.Status))
	o.name("content")
	o.dst = appendBlocks(o.dst, m.Content, inline)
	o.raw("usage", m.Usage)
	o.raw("metadata", m.Metadata)
	o.flag("synthetic", m.Synthetic)
	o.flag("imported", m.Imported)
	if f := m.Forked; f != nil {
		o.name("forked_from")
		in := openObject(o.dst)
		in.always("conversation", f.Conversation)
		in.always("id", f.ID)
		in.int("seq", f.Seq)
		o.dst = in.close()
	}
	o.raw("extra", m.Extra)
	o.flag("rewound", m.Rewound)
	return o.close()
}

// MarkRewound returns a message that AppendMessage wrote, marked as rewound.
func MarkRewound(raw jsontext.Value) jsontext.Value {
	const mark = `,"rewound":true}`
	if bytes.HasSuffix(raw, []byte(mark)) {
		return raw
	}
	return append(slices.Clip(raw[:len(raw)-1]), mark...)
}

func appendBlocks(dst []byte, blocks []Block, inline bool) []byte {
	dst = append(dst, '[')
	for i := range blocks {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = appendBlock(dst, &blocks[i], inline)
	}
	return append(dst, ']')
}

// AppendBlock appends one block as AppendMessage does.
func AppendBlock(dst []byte, b *Block) []byte { return appendBlock(dst, b, false) }

func appendBlock(dst []byte, b *Block, inline bool) []byte {
	o := openObject(dst)
	o.text("type", string(b.Type))
	switch b.Type {
	case TextBlock:
		o.always("text", b.Text)
	case ThinkingBlock:
		o.always("text", b.Text)
		o.text("signature", b.Signature)
		o.text("encrypted", b.Encrypted)
	case ToolCall:
		o.always("id", b.ID)
		o.always("name", b.Name)
		o.raw("arguments", b.Arguments)
		if b.ArgumentsText != nil {
			o.always("arguments_text", *b.ArgumentsText)
		}
		o.text("signature", b.Signature)
	case ToolResult:
		o.always("call_id", b.CallID)
		o.name("content")
		if b.Plain && len(b.Content) == 1 {
			o.dst = AppendString(o.dst, b.Content[0].Text)
		} else {
			o.dst = appendBlocks(o.dst, b.Content, inline)
		}
		o.name("is_error")
		o.dst = strconv.AppendBool(o.dst, b.IsError)
	case ImageBlock, DocumentBlock, AudioBlock:
		o.text("media_type", b.MediaType)
		o.text("url", b.URL)
		if inline && b.Data != nil {
			o.base64("data", b.Data)
		} else {
			o.text("attachment", b.Attachment)
		}
		o.text("filename", b.Filename)
	case OpaqueBlock:
		o.text("provider", b.Provider)
		o.raw("data", b.Opaque)
	}
	if t := b.Truncated; t != nil {
		o.name("truncated")
		in := openObject(o.dst)
		in.int("original_chars", t.OriginalChars)
		in.int("original_bytes", t.OriginalBytes)
		o.dst = in.close()
	}
	if r := b.Redacted; r != nil {
		o.name("redacted")
		in := openObject(o.dst)
		in.always("category", r.Category)
		in.always("reason", r.Reason)
		o.dst = in.close()
	}
	o.flag("synthetic", b.Synthetic)
	o.raw("extra", b.Extra)
	return o.close()
}

// object appends one JSON object, member by member. Names are literals that need
// no escaping.
type object struct {
	dst   []byte
	comma bool
}

func openObject(dst []byte) *object { return &object{dst: append(dst, '{')} }

func (o *object) close() []byte { return append(o.dst, '}') }

func (o *object) name(name string) {
	if o.comma {
		o.dst = append(o.dst, ',')
	}
	o.comma = true
	o.dst = append(o.dst, '"')
	o.dst = append(o.dst, name...)
	o.dst = append(o.dst, '"', ':')
}

func (o *object) always(name, s string) {
	o.name(name)
	o.dst = AppendString(o.dst, s)
}

func (o *object) text(name, s string) {
	if s != "" {
		o.always(name, s)
	}
}

func (o *object) base64(name string, data []byte) {
	o.name(name)
	o.dst = append(o.dst, '"')
	o.dst = base64.StdEncoding.AppendEncode(o.dst, data)
	o.dst = append(o.dst, '"')
}

func (o *object) int(name string, n int64) {
	o.name(name)
	o.dst = strconv.AppendInt(o.dst, n, 10)
}

func (o *object) flag(name string, set bool) {
	if set {
		o.name(name)
		o.dst = append(o.dst, "true"...)
	}
}

func (o *object) raw(name string, v jsontext.Value) {
	if v != nil {
		o.name(name)
		o.dst = append(o.dst, v...)
	}
}
