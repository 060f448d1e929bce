package recall

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"historyd/internal/durable/crashfs"
)

// canary is a word that shares no beginning with another one.
const canary = "qzxcanary"

// end ends the process, or the power as well.
func end(disk *crashfs.FS, power bool, rng *rand.Rand) *crashfs.FS {
	if power {
		return disk.Crash(rng)
	}
	return disk.Kill()
}

// finish ends the index of a life that is over; what its disk says no longer matters.
func (s *shelf) finish() { _ = s.index.Close() }

func TestForgottenWordsStayAwayWhateverFails(t *testing.T) {
	rng := rand.New(rand.NewPCG(4, 2))
	acked := 0
	for _, how := range []crashfs.How{crashfs.Before, crashfs.After} {
		for _, power := range []bool{false, true} {
			for at := 0; ; at++ {
				s := newShelf(t)
				ann := scopeNamed(t, "ann")
				s.say(ann, "keep", "the station is near")
				s.search(ann, Query{Text: "station"})
				s.reopen()
				s.say(ann, "gone", "the word is "+canary)
				s.say(ann, "with", "the harbour is far")
				s.search(ann, Query{Text: "station"})
				s.reopen()
				s.say(ann, "gone", "again "+canary)
				s.search(ann, Query{Text: "station"})
				if err := s.disk.SyncAll(); err != nil {
					t.Fatal(err)
				}
				if len(onDisk(s.disk, canary)) == 0 {
					t.Fatal("nothing to forget: the word is in no file")
				}

				s.disk.FailAt(s.disk.Ops()+at, how, syscall.EIO, false)
				err := s.change(ann, "gone", cleared)
				if err != nil {
					if state, serr := s.store.Log(ann, "gone").State(context.Background()); serr != nil || !state.Exists() {
						t.Fatalf("operation %d failed %v: a clear that failed for the index was done: %v", at, how, serr)
					}
					err = s.change(ann, "gone", cleared)
				}
				if err != nil {
					t.Fatalf("operation %d failed %v, once: the second clear: %v", at, how, err)
				}
				reached := s.disk.Reached()
				disk := end(s.disk, power, rng)
				s.finish()
				s.disk = disk
				what := fmt.Sprintf("operation %d failed %v, power cut %v", at, how, power)
				if err == nil {
					acked++
					if names := onDisk(disk, canary); len(names) > 0 {
						t.Fatalf("%s: Forget had answered; got the word in %q, want it in no file", what, names)
					}
				}
				s.open(s.store)
				s.finds(ann, Query{Text: canary})
				s.finds(ann, Query{Text: "harbour"}, "with/1")
				s.finds(ann, Query{Text: "station"}, "keep/1")
				if names := onDisk(disk, canary); len(names) > 0 {
					t.Fatalf("%s: after a search got the word in %q, want it in no file", what, names)
				}
				s.finish()
				if t.Failed() {
					t.Fatal(what)
				}
				if !reached {
					break
				}
			}
		}
	}
	if acked == 0 {
		t.Error("Forget never answered")
	}
}

func TestForgetAllLeavesNothingWhateverFails(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 9))
	for at := 0; ; at++ {
		s := newShelf(t)
		ann, bob := scopeNamed(t, "ann"), scopeNamed(t, "bob")
		s.say(ann, "a", canary)
		s.say(bob, "b", "the harbour")
		s.search(ann, Query{Text: canary})
		s.search(bob, Query{Text: "harbour"})
		s.reopen()
		if err := s.disk.SyncAll(); err != nil {
			t.Fatal(err)
		}
		s.disk.FailAt(s.disk.Ops()+at, crashfs.After, syscall.EIO, false)
		done, err := s.index.ForgetAll(context.Background(), ann)
		if err != nil {
			done, err = s.index.ForgetAll(context.Background(), ann)
		}
		if err != nil {
			t.Fatalf("operation %d failed, once: the second ForgetAll: %v", at, err)
		}
		if err := s.store.ClearAll(context.Background(), ann); err != nil {
			t.Fatal(err)
		}
		done()
		reached := s.disk.Reached()
		disk := s.disk.Crash(rng)
		s.finish()
		s.disk = disk
		if names := onDisk(disk, canary); err == nil && len(names) > 0 {
			t.Fatalf("operation %d failed: ForgetAll had answered; got the word in %q, want it in no file", at, names)
		}
		s.open(s.store)
		s.finds(ann, Query{Text: canary})
		s.finds(bob, Query{Text: "harbour"}, "b/1")
		s.finish()
		if !reached {
			return
		}
	}
}

// The index meets one conversation after the other in lives of its own, so that there are many small segments and merges
// of them. An operation of all that fails.
func TestTheIndexIsRightOrMadeAgainWhateverFails(t *testing.T) {
	ann := scopeNamed(t, "ann")
	record := openStore(t, crashfs.New())
	life := func(s *shelf) {
		for i := range maxSmall + 2 {
			x, err := NewIndex(SearchOptions{FS: s.disk, Record: record})
			if err != nil {
				s.t.Fatal(err)
			}
			s.index = x
			_, _ = x.Search(context.Background(), ann, Query{Text: fmt.Sprintf("number%d", i), Conversation: fmt.Sprintf("c%d", i)})
			_ = x.Close()
		}
	}
	filler := &shelf{t: t, disk: crashfs.New(), store: record}
	filler.open(record)
	var want []string
	for i := range 3 {
		for c := range maxSmall + 2 {
			filler.say(ann, fmt.Sprintf("c%d", c), fmt.Sprintf("apple number%d said %d", c, i))
		}
	}
	for i := 2; i >= 0; i-- {
		for c := maxSmall + 1; c >= 0; c-- {
			want = append(want, fmt.Sprintf("c%d/%d", c, i+1))
		}
	}
	filler.finish()

	run := func(at int, how crashfs.How) (*shelf, bool) {
		s := &shelf{t: t, disk: crashfs.New(), store: record}
		s.disk.FailAt(at, how, syscall.EIO, false)
		life(s)
		reached := s.disk.Reached()
		return s, reached
	}
	rng := rand.New(rand.NewPCG(7, 7))
	step := func() int { return 1 + rng.IntN(5) }
	if n, err := strconv.Atoi(os.Getenv("CRASH_SEEDS")); err == nil && n >= 200 {
		step = func() int { return 1 }
	}
	for _, how := range []crashfs.How{crashfs.Before, crashfs.After, crashfs.Short} {
		for _, power := range []bool{false, true} {
			for at := 0; ; at += step() {
				s, reached := run(at, how)
				s.disk = end(s.disk, power, rng)
				s.open(record)
				s.finds(ann, Query{Text: "apple", Sort: Newest, Limit: 100}, want...)
				s.finds(ann, Query{Text: `"number3 said 1"`}, "c3/2")
				s.finish()
				if t.Failed() {
					t.Fatalf("operation %d failed %v, power cut %v", at, how, power)
				}
				if !reached {
					break
				}
			}
		}
	}
}

func TestSmallSegmentsAreMergedAndACutMergeIsMended(t *testing.T) {
	ann := scopeNamed(t, "ann")
	rng := rand.New(rand.NewPCG(3, 3))
	build := func() *shelf {
		s := newShelf(t)
		for i := range maxSmall {
			s.say(ann, fmt.Sprintf("c%d", i%3), fmt.Sprintf("apple number%d in words", i))
			s.search(ann, Query{Text: "apple"})
			s.reopen()
		}
		s.say(ann, "c0", "the last apple")
		s.search(ann, Query{Text: "apple"})
		return s
	}
	check := func(s *shelf, what string) {
		s.finds(ann, Query{Text: "apple", Sort: Newest}, "c0/4", "c1/3", "c0/3", "c2/2", "c1/2", "c0/2", "c2/1", "c1/1", "c0/1")
		s.finds(ann, Query{Text: `"number5 in words"`}, "c2/2")
		if t.Failed() {
			t.Fatal(what)
		}
	}
	for at := 0; ; at++ {
		s := build()
		s.disk.FailAt(s.disk.Ops()+at, crashfs.After, syscall.EIO, true)
		s.finish() // Writes, and merges.
		reached := s.disk.Reached()
		if n := len(s.disk.Files()); !reached && n != 1 {
			t.Errorf("%d files after a merge, want 1", n)
		}
		s.disk = end(s.disk, at%2 == 1, rng)
		s.open(s.store)
		check(s, fmt.Sprintf("operation %d failed", at))
		s.finish()
		if !reached {
			return
		}
	}
}

func TestEveryWrongByteIsFoundAndTheSegmentMadeAgain(t *testing.T) {
	s := newShelf(t)
	ann := scopeNamed(t, "ann")
	long := strings.Repeat("apple pear ", 60) // postings that stand outside of the dictionary
	s.say(ann, "a", "an apple and the harbour", long, "a plum")
	s.say(ann, "b", "an apple tree")
	s.search(ann, Query{Text: "apple"})
	s.close()
	name := onDisk(s.disk, "harbour")[0]
	size := len(s.disk.Files()[name])
	step := 1
	if testing.Short() {
		step = 7
	}
	for i := 0; i < size; i += step {
		s.disk.Corrupt(name, func(b []byte) []byte {
			b[i] ^= byte(1 + i%255)
			return b
		})
		s.open(s.store)
		s.finds(ann, Query{Text: "apple", Sort: Newest}, "b/1", "a/2", "a/1")
		s.finds(ann, Query{Text: `"the harbour"`}, "a/1")
		s.finds(ann, Query{Text: "plu*"}, "a/3")
		s.close()
		if t.Failed() {
			t.Fatalf("byte %d of %d wrong", i, size)
		}
		name = onDisk(s.disk, "harbour")[0]
	}
}

func TestAFullDiskLeavesTheSearchWithWhatMemoryHolds(t *testing.T) {
	s := newShelf(t)
	ann := scopeNamed(t, "ann")
	s.disk.SetCapacity(0)
	s.say(ann, "a", "an apple")
	s.finds(ann, Query{Text: "apple"}, "a/1")
	if err := s.index.Close(); err == nil {
		t.Error("Close with a full disk: got nil, want an error")
	}
	s.disk.SetCapacity(-1)
	s.open(s.store)
	s.finds(ann, Query{Text: "apple"}, "a/1")
}
