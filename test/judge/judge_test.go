package judge

import (
	"fmt"
	"regexp"
	"strings"
	"testing"
)

// verdict is an example of a rule. bad breaks it, good does not and is accepted.
type verdict struct {
	rule      string
	bad, good string // messages, without the brackets
	tools     string // of both, without the brackets
	want      string // is in the complaint
}

// judged holds a format to its table.
func judged(t *testing.T, format, tools string, table []verdict) {
	t.Helper()
	for _, tt := range table {
		t.Run(tt.rule, func(t *testing.T) {
			if tt.tools == "" {
				tt.tools = tools
			}
			if got := Check(format, []byte("["+tt.good+"]"), nil, []byte("["+tt.tools+"]")); len(got) != 0 {
				t.Errorf("Check of %.1000s\ngot %q, want nothing", tt.good, got)
			}
			refused(t, Check(format, []byte("["+tt.bad+"]"), nil, []byte("["+tt.tools+"]")), tt.bad, tt.want)
		})
	}
}

var sentence = regexp.MustCompile(`(?s)^(messages|system|tools)[^ ]* .*\.$`)

// refused wants a complaint that holds some words, and each to be a sentence.
func refused(t *testing.T, got []string, input, want string) {
	t.Helper()
	found := false
	for _, complaint := range got {
		found = found || strings.Contains(complaint, want)
		if !sentence.MatchString(complaint) {
			t.Errorf("complaint %q: want a sentence that begins with a path", complaint)
		}
	}
	if !found {
		t.Errorf("Check of %.1000s\ngot %q, want a complaint with %q", input, got, want)
	}
}

// tooLarge is base64 of an image over the limit, and fits of one that is not.
var (
	tooLarge = fits + "AAAA"
	fits     = strings.Repeat("AAAA", maxImage/4)
)

func TestEveryFormatRefusesWhatNobodyCanRead(t *testing.T) {
	hello := map[string]string{
		"openai":    `{"role":"user","content":"TEXT"}`,
		"responses": `{"role":"user","content":"TEXT"}`,
		"anthropic": `{"role":"user","content":"TEXT"}`,
		"gemini":    `{"role":"user","parts":[{"text":"TEXT"}]}`,
	}
	for format, message := range hello {
		t.Run(format, func(t *testing.T) {
			say := func(text string) []byte { return []byte("[" + strings.Replace(message, "TEXT", text, 1) + "]") }
			if got := Check(format, say("hi"), nil, nil); len(got) != 0 {
				t.Errorf("Check of a greeting: got %q, want nothing", got)
			}
			if got := Check(format, []byte("[]"), nil, nil); len(got) != 0 {
				t.Errorf("Check of nothing said: got %q, want nothing", got)
			}
			for _, tt := range []struct {
				name     string
				messages []byte
				tools    string
				want     string
			}{
				{"a NUL character", say(`a\u0000b`), "", "NUL"},
				{"a lone surrogate", say(`\ud83d`), "", "could not parse the JSON body"},
				{"a raw byte", say("\xff"), "", "could not parse the JSON body"},
				{"trailing data", append(say("hi"), '1'), "", "could not parse the JSON body"},
				{"no messages", nil, "", "messages is missing"},
				{"an object", []byte("{}"), "", "must be a list"},
				{"text for a message", []byte(`["hi"]`), "", "must be"},
				{"tools that are no list", say("hi"), "{}", "tools must be a list"},
				{"a tool that is no object", say("hi"), "[1]", "tools[0] must be an object"},
				{"an unknown member", []byte("[" + strings.Replace(message, `"role"`, `"mood":1,"role"`, 1) + "]"), "", "messages[0].mood is no member"},
				{"a NUL character in a name", []byte("[" + strings.Replace(message, `"role"`, `"a\u0000":1,"role"`, 1) + "]"), "", "in its name"},
				{"a request that is too large", say(strings.Repeat("x", maxRequest)), "", "the limit is 32 MB"},
			} {
				t.Run(tt.name, func(t *testing.T) {
					refused(t, Check(format, tt.messages, nil, []byte(tt.tools)), string(tt.messages[:min(len(tt.messages), 99)]), tt.want)
				})
			}
		})
	}
	if got := Check("smoke", []byte("[]"), nil, nil); len(got) != 1 {
		t.Errorf("Check of an unknown format: got %q, want a complaint", got)
	}
}

func TestToolsAreDeclared(t *testing.T) {
	for format, tt := range map[string]struct{ messages, tool, bare string }{
		"openai": {
			`[{"role":"assistant","content":null,"tool_calls":[{"id":"1","type":"function","function":{"name":"look","arguments":"{}"}}]},{"role":"tool","tool_call_id":"1","content":"x"}]`,
			`{"type":"function","function":{"name":"NAME","description":"d","parameters":SCHEMA}}`, `{"type":"custom","custom":{"name":"NAME","format":{"type":"text"}}}`,
		},
		"responses": {
			`[{"type":"function_call","call_id":"1","name":"look","arguments":"{}"},{"type":"function_call_output","call_id":"1","output":"x"}]`,
			`{"type":"function","name":"NAME","description":"d","parameters":SCHEMA,"strict":false}`, `{"type":"custom","name":"NAME"}`,
		},
		"anthropic": {
			`[{"role":"user","content":"x"},{"role":"assistant","content":[{"type":"tool_use","id":"1","name":"look","input":{}}]},{"role":"user","content":[{"type":"tool_result","tool_use_id":"1"}]}]`,
			`{"name":"NAME","description":"d","input_schema":SCHEMA}`, `{"type":"web_search_20250305","name":"NAME"}`,
		},
		"gemini": {
			`[{"role":"user","parts":[{"text":"x"}]},{"role":"model","parts":[{"functionCall":{"name":"look","args":{}},"thoughtSignature":"YWJj"}]},{"role":"user","parts":[{"functionResponse":{"name":"look","response":{}}}]}]`,
			`{"functionDeclarations":[{"name":"NAME","description":"d","parameters":SCHEMA}]}`, `{"functionDeclarations":[{"name":"NAME","parametersJsonSchema":{"type":"object"}}]}`,
		},
	} {
		t.Run(format, func(t *testing.T) {
			declare := func(tool, name, schema string) string {
				return strings.NewReplacer("NAME", name, "SCHEMA", schema).Replace(tool)
			}
			schema := `{"type":"object"}`
			whole := declare(tt.tool, "look", schema)
			for _, good := range []string{whole, declare(tt.bare, "look", ""), whole + "," + declare(tt.bare, "other", "")} {
				if got := Check(format, []byte(tt.messages), nil, []byte("["+good+"]")); len(got) != 0 {
					t.Errorf("Check with tools [%s]: got %q, want nothing", good, got)
				}
			}
			for _, bad := range []struct{ name, tools, want string }{
				{"no tools", "", "must define tools"},
				{"another tool", "[" + declare(tt.tool, "other", schema) + "]", "does not declare"},
				{"declared twice", "[" + whole + "," + whole + "]", "must be unique"},
				{"a name with a dot", "[" + whole + "," + declare(tt.tool, "a.b", schema) + "]", "must match ^[a-zA-Z"},
				{"an empty name", "[" + whole + "," + declare(tt.bare, "", schema) + "]", "must match ^[a-zA-Z"},
				{"a name that is too long", "[" + whole + "," + declare(tt.tool, strings.Repeat("x", 129), schema) + "]", "must match ^[a-zA-Z"},
				{"a schema that is a string", "[" + declare(tt.tool, "look", `"object"`) + "]", "must be an object"},
				{"a schema of another type", "[" + declare(tt.tool, "look", `{"type":"array"}`) + "]", "must be a schema of type"},
				{"a description that is a number", "[" + strings.Replace(whole, `"d"`, "1", 1) + "]", "description must be a string"},
				{"an unknown member", "[" + strings.Replace(whole, `"description"`, `"x":1,"description"`, 1) + "]", "is no member"},
			} {
				t.Run(bad.name, func(t *testing.T) {
					refused(t, Check(format, []byte(tt.messages), nil, []byte(bad.tools)), bad.tools, bad.want)
				})
			}
		})
	}
}

func TestToolsOfTheProviderPass(t *testing.T) {
	for format, tools := range map[string]string{
		"responses": `{"type":"web_search"},{"type":"namespace","name":"n","tools":[{"type":"function","name":"a","parameters":null}]}`,
		"anthropic": `{"type":"web_fetch_20250910","name":"web_fetch","max_uses":2},{"name":"a","type":"custom","input_schema":{"type":"object"},"cache_control":{"type":"ephemeral"}}`,
		"gemini":    `{"googleSearch":{}},{"functionDeclarations":[{"name":"a","parameters":{"type":"OBJECT"}}]}`,
	} {
		if got := Check(format, []byte("[]"), nil, []byte("["+tools+"]")); len(got) != 0 {
			t.Errorf("Check of %s tools [%s]: got %q, want nothing", format, tools, got)
		}
	}
	for format, bad := range map[string]string{
		"openai": `{"type":"web_search"}`, "responses": `{"name":"x"}`, "gemini": `{}`, "anthropic": `{"name":"x"}`,
	} {
		if got := Check(format, []byte("[]"), nil, []byte("["+bad+"]")); len(got) == 0 {
			t.Errorf("Check of %s tools [%s]: got nothing, want a complaint", format, bad)
		}
	}
	both := `[{"functionDeclarations":[{"name":"a","parameters":{"type":"OBJECT"},"parametersJsonSchema":{"type":"object"}}]}]`
	refused(t, Check("gemini", []byte("[]"), nil, []byte(both)), both, "has both")
}

func TestSystem(t *testing.T) {
	for _, tt := range []struct{ format, system, want string }{
		{"openai", `"x"`, "has no place"},
		{"responses", `"x"`, "has no place"},
		{"anthropic", `"x"`, ""},
		{"anthropic", `[{"type":"text","text":"x","cache_control":{"type":"ephemeral"}}]`, ""},
		{"anthropic", `""`, "non-empty"},
		{"anthropic", `[]`, "is empty"},
		{"anthropic", `[{"type":"text","text":" "}]`, "non-whitespace"},
		{"anthropic", `[{"type":"image"}]`, "is no type that system may hold"},
		{"anthropic", `{}`, "must be a list"},
		{"gemini", `{"parts":[{"text":"x"}]}`, ""},
		{"gemini", `{"role":"system","parts":[{"text":"x"}]}`, ""},
		{"gemini", `{"role":"model","parts":[{"text":"x"}]}`, "must be one of"},
		{"gemini", `{"parts":[]}`, "is empty"},
		{"gemini", `{"parts":[{"text":""}]}`, "must not be empty"},
		{"gemini", `"x"`, "must be an object"},
	} {
		t.Run(tt.format+tt.system, func(t *testing.T) {
			got := Check(tt.format, []byte("[]"), []byte(tt.system), nil)
			if tt.want != "" {
				refused(t, got, tt.system, tt.want)
			} else if len(got) != 0 {
				t.Errorf("Check of %s: got %q, want nothing", tt.system, got)
			}
		})
	}
}

// times repeats an element of a list.
func times(n int, element string) string { return strings.Repeat(element+",", n-1) + element }

func TestRequestsDeclareSoManyToolsAtTheMost(t *testing.T) {
	for format, tt := range map[string]struct {
		tool, want string
		most       int
	}{
		"openai":    {`{"type":"function","function":{"name":"f%d"}}`, "maximum length 128", 128},
		"responses": {`{"type":"function","name":"f%d","parameters":{"type":"object"}}`, "maximum length 128", 128},
		"gemini":    {`{"functionDeclarations":[{"name":"f%d"}]}`, "at most 512", 512},
	} {
		var tools []string
		for i := range tt.most + 1 {
			tools = append(tools, fmt.Sprintf(tt.tool, i))
		}
		if got := Check(format, []byte("[]"), nil, []byte("["+strings.Join(tools[1:], ",")+"]")); len(got) > 0 {
			t.Errorf("%s with %d tools: %q", format, tt.most, got)
		}
		refused(t, Check(format, []byte("[]"), nil, []byte("["+strings.Join(tools, ",")+"]")), format, tt.want)
	}
}
