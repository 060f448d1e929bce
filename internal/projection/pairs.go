package projection

// A pairing gives results their calls while it is led through the messages in
// order. Ids may repeat: a result answers the nearest earlier call of its id that
// has no answer yet. Calls of one id in one message cannot be told apart; they are
// a group.
//
// It holds nothing but unanswered calls and those of one message.
type pairing struct {
	open    map[string][]*group // with unanswered calls, by id
	message int64
	last    map[string]*group // of that message, by id
}

type group struct {
	tools      []string
	server     bool // one of them is run by a server, not by the client
	unanswered int
}

func newPairing() *pairing {
	return &pairing{open: map[string][]*group{}, last: map[string]*group{}}
}

func (p *pairing) call(message int64, id, tool string) *group {
	if message != p.message {
		p.message, p.last = message, map[string]*group{}
	}
	g := p.last[id]
	if g == nil {
		g = &group{}
		p.last[id] = g
	}
	if g.unanswered == 0 {
		p.open[id] = append(p.open[id], g)
	}
	g.tools = append(g.tools, tool)
	g.unanswered++
	return g
}

// answer returns the group of the call that a result of that id answers, or nil.
func (p *pairing) answer(id string) *group {
	open := p.open[id]
	if len(open) == 0 {
		return nil
	}
	g := open[len(open)-1]
	if g.unanswered--; g.unanswered > 0 {
		return g
	}
	if open = open[:len(open)-1]; len(open) > 0 {
		p.open[id] = open
	} else {
		delete(p.open, id)
	}
	return g
}
