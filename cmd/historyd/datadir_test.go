package main

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// The lock of an empty store is the last that may go but for the directory, or another daemon could begin in what is being removed.
func TestAnEmptyStoreGoesWithItsLockLast(t *testing.T) {
	dir := t.TempDir()
	in := func(name string) string { return filepath.Join(dir, name) }
	for _, name := range []string{"transcripts", "staging", "trash"} {
		if err := os.Mkdir(in(name), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"LOCK", "format"} {
		if err := os.WriteFile(in(name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if got, want := emptyStore(dir), []string{in("format"), in("staging"), in("transcripts"), in("trash"), in("LOCK"), dir}; !slices.Equal(got, want) {
		t.Errorf("removed in the order %q, want %q", got, want)
	}
	for _, foreign := range []string{"callers.json", "transcripts/x"} {
		if err := os.WriteFile(in(foreign), nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if got := emptyStore(dir); got != nil {
			t.Errorf("beside %s: %q", foreign, got)
		}
		if err := os.Remove(in(foreign)); err != nil {
			t.Fatal(err)
		}
	}
}
