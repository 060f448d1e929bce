package recall

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"historyd/internal/durable/crashfs"
	"historyd/internal/history"
)

// An append that nobody waited for may come after it was given up: it is found all the same, and until it was looked
// for, searches say that they may miss something.
func TestWhatComesAfterADoubtIsFound(t *testing.T) {
	s := newShelf(t)
	now := time.Unix(0, 0)
	x := s.reopenWith(SearchOptions{Now: func() time.Time { return now }})
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

// A caller is let go of, the disk does not take what was in memory, and meanwhile the caller has come back.
func TestWhatCouldNotBeWrittenIsIndexedAgain(t *testing.T) {
	s := newShelf(t)
	now := time.Unix(0, 0)
	x := s.reopenWith(SearchOptions{Now: func() time.Time { return now }})
	ann := scopeNamed(t, "ann")
	s.say(ann, "x", "an apple")
	s.finds(ann, Query{Text: "apple"}, "x/1")
	back, err := x.acquire(ann)
	if err != nil {
		t.Fatal(err)
	}
	x.mu.Lock()
	back.users++ // as trim does
	x.mu.Unlock()
	s.disk.FailAt(s.disk.Ops(), crashfs.Before, syscall.EIO, true)
	x.leave(back)
	s.disk.Heal()
	x.release(back)
	if res := s.search(ann, Query{Text: "apple"}); len(res.Hits) > 0 || !res.Behind {
		t.Errorf("got %q, behind %t, want nothing and behind", hitPlaces(res), res.Behind)
	}
	now = now.Add(retryAfter)
	s.finds(ann, Query{Text: "apple"}, "x/1")
}

// Files of the index that go while it runs are made again by the next comparison, and are no failure.
func TestASegmentThatGoesIsNoFailure(t *testing.T) {
	s := newShelf(t)
	x := s.reopenWith(SearchOptions{})
	ann := scopeNamed(t, "ann")
	s.say(ann, "a", "an apple")
	s.say(ann, "b", "another apple")
	s.finds(ann, Query{Text: "another"}, "b/1")
	c, err := x.acquire(ann)
	if err != nil {
		t.Fatal(err)
	}
	defer x.release(c)
	c.mu.Lock()
	err = errors.Join(x.flush(c), s.disk.Remove(c.file(1)))
	c.mu.Unlock()
	if err != nil {
		t.Fatal(err)
	}
	if err := x.walk(c); err != nil {
		t.Fatal(err)
	}
	s.finds(ann, Query{Text: "apple", Sort: Newest}, "b/1", "a/1")
	if n := testutil.ToFloat64(x.metrics.failures); n > 0 {
		t.Errorf("%v failures are counted, want none", n)
	}
}

// A copy of the record that is put back may say something else under the same numbers: that is what is found, and
// nothing of what the copy does not hold.
func TestACopyOfTheRecordThatIsPutBackIsFound(t *testing.T) {
	ann := scopeNamed(t, "ann")
	for _, said := range []string{"", "a durian", "a durian, and more"} {
		s := newShelf(t)
		s.close()
		disk := crashfs.New()
		begin := func(from *crashfs.FS) {
			s.store = openStore(t, from)
			s.open(s.store)
		}
		end := func() {
			s.close()
			s.store.Close()
		}
		begin(disk)
		s.say(ann, "x", "an apple", "a pear")
		s.finds(ann, Query{Text: "apple"}, "x/1")
		end()
		copied := disk.Kill()
		begin(disk.Kill())
		s.say(ann, "x", "a papaya")
		s.finds(ann, Query{Text: "papaya"}, "x/3")
		end()
		begin(copied)
		if said != "" {
			s.say(ann, "y", "other ids than before are minted")
			s.say(ann, "x", strings.Split(said, ", ")...)
			s.finds(ann, Query{Text: "durian"}, "x/3")
		}
		s.finds(ann, Query{Text: "papaya"})
		s.finds(ann, Query{Text: "pear"}, "x/2")
		end()
		for name, data := range s.disk.Files() {
			if bytes.Contains(data, []byte("papaya")) {
				t.Errorf("%q said: %s holds what is not in the record", said, name)
			}
		}
	}
}
