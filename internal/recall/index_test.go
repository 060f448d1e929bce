package recall

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"historyd/internal/durable"
	"historyd/internal/durable/crashfs"
	"historyd/internal/history"
	"historyd/internal/identity"
	"historyd/internal/store"
)

// A shelf is a record and an index of it, each with a disk of its own, so that faults of one are not those of the
// other.
type shelf struct {
	t     testing.TB
	disk  *crashfs.FS // of the index
	store *store.Store
	index *Index
}

func newShelf(t testing.TB) *shelf {
	s := &shelf{t: t, disk: crashfs.New(), store: openStore(t, crashfs.New())}
	s.open(s.store)
	return s
}

func openStore(t testing.TB, fsys durable.FS) *store.Store {
	t.Helper()
	var mu sync.Mutex
	id := 0
	tick := func() int {
		mu.Lock()
		defer mu.Unlock()
		id++
		return id
	}
	s, err := store.Open(store.Options{
		FS:    fsys,
		NewID: func(string) string { return fmt.Sprintf("01%024d", tick()) },
		Now:   func() time.Time { return time.Unix(1_900_000_000+int64(tick()), 0) },
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

// open begins a life of the index.
func (s *shelf) open(from Record) {
	s.t.Helper()
	s.begin(SearchOptions{Record: from})
}

func (s *shelf) begin(o SearchOptions) {
	s.t.Helper()
	o.FS = s.disk
	x, err := NewIndex(o)
	if err != nil {
		s.t.Fatal(err)
	}
	s.index = x
	s.t.Cleanup(func() { x.Close() })
}

func (s *shelf) close() {
	s.t.Helper()
	if err := s.index.Close(); err != nil {
		s.t.Fatalf("Close: %v", err)
	}
}

// reopen ends the index in peace and begins it again.
func (s *shelf) reopen() {
	s.t.Helper()
	s.close()
	s.open(s.store)
}

// reopenWith begins it again with other options.
func (s *shelf) reopenWith(o SearchOptions) *Index {
	s.t.Helper()
	s.close()
	o.Record = s.store
	s.begin(o)
	return s.index
}

func scopeNamed(t testing.TB, id string) identity.Scope {
	t.Helper()
	c, err := identity.NewCaller("operator", id, "", "")
	if err != nil {
		t.Fatal(err)
	}
	return c.Scope()
}

// say appends texts by turns of user and assistant, and touches.
func (s *shelf) say(scope identity.Scope, conversation string, texts ...string) {
	s.t.Helper()
	var batch history.Batch
	for i, text := range texts {
		m := history.Message{Role: history.User, Kind: history.Person, Status: history.Complete, Content: []history.Block{history.Text(text)}}
		if i%2 == 1 {
			m.Role, m.Kind = history.Assistant, ""
		}
		batch.Messages = append(batch.Messages, m)
	}
	s.append(scope, conversation, batch)
}

func (s *shelf) append(scope identity.Scope, conversation string, batch history.Batch) {
	s.t.Helper()
	if _, err := s.store.Log(scope, conversation).Append(context.Background(), batch); err != nil {
		s.t.Fatal(err)
	}
	s.index.Touch(scope, conversation)
}

func (s *shelf) search(scope identity.Scope, q Query) Results {
	s.t.Helper()
	res, err := s.index.Search(context.Background(), scope, q)
	if err != nil {
		s.t.Fatalf("Search(%+v): %v", q, err)
	}
	return res
}

// finds compares what a query finds, as "conversation/seq", best first.
func (s *shelf) finds(scope identity.Scope, q Query, want ...string) {
	s.t.Helper()
	res := s.search(scope, q)
	if got := hitPlaces(res); !slices.Equal(got, want) {
		s.t.Errorf("Search(%q, sort %q): got %q, want %q", q.Text, q.Sort, got, want)
	}
	if res.Behind {
		s.t.Errorf("Search(%q): behind, want everything searched", q.Text)
	}
}

func hitPlaces(res Results) []string {
	var got []string
	for _, h := range res.Hits {
		got = append(got, fmt.Sprintf("%s/%d", h.Conversation, h.Seq))
	}
	return got
}

// change forgets a conversation and changes its record, as pipeline does.
func (s *shelf) change(scope identity.Scope, conversation string, how func(history.Log) error) error {
	done, err := s.index.Forget(context.Background(), scope, conversation)
	if err != nil {
		return err
	}
	defer done()
	return how(s.store.Log(scope, conversation))
}

func cleared(l history.Log) error { return l.Clear(context.Background()) }

func (s *shelf) clear(scope identity.Scope, conversation string) {
	s.t.Helper()
	if err := s.change(scope, conversation, cleared); err != nil {
		s.t.Fatal(err)
	}
}

// onDisk lists the files of the index that hold a word.
func onDisk(disk *crashfs.FS, word string) []string {
	var names []string
	for name, data := range disk.Files() {
		if bytes.Contains(data, []byte(word)) {
			names = append(names, name)
		}
	}
	return names
}

func TestSearchFindsWhatWasSaidAndNothingElse(t *testing.T) {
	s := newShelf(t)
	ann := scopeNamed(t, "ann")
	s.say(ann, "trip", "Where is the harbour of Valparaíso?", "The harbour lies north of the old town.", "Thanks, and the station?")
	s.say(ann, "food", "Which bread keeps longest?", "Rye bread keeps for a week.")
	for _, tt := range []struct {
		name, text string
		want       []string
	}{
		{"a word", "station", []string{"trip/3"}},
		{"case and accents do not matter", "VALPARAISO", []string{"trip/1"}},
		{"any of the words, the more the better", "harbour old town", []string{"trip/2", "trip/1"}},
		{"a phrase", `"old town"`, []string{"trip/2"}},
		{"a phrase in another order", `"town old"`, nil},
		{"a phrase over the end of a message", `"town thanks"`, nil},
		{"a prefix", "stat*", []string{"trip/3"}},
		{"an excluded word", "bread -rye", []string{"food/1"}},
		{"an excluded phrase", `harbour -"old town"`, []string{"trip/1"}},
		{"an excluded prefix", "bread -wee*", []string{"food/1"}},
		{"a phrase and a word", `"rye bread" harbour`, []string{"food/2"}},
		{"what nobody said", "submarine", nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s.t = t
			s.finds(ann, Query{Text: tt.text}, tt.want...)
			s.finds(scopeNamed(t, "bob"), Query{Text: tt.text})
		})
	}
	s.t = t
	s.reopen()
	s.finds(ann, Query{Text: `"old town"`}, "trip/2")
	s.finds(ann, Query{Text: "stat*"}, "trip/3")
	if n := s.search(ann, Query{Text: "bread"}).Total; n != 2 {
		t.Errorf("total of bread: got %d, want 2", n)
	}
}

func TestNewestWantsAllWordsAndTheNewestFirst(t *testing.T) {
	s := newShelf(t)
	ann := scopeNamed(t, "ann")
	s.say(ann, "a", "red apple", "green apple")
	s.say(ann, "b", "a red and a green apple", "a pear", "the apple is red")
	s.finds(ann, Query{Text: "red apple", Sort: Newest}, "b/3", "b/1", "a/1")
	s.finds(ann, Query{Text: "app* -green", Sort: Newest}, "b/3", "a/1")
}

func TestFiltersNarrowASearch(t *testing.T) {
	s := newShelf(t)
	ann := scopeNamed(t, "ann")
	s.say(ann, "a", "apple one", "apple two")
	s.say(ann, "b", "apple three", "apple four", "apple five")
	all := s.search(ann, Query{Text: "apple", Sort: Newest})
	if len(all.Hits) != 5 {
		t.Fatalf("apple: got %q, want 5 hits", hitPlaces(all))
	}
	s.finds(ann, Query{Text: "apple", Sort: Newest, Conversation: "b"}, "b/3", "b/2", "b/1")
	s.finds(ann, Query{Text: "apple", Sort: Newest, Conversation: "none"})
	s.finds(ann, Query{Text: "apple", Sort: Newest, Role: "assistant"}, "b/2", "a/2")
	s.finds(ann, Query{Text: "apple", Sort: Newest, Conversation: "b", AfterSeq: 1, BeforeSeq: 3}, "b/2")
	s.finds(ann, Query{Text: "apple", After: time.Unix(1_900_000_000, 0).Add(time.Hour)})
	s.finds(ann, Query{Text: "apple", Before: time.Unix(1_900_000_000, 0)})
	s.finds(ann, Query{Text: "apple", Sort: Newest, Exclude: func(p Place) bool { return p.Conversation == "b" && p.Seq > 1 }},
		"b/1", "a/2", "a/1")
}

func TestPagesShowEveryHitOnce(t *testing.T) {
	s := newShelf(t)
	ann := scopeNamed(t, "ann")
	var want []string
	for i := range 130 {
		s.say(ann, fmt.Sprintf("c%03d", i), "apple "+strings.Repeat("pear ", i%7))
		want = append(want, fmt.Sprintf("c%03d/1", i))
	}
	for _, sort := range []string{Best, Newest} {
		q := Query{Text: "apple", Sort: sort, Limit: 9}
		var got []string
		for {
			res := s.search(ann, q)
			got = append(got, hitPlaces(res)...)
			if q.Cursor = res.Next; q.Cursor == "" {
				break
			}
		}
		slices.Sort(got)
		if !slices.Equal(got, want) {
			t.Errorf("pages, sort %s: got %d hits %q, want each of %d once", sort, len(got), got, len(want))
		}
	}
}

func TestQueriesThatNameNothingAreRefused(t *testing.T) {
	s := newShelf(t)
	ann := scopeNamed(t, "ann")
	for _, q := range []Query{
		{}, {Text: "  "}, {Text: "-apple"}, {Text: `""`}, {Text: "... ?"}, {Text: "*"}, {Text: "apple", Sort: "worst"},
		{Text: strings.Repeat("a ", MaxQueryChars)}, {Text: strings.Repeat(`"a" `, maxScored+1)}, {Plain: true},
	} {
		if _, err := s.index.Search(context.Background(), ann, q); !errors.Is(err, ErrBadQuery) {
			t.Errorf("Search(%.20q): got %v, want ErrBadQuery", q.Text, err)
		}
	}
	s.say(ann, "a", "apple", "apple")
	next := s.search(ann, Query{Text: "apple", Limit: 1}).Next
	for _, q := range []Query{{Text: "apple", Cursor: "x"}, {Text: "pear", Cursor: next}, {Text: "apple", Sort: Newest, Cursor: next}} {
		if _, err := s.index.Search(context.Background(), ann, q); !errors.Is(err, ErrBadCursor) {
			t.Errorf("Search(%q, cursor %q): got %v, want ErrBadCursor", q.Text, q.Cursor, err)
		}
	}
}

func TestPlainTextIsNoQuery(t *testing.T) {
	s := newShelf(t)
	ann := scopeNamed(t, "ann")
	s.say(ann, "a", "the apple pie")
	s.finds(ann, Query{Text: `-apple "pie the"`, Plain: true}, "a/1")
	s.finds(ann, Query{Text: "what is the pie " + strings.Repeat("word after word ", 500), Plain: true}, "a/1")
	s.finds(ann, Query{Text: "the", Plain: true}, "a/1")
}

// readings counts the conversations that are looked at.
type readings struct {
	Record
	n atomic.Int64
}

func (r *readings) Log(scope identity.Scope, conversation string) history.Log {
	r.n.Add(1)
	return r.Record.Log(scope, conversation)
}

func TestTheWorkerLetsChangesGather(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &shelf{t: t, disk: crashfs.New(), store: openStore(t, crashfs.New())}
		counted := &readings{Record: s.store}
		s.open(counted)
		scope := scopeNamed(t, "a")
		for i := range 50 {
			s.say(scope, "talk", fmt.Sprintf("word%d", i))
			synctest.Wait()
		}
		time.Sleep(gatherFor)
		synctest.Wait()
		if n := counted.n.Load(); n != 1 {
			t.Errorf("a conversation that changed 50 times was read %d times, want once", n)
		}
		s.finds(scope, Query{Text: "word7"}, "talk/8")
	})
}
