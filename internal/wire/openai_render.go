package wire

import (
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"historyd/internal/history"
	"historyd/internal/strictjson"
)

// What a request of Chat Completions may hold.
var (
	openAINames = nameRule{max: 64}
	openAIIDs   = idRule{max: 40, apart: true}
	imageTypes  = []string{"image/png", "image/jpeg", "image/gif", "image/webp"}
)

// maxOpenAIText is the most characters of one string of content.
const maxOpenAIText = 1 << 20

// openAIRender writes a request's messages. A provider other than the one whose
// format it is may know more members, and gets those that it gave itself.
type openAIRender struct {
	object
	target target
	media  media
	names  naming
	ids    numbering
	report Report
	moved  []*history.Block // media of results that wait for the message after them
}

func (openAICodec) render(s *Show) Shown {
	w := openAIRender{target: s.target(openAIProvider), media: chooseMedia(s.Messages, openAIMedia), names: naming{rule: openAINames}}
	w.ids = numbering{rule: openAIIDs, counts: &w.report}
	w.dst = make([]byte, 0, s.room())
	if s.Summary != "" {
		// A peer's words must not gain the authority of the system position.
		if s.Authority {
			w.begin("system")
		} else {
			w.begin("user")
		}
		w.text("content", clean(s.Summary, &w.report))
		w.close()
	}
	for st := range steps(s.Messages) {
		if st.message == nil || len(st.message.Content) <= maxCalls {
			w.step(st)
			continue
		}
		for _, part := range divided(st) {
			w.step(part)
		}
	}
	out := Shown{Messages: w.dst}
	out.Tools, out.Refusals = s.declare(&w.names, declareOpenAI)
	out.Names, out.Report = w.names.mapped, w.report
	return out
}

// declareOpenAI writes an added tool.
func declareOpenAI(o *object, d Declaration) {
	kind := "function"
	if d.Custom {
		kind = "custom"
	}
	o.open()
	o.text("type", kind)
	o.name(kind)
	o.open()
	o.text("name", d.Name)
	if d.Refusal != "" {
		o.text("description", d.Refusal)
	}
	if !d.Custom {
		o.schema("parameters")
	}
	o.close()
	o.close()
}

func (w *openAIRender) begin(role string) {
	w.element()
	w.open()
	w.text("role", role)
}

// maxCalls is how many calls one message holds at the most. A model makes more at times.
const maxCalls = 128

// divided returns a step, as several where its message has more calls than one may hold: each
// with the next calls and their results, which stand in the same order.
func divided(st step) (parts []step) {
	content, results := st.message.Content, st.results
	for from, to, calls := 0, 0, 0; from < len(content); from, calls = to, 0 {
		for to = from; to < len(content) && (calls < maxCalls || content[to].Type != history.ToolCall); to++ {
			if content[to].Type == history.ToolCall {
				calls++
			}
		}
		m := *st.message
		if m.Content = content[from:to:to]; from > 0 {
			m.Extra = nil // goes with the first
		}
		part := step{at: st.at, message: &m, results: results}
		if to < len(content) {
			part.results, results = firstResults(results, calls)
		}
		parts = append(parts, part)
	}
	return parts
}

// firstResults parts so many results from the others.
func firstResults(msgs []history.Message, n int) (first, others []history.Message) {
	for i := range msgs {
		m, at := msgs[i], 0
		for ; at < len(m.Content) && n > 0; at++ {
			if isResult(m.Content[at]) {
				n--
			}
		}
		if at < len(m.Content) {
			rest := m
			if rest.Content = m.Content[at:]; at > 0 {
				m.Content = m.Content[:at:at]
				first = append(first, m)
			}
			return first, append([]history.Message{rest}, msgs[i+1:]...)
		}
		first = append(first, m)
	}
	return first, nil
}

func (w *openAIRender) step(st step) {
	w.ids.begin()
	if m := st.message; m != nil {
		if m.Role == history.Assistant {
			w.assistant(m)
		} else {
			w.said(m)
		}
	}
	for i := range st.results {
		w.results(&st.results[i])
	}
	w.flushMoved()
}

// named writes the name of a speaker, where the provider accepts it.
func (w *openAIRender) named(m *history.Message) {
	if m.Extra == nil {
		return
	}
	if name := textOf(m.Extra, "name"); validName(name) {
		w.text("name", name)
	}
}

func validName(s string) bool {
	return s != "" && utf8.RuneCountInString(s) <= 64 && !strings.ContainsFunc(s, func(r rune) bool {
		return unicode.IsSpace(r) || unicode.IsControl(r) || strings.ContainsRune(`<|\/>`, r)
	})
}

// said writes what anybody but a model or a tool said.
func (w *openAIRender) said(m *history.Message) {
	if len(m.Content) == 0 {
		w.report.DroppedEmpty++
		return
	}
	for i := range m.Content {
		w.report.WithheldSignatures += signatures(&m.Content[i])
	}
	w.begin(openAIRoleOf(m))
	if len(m.Content) == 1 && m.Content[0].Type == history.TextBlock {
		w.contentText(m.Content[0].Text)
	} else {
		w.name("content")
		w.openList()
		withheld := w.report.WithheldOpaque
		for i := range m.Content {
			w.saidPart(m, &m.Content[i])
		}
		w.orNotShown(m.Content, withheld)
		w.closeList()
	}
	w.named(m)
	w.close()
}

// orNotShown ends a list of parts that says nothing, if more of it was withheld than before.
func (w *openAIRender) orNotShown(blocks []history.Block, before int64) {
	n := w.report.WithheldOpaque - before
	for i := range blocks {
		if b := &blocks[i]; b.Type == history.TextBlock && b.Text == "" {
			n++
		}
	}
	if w.report.WithheldOpaque > before && n == int64(len(blocks)) {
		w.textParts(notShown)
	}
}

// assistant writes an answer: null content only beside calls, and nothing at all
// where nothing is left of it.
func (w *openAIRender) assistant(m *history.Message) {
	calls, saying, texts := w.weigh(m)
	if calls == 0 && saying == 0 {
		w.report.WithheldSignatures += signaturesBeside(m)
		w.report.DroppedEmpty++
		return
	}
	w.begin("assistant")
	switch {
	case saying == 0:
		w.null("content")
	case saying == 1 && texts == 1:
		i := slices.IndexFunc(m.Content, func(b history.Block) bool { return b.Type == history.TextBlock })
		w.contentText(m.Content[i].Text)
	default:
		w.name("content")
		w.openList()
		for i := range m.Content {
			w.answerPart(m, &m.Content[i])
		}
		w.closeList()
	}
	if calls > 0 {
		w.name("tool_calls")
		w.openList()
		for i := range m.Content {
			if m.Content[i].Type == history.ToolCall {
				w.call(m, i)
			}
		}
		w.closeList()
	}
	w.named(m)
	w.vendor(m, calls > 0)
	w.close()
}

// weigh counts the calls of an answer, the parts that it says, and those that are texts.
func (w *openAIRender) weigh(m *history.Message) (calls, saying, texts int) {
	for i := range m.Content {
		b := &m.Content[i]
		if b.Type != history.ToolCall {
			w.report.WithheldSignatures += signatures(b)
		}
		switch b.Type {
		case history.ToolCall:
			calls++
		case history.TextBlock:
			saying++
			texts++
		case history.ThinkingBlock:
			if !w.thinks(m, b) {
				w.report.WithheldThinking++
			}
		case history.OpaqueBlock:
			if w.answers(m, b) || transcript(b) != "" {
				saying++
			} else {
				w.report.WithheldOpaque++
			}
		default:
			saying++
		}
	}
	return calls, saying, texts
}

// thinks reports whether thinking goes back to where it came from.
func (w *openAIRender) thinks(m *history.Message, b *history.Block) bool {
	return b.Text != "" && b.Signature == "" && b.Encrypted == "" && w.foreign(m)
}

// foreign reports whether the answer came from the provider asked, and that this is
// one that knows more members than those of the format's own.
func (w *openAIRender) foreign(m *history.Message) bool {
	return w.target.provider != openAIProvider && w.target.made(m)
}

// answers reports whether an opaque block is a part of an answer.
func (w *openAIRender) answers(m *history.Message, b *history.Block) bool {
	// An item of Responses is none of Chat Completions, whoever speaks both.
	if !verbatim(b) || isItem(b) {
		return false
	}
	if textOf(b.Opaque, "type") == "refusal" && kindOf(b.Opaque, "refusal") == '"' {
		return true
	}
	return w.foreign(m) && memberValue(b).Raw == nil
}

func (w *openAIRender) answerPart(m *history.Message, b *history.Block) {
	switch {
	case b.Type == history.TextBlock:
		w.textParts(b.Text)
	case b.Media():
		w.report.DroppedMedia++
		if said := transcript(b); said != "" {
			w.textParts(said)
		} else {
			w.textParts(placeholder(b))
		}
	case transcript(b) != "":
		w.textParts(transcript(b))
	case b.Type != history.OpaqueBlock || !w.answers(m, b):
	case textOf(b.Opaque, "type") == "refusal":
		w.element()
		w.open()
		w.text("type", "refusal")
		w.text("refusal", clean(textOf(b.Opaque, "refusal"), &w.report))
		w.close()
	default:
		w.element()
		w.dst = append(w.dst, cleanRaw(b.Opaque, &w.report)...)
	}
}

// transcript returns the words of an answer that is a sound: the sound is known to a
// provider for a while only.
func transcript(b *history.Block) string {
	audio := memberNamed(b.Extra, "audio")
	if b.Type == history.OpaqueBlock && textOf(b.Extra, "member") == "audio" {
		audio = memberValue(b)
	}
	return textOf(objectOf(audio), "transcript")
}

func (w *openAIRender) call(m *history.Message, i int) {
	b := &m.Content[i]
	kind, members := callKind(b)
	w.element()
	w.open()
	w.text("id", w.ids.call(b.ID, m, i))
	w.text("type", kind)
	w.name(kind)
	w.open()
	w.text(members[0], w.names.name(b.Name))
	w.text(members[1], clean(b.ArgumentString(), &w.report))
	w.close()
	w.report.WithheldSignatures += signatures(b)
	if signedElsewhere(b) && w.foreign(m) {
		w.raw("extra_content", memberNamed(b.Extra, "extra_content").Raw)
		w.report.WithheldSignatures--
	}
	w.close()
}

// vendor writes the thinking that a vendor wants back.
func (w *openAIRender) vendor(m *history.Message, calls bool) {
	var thoughts [2]string
	some := false
	for i := range m.Content {
		if b := &m.Content[i]; b.Type == history.ThinkingBlock && w.thinks(m, b) {
			k := max(slices.Index(thinkingMembers, textOf(b.Extra, "member")), 0)
			if thoughts[k] != "" {
				thoughts[k] += "\n\n"
			}
			thoughts[k] += clean(b.Text, &w.report)
			some = true
		}
	}
	for k, name := range thinkingMembers {
		if thoughts[k] != "" {
			w.text(name, thoughts[k])
		}
	}
	if !w.foreign(m) || !some && !calls {
		w.report.WithheldSignatures += signaturesBeside(m)
		return
	}
	for _, name := range signedMembers {
		if v := memberNamed(m.Extra, name); v.Kind() == '[' || v.Kind() == '{' {
			w.raw(name, v.Raw)
		}
	}
}

// results writes a message for each result. Its images follow the results in a
// message of the user, since a result is text.
func (w *openAIRender) results(m *history.Message) {
	for i := range m.Content {
		b := &m.Content[i]
		if b.Type != history.ToolResult {
			w.report.WithheldOpaque++
			continue
		}
		w.begin("tool")
		switch {
		case len(b.Content) == 0:
			w.text("content", "") // an empty list is refused
		case len(b.Content) == 1 && b.Plain && b.Content[0].Type == history.TextBlock:
			w.contentText(b.Content[0].Text)
		default:
			w.name("content")
			w.openList()
			withheld := w.report.WithheldOpaque
			for j := range b.Content {
				w.resultPart(&b.Content[j])
			}
			w.orNotShown(b.Content, withheld)
			w.closeList()
		}
		w.text("tool_call_id", w.ids.result(b.CallID))
		w.close()
	}
}

func (w *openAIRender) resultPart(b *history.Block) {
	switch {
	case b.Type == history.TextBlock:
		w.textParts(b.Text)
	case b.Type == history.DocumentBlock && w.media[b] && !isPDF(b):
		w.textParts(documentText(b))
	case b.Media() && w.media[b]:
		w.moved = append(w.moved, b)
		w.report.MovedMedia++
		w.textParts("[" + string(b.Type) + ": in the message after the results]")
	case b.Media():
		w.report.DroppedMedia++
		w.textParts(placeholder(b))
	default:
		w.report.WithheldOpaque++
	}
}

// flushMoved writes what waits for the results to end.
func (w *openAIRender) flushMoved() {
	if len(w.moved) == 0 {
		return
	}
	w.begin("user")
	w.name("content")
	w.openList()
	w.textParts("[from the results of tools above, in their order]")
	for _, b := range w.moved {
		w.mediaPart(b)
	}
	w.closeList()
	w.close()
	w.moved = w.moved[:0]
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
