package attack

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
)

// TestNothingIsForWebPages goes through what a browser says of the page that asks. Sec-Fetch-Site is absent in programs
// and old browsers; Origin in programs, and in what a page reads from its own server.
func TestNothingIsForWebPages(t *testing.T) {
	t.Parallel()
	d := newTarget(t, nil)
	unharmed := d.bob.unharmed()
	_, port, _ := strings.Cut(d.addr, ":")
	origins := map[string]bool{
		"": true, "http://" + d.addr: true, "http://localhost:" + port: true,
		"null": false, "http://evil.example": false, "http://evil.example:" + port: false, "http://localhost": false, "http://127.0.0.1:1": false, "http://" + d.addr + ".evil.example": false,
		"http://" + d.addr + "@evil.example": false, "HTTP://" + d.addr: false, "file://": false, "moz-extension://x": false, "*": false, " ": false, d.addr: false, "http://" + d.addr + ", http://evil.example": false,
	}
	sites := map[string]bool{"": true, "none": true, "same-origin": true, "same-site": false, "cross-site": false, "Same-Origin": false, "x": false}
	types := map[string]bool{
		"application/json": true, "application/json; charset=utf-8": true, "APPLICATION/JSON": true,
		"": false, "text/plain": false, "application/x-www-form-urlencoded": false, "multipart/form-data; boundary=x": false, "application/json; charset=latin1": false, "text/json": false, "text/plain; application/json": false, "application/json, text/plain": false,
	}
	n := 0
	for origin, goodOrigin := range origins {
		for site, goodSite := range sites {
			w := d.dial()
			ask := func(method, path, kind string) answer {
				n++
				var head strings.Builder
				for name, text := range map[string]string{"Origin": origin, "Sec-Fetch-Site": site, "Content-Type": kind} {
					if text != "" && !(text == " " && name != "Origin") {
						fmt.Fprintf(&head, "%s: %s\r\n", name, text)
					}
				}
				_, _ = fmt.Fprintf(w.conn, "%s %s HTTP/1.1\r\nHost: %s\r\nAuthorization: Bearer %s\r\n%sAccess-Control-Request-Method: POST\r\nAccess-Control-Request-Headers: authorization\r\nSec-Fetch-Mode: cors\r\nContent-Length: 2\r\n\r\n{}",
					method, path, d.addr, d.mallory.token, head.String())
				a, err := w.next(method)
				if err != nil {
					t.Fatalf("Origin %q, Sec-Fetch-Site %q, %s %s: %v", origin, site, method, path, err)
				}
				for name := range a.header {
					if strings.HasPrefix(name, "Access-Control-") || strings.HasPrefix(name, "Cross-Origin-") || name == "Set-Cookie" || name == "Location" {
						t.Errorf("Origin %q, Sec-Fetch-Site %q, %s %s: header %s", origin, site, method, path, name)
					}
				}
				return a
			}
			for _, method := range []string{"GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "PATCH"} {
				for _, path := range []string{"/v1/whoami", "/v1/conversations/x", "/v1/conversations/x/turns", "/healthz", "/metrics", "/openapi.json", "/nowhere"} {
					if a := ask(method, path, "application/json"); (a.status == http.StatusForbidden) == (goodOrigin && goodSite) {
						t.Errorf("Origin %q, Sec-Fetch-Site %q, %s %s: %d %s", origin, site, method, path, a.status, a.body)
					}
				}
			}
			for kind, goodType := range types {
				for _, path := range []string{"turns", "import", "replay", "recall", "fork", "rewind"} {
					want := "unsupported_media_type"
					if !goodOrigin || !goodSite {
						want = "forbidden_origin"
					}
					if a := ask("POST", "/v1/conversations/x/"+path, kind); (a.code() == want) == (want == "unsupported_media_type" && goodType) {
						t.Errorf("Origin %q, Sec-Fetch-Site %q, type %q, %s: %d %s", origin, site, kind, path, a.status, a.body)
					}
				}
			}
			_ = w.conn.Close()
		}
	}
	t.Logf("%d requests", n)
	unharmed()
}
