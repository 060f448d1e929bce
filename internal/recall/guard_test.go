package recall

import (
	"bytes"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestTheTokenOfAServer(t *testing.T) {
	p := newPlace(t)
	p.answer("memory_search", notes("The flight is on Monday."))
	url, _ := p.listen("http", "127.0.0.1:0")
	write := func(dir, name, text string) string {
		name = filepath.Join(dir, name)
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return name
	}
	write(p.dir, "token", "canary-token")
	file := write(t.TempDir(), "token", "wrong-token\n")
	s := memory(p)
	s.Command, s.URL, s.TokenFile = nil, url, file
	var log bytes.Buffer
	r := must(t, Options{MCP: []Server{s}, Logger: slog.New(slog.NewTextHandler(&log, nil))})
	wantStatuses(t, ask(t, r, question), "local not_configured 0, memory error 0")
	if got := log.String(); !strings.Contains(got, "cause=Unauthorized") || strings.Contains(got, "token") || strings.Contains(got, "canary") {
		t.Errorf("log: got %s, want the cause and nothing of the token or the body", got)
	}
	write(filepath.Dir(file), "token", "canary-token\n")
	rest(r)
	wantStatuses(t, ask(t, r, question), "local not_configured 0, memory ok 1")
}

func TestWhatAnHTTPServerMayNotDo(t *testing.T) {
	followed := false
	other := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { followed = true }))
	defer other.Close()
	for _, tt := range []struct {
		name   string
		handle http.HandlerFunc
		cause  string
	}{
		{"send us elsewhere", func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, other.URL, http.StatusTemporaryRedirect)
		}, "Temporary Redirect"},
		{"answer without end", func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			_, _ = w.Write([]byte(`{"jsonrpc":"2.0","id":1,"result":{"x":"`))
			for r.Context().Err() == nil {
				if _, err := w.Write(bytes.Repeat([]byte("x"), 1<<16)); err != nil {
					return
				}
			}
		}, "connection lost"},
		{"answer a page", func(w http.ResponseWriter, _ *http.Request) {
			_, _ = w.Write([]byte("<html>canary-in-body</html>"))
		}, "connection lost"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			server := httptest.NewServer(tt.handle)
			defer server.Close()
			var log bytes.Buffer
			s := Server{Name: "memory", Preset: "memory_search", Shared: true, URL: server.URL}
			r := must(t, Options{MCP: []Server{s}, Logger: slog.New(slog.NewTextHandler(&log, nil))})
			wantStatuses(t, ask(t, r, question), "local not_configured 0, memory error 0")
			if got := log.String(); !strings.Contains(got, tt.cause) || strings.Contains(got, "canary") {
				t.Errorf("log: got %s, want %s and nothing of the body", got, tt.cause)
			}
			_ = r.Close()
		})
	}
	if followed {
		t.Error("the redirection was followed")
	}
}
