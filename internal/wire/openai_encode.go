package wire

import (
	"encoding/base64"
	"encoding/json/jsontext"
	"slices"
	"strings"

	"historyd/internal/history"
	"historyd/internal/strictjson"
)

// openAIExporter writes messages as they came in. A block that the format has no form
// for is written as the native block, and thinking as reasoning_content, without its
// signature.
type openAIExporter struct{ *object }

func (w *openAIExporter) end(*object) {}

func (w *openAIExporter) add(o *object, m *history.Message) {
	w.object = o
	switch m.Role {
	case history.Tool:
		w.results(m)
	case history.Assistant:
		w.assistant(m)
	default:
		w.said(m)
	}
}

func (w *openAIExporter) begin(role string) {
	w.element()
	w.open()
	w.text("role", role)
}

func (w *openAIExporter) said(m *history.Message) {
	if !w.speaks(m) {
		return
	}
	w.begin(openAIRoleOf(m))
	w.content(m.Role, m.Content)
	w.rest(m, nil)
	w.close()
}

// openAIRoleOf returns the role of a message that holds neither calls nor results.
func openAIRoleOf(m *history.Message) string {
	if m.Role == history.System && textOf(m.Extra, "role") == "developer" {
		return "developer"
	}
	return string(m.Role)
}

func (w *openAIExporter) assistant(m *history.Message) {
	refusal := memberOf(m, "refusal")
	calls, old := countCalls(m)
	w.begin("assistant")
	var written []string
	spoken := w.spoken(m)
	thoughts := w.thoughts(m)
	nothing := memberNamed(m.Extra, "content")
	switch {
	case refusal.Raw == nil && spoken == nil && thoughts == nil && countImages(m) == 0 && calls == 0 && old < 0 && !w.speaks(m):
		w.text("content", "") // null would be a message of nothing
	case nothing.Raw == nil || !bareText(m.Content) || m.Content[0].Text != "":
		w.content(m.Role, m.Content)
	case nothing.Kind() == '[':
		w.raw("content", jsontext.Value("[]"))
	case nothing.Kind() != 'f':
		w.null("content")
	}
	if refusal.Raw != nil {
		written = append(written, "refusal")
		w.raw("refusal", refusal.Raw)
	}
	if spoken != nil {
		written = append(written, "audio")
		w.raw("audio", spoken)
	}
	if calls > 0 {
		written = append(written, "tool_calls")
		w.calls(m.Content, old)
	}
	if old >= 0 {
		written = append(written, "function_call")
		w.name("function_call")
		w.function(&m.Content[old], "function_call", functionMembers)
	}
	if images := countImages(m); images > 0 {
		written = append(written, imagesMember)
		w.name(imagesMember)
		w.openList()
		for i := range m.Content {
			if isVendorImage(&m.Content[i]) {
				w.element()
				w.part(&m.Content[i])
			}
		}
		w.closeList()
	}
	for i, name := range thinkingMembers {
		if thoughts != nil && thoughts[i] != "" {
			written = append(written, name)
			w.text(name, thoughts[i])
		}
	}
	w.rest(m, written)
	w.close()
}

// countCalls counts the calls that go into tool_calls, and finds the one that goes
// back into function_call; -1 when there is none.
func countCalls(m *history.Message) (calls, old int) {
	old = -1
	for i := range m.Content {
		b := &m.Content[i]
		switch {
		case b.Type != history.ToolCall:
		case old < 0 && b.ID == functionCallID && kindOf(b.Extra, "function_call") == '{':
			old = i
		default:
			calls++
		}
	}
	return calls, old
}

// spoken returns the member audio of a message, or nil.
func (w *openAIExporter) spoken(m *history.Message) jsontext.Value {
	for i := range m.Content {
		if b := &m.Content[i]; isSpoken(b) {
			var member extra
			member.add("data", base64Text(b.Data))
			if rest := objectOf(memberNamed(b.Extra, "audio")); rest != nil {
				for name, v := range (strictjson.Value{Raw: rest}).Members() {
					if !clash(name, audioMembers[:1]) {
						member.add(name, v.Raw)
					}
				}
			}
			return member.value()
		}
	}
	return memberOf(m, "audio").Raw
}

// isVendorImage reports whether an image is one of the member images of its answer.
func isVendorImage(b *history.Block) bool {
	return b.Type == history.ImageBlock && (b.Data != nil || b.URL != "") && textOf(b.Extra, "member") == imagesMember
}

func countImages(m *history.Message) int {
	n := 0
	for i := range m.Content {
		if isVendorImage(&m.Content[i]) {
			n++
		}
	}
	return n
}

// isSpoken reports whether a sound is the audio of its answer.
func isSpoken(b *history.Block) bool {
	return b.Type == history.AudioBlock && b.Data != nil && textOf(b.Extra, "member") == "audio"
}

// thoughts returns what goes into thinkingMembers, in their order; nil for nothing.
func (w *openAIExporter) thoughts(m *history.Message) []string {
	var texts []string
	for i := range m.Content {
		b := &m.Content[i]
		if b.Type != history.ThinkingBlock || b.Text == "" {
			continue
		}
		k := max(slices.Index(thinkingMembers, textOf(b.Extra, "member")), 0)
		if kindOf(m.Extra, thinkingMembers[k]) != 0 {
			continue
		}
		if texts == nil {
			texts = make([]string, len(thinkingMembers))
		}
		if texts[k] != "" {
			texts[k] += "\n\n"
		}
		texts[k] += b.Text
	}
	return texts
}

// results writes a message for each result, since Chat Completions has one in each.
func (w *openAIExporter) results(m *history.Message) {
	answers := len(m.Answers())
	first := true
	for i := range m.Content {
		b := &m.Content[i]
		if b.Type != history.ToolResult {
			continue
		}
		old := answers == 1 && b.CallID == functionCallID &&
			textOf(m.Extra, "role") == "function" && kindOf(m.Extra, "name") == '"'
		if old {
			w.begin("function")
		} else {
			w.begin("tool")
		}
		switch {
		case b.Plain && len(b.Content) == 1:
			w.text("content", b.Content[0].Text)
		case old && len(b.Content) == 0:
			w.null("content")
		default:
			w.list(m.Role, b.Content)
		}
		var written []string
		if !old {
			written = []string{"tool_call_id"}
			w.text("tool_call_id", b.CallID)
		}
		if first {
			w.rest(m, written)
		}
		first = false
		w.close()
	}
}

// isPart reports whether a block of a message of that role is a part of its content.
func isPart(role history.Role, b *history.Block) bool {
	switch b.Type {
	case history.ToolCall, history.ToolResult, history.ThinkingBlock:
		return false
	case history.OpaqueBlock:
		return role != history.Assistant || memberValue(b).Raw == nil
	case history.AudioBlock:
		return role != history.Assistant || !isSpoken(b)
	case history.ImageBlock:
		return role != history.Assistant || !isVendorImage(b)
	}
	return true
}

// verbatim reports whether an opaque block is a part of Chat Completions.
func verbatim(b *history.Block) bool { return b.Provider == openAIProvider && b.Opaque.Kind() == '{' }

func parts(role history.Role, blocks []history.Block) int {
	n := 0
	for i := range blocks {
		if isPart(role, &blocks[i]) {
			n++
		}
	}
	return n
}

func (w *openAIExporter) speaks(m *history.Message) bool { return parts(m.Role, m.Content) > 0 }

// content writes the content member: null, a string for one bare text, or a list.
func (w *openAIExporter) content(role history.Role, blocks []history.Block) {
	switch parts(role, blocks) {
	case 0:
		w.null("content")
		return
	case 1:
		i := slices.IndexFunc(blocks, func(b history.Block) bool { return isPart(role, &b) })
		if b := &blocks[i]; b.Type == history.TextBlock && b.Extra == nil {
			w.text("content", b.Text)
			return
		}
	}
	w.list(role, blocks)
}

func (w *openAIExporter) list(role history.Role, blocks []history.Block) {
	w.name("content")
	w.openList()
	for i := range blocks {
		if isPart(role, &blocks[i]) {
			w.element()
			w.part(&blocks[i])
		}
	}
	w.closeList()
}

func (w *openAIExporter) part(b *history.Block) {
	switch {
	case b.Type == history.TextBlock:
		w.open()
		w.text("type", "text")
		w.text("text", b.Text)
		w.extras(b.Extra, "type", "text")
		w.close()
	case b.Type == history.ImageBlock && (b.URL != "" || b.Data != nil):
		w.level(b, "image_url", imageMembers, func() { w.text("url", imageURL(b)) })
	case b.Type == history.AudioBlock && b.Data != nil:
		w.level(b, "input_audio", audioMembers[:1], func() {
			w.base64("data", b.Data)
			if format := soundFormat(b); format != "" {
				w.text("format", format)
			}
		})
	case b.Type == history.DocumentBlock && b.Data != nil:
		w.level(b, "file", fileMembers[:1], func() {
			w.raw("file_data", fileData(b.MediaType, b.Data))
			if b.Filename != "" {
				w.text("filename", b.Filename)
			}
		})
	case b.Type == history.OpaqueBlock:
		w.opaque(b, verbatim(b) && !isItem(b), func(d *decoder, v strictjson.Value) history.Block { return d.openAIPart(v, "") }, func(s string) {
			part := history.Text(s)
			w.part(&part)
		})
	default:
		w.dst = history.AppendBlock(w.dst, b)
	}
}

// level writes a part whose members stand in an object of its name.
func (w *openAIExporter) level(b *history.Block, kind string, known []string, write func()) {
	w.open()
	w.text("type", kind)
	w.name(kind)
	w.open()
	write()
	if b.Filename != "" && kind == "file" {
		known = []string{"file_data", "filename"}
	}
	if kind == "input_audio" && soundFormat(b) != "" {
		known = audioMembers
	}
	w.extras(objectOf(memberNamed(b.Extra, kind)), known...)
	w.close()
	w.extras(b.Extra, "type", kind, "member")
	w.close()
}

func imageURL(b *history.Block) string {
	if b.Data != nil {
		return history.DataURL(b.MediaType, b.Data)
	}
	return b.URL
}

// base64Text writes bytes as a JSON string.
func base64Text(data []byte) jsontext.Value {
	dst := make([]byte, 0, base64.StdEncoding.EncodedLen(len(data))+2)
	dst = base64.StdEncoding.AppendEncode(append(dst, '"'), data)
	return append(dst, '"')
}

// fileData writes the bytes of a document, as a data: URL where their type is known.
func fileData(mediaType string, data []byte) jsontext.Value {
	if mediaType == "" {
		return base64Text(data)
	}
	return history.AppendString(nil, history.DataURL(mediaType, data))
}

// soundFormat names the format of a sound as Chat Completions does, if it has a name.
func soundFormat(b *history.Block) string {
	for format, mediaType := range soundTypes {
		if mediaType == b.MediaType {
			return format
		}
	}
	if subtype, ok := strings.CutPrefix(b.MediaType, "audio/"); ok {
		return subtype
	}
	return ""
}

func (w *openAIExporter) calls(blocks []history.Block, except int) {
	w.name("tool_calls")
	w.openList()
	for i := range blocks {
		if b := &blocks[i]; b.Type == history.ToolCall && i != except {
			w.element()
			w.call(b)
		}
	}
	w.closeList()
}

func (w *openAIExporter) call(b *history.Block) {
	w.open()
	w.text("id", b.ID)
	kind, members := callKind(b)
	if typ := textOf(b.Extra, "type"); kind == "function" && typ != "" && typ != kind && wholeCall(b) {
		w.text("type", typ)
		w.filtered(b.Arguments, func(string, strictjson.Value) bool { return true })
		w.close()
		return
	}
	w.text("type", kind)
	w.name(kind)
	w.function(b, kind, members)
	w.filtered(b.Extra, func(name string, v strictjson.Value) bool {
		unused := v.IsNull() && name != kind && slices.Contains(levelMembers, name)
		return unused || !clash(name, callMembers)
	})
	w.close()
}

// callKind returns the type of a call that has a name, and the members of its object.
func callKind(b *history.Block) (kind string, members []string) {
	if textOf(b.Extra, "type") == "custom" {
		return "custom", customMembers
	}
	return "function", functionMembers
}

// wholeCall reports whether the arguments of a call of a type unknown here are what
// came in, and not what stands in their place.
func wholeCall(b *history.Block) bool {
	if b.Redacted != nil || b.Arguments.Kind() != '{' {
		return false
	}
	for name := range (strictjson.Value{Raw: b.Arguments}).Members() {
		if clash(name, []string{"id", "type"}) {
			return false
		}
	}
	return true
}

// function writes the object with the name of the tool and the text for it.
func (w *openAIExporter) function(b *history.Block, level string, members []string) {
	w.open()
	w.text(members[0], b.Name)
	w.text(members[1], b.ArgumentString())
	w.extras(objectOf(memberNamed(b.Extra, level)), members...)
	w.close()
}

// rest writes what else came with a message.
func (w *openAIExporter) rest(m *history.Message, written []string) {
	w.filtered(m.Extra, func(name string, v strictjson.Value) bool {
		return !slices.Contains(written, name) && (!clash(name, openAIMembers) || saysNothing(name, v)) &&
			(!clash(name, vendorMembers) || slices.Contains(vendorMembers, name))
	})
}

// memberValue returns what memberBlock put into a block.
func memberValue(b *history.Block) strictjson.Value {
	name := textOf(b.Extra, "member")
	if name == "" {
		return strictjson.Value{}
	}
	v := memberNamed(b.Opaque, name)
	if verbatim(b) && (name == "refusal" && v.Kind() == '"' || name == "audio" && v.Kind() == '{') {
		return v
	}
	return strictjson.Value{}
}
