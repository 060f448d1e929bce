package wire

import (
	"encoding/base64"
	"encoding/json/jsontext"
	"slices"
	"strings"

	"historyd/internal/history"
	"historyd/internal/strictjson"
)

// geminiUnsigned is the signature that the provider documents for calls that its model
// did not make, or whose signature is lost: skip_thought_signature_validator, in base64 as
// its own libraries write it, which read nothing else there.
const geminiUnsigned = "c2tpcF90aG91Z2h0X3NpZ25hdHVyZV92YWxpZGF0b3I="

// geminiOpening stands where a history begins with the model: contents start with the user.
const geminiOpening = "[The conversation begins here.]"

// Names begin with a letter or an underscore. Ids have no rule that is known; those with
// other signs than plain ones are mapped all the same.
var (
	geminiNames = nameRule{max: 64, leading: "0123456789-"}
	geminiIDs   = idRule{max: 256, signs: nameSigns + ".:|/+=@#~", unique: true}
)

// geminiRender writes contents for a model. A content is begun by its first part and ended
// by the next one of the other role, so that there is no empty one and roles alternate.
type geminiRender struct {
	o       object
	target  target
	signed  bool // the model wants calls to be signed
	nested  bool // it takes media inside of results
	names   naming
	ids     numbering
	media   media
	summary string // for the head of the first content
	role    string // of the open content
	report  Report
}

func (geminiCodec) render(s *Show) Shown {
	w := geminiRender{names: naming{rule: geminiNames}, target: s.target(geminiProvider)}
	w.ids = numbering{rule: geminiIDs, counts: &w.report}
	w.o.dst = make([]byte, 0, s.room())
	// Only Gemini 3 and later check signatures, and take media in results; a name that
	// tells nothing may stand for one of them, and older ones pass over a signature.
	w.signed = !olderGemini(w.target.model)
	w.nested = w.signed
	w.media = chooseMedia(s.Messages, geminiTakes)
	var out Shown
	if s.Summary != "" && s.Authority {
		// The provider ignores the role of a system instruction, so there is none.
		o := object{}
		o.open()
		o.name("parts")
		o.openList()
		o.element()
		o.open()
		o.text("text", clean(s.Summary, &w.report))
		o.close()
		o.closeList()
		o.close()
		out.System = o.dst
	} else if s.Summary != "" {
		w.summary = s.Summary
	}
	for st := range steps(s.Messages) {
		w.step(&st)
	}
	if w.role == "" && w.summary != "" {
		w.begin("user")
	}
	w.end()
	out.Messages = w.o.dst
	out.Tools, out.Refusals = w.declare(s)
	out.Names, out.Report = w.names.mapped, w.report
	return out
}

// olderGemini reports whether a model is a Gemini before the third.
func olderGemini(model string) bool {
	name := strings.ToLower(model[strings.LastIndexByte(model, '/')+1:])
	version, ok := strings.CutPrefix(name, "gemini-")
	return ok && (strings.HasPrefix(version, "1.") || strings.HasPrefix(version, "2.") || strings.HasPrefix(version, "pro"))
}

// declare adds one element with all functions to the request's tools. Their schema stands
// as parametersJsonSchema: parameters wants an object to have properties.
func (w *geminiRender) declare(s *Show) ([]byte, []Declaration) {
	o := object{dst: givenTools(s.Tools)}
	o.comma = len(o.dst) > 0
	added, refusals := s.declared(&w.names)
	if len(added) == 0 {
		return o.dst, refusals
	}
	o.element()
	o.open()
	o.name("functionDeclarations")
	o.openList()
	for _, d := range added {
		o.element()
		o.open()
		o.text("name", d.Name)
		if d.Refusal != "" {
			o.text("description", d.Refusal)
		}
		o.schema("parametersJsonSchema")
		o.close()
	}
	o.closeList()
	o.close()
	return o.dst, refusals
}

// begin makes the open content one of that role.
func (w *geminiRender) begin(role string) {
	if w.role == role {
		return
	}
	first := w.role == ""
	if first && role == "model" {
		if w.summary == "" {
			w.summary = geminiOpening
			w.report.Inserted++
		}
		w.begin("user")
		first = false
	}
	w.end()
	w.role = role
	w.o.element()
	w.o.open()
	w.o.text("role", role)
	w.o.name("parts")
	w.o.openList()
	if first && w.summary != "" {
		w.text(w.summary)
	}
}

func (w *geminiRender) end() {
	if w.role != "" {
		w.o.closeList()
		w.o.close()
	}
}

// text writes a part of the open content.
func (w *geminiRender) text(s string) {
	w.o.element()
	w.o.open()
	w.o.text("text", clean(s, &w.report))
	w.o.close()
}

// step writes a message, and the results that answer it.
func (w *geminiRender) step(st *step) {
	var calls []geminiShown
	if m := st.message; m != nil && m.Role != history.System {
		w.report.WithheldSignatures += signaturesBeside(m)
		before, length, withheld := w.role, len(w.o.dst), w.report.WithheldOpaque
		role := "user"
		if m.Role == history.Assistant {
			role = "model"
		}
		signed := false
		for i := range m.Content {
			if b := &m.Content[i]; b.Type == history.ToolCall {
				calls = append(calls, w.call(m, i, !signed))
				signed = true
			} else {
				w.block(m, b, role)
			}
		}
		if role == "user" && len(w.o.dst) == length && w.report.WithheldOpaque > withheld {
			w.begin(role)
			w.text(notShown)
		}
		switch {
		case len(w.o.dst) == length:
			w.report.DroppedEmpty++
		case before == role && !isTrue(geminiMarkOf(m.Extra), "more"):
			w.report.Merged++
		}
	}
	if len(st.results) > 0 {
		w.results(st.results, calls)
	}
}

// origin reports whether values that only their model understands may go back to it.
func (w *geminiRender) origin(m *history.Message) bool {
	return m.Role == history.Assistant && w.target.made(m)
}

// block writes anything but calls and results.
func (w *geminiRender) block(m *history.Message, b *history.Block, role string) {
	if b.Type != history.ThinkingBlock && b.Extra != nil && isTrue(b.Extra, "thought") && !w.origin(m) {
		w.report.WithheldThinking++
		return
	}
	switch b.Type {
	case history.TextBlock:
		signature := w.signature(m, textOf(b.Extra, "thoughtSignature"))
		if b.Text == "" && signature == "" {
			return
		}
		w.part(role)
		w.o.text("text", clean(b.Text, &w.report))
		w.modifiers(m, b, signature)
	case history.ThinkingBlock:
		if !w.origin(m) {
			w.report.WithheldThinking++
			return
		}
		signature := w.signature(m, b.Signature)
		if b.Text == "" && signature == "" {
			return
		}
		w.part(role)
		w.o.text("text", clean(b.Text, &w.report))
		w.o.raw("thought", jsontext.Value("true"))
		w.modifiers(m, b, signature)
	case history.OpaqueBlock:
		if m.Role == history.Assistant && refused(b) {
			w.begin(role)
			w.text(textOf(b.Opaque, "refusal"))
			return
		}
		if !w.origin(m) || b.Provider != geminiProvider || !geminiShowable(b.Opaque) {
			w.report.WithheldOpaque++
			return
		}
		w.begin(role)
		w.o.element()
		w.o.geminiVerbatim(cleanRaw(b.Opaque, &w.report), false)
	case history.ImageBlock, history.DocumentBlock, history.AudioBlock:
		if !w.media[b] {
			w.report.DroppedMedia++
			w.report.WithheldSignatures += signatures(b)
			w.begin(role)
			w.text(placeholder(b))
			return
		}
		signature := w.signature(m, textOf(b.Extra, "thoughtSignature"))
		w.part(role)
		w.o.geminiMedia(b, false)
		if isTrue(b.Extra, "thought") {
			w.o.raw("thought", jsontext.Value("true"))
		}
		w.modifiers(m, b, signature)
	}
}

// part begins a part, which modifiers ends.
func (w *geminiRender) part(role string) {
	w.begin(role)
	w.o.element()
	w.o.open()
}

// modifiers ends a part with what says more about it, and may stand in a request.
func (w *geminiRender) modifiers(m *history.Message, b *history.Block, signature string) {
	if signature != "" {
		w.o.text("thoughtSignature", signature)
	}
	if b.Extra != nil && (m.Role == history.User || w.origin(m)) {
		for _, name := range []string{"videoMetadata", "partMetadata"} {
			v := objectOf(memberNamed(b.Extra, name))
			if v != nil && (b.Media() || name == "partMetadata") {
				w.o.raw(name, cleanRaw(v, &w.report))
			}
		}
	}
	w.o.close()
}

// signature returns a signature as a request holds it: only for the model that made it,
// and in standard base64, for bytes are what it is.
func (w *geminiRender) signature(m *history.Message, given string) string {
	if given == "" {
		return ""
	}
	data, ok := geminiBytes(given)
	if !ok || !w.origin(m) {
		w.report.WithheldSignatures++
		return ""
	}
	return base64.StdEncoding.EncodeToString(data)
}

// geminiRequired are the texts without which a part is refused.
var geminiRequired = map[string][]string{"executableCode": {"language", "code"}, "codeExecutionResult": {"outcome"}}

// geminiShowable reports whether an opaque part is one that a request may hold: code that
// the provider ran, a tool of its own, or something that is not known here at all.
func geminiShowable(data jsontext.Value) bool {
	if data.Kind() != '{' {
		return false
	}
	known, unknown := 0, 0
	for name, v := range (strictjson.Value{Raw: data}).Members() {
		canonical, clash := geminiName(name, geminiPartMembers)
		switch {
		case name == geminiMark || name == "" || clash:
			return false
		case name == serverToolCall, name == serverToolResponse, geminiRequired[canonical] != nil:
			known++
			if v.Kind() != '{' {
				return false
			}
			for _, text := range geminiRequired[canonical] {
				if kindOf(v.Raw, text) != '"' {
					return false
				}
			}
		case canonical == "thought":
			if k := v.Kind(); k != 't' && k != 'f' {
				return false
			}
		case canonical == "thoughtSignature":
			s, _ := v.Text()
			if _, ok := geminiBytes(s); !ok {
				return false
			}
		case slices.Contains(geminiData, canonical):
			return false // it has a block of its own
		case canonical == "":
			unknown++
		}
	}
	return known == 1 || known == 0 && unknown > 0
}

// geminiShown is a call as it was written.
type geminiShown struct {
	id, name string // as written; no id for a call that had none
	given    string // the id that its result has
}

// call writes a call. The first of a message is the one that a signature belongs to.
func (w *geminiRender) call(m *history.Message, at int, first bool) geminiShown {
	b := &m.Content[at]
	c := geminiShown{name: w.names.name(b.Name), given: b.ID}
	w.part("model")
	w.o.name("functionCall")
	w.o.open()
	if memberNamed(geminiMarkOf(b.Extra), "id").Raw == nil {
		c.id = w.ids.call(b.ID, m, at)
		w.o.text("id", c.id)
	}
	w.o.text("name", c.name)
	w.o.raw("args", argumentsObject(b, &w.report))
	w.o.close()
	if signedElsewhere(b) {
		w.report.WithheldSignatures++
	}
	signature := w.signature(m, b.Signature)
	if signature == "" && first && w.signed {
		// Every step gets it, also those before the current turn, which nobody checks:
		// so what was written stays as it was when the conversation goes on.
		signature = geminiUnsigned
	}
	w.modifiers(m, b, signature)
	return c
}

// results writes the results of all calls of a message into one content, and after them
// the media that cannot stand inside.
func (w *geminiRender) results(msgs []history.Message, calls []geminiShown) {
	waiting := make(map[string][]int, len(calls)) // places of the calls of an id
	for i := range calls {
		waiting[calls[i].given] = append(waiting[calls[i].given], i)
	}
	var after []*history.Block
	for i := range msgs {
		for j := range msgs[i].Content {
			b := &msgs[i].Content[j]
			if b.Type != history.ToolResult {
				w.report.WithheldOpaque++
				continue
			}
			of := waiting[b.CallID]
			if len(of) == 0 {
				w.report.DroppedEmpty++ // only of messages that were not repaired
				continue
			}
			waiting[b.CallID] = of[1:]
			after = append(after, w.result(b, &calls[of[0]])...)
		}
	}
	for _, b := range after {
		w.report.MovedMedia++
		w.part("user")
		w.o.geminiMedia(b, false)
		w.o.close()
	}
}

// result writes a result, and returns the media that have to follow.
func (w *geminiRender) result(b *history.Block, c *geminiShown) (after []*history.Block) {
	text, all := plainText(b.Content)
	var inside []*history.Block
	for i := range b.Content {
		switch in := &b.Content[i]; {
		case in.Type == history.TextBlock:
		case !in.Media():
			w.report.WithheldOpaque++
		case !w.media[in]:
			w.report.DroppedMedia++
			if text != "" {
				text += "\n"
			}
			text += placeholder(in)
		case w.nested && geminiNests(in):
			inside = append(inside, in)
		default:
			after = append(after, in)
		}
	}
	if text == "" && !all && len(inside)+len(after) == 0 {
		text = notShown
	}
	w.part("user")
	w.o.name("functionResponse")
	w.o.open()
	if c.id != "" {
		w.o.text("id", c.id)
	}
	w.o.text("name", c.name)
	w.o.name("response")
	from := len(w.o.dst)
	w.o.dst = appendGeminiResponse(w.o.dst, b, clean(text, &w.report))
	if response := jsontext.Value(w.o.dst[from:]); len(response) > 0 {
		if cleaned := cleanRaw(response, &w.report); len(cleaned) > 0 && &cleaned[0] != &response[0] {
			w.o.dst = append(w.o.dst[:from], cleaned...)
		}
	}
	if len(inside) > 0 {
		w.o.name("parts")
		w.o.openList()
		for _, in := range inside {
			w.o.element()
			w.o.open()
			w.o.geminiMedia(in, false)
			w.o.close()
		}
		w.o.closeList()
	}
	w.o.close()
	w.o.close()
	return after
}
