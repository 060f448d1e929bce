package durable

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// Open opens a directory of the disk. It must be there, be ours and be closed to group and world, and its last
// component must not be a symbolic link; else ErrUnsafe. The caller closes the FS.
func Open(dir string) (FS, error) {
	return OpenAsOwner(dir, func(int, int) error { return nil })
}

// OpenAsOwner is Open for a process that may become the owner of the directory, whose user and group ids are given to
// become when they are not ours. The directory is open by then, so the owner need not be able to get there.
func OpenAsOwner(dir string, become func(uid, gid int) error) (FS, error) {
	d, err := openRoot(dir)
	if err != nil {
		return nil, err
	}
	var st unix.Stat_t
	err = d.control(func(root int) error { return unix.Fstat(root, &st) })
	if err == nil && int(st.Uid) != os.Geteuid() {
		err = become(int(st.Uid), int(st.Gid))
	}
	if err == nil {
		err = private(&st)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("open %s: %w", dir, err), d.Close())
	}
	return d, nil
}

// OpenAny is Open for a directory that others may own or read, such as /etc. What is opened in it is checked all the
// same, and so is the directory itself by ReadDir.
func OpenAny(dir string) (FS, error) {
	d, err := openRoot(dir)
	if err != nil {
		return nil, err
	}
	return d, nil
}

// OpenCredentials is OpenAny for a directory in which a service manager has put files for us to read. They may be
// root's, too, and be open to a group: where they lie the mode of the group is that of the list of those who may read.
func OpenCredentials(dir string) (FS, error) {
	d, err := openRoot(dir)
	if err != nil {
		return nil, err
	}
	d.accept = acceptCredential
	return d, nil
}

// disk is a directory of the disk. The descriptor in root is the only thing it has; conn keeps it open while in use.
type disk struct {
	root   *os.File
	conn   syscall.RawConn
	accept func(fd int) error // what may be opened
}

func openRoot(dir string) (*disk, error) {
	// A trailing slash would make the kernel follow a link in spite of O_NOFOLLOW.
	fd, err := openat(unix.AT_FDCWD, filepath.Clean(dir), unix.O_RDONLY|unix.O_DIRECTORY, 0)
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", dir, err)
	}
	root := os.NewFile(uintptr(fd), ".")
	conn, err := root.SyscallConn()
	if err != nil {
		return nil, errors.Join(err, root.Close())
	}
	return &disk{root, conn, accept}, nil
}

func (d *disk) Close() error { return d.root.Close() }

// control calls fn with the descriptor of the root, which stays open meanwhile.
func (d *disk) control(fn func(root int) error) error {
	var err error
	if d.conn.Control(func(fd uintptr) { err = fn(int(fd)) }) != nil {
		return fs.ErrClosed
	}
	return err
}

// openDir opens a directory, one component at a time so that none is a symbolic link.
func (d *disk) openDir(name string, flags int) (int, error) {
	if err := check(name); err != nil {
		return -1, err
	}
	at := -1
	err := d.control(func(root int) error {
		for _, base := range strings.Split(name, "/") {
			from := root
			if at >= 0 {
				from = at
			}
			next, err := openat(from, base, flags|unix.O_DIRECTORY, 0)
			if at >= 0 {
				_ = unix.Close(at)
			}
			if err != nil {
				return err
			}
			at = next
		}
		return nil
	})
	if err != nil {
		return -1, err
	}
	return at, nil
}

// within calls fn with the directory that name is in and the last component of name.
func (d *disk) within(name string, fn func(at int, base string) error) error {
	if name == "." {
		return fs.ErrInvalid
	}
	if err := check(name); err != nil {
		return err
	}
	at, err := d.openDir(path.Dir(name), unix.O_PATH)
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(at) }()
	return fn(at, path.Base(name))
}

// pair is within for two names.
func (d *disk) pair(op, from, to string, fn func(fromAt int, fromBase string, toAt int, toBase string) error) error {
	err := d.within(from, func(fromAt int, fromBase string) error {
		return d.within(to, func(toAt int, toBase string) error { return fn(fromAt, fromBase, toAt, toBase) })
	})
	if err != nil {
		return &os.LinkError{Op: op, Old: from, New: to, Err: err}
	}
	return nil
}

func (d *disk) Create(name string) (File, error) {
	var f File
	err := d.within(name, func(at int, base string) error {
		fd, err := openat(at, base, unix.O_RDWR|unix.O_CREAT|unix.O_EXCL, 0o600)
		if err != nil {
			return err
		}
		if err := tighten(fd); err != nil {
			_ = unix.Close(fd)
			return errors.Join(err, unix.Unlinkat(at, base, 0))
		}
		f = newFile(fd, name)
		return nil
	})
	return f, wrap("create", name, err)
}

func (d *disk) Open(name string, write bool) (File, error) {
	flags := unix.O_RDONLY
	if write {
		flags = unix.O_RDWR
	}
	var f File
	err := d.within(name, func(at int, base string) error {
		fd, err := openat(at, base, flags|unix.O_NONBLOCK, 0)
		if err != nil {
			return err
		}
		if err := d.accept(fd); err != nil {
			_ = unix.Close(fd)
			return err
		}
		f = newFile(fd, name)
		return nil
	})
	return f, wrap("open", name, err)
}

func (d *disk) Mkdir(name string) error {
	return wrap("mkdir", name, d.within(name, func(at int, base string) error {
		if err := unix.Mkdirat(at, base, 0o700); err != nil {
			return err
		}
		var st unix.Stat_t
		err := unix.Fstatat(at, base, &st, unix.AT_SYMLINK_NOFOLLOW)
		if err == nil && st.Mode&0o777 != 0o700 {
			err = unix.Fchmodat(at, base, 0o700, 0)
		}
		if err != nil {
			return errors.Join(err, unix.Unlinkat(at, base, unix.AT_REMOVEDIR))
		}
		return nil
	}))
}

func (d *disk) ReadDir(name string) ([]Entry, error) {
	entries, err := d.readDir(name, private)
	return entries, wrap("readdir", name, err)
}

func (d *disk) List(name string) ([]Entry, error) {
	entries, err := d.readDir(name, func(*unix.Stat_t) error { return nil })
	return entries, wrap("list", name, err)
}

func (d *disk) readDir(name string, check func(*unix.Stat_t) error) ([]Entry, error) {
	fd, err := d.openDir(name, unix.O_RDONLY)
	if err != nil {
		return nil, err
	}
	f := os.NewFile(uintptr(fd), name)
	defer func() { _ = f.Close() }()
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return nil, err
	}
	if err := check(&st); err != nil {
		return nil, err
	}
	names, err := f.Readdirnames(-1)
	if err != nil {
		return nil, err
	}
	slices.Sort(names)
	entries := make([]Entry, 0, len(names))
	for _, n := range names {
		err := unix.Fstatat(fd, n, &st, unix.AT_SYMLINK_NOFOLLOW)
		if err == unix.ENOENT {
			continue // Removed since it was listed.
		}
		if err != nil {
			return nil, err
		}
		e := Entry{Name: n, Mode: mode(&st)}
		e.Dir = e.Mode.IsDir()
		if e.Mode.IsRegular() {
			e.Size = st.Size
		}
		entries = append(entries, e)
	}
	return entries, nil
}

func (d *disk) Rename(from, to string) error {
	return d.pair("rename", from, to, func(a int, x string, b int, y string) error {
		return unix.Renameat2(a, x, b, y, unix.RENAME_NOREPLACE)
	})
}

func (d *disk) Replace(from, to string) error {
	return d.pair("replace", from, to, unix.Renameat)
}

func (d *disk) Exchange(a, b string) error {
	return d.pair("exchange", a, b, func(a int, x string, b int, y string) error {
		return unix.Renameat2(a, x, b, y, unix.RENAME_EXCHANGE)
	})
}

func (d *disk) Link(from, to string) error {
	return d.pair("link", from, to, func(a int, x string, b int, y string) error {
		return unix.Linkat(a, x, b, y, 0)
	})
}

func (d *disk) Remove(name string) error {
	return wrap("remove", name, d.within(name, func(at int, base string) error {
		err := unix.Unlinkat(at, base, 0)
		if err == unix.EISDIR {
			err = unix.Unlinkat(at, base, unix.AT_REMOVEDIR)
		}
		return err
	}))
}

func (d *disk) SyncDir(name string) error {
	fd, err := d.openDir(name, unix.O_RDONLY)
	if err == nil {
		err = errors.Join(unix.Fsync(fd), unix.Close(fd))
	}
	return wrap("syncdir", name, err)
}

func (d *disk) SyncAll() error {
	return wrap("syncall", ".", d.control(unix.Syncfs))
}

func (d *disk) Free() (free, size int64, err error) {
	var st unix.Statfs_t
	err = d.control(func(root int) error { return unix.Fstatfs(root, &st) })
	if err != nil {
		return 0, 0, wrap("free", ".", err)
	}
	return clamp(st.Bavail, st.Frsize), clamp(st.Blocks, st.Frsize), nil
}

// clamp is a number of blocks in bytes; there are file systems that say more than there can be.
func clamp(blocks uint64, size int64) int64 {
	if size <= 0 || blocks > uint64(math.MaxInt64/size) {
		return math.MaxInt64
	}
	return int64(blocks) * size
}

func (d *disk) Lock(name string) (io.Closer, error) {
	var f *os.File
	err := d.within(name, func(at int, base string) error {
		fd, err := openat(at, base, unix.O_RDWR|unix.O_CREAT|unix.O_NONBLOCK, 0o600)
		if err != nil {
			return err
		}
		if err := lock(fd, at, base); err != nil {
			_ = unix.Close(fd)
			return err
		}
		f = os.NewFile(uintptr(fd), name)
		return nil
	})
	if err != nil {
		return nil, wrap("lock", name, err)
	}
	// For people only; the lock is what decides.
	if f.Truncate(0) == nil {
		_, _ = f.WriteAt([]byte(strconv.Itoa(os.Getpid())+"\n"), 0)
	}
	return f, nil
}

// lock locks an open file and makes sure that it still is the file of that name: whoever locks a file that was
// replaced meanwhile shuts nobody out.
func lock(fd, at int, base string) error {
	if err := accept(fd); err != nil {
		return err
	}
	if err := tighten(fd); err != nil {
		return err
	}
	err := unix.Flock(fd, unix.LOCK_EX|unix.LOCK_NB)
	if err == unix.EWOULDBLOCK {
		return ErrLocked
	}
	if err != nil {
		return err
	}
	var ours, named unix.Stat_t
	if err := unix.Fstat(fd, &ours); err != nil {
		return err
	}
	err = unix.Fstatat(at, base, &named, unix.AT_SYMLINK_NOFOLLOW)
	if err == unix.ENOENT || err == nil && (ours.Dev != named.Dev || ours.Ino != named.Ino) {
		return ErrLocked
	}
	return err
}

// openat opens one component and says ErrUnsafe for all that is neither a file nor a directory as asked for.
func openat(at int, base string, flags int, perm uint32) (int, error) {
	for {
		fd, err := unix.Openat(at, base, flags|unix.O_NOFOLLOW|unix.O_CLOEXEC, perm)
		switch err {
		case unix.EINTR:
			continue
		case unix.ELOOP, unix.ENOTDIR, unix.EISDIR, unix.ENXIO, unix.ENODEV:
			return -1, fmt.Errorf("%w: a link, or not a file or directory as expected: %w", ErrUnsafe, err)
		case unix.EMFILE, unix.ENFILE:
			return -1, fmt.Errorf("%w: %w", ErrNoDescriptor, err)
		}
		return fd, err
	}
}

// tighten gives an open file of ours the mode 0600, which a umask may have cut.
func tighten(fd int) error {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return err
	}
	if st.Mode&0o777 == 0o600 {
		return nil
	}
	return unix.Fchmod(fd, 0o600)
}

// accept refuses an open file that is not regular, not ours or open to others. Hard links are accepted.
func accept(fd int) error {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return err
	}
	if st.Mode&unix.S_IFMT != unix.S_IFREG {
		return fmt.Errorf("%w: not a regular file", ErrUnsafe)
	}
	return private(&st)
}

// acceptCredential refuses an open file that is not regular, is neither ours nor root's, that a group may write to, or
// that is open to all.
func acceptCredential(fd int) error {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return err
	}
	switch {
	case st.Mode&unix.S_IFMT != unix.S_IFREG:
		return fmt.Errorf("%w: not a regular file", ErrUnsafe)
	case st.Uid != 0 && int(st.Uid) != os.Geteuid():
		return fmt.Errorf("%w: it belongs to uid %d, neither root nor uid %d", ErrUnsafe, st.Uid, os.Geteuid())
	case st.Mode&0o037 != 0:
		return fmt.Errorf("%w: mode %04o lets others in", ErrUnsafe, st.Mode&0o777)
	}
	return nil
}

// private refuses another owner and a mode that lets group or world in.
func private(st *unix.Stat_t) error {
	euid, want := os.Geteuid(), "600"
	if st.Mode&unix.S_IFMT == unix.S_IFDIR {
		want = "700"
	}
	if int(st.Uid) != euid {
		return fmt.Errorf("%w: it belongs to uid %d, this process is uid %d; chown it or run as its owner",
			ErrUnsafe, st.Uid, euid)
	}
	if st.Mode&0o077 != 0 {
		return fmt.Errorf("%w: mode %04o lets others in; run chmod %s on it", ErrUnsafe, st.Mode&0o777, want)
	}
	return nil
}

// check accepts the names that FS describes.
func check(name string) error {
	if !fs.ValidPath(name) || strings.IndexByte(name, 0) >= 0 {
		return fs.ErrInvalid
	}
	return nil
}

func mode(st *unix.Stat_t) fs.FileMode {
	m := fs.FileMode(st.Mode & 0o777)
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFREG:
	case unix.S_IFDIR:
		m |= fs.ModeDir
	case unix.S_IFLNK:
		m |= fs.ModeSymlink
	case unix.S_IFIFO:
		m |= fs.ModeNamedPipe
	case unix.S_IFSOCK:
		m |= fs.ModeSocket
	default:
		m |= fs.ModeDevice
	}
	return m
}

func wrap(op, name string, err error) error {
	if err == nil {
		return nil
	}
	return &fs.PathError{Op: op, Path: name, Err: err}
}
