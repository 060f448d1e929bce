package wire

import (
	"encoding/base64"
	"encoding/json/jsontext"
	"slices"

	"historyd/internal/history"
	"historyd/internal/strictjson"
)

// responsesExporter writes items. What the format has no form for is written as the
// native block, among the parts of a message.
type responsesExporter struct{}

func (responsesExporter) end(*object) {}

func (responsesExporter) add(o *object, m *history.Message) {
	rest := m.Extra // goes with the first item
	for i := 0; i < len(m.Content); rest = nil {
		if !o.responsesItem(m, &m.Content[i], strictjson.Value{Raw: rest}) {
			i += o.responsesMessage(m, m.Content[i:], strictjson.Value{Raw: rest})
			continue
		}
		i++
	}
}

// responsesItem writes a block that is an item of its own; false when it is a part.
func (o *object) responsesItem(m *history.Message, b *history.Block, rest strictjson.Value) bool {
	switch {
	case b.Type == history.ToolCall:
		o.responsesCall(b, rest)
	case b.Type == history.ToolResult:
		o.responsesOutput(m, b, rest)
	case b.Type == history.ThinkingBlock:
		o.responsesReasoning(b, rest)
	case b.Type == history.ImageBlock && b.Data != nil && textOf(b.Extra, "type") == "image_generation_call":
		o.element()
		o.open()
		o.text("type", "image_generation_call")
		o.base64("result", b.Data)
		o.itemExtras(b.Extra, rest, "type", "result")
		o.close()
	case isItem(b):
		o.element()
		o.dst = append(o.dst, b.Opaque...)
	default:
		return false
	}
	return true
}

// isItem reports whether a block is an item that was kept as it is.
func isItem(b *history.Block) bool {
	return b.Type == history.OpaqueBlock && b.Extra != nil && verbatim(b) && kindOf(b.Extra, "item") == 't'
}

// itemExtras writes the members of a block's extra, and after them those of its message's,
// but for those named and those that are already there.
func (o *object) itemExtras(raw jsontext.Value, rest strictjson.Value, but ...string) {
	o.extras(raw, but...)
	o.filtered(rest.Raw, func(name string, v strictjson.Value) bool {
		if (name == "id" || name == "status") && v.Kind() != '"' && !v.IsNull() {
			return false // in another format it may mean something else
		}
		return !clash(name, but) && memberNamed(raw, name).Raw == nil && name != "type" && name != "role"
	})
}

func (o *object) responsesCall(b *history.Block, rest strictjson.Value) {
	o.element()
	o.open()
	kind := textOf(b.Extra, "type")
	if do := doingOf(kind); do != nil && kind == do.item && b.ArgumentsText == nil && o.responsesDoing(b, do, rest) {
		o.close()
		return
	}
	payload := "arguments"
	if kind == "custom" {
		payload = "input"
		o.text("type", "custom_tool_call")
	} else {
		o.text("type", "function_call")
	}
	o.text("call_id", b.ID)
	o.text("name", b.Name)
	o.text(payload, b.ArgumentString())
	o.itemExtras(b.Extra, rest, "type", "call_id", "name", payload)
	o.close()
}

// responsesDoing writes what a tool that the provider knows is to do; false when it
// is not there any more.
func (o *object) responsesDoing(b *history.Block, do *doing, rest strictjson.Value) bool {
	but := []string{"type", "call_id", do.payload}
	kind := b.Arguments.Kind()
	if kind != '{' && (do.name != "computer" || kind != '[') {
		return false
	}
	o.text("type", do.item)
	o.text("call_id", b.ID)
	switch {
	case do.name != "computer":
		o.raw(do.payload, b.Arguments)
	case kind == '[':
		o.raw("actions", b.Arguments)
		but = []string{"type", "call_id", "actions"}
	case kindOf(b.Extra, "action") == 't' && memberNamed(b.Arguments, "action").Raw != nil && memberNamed(b.Arguments, "actions").Raw != nil:
		o.raw("action", memberNamed(b.Arguments, "action").Raw)
		o.raw("actions", memberNamed(b.Arguments, "actions").Raw)
		but = append(but, "actions")
	default:
		o.raw("action", b.Arguments)
	}
	o.itemExtras(b.Extra, rest, but...)
	return true
}

func (o *object) responsesOutput(m *history.Message, b *history.Block, rest strictjson.Value) {
	o.element()
	o.open()
	kind := textOf(b.Extra, "type")
	do := doingOf(kind)
	switch {
	case kind == "custom":
		o.text("type", "custom_tool_call_output")
	case do != nil && kind != do.item && answersAs(kind, b):
		o.text("type", kind)
	default:
		o.text("type", "function_call_output")
		kind = ""
	}
	but := []string{"type", "output", "call_id"}
	if kind == "local_shell_call_output" && kindOf(b.Extra, "call_id") == 'n' {
		o.text("id", b.CallID)
		but = append(but, "id")
	} else {
		o.text("call_id", b.CallID)
	}
	switch {
	case b.Plain && len(b.Content) == 1:
		o.text("output", b.Content[0].Text)
	case kind == "apply_patch_call_output" && len(b.Content) == 0:
		if kindOf(b.Extra, "output") == 'n' {
			o.null("output")
		}
	case kind == "computer_call_output" && len(b.Content) == 1:
		o.name("output")
		o.responsesPart(history.User, &b.Content[0])
	case kind == "shell_call_output" && ran(b.Content):
		o.name("output")
		o.responsesRan(b.Content)
	default:
		o.name("output")
		o.responsesParts(history.User, b.Content)
	}
	o.itemExtras(b.Extra, rest, but...)
	o.close()
}

// answersAs reports whether a result has the form that an answer of that type has.
func answersAs(kind string, b *history.Block) bool {
	switch {
	case b.Plain && len(b.Content) == 1, kind == "local_shell_call_output":
		return true
	case kind == "computer_call_output":
		return len(b.Content) == 1
	case kind == "shell_call_output":
		return ran(b.Content)
	}
	return len(b.Content) == 0
}

// ran reports whether blocks are what responsesRan of the decoder made.
func ran(blocks []history.Block) bool {
	for i := range blocks {
		if b := &blocks[i]; b.Type != history.TextBlock || textOf(b.Extra, "type") != []string{"stdout", "stderr"}[i%2] {
			return false
		}
	}
	return len(blocks)%2 == 0
}

func (o *object) responsesRan(blocks []history.Block) {
	o.openList()
	for i := 0; i < len(blocks); i += 2 {
		o.element()
		o.open()
		o.text("stdout", blocks[i].Text)
		o.text("stderr", blocks[i+1].Text)
		o.extras(blocks[i+1].Extra, "type", "stdout", "stderr")
		o.close()
	}
	o.closeList()
}

func (o *object) responsesReasoning(b *history.Block, rest strictjson.Value) {
	o.element()
	o.open()
	o.text("type", "reasoning")
	but := []string{"type"}
	if kindOf(b.Extra, "summary") != '[' {
		o.name("summary")
		o.dst = appendSummary(o.dst, b.Text)
		but = append(but, "summary")
	}
	if b.Encrypted != "" {
		o.text("encrypted_content", b.Encrypted)
		but = append(but, "encrypted_content")
	}
	o.itemExtras(b.Extra, rest, but...)
	o.close()
}

// responsesMessage writes the blocks from the first on that are parts of one message,
// and returns how many.
func (o *object) responsesMessage(m *history.Message, blocks []history.Block, rest strictjson.Value) int {
	n := 1
	for n < len(blocks) && !ownItem(&blocks[n]) && kindOf(blocks[n].Extra, "phase") == 0 {
		n++
	}
	o.element()
	o.open()
	if !isTypeless(m.Extra) {
		o.text("type", "message")
	}
	role := string(m.Role)
	switch {
	case m.Role == history.System && textOf(m.Extra, "role") == "developer":
		role = "developer"
	case m.Role == history.Tool:
		role = string(history.User) // something between the results that no provider has
	}
	o.text("role", role)
	switch b := &blocks[0]; {
	case n == 1 && b.Type == history.TextBlock && bare(b):
		o.text("content", b.Text)
	default:
		o.name("content")
		o.responsesParts(m.Role, blocks[:n])
	}
	if phase := memberNamed(blocks[0].Extra, "phase"); phase.Raw != nil {
		o.member("phase", phase)
	}
	o.itemExtras(nil, rest, "type", "role", "content", "phase")
	o.close()
	return n
}

// ownItem reports whether responsesItem writes a block.
func ownItem(b *history.Block) bool {
	switch b.Type {
	case history.ToolCall, history.ToolResult, history.ThinkingBlock:
		return true
	case history.ImageBlock:
		return b.Data != nil && textOf(b.Extra, "type") == "image_generation_call"
	}
	return isItem(b)
}

// bare reports whether nothing came with a text but the phase of its message.
func bare(b *history.Block) bool {
	for name := range membersOf(b.Extra) {
		if name != "phase" {
			return false
		}
	}
	return true
}

func (o *object) responsesParts(role history.Role, blocks []history.Block) {
	o.openList()
	for i := range blocks {
		o.element()
		o.responsesPart(role, &blocks[i])
	}
	o.closeList()
}

func (o *object) responsesPart(role history.Role, b *history.Block) {
	kind := textOf(b.Extra, "type")
	switch {
	case b.Type == history.TextBlock:
		o.open()
		if !slices.Contains(textParts, kind) {
			if kind = "input_text"; role == history.Assistant {
				kind = "output_text"
			}
		}
		o.text("type", kind)
		o.text("text", b.Text)
		if kind == "output_text" && b.Extra == nil {
			o.raw("annotations", []byte("[]"))
		}
		o.extras(b.Extra, "type", "text", "phase")
		o.close()
	case b.Type == history.ImageBlock && (b.URL != "" || b.Data != nil):
		o.open()
		if kind != "computer_screenshot" {
			kind = "input_image"
		}
		o.text("type", kind)
		o.responsesURL("image_url", b)
		o.extras(b.Extra, "type", "image_url", "phase")
		o.close()
	case b.Type == history.DocumentBlock && (b.URL != "" || b.Data != nil):
		o.responsesFile(b)
	case b.Type == history.AudioBlock && b.Data != nil:
		o.responsesAudio(b)
	case b.Type == history.OpaqueBlock:
		o.opaque(b, verbatim(b), func(d *decoder, v strictjson.Value) history.Block { return d.responsesPart(v, "") }, func(s string) {
			part := history.Text(s)
			o.responsesPart(role, &part)
		})
	default:
		o.dst = history.AppendBlock(o.dst, b)
		o.comma = true
	}
}

// responsesURL writes where an image or a document is, or what it is.
func (o *object) responsesURL(name string, b *history.Block) {
	if b.Data == nil {
		o.text(name, b.URL)
		return
	}
	o.name(name)
	o.dst = append(o.dst, `"data:`...)
	quoted := history.AppendString(nil, b.MediaType)
	o.dst = append(o.dst, quoted[1:len(quoted)-1]...)
	o.dst = append(o.dst, `;base64,`...)
	o.dst = base64.StdEncoding.AppendEncode(o.dst, b.Data)
	o.dst = append(o.dst, '"')
}

func (o *object) responsesFile(b *history.Block) {
	o.open()
	o.text("type", "input_file")
	but := []string{"type", "phase"}
	switch {
	case b.Data == nil:
		o.text("file_url", b.URL)
		but = append(but, "file_url")
	case textOf(b.Extra, "file_data") == "base64":
		o.base64("file_data", b.Data)
		but = append(but, "file_data")
	default:
		o.responsesURL("file_data", b)
		but = append(but, "file_data")
	}
	if b.Filename != "" {
		o.text("filename", b.Filename)
		but = append(but, "filename")
	}
	o.extras(b.Extra, but...)
	o.close()
}

func (o *object) responsesAudio(b *history.Block) {
	o.open()
	o.text("type", "input_audio")
	o.name("input_audio")
	o.open()
	o.base64("data", b.Data)
	level := objectOf(memberNamed(b.Extra, "input_audio"))
	if format := soundFormat(b); format != "" && kindOf(level, "format") == 0 {
		o.text("format", format)
	}
	o.extras(level, "data")
	o.close()
	o.extras(b.Extra, "type", "input_audio", "phase")
	o.close()
}
