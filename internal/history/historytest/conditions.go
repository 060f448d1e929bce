package historytest

import (
	"errors"
	"fmt"
	"testing"

	"historyd/internal/history"
)

var conditions = []one{
	{"of many that saw the same version one wins", oneWinner},
	{"two clients that take turns lose nothing", takeTurns},
	{"the version shown is the one that is compared", sameVersion},
	{"each life has versions of its own", versionsOfLives},
	{"folds do not move the version", foldsKeepVersion},
	{"a condition sees what is committed with it", conditionInGroup},
}

// versionSeen is what a condition is shown.
func versionSeen(t tb, l history.Log) string {
	t.Helper()
	seen := ""
	b := said("never")
	b.IfMatch = func(etag string) bool { seen = etag; return false }
	_, err := l.Append(background, b)
	wantError(t, "Append with a condition that does not hold", err, history.ErrPrecondition)
	return seen
}

// on is a condition that holds at one version.
func on(etag string) func(string) bool { return func(now string) bool { return now == etag } }

func oneWinner(t *testing.T, e Engine) {
	l := e.Log("ann", "default")
	for round := range 4 {
		etag := mustState(t, l).ETag()
		errs := make([]error, 20)
		together(20, func(i int) {
			b := said(fmt.Sprintf("%d/%d", round, i))
			b.IfMatch = on(etag)
			_, errs[i] = l.Append(background, b)
		})
		won := 0
		for _, err := range errs {
			switch {
			case err == nil:
				won++
			case !errors.Is(err, history.ErrPrecondition):
				t.Errorf("Append: %v", err)
			}
		}
		if won != 1 || mustState(t, l).LastSeq != int64(round+1) {
			t.Fatalf("round %d: %d of 20 won, LastSeq %d", round, won, mustState(t, l).LastSeq)
		}
	}
}

func takeTurns(t *testing.T, e Engine) {
	l := e.Log("ann", "default")
	together(4, func(client int) {
		for i := range 5 {
			for {
				s, err := l.State(background)
				if err != nil {
					t.Errorf("State: %v", err)
					return
				}
				b := said(fmt.Sprintf("%d/%d after %d", client, i, s.LastSeq))
				b.IfMatch = on(s.ETag())
				if _, err = l.Append(background, b); err == nil {
					break
				}
				if !errors.Is(err, history.ErrPrecondition) {
					t.Errorf("Append: %v", err)
					return
				}
			}
		}
	})
	msgs := content(t, l)
	if len(msgs) != 20 {
		t.Fatalf("%d messages, want 20", len(msgs))
	}
	for i, m := range msgs {
		var client, n, after int
		if _, err := fmt.Sscanf(textOf(m), "%d/%d after %d", &client, &n, &after); err != nil || after != i {
			t.Errorf("seq %d says %q", m.Seq, textOf(m))
		}
	}
}

func sameVersion(t *testing.T, e Engine) {
	l := e.Log("ann", "default")
	same := func(what string) {
		t.Helper()
		s := mustState(t, l)
		v := mustView(t, l)
		defer v.Close()
		if seen := versionSeen(t, l); seen != s.ETag() || v.State().ETag() != s.ETag() {
			t.Errorf("%s: State has %s, the view %s, the condition saw %s", what, s.ETag(), v.State().ETag(), seen)
		}
	}
	restarted := func(what string) {
		t.Helper()
		same(what)
		before := mustState(t, l).ETag()
		reopen(t, e)
		l = e.Log("ann", "default")
		same(what + " and a restart")
		if now := mustState(t, l).ETag(); now != before {
			t.Errorf("%s: a restart moved the version from %s to %s", what, before, now)
		}
	}
	restarted("nothing")
	if got := mustState(t, l).ETag(); got != `"0-0"` {
		t.Errorf("what does not exist has version %s", got)
	}
	mustAppend(t, l, keyed("k"))
	restarted("an append of nothing")
	r := mustAppend(t, l, said("a", "b"))
	restarted("an append")
	if got, want := mustState(t, l).ETag(), history.ETag(r.Epoch, r.LastSeq); got != want {
		t.Errorf("the version is %s, the receipt says %s", got, want)
	}
	mustAppend(t, l, history.Batch{})
	restarted("another append of nothing")
	mustImport(t, l, history.Import{Mode: history.Extend, Messages: all(person("c"))})
	restarted("an import")
	mustImport(t, l, history.Import{Mode: history.Replace, Messages: all(person("d"))})
	restarted("a replacement")
	mustImport(t, l, history.Import{Mode: history.Replace, Messages: all()})
	restarted("a replacement by nothing")
	mustClear(t, l)
	restarted("a clear")
}

func versionsOfLives(t *testing.T, e Engine) {
	l := e.Log("ann", "default")
	seen := map[string]bool{}
	for life := range 4 {
		r := mustAppend(t, l, said("a"))
		s := mustState(t, l)
		if seen[s.ETag()] || seen[r.Epoch] || s.LastSeq != 1 {
			t.Errorf("life %d has version %s and epoch %s, as one before", life, s.ETag(), r.Epoch)
		}
		seen[s.ETag()], seen[r.Epoch] = true, true
		if life%2 == 0 {
			mustClear(t, l)
		} else {
			mustImport(t, l, history.Import{Mode: history.Replace, Messages: all()})
			mustClear(t, l)
		}
		b := said("b")
		b.IfMatch = on(s.ETag())
		_, err := l.Append(background, b)
		wantError(t, "Append on a version of the life before", err, history.ErrPrecondition)
	}
}

func foldsKeepVersion(t *testing.T, e Engine) {
	l := e.Log("ann", "default")
	b := said("a", "b", "c")
	b.Fold = newFolder(t, 1, 1)
	r := mustAppend(t, l, b)
	if s := mustState(t, l); s.Summary == nil || s.ETag() != history.ETag(r.Epoch, 3) {
		t.Errorf("version %s, summary %+v", s.ETag(), s.Summary)
	}
}

func conditionInGroup(t *testing.T, e Engine) {
	l := e.Log("ann", "default")
	first := mustAppend(t, l, said("start"))
	seen := make([]string, 50)
	together(50, func(i int) {
		b := said(fmt.Sprint(i))
		b.IfMatch = func(etag string) bool { seen[i] = etag; return true }
		if _, err := l.Append(background, b); err != nil {
			t.Errorf("Append: %v", err)
		}
	})
	for _, m := range content(t, l)[1:] {
		var i int
		fmt.Sscan(textOf(m), &i)
		if want := history.ETag(first.Epoch, m.Seq-1); seen[i] != want {
			t.Errorf("the condition of seq %d saw %s, want %s", m.Seq, seen[i], want)
		}
	}
}
