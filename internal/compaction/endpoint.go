package compaction

import (
	"bytes"
	"context"
	"encoding/json/v2"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"
)

const (
	maxAnswer = 1 << 20 // bytes of an answer
	maxKey    = 4 << 10 // bytes of a file with a key
	tries     = 3       // of one request, when what fails may work in a moment
	firstWait = time.Second
	maxWait   = 30 * time.Second
)

// An Endpoint is a server with the chat completions of OpenAI. BaseURL and Name are required.
type Endpoint struct {
	BaseURL    string // what comes before /chat/completions, see CheckBaseURL
	Name       string // of the model
	APIKeyFile string // read anew for each request; "" means no key
	// Timeout is of one request, the answer included. 0 means 60 s.
	Timeout time.Duration
	// MaxInputTokens bounds what one request says, as estimated here. 0 means 8000, and
	// 1000 is the least.
	MaxInputTokens int
}

// MinInputTokens is the least that a request to a model must be able to say.
const MinInputTokens = 1000

// endpoint is an Endpoint in use.
type endpoint struct {
	Endpoint
	client *http.Client
	pause  func(context.Context, time.Duration) error
}

func newEndpoint(e Endpoint) (*endpoint, error) {
	if err := CheckBaseURL(e.BaseURL); err != nil {
		return nil, fmt.Errorf("BaseURL: %w", err)
	}
	if e.Timeout == 0 {
		e.Timeout = time.Minute
	}
	if e.MaxInputTokens == 0 {
		e.MaxInputTokens = 8000
	}
	switch {
	case e.Name == "":
		return nil, fmt.Errorf("%s is required", "Name")
	case e.Timeout < 0:
		return nil, fmt.Errorf("%s must not be negative", "Timeout")
	case e.MaxInputTokens < MinInputTokens:
		return nil, fmt.Errorf("MaxInputTokens is %d: must be at least %d", e.MaxInputTokens, MinInputTokens)
	}
	dialer := &net.Dialer{Timeout: 10 * time.Second}
	if strings.HasPrefix(e.BaseURL, "http:") {
		dialer.Control = loopbackOnly
	}
	return &endpoint{Endpoint: e, pause: pause, client: &http.Client{
		// No proxy: what was said goes to the server of the configuration and nowhere else.
		Transport: &http.Transport{
			DialContext: dialer.DialContext, ForceAttemptHTTP2: true, DisableCompression: true,
			MaxIdleConns: 4, IdleConnTimeout: 30 * time.Second, TLSHandshakeTimeout: 10 * time.Second,
			MaxResponseHeaderBytes: 64 << 10,
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}, nil
}

// CheckBaseURL says what is wrong with an address for a model: what was said must not
// leave the machine in the clear.
func CheckBaseURL(s string) error {
	u, err := url.Parse(s)
	switch {
	case err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https":
		return errors.New("want an address such as http://127.0.0.1:11434/v1")
	case u.User != nil:
		return errors.New("a key belongs in a file, not in the address")
	case u.RawQuery != "" || u.Fragment != "":
		return errors.New("the address of a model has no ? and no #")
	}
	if u.Scheme == "https" || u.Hostname() == "localhost" {
		return nil
	}
	if ip, err := netip.ParseAddr(u.Hostname()); err != nil || !ip.Unmap().IsLoopback() {
		return errors.New("anything but a loopback address needs https")
	}
	return nil
}

// loopbackOnly refuses a connection to what a name like localhost should not stand for.
func loopbackOnly(_, address string, _ syscall.RawConn) error {
	if to, err := netip.ParseAddrPort(address); err != nil || !to.Addr().Unmap().IsLoopback() {
		return errors.New("not a loopback address")
	}
	return nil
}

func (e *endpoint) close() { e.client.CloseIdleConnections() }

// pause waits, or returns the error of a context that ends before.
func pause(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// passing is a failure that may be over in a moment.
type passing struct {
	err   error
	after time.Duration // that the server asks to be left alone
}

func (p *passing) Error() string { return p.err.Error() }
func (p *passing) Unwrap() error { return p.err }

// ask gets the answer to one request, and asks again when what fails may work in a
// moment. errOverflow means that the request was too long for the model. Errors hold
// nothing of the request, of the answer, or of the key.
func (e *endpoint) ask(ctx context.Context, orders, said string) (string, error) {
	body, err := json.Marshal(struct {
		Model    string       `json:"model"`
		Messages [2]chatInput `json:"messages"`
		Stream   bool         `json:"stream"`
	}{e.Name, [2]chatInput{{"system", orders}, {"user", said}}, false})
	if err != nil {
		return "", errors.New("the request does not encode")
	}
	wait := firstWait
	for try := 1; ; try++ {
		answer, err := e.once(ctx, body)
		var p *passing
		if !errors.As(err, &p) || try == tries || ctx.Err() != nil {
			return answer, err
		}
		// Not all at the same moment again, where many were refused together.
		d := max(min(p.after, maxWait), wait/2+rand.N(wait))
		if err := e.pause(ctx, d); err != nil {
			return "", err
		}
		wait *= 2
	}
}

type chatInput struct {
	Role    string `json:"role"`
	Content string `json:"content"`
}

func (e *endpoint) once(ctx context.Context, body []byte) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, e.Timeout)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, strings.TrimSuffix(e.BaseURL, "/")+"/chat/completions", bytes.NewReader(body))
	if err != nil {
		return "", errors.New("the address of the model makes no request")
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Accept", "application/json")
	r.Header.Set("User-Agent", "historyd")
	if e.APIKeyFile != "" {
		key, err := readKey(e.APIKeyFile)
		if err != nil {
			return "", err
		}
		r.Header.Set("Authorization", "Bearer "+key)
	}
	resp, err := e.client.Do(r)
	if err != nil {
		return "", &passing{err: unreached(ctx, err)}
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer+1))
	if resp.StatusCode != http.StatusOK {
		return "", refusal(resp, answer)
	}
	if err != nil {
		return "", &passing{err: errors.New("the answer of the model ends before its end")}
	}
	if len(answer) > maxAnswer {
		return "", fmt.Errorf("%w: it has more than %d bytes", errRefused, maxAnswer)
	}
	return readAnswer(answer)
}

// unreached says why there is no answer. What a server sends instead of one may stand in
// the client's own words, which are not passed on.
func unreached(ctx context.Context, err error) error {
	var op *net.OpError
	switch {
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		return errors.New("the model did not answer in time")
	case ctx.Err() != nil:
		return ctx.Err()
	case errors.As(err, &op) && op.Op == "dial":
		return fmt.Errorf("ask the model: %w", op)
	}
	return errors.New("the connection to the model broke")
}

// refusal makes an error of an answer that is none.
func refusal(resp *http.Response, answer []byte) error {
	err := fmt.Errorf("the model's server answered %d", resp.StatusCode)
	switch code := resp.StatusCode; {
	case code == http.StatusRequestEntityTooLarge, code == http.StatusBadRequest && tellsOverflow(answer):
		return errOverflow
	case code == http.StatusTooManyRequests, code == http.StatusRequestTimeout, code >= 500:
		p := &passing{err: err}
		if n, err := strconv.Atoi(resp.Header.Get("Retry-After")); err == nil && n > 0 {
			p.after = time.Duration(min(n, int(maxWait/time.Second))) * time.Second
		}
		return p
	}
	return err
}

// tellsOverflow reports whether an error says that a request is too long, as servers
// put it.
func tellsOverflow(answer []byte) bool {
	text := strings.ToLower(string(answer))
	for _, sign := range []string{
		"context_length", "context length", "context window", "context size", "maximum context", "too long", "too many tokens",
		"exceeds the available context", "prompt is too large", "input is too large", "token limit",
	} {
		if strings.Contains(text, sign) {
			return true
		}
	}
	return false
}

// readKey reads a key. Its errors hold the name of the file and nothing of the key.
func readKey(name string) (string, error) {
	info, err := os.Stat(name)
	if err != nil {
		return "", fmt.Errorf("read the key of the model: %w", err)
	}
	if !info.Mode().IsRegular() { // a pipe would be waited for
		return "", errors.New("read the key of the model: not a file")
	}
	f, err := os.Open(name)
	if err != nil {
		return "", fmt.Errorf("read the key of the model: %w", err)
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxKey+1))
	if err != nil {
		return "", fmt.Errorf("read the key of the model: %w", err)
	}
	key := strings.TrimSpace(string(b))
	if key == "" || len(b) > maxKey || strings.ContainsFunc(key, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return "", errors.New("read the key of the model: the file holds no key")
	}
	return key, nil
}
