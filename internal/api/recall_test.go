package api

import (
	"context"
	"encoding/json/jsontext"
	"fmt"
	"strings"
	"testing"

	"historyd/internal/compaction"
	"historyd/internal/durable/crashfs"
	"historyd/internal/history"
	"historyd/internal/pipeline"
	"historyd/internal/projection"
	"historyd/internal/recall"
	"historyd/internal/store"
)

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

func TestRecallsThatAreNotRight(t *testing.T) {
	d := newDaemon(t, projection.Options{})
	for _, tt := range []struct {
		body, code, field string // of a recall; the field of a replay's is below "recall"
	}{
		{`null`, "invalid_parameter", ""},
		{`[]`, "invalid_parameter", ""},
		{`"x"`, "invalid_parameter", ""},
		{`true`, "invalid_parameter", ""},
		{`{"query":null}`, "invalid_parameter", "query"},
		{`{"query":7}`, "invalid_parameter", "query"},
		{`{"query":["x"]}`, "invalid_parameter", "query"},
		{`{"store":null}`, "invalid_parameter", "store"},
		{`{"store":"true"}`, "invalid_parameter", "store"},
		{`{"store":1}`, "invalid_parameter", "store"},
		{`{"limit":1}`, "invalid_parameter", ""},
		{`{"workspace":"work"}`, "invalid_parameter", ""},
		{`{"Query":"x"}`, "invalid_json", "query"},
		{`{"query":"x","query":"y"}`, "invalid_json", ""},
	} {
		got := d.post("ann", "/v1/conversations/x/recall", tt.body)
		want(t, got, 400, tt.code)
		if field := got.problem(t).Field; field != tt.field {
			t.Errorf("%s: the field is %q, want %q", tt.body, field, tt.field)
		}
		field := "recall"
		if tt.field != "" {
			field += "." + tt.field
		} else if tt.code == "invalid_json" {
			field = ""
		}
		got = d.post("ann", replayOfX, `{"recall":`+tt.body+`}`)
		want(t, got, 400, tt.code)
		if got := got.problem(t).Field; got != field {
			t.Errorf("%s in a replay: the field is %q, want %q", tt.body, got, field)
		}
	}
	for _, path := range []string{"/v1/conversations/x/recall?query=x", replayOfX + "?recall=true"} {
		want(t, d.post("ann", path, `{}`), 400, "invalid_parameter")
	}
	for _, query := range []string{"?recall=true", "?recall.query=x", "?query=x"} {
		want(t, d.get("ann", replayOfX+query), 400, "invalid_parameter") // GET never recalls
	}
	want(t, d.get("ann", "/v1/conversations/x/recall"), 405, "method_not_allowed")
	want(t, d.post("ann", "/v1/conversations/.x/recall", `{}`), 400, "invalid_conversation")
	want(t, d.post("ann", "/v1/conversations/x/recall", `{"query":"`+strings.Repeat("x", 9<<20)+`"}`), 413, "body_too_large")
	want(t, d.post("ann", "/v1/conversations/x/recall", ``, "Content-Type", "application/json"), 400, "invalid_json")
	for _, path := range []string{"/v1/conversations/x/recall", replayOfX} { // it stores where the conversation has come to
		want(t, d.post("ann", path, map[bool]string{true: `{"recall":{"store":true}}`, false: `{"store":true}`}[path == replayOfX], "If-Match", `"x"`), 400, "invalid_parameter")
	}
	want(t, d.get("ann", "/v1/conversations/x"), 404, "not_found")
}

// The answer is of one shape, whatever there is to ask for.
func TestRecallsOfNothing(t *testing.T) {
	d := newDaemon(t, projection.Options{})
	d.say("ann", "old", "the lighthouse is closed on Mondays")
	for _, tt := range []struct {
		body    string
		skipped bool
	}{
		{`{}`, true}, {`{"store":true}`, true}, {`{"query":""}`, true}, {`{"query":" "}`, true}, {`{"query":"lighth","store":true}`, true},
		{`{"query":"?!?!?!?!?!"}`, false}, {`{"query":"the of and is on"}`, false}, {`{"query":"nothing of that kind","store":true}`, false},
		{`{"query":"` + strings.Repeat("filler ", 1<<20) + `"}`, false},
	} {
		got := d.post("ann", "/v1/conversations/x/recall", tt.body)
		want(t, got, 200, "")
		r := as[recallReply](t, got)
		if r.Skipped != tt.skipped || r.StoredSeq != 0 || r.NotStored != "" || r.Items == nil || len(r.Retrievers) != 1 || r.Retrievers[0].Name != "local" {
			t.Errorf("%.40s: %s", tt.body, got.body)
		}
		if tt.skipped && (r.Text != "" || r.Retrievers[0].Status != "empty") {
			t.Errorf("%.40s: %s", tt.body, got.body)
		}
	}
	want(t, d.get("ann", "/v1/conversations/x"), 404, "not_found")
}

func TestWithoutRetrievers(t *testing.T) {
	r, err := recall.New(recall.Options{})
	must(t, err)
	d := newDaemon(t, projection.Options{}, func(o *Options) { o.Pipeline = withRecaller(t, r) })
	got := d.post("ann", "/v1/conversations/x/recall", `{"query":"what is known of it?","store":true}`)
	want(t, got, 200, "")
	if got.body != `{"conversation":"x","text":"","items":[],"retrievers":[{"name":"local","status":"not_configured","hits":0}]}` {
		t.Errorf("recall: %s", got.body)
	}
	// Nothing is searched, which is not the same as nothing to find.
	got = d.get("ann", "/v1/search?q=x")
	want(t, got, 200, "")
	if got.body != `{"object":"list","data":[],"has_more":false,"next":null,"behind":true}` {
		t.Errorf("search: %s", got.body)
	}
}

// A lookout is a recaller that looks around while it is asked.
type lookout struct{ look func() }

func (l *lookout) Recall(context.Context, recall.Ask) recall.Recalled {
	l.look()
	return recall.Recalled{Skipped: true}
}

// Others may take long to answer, and a body has been read by then.
func TestARecallKeepsNoRoomWhileOthersAreAsked(t *testing.T) {
	looked, l := 0, lookout{}
	d := newDaemon(t, projection.Options{}, func(o *Options) { o.Pipeline = withRecaller(t, &l) })
	d.say("ann", "x", "hello")
	crowd := d.handler.(*server).visit(d.caller("ann")).crowd
	l.look = func() {
		looked++
		own, all := crowd.own.TryAcquire(objectsAtOnce), crowd.all.TryAcquire(crowdsAtOnce*objectsAtOnce)
		if !own || !all {
			t.Errorf("the caller has all its room: %v, all callers have theirs: %v", own, all)
		}
		if own {
			crowd.own.Release(objectsAtOnce)
		}
		if all {
			crowd.all.Release(crowdsAtOnce * objectsAtOnce)
		}
	}
	query := `{"query":"` + strings.Repeat("{", 2*manyObjects) + `"}`
	want(t, d.post("ann", "/v1/conversations/x/recall", query), 200, "")
	want(t, d.post("ann", replayOfX, `{"recall":`+query+`}`), 200, "")
	if looked != 2 {
		t.Errorf("others were asked %d times, want 2", looked)
	}
}

// withRecaller is a pipeline on a record of its own, without an index.
func withRecaller(t *testing.T, r pipeline.Recaller) *pipeline.Pipeline {
	t.Helper()
	s, err := store.Open(store.Options{FS: crashfs.New(), NewID: func(string) string { return fmt.Sprintf("01%024d", minted.Add(1)) }})
	must(t, err)
	t.Cleanup(func() { _ = s.Close() })
	policy, err := projection.New(projection.Options{})
	must(t, err)
	compactor, err := compaction.New(compaction.Options{})
	must(t, err)
	p, err := pipeline.New(pipeline.Options{Engine: s, Policy: policy, Compactor: compactor, Recaller: r})
	must(t, err)
	return p
}

// A turn goes on with what was found, also when that cannot be stored.
func TestARecallThatCannotBeStored(t *testing.T) {
	d := newDaemon(t, projection.Options{})
	d.say("ann", "old", "the lighthouse is closed on Mondays")
	want(t, d.post("ann", turns, `{"messages":[{"role":"user","content":"when is the lighthouse closed?"}]}`), 201, "")
	for _, tt := range []struct {
		err  error
		code string
	}{{history.ErrFull, "disk_full"}, {history.ErrUnavailable, "unavailable"}, {&history.QuotaExceeded{What: "bytes"}, "quota_exceeded"}} {
		d.failWith("append", 2, fmt.Errorf("write: %w", tt.err))
		r := as[recallReply](t, d.post("ann", "/v1/conversations/x/recall", `{"store":true}`))
		if !strings.Contains(r.Text, "lighthouse") || r.StoredSeq != 0 || r.NotStored != tt.code {
			t.Errorf("recall: %+v", r)
		}
		got := d.post("ann", replayOfX, `{"recall":{"store":true},"format":"openai"}`)
		want(t, got, 200, "")
		both := as[struct {
			Messages []jsontext.Value `json:"messages"`
			Recall   recallReply      `json:"recall"`
		}](t, got)
		if len(both.Messages) != 1 || both.Recall.NotStored != tt.code || !strings.Contains(both.Recall.Text, "lighthouse") {
			t.Errorf("replay: %s", got.body)
		}
	}
	if logs := d.logs.String(); strings.Count(logs, "a recall was not stored") != 6 || strings.Contains(logs, "lighthouse") {
		t.Errorf("log: %s", logs)
	}
	if r := as[recallReply](t, d.post("ann", "/v1/conversations/x/recall", `{"store":true}`)); r.StoredSeq != 2 || r.NotStored != "" {
		t.Errorf("later: %+v", r)
	}
}

func TestAStoredRecallAsItIsShown(t *testing.T) {
	d := newDaemon(t, projection.Options{})
	d.say("ann", "old", "the lighthouse is closed on Mondays")
	want(t, d.post("ann", turns, `{"messages":[{"role":"user","content":"when is the lighthouse closed?"}]}`), 201, "")
	type withRecall struct {
		Messages        []jsontext.Value `json:"messages"`
		Recall          recallReply      `json:"recall"`
		EstimatedTokens int64            `json:"estimated_tokens"`
	}
	without := as[replayBody](t, d.get("ann", replayOfX))
	ahead := as[withRecall](t, d.post("ann", replayOfX, `{"recall":{}}`))
	stored := as[withRecall](t, d.post("ann", replayOfX, `{"recall":{"store":true}}`))
	if len(ahead.Messages) != 1 || len(stored.Messages) != 2 || ahead.Recall.Text != stored.Recall.Text {
		t.Errorf("ahead %+v, stored %+v", ahead, stored)
	}
	// It counts as one message, wherever it stands, and once.
	if n := without.EstimatedTokens; ahead.EstimatedTokens <= n || ahead.EstimatedTokens != stored.EstimatedTokens {
		t.Errorf("%d tokens without, %d ahead, %d stored", n, ahead.EstimatedTokens, stored.EstimatedTokens)
	}
	d.say("ann", "older", "the lighthouse is open on Fridays") // what is stored already is not recalled again
	if over := as[withRecall](t, d.post("ann", replayOfX, fmt.Sprintf(`{"recall":{"query":"when is the lighthouse open?"},"max_tokens":%d}`, stored.EstimatedTokens))); over.EstimatedTokens <= stored.EstimatedTokens {
		t.Errorf("a limit is held by leaving the newest turn out: %+v", over)
	}
	for _, path := range []string{"/v1/conversations/x/messages", replayOfX, replayOfX + "?mode=full"} {
		got := d.get("ann", path)
		if !strings.Contains(got.body, `"kind":"reference"`) || !strings.Contains(got.body, `"synthetic":true`) || strings.Count(got.body, "<recalled_notes>") != 1 {
			t.Errorf("%s: %s", path, got.body)
		}
	}
	shown := as[struct {
		Turns    int64 `json:"turns"`
		Messages int64 `json:"messages"`
	}](t, d.get("ann", "/v1/conversations/x"))
	if shown.Turns != 1 || shown.Messages != 2 {
		t.Errorf("conversation: %+v", shown)
	}
	if got := as[foundBody](t, d.get("ann", "/v1/search?q=lighthouse+Mondays&sort=newest")); len(got.Data) != 1 || got.Data[0].Conversation != "old" {
		t.Errorf("a search finds %+v", got)
	}
	// What is exported comes back as it was, and is nobody's retry.
	doc := d.get("ann", "/v1/conversations/x/export")
	want(t, d.post("ann", "/v1/conversations/y/import", doc.body), 201, "")
	if got := d.get("ann", "/v1/conversations/y/messages"); !strings.Contains(got.body, `"synthetic":true,"imported":true`) {
		t.Errorf("imported: %s", got.body)
	}
}
