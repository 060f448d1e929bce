package projection

import (
	"encoding/json/jsontext"
	"strings"
	"testing"

	"historyd/internal/history"
)

// What Gemini runs itself has its names in other places than a name or a type.
func TestToolsOfGeminiFollowTheirCategories(t *testing.T) {
	for _, tt := range []struct {
		name, data string
		categories map[string]string
		kept       bool
	}{
		{"code", `{"executableCode":{"language":"PYTHON","code":"CANARYabcd"}}`, map[string]string{"code_execution": "files"}, false},
		{"what code gave", `{"codeExecutionResult":{"outcome":"OUTCOME_OK","output":"CANARYabcd"}}`, map[string]string{"code_execution": "files"}, false},
		{"a search", `{"serverToolCall":{"id":"x","toolType":"GOOGLE_SEARCH_WEB","args":{"a":"CANARYabcd"}}}`, map[string]string{"google_search_web": "files"}, false},
		{"what a search gave", `{"serverToolResponse":{"id":"x","toolType":"GOOGLE_SEARCH_WEB","response":{"a":"CANARYabcd"}}}`, map[string]string{"google_search_web": "files"}, false},
		{"by the server's own rule", `{"serverToolCall":{"id":"x","toolType":"wallet_send","args":{"a":"CANARYabcd"}}}`, nil, false},
		{"a search without its name", `{"serverToolCall":{"id":"x","args":{"a":"CANARYabcd"}}}`, nil, false},
		{"what no call of this request gave", `{"serverToolResponse":{"id":"x","response":{"a":"CANARYabcd"}}}`, map[string]string{"google_search_web": "files"}, false},
		{"the same, spelt otherwise", `{"tool_response":{"id":"x","response":{"a":"CANARYabcd"}}}`, nil, false},
		{"what a search gave, as nobody says anything of it", `{"serverToolResponse":{"id":"x","toolType":"GOOGLE_SEARCH_WEB","response":{"a":"CANARYabcd"}}}`, nil, true},
		{"a part that nobody knows, by its tool", `{"futureCall":{"toolName":"wallet_send","params":{"a":"CANARYabcd"}}}`, nil, false},
		{"the same with its tool in another place", `{"future_call":{"step":{"tool":"Wallet_Send","parameters":{"a":"CANARYabcd"}}}}`, nil, false},
		{"the same by what the request says", `{"futureCall":{"functionName":"pay","payload":"CANARYabcd"}}`, map[string]string{"pay": "wallet"}, false},
		{"a call of a type that nobody knows", `{"type":"future_call","tool":"wallet_send","params":{"a":"CANARYabcd"}}`, nil, false},
		{"a thing with a name", `{"type":"future","name":"wallet_send","a":"CANARYabcd"}`, nil, true},
		{"a part that nobody knows, of a tool without a category", `{"futureCall":{"toolName":"search","params":{"a":"CANARYabcd"}}}`, nil, true},
		{"a declaration of a tool", `{"futureTools":[{"name":"wallet_send","description":"CANARYabcd","inputSchema":{}}]}`, nil, true},
		{"another declaration", `{"futureTools":[{"name":"wallet_send","description":"CANARYabcd","parameters":{"type":"object","properties":{}}}]}`, nil, true},
		{"nobody says anything of it", `{"executableCode":{"language":"PYTHON","code":"CANARYabcd"}}`, nil, true},
	} {
		p, err := New(Options{Tools: []Rule{{"wallet_*", "wallet"}}})
		if err != nil {
			t.Fatal(err)
		}
		m := history.Message{Role: history.Assistant, Status: history.Complete, Content: []history.Block{
			history.Text("said"), {Type: history.OpaqueBlock, Provider: "google", Opaque: jsontext.Value(tt.data)},
		}}
		kept, err := p.Keep([]history.Message{m}, Request{Categories: tt.categories})
		if err != nil {
			t.Fatal(err)
		}
		line := string(history.AppendMessage(nil, &kept.Messages[0]))
		if got := strings.Contains(line, "CANARY"); got != tt.kept || !tt.kept && len(kept.Changes) == 0 {
			t.Errorf("%s: kept %s, changes %+v", tt.name, line, kept.Changes)
		}
	}
}
