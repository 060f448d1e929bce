package recall

import (
	"context"
	"fmt"
	"iter"
	"sync/atomic"
	"testing"

	"historyd/internal/history"
	"historyd/internal/identity"
)

// What is found in one commit is read with it once, not once for each message; and what lies between commits is not read.
func TestHitsThatStandTogetherAreReadTogether(t *testing.T) {
	s := newShelf(t)
	var n atomic.Int64
	s.close()
	s.open(watched{s.store, &n})
	ann := scopeNamed(t, "ann")
	var near []string
	for i := range 300 {
		near = append(near, fmt.Sprintf("apple number %d", i))
	}
	s.say(ann, "near", near...)
	for range 8 {
		s.say(ann, "far", "a pear", "and what is no fruit")
	}
	for _, tt := range []struct {
		query       string
		limit, hits int
		reads       int64
	}{
		{"apple", 100, 100, 1},
		{"pear", 100, 8, 8},
	} {
		s.search(ann, Query{Text: tt.query}) // it is indexed then
		n.Store(0)
		res := s.search(ann, Query{Text: tt.query, Limit: tt.limit})
		if got := n.Load(); len(res.Hits) != tt.hits || got != tt.reads {
			t.Errorf("%s: %d hits, for which the record was read %d times, want %d hits and %d times", tt.query, len(res.Hits), got, tt.hits, tt.reads)
		}
	}
}

// watched counts how often a record is read from some place on.
type watched struct {
	Record
	n *atomic.Int64
}

func (w watched) Log(scope identity.Scope, conversation string) history.Log {
	return watchedLog{w.Record.Log(scope, conversation), w.n}
}

type watchedLog struct {
	history.Log
	n *atomic.Int64
}

func (w watchedLog) View(ctx context.Context) (history.View, error) {
	v, err := w.Log.View(ctx)
	return watchedView{v, w.n}, err
}

type watchedView struct {
	history.View
	n *atomic.Int64
}

func (w watchedView) Records(from, to int64) iter.Seq2[history.Record, error] {
	w.n.Add(1)
	return w.View.Records(from, to)
}
