package store

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"historyd/internal/durable/crashfs"
	"historyd/internal/history"
)

const canary = "CANARY"

// wantNoCanary looks for it in every file, those that are removed but open included.
func wantNoCanary(t *testing.T, what string, fsys *crashfs.FS) {
	t.Helper()
	for name, text := range fsys.Files() {
		if bytes.Contains(text, []byte(canary)) {
			t.Fatalf("%s: the canary is in %s", what, name)
		}
	}
}

// litter is what may be about a conversation when it is cleared. Each ends with the
// canary in the record, and perhaps elsewhere.
var litter = map[string]func(t *testing.T, fsys *crashfs.FS, s *Store, l history.Log){
	"segments": func(t *testing.T, _ *crashfs.FS, _ *Store, l history.Log) {
		for range 10 {
			sing(t, l)
		}
	},
	"a failed sync": func(t *testing.T, fsys *crashfs.FS, _ *Store, l history.Log) {
		sing(t, l)
		failOnce(fsys, "Sync", ".jsonl")
		_, _ = l.Append(t.Context(), batch(canary))
		fsys.Heal()
		sing(t, l)
	},
	"a failed cut": func(t *testing.T, fsys *crashfs.FS, _ *Store, l history.Log) {
		sing(t, l)
		fsys.FailWhen(func(op crashfs.Op) error {
			if op.Kind == "WriteAt" || op.Kind == "Truncate" {
				return syscall.EIO
			}
			return nil
		})
		_, _ = l.Append(t.Context(), batch(canary))
		fsys.Heal()
	},
	"a segment whose making failed": func(t *testing.T, fsys *crashfs.FS, _ *Store, l history.Log) {
		for range 2 {
			sing(t, l)
		}
		fsys.FailWhen(func(op crashfs.Op) error {
			if op.Kind == "Remove" || op.Kind == "SyncDir" {
				return syscall.EIO
			}
			return nil
		})
		_, _ = l.Append(t.Context(), batch(canary+strings.Repeat("x", 2000)))
		_, _ = l.Append(t.Context(), batch(canary))
		fsys.Heal()
		sing(t, l)
	},
	"an import that left its files": func(t *testing.T, fsys *crashfs.FS, _ *Store, l history.Log) {
		sing(t, l)
		failOnce(fsys, "Remove", stagingPrefix)
		if _, err := l.Import(t.Context(), history.Import{Mode: history.Replace, Messages: slices2(made("1", 3))}); err != nil {
			t.Fatal(err)
		}
		fsys.Heal()
		sing(t, l)
	},
	"an import that failed and left its files": func(t *testing.T, fsys *crashfs.FS, _ *Store, l history.Log) {
		sing(t, l)
		fsys.FailWhen(func(op crashfs.Op) error {
			if op.Kind == "Exchange" || op.Kind == "Remove" {
				return syscall.EIO
			}
			return nil
		})
		for _, mode := range []history.ImportMode{history.Replace, history.Extend} {
			if _, err := l.Import(t.Context(), history.Import{Mode: mode, Messages: slices2([]history.Message{user(canary)})}); err == nil {
				t.Fatal("the import went through")
			}
		}
		fsys.Heal()
	},
	"a clear that failed": func(t *testing.T, fsys *crashfs.FS, _ *Store, l history.Log) {
		sing(t, l)
		failOnce(fsys, "Remove", trashName)
		if err := l.Clear(t.Context()); err == nil {
			t.Fatal("the clear went through")
		}
		fsys.Heal()
	},
	"attachments": func(t *testing.T, _ *crashfs.FS, _ *Store, l history.Log) {
		sing(t, l)
		attach(t, l, "x", []byte(canary+" picture"))
	},
	"an attachment that was given up": func(t *testing.T, fsys *crashfs.FS, _ *Store, l history.Log) {
		sing(t, l)
		fsys.FailWhen(func(op crashfs.Op) error {
			if op.Kind == "Replace" || op.Kind == "Remove" {
				return syscall.EIO
			}
			return nil
		})
		if _, err := l.Append(t.Context(), history.Batch{Messages: []history.Message{shown("x", []byte(canary+" picture"))}}); err == nil {
			t.Fatal("the append went through")
		}
		fsys.Heal()
	},
	"an import whose spool was left": func(t *testing.T, fsys *crashfs.FS, _ *Store, l history.Log) {
		sing(t, l)
		fsys.FailWhen(func(op crashfs.Op) error {
			if op.Kind == "Remove" {
				return syscall.EIO
			}
			return nil
		})
		failing := func(yield func(history.Message, error) bool) {
			for range 10 {
				if !yield(shown(canary+strings.Repeat("x", 300), []byte(canary+" picture")), nil) {
					return
				}
			}
			yield(history.Message{}, errors.New("no more"))
		}
		if _, err := l.Import(t.Context(), history.Import{Mode: history.Extend, Messages: failing}); err == nil {
			t.Fatal("the import went through")
		}
		if !slices.ContainsFunc(slices.Collect(maps.Keys(fsys.Files())), func(name string) bool { return strings.HasSuffix(name, partSuffix) }) {
			t.Fatal("there is no spool")
		}
		fsys.Heal()
	},
	"nothing that can be read": func(t *testing.T, fsys *crashfs.FS, s *Store, l history.Log) {
		sing(t, l)
		_ = s.Close()
		for name, text := range fsys.Files() {
			if bytes.Contains(text, []byte(canary)) {
				fsys.Corrupt(name, func(b []byte) []byte { return bytes.ReplaceAll(b, []byte(`"crc"`), []byte("-----")) })
			}
		}
	},
}

func sing(t *testing.T, l history.Log) {
	t.Helper()
	if _, err := l.Append(t.Context(), history.Batch{Messages: []history.Message{user(canary + " in the title")}, Key: canary + fmt.Sprint(lastSeqOf(l)), Fold: everyThird{}}); err != nil {
		t.Fatal(err)
	}
}

func lastSeqOf(l history.Log) int64 {
	s, _ := l.State(context.Background())
	return s.LastSeq
}

// failOnce fails one operation on a name.
func failOnce(fsys *crashfs.FS, kind, name string) {
	var done atomic.Bool
	fsys.FailWhen(func(op crashfs.Op) error {
		if op.Kind == kind && strings.Contains(op.Name, name) && done.CompareAndSwap(false, true) {
			return syscall.EIO
		}
		return nil
	})
}

func TestClearLeavesNoByte(t *testing.T) {
	t.Parallel()
	for name, prepare := range litter {
		for _, how := range []string{"at once", "after a restart", "after a kill", "after a power cut", "with all others"} {
			what := name + ", " + how
			fsys := crashfs.New()
			s, err := start(fsys)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := s.Log(ann, "other").Append(t.Context(), batch("other")); err != nil {
				t.Fatal(err)
			}
			prepare(t, fsys, s, s.Log(ann, "a"))
			switch {
			case how == "after a kill" || name == "nothing that can be read":
				fsys = fsys.Kill()
			case how == "after a power cut":
				fsys = fsys.Crash(rng(len(what)))
			case how == "after a restart":
				_ = s.Close()
			}
			if how != "at once" && how != "with all others" || name == "nothing that can be read" {
				if s, err = start(fsys); err != nil {
					t.Fatalf("%s: %v", what, err)
				}
			}
			l := s.Log(ann, "a")
			v, err := l.View(t.Context())
			if err == nil {
				for range v.Records(1, 3) {
				}
			}
			if how == "with all others" {
				err = s.ClearAll(t.Context(), ann)
			} else {
				err = l.Clear(t.Context())
			}
			if err != nil {
				t.Fatalf("%s: Clear: %v", what, err)
			}
			wantNoCanary(t, what, fsys)
			for seed := range 3 {
				wantNoCanary(t, what+", then a power cut", fsys.Crash(rng(seed)))
			}
			if v != nil {
				for _, err := range v.Records(1, 3) {
					if !errors.Is(err, history.ErrGone) {
						t.Fatalf("%s: a view of before is read with error %v", what, err)
					}
				}
				v.Close()
			}
		}
	}
}

// TestClearLeavesNoTornLine has the canary in what was put aside.
func TestClearLeavesNoTornLine(t *testing.T) {
	t.Parallel()
	fsys := crashfs.New()
	s := mustOpen(t, fsys)
	sing(t, s.Log(ann, "a"))
	name := s.dirOf(transcriptKey{ann, "a"}) + "/" + segmentName(1)
	before := len(fsys.Files()[name])
	sing(t, s.Log(ann, "a"))
	_ = s.Close()
	fsys.Corrupt(name, func(b []byte) []byte {
		return append(b[:before], bytes.ReplaceAll(b[before:], []byte("\n"), nil)[:len(b)-before-30]...)
	})
	s = mustOpen(t, fsys)
	if _, err := s.Log(ann, "a").Append(t.Context(), batch("more")); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(quarantined(fsys), canary) {
		t.Fatal("the torn line was not put aside")
	}
	if err := s.Log(ann, "a").Clear(t.Context()); err != nil {
		t.Fatal(err)
	}
	wantNoCanary(t, "after a torn line", fsys)
	_ = s.Close()
}
