package pipeline

import (
	"bytes"
	"context"
	"encoding/json/jsontext"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"historyd/internal/compaction"
	"historyd/internal/durable/crashfs"
	"historyd/internal/history"
	"historyd/internal/identity"
	"historyd/internal/projection"
	"historyd/internal/store"
)

// bench is a pipeline on a real store on a disk in memory.
type bench struct {
	*Pipeline
	t    *testing.T
	disk *crashfs.FS
	reg  *prometheus.Registry
	stop func()
}

func newBench(t *testing.T, policy projection.Options) *bench {
	t.Helper()
	b := &bench{t: t, disk: crashfs.New()}
	b.start(policy)
	t.Cleanup(func() { b.stop() })
	return b
}

var minted atomic.Int64

func (b *bench) start(policy projection.Options) {
	b.t.Helper()
	b.reg = prometheus.NewRegistry()
	s, err := store.Open(store.Options{
		FS:    b.disk,
		NewID: func(string) string { return fmt.Sprintf("01%024d", minted.Add(1)) },
	})
	if err != nil {
		b.t.Fatal(err)
	}
	b.stop = func() { _ = s.Close() }
	b.Pipeline = newPipeline(b.t, s, policy, b.reg)
}

func newPipeline(t *testing.T, e Engine, o projection.Options, reg prometheus.Registerer) *Pipeline {
	t.Helper()
	policy, err := projection.New(o)
	if err != nil {
		t.Fatal(err)
	}
	compactor, err := compaction.New(compaction.Options{})
	if err != nil {
		t.Fatal(err)
	}
	p, err := New(Options{Engine: e, Policy: policy, Compactor: compactor, Registerer: reg})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// restart ends the process and begins another one on the same disk.
func (b *bench) restart(policy projection.Options) {
	b.stop()
	b.disk = b.disk.Kill()
	b.start(policy)
}

func conversation(t *testing.T, id string) Conversation {
	t.Helper()
	c, err := identity.NewCaller("operator", id, "", "")
	if err != nil {
		t.Fatal(err)
	}
	return Conversation{c.Scope(), "default"}
}

func said(role history.Role, text string) history.Message {
	m := history.Message{Role: role, Status: history.Complete, Content: []history.Block{history.Text(text)}}
	if role == history.User {
		m.Kind = history.Person
	}
	return m
}

func calls(id, tool, arguments string) history.Message {
	return history.Message{Role: history.Assistant, Status: history.Complete, Content: []history.Block{
		{Type: history.ToolCall, ID: id, Name: tool, Arguments: jsontext.Value(arguments)},
	}}
}

func answers(id, text string) history.Message {
	return history.Message{Role: history.Tool, Status: history.Complete, Content: []history.Block{
		{Type: history.ToolResult, CallID: id, Content: []history.Block{history.Text(text)}, Plain: true},
	}}
}

func (b *bench) record(c Conversation, t Turn) Recorded {
	b.t.Helper()
	done, err := b.Record(context.Background(), c, t)
	if err != nil {
		b.t.Fatalf("Record: %v", err)
	}
	return done
}

func (b *bench) replay(c Conversation, ask Ask) Replayed {
	b.t.Helper()
	r, err := b.Replay(context.Background(), c, ask)
	if err != nil {
		b.t.Fatalf("Replay: %v", err)
	}
	return r
}

// stored returns what the record holds.
func (b *bench) stored(c Conversation) []history.Message {
	b.t.Helper()
	var out []history.Message
	b.page(c, Page{Before: Unbounded, Limit: 1 << 20}, func(r history.Record) {
		m, err := r.Message()
		if err != nil {
			b.t.Fatalf("message %d: %v", r.Seq, err)
		}
		out = append(out, m)
	})
	return out
}

// lines is what messages are for a comparison, without what the record gives them.
func lines(msgs []history.Message) []string {
	var out []string
	for _, m := range msgs {
		m.ID, m.Seq, m.At = "", 0, m.At.Truncate(0)
		out = append(out, string(history.AppendMessage(nil, &m)))
	}
	return out
}

func (b *bench) mustNotHold(canary string) {
	b.t.Helper()
	for name, content := range b.disk.Files() {
		if bytes.Contains(content, []byte(canary)) {
			b.t.Errorf("the withheld value is in %s", name)
		}
	}
	families, err := b.reg.Gather()
	if err != nil {
		b.t.Fatal(err)
	}
	for _, f := range families {
		if strings.Contains(f.String(), canary) {
			b.t.Errorf("the withheld value is in metric %s", f.GetName())
		}
	}
}

func TestOptionsThatAreMissingAreNamed(t *testing.T) {
	b := newBench(t, projection.Options{})
	for _, tt := range []struct {
		want string
		o    Options
	}{
		{"Engine", Options{Policy: b.policy.Load(), Compactor: b.compactor}},
		{"Policy", Options{Engine: b.engine, Compactor: b.compactor}},
		{"Compactor", Options{Engine: b.engine, Policy: b.policy.Load()}},
	} {
		if _, err := New(tt.o); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("New without %s: %v", tt.want, err)
		}
	}
}

func TestWithheldValuesReachNothing(t *testing.T) {
	const canary = "canary-5521-hunter2"
	b := newBench(t, projection.Options{Tools: []projection.Rule{{Match: "wallet_*", Category: "wallet"}}})
	c := conversation(t, "ann")
	done := b.record(c, Turn{Key: "k1", Messages: []history.Message{
		said(history.User, "pay"),
		calls("c1", "wallet_send", `{"secret":"`+canary+`"}`),
		answers("c1", "sent with "+canary),
		calls("c2", "who_knows", `{"x":"`+canary+`"}`),
	}})
	if _, err := b.Import(context.Background(), Conversation{c.Scope, "imported"}, Document{Mode: history.Create, Source: list(
		calls("c1", "wallet_send", `{"secret":"`+canary+`"}`), answers("c1", canary),
	)}); err != nil {
		t.Fatal(err)
	}
	b.mustNotHold(canary)
	if len(done.Changes) != 3 || done.Changes[0].Seq != 2 || done.Changes[0].Category != "wallet" || done.Changes[2].Reason != "unknown_tool" {
		t.Errorf("changes: %+v", done.Changes)
	}
	for _, m := range b.stored(c)[1:] {
		if m.Content[0].Redacted == nil {
			t.Errorf("not marked: %+v", m.Content[0])
		}
	}
}

func TestResultsThatComeLaterFollowTheirCall(t *testing.T) {
	const canary = "canary-later-9"
	keep := projection.Options{UnknownTools: "keep"}
	b := newBench(t, keep)
	c := conversation(t, "ann")
	b.record(c, Turn{Messages: []history.Message{calls("c1", "transfer", `{}`)}, Categories: map[string]string{"transfer": "wallet"}})
	b.restart(keep)
	b.record(c, Turn{Messages: []history.Message{answers("c1", canary)}})
	b.mustNotHold(canary)
	b.record(c, Turn{Messages: []history.Message{calls("c2", "weather", `{}`)}})
	b.record(c, Turn{Messages: []history.Message{answers("c2", "sunny")}})
	if got := b.stored(c)[3].Content[0].Content[0].Text; got != "sunny" {
		t.Errorf("a result of another tool: got %q", got)
	}
}

// TestAResultGoesByTheNearestUnansweredCall holds V2 and T8 where a call id repeats.
func TestAResultGoesByTheNearestUnansweredCall(t *testing.T) {
	both := calls("c0", "wallet_a", "{}")
	both.Content = append(both.Content, calls("c0", "gen1", "{}").Content...)
	wallet, open := calls("c0", "wallet_a", "{}"), calls("c0", "gen1", "{}")
	r1, r2 := answers("c0", "R1"), answers("c0", "R2")
	for _, tt := range []struct {
		name    string
		appends [][]history.Message
		want    string // the results, one after the other
	}{
		{"one message with both", [][]history.Message{{both}, {r1, r2}}, "[withheld: wallet] [withheld: wallet]"},
		{"the older is still unanswered", [][]history.Message{{wallet}, {open}, {r1}, {r2}}, "R1 [withheld: wallet]"},
		{"the older is answered", [][]history.Message{{wallet, r1}, {open}, {r2}}, "[withheld: wallet] R2"},
		{"one result too many", [][]history.Message{{wallet}, {r1}, {open}, {r1}, {r2}}, "[withheld: wallet] R1 [withheld: wallet]"},
		{"several results for several calls", [][]history.Message{{wallet}, {open}, {r1, r2}}, "[withheld: wallet] [withheld: wallet]"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b := newBench(t, projection.Options{UnknownTools: "keep", Tools: []projection.Rule{{Match: "wallet_*", Category: "wallet"}, {Match: "gen*", Category: "general"}}})
			c := conversation(t, "ann")
			for _, msgs := range tt.appends {
				b.record(c, Turn{Messages: msgs})
			}
			var got []string
			for _, m := range b.stored(c) {
				if m.Role == history.Tool {
					got = append(got, m.Content[0].Content[0].Text)
				}
			}
			if got := strings.Join(got, " "); got != tt.want {
				t.Errorf("results %q, want %q", got, tt.want)
			}
		})
	}
}

// An engine that fails in one place.
type brokenEngine struct {
	Engine
	find    error
	append  error
	receipt *history.Receipt
}

type brokenLog struct {
	history.Log
	e *brokenEngine
}

func (e *brokenEngine) Log(s identity.Scope, name string) history.Log {
	return brokenLog{e.Engine.Log(s, name), e}
}

func (l brokenLog) FindCalls(ctx context.Context, id string, all bool) ([]history.FoundCall, error) {
	if l.e.find != nil {
		return nil, l.e.find
	}
	return l.Log.FindCalls(ctx, id, all)
}

func (l brokenLog) Append(ctx context.Context, b history.Batch) (history.Receipt, error) {
	if l.e.receipt != nil {
		return *l.e.receipt, nil
	}
	if l.e.append != nil {
		return history.Receipt{}, fmt.Errorf("engine: %w", l.e.append)
	}
	return l.Log.Append(ctx, b)
}

func TestWhatCannotBeLookedUpIsWithheld(t *testing.T) {
	b := newBench(t, projection.Options{UnknownTools: "keep"})
	for _, failure := range []error{history.ErrTooFar, history.ErrUnavailable, context.Canceled} {
		p := newPipeline(t, &brokenEngine{Engine: b.engine, find: failure}, projection.Options{UnknownTools: "keep"}, nil)
		done, err := p.Record(context.Background(), conversation(t, "ann"), Turn{Messages: []history.Message{answers("c1", "canary-value")}})
		if err != nil || len(done.Changes) != 1 || done.Changes[0].Reason != "call_not_found" {
			t.Errorf("%v: changes %+v, error %v", failure, done.Changes, err)
		}
	}
	b.mustNotHold("canary-value")
}

func TestNothingAfterTheCommitMakesAFailureOfIt(t *testing.T) {
	b := newBench(t, projection.Options{})
	p := newPipeline(t, &brokenEngine{Engine: b.engine, receipt: &history.Receipt{
		Epoch: "e", FirstSeq: 1, LastSeq: 1, IDs: []string{"x"}, Added: 1, Replayed: true, Note: jsontext.Value(`["no note"]`),
	}}, projection.Options{}, nil)
	done, err := p.Record(context.Background(), conversation(t, "ann"), Turn{Key: "k", Messages: []history.Message{said(history.User, "hi")}})
	if err != nil || done.FirstSeq != 1 {
		t.Errorf("Record = %+v, %v", done, err)
	}
}

func TestAKeyGivesTheFirstAnswerAgain(t *testing.T) {
	b := newBench(t, projection.Options{})
	c := conversation(t, "ann")
	b.record(c, Turn{Messages: []history.Message{said(history.User, "first")}})
	turn := Turn{Key: "k1", Messages: []history.Message{said(history.User, "u"), calls("c1", "tool", `{"password":"hunter22"}`)}}
	first := b.record(c, turn)
	b.record(c, Turn{Messages: []history.Message{said(history.User, "later")}})
	b.restart(projection.Options{})
	again := b.record(c, turn)
	if !again.Replayed || again.FirstSeq != first.FirstSeq || again.LastSeq != first.LastSeq ||
		!slices.Equal(again.IDs, first.IDs) || !slices.Equal(again.Changes, first.Changes) || len(first.Changes) != 1 {
		t.Errorf("again %+v\nfirst %+v", again, first)
	}
	// What differs only in a withheld value is the same request: the fingerprint says nothing of it.
	turn.Messages[1] = calls("c1", "tool", `{"password":"another"}`)
	if again := b.record(c, turn); !again.Replayed {
		t.Error("the fingerprint depends on a withheld value")
	}
	turn.Messages[0] = said(history.User, "other")
	if _, err := b.Record(context.Background(), c, turn); !errors.Is(err, history.ErrKeyMismatch) {
		t.Errorf("another request: %v", err)
	}
	turn.Messages = turn.Messages[:1]
	if _, err := b.Import(context.Background(), c, Document{Mode: history.Extend, Key: "k1", Source: list(turn.Messages...)}); !errors.Is(err, history.ErrKeyMismatch) {
		t.Errorf("the same by another door: %v", err)
	}
	other := conversation(t, "bob")
	if done := b.record(other, turn); done.Replayed {
		t.Error("a key of another caller counted")
	}
}

func TestAConditionIsHeld(t *testing.T) {
	b := newBench(t, projection.Options{})
	c := conversation(t, "ann")
	hello := []history.Message{said(history.User, "hi")}
	is := func(want string) func(string) bool { return func(got string) bool { return got == want } }
	done := b.record(c, Turn{Messages: hello, IfMatch: is(history.ETag("", 0)), Key: "k"})
	if _, err := b.Record(context.Background(), c, Turn{Messages: hello, IfMatch: is(history.ETag("", 0))}); !errors.Is(err, history.ErrPrecondition) {
		t.Errorf("a stale condition: %v", err)
	}
	if again := b.record(c, Turn{Messages: hello, IfMatch: is(history.ETag("", 0)), Key: "k"}); !again.Replayed {
		t.Error("the key is looked up before the condition")
	}
	b.record(c, Turn{Messages: hello, IfMatch: is(history.ETag(done.Epoch, done.LastSeq))})
}

func TestClearEndsEverything(t *testing.T) {
	b := newBench(t, projection.Options{})
	ann, bob := conversation(t, "ann"), conversation(t, "bob")
	for i := range 20 {
		for _, c := range []Conversation{ann, bob, {ann.Scope, "other"}} {
			b.record(c, Turn{Messages: []history.Message{said(history.User, fmt.Sprintf("canary-%s %d", c.Scope.ID(), i))}})
		}
	}
	if err := b.Clear(context.Background(), ann); err != nil {
		t.Fatal(err)
	}
	if st, err := b.State(context.Background(), ann); err != nil || st.Exists() {
		t.Errorf("State = %+v, %v", st, err)
	}
	if n := len(b.stored(Conversation{ann.Scope, "other"})); n != 20 {
		t.Errorf("another conversation of the caller has %d messages", n)
	}
	if err := b.ClearAll(context.Background(), ann.Scope); err != nil {
		t.Fatal(err)
	}
	b.mustNotHold("canary-ann")
	if n := len(b.stored(bob)); n != 20 {
		t.Errorf("another caller has %d messages", n)
	}
	l, err := b.List(context.Background(), ann.Scope, "", 10)
	if err != nil || len(l.Items) != 0 {
		t.Errorf("List = %+v, %v", l, err)
	}
}

func TestLabelsOfMetricsAreFromClosedSets(t *testing.T) {
	b := newBench(t, projection.Options{})
	c := conversation(t, "ann")
	for i := range 50 {
		tool := fmt.Sprintf("tool%d", i)
		b.record(Conversation{c.Scope, tool}, Turn{
			Messages:   []history.Message{calls("c1", tool, `{"a":"value"}`), calls("c2", "purse"+tool, `{"a":"value"}`), calls("c3", "other", `{"a":"value"}`)},
			Categories: map[string]string{tool: "secret-category " + tool, "purse*": " WALLET "},
		})
	}
	families, err := b.reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	series := 0
	for _, f := range families {
		series += len(f.GetMetric())
		if strings.Contains(f.String(), "secret-category") {
			t.Errorf("%s names a category that the options do not", f.GetName())
		}
	}
	if wallet, unknown := b.counted("historyd_redactions_total", "wallet"), b.counted("historyd_redactions_total", "unknown"); wallet != 50 || unknown != 50 {
		t.Errorf("%v values of wallets and %v of unknown tools were counted, want 50 of each", wallet, unknown)
	}
	if series > 20 {
		t.Errorf("%d series", series)
	}
}

// counted is what a counter has of the series with that label.
func (b *bench) counted(name string, label string) float64 {
	b.t.Helper()
	families, err := b.reg.Gather()
	if err != nil {
		b.t.Fatal(err)
	}
	var n float64
	for _, f := range families {
		for _, m := range f.GetMetric() {
			if f.GetName() != name {
				continue
			}
			for _, l := range m.GetLabel() {
				if l.GetValue() == label {
					n += m.GetCounter().GetValue()
				}
			}
		}
	}
	return n
}

func TestAReloadedPolicyIsCountedByItsOwnNames(t *testing.T) {
	b := newBench(t, projection.Options{})
	c := conversation(t, "ann")
	policy, err := projection.New(projection.Options{Withhold: []projection.Withhold{{Category: "bank", Arguments: true}}, Tools: []projection.Rule{{Match: "pay", Category: "bank"}}})
	if err != nil {
		t.Fatal(err)
	}
	b.SetPolicy(policy)
	b.record(c, Turn{Messages: []history.Message{calls("c1", "pay", `{"a":"value"}`)}})
	if n := b.counted("historyd_redactions_total", "bank"); n != 1 {
		t.Errorf("%v values of category bank were counted, want 1", n)
	}
}

func TestEveryAppendIsCountedByWhatBecameOfIt(t *testing.T) {
	b := newBench(t, projection.Options{})
	c := conversation(t, "ann")
	hello := []history.Message{said(history.User, "hi")}
	never := func(string) bool { return false }
	for _, tt := range []struct {
		result string
		fails  error // what the engine answers
		turn   Turn
	}{
		{"ok", nil, Turn{Messages: hello, Key: "k"}},
		{"replayed", nil, Turn{Messages: hello, Key: "k"}},
		{"refused", nil, Turn{Messages: hello, Key: "k", Categories: map[string]string{"tool": strings.Repeat("long ", 100)}}},
		{"refused", nil, Turn{Messages: hello, IfMatch: never}},
		{"refused", history.ErrKeyMismatch, Turn{Messages: hello}},
		{"refused", history.ErrBusy, Turn{Messages: hello}},
		{"canceled", context.Canceled, Turn{Messages: hello}},
		{"canceled", context.DeadlineExceeded, Turn{Messages: hello}},
		{"stopping", history.ErrClosed, Turn{Messages: hello}},
		{"failed", history.ErrUnavailable, Turn{Messages: hello}},
		{"failed", history.ErrFull, Turn{Messages: hello}},
	} {
		reg := prometheus.NewRegistry()
		p := newPipeline(t, &brokenEngine{Engine: b.engine, append: tt.fails}, projection.Options{}, reg)
		_, err := p.Record(context.Background(), c, tt.turn)
		counted := (&bench{t: t, reg: reg}).counted("historyd_appends_total", tt.result)
		if counted != 1 || tt.fails != nil && !errors.Is(err, tt.fails) {
			t.Errorf("%s, engine %v: counted %v times, error %v", tt.result, tt.fails, counted, err)
		}
	}
}
