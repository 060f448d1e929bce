package store

import (
	"context"
	"fmt"
	"path"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"historyd/internal/durable"
	"historyd/internal/durable/crashfs"
	"historyd/internal/history"
	"historyd/internal/history/historytest"
	"historyd/internal/identity"
)

// safeIDs is counterIDs for many goroutines, and for those that come late.
func safeIDs() func(string) string {
	var n atomic.Int64
	return func(after string) string {
		if last, err := strconv.ParseInt(after, 10, 64); err == nil && last > n.Load() {
			n.Store(last)
		}
		for {
			if id := fmt.Sprintf("%026d", n.Add(1)); id > after {
				return id
			}
		}
	}
}

// engine is a Store under the contract suite.
type engine struct {
	t     *testing.T
	fsys  durable.FS
	size  int64
	ids   func(string) string
	store *Store
}

func (e *engine) Reopen() error {
	if e.store != nil {
		if err := e.store.Close(); err != nil {
			return err
		}
	}
	var err error
	e.store, err = Open(Options{FS: e.fsys, NewID: e.ids, SegmentBytes: e.size, OpenFiles: 4})
	return err
}

func (e *engine) Log(caller, conversation string) history.Log {
	c, err := identity.NewCaller(string(identity.Operator), caller, "", "")
	if err != nil {
		e.t.Fatal(err)
	}
	return e.store.Log(c.Scope(), conversation)
}

// Names walks the directory.
func (e *engine) Names() []string {
	var names []string
	var walk func(dir string)
	walk = func(dir string) {
		entries, err := e.fsys.ReadDir(dir)
		if err != nil {
			e.t.Fatal(err)
		}
		for _, entry := range entries {
			name := path.Join(dir, entry.Name)
			names = append(names, name)
			if entry.Dir {
				walk(name)
			}
		}
	}
	walk(".")
	return names
}

func TestStoreKeepsTheContractOfALog(t *testing.T) {
	memory := func(*testing.T) durable.FS { return crashfs.New() }
	for _, tt := range []struct {
		name string
		open func(t *testing.T) durable.FS
		size int64
	}{
		{"memory, a segment for each line", memory, 1},
		{"memory, small segments", memory, 5000},
		{"memory", memory, 0},
		{"disk, small segments", openDisk, 5000},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if raced && tt.name == "memory, small segments" {
				t.Skip("the disk has small segments, too")
			}
			t.Parallel()
			historytest.Run(t, historytest.Harness{Open: func(t *testing.T) historytest.Engine {
				return openEngine(t, tt.open(t), tt.size)
			}})
		})
	}
}

func openDisk(t *testing.T) durable.FS {
	fsys, err := durable.Open(privateDir(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = fsys.Close() })
	return fsys
}

// openEngine opens a store which at the end of the test must be sound.
func openEngine(t *testing.T, fsys durable.FS, size int64) *engine {
	e := &engine{t: t, fsys: fsys, size: size, ids: safeIDs()}
	if err := e.Reopen(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := e.store.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
		if sum := mustCheck(t, fsys); sum.Torn != 0 {
			t.Errorf("check counts %d torn ends", sum.Torn)
		}
		for _, name := range e.Names() {
			if leftOver(name) {
				t.Errorf("left over: %s", name)
			}
		}
	})
	return e
}

// leftOver tells what has no place in a data directory at rest.
func leftOver(name string) bool {
	return strings.HasPrefix(name, trashName+"/") || strings.HasPrefix(name, stagingName+"/") || strings.Contains(name, stagingPrefix)
}

// mustCheck runs Check and wants no finding.
func mustCheck(t testing.TB, fsys durable.FS) CheckSummary {
	t.Helper()
	found, sum := check(t, fsys)
	if len(found) > 0 {
		t.Errorf("check: %v", found)
	}
	return sum
}

func check(t testing.TB, fsys durable.FS) ([]Finding, CheckSummary) {
	t.Helper()
	var found []Finding
	sum, err := Check(context.Background(), fsys, func(f Finding) { found = append(found, f) }, nil)
	if err != nil {
		t.Fatalf("Check: %v", err)
	}
	if sum.Findings != int64(len(found)) {
		t.Errorf("check counts %d findings of %d", sum.Findings, len(found))
	}
	return found, sum
}

// passing lists a directory for the first time as it is while it is removed, and its names are those of another already.
type passing struct {
	durable.FS
	dir  string
	seen bool
}

func (p *passing) ReadDir(name string) ([]durable.Entry, error) {
	entries, err := p.FS.ReadDir(name)
	if name == p.dir && !p.seen {
		p.seen = true
		entries = entries[len(entries)-1:]
	}
	return entries, err
}

func TestCheckFindsNothingWrongInWhatIsReplacedMeanwhile(t *testing.T) {
	fsys := crashfs.New()
	s, err := start(fsys) // with short segments
	if err != nil {
		t.Fatal(err)
	}
	for range 10 {
		if _, err := s.Log(ann, "a").Append(t.Context(), batch(strings.Repeat("x", 500))); err != nil {
			t.Fatal(err)
		}
	}
	dir := s.dirOf(transcriptKey{ann, "a"})
	_ = s.Close()
	want := mustCheck(t, fsys)
	if got := mustCheck(t, &passing{FS: fsys, dir: dir}); got != want || want.Segments < 2 {
		t.Errorf("check counts %+v, want %+v", got, want)
	}
}

func TestBytesAreThoseOfTheSegments(t *testing.T) {
	fsys := crashfs.New()
	e := openEngine(t, fsys, 2000)
	for i := range 40 {
		if _, err := e.Log("ann", "default").Append(t.Context(), batch(fmt.Sprint("m", i))); err != nil {
			t.Fatal(err)
		}
		want := int64(0)
		for name, b := range fsys.Files() {
			if strings.HasSuffix(name, ".jsonl") {
				want += int64(len(b))
			}
		}
		s, err := e.Log("ann", "default").State(t.Context())
		if err != nil || s.Bytes != want {
			t.Fatalf("after %d appends: Bytes is %d, the segments have %d: %v", i+1, s.Bytes, want, err)
		}
		if i%7 == 6 {
			if err := e.Reopen(); err != nil {
				t.Fatal(err)
			}
		}
	}
}
