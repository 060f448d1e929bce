package wire

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"historyd/internal/history"
)

// importable wants what an export in each format writes to be a document of that format.
func importable(t check, msgs []history.Message) {
	t.Helper()
	for _, f := range providerFormats() {
		out := encode(f, msgs, ForExport)
		if _, err := DecodeDocument(f, false, []byte(out), 0); err != nil {
			t.Fatalf("%s: the export cannot be imported: %v\n%s\nof %s", f, err, out, encode(Native, msgs, ForExport))
		}
	}
}

func TestWhatIsExportedCanBeImportedWhereverItCameFrom(t *testing.T) {
	for _, from := range providerFormats() {
		for name, list := range corpus(t, from) {
			t.Run(string(from)+"/"+name, func(t *testing.T) { importable(t, decodeAppend(t, from, list)) })
		}
	}
	for i, msg := range goldenMessages(t, Native) {
		t.Run(fmt.Sprint("native/", i), func(t *testing.T) {
			if a, err := DecodeAppend(Native, []byte(`{"messages":[`+msg+`]}`), 0); err == nil {
				importable(t, a.Messages)
			}
		})
	}
}

// A member that is unknown in one format may be known in another, and of another kind.
func TestUnknownMembersOfOneFormatDoNotSpoilAnother(t *testing.T) {
	members := `"id":{"a":1},"status":[2],"phase":3,"name":4,"refusal":[5],"audio":6,"annotations":7,"model":8,"more":9`
	for f, list := range map[Format]string{
		Gemini:    `[{"role":"user","parts":[{"text":"x"}],` + members + `},{"role":"model","parts":[{"text":"y"}],` + members + `}]`,
		Anthropic: `[{"role":"user","content":"x",` + members + `},{"role":"assistant","content":"y",` + strings.Replace(members, `"model":8`, `"model":"m"`, 1) + `}]`,
	} {
		t.Run(string(f), func(t *testing.T) { importable(t, decodeAppend(t, f, list)) })
	}
}

// natively draws a block of a message of that role, or of a result.
func natively(t *rapid.T, role string, opaque []any, extras []any) map[string]any {
	kinds := map[string][]string{
		"user": {"text", "image", "document", "audio", "opaque"}, "system": {"text", "opaque"},
		"assistant": {"text", "image", "document", "audio", "opaque", "thinking", "tool_call"},
		"tool":      {"tool_result", "opaque"}, "result": {"text", "image", "document", "audio", "opaque"},
	}[role]
	kind := rapid.SampledFrom(kinds).Draw(t, "type")
	b := map[string]any{"type": kind}
	text := rapid.SampledFrom([]string{"", "x", "{\"a\":1}", "\x00", "fc_1", strings.Repeat("long ", 20)})
	maybe := func(name string, v ...string) {
		if rapid.Bool().Draw(t, name+" is there") {
			b[name] = rapid.SampledFrom(v).Draw(t, name)
		}
	}
	switch kind {
	case "text":
		b["text"] = text.Draw(t, "text")
	case "thinking":
		b["text"] = text.Draw(t, "text")
		maybe("signature", "sig", "c2ln")
		maybe("encrypted", "e")
	case "tool_call":
		b["id"], b["name"] = rapid.SampledFrom([]string{"c", "function_call", strings.Repeat("i", 900)}).Draw(t, "id"), text.Draw(t, "name")
		if rapid.Bool().Draw(t, "as text") {
			b["arguments_text"] = rapid.SampledFrom([]string{"", "free", " {}", "[1]"}).Draw(t, "arguments")
		} else {
			b["arguments"] = anything(3).Draw(t, "arguments")
		}
		maybe("signature", "sig", "c2ln")
	case "tool_result":
		b["call_id"] = rapid.SampledFrom([]string{"c", "function_call"}).Draw(t, "id")
		b["is_error"] = rapid.Bool().Draw(t, "error")
		if rapid.Bool().Draw(t, "plain") {
			b["content"] = text.Draw(t, "content")
			break
		}
		inner := []any{}
		for range rapid.IntRange(0, 3).Draw(t, "inner") {
			inner = append(inner, natively(t, "result", opaque, extras))
		}
		b["content"] = inner
	case "opaque":
		b["provider"] = rapid.SampledFrom([]string{"openai", "anthropic", "google", "other"}).Draw(t, "provider")
		b["data"] = rapid.SampledFrom(opaque).Draw(t, "data")
	default:
		maybe("media_type", "image/png", "application/pdf", "audio/wav", "audio/x y", "", "odd")
		maybe("filename", "f.pdf", "", "\x00")
		switch rapid.IntRange(0, 2).Draw(t, "where") {
		case 0:
			b["data"] = rapid.SampledFrom([]string{"aGVsbG8=", "/w=="}).Draw(t, "data")
		case 1:
			b["url"] = rapid.SampledFrom([]string{"https://example.org/x", "x:", "gs://b/o"}).Draw(t, "url")
		default:
			b["attachment"] = history.AttachmentName([]byte("elsewhere"))
		}
	}
	if rapid.Bool().Draw(t, "extra is there") {
		b["extra"] = rapid.SampledFrom(extras).Draw(t, "extra")
	}
	return b
}

func TestWhatIsExportedCanBeImported(t *testing.T) {
	var opaque, extras []any
	for _, f := range providerFormats() {
		for _, name := range slices.Sorted(maps.Keys(corpus(t, f))) {
			pool, _ := gather(numbered(corpus(t, f)[name]), nil, nil)
			opaque = append(opaque, pool...)
			for _, m := range decodeAppend(t, f, corpus(t, f)[name]) {
				pool, _ := gather(numbered(string(history.AppendMessage(nil, &m))), nil, nil)
				for _, v := range pool {
					if v, ok := v.(map[string]any); ok {
						if e, ok := v["extra"].(map[string]any); ok {
							extras = append(extras, e)
						}
					}
				}
			}
		}
	}
	taken := 0
	rapid.Check(t, func(t *rapid.T) {
		var msgs []any
		for range rapid.IntRange(1, 3).Draw(t, "messages") {
			role := rapid.SampledFrom([]string{"user", "assistant", "tool", "system"}).Draw(t, "role")
			var content []any
			for range rapid.IntRange(1, 3).Draw(t, "blocks") {
				content = append(content, natively(t, role, opaque, extras))
			}
			m := map[string]any{"role": role, "content": content}
			if rapid.Bool().Draw(t, "extra is there") {
				m["extra"] = rapid.SampledFrom(extras).Draw(t, "extra")
			}
			if one, err := json.Marshal(m); err == nil {
				if _, err := DecodeAppend(Native, []byte(`{"messages":[`+string(one)+`]}`), 0); err == nil {
					msgs = append(msgs, m)
				}
			}
		}
		if msgs == nil {
			return
		}
		doc, err := json.Marshal(map[string]any{"version": 1, "type": "historyd.history", "messages": msgs})
		if err != nil {
			t.Fatal(err)
		}
		d, err := DecodeDocument(Native, false, doc, 0)
		if err != nil {
			return
		}
		taken++
		importable(t, d.Messages)
	})
	if taken == 0 {
		t.Error("nothing was taken in")
	}
}

// What a native client put where the provider has no such block comes in again.
func TestABlockIsExportedAsWhatMayStandThere(t *testing.T) {
	importable(t, decodeAppend(t, Native, `[{"role":"system","content":[{"type":"opaque","provider":"anthropic","data":{"type":"document","source":{"type":"file","file_id":"f"}}}]},
		{"role":"user","content":[{"type":"opaque","provider":"anthropic","data":{"type":"redacted_thinking","data":"x"}}]}]`))
}
