package pipeline

import (
	"bytes"
	"context"
	"encoding/json/jsontext"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"historyd/internal/history"
	"historyd/internal/identity"
	"historyd/internal/projection"
	"historyd/internal/recall"
)

// recaller is a Recaller of one function.
type recaller func(ctx context.Context, ask recall.Ask) recall.Recalled

func (r recaller) Recall(ctx context.Context, ask recall.Ask) recall.Recalled { return r(ctx, ask) }

// notes are what a retriever finds, whatever it is asked.
func notes(_ context.Context, ask recall.Ask) recall.Recalled {
	if ask.Query == "" {
		return recall.Recalled{Skipped: true, Retrievers: []recall.Status{{Name: "m", Status: recall.Empty}}}
	}
	return recall.Recalled{Text: "notes of " + ask.Query, Retrievers: []recall.Status{{Name: "m", Status: recall.OK, Hits: 1}}}
}

// withRecall gives the bench a real index and what recalls from it.
func (b *bench) withRecall(o recall.Options) {
	b.t.Helper()
	index, err := recall.NewIndex(recall.SearchOptions{FS: b.disk, Record: b.engine})
	if err != nil {
		b.t.Fatal(err)
	}
	if o.Local == nil {
		o.Local = index
	}
	r, err := recall.New(o)
	if err != nil {
		b.t.Fatal(err)
	}
	stop := b.stop
	b.stop = func() {
		_, _ = r.Close(), index.Close()
		stop()
	}
	b.index, b.recaller = index, r
}

func (b *bench) recall(c Conversation, ask RecallAsk) Recalled {
	b.t.Helper()
	out, err := b.Recall(context.Background(), c, ask)
	if err != nil {
		b.t.Fatalf("Recall: %v", err)
	}
	return out
}

// texts are what the record holds, a reference of the server's in brackets.
func (b *bench) texts(c Conversation) []string {
	b.t.Helper()
	var out []string
	for _, m := range b.stored(c) {
		text := m.Content[0].Text
		if m.Synthetic && m.Kind == history.Reference && m.Role == history.User {
			text = "[" + text + "]"
		}
		out = append(out, text)
	}
	return out
}

func (b *bench) mustHave(c Conversation, want ...string) {
	b.t.Helper()
	if got := b.texts(c); !slices.Equal(got, want) {
		b.t.Errorf("the record holds %q, want %q", got, want)
	}
}

func TestAStoredRecallIsAReferenceOfTheServers(t *testing.T) {
	b := newBench(t, projection.Options{})
	b.recaller = recaller(notes)
	c := conversation(t, "ann")
	forged := said(history.User, "forged")
	forged.Kind, forged.Metadata = history.Reference, reference("a", &recall.Recalled{Retrievers: []recall.Status{{}}}).Metadata
	b.record(c, Turn{Messages: []history.Message{forged}})

	first := b.recall(c, RecallAsk{Query: " a ", Store: true})
	if first.Seq != 2 || first.Text != "notes of a" || first.ETag != b.stateOf(c).ETag() || first.NotStored != nil {
		t.Errorf("the first is %+v", first)
	}
	if again := b.recall(c, RecallAsk{Query: "a", Store: true}); again.Seq != 2 || again.Text != first.Text || len(again.Retrievers) != 1 || again.Retrievers[0] != first.Retrievers[0] {
		t.Errorf("a retry is answered %+v", again)
	}
	if other := b.recall(c, RecallAsk{Query: "b", Store: true}); other.Seq != 3 || other.Text != "notes of b" {
		t.Errorf("another query is answered %+v", other)
	}
	b.mustHave(c, "forged", "[notes of a]", "[notes of b]")
	if s := b.stateOf(c); s.Turns != 0 || s.Title != "" || s.Answered {
		t.Errorf("nobody said anything, and the state is %+v", s)
	}
	for _, full := range []bool{false, true} {
		if r := b.replay(c, Ask{Full: full}); len(r.Messages) != 3 || r.Report != (Report{}) {
			t.Errorf("full %t: a replay shows %d messages, report %+v", full, len(r.Messages), r.Report)
		}
	}
	b.record(c, Turn{Messages: []history.Message{said(history.User, "q"), said(history.Assistant, "x")}})
	if later := b.recall(c, RecallAsk{Query: "a", Store: true}); later.Seq != 6 {
		t.Errorf("after an answer it is not recalled anew: %+v", later)
	}
	// The query itself is in no metadata.
	for _, m := range b.stored(c) {
		if m.Synthetic && !bytes.Contains(m.Metadata, []byte(`"retrievers":[{"name":"m","status":"ok","hits":1}]`)) {
			t.Errorf("metadata %s", m.Metadata)
		}
	}
}

// Whatever is said of the first turn, the shape of the answer is the same.
func TestARecallOfNothing(t *testing.T) {
	b := newBench(t, projection.Options{})
	b.recaller = recaller(notes)
	c := conversation(t, "ann")
	skipped := func(what string, ask RecallAsk) {
		t.Helper()
		if got := b.recall(c, ask); !got.Skipped || got.Text != "" || len(got.Retrievers) != 1 || got.Seq != 0 {
			t.Errorf("%s: %+v", what, got)
		}
	}
	skipped("no conversation", RecallAsk{})
	skipped("no conversation, to be stored", RecallAsk{Store: true})
	b.record(c, Turn{Messages: []history.Message{said(history.User, "one"), said(history.User, " \n"), said(history.User, "two")}})
	for _, query := range []string{"", " \n\t"} {
		if got := b.recall(c, RecallAsk{Query: query}); got.Skipped || got.Text != "notes of two" {
			t.Errorf("the first turn: %+v", got)
		}
	}
	b.record(c, Turn{Messages: []history.Message{said(history.Assistant, "x"), said(history.User, "three")}})
	skipped("not the first turn", RecallAsk{Store: true})
	b.mustHave(c, "one", " \n", "two", "x", "three")
}

func TestRecallsOfTheSameAtTheSameTimeAreStoredOnce(t *testing.T) {
	b := newBench(t, projection.Options{})
	c := conversation(t, "ann")
	b.record(c, Turn{Messages: []history.Message{said(history.User, "q")}})
	const many = 6
	var asked sync.WaitGroup
	asked.Add(many)
	b.recaller = recaller(func(ctx context.Context, ask recall.Ask) recall.Recalled {
		asked.Done()
		asked.Wait() // all have looked, and have seen none
		return notes(ctx, ask)
	})
	var all sync.WaitGroup
	for range many {
		all.Go(func() {
			if got := b.recall(c, RecallAsk{Store: true}); got.Seq != 2 || got.Text != "notes of q" || got.NotStored != nil {
				t.Errorf("one is answered %+v", got)
			}
		})
	}
	all.Wait()
	b.mustHave(c, "q", "[notes of q]")
}

// meanwhile lets something happen while retrievers are asked, the first time.
func (b *bench) meanwhile(do func()) {
	ask, once := b.recaller, sync.Once{}
	b.recaller = recaller(func(ctx context.Context, q recall.Ask) recall.Recalled {
		out := ask.Recall(ctx, q)
		once.Do(do)
		return out
	})
}

func TestWhatHappensWhileRetrieversAreAsked(t *testing.T) {
	for _, tt := range []struct {
		name string
		ask  RecallAsk
		do   func(b *bench, c Conversation)
		err  error // that it was not stored for
		want []string
	}{
		{"nothing", RecallAsk{}, func(*bench, Conversation) {}, nil, []string{"q", "[notes of q]"}},
		{"more messages", RecallAsk{Query: "x"}, func(b *bench, c Conversation) {
			for range 50 {
				b.record(c, Turn{Messages: []history.Message{said(history.System, "s")}})
			}
		}, nil, append(append([]string{"q"}, slices.Repeat([]string{"s"}, 50)...), "[notes of x]")},
		{"an answer, when it was for the first turn", RecallAsk{}, func(b *bench, c Conversation) {
			b.record(c, Turn{Messages: []history.Message{said(history.Assistant, "a")}})
		}, history.ErrPrecondition, []string{"q", "a"}},
		{"an answer, when it was asked for", RecallAsk{Query: "x"}, func(b *bench, c Conversation) {
			b.record(c, Turn{Messages: []history.Message{said(history.Assistant, "a")}})
		}, nil, []string{"q", "a", "[notes of x]"}},
		{"a clear", RecallAsk{}, func(b *bench, c Conversation) {
			if err := b.Clear(context.Background(), c); err != nil {
				t.Error(err)
			}
		}, history.ErrGone, nil},
		{"a clear and another life", RecallAsk{}, func(b *bench, c Conversation) {
			if err := b.Clear(context.Background(), c); err != nil {
				t.Error(err)
			}
			b.record(c, Turn{Messages: []history.Message{said(history.User, "q")}})
		}, history.ErrGone, []string{"q"}},
		{"a rewind", RecallAsk{Query: "x"}, func(b *bench, c Conversation) {
			if _, err := b.Rewind(context.Background(), c, 0, nil); err != nil {
				t.Error(err)
			}
		}, history.ErrGone, []string{"q"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b := newBench(t, projection.Options{})
			c := conversation(t, "ann")
			b.record(c, Turn{Messages: []history.Message{said(history.User, "q")}})
			b.recaller = recaller(notes)
			b.meanwhile(func() { tt.do(b, c) })
			tt.ask.Store = true
			got := b.recall(c, tt.ask)
			if !errors.Is(got.NotStored, tt.err) || (got.Seq == 0) != (tt.err != nil) || !strings.HasPrefix(got.Text, "notes of ") {
				t.Errorf("answered %+v, want the text, and %v", got, tt.err)
			}
			b.mustHave(c, tt.want...)
		})
	}
}

// A conversation that begins meanwhile, as when its first message and the recall of it
// are sent together, takes it.
func TestARecallOfAConversationThatBeginsMeanwhile(t *testing.T) {
	b := newBench(t, projection.Options{})
	c := conversation(t, "ann")
	b.recaller = recaller(notes)
	b.meanwhile(func() { b.record(c, Turn{Messages: []history.Message{said(history.User, "q")}}) })
	if got := b.recall(c, RecallAsk{Query: "x", Store: true}); got.Seq != 2 {
		t.Errorf("answered %+v", got)
	}
	b.mustHave(c, "q", "[notes of x]")
	to := Conversation{c.Scope, "new"}
	if got := b.recall(to, RecallAsk{Query: "x", Store: true}); got.Seq != 1 {
		t.Errorf("answered %+v", got)
	}
	b.mustHave(to, "[notes of x]")
}

// moving is an engine whose conversations have moved on before each append.
type moving struct {
	Engine
	before func(scope identity.Scope, name string, batch history.Batch) error
}

type movingLog struct {
	history.Log
	before func(history.Batch) error
}

func (m moving) Log(scope identity.Scope, name string) history.Log {
	return movingLog{m.Engine.Log(scope, name), func(batch history.Batch) error { return m.before(scope, name, batch) }}
}

func (l movingLog) Append(ctx context.Context, batch history.Batch) (history.Receipt, error) {
	if err := l.before(batch); err != nil {
		return history.Receipt{}, err
	}
	return l.Log.Append(ctx, batch)
}

func TestARecallIsNotStoredForEverTried(t *testing.T) {
	b := newBench(t, projection.Options{})
	c := conversation(t, "ann")
	b.recaller = recaller(notes)
	real, tries := b.engine, 0
	b.engine = moving{real, func(scope identity.Scope, name string, batch history.Batch) error {
		if batch.IfMatch != nil {
			tries++
			_, err := real.Log(scope, name).Append(context.Background(), history.Batch{Messages: []history.Message{said(history.System, "s")}})
			return err
		}
		return nil
	}}
	got := b.recall(c, RecallAsk{Query: "x", Store: true})
	if !errors.Is(got.NotStored, history.ErrPrecondition) || got.Text == "" || tries != maxStores {
		t.Errorf("answered %+v after %d tries", got, tries)
	}
}

// What was found is answered, also where it cannot be stored.
func TestARecallThatCannotBeStoredIsAnswered(t *testing.T) {
	for _, class := range []error{history.ErrFull, history.ErrUnavailable, history.ErrBusy, history.ErrClosed} {
		b := newBench(t, projection.Options{})
		c := conversation(t, "ann")
		b.record(c, Turn{Messages: []history.Message{said(history.User, "q")}})
		b.recaller = recaller(notes)
		b.engine = moving{b.engine, func(identity.Scope, string, history.Batch) error { return fmt.Errorf("write: %w", class) }}
		if got := b.recall(c, RecallAsk{Store: true}); !errors.Is(got.NotStored, class) || got.Text != "notes of q" || got.Seq != 0 {
			t.Errorf("%v: answered %+v", class, got)
		}
		b.mustHave(c, "q")
	}
}

// What was cleared while it was being recalled is not brought back by being remembered.
func TestWhatIsClearedMeanwhileIsNotStored(t *testing.T) {
	const canary = "quetzal"
	for _, how := range []string{"clear", "clear all", "rewind"} {
		t.Run(how, func(t *testing.T) {
			b := newBench(t, projection.Options{})
			b.withRecall(recall.Options{})
			c := conversation(t, "ann")
			source := Conversation{c.Scope, "source"}
			b.record(source, Turn{Messages: []history.Message{said(history.User, "the "+canary+" is green")}})
			b.record(source, Turn{Messages: []history.Message{said(history.User, "and the other one blue")}})
			ask := RecallAsk{Query: "what colour is the " + canary, Store: true}
			found := ""
			first := b.recaller
			b.recaller = recaller(func(ctx context.Context, q recall.Ask) recall.Recalled {
				out := first.Recall(ctx, q)
				found += out.Text
				return out
			})
			b.meanwhile(func() {
				var err error
				switch how {
				case "clear":
					err = b.Clear(context.Background(), source)
				case "clear all":
					err = b.ClearAll(context.Background(), c.Scope)
				default:
					_, err = b.Rewind(context.Background(), source, 0, nil)
				}
				if err != nil {
					t.Error(err)
				}
			})
			got := b.recall(c, ask)
			if !strings.Contains(found, canary) {
				t.Fatalf("it was not found before: %q", found)
			}
			if got.Seq != 0 || strings.Contains(got.Text, canary) || b.stateOf(c).Exists() {
				t.Errorf("answered %+v, and the conversation is %+v", got, b.stateOf(c))
			}
			if how != "rewind" {
				b.mustNotHold(canary)
			}
		})
	}
}

// An index that cannot be read is one retriever that fails.
func TestAnIndexThatFailsIsAStatus(t *testing.T) {
	b := newBench(t, projection.Options{})
	b.withRecall(recall.Options{Local: failing{}})
	c := conversation(t, "ann")
	b.record(c, Turn{Messages: []history.Message{said(history.User, "what is already known?")}})
	for _, store := range []bool{false, true} {
		got := b.recall(c, RecallAsk{Store: store})
		if got.Text != "" || got.Skipped || got.NotStored != nil || len(got.Retrievers) != 1 || got.Retrievers[0].Status != recall.Failed {
			t.Errorf("answered %+v, want a status", got)
		}
	}
	b.mustHave(c, "what is already known?")
}

type failing struct{}

func (failing) Search(context.Context, identity.Scope, recall.Query) (recall.Results, error) {
	return recall.Results{}, errors.New("input/output error")
}

// Turns that a replay leaves out for its limit are shown nowhere, so they are recalled.
func TestWhatALimitLeavesOutIsRecalled(t *testing.T) {
	b := newBench(t, projection.Options{})
	b.withRecall(recall.Options{})
	c := conversation(t, "ann")
	b.record(c, Turn{Messages: []history.Message{said(history.User, "the lighthouse keeper is called Ferreira"), said(history.Assistant, "noted")}})
	for range 5 {
		b.record(c, Turn{Messages: []history.Message{said(history.User, strings.Repeat("filler ", 300)), said(history.Assistant, "noted")}})
	}
	query := RecallAsk{Query: "who is the lighthouse keeper?"}
	if got := b.recall(c, query); got.Text != "" {
		t.Errorf("what stands in the window is recalled: %s", got.Text)
	}
	query.For = &Ask{}
	if got := b.recall(c, query); got.Text != "" {
		t.Errorf("without a limit it is recalled: %s", got.Text)
	}
	query.For.MaxTokens = 800
	r := b.replay(c, *query.For)
	if r.Left < 2 || r.Report.DroppedMessages != r.Left {
		t.Fatalf("the replay leaves out up to %d: %+v", r.Left, r.Report)
	}
	if got := b.recall(c, query); !strings.Contains(got.Text, "Ferreira") {
		t.Errorf("what the limit left out is not recalled: %+v", got)
	}
}

func TestALimitCountsWhatGoesAhead(t *testing.T) {
	b := newBench(t, projection.Options{})
	c := conversation(t, "ann")
	for range 6 {
		b.record(c, Turn{Messages: []history.Message{said(history.User, strings.Repeat("filler ", 300)), said(history.Assistant, "noted")}})
	}
	all := b.replay(c, Ask{})
	ahead := Cost(strings.Repeat("note ", 400))
	for _, full := range []bool{false, true} {
		if r := b.replay(c, Ask{Full: full, Ahead: ahead}); r.Tokens != all.Tokens+ahead {
			t.Errorf("full %t: %d tokens with %d ahead, want %d", full, r.Tokens, ahead, all.Tokens+ahead)
		}
		limit := all.Tokens + ahead/2
		r := b.replay(c, Ask{Full: full, Ahead: ahead, MaxTokens: limit})
		if r.Tokens > limit || r.Report.DroppedTurns == 0 || r.Left == 0 {
			t.Errorf("full %t: %d tokens under a limit of %d, report %+v", full, r.Tokens, limit, r.Report)
		}
	}
	if Cost("") != 0 {
		t.Error("nothing costs something")
	}
}

// What was rewound is neither the question nor the end of looking for it.
func TestARecallLooksPastWhatWasRewound(t *testing.T) {
	b := newBench(t, projection.Options{})
	c := conversation(t, "ann")
	var asks atomic.Int64
	b.recaller = recaller(func(ctx context.Context, ask recall.Ask) recall.Recalled {
		asks.Add(1)
		return notes(ctx, ask)
	})
	b.record(c, Turn{Messages: []history.Message{said(history.User, "q")}})
	b.recall(c, RecallAsk{Query: "x", Store: true})
	b.record(c, Turn{Messages: []history.Message{said(history.Assistant, "a"), said(history.User, "r")}})
	if _, err := b.Rewind(t.Context(), c, 2, nil); err != nil {
		t.Fatal(err)
	}
	if got := b.recall(c, RecallAsk{Query: "x", Store: true}); got.Seq != 2 || asks.Load() != 1 {
		t.Errorf("after the rewind of the answer: %+v, asked %d times", got, asks.Load())
	}
	if _, err := b.Rewind(t.Context(), c, 1, nil); err != nil {
		t.Fatal(err)
	}
	if got := b.recall(c, RecallAsk{Query: "x", Store: true}); got.Seq != 5 {
		t.Errorf("after the rewind of the recall: %+v", got)
	}
	b.mustHave(c, "q", "[notes of x]", "a", "r", "[notes of x]")
}

func TestOnlyTheServersMarkIsTaken(t *testing.T) {
	m := reference("x", &recall.Recalled{Text: "t", Retrievers: []recall.Status{{Name: "m"}}})
	if _, ok := recalledIn(&m); !ok {
		t.Fatal("its own is not")
	}
	for name, change := range map[string]func(*history.Message){
		"a client's":       func(m *history.Message) { m.Synthetic = false },
		"imported":         func(m *history.Message) { m.Imported = true },
		"of a person":      func(m *history.Message) { m.Kind = history.Person },
		"without metadata": func(m *history.Message) { m.Metadata = nil },
		"other metadata":   func(m *history.Message) { m.Metadata = jsontext.Value(`{"recall":{"query":"x"}}`) },
		"more content":     func(m *history.Message) { m.Content = append(m.Content, history.Text("u")) },
	} {
		other := m
		other.Content = slices.Clone(m.Content)
		if change(&other); func() bool { _, ok := recalledIn(&other); return ok }() {
			t.Errorf("%s is taken", name)
		}
	}
}
