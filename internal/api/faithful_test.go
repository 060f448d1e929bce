package api

import (
	"net/http"
	"strings"
	"testing"

	"historyd/internal/projection"
)

// What a program kept of a provider's error is in the archive, and no model is told it as an answer: neither word for word nor,
// when it was folded, in the summary.
func TestAProvidersErrorIsInTheArchiveAlone(t *testing.T) {
	d := newDaemon(t, projection.Options{})
	for format, failed := range map[string]string{
		"jsonl":     `{"role":"assistant","content":[{"type":"text","text":"overloaded 529"}],"isApiErrorMessage":true}`,
		"openai":    `{"role":"assistant","content":"overloaded 529","error":{"code":529}}`,
		"anthropic": `{"role":"assistant","content":[{"type":"text","text":"overloaded 529"}],"isApiErrorMessage":true}`,
		"gemini":    `{"role":"model","parts":[{"text":"overloaded 529"}],"error":"overloaded"}`,
	} {
		var lines []string
		for range 20 {
			asked := `{"role":"user","content":[{"type":"text","text":"hi"}]}`
			if format == "gemini" {
				asked = `{"role":"user","parts":[{"text":"hi"}]}`
			}
			lines = append(lines, asked, failed)
		}
		conversation := "/v1/conversations/" + format
		want(t, d.send(request{method: "POST", path: conversation + "/import?format=" + format, caller: "ann", body: strings.Join(lines, "\n"), header: http.Header{"Content-Type": {"application/x-ndjson"}}}), 201, "")
		for _, path := range []string{"/export", "/export?format=" + format, "/messages"} {
			if n := strings.Count(d.get("ann", conversation+path).body, "overloaded 529"); n != 20 {
				t.Errorf("%s: %s holds it %d times, want 20", format, path, n)
			}
		}
		for _, to := range append([]string{"native"}, providers...) {
			for _, mode := range []string{"text", "full"} {
				got := d.get("ann", conversation+"/replay?mode="+mode+"&format="+to)
				if strings.Contains(got.body, "overloaded") || !strings.Contains(got.body, `"provider_errors":1`) || !strings.Contains(got.body, `"summary":{`) {
					t.Errorf("%s: replayed as %s, mode %s: %s", format, to, mode, got.body)
				}
			}
		}
	}
}
