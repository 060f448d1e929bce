package wire

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"historyd/internal/history"
	"historyd/internal/projection"
	"historyd/test/judge"

	"pgregory.net/rapid"
)

// Items that are almost right: what of them is taken in must come back all the same.
func TestWhateverResponsesItemIsTakenInComesBack(t *testing.T) {
	names := []string{"Type", "extra", "item", "x", "phase", "action"}
	almostRight(t, Responses, corpusItems(t), names, func(t *rapid.T, msgs []history.Message, given any) {
		checkResponsesItems(t, msgs)
		sameResponses(t, msgs, given)
	})
}

func sameResponses(t check, msgs []history.Message, v any) {
	t.Helper()
	out := encode(Responses, throughNative(t, msgs), ForExport)
	if got, want := fmt.Sprintf("%#v", numbered(out)), fmt.Sprintf("%#v", []any{v}); got != want {
		t.Fatalf("values differ\n got %s\nwant %s", got, want)
	}
}

// responsesShown is what pipeline makes of messages for a model: repaired, and every tool declared.
func responsesShown(t check, msgs []history.Message, s Show) Shown {
	t.Helper()
	window := slices.DeleteFunc(slices.Clone(msgs), func(m history.Message) bool { return m.Role == history.System })
	s.Messages, _ = projection.RepairPairs(window)
	var names []string
	if s.Tools != nil {
		var err error
		if names, err = ToolNames(Responses, s.Tools); err != nil {
			t.Fatalf("%v", err)
		}
	}
	closed := projection.CloseTools(s.Messages, projection.Closure{Tools: names})
	s.Messages = closed.Messages
	for _, d := range closed.Added {
		s.Added = append(s.Added, Declaration(d))
	}
	return Render(Responses, s)
}

// judgeResponses wants that the provider takes what is shown.
func judgeResponses(t check, out Shown) {
	t.Helper()
	var tools []byte
	if out.Tools != nil {
		tools = joined("[", out.Tools, "]")
	}
	if why := judge.Check("responses", joined("[", out.Messages, "]"), out.System, tools); len(why) > 0 {
		t.Fatalf("refused: %s\n[%s]\n%s", strings.Join(why, "\n"), out.Messages, tools)
	}
}

const everyTool = `[{"type":"shell"},{"type":"local_shell"},{"type":"apply_patch"},{"type":"computer"},{"type":"function","name":"f","parameters":{"type":"object"},"strict":false},
	{"type":"namespace","name":"crm","description":"d","tools":[{"type":"function","name":"open","parameters":{"type":"object"}}]}]`

// responsesPool is a pool of messages of all kinds, some of other formats and models.
func responsesPool(t testing.TB) []history.Message {
	var pool []history.Message
	for _, item := range corpusItems(t) {
		pool = append(pool, decodeAppend(t, Responses, "["+item+"]")...)
	}
	pool = append(pool, decodeAppend(t, Native, `[{"role":"user","content":""},{"role":"user","content":[{"type":"text","text":" "},{"type":"text","text":""}]},
		{"role":"user","kind":"reference","content":"note"},{"role":"user","content":[{"type":"opaque","provider":"anthropic","data":{"type":"x"}}]},
		{"role":"user","content":[{"type":"image","url":"file:///etc/passwd"},{"type":"image","media_type":"image/bmp","data":"AAAA"},{"type":"document","media_type":"a b","data":"AAAA"},{"type":"audio","url":"https://e.example"}]},
		{"role":"user","content":[{"type":"image","attachment":"sha256:4c4b6a3be1314ab86138bef4314dde022e600960d8689a2c8f8631802d20dab6"}]},
		{"role":"assistant","provider":"anthropic","model":"m1","content":[{"type":"thinking","text":"hm","signature":"s"},{"type":"text","text":"x\n"},{"type":"tool_call","id":"toolu_1","name":"a.b","arguments":{"x":"\u0000"}},{"type":"tool_call","id":"toolu_1","name":"","arguments":null}]},
		{"role":"tool","content":[{"type":"tool_result","call_id":"toolu_1","content":[{"type":"text","text":""},{"type":"image","url":"https://e.example/x"},{"type":"audio","url":"https://e.example/x"},{"type":"opaque","provider":"x","data":{}}]}]},
		{"role":"assistant","provider":"openai","model":"m1","content":[{"type":"thinking","text":"a","encrypted":"e","extra":{"id":"rs_9","summary":[{"type":"summary_text","text":1},{"text":"\u0000"}],"content":[7]}},{"type":"text","text":""},{"type":"image","url":"https://e.example"},{"type":"thinking","text":"b","encrypted":"e","extra":{"id":"rs_8"}},{"type":"tool_call","id":"`+strings.Repeat("é", 40)+`","name":"`+strings.Repeat("n", 300)+`","arguments_text":"{"}]},
		{"role":"tool","content":[{"type":"tool_result","call_id":"`+strings.Repeat("é", 40)+`","content":"`+"a\\u0000b"+`"},{"type":"opaque","provider":"x","data":{}}]}]`)...)
	for i := range pool {
		pool[i].ID, pool[i].Seq = fmt.Sprint("m", i), int64(i+1)
	}
	return pool
}

func drawShow(t *rapid.T) Show {
	s := Show{
		Summary:   rapid.SampledFrom([]string{"", "before\x00"}).Draw(t, "summary"),
		Authority: rapid.Bool().Draw(t, "authority"),
		Provider:  rapid.SampledFrom([]string{"", "openai", "azure"}).Draw(t, "provider"),
		Model:     rapid.SampledFrom([]string{"", "m1", "m2"}).Draw(t, "model"),
	}
	if rapid.Bool().Draw(t, "tools") {
		s.Tools = []byte(everyTool)
	}
	return s
}

// Whatever was said, in whatever order and torn in whatever way: the provider takes it.
func TestEveryReplayAsResponsesIsTaken(t *testing.T) {
	pool := responsesPool(t)
	rapid.Check(t, func(t *rapid.T) {
		msgs := make([]history.Message, rapid.IntRange(0, 12).Draw(t, "messages"))
		from := rapid.IntRange(0, len(pool)-1).Draw(t, "from")
		for i := range msgs {
			// Mostly what stands together.
			if from++; rapid.IntRange(0, 2).Draw(t, "jump") == 0 {
				from = rapid.IntRange(0, len(pool)-1).Draw(t, "from")
			}
			msgs[i] = pool[from%len(pool)]
			if msgs[i].Role == history.Assistant && msgs[i].Model == "" {
				msgs[i].Model = rapid.SampledFrom([]string{"m1", "m1", "m2"}).Draw(t, "of model")
			}
		}
		s := drawShow(t)
		out := responsesShown(t, msgs, s)
		judgeResponses(t, out)
		if again := responsesShown(t, msgs, s); !slices.Equal(again.Messages, out.Messages) || !slices.Equal(again.Tools, out.Tools) || again.Report != out.Report {
			t.Fatalf("not deterministic\n got %s\nthen %s", out.Messages, again.Messages)
		}
	})
}

// While what is there is whole, what comes later only adds to what was shown before.
func TestReplaysAsResponsesGrow(t *testing.T) {
	lists := corpus(t, Responses)
	var whole [][]history.Message
	for _, name := range []string{"a_whole_turn", "function_call", "reasoning_many", "shell", "computer_actions", "mcp", "image_generation", "refusal", "custom_call", "local_shell", "apply_patch"} {
		whole = append(whole, decodeAppend(t, Responses, lists[name]))
	}
	rapid.Check(t, func(t *rapid.T) {
		var msgs []history.Message
		s := drawShow(t)
		if s.Model == "" {
			s.Model = "m1" // else it is that of the last answer
		}
		before := responsesShown(t, msgs, s)
		for range rapid.IntRange(1, 5).Draw(t, "turns") {
			turn := slices.Clone(rapid.SampledFrom(whole).Draw(t, "turn"))
			for i := range turn {
				turn[i].Model = "m1"
			}
			msgs = append(msgs, turn...)
			now := responsesShown(t, msgs, s)
			if !strings.HasPrefix(string(now.Messages), string(before.Messages)) {
				t.Fatalf("rewritten\n was %s\n now %s", before.Messages, now.Messages)
			}
			before = now
		}
	})
}

func FuzzResponsesRender(f *testing.F) {
	for _, m := range responsesPool(f) {
		f.Add(history.AppendInline(nil, &m), true)
	}
	f.Fuzz(func(t *testing.T, list []byte, tools bool) {
		a, err := DecodeAppend(Native, []byte(`{"messages":[`+string(list)+`]}`), 1<<20)
		if err != nil {
			return
		}
		s := Show{}
		if tools {
			s.Tools = []byte(everyTool)
		}
		judgeResponses(t, responsesShown(t, a.Messages, s))
	})
}

func BenchmarkResponsesRender(b *testing.B) {
	var list []string
	for i := range 5 {
		list = append(list, fmt.Sprintf(`{"type":"message","role":"user","content":"%s"},{"type":"function_call","id":"fc_%d","call_id":"call_%d","name":"f","arguments":"{\"a\":1}","status":"completed"},
			{"type":"function_call_output","call_id":"call_%d","output":"%s"},{"type":"message","id":"msg_%d","role":"assistant","status":"completed","phase":"final_answer","content":[{"type":"output_text","text":"%s","annotations":[],"logprobs":[]}]}`,
			strings.Repeat("some words ", 20), i, i, i, strings.Repeat("a line of a result ", 40), i, strings.Repeat("an answer ", 30)))
	}
	msgs := decodeAppend(b, Responses, "["+strings.Join(list, ",")+"]")
	var said []history.Message
	for i := range msgs {
		if m, ok := projection.Text(&msgs[i]); ok {
			said = append(said, m)
		}
	}
	for _, bb := range []struct {
		name string
		f    Format
		msgs []history.Message
	}{{"native-text", Native, said}, {"native-full", Native, msgs}, {"responses-text", Responses, said}, {"responses-full", Responses, msgs}} {
		b.Run(bb.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				Render(bb.f, Show{Messages: bb.msgs, Provider: "openai", Model: ""})
			}
		})
	}
}
