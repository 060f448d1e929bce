// Package canary is a value that must be withheld, in all the ways in which a client may carry it to the daemon. It is for
// tests only.
package canary

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
)

// Word stands in arguments and results of tools, nowhere else, in any of its guises.
const Word = "zqcanary"

// A Carrier is how a client writes a call and its result: with a CANARY, ESCAPED, or as BASE64.
type Carrier struct{ Format, Messages string }

// Carriers are all there are, each of one call and its result.
func Carriers() []Carrier {
	native := func(call, result string) Carrier {
		return Carrier{"native", `{"role":"assistant","content":[{"type":"tool_call","id":"a1","name":"pay",` + call + `}]},
			{"role":"tool","content":[{"type":"tool_result","call_id":"a1",` + result + `}]}`}
	}
	openai := func(calls, result string) Carrier {
		return Carrier{"openai", `{"role":"assistant","content":null,` + calls + `},` + result}
	}
	function := func(rest string) string { return `"tool_calls":[{"id":"a1","type":"function",` + rest + `}]` }
	done := `{"role":"tool","tool_call_id":"a1","content":"done"}`
	anthropic := func(call, result string) Carrier {
		return Carrier{"anthropic", `{"role":"assistant","content":[{"type":"tool_use","id":"a1","name":"pay",` + call + `}]},
			{"role":"user","content":[{"type":"tool_result","tool_use_id":"a1",` + result + `}]}`}
	}
	gemini := func(call, result string) Carrier {
		return Carrier{"gemini", `{"role":"model","parts":[{"functionCall":{"name":"pay",` + call + `}}]},
			{"role":"user","parts":[{"functionResponse":{"name":"pay",` + result + `}}]}`}
	}
	responses := func(items string) Carrier { return Carrier{"responses", items} }
	return []Carrier{
		native(`"arguments":{"to":"CANARY"}`, `"content":"done"`),
		native(`"arguments":{"CANARY":1,"nested":[{"CANARY":["CANARY"]},"{\"in\":\"CANARY\"}"]}`, `"content":"done"`),
		native(`"arguments":"CANARY"`, `"content":"done"`),
		native(`"arguments_text":"{broken CANARY"`, `"content":"done"`),
		native(`"arguments":{"p":"ESCAPED"},"note":"CANARY","signature":"CANARY"`, `"content":"done","note":{"CANARY":"CANARY"}`),
		native(`"arguments":{"url":"https://u:CANARY@h/","basic":"BASE64"}`, `"content":"done"`),
		native(`"arguments":{}`, `"content":"CANARY is the number"`),
		native(`"arguments":{}`, `"content":[{"type":"text","text":"CANARY"},{"type":"document","media_type":"text/plain","filename":"CANARY.txt","data":"BASE64"},{"type":"opaque","provider":"p","data":{"CANARY":"CANARY"}}]`),
		native(`"arguments":{}`, `"is_error":true,"content":"no such number as CANARY"`),
		{"native", `{"role":"assistant","content":[{"type":"tool_call","id":"a1","name":"pay","arguments":{"to":"CANARY"}},{"type":"thinking","text":"I pay CANARY"},{"type":"opaque","provider":"p","data":{"x":"CANARY"}}],"metadata":{"CANARY":"CANARY"},"x":"CANARY","model":"CANARY"},
			{"role":"assistant","content":[{"type":"tool_call","id":"a2","name":"kept_look","arguments":{}}]},{"role":"tool","content":[{"type":"tool_result","call_id":"a2","content":"it says CANARY there"}]}`},
		openai(function(`"function":{"name":"pay","arguments":"{\"to\":\"CANARY\",\"parsed\":\"ESCAPED\"}"}`), done),
		openai(function(`"function":{"name":"pay","arguments":"{\"to\":","parsed_arguments":{"to":"CANARY"}},"index":0,"CANARY":"CANARY"`), done),
		openai(`"tool_calls":[{"id":"a1","type":"custom","custom":{"name":"pay","input":"CANARY\nCANARY"}}]`, done),
		openai(`"tool_calls":[{"id":"a1","type":"odd","odd":{"CANARY":"CANARY"}}]`, done),
		openai(`"function_call":{"name":"pay","arguments":"CANARY"}`, `{"role":"function","name":"pay","content":"CANARY"}`),
		openai(function(`"function":{"name":"pay","arguments":"{}"}`), `{"role":"tool","tool_call_id":"a1","content":[{"type":"text","text":"CANARY"}]}`),
		{"openai", `{"role":"tool","tool_call_id":"nobody","content":"CANARY answers no call"}`},
		anthropic(`"input":{"to":"CANARY","ESCAPED":["ESCAPED"]}`, `"content":"done"`),
		anthropic(`"input":{}`, `"content":[{"type":"text","text":"CANARY"},{"type":"search_result","source":"CANARY","title":"CANARY","content":[{"type":"text","text":"CANARY"}]}]`),
		anthropic(`"input":{},"partial_json":"CANARY"`, `"is_error":true,"content":"CANARY"`),
		{"anthropic", `{"role":"assistant","content":[{"type":"mcp_tool_use","id":"m1","name":"pay","server_name":"s","input":{"to":"CANARY"}},{"type":"mcp_tool_result","tool_use_id":"m1","is_error":false,"content":[{"type":"text","text":"CANARY"}]}]}`},
		responses(`{"type":"function_call","call_id":"a1","name":"pay","arguments":"{\"to\":\"CANARY\"}"},{"type":"function_call_output","call_id":"a1","output":"CANARY"}`),
		responses(`{"type":"custom_tool_call","call_id":"a1","name":"pay","input":"CANARY"},{"type":"custom_tool_call_output","call_id":"a1","output":[{"type":"input_text","text":"CANARY"}]}`),
		responses(`{"type":"shell_call","call_id":"a1","action":{"commands":["echo CANARY"]},"status":"completed"},{"type":"shell_call_output","call_id":"a1","output":[{"stdout":"CANARY","stderr":"CANARY","outcome":{"type":"exit","exit_code":0}}]}`),
		responses(`{"type":"local_shell_call","id":"l1","call_id":"a1","action":{"type":"exec","command":["echo","CANARY"],"env":{"CANARY":"CANARY"}},"status":"completed"},{"type":"local_shell_call_output","call_id":"a1","id":"l2","output":"CANARY"}`),
		responses(`{"type":"apply_patch_call","call_id":"a1","operation":{"type":"update_file","path":"CANARY","diff":"+CANARY"},"status":"completed"},{"type":"apply_patch_call_output","call_id":"a1","status":"failed","output":"CANARY"}`),
		responses(`{"type":"computer_call","id":"k1","call_id":"a1","action":{"type":"type","text":"CANARY"},"pending_safety_checks":[],"status":"completed"},{"type":"computer_call_output","call_id":"a1","output":{"type":"computer_screenshot","image_url":"data:text/plain;base64,BASE64"}}`),
		responses(`{"type":"mcp_call","id":"m1","server_label":"s","name":"pay","arguments":"{\"to\":\"CANARY\"}","output":"CANARY"}`),
		responses(`{"type":"mcp_approval_request","id":"m1","server_label":"s","name":"pay","arguments":"{\"to\":\"CANARY\"}"}`),
		gemini(`"args":{"to":"CANARY","ESCAPED":1}`, `"response":{"result":"done"}`),
		gemini(`"args":{}`, `"response":{"error":"CANARY","more":{"CANARY":"ESCAPED"}},"parts":[{"inlineData":{"mimeType":"text/plain","data":"BASE64","displayName":"CANARY"}}]`),
	}
}

// Put writes the canary of a number into a text.
func Put(text string, n int) string {
	word := fmt.Sprintf("%s%02d", Word, n)
	return strings.NewReplacer(
		"CANARY", word, "ESCAPED", `zq\u0063an\u0061ry`+word[len(Word):], "BASE64", base64.StdEncoding.EncodeToString([]byte("the "+word+" is")),
	).Replace(text)
}

// Body is that of an append or of an import.
func (c Carrier) Body(messages string) []byte {
	return []byte(`{"tool_categories":{"pay":"wallet","kept_*":"general",` +
		`"shell":"files","local_shell":"files","apply_patch":"files","computer":"files"},"messages":[` + messages + `]}`)
}

// Absent looks for the canary in what was told, by where.
func Absent(t testing.TB, told map[string][]byte) {
	t.Helper()
	guises := []string{Word, `zq\u0063`}
	for _, pad := range []string{"", "x", "xx"} {
		b := base64.RawStdEncoding.EncodeToString([]byte(pad + Word))
		guises = append(guises, strings.ToLower(b[2:len(b)-2]))
	}
	for _, where := range slices.Sorted(maps.Keys(told)) {
		lower := bytes.ToLower(told[where])
		for _, guise := range guises {
			if at := bytes.Index(lower, []byte(guise)); at >= 0 {
				t.Errorf("%s holds a withheld value: …%s…", where, told[where][max(0, at-150):min(len(lower), at+150)])
				break
			}
		}
	}
}
