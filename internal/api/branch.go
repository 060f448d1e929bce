package api

import (
	"context"
	"encoding/json/jsontext"
	"errors"
	"net/http"
	"slices"
	"strconv"

	"historyd/internal/history"
	"historyd/internal/identity"
	"historyd/internal/pipeline"
	"historyd/internal/strictjson"
)

type forkReply struct {
	Conversation string `json:"conversation"`
	ForkedFrom   string `json:"forked_from"`
	ThroughSeq   int64  `json:"through_seq,omitzero"` // of the source, when the request gave it
	Messages     int64  `json:"messages"`
	LastSeq      int64  `json:"last_seq"`
	// Repaired is there only when something had to be.
	Repaired      []pipeline.Mended `json:"repaired,omitempty"`
	RepairedTotal int64             `json:"repaired_total,omitzero"` // when the list does not hold all
	Damaged       jsontext.Value    `json:"damaged,omitzero"`
}

// fork serves POST /v1/conversations/{c}/fork.
func (s *server) fork(x *exchange, r *http.Request) error {
	from, err := x.conversation(r)
	if err != nil {
		return err
	}
	if _, err := query(r); err != nil {
		return err
	}
	if err := unconditional(r); err != nil {
		return err
	}
	body, err := x.readJSON(r, s.limits.Body)
	if err != nil {
		return err
	}
	b := branch{members: []string{"to", "through_seq"}, through: -1}
	if err := b.read(body); err != nil {
		return err
	}
	if !b.named {
		return badAsk("to", body, "is missing: the name of the new conversation")
	}
	to := pipeline.Conversation{Scope: from.Scope, Name: b.to}
	// As with an import, it takes as long as it is large.
	done, err := s.pipeline.Fork(r.Context(), from, to, max(b.through, 0))
	if errors.Is(err, history.ErrNotEmpty) {
		return &problem{code: "conversation_not_empty", field: "to", detail: "a fork begins a new conversation: give it another name"}
	}
	if err != nil {
		return throughSeq(err, "no message has this seq: it is over the conversation's last_seq")
	}
	h := x.Header()
	h["Etag"] = []string{history.ETag(done.Epoch, done.LastSeq)}
	h["Location"] = []string{"/v1/conversations/" + to.Name}
	out := forkReply{Conversation: to.Name, ForkedFrom: from.Name, ThroughSeq: max(b.through, 0), Messages: done.Added, LastSeq: done.LastSeq, Repaired: done.Mended}
	if done.MendedTotal > int64(len(done.Mended)) {
		out.RepairedTotal = done.MendedTotal
	}
	if done.Damage != nil {
		out.Damaged = appendDamage(nil, done.Damage)
	}
	return x.reply(http.StatusCreated, out)
}

type rewindReply struct {
	Conversation string `json:"conversation"`
	ThroughSeq   int64  `json:"through_seq"`
	LastSeq      int64  `json:"last_seq"` // of the record, which keeps what was rewound
}

// rewind serves POST /v1/conversations/{c}/rewind.
func (s *server) rewind(x *exchange, r *http.Request) error {
	c, err := x.conversation(r)
	if err != nil {
		return err
	}
	if _, err := query(r); err != nil {
		return err
	}
	condition, err := ifMatch(r)
	if err != nil {
		return err
	}
	body, err := x.readJSON(r, s.limits.Body)
	if err != nil {
		return err
	}
	b := branch{members: []string{"through_seq"}, through: -1}
	if err := b.read(body); err != nil {
		return err
	}
	if b.through < 0 {
		return badAsk("through_seq", body, "is missing: the seq of the last message that stays")
	}
	ctx, cancel := context.WithTimeout(r.Context(), deadline)
	defer cancel()
	done, err := s.pipeline.Rewind(ctx, c, b.through, condition)
	s.replays.forget(c)
	if err != nil {
		return throughSeq(err, "the conversation can't end here: this seq is over last_seq, or that of a message that is rewound already")
	}
	x.Header()["Etag"] = []string{history.ETag(done.Epoch, done.LastSeq)}
	return x.reply(http.StatusOK, rewindReply{c.Name, b.through, done.LastSeq})
}

// throughSeq says which parameter named a message that is not there.
func throughSeq(err error, which string) error {
	if errors.Is(err, history.ErrNoSuchMessage) {
		return badParameter("through_seq", "%s", which)
	}
	return err
}

// A branch is the body of a fork or of a rewind.
type branch struct {
	members []string
	to      string
	named   bool
	through int64 // -1 when it is not given
}

func (b *branch) read(v strictjson.Value) error {
	if v.Kind() != '{' {
		return badAsk("", v, "the body must be an object, such as {}")
	}
	for name, m := range v.Members() {
		if !slices.Contains(b.members, name) {
			return unknownAsk("", name, m, b.members)
		}
		if name == "to" {
			if b.to, b.named = m.Text(); !b.named || !identity.ValidConversation(b.to) {
				return &problem{code: "invalid_conversation", field: name, offset: &m.Offset}
			}
			continue
		}
		least := int64(0) // a rewind to 0 leaves nothing
		if b.members[0] == "to" {
			least = 1
		}
		n, err := strconv.ParseInt(string(m.Raw), 10, 64)
		if err != nil || n < least {
			return outOfRange(name, least, pipeline.Unbounded)
		}
		b.through = n
	}
	return nil
}
