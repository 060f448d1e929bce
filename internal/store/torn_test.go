package store

import (
	"bytes"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"historyd/internal/durable/crashfs"
	"historyd/internal/history"
)

// A book is a data directory of two conversations, to be copied and broken.
type book struct {
	t      testing.TB
	closed *crashfs.FS
	files  map[string]string // conversation -> its only segment
	want   map[string][]string
}

// newBook appends batches to "a" and two to "b", with letters of many bytes, escapes and a key.
func newBook(t testing.TB, batches int) *book {
	t.Helper()
	b := &book{t: t, closed: crashfs.New(), files: map[string]string{}, want: map[string][]string{}}
	s := mustOpen(t, b.closed)
	for _, conversation := range []string{"b", "a"} {
		n := batches
		if conversation == "b" {
			n = 2
		}
		for i := range n {
			text := fmt.Sprintf("%s%d é🎉\u2028\"\\\x00", conversation, i)
			batch := batch(text)
			if i == 1 {
				batch.Key = "k"
			}
			if _, err := s.Log(ann, conversation).Append(t.Context(), batch); err != nil {
				t.Fatal(err)
			}
			b.want[conversation] = append(b.want[conversation], fmt.Sprintf("%d:%s", i+1, text))
		}
		b.files[conversation] = s.dirOf(transcriptKey{ann, conversation}) + "/" + segmentName(1)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	return b
}

// text is the segment of a conversation.
func (b *book) text(conversation string) []byte {
	return b.closed.Files()[b.files[conversation]]
}

// broken is a copy in which the segment of a conversation has become text.
func (b *book) broken(conversation string, text []byte) *crashfs.FS {
	fsys := b.closed.Kill()
	fsys.Corrupt(b.files[conversation], func([]byte) []byte { return text })
	return fsys
}

// lastLine is where the last line of a text begins.
func lastLine(text []byte) int {
	return bytes.LastIndexByte(bytes.TrimSuffix(text, []byte("\n")), '\n') + 1
}

// wantContent compares what is read of a conversation, forwards and backwards, and
// returns what is told of damage.
func wantContent(t testing.TB, what string, l history.Log, want []string) *history.Damage {
	t.Helper()
	if got := texts(t, l); !slices.Equal(got, want) {
		t.Fatalf("%s: read %q, want %q", what, got, want)
	}
	v, err := l.View(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer v.Close()
	var back []string
	for r, err := range v.Backward(1 << 40) {
		if err != nil {
			t.Fatalf("%s: Backward: %v", what, err)
		}
		m, err := r.Message()
		if err != nil {
			t.Fatal(err)
		}
		back = append(back, fmt.Sprintf("%d:%s", m.Seq, m.Content[0].Text))
	}
	slices.Reverse(back)
	if !slices.Equal(back, want) {
		t.Fatalf("%s: read backwards %q, want %q", what, back, want)
	}
	for range v.Records(1, 1<<40) {
	}
	return v.Damage()
}

// goesOn appends to both conversations, restarts, and wants all of it. It returns the
// damage of "a" that is told then.
func (b *book) goesOn(what string, fsys *crashfs.FS, want []string) (*history.Damage, []Finding) {
	b.t.Helper()
	all := map[string][]string{"a": want, "b": b.want["b"]}
	s := mustOpen(b.t, fsys)
	for _, conversation := range []string{"a", "b"} {
		seq := int64(len(all[conversation]) + 1)
		if conversation == "a" {
			seq = lastSeq(b.t, s.Log(ann, "a")) + 1
		}
		r, err := s.Log(ann, conversation).Append(b.t.Context(), batch("more"))
		if err != nil || r.FirstSeq != seq {
			b.t.Fatalf("%s: append to %s: %+v, %v", what, conversation, r, err)
		}
		all[conversation] = append(slices.Clone(all[conversation]), fmt.Sprintf("%d:more", seq))
	}
	var told *history.Damage
	for range 2 {
		told = wantContent(b.t, what, s.Log(ann, "a"), all["a"])
		if d := wantContent(b.t, what, s.Log(ann, "b"), all["b"]); d != nil {
			b.t.Fatalf("%s: the other conversation has damage %+v", what, d)
		}
		if err := s.Close(); err != nil {
			b.t.Fatal(err)
		}
		s = mustOpen(b.t, fsys)
	}
	_ = s.Close()
	found, sum := check(b.t, fsys)
	if sum.Torn != 0 {
		b.t.Fatalf("%s: a torn end is left", what)
	}
	return told, found
}

func lastSeq(t testing.TB, l history.Log) int64 {
	t.Helper()
	s, err := l.State(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return s.LastSeq
}

// recovered wants a torn end to be put aside, and nothing else lost.
func (b *book) recovered(what string, fsys *crashfs.FS, want []string, torn bool) {
	b.t.Helper()
	found, sum := check(b.t, fsys)
	if len(found) > 0 || (sum.Torn == 1) != torn {
		b.t.Fatalf("%s: check counts %d torn and finds %v", what, sum.Torn, found)
	}
	before := fsys.Files()
	s := mustOpen(b.t, fsys)
	if d := wantContent(b.t, what, s.Log(ann, "a"), want); d != nil {
		b.t.Fatalf("%s: damage %+v", what, d)
	}
	_ = s.Close()
	if after := fsys.Files(); !maps.EqualFunc(before, after, bytes.Equal) {
		b.t.Fatalf("%s: reading changed files", what)
	}
	told, found := b.goesOn(what, fsys, want)
	if told != nil || len(found) > 0 {
		b.t.Fatalf("%s: after an append there is damage %+v, check finds %v", what, told, found)
	}
	for name, text := range fsys.Files() {
		for _, line := range bytes.SplitAfter(text, []byte("\n")) {
			if _, ok := frameIs(bytes.TrimSuffix(line, []byte("\n"))); strings.HasSuffix(name, ".jsonl") && len(line) > 0 && !ok {
				b.t.Fatalf("%s: in %s there is %q", what, name, line)
			}
		}
	}
	if aside := quarantined(fsys); (aside != "") != torn {
		b.t.Fatalf("%s: torn is %t, put aside is %q", what, torn, aside)
	}
}

// quarantined is what was put aside.
func quarantined(fsys *crashfs.FS) string {
	for name, text := range fsys.Files() {
		if strings.Contains(name, ".torn-") {
			return string(text)
		}
	}
	return ""
}

// stride is by how much to go on where there is not the time to try every byte.
func stride(n int) int {
	if raced && !thorough() {
		return n
	}
	return 1
}

func TestCrashTornEndsAreRecovered(t *testing.T) {
	t.Parallel()
	b := newBook(t, 3)
	text := b.text("a")
	for at := lastLine(text); at < len(text); at += stride(9) {
		want, there := b.want["a"][:2], at > lastLine(text)
		if at == len(text)-1 {
			want, there = b.want["a"], false
		}
		b.recovered(fmt.Sprint("cut at ", at), b.broken("a", text[:at:at]), want, there)
		for _, more := range []int{0, 700} {
			nuls := append(text[:at:at], make([]byte, len(text)-at+more)...)
			b.recovered(fmt.Sprint("NULs from ", at), b.broken("a", nuls), want, true)
		}
	}
}

func TestCrashTornFirstWritesAreNoConversation(t *testing.T) {
	t.Parallel()
	b := newBook(t, 1)
	text := b.text("a")
	header := bytes.IndexByte(text, '\n')
	for at := 0; at < lastLine(text); at += stride(9) {
		b.recovered(fmt.Sprint("cut at ", at), b.broken("a", text[:at:at]), nil, at > 0 && at != header && at != header+1)
		b.recovered(fmt.Sprint("NULs from ", at), b.broken("a", append(text[:at:at], make([]byte, len(text)-at)...)), nil, true)
	}
}

func TestCrashTornFirstWritesOfALaterSegmentAreRecovered(t *testing.T) {
	t.Parallel()
	fsys := crashfs.New()
	s, err := Open(Options{FS: fsys, NewID: counterIDs(), SegmentBytes: 1})
	if err != nil {
		t.Fatal(err)
	}
	for i := range 3 {
		if _, err := s.Log(ann, "a").Append(t.Context(), batch(fmt.Sprint("a", i))); err != nil {
			t.Fatal(err)
		}
	}
	name := s.dirOf(transcriptKey{ann, "a"}) + "/" + segmentName(3)
	_ = s.Close()
	text := fsys.Files()[name]
	for at := 0; at < len(text); at += stride(9) {
		for _, cut := range []bool{true, false} {
			what := fmt.Sprintf("at %d, cut %t", at, cut)
			broken := fsys.Kill()
			broken.Corrupt(name, func(b []byte) []byte {
				if cut {
					return b[:at]
				}
				clear(b[at:])
				return b
			})
			found, _ := check(t, broken)
			s := mustOpen(t, broken)
			n := 2
			if at == len(text)-1 {
				n = 3
			}
			r, err := s.Log(ann, "a").Append(t.Context(), batch("more"))
			if err != nil || int(r.FirstSeq) != n+1 || len(found) > 0 {
				t.Fatalf("%s: append %+v, %v; check finds %v", what, r, err, found)
			}
			want := append([]string{"1:a0", "2:a1", "3:a2"}[:n:n], fmt.Sprintf("%d:more", n+1))
			for range 2 {
				if d := wantContent(t, what, s.Log(ann, "a"), want); d != nil {
					t.Fatalf("%s: damage %+v", what, d)
				}
				_ = s.Close()
				s = mustOpen(t, broken)
			}
			if sum := mustCheck(t, broken); sum.Torn != 0 {
				t.Fatalf("%s: a torn end is left", what)
			}
		}
	}
}

// garbage is what no write that was cut short can end with. rest is the number of
// bytes that the line lacks.
func garbage(rng *rand.Rand, rest int) map[string][]byte {
	random := make([]byte, rest)
	for i := range random {
		random[i] = byte(1 + rng.IntN(255))
	}
	return map[string][]byte{
		"a control character":               {1},
		"a byte that is no letter":          {0xff},
		"a newline":                         {'\n'},
		"NULs and a letter":                 {0, 0, 'x'},
		"control characters":                bytes.Repeat([]byte{2}, 300),
		"random bytes, as many as it lacks": random,
		"letters, as many as it lacks":      bytes.Repeat([]byte{'A'}, rest),
		"letters, and a newline":            append(bytes.Repeat([]byte{'A'}, rest-1), '\n'),
		"many letters":                      bytes.Repeat([]byte{'A'}, rest+500),
		"the end of a line":                 []byte(`]}],"len":9,"crc":"00000000"}` + "\n"),
		"another text":                      []byte("\nnot a line\nnor this\n"),
	}
}

func TestCrashGarbageIsToldAsDamage(t *testing.T) {
	t.Parallel()
	b := newBook(t, 3)
	text := b.text("a")
	rng := rand.New(rand.NewPCG(5, 6))
	for at := lastLine(text); at < len(text); at += stride(17) {
		want := b.want["a"][:2]
		if at == len(text)-1 {
			want = b.want["a"]
		}
		for kind, junk := range garbage(rng, len(text)-at) {
			what := fmt.Sprintf("%s from %d", kind, at)
			fsys := b.broken("a", append(text[:at:at], junk...))
			if string(fsys.Files()[b.files["a"]]) == string(text) {
				continue // the line itself
			}
			found, sum := check(t, fsys)
			if len(found) == 0 || sum.Torn != 0 {
				t.Fatalf("%s: check counts %d torn and finds %v", what, sum.Torn, found)
			}
			s := mustOpen(t, fsys)
			state, err := s.Log(ann, "a").State(t.Context())
			if err != nil || state.Damage == nil || state.Damage.Bytes == 0 {
				t.Fatalf("%s: the state tells damage %+v, %v", what, state.Damage, err)
			}
			wantContent(t, what, s.Log(ann, "a"), want)
			_ = s.Close()
			told, found := b.goesOn(what, fsys, want)
			if told == nil || len(found) == 0 {
				t.Fatalf("%s: after an append nobody tells of the damage: %+v, check %v", what, told, found)
			}
			if kept := fsys.Files()[b.files["a"]]; !bytes.HasPrefix(kept, append(text[:at:at], junk...)) {
				t.Fatalf("%s: the damage was changed", what)
			}
		}
	}
}
