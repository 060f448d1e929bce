package store

import (
	"bytes"
	"iter"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"historyd/internal/durable/crashfs"
	"historyd/internal/history"
)

// folded makes a record with a summary of three messages, and words of it when told.
func folded(t *testing.T, words bool) (*crashfs.FS, *Store, history.Log) {
	t.Helper()
	fsys := crashfs.New()
	s := mustOpen(t, fsys)
	l := s.Log(ann, "a")
	more(t, l, everyThird{})
	if words {
		if err := l.Summarise(t.Context(), mustStateOf(t, l).Epoch, history.Prose{Text: wordsOf(3), ThroughSeq: 3, Model: "m"}); err != nil {
			t.Fatal(err)
		}
	}
	return fsys, s, l
}

// more appends four messages, which makes a fold due.
func more(t *testing.T, l history.Log, f history.Folder) {
	t.Helper()
	b := batch("1", "2", "3", "4")
	b.Fold = f
	if _, err := l.Append(t.Context(), b); err != nil {
		t.Fatal(err)
	}
}

func mustStateOf(t *testing.T, l history.Log) history.State {
	t.Helper()
	s, err := l.State(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestWordsSurviveAPowerCut(t *testing.T) {
	fsys, _, l := folded(t, true)
	want := mustStateOf(t, l)
	for i := range 20 {
		cut := fsys.Crash(rng(i))
		s := mustOpen(t, cut)
		if diff := cmp.Diff(want, mustStateOf(t, s.Log(ann, "a"))); diff != "" {
			t.Fatalf("before a power cut (-) and after it (+):\n%s", diff)
		}
		more(t, s.Log(ann, "a"), everyThird{})
		if got := mustStateOf(t, s.Log(ann, "a")); got.Summary.Text != wordsOf(3) || got.Summary.TextSeq != 3 || got.Prose != nil {
			t.Fatalf("the summary is %+v", got.Summary)
		}
		mustCheck(t, cut)
	}
}

func TestDamagedWordsAreDropped(t *testing.T) {
	for _, behind := range []bool{false, true} {
		fsys, s, l := folded(t, true)
		if behind {
			if _, err := l.Append(t.Context(), batch("behind")); err != nil {
				t.Fatal(err)
			}
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		spoiled := 0
		for name, b := range fsys.Files() {
			if at := bytes.Index(b, []byte(`words through`)); at >= 0 {
				f, err := fsys.Open(name, true)
				if err != nil {
					t.Fatal(err)
				}
				if _, err := f.WriteAt([]byte("W"), int64(at)); err != nil {
					t.Fatal(err)
				}
				spoiled++
				_ = f.Close()
			}
		}
		if spoiled != 1 {
			t.Fatalf("%d segments hold the words", spoiled)
		}
		s = mustOpen(t, fsys)
		l = s.Log(ann, "a")
		state := mustStateOf(t, l)
		if state.Prose != nil || state.Summary == nil || state.Summary.ThroughSeq != 3 || state.Damage == nil {
			t.Errorf("behind %t: %+v", behind, state)
		}
		more(t, l, everyThird{})
		if state = mustStateOf(t, l); state.Summary.ThroughSeq <= 3 || state.Summary.Text != "" {
			t.Errorf("behind %t: the next summary is %+v", behind, state.Summary)
		}
	}
}

// Words are of the fold that they were written of, also where its line is lost.
func TestWordsOfALostFoldAreDropped(t *testing.T) {
	fsys, s, l := folded(t, false)
	more(t, l, everyThird{})
	state := mustStateOf(t, l)
	lost := state.Summary.ThroughSeq
	if err := l.Summarise(t.Context(), state.Epoch, history.Prose{Text: wordsOf(lost), ThroughSeq: lost, Model: "m"}); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	for name, b := range fsys.Files() {
		at := bytes.LastIndex(b, []byte(`"summary":{"lines"`))
		if at < 0 {
			continue
		}
		f, err := fsys.Open(name, true)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := f.WriteAt([]byte("S"), int64(at)+1); err != nil {
			t.Fatal(err)
		}
		_ = f.Close()
	}
	s = mustOpen(t, fsys)
	if state = mustStateOf(t, s.Log(ann, "a")); state.Summary == nil || state.Summary.ThroughSeq >= lost || state.Prose != nil {
		t.Errorf("the summary is %+v, and %+v waits for it", state.Summary, state.Prose)
	}
}

// invents is a folder that makes up a text.
type invents struct {
	text    string
	textSeq int64
}

func (invents) Due(_, _ history.Window) bool { return true }

func (f invents) Fold(prev *history.Summary, window iter.Seq2[history.Message, error]) (*history.Summary, error) {
	next, err := everyThird{}.Fold(prev, window)
	if next != nil {
		next.Text, next.TextSeq = f.text, f.textSeq
	}
	return next, err
}

// TestCheckFindsPlantedWords writes what no sound engine writes.
func TestCheckFindsPlantedWords(t *testing.T) {
	plant := func(change func(d *draft)) func(*testing.T, *Store) {
		return func(t *testing.T, s *Store) {
			tr, err := s.acquire(t.Context(), transcriptKey{ann, "a"})
			if err != nil {
				t.Fatal(err)
			}
			defer s.release(tr)
			d := tr.newDraft(tr.state.Load(), &scratch{})
			change(d)
			if err := tr.write(d); err != nil {
				t.Fatal(err)
			}
			tr.publish(d)
		}
	}
	folds := func(f history.Folder) func(*testing.T, *Store) {
		return func(t *testing.T, s *Store) { more(t, s.Log(ann, "a"), f) }
	}
	for _, tt := range []struct {
		name  string
		words bool
		plant func(*testing.T, *Store)
		want  string // "" means that it is sound
	}{
		{"nothing", true, folds(everyThird{}), ""},
		{"words of another fold", false, plant(func(d *draft) { d.summarise(&history.Prose{Text: "w", ThroughSeq: 2}) }), "of another fold than the newest"},
		{"words of another life", false, plant(func(d *draft) {
			d.snap.totals.Epoch = "0011223344556677"
			d.summarise(&history.Prose{Text: "w", ThroughSeq: 3})
		}), "of another life"},
		{"no words", false, plant(func(d *draft) { d.summarise(&history.Prose{ThroughSeq: 3}) }), "not of the form"},
		{"a text from nowhere", false, folds(invents{"made up", 3}), "words that no line before it has"},
		{"another text than the words", true, folds(invents{"made up", 3}), "words that no line before it has"},
		{"the words of less than the fold", true, folds(invents{wordsOf(3), 2}), "words that no line before it has"},
		{"a text that covers nothing", true, folds(invents{wordsOf(3), 0}), "covers less than its text"},
		{"a text that covers too much", true, folds(invents{wordsOf(3), 99}), "covers less than its text"},
		{"the words dropped", true, folds(invents{}), ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			fsys, s, _ := folded(t, tt.words)
			tt.plant(t, s)
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			found, _ := check(t, fsys)
			var details []string
			for _, f := range found {
				details = append(details, f.Detail)
			}
			if got := strings.Join(details, "; "); (tt.want == "") != (len(found) == 0) || !strings.Contains(got, tt.want) {
				t.Errorf("check finds %q, want %q", got, tt.want)
			}
		})
	}
}
