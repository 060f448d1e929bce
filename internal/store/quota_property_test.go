package store

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"historyd/internal/durable/crashfs"
	"historyd/internal/history"
	"historyd/internal/identity"
)

// A ration is a store with quotas, and beside it the model: the files of a store without
// any, which is given only what the quotas must let in.
type ration struct {
	quota Quota
	fsys  *crashfs.FS
	store *Store
	model *crashfs.FS
}

// A deed is one thing done to one caller's conversations.
type deed struct {
	name  string
	scope identity.Scope
	over  int64 // how far it may go over the quota of bytes
	do    func(s *Store) error
}

func drawDeed(t *rapid.T, n int) deed {
	scope := rapid.SampledFrom([]identity.Scope{ann, bob}).Draw(t, "caller")
	conversation := rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "conversation")
	size := rapid.IntRange(0, 900).Draw(t, "size")
	msgs := []history.Message{user(fmt.Sprint(n, strings.Repeat("x", size)))}
	if rapid.Bool().Draw(t, "picture") {
		picture := fmt.Sprint("picture ", rapid.IntRange(0, 3).Draw(t, "which"), strings.Repeat("p", 200))
		msgs = append(msgs, shown(fmt.Sprint(n, "shown"), []byte(picture)))
	}
	d := deed{scope: scope, name: rapid.SampledFrom([]string{"append", "append", "append", "create", "append", "replace", "extend",
		"clear", "clear all", "rewind"}).Draw(t, "what")}
	d.do = func(s *Store) (err error) {
		l := s.Log(scope, conversation)
		switch d.name {
		case "append":
			_, err = l.Append(t.Context(), history.Batch{Messages: msgs, Key: fmt.Sprint("key ", n/2)})
		case "clear":
			err = l.Clear(t.Context())
		case "clear all":
			err = s.ClearAll(t.Context(), scope)
		case "rewind":
			_, err = l.Rewind(t.Context(), history.Rewind{})
		default:
			for i := range msgs {
				msgs[i].ID = fmt.Sprint("id-", n/2, "-", i)
			}
			mode := map[string]history.ImportMode{"create": history.Create, "replace": history.Replace, "extend": history.Extend}[d.name]
			_, err = l.Import(t.Context(), history.Import{Mode: mode, Messages: slices2(msgs)})
		}
		return err
	}
	if d.name == "rewind" {
		d.over = overdraft
	}
	return d
}

// allowed reports whether the quotas let the deed in, by what it would make of the model.
func (r *ration) allowed(t *rapid.T, d *deed) bool {
	before := onDiskOf(r.model, d.scope)
	tried := r.model.Kill()
	s := openWith(t, tried, Quota{})
	err := d.do(s)
	if cerr := s.Close(); cerr != nil {
		t.Fatal(cerr)
	}
	after := onDiskOf(tried, d.scope)
	if after.bytes > before.bytes && after.bytes-d.over > r.quota.Bytes ||
		after.conversations > before.conversations && after.conversations > r.quota.Conversations {
		r.model = r.model.Kill()
		return false
	}
	if r.model = tried; err != nil && after != before {
		t.Fatalf("the model: %s: %v", d.name, err)
	}
	return true
}

func (r *ration) compare(t *rapid.T, what string) {
	for _, scope := range []identity.Scope{ann, bob} {
		there := exact(t, what, r.store, r.fsys, scope)
		if want := onDiskOf(r.model, scope); there != want {
			t.Fatalf("%s: %s has %+v, the model %+v", what, scope, there, want)
		}
		if there.bytes > r.quota.Bytes+overdraft || there.conversations > r.quota.Conversations {
			t.Fatalf("%s: %s has %+v of %+v", what, scope, there, r.quota)
		}
	}
}

func TestQuotaHoldsWhateverIsDone(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		r := &ration{
			quota: Quota{Bytes: rapid.Int64Range(2000, 12_000).Draw(t, "bytes"), Conversations: rapid.Int64Range(1, 3).Draw(t, "conversations")},
			fsys:  crashfs.New(), model: crashfs.New(),
		}
		r.store = openWith(t, r.fsys, r.quota)
		for n := range rapid.IntRange(1, 25).Draw(t, "deeds") {
			switch rapid.IntRange(0, 7).Draw(t, "restart") {
			case 0:
				_ = r.store.Close()
				r.store = openWith(t, r.fsys, r.quota)
			case 1:
				r.fsys = r.fsys.Kill()
				r.store = openWith(t, r.fsys, r.quota)
			case 2:
				r.fsys = r.fsys.Crash(rng(n))
				r.store = openWith(t, r.fsys, r.quota)
			}
			d := drawDeed(t, n)
			allowed := r.allowed(t, &d)
			err := d.do(r.store)
			if full, refused := errors.AsType[*history.QuotaExceeded](err); refused == allowed || refused && full.Actual <= full.Limit {
				t.Fatalf("deed %d, %s, is allowed: %t; got %v, %+v", n, d.name, allowed, err, full)
			}
			r.compare(t, fmt.Sprintf("deed %d, %s", n, d.name))
		}
		_ = r.store.Close()
	})
}
