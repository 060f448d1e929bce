package wire

import (
	"fmt"
	"regexp"
	"strings"
	"testing"
)

// A provider gets the results of one answer's calls in the order of these, in whichever
// they came and however they are spread over messages.
func TestResultsAreInTheOrderOfTheirCalls(t *testing.T) {
	const calls = `{"role":"assistant","content":[{"type":"tool_call","id":"a","name":"f","arguments":{}},{"type":"text","text":"y"},` +
		`{"type":"tool_call","id":"b","name":"f","arguments":{}},{"type":"tool_call","id":"a","name":"f","arguments":{}}]}`
	const other = `{"type":"opaque","provider":"p","data":{"type":"z"}}`
	result := func(id, text string) string {
		return `{"type":"tool_result","call_id":"` + id + `","content":"` + text + `"}`
	}
	for _, tt := range []struct {
		name    string
		results []string // of messages
	}{
		{"as called", []string{result("a", "R1"), result("b", "R2"), result("a", "R3")}},
		{"backwards", []string{result("b", "R2"), result("a", "R1"), result("a", "R3")}},
		{"in one message", []string{result("b", "R2") + "," + result("a", "R1") + "," + result("a", "R3")}},
		{"in two", []string{result("b", "R2") + "," + result("a", "R1"), result("a", "R3")}},
		{"beside something else", []string{other + "," + result("b", "R2") + "," + other + "," + result("a", "R1") + "," + result("a", "R3")}},
	} {
		native := `{"role":"user","content":"x"},` + calls
		for _, r := range tt.results {
			native += `,{"role":"tool","content":[` + r + `]}`
		}
		for _, f := range providerFormats() {
			t.Run(fmt.Sprintf("%s/%s", tt.name, f), func(t *testing.T) {
				out := shown(t, f, Show{Added: []Declaration{{Name: "f"}}}, native)
				if got := strings.Join(regexp.MustCompile(`R\d`).FindAllString(string(out.Messages), -1), " "); got != "R1 R2 R3" {
					t.Errorf("results %s, want R1 R2 R3, in\n%s", got, out.Messages)
				}
				for _, why := range refusals(f, out) {
					t.Errorf("refused: %s", why)
				}
			})
		}
	}
}
