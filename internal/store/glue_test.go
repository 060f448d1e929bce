package store

import (
	"bytes"
	"fmt"
	"slices"
	"testing"
	"time"

	"historyd/internal/durable/crashfs"
	"historyd/internal/history"
)

// TestCrashGluedLinesAreServedFromWhereverTheyAreRead glues and covers lines of a record
// that is longer than what a reader looks at at once.
func TestCrashGluedLinesAreServedFromWhereverTheyAreRead(t *testing.T) {
	t.Parallel()
	const n = 1500
	for _, size := range []int64{100_000, 0} {
		if size == 0 && raced && !thorough() {
			break
		}
		fsys := crashfs.New()
		s, err := Open(Options{FS: fsys, NewID: counterIDs(), SegmentBytes: size})
		if err != nil {
			t.Fatal(err)
		}
		for i := range n {
			if _, err := s.Log(ann, "a").Append(t.Context(), batch(fmt.Sprint("m", i+1))); err != nil {
				t.Fatal(err)
			}
		}
		dir := s.dirOf(transcriptKey{ann, "a"})
		_ = s.Close()
		files := fsys.Files()
		for _, number := range []int{1, 2, 3} {
			name := dir + "/" + segmentName(number)
			text, ok := files[name]
			if !ok {
				continue
			}
			starts := lineStarts(text)
			for _, i := range []int{1, len(starts) / 2} {
				broken := fsys.Kill()
				broken.Corrupt(name, func(b []byte) []byte { return append(b[:starts[i]:starts[i]], b[starts[i+1]:]...) })
				readAround(t, fmt.Sprintf("segment %d of %d bytes, line %d missing", number, len(text), i), broken, text, starts[i+1], n, seqAt(text, starts[i]))
				broken = fsys.Kill()
				broken.Corrupt(name, func(b []byte) []byte {
					return slices.Concat(b[:starts[i]], stranger(t, b[starts[i]:starts[i+1]]), b[starts[i+1]:])
				})
				readAround(t, fmt.Sprintf("segment %d of %d bytes, line %d is another's", number, len(text), i), broken, text, starts[i], n, 0)
			}
			for _, i := range []int{1, 2, len(starts) / 3, len(starts) / 2, len(starts) - 2} {
				broken := fsys.Kill()
				broken.Corrupt(name, func(b []byte) []byte { b[starts[i]-1] = 'x'; return b })
				readAround(t, fmt.Sprintf("segment %d of %d bytes, line %d glued", number, len(text), i), broken, text, starts[i], n, 0)
				if i < 2 || i == len(starts)-2 {
					continue
				}
				broken = fsys.Kill()
				broken.Corrupt(name, func(b []byte) []byte { clear(b[starts[i-1]:starts[i]]); return b })
				lost := seqAt(text, starts[i-1])
				readAround(t, fmt.Sprintf("segment %d of %d bytes, NULs over line %d", number, len(text), i-1), broken, text, starts[i], n, lost)
			}
		}
	}
}

// lineStarts lists where the lines of a text begin.
func lineStarts(text []byte) []int {
	starts := []int{0}
	for i, c := range text {
		if c == '\n' && i+1 < len(text) {
			starts = append(starts, i+1)
		}
	}
	return starts
}

// seqAt is the seq of the line that begins there.
func seqAt(text []byte, at int) int64 {
	_, last, _ := seqsOf(text[at : at+bytes.IndexByte(text[at:], '\n')])
	return last
}

// readAround reads ranges near a damaged line, both ways.
func readAround(t *testing.T, what string, fsys *crashfs.FS, text []byte, at, n int, lost int64) {
	t.Helper()
	s := mustOpen(t, fsys)
	defer s.Close()
	v, err := s.Log(ann, "a").View(t.Context())
	if err != nil {
		t.Fatalf("%s: %v", what, err)
	}
	defer v.Close()
	near := seqAt(text, at)
	for _, from := range []int64{1, near - 3, near - 1, near, near + 1} {
		from = max(1, from)
		to := min(from+3, int64(n))
		if from == 1 {
			to = int64(n)
		}
		var want, got []int64
		for seq := from; seq <= to; seq++ {
			if seq != lost {
				want = append(want, seq)
			}
		}
		for r, err := range v.Records(from, to) {
			if err != nil {
				t.Fatalf("%s: Records: %v", what, err)
			}
			got = append(got, r.Seq)
		}
		if !slices.Equal(got, want) {
			t.Fatalf("%s: Records(%d, %d) gave %d of %d messages: %v", what, from, to, len(got), len(want), firstDifference(got, want))
		}
		got = nil
		for r, err := range v.Backward(to + 1) {
			if err != nil {
				t.Fatalf("%s: Backward: %v", what, err)
			}
			if r.Seq < from {
				break
			}
			got = append(got, r.Seq)
		}
		slices.Reverse(got)
		if !slices.Equal(got, want) {
			t.Fatalf("%s: Backward(%d) down to %d gave %d of %d messages: %v", what, to+1, from, len(got), len(want), firstDifference(got, want))
		}
	}
	if d := v.Damage(); d == nil || d.Places < 1 || d.Places > 2 || lost == 0 && d.Lost != 0 || lost != 0 && d.Lost != 1 {
		t.Errorf("%s: damage %+v", what, d)
	}
}

func firstDifference(got, want []int64) string {
	for i := range want {
		if i >= len(got) || got[i] != want[i] {
			return fmt.Sprintf("want %d at %d", want[i], i)
		}
	}
	return "there are more"
}

// TestADamagedTailOfALongSegmentIsFound breaks lines near the end of a segment of which
// a start reads a window only.
func TestCrashALongSegmentIsOpenedByItsTail(t *testing.T) {
	t.Parallel()
	fsys := crashfs.New()
	s := mustOpen(t, fsys)
	var msgs []history.Message
	for i := range 9000 {
		msgs = append(msgs, user(fmt.Sprint("m", i+1, " ", string(bytes.Repeat([]byte{'x'}, 100)))))
	}
	if _, err := s.Log(ann, "a").Import(t.Context(), history.Import{Mode: history.Create, Messages: slices2(msgs)}); err != nil {
		t.Fatal(err)
	}
	big := string(bytes.Repeat([]byte{'y'}, tailWindow+5000))
	for _, text := range []string{big, "end"} {
		if _, err := s.Log(ann, "a").Append(t.Context(), batch(text)); err != nil {
			t.Fatal(err)
		}
	}
	name := s.dirOf(transcriptKey{ann, "a"}) + "/" + segmentName(1)
	_ = s.Close()
	text := fsys.Files()[name]
	starts := lineStarts(text)
	end, before := starts[len(starts)-1], starts[len(starts)-2]
	for _, tt := range []struct {
		name string
		at   int
		want int64 // LastSeq
	}{
		{"the last line", end + 40, 9001},
		{"the newline of the one before, which is longer than the window", end - 1, 9002},
		{"that long line", before + 40, 9002},
	} {
		broken := fsys.Kill()
		broken.Corrupt(name, func(b []byte) []byte { b[tt.at] ^= 1; return b })
		s := mustOpen(t, broken)
		state, err := s.Log(ann, "a").State(t.Context())
		if err != nil || state.LastSeq != tt.want {
			t.Errorf("%s: state %+v, %v", tt.name, state, err)
		}
		if r, err := s.Log(ann, "a").Append(t.Context(), batch("more")); err != nil || r.FirstSeq != tt.want+1 {
			t.Errorf("%s: append %+v, %v", tt.name, r, err)
		}
		v, err := s.Log(ann, "a").View(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, err := range v.Records(1, 1<<40) {
			if err != nil {
				t.Errorf("%s: %v", tt.name, err)
			}
		}
		if v.Damage() == nil {
			t.Errorf("%s: no damage is told", tt.name)
		}
		v.Close()
		_ = s.Close()
		if found, _ := check(t, broken); len(found) == 0 {
			t.Errorf("%s: check finds nothing", tt.name)
		}
	}
}

func TestTheClockOrdersNothing(t *testing.T) {
	t.Parallel()
	fsys := crashfs.New()
	now := time.Date(2026, 3, 29, 2, 30, 0, 0, time.FixedZone("", 19_800))
	open := func() *Store {
		s, err := Open(Options{FS: fsys, NewID: safeIDs(), Now: func() time.Time { now = now.Add(-time.Second); return now }})
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	s := open()
	want := []string{}
	for i := range 10 {
		if _, err := s.Log(ann, "a").Append(t.Context(), batch(fmt.Sprint("m", i))); err != nil {
			t.Fatal(err)
		}
		want = append(want, fmt.Sprintf("%d:m%d", i+1, i))
		if i == 5 {
			_ = s.Close()
			s = open()
		}
	}
	if d := wantContent(t, "a clock that goes back", s.Log(ann, "a"), want); d != nil {
		t.Errorf("damage %+v", d)
	}
	_ = s.Close()
	mustCheck(t, fsys)
}
