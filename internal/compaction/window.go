package compaction

import (
	"slices"
	"sort"
	"time"
	"unicode/utf8"

	"historyd/internal/history"
)

// settleEvery is after how many messages a long window is folded as far as nothing
// that is still to come can change.
const settleEvery = 1024

// A unit is what leaves the window whole: a turn, or a part of a long one.
type unit struct {
	start     int64  // messages of the window before it
	turns     int8   // 1 when a turn-starting message is in it, else 0
	continued bool   // it is a part of a turn, and not the first
	told      *trace // nil when a summary has no room for its line any more
}

// A trace is what a unit leaves in a summary.
type trace struct {
	through int64 // seq of its last message
	at      time.Time
	digest  *digest // until the line is written
	line    string
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
	written  int // units whose lines are written; the newest ones wait for whether they are needed
	messages int64
	started  bool // a turn-starting message has been met, or is in prev
	lines    int  // of units
	trimAt   int  // so many lines of units are looked through for those without room

	// joints are the numbers of the units that may be parted from what is before
	// them, ascending: no result in or behind them answers a call before them.
	joints []int

	looked int            // units at whose end nothing could leave
	past   history.Window // all that is in them
	looks  int            // at ends of units in all, for tests: no more than a few for each

	calls   []call           // in order; the last one is unanswered
	first   int              // number of calls[0]
	waiting map[string][]int // numbers of the unanswered calls of an id, in order
}

func newWindow(c *Compactor, prev *history.Summary) *window {
	w := &window{c: c, limit: c.lineLimit, waiting: map[string][]int{}, trimAt: trimLines}
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
	u.told.through, u.told.at = m.Seq, m.At
	d := u.told.digest
	d.message(m)
	for i := range m.Content {
		switch b := &m.Content[i]; b.Type {
		case history.ToolCall:
			w.calls = append(w.calls, call{id: b.ID, unit: number, at: w.messages, tool: d.call(b.Name)})
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
	if m.Role != history.Assistant || w.messages-w.units[len(w.units)-1].start < w.c.part {
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
		w.joints = append(w.joints, w.folded+n)
		if w.last().long() || n-w.written >= maxUnwritten {
			w.write(n)
		}
	}
	w.units = append(w.units, unit{start: w.messages, continued: continued, told: &trace{digest: &digest{at: m.At, continued: continued}}})
	if w.lines++; w.lines >= w.trimAt {
		w.trim()
		w.trimAt = 2*w.lines + trimLines
	}
}

// A digest that holds more than maxUnwrittenBytes of text is written when its unit ends, and so are those before it;
// else so many digests wait.
const (
	maxUnwritten      = 64
	maxUnwrittenBytes = 8 << 10
)

// last is the digest of the last unit.
func (w *window) last() *digest { return w.units[len(w.units)-1].told.digest }

// write writes the lines of the first n units, which have ended.
func (w *window) write(n int) {
	for ; w.written < n; w.written++ {
		if t := w.units[w.written].told; t != nil {
			t.line, t.digest = t.digest.line(w.limit), nil
		}
	}
}

// trimLines is how many lines are held at the least before they are looked through.
const trimLines = 1024

// trim lets go of the lines of units that will leave together with so many newer ones
// that a summary has no room for theirs. What cannot be parted stays so.
func (w *window) trim() {
	w.write(len(w.units) - 1) // the last one has not ended
	room := w.c.maxChars
	joints := w.joints
	for i := len(w.units) - 2; i >= 0; i-- {
		for len(joints) > 0 && joints[len(joints)-1] > w.folded+i {
			room, joints = w.c.maxChars, joints[:len(joints)-1]
		}
		switch u := &w.units[i]; {
		case u.told == nil:
		case room < 0:
			u.told = nil
			w.lines--
		default:
			room -= utf8.RuneCountInString(u.told.line) + 1
		}
	}
}

// answer pairs a result with the nearest earlier unanswered call of its id. When
// that call is in an earlier unit, nothing between the two may be parted.
func (w *window) answer(b *history.Block, number int) {
	ids := w.waiting[b.CallID]
	if len(ids) == 0 {
		w.last().result(-1, b)
		return
	}
	c := &w.calls[ids[len(ids)-1]-w.first]
	if w.messages-c.at > w.c.reach {
		w.last().result(-1, b)
		return
	}
	if c.unit == number {
		w.last().result(c.tool, b)
	} else {
		w.last().result(-1, b)
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
// first point where a fold was due and possible. A point that a unit has passed in
// vain is not looked at again: what may be parted before it only becomes less.
func (w *window) leaving(settled int64) int {
	for ; w.looked < len(w.units); w.looked++ {
		w.looks++
		at := history.Window{Turns: w.past.Turns + int64(w.units[w.looked].turns), Messages: w.end(w.looked) - w.units[0].start}
		if n := w.parting(at); n > 0 {
			if w.units[n].start > settled {
				return 0
			}
			return n
		}
		if w.looked == len(w.units)-1 {
			return 0 // more may still come to it
		}
		w.past = at
	}
	return 0
}

// end counts the messages of the window up to the end of a unit.
func (w *window) end(i int) int64 {
	if i+1 < len(w.units) {
		return w.units[i+1].start
	}
	return w.messages
}

// parting returns how many units leave when the window has come up to the unit that is
// looked at; 0 when none do.
func (w *window) parting(at history.Window) int {
	n := (w.looked + 1 - w.c.keep) / w.c.batch * w.c.batch
	if !w.c.Due(w.past, at) || n < w.c.batch {
		return 0
	}
	j := sort.SearchInts(w.joints, w.folded+n+1)
	if j == 0 {
		return 0
	}
	return w.joints[j-1] - w.folded
}

// leave moves the first n units to the summary.
func (w *window) leave(n int) {
	s := &w.summary
	w.write(n)
	for i := range w.units[:n] {
		u := &w.units[i]
		s.Turns += int64(u.turns)
		w.turns += int64(u.turns)
		if u.told == nil {
			w.omit(u)
			continue
		}
		s.Lines = append(s.Lines, u.told.line)
		s.ThroughSeq, s.At = u.told.through, u.told.at
		w.lines--
	}
	s.Messages += w.units[n].start - w.units[0].start
	lines, omitted := w.c.fit(s)
	s.Lines, s.Omitted = slices.Clone(lines), omitted
	clear(w.units[:n])
	w.units, w.folded, w.written = w.units[n:], w.folded+n, w.written-n
	w.looked, w.past = 0, history.Window{}
	w.joints = w.joints[sort.SearchInts(w.joints, w.folded+1):]
}

// omit counts a unit whose line gives way, and with it all lines before.
func (w *window) omit(u *unit) {
	s := &w.summary
	for _, line := range s.Lines {
		if !continues(line) {
			s.Omitted++
		}
	}
	s.Lines = nil
	if !u.continued {
		s.Omitted++
	}
}
