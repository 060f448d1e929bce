package api

import (
	"encoding/json/v2"
	"fmt"
	"strings"
	"sync"
	"testing"

	"historyd/internal/history"
	"historyd/internal/projection"
	"historyd/test/judge"
)

// Runs that share a conversation, clients that leave and programs that send late: whatever order calls and results are appended
// in, each provider is sent what it accepts, and all that was said.
func TestCallsAndResultsOfAnyOrderAreReplayed(t *testing.T) {
	user := func(text string) string { return fmt.Sprintf(`{"role":"user","content":%q}`, text) }
	call := func(text string, ids ...string) string {
		blocks := []string{}
		if text != "" {
			blocks = append(blocks, fmt.Sprintf(`{"type":"text","text":%q}`, text))
		}
		for _, id := range ids {
			blocks = append(blocks, fmt.Sprintf(`{"type":"tool_call","id":%q,"name":"f","arguments":{"q":"query %[1]s"}}`, id))
		}
		return `{"role":"assistant","content":[` + strings.Join(blocks, ",") + `]}`
	}
	result := func(id string) string {
		return fmt.Sprintf(`{"role":"tool","content":[{"type":"tool_result","call_id":%q,"content":"found %[1]s"}]}`, id)
	}
	const interrupted = "This call was interrupted"
	for _, tt := range []struct {
		name     string
		requests []string
		want     []string // in this order, each once
		report   string
	}{
		{"two runs that interleave", []string{user("asked") + "," + call("", "c1"), user("spoke between"), result("c1")},
			[]string{"asked", "query c1", "found c1", "spoke between"}, `{"moved_results":1}`},
		{"a client that left", []string{user("asked") + "," + call("", "c1"), user("go on")},
			[]string{"asked", "query c1", interrupted, "go on"}, `{"synthetic_results":1}`},
		{"three that were interrupted", []string{user("first") + "," + call("", "c1"), user("second") + "," + call("", "c2", "c3") + "," + result("c3"), user("third") + "," + call("", "c4"), result("c2"), user("fourth") + "," + call("", "c5")},
			[]string{"first", "query c1", "second", "query c2", "query c3", "found c2", "found c3", "third", "query c4", "fourth", "query c5"}, `{"moved_results":1,"synthetic_results":3}`},
		{"a result before its call", []string{user("asked"), result("c1"), call("", "c1"), user("more")},
			[]string{"asked", "query c1", "found c1", "more"}, `{"moved_results":1}`},
		{"a result of no call", []string{user("asked"), result("nope"), call("answered"), user("more")},
			[]string{"asked", "answered", "more"}, `{"dropped_orphans":1}`},
		{"results alone", []string{result("nope")}, nil, `{"dropped_orphans":1}`},
		{"calls in messages of their own", []string{user("asked"), call("", "c1"), call("", "c2"), result("c1"), result("c2")},
			[]string{"asked", "query c1", "query c2", "found c1", "found c2"}, `{"merged_calls":1}`},
		{"text beside calls", []string{user("asked"), call("let me see", "c1", "c2"), result("c1") + "," + result("c2"), call("so it is")},
			[]string{"asked", "let me see", "query c1", "query c2", "found c1", "found c2", "so it is"}, `{}`},
	} {
		d := newDaemon(t, projection.Options{UnknownTools: "keep"})
		for _, body := range tt.requests {
			want(t, d.post("ann", turns, `{"messages":[`+body+`]}`), 201, "")
		}
		for _, format := range providers {
			got := d.get("ann", fullOfX+"&format="+format)
			want(t, got, 200, "")
			r := as[fullReply](t, got)
			if why := judge.Check(format, r.Messages, r.System, r.Tools); len(why) > 0 && len(tt.want) > 0 {
				t.Errorf("%s, %s: %q\n%s", tt.name, format, why, got.body)
			}
			delete(r.Report, "merged") // in some formats a result is one message with what a user says
			report, err := json.Marshal(r.Report, json.Deterministic(true))
			must(t, err)
			if !inOrder(string(r.Messages), tt.want...) || strings.Contains(string(r.Messages), "nope") || string(report) != tt.report {
				t.Errorf("%s, %s: want %q and %s, got %s and %s", tt.name, format, tt.want, tt.report, report, r.Messages)
			}
			text := d.get("ann", replayOfX+"?format="+format)
			want(t, text, 200, "")
			if strings.Contains(text.body, "query") || strings.Contains(text.body, "found") || strings.Contains(text.body, "let me see") != (tt.name == "text beside calls") {
				t.Errorf("%s, %s: as text %s", tt.name, format, text.body)
			}
		}
	}
}

// Tools that run side by side each append a call and its result: all of them are there, no two mixed.
func TestRequestsOfManyClientsStandTogether(t *testing.T) {
	d := newDaemon(t, projection.Options{UnknownTools: "keep"})
	const clients, each = 8, 25
	var all sync.WaitGroup
	for c := range clients {
		all.Go(func() {
			for i := range each {
				id := fmt.Sprintf("call-%d-%d", c, i)
				body := fmt.Sprintf(`{"messages":[{"role":"assistant","content":[{"type":"tool_call","id":%q,"name":"f","arguments":{}}]},{"role":"tool","content":[{"type":"tool_result","call_id":%[1]q,"content":"found"}]}]}`, id)
				if got := d.post("ann", turns, body); got.status != 201 || as[appendReply](t, got).LastSeq != as[appendReply](t, got).FirstSeq+1 {
					t.Errorf("%s: %d %s", id, got.status, got.body)
				}
			}
		})
	}
	all.Wait()
	page := as[pageBody](t, d.get("ann", "/v1/conversations/x/messages?limit=1000"))
	met := map[string]bool{}
	for i, raw := range page.Data {
		m, err := history.ParseStored(raw)
		must(t, err)
		if m.Seq != int64(i+1) {
			t.Fatalf("message %d has seq %d", i+1, m.Seq)
		}
		if b := m.Content[0]; i%2 == 0 {
			met[b.ID] = true
		} else if before, err := history.ParseStored(page.Data[i-1]); err != nil || b.CallID == "" || b.CallID != before.Content[0].ID {
			t.Errorf("behind %s stands %s: %v", page.Data[i-1], raw, err)
		}
	}
	if len(met) != clients*each || len(page.Data) != 2*clients*each {
		t.Errorf("%d calls in %d messages, want %d", len(met), len(page.Data), clients*each)
	}
}

// Reasoning and what it led to leave a replay together, wherever a budget cuts.
func TestReasoningLeavesWithWhatItLedTo(t *testing.T) {
	d := newDaemon(t, projection.Options{UnknownTools: "keep"})
	var items []string
	for i := range 8 {
		items = append(items,
			fmt.Sprintf(`{"type":"message","role":"user","content":[{"type":"input_text","text":"question %d"}]}`, i),
			fmt.Sprintf(`{"type":"reasoning","id":"rs_a%d","summary":[],"encrypted_content":"e"}`, i),
			fmt.Sprintf(`{"type":"message","id":"msg_a%d","role":"assistant","status":"completed","content":[{"type":"output_text","text":"let me see %[1]d","annotations":[]}]}`, i),
			fmt.Sprintf(`{"type":"reasoning","id":"rs_b%d","summary":[],"encrypted_content":"e"}`, i),
			fmt.Sprintf(`{"type":"function_call","id":"fc_%d","call_id":"c%[1]d","name":"f","arguments":"{}","status":"completed"}`, i),
			fmt.Sprintf(`{"type":"function_call_output","call_id":"c%d","output":"found"}`, i),
			fmt.Sprintf(`{"type":"reasoning","id":"rs_c%d","summary":[],"encrypted_content":"e"}`, i),
			fmt.Sprintf(`{"type":"message","id":"msg_c%d","role":"assistant","status":"completed","content":[{"type":"output_text","text":"answer %[1]d","annotations":[]}]}`, i))
	}
	made := "[" + strings.Join(items, ",") + "]"
	want(t, d.post("ann", importToX+"?format=responses", made), 201, "")
	for _, mode := range []string{"text", "full"} {
		all, _ := replayed(d, "ann", "?format=responses&mode="+mode, "")
		lengths := map[int]bool{}
		for budget := int64(1); budget <= all.Tokens; budget += max(1, all.Tokens/40) {
			r := as[fullReply](t, d.get("ann", fmt.Sprintf("%s?format=responses&mode=%s&max_tokens=%d", replayOfX, mode, budget)))
			if why := append(judge.Check("responses", r.Messages, r.System, r.Tools), judge.Parted([]byte(made), r.Messages)...); len(why) > 0 {
				t.Errorf("mode %s, %d of %d tokens: %q\n%s", mode, budget, all.Tokens, why, r.Messages)
			}
			for i := range 8 {
				parts := []string{fmt.Sprintf(`"rs_a%d"`, i), fmt.Sprint("let me see ", i), fmt.Sprintf(`"rs_b%d"`, i), fmt.Sprintf(`"c%d"`, i), fmt.Sprintf(`"rs_c%d"`, i), fmt.Sprint("answer ", i)}
				for _, p := range parts {
					if there := strings.Contains(string(r.Messages), p); mode == "full" && there != strings.Contains(string(r.Messages), fmt.Sprint("question ", i)) || mode == "text" && there && p[0] == '"' {
						t.Fatalf("mode %s, %d of %d tokens: %s is there: %t, in %s", mode, budget, all.Tokens, p, there, r.Messages)
					}
				}
			}
			lengths[len(r.Messages)] = true
		}
		if len(lengths) < 4 {
			t.Errorf("mode %s: the budgets cut in %d places", mode, len(lengths))
		}
	}
}
