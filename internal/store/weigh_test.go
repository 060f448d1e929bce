package store

import (
	"errors"
	"fmt"
	"path"
	"strings"
	"syscall"
	"testing"

	"historyd/internal/durable/crashfs"
	"historyd/internal/identity"
)

// TestQuotaIsWeighedByWhoWrites counts what a start, a read and a first write look at.
func TestQuotaIsWeighedByWhoWrites(t *testing.T) {
	t.Parallel()
	fsys := crashfs.New()
	s := openWith(t, fsys, Quota{})
	for i := range 30 {
		for _, scope := range []identity.Scope{ann, bob} {
			if _, err := s.Log(scope, fmt.Sprint("c", i)).Append(t.Context(), batch("x")); err != nil {
				t.Fatal(err)
			}
		}
	}
	_ = s.Close()
	fsys = fsys.Kill()
	listed := map[bool]int{} // by whether it is ann's
	fsys.FailWhen(func(op crashfs.Op) error {
		if op.Kind == "List" && strings.Contains(op.Name, transcriptsName) {
			listed[strings.Contains(op.Name, ann.Dir())]++
		}
		return nil
	})
	s = openWith(t, fsys, Quota{Bytes: 1 << 40})
	texts(t, s.Log(ann, "c1"))
	if len(listed) != 0 {
		t.Errorf("a start and a read list %v directories", listed)
	}
	for range 5 {
		if _, err := s.Log(ann, "c1").Append(t.Context(), batch("y")); err != nil {
			t.Fatal(err)
		}
	}
	if listed[true] != 32 || listed[false] != 0 { // hers, each in it, and once more the one written to
		t.Errorf("5 appends list %d directories of who writes and %d of another", listed[true], listed[false])
	}
	exact(t, "after a start", s, fsys, ann)
}

// TestQuotaIsWeighedAnewWhenNobodyKnows fails a write and the look at what it left.
func TestQuotaIsWeighedAnewWhenNobodyKnows(t *testing.T) {
	t.Parallel()
	fsys := newBook(t, 2).closed.Kill()
	s := openWith(t, fsys, Quota{Bytes: 1 << 20})
	l := s.Log(ann, "a")
	if _, err := l.Append(t.Context(), batch("x")); err != nil {
		t.Fatal(err)
	}
	fsys.FailAt(fsys.Ops(), crashfs.Short, errors.New("broken"), true)
	_, err := l.Append(t.Context(), batch("lost"))
	fsys.Heal()
	if err == nil {
		t.Fatal("the append went through")
	}
	if _, ok, _ := booked(s, ann); ok {
		t.Error("the account is believed though nobody knows what the append left")
	}
	if _, err := s.Log(ann, "b").Append(t.Context(), batch("y")); err != nil {
		t.Fatal(err)
	}
	if _, ok, _ := booked(s, ann); !ok {
		t.Error("there is no account after a write")
	}
	exact(t, "weighed anew", s, fsys, ann)
}

// TestQuotaCountsWhatCouldNotBeListed keeps a directory from being listed for a while.
func TestQuotaCountsWhatCouldNotBeListed(t *testing.T) {
	t.Parallel()
	b := newBook(t, 2)
	for _, tt := range []struct {
		next  string
		fails int // looks at it that fail: one when all are weighed, then one at the next two writes
	}{
		{"b", 2}, {"a", 2}, {"new", 2}, {"clear b", 2}, {"clear a", 2}, {"b", 3}, {"clear b", 3},
	} {
		next, fails := tt.next, tt.fails
		fsys := b.closed.Kill()
		s := openWith(t, fsys, Quota{Bytes: 1 << 20})
		dir := path.Dir(b.files["b"])
		fsys.FailWhen(func(op crashfs.Op) error {
			if op.Kind == "List" && op.Name == dir && fails > 0 {
				fails--
				return syscall.EMFILE
			}
			return nil
		})
		if _, err := s.Log(ann, "a").Append(t.Context(), batch("x")); err != nil {
			t.Fatalf("one conversation keeps another from being written to: %v", err)
		}
		if _, ok, _ := booked(s, ann); ok {
			t.Fatal("the account says that it counts everything")
		}
		var err error
		if name, clear := strings.CutPrefix(next, "clear "); clear {
			err = s.Log(ann, name).Clear(t.Context())
		} else {
			_, err = s.Log(ann, next).Append(t.Context(), batch("y"))
		}
		if _, ok, _ := booked(s, ann); err != nil || !ok {
			t.Errorf("%s: %v, and everything is counted: %t", next, err, ok)
		}
		exact(t, next, s, fsys, ann)
	}
}
