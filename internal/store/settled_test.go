package store

import (
	"slices"
	"syscall"
	"testing"

	"historyd/internal/durable/crashfs"
	"historyd/internal/history"
)

// What an append in doubt left may be on the disk. A rewind to where the conversation ends for its callers puts an end to
// it, though it takes nothing away.
func TestCrashARewindToTheEndEndsAnAppendInDoubt(t *testing.T) {
	doubtful := 0
	for at := range 6 {
		fsys := crashfs.New()
		s, err := start(fsys)
		if err != nil {
			t.Fatal(err)
		}
		l := s.Log(ann, "a")
		first, err := l.Append(t.Context(), batch("said"))
		if err != nil {
			t.Fatal(err)
		}
		fsys.FailAt(fsys.Ops()+at, crashfs.After, syscall.EIO, false)
		if _, err := l.Append(t.Context(), batch("in doubt")); err == nil {
			continue // not an operation of the append any more
		}
		doubtful++
		if _, err := l.Rewind(t.Context(), history.Rewind{Through: first.LastSeq}); err != nil {
			t.Fatal(err)
		}
		if s, err = start(fsys.Kill()); err != nil {
			t.Fatal(err)
		}
		if got, _ := standingIn(t, s.Log(ann, "a")); !slices.Equal(got, []int64{first.LastSeq}) {
			t.Errorf("operation %d failed: after the rewind and a start these stand: %v", at, got)
		}
	}
	if doubtful < 2 {
		t.Errorf("%d appends were in doubt", doubtful)
	}
}
