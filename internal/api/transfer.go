package api

import (
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

type importReply struct {
	Imported int64               `json:"imported"`
	Skipped  []pipeline.Skipped  `json:"skipped"`
	Repaired []pipeline.Repaired `json:"repaired"`
	LastSeq  int64               `json:"last_seq"`
	// Changed counts what projection altered, and is there only when it did.
	Changed map[string]int64 `json:"changed,omitempty"`
}

// importDocument serves POST /v1/conversations/{c}/import.
func (s *server) importDocument(x *exchange, r *http.Request) error {
	c, err := x.conversation(r)
	if err != nil {
		return err
	}
	doc, format, err := importOf(r)
	if err != nil {
		return err
	}
	media, err := checkType(r, "application/json", "application/x-ndjson", "application/x-tar")
	if err != nil {
		return err
	}
	switch {
	case media == "application/x-tar":
		return wire.ErrUnsupported
	case format == wire.JSONL && media != "application/x-ndjson":
		return &problem{code: "unsupported_media_type", detail: "send application/x-ndjson with format=jsonl"}
	}
	if err := take(r, x.visitor.imports, patience-time.Since(x.start)); err != nil {
		return err
	}
	defer func() { <-x.visitor.imports }()
	body, err := x.readBody(r, s.limits.Import)
	if err != nil {
		return err
	}
	d, err := wire.DecodeDocument(format, media == "application/x-ndjson", body, s.limits.Message)
	read := &decoded{doc: d}
	if err != nil && !errors.As(err, &read.faults) {
		return err
	}
	doc.Source = read
	done, err := s.pipeline.Import(r.Context(), c, doc)
	if doc.Mode == history.Replace {
		s.replays.forget(c)
	}
	if err != nil {
		return invalidHistory(err)
	}
	h := x.Header()
	h["Etag"] = []string{history.ETag(done.Epoch, done.LastSeq)}
	if done.Replayed {
		h["Idempotent-Replayed"] = []string{"true"}
	}
	return x.reply(http.StatusCreated, importReply{done.Added, done.Skipped, done.Repaired, done.LastSeq, done.Changed})
}

// importOf reads everything of the request but its body.
func importOf(r *http.Request) (doc pipeline.Document, format wire.Format, err error) {
	p, err := query(r, "format", "mode", "repair")
	if err != nil {
		return doc, "", err
	}
	if format, err = p.format(wire.JSONL, wire.Tar); err != nil {
		return doc, "", err
	}
	mode, err := p.oneOf("mode", string(history.Create), string(history.Extend), string(history.Replace))
	if err != nil {
		return doc, "", err
	}
	doc.Mode = history.ImportMode(mode)
	if doc.Repair, err = p.bool("repair"); err != nil {
		return doc, "", err
	}
	if err = unconditional(r); err != nil {
		return doc, "", err
	}
	doc.Key, err = idempotencyKey(r)
	return doc, format, err
}

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
	st, ctx, done := newStream(x, r)
	defer done()
	e, err := s.pipeline.Export(ctx, c)
	if err != nil {
		return err
	}
	defer e.Close()
	st.header = map[string]string{
		"Content-Type":        "application/json",
		"Content-Disposition": `attachment; filename="` + c.Name + `.json"`,
		"Etag":                e.State.ETag(),
	}
	if format == wire.JSONL {
		st.header["Content-Type"] = "application/x-ndjson"
		st.header["Content-Disposition"] = `attachment; filename="` + c.Name + `.jsonl"`
	}
	if r.Method == http.MethodHead {
		st.begin()
		return nil
	}
	switch format {
	case wire.Native:
		err = writeNative(ctx, st, c, e)
	case wire.JSONL:
		for rec, failure := range e.Records(ctx) {
			if err = failure; err != nil {
				break
			}
			st.buf = append(st.buf, rec.JSON...)
			if err = st.write([]byte{'\n'}); err != nil {
				break
			}
		}
	default:
		err = writeProvider(ctx, st, format, e)
	}
	if err != nil {
		return err
	}
	return st.end()
}

// writeNative writes the conversation as one object, for people to read, too.
func writeNative(ctx context.Context, st *stream, c pipeline.Conversation, e *pipeline.Export) error {
	st.buf = append(st.buf, "{\n  \"version\": 1,\n  \"type\": \"historyd.history\",\n  \"conversation\": "...)
	st.buf = history.AppendString(st.buf, c.Name)
	st.buf = append(st.buf, ",\n  \"created_at\": "...)
	st.buf = history.AppendTime(st.buf, e.State.CreatedAt)
	st.buf = append(st.buf, ",\n  \"messages\": ["...)
	separator := "\n    "
	for rec, err := range e.Records(ctx) {
		if err != nil {
			return err
		}
		st.buf = append(st.buf, separator...)
		separator = ",\n    "
		if st.buf, err = appendPretty(st.buf, rec.JSON, "    "); err != nil {
			return err
		}
		if err := st.spill(); err != nil {
			return err
		}
	}
	if separator[0] == ',' {
		st.buf = append(st.buf, "\n  "...)
	}
	st.buf = append(st.buf, ']')
	if e.Summary != nil {
		st.buf = append(st.buf, ",\n  \"summary\": "...)
		var err error
		if st.buf, err = appendPretty(st.buf, appendSummary(nil, e.Summary), "  "); err != nil {
			return err
		}
	}
	if err := writeTools(st, e); err != nil {
		return err
	}
	if damage := e.Damage(); damage != nil {
		st.buf = append(st.buf, ",\n  \"damaged\": "...)
		st.buf = appendDamage(st.buf, damage)
	}
	st.buf = append(st.buf, "\n}\n"...)
	return nil
}

// writeTools writes the categories of tools that agents gave, if they gave any.
func writeTools(st *stream, e *pipeline.Export) error {
	if len(e.Categories()) == 0 {
		return nil
	}
	v, err := json.Marshal(e.Categories(), json.Deterministic(true))
	if err != nil {
		return fmt.Errorf("encode categories: %T", err)
	}
	st.buf = append(st.buf, ",\n  \"tool_categories\": "...)
	st.buf, err = appendPretty(st.buf, v, "  ")
	return err
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

// writeProvider writes the array that the provider of the format has for a history.
func writeProvider(ctx context.Context, st *stream, format wire.Format, e *pipeline.Export) error {
	st.buf = append(st.buf, '[')
	comma := false
	for rec, err := range e.Records(ctx) {
		if err != nil {
			return err
		}
		m, err := e.Decode(rec)
		if err != nil {
			return err
		}
		before := len(st.buf)
		if comma {
			st.buf = append(st.buf, ',')
		}
		start := len(st.buf)
		st.buf = wire.AppendMessages(st.buf, format, []history.Message{m}, wire.ForExport)
		if len(st.buf) == start {
			st.buf = st.buf[:before] // the format has nothing for it
		} else {
			comma = true
		}
		if err := st.spill(); err != nil {
			return err
		}
	}
	st.buf = append(st.buf, ']')
	return nil
}
