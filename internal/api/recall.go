package api

import (
	"context"
	"encoding/json/v2"
	"fmt"
	"log/slog"
	"net/http"
	"slices"

	"historyd/internal/pipeline"
	"historyd/internal/strictjson"
)

// A recallReply is what is known, as a replay shows it.
type recallReply struct {
	Text       string        `json:"text"`
	Items      []recallItem  `json:"items"`
	Retrievers []recallState `json:"retrievers"`
	Truncated  bool          `json:"truncated,omitzero"`
	Skipped    bool          `json:"skipped,omitzero"`
	StoredSeq  int64         `json:"stored_seq,omitzero"`
	NotStored  string        `json:"not_stored,omitzero"` // a code of the table of errors
}

type recallItem struct {
	Retriever    string  `json:"retriever"`
	Title        string  `json:"title,omitzero"`
	Body         string  `json:"body"`
	Conversation string  `json:"conversation,omitzero"`
	Seq          int64   `json:"seq,omitzero"`
	Score        float64 `json:"score,omitzero"`
}

type recallState struct {
	Name   string               `json:"name"`
	Status pipeline.RecallState `json:"status"`
	Hits   int                  `json:"hits"`
}

func recalled(r *pipeline.Recalled) recallReply {
	out := recallReply{Text: r.Text, Items: []recallItem{}, Retrievers: []recallState{}, Truncated: r.Truncated, Skipped: r.Skipped, StoredSeq: r.Seq}
	if r.NotStored != nil {
		out.NotStored = problemOf(r.NotStored).code
	}
	for _, i := range r.Items {
		out.Items = append(out.Items, recallItem{i.Retriever, i.Title, i.Body, i.Conversation, i.Seq, i.Score})
	}
	for _, s := range r.Retrievers {
		out.Retrievers = append(out.Retrievers, recallState(s))
	}
	return out
}

// postRecall serves POST /v1/conversations/{c}/recall.
func (s *server) postRecall(x *exchange, r *http.Request) error {
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
	body, err := x.readJSON(r, s.limits.Body)
	if err != nil {
		return err
	}
	want, err := recallOf(body, "")
	if err != nil {
		return err
	}
	found, err := s.recall(x, r, c, want)
	if err != nil {
		return err
	}
	if found.ETag != "" {
		x.Header()["Etag"] = []string{found.ETag}
	}
	return x.reply(http.StatusOK, struct {
		Conversation string `json:"conversation"`
		recallReply
	}{c.Name, recalled(&found)})
}

func (s *server) recall(x *exchange, r *http.Request, c pipeline.Conversation, want *pipeline.RecallAsk) (pipeline.Recalled, error) {
	x.disperse() // others may be waited for, and little is left of the body
	ctx, cancel := context.WithTimeout(r.Context(), deadline)
	defer cancel()
	want.Workspace = x.caller.Workspace
	found, err := s.pipeline.Recall(ctx, c, *want)
	if err == nil && found.NotStored != nil {
		s.log.LogAttrs(ctx, slog.LevelWarn, "a recall was not stored",
			slog.String("request_id", x.id), slog.String("code", problemOf(found.NotStored).code), slog.Any("scope", x.scope()),
			slog.String("error", found.NotStored.Error()))
	}
	return found, err
}

var recallMembers = []string{"query", "store"}

// recallOf reads what is to be recalled, from the body or from the member of that name.
func recallOf(v strictjson.Value, member string) (*pipeline.RecallAsk, error) {
	if v.Kind() != '{' {
		return nil, badAsk(member, v, "must be an object with query and store, both of which may be left out")
	}
	path := ""
	if member != "" {
		path = member + "."
	}
	want := &pipeline.RecallAsk{}
	for name, m := range v.Members() {
		switch {
		case !slices.Contains(recallMembers, name):
			return nil, unknownAsk(member, name, m, recallMembers)
		case name == "query":
			text, ok := m.Text()
			if !ok {
				return nil, badAsk(path+name, m, "must be a string")
			}
			want.Query = text
		default:
			if k := m.Kind(); k != 't' && k != 'f' {
				return nil, badAsk(path+name, m, "must be true or false")
			}
			want.Store = m.Kind() == 't'
		}
	}
	return want, nil
}

// replayWithRecall recalls, then replays, so that a stored recall is in the messages. Its
// answer is kept for nobody.
func (s *server) replayWithRecall(x *exchange, r *http.Request, c pipeline.Conversation, want *ask) error {
	if err := unconditional(r); err != nil {
		return err
	}
	ask := want.replay()
	want.recall.For = &ask
	found, err := s.recall(x, r, c, want.recall)
	if err != nil {
		return err
	}
	if found.Seq == 0 {
		want.ahead = pipeline.Cost(found.Text)
	}
	give, err := x.visitor.replays.take(r, patience) // whatever time the recall took
	if err != nil {
		return err
	}
	defer give()
	ctx, cancel := context.WithTimeout(r.Context(), deadline)
	defer cancel()
	rep, err := s.replayNow(ctx, c, want)
	if err != nil {
		return err
	}
	if want.recalled, err = json.Marshal(recalled(&found)); err != nil {
		// The error of the encoder may quote the value.
		return fmt.Errorf("encode a recall: %T", err)
	}
	x.Header()["Etag"] = []string{rep.State.ETag()}
	body := appendReplay(nil, c, want, rep)
	if len(body) <= light {
		give()
	}
	return x.send(http.StatusOK, jsonType, body)
}
