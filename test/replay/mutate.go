package replay

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"

	"historyd/internal/history"
	"historyd/internal/wire"
)

// A Mutator lets go wrong in a record what can.
type Mutator struct {
	rng  *rand.Rand
	said int
	msgs []history.Message
}

// Mutate returns a record like the conversation, in which things went wrong. The same
// seed always does the same. Each text that is said, and each result, has a mark of
// its own; Said and Results find them.
func Mutate(seed uint64, msgs []history.Message) []history.Message {
	m := &Mutator{rng: rand.New(rand.NewPCG(seed, 1))}
	for i := range msgs {
		c := msgs[i]
		c.Content = slices.Clone(c.Content)
		m.msgs = append(m.msgs, c)
	}
	for _, step := range []func(){
		m.shorten, m.batch, m.arguments, m.mix, m.say, m.media, m.results, m.results, m.results, m.names, m.ids, m.front,
	} {
		step()
	}
	m.mark()
	return number(m.msgs)
}

// shorten keeps what is said and answered readable.
func (m *Mutator) shorten() {
	for i := range m.msgs {
		for j := range m.msgs[i].Content {
			switch b := &m.msgs[i].Content[j]; {
			case b.Type == history.TextBlock:
				b.Text = short(b.Text)
			case b.Type == history.ToolResult && b.Plain:
				b.Content = []history.Block{history.Text(short(b.Content[0].Text))}
			case b.Type == history.ToolCall && len(b.Arguments) > 60:
				b.Arguments, b.ArgumentsText = []byte(`{"n":1.0}`), nil
			}
		}
	}
}

func short(text string) string { return strings.ToValidUTF8(text[:min(len(text), 40)], "") }

// one is true once in n times.
func (m *Mutator) one(n int) bool { return m.rng.IntN(n) == 0 }

// calls visits some of the calls, each once in n times.
func (m *Mutator) calls(n int, visit func(msg *history.Message, b *history.Block)) {
	m.blocks(history.ToolCall, n, visit)
}

func (m *Mutator) blocks(kind history.BlockType, n int, visit func(msg *history.Message, b *history.Block)) {
	for i := range m.msgs {
		for j := range m.msgs[i].Content {
			if m.msgs[i].Content[j].Type == kind && m.one(n) {
				visit(&m.msgs[i], &m.msgs[i].Content[j])
			}
		}
	}
}

// batch lets calls of some neighbours be made at once: two messages of calls and two
// of results become calls first, results after them, in any order.
func (m *Mutator) batch() {
	for i := 0; i+3 < len(m.msgs); i++ {
		a, b := &m.msgs[i], &m.msgs[i+2]
		if len(a.Calls()) == 0 || len(b.Calls()) == 0 || m.msgs[i+1].Role != history.Tool || m.msgs[i+3].Role != history.Tool || m.one(3) {
			continue
		}
		m.msgs[i+1], m.msgs[i+2] = m.msgs[i+2], m.msgs[i+1]
		if m.one(2) {
			m.msgs[i+2], m.msgs[i+3] = m.msgs[i+3], m.msgs[i+2]
		}
		if m.one(2) {
			a.Content = append(a.Content, m.msgs[i+1].Content...)
			m.msgs = slices.Delete(m.msgs, i+1, i+2)
			if m.one(3) {
				m.msgs[i+1].Content = append(m.msgs[i+1].Content, m.msgs[i+2].Content...)
				m.msgs = slices.Delete(m.msgs, i+2, i+3)
			}
		}
	}
}

// arguments makes some of another kind, and withholds some.
func (m *Mutator) arguments() {
	m.calls(4, func(_ *history.Message, b *history.Block) {
		b.ArgumentsText = nil
		switch m.rng.IntN(6) {
		case 0:
			broken := `{"a": 1, "b` + strings.Repeat(`\u00e4`, m.rng.IntN(3))
			b.Arguments, b.ArgumentsText = nil, &broken
		case 1:
			b.Arguments = []byte(`[1,2.50,"x"]`)
		case 2:
			b.Arguments = []byte(`{"n":2512292042121000001,"z":1.0,"a":1E5,"html":"<a&b>","low":"\ud83d\ude00","zero":"a\u0000b"}`)
		case 3:
			b.Arguments = []byte(`{"_withheld":"wallet"}`)
			b.Redacted = &history.Redaction{Category: "wallet", Reason: "policy"}
		case 4:
			empty := ""
			b.Arguments, b.ArgumentsText = nil, &empty
		case 5:
			b.Arguments = []byte(`null`)
		}
	})
	m.blocks(history.ToolResult, 6, func(_ *history.Message, b *history.Block) {
		switch m.rng.IntN(5) {
		case 0:
			b.Content, b.Redacted = []history.Block{history.Text("[withheld: wallet]")}, &history.Redaction{Category: "wallet", Reason: "policy"}
		case 1:
			b.IsError = true
		case 2:
			b.Content, b.Plain = []history.Block{history.Text("one"), history.Text(""), history.Text("two\x00")}, false
		case 3:
			b.Content, b.Plain = []history.Block{history.Text("x"), m.picture()}, false
		case 4:
			b.Content, b.Plain = []history.Block{history.Text([]string{"", " \n"}[m.rng.IntN(2)])}, true
		}
	})
}

// foreign are messages as each provider has them, in its own format. TEXT is said.
var foreign = map[wire.Format][]string{
	wire.OpenAI: {
		`{"role":"assistant","content":null,"refusal":"TEXT"}`,
		`{"role":"assistant","content":[{"type":"text","text":"TEXT"},{"type":"refusal","refusal":"TEXT"}],"annotations":[]}`,
		`{"role":"user","content":[{"type":"text","text":"TEXT"},{"type":"file","file":{"file_id":"file_1"}}],"name":"ann"}`,
		`{"role":"assistant","content":"TEXT","reasoning_content":"hm"}`,
		`{"role":"assistant","content":null,"function_call":{"name":"old_look","arguments":"{}"}},{"role":"function","name":"old_look","content":"seen"}`,
		`{"role":"assistant","content":null,"function_call":{"name":"old_look","arguments":"{}"}}`,
		`{"role":"assistant","content":null,"tool_calls":[{"id":"cu","type":"custom","custom":{"name":"run_text","input":"free text"}}]},{"role":"tool","tool_call_id":"cu","content":"ran"}`,
		`{"role":"system","content":"Be brief."}`,
	},
	wire.Responses: {
		`{"type":"reasoning","id":"rs_N","summary":[{"type":"summary_text","text":"hm"}],"encrypted_content":"gAAA"},{"type":"message","id":"msg_N","role":"assistant","status":"completed","phase":"final_answer","content":[{"type":"output_text","text":"TEXT","annotations":[]}]}`,
		`{"type":"reasoning","id":"rs_N","summary":[]},{"type":"function_call","id":"fc_N","call_id":"r_N","name":"look","arguments":"{}"},{"type":"function_call_output","call_id":"r_N","output":"seen"}`,
		`{"type":"reasoning","id":"rs_N","summary":[],"encrypted_content":"gAAA"}`,
		`{"type":"reasoning","id":"rs_N","summary":[]},{"type":"web_search_call","id":"ws_N","status":"completed","action":{"type":"search","query":"q"}},{"type":"message","id":"msg_N","role":"assistant","status":"incomplete","content":[{"type":"refusal","refusal":"TEXT"}]}`,
		`{"type":"reasoning","id":"rs_N","summary":[],"encrypted_content":"gAAA"},{"type":"code_interpreter_call","id":"ci_N","status":"completed","container_id":"x","code":"1","outputs":null},{"type":"web_search_call","id":"ws_N","status":"completed","action":{"type":"search","query":"q"}},{"type":"image_generation_call","id":"ig_N","status":"completed","result":"iVBORw0KGgo="}`,
		`{"type":"reasoning","id":"rs_N","summary":[],"encrypted_content":"gAAA"},{"type":"image_generation_call","id":"ig_N","status":"completed","result":"iVBORw0KGgo="},{"type":"mcp_call","id":"mcp_N","server_label":"s","name":"n","arguments":"{}","output":"x"}`,
		`{"role":"user","content":[{"type":"input_text","text":"TEXT"},{"type":"input_image","detail":"auto","image_url":"https://example.org/a.png"}]}`,
		`{"type":"custom_tool_call","call_id":"r_N","name":"run_text","input":"free text"}`,
		`{"type":"compaction","id":"cmp_N","encrypted_content":"gAAA"}`,
	},
	wire.Anthropic: {
		`{"role":"assistant","content":[{"type":"thinking","thinking":"hm","signature":"c2ln"},{"type":"text","text":"TEXT","citations":[]}]}`,
		`{"role":"assistant","content":[{"type":"redacted_thinking","data":"c2ln"},{"type":"tool_use","id":"toolu_N","name":"look","input":{"n":1.0}}]},{"role":"user","content":[{"type":"tool_result","tool_use_id":"toolu_N","content":[{"type":"text","text":"seen"},{"type":"image","source":{"type":"url","url":"https://example.org/a.png"}}]},{"type":"text","text":"TEXT"}]}`,
		`{"role":"assistant","content":[{"type":"thinking","thinking":"hm","signature":"c2ln"}]}`,
		`{"role":"assistant","content":[{"type":"server_tool_use","id":"srvtoolu_N","name":"web_search","input":{"query":"q"}},{"type":"web_search_tool_result","tool_use_id":"srvtoolu_N","content":[]},{"type":"text","text":"TEXT"}]}`,
		`{"role":"assistant","content":[{"type":"text","text":"TEXT"},{"type":"server_tool_use","id":"srvtoolu_N","name":"web_search","input":{"query":"q"}}]}`,
		`{"role":"assistant","content":[{"type":"server_tool_use","id":"srvtoolu_N","name":"web_search","input":{"query":"q"}},{"type":"tool_use","id":"toolu_N","name":"look","input":{}}]},{"role":"user","content":[{"type":"tool_result","tool_use_id":"toolu_N","content":"seen"}]},{"role":"assistant","content":[{"type":"web_search_tool_result","tool_use_id":"srvtoolu_N","content":[]},{"type":"text","text":"TEXT"}]}`,
		`{"role":"user","content":[{"type":"document","source":{"type":"text","media_type":"text/plain","data":"words"},"title":"t"},{"type":"text","text":"TEXT"}]}`,
	},
	wire.Gemini: {
		`{"role":"model","parts":[{"text":"hm","thought":true},{"text":"TEXT","thoughtSignature":"AP/Y"}]}`,
		`{"role":"model","parts":[{"functionCall":{"name":"look","args":{}},"thoughtSignature":"AP/Y"},{"functionCall":{"name":"look","args":{"n":2}}}]},{"role":"user","parts":[{"functionResponse":{"name":"look","response":{"result":"seen"}}},{"functionResponse":{"name":"look","response":{"a":1}}}]}`,
		`{"role":"model","parts":[{"executableCode":{"language":"PYTHON","code":"1"}},{"codeExecutionResult":{"outcome":"OUTCOME_OK","output":"1"}},{"text":"TEXT"}]}`,
		`{"role":"user","parts":[{"text":"TEXT"},{"inlineData":{"mimeType":"image/png","data":"AAAA"}},{"fileData":{"fileUri":"gs://b/v","mimeType":"video/mp4"}}]}`,
		`{"role":"model","parts":[{"text":"","thoughtSignature":"AP/Y"}]}`,
	},
}

// mix puts in messages that other providers and models made.
func (m *Mutator) mix() {
	for range m.rng.IntN(5) {
		f := Formats[m.rng.IntN(len(Formats))]
		if !f.Messages() {
			continue
		}
		m.said++
		text := strings.ReplaceAll(foreign[f][m.rng.IntN(len(foreign[f]))], "_N", fmt.Sprintf("_%d", m.said))
		msgs, err := Decode(f, "["+strings.ReplaceAll(text, "TEXT", "words of another")+"]")
		if err != nil {
			panic(fmt.Sprintf("a message of %s: %v", f, err))
		}
		if m.one(4) {
			for i := range msgs {
				if msgs[i].Role == history.Assistant {
					msgs[i].Model = "model-2"
				}
			}
		}
		at := m.rng.IntN(len(m.msgs) + 1)
		m.msgs = slices.Insert(m.msgs, at, msgs...)
	}
	if m.one(4) {
		b := history.Block{Type: history.ThinkingBlock, Text: "unsigned thoughts"}
		at := m.rng.IntN(len(m.msgs))
		m.msgs = slices.Insert(m.msgs, at, history.Message{Role: history.Assistant, Status: history.Incomplete, Model: Model, Content: []history.Block{b}})
	}
}

// say makes some texts such as providers refuse.
func (m *Mutator) say() {
	m.blocks(history.TextBlock, 8, func(_ *history.Message, b *history.Block) {
		switch m.rng.IntN(5) {
		case 0:
			b.Text = ""
		case 1:
			b.Text = " \n\t"
		case 2:
			b.Text += " \n"
		case 3:
			b.Text += "\x00 and \u2028 <b>"
		case 4:
			b.Text = "x\u00a0"
		}
	})
	if m.one(3) {
		at := m.rng.IntN(len(m.msgs) + 1)
		m.msgs = slices.Insert(m.msgs, at, history.Message{Role: history.Assistant, Status: history.Complete, Model: Model, Provider: "openai"})
	}
	if m.one(3) {
		at := m.rng.IntN(len(m.msgs) + 1)
		m.msgs = slices.Insert(m.msgs, at, history.Message{Role: history.User, Kind: history.Reference, Status: history.Complete, Content: []history.Block{history.Text("recalled")}})
	}
}

// picture is an image, a document or a sound, with or without its bytes.
func (m *Mutator) picture() history.Block {
	b := history.Block{
		Type:      []history.BlockType{history.ImageBlock, history.DocumentBlock, history.AudioBlock}[m.rng.IntN(3)],
		MediaType: []string{"image/png", "image/tiff", "application/pdf", "text/plain", "audio/wav", "audio/ogg", ""}[m.rng.IntN(7)],
	}
	if m.one(2) {
		b.Filename = "a file.bin"
	}
	switch m.rng.IntN(4) {
	case 0:
		b.SetData([]byte{0x89, 'P', 'N', 'G', byte(m.rng.IntN(256))})
	case 1:
		b.SetData([]byte{byte(m.rng.IntN(256))})
		b.Data = nil
	case 2:
		b.URL = []string{"https://example.org/a", "sha256:x", "gs://b/a", "file:///etc/x"}[m.rng.IntN(4)]
	case 3:
		b.SetData([]byte("plain words"))
	}
	return b
}

// media puts some into what users said.
func (m *Mutator) media() {
	for i := range m.msgs {
		if m.msgs[i].Role == history.User && m.one(6) {
			at := m.rng.IntN(len(m.msgs[i].Content) + 1)
			m.msgs[i].Content = slices.Insert(m.msgs[i].Content, at, m.picture())
		}
	}
}

// results loses one, doubles one, or puts one elsewhere.
func (m *Mutator) results() {
	var at []int
	for i := range m.msgs {
		if len(m.msgs[i].Answers()) > 0 && m.msgs[i].Role == history.Tool {
			at = append(at, i)
		}
	}
	if len(at) == 0 {
		return
	}
	i := at[m.rng.IntN(len(at))]
	msg := m.msgs[i]
	msg.Content = slices.Clone(msg.Content)
	switch m.rng.IntN(6) {
	case 0:
		m.msgs = slices.Delete(m.msgs, i, i+1)
	case 1:
		to := i + m.rng.IntN(len(m.msgs)-i)
		m.msgs = slices.Insert(m.msgs, to, msg)
	case 2: // later
		m.msgs = slices.Delete(m.msgs, i, i+1)
		m.msgs = slices.Insert(m.msgs, i+m.rng.IntN(len(m.msgs)-i+1), msg)
	case 3: // earlier
		m.msgs = slices.Delete(m.msgs, i, i+1)
		m.msgs = slices.Insert(m.msgs, m.rng.IntN(i+1), msg)
	case 4: // of a call that nobody made
		msg.Content[0].CallID = "nobody"
		m.msgs = slices.Insert(m.msgs, m.rng.IntN(len(m.msgs)+1), msg)
	case 5:
		m.msgs[i].Content = append(slices.Clone(msg.Content), msg.Content[0])
	}
}

// illegal are names that one provider or another refuses.
var illegal = []string{
	"", "files.read", "read file", "läsa", "📄", "9lives", "-x", strings.Repeat("n", 300), strings.Repeat("n", 65), "a/../b", "x\x00y", "\n",
	"files_read", `"quoted"`,
}

func (m *Mutator) names() {
	if !m.one(2) {
		return
	}
	m.calls(2, func(_ *history.Message, b *history.Block) { b.Name = illegal[m.rng.IntN(len(illegal))] })
}

// ids makes them all equal, or such as another provider has.
func (m *Mutator) ids() {
	style := m.rng.IntN(4)
	if style == 0 {
		return
	}
	given := map[string]string{}
	rename := func(id string) string {
		if given[id] == "" {
			n := len(given)
			switch style {
			case 1:
				given[id] = "call_0"
			case 2:
				given[id] = fmt.Sprintf("call_%d|fc_%s", n, strings.Repeat("f", 60))
			case 3:
				given[id] = []string{"a:%d", "functions.look:%d", "é%d", "%d", "call %d"}[n%5]
				given[id] = fmt.Sprintf(given[id], n)
			}
		}
		return given[id]
	}
	m.calls(1, func(_ *history.Message, b *history.Block) { b.ID = rename(b.ID) })
	m.blocks(history.ToolResult, 1, func(_ *history.Message, b *history.Block) { b.CallID = rename(b.CallID) })
}

// front cuts the beginning off, as a window does, and the end, as a crash does.
func (m *Mutator) front() {
	if m.one(3) {
		m.msgs = m.msgs[m.rng.IntN(len(m.msgs)):]
	}
	if m.one(2) {
		m.msgs = m.msgs[:1+m.rng.IntN(len(m.msgs))]
	}
}
