package main

import (
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/oklog/ulid/v2"
)

func TestIDsAreInOrderThoughTheClockStepsBack(t *testing.T) {
	const seed = 20
	rng := rand.New(rand.NewPCG(seed, seed))
	at := time.UnixMilli(1_800_000_000_000)
	next := newIDs(func() time.Time {
		at = at.Add(time.Duration(rng.IntN(9)-4) * time.Millisecond / 2) // stands still, jumps, steps back
		return at
	})
	last := ""
	for i := range 1_000_000 {
		id := next("")
		if len(id) != ulid.EncodedSize || id <= last {
			t.Fatalf("seed %d, id %d: %q does not sort after %q", seed, i, id, last)
		}
		last = id
	}
}

func TestAnIDSortsAfterTheOneGiven(t *testing.T) {
	now := time.UnixMilli(1_800_000_000_000)
	full := ulid.ULID{}
	if err := full.SetTime(ulid.Timestamp(now)); err != nil {
		t.Fatal(err)
	}
	for i := 6; i < len(full); i++ {
		full[i] = 0xff
	}
	nearly := full
	nearly[15] = 0xfe
	for _, tt := range []struct{ name, after string }{
		{"nothing", ""},
		{"one of long ago", "01ARZ3NDEKTSV4RRFFQ69G5FAV"},
		{"one of the same time", ulid.MustNew(ulid.Timestamp(now), ulid.DefaultEntropy()).String()},
		{"one of years to come", ulid.MustNew(ulid.Timestamp(now.AddDate(9, 0, 0)), ulid.DefaultEntropy()).String()},
		{"the last one of a millisecond", full.String()},
		{"the last but one", nearly.String()},
		{"no id at all", "zzzz"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			next := newIDs(func() time.Time { return now })
			first := next(tt.after)
			if _, err := ulid.ParseStrict(tt.after); err == nil && first <= tt.after {
				t.Errorf("%q does not sort after %q", first, tt.after)
			}
			if second := next(""); second <= first {
				t.Errorf("%q does not sort after %q, which was made before", second, first)
			}
		})
	}
}

func TestIDsOfManyGoroutinesDiffer(t *testing.T) {
	next := newIDs(time.Now)
	const goroutines, each = 8, 2000
	made := make([][]string, goroutines)
	var all sync.WaitGroup
	for g := range goroutines {
		all.Go(func() {
			last := ""
			for range each {
				last = next(last)
				made[g] = append(made[g], last)
			}
		})
	}
	all.Wait()
	seen := map[string]bool{}
	for _, list := range made {
		for i, id := range list {
			if seen[id] || i > 0 && id <= list[i-1] {
				t.Fatalf("%q came before, or out of order", id)
			}
			seen[id] = true
		}
	}
	if len(seen) != goroutines*each {
		t.Errorf("got %d ids, want %d", len(seen), goroutines*each)
	}
}
