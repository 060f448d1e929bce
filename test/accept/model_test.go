package accept

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"
)

// model is a server with chat completions. It keeps what it was asked.
type model struct {
	*httptest.Server
	mu     sync.Mutex // guards what follows
	asked  []chat
	answer func(w http.ResponseWriter, c chat)
}

// chat is one request to a model.
type chat struct {
	number                    int // from 1 on
	raw, orders, said, bearer string
	r                         *http.Request
}

func newModel(t *testing.T, answer func(w http.ResponseWriter, c chat)) *model {
	m := &model{answer: answer}
	m.Server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		raw, err := io.ReadAll(r.Body)
		var body struct {
			Model    string
			Messages []struct{ Role, Content string }
		}
		if err != nil || json.Unmarshal(raw, &body) != nil || r.URL.Path != "/v1/chat/completions" || body.Model != "stub" || len(body.Messages) != 2 {
			t.Errorf("%s %s is no chat completion: %s", r.Method, r.URL, raw)
			return
		}
		c := chat{raw: string(raw), orders: body.Messages[0].Content, said: body.Messages[1].Content, bearer: r.Header.Get("Authorization"), r: r}
		m.mu.Lock()
		c.number = len(m.asked) + 1
		m.asked = append(m.asked, c)
		answer := m.answer
		m.mu.Unlock()
		answer(w, c)
	}))
	m.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, 0)
	m.Start()
	t.Cleanup(m.Close)
	return m
}

// answers changes what is answered from now on.
func (m *model) answers(answer func(http.ResponseWriter, chat)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.answer = answer
}

func (m *model) requests() []chat {
	m.mu.Lock()
	defer m.mu.Unlock()
	return append([]chat(nil), m.asked...)
}

// says answers with a content, which is any JSON.
func says(w http.ResponseWriter, content any) {
	_ = json.NewEncoder(w).Encode(map[string]any{"choices": []any{map[string]any{"finish_reason": "stop", "message": map[string]any{"content": content}}}})
}

func always(content any) func(http.ResponseWriter, chat) {
	return func(w http.ResponseWriter, _ chat) { says(w, content) }
}

// newSummarised is a daemon that asks the model, with one caller. At least 2 turns stay, and 2 are folded at a time.
func newSummarised(t *testing.T, m *model, env ...string) (*daemon, caller) {
	t.Helper()
	d := newDaemon(t, append([]string{
		"HISTORYD_COMPACTION_SUMMARISER=model", "HISTORYD_COMPACTION_MODEL_BASE_URL=" + m.URL + "/v1", "HISTORYD_COMPACTION_MODEL_NAME=stub",
		"HISTORYD_COMPACTION_KEEP_VERBATIM_TURNS=2", "HISTORYD_COMPACTION_FOLD_BATCH=2",
	}, env...)...)
	return d, caller{d, d.token("operator", "ann", "")}
}

// turn appends a question and an answer that are about a word, at some length.
func (c caller) turn(name, word string) {
	c.d.t.Helper()
	at := strings.Repeat(word+" is spoken of at length here. ", 10)
	c.do(201, "POST", "/v1/conversations/"+name+"/turns", said(c.d.t, at+word+" question", at+word+" answer"))
}

// fold makes a turn about each of the words: with the first four, and with each two after them, there is a fold.
func (c caller) fold(name string, words ...string) {
	c.d.t.Helper()
	for _, word := range words {
		c.turn(name, word)
	}
}

// replayed is a replay in the words of the tests.
type replayed struct {
	Summary *struct {
		Text, Source    string
		Turns, Messages int64
		ThroughSeq      int64 `json:"through_seq"`
	}
	Messages []struct{ Role, Content string }
}

func (c caller) replay(name string) (r replayed) {
	c.d.t.Helper()
	b := c.do(200, "GET", "/v1/conversations/"+name+"/replay?format=openai", nil)
	return decode[replayed](c.d.t, b)
}

// summary is the source and the text of a summary, "none" without one.
func (r replayed) summary() string {
	if r.Summary == nil {
		return "none"
	}
	return r.Summary.Source + ": " + r.Summary.Text
}

// metric is the value of a series, 0 when it is not there.
func (d *daemon) metric(series string) int {
	d.t.Helper()
	_, rest, ok := bytes.Cut(caller{d, ""}.do(200, "GET", "/metrics", nil), []byte("\n"+series+" "))
	if !ok {
		return 0
	}
	value, _, _ := bytes.Cut(rest, []byte("\n"))
	n, err := strconv.Atoi(string(value))
	if err != nil {
		d.t.Fatalf("%s: %v", series, err)
	}
	return n
}

// ended waits until so many attempts have ended in a way.
func (d *daemon) ended(result string, n int) {
	d.t.Helper()
	series := fmt.Sprintf("historyd_summaries_total{result=%q}", result)
	await(d.t, fmt.Sprintf("%d summaries end as %s", n, result), func() bool { return d.metric(series) >= n })
}
