package fault

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"math/rand/v2"
	"net/http"
)

// asked are the bodies of a replay of everything, for a caller who may call a tool of the record.
var asked = []object{
	{"mode": "full", "format": "openai", "granted": []string{"pay"}, "tools": []object{
		{"type": "function", "function": object{"name": "look", "parameters": object{"type": "object"}}},
	}},
	{"mode": "full", "format": "anthropic", "role": "reviewer", "max_tokens": 4000, "tools": []object{
		{"name": "look", "input_schema": object{"type": "object"}},
	}},
}

// read does what changes nothing, and looks whether a withheld value is in it.
func (d *driver) read(rng *rand.Rand, c *conversation) {
	at := []string{"/v1/conversations/" + c.name, c.path()}[rng.IntN(2)]
	picture := batch{nameOf(rng.Int64N(d.count.Load()+10)/10*10 + 7), 1}
	paths := []string{
		at + "/replay", at + "/replay?mode=full&format=anthropic",
		at + "/messages?limit=1000", at + "/messages?limit=3&order=desc",
		at + "/export", at + "/export?format=openai", at + "/export?format=tar", at + pathOf(pictures(picture)[1]),
		at, "/v1/conversations", "/v1/search?q=" + nameOf(rng.Int64N(d.count.Load()+1)),
		"/v1/whoami", "/healthz", "/readyz", "/metrics", "/openapi.json",
	}
	path := paths[rng.IntN(len(paths))]
	d.reads("GET", path, d.s.try("GET", path, nil))
	switch rng.IntN(6) {
	case 0:
		d.reads("POST", "recall", d.s.try("POST", at+"/recall", []byte(`{"query":"what was the picture of"}`)))
	case 1:
		d.reads("POST", "replay", d.s.try("POST", at+"/replay", encode(d.t, asked[rng.IntN(len(asked))])))
	}
}

func (d *driver) reads(method, path string, a answer) {
	switch a.status {
	case 0, http.StatusOK, http.StatusNotFound, http.StatusServiceUnavailable, http.StatusConflict:
	default:
		d.t.Errorf("%s: %s %s: %d %.300s", d.what, method, path, a.status, a.body)
	}
	if bytes.Contains(a.body, []byte(canary)) {
		d.t.Errorf("%s: %s %s: a withheld value is in the answer: %.300s", d.what, method, path, a.body)
	}
}

// pathOf is where bytes are below a conversation that holds them.
func pathOf(data string) string {
	sum := sha256.Sum256([]byte(data))
	return "/attachments/" + hex.EncodeToString(sum[:])
}

// attachments wants the bytes of all that is there.
func (d *driver) attachments(c *conversation, found []placed) error {
	seen := map[string]bool{}
	for _, p := range found {
		for _, picture := range pictures(p.batch) {
			if seen[picture] {
				continue
			}
			seen[picture] = true
			a := d.s.try("GET", c.path()+pathOf(picture), nil)
			if a.status != http.StatusOK || string(a.body) != picture || a.header.Get("Content-Type") != "image/png" {
				return fmt.Errorf("lost: %q of %s is %d %.300s", picture, p.name, a.status, a.body)
			}
		}
	}
	return nil
}
