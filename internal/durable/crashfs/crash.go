package crashfs

import (
	"maps"
	"math/rand/v2"
	"slices"
)

// Kill ends the process: all that was written stays, and every use of the old FS and of its files is an error from now
// on. It returns what the next process finds, without faults.
func (f *FS) Kill() *FS {
	next, _ := f.kill()
	return next
}

// kill returns the next FS and all inodes in it, by id.
func (f *FS) kill() (*FS, []*inode) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.dead = true
	copies := copier{}
	next := &FS{CountReads: f.CountReads, capacity: f.capacity, inodes: f.inodes}
	next.start(copies.copy(f.root))
	return next, slices.SortedFunc(maps.Values(copies), func(a, b *inode) int { return a.id - b.id })
}

// Crash ends the process and the power. What was synced is there; of the rest, chance decides. The old FS may be
// crashed again, for another outcome of the same moment.
func (f *FS) Crash(rng *rand.Rand) *FS {
	next, all := f.kill()
	for _, n := range all {
		if n.dir {
			n.names = maps.Clone(n.synced)
			for _, slots := range n.pending[:rng.IntN(len(n.pending)+1)] {
				apply(n.names, slots)
			}
			n.sync()
		} else {
			n.set(n.outcome(rng))
		}
	}
	next.untangle(next.root, map[*inode]bool{}, map[*inode]bool{})
	return next
}

// outcome is what the disk may hold of a file after a power cut.
func (n *inode) outcome(rng *rand.Rand) []byte {
	out := slices.Clone(n.disk)
	fate := rng.IntN(4) // Of all changes: 0 all are lost, 1 none is, else each has its own.
	for _, c := range n.dirty {
		part := len(c.data)
		switch own := rng.IntN(4); {
		case fate == 1 || fate > 1 && own > 1: // Kept.
		case c.cut:
			continue
		case fate > 1 && own == 1:
			part = torn(rng, c)
		default:
			part = 0
		}
		if c.cut {
			out = resize(out, c.off)
			continue
		}
		if part > 0 {
			out = overlay(out, c.off, c.data[:part])
		}
		if end := c.off + int64(len(c.data)); end > int64(len(out)) && rng.IntN(2) == 0 {
			out = resize(out, end)
		}
	}
	// A size may reach the disk without the bytes.
	if grow := len(n.cache) - len(out); grow > 0 && rng.IntN(2) == 0 {
		out = resize(out, int64(len(out)+rng.IntN(grow+1)))
	}
	return out
}

// torn is how much of a write reaches the disk: up to any byte or up to a sector.
func torn(rng *rand.Rand, c change) int {
	part := rng.IntN(len(c.data))
	if rng.IntN(2) == 0 {
		part = max(0, part-int((c.off+int64(part))%512))
	}
	return part
}

// untangle gives each directory one place. A rename between directories that was kept in the new one only leaves a
// directory in two, which become two directories with the same files; one that would be inside itself is dropped.
func (f *FS) untangle(d *inode, placed, above map[*inode]bool) {
	placed[d], above[d] = true, true
	for _, base := range slices.Sorted(maps.Keys(d.names)) {
		n := d.names[base]
		switch {
		case !n.dir:
			continue
		case above[n]:
			delete(d.names, base)
			continue
		case placed[n]:
			f.inodes++
			n = &inode{id: f.inodes, dir: true, names: maps.Clone(n.names)}
			d.names[base] = n
		}
		f.untangle(n, placed, above)
	}
	delete(above, d)
	d.sync()
}

// copier copies a graph of inodes; it maps each to its copy.
type copier map[*inode]*inode

func (c copier) copy(n *inode) *inode {
	if n == nil {
		return nil
	}
	if c[n] != nil {
		return c[n]
	}
	to := &inode{
		id: n.id, dir: n.dir,
		cache: slices.Clone(n.cache), disk: slices.Clone(n.disk), dirty: slices.Clone(n.dirty),
		gone: slices.Clone(n.gone), failures: n.failures,
	}
	c[n] = to
	if !n.dir {
		return to
	}
	to.names, to.synced = c.copyNames(n.names), c.copyNames(n.synced)
	for _, slots := range n.pending {
		copied := make([]slot, len(slots))
		for i, s := range slots {
			copied[i] = slot{s.base, c.copy(s.node)}
		}
		to.pending = append(to.pending, copied)
	}
	return to
}

func (c copier) copyNames(names map[string]*inode) map[string]*inode {
	to := make(map[string]*inode, len(names))
	for base, n := range names {
		to[base] = c.copy(n)
	}
	return to
}
