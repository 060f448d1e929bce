package durable

import (
	"errors"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// file is a file of the disk. The os.File under it repeats interrupted and short calls and keeps the descriptor open
// while a call uses it; its name is the relative one, so that errors show no more.
type file struct{ f *os.File }

func newFile(fd int, name string) file {
	// O_NONBLOCK was for opening only.
	_ = unix.SetNonblock(fd, false)
	return file{os.NewFile(uintptr(fd), name)}
}

func (f file) ReadAt(p []byte, off int64) (int, error) { return f.f.ReadAt(p, off) }

func (f file) WriteAt(p []byte, off int64) (int, error) {
	n, err := f.f.WriteAt(p, off)
	if n < len(p) && (err == nil || errors.Is(err, io.ErrUnexpectedEOF)) {
		err = wrap("write", f.f.Name(), io.ErrShortWrite)
	}
	return n, err
}

func (f file) Truncate(size int64) error { return f.f.Truncate(size) }

func (f file) Size() (int64, error) {
	st, err := f.f.Stat()
	if err != nil {
		return 0, err
	}
	return st.Size(), nil
}

// Sync is never repeated, not even when interrupted: nobody can tell what the first call has dropped.
func (f file) Sync() error { return f.control("sync", unix.Fdatasync) }

func (f file) DropCache() error {
	return f.control("dropcache", func(fd int) error { return unix.Fadvise(fd, 0, 0, unix.FADV_DONTNEED) })
}

func (f file) Close() error { return f.f.Close() }

func (f file) control(op string, fn func(fd int) error) error {
	conn, err := f.f.SyscallConn()
	if err == nil {
		cerr := conn.Control(func(fd uintptr) { err = fn(int(fd)) })
		if cerr != nil {
			err = os.ErrClosed
		}
	}
	return wrap(op, f.f.Name(), err)
}
