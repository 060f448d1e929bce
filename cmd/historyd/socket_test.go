package main

import (
	"errors"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
)

// socketDir is a directory for sockets; the path of a test's directory is too long.
func socketDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "historyd")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

func mustListenUnix(t *testing.T, name string) net.Listener {
	t.Helper()
	l, err := listenUnix(t.Context(), name, ownerOnly)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l
}

// answers reports whether somebody listens at a socket.
func answers(name string) bool {
	conn, err := net.Dial("unix", name)
	if err == nil {
		_ = conn.Close()
	}
	return err == nil
}

// anotherGroup is one that this process may give a file to, or -1.
func anotherGroup(t *testing.T) int {
	t.Helper()
	if os.Geteuid() == 0 {
		return 4478
	}
	groups, err := os.Getgroups()
	if err != nil {
		t.Fatal(err)
	}
	for _, g := range groups {
		if g != os.Getegid() {
			return g
		}
	}
	return -1
}

func TestASocketHasItsModeAndGroupBeforeAnybodyCanConnect(t *testing.T) {
	gid := anotherGroup(t)
	for _, mode := range []uint32{0o600, 0o660, 0o666} {
		name := filepath.Join(socketDir(t), "s")
		f, err := bindUnix(name, access{mode: mode, gid: gid})
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		info, err := os.Lstat(name)
		if err != nil {
			t.Fatal(err)
		}
		if got := info.Mode(); got != fs.ModeSocket|fs.FileMode(mode) {
			t.Errorf("got mode %v, want a socket of %04o", got, mode)
		}
		if got := int(info.Sys().(*syscall.Stat_t).Gid); gid >= 0 && got != gid {
			t.Errorf("got group %d, want %d", got, gid)
		}
		if _, err := net.Dial("unix", name); !errors.Is(err, syscall.ECONNREFUSED) {
			t.Errorf("a connection before it listens: got %v, want it refused", err)
		}
		l, err := listenOn(f, name)
		if err != nil {
			t.Fatal(err)
		}
		if !answers(name) {
			t.Error("nobody can connect once it listens")
		}
		_ = l.Close()
	}
}

func TestASocketWhoseGroupCantBeSetIsNotThere(t *testing.T) {
	if os.Geteuid() == 0 {
		t.Skip("root may give a file to any group")
	}
	name := filepath.Join(socketDir(t), "s")
	if _, err := listenUnix(t.Context(), name, access{mode: 0o660, gid: 0}); !errors.Is(err, fs.ErrPermission) {
		t.Errorf("got %v, want that it is not permitted", err)
	}
	if _, err := os.Lstat(name); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the socket is there: %v", err)
	}
}

func TestADirectoryInWhichOthersCouldReplaceTheSocketIsRefused(t *testing.T) {
	for _, tt := range []struct {
		name string
		mode fs.FileMode
		uid  int
		ok   bool
	}{
		{"ours alone", 0o700, os.Geteuid(), true},
		{"ours, for others to read", 0o755, os.Geteuid(), true},
		{"one where only the owner removes a file", 0o777 | fs.ModeSticky, os.Geteuid(), true},
		{"its group writes", 0o770, os.Geteuid(), false},
		{"everybody writes", 0o777, os.Geteuid(), false},
		{"another user's", 0o755, 4478, false},
	} {
		dir := socketDir(t)
		if os.Geteuid() != 0 && tt.uid != os.Geteuid() {
			continue // only root can make one
		}
		if err := errors.Join(os.Chown(dir, tt.uid, -1), os.Chmod(dir, tt.mode)); err != nil {
			t.Fatal(err)
		}
		l, err := listenUnix(t.Context(), filepath.Join(dir, "s"), ownerOnly)
		if (err == nil) != tt.ok {
			t.Errorf("%s: got %v, want ok %v", tt.name, err, tt.ok)
		}
		if err == nil {
			_ = l.Close()
		} else if _, err := os.Lstat(filepath.Join(dir, "s")); err == nil {
			t.Errorf("%s: refused, and the socket is there", tt.name)
		}
	}
}

// A killed daemon has left its socket, and several are started in its place.
func TestOfDaemonsThatStartAtOnceOneHasTheSocket(t *testing.T) {
	name := filepath.Join(socketDir(t), "s")
	for range 200 {
		stale, err := bindUnix(name, ownerOnly)
		if err != nil {
			t.Fatal(err)
		}
		_ = stale.Close()
		var starting sync.WaitGroup
		var won atomic.Int32
		var winner atomic.Pointer[net.Listener]
		for range 4 {
			starting.Go(func() {
				if l, err := listenUnix(t.Context(), name, ownerOnly); err == nil {
					won.Add(1)
					winner.Store(&l)
				}
			})
		}
		starting.Wait()
		if n := won.Load(); n != 1 {
			t.Fatalf("%d of 4 have the socket, want 1", n)
		}
		if !answers(name) {
			t.Fatal("who has the socket can't be reached")
		}
		if err := (*winner.Load()).Close(); err != nil {
			t.Fatal(err)
		}
	}
}

func TestADaemonThatStopsLeavesTheSocketOfAnother(t *testing.T) {
	name := filepath.Join(socketDir(t), "s")
	first := mustListenUnix(t, name)
	if err := os.Remove(name); err != nil { // by somebody who thought it a leftover
		t.Fatal(err)
	}
	second := mustListenUnix(t, name)
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	if !answers(name) {
		t.Error("the second can't be reached after the first has stopped")
	}
	if err := second.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Lstat(name); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the socket is left behind: %v", err)
	}
}
