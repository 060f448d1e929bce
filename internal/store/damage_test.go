package store

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"historyd/internal/durable/crashfs"
	"historyd/internal/history"
)

// autopsy is what reading and check make of one conversation.
type autopsy struct {
	texts    []string
	damage   *history.Damage
	findings int
	torn     int64
}

// examine opens the directory of "a" anew, past the table of open ones, which makes
// it quick enough for every byte and every value.
func (b *book) examine(s *Store) autopsy {
	key := transcriptKey{ann, "a"}
	tr := newTranscript(s, key, s.dirOf(key))
	defer tr.files.end()
	if err := tr.load(tailWindow, false); err != nil {
		b.t.Fatalf("load: %v", err)
	}
	var a autopsy
	for r, err := range tr.records(tr.state.Load(), 1, 1<<40) {
		if err != nil {
			b.t.Fatalf("records: %v", err)
		}
		m, err := r.Message()
		if err != nil {
			b.t.Fatalf("message %d: %v", r.Seq, err)
		}
		a.texts = append(a.texts, fmt.Sprintf("%d:%s", m.Seq, m.Content[0].Text))
	}
	a.damage = tr.damaged()
	c := &checker{ctx: context.Background(), fsys: s.fsys, report: func(Finding) { a.findings++ }}
	c.checkConversation(directory{tr.dir, false})
	a.torn = c.sum.Torn
	return a
}

// lost is the content of a text but for the line that holds offset at.
func (b *book) lost(text []byte, at int) []string {
	if text[at] == '\n' {
		return b.want["a"] // what a line says does not depend on its newline
	}
	line := bytes.Count(text[:at], []byte("\n"))
	if line == 0 {
		return b.want["a"]
	}
	return slices.Delete(slices.Clone(b.want["a"]), line-1, line)
}

// values are the bytes to try in the place of one.
func values(was byte) []byte {
	if thorough() || !raced && !testing.Short() {
		all := make([]byte, 0, 255)
		for v := range 256 {
			if byte(v) != was {
				all = append(all, byte(v))
			}
		}
		return all
	}
	some := []byte{0, '\n', '{', was ^ 1}
	return slices.DeleteFunc(some, func(v byte) bool { return v == was })
}

func TestCrashOneWrongByteIsAlwaysFound(t *testing.T) {
	t.Parallel()
	b := newBook(t, 2)
	if thorough() {
		b = newBook(t, 4)
	}
	text := b.text("a")
	fsys := b.closed.Kill()
	s := mustOpen(t, fsys)
	tried := 0
	for at := range text {
		want := b.lost(text, at)
		for _, v := range values(text[at]) {
			tried++
			fsys.Corrupt(b.files["a"], func(t []byte) []byte { t[at] = v; return t })
			got := b.examine(s)
			what := fmt.Sprintf("byte %d, %q, has become %q", at, text[at], v)
			if !slices.Equal(got.texts, want) {
				t.Fatalf("%s: read %q, want %q", what, got.texts, want)
			}
			if at == len(text)-1 && v == 0 {
				// A newline of NUL at the very end is what a power cut leaves: nothing is lost.
				if got.damage != nil || got.findings != 0 || got.torn != 1 {
					t.Fatalf("%s: %+v", what, got)
				}
				continue
			}
			if got.damage == nil || got.findings == 0 || got.torn != 0 {
				t.Fatalf("%s: damage %+v, %d findings, %d torn", what, got.damage, got.findings, got.torn)
			}
			if got.damage.Places != 1 || got.damage.Lost != int64(len(b.want["a"])-len(want)) && at < lastLine(text) {
				t.Fatalf("%s: damage %+v", what, got.damage)
			}
		}
		fsys.Corrupt(b.files["a"], func([]byte) []byte { return bytes.Clone(text) })
	}
	t.Logf("%d wrong bytes tried", tried)
}

// TestCrashOneWrongByteStopsNothing goes the whole way for one value of each byte.
func TestCrashOneWrongByteStopsNothing(t *testing.T) {
	t.Parallel()
	b := newBook(t, 3)
	text := b.text("a")
	for at := 0; at < len(text)-1; at += stride(13) {
		what := fmt.Sprintf("byte %d", at)
		broken := bytes.Clone(text)
		broken[at] ^= 0x40
		fsys := b.broken("a", broken)
		s := mustOpen(t, fsys)
		want := b.lost(text, at)
		if d := wantContent(t, what, s.Log(ann, "a"), want); d == nil {
			t.Fatalf("%s: reading told no damage", what)
		}
		_ = s.Close()
		told, found := b.goesOn(what, fsys, want)
		if told == nil || len(found) == 0 {
			t.Fatalf("%s: after an append nobody tells of the damage: %+v, check %v", what, told, found)
		}
		if kept := fsys.Files()[b.files["a"]]; !bytes.HasPrefix(kept, broken) {
			t.Fatalf("%s: the damage was changed", what)
		}
	}
}

// lines splits a text behind its newlines.
func lines(text []byte) [][]byte {
	return bytes.SplitAfter(text[:len(text):len(text)], []byte("\n"))
}

func TestCrashDamageInTheMiddleHidesNothingElse(t *testing.T) {
	t.Parallel()
	b := newBook(t, 4)
	l := lines(b.text("a")) // header, four lines, nothing
	join := func(parts ...[]byte) []byte { return bytes.Join(parts, nil) }
	bare := func(i int) []byte { return bytes.TrimSuffix(l[i], []byte("\n")) }
	all := b.want["a"]
	for _, tt := range []struct {
		name string
		text []byte
		want []string
		lost int64
	}{
		{"a block of NULs between lines", join(l[0], l[1], make([]byte, 512), []byte("\n"), l[2], l[3], l[4]), all, 0},
		{"a block of NULs before a line", join(l[0], l[1], make([]byte, 512), l[2], l[3], l[4]), all, 0},
		{"a block of NULs over a line", join(l[0], l[1], make([]byte, len(l[2])), l[3], l[4]), slices.Delete(slices.Clone(all), 1, 2), 1},
		{"a block of NULs over two lines", join(l[0], l[1], make([]byte, len(l[2])+len(l[3])-1), []byte("\n"), l[4]), slices.Delete(slices.Clone(all), 1, 3), 2},
		{"a torn line with a whole one behind it", join(l[0], l[1], l[2][:200], l[2], l[3], l[4]), all, 0},
		{"a torn line with the last one behind it", join(l[0], l[1], l[2], l[3], l[4][:100], l[4]), all, 0},
		{"a torn line behind a glued one", join(l[0], l[1], bare(2), l[3], l[4], []byte(`{"size":12,"x`), []byte("\n")), all, 0},
		{"two lines glued by a letter", join(l[0], bare(1), []byte("x"), l[2], l[3], l[4]), all, 0},
		{"the last lines glued by NULs", join(l[0], l[1], l[2], bare(3), []byte("\x00\x00"), l[4]), all, 0},
		{"every line glued to the next", join(bare(0), []byte("x"), bare(1), []byte("y"), bare(2), []byte("z"), bare(3), []byte{0xff}, l[4]), all, 0},
		{"a line of another record in the place of one", join(l[0], l[1], stranger(t, l[2]), l[3], l[4]), []string{all[0], "2:stranger", all[2], all[3]}, 0},
		{"a line that is missing", join(l[0], l[1], l[3], l[4]), slices.Delete(slices.Clone(all), 1, 2), 1},
		{"no header", join(l[1], l[2], l[3], l[4]), all, 0},
		{"text between lines", join(l[0], l[1], []byte("hello\n\nworld\n"), l[2], l[3], l[4]), all, 0},
		{"lines in another order", join(l[0], l[1], l[3], l[2], l[4]), []string{all[0], all[2], all[1], all[3]}, 1},
	} {
		fsys := b.broken("a", tt.text)
		if found, sum := check(t, fsys); len(found) == 0 || sum.Torn != 0 {
			t.Errorf("%s: check counts %d torn and finds %v", tt.name, sum.Torn, found)
		}
		s := mustOpen(t, fsys)
		if tt.name == "lines in another order" {
			if got := texts(t, s.Log(ann, "a")); !slices.Equal(got, tt.want) {
				t.Errorf("%s: read %q", tt.name, got)
			}
			_ = s.Close()
			continue
		}
		d := wantContent(t, tt.name, s.Log(ann, "a"), tt.want)
		if d == nil || d.Lost != tt.lost || d.Places < 1 || d.Places > 4 {
			t.Errorf("%s: damage %+v, want %d lost", tt.name, d, tt.lost)
		}
		if tt.name[:7] == "a block" && d != nil && d.Places != 1 {
			t.Errorf("%s: %d places", tt.name, d.Places)
		}
		_ = s.Close()
		if told, found := b.goesOn(tt.name, fsys, tt.want); told == nil || len(found) == 0 {
			t.Errorf("%s: after an append nobody tells: %+v, check %v", tt.name, told, found)
		}
	}
}

// stranger is a line as valid as the one given, of a record that went another way.
func stranger(t *testing.T, line []byte) []byte {
	c, err := parseCommit(bytes.TrimSuffix(line, []byte("\n")))
	if err != nil {
		t.Fatal(err)
	}
	m := user("stranger")
	m.Seq, m.ID = c.First, c.ID
	c.Messages, c.Prev = history.AppendMessage(nil, &m), c.Prev+1
	forged, _ := appendFrame(nil, c.payload(nil))
	return forged
}

// A reader knows how far its record goes, also when the end of it goes bad meanwhile.
func TestWhatGoesBadAtTheEndOfAViewIsCounted(t *testing.T) {
	b := newBook(t, 4)
	for lost := 1; lost <= 3; lost++ {
		fsys := b.closed.Kill()
		s := mustOpen(t, fsys)
		v, err := s.Log(ann, "a").View(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		fsys.Corrupt(b.files["a"], func(text []byte) []byte {
			end := text
			for range lost {
				end = text[:lastLine(end)]
			}
			for i := len(end); i < len(text); i++ {
				text[i] = 'x'
			}
			return text
		})
		got, err := collected(v, 1)
		if d := v.Damage(); err != nil || len(got) != 4-lost || d == nil || d.Lost != int64(lost) {
			t.Errorf("the last %d of 4 lines went bad: read %d, %v, damage %+v", lost, len(got), err, d)
		}
		v.Close()
		_ = s.Close()
	}
}

func TestCrashLinesWithoutANewlineAreWhole(t *testing.T) {
	t.Parallel()
	b := newBook(t, 3)
	text := b.text("a")
	joined := bytes.ReplaceAll(text, []byte("\n"), nil)
	fsys := b.broken("a", joined)
	mustCheck(t, fsys)
	if told, found := b.goesOn("no newline anywhere", fsys, b.want["a"]); told != nil || len(found) > 0 {
		t.Errorf("damage %+v, check finds %v", told, found)
	}
}

// forge writes lines with good checksums, seq by seq, as a writer without a lock would have.
func (b *book) forge(seqs ...int64) []byte {
	l := lines(b.text("a"))
	text := bytes.Clone(l[0])
	sum, _ := frameIs(bytes.TrimSuffix(l[0], []byte("\n")))
	for i, seq := range seqs {
		c, err := parseCommit(bytes.TrimSuffix(l[1], []byte("\n")))
		if err != nil {
			b.t.Fatal(err)
		}
		m := user(fmt.Sprint("forged", i))
		m.Seq, m.ID = seq, fmt.Sprintf("%026d", 100+i)
		c.First, c.Last, c.ID, c.Prev = seq, seq, m.ID, checksum(sum)
		c.Totals.Messages, c.Totals.Turns = int64(i+1), int64(i+1)
		c.Messages = history.AppendMessage(nil, &m)
		text, sum = appendFrame(text, c.payload(nil))
	}
	return text
}

func TestCrashSeqsOfTwoWritersAreKeptAndToldAndNotUsedAgain(t *testing.T) {
	t.Parallel()
	b := newBook(t, 2)
	for _, tt := range []struct {
		seqs []int64
		next int64
	}{
		{[]int64{1, 2, 2, 3}, 4},
		{[]int64{1, 2, 3, 4, 5, 6, 7, 8, 9, 7}, 10},
		{[]int64{1, 2, 3, 3, 3}, 4},
	} {
		fsys := b.broken("a", b.forge(tt.seqs...))
		if found, _ := check(t, fsys); len(found) != 1 && tt.seqs[len(tt.seqs)-2] != 3 {
			t.Errorf("seqs %v: check finds %v, want one thing", tt.seqs, found)
		}
		s := mustOpen(t, fsys)
		l := s.Log(ann, "a")
		state, err := l.State(t.Context())
		if err != nil || state.Damage == nil {
			t.Errorf("seqs %v: state %+v, %v", tt.seqs, state, err)
		}
		var want []string
		for i, seq := range tt.seqs {
			want = append(want, fmt.Sprintf("%d:forged%d", seq, i))
		}
		if got := texts(t, l); !slices.Equal(got, want) {
			t.Errorf("seqs %v: read %q, want %q", tt.seqs, got, want)
		}
		if r, err := l.Append(t.Context(), batch("next")); err != nil || r.FirstSeq != tt.next {
			t.Errorf("seqs %v: the next append got %+v, %v; want seq %d", tt.seqs, r, err, tt.next)
		}
		_ = s.Close()
	}
}

func TestCrashASegmentOfAnotherIsRefused(t *testing.T) {
	t.Parallel()
	b := newBook(t, 3)
	for _, tt := range []struct {
		name string
		text []byte
	}{
		{"of another conversation", b.text("b")},
		{"of another caller", bobs(t)},
	} {
		fsys := b.broken("a", tt.text)
		found, _ := check(t, fsys)
		if !slices.ContainsFunc(found, func(f Finding) bool { return f.Kind == "foreign" }) {
			t.Errorf("%s: check finds %v", tt.name, found)
		}
		s := mustOpen(t, fsys)
		l := s.Log(ann, "a")
		_, err := l.State(t.Context())
		_, err2 := l.View(t.Context())
		_, err3 := l.Append(t.Context(), batch("more"))
		_, err4 := l.FindCalls(t.Context(), "c", false)
		for i, err := range []error{err, err2, err3, err4} {
			if !errors.Is(err, history.ErrDamaged) {
				t.Errorf("%s: error %d is %v", tt.name, i, err)
			}
		}
		wantContent(t, tt.name, s.Log(ann, "b"), b.want["b"])
		if err := l.Clear(t.Context()); err != nil {
			t.Errorf("%s: Clear: %v", tt.name, err)
		}
		if _, err := l.Append(t.Context(), batch("more")); err != nil {
			t.Errorf("%s: after a clear: %v", tt.name, err)
		}
		_ = s.Close()
	}
}

// bobs is a segment of another caller's conversation of the same name.
func bobs(t *testing.T) []byte {
	fsys := crashfs.New()
	s := mustOpen(t, fsys)
	defer s.Close()
	if _, err := s.Log(scopeOf(t, "operator", "bob", ""), "a").Append(t.Context(), batch("secret of bob")); err != nil {
		t.Fatal(err)
	}
	for name, text := range fsys.Files() {
		if strings.HasSuffix(name, ".jsonl") {
			return text
		}
	}
	return nil
}

func TestCrashAnOlderSegmentOfAnotherIsRefused(t *testing.T) {
	t.Parallel()
	fsys := crashfs.New()
	s, err := Open(Options{FS: fsys, NewID: counterIDs(), SegmentBytes: 1})
	if err != nil {
		t.Fatal(err)
	}
	for i := range 4 {
		for _, c := range []string{"a", "b"} {
			if _, err := s.Log(ann, c).Append(t.Context(), batch(fmt.Sprint(c, i))); err != nil {
				t.Fatal(err)
			}
		}
	}
	name := s.dirOf(transcriptKey{ann, "a"}) + "/" + segmentName(2)
	foreign := fsys.Files()[s.dirOf(transcriptKey{ann, "b"})+"/"+segmentName(2)]
	_ = s.Close()
	fsys.Corrupt(name, func([]byte) []byte { return foreign })
	s = mustOpen(t, fsys)
	defer s.Close()
	v, err := s.Log(ann, "a").View(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer v.Close()
	for _, from := range []int64{1, 2} {
		if got, err := collected(v, from); !errors.Is(err, history.ErrDamaged) || strings.Contains(fmt.Sprint(got), "b") {
			t.Errorf("from %d: read %q, %v", from, got, err)
		}
	}
	if got, err := collected(v, 3); err != nil || fmt.Sprint(got) != "[a2 a3]" {
		t.Errorf("what is not of another: read %q, %v", got, err)
	}
	for r, err := range v.Backward(5) {
		if err == nil && strings.Contains(string(r.JSON), `"b`) {
			t.Errorf("Backward read %s", r.JSON)
		}
	}
}

func collected(v history.View, from int64) (texts []string, err error) {
	for r, err := range v.Records(from, 1<<40) {
		if err != nil {
			return texts, err
		}
		m, err := r.Message()
		if err != nil {
			return texts, err
		}
		texts = append(texts, m.Content[0].Text)
	}
	return texts, nil
}
