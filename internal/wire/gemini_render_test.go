package wire

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"historyd/internal/history"
	"historyd/internal/projection"
	"historyd/test/judge"
)

// geminiShow is how the parts before a render prepare a history.
func geminiShow(msgs []history.Message) Show {
	repaired, _ := projection.RepairPairs(msgs)
	closed := projection.CloseTools(repaired, projection.Closure{Max: 1000})
	s := Show{Messages: closed.Messages}
	for _, d := range closed.Added {
		s.Added = append(s.Added, Declaration(d))
	}
	return s
}

func geminiJudged(t check, s Show) Shown {
	t.Helper()
	out := Render(Gemini, s)
	list := func(elements []byte) []byte {
		if elements == nil {
			return nil
		}
		return joined("[", elements, "]")
	}
	if complaints := judge.Check("gemini", joined("[", out.Messages, "]"), out.System, list(out.Tools)); complaints != nil {
		t.Fatalf("refused: %s\n[%s]\ntools [%s]", strings.Join(complaints, "\n"), out.Messages, out.Tools)
	}
	return out
}

// geminiHistory draws native messages, from this provider and from others, in any order.
func geminiHistory(t *rapid.T) []history.Message {
	pick := func(of ...string) string { return rapid.SampledFrom(of).Draw(t, "pick") }
	text := func() string { return pick("", " ", "x", "a\x00b", "<&>", "\U0001f389", "{\"a\":1}") }
	signature := func() string { return pick("", "", "AP/Y", "AP_Y", "*") }
	object := func() string {
		return pick(`{}`, `{"a":1}`, `{"k\u0000":"\u0000"}`, `{"n":1e400}`, `[]`, `null`, `"x"`)
	}
	id := func() string {
		return pick("a", "a", "b", "c|d:e", "gemini_0_f", strings.Repeat("x", 300), "é", "\x00")
	}
	mark := func() []byte {
		return []byte(pick(`null`, `null`, `{"thoughtSignature":"AP/Y","thought":true}`, `{"thoughtSignature":"AP_Y"}`, `{"_gemini":{"id":false}}`,
			`{"_gemini":{"response":"json"},"name":"other"}`, `{"videoMetadata":{"fps":1},"partMetadata":{"a":"\u0000"}}`, `{"text":"no","functionCall":{"name":"g"}}`))
	}
	media := func() history.Block {
		b := history.Block{MediaType: pick("image/png", "image/jpg", "image/gif", "application/pdf", "audio/wav", "video/mp4", "text/plain; charset=utf-8", "x", "")}
		b.Type = history.BlockType(pick("image", "document", "audio"))
		switch rapid.IntRange(0, 2).Draw(t, "how") {
		case 0:
			b.URL = pick("https://x.example/a.png", "gs://b/c", "ftp://x", "sha256:x", "http://")
		case 1:
			b.Attachment = history.AttachmentName(nil)
		case 2:
			b.SetData([]byte(pick("x", "png")))
		}
		return b
	}
	opaque := func() history.Block {
		return history.Block{Type: history.OpaqueBlock, Provider: pick("google", "google", "openai"), Opaque: []byte(pick(
			`{"executableCode":{"language":"PYTHON","code":"x"}}`, `{"executableCode":{"code":"x"}}`, `{"executableCode":7}`,
			`{"codeExecutionResult":{"outcome":"OUTCOME_OK"},"thoughtSignature":"AP_Y"}`, `{"serverToolCall":{"toolType":"T"},"thought":true}`,
			`{"serverToolResponse":{}}`, `{}`, `{"text":"x"}`, `{"functionCall":{"name":"f","args":{}}}`, `[]`, `{"thought":true}`,
			`{"executableCode":{"language":"PYTHON","code":"x"},"text":"y"}`, `{"serverToolCall":{},"serverToolResponse":{}}`))}
	}
	var msgs []history.Message
	for range rapid.IntRange(0, 12).Draw(t, "messages") {
		m := history.Message{Role: history.Role(pick("user", "assistant", "tool")), ID: fmt.Sprint(len(msgs)), Seq: int64(len(msgs) + 1)}
		if m.Role == history.User {
			m.Kind = history.Person
		}
		if m.Role == history.Assistant {
			m.Provider, m.Model = pick("google", "google", "openai", ""), pick("gemini-3-pro", "gemini-3-pro", "gpt", "")
		}
		for range rapid.IntRange(1, 3).Draw(t, "blocks") {
			var b history.Block
			switch kind := rapid.IntRange(0, 4).Draw(t, "kind"); {
			case m.Role == history.Tool && kind < 4:
				b = history.Block{Type: history.ToolResult, CallID: id(), IsError: rapid.Bool().Draw(t, "error")}
				for range rapid.IntRange(0, 2).Draw(t, "inner") {
					switch rapid.IntRange(0, 3).Draw(t, "what") {
					case 0:
						b.Content = append(b.Content, media())
					case 1:
						b.Content = append(b.Content, opaque())
					default:
						b.Content = append(b.Content, history.Text(text()))
					}
				}
			case m.Role == history.Tool || kind == 4:
				b = opaque()
			case kind == 0:
				b = media()
			case kind == 1 && m.Role == history.Assistant:
				b = history.Block{Type: history.ThinkingBlock, Text: text(), Signature: signature(), Encrypted: signature()}
			case kind > 1 && m.Role == history.Assistant:
				b = history.Block{Type: history.ToolCall, ID: id(), Name: pick("f", "g", "a.b", "", "1x", "-x", strings.Repeat("n", 300), "naïve"), Signature: signature()}
				b.Arguments = []byte(object())
				if rapid.IntRange(0, 4).Draw(t, "broken") == 0 {
					b.SetArguments("{\x00")
				}
			default:
				b = history.Text(text())
			}
			if extra := mark(); string(extra) != "null" {
				b.Extra = extra
			}
			m.Content = append(m.Content, b)
		}
		msgs = append(msgs, m)
	}
	return msgs
}

func TestGeminiTakesWhateverIsRendered(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		msgs := geminiHistory(t)
		s := geminiShow(msgs)
		s.Model = rapid.SampledFrom([]string{"", "gemini-3-pro", "other"}).Draw(t, "model")
		s.Summary = rapid.SampledFrom([]string{"", "before", "a\x00b"}).Draw(t, "summary")
		s.Authority = rapid.Bool().Draw(t, "authority")
		once := geminiJudged(t, s)
		if twice := Render(Gemini, s); !bytes.Equal(twice.Messages, once.Messages) || !bytes.Equal(twice.Tools, once.Tools) {
			t.Fatalf("rendered differently\n got %s\nwant %s", twice.Messages, once.Messages)
		}
		if rapid.Bool().Draw(t, "old") {
			s.Model = "models/gemini-2.5-flash" // for which the judge knows no rule of its own
			Render(Gemini, s)
		}
	})
}

// Whatever is exported can be imported, and is then what it was exported as.
func TestGeminiExportsWhatItReads(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		msgs := geminiHistory(t)
		if len(msgs) == 0 {
			return
		}
		out := encode(Gemini, msgs, ForExport)
		again, err := DecodeAppend(Gemini, []byte(`{"messages":`+out+`}`), 0)
		if err != nil {
			t.Fatalf("%v\n%s\nfrom %s", err, out, encode(Native, msgs, ForExport))
		}
		if twice := encode(Gemini, throughNative(t, again.Messages), ForExport); fmt.Sprint(numbered(twice)) != fmt.Sprint(numbered(out)) {
			t.Fatalf("exported again\n got %s\nwant %s", twice, out)
		}
	})
}

// Older contents are the same whatever is added, but for the last one, which may grow.
func TestGeminiRendersPrefixesOfWhatComesLater(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := geminiShow(geminiHistory(t))
		s.Model = "gemini-3-pro"
		whole := Render(Gemini, s).Messages
		cut := s
		end := rapid.IntRange(0, len(s.Messages)).Draw(t, "cut")
		for end < len(s.Messages) && s.Messages[end].Role == history.Tool {
			end++ // a call without its result is not repaired
		}
		cut.Messages = s.Messages[:end]
		got := Render(Gemini, cut).Messages
		if len(got) == 0 {
			return
		}
		if before := bytes.TrimSuffix(got, []byte("]}")); !bytes.HasPrefix(whole, before) {
			t.Fatalf("not the beginning\n got %s\nwant %s", got, whole)
		}
	})
}

// Every list of the corpus is one that the provider takes once it is repaired, and
// complete ones stay what they are.
func TestGeminiTakesItsOwnCorpus(t *testing.T) {
	for name, list := range corpus(t, Gemini) {
		t.Run(name, func(t *testing.T) {
			if name == "unknown_part" {
				t.Skip("the judge does not know what only the provider does")
			}
			geminiJudged(t, geminiShow(decodeAppend(t, Gemini, list)))
		})
	}
}

func TestGeminiRender(t *testing.T) {
	const (
		native = `{"type":"tool_call","id":"a","name":"f","arguments":{"x":1},"signature":"AP/Y"}`
		answer = `{"role":"tool","content":[{"type":"tool_result","call_id":"a","content":"r"}]}`
	)
	by := func(provider, model, content string) string {
		return `{"role":"assistant","provider":"` + provider + `","model":"` + model + `","content":[` + content + `]}`
	}
	hello := `{"role":"user","content":"hello"},`
	said := `{"role":"user","parts":[{"text":"hello"}]},`
	called := func(signature string) string {
		return `{"role":"model","parts":[{"functionCall":{"id":"a","name":"f","args":{"x":1}}` + signature + `}]},{"role":"user","parts":[{"functionResponse":{"id":"a","name":"f","response":{"result":"r"}}}]}`
	}
	png := base64.StdEncoding.EncodeToString([]byte("png"))
	image := `{"type":"image","media_type":"image/png","data":"` + png + `"}`
	for _, tt := range []struct {
		name, model, native, want string
		report                    Report
	}{
		{"an own signature", "gemini-3-pro", hello + by("google", "gemini-3-pro", native) + "," + answer, said + called(`,"thoughtSignature":"AP/Y"`), Report{}},
		{"a signature of another model", "gemini-3-pro", hello + by("google", "gemini-2.5-pro", native) + "," + answer, said + called(`,"thoughtSignature":"`+geminiUnsigned+`"`), Report{WithheldSignatures: 1}},
		{"a signature of another model for an older one", "models/gemini-2.5-flash", hello + by("google", "gemini-2.5-pro", native) + "," + answer, said + called(``), Report{WithheldSignatures: 1}},
		{"the model that answered last is asked", "", hello + by("google", "gemini-2.5-pro", native) + "," + answer, said + called(`,"thoughtSignature":"AP/Y"`), Report{}},
		{"the model begins", "m", by("openai", "gpt", `{"type":"text","text":"hi"}`), `{"role":"user","parts":[{"text":"` + geminiOpening + `"}]},{"role":"model","parts":[{"text":"hi"}]}`, Report{Inserted: 1}},
		{"the same role again", "m", hello + hello + by("google", "m", `{"type":"text","text":"a"}`) + "," + by("google", "m", `{"type":"text","text":"b"}`), `{"role":"user","parts":[{"text":"hello"},{"text":"hello"}]},{"role":"model","parts":[{"text":"a"},{"text":"b"}]}`, Report{Merged: 2}},
		{"results come before what is said, in the order of the calls", "gemini-2.5-pro", hello + by("google", "m", `{"type":"tool_call","id":"a","name":"f","arguments":{}},{"type":"tool_call","id":"b","name":"g","arguments":{}}`) +
			`,{"role":"tool","content":[{"type":"tool_result","call_id":"b","content":"2","is_error":true}]},{"role":"tool","content":[{"type":"tool_result","call_id":"a","content":"1"}]},{"role":"user","content":"next"}`,
			said + `{"role":"model","parts":[{"functionCall":{"id":"a","name":"f","args":{}}},{"functionCall":{"id":"b","name":"g","args":{}}}]},{"role":"user","parts":[{"functionResponse":{"id":"a","name":"f","response":{"result":"1"}}},` +
				`{"functionResponse":{"id":"b","name":"g","response":{"error":"2"}}},{"text":"next"}]}`, Report{Merged: 1}},
		{"an id for the second time", "gemini-2.5-pro", hello + by("google", "m", native) + "," + answer + "," + by("google", "m", native) + "," + answer,
			"", Report{MappedIDs: 1, WithheldSignatures: 2}},
		{"foreign thinking", "m", hello + by("anthropic", "claude", `{"type":"thinking","text":"hm","signature":"AAAA"},{"type":"text","text":"x"}`), said + `{"role":"model","parts":[{"text":"x"}]}`, Report{WithheldThinking: 1}},
		{"own thinking", "m", hello + by("google", "m", `{"type":"thinking","text":"hm","signature":"AP_Y"},{"type":"text","text":"x"}`), said + `{"role":"model","parts":[{"text":"hm","thought":true,"thoughtSignature":"AP/Y"},{"text":"x"}]}`, Report{}},
		{"nothing is left", "m", hello + by("openai", "gpt", `{"type":"thinking","text":"hm"}`) + "," + `{"role":"user","content":"next"}`, `{"role":"user","parts":[{"text":"hello"},{"text":"next"}]}`, Report{WithheldThinking: 1, DroppedEmpty: 1, Merged: 1}},
		{"media", "m", `{"role":"user","content":[` + image + `,{"type":"image","media_type":"image/gif","data":"AAAA"},{"type":"document","url":"https://x.example/a"},{"type":"document","media_type":"application/pdf","url":"https://x.example/a"}]}`,
			`{"role":"user","parts":[{"inlineData":{"mimeType":"image/png","data":"` + png + `"}},{"text":"[image: not shown here]"},{"text":"[document: not shown here]"},{"fileData":{"mimeType":"application/pdf","fileUri":"https://x.example/a"}}]}`, Report{DroppedMedia: 2}},
		{"media in a result", "gemini-3-pro", hello + by("google", "gemini-3-pro", native) + `,{"role":"tool","content":[{"type":"tool_result","call_id":"a","content":[{"type":"text","text":"r"},` + image + `]}]}`,
			said + strings.Replace(called(`,"thoughtSignature":"AP/Y"`), `{"result":"r"}`, `{"result":"r"},"parts":[{"inlineData":{"mimeType":"image/png","data":"`+png+`"}}]`, 1), Report{}},
		{"media in a result for an older model", "gemini-2.5-pro", hello + by("google", "gemini-2.5-pro", native) + `,{"role":"tool","content":[{"type":"tool_result","call_id":"a","content":[{"type":"text","text":"r"},` + image + `]}]}`,
			said + strings.Replace(called(`,"thoughtSignature":"AP/Y"`), `{"result":"r"}}}`, `{"result":"r"}}},{"inlineData":{"mimeType":"image/png","data":"`+png+`"}}`, 1), Report{MovedMedia: 1}},
		{"arguments that are no object", "gemini-2.5-pro", hello + by("google", "m", `{"type":"tool_call","id":"a","name":"f","arguments_text":"{"}`) + "," + answer, said + strings.Replace(called(``), `{"x":1}`, `{"_arguments":"{"}`, 1), Report{WrappedArguments: 1}},
		{"characters that nobody takes", "m", `{"role":"user","content":"a\u0000b"}`, `{"role":"user","parts":[{"text":"a` + "\uFFFD" + `b"}]}`, Report{ReplacedCharacters: 1}},
		{"an opaque block of another", "m", hello + by("openai", "gpt", `{"type":"opaque","provider":"openai","data":{"type":"x"}},{"type":"text","text":"x"}`), said + `{"role":"model","parts":[{"text":"x"}]}`, Report{WithheldOpaque: 1}},
		{"an own opaque block of no name", "m", hello + by("google", "m", `{"type":"opaque","provider":"google","data":{"":"x"}},{"type":"text","text":"x"}`), said + `{"role":"model","parts":[{"text":"x"}]}`, Report{WithheldOpaque: 1}},
		{"an own opaque block", "m", hello + by("google", "m", `{"type":"opaque","provider":"google","data":{"serverToolCall":{"toolType":"T"},"thoughtSignature":"AP_Y"}}`), said + `{"role":"model","parts":[{"toolCall":{"toolType":"T"},"thoughtSignature":"AP/Y"}]}`, Report{}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := Show{Messages: decodeAppend(t, Native, "["+tt.native+"]"), Model: tt.model}
			got := Render(Gemini, s)
			if tt.want != "" {
				sameJSON(t, "["+string(got.Messages)+"]", "["+tt.want+"]")
			}
			if got.Report != tt.report {
				t.Errorf("report %+v, want %+v", got.Report, tt.report)
			}
		})
	}
}

func TestGeminiSummaryAndTools(t *testing.T) {
	s := Show{Messages: decodeAppend(t, Native, `[{"role":"assistant","content":"hi"}]`), Summary: "before", Tools: []byte(` [ {"googleSearch":{}} ] `),
		Added: []Declaration{{Name: "z"}, {Name: "a.b", Refusal: "no"}, {Name: "1", Refusal: "no"}}}
	out := Render(Gemini, s)
	sameJSON(t, "["+string(out.Messages)+"]", `[{"role":"user","parts":[{"text":"before"}]},{"role":"model","parts":[{"text":"hi"}]}]`)
	n := naming{rule: geminiNames}
	digit, dotted := n.name("1"), n.name("a.b")
	sameJSON(t, "["+string(out.Tools)+"]", `[{"googleSearch":{}},{"functionDeclarations":[{"name":"`+digit+`","description":"no","parametersJsonSchema":{"type":"object"}},`+
		`{"name":"`+dotted+`","description":"no","parametersJsonSchema":{"type":"object"}},{"name":"z","parametersJsonSchema":{"type":"object"}}]}]`)
	if len(out.Refusals) != 2 || out.Refusals[0].Name != digit || out.Names[dotted] != "a.b" {
		t.Errorf("refusals %+v, names %v", out.Refusals, out.Names)
	}
	s.Authority, s.Messages = true, nil
	out = Render(Gemini, s)
	sameJSON(t, string(out.System), `{"parts":[{"text":"before"}]}`)
	if len(out.Messages) > 0 {
		t.Errorf("messages %s, want none", out.Messages)
	}
	s.Authority = false
	sameJSON(t, "["+string(Render(Gemini, s).Messages)+"]", `[{"role":"user","parts":[{"text":"before"}]}]`)
}

// An agent may stop at any message of a real conversation.
func TestGeminiTakesRealConversationsCutAnywhere(t *testing.T) {
	cuts := 0
	for _, msgs := range conversations(t) {
		msgs = slices.DeleteFunc(msgs, func(m history.Message) bool { return m.Role == history.System })
		step := 1
		if testing.Short() {
			step = 7
		}
		for end := 0; end <= len(msgs); end += step {
			cuts++
			out := geminiJudged(t, geminiShow(msgs[:end]))
			for _, m := range msgs[:end] {
				for _, b := range m.Content {
					if b.Type == history.TextBlock && b.Text != "" && !bytes.Contains(out.Messages, history.AppendString(nil, b.Text)) {
						t.Fatalf("lost: %q", b.Text)
					}
				}
			}
		}
	}
	if cuts < 1000 && !testing.Short() {
		t.Errorf("%d cuts, want many", cuts)
	}
}

// What is withheld leaves no copy of itself in what is kept beside it, in either spelling,
// and what is left can be exported, taken in again and shown.
func TestGeminiWithheldCallsLeaveNothing(t *testing.T) {
	policy, err := projection.New(projection.Options{Tools: []projection.Rule{{Match: "pay", Category: "wallet"}, {Match: "look", Category: "misc"}}})
	if err != nil {
		t.Fatal(err)
	}
	for _, list := range []string{
		`[{"role":"model","note":"hunter2","parts":[{"functionCall":{"name":"pay","args":{"pin":"hunter2"},"later":"hunter2"},"thoughtSignature":"aHVudGVyMg==","partMetadata":{"pin":"hunter2"}}]},
		{"role":"function","parts":[{"functionResponse":{"name":"pay","response":{"receipt":{"pin":"hunter2"}},"later":"hunter2"},"more":"hunter2"},{"text":"thanks"}]}]`,
		`[{"role":"model","parts":[{"function_call":{"id":"1","name":"pay","args":{"pin":"hunter2"}}},{"function_call":{"name":"look","args":{}}}]},
		{"role":"user","parts":[{"function_response":{"id":"1","name":"pay","response":{"output":"hunter2"},"parts":[{"inline_data":{"mime_type":"text/plain","data":"aHVudGVyMg=="}}]}},{"function_response":{"name":"look","response":{"a":"hunter2","b":1}}}]}]`,
		`[{"role":"user","parts":[{"functionResponse":{"name":"pay","response":{"error":"hunter2"}}}]}]`,
	} {
		kept, err := policy.Keep(decodeAppend(t, Gemini, list), projection.Request{})
		if err != nil {
			t.Fatal(err)
		}
		native, out := encode(Native, kept.Messages, ForExport), encode(Gemini, kept.Messages, ForExport)
		shown := geminiJudged(t, geminiShow(kept.Messages))
		for _, s := range []string{native, out, string(shown.Messages)} {
			if strings.Contains(s, "hunter2") || strings.Contains(s, "aHVudGVyMg") {
				t.Errorf("%s\nkept as %s", list, s)
			}
		}
		again := decodeAppend(t, Gemini, out)
		if got, want := shape(again), shape(kept.Messages); got != want {
			t.Errorf("%s\n got %s\nwant %s", out, got, want)
		}
	}
}

func FuzzGemini(f *testing.F) {
	for _, list := range corpus(f, Gemini) {
		f.Add([]byte(list))
	}
	f.Fuzz(func(t *testing.T, list []byte) {
		a, err := DecodeAppend(Gemini, joined(`{"messages":`, list, `}`), 1<<20)
		if err != nil {
			return
		}
		checkNative(t, a.Messages)
		out := encode(Gemini, throughNative(t, a.Messages), ForExport)
		again, err := DecodeAppend(Gemini, joined(`{"messages":`, out, `}`), 0)
		if err != nil {
			t.Fatalf("the export cannot be decoded: %v\n%s", err, out)
		}
		if twice := encode(Gemini, again.Messages, ForExport); twice != out {
			t.Fatalf("encoded again\n got %s\nwant %s", twice, out)
		}
		once := Render(Gemini, geminiShow(a.Messages))
		if twice := Render(Gemini, geminiShow(a.Messages)); !bytes.Equal(once.Messages, twice.Messages) {
			t.Fatalf("rendered differently\n got %s\nwant %s", twice.Messages, once.Messages)
		}
	})
}
