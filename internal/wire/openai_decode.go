package wire

import (
	"bytes"
	"encoding/json/jsontext"
	"slices"
	"strconv"

	"historyd/internal/history"
	"historyd/internal/strictjson"
)

// How a message of Chat Completions lies in the model:
//
//	role developer        role system,  extra {"role":"developer"}
//	role function         role tool,    extra {"role":"function"}, call id functionCallID
//	tool_calls, function  tool_call,    extra {members of the item, "function":{members of function}}
//	tool_calls, custom    tool_call,    extra {"type":"custom", …, "custom":{…}}
//	tool_calls, others    tool_call,    extra {"type":TYPE}, no name, arguments = the item without id and type
//	function_call         tool_call,    extra {"function_call":{…}}, id functionCallID
//	reasoning_content     thinking,     extra {"member":"reasoning_content"}; reasoning is another spelling
//	audio with data       audio,        extra {"member":"audio","audio":{members of audio but data}}
//	images                images,       extra {"member":"images", members of the part, "image_url":{…}}
//	refusal, other audio  opaque,       data {"type":NAME,NAME:…}, extra {"member":NAME}
//	part text, image_url  text, image,  extra {members of the part, "image_url":{…}}
//	part input_audio      audio,        extra {members of the part, "input_audio":{…}}
//	part file with data   document,     extra {members of the part, "file":{…}}, no media type when the data is no data: URL
//	other parts           opaque,       data = the part
//	an answer of nothing  text "",      extra {"content":null}, [] or false for what stood there
//	everything else       extra of the message
//
// Given back are the same JSON values but for: content that is absent or [] beside
// calls becomes null, a list of one bare text a string, and a tool call without a
// type a function.

// openAIProvider marks opaque blocks that Chat Completions made.
const openAIProvider = "openai"

// functionCallID pairs a deprecated function_call with its result: neither has an
// id, and the result follows at once.
const functionCallID = "function_call"

// imagesMember is where vendors put the images that a model made.
const imagesMember = "images"

// Limits of single members, in bytes, as in a native message.
const (
	maxID   = 1024
	maxName = 64 << 10
)

var (
	openAIMembers   = []string{"role", "content", "name", "tool_calls", "tool_call_id", "function_call", "refusal", "audio"}
	callMembers     = []string{"id", "type", "function", "custom", "function_call"}
	thinkingMembers = []string{"reasoning_content", "reasoning"}
	vendorMembers   = append(slices.Clip(thinkingMembers), imagesMember)
	messageMembers  = append(slices.Clip(openAIMembers), vendorMembers...)
	levelMembers    = callMembers[2:]
	functionMembers = []string{"name", "arguments"}
	customMembers   = []string{"name", "input"}
	imageMembers    = []string{"url"}
	audioMembers    = []string{"data", "format"}
	fileMembers     = []string{"file_data", "file_id", "filename"}
	partTypes       = []string{"text", "image_url", "input_audio", "refusal", "file"} // each with a member of its name
)

// saysNothing reports whether a known member may lie in extra as it is: it is
// modelled nowhere else, or has a value that means the same as its absence.
func saysNothing(name string, v strictjson.Value) bool {
	switch name {
	case "name":
		return v.Kind() == '"' || v.IsNull()
	case "tool_calls":
		return v.IsNull() || v.Kind() == '[' && len(v.Compact()) == len("[]")
	case "tool_call_id", "function_call", "refusal", "audio":
		return v.IsNull()
	}
	return false
}

// openAIGiven holds the members of one message that make its blocks.
type openAIGiven struct {
	role  string
	known map[string]strictjson.Value
}

func (d *decoder) openAIMessage(v strictjson.Value, path string) history.Message {
	m := history.Message{Status: history.Complete}
	if v.Kind() != '{' {
		d.fault(v, path, "a message is an object")
		return m
	}
	given := openAIGiven{role: d.openAIRole(v, path, &m), known: map[string]strictjson.Value{}}
	extra := d.object(v, path, messageMembers, func(name string, v strictjson.Value) bool {
		switch {
		case name == "role":
		case slices.Contains(thinkingMembers, name):
			if thought, ok := v.Text(); given.role != "assistant" || !ok || thought == "" {
				return true
			}
			given.known[name] = v
		case name == imagesMember:
			if given.role != "assistant" || !areImages(v) {
				return true
			}
			given.known[name] = v
		case saysNothing(name, v) && !(name == "tool_call_id" && given.role == "tool"):
			return true
		case name == "name":
			d.fault(v, path+".name", "must be a string")
		case name == "content" || name == "tool_call_id" && given.role == "tool" ||
			name != "tool_call_id" && given.role == "assistant":
			given.known[name] = v
		case given.role != "":
			d.fault(v, path+"."+name, "does not belong into a message of this role")
		}
		return false
	})
	if given.role == "developer" || given.role == "function" {
		extra.first("role", given.role)
	}
	d.refuseCarriers(v, path, extra.value())
	switch given.role {
	case "":
	case "assistant":
		before := d.count()
		if m.Content = d.openAIAssistant(path, given.known); len(m.Content) == 0 && d.count() == before {
			m.Content = d.openAINothing(v, path, given.known["content"], &extra)
		}
	case "tool", "function":
		if name, _ := v.Member("name"); given.role == "function" && name.Kind() != '"' {
			d.fault(v, path+".name", "a function message names its function")
		}
		m.Content = d.openAIResult(v, path, given)
	default:
		m.Content = d.openAISaid(v, path, &m, given.known)
	}
	m.Extra = extra.value()
	return m
}

// openAINothing reads an answer that broke off before it said anything, or was filtered.
// Where content is not null, which says so, another member may be what was said.
func (d *decoder) openAINothing(v strictjson.Value, path string, content strictjson.Value, extra *extra) []history.Block {
	if content.Raw == nil || !content.IsNull() {
		for name, m := range v.Members() {
			if !slices.Contains(messageMembers, name) && !slices.Contains([]string{"null", "[]", "{}", `""`}, string(m.Compact())) {
				d.fault(v, path+".content", "an assistant message has content, tool_calls or a refusal")
				return nil
			}
		}
	} else {
		d.refuseScattered(v, path+".content")
	}
	if content.Raw == nil {
		content.Raw = jsontext.Value("false")
	}
	extra.add("content", content.Compact())
	return []history.Block{history.Text("")}
}

func (d *decoder) openAIRole(v strictjson.Value, path string, m *history.Message) string {
	role, there := v.Member("role")
	if !there {
		d.fault(v, path+".role", "role is missing: user, system, developer, assistant, tool or function")
		return ""
	}
	s, _ := role.Text()
	switch s {
	case "user":
		m.Role, m.Kind = history.User, history.Person
	case "system", "developer":
		m.Role = history.System
	case "assistant":
		m.Role = history.Assistant
	case "tool", "function":
		m.Role = history.Tool
	default:
		d.fault(role, path+".role", "must be one of user, system, developer, assistant, tool, function")
		return ""
	}
	return s
}

// openAISaid reads the content of a user or system message.
func (d *decoder) openAISaid(v strictjson.Value, path string, m *history.Message, known map[string]strictjson.Value) []history.Block {
	content, there := known["content"]
	if !there {
		d.fault(v, path+".content", "is missing: a string or a list of parts")
		return nil
	}
	blocks := d.openAIContent(content, path+".content")
	if content.Kind() == '[' && len(blocks) == 0 {
		d.fault(content, path+".content", "holds at least one part")
	}
	for i := range blocks {
		if m.Role == history.System && blocks[i].Media() {
			d.fault(content, path+".content["+strconv.Itoa(i)+"].type", "a system message holds text alone")
		}
	}
	return blocks
}

func (d *decoder) openAIAssistant(path string, known map[string]strictjson.Value) []history.Block {
	var blocks []history.Block
	for _, name := range thinkingMembers {
		if thought, there := known[name]; there {
			text, _ := thought.Text()
			blocks = append(blocks, history.Block{Type: history.ThinkingBlock, Text: text, Extra: memberMark(name).value()})
		}
	}
	if content, there := known["content"]; there && !content.IsNull() {
		blocks = append(blocks, d.openAIContent(content, path+".content")...)
	}
	if images, there := known[imagesMember]; there {
		for _, b := range blocksOf(images, path+"."+imagesMember, d.openAIPart) {
			rest := extra(bytes.TrimSuffix(b.Extra, []byte("}")))
			rest.first("member", imagesMember)
			b.Extra = rest.value()
			blocks = append(blocks, b)
		}
	}
	if refusal, there := known["refusal"]; there {
		d.text(refusal, path+".refusal", 0, 0)
		blocks = append(blocks, memberBlock("refusal", refusal))
	}
	if audio, there := known["audio"]; there {
		blocks = append(blocks, d.openAISpoken(audio, path+".audio"))
	}
	if calls, there := known["tool_calls"]; there {
		if calls.Kind() != '[' {
			d.fault(calls, path+".tool_calls", "is a list of calls")
		} else {
			blocks = append(blocks, blocksOf(calls, path+".tool_calls", d.openAICall)...)
		}
	}
	if call, there := known["function_call"]; there {
		b := history.Block{Type: history.ToolCall, ID: functionCallID}
		var level extra
		if call.Kind() == '{' {
			level = d.openAIFunction(call, path+".function_call", functionMembers, &b)
		} else {
			d.fault(call, path+".function_call", "must be an object")
		}
		d.refuseCarriers(call, path+".function_call", level.value())
		var mark extra
		mark.add("function_call", orEmpty(level.value()))
		b.Extra = mark.value()
		blocks = append(blocks, b)
	}
	return blocks
}

// areImages reports whether a value is a list of image parts.
func areImages(v strictjson.Value) bool {
	if v.Kind() != '[' {
		return false
	}
	n := 0
	for _, e := range v.Elements() {
		if n++; textOf(e.Raw, "type") != "image_url" {
			return false
		}
	}
	return n > 0
}

// openAISpoken reads the audio of an answer: its sound where the answer brings it,
// and else what names it.
func (d *decoder) openAISpoken(v strictjson.Value, path string) history.Block {
	if v.Kind() != '{' {
		d.fault(v, path, "must be an object")
		return history.Block{}
	}
	data := memberNamed(v.Raw, "data")
	if text, ok := data.Text(); !ok || text == "" {
		return memberBlock("audio", v)
	}
	b := history.Block{Type: history.AudioBlock}
	rest := d.object(v, path, audioMembers[:1], func(_ string, v strictjson.Value) bool {
		d.base64(&b, v, path+".data")
		return false
	})
	d.refuseCarriers(v, path, rest.value())
	mark := memberMark("audio")
	mark.add("audio", orEmpty(rest.value()))
	b.Extra = mark.value()
	return b
}

// memberBlock keeps a member of an assistant message that may be all there is in it.
func memberBlock(name string, v strictjson.Value) history.Block {
	var data extra
	data.add("type", history.AppendString(nil, name))
	data.add(name, v.Compact())
	mark := memberMark(name)
	return history.Block{Type: history.OpaqueBlock, Provider: openAIProvider, Opaque: data.value(), Extra: mark.value()}
}

// memberMark says of which member of its message a block was.
func memberMark(name string) (mark extra) {
	mark.add("member", history.AppendString(nil, name))
	return mark
}

func orEmpty(v jsontext.Value) jsontext.Value {
	if v == nil {
		return jsontext.Value("{}")
	}
	return v
}

// openAIResult reads a tool or function message, which is one result.
func (d *decoder) openAIResult(v strictjson.Value, path string, given openAIGiven) []history.Block {
	b := history.Block{Type: history.ToolResult, CallID: functionCallID, Content: []history.Block{}}
	if given.role == "tool" {
		if id, there := given.known["tool_call_id"]; there {
			b.CallID = d.text(id, path+".tool_call_id", 1, maxID)
		} else {
			d.fault(v, path+".tool_call_id", "is missing")
		}
	}
	content, there := given.known["content"]
	switch {
	case !there:
		d.fault(v, path+".content", "is missing: a string or a list of parts")
	case content.IsNull() && given.role == "function":
	default:
		b.Plain = content.Kind() == '"'
		b.Content = d.openAIContent(content, path+".content")
	}
	return []history.Block{b}
}

// openAICall reads one item of tool_calls.
func (d *decoder) openAICall(v strictjson.Value, path string) history.Block {
	b := history.Block{Type: history.ToolCall}
	if v.Kind() != '{' {
		d.fault(v, path, "a call is an object")
		return b
	}
	kind := d.openAICallType(v, path)
	wrapped := kind == "function" || kind == "custom"
	var id, inner strictjson.Value
	rest := d.object(v, path, callMembers, func(name string, v strictjson.Value) bool {
		switch {
		case name == "id":
			id = v
		case name == "type":
		case name == kind && wrapped:
			inner = v
		case wrapped && !v.IsNull():
			// Kept unread, it would carry arguments past the redaction.
			d.fault(v, path+"."+name, "does not belong into a call of this type")
		default:
			return true
		}
		return false
	})
	if id.Raw == nil {
		d.fault(v, path+".id", "is missing")
	} else {
		b.ID = d.text(id, path+".id", 1, maxID)
	}
	switch {
	case kind == "":
	case !wrapped:
		// Where such a call names its tool nobody knows: it has no name that a rule could hold for.
		b.Arguments = orEmpty(rest.value())
		rest = nil
		rest.first("type", kind)
	case inner.Kind() != '{':
		d.fault(v, path+"."+kind, "is missing: an object")
	default:
		members := functionMembers
		if kind == "custom" {
			members = customMembers
			rest.first("type", kind)
		}
		d.refuseCarriers(v, path, rest.value())
		if level := d.openAIFunction(inner, path+"."+kind, members, &b); level != nil {
			d.refuseCarriers(inner, path+"."+kind, level.value())
			rest.add(kind, level.value())
		}
	}
	b.Extra = rest.value()
	return b
}

// openAICallType returns the type of a call; "" after a fault.
func (d *decoder) openAICallType(v strictjson.Value, path string) string {
	typ, there := v.Member("type")
	if !there {
		if _, there = v.Member("function"); there {
			return "function"
		}
		d.fault(v, path+".type", "is missing: function or custom")
		return ""
	}
	return d.text(typ, path+".type", 1, maxTag)
}

// openAIFunction reads the object with the name of the tool and the text that the
// model gave it, which is the second of members.
func (d *decoder) openAIFunction(v strictjson.Value, path string, members []string, b *history.Block) extra {
	seen := map[string]bool{}
	level := d.object(v, path, members, func(name string, v strictjson.Value) bool {
		seen[name] = true
		if name == "name" {
			b.Name = d.text(v, path+".name", 0, maxName)
		} else {
			b.SetArguments(d.text(v, path+"."+name, 0, 0))
		}
		return false
	})
	for _, name := range members {
		if !seen[name] {
			d.fault(v, path+"."+name, "is missing: a string")
		}
	}
	return level
}
