package recall

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"math/rand/v2"
	"path"
	"strings"
	"sync"
	"testing"

	"historyd/internal/durable"
	"historyd/internal/durable/crashfs"
	"historyd/internal/history"
	"historyd/internal/identity"
)

// A gate is a record that stops readers of one conversation after the first message.
type gate struct {
	Record
	conversation string
	once         sync.Once
	reading      chan struct{} // closed when somebody reads
	open         chan struct{} // closed to let them go on
}

type gatedLog struct {
	history.Log
	gate *gate
}

type gatedView struct {
	history.View
	gate *gate
}

func (g *gate) Log(scope identity.Scope, conversation string) history.Log {
	l := g.Record.Log(scope, conversation)
	if conversation == g.conversation {
		return gatedLog{l, g}
	}
	return l
}

func (l gatedLog) View(ctx context.Context) (history.View, error) {
	v, err := l.Log.View(ctx)
	return gatedView{v, l.gate}, err
}

func (v gatedView) Records(from, to int64) iter.Seq2[history.Record, error] {
	return func(yield func(history.Record, error) bool) {
		var all []history.Record
		for r, err := range v.View.Records(from, to) {
			if err == nil {
				all = append(all, r)
			}
		}
		for _, r := range all {
			if !yield(r, nil) {
				return
			}
			v.gate.once.Do(func() { close(v.gate.reading) })
			<-v.gate.open
		}
	}
}

func TestWhatWasReadBeforeAForgetIsNotIndexedAfterIt(t *testing.T) {
	s := newShelf(t)
	ann := scopeNamed(t, "ann")
	s.finish()
	g := &gate{Record: s.store, conversation: "gone", reading: make(chan struct{}), open: make(chan struct{})}
	s.open(g)
	s.say(ann, "gone", canary+" one", canary+" two")
	<-g.reading
	s.clear(ann, "gone")
	c, err := s.index.acquire(ann)
	if err != nil {
		t.Fatal(err)
	}
	done := s.index.catchUp(c, false)
	close(g.open)
	if done != nil {
		<-done
	}
	s.index.release(c)
	s.close()
	if names := onDisk(s.disk, canary); len(names) > 0 {
		t.Errorf("a word that was read before Forget: got it in %q, want it in no file", names)
	}
}

// After a restore of an older index, nobody has forgotten.
func TestAnotherLifeOfAConversationIsIndexedAnew(t *testing.T) {
	s := newShelf(t)
	ann := scopeNamed(t, "ann")
	s.say(ann, "a", "the old "+canary, "and more")
	s.say(ann, "dead", "also "+canary)
	s.finds(ann, Query{Text: "more"}, "a/2")
	s.close()
	for _, name := range []string{"a", "dead"} {
		if err := s.store.Log(ann, name).Clear(context.Background()); err != nil {
			t.Fatal(err)
		}
	}
	s.open(s.store)
	s.say(ann, "a", "the new harbour")
	s.finds(ann, Query{Text: "harbour"}, "a/1")
	s.finds(ann, Query{Text: canary})
	s.close()
	if names := onDisk(s.disk, canary); len(names) > 0 {
		t.Errorf("a word of an old life: got it in %q, want it in no file", names)
	}
}

// What cleared or rewound a record without the index knowing leaves the old life in it.
func TestAHitIsOneOfTheRecordAsItIsNow(t *testing.T) {
	s := newShelf(t)
	ann := scopeNamed(t, "ann")
	s.say(ann, "a", "the old zebra")
	s.say(ann, "b", "a zebra")
	s.finds(ann, Query{Text: "zebra", Sort: Newest}, "b/1", "a/1")
	log := s.store.Log(ann, "a")
	if err := log.Clear(context.Background()); err != nil {
		t.Fatal(err)
	}
	message := history.Message{Role: history.User, Kind: history.Person, Status: history.Complete, Content: []history.Block{history.Text("new")}}
	if _, err := log.Append(context.Background(), history.Batch{Messages: []history.Message{message}}); err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(hitPlaces(s.search(ann, Query{Text: "zebra"})), " "); got != "b/1" {
		t.Errorf("zebra, after a clear: got %q, want b/1 alone", got)
	}
	if _, err := s.store.Log(ann, "b").Rewind(context.Background(), history.Rewind{}); err != nil {
		t.Fatal(err)
	}
	if got := hitPlaces(s.search(ann, Query{Text: "zebra"})); len(got) > 0 {
		t.Errorf("zebra, after a rewind: got %q, want nothing", got)
	}
}

// While its record changes nothing of a conversation is indexed, and afterwards it is as it is then.
func TestWhatIsAboutToChangeIsKeptOut(t *testing.T) {
	for _, all := range []bool{false, true} {
		s := newShelf(t)
		ann := scopeNamed(t, "ann")
		s.say(ann, "a", "the old "+canary)
		s.say(ann, "b", "a harbour")
		s.finds(ann, Query{Text: canary}, "a/1")
		forget := func() (func(), error) { return s.index.Forget(t.Context(), ann, "a") }
		if all {
			forget = func() (func(), error) { return s.index.ForgetAll(t.Context(), ann) }
		}
		first, err := forget()
		if err != nil {
			t.Fatal(err)
		}
		second, err := forget()
		if err != nil {
			t.Fatal(err)
		}
		s.say(ann, "a", "more "+canary)
		for range 2 {
			for _, q := range []Query{{Text: canary}, {Text: canary, Conversation: "a"}} {
				if res := s.search(ann, q); len(res.Hits) > 0 || !res.Behind {
					t.Errorf("all %t, while the record is about to change: %q, behind %t", all, hitPlaces(res), res.Behind)
				}
			}
			if first != nil {
				first()
				first = nil
			}
		}
		if err := s.store.Log(ann, "a").Clear(t.Context()); err != nil {
			t.Fatal(err)
		}
		s.say(ann, "a", "a new harbour")
		s.say(ann, "c", "another harbour")
		second()
		s.finds(ann, Query{Text: canary})
		s.finds(ann, Query{Text: "harbour", Sort: Newest}, "c/1", "a/1", "b/1")
		s.close()
		if names := onDisk(s.disk, canary); len(names) > 0 {
			t.Errorf("all %t: got a word of before in %q, want it in no file", all, names)
		}
	}
}

// What is kept out for a change that was not made is let in again.
func TestAChangeThatIsNotMadeLeavesTheIndexAsItWas(t *testing.T) {
	s := newShelf(t)
	ann := scopeNamed(t, "ann")
	s.say(ann, "a", "a harbour")
	s.finds(ann, Query{Text: "harbour"}, "a/1")
	refused := errors.New("refused")
	if err := s.change(ann, "a", func(history.Log) error { return refused }); err != refused {
		t.Fatal(err)
	}
	s.finds(ann, Query{Text: "harbour"}, "a/1")
}

func TestAnIndexThatIsNotWantedAnyMoreIsDiscarded(t *testing.T) {
	s := newShelf(t)
	ann := scopeNamed(t, "ann")
	s.say(ann, "a", canary)
	s.finds(ann, Query{Text: canary}, "a/1")
	s.close()
	for range 2 {
		if err := Discard(s.disk); err != nil {
			t.Fatal(err)
		}
		s.disk = s.disk.Crash(rand.New(rand.NewPCG(1, 1)))
		if files := s.disk.Files(); len(files) > 0 {
			t.Errorf("discarded, and %d files are left", len(files))
		}
	}
}

func TestRewoundMessagesAreNotFound(t *testing.T) {
	s := newShelf(t)
	ann := scopeNamed(t, "ann")
	s.say(ann, "a", "an apple", "yes", "the wrong "+canary)
	s.finds(ann, Query{Text: canary}, "a/3")
	err := s.change(ann, "a", func(l history.Log) error {
		_, err := l.Rewind(context.Background(), history.Rewind{Through: 2})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	s.say(ann, "a", "the right word")
	s.finds(ann, Query{Text: canary})
	s.finds(ann, Query{Text: "apple"}, "a/1")
	s.finds(ann, Query{Text: "right"}, "a/4")
	s.close()
	if names := onDisk(s.disk, canary); len(names) > 0 {
		t.Errorf("a rewound word: got it in %q, want it in no file", names)
	}
}

func TestCallersShareNoFile(t *testing.T) {
	s := newShelf(t)
	words := map[string]string{"ann": "annsword", "bob": "bobsword"}
	for id, word := range words {
		s.say(scopeNamed(t, id), "same", word+" is secret")
		s.finds(scopeNamed(t, id), Query{Text: "secret"}, "same/1")
	}
	s.close()
	for id, word := range words {
		names := onDisk(s.disk, word)
		if len(names) != 1 || !strings.HasPrefix(names[0], "index/"+scopeNamed(t, id).Dir()+"/") {
			t.Errorf("the word of %s: got it in %q, want it in one file of that caller's directory", id, names)
		}
	}
	s.open(s.store)
	for id, word := range words {
		s.finds(scopeNamed(t, id), Query{Text: word}, "same/1")
		for other := range words {
			if other != id {
				s.finds(scopeNamed(t, other), Query{Text: word})
			}
		}
	}
}

// A file that got into another caller's directory is no segment there.
func TestASegmentOfAnotherCallerIsRefused(t *testing.T) {
	s := newShelf(t)
	ann, bob := scopeNamed(t, "ann"), scopeNamed(t, "bob")
	s.say(ann, "same", canary)
	s.say(bob, "same", "nothing")
	s.search(ann, Query{Text: canary})
	s.search(bob, Query{Text: "nothing"})
	s.close()
	from := onDisk(s.disk, canary)[0]
	if err := s.disk.Replace(from, "index/"+bob.Dir()+"/00000007.idx"); err != nil {
		t.Fatal(err)
	}
	s.open(s.store)
	s.finds(bob, Query{Text: canary})
	if names := onDisk(s.disk, canary); len(names) > 0 {
		t.Errorf("another caller's segment: got it kept as %q, want it removed", names)
	}
	s.finds(ann, Query{Text: canary}, "same/1")
}

// Whatever stands in the place of the index, it keeps neither a search from finding nor a clear from being complete.
func TestWhatStandsInPlaceOfTheIndexIsRemoved(t *testing.T) {
	s := newShelf(t)
	ann := scopeNamed(t, "ann")
	s.say(ann, "stays", "word")
	dir := path.Join(indexName, ann.Dir())
	for _, place := range []string{indexName, path.Dir(dir), dir} {
		for how, do := range map[string]func() error{
			"a search": func() error { return nil },
			"a clear":  func() error { return s.change(ann, "nothing", cleared) },
			"a clear of all": func() error {
				done, err := s.index.ForgetAll(t.Context(), ann)
				if err == nil {
					done()
				}
				return err
			},
		} {
			s.close()
			err := errors.Join(durable.RemoveAll(s.disk, place), durable.MkdirAll(s.disk, path.Dir(place)))
			f, cerr := s.disk.Create(place)
			if err := errors.Join(err, cerr, f.Close()); err != nil {
				t.Fatal(err)
			}
			s.open(s.store)
			if err := do(); err != nil {
				t.Errorf("a file at %s: %s: %v", place, how, err)
			}
			s.finds(ann, Query{Text: "word"}, "stays/1")
			s.reopen()
			if names := onDisk(s.disk, "word"); len(names) != 1 {
				t.Errorf("a file at %s: after %s the index is in %q", place, how, names)
			}
		}
	}
}

func TestOnlyWhatWasSaidIsIndexed(t *testing.T) {
	s := newShelf(t)
	ann := scopeNamed(t, "ann")
	withheld := history.Block{
		Type: history.ToolResult, CallID: "1", Plain: true, Content: []history.Block{history.Text("withheld " + canary)},
		Redacted: &history.Redaction{Category: "wallet", Reason: "policy"},
	}
	s.append(ann, "a", history.Batch{Messages: []history.Message{
		{Role: history.User, Kind: history.Person, Status: history.Complete, Content: []history.Block{history.Text("pay the harbour")}},
		{Role: history.Assistant, Status: history.Complete, Content: []history.Block{
			{Type: history.ThinkingBlock, Text: "I think " + canary},
			{Type: history.ToolCall, ID: "1", Name: "pay", Arguments: []byte(`{"to":"` + canary + `"}`)},
			{Type: history.ToolCall, ID: "2", Name: "look", Arguments: []byte(`{}`)},
			{Type: history.OpaqueBlock, Provider: "x", Opaque: []byte(`{"type":"` + canary + `"}`)},
			{Type: history.TextBlock, Text: "[image: its bytes are " + canary + "]", Synthetic: true},
		}},
		{Role: history.Tool, Status: history.Complete, Content: []history.Block{withheld}},
		{Role: history.Tool, Status: history.Complete, Content: []history.Block{
			{Type: history.ToolResult, CallID: "2", Plain: true, Content: []history.Block{history.Text("the result is a lighthouse")}},
		}},
		{Role: history.System, Status: history.Complete, Content: []history.Block{history.Text("be a pilot")}},
	}})
	s.finds(ann, Query{Text: "lighthouse"}, "a/4")
	s.finds(ann, Query{Text: "pilot"}, "a/5")
	s.finds(ann, Query{Text: canary})
	s.close()
	if names := onDisk(s.disk, canary); len(names) > 0 {
		t.Errorf("what was not said: got it in %q, want it in no file", names)
	}
}

func TestManyGoroutinesTouchSearchAndForget(t *testing.T) {
	s := newShelf(t)
	ctx := context.Background()
	var wg sync.WaitGroup
	for _, id := range []string{"ann", "bob"} {
		scope := scopeNamed(t, id)
		for _, name := range []string{"a", "b", "c"} {
			wg.Go(func() {
				for i := range 30 {
					s.say(scope, name, fmt.Sprintf("%s said apple %d in %s", id, i, name))
					if i%10 == 9 && name != "a" {
						s.clear(scope, name)
					}
				}
			})
			wg.Go(func() {
				for range 30 {
					res, err := s.index.Search(ctx, scope, Query{Text: "apple", Limit: 100})
					if err != nil {
						t.Error(err)
						return
					}
					for _, h := range res.Hits {
						if !strings.HasPrefix(h.Snippet, id) {
							t.Errorf("a hit of %s: %q", id, h.Snippet)
						}
					}
				}
			})
		}
	}
	wg.Wait()
	for _, id := range []string{"ann", "bob"} {
		res := s.search(scopeNamed(t, id), Query{Text: "apple", Limit: 100})
		if len(res.Hits) != 30 || res.Behind {
			t.Errorf("apples of %s: got %d, behind %v; want the 30 of conversation a", id, len(res.Hits), res.Behind)
		}
	}
}

func TestNothingIsDoneAfterClose(t *testing.T) {
	s := newShelf(t)
	ann := scopeNamed(t, "ann")
	s.close()
	s.index.Touch(ann, "a")
	if _, err := s.index.Search(context.Background(), ann, Query{Text: "a"}); !errors.Is(err, history.ErrClosed) {
		t.Errorf("Search after Close: got %v, want ErrClosed", err)
	}
	if _, err := s.index.Forget(context.Background(), ann, "a"); !errors.Is(err, history.ErrClosed) {
		t.Errorf("Forget after Close: got %v, want ErrClosed", err)
	}
	s.close()
}

func TestNothingIsReadAtStart(t *testing.T) {
	disk := crashfs.New()
	x, err := NewIndex(SearchOptions{FS: disk, Record: openStore(t, crashfs.New())})
	if err != nil {
		t.Fatal(err)
	}
	if n := disk.Ops(); n != 0 {
		t.Errorf("NewIndex: %d operations on the disk, want none", n)
	}
	if err := x.Close(); err != nil {
		t.Fatal(err)
	}
}
