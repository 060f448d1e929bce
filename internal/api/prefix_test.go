package api

import (
	"bytes"
	"encoding/json/jsontext"
	"encoding/json/v2"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"

	"historyd/internal/history"
	"historyd/internal/projection"
)

// A follower asks for replays of one conversation in one way, and counts how often what
// it is to hand to a provider is not what it had before with something behind.
type follower struct {
	caller, format, mode string
	budget               int64

	head     string // what stands ahead of the messages
	messages []jsontext.Value
	fold     int64

	replays, folds, trimmed, shortened int
	changes                            []string // when the beginning was another one
}

func (f *follower) String() string {
	return fmt.Sprintf("%s, %s, mode %s, max_tokens %d", f.caller, f.format, f.mode, f.budget)
}

// followed is what a follower looks at in a replay.
type followed struct {
	Messages []jsontext.Value `json:"messages"`
	System   jsontext.Value   `json:"system"`
	Summary  *struct {
		Text       string `json:"text"`
		ThroughSeq int64  `json:"through_seq"`
	} `json:"summary"`
	Tokens int64 `json:"estimated_tokens"`
	Report struct {
		DroppedTurns     int  `json:"dropped_turns"`
		OverBudget       bool `json:"over_budget"`
		ShortenedSummary bool `json:"shortened_summary"`
	} `json:"report"`
}

// query returns the parameters of the replay.
func (f *follower) query() string {
	q := "?format=" + f.format + "&mode=" + f.mode
	if f.budget > 0 {
		q += fmt.Sprintf("&max_tokens=%d", f.budget)
	}
	return q
}

// look takes the next replay. One that has a call without a result is no beginning of the
// next in mode full: what is made in its place is not what comes.
func (f *follower) look(d *daemon, when string, open bool) {
	d.t.Helper()
	var now followed
	must(d.t, json.Unmarshal([]byte(d.fetch(f.caller, "GET", replayOfX+f.query(), "")), &now))
	head := string(now.System)
	if now.Summary != nil {
		if f.format == "native" {
			head = now.Summary.Text
		}
		if now.Summary.ThroughSeq != f.fold {
			f.fold, f.folds = now.Summary.ThroughSeq, f.folds+1
		}
	}
	if f.replays++; f.replays > 1 && (head != f.head || !f.extends(f.messages, now.Messages)) {
		f.changes = append(f.changes, when)
	}
	if now.Report.DroppedTurns > 0 {
		f.trimmed++
	}
	if now.Report.ShortenedSummary {
		f.shortened++
	}
	if f.budget > 0 && (now.Report.OverBudget || now.Tokens > f.budget) {
		d.t.Fatalf("%s: %s: %d tokens, over the budget", f, when, now.Tokens)
	}
	if !open || f.mode == "text" {
		f.head, f.messages = head, now.Messages
	}
}

// extends reports whether now is before with messages behind. Where roles must take turns
// the last message may have grown.
func (f *follower) extends(before, now []jsontext.Value) bool {
	if len(now) < len(before) || len(before) == 0 {
		return len(before) == 0
	}
	last := len(before) - 1
	grown := func(before, now []byte) bool {
		head, ok := bytes.CutSuffix(before, []byte("]}"))
		return ok && (f.format == "anthropic" || f.format == "gemini") && bytes.HasPrefix(now, head)
	}
	return sameMessages(before[:last], now[:last]) && (bytes.Equal(before[last], now[last]) || grown(before[last], now[last]))
}

func sameMessages(a, b []jsontext.Value) bool {
	return slices.EqualFunc(a, b, func(a, b jsontext.Value) bool { return bytes.Equal(a, b) })
}

// fetch is send without a look at the document of the contract, which takes longer than
// the request.
func (d *daemon) fetch(caller, method, path, body string) string {
	d.t.Helper()
	req, err := http.NewRequest(method, d.url+path, strings.NewReader(body))
	must(d.t, err)
	req.Header.Set("Authorization", "Bearer "+d.tokens[caller])
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	res, err := d.server.Client().Do(req)
	must(d.t, err)
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	must(d.t, err)
	if res.StatusCode/100 != 2 {
		d.t.Fatalf("%s %s: %d %s", method, path, res.StatusCode, text)
	}
	return string(text)
}

// pixel is an image.
const pixel = `{"type":"image","media_type":"image/png","data":"iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAQAAAC1HAwCAAAAC0lEQVR42mNk+M8AAQUBAScY42YAAAAASUVORK5CYII="}`

// A talk is a conversation of an agent that is driven turn by turn.
type talk struct {
	d       *daemon
	callers []string
	look    func(when string, open bool)
}

func (k *talk) say(format string, args ...any) {
	k.d.t.Helper()
	for _, caller := range k.callers {
		k.append(caller, fmt.Sprintf(format, args...))
	}
}

func (k *talk) append(caller, messages string) {
	k.d.t.Helper()
	k.d.fetch(caller, "POST", turns, `{"messages":[`+messages+`]}`)
}

func quote(text string, times int) string {
	return string(history.AppendString(nil, strings.Repeat(text, times)))
}

// turn is one turn: a question, the operator's now and then with a picture, at times what is
// recalled, tools, whose results come at once or late, and an answer.
func (k *talk) turn(n int) {
	id := fmt.Sprintf("call_%d", n)
	k.say(`{"role":"user","content":%s}`, quote(fmt.Sprintf("question %d: where is the lighthouse? ", n), 1+n%3))
	if n%29 == 11 {
		k.append("ann", `{"role":"user","content":[{"type":"text","text":"See this."},`+pixel+`]}`)
	}
	k.recall(n)
	k.look(fmt.Sprint(n, " asked"), false)
	k.say(`{"role":"assistant","content":[{"type":"text","text":"Let me see."},{"type":"tool_call","id":%q,"name":"search","arguments":{"q":%s}},
		{"type":"tool_call","id":"%[1]s_b","name":"look_up","arguments":{}}],"usage":{"output_tokens":%[3]d}}`, id, quote("lighthouses ", 1+n%4), 34+n%7)
	if n%13 == 5 {
		k.look(fmt.Sprint(n, " waiting"), true)
	}
	k.say(`{"role":"tool","content":[{"type":"tool_result","call_id":%q,"content":%s}]},
		{"role":"tool","content":[{"type":"tool_result","call_id":"%[1]s_b","content":""}]}`, id, quote("a result of some length ", 6+n%4))
	if n%3 == 0 {
		k.look(fmt.Sprint(n, " found"), false)
	}
	if n == 60 {
		k.work(130)
	}
	k.say(`{"role":"assistant","content":%s,"usage":{"output_tokens":%d,"input_tokens":null}}`, quote("what the answer says ", 6+n%4), 26+n%9)
	if n%17 == 3 {
		k.say(`{"role":"system","content":"not to be replayed"},{"role":"user","content":" \n"},{"role":"assistant","content":"You said nothing."}`)
	}
}

// work is a turn with so many rounds of tools that it is folded inside.
func (k *talk) work(rounds int) {
	for i := range rounds {
		k.append("ann", fmt.Sprintf(`{"role":"assistant","content":[{"type":"tool_call","id":"work_%d","name":"search","arguments":{}}]},
			{"role":"tool","content":[{"type":"tool_result","call_id":"work_%[1]d","content":"found"}]}`, i))
		if i%5 == 0 {
			k.look(fmt.Sprint("work ", i), false)
		}
	}
}

// recall stores what is known on the first turn and on some later ones. One that is not
// stored changes nothing in what is sent.
func (k *talk) recall(n int) {
	for _, caller := range k.callers {
		switch {
		case n == 0:
			if got := k.d.fetch(caller, "POST", replayOfX, `{"recall":{"store":true}}`); !strings.Contains(got, `"stored_seq":2`) {
				k.d.t.Fatalf("%s: nothing is recalled on the first turn: %s", caller, got)
			}
		case n%23 == 7:
			if got := k.d.fetch(caller, "POST", "/v1/conversations/x/recall", fmt.Sprintf(`{"query":"lighthouse keeper %d","store":true}`, n%5)); !strings.Contains(got, `"stored_seq":`) {
				k.d.t.Fatalf("%s: nothing is recalled on turn %d: %s", caller, n, got)
			}
		case n%23 == 15:
			var with, without followed
			must(k.d.t, json.Unmarshal([]byte(k.d.fetch(caller, "POST", replayOfX+"?format=openai", `{"recall":{"query":"lighthouse"}}`)), &with))
			must(k.d.t, json.Unmarshal([]byte(k.d.fetch(caller, "GET", replayOfX+"?format=openai", "")), &without))
			if !sameMessages(with.Messages, without.Messages) {
				k.d.t.Errorf("%s: turn %d: a recall that is not stored is in the messages", caller, n)
			}
		}
	}
}

// Each time that what is sent is not the last with something behind, a provider reads it
// all anew, at ten times the price of what it has cached. That happens at a fold, which
// cannot be helped, and at no other time: without a budget, and with one in which the turns
// between two folds take three quarters of what summary and tools leave at the most. What they will
// need is made free at the fold.
func TestWhatIsSentChangesItsBeginningOnceAFold(t *testing.T) {
	const n = 200
	d := newDaemon(t, projection.Options{UnknownTools: "keep"})
	k := &talk{d: d, callers: []string{"ann", "mesh-ann"}}
	for _, caller := range k.callers {
		for i := range 8 {
			d.fetch(caller, "POST", fmt.Sprintf("/v1/conversations/old-%d/turns", i),
				fmt.Sprintf(`{"messages":[{"role":"user","content":"Who is the lighthouse keeper %d?"},{"role":"assistant","content":"Keeper %[1]d is Maud, of lighthouse %[1]d, in the bay."}]}`, i))
		}
	}
	formats := []string{"native", "openai", "anthropic", "responses", "gemini"}
	if raced { // Everything here happens one after the other, and each format has 800 replays.
		formats = formats[:2]
	}
	var rows []*follower
	for _, format := range formats {
		rows = append(rows,
			&follower{caller: "ann", format: format, mode: "text"}, &follower{caller: "ann", format: format, mode: "full"},
			&follower{caller: "mesh-ann", format: format, mode: "text", budget: 1800}, &follower{caller: "mesh-ann", format: format, mode: "full", budget: 3000})
	}
	// In these the summary gives way, and no turn has to.
	rows = append(rows, &follower{caller: "mesh-ann", format: "native", mode: "text", budget: 2600}, &follower{caller: "mesh-ann", format: "native", mode: "full", budget: 4100})
	k.look = func(when string, open bool) {
		for _, f := range rows {
			f.look(d, when, open)
		}
	}
	for i := range n {
		k.turn(i)
	}
	for _, f := range rows {
		t.Logf("%s: %d changes in %d folds; of %d replays %d had turns left out, %d a shorter summary", f, len(f.changes), f.folds, f.replays, f.trimmed, f.shortened)
		if len(f.changes) > f.folds || f.folds < 30 {
			t.Errorf("%s: the beginning changed %d times in %d folds: %q", f, len(f.changes), f.folds, f.changes)
		}
		if f.budget > 0 && f.shortened < n/2 {
			t.Errorf("%s: the budget left some of the summary out of %d replays alone", f, f.shortened)
		}
		if tight := f.budget == 1800 || f.budget == 3000; tight == (f.trimmed < n/4) {
			t.Errorf("%s: the budget left turns out of %d replays", f, f.trimmed)
		}
	}
}

// At the ceiling each turn passes the budget, and still the beginning changes at folds alone, from the first of them on. It
// holds for every budget of which the turns between two folds take three quarters at the most: 5 of 313 tokens here.
func TestFiftyTurnsAtTheCeilingChangeTheBeginningOnceAFold(t *testing.T) {
	d := newDaemon(t, projection.Options{UnknownTools: "keep"})
	var rows []*follower
	for budget := int64(2650); budget <= 4700; budget += 200 {
		rows = append(rows, &follower{caller: "ann", format: "openai", mode: "full", budget: budget})
	}
	early := map[*follower]int{}
	for i := range 50 {
		d.fetch("ann", "POST", turns, fmt.Sprintf(`{"messages":[{"role":"user","content":%s},{"role":"assistant","content":[{"type":"tool_call","id":"c%[2]d","name":"f","arguments":{"i":%[2]d}}]},
			{"role":"tool","content":[{"type":"tool_result","call_id":"c%[2]d","content":%s}]},{"role":"assistant","content":%s}]}`,
			quote("lorem ipsum ", 40), 100+i, quote("dolor ", 50), quote("sit amet ", 30)))
		for _, f := range rows {
			f.look(d, fmt.Sprint(i), false)
			if f.folds == 0 {
				early[f] = len(f.changes)
			}
		}
	}
	for _, f := range rows {
		t.Logf("%s: %d changes in %d folds, %d before the first", f, len(f.changes), f.folds, early[f])
		if len(f.changes)-early[f] > f.folds || early[f] > 2 || f.folds < 8 || f.trimmed < 30 {
			t.Errorf("%s: the beginning changed %d times before the first of %d folds, then at %q; turns were left out of %d replays", f, early[f], f.folds, f.changes[early[f]:], f.trimmed)
		}
	}
}
