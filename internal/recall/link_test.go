package recall

import (
	"bufio"
	"bytes"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

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
			// Once it is left alone, for as long as the test takes.
			left := func() bool {
				l.mu.Lock()
				defer l.mu.Unlock()
				long := time.Now().Add(time.Hour)
				if v := l.vain[scopeOf(t, "bob")]; v != nil && !v.again.IsZero() {
					v.again = long
					return l.session == nil
				}
				if l.session == nil && !l.again.IsZero() {
					l.again = long
				}
				return l.again == long
			}
			tries := 0
			for ; !left() && tries < 20; tries++ {
				ask(t, r, question)
			}
			if !left() {
				t.Fatalf("after %d recalls: got no pause, want one", tries)
			}
			// Nothing is waited for: there is no session, and nothing is started.
			starts := len(p.lines("starts"))
			for range 5 {
				wantStatuses(t, ask(t, r, question), "local not_configured 0, memory "+tt.want+" 0")
			}
			if got := len(p.lines("starts")); got != starts {
				t.Errorf("starts meanwhile: got %d, want none", got-starts)
			}
			_ = r.Close()
			for _, start := range p.lines("starts") { // none is left, and none waits to be reaped
				pid, _, _ := strings.Cut(start, " ")
				if n, err := strconv.Atoi(pid); err != nil || syscall.Kill(n, 0) != syscall.ESRCH {
					t.Errorf("process %s after Close: got some, want none", pid)
				}
			}
		})
	}
}

// A server that stops reading is given up, though nothing can be said to it any more, and each caller has asked too little
// to give it up.
func TestAServerThatStopsReadingIsGivenUp(t *testing.T) {
	p := newPlace(t)
	p.answer("memory_search", notes("The flight is on Monday."))
	s := memory(p)
	s.Command = p.command("stalls")
	r := must(t, Options{Deadline: 200 * time.Millisecond, MCP: []Server{s}})
	long := strings.Repeat("🎉", maxQuery) // more than ten of these fill a pipe
	found := false
	for n := 0; n < 60 && !found; n++ {
		out := r.Recall(t.Context(), Ask{Scope: scopeOf(t, fmt.Sprint("c", n)), Workspace: "home", Query: long})
		found = len(out.Items) > 0
	}
	if starts := len(p.lines("starts")); !found || starts != 2 {
		t.Errorf("after sixty recalls of as many callers: found %t after %d starts, want it found after the second", found, starts)
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
			mustEnd(t, n) // a killed grandchild takes a moment to go
			if strings.Contains(rest, "canary") || mode == "stdio" && !strings.Contains(rest, "PATH=") {
				t.Errorf("%s: environment: got %q, want PATH and no secrets", mode, rest)
			}
		}
		wantStatuses(t, ask(t, r, question), "local not_configured 0, memory error 0")
	}
}

// What a child writes to its standard error holds it up in nothing, is counted, and goes nowhere.
func TestTheStandardErrorOfAChildIsCounted(t *testing.T) {
	p := newPlace(t)
	p.answer("memory_search", notes("The flight is on Monday."))
	s := memory(p)
	s.Command = p.command("chatty")
	var log bytes.Buffer
	reg := prometheus.NewRegistry()
	r := must(t, Options{MCP: []Server{s, rag(newPlace(t))}, Registerer: reg, Logger: slog.New(slog.NewTextHandler(&log, nil))})
	wantStatuses(t, ask(t, r, question), "local not_configured 0, memory ok 1, rag empty 0")
	_ = r.Close()
	text := exposition(t, reg)
	for _, want := range []string{
		`historyd_recall_stderr_lines_total{retriever="memory"} 1000`, `historyd_recall_stderr_lines_total{retriever="rag"} 0`,
	} {
		if !strings.Contains(text, want+"\n") {
			t.Errorf("metrics: got\n%s\nwant %s", text, want)
		}
	}
	if strings.Contains(text+log.String(), "canary") {
		t.Errorf("metrics or log hold text: %s%s", text, log.String())
	}
}

// A child that heeds nothing ends all the same when the daemon is killed.
func TestChildrenEndWhenTheDaemonIsKilled(t *testing.T) {
	p := newPlace(t)
	argv := p.command("host")
	host := exec.Command(argv[0], argv[1:]...)
	out, err := host.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := host.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	_ = host.Process.Kill()
	_ = host.Wait()
	if err != nil || line != "asked\n" {
		t.Fatalf("the host: got %q, %v, want it to have asked", line, err)
	}
	pids := 0
	for _, start := range p.lines("starts") {
		pid, _, _ := strings.Cut(start, " ")
		n, err := strconv.Atoi(pid)
		if err != nil {
			t.Fatal(err)
		}
		if n != host.Process.Pid {
			pids++
			t.Cleanup(func() { _ = syscall.Kill(n, syscall.SIGKILL) })
			mustEnd(t, n)
		}
	}
	if pids == 0 {
		t.Error("no child was started")
	}
	for _, line := range p.lines("grandchild") { // which is nobody's to end but ours
		if n, err := strconv.Atoi(line); err == nil {
			_ = syscall.Kill(n, syscall.SIGKILL)
		}
	}
}

// mustEnd waits for the end of a process.
func mustEnd(t *testing.T, pid int) {
	t.Helper()
	for end := time.Now().Add(5 * time.Second); alive(pid); runtime.Gosched() {
		if time.Now().After(end) {
			t.Fatalf("process %d: got alive, want ended", pid)
		}
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

// Fifty turns at once meet a server that hangs, and every one is served by the other.
func TestManyTurnsAtOnce(t *testing.T) {
	m, g := newPlace(t), newPlace(t)
	m.answer("memory_search", notes("The flight is on Monday."))
	g.do("rag.search", "hang")
	r := must(t, Options{Deadline: 4 * time.Second, MCP: []Server{memory(m), rag(g)}})
	var all sync.WaitGroup
	for range 50 {
		all.Go(func() { wantStatuses(t, ask(t, r, question), "local not_configured 0, memory ok 1, rag timeout 0") })
	}
	all.Wait()
}
