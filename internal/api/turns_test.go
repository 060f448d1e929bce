package api

import (
	"encoding/json/jsontext"
	"encoding/json/v2"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	"historyd/internal/history"
	"historyd/internal/pipeline"
	"historyd/internal/projection"
)

// appendReply is the answer to an append, as the contract has it.
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

func TestTheAnswerToAnAppend(t *testing.T) {
	whole := pipeline.Change{Seq: 3, Block: 1, Action: "redacted", Category: "wal\"let", Reason: "r", OriginalChars: 9}
	for _, done := range []pipeline.Recorded{
		{},
		{Receipt: history.Receipt{FirstSeq: 3, LastSeq: 4, IDs: []string{"a", "b"}}, Changes: []pipeline.Change{whole, {Seq: 4, Action: "dropped"}}},
	} {
		c := pipeline.Conversation{Name: "x~1"}
		want, err := json.Marshal(appended(c, done))
		must(t, err)
		if got := appendRecorded(nil, c, &done); string(got) != string(want) {
			t.Errorf("got %s, want %s", got, want)
		}
	}
}

const turns = "/v1/conversations/x/turns"

func TestAppendAnswersAsTheContractSays(t *testing.T) {
	d := newDaemon(t, projection.Options{})
	first := d.post("ann", turns, `{"messages":[{"role":"user","content":"a && b < c"},
		{"role":"assistant","content":[{"type":"tool_call","id":"c1","name":"who_knows","arguments":{"a":"value"}}]},
		{"role":"tool","content":[{"type":"tool_result","call_id":"c1","content":"secret"}]}]}`)
	want(t, first, 201, "")
	a := as[appendReply](t, first)
	wantBody := fmt.Sprintf(`{"conversation":"x","first_seq":1,"last_seq":3,"messages":[{"id":%q,"seq":1},{"id":%q,"seq":2},{"id":%q,"seq":3}],`+
		`"changes":[{"seq":2,"block":0,"action":"redacted","category":"unknown","reason":"unknown_tool"},{"seq":3,"block":0,"action":"redacted","category":"unknown","reason":"unknown_tool"}]}`,
		a.Messages[0].ID, a.Messages[1].ID, a.Messages[2].ID)
	if first.body != wantBody {
		t.Errorf("got %s\nwant %s", first.body, wantBody)
	}
	second := d.post("ann", turns, `{"messages":[{"role":"user","content":"x"}]}`)
	if b := as[appendReply](t, second); b.FirstSeq != 4 || b.Changes == nil {
		t.Errorf("second: %s", second.body)
	}
	if tag := second.header.Get("ETag"); !strings.HasSuffix(tag, `-4"`) || tag != d.get("ann", "/v1/conversations/x").header.Get("ETag") {
		t.Errorf("ETag %s", tag)
	}
	if page := d.get("ann", "/v1/conversations/x/messages"); !strings.Contains(page.body, `"a && b < c"`) {
		t.Errorf("escaped: %s", page.body)
	}
}

func TestAnAppendOfTheOtherFormat(t *testing.T) {
	d := newDaemon(t, projection.Options{UnknownTools: "keep"})
	text := `{ \"id\": 2512292042121000001, \"x\":1.0,\"y\":1e400}`
	got := d.post("ann", turns+"?format=openai", `{"messages":[{"role":"user","content":"hi"},{"role":"assistant","content":null,"tool_calls":[{"id":"call_0","type":"function","function":{"name":"f","arguments":"`+text+`"}}]},{"role":"tool","tool_call_id":"call_0","content":"ok"}]}`)
	want(t, got, 201, "")
	if out := d.get("ann", "/v1/conversations/x/export?format=openai"); !strings.Contains(out.body, `"arguments":"`+text+`"`) {
		t.Errorf("export: %s", out.body)
	}
}

func TestIdempotencyKeys(t *testing.T) {
	d := newDaemon(t, projection.Options{})
	body := `{"messages":[{"role":"user","content":"hi"},{"role":"assistant","content":[{"type":"tool_call","id":"c","name":"f","arguments":{"a":"value"}}]}]}`
	d.say("ann", "x", "before")
	first := d.post("ann", turns, body, "Idempotency-Key", "k-1")
	want(t, first, 201, "")
	d.say("ann", "x", "between")
	again := d.post("ann", turns, body, "Idempotency-Key", "k-1")
	if again.status != 201 || again.body != first.body || again.header.Get("ETag") != first.header.Get("ETag") || again.header.Get("Idempotent-Replayed") != "true" || first.header.Get("Idempotent-Replayed") != "" {
		t.Errorf("again %d %s\nfirst %s", again.status, again.body, first.body)
	}
	want(t, d.post("ann", turns, `{"messages":[{"role":"user","content":"ho"}]}`, "Idempotency-Key", "k-1"), 422, "idempotency_mismatch")
	if other := d.post("bob", turns, body, "Idempotency-Key", "k-1"); other.header.Get("Idempotent-Replayed") != "" {
		t.Error("a key of another caller counted")
	}
	want(t, d.post("ann", turns, body, "Idempotency-Key", strings.Repeat("k", 255)), 201, "")
	for _, key := range []string{"", strings.Repeat("k", 256), "a b", "k\u00e9", "a\tb"} {
		want(t, d.post("ann", turns, body, "Idempotency-Key", key), 400, "invalid_parameter")
	}
	want(t, d.post("ann", turns, body, "Idempotency-Key", "a", "Idempotency-Key", "b"), 400, "invalid_parameter")
}

func TestOneOfManyConditionalAppendsWins(t *testing.T) {
	d := newDaemon(t, projection.Options{})
	d.say("ann", "x", "begin")
	tag := d.get("ann", "/v1/conversations/x").header.Get("ETag")
	var wg sync.WaitGroup
	statuses := make([]int, 16)
	for i := range statuses {
		wg.Go(func() {
			statuses[i] = d.post("ann", turns, `{"messages":[{"role":"user","content":"mine"}]}`, "If-Match", tag).status
		})
	}
	wg.Wait()
	slices.Sort(statuses)
	if statuses[0] != 201 || statuses[1] != 412 {
		t.Errorf("statuses %v", statuses)
	}
	if n := len(as[pageBody](t, d.get("ann", "/v1/conversations/x/messages")).Data); n != 3 {
		t.Errorf("%d messages", n)
	}
}

func TestConditions(t *testing.T) {
	d := newDaemon(t, projection.Options{})
	body := `{"messages":[{"role":"user","content":"hi"}]}`
	for _, tt := range []struct {
		match string // CURRENT stands for the ETag
		code  string
	}{
		{`*`, "precondition_failed"}, {`"0-1"`, "precondition_failed"}, {`"0-0"`, ""},
		{`*`, ""}, {`"0-0"`, "precondition_failed"}, {`CURRENT`, ""}, {`"x", CURRENT`, ""}, {`"x",W/"y" , CURRENT,`, ""},
		{`W/CURRENT`, "precondition_failed"}, {`"x"`, "precondition_failed"}, {``, "invalid_parameter"}, {`x`, "invalid_parameter"}, {`"x`, "invalid_parameter"}, {`"x" "y"`, "invalid_parameter"}, {`*, "x"`, "invalid_parameter"},
	} {
		tag := d.get("ann", "/v1/conversations/x").header.Get("ETag")
		got := d.post("ann", turns, body, "If-Match", strings.ReplaceAll(tt.match, "CURRENT", tag))
		status := map[string]int{"": 201, "precondition_failed": 412, "invalid_parameter": 400}[tt.code]
		want(t, got, status, tt.code)
	}
	for _, r := range []request{{method: "DELETE", path: "/v1/conversations/x"}, {method: "DELETE", path: "/v1/conversations"}, {method: "POST", path: "/v1/conversations/x/import", body: "{}"}} {
		r.caller, r.header = "ann", http.Header{"If-Match": {`"x"`}}
		want(t, d.send(r), 400, "invalid_parameter")
	}
}

// A message of so many bytes in a body of so many.
func bodyOf(size int) string {
	frame := `{"messages":[{"role":"user","content":""}]}`
	return strings.Replace(frame, `""`, `"`+strings.Repeat("x", size-len(frame))+`"`, 1)
}

func TestLimitsAreExact(t *testing.T) {
	const limit = 10_000
	d := newDaemon(t, projection.Options{}, func(o *Options) { o.Limits = Limits{Body: limit, Message: limit, Import: limit} })
	for _, chunked := range []bool{false, true} {
		for _, path := range []string{turns, "/v1/conversations/x/import?format=openai&mode=replace", "/v1/conversations/x/replay"} {
			for _, size := range []int{limit - 1, limit, limit + 1, 3 * limit} {
				r := request{method: "POST", path: path, caller: "ann", body: bodyOf(size), chunked: chunked}
				if strings.HasSuffix(path, "replay") {
					r.body = `{"granted":["` + strings.Repeat("x", size-len(`{"granted":[""]}`)) + `"]}`
				}
				before := d.get("ann", "/v1/conversations/x").body
				got := d.send(r)
				if size <= limit {
					if got.status >= 300 {
						t.Errorf("%d bytes, chunked %t, to %s: %d %s", size, chunked, path, got.status, got.body)
					}
					continue
				}
				want(t, got, 413, "body_too_large")
				if p := got.problem(t); p.Limit == nil || *p.Limit != limit || (p.Actual == nil) != chunked || p.Actual != nil && *p.Actual != int64(size) {
					t.Errorf("%d bytes, chunked %t: %s", size, chunked, got.body)
				}
				hint := map[string]string{"turns": "use import for a whole conversation; limits.body is the limit", "replace": "limits.import is the limit", "replay": "send less at a time"}
				if end := path[strings.LastIndexAny(path, "/=")+1:]; !strings.HasSuffix(got.problem(t).Detail, hint[end]) {
					t.Errorf("%d bytes to %s: %s, want %q", size, path, got.body, hint[end])
				}
				if after := d.get("ann", "/v1/conversations/x").body; after != before {
					t.Errorf("%d bytes, chunked %t, to %s: what was refused made it %s, was %s", size, chunked, path, after, before)
				}
			}
		}
	}
}

func TestTheLimitOfAMessageIsExact(t *testing.T) {
	const limit = 1000
	d := newDaemon(t, projection.Options{}, func(o *Options) { o.Limits.Message = limit })
	for _, size := range []int{limit - 1, limit, limit + 1} {
		m := `{"role":"user","content":"` + strings.Repeat("x", size-len(`{"role":"user","content":""}`)) + `"}`
		got := d.post("ann", turns, `{"messages":[{"role":"user","content":"ok"},`+m+`]}`)
		if size <= limit {
			want(t, got, 201, "")
			continue
		}
		want(t, got, 413, "message_too_large")
		if p := got.problem(t); p.Field != "messages[1]" || *p.Limit != limit || *p.Actual != int64(size) {
			t.Errorf("%s", got.body)
		}
	}
	if n := len(as[pageBody](t, d.get("ann", "/v1/conversations/x/messages")).Data); n != 4 {
		t.Errorf("a refused request left something: %d messages", n)
	}
}

// An import has room for what an export writes around what was appended, and for no more.
func TestTheLimitOfAMessageHoldsForImports(t *testing.T) {
	const limit = 1000
	d := newDaemon(t, projection.Options{}, func(o *Options) { o.Limits.Message = limit })
	for name, body := range map[string]string{
		importToX + "?format=openai": `[{"role":"user","content":"ok"},{"role":"user","content":"` + strings.Repeat("x", 20*limit) + `"}]`,
		importToX:                    `{"version":1,"type":"historyd.history","messages":[{"role":"user","content":"ok"},{"role":"user","content":"` + strings.Repeat("x", 20*limit) + `"}]}`,
	} {
		got := d.post("ann", name, body)
		want(t, got, 413, "message_too_large")
		if p := got.problem(t); p.Field != "messages[1]" || *p.Limit != limit || *p.Actual <= 20*limit {
			t.Errorf("%s: %s", name, got.body)
		}
	}
	want(t, d.get("ann", "/v1/conversations/x"), 404, "not_found")
}

func TestBodiesNeedTheirContentType(t *testing.T) {
	d := newDaemon(t, projection.Options{})
	body := `{"messages":[{"role":"user","content":"hi"}]}`
	for _, tt := range []struct {
		types    []string
		encoding string
		status   int
	}{
		{[]string{"application/json"}, "", 201}, {[]string{"application/json; charset=utf-8"}, "", 201}, {[]string{"Application/JSON;charset=UTF-8"}, "", 201}, {[]string{"application/json"}, "identity", 201},
		{[]string{""}, "", 415}, {[]string{"text/plain"}, "", 415}, {[]string{"application/x-www-form-urlencoded"}, "", 415}, {[]string{"multipart/form-data"}, "", 415},
		{[]string{"application/json; charset=latin1"}, "", 415}, {[]string{"application/json", "text/plain"}, "", 415}, {[]string{"application/json;;"}, "", 415},
		{[]string{"application/x-ndjson"}, "", 415}, {[]string{"application/json"}, "gzip", 415}, {[]string{"application/json+x"}, "", 415}, {[]string{}, "", 415},
	} {
		h := http.Header{"Content-Type": tt.types}
		if tt.encoding != "" {
			h.Set("Content-Encoding", tt.encoding)
		}
		got := d.send(request{method: "POST", path: turns, caller: "ann", body: body, header: h})
		if got.status != tt.status {
			t.Errorf("Content-Type %q, encoding %q: %d %s", tt.types, tt.encoding, got.status, got.body)
		}
	}
	// The order: type before size before JSON.
	want(t, d.send(request{method: "POST", path: turns, caller: "ann", body: strings.Repeat("{", 9<<20), header: http.Header{"Content-Type": {"text/plain"}}}), 415, "unsupported_media_type")
	want(t, d.post("ann", turns, strings.Repeat("{", 9<<20)), 413, "body_too_large")
	want(t, d.send(request{method: "POST", path: turns + "?format=no", caller: "ann", body: "{", header: http.Header{"Content-Type": {"text/plain"}}}), 406, "unsupported_format")
}

func TestABodyThatEndsEarlyIsRefused(t *testing.T) {
	d := newDaemon(t, projection.Options{})
	conn, err := net.Dial("tcp", d.host)
	must(t, err)
	defer conn.Close()
	_, err = fmt.Fprintf(conn, "POST %s HTTP/1.1\r\nHost: %s\r\nAuthorization: Bearer %s\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{\"messages\":[", turns, d.host, d.tokens["ann"])
	must(t, err)
	must(t, conn.(*net.TCPConn).CloseWrite())
	buf := make([]byte, 4096)
	n, _ := conn.Read(buf)
	if !strings.Contains(string(buf[:n]), "400 Bad Request") {
		t.Errorf("got %s", buf[:n])
	}
}

func TestHostileJSONIsRefusedWithItsOffset(t *testing.T) {
	d := newDaemon(t, projection.Options{})
	message := func(member string) string { return `{"messages":[{"role":"user","content":"x",` + member + `}]}` }
	deep := func(n int) string { return strings.Repeat("[", n) + strings.Repeat("]", n) }
	bad := []string{
		``, ` `, `{`, `[`, `"`, `tru`, `nul`, `{"messages":`, `{"messages":[}`, `{"messages":[]}]`, `{"messages":[]}{}`, `{"messages":[]} x`, `{'messages':[]}`, `{messages:[]}`, `{"messages":[],}`, `{"messages":[1,]}`, `//`, "\ufeff{}", "\x00{}", `{"a":01}`, `{"a":+1}`, `{"a":.5}`, `{"a":1.}`, `{"a":0x1}`, `{"a":NaN}`, `{"a":Infinity}`, `{"a":1e}`,
		"{\"a\":\"\x01\"}", "{\"a\":\"\n\"}", `{"a":"\x"}`, `{"a":"\u12"}`, `{"a":"\ud800"}`, `{"a":"\udc00"}`, `{"a":"\ud800\u0041"}`, `{"a":"\udc00\ud800"}`, "{\"a\":\"\xff\"}", "{\"a\":\"\xc0\xaf\"}", "{\"a\":\"\xed\xa0\x80\"}", "{\"a\":\"\xf4\x90\x80\x80\"}", "{\"\xff\":1}",
		`{"a":1,"a":2}`, `{"a":1,"\u0061":2}`, `{"messages":[],"messages":[]}`, `{"Messages":[]}`, `{"MESSAGES":[{"role":"user","content":"x"}]}`, `{"messages":[{"role":"user","content":"x"}],"Tool_categories":{}}`,
	}
	for _, member := range []string{
		`"Role":"system"`, `"ROLE":"system"`, `"Content":"y"`, `"role":"assistant"`, `"metadata":{"a":1,"a":2}`, `"metadata":{"b":{"c":1,"c":1}}`, `"Kind":"reference"`, `"Seq":1`, `"ID":"x"`,
		`"metadata":{"a":` + deep(70) + `}`, `"metadata":{"n":` + strings.Repeat("9", 65) + `}`, `"x":` + deep(64), `"usage":{"n":1` + strings.Repeat("0", 64) + `}`, `"metadata":{"s":"\ud83d"}`, "\"metadata\":{\"s\":\"\xe2\x82\"}",
	} {
		bad = append(bad, message(member))
	}
	// Each prefix of a good document is bad, and so is each with one byte of another kind in it.
	good := `{"messages":[{"role":"user","content":[{"type":"text","text":"\u00e9"}],"metadata":{"n":-1.5e3}}],"model":"m"}`
	for i := range len(good) {
		bad = append(bad, good[:i])
		for _, c := range []string{"\x00", "\xff", "\x1f"} {
			bad = append(bad, good[:i]+c+good[i:])
		}
	}
	n := 0
	for _, doc := range bad {
		if doc == "" {
			continue
		}
		n++
		got := d.post("ann", turns, doc)
		want(t, got, 400, "invalid_json")
		if p := got.problem(t); p.Offset == nil || *p.Offset < 0 || *p.Offset > int64(len(doc)) {
			t.Errorf("%q: %s", doc, got.body)
		}
	}
	if n < 300 {
		t.Errorf("a corpus of %d documents", n)
	}
	for _, doc := range []string{"[]", `"x"`, `{}`, `{"messages":null}`, `{"messages":[]}`, `{"messages":[null]}`, `{"messages":[{}]}`, `{"messages":[{"role":"king","content":"x"}]}`, `{"messages":[{"role":"user","content":[]}]}`, `{"messages":[{"role":"user"}]}`,
		`{"messages":[{"role":"user","content":"x"}],"other":1}`, `{"messages":[{"role":"user","content":"x"}],"tool_categories":[]}`, `{"messages":[{"role":"user","content":"x","seq":"1"}]}`, `{"messages":[{"role":"user","content":[{"type":"image","data":"aaa","media_type":"image/png"}]}]}`} {
		want(t, d.post("ann", turns, doc), 400, "invalid_message")
	}
	if got := d.get("ann", "/v1/conversations/x"); got.status != 404 {
		t.Errorf("something was stored: %s", got.body)
	}
}

func TestEverythingWrongIsToldAtOnceAndNoContent(t *testing.T) {
	d := newDaemon(t, projection.Options{})
	got := d.post("ann", turns, `{"messages":[{"role":"canary-role","content":"x"},{"role":"user","content":[{"type":"canary-type","canary-member":"canary-value"}],"kind":"canary-kind"}]}`)
	want(t, got, 400, "invalid_message")
	p := got.problem(t)
	if p.Field != "messages[0].role" || p.Offset == nil || len(p.Errors) != 3 {
		t.Errorf("got %s", got.body)
	}
	if strings.Contains(got.body, "canary") {
		t.Errorf("content in an error: %s", got.body)
	}
}

func TestMessagesAreServedAsStored(t *testing.T) {
	d := newDaemon(t, projection.Options{UnknownTools: "keep"})
	in := `{"id":"mine","role":"assistant","content":[{"type":"tool_call","id":"c","name":"f","arguments":{"id":2512292042121000001,"x":1.0,"y":1e400,"s":"\u00e9\u0000"}},{"type":"opaque","provider":"p","data":{"z":1,"a":[1.50]}}],"metadata":{"b":1,"a":2},"unknown":[1.0]}`
	want(t, d.post("ann", turns, `{"messages":[`+in+`]}`), 201, "")
	page := as[pageBody](t, d.get("ann", "/v1/conversations/x/messages"))
	m, err := history.ParseStored(page.Data[0])
	must(t, err)
	var members map[string]jsontext.Value
	must(t, json.Unmarshal(page.Data[0], &members))
	if m.ClientID != "mine" || string(members["metadata"]) != `{"b":1,"a":2}` || string(members["extra"]) != `{"unknown":[1.0]}` ||
		!strings.Contains(string(members["content"]), `{"id":2512292042121000001,"x":1.0,"y":1e400,"s":"\u00e9\u0000"}`) || !strings.Contains(string(members["content"]), `{"z":1,"a":[1.50]}`) {
		t.Errorf("stored %s", page.Data[0])
	}
}
