package api

import (
	"errors"
	"net/http"
	"strconv"

	"historyd/internal/history"
	"historyd/internal/pipeline"
)

// listMessages serves GET /v1/conversations/{c}/messages. Records are passed on as
// they are stored.
func (s *server) listMessages(x *exchange, r *http.Request) error {
	c, err := x.conversation(r)
	if err != nil {
		return err
	}
	page, err := pageOf(r)
	if err != nil {
		return err
	}
	st := &stream{x: x, header: map[string]string{"Content-Type": "application/json"}}
	err = s.writePage(r, st, c, page)
	if errors.Is(err, history.ErrGone) && !st.begun {
		st.buf = st.buf[:0]
		err = s.writePage(r, st, c, page)
	}
	if err != nil {
		return err
	}
	return st.end()
}

func pageOf(r *http.Request) (pipeline.Page, error) {
	var page pipeline.Page
	p, err := query(r, "after", "before", "limit", "order")
	if err != nil {
		return page, err
	}
	if page.After, err = p.int("after", 0, pipeline.Unbounded, 0); err != nil {
		return page, err
	}
	if page.Before, err = p.int("before", 0, pipeline.Unbounded, pipeline.Unbounded); err != nil {
		return page, err
	}
	limit, err := p.int("limit", 1, 1000, 100)
	if err != nil {
		return page, err
	}
	page.Limit = int(limit)
	order, err := p.oneOf("order", "asc", "desc")
	page.Descending = order == "desc"
	return page, err
}

func (s *server) writePage(r *http.Request, st *stream, c pipeline.Conversation, page pipeline.Page) error {
	ctx, cancel := opening(r)
	p, err := s.pipeline.Messages(ctx, c, page)
	cancel()
	if err != nil {
		return err
	}
	defer p.Close()
	st.buf = append(st.buf, `{"object":"list","data":[`...)
	comma := false
	for rec, err := range p.Records(r.Context()) {
		if err != nil {
			return err
		}
		if comma {
			st.buf = append(st.buf, ',')
		}
		comma = true
		if err := st.write(rec.JSON); err != nil {
			return err
		}
	}
	st.buf = append(st.buf, `],"first_seq":`...)
	st.buf = strconv.AppendInt(st.buf, p.First, 10)
	st.buf = append(st.buf, `,"last_seq":`...)
	st.buf = strconv.AppendInt(st.buf, p.Last, 10)
	st.buf = append(st.buf, `,"has_more":`...)
	st.buf = strconv.AppendBool(st.buf, p.More)
	if p.Damage != nil {
		st.buf = append(st.buf, `,"report":{"damaged":`...)
		st.buf = append(appendDamage(st.buf, p.Damage), '}')
	}
	st.buf = append(st.buf, '}')
	return nil
}

// appendDamage appends what is known to be missing, without saying where.
func appendDamage(dst []byte, d *history.Damage) []byte {
	dst = append(dst, `{"places":`...)
	dst = strconv.AppendInt(dst, d.Places, 10)
	dst = append(dst, `,"bytes":`...)
	dst = strconv.AppendInt(dst, d.Bytes, 10)
	dst = append(dst, `,"lost":`...)
	dst = strconv.AppendInt(dst, d.Lost, 10)
	if d.Attachments > 0 {
		dst = strconv.AppendInt(append(dst, `,"attachments":`...), d.Attachments, 10)
	}
	return append(dst, '}')
}
