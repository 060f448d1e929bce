package retention

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"historyd/internal/identity"
)

var start = time.Date(2030, 1, 31, 9, 30, 0, 0, time.UTC)

func scopeOf(id string) identity.Scope {
	c, err := identity.NewCaller(string(identity.Operator), id, "", "")
	if err != nil {
		panic(err)
	}
	return c.Scope()
}

// conversation is one of a caller's, whose newest activity is the n-th of all.
func conversation(caller string, n int, age time.Duration, bytes int64) Conversation {
	return Conversation{Scope: scopeOf(caller), Name: fmt.Sprint("c", n), Newest: fmt.Sprintf("%026d", n), At: start.Add(-age), Bytes: bytes}
}

// chosen lists what goes as "caller/name for reason", caller by caller.
func chosen(t testing.TB, r Rules, most int, list []Conversation) (names []string, more bool) {
	t.Helper()
	survey := func(_ context.Context, visit func(Conversation) error) error {
		for _, v := range list {
			if err := visit(v); err != nil {
				return err
			}
		}
		return nil
	}
	err := choose(context.Background(), r, start, most, survey, func(list []Choice, some bool) error {
		more = more || some
		for _, c := range list {
			names = append(names, c.Scope.ID()+"/"+c.Name+" for "+c.Reason)
		}
		return nil
	}, func(Conversation) {})
	if err != nil {
		t.Fatal(err)
	}
	return names, more
}

func TestWhatGoes(t *testing.T) {
	day := 24 * time.Hour
	list := []Conversation{
		conversation("ann", 5, 1*day, 10), conversation("ann", 1, 9*day, 20), conversation("ann", 3, 5*day, 30), conversation("ann", 2, 7*day, 40),
		conversation("bob", 4, 9*day, 1000),
		conversation("eve", 7, 0, 1), conversation("eve", 6, 9*day, 1),
	}
	for _, tt := range []struct {
		name  string
		rules Rules
		want  string
	}{
		{"nothing, without rules", Rules{}, ""},
		{"nothing, as nothing is old enough", Rules{MaxAge: 9 * day}, ""},
		{"what is older", Rules{MaxAge: 9*day - 1}, "ann/c1 for age, bob/c4 for age, eve/c6 for age"},
		{"what is much older, the oldest first", Rules{MaxAge: 5*day - 1}, "ann/c1 for age, ann/c2 for age, ann/c3 for age, bob/c4 for age, eve/c6 for age"},
		{"nothing, as nobody has too much", Rules{MaxBytes: 1000}, ""},
		{"the oldest of who has too much", Rules{MaxBytes: 99}, "ann/c1 for bytes"},
		{"just enough", Rules{MaxBytes: 80}, "ann/c1 for bytes"},
		{"one more", Rules{MaxBytes: 79}, "ann/c1 for bytes, ann/c2 for bytes"},
		{"never the newest", Rules{MaxBytes: 1}, "ann/c1 for bytes, ann/c2 for bytes, ann/c3 for bytes, eve/c6 for bytes"},
		{"first for age, then for bytes", Rules{MaxAge: 8 * day, MaxBytes: 79}, "ann/c1 for age, ann/c2 for bytes, bob/c4 for age, eve/c6 for age"},
		{"the newest only for its age", Rules{MaxAge: day - 1, MaxBytes: 1}, "ann/c1 for age, ann/c2 for age, ann/c3 for age, ann/c5 for age, bob/c4 for age, eve/c6 for age"},
	} {
		if got, _ := chosen(t, tt.rules, 0, list); strings.Join(got, ", ") != tt.want {
			t.Errorf("%s:\n got %s\nwant %s", tt.name, strings.Join(got, ", "), tt.want)
		}
	}
}

func TestTheClockOrdersNothing(t *testing.T) {
	// The second was active after the first, by a clock that had been set back by a day.
	list := []Conversation{conversation("ann", 1, time.Hour, 10), conversation("ann", 2, 25*time.Hour, 10), conversation("ann", 3, 0, 10)}
	if got, _ := chosen(t, Rules{MaxBytes: 20}, 0, list); strings.Join(got, ", ") != "ann/c1 for bytes" {
		t.Errorf("got %q, want the one whose id is the lowest", got)
	}
	future := []Conversation{conversation("ann", 1, -time.Hour, 10), conversation("ann", 2, 0, 10)}
	if got, _ := chosen(t, Rules{MaxAge: time.Minute}, 0, future); len(got) > 0 {
		t.Errorf("got %q, want nothing that is of a time to come", got)
	}
}

// What goes in sweeps of a few at a time is what goes at once.
func TestFewAtATimeComeToTheSame(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		rules := Rules{
			MaxAge:   time.Duration(rapid.IntRange(0, 50).Draw(rt, "age")) * time.Hour,
			MaxBytes: rapid.Int64Range(0, 300).Draw(rt, "bytes"),
		}
		var list []Conversation
		for _, caller := range []string{"ann", "bob"} {
			for n := range rapid.IntRange(0, 12).Draw(rt, "conversations") {
				list = append(list, conversation(caller, n, time.Duration(rapid.IntRange(0, 60).Draw(rt, "age of one"))*time.Hour,
					rapid.Int64Range(0, 60).Draw(rt, "bytes of one")))
			}
		}
		if !rapid.Bool().Draw(rt, "in order") {
			slices.SortStableFunc(list, func(a, b Conversation) int {
				if a.Scope != b.Scope {
					return strings.Compare(a.Scope.ID(), b.Scope.ID())
				}
				return strings.Compare(b.Newest, a.Newest)
			})
		}
		want, more := chosen(t, rules, 0, list)
		if more {
			rt.Fatal("there is more than all")
		}
		most := rapid.IntRange(1, 4).Draw(rt, "most")
		var got []string
		left := slices.Clone(list)
		for {
			names, more := chosen(t, rules, most, left)
			if len(names) > 2*most {
				rt.Fatalf("%d of two callers go at once, at most %d of each may", len(names), most)
			}
			for _, name := range names {
				got = append(got, name)
				left = slices.DeleteFunc(left, func(v Conversation) bool { return strings.HasPrefix(name, v.Scope.ID()+"/"+v.Name+" ") })
			}
			if !more {
				break
			}
		}
		slices.Sort(want)
		slices.Sort(got)
		if !slices.Equal(got, want) {
			rt.Fatalf("%d at a time: got %q, want %q", most, got, want)
		}
		invariants(rt, rules, list, left)
	})
}

// invariants says what the rules promise of what is left.
func invariants(t *rapid.T, r Rules, list, left []Conversation) {
	for _, caller := range []string{"ann", "bob"} {
		bytes, newest, n := int64(0), "", 0
		for _, v := range list {
			if v.Scope == scopeOf(caller) {
				newest = max(newest, v.Newest)
			}
		}
		for _, v := range left {
			if v.Scope != scopeOf(caller) {
				continue
			}
			bytes += v.Bytes
			n++
			if r.MaxAge > 0 && start.Sub(v.At) > r.MaxAge {
				t.Fatalf("%s/%s is left, which is too old", caller, v.Name)
			}
		}
		if r.MaxBytes > 0 && bytes > r.MaxBytes && n > 1 {
			t.Fatalf("%s has %d bytes in %d conversations, of %d", caller, bytes, n, r.MaxBytes)
		}
	}
}
