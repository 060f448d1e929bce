package recall

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// A script is what a tool does when it is called: the file TOOL.json in the server's directory, read at each call.
type script struct {
	Do     string          `json:"do"` // answer, hang, die, refuse
	Result json.RawMessage `json:"result"`
}

// A called is a line of calls.jsonl.
type called struct {
	Tool      string         `json:"tool"`
	Arguments map[string]any `json:"arguments"`
}

// serveMCP is a whole MCP server process. mode is stdio, http or stateless, or one of those that are no good.
func serveMCP(mode, dir string, args []string) {
	appendLine(dir, "starts", strconv.Itoa(os.Getpid())+" "+strings.Join(os.Environ(), " "))
	switch mode {
	case "stdio":
		_ = newTestServer(dir).Run(context.Background(), &mcp.StdioTransport{})
	case "http", "stateless":
		handler := mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return newTestServer(dir) },
			&mcp.StreamableHTTPOptions{Stateless: mode == "stateless", JSONResponse: mode == "stateless"})
		l, err := net.Listen("tcp", args[0])
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		fmt.Fprintln(os.Stdout, l.Addr())
		go func() { // ends with its parent
			_, _ = io.Copy(io.Discard, os.Stdin)
			os.Exit(0)
		}()
		_ = http.Serve(l, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if want, err := os.ReadFile(filepath.Join(dir, "token")); err == nil && r.Header.Get("Authorization") != "Bearer "+string(want) {
				http.Error(w, "canary-in-body", http.StatusUnauthorized)
				return
			}
			handler.ServeHTTP(w, r)
		}))
	case "old":
		serveOld(dir)
	case "mute": // reads and says nothing
		_, _ = io.Copy(io.Discard, os.Stdin)
	case "deaf": // does not even read, and outlives the end of its input
		child := exec.Command("sleep", "600")
		child.Stdout = os.Stdout
		_ = child.Start()
		appendLine(dir, "grandchild", strconv.Itoa(child.Process.Pid))
		time.Sleep(10 * time.Minute)
	case "garbage":
		fmt.Fprintln(os.Stdout, "Welcome to canary-in-body! {not json")
		_, _ = io.Copy(io.Discard, os.Stdin)
	case "stalls": // reads no more once it is connected to, the first time
		in := io.Reader(os.Stdin)
		if len(place{dir: dir}.lines("starts")) == 1 {
			in = &stalling{in}
		}
		_ = newTestServer(dir).Run(context.Background(), &mcp.IOTransport{Reader: io.NopCloser(in), Writer: os.Stdout})
	case "chatty": // a good server that says a lot besides
		for i := range 1000 {
			fmt.Fprintln(os.Stderr, "canary-in-stderr", i)
		}
		fmt.Fprint(os.Stderr, strings.Repeat("canary-in-stderr ", 1<<18))
		_ = newTestServer(dir).Run(context.Background(), &mcp.StdioTransport{})
	case "host": // asks a server that is deaf, until it is killed
		r, err := New(Options{Deadline: time.Second, MCP: []Server{{
			Name: "m", Preset: "rag.search", Shared: true, Command: []string{os.Args[0], "mcp-server", "deaf", dir},
		}}})
		if err == nil {
			r.Recall(context.Background(), Ask{Query: "is there anybody"})
			fmt.Fprintln(os.Stdout, "asked")
			time.Sleep(10 * time.Minute)
		}
	case "exit":
		os.Exit(3)
	}
}

// stalling reads what comes before a call, and then nothing.
type stalling struct{ io.Reader }

func (s *stalling) Read(p []byte) (int, error) {
	n, err := s.Reader.Read(p[:1])
	for n > 0 && p[n-1] != '\n' && n < len(p) && err == nil {
		var m int
		m, err = s.Reader.Read(p[n : n+1])
		n += m
	}
	if bytes.Contains(p[:n], []byte("tools/call")) {
		select {}
	}
	return n, err
}

func newTestServer(dir string) *mcp.Server {
	s := mcp.NewServer(&mcp.Implementation{Name: "test", Version: "1"}, nil)
	for _, tool := range []string{"memory_search", "rag.search", "memory_delete", "other.find"} {
		s.AddTool(&mcp.Tool{Name: tool, InputSchema: json.RawMessage(`{"type":"object"}`)},
			func(ctx context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
				var args map[string]any
				_ = json.Unmarshal(req.Params.Arguments, &args)
				line, _ := json.Marshal(called{tool, args})
				appendLine(dir, "calls", string(line))
				return play(ctx, dir, tool)
			})
	}
	// A second memory whose arguments are checked by a schema, as most servers have one.
	type in struct {
		Query       string `json:"query"`
		Limit       int    `json:"limit"`
		WorkspaceID string `json:"workspace_id"`
	}
	type out struct {
		Memories []map[string]string `json:"memories"`
	}
	mcp.AddTool(s, &mcp.Tool{Name: "typed_search"}, func(_ context.Context, _ *mcp.CallToolRequest, a in) (*mcp.CallToolResult, out, error) {
		return nil, out{[]map[string]string{{"title": "typed", "text": fmt.Sprint(a.Limit, " hits in ", a.WorkspaceID)}}}, nil
	})
	return s
}

func play(ctx context.Context, dir, tool string) (*mcp.CallToolResult, error) {
	text, err := os.ReadFile(filepath.Join(dir, tool+".json"))
	if err != nil {
		return &mcp.CallToolResult{Content: []mcp.Content{}}, nil
	}
	var s script
	if err := json.Unmarshal(text, &s); err != nil {
		panic(err)
	}
	switch s.Do {
	case "hang":
		<-ctx.Done()
		return nil, ctx.Err()
	case "die":
		_ = os.Remove(filepath.Join(dir, tool+".json"))
		os.Exit(1)
	case "always die":
		os.Exit(1)
	case "refuse":
		return nil, fmt.Errorf("canary-in-body: no")
	}
	res := &mcp.CallToolResult{}
	return res, json.Unmarshal(s.Result, res)
}

// serveOld speaks the protocol of 2024 by hand, and never answers what it doesn't know.
func serveOld(dir string) {
	in := bufio.NewScanner(os.Stdin)
	for in.Scan() {
		var m struct {
			ID     json.RawMessage `json:"id"`
			Method string          `json:"method"`
		}
		if json.Unmarshal(in.Bytes(), &m) != nil {
			continue
		}
		answer := ""
		switch m.Method {
		case "initialize":
			answer = `{"protocolVersion":"2024-11-05","capabilities":{"tools":{}},"serverInfo":{"name":"old","version":"0"}}`
		case "tools/call":
			appendLine(dir, "calls", `{"tool":"old"}`)
			answer = `{"content":[{"type":"text","text":"[{\"title\":\"old\",\"text\":\"still here\"}]"}]}`
		}
		if answer != "" {
			fmt.Fprintf(os.Stdout, "{\"jsonrpc\":\"2.0\",\"id\":%s,\"result\":%s}\n", m.ID, answer)
		}
	}
}

func appendLine(dir, name, line string) {
	f, err := os.OpenFile(filepath.Join(dir, name), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return
	}
	defer f.Close()
	_, _ = f.WriteString(line + "\n")
}

// place is the directory of one server, and what can be asked of it.
type place struct {
	t   testing.TB
	dir string
}

func newPlace(t testing.TB) place { return place{t, t.TempDir()} }

// command is the command line of a server in mode.
func (p place) command(mode string) []string {
	exe, err := os.Executable()
	if err != nil {
		p.t.Fatal(err)
	}
	return []string{exe, "mcp-server", mode, p.dir}
}

// answer lets a tool give a result from now on.
func (p place) answer(tool, result string) { p.script(tool, `{"do":"answer","result":`+result+`}`) }
func (p place) do(tool, what string)       { p.script(tool, `{"do":"`+what+`"}`) }

func (p place) script(tool, text string) {
	p.t.Helper()
	name := filepath.Join(p.dir, tool+".json")
	if err := os.WriteFile(name+".new", []byte(text), 0o600); err != nil {
		p.t.Fatal(err)
	}
	if err := os.Rename(name+".new", name); err != nil {
		p.t.Fatal(err)
	}
}

func (p place) lines(name string) []string {
	text, err := os.ReadFile(filepath.Join(p.dir, name))
	if err != nil {
		return nil
	}
	return strings.Split(strings.TrimSpace(string(text)), "\n")
}

func (p place) calls() []called {
	p.t.Helper()
	var list []called
	for _, line := range p.lines("calls") {
		var c called
		if err := json.Unmarshal([]byte(line), &c); err != nil {
			p.t.Fatal(err)
		}
		list = append(list, c)
	}
	return list
}

// listen starts a server process on an address of the loopback, and returns its URL and its end.
func (p place) listen(mode, addr string) (url string, kill func()) {
	p.t.Helper()
	argv := p.command(mode)
	cmd := exec.Command(argv[0], append(argv[1:], addr)...)
	stdin, err := cmd.StdinPipe()
	if err != nil {
		p.t.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		p.t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		p.t.Fatal(err)
	}
	ended := false
	kill = func() {
		if !ended {
			ended = true
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
			_ = stdin.Close()
		}
	}
	p.t.Cleanup(kill)
	line, err := bufio.NewReader(stdout).ReadString('\n')
	if err != nil {
		p.t.Fatalf("the server did not start: %v", err)
	}
	return "http://" + strings.TrimSpace(line), kill
}

// notes is a result with hits as text.
func notes(hits ...string) string {
	list := make([]map[string]string, len(hits))
	for i, h := range hits {
		list[i] = map[string]string{"title": fmt.Sprintf("note %d", i+1), "text": h}
	}
	inner, _ := json.Marshal(list)
	outer, _ := json.Marshal(map[string]any{"content": []any{map[string]any{"type": "text", "text": string(inner)}}})
	return string(outer)
}
