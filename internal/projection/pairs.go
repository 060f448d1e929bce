package projection

import (
	"fmt"
	"slices"

	"historyd/internal/history"
)

// A pairing gives results their calls while it is led through the messages in
// order. Ids may repeat: a result answers the nearest earlier call of its id that
// has no answer yet. Calls of one id in one message cannot be told apart; they are
// a group.
type pairing struct {
	open map[string][]*group // with unanswered calls, by id
	last map[string]*group   // by id
}

type group struct {
	message    int
	tools      []string
	unanswered int
}

func newPairing() *pairing {
	return &pairing{map[string][]*group{}, map[string]*group{}}
}

func (p *pairing) call(message int, b *history.Block) {
	g := p.last[b.ID]
	if g == nil || g.message != message {
		g = &group{message: message}
		p.last[b.ID] = g
	}
	if g.unanswered == 0 {
		p.open[b.ID] = append(p.open[b.ID], g)
	}
	g.tools = append(g.tools, b.Name)
	g.unanswered++
}

// answer returns the group of the call that a result of that id answers, or nil.
func (p *pairing) answer(id string) *group {
	open := p.open[id]
	if len(open) == 0 {
		return nil
	}
	g := open[len(open)-1]
	if g.unanswered--; g.unanswered == 0 {
		p.open[id] = open[:len(open)-1]
	}
	return g
}

// A Repair is something that CheckHistory left out.
type Repair struct {
	Path, Code, Detail string
}

// Codes of a Repair.
const (
	CodeDuplicateID  = "duplicate_id"
	CodeOrphanResult = "orphan_result"
)

// CheckHistory looks for what only shows in a whole history: an id that two
// messages have, and a result that answers no call. Each is added to faults; with
// repair it is left out of kept instead and told in repaired. A call without an
// answer is nothing wrong. faults may be nil with repair.
func CheckHistory(msgs []history.Message, repair bool, faults *history.Faults) (kept []history.Message, repaired []Repair) {
	c := checker{repair: repair, faults: faults}
	seen := map[string]bool{}
	pairs := newPairing()
	for i, m := range msgs {
		path := fmt.Sprintf("messages[%d]", i)
		if m.ID != "" && seen[m.ID] {
			c.wrong(path, CodeDuplicateID, "an earlier message has the same id")
			continue
		}
		seen[m.ID] = true
		if m.Content = c.content(pairs, i, m.Content); len(m.Content) > 0 || len(msgs[i].Content) == 0 {
			kept = append(kept, m)
		}
	}
	if !repair {
		return slices.Clone(msgs), nil
	}
	return kept, c.repaired
}

type checker struct {
	repair   bool
	faults   *history.Faults
	repaired []Repair
}

func (c *checker) wrong(path, code, detail string) {
	if c.repair {
		c.repaired = append(c.repaired, Repair{path, code, detail})
	} else {
		c.faults.Add(path, history.CodeInvalidMessage, -1, "%s", detail)
	}
}

// content returns the blocks without the results that answer no call.
func (c *checker) content(pairs *pairing, message int, blocks []history.Block) []history.Block {
	var kept []history.Block
	dropped := false
	for j := range blocks {
		b := &blocks[j]
		switch b.Type {
		case history.ToolCall:
			pairs.call(message, b)
		case history.ToolResult:
			// A result without an id is wrong by itself, which its reader has told.
			if b.CallID != "" && pairs.answer(b.CallID) == nil {
				c.wrong(fmt.Sprintf("messages[%d].content[%d]", message, j), CodeOrphanResult, "no unanswered earlier call has this id")
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
