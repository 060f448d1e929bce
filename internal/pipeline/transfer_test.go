package pipeline

import (
	"context"
	"encoding/json/jsontext"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"testing"
	"time"

	"historyd/internal/history"
	"historyd/internal/projection"
)

// listed is a source of messages that are at hand.
type listed struct {
	messages    []history.Message
	attachments []history.Attachment
	faults      *history.Faults
	categories  map[string]string
	created     time.Time
}

func (l *listed) Messages() iter.Seq2[history.Message, error] {
	return func(yield func(history.Message, error) bool) {
		for i, m := range l.messages {
			m.Seq = int64(i)
			if !yield(m, nil) {
				return
			}
		}
	}
}

func (l *listed) Attachments() iter.Seq2[history.Attachment, error] {
	return func(yield func(history.Attachment, error) bool) {
		for _, a := range l.attachments {
			if !yield(a, nil) {
				return
			}
		}
	}
}

func (l *listed) Faults() *history.Faults       { return l.faults }
func (l *listed) Categories() map[string]string { return l.categories }
func (l *listed) CreatedAt() time.Time          { return l.created }

func list(messages ...history.Message) *listed { return &listed{messages: messages} }

func (b *bench) load(c Conversation, d Document) Imported {
	b.t.Helper()
	done, err := b.Import(context.Background(), c, d)
	if err != nil {
		b.t.Fatalf("Import: %v", err)
	}
	return done
}

// dump returns the messages of an export.
func (b *bench) dump(c Conversation) ([]history.Message, history.State) {
	b.t.Helper()
	e, err := b.Export(context.Background(), c)
	if err != nil {
		b.t.Fatalf("Export: %v", err)
	}
	defer e.Close()
	var out []history.Message
	for r, err := range e.Records(context.Background()) {
		if err != nil {
			b.t.Fatal(err)
		}
		m, err := e.Decode(r)
		if err != nil {
			b.t.Fatal(err)
		}
		out = append(out, m)
	}
	return out, e.State
}

func sample() []history.Message {
	var out []history.Message
	for i := range 24 {
		id := fmt.Sprintf("call_%d", i%2) // ids repeat, as many runners have it
		out = append(out, said(history.User, fmt.Sprintf("question %d", i%3)), calls(id, "look", `{"n":1.0}`), answers(id, "found"), said(history.Assistant, "ok"))
	}
	return out
}

func TestImportAddsOnlyWhatIsNew(t *testing.T) {
	b := newBench(t, projection.Options{})
	c := conversation(t, "ann")
	doc := sample()
	for i := range doc {
		doc[i].Imported = true
	}
	first := b.load(c, Document{Mode: history.Extend, Source: list(doc[:30]...)})
	if first.Added != 30 || len(first.Skipped) != 0 || first.LastSeq != 30 || first.Changed["redacted"] == 0 {
		t.Errorf("first: %+v", first)
	}
	again := b.load(c, Document{Mode: history.Extend, Source: list(doc[:30]...)})
	if again.Added != 0 || len(again.Skipped) != 30 || again.LastSeq != 30 || again.Skipped[7].Index != 7 {
		t.Errorf("again: %+v", again)
	}
	longer := b.load(c, Document{Mode: history.Extend, Source: list(doc...)})
	if longer.Added != int64(len(doc)-30) || len(longer.Skipped) != 30 {
		t.Errorf("longer: %+v", longer)
	}
	if part := b.load(c, Document{Mode: history.Extend, Source: list(doc[4:]...)}); part.Added != 0 {
		t.Errorf("a part of it: %d messages added", part.Added)
	}
	seen := map[string]bool{}
	for _, m := range b.stored(c) {
		if seen[m.ID] || !strings.HasPrefix(m.ID, "imp_") || len(m.ID) != 36 {
			t.Errorf("id %q", m.ID)
		}
		seen[m.ID] = true
	}
	if _, err := b.Import(context.Background(), c, Document{Mode: history.Create, Source: list(doc...)}); !errors.Is(err, history.ErrNotEmpty) {
		t.Errorf("create: %v", err)
	}
	if done := b.load(c, Document{Mode: history.Replace, Source: list(doc[:1]...)}); done.LastSeq != 1 || len(b.stored(c)) != 1 {
		t.Errorf("replace: %+v", done)
	}
}

func TestWhatAnImportSkipsIsCountedAsNothing(t *testing.T) {
	b := newBench(t, projection.Options{})
	c := conversation(t, "ann")
	doc := []history.Message{calls("c1", "f", `{"a":"value"}`), answers("c1", "found"), said(history.User, "hi")}
	more := append(slices.Clone(doc), calls("c2", "f", `{"b":"value"}`))
	b.load(c, Document{Mode: history.Create, Source: list(doc...)})
	again := b.load(c, Document{Mode: history.Extend, Source: list(doc...), Key: "k"})
	if len(again.Skipped) != 3 || again.Changed != nil {
		t.Errorf("again: %+v, want 3 skipped and no change", again)
	}
	if longer := b.load(c, Document{Mode: history.Extend, Source: list(more...)}); longer.Added != 1 || longer.Changed["redacted"] != 1 {
		t.Errorf("longer: %+v, want 1 added and changed", longer)
	}
	b.load(c, Document{Mode: history.Extend, Source: list(doc...), Key: "k"})
	var bytes int
	for _, m := range b.stored(c) {
		m.Seq = 0
		bytes += len(history.AppendMessage(nil, &m)) + 1
	}
	for _, tt := range []struct {
		metric, label string
		want          float64
	}{
		{"historyd_messages_total", "import", 4},
		{"historyd_redactions_total", "unknown", 3},
		{"historyd_imports_total", "ok", 3},
		{"historyd_imports_total", "replayed", 1},
	} {
		if got := b.counted(tt.metric, tt.label); got != tt.want {
			t.Errorf("%s of %s is %v, want %v", tt.metric, tt.label, got, tt.want)
		}
	}
	// What the record adds to a message is not counted.
	if got := b.counted("historyd_message_bytes_total", "import"); got > float64(bytes) || got < float64(bytes)/2 {
		t.Errorf("%v bytes were counted, %d are stored", got, bytes)
	}
}

func TestWhatWasExportedComesBack(t *testing.T) {
	b := newBench(t, projection.Options{UnknownTools: "keep"})
	ann, bob := conversation(t, "ann"), conversation(t, "bob")
	msgs := sample()
	msgs[0].Metadata = jsontext.Value(`{"b":1,"a":[]}`)
	msgs[1].Extra = jsontext.Value(`{"x":1e400}`)
	for i := 0; i < len(msgs); i += 4 {
		b.record(ann, Turn{Messages: msgs[i : i+4]})
	}
	out, state := b.dump(ann)
	in := slices.Clone(out)
	for i := range in {
		in[i].Imported = true
	}
	b.load(bob, Document{Mode: history.Create, Source: &listed{messages: in, created: state.CreatedAt}})
	back, now := b.dump(bob)
	for i := range out {
		out[i].Imported = true
		if got, want := string(history.AppendMessage(nil, &back[i])), string(history.AppendMessage(nil, &out[i])); got != want {
			t.Errorf("message %d\n got %s\nwant %s", i, got, want)
		}
	}
	if len(back) != len(out) || !now.CreatedAt.Equal(state.CreatedAt) {
		t.Errorf("%d of %d messages, created %s of %s", len(back), len(out), now.CreatedAt, state.CreatedAt)
	}
	one, two := b.replay(ann, Ask{}), b.replay(bob, Ask{})
	if one.Summary == nil || two.Summary == nil || one.Summary.Text != two.Summary.Text || one.Tokens != two.Tokens {
		t.Errorf("summaries differ: %+v, %+v", one.Summary, two.Summary)
	}
}

func TestFaultsOfADocumentAreAllToldOrRepaired(t *testing.T) {
	b := newBench(t, projection.Options{UnknownTools: "keep"})
	c := conversation(t, "ann")
	twice := said(history.User, "again")
	twice.ID = "same"
	doc := Document{Mode: history.Create, Source: list(twice, answers("nobody", "orphan"), twice, said(history.Assistant, "end"))}
	_, err := b.Import(context.Background(), c, doc)
	var faults *history.Faults
	if !errors.As(err, &faults) || len(faults.List) != 2 || faults.List[0].Path != "messages[1].content[0]" || faults.List[1].Path != "messages[2]" {
		t.Fatalf("Import: %v", err)
	}
	if st, _ := b.State(context.Background(), c); st.Exists() {
		t.Error("something was stored")
	}
	doc.Repair = true
	done := b.load(c, doc)
	if done.Added != 2 || len(done.Repaired) != 2 || done.Repaired[0].Code != "orphan_result" || done.Repaired[1].Code != "duplicate_id" {
		t.Errorf("repaired: %+v", done)
	}
	doc.Mode, doc.Key = history.Extend, "k"
	done = b.load(c, doc)
	if want := []Skipped{{0, "same"}, {3, done.Skipped[1].ID}}; !slices.Equal(done.Skipped, want) {
		t.Errorf("skipped %+v, want %+v", done.Skipped, want)
	}
}

func TestAKeyedImportIsReplayed(t *testing.T) {
	b := newBench(t, projection.Options{})
	c := conversation(t, "ann")
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	msgs := []history.Message{said(history.User, "hi"), calls("c", "f", `{"a":"bcdef"}`), answers("x", "y")}
	msgs[0].At = at
	doc := Document{Mode: history.Create, Key: "k", Repair: true, Source: list(msgs...)}
	first := b.load(c, doc)
	b.restart(projection.Options{})
	again := b.load(c, doc)
	if !again.Replayed || again.Added != first.Added || again.LastSeq != first.LastSeq || !slices.Equal(again.Repaired, first.Repaired) ||
		again.Changed["redacted"] != 1 || first.Changed["redacted"] != 1 {
		t.Errorf("again %+v\nfirst %+v", again, first)
	}
	if got := b.stored(c)[0].At; !got.Equal(at) {
		t.Errorf("at %s, want %s", got, at)
	}
	doc.Source = list(msgs[:1]...)
	if _, err := b.Import(context.Background(), c, doc); !errors.Is(err, history.ErrKeyMismatch) {
		t.Errorf("another document: %v", err)
	}
}

func TestDerivedIDsNeverMeetGivenOnes(t *testing.T) {
	b := newBench(t, projection.Options{})
	ann, bob := conversation(t, "ann"), conversation(t, "bob")
	b.load(ann, Document{Mode: history.Create, Source: list(said(history.User, "a"))})
	two := []history.Message{said(history.User, "a"), said(history.User, "a")}
	two[1].ID = b.stored(ann)[0].ID
	b.load(bob, Document{Mode: history.Create, Source: list(two...)})
	if got := b.stored(bob); got[0].ID == got[1].ID || got[1].ID != two[1].ID {
		t.Errorf("two messages have the ids %s and %s", got[0].ID, got[1].ID)
	}
}

func TestExportOfNothingIsNotFound(t *testing.T) {
	b := newBench(t, projection.Options{})
	if _, err := b.Export(context.Background(), conversation(t, "ann")); !errors.Is(err, history.ErrNotFound) {
		t.Errorf("Export: %v", err)
	}
}

func TestAnImportOfNothingLeavesNothing(t *testing.T) {
	b := newBench(t, projection.Options{})
	ann, ctx := conversation(t, "ann"), context.Background()
	b.record(ann, Turn{Messages: []history.Message{said(history.User, "hi")}})
	before := b.tree()
	unnamed := &listed{attachments: []history.Attachment{{Name: history.AttachmentName([]byte("x")), Data: []byte("x")}}}
	for name, source := range map[string]*listed{"none": list(), "repaired": list(answers("c", "x")), "attachment": unnamed} {
		for _, mode := range []history.ImportMode{history.Create, history.Extend, history.Replace} {
			for _, key := range []string{"", "k"} {
				done, err := b.Import(ctx, Conversation{ann.Scope, name}, Document{Source: source, Mode: mode, Repair: true, Key: key})
				var faults *history.Faults
				if refused := errors.As(err, &faults); refused != (mode == history.Replace) || !refused && err != nil || done.Added != 0 {
					t.Errorf("%s, %s: %+v, %v", name, mode, done, err)
				}
			}
		}
		if st, err := b.State(ctx, Conversation{ann.Scope, name}); err != nil || st.Exists() {
			t.Errorf("State = %+v, %v", st, err)
		}
	}
	if got := b.tree(); !slices.Equal(got, before) {
		t.Errorf("left %q, there was %q", got, before)
	}
	b.restart(projection.Options{})
	if got := b.tree(); !slices.Equal(got, before) {
		t.Errorf("after a restart %q, there was %q", got, before)
	}
}
