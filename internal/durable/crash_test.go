package durable_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"syscall"
	"testing"

	"historyd/internal/durable"
	"historyd/internal/durable/crashfs"
)

// everyFault runs a script with each of its operations failing in each way, once and for good, and each end of the
// process; check sees what the next process finds.
func everyFault(
	t *testing.T, script func(*crashfs.FS) error, check func(t *testing.T, what string, done bool, next *crashfs.FS),
) {
	rng := rand.New(rand.NewPCG(1, 2))
	for _, how := range []crashfs.How{crashfs.Before, crashfs.After, crashfs.Short} {
		for _, sticky := range []bool{false, true} {
			for at, reached := 0, true; reached; at++ {
				f := crashfs.New()
				must(t, durable.WriteFile(f, "f", []byte("old")))
				f.FailAt(f.Ops()+at, how, syscall.EIO, sticky)
				err := script(f)
				reached = f.Reached()
				if err == nil && reached && sticky {
					t.Fatalf("operation %d failed %v for good and nothing was said", at, how)
				}
				if n := f.OpenHandles(); n != 0 {
					t.Errorf("operation %d failed %v: %d files left open", at, how, n)
				}
				for range 5 {
					what := fmt.Sprintf("operation %d failed %v, sticky %t, power cut", at, how, sticky)
					check(t, what, err == nil, f.Crash(rng))
				}
				what := fmt.Sprintf("operation %d failed %v, sticky %t, killed", at, how, sticky)
				check(t, what, err == nil, f.Kill())
			}
		}
	}
}

func TestWriteFileIsAllOrNothing(t *testing.T) {
	script := func(f *crashfs.FS) error { return durable.WriteFile(f, "f", []byte("brand new")) }
	everyFault(t, script, func(t *testing.T, what string, done bool, next *crashfs.FS) {
		got := content(t, next, "f")
		if got != "brand new" && (done || got != "old") {
			t.Errorf("%s: got %q, done %t", what, got, done)
		}
	})
}

func TestWriteFileLeavesNothingBesideAfterAFailure(t *testing.T) {
	for at, reached := 0, true; reached; at++ {
		f := crashfs.New()
		must(t, durable.WriteFile(f, "f", []byte("old")))
		f.FailAt(f.Ops()+at, crashfs.Before, syscall.ENOSPC, false)
		err := durable.WriteFile(f, "f", []byte("new"))
		if reached = f.Reached(); reached && !errors.Is(err, syscall.ENOSPC) {
			t.Errorf("operation %d: got %v, want ENOSPC", at, err)
		}
		f.Heal()
		if got := tree(t, f, "."); got != "f" {
			t.Errorf("operation %d: left %q", at, got)
		}
	}
}

func TestWriteFileOnAFullDiskKeepsTheOldContent(t *testing.T) {
	f := crashfs.New()
	must(t, durable.WriteFile(f, "f", []byte("old")))
	f.SetCapacity(8)
	wantErr(t, "WriteFile", durable.WriteFile(f, "f", []byte("too long")), syscall.ENOSPC)
	if got := content(t, f, "f"); got != "old" {
		t.Errorf("got %q", got)
	}
	must(t, durable.WriteFile(f, "f", []byte("fits")))
}

func TestMkdirAllIsDurableAlsoAfterAnAttemptThatFailed(t *testing.T) {
	script := func(f *crashfs.FS) error {
		if durable.MkdirAll(f, "a/b/c") == nil {
			return nil
		}
		return durable.MkdirAll(f, "a/b/c")
	}
	everyFault(t, script, func(t *testing.T, what string, done bool, next *crashfs.FS) {
		if got := tree(t, next, "."); done && !strings.Contains(got, "a/b/c/") {
			t.Errorf("%s: got %q", what, got)
		}
	})
}

func TestRemoveAllIsDurableAfterASync(t *testing.T) {
	script := func(f *crashfs.FS) error {
		err := errors.Join(durable.MkdirAll(f, "d/e"), durable.WriteFile(f, "d/e/f", nil), durable.WriteFile(f, "d/g", nil))
		if err != nil {
			return err
		}
		if err := durable.RemoveAll(f, "d"); err != nil {
			return err
		}
		return f.SyncDir(".")
	}
	everyFault(t, script, func(t *testing.T, what string, done bool, next *crashfs.FS) {
		if got := strings.Fields(tree(t, next, ".")); done && slices.Contains(got, "d/") {
			t.Errorf("%s: got %q", what, got)
		}
	})
}
