package api

import (
	"math"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"

	"historyd/internal/identity"
)

// admit lets a request in or says why not. The order is part of the contract: where
// it comes from, that no token is in its URL, whose it is, and whether there is a
// place for it.
func (s *server) admit(x *exchange, r *http.Request) error {
	local, _ := r.Context().Value(http.LocalAddrContextKey).(net.Addr)
	if _, unix := local.(*net.UnixAddr); unix {
		if len(r.Header["Origin"]) > 0 {
			return newProblem("forbidden_origin") // no page has a socket for its origin
		}
	} else if err := s.checkOrigin(r, port(local)); err != nil {
		return err
	}
	if tokenInURL(r.URL.RawQuery) {
		return newProblem("token_in_url")
	}
	if s.open(r, local) {
		return nil
	}
	caller, err := s.authenticate(r)
	if err != nil {
		return err
	}
	x.caller, x.visitor = caller, s.visit(caller)
	s.known(r.Context(), x.visitor.scope)
	return x.enter(r)
}

func port(a net.Addr) int {
	if tcp, ok := a.(*net.TCPAddr); ok {
		return tcp.Port
	}
	return -1
}

// checkOrigin refuses what a web page in somebody's browser could send, whatever
// name it resolved to this machine.
func (s *server) checkOrigin(r *http.Request, port int) error {
	if !s.ours(r.Host, port, r.TLS != nil) || r.URL.User != nil {
		return newProblem("forbidden_host")
	}
	for _, origin := range r.Header["Origin"] {
		host, secure := strings.CutPrefix(origin, "https://")
		if !secure {
			var plain bool
			if host, plain = strings.CutPrefix(origin, "http://"); !plain {
				return newProblem("forbidden_origin")
			}
		}
		if !s.ours(host, port, secure) {
			return newProblem("forbidden_origin")
		}
	}
	for _, site := range r.Header["Sec-Fetch-Site"] {
		if site != "none" && site != "same-origin" {
			return newProblem("forbidden_origin")
		}
	}
	return nil
}

// ours reports whether host, as in a Host header, names this daemon at the port
// that it was reached at.
func (s *server) ours(host string, port int, secure bool) bool {
	if len(s.allowed) > 0 && s.allowed[strings.ToLower(host)] {
		return true
	}
	name, at := host, ""
	if i := strings.LastIndexByte(host, ':'); i > strings.LastIndexByte(host, ']') {
		name, at = host[:i], host[i+1:]
	} else if secure {
		at = "443"
	} else {
		at = "80"
	}
	var digits [20]byte
	if string(strconv.AppendInt(digits[:0], int64(port), 10)) != at {
		return false
	}
	switch name {
	case "127.0.0.1", "localhost", "[::1]":
		return true
	}
	return len(s.allowed) > 0 && s.allowed[strings.ToLower(name)]
}

// tokenInURL reports whether a query has a parameter that other services take
// tokens by. A URL ends up in logs and histories.
func tokenInURL(query string) bool {
	// Some servers read a semicolon as an ampersand; a malformed pair is no excuse.
	for pair := range strings.FieldsFuncSeq(query, func(r rune) bool { return r == '&' || r == ';' }) {
		name, _, _ := strings.Cut(pair, "=")
		if plain, err := url.QueryUnescape(name); err == nil {
			name = plain
		}
		if strings.EqualFold(name, "token") || strings.EqualFold(name, "access_token") {
			return true
		}
	}
	return false
}

// open reports whether the path is for anybody.
func (s *server) open(r *http.Request, local net.Addr) bool {
	if r.URL.RawPath != "" {
		return false // written in an unusual way, which no route is
	}
	switch r.URL.Path {
	case "/healthz", "/readyz", "/openapi.json":
		return true
	case "/metrics":
		if tcp, ok := local.(*net.TCPAddr); ok && !tcp.IP.IsLoopback() {
			return false
		}
		return !s.private
	}
	return false
}

// authenticate says whose request it is. Every refusal is the same to the client.
func (s *server) authenticate(r *http.Request) (identity.Caller, error) {
	given := r.Header["Authorization"]
	var caller identity.Caller
	err := identity.ErrUnauthenticated
	switch len(given) {
	case 0:
		uid, ok := r.Context().Value(peerKey{}).(uint32)
		if !ok {
			s.metrics.unauthenticated("missing")
			return caller, newProblem("unauthenticated")
		}
		caller, err = s.callers.Peer(uid)
	case 1:
		scheme, token, _ := strings.Cut(given[0], " ")
		if strings.EqualFold(scheme, "Bearer") {
			caller, err = s.callers.Authenticate(token)
		}
	}
	if err != nil {
		s.metrics.unauthenticated("invalid")
		return caller, newProblem("unauthenticated")
	}
	return caller, nil
}

// A visitor is what is kept of a caller between requests.
type visitor struct {
	scope   identity.Scope
	limiter *rate.Limiter // nil means no limit
	places  chan struct{} // one for each request that is being served
	waiting atomic.Int64  // requests that wait for one, or for their turn
	imports chan struct{} // likewise for imports, whose bodies are large
	exports chan struct{} // likewise for exports, which nobody may be reading
	bodies  lot           // likewise for large bodies
	crowd   crowd         // room for bodies of many objects
	replays lot           // likewise for large replays
	files   lot           // likewise for attachments
}

// importsAtOnce is how many imports of one caller are in memory.
const importsAtOnce = 4

// exportsAtOnce is how many exports of one caller go on: each takes a processor while it goes, and memory until it is read.
const exportsAtOnce = 16

func (s *server) visit(c identity.Caller) *visitor {
	if v, ok := s.visitors.Load(c); ok {
		return v.(*visitor)
	}
	v := &visitor{
		scope:   c.Scope(),
		places:  make(chan struct{}, s.limits.PerCallerConcurrency),
		imports: make(chan struct{}, importsAtOnce),
		exports: make(chan struct{}, exportsAtOnce),
		bodies:  newLot(bodiesAtOnce, s.bodies),
		crowd:   newCrowd(s.crowds),
		replays: newLot(replaysAtOnce, s.heavy),
		files:   newLot(filesAtOnce, s.files),
	}
	if perSecond := s.limits.PerCallerRate; perSecond > 0 {
		v.limiter = rate.NewLimiter(rate.Limit(perSecond), int(max(1, math.Ceil(perSecond))))
	}
	known, _ := s.visitors.LoadOrStore(c, v)
	return known.(*visitor)
}

// patience is how long a request waits for a place.
const patience = 5 * time.Second

// enter takes a place for the request, when its turn has come.
func (x *exchange) enter(r *http.Request) error {
	v := x.visitor
	if v.limiter != nil {
		if err := x.awaitTurn(r, v.limiter); err != nil {
			return err
		}
	}
	select {
	case v.places <- struct{}{}:
	default:
		err := x.wait(func() error { return take(r, v.places, patience-time.Since(x.start)) })
		if err != nil {
			return err
		}
	}
	x.placed = true
	return nil
}

// wait does something that waits, unless too many requests of the caller wait already.
func (x *exchange) wait(fn func() error) error {
	v := x.visitor
	defer v.waiting.Add(-1)
	if v.waiting.Add(1) > int64(x.server.limits.PerCallerWaiting) {
		return rateLimited(time.Second)
	}
	return fn()
}

// leave gives the places back. A second call does nothing.
func (x *exchange) leave() {
	for _, give := range []func(){x.drop, x.uncrowd} {
		if give != nil {
			give()
		}
	}
	if x.placed {
		x.placed = false
		<-x.visitor.places
	}
}

func (x *exchange) awaitTurn(r *http.Request, l *rate.Limiter) error {
	turn := l.Reserve()
	delay := turn.Delay()
	if delay == 0 {
		return nil
	}
	if delay > patience {
		turn.Cancel()
		return rateLimited(delay - patience)
	}
	err := x.wait(func() error {
		timer := time.NewTimer(delay)
		defer timer.Stop()
		select {
		case <-timer.C:
			return nil
		case <-r.Context().Done():
			return r.Context().Err()
		}
	})
	if err != nil {
		turn.Cancel()
	}
	return err
}

func rateLimited(after time.Duration) error {
	p := newProblem("rate_limited")
	p.header = map[string]string{"Retry-After": strconv.FormatInt(int64(math.Ceil(after.Seconds())), 10)}
	return p
}
