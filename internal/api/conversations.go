package api

import (
	"context"
	"encoding/json/jsontext"
	"errors"
	"net/http"
	"time"

	"historyd/internal/history"
)

// conversationReply is an item of the list, and with a summary the conversation by itself.
type conversationReply struct {
	Name      string         `json:"name"`
	Title     string         `json:"title"`
	Messages  int64          `json:"messages"`
	Turns     int64          `json:"turns"`
	Bytes     int64          `json:"bytes"`
	CreatedAt string         `json:"created_at"`
	UpdatedAt string         `json:"updated_at"`
	LastSeq   int64          `json:"last_seq"`
	Summary   jsontext.Value `json:"summary,omitzero"`
	Damaged   jsontext.Value `json:"damaged"`
}

func conversationOf(st history.State) conversationReply {
	out := conversationReply{
		Name: st.Name, Title: st.Title, Messages: st.Messages, Turns: st.Turns, Bytes: st.Bytes,
		CreatedAt: stamp(st.CreatedAt), UpdatedAt: stamp(st.UpdatedAt), LastSeq: st.LastSeq,
		Damaged: jsontext.Value("false"),
	}
	if st.Damage != nil {
		out.Damaged = appendDamage(nil, st.Damage)
	}
	return out
}

func stamp(t time.Time) string { return t.UTC().Format(history.TimeFormat) }

// showConversation serves GET /v1/conversations/{c}.
func (s *server) showConversation(x *exchange, r *http.Request) error {
	c, err := x.conversation(r)
	if err != nil {
		return err
	}
	if _, err := query(r); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(r.Context(), deadline)
	defer cancel()
	st, err := s.pipeline.State(ctx, c)
	if err != nil {
		return err
	}
	if !st.Exists() {
		return newProblem("not_found")
	}
	x.Header()["Etag"] = []string{st.ETag()}
	if unmodified(r, st.ETag()) {
		x.WriteHeader(http.StatusNotModified)
		return nil
	}
	out := conversationOf(st)
	out.Summary = jsontext.Value("null")
	if sum := s.pipeline.Frame(st.Summary); sum != nil {
		out.Summary = appendSummary(nil, sum)
	}
	return x.reply(http.StatusOK, out)
}

type listReply struct {
	Object  string              `json:"object"`
	Data    []conversationReply `json:"data"`
	HasMore bool                `json:"has_more"`
	Next    *string             `json:"next"`
	Unnamed int64               `json:"unnamed,omitzero"`
}

// listConversations serves GET /v1/conversations.
func (s *server) listConversations(x *exchange, r *http.Request) error {
	p, err := query(r, "limit", "cursor")
	if err != nil {
		return err
	}
	limit, err := p.int("limit", 1, 1000, 100)
	if err != nil {
		return err
	}
	cursor, given := p.text("cursor")
	if given && cursor == "" {
		return badParameter("cursor", "must be the next of an earlier page")
	}
	ctx, cancel := context.WithTimeout(r.Context(), deadline)
	defer cancel()
	page, err := s.pipeline.List(ctx, x.visitor.scope, cursor, int(limit))
	if errors.Is(err, history.ErrNotFound) {
		return badParameter("cursor", "must be the next of an earlier page; begin again without one")
	}
	if err != nil {
		return err
	}
	out := listReply{Object: "list", Unnamed: page.Unnamed}
	for _, st := range page.Items {
		out.Data = append(out.Data, conversationOf(st))
	}
	if page.Next != "" {
		out.HasMore, out.Next = true, &page.Next
	}
	return x.reply(http.StatusOK, out)
}

// clear serves DELETE /v1/conversations/{c}.
func (s *server) clear(x *exchange, r *http.Request) error {
	c, err := x.conversation(r)
	if err != nil {
		return err
	}
	if _, err := query(r); err != nil {
		return err
	}
	if err := unconditional(r); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(r.Context(), deadline)
	defer cancel()
	err = s.pipeline.Clear(ctx, c)
	// It may be gone even when that is not known.
	s.replays.forget(c)
	if err != nil {
		return err
	}
	x.WriteHeader(http.StatusNoContent)
	return nil
}

// clearAll serves DELETE /v1/conversations.
func (s *server) clearAll(x *exchange, r *http.Request) error {
	if _, err := query(r); err != nil {
		return err
	}
	if err := unconditional(r); err != nil {
		return err
	}
	err := s.pipeline.ClearAll(r.Context(), x.visitor.scope)
	// Some may be gone even when not all are.
	s.replays.forgetAll(x.visitor.scope)
	if err != nil {
		return err
	}
	x.WriteHeader(http.StatusNoContent)
	return nil
}
