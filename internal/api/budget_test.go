package api

import (
	"encoding/json/jsontext"
	"encoding/json/v2"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"historyd/internal/history"
	"historyd/internal/projection"
)

var allFormats = []string{"native", "openai", "anthropic", "responses", "gemini"}

type budgeted struct {
	Messages []jsontext.Value `json:"messages"`
	Tokens   int64            `json:"estimated_tokens"`
	Report   struct {
		DroppedTurns int64 `json:"dropped_turns"`
		OverBudget   bool  `json:"over_budget"`
	} `json:"report"`
}

// replayed asks with a body, if there is one.
func replayed(d *daemon, caller, query, body string) (b budgeted, whole string) {
	d.t.Helper()
	method := http.MethodGet
	if body != "" {
		method = http.MethodPost
	}
	whole = d.fetch(caller, method, replayOfX+query, body)
	must(d.t, json.Unmarshal([]byte(whole), &b))
	return b, whole
}

func TestTheNewestTurnStaysWhateverTheBudget(t *testing.T) {
	d := newDaemon(t, projection.Options{UnknownTools: "keep"})
	newest := "newest " + strings.Repeat("word ", 30_000)
	for _, caller := range []string{"ann", "mesh-ann"} {
		for i := range 3 {
			d.say(caller, "x", fmt.Sprint("older ", i))
		}
		want(t, d.post(caller, turns, `{"messages":[{"role":"user","content":`+string(history.AppendString(nil, newest))+`}]}`), 201, "")
		for _, format := range allFormats {
			for _, mode := range []string{"text", "full"} {
				query := "?format=" + format + "&mode=" + mode
				all, unbounded := replayed(d, caller, query, "")
				for _, max := range []int64{1, 2, 1000, all.Tokens - 1} {
					got, body := replayed(d, caller, fmt.Sprintf("%s&max_tokens=%d", query, max), "")
					over := max < all.Tokens-1
					if strings.Contains(body, "older") || !strings.Contains(body, newest) || got.Report.OverBudget != over || got.Report.DroppedTurns == 0 || got.Tokens > max != over {
						t.Errorf("%s, %s, max %d: %d messages, %d tokens, %+v", caller, query, max, len(got.Messages), got.Tokens, got.Report)
					}
				}
				for _, max := range []int64{all.Tokens, all.Tokens + 1, 1 << 62, 1<<63 - 1} {
					if _, got := replayed(d, caller, fmt.Sprintf("%s&max_tokens=%d", query, max), ""); got != unbounded {
						t.Errorf("%s, %s, max %d: %.200s, want what there is without a budget", caller, query, max, got)
					}
				}
			}
		}
	}
}

func TestWhatABudgetCounts(t *testing.T) {
	d := newDaemon(t, projection.Options{UnknownTools: "keep"})
	d.say("ann", "x", "hello")
	tokens := func(query, body string) int64 { b, _ := replayed(d, "ann", query, body); return b.Tokens }
	text, full := tokens("", ""), tokens("?mode=full", "")
	said := func(name, content string, least, most, inFull int64) {
		t.Helper()
		want(t, d.post("ann", turns, `{"messages":[{"role":"user","content":`+content+`}]}`), 201, "")
		if now := tokens("", ""); now < text+least || now > text+most {
			t.Errorf("%s: %d more tokens in mode text, want %d to %d", name, now-text, least, most)
		}
		if now := tokens("?mode=full", ""); now < full+least+inFull || now > full+most+inFull {
			t.Errorf("%s: %d more tokens in mode full, want %d to %d", name, now-full, least+inFull, most+inFull)
		}
		text, full = tokens("", ""), tokens("?mode=full", "")
	}
	said("ideographs", string(history.AppendString(nil, strings.Repeat("漢", 1000))), 700, 1500, 0)
	said("a picture", `[{"type":"text","text":"see"},`+pixel+`]`, 5, 5, 1600)
	said("a document by its URL", `[{"type":"text","text":"see"},{"type":"document","media_type":"application/pdf","url":"https://e.example/x"}]`, 5, 5, 3000)
	const schema = `{"type":"object","properties":{"a_property":{"type":"string","description":"what it is"}}}`
	tool := `{"type":"function","function":{"name":"search","description":"` + strings.Repeat("what it does ", 50) + `","parameters":` + schema + `}}`
	with := tokens("", `{"mode":"full","format":"openai","tools":[`+tool+`]}`)
	if least, most := int64(len(tool)/8), int64(len(tool)/2); with < full+least || with > full+most {
		t.Errorf("a tool of %d bytes: %d more tokens", len(tool), with-full)
	}
	if got := tokens("", `{"mode":"full","format":"openai","granted":["one","two"]}`); got < full+20 || got > full+100 {
		t.Errorf("two granted tools: %d more tokens", got-full)
	}
	if got, _ := replayed(d, "ann", "", fmt.Sprintf(`{"mode":"full","format":"openai","max_tokens":%d,"tools":[%s]}`, with-1, tool)); got.Report.DroppedTurns == 0 || got.Tokens >= with {
		t.Errorf("a budget without room for the tool: %+v, %d tokens", got.Report, got.Tokens)
	}
}

// A client may report what it likes: that bends an estimate by half or by twice.
func TestReportedUsageCannotBendABudgetWithoutBounds(t *testing.T) {
	plain := int64(0)
	for _, usage := range []string{"", `{"output_tokens":1}`, `{"output_tokens":1000000000000000000}`, `{"output_tokens":0}`, `{"output_tokens":-5}`, `{"output_tokens":1e300}`,
		`{"completion_tokens":9223372036854775807}`, `{"output_tokens":null}`, `{"output_tokens":8000}`, `{"output_tokens":70000}`, `{"candidatesTokenCount":6000}`} {
		d := newDaemon(t, projection.Options{})
		message := `{"role":"user","content":"go"},{"role":"assistant","content":"` + strings.Repeat("word ", 20_000) + `"`
		if usage != "" {
			message += `,"usage":` + usage
		}
		want(t, d.post("ann", turns, `{"messages":[`+message+`},{"role":"user","content":"`+strings.Repeat("and more ", 1000)+`"}]}`), 201, "")
		got, _ := replayed(d, "ann", "", "")
		if plain == 0 {
			plain = got.Tokens
		}
		if got.Tokens < plain/2 || got.Tokens > 2*plain {
			t.Errorf("usage %s: %d tokens, without it %d", usage, got.Tokens, plain)
		}
		if tight, _ := replayed(d, "ann", "?max_tokens=100", ""); !tight.Report.OverBudget {
			t.Errorf("usage %s: 1,000 words are said to fit into 100 tokens", usage)
		}
	}
}
