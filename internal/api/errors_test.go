package api

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"syscall"
	"testing"

	"historyd/internal/history"
	"historyd/internal/projection"
	"historyd/internal/store"
)

// failWith lets one operation of the engine fail as often as it says; 0 is always.
func (d *daemon) failWith(op string, times int, err error) {
	n := 0
	f := func(now string) error {
		if now != op || times > 0 && n >= times {
			return nil
		}
		n++
		return err
	}
	d.engine.fail.Store(&f)
}

func TestEveryCodeIsReached(t *testing.T) {
	d := newDaemon(t, projection.Options{}, func(o *Options) { o.Limits.Message = 1000; o.Limits.Body = 5000 })
	d.say("ann", "full", "hi")
	hello := `{"messages":[{"role":"user","content":"hi"}]}`
	post := func(body string) request { return request{method: "POST", path: turns, body: body} }
	reached, expected := map[string]bool{}, map[string]int{}
	for _, tt := range []struct {
		code string
		r    request
		op   string
		err  error
	}{
		{code: "invalid_json", r: post(`{`)},
		{code: "invalid_message", r: post(`{}`)},
		{code: "invalid_parameter", r: request{method: "GET", path: "/v1/whoami?x=1"}},
		{code: "invalid_conversation", r: request{method: "GET", path: "/v1/conversations/.x"}},
		{code: "token_in_url", r: request{method: "GET", path: "/?token=x"}},
		{code: "unauthenticated", r: request{method: "GET", path: "/v1/whoami", header: http.Header{"Authorization": {"Bearer x"}}}},
		{code: "forbidden_origin", r: request{method: "GET", path: "/", header: http.Header{"Origin": {"null"}}}},
		{code: "forbidden_host", r: request{method: "GET", path: "/", host: "evil.example"}},
		{code: "not_found", r: request{method: "GET", path: "/"}},
		{code: "method_not_allowed", r: request{method: "PUT", path: "/v1/whoami"}},
		{code: "unsupported_format", r: request{method: "GET", path: replayOfX + "?format=xml"}},
		{code: "conversation_not_empty", r: request{method: "POST", path: "/v1/conversations/full/import?format=openai", body: `[{"role":"user","content":"x"}]`}},
		{code: "conflict", r: request{method: "GET", path: replayOfX}, op: "view", err: history.ErrGone},
		{code: "precondition_failed", r: request{method: "POST", path: turns, body: hello, header: http.Header{"If-Match": {`"x"`}}}},
		{code: "body_too_large", r: post(bodyOf(5001))},
		{code: "message_too_large", r: post(bodyOf(2000))},
		{code: "unsupported_media_type", r: request{method: "POST", path: turns, body: hello, header: http.Header{"Content-Type": {"text/plain"}}}},
		{code: "idempotency_mismatch", r: post(hello), op: "append", err: history.ErrKeyMismatch},
		{code: "invalid_history", r: request{method: "POST", path: importToX, body: `{}`}},
		{code: "rate_limited", r: post(hello), op: "append", err: fmt.Errorf("append: %w", history.ErrBusy)},
		{code: "internal", r: post(hello), op: "append", err: errors.New("something new")},
		{code: "damaged_transcript", r: request{method: "GET", path: replayOfX}, op: "state", err: history.ErrDamaged},
		{code: "unavailable", r: post(hello), op: "append", err: history.ErrUnavailable},
		{code: "unavailable", r: post(hello), op: "append", err: history.ErrClosed},
		{code: "unavailable", r: post(hello), op: "append", err: context.DeadlineExceeded},
		{code: "unavailable", r: post(hello), op: "append", err: context.Canceled},
		{code: "quota_exceeded", r: post(hello), op: "append", err: fmt.Errorf("append: %w", &history.QuotaExceeded{What: "bytes", Limit: 1, Actual: 2})},
		{code: "disk_full", r: post(hello), op: "append", err: fmt.Errorf("%w: %w", history.ErrFull, syscall.ENOSPC)},
	} {
		d.failWith(tt.op, 0, tt.err)
		tt.r.caller = "ann"
		if tt.r.header["Authorization"] != nil {
			tt.r.caller = ""
		}
		got := d.send(tt.r)
		want(t, got, codeByName[tt.code].status, tt.code)
		if says := strings.Contains(got.body, "your side of the connection"); says != (tt.err == context.Canceled) {
			t.Errorf("%s after %v: %s", tt.code, tt.err, got.body)
		}
		expected[tt.code]++
		after := map[string]string{"unavailable": "5", "rate_limited": "1"}[tt.code]
		if got := got.header.Get("Retry-After"); got != after {
			t.Errorf("%s: Retry-After %q, want %q", tt.code, got, after)
		}
		reached[tt.code] = true
	}
	metrics := d.get("", "/metrics").body
	for _, c := range codes {
		if !reached[c.name] {
			t.Errorf("%s is not reached", c.name)
		}
		if want := fmt.Sprintf("\nhistoryd_http_errors_total{code=%q} %d\n", c.name, expected[c.name]); !strings.Contains(metrics, want) {
			t.Errorf("the metrics have no %s", want)
		}
	}
}

func TestAReadWhoseConversationIsClearedIsTriedOnceMore(t *testing.T) {
	d := newDaemon(t, projection.Options{})
	d.say("ann", "x", "hi")
	for _, path := range []string{"/replay?max_tokens=7", "/messages", "/export"} {
		d.failWith("view", 1, history.ErrGone)
		want(t, d.get("ann", "/v1/conversations/x"+path), 200, "")
		d.say("ann", "x", "so that nothing is remembered")
		d.failWith("view", 2, history.ErrGone)
		want(t, d.get("ann", "/v1/conversations/x"+path), 409, "conflict")
	}
}

func TestReadinessIsTheEngines(t *testing.T) {
	d := newDaemon(t, projection.Options{})
	if got := d.get("", "/readyz"); got.status != 200 || got.body != `{"status":"ok"}` {
		t.Errorf("got %d %s", got.status, got.body)
	}
	d.failWith("ready", 0, history.ErrUnavailable)
	if got := d.get("", "/readyz"); got.status != 503 || got.body != `{"status":"unavailable"}` || got.header.Get("Retry-After") == "" {
		t.Errorf("got %d %s", got.status, got.body)
	}
	want(t, d.get("", "/healthz"), 200, "")
}

func TestAFullDiskIsSaidAndPasses(t *testing.T) {
	d := newDaemon(t, projection.Options{})
	d.say("ann", "x", "before")
	used := int64(0)
	for _, content := range d.disk.Files() {
		used += int64(len(content))
	}
	d.disk.SetCapacity(used + 100)
	want(t, d.post("ann", turns, bodyOf(20_000)), 507, "disk_full")
	if page := as[pageBody](t, d.get("ann", "/v1/conversations/x/messages")); len(page.Data) != 2 {
		t.Errorf("%d messages", len(page.Data))
	}
	d.disk.SetCapacity(1 << 30)
	if a := d.say("ann", "x", "after"); a.FirstSeq != 3 {
		t.Errorf("the next append is at %d", a.FirstSeq)
	}
}

func TestAQuotaThatIsUsedUpIsSaid(t *testing.T) {
	d := newDaemon(t, projection.Options{})
	d.reopen(store.Options{Quota: store.Quota{Bytes: 6000, Conversations: 2}})
	d.say("ann", "x", "before")
	d.say("ann", "y", "before")
	got := d.post("ann", turns, bodyOf(6000))
	want(t, got, 507, "quota_exceeded")
	if p := got.problem(t); p.Field != "quota.bytes" || p.Limit == nil || *p.Limit != 6000 || p.Actual == nil || *p.Actual <= 6000 {
		t.Errorf("got %s", got.body)
	}
	for _, r := range []request{
		{method: "POST", path: "/v1/conversations/z/turns", body: `{"messages":[{"role":"user","content":"hi"}]}`},
		{method: "POST", path: "/v1/conversations/z/import?format=openai", body: `[{"role":"user","content":"hi"}]`},
		{method: "POST", path: "/v1/conversations/x/fork", body: `{"to":"z"}`},
	} {
		r.caller = "ann"
		got := d.send(r)
		want(t, got, 507, "quota_exceeded")
		if p := got.problem(t); p.Field != "quota.conversations" || p.Limit == nil || *p.Limit != 2 || p.Actual == nil || *p.Actual != 3 {
			t.Errorf("%s: %s", r.path, got.body)
		}
	}
	want(t, d.get("ann", replayOfX), 200, "")
	want(t, d.get("", "/readyz"), 200, "")
	want(t, d.post("ann", "/v1/conversations/x/rewind", `{"through_seq":1}`), 200, "")
	d.say("bob", "z", "bob goes on")
	if text := d.logs.String(); strings.Contains(text, "request failed") || strings.Count(text, "quota is used up") != 1 {
		t.Errorf("the log has %s", text)
	}
	want(t, d.send(request{method: "DELETE", path: "/v1/conversations/y", caller: "ann"}), 204, "")
	d.say("ann", "z", "after")
}

type panics struct{ value any }

func TestPanicsTellNothing(t *testing.T) {
	d := newDaemon(t, projection.Options{})
	for _, value := range []any{"canary-panic", errors.New("canary-panic"), &panics{"canary-panic"}} {
		f := func(op string) error { panic(value) }
		d.engine.fail.Store(&f)
		got := d.get("ann", "/v1/conversations/x")
		want(t, got, 500, "internal")
		if strings.Contains(got.body, "canary") {
			t.Errorf("got %s", got.body)
		}
	}
	logs := d.logs.String()
	if strings.Contains(logs, "canary") || strings.Count(logs, `"msg":"panic while serving a request"`) != 3 || !strings.Contains(logs, "showConversation:") {
		t.Errorf("logs %s", logs)
	}
	if m := d.get("", "/metrics").body; !strings.Contains(m, "historyd_http_panics_total 3\n") {
		t.Error("panics are not counted")
	}
	none := func(string) error { return nil }
	d.engine.fail.Store(&none)
	d.say("ann", "x", "still here")
}

// What has been sent in part is ended, so that nobody takes it for the whole.
func TestAResponseThatFailsHalfWayIsEnded(t *testing.T) {
	d := newDaemon(t, projection.Options{})
	text := strings.Repeat("long ", 40_000)
	for i := range 6 {
		d.say("ann", "x", fmt.Sprintf("message-%d %s", i, text))
	}
	req, err := http.NewRequest("GET", d.url+"/v1/conversations/x/export", nil)
	must(t, err)
	req.Header.Set("Authorization", "Bearer "+d.tokens["ann"])
	res, err := d.server.Client().Do(req)
	must(t, err)
	defer res.Body.Close()
	buf := make([]byte, 1024)
	_, err = res.Body.Read(buf)
	must(t, err)
	want(t, d.send(request{method: "DELETE", path: "/v1/conversations/x", caller: "ann"}), 204, "")
	var all []byte
	for err == nil {
		var n int
		n, err = res.Body.Read(buf)
		all = append(all, buf[:n]...)
	}
	if err.Error() == "EOF" && !strings.HasSuffix(string(all), "\n}\n") {
		t.Error("an export that was cut looks like a whole one")
	}
}

func TestLabelsAndLogsHoldNothingOfRequests(t *testing.T) {
	d := newDaemon(t, projection.Options{})
	for i := range 40 {
		d.say("ann", fmt.Sprintf("canary-name-%d", i), "canary-content")
		d.get("ann", fmt.Sprintf("/canary-path-%d?canary=1", i))
		d.send(request{method: "CANARY" + strings.Repeat("X", i), path: "/v1/whoami", caller: "ann"})
		d.post("ann", turns, `{"messages":[{"role":"user","content":"x","canary-member":{"canary":1}}],"canary":1}`, "Idempotency-Key", fmt.Sprintf("canary-key-%d", i))
		d.get("ann", "/v1/conversations/x/messages?canary-query=canary")
		d.get("bob", "/v1/conversations/x%0Acanary%22/messages")
	}
	metrics := d.get("", "/metrics").body
	for _, place := range []struct{ name, text string }{{"metrics", metrics}, {"logs", d.logs.String()}} {
		for _, secret := range append([]string{"canary", "CANARY", "home"}, tokensOf(d)...) {
			if strings.Contains(place.text, secret) {
				t.Errorf("%q is in the %s", secret, place.name)
			}
		}
	}
	lines := strings.Split(strings.TrimSpace(d.logs.String()), "\n")
	for _, line := range lines {
		if !strings.HasPrefix(line, "{") || !strings.HasSuffix(line, "}") {
			t.Errorf("log line %q", line)
		}
	}
	before := strings.Count(d.get("", "/metrics").body, "\n")
	for i := range 40 {
		d.say("bob", fmt.Sprintf("more-%d", i), "x")
		d.get("mesh-ann", fmt.Sprintf("/other-%d", i))
	}
	if after := strings.Count(d.get("", "/metrics").body, "\n"); after != before {
		t.Errorf("the metrics grew from %d lines to %d", before, after)
	}
}

func tokensOf(d *daemon) []string {
	var out []string
	for _, token := range d.tokens {
		out = append(out, token)
	}
	return out
}

func TestWithheldValuesAreInNoResponseLogOrMetric(t *testing.T) {
	const canary = "canary-4417-hunter2"
	d := newDaemon(t, projection.Options{})
	var seen []string
	body := `{"messages":[{"role":"user","content":"pay"},{"role":"assistant","content":[{"type":"tool_call","id":"c","name":"wallet_send","arguments":{"k":"` + canary + `"}}]},
		{"role":"tool","content":[{"type":"tool_result","call_id":"c","content":"sent ` + canary + `"}]}],"tool_categories":{"*":"wallet"}}`
	bad := strings.Replace(body, `"role":"user"`, `"role":"king"`, 1)
	for _, doc := range []string{body, bad, body[:len(body)-1], strings.Replace(body, `"k":`, `"k":1,"k":`, 1)} {
		seen = append(seen, d.post("ann", turns, doc, "Idempotency-Key", "k").body, d.post("ann", turns+"?format=openai", doc).body, d.post("ann", importToX+"?mode=append", doc).body, d.post("ann", importToX+"?mode=append&format=openai", doc).body)
	}
	for range 20 {
		d.post("ann", turns, body)
	}
	for _, path := range []string{"", "/messages", "/replay", "/replay?format=openai", "/export", "/export?format=openai", "/export?format=jsonl"} {
		seen = append(seen, d.get("ann", "/v1/conversations/x"+path).body)
	}
	seen = append(seen, d.get("ann", "/v1/conversations").body, d.get("", "/metrics").body, d.logs.String())
	for _, content := range d.disk.Files() {
		seen = append(seen, string(content))
	}
	if i := slices.IndexFunc(seen, func(s string) bool { return strings.Contains(s, canary) }); i >= 0 {
		t.Errorf("the withheld value is in place %d: %.300s", i, seen[i])
	}
}
