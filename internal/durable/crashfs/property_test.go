package crashfs_test

import (
	"bytes"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"syscall"
	"testing"

	"historyd/internal/durable"
	"historyd/internal/durable/crashfs"

	"pgregory.net/rapid"
)

// log is a file that only grows, of bytes that are no NULs, and what is known of it.
type log struct {
	file    durable.File
	written []byte
	synced  int  // this many bytes from the start are durable
	named   bool // its name is durable
	failed  bool // a Sync has failed
}

// logs is a directory of them. Its methods are the steps of the test.
type logs struct {
	fs  *crashfs.FS
	all map[string]*log
}

func TestSyncedBytesSurviveEveryCrash(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		t.Repeat(rapid.StateMachineActions(&logs{crashfs.New(), map[string]*log{}}))
	})
}

func (s *logs) some(t *rapid.T) *log {
	if len(s.all) == 0 {
		t.Skip("no log")
	}
	return s.all[rapid.SampledFrom(slices.Sorted(maps.Keys(s.all))).Draw(t, "log")]
}

func (s *logs) Create(t *rapid.T) {
	name := fmt.Sprintf("log%d", len(s.all))
	file, err := s.fs.Create(name)
	ok(t, err)
	s.all[name] = &log{file: file}
}

func (s *logs) Append(t *rapid.T) {
	l := s.some(t)
	data := bytes.Repeat([]byte{byte(1 + len(l.written)%255)}, rapid.IntRange(1, 700).Draw(t, "bytes"))
	_, err := l.file.WriteAt(data, int64(len(l.written)))
	ok(t, err)
	l.written = append(l.written, data...)
}

func (s *logs) Sync(t *rapid.T) {
	l := s.some(t)
	ok(t, l.file.Sync())
	if !l.failed {
		l.synced = len(l.written)
	}
}

func (s *logs) FailSync(t *rapid.T) {
	l := s.some(t)
	l.failed = l.failed || l.synced < len(l.written)
	s.fs.FailAt(s.fs.Ops(), crashfs.Before, syscall.EIO, false)
	if l.file.Sync() == nil {
		t.Fatal("no error")
	}
}

func (s *logs) DropCache(t *rapid.T) { ok(t, s.some(t).file.DropCache()) }

func (s *logs) SyncDir(t *rapid.T) {
	ok(t, s.fs.SyncDir("."))
	for _, l := range s.all {
		l.named = true
	}
}

// Check cuts the power after each step and goes on as if it had not.
func (s *logs) Check(t *rapid.T) {
	s.fs = s.fs.Kill()
	seed := rapid.Uint64().Draw(t, "crash")
	next := s.fs.Crash(rand.New(rand.NewPCG(seed, 0)))
	files := next.Files()
	for name, l := range s.all {
		survived(t, name, l, files)
	}
	same(t, files, s.fs.Crash(rand.New(rand.NewPCG(seed, 0))).Files())
	same(t, files, next.Crash(rand.New(rand.NewPCG(seed, 1))).Files())
	s.fs = s.fs.Kill()
	for name, l := range s.all {
		var err error
		l.file, err = s.fs.Open(name, true)
		ok(t, err)
	}
}

func survived(t *rapid.T, name string, l *log, files map[string][]byte) {
	got, there := files[name]
	if !there {
		if l.named {
			t.Fatalf("%s is gone", name)
		}
		return
	}
	if len(got) < l.synced || !bytes.Equal(got[:l.synced], l.written[:l.synced]) {
		t.Fatalf("%s: lost some of its %d synced bytes: %d left", name, l.synced, len(got))
	}
	if len(got) > len(l.written) {
		t.Fatalf("%s: %d bytes, only %d were written", name, len(got), len(l.written))
	}
	for i, b := range got {
		if b != 0 && b != l.written[i] {
			t.Fatalf("%s: byte %d is %d, was never written", name, i, b)
		}
	}
}

// same says that two outcomes are one: of the same crash, or of a crash when everything was on disk.
func same(t *rapid.T, a, b map[string][]byte) {
	if !maps.EqualFunc(a, b, bytes.Equal) {
		t.Fatalf("outcomes differ: %d and %d files", len(a), len(b))
	}
}

func ok(t *rapid.T, err error) {
	if err != nil {
		t.Fatal(err)
	}
}
