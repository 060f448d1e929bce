package wire

import (
	"encoding/base64"
	"encoding/json/jsontext"
	"slices"
	"strings"

	"historyd/internal/history"
	"historyd/internal/strictjson"
)

// geminiExporter writes contents as they were read. What the format has no form for is
// written as the native block, which comes in again as a part that nobody knows.
type geminiExporter struct {
	side    string   // role of the open content; empty when none is open
	results bool     // it holds nothing but results, of messages that may share a content
	waiting []string // ids and names, by turns, of calls that wait for a result
}

// maxWaiting bounds what is remembered of calls that nobody answers.
const maxWaiting = 2 * 1000

func (e *geminiExporter) add(o *object, m *history.Message) {
	mark := geminiMarkOf(m.Extra)
	if given := memberNamed(mark, "parts"); given.Raw != nil && m.Role == history.Assistant && bareText(m.Content) && m.Content[0].Text == "" {
		e.nothing(o, m, given)
		return
	}
	side := "user"
	if m.Role == history.Assistant {
		side = "model"
	}
	joins := side == e.side && (isTrue(mark, "more") || m.Role == history.Tool && e.results && m.Extra == nil)
	if !joins {
		e.end(o)
		e.begin(o, m, side, mark)
		e.results = true
	}
	e.results = e.results && m.Role == history.Tool
	for i := range m.Content {
		o.element()
		e.block(o, m, &m.Content[i])
	}
}

func (e *geminiExporter) begin(o *object, m *history.Message, side string, mark jsontext.Value) {
	e.side = side
	o.element()
	o.open()
	role := memberNamed(mark, "role")
	if side == "model" {
		role.Raw = nil
	}
	o.geminiHead(m, side, role)
	o.name("parts")
	o.openList()
}

// geminiHead writes what a content says beside its parts. given is what stood there in
// place of a role.
func (o *object) geminiHead(m *history.Message, side string, given strictjson.Value) {
	switch {
	case given.Raw != nil && given.Kind() == 'f':
	case given.Raw != nil && given.IsNull(), string(given.Raw) == `"function"`:
		o.raw("role", given.Raw)
	default:
		o.text("role", side)
	}
	o.geminiExtras(m.Extra, geminiMembers, nil)
}

// nothing writes a content that had no parts.
func (e *geminiExporter) nothing(o *object, m *history.Message, given strictjson.Value) {
	e.end(o)
	o.element()
	o.open()
	o.geminiHead(m, "model", memberNamed(geminiMarkOf(m.Extra), "role"))
	switch {
	case given.IsNull():
		o.null("parts")
	case given.Kind() == '[':
		o.raw("parts", jsontext.Value("[]"))
	}
	o.close()
}

func (e *geminiExporter) end(o *object) {
	if e.side != "" {
		o.closeList()
		o.close()
	}
	e.side = ""
}

// geminiExtras writes the members of an extra, but for our mark and the names that are
// written otherwise. A known member stays only where it says nothing or keep has it.
func (o *object) geminiExtras(extra jsontext.Value, known, keep []string) {
	o.filtered(extra, func(name string, _ strictjson.Value) bool {
		canonical, clash := geminiName(name, known)
		return name != geminiMark && name != serverToolCall && name != serverToolResponse &&
			!clash && (canonical == "" || name == canonical && slices.Contains(keep, name))
	})
}

// geminiKept returns the known members of an extra that may be written as they lie there.
func geminiKept(extra jsontext.Value, written string) []string {
	var keep []string
	if extra == nil {
		return nil
	}
	for name, v := range (strictjson.Value{Raw: extra}).Members() {
		ok := false
		switch {
		case name == written:
		case name == "thought":
			// A text that is a thought has another block.
			ok = v.Kind() == 'f' || v.IsNull() || v.Kind() == 't' && written != "text"
		case name == "thoughtSignature":
			s, text := v.Text()
			_, base64 := geminiBytes(s)
			ok = v.IsNull() || text && (base64 || s == "")
		case slices.Contains(geminiData, name):
			ok = v.IsNull()
		default:
			ok = true
		}
		if ok {
			keep = append(keep, name)
		}
	}
	return keep
}

// block writes one part.
func (e *geminiExporter) block(o *object, m *history.Message, b *history.Block) {
	written := ""
	switch b.Type {
	case history.TextBlock:
		o.open()
		if b.Text != "" || !isFalse(geminiMarkOf(b.Extra), "text") {
			written = "text"
			o.text("text", b.Text)
		}
	case history.ThinkingBlock:
		written = "text"
		o.open()
		o.text("text", b.Text)
		o.raw("thought", jsontext.Value("true"))
		e.signature(o, m, b)
		o.geminiExtras(b.Extra, geminiPartMembers, without(geminiKept(b.Extra, written), "thought", b.Signature))
		o.close()
		return
	case history.ToolCall:
		written = "functionCall"
		o.open()
		o.name(written)
		e.call(o, b)
		e.signature(o, m, b)
	case history.ToolResult:
		written = "functionResponse"
		o.open()
		o.name(written)
		e.result(o, b)
		o.geminiExtras(b.Extra, append(slices.Clip(geminiPartMembers), "name"),
			without(geminiKept(b.Extra, written), "name", ""))
		o.close()
		return
	case history.OpaqueBlock:
		o.geminiOpaque(b, func(d *decoder, v strictjson.Value) history.Block {
			return d.geminiPart(&geminiContent{model: true}, v, "")
		})
		return
	default:
		if b.URL == "" && b.Data == nil {
			o.dst = history.AppendBlock(o.dst, b)
			return
		}
		o.open()
		written = o.geminiMedia(b, true)
	}
	o.geminiExtras(b.Extra, geminiPartMembers, without(geminiKept(b.Extra, written), "", b.Signature))
	o.close()
}

// without leaves out a name, and that of a signature that has been written.
func without(names []string, name, signature string) []string {
	return slices.DeleteFunc(names, func(n string) bool {
		return n == name || n == "thoughtSignature" && signature != ""
	})
}

// signature writes the signature of a call or a thought, unless it is known to be of
// another provider's kind.
func (e *geminiExporter) signature(o *object, m *history.Message, b *history.Block) {
	if b.Signature == "" || m.Provider == openAIProvider || m.Provider == "anthropic" {
		return
	}
	if _, ok := geminiBytes(b.Signature); ok {
		o.text("thoughtSignature", b.Signature)
	}
}

func (e *geminiExporter) call(o *object, b *history.Block) {
	mark := geminiMarkOf(b.Extra)
	o.open()
	o.geminiID(mark, b.ID)
	o.text("name", b.Name)
	args := argumentsObject(b, &Report{})
	switch given := memberNamed(mark, "args"); {
	case string(args) != "{}" || given.Raw == nil:
		if b.Arguments.Kind() == '{' {
			args = b.Arguments
		}
		o.raw("args", args)
	case given.IsNull():
		o.null("args")
	}
	o.geminiLevel(mark, geminiCallMembers, "partialArgs", "willContinue")
	o.close()
	if len(e.waiting) < maxWaiting {
		e.waiting = append(e.waiting, b.ID, b.Name)
	}
}

// geminiID writes the id of a call or a result, unless there was none.
func (o *object) geminiID(mark jsontext.Value, id string) {
	switch given := memberNamed(mark, "id"); {
	case given.Raw == nil:
		o.text("id", id)
	case given.IsNull() || string(given.Raw) == `""`:
		o.raw("id", given.Raw)
	}
}

// geminiLevel writes what else an inner object held, but for known members that are not
// among those that are kept there.
func (o *object) geminiLevel(mark jsontext.Value, known []string, keep ...string) {
	if level := objectOf(memberNamed(mark, "level")); level != nil {
		o.geminiExtras(level, known, keep)
	}
}

// name returns the name of the tool that a result is of, and whether the result or its
// call says so.
func (e *geminiExporter) name(b *history.Block) (name string, known bool) {
	name, said := memberNamed(b.Extra, "name").Text()
	known = said
	for i := 0; i < len(e.waiting); i += 2 {
		if e.waiting[i] == b.CallID {
			if !said {
				name, known = e.waiting[i+1], true
			}
			e.waiting = slices.Delete(e.waiting, i, i+2)
			break
		}
	}
	return name, known
}

func (e *geminiExporter) result(o *object, b *history.Block) {
	mark := geminiMarkOf(b.Extra)
	o.open()
	if name, known := e.name(b); known {
		o.geminiID(mark, b.CallID)
		o.text("name", name)
	} else {
		// Withheld, and its call is not there: only an id says still what it is of.
		o.text("id", b.CallID)
		o.text("name", name)
	}
	text, _ := plainText(b.Content)
	switch given := memberNamed(mark, "response"); {
	case text == "" && given.Kind() == 'f':
	case text == "" && given.Raw != nil && given.IsNull():
		o.null("response")
	default:
		o.name("response")
		if response := geminiBare(b, text); response != nil {
			o.dst = append(o.dst, response...)
		} else {
			o.dst = appendGeminiResponse(o.dst, b, text)
		}
	}
	parts := false
	for i := range b.Content {
		c := &b.Content[i]
		if c.Type == history.TextBlock {
			continue
		}
		if !parts {
			parts = true
			o.name("parts")
			o.openList()
		}
		o.element()
		e.resultPart(o, c)
	}
	keep := []string{"scheduling", "willContinue", "parts"}
	if parts {
		o.closeList()
		keep = keep[:2]
	}
	o.geminiLevel(mark, geminiResponseMembers, keep...)
	o.close()
}

func (e *geminiExporter) resultPart(o *object, b *history.Block) {
	switch {
	case b.Type == history.OpaqueBlock:
		o.geminiOpaque(b, func(d *decoder, v strictjson.Value) history.Block { return d.geminiResponsePart(v, "") })
	case b.Media() && (b.URL != "" || b.Data != nil):
		o.open()
		written := o.geminiMedia(b, true)
		o.geminiExtras(b.Extra, geminiPartMembers, geminiKept(b.Extra, written))
		o.close()
	default:
		o.dst = history.AppendBlock(o.dst, b)
	}
}

// appendGeminiResponse appends the object for the text of a result. Text that was an
// object once and was cut since is an object no more.
func appendGeminiResponse(dst []byte, b *history.Block, text string) []byte {
	name := "result"
	switch given := textOf(geminiMarkOf(b.Extra), "response"); {
	case given == responseJSON && isGeminiObject(text):
		return append(dst, strictjson.Document([]byte(text)).Compact()...)
	case b.IsError:
		name = "error"
	case given == responseOutput:
		name = responseOutput
	}
	dst = append(dst, '{', '"')
	dst = append(dst, name...)
	dst = append(dst, '"', ':')
	dst = history.AppendString(dst, text)
	return append(dst, '}')
}

// geminiBare returns a response that was no object, as it was; nil for any other, and for
// text that was JSON once and was cut since.
func geminiBare(b *history.Block, text string) jsontext.Value {
	switch textOf(geminiMarkOf(b.Extra), "response") {
	case responseText:
		return history.AppendString(nil, text)
	case responseValue:
		if strictjson.CheckDepth([]byte(text), geminiResponseDepth) == nil {
			if v := strictjson.Document([]byte(text)); v.Kind() != '{' && v.Kind() != '"' && !v.IsNull() {
				return v.Compact()
			}
		}
	}
	return nil
}

func isGeminiObject(text string) bool {
	return len(text) > 0 && text[0] == '{' && strictjson.CheckDepth([]byte(text), geminiResponseDepth) == nil
}

// geminiMedia writes inlineData or fileData, and returns which.
func (o *object) geminiMedia(b *history.Block, export bool) string {
	member, known := "fileData", geminiFileMembers
	if b.URL == "" {
		member, known = "inlineData", geminiBlobMembers
	}
	o.name(member)
	o.open()
	mediaType := b.MediaType
	if !export {
		mediaType = geminiMediaType(mediaType)
	}
	var written []string
	if mediaType != "" {
		written = append(written, "mimeType")
		o.text("mimeType", mediaType)
	}
	if b.URL != "" {
		o.text("fileUri", b.URL)
	} else {
		o.base64("data", b.Data)
	}
	if export {
		if b.Filename != "" {
			written = append(written, "displayName")
			o.text("displayName", b.Filename)
		}
		var keep []string
		for _, name := range []string{"mimeType", "displayName"} {
			if !slices.Contains(written, name) {
				keep = append(keep, name)
			}
		}
		o.geminiLevel(geminiMarkOf(b.Extra), known, keep...)
	}
	o.close()
	return member
}

// geminiOpaque writes an opaque block as the part that it was, of a content or of a result.
// What would be read as something else, or not at all, is none.
func (o *object) geminiOpaque(b *history.Block, read func(*decoder, strictjson.Value) history.Block) {
	from := len(o.dst)
	if b.Provider == geminiProvider && b.Opaque.Kind() == '{' {
		o.geminiVerbatim(b.Opaque, true)
		var d decoder
		part := read(&d, strictjson.Value{Raw: o.dst[from:]})
		if d.count() == 0 && part.Type == history.OpaqueBlock {
			return
		}
	}
	o.dst = o.dst[:from]
	o.opaque(b, false, read, func(s string) {
		o.open()
		o.text("text", s)
		o.close()
	})
}

// geminiVerbatim writes an opaque part under the names that it came with. In a request its
// signature is in standard base64, as everywhere.
func (o *object) geminiVerbatim(data jsontext.Value, export bool) {
	o.open()
	for name, v := range (strictjson.Value{Raw: data}).Members() {
		switch name {
		case "toolCall", "toolResponse":
			if kindOf(data, "server"+strings.ToUpper(name[:1])+name[1:]) != 0 {
				continue // the name would be there twice
			}
		case serverToolCall:
			name = "toolCall"
		case serverToolResponse:
			name = "toolResponse"
		case "thoughtSignature":
			if s, _ := v.Text(); !export {
				data, _ := geminiBytes(s)
				o.text(name, base64.StdEncoding.EncodeToString(data))
				continue
			}
		}
		o.member(name, v)
	}
	o.close()
}
