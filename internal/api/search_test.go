package api

import (
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"net/url"
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
	HasMore bool    `json:"has_more"`
	Next    *string `json:"next"`
	Behind  bool    `json:"behind"`
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

func TestWhatOfAMessageIsSearched(t *testing.T) {
	d := newDaemon(t, projection.Options{})
	want(t, d.post("ann", turns, `{"tool_categories":{"keep_tin":"general","hide_brass":"wallet"},"model":"modelzinc","messages":[
		{"role":"system","content":"promptlead"},
		{"role":"user","kind":"reference","content":"referencenickel"},
		{"role":"user","content":[{"type":"text","text":"questionsilver"},{"type":"document","media_type":"text/plain","data":"ZG9jdW1lbnRnb2xk","filename":"filecobalt"}],"metadata":{"k":"metadataargon"}},
		{"role":"assistant","content":[{"type":"thinking","text":"thoughtxenon"},{"type":"tool_call","id":"c","name":"keep_tin","arguments":{"k":"argumentneon"}},
			{"type":"tool_call","id":"d","name":"hide_brass","arguments":{"k":"secretradon"}}]},
		{"role":"tool","content":[{"type":"tool_result","call_id":"c","content":"resultcopper"},{"type":"tool_result","call_id":"d","content":"balancecesium"}]},
		{"role":"assistant","content":"answeriron"}]}`), 201, "")
	for word, found := range map[string]bool{
		"promptlead": true, "referencenickel": true, "questionsilver": true, "resultcopper": true, "answeriron": true,
		"documentgold": false, "filecobalt": false, "metadataargon": false, "thoughtxenon": false, "keep_tin": false, "argumentneon": false,
		"secretradon": false, "balancecesium": false, "withheld": false, "modelzinc": false,
	} {
		if got := as[foundBody](t, d.get("ann", "/v1/search?q="+word)); (len(got.Data) == 1) != found || got.Behind {
			t.Errorf("%s: found %+v, want %v", word, got, found)
		}
	}
}

// Neither is the better one: of equal rank the name decides, which is that of the copy here.
func TestACopyIsFoundBesideItsOriginal(t *testing.T) {
	d := newDaemon(t, projection.Options{})
	d.say("ann", "x", "a lighthouse")
	want(t, d.post("ann", "/v1/conversations/x/fork", `{"to":"fork"}`), 201, "")
	exported := d.get("ann", "/v1/conversations/x/export").body
	want(t, d.post("ann", "/v1/conversations/zebra/import", exported), 201, "")
	var names []string
	for _, f := range as[foundBody](t, d.get("ann", "/v1/search?q=lighthouse")).Data {
		names = append(names, f.Conversation)
	}
	if got := strings.Join(names, " "); got != "fork x zebra" {
		t.Errorf("found in %s", got)
	}
	// A recall says once what all of them say.
	recalled := as[struct {
		Items []struct {
			Conversation string `json:"conversation"`
		} `json:"items"`
	}](t, d.post("ann", "/v1/conversations/new/recall", `{"query":"what of the lighthouse?"}`))
	if len(recalled.Items) != 1 || recalled.Items[0].Conversation != "fork" {
		t.Errorf("recalled %+v", recalled)
	}
	// And an import adds no copy to what holds the message itself, even if it says something else now.
	got := d.post("ann", "/v1/conversations/x/import?mode=append", strings.Replace(exported, "a lighthouse", "a windmill", 1))
	want(t, got, 201, "")
	if body := d.get("ann", "/v1/conversations/x/messages").body; !strings.HasPrefix(got.body, `{"imported":0,`) || strings.Contains(body, "windmill") || !strings.Contains(body, "lighthouse") {
		t.Errorf("the import: %s, then %s", got.body, body)
	}
}

func TestSearchesThatAreNotRight(t *testing.T) {
	d := newDaemon(t, projection.Options{})
	d.say("ann", "x", "a lighthouse")
	many := strings.Repeat
	for _, tt := range []struct{ query, code, field string }{
		{"", "invalid_parameter", "q"},
		{"q=", "invalid_parameter", "q"},
		{"q=%20%09", "invalid_parameter", "q"},
		{"q=" + many("x", 2001), "invalid_parameter", "q"},
		{"q=%3F%21", "invalid_parameter", "q"},
		{"q=-x", "invalid_parameter", "q"},
		{"q=%22%22", "invalid_parameter", "q"},
		{"q=" + many("w+", 257), "invalid_parameter", "q"},
		{"q=" + many("%22a+b%22", 33), "invalid_parameter", "q"},
		{"q=x&q=y", "invalid_parameter", "q"},
		{"q=x&conversation=", "invalid_conversation", "conversation"},
		{"q=x&conversation=.x", "invalid_conversation", "conversation"},
		{"q=x&conversation=a%2Fb", "invalid_conversation", "conversation"},
		{"q=x&role=", "invalid_parameter", "role"},
		{"q=x&role=User", "invalid_parameter", "role"},
		{"q=x&sort=", "invalid_parameter", "sort"},
		{"q=x&sort=oldest", "invalid_parameter", "sort"},
		{"q=x&limit=", "invalid_parameter", "limit"},
		{"q=x&limit=0", "invalid_parameter", "limit"},
		{"q=x&limit=-1", "invalid_parameter", "limit"},
		{"q=x&limit=101", "invalid_parameter", "limit"},
		{"q=x&limit=%2B5", "invalid_parameter", "limit"},
		{"q=x&limit=5.0", "invalid_parameter", "limit"},
		{"q=x&limit=99999999999999999999", "invalid_parameter", "limit"},
		{"q=x&limit=0&cursor=", "invalid_parameter", "limit"},
		{"q=x&after=", "invalid_parameter", "after"},
		{"q=x&after=7", "invalid_parameter", "after"}, // a seq of which conversation?
		{"q=x&after=yesterday", "invalid_parameter", "after"},
		{"q=x&after=2026-01-01", "invalid_parameter", "after"},
		{"q=x&after=2026-13-01T00:00:00Z", "invalid_parameter", "after"},
		{"q=x&conversation=x&after=-1", "invalid_parameter", "after"},
		{"q=x&conversation=x&after=%2B1", "invalid_parameter", "after"},
		{"q=x&conversation=x&after=1.5", "invalid_parameter", "after"},
		{"q=x&conversation=x&after=99999999999999999999", "invalid_parameter", "after"},
		{"q=x&conversation=x&before=0", "invalid_parameter", "before"},
		{"q=x&conversation=x&before=", "invalid_parameter", "before"},
		{"q=x&before=2026-01-01T00:00:00", "invalid_parameter", "before"},
		{"q=x&cursor=", "invalid_parameter", "cursor"},
		{"q=x&cursor=zzz", "invalid_parameter", "cursor"},
		{"q=x&cursor=" + many("A", 60), "invalid_parameter", "cursor"},
		{"q=x&page=2", "invalid_parameter", ""},
		{"q=x&Limit=2", "invalid_parameter", ""},
		{"q=x;limit=2", "invalid_parameter", ""},
	} {
		got := d.get("ann", "/v1/search?"+tt.query)
		want(t, got, 400, tt.code)
		if p := got.problem(t); p.Field != tt.field || strings.Contains(p.Detail, "yesterday") {
			t.Errorf("%.60s: field %q, detail %q; want %q", tt.query, p.Field, p.Detail, tt.field)
		}
	}
	for _, query := range []string{
		"q=lighthouse&conversation=x&after=9223372036854775807", "q=lighthouse&before=0001-01-01T00:00:00Z",
		"q=lighthouse&after=9999-12-31T23:59:59.999999999Z", "q=lighthouse&conversation=nowhere", "q=lighthouse&conversation=x&after=5&before=2",
		"q=%00%FFlight",
	} {
		got := d.get("ann", "/v1/search?"+query)
		want(t, got, 200, "")
		if f := as[foundBody](t, got); len(f.Data) != 0 || f.HasMore || f.Next != nil {
			t.Errorf("%s: found %+v", query, f)
		}
	}
}

// Times count to the microsecond that messages have, and are excluded themselves.
func TestSearchesBetweenTimes(t *testing.T) {
	d := newDaemon(t, projection.Options{})
	var lines []string
	for i := range 40 { // more than are looked at besides a page, in one millisecond
		lines = append(lines, fmt.Sprintf(`{"id":"m%d","role":"user","content":"a lighthouse","at":"2026-01-01T00:00:00.000%03dZ"}`, i, i))
	}
	want(t, d.post("ann", "/v1/conversations/x/import?format=jsonl", strings.Join(lines, "\n"), "Content-Type", "application/x-ndjson"), 201, "")
	for _, tt := range []struct {
		query string
		want  int
	}{
		{"after=2026-01-01T00:00:00.000037Z", 2}, {"before=2026-01-01T00:00:00.000003Z", 3},
		{"after=2026-01-01T00:00:00.000003Z&before=2026-01-01T00:00:00.000005Z", 1}, {"after=2026-01-01T00:00:00.000039Z", 0},
		{"before=2026-01-01T01:00:00.000002" + url.QueryEscape("+01:00"), 2}, {"before=2026-01-01T00:00:00.001Z", 40},
	} {
		found, cursor := 0, ""
		for pages := 0; ; pages++ {
			f := as[foundBody](t, d.get("ann", "/v1/search?q=lighthouse&limit=2&"+tt.query+cursor))
			if found += len(f.Data); !f.HasMore || pages > 40 {
				break
			}
			cursor = "&cursor=" + *f.Next
		}
		if found != tt.want {
			t.Errorf("%s: found %d, want %d", tt.query, found, tt.want)
		}
	}
}

func TestACursorIsOfOneSearchOfOneCaller(t *testing.T) {
	d := newDaemon(t, projection.Options{})
	for _, who := range []string{"ann", "bob", "mesh-ann"} {
		for range 3 {
			d.say(who, "x", "a lighthouse")
		}
	}
	first := as[foundBody](t, d.get("ann", "/v1/search?q=lighthouse&limit=1"))
	if !first.HasMore || first.Next == nil {
		t.Fatalf("the first page: %+v", first)
	}
	cursor := "&cursor=" + *first.Next
	if second := as[foundBody](t, d.get("ann", "/v1/search?q=lighthouse&limit=2"+cursor)); len(second.Data) != 2 || second.HasMore {
		t.Errorf("the second page: %+v", second)
	}
	for _, tt := range []struct{ who, query string }{
		{"bob", "q=lighthouse"}, {"mesh-ann", "q=lighthouse"}, {"ann", "q=Lighthouse"}, {"ann", "q=lighthouse&role=user"},
		{"ann", "q=lighthouse&sort=newest"}, {"ann", "q=lighthouse&conversation=x"}, {"ann", "q=lighthouse&after=2026-01-01T00:00:00Z"},
		{"ann", "q=lighthouse&conversation=x&before=9"},
	} {
		got := d.get(tt.who, "/v1/search?"+tt.query+cursor)
		want(t, got, 400, "invalid_parameter")
		if field := got.problem(t).Field; field != "cursor" {
			t.Errorf("%+v: the field is %q", tt, field)
		}
	}
}

// Who has nothing stored leaves nothing behind by looking, and nothing by clearing it.
func TestLookingMakesNothing(t *testing.T) {
	d := newDaemon(t, projection.Options{})
	before := len(d.disk.Files())
	for _, path := range []string{"/v1/search?q=lighthouse", "/v1/search?q=lighthouse&conversation=x", "/v1/search?q=lighthouse&sort=newest"} {
		got := d.get("ann", path)
		want(t, got, 200, "")
		if got.body != `{"object":"list","data":[],"has_more":false,"next":null}` {
			t.Errorf("%s: %s", path, got.body)
		}
	}
	for _, body := range []string{`{}`, `{"query":"where is the lighthouse","store":true}`} {
		want(t, d.post("ann", "/v1/conversations/x/recall", body), 200, "")
		want(t, d.post("ann", replayOfX, `{"recall":`+body+`}`), 200, "")
	}
	for _, path := range []string{"/v1/conversations/x", "/v1/conversations"} {
		want(t, d.send(request{method: http.MethodDelete, path: path, caller: "ann"}), 204, "")
	}
	if after := len(d.disk.Files()); after != before {
		t.Errorf("%d files, want %d: %v", after, before, d.disk.Files())
	}
	for _, dir := range []string{"index", "transcripts"} {
		if entries, err := d.disk.ReadDir(dir); len(entries) > 0 || err != nil && !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s: %v, %v", dir, entries, err)
		}
	}
}
