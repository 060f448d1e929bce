package wire

import (
	"slices"
	"strconv"
	"strings"

	"historyd/internal/history"
	"historyd/internal/strictjson"
)

func (d *decoder) openAIContent(v strictjson.Value, path string) []history.Block {
	if s, ok := v.Text(); ok {
		return []history.Block{history.Text(s)}
	}
	if v.Kind() != '[' {
		d.fault(v, path, "is a string or a list of parts")
		return nil
	}
	return blocksOf(v, path, d.openAIPart)
}

// blocksOf reads the elements of a list, each a block.
func blocksOf(list strictjson.Value, path string, read func(v strictjson.Value, path string) history.Block) []history.Block {
	blocks := []history.Block{}
	for i, e := range list.Elements() {
		blocks = append(blocks, read(e, path+"["+strconv.Itoa(i)+"]"))
	}
	return blocks
}

func (d *decoder) openAIPart(v strictjson.Value, path string) history.Block {
	if v.Kind() != '{' {
		d.fault(v, path, "a part is an object with a type")
		return history.Block{}
	}
	typ, there := v.Member("type")
	kind, ok := typ.Text()
	switch {
	case !there:
		d.typeless(v, path)
		return history.Block{}
	case !ok:
		d.fault(typ, path+".type", "must be a string")
		return history.Block{}
	case toolTraffic(kind):
		d.fault(typ, path+".type", "calls stand in tool_calls and results in tool messages, not among the parts%s", otherFormat(kind))
		return history.Block{}
	}
	value, part := strictjson.Value{}, history.Block{Type: history.OpaqueBlock, Provider: openAIProvider}
	known := []string{"type"}
	if slices.Contains(partTypes, kind) {
		known = append(known, kind)
	}
	rest := d.object(v, path, known, func(name string, v strictjson.Value) bool {
		if name == kind {
			value = v
		}
		return false
	})
	switch kind {
	case "text":
		if value.Raw == nil {
			d.fault(v, path+".text", "is missing: a string")
			break
		}
		part = history.Text(d.text(value, path+".text", 0, 0))
		part.Extra = rest.value()
		d.refuseCarriers(v, path, part.Extra)
		return part
	case "image_url", "input_audio":
		return d.openAIMedia(kind, v, value, path, rest)
	case "refusal":
		if value.Kind() != '"' {
			d.fault(v, path+".refusal", "must be a string")
		}
	case "file":
		if b, inline := d.openAIFile(v, value, path, rest); inline {
			return b
		}
	}
	part.Opaque = v.Compact()
	if history.ClientTool(v) {
		d.fault(v, path, "calls stand in tool_calls and results in tool messages, not among the parts")
	}
	return part
}

// toolTraffic reports whether a part is of a type by which other formats put calls
// and results among the parts. Kept as something unknown they would pass the redaction.
func toolTraffic(kind string) bool {
	kind = strings.ToLower(kind)
	return strings.Contains(kind, "tool") || strings.Contains(kind, "function") || strings.Contains(kind, "call")
}

// otherFormat says whose part it is that Chat Completions doesn't have.
func otherFormat(kind string) string {
	if f := history.TypeFormat(kind); f != "" && f != string(OpenAI) {
		return "; " + kind + " is of another format: name it with the parameter format (" + f + ")"
	}
	return ""
}

// openAIMedia reads an image, or a sound that stands in its part.
func (d *decoder) openAIMedia(kind string, v, value strictjson.Value, path string, rest extra) history.Block {
	b, known := history.Block{Type: history.ImageBlock}, imageMembers
	if kind == "input_audio" {
		b.Type, known = history.AudioBlock, audioMembers
	}
	if value.Raw == nil || value.Kind() != '{' {
		d.fault(v, path+"."+kind, "must be an object with %s", known[0])
		return b
	}
	found := false
	level := d.object(value, path+"."+kind, known, func(name string, v strictjson.Value) bool {
		at := path + "." + kind + "." + name
		switch name {
		case "url":
			found = true
			b.URL = d.text(v, at, 1, 0)
			if history.IsDataURL(b.URL) {
				d.dataURL(&b, v, at)
			}
		case "data":
			found = true
			d.base64(&b, v, at)
		case "format":
			format, _ := v.Text()
			b.MediaType = soundTypes[format]
			return b.MediaType == ""
		}
		return false
	})
	if !found {
		d.fault(value, path+"."+kind+"."+known[0], "is missing")
	}
	d.settlePart(kind, &b, v, value, path, rest, level)
	if mark := memberNamed(b.Extra, "member"); mark.Raw != nil {
		d.fault(v, path+".member", "is a name that historyd itself uses here")
	}
	return b
}

// soundTypes are the formats of input_audio.
var soundTypes = map[string]string{"wav": "audio/wav", "mp3": "audio/mpeg"}

// settlePart keeps what a part holds beside the block that was made of it.
func (d *decoder) settlePart(kind string, b *history.Block, v, value strictjson.Value, path string, rest, level extra) {
	d.refuseCarriers(v, path, rest.value())
	if level != nil {
		d.refuseCarriers(value, path+"."+kind, level.value())
		rest.add(kind, level.value())
	}
	b.Extra = rest.value()
}

// openAIFile reads a file that stands in its part; one that is only named stays as it is.
func (d *decoder) openAIFile(v, value strictjson.Value, path string, rest extra) (b history.Block, inline bool) {
	b.Type = history.DocumentBlock
	if value.Raw == nil || value.Kind() != '{' {
		d.fault(v, path+".file", "must be an object")
		return b, false
	}
	level := d.object(value, path+".file", fileMembers, func(name string, v strictjson.Value) bool {
		at := path + ".file." + name
		if name == "file_data" && !v.IsNull() {
			inline = true
			if text, _ := v.Text(); history.IsDataURL(text) {
				b.URL = text
				d.dataURL(&b, v, at)
				if b.MediaType == "" && b.Data != nil {
					d.fault(v, at, "the data: URL names no type")
				}
			} else {
				d.base64(&b, v, at)
			}
			return false
		}
		if s, _ := v.Text(); name == "filename" && s != "" && len(s) <= maxID {
			b.Filename = s
			return false
		}
		return true
	})
	if inline {
		d.settlePart("file", &b, v, value, path, rest, level)
	}
	return b, inline
}

// dataURL takes the bytes out of the URL of a block.
func (d *decoder) dataURL(b *history.Block, v strictjson.Value, path string) {
	mediaType, data, err := history.ParseDataURL(b.URL)
	b.URL = ""
	if err != nil {
		d.fault(v, path, "%s", err)
		return
	}
	b.MediaType = mediaType
	b.SetData(data)
}

func (d *decoder) base64(b *history.Block, v strictjson.Value, path string) {
	text, _ := v.Text()
	data, err := history.DecodeBase64(text)
	if err != nil {
		d.fault(v, path, "%s", err)
		return
	}
	b.SetData(data)
}
