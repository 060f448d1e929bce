package crashfs

import (
	"io"
	"io/fs"
	"math/rand/v2"
	"syscall"
)

// file is an open file or a lock.
type file struct {
	fs     *FS
	name   string
	node   *inode
	write  bool
	lock   bool
	closed bool
	told   int // of node.failures, how many this file knows of
}

func (h *file) ReadAt(p []byte, off int64) (int, error) {
	n, end := 0, false
	err := h.fs.do(h, Op{Kind: "ReadAt", Name: h.name, Off: off}, func() error {
		if off < 0 {
			return syscall.EINVAL
		}
		if off < int64(len(h.node.cache)) {
			n = copy(p, h.node.cache[off:])
		}
		end = n < len(p)
		return nil
	}, nil)
	if err == nil && end {
		err = io.EOF
	}
	return n, err
}

func (h *file) WriteAt(p []byte, off int64) (int, error) {
	n := 0
	err := h.fs.do(h, Op{Kind: "WriteAt", Name: h.name, Off: off, Data: p}, func() (err error) {
		if !h.write {
			return syscall.EBADF
		}
		if off < 0 {
			return syscall.EINVAL
		}
		n = len(p)
		grow := off + int64(len(p)) - int64(len(h.node.cache))
		if room := h.fs.room(); grow > room {
			n, err = int(max(0, int64(len(p))-(grow-room))), syscall.ENOSPC
		}
		h.node.write(off, p[:n])
		return err
	}, func(how How) {
		if how == Short && h.write && len(p) > 0 {
			n = rand.New(rand.NewPCG(uint64(h.fs.ops), uint64(len(p)))).IntN(len(p))
			h.node.write(off, p[:n])
		}
	})
	return n, err
}

func (h *file) Truncate(size int64) error {
	return h.fs.do(h, Op{Kind: "Truncate", Name: h.name, Off: size}, func() error {
		if !h.write || size < 0 {
			return syscall.EINVAL
		}
		h.node.truncate(size)
		return nil
	}, nil)
}

func (h *file) Size() (int64, error) {
	size := int64(0)
	err := h.fs.do(h, Op{Kind: "Size", Name: h.name}, func() error {
		size = int64(len(h.node.cache))
		return nil
	}, nil)
	return size, err
}

func (h *file) Sync() error {
	return h.fs.do(h, Op{Kind: "Sync", Name: h.name}, func() error {
		h.node.sync()
		if h.told != h.node.failures {
			h.told = h.node.failures
			return syscall.EIO
		}
		return nil
	}, func(How) {
		h.node.failSync()
		h.told = h.node.failures
	})
}

func (h *file) DropCache() error {
	return h.fs.do(h, Op{Kind: "DropCache", Name: h.name}, func() error {
		h.node.dropCache()
		return nil
	}, nil)
}

func (h *file) Close() error {
	h.fs.mu.Lock()
	defer h.fs.mu.Unlock()
	if h.closed || h.fs.dead {
		return fs.ErrClosed
	}
	h.closed = true
	delete(h.fs.open, h)
	if h.lock {
		delete(h.fs.locks, h.node)
	}
	return nil
}
