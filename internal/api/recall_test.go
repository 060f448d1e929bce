package api

import (
	"net/http"
	"strings"
	"testing"

	"historyd/internal/projection"
)

type foundBody struct {
	Data []struct {
		Conversation string   `json:"conversation"`
		Snippet      string   `json:"snippet"`
		Seq          int64    `json:"seq"`
		Marks        [][2]int `json:"marks"`
	} `json:"data"`
}

func TestSearchFindsWhatThisCallerHas(t *testing.T) {
	d := newDaemon(t, projection.Options{})
	d.say("ann", "x", "the lighthouse in Port Ellery")
	d.say("ann", "y", "nothing of that kind")
	d.say("bob", "x", "a lighthouse of somebody else")
	got := as[foundBody](t, d.get("ann", "/v1/search?q=lighthouse"))
	if len(got.Data) != 1 || got.Data[0].Conversation != "x" || got.Data[0].Seq != 1 || !strings.Contains(got.Data[0].Snippet, "lighthouse") || len(got.Data[0].Marks) != 1 {
		t.Errorf("found %+v", got)
	}
	for query, code := range map[string]string{
		"": "invalid_parameter", "?q=": "invalid_parameter", "?q=-x": "invalid_parameter", "?q=x&role=king": "invalid_parameter", "?q=x&sort=worst": "invalid_parameter",
		"?q=x&limit=0": "invalid_parameter", "?q=x&limit=101": "invalid_parameter", "?q=x&after=7": "invalid_parameter", "?q=x&cursor=zzz": "invalid_parameter",
		"?q=x&conversation=.x": "invalid_conversation", "?q=x&zzz=1": "invalid_parameter",
	} {
		want(t, d.get("ann", "/v1/search"+query), 400, code)
	}
	for _, query := range []string{"?q=lighthouse&conversation=x&after=0&before=5", "?q=lighthouse&after=2020-01-01T00:00:00Z", "?q=light*&sort=newest&role=user"} {
		if got := as[foundBody](t, d.get("ann", "/v1/search"+query)); len(got.Data) != 1 {
			t.Errorf("%s: found %+v", query, got)
		}
	}
	want(t, d.send(request{method: http.MethodDelete, path: "/v1/conversations/x", caller: "ann"}), 204, "")
	if got := as[foundBody](t, d.get("ann", "/v1/search?q=lighthouse")); len(got.Data) != 0 {
		t.Errorf("after the clear: found %+v", got)
	}
	d.say("ann", "z", "a lighthouse once more")
	want(t, d.post("ann", "/v1/conversations/z/rewind", `{"through_seq":0}`), 200, "")
	if got := as[foundBody](t, d.get("ann", "/v1/search?q=lighthouse")); len(got.Data) != 0 {
		t.Errorf("after the rewind: found %+v", got)
	}
}

func TestRecallBringsWhatIsKnownAndStoresItOnce(t *testing.T) {
	d := newDaemon(t, projection.Options{})
	want(t, d.post("ann", "/v1/conversations/old/turns", `{"messages":[{"role":"user","content":"Which room has Dr Okonkwo?"},{"role":"assistant","content":"Dr Okonkwo sits in room 417."}]}`), 201, "")
	got := d.post("ann", "/v1/conversations/x/recall", `{"query":"where does Okonkwo sit?"}`)
	if r := as[recallReply](t, got); got.status != 200 || !strings.Contains(r.Text, "room 417") || len(r.Items) == 0 || r.Retrievers[0].Status != "ok" || r.StoredSeq != 0 {
		t.Errorf("recall: %s", got.body)
	}
	ask := `{"recall":{"query":"where does Okonkwo sit?","store":true},"format":"openai"}`
	first := d.post("ann", replayOfX, ask)
	type withRecall struct {
		Messages []struct {
			Role    string `json:"role"`
			Content string `json:"content"`
		} `json:"messages"`
		Recall recallReply `json:"recall"`
	}
	r := as[withRecall](t, first)
	if len(r.Messages) != 1 || r.Messages[0].Role != "user" || r.Messages[0].Content != r.Recall.Text || r.Recall.StoredSeq != 1 {
		t.Errorf("replay: %s", first.body)
	}
	again := as[withRecall](t, d.post("ann", replayOfX, ask))
	if len(again.Messages) != 1 || again.Recall.StoredSeq != 1 || again.Recall.Text != r.Recall.Text {
		t.Errorf("a retry stores it twice: %+v", again)
	}
	d.say("ann", "x", "thanks")
	want(t, d.post("ann", turns, `{"messages":[{"role":"assistant","content":"welcome"}]}`), 201, "")
	later := as[withRecall](t, d.post("ann", replayOfX, `{"recall":{},"format":"openai"}`))
	if !later.Recall.Skipped || later.Messages[0].Content != r.Recall.Text {
		t.Errorf("later: %+v", later)
	}
	if r := as[recallReply](t, d.post("bob", "/v1/conversations/x/recall", `{"query":"where does Okonkwo sit?"}`)); r.Text != "" || len(r.Items) != 0 {
		t.Errorf("somebody else is told %+v", r)
	}
}
