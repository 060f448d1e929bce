// Package durable is the only way to disk: the file operations the daemon needs and no more. It does not know what
// is written; frames, checksums and recovery belong to its users.
//
// Nothing is durable before it is synced: the bytes of a file by File.Sync, its name by FS.SyncDir of the directory it
// is in, everything by FS.SyncAll. A failed sync must not be repeated on the same file: the kernel has dropped the
// bytes and answers the second call with success.
//
// System calls, all but those of MediumOf relative to the descriptor of one directory:
//
//	every name      openat(O_PATH|O_DIRECTORY|O_NOFOLLOW) for each directory on the way
//	Create          openat(O_RDWR|O_CREAT|O_EXCL), fstat, fchmod when the umask took too much
//	Open            openat(O_RDONLY or O_RDWR, O_NOFOLLOW|O_NONBLOCK), fstat, fcntl
//	Mkdir           mkdirat, fstatat, fchmodat when the umask took too much
//	ReadDir, List   openat, fstat, getdents64, fstatat
//	Rename          renameat2(RENAME_NOREPLACE)
//	Replace         renameat
//	Exchange        renameat2(RENAME_EXCHANGE)
//	Link, Remove    linkat, unlinkat
//	SyncDir         openat, fsync
//	SyncAll         syncfs
//	Free            fstatfs
//	Lock            openat(O_RDWR|O_CREAT), fstat, flock(LOCK_EX|LOCK_NB), fstatat, ftruncate, pwrite64
//	MediumOf        statfs; for FUSE also stat, and a read of /proc/self/mountinfo
//	File            pread64, pwrite64, ftruncate, fstat, fdatasync, fadvise64(POSIX_FADV_DONTNEED), close
package durable

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"strings"
	"syscall"
)

var (
	// ErrUnsafe is for what is there but is not ours alone: a symbolic link, a pipe, another owner, a mode that lets
	// others in, or a file where a directory should be.
	ErrUnsafe = errors.New("unsafe file")

	// ErrLocked is for a lock that somebody else holds.
	ErrLocked = errors.New("locked by another process")
)

// FS is a directory tree. Names are slash-separated, relative and local ("." is the root itself); anything else is
// fs.ErrInvalid. No component is ever followed through a symbolic link. Errors wrap their cause and name no path
// above the root. Safe for concurrent use.
//
// After an error the operation may have had its effect or not.
type FS interface {
	// Create makes a new file of mode 0600 for reading and writing; fs.ErrExist when the name is taken. It is durable
	// only after File.Sync and SyncDir of its directory. The caller closes it.
	Create(name string) (File, error)

	// Open opens a regular file that is ours and no looser than 0600, else ErrUnsafe. The caller closes it.
	Open(name string, write bool) (File, error)

	// Mkdir makes a directory of mode 0700; fs.ErrExist when the name is taken.
	Mkdir(name string) error

	// ReadDir lists a directory, sorted by name. The directory must be ours and closed to others, else ErrUnsafe.
	ReadDir(name string) ([]Entry, error)

	// List is ReadDir of a directory whatever its owner and mode: for removing it, since what is in it would not
	// be believed.
	List(name string) ([]Entry, error)

	// Rename never replaces: fs.ErrExist when the target is there.
	Rename(from, to string) error

	// Replace renames over a file that may be there.
	Replace(from, to string) error

	// Exchange swaps two names that are both there.
	Exchange(a, b string) error

	// Link gives a file a second name; fs.ErrExist when that is taken.
	Link(from, to string) error

	// Remove removes a file or an empty directory.
	Remove(name string) error

	// SyncDir makes durable which names the directory holds, not what is behind them.
	SyncDir(name string) error

	// SyncAll makes everything durable that was done before it.
	SyncAll() error

	// Free tells how many bytes files of ours may still take on the file system, and how many it has in all. Other
	// processes change it at any time. A size of 0 is of a file system that does not tell.
	Free() (free, size int64, err error)

	// Lock takes an exclusive lock on a file, which is made when it is missing; ErrLocked when somebody else holds
	// it, this process included. It ends when what is returned is closed, which the caller must keep until then, or
	// with the process.
	Lock(name string) (io.Closer, error)

	// Close ends the FS. Files and locks stay open.
	Close() error
}

// Entry is one name in a directory. Size is 0 unless it is a regular file; Mode has the type and the permissions.
type Entry struct {
	Name string
	Dir  bool
	Size int64
	Mode fs.FileMode
}

// File is an open regular file. Safe for concurrent use; writes that overlap are in no order.
type File interface {
	// ReadAt is as in io.ReaderAt.
	ReadAt(p []byte, off int64) (int, error)

	// WriteAt writes fewer bytes than it was given only with an error. Durable after Sync.
	WriteAt(p []byte, off int64) (int, error)

	// Truncate sets the size; what is added reads as NULs. Durable after Sync.
	Truncate(size int64) error

	// Size is the size now.
	Size() (int64, error)

	// Sync makes bytes and size durable. After an error nothing is known of what was written since the last
	// success, and another Sync tells nothing either; see DropCache.
	Sync() error

	// DropCache makes later reads come from the disk, but for bytes that still wait to be written.
	DropCache() error

	// Close releases the file. It makes nothing durable.
	Close() error
}

// WriteFile replaces the content of a file: a new file beside it, named ".<base>.tmp-<random>", is written, synced and
// renamed over it, and the directory is synced. On success the new content is durable. After an error the name holds
// the old content or, if only the last sync failed, perhaps the new; never a mixture. A crash may leave the new file
// behind under its temporary name.
func WriteFile(fsys FS, name string, data []byte) error {
	dir, base := path.Split(name)
	temp := dir + "." + base + ".tmp-" + rand.Text()
	err := writeNew(fsys, temp, data)
	if err == nil {
		err = fsys.Replace(temp, name)
	}
	if err != nil {
		if rerr := fsys.Remove(temp); rerr != nil && !errors.Is(rerr, fs.ErrNotExist) {
			err = errors.Join(err, rerr)
		}
		return fmt.Errorf("write %s: %w", name, err)
	}
	if err := fsys.SyncDir(path.Dir(name)); err != nil {
		return fmt.Errorf("write %s: %w", name, err)
	}
	return nil
}

func writeNew(fsys FS, name string, data []byte) error {
	f, err := fsys.Create(name)
	if err != nil {
		return err
	}
	_, err = f.WriteAt(data, 0)
	if err == nil {
		err = f.Sync()
	}
	return errors.Join(err, f.Close())
}

// MkdirAll makes a directory and those above it that are missing, durably. The parent of every level is synced, also
// when the level was there: it may be left over from a process that died before its own sync.
func MkdirAll(fsys FS, name string) error {
	if !fs.ValidPath(name) {
		return &fs.PathError{Op: "mkdir", Path: name, Err: fs.ErrInvalid}
	}
	if name == "." {
		return nil
	}
	parent, found := ".", false
	for _, base := range strings.Split(name, "/") {
		level := path.Join(parent, base)
		err := fsys.Mkdir(level)
		found = errors.Is(err, fs.ErrExist)
		if err != nil && !found {
			return err
		}
		if err := fsys.SyncDir(parent); err != nil {
			return err
		}
		parent = level
	}
	if found {
		return fsys.SyncDir(name) // Refuses what is not a directory.
	}
	return nil
}

// RemoveAll removes a file or a directory with all that is in it, the deepest first. It is no error if there is
// nothing. The removal is durable after SyncDir of the directory that name is in.
func RemoveAll(fsys FS, name string) error {
	err := fsys.Remove(name)
	if err == nil || errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if !errors.Is(err, syscall.ENOTEMPTY) {
		return err
	}
	entries, err := fsys.List(name)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if err := RemoveAll(fsys, path.Join(name, e.Name)); err != nil {
			return err
		}
	}
	if err := fsys.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}
