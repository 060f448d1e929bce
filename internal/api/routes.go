package api

import (
	_ "embed"
	"net/http"
	"strings"

	"github.com/go-chi/chi/v5"
)

// openAPI is the contract in the words of OpenAPI 3.1; a test holds it to routes.
//
//go:embed openapi.json
var openAPI []byte

type handler func(x *exchange, r *http.Request) error

func (s *server) routes() *chi.Mux {
	m := chi.NewRouter()
	// Segments are matched as they were written, so that a name is decoded once, by us.
	m.Use(func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.RawPath != "" || strings.IndexByte(r.URL.Path, '%') >= 0 {
				chi.RouteContext(r.Context()).RoutePath = r.URL.EscapedPath()
			}
			next.ServeHTTP(w, r)
		})
	})
	m.NotFound(s.unrouted)
	m.MethodNotAllowed(s.unrouted)

	s.add(m, "GET", "/healthz", s.alive)
	s.add(m, "GET", "/readyz", s.ready)
	s.add(m, "GET", "/metrics", s.scraped)
	s.add(m, "GET", "/openapi.json", s.contract)
	s.add(m, "GET", "/v1/whoami", s.whoami)
	s.add(m, "GET", "/v1/conversations", s.listConversations)
	s.add(m, "DELETE", "/v1/conversations", s.clearAll)
	s.add(m, "GET", "/v1/search", s.search)
	for _, base := range []string{"/v1/conversations/{c}", "/v1/history"} {
		s.add(m, "GET", base, s.showConversation)
		s.add(m, "DELETE", base, s.clear)
		s.add(m, "POST", base+"/turns", s.postTurns)
		s.add(m, "GET", base+"/messages", s.listMessages)
		s.add(m, "GET", base+"/replay", s.getReplay)
		s.add(m, "POST", base+"/replay", s.postReplay)
		s.add(m, "GET", base+"/export", s.export)
		s.add(m, "POST", base+"/import", s.importDocument)
		s.add(m, "POST", base+"/recall", s.postRecall)
		s.add(m, "POST", base+"/fork", s.fork)
		s.add(m, "POST", base+"/rewind", s.rewind)
		s.add(m, "GET", base+"/attachments/{sha256}", s.attachment)
	}
	return m
}

// add registers a route; HEAD works where GET does.
func (s *server) add(m *chi.Mux, method, pattern string, h handler) {
	rt := s.metrics.route(method, pattern)
	rt.named = strings.Contains(pattern, "{c}")
	m.MethodFunc(method, pattern, func(w http.ResponseWriter, r *http.Request) {
		x := w.(*exchange)
		x.route = rt
		if err := h(x, r); err != nil {
			x.fail(r, err)
		}
	})
	if method == http.MethodGet {
		s.add(m, http.MethodHead, pattern, h)
	}
}

// noRoute tells a mistyped path from a conversation that is not there.
const noRoute = "no route has this path: /openapi.json lists them, such as /v1/conversations/NAME and /v1/conversations/NAME/turns; none ends with /"

// unrouted serves what no route is for.
func (s *server) unrouted(w http.ResponseWriter, r *http.Request) {
	x := w.(*exchange)
	x.route = s.metrics.none[unmatched][methodLabel(r.Method)]
	var allow []string
	for _, method := range methods {
		if s.router.Match(chi.NewRouteContext(), method, r.URL.EscapedPath()) {
			allow = append(allow, method)
		}
	}
	if allow == nil {
		p := newProblem("not_found")
		p.detail = noRoute
		x.fail(r, p)
		return
	}
	listed := strings.Join(allow, ", ")
	p := newProblem("method_not_allowed")
	p.detail = "this route knows " + listed
	p.header = map[string]string{"Allow": listed}
	x.fail(r, p)
}
