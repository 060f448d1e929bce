package api

import (
	"encoding/base64"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"

	"historyd/internal/pipeline"
	"historyd/internal/projection"
)

const importToX = "/v1/conversations/x/import"

// own is what import makes anew.
var own = regexp.MustCompile(`,\n *"imported": true|\n *"seq": [0-9]+,|"conversation": "[^"]*",`)

func TestWhatWasExportedIsImportedTheSame(t *testing.T) {
	d := newDaemon(t, projection.Options{UnknownTools: "keep"})
	for i := range 30 {
		want(t, d.post("ann", turns, fmt.Sprintf(`{"messages":[{"id":"m%d","role":"user","content":"a && b < %d","metadata":{"z":1,"a":1.50},"other":[1e400]},
			{"role":"assistant","content":[{"type":"thinking","text":"t","signature":"s"},{"type":"tool_call","id":"call_0","name":"f","arguments":{"n":1.0}}],"usage":{"in":null}},
			{"role":"tool","content":[{"type":"tool_result","call_id":"call_0","content":[{"type":"text","text":"r\u0000"}]}]}]}`, i, i)), 201, "")
	}
	out := d.get("ann", "/v1/conversations/x/export")
	want(t, out, 200, "")
	if out.header.Get("Content-Disposition") != `attachment; filename="x.json"` || out.header.Get("ETag") == "" ||
		!strings.HasPrefix(out.body, "{\n  \"version\": 1,\n  \"type\": \"historyd.history\",\n  \"conversation\": \"x\",\n  \"created_at\": \"") ||
		!strings.Contains(out.body, "\n  \"messages\": [\n    {\n      \"id\": \"") || !strings.Contains(out.body, "\n  ],\n  \"summary\": {\n    \"text\": ") || !strings.HasSuffix(out.body, "\n  }\n}\n") {
		t.Errorf("export: %v\n%.600s", out.header, out.body)
	}
	in := d.post("bob", "/v1/conversations/y/import", out.body)
	want(t, in, 201, "")
	if in.body != `{"imported":90,"skipped":[],"repaired":[],"last_seq":90}` {
		t.Errorf("import: %s", in.body)
	}
	back := d.get("bob", "/v1/conversations/y/export")
	if a, b := own.ReplaceAllString(out.body, ""), own.ReplaceAllString(back.body, ""); a != b {
		t.Errorf("the value changed\n%.2000s\n%.2000s", a, b)
	}
	again := d.post("bob", "/v1/conversations/y/import?mode=append", out.body)
	if a := as[importReply](t, again); a.Imported != 0 || len(a.Skipped) != 90 || a.LastSeq != 90 {
		t.Errorf("again: %.200s", again.body)
	}
	want(t, d.post("bob", "/v1/conversations/y/import", out.body), 409, "conversation_not_empty")
	if r := d.get("bob", "/v1/conversations/y/replay"); strings.ReplaceAll(r.body, `,"imported":true`, "") != strings.Replace(d.get("ann", replayOfX).body, `"conversation":"x"`, `"conversation":"y"`, 1) {
		t.Error("the replays differ")
	}
}

func TestExportsOfOtherFormats(t *testing.T) {
	d := newDaemon(t, projection.Options{UnknownTools: "keep"})
	list := `[{"role":"system","content":"s"},{"role":"user","content":"hi"},{"role":"assistant","content":null,"tool_calls":[{"id":"c","type":"function","function":{"name":"f","arguments":"{}"}}]},{"role":"tool","content":"r","tool_call_id":"c"}]`
	want(t, d.post("ann", importToX+"?format=openai", list), 201, "")
	if got := d.get("ann", "/v1/conversations/x/export?format=openai"); got.body != list || got.header.Get("Content-Disposition") != `attachment; filename="x.json"` {
		t.Errorf("openai: %s", got.body)
	}
	lines := d.get("ann", "/v1/conversations/x/export?format=jsonl")
	if lines.header.Get("Content-Type") != "application/x-ndjson" || strings.Count(lines.body, "\n") != 4 || !strings.HasPrefix(lines.body, `{"id":"imp_`) {
		t.Errorf("jsonl: %s", lines.body)
	}
	ndjson := http.Header{"Content-Type": {"application/x-ndjson"}}
	for i, query := range []string{"?format=jsonl", "", "?format=native"} {
		to := fmt.Sprintf("/v1/conversations/y%d", i)
		want(t, d.send(request{method: "POST", path: to + "/import" + query, caller: "ann", body: lines.body, header: ndjson}), 201, "")
		if got := d.get("ann", to+"/export?format=openai"); got.body != list {
			t.Errorf("lines, %s: %s", query, got.body)
		}
	}
	want(t, d.send(request{method: "POST", path: "/v1/conversations/z/import?format=openai", caller: "ann", body: "{\"role\":\"user\",\"content\":\"a\"}\n\n{\"role\":\"user\",\"content\":\"b\"}", header: ndjson}), 201, "")
	want(t, d.post("ann", importToX+"?format=jsonl", lines.body), 415, "unsupported_media_type")
	want(t, d.post("ann", importToX+"?format=tar", "{}"), 415, "unsupported_media_type")
	want(t, d.send(request{method: "POST", path: importToX + "?format=gemini", caller: "ann", body: "x", header: http.Header{"Content-Type": {"application/x-tar"}}}), 415, "unsupported_media_type")
	want(t, d.send(request{method: "POST", path: importToX, caller: "ann", body: "{}", header: http.Header{"Content-Type": {"text/plain"}}}), 415, "unsupported_media_type")
	want(t, d.get("ann", "/v1/conversations/none/export?format=tar"), 404, "not_found")
	want(t, d.get("ann", "/v1/conversations/none/export"), 404, "not_found")
	want(t, d.get("ann", "/v1/conversations/x/export?format=xml"), 406, "unsupported_format")
	if got := d.send(request{method: "HEAD", path: "/v1/conversations/x/export", caller: "ann"}); got.status != 200 || got.header.Get("Content-Disposition") == "" {
		t.Errorf("HEAD: %d %v", got.status, got.header)
	}
}

func TestALongExportIsStreamed(t *testing.T) {
	d := newDaemon(t, projection.Options{})
	text := strings.Repeat("long ", 50_000)
	for range 8 {
		d.say("ann", "x", text)
	}
	for _, query := range []string{"", "?format=openai", "?format=jsonl"} {
		got := d.get("ann", "/v1/conversations/x/export"+query)
		if got.status != 200 || strings.Count(got.body, text) != 8 || got.header.Get("Content-Length") != "" {
			t.Errorf("%q: %d, %d bytes, Content-Length %q", query, got.status, len(got.body), got.header.Get("Content-Length"))
		}
	}
}

func TestFaultsOfADocumentAreToldAtOnce(t *testing.T) {
	d := newDaemon(t, projection.Options{})
	doc := func(messages string) string {
		return `{"version":1,"type":"historyd.history","conversation":"x","created_at":"2026-01-02T03:04:05Z","messages":[` + messages + `]}`
	}
	for _, tt := range []struct {
		name, body string
		paths      []string
	}{
		{"a newer version", `{"version":2,"type":"historyd.history","messages":[]}`, []string{"version"}},
		{"no version", `{"type":"historyd.history","messages":[]}`, []string{"version"}},
		{"a version of another type", `{"version":"1","type":"historyd.history","messages":[]}`, []string{"version"}},
		{"messages that are no list", `{"version":1,"type":"historyd.history","messages":{}}`, []string{"messages"}},
		{"bad messages", doc(`{"role":"king","content":"x"},{"role":"user","content":[{"type":"x"}]},{"role":"user","content":"x","at":"yesterday"}`), []string{"messages[0].role", "messages[1].content[0].type", "messages[2].at"}},
		{"of shape, and of the whole", doc(`{"id":"a","role":"user","content":"x"},{"role":"assistant","content":[{"type":"tool_call","id":"c","name":"f","arguments":{}}]},
			{"role":"tool","content":[{"type":"tool_result","call_id":"c","content":"x"}]},{"role":"king","content":"x"},{"role":"assistant","content":"x"},
			{"role":"tool","content":[{"type":"tool_result","call_id":"c","content":"x"},{"type":"tool_result","content":"x"}]},{"id":"a","role":"user","content":"x"}`),
			[]string{"messages[3].role", "messages[5].content[1].call_id", "messages[5].content[0]", "messages[6]"}},
		{"twice the same id, and an orphan", doc(`{"id":"a","role":"user","content":"x"},{"id":"a","role":"user","content":"x"},{"role":"tool","content":[{"type":"tool_result","call_id":"c","content":"canary"}]}`), []string{"messages[1]", "messages[2].content[0]"}},
	} {
		got := d.post("ann", importToX, tt.body)
		want(t, got, 422, "invalid_history")
		var paths []string
		for _, e := range got.problem(t).Errors {
			paths = append(paths, e.Path)
		}
		if !slices.Equal(paths, tt.paths) || strings.Contains(got.body, "canary") {
			t.Errorf("%s: %s", tt.name, got.body)
		}
	}
	many := doc(strings.TrimSuffix(strings.Repeat(`{"role":"king","content":"x"},`, 150), ","))
	if got := d.post("ann", importToX, many); len(got.problem(t).Errors) != 100 {
		t.Errorf("%d faults told", len(got.problem(t).Errors))
	}
	want(t, d.post("ann", importToX, doc(`{"role":"user","content":"x"},`)), 400, "invalid_json")
	want(t, d.get("ann", "/v1/conversations/x"), 404, "not_found")

	mendable := doc(`{"id":"a","role":"user","content":"x"},{"id":"a","role":"user","content":"x"},{"role":"tool","content":[{"type":"tool_result","call_id":"c","content":"y"}]}`)
	got := d.post("ann", importToX+"?repair=true", mendable)
	want(t, got, 201, "")
	if !strings.HasPrefix(got.body, `{"imported":1,"skipped":[],"repaired":[{"path":"messages[1]","code":"duplicate_id","detail":"`) {
		t.Errorf("repaired: %s", got.body)
	}
	for _, query := range []string{"repair=yes", "repair=", "repair=TRUE", "repair=1", "mode=merge", "mode=", "mode=create&mode=create"} {
		want(t, d.post("ann", importToX+"?"+query, mendable), 400, "invalid_parameter")
	}
}

// TestBadLinesAndElementsAreToldWithAllOthers sends documents of which some cannot be read.
func TestBadLinesAndElementsAreToldWithAllOthers(t *testing.T) {
	d := newDaemon(t, projection.Options{})
	const good, king, call, result = `{"role":"user","content":"x"}`, `{"role":"king","content":"x"}`,
		`{"role":"assistant","content":[{"type":"tool_call","id":"c","name":"f","arguments":{},"arguments":1}]}`,
		`{"role":"tool","content":[{"type":"tool_result","call_id":"c","content":"y"}]}`
	doc := func(messages string) string {
		return `{"version":1,"type":"historyd.history","tool_categories":7,"messages":[` + messages + `]}`
	}
	ndjson := http.Header{"Content-Type": {"application/x-ndjson"}}
	for _, tt := range []struct {
		name, body string
		lines      bool
		status     int
		code, want string // paths and codes
	}{
		{"one bad line", good + "\n{\n" + good, true, 400, "invalid_json", "messages[1] invalid_json"},
		{"bad lines", "{\n" + good + "\n{} {}\n" + call, true, 400, "invalid_json", "messages[0] invalid_json messages[2] invalid_json messages[3] invalid_json"},
		{"a torn tail", good + "\n" + good[:8], true, 400, "invalid_json", "messages[1] invalid_json"},
		{"and other faults", "{\n" + king + "\n" + good[:8], true, 422, "invalid_history", "messages[0] invalid_json messages[1].role invalid_message messages[2] invalid_json"},
		{"a result of a call that nobody can read", call + "\n" + result, true, 400, "invalid_json", "messages[0] invalid_json"},
		{"a result of no call before that", result + "\n" + call + "\n" + result, true, 422, "invalid_history", "messages[1] invalid_json messages[0].content[0] invalid_message"},
		{"elements", doc(call + "," + king + "," + result), false, 422, "invalid_history", "tool_categories invalid_message messages[0] invalid_json messages[1].role invalid_message"},
		{"an attachment that nobody can read", doc(call + `,{"role":"user","content":[{"type":"image","attachment":"sha256:` + strings.Repeat("a", 64) + `"}]}`), false, 422, "invalid_history", "tool_categories invalid_message messages[0] invalid_json"},
		{"a torn document", doc(call + "," + king + `,{"role":`), false, 422, "invalid_history", "tool_categories invalid_message messages[0] invalid_json messages[1].role invalid_message messages[2] invalid_json"},
	} {
		r := request{method: "POST", path: importToX, caller: "ann", body: tt.body}
		if tt.lines {
			r.header = ndjson
		}
		got := d.send(r)
		want(t, got, tt.status, tt.code)
		p, told := got.problem(t), ""
		for _, e := range p.Errors {
			told += " " + e.Path + " " + e.Code
		}
		if strings.TrimSpace(told) != tt.want || p.Field != p.Errors[0].Path || p.Offset == nil {
			t.Errorf("%s: %s", tt.name, got.body)
		}
	}
	big := `{"role":"user","content":"` + strings.Repeat("x", 5<<20) + `"}`
	got := d.send(request{method: "POST", path: importToX, caller: "ann", body: big + "\n" + good + "\n" + big, header: ndjson})
	want(t, got, 413, "message_too_large")
	if p := got.problem(t); len(p.Errors) != 2 || p.Field != "messages[0]" || p.Limit == nil || p.Actual == nil || *p.Actual != int64(len(big)) {
		t.Errorf("two large lines: %s", got.body)
	}
	want(t, d.get("ann", "/v1/conversations/x"), 404, "not_found")
}

// TestWhatIsLostIsMendedInImportsAndForks loses a picture of a conversation that is then
// exported and forked.
func TestWhatIsLostIsMendedInImportsAndForks(t *testing.T) {
	d := newDaemon(t, projection.Options{})
	picture := base64.StdEncoding.EncodeToString([]byte("picture"))
	want(t, d.post("ann", "/v1/conversations/x/turns", `{"messages":[{"role":"user","content":[{"type":"text","text":"see"},{"type":"image","media_type":"image/png","data":"`+picture+`"}]},{"role":"assistant","content":"yes"}]}`), 201, "")
	for name := range d.disk.Files() {
		if strings.Contains(name, "/attachments/") {
			d.disk.Corrupt(name, func(was []byte) []byte { return append(was[1:], '!') })
		}
	}
	got := d.post("ann", "/v1/conversations/x/fork", `{"to":"y"}`)
	want(t, got, 201, "")
	if !strings.HasSuffix(strings.TrimSpace(got.body), `"messages":2,"last_seq":2,"repaired":[{"seq":1,"code":"missing_attachment","detail":"the bytes of an attachment are lost: a text says so in its place"}],"damaged":{"places":1,"bytes":0,"lost":0,"attachments":1}}`) {
		t.Errorf("the fork answers %s", got.body)
	}
	again := d.post("ann", "/v1/conversations/y/fork", `{"to":"z"}`)
	want(t, again, 201, "")
	if strings.Contains(again.body, "repaired") {
		t.Errorf("the fork of the fork answers %s", again.body)
	}
	for format, media := range map[string]string{"native": "application/json", "tar": "application/x-tar", "jsonl": "application/x-ndjson"} {
		export := d.get("ann", "/v1/conversations/x/export?format="+format)
		want(t, export, 200, "")
		to := request{method: "POST", path: "/v1/conversations/" + format + "/import?format=" + format, caller: "ann", body: export.body, header: http.Header{"Content-Type": {media}}}
		refused := d.send(to)
		want(t, refused, 422, "invalid_history")
		if p := refused.problem(t); p.Field != "messages[0].content[1].attachment" || !strings.Contains(p.Detail, "repair=true") {
			t.Errorf("%s: %s", format, refused.body)
		}
		to.path += "&repair=true"
		done := d.send(to)
		want(t, done, 201, "")
		if r := as[importReply](t, done); r.Imported != 2 || len(r.Repaired) != 1 || r.Repaired[0].Code != "missing_attachment" || r.Repaired[0].Path != "messages[0].content[1].attachment" {
			t.Errorf("%s: %s", format, done.body)
		}
		replay := d.get("ann", "/v1/conversations/"+format+"/replay?mode=full&format=openai")
		if !strings.Contains(replay.body, "[image: its bytes are missing]") {
			t.Errorf("%s: the replay is %s", format, replay.body)
		}
		if page := d.get("ann", "/v1/conversations/"+format+"/messages"); !strings.Contains(page.body, `,"synthetic":true,"extra":{"missing":{"type":"image","media_type":"image/png","attachment":"sha256:`) {
			t.Errorf("%s: the page is %s", format, page.body)
		}
		want(t, d.post("ann", "/v1/conversations/again-"+format+"/import", d.get("ann", "/v1/conversations/"+format+"/export").body), 201, "")
	}
	for _, format := range []string{"openai", "anthropic", "responses", "gemini"} { // where it is a block of ours, and opaque
		want(t, d.post("ann", "/v1/conversations/"+format+"/import?format="+format, d.get("ann", "/v1/conversations/x/export?format="+format).body), 201, "")
	}
}

func TestADocumentWithoutMessagesMakesNoConversation(t *testing.T) {
	d := newDaemon(t, projection.Options{})
	const native, orphan = `{"version":1,"type":"historyd.history","messages":[]}`, `{"version":1,"type":"historyd.history","messages":[{"role":"tool","content":[{"type":"tool_result","call_id":"c","content":"x"}]}]}`
	for _, tt := range []struct{ query, body string }{
		{"", native}, {"format=openai", "[]"}, {"format=anthropic", `{"messages":[]}`}, {"format=responses", "[]"}, {"format=gemini", `{"contents":[]}`}, {"repair=true", orphan},
	} {
		for _, mode := range []string{"create", "append", "replace"} {
			got := d.post("ann", importToX+"?mode="+mode+"&"+tt.query, tt.body)
			if mode == "replace" {
				want(t, got, 422, "invalid_history")
				if told := got.problem(t).Errors; len(told) != 1 || told[0].Path != "messages" || !strings.Contains(told[0].Detail, "clear the conversation") {
					t.Errorf("%s: %s", tt.query, got.body)
				}
			} else {
				want(t, got, 201, "")
				if r := as[importReply](t, got); r.Imported != 0 || r.LastSeq != 0 || (len(r.Repaired) == 1) != (tt.body == orphan) || got.header.Get("ETag") != `"0-0"` {
					t.Errorf("%s %s: %s %s", mode, tt.query, got.body, got.header)
				}
			}
			want(t, d.get("ann", "/v1/conversations/x"), 404, "not_found")
		}
	}
	d.say("ann", "x", "there")
	etag := d.get("ann", "/v1/conversations/x").header.Get("ETag")
	got := d.post("ann", importToX+"?mode=append", native)
	want(t, got, 201, "")
	if r := as[importReply](t, got); r.LastSeq != 2 || got.header.Get("ETag") != etag {
		t.Errorf("append to what is there: %s %s, want %s", got.body, got.header, etag)
	}
	want(t, d.post("ann", importToX+"?mode=create", native), 409, "conversation_not_empty")
	want(t, d.post("ann", importToX+"?mode=replace", native), 422, "invalid_history")
	if now := d.get("ann", "/v1/conversations/x").header.Get("ETag"); now != etag {
		t.Errorf("ETag %s, want %s", now, etag)
	}
}

func TestAnImportOfTheBodyOfAnAppendNeedsAFormat(t *testing.T) {
	d := newDaemon(t, projection.Options{})
	body := `{"messages":[{"role":"user","content":"x"}]}`
	got := d.post("ann", importToX, body)
	want(t, got, 422, "invalid_history")
	if p := got.problem(t); p.Field != "version" || !strings.Contains(p.Detail, "format=openai") {
		t.Errorf("without a format: %s", got.body)
	}
	if got = d.post("ann", importToX, `{}`); strings.Contains(got.body, "format=") {
		t.Errorf("of nothing: %s", got.body)
	}
	want(t, d.post("ann", importToX+"?format=openai", body), 201, "")
}

func TestAnImportKeepsWhatTheFileSaysAndNobodysScope(t *testing.T) {
	d := newDaemon(t, projection.Options{})
	body := `{"version":1,"type":"historyd.history","conversation":"another","created_at":"2020-01-02T03:04:05.000006Z","messages":[
		{"id":"keep-me","seq":77,"at":"2020-01-02T03:04:05+05:30","role":"user","content":"x","metadata":{"k":"v"}},{"at":"2020-01-02T03:04:06","role":"user","content":"y"}]}`
	want(t, d.post("ann", importToX, body), 201, "")
	got := d.get("ann", "/v1/conversations/x/messages").body
	for _, want := range []string{`"id":"keep-me"`, `"seq":1`, `"at":"2020-01-01T21:34:05.000000Z"`, `"metadata":{"k":"v"}`, `"imported":true`, `"at":"2020-01-02T03:04:06.000000Z","tz_assumed":true`} {
		if !strings.Contains(got, want) {
			t.Errorf("%s is not in %s", want, got)
		}
	}
	if got := d.get("ann", "/v1/conversations/x").body; !strings.Contains(got, `"created_at":"2020-01-02T03:04:05.000006Z"`) {
		t.Errorf("got %s", got)
	}
	want(t, d.get("ann", "/v1/conversations/another"), 404, "not_found")
}

// What an export says of tools must not make its import withhold what was kept.
func TestAnExportIsNoStricterThanItsRecord(t *testing.T) {
	d := newDaemon(t, projection.Options{})
	for _, turn := range []struct{ id, category string }{{"c1", `"*":"general"`}, {"c0", `"tx":"wallet"`}} {
		want(t, d.post("ann", turns, fmt.Sprintf(`{"messages":[{"role":"assistant","content":[{"type":"tool_call","id":%q,"name":"tx","arguments":{"a":"value"}}]},
			{"role":"tool","content":[{"type":"tool_result","call_id":%q,"content":"result"}]}],"tool_categories":{%s}}`, turn.id, turn.id, turn.category)), 201, "")
	}
	out := d.get("ann", "/v1/conversations/x/export")
	if !strings.Contains(out.body, `"tx": "general"`) || strings.Count(out.body, `"value"`) != 1 || strings.Count(out.body, "_withheld") != 1 {
		t.Fatalf("export: %s", out.body)
	}
	in := d.post("bob", "/v1/conversations/y/import", out.body)
	if in.body != `{"imported":4,"skipped":[],"repaired":[],"last_seq":4}` {
		t.Errorf("import: %s", in.body)
	}
	back := d.get("bob", "/v1/conversations/y/export")
	if a, b := own.ReplaceAllString(out.body, ""), own.ReplaceAllString(back.body, ""); a != b {
		t.Errorf("the value changed\n%s\n%s", a, b)
	}
	// A result that comes late for the withheld call is withheld, whatever the import said.
	want(t, d.post("bob", "/v1/conversations/y/turns", `{"messages":[{"role":"tool","content":[{"type":"tool_result","call_id":"c0","content":"canary"}]}]}`), 201, "")
	if got := d.get("bob", "/v1/conversations/y/messages").body; strings.Contains(got, "canary") {
		t.Errorf("a late result is kept: %s", got)
	}
}

func TestImportsOfTheSameFileOrALongerOne(t *testing.T) {
	d := newDaemon(t, projection.Options{})
	const path = importToX + "?format=openai&mode=append"
	messages := []string{`{"role":"user","content":"a"}`, `{"role":"assistant","content":"b"}`, `{"role":"user","content":"a"}`, `{"role":"assistant","content":"b"}`}
	list := func(n int) string { return "[" + strings.Join(messages[:n], ",") + "]" }
	first := d.post("ann", path, list(2), "Idempotency-Key", "k")
	again := d.post("ann", path, list(2), "Idempotency-Key", "k")
	if first.body != again.body || again.header.Get("Idempotent-Replayed") != "true" {
		t.Errorf("again %s", again.body)
	}
	want(t, d.post("ann", path, list(3), "Idempotency-Key", "k"), 422, "idempotency_mismatch")
	for n, added := range map[int]int64{2: 0, 4: 2} {
		if n == 4 {
			continue
		}
		if a := as[importReply](t, d.post("ann", path, list(n))); a.Imported != added {
			t.Errorf("%d messages: %+v", n, a)
		}
	}
	longer := as[importReply](t, d.post("ann", path, list(4)))
	if longer.Imported != 2 || longer.LastSeq != 4 || len(longer.Skipped) != 2 || longer.Skipped[0].Index != 0 {
		t.Errorf("longer: %+v", longer)
	}
	if a := as[importReply](t, d.post("ann", path, list(4))); a.Imported != 0 || !slices.EqualFunc(a.Skipped, []int{0, 1, 2, 3}, func(s pipeline.Skipped, i int) bool { return s.Index == int64(i) }) {
		t.Errorf("again: %+v", a)
	}
}

func TestAnImportTellsWhatProjectionAltered(t *testing.T) {
	d := newDaemon(t, projection.Options{})
	got := d.post("ann", importToX+"?format=openai", `[{"role":"assistant","content":null,"tool_calls":[{"id":"c","type":"function","function":{"name":"f","arguments":"{\"a\":\"canary-value\"}"}}]}]`)
	if got.body != `{"imported":1,"skipped":[],"repaired":[],"last_seq":1,"changed":{"redacted":1}}` {
		t.Errorf("got %s", got.body)
	}
}

func TestAnArchiveThatIsNoneIsCalledSo(t *testing.T) {
	d := newDaemon(t, projection.Options{})
	want(t, d.post("ann", "/v1/conversations/y/turns", `{"messages":[{"role":"user","content":"a"}]}`), 201, "")
	whole := d.get("ann", "/v1/conversations/y/export?format=tar").body
	for name, body := range map[string]string{
		"rubbish": strings.Repeat("x", 2000), "a document": `{"version":1,"type":"historyd.history","messages":[]}`,
		"short rubbish": "x", "nothing": "", "torn": whole[:len(whole)/2], "with more behind it": whole + "x",
	} {
		got := d.send(request{method: "POST", path: importToX + "?format=tar", caller: "ann", body: body, header: http.Header{"Content-Type": {"application/x-tar"}}})
		want(t, got, 422, "invalid_history")
		if p := got.problem(t); !strings.Contains(p.Detail, "archive") || p.Offset == nil {
			t.Errorf("%s: %s", name, got.body)
		}
	}
}

func TestATurnThatNamesWhatIsNotThereSaysWhere(t *testing.T) {
	d := newDaemon(t, projection.Options{UnknownTools: "keep"})
	image := `{"type":"image","media_type":"image/png","attachment":"sha256:` + strings.Repeat("0", 64) + `"}`
	for path, messages := range map[string]string{
		"messages[1].content[1].attachment":            `{"role":"user","content":"a"},{"role":"user","content":[{"type":"text","text":"b"},` + image + `]}`,
		"messages[1].content[0].content[0].attachment": `{"role":"assistant","content":[{"type":"tool_call","id":"c","name":"f","arguments":{}}]},{"role":"tool","content":[{"type":"tool_result","call_id":"c","content":[` + image + `]}]}`,
	} {
		got := d.post("ann", "/v1/conversations/x/turns", `{"messages":[`+messages+`]}`)
		want(t, got, 400, "invalid_message")
		if p := got.problem(t); p.Field != path || !strings.Contains(p.Detail, "send its bytes") {
			t.Errorf("field %q, want %q: %s", p.Field, path, got.body)
		}
	}
}
