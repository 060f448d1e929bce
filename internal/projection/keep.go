package projection

import (
	"cmp"
	"encoding/json/jsontext"
	"maps"
	"slices"
	"strings"

	"historyd/internal/history"
	"historyd/internal/strictjson"
)

// A Request is what goes with the messages that are to be kept.
type Request struct {
	// Categories are the request's own, by name of tool, by prefix* or, for tools
	// that nobody knows otherwise, by *. They add and tighten; they loosen nothing.
	Categories map[string]string

	// FindCalls looks in the record for the calls that a result of that id may
	// answer, with all for every call of the id; nil means that nothing is there.
	// What its error leaves unknown is withheld.
	FindCalls func(callID string, all bool) ([]Found, error)
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
// one exception: thinking, opaque blocks, metadata, unknown members and names of
// models go when they repeat something withheld, for they cannot be edited.
//
// The messages are those of one append or import: values are looked for in all of
// them. The error is of the request, a *history.Faults.
func (p *Policy) Keep(msgs []history.Message, r Request) (Kept, error) {
	if err := checkCategories(r.Categories); err != nil {
		return Kept{}, err
	}
	k := &keeper{Policy: p, request: r, now: newTable(r.Categories), verdicts: map[place]verdict{}}
	k.judgeCalls(msgs)
	k.judgeResults(msgs)
	if len(k.verdicts) > 0 {
		k.search(msgs)
	}
	return Kept{k.walk(msgs), k.changes, k.categories}, nil
}

// keeper is one Keep.
type keeper struct {
	*Policy
	request    Request
	now        table
	calls      map[string][]string // the tools called with each id, each once
	verdicts   map[place]verdict   // of withheld calls and results
	values     values              // of withheld arguments
	asked      *questions          // nil unless asking
	echoes     questions           // and where in them values stand
	changes    []Change
	categories map[string]string
}

// A judgement is what holds of all results that may be of the same calls.
type judgement struct {
	verdict verdict
	names   map[string]bool // of the tools, folded
}

func (j *judgement) of(tool string) {
	if j.names == nil {
		j.names = map[string]bool{}
	}
	j.names[fold(tool)] = true
}

// questions are the texts to look for values in. What stands around results may
// repeat neither arguments nor results, a result no arguments.
type questions struct{ results, around map[string][]span }

// search finds the values of what is withheld.
func (k *keeper) search(msgs []history.Message) {
	// The first walk only asks where values are to be looked for.
	k.asked = &questions{map[string][]span{}, map[string][]span{}}
	k.walk(msgs)
	asked := k.asked
	k.asked = nil
	k.echoes.results = find(k.values.list, slices.Collect(maps.Keys(asked.results)))
	if len(asked.around) == 0 {
		return
	}
	for i := range msgs {
		for j := range msgs[i].Content {
			b := &msgs[i].Content[j]
			if v, withheld := k.verdicts[place{i, j}]; withheld && b.Type == history.ToolResult && !k.masked(b) {
				k.values.result(b, v.category)
			}
		}
	}
	k.echoes.around = find(k.values.list, slices.Collect(maps.Keys(asked.around)))
}

type place struct{ message, block int }

// judgeCalls decides on the calls and collects the values that go.
func (k *keeper) judgeCalls(msgs []history.Message) {
	k.calls = map[string][]string{}
	seen := map[[2]string]bool{}
	for i := range msgs {
		for j := range msgs[i].Content {
			b := &msgs[i].Content[j]
			if b.Type != history.ToolCall {
				continue
			}
			if key := [2]string{b.ID, b.Name}; !seen[key] {
				seen[key] = true
				k.calls[b.ID] = append(k.calls[b.ID], b.Name)
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

// judgeResults decides on the results, each by the call that it answers and by the
// names that it bears itself.
func (k *keeper) judgeResults(msgs []history.Message) {
	pairs := newPairing()
	answers := map[place]*group{}
	strays := map[string]int{} // results by id that answer no unanswered call before them in these messages
	for i := range msgs {
		for j := range msgs[i].Content {
			switch b := &msgs[i].Content[j]; b.Type {
			case history.ToolCall:
				pairs.call(i, b)
			case history.ToolResult:
				if g := pairs.answer(b.CallID); g != nil {
					answers[place{i, j}] = g
				} else {
					strays[b.CallID]++
				}
			}
		}
	}
	answering := map[*group]judgement{}
	straying := map[string]judgement{}
	for i := range msgs {
		names := namesIn(msgs[i].Extra)
		for j := range msgs[i].Content {
			b := &msgs[i].Content[j]
			if b.Type != history.ToolResult {
				continue
			}
			var judged judgement
			if g := answers[place{i, j}]; g != nil {
				judged = once(answering, g, func() judgement { return k.judgeTools(g.tools) })
			} else {
				judged = once(straying, b.CallID, func() judgement { return k.judgeStray(b.CallID, strays[b.CallID]) })
			}
			v := cmp.Or(judged.verdict, k.judgeNames(names, &judged), k.judgeNames(namesIn(b.Extra), &judged))
			if v.withheld() {
				k.verdicts[place{i, j}] = v
			}
		}
	}
}

func once[K comparable](known map[K]judgement, key K, judge func() judgement) judgement {
	j, done := known[key]
	if !done {
		j = judge()
		known[key] = j
	}
	return j
}

// judgeTools decides on a result of one of these tools, by the strictest.
func (k *keeper) judgeTools(tools []string) (j judgement) {
	for _, tool := range tools {
		j.of(tool)
		if !j.verdict.withheld() {
			j.verdict = k.judge(results, tool, &k.now, &table{})
		}
	}
	return j
}

// judgeStray decides on the results of an id that answer no unanswered call before
// them in these messages: they may answer one in the record, or be second answers,
// or have come before their call. Whatever of these is withheld withholds them all.
func (k *keeper) judgeStray(id string, results int) judgement {
	j := k.judgeTools(k.calls[id])
	if !j.verdict.withheld() {
		j.verdict = k.judgeRecord(id, results, &j)
	}
	return j
}

// judgeRecord decides by the calls of that id in the record, and adds them to those
// that have been decided on.
func (k *keeper) judgeRecord(id string, answers int, j *judgement) verdict {
	if k.request.FindCalls != nil {
		// One result answers one call there; which of them several answer nobody can tell.
		found, err := k.request.FindCalls(id, answers > 1)
		if err != nil {
			return verdict{Unknown, reasonCallNotFound}
		}
		for _, f := range found {
			j.of(f.Name)
			then := newTable(f.Categories)
			if v := k.judge(results, f.Name, &k.now, &then); v.withheld() {
				return v
			}
		}
	}
	if len(j.names) > 0 {
		return verdict{}
	}
	return k.unknown()
}

// judgeNames decides on a result by the tools that it is said to be of beside the
// calls, which have been decided on.
func (k *keeper) judgeNames(names []string, calls *judgement) verdict {
	for _, name := range names {
		if calls.names[fold(name)] {
			continue
		}
		if v := k.judge(results, name, &k.now, &table{}); v.withheld() {
			return v
		}
	}
	return verdict{}
}

// namesIn returns the names of tools among unknown members, as Chat Completions has them.
func namesIn(extra jsontext.Value) []string {
	if extra.Kind() != '{' {
		return nil
	}
	var names []string
	for member, v := range (strictjson.Value{Raw: extra}).Members() {
		if name, ok := v.Text(); ok && strings.EqualFold(member, "name") {
			names = append(names, name)
		}
	}
	return names
}
