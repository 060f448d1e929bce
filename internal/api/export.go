package api

import (
	"archive/tar"
	"bytes"
	"context"
	"encoding/json/jsontext"
	"encoding/json/v2"
	"errors"
	"fmt"
	"io"
	"net/http"

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
	b := append(d.scratch[:0], "{\n  \"version\": 1,\n  \"type\": \"historyd.history\",\n  \"conversation\": "...)
	b = history.AppendString(b, d.name)
	b = append(b, ",\n  \"created_at\": "...)
	b = history.AppendTime(b, d.export.State.CreatedAt)
	b, err := d.appendTools(b)
	if err != nil {
		return err
	}
	b = append(b, ",\n  \"messages\": ["...)
	separator := "\n    "
	for rec, err := range d.export.Records(d.ctx) {
		if err != nil {
			return err
		}
		b = append(b, separator...)
		separator = ",\n    "
		raw, err := d.whole(rec)
		if err != nil {
			return err
		}
		if b, err = appendPretty(b, raw, "    "); err != nil {
			return err
		}
		if err := d.out.write(b); err != nil {
			return err
		}
		b = b[:0]
	}
	d.scratch = b
	return d.endNative(b, separator)
}

func (d *exportWriter) endNative(b []byte, separator string) (err error) {
	if separator[0] == ',' {
		b = append(b, "\n  "...)
	}
	b = append(b, ']')
	if d.export.Summary != nil {
		b = append(b, ",\n  \"summary\": "...)
		if b, err = appendPretty(b, appendSummary(nil, d.export.Summary), "  "); err != nil {
			return err
		}
	}
	if damage := d.export.Damage(); damage != nil {
		b = append(b, ",\n  \"damaged\": "...)
		b = appendDamage(b, damage)
	}
	return d.out.write(append(b, "\n}\n"...))
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

// appendPretty appends the value on lines of its own. Strings and numbers stay as
// they are written.
func appendPretty(dst []byte, v jsontext.Value, prefix string) ([]byte, error) {
	v = v.Clone()
	if err := v.Indent(jsontext.WithIndentPrefix(prefix), jsontext.WithIndent("  ")); err != nil {
		// The error of the formatter may quote what it met.
		return dst, history.ErrDamaged
	}
	return append(dst, v...), nil
}

var attachmentMember = []byte(`"attachment":"sha256:`)

// whole returns a message as it is written: as it is stored, or with the bytes of its
// attachments in it.
func (d *exportWriter) whole(rec history.Record) (jsontext.Value, error) {
	if !d.inline || !bytes.Contains(rec.JSON, attachmentMember) {
		return rec.JSON, nil
	}
	m, err := d.decode(rec)
	if err != nil {
		return nil, err
	}
	return history.AppendInline(nil, &m), nil
}

// decode reads a message with the bytes of its attachments. What cannot be read keeps
// its name only.
func (d *exportWriter) decode(rec history.Record) (history.Message, error) {
	m, err := d.export.Decode(rec)
	if err != nil || !bytes.Contains(rec.JSON, attachmentMember) {
		return m, err
	}
	m.MediaBlocks(func(b *history.Block) {
		if b.Attachment == "" || err != nil {
			return
		}
		var a history.Attachment
		a, err = d.export.Attachment(d.ctx, b.Attachment)
		if errors.Is(err, history.ErrNotFound) || errors.Is(err, history.ErrDamaged) {
			err = nil
			return
		}
		b.Data = a.Data
	})
	return m, err
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
		if err := d.out.write(d.scratch); err != nil {
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
		if err := d.out.write(b); err != nil {
			return err
		}
		b = b[:0]
	}
	return d.out.write(append(e.End(b), ']'))
}

// counter is a sink that only measures.
type counter int64

func (c *counter) write(p []byte) error {
	*c += counter(len(p))
	return nil
}

// writeTar writes an archive: the document first, then the attachments that it names,
// each of them once. The export has been scanned.
func (d *exportWriter) writeTar() error {
	d.inline = false
	out := d.out
	size := new(counter)
	d.out = size
	if err := d.writeNative(); err != nil {
		return err
	}
	w := tar.NewWriter(sinkWriter{out})
	h := tar.Header{
		Typeflag: tar.TypeReg, Name: "history.json", Size: int64(*size), Mode: 0o600,
		ModTime: d.export.State.UpdatedAt, Format: tar.FormatPAX,
	}
	if err := w.WriteHeader(&h); err != nil {
		return err
	}
	d.out = writerSink{w}
	if err := d.writeNative(); err != nil {
		return err
	}
	for _, named := range d.export.Attachments() {
		a, err := d.export.Attachment(d.ctx, named.Name)
		if errors.Is(err, history.ErrNotFound) || errors.Is(err, history.ErrDamaged) {
			continue // the message that names it says so by not finding it
		}
		if err != nil {
			return err
		}
		hash, _ := history.AttachmentHash(a.Name)
		h.Name, h.Size = "attachments/"+hash+extension(named.MediaType), int64(len(a.Data))
		if err := w.WriteHeader(&h); err != nil {
			return err
		}
		if _, err := w.Write(a.Data); err != nil {
			return err
		}
	}
	return w.Close()
}

// sinkWriter and writerSink put an archive's writer between a document and its sink.
type sinkWriter struct{ sink }

func (s sinkWriter) Write(p []byte) (int, error) { return len(p), s.write(p) }

type writerSink struct{ io.Writer }

func (w writerSink) write(p []byte) error {
	_, err := w.Write(p)
	return err
}

// extensions are the endings of files in an archive, for people: an import goes by the
// hash alone.
var extensions = map[string]string{
	"image/png": ".png", "image/jpeg": ".jpg", "image/gif": ".gif", "image/webp": ".webp",
	"application/pdf": ".pdf", "application/json": ".json", "text/plain": ".txt", "text/csv": ".csv",
	"text/html": ".html", "text/markdown": ".md", "audio/wav": ".wav", "audio/mpeg": ".mp3", "audio/mp3": ".mp3",
	"audio/ogg": ".ogg", "audio/flac": ".flac", "video/mp4": ".mp4",
}

func extension(mediaType string) string {
	if e, ok := extensions[mediaType]; ok {
		return e
	}
	return ".bin"
}
