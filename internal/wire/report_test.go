package wire

import (
	"testing"

	"historyd/internal/history"
)

// Whatever the format, what is withheld is told, and told alike.
func TestWithheldSignaturesCountAlikeInAllFormats(t *testing.T) {
	const call, result = `"functionCall":{"id":"c","name":"f","args":{}}`, `{"role":"user","parts":[{"functionResponse":{"id":"c","name":"f","response":{"result":"r"}}}]}`
	for _, tt := range []struct {
		name     string
		from     Format
		provider string
		messages string
		want     int64
	}{
		{"none", Gemini, "google", `[{"role":"model","parts":[{"text":"x"},{` + call + `}]},` + result + `]`, 0},
		{"of a call", Gemini, "google", `[{"role":"model","parts":[{` + call + `,"thoughtSignature":"AP/Y"}]},` + result + `]`, 1},
		{"of a text", Gemini, "google", `[{"role":"model","parts":[{"text":"x","thoughtSignature":"AP/Y"}]}]`, 1},
		{"of a text among texts", Gemini, "google", `[{"role":"model","parts":[{"text":"x"},{"text":"y","thoughtSignature":"AP/Y"},{"text":"z","thoughtSignature":"AP/Y"}]}]`, 2},
		{"of no text", Gemini, "google", `[{"role":"model","parts":[{"text":"x"},{"text":"","thoughtSignature":"AP/Y"}]}]`, 1},
		{"of a picture", Gemini, "google", `[{"role":"model","parts":[{"inlineData":{"mimeType":"image/png","data":"iVBORw0KGgo="},"thoughtSignature":"AP/Y"}]}]`, 1},
		{"of a text and a call", Gemini, "google", `[{"role":"model","parts":[{"text":"x","thoughtSignature":"AP/Y"},{` + call + `,"thoughtSignature":"AP/Y"}]},` + result + `]`, 2},
		{"of a call of a vendor of Chat Completions", OpenAI, "vendor", `[{"role":"assistant","content":null,"tool_calls":[{"id":"c","type":"function","function":{"name":"f","arguments":"{}"},"extra_content":{"google":{"thought_signature":"AP/Y"}}}]},
			{"role":"tool","tool_call_id":"c","content":"r"}]`, 1},
		{"of an answer of a vendor of Chat Completions", OpenAI, "vendor", `[{"role":"assistant","content":"x","reasoning_details":[{"type":"reasoning.encrypted","data":"AP/Y"}]}]`, 1},
	} {
		for _, to := range []Format{OpenAI, Responses, Anthropic, Gemini} {
			msgs := decodeAppend(t, tt.from, tt.messages)
			for i := range msgs {
				if msgs[i].Role == history.Assistant {
					msgs[i].Provider, msgs[i].Model = tt.provider, "m1"
				}
			}
			if got := Render(to, Show{Messages: msgs, Provider: "other", Model: "m2"}).Report.WithheldSignatures; got != tt.want {
				t.Errorf("%s, in %s: %d signatures are told of, want %d", tt.name, to, got, tt.want)
			}
		}
	}
}
