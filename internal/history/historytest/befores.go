package historytest

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"

	"historyd/internal/history"
)

var befores = []one{
	{"what comes before a change comes once, and may still read the old record", beforeAChange},
	{"what is refused has nothing before it", beforeARefusal},
	{"an error before a change keeps it from being made", beforeFails},
}

// changes are those that tell when they are about to be made.
func changes(l history.Log) map[string]func(before func() error) error {
	importing := func(mode history.ImportMode) func(func() error) error {
		return func(before func() error) error {
			_, err := l.Import(background, history.Import{Mode: mode, Messages: all(document(3)...), Before: before})
			return err
		}
	}
	return map[string]func(func() error) error{
		"a rewind": func(before func() error) error {
			_, err := l.Rewind(background, history.Rewind{Through: 1, Before: before})
			return err
		},
		"a replacing import":     importing(history.Replace),
		"an import that extends": importing(history.Extend),
	}
}

func beforeAChange(t *testing.T, e Engine) {
	for _, name := range []string{"a rewind", "a replacing import", "an import that extends"} {
		l := e.Log("ann", name)
		mustAppend(t, l, said("a", "b"))
		old := mustState(t, l)
		called := 0
		err := changes(l)[name](func() error {
			called++
			if now := mustState(t, l); now.ETag() != old.ETag() {
				t.Errorf("%s: before it the version is %s, want %s", name, now.ETag(), old.ETag())
			}
			wantTexts(t, l, "a", "b")
			return nil
		})
		if err != nil || called != 1 {
			t.Errorf("%s: called %d times, %v", name, called, err)
		}
		if now := mustState(t, l); now.ETag() == old.ETag() {
			t.Errorf("%s changed nothing", name)
		}
	}
}

func beforeARefusal(t *testing.T, e Engine) {
	l := e.Log("ann", "default")
	called := func() error {
		t.Error("called before what is refused")
		return nil
	}
	_, err := l.Rewind(background, history.Rewind{Before: called})
	wantError(t, "Rewind of nothing", err, history.ErrNotFound)
	imp := history.Import{Mode: history.Replace, Messages: all(document(3)...), Key: "k"}
	mustImport(t, l, imp)
	_, err = l.Rewind(background, history.Rewind{Through: 4, Before: called})
	wantError(t, "Rewind to nowhere", err, history.ErrNoSuchMessage)
	_, err = l.Rewind(background, history.Rewind{Through: 1, IfMatch: func(string) bool { return false }, Before: called})
	wantError(t, "Rewind of another version", err, history.ErrPrecondition)
	_, err = l.Import(background, history.Import{Mode: history.Create, Messages: all(document(3)...), Before: called})
	wantError(t, "Create of what is there", err, history.ErrNotEmpty)
	imp.Before = called
	if r := mustImport(t, l, imp); !r.Replayed {
		t.Errorf("the import of a known key: %+v", r)
	}
	imp.Key, imp.Mode = "", history.Extend
	if r := mustImport(t, l, imp); r.Added != 0 {
		t.Errorf("an import of what is there: %+v", r)
	}
}

func beforeFails(t *testing.T, e Engine) {
	l := e.Log("ann", "default")
	mustAppend(t, l, said("a", "b"))
	old := mustState(t, l)
	no := errors.New("no")
	for name := range changes(l) {
		if err := changes(l)[name](func() error { return no }); !errors.Is(err, no) {
			t.Errorf("%s: %v, want the error of what came before", name, err)
		}
		for range 2 {
			if diff := cmp.Diff(old, mustState(t, l)); diff != "" {
				t.Errorf("%s that was not made changed the state: %s", name, diff)
			}
			wantTexts(t, l, "a", "b")
			reopen(t, e)
			l = e.Log("ann", "default")
		}
	}
	for name, change := range changes(l) {
		if err := change(nil); err != nil {
			t.Errorf("%s afterwards: %v", name, err)
		}
	}
}
