package projection

import (
	"maps"
	"slices"

	"historyd/internal/history"
)

// A Request is what goes with the messages that are to be kept.
type Request struct {
	// Categories are the request's own, by name of tool, by prefix* or, for tools
	// that nobody knows otherwise, by *. They add and tighten; they loosen nothing.
	Categories map[string]string

	// FindCall looks for the newest call of that id in the record; nil means that
	// nothing is there. What its error leaves unknown is withheld.
	FindCall func(callID string) (Found, bool, error)
}

// Found is a call in the record, and what its append said of its tools.
type Found struct {
	Name       string
	Categories map[string]string
}

// Kept is what may be kept.
type Kept struct {
	Messages []history.Message
	Changes  []Change
	// Categories are those that the request gave to tools called in these messages,
	// by name as called. Found brings them back with the results that come later.
	Categories map[string]string
}

// A Change is one alteration. Category is empty, unknown, or one of the options'.
type Change struct {
	Message       int    // position in what was given to Keep
	Block         int    // position in the message as given; -1 is the message around its blocks
	Action        string // one of the actions below
	Category      string
	Reason        string
	OriginalChars int64 // of what was Truncated
}

// Actions of a Change.
const (
	Redacted  = "redacted"  // a mark stands in its place
	Truncated = "truncated" // head and tail stay
	Dropped   = "dropped"   // gone
)

// Keep returns the messages as they may be kept: arguments and results of
// sensitive tools withheld, values of withheld arguments withheld in the results
// beside them, long results cut. What people and models said is never altered, with
// one exception: thinking, opaque blocks and unknown members beside a withheld part
// go when they repeat it, for they cannot be edited.
//
// The messages are those of one append or import: values are looked for in all of
// its results. The error is of the request, a *history.Faults.
func (p *Policy) Keep(msgs []history.Message, r Request) (Kept, error) {
	if err := checkCategories(r.Categories); err != nil {
		return Kept{}, err
	}
	k := &keeper{Policy: p, request: r, now: newTable(r.Categories), verdicts: map[place]verdict{}, records: map[string]verdict{}}
	k.judgeCalls(msgs)
	k.judgeResults(msgs)
	if len(k.values.list) > 0 {
		// The first walk only asks where values are to be looked for.
		k.asked = map[string]bool{}
		k.walk(msgs)
		k.echoes = find(k.values.list, slices.Collect(maps.Keys(k.asked)))
		k.asked = nil
	}
	return Kept{k.walk(msgs), k.changes, k.categories}, nil
}

// keeper is one Keep.
type keeper struct {
	*Policy
	request    Request
	now        table
	first      map[string]string // the tool of the first call of each id
	verdicts   map[place]verdict // of withheld calls and results
	records    map[string]verdict
	values     values
	asked      map[string]bool // texts; nil unless asking
	echoes     map[string][]span
	changes    []Change
	categories map[string]string
}

type place struct{ message, block int }

// judgeCalls decides on the calls and collects the values that go.
func (k *keeper) judgeCalls(msgs []history.Message) {
	k.first = map[string]string{}
	for i := range msgs {
		for j := range msgs[i].Content {
			b := &msgs[i].Content[j]
			if b.Type != history.ToolCall {
				continue
			}
			if _, seen := k.first[b.ID]; !seen {
				k.first[b.ID] = b.Name
			}
			if category, said := k.remember(b.Name, &k.now); said {
				if k.categories == nil {
					k.categories = map[string]string{}
				}
				k.categories[b.Name] = category
			}
			if v := k.judge(arguments, b.Name, &k.now, &table{}); v.withheld() {
				k.verdicts[place{i, j}] = v
				if !k.isMarker(b) {
					k.values.arguments(b, v.category)
				}
			}
		}
	}
}

// judgeResults decides on the results, each by the call that it answers.
func (k *keeper) judgeResults(msgs []history.Message) {
	pairs := newPairing()
	for i := range msgs {
		for j := range msgs[i].Content {
			switch b := &msgs[i].Content[j]; b.Type {
			case history.ToolCall:
				pairs.call(i, b)
			case history.ToolResult:
				var v verdict
				if g := pairs.answer(b.CallID); g != nil {
					v = k.judgeResult(g.tools)
				} else {
					v = k.judgeStray(b.CallID, pairs.last[b.CallID])
				}
				if v.withheld() {
					k.verdicts[place{i, j}] = v
				}
			}
		}
	}
}

// judgeResult decides on a result of one of these tools, by the strictest.
func (k *keeper) judgeResult(tools []string) verdict {
	for _, tool := range tools {
		if v := k.judge(results, tool, &k.now, &table{}); v.withheld() {
			return v
		}
	}
	return verdict{}
}

// judgeStray decides on a result that answers no unanswered call before it in
// these messages: it may answer one in the record, or be a second answer, or have
// come before its call. Whatever of these is withheld withholds it.
func (k *keeper) judgeStray(id string, answered *group) verdict {
	var tools []string
	if answered != nil {
		tools = answered.tools
	} else if tool, later := k.first[id]; later {
		tools = []string{tool}
	}
	if v := k.judgeResult(tools); v.withheld() {
		return v
	}
	v, asked := k.records[id]
	if !asked {
		v = k.judgeRecord(id, len(tools) > 0)
		k.records[id] = v
	}
	return v
}

// judgeRecord decides by the newest call of that id in the record. known tells
// that another call of the id has been decided on.
func (k *keeper) judgeRecord(id string, known bool) verdict {
	var found Found
	there := false
	if k.request.FindCall != nil {
		var err error
		if found, there, err = k.request.FindCall(id); err != nil {
			return verdict{Unknown, reasonCallNotFound}
		}
	}
	switch {
	case there:
		then := newTable(found.Categories)
		return k.judge(results, found.Name, &k.now, &then)
	case known:
		return verdict{}
	}
	return k.unknown()
}
