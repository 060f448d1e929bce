package wire

import (
	"bytes"
	"encoding/json/jsontext"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"historyd/internal/history"
	"historyd/internal/projection"
	"historyd/internal/strictjson"
)

// drawAnthropicBlocks draws blocks of one message, sane ones and others.
func drawAnthropicBlocks(t *rapid.T, role history.Role) []history.Block {
	text := rapid.SampledFrom([]string{"x", "x", "y ", "", " ", "\n\t", "a\x00b", "é🎉"})
	id := rapid.SampledFrom([]string{"a", "b", "a", "call_x|fc:1", "ü", strings.Repeat("i", 900)})
	opaque := func(data ...string) history.Block {
		return history.Block{
			Type: history.OpaqueBlock, Provider: rapid.SampledFrom([]string{"anthropic", "anthropic", "openai"}).Draw(t, "by"),
			Opaque: jsontext.Value(rapid.SampledFrom(data).Draw(t, "data")),
		}
	}
	media := func() history.Block {
		b := history.Block{
			Type:      rapid.SampledFrom([]history.BlockType{history.ImageBlock, history.DocumentBlock, history.AudioBlock}).Draw(t, "medium"),
			MediaType: rapid.SampledFrom([]string{"", "image/png", "image/tiff", "application/pdf", "text/plain"}).Draw(t, "media type"),
		}
		if rapid.Bool().Draw(t, "inline") {
			b.SetData([]byte(rapid.SampledFrom([]string{"x", "\xff", "\x00"}).Draw(t, "bytes")))
		} else {
			b.URL = rapid.SampledFrom([]string{"https://e.example", "gs://e"}).Draw(t, "url")
		}
		return b
	}
	block := func(t *rapid.T) history.Block {
		switch kind := rapid.IntRange(0, 7).Draw(t, "kind"); {
		case role == history.Tool:
			b := history.Block{Type: history.ToolResult, CallID: id.Draw(t, "id"), IsError: rapid.Bool().Draw(t, "error")}
			for range rapid.IntRange(0, 3).Draw(t, "inner") {
				switch rapid.IntRange(0, 3).Draw(t, "inner kind") {
				case 0:
					b.Content = append(b.Content, media())
				case 1:
					b.Content = append(b.Content, opaque(`{"type":"tool_reference","tool_name":"f"}`, `{"type":"tool_reference","tool_name":"nobody"}`,
						`{"type":"search_result","source":"s","title":"t","content":[{"type":"text","text":"x"}]}`, `{"type":"search_result"}`))
				default:
					b.Content = append(b.Content, history.Text(text.Draw(t, "text")))
				}
			}
			b.Plain = len(b.Content) == 1 && b.Content[0].Type == history.TextBlock
			return b
		case kind < 3:
			return history.Text(text.Draw(t, "text"))
		case kind == 3:
			return media()
		case role != history.Assistant:
			return opaque(`{"type":"container_upload","file_id":"f"}`, `{"type":"container_upload"}`, `{"type":"image","source":{"type":"file","file_id":"f"}}`,
				`{"type":"document","source":{"type":"content","content":" "}}`, `{"type":"server_tool_use","id":"srvtoolu_1","name":"web_search","input":{}}`, `"x"`, `{"type":"text","text":""}`)
		case kind == 4:
			return history.Block{Type: history.ThinkingBlock, Text: text.Draw(t, "thought"), Signature: rapid.SampledFrom([]string{"s", "s2", "s3", ""}).Draw(t, "signature")}
		case kind == 5:
			return history.Block{Type: history.ThinkingBlock, Encrypted: "e"}
		case kind == 6:
			return opaque(`{"type":"server_tool_use","id":"srvtoolu_1","name":"web_search","input":{}}`, `{"type":"web_search_tool_result","tool_use_id":"srvtoolu_1","content":[]}`, `{"type":"web_fetch_tool_result","tool_use_id":"srvtoolu_1","content":{"type":"x"}}`,
				`{"type":"web_search_tool_result","tool_use_id":"srvtoolu_1","content":[{"type":"web_search_result","url":"u","title":"t"}]}`,
				`{"type":"server_tool_use","id":"srvtoolu_2","name":"web_fetch","input":{},"cache_control":null}`, `{"type":"web_fetch_tool_result","tool_use_id":"srvtoolu_2","content":{"type":"web_fetch_result"}}`,
				`{"type":"mcp_tool_use","id":"a","name":"n","server_name":"s","input":{}}`, `{"type":"mcp_tool_result","tool_use_id":"a","content":[{"type":"text","text":"x"}]}`,
				`{"type":"compaction","content":"x"}`, `{"type":"compaction","content":""}`, `{"type":"container_upload","file_id":"f"}`, `{"type":"refusal","refusal":"no"}`, `null`)
		}
		b := history.Block{Type: history.ToolCall, ID: id.Draw(t, "id"), Name: rapid.SampledFrom([]string{"f", "f", "f.g", "", strings.Repeat("n", 300)}).Draw(t, "name")}
		b.SetArguments(rapid.SampledFrom([]string{"{}", ` {"a": 1.0}`, "[1]", "{", "", `{"a":"\u0000"}`}).Draw(t, "arguments"))
		return b
	}
	return rapid.SliceOfN(rapid.Custom(block), 1, 4).Draw(t, "blocks")
}

func drawAnthropicHistory(t *rapid.T) []history.Message {
	var msgs []history.Message
	for seq := range int64(rapid.IntRange(0, 10).Draw(t, "messages")) {
		m := history.Message{Seq: seq + 1, Role: rapid.SampledFrom([]history.Role{history.User, history.Assistant, history.Assistant, history.Tool, history.Tool}).Draw(t, "role")}
		m.Content = drawAnthropicBlocks(t, m.Role)
		if m.Role == history.Assistant {
			m.Provider = rapid.SampledFrom([]string{"anthropic", "anthropic", "openai"}).Draw(t, "provider")
			m.Model = rapid.SampledFrom([]string{"m", "m", "n"}).Draw(t, "model")
		}
		msgs = append(msgs, m)
	}
	return msgs
}

func showAnthropic(msgs []history.Message) Show {
	s := Show{Messages: msgs, Provider: "anthropic", Model: "m", Summary: "so far"}
	for _, name := range []string{"f", "f.g", "", strings.Repeat("n", 300)} {
		s.Added = append(s.Added, Declaration{Name: name})
	}
	return s
}

// betweenThinking is what is left of the judge's complaints but for blank texts between
// blocks of thinking, which go back as they came.
func betweenThinking(complaints []string, out Shown) []string {
	if !bytes.Contains(out.Messages, []byte(`"type":"thinking"`)) && !bytes.Contains(out.Messages, []byte(`"type":"redacted_thinking"`)) {
		return complaints
	}
	return slices.DeleteFunc(complaints, func(c string) bool { return strings.Contains(c, "is blank, beside no other text") })
}

func TestWhateverHappenedAnthropicAcceptsIt(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		msgs, _ := projection.RepairPairs(drawAnthropicHistory(t))
		s := showAnthropic(msgs)
		s.Authority = rapid.Bool().Draw(t, "authority")
		out := Render(Anthropic, s)
		if why := betweenThinking(refusals(Anthropic, out), out); len(why) > 0 && (len(out.Messages) > 0 || s.Summary == "") {
			t.Fatalf("refused: %q\n%s\nof %s", why, out.Messages, encode(Native, msgs, ForExport))
		}
		if again := Render(Anthropic, s); !bytes.Equal(again.Messages, out.Messages) || again.Report != out.Report {
			t.Fatalf("twice is not the same\n%s\n%s", out.Messages, again.Messages)
		}
		checkThinking(t, msgs, out)
		checkPrefixes(t, s, out)
	})
}

// checkThinking wants the thinking of an answer to be there as it was, or not at all.
func checkThinking(t *rapid.T, msgs []history.Message, out Shown) {
	var had []string
	for i := range msgs {
		for j := range msgs[i].Content {
			if b := &msgs[i].Content[j]; b.Type == history.ThinkingBlock && msgs[i].Provider == "anthropic" && msgs[i].Model == "m" {
				var o object
				exportThinking(&o, b)
				had = append(had, string(o.dst))
			}
		}
	}
	for _, m := range elements(out.Messages) {
		for _, b := range memberNamed(m, "content").Elements() {
			if typ := textOf(b.Raw, "type"); typ != "thinking" && typ != "redacted_thinking" {
				continue
			}
			at := slices.Index(had, string(b.Raw))
			if at < 0 {
				t.Fatalf("thinking that was not there, or not in this order: %s\n%s", b.Raw, out.Messages)
			}
			had = had[at+1:]
		}
	}
}

func elements(list []byte) []jsontext.Value {
	var all []jsontext.Value
	for _, e := range (strictjson.Value{Raw: slices.Concat([]byte{'['}, list, []byte{']'})}).Elements() {
		all = append(all, e.Raw)
	}
	return all
}

// checkPrefixes wants what was shown before to be the beginning of what is shown now,
// but for its last message, and where the result of a provider's tool came later.
func checkPrefixes(t *rapid.T, s Show, out Shown) {
	all := elements(out.Messages)
	for n := range s.Messages {
		if s.Messages[n].Role == history.Tool {
			continue
		}
		part := s
		part.Messages = s.Messages[:n]
		then := Render(Anthropic, part)
		if then.Report.MovedHosted < out.Report.MovedHosted {
			continue
		}
		shown := elements(then.Messages)
		for i := range shown {
			if i < len(shown)-1 && (i >= len(all) || !bytes.Equal(shown[i], all[i])) {
				t.Fatalf("message %d of %d messages changes\n%s\n%s", i, n, shown[i], out.Messages)
			}
		}
	}
}

// Real conversations, cut at every message: each is one that Anthropic takes, and all
// that was said is in it.
func TestRealConversationsCutAnywhereAnthropicAccepts(t *testing.T) {
	for number, msgs := range conversations(t) {
		msgs = slices.DeleteFunc(msgs, func(m history.Message) bool { return m.Role == history.System })
		step := 1
		if testing.Short() || number >= 30 {
			step = 7
		}
		for n := len(msgs); n > 0; n -= step {
			repaired, _ := projection.RepairPairs(msgs[:n])
			s := Show{Messages: repaired}
			for _, d := range projection.CloseTools(repaired, projection.Closure{}).Added {
				s.Added = append(s.Added, Declaration(d))
			}
			out := Render(Anthropic, s)
			if why := refusals(Anthropic, out); len(why) > 0 {
				t.Fatalf("conversation %d, %d messages: %q", number, n, why)
			}
			if out.Report.DroppedEmpty != 0 {
				continue
			}
			for i := range repaired {
				for j := range repaired[i].Content {
					if b := &repaired[i].Content[j]; b.Type == history.ToolCall && !bytes.Contains(out.Messages, inputOf(b)) {
						t.Fatalf("conversation %d: arguments are lost: %s", number, b.Arguments)
					}
				}
			}
		}
	}
}

func BenchmarkRenderAnthropic(b *testing.B) {
	var text, full []history.Message
	for seq := int64(1); seq <= 20; seq++ {
		m := history.Message{ID: "01JDZZZZZZZZZZZZZZZZZZZZZZ", Seq: seq, Role: history.User, Kind: history.Person, Status: history.Complete}
		m.Content = []history.Block{history.Text(strings.Repeat("some words of a talk. ", 20))}
		if seq%2 == 0 {
			m.Role, m.Kind, m.Model, m.Provider = history.Assistant, "", "m", "anthropic"
		}
		text = append(text, m)
		switch seq % 4 {
		case 2:
			m.Content = append(m.Content, history.Block{Type: history.ToolCall, ID: "call_0", Name: "lookup", Arguments: []byte(`{"order":2512292042121000001}`)})
		case 3:
			m.Role, m.Kind = history.Tool, ""
			m.Content = []history.Block{{Type: history.ToolResult, CallID: "call_0", Plain: true, Content: m.Content}}
		}
		full = append(full, m)
	}
	for _, bb := range []struct {
		name string
		f    Format
		msgs []history.Message
	}{{"native-text", Native, text}, {"anthropic-text", Anthropic, text}, {"anthropic-full", Anthropic, full}} {
		b.Run(bb.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				Render(bb.f, Show{Messages: bb.msgs})
			}
		})
	}
}

// Whatever native clients write, a render of it is one that Anthropic takes.
func FuzzRenderAnthropic(f *testing.F) {
	for _, list := range corpus(f, Anthropic) {
		f.Add([]byte(encode(Native, decodeAppend(f, Anthropic, list), ForExport)))
	}
	for _, msg := range goldenMessages(f, Native) {
		f.Add([]byte("[" + msg + "]"))
	}
	f.Fuzz(func(t *testing.T, list []byte) {
		a, err := DecodeAppend(Native, []byte(`{"messages":`+string(list)+`}`), 1<<20)
		if err != nil {
			return
		}
		msgs, _ := projection.RepairPairs(a.Messages)
		s := Show{Messages: msgs, Summary: "so far"}
		for _, d := range projection.CloseTools(msgs, projection.Closure{Max: 1 << 20}).Added {
			s.Added = append(s.Added, Declaration(d))
		}
		out := Render(Anthropic, s)
		why := slices.DeleteFunc(betweenThinking(refusals(Anthropic, out), out), func(c string) bool {
			// What nobody knows goes back to its provider.
			return strings.Contains(c, "is no type that") || strings.Contains(c, "is no member") || strings.Contains(c, "must be one of [\"web_search")
		})
		if len(why) > 0 {
			t.Fatalf("refused: %q\n%s", why, out.Messages)
		}
	})
}
