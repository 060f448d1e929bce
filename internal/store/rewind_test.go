package store

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"historyd/internal/durable/crashfs"
	"historyd/internal/history"
)

// TestRewoundIsASetOfSeqs compares the spans with a set.
func TestRewoundIsASetOfSeqs(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		var spans rewound
		last := int64(0)
		gone := map[int64]bool{}
		for range rapid.IntRange(0, 12).Draw(t, "rewinds") {
			last += rapid.Int64Range(0, 4).Draw(t, "added")
			through := rapid.Int64Range(0, last).Draw(t, "through")
			before := slices.Clone(spans)
			next := spans.through(through, last)
			if !slices.Equal(before, spans) {
				t.Fatal("through has changed the spans it was called for")
			}
			spans = next
			for seq := through + 1; seq <= last; seq++ {
				gone[seq] = true
			}
		}
		n, standing := int64(0), int64(0)
		for seq := int64(1); seq <= last+2; seq++ {
			if spans.has(seq) != gone[seq] {
				t.Fatalf("has(%d) is %t: %v", seq, spans.has(seq), spans)
			}
			if gone[seq] {
				n++
			} else {
				standing = seq
			}
			if got := spans.count(1, seq); got != n {
				t.Fatalf("count(1, %d) is %d, want %d: %v", seq, got, n, spans)
			}
			if got := spans.standing(seq); got != standing {
				t.Fatalf("standing(%d) is %d, want %d: %v", seq, got, standing, spans)
			}
		}
		for i := 1; i < len(spans); i++ {
			if spans[i].from <= spans[i-1].to+1 || spans[i].from > spans[i].to {
				t.Fatalf("not apart: %v", spans)
			}
		}
	})
}

// alternate appends pairs and rewinds the second of each, so that no spans touch.
func alternate(t *testing.T, l history.Log, n int) (standing []int64) {
	t.Helper()
	for i := range n {
		r, err := l.Append(t.Context(), batch(fmt.Sprint(i), "rewound"))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := l.Rewind(t.Context(), history.Rewind{Through: r.FirstSeq}); err != nil {
			t.Fatal(err)
		}
		standing = append(standing, r.FirstSeq)
	}
	return standing
}

func standingIn(t *testing.T, l history.Log) (seqs []int64, damage *history.Damage) {
	t.Helper()
	v, err := l.View(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer v.Close()
	for r, err := range v.Records(1, 1<<40) {
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Contains(r.JSON, []byte(`"rewound":true`)) {
			seqs = append(seqs, r.Seq)
		}
	}
	return seqs, v.Damage()
}

func TestManyRewindsAreKnownFromABoundedTail(t *testing.T) {
	t.Parallel()
	for _, n := range []int{1, rewindCheckpoint - 1, rewindCheckpoint, rewindCheckpoint + 1, 5*rewindCheckpoint + 7} {
		fsys := crashfs.New()
		s, err := start(fsys)
		if err != nil {
			t.Fatal(err)
		}
		want := alternate(t, s.Log(ann, "a"), n)
		for range 2 {
			_ = s.Close()
			if s, err = start(fsys); err != nil {
				t.Fatal(err)
			}
			before := fsys.Ops()
			if _, err := s.Log(ann, "a").State(t.Context()); err != nil {
				t.Fatal(err)
			}
			// Opening, and each line of a rewind with its segment.
			if ops := fsys.Ops() - before; ops > 40+8*rewindCheckpoint {
				t.Errorf("%d rewinds: opening took %d operations", n, ops)
			}
			if got, _ := standingIn(t, s.Log(ann, "a")); !slices.Equal(got, want) {
				t.Fatalf("%d rewinds: %d stand, want %d", n, got, want)
			}
			want = append(want, alternate(t, s.Log(ann, "a"), 1)...)
		}
		_ = s.Close()
		mustCheck(t, fsys)
	}
}

// TestCrashARewindThatIsDamagedIsTold breaks the line of each rewind in turn.
func TestCrashARewindThatIsDamagedIsTold(t *testing.T) {
	t.Parallel()
	fsys := crashfs.New()
	s := mustOpen(t, fsys)
	alternate(t, s.Log(ann, "a"), 6)
	if _, err := s.Log(ann, "a").Append(t.Context(), batch("last")); err != nil {
		t.Fatal(err)
	}
	name := s.dirOf(transcriptKey{ann, "a"}) + "/" + segmentName(1)
	_ = s.Close()
	whole := fsys.Files()[name]
	all := lines(whole)
	seen := 0
	for i, line := range all {
		if !bytes.Contains(line, []byte(`"rewind":`)) {
			continue
		}
		seen++
		for _, how := range []string{"a wrong byte", "NULs"} {
			broken := slices.Clone(all)
			broken[i] = bytes.Clone(line)
			broken[i][len(line)/2] ^= 0x10
			if how == "NULs" {
				broken[i] = append(make([]byte, len(line)-1), '\n')
			}
			fsys.Corrupt(name, func([]byte) []byte { return bytes.Join(broken, nil) })
			found, _ := check(t, fsys)
			s := mustOpen(t, fsys)
			got, damage := standingIn(t, s.Log(ann, "a"))
			// What the line ended stands again, and nothing else.
			want := []int64{1, 3, 5, 7, 9, 11, 13}
			want = slices.Insert(want, seen, int64(2*seen))
			if damage == nil || len(found) == 0 || !slices.Equal(got, want) {
				t.Errorf("rewind %d, %s: %d stand, want %d, damage %+v, check %v", seen, how, got, want, damage, found)
			}
			if err := s.Log(ann, "a").Clear(t.Context()); err != nil {
				t.Error(err)
			}
			_ = s.Close()
			fsys = crashfs.New()
			s = mustOpen(t, fsys)
			if _, err := s.Log(ann, "a").Append(t.Context(), batch("x")); err != nil {
				t.Fatal(err)
			}
			_ = s.Close()
		}
	}
	if seen != 6 {
		t.Fatalf("%d lines of rewinds", seen)
	}
}

// TestCheckFollowsRewinds wants a line told whose checksum holds and whose rewind does not.
func TestCheckFollowsRewinds(t *testing.T) {
	t.Parallel()
	for name, alter := range map[string]func(c *commit){
		"through behind the end": func(c *commit) { c.Rewind.Through = c.Last + 1 },
		"through before all":     func(c *commit) { c.Rewind.Through = -1 },
		"other spans":            func(c *commit) { c.Rewind.Spans = [][2]int64{{1, 1}} },
	} {
		fsys := crashfs.New()
		s := mustOpen(t, fsys)
		alternate(t, s.Log(ann, "a"), 2)
		file := s.dirOf(transcriptKey{ann, "a"}) + "/" + segmentName(1)
		_ = s.Close()
		mustCheck(t, fsys)
		fsys.Corrupt(file, func(text []byte) []byte {
			all := lines(text)
			last := bytes.TrimSuffix(all[len(all)-2], []byte("\n"))
			c, err := parseCommit(last)
			if err != nil || c.Rewind == nil {
				t.Fatalf("the last line is no rewind: %v", err)
			}
			alter(c)
			// What is decoded has brackets around the messages.
			c.Messages = bytes.Trim(c.Messages, "[]")
			out, _ := appendFrame(bytes.Join(all[:len(all)-2], nil), c.payload(nil))
			return out
		})
		found, _ := check(t, fsys)
		if len(found) != 1 || found[0].Kind != "damage" || !strings.Contains(found[0].Detail, "rew") {
			t.Errorf("%s: check finds %v", name, found)
		}
	}
}

// TestAPanicKeepsNoTranscriptInUse has what a caller gave to the store fail within it.
func TestAPanicKeepsNoTranscriptInUse(t *testing.T) {
	t.Parallel()
	s := openReserving(t, crashfs.New(), 0)
	l := s.Log(ann, "a")
	if _, err := l.Append(t.Context(), batch("x")); err != nil {
		t.Fatal(err)
	}
	bad := func() error { panic("of the caller's") }
	for name, fn := range map[string]func(){
		"an append": func() {
			_, _ = l.Append(t.Context(), history.Batch{Stays: true, IfMatch: func(string) bool { panic("of the caller's") }})
		},
		"a rewind": func() { _, _ = l.Rewind(t.Context(), history.Rewind{Before: bad}) },
		"an import": func() {
			_, _ = l.Import(t.Context(), history.Import{Mode: history.Extend, Before: bad, Messages: slices2([]history.Message{user("y")})})
		},
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s: does not panic", name)
				}
			}()
			fn()
		}()
		s.reading.Wait() // what loads a conversation lets go of it a moment later
		s.mu.Lock()
		for key, e := range s.open {
			if e.t.refs != 0 {
				t.Errorf("%s: %s is in use %d times", name, key.name, e.t.refs)
			}
		}
		s.mu.Unlock()
	}
	if _, err := l.Append(t.Context(), batch("z")); err != nil {
		t.Error(err)
	}
	if got := texts(t, l); !slices.Equal(got, []string{"1:x", "2:z"}) {
		t.Errorf("read %q", got)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}
