package wire

import (
	"slices"
	"strings"
	"unicode"

	"historyd/internal/history"
)

// anthropicIDs are those that pair calls with results.
var anthropicIDs = idRule{max: maxID, signs: nameSigns, unique: true}

var anthropicNames = nameRule{max: 128}

// What stands first when the history begins with an answer, and what an error without
// a word says: the provider refuses both.
const (
	noBeginning = "[the beginning of this conversation is not shown]"
	noOutput    = "[no output]"
)

// anthropicRender is one render: it plans what of each message is written, settles
// what depends on the messages beside it, and writes.
type anthropicRender struct {
	*Show
	target
	report  *Report
	ids     numbering
	names   naming
	media   media
	cites   bool            // documents and search results all ask for citations; some alone are refused
	tools   map[string]bool // declared, by their names as declared; made when first asked for
	paired  map[string]bool // ids of calls that the provider ran and answered at once
	pieces  []piece
	entries []entry
}

// A piece is what a block becomes.
type piece struct {
	kind   pieceKind
	b      *history.Block
	text   string         // of a text; the id as written, of calls and results, those of the provider's own tools included
	result *history.Block // of a serverCall: its result, which came after somebody else spoke
}

type pieceKind int

const (
	gone pieceKind = iota
	textPiece
	thinkingPiece
	callPiece
	resultPiece
	mediaPiece
	rawPiece
	serverCall   // of a tool that the provider runs
	serverResult // in the same message as its call
)

// An entry is what a message becomes.
type entry struct {
	m      *history.Message
	pieces []piece
	empty  bool
}

func (e *entry) user() bool { return e.m.Role != history.Assistant }

func renderAnthropic(s *Show) Shown {
	var out Shown
	r := &anthropicRender{Show: s, target: s.target(anthropicProvider), report: &out.Report}
	r.ids = numbering{rule: anthropicIDs, counts: r.report}
	r.names = naming{rule: anthropicNames}
	r.media = chooseMedia(s.Messages, r.takes)
	r.media.withoutWide()
	r.cites = allCite(s.Messages)
	r.plan()
	r.pair()
	r.settle()
	o := object{dst: make([]byte, 0, s.room())}
	summary := clean(s.Summary, r.report)
	if s.Authority && summary != "" {
		out.System = history.AppendString(nil, summary)
		summary = ""
	}
	r.write(&o, summary)
	out.Messages = o.dst
	out.Tools, out.Refusals = s.declare(&r.names, writeAnthropicTool)
	out.Names = r.names.mapped
	return out
}

func writeAnthropicTool(o *object, d Declaration) {
	o.open()
	o.text("name", d.Name)
	if d.Refusal != "" {
		o.text("description", d.Refusal)
	}
	o.schema("input_schema")
	o.close()
}

// plan decides on every block alone.
func (r *anthropicRender) plan() {
	blocks := 0
	for i := range r.Messages {
		blocks += len(r.Messages[i].Content)
	}
	r.pieces = make([]piece, 0, blocks)
	r.entries = make([]entry, 0, len(r.Messages))
	for i := range r.Messages {
		m := &r.Messages[i]
		if m.Role == history.System {
			continue
		}
		thinks := m.Role == history.Assistant && r.keepsThinking(m)
		r.report.WithheldSignatures += signaturesBeside(m)
		from, withheld := len(r.pieces), r.report.WithheldOpaque
		for j := range m.Content {
			if p := r.piece(m, &m.Content[j], thinks); p.kind != gone {
				r.pieces = append(r.pieces, p)
			}
		}
		e := entry{m: m, pieces: r.pieces[from:len(r.pieces):len(r.pieces)]}
		if e.user() {
			r.settleTexts(&e)
		}
		if e.empty && m.Role == history.User && r.report.WithheldOpaque > withheld {
			r.pieces = append(r.pieces, piece{kind: textPiece, text: notShown})
			e.pieces, e.empty = r.pieces[len(r.pieces)-1:len(r.pieces):len(r.pieces)], false
		}
		r.entries = append(r.entries, e)
	}
}

// keepsThinking reports whether the thinking of an answer goes back: all of it to
// whom it came from, each block as it was, or none. Where a block was made for another
// format, or has lost its signature, the others are no use.
func (r *anthropicRender) keepsThinking(m *history.Message) bool {
	keep, n := r.made(m), int64(0)
	for i := range m.Content {
		b := &m.Content[i]
		if b.Type != history.ThinkingBlock {
			continue
		}
		n++
		signed := b.Signature != "" && b.Encrypted == ""
		redacted := b.Encrypted != "" && b.Signature == "" && b.Text == ""
		if !signed && !redacted || strings.ContainsRune(b.Text+b.Signature+b.Encrypted, 0) {
			keep = false
		}
	}
	if !keep {
		r.report.WithheldThinking += n
	}
	return keep
}

// piece decides what a block becomes.
func (r *anthropicRender) piece(m *history.Message, b *history.Block, thinks bool) piece {
	r.report.WithheldSignatures += signatures(b)
	switch b.Type {
	case history.TextBlock:
		return piece{kind: textPiece, b: b, text: clean(b.Text, r.report)}
	case history.ThinkingBlock:
		if thinks {
			return piece{kind: thinkingPiece, b: b}
		}
		return piece{}
	case history.ToolCall:
		return piece{kind: callPiece, b: b}
	case history.ToolResult:
		return piece{kind: resultPiece, b: b}
	case history.OpaqueBlock:
		return r.opaque(m, b)
	}
	if !r.media[b] {
		r.report.DroppedMedia++
		return piece{kind: textPiece, b: b, text: placeholder(b)}
	}
	return piece{kind: mediaPiece, b: b}
}

// pair gives ids, brings results of the provider's own tools to their calls, and drops
// what those left without its counterpart. A call and its result stand in one message,
// but when the client had to answer another call first, the result comes with the answer
// after that.
func (r *anthropicRender) pair() {
	var open map[string]*servedCall
	user, turn := true, 0
	for i := range r.entries {
		e := &r.entries[i]
		if e.user() {
			user = user || !e.empty
		} else if user {
			user = false
			turn++
			r.ids.begin()
		}
		for j := range e.pieces {
			switch p := &e.pieces[j]; p.kind {
			case callPiece:
				p.text = r.ids.call(p.b.ID, e.m, j)
			case resultPiece:
				p.text = r.ids.result(p.b.CallID)
			case serverCall:
				if r.ids.used[p.text] {
					r.withhold(p)
					continue
				}
				r.ids.use(p.text)
				if open == nil {
					open = map[string]*servedCall{}
				}
				open[p.text] = &servedCall{p, turn}
			case serverResult:
				c := open[p.text]
				if c == nil || !answersServed(c.b, p.b) {
					r.withhold(p)
					continue
				}
				delete(open, p.text)
				if c.turn < turn {
					c.result, p.kind = p.b, gone
					r.report.MovedHosted++
					continue
				}
				if r.paired == nil {
					r.paired = map[string]bool{}
				}
				r.paired[p.text] = true
			}
		}
	}
	for _, c := range open {
		r.withhold(c.piece)
	}
}

// A servedCall waits for its result.
type servedCall struct {
	*piece
	turn int // of the assistant
}

// answersServed reports whether a result is of the tool that a call is of: its type names it.
func answersServed(call, result *history.Block) bool {
	tool, name := strings.TrimSuffix(textOf(result.Opaque, "type"), "_tool_result"), textOf(call.Opaque, "name")
	if textOf(call.Opaque, "type") == "mcp_tool_use" {
		return tool == "mcp"
	}
	return tool == name || tool == "tool_search" && strings.HasPrefix(name, "tool_search_")
}

func (r *anthropicRender) withhold(p *piece) {
	p.kind = gone
	r.report.WithheldOpaque++
}

// settle decides on the texts of answers, and takes thinking away that would end a
// message: the provider wants something after it.
func (r *anthropicRender) settle() {
	nextUser := true
	for i := len(r.entries) - 1; i >= 0; i-- {
		e := &r.entries[i]
		if e.user() {
			nextUser = nextUser || !e.empty
			continue
		}
		r.settleTexts(e)
		if last := e.last(); nextUser && last != nil && last.kind == thinkingPiece {
			for j := range e.pieces {
				if p := &e.pieces[j]; p.kind == thinkingPiece {
					p.kind = gone
					r.report.WithheldThinking++
				}
			}
			r.settleTexts(e)
		}
		if !e.empty {
			nextUser = false
		}
	}
}

// last returns the last piece that stays; nil when there is none.
func (e *entry) last() *piece {
	for j := len(e.pieces) - 1; j >= 0; j-- {
		if e.pieces[j].kind != gone {
			return &e.pieces[j]
		}
	}
	return nil
}

// settleTexts drops empty texts, and blank ones that stand beside no other text: but
// between two blocks of thinking everything stays as it was. The last text of an
// answer ends without white space.
func (r *anthropicRender) settleTexts(e *entry) {
	spoken := false
	for j := range e.pieces {
		spoken = spoken || e.pieces[j].kind == textPiece && !blank(e.pieces[j].text)
	}
	before := pieceKind(gone)
	for j := range e.pieces {
		p := &e.pieces[j]
		if p.kind == textPiece && blank(p.text) && (p.text == "" || !spoken && !(before == thinkingPiece && e.follows(j) == thinkingPiece)) {
			p.kind = gone
			r.report.DroppedEmpty++
		}
		if p.kind != gone {
			before = p.kind
		}
	}
	for p := e.last(); p != nil && !e.user() && p.kind == textPiece; p = e.last() {
		trimmed := strings.TrimRightFunc(p.text, isBlank)
		if trimmed == p.text {
			break
		}
		if p.text = trimmed; trimmed != "" {
			r.report.TrimmedText++
			break
		}
		p.kind = gone
		r.report.DroppedEmpty++
	}
	e.empty = e.last() == nil
}

// follows returns the kind of the piece after one, texts that are dropped aside.
func (e *entry) follows(j int) pieceKind {
	for _, p := range e.pieces[j+1:] {
		if p.kind != gone && !(p.kind == textPiece && p.text == "") {
			return p.kind
		}
	}
	return gone
}

func blank(s string) bool { return strings.TrimLeftFunc(s, isBlank) == "" }

// isBlank includes the separators that some languages count as white space.
func isBlank(c rune) bool { return unicode.IsSpace(c) || 0x1c <= c && c <= 0x1f }

// write writes the messages: what stands together of one side is one. The head, if
// any, is the first that the user says.
func (r *anthropicRender) write(o *object, head string) {
	entries := slices.DeleteFunc(r.entries, func(e entry) bool { return e.empty })
	if len(entries) > 0 && !entries[0].user() && head == "" {
		r.report.Inserted++
		head = noBeginning
	}
	if head != "" && (len(entries) == 0 || !entries[0].user()) {
		r.begin(o, "user")
		writeText(o, head)
		r.end(o)
		head = ""
	}
	for len(entries) > 0 {
		n := 1
		for n < len(entries) && entries[n].user() == entries[0].user() {
			if entries[n].m.Role == entries[n-1].m.Role && entries[n].m.Role != history.Tool && !marked(entries[n].m, joinedMark) {
				r.report.Merged++
			}
			n++
		}
		if entries[0].user() {
			r.begin(o, "user")
			if head != "" {
				writeText(o, head)
				head = ""
			}
			r.writePieces(o, entries[:n], true)
			r.writePieces(o, entries[:n], false)
		} else {
			r.begin(o, "assistant")
			r.writePieces(o, entries[:n], false)
		}
		r.end(o)
		entries = entries[n:]
	}
}

func (r *anthropicRender) begin(o *object, role string) {
	o.element()
	o.open()
	o.text("role", role)
	o.name("content")
	o.openList()
}

func (r *anthropicRender) end(o *object) {
	o.closeList()
	o.close()
}

// writePieces writes the results, which come first, or everything else.
func (r *anthropicRender) writePieces(o *object, entries []entry, results bool) {
	for i := range entries {
		e := &entries[i]
		for j := range e.pieces {
			if p := &e.pieces[j]; p.kind != gone && (p.kind == resultPiece) == results {
				o.element()
				r.writePiece(o, e.m, p)
			}
		}
	}
}

// use takes an id that stands in the request beside those of calls.
func (n *numbering) use(id string) {
	if n.used == nil {
		n.used = map[string]bool{}
	}
	n.used[id] = true
}
