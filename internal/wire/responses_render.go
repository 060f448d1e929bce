package wire

import (
	"bytes"
	"slices"
	"strings"

	"historyd/internal/history"
	"historyd/internal/strictjson"
)

// What is rendered stands for itself: with store false the provider has kept nothing
// that an id could name. So an item has an id only where the type demands it, and
// reasoning goes only with its encrypted content, and right before what it led to. The
// provider knows an item by its id, and refuses it without the reasoning that led to it.

const asciiSigns = " !\"#$%&'()*+,-./0123456789:;<=>?@ABCDEFGHIJKLMNOPQRSTUVWXYZ[\\]^_`abcdefghijklmnopqrstuvwxyz{|}~"

var (
	responsesNames = nameRule{max: 64}
	responsesIDs   = idRule{max: 64, signs: asciiSigns, apart: true}
)

type responsesRender struct {
	object
	show   *Show
	target target
	report Report
	names  naming
	calls  numbering
	media  media

	waiting []*history.Block       // reasoning that goes before the next item of its answer
	parting parting                // what of it is withheld
	ids     map[string]bool        // of items written or waiting: none may be there twice
	open    map[string][]openCall  // calls of the message before that wait for their results, by id
	results map[int]*history.Block // of the message that is written, by the place of the call; nil until asked for
	tools   map[string]bool        // types of the request's tools, and namespace/name of functions; nil until asked for
}

// A parting tells whether the reasoning that led to what follows is withheld.
type parting struct {
	parted bool
	thinks bool // the block before was reasoning

	// Numbers in the record of the last message with reasoning, and of the last result
	// after that: a result that was moved parts no answer.
	reasoned, answered int64
}

// spoke takes in that somebody speaks. A person, or a result that was there before, ends
// the answer that the reasoning was of.
func (p *parting) spoke(m *history.Message) {
	if m.Role != history.Assistant && !m.Synthetic || p.reasoned < p.answered && p.answered < m.Seq {
		p.parted, p.answered = false, 0
	}
}

// heard takes in the results of one step. They stand in the order of their calls.
func (p *parting) heard(results []history.Message) {
	last := int64(0)
	for i := range results {
		if m := &results[i]; !m.Synthetic {
			last = max(last, m.Seq)
		}
	}
	if last > 0 {
		p.answered = last
	}
}

// An openCall waits for its result, which takes the form of the call.
type openCall struct {
	given string // its id as written
	form  string // the type of its item
}

func (responsesCodec) render(s *Show) Shown {
	r := responsesRender{show: s, target: s.target(openAIProvider), names: naming{rule: responsesNames}}
	r.dst = make([]byte, 0, s.room())
	r.calls, r.open = numbering{rule: responsesIDs, counts: &r.report}, map[string][]openCall{}
	r.media = chooseMedia(s.Messages, r.fits)
	if s.Summary != "" {
		role := "user"
		if s.Authority {
			role = "developer"
		}
		r.message(role)
		r.text("content", clean(s.Summary, &r.report))
		r.close()
	}
	for st := range steps(s.Messages) {
		if st.message != nil {
			r.said(st.message, st.results)
		}
		for i := range st.results {
			r.answers(&st.results[i])
		}
		r.parting.heard(st.results)
	}
	r.forget()
	shown := Shown{Messages: r.dst}
	shown.Tools, shown.Refusals = s.declare(&r.names, declareResponses)
	shown.Names, shown.Report = r.names.mapped, r.report
	return shown
}

// declareResponses declares a tool that takes anything.
func declareResponses(o *object, d Declaration) {
	o.open()
	if d.Custom {
		o.text("type", "custom")
	} else {
		o.text("type", "function")
	}
	o.text("name", d.Name)
	if d.Refusal != "" {
		o.text("description", d.Refusal)
	}
	if !d.Custom {
		o.schema("parameters")
		o.raw("strict", []byte("false"))
	}
	o.close()
}

func (r *responsesRender) message(role string) {
	r.item("message")
	r.text("role", role)
}

func (r *responsesRender) item(kind string) {
	r.element()
	r.object.open()
	r.text("type", kind)
}

// said writes what is no result. Results are those that follow.
func (r *responsesRender) said(m *history.Message, results []history.Message) {
	clear(r.open)
	r.results = nil
	r.calls.begin()
	if m.Role == history.System {
		return // the prompt is the agent's to assemble
	}
	if m.Role != history.Assistant {
		r.forget()
	}
	r.parting.spoke(m)
	r.report.WithheldSignatures += signaturesBeside(m)
	for i := range m.Content {
		r.report.WithheldSignatures += signatures(&m.Content[i])
	}
	for i := 0; i < len(m.Content); i++ {
		b := &m.Content[i]
		if b.Type != history.ThinkingBlock {
			r.parting.thinks = false
		}
		switch {
		case b.Type == history.ThinkingBlock:
			r.thought(m, b)
		case b.Type == history.ToolCall:
			r.call(m, i, results)
		case b.Type == history.ToolResult:
			// Results stand in tool messages.
		case isItem(b):
			r.hosted(m, b)
		case m.Role == history.Assistant && r.media[b] && !r.parting.parted && r.take(textOf(b.Extra, "id"), "ig_"):
			r.drawn(m, b)
		default:
			from := i
			for i+1 < len(m.Content) && r.sameMessage(m, &m.Content[i+1]) {
				i++
			}
			r.parts(m, m.Content[from:i+1])
		}
	}
}

// sameMessage reports whether a block goes into the message of the block before it.
func (r *responsesRender) sameMessage(m *history.Message, b *history.Block) bool {
	return b.Type != history.ToolResult && !ownItem(b) && !(m.Role == history.Assistant && kindOf(b.Extra, "phase") != 0)
}

// thought keeps reasoning until what it led to is written.
func (r *responsesRender) thought(m *history.Message, b *history.Block) {
	p := &r.parting
	if !p.thinks {
		p.thinks, p.parted = true, false
	}
	p.reasoned = m.Seq
	id := textOf(b.Extra, "id")
	if b.Encrypted == "" || m.Role != history.Assistant || !r.target.made(m) || !r.take(id, "rs_") {
		p.parted = true
		r.report.WithheldThinking++
		return
	}
	r.waiting = append(r.waiting, b)
}

// take reports whether an id of an item may be written; it may be so once.
func (r *responsesRender) take(id, prefix string) bool {
	if !strings.HasPrefix(id, prefix) || !responsesIDs.legal(id) || r.ids[id] {
		return false
	}
	if r.ids == nil {
		r.ids = map[string]bool{}
	}
	r.ids[id] = true
	return true
}

// forget withholds reasoning whose item is not there.
func (r *responsesRender) forget() {
	r.parting.parted = r.parting.parted || len(r.waiting) > 0
	r.report.WithheldThinking += int64(len(r.waiting))
	r.waiting = r.waiting[:0]
}

// lead writes the reasoning that led to the item that follows, if it is of the same answer.
func (r *responsesRender) lead(m *history.Message) {
	if len(r.waiting) > 0 && !r.target.made(m) {
		r.forget()
	}
	for _, b := range r.waiting {
		r.item("reasoning")
		r.text("id", textOf(b.Extra, "id"))
		r.name("summary")
		if summary := memberNamed(b.Extra, "summary"); summary.Kind() == '[' {
			r.reasoned(summary, "summary_text")
			if content := memberNamed(b.Extra, "content"); content.Kind() == '[' && len(reasoned(content)) > 0 {
				r.name("content")
				r.reasoned(content, "reasoning_text")
			}
		} else {
			r.dst = appendSummary(r.dst, clean(b.Text, &r.report))
		}
		r.text("encrypted_content", clean(b.Encrypted, &r.report))
		r.close()
	}
	r.waiting = r.waiting[:0]
}

func (r *responsesRender) reasoned(list strictjson.Value, kind string) {
	r.openList()
	for _, text := range reasoned(list) {
		r.element()
		r.object.open()
		r.text("type", kind)
		r.text("text", clean(text, &r.report))
		r.close()
	}
	r.closeList()
}

// parts writes blocks as one message.
func (r *responsesRender) parts(m *history.Message, blocks []history.Block) {
	pieces, nothing := r.pieces(m, blocks)
	switch {
	case len(pieces) > 0:
	case nothing:
		return
	case m.Role == history.Assistant:
		r.forget()
		return
	default:
		pieces = []responsesPiece{{text: notShown}}
	}
	role := "user"
	if m.Role == history.Assistant {
		role = "assistant"
		r.lead(m)
	}
	r.message(role)
	if phase := textOf(blocks[0].Extra, "phase"); m.Role == history.Assistant && (phase == "commentary" || phase == "final_answer") {
		r.text("phase", phase)
	}
	r.name("content")
	r.content(pieces, role == "assistant")
	r.close()
}

// A responsesPiece is what goes into a list of parts: a text, or else a block.
type responsesPiece struct {
	text  string
	notes []byte // annotations of a text
	block *history.Block
}

// pieces returns what of the blocks is shown; nothing means that there were only
// texts of nothing.
func (r *responsesRender) pieces(m *history.Message, blocks []history.Block) (pieces []responsesPiece, nothing bool) {
	nothing = true
	for i := range blocks {
		b := &blocks[i]
		switch {
		case b.Type == history.TextBlock && b.Text == "":
			r.report.DroppedEmpty++
			continue
		case b.Type == history.TextBlock:
			p := responsesPiece{text: clean(b.Text, &r.report)}
			if b.Extra != nil && m.Role == history.Assistant && r.target.made(m) {
				if notes := memberNamed(b.Extra, "annotations"); identified(notes, "type") && len(notes.Compact()) > len("[]") {
					p.notes = cleanRaw(notes.Raw, &r.report)
				}
			}
			pieces = append(pieces, p)
		case b.Media() && r.media[b] && m.Role != history.Assistant:
			pieces = append(pieces, responsesPiece{block: b})
		case b.Media():
			r.report.DroppedMedia++
			pieces = append(pieces, responsesPiece{text: placeholder(b)})
		case refused(b):
			if m.Role == history.Assistant {
				pieces = append(pieces, responsesPiece{block: b})
			} else if text := textOf(b.Opaque, "refusal"); text != "" {
				pieces = append(pieces, responsesPiece{text: clean(text, &r.report)})
			}
		case m.Role != history.Assistant && r.namedFile(b) != "":
			pieces = append(pieces, responsesPiece{block: b})
		default:
			r.report.WithheldOpaque++
		}
		nothing = false
	}
	return pieces, nothing
}

// refused reports whether a block is the text of a refusal.
func refused(b *history.Block) bool {
	return verbatim(b) && textOf(b.Opaque, "refusal") != "" && textOf(b.Opaque, "type") == "refusal"
}

// namedFile returns the id of a file that the provider holds and a part names.
func (r *responsesRender) namedFile(b *history.Block) string {
	if !verbatim(b) || r.target.provider != openAIProvider {
		return ""
	}
	switch textOf(b.Opaque, "type") {
	case "input_image", "input_file", "computer_screenshot":
		return textOf(b.Opaque, "file_id")
	case "file": // as in Chat Completions
		return textOf(objectOf(memberNamed(b.Opaque, "file")), "file_id")
	}
	return ""
}

// content writes one bare text as a string, and anything else as a list of parts.
func (r *responsesRender) content(pieces []responsesPiece, assistant bool) {
	if len(pieces) == 1 && pieces[0].block == nil && pieces[0].notes == nil {
		r.dst = history.AppendString(r.dst, pieces[0].text)
		return
	}
	r.openList()
	for _, p := range pieces {
		r.element()
		if p.block != nil {
			r.part(p.block)
			continue
		}
		r.object.open()
		if assistant {
			r.text("type", "output_text")
		} else {
			r.text("type", "input_text")
		}
		r.text("text", p.text)
		switch {
		case p.notes != nil:
			r.raw("annotations", p.notes)
		case assistant:
			r.raw("annotations", []byte("[]"))
		}
		r.close()
	}
	r.closeList()
}

// part writes a block that is no text.
func (r *responsesRender) part(b *history.Block) {
	r.object.open()
	switch b.Type {
	case history.ImageBlock:
		r.text("type", "input_image")
		r.where("image_url", b, imageType(b))
		r.text("detail", detailOf(b.Extra))
	case history.DocumentBlock:
		r.text("type", "input_file")
		if b.Data == nil {
			r.text("file_url", b.URL)
			break
		}
		kind := fileType(b)
		r.where("file_data", b, kind)
		name := clean(b.Filename, &r.report)
		if name == "" {
			name = "document" + map[string]string{pdfType: ".pdf", "text/plain": ".txt"}[kind]
		}
		r.text("filename", name)
	case history.AudioBlock:
		r.text("type", "input_audio")
		r.name("input_audio")
		r.object.open()
		r.base64("data", b.Data)
		r.text("format", soundFormat(b))
		r.close()
	default:
		switch kind := textOf(b.Opaque, "type"); kind {
		case "refusal":
			r.text("type", kind)
			r.text("refusal", clean(textOf(b.Opaque, "refusal"), &r.report))
		case "input_file", "file":
			r.text("type", "input_file")
			r.text("file_id", clean(r.namedFile(b), &r.report))
		default:
			r.text("type", "input_image")
			r.text("file_id", clean(r.namedFile(b), &r.report))
			r.text("detail", detailOf(b.Opaque))
		}
	}
	r.close()
}

// where writes the URL of a block, or its bytes as one.
func (r *responsesRender) where(name string, b *history.Block, mediaType string) {
	typed := *b
	typed.MediaType = mediaType
	r.responsesURL(name, &typed)
}

// detailOf is how close the model is to look at an image.
func detailOf(raw []byte) string {
	detail := textOf(raw, "detail")
	if detail == "" {
		detail = textOf(objectOf(memberNamed(raw, "image_url")), "detail") // as in Chat Completions
	}
	if slices.Contains([]string{"low", "high", "original"}, detail) {
		return detail
	}
	return "auto"
}

// fits reports whether an image, a document or a sound has a place where it stands.
func (r *responsesRender) fits(m *history.Message, b *history.Block) bool {
	switch {
	case m.Role == history.Assistant:
		return b.Type == history.ImageBlock && b.Data != nil && r.drawable(m, b)
	case m.Role == history.System:
		return false
	case b.Type == history.AudioBlock:
		return m.Role == history.User && b.Data != nil && soundTypes[soundFormat(b)] != ""
	case b.Data == nil:
		return webURL(b.URL) && (b.Type == history.ImageBlock || b.MediaType == "" || isFileType(bareType(b.MediaType)))
	case b.Type == history.ImageBlock:
		return imageType(b) != ""
	}
	return fileType(b) != ""
}

// imageType is the type of an image that the provider takes; "" for any other.
func imageType(b *history.Block) string {
	kind := mediaType(b)
	if kind == "" {
		for mark, of := range map[string]string{"\x89PNG\r\n": "png", "\xff\xd8\xff": "jpeg", "GIF8": "gif"} {
			if bytes.HasPrefix(b.Data, []byte(mark)) {
				kind = "image/" + of
			}
		}
	}
	if slices.Contains(imageTypes, kind) {
		return kind
	}
	return ""
}
