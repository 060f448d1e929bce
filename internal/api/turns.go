package api

import (
	"context"
	"net/http"
	"time"

	"historyd/internal/history"
	"historyd/internal/pipeline"
	"historyd/internal/wire"
)

type appendReply struct {
	Conversation string        `json:"conversation"`
	FirstSeq     int64         `json:"first_seq"`
	LastSeq      int64         `json:"last_seq"`
	Messages     []placeReply  `json:"messages"`
	Changes      []changeReply `json:"changes"`
}

type placeReply struct {
	ID  string `json:"id"`
	Seq int64  `json:"seq"`
}

type changeReply struct {
	Seq           int64  `json:"seq"`
	Block         int    `json:"block"`
	Action        string `json:"action"`
	Category      string `json:"category,omitempty"`
	Reason        string `json:"reason,omitempty"`
	OriginalChars int64  `json:"original_chars,omitzero"`
}

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
	x.within(r, deadline, func(ctx context.Context) { done, err = s.pipeline.Record(ctx, c, turn) })
	if err != nil {
		return err
	}
	h := x.Header()
	h["Etag"] = []string{history.ETag(done.Epoch, done.LastSeq)}
	if done.Replayed {
		h["Idempotent-Replayed"] = []string{"true"}
	}
	return x.reply(http.StatusCreated, appended(c, done))
}

func appended(c pipeline.Conversation, done pipeline.Recorded) appendReply {
	out := appendReply{Conversation: c.Name, FirstSeq: done.FirstSeq, LastSeq: done.LastSeq}
	for i, id := range done.IDs {
		out.Messages = append(out.Messages, placeReply{id, done.FirstSeq + int64(i)})
	}
	for _, c := range done.Changes {
		out.Changes = append(out.Changes, changeReply(c))
	}
	return out
}
