package main

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/pprof"
	"net/netip"
	"path/filepath"
	"time"
)

// newDebugServer serves Go's profiles on a mux of its own; that the import of
// pprof also puts them on the default mux is without effect, for nobody serves
// that one.
func newDebugServer() *http.Server {
	mux := http.NewServeMux()
	mux.HandleFunc("/debug/pprof/", pprof.Index)
	mux.HandleFunc("/debug/pprof/cmdline", pprof.Cmdline)
	mux.HandleFunc("/debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("/debug/pprof/symbol", pprof.Symbol)
	mux.HandleFunc("/debug/pprof/trace", pprof.Trace)
	return &http.Server{Handler: notForBrowsers(mux), ReadHeaderTimeout: 5 * time.Second, IdleTimeout: time.Minute}
}

// notForBrowsers refuses what a web page can make a browser ask of a loopback
// address: another name that leads here, and requests across origins.
func notForBrowsers(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		host := r.Host
		if name, _, err := net.SplitHostPort(host); err == nil {
			host = name
		}
		ip, err := netip.ParseAddr(host)
		local := host == "localhost" || err == nil && ip.IsLoopback()
		if !local || r.Header.Get("Origin") != "" {
			http.Error(w, "forbidden", http.StatusForbidden)
			return
		}
		h.ServeHTTP(w, r)
	})
}

// listenDebug returns what systemd has opened for it or opens what debug.listen
// names, the loopback or a unix socket; nil without either.
func listenDebug(ctx context.Context, s *settings, inherited net.Listener) (net.Listener, error) {
	switch l := s.Debug.Listen; {
	case inherited != nil:
		if a, ok := inherited.Addr().(*net.TCPAddr); ok && !a.AddrPort().Addr().Unmap().IsLoopback() {
			return nil, fmt.Errorf("the inherited socket %v: want a loopback address or a unix socket", a)
		}
		return inherited, nil
	case l == "":
		return nil, nil
	case filepath.IsAbs(l):
		return listenUnix(ctx, l, ownerOnly)
	default:
		return listenTCP(ctx, l, false)
	}
}
