package replay_test

import (
	"bytes"
	"encoding/json/jsontext"
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"unicode"

	"historyd/internal/history"
	"historyd/internal/projection"
	"historyd/internal/strictjson"
	"historyd/internal/wire"
	"historyd/test/judge"
	"historyd/test/replay"
	"historyd/test/samples"
)

// conversations reads the sample conversations.
func conversations(t *testing.T) [][]history.Message {
	t.Helper()
	samples.Need(t)
	all, err := replay.Conversations()
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// every is how many of the cases are tried: one of so many.
func every(t *testing.T) int {
	if raced || testing.Short() {
		t.Log("SAMPLED: one case in 10, because the race detector or -short is on")
		return 10
	}
	return 1
}

// workers runs work(0) to work(n-1) on two goroutines.
func workers(n int, work func(i int)) {
	next := make(chan int)
	var wg sync.WaitGroup
	for range 2 {
		wg.Go(func() {
			for i := range next {
				work(i)
			}
		})
	}
	for i := range n {
		next <- i
	}
	close(next)
	wg.Wait()
}

// sent makes a request twice, and returns what is wrong with it: twice must be the same,
// and the provider must take it.
func sent(f wire.Format, msgs []history.Message, a replay.Asked) (r replay.Request, problems []string) {
	if !f.Messages() {
		return r, []string{"the format is not spoken"}
	}
	r, err := replay.Make(f, msgs, a)
	if err != nil {
		return r, []string{err.Error()}
	}
	if again, _ := replay.Make(f, msgs, a); !bytes.Equal(again.Messages, r.Messages) || !bytes.Equal(again.Tools, r.Tools) || !bytes.Equal(again.System, r.System) {
		problems = append(problems, "twice is not the same")
	}
	return r, append(problems, judge.Check(string(f), r.Messages, r.System, r.Tools)...)
}

func clip(text []byte) []byte { return text[:min(len(text), 20_000)] }

// texts are all strings of a document, in order, those in strings of JSON included.
func texts(doc []byte) string {
	var b strings.Builder
	for dec := jsontext.NewDecoder(bytes.NewBuffer(doc)); ; {
		tok, err := dec.ReadToken()
		if err != nil {
			return b.String()
		}
		if tok.Kind() == '"' {
			b.WriteString(tok.String())
			b.WriteByte(0)
		}
	}
}

func TestAnAgentThatWasInterruptedAnywhereGoesOn(t *testing.T) {
	all := conversations(t)
	skip := every(t)
	workers(len(all), func(i int) {
		if i%skip != 0 {
			return
		}
		for _, f := range replay.Formats {
			var before []jsontext.Value
			for cut := 1; cut <= len(all[i]) && !t.Failed(); cut++ {
				r, problems := sent(f, all[i][:cut], replay.Asked{})
				if len(problems) > 0 {
					t.Errorf("%s, conversation %d, cut at %d: %s\n%s", f, i, cut, strings.Join(problems, "\n"), clip(r.Messages))
					return
				}
				holds(t, r, all[i][:cut])
				before = grows(t, r, before)
			}
		}
	})
}

// holds checks that everything of a record in which nothing is wrong but its end is
// there, and that what is made up is counted.
func holds(t *testing.T, r replay.Request, msgs []history.Message) {
	t.Helper()
	out := texts(r.Messages)
	calls, results := 0, 0
	for i := range msgs {
		for j := range msgs[i].Content {
			switch b := &msgs[i].Content[j]; b.Type {
			case history.TextBlock:
				text := strings.TrimRightFunc(b.Text, unicode.IsSpace)
				at := strings.Index(out, text)
				if at < 0 {
					t.Errorf("%s: message %d: %q is lost, or in another place\n%s", r.Format, i, text, clip(r.Messages))
					return
				}
				out = out[at+len(text):]
			case history.ToolCall:
				calls++
			case history.ToolResult:
				results++
			}
		}
	}
	if want := (projection.Repairs{Synthetic: int64(calls - results)}); r.Repairs != want {
		t.Errorf("%s: repairs are %+v, want %+v", r.Format, r.Repairs, want)
	}
	if got := strings.Count(texts(r.Messages), "This call was interrupted"); got != calls-results {
		t.Errorf("%s: %d results are made up, want %d", r.Format, got, calls-results)
	}
}

// grows checks that a replay begins with the one before, up to what was made up then
// and a last message that grew. It returns what the next one begins with.
func grows(t *testing.T, r replay.Request, before []jsontext.Value) []jsontext.Value {
	t.Helper()
	var elements []jsontext.Value
	for _, e := range strictjson.Document(r.Messages).Elements() {
		elements = append(elements, e.Raw)
	}
	if len(elements) < len(before) {
		t.Errorf("%s: the replay became shorter", r.Format)
		return nil
	}
	for i := range before {
		if !bytes.Equal(before[i], elements[i]) {
			t.Errorf("%s: message %d of the replay before is another now: got\n%s\nwant\n%s", r.Format, i, elements[i], before[i])
			return nil
		}
	}
	return elements[:max(0, len(elements)-1-int(r.Repairs.Synthetic))]
}

func TestARecordInWhichEverythingWentWrongIsReplayed(t *testing.T) {
	all := conversations(t)
	skip := every(t)
	const variants = 40
	var found findings
	var sums counts
	workers(len(all)*variants, func(i int) {
		if i%skip != 0 {
			return
		}
		seed := uint64(i)
		msgs := replay.Mutate(seed, all[i/variants])
		for _, f := range replay.Formats {
			a := replay.Asked{Role: "reviewer", Granted: []string{"think"}, Peer: seed%2 == 0, Model: []string{"", replay.Model, "model-3"}[seed%3]}
			if seed%4 == 0 {
				a.Summary = "<earlier_conversation turns=\"1\">\nhello\n</earlier_conversation>"
			}
			found.check(f, seed, msgs, func(msgs []history.Message) (replay.Request, []string) {
				r, problems := sent(f, msgs, a)
				if len(problems) == 0 {
					problems = kept(r)
					sums.add(r)
				}
				return r, problems
			})
		}
	})
	for _, text := range found.texts {
		t.Error(text)
	}
	sums.nonzero(t)
}

func TestEveryKindOfMessageIsReplayed(t *testing.T) {
	for _, from := range replay.Formats {
		t.Run(string(from), func(t *testing.T) {
			corpus, err := replay.Corpus(from)
			if err != nil {
				t.Fatal(err)
			}
			if len(corpus) == 0 {
				t.Errorf("there is no document of %s", from)
			}
			for name, msgs := range corpus {
				if invented := holdsInvented(msgs); invented != "" {
					t.Logf("%s holds %s, which no provider knows and which comes back as given", name, invented)
					continue
				}
				for _, f := range replay.Formats {
					for cut := 1; cut <= len(msgs); cut++ {
						for _, model := range []string{"", "another-model"} {
							r, problems := sent(f, msgs[:cut], replay.Asked{Model: model})
							if f == wire.Responses {
								problems = append(problems, judge.Parted(replay.Items(msgs[:cut]), r.Messages)...)
							}
							if len(problems) > 0 {
								t.Errorf("%s as %s, cut at %d, model %q: %s\n%s", name, f, cut, model, strings.Join(problems, "\n"), clip(r.Messages))
							}
						}
					}
				}
			}
		})
	}
}

// holdsInvented finds a block that the documents made up, of a kind that is to come.
func holdsInvented(msgs []history.Message) string {
	for _, name := range []string{`"hologram"`, `"novel"`, `"fallback"`} {
		if inRecord(msgs, name) {
			return name
		}
	}
	return ""
}

// counts are the sums of what was told, so that a generator that spares a rule is found out.
type counts struct {
	mu      sync.Mutex
	repairs projection.Repairs // under mu
	reports map[string]int64   // under mu, by the names of wire.Report
}

func (c *counts) add(r replay.Request) {
	c.mu.Lock()
	defer c.mu.Unlock()
	sum := reflect.ValueOf(&c.repairs).Elem()
	for i := range sum.NumField() {
		sum.Field(i).SetInt(sum.Field(i).Int() + reflect.ValueOf(r.Repairs).Field(i).Int())
	}
	if c.reports == nil {
		c.reports = map[string]int64{}
	}
	report := reflect.ValueOf(r.Shown.Report)
	for i := range report.NumField() {
		c.reports[report.Type().Field(i).Name] += report.Field(i).Int()
	}
}

func (c *counts) nonzero(t *testing.T) {
	t.Logf("repaired %+v, told %v", c.repairs, c.reports)
	repairs := reflect.ValueOf(c.repairs)
	for i := range repairs.NumField() {
		if repairs.Field(i).Int() == 0 {
			t.Errorf("no record made RepairPairs count %s", repairs.Type().Field(i).Name)
		}
	}
	for name, n := range c.reports {
		if n == 0 {
			t.Errorf("no record made a render count %s", name)
		}
	}
}

// findings tells the first of each kind of problem, with a record as short as can be.
type findings struct {
	mu    sync.Mutex
	kinds map[string]bool // under mu
	texts []string        // under mu
}

// places are what makes problems of one kind differ.
var places = regexp.MustCompile(`\[?\d+\]?`)

func (f *findings) check(format wire.Format, seed uint64, msgs []history.Message, try func([]history.Message) (replay.Request, []string)) {
	r, problems := try(msgs)
	if len(problems) == 0 {
		return
	}
	kind := func(problem string) string { return string(format) + " " + places.ReplaceAllString(problem, "") }
	wanted := kind(problems[0])
	f.mu.Lock()
	known := f.kinds[wanted] || len(f.texts) == 20
	if f.kinds == nil {
		f.kinds = map[string]bool{}
	}
	f.kinds[wanted] = true
	f.mu.Unlock()
	if known {
		return
	}
	for i := 0; i < len(msgs); {
		less := slices.Delete(slices.Clone(msgs), i, i+1)
		if shorter, left := try(less); len(left) > 0 && kind(left[0]) == wanted {
			msgs, r, problems = less, shorter, left
		} else {
			i++
		}
	}
	var record []byte
	for i := range msgs {
		record = append(history.AppendMessage(record, &msgs[i]), '\n')
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.texts = append(f.texts, fmt.Sprintf("%s, seed %d: %s\nmessages %s\ntools %s\nrecord\n%s",
		format, seed, strings.Join(problems, "\n"), clip(r.Messages), clip(r.Tools), clip(record)))
}

// kept checks that what was said is there once and in order, each result that answers
// a call once and no other, and that the counts of the repair tell all of it.
func kept(r replay.Request) []string {
	out := texts(r.Messages)
	var problems []string
	wrong := func(format string, args ...any) { problems = append(problems, fmt.Sprintf(format, args...)) }
	at := -1
	for _, mark := range replay.Said(r.Window) {
		next := strings.Index(out, mark)
		if n := strings.Count(out, mark); n != 1 {
			wrong("%s is there %d times, want once", mark, n)
		} else if next < at {
			wrong("%s is out of order", mark)
		}
		at = next
	}
	results, calls := replay.Results(r.Window)
	shown, dropped := 0, 0
	for _, res := range results {
		n := strings.Count(out, res.Mark)
		switch {
		case n > 1, n == 0 && (res.Answers || res.Due), n == 1 && !res.Answers && !res.Early:
			wrong("%s is there %d times; it answers a call: %v, and came before it: %v", res.Mark, n, res.Answers || res.Due, res.Early)
		case n == 1:
			shown++
		default:
			dropped++
		}
	}
	if got := r.Repairs.Orphans + r.Repairs.Duplicates; got != int64(dropped) {
		wrong("%d results are counted as left out, want %d", got, dropped)
	}
	if got := r.Repairs.Synthetic; got != int64(calls-shown) {
		wrong("%d results are counted as made up, want %d", got, calls-shown)
	}
	if got := strings.Count(out, "This call was interrupted"); int64(got) != r.Repairs.Synthetic {
		wrong("%d results are made up, want %d", got, r.Repairs.Synthetic)
	}
	if r.Repairs.Moved > int64(len(results)) || r.Closed.AsText > 0 {
		wrong("counts are %+v and %d as text, of %d results", r.Repairs, r.Closed.AsText, len(results))
	}
	if r.Format == wire.OpenAI {
		problems = append(problems, inOrder(r)...)
	}
	for f, values := range meant {
		for _, value := range values {
			// What a provider's own tools did holds for all its models.
			other := r.Asked.Model == "model-3" && value != "srvtoolu_"
			if (f != r.Format || other) && strings.Contains(out, value) {
				wrong("%q is of a model of %s, and is sent to another", value, f)
			}
		}
	}
	return append(problems, told(r)...)
}

// inOrder checks that the results to the calls of one message are in the order of these.
func inOrder(r replay.Request) (problems []string) {
	var waiting []string
	for _, m := range strictjson.Document(r.Messages).Elements() {
		if calls, ok := m.Member("tool_calls"); ok {
			waiting = nil
			for _, call := range calls.Elements() {
				id, _ := call.Member("id")
				waiting = append(waiting, string(id.Raw))
			}
		}
		id, ok := m.Member("tool_call_id")
		switch {
		case !ok:
		case len(waiting) == 0 || waiting[0] != string(id.Raw):
			problems = append(problems, "the result of "+string(id.Raw)+" is not where its call is in order")
		default:
			waiting = waiting[1:]
		}
	}
	return problems
}

// meant are values of the generator that only the models of a format understand.
// Nobody is model-3.
var meant = map[wire.Format][]string{
	wire.Responses: {"gAAA", "rs_"}, wire.Anthropic: {"c2ln", "srvtoolu_"}, wire.Gemini: {"AP/Y"},
}

// legal are the signs of names and ids that every provider takes.
const legal = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-"

// told lists what a render changed and its report does not tell.
func told(r replay.Request) []string {
	var out []string
	originals := map[string]bool{}
	for _, original := range r.Shown.Names {
		originals[original] = true
	}
	longest := map[wire.Format]int{wire.OpenAI: 40, wire.Responses: 64}[r.Format]
	illegalIDs, pictures := 0, 0
	for i := range r.Window {
		m := &r.Window[i]
		for j := range m.Content {
			b := &m.Content[j]
			if b.Type == history.ToolCall {
				if (b.Name == "" || len(b.Name) > 128 || strings.Trim(b.Name, legal) != "") && !originals[b.Name] {
					out = append(out, fmt.Sprintf("the name %q was mapped, and Names does not have it", b.Name))
				}
				if longest > 0 && len(b.ID) > longest || r.Format == wire.Anthropic && strings.Trim(b.ID, legal) != "" {
					illegalIDs++
				}
			}
			if b.Media() && b.URL == "" && b.Data == nil && m.Role == history.User {
				pictures++
			}
		}
	}
	if r.Shown.Report.MappedIDs < int64(illegalIDs) {
		out = append(out, fmt.Sprintf("%d ids are told as mapped, want at least %d", r.Shown.Report.MappedIDs, illegalIDs))
	}
	if r.Shown.Report.DroppedMedia < int64(pictures) {
		out = append(out, fmt.Sprintf("%d images are told as dropped, want at least %d", r.Shown.Report.DroppedMedia, pictures))
	}
	if r.Format == wire.Responses {
		out = append(out, judge.Parted(replay.Items(r.Window), r.Messages)...)
	}
	for declared, original := range r.Shown.Names {
		if !bytes.Contains(r.Tools, []byte(`"`+declared+`"`)) {
			out = append(out, fmt.Sprintf("%q stands for %q and is not declared", declared, original))
		}
	}
	return out
}

// inRecord reports whether the record has some text in any of its messages.
func inRecord(msgs []history.Message, text string) bool {
	for i := range msgs {
		if bytes.Contains(history.AppendMessage(nil, &msgs[i]), []byte(text)) {
			return true
		}
	}
	return false
}
