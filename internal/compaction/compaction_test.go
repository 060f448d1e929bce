package compaction

import (
	"encoding/json/jsontext"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"historyd/internal/history"
)

var began = time.Date(2026, 11, 29, 21, 32, 0, 0, time.UTC)

func person(text string) history.Message {
	return history.Message{Role: history.User, Kind: history.Person, Status: history.Complete, Content: []history.Block{history.Text(text)}}
}

func reference(text string) history.Message {
	return history.Message{Role: history.User, Kind: history.Reference, Status: history.Complete, Content: []history.Block{history.Text(text)}}
}

func assistant(text string, calls ...history.Block) history.Message {
	m := history.Message{Role: history.Assistant, Status: history.Complete, Content: calls}
	if text != "" {
		m.Content = append([]history.Block{history.Text(text)}, calls...)
	}
	return m
}

func system(text string) history.Message {
	return history.Message{Role: history.System, Status: history.Complete, Content: []history.Block{history.Text(text)}}
}

func calling(id, name string) history.Block {
	return history.Block{Type: history.ToolCall, ID: id, Name: name, Arguments: jsontext.Value(`{"arg":"canary"}`)}
}

func result(id string) history.Block {
	return history.Block{Type: history.ToolResult, CallID: id, Plain: true, Content: []history.Block{history.Text("canary")}}
}

func tool(results ...history.Block) history.Message {
	return history.Message{Role: history.Tool, Status: history.Complete, Content: results}
}

// fatal is what a testing.T and a rapid.T have in common here.
type fatal interface {
	Helper()
	Fatalf(format string, args ...any)
}

// A talk plays the engine: it gives each batch its place and folds when that is due.
type talk struct {
	t       fatal
	c       *Compactor
	all     []history.Message
	summary *history.Summary
	asked   int
	folds   int
	check   func(prev, next *history.Summary) // called after each fold
}

func newTalk(t fatal, o Options) *talk {
	t.Helper()
	c, err := New(o)
	if err != nil {
		t.Fatalf("New(%+v): %v", o, err)
	}
	return &talk{t: t, c: c}
}

// rest is what has not been folded.
func (k *talk) rest() []history.Message { return after(k.summary, k.all) }

func after(s *history.Summary, all []history.Message) []history.Message {
	if s == nil {
		return all
	}
	return all[s.ThroughSeq:]
}

func (k *talk) window() history.Window { return count(k.rest()) }

func count(msgs []history.Message) (w history.Window) {
	for i := range msgs {
		w.Messages++
		if msgs[i].StartsTurn() {
			w.Turns++
		}
	}
	return w
}

func (k *talk) append(batch ...history.Message) {
	k.t.Helper()
	before := k.window()
	for _, m := range batch {
		m.Seq = int64(len(k.all)) + 1
		m.At = began.Add(time.Duration(len(k.all)) * time.Minute)
		k.all = append(k.all, m)
	}
	if !k.c.Due(before, k.window()) {
		return
	}
	k.asked++
	if next := k.fold(); next != nil {
		prev := k.summary
		k.summary = next
		k.folds++
		if k.check != nil {
			k.check(prev, next)
		}
	}
}

func (k *talk) fold() *history.Summary {
	k.t.Helper()
	s, err := k.c.Fold(k.summary, each(k.rest()))
	if err != nil {
		k.t.Fatalf("Fold: %v", err)
	}
	return s
}

func each(msgs []history.Message) iter.Seq2[history.Message, error] {
	return func(yield func(history.Message, error) bool) {
		for _, m := range msgs {
			if !yield(m, nil) {
				return
			}
		}
	}
}

// turns makes n ordinary turns of two messages.
func turns(n int) []history.Message {
	var msgs []history.Message
	for i := range n {
		msgs = append(msgs, person(fmt.Sprintf("question %d", i+1)), assistant(fmt.Sprintf("answer %d", i+1)))
	}
	return msgs
}

func TestNewRefusesWhatCannotWork(t *testing.T) {
	for _, tt := range []struct {
		o    Options
		want string
	}{
		{Options{}, ""},
		{Options{KeepVerbatimTurns: 1, FoldBatch: 1, MaxSummaryChars: 500}, ""},
		{Options{KeepVerbatimTurns: -1}, "KeepVerbatimTurns"},
		{Options{FoldBatch: -5}, "FoldBatch"},
		{Options{FoldBatch: 1 << 40}, "FoldBatch"},
		{Options{MaxSummaryChars: 499}, "MaxSummaryChars"},
	} {
		_, err := New(tt.o)
		if tt.want == "" && err != nil || tt.want != "" && (err == nil || !strings.HasPrefix(err.Error(), tt.want)) {
			t.Errorf("New(%+v): %v, want an error of %q", tt.o, err, tt.want)
		}
	}
}

func TestTheWindowHoldsTheNewestTurnsAndTheSummaryTheOthers(t *testing.T) {
	k := newTalk(t, Options{})
	for i, m := range turns(50) {
		k.append(m)
		n := i/2 + 1 // turns so far
		want := max(0, (n-10)/5*5)
		var got int64
		if k.summary != nil {
			got = k.summary.Turns
		}
		if got != int64(want) {
			t.Fatalf("after %d turns %d are folded, want %d", n, got, want)
		}
	}
	want := &history.Summary{ThroughSeq: 80, Turns: 40, Messages: 80, At: k.all[79].At, Source: "digest", Lines: k.summary.Lines}
	if diff := cmp.Diff(want, k.summary); diff != "" {
		t.Errorf("summary (-want +got):\n%s", diff)
	}
	if len(k.summary.Lines) != 40 {
		t.Errorf("%d lines, want 40", len(k.summary.Lines))
	}
	if got, want := k.summary.Lines[1], `- 2026-11-29 21:34 user: "question 2" | assistant: "answer 2"`; got != want {
		t.Errorf("line 2 is %s, want %s", got, want)
	}
	// A provider's prompt cache is lost no more often than that.
	if k.folds != 8 || k.asked != 8 {
		t.Errorf("%d folds, asked %d times, want 8 and 8", k.folds, k.asked)
	}
}

func TestFoldingAgainWithoutNewMessagesDoesNothing(t *testing.T) {
	k := newTalk(t, Options{})
	k.append(turns(33)...)
	if k.summary == nil || k.summary.Turns != 20 {
		t.Fatalf("summary = %+v, want 20 turns", k.summary)
	}
	if again := k.fold(); again != nil {
		t.Errorf("folded again: %+v", again)
	}
}

func TestFoldDoesNotChangeWhatItIsGiven(t *testing.T) {
	k := newTalk(t, Options{MaxSummaryChars: 600})
	k.append(turns(15)...)
	k.summary.Lines = slices.Grow(k.summary.Lines, 100)
	room := k.summary.Lines[:cap(k.summary.Lines)]
	was := *k.summary
	was.Lines = slices.Clone(room)
	prev := k.summary
	k.append(turns(20)...)
	if k.summary == prev || k.summary.Omitted == prev.Omitted {
		t.Fatal("nothing gave way: the test shows nothing")
	}
	is := *prev
	is.Lines = room
	if diff := cmp.Diff(was, is); diff != "" {
		t.Errorf("prev changed (-was +is):\n%s", diff)
	}
}

func TestDueIsCheapAndNotAskedForNothing(t *testing.T) {
	c, err := New(Options{})
	if err != nil {
		t.Fatal(err)
	}
	type w = history.Window
	for _, tt := range []struct {
		before, after w
		want          bool
	}{
		{w{}, w{}, false},
		{w{}, w{Turns: 14, Messages: 28}, false},
		{w{Turns: 14, Messages: 28}, w{Turns: 15, Messages: 29}, true},
		{w{Turns: 15, Messages: 29}, w{Turns: 15, Messages: 30}, false},
		{w{Turns: 19, Messages: 50}, w{Turns: 20, Messages: 51}, true},
		{w{}, w{Turns: 150, Messages: 300}, true},
		{w{Turns: 1, Messages: 199}, w{Turns: 1, Messages: 200}, false},
		{w{Turns: 1, Messages: 2799}, w{Turns: 1, Messages: 2800}, true},
		{w{Turns: 1, Messages: 2800}, w{Turns: 1, Messages: 2801}, false},
		{w{Messages: 2999}, w{Messages: 3000}, true},
	} {
		if got := c.Due(tt.before, tt.after); got != tt.want {
			t.Errorf("Due(%+v, %+v) = %v, want %v", tt.before, tt.after, got, tt.want)
		}
	}
}

func TestAFoldNeverPartsACallFromItsResult(t *testing.T) {
	for _, tt := range []struct {
		name  string
		calls map[int]int // turn of the call to the turn of its result
		id    string      // of all calls; empty means one for each
		turns int
		want  []int64 // folded turns after each fold
	}{
		{"answered where it was made", map[int]int{5: 5}, "", 20, []int64{5, 10}},
		{"answered behind the boundary", map[int]int{5: 6}, "", 15, []int64{4}},
		{"answered behind the boundary, then there is a better one", map[int]int{5: 6}, "", 19, []int64{4, 9}},
		{"answered far behind", map[int]int{2: 14}, "", 15, []int64{1}},
		{"no boundary at all", map[int]int{1: 6}, "", 19, nil},
		{"no boundary at first", map[int]int{1: 6}, "", 20, []int64{10}},
		{"a chain", map[int]int{1: 2, 2: 3, 3: 4, 4: 5, 5: 6}, "", 20, []int64{10}},
		{"two at once", map[int]int{2: 3, 4: 8}, "", 15, []int64{3}},
		{"the nearest call of that id is meant", map[int]int{1: -1, 3: 4}, "call_0", 15, []int64{5}},
		{"never answered", map[int]int{1: -1, 5: -1, 7: -1}, "", 20, []int64{5, 10}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			k := newTalk(t, Options{})
			var got []int64
			k.check = func(_, next *history.Summary) { got = append(got, next.Turns) }
			for n := 1; n <= tt.turns; n++ {
				k.append(person("q"))
				for from, to := range tt.calls {
					if to == n && from != n {
						k.append(tool(result(tt.id + name(tt.id, from))))
					}
				}
				if to, there := tt.calls[n]; there {
					k.append(assistant("", calling(tt.id+name(tt.id, n), "f")))
					if to == n {
						k.append(tool(result(tt.id + name(tt.id, n))))
					}
				}
				k.append(assistant("a"))
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("folded turns (-want +got):\n%s", diff)
			}
		})
	}
}

func name(id string, n int) string {
	if id != "" {
		return ""
	}
	return fmt.Sprint("c", n)
}

// rounds makes n exchanges of a call and its result.
func rounds(n int) []history.Message {
	var msgs []history.Message
	for range n {
		msgs = append(msgs, assistant("", calling("call_0", "step")), tool(result("call_0")))
	}
	return msgs
}

func TestALongTurnIsPartedAtACompleteGroup(t *testing.T) {
	k := newTalk(t, Options{KeepVerbatimTurns: 1, FoldBatch: 1})
	k.append(person("build it"))
	for _, m := range rounds(300) {
		k.append(m)
	}
	if k.summary == nil || k.summary.Messages != 401 || k.summary.Turns != 1 {
		t.Fatalf("summary = %+v, want 401 messages of 1 turn", k.summary)
	}
	if first := k.rest()[0]; first.Role != history.Assistant {
		t.Errorf("the window begins with role %s", first.Role)
	}
	want := []string{
		`- 2026-11-29 21:32 user: "build it" | tools: step×100`,
		`- 2026-11-30 00:53 (same turn, continued) tools: step×100`,
	}
	if diff := cmp.Diff(want, k.summary.Lines); diff != "" {
		t.Errorf("lines (-want +got):\n%s", diff)
	}
	k.append(assistant("done"))
	k.append(person("thanks"))
	k.append(person("bye"))
	if got := k.summary.Turns; got != 2 {
		t.Errorf("%d turns are folded at last, want 2", got)
	}
}

func TestALongTurnIsNotPartedWhileARecentCallWaits(t *testing.T) {
	k := newTalk(t, Options{KeepVerbatimTurns: 1, FoldBatch: 1})
	k.append(person("build it"))
	k.append(rounds(50)...)                           // 101 messages
	k.append(assistant("", calling("slow", "build"))) // the 102nd
	k.append(rounds(99)...)                           // 300
	k.append(tool(result("slow")))                    // 301: parted no earlier than here
	k.append(rounds(200)...)                          // 701
	if k.summary == nil || k.summary.Messages < 301 || len(k.summary.Lines) == 0 {
		t.Fatalf("summary = %+v, want one that holds the slow call and its result", k.summary)
	}
	if got, want := k.summary.Lines[0], `- 2026-11-29 21:32 user: "build it" | tools: step×149, build`; got != want {
		t.Errorf("line %s, want %s", got, want)
	}
	// A call that is older than 200 messages is taken for abandoned.
	k = newTalk(t, Options{KeepVerbatimTurns: 1, FoldBatch: 1})
	k.append(person("build it"), assistant("", calling("lost", "build")))
	k.append(rounds(300)...)
	if k.summary == nil || k.summary.Messages != 402 {
		t.Fatalf("summary = %+v, want 402 messages", k.summary)
	}
	// At exactly 200 it is not.
	k = newTalk(t, Options{KeepVerbatimTurns: 1, FoldBatch: 1})
	k.append(person("build it"), assistant("", calling("lost", "build")), assistant("well"))
	k.append(rounds(199)...)
	if k.summary == nil || k.summary.Messages != 203 {
		t.Fatalf("summary = %+v, want 203 messages", k.summary)
	}
}

func TestPartsLeaveInWholeBatches(t *testing.T) {
	k := newTalk(t, Options{KeepVerbatimTurns: 1, FoldBatch: 2})
	k.append(person("build it"))
	k.append(rounds(110)...) // two parts
	k.append(person("and that"), person("and this"))
	if k.summary == nil || k.summary.Messages != 221 || k.summary.Turns != 1 {
		t.Fatalf("summary = %+v, want the two parts of the first turn, 221 messages", k.summary)
	}
}

func TestWhatComesBeforeTheFirstTurnBelongsToIt(t *testing.T) {
	k := newTalk(t, Options{KeepVerbatimTurns: 1, FoldBatch: 1})
	k.append(system("you are kind"), assistant("hello"), person("hi"), assistant("what is it"))
	k.append(person("more"))
	if k.summary == nil || k.summary.Messages != 4 || k.summary.Turns != 1 {
		t.Fatalf("summary = %+v, want the four messages of the first turn", k.summary)
	}
	if got, want := k.summary.Lines[0], `- 2026-11-29 21:32 user: "hi" | assistant: "what is it"`; got != want {
		t.Errorf("line %s, want %s", got, want)
	}

	// Also when it is long enough to be parted before anybody says a word.
	k = newTalk(t, Options{KeepVerbatimTurns: 1, FoldBatch: 1})
	k.append(rounds(250)...)
	k.append(person("are you there"), assistant("yes"), person("good"))
	want := []string{
		`- 2026-11-29 21:32 tools: step×100`,
		`- 2026-11-30 00:52 (same turn, continued) tools: step×100`,
		`- 2026-11-30 04:12 (same turn, continued) tools: step×50 | user: "are you there" | assistant: "yes"`,
	}
	if diff := cmp.Diff(want, k.summary.Lines); diff != "" {
		t.Errorf("lines (-want +got):\n%s", diff)
	}
	if k.summary.Turns != 1 {
		t.Errorf("%d turns are folded, want 1", k.summary.Turns)
	}
}

func TestResultsAloneAreFolded(t *testing.T) {
	k := newTalk(t, Options{KeepVerbatimTurns: 1, FoldBatch: 1})
	failed := result("nobody")
	failed.IsError = true
	k.append(tool(failed, result("nobody")))
	if s := k.fold(); s != nil {
		t.Errorf("folded the only unit: %+v", s)
	}
	k.append(person("q"), person("q"), person("q"))
	want := []string{
		`- 2026-11-29 21:32 results of earlier calls: 2 (1 failed) | user: "q"`,
		`- 2026-11-29 21:34 user: "q"`,
	}
	if diff := cmp.Diff(want, k.summary.Lines); diff != "" {
		t.Errorf("lines (-want +got):\n%s", diff)
	}
}

func TestAWindowThatCannotBeReadIsLeftAlone(t *testing.T) {
	reg := prometheus.NewRegistry()
	c, err := New(Options{KeepVerbatimTurns: 1, FoldBatch: 1, Registerer: reg})
	if err != nil {
		t.Fatal(err)
	}
	cause := errors.New("the disk is on fire")
	s, err := c.Fold(nil, func(yield func(history.Message, error) bool) {
		_ = yield(person("a"), nil) && yield(person("b"), nil) && yield(history.Message{}, cause)
	})
	if s != nil || !errors.Is(err, cause) {
		t.Errorf("Fold = %v, %v, want the cause", s, err)
	}
	for range 2 {
		if _, err := c.Fold(nil, each([]history.Message{person("a"), person("b"), person("c")})); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := c.Fold(nil, each(nil)); err != nil {
		t.Fatal(err)
	}
	want := `
# HELP historyd_folded_turns_total Turns that left a window for a summary.
# TYPE historyd_folded_turns_total counter
historyd_folded_turns_total 4
# HELP historyd_folds_total Times that older turns were looked at for folding, by result: folded, none, failed.
# TYPE historyd_folds_total counter
historyd_folds_total{result="failed"} 1
historyd_folds_total{result="folded"} 2
historyd_folds_total{result="none"} 1
`
	if err := testutil.GatherAndCompare(reg, strings.NewReader(want)); err != nil {
		t.Error(err)
	}
}
