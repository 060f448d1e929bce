package pipeline

import (
	"bytes"
	"context"
	"fmt"
	"runtime"
	"testing"

	"historyd/internal/history"
	"historyd/internal/projection"
	"historyd/internal/wire"
	"historyd/test/growth"
)

// late is a document of n calls, each in a message of its own, and then their results.
type late struct {
	format wire.Format
	n      int
	id     func(i int) string
	turns  bool // a person says something before each call
}

// elements are the messages. With turns a result comes one turn late, so that no turn can
// be parted from the next.
func (l late) elements(yield func(element string) bool) {
	asks, calls, answers := `{"role":"user","content":"%s"}`,
		`{"role":"assistant","content":[{"type":"tool_call","id":"%s","name":"look","arguments":{"n":%d}}]}`,
		`{"role":"tool","content":[{"type":"tool_result","call_id":"%s","content":"seen %d"}]}`
	if l.format == wire.OpenAI {
		calls = `{"role":"assistant","content":null,"tool_calls":[{"id":"%s","type":"function","function":{"name":"look","arguments":"{\"n\":%d}"}}]}`
		answers = `{"role":"tool","tool_call_id":"%s","content":"seen %d"}`
	}
	for i := range l.n {
		if l.turns && !yield(fmt.Sprintf(asks, "look")) {
			return
		}
		if !yield(fmt.Sprintf(calls, l.id(i), i)) || l.turns && i > 0 && !yield(fmt.Sprintf(answers, l.id(i-1), i)) {
			return
		}
	}
	for i := range l.n {
		if !l.turns && !yield(fmt.Sprintf(answers, l.id(i), i)) {
			return
		}
	}
}

func (l late) document() []byte {
	var b bytes.Buffer
	between, end := ",", "]"
	switch l.format {
	case wire.Native:
		b.WriteString(`{"version":1,"type":"historyd.history","messages":[`)
		end = "]}"
	case wire.JSONL:
		between, end = "\n", ""
	default:
		b.WriteString("[")
	}
	first := true
	for e := range l.elements {
		if !first {
			b.WriteString(between)
		}
		first = false
		b.WriteString(e)
	}
	b.WriteString(end)
	return b.Bytes()
}

// allocations counts those of fn, for each of n.
func allocations(n int, fn func()) float64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	fn()
	runtime.ReadMemStats(&after)
	return float64(after.Mallocs-before.Mallocs) / float64(n)
}

func (b *bench) must(err error) {
	b.t.Helper()
	if err != nil {
		b.t.Fatal(err)
	}
}

// passages are ways of such a record into the daemon, within it, and out.
var passages = []string{"import", "fork", "replay", "export"}

// cost is what each passage allocates for a message.
func (l late) cost(t *testing.T) []float64 {
	t.Helper()
	b := newBench(t, projection.Options{Tools: []projection.Rule{{Match: "look", Category: "misc"}}})
	defer b.stop()
	ctx, c, doc := context.Background(), conversation(t, "ann"), l.document()
	var done Imported
	imported := allocations(1, func() {
		r, err := wire.NewReader(l.format, false, bytes.NewReader(doc), 0)
		b.must(err)
		done, err = b.Import(ctx, c, Document{Mode: history.Create, Source: r})
		b.must(err)
	})
	if want := int64(2 * l.n); !l.turns && done.Added != want {
		t.Fatalf("%d messages are there, want %d", done.Added, want)
	}
	n := int(done.Added)
	return []float64{
		imported / float64(n),
		allocations(n, func() {
			_, err := b.Fork(ctx, c, Conversation{c.Scope, "two"}, 0)
			b.must(err)
		}),
		allocations(n, func() {
			got := b.replay(c, Ask{Full: true})
			if got.Report.SyntheticResults > 1 || got.Report.DroppedOrphans > 0 {
				t.Fatalf("results do not answer their calls: %+v", got.Report)
			}
		}),
		allocations(n, func() {
			e, err := b.Export(ctx, c)
			b.must(err)
			defer e.Close()
			b.must(e.Scan(ctx))
		}),
	}
}

// TestResultsThatComeMuchLaterCostNoMoreEach compares documents with results as many
// messages behind their calls as there are calls, with such of a quarter of that.
func TestResultsThatComeMuchLaterCostNoMoreEach(t *testing.T) {
	each := func(i int) string { return fmt.Sprint("call-", i) }
	one := func(int) string { return "call" }
	for name, l := range map[string]late{
		"native":          {format: wire.Native, n: 12_000, id: each}, // over what a fold waits for
		"lines":           {format: wire.JSONL, n: 6000, id: each},
		"openai":          {format: wire.OpenAI, n: 6000, id: each},
		"one id":          {format: wire.Native, n: 6000, id: one},
		"turn after turn": {format: wire.Native, n: 6000, id: each, turns: true},
	} {
		t.Run(name, func(t *testing.T) {
			if growth.Raced {
				l.n /= 3
			}
			long := l.cost(t)
			l.n /= 4
			short := l.cost(t)
			for i, passage := range passages {
				if long[i] > 2.5*short[i]+1 {
					t.Errorf("%s: %.0f allocations a message, %.0f in a document four times as long", passage, short[i], long[i])
				}
			}
		})
	}
}

// TestAppendedResultsOfOldCallsCostNoMoreEach compares records of which one is four times
// as long: its results come so much later.
func TestAppendedResultsOfOldCallsCostNoMoreEach(t *testing.T) {
	cost := func(n int) (bytes float64) {
		b := newBench(t, projection.Options{Tools: []projection.Rule{{Match: "look", Category: "misc"}}})
		defer b.stop()
		c := conversation(t, "ann")
		for i := range n {
			b.record(c, Turn{Messages: []history.Message{calls(fmt.Sprint("call-", i), "look", "{}")}})
		}
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		for i := range n {
			if done := b.record(c, Turn{Messages: []history.Message{answers(fmt.Sprint("call-", i), "seen")}}); len(done.Changes) > 0 {
				t.Fatalf("result %d: %+v", i, done.Changes)
			}
		}
		runtime.ReadMemStats(&after)
		return float64(after.TotalAlloc-before.TotalAlloc) / float64(n)
	}
	short, long := cost(1000), cost(4000)
	if long > 2*short {
		t.Errorf("%.0f bytes are allocated for a result, %.0f in a record four times as long", short, long)
	}
}
