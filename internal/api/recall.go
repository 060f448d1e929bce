package api

import (
	"context"
	"encoding/json/v2"
	"fmt"
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
	for _, i := range r.Items {
		out.Items = append(out.Items, recallItem(i))
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
	body, err := x.readJSON(r, s.limits.Body)
	if err != nil {
		return err
	}
	want, err := recallOf(body, false)
	if err != nil {
		return err
	}
	found, err := s.recall(x, r, c, want)
	if err != nil {
		return err
	}
	return x.reply(http.StatusOK, struct {
		Conversation string `json:"conversation"`
		recallReply
	}{c.Name, recalled(&found)})
}

func (s *server) recall(x *exchange, r *http.Request, c pipeline.Conversation, want *pipeline.RecallAsk) (pipeline.Recalled, error) {
	ctx, cancel := context.WithTimeout(r.Context(), deadline)
	defer cancel()
	want.Workspace = x.caller.Workspace
	found, err := s.pipeline.Recall(ctx, c, *want)
	if err == nil && found.ETag != "" {
		x.Header()["Etag"] = []string{found.ETag}
	}
	return found, err
}

// recallOf reads what is to be recalled; within says that it is a member of a replay.
func recallOf(v strictjson.Value, within bool) (*pipeline.RecallAsk, error) {
	known, path := []string{"query", "store"}, ""
	if within {
		path = "recall."
	}
	if v.Kind() != '{' {
		return nil, badAsk("recall", v, "recall is an object with query and store")
	}
	want := &pipeline.RecallAsk{}
	for name, m := range v.Members() {
		switch {
		case !slices.Contains(known, name):
			return nil, unknownAsk(name, m, known)
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
	found, err := s.recall(x, r, c, want.recall)
	if err != nil {
		return err
	}
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
	return x.send(http.StatusOK, jsonType, appendReplay(nil, c, want, rep))
}
