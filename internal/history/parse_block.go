package history

import (
	"bytes"
	"encoding/json/jsontext"
	"fmt"
	"slices"

	"historyd/internal/strictjson"
)

// blockMembers are the members of each type beside type, redacted, truncated, synthetic and extra.
var blockMembers = map[BlockType][]string{
	TextBlock:     {"text"},
	ToolCall:      {"id", "name", "arguments", "arguments_text", "signature"},
	ToolResult:    {"call_id", "content", "is_error"},
	ThinkingBlock: {"text", "signature", "encrypted"},
	ImageBlock:    {"media_type", "data", "url", "attachment", "filename"},
	DocumentBlock: {"media_type", "data", "url", "attachment", "filename"},
	AudioBlock:    {"media_type", "data", "url", "attachment", "filename"},
	OpaqueBlock:   {"provider", "data"},
}

var commonBlockMembers = []string{"type", "redacted", "truncated", "synthetic", "extra"}

func (p *parser) block(v strictjson.Value, path string) Block {
	var b Block
	if v.Kind() != '{' {
		p.fault(v, path, "a block is an object with a type")
		return b
	}
	typ, ok := v.Member("type")
	if !ok {
		before := len(p.faults.List) + p.faults.More
		p.object(v, path, []string{"type"}, func(string, strictjson.Value) {}) // it may stand there in another case
		if len(p.faults.List)+p.faults.More == before {
			p.fault(v, path+".type", "the type of the block is missing")
		}
		return b
	}
	name, _ := typ.Text()
	members, ok := blockMembers[BlockType(name)]
	if !ok {
		p.fault(typ, path+".type", "must be one of text, tool_call, tool_result, thinking, image, document, audio, opaque%s", foreignBlock(name))
		return b
	}
	b.Type = BlockType(name)
	seen := map[string]bool{}
	b.Extra = p.object(v, path, append(slices.Clip(members), commonBlockMembers...), func(name string, v strictjson.Value) {
		seen[name] = true
		p.blockMember(&b, name, v, path+"."+name)
	})
	for _, name := range required(b.Type) {
		if !seen[name] {
			p.fault(v, path+"."+name, "is missing%s", foreignMember(name, b.Extra))
		}
	}
	p.settleBlock(&b, seen, v, path)
	p.refuseForeignBlock(&b, v, path)
	return b
}

func required(t BlockType) []string {
	switch t {
	case TextBlock, ThinkingBlock:
		return []string{"text"}
	case ToolCall:
		return []string{"id", "name"}
	case ToolResult:
		return []string{"call_id", "content"}
	case OpaqueBlock:
		return []string{"provider", "data"}
	}
	return nil
}

func (p *parser) blockMember(b *Block, name string, v strictjson.Value, path string) {
	switch name {
	case "text":
		b.Text = p.text(v, path, 0, 0)
	case "id":
		b.ID = p.text(v, path, 1, maxID)
	case "name":
		b.Name = p.text(v, path, 0, maxName)
	case "arguments":
		b.Arguments = v.Compact()
	case "arguments_text":
		s := p.text(v, path, 0, 0)
		b.ArgumentsText = &s
	case "signature":
		b.Signature = p.text(v, path, 0, 0)
	case "encrypted":
		b.Encrypted = p.text(v, path, 0, 0)
	case "call_id":
		b.CallID = p.text(v, path, 1, maxID)
	case "content":
		b.Plain = v.Kind() == '"'
		b.Content = p.content(v, path)
	case "is_error":
		b.IsError = p.bool(v, path)
	case "media_type":
		b.MediaType = p.text(v, path, 0, maxTag)
	case "url":
		b.URL = p.text(v, path, 1, 0)
	case "attachment":
		p.attachment(b, v, path)
	case "filename":
		b.Filename = p.text(v, path, 0, maxID)
	case "provider":
		b.Provider = p.text(v, path, 1, maxTag)
	case "data":
		if b.Type == OpaqueBlock {
			b.Opaque = v.Compact()
		} else {
			p.data(b, v, path)
		}
	case "truncated":
		b.Truncated = p.truncation(v, path)
	case "redacted":
		b.Redacted = p.redaction(v, path)
	case "synthetic":
		b.Synthetic = p.bool(v, path)
	}
}

// settleBlock checks what several members of a block decide together.
func (p *parser) settleBlock(b *Block, seen map[string]bool, v strictjson.Value, path string) {
	switch b.Type {
	case ToolCall:
		p.settleArguments(b, seen, v, path)
	case ToolResult:
		for i := range b.Content {
			if t := b.Content[i].Type; t == ToolCall || t == ToolResult || t == ThinkingBlock {
				p.fault(v, fmt.Sprintf("%s.content[%d].type", path, i), "a result cannot hold a %s block", t)
			}
		}
	case ImageBlock, DocumentBlock, AudioBlock:
		p.settleMedia(b, seen, v, path)
	}
}

func (p *parser) settleArguments(b *Block, seen map[string]bool, v strictjson.Value, path string) {
	switch {
	case !seen["arguments"] && !seen["arguments_text"]:
		p.fault(v, path+".arguments", "is missing: any JSON value, {} when there are none")
	case !seen["arguments_text"] || b.ArgumentsText == nil:
	case p.door == storedDoor:
	case !seen["arguments"]:
		b.SetArguments(*b.ArgumentsText)
	default:
		given := b.Arguments
		b.SetArguments(*b.ArgumentsText)
		if !bytes.Equal(given, b.Arguments) {
			p.fault(v, path+".arguments_text", "does not hold the same value as arguments")
		}
	}
}

// SetArguments sets the arguments of a call from the text that a provider gives
// for them: as a value when the text is strict JSON, as text when it is not, and
// as both when the value written compactly is not the text to the byte.
func (b *Block) SetArguments(text string) {
	b.Arguments, b.ArgumentsText = nil, &text
	if strictjson.CheckDepth([]byte(text), argumentDepth) != nil {
		return
	}
	b.Arguments = strictjson.Document([]byte(text)).Compact()
	if string(b.Arguments) == text {
		b.ArgumentsText = nil
	}
}

// ArgumentString returns the arguments as the text that a provider gave or takes.
func (b *Block) ArgumentString() string {
	if b.ArgumentsText != nil {
		return *b.ArgumentsText
	}
	return string(b.Arguments)
}

func (p *parser) truncation(v strictjson.Value, path string) *Truncation {
	t := &Truncation{}
	if v.Kind() != '{' {
		p.fault(v, path, "must be an object")
		return nil
	}
	p.object(v, path, []string{"original_chars", "original_bytes"}, func(name string, v strictjson.Value) {
		if name == "original_chars" {
			t.OriginalChars = p.int(v, path+"."+name)
		} else {
			t.OriginalBytes = p.int(v, path+"."+name)
		}
	})
	return t
}

func (p *parser) redaction(v strictjson.Value, path string) *Redaction {
	r := &Redaction{}
	if v.Kind() != '{' {
		p.fault(v, path, "must be an object")
		return nil
	}
	p.object(v, path, []string{"category", "reason"}, func(name string, v strictjson.Value) {
		if name == "category" {
			r.Category = p.text(v, path+"."+name, 0, maxTag)
		} else {
			r.Reason = p.text(v, path+"."+name, 0, maxTag)
		}
	})
	return r
}

// WithheldArguments is what stands in place of withheld arguments.
func WithheldArguments(category string) jsontext.Value {
	dst := []byte(`{"_withheld":`)
	return append(AppendString(dst, category), '}')
}

// WithheldText is what stands in place of a withheld result or value.
func WithheldText(category string) string { return "[withheld: " + category + "]" }
