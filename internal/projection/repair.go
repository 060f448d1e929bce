package projection

import (
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"strconv"

	"historyd/internal/history"
)

// Repairs counts what RepairPairs did.
type Repairs struct {
	Synthetic  int64 // results made for calls that have none
	Moved      int64 // results brought to their call, past a message that is none of results
	Orphans    int64 // results left out, because no call is theirs
	Duplicates int64 // results left out, because every earlier call of their id has another
	Merged     int64 // assistant messages joined with the one before
}

// interrupted is the result of a call whose own is not in the record.
const interrupted = "This call was interrupted: its result is not in the record. " +
	"It is not known whether the tool ran; if it did, its side effects may stand."

// RepairPairs returns the messages such that every assistant message with calls is
// followed at once by one result for each of them, and no other result is anywhere.
// The messages are those of a window, without any that nobody is to be shown.
//
// A result answers the nearest earlier call of its id that has no result yet; within
// a message, calls of one id are answered in order. A result from before the first
// call of its id goes to that call, when nothing after it does. A call that is left
// over gets a synthetic result, behind the real ones.
//
// Consecutive assistant messages of one model are a batch when a call in one of them
// waits while the next is said: they become one message, unless an id is in two of
// them. Results keep their order within a batch.
//
// While messages are only added, all that stands before the first call without a
// later result stays the same.
func RepairPairs(msgs []history.Message) ([]history.Message, Repairs) {
	if paired(msgs) {
		return slices.Clip(msgs), Repairs{}
	}
	r := &repairer{msgs: msgs, ids: map[string]int{}, out: make([]history.Message, 0, len(msgs)+4)}
	for i := range msgs {
		r.read(i)
	}
	r.assignEarly()
	r.batch()
	r.write()
	return r.out, r.counts
}

// paired reports whether there is nothing to repair. It says no of messages with many
// calls, too, so that it stays cheap.
func paired(msgs []history.Message) bool {
	var waiting [8]string
	n := 0
	for i := range msgs {
		m := &msgs[i]
		if n > 0 && m.Role != history.Tool {
			return false
		}
		answered := false
		for j := range m.Content {
			switch b := &m.Content[j]; {
			case m.Role == history.Assistant && b.Type == history.ToolCall:
				if n == len(waiting) {
					return false
				}
				waiting[n] = b.ID
				n++
			case m.Role == history.Tool && b.Type == history.ToolResult:
				at := slices.Index(waiting[:n], b.CallID)
				if at < 0 {
					return false
				}
				n--
				waiting[at], answered = waiting[n], true
			}
		}
		if m.Role == history.Tool && !answered && n > 0 {
			return false
		}
	}
	return n == 0
}

// A join is a run of messages that become one.
type join struct{ from, to int }

// none stands for no call, no result, no message.
const none = -1

// A repairer pairs what it reads, then writes everything in its place.
type repairer struct {
	msgs    []history.Message
	calls   []repairCall   // in order
	results []repairResult // in order
	ids     map[string]int // places in states
	states  []idState
	spoke   int    // the last message read that is none of results
	joins   []join // in order

	own    []int // results of the batch that is being written
	out    []history.Message
	counts Repairs
}

type repairCall struct {
	message, block int
	state          int // of its id
	below          int // the call of its id to be answered after it
	result         int
	batch          int // the first message of it
}

type repairResult struct {
	message, block int
	call           int
	after          int  // the last message before it that is none of results
	early          bool // it came before the call
	next           int  // the early result of its id after it
}

// idState is what is known of a call id so far.
type idState struct {
	first                 int // message with a call of it
	open                  int // the call to be answered next, on a stack
	earliest, latestEarly int // results from before the first call
	batch                 int // the last one that had a call of it, while batches are made
	message               int // in that one
}

func (r *repairer) state(id string) int {
	s, there := r.ids[id]
	if !there {
		s = len(r.states)
		r.ids[id] = s
		r.states = append(r.states, idState{none, none, none, none, none, none})
	}
	return s
}

// read takes in one message.
func (r *repairer) read(i int) {
	m := &r.msgs[i]
	switch m.Role {
	case history.Assistant:
		first := len(r.calls)
		for j := range m.Content {
			if b := &m.Content[j]; b.Type == history.ToolCall {
				r.calls = append(r.calls, repairCall{message: i, block: j, state: r.state(b.ID), result: none, batch: i})
			}
		}
		// Backwards, so that the first call of the message lies on top.
		for c := len(r.calls) - 1; c >= first; c-- {
			s := &r.states[r.calls[c].state]
			if s.first == none {
				s.first = i
			}
			r.calls[c].below, s.open = s.open, c
		}
	case history.Tool:
		read := len(r.results)
		for j := range m.Content {
			if b := &m.Content[j]; b.Type == history.ToolResult {
				r.answer(i, j, b.CallID)
			}
		}
		if len(r.results) > read {
			return
		}
	}
	r.spoke = i
}

// answer takes in one result.
func (r *repairer) answer(i, j int, id string) {
	number := len(r.results)
	res := repairResult{message: i, block: j, call: none, after: r.spoke, next: none}
	switch s := &r.states[r.state(id)]; {
	case s.open != none:
		res.call = s.open
		r.calls[s.open].result = number
		s.open = r.calls[s.open].below
	case s.first != none:
		r.counts.Duplicates++
	default:
		r.counts.Orphans++
		if s.earliest == none {
			s.earliest = number
		} else {
			r.results[s.latestEarly].next = number
		}
		s.latestEarly = number
	}
	r.results = append(r.results, res)
}

// assignEarly gives results from before the first calls of their id to those that have none.
func (r *repairer) assignEarly() {
	if r.counts.Orphans == 0 {
		return
	}
	for c := range r.calls {
		call := &r.calls[c]
		s := &r.states[call.state]
		if s.earliest == none || s.first != call.message || call.result != none {
			continue
		}
		res := &r.results[s.earliest]
		call.result, res.call, res.early = s.earliest, c, true
		s.earliest = res.next
		r.counts.Orphans--
	}
}

// batch finds the messages that become one.
func (r *repairer) batch() {
	for c := 0; c < len(r.calls); {
		i, waits := r.calls[c].message, false
		for ; c < len(r.calls) && r.calls[c].message == i; c++ {
			res := r.calls[c].result
			waits = waits || res == none || !r.results[res].early
			r.enter(c, i)
		}
		if !waits {
			continue
		}
		end := i + 1
		for ; end < len(r.msgs) && r.follows(i, end) && r.distinct(i, end, c); end++ {
			for ; c < len(r.calls) && r.calls[c].message == end; c++ {
				r.enter(c, i)
			}
		}
		if end > i+1 {
			r.joins = append(r.joins, join{i, end})
		}
	}
}

// enter takes a call into the batch that begins with message i.
func (r *repairer) enter(c, i int) {
	r.calls[c].batch = i
	s := &r.states[r.calls[c].state]
	s.batch, s.message = i, r.calls[c].message
}

// follows reports whether message i and the one after it may be one.
func (r *repairer) follows(i, end int) bool {
	a, b := &r.msgs[i], &r.msgs[end]
	return b.Role == history.Assistant && a.Model == b.Model && a.Provider == b.Provider
}

// distinct reports whether no call of message end, the first of which is c, has the
// id of one in the batch.
func (r *repairer) distinct(batch, end, c int) bool {
	for ; c < len(r.calls) && r.calls[c].message == end; c++ {
		if s := &r.states[r.calls[c].state]; s.batch == batch && s.message != end {
			return false
		}
	}
	return true
}

// write gives the outcome, message by message.
func (r *repairer) write() {
	call, result, joins := 0, 0, r.joins
	for i := 0; i < len(r.msgs); {
		switch m := &r.msgs[i]; m.Role {
		case history.Assistant:
			from := call
			for call < len(r.calls) && r.calls[call].batch == i {
				call++
			}
			end := i + 1
			if len(joins) > 0 && joins[0].from == i {
				end, joins = joins[0].to, joins[1:]
				r.out = append(r.out, united(r.msgs[i:end]))
				r.counts.Merged += int64(end - i - 1)
			} else {
				r.out = append(r.out, *m)
			}
			r.writeResults(from, call, end-1)
			i = end
		case history.Tool:
			from := result
			for result < len(r.results) && r.results[result].message == i {
				result++
			}
			r.writeRest(i, from, result)
			i++
		default:
			r.out = append(r.out, *m)
			i++
		}
	}
}

// writeResults gives the results of a batch's calls, the last message of which is last.
func (r *repairer) writeResults(from, to, last int) {
	r.own = r.own[:0]
	for _, c := range r.calls[from:to] {
		if c.result == none {
			continue
		}
		if res := &r.results[c.result]; res.early || res.after != last {
			r.counts.Moved++
		}
		r.own = append(r.own, c.result)
	}
	slices.SortFunc(r.own, func(a, b int) int {
		if x, y := r.results[a].early, r.results[b].early; x != y {
			if x {
				return 1
			}
			return -1
		}
		return a - b
	})
	for at := 0; at < len(r.own); {
		next := at + 1
		for next < len(r.own) && r.results[r.own[next]].message == r.results[r.own[at]].message {
			next++
		}
		r.writePart(r.own[at:next])
		at = next
	}
	for _, c := range r.calls[from:to] {
		if c.result == none {
			r.counts.Synthetic++
			r.out = append(r.out, synthetic(&r.msgs[c.message], c.block))
		}
	}
}

// writePart gives those of the results of one message that belong together.
func (r *repairer) writePart(own []int) {
	m := r.msgs[r.results[own[0]].message]
	first, last := own[0], own[len(own)-1]
	if last-first+1 != len(own) || r.results[first].early || r.shared(first-1, first) || r.shared(last, last+1) {
		content := make([]history.Block, 0, len(own))
		for _, n := range own {
			content = append(content, m.Content[r.results[n].block])
		}
		m.Content = content
	}
	r.out = append(r.out, m)
}

// shared reports whether there are two such results in one message.
func (r *repairer) shared(a, b int) bool {
	return a >= 0 && b < len(r.results) && r.results[a].message == r.results[b].message
}

// writeRest gives what a tool message holds beside results, unless it went with them. It
// never goes with those from before their calls: it stood here before anybody called.
func (r *repairer) writeRest(i, from, to int) {
	m := r.msgs[i]
	if from == to {
		r.out = append(r.out, m)
		return
	}
	if to-from == len(m.Content) {
		return
	}
	whole := true
	for n := from; n < to && whole; n++ {
		whole = r.results[n].call != none && !r.results[n].early && r.calls[r.results[n].call].batch == r.calls[r.results[from].call].batch
	}
	if whole {
		return
	}
	m.Content = slices.DeleteFunc(slices.Clone(m.Content), func(b history.Block) bool { return b.Type == history.ToolResult })
	r.out = append(r.out, m)
}

// united makes one message of several. What only one can have is the first's, but for
// the usage, which counts up to the last.
func united(run []history.Message) history.Message {
	m, blocks := run[0], 0
	for i := range run {
		blocks += len(run[i].Content)
	}
	m.Content = make([]history.Block, 0, blocks)
	for i := range run {
		part := &run[i]
		m.Content = append(m.Content, part.Content...)
		if part.Status == history.Incomplete {
			m.Status = history.Incomplete
		}
		if part.Usage != nil {
			m.Usage = part.Usage
		}
		if m.Metadata == nil {
			m.Metadata = part.Metadata
		}
		if m.Extra == nil {
			m.Extra = part.Extra
		}
	}
	return m
}

// synthetic makes the result of a call that was interrupted.
func synthetic(m *history.Message, block int) history.Message {
	return history.Message{
		ID:        derivedID("result", m, block),
		At:        m.At,
		Role:      history.Tool,
		Status:    history.Complete,
		Synthetic: true,
		Content: []history.Block{{
			Type:      history.ToolResult,
			CallID:    m.Content[block].ID,
			Content:   []history.Block{history.Text(interrupted)},
			Plain:     true,
			IsError:   true,
			Synthetic: true,
		}},
	}
}

// derivedID is the id of a message that is made for the call at that place: the same
// whenever it is made.
func derivedID(kind string, m *history.Message, block int) string {
	seed := make([]byte, 0, 128)
	seed = append(append(seed, kind...), 0)
	seed = append(append(seed, m.ID...), 0)
	seed = append(strconv.AppendInt(seed, m.Seq, 10), 0)
	seed = append(strconv.AppendInt(seed, int64(block), 10), 0)
	sum := sha256.Sum256(append(seed, m.Content[block].ID...))
	return "synthetic_" + hex.EncodeToString(sum[:12])
}
