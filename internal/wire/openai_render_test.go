package wire

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"historyd/internal/history"
	"historyd/internal/projection"
	"historyd/test/judge"
)

// showing is how the parts before a render prepare a history.
func showing(msgs []history.Message) Show {
	said := slices.DeleteFunc(slices.Clone(msgs), func(m history.Message) bool { return m.Role == history.System })
	repaired, _ := projection.RepairPairs(said)
	closed := projection.CloseTools(repaired, projection.Closure{Max: 1000})
	s := Show{Messages: closed.Messages}
	for _, d := range closed.Added {
		s.Added = append(s.Added, Declaration(d))
	}
	return s
}

// judged renders, and wants the provider to take it.
func judged(t check, f Format, s Show) Shown {
	t.Helper()
	out := Render(f, s)
	var tools []byte
	if out.Tools != nil {
		tools = joined("[", out.Tools, "]")
	}
	if complaints := judge.Check(string(f), joined("[", out.Messages, "]"), out.System, tools); complaints != nil {
		t.Fatalf("%s refuses: %s\n[%.4000s]\nsystem %.400s\ntools %.2000s", f, strings.Join(complaints, "\n"), out.Messages, out.System, tools)
	}
	return out
}

func TestEveryProviderTakesEveryDocumentOfTheOthers(t *testing.T) {
	// What only a provider knows goes back to it, and the judge does not know it.
	novel := []string{"white_space_between", "key_order", "unknown_blocks", "unknown_part"}
	for _, from := range providerFormats() {
		for name, list := range corpus(t, from) {
			s := showing(decodeAppend(t, from, list))
			for _, to := range providerFormats() {
				if from == to && slices.Contains(novel, name) {
					continue
				}
				t.Run(fmt.Sprintf("%s/%s as %s", from, name, to), func(t *testing.T) {
					if judged(t, to, s); len(s.Messages) > 0 && s.Messages[0].Role == history.User {
						s.Summary = "Once\x00upon"
						judged(t, to, s)
						s.Authority = true
						judged(t, to, s)
					}
				})
			}
		}
	}
}

// poolOf lists the messages of all corpora.
func poolOf(t testing.TB) []history.Message {
	t.Helper()
	var pool []history.Message
	for _, f := range providerFormats() {
		lists := corpus(t, f)
		for _, name := range slices.Sorted(maps.Keys(lists)) {
			a, err := DecodeAppend(f, []byte(`{"messages":`+lists[name]+`}`), 0)
			if err != nil {
				t.Fatal(err)
			}
			pool = append(pool, a.Messages...)
		}
	}
	return pool
}

// fromElsewhere returns messages without what only the provider that made it knows: that
// goes back to it as it is, and no judge knows it either.
func fromElsewhere(msgs []history.Message) []history.Message {
	msgs = slices.Clone(msgs)
	for i := range msgs {
		m := &msgs[i]
		if m.Provider != "" {
			m.Provider = "elsewhere"
		}
		m.Content = slices.Clone(m.Content)
		for j := range m.Content {
			b := &m.Content[j]
			b.Content = slices.Clone(b.Content)
			for _, inner := range append([]*history.Block{b}, pointers(b.Content)...) {
				if inner.Type == history.OpaqueBlock {
					inner.Provider = "elsewhere"
				}
			}
		}
	}
	return msgs
}

func pointers(blocks []history.Block) (all []*history.Block) {
	for i := range blocks {
		all = append(all, &blocks[i])
	}
	return all
}

func TestEveryProviderTakesAnyMixture(t *testing.T) {
	pool := poolOf(t)
	rapid.Check(t, func(t *rapid.T) {
		msgs := rapid.SliceOfN(rapid.SampledFrom(pool), 0, 12).Draw(t, "messages")
		for i := range msgs {
			msgs[i].Seq = int64(i + 1)
		}
		s := showing(fromElsewhere(msgs))
		for _, f := range providerFormats() {
			judged(t, f, s)
		}
	})
}

func TestOpenAITakesWhateverIsRendered(t *testing.T) {
	pool := poolOf(t)
	rapid.Check(t, func(t *rapid.T) {
		var msgs []history.Message
		if rapid.Bool().Draw(t, "native") {
			msgs = geminiHistory(t)
		} else {
			for i := range rapid.IntRange(0, 12).Draw(t, "messages") {
				m := rapid.SampledFrom(pool).Draw(t, "message")
				m.Seq = int64(i + 1)
				msgs = append(msgs, m)
			}
		}
		s := showing(msgs)
		s.Summary = rapid.SampledFrom([]string{"", "before", "a\x00b"}).Draw(t, "summary")
		s.Authority = rapid.Bool().Draw(t, "authority")
		once := judged(t, OpenAI, s)
		if twice := Render(OpenAI, s); !bytes.Equal(twice.Messages, once.Messages) || !bytes.Equal(twice.Tools, once.Tools) {
			t.Fatalf("rendered differently\n got %s\nwant %s", twice.Messages, once.Messages)
		}
		n := rapid.IntRange(0, len(s.Messages)).Draw(t, "before")
		if n > 0 && s.Messages[n-1].Role == history.Assistant && len(s.Messages[n-1].Calls()) > 0 {
			return // its results are not there yet
		}
		if n < len(s.Messages) && s.Messages[n].Role == history.Tool {
			return
		}
		s.Model = s.target(openAIProvider).model
		s.Messages = s.Messages[:n]
		if before := Render(OpenAI, s); !bytes.HasPrefix(once.Messages, before.Messages) {
			t.Fatalf("not what it was before\n got %s\nwant %s", once.Messages, before.Messages)
		}
	})
}

func TestOpenAIRender(t *testing.T) {
	const png = "data:image/png;base64,iVBORw0K"
	long := strings.Repeat("x", 41)
	for _, tt := range []struct {
		name, in, want, report string
		show                   Show
	}{
		{name: "text", in: `[{"role":"user","content":"hi","name":"ann"},{"role":"assistant","content":"ho","annotations":[{}]}]`,
			want: `{"role":"user","content":"hi","name":"ann"},{"role":"assistant","content":"ho"}`},
		{name: "a name that is none", in: `[{"role":"user","content":"hi","name":"ann\u2003lee"},{"role":"user","content":"hi","name":"a\u0000"}]`,
			want: `{"role":"user","content":"hi"},{"role":"user","content":"hi"}`},
		{name: "NUL", in: `[{"role":"user","content":"a\u0000b"}]`, want: `{"role":"user","content":"a�b"}`, report: `,"replaced_characters":1`},
		{name: "markers of the cache", in: `[{"role":"user","content":[{"type":"text","text":"a","prompt_cache_breakpoint":{}},{"type":"file","file":{"file_id":"f","x":1},"prompt_cache_breakpoint":{}}]}]`,
			want: `{"role":"user","content":[{"type":"text","text":"a"},{"type":"file","file":{"file_id":"f"}}]}`},
		{name: "calls", in: `[{"role":"assistant","content":[],"tool_calls":[{"id":"c","type":"function","function":{"name":"f","arguments":" {\"a\":1.0}"},"extra_content":{"google":{"thought_signature":"AAAA"}}},` +
			`{"id":"d","type":"custom","custom":{"name":"g","input":"ls"}}]},{"role":"tool","tool_call_id":"d","content":"2"},{"role":"tool","tool_call_id":"c","content":[]}]`,
			want: `{"role":"assistant","content":null,"tool_calls":[{"id":"c","type":"function","function":{"name":"f","arguments":" {\"a\":1.0}"}},{"id":"d","type":"custom","custom":{"name":"g","input":"ls"}}]},` +
				`{"role":"tool","content":"","tool_call_id":"c"},{"role":"tool","content":"2","tool_call_id":"d"}`, report: `,"withheld_signatures":1`},
		{name: "ids and names", in: `[{"role":"assistant","tool_calls":[{"id":"` + long + `","type":"function","function":{"name":"a.b","arguments":"{}"}}]},{"role":"tool","tool_call_id":"` + long + `","content":"1"}]`,
			want: `{"role":"assistant","content":null,"tool_calls":[{"id":"call_3164596df4fdd018b2c567ec","type":"function","function":{"name":"a_b_2e7336dc8eba87ef472df568c35482ab","arguments":"{}"}}]},` +
				`{"role":"tool","content":"1","tool_call_id":"call_3164596df4fdd018b2c567ec"}`, report: `,"mapped_ids":1`},
		{name: "images of results", in: `[{"role":"assistant","tool_calls":[{"id":"c","type":"function","function":{"name":"f","arguments":"{}"}},{"id":"d","type":"function","function":{"name":"f","arguments":"{}"}}]},` +
			`{"role":"tool","tool_call_id":"c","content":[{"type":"text","text":"here"},{"type":"image_url","image_url":{"url":"` + png + `","detail":"low"}}]},{"role":"tool","tool_call_id":"d","content":"2"},{"role":"user","content":"nice"}]`,
			want: `{"role":"assistant","content":null,"tool_calls":[{"id":"c","type":"function","function":{"name":"f","arguments":"{}"}},{"id":"d","type":"function","function":{"name":"f","arguments":"{}"}}]},` +
				`{"role":"tool","content":[{"type":"text","text":"here"},{"type":"text","text":"[image: in the message after the results]"}],"tool_call_id":"c"},{"role":"tool","content":"2","tool_call_id":"d"},` +
				`{"role":"user","content":[{"type":"text","text":"[from the results of tools above, in their order]"},{"type":"image_url","image_url":{"url":"` + png + `","detail":"low"}}]},{"role":"user","content":"nice"}`,
			report: `,"moved_media":1`},
		{name: "media", in: `[{"role":"user","content":[{"type":"image_url","image_url":{"url":"gs://a/b"}},{"type":"file","file":{"file_data":"AAAA"}},{"type":"input_audio","input_audio":{"data":"AAAA","format":"mp3"}},` +
			`{"type":"input_audio","input_audio":{"data":"AAAA","format":"ogg"}},{"type":"video_url","video_url":{}}]}]`,
			want: `{"role":"user","content":[{"type":"text","text":"[image: not shown here]"},{"type":"text","text":"[document: not shown here]"},{"type":"input_audio","input_audio":{"data":"AAAA","format":"mp3"}},` +
				`{"type":"text","text":"[audio: not shown here]"}]}`,
			report: `,"withheld_opaque":1,"dropped_media":3`},
		{name: "documents", in: `[{"role":"user","content":[{"type":"file","file":{"file_data":"data:application/pdf;base64,JVBERi0=","filename":"a.pdf"}},{"type":"file","file":{"file_data":"JVBERi0="}},` +
			`{"type":"file","file":{"file_data":"data:text/markdown;base64,aGk=","filename":"a\".md"}},{"type":"file","file":{"file_data":"data:application/zip;base64,AAAA","filename":"a"}}]},` +
			`{"role":"assistant","tool_calls":[{"id":"c","type":"function","function":{"name":"f","arguments":"{}"}}]},{"role":"tool","tool_call_id":"c","content":[{"type":"file","file":{"file_data":"data:text/plain;base64,aGk="}}]}]`,
			want: `{"role":"user","content":[{"type":"file","file":{"file_data":"data:application/pdf;base64,JVBERi0=","filename":"a.pdf"}},{"type":"file","file":{"file_data":"data:application/pdf;base64,JVBERi0=","filename":"document"}},` +
				`{"type":"text","text":"[document \"a\\\".md\"]\nhi"},{"type":"text","text":"[document: not shown here]"}]},` +
				`{"role":"assistant","content":null,"tool_calls":[{"id":"c","type":"function","function":{"name":"f","arguments":"{}"}}]},{"role":"tool","content":[{"type":"text","text":"[document]\nhi"}],"tool_call_id":"c"}`,
			report: `,"dropped_media":1`},
		{name: "thinking and refusals", in: `[{"role":"assistant","content":"x","reasoning_content":"hm"},{"role":"assistant","content":null,"reasoning_content":"only"},{"role":"assistant","content":null,"refusal":"No."}]`,
			want: `{"role":"assistant","content":"x"},{"role":"assistant","content":[{"type":"refusal","refusal":"No."}]}`, report: `,"withheld_thinking":2,"dropped_empty":1`},
		{name: "a spoken answer", in: `[{"role":"assistant","content":null,"audio":{"id":"a","data":"AAAA","transcript":"Hello."}},{"role":"assistant","content":null,"audio":{"id":"a","transcript":"Ho."}}]`,
			want: `{"role":"assistant","content":[{"type":"text","text":"Hello."}]},{"role":"assistant","content":[{"type":"text","text":"Ho."}]}`, report: `,"dropped_media":1`},
		{name: "the summary of an operator", show: Show{Summary: "Before.", Authority: true}, in: `[{"role":"user","content":"x"}]`,
			want: `{"role":"system","content":"Before."},{"role":"user","content":"x"}`},
		{name: "the summary of a peer", show: Show{Summary: "Before."}, in: `[{"role":"user","content":"x"}]`,
			want: `{"role":"user","content":"Before."},{"role":"user","content":"x"}`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := tt.show
			s.Messages = decodeAppend(t, OpenAI, tt.in)
			out := Render(OpenAI, s)
			if string(out.Messages) != tt.want {
				t.Errorf("messages\n got %s\nwant %s", out.Messages, tt.want)
			}
			if got := string(out.Report.AppendMembers(nil)); got != tt.report {
				t.Errorf("report %s, want %s", got, tt.report)
			}
		})
	}
}

// Other vendors of the format want back what they alone know.
func TestVendorsGetTheirThinkingBack(t *testing.T) {
	in := `{"messages":[{"role":"assistant","content":"","reasoning_content":"hm","reasoning_details":[{"data":"A"}],"tool_calls":[` +
		`{"id":"c","type":"function","function":{"name":"f","arguments":"{}"},"extra_content":{"google":{"thought_signature":"AAAA"}}}]},` +
		`{"role":"tool","tool_call_id":"c","content":"1"},{"role":"assistant","content":"x","reasoning":"so"}],"provider":"moonshot","model":"k2"}`
	a, err := DecodeAppend(OpenAI, []byte(in), 0)
	if err != nil {
		t.Fatal(err)
	}
	call := `{"id":"c","type":"function","function":{"name":"f","arguments":"{}"}`
	bare := `{"role":"assistant","content":"","tool_calls":[` + call + `}]},{"role":"tool","content":"1","tool_call_id":"c"},{"role":"assistant","content":"x"}`
	for _, tt := range []struct{ provider, model, want, report string }{
		{"moonshot", "k2", `{"role":"assistant","content":"","tool_calls":[` + call + `,"extra_content":{"google":{"thought_signature":"AAAA"}}}],"reasoning_content":"hm","reasoning_details":[{"data":"A"}]},` +
			`{"role":"tool","content":"1","tool_call_id":"c"},{"role":"assistant","content":"x","reasoning":"so"}`, ""},
		{"moonshot", "k3", bare, `,"withheld_thinking":2,"withheld_signatures":2`},
		{"", "k2", bare, `,"withheld_thinking":2,"withheld_signatures":2`},
		{"openai", "", bare, `,"withheld_thinking":2,"withheld_signatures":2`},
	} {
		out := judged(t, OpenAI, Show{Messages: a.Messages, Provider: tt.provider, Model: tt.model, Tools: []byte(`[{"type":"function","function":{"name":"f"}}]`)})
		if string(out.Messages) != tt.want {
			t.Errorf("%s %s\n got %s\nwant %s", tt.provider, tt.model, out.Messages, tt.want)
		}
		if got := string(out.Report.AppendMembers(nil)); got != tt.report {
			t.Errorf("%s %s: report %s, want %s", tt.provider, tt.model, got, tt.report)
		}
	}
}

func TestOpenAIToolsAreDeclared(t *testing.T) {
	given := ` [ {"type":"function","function":{"name":"z"}} ] `
	added := []Declaration{{Name: "b.c", Refusal: "Do not."}, {Name: "sh", Custom: true}, {Name: "a"}, {Name: "q", Custom: true, Refusal: "Do not."}}
	for _, tt := range []struct {
		f    Format
		want string
	}{
		{OpenAI, `{"type":"function","function":{"name":"z"}},{"type":"function","function":{"name":"a","parameters":{"type":"object"}}},` +
			`{"type":"function","function":{"name":"b_c_b476cc5a2c583fbb3af86336e268b88f","description":"Do not.","parameters":{"type":"object"}}},{"type":"custom","custom":{"name":"q","description":"Do not."}},{"type":"custom","custom":{"name":"sh"}}`},
		{Native, `{"type":"function","function":{"name":"z"}},{"name":"a","parameters":{"type":"object"}},{"name":"b.c","description":"Do not.","parameters":{"type":"object"}},` +
			`{"name":"q","description":"Do not.","parameters":{"type":"object"}},{"name":"sh","parameters":{"type":"object"}}`},
	} {
		out := Render(tt.f, Show{Tools: []byte(given), Added: added})
		if got := string(out.Tools); got != tt.want {
			t.Errorf("%s\n got %s\nwant %s", tt.f, got, tt.want)
		}
		if len(out.Refusals) != 2 || out.Refusals[0].Refusal != "Do not." {
			t.Errorf("%s: refusals %v", tt.f, out.Refusals)
		}
		if out := Render(tt.f, Show{}); out.Tools != nil || out.Refusals != nil || out.Names != nil {
			t.Errorf("%s, of nothing: %+v", tt.f, out)
		}
	}
	if out := Render(OpenAI, Show{Added: added}); out.Names["b_c_b476cc5a2c583fbb3af86336e268b88f"] != "b.c" || len(out.Names) != 1 {
		t.Errorf("names %v", out.Names)
	}
}

func TestToolNames(t *testing.T) {
	for _, tt := range []struct {
		f           Format
		tools, want string
	}{
		{Native, `[{"name":"a"},{"type":"function","function":{"name":"b"}},{"custom":{"name":"c"}}]`, "a b c"},
		{Native, `[{"name":1},{}]`, "tools[0] tools[1]"},
		{OpenAI, `[{"type":"function","function":{"name":"b"}},{"type":"custom","custom":{"name":"c"}}]`, "b c"},
		{OpenAI, `[{"name":"a"},{"type":"function","function":{}}]`, "tools[0] tools[1]"},
		{OpenAI, `{}`, "tools"},
		{OpenAI, `[]`, ""},
	} {
		names, err := ToolNames(tt.f, []byte(tt.tools))
		got := strings.Join(names, " ")
		if err != nil {
			got = told(t, err)
		}
		if got != tt.want {
			t.Errorf("%s %s: %q, want %q", tt.f, tt.tools, got, tt.want)
		}
	}
}

// Each time that an older image gives way what a provider has cached is lost.
func TestMediaGiveWayManyAtATime(t *testing.T) {
	for _, tt := range []struct{ size, images, most int }{{1, 240, 7}, {2_000_000, 14, 3}} {
		b := history.Block{Type: history.ImageBlock, MediaType: "image/png"}
		b.SetData(make([]byte, tt.size))
		var msgs []history.Message
		var before []byte
		changes := 0
		for range tt.images {
			msgs = append(msgs, history.Message{Role: history.User, Kind: history.Person, Content: []history.Block{b}})
			out := Render(OpenAI, Show{Messages: msgs})
			if !bytes.HasPrefix(out.Messages, before) {
				changes++
			}
			before = out.Messages
		}
		if changes == 0 || changes > tt.most {
			t.Errorf("%d images of %d bytes: the beginning changed %d times, want some, and at most %d", tt.images, tt.size, changes, tt.most)
		}
	}
}

func TestMediaGiveWayFromTheOldestOn(t *testing.T) {
	sized := func(n int) history.Block {
		b := history.Block{Type: history.ImageBlock, MediaType: "image/png"}
		b.SetData(make([]byte, n))
		return b
	}
	many := func(n int, b history.Block) (msgs []history.Message) {
		for range n {
			msgs = append(msgs, history.Message{Role: history.User, Kind: history.Person, Content: []history.Block{b}})
		}
		return msgs
	}
	for _, tt := range []struct {
		name string
		msgs []history.Message
		want int // that stay
	}{
		{"a hundred", many(100, sized(1)), 100},
		{"a hundred and one", many(101, sized(1)), 80},
		{"a hundred and twenty one", many(121, sized(1)), 100},
		{"by URL", many(150, history.Block{Type: history.ImageBlock, URL: "https://e.example/x"}), 87},
		{"as large as may be", many(1, sized(3_750_000)), 1},
		{"too large", many(1, sized(3_750_001)), 0},
		{"as much as may be", many(4, sized(3_750_000)), 4},
		{"too much in all", many(6, sized(3_600_000)), 4},
		{"without bytes", many(1, history.Block{Type: history.ImageBlock, MediaType: "image/png", Attachment: history.AttachmentName(nil)}), 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			out := judged(t, OpenAI, Show{Messages: tt.msgs})
			if got := strings.Count(string(out.Messages), `"image_url":{`); got != tt.want || out.Report.DroppedMedia != int64(len(tt.msgs)-tt.want) {
				t.Errorf("%d stay and %d are dropped, want %d of %d to stay", got, out.Report.DroppedMedia, tt.want, len(tt.msgs))
			}
			first := bytes.Index(out.Messages, []byte(`"image_url":{`))
			if last := bytes.LastIndex(out.Messages, []byte(placeholder(&history.Block{Type: history.ImageBlock}))); tt.want > 0 && last > first {
				t.Error("a newer one gave way to an older one")
			}
		})
	}
}

func TestALongTextIsWrittenInParts(t *testing.T) {
	text := strings.Repeat("é", maxOpenAIText+1)
	for _, role := range []history.Role{history.User, history.Assistant} {
		out := judged(t, OpenAI, Show{Messages: []history.Message{{Role: role, Content: []history.Block{history.Text(text)}}}})
		var m struct{ Content []struct{ Text string } }
		if err := json.Unmarshal(out.Messages, &m); err != nil {
			t.Fatal(err)
		}
		got := ""
		for _, p := range m.Content {
			got += p.Text
		}
		if got != text {
			t.Errorf("%s: %d parts do not make the text", role, len(m.Content))
		}
	}
}

func TestRealConversationsCutAnywhereOpenAIAccepts(t *testing.T) {
	for _, msgs := range conversations(t) {
		for n := 1; n <= len(msgs); n += 3 {
			judged(t, OpenAI, showing(msgs[:n]))
		}
	}
}

func BenchmarkRender(b *testing.B) {
	msgs := decodeAppend(b, OpenAI, `[`+strings.Repeat(`{"role":"user","content":"`+strings.Repeat("some words ", 30)+`"},
		{"role":"assistant","content":null,"tool_calls":[{"id":"call_1","type":"function","function":{"name":"get_user","arguments":"{\"user_id\":\"mia_li_3668\"}"}}]},
		{"role":"tool","tool_call_id":"call_1","content":"`+strings.Repeat("x", 600)+`"},{"role":"assistant","content":"`+strings.Repeat("some words ", 30)+`"},`, 4)+
		`{"role":"user","content":"a"},{"role":"assistant","content":"b"},{"role":"user","content":"a"},{"role":"assistant","content":"b"}]`)
	s := showing(msgs)
	for _, f := range append([]Format{Native}, providerFormats()...) {
		b.Run(string(f), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				Render(f, s)
			}
		})
	}
}
