package pipeline

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"historyd/internal/history"
	"historyd/internal/projection"
)

func (b *bench) fork(from, to Conversation, through int64) Forked {
	b.t.Helper()
	r, err := b.Fork(context.Background(), from, to, through)
	if err != nil {
		b.t.Fatalf("Fork: %v", err)
	}
	return r
}

// tree returns the names of all directories and files.
func (b *bench) tree() []string {
	b.t.Helper()
	var names []string
	var walk func(dir string)
	walk = func(dir string) {
		entries, err := b.disk.ReadDir(dir)
		if err != nil {
			b.t.Fatal(err)
		}
		for _, e := range entries {
			name := strings.TrimPrefix(dir+"/"+e.Name, "./")
			names = append(names, name)
			if e.Dir {
				walk(name)
			}
		}
	}
	walk(".")
	return names
}

func TestAForkIsACopy(t *testing.T) {
	b := newBench(t, projection.Options{Tools: []projection.Rule{{Match: "wallet", Category: "wallet"}}})
	ann := conversation(t, "ann")
	to, next := Conversation{ann.Scope, "copy"}, Conversation{ann.Scope, "next"}
	first := said(history.User, "first")
	first.ClientID, first.Metadata, first.Extra = "mine", []byte(`{"k":1.50}`), []byte(`{"x":[1e400]}`)
	for i := range 12 {
		b.record(ann, Turn{Messages: []history.Message{first, with(said(history.User, fmt.Sprint(i)), image([]byte{byte(i)})), calls("w", "wallet", `{"a":"value"}`), answers("w", "x"), said(history.Assistant, "ok")}})
	}
	before := b.stored(ann)
	receipt := b.fork(ann, to, 30)
	if receipt.Added != 30 || receipt.LastSeq != 30 {
		t.Errorf("receipt %+v", receipt)
	}
	got := b.stored(to)
	ids := map[string]bool{}
	for i, m := range got {
		want := before[i]
		if f := m.Forked; f == nil || *f != (history.Forked{Conversation: "default", ID: want.ID, Seq: want.Seq}) {
			t.Errorf("message %d is a copy of %+v", i, f)
		}
		if m.ID == "" || m.ID == want.ID || ids[m.ID] || m.Seq != want.Seq {
			t.Errorf("message %d has id %q and seq %d", i, m.ID, m.Seq)
		}
		ids[m.ID] = true
		m.ID, m.Forked = want.ID, nil
		if got, want := string(history.AppendMessage(nil, &m)), string(history.AppendMessage(nil, &want)); got != want {
			t.Errorf("message %d\n got %s\nwant %s", i, got, want)
		}
	}
	for i := range 12 {
		_, err := b.Attachment(context.Background(), to, history.AttachmentName([]byte{byte(i)}))
		if i < 6 && err != nil || i >= 6 && !errors.Is(err, history.ErrNotFound) {
			t.Errorf("attachment %d: %v", i, err)
		}
	}
	b.fork(to, next, 0)
	for i, m := range b.stored(next) {
		if want := (history.Forked{Conversation: "copy", ID: got[i].ID, Seq: got[i].Seq}); *m.Forked != want {
			t.Errorf("a copy of a copy is of %+v, want %+v", *m.Forked, want)
		}
	}
	if now := b.stored(ann); !slices.Equal(lines(now), lines(before)) {
		t.Error("what was forked has changed")
	}
	if n := b.counted("historyd_messages_total", "fork"); n != 60 {
		t.Errorf("%v messages were counted", n)
	}
}

func TestAForkLeavesOutWhatWasRewound(t *testing.T) {
	b := newBench(t, projection.Options{})
	ann := conversation(t, "ann")
	for i := range 6 {
		b.record(ann, Turn{Messages: []history.Message{said(history.User, fmt.Sprint(i)), said(history.Assistant, "ok")}})
	}
	etag := b.replay(ann, Ask{}).State.ETag()
	if _, err := b.Rewind(context.Background(), ann, 4, func(string) bool { return false }); !errors.Is(err, history.ErrPrecondition) {
		t.Errorf("a condition that does not hold: %v", err)
	}
	if _, err := b.Rewind(context.Background(), ann, 4, func(is string) bool { return is == etag }); err != nil {
		t.Fatal(err)
	}
	b.record(ann, Turn{Messages: []history.Message{said(history.User, "other")}})
	b.fork(ann, Conversation{ann.Scope, "copy"}, 0)
	b.fork(ann, Conversation{ann.Scope, "short"}, 8) // the message there is rewound
	for name, want := range map[string]string{"copy": "0 ok 1 ok other", "short": "0 ok 1 ok"} {
		var texts []string
		for _, m := range b.stored(Conversation{ann.Scope, name}) {
			texts = append(texts, m.Content[0].Text)
		}
		if got := strings.Join(texts, " "); got != want {
			t.Errorf("%s has %q, want %q", name, got, want)
		}
	}
	if _, err := b.Rewind(context.Background(), ann, 0, nil); err != nil {
		t.Fatal(err)
	}
	before := b.tree()
	for _, through := range []int64{0, 3} {
		if _, err := b.Fork(context.Background(), ann, Conversation{ann.Scope, "empty"}, through); !errors.Is(err, history.ErrNotFound) {
			t.Errorf("a fork of nothing: %v", err)
		}
	}
	if got := b.tree(); !slices.Equal(got, before) {
		t.Errorf("a fork of nothing leaves %q, there was %q", got, before)
	}
}

// TestAForkRemembersItsTools holds that a result that comes late for a call which was
// copied is judged as it would have been where the call was made.
func TestAForkRemembersItsTools(t *testing.T) {
	const canary = "canary-fork-3"
	b := newBench(t, projection.Options{UnknownTools: "keep", Withhold: []projection.Withhold{{Category: "bank", Results: true}}})
	ann := conversation(t, "ann")
	for i, category := range []string{"misc", "bank", "misc"} {
		b.record(ann, Turn{Messages: []history.Message{calls(fmt.Sprint("c", i), "transfer", `{}`)}, Categories: map[string]string{"transfer": category, "look": "misc"}})
	}
	b.record(ann, Turn{Messages: []history.Message{calls("l", "look", `{}`)}, Categories: map[string]string{"look": "misc"}})
	to := Conversation{ann.Scope, "copy"}
	b.fork(ann, to, 0)
	b.record(to, Turn{Messages: []history.Message{answers("c1", canary)}})
	b.record(to, Turn{Messages: []history.Message{answers("l", "seen")}})
	b.mustNotHold(canary)
	if got := b.stored(to)[5].Content[0].Content[0].Text; got != "seen" {
		t.Errorf("got %q", got)
	}
}

func TestForksThatCannotBe(t *testing.T) {
	b := newBench(t, projection.Options{})
	ann, ctx := conversation(t, "ann"), context.Background()
	full, none := Conversation{ann.Scope, "full"}, Conversation{ann.Scope, "none"}
	for _, c := range []Conversation{ann, full} {
		b.record(c, Turn{Messages: []history.Message{said(history.User, "hi")}})
	}
	for _, tt := range []struct {
		name     string
		from, to Conversation
		through  int64
		want     error
	}{
		{"of nothing", none, Conversation{ann.Scope, "copy"}, 0, history.ErrNotFound},
		{"of nothing to itself", none, none, 0, history.ErrNotFound},
		{"onto messages", ann, full, 0, history.ErrNotEmpty},
		{"to itself", ann, ann, 0, history.ErrNotEmpty},
		{"past the end", ann, none, 2, history.ErrNoSuchMessage},
		{"before the beginning", ann, none, -1, history.ErrNoSuchMessage},
		{"of another caller's", Conversation{conversation(t, "bob").Scope, "default"}, none, 0, history.ErrNotFound},
	} {
		if _, err := b.Fork(ctx, tt.from, tt.to, tt.through); !errors.Is(err, tt.want) {
			t.Errorf("%s: %v, want %v", tt.name, err, tt.want)
		}
	}
	ended, cancel := context.WithCancel(ctx)
	cancel()
	if _, err := b.Fork(ended, ann, none, 0); !errors.Is(err, context.Canceled) {
		t.Errorf("nobody waits: %v", err)
	}
	if st, err := b.State(ctx, none); err != nil || st.Exists() {
		t.Errorf("State = %+v, %v", st, err)
	}
	if n := b.counted("historyd_forks_total", "refused"); n != 7 {
		t.Errorf("%v refused forks were counted", n)
	}
	for through, want := range map[int64]error{7: history.ErrNoSuchMessage, -1: history.ErrNoSuchMessage} {
		if _, err := b.Rewind(ctx, ann, through, nil); !errors.Is(err, want) {
			t.Errorf("Rewind(%d) = %v, want %v", through, err, want)
		}
	}
	if _, err := b.Rewind(ctx, none, 0, nil); !errors.Is(err, history.ErrNotFound) {
		t.Errorf("Rewind of nothing: %v", err)
	}
}

// A fork goes on where attachments are lost: texts say so, and Mended tells where.
func TestLostAttachmentsEndNoFork(t *testing.T) {
	b := newBench(t, projection.Options{Tools: []projection.Rule{{Match: "look", Category: "misc"}}})
	ann, to, next := conversation(t, "ann"), Conversation{conversation(t, "ann").Scope, "copy"}, Conversation{conversation(t, "ann").Scope, "next"}
	lost, gone, kept := []byte("lost"), []byte("gone"), []byte("kept")
	picture := image(lost)
	picture.Filename, picture.Extra = "cat.png", []byte(`{"detail":"low"}`)
	b.record(ann, Turn{Messages: []history.Message{
		said(history.User, "hi"), with(said(history.User, "see"), picture, image(kept)), calls("c", "look", "{}"), shows("c", image(gone), image(lost)), with(said(history.Assistant, "so"), image(lost)),
	}})
	b.corrupt(lost)
	b.remove(gone)
	done := b.fork(ann, to, 0)
	if done.Added != 5 || done.MendedTotal != 2 || len(done.Mended) != 2 || done.Mended[0].Seq != 2 || done.Mended[1].Seq != 4 || done.Mended[0].Code != "missing_attachment" {
		t.Errorf("the fork tells %+v", done)
	}
	got := b.stored(to)
	const text = "[image: its bytes are missing]"
	for _, block := range []history.Block{got[1].Content[1], got[3].Content[0].Content[0], got[3].Content[0].Content[1], got[4].Content[1]} {
		if block.Type != history.TextBlock || block.Text != text || !block.Synthetic || block.Attachment != "" {
			t.Errorf("in the place of an image stands %+v", block)
		}
	}
	if want := `{"missing":{"type":"image","media_type":"image/png","attachment":"` + picture.Attachment + `","filename":"cat.png","extra":{"detail":"low"}}}`; string(got[1].Content[1].Extra) != want {
		t.Errorf("beside it stands %s, want %s", got[1].Content[1].Extra, want)
	}
	if a, err := b.Attachment(t.Context(), to, image(kept).Attachment); err != nil || string(a.Data) != "kept" || a.MediaType != "image/png" {
		t.Errorf("the other attachment: %+v, %v", a, err)
	}
	if before := b.stored(ann)[1].Content[1]; before.Attachment != picture.Attachment {
		t.Errorf("the source has changed: %+v", before)
	}
	if again := b.fork(to, next, 0); again.MendedTotal != 0 || again.Added != 5 {
		t.Errorf("the fork of the fork tells %+v", again)
	}
	if quiet := b.fork(ann, Conversation{ann.Scope, "first"}, 1); quiet.Mended != nil {
		t.Errorf("a fork up to the first message tells %+v", quiet)
	}
	// Nobody said it: what was said is the rest.
	b.record(to, Turn{Messages: []history.Message{said(history.User, "last")}})
	for _, m := range b.replay(to, Ask{}).Messages {
		if strings.Contains(string(history.AppendMessage(nil, &m)), text) {
			t.Errorf("a replay of what was said has %+v", m)
		}
	}
	full := ""
	for _, m := range b.replay(to, Ask{Full: true}).Messages {
		full += string(history.AppendMessage(nil, &m))
	}
	if n := strings.Count(full, text); n != 4 {
		t.Errorf("a replay in full says it %d times", n)
	}
}

// remove takes the attachment of those bytes away.
func (b *bench) remove(data []byte) {
	b.t.Helper()
	digits, _ := history.AttachmentHash(history.AttachmentName(data))
	for name := range b.disk.Files() {
		if strings.HasSuffix(name, "attachments/"+digits) {
			b.must(b.disk.Remove(name))
			return
		}
	}
	b.t.Fatal("there is no such attachment")
}

// corrupt alters the attachment of those bytes.
func (b *bench) corrupt(data []byte) {
	b.t.Helper()
	digits, _ := history.AttachmentHash(history.AttachmentName(data))
	for name := range b.disk.Files() {
		if strings.HasSuffix(name, "attachments/"+digits) {
			b.disk.Corrupt(name, func(was []byte) []byte { return append(was[1:], '!') })
			return
		}
	}
	b.t.Fatal("there is no such attachment")
}
