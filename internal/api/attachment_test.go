package api

import (
	"archive/tar"
	"encoding/base64"
	"fmt"
	"io"
	"strings"
	"testing"

	"historyd/internal/history"
	"historyd/internal/projection"
)

// withoutPicture is a conversation x whose picture has been lost.
func withoutPicture(t *testing.T, altered bool) *daemon {
	t.Helper()
	d := newDaemon(t, projection.Options{})
	data := base64.StdEncoding.EncodeToString(picture(1))
	want(t, d.post("ann", turns, `{"messages":[{"role":"user","content":[{"type":"text","text":"see"},{"type":"image","media_type":"image/png","data":"`+data+`"}]},{"role":"assistant","content":"yes"}]}`), 201, "")
	for name := range d.disk.Files() {
		switch {
		case !strings.Contains(name, "/attachments/"):
		case altered:
			d.disk.Corrupt(name, func(was []byte) []byte { return append(was[1:], '!') })
		default:
			must(t, d.disk.Remove(name))
		}
	}
	return d
}

// Whatever has no bytes where a message names an attachment says so as of other damage, and so does everything after it.
func TestALostAttachmentIsToldByWhatLacksIt(t *testing.T) {
	const told = `"damaged":{"places":1,"bytes":0,"lost":0,"attachments":1}`
	x := "/v1/conversations/x"
	hash := strings.TrimPrefix(history.AttachmentName(picture(1)), "sha256:")
	get := func(path string) func(d *daemon) string {
		return func(d *daemon) string { return d.get("ann", path).body }
	}
	for _, tt := range []struct {
		name   string
		lacks  func(d *daemon) string
		inside bool // it tells it itself
	}{
		{"replay in openai", get(x + "/replay?mode=full&format=openai"), true},
		{"replay in anthropic", get(x + "/replay?mode=full&format=anthropic"), true},
		{"exchange", func(d *daemon) string {
			return d.post("ann", x+"/replay", `{"mode":"full","format":"gemini"}`).body
		}, true},
		{"native", get(x + "/export"), true},
		{"tar", func(d *daemon) string {
			archive := tar.NewReader(strings.NewReader(d.get("ann", x+"/export?format=tar").body))
			_, err := archive.Next()
			must(t, err)
			document, err := io.ReadAll(archive)
			must(t, err)
			if h, err := archive.Next(); err != io.EOF {
				t.Errorf("behind the document stands %+v, %v", h, err)
			}
			return string(document)
		}, true},
		{"jsonl", get(x + "/export?format=jsonl"), false},
		{"openai", get(x + "/export?format=openai"), false},
		{"fork", func(d *daemon) string { return d.post("ann", x+"/fork", `{"to":"y"}`).body }, true},
	} {
		for _, altered := range []bool{false, true} {
			name := fmt.Sprintf("%s, altered %t", tt.name, altered)
			d := withoutPicture(t, altered)
			if got := d.get("ann", x).body; !strings.Contains(got, `"damaged":false`) {
				t.Errorf("%s: it is told before anybody has met it: %s", name, got)
			}
			got := strings.ReplaceAll(tt.lacks(d), `"damaged": `, `"damaged":`)
			if strings.Contains(got, told) != tt.inside {
				t.Errorf("%s: got %s", name, got)
			}
			for _, path := range []string{x, "/v1/conversations", x + "/messages", x + "/replay", x + "/replay?mode=full&format=openai", x + "/replay?mode=full&format=openai"} {
				if got := d.get("ann", path).body; !strings.Contains(got, told) {
					t.Errorf("%s: then %s is %s", name, path, got)
				}
			}
		}
	}
	for altered, code := range map[bool]string{false: "not_found", true: "damaged_transcript"} {
		d := withoutPicture(t, altered)
		for _, path := range []string{"/messages", "/replay", "/replay?mode=full"} { // which read no bytes
			d.get("ann", x+path)
		}
		if got := d.get("ann", x).body; !strings.Contains(got, `"damaged":false`) {
			t.Errorf("altered %t: after reading names alone: %s", altered, got)
		}
		status := map[bool]int{false: 404, true: 500}[altered]
		want(t, d.get("ann", x+"/attachments/"+hash), status, code)
		if got := d.get("ann", x).body; strings.Contains(got, told) != altered {
			t.Errorf("altered %t: after asking for it: %s", altered, got)
		}
	}
}

// A lost attachment is told until its bytes are brought again.
func TestAnAttachmentThatIsBroughtAgainIsNoDamage(t *testing.T) {
	for _, altered := range []bool{false, true} {
		d := withoutPicture(t, altered)
		full := "/v1/conversations/x/replay?mode=full&format=openai"
		if got := d.get("ann", full).body; !strings.Contains(got, `"damaged":`) {
			t.Fatalf("altered %t: got %s", altered, got)
		}
		data := base64.StdEncoding.EncodeToString(picture(1))
		want(t, d.post("ann", turns, `{"messages":[{"role":"user","content":[{"type":"image","media_type":"image/png","data":"`+data+`"}]}]}`), 201, "")
		for _, path := range []string{"/v1/conversations/x", full, "/v1/conversations/x/export"} {
			got := d.get("ann", path).body
			if strings.Contains(strings.ReplaceAll(got, `"damaged":false`, ""), `"damaged"`) || path != "/v1/conversations/x" && strings.Count(got, data) != 2 {
				t.Errorf("altered %t: %s is %s", altered, path, got)
			}
		}
	}
}
