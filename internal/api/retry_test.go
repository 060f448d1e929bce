package api

import (
	"bufio"
	"bytes"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"historyd/internal/durable/crashfs"
	"historyd/internal/projection"
)

// A client that does not hear the answer sends the same again, with its key.
func TestAnAnswerThatWasLostIsGivenAgain(t *testing.T) {
	d := newDaemon(t, projection.Options{})
	body := `{"messages":[{"role":"user","content":"once"},{"role":"assistant","content":"yes"}]}`
	conn, err := net.Dial("tcp", d.host)
	must(t, err)
	_, err = fmt.Fprintf(conn, "POST %s HTTP/1.1\r\nHost: %s\r\nAuthorization: Bearer %s\r\nContent-Type: application/json\r\nIdempotency-Key: k\r\nContent-Length: %d\r\n\r\n%s",
		turns, d.host, d.tokens["ann"], len(body), body)
	must(t, err)
	_, err = bufio.NewReader(conn).Peek(1) // it is answered, and nobody reads it
	must(t, err)
	conn.Close()
	got := d.post("ann", turns, body, "Idempotency-Key", "k")
	if a := as[appendReply](t, got); got.status != 201 || a.FirstSeq != 1 || a.LastSeq != 2 || got.header.Get("Idempotent-Replayed") != "true" {
		t.Errorf("the second time: %d %s", got.status, got.body)
	}
	if page := as[pageBody](t, d.get("ann", "/v1/conversations/x/messages")); len(page.Data) != 2 {
		t.Errorf("%d messages, want 2", len(page.Data))
	}
}

// A program that makes its messages anew for each attempt gives them other ids. The key says that they are the same.
func TestAKeyIsNoIDOfAMessage(t *testing.T) {
	d := newDaemon(t, projection.Options{})
	send := func(id, text string) reply {
		return d.post("ann", turns, fmt.Sprintf(`{"messages":[{"id":"%s","role":"user","content":"%s"}]}`, id, text), "Idempotency-Key", "k")
	}
	first := send("a", "hi")
	want(t, first, 201, "")
	if again := send("b", "hi"); again.status != 201 || again.body != first.body || again.header.Get("Idempotent-Replayed") != "true" {
		t.Errorf("with a new id: %d %s, want %s again", again.status, again.body, first.body)
	}
	want(t, send("a", "ho"), 422, "idempotency_mismatch")
	if page := d.get("ann", "/v1/conversations/x/messages").body; strings.Count(page, `"seq":`) != 1 || !strings.Contains(page, `"client_id":"a"`) {
		t.Errorf("the record holds %s", page)
	}
}

// An agent that hands over its whole history after every turn imports it: only what is new is stored, also where the same was
// said twice, where it is kept otherwise than it is sent, and where a retry comes twice.
func TestAWholeHistorySentEachTurnAddsOnlyWhatIsNew(t *testing.T) {
	d := newDaemon(t, projection.Options{})
	for format, turn := range map[string]string{
		"native":    `{"role":"user","content":"go on"},` + pay("native") + `,{"role":"tool","content":[{"type":"tool_result","call_id":"c","content":"hunter2 is paid"}]},{"role":"assistant","content":"done"}`,
		"openai":    `{"role":"user","content":"go on"},` + pay("openai") + `,{"role":"tool","tool_call_id":"c","content":"hunter2 is paid"},{"role":"assistant","content":"done"}`,
		"anthropic": `{"role":"user","content":"go on"},` + pay("anthropic") + `,{"role":"user","content":[{"type":"tool_result","tool_use_id":"c","content":"hunter2 is paid"}]},{"role":"assistant","content":"done"}`,
		"responses": `{"type":"message","role":"user","content":"go on"},` + pay("responses") + `,{"type":"function_call_output","call_id":"c","output":"hunter2 is paid"},{"type":"message","role":"assistant","content":"done"}`,
		"gemini":    `{"role":"user","parts":[{"text":"go on"}]},` + pay("gemini") + `,{"role":"user","parts":[{"functionResponse":{"id":"c","name":"f","response":{"result":"hunter2 is paid"}}}]},{"role":"model","parts":[{"text":"done"}]}`,
	} {
		head := map[string]string{"native": `"version":1,"type":"historyd.history","messages"`, "gemini": `"contents"`, "responses": `"input"`}[format]
		if head == "" {
			head = `"messages"`
		}
		to := "/v1/conversations/" + format
		for n := range 4 {
			body := `{"tool_categories":{"f":"wallet"},` + head + `:[` + strings.TrimSuffix(strings.Repeat(turn+",", n+1), ",") + `]}`
			for again, added := range []int64{4, 0} {
				got := d.post("ann", to+"/import?mode=append&format="+format, body)
				want(t, got, 201, "")
				if r := as[importReply](t, got); r.Imported != added || r.LastSeq != int64(4*n+4) {
					t.Errorf("%s, %d turns, sent %d times: %s", format, n+1, again+1, got.body)
				}
			}
		}
		if page := d.get("ann", to+"/messages").body; strings.Contains(page, "hunter2") || strings.Count(page, `"seq":`) != 16 {
			t.Errorf("%s: the record holds %s", format, page)
		}
	}
}

// pay is a call of a tool for money.
func pay(format string) string { return callOf(format, `{"pin":"hunter2"}`) }

// Attempts that are under way at the same time are one, too: of an append or an import by their key, of imports without a
// key by the ids of the messages.
func TestAttemptsAtTheSameTimeAreStoredOnce(t *testing.T) {
	d := newDaemon(t, projection.Options{})
	history := []string{}
	for i := range 60 {
		history = append(history, fmt.Sprintf(`{"role":"user","content":"%d"}`, i))
	}
	for _, tt := range []struct {
		name, path string
		body       func(attempt int) string
		key        string
		seqs       int
		replayed   int
	}{
		{"appends", "/turns", func(int) string {
			return `{"messages":[{"role":"user","content":"a"},{"role":"assistant","content":"b"}]}`
		}, "k", 2, 11},
		{"imports", "/import?format=openai&mode=append", func(int) string { return "[" + strings.Join(history, ",") + "]" }, "k", 60, 11},
		{"imports-without-a-key", "/import?format=openai&mode=append", func(int) string { return "[" + strings.Join(history, ",") + "]" }, "", 60, 0},
		{"longer-and-longer-imports", "/import?format=openai&mode=append", func(n int) string { return "[" + strings.Join(history[:5*n+5], ",") + "]" }, "", 60, 0},
	} {
		var all sync.WaitGroup
		var replayed atomic.Int64
		for n := range 12 {
			all.Go(func() {
				r := request{method: "POST", path: "/v1/conversations/" + tt.name + tt.path, caller: "ann", body: tt.body(n)}
				if tt.key != "" {
					r.header = http.Header{"Idempotency-Key": {tt.key}}
				}
				got := d.send(r)
				want(t, got, 201, "")
				if got.header.Get("Idempotent-Replayed") == "true" {
					replayed.Add(1)
				}
			})
		}
		all.Wait()
		page := as[pageBody](t, d.get("ann", "/v1/conversations/"+tt.name+"/messages?limit=1000"))
		said := map[string]bool{}
		for _, raw := range page.Data {
			_, text, _ := strings.Cut(string(raw), `"text":`)
			said[text] = true
		}
		if len(page.Data) != tt.seqs || len(said) != tt.seqs || replayed.Load() != int64(tt.replayed) {
			t.Errorf("%s: %d messages, %d different, want %d; %d answers were given again, want %d", tt.name, len(page.Data), len(said), tt.seqs, replayed.Load(), tt.replayed)
		}
	}
}

// A list that cannot be made is an error, and not an empty list.
func TestAListThatCannotBeMadeIsAnError(t *testing.T) {
	d := newDaemon(t, projection.Options{})
	for i := range 3 {
		d.say("ann", fmt.Sprint("c", i), "hi")
	}
	d.failWith("list", 1, fmt.Errorf("broken"))
	want(t, d.get("ann", "/v1/conversations"), 500, "internal")
	d = newDaemon(t, projection.Options{})
	d.disk.FailWhen(func(op crashfs.Op) error {
		if op.Kind == "ReadDir" && strings.HasPrefix(op.Name, "transcripts") {
			return syscall.EIO
		}
		return nil
	})
	want(t, d.get("ann", "/v1/conversations"), 503, "unavailable")
	d.disk.Heal()
	if got := d.get("ann", "/v1/conversations"); got.body != `{"object":"list","data":[],"has_more":false,"next":null}` {
		t.Errorf("with a disk that is well: %d %s", got.status, got.body)
	}
}

// What a conversation holds of images costs its list nothing.
func TestAListReadsNoAttachments(t *testing.T) {
	d := newDaemon(t, projection.Options{})
	for i := range 3 {
		d.picture(fmt.Sprint("c", i))
	}
	pictures := map[string]bool{}
	for name, content := range d.disk.Files() {
		if bytes.Contains(content, []byte("a picture")) {
			pictures[name] = true
		}
	}
	if len(pictures) != 3 {
		t.Fatalf("%d files hold a picture, want 3", len(pictures))
	}
	d.disk.FailWhen(func(op crashfs.Op) error {
		if pictures[op.Name] {
			t.Errorf("%s of an attachment", op.Kind)
		}
		return nil
	})
	if page := as[listReply](t, d.get("ann", "/v1/conversations")); len(page.Data) != 3 {
		t.Errorf("%d conversations, want 3", len(page.Data))
	}
}

// However many conversations there are, and whatever is done with them, the metrics have the same series.
func TestMetricsDoNotGrowWithConversations(t *testing.T) {
	d := newDaemon(t, projection.Options{})
	use := func(name string) {
		for _, tt := range leavers {
			r := d.request(t.Context(), tt.method, tt.path, tt.body)
			r.URL.Path = strings.Replace(r.URL.Path, "/conversations/x", "/conversations/"+name, 1)
			res, err := d.server.Client().Do(r)
			must(t, err)
			res.Body.Close()
		}
	}
	series := func() (n int) {
		families, err := d.reg.Gather()
		must(t, err)
		for _, f := range families {
			n += len(f.GetMetric())
		}
		return n
	}
	for range 2 { // the second time there is more to do
		use("first")
	}
	before := series()
	for i := range 50 {
		use(fmt.Sprint("c", i))
	}
	if after := series(); after != before {
		t.Errorf("%d series after 50 more conversations, %d before", after, before)
	}
}
