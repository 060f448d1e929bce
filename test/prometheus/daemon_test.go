package prometheus

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
)

// patience is how long anything is waited for that should take a moment.
const patience = 30 * time.Second

// daemon is a process with everything switched on that has metrics of its own.
type daemon struct {
	t     *testing.T
	url   string
	token string
}

// newModel is a server that sums up whatever it is given.
func newModel(t *testing.T) string {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"choices":[{"message":{"role":"assistant","content":"They spoke of plants."},"finish_reason":"stop"}]}`)
	}))
	t.Cleanup(s.Close)
	return s.URL
}

func newDaemon(t *testing.T) *daemon {
	t.Helper()
	dir := t.TempDir()
	// With the modules that it is shipped with, not those of this one.
	program := filepath.Join(dir, "historyd")
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-C", "../..", "-o", program, "./cmd/historyd").CombinedOutput(); err != nil {
		t.Fatalf("build: %v: %s", err, out)
	}
	config, err := json.Marshal(map[string]any{
		"quota":     map[string]any{"bytes": "64MiB", "conversations": 100},
		"retention": map[string]any{"max_age": "90d"},
		"compaction": map[string]any{"summariser": "model", "keep_verbatim_turns": 2, "fold_batch": 2,
			"model": map[string]any{"base_url": newModel(t), "name": "any"}},
		"recall": map[string]any{"mcp": []any{map[string]any{"name": "memory", "command": []string{"/nonexistent"}, "preset": "rag.search", "shared": true}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	file, data := filepath.Join(dir, "historyd.yaml"), filepath.Join(dir, "data")
	if err := os.WriteFile(file, config, 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var logs bytes.Buffer
	cmd := exec.CommandContext(ctx, program, "serve", "--config", file, "--data-dir", data,
		"--listen", "127.0.0.1:0", "--socket", filepath.Join(dir, "s"), "--bootstrap-operator", "me")
	cmd.Stderr = &logs
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cancel()
		_ = cmd.Wait()
		if t.Failed() {
			t.Logf("the daemon's log:\n%s", &logs)
		}
	})
	d := &daemon{t: t}
	said := make([]byte, 4096)
	for text := ""; d.url == ""; {
		n, err := stdout.Read(said)
		if err != nil {
			t.Fatalf("the daemon does not listen: %v, %q", err, text)
		}
		text += string(said[:n])
		if _, after, ok := strings.Cut(text, "http://"); ok && strings.ContainsAny(after, " \n") {
			d.url = "http://" + after[:strings.IndexAny(after, " \n")]
		}
	}
	token, err := os.ReadFile(filepath.Join(data, "operator.token"))
	if err != nil {
		t.Fatal(err)
	}
	d.token = strings.TrimSpace(string(token))
	return d
}

// ask makes a request that must end with that status.
func (d *daemon) ask(want int, method, path, body string) string {
	d.t.Helper()
	ctx, cancel := context.WithTimeout(d.t.Context(), patience)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, d.url+path, strings.NewReader(body))
	if err != nil {
		d.t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+d.token)
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Do(req)
	if err != nil {
		d.t.Fatalf("%s %s: %v", method, path, err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != want {
		d.t.Fatalf("%s %s: got %d %s, %v, want %d", method, path, resp.StatusCode, text, err, want)
	}
	return string(text)
}

// traffic is some of everything that is counted.
func (d *daemon) traffic() {
	d.t.Helper()
	for i := range 8 {
		d.ask(201, "POST", "/v1/conversations/a/turns", fmt.Sprintf(`{"messages":[{"role":"user","content":"What about plant %d?"},
			{"role":"assistant","content":[{"type":"tool_call","id":"c","name":"look_up","arguments":{"plant":"number %d"}}]},
			{"role":"tool","content":[{"type":"tool_result","call_id":"c","content":[{"type":"text","text":"%s"}]}]},
			{"role":"assistant","content":"It wants water."}],"tool_categories":{"look_up":"plants"}}`, i, i, strings.Repeat("much water ", 600)))
	}
	d.ask(201, "POST", "/v1/conversations/a/turns", `{"messages":[{"role":"user","content":"And the other?"},
		{"role":"assistant","content":[{"type":"tool_call","id":"d","name":"nobody_knows","arguments":{"plant":"secret"}}]}]}`)
	for _, query := range []string{"?mode=text", "?mode=text", "?mode=full", "?mode=full"} {
		d.ask(200, "GET", "/v1/conversations/a/replay"+query, "")
	}
	document := d.ask(200, "GET", "/v1/conversations/a/export", "")
	d.ask(201, "POST", "/v1/conversations/b/import", document)
	d.ask(201, "POST", "/v1/conversations/a/fork", `{"to":"c"}`)
	d.ask(200, "POST", "/v1/conversations/c/rewind", `{"through_seq":4}`)
	d.ask(204, "DELETE", "/v1/conversations/c", "")
	d.ask(200, "GET", "/v1/search?q=plants+and+water", "")
	d.ask(200, "POST", "/v1/conversations/a/recall", `{"query":"which plants want water"}`)
	d.ask(404, "GET", "/v1/conversations/nothing/replay/x", "")
}

// scrape reads what is exposed, by name.
func (d *daemon) scrape() map[string]*dto.MetricFamily {
	d.t.Helper()
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(strings.NewReader(d.ask(200, "GET", "/metrics", "")))
	if err != nil {
		d.t.Fatal(err)
	}
	return families
}
