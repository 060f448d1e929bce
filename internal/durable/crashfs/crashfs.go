// Package crashfs is a durable.FS in memory that can be broken: operations fail when told to, the process ends, the
// power goes. It models what Linux and its file systems may do at their worst and nothing of owners, modes, symbolic
// links or pipes.
//
//	File.Sync     makes the bytes and the size of a file durable, not its name
//	FS.SyncDir    makes the names in a directory durable, not what is behind them
//	FS.SyncAll    makes everything durable
//	Kill          loses no byte: the page cache outlives the process
//	Crash         every write since the last Sync is kept, lost or torn by itself; every directory keeps the first few
//	              of its changes of names since the last SyncDir, independently of other directories
//
// A change within one directory is atomic, Exchange included. A rename between directories is two changes, so after a
// crash the file is in both, one or neither.
//
// A Sync that fails before its effect leaves what it should have written readable but no longer waiting: a later Sync
// succeeds without it, and Crash and DropCache lose it. Other files open on the same inode are told once, by EIO.
//
// A test owns the FS it was given by New, Kill or Crash; there is nothing to close. Everything here is deterministic:
// the same operations and the same random source give the same outcome.
package crashfs

import (
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"
	"sync"
	"syscall"

	"historyd/internal/durable"
)

// How is the way in which an operation fails.
type How int

const (
	Before How = iota // it has no effect
	After             // it has its effect
	Short             // WriteAt writes a random strict prefix; any other operation as Before
)

func (h How) String() string { return [...]string{"before", "after", "short"}[h] }

// Op is one operation as FailWhen sees it.
type Op struct {
	Index int    // from 0; -1 for a read that is not counted
	Kind  string // the name of the method: "Create", "WriteAt", "SyncDir"
	Name  string // the name it was called with, or that the file was opened by
	To    string // the second name, of Rename, Replace, Exchange and Link
	Off   int64  // of ReadAt and WriteAt; the size, of Truncate
	Data  []byte // of WriteAt; valid during the call only
}

// FS is a file system in memory. All methods are safe for concurrent use.
type FS struct {
	// CountReads says whether ReadAt, Size and Free count as operations; New sets it. Change it before use only.
	CountReads bool

	mu       sync.Mutex // guards everything below and all inodes and files
	root     *inode
	inodes   int // made so far, for their ids
	open     map[*file]bool
	locks    map[*inode]bool
	capacity int64 // negative: no limit
	closed   bool
	dead     bool // the process has ended

	ops     int
	hook    func(Op) error
	at      int
	how     How
	err     error // nil: no fault is armed
	sticky  bool
	reached bool
}

var _ durable.FS = (*FS)(nil)

// New returns an empty file system without a limit.
func New() *FS {
	f := &FS{CountReads: true, capacity: -1}
	f.start(&inode{dir: true, names: map[string]*inode{}, synced: map[string]*inode{}})
	return f
}

func (f *FS) start(root *inode) {
	f.root, f.open, f.locks = root, map[*file]bool{}, map[*inode]bool{}
}

// FailAt makes operation number at, from 0, fail with err, and every later one if sticky. Every method of FS and File
// but Close counts. It takes the place of the fault armed before.
func (f *FS) FailAt(at int, how How, err error, sticky bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.at, f.how, f.err, f.sticky, f.reached = at, how, err, sticky, false
}

// FailWhen has fn called before each operation; an error of it fails the operation Before. No lock is held: fn may
// block, may look at Files and may be called from several goroutines at once, but must not start an operation.
func (f *FS) FailWhen(fn func(Op) error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.hook, f.reached = fn, false
}

// Heal disarms FailAt and FailWhen. What was lost stays lost.
func (f *FS) Heal() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.err, f.hook = nil, nil
}

// Reached tells whether an operation has failed by FailAt or FailWhen since that was called.
func (f *FS) Reached() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.reached
}

// Ops is the number of operations so far; it begins at 0 again after Kill and Crash.
func (f *FS) Ops() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.ops
}

// SetCapacity limits the sum of the sizes of all files. Over it WriteAt writes what fits and returns ENOSPC; Create,
// Mkdir and a Lock of a missing file do when nothing is left. A negative number is no limit. Kill and Crash keep it.
func (f *FS) SetCapacity(bytes int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.capacity = bytes
}

// OpenHandles is the number of files and locks that are not closed.
func (f *FS) OpenHandles() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.open)
}

// Files returns the content of every file as a read would see it, by path. A file that was removed but is still open
// is there as "(deleted) " and the name it was opened by.
func (f *FS) Files() map[string][]byte {
	f.mu.Lock()
	defer f.mu.Unlock()
	files, seen := map[string][]byte{}, map[*inode]bool{}
	f.root.walk("", func(name string, n *inode) {
		if !n.dir {
			files[name], seen[n] = slices.Clone(n.cache), true
		}
	})
	for h := range f.open {
		if !seen[h.node] {
			files["(deleted) "+h.name] = slices.Clone(h.node.cache)
		}
	}
	return files
}

// Corrupt changes the bytes of a file durably, as a bad disk would. It panics if there is no such file.
func (f *FS) Corrupt(name string, fn func([]byte) []byte) {
	f.mu.Lock()
	defer f.mu.Unlock()
	_, _, n, err := f.find(name)
	if err != nil || n == nil || n.dir {
		panic("crashfs: Corrupt: no file " + name)
	}
	n.set(fn(slices.Clone(n.cache)))
}

// Look tells what a name stands for, and a number that is its own for as long as it lives. It is no operation: it is never
// counted and never fails.
func (f *FS) Look(name string) (id int, e durable.Entry, ok bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	n := f.root
	if name != "." {
		var err error
		if _, _, n, err = f.find(name); err != nil || n == nil {
			return 0, durable.Entry{}, false
		}
	}
	return n.id, n.entry(path.Base(name)), true
}

// WriteBack makes everything durable, as the kernel does by itself in time. It is no operation.
func (f *FS) WriteBack() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.each((*inode).sync)
}

// DropCaches has all files read from the disk, as when the kernel wants the memory. It is no operation.
func (f *FS) DropCaches() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.each((*inode).dropCache)
}

// each calls fn for all that is there, and for what is removed but open.
func (f *FS) each(fn func(*inode)) {
	f.root.walk("", func(_ string, n *inode) { fn(n) })
	fn(f.root)
	for h := range f.open {
		fn(h.node)
	}
}

// do is one operation, of an open file or, if h is nil, of the FS. If it is to fail before its effect, failed is
// called instead of effect, unless it is nil.
func (f *FS) do(h *file, op Op, effect func() error, failed func(How)) error {
	how, fault := f.next(&op)
	f.mu.Lock()
	defer f.mu.Unlock()
	err := fault
	switch {
	case f.dead:
		err = fmt.Errorf("the process has ended: %w", fs.ErrClosed)
	case h == nil && f.closed, h != nil && h.closed:
		err = fs.ErrClosed
	case fault == nil || how == After:
		if e := effect(); e != nil {
			err = e
		}
	case failed != nil:
		failed(how)
	}
	if err == nil {
		return nil
	}
	return &fs.PathError{Op: strings.ToLower(op.Kind), Path: op.Name, Err: err}
}

// next counts an operation and finds out whether it is to fail.
func (f *FS) next(op *Op) (How, error) {
	f.mu.Lock()
	hook, how, fault := f.hook, Before, error(nil)
	op.Index = -1
	if f.CountReads || op.Kind != "ReadAt" && op.Kind != "Size" && op.Kind != "Free" {
		op.Index = f.ops
		f.ops++
		if f.err != nil && (op.Index == f.at || f.sticky && op.Index > f.at) {
			how, fault, f.reached = f.how, f.err, true
		}
	}
	dead := f.dead
	f.mu.Unlock()
	if hook == nil || dead {
		return how, fault
	}
	if err := hook(*op); err != nil {
		f.mu.Lock()
		f.reached = true
		f.mu.Unlock()
		return Before, err
	}
	return how, fault
}

// room is the number of bytes that files may still grow by, counting those that are removed but open.
func (f *FS) room() int64 {
	if f.capacity < 0 {
		return 1 << 62
	}
	room, seen := f.capacity, map[*inode]bool{}
	count := func(n *inode) {
		if !seen[n] {
			seen[n] = true
			room -= int64(len(n.cache))
		}
	}
	f.root.walk("", func(_ string, n *inode) { count(n) })
	for h := range f.open {
		count(h.node)
	}
	return max(room, 0)
}

// make adds a file or directory to d.
func (f *FS) make(d *inode, base string, dir bool) (*inode, error) {
	if f.room() == 0 {
		return nil, syscall.ENOSPC
	}
	f.inodes++
	n := &inode{id: f.inodes, dir: dir}
	if dir {
		n.names, n.synced = map[string]*inode{}, map[string]*inode{}
	}
	d.put(slot{base, n})
	return n, nil
}

// dir finds a directory.
func (f *FS) dir(name string) (*inode, error) {
	if !valid(name) {
		return nil, fs.ErrInvalid
	}
	n := f.root
	if name == "." {
		return n, nil
	}
	for _, base := range strings.Split(name, "/") {
		if n = n.names[base]; n == nil {
			return nil, syscall.ENOENT
		}
		if !n.dir {
			return nil, fmt.Errorf("%w: not a directory: %w", durable.ErrUnsafe, syscall.ENOTDIR)
		}
	}
	return n, nil
}

func valid(name string) bool { return fs.ValidPath(name) && strings.IndexByte(name, 0) < 0 }
