package projection

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"historyd/internal/history"
)

func TestFit(t *testing.T) {
	user, answer := said("q"), message(history.Assistant, history.Text("a"))
	reference := with(user, func(m *history.Message) { m.Kind = history.Reference })
	three := []history.Message{user, answer, user, reference, answer, user, answer} // of 20, 30 and 20
	for _, tt := range []struct {
		name string
		in   []history.Message
		b    Budget
		want Fitted
	}{
		{"nothing", nil, Budget{Max: 100, Fixed: 7}, Fitted{Tokens: 7}},
		{"nothing, and too much beside it", nil, Budget{Max: 6, Fixed: 7}, Fitted{Tokens: 7, Over: true}},
		{"all", three, Budget{Max: 70}, Fitted{Tokens: 70}},
		{"one token less goes down to the low mark", three, Budget{Max: 69}, Fitted{From: 5, Turns: 2, Tokens: 20}},
		{"what is fixed leaves less room", append(three, user, answer), Budget{Max: 172, Fixed: 100}, Fitted{From: 5, Turns: 2, Tokens: 140}},
		{"what is fixed counts", three, Budget{Max: 70, Fixed: 1}, Fitted{From: 5, Turns: 2, Tokens: 21}},
		{"the second turn made the first go", three, Budget{Max: 45}, Fitted{From: 5, Turns: 2, Tokens: 20}},
		{"as much as the low mark stays", append(three, user, answer), Budget{Max: 72}, Fitted{From: 5, Turns: 2, Tokens: 40}},
		{"exactly the newest", three, Budget{Max: 20}, Fitted{From: 5, Turns: 2, Tokens: 20}},
		{"even the newest is over", three, Budget{Max: 19}, Fitted{From: 5, Turns: 2, Tokens: 20, Over: true}},
		{"even the newest is over with what is fixed", three, Budget{Max: 20, Fixed: 1}, Fitted{From: 5, Turns: 2, Tokens: 21, Over: true}},
		{"what comes before the first turn belongs to it", append([]history.Message{answer}, three...), Budget{Max: 75}, Fitted{From: 3, Turns: 1, Tokens: 50}},
		{"no turn begins", []history.Message{answer, answer}, Budget{Max: 15}, Fitted{Tokens: 20, Over: true}},
		{"a window that a fold left with too little room for a turn", three, Budget{Max: 80, Settle: 5, Ahead: 1}, Fitted{From: 2, Turns: 1, Tokens: 50}},
		{"a window that a fold left with room for a turn", three, Budget{Max: 97, Settle: 5, Ahead: 1}, Fitted{Tokens: 70}},
		{"room is made, too, where the window that a fold left passes the budget by its last message", append(three, user, answer), Budget{Max: 85, Settle: 8, Ahead: 2}, Fitted{From: 7, Turns: 3, Tokens: 20}},
		{"the largest turn so far and a quarter need room", three, Budget{Max: 96, Settle: 5, Ahead: 1}, Fitted{From: 2, Turns: 1, Tokens: 50}},
		{"more turns ahead than there were", three, Budget{Max: 150, Settle: 5, Ahead: 3}, Fitted{From: 2, Turns: 1, Tokens: 50}},
		{"what is ahead takes three quarters, and the newest turn alone stays", three, Budget{Max: 68, Settle: 5, Ahead: 2}, Fitted{From: 5, Turns: 2, Tokens: 20}},
		{"what is ahead takes more, and the window goes down to the low mark", three, Budget{Max: 67, Settle: 5, Ahead: 2}, Fitted{From: 2, Turns: 1, Tokens: 50}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := Fit(tt.in, each(len(tt.in), 10), tt.b); got != tt.want {
				t.Errorf("Fit = %+v, want %+v", got, tt.want)
			}
		})
	}
}

func TestAheadIsAsMuchAsTheLargestSoManyAndAQuarter(t *testing.T) {
	user, answer := said("q"), message(history.Assistant, history.Text("a"))
	msgs := []history.Message{answer, user, answer, user, user, answer, user} // of 30, 10 and 20, and one that has begun
	for turns, want := range []int64{0, 37, 50, 75, 100} {
		if got := Ahead(msgs, each(len(msgs), 10), turns); got != want {
			t.Errorf("%d turns ahead: %d, want %d", turns, got, want)
		}
	}
	if got := Ahead(nil, nil, 3) + Ahead(msgs[:1], each(1, 10), 3) + Ahead(msgs[:3], each(3, 10), 3); got != 0 {
		t.Errorf("before a turn has ended: %d, want 0", got)
	}
}

// each returns n costs.
func each(n int, cost int64) []int64 { return slices.Repeat([]int64{cost}, n) }

func TestFitCountsTheDeclarationsOfWhatStays(t *testing.T) {
	msgs := []history.Message{
		said("1"), calling("a", "search", "{}"), answering("a", "x"), calling("b", "search", "{}"), answering("b", "x"),
		said("2"), calling("c", "book", "{}"), answering("c", "x"),
		said("3"),
	}
	declare := func(name string) int64 { return map[string]int64{"search": 100, "book": 200}[name] }
	for _, tt := range []struct {
		max  int64
		want Fitted
	}{
		{390, Fitted{Tokens: 390}},
		{380, Fitted{From: 5, Turns: 1, Tokens: 240}},
		{330, Fitted{From: 5, Turns: 1, Tokens: 240}},
		{240, Fitted{From: 5, Turns: 1, Tokens: 240}},
		{239, Fitted{From: 8, Turns: 2, Tokens: 10}},
		{100, Fitted{From: 8, Turns: 2, Tokens: 10}},
	} {
		if got := Fit(msgs, each(len(msgs), 10), Budget{Max: tt.max, Declare: declare}); got != tt.want {
			t.Errorf("max %d: %+v, want %+v", tt.max, got, tt.want)
		}
	}
}

// A window is what the property tests fit: messages, what each costs, and a budget.
type window struct {
	msgs  []history.Message
	costs []int64
	b     Budget
}

func drawWindow(t *rapid.T) (w window) {
	for range rapid.IntRange(1, 40).Draw(t, "messages") {
		m := rapid.SampledFrom([]history.Message{
			said("q"), message(history.Assistant, history.Text("a")), calling("c", "search", "{}"), calling("c", "book", "{}"), answering("c", "x"),
		}).Draw(t, "message")
		w.msgs, w.costs = append(w.msgs, m), append(w.costs, rapid.Int64Range(1, 50).Draw(t, "cost"))
	}
	w.b = Budget{Max: rapid.Int64Range(1, 400).Draw(t, "max"), Fixed: rapid.Int64Range(0, 100).Draw(t, "fixed"), Settle: rapid.IntRange(0, 30).Draw(t, "settle"), Ahead: rapid.Int64Range(0, 5).Draw(t, "ahead")}
	if rapid.Bool().Draw(t, "declares") {
		w.b.Declare = func(name string) int64 { return int64(len(name)) }
	}
	return w
}

// tokens counts what stays from a message on.
func (w *window) tokens(from int) int64 {
	n, known := w.b.Fixed, map[string]bool{}
	for i := from; i < len(w.msgs); i++ {
		n += w.costs[i]
		for _, b := range w.msgs[i].Content {
			if b.Type == history.ToolCall && w.b.Declare != nil && !known[b.Name] {
				known[b.Name] = true
				n += w.b.Declare(b.Name)
			}
		}
	}
	return n
}

func TestFitKeepsToItsPromises(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := drawWindow(t)
		starts, begun := []int{0}, false
		for i := range w.msgs {
			if begun && w.msgs[i].StartsTurn() {
				starts = append(starts, i)
			}
			begun = begun || w.msgs[i].StartsTurn()
		}
		got := Fit(w.msgs, w.costs, w.b)
		switch {
		case starts[got.Turns] != got.From:
			t.Errorf("turn %d does not begin at message %d", got.Turns, got.From)
		case got.Tokens != w.tokens(got.From):
			t.Errorf("%d tokens, want %d", got.Tokens, w.tokens(got.From))
		case got.Over != (got.Tokens > w.b.Max):
			t.Errorf("over is %t for %d of %d tokens", got.Over, got.Tokens, w.b.Max)
		case got.Over && got.Turns != len(starts)-1:
			t.Errorf("over, and %d turns stay", len(starts)-got.Turns)
		}
	})
}

// What was decided at a message depends on those up to it: with each one more the first
// that stays is the same or a later one, and it moves only when the budget was passed.
func TestFitMovesOnlyWhenTheBudgetIsPassed(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := drawWindow(t)
		var last Fitted
		for n := 1; n <= len(w.msgs); n++ {
			part := window{w.msgs[:n], w.costs[:n], w.b}
			got := Fit(part.msgs, part.costs, part.b)
			if got.From < last.From {
				t.Fatalf("message %d: from %d back to %d", n, last.From, got.From)
			}
			if would := part.tokens(last.From); got.From != last.From && would <= w.b.Max && n-1 != w.b.Settle {
				t.Fatalf("message %d: from %d to %d, though all were %d of %d", n, last.From, got.From, would, w.b.Max)
			}
			if got.From != last.From && n-1 != w.b.Settle && got.Tokens > w.b.Fixed+max(w.b.Max-w.b.Fixed, 0)*7/10 && !atNewest(part.msgs, got.From) {
				t.Fatalf("message %d: moved to %d tokens of %d", n, got.Tokens, w.b.Max)
			}
			last = got
		}
	})
}

// atNewest reports whether no turn begins after a message.
func atNewest(msgs []history.Message, from int) bool {
	return !slices.ContainsFunc(msgs[from+1:], func(m history.Message) bool { return m.StartsTurn() })
}

// At the ceiling a window moves once in a while, not with each turn.
func TestFiftyTurnsAtTheCeilingMoveAFewTimes(t *testing.T) {
	var msgs []history.Message
	moves, from := 0, 0
	for range 60 {
		msgs = append(msgs, said("q"), message(history.Assistant, history.Text("a")))
		got := Fit(msgs, each(len(msgs), 10), Budget{Max: 200})
		if got.From != from {
			moves, from = moves+1, got.From
		}
	}
	if moves > 60/4 || moves == 0 {
		t.Errorf("the window moved %d times in 60 turns of which 10 fit", moves)
	}
}

func TestCostsOfAClosureAreThoseOfItsDeclarations(t *testing.T) {
	msgs := []history.Message{said("q"), calling("a", "search", "{}"), answering("a", "x"), calling("b", "known", "{}"), answering("b", "x"), calling("c", "may", "{}"), answering("c", "x")}
	c := Closure{Tools: []string{"known"}, Granted: []string{"may", "known", "also", "may"}, Role: "guest"}
	got, called := c.Costs()
	for _, name := range []string{"search", "known", "may"} {
		got += called(name)
	}
	want := int64(0)
	for _, d := range CloseTools(msgs, c).Added {
		want += d.Tokens()
	}
	if got != want || want < 3*declarationTokens {
		t.Errorf("costs %d, the declarations take %d", got, want)
	}
}

func TestAMeterScalesByWhatAnswersTook(t *testing.T) {
	text := strings.Repeat("the word ", 200) // some 400 tokens
	estimated := EstimateText(text)
	answer := func(usage string) history.Message {
		return with(message(history.Assistant, history.Text(text)), func(m *history.Message) { m.Usage = raw(usage) })
	}
	thinking := func(usage string) history.Message {
		return with(answer(usage), func(m *history.Message) {
			m.Content = append(m.Content, history.Block{Type: history.ThinkingBlock, Text: text})
		})
	}
	for _, tt := range []struct {
		name string
		seen history.Message
		want int64 // eighths
	}{
		{"Messages", answer(fmt.Sprintf(`{"input_tokens":9,"output_tokens":%d}`, estimated*3/2)), 12},
		{"Chat Completions", answer(fmt.Sprintf(`{"completion_tokens":%d}`, estimated*3/4)), 6},
		{"Gemini", answer(fmt.Sprintf(`{"candidatesTokenCount":%d,"thoughtsTokenCount":9999}`, estimated)), 8},
		{"a bill as estimated, nearly", answer(fmt.Sprintf(`{"output_tokens":%d}`, estimated*31/30)), 8},
		{"much more", answer(fmt.Sprintf(`{"output_tokens":%d}`, estimated*3)), 16},
		{"much less", answer(fmt.Sprintf(`{"output_tokens":%d}`, estimated/3)), 4},
		{"beyond belief", answer(fmt.Sprintf(`{"output_tokens":%d}`, estimated*5)), 8},
		{"none at all", answer(`{"output_tokens":0}`), 8},
		{"unknown", answer(`{"output_tokens":null,"completion_tokens":null}`), 8},
		{"no usage", answer(``), 8},
		{"usage of something else", answer(`{"input_tokens":5000}`), 8},
		{"a count that is none", answer(`{"output_tokens":-5}`), 8},
		{"reasoning apart", answer(fmt.Sprintf(`{"output_tokens":%d,"output_tokens_details":{"reasoning_tokens":5000}}`, estimated*3/2+5000)), 12},
		{"reasoning apart, in Chat Completions", thinking(fmt.Sprintf(`{"completion_tokens":%d,"completion_tokens_details":{"reasoning_tokens":700}}`, estimated*3/2+700)), 12},
		{"reasoning unknown", answer(fmt.Sprintf(`{"output_tokens":%d,"output_tokens_details":{"reasoning_tokens":null}}`, estimated*3/2)), 8},
		{"reasoning in the bill", thinking(fmt.Sprintf(`{"output_tokens":%d}`, estimated*2)), 8},
		{"what is withheld", with(answer(fmt.Sprintf(`{"output_tokens":%d}`, estimated*2)), func(m *history.Message) { m.Content[0].Redacted = &history.Redaction{} }), 8},
		{"too little", with(answer(`{"output_tokens":20}`), func(m *history.Message) { m.Content = []history.Block{history.Text(text[:90])} }), 8},
		{"a user", with(answer(fmt.Sprintf(`{"output_tokens":%d}`, estimated*2)), func(m *history.Message) { m.Role = history.User }), 8},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var meter Meter
			tt.seen.Seq = 1
			meter.Saw(&tt.seen)
			next := with(said(text), func(m *history.Message) { m.Seq = 2 })
			got := meter.Costs([]history.Message{tt.seen, next})
			if want := messageTokens + (price(text) * cents(tt.want) / 8).tokens(); got[1] != want {
				t.Errorf("the next one is %d tokens, want %d", got[1], want)
			}
			if want := EstimateTokens(&tt.seen); got[0] != want {
				t.Errorf("the first one is %d tokens, want %d", got[0], want)
			}
		})
	}
}

// What clients report is believed within bounds: however they lie, an estimate stays between
// half of what it would be and twice as much.
func TestUsageBendsEstimatesWithinBounds(t *testing.T) {
	counts := []string{"0", "1", "200", "1073741824", "1073741825", "1000000000000000000", "9223372036854775808", "1e400", "1.5", "-1", "-1e18", `"1"`, "null", "[1]", "{}", "true"}
	rapid.Check(t, func(t *rapid.T) {
		var meter Meter
		var msgs []history.Message
		for seq := range rapid.Int64Range(1, 30).Draw(t, "messages") {
			text := strings.Repeat("a few words ", rapid.SampledFrom([]int{0, 1, 20, 2000}).Draw(t, "words"))
			n := func(name string) string {
				if rapid.Bool().Draw(t, name+" is likely") {
					return fmt.Sprint(EstimateText(text) * rapid.Int64Range(1, 16).Draw(t, "quarters") / 4)
				}
				return rapid.SampledFrom(counts).Draw(t, name)
			}
			m := with(message(history.Assistant, history.Text(text)), func(m *history.Message) {
				m.Seq = seq + 1
				m.Usage = raw(fmt.Sprintf(rapid.SampledFrom([]string{
					`{"output_tokens":%s}`, `{"completion_tokens":%s}`, `{"candidatesTokenCount":%s}`,
					`{"output_tokens":` + n("all") + `,"output_tokens_details":{"reasoning_tokens":%s}}`,
				}).Draw(t, "usage"), n("count")))
			})
			meter.Saw(&m)
			msgs = append(msgs, m, with(said(strings.Repeat("漢", 500)), func(m *history.Message) { m.Seq = seq + 1 }))
		}
		for i, got := range meter.Costs(msgs) {
			if plain := EstimateTokens(&msgs[i]); got < plain/2-messageTokens || got > 2*plain {
				t.Fatalf("message %d: %d tokens, without usage %d", i, got, plain)
			}
		}
	})
}

// Estimates stay as they were made, however many messages follow.
func TestAMeterIsCausal(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var msgs []history.Message
		var before []int64
		var grown Meter
		for seq := range rapid.Int64Range(1, 12).Draw(t, "messages") {
			text := strings.Repeat("a few words ", rapid.IntRange(1, 100).Draw(t, "words"))
			m := with(message(history.Assistant, history.Text(text)), func(m *history.Message) {
				m.Seq = seq + 1
				if rapid.Bool().Draw(t, "billed") {
					m.Usage = raw(fmt.Sprintf(`{"output_tokens":%d}`, rapid.Int64Range(1, 1000).Draw(t, "bill")))
				}
			})
			msgs = append(msgs, m)
			grown.Saw(&m)
			costs := grown.Costs(msgs)
			if !slices.Equal(costs[:len(before)], before) {
				t.Fatalf("%v after %v", costs, before)
			}
			before = costs
		}
	})
}
