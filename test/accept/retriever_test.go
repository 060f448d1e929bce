package accept

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"

	"historyd/test/built"
)

// retriever is a directory and the MCP servers that serve from it.
type retriever struct {
	t   *testing.T
	dir string
}

func newRetriever(t *testing.T) retriever { return retriever{t, t.TempDir()} }

// command runs it as a child.
func (r retriever) command() []string {
	r.t.Helper()
	path, err := built.MCPServer()
	if err != nil {
		r.t.Fatal(err)
	}
	return []string{path, r.dir, "stdio"}
}

// listen runs it at an address of the loopback, and returns its URL and what kills it.
func (r retriever) listen(addr string) (url string, kill func()) {
	r.t.Helper()
	cmd := exec.Command(r.command()[0], r.dir, "http", addr)
	stdin, err := cmd.StdinPipe()
	if err != nil {
		r.t.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		r.t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		r.t.Fatal(err)
	}
	kill = func() {
		_ = stdin.Close()
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}
	r.t.Cleanup(kill)
	line, err := bufio.NewReader(stdout).ReadString('\n')
	if err != nil {
		r.t.Fatalf("the server does not start: %v", err)
	}
	return "http://" + strings.TrimSpace(line), kill
}

// play gives a tool its script from the next call on.
func (r retriever) play(tool, script string) {
	r.t.Helper()
	name := filepath.Join(r.dir, tool+".json")
	if err := os.WriteFile(name+".new", []byte(script), 0o600); err != nil {
		r.t.Fatal(err)
	}
	if err := os.Rename(name+".new", name); err != nil {
		r.t.Fatal(err)
	}
}

func (r retriever) does(tool, what string)      { r.play(tool, `{"do":"`+what+`"}`) }
func (r retriever) answers(tool, result string) { r.play(tool, `{"do":"answer","result":`+result+`}`) }

// finds lets a tool answer with hits of these texts.
func (r retriever) finds(tool string, texts ...string) {
	list := make([]map[string]string, len(texts))
	for i, text := range texts {
		list[i] = map[string]string{"title": fmt.Sprint(tool, " ", i+1), "text": text}
	}
	r.answers(tool, string(encode(r.t, asText(string(encode(r.t, list))))))
}

// asText is a result of one text.
func asText(text string) map[string]any {
	return map[string]any{"content": []any{map[string]any{"type": "text", "text": text}}}
}

// lines are what the servers wrote down: calls, methods or starts.
func (r retriever) lines(name string) []string {
	text, err := os.ReadFile(filepath.Join(r.dir, name))
	if err != nil {
		return nil
	}
	return strings.Split(strings.TrimSpace(string(text)), "\n")
}

// called is a call as a server wrote it down.
type called struct {
	Tool      string
	Arguments map[string]any
}

func (r retriever) calls() (list []called) {
	r.t.Helper()
	for _, line := range r.lines("calls") {
		list = append(list, decode[called](r.t, []byte(line)))
	}
	return list
}

// memory and manuals are how a configuration names the two servers; members are added or changed.
func (r retriever) memory(members ...any) map[string]any {
	return with(map[string]any{"name": "memory", "command": r.command(), "preset": "memory_search", "scoped": "workspace"}, members)
}

func (r retriever) manuals(members ...any) map[string]any {
	return with(map[string]any{"name": "manuals", "command": r.command(), "preset": "rag.search", "shared": true}, members)
}

func with(m map[string]any, members []any) map[string]any {
	for i := 0; i < len(members); i += 2 {
		if members[i+1] == nil {
			delete(m, members[i].(string))
		} else {
			m[members[i].(string)] = members[i+1]
		}
	}
	return m
}

// recallOf is a configuration with these servers.
func recallOf(deadline string, servers ...any) map[string]any {
	return map[string]any{"recall": map[string]any{"deadline": deadline, "mcp": servers}}
}

// recalled is the answer of a recall.
type recalled struct {
	Text  string
	Items []struct {
		Retriever, Title, Body, Conversation string
		Seq                                  int64
	}
	Retrievers []struct {
		Name, Status string
		Hits         int
	}
	Truncated, Skipped bool
	StoredSeq          int64 `json:"stored_seq"`
}

// ask asks what is known.
func (c caller) ask(name, query string) recalled {
	c.d.t.Helper()
	body := encode(c.d.t, map[string]string{"query": query})
	out := decode[recalled](c.d.t, c.do(200, "POST", "/v1/conversations/"+name+"/recall", body))
	out.check(c.d.t)
	return out
}

// recall asks by both doors and holds the answers to be the same.
func (c caller) recall(name, query string) recalled {
	c.d.t.Helper()
	alone := c.ask(name, query)
	body := encode(c.d.t, map[string]any{"recall": map[string]string{"query": query}})
	within := decode[struct{ Recall recalled }](c.d.t, c.do(200, "POST", "/v1/conversations/"+name+"/replay", body)).Recall
	if a, b := fmt.Sprint(alone), fmt.Sprint(within); a != b {
		c.d.t.Errorf("the two doors differ:\n%.1000s\n%.1000s", a, b)
	}
	return alone
}

// check holds an answer to its caps, and its counts to what was delivered.
func (r recalled) check(t *testing.T) {
	t.Helper()
	if n := utf8.RuneCountInString(r.Text); n > 2400 {
		t.Errorf("the block has %d characters", n)
	}
	for _, it := range r.Items {
		if body, title := utf8.RuneCountInString(it.Body), utf8.RuneCountInString(it.Title); body > 600 || title > 120 {
			t.Errorf("a hit of %s has %d characters, its title %d", it.Retriever, body, title)
		}
	}
	for _, s := range r.Retrievers {
		n := 0
		for _, it := range r.Items {
			if it.Retriever == s.Name {
				n++
			}
		}
		if rows := strings.Count(r.Text, "\n- "+s.Name); n != s.Hits || rows != n || n > 5 || n > 0 && s.Status != "ok" {
			t.Errorf("%s is %s with %d hits: %d items and %d rows are there", s.Name, s.Status, s.Hits, n, rows)
		}
	}
}

// statuses is who said what, on one line.
func (r recalled) statuses() string {
	var list []string
	for _, s := range r.Retrievers {
		list = append(list, fmt.Sprintf("%s %s %d", s.Name, s.Status, s.Hits))
	}
	return strings.Join(list, ", ")
}

// bodies are the texts of one retriever's hits.
func (r recalled) bodies(name string) string {
	var list []string
	for _, it := range r.Items {
		if it.Retriever == name {
			list = append(list, it.Body)
		}
	}
	return strings.Join(list, " | ")
}

func (r recalled) want(t *testing.T, statuses string) {
	t.Helper()
	if got := r.statuses(); got != statuses {
		t.Errorf("the retrievers are %s, want %s", got, statuses)
	}
}
