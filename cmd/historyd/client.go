package main

import (
	"context"
	"encoding/json/v2"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
	"unicode"

	"github.com/spf13/cobra"

	"historyd/internal/identity"
)

// A client calls a running daemon as one caller.
type client struct {
	base  string // scheme and host
	http  *http.Client
	token string // empty on a unix socket, where the peer's uid may say enough
	from  string // where the token was found
}

const tokenVariable = "HISTORYD_TOKEN"

// addClientFlags gives a command the flags by which it finds the daemon.
func addClientFlags(cmd *cobra.Command) {
	addFlags(cmd.Flags(), "data_dir")
	cmd.Flags().String("url", "", "`URL` of the daemon (default the configured address)")
	cmd.Flags().String("socket", "", "`PATH` of the daemon's unix socket")
	cmd.Flags().String("token-file", "", "`FILE` with the caller's token (default $"+tokenVariable+", else "+tokenFile+" in the data directory)")
}

// newClient finds the daemon and the token, from the flags, the environment and the
// configuration.
func newClient(cmd *cobra.Command) (*client, error) {
	s, err := loadElsewhere(cmd)
	if err != nil {
		return nil, err
	}
	flag := func(name string) string { return cmd.Flag(name).Value.String() }
	c := &client{base: "http://historyd", http: &http.Client{
		// Whoever is called answers: a token goes nowhere else.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
	socket := flag("socket")
	switch {
	case flag("url") != "" && socket != "":
		return nil, usageError{errors.New("give --url or --socket, not both")}
	case flag("url") != "":
		u, err := url.Parse(flag("url"))
		if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || strings.Trim(u.Path, "/") != "" || u.User != nil || u.RawQuery != "" {
			return nil, usageError{errors.New("--url is http://HOST:PORT or https://HOST:PORT")}
		}
		c.base = u.Scheme + "://" + u.Host
	case socket == "" && s.Listen.TCP != "":
		c.base = "http://" + s.Listen.TCP
		if s.TLS.Cert != "" {
			c.base = "https://" + s.Listen.TCP
		}
	default:
		if socket == "" {
			socket = s.Listen.Unix
		}
		if socket == "" {
			return nil, usageError{errors.New("the configuration listens nowhere: give --url or --socket")}
		}
		c.http.Transport = &http.Transport{ExpectContinueTimeout: time.Second, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			var d net.Dialer
			return d.DialContext(ctx, "unix", socket)
		}}
	}
	c.token, c.from, err = findToken(flag("token-file"), filepath.Join(s.DataDir, tokenFile), socket != "")
	return c, err
}

// findToken reads the caller's token. On a socket it may do without.
func findToken(file, fallback string, optional bool) (token, from string, err error) {
	token = strings.TrimSpace(os.Getenv(tokenVariable))
	switch {
	case file != "":
	case token != "":
		return token, tokenVariable, nil
	default:
		file = fallback
	}
	text, err := os.ReadFile(file)
	if err != nil && file == fallback {
		if optional {
			return "", "", nil
		}
		return "", "", fmt.Errorf("no token: give --token-file FILE, set %s, give --data-dir DIR of the daemon (looked for %s), or give --socket PATH where your uid stands for a caller",
			tokenVariable, fallback)
	}
	if err != nil {
		return "", "", fmt.Errorf("--token-file: %w", err)
	}
	if token = strings.TrimSpace(string(text)); token == "" {
		return "", "", fmt.Errorf("%s holds no token", file)
	}
	return token, file, nil
}

// do sends a request and returns the response when it is good.
func (c *client) do(ctx context.Context, method, path, contentType string, body io.Reader, size int64) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, method, c.base+path, body)
	if err != nil {
		return nil, err
	}
	if c.token != "" {
		req.Header.Set("Authorization", "Bearer "+c.token)
	}
	if contentType != "" {
		req.Header.Set("Content-Type", contentType)
		// So that what is refused at once need not be sent.
		req.Header.Set("Expect", "100-continue")
		req.ContentLength = size
	}
	res, err := c.http.Do(req)
	if err != nil {
		var u *url.Error
		if errors.As(err, &u) && u.Op == "Get" {
			err = u.Err
		}
		if errors.Is(err, syscall.ECONNREFUSED) || errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("call the daemon at %s: %w; is it running? --url, --socket or HISTORYD_LISTEN_TCP name another address", c.base, err)
		}
		return nil, fmt.Errorf("call the daemon at %s: %w", c.base, err)
	}
	if res.StatusCode >= 300 {
		defer res.Body.Close()
		err := readRefusal(res, method)
		if res.StatusCode == http.StatusUnauthorized && c.from != "" {
			err = fmt.Errorf("%w (the token is of %s)", err, c.from)
		}
		return nil, err
	}
	return res, nil
}

// A refusal is an error of the daemon.
type refusal struct {
	status int
	wait   time.Duration // what Retry-After says; 0 without one
	code   string
	detail string
	faults []string
}

func (r *refusal) Error() string {
	if r.code == "" {
		return fmt.Sprintf("the daemon answered %d", r.status)
	}
	s := r.code + ": " + r.detail
	for _, f := range r.faults {
		s += "\n  " + f
	}
	return s
}

func readRefusal(res *http.Response, method string) error {
	r := &refusal{status: res.StatusCode}
	if n, err := strconv.Atoi(res.Header.Get("Retry-After")); err == nil {
		r.wait = time.Duration(n) * time.Second
	}
	var p struct {
		Code   string `json:"code"`
		Detail string `json:"detail"`
		Errors []struct {
			Path   string `json:"path"`
			Detail string `json:"detail"`
		} `json:"errors"`
	}
	if method == http.MethodHead {
		return r
	}
	text, err := io.ReadAll(io.LimitReader(res.Body, 1<<20))
	if err != nil || json.Unmarshal(text, &p) != nil {
		return r
	}
	r.code, r.detail = printable(p.Code), printable(p.Detail)
	for _, f := range p.Errors {
		r.faults = append(r.faults, printable(strings.TrimPrefix(f.Path+": "+f.Detail, ": ")))
	}
	return r
}

// printable returns a text without what a terminal would obey.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return unicode.ReplacementChar
	}, s)
}

// patience is how often a busy daemon is asked again, each time after it said so.
const patience = 5

// again waits when err is of a daemon that will be ready in a moment.
func again(ctx context.Context, err error, tries int) bool {
	var r *refusal
	if !errors.As(err, &r) || r.wait == 0 || tries >= patience {
		return false
	}
	select {
	case <-time.After(min(r.wait, 30*time.Second)):
		return true
	case <-ctx.Done():
		return false
	}
}

// A caller is whom the daemon takes the token for.
type caller struct {
	Kind            string `json:"kind"`
	ID              string `json:"id"`
	PermissionScope string `json:"permission_scope"`
}

func (c *client) whoami(ctx context.Context) (who caller, err error) {
	res, err := c.do(ctx, http.MethodGet, "/v1/whoami", "", nil, 0)
	if err != nil {
		return who, err
	}
	defer res.Body.Close()
	if err := json.UnmarshalRead(res.Body, &who); err != nil {
		return who, fmt.Errorf("ask the daemon who the caller is: %w", err)
	}
	return who, nil
}

// conversations lists the names of all the caller's conversations, and counts those of which no name can be read.
func (c *client) conversations(ctx context.Context) (names []string, unnamed int64, err error) {
	for cursor := ""; ; {
		path := "/v1/conversations?limit=1000"
		if cursor != "" {
			path += "&cursor=" + url.QueryEscape(cursor)
		}
		res, err := c.do(ctx, http.MethodGet, path, "", nil, 0)
		if err != nil {
			return nil, 0, err
		}
		var page struct {
			Data []struct {
				Name string `json:"name"`
			} `json:"data"`
			Next    string `json:"next"`
			Unnamed int64  `json:"unnamed"`
		}
		err = json.UnmarshalRead(res.Body, &page)
		_ = res.Body.Close()
		if err != nil {
			return nil, 0, fmt.Errorf("list the conversations: %w", err)
		}
		unnamed = max(unnamed, page.Unnamed)
		for _, d := range page.Data {
			// They become names of files.
			if !identity.ValidConversation(d.Name) {
				return nil, 0, fmt.Errorf("list the conversations: %q is no name of one", d.Name)
			}
			names = append(names, d.Name)
		}
		if page.Next == cursor && cursor != "" {
			return nil, 0, errors.New("list the conversations: the list does not end")
		}
		if cursor = page.Next; cursor == "" {
			return names, unnamed, nil
		}
	}
}

// conversationPath is the path of a conversation and of what is asked of it.
func conversationPath(name, what string) string {
	return "/v1/conversations/" + url.PathEscape(name) + what
}
