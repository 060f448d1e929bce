package identity

import (
	"net"
	"syscall"

	"golang.org/x/sys/unix"
)

// The uids that are never an identity: the kernel reports the first for a peer
// whose uid it cannot map, and the second where there are no credentials.
const (
	overflowUID uint32 = 65534
	noUID       uint32 = 1<<32 - 1
)

// ValidUID reports whether uid can stand for a caller.
func ValidUID(uid uint32) bool { return uid != overflowUID && uid != noUID }

// PeerUID returns the uid of the process at the other end of a unix socket, as
// it was when that process connected. It is false for any other connection.
func PeerUID(conn net.Conn) (uint32, bool) {
	sc, ok := conn.(syscall.Conn)
	if !ok {
		return 0, false
	}
	raw, err := sc.SyscallConn()
	if err != nil {
		return 0, false
	}
	var (
		domain int
		cred   *unix.Ucred
		opErr  error
	)
	err = raw.Control(func(fd uintptr) {
		if domain, opErr = unix.GetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_DOMAIN); opErr != nil {
			return
		}
		cred, opErr = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	})
	if err != nil || opErr != nil || domain != unix.AF_UNIX {
		return 0, false
	}
	return cred.Uid, true
}
