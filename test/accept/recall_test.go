package accept

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"unicode/utf8"
)

const question = "when do we fly to Lisbon"

// said is an append of one user message and its answer, as a body.
func said(t *testing.T, texts ...string) []byte {
	t.Helper()
	var list []any
	for i, text := range texts {
		list = append(list, map[string]any{"role": []string{"user", "assistant"}[i%2], "content": text})
	}
	return encode(t, map[string]any{"messages": list})
}

// A shape is how servers answer, and what is to come of it. W stands for words of their own, # for numbers.
type shape struct{ name, result, want string }

func shapes(t *testing.T) []shape {
	hit := func(members string) string { return `[{` + members + `}]` }
	one := hit(`"title":"T","text":"W"`)
	block := func(text string) string { return string(encode(t, asText(text))) }
	in := func(name, list string) string { return `{"` + name + `":` + list + `}` }
	return []shape{
		{"a list as text", block(one), "T: W"},
		{"results as text", block(in("results", one)), "T: W"},
		{"entries as text", block(in("entries", one)), "T: W"},
		{"memories as text", block(in("memories", one)), "T: W"},
		{"hits as text", block(in("hits", one)), "T: W"},
		{"documents as text", block(in("documents", one)), "T: W"},
		{"the first that is not empty", block(`{"results":[],"entries":null,"memories":` + one + `,"documents":` + hit(`"text":"not this"`) + `}`), "T: W"},
		{"a JSON string as text", block(string(encode(t, one))), "T: W"},
		{"a JSON string of an object", block(string(encode(t, in("hits", one)))), "T: W"},
		{"structured content", `{"content":[],"structuredContent":` + in("results", one) + `}`, "T: W"},
		{"structured content beside text", `{"content":[{"type":"text","text":"1 hit"}],"structuredContent":` + in("documents", one) + `}`, "T: W"},
		{"empty structured content beside text", `{"content":[{"type":"text","text":` + string(encode(t, one)) + `}],"structuredContent":{"results":[]}}`, "T: W"},
		{"a bare list as structured content", `{"content":[],"structuredContent":` + one + `}`, "T: W"},
		{"a result within a result", block(block(one)), "T: W"},
		{"several blocks", `{"content":[{"type":"text","text":"Found:"},{"type":"image","data":"AAAA","mimeType":"image/png"},{"type":"text","text":` + string(encode(t, one)) + `}]}`, "T: W"},
		{"title, source, name", block(`[{"title":" ","source":"S","name":"N","text":"W"},{"name":"N","text":"W2"},{"text":"W3"}]`), "S: W, N: W2, : W3"},
		{"body, text, content, snippet", block(`[{"body":"","text":" \n","content":"W","snippet":"no"},{"snippet":"W2"},{"body":"W3","text":"no"},{"title":"T"}]`), ": W, : W2, : W3"},
		{"the best five of many", block(`[` + strings.TrimSuffix(strings.Repeat(`{"text":"W #"},`, 9), ",") + `]`), ": W 0, : W 1, : W 2, : W 3, : W 4"},
		{"prose", block("Nothing was found, sorry. W"), ""},
		{"a number", block("7"), ""},
		{"null", block("null"), ""},
		{"broken JSON", block(one[:len(one)-1]), ""},
		{"an object without a list", block(`{"text":"W","count":1}`), ""},
		{"texts instead of objects", block(`["W","W"]`), ""},
		{"a list of lists", block(`[[{"text":"W"}]]`), ""},
		{"bodies of another type", block(`[{"text":7},{"text":{"text":"W"}},{"text":null}]`), ""},
		{"a picture", `{"content":[{"type":"image","data":"AAAA","mimeType":"image/png"}]}`, ""},
		{"nothing", `{"content":[]}`, ""},
	}
}

// Both ready-made retrievers, one a child and one at a URL, answer in every shape that servers are known to answer in.
func TestEachShapeOfAnAnswerIsDelivered(t *testing.T) {
	t.Parallel()
	m, g := newRetriever(t), newRetriever(t)
	url, _ := g.listen("127.0.0.1:0")
	d := newDaemon(t, "HISTORYD_RECALL_LOCAL=false")
	d.configure(recallOf("20s", m.memory(), g.manuals("command", nil, "url", url)))
	c := caller{d, d.tokenIn("home", "operator", "ann", "")}
	d.begin()

	for _, tt := range shapes(t) {
		// Words of their own, because what two say alike is given once.
		for r, tool := range map[retriever]string{m: "memory_search", g: "rag.search"} {
			result := strings.ReplaceAll(tt.result, "W", "word of "+tool)
			for i := 0; strings.Contains(result, "#"); i++ {
				result = strings.Replace(result, "#", strconv.Itoa(i), 1)
			}
			r.answers(tool, result)
		}
		out := c.recall("main", question)
		hits := 0
		for name, tool := range map[string]string{"memory": "memory_search", "manuals": "rag.search"} {
			var got []string
			for _, it := range out.Items {
				if it.Retriever == name {
					got = append(got, it.Title+": "+it.Body)
				}
			}
			want := strings.ReplaceAll(tt.want, "W", "word of "+tool)
			if strings.Join(got, ", ") != want {
				t.Errorf("%s: %s gives %q, want %q", tt.name, name, got, want)
			}
			hits = len(got)
		}
		status := map[bool]string{true: "ok", false: "empty"}[hits > 0]
		out.want(t, fmt.Sprintf("local not_configured 0, memory %s %d, manuals %[1]s %d", status, hits, hits))
	}
	onlyAsked(t, m, "memory_search")
	onlyAsked(t, g, "rag.search")
}

// onlyAsked holds what a server was asked to one tool.
func onlyAsked(t *testing.T, r retriever, tool string) {
	t.Helper()
	calls := r.calls()
	if len(calls) == 0 {
		t.Errorf("%s was never called", tool)
	}
	for _, c := range calls {
		if c.Tool != tool {
			t.Errorf("%s was called, want %s alone", c.Tool, tool)
		}
	}
	for _, method := range r.lines("methods") {
		if strings.HasPrefix(method, "tools/") && method != "tools/call" || strings.HasPrefix(method, "resources/") || strings.HasPrefix(method, "prompts/") {
			t.Errorf("a server was asked %s", method)
		}
	}
}

// A misdeed is what becomes of one of two retrievers.
type misdeed struct {
	name string
	do   func(r retriever)                     // of a server that works, or
	be   func(t *testing.T, r retriever) []any // instead of one
	want string                                // of its status
}

// child and address are the two ways to a server.
func child(*testing.T, retriever) []any { return nil }

func address(_ *testing.T, r retriever) []any {
	url, _ := r.listen("127.0.0.1:0")
	return []any{"command", nil, "url", url}
}

func program(argv ...string) func(*testing.T, retriever) []any {
	return func(*testing.T, retriever) []any { return []any{"command", argv} }
}

func page(h http.HandlerFunc) func(*testing.T, retriever) []any {
	return func(t *testing.T, _ retriever) []any {
		s := httptest.NewServer(h)
		t.Cleanup(s.Close)
		return []any{"command", nil, "url", s.URL}
	}
}

// silence lasts until whoever asked has gone.
func silence(_ http.ResponseWriter, r *http.Request) {
	_, _ = io.Copy(io.Discard, r.Body)
	<-r.Context().Done()
}

func deaf(t *testing.T, _ retriever) []any {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_ = l.Close()
	return []any{"command", nil, "url", "http://" + l.Addr().String()}
}

// flood is five hits of 50 kB each.
func flood(word string) (texts []string) {
	for i := range 5 {
		texts = append(texts, strings.Repeat(fmt.Sprint(word, i, " "), 50_000/(len(word)+2)))
	}
	return texts
}

func misdeeds(t *testing.T) (all []misdeed) {
	no := string(encode(t, with(asText(`[{"text":"no hit"}]`), []any{"isError", true})))
	for door, be := range map[string]func(*testing.T, retriever) []any{"as a child": child, "at a URL": address} {
		all = append(all,
			misdeed{"hangs " + door, func(r retriever) { r.does("rag.search", "hang") }, be, "timeout 0"},
			misdeed{"says that it failed " + door, func(r retriever) { r.answers("rag.search", no) }, be, "error 0"},
			misdeed{"refuses the call " + door, func(r retriever) { r.does("rag.search", "refuse") }, be, "error 0"},
			misdeed{"floods " + door, func(r retriever) { r.finds("rag.search", flood("word")...) }, be, "ok 4"},
			misdeed{"finds nothing " + door, func(retriever) {}, be, "empty 0"},
		)
	}
	return append(all,
		misdeed{"dies in each call", func(r retriever) { r.does("rag.search", "always die") }, child, "error 0"},
		misdeed{"talks nonsense", func(r retriever) { r.does("rag.search", "break") }, child, "error 0"},
		misdeed{"is not there", nil, program("/nonexistent/program"), "error 0"},
		misdeed{"ends at once", nil, program("false"), "error 0"},
		misdeed{"says nothing", nil, program("sleep", "600"), "timeout 0"},
		misdeed{"speaks something else", nil, program("yes", "no"), "error 0"},
		misdeed{"does not listen", nil, deaf, "error 0"},
		misdeed{"is broken", nil, page(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(500) }), "error 0"},
		misdeed{"hangs up", nil, page(func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }), "error 0"},
		misdeed{"never answers", nil, page(silence), "timeout 0"},
	)
}

func TestATurnIsServedWhateverARetrieverDoes(t *testing.T) {
	t.Parallel()
	together(t, misdeeds(t), func(bad misdeed) string { return bad.name }, func(t *testing.T, bad misdeed) {
		m, g := newRetriever(t), newRetriever(t)
		m.finds("memory_search", "The flight is on Monday.", "At noon.")
		if bad.do != nil {
			bad.do(g)
		}
		d := newDaemon(t)
		d.configure(recallOf("4s", m.memory(), g.manuals(bad.be(t, g)...)))
		c := caller{d, d.tokenIn("home", "operator", "ann", "")}
		d.begin()
		c.do(201, "POST", "/v1/conversations/old/turns", said(t, "Lisbon is where we fly to.", "Noted."))
		out := c.recall("main", question)
		out.want(t, "local ok 1, memory ok 2, manuals "+bad.want)
		if got := out.bodies("memory"); got != "The flight is on Monday. | At noon." {
			t.Errorf("the healthy one's hits are %q", got)
		}
		// Nor does it keep the daemon from stopping, or its children outlive that.
		d.stop()
		children := m.lines("starts")
		if bad.do != nil && !strings.HasSuffix(bad.name, "URL") {
			children = append(children, g.lines("starts")...)
		}
		for _, pid := range children {
			if n, err := strconv.Atoi(pid); err != nil || alive(n) {
				t.Errorf("the child %q outlives the daemon", pid)
			}
		}
	})
}

// Many turns at once meet a server that hangs and one that floods, and each has the hits of the healthy one, and its
// share of the room.
func TestManyTurnsAtOnceAreAllServed(t *testing.T) {
	t.Parallel()
	m, g, h := newRetriever(t), newRetriever(t), newRetriever(t)
	m.finds("memory_search", "The flight is on Monday.")
	g.finds("rag.search", flood("word")...)
	h.does("rag.search", "hang")
	d := newDaemon(t)
	d.configure(recallOf("8s", m.memory(), g.manuals("name", "floods"), h.manuals("name", "hangs")))
	callers := []caller{}
	for i := range 4 {
		callers = append(callers, caller{d, d.tokenIn("home", "mesh", fmt.Sprint("ann", i), "")})
	}
	d.begin()
	var all sync.WaitGroup
	for i := range 12 {
		all.Go(func() {
			body := []byte(`{"recall":{"query":"` + question + `"}}`)
			status, b, _, err := callers[i%4].try("POST", "/v1/conversations/main/replay", body)
			var out struct{ Recall recalled }
			if err != nil || status != 200 || json.Unmarshal(b, &out) != nil {
				t.Errorf("a turn is answered %d %.300s: %v", status, b, err)
				return
			}
			out.Recall.check(t)
			got := out.Recall.statuses()
			if out.Recall.bodies("memory") != "The flight is on Monday." || !strings.HasSuffix(got, "hangs timeout 0") || out.Recall.bodies("floods") == "" || !out.Recall.Truncated {
				t.Errorf("a turn has %s", got)
			}
		})
	}
	all.Wait()
	d.stop()
}

// The caps are those of the configuration, and hold for all together.
func TestFloodsFromEverywhereKeepToTheCaps(t *testing.T) {
	t.Parallel()
	m, g := newRetriever(t), newRetriever(t)
	m.finds("memory_search", flood("mem")...)
	g.finds("rag.search", flood("man")...)
	d := newDaemon(t, "HISTORYD_RECALL_TOP_K=3", "HISTORYD_RECALL_MAX_ITEM_CHARS=100", "HISTORYD_RECALL_MAX_TITLE_CHARS=10", "HISTORYD_RECALL_MAX_TOTAL_CHARS=900")
	d.configure(recallOf("20s", m.memory(), g.manuals()))
	c := caller{d, d.tokenIn("home", "operator", "ann", "")}
	d.begin()
	for i := range 5 {
		c.do(201, "POST", fmt.Sprint("/v1/conversations/c", i, "/turns"), said(t, question+fmt.Sprint(" no ", i, " ")+flood("loc")[i]))
	}
	out := c.recall("main", question)
	if n := utf8.RuneCountInString(out.Text); n > 900 || !out.Truncated {
		t.Errorf("the block has %d characters: %s", n, out.Text)
	}
	for _, it := range out.Items {
		if utf8.RuneCountInString(it.Body) > 100 || utf8.RuneCountInString(it.Title) > 10 {
			t.Errorf("a hit is %+v", it)
		}
	}
	for _, s := range out.Retrievers {
		if s.Hits < 1 || s.Hits > 3 {
			t.Errorf("%s has %d hits", s.Name, s.Hits)
		}
	}
	for _, call := range append(m.calls(), g.calls()...) {
		if call.Arguments["limit"] != json.Number("3") && call.Arguments["top_k"] != json.Number("3") {
			t.Errorf("a server is asked for %v", call.Arguments)
		}
	}
}

// What the daemon has started is told nothing of it, and ends with it, also when nobody could tell it to.
func TestChildrenKnowNothingAndEndWithAKilledDaemon(t *testing.T) {
	t.Parallel()
	m, g := newRetriever(t), newRetriever(t)
	m.does("memory_search", "hang")
	d := newDaemon(t, "SECRET_OF_OURS=zqcanary")
	d.configure(recallOf("500ms", m.memory(), g.manuals()))
	c := caller{d, d.tokenIn("home", "operator", "ann", "")}
	d.begin()
	await(t, "both are asked", func() bool {
		c.ask("main", question)
		return len(m.calls()) > 0 && len(g.calls()) > 0
	})
	pids := append(m.lines("starts"), g.lines("starts")...)
	for _, pid := range pids {
		environment, err := os.ReadFile("/proc/" + pid + "/environ")
		if err == nil && (strings.Contains(string(environment), "zqcanary") || strings.Contains(string(environment), "HISTORYD_")) {
			t.Errorf("a child has the environment %q", environment)
		}
		files, _ := filepath.Glob("/proc/" + pid + "/fd/*")
		for _, file := range files {
			if to, err := os.Readlink(file); err == nil && strings.HasPrefix(to, d.dir) {
				t.Errorf("a child has %s open", to)
			}
		}
	}
	d.kill()
	for _, pid := range pids {
		n, err := strconv.Atoi(pid)
		if err != nil {
			t.Fatal(err)
		}
		await(t, "process "+pid+" ends", func() bool { return !alive(n) })
	}
}

// alive reports whether a process runs. One that waits for somebody to reap it does not.
func alive(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return syscall.Kill(pid, 0) == nil
	}
	_, state, _ := strings.Cut(string(stat), ") ")
	return !strings.HasPrefix(state, "Z") && !strings.HasPrefix(state, "X")
}
