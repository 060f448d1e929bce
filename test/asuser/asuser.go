// Package asuser lets a test of root's do something as another user of the machine. It is for tests only.
package asuser

import (
	"runtime"
	"sync"
	"syscall"
	"unsafe"
)

// Do calls fn on a thread that is another user, of one group besides its own, or with 0 of none. The thread ends with
// it. What fn hands to other goroutines is done as root.
func Do(uid, group int, fn func()) (err error) {
	var running sync.WaitGroup
	running.Go(func() {
		runtime.LockOSThread() // and never unlocked
		if err = become(uid, group); err == nil {
			fn()
		}
	})
	running.Wait()
	return err
}

// become changes this thread alone, where the calls of package syscall change all of the process.
func become(uid, group int) error {
	groups := [1]uint32{uint32(group)}
	n := uintptr(min(group, 1))
	if _, _, e := syscall.RawSyscall(syscall.SYS_SETGROUPS, n, uintptr(unsafe.Pointer(&groups)), 0); e != 0 {
		return e
	}
	if _, _, e := syscall.RawSyscall(syscall.SYS_SETRESGID, uintptr(uid), uintptr(uid), uintptr(uid)); e != 0 {
		return e
	}
	if _, _, e := syscall.RawSyscall(syscall.SYS_SETRESUID, uintptr(uid), uintptr(uid), uintptr(uid)); e != 0 {
		return e
	}
	return nil
}
