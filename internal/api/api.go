// Package api is the HTTP contract of historyd: its routes, who is calling, the
// limits, and what an error looks like to a client. What the messages of a format
// mean is for wire, and what becomes of them for pipeline.
//
// Everything that a request must pass before its route is looked up stands outside
// the router, so that an unknown path tells no more than a known one. No content,
// token, path or name of a caller is ever in an error, a log line or a metric.
package api

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/go-chi/chi/v5"
	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/semaphore"

	"historyd/internal/identity"
	"historyd/internal/pipeline"
)

// Callers says who is calling. *identity.Registry does.
type Callers interface {
	Authenticate(token string) (identity.Caller, error)
	Peer(uid uint32) (identity.Caller, error)
}

// Limits bounds what a request may take. The zero value of a field means its default.
type Limits struct {
	Body    int64 // bytes of a body; 8 MiB
	Message int64 // bytes of one message; 4 MiB
	Import  int64 // bytes of a body of import; 512 MiB

	PerCallerConcurrency int     // requests of one caller at a time; 256
	PerCallerRate        float64 // requests of one caller a second; 0 means no limit

	// PerCallerWaiting is how many more requests of one caller wait for their turn;
	// others are refused at once, so that who waits does not take all connections. 256.
	PerCallerWaiting int
}

// Options configures the handler. Pipeline and Callers are required.
type Options struct {
	Pipeline *pipeline.Pipeline
	Callers  Callers

	// AllowedHosts are names under which the daemon may be reached over TCP besides
	// those of the loopback interface: a name alone with the port that is listened on
	// or none, or a name and the port that clients use.
	AllowedHosts []string

	Limits     Limits
	CacheBytes int64 // of replays that were answered before; 0 means 64 MiB
	// MetricsAuth asks for a token at /metrics; elsewhere than on loopback it is always asked for.
	MetricsAuth bool

	// Known is told whose each request is, with its context. It may be nil.
	Known func(ctx context.Context, caller identity.Scope)

	Gatherer   prometheus.Gatherer   // what /metrics shows; nil means nothing
	Registerer prometheus.Registerer // nil means unregistered metrics
	Logger     *slog.Logger          // nil means no log
}

// server is the handler. It may be used from many goroutines.
type server struct {
	pipeline *pipeline.Pipeline
	callers  Callers
	allowed  map[string]bool // hosts, in lower case
	limits   Limits
	private  bool // metrics ask for a token
	known    func(context.Context, identity.Scope)
	replays  *replayCache
	metrics  *metrics
	scrape   http.Handler
	log      *slog.Logger
	router   *chi.Mux
	routings sync.Pool           // of *chi.Context
	bodies   chan struct{}       // one for each large body of any caller
	heavy    chan struct{}       // likewise for large replays
	files    chan struct{}       // likewise for attachments
	crowds   *semaphore.Weighted // room for all bodies of many objects
	visitors sync.Map            // of identity.Caller to *visitor; no larger than the callers file ever was
}

// New returns the handler, or an error that names the option at fault. A request goes on for a moment when its context
// has ended, as that of net/http does with its client; but not when there is a cause of its own, such as that the server ends.
func New(o Options) (http.Handler, error) {
	switch {
	case o.Pipeline == nil:
		return nil, errors.New("api: Options.Pipeline is required")
	case o.Callers == nil:
		return nil, errors.New("api: Options.Callers is required")
	}
	limits, err := o.Limits.withDefaults()
	if err != nil {
		return nil, err
	}
	if o.CacheBytes < 0 {
		return nil, errors.New("api: Options.CacheBytes is negative")
	}
	replays, err := newReplayCache(o.CacheBytes)
	if err != nil {
		return nil, fmt.Errorf("api: Options.CacheBytes: %w", err)
	}
	s := &server{
		pipeline: o.Pipeline,
		callers:  o.Callers,
		allowed:  map[string]bool{},
		limits:   limits,
		private:  o.MetricsAuth,
		known:    o.Known,
		replays:  replays,
		metrics:  newMetrics(o.Registerer),
		scrape:   scraper(o.Gatherer),
		log:      o.Logger,
		bodies:   make(chan struct{}, sharesAtOnce*bodiesAtOnce),
		crowds:   semaphore.NewWeighted(crowdsAtOnce * objectsAtOnce),
		heavy:    make(chan struct{}, sharesAtOnce*replaysAtOnce),
		files:    make(chan struct{}, sharesAtOnce*filesAtOnce),
	}
	s.routings.New = func() any { return chi.NewRouteContext() }
	for _, h := range o.AllowedHosts {
		s.allowed[strings.ToLower(h)] = true
	}
	if s.log == nil {
		s.log = slog.New(slog.DiscardHandler)
	}
	if s.known == nil {
		s.known = func(context.Context, identity.Scope) {}
	}
	s.router = s.routes()
	return s, nil
}

func (l Limits) withDefaults() (Limits, error) {
	for _, f := range []struct {
		name     string
		value    *int64
		fallback int64
	}{
		{"Body", &l.Body, 8 << 20}, {"Message", &l.Message, 4 << 20}, {"Import", &l.Import, 512 << 20},
	} {
		if *f.value < 0 {
			return l, fmt.Errorf("api: Options.Limits.%s is negative", f.name)
		}
		if *f.value == 0 {
			*f.value = f.fallback
		}
	}
	if l.PerCallerConcurrency < 0 || l.PerCallerRate < 0 || l.PerCallerWaiting < 0 {
		return l, errors.New("api: Options.Limits: PerCallerConcurrency, PerCallerRate and PerCallerWaiting must not be negative")
	}
	if l.PerCallerConcurrency == 0 {
		l.PerCallerConcurrency = 256
	}
	if l.PerCallerWaiting == 0 {
		l.PerCallerWaiting = 256
	}
	return l, nil
}

type peerKey struct{}

// WithPeer returns a context that says which uid is at the other end of a unix
// socket. It is for http.Server.ConnContext, since credentials are read at accept.
func WithPeer(ctx context.Context, uid uint32) context.Context {
	return context.WithValue(ctx, peerKey{}, uid)
}

// A Cork is a connection that can keep a write until the next one, so that both leave at once.
type Cork interface {
	Cork()
	Uncork() error // writes what was kept and nothing came after
}

type corkKey struct{}

// WithCork returns a context that says on which connection requests come. It is for
// http.Server.ConnContext; without it nothing is kept.
func WithCork(ctx context.Context, c Cork) context.Context {
	return context.WithValue(ctx, corkKey{}, c)
}

// CorkOf is what WithCork was given, or nil.
func CorkOf(ctx context.Context) Cork {
	c, _ := ctx.Value(corkKey{}).(Cork)
	return c
}

// Shared header values; net/http reads them and nobody adds to them.
var (
	noStore     = []string{"no-store"}
	jsonType    = []string{"application/json"}
	problemType = []string{"application/problem+json"}
	closing     = []string{"close"}
)

func (s *server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	x := &exchange{
		ResponseWriter: w, server: s, id: rand.Text(), start: time.Now(), unread: r.ContentLength != 0, cork: CorkOf(r.Context()),
		presence: presence{client: r.Context(), routing: s.routings.Get().(*chi.Context)},
	}
	x.presence.routing.Reset()
	defer s.routings.Put(x.presence.routing)
	r = r.WithContext(&x.presence)
	h := w.Header()
	h["X-Request-Id"] = []string{x.id}
	h["Cache-Control"] = noStore
	if len(r.TransferEncoding) > 0 || !r.ProtoAtLeast(1, 1) {
		// Whether a length stood beside the chunks, or HTTP/1.0 came in chunks, net/http does not tell. Whoever passed
		// the request on may have read its end elsewhere, so what comes behind it is nobody's.
		h["Connection"] = closing
	}
	s.metrics.inFlight.Inc()
	defer s.finish(x, r)
	if err := s.admit(x, r); err != nil {
		x.fail(r, err)
		return
	}
	s.router.ServeHTTP(x, r)
}
