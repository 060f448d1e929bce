package wire

import (
	"encoding/json/jsontext"
	"slices"
	"unicode/utf8"

	"historyd/internal/history"
	"historyd/internal/strictjson"
)

var anthropicMembers = []string{"role", "content", anthropicMark}

// anthropicTypes are the blocks that are modelled, with the members that are.
var anthropicTypes = map[string][]string{
	"text":           {"type", "text"},
	"image":          {"type", "source"},
	"document":       {"type", "source", "title"},
	"thinking":       {"type", "thinking", "signature"},
	redactedThinking: {"type", "data"},
	"tool_use":       {"type", "id", "name", "input"},
	"tool_result":    {"type", "tool_use_id", "content", "is_error"},
}

// redactedThinking is the type of thinking that nobody but its model can read.
const redactedThinking = "redacted_thinking"

// Where a block stands.
const (
	inUser = iota
	inAssistant
	inSystem
	inResult
)

func (d *decoder) anthropicMessage(v strictjson.Value, path string) []history.Message {
	m := history.Message{Status: history.Complete}
	if v.Kind() != '{' {
		d.fault(v, path, "a message is an object")
		return []history.Message{m}
	}
	place := d.anthropicRole(v, path, &m)
	var content strictjson.Value
	rest := d.object(v, path, anthropicMembers, func(name string, v strictjson.Value) bool {
		switch name {
		case "content":
			content = v
		case anthropicMark:
			d.fault(v, path, "a member has a name that historyd keeps for its own marks: leave it out")
		}
		return false
	})
	d.refuseCarriers(v, path, rest.value())
	if m.Role == history.Assistant {
		if model := textOf(rest.value(), "model"); len(model) <= maxTag {
			m.Model = model
		}
	}
	switch {
	case content.Raw == nil:
		d.fault(v, path+".content", "is missing: a string or a list of blocks")
		return []history.Message{m}
	case content.Kind() == '"':
		s, _ := content.Text()
		m.Content = []history.Block{history.Text(s)}
	case content.Kind() == '[':
		m.Content = d.anthropicBlocks(content, path+".content", place)
		switch {
		case len(m.Content) == 0 && place == inAssistant:
			d.refuseScattered(v, path+".content")
			m.Content = []history.Block{history.Text("")}
			addMark(&rest, emptyMark)
		case len(m.Content) == 0:
			d.fault(content, path+".content", "holds at least one block")
		case bareText(firstRun(m.Content)):
			addMark(&rest, listMark)
		}
	default:
		d.fault(content, path+".content", "is a string or a list of blocks")
	}
	m.Extra = rest.value()
	return splitResults(m)
}

func (d *decoder) anthropicRole(v strictjson.Value, path string, m *history.Message) int {
	role, there := v.Member("role")
	if !there {
		d.fault(v, path+".role", "role is missing: user, assistant or system")
		return inUser
	}
	switch s, _ := role.Text(); s {
	case "user":
		m.Role, m.Kind = history.User, history.Person
		return inUser
	case "assistant":
		m.Role = history.Assistant
		return inAssistant
	case "system":
		m.Role = history.System
		return inSystem
	}
	d.fault(role, path+".role", "must be one of user, assistant, system")
	return inUser
}

// bareText reports whether blocks are one text that a string could hold.
func bareText(blocks []history.Block) bool {
	return len(blocks) == 1 && blocks[0].Type == history.TextBlock && blocks[0].Extra == nil
}

// firstRun returns the blocks at the beginning that are all results, or all none.
func firstRun(blocks []history.Block) []history.Block {
	for i := range blocks {
		if (blocks[i].Type == history.ToolResult) != (blocks[0].Type == history.ToolResult) {
			return blocks[:i]
		}
	}
	return blocks
}

// splitResults makes a tool message of each run of results in a user message.
func splitResults(m history.Message) []history.Message {
	if m.Role != history.User {
		return []history.Message{m}
	}
	var msgs []history.Message
	for rest := m.Content; len(rest) > 0 || msgs == nil; {
		part := m
		if msgs != nil {
			var mark extra
			addMark(&mark, joinedMark)
			part.Extra = mark.value()
		}
		part.Content = slices.Clip(firstRun(rest))
		rest = rest[len(part.Content):]
		if len(part.Content) > 0 && part.Content[0].Type == history.ToolResult {
			part.Role, part.Kind = history.Tool, ""
		}
		msgs = append(msgs, part)
	}
	return msgs
}

func (d *decoder) anthropicBlocks(v strictjson.Value, path string, place int) []history.Block {
	return blocksOf(v, path, func(v strictjson.Value, path string) history.Block { return d.anthropicBlock(v, path, place) })
}

// givenBlock is a block that is being read.
type givenBlock struct {
	v       strictjson.Value
	path    string
	members map[string]strictjson.Value // those that are modelled
	rest    extra
}

func (d *decoder) anthropicBlock(v strictjson.Value, path string, place int) history.Block {
	if v.Kind() != '{' {
		d.fault(v, path, "a block is an object with a type")
		return history.Block{}
	}
	typ, there := v.Member("type")
	kind, ok := typ.Text()
	known, modelled := anthropicTypes[kind]
	if !modelled {
		known = []string{"type"}
	}
	g := givenBlock{v: v, path: path, members: map[string]strictjson.Value{}}
	before := d.count()
	g.rest = d.object(v, path, known, func(name string, v strictjson.Value) bool {
		g.members[name] = v
		return false
	})
	switch {
	case !there && d.count() == before: // it does not stand there in another case either
		d.fault(v, path+".type", "is missing")
	case there && !ok:
		d.fault(typ, path+".type", "must be a string")
	}
	if !ok {
		return history.Block{}
	}
	if !modelled {
		return d.anthropicOpaque(v, path)
	}
	d.refuseCarriers(v, path, g.rest.value())
	d.anthropicPlace(typ, path, kind, place)
	switch kind {
	case "image":
		return d.anthropicMedia(&g, history.ImageBlock)
	case "document":
		return d.anthropicMedia(&g, history.DocumentBlock)
	case "tool_use":
		return d.anthropicCall(&g)
	case "tool_result":
		return d.anthropicResult(&g)
	case "thinking":
		return d.anthropicThinking(&g)
	case redactedThinking:
		b := history.Block{Type: history.ThinkingBlock, Encrypted: d.wanted(&g, "data", 0, 0)}
		if b.Encrypted == "" {
			g.rest.first("type", redactedThinking)
		}
		b.Extra = g.rest.value()
		return b
	}
	return history.Block{Type: history.TextBlock, Text: d.wanted(&g, "text", 0, 0), Extra: g.rest.value()}
}

// anthropicPlace refuses a block where it cannot stand.
func (d *decoder) anthropicPlace(typ strictjson.Value, path, kind string, place int) {
	switch kind {
	case "tool_use", "thinking", redactedThinking:
		if place != inAssistant {
			d.fault(typ, path+".type", "a %s block stands in the content of an assistant message", kind)
		}
	case "tool_result":
		if place != inUser {
			d.fault(typ, path+".type", "a tool_result block stands in the content of a user message")
		}
	case "image", "document":
		if place == inSystem {
			d.fault(typ, path+".type", "a system message cannot hold this block")
		}
	}
}

// wanted reads a member that must be there, a string.
func (d *decoder) wanted(g *givenBlock, name string, min, max int) string {
	v, there := g.members[name]
	if !there {
		d.fault(g.v, g.path+"."+name, "is missing: a string")
		return ""
	}
	return d.text(v, g.path+"."+name, min, max)
}

// anthropicOpaque keeps a block as it is.
func (d *decoder) anthropicOpaque(v strictjson.Value, path string) history.Block {
	source := memberNamed(v.Raw, "source")
	if history.ClientTool(v) || history.ClientTool(source) {
		d.fault(v, path, "this block carries tool calls or results: %s", properPlaces[Anthropic])
	}
	return history.Block{Type: history.OpaqueBlock, Provider: anthropicProvider, Opaque: v.Compact()}
}

func (d *decoder) anthropicCall(g *givenBlock) history.Block {
	b := history.Block{
		Type: history.ToolCall, Extra: g.rest.value(),
		ID: d.wanted(g, "id", 1, maxID), Name: d.wanted(g, "name", 0, maxName),
	}
	input, there := g.members["input"]
	switch {
	case !there:
		d.fault(g.v, g.path+".input", "is missing: an object, {} when the tool takes nothing")
	case input.Kind() != '{':
		d.fault(input, g.path+".input", "must be an object, {} when the tool takes nothing")
	default:
		b.Arguments = input.Compact()
	}
	return b
}

func (d *decoder) anthropicResult(g *givenBlock) history.Block {
	b := history.Block{Type: history.ToolResult, CallID: d.wanted(g, "tool_use_id", 1, maxID), Content: []history.Block{}}
	switch content, there := g.members["content"]; {
	case !there:
	case content.IsNull():
		g.rest.add("content", content.Raw)
	case content.Kind() == '"':
		s, _ := content.Text()
		b.Plain, b.Content = true, []history.Block{history.Text(s)}
	case content.Kind() == '[':
		b.Content = d.anthropicBlocks(content, g.path+".content", inResult)
		if len(b.Content) == 0 {
			g.rest.add("content", content.Compact())
		}
	default:
		d.fault(content, g.path+".content", "is a string or a list of blocks")
	}
	switch failed, there := g.members["is_error"]; {
	case !there:
	case failed.Kind() == 't':
		b.IsError = true
	case failed.Kind() == 'f' || failed.IsNull():
		g.rest.add("is_error", failed.Raw)
	default:
		d.fault(failed, g.path+".is_error", "must be true or false")
	}
	b.Extra = g.rest.value()
	return b
}

func (d *decoder) anthropicThinking(g *givenBlock) history.Block {
	b := history.Block{Type: history.ThinkingBlock, Text: d.wanted(g, "thinking", 0, 0)}
	if signature, there := g.members["signature"]; there {
		if s, ok := signature.Text(); ok {
			b.Signature = s
		} else if !signature.IsNull() {
			d.fault(signature, g.path+".signature", "must be a string")
		}
		if b.Signature == "" {
			g.rest.add("signature", signature.Compact())
		}
	}
	b.Extra = g.rest.value()
	return b
}

// anthropicMedia reads an image or a document. What is neither bytes nor a URL stays
// the provider's.
func (d *decoder) anthropicMedia(g *givenBlock, kind history.BlockType) history.Block {
	b := history.Block{Type: kind}
	path := g.path + ".source"
	source, there := g.members["source"]
	if !there || source.Kind() != '{' {
		d.fault(g.v, path, "must be an object with a type")
		return b
	}
	if title, there := g.members["title"]; there {
		if s, ok := title.Text(); ok && s != "" && len(s) <= maxID {
			b.Filename = s
		} else {
			g.rest.add("title", title.Compact())
		}
	}
	typ := textOf(source.Raw, "type")
	known := []string{"type", "media_type", "data"}
	switch {
	case typ == "url":
		known = []string{"type", "url"}
	case typ == "base64", typ == "text" && kind == history.DocumentBlock && textOf(source.Raw, "data") != "":
	default:
		known = []string{"type"}
	}
	members := map[string]strictjson.Value{}
	level := d.object(source, path, known, func(name string, v strictjson.Value) bool {
		members[name] = v
		return false
	})
	if typ == "" {
		d.fault(source, path+".type", "must be base64, url, or another type of source")
		return b
	}
	if len(known) == 1 {
		return d.anthropicOpaque(g.v, g.path)
	}
	d.refuseCarriers(source, path, level.value())
	d.anthropicSource(&givenBlock{v: source, path: path, members: members}, typ, &b)
	if typ != sourceType(&b) {
		level.first("type", typ)
	}
	if level != nil {
		g.rest.add("source", level.value())
	}
	b.Extra = g.rest.value()
	return b
}

// anthropicSource reads the bytes of an image or a document, or where they are.
func (d *decoder) anthropicSource(g *givenBlock, typ string, b *history.Block) {
	if typ == "url" {
		if b.URL = d.wanted(g, "url", 1, 0); history.IsDataURL(b.URL) {
			d.fault(g.v, g.path+".url", "a data: URL is its own content: give a source of type base64")
		}
		return
	}
	if v, there := g.members["media_type"]; there {
		b.MediaType = d.text(v, g.path+".media_type", 1, maxTag)
	}
	text := d.wanted(g, "data", 1, 0)
	if typ == "text" {
		b.SetData([]byte(text))
		return
	}
	data, err := history.DecodeBase64(text)
	if err != nil && text != "" {
		d.fault(g.members["data"], g.path+".data", "%s", err)
	}
	b.SetData(data)
}

// sourceType returns the type of source by which bytes or a URL are written, when
// nothing else is said.
func sourceType(b *history.Block) string {
	switch {
	case b.URL != "":
		return "url"
	case b.Type == history.DocumentBlock && b.MediaType == "text/plain" && utf8.Valid(b.Data):
		return "text"
	}
	return "base64"
}

// inputOf returns the arguments of a call as an object.
func inputOf(b *history.Block) jsontext.Value {
	if b.Arguments.Kind() == '{' {
		return b.Arguments
	}
	return append(history.AppendString([]byte(`{"_arguments":`), b.ArgumentString()), '}')
}
