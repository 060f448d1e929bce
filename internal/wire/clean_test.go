package wire

import (
	"encoding/json/jsontext"
	"strings"
	"testing"

	"historyd/internal/history"
	"historyd/internal/strictjson"
)

func TestNamesThatBecomeOneStandOnce(t *testing.T) {
	const twice = `{"a\u0000":1,"a` + "\uFFFD" + `":2,"b":[{"c":"\u0000"}]}`
	const once = `{"a` + "\uFFFD" + `":1,"b":[{"c":"` + "\uFFFD" + `"}]}`
	for _, tt := range []struct{ in, want string }{{twice, once}, {"[" + twice + "]", "[" + once + "]"}} {
		var r Report
		if got := cleanRaw(jsontext.Value(tt.in), &r); string(got) != tt.want || r.ReplacedCharacters != 1 {
			t.Errorf("cleanRaw(%s) = %s with %d replaced, want %s with 1", tt.in, got, r.ReplacedCharacters, tt.want)
		}
	}
	for _, f := range providerFormats() {
		provider := codecs[f].provider()
		msgs := calling("computer")
		msgs[1].Provider, msgs[1].Model = provider, "m"
		call, result := &msgs[1].Content[0], &msgs[2].Content[0]
		call.Arguments = jsontext.Value(`{"action":{"type":"click",` + twice[1:] + `,"actions":[{"type":"wait",` + twice[1:] + `]}`)
		call.Extra = jsontext.Value(`{"type":"computer_call","id":"cu_1","action":true,"pending_safety_checks":[{"id":"s",` + twice[1:] + `]}`)
		result.Plain, result.Content = false, []history.Block{{
			Type: history.ImageBlock, URL: "https://example.com/a.png", Extra: jsontext.Value(`{"type":"computer_screenshot"}`),
		}}
		msgs[1].Content = append(msgs[1].Content,
			history.Block{Type: history.TextBlock, Text: "x", Extra: jsontext.Value(`{"citations":[` + twice + `],"annotations":[{"type":"t",` + twice[1:] + `]}`)},
			history.Block{Type: history.OpaqueBlock, Provider: provider, Opaque: jsontext.Value(`{"type":"new",` + twice[1:])})
		out := Render(f, Show{Messages: msgs, Model: "m", Tools: jsontext.Value(`[{"type":"computer"}]`)})
		if err := strictjson.Check([]byte("[" + string(out.Messages) + "]")); err != nil {
			t.Errorf("%s: %v: %s", f, err, out.Messages)
		}
		if f == Responses && !strings.Contains(string(out.Messages), `"actions":[`) {
			t.Errorf("%s: what is to be done is not in its own type: %s", f, out.Messages)
		}
	}
}
