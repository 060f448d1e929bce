package recall

import (
	"errors"
	"io/fs"
	"maps"
	"path"
	"slices"

	"historyd/internal/durable"
)

// load finds out which segments there are, and removes what is none. c.mu is held for writing.
func (x *Index) load(c *caller) error {
	if c.loaded {
		return nil
	}
	entries, err := x.list(c)
	if err != nil {
		return err
	}
	found := map[int]*segment{}
	gone := map[int]bool{}
	for _, e := range entries {
		n, ok := segmentNumber(e.Name)
		if ok && e.Mode.IsRegular() {
			s, replaced, err := x.inspect(c, n)
			if err == nil {
				found[n] = s
				for _, r := range replaced {
					gone[r] = true
				}
				continue
			}
			if !spoilt(err) {
				return err
			}
			x.metrics.drops.WithLabelValues("torn").Inc()
		}
		if err := durable.RemoveAll(x.fsys, path.Join(c.dir, e.Name)); err != nil {
			return err
		}
	}
	for n := range gone { // A merge was cut short.
		if found[n] != nil {
			if err := x.fsys.Remove(c.file(n)); err != nil {
				return err
			}
			delete(found, n)
		}
	}
	c.segments = nil
	for _, s := range found {
		c.segments = append(c.segments, s)
	}
	slices.SortFunc(c.segments, func(a, b *segment) int { return a.number - b.number })
	c.loaded = true
	return nil
}

// list reads the caller's directory. What stands in its place and is not ours alone is removed, whatever it is: all of
// it can be made again, and a clear must not fail for it. c.mu is held for writing.
func (x *Index) list(c *caller) ([]durable.Entry, error) {
	entries, err := x.fsys.ReadDir(c.dir)
	if errors.Is(err, durable.ErrUnsafe) {
		entries, err = nil, x.supplant(c)
	}
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	return entries, err
}

// supplant makes room for the caller's directory, durably. c.mu is held for writing.
func (x *Index) supplant(c *caller) error {
	for _, s := range c.segments {
		x.cache.drop(s)
	}
	c.segments = nil
	x.fellBehind(c, nil, true)
	gone := c.dir
	for _, above := range []string{path.Dir(c.dir), indexName} {
		if _, err := x.fsys.List(above); errors.Is(err, durable.ErrUnsafe) {
			gone = above // A link or a file, behind which nothing is ours.
		}
	}
	x.metrics.drops.WithLabelValues("torn").Inc()
	err := durable.RemoveAll(x.fsys, gone)
	return errors.Join(err, x.syncGone(gone))
}

func (c *caller) file(n int) string { return path.Join(c.dir, segmentName(n)) }

// spoilt reports whether an error of reading a segment says that the segment is no good, rather than that it could not
// be read now.
func spoilt(err error) bool {
	return errors.Is(err, errTorn) || errors.Is(err, fs.ErrNotExist) || errors.Is(err, durable.ErrUnsafe)
}

// inspect reads the end of a segment.
func (x *Index) inspect(c *caller, n int) (*segment, []int, error) {
	f, err := x.fsys.Open(c.file(n), false)
	if err != nil {
		return nil, nil, err
	}
	defer f.Close()
	s, err := readFooter(f, n, c.mark)
	if err != nil {
		return nil, nil, err
	}
	r := &openSegment{segment: s, file: f, cache: x.cache}
	b, err := r.load(s.replaced, false)
	if err != nil {
		return nil, nil, err
	}
	var replaced []int
	sc := scan{b: b}
	for sc.more() {
		replaced = append(replaced, int(sc.uvarint()))
	}
	return s, replaced, sc.err()
}

// open opens a segment for reading.
func (x *Index) open(c *caller, s *segment) (*openSegment, error) {
	f, err := x.fsys.Open(c.file(s.number), false)
	if err != nil {
		return nil, err
	}
	return &openSegment{segment: s, file: f, cache: x.cache}, nil
}

// remove takes a segment out. Its conversations are behind from now on. c.mu is held for writing.
func (x *Index) remove(c *caller, s *segment, reason string) error {
	var names []string
	r, err := x.open(c, s)
	if err == nil {
		err = r.all(func(e stretch) { names = append(names, e.name) })
		r.close()
	}
	c.segments = slices.DeleteFunc(c.segments, func(t *segment) bool { return t == s })
	x.cache.drop(s)
	x.metrics.drops.WithLabelValues(reason).Inc()
	x.fellBehind(c, names, err != nil)
	err = x.fsys.Remove(c.file(s.number))
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, durable.ErrUnsafe) { // The directory is gone or replaced.
		return nil
	}
	return err
}

// fellBehind notes conversations of which messages are not indexed any more.
func (x *Index) fellBehind(c *caller, names []string, all bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	c.walk = c.walk || all
	for _, name := range names {
		c.touch(name)
	}
	poke(x.wake)
}

// drop removes every file that holds something of the conversation or is not known, and the memtable if it does. Not
// durable. c.mu is held for writing, and c is loaded.
func (x *Index) drop(c *caller, name string) error {
	if _, ok := c.mem.newest[name]; ok {
		x.dropMemtable(c)
	}
	var all error
	for _, s := range slices.Clone(c.segments) {
		if holds, err := x.holds(c, s, name); holds || err != nil {
			all = errors.Join(all, x.remove(c, s, "forgotten"))
		}
	}
	entries, err := x.list(c)
	if err != nil {
		return errors.Join(all, err)
	}
	for _, e := range entries {
		n, ok := segmentNumber(e.Name)
		if ok && slices.ContainsFunc(c.segments, func(s *segment) bool { return s.number == n }) {
			continue
		}
		all = errors.Join(all, durable.RemoveAll(x.fsys, path.Join(c.dir, e.Name)))
	}
	return all
}

// dropMemtable forgets what is not written yet.
func (x *Index) dropMemtable(c *caller) {
	names := slices.Collect(maps.Keys(c.mem.newest))
	x.setMemtable(c, newMemtable())
	x.fellBehind(c, names, false)
}

// holds reports whether a segment covers anything of a conversation.
func (x *Index) holds(c *caller, s *segment, name string) (bool, error) {
	r, err := x.open(c, s)
	if err != nil {
		return false, err
	}
	defer r.close()
	of, err := r.of(name)
	return len(of) > 0, err
}

// syncGone makes it durable that names are gone from a directory, also when it is gone itself.
func (x *Index) syncGone(dir string) error {
	for {
		err := x.fsys.SyncDir(dir)
		if !errors.Is(err, fs.ErrNotExist) || dir == "." {
			return err
		}
		dir = path.Dir(dir)
	}
}

// create makes a file for a new segment, with a number over all others.
func (x *Index) create(c *caller) (durable.File, int, error) {
	n := 1
	if len(c.segments) > 0 {
		n = c.segments[len(c.segments)-1].number + 1
	}
	for ; ; n++ {
		f, err := x.fsys.Create(c.file(n))
		if errors.Is(err, fs.ErrNotExist) {
			if err := durable.MkdirAll(x.fsys, c.dir); err != nil {
				return nil, 0, err
			}
			f, err = x.fsys.Create(c.file(n))
		}
		if errors.Is(err, fs.ErrExist) {
			continue
		}
		return f, n, err
	}
}

// write makes a new segment. c.mu is held for writing.
func (x *Index) write(c *caller, fill func(durable.File) (*segment, error)) error {
	f, n, err := x.create(c)
	if err != nil {
		return err
	}
	s, err := fill(f)
	err = errors.Join(err, f.Close())
	if err != nil {
		// What can't be removed now is no segment, and goes with the next Forget or load.
		return errors.Join(err, x.fsys.Remove(c.file(n)))
	}
	s.number = n
	c.segments = append(c.segments, s)
	return nil
}

// flush writes the memtable. After an error what it held is behind. c.mu is held for writing.
func (x *Index) flush(c *caller) error {
	m := c.mem
	if len(m.stretches) == 0 {
		return nil
	}
	err := x.load(c)
	if err == nil {
		err = x.write(c, func(f durable.File) (*segment, error) { return writeMemtable(f, m, c.mark) })
	}
	if err != nil {
		x.setMemtable(c, newMemtable())
		x.mu.Lock()
		defer x.mu.Unlock()
		for name := range m.newest { // Now it would only fail again.
			c.postpone(x.now(), name)
		}
		return err
	}
	x.setMemtable(c, newMemtable())
	return x.merge(c)
}

// maxSmall is how many small segments a caller may have.
const maxSmall = 8

// merge makes one segment of small ones when there are many. c.mu is held for writing.
func (x *Index) merge(c *caller) error {
	var small []*segment
	for _, s := range c.segments {
		if s.text < maxSegmentText/4 && s.docs < maxSegmentDocs/4 && s.runs < maxSegmentStretches/4 {
			small = append(small, s)
		}
	}
	if len(small) <= maxSmall {
		return nil
	}
	slices.SortFunc(small, func(a, b *segment) int { return int(a.text - b.text) })
	var from []*openSegment
	defer func() {
		for _, r := range from {
			r.close()
		}
	}()
	text, docs, runs := int64(0), 0, 0
	for _, s := range small {
		text, docs, runs = text+s.text, docs+s.docs, runs+s.runs
		if text > maxSegmentText || docs > maxSegmentDocs || runs > maxSegmentStretches {
			break
		}
		r, err := x.open(c, s)
		if err != nil {
			return x.unread(c, s, err)
		}
		from = append(from, r)
	}
	err := x.write(c, func(f durable.File) (*segment, error) { return mergeSegments(f, from, c.mark) })
	if err != nil {
		if !errors.Is(err, errTorn) {
			return err
		}
		// Any of them may be the torn one.
		for _, r := range from {
			err = x.remove(c, r.segment, "torn")
		}
		return err
	}
	var all error
	for _, r := range from {
		x.cache.drop(r.segment)
		c.segments = slices.DeleteFunc(c.segments, func(t *segment) bool { return t == r.segment })
		all = errors.Join(all, x.fsys.Remove(c.file(r.number)))
	}
	return all
}

// unread removes a segment that is spoilt. Any other error comes back. c.mu is held for writing.
func (x *Index) unread(c *caller, s *segment, err error) error {
	if spoilt(err) {
		return x.remove(c, s, "torn")
	}
	return err
}
