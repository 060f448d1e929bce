package projection

import (
	"fmt"

	"historyd/internal/history"
)

// A Repair is something that was left out, or replaced, because it cannot be right.
type Repair struct {
	Path, Code, Detail string
}

// Codes of a Repair.
const (
	CodeDuplicateID  = "duplicate_id"
	CodeOrphanResult = "orphan_result"
)

// maxRepaired is how many repairs are told one by one.
const maxRepaired = 1000

// A Checker looks for what only shows in a whole history: an id that two messages
// have, and a result that answers no call. A call without an answer is nothing wrong.
// It is led through the messages in order, and holds of them no more than some 20 bytes
// for each id, of a message or of calls that are still unanswered.
type Checker struct {
	repair   bool
	faults   *history.Faults
	ids      map[key]struct{}
	open     map[key]int32 // unanswered calls, by id
	missed   bool          // there was a message that nobody could read
	repaired []Repair
	total    int64
}

// NewChecker adds what is wrong to faults; with repair it is left out and told in
// Repaired instead, and faults may be nil.
func NewChecker(repair bool, faults *history.Faults) *Checker {
	return &Checker{repair: repair, faults: faults, ids: map[key]struct{}{}, open: map[key]int32{}}
}

// Message looks at the next message, which is at messages[index] of its document. It
// returns it without what is left out, and false when nothing of it stays.
func (c *Checker) Message(index int64, m history.Message) (kept history.Message, ok bool) {
	if m.ID != "" && !c.Take(m.ID) {
		c.surplus(fmt.Sprintf("messages[%d]", index), CodeDuplicateID, "an earlier message has the same id")
		return m, !c.repair
	}
	content := c.content(index, m.Content)
	if len(content) == 0 && len(m.Content) > 0 && c.repair {
		return m, false
	}
	if c.repair {
		m.Content = content
	}
	return m, true
}

// Missed says that the next message cannot be read: a result behind it may be of a call
// that it holds, and is not called wrong.
func (c *Checker) Missed() { c.missed = true }

// Take gives an id to a message that came without one; false when another has it.
func (c *Checker) Take(id string) bool {
	k := keyOf(id)
	if _, taken := c.ids[k]; taken {
		return false
	}
	c.ids[k] = struct{}{}
	return true
}

// Repaired tells what was repaired, the first 1000, and how much it was in all.
func (c *Checker) Repaired() (first []Repair, total int64) { return c.repaired, c.total }

// Wrong notes what else is wrong with the history, and is repaired if such things are.
func (c *Checker) Wrong(path, code, detail string) {
	if !c.repair {
		c.faults.Add(path, history.CodeInvalidMessage, -1, "%s", detail)
		return
	}
	if c.total++; c.total <= maxRepaired {
		c.repaired = append(c.repaired, Repair{path, code, detail})
	}
}

// surplus notes what is wrong and can be left out, which it says where that is not done.
func (c *Checker) surplus(path, code, detail string) {
	if !c.repair {
		detail += ": with repair=true it is left out"
	}
	c.Wrong(path, code, detail)
}

// answer reports whether a result of that id has an unanswered call, which it answers.
func (c *Checker) answer(id string) bool {
	k := keyOf(id)
	n := c.open[k]
	if n > 1 {
		c.open[k] = n - 1
	} else {
		delete(c.open, k)
	}
	return n > 0
}

// content returns the blocks without the results that answer no call.
func (c *Checker) content(message int64, blocks []history.Block) []history.Block {
	var kept []history.Block
	dropped := false
	for j := range blocks {
		b := &blocks[j]
		switch b.Type {
		case history.ToolCall:
			c.open[keyOf(b.ID)]++
		case history.ToolResult:
			// A result without an id is wrong by itself, which its reader has told.
			if b.CallID != "" && !c.answer(b.CallID) && !c.missed {
				c.surplus(fmt.Sprintf("messages[%d].content[%d]", message, j), CodeOrphanResult, "no unanswered earlier call has this id")
				dropped = true
				continue
			}
		}
		kept = append(kept, *b)
	}
	if !dropped {
		return blocks
	}
	return kept
}
