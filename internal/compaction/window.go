package compaction

import (
	"slices"
	"sort"
	"time"

	"historyd/internal/history"
)

// settleEvery is after how many messages a long window is folded as far as nothing
// that is still to come can change.
const settleEvery = 1024

// A unit is what leaves the window whole: a turn, or a part of a long one.
type unit struct {
	start    int64 // messages of the window before it
	messages int64
	turns    int64 // 1 when a turn-starting message is in it, else 0
	through  int64 // seq of its last message
	at       time.Time
	line     string // once it has ended
}

// A call waits for its result, or has it.
type call struct {
	id       string
	unit     int   // counted from the beginning of the window
	at       int64 // messages of the window before it
	tool     int   // in the digest of its unit
	answered bool
}

// A window gathers the units of what is not folded yet, and folds them.
//
// Units are counted from the beginning of the window, those that have left it
// included: units[0] is number folded.
type window struct {
	c        *Compactor
	summary  history.Summary // prev, and what has been folded
	limit    int             // of a line, in code points
	turns    int64           // folded
	folded   int             // units that have left
	units    []unit
	digest   digest // of the last unit
	messages int64
	started  bool // a turn-starting message has been met, or is in prev

	// joints are the numbers of the units that may be parted from what is before
	// them, ascending: no result in or behind them answers a call before them.
	joints []int

	calls   []call           // in order; the last one is unanswered
	first   int              // number of calls[0]
	waiting map[string][]int // numbers of the unanswered calls of an id, in order
}

func newWindow(c *Compactor, prev *history.Summary) *window {
	w := &window{c: c, limit: c.lineLimit, waiting: map[string][]int{}}
	if prev != nil {
		w.summary = built(prev)
		w.started = prev.Turns > 0
	}
	w.summary.Source = "digest"
	if w.summary.Text != "" {
		w.summary.Source = "model"
		w.limit -= c.textLimit + maxTextFrame
	}
	return w
}

// built is the summary that the next one is built on: with a model's words in the
// place of the lines that they cover, where there are some.
func built(prev *history.Summary) history.Summary {
	s := *prev
	s.Next, s.Lines = nil, slices.Clone(prev.Lines)
	if p := prev.Next; p != nil && p.Text != "" && p.ThroughSeq == prev.ThroughSeq {
		s.Text, s.TextSeq, s.Model = p.Text, p.ThroughSeq, p.Model
		s.Lines, s.Omitted = nil, 0
	}
	return s
}

func (w *window) add(m *history.Message) {
	if w.begins(m) {
		w.begin(m)
	}
	number := w.folded + len(w.units) - 1
	u := &w.units[len(w.units)-1]
	if m.StartsTurn() {
		w.started = true
		u.turns = 1
	}
	u.messages++
	u.through, u.at = m.Seq, m.At
	w.digest.message(m)
	for i := range m.Content {
		switch b := &m.Content[i]; b.Type {
		case history.ToolCall:
			w.calls = append(w.calls, call{id: b.ID, unit: number, at: w.messages, tool: w.digest.call(b.Name)})
			w.waiting[b.ID] = append(w.waiting[b.ID], w.first+len(w.calls)-1)
		case history.ToolResult:
			w.answer(b, number)
		}
	}
	w.messages++
	if w.messages%settleEvery == 0 {
		w.forget()
		w.fold(w.messages - w.c.reach)
	}
}

// begins reports whether m is the first message of a unit. It goes by the unit at
// hand and by the last 200 messages alone, and thus says the same wherever the
// window begins.
func (w *window) begins(m *history.Message) bool {
	if len(w.units) == 0 || m.StartsTurn() && w.started {
		return true
	}
	if m.Role != history.Assistant || w.units[len(w.units)-1].messages < w.c.part {
		return false
	}
	return len(w.calls) == 0 || w.calls[len(w.calls)-1].at < w.messages-w.c.part
}

func (w *window) begin(m *history.Message) {
	continued := len(w.units) > 0 || w.summary.Messages > 0
	if m.StartsTurn() && w.started {
		continued = false
	}
	if n := len(w.units); n > 0 {
		w.units[n-1].line = w.digest.line(w.limit)
		w.joints = append(w.joints, w.folded+n)
	}
	w.units = append(w.units, unit{start: w.messages})
	w.digest = digest{at: m.At, continued: continued}
}

// answer pairs a result with the nearest earlier unanswered call of its id. When
// that call is in an earlier unit, nothing between the two may be parted.
func (w *window) answer(b *history.Block, number int) {
	ids := w.waiting[b.CallID]
	if len(ids) == 0 {
		w.digest.result(-1, b)
		return
	}
	c := &w.calls[ids[len(ids)-1]-w.first]
	if w.messages-c.at > w.c.reach {
		w.digest.result(-1, b)
		return
	}
	if c.unit == number {
		w.digest.result(c.tool, b)
	} else {
		w.digest.result(-1, b)
		w.joints = w.joints[:sort.SearchInts(w.joints, c.unit+1)]
	}
	c.answered = true
	w.keep(c.id, ids[:len(ids)-1])
	for n := len(w.calls); n > 0 && w.calls[n-1].answered; n-- {
		w.calls = w.calls[:n-1]
	}
}

// keep sets what is left of the waiting list of an id.
func (w *window) keep(id string, ids []int) {
	if len(ids) == 0 {
		delete(w.waiting, id)
	} else {
		w.waiting[id] = ids
	}
}

// forget lets go of the calls that no result can reach any more.
func (w *window) forget() {
	n := 0
	for ; n < len(w.calls) && w.messages-w.calls[n].at > w.c.reach; n++ {
		if c := &w.calls[n]; !c.answered {
			w.keep(c.id, w.waiting[c.id][1:])
		}
	}
	w.calls, w.first = slices.Delete(w.calls, 0, n), w.first+n
}

// fold lets units leave as long as a boundary is found that is settled: one with
// at most that many messages of the window before it.
func (w *window) fold(settled int64) {
	for {
		n := w.leaving(settled)
		if n == 0 {
			return
		}
		w.leave(n)
	}
}

// leaving goes through the units as they came and returns how many leave at the
// first point where a fold was due and possible.
func (w *window) leaving(settled int64) int {
	var at history.Window
	for i := range w.units {
		u := &w.units[i]
		before := at
		at.Turns += u.turns
		at.Messages += u.messages
		n := (i + 1 - w.c.keep) / w.c.batch * w.c.batch
		if !w.c.Due(before, at) || n < w.c.batch {
			continue
		}
		j := sort.SearchInts(w.joints, w.folded+n+1)
		if j == 0 {
			continue
		}
		n = w.joints[j-1] - w.folded
		if w.units[n].start > settled {
			return 0
		}
		return n
	}
	return 0
}

// leave moves the first n units to the summary.
func (w *window) leave(n int) {
	for i := range w.units[:n] {
		u := &w.units[i]
		w.summary.Lines = append(w.summary.Lines, u.line)
		w.summary.Turns += u.turns
		w.summary.Messages += u.messages
		w.summary.ThroughSeq, w.summary.At = u.through, u.at
		w.turns += u.turns
	}
	lines, omitted := w.c.fit(&w.summary)
	w.summary.Lines, w.summary.Omitted = slices.Clone(lines), omitted
	clear(w.units[:n])
	w.units, w.folded = w.units[n:], w.folded+n
	w.joints = w.joints[sort.SearchInts(w.joints, w.folded+1):]
}
