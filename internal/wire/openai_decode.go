package wire

import (
	"encoding/json/jsontext"
	"slices"
	"strconv"
	"strings"

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
//	refusal, audio        opaque,       data {"type":NAME,NAME:…}, extra {"member":NAME}
//	part text, image_url  text, image,  extra {members of the part, "image_url":{…}}
//	other parts           opaque,       data = the part
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

// Limits of single members, in bytes, as in a native message.
const (
	maxID   = 1024
	maxName = 64 << 10
)

var (
	openAIMembers   = []string{"role", "content", "name", "tool_calls", "tool_call_id", "function_call", "refusal", "audio"}
	callMembers     = []string{"id", "type", "function", "custom", "function_call"}
	levelMembers    = callMembers[2:]
	functionMembers = []string{"name", "arguments"}
	customMembers   = []string{"name", "input"}
	imageMembers    = []string{"url"}
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
	extra := d.object(v, path, openAIMembers, func(name string, v strictjson.Value) bool {
		switch {
		case name == "role":
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
	m.Extra = extra.value()
	d.refuseCarriers(v, path, m.Extra)
	switch given.role {
	case "":
	case "assistant":
		m.Content = d.openAIAssistant(v, path, given.known)
	case "tool", "function":
		if name, _ := v.Member("name"); given.role == "function" && name.Kind() != '"' {
			d.fault(v, path+".name", "a function message names its function")
		}
		m.Content = d.openAIResult(v, path, given)
	default:
		m.Content = d.openAISaid(v, path, &m, given.known)
	}
	return m
}

// refuseCarriers refuses unknown members in which other formats carry calls and
// results: kept unread they would pass the redaction.
func (d *decoder) refuseCarriers(v strictjson.Value, path string, unknown jsontext.Value) {
	if history.CarriesTools(unknown) {
		d.fault(v, path, "an unknown member carries tool calls or results: write them as tool_calls and tool messages")
	}
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
		if m.Role == history.System && blocks[i].Type == history.ImageBlock {
			d.fault(content, path+".content["+strconv.Itoa(i)+"].type", "a system message cannot hold an image")
		}
	}
	return blocks
}

func (d *decoder) openAIAssistant(v strictjson.Value, path string, known map[string]strictjson.Value) []history.Block {
	faultsBefore := d.count()
	var blocks []history.Block
	if content, there := known["content"]; there && !content.IsNull() {
		blocks = d.openAIContent(content, path+".content")
	}
	if refusal, there := known["refusal"]; there {
		d.text(refusal, path+".refusal", 0, 0)
		blocks = append(blocks, memberBlock("refusal", refusal))
	}
	if audio, there := known["audio"]; there {
		if audio.Kind() != '{' {
			d.fault(audio, path+".audio", "must be an object")
		}
		blocks = append(blocks, memberBlock("audio", audio))
	}
	if calls, there := known["tool_calls"]; there {
		if calls.Kind() != '[' {
			d.fault(calls, path+".tool_calls", "is a list of calls")
		} else {
			for i, e := range calls.Elements() {
				blocks = append(blocks, d.openAICall(e, path+".tool_calls["+strconv.Itoa(i)+"]"))
			}
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
	if len(blocks) == 0 && d.count() == faultsBefore {
		d.fault(v, path+".content", "an assistant message has content, tool_calls or a refusal")
	}
	return blocks
}

// memberBlock keeps a member of an assistant message that may be all there is in it.
func memberBlock(name string, v strictjson.Value) history.Block {
	var data, mark extra
	quoted := jsontext.Value(history.AppendString(nil, name))
	data.add("type", quoted)
	data.add(name, v.Compact())
	mark.add("member", quoted)
	return history.Block{Type: history.OpaqueBlock, Provider: openAIProvider, Opaque: data.value(), Extra: mark.value()}
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

func (d *decoder) openAIContent(v strictjson.Value, path string) []history.Block {
	if s, ok := v.Text(); ok {
		return []history.Block{history.Text(s)}
	}
	if v.Kind() != '[' {
		d.fault(v, path, "is a string or a list of parts")
		return nil
	}
	blocks := []history.Block{}
	for i, e := range v.Elements() {
		blocks = append(blocks, d.openAIPart(e, path+"["+strconv.Itoa(i)+"]"))
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
		before := d.count()
		d.object(v, path, []string{"type"}, func(string, strictjson.Value) bool { return false })
		if d.count() == before { // it does not stand there in another case either
			d.fault(v, path+".type", "is missing")
		}
		return history.Block{}
	case !ok:
		d.fault(typ, path+".type", "must be a string")
		return history.Block{}
	case toolTraffic(kind):
		d.fault(typ, path+".type", "calls stand in tool_calls and results in tool messages, not among the parts")
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
	case "image_url":
		return d.openAIImage(v, value, path, rest)
	case "input_audio":
		d.fault(v, path, "inline audio data is not supported yet")
	case "refusal":
		if value.Kind() != '"' {
			d.fault(v, path+".refusal", "must be a string")
		}
	case "file":
		d.openAIFile(v, value, path)
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

func (d *decoder) openAIImage(v, value strictjson.Value, path string, rest extra) history.Block {
	b := history.Block{Type: history.ImageBlock}
	if value.Raw == nil || value.Kind() != '{' {
		d.fault(v, path+".image_url", "must be an object with a url")
		return b
	}
	found := false
	level := d.object(value, path+".image_url", imageMembers, func(_ string, v strictjson.Value) bool {
		found = true
		b.URL = d.text(v, path+".image_url.url", 1, 0)
		return false
	})
	switch {
	case !found:
		d.fault(value, path+".image_url.url", "is missing")
	case inline(b.URL):
		d.fault(value, path+".image_url.url", "inline image data is not supported yet: give a url")
	}
	d.refuseCarriers(v, path, rest.value())
	if level != nil {
		d.refuseCarriers(value, path+".image_url", level.value())
		rest.add("image_url", level.value())
	}
	b.Extra = rest.value()
	return b
}

// inline reports whether a URL is its own content.
func inline(url string) bool {
	scheme, _, _ := strings.Cut(strings.TrimSpace(url), ":")
	return strings.EqualFold(scheme, "data")
}

func (d *decoder) openAIFile(v, value strictjson.Value, path string) {
	if value.Raw == nil || value.Kind() != '{' {
		d.fault(v, path+".file", "must be an object")
		return
	}
	d.object(value, path+".file", []string{"file_data", "file_id", "filename"}, func(name string, v strictjson.Value) bool {
		if name == "file_data" && !v.IsNull() {
			d.fault(v, path+".file.file_data", "inline document data is not supported yet: give a file_id")
		}
		return false
	})
}
