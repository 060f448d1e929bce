package pipeline

import (
	"slices"

	"historyd/internal/history"
	"historyd/internal/projection"
)

// fit drops whole turns from the oldest until all that the request will hold fits, closes
// what stays over its tools, and counts it. A fold is due after so many turns.
func (r *Replayed) fit(ask Ask, p *Pipeline, turns int) {
	closure := projection.Closure{Tools: ask.Tools, Granted: ask.Granted, Role: ask.Role, Max: p.maxClosureTools, Room: ask.ToolRoom, Written: ask.Written}
	costs := r.meter.Costs(r.Messages)
	b := projection.Budget{Max: ask.MaxTokens, Settle: r.settle(), Ahead: int64(turns)}
	tools, granted := int64(0), int64(0)
	if ask.Full {
		tools = ask.ToolTokens
		granted, b.Declare = closure.Costs()
	}
	if ask.MaxTokens > 0 && r.Summary != nil {
		r.shorten(p, ask.MaxTokens-tools-granted, costs, b)
	}
	fixed := r.summaryTokens() + ask.Ahead + tools
	b.Fixed = fixed + granted
	whole, done := r.Messages, projection.Fitted{}
	for {
		if ask.MaxTokens > 0 {
			done = projection.Fit(whole, costs, b)
		}
		r.Messages, r.Tokens = whole[done.From:], fixed
		kept := costs[done.From:]
		if ask.Full {
			if r.close(closure) {
				kept = r.meter.Costs(r.Messages)
			}
			for i := range r.Added {
				r.Tokens += r.Added[i].Tokens()
			}
		}
		for _, n := range kept {
			r.Tokens += n
		}
		over := r.Tokens - ask.MaxTokens
		if ask.MaxTokens == 0 || over <= 0 || done.Over {
			break
		}
		// Exchanges that are given as text can take more than as calls.
		b.Max = min(b.Max-over, done.Tokens-1-done.Tokens/8)
	}
	r.Report.OverBudget = ask.MaxTokens > 0 && r.Tokens > ask.MaxTokens
	r.Report.DroppedTurns = int64(done.Turns)
	for i := range whole[:done.From] {
		if whole[i].Seq > 0 { // in the record
			r.Report.DroppedMessages++
			r.Left = max(r.Left, whole[i].Seq)
		}
	}
}

// shorten lets the summary give way in a budget: it may take what the turns that a fold left
// and twice those until the next one leave, and a quarter at least. Nothing in this is of
// what came after the fold, so that the summary stays as it is until the next.
func (r *Replayed) shorten(p *Pipeline, room int64, costs []int64, b projection.Budget) {
	left := int64(0)
	if b.Settle > 0 {
		window, seen := r.Messages[:b.Settle+1], slices.Clone(costs[:b.Settle+1])
		left = room
		for i := range window {
			// Results that were made, and those that came later, are not of the fold.
			if window[i].Seq == 0 || window[i].Seq > r.settled {
				seen[i] = 0
			}
			left -= seen[i]
		}
		left -= 2 * projection.Ahead(window, seen, int(b.Ahead))
	}
	r.Summary, r.Report.ShortenedSummary = p.frameWithin(r.Summary.Summary, max(left, room/4, 0))
}

// close finds the tools that the request must declare, and reports whether it changed
// messages for that.
func (r *Replayed) close(c projection.Closure) bool {
	closed := projection.CloseTools(r.Messages, c)
	r.Messages, r.Added = closed.Messages, closed.Added
	r.Report.ExchangesAsText, r.Report.UndeclaredTools = closed.AsText, closed.Undeclared
	return closed.AsText > 0
}

// settle returns the last message that the window held when the last fold left it.
func (r *Replayed) settle() int {
	for i := len(r.Messages) - 1; i > 0 && r.settled > 0; i-- {
		if seq := r.Messages[i].Seq; 0 < seq && seq <= r.settled {
			return i
		}
	}
	return 0
}

func (r *Replayed) summaryTokens() int64 {
	if r.Summary == nil {
		return 0
	}
	return Cost(r.Summary.Text)
}

// Cost is the estimate of a text as a message of its own; 0 of none.
func Cost(text string) int64 {
	if text == "" {
		return 0
	}
	m := history.Message{Role: history.User, Content: []history.Block{history.Text(text)}}
	return projection.EstimateTokens(&m)
}
