package api

import (
	"context"
	"encoding/json/v2"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"runtime"
	"strconv"
	"strings"
	"time"

	"historyd/internal/identity"
)

// An exchange is one request and its response. It belongs to the goroutine that
// serves the request, but for what within says.
type exchange struct {
	http.ResponseWriter
	server   *server
	id       string
	start    time.Time
	visitor  *visitor // nil where nobody need say who they are
	placed   bool     // the visitor's place is taken
	drop     func()   // gives the place of a large body back; nil when there is none
	uncrowd  func()   // likewise the room of a body of many objects
	caller   identity.Caller
	route    *route    // nil until one was found
	status   int       // 0 until the header is written
	unread   bool      // the request has a body of which the end was not met
	stalled  bool      // the body has had its time
	gone     bool      // the client stopped waiting
	until    time.Time // when a response that is large, or keeps a place, must have been read; zero for others
	cork     Cork      // nil where the connection has none
	presence presence  // the context of the request
	counted  bool      // in the metrics
}

// Unwrap is for http.ResponseController.
func (x *exchange) Unwrap() http.ResponseWriter { return x.ResponseWriter }

func (x *exchange) WriteHeader(status int) {
	if x.status == 0 {
		x.status = status
		x.boundWrites()
		if x.unread {
			// Before the connection ends, net/http reads what it can of the rest of the body.
			until := time.Now()
			if !x.stalled {
				until = until.Add(readStall)
			}
			_ = http.NewResponseController(x.ResponseWriter).SetReadDeadline(until)
		}
	}
	x.ResponseWriter.WriteHeader(status)
}

func (x *exchange) Write(p []byte) (int, error) {
	if x.status == 0 {
		x.WriteHeader(http.StatusOK)
	}
	n, err := x.ResponseWriter.Write(p)
	if err != nil {
		x.gone = true // what cannot be written has no reader any more
	}
	return n, err
}

// corkFrom is from what size on a body may be too large for the buffer that net/http has for
// it and the head.
const corkFrom = 2 << 10

// send writes a whole response.
func (x *exchange) send(status int, contentType []string, body []byte) error {
	h := x.Header()
	h["Content-Type"] = contentType
	h["Content-Length"] = []string{strconv.Itoa(len(body))}
	x.disperse() // what takes the memory is done, however long this is read
	if x.drop != nil || len(body) > light {
		x.until = time.Now().Add(writeStall + timeAtPace(int64(len(body))))
	}
	x.WriteHeader(status)
	if x.cork != nil && len(body) > corkFrom {
		x.cork.Cork()
		defer func() { _ = x.cork.Uncork() }()
	}
	// What cannot be written has no reader any more.
	_ = x.flow(body)
	if !x.until.IsZero() { // it is read but for its end, which net/http writes behind the handler
		x.until = time.Time{}
		x.boundWrites()
	}
	return nil
}

// sendStep is how much of a response is written at a time.
const sendStep = 64 << 10

// flow writes a part of a response for which the client has been given time. It may
// take longer, as long as it goes on.
func (x *exchange) flow(p []byte) error {
	for {
		n := min(len(p), sendStep)
		if _, err := x.Write(p[:n]); err != nil || n == len(p) {
			return err
		}
		p = p[n:]
		x.boundWrites()
	}
}

// reply writes v as JSON.
func (x *exchange) reply(status int, v any) error {
	body, err := json.Marshal(v)
	if err != nil {
		// The error of the encoder may quote the value.
		return fmt.Errorf("encode reply: %T", err)
	}
	return x.send(status, jsonType, body)
}

// writeStall is how long a client may take to read what is ready for it, also when
// that is little: what it left unread before may fill the socket. It is longer than
// a connection may be idle, so that it has not passed when net/http answers by itself.
const writeStall = 90 * time.Second

// boundWrites gives the client that long from now on, but none beyond x.until. It is not undone: the end
// of a response is written when its handler has returned, and the next one begins anew.
func (x *exchange) boundWrites() {
	deadline := time.Now().Add(writeStall)
	if !x.until.IsZero() && x.until.Before(deadline) {
		deadline = x.until
	}
	// Where there are no deadlines, as in a recorder, there is nobody to wait for.
	_ = http.NewResponseController(x.ResponseWriter).SetWriteDeadline(deadline)
}

// abort ends a response that cannot be completed, so that nobody takes what was
// sent for all of it.
func abort() { panic(http.ErrAbortHandler) }

// fail writes the error, or ends the response when a part of it is out already.
func (x *exchange) fail(r *http.Request, err error) {
	p := problemOf(err)
	left := x.presence.left()
	if !x.gone && !(left && errors.Is(err, context.Canceled)) {
		x.tell(r, p, err)
	}
	x.gone = x.gone || left && p.status() >= 500 // nobody is there to hear it
	if x.status != 0 {
		abort()
	}
	h := x.Header()
	for name, value := range p.header {
		h[name] = []string{value}
	}
	x.refuse(p)
}

// refuse answers with a problem, and counts it if the client is there to hear it.
func (x *exchange) refuse(p *problem) {
	if !x.gone {
		x.server.metrics.problems[p.code].Inc()
	}
	_ = x.send(p.status(), problemType, p.body(x.id))
}

// tell logs what an operator has to know of.
func (x *exchange) tell(r *http.Request, p *problem, err error) {
	if p.status() < 500 || p.code == "quota_exceeded" { // the store tells that once
		return
	}
	x.server.log.LogAttrs(r.Context(), slog.LevelError, "request failed",
		slog.String("request_id", x.id), slog.String("route", x.route.template()), slog.String("method", methodLabel(r.Method)),
		slog.String("code", p.code), slog.Any("scope", x.scope()), slog.String("error", err.Error()))
}

// scope is what a log shows of the caller.
func (x *exchange) scope() identity.Scope {
	if x.visitor == nil {
		return identity.Scope{}
	}
	return x.visitor.scope
}

// finish is deferred around every request: it turns a panic into a response,
// counts and logs.
func (s *server) finish(x *exchange, r *http.Request) {
	v := recover()
	x.presence.end()
	aborted := v == http.ErrAbortHandler
	if v != nil && !aborted {
		s.metrics.panics.Inc()
		// The value of a panic may hold content; where it happened does not.
		s.log.LogAttrs(r.Context(), slog.LevelError, "panic while serving a request",
			slog.String("request_id", x.id), slog.String("route", x.route.template()), slog.String("type", fmt.Sprintf("%T", v)),
			slog.String("stack", stack()))
		if x.status == 0 {
			x.refuse(newProblem("internal"))
		} else {
			aborted = true
		}
	}
	x.leave()
	x.account(r)
	if aborted {
		abort()
	}
}

// account counts and logs the request, which is no longer in flight. A second call does nothing.
func (x *exchange) account(r *http.Request) {
	if x.counted {
		return
	}
	x.counted = true
	took := time.Since(x.start)
	x.server.metrics.inFlight.Dec()
	x.server.metrics.observe(x, r.Method, took)
	if log := x.server.log; log.Enabled(r.Context(), slog.LevelDebug) {
		log.LogAttrs(r.Context(), slog.LevelDebug, "request",
			slog.String("request_id", x.id), slog.String("route", x.route.template()), slog.String("method", methodLabel(r.Method)),
			slog.Int("status", x.status), slog.Duration("took", took), slog.Any("scope", x.scope()))
	}
}

// stack names the functions and lines that led to a panic.
func stack() string {
	pcs := make([]uintptr, 32)
	frames := runtime.CallersFrames(pcs[:runtime.Callers(4, pcs)])
	var b strings.Builder
	for {
		f, more := frames.Next()
		fmt.Fprintf(&b, "%s:%d ", f.Function, f.Line)
		if !more {
			return strings.TrimSpace(b.String())
		}
	}
}
