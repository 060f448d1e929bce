package wire

import (
	"encoding/base64"
	"slices"
	"strings"
	"testing"

	"historyd/internal/history"
	"historyd/internal/projection"
)

// A carrier is how a format brings calls and results of a tool. Wherever they say something
// it says CANARY.
type carrier struct {
	format   Format
	tool     string // by which something is said of it
	messages string
}

// carriers are all there are, each type of item and block once at the least.
var carriers = []carrier{
	{OpenAI, "look", `{"role":"assistant","content":null,"tool_calls":[{"id":"c","type":"function","function":{"name":"look","arguments":"{\"a\":\"CANARY\"}"}}]},{"role":"tool","tool_call_id":"c","content":"CANARY"}`},
	{OpenAI, "look", `{"role":"assistant","content":null,"tool_calls":[{"id":"c","type":"custom","custom":{"name":"look","input":"CANARY"}}]},{"role":"tool","tool_call_id":"c","content":[{"type":"text","text":"CANARY"}]}`},
	{OpenAI, "look", `{"role":"assistant","content":null,"function_call":{"name":"look","arguments":"CANARY"}},{"role":"function","name":"look","content":"CANARY"}`},
	{OpenAI, "search", `{"role":"assistant","content":"x","executed_tools":[{"index":0,"type":"search","arguments":"{\"q\":\"CANARY\"}","output":"CANARY","search_results":{"results":[{"title":"CANARY"}]}}]}`},
	{OpenAI, "pay", `{"role":"assistant","content":"x","mcp":[{"type":"mcp_call","name":"pay","arguments":"CANARY","output":"CANARY"}]}`},
	{Responses, "look", `{"type":"function_call","call_id":"c","name":"look","arguments":"CANARY"},{"type":"function_call_output","call_id":"c","output":"CANARY"}`},
	{Responses, "look", `{"type":"custom_tool_call","call_id":"c","name":"look","input":"CANARY"},{"type":"custom_tool_call_output","call_id":"c","output":[{"type":"input_text","text":"CANARY"}]}`},
	{Responses, "shell", `{"type":"shell_call","call_id":"c","action":{"commands":["CANARY"]}},{"type":"shell_call_output","call_id":"c","output":[{"stdout":"CANARY","stderr":"CANARY","outcome":{"type":"exit","exit_code":1}}]}`},
	{Responses, "local_shell", `{"type":"local_shell_call","id":"lsh_1","call_id":"c","status":"completed","action":{"type":"exec","command":["CANARY"],"env":{}}},{"type":"local_shell_call_output","id":"c","output":"CANARY"}`},
	{Responses, "apply_patch", `{"type":"apply_patch_call","call_id":"c","status":"completed","operation":{"type":"create_file","path":"CANARY","diff":"CANARY"}},{"type":"apply_patch_call_output","call_id":"c","status":"failed","output":"CANARY"}`},
	{Responses, "computer", `{"type":"computer_call","id":"cu_1","call_id":"c","status":"completed","pending_safety_checks":[{"id":"x","message":"CANARY"}],"action":{"type":"type","text":"CANARY"}},{"type":"computer_call_output","call_id":"c","output":{"type":"computer_screenshot","image_url":"data:image/png;base64,DATA"}}`},
	{Responses, "computer_use_preview", `{"type":"computer_call","call_id":"c","status":"completed","actions":[{"type":"type","text":"CANARY"}]},{"type":"computer_call_output","call_id":"c","output":{"type":"computer_screenshot","file_id":"CANARY"}}`},
	{Responses, "web_search", `{"type":"web_search_call","id":"ws_1","status":"completed","action":{"type":"search","query":"CANARY","sources":[{"type":"url","url":"CANARY"}]}}`},
	{Responses, "web_search_preview", `{"type":"web_search_call","id":"ws_1","status":"completed","action":{"type":"open_page","url":"CANARY"}}`},
	{Responses, "file_search", `{"type":"file_search_call","id":"fs_1","status":"completed","queries":["CANARY"],"results":[{"text":"CANARY"}]}`},
	{Responses, "code_interpreter", `{"type":"code_interpreter_call","id":"ci_1","status":"completed","container_id":"x","code":"CANARY","outputs":[{"type":"logs","logs":"CANARY"},{"type":"image","url":"CANARY"}]}`},
	{Responses, "image_generation", `{"type":"image_generation_call","id":"ig_1","status":"completed","action":"generate","revised_prompt":"CANARY","result":"DATA"}`},
	{Responses, "image_generation", `{"type":"image_generation_call","id":"ig_1","status":"generating","revised_prompt":"CANARY","result":null}`},
	{Responses, "tool_search", `{"type":"tool_search_call","id":"tsc_1","call_id":"c","execution":"server","arguments":{"q":"CANARY"},"status":"completed"},{"type":"tool_search_output","id":"tso_1","call_id":"c","execution":"server","status":"completed","tools":[{"type":"function","name":"f","description":"CANARY"}]}`},
	{Responses, "programmatic_tool_calling", `{"type":"program","id":"p_1","call_id":"c","code":"CANARY","fingerprint":"f"},{"type":"program_output","id":"po_1","call_id":"c","result":"CANARY","status":"completed"}`},
	{Responses, "pay", `{"type":"mcp_call","id":"mcp_1","server_label":"s","name":"pay","arguments":"{\"a\":\"CANARY\"}","output":"CANARY"}`},
	{Responses, "pay", `{"type":"mcp_approval_request","id":"mcpr_1","server_label":"s","name":"pay","arguments":"{\"a\":\"CANARY\"}"},{"type":"mcp_approval_response","approval_request_id":"mcpr_1","approve":false,"reason":"CANARY"}`},
	{Anthropic, "look", `{"role":"assistant","content":[{"type":"tool_use","id":"c","name":"look","input":{"a":"CANARY"}}]},{"role":"user","content":[{"type":"tool_result","tool_use_id":"c","content":[{"type":"text","text":"CANARY"},{"type":"image","source":{"type":"base64","media_type":"image/png","data":"DATA"}},{"type":"search_result","source":"CANARY","title":"t","content":[]}]}]}`},
	{Anthropic, "web_search", `{"role":"assistant","content":[{"type":"server_tool_use","id":"srvtoolu_1","name":"web_search","input":{"query":"CANARY"}},{"type":"web_search_tool_result","tool_use_id":"srvtoolu_1","content":[{"type":"web_search_result","url":"CANARY","title":"CANARY","encrypted_content":"x"}]}]}`},
	{Anthropic, "web_fetch", `{"role":"assistant","content":[{"type":"server_tool_use","id":"srvtoolu_1","name":"web_fetch","input":{"url":"CANARY"}}]},{"role":"assistant","content":[{"type":"web_fetch_tool_result","tool_use_id":"srvtoolu_1","content":{"type":"web_fetch_result","url":"CANARY","content":{"type":"document","source":{"type":"text","media_type":"text/plain","data":"CANARY"}}}}]}`},
	{Anthropic, "code_execution", `{"role":"assistant","content":[{"type":"server_tool_use","id":"srvtoolu_1","name":"code_execution","input":{"code":"CANARY"}},{"type":"code_execution_tool_result","tool_use_id":"srvtoolu_1","content":{"type":"code_execution_result","stdout":"CANARY","stderr":"","return_code":0,"content":[]}}]}`},
	{Anthropic, "code_execution", `{"role":"assistant","content":[{"type":"server_tool_use","id":"srvtoolu_1","name":"bash_code_execution","input":{"command":"CANARY"}},{"type":"bash_code_execution_tool_result","tool_use_id":"srvtoolu_1","content":{"type":"bash_code_execution_result","stdout":"CANARY"}}]}`},
	{Anthropic, "text_editor_code_execution", `{"role":"assistant","content":[{"type":"server_tool_use","id":"srvtoolu_1","name":"text_editor_code_execution","input":{"command":"CANARY"}},{"type":"text_editor_code_execution_tool_result","tool_use_id":"srvtoolu_1","content":{"content":"CANARY"}}]}`},
	{Anthropic, "tool_search", `{"role":"assistant","content":[{"type":"server_tool_use","id":"srvtoolu_1","name":"tool_search_tool_regex","input":{"pattern":"CANARY"}},{"type":"tool_search_tool_result","tool_use_id":"srvtoolu_1","content":{"tool_references":[{"type":"tool_reference","tool_name":"CANARY"}]}}]}`},
	{Anthropic, "advisor", `{"role":"assistant","content":[{"type":"server_tool_use","id":"srvtoolu_1","name":"advisor","input":{"q":"CANARY"}},{"type":"advisor_tool_result","tool_use_id":"srvtoolu_1","content":{"text":"CANARY"}}]}`},
	{Anthropic, "pay", `{"role":"assistant","content":[{"type":"mcp_tool_use","id":"m","name":"pay","server_name":"s","input":{"a":"CANARY"}},{"type":"mcp_tool_result","tool_use_id":"m","is_error":false,"content":[{"type":"text","text":"CANARY"}]}]}`},
	{Gemini, "look", `{"role":"model","parts":[{"functionCall":{"name":"look","args":{"a":"CANARY"}}}]},{"role":"user","parts":[{"functionResponse":{"name":"look","response":{"a":"CANARY"},"parts":[{"inlineData":{"mimeType":"image/png","data":"DATA"}}]}}]}`},
	{Gemini, "code_execution", `{"role":"model","parts":[{"executableCode":{"language":"PYTHON","code":"CANARY"}},{"codeExecutionResult":{"outcome":"OUTCOME_OK","output":"CANARY"}},{"inlineData":{"mimeType":"image/png","data":"DATA"}},{"text":"x"}]}`},
	{Gemini, "codeExecution", `{"role":"model","parts":[{"executable_code":{"id":"a","language":"PYTHON","code":"CANARY"}}]},{"role":"model","parts":[{"code_execution_result":{"id":"a","outcome":"OUTCOME_OK","output":"CANARY"}}]}`},
	{Gemini, "google_search", `{"role":"model","parts":[{"toolCall":{"id":"a","toolType":"GOOGLE_SEARCH_WEB","args":{"q":"CANARY"}}}]},{"role":"user","parts":[{"toolResponse":{"id":"a","response":{"a":"CANARY"}}}]}`},
	{Gemini, "url_context", `{"role":"model","parts":[{"toolCall":{"id":"a","toolType":"URL_CONTEXT","args":{"q":"CANARY"}}},{"toolResponse":{"id":"a","toolType":"URL_CONTEXT","response":{"a":"CANARY"}}}]}`},
	{Native, "look", `{"role":"assistant","content":[{"type":"tool_call","id":"c","name":"look","arguments":{"a":"CANARY"}}]},{"role":"tool","content":[{"type":"tool_result","call_id":"c","content":"CANARY"}]}`},
	{Native, "image_generation", `{"role":"assistant","content":[{"type":"image","data":"DATA","extra":{"type":"image_generation_call","id":"ig_1","revised_prompt":"CANARY"}}]}`},
	{Native, "pay", `{"role":"assistant","content":[{"type":"text","text":"x","extra":{"notes":[{"type":"mcp_call","name":"pay","arguments":"CANARY"}]}}]}`},
	{Native, "look", `{"role":"assistant","content":[{"type":"tool_call","id":"c","name":"look","arguments":{}}]},{"role":"tool","content":[{"type":"tool_result","call_id":"c","content":[{"type":"image","data":"DATA","extra":{"type":"image_generation_call"}}]}]}`},
}

// silent are types of items that bring neither a call nor a result.
var silent = []string{
	"compaction", "compaction_trigger", "item_reference", "mcp_list_tools", "additional_tools", "configuration_update",
}

// clientRuns are calls that a format has, or that servers get: nobody knows them unless something is said.
func (c *carrier) clientRuns() bool {
	return slices.Contains([]string{"look", "pay", "shell", "local_shell", "apply_patch", "computer", "computer_use_preview"}, c.tool)
}

func TestNoCarrierBringsWithheldToolsPast(t *testing.T) {
	const secret = "CANARY in the bytes"
	data := base64.StdEncoding.EncodeToString([]byte("\x89PNG\x00" + secret))
	for _, c := range carriers {
		t.Run(string(c.format)+"/"+c.tool, func(t *testing.T) {
			a, err := DecodeAppend(c.format, []byte(`{"messages":[`+strings.ReplaceAll(c.messages, "DATA", data)+`]}`), 0)
			if err != nil {
				t.Fatal(err)
			}
			for _, tt := range []struct {
				name string
				o    projection.Options
				said map[string]string
				kept bool
			}{
				{"the server's category", projection.Options{Tools: []projection.Rule{{Match: c.tool, Category: "files"}}}, map[string]string{"*": "general"}, false},
				{"the request's category", projection.Options{UnknownTools: "keep"}, map[string]string{strings.ToUpper(c.tool): "wallet", "*": "general"}, false},
				{"by the beginning of the name", projection.Options{Tools: []projection.Rule{{Match: c.tool[:3] + "*", Category: "files"}}}, map[string]string{"*": "general"}, false},
				{"nobody knows it", projection.Options{}, nil, !c.clientRuns()},
				{"another category", projection.Options{}, map[string]string{"*": "general"}, true},
			} {
				policy, err := projection.New(tt.o)
				if err != nil {
					t.Fatal(err)
				}
				kept, err := policy.Keep(a.Messages, projection.Request{Categories: tt.said})
				if err != nil {
					t.Fatal(err)
				}
				var disk strings.Builder
				for i := range kept.Messages {
					disk.Write(history.AppendMessage(nil, &kept.Messages[i]))
					kept.Messages[i].MediaBlocks(func(b *history.Block) { disk.Write(b.Data) })
				}
				if got := strings.Contains(disk.String(), "CANARY"); got != tt.kept {
					t.Errorf("%s: CANARY is kept: %v, want %v\nchanges %+v\n%q", tt.name, got, tt.kept, kept.Changes, disk.String())
				}
				if !tt.kept && len(kept.Changes) == 0 {
					t.Errorf("%s: nothing is told", tt.name)
				}
			}
		})
	}
}

func TestEveryTypeOfHostedItemHasACarrier(t *testing.T) {
	types := slices.Concat(hostedItems, []string{"image_generation_call"})
	for i := range doings {
		types = append(types, doings[i].item, doings[i].item+answer)
	}
	for _, kind := range types {
		carried := slices.ContainsFunc(carriers, func(c carrier) bool {
			return c.format == Responses && strings.Contains(c.messages, `"type":"`+kind+`"`)
		})
		if carried == slices.Contains(silent, kind) {
			t.Errorf("%s: has a carrier: %v", kind, carried)
		}
	}
	for _, part := range geminiData {
		if strings.Contains(part, "all") || strings.Contains(part, "Response") || strings.Contains(part, "ode") {
			if !slices.ContainsFunc(carriers, func(c carrier) bool { return c.format == Gemini && strings.Contains(c.messages, `"`+part+`"`) }) {
				t.Errorf("%s: has no carrier", part)
			}
		}
	}
}
