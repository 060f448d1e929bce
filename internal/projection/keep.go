package projection

import (
	"cmp"
	"encoding/json/jsontext"
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
// The messages are those of one append: values are looked for in all of them. The
// error is of the request, a *history.Faults.
func (p *Policy) Keep(msgs []history.Message, r Request) (Kept, error) {
	k, err := p.Keeper(r.Categories)
	if err != nil {
		return Kept{}, err
	}
	k.whole, k.find = true, r.FindCalls
	return k.Keep(msgs), nil
}

// maxCarried is how many bytes of values a Keeper looks for beyond their part, of
// withheld arguments and of withheld results each.
const maxCarried = 1 << 20

// A Keeper keeps a long history that comes in parts, as Keep would: a result is judged
// by the call that it answers, in whatever part that was, and withheld values are
// looked for in later parts, too, the newest of them. What has been kept is not looked
// at again, so a value does not go from parts before its own. A result that answers
// no call may be of any, and is withheld.
//
// It holds some bytes for each unanswered call and a bounded number of values, whatever
// the length of the history. It is for one goroutine.
type Keeper struct {
	policy *Policy
	now    table
	find   func(callID string, all bool) ([]Found, error)
	whole  bool // the first part is all there is

	next       int64    // position in the history of the next message
	debts      debts    // of the client's tools
	hosted     *pairing // of those that others run
	carried    struct{ arguments, results []value }
	categories map[string]string
	echoes     *automaton // of carried.arguments; nil until it is asked for
}

// Keeper begins a history of a request that said this of its tools. The error is of
// the request, a *history.Faults.
func (p *Policy) Keeper(categories map[string]string) (*Keeper, error) {
	if err := checkCategories(categories); err != nil {
		return nil, err
	}
	return &Keeper{policy: p, now: newTable(categories), hosted: newPairing()}, nil
}

// Keep returns the next messages as they may be kept.
func (k *Keeper) Keep(msgs []history.Message) Kept {
	c := &keeping{Policy: k.policy, Keeper: k, verdicts: map[place]verdict{}}
	c.judgeCalls(msgs)
	c.judgeResults(msgs)
	c.judgeHosted(msgs)
	if len(c.verdicts) > 0 || len(k.carried.arguments) > 0 || len(k.carried.results) > 0 {
		c.search(msgs)
	}
	kept := Kept{c.walk(msgs), c.changes, c.said}
	k.next += int64(len(msgs))
	k.echoes = nil
	return kept
}

// Repeats reports whether the bytes of an attachment that a kept result names, and that
// were not at hand, repeat a value withheld from arguments.
func (k *Keeper) Repeats(a *history.Attachment) bool {
	text := textIn(a.MediaType, a.Data)
	if text == "" || len(k.carried.arguments) == 0 {
		return false
	}
	if k.echoes == nil {
		looked := search{batch: slices.Clone(k.carried.arguments)}
		looked.pack()
		k.echoes = &looked.machine
		k.echoes.build(looked.batch, looked.size)
	}
	for s := range spelled(text) {
		if len(k.echoes.scan(s)) > 0 {
			return true
		}
	}
	return false
}

// Categories are those of Kept, of all parts so far.
func (k *Keeper) Categories() map[string]string { return k.categories }

// keeping is one Keep.
type keeping struct {
	*Policy
	*Keeper
	calls    map[string][]string // the tools called with each id, each once
	verdicts map[place]verdict   // of withheld blocks
	withheld map[place][]hosted  // what those hold that others ran
	pictures map[place]bool      // withheld images that code left, of which they tell nothing
	leanings map[*group]*leaning // of groups that results answer
	secrets  []secret            // arguments that are withheld
	asked    *questions          // nil unless asking
	found    questions           // and where in them values stand
	changes  []Change
	said     map[string]string // categories of the tools called
}

type place struct{ message, block int }

// A secret is what is withheld of arguments: those of a call, or members that hold some.
type secret struct {
	call     *history.Block // nil where it is members
	members  []strictjson.Value
	category string
}

// questions are the texts to look for values in. What stands around results may
// repeat neither arguments nor results, a result no arguments.
type questions struct{ results, around map[string][]span }

// search finds the values of what is withheld, here or earlier.
func (k *keeping) search(msgs []history.Message) {
	// The first walk only asks where values are to be looked for.
	k.asked = &questions{map[string][]span{}, map[string][]span{}}
	k.walk(msgs)
	k.found, k.asked = *k.asked, nil
	k.carried.arguments = k.look(k.carried.arguments, k.spoken, k.found.results, k.found.around)
	k.carried.results = k.look(k.carried.results, func(vs *values) { k.shown(msgs, vs) }, k.found.around)
}

// look finds the earlier values and those that are collected in the texts. It returns the
// newest of them.
func (k *keeping) look(earlier []value, collect func(*values), texts ...map[string][]span) []value {
	s, l := newSearch(texts...), latest{}
	if k.whole && s.longest == 0 {
		return nil
	}
	for _, v := range earlier {
		s.add(v)
	}
	collect(&values{each: func(v value) {
		s.add(v)
		if !k.whole {
			l.add(v)
		}
	}})
	s.pass()
	return newest(l.after(earlier), maxCarried)
}

// spoken collects the values of withheld arguments.
func (k *keeping) spoken(vs *values) {
	for _, s := range k.secrets {
		if s.call != nil {
			vs.arguments(s.call, s.category)
		}
		vs.members(s.members, s.category)
	}
}

// shown collects the values of withheld results.
func (k *keeping) shown(msgs []history.Message, vs *values) {
	for i := range msgs {
		for j := beside; j < len(msgs[i].Content); j++ {
			at := place{i, j}
			v, withheld := k.verdicts[at]
			if !withheld {
				continue
			}
			for _, h := range k.withheld[at] {
				vs.members(h.told, v.category)
			}
			if j == beside {
				continue
			}
			if b := &msgs[i].Content[j]; b.Type == history.ToolResult && !k.masked(b) {
				vs.result(b, v.category)
			}
		}
	}
}

// judgeCalls decides on the calls and notes the arguments that go.
func (k *keeping) judgeCalls(msgs []history.Message) {
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
			k.noteCategory(b.Name)
			if v := k.judge(arguments, b.Name, &k.now, &table{}); v.withheld() {
				k.verdicts[place{i, j}] = v
				if !k.isMarker(b) {
					k.secrets = append(k.secrets, secret{call: b, category: v.category})
				}
			}
		}
	}
}

// noteCategory notes what the request said of a tool that is called.
func (k *keeping) noteCategory(tool string) {
	category, said := k.remember(tool, &k.now)
	if !said {
		return
	}
	for _, categories := range []*map[string]string{&k.said, &k.categories} {
		if *categories == nil {
			*categories = map[string]string{}
		}
		(*categories)[tool] = category
	}
}

// judgeResults decides on the results, each by the call that it answers and by the
// names that it bears itself.
func (k *keeping) judgeResults(msgs []history.Message) {
	answers := map[place]verdict{}
	strays := map[string]int{} // results by id that answer no unanswered call before them
	for i := range msgs {
		for j := range msgs[i].Content {
			switch b := &msgs[i].Content[j]; b.Type {
			case history.ToolCall:
				k.debts.call(k.next+int64(i), b.ID, k.judge(results, b.Name, &k.now, &table{}))
			case history.ToolResult:
				if v, open := k.debts.answer(b.CallID); open {
					answers[place{i, j}] = v
				} else {
					strays[b.CallID]++
				}
			}
		}
	}
	straying := map[string]judgement{}
	for i := range msgs {
		names := namesIn(msgs[i].Extra)
		for j := range msgs[i].Content {
			b := &msgs[i].Content[j]
			if b.Type != history.ToolResult {
				continue
			}
			var judged judgement
			if v, open := answers[place{i, j}]; open {
				judged.verdict = v
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

func once[K comparable](known map[K]judgement, key K, judge func() judgement) judgement {
	j, done := known[key]
	if !done {
		j = judge()
		known[key] = j
	}
	return j
}

// judgeTools decides on a result of one of these tools, by the strictest.
func (k *keeping) judgeTools(tools []string) (j judgement) {
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
func (k *keeping) judgeStray(id string, results int) judgement {
	j := k.judgeTools(k.calls[id])
	switch {
	case j.verdict.withheld():
	case k.whole:
		j.verdict = k.judgeRecord(id, results, &j)
	default:
		// Its call may be in a part that is gone, or still to come.
		j.verdict = verdict{Unknown, reasonCallNotFound}
	}
	return j
}

// judgeRecord decides by the calls of that id in the record, and adds them to those
// that have been decided on.
func (k *keeping) judgeRecord(id string, answers int, j *judgement) verdict {
	if k.find != nil {
		// One result answers one call there; which of them several answer nobody can tell.
		found, err := k.find(id, answers > 1)
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
func (k *keeping) judgeNames(names []string, calls *judgement) verdict {
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
