package wire

import (
	"encoding/json/jsontext"
	"slices"

	"historyd/internal/history"
	"historyd/internal/strictjson"
)

// textParts are the types of parts that are a text and nothing else to a model.
var textParts = []string{"input_text", "output_text", "text"}

func (d *decoder) responsesPart(v strictjson.Value, path string) history.Block {
	if v.Kind() != '{' {
		d.fault(v, path, "a part is an object with a type")
		return history.Block{}
	}
	kind := d.partType(v, path)
	switch {
	case kind == "":
		return history.Block{}
	case slices.Contains(textParts, kind):
		return d.responsesText(v, path, kind)
	case kind == "input_image" || kind == "computer_screenshot":
		if url, _ := v.Member("image_url"); url.Raw != nil && !url.IsNull() {
			return d.responsesImage(v, path, kind)
		}
	case kind == "input_file":
		if d.carries(v, "file_data") || d.carries(v, "file_url") {
			return d.responsesFile(v, path)
		}
	case kind == "input_audio":
		return d.responsesAudio(v, path)
	case toolTraffic(kind):
		d.fault(v, path+".type", "calls and results are items, not parts")
		return history.Block{}
	}
	// What the part names stays with the provider.
	d.object(v, path, []string{"type", "phase", "image_url", "file_data", "file_url", "file_id", "refusal"}, func(name string, v strictjson.Value) bool {
		switch {
		case name == "phase":
			d.fault(v, path+".phase", "stands beside the content")
		case name == "refusal" && kind == "refusal" && v.Kind() != '"':
			d.fault(v, path+".refusal", "must be a string")
		}
		return false
	})
	if history.ClientTool(v) {
		d.fault(v, path, "calls and results are items, not parts")
	}
	return history.Block{Type: history.OpaqueBlock, Provider: openAIProvider, Opaque: v.Compact()}
}

// partType returns the type of a part; "" after a fault.
func (d *decoder) partType(v strictjson.Value, path string) string {
	typ, there := v.Member("type")
	if there {
		return d.text(typ, path+".type", 1, maxTag)
	}
	d.typeless(v, path)
	return ""
}

func (d *decoder) carries(v strictjson.Value, name string) bool {
	m, there := v.Member(name)
	return there && !m.IsNull()
}

// part walks a part that becomes a block, whose extra holds its type and the rest.
func (d *decoder) part(b *history.Block, v strictjson.Value, path, kind string, known []string, set func(name string, v strictjson.Value, at string) (keep bool)) {
	rest := d.object(v, path, append(slices.Clip(known), "type", "phase"), func(name string, v strictjson.Value) bool {
		switch name {
		case "type":
			return false
		case "phase":
			d.fault(v, path+".phase", "stands beside the content")
			return false
		}
		return set(name, v, path+"."+name)
	})
	rest.first("type", kind)
	b.Extra = rest.value()
	d.refuseCarriers(v, path, b.Extra)
}

func (d *decoder) responsesText(v strictjson.Value, path, kind string) history.Block {
	b := history.Block{Type: history.TextBlock}
	found := false
	d.part(&b, v, path, kind, []string{"text"}, func(_ string, v strictjson.Value, at string) bool {
		found = true
		b.Text = d.text(v, at, 0, 0)
		return false
	})
	if !found {
		d.fault(v, path+".text", "is missing: a string")
	}
	return b
}

func (d *decoder) responsesImage(v strictjson.Value, path, kind string) history.Block {
	b := history.Block{Type: history.ImageBlock}
	d.part(&b, v, path, kind, []string{"image_url", "file_id"}, func(name string, v strictjson.Value, at string) bool {
		if name == "file_id" {
			return d.stringOrNull(v, at)
		}
		b.URL = d.text(v, at, 1, 0)
		if history.IsDataURL(b.URL) {
			d.dataURL(&b, v, at)
		}
		return false
	})
	return b
}

// responsesFile reads a file that stands in its part, or that a URL names. Its bytes
// may stand as a data: URL or alone.
func (d *decoder) responsesFile(v strictjson.Value, path string) history.Block {
	b := history.Block{Type: history.DocumentBlock}
	both := d.carries(v, "file_data") && d.carries(v, "file_url")
	alone := false
	d.part(&b, v, path, "input_file", []string{"file_data", "file_url", "file_id", "filename"}, func(name string, v strictjson.Value, at string) bool {
		switch {
		case v.IsNull():
			return true
		case name == "file_id":
			return d.stringOrNull(v, at)
		case name == "filename":
			b.Filename = d.text(v, at, 0, maxID)
			return b.Filename == ""
		case name == "file_url":
			if b.URL = d.text(v, at, 1, 0); both || history.IsDataURL(b.URL) {
				d.fault(v, at, "is no place for bytes, nor beside them: they go into file_data")
			}
			return false
		}
		text, _ := v.Text()
		if !history.IsDataURL(text) {
			alone = true
			d.base64(&b, v, at)
			return false
		}
		url := b.URL
		b.URL = text
		d.dataURL(&b, v, at)
		b.URL = url
		return false
	})
	if alone {
		b.Extra = with(b.Extra, "file_data", jsontext.Value(`"base64"`))
	}
	return b
}

// with adds a member to an object that has it not.
func with(raw jsontext.Value, name string, v jsontext.Value) jsontext.Value {
	e := extra(slices.Clone(raw))
	if e != nil {
		e = e[:len(e)-1]
	}
	e.add(name, v)
	return e.value()
}

func (d *decoder) responsesAudio(v strictjson.Value, path string) history.Block {
	b := history.Block{Type: history.AudioBlock}
	found := false
	d.part(&b, v, path, "input_audio", []string{"input_audio"}, func(_ string, v strictjson.Value, at string) bool {
		found = v.Kind() == '{'
		return found
	})
	if !found {
		d.fault(v, path+".input_audio", "must be an object with data")
		return b
	}
	inner, _ := v.Member("input_audio")
	found = false
	level := d.object(inner, path+".input_audio", audioMembers, func(name string, v strictjson.Value) bool {
		at := path + ".input_audio." + name
		if name == "data" {
			found = true
			d.base64(&b, v, at)
			return false
		}
		format, _ := v.Text()
		b.MediaType = soundTypes[format]
		return d.stringOrNull(v, at)
	})
	if !found {
		d.fault(inner, path+".input_audio.data", "is missing")
	}
	var rest extra
	for name, m := range (strictjson.Value{Raw: b.Extra}).Members() {
		if name != "input_audio" {
			rest.add(name, m.Compact())
		}
	}
	rest.add("input_audio", orEmpty(level.value()))
	b.Extra = rest.value()
	return b
}
