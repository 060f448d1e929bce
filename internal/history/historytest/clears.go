package historytest

import (
	"errors"
	"fmt"
	"iter"
	"sync"
	"testing"

	"historyd/internal/history"
)

var clears = []one{
	{"a clear leaves nothing, and the next life begins at 1", nextLife},
	{"a clear of nothing is no error", clearNothing},
	{"a clear survives a restart", clearedAfterRestart},
	{"appends and clears at once never bring anything back", clearRaces},
	{"views in flight end", viewsEnd},
	{"an old view shows nothing of the next life", oldView},
	{"clears at once are all done", clearsAtOnce},
}

func nextLife(t *testing.T, e Engine) {
	l := e.Log("ann", "default")
	before := names(e)
	b := keyed("k", "a", "b", "c")
	b.Messages = append(b.Messages, call("c1", "search"), answer("x"))
	b.Fold = newFolder(t, 1, 1)
	first := mustAppend(t, l, b)
	mustClear(t, l)
	wantTexts(t, l)
	if s := mustState(t, l); s.Exists() || s.Title != "" || s.Summary != nil || s.Answered || s.Turns != 0 || s.Bytes != 0 || s.ETag() != `"0-0"` {
		t.Errorf("after a clear the state is %+v", s)
	}
	_, err := l.FindCalls(background, "c1", false)
	wantError(t, "FindCalls after a clear", err, history.ErrNotFound)
	if now := names(e); len(now) > len(before)+2 {
		t.Errorf("a clear left %q, before the conversation began there was %q", now, before)
	}
	second := mustAppend(t, l, keyed("k", "d"))
	if second.Replayed || second.FirstSeq != 1 || second.Epoch == first.Epoch {
		t.Errorf("receipt of the next life %+v, of the one before %+v", second, first)
	}
	wantTexts(t, l, "d")
	if s := mustState(t, l); s.Title != "d" || s.Summary != nil || s.Turns != 1 {
		t.Errorf("the state of the next life is %+v", s)
	}
}

func names(e Engine) []string { return e.Names() }

func clearNothing(t *testing.T, e Engine) {
	mustClear(t, e.Log("ann", "never"))
	l := e.Log("ann", "default")
	mustAppend(t, l, said("a"))
	mustClear(t, l)
	mustClear(t, l)
	reopen(t, e)
	mustClear(t, e.Log("ann", "default"))
}

func clearedAfterRestart(t *testing.T, e Engine) {
	mustAppend(t, e.Log("ann", "default"), said("a"))
	mustAppend(t, e.Log("ann", "other"), said("b"))
	mustClear(t, e.Log("ann", "default"))
	reopen(t, e)
	wantTexts(t, e.Log("ann", "default"))
	wantTexts(t, e.Log("ann", "other"), "b")
	reopen(t, e)
	mustClear(t, e.Log("ann", "other")) // not in use before
	wantTexts(t, e.Log("ann", "other"))
}

func clearRaces(t *testing.T, e Engine) {
	l := e.Log("ann", "default")
	var mu sync.Mutex
	acked := map[string]history.Receipt{}
	together(6, func(i int) {
		for j := range 12 {
			if i == 0 {
				if err := l.Clear(background); err != nil {
					t.Errorf("Clear: %v", err)
				}
				continue
			}
			text := fmt.Sprintf("%d/%d", i, j)
			r, err := l.Append(background, said(text, text))
			if err != nil {
				t.Errorf("Append: %v", err)
			}
			mu.Lock()
			acked[text] = r
			mu.Unlock()
		}
	})
	check := func() {
		t.Helper()
		epoch := mustState(t, l).Epoch
		msgs := content(t, l)
		wantCounted(t, msgs)
		found := map[string]int{}
		for _, m := range msgs {
			found[textOf(m)]++
			if r := acked[textOf(m)]; r.Epoch != epoch {
				t.Errorf("%q of epoch %s came back in %s", textOf(m), r.Epoch, epoch)
			}
		}
		for text, r := range acked {
			if r.Epoch == epoch && found[text] != 2 {
				t.Errorf("%q was acknowledged in this life, and %d of 2 are there", text, found[text])
			}
		}
	}
	check()
	reopen(t, e)
	l = e.Log("ann", "default")
	check()
	mustClear(t, l)
	wantTexts(t, l)
}

// filled appends n messages in batches of 10.
func filled(t tb, l history.Log, n int) {
	t.Helper()
	for i := 0; i < n; i += 10 {
		var texts []string
		for j := i; j < min(n, i+10); j++ {
			texts = append(texts, fmt.Sprintf("m%d", j+1))
		}
		mustAppend(t, l, said(texts...))
	}
}

func viewsEnd(t *testing.T, e Engine) {
	for _, read := range []struct {
		name    string
		records func(history.View) iter.Seq2[history.Record, error]
	}{
		{"Records", func(v history.View) iter.Seq2[history.Record, error] { return v.Records(1, everything) }},
		{"Backward", func(v history.View) iter.Seq2[history.Record, error] { return v.Backward(everything) }},
	} {
		l := e.Log("ann", read.name)
		filled(t, l, 500)
		v := mustView(t, l)
		defer v.Close()
		next, stop := iter.Pull2(read.records(v))
		defer stop()
		for range 15 {
			if _, err, ok := next(); err != nil || !ok {
				t.Fatalf("%s: %v before the clear", read.name, err)
			}
		}
		mustClear(t, l)
		if _, err, ok := next(); !ok || !errors.Is(err, history.ErrGone) {
			t.Errorf("%s: a read in flight went on with error %v", read.name, err)
		}
		if msgs, err := collect(read.records(v), everything); len(msgs) != 0 || !errors.Is(err, history.ErrGone) {
			t.Errorf("%s: a new read of a view of before gave %d messages and error %v", read.name, len(msgs), err)
		}
	}
}

func oldView(t *testing.T, e Engine) {
	l := e.Log("ann", "default")
	empty := mustView(t, l)
	defer empty.Close()
	mustAppend(t, l, said("old"))
	old := mustView(t, l)
	defer old.Close()
	mustAppend(t, l, said("newer"))
	if msgs, err := collect(old.Records(1, everything), everything); err != nil || len(msgs) != 1 {
		t.Errorf("a view of one message shows %q, %v", textsOf(msgs), err)
	}
	mustClear(t, l)
	mustAppend(t, l, said("new", "new", "new"))
	for _, records := range []iter.Seq2[history.Record, error]{old.Records(1, everything), old.Backward(everything)} {
		if msgs, err := collect(records, everything); len(msgs) != 0 || !errors.Is(err, history.ErrGone) {
			t.Errorf("a view of the life before shows %q, %v", textsOf(msgs), err)
		}
	}
	if msgs, _ := collect(empty.Records(1, everything), everything); len(msgs) != 0 {
		t.Errorf("a view of nothing shows %q", textsOf(msgs))
	}
	wantTexts(t, l, "new", "new", "new")
}

func clearsAtOnce(t *testing.T, e Engine) {
	l := e.Log("ann", "default")
	filled(t, l, 20)
	together(8, func(int) {
		if err := l.Clear(background); err != nil {
			t.Errorf("Clear: %v", err)
		}
	})
	wantTexts(t, l)
}
