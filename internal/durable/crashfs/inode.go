package crashfs

import (
	"io/fs"
	"maps"
	"path"
	"slices"

	"historyd/internal/durable"
)

// inode is a file or a directory: what the running system sees, what the disk has, and what lies between.
type inode struct {
	id  int
	dir bool

	// Of a file.
	cache    []byte
	disk     []byte
	dirty    []change // since the last sync, in order
	gone     []bool   // bytes of cache that a failed sync has dropped; those beyond its end are not
	failures int      // failed syncs

	// Of a directory.
	names   map[string]*inode
	synced  map[string]*inode
	pending [][]slot // since the last sync, in order; each is atomic
}

// change is a write at off, or a truncation to off.
type change struct {
	off  int64
	data []byte
	cut  bool
}

// slot is a name and what it stands for from now on, nil for nothing.
type slot struct {
	base string
	node *inode
}

func (n *inode) put(slots ...slot) {
	apply(n.names, slots)
	n.pending = append(n.pending, slots)
}

func apply(names map[string]*inode, slots []slot) {
	for _, s := range slots {
		if s.node == nil {
			delete(names, s.base)
		} else {
			names[s.base] = s.node
		}
	}
}

// entry is what a listing shows.
func (n *inode) entry(base string) durable.Entry {
	e := durable.Entry{Name: base, Dir: n.dir, Size: int64(len(n.cache)), Mode: 0o600}
	if n.dir {
		e.Mode = fs.ModeDir | 0o700
	}
	return e
}

// walk calls fn for all that is below a directory, sorted by name.
func (n *inode) walk(name string, fn func(name string, n *inode)) {
	for _, base := range slices.Sorted(maps.Keys(n.names)) {
		child := n.names[base]
		fn(path.Join(name, base), child)
		child.walk(path.Join(name, base), fn)
	}
}

func (n *inode) write(off int64, data []byte) {
	if len(data) == 0 {
		return
	}
	n.cache = overlay(n.cache, off, data)
	n.dirty = append(n.dirty, change{off: off, data: slices.Clone(data)})
	for i := off; i < off+int64(len(data)) && i < int64(len(n.gone)); i++ {
		n.gone[i] = false
	}
}

func (n *inode) truncate(size int64) {
	n.cache = resize(n.cache, size)
	n.dirty = append(n.dirty, change{off: size, cut: true})
	n.gone = n.gone[:min(int64(len(n.gone)), size)]
}

// set replaces the content on disk and in the cache.
func (n *inode) set(data []byte) {
	n.cache, n.disk, n.dirty, n.gone = data, slices.Clone(data), nil, nil
}

func (n *inode) sync() {
	if n.dir {
		n.synced, n.pending = maps.Clone(n.names), nil
		return
	}
	if len(n.gone) == 0 {
		for _, c := range n.dirty {
			if c.cut {
				n.disk = resize(n.disk, c.off)
			} else {
				n.disk = overlay(n.disk, c.off, c.data)
			}
		}
		n.disk, n.dirty = resize(n.disk, int64(len(n.cache))), nil
		return
	}
	under := n.under()
	disk := n.without(under)
	// Nobody has written the end of a file whose last bytes are gone.
	end := len(disk)
	for end > len(under) && end <= len(n.gone) && n.gone[end-1] {
		end--
	}
	n.disk, n.dirty = disk[:end], nil
}

// failSync is a sync that reports an error: what waited to be written does not wait any longer. Sizes still do, they
// go by way of the journal.
func (n *inode) failSync() {
	if n.dir {
		return
	}
	var cuts []change
	for _, c := range n.dirty {
		if c.cut {
			cuts = append(cuts, c)
			continue
		}
		end := min(c.off+int64(len(c.data)), int64(len(n.cache)))
		for int64(len(n.gone)) < end {
			n.gone = append(n.gone, false)
		}
		for i := c.off; i < end; i++ {
			n.gone[i] = true
		}
	}
	if len(cuts) < len(n.dirty) {
		n.failures++
	}
	n.dirty = cuts
}

// dropCache reads from the disk what is gone. The size in memory stays.
func (n *inode) dropCache() {
	if n.dir {
		return
	}
	n.cache, n.gone = n.without(n.under()), nil
}

// under is the disk with the truncations that wait to be written.
func (n *inode) under() []byte {
	under := slices.Clone(n.disk)
	for _, c := range n.dirty {
		if c.cut {
			under = resize(under, c.off)
		}
	}
	return under
}

// without is the cache, with what lies under it where bytes are gone.
func (n *inode) without(under []byte) []byte {
	out := slices.Clone(n.cache)
	for i, gone := range n.gone {
		if gone {
			out[i] = 0
			if i < len(under) {
				out[i] = under[i]
			}
		}
	}
	return out
}

// overlay writes data into b at off; a gap reads as NULs.
func overlay(b []byte, off int64, data []byte) []byte {
	if end := off + int64(len(data)); end > int64(len(b)) {
		b = resize(b, end)
	}
	copy(b[off:], data)
	return b
}

// resize cuts b or adds NULs to it.
func resize(b []byte, size int64) []byte {
	if size <= int64(len(b)) {
		return b[:size]
	}
	return append(b, make([]byte, size-int64(len(b)))...)
}
