package api

import (
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
	// The totals are there only when the lists do not hold all.
	SkippedTotal  int64 `json:"skipped_total,omitzero"`
	RepairedTotal int64 `json:"repaired_total,omitzero"`
}

// importDocument serves POST /v1/conversations/{c}/import. The body is taken while it
// arrives.
func (s *server) importDocument(x *exchange, r *http.Request) error {
	c, err := x.conversation(r)
	if err != nil {
		return err
	}
	doc, format, err := importOf(r)
	if err != nil {
		return err
	}
	format, ndjson, err := importType(r, format)
	if err != nil {
		return err
	}
	if err := take(r, x.visitor.imports, patience-time.Since(x.start)); err != nil {
		return err
	}
	defer func() { <-x.visitor.imports }()
	body, err := x.openBody(r, s.limits.Import)
	if err != nil {
		return err
	}
	if doc.Source, err = wire.NewReader(format, ndjson, body, s.limits.Message); err != nil {
		return err
	}
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
	out := importReply{Imported: done.Added, Skipped: done.Skipped, Repaired: done.Repaired, LastSeq: done.LastSeq, Changed: done.Changed}
	if n := done.SkippedTotal; n > int64(len(done.Skipped)) {
		out.SkippedTotal = n
	}
	if n := done.RepairedTotal; n > int64(len(done.Repaired)) {
		out.RepairedTotal = n
	}
	return x.reply(http.StatusCreated, out)
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

const (
	ndjsonType = "application/x-ndjson"
	tarType    = "application/x-tar"
)

// importType brings the format and the content type together. An archive is in native
// form, and needs no format to say so.
func importType(r *http.Request, format wire.Format) (f wire.Format, ndjson bool, err error) {
	media, err := checkType(r, "application/json", ndjsonType, tarType)
	if err != nil {
		return "", false, err
	}
	refuse := func(detail string) (wire.Format, bool, error) {
		return "", false, &problem{code: "unsupported_media_type", detail: detail}
	}
	switch {
	case media == tarType && (format == wire.Native || format == wire.Tar):
		return wire.Tar, false, nil
	case media == tarType:
		return refuse("an archive is in native form: send it with format=tar")
	case format == wire.Tar:
		return refuse("send application/x-tar with format=tar, not compressed")
	case format == wire.JSONL && media != ndjsonType:
		return refuse("send application/x-ndjson with format=jsonl")
	}
	return format, media == ndjsonType, nil
}
