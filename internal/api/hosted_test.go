package api

import (
	"bytes"
	"encoding/base64"
	"strings"
	"testing"

	"historyd/internal/projection"
)

// Neither the image that a tool of the provider's made, nor what it was made of, is
// anywhere on disk when its category is withheld, by whichever door it comes.
func TestAnImageOfAWithheldToolReachesNoDisk(t *testing.T) {
	const canary = "CANARY-of-an-image"
	item := `{"type":"image_generation_call","id":"ig_1","status":"completed","revised_prompt":"` + canary + `","result":"` +
		base64.StdEncoding.EncodeToString([]byte("\x89PNG\r\n\x1a\n"+canary)) + `"}`
	said := `{"type":"message","role":"user","content":"draw"},` + item + `,{"type":"message","role":"assistant","content":"done"}`
	for _, tt := range []struct {
		name    string
		options projection.Options
		body    string
		there   bool
	}{
		{"the server's category", projection.Options{Tools: []projection.Rule{{Match: "image_generation", Category: "files"}}}, `{"messages":[` + said + `]}`, false},
		{"the request's category", projection.Options{}, `{"tool_categories":{"image_generation":"wallet"},"messages":[` + said + `]}`, false},
		{"none", projection.Options{}, `{"messages":[` + said + `]}`, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			d := newDaemon(t, tt.options)
			want(t, d.post("ann", turns+"?format=responses", tt.body), 201, "")
			if tt.name != "the request's category" {
				want(t, d.post("ann", strings.Replace(turns, "/x/turns", "/y/import", 1)+"?format=responses", `{"input":[`+said+`]}`), 201, "")
			}
			for name, data := range d.disk.Files() {
				if got := bytes.Contains(data, []byte(canary)); got && !tt.there {
					t.Errorf("%s holds it: %q", name, data)
				}
			}
			page := d.get("ann", "/v1/conversations/x/messages").body
			if there := strings.Contains(page, `"media_type":"image/png"`); there != tt.there || !strings.Contains(page, "done") {
				t.Errorf("stored %s", page)
			}
		})
	}
}
