package api

import (
	"encoding/json/v2"
	"net/http"
	"slices"
	"strings"
	"testing"

	"historyd/internal/history"
	"historyd/internal/projection"
)

// Other programs link their messages to each other. Such links are kept and not followed: a document is read in its order,
// whatever they say.
func TestLinksBetweenMessagesAreKeptAndNotFollowed(t *testing.T) {
	d := newDaemon(t, projection.Options{})
	lines := []string{
		`{"role":"user","uuid":"a","parentUuid":"b","content":"a cycle"}`,
		`{"role":"assistant","uuid":"b","parentUuid":"a","content":"of two"}`,
		`{"role":"user","uuid":"c","parentUuid":"c","content":"its own parent"}`,
		`{"role":"assistant","uuid":"d","parentUuid":"nowhere","content":"no parent"}`,
		`{"role":"user","uuid":"a","parentUuid":null,"content":"a uuid again"}`,
		`{"role":"assistant","uuid":"e","leafUuid":"zzz","isSidechain":true,"content":"a side chain"}`,
	}
	ndjson := http.Header{"Content-Type": {"application/x-ndjson"}}
	for _, format := range []string{"openai", "anthropic", "jsonl"} {
		to := "/v1/conversations/" + format
		got := d.send(request{method: "POST", path: to + "/import?format=" + format, caller: "ann", body: strings.Join(lines, "\n"), header: ndjson})
		want(t, got, 201, "")
		page := as[pageBody](t, d.get("ann", to+"/messages"))
		var texts []string
		for i, raw := range page.Data {
			m, err := history.ParseStored(raw)
			must(t, err)
			if m.Seq != int64(i+1) || !strings.Contains(string(raw), `"uuid":"`) {
				t.Errorf("%s: message %d is %s", format, i+1, raw)
			}
			texts = append(texts, m.Content[0].Text)
		}
		if want := []string{"a cycle", "of two", "its own parent", "no parent", "a uuid again", "a side chain"}; !slices.Equal(texts, want) {
			t.Errorf("%s: %q, want %q", format, texts, want)
		}
		if format == "jsonl" {
			continue
		}
		var back []map[string]any
		must(t, json.Unmarshal([]byte(d.get("ann", to+"/export?format="+format).body), &back))
		if len(back) != len(lines) || back[0]["parentUuid"] != "b" || back[5]["isSidechain"] != true {
			t.Errorf("%s: exported are %v", format, back)
		}
	}
}

// What is no history of a known shape is refused with all that is wrong, and nothing is done: neither are parts of it taken,
// nor what is there replaced or cleared.
func TestForeignDocumentsAreRefusedWhole(t *testing.T) {
	d := newDaemon(t, projection.Options{})
	d.say("ann", "x", "stays")
	before := d.get("ann", "/v1/conversations/x/export").body
	ndjson := http.Header{"Content-Type": {"application/x-ndjson"}}
	for _, tt := range []struct {
		name, query, body string
		header            http.Header
		status            int
		paths             []string // of the faults
	}{
		{"a tree of nodes", "", `{"title":"t","mapping":{"c":{"parent":"b"},"b":{"parent":null}}}`, nil, 422, []string{"", "", "version", "type", "messages"}},
		{"trees of nodes", "", `[{"title":"t","mapping":{}}]`, nil, 422, []string{""}},
		{"a tree as a provider's", "&format=openai", `{"title":"t","mapping":{}}`, nil, 422, []string{"messages"}},
		{"messages inside of envelopes", "&format=anthropic", `{"type":"user","message":{"role":"user","content":"x"}}`, ndjson, 422, []string{"messages[0].role", "messages[0].content"}},
		{"a control record that names nothing here", "&format=anthropic", `{"role":"user","content":"x"}` + "\n" + `{"type":"clear","target":"zzz"}`, ndjson, 422, []string{"messages[1].role", "messages[1].content"}},
		{"a third record that is malformed, and a fifth", "&format=openai", `[{"role":"user","content":"1"},{"role":"user","content":"2"},{"role":"user"},{"role":"user","content":"4"},{"role":"king","content":"5"}]`, nil, 422, []string{"messages[2].content", "messages[4].role"}},
		{"a line that is cut", "&format=openai", `{"role":"user","content":"1"}` + "\n" + `{"role":"user","con`, ndjson, 400, []string{"messages[1]"}},
		{"an array that is cut", "&format=openai", `[{"role":"user","content":"1"},`, nil, 400, []string{"messages[1]"}},
	} {
		for _, mode := range []string{"append", "replace"} {
			got := d.send(request{method: "POST", path: importToX + "?mode=" + mode + tt.query, caller: "ann", body: tt.body, header: tt.header})
			code := map[int]string{400: "invalid_json", 422: "invalid_history"}[tt.status]
			want(t, got, tt.status, code)
			var paths []string
			for _, f := range got.problem(t).Errors {
				paths = append(paths, f.Path)
			}
			if !slices.Equal(paths, tt.paths) {
				t.Errorf("%s: faults at %q, want %q", tt.name, paths, tt.paths)
			}
			if now := d.get("ann", "/v1/conversations/x/export").body; now != before {
				t.Fatalf("%s, mode %s: the conversation is now %s", tt.name, mode, now)
			}
		}
	}
}

// A document that is cut is none, wherever that was, and what is there stays.
func TestADocumentThatIsCutIsRefused(t *testing.T) {
	d := newDaemon(t, projection.Options{UnknownTools: "keep"})
	want(t, d.post("ann", turns, `{"messages":[{"role":"user","content":"é🎉"},`+callOf("native", `{"a":[1.0]}`)+`,{"role":"tool","content":[{"type":"tool_result","call_id":"c","content":"r"}]}]}`), 201, "")
	before := d.get("ann", "/v1/conversations/x/export").body
	for _, format := range everyFormat {
		whole := strings.TrimRight(d.get("ann", "/v1/conversations/x/export?format="+format).body, "\n")
		for n := 1; n < len(whole); n++ {
			if got := d.post("ann", importToX+"?mode=replace&format="+format, whole[:n]); got.status != 400 && got.status != 422 {
				t.Fatalf("%s cut at %d: %d %s", format, n, got.status, got.body)
			}
		}
		if now := d.get("ann", "/v1/conversations/x/export").body; now != before {
			t.Fatalf("%s: the conversation is now %s", format, now)
		}
	}
}
