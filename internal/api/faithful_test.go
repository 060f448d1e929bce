package api

import (
	"encoding/json/v2"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"historyd/internal/history"
	"historyd/internal/projection"
	"historyd/test/judge"
)

// Wherever a text or a number is written it stands as it came: no sign becomes an escape, and no number another one.
func TestTextsAndNumbersAreWrittenAsTheyCame(t *testing.T) {
	d := newDaemon(t, projection.Options{UnknownTools: "keep"})
	const text = "the lighthouse && a < b > c"
	const arguments = `{"id":2512292042121000001,"x":1.0,"y":1e400}`
	want(t, d.post("ann", turns, fmt.Sprintf(`{"messages":[{"role":"user","content":%q},
		{"role":"assistant","content":[{"type":"text","text":%[1]q},{"type":"tool_call","id":"c","name":"f","arguments":%s}]},
		{"role":"tool","content":[{"type":"tool_result","call_id":"c","content":%[1]q}]}]}`, text, arguments)), 201, "")
	want(t, d.post("ann", "/v1/conversations/x/fork", `{"to":"y"}`), 201, "")
	holds := map[string]bool{ // whether the arguments are there, too
		"/v1/conversations": false, "/v1/conversations/x": false, "/v1/search?q=lighthouse": false,
		"/v1/conversations/x/messages": true, "/v1/conversations/y/messages": true,
		"/v1/conversations/x/export?format=jsonl": true, "/v1/conversations/x/export?format=tar": true,
	}
	for _, format := range append([]string{"native"}, providers...) {
		holds["/v1/conversations/x/export?format="+format] = true
		holds[fullOfX+"&format="+format] = true
		holds[replayOfX+"?format="+format] = false
	}
	plain := strings.NewReplacer(`\`, "", "\n", "", " ", "") // arguments may be a string, or on several lines
	for path, called := range holds {
		got := d.get("ann", path)
		want(t, got, 200, "")
		if !strings.Contains(got.body, text) || strings.Contains(got.body, `\u00`) {
			t.Errorf("%s: the text is not as it came in %s", path, got.body)
		}
		if strings.Contains(plain.Replace(got.body), arguments) != called {
			t.Errorf("%s: the arguments are there: %t, want %t: %s", path, !called, called, got.body)
		}
	}
}

// The order is that of the requests, whatever times a client gives: the same for all, or earlier ones behind.
func TestTimesOfAClientOrderNothing(t *testing.T) {
	d := newDaemon(t, projection.Options{UnknownTools: "keep"})
	const same = "2026-03-01T10:00:00.000000Z"
	for name, times := range map[string][]string{
		"same":  {same, same, same, same, same},
		"back":  {same, "2026-03-01T09:00:00.000000Z", "2026-03-01T08:00:00.000000Z", "2026-03-01T07:00:00.000000Z", "2026-03-01T06:00:00.000000Z"},
		"mixed": {"2026-03-01T10:00:00.000000Z", "2026-03-01T08:00:00.000000Z", "2026-03-01T12:00:00.000000Z", "2026-03-01T12:00:00.000000Z", "2026-03-01T09:00:00.000000Z"},
	} {
		lines := []string{
			`{"role":"user","content":"1 asked"`, `{"role":"assistant","content":[{"type":"tool_call","id":"c","name":"f","arguments":{}}]`,
			`{"role":"tool","content":[{"type":"tool_result","call_id":"c","content":"3 found"}]`, `{"role":"assistant","content":"4 answered"`, `{"role":"user","content":"5 thanked"`,
		}
		for i := range lines {
			lines[i] += fmt.Sprintf(`,"at":%q}`, times[i])
		}
		imported, appended := "/v1/conversations/imported-"+name, "/v1/conversations/appended-"+name
		want(t, d.send(request{method: "POST", path: imported + "/import?format=jsonl", caller: "ann", body: strings.Join(lines, "\n"), header: http.Header{"Content-Type": {"application/x-ndjson"}}}), 201, "")
		want(t, d.post("ann", appended+"/turns", `{"messages":[`+strings.Join(lines, ",")+`]}`), 201, "")
		for _, conversation := range []string{imported, appended} {
			page := as[pageBody](t, d.get("ann", conversation+"/messages"))
			var roles, at []string
			for _, raw := range page.Data {
				m, err := history.ParseStored(raw)
				must(t, err)
				roles, at = append(roles, string(m.Role)), append(at, m.At.Format(history.TimeFormat))
			}
			if got := strings.Join(roles, " "); got != "user assistant tool assistant user" {
				t.Errorf("%s: the record has %s", conversation, got)
			}
			if slices.Equal(at, times) != (conversation == imported) {
				t.Errorf("%s: the times are %q, the client's were %q", conversation, at, times)
			}
			for _, format := range providers {
				r := as[fullReply](t, d.get("ann", conversation+"/replay?mode=full&format="+format))
				if why := judge.Check(format, r.Messages, r.System, r.Tools); len(why) > 0 || len(r.Report) > 0 {
					t.Errorf("%s, %s: %q, report %v", conversation, format, why, r.Report)
				}
				if !inOrder(string(r.Messages), "1 asked", "3 found", "4 answered", "5 thanked") {
					t.Errorf("%s, %s: the order is another: %s", conversation, format, r.Messages)
				}
			}
		}
	}
}

// Times of all zones are kept as moments, and where none is named, that UTC was taken is told.
func TestTimesAreKeptAsMoments(t *testing.T) {
	d := newDaemon(t, projection.Options{})
	lines := `{"role":"user","content":"1","at":"2026-03-29T02:30:00"}` + "\n" + `{"role":"user","content":"2","at":"2026-03-29T02:30:00Z"}` + "\n" + `{"role":"user","content":"3","at":"2026-03-29T02:30:00+05:30"}`
	want(t, d.send(request{method: "POST", path: importToX + "?format=jsonl", caller: "ann", body: lines, header: http.Header{"Content-Type": {"application/x-ndjson"}}}), 201, "")
	for _, path := range []string{"/v1/conversations/x/messages", "/v1/conversations/x/export?format=jsonl"} {
		got := d.get("ann", path).body
		if !inOrder(got, `"at":"2026-03-29T02:30:00.000000Z","tz_assumed":true`, `"at":"2026-03-29T02:30:00.000000Z","role"`, `"at":"2026-03-28T21:00:00.000000Z","role"`) {
			t.Errorf("%s: %s", path, got)
		}
	}
}

// A character is whole wherever the pieces end in which a body, a file or an answer is read and written.
func TestNoCharacterIsPartedWhereReadingPauses(t *testing.T) {
	d := newDaemon(t, projection.Options{})
	var lines, texts []string
	for shift := range 4 { // of four, three have a character across any one place
		for _, letter := range []string{"é", "🎉"} {
			text := strings.Repeat("x", shift) + strings.Repeat(letter, 70_000/len(letter))
			texts, lines = append(texts, `"`+text+`"`), append(lines, fmt.Sprintf(`{"role":"user","content":"%s"}`, text))
		}
	}
	want(t, d.send(request{method: "POST", path: importToX + "?format=jsonl", caller: "ann", body: strings.Join(lines, "\n"), header: http.Header{"Content-Type": {"application/x-ndjson"}}}), 201, "")
	want(t, d.post("ann", "/v1/conversations/y/turns", `{"messages":[`+strings.Join(lines, ",")+`]}`), 201, "")
	for _, conversation := range []string{"/v1/conversations/x", "/v1/conversations/y"} {
		for _, path := range []string{"/messages", "/export", "/export?format=jsonl", "/export?format=openai", "/export?format=tar"} {
			got := d.get("ann", conversation+path).body
			if !inOrder(got, texts...) || strings.Contains(got, "\ufffd") {
				t.Errorf("%s%s: a text is not as it came", conversation, path)
			}
		}
	}
}

// An answer that was cut short, and comes again whole when older turns have been folded, stands where it came: behind them.
func TestALateAnswerStandsBehindTheFold(t *testing.T) {
	d := newDaemon(t, projection.Options{})
	d.say("ann", "x", "first")
	tag := d.get("ann", "/v1/conversations/x").header.Get("ETag")
	want(t, d.post("ann", turns, `{"messages":[{"role":"user","content":"asked"},{"role":"assistant","id":"a1","status":"incomplete","content":"It is a"}]}`), 201, "")
	for i := range 20 {
		d.say("ann", "x", fmt.Sprint("more ", i))
	}
	whole := `{"messages":[{"role":"assistant","id":"a1","content":"It is a lighthouse"}]}`
	want(t, d.post("ann", turns, whole, "If-Match", tag), 412, "precondition_failed")
	before := as[replayBody](t, d.get("ann", replayOfX))
	if before.Summary == nil || !strings.Contains(before.Summary.Text, `assistant (incomplete): "It is a"`) {
		t.Fatalf("the summary is %+v", before.Summary)
	}
	if a := as[appendReply](t, d.post("ann", turns, whole)); a.FirstSeq != 45 {
		t.Errorf("it is message %d, want 45", a.FirstSeq)
	}
	after := as[replayBody](t, d.get("ann", replayOfX))
	if n := len(before.Messages); len(after.Messages) != n+1 || !strings.Contains(string(after.Messages[n]), "It is a lighthouse") || after.Summary.Text != before.Summary.Text {
		t.Errorf("the replay is %+v, was %+v", after, before)
	}
}

// Ids are of one conversation: another may have the same, and a line that is no message and bears the id of one displaces nothing.
func TestAnIDMayStandInSeveralConversations(t *testing.T) {
	d := newDaemon(t, projection.Options{})
	ndjson := http.Header{"Content-Type": {"application/x-ndjson"}}
	file := func(text string) string {
		return fmt.Sprintf(`{"role":"user","id":"m1","content":"%s 1"}`+"\n"+`{"role":"assistant","id":"m2","content":"%[1]s 2"}`, text)
	}
	bring := func(who, name, body string) reply {
		return d.send(request{method: "POST", path: "/v1/conversations/" + name + "/import?format=jsonl&mode=append", caller: who, body: body, header: ndjson})
	}
	places := [][2]string{{"ann", "x"}, {"ann", "y"}, {"bob", "x"}, {"mesh-ann", "x"}}
	for _, p := range places {
		want(t, bring(p[0], p[1], file(p[0]+p[1])), 201, "")
	}
	want(t, d.send(request{method: "DELETE", path: "/v1/conversations/y", caller: "ann"}), 204, "")
	control := `{"type":"file-history-snapshot","id":"m1","messageId":"m1","snapshot":{"id":"m2"}}`
	refused := bring("ann", "z", file("z")+"\n"+control)
	want(t, refused, 422, "invalid_history")
	want(t, d.get("ann", "/v1/conversations/z"), 404, "not_found")
	want(t, bring("ann", "z", `{"role":"user","id":"m1","content":"a"}`+"\n"+`{"role":"user","id":"m1","content":"b"}`), 422, "invalid_history")
	for _, p := range places {
		page := as[pageBody](t, d.get(p[0], "/v1/conversations/"+p[1]+"/messages"))
		if p[1] == "y" {
			if len(page.Data) != 0 {
				t.Errorf("what was cleared holds %s", page.Data)
			}
			continue
		}
		for i, raw := range page.Data {
			if want := fmt.Sprintf("%s%s %d", p[0], p[1], i+1); !strings.Contains(string(raw), want) || !strings.Contains(string(raw), fmt.Sprintf(`"id":"m%d"`, i+1)) {
				t.Errorf("%s of %s: message %d is %s", p[1], p[0], i+1, raw)
			}
		}
		if len(page.Data) != 2 {
			t.Errorf("%s of %s: %d messages", p[1], p[0], len(page.Data))
		}
	}
}

// inOrder reports whether each word stands in the text, once, behind the one before.
func inOrder(text string, words ...string) bool {
	at := -1
	for _, w := range words {
		i := strings.Index(text, w)
		if i <= at || strings.Count(text, w) != 1 {
			return false
		}
		at = i
	}
	return true
}

// A fold takes nothing from the record, and parts no call from its result, also not where that came a turn later.
func TestAFoldTakesNothingFromTheRecord(t *testing.T) {
	d := newDaemon(t, projection.Options{UnknownTools: "keep"})
	var all []string
	result := func(i int) string {
		return fmt.Sprintf(`{"role":"tool","content":"result %d","tool_call_id":"call_%[1]d"}`, i)
	}
	for i := range 40 {
		turn := []string{fmt.Sprintf(`{"role":"user","content":"question %d && a < b \u0000 🎉"}`, i)}
		if i%3 == 2 {
			turn = append(turn, result(i-1))
		}
		turn = append(turn, fmt.Sprintf(`{"role":"assistant","content":null,"tool_calls":[{"id":"call_%d","type":"function","function":{"name":"f","arguments":" {\"n\": 1.0}"}}]}`, i))
		if i%3 != 1 {
			turn = append(turn, result(i))
		}
		turn = append(turn, fmt.Sprintf(`{"role":"assistant","content":"answer %d"}`, i))
		want(t, d.post("ann", turns+"?format=openai", `{"messages":[`+strings.Join(turn, ",")+`]}`), 201, "")
		all = append(all, turn...)
		for _, format := range providers {
			if i%4 > 0 && i < 36 { // each third of the turns comes up all the same
				break
			}
			r := as[fullReply](t, d.get("ann", fullOfX+"&format="+format))
			if why := judge.Check(format, r.Messages, r.System, r.Tools); len(why) > 0 {
				t.Errorf("turn %d, %s: %q", i, format, why)
			}
			if r.Report["dropped_orphans"] != nil || (r.Report["synthetic_results"] != nil) != (i%3 == 1) {
				t.Errorf("turn %d, %s: report %v", i, format, r.Report)
			}
		}
	}
	if s := as[replayBody](t, d.get("ann", replayOfX)).Summary; s == nil || s.ThroughSeq < 100 {
		t.Fatalf("the summary is %+v", s)
	}
	var got, sent any
	must(t, json.Unmarshal([]byte(d.get("ann", "/v1/conversations/x/export?format=openai").body), &got))
	must(t, json.Unmarshal([]byte("["+strings.Join(all, ",")+"]"), &sent))
	if fmt.Sprint(got) != fmt.Sprint(sent) {
		t.Errorf("exported is\n%v\nwant\n%v", got, sent)
	}
}

// What a program kept of a provider's error is in the archive, and no model is told it as an answer: neither word for word nor,
// when it was folded, in the summary.
func TestAProvidersErrorIsInTheArchiveAlone(t *testing.T) {
	d := newDaemon(t, projection.Options{})
	for format, failed := range map[string]string{
		"jsonl":     `{"role":"assistant","content":[{"type":"text","text":"overloaded 529"}],"isApiErrorMessage":true}`,
		"openai":    `{"role":"assistant","content":"overloaded 529","error":{"code":529}}`,
		"anthropic": `{"role":"assistant","content":[{"type":"text","text":"overloaded 529"}],"isApiErrorMessage":true}`,
		"responses": `{"type":"message","role":"assistant","content":[{"type":"output_text","text":"overloaded 529"}],"error":{"code":529}}`,
		"gemini":    `{"role":"model","parts":[{"text":"overloaded 529"}],"error":"overloaded"}`,
	} {
		var lines []string
		for range 20 {
			asked := `{"role":"user","content":[{"type":"text","text":"hi"}]}`
			if format == "responses" {
				asked = `{"type":"message","role":"user","content":[{"type":"input_text","text":"hi"}]}`
			}
			if format == "gemini" {
				asked = `{"role":"user","parts":[{"text":"hi"}]}`
			}
			lines = append(lines, asked, failed)
		}
		conversation := "/v1/conversations/" + format
		want(t, d.send(request{method: "POST", path: conversation + "/import?format=" + format, caller: "ann", body: strings.Join(lines, "\n"), header: http.Header{"Content-Type": {"application/x-ndjson"}}}), 201, "")
		for _, path := range []string{"/export", "/export?format=" + format, "/messages"} {
			if n := strings.Count(d.get("ann", conversation+path).body, "overloaded 529"); n != 20 {
				t.Errorf("%s: %s holds it %d times, want 20", format, path, n)
			}
		}
		for _, to := range append([]string{"native"}, providers...) {
			for _, mode := range []string{"text", "full"} {
				got := d.get("ann", conversation+"/replay?mode="+mode+"&format="+to)
				if strings.Contains(got.body, "overloaded") || !strings.Contains(got.body, `"provider_errors":1`) || !strings.Contains(got.body, `"summary":{`) {
					t.Errorf("%s: replayed as %s, mode %s: %s", format, to, mode, got.body)
				}
			}
		}
	}
	d.say("ann", "talk", "was it overloaded 529 times?")
	if got := as[searchReply](t, d.get("ann", "/v1/search?q=overloaded&limit=100")); len(got.Data) != 100 {
		t.Errorf("a search finds %d messages of the archive, want 100", len(got.Data))
	}
	got := as[recallReply](t, d.post("ann", "/v1/conversations/new/recall", `{"query":"overloaded 529"}`))
	if len(got.Items) != 1 || got.Items[0].Conversation != "talk" {
		t.Errorf("recalled are %+v", got.Items)
	}
}
