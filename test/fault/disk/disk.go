// Package disk mounts a crashfs.FS, so that a real process works on a disk that fails, hangs, and loses power as a test
// tells it to. It models nothing itself but how the two meet:
//
//   - The kernel keeps its page cache over it. What a failed sync has dropped is gone below at once, and still read from
//     there, looking written, where the page had been read before: until the process drops the cache.
//   - A write that a fault makes short is told to the process as short.
//   - syncfs is not told to a FUSE file system. It is done when the process writes to the file LOCK, which it does right
//     before: what a process shows after a start without syncfs is for the tests on other file systems to find.
//
// A test that asks for the files below the mount while an operation hangs may hang, too: it looks at the FS instead.
package disk

import (
	"context"
	"errors"
	"fmt"
	"path"
	"sync"
	"syscall"
	"time"

	"github.com/hanwen/go-fuse/v2/fs"
	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"

	"historyd/internal/durable"
	"historyd/internal/durable/crashfs"
)

// Disk is a mounted FS.
type Disk struct {
	fsys   *crashfs.FS
	dir    string
	server *fuse.Server
	once   sync.Once
}

// Mount shows an FS in a directory, to processes of this user. It needs root and /dev/fuse, and no helper.
func Mount(dir string, fsys *crashfs.FS) (*Disk, error) {
	d := &Disk{fsys: fsys, dir: dir}
	now := time.Duration(0)
	server, err := fs.Mount(dir, &node{disk: d}, &fs.Options{
		EntryTimeout: &now, AttrTimeout: &now, NegativeTimeout: &now, NullPermissions: true,
		MountOptions: fuse.MountOptions{
			Name: "breakable", FsName: "breakable", DirectMountStrict: true, DisableXAttrs: true,
			// The page cache is given up only when the process asks for it.
			ExplicitDataCacheControl: true, DisableReadDirPlus: true,
		},
	})
	if err != nil {
		return nil, fmt.Errorf("mount: %w", err)
	}
	d.server = server
	return d, nil
}

// Close ends the mount, also when something is still open below it. Nothing may hang any more.
func (d *Disk) Close() (err error) {
	d.once.Do(func() {
		if d.server.Unmount() != nil {
			err = unix.Unmount(d.dir, unix.MNT_DETACH)
		}
		if err == nil {
			d.server.Wait()
		}
	})
	return err
}

// node is a file or a directory.
type node struct {
	fs.Inode
	disk *Disk
}

// handle is an open file.
type handle struct {
	durable.File
	name string
}

var (
	_ fs.NodeLookuper  = (*node)(nil)
	_ fs.NodeGetattrer = (*node)(nil)
	_ fs.NodeSetattrer = (*node)(nil)
	_ fs.NodeOpener    = (*node)(nil)
	_ fs.NodeCreater   = (*node)(nil)
	_ fs.NodeReader    = (*node)(nil)
	_ fs.NodeWriter    = (*node)(nil)
	_ fs.NodeFsyncer   = (*node)(nil)
	_ fs.NodeFlusher   = (*node)(nil)
	_ fs.NodeReleaser  = (*node)(nil)
	_ fs.NodeReaddirer = (*node)(nil)
	_ fs.NodeMkdirer   = (*node)(nil)
	_ fs.NodeUnlinker  = (*node)(nil)
	_ fs.NodeRmdirer   = (*node)(nil)
	_ fs.NodeRenamer   = (*node)(nil)
	_ fs.NodeLinker    = (*node)(nil)
	_ fs.NodeStatfser  = (*node)(nil)
)

// errno is an error as the kernel wants it.
func errno(err error) syscall.Errno {
	var e syscall.Errno
	switch {
	case err == nil:
		return 0
	case errors.As(err, &e):
		return e
	}
	return syscall.EIO
}

func (n *node) path(names ...string) string {
	return path.Join(append([]string{".", n.Path(n.Root())}, names...)...)
}

// attributes are those of a file or directory of ours alone.
func attributes(id int, e durable.Entry, out *fuse.Attr) {
	out.Ino, out.Nlink, out.Size = uint64(id)+1, 1, uint64(e.Size)
	out.Mode = syscall.S_IFREG | uint32(e.Mode.Perm())
	if e.Dir {
		out.Mode = syscall.S_IFDIR | uint32(e.Mode.Perm())
	}
	out.Uid, out.Gid = uint32(unix.Geteuid()), uint32(unix.Getegid())
	out.Blksize = 4096
	out.Blocks = (out.Size + 511) / 512
}

// child is the node of what a name in a directory stands for.
func (n *node) child(ctx context.Context, name string, out *fuse.EntryOut) (*fs.Inode, syscall.Errno) {
	id, e, ok := n.disk.fsys.Look(n.path(name))
	if !ok {
		return nil, syscall.ENOENT
	}
	attributes(id, e, &out.Attr)
	return n.NewInode(ctx, &node{disk: n.disk}, fs.StableAttr{Mode: out.Mode & syscall.S_IFMT, Ino: out.Ino, Gen: 1}), 0
}

func (n *node) Lookup(ctx context.Context, name string, out *fuse.EntryOut) (*fs.Inode, syscall.Errno) {
	return n.child(ctx, name, out)
}

func (n *node) Getattr(_ context.Context, f fs.FileHandle, out *fuse.AttrOut) syscall.Errno {
	if h, ok := f.(*handle); ok {
		size, err := h.Size()
		attributes(int(n.StableAttr().Ino-1), durable.Entry{Size: size, Mode: 0o600}, &out.Attr)
		return errno(err)
	}
	id, e, ok := n.disk.fsys.Look(n.path())
	if !ok {
		return syscall.ENOENT
	}
	attributes(id, e, &out.Attr)
	return 0
}

// Setattr cuts a file. Owners and modes are always the same.
func (n *node) Setattr(ctx context.Context, f fs.FileHandle, in *fuse.SetAttrIn, out *fuse.AttrOut) syscall.Errno {
	if size, ok := in.GetSize(); ok {
		h, ok := f.(*handle)
		if !ok {
			return syscall.ENOTSUP
		}
		if err := h.Truncate(int64(size)); err != nil {
			return errno(err)
		}
	}
	return n.Getattr(ctx, f, out)
}

func (n *node) Open(_ context.Context, flags uint32) (fs.FileHandle, uint32, syscall.Errno) {
	name := n.path()
	f, err := n.disk.fsys.Open(name, flags&syscall.O_ACCMODE != syscall.O_RDONLY)
	if err != nil {
		return nil, 0, errno(err)
	}
	return &handle{f, name}, fuse.FOPEN_KEEP_CACHE, 0
}

func (n *node) Create(ctx context.Context, name string, _, _ uint32, out *fuse.EntryOut) (*fs.Inode, fs.FileHandle, uint32, syscall.Errno) {
	f, err := n.disk.fsys.Create(n.path(name))
	if err != nil {
		return nil, nil, 0, errno(err)
	}
	made, e := n.child(ctx, name, out)
	if e != 0 {
		_ = f.Close()
		return nil, nil, 0, e
	}
	return made, &handle{f, n.path(name)}, fuse.FOPEN_KEEP_CACHE, 0
}

func (n *node) Read(_ context.Context, f fs.FileHandle, dest []byte, off int64) (fuse.ReadResult, syscall.Errno) {
	got, err := f.(*handle).ReadAt(dest, off)
	var e syscall.Errno
	if errors.As(err, &e) {
		return nil, e
	}
	return fuse.ReadResultData(dest[:got]), 0
}

func (n *node) Write(_ context.Context, f fs.FileHandle, data []byte, off int64) (uint32, syscall.Errno) {
	h := f.(*handle)
	if h.name == "LOCK" {
		n.disk.fsys.WriteBack() // the syncfs of the start
	}
	wrote, err := h.WriteAt(data, off)
	if wrote > 0 && wrote < len(data) {
		return uint32(wrote), 0 // the process tries the rest, and is told then
	}
	return uint32(wrote), errno(err)
}

// Fsync is of a file or of a directory.
func (n *node) Fsync(_ context.Context, f fs.FileHandle, _ uint32) syscall.Errno {
	h, ok := f.(*handle)
	if !ok {
		return errno(n.disk.fsys.SyncDir(n.path()))
	}
	err := h.Sync()
	if err != nil {
		n.disk.fsys.DropCaches() // those below: the kernel's stay
	}
	return errno(err)
}

// Flush is the close of one descriptor, which makes nothing durable.
func (n *node) Flush(context.Context, fs.FileHandle) syscall.Errno { return 0 }

func (n *node) Release(_ context.Context, f fs.FileHandle) syscall.Errno {
	_ = f.(*handle).Close()
	return 0
}

func (n *node) Readdir(context.Context) (fs.DirStream, syscall.Errno) {
	entries, err := n.disk.fsys.List(n.path())
	if err != nil {
		return nil, errno(err)
	}
	list := make([]fuse.DirEntry, len(entries))
	for i, e := range entries {
		list[i] = fuse.DirEntry{Name: e.Name, Mode: syscall.S_IFREG}
		if e.Dir {
			list[i].Mode = syscall.S_IFDIR
		}
	}
	return fs.NewListDirStream(list), 0
}

func (n *node) Mkdir(ctx context.Context, name string, _ uint32, out *fuse.EntryOut) (*fs.Inode, syscall.Errno) {
	if err := n.disk.fsys.Mkdir(n.path(name)); err != nil {
		return nil, errno(err)
	}
	return n.child(ctx, name, out)
}

func (n *node) Unlink(_ context.Context, name string) syscall.Errno {
	return errno(n.disk.fsys.Remove(n.path(name)))
}

func (n *node) Rmdir(_ context.Context, name string) syscall.Errno {
	return errno(n.disk.fsys.Remove(n.path(name)))
}

func (n *node) Rename(_ context.Context, name string, parent fs.InodeEmbedder, to string, flags uint32) syscall.Errno {
	target := parent.(*node).path(to)
	switch flags {
	case 0:
		return errno(n.disk.fsys.Replace(n.path(name), target))
	case unix.RENAME_NOREPLACE:
		return errno(n.disk.fsys.Rename(n.path(name), target))
	case unix.RENAME_EXCHANGE:
		return errno(n.disk.fsys.Exchange(n.path(name), target))
	}
	return syscall.EINVAL
}

func (n *node) Link(ctx context.Context, target fs.InodeEmbedder, name string, out *fuse.EntryOut) (*fs.Inode, syscall.Errno) {
	if err := n.disk.fsys.Link(target.(*node).path(), n.path(name)); err != nil {
		return nil, errno(err)
	}
	return n.child(ctx, name, out)
}

func (n *node) Statfs(_ context.Context, out *fuse.StatfsOut) syscall.Errno {
	free, size, err := n.disk.fsys.Free()
	if err != nil {
		return errno(err)
	}
	out.Bsize, out.Frsize, out.NameLen = 4096, 1, 255
	out.Blocks, out.Bfree, out.Bavail = uint64(size), uint64(free), uint64(free)
	return 0
}
