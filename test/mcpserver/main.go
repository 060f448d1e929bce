// Command mcpserver is an MCP server that tests let recall ask. It offers memory_search and rag.search beside tools that
// nobody should call, writes down what it is asked, and behaves as badly as it is told to.
//
//	mcpserver DIR stdio
//	mcpserver DIR http ADDRESS
//
// In DIR it reads at each call TOOL.json, a script, and appends to methods and calls, a line each, and to starts, with
// its pid. Over HTTP it says its address on standard output, and ends with its standard input.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// A script says what a tool does: answer with Result, echo its arguments as hits, hang, refuse, die (once: the script is
// gone then), or break what it speaks over.
type script struct {
	Do     string          `json:"do"`
	Result json.RawMessage `json:"result"`
}

// A call is a line of calls.
type call struct {
	Tool      string         `json:"tool"`
	Arguments map[string]any `json:"arguments"`
}

// server is one process.
type server struct{ dir string }

func main() {
	if len(os.Args) < 3 {
		log.Fatal("usage: mcpserver DIR stdio|http [ADDRESS]")
	}
	s := server{os.Args[1]}
	s.note("starts", strconv.Itoa(os.Getpid()))
	if os.Args[2] == "stdio" {
		_ = s.mcp().Run(context.Background(), &mcp.StdioTransport{}) // ends with its input
		return
	}
	l, err := net.Listen("tcp", os.Args[3])
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(l.Addr())
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(0)
	}()
	handler := mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return s.mcp() }, nil)
	log.Fatal(http.Serve(l, handler))
}

func (s server) mcp() *mcp.Server {
	m := mcp.NewServer(&mcp.Implementation{Name: "test", Version: "1"}, nil)
	for _, tool := range []string{"memory_search", "rag.search", "memory_delete", "memory_add"} {
		m.AddTool(&mcp.Tool{Name: tool, InputSchema: json.RawMessage(`{"type":"object"}`)}, s.called)
	}
	m.AddReceivingMiddleware(func(next mcp.MethodHandler) mcp.MethodHandler {
		return func(ctx context.Context, method string, req mcp.Request) (mcp.Result, error) {
			s.note("methods", method)
			return next(ctx, method, req)
		}
	})
	return m
}

// called plays the script of a tool; without one it finds nothing.
func (s server) called(ctx context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
	c := call{Tool: req.Params.Name}
	if err := json.Unmarshal(req.Params.Arguments, &c.Arguments); err != nil {
		return nil, err
	}
	line, err := json.Marshal(c)
	if err != nil {
		return nil, err
	}
	s.note("calls", string(line))
	file := filepath.Join(s.dir, c.Tool+".json")
	text, err := os.ReadFile(file)
	if errors.Is(err, os.ErrNotExist) {
		return &mcp.CallToolResult{Content: []mcp.Content{}}, nil
	}
	var play script
	if err := errors.Join(err, json.Unmarshal(text, &play)); err != nil {
		return nil, err
	}
	switch play.Do {
	case "echo":
		return echo(c)
	case "hang":
		select {} // whoever asked may go away
	case "refuse":
		return nil, errors.New("no")
	case "die":
		_ = os.Remove(file)
		os.Exit(1)
	case "always die":
		os.Exit(1)
	case "break":
		fmt.Println("this is no JSON, ", strings.Repeat("and a lot of it, ", 1000))
		os.Exit(1)
	}
	res := &mcp.CallToolResult{}
	return res, json.Unmarshal(play.Result, res)
}

// echo answers with what it was asked, as a server would that keeps to it.
func echo(c call) (*mcp.CallToolResult, error) {
	text, err := json.Marshal([]map[string]any{{
		"title": "kept", "text": fmt.Sprint("kept for ", c.Arguments["workspace_id"]), "workspace_id": c.Arguments["workspace_id"],
	}})
	return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: string(text)}}}, err
}

// note appends a line to a file. A line is one write, so that those of several calls don't mix.
func (s server) note(name, line string) {
	f, err := os.OpenFile(filepath.Join(s.dir, name), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		log.Fatal(err)
	}
	defer f.Close()
	if _, err := f.WriteString(line + "\n"); err != nil {
		log.Fatal(err)
	}
}
