package wire

import (
	"encoding/json/jsontext"
	"slices"
	"strings"

	"historyd/internal/history"
	"historyd/internal/strictjson"
)

// openAIWriter appends messages of Chat Completions. For a model it writes only
// what a request may hold; what has no place there is left out. For export a block
// that the format has no form for is written as the native block, and thinking as
// reasoning_content, without its signature.
type openAIWriter struct {
	object
	purpose Purpose
	some    bool // a message has been written
}

func (w *openAIWriter) begin(role string) {
	if w.some {
		w.dst = append(w.dst, ',')
	}
	w.some = true
	w.open()
	w.text("role", role)
}

func (w *openAIWriter) export() bool { return w.purpose == ForExport }

func (w *openAIWriter) message(m *history.Message) {
	switch m.Role {
	case history.Tool:
		w.results(m)
	case history.Assistant:
		w.assistant(m)
	default:
		w.said(m)
	}
}

func (w *openAIWriter) said(m *history.Message) {
	if !w.speaks(m) {
		return
	}
	role := string(m.Role)
	if m.Role == history.System && textOf(m.Extra, "role") == "developer" {
		role = "developer"
	}
	w.begin(role)
	w.content(m.Role, m.Content)
	w.rest(m, nil)
	w.close()
}

func (w *openAIWriter) assistant(m *history.Message) {
	refusal, audio := memberOf(m, "refusal"), memberOf(m, "audio")
	calls, old := w.countCalls(m)
	if !w.export() {
		audio = strictjson.Value{}
		if refusal.Raw == nil && calls == 0 && !w.speaks(m) {
			return
		}
	}
	w.begin("assistant")
	if refusal.Raw == nil && audio.Raw == nil && calls == 0 && old < 0 && !w.speaks(m) {
		w.text("content", "") // null would be a message of nothing
	} else {
		w.content(m.Role, m.Content)
	}
	var written []string
	if refusal.Raw != nil {
		written = append(written, "refusal")
		w.raw("refusal", refusal.Raw)
	}
	if audio.Raw != nil {
		written = append(written, "audio")
		w.raw("audio", audio.Raw)
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
	w.rest(m, written)
	if w.export() {
		w.thinking(m)
	}
	w.close()
}

// countCalls counts the calls that go into tool_calls, and finds the one that goes
// back into function_call; -1 when there is none.
func (w *openAIWriter) countCalls(m *history.Message) (calls, old int) {
	old = -1
	for i := range m.Content {
		b := &m.Content[i]
		switch {
		case b.Type != history.ToolCall:
		case old < 0 && w.export() && b.ID == functionCallID && kindOf(b.Extra, "function_call") == '{':
			old = i
		default:
			calls++
		}
	}
	return calls, old
}

func (w *openAIWriter) thinking(m *history.Message) {
	var texts []string
	for i := range m.Content {
		if b := &m.Content[i]; b.Type == history.ThinkingBlock && b.Text != "" {
			texts = append(texts, b.Text)
		}
	}
	if texts != nil && kindOf(m.Extra, "reasoning_content") == 0 {
		w.text("reasoning_content", strings.Join(texts, "\n\n"))
	}
}

// results writes a message for each result, since Chat Completions has one in each.
func (w *openAIWriter) results(m *history.Message) {
	answers := len(m.Answers())
	first := true
	for i := range m.Content {
		b := &m.Content[i]
		if b.Type != history.ToolResult {
			continue
		}
		old := w.export() && answers == 1 && b.CallID == functionCallID &&
			textOf(m.Extra, "role") == "function" && kindOf(m.Extra, "name") == '"'
		if old {
			w.begin("function")
		} else {
			w.begin("tool")
		}
		switch parts := w.parts(m.Role, b.Content); {
		case b.Plain && len(b.Content) == 1:
			w.text("content", b.Content[0].Text)
		case old && parts == 0:
			w.null("content")
		case parts == 0 && !w.export():
			// A provider refuses an empty list, and a result without content.
			w.text("content", "")
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
func (w *openAIWriter) isPart(role history.Role, b *history.Block) bool {
	switch b.Type {
	case history.TextBlock:
		return true
	case history.ToolCall, history.ToolResult, history.ThinkingBlock:
		return false
	case history.OpaqueBlock:
		if role == history.Assistant && memberValue(b).Raw != nil {
			return false
		}
		return w.export() || role != history.Tool && verbatim(b)
	case history.ImageBlock:
		return w.export() || role == history.User && b.URL != ""
	}
	return w.export()
}

// verbatim reports whether an opaque block is a part of Chat Completions.
func verbatim(b *history.Block) bool { return b.Provider == openAIProvider && b.Opaque.Kind() == '{' }

func (w *openAIWriter) parts(role history.Role, blocks []history.Block) int {
	n := 0
	for i := range blocks {
		if w.isPart(role, &blocks[i]) {
			n++
		}
	}
	return n
}

func (w *openAIWriter) speaks(m *history.Message) bool { return w.parts(m.Role, m.Content) > 0 }

// content writes the content member: null, a string for one bare text, or a list.
func (w *openAIWriter) content(role history.Role, blocks []history.Block) {
	switch w.parts(role, blocks) {
	case 0:
		w.null("content")
		return
	case 1:
		i := slices.IndexFunc(blocks, func(b history.Block) bool { return w.isPart(role, &b) })
		if b := &blocks[i]; b.Type == history.TextBlock && (b.Extra == nil || !w.export()) {
			w.text("content", b.Text)
			return
		}
	}
	w.list(role, blocks)
}

func (w *openAIWriter) list(role history.Role, blocks []history.Block) {
	w.name("content")
	w.openList()
	for i := range blocks {
		if w.isPart(role, &blocks[i]) {
			w.element()
			w.part(&blocks[i])
		}
	}
	w.closeList()
}

func (w *openAIWriter) part(b *history.Block) {
	switch {
	case b.Type == history.TextBlock:
		w.open()
		w.text("type", "text")
		w.text("text", b.Text)
		w.extras(b.Extra, []string{"type", "text"})
		w.close()
	case b.Type == history.ImageBlock && b.URL != "":
		w.open()
		w.text("type", "image_url")
		w.name("image_url")
		w.open()
		w.text("url", b.URL)
		level := memberNamed(b.Extra, "image_url")
		if w.export() {
			w.extras(objectOf(level), imageMembers)
		} else if detail := textOf(objectOf(level), "detail"); slices.Contains([]string{"auto", "low", "high"}, detail) {
			w.text("detail", detail)
		}
		w.close()
		w.extras(b.Extra, []string{"type", "image_url"})
		w.close()
	case b.Type == history.OpaqueBlock && verbatim(b):
		w.dst = append(w.dst, b.Opaque...)
	default:
		w.dst = history.AppendBlock(w.dst, b)
	}
}

func (w *openAIWriter) calls(blocks []history.Block, except int) {
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

func (w *openAIWriter) call(b *history.Block) {
	w.open()
	w.text("id", b.ID)
	kind, members := "function", functionMembers
	switch typ := textOf(b.Extra, "type"); {
	case typ == "custom":
		kind, members = "custom", customMembers
	case typ != "" && typ != "function" && wholeCall(b):
		w.text("type", typ)
		w.spread(b.Arguments, nil)
		w.close()
		return
	}
	w.text("type", kind)
	w.name(kind)
	w.function(b, kind, members)
	if w.export() && b.Extra != nil {
		for name, v := range (strictjson.Value{Raw: b.Extra}).Members() {
			unused := v.IsNull() && name != kind && slices.Contains(levelMembers, name)
			if unused || !clash(name, callMembers) {
				w.member(name, v)
			}
		}
	}
	w.close()
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
func (w *openAIWriter) function(b *history.Block, level string, members []string) {
	w.open()
	w.text(members[0], b.Name)
	w.text(members[1], b.ArgumentString())
	w.extras(objectOf(memberNamed(b.Extra, level)), members)
	w.close()
}

// rest writes what else came with a message: for a model only its name.
func (w *openAIWriter) rest(m *history.Message, written []string) {
	if m.Extra == nil {
		return
	}
	if !w.export() {
		if name := textOf(m.Extra, "name"); m.Role != history.Tool && validName(name) {
			w.text("name", name)
		}
		return
	}
	for name, v := range (strictjson.Value{Raw: m.Extra}).Members() {
		if clash(name, openAIMembers) && (slices.Contains(written, name) || !saysNothing(name, v)) {
			continue
		}
		w.member(name, v)
	}
}

// validName reports whether the provider accepts the name of a speaker.
func validName(s string) bool {
	return s != "" && len(s) <= 64 && !strings.ContainsAny(s, " \t\r\n\f\v<|\\/>")
}

// extras writes the members of an extra for export, but for those named.
func (w *openAIWriter) extras(raw jsontext.Value, except []string) {
	if w.export() && raw != nil {
		w.spread(raw, except)
	}
}

func (w *openAIWriter) spread(raw jsontext.Value, except []string) {
	for name, v := range (strictjson.Value{Raw: raw}).Members() {
		if !clash(name, except) {
			w.member(name, v)
		}
	}
}

// clash reports whether a name is one of known, in any case.
func clash(name string, known []string) bool {
	return slices.ContainsFunc(known, func(k string) bool { return strings.EqualFold(k, name) })
}

// memberOf returns the value of an assistant's member that lies in a block of its own.
func memberOf(m *history.Message, name string) strictjson.Value {
	for i := range m.Content {
		if b := &m.Content[i]; b.Type == history.OpaqueBlock && textOf(b.Extra, "member") == name {
			if v := memberValue(b); v.Raw != nil {
				return v
			}
		}
	}
	return strictjson.Value{}
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

// memberNamed returns a member of an object, or the zero Value.
func memberNamed(raw jsontext.Value, name string) strictjson.Value {
	if raw.Kind() != '{' {
		return strictjson.Value{}
	}
	v, _ := strictjson.Value{Raw: raw}.Member(name)
	return v
}

func textOf(raw jsontext.Value, name string) string {
	s, _ := memberNamed(raw, name).Text()
	return s
}

func kindOf(raw jsontext.Value, name string) jsontext.Kind { return memberNamed(raw, name).Kind() }

// objectOf returns the value when it is an object.
func objectOf(v strictjson.Value) jsontext.Value {
	if v.Kind() != '{' {
		return nil
	}
	return v.Raw
}
