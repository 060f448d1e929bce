package historytest

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"strings"
	"testing"

	"historyd/internal/history"
)

var importsAmongOthers = []one{
	{"appends at once stand before or behind an import", appendsAtOnce},
	{"of many that create one wins", creates},
	{"an import given up leaves nothing", importGivenUp},
	{"reads go on while an import is under way", readsGoOn},
	{"the conversation is free while messages are taken", importHoldsNothing},
	{"a view of before is read on after an import that extends", viewOverImport},
	{"clears and imports at once leave one or nothing", clearsAndImports},
}

func appendsAtOnce(t *testing.T, e Engine) {
	l := e.Log("ann", "default")
	mustAppend(t, l, said("start"))
	const each = 12
	together(5, func(i int) {
		for j := range each {
			if i > 0 {
				text := fmt.Sprintf("%d/%d", i, j)
				if _, err := l.Append(background, said(text, text)); err != nil {
					t.Errorf("Append: %v", err)
				}
				continue
			}
			doc := document(20)
			for k := range doc {
				doc[k].ID = fmt.Sprint(j, " ", k)
				doc[k].Content = person(fmt.Sprintf("import %d/%d", j, k)).Content
			}
			if r, err := l.Import(background, history.Import{Mode: history.Extend, Messages: all(doc...)}); err != nil || r.Added != 20 {
				t.Errorf("Import: %+v, %v", r, err)
			}
		}
	})
	for range 2 {
		msgs := content(t, l)
		wantCounted(t, msgs)
		if want := 1 + 4*each*2 + each*20; len(msgs) != want {
			t.Fatalf("%d messages, want %d", len(msgs), want)
		}
		for i := 1; i < len(msgs); {
			n := 2
			if strings.HasPrefix(textOf(msgs[i]), "import") {
				n = 20
			}
			first, _, _ := strings.Cut(textOf(msgs[i]), "/")
			for _, m := range msgs[i : i+n] {
				if !strings.HasPrefix(textOf(m), first+"/") {
					t.Fatalf("%q stands within %q", textOf(m), first)
				}
			}
			i += n
		}
		reopen(t, e)
		l = e.Log("ann", "default")
	}
}

func creates(t *testing.T, e Engine) {
	l := e.Log("ann", "default")
	errs := make([]error, 10)
	together(10, func(i int) {
		_, errs[i] = l.Import(background, history.Import{Mode: history.Create, Messages: all(person(fmt.Sprint(i)), person(fmt.Sprint(i)))})
	})
	won := -1
	for i, err := range errs {
		if err == nil && won < 0 {
			won = i
		} else if !errors.Is(err, history.ErrNotEmpty) {
			t.Errorf("create %d: error %v, and %d won", i, err, won)
		}
	}
	wantTexts(t, l, fmt.Sprint(won), fmt.Sprint(won))
}

func importGivenUp(t *testing.T, e Engine) {
	l := e.Log("ann", "default")
	mustAppend(t, l, said("a"))
	ctx, cancel := context.WithCancel(background)
	endless := func(yield func(history.Message, error) bool) {
		for i := 0; yield(person(fmt.Sprint(i)), nil); i++ {
			if i == 2000 {
				cancel()
			}
			if i > 100_000 {
				panic("the import does not look at its context")
			}
		}
	}
	_, err := l.Import(ctx, history.Import{Mode: history.Replace, Messages: endless})
	wantError(t, "Import", err, context.Canceled)
	wantTexts(t, l, "a")
	mustAppend(t, l, said("b"))
	wantTexts(t, l, "a", "b")
}

// meanwhile yields messages, and calls fn in the middle.
func meanwhile(msgs []history.Message, fn func()) iter.Seq2[history.Message, error] {
	return func(yield func(history.Message, error) bool) {
		for i, m := range msgs {
			if i == len(msgs)/2 {
				fn()
			}
			if !yield(m, nil) {
				return
			}
		}
	}
}

func readsGoOn(t *testing.T, e Engine) {
	l := e.Log("ann", "default")
	mustAppend(t, l, said("a", "b"))
	for _, mode := range []history.ImportMode{history.Extend, history.Replace} {
		before := textsOf(content(t, l))
		mustImport(t, l, history.Import{Mode: mode, Messages: meanwhile(document(1000), func() {
			wantTexts(t, l, before...)
			mustAppend(t, e.Log("ann", "other"), said("not held up"))
		})})
	}
	wantTexts(t, l, documentTexts(1000)...)
}

func importHoldsNothing(t *testing.T, e Engine) {
	l := e.Log("ann", "default")
	mustAppend(t, l, said("a"))
	r := mustImport(t, l, history.Import{Mode: history.Extend, Messages: meanwhile(document(2), func() { mustAppend(t, l, said("b")) })})
	if r.FirstSeq != 3 {
		t.Errorf("receipt %+v", r)
	}
	mustImport(t, l, history.Import{Mode: history.Extend, Messages: meanwhile(withIDs(document(2), "x"), func() { mustRewind(t, l, 1) })})
	wantTexts(t, l, "a", "b", "d1", "d2", "d1", "d2")
	wantStanding(t, l, 1, 5, 6)
	_, err := e.Log("ann", "other").Import(background, history.Import{Mode: history.Create,
		Messages: meanwhile(document(2), func() { mustAppend(t, e.Log("ann", "other"), said("quicker")) })})
	wantError(t, "Import that creates what is there by now", err, history.ErrNotEmpty)
	wantTexts(t, e.Log("ann", "other"), "quicker")
	mustImport(t, l, history.Import{Mode: history.Extend, Messages: meanwhile(document(2), func() { mustClear(t, l) })})
	wantTexts(t, l, "d1", "d2")
}

// withIDs gives messages other ids.
func withIDs(msgs []history.Message, prefix string) []history.Message {
	for i := range msgs {
		msgs[i].ID = prefix + msgs[i].ID
	}
	return msgs
}

func viewOverImport(t *testing.T, e Engine) {
	l := e.Log("ann", "default")
	filled(t, l, 300)
	v := mustView(t, l)
	defer v.Close()
	next, stop := iter.Pull2(v.Records(1, everything))
	defer stop()
	n := 0
	for ; n < 50; n++ {
		if _, err, ok := next(); err != nil || !ok {
			t.Fatalf("Records: %v", err)
		}
	}
	mustImport(t, l, history.Import{Mode: history.Extend, Messages: all(document(10)...)})
	for {
		r, err, ok := next()
		if !ok {
			break
		}
		if n++; err != nil || r.Seq != int64(n) {
			t.Fatalf("message %d of a view of before: seq %d, %v", n, r.Seq, err)
		}
	}
	back, err := collect(v.Backward(everything), everything)
	if n != 300 || len(back) != 300 || err != nil {
		t.Fatalf("the view of 300 messages gave %d and backwards %d, %v", n, len(back), err)
	}
	mustClear(t, l)
	if _, err := collect(v.Records(1, everything), everything); !errors.Is(err, history.ErrGone) {
		t.Errorf("after a clear the view of before the import is read with error %v", err)
	}
}

func clearsAndImports(t *testing.T, e Engine) {
	l := e.Log("ann", "default")
	for round := range 5 {
		together(6, func(i int) {
			var err error
			switch i % 3 {
			case 0:
				err = l.Clear(background)
			case 1:
				_, err = l.Import(background, history.Import{Mode: history.Replace, Messages: all(document(200)...)})
			default:
				_, err = l.Append(background, said("own", "own"))
			}
			if err != nil {
				t.Errorf("%v", err)
			}
		})
		msgs := content(t, l)
		wantCounted(t, msgs)
		imported, own := 0, 0
		for _, m := range msgs {
			if m.ID != "" && m.ID[0] == 'd' {
				imported++
			} else {
				own++
			}
		}
		if imported != 0 && imported != 200 || own%2 != 0 {
			t.Errorf("round %d: %d imported and %d own messages", round, imported, own)
		}
	}
	mustClear(t, l)
	wantTexts(t, l)
}
