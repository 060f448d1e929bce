package wire

import (
	"fmt"
	"strings"
	"testing"
)

// TestManyCallsStandInSeveralMessages has more calls in an answer than a message of Chat Completions holds: with results one
// by one, in one message, and of calls that share an id.
func TestManyCallsStandInSeveralMessages(t *testing.T) {
	for _, n := range []int{maxCalls, maxCalls + 1, 3*maxCalls + 1} {
		for _, way := range []string{"one by one", "together", "with one id"} {
			var calls, results, each []string
			for i := range n {
				id := fmt.Sprint("c", i)
				if way == "with one id" {
					id = "c"
				}
				calls = append(calls, fmt.Sprintf(`{"type":"tool_call","id":%q,"name":"f","arguments":{"n":%d}}`, id, i))
				results = append(results, fmt.Sprintf(`{"type":"tool_result","call_id":%q,"content":"r%d."}`, id, i))
				each = append(each, `{"role":"tool","content":[`+results[i]+`]}`)
			}
			native := saidX + `,{"role":"assistant","content":[{"type":"text","text":"before"},` + strings.Join(calls, ",") + `,{"type":"text","text":"after"}]},`
			if way == "together" {
				native += `{"role":"tool","content":[` + strings.Join(results, ",") + `]}`
			} else {
				native += strings.Join(each, ",")
			}
			for _, f := range providerFormats() {
				out := string(shown(t, f, Show{Added: []Declaration{{Name: "f"}}}, native).Messages)
				if got := strings.Count(out, `"assistant","content"`); f == OpenAI && got != (n+maxCalls-1)/maxCalls {
					t.Errorf("%d calls, %s: %d messages of the assistant", n, way, got)
				}
				for at, i := 0, 0; i < n; i++ {
					next := strings.Index(out[at:], fmt.Sprintf("r%d.", i))
					if next < 0 {
						t.Fatalf("%s, %d calls, %s: result %d is not behind the one before", f, n, way, i)
					}
					at += next
				}
				if strings.Count(out, "before") != 1 || strings.Count(out, "after") != 1 {
					t.Errorf("%s, %d calls, %s: the texts are not there once", f, n, way)
				}
			}
		}
	}
}
