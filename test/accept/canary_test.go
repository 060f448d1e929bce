package accept

import (
	"bytes"
	"cmp"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"historyd/test/chatmodel"
)

// canary stands in arguments and results of tools, nowhere else, in any of its guises.
const canary = "zqcanary"

// A carrier is how a client writes a call and its result: with a CANARY, ESCAPED, or as BASE64.
type carrier struct{ format, messages string }

func carriers() []carrier {
	native := func(call, result string) carrier {
		return carrier{"native", `{"role":"assistant","content":[{"type":"tool_call","id":"a1","name":"pay",` + call + `}]},
			{"role":"tool","content":[{"type":"tool_result","call_id":"a1",` + result + `}]}`}
	}
	openai := func(calls, result string) carrier {
		return carrier{"openai", `{"role":"assistant","content":null,` + calls + `},` + result}
	}
	function := func(rest string) string { return `"tool_calls":[{"id":"a1","type":"function",` + rest + `}]` }
	done := `{"role":"tool","tool_call_id":"a1","content":"done"}`
	anthropic := func(call, result string) carrier {
		return carrier{"anthropic", `{"role":"assistant","content":[{"type":"tool_use","id":"a1","name":"pay",` + call + `}]},
			{"role":"user","content":[{"type":"tool_result","tool_use_id":"a1",` + result + `}]}`}
	}
	gemini := func(call, result string) carrier {
		return carrier{"gemini", `{"role":"model","parts":[{"functionCall":{"name":"pay",` + call + `}}]},
			{"role":"user","parts":[{"functionResponse":{"name":"pay",` + result + `}}]}`}
	}
	responses := func(items string) carrier { return carrier{"responses", items} }
	return []carrier{
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

// put writes the canary of a number into a text.
func put(text string, n int) string {
	word := fmt.Sprintf("%s%02d", canary, n)
	return strings.NewReplacer(
		"CANARY", word, "ESCAPED", `zq\u0063an\u0061ry`+word[len(canary):], "BASE64", base64.StdEncoding.EncodeToString([]byte("the "+word+" is")),
	).Replace(text)
}

// body is that of an append or of an import.
func (c carrier) body(messages string) []byte {
	return []byte(`{"tool_categories":{"pay":"wallet","kept_*":"general",` +
		`"shell":"files","local_shell":"files","apply_patch":"files","computer":"files"},"messages":[` + messages + `]}`)
}

// carry gives a daemon all carriers, whole, in pieces and as imports, and returns the conversations. What was answered
// is in told.
func carry(c caller, told map[string][]byte) (names []string) {
	t := c.d.t
	seen := map[string]bool{}
	for i, carrier := range carriers() {
		messages := put(carrier.messages, i)
		var pieces []json.RawMessage
		if err := json.Unmarshal([]byte("["+messages+"]"), &pieces); err != nil {
			t.Fatalf("%s: %v", messages, err)
		}
		for _, how := range []string{"whole", "pieces", "import"} {
			name := carrier.format + "-" + how
			if !seen[name] {
				seen[name] = true
				names = append(names, name)
			}
			path := "/v1/conversations/" + name
			c.turn(name, "harmless")
			var out []byte
			body := carrier.body(messages)
			switch {
			case how == "import":
				member := map[string]string{"responses": `"input":[`, "gemini": `"contents":[`, "native": `"version":1,"type":"historyd.history","messages":[`}
				body = bytes.Replace(body, []byte(`"messages":[`), []byte(cmp.Or(member[carrier.format], `"messages":[`)), 1)
				want := 201
				if strings.Contains(messages, "nobody") {
					want = 422
				}
				out = c.do(want, "POST", path+"/import?mode=append&format="+carrier.format, body)
			case how == "pieces" && !strings.Contains(messages, "kept_look"): // which is of one append by its nature
				for _, piece := range pieces {
					out = append(out, c.do(201, "POST", path+"/turns?format="+carrier.format, carrier.body(string(piece)))...)
				}
			default:
				out = c.do(201, "POST", path+"/turns?format="+carrier.format, body)
			}
			told[fmt.Sprint("the answer to carrier ", i, ", ", how)] = out
		}
	}
	return names
}

// absent looks for the canary in what was told, by where.
func absent(t *testing.T, told map[string][]byte) {
	t.Helper()
	guises := []string{canary, `zq\u0063`}
	for _, pad := range []string{"", "x", "xx"} {
		b := base64.RawStdEncoding.EncodeToString([]byte(pad + canary))
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

// present holds what was told to hold anything: where there is nothing, nothing is absent.
func present(t *testing.T, told map[string][]byte) {
	t.Helper()
	for what, text := range told {
		if what != "the log" && what != "the metrics" && !strings.HasPrefix(what, "the answer") && !strings.HasPrefix(what, "the fork") && !bytes.Contains(text, []byte("harmless")) {
			t.Errorf("%s holds nothing at all: %.200s", what, text)
		}
	}
}

// ask gathers all that is made of the record and can be asked for.
func ask(c caller, names []string, told map[string][]byte) {
	get := func(path string) { told[path] = c.do(200, "GET", path, nil) }
	for _, name := range names {
		path := "/v1/conversations/" + name
		get(path)
		get(path + "/messages?limit=1000")
		get(path + "/export?format=tar")
		get(path + "/export?format=jsonl")
		for _, format := range []string{"native", "openai", "anthropic", "responses", "gemini"} {
			get(path + "/export?format=" + format)
			get(path + "/replay?format=" + format)
			get(path + "/replay?mode=full&format=" + format)
		}
		told["the recall of "+name] = c.do(200, "POST", path+"/recall", []byte(`{"query":"what of harmless things","store":true}`))
		told["the fork of "+name] = c.do(201, "POST", path+"/fork", []byte(`{"to":"`+name+`-fork"}`))
		get(path + "-fork/export")
	}
	for _, sort := range []string{"best", "newest"} {
		get("/v1/search?q=harmless&limit=100&sort=" + sort)
	}
}

func TestWithheldValuesAreInNothingThatIsMadeOfARecord(t *testing.T) {
	t.Parallel()
	m := chatmodel.New(t, func(w http.ResponseWriter, c chatmodel.Chat) {
		chatmodel.Says(w, fmt.Sprint("They spoke of harmless things, ", c.Number, "."))
	})
	r := newRetriever(t)
	d, c := newSummarised(t, m)
	d.configure(recallOf("20s", r.memory("scoped", nil, "shared", true)))
	d.begin()
	r.finds("memory_search", "A harmless note.")
	told := map[string][]byte{}
	names := carry(c, told)
	for _, name := range names {
		c.fold(name, "harmless", "harmless", "harmless", "harmless")
	}
	await(t, "every conversation has words by the model", func() bool {
		done := true
		for _, name := range names {
			if !strings.HasPrefix(c.replay(name).summary(), "model: ") {
				done = false
				c.fold(name, "harmless", "harmless")
			}
		}
		return done
	})
	ask(c, names, told)
	for _, q := range []string{canary, canary + "*", canary + "07", `"the+` + canary + `10"`, "zq*", base64.RawURLEncoding.EncodeToString([]byte("the " + canary))} {
		if b := c.do(200, "GET", "/v1/search?q="+q, nil); !bytes.Contains(b, []byte(`"data":[],`)) {
			t.Errorf("a search for %s finds %s", q, b)
		}
		if out := c.ask("other", q+" or what"); strings.Contains(strings.ToLower(out.Text), canary) {
			t.Errorf("a recall of %s finds %s", q, out.Text)
		}
	}
	told["the metrics"] = c.do(200, "GET", "/metrics", nil)
	d.stop()
	told["the data directory"] = contents(t, d.dir)
	// Made anew, the index holds no more.
	if err := os.RemoveAll(filepath.Join(d.dir, "index")); err != nil {
		t.Fatal(err)
	}
	d.begin()
	told["a search of a new index"] = c.do(200, "GET", "/v1/search?q=harmless&limit=100", nil)
	d.stop()
	told["the new index"] = contents(t, filepath.Join(d.dir, "index"))
	told["the log"] = d.log()
	for _, chat := range m.Requests() {
		told["the requests to the model"] = append(told["the requests to the model"], chat.Raw...)
	}
	present(t, told)
	// The queries of the search above were asked of the server, too, but nothing else.
	for _, call := range r.calls() {
		if query := fmt.Sprint(call.Arguments["query"]); !strings.HasSuffix(query, " or what") {
			told["the calls of the server"] = append(told["the calls of the server"], query...)
		}
	}
	absent(t, told)
}
