package api

import (
	"bytes"
	"context"
	"encoding/json/jsontext"
	"encoding/json/v2"
	"errors"
	"fmt"
	"net/http"
	"time"

	"historyd/internal/history"
	"historyd/internal/pipeline"
	"historyd/internal/wire"
)

// export serves GET /v1/conversations/{c}/export.
func (s *server) export(x *exchange, r *http.Request) error {
	c, err := x.conversation(r)
	if err != nil {
		return err
	}
	p, err := query(r, "format")
	if err != nil {
		return err
	}
	format, err := p.format(wire.JSONL, wire.Tar)
	if err != nil {
		return err
	}
	if err := take(r, x.visitor.exports, patience-time.Since(x.start)); err != nil {
		return err
	}
	defer func() { <-x.visitor.exports }()
	err = s.writeExport(x, r, c, format)
	if errors.Is(err, history.ErrGone) && x.status == 0 {
		err = s.writeExport(x, r, c, format)
	}
	return err
}

func (s *server) writeExport(x *exchange, r *http.Request, c pipeline.Conversation, format wire.Format) error {
	ctx, cancel := opening(r)
	e, err := s.pipeline.Export(ctx, c)
	cancel()
	if err != nil {
		return err
	}
	defer e.Close()
	media, ending := "application/json", ".json"
	switch format {
	case wire.JSONL:
		media, ending = ndjsonType, ".jsonl"
	case wire.Tar:
		media, ending = tarType, ".tar"
	}
	st := &stream{x: x, header: map[string]string{
		"Content-Type":        media,
		"Content-Disposition": `attachment; filename="` + c.Name + ending + `"`,
		"Etag":                e.State.ETag(),
	}}
	if r.Method == http.MethodHead {
		st.begin()
		return nil
	}
	if format == wire.Native || format == wire.Tar {
		if err := e.Scan(r.Context()); err != nil {
			return err
		}
	}
	d := &exportWriter{ctx: r.Context(), name: c.Name, export: e, out: st, inline: true}
	switch format {
	case wire.Native:
		err = d.writeNative()
	case wire.Tar:
		err = d.writeTar()
	case wire.JSONL:
		err = d.writeLines()
	default:
		err = d.writeProvider(format)
	}
	if err != nil {
		return err
	}
	return st.end()
}

// An exportWriter writes a conversation as one value.
type exportWriter struct {
	ctx    context.Context
	name   string
	export *pipeline.Export
	out    sink
	inline bool // attachments stand in the messages that name them

	inliner inliner
	scratch []byte
}

// A sink is what a document is written to: a response, or a count of its bytes.
type sink interface {
	// write is asked for each part; an error means that nobody reads it any more.
	write(p []byte) error
}

// writeNative writes the conversation as one object, for people to read, too. The
// export has been scanned.
func (d *exportWriter) writeNative() error {
	head, err := d.head()
	if err != nil {
		return err
	}
	some, err := d.writeMessages(head, func(int64) bool { return true })
	if err != nil {
		return err
	}
	tail, err := d.tail(some, d.export.Damage())
	if err != nil {
		return err
	}
	return d.out.write(append(tail, ending...))
}

// head is the object up to its messages.
func (d *exportWriter) head() ([]byte, error) {
	b := append([]byte(nil), "{\n  \"version\": 1,\n  \"type\": \"historyd.history\",\n  \"conversation\": "...)
	b = history.AppendString(b, d.name)
	b = append(b, ",\n  \"created_at\": "...)
	b = history.AppendTime(b, d.export.State.CreatedAt)
	b, err := d.appendTools(b)
	return append(b, ",\n  \"messages\": ["...), err
}

// writeMessages writes the head and those messages that are wanted, and reports whether
// there were some.
func (d *exportWriter) writeMessages(head []byte, wanted func(seq int64) bool) (some bool, err error) {
	b := append(d.scratch[:0], head...)
	separator := "\n    "
	for rec, err := range d.export.Records(d.ctx) {
		if err != nil {
			return some, err
		}
		if !wanted(rec.Seq) {
			continue
		}
		b = append(b, separator...)
		some, separator = true, ",\n    "
		raw, err := d.whole(rec)
		if err != nil {
			return some, err
		}
		if b, err = appendPretty(b, raw, "    "); err != nil {
			return some, err
		}
		if err := d.writeWhole(b); err != nil {
			return some, err
		}
		b = b[:0]
	}
	d.scratch = b
	if len(b) == 0 {
		return some, nil
	}
	return some, d.out.write(b)
}

// ending is the end of the object, behind its tail.
const ending = "\n}\n"

// tail is what stands between the messages and the ending.
func (d *exportWriter) tail(some bool, damage *history.Damage) (b []byte, err error) {
	if some {
		b = append(b, "\n  "...)
	}
	b = append(b, ']')
	if d.export.Summary != nil {
		b = append(b, ",\n  \"summary\": "...)
		if b, err = appendPretty(b, appendSummary(nil, d.export.Summary), "  "); err != nil {
			return nil, err
		}
	}
	if damage != nil {
		b = append(b, ",\n  \"damaged\": "...)
		b = appendDamage(b, damage)
	}
	return b, nil
}

// appendTools appends the categories of tools that agents gave, if they gave any. They
// stand before the messages, so that an import knows them in time.
func (d *exportWriter) appendTools(dst []byte) ([]byte, error) {
	if len(d.export.Categories()) == 0 {
		return dst, nil
	}
	v, err := json.Marshal(d.export.Categories(), json.Deterministic(true))
	if err != nil {
		return dst, fmt.Errorf("encode categories: %T", err)
	}
	return appendPretty(append(dst, ",\n  \"tool_categories\": "...), v, "  ")
}

// appendPretty appends the value on lines of its own, or on one where they would make it
// more than twice as long: what is nested deep would take many times the memory, and no
// import would read it. Strings and numbers stay as they are written.
func appendPretty(dst []byte, v jsontext.Value, prefix string) ([]byte, error) {
	if white(v, len(prefix), len(v)+maxWhite) > len(v)+maxWhite {
		return append(dst, v...), nil
	}
	v = v.Clone()
	if err := v.Indent(jsontext.WithIndentPrefix(prefix), jsontext.WithIndent("  ")); err != nil {
		// The error of the formatter may quote what it met.
		return dst, history.ErrDamaged
	}
	return append(dst, v...), nil
}

// maxWhite is the white space that any value may have, however short it is.
const maxWhite = 4 << 10

// white is about how much white space puts a compact value on lines of its own. It stops
// at enough.
func white(v jsontext.Value, depth, enough int) (n int) {
	text := false
	for i := 0; i < len(v) && n <= enough; i++ {
		switch c := v[i]; {
		case text && c == '\\':
			i++
		case c == '"':
			text = !text
		case text:
		case c == '{' || c == '[':
			depth += 2
			n += 1 + depth
		case c == '}' || c == ']':
			depth -= 2
			n += 1 + depth
		case c == ',':
			n += 1 + depth
		case c == ':':
			n++
		}
	}
	return n
}

var attachmentMember = []byte(`"attachment":"sha256:`)

// whole returns a message as it is written: as it is stored, or marked for the bytes of
// its attachments, which writeWhole puts there.
func (d *exportWriter) whole(rec history.Record) (jsontext.Value, error) {
	if !d.inline || !bytes.Contains(rec.JSON, attachmentMember) {
		d.inliner.begin()
		return rec.JSON, nil
	}
	m, err := d.decode(rec)
	if err != nil {
		return nil, err
	}
	return history.AppendInline(nil, &m), nil
}

// writeWhole writes what was made of the message last read.
func (d *exportWriter) writeWhole(b []byte) error { return d.inliner.write(b, d.out, d.read) }

// decode reads a message and marks it for the bytes of its attachments. What cannot be
// read keeps its name only.
func (d *exportWriter) decode(rec history.Record) (history.Message, error) {
	d.inliner.begin()
	m, err := d.export.Decode(rec)
	if err != nil || !bytes.Contains(rec.JSON, attachmentMember) {
		return m, err
	}
	return m, d.inliner.mark(&m, d.read)
}

// read reads an attachment; nil when it cannot be had.
func (d *exportWriter) read(name string) ([]byte, error) {
	a, err := d.export.Attachment(d.ctx, name)
	if errors.Is(err, history.ErrNotFound) || errors.Is(err, history.ErrDamaged) {
		return nil, nil
	}
	return a.Data, err
}

// writeLines writes one message a line.
func (d *exportWriter) writeLines() error {
	for rec, err := range d.export.Records(d.ctx) {
		if err != nil {
			return err
		}
		raw, err := d.whole(rec)
		if err != nil {
			return err
		}
		d.scratch = append(append(d.scratch[:0], raw...), '\n')
		if err := d.writeWhole(d.scratch); err != nil {
			return err
		}
	}
	return nil
}

// writeProvider writes the array that the provider of the format has for a history:
// what was rewound is no part of it, and an array has no way to say so.
func (d *exportWriter) writeProvider(format wire.Format) error {
	e := wire.NewExporter(format)
	b := append(d.scratch[:0], '[')
	for rec, err := range d.export.Records(d.ctx) {
		if err != nil {
			return err
		}
		m, err := d.decode(rec)
		if err != nil {
			return err
		}
		if m.Rewound {
			continue
		}
		b = e.Append(b, &m)
		if err := d.writeWhole(b); err != nil {
			return err
		}
		b = b[:0]
	}
	return d.out.write(append(e.End(b), ']'))
}
