package projection

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"historyd/internal/history"
)

// script makes messages of words such as U, M:-,a,b and T:a: who speaks (U a user, M
// and N assistants of two models, T a tool, Y the system), then the blocks: - for text,
// ? for an opaque block, else the id of a call or result. Calls, results and texts are
// numbered, so that each is another.
func script(words string) []history.Message {
	var msgs []history.Message
	for i, word := range strings.Fields(words) {
		who, blocks, _ := strings.Cut(word, ":")
		m := history.Message{ID: fmt.Sprintf("m%d", i+1), Seq: int64(i + 1), Status: history.Complete}
		switch who {
		case "U":
			m.Role, m.Kind = history.User, history.Person
		case "M", "N":
			m.Role, m.Model = history.Assistant, who
		case "T":
			m.Role = history.Tool
		case "Y":
			m.Role = history.System
		}
		if blocks == "" && who != "T" {
			blocks = "-"
		}
		for j, id := range strings.FieldsFunc(blocks, func(r rune) bool { return r == ',' }) {
			number := fmt.Sprintf("%d.%d", i+1, j)
			switch {
			case id == "-":
				m.Content = append(m.Content, history.Text(number))
			case id == "?":
				m.Content = append(m.Content, history.Block{Type: history.OpaqueBlock, Provider: "p", Opaque: raw(`"` + number + `"`)})
			case m.Role == history.Tool:
				m.Content = append(m.Content, result(id, number))
			default:
				m.Content = append(m.Content, call(id, "tool"+number, "{}"))
			}
		}
		msgs = append(msgs, m)
	}
	return msgs
}

// written back, each result has the number of the message it came in, and a synthetic
// one is an S of its own.
func scriptOf(msgs []history.Message) string {
	var words []string
	for _, m := range msgs {
		who := map[history.Role]string{history.User: "U", history.Tool: "T", history.System: "Y", history.Assistant: m.Model}[m.Role]
		if m.Synthetic {
			who = "S"
		}
		var blocks []string
		for _, b := range m.Content {
			switch b.Type {
			case history.TextBlock:
				blocks = append(blocks, "-")
			case history.OpaqueBlock:
				blocks = append(blocks, "?")
			case history.ToolCall:
				blocks = append(blocks, b.ID)
			case history.ToolResult:
				from, _, _ := strings.Cut(textOf(&b), ".")
				if b.Synthetic {
					from = ""
				}
				blocks = append(blocks, b.CallID+from)
			}
		}
		words = append(words, strings.TrimSuffix(who+":"+strings.Join(blocks, ","), ":"))
	}
	return strings.ReplaceAll(strings.Join(words, " ")+" ", ":- ", " ")
}

func TestRepairPairs(t *testing.T) {
	for _, tt := range []struct {
		name   string
		in     string
		want   string
		counts Repairs
	}{
		{"nothing", "", "", Repairs{}},
		{"talk", "U M U M", "U M U M", Repairs{}},
		{"a pair", "U M:a T:a M", "U M:a T:a3 M", Repairs{}},
		{"a batch of two results in one message", "M:a,b T:a,b", "M:a,b T:a2,b2", Repairs{}},
		{"a batch answered in another order", "M:a,b T:b T:a U", "M:a,b T:b2 T:a3 U", Repairs{}},
		{"a repeated id", "M:a T:a U M:a T:a", "M:a T:a2 U M:a T:a5", Repairs{}},
		{"an id twice in a message", "M:a,a T:a T:a", "M:a,a T:a2 T:a3", Repairs{}},
		{"many calls", "M:a,b,c,d,e,f,g,h,i,j T:j,i,h,g,f T:e,d,c,b,a", "M:a,b,c,d,e,f,g,h,i,j T:j2,i2,h2,g2,f2 T:e3,d3,c3,b3,a3", Repairs{}},

		{"no answer at the end", "U M:a", "U M:a S:a", Repairs{Synthetic: 1}},
		{"no answer before a user speaks", "M:-,a U", "M:-,a S:a U", Repairs{Synthetic: 1}},
		{"three without an answer", "M:a U M:b T:b M:c U M:d", "M:a S:a U M:b T:b4 M:c S:c U M:d S:d", Repairs{Synthetic: 3}},
		{"some of a batch, in the order of the calls", "M:a,b,c T:b U", "M:a,b,c T:b2 S:a S:c U", Repairs{Synthetic: 2}},
		{"one id, one answer", "M:a,a T:a", "M:a,a T:a2 S:a", Repairs{Synthetic: 1}},
		{"the nearest call is answered", "M:a U M:a T:a", "M:a S:a U M:a T:a4", Repairs{Synthetic: 1}},
		{"then the one before it", "M:a U M:a T:a U T:a", "M:a T:a6 U M:a T:a4 U", Repairs{Moved: 1}},

		{"a late result", "M:a U T:a M", "M:a T:a3 U M", Repairs{Moved: 1}},
		{"a late result of a batch", "M:a,b T:b U T:a", "M:a,b T:b2 T:a4 U", Repairs{Moved: 1}},
		{"late results in one message", "M:a U M:b U T:a,b", "M:a T:a5 U M:b T:b5 U", Repairs{Moved: 2}},
		{"a message parted", "M:a U M:b T:a,b", "M:a T:a4 U M:b T:b4", Repairs{Moved: 1}},
		{"two runs that interleave", "U M:a U T:a M", "U M:a T:a4 U M", Repairs{Moved: 1}},
		{"past the system", "M:a Y T:a", "M:a T:a3 Y", Repairs{Moved: 1}},

		{"a result before its call", "T:a M:a", "M:a T:a1", Repairs{Moved: 1}},
		{"one that nobody waits for", "T:a M:a T:a", "M:a T:a3", Repairs{Orphans: 1}},
		{"one for the second of a message", "T:a M:a,a T:a", "M:a,a T:a3 T:a1", Repairs{Moved: 1}},
		{"two before their calls", "T:a,a U M:a,a", "U M:a,a T:a1,a1", Repairs{Moved: 2}},
		{"it goes no further than the first", "T:a M:a T:a U M:a", "M:a T:a3 U M:a S:a", Repairs{Orphans: 1, Synthetic: 1}},
		{"a message from before and of now", "U M:b T:a,b M:a", "U M:b T:b3 M:a T:a3", Repairs{Moved: 1}},

		{"an orphan", "U T:x U", "U U", Repairs{Orphans: 1}},
		{"an orphan among results", "M:a,b T:a,x,b", "M:a,b T:a2,b2", Repairs{Orphans: 1}},
		{"a second answer", "M:a T:a T:a U T:a", "M:a T:a2 U", Repairs{Duplicates: 2}},
		{"an orphan and a call of another id", "M:a T:x U", "M:a S:a U", Repairs{Orphans: 1, Synthetic: 1}},

		{"calls in messages of their own", "U M:a M:b T:a T:b", "U M:a,b T:a4 T:b5", Repairs{Merged: 1}},
		{"with text between and behind", "M M:a M M:b M T:a,b", "M M:a,-,b,- T:a6,b6", Repairs{Merged: 3}},
		{"the last is answered, the first never", "M:a M:b T:b", "M:a,b T:b3 S:a", Repairs{Merged: 1, Synthetic: 1}},
		{"none is answered", "M:a M:b U", "M:a,b S:a S:b U", Repairs{Merged: 1, Synthetic: 2}},
		{"another model goes on", "M:a N:b T:a T:b", "M:a T:a3 N:b T:b4", Repairs{Moved: 1}},
		{"two of one model, then another", "M:a M:b N:c T:a T:b T:c", "M:a,b T:a4 T:b5 N:c T:c6", Repairs{Merged: 1, Moved: 2}},
		{"an id in two messages of a run", "M:a M:a T:a T:a", "M:a T:a4 M:a T:a3", Repairs{Moved: 1}},
		{"an id in two messages of a run, one answer", "M:a M:b M:a T:a", "M:a,b S:a S:b M:a T:a4", Repairs{Merged: 1, Synthetic: 2}},
		{"answered before, so nothing waits", "T:a M:a M U", "M:a T:a1 M U", Repairs{Moved: 1}},
		{"what was answered one by one stays apart", "M:a T:a M:b T:b", "M:a T:a2 M:b T:b4", Repairs{}},

		{"an opaque block beside a result", "M:a T:?,a", "M:a T:?,a2", Repairs{}},
		{"an opaque block that has no call", "M:a T:? T:a", "M:a T:a3 T:?", Repairs{Moved: 1}},
		{"an opaque block beside a late result", "M:a U T:a,?", "M:a T:a3,? U", Repairs{Moved: 1}},
		{"an opaque block where a message is parted", "M:a U M:b T:a,?,b", "M:a T:a4 U M:b T:b4 T:?", Repairs{Moved: 1}},
		{"an opaque block beside an orphan", "U T:x,? U", "U T:? U", Repairs{Orphans: 1}},
		{"a tool that says nothing", "M:a T T:a", "M:a T:a3 T", Repairs{Moved: 1}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			in := script(tt.in)
			before := show(in)
			got, counts := RepairPairs(in)
			if s := strings.TrimSpace(scriptOf(got)); s != tt.want || counts != tt.counts {
				t.Errorf("RepairPairs(%s) = %s %+v, want %s %+v", tt.in, s, counts, tt.want, tt.counts)
			}
			if show(in) != before {
				t.Error("the input was altered")
			}
		})
	}
}

func TestASyntheticResultSaysWhatIsKnown(t *testing.T) {
	in := script("U M:-,a,b U")
	got, _ := RepairPairs(in)
	want := history.Message{
		ID: got[2].ID, At: in[1].At, Role: history.Tool, Status: history.Complete, Synthetic: true,
		Content: []history.Block{{
			Type: history.ToolResult, CallID: "a", Plain: true, IsError: true, Synthetic: true,
			Content: []history.Block{history.Text(interrupted)},
		}},
	}
	if show(got[2:3]) != show([]history.Message{want}) {
		t.Errorf("got %s, want %s", show(got[2:3]), show([]history.Message{want}))
	}
	for _, word := range []string{"interrupted", "not known", "side effects"} {
		if !strings.Contains(interrupted, word) {
			t.Errorf("%q does not say %q", interrupted, word)
		}
	}
	ids := []string{got[2].ID, got[3].ID}
	in[1].Seq++
	for _, m := range []history.Message{in[1], with(in[1], func(m *history.Message) { m.ID = "other" })} {
		more, _ := RepairPairs([]history.Message{m})
		ids = append(ids, more[1].ID, more[2].ID)
	}
	slices.Sort(ids)
	if len(slices.Compact(ids)) != 6 || ids[0] == "" {
		t.Errorf("ids of six calls: %q", ids)
	}
}

func TestJoinedMessagesKeepWhatTheyHad(t *testing.T) {
	in := script("M:a M:b T:a,b")
	in[0].Metadata, in[1].Metadata = raw(`{"n":1}`), raw(`{"n":2}`)
	in[0].Usage, in[1].Usage = raw(`{"out":1}`), raw(`{"out":2}`)
	in[1].Status, in[1].Extra = history.Incomplete, raw(`{"x":1}`)
	want := in[0]
	want.Content = append(slices.Clone(in[0].Content), in[1].Content...)
	want.Usage, want.Status, want.Extra = in[1].Usage, history.Incomplete, in[1].Extra
	if got, _ := RepairPairs(in); show(got[:1]) != show([]history.Message{want}) {
		t.Errorf("got %s, want %s", show(got[:1]), show([]history.Message{want}))
	}
}

// long is a conversation with a bit of everything, n messages of it.
func long(n int) []history.Message {
	var words strings.Builder
	for i := range n / 8 {
		fmt.Fprintf(&words, "U M:c%d,d T:c%d,d M:call_0 U M:e%d M:f%d T:f%d,e%d,call_0 ", i, i, i, i, i, i)
	}
	return script(words.String())
}

func TestRepairTakesTimeInProportion(t *testing.T) {
	for name, in := range map[string][]history.Message{
		"a bit of everything":   long(20_000),
		"never answered":        script(strings.Repeat("M:a U ", 10_000)),
		"one run":               script(strings.Repeat("M:a N:a M ", 5_000)),
		"one run to be joined":  script("M:a " + strings.Repeat("M ", 20_000)),
		"one message of calls":  script("M:" + strings.Repeat("a,b,", 10_000) + " T:" + strings.Repeat("b,a,", 10_000)),
		"answered at the end":   script(strings.Repeat("M:a U ", 10_000) + "T:" + strings.Repeat("a,", 10_000)),
		"answered at the begin": script("T:" + strings.Repeat("a,", 10_000) + strings.Repeat(" M:a,b U", 5_000)),
		"orphans":               script(strings.Repeat("T:a,b U ", 10_000)),
	} {
		allocs := testing.AllocsPerRun(1, func() { RepairPairs(in) })
		blocks := 0
		for i := range in {
			blocks += len(in[i].Content)
		}
		if per := allocs / float64(blocks); per > 8 {
			t.Errorf("%s: %.1f allocations a block", name, per)
		}
	}
}

func BenchmarkRepairPairs(b *testing.B) {
	for _, bb := range []struct {
		name string
		in   []history.Message
	}{
		{"sound window of 20", script(strings.Repeat("U M:a,b T:a,b M:c T:c ", 4))},
		{"broken window of 20", script(strings.Repeat("U M:a,b T:a M:c U T:c ", 3) + "U M")},
		{"10000 messages", long(10_000)},
	} {
		b.Run(bb.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				RepairPairs(bb.in)
			}
		})
	}
}
