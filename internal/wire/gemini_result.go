package wire

import (
	"encoding/json/jsontext"
	"strings"

	"historyd/internal/history"
	"historyd/internal/strictjson"
)

// geminiResponseDepth is how deep a response may nest that is kept as text: it comes
// back inside a part of a content of a list.
const geminiResponseDepth = strictjson.MaxDepth - 5

// What a response was that does not tell by itself: marks of the member response.
const (
	responseOutput = "output" // {"output": text}
	responseJSON   = "json"   // the text is the object
	responseText   = "text"   // it was no object but this text
	responseValue  = "value"  // it was no object but the value whose JSON is the text
)

func (d *decoder) geminiResult(c *geminiContent, p *geminiPart) history.Block {
	b := history.Block{Type: history.ToolResult, Content: []history.Block{}}
	if c.model {
		d.fault(p.Value, p.path+".functionResponse", "results stand in a content of role user")
	}
	if p.value.Kind() != '{' {
		d.fault(p.value, p.path+".functionResponse", "must be an object")
		return b
	}
	path := p.path + ".functionResponse"
	var id, name, response, parts strictjson.Value
	level := d.geminiObject(p.value, path, geminiResponseMembers, func(member string, v strictjson.Value) bool {
		switch member {
		case "id":
			id = v
		case "name":
			name = v
		case "response":
			response = v
		case "parts":
			parts = v
			return v.IsNull() || string(v.Compact()) == "[]"
		default:
			return true
		}
		return false
	})
	d.refuseCarriers(p.value, path, level.value())
	d.refuseCarriers(p.Value, p.path, p.rest.value())
	tool := d.geminiToolName(name, p.value, path)
	var mark extra
	b.CallID = d.geminiID(id, path, &mark)
	if b.CallID == "" {
		b.CallID = d.gemini.answer(c, tool)
	} else {
		d.gemini.answered(b.CallID)
	}
	d.geminiResponse(&b, response, path, &mark)
	if parts.Raw != nil && !parts.IsNull() {
		d.geminiResponseParts(&b, parts, path+".parts")
	}
	if level != nil {
		mark.add("level", level.value())
	}
	d.nameTool(p, tool)
	if mark != nil {
		p.rest.add(geminiMark, mark.value())
	}
	p.keepModifiers(&b)
	return b
}

// nameTool puts the name of the tool first into what is kept of a result: the rules about
// tools hold for it, too.
func (d *decoder) nameTool(p *geminiPart, tool string) {
	rest := p.rest
	p.rest = nil
	p.rest.add("name", history.AppendString(nil, tool))
	if rest == nil {
		return
	}
	for name, v := range (strictjson.Value{Raw: rest.value()}).Members() {
		if strings.EqualFold(name, "name") {
			d.fault(p.Value, p.path, "a member has a name that is reserved for what is kept")
			continue
		}
		p.rest.add(name, v.Raw)
	}
}

// geminiResponse makes the response the one text that rules about results can work on.
func (d *decoder) geminiResponse(b *history.Block, v strictjson.Value, path string, mark *extra) {
	switch {
	case v.Raw == nil:
		mark.add("response", jsontext.Value("false"))
		return
	case v.IsNull():
		mark.add("response", v.Compact())
		return
	}
	b.Plain = true
	if v.Kind() != '{' {
		d.geminiBare(b, v, path, mark)
		return
	}
	only, members := "", 0
	for name, m := range v.Members() {
		members++
		if m.Kind() == '"' {
			only = name
		}
		if name == "error" {
			b.IsError = !m.IsNull() && m.Kind() != 'f' && string(m.Raw) != `""` || m.Kind() == '"'
		}
	}
	if members == 1 && (only == "result" || only == responseOutput || only == "error") {
		m, _ := v.Member(only)
		s, _ := m.Text()
		b.Content = append(b.Content, history.Text(s))
		if only == responseOutput {
			mark.add("response", history.AppendString(nil, responseOutput))
		}
		return
	}
	if nesting(v.Raw) > geminiResponseDepth {
		d.fault(v, path+".response", "nests over %d levels", geminiResponseDepth)
	}
	b.Content = append(b.Content, history.Text(string(v.Compact())))
	mark.add("response", history.AppendString(nil, responseJSON))
}

// geminiBare reads a response that is no object, as some libraries let one write it.
func (d *decoder) geminiBare(b *history.Block, v strictjson.Value, path string, mark *extra) {
	text, ok := v.Text()
	kind := responseText
	if !ok {
		text, kind = string(v.Compact()), responseValue
	}
	if nesting(v.Raw) > geminiResponseDepth {
		d.fault(v, path+".response", "nests over %d levels", geminiResponseDepth)
	}
	b.Content = append(b.Content, history.Text(text))
	mark.add("response", history.AppendString(nil, kind))
}

func (d *decoder) geminiResponseParts(b *history.Block, parts strictjson.Value, path string) {
	if parts.Kind() != '[' {
		d.fault(parts, path, "is a list of parts")
		return
	}
	if inner := blocksOf(parts, path, d.geminiResponsePart); len(inner) > 0 {
		b.Plain = false
		b.Content = append(b.Content, inner...)
	}
}

func (d *decoder) geminiResponsePart(v strictjson.Value, path string) history.Block {
	if v.Kind() != '{' {
		d.fault(v, path, "a part is an object")
		return history.Block{}
	}
	p := geminiPart{Value: v, path: path}
	p.rest = d.geminiObject(v, path, geminiResponsePartMembers, func(name string, v strictjson.Value) bool {
		switch {
		case v.IsNull() || name == "mediaProcessing":
			return true
		case p.kind != "":
			d.fault(v, path+"."+name, "a part holds one of inlineData and fileData")
		}
		p.kind, p.value = name, v
		return false
	})
	d.refuseReserved(v, path, p.rest)
	if p.kind == "" {
		return d.geminiOpaque(&p)
	}
	media := d.geminiMedia(&p)
	p.keepModifiers(&media)
	return media
}

// geminiMedia reads inlineData or fileData.
func (d *decoder) geminiMedia(p *geminiPart) history.Block {
	b := history.Block{Type: history.DocumentBlock}
	path := p.path + "." + p.kind
	if p.value.Kind() != '{' {
		d.fault(p.value, path, "must be an object")
		return b
	}
	known, there := geminiBlobMembers, false
	if p.kind == "fileData" {
		known = geminiFileMembers
	}
	level := d.geminiObject(p.value, path, known, func(name string, v strictjson.Value) bool {
		switch name {
		case "mimeType", "displayName":
			if v.IsNull() || string(v.Raw) == `""` {
				return true
			}
			if name == "mimeType" {
				b.MediaType = d.text(v, path+".mimeType", 1, maxTag)
			} else {
				b.Filename = d.text(v, path+".displayName", 1, maxID)
			}
		case "data":
			there = true
			data, ok := geminiBytes(d.text(v, path+".data", 1, 0))
			if !ok {
				d.fault(v, path+".data", "must be base64 of at least one byte")
				break
			}
			b.SetData(data)
		case "fileUri":
			there = true
			b.URL = d.text(v, path+".fileUri", 1, 0)
			if history.IsDataURL(b.URL) {
				d.fault(v, path+".fileUri", "is its own content: write it as inlineData")
			}
		}
		return false
	})
	if !there {
		d.fault(p.value, path+"."+known[1], "is missing: a string")
	}
	b.Type = geminiBlockType(b.MediaType)
	d.refuseCarriers(p.value, path, level.value())
	d.refuseCarriers(p.Value, p.path, p.rest.value())
	var mark extra
	if level != nil {
		mark.add("level", level.value())
	}
	b.Extra = extra(nil).marked(mark)
	return b
}

// geminiBlockType returns the block for a media type; what is neither an image nor a
// sound, such as a video, is a document.
func geminiBlockType(mediaType string) history.BlockType {
	kind, _, _ := strings.Cut(strings.ToLower(mediaType), "/")
	switch kind {
	case "image":
		return history.ImageBlock
	case "audio":
		return history.AudioBlock
	}
	return history.DocumentBlock
}
