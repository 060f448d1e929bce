package history

import (
	"strings"
	"testing"

	"historyd/internal/strictjson"
)

func parse(t *testing.T, doc string, door Door) (Message, *Faults) {
	t.Helper()
	if err := strictjson.Check([]byte(doc)); err != nil {
		t.Fatalf("Check(%s): %v", doc, err)
	}
	var faults Faults
	m := ParseMessage(strictjson.Document([]byte(doc)), "m", door, &faults)
	return m, &faults
}

func TestEncodeIsParseBackwards(t *testing.T) {
	for _, doc := range []string{
		`{"id":"a","at":"2026-11-29T21:32:05.123456Z","role":"user","kind":"user","status":"complete","content":[{"type":"text","text":""}],"imported":true}`,
		`{"role":"user","kind":"reference","status":"complete","content":[{"type":"text","text":"a && b < c \u0000"},{"type":"image","media_type":"image/png","url":"https://e.example/x"}],"imported":true}`,
		`{"role":"assistant","model":"m","provider":"p","status":"incomplete","content":[{"type":"thinking","text":"t","signature":"s"},{"type":"tool_call","id":"c","name":"","arguments":{"id":2512292042121000001,"x":1.0,"y":1e400,"z":"\u00e9"}},{"type":"tool_call","id":"d","name":"f","arguments":null,"signature":"g"}],"usage":{"input":null,"d":{"k":1}},"metadata":{"b":1,"a":[{}]},"imported":true,"extra":{"annotations":[]}}`,
		`{"role":"assistant","status":"complete","content":[{"type":"tool_call","id":"c","name":"f","arguments":{"a":1},"arguments_text":"{ \"a\":1}"},{"type":"tool_call","id":"d","name":"f","arguments_text":"{\"a\":1,\"a\":2}"},{"type":"opaque","provider":"x","data":{"type":"server_tool_use"}}],"imported":true}`,
		`{"role":"tool","status":"complete","content":[{"type":"tool_result","call_id":"c","content":"x","is_error":false,"truncated":{"original_chars":5,"original_bytes":6},"redacted":{"category":"w","reason":"r"}},{"type":"tool_result","call_id":"d","content":[],"is_error":true},{"type":"tool_result","call_id":"e","content":[{"type":"text","text":"b"}],"is_error":false,"extra":{"name":"f"}}],"synthetic":true,"imported":true}`,
	} {
		m, faults := parse(t, doc, ImportDoor)
		if err := faults.Err(); err != nil {
			t.Errorf("parse(%s): %v", doc, err)
			continue
		}
		if got := string(AppendMessage(nil, &m)); got != doc {
			t.Errorf("encode(parse(x)) differs\n got %s\nwant %s", got, doc)
		}
		again, err := ParseStored(AppendMessage(nil, &m))
		if err != nil {
			t.Errorf("ParseStored: %v", err)
		}
		if got := string(AppendMessage(nil, &again)); got != string(AppendMessage(nil, &m)) {
			t.Errorf("stored form is not stable: %s", got)
		}
	}
}

func TestForeignMembersThatSayNothingAreKept(t *testing.T) {
	m, faults := parse(t, `{"role":"assistant","content":"x","tool_calls":null,"function_call":{},"extra":{"toolCalls":[]}}`, ImportDoor)
	if err := faults.Err(); err != nil {
		t.Fatal(err)
	}
	if got, want := string(m.Extra), `{"tool_calls":null,"function_call":{},"toolCalls":[]}`; got != want {
		t.Errorf("Extra = %s, want %s", got, want)
	}
}

// TestToolTrafficOfOtherFormatsIsRefused holds that no call comes in as something unknown.
func TestToolTrafficOfOtherFormatsIsRefused(t *testing.T) {
	opaque := func(data string) string {
		return `{"role":"assistant","content":[{"type":"opaque","provider":"p","data":` + data + `}]}`
	}
	member := func(m string) string { return `{"role":"assistant","content":"x",` + m + `}` }
	block := func(m string) string {
		return `{"role":"assistant","content":[{"type":"text","text":"x",` + m + `}]}`
	}
	const whole, inBlock, inData = "m", "m.content[0]", "m.content[0].data"
	for _, tt := range []struct{ doc, want string }{
		{member(`"tool_call":{"a":1}`), whole}, {member(`"function_calls":[1]`), whole}, {member(`"tool_uses":[1]`), whole},
		{member(`"toolUse":{"a":1}`), whole}, {member(`"toolUses":[1]`), whole}, {member(`"toolCall":1`), whole},
		{member(`"tool_results":[1]`), whole}, {member(`"toolResults":[1]`), whole}, {member(`"function_response":"x"`), whole},
		{member(`"tool-calls":[1]`), whole}, {member(`"PARTS":[1]`), whole}, {member(`"extra":{"tool_use":{"a":1}}`), whole},
		{member(`"additional_kwargs":{"function_call":{"name":"f"}}`), whole},
		{member(`"additional_kwargs":{"function_call":null,"x":1}`), ""}, {member(`"toolUse":{}`), ""}, {member(`"metadata":{"a":1},"called":1`), ""},
		{block(`"tool_calls":[1]`), inBlock}, {block(`"extra":{"toolUse":1}`), inBlock}, {block(`"tool_calls":[]`), ""},
		{`{"role":"tool","content":[{"type":"tool_result","call_id":"c","content":[{"type":"text","text":"x","tool_use":1}]}]}`, "m.content[0].content[0]"},
		{`{"role":"tool","content":[{"type":"tool_result","call_id":"c","content":"x","functionResponse":{"a":1}}]}`, inBlock},
		{`{"role":"assistant","content":[{"type":"tool_call","id":"c","name":"f","arguments":{},"extra":{"function_call":{"x":1}}}]}`, ""},
		{`{"role":"assistant","content":[{"type":"tool_call","id":"c","name":"f","arguments":{},"extra":{"function_call":{"name":"g","arguments":"{}"}}}]}`, inBlock},
		{`{"role":"assistant","content":[{"type":"tool_call","id":"c","name":"f","arguments":{},"toolCalls":[1]}]}`, inBlock},
		{opaque(`{"type":"tool_use","input":{}}`), inData}, {opaque(`{"type":"tool_call"}`), inData}, {opaque(`{"type":"tool_result"}`), inData},
		{opaque(`{"type":"function_call"}`), inData}, {opaque(`{"type":"function_call_output"}`), inData}, {opaque(`{"type":"custom_tool_call"}`), inData},
		{opaque(`{"type":"custom_tool_call_output"}`), inData}, {opaque(`{"type":"function"}`), inData}, {opaque(`{"type":"functionCall"}`), inData},
		{opaque(`{"type":"Function-Response"}`), inData}, {opaque(`{"functionCall":{"name":"f"}}`), inData}, {opaque(`{"functionResponse":{"name":"f"}}`), inData},
		{opaque(`{"function_call":{"name":"f"}}`), inData}, {opaque(`{"tool_calls":[{}]}`), inData}, {opaque(`{"tool_call":"x"}`), inData},
		{opaque(`[{"type":"text"},{"type":"tool_use"}]`), inData}, {opaque(`{"role":"assistant","content":[{"type":"tool_use"}]}`), inData},
		{opaque(`{"type":"server_tool_use","name":"web_search","input":{}}`), ""}, {opaque(`{"type":"web_search_tool_result","tool_use_id":"x","content":[]}`), ""},
		{opaque(`{"type":"mcp_tool_use"}`), ""}, {opaque(`{"type":"mcp_call","arguments":"{}"}`), ""}, {opaque(`{"type":"code_execution_tool_result","content":{"type":"x"}}`), ""},
		{opaque(`{"type":"x","tool_calls":[],"tool_call_id":"c"}`), ""}, {opaque(`["tool_use"]`), ""}, {opaque(`"x"`), ""},
	} {
		m, faults := parse(t, tt.doc, ImportDoor)
		var got []string
		for _, f := range faults.List {
			if got = append(got, f.Path); f.Code != CodeInvalidMessage {
				t.Errorf("%s: code %s", tt.doc, f.Code)
			}
		}
		if strings.Join(got, " ") != tt.want {
			t.Errorf("%s: faults at %q, want %q", tt.doc, got, tt.want)
		}
		if _, err := ParseStored(AppendMessage(nil, &m)); err != nil {
			t.Errorf("%s: what is stored must be read: %v", tt.doc, err)
		}
	}
}

// TestTheFirstFaultOfAForeignMessageSaysSo holds that whoever forgot the parameter
// format is told so first, whatever else is wrong then.
func TestTheFirstFaultOfAForeignMessageSaysSo(t *testing.T) {
	said := func(block string) string { return `{"role":"assistant","content":[` + block + `]}` }
	const name = "name it with the parameter format"
	for _, tt := range []struct{ doc, path, want string }{
		{`{"role":"assistant","content":null,"tool_calls":[{"id":"c"}]}`, "m", name},
		{`{"role":"tool","tool_call_id":"c","content":"x"}`, "m", name},
		{`{"role":"model","parts":[{"text":"x"}]}`, "m", name},
		{`{"type":"function_call","call_id":"c","name":"f","arguments":"{}"}`, "m", name},
		{`{"type":"function_call_output","call_id":"c","output":"x"}`, "m", name},
		{`{"type":"reasoning","summary":[]}`, "m", name},
		{`{"type":"x","name":"f"}`, "m.content", "a message has"},
		{`{"role":"developer","content":"x"}`, "m.role", name + " (openai or responses)"},
		{`{"role":"model","content":"x"}`, "m.role", name + " (gemini)"},
		{`{"role":"king","content":"x"}`, "m.role", "must be one of user, assistant, tool, system"},
		{said(`{"type":"tool_use","id":"c","name":"f","input":{}}`), "m.content[0].type", name + " (anthropic), or write a tool_call block"},
		{said(`{"type":"input_text","text":"x"}`), "m.content[0].type", name + " (responses), or write a text block"},
		{said(`{"type":"output_text","text":"x"}`), "m.content[0].type", name + " (responses), or write a text block"},
		{said(`{"type":"image_url","image_url":{"url":"https://e.example/x"}}`), "m.content[0].type", name + " (openai), or write an image block"},
		{said(`{"type":"image","source":{"type":"base64","media_type":"image/png","data":"eA=="}}`), "m.content[0].url", name + " (anthropic)"},
		{said(`{"type":"thinking","thinking":"x","signature":"s"}`), "m.content[0].text", name + " (anthropic)"},
		{`{"role":"user","content":[{"type":"tool_result","tool_use_id":"c","content":"x"}]}`, "m.content[0].call_id", name + " (anthropic)"},
		{`{"role":"tool","content":"x"}`, "m.content[0].type", "cannot hold a text block: write a tool_result block with its call_id"},
		{`{"role":"system","content":[{"type":"image","url":"https://e.example/x"}]}`, "m.content[0].type", "a system message cannot hold a image block"},
	} {
		for _, door := range []Door{AppendDoor, ImportDoor} {
			_, faults := parse(t, tt.doc, door)
			if len(faults.List) == 0 {
				t.Errorf("%s is taken", tt.doc)
				continue
			}
			first := faults.List[0]
			if first.Path != tt.path || !strings.Contains(first.Detail, tt.want) || first.Code != CodeInvalidMessage {
				t.Errorf("%s: first fault %+v, want one at %s with %q", tt.doc, first, tt.path, tt.want)
			}
			if strings.Contains(tt.want, name) != strings.Contains(first.Detail, name) {
				t.Errorf("%s: first fault %q, want %q", tt.doc, first.Detail, tt.want)
			}
		}
	}
}

func TestAFaultThatLeadsTakesThePlaceOfTheLast(t *testing.T) {
	var faults Faults
	for range MaxFaults {
		faults.Add("a", CodeInvalidMessage, 0, "x")
	}
	faults.Lead(1, "b", CodeInvalidMessage, 0, "x")
	if len(faults.List) != MaxFaults || faults.More != 1 || faults.List[1].Path != "b" {
		t.Errorf("%d faults and %d more, the second at %q, want %d, 1 and b", len(faults.List), faults.More, faults.List[1].Path, MaxFaults)
	}
}

func TestATypeInAnotherCaseIsNoJSONOfOurs(t *testing.T) {
	_, faults := parse(t, `{"role":"user","content":[{"Type":"text","text":"x"}]}`, AppendDoor)
	if len(faults.List) != 1 || faults.List[0].Code != CodeInvalidJSON || faults.List[0].Path != "m.content[0].type" {
		t.Errorf("faults %+v, want one of invalid_json at m.content[0].type", faults.List)
	}
}

func TestUnknownMembersComeBackAsExtra(t *testing.T) {
	m, faults := parse(t, `{"role":"user","content":"x","foo": {"a" : 1},"extra":{"bar":"\u00e9"},"content_type":1}`, AppendDoor)
	if err := faults.Err(); err != nil {
		t.Fatal(err)
	}
	if got, want := string(m.Extra), `{"foo":{"a":1},"content_type":1,"bar":"\u00e9"}`; got != want {
		t.Errorf("Extra = %s, want %s", got, want)
	}
}

func TestExtraOfManyMembersIsReadBack(t *testing.T) {
	const doc = `{"role":"user","kind":"user","status":"complete","content":[{"type":"text","text":"x","extra":{"a":1,"b":2,"c":3}}],"imported":true,"extra":{"a":1,"b":{"c":2},"d":[]}}`
	m, faults := parse(t, doc, ImportDoor)
	if err := faults.Err(); err != nil {
		t.Fatal(err)
	}
	if got := string(AppendMessage(nil, &m)); got != doc {
		t.Errorf("got %s\nwant %s", got, doc)
	}
	_, faults = parse(t, `{"role":"user","content":"x","b":1,"c":2,"extra":{"a":1,"b":2,"c":3}}`, ImportDoor)
	if len(faults.List) != 2 {
		t.Errorf("faults %v, want two", faults.List)
	}
}

func TestAppendIgnoresTheServersMembers(t *testing.T) {
	m, faults := parse(t, `{"id":"mine","seq":7,"at":"yesterday","redacted":true,"truncated":1,"synthetic":true,"imported":true,
		"role":"tool","content":[{"type":"tool_result","call_id":"c","content":"x","redacted":{"category":"w","reason":"r"},"truncated":{"original_chars":1}}]}`, AppendDoor)
	if err := faults.Err(); err != nil {
		t.Fatal(err)
	}
	want := `{"client_id":"mine","role":"tool","status":"complete","content":[{"type":"tool_result","call_id":"c","content":"x","is_error":false}]}`
	if got := string(AppendMessage(nil, &m)); got != want {
		t.Errorf("got %s\nwant %s", got, want)
	}
}

func TestShapeFaultsAreAllTold(t *testing.T) {
	for _, tt := range []struct {
		name, doc string
		paths     []string
	}{
		{"not an object", `[]`, []string{"m"}},
		{"nothing", `{}`, []string{"m.content", "m.role"}},
		{"empty content", `{"role":"user","content":[]}`, []string{"m.content"}},
		{"null content", `{"role":"user","content":null}`, []string{"m.content"}},
		{"an answer in members", `{"role":"assistant","content":[],"0":{"type":"text","text":"x"}}`, []string{"m.content"}},
		{"case variant", `{"Role":"system","role":"user","content":"x"}`, []string{"m.role"}},
		{"case variant in a block", `{"role":"user","content":[{"type":"text","text":"a","TEXT":"b"}]}`, []string{"m.content[0].text"}},
		{"kelvin sign", `{"role":"user","content":"x","\u212aind":"reference"}`, []string{"m.kind"}},
		{"wrong types", `{"id":1,"seq":"x","role":2,"content":"x","usage":[],"metadata":1}`, []string{"m.id", "m.seq", "m.role", "m.usage", "m.metadata"}},
		{"bad role", `{"role":"king","content":"x"}`, []string{"m.role"}},
		{"call in a user message", `{"role":"user","content":[{"type":"tool_call","id":"c","name":"f","arguments":{}}]}`, []string{"m.content[0].type"}},
		{"call without anything", `{"role":"assistant","content":[{"type":"tool_call"}]}`, []string{"m.content[0].id", "m.content[0].name", "m.content[0].arguments"}},
		{"texts differ", `{"role":"assistant","content":[{"type":"tool_call","id":"c","name":"f","arguments":{"a":1},"arguments_text":"{\"a\":2}"}]}`, []string{"m.content[0].arguments_text"}},
		{"inline image that is no base64", `{"role":"user","content":[{"type":"image","media_type":"image/png","data":"AAA"}]}`, []string{"m.content[0].data"}},
		{"image in a data URL", `{"role":"user","content":[{"type":"image","url":"DATA:image/png;base64,AAAA"}]}`, []string{"m.content[0].url"}},
		{"nested result", `{"role":"tool","content":[{"type":"tool_result","call_id":"c","content":[{"type":"tool_result","call_id":"d","content":""}]}]}`, []string{"m.content[0].content[0].type"}},
		{"member twice by extra", `{"role":"user","content":"x","foo":1,"extra":{"foo":2}}`, []string{"m.extra"}},
		{"Chat Completions calls", `{"role":"assistant","content":"x","tool_calls":[{"id":"c","type":"function","function":{"name":"f","arguments":"{}"}}]}`, []string{"m"}},
		{"Chat Completions calls in extra", `{"role":"assistant","content":"x","extra":{"Function_Call":{"name":"f","arguments":"{}"}}}`, []string{"m"}},
		{"reference by the assistant", `{"role":"assistant","kind":"reference","content":"x"}`, []string{"m.kind"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, faults := parse(t, tt.doc, AppendDoor)
			var got []string
			for _, f := range faults.List {
				got = append(got, f.Path)
			}
			if strings.Join(got, " ") != strings.Join(tt.paths, " ") {
				t.Errorf("faults at %v, want %v (%v)", got, tt.paths, faults.List)
			}
		})
	}
}

func TestImportReadsTimesOfAllZones(t *testing.T) {
	for _, tt := range []struct{ in, want string }{
		{`"2026-03-29T02:30:00"`, `"at":"2026-03-29T02:30:00.000000Z","tz_assumed":true`},
		{`"2026-03-29T02:30:00Z"`, `"at":"2026-03-29T02:30:00.000000Z","role"`},
		{`"2026-03-29T02:30:00.5+05:30"`, `"at":"2026-03-28T21:00:00.500000Z","role"`},
	} {
		m, faults := parse(t, `{"role":"user","content":"x","at":`+tt.in+`}`, ImportDoor)
		if err := faults.Err(); err != nil {
			t.Errorf("%s: %v", tt.in, err)
		}
		if got := string(AppendMessage(nil, &m)); !strings.Contains(got, tt.want) {
			t.Errorf("at %s became %s, want %s", tt.in, got, tt.want)
		}
	}
}

func TestTimesThatCouldNotBeReadBackAreRefused(t *testing.T) {
	for _, at := range []string{"9999-12-31T23:59:59-23:00", "0000-01-01T00:00:00+01:00"} {
		_, faults := parse(t, `{"role":"user","content":"x","at":"`+at+`"}`, ImportDoor)
		if len(faults.List) != 1 || faults.List[0].Path != "m.at" {
			t.Errorf("%s: faults %v, want one at m.at", at, faults.List)
		}
	}
}

func TestArgumentsComeBackToTheByte(t *testing.T) {
	deep := strings.Repeat("[", 60) + strings.Repeat("]", 60)
	for _, tt := range []struct {
		text  string
		value bool
		kept  bool
	}{
		{`{}`, true, false},
		{` {"a": 1}`, true, true},
		{`{"a":"\u00e9","n":1e400}`, true, false},
		{`{"a":1,"a":2}`, false, true},
		{`{"a":`, false, true},
		{``, false, true},
		{deep, false, true},
	} {
		var b Block
		b.SetArguments(tt.text)
		if (b.Arguments != nil) != tt.value || (b.ArgumentsText != nil) != tt.kept {
			t.Errorf("SetArguments(%q): value %t, text kept %t", tt.text, b.Arguments != nil, b.ArgumentsText != nil)
		}
		if got := b.ArgumentString(); got != tt.text {
			t.Errorf("ArgumentString() = %q, want %q", got, tt.text)
		}
	}
}

func FuzzParseIsStable(f *testing.F) {
	f.Add(`{"role":"user","content":"x"}`)
	f.Add(`{"role":"assistant","content":[{"type":"tool_call","id":"c","name":"f","arguments_text":"{ }"}],"extra":{"a":1}}`)
	f.Add(`{"role":"tool","content":[{"type":"tool_result","call_id":"c","content":[]}],"x":[1.0]}`)
	f.Fuzz(func(t *testing.T, doc string) {
		if strictjson.Check([]byte(doc)) != nil {
			return
		}
		var faults Faults
		m := ParseMessage(strictjson.Document([]byte(doc)), "", ImportDoor, &faults)
		if faults.Err() != nil {
			return
		}
		once := AppendMessage(nil, &m)
		if err := strictjson.Check(once); err != nil {
			t.Fatalf("encoded message is not strict JSON: %v", err)
		}
		again, err := ParseStored(once)
		if err != nil {
			t.Fatalf("ParseStored(%s): %v", once, err)
		}
		if twice := AppendMessage(nil, &again); string(twice) != string(once) {
			t.Fatalf("got %s\nwant %s", twice, once)
		}
	})
}
