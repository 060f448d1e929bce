package recall

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/netip"
	"syscall"
)

// statusError is a refusal that another try won't change.
type statusError int

func (e statusError) Error() string { return http.StatusText(int(e)) }

var errTooLong = errors.New("response too long")

// loopbackOnly refuses a connection to what a name like localhost should not stand for.
func loopbackOnly(_, address string, _ syscall.RawConn) error {
	if to, err := netip.ParseAddrPort(address); err != nil || !to.Addr().Unmap().IsLoopback() {
		return errors.New("not a loopback address")
	}
	return nil
}

// guarded adds the token to requests, and bounds responses.
type guarded struct {
	base      http.RoundTripper
	tokenFile string
}

func (g *guarded) RoundTrip(req *http.Request) (*http.Response, error) {
	cancel := context.CancelFunc(func() {})
	ctx := req.Context()
	if req.Method == http.MethodDelete {
		// The end of a session is told, but not waited for.
		ctx, cancel = context.WithTimeout(ctx, endPatience)
	}
	req = req.Clone(ctx)
	if g.tokenFile != "" {
		token, err := readToken(g.tokenFile)
		if err != nil {
			cancel()
			return nil, err
		}
		req.Header.Set("Authorization", "Bearer "+token)
	}
	resp, err := g.base.RoundTrip(req)
	if err != nil {
		cancel()
		return nil, err
	}
	if code := resp.StatusCode; code == http.StatusUnauthorized || code == http.StatusForbidden || code/100 == 3 {
		cancel()
		_ = resp.Body.Close()
		return nil, statusError(code)
	}
	resp.Body = &bounded{resp.Body, maxResponse, cancel}
	return resp, nil
}

// bounded ends a body that is longer than it may be with an error.
type bounded struct {
	io.ReadCloser
	left   int64
	cancel context.CancelFunc
}

func (b *bounded) Read(p []byte) (int, error) {
	if b.left <= 0 {
		return 0, errTooLong
	}
	n, err := b.ReadCloser.Read(p[:min(int64(len(p)), b.left)])
	b.left -= int64(n)
	return n, err
}

func (b *bounded) Close() error {
	defer b.cancel()
	return b.ReadCloser.Close()
}
