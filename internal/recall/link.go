package recall

import (
	"context"
	"errors"
	"io/fs"
	"net"
	"os/exec"
	"sync"
	"syscall"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"historyd/internal/identity"
)

// How long connecting may take, which is longer than any question waits: a slow start is in time for the next one. And
// the longest time that a server is left alone after failures.
const (
	connectPatience = 10 * time.Second
	maxPause        = time.Minute
)

// maxPatience is how many questions in a row a caller waits for in vain before its next ones don't wait.
const maxPatience = 3

// maxVain is how many callers who wait in vain are kept in mind.
const maxVain = 4096

// olderProtocol is what servers speak that don't answer a question that they don't know.
const olderProtocol = "2025-11-25"

var (
	errToolFailed = errors.New("the tool failed")
	errRefused    = errors.New("the server refused the call")
	errLost       = errors.New("connection lost")
	errClosed     = errors.New("closed")
)

// A link keeps a session with one server. It connects when a call needs it, in the background, and again after the
// session was lost; a server that keeps failing is left alone for longer and longer. One that does not answer is left
// alone by the caller that it does not answer: another one's questions may be easier.
type link struct {
	dial     func() (t mcp.Transport, end func()) // end frees what the session leaves
	patience time.Duration

	// life ends with close. It is no request's context: it is what connecting and watching live by.
	life context.Context
	end  context.CancelFunc

	mu      sync.Mutex
	session *mcp.ClientSession // nil: not connected
	dialing chan struct{}      // closed when the attempt under way is over; nil: none
	fails   int                // in a row
	failed  error              // the last of them
	again   time.Time          // not tried before
	older   bool               // the next attempt begins with olderProtocol: turned round by each that fails
	heard   time.Time          // of the last answer to a call
	vain    map[identity.Scope]*vain
	closed  bool
	running sync.WaitGroup // attempts and watchers; none starts after closed
}

// vain is what became of a caller's questions since the last that was answered.
type vain struct {
	times int
	since time.Time // the first of them
	again time.Time // none is put before
}

func newLink(dial func() (mcp.Transport, func())) *link {
	l := &link{dial: dial, patience: connectPatience, vain: map[identity.Scope]*vain{}}
	l.life, l.end = context.WithCancel(context.Background())
	return l
}

// call calls the tool for a caller, and once more when the session turns out to be lost.
func (l *link) call(ctx context.Context, scope identity.Scope, tool string, args any) (*mcp.CallToolResult, error) {
	for retried := false; ; retried = true {
		s, err := l.acquire(ctx, scope)
		if err != nil {
			return nil, err
		}
		res, err := s.CallTool(ctx, &mcp.CallToolParams{Name: tool, Arguments: args})
		switch {
		case err == nil:
			l.answered(scope)
			return res, nil
		case ctx.Err() != nil:
			if context.Cause(ctx) == errLate {
				l.late(s, scope)
			}
			return nil, errLate
		case spoke(err):
			l.answered(scope)
			return nil, errRefused
		}
		err = classified(err)
		l.drop(s, err)
		if retried {
			return nil, err
		}
	}
}

// spoke reports whether err is an answer of the server's, and not the client library's word for a broken connection.
func spoke(err error) bool {
	var answer *jsonrpc.Error
	if !errors.As(err, &answer) {
		return false
	}
	for _, code := range []int64{-32001, -32003, -32004, -32005} {
		if errors.Is(err, &jsonrpc.Error{Code: code}) {
			return false
		}
	}
	return true
}

// acquire returns the session, and waits for one within ctx. While the server is left alone it answers at once, with
// the error of the last try.
func (l *link) acquire(ctx context.Context, scope identity.Scope) (*mcp.ClientSession, error) {
	l.mu.Lock()
	v := l.vain[scope]
	switch {
	case l.closed:
		l.mu.Unlock()
		return nil, errClosed
	case v != nil && time.Now().Before(v.again):
		l.mu.Unlock()
		return nil, errLate
	case l.session != nil:
		defer l.mu.Unlock()
		return l.session, nil
	case l.dialing == nil && time.Now().Before(l.again):
		defer l.mu.Unlock()
		return nil, l.failed
	case l.dialing == nil:
		l.dialing = make(chan struct{})
		l.running.Go(l.connect)
	}
	over := l.dialing
	l.mu.Unlock()
	select {
	case <-over:
	case <-ctx.Done():
		return nil, errLate
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.session == nil {
		return nil, l.failed
	}
	return l.session, nil
}

// connect is one attempt. It goes on when nobody waits for it any more.
func (l *link) connect() {
	l.mu.Lock()
	older := l.older
	l.mu.Unlock()

	ctx, cancel := context.WithTimeout(l.life, l.patience)
	defer cancel()
	client := mcp.NewClient(&mcp.Implementation{Name: "historyd", Version: "1"}, &mcp.ClientOptions{
		// The server may ask nothing back: no roots, no sampling, no further input.
		Capabilities:   &mcp.ClientCapabilities{},
		MultiRoundTrip: &mcp.MultiRoundTripOptions{Disabled: true},
	})
	opts := &mcp.ClientSessionOptions{}
	if older {
		opts.ProtocolVersion = olderProtocol
	}
	transport, end := l.dial()
	s, err := client.Connect(ctx, transport, opts)
	if err != nil {
		end()
		err = classified(err)
		if ctx.Err() != nil {
			err = errLate
		}
	}

	l.mu.Lock()
	defer l.mu.Unlock()
	close(l.dialing)
	l.dialing = nil
	if err != nil {
		l.older = !older
		l.note(err)
		return
	}
	l.session = s
	l.running.Go(func() { l.watch(s, end) })
	if l.closed {
		l.running.Go(func() { _ = s.Close() })
	}
}

// watch waits for the end of a session, whoever ends it, and frees it.
func (l *link) watch(s *mcp.ClientSession, end func()) {
	_ = s.Wait()
	l.drop(s, errLost)
	_ = s.Close()
	end()
}

// note counts a failure. The first one in a row may be a server that was restarted, so the next try may come at once.
// mu is held.
func (l *link) note(err error) {
	l.fails++
	l.failed = err
	if l.fails > 1 {
		l.again = time.Now().Add(pauseAfter(l.fails - 2))
	}
}

func (l *link) answered(scope identity.Scope) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.fails, l.heard = 0, time.Now()
	delete(l.vain, scope)
}

// late counts a call that got no answer. After the third of a caller's in a row its next ones don't wait for a while, so
// that the server doesn't cost each of its turns the deadline; and the session is given up if nobody got an answer
// meanwhile.
func (l *link) late(s *mcp.ClientSession, scope identity.Scope) {
	l.mu.Lock()
	defer l.mu.Unlock()
	v := l.vain[scope]
	if v == nil {
		if len(l.vain) >= maxVain {
			clear(l.vain)
		}
		v = &vain{since: time.Now()}
		l.vain[scope] = v
	}
	if v.times++; v.times < maxPatience {
		return
	}
	v.again = time.Now().Add(pauseAfter(v.times - maxPatience))
	if l.session == s && l.heard.Before(v.since) {
		l.giveUp()
	}
}

// pauseAfter is how long a server is left alone after so many failures beyond those that are borne with.
func pauseAfter(n int) time.Duration { return min(maxPause, time.Second<<min(n, 10)) }

// drop gives a session up, if it is still the one in use.
func (l *link) drop(s *mcp.ClientSession, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.session != s {
		return
	}
	l.note(err)
	l.giveUp()
}

// giveUp ends the session in use. mu is held.
func (l *link) giveUp() {
	s := l.session
	l.session = nil
	if !l.closed {
		l.running.Go(func() { _ = s.Close() })
	}
}

// close ends the session or the attempt under way, and waits until a child process is gone.
func (l *link) close() {
	l.mu.Lock()
	l.closed = true
	s := l.session
	l.mu.Unlock()
	l.end()
	if s != nil {
		_ = s.Close()
	}
	l.running.Wait()
}

// classified takes the text out of an error: it may hold what the server said.
func classified(err error) error {
	var status statusError
	var number syscall.Errno
	switch {
	case errors.Is(err, errTooLong):
		return errTooLong
	case errors.As(err, &status):
		return status
	case errors.Is(err, exec.ErrNotFound), errors.Is(err, fs.ErrNotExist):
		return fs.ErrNotExist
	case errors.Is(err, fs.ErrPermission):
		return fs.ErrPermission
	case errors.As(err, &number):
		return number
	case errors.As(err, new(*net.DNSError)):
		return errNoHost
	}
	return errLost
}

var errNoHost = errors.New("no such host")

// causeOf is what a log says of an error: words of a closed set.
func causeOf(err error) string {
	var status statusError
	var number syscall.Errno
	switch {
	case err == nil:
		return ""
	case errors.As(err, &status):
		return status.Error()
	case errors.As(err, &number):
		return number.Error()
	}
	for _, known := range []error{
		errLate, errToolFailed, errRefused, errTooLong, errNoHost, errPanic, errLost, fs.ErrNotExist, fs.ErrPermission,
	} {
		if errors.Is(err, known) {
			return known.Error()
		}
	}
	return "failed"
}
