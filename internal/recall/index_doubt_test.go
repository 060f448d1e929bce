package recall

import (
	"context"
	"slices"
	"testing"
	"time"

	"historyd/internal/durable/crashfs"
	"historyd/internal/history"
)

// An append that nobody waited for may come after it was given up: it is found all the same, and until it was looked
// for, searches say that they may miss something.
func TestWhatComesAfterADoubtIsFound(t *testing.T) {
	s := newShelf(t)
	s.close()
	now := time.Unix(0, 0)
	x, err := NewIndex(SearchOptions{FS: s.disk, Record: s.store, Now: func() time.Time { return now }})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { x.Close() })
	s.index = x
	ann := scopeNamed(t, "ann")
	s.say(ann, "x", "an apple")
	s.finds(ann, Query{Text: "apple"}, "x/1")
	x.Doubt(ann, "x")
	if res := s.search(ann, Query{Text: "apple"}); len(res.Hits) != 1 || !res.Behind {
		t.Errorf("while it is in doubt: got %q, behind %t, want it found and behind", hitPlaces(res), res.Behind)
	}
	if _, err := s.store.Log(ann, "x").Append(t.Context(), history.Batch{Messages: []history.Message{
		{Role: history.Assistant, Status: history.Complete, Content: []history.Block{history.Text("another apple")}},
	}}); err != nil {
		t.Fatal(err)
	}
	now = now.Add(retryAfter)
	s.finds(ann, Query{Text: "apple", Sort: Newest}, "x/2", "x/1")
}

// While an index that was lost is made again, a search answers in its time, with what there is, and says so.
func TestASearchWhileTheIndexIsMadeAgain(t *testing.T) {
	s := newShelf(t)
	ann := scopeNamed(t, "ann")
	s.say(ann, "b", "an apple", "another apple")
	s.say(ann, "a", "an apple")
	s.close()
	s.disk = crashfs.New()
	g := &gate{Record: s.store, conversation: "b", reading: make(chan struct{}), open: make(chan struct{})}
	s.open(g)
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	res, err := s.index.Search(ctx, ann, Query{Text: "apple"})
	if got := hitPlaces(res); err != nil || !slices.Equal(got, []string{"a/1"}) || !res.Behind {
		t.Errorf("meanwhile: got %q, behind %t, %v; want what was indexed by then, and behind", got, res.Behind, err)
	}
	close(g.open)
	s.finds(ann, Query{Text: "apple", Sort: Newest}, "a/1", "b/2", "b/1")
}
