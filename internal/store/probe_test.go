package store

import (
	"errors"
	"strings"
	"syscall"
	"testing"

	"historyd/internal/durable/crashfs"
	"historyd/internal/history"
)

// leftProbes are the names of what a probe has left behind.
func leftProbes(fsys *crashfs.FS) (names []string) {
	for name := range fsys.Files() {
		if strings.Contains(name, "probe") {
			names = append(names, name)
		}
	}
	return names
}

func TestAProbeFindsWhateverFails(t *testing.T) {
	for _, how := range []crashfs.How{crashfs.Before, crashfs.After, crashfs.Short} {
		for at := 0; ; at++ {
			fsys := crashfs.New()
			s := mustOpen(t, fsys)
			if err := s.Probe(); err != nil {
				t.Fatal(err)
			}
			if n := len(leftProbes(fsys)); n != 0 {
				t.Fatalf("a probe that worked leaves %q", leftProbes(fsys))
			}
			handles := fsys.OpenHandles()
			fsys.FailAt(fsys.Ops()+at, how, syscall.EIO, false)
			err := s.Probe()
			reached := fsys.Reached()
			if reached != errors.Is(err, syscall.EIO) || reached != errors.Is(err, history.ErrUnavailable) {
				t.Errorf("operation %d failed %v: got %v", at, how, err)
			}
			if got := fsys.OpenHandles(); got != handles {
				t.Errorf("operation %d failed %v: %d files are open, want %d", at, how, got, handles)
			}
			if err := s.Ready(); err != nil {
				t.Errorf("operation %d failed %v: a probe changes Ready to %v", at, how, err)
			}
			fsys.Heal()
			mustCheck(t, fsys)
			again := mustOpen(t, fsys.Kill())
			if err := again.Probe(); err != nil {
				t.Errorf("operation %d failed %v: the next process finds %v", at, how, err)
			}
			if !reached {
				break
			}
		}
	}
}

// What is only written is in memory, and a disk that is gone is not asked.
func TestAProbeDoesAllThatAnAppendDoes(t *testing.T) {
	for _, kind := range []string{"Create", "WriteAt", "Sync", "Remove"} {
		fsys := crashfs.New()
		s := mustOpen(t, fsys)
		fsys.FailWhen(func(op crashfs.Op) error {
			if op.Kind == kind {
				return syscall.EIO
			}
			return nil
		})
		if err := s.Probe(); !errors.Is(err, syscall.EIO) {
			t.Errorf("%s fails: got %v, want to hear of it", kind, err)
		}
	}
}

func TestAProbeClearsUpAfterOneThatFailed(t *testing.T) {
	fsys := crashfs.New()
	s := mustOpen(t, fsys)
	fsys.FailWhen(func(op crashfs.Op) error {
		if strings.Contains(op.Name, "probe") && op.Kind == "Remove" {
			return syscall.EIO
		}
		return nil
	})
	if err := s.Probe(); err == nil {
		t.Fatal("a probe that stays goes unnoticed")
	}
	fsys.Heal()
	if err := s.Probe(); err != nil || len(leftProbes(fsys)) != 0 {
		t.Errorf("the next: got %v, and %q left", err, leftProbes(fsys))
	}
}

func TestAProbeOfAFullDiskIsOfThatClass(t *testing.T) {
	fsys := crashfs.New()
	s := mustOpen(t, fsys)
	fsys.SetCapacity(used(fsys) + 1)
	if err := s.Probe(); !errors.Is(err, history.ErrFull) || !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("got %v, want ErrFull of ENOSPC", err)
	}
	fsys.SetCapacity(-1)
	if err := s.Probe(); err != nil {
		t.Errorf("with room again: %v", err)
	}
}

func TestAClosedStoreIsNotProbed(t *testing.T) {
	fsys := crashfs.New()
	s := mustOpen(t, fsys)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	ops := fsys.Ops()
	if err := s.Probe(); !errors.Is(err, history.ErrClosed) {
		t.Errorf("got %v, want ErrClosed", err)
	}
	if got := fsys.Ops(); got != ops {
		t.Errorf("%d operations on the disk of another process", got-ops)
	}
}
