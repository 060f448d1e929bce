package recall

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"historyd/internal/identity"
)

// slow is a retriever that takes its time for each question.
type slow struct {
	*mcpServer
	takes time.Duration

	mu        sync.Mutex
	now, most map[identity.Scope]int // of each caller, and of all under no caller's name
}

func (s *slow) close() {}

func (s *slow) find(ctx context.Context, ask Ask, _ int) ([]found, error) {
	s.count(ask.Scope, 1)
	defer s.count(ask.Scope, -1)
	select {
	case <-time.After(s.takes):
		return []found{{body: "found"}}, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (s *slow) count(scope identity.Scope, n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, of := range []identity.Scope{scope, {}} {
		s.now[of] += n
		s.most[of] = max(s.most[of], s.now[of])
	}
}

func newSlow(t *testing.T, r *Recaller, takes time.Duration) *slow {
	t.Helper()
	s := &slow{mcpServer: r.retrievers[0].(*mcpServer), takes: takes, now: map[identity.Scope]int{}, most: map[identity.Scope]int{}}
	r.retrievers[0] = s
	return s
}

func oneServer(t *testing.T) *Recaller {
	return must(t, Options{MCP: []Server{{Name: "m", Preset: "rag.search", Shared: true, Command: []string{"true"}}}})
}

// Forty turns of one caller wait behind each other: another one's turn is the next.
func TestOneCallerCannotStarveAnother(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := oneServer(t)
		s := newSlow(t, r, time.Second)
		bob, ann := scopeOf(t, "bob"), scopeOf(t, "ann")
		ask := func(whose identity.Scope) Recalled { return r.Recall(t.Context(), Ask{Scope: whose, Query: question}) }
		var greedy sync.WaitGroup
		for range 40 {
			greedy.Go(func() { ask(bob) })
		}
		synctest.Wait()
		start := time.Now()
		wantStatuses(t, ask(ann), "local not_configured 0, m ok 1")
		if took := time.Since(start); took != time.Second {
			t.Errorf("ann waited %v, want no longer than her own question takes", took)
		}
		greedy.Wait()

		// Two who ask a lot have all the places, and she gets the next one all the same.
		for _, whose := range []identity.Scope{bob, scopeOf(t, "cy")} {
			for range 40 {
				greedy.Go(func() { ask(whose) })
			}
		}
		synctest.Wait()
		wantStatuses(t, ask(ann), "local not_configured 0, m ok 1")
		greedy.Wait()
		synctest.Wait() // theirs end as well
		if s.most[bob] != maxCalls/2 || s.most[identity.Scope{}] != maxCalls {
			t.Errorf("at a time: got %d of bob's and %d in all, want %d and %d", s.most[bob], s.most[identity.Scope{}], maxCalls/2, maxCalls)
		}
		mustBeIdle(t, r.doorways[0], maxCalls)
	})
}

func mustBeIdle(t *testing.T, g *doorway, places int) {
	t.Helper()
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.free != places || len(g.lanes) != 0 || len(g.turns) != 0 {
		t.Errorf("an idle doorway: got %d places free, %d lanes, %d turns; want %d and nothing kept", g.free, len(g.lanes), len(g.turns), places)
	}
}

// Whoever stops waiting leaves nothing behind, also when it is let in at that moment.
func TestADoorwayForgetsWhoGivesUp(t *testing.T) {
	for range 200 {
		g := newDoorway(3, 2)
		var all sync.WaitGroup
		for i := range 24 {
			scope := scopeOf(t, fmt.Sprint("c", i%4))
			ctx, cancel := context.WithCancel(t.Context())
			all.Go(func() {
				if g.enter(ctx, scope) == nil {
					g.leave(scope)
				}
			})
			all.Go(cancel)
		}
		all.Wait()
		mustBeIdle(t, g, 3)
	}
}

// atHand puts a server in this process in the place of r's; it counts its sessions.
func atHand(t *testing.T, r *Recaller, search func(ctx context.Context, query string) string) (sessions *int) {
	t.Helper()
	sessions = new(int)
	r.retrievers[0].(*mcpServer).link = newLink(func() (mcp.Transport, func()) {
		*sessions++
		ours, theirs := mcp.NewInMemoryTransports()
		server := mcp.NewServer(&mcp.Implementation{Name: "test", Version: "1"}, nil)
		type in struct {
			Query string `json:"query"`
			TopK  int    `json:"top_k"`
		}
		mcp.AddTool(server, &mcp.Tool{Name: "rag.search"}, func(ctx context.Context, _ *mcp.CallToolRequest, a in) (*mcp.CallToolResult, any, error) {
			return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: search(ctx, a.Query)}}}, nil, nil
		})
		if _, err := server.Connect(t.Context(), theirs, nil); err != nil {
			t.Error(err)
		}
		return ours, func() {}
	})
	return sessions
}

// A server that hangs delays nobody beyond the deadline, however many ask.
func TestAServerThatHangsDelaysNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := oneServer(t)
		atHand(t, r, func(ctx context.Context, _ string) string {
			<-ctx.Done()
			return ""
		})
		start := time.Now()
		var all sync.WaitGroup
		for range 20 {
			all.Go(func() { wantStatuses(t, ask(t, r, question), "local not_configured 0, m timeout 0") })
		}
		all.Wait()
		if took := time.Since(start); took > 4*time.Second {
			t.Errorf("took %v, want at most the deadline", took)
		}
		_ = r.Close()
	})
}

// One whose questions are too hard leaves the server alone for a while; others don't.
func TestQuestionsThatAreTooHardAreOneCallersOwn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := oneServer(t)
		sessions := atHand(t, r, func(ctx context.Context, query string) string {
			if strings.Contains(query, "hard") {
				<-ctx.Done()
			}
			return `[{"text":"found"}]`
		})
		bob, ann := scopeOf(t, "bob"), scopeOf(t, "ann")
		ask := func(whose identity.Scope, query, want string) time.Duration {
			t.Helper()
			start := time.Now()
			wantStatuses(t, r.Recall(t.Context(), Ask{Scope: whose, Query: query}), "local not_configured 0, m "+want)
			took := time.Since(start)
			synctest.Wait() // it is counted, too
			return took
		}
		for range maxPatience {
			ask(ann, "an easy question", "ok 1")
			if took := ask(bob, "a hard question", "timeout 0"); took == 0 {
				t.Error("bob's question did not wait")
			}
		}
		for range 3 {
			if took := ask(bob, "a hard question", "timeout 0"); took != 0 {
				t.Errorf("one more waited %v, want no waiting", took)
			}
			if took := ask(ann, "an easy question", "ok 1"); took != 0 {
				t.Errorf("ann waited %v, want no waiting", took)
			}
		}
		if *sessions != 1 {
			t.Errorf("sessions: got %d, want the one that ann gets answers on", *sessions)
		}
		time.Sleep(time.Second)
		ask(bob, "an easy question", "ok 1")
		if l := linkOf(t, r); len(l.vain) != 0 {
			t.Errorf("after an answer: got %d callers in mind, want none", len(l.vain))
		}
		_ = r.Close()
	})
}
