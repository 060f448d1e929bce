package crashfs

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"slices"
	"strings"
	"syscall"

	"historyd/internal/durable"
)

// find returns the directory that name is in, its last component, and what is there, which is nil if nothing is.
func (f *FS) find(name string) (*inode, string, *inode, error) {
	if name == "." || !valid(name) {
		return nil, "", nil, fs.ErrInvalid
	}
	d, err := f.dir(path.Dir(name))
	if err != nil {
		return nil, "", nil, err
	}
	base := path.Base(name)
	return d, base, d.names[base], nil
}

// file finds a file.
func (f *FS) file(name string) (*inode, error) {
	_, _, n, err := f.find(name)
	switch {
	case err != nil:
		return nil, err
	case n == nil:
		return nil, syscall.ENOENT
	case n.dir:
		return nil, fmt.Errorf("%w: not a regular file", durable.ErrUnsafe)
	}
	return n, nil
}

// opening is an operation that opens what fn returns. If it fails after its effect nothing stays open.
func (f *FS) opening(op Op, fn func() (*file, error)) (*file, error) {
	var h *file
	err := f.do(nil, op, func() (err error) {
		if h, err = fn(); err == nil {
			h.fs, h.name = f, op.Name
			f.open[h] = true
		}
		return err
	}, nil)
	if err != nil && h != nil {
		_ = h.Close()
	}
	return h, err
}

func (f *FS) Create(name string) (durable.File, error) {
	h, err := f.opening(Op{Kind: "Create", Name: name}, func() (*file, error) {
		d, base, n, err := f.find(name)
		if err != nil {
			return nil, err
		}
		if n != nil {
			return nil, syscall.EEXIST
		}
		if n, err = f.make(d, base, false); err != nil {
			return nil, err
		}
		return &file{node: n, write: true}, nil
	})
	if err != nil {
		return nil, err
	}
	return h, nil
}

func (f *FS) Open(name string, write bool) (durable.File, error) {
	h, err := f.opening(Op{Kind: "Open", Name: name}, func() (*file, error) {
		n, err := f.file(name)
		if err != nil {
			return nil, err
		}
		return &file{node: n, write: write, told: n.failures}, nil
	})
	if err != nil {
		return nil, err
	}
	return h, nil
}

func (f *FS) Mkdir(name string) error {
	return f.do(nil, Op{Kind: "Mkdir", Name: name}, func() error {
		d, base, n, err := f.find(name)
		if err != nil {
			return err
		}
		if n != nil {
			return syscall.EEXIST
		}
		_, err = f.make(d, base, true)
		return err
	}, nil)
}

func (f *FS) ReadDir(name string) ([]durable.Entry, error) { return f.list("ReadDir", name) }

// List is ReadDir: everything here is ours and closed to others.
func (f *FS) List(name string) ([]durable.Entry, error) { return f.list("List", name) }

func (f *FS) list(kind, name string) ([]durable.Entry, error) {
	var entries []durable.Entry
	err := f.do(nil, Op{Kind: kind, Name: name}, func() error {
		d, err := f.dir(name)
		if err != nil {
			return err
		}
		for base, n := range d.names {
			entries = append(entries, n.entry(base))
		}
		slices.SortFunc(entries, func(a, b durable.Entry) int { return strings.Compare(a.Name, b.Name) })
		return nil
	}, nil)
	if err != nil {
		return nil, err
	}
	return entries, nil
}

func (f *FS) Rename(from, to string) error {
	return f.do(nil, Op{Kind: "Rename", Name: from, To: to}, func() error { return f.move(from, to, false) }, nil)
}

func (f *FS) Replace(from, to string) error {
	return f.do(nil, Op{Kind: "Replace", Name: from, To: to}, func() error { return f.move(from, to, true) }, nil)
}

func (f *FS) move(from, to string, replace bool) error {
	a, x, src, err := f.find(from)
	if err != nil {
		return err
	}
	b, y, dst, err := f.find(to)
	switch {
	case err != nil:
		return err
	case src == nil:
		return syscall.ENOENT
	case dst != nil && !replace:
		return syscall.EEXIST
	case src == dst:
		return nil // Two names of one file: rename(2) leaves both.
	case strings.HasPrefix(to, from+"/"):
		return syscall.EINVAL
	case dst != nil && dst.dir && !src.dir:
		return syscall.EISDIR
	case dst != nil && !dst.dir && src.dir:
		return syscall.ENOTDIR
	case dst != nil && len(dst.names) > 0:
		return syscall.ENOTEMPTY
	case a == b:
		a.put(slot{x, nil}, slot{y, src})
	default:
		b.put(slot{y, src})
		a.put(slot{x, nil})
	}
	return nil
}

func (f *FS) Exchange(from, to string) error {
	return f.do(nil, Op{Kind: "Exchange", Name: from, To: to}, func() error {
		a, x, src, err := f.find(from)
		if err != nil {
			return err
		}
		b, y, dst, err := f.find(to)
		switch {
		case err != nil:
			return err
		case src == nil || dst == nil:
			return syscall.ENOENT
		case src == dst:
		case strings.HasPrefix(to, from+"/") || strings.HasPrefix(from, to+"/"):
			return syscall.EINVAL
		case a == b:
			a.put(slot{x, dst}, slot{y, src})
		default:
			a.put(slot{x, dst})
			b.put(slot{y, src})
		}
		return nil
	}, nil)
}

func (f *FS) Link(from, to string) error {
	return f.do(nil, Op{Kind: "Link", Name: from, To: to}, func() error {
		_, _, src, err := f.find(from)
		if err != nil {
			return err
		}
		b, y, dst, err := f.find(to)
		switch {
		case err != nil:
			return err
		case src == nil:
			return syscall.ENOENT
		case dst != nil:
			return syscall.EEXIST
		case src.dir:
			return syscall.EPERM
		}
		b.put(slot{y, src})
		return nil
	}, nil)
}

func (f *FS) Remove(name string) error {
	return f.do(nil, Op{Kind: "Remove", Name: name}, func() error {
		d, base, n, err := f.find(name)
		switch {
		case err != nil:
			return err
		case n == nil:
			return syscall.ENOENT
		case len(n.names) > 0:
			return syscall.ENOTEMPTY
		}
		d.put(slot{base, nil})
		return nil
	}, nil)
}

func (f *FS) SyncDir(name string) error {
	return f.do(nil, Op{Kind: "SyncDir", Name: name}, func() error {
		d, err := f.dir(name)
		if err == nil {
			d.sync()
		}
		return err
	}, nil)
}

func (f *FS) SyncAll() error {
	return f.do(nil, Op{Kind: "SyncAll", Name: "."}, func() error {
		f.each((*inode).sync)
		return nil
	}, func(How) { f.each((*inode).failSync) })
}

// Free goes by SetCapacity; without one the size is not told. It counts as an operation where reads do.
func (f *FS) Free() (free, size int64, err error) {
	err = f.do(nil, Op{Kind: "Free", Name: "."}, func() error {
		free, size = f.room(), max(f.capacity, 0)
		return nil
	}, nil)
	if err != nil {
		return 0, 0, err
	}
	return free, size, nil
}

func (f *FS) Lock(name string) (io.Closer, error) {
	h, err := f.opening(Op{Kind: "Lock", Name: name}, func() (*file, error) {
		n, err := f.file(name)
		if errors.Is(err, syscall.ENOENT) {
			var d *inode
			var base string
			if d, base, _, err = f.find(name); err == nil {
				n, err = f.make(d, base, false)
			}
		}
		if err != nil {
			return nil, err
		}
		if f.locks[n] {
			return nil, durable.ErrLocked
		}
		f.locks[n] = true
		return &file{node: n, lock: true}, nil
	})
	if err != nil {
		return nil, err
	}
	return h, nil
}

// Close ends the FS for its user; the test may go on with Kill, Crash and Files.
func (f *FS) Close() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed {
		return fs.ErrClosed
	}
	f.closed = true
	return nil
}
