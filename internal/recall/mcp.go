package recall

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/prometheus/client_golang/prometheus"
)

// mcpServer asks one tool of an MCP server.
type mcpServer struct {
	Server
	link  *link
	lines prometheus.Counter // of a child's standard error
}

// newMCPServer checks s and makes a retriever of it. Errors name the field below mcp[i].
func newMCPServer(s Server, deadline time.Duration) (*mcpServer, error) {
	if err := s.preset(); err != nil {
		return nil, err
	}
	s.Timeout = cmp.Or(s.Timeout, deadline)
	switch {
	case s.Tool == "":
		return nil, errors.New("tool: must be given")
	case s.Scoped != "" && s.Scoped != "workspace":
		return nil, errors.New(`scoped: must be "workspace"`)
	case s.Scoped == "" && !s.Shared:
		return nil, errors.New("shared: must be true when the server's answers are for every caller, else give scoped: workspace")
	case s.Scoped != "" && s.Shared:
		return nil, errors.New("shared: not together with scoped")
	case s.Timeout < 0:
		return nil, errors.New("timeout: must not be negative")
	case (s.URL == "") == (len(s.Command) == 0):
		return nil, errors.New("url: either url or command must be given")
	}
	if err := s.checkArguments(); err != nil {
		return nil, err
	}
	x := &mcpServer{Server: s}
	x.link = newLink(x.child)
	if s.URL != "" {
		if err := s.checkURL(); err != nil {
			return nil, err
		}
		x.link = newLink(x.stream)
	} else if s.TokenFile != "" {
		return nil, errors.New("token_file: is for url")
	} else if s.Command[0] == "" {
		return nil, errors.New("command: must begin with a program")
	}
	return x, nil
}

func (s *Server) checkURL() error {
	u, err := url.Parse(s.URL)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "" || u.User != nil || u.Fragment != "" {
		return errors.New("url: must be http or https, with a host, and without a user or a fragment")
	}
	if ip := net.ParseIP(u.Hostname()); u.Scheme == "http" && u.Hostname() != "localhost" && !ip.IsLoopback() {
		return errors.New("url: must be https elsewhere than on the loopback: what was said must not leave the machine in the clear")
	}
	if s.TokenFile == "" {
		return nil
	}
	if _, err := readToken(s.TokenFile); err != nil {
		return fmt.Errorf("token_file: %w", err)
	}
	return nil
}

// maxToken is how long a file with a token may be.
const maxToken = 4 << 10

// readToken's errors hold the path at most.
func readToken(name string) (string, error) {
	info, err := os.Stat(name)
	if err != nil {
		return "", err
	}
	if !info.Mode().IsRegular() { // a pipe would be waited for
		return "", errors.New("must be a file")
	}
	f, err := os.Open(name)
	if err != nil {
		return "", err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxToken+1))
	if err != nil {
		return "", err
	}
	token := strings.TrimSpace(string(text))
	if token == "" || len(text) > maxToken || strings.ContainsFunc(token, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return "", errors.New("must hold one token of printable ASCII")
	}
	return token, nil
}

func (s *mcpServer) name() string            { return s.Name }
func (s *mcpServer) places() (all, each int) { return maxCalls, maxCalls / 2 }
func (s *mcpServer) close()                  { s.link.close() }

func (s *mcpServer) find(ctx context.Context, ask Ask, limit int) ([]found, error) {
	if s.Scoped != "" && ask.Workspace == "" {
		// Servers take an empty workspace for all of them.
		return nil, errNotConfigured
	}
	ctx, cancel := context.WithTimeoutCause(ctx, s.Timeout, errLate)
	defer cancel()
	args := places{ask.Query, limit, ask.Workspace}.fill(s.Arguments)
	res, err := s.link.call(ctx, ask.Scope, s.Tool, args)
	if err != nil {
		return nil, err
	}
	if res.IsError || res.NeedsInput() {
		return nil, errToolFailed
	}
	workspace := ""
	if s.Scoped != "" {
		workspace = ask.Workspace
	}
	return shapes{workspace, s.MinScore}.hits(res), nil
}

// What a connection may hold in memory, and how long ending one may take.
const (
	maxResponse = 4 << 20
	endPatience = 500 * time.Millisecond
)

// stream makes a transport to the URL, with connections of its own.
func (s *mcpServer) stream() (mcp.Transport, func()) {
	dialer := &net.Dialer{Timeout: connectPatience}
	if strings.HasPrefix(s.URL, "http:") {
		dialer.Control = loopbackOnly
	}
	base := &http.Transport{
		DialContext:            dialer.DialContext,
		ForceAttemptHTTP2:      true,
		MaxIdleConnsPerHost:    maxCalls,
		IdleConnTimeout:        time.Minute,
		MaxResponseHeaderBytes: 64 << 10,
		TLSHandshakeTimeout:    connectPatience,
	}
	client := &http.Client{
		Transport: &guarded{base, s.TokenFile},
		// A redirection would send the query to somebody who was not configured.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	return &mcp.StreamableClientTransport{
		Endpoint: s.URL, HTTPClient: client,
		// Nothing that the server says by itself is wanted, and a broken stream of it would end the session.
		DisableStandaloneSSE: true, MaxRetries: -1,
		MaxEventSize: maxResponse,
	}, base.CloseIdleConnections
}
