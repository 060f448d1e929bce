package api

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"time"
	"unicode/utf8"

	"historyd/internal/history"
	"historyd/internal/identity"
	"historyd/internal/pipeline"
)

type searchReply struct {
	Object  string    `json:"object"`
	Data    []hitBody `json:"data"`
	HasMore bool      `json:"has_more"`
	Next    *string   `json:"next"`
	// Behind says that not all of the record was searched: some is not indexed yet.
	Behind bool `json:"behind,omitzero"`
}

type hitBody struct {
	Conversation string       `json:"conversation"`
	Seq          int64        `json:"seq"`
	ID           string       `json:"id"`
	Role         history.Role `json:"role"`
	Kind         history.Kind `json:"kind,omitzero"`
	At           string       `json:"at"`
	Score        float64      `json:"score"`
	Snippet      string       `json:"snippet"`
	Marks        [][2]int     `json:"marks"`
}

// search serves GET /v1/search.
func (s *server) search(x *exchange, r *http.Request) error {
	p, err := query(r, "q", "conversation", "role", "after", "before", "sort", "limit", "cursor")
	if err != nil {
		return err
	}
	q, err := searchOf(p)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(r.Context(), deadline)
	defer cancel()
	found, err := s.pipeline.Search(ctx, x.visitor.scope, q)
	switch {
	case errors.Is(err, pipeline.ErrBadQuery):
		return badParameter("q", "must hold a word to look for, of letters or digits, that is not excluded; at most 256 words, and 32 of what must or must not be there")
	case errors.Is(err, pipeline.ErrBadCursor):
		return badParameter("cursor", "must be the next of an earlier page of the same search")
	case err != nil:
		return err
	}
	out := searchReply{Object: "list", Data: []hitBody{}, Behind: found.Behind}
	for _, h := range found.Hits {
		b := hitBody{h.Conversation, h.Seq, h.ID, h.Role, h.Kind, stamp(h.At), h.Score, h.Snippet, h.Marks}
		if b.Marks == nil {
			b.Marks = [][2]int{}
		}
		out.Data = append(out.Data, b)
	}
	if found.Next != "" {
		out.HasMore, out.Next = true, &found.Next
	}
	return x.reply(http.StatusOK, out)
}

func searchOf(p params) (q pipeline.Query, err error) {
	text, ok := p.text("q")
	if !ok || strings.TrimSpace(text) == "" || utf8.RuneCountInString(text) > pipeline.MaxQueryChars {
		return q, badParameter("q", "must be 1 to %d characters to look for", pipeline.MaxQueryChars)
	}
	q.Text = text
	if q.Conversation, ok = p.text("conversation"); ok && !identity.ValidConversation(q.Conversation) {
		return q, &problem{code: "invalid_conversation", field: "conversation"}
	}
	if role, ok := p.text("role"); ok {
		if q.Role, err = p.oneOf("role", "user", "assistant", "tool", "system"); err != nil {
			return q, err
		}
		q.Role = role
	}
	if q.After, q.AfterSeq, err = p.bound("after", q.Conversation != ""); err != nil {
		return q, err
	}
	if q.Before, q.BeforeSeq, err = p.bound("before", q.Conversation != ""); err != nil {
		return q, err
	}
	if q.Sort, err = p.oneOf("sort", pipeline.Best, pipeline.Newest); err != nil {
		return q, err
	}
	limit, err := p.int("limit", 1, pipeline.MaxResults, 20)
	if err != nil {
		return q, err
	}
	q.Limit = int(limit)
	if cursor, ok := p.text("cursor"); ok {
		if q.Cursor = cursor; cursor == "" {
			return q, badParameter("cursor", "must be the next of an earlier page")
		}
	}
	return q, nil
}

// bound reads a limit of a search: a time, or within one conversation a seq.
func (p params) bound(name string, within bool) (at time.Time, seq int64, err error) {
	s, ok := p.text(name)
	if !ok {
		return at, 0, nil
	}
	if within && strings.Trim(s, "0123456789") == "" {
		least := int64(1)
		if name == "after" {
			least = 0
		}
		seq, err = p.int(name, least, pipeline.Unbounded, 0)
		return at, seq, err
	}
	if at, err = time.Parse(time.RFC3339Nano, s); err == nil {
		if at.IsZero() { // which is no limit in a query
			at = at.Add(time.Nanosecond)
		}
		return at, 0, nil
	}
	return at, 0, badParameter(name, "must be a time such as 2006-01-02T15:04:05Z, or with conversation a seq")
}
