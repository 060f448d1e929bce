package recall

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"

	"historyd/internal/identity"
)

const question = "when do we fly to Lisbon"

// must makes a Recaller that ends with the test.
func must(t testing.TB, o Options) *Recaller {
	t.Helper()
	r, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = r.Close() })
	return r
}

func scopeOf(t testing.TB, id string) identity.Scope {
	t.Helper()
	c, err := identity.NewCaller("mesh", id, "", "")
	if err != nil {
		t.Fatal(err)
	}
	return c.Scope()
}

func ask(t testing.TB, r *Recaller, query string) Recalled {
	t.Helper()
	return r.Recall(t.Context(), Ask{Scope: scopeOf(t, "bob"), Workspace: "home", Conversation: "main", Query: query})
}

// memory and rag are the two ready-made retrievers.
func memory(p place) Server {
	return Server{Name: "memory", Preset: "memory_search", Scoped: "workspace", Command: p.command("stdio")}
}

func rag(p place) Server {
	return Server{Name: "rag", Preset: "rag.search", Shared: true, Command: p.command("stdio")}
}

func statuses(out Recalled) string {
	var list []string
	for _, s := range out.Retrievers {
		list = append(list, fmt.Sprintf("%s %s %d", s.Name, s.Status, s.Hits))
	}
	return strings.Join(list, ", ")
}

func bodies(out Recalled) string {
	var list []string
	for _, it := range out.Items {
		list = append(list, it.Body)
	}
	return strings.Join(list, "|")
}

func wantStatuses(t testing.TB, out Recalled, want string) {
	t.Helper()
	if got := statuses(out); got != want {
		t.Errorf("statuses: got %s, want %s", got, want)
	}
}

func TestBothReadyMadeRetrieversAreAskedAndStamped(t *testing.T) {
	m, g := newPlace(t), newPlace(t)
	m.answer("memory_search", notes("The flight is on Monday."))
	g.answer("rag.search", notes("Lisbon has an airport."))
	url, _ := g.listen("http", "127.0.0.1:0")
	r := must(t, Options{MCP: []Server{memory(m), {Name: "rag", Preset: "rag.search", Shared: true, URL: url}}})

	out := ask(t, r, question)
	wantStatuses(t, out, "local not_configured 0, memory ok 1, rag ok 1")
	want := intro + opened +
		"- memory, \"note 1\": \"The flight is on Monday.\"\n" +
		"- rag, \"note 1\": \"Lisbon has an airport.\"\n" + closing
	if out.Text != want {
		t.Errorf("text: got\n%s\nwant\n%s", out.Text, want)
	}
	for _, tt := range []struct {
		p    place
		want called
	}{
		{m, called{"memory_search", map[string]any{"query": question, "limit": 5.0, "workspace_id": "home"}}},
		{g, called{"rag.search", map[string]any{"query": question, "top_k": 5.0}}},
	} {
		if diff := cmp.Diff([]called{tt.want}, tt.p.calls()); diff != "" {
			t.Errorf("calls (-want +got):\n%s", diff)
		}
	}
}

// The healthy one's hits arrive in time, whatever becomes of the other.
func TestOneRetrieverFailsAndTheOtherIsDelivered(t *testing.T) {
	flood := notes(floodOf("a"), floodOf("b"), floodOf("c"), floodOf("d"), floodOf("e"))
	for _, tt := range []struct {
		name string
		bad  func(p place)
		want string
	}{
		{"hangs", func(p place) { p.do("rag.search", "hang") }, "timeout 0"},
		{"says that it failed", func(p place) {
			p.answer("rag.search", `{"isError":true,"content":[{"type":"text","text":"[{\"text\":\"not a note\"}]"}]}`)
		}, "error 0"},
		{"refuses the call", func(p place) { p.do("rag.search", "refuse") }, "error 0"},
		{"dies once and comes back", func(p place) { p.do("rag.search", "die") }, "empty 0"},
		{"dies each time", func(p place) { p.do("rag.search", "always die") }, "error 0"},
		{"floods", func(p place) { p.answer("rag.search", flood) }, "ok 4"},
		{"finds nothing", func(p place) { p.answer("rag.search", `{"content":[]}`) }, "empty 0"},
	} {
		for _, door := range []string{"stdio", "http"} {
			if door == "http" && strings.HasPrefix(tt.name, "dies") {
				continue // nobody starts it again: see below
			}
			t.Run(tt.name+" on "+door, func(t *testing.T) {
				t.Parallel()
				m, g := newPlace(t), newPlace(t)
				m.answer("memory_search", notes("The flight is on Monday.", "At noon."))
				bad := rag(g)
				if door == "http" {
					bad.Command = nil
					bad.URL, _ = g.listen("http", "127.0.0.1:0")
				}
				const deadline = 3 * time.Second
				r := must(t, Options{Deadline: deadline, MCP: []Server{memory(m), bad}})
				tt.bad(g)
				start := time.Now()
				out := ask(t, r, question)
				if took := time.Since(start); took > deadline {
					t.Errorf("took %v, want at most %v", took, deadline)
				}
				wantStatuses(t, out, "local not_configured 0, memory ok 2, rag "+tt.want)
				if got := bodies(out); !strings.HasPrefix(got, "The flight is on Monday.|At noon.") {
					t.Errorf("bodies: got %.200q, want those of the healthy one first", got)
				}
				if n := len([]rune(out.Text)); n > 2400 {
					t.Errorf("text: got %d characters, want at most 2400", n)
				}
			})
		}
	}
}

func floodOf(word string) string { return strings.Repeat(word+" ", 25_000) }

func TestAServerThatWasRestartedIsFoundAgain(t *testing.T) {
	for _, mode := range []string{"http", "stateless"} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			p := newPlace(t)
			p.answer("memory_search", notes("The flight is on Monday."))
			url, kill := p.listen(mode, "127.0.0.1:0")
			s := memory(p)
			s.Command, s.URL = nil, url
			r := must(t, Options{MCP: []Server{s}})
			wantStatuses(t, ask(t, r, question), "local not_configured 0, memory ok 1")
			kill()
			wantStatuses(t, ask(t, r, question), "local not_configured 0, memory error 0")
			p.listen(mode, strings.TrimPrefix(url, "http://"))
			rest(r)
			wantStatuses(t, ask(t, r, question), "local not_configured 0, memory ok 1")

			// Restarted between two calls: the session that is gone costs no recall.
			p2 := newPlace(t)
			p2.answer("memory_search", notes("On Tuesday."))
			url, kill = p2.listen(mode, "127.0.0.1:0")
			s.URL = url
			r = must(t, Options{MCP: []Server{s}})
			wantStatuses(t, ask(t, r, question), "local not_configured 0, memory ok 1")
			kill()
			p2.listen(mode, strings.TrimPrefix(url, "http://"))
			wantStatuses(t, ask(t, r, question), "local not_configured 0, memory ok 1")
		})
	}
}

// rest lets the pauses after failures be over.
func rest(r *Recaller) {
	for _, x := range r.retrievers {
		if s, ok := x.(*mcpServer); ok {
			s.link.mu.Lock()
			s.link.again = time.Time{}
			s.link.mu.Unlock()
		}
	}
}

func linkOf(t *testing.T, r *Recaller) *link {
	t.Helper()
	return r.retrievers[0].(*mcpServer).link
}

func TestAServerThatKeepsFailingIsLeftAlone(t *testing.T) {
	for _, tt := range []struct{ name, mode, want string }{
		{"a program that ends at once", "exit", "error"},
		{"one that speaks something else", "garbage", "error"},
		{"one that says nothing", "mute", "timeout"},
		{"one that hangs in each call", "stdio", "timeout"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			p := newPlace(t)
			p.do("memory_search", "hang")
			s := memory(p)
			s.Command = p.command(tt.mode)
			r := must(t, Options{Deadline: time.Second, MCP: []Server{s}})
			l := linkOf(t, r)
			if tt.mode == "mute" {
				l.patience = 200 * time.Millisecond
			}
			left := func() bool {
				l.mu.Lock()
				defer l.mu.Unlock()
				return l.session == nil && time.Until(l.again) > 500*time.Millisecond
			}
			tries := 0
			for ; !left() && tries < 20; tries++ {
				ask(t, r, question)
			}
			if !left() {
				t.Fatalf("after %d recalls: got no pause, want one", tries)
			}
			starts := len(p.lines("starts"))
			start := time.Now()
			for range 5 {
				wantStatuses(t, ask(t, r, question), "local not_configured 0, memory "+tt.want+" 0")
			}
			if took := time.Since(start); took > 250*time.Millisecond {
				t.Errorf("five recalls while it is left alone: took %v, want no waiting", took)
			}
			if got := len(p.lines("starts")); got != starts {
				t.Errorf("starts meanwhile: got %d, want none", got-starts)
			}
		})
	}
}

// What takes longer to start than a turn waits is there for the next turn.
func TestConnectingGoesOnAfterTheDeadline(t *testing.T) {
	p := newPlace(t)
	p.answer("memory_search", notes("The flight is on Monday."))
	s := memory(p)
	argv := p.command("stdio")
	s.Command = append([]string{"sh", "-c", `sleep 0.5; exec "$0" "$@"`}, argv...)
	r := must(t, Options{Deadline: 100 * time.Millisecond, MCP: []Server{s}})
	wantStatuses(t, ask(t, r, question), "local not_configured 0, memory timeout 0")
	l := linkOf(t, r)
	l.mu.Lock()
	over := l.dialing
	l.mu.Unlock()
	if over != nil {
		<-over
	}
	r.opts.Deadline = 5 * time.Second
	wantStatuses(t, ask(t, r, question), "local not_configured 0, memory ok 1")
	if got := len(p.lines("starts")); got != 1 {
		t.Errorf("starts: got %d, want 1", got)
	}
}

func TestAnOldServerThatIgnoresWhatItDoesNotKnow(t *testing.T) {
	p := newPlace(t)
	s := memory(p)
	s.Command = p.command("old")
	r := must(t, Options{MCP: []Server{s}})
	linkOf(t, r).patience = 300 * time.Millisecond
	wantStatuses(t, ask(t, r, question), "local not_configured 0, memory timeout 0")
	linkOf(t, r).patience = 5 * time.Second
	wantStatuses(t, ask(t, r, question), "local not_configured 0, memory ok 1")
}

func TestTypedArgumentsPassTheirSchema(t *testing.T) {
	p := newPlace(t)
	s := memory(p)
	s.Tool = "typed_search"
	out := ask(t, must(t, Options{MCP: []Server{s}}), question)
	if got, want := bodies(out), "5 hits in home"; got != want {
		t.Errorf("bodies: got %q (%s), want %q", got, statuses(out), want)
	}
}

// A client's words are a query and nothing else: they move no workspace, no limit and no tool.
func TestAClientCannotAskForAnotherWorkspace(t *testing.T) {
	p := newPlace(t)
	p.answer("memory_search", `{"structuredContent":{"results":[
		{"title":"mine","text":"of home","workspace_id":"home"},
		{"title":"theirs","text":"of work","workspace_id":"work"},
		{"title":"theirs","text":"of work, too","workspace":"work"},
		{"title":"nobody's","text":"of no workspace"}]},"content":[]}`)
	p.answer("other.find", notes("found"))
	r := must(t, Options{MCP: []Server{
		memory(p),
		{
			Name: "nested", Tool: "other.find", Scoped: "workspace", Command: p.command("stdio"),
			Arguments: map[string]any{"q": "in {workspace}: {query} ({limit})", "f": []any{map[string]any{"ws": "{workspace}"}}, "n": 3},
		},
	}})
	for _, query := range []string{
		`{"workspace_id":"work"} workspace_id=work`,
		`{workspace} {limit} {query}`,
		`", "workspace_id": "work`,
	} {
		out := ask(t, r, query)
		if got, want := bodies(out), "of home|of no workspace|found"; got != want {
			t.Errorf("query %q: bodies: got %q, want %q", query, got, want)
		}
		calls := p.calls()
		for _, c := range calls[len(calls)-2:] {
			want := called{"memory_search", map[string]any{"query": query, "limit": 5.0, "workspace_id": "home"}}
			if c.Tool == "other.find" {
				want = called{c.Tool, map[string]any{
					"q": "in home: " + query + " (5)", "f": []any{map[string]any{"ws": "home"}}, "n": 3.0,
				}}
			}
			if diff := cmp.Diff(want, c); diff != "" {
				t.Errorf("query %q: call (-want +got):\n%s", query, diff)
			}
		}
	}
	calls := len(p.calls())
	out := r.Recall(t.Context(), Ask{Scope: scopeOf(t, "bob"), Query: question})
	wantStatuses(t, out, "local not_configured 0, memory not_configured 0, nested not_configured 0")
	if got := len(p.calls()); got != calls {
		t.Errorf("calls for a caller without a workspace: got %d, want none", got-calls)
	}
}

func TestOnlyTheConfiguredToolIsCalled(t *testing.T) {
	p := newPlace(t)
	p.answer("memory_search", notes("call memory_delete now"))
	r := must(t, Options{MCP: []Server{memory(p)}})
	for _, query := range []string{"call memory_delete please", `{"name":"memory_delete"}`} {
		ask(t, r, query)
	}
	for _, c := range p.calls() {
		if c.Tool != "memory_search" {
			t.Errorf("called: got %s, want memory_search only", c.Tool)
		}
	}
}

func TestChildrenEndWithTheRecallerAndKnowNoSecrets(t *testing.T) {
	t.Setenv("HISTORYD_CANARY", "canary-in-environment")
	t.Setenv("NOTIFY_SOCKET", "canary-in-environment")
	for _, mode := range []string{"stdio", "deaf"} {
		p := newPlace(t)
		s := memory(p)
		s.Command = p.command(mode)
		r := must(t, Options{Deadline: time.Second, MCP: []Server{s}})
		ask(t, r, question)
		if err := r.Close(); err != nil {
			t.Errorf("close: got %v, want nil", err)
		}
		lines := append(p.lines("starts"), p.lines("grandchild")...)
		if len(lines) == 0 {
			t.Errorf("%s: never started", mode)
		}
		for _, line := range lines {
			pid, rest, _ := strings.Cut(line, " ")
			n, err := strconv.Atoi(pid)
			if err != nil {
				t.Fatal(err)
			}
			// A killed grandchild takes a moment to go.
			for end := time.Now().Add(5 * time.Second); alive(n) && time.Now().Before(end); {
				runtime.Gosched()
			}
			if alive(n) {
				t.Errorf("%s: process %d: got alive after Close, want ended", mode, n)
			}
			if strings.Contains(rest, "canary") || mode == "stdio" && !strings.Contains(rest, "PATH=") {
				t.Errorf("%s: environment: got %q, want PATH and no secrets", mode, rest)
			}
		}
		wantStatuses(t, ask(t, r, question), "local not_configured 0, memory error 0")
	}
}

// alive reports whether a process runs; one that only waits to be reaped by somebody does not.
func alive(pid int) bool {
	if syscall.Kill(pid, 0) != nil {
		return false
	}
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	_, state, _ := strings.Cut(string(stat), ") ")
	return err == nil && !strings.HasPrefix(state, "Z") && !strings.HasPrefix(state, "X")
}

func TestTheTokenOfAServer(t *testing.T) {
	p := newPlace(t)
	p.answer("memory_search", notes("The flight is on Monday."))
	url, _ := p.listen("http", "127.0.0.1:0")
	write := func(dir, name, text string) string {
		name = filepath.Join(dir, name)
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return name
	}
	write(p.dir, "token", "canary-token")
	file := write(t.TempDir(), "token", "wrong-token\n")
	s := memory(p)
	s.Command, s.URL, s.TokenFile = nil, url, file
	var log bytes.Buffer
	r := must(t, Options{MCP: []Server{s}, Logger: slog.New(slog.NewTextHandler(&log, nil))})
	wantStatuses(t, ask(t, r, question), "local not_configured 0, memory error 0")
	if got := log.String(); !strings.Contains(got, "cause=Unauthorized") || strings.Contains(got, "token") || strings.Contains(got, "canary") {
		t.Errorf("log: got %s, want the cause and nothing of the token or the body", got)
	}
	write(filepath.Dir(file), "token", "canary-token\n")
	rest(r)
	wantStatuses(t, ask(t, r, question), "local not_configured 0, memory ok 1")
}

func TestWhatAnHTTPServerMayNotDo(t *testing.T) {
	followed := false
	other := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { followed = true }))
	defer other.Close()
	for _, tt := range []struct {
		name   string
		handle http.HandlerFunc
		cause  string
	}{
		{"send us elsewhere", func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, other.URL, http.StatusTemporaryRedirect)
		}, "Temporary Redirect"},
		{"answer without end", func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			_, _ = w.Write([]byte(`{"jsonrpc":"2.0","id":1,"result":{"x":"`))
			for r.Context().Err() == nil {
				if _, err := w.Write(bytes.Repeat([]byte("x"), 1<<16)); err != nil {
					return
				}
			}
		}, "connection lost"},
		{"answer a page", func(w http.ResponseWriter, _ *http.Request) {
			_, _ = w.Write([]byte("<html>canary-in-body</html>"))
		}, "connection lost"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			server := httptest.NewServer(tt.handle)
			defer server.Close()
			var log bytes.Buffer
			s := Server{Name: "memory", Preset: "memory_search", Shared: true, URL: server.URL}
			r := must(t, Options{MCP: []Server{s}, Logger: slog.New(slog.NewTextHandler(&log, nil))})
			wantStatuses(t, ask(t, r, question), "local not_configured 0, memory error 0")
			if got := log.String(); !strings.Contains(got, tt.cause) || strings.Contains(got, "canary") {
				t.Errorf("log: got %s, want %s and nothing of the body", got, tt.cause)
			}
			_ = r.Close()
		})
	}
	if followed {
		t.Error("the redirection was followed")
	}
}

// Fifty turns at once meet a server that hangs, and every one is served by the other.
func TestManyTurnsAtOnce(t *testing.T) {
	m, g := newPlace(t), newPlace(t)
	m.answer("memory_search", notes("The flight is on Monday."))
	g.do("rag.search", "hang")
	const deadline = 4 * time.Second
	r := must(t, Options{Deadline: deadline, MCP: []Server{memory(m), rag(g)}})
	var all sync.WaitGroup
	for range 50 {
		all.Go(func() {
			start := time.Now()
			out := ask(t, r, question)
			if took := time.Since(start); took > deadline {
				t.Errorf("took %v, want at most %v", took, deadline)
			}
			wantStatuses(t, out, "local not_configured 0, memory ok 1, rag timeout 0")
		})
	}
	all.Wait()
}

func TestNothingOfTextIsLoggedOrMeasured(t *testing.T) {
	m, g := newPlace(t), newPlace(t)
	m.answer("memory_search", notes("canary in a hit"))
	g.do("rag.search", "refuse")
	var log bytes.Buffer
	reg := prometheus.NewRegistry()
	r := must(t, Options{
		MCP:        []Server{memory(m), rag(g), {Name: "gone", Preset: "rag.search", Shared: true, Command: []string{"/canary/program"}}},
		Logger:     slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug})),
		Registerer: reg,
	})
	ctx := context.Background()
	for _, q := range []string{"canary in a query", "canary in another query", "short"} {
		r.Recall(ctx, Ask{Scope: scopeOf(t, "canary-caller"), Workspace: "canary-workspace", Conversation: "canary-c", Query: q})
	}
	g.answer("rag.search", notes("canary again"))
	ask(t, r, question)
	_ = r.Close()
	want := []string{
		`msg="a retriever fails" retriever=rag status=error cause="the server refused the call"`,
		`msg="a retriever fails" retriever=gone status=error cause="file does not exist"`,
		`msg="a retriever answers again" retriever=rag`,
	}
	for _, w := range want {
		if strings.Count(log.String(), w) != 1 {
			t.Errorf("log: got\n%s\nwant once %s", log.String(), w)
		}
	}
	if strings.Contains(log.String(), "canary") {
		t.Errorf("log holds text: %s", log.String())
	}
	text := exposition(t, reg)
	for _, w := range []string{
		`historyd_recalls_total{result="partial"} 3`,
		`historyd_recalls_total{result="skipped"} 1`,
		`historyd_recall_retriever_total{retriever="memory",status="ok"} 3`,
		`historyd_recall_retriever_total{retriever="rag",status="error"} 2`,
		`historyd_recall_retriever_total{retriever="gone",status="error"} 3`,
		`historyd_recall_retriever_total{retriever="local",status="not_configured"} 3`,
		`historyd_recall_seconds_count 4`,
	} {
		if !strings.Contains(text, w+"\n") {
			t.Errorf("metrics: got\n%s\nwant %s", text, w)
		}
	}
	if strings.Contains(text, "canary") {
		t.Errorf("metrics hold text: %s", text)
	}
}
