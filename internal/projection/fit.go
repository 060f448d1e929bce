package projection

import "historyd/internal/history"

// declarationTokens is what declaring a tool takes beside its name and its refusal.
const declarationTokens = 20

// A Budget says what a window may take, in tokens. Max and what counts against it are
// estimates.
type Budget struct {
	Max   int64 // the high mark
	Fixed int64 // what is sent whatever is left out

	// Declare is what the declaration of a tool takes that the messages call; nil means
	// nothing.
	Declare func(name string) int64

	// Settle is the last message that the window began with, when a fold made it; 0 when
	// none did. What is sent changes there anyway, so it is the time to make room for the
	// Ahead turns until the next fold.
	Settle int
	Ahead  int64
}

// Fitted says what stays of a window.
type Fitted struct {
	From   int   // the first message that stays
	Turns  int   // turns before it
	Tokens int64 // of all that stays, with what is fixed and declared
	Over   bool  // that is over Max
}

// Fit leaves out whole turns from the oldest on when a window passes the budget, as many
// as bring it to seven tenths of what is not fixed, or lower if the turns ahead need more
// room; never the newest. What comes before the first turn belongs to it. Costs are the
// messages', one by one.
//
// It decides at each message by those up to it, so that a window that has grown at its end
// keeps its first turn until it passes the budget again: what a provider cached stays good.
func Fit(msgs []history.Message, costs []int64, b Budget) Fitted {
	w := walk{msgs: msgs, costs: costs, declare: b.Declare, starts: []int{0}, spent: []int64{0}, total: b.Fixed, calls: map[string]int{}}
	room := max(b.Max-b.Fixed, 0)
	low := b.Fixed + room/10*7 + room%10*7/10
	begun, spent := false, int64(0)
	for i := range msgs {
		if msgs[i].StartsTurn() {
			if begun {
				w.starts, w.spent = append(w.starts, i), append(w.spent, spent)
			}
			begun = true
		}
		w.add(i)
		spent += costs[i]
		if w.total > b.Max {
			w.shrink(low)
		}
		if i == b.Settle && i > 0 {
			w.shrink(b.Max - w.growth(b))
		}
	}
	return Fitted{From: w.starts[w.dropped], Turns: w.dropped, Tokens: w.total, Over: w.total > b.Max}
}

// A walk goes through a window once.
type walk struct {
	msgs    []history.Message
	costs   []int64
	declare func(name string) int64
	starts  []int          // of turns
	spent   []int64        // costs of what is before each of them
	dropped int            // turns
	total   int64          // of what stays
	calls   map[string]int // by the name of the tool, in what stays
}

func (w *walk) add(i int) {
	w.total += w.costs[i]
	for name := range w.called(i) {
		if w.calls[name]++; w.calls[name] == 1 {
			w.total += w.declare(name)
		}
	}
}

// growth is how much the turns ahead may add, and a quarter. When they are over three quarters
// of what is not fixed there is no use in it, and it is three tenths.
func (w *walk) growth(b Budget) int64 {
	most := largest(w.spent, int(b.Ahead))
	if room := b.Max - b.Fixed; most > room/4*3 {
		return room / 10 * 3
	}
	return most + most/4
}

// largest is what the largest so many turns in a row took of those that have ended. spent is
// what is before the first turn, before the second, and so on.
func largest(spent []int64, turns int) int64 {
	ended := len(spent) - 1 // the last one has just begun
	most := int64(0)
	if turns > ended && ended > 0 {
		most = spent[ended] / int64(ended) * int64(turns)
	}
	for i := turns; i <= ended && turns > 0; i++ {
		most = max(most, spent[i]-spent[i-turns])
	}
	return most
}

// Ahead is how much so many turns may add to a window, which Fit makes room for: as much as
// the largest as many in a row that have ended so far, and a quarter.
func Ahead(msgs []history.Message, costs []int64, turns int) int64 {
	var spent []int64
	sum := int64(0)
	for i := range msgs {
		if msgs[i].StartsTurn() {
			spent = append(spent, sum)
		}
		sum += costs[i]
	}
	if len(spent) == 0 {
		return 0
	}
	spent[0] = 0 // what comes before the first turn belongs to it
	most := largest(spent, turns)
	return most + most/4
}

// shrink leaves out the oldest turns until what stays is as small, or the newest alone.
func (w *walk) shrink(to int64) {
	for w.total > to && w.dropped < len(w.starts)-1 {
		w.drop()
	}
}

// drop leaves out the oldest turn.
func (w *walk) drop() {
	for i := w.starts[w.dropped]; i < w.starts[w.dropped+1]; i++ {
		w.total -= w.costs[i]
		for name := range w.called(i) {
			if w.calls[name]--; w.calls[name] == 0 {
				w.total -= w.declare(name)
			}
		}
	}
	w.dropped++
}

// called yields the tools that a message calls, when declaring them takes anything.
func (w *walk) called(i int) func(yield func(string) bool) {
	return func(yield func(string) bool) {
		if w.declare == nil {
			return
		}
		for j := range w.msgs[i].Content {
			if b := &w.msgs[i].Content[j]; b.Type == history.ToolCall && !yield(b.Name) {
				return
			}
		}
	}
}

// Tokens says about how many tokens the declaration takes.
func (d *Declaration) Tokens() int64 {
	return declarationTokens + EstimateText(d.Name) + EstimateText(d.Refusal)
}

// Costs returns what is declared whatever the messages call, and what each tool adds that
// they do call, as CloseTools declares them while there are at most Max.
func (c *Closure) Costs() (fixed int64, called func(name string) int64) {
	known := make(map[string]bool, len(c.Tools)+len(c.Granted))
	for _, name := range c.Tools {
		known[name] = true
	}
	added := 0
	for _, name := range c.Granted {
		if written := c.written(name); !known[written] && added < c.limit() {
			known[written], added = true, added+1
			fixed += (&Declaration{Name: name}).Tokens()
		}
	}
	refusal := EstimateText(refuse(c.Role))
	return fixed, func(name string) int64 {
		if known[c.written(name)] {
			return 0
		}
		return (&Declaration{Name: name}).Tokens() + refusal
	}
}
