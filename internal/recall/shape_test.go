package recall

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
)

// Each answer is given by a real server, on both transports.
func TestEveryShapeOfAnswer(t *testing.T) {
	text := func(texts ...string) string {
		var blocks []any
		for _, s := range texts {
			blocks = append(blocks, map[string]any{"type": "text", "text": s})
		}
		b, _ := json.Marshal(map[string]any{"content": blocks})
		return string(b)
	}
	structured := func(v string) string { return `{"content":[],"structuredContent":` + v + `}` }
	quoted := func(s string) string { b, _ := json.Marshal(s); return string(b) }
	const one = `{"title":"T","body":"B"}`

	type row struct{ name, result, want string }
	table := []row{
		{"an array in a text", text(`[` + one + `]`), "T=B"},
		{"white space around it", text("\n  [" + one + "]\n"), "T=B"},
		{"two texts with one hit each", text(`[`+one+`]`, `[{"body":"C"}]`), "T=B,=C"},
		{"a text that is no JSON beside one that is", text("Found 1 note:", `[`+one+`]`), "T=B"},
		{"a JSON string in a text", text(quoted(`[` + one + `]`)), "T=B"},
		{"a JSON string in a JSON string", text(quoted(quoted(`{"hits":[` + one + `]}`))), "T=B"},
		{"structured content", structured(`{"results":[` + one + `]}`), "T=B"},
		{"structured content that is a bare array", structured(`[` + one + `]`), "T=B"},
		{"structured content that is a JSON string", structured(quoted(`{"results":[` + one + `]}`)), "T=B"},
		{"a JSON string under a name", structured(`{"results":` + quoted(`[`+one+`]`) + `}`), "T=B"},
		{"structured content and the same as text", `{"content":[{"type":"text","text":` + quoted(`[`+one+`]`) +
			`}],"structuredContent":{"results":[` + one + `]}}`, "T=B"},
		{"structured content that holds nothing, and a text", `{"content":[{"type":"text","text":` + quoted(`[`+one+`]`) +
			`}],"structuredContent":{"count":1}}`, "T=B"},
		{"a result in a result", text(text(`[` + one + `]`)), "T=B"},
		{"the first list that is not empty", text(`{"results":[],"entries":[],"memories":[` + one + `],"hits":[{"body":"no"}]}`), "T=B"},
		{"a list of nothing usable before it", text(`{"results":[null,7,{}],"documents":[` + one + `]}`), "T=B"},
		{"an empty title before its source", text(`[{"title":" ","source":"S","name":"N","body":"B"}]`), "S=B"},
		{"no title", text(`[{"body":"B"}]`), "=B"},
		{"members of other types", text(`[{"title":7,"name":"N","body":null,"text":["x"],"content":{"a":1},"snippet":"B"}]`), "N=B"},
		{"names in another case", text(`[{"Title":"T","Body":"B"}]`), ""},
		{"a number as large as it likes", text(`[{"body":"B","id":1e400}]`), ""},
		{"plain text", text("You like tea."), ""},
		{"a JSON string of plain text", text(`"You like tea."`), ""},
		{"broken JSON", text(`[{"body":"B"`), ""},
		{"a number", text(`7`), ""},
		{"null", text(`null`), ""},
		{"an array of texts", text(`["B"]`), ""},
		{"a single hit without a list", text(one), ""},
		{"a list under an unknown name", text(`{"items":[` + one + `]}`), ""},
		{"a title without text", text(`[{"title":"T"}]`), ""},
		{"deeper than anybody nests", text(strings.Repeat(`{"results":`, 9) + `[` + one + `]` + strings.Repeat("}", 9)), ""},
		{"very deep", text(strings.Repeat("[", 100_000)), ""},
		{"an image", `{"content":[{"type":"image","mimeType":"image/png","data":"QUJD"}]}`, ""},
		{"no content", `{"content":[]}`, ""},
	}
	for _, name := range listNames {
		table = append(table, row{"an object with " + name, text(`{"` + name + `":[` + one + `],"total":1}`), "T=B"})
	}
	for _, name := range titleNames {
		table = append(table, row{"a title under " + name, text(`[{"` + name + `":"T","text":"B"}]`), "T=B"})
	}
	for _, name := range bodyNames {
		table = append(table, row{"a text under " + name, text(`[{"title":"T","` + name + `":"B"}]`), "T=B"})
	}

	p := newPlace(t)
	url, _ := p.listen("http", "127.0.0.1:0")
	for _, s := range []Server{
		{Name: "stdio", Tool: "other.find", Command: p.command("stdio")},
		{Name: "http", Tool: "other.find", URL: url},
	} {
		s.Shared, s.Arguments = true, map[string]any{"q": "{query}"}
		r := must(t, Options{MCP: []Server{s}})
		for _, tt := range table {
			t.Run(tt.name+" on "+s.Name, func(t *testing.T) {
				p.answer("other.find", tt.result)
				out := ask(t, r, question)
				var got []string
				for _, it := range out.Items {
					got = append(got, it.Title+"="+it.Body)
				}
				if g := strings.Join(got, ","); g != tt.want {
					t.Errorf("items of %.300s: got %q (%s), want %q", tt.result, g, statuses(out), tt.want)
				}
				status := fmt.Sprintf("%s ok %d", s.Name, len(out.Items))
				if tt.want == "" {
					status = s.Name + " empty 0"
				}
				wantStatuses(t, out, "local not_configured 0, "+status)
			})
		}
	}
}

func TestTheFloorOfAServer(t *testing.T) {
	p := newPlace(t)
	p.answer("rag.search", `{"content":[],"structuredContent":[
		{"text":"high","score":0.9},{"text":"low","score":0.2},{"text":"at it","similarity":0.5},{"text":"none"}]}`)
	s := rag(p)
	s.MinScore = 0.5
	out := ask(t, must(t, Options{MCP: []Server{s}}), question)
	if got, want := bodies(out), "high|at it|none"; got != want {
		t.Errorf("bodies: got %q, want %q", got, want)
	}
	if got := out.Items[0].Score; got != 0.9 {
		t.Errorf("score: got %v, want 0.9", got)
	}
}

func FuzzShapes(f *testing.F) {
	f.Add(`[{"title":"t","body":"b"}]`)
	f.Add(`{"results":"[{\"text\":\"x\"}]"}`)
	f.Add(`"\"[]\""`)
	f.Fuzz(func(t *testing.T, text string) {
		for _, h := range (shapes{}).text(text, maxWrapped) {
			if strings.TrimSpace(h.body) == "" {
				t.Errorf("%q: got a hit without text", text)
			}
		}
	})
}
