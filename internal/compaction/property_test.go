package compaction

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"historyd/internal/history"
)

// small makes turns short enough for many of them: they may be parted after five
// messages instead of 200.
func small(k *talk) *talk {
	k.c.part = 5
	return k
}

func drawOptions(t *rapid.T) Options {
	return Options{
		KeepVerbatimTurns: rapid.IntRange(1, 4).Draw(t, "keep"),
		FoldBatch:         rapid.IntRange(1, 3).Draw(t, "batch"),
		MaxSummaryChars:   rapid.SampledFrom([]int{500, 700, 2000, 8000}).Draw(t, "chars"),
	}
}

var lengths = []int{0, 10, 40, 80, 120, 160}

var texts = rapid.SampledFrom([]string{"", " ", "hi", "a \"quote\" | and\nmore", "<tag>", strings.Repeat("word ", 100), "日本語", "🎉"})

// tidy draws a conversation in which each result follows its call within the same
// part of a turn, or never comes.
func tidy(t *rapid.T) []history.Message {
	var msgs []history.Message
	if rapid.Bool().Draw(t, "lead") {
		msgs = append(msgs, system("s"), assistant("greetings"))
		msgs = append(msgs, rounds(rapid.IntRange(0, 8).Draw(t, "early"))...)
	}
	for i := range rapid.SampledFrom(lengths).Draw(t, "turns") / 4 {
		msgs = append(msgs, person(texts.Draw(t, "user")))
		if rapid.IntRange(0, 4).Draw(t, "reference") == 0 {
			msgs = append(msgs, reference("recalled"))
		}
		long := 2
		if rapid.IntRange(0, 9).Draw(t, "long") == 0 {
			long = 20
		}
		msgs = append(msgs, rounds(rapid.IntRange(0, long).Draw(t, "rounds"))...)
		if rapid.IntRange(0, 9).Draw(t, "dangling") == 0 {
			msgs = append(msgs, assistant("", calling(fmt.Sprint("lost", i), "f")))
		}
		if a := texts.Draw(t, "answer"); a != "" {
			msgs = append(msgs, assistant(a))
		}
	}
	return msgs
}

// wild draws any messages at all, with calls and results of few ids.
func wild(t *rapid.T) []history.Message {
	id := rapid.SampledFrom([]string{"a", "b", "call_0"})
	one := rapid.Custom(func(t *rapid.T) history.Message {
		switch rapid.SampledFrom([]string{"user", "user", "user", "reference", "text", "calls", "results", "results", "system"}).Draw(t, "what") {
		case "user":
			return person(texts.Draw(t, "text"))
		case "reference":
			return reference("recalled")
		case "text":
			return assistant("answer")
		case "calls":
			var calls []history.Block
			for range rapid.IntRange(1, 3).Draw(t, "calls") {
				calls = append(calls, calling(id.Draw(t, "id"), "f"))
			}
			return assistant(texts.Draw(t, "text"), calls...)
		case "results":
			var results []history.Block
			for range rapid.IntRange(1, 2).Draw(t, "results") {
				results = append(results, result(id.Draw(t, "id")))
			}
			return tool(results...)
		}
		return system("s")
	})
	n := rapid.SampledFrom(lengths).Draw(t, "messages")
	return rapid.SliceOfN(one, n, n).Draw(t, "message")
}

func (k *talk) appendInBatches(t *rapid.T, msgs []history.Message) {
	for len(msgs) > 0 {
		n := rapid.IntRange(1, min(len(msgs), rapid.SampledFrom([]int{1, 3, 20, 200}).Draw(t, "most"))).Draw(t, "batch size")
		k.append(msgs[:n]...)
		msgs = msgs[n:]
	}
}

func TestBatchingDoesNotMatter(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		o, msgs := drawOptions(t), tidy(t)
		whole := small(newTalk(t, o))
		whole.append(msgs...)
		single := small(newTalk(t, o))
		for _, m := range msgs {
			single.append(m)
		}
		mixed := small(newTalk(t, o))
		mixed.appendInBatches(t, msgs)
		if diff := cmp.Diff(single.summary, whole.summary); diff != "" {
			t.Fatalf("one by one and all at once differ:\n%s", diff)
		}
		if diff := cmp.Diff(single.summary, mixed.summary); diff != "" {
			t.Fatalf("one by one and batches differ:\n%s", diff)
		}
	})
}

func TestTheWindowOfOrdinaryTurnsIsBounded(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		o := drawOptions(t)
		k := newTalk(t, o) // turns of tidy are ordinary when 200 messages make a long one
		total := 0
		for _, m := range tidy(t) {
			if m.StartsTurn() {
				total++
			}
			k.append(m)
			got := int(k.window().Turns)
			if got < min(total, o.KeepVerbatimTurns) || got >= o.KeepVerbatimTurns+o.FoldBatch {
				t.Fatalf("the window holds %d of %d turns, options %+v", got, total, o)
			}
			if rest := k.rest(); k.summary != nil && !rest[0].StartsTurn() {
				t.Fatalf("the window begins inside a turn: %+v", rest[0])
			}
		}
	})
}

func TestWhateverIsAppendedIsCoveredOnce(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		o, msgs := drawOptions(t), wild(t)
		k := small(newTalk(t, o))
		boundless := *k.c
		boundless.maxChars = 1 << 30
		var full *history.Summary
		k.check = func(prev, next *history.Summary) {
			checkFold(t, k, prev, next)
			var err error
			if full, err = boundless.Fold(full, each(after(prev, k.all))); err != nil || full.ThroughSeq != next.ThroughSeq {
				t.Fatalf("Fold = %+v, %v, want it through %d", full, err, next.ThroughSeq)
			}
			checkLines(t, k, next, full.Lines)
		}
		for len(msgs) > 0 {
			n := rapid.IntRange(1, min(len(msgs), 20)).Draw(t, "batch size")
			k.append(msgs[:n]...)
			msgs = msgs[n:]
			if again := k.fold(); again != nil {
				t.Fatalf("a fold was possible and not asked for: %+v, then %+v", k.summary, again)
			}
		}
	})
}

func checkFold(t *rapid.T, k *talk, prev, next *history.Summary) {
	t.Helper()
	var from history.Summary
	if prev != nil {
		from = *prev
	}
	window := after(prev, k.all)
	n := next.ThroughSeq - from.ThroughSeq
	if n <= 0 || n >= int64(len(window)) {
		t.Fatalf("%d messages of %d left the window", n, len(window))
	}
	left := window[:n]
	w := count(left)
	if next.Messages != from.Messages+n || next.Turns != from.Turns+w.Turns || !next.At.Equal(left[n-1].At) || next.Source != "digest" {
		t.Fatalf("summary = %+v after %+v and %d messages of %d turns", next, from, n, w.Turns)
	}
	if call, there := parted(window, n); there {
		t.Fatalf("call %s is parted from its result after %d messages", call, n)
	}
	frame := k.c.Frame(next)
	if got := utf8.RuneCountInString(frame); got > k.c.maxChars {
		t.Fatalf("the frame has %d code points, limit %d", got, k.c.maxChars)
	}
	if got, want := strings.Count(frame, "\n"), len(next.Lines)+2+min(1, int(next.Omitted)); got != want {
		t.Fatalf("the frame has %d line breaks, want %d:\n%s", got, want, frame)
	}
}

// checkLines compares with all the lines, as they are when none gives way: those
// kept are the longest tail for which there is room.
func checkLines(t *rapid.T, k *talk, next *history.Summary, all []string) {
	t.Helper()
	gone := len(all) - len(next.Lines)
	if gone < 0 || len(next.Lines) == 0 || !slices.Equal(all[gone:], next.Lines) {
		t.Fatalf("the lines are no tail of all lines:\n%q\nof\n%q", next.Lines, all)
	}
	begin := func(lines []string) (n int64) {
		for _, line := range lines {
			if !continues(line) {
				n++
			}
		}
		return n
	}
	if got, want := next.Omitted, begin(all[:gone]); got != want {
		t.Fatalf("%d turns omitted, want %d: %q", got, want, all[:gone])
	}
	if got, want := begin(all), max(1, next.Turns); got != want {
		t.Fatalf("lines of %d turns, want %d: %q", got, want, all)
	}
	for n := range gone {
		more := *next
		more.Lines, more.Omitted = all[n:], begin(all[:n])
		if frameLength(&more) <= k.c.maxChars {
			t.Fatalf("%d lines gave way, but there is room with only %d of them gone", gone, n)
		}
	}
}

// frameLength is how long the frame of a summary is under no limit.
func frameLength(s *history.Summary) int {
	c := &Compactor{maxChars: 1 << 30}
	return utf8.RuneCountInString(c.Frame(s))
}

// parted finds a call among the first n messages that is answered behind them.
func parted(msgs []history.Message, n int64) (string, bool) {
	type place struct {
		id string
		at int
	}
	var waiting []place
	for i := range msgs {
		for _, b := range msgs[i].Content {
			switch b.Type {
			case history.ToolCall:
				waiting = append(waiting, place{b.ID, i})
			case history.ToolResult:
				for j := len(waiting) - 1; j >= 0; j-- {
					if waiting[j].id == b.CallID {
						if int64(waiting[j].at) < n && int64(i) >= n {
							return b.CallID, true
						}
						waiting = slices.Delete(waiting, j, j+1)
						break
					}
				}
			}
		}
	}
	return "", false
}

// A long import is folded while it is read; that must not show.
func TestALongWindowFoldsAsManyShortOnes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		o := drawOptions(t)
		piece := tidy(t)
		if len(piece) == 0 {
			return
		}
		var msgs []history.Message
		for len(msgs) < 3*settleEvery {
			msgs = append(msgs, piece...)
		}
		single, whole := small(newTalk(t, o)), small(newTalk(t, o))
		single.c.reach, whole.c.reach = 1000, 1000
		for _, m := range msgs {
			single.append(m)
		}
		whole.append(msgs...)
		if diff := cmp.Diff(single.summary, whole.summary); diff != "" {
			t.Fatalf("one by one and all at once differ:\n%s", diff)
		}
	})
}

// What is still to come may hold the result of a call that was read long ago.
func TestALongWindowIsNotFoldedTooEarly(t *testing.T) {
	for _, tt := range []struct {
		answered int // turns after the call in turn 600
		want     int64
	}{
		{700, 599},
		{749, 599},
		{751, 1390}, // more than 1500 messages: abandoned
	} {
		k := newTalk(t, Options{})
		k.c.reach = 1500
		msgs := turns(1400)
		msgs[2*599+1] = assistant("", calling("late", "f"))
		msgs[2*(599+tt.answered)+1] = tool(result("late"))
		k.append(msgs[:2*(600+tt.answered)]...)
		got := k.summary.Turns
		if want := min(tt.want, int64(600+tt.answered-10)/5*5); got != want {
			t.Errorf("answered %d turns later: %d turns are folded, want %d", tt.answered, got, want)
		}
	}
}

// Nothing but the window's own lines is held, however long it is.
func TestALongWindowIsNotHeld(t *testing.T) {
	c, err := New(Options{})
	if err != nil {
		t.Fatal(err)
	}
	w := newWindow(c, nil)
	for i := range 100_000 {
		m := person("q")
		if i%2 == 1 {
			m = assistant("", calling("call_0", "f"), calling(fmt.Sprint(i), "f"))
		}
		m.Seq = int64(i + 1)
		w.add(&m)
		if len(w.units) > reach || len(w.calls) > 2*reach || len(w.waiting) > 2*reach || len(w.summary.Lines) > 1000 {
			t.Fatalf("after %d messages: %d units, %d calls of %d ids, %d lines", i+1, len(w.units), len(w.calls), len(w.waiting), len(w.summary.Lines))
		}
	}
	w.fold(w.messages)
	if got := w.summary.Turns + int64(len(w.units)); got != 50_000 {
		t.Errorf("%d turns are accounted for, want 50000", got)
	}
}

// chained makes turns of which none can be parted from the next: results come one turn
// late, except that some turn may have none.
func chained(n, except int) []history.Message {
	var msgs []history.Message
	for i := range n {
		msgs = append(msgs, person(fmt.Sprint("question ", i, strings.Repeat(" and so on", 30))), assistant("", calling(fmt.Sprint("c", i), "f")))
		if i > 0 && i != except {
			msgs = append(msgs, tool(result(fmt.Sprint("c", i-1))))
		}
		msgs = append(msgs, assistant(fmt.Sprint("answer ", i, strings.Repeat(" and so on", 30))))
	}
	return msgs
}

// What a summary has no room for can be forgotten before it leaves.
func TestForgottenLinesChangeNoSummary(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		o, msgs := drawOptions(t), wild(t)
		if rapid.Bool().Draw(t, "chained") {
			msgs = chained(rapid.IntRange(1, 900).Draw(t, "turns"), rapid.IntRange(1, 900).Draw(t, "except"))
		}
		forgets, keeps := newWindow(small(newTalk(t, o)).c, nil), newWindow(small(newTalk(t, o)).c, nil)
		keeps.trimAt = 1 << 30
		for i := range msgs {
			m := msgs[i]
			m.Seq, m.At = int64(i+1), began.Add(time.Duration(i)*time.Minute)
			forgets.add(&m)
			keeps.add(&m)
			if rapid.IntRange(0, 9).Draw(t, "trim") == 0 {
				forgets.trim()
			}
		}
		forgets.fold(forgets.messages)
		keeps.fold(keeps.messages)
		if diff := cmp.Diff(keeps.summary, forgets.summary); diff != "" {
			t.Fatalf("all lines kept (-), and some forgotten (+):\n%s", diff)
		}
	})
}

// A window that nothing can leave holds no more lines than there is room for, and is not
// gone through again.
func TestAWindowThatNothingCanLeaveIsNotHeldEither(t *testing.T) {
	w := newWindow(newTalk(t, Options{}).c, nil)
	for i, m := range chained(12_000, 0) {
		m.Seq = int64(i + 1)
		w.add(&m)
		held := 0
		for _, u := range w.units {
			if u.told != nil {
				held++
			}
		}
		if held > 4*trimLines || held > w.lines {
			t.Fatalf("after %d messages %d lines are held, counted are %d", i+1, held, w.lines)
		}
	}
	if w.looks > 2*len(w.units) {
		t.Errorf("%d units were looked at %d times", len(w.units), w.looks)
	}
}

func BenchmarkFold(b *testing.B) {
	c, err := New(Options{})
	if err != nil {
		b.Fatal(err)
	}
	var msgs []history.Message
	for range 15 {
		msgs = append(msgs, person(strings.Repeat("ask ", 100)))
		msgs = append(msgs, rounds(4)...)
		msgs = append(msgs, assistant(strings.Repeat("tell ", 200)))
	}
	for i := range msgs {
		msgs[i].Seq, msgs[i].At = int64(i+1), began
	}
	b.ReportAllocs()
	for b.Loop() {
		if s, err := c.Fold(nil, each(msgs)); err != nil || s == nil || s.Turns != 5 {
			b.Fatalf("Fold = %+v, %v", s, err)
		}
	}
}
