package durable_test

import (
	"errors"
	"runtime"
	"syscall"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"historyd/internal/durable"
)

// refusing runs fn on a thread of its own on which one system call fails with EDQUOT.
func refusing(t *testing.T, call uint32, fn func() error) error {
	t.Helper()
	result := make(chan error)
	var setup error
	go func() {
		runtime.LockOSThread() // Never unlocked: the thread ends with the goroutine.
		if setup = seccomp(call, syscall.EDQUOT); setup != nil {
			result <- nil
			return
		}
		result <- fn()
	}()
	err := <-result
	if setup != nil {
		t.Skipf("no seccomp here: %v", setup)
	}
	return err
}

// seccomp makes a system call fail on this thread, for good.
func seccomp(call uint32, errno syscall.Errno) error {
	filter := []unix.SockFilter{
		{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: 0}, // The number of the call.
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: call, Jf: 1},
		{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ERRNO | uint32(errno)},
		{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ALLOW},
	}
	prog := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return err
	}
	return unix.Prctl(unix.PR_SET_SECCOMP, unix.SECCOMP_MODE_FILTER, uintptr(unsafe.Pointer(&prog)), 0, 0)
}

func TestEveryOperationAsksTheKernelAndTellsItsError(t *testing.T) {
	fsys, _ := scratch(t)
	put(t, fsys, "a", "x")
	put(t, fsys, "b", "x")
	f, err := fsys.Open("a", true)
	must(t, err)
	buf := make([]byte, 1)
	for _, tt := range []struct {
		what string
		call uint32
		fn   func() error
	}{
		{"Sync", unix.SYS_FDATASYNC, f.Sync},
		{"SyncDir", unix.SYS_FSYNC, func() error { return fsys.SyncDir(".") }},
		{"SyncAll", unix.SYS_SYNCFS, fsys.SyncAll},
		{"Free", unix.SYS_FSTATFS, func() error { _, _, err := fsys.Free(); return err }},
		{"MediumOf", unix.SYS_STATFS, func() error { _, _, err := durable.MediumOf("."); return err }},
		{"DropCache", unix.SYS_FADVISE64, f.DropCache},
		{"WriteAt", unix.SYS_PWRITE64, func() error { _, err := f.WriteAt(buf, 0); return err }},
		{"ReadAt", unix.SYS_PREAD64, func() error { _, err := f.ReadAt(buf, 0); return err }},
		{"Truncate", unix.SYS_FTRUNCATE, func() error { return f.Truncate(0) }},
		{"Size", unix.SYS_FSTAT, func() error { _, err := f.Size(); return err }},
		{"Open, its check", unix.SYS_FSTAT, func() error { _, err := fsys.Open("a", false); return err }},
		{"Create, its check", unix.SYS_FSTAT, func() error { _, err := fsys.Create("c"); return err }},
		{"Create", unix.SYS_OPENAT, func() error { _, err := fsys.Create("c"); return err }},
		{"Mkdir", unix.SYS_MKDIRAT, func() error { return fsys.Mkdir("d") }},
		{"Rename", unix.SYS_RENAMEAT2, func() error { return fsys.Rename("a", "c") }},
		{"Replace", unix.SYS_RENAMEAT, func() error { return fsys.Replace("a", "b") }},
		{"Exchange", unix.SYS_RENAMEAT2, func() error { return fsys.Exchange("a", "b") }},
		{"Link", unix.SYS_LINKAT, func() error { return fsys.Link("a", "c") }},
		{"Remove", unix.SYS_UNLINKAT, func() error { return fsys.Remove("a") }},
		{"ReadDir", unix.SYS_GETDENTS64, func() error { _, err := fsys.ReadDir("."); return err }},
		{"Lock", unix.SYS_FLOCK, func() error { _, err := fsys.Lock("a"); return err }},
		{"WriteFile", unix.SYS_FDATASYNC, func() error { return durable.WriteFile(fsys, "a", nil) }},
	} {
		if err := refusing(t, tt.call, tt.fn); !errors.Is(err, syscall.EDQUOT) {
			t.Errorf("%s: got %v, want the error of the kernel", tt.what, err)
		}
	}
	must(t, f.Close())
	if got, want := tree(t, fsys, "."), "a b"; got != want {
		t.Errorf("left %q, want %q", got, want)
	}
}
