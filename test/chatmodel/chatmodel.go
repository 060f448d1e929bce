// Package chatmodel is a server with chat completions that tests let the summariser ask.
// It knows no model: what it answers is the test's to say.
package chatmodel

import (
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
)

// An Answer is what the server does with a request.
type Answer func(w http.ResponseWriter, c Chat)

// A Server keeps what it was asked. It may be used by many goroutines.
type Server struct {
	*httptest.Server
	mu     sync.Mutex // guards what follows
	asked  []Chat
	answer Answer
}

// A Chat is one request.
type Chat struct {
	Number  int    // from 1 on
	Raw     string // the body
	Orders  string // of the system message
	Said    string // by the user
	Bearer  string // the header Authorization
	Request *http.Request
}

// New starts a server of the model stub, which ends with the test. A request that is no
// chat completion of it, not streamed, is an error of the test.
func New(t testing.TB, answer Answer) *Server {
	s := &Server{answer: answer}
	s.Server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		raw, err := io.ReadAll(r.Body)
		var body struct {
			Model    string
			Stream   *bool
			Messages []struct{ Role, Content string }
		}
		if err != nil || json.Unmarshal(raw, &body) != nil || r.Method != http.MethodPost || r.URL.Path != "/v1/chat/completions" ||
			body.Model != "stub" || body.Stream == nil || *body.Stream || len(body.Messages) != 2 || body.Messages[0].Role != "system" || body.Messages[1].Role != "user" {
			t.Errorf("a request to %s %s that is no chat completion: %s", r.Method, r.URL, raw)
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		c := Chat{Raw: string(raw), Orders: body.Messages[0].Content, Said: body.Messages[1].Content, Bearer: r.Header.Get("Authorization"), Request: r}
		s.mu.Lock()
		c.Number = len(s.asked) + 1
		s.asked = append(s.asked, c)
		answer := s.answer
		s.mu.Unlock()
		answer(w, c)
	}))
	s.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, 0)
	s.Start()
	t.Cleanup(s.Close)
	return s
}

// Answers changes what is answered from now on.
func (s *Server) Answers(answer Answer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.answer = answer
}

// Requests returns what it was asked so far, in order.
func (s *Server) Requests() []Chat {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]Chat(nil), s.asked...)
}

// Says answers with a content, which is any JSON.
func Says(w http.ResponseWriter, content any) {
	_ = json.NewEncoder(w).Encode(map[string]any{"choices": []any{map[string]any{
		"message": map[string]any{"role": "assistant", "content": content}, "finish_reason": "stop",
	}}})
}

// Always is the Answer that says the same to every request.
func Always(content any) Answer {
	return func(w http.ResponseWriter, _ Chat) { Says(w, content) }
}
