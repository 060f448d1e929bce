package api

import (
	"net/http"

	"historyd/internal/identity"
)

type statusReply struct {
	Status string `json:"status"`
}

// alive serves GET /healthz: the process lives.
func (s *server) alive(x *exchange, r *http.Request) error {
	if _, err := query(r); err != nil {
		return err
	}
	return x.reply(http.StatusOK, statusReply{"ok"})
}

// ready serves GET /readyz: a write would be accepted.
func (s *server) ready(x *exchange, r *http.Request) error {
	if _, err := query(r); err != nil {
		return err
	}
	if s.pipeline.Ready() != nil {
		x.Header()["Retry-After"] = []string{"5"}
		return x.reply(http.StatusServiceUnavailable, statusReply{"unavailable"})
	}
	return x.reply(http.StatusOK, statusReply{"ok"})
}

// scraped serves GET /metrics.
func (s *server) scraped(x *exchange, r *http.Request) error {
	s.scrape.ServeHTTP(x, r)
	return nil
}

// contract serves GET /openapi.json.
func (s *server) contract(x *exchange, r *http.Request) error {
	if _, err := query(r); err != nil {
		return err
	}
	return x.send(http.StatusOK, jsonType, openAPI)
}

type whoamiReply struct {
	Kind            identity.Kind `json:"kind"`
	ID              string        `json:"id"`
	PermissionScope string        `json:"permission_scope"`
	Workspace       string        `json:"workspace"`
}

// whoami serves GET /v1/whoami.
func (s *server) whoami(x *exchange, r *http.Request) error {
	if _, err := query(r); err != nil {
		return err
	}
	c := x.caller
	return x.reply(http.StatusOK, whoamiReply{c.Kind, c.ID, c.PermissionScope, c.Workspace})
}
