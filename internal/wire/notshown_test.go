package wire

import (
	"strings"
	"testing"
)

// Where all of a user's message, or of a result, is withheld, every provider is told so in
// the same words; where something else is left there is nothing to tell.
func TestWhatIsWithheldWhollyIsTold(t *testing.T) {
	const other = `{"type":"opaque","provider":"p","data":{"type":"z"}}`
	result := func(content string) string {
		return callC + `,{"role":"tool","content":[{"type":"tool_result","call_id":"c","content":` + content + `}]}`
	}
	for _, tt := range []struct {
		name, native string
		told         int
	}{
		{"a result", saidX + "," + result("["+other+","+other+"]"), 1},
		{"a result with a text", saidX + "," + result("["+other+`,{"type":"text","text":"r"}]`), 0},
		{"an empty result", saidX + "," + result(`""`), 0},
		{"a result of nothing", saidX + "," + result(`[]`), 0},
		{"an error", saidX + "," + strings.Replace(result("["+other+"]"), `"call_id"`, `"is_error":true,"call_id"`, 1), 1},
		{"a message", `{"role":"user","content":[` + other + `,` + other + `]}`, 1},
		{"a message with a blank text", `{"role":"user","content":[` + other + `,{"type":"text","text":""}]}`, 1},
		{"a result with a blank text", saidX + "," + result("["+other+`,{"type":"text","text":""}]`), 1},
		{"a message with a text", `{"role":"user","content":[` + other + `,{"type":"text","text":"y"}]}`, 0},
		{"an answer", saidX + `,{"role":"assistant","content":[` + other + `]}`, 0},
	} {
		for _, f := range providerFormats() {
			t.Run(tt.name+"/"+string(f), func(t *testing.T) {
				out := shown(t, f, Show{Added: []Declaration{{Name: "f"}}}, tt.native)
				if got := strings.Count(string(out.Messages), notShown); got != tt.told {
					t.Errorf("told %d times, want %d, in\n%s", got, tt.told, out.Messages)
				}
				if want := int64(strings.Count(tt.native, other)); out.Report.WithheldOpaque != want {
					t.Errorf("withheld_opaque %d, want %d", out.Report.WithheldOpaque, want)
				}
			})
		}
	}
}
