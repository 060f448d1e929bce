package judge

import (
	"strings"
	"testing"
)

func TestGemini(t *testing.T) {
	const (
		user  = `{"role":"user","parts":[{"text":"x"}]}`
		model = `{"role":"model","parts":[{"text":"x"}]}`
		call  = user + `,{"role":"model","parts":[{"functionCall":{"name":"f","args":{}},"thoughtSignature":"YWJj"}]}`
		two   = user + `,{"role":"model","parts":[{"text":"x","thought":true},{"functionCall":{"id":"1","name":"f","args":{}},"thoughtSignature":"YWJj"},{"functionCall":{"id":"2","name":"g","args":{}}}]}`
		plain = `{"functionResponse":{"name":"f","response":{"result":"x"}}}`
		one   = `{"functionResponse":{"id":"1","name":"f","response":{}}}`
		other = `{"functionResponse":{"id":"2","name":"g","response":{}}}`
		tools = `{"functionDeclarations":[{"name":"f"},{"name":"g"},{"name":"_x"}]}`
	)
	say := func(parts string) string { return `{"role":"user","parts":[` + parts + `]}` }
	answer := func(parts string) string { return user + `,{"role":"model","parts":[` + parts + `]}` }
	data := func(media, data string) string {
		return `{"inlineData":{"mimeType":"` + media + `","data":"` + data + `","displayName":"x"}}`
	}
	swap := func(s, old, new string) string { return strings.ReplaceAll(s, old, new) }
	x := func(n int) string { return strings.Repeat("x", n) }
	judged(t, "gemini", tools, []verdict{
		{"a role that nobody has", `{"role":"function","parts":[` + plain + `]}`, user + "," + model, "", "must be one of"},
		{"no role", `{"parts":[{"text":"x"}]}`, user, "", "lacks role"},
		{"the model first", model, user, "", "contents must start with user"},
		{"a role twice", user + "," + user, user + "," + model + "," + user, "", "roles must alternate"},
		{"no parts", `{"role":"user"}`, user, "", "lacks parts"},
		{"an empty list of parts", say(``), user, "", "is empty"},
		{"an empty part", say(`{}`), say(`{"text":"x","partMetadata":{}}`), "", "holds 0 kinds of data"},
		{"a part of two kinds", say(`{"text":"x","inlineData":{"mimeType":"a/b","data":"AAAA"}}`), say(`{"text":"x"},` + data("a/b", "AAAA")), "", "holds 2 kinds of data"},
		{"an empty text", say(`{"text":""}`), answer(`{"text":"","thoughtSignature":"YWJj"}`), "", "empty parts are refused"},
		{"an unknown member", say(`{"type":"text","text":"x"}`), user, "", "is no member"},
		{"a text that is a number", say(`{"text":1}`), user, "", "text must be a string"},
		{"thought of the user", say(`{"text":"x","thought":true}`), answer(`{"text":"x","thought":true}`), "", "does not belong into a content of this role"},
		{"a signature that is no base64", answer(`{"text":"x","thoughtSignature":"skip_thought_signature_validator"}`), answer(`{"text":"x","thoughtSignature":"c2tpcF90aG91Z2h0X3NpZ25hdHVyZV92YWxpZGF0b3I="}`), "", "is not valid base64"},
		{"no signature", swap(call, `,"thoughtSignature":"YWJj"`, ``) + "," + say(plain), call + "," + say(plain), "", "missing a thought_signature"},
		{"no signature at a second step", call + "," + say(plain) + "," + strings.TrimPrefix(swap(call, `,"thoughtSignature":"YWJj"`, ``), user+",") + "," + say(plain), swap(call, `,"thoughtSignature":"YWJj"`, ``) + "," + say(plain) + "," + model + "," + user, "", "missing a thought_signature"},
		{"a signature that is not at the first call", swap(swap(two, `,"thoughtSignature":"YWJj"`, ``), `"g","args":{}}`, `"g","args":{}},"thoughtSignature":"YWJj"`) + "," + say(one+","+other), two + "," + say(one+","+other), "", "missing a thought_signature"},
		{"a call of the user", say(`{"functionCall":{"name":"f","args":{}}}`), call + "," + say(plain), "", "does not belong into a content of this role"},
		{"a response of the model", call + "," + say(plain) + `,{"role":"model","parts":[` + plain + `]}`, call + "," + say(plain+`,{"text":"x"}`), "", "does not belong into a content of this role"},
		{"args that are a string", swap(call, `"args":{}`, `"args":"{}"`) + "," + say(plain), call + "," + say(plain), "", "args must be an object"},
		{"a response that is a string", call + "," + say(swap(plain, `{"result":"x"}`, `"x"`)), call + "," + say(plain), "", "response must be an object"},
		{"a name with a dot", swap(call, `"f"`, `"f.g"`) + "," + say(swap(plain, `"f"`, `"f.g"`)), swap(call, `"f"`, `"_x"`) + "," + say(swap(plain, `"f"`, `"_x"`)), "", "must match ^[a-zA-Z_]"},
		{"a name that begins with a digit", swap(call, `"f"`, `"1f"`) + "," + say(swap(plain, `"f"`, `"1f"`)), call + "," + say(plain), "", "must match ^[a-zA-Z_]"},
		{"a name of 65", swap(call, `"f"`, `"`+x(65)+`"`) + "," + say(swap(plain, `"f"`, `"`+x(65)+`"`)), swap(call, `"f"`, `"`+x(64)+`"`) + "," + say(swap(plain, `"f"`, `"`+x(64)+`"`)), swap(tools, `"_x"`, `"`+x(64)+`"`), "must match"},
		{"a call without a response", call, call + "," + say(plain), "", "the number of function response parts"},
		{"a call before a text", call + "," + user, call + "," + say(plain), "", "the number of function response parts"},
		{"fewer responses", two + "," + say(one), two + "," + say(one+","+other), "", "has 2 calls and 1 responses"},
		{"more responses", call + "," + say(plain+","+plain), call + "," + say(plain), "", "has 1 calls and 2 responses"},
		{"a response without a call", user + "," + model + "," + say(plain), call + "," + say(plain), "", "has 0 calls and 1 responses"},
		{"a response at the beginning", say(plain), call + "," + say(plain), "", "answers no function call"},
		{"responses in another order", two + "," + say(other+","+one), two + "," + say(one+","+other), "", "answers a call of another name"},
		{"a response of another id", two + "," + say(swap(one, `"1"`, `"9"`)+","+other), two + "," + say(one+","+other), "", "answers a call of another id"},
		{"an empty id", swap(two, `"1"`, `""`) + "," + say(swap(one, `"1"`, `""`)+","+other), two + "," + say(one+","+other), "", "must not be empty"},
		{"responses with other parts", call + "," + say(swap(plain, `"x"}`, `"x"},"parts":[]`)), call + "," + say(swap(plain, `"x"}`, `"x"},"scheduling":"SILENT","parts":[`+data("image/png", "AAAA")+`]`)), "", "is empty"},
		{"data that is no base64", say(data("image/png", "*")), say(data("image/png", "AAAA")), "", "is not valid base64"},
		{"data of nothing", say(data("audio/wav", "")), say(data("audio/wav", "AAAA")), "", "holds no data"},
		{"data without a type", say(data("", "AAAA")), say(data("application/pdf", "AAAA")), "", "is no media type"},
		{"an image that is too large", say(data("image/png", tooLarge)), say(data("image/png", fits)), "", "the limit is 5 MB"},
		{"too many images", say(times(101, data("image/png", "AAAA"))), say(times(100, data("image/png", "AAAA"))), "", "at most 100"},
		{"a file without a type", say(`{"fileData":{"fileUri":"gs://x"}}`), say(`{"fileData":{"fileUri":"gs://x","mimeType":"video/mp4"},"videoMetadata":{}}`), "", "lacks mimeType"},
		{"a video that is none", say(`{"text":"x","videoMetadata":{}}`), user, "", "there is none"},
		{"code of the user", say(`{"executableCode":{"language":"PYTHON","code":"x"}}`), answer(`{"executableCode":{"language":"PYTHON","code":"x"}},{"codeExecutionResult":{"outcome":"OUTCOME_OK","output":"x"}}`), "", "does not belong into a content of this role"},
		{"a server call that is no object", answer(`{"toolCall":"x"}`), answer(`{"toolCall":{}},{"toolResponse":{}}`), "", "must be an object"},
	})
}
