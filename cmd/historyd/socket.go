package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// access says who may connect to a unix socket.
type access struct {
	mode uint32
	gid  int // -1 is ours
}

// ownerOnly lets in who we are, and root.
var ownerOnly = access{mode: 0o600, gid: -1}

// socketAccess is what the configuration says of listen.unix.
func (s *settings) socketAccess() (access, error) {
	mode, err := strconv.ParseUint(s.Listen.UnixMode, 8, 32)
	if err != nil {
		return access{}, fmt.Errorf("listen.unix_mode: %w", err)
	}
	a := access{mode: uint32(mode), gid: -1}
	name := s.Listen.UnixGroup
	if name == "" {
		return a, nil
	}
	// A number needs no name on this machine.
	if gid, err := strconv.ParseUint(name, 10, 31); err == nil {
		a.gid = int(gid)
		return a, nil
	}
	g, err := user.LookupGroup(name)
	if err != nil {
		return access{}, fmt.Errorf("listen.unix_group: there is no group %q", name)
	}
	a.gid, err = strconv.Atoi(g.Gid)
	return a, err
}

// unixSocket is a listener that takes its name away when it is closed, unless
// another has the name by then.
type unixSocket struct {
	net.Listener
	name string
	id   fileID
}

// listenUnix opens a unix socket that only those of a can connect to. The
// process must have a umask of 077: then nobody else can from the moment that
// the socket has a name.
func listenUnix(ctx context.Context, name string, a access) (net.Listener, error) {
	unlock, err := lockSocketDir(ctx, name)
	if err != nil {
		return nil, err
	}
	defer unlock()
	if err := removeStale(ctx, name); err != nil {
		return nil, err
	}
	f, err := bindUnix(name, a)
	if err != nil {
		return nil, err
	}
	defer f.Close() // the listener has a descriptor of its own
	l, err := listenOn(f, name)
	if err != nil {
		return nil, errors.Join(err, os.Remove(name))
	}
	return l, nil
}

// bindUnix makes a socket and gives it its mode and group. Nobody can connect
// before somebody listens on it.
func bindUnix(name string, a access) (*os.File, error) {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	f := os.NewFile(uintptr(fd), name)
	if err := unix.Bind(fd, &unix.SockaddrUnix{Name: name}); err != nil {
		return nil, errors.Join(fmt.Errorf("bind %s: %w", name, err), f.Close())
	}
	err = os.Lchown(name, -1, a.gid)
	if err == nil {
		err = unix.Chmod(name, a.mode)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("set mode and group of %s: %w", name, err), os.Remove(name), f.Close())
	}
	return f, nil
}

// listenOn listens on a socket of a name.
func listenOn(f *os.File, name string) (net.Listener, error) {
	id, err := identify(name)
	if err != nil {
		return nil, err
	}
	if err := unix.Listen(int(f.Fd()), unix.SOMAXCONN); err != nil {
		return nil, fmt.Errorf("listen on %s: %w", name, err)
	}
	l, err := net.FileListener(f)
	if err != nil {
		return nil, err
	}
	return &unixSocket{Listener: l, name: name, id: id}, nil
}

func (s *unixSocket) Close() error {
	err := s.Listener.Close()
	if errors.Is(err, net.ErrClosed) {
		return err // the name was taken away by the first
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	unlock, lerr := lockSocketDir(ctx, s.name)
	if lerr != nil {
		return err // whoever wants the name finds that nobody answers
	}
	defer unlock()
	if id, ierr := identify(s.name); ierr == nil && id == s.id {
		err = errors.Join(err, os.Remove(s.name))
	}
	return err
}

// fileID tells two files apart that have had the same name.
type fileID struct {
	dev, ino uint64
	born     unix.Timespec // an inode is used again
}

func identify(name string) (fileID, error) {
	var st unix.Stat_t
	if err := unix.Lstat(name, &st); err != nil {
		return fileID{}, &fs.PathError{Op: "lstat", Path: name, Err: err}
	}
	return fileID{dev: st.Dev, ino: st.Ino, born: st.Ctim}, nil
}

// lockSocketDir keeps other daemons from making and removing sockets in the
// directory of a name until unlock. It refuses a directory where others could
// put a socket of their own in the place of ours.
func lockSocketDir(ctx context.Context, name string) (unlock func(), err error) {
	dir := filepath.Dir(name)
	f, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			_ = f.Close()
		}
	}()
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return nil, err
	}
	if st.Uid != 0 && int(st.Uid) != os.Geteuid() {
		return nil, fmt.Errorf("%s belongs to uid %d, who could put another socket in the place of ours: choose a directory of your own", dir, st.Uid)
	}
	if st.Mode&0o022 != 0 && st.Mode&unix.S_ISVTX == 0 {
		return nil, fmt.Errorf("others may write to %s (mode %04o) and put another socket in the place of ours: chmod go-w it, or choose another directory", dir, st.Mode&0o7777)
	}
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	poll := time.NewTicker(5 * time.Millisecond)
	defer poll.Stop()
	for {
		err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if err == nil {
			return func() { _ = f.Close() }, nil
		}
		if !errors.Is(err, unix.EWOULDBLOCK) && !errors.Is(err, unix.EINTR) {
			return nil, fmt.Errorf("lock %s: %w", dir, err)
		}
		select {
		case <-poll.C:
		case <-ctx.Done():
			return nil, fmt.Errorf("lock %s: another process holds it: choose a directory of your own", dir)
		}
	}
}

// removeStale removes a socket that nobody answers at: one that a killed daemon
// has left. The caller holds the lock of its directory.
func removeStale(ctx context.Context, name string) error {
	info, err := os.Lstat(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if info.Mode().Type() != fs.ModeSocket {
		return fmt.Errorf("%s is there and no socket: move it away", name)
	}
	d := net.Dialer{Timeout: time.Second}
	conn, err := d.DialContext(ctx, "unix", name)
	if err == nil {
		return errors.Join(fmt.Errorf("somebody answers at %s already", name), conn.Close())
	}
	if !errors.Is(err, syscall.ECONNREFUSED) {
		return err
	}
	return os.Remove(name)
}
