package recall

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/prometheus/common/expfmt"

	"historyd/internal/history"
	"historyd/internal/identity"
)

// searcher is a Searcher of one function.
type searcher func(ctx context.Context, scope identity.Scope, q Query) (Results, error)

func (s searcher) Search(ctx context.Context, scope identity.Scope, q Query) (Results, error) {
	return s(ctx, scope, q)
}

func exposition(t testing.TB, g prometheus.Gatherer) string {
	t.Helper()
	families, err := g.Gather()
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	for _, f := range families {
		if _, err := expfmt.MetricFamilyToText(&b, f); err != nil {
			t.Fatal(err)
		}
	}
	return b.String()
}

func TestMetricsPassTheLinter(t *testing.T) {
	reg := prometheus.NewRegistry()
	must(t, Options{Registerer: reg, MCP: []Server{{Name: "m", Preset: "rag.search", Shared: true, Command: []string{"true"}}}})
	problems, err := testutil.GatherAndLint(reg)
	if err != nil || len(problems) > 0 {
		t.Errorf("lint: got %v, %v, want nothing", problems, err)
	}
	if got := strings.Count(exposition(t, reg), "historyd_recall_retriever_total{"); got != 10 {
		t.Errorf("series at the start: got %d, want those of two retrievers in five states", got)
	}
}

func TestLocalHits(t *testing.T) {
	var asked Query
	var whose identity.Scope
	at := time.Date(2026, 3, 1, 23, 0, 0, 0, time.FixedZone("", -3*3600))
	r := must(t, Options{MinScore: 0.5, Local: searcher(func(_ context.Context, scope identity.Scope, q Query) (Results, error) {
		asked, whose = q, scope
		return Results{Hits: []Hit{
			{Conversation: "trips", Seq: 12, Role: history.User, At: at, Score: 8, Relevance: 1.2, Snippet: "fly on Monday"},
			{Conversation: "trips", Seq: 14, Role: history.Assistant, At: at, Score: 4, Relevance: 0.5, Snippet: "noted"},
			{Conversation: "trips", Seq: 3, Role: history.User, At: at, Score: 3.9, Relevance: 0.49, Snippet: "below the floor"},
		}}, nil
	})})
	bob := scopeOf(t, "bob")
	out := r.Recall(t.Context(), Ask{Scope: bob, Conversation: "main", Query: ` -"fly` + "\x00\xff" + ` to* Lisbon `, Through: 7})
	wantStatuses(t, out, "local ok 2")
	want := intro + opened +
		"- local, \"trips #12, user, 2026-03-02\": \"fly on Monday\"\n" +
		"- local, \"trips #14, assistant, 2026-03-02\": \"noted\"\n" + closing
	if out.Text != want || out.Truncated {
		t.Errorf("text: got (cut: %t)\n%s\nwant\n%s", out.Truncated, out.Text, want)
	}
	if it := out.Items[0]; it.Conversation != "trips" || it.Seq != 12 || it.Score != 8 {
		t.Errorf("item: got %+v, want its place and score", it)
	}
	if whose != bob || !asked.Plain || asked.Text != "-\"fly\x00\uFFFD to* Lisbon" || asked.Limit != 10 {
		t.Errorf("asked: got %v %+v, want bob, plain words, twice as many as are kept", whose, asked)
	}
	for _, tt := range []struct {
		place Place
		want  bool
	}{
		{Place{"main", 7, history.User, history.Person}, false},
		{Place{"main", 8, history.User, history.Person}, true},
		{Place{"trips", 8, history.User, history.Person}, false},
		{Place{"trips", 8, history.Assistant, ""}, false},
		{Place{"trips", 8, history.System, ""}, true},
		{Place{"trips", 1, history.User, history.Reference}, true},
		{Place{"main", 1, history.User, history.Reference}, true},
	} {
		if got := asked.Exclude(tt.place); got != tt.want {
			t.Errorf("Exclude(%+v): got %t, want %t", tt.place, got, tt.want)
		}
	}
}

func TestQueriesThatAreNotAsked(t *testing.T) {
	asked := 0
	r := must(t, Options{Local: searcher(func(context.Context, identity.Scope, Query) (Results, error) {
		asked++
		return Results{}, ErrBadQuery
	})})
	for _, tt := range []struct {
		query string
		want  int
	}{{"", 0}, {"  1234567  ", 0}, {"漢字七文字です", 0}, {"漢字八文字ですよ", 1}, {strings.Repeat("?", 9), 1}} {
		asked = 0
		out := ask(t, r, tt.query)
		wantStatuses(t, out, "local empty 0")
		if asked != tt.want || out.Text != "" || out.Items != nil || out.Skipped != (asked == 0) {
			t.Errorf("%q: asked %d times, text %q; want %d times and nothing", tt.query, asked, out.Text, tt.want)
		}
	}
}

func TestLongQueriesAreCut(t *testing.T) {
	var got string
	r := must(t, Options{Local: searcher(func(_ context.Context, _ identity.Scope, q Query) (Results, error) {
		got = q.Text
		return Results{}, nil
	})})
	ask(t, r, strings.Repeat("漢", 1_000_000))
	if got != strings.Repeat("漢", maxQuery) {
		t.Errorf("asked: got %d characters, want %d", len([]rune(got)), maxQuery)
	}
}

// A search that heeds no deadline delays nobody, and Close waits for it.
func TestTheDeadlineHoldsWhateverLocalDoes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		var done atomic.Int64
		r := must(t, Options{Local: searcher(func(context.Context, identity.Scope, Query) (Results, error) {
			<-release
			time.Sleep(time.Second)
			done.Add(1)
			return Results{}, nil
		})})
		start := time.Now()
		wantStatuses(t, ask(t, r, question), "local timeout 0")
		if took := time.Since(start); took > 4*time.Second {
			t.Errorf("took %v, want at most the deadline", took)
		}
		start = time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		wantStatuses(t, r.Recall(ctx, Ask{Scope: scopeOf(t, "bob"), Query: question}), "local timeout 0")
		if took := time.Since(start); took != time.Second {
			t.Errorf("with a second of a caller's own: took %v, want it", took)
		}
		close(release)
		_ = r.Close()
		if got := done.Load(); got != 2 {
			t.Errorf("searches that had ended when Close returned: got %d, want 2", got)
		}
	})
}

func TestAPanicIsAnErrorOfOneRetriever(t *testing.T) {
	var log bytes.Buffer
	r := must(t, Options{
		Logger: slog.New(slog.NewTextHandler(&log, nil)),
		Local: searcher(func(_ context.Context, _ identity.Scope, q Query) (Results, error) {
			panic(q.Text)
		}),
	})
	wantStatuses(t, ask(t, r, question), "local error 0")
	if got := log.String(); !strings.Contains(got, "a retriever panicked") || strings.Contains(got, "Lisbon") {
		t.Errorf("log: got %s, want the panic without its value", got)
	}
}

func TestOptionsThatCannotBe(t *testing.T) {
	good := Server{Name: "m", Preset: "memory_search", Scoped: "workspace", Command: []string{"true"}}
	with := func(change func(*Server)) Options {
		s := good
		change(&s)
		return Options{MCP: []Server{s}}
	}
	for _, tt := range []struct {
		want string
		o    Options
	}{
		{"deadline", Options{Deadline: -1}},
		{"deadline", Options{Deadline: 2 * time.Minute}},
		{"min_query_chars", Options{MinQueryChars: -1}},
		{"top_k", Options{TopK: 51}},
		{"max_item_chars", Options{MaxItemChars: 3}},
		{"max_title_chars", Options{MaxTitleChars: -3}},
		{"max_total_chars", Options{MaxTotalChars: 100}},
		{"min_score", Options{MinScore: 1.1}},
		{"mcp[0].name", with(func(s *Server) { s.Name = "" })},
		{"mcp[0].name", with(func(s *Server) { s.Name = "local" })},
		{"mcp[0].name", with(func(s *Server) { s.Name = "a b" })},
		{"mcp[1].name", Options{MCP: []Server{good, good}}},
		{"mcp[0].preset", with(func(s *Server) { s.Preset = "x" })},
		{"mcp[0].tool", with(func(s *Server) { s.Preset = "" })},
		{"mcp[0].scoped", with(func(s *Server) { s.Scoped = "caller" })},
		{"mcp[0].shared", with(func(s *Server) { s.Scoped = "" })},
		{"mcp[0].shared", with(func(s *Server) { s.Shared = true })},
		{"mcp[0].timeout", with(func(s *Server) { s.Timeout = -1 })},
		{"mcp[0].url", with(func(s *Server) { s.URL = "http://127.0.0.1" })},
		{"mcp[0].url", with(func(s *Server) { s.Command = nil })},
		{"mcp[0].url", with(func(s *Server) { s.Command, s.URL = nil, "ftp://x" })},
		{"mcp[0].url", with(func(s *Server) { s.Command, s.URL = nil, "http://u:p@x" })},
		{"mcp[0].url", with(func(s *Server) { s.Command, s.URL, s.TokenFile = nil, "http://example.com", "/dev/null" })},
		{"mcp[0].url", with(func(s *Server) { s.Command, s.URL = nil, "http://example.com" })},
		{"mcp[0].url", with(func(s *Server) { s.Command, s.URL = nil, "http://192.168.1.7:7000/mcp" })},
		{"mcp[0].token_file", with(func(s *Server) { s.Command, s.URL, s.TokenFile = nil, "https://example.com", "/dev/null" })},
		{"mcp[0].token_file", with(func(s *Server) { s.TokenFile = "/dev/null" })},
		{"mcp[0].command", with(func(s *Server) { s.Command = []string{""} })},
		{"mcp[0].arguments", with(func(s *Server) { s.Arguments = map[string]any{"q": "x"} })},
		{"mcp[0].arguments", with(func(s *Server) {
			s.Preset, s.Tool, s.Arguments = "", "t", map[string]any{"q": "{query}"}
		})},
		{"mcp[0].arguments", with(func(s *Server) {
			s.Scoped, s.Shared, s.Arguments = "", true, map[string]any{"q": "{query}", "w": "{workspace}"}
		})},
	} {
		_, err := New(tt.o)
		if err == nil || !strings.HasPrefix(err.Error(), tt.want+": ") {
			t.Errorf("New(%+v): got %v, want an error of %s", tt.o, err, tt.want)
		}
	}
	if _, err := New(with(func(*Server) {})); err != nil {
		t.Errorf("New of good options: got %v, want nil", err)
	}
}

func TestNobodyToAsk(t *testing.T) {
	out := ask(t, must(t, Options{}), question)
	wantStatuses(t, out, "local not_configured 0")
	if out.Text != "" {
		t.Errorf("text: got %q, want none", out.Text)
	}
}

func BenchmarkMerge(b *testing.B) {
	o := Options{}
	if err := o.setDefaults(); err != nil {
		b.Fatal(err)
	}
	var batches []batch
	for i := range 3 {
		var hits []found
		for j := range 5 {
			hits = append(hits, found{title: "a title", body: fmt.Sprint(i, j, strings.Repeat(" word", 10_000))})
		}
		batches = append(batches, batch{fmt.Sprint("r", i), hits})
	}
	for b.Loop() {
		o.merge(batches, nil)
	}
}

// Two callers, one whose questions fail and one whose do not, fill no log.
func TestAHealthThatGoesToAndFroIsToldSoOften(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		fails := false
		r := must(t, Options{
			Logger: slog.New(slog.NewTextHandler(&log, nil)),
			Local: searcher(func(context.Context, identity.Scope, Query) (Results, error) {
				if fails {
					return Results{}, errLost
				}
				return Results{}, nil
			}),
		})
		told := func() int { return strings.Count(log.String(), "\n") }
		for range 50 {
			fails = !fails
			ask(t, r, question)
		}
		if told() != maxChanges {
			t.Errorf("fifty changes: got %d lines, want %d", told(), maxChanges)
		}
		time.Sleep(healthPeriod)
		for _, fails = range []bool{true, false, false} {
			ask(t, r, question)
		}
		if got := told(); got != maxChanges+2 || !strings.HasSuffix(log.String(), "msg=\"a retriever answers again\" retriever=local\n") {
			t.Errorf("later: got %d lines, want 2 more and the last one that it answers: %s", got, log.String())
		}
	})
}
