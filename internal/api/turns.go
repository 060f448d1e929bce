package api

import (
	"bytes"
	"context"
	"net/http"
	"strconv"
	"time"

	"historyd/internal/history"
	"historyd/internal/pipeline"
	"historyd/internal/wire"
)

// deadline is how long an append, a clear or a look into the record may take. It
// stops nobody but the one who waits: what was begun may still be committed. Imports
// and clears of everything take as long as they are large, and end with their client.
const deadline = time.Minute

// postTurns serves POST /v1/conversations/{c}/turns.
func (s *server) postTurns(x *exchange, r *http.Request) error {
	c, err := x.conversation(r)
	if err != nil {
		return err
	}
	p, err := query(r, "format")
	if err != nil {
		return err
	}
	format, err := p.format()
	if err != nil {
		return err
	}
	turn := pipeline.Turn{}
	if turn.Key, err = idempotencyKey(r); err != nil {
		return err
	}
	if turn.IfMatch, err = ifMatch(r); err != nil {
		return err
	}
	if _, err := checkType(r, "application/json"); err != nil {
		return err
	}
	body, err := x.readBody(r, s.limits.Body)
	if err != nil {
		return err
	}
	a, err := wire.DecodeAppend(format, body, s.limits.Message)
	if err != nil {
		return err
	}
	turn.Messages, turn.Categories = a.Messages, a.Categories
	turn.Stays = true
	var done pipeline.Recorded
	err = x.within(r, deadline, func(ctx context.Context) (err error) {
		done, err = s.pipeline.Record(ctx, c, turn)
		return err
	})
	if err != nil {
		return err
	}
	h := x.Header()
	h["Etag"] = []string{history.ETag(done.Epoch, done.LastSeq)}
	if done.Replayed {
		h["Idempotent-Replayed"] = []string{"true"}
	}
	return x.send(http.StatusCreated, jsonType, appendRecorded(make([]byte, 0, 256), c, &done))
}

func appendRecorded(dst []byte, c pipeline.Conversation, done *pipeline.Recorded) []byte {
	dst = history.AppendString(append(dst, `{"conversation":`...), c.Name)
	dst = strconv.AppendInt(append(dst, `,"first_seq":`...), done.FirstSeq, 10)
	dst = strconv.AppendInt(append(dst, `,"last_seq":`...), done.LastSeq, 10)
	dst = append(dst, `,"messages":[`...)
	for i, id := range done.IDs {
		dst = history.AppendString(append(dst, `{"id":`...), id)
		dst = strconv.AppendInt(append(dst, `,"seq":`...), done.FirstSeq+int64(i), 10)
		dst = append(dst, `},`...)
	}
	dst = append(bytes.TrimSuffix(dst, []byte(",")), `],"changes":[`...)
	for i := range done.Changes {
		dst = append(appendChange(dst, &done.Changes[i]), ',')
	}
	return append(bytes.TrimSuffix(dst, []byte(",")), `]}`...)
}

func appendChange(dst []byte, c *pipeline.Change) []byte {
	dst = strconv.AppendInt(append(dst, `{"seq":`...), c.Seq, 10)
	dst = strconv.AppendInt(append(dst, `,"block":`...), int64(c.Block), 10)
	dst = history.AppendString(append(dst, `,"action":`...), c.Action)
	if c.Category != "" {
		dst = history.AppendString(append(dst, `,"category":`...), c.Category)
	}
	if c.Reason != "" {
		dst = history.AppendString(append(dst, `,"reason":`...), c.Reason)
	}
	if c.OriginalChars != 0 {
		dst = strconv.AppendInt(append(dst, `,"original_chars":`...), c.OriginalChars, 10)
	}
	return append(dst, '}')
}
