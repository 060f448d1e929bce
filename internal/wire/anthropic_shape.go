package wire

import (
	"bytes"
	"encoding/json/jsontext"
	"slices"
	"strings"
	"unicode/utf8"

	"historyd/internal/history"
	"historyd/internal/strictjson"
)

// maxTitle is how many code points the title of a document has at the most.
const maxTitle = 500

func writeText(o *object, text string) {
	o.open()
	o.text("type", "text")
	o.text("text", text)
	o.close()
}

// writeOnly writes the content of a result that is one text.
func writeOnly(o *object, text string) {
	o.name("content")
	o.openList()
	o.element()
	writeText(o, text)
	o.closeList()
}

func (r *anthropicRender) writePiece(o *object, m *history.Message, p *piece) {
	b := p.b
	switch p.kind {
	case mediaPiece:
		r.writeMedia(o, b)
		return
	case rawPiece, serverCall, serverResult:
		o.dst = append(o.dst, r.bare(b.Opaque)...)
		if p.result != nil {
			o.element()
			o.dst = append(o.dst, r.bare(p.result.Opaque)...)
		}
		return
	}
	o.open()
	switch p.kind {
	case textPiece:
		o.text("type", "text")
		o.text("text", p.text)
		if m.Role == history.Assistant && m.Provider == r.provider {
			r.writeCitations(o, memberNamed(b.Extra, "citations").Raw)
		}
	case thinkingPiece:
		if b.Encrypted != "" {
			o.text("type", redactedThinking)
			o.text("data", b.Encrypted)
			break
		}
		o.text("type", "thinking")
		o.text("thinking", b.Text)
		o.text("signature", b.Signature)
	case callPiece:
		o.text("type", "tool_use")
		o.text("id", p.text)
		o.text("name", r.names.name(b.Name))
		o.raw("input", argumentsObject(b, r.report))
		if caller := objectOf(memberNamed(b.Extra, "caller")); caller != nil && m.Provider == r.provider && r.calls(caller) {
			o.raw("caller", caller)
		}
	case resultPiece:
		r.writeResult(o, p)
	}
	o.close()
}

// writeCitations writes what an answer cites as a request may say it: the file that an
// answer names is not for requests.
func (r *anthropicRender) writeCitations(o *object, citations jsontext.Value) {
	if citations.Kind() != '[' || len(citations) == len("[]") {
		return
	}
	o.name("citations")
	o.openList()
	for _, c := range (strictjson.Value{Raw: cleanRaw(citations, r.report)}).Elements() {
		o.element()
		if c.Kind() != '{' {
			o.dst = append(o.dst, c.Raw...)
			continue
		}
		o.open()
		o.filtered(c.Raw, func(name string, _ strictjson.Value) bool { return name != "file_id" })
		o.close()
	}
	o.closeList()
}

// calls reports whether what made a call is there: the model itself, or code that the
// provider ran.
func (r *anthropicRender) calls(caller jsontext.Value) bool {
	if textOf(caller, "type") == "direct" {
		return true
	}
	id := textOf(caller, "tool_id")
	return id != "" && r.paired[id]
}

func (r *anthropicRender) writeResult(o *object, p *piece) {
	b := p.b
	o.text("type", "tool_result")
	o.text("tool_use_id", p.text)
	shown, withheld := 0, r.report.WithheldOpaque
	spoken := slices.ContainsFunc(b.Content, func(c history.Block) bool { return c.Type == history.TextBlock && !blank(c.Text) })
	for i := range b.Content {
		switch c := &b.Content[i]; {
		case r.inResult(c, spoken):
			shown++
		case c.Type == history.OpaqueBlock:
			r.report.WithheldOpaque++
		case c.Text != "":
			r.report.DroppedEmpty++
		}
	}
	switch {
	case shown == 0 && r.report.WithheldOpaque > withheld:
		writeOnly(o, notShown)
	case shown == 0 && b.IsError:
		r.report.Inserted++
		writeOnly(o, noOutput)
	case shown > 0:
		// A list always, as for messages: some clients of the provider know nothing else.
		o.name("content")
		o.openList()
		for i := range b.Content {
			if c := &b.Content[i]; r.inResult(c, spoken) {
				o.element()
				r.writeInner(o, c)
			}
		}
		o.closeList()
	}
	if b.IsError {
		o.raw("is_error", jsontext.Value("true"))
	}
}

// inResult reports whether a block of a result is shown. Blank texts are, beside others.
func (r *anthropicRender) inResult(b *history.Block, spoken bool) bool {
	switch b.Type {
	case history.TextBlock:
		return b.Text != "" && (spoken || !blank(b.Text))
	case history.OpaqueBlock:
		return r.resultTakes(b)
	}
	return b.Media()
}

func (r *anthropicRender) writeInner(o *object, b *history.Block) {
	switch {
	case b.Type == history.TextBlock:
		writeText(o, clean(b.Text, r.report))
	case b.Type == history.OpaqueBlock:
		o.dst = append(o.dst, r.bare(b.Opaque)...)
	case r.media[b]:
		r.writeMedia(o, b)
	default:
		r.report.DroppedMedia++
		writeText(o, placeholder(b))
	}
}

// anthropicTakes reports whether an image or a document has a place where it stands.
func anthropicTakes(m *history.Message, b *history.Block) bool {
	if m.Role == history.Assistant || b.Type == history.AudioBlock {
		return false
	}
	typ := mediaType(b)
	if b.URL != "" {
		return webURL(b.URL) && (typ == "" || b.Type == history.ImageBlock || typ == "application/pdf")
	}
	switch typ {
	case "image/jpeg", "image/png", "image/gif", "image/webp":
		return b.Type == history.ImageBlock && len(b.Data) > 0 && side(b) <= maxSide
	case "application/pdf":
		return b.Type == history.DocumentBlock && len(b.Data) > 0
	case "text/plain":
		return b.Type == history.DocumentBlock && utf8.Valid(b.Data) && !blank(string(b.Data))
	}
	return false
}

// mediaType returns the type of an image or a document in the spelling that providers take.
func mediaType(b *history.Block) string {
	typ, _, _ := strings.Cut(strings.ToLower(b.MediaType), ";")
	if typ = strings.TrimSpace(typ); typ == "image/jpg" {
		return "image/jpeg"
	}
	return typ
}

func (r *anthropicRender) writeMedia(o *object, b *history.Block) {
	o.open()
	o.text("type", string(b.Type))
	o.name("source")
	o.open()
	switch typ := mediaType(b); {
	case b.URL != "":
		o.text("type", "url")
		o.text("url", clean(b.URL, r.report))
	case typ == "text/plain":
		o.text("type", "text")
		o.text("media_type", typ)
		o.text("data", clean(string(b.Data), r.report))
	default:
		writeSource(o, "base64", typ, b.Data)
	}
	o.close()
	if b.Type == history.DocumentBlock {
		if b.Filename != "" {
			o.text("title", clipped(clean(b.Filename, r.report), maxTitle))
		}
		if context := textOf(b.Extra, "context"); context != "" {
			o.text("context", clean(context, r.report))
		}
		if r.cites && cite(b.Extra) {
			o.raw("citations", jsontext.Value(`{"enabled":true}`))
		}
	}
	o.close()
}

// cite reports whether the members of a document ask for citations.
func cite(members jsontext.Value) bool {
	return kindOf(memberNamed(members, "citations").Raw, "enabled") == 't'
}

// allCite reports whether all documents and search results ask for citations.
func allCite(msgs []history.Message) bool {
	var all func(blocks []history.Block) bool
	all = func(blocks []history.Block) bool {
		for i := range blocks {
			b := &blocks[i]
			switch {
			case b.Type == history.DocumentBlock && !cite(b.Extra),
				b.Type == history.OpaqueBlock && citable(b.Opaque) && !cite(b.Opaque),
				!all(b.Content):
				return false
			}
		}
		return true
	}
	for i := range msgs {
		if msgs[i].Role != history.Assistant && !all(msgs[i].Content) {
			return false
		}
	}
	return true
}

func citable(block jsontext.Value) bool {
	typ := textOf(block, "type")
	return typ == "document" || typ == "search_result"
}

// opaque decides on a block that only its provider knows.
func (r *anthropicRender) opaque(m *history.Message, b *history.Block) piece {
	typ := textOf(b.Opaque, "type")
	if m.Role == history.Assistant {
		if refusal := memberNamed(b.Opaque, "refusal"); typ == "refusal" && refusal.Kind() == '"' {
			text, _ := refusal.Text()
			return piece{kind: textPiece, b: b, text: clean(text, r.report)}
		}
	}
	p := piece{kind: rawPiece, b: b}
	if m.Role == history.Assistant {
		p = r.answered(m, b, typ)
	} else if b.Provider != r.provider || b.Provider != anthropicProvider || !userTakes(b.Opaque, typ) || (typ == "image" || typ == "document") && !r.media[b] {
		p.kind = gone
	}
	if p.kind == gone {
		r.report.WithheldOpaque++
	}
	return p
}

// answered decides on such a block of an answer. What the provider's own tools did
// holds for all its models.
func (r *anthropicRender) answered(m *history.Message, b *history.Block, typ string) piece {
	p := piece{kind: gone, b: b}
	// A provider that speaks several formats knows a block only in the one it came in.
	if m.Provider != r.provider || b.Provider != anthropicProvider || typ == "" {
		return p // another one may serve the models of Anthropic, in its format
	}
	switch _, modelled := anthropicTypes[typ]; {
	case modelled, userOnly(typ):
	case !whole(b.Opaque, typ):
	case typ == "server_tool_use" || typ == "mcp_tool_use":
		p.kind, p.text = serverCall, textOf(b.Opaque, "id")
	case strings.HasSuffix(typ, "_tool_result"):
		p.kind, p.text = serverResult, textOf(b.Opaque, "tool_use_id")
	case r.made(m):
		p.kind = rawPiece
	}
	return p
}

func userOnly(typ string) bool { return typ == "search_result" || typ == "container_upload" }

// userTakes reports whether a block of the provider's may stand in a user message.
func userTakes(block jsontext.Value, typ string) bool {
	switch typ {
	case "image", "document":
		for _, name := range []string{"title", "context"} {
			v := memberNamed(block, name)
			s, ok := v.Text()
			if v.Raw != nil && !v.IsNull() && (!ok || s == "" || name == "title" && clipped(s, maxTitle) != s) {
				return false
			}
		}
		source := memberNamed(block, "source").Raw
		switch textOf(source, "type") {
		case "file":
			return textOf(source, "file_id") != ""
		case "content":
			return typ == "document" && says(memberNamed(source, "content"), "text", "image")
		}
		return false
	case "", "compaction", "server_tool_use", "mcp_tool_use", "tool_reference":
		return false
	}
	_, modelled := anthropicTypes[typ]
	return !modelled && !strings.HasSuffix(typ, "_tool_result") && whole(block, typ)
}

// takes is anthropicTakes, and of what only the provider knows says so of images and
// documents that are files of its own, or that have content: they count, too.
func (r *anthropicRender) takes(m *history.Message, b *history.Block) bool {
	if b.Type != history.OpaqueBlock {
		return anthropicTakes(m, b)
	}
	typ := textOf(b.Opaque, "type")
	return m.Role != history.Assistant && b.Provider == r.provider && b.Provider == anthropicProvider &&
		(typ == "image" || typ == "document") && userTakes(b.Opaque, typ)
}

// resultTakes reports whether a block of the provider's may stand in a result.
func (r *anthropicRender) resultTakes(b *history.Block) bool {
	if b.Provider != r.provider || b.Provider != anthropicProvider {
		return false
	}
	switch typ := textOf(b.Opaque, "type"); typ {
	case "image", "document":
		return r.media[b]
	case "search_result":
		return userTakes(b.Opaque, typ)
	case "tool_reference":
		return r.declares(textOf(b.Opaque, "tool_name"))
	}
	return false
}

// declares reports whether the request declares a tool: references to others are refused.
func (r *anthropicRender) declares(name string) bool {
	if r.tools == nil {
		r.tools = map[string]bool{}
		if r.Tools.Kind() == '[' {
			for _, e := range (strictjson.Value{Raw: r.Tools}).Elements() {
				r.tools[textOf(e.Raw, "name")] = true
			}
		}
		added, _ := r.declared(&r.names)
		for _, d := range added {
			r.tools[d.Name] = true
		}
	}
	return name != "" && r.tools[name]
}

// bare returns a block of the provider's as it was, but for marks of the cache, and for
// citations that not all ask for.
func (r *anthropicRender) bare(block jsontext.Value) jsontext.Value {
	if bytes.Contains(block, []byte("cache_control")) || bytes.Contains(block, []byte(`\u`)) || !r.cites {
		block = r.without(block)
	}
	return cleanRaw(block, r.report)
}

func (r *anthropicRender) without(v jsontext.Value) jsontext.Value {
	switch v.Kind() {
	case '[':
		o := object{}
		o.openList()
		for _, e := range (strictjson.Value{Raw: v}).Elements() {
			o.element()
			o.dst = append(o.dst, r.without(e.Raw)...)
		}
		o.closeList()
		return o.dst
	case '{':
		quotes := !r.cites && citable(v)
		o := object{}
		o.open()
		for name, m := range (strictjson.Value{Raw: v}).Members() {
			switch {
			case name == "cache_control", name == "citations" && quotes:
				continue
			case name == "content" || name == "source":
				m.Raw = r.without(m.Raw)
			}
			o.member(name, m)
		}
		o.close()
		return o.dst
	}
	return v
}
