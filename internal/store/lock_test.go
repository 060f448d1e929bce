package store

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"historyd/internal/durable"
	"historyd/internal/durable/crashfs"
)

// running is a store on a real directory, as another process would have it.
type running struct {
	*Store
	fsys durable.FS
}

func onDisk(dir string) (running, error) {
	fsys, err := durable.Open(dir)
	if err != nil {
		return running{}, err
	}
	s, err := Open(Options{FS: noSyncAll{fsys}, NewID: safeIDs()})
	if err != nil {
		return running{}, errors.Join(err, fsys.Close())
	}
	return running{s, fsys}, nil
}

func (r running) Close() error { return errors.Join(r.Store.Close(), r.fsys.Close()) }

// noSyncAll spares many syncs of the whole file system of the test machine.
type noSyncAll struct{ durable.FS }

func (noSyncAll) SyncAll() error { return nil }

func TestASecondStoreIsLockedOut(t *testing.T) {
	fsys := crashfs.New()
	s := mustOpen(t, fsys)
	before := fsys.Ops()
	if _, err := start(fsys); !errors.Is(err, durable.ErrLocked) {
		t.Fatalf("a second store: %v", err)
	}
	if n := fsys.Ops() - before; n != 1 {
		t.Errorf("the second store did %d operations beside the lock", n-1)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = mustOpen(t, fsys)
	_ = s.Close()
	if n := fsys.OpenHandles(); n != 0 {
		t.Errorf("%d files stay open", n)
	}
}

// TestOfManyStartsOneWins starts 1,000 times, several at once, on a real directory.
func TestOfManyStartsOneWins(t *testing.T) {
	t.Parallel()
	dir := privateDir(t)
	const each, starters = 250, 4
	var running, won atomic.Int64
	var wg sync.WaitGroup
	for range starters {
		wg.Go(func() {
			for range each {
				s, err := onDisk(dir)
				if errors.Is(err, durable.ErrLocked) {
					continue
				}
				if err != nil {
					t.Errorf("start: %v", err)
					return
				}
				won.Add(1)
				if n := running.Add(1); n != 1 {
					t.Errorf("%d stores run at once", n)
				}
				// Two that run at once by chance would be a rare sight.
				if second, err := onDisk(dir); !errors.Is(err, durable.ErrLocked) {
					t.Errorf("a start beside one that runs: got %v, want it locked out", err)
					if err == nil {
						_ = second.Close()
					}
				}
				running.Add(-1)
				if err := s.Close(); err != nil {
					t.Errorf("Close: %v", err)
				}
			}
		})
	}
	wg.Wait()
	if won.Load() == 0 {
		t.Error("none of 1,000 starts won")
	}
	t.Logf("%d of %d starts won", won.Load(), each*starters)
}

// startEnv names the directory that a copy of the test process is to open.
const startEnv = "HISTORYD_TEST_START"

// TestStartOfAnotherProcess is that copy: it says whether it won, and waits.
func TestStartOfAnotherProcess(t *testing.T) {
	dir := os.Getenv(startEnv)
	if dir == "" {
		t.Skip("runs in processes that TestOfManyProcessesOneWins starts")
	}
	s, err := onDisk(dir)
	switch {
	case errors.Is(err, durable.ErrLocked):
		fmt.Fprintln(os.Stderr, "start: locked")
	case err != nil:
		fmt.Fprintln(os.Stderr, "start: failed:", err)
	default:
		fmt.Fprintln(os.Stderr, "start: won")
	}
	_, _ = io.Copy(io.Discard, os.Stdin)
	runtime.KeepAlive(s) // a lock that is collected is a lock given back
	os.Exit(0)           // without closing anything
}

// It is not parallel: a process that is being forked holds, for a moment, the locks of
// all tests.
func TestOfManyProcessesOneWins(t *testing.T) {
	dir := privateDir(t)
	for round := range 2 {
		const n = 3
		var ends []io.Closer
		var commands []*exec.Cmd
		var outputs []*bufio.Scanner
		for range n {
			c := exec.Command(os.Args[0], "-test.run=^TestStartOfAnotherProcess$")
			c.Env = append(os.Environ(), startEnv+"="+dir)
			in, err := c.StdinPipe()
			if err != nil {
				t.Fatal(err)
			}
			out, err := c.StderrPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := c.Start(); err != nil {
				t.Fatal(err)
			}
			ends, commands, outputs = append(ends, in), append(commands, c), append(outputs, bufio.NewScanner(out))
		}
		won := 0
		for _, out := range outputs {
			said := ""
			for out.Scan() && !strings.HasPrefix(said, "start: ") {
				said = out.Text()
				if strings.HasPrefix(said, "start: ") {
					break
				}
			}
			switch said {
			case "start: won":
				won++
			case "start: locked":
			default:
				t.Errorf("a process said %q", said)
			}
		}
		if won != 1 {
			t.Errorf("round %d: %d of %d processes won", round, won, n)
		}
		for i, c := range commands {
			_ = ends[i].Close()
			_ = c.Wait()
		}
	}
}
