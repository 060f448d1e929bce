package historytest

import (
	"encoding/json/jsontext"
	"errors"
	"fmt"
	"iter"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"historyd/internal/history"
)

var imports = []one{
	{"a new record takes ids, times and marks as they are", keepsWhatItWas},
	{"create is refused where there are messages", createOnce},
	{"append adds what is not there by id", extendSkips},
	{"append of nothing new changes nothing", extendNothing},
	{"append to nothing makes a record", extendNew},
	{"replace begins another life", replaceLife},
	{"a key gives the first receipt again", importKey},
	{"a key of nothing new is remembered", importKeyOfNothing},
	{"an error in the middle leaves everything as it was", errorInTheMiddle},
	{"a large import is one", largeImport},
	{"an import of nothing is no conversation", emptyImport},
}

var (
	longAgo = time.Date(2020, 2, 29, 23, 59, 59, 123456000, time.UTC)
	errBad  = errors.New("bad message")
)

// withID gives messages ids, as those of an export have.
func withID(m history.Message, id string) history.Message {
	m.ID = id
	return m
}

// document makes n messages with ids d1, d2 …
func document(n int) (msgs []history.Message) {
	for i := range n {
		m := withID(person(fmt.Sprint("d", i+1)), fmt.Sprint("d", i+1))
		m.At, m.Imported = longAgo.Add(time.Duration(i)*time.Second), true
		msgs = append(msgs, m)
	}
	return msgs
}

func documentTexts(n int) (texts []string) {
	for i := range n {
		texts = append(texts, fmt.Sprint("d", i+1))
	}
	return texts
}

func keepsWhatItWas(t *testing.T, e Engine) {
	l := e.Log("ann", "default")
	m := withID(answer("a"), "from elsewhere/é")
	m.At, m.TZAssumed, m.Imported, m.Synthetic, m.Seq = longAgo, true, true, true, 99
	m.Content[0].Extra = jsontext.Value(`{"id":"x"}`)
	early := withID(person("earlier in time, later in the record"), "b")
	early.At = longAgo.Add(-time.Hour)
	bare := person("no id, no time")
	created := longAgo.Add(-24 * time.Hour)
	r := mustImport(t, l, history.Import{Mode: history.Create, Messages: all(m, early, bare), CreatedAt: at(created)})
	if r.FirstSeq != 1 || r.LastSeq != 3 || r.Added != 3 || r.Replayed || r.Epoch == "" {
		t.Errorf("receipt %+v", r)
	}
	for range 2 {
		got := content(t, l)
		m.Seq, early.Seq = 1, 2
		if diff := cmp.Diff([]history.Message{m, early}, got[:2]); diff != "" {
			t.Errorf("imported (-) and read (+):\n%s", diff)
		}
		if got[2].ID == "" || got[2].At.IsZero() || got[2].Seq != 3 {
			t.Errorf("what had no id became %+v", got[2])
		}
		if s := mustState(t, l); !s.CreatedAt.Equal(created) || s.LastSeq != 3 || s.Turns != 2 || !s.Answered || s.ETag() != history.ETag(r.Epoch, 3) {
			t.Errorf("State %+v", s)
		}
		reopen(t, e)
		l = e.Log("ann", "default")
	}
	next := mustAppend(t, l, said("next"))
	if next.FirstSeq != 4 || next.Epoch != r.Epoch {
		t.Errorf("receipt of the append after it %+v", next)
	}
	if s := mustState(t, l); !s.CreatedAt.Equal(created) {
		t.Errorf("an append moved CreatedAt to %v", s.CreatedAt)
	}
}

func createOnce(t *testing.T, e Engine) {
	l := e.Log("ann", "default")
	mustAppend(t, l, said("a"))
	before := mustState(t, l)
	never := func(func(history.Message, error) bool) { t.Error("messages were taken for nothing") }
	_, err := l.Import(background, history.Import{Mode: history.Create, Messages: never, Key: "k"})
	wantError(t, "Import", err, history.ErrNotEmpty)
	_, err = l.Import(background, history.Import{Mode: history.Create, Messages: never})
	wantError(t, "Import", err, history.ErrNotEmpty)
	if diff := cmp.Diff(before, mustState(t, l)); diff != "" {
		t.Errorf("before the refused import (-) and after it (+):\n%s", diff)
	}
	wantTexts(t, l, "a")
	mustClear(t, l)
	mustImport(t, l, history.Import{Mode: history.Create, Messages: all(document(3)...)})
	wantTexts(t, l, documentTexts(3)...)
}

func extendSkips(t *testing.T, e Engine) {
	l := e.Log("ann", "default")
	first := mustImport(t, l, history.Import{Mode: history.Create, Messages: all(document(3)...), CreatedAt: at(longAgo)})
	own := mustAppend(t, l, said("own"))
	doc := document(5)
	doc = append(doc, withID(person("not again"), own.IDs[0]))
	var skipped []int64
	r := mustImport(t, l, history.Import{
		Mode: history.Extend, Messages: all(doc...), CreatedAt: at(longAgo.Add(time.Hour)),
		Note: func(s []int64) jsontext.Value { skipped = s; return jsontext.Value(`{"n":1}`) },
	})
	if r.Added != 2 || r.FirstSeq != 5 || r.LastSeq != 6 || r.Epoch != first.Epoch || string(r.Note) != `{"n":1}` {
		t.Errorf("receipt %+v", r)
	}
	if diff := cmp.Diff([]int64{0, 1, 2, 5}, skipped); diff != "" {
		t.Errorf("skipped: %s", diff)
	}
	for range 2 {
		wantTexts(t, l, "d1", "d2", "d3", "own", "d4", "d5")
		if s := mustState(t, l); !s.CreatedAt.Equal(longAgo) {
			t.Errorf("an import to a record moved CreatedAt to %v", s.CreatedAt)
		}
		reopen(t, e)
		l = e.Log("ann", "default")
	}
	mustAppend(t, l, said("next"))
	wantTexts(t, l, "d1", "d2", "d3", "own", "d4", "d5", "next")
}

func extendNothing(t *testing.T, e Engine) {
	l := e.Log("ann", "default")
	mustImport(t, l, history.Import{Mode: history.Create, Messages: all(document(4)...)})
	before := mustState(t, l)
	r := mustImport(t, l, history.Import{Mode: history.Extend, Messages: all(document(4)...)})
	if r.Added != 0 || r.FirstSeq != 0 || r.LastSeq != 4 || r.Epoch != before.Epoch {
		t.Errorf("receipt %+v", r)
	}
	if now := mustState(t, l); now.ETag() != before.ETag() {
		t.Errorf("the version moved from %s to %s", before.ETag(), now.ETag())
	}
	wantTexts(t, l, documentTexts(4)...)
}

func extendNew(t *testing.T, e Engine) {
	l := e.Log("ann", "default")
	r := mustImport(t, l, history.Import{Mode: history.Extend, Messages: all(document(4)...), CreatedAt: at(longAgo)})
	if r.Added != 4 || r.FirstSeq != 1 || r.LastSeq != 4 {
		t.Errorf("receipt %+v", r)
	}
	reopen(t, e)
	l = e.Log("ann", "default")
	wantTexts(t, l, documentTexts(4)...)
	if s := mustState(t, l); !s.CreatedAt.Equal(longAgo) {
		t.Errorf("CreatedAt is %v", s.CreatedAt)
	}
}

func replaceLife(t *testing.T, e Engine) {
	l := e.Log("ann", "default")
	b := keyed("k", "old title", "b", "c")
	b.Fold = newFolder(t, 1, 1)
	old := mustAppend(t, l, b)
	v := mustView(t, l)
	defer v.Close()
	r := mustImport(t, l, history.Import{Mode: history.Replace, Messages: all(document(2)...)})
	if r.Epoch == old.Epoch || r.FirstSeq != 1 || r.LastSeq != 2 {
		t.Errorf("receipt %+v after %+v", r, old)
	}
	if msgs, err := collect(v.Records(1, everything), everything); len(msgs) != 0 || !errors.Is(err, history.ErrGone) {
		t.Errorf("a view of what was replaced gave %q, %v", textsOf(msgs), err)
	}
	for range 2 {
		wantTexts(t, l, "d1", "d2")
		if s := mustState(t, l); s.Title != "d1" || s.Summary != nil || s.Turns != 2 {
			t.Errorf("State %+v", s)
		}
		reopen(t, e)
		l = e.Log("ann", "default")
	}
	if again := mustAppend(t, l, keyed("k", "old title", "b", "c")); again.Replayed {
		t.Error("a key of what was replaced is remembered")
	}
}

func importKey(t *testing.T, e Engine) {
	for _, mode := range []history.ImportMode{history.Create, history.Extend, history.Replace} {
		l := e.Log("ann", string(mode))
		if mode != history.Create {
			mustAppend(t, l, said("before"))
		}
		imp := func(n int) history.Import {
			return history.Import{
				Mode: mode, Messages: all(document(n)...), Key: "k", Fingerprint: func() [32]byte { return [32]byte{byte(n)} },
				Note: func(s []int64) jsontext.Value { return jsontext.Value(fmt.Sprintf(`{"skipped":%d}`, len(s))) },
			}
		}
		first := mustImport(t, l, imp(300))
		mustAppend(t, l, said("after"))
		first.Replayed = true
		for range 2 {
			if diff := cmp.Diff(first, mustImport(t, l, imp(300))); diff != "" {
				t.Errorf("%s: first receipt (-) and the one given again (+):\n%s", mode, diff)
			}
			_, err := l.Import(background, imp(301))
			wantError(t, "Import of another document", err, history.ErrKeyMismatch)
			_, err = l.Append(background, keyed("k", "x"))
			wantError(t, "Append with the key of an import", err, history.ErrKeyMismatch)
			reopen(t, e)
			l = e.Log("ann", string(mode))
		}
	}
}

func importKeyOfNothing(t *testing.T, e Engine) {
	for _, name := range []string{"there", "new"} {
		l := e.Log("ann", name)
		doc := document(0)
		if name == "there" {
			doc = document(2)
			mustImport(t, l, history.Import{Mode: history.Create, Messages: all(doc...)})
		}
		imp := history.Import{Mode: history.Extend, Messages: all(doc...), Key: "k", Note: func([]int64) jsontext.Value { return jsontext.Value(`[2]`) }}
		first := mustImport(t, l, imp)
		mustAppend(t, l, said("own"))
		first.Replayed = true
		for range 2 {
			if diff := cmp.Diff(first, mustImport(t, l, imp)); diff != "" {
				t.Errorf("%s: first receipt (-) and the one given again (+):\n%s", name, diff)
			}
			reopen(t, e)
			l = e.Log("ann", name)
		}
		wantTexts(t, l, append(documentTexts(len(doc)), "own")...)
	}
}

// failing yields messages and then an error.
func failing(msgs []history.Message) iter.Seq2[history.Message, error] {
	return func(yield func(history.Message, error) bool) {
		for _, m := range msgs {
			if !yield(m, nil) {
				return
			}
		}
		yield(history.Message{}, errBad)
	}
}

func errorInTheMiddle(t *testing.T, e Engine) {
	for _, mode := range []history.ImportMode{history.Create, history.Extend, history.Replace} {
		for _, there := range []bool{false, true} {
			if mode == history.Create && there {
				continue
			}
			l := e.Log("ann", fmt.Sprint(mode, there))
			if there {
				mustAppend(t, l, said("a", "b"))
			}
			before, stored := mustState(t, l), len(e.Names())
			for _, n := range []int{0, 1, 1000} {
				_, err := l.Import(background, history.Import{Mode: mode, Messages: failing(document(n)), Key: "k"})
				wantError(t, "Import", err, errBad)
				if diff := cmp.Diff(before, mustState(t, l)); diff != "" {
					t.Errorf("%s: before an import that failed after %d messages (-) and after it (+):\n%s", mode, n, diff)
				}
			}
			if there {
				wantTexts(t, l, "a", "b")
			} else if now := e.Names(); len(now) > stored+2 {
				t.Errorf("%s: imports that failed left %q", mode, now)
			}
			if r := mustImport(t, l, history.Import{Mode: mode, Messages: all(document(1)...), Key: "k"}); r.Replayed {
				t.Errorf("%s: the key of a failed import is remembered", mode)
			}
		}
	}
}

func largeImport(t *testing.T, e Engine) {
	l := e.Log("ann", "default")
	mustAppend(t, l, said("first"))
	mustImport(t, l, history.Import{Mode: history.Extend, Messages: all(document(3000)...)})
	mustAppend(t, l, said("last"))
	want := append(append([]string{"first"}, documentTexts(3000)...), "last")
	wantTexts(t, l, want...)
	reopen(t, e)
	wantTexts(t, e.Log("ann", "default"), want...)
}

func emptyImport(t *testing.T, e Engine) {
	for _, mode := range []history.ImportMode{history.Create, history.Extend, history.Replace} {
		l := e.Log("ann", string(mode))
		mustImport(t, l, history.Import{Mode: mode, Messages: all()})
		wantTexts(t, l)
		if s := mustState(t, l); s.Exists() || s.ETag() != `"0-0"` {
			t.Errorf("%s: State %+v", mode, s)
		}
		mustImport(t, l, history.Import{Mode: history.Create, Messages: all(document(2)...)})
		wantTexts(t, l, "d1", "d2")
	}
}

func at(t time.Time) func() time.Time { return func() time.Time { return t } }
