package judge

import (
	"fmt"
	"strings"
	"testing"
)

func TestOpenAI(t *testing.T) {
	const (
		call   = `{"role":"assistant","content":null,"tool_calls":[{"id":"1","type":"function","function":{"name":"f","arguments":"{}"}}]}`
		two    = `{"role":"assistant","tool_calls":[{"id":"1","type":"function","function":{"name":"f","arguments":"not json"}},{"id":"2","type":"custom","custom":{"name":"g","input":"x"}}]}`
		result = `{"role":"tool","tool_call_id":"1","content":"x"}`
		other  = `{"role":"tool","tool_call_id":"2","content":[{"type":"text","text":"x"}]}`
		user   = `{"role":"user","content":"x"}`
		tools  = `{"type":"function","function":{"name":"f"}},{"type":"custom","custom":{"name":"g"}}`
	)
	say := func(content string) string { return `{"role":"user","content":` + content + `}` }
	part := func(p string) string { return say("[" + p + "]") }
	answer := func(members string) string { return `{"role":"assistant",` + members + `}` }
	image := func(url string) string { return `{"type":"image_url","image_url":{"url":"` + url + `"}}` }
	id := func(n int) string { return strings.Repeat("x", n) }
	judged(t, "openai", tools, []verdict{
		{"a role that nobody has", `{"role":"bot","content":"x"}`, `{"role":"system","content":"x"},{"role":"developer","content":[{"type":"text","text":"x"}]}`, "", "must be one of developer"},
		{"no role", `{"content":"x"}`, user, "", "must be a message with a role"},
		{"no content", `{"role":"user"}`, say(`""`), "", "lacks content"},
		{"content of another type", say("null"), say(`"x"`), "", "must be a string or a list of parts"},
		{"an empty list of parts", say("[]"), part(`{"type":"text","text":"x"}`), "", "is empty: at least 1"},
		{"a part without a type", part(`{"text":"x"}`), part(`{"type":"text","text":"","prompt_cache_breakpoint":{}}`), "", "lacks type"},
		{"a type that is no string", part(`{"type":1}`), user, "", "type must be a string"},
		{"a part that is text", part(`"x"`), user, "", "must be an object"},
		{"a part of the assistant by the user", part(`{"type":"refusal","refusal":"x"}`), answer(`"content":[{"type":"refusal","refusal":"x"},{"type":"text","text":"y"}]`), "", "is no type that a user message may hold"},
		{"an image of the assistant", answer(`"content":[` + image("https://x/y") + `]`), part(image("https://x/y")), "", "is no type that an assistant message may hold"},
		{"an image of a tool", call + "," + strings.Replace(result, `"x"`, `[`+image("https://x/y")+`]`, 1), call + "," + result, "", "is no type that a tool message may hold"},
		{"an image of the system", `{"role":"system","content":[` + image("https://x/y") + `]}`, part(`{"type":"image_url","image_url":{"url":"http://x/y","detail":"low"}}`), "", "is no type that a system message may hold"},
		{"a detail that there is not", part(`{"type":"image_url","image_url":{"url":"https://x/y","detail":"best"}}`), part(`{"type":"image_url","image_url":{"url":"https://x/y","detail":"high"}}`), "", "detail must be one of"},
		{"a URL of another scheme", part(image("sha256:abc")), part(image("https://x")), "", "is no URL of http or https"},
		{"a data: URL that is no image", part(image("data:text/plain;base64,AAAA")), part(image("data:image/png;base64,AAAA")), "", "is no data: URL of an image"},
		{"base64 that is none", part(image("data:image/png;base64,A*")), part(image("data:image/gif;base64,AA==")), "", "is not valid base64"},
		{"an image of nothing", part(image("data:image/png;base64,")), part(image("data:image/webp;base64,AA==")), "", "holds no data"},
		{"an image that is too large", part(image("data:image/png;base64," + tooLarge)), part(image("data:image/png;base64," + fits)), "", "the limit is 5 MB"},
		{"too many images", part(times(101, image("https://x"))), part(times(100, image("https://x"))), "", "at most 100"},
		{"a sound in another form", part(`{"type":"input_audio","input_audio":{"data":"AAAA","format":"ogg"}}`), part(`{"type":"input_audio","input_audio":{"data":"AAAA","format":"wav"}}`), "", "format must be one of"},
		{"a sound that is no base64", part(`{"type":"input_audio","input_audio":{"data":"?","format":"wav"}}`), part(`{"type":"input_audio","input_audio":{"data":"AAAA","format":"mp3"}}`), "", "is not valid base64"},
		{"a file of nothing", part(`{"type":"file","file":{"filename":"x"}}`), part(`{"type":"file","file":{"file_id":"x"}}`), "", "lacks file_data and file_id"},
		{"a file that is no base64", part(`{"type":"file","file":{"file_data":"data:application/pdf,x"}}`), part(`{"type":"file","file":{"file_data":"data:application/pdf;base64,AAAA","filename":"x"}}`), "", "is no data: URL of a file"},
		{"a file that is no PDF", part(`{"type":"file","file":{"file_data":"data:text/plain;base64,AAAA","filename":"x"}}`), part(`{"type":"file","file":{"file_data":"data:application/pdf;base64,AAAA"}}`), "", "unsupported MIME type, text/plain"},
		{"a file of no type", part(`{"type":"file","file":{"file_data":"AAAA","filename":"x"}}`), part(`{"type":"file","file":{"file_data":"data:application/pdf;base64,AAAA"}}`), "", "is no data: URL of a file"},
		{"a text that is too long", say(`"` + strings.Repeat("x", maxContent+1) + `"`), say(`"` + strings.Repeat("ä", maxContent) + `"`), "", "maximum length 1048576"},
		{"an assistant without anything", `{"role":"assistant"}`, answer(`"content":null`), "", "it may be absent only beside tool_calls"},
		{"a refusal that is no text", answer(`"content":"x","refusal":{}`), answer(`"content":null,"refusal":"x"`), "", "refusal must be a string"},
		{"audio without an id", answer(`"content":null,"audio":{"data":"x"}`), answer(`"content":null,"audio":{"id":"x"}`), "", "lacks id"},
		{"members of an answer that no request has", answer(`"content":"x","annotations":[]`), answer(`"content":"x","reasoning_content":"y","reasoning_details":[],"extra_content":{}`), "", "is no member"},
		{"calls of another type", answer(`"tool_calls":{}`), call + "," + result, "", "must be a list"},
		{"no calls", answer(`"content":"x","tool_calls":[]`), two + "," + result + "," + other, "", "is empty"},
		{"a call of an unknown type", strings.Replace(call, `"type":"function"`, `"type":"web"`, 1) + "," + result, call + "," + result, "", "is no type that tool_calls may hold"},
		{"arguments that are an object", strings.Replace(call, `"{}"`, `{}`, 1) + "," + result, call + "," + result, "", "arguments must be a string"},
		{"input that is an object", strings.Replace(two, `"input":"x"`, `"input":{}`, 1) + "," + result + "," + other, two + "," + other + "," + result, "", "input must be a string"},
		{"a name with a dot", strings.Replace(call, `"f"`, `"f.g"`, 1) + "," + result, call + "," + result, "", "must match ^[a-zA-Z0-9_-]{1,64}$"},
		{"a name of 65", strings.Replace(call, `"f"`, `"`+id(65)+`"`, 1) + "," + result, strings.Replace(call, `"f"`, `"`+id(64)+`"`, 1) + "," + result, tools + `,{"type":"function","function":{"name":"` + id(64) + `"}}`, "must match"},
		{"an id of 41", strings.ReplaceAll(call+","+result, `"1"`, `"`+id(41)+`"`), strings.ReplaceAll(call+","+result, `"1"`, `"`+id(40)+`"`), "", "maximum length 40"},
		{"an empty id", strings.ReplaceAll(call+","+result, `"1"`, `""`), call + "," + result, "", "must not be empty"},
		{"an id that is no string", strings.ReplaceAll(call+","+result, `"1"`, `1`), call + "," + result, "", "must be a string"},
		{"a call without an answer", call, call + "," + result, "", "must be followed by tool messages"},
		{"a user between call and answer", call + "," + user + "," + result, call + "," + result + "," + user, "", "must be followed by tool messages"},
		{"an answer that comes first", result + "," + call + "," + result, call + "," + result, "", "must be a response to a preceding message"},
		{"a second answer", call + "," + result + "," + result, call + "," + result + "," + call + "," + result, "", "must be a response to a preceding message"},
		{"an answer to another call", two + "," + result + "," + result, two + "," + result + "," + other, "", "answers no call"},
		{"a function that nobody called", `{"role":"function","name":"f","content":"x"}`, answer(`"function_call":{"name":"f","arguments":"{}"}`) + `,{"role":"function","name":"f","content":null}`, "", "preceding message with 'function_call'"},
		{"a function of another name", answer(`"function_call":{"name":"f","arguments":"{}"}`) + `,{"role":"function","name":"g","content":"x"}`, answer(`"function_call":{"name":"f","arguments":"{}"}`) + `,{"role":"function","name":"f","content":"x"}`, "", "preceding message with 'function_call'"},
		{"a function without a name", answer(`"function_call":{"name":"f","arguments":"{}"}`) + `,{"role":"function","content":"x"}`, answer(`"function_call":{"name":"f","arguments":"{}"}`), "", "lacks name"},
	})
}

func TestAMessageOfOpenAIHoldsSoManyCallsAtTheMost(t *testing.T) {
	for n, want := range map[int]int{maxCalls: 0, maxCalls + 1: 1} {
		var calls, results []string
		for i := range n {
			calls = append(calls, fmt.Sprintf(`{"id":"%d","type":"function","function":{"name":"f","arguments":"{}"}}`, i))
			results = append(results, fmt.Sprintf(`{"role":"tool","tool_call_id":"%d","content":"x"}`, i))
		}
		got := Check("openai", []byte(`[{"role":"assistant","tool_calls":[`+strings.Join(calls, ",")+"]},"+strings.Join(results, ",")+"]"), nil, []byte(`[{"type":"function","function":{"name":"f"}}]`))
		if len(got) != want {
			t.Errorf("of %d calls: %q", n, got)
		}
	}
}
