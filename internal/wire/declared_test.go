package wire

import (
	"encoding/json/jsontext"
	"fmt"
	"strings"
	"testing"

	"historyd/internal/history"
	"historyd/internal/strictjson"
)

// declarationOf is how a request of each format declares a tool.
var declarationOf = map[Format]string{
	OpenAI:    `{"type":"function","function":{"name":%q,"parameters":{"type":"object"}}}`,
	Anthropic: `{"name":%q,"input_schema":{"type":"object"}}`,
	Responses: `{"type":"function","name":%q,"parameters":{"type":"object"}}`,
	Gemini:    `{"functionDeclarations":[{"name":"other"},{"name":%q}]}`,
}

// calling is a history that calls tools of those names.
func calling(names ...string) []history.Message {
	var msgs []history.Message
	for i, name := range names {
		id := fmt.Sprint("c", i)
		msgs = append(msgs,
			history.Message{Role: history.User, Content: []history.Block{history.Text("x")}},
			history.Message{Role: history.Assistant, Content: []history.Block{{Type: history.ToolCall, ID: id, Name: name, Arguments: []byte("{}")}}},
			history.Message{Role: history.Tool, Content: []history.Block{{Type: history.ToolResult, CallID: id, Plain: true, Content: []history.Block{history.Text("r")}}}})
	}
	return msgs
}

func TestAToolIsDeclaredOnceUnderTheNameThatItHasThere(t *testing.T) {
	const refusal = "Not callable."
	for _, f := range providerFormats() {
		mapped := ""
		for name := range Render(f, Show{Messages: calling("find.me")}).Names {
			mapped = name
		}
		own := fmt.Sprintf(declarationOf[f], mapped)
		for _, tt := range []struct {
			name, tools string
			added       []Declaration
			count       int
			refused     string
		}{
			{"the request declares the mapped name", "[" + own + "]", []Declaration{{Name: "find.me", Refusal: refusal}}, 1, ""},
			{"so it does, and the tool is granted", "[" + own + "]", []Declaration{{Name: "find.me"}}, 1, ""},
			{"the request declares nothing", "", []Declaration{{Name: "find.me", Refusal: refusal}}, 1, mapped},
			{"the request has a name twice", "[" + own + "," + own + "]", nil, 2, ""},
			{"the record has both names", "", []Declaration{{Name: "find.me", Refusal: refusal}, {Name: mapped, Refusal: refusal}}, 1, mapped},
			{"the record has both names, one granted", "", []Declaration{{Name: "find.me", Refusal: refusal}, {Name: mapped}}, 1, ""},
		} {
			t.Run(string(f)+"/"+tt.name, func(t *testing.T) {
				out := Render(f, Show{Messages: calling("find.me"), Tools: jsontext.Value(tt.tools), Added: tt.added})
				if n := strings.Count(string(out.Tools), `"`+mapped+`"`); n != tt.count {
					t.Errorf("declared %d times, want %d: %s", n, tt.count, out.Tools)
				}
				if err := strictjson.Check([]byte("[" + string(out.Tools) + "]")); err != nil {
					t.Errorf("%v: %s", err, out.Tools)
				}
				if tt.tools != "" && "["+string(out.Tools)+"]" != tt.tools {
					t.Errorf("the request's own list changed: %s", out.Tools)
				}
				refused := ""
				for _, d := range out.Refusals {
					refused += d.Name
				}
				if refused != tt.refused {
					t.Errorf("refused %q, want %q", refused, tt.refused)
				}
			})
		}
	}
}

func TestAToolThatTheProviderKnowsIsDeclaredUnderTheNameOfItsCalls(t *testing.T) {
	for tool, name := range map[string]string{
		`{"type":"shell"}`: "shell", `{"type":"local_shell"}`: "local_shell", `{"type":"apply_patch"}`: "apply_patch",
		`{"type":"computer"}`: "computer", `{"type":"computer_use_preview","environment":"linux"}`: "computer",
	} {
		tools := jsontext.Value("[" + tool + "]")
		names, err := ToolNames(Responses, tools)
		if err != nil || len(names) != 1 || names[0] != name {
			t.Errorf("%s declares %q, %v, want %s", tool, names, err, name)
		}
		out := Render(Responses, Show{Messages: calling(name), Tools: tools, Added: []Declaration{{Name: name, Refusal: "Not callable."}}})
		if string(out.Tools) != tool || out.Refusals != nil {
			t.Errorf("%s: tools %s, refusals %v", tool, out.Tools, out.Refusals)
		}
	}
	if names, err := ToolNames(Responses, jsontext.Value(`[{"type":"web_search"}]`)); err != nil || len(names) != 0 {
		t.Errorf("a tool without calls declares %q, %v", names, err)
	}
}
