package store

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"slices"
	"strings"

	"historyd/internal/durable"
	"historyd/internal/history"
	"historyd/internal/identity"
)

// A Finding is one thing that is not as it should be.
type Finding struct {
	Path   string // relative to the data directory
	Kind   string // damage, foreign, unsafe, unknown
	Detail string // holds no content
}

// CheckSummary counts what was looked at. Torn ends are counted and are sound.
type CheckSummary struct {
	Callers, Conversations, Segments, Messages, Attachments, Bytes, Torn, Findings int64
}

// checker walks a data directory.
type checker struct {
	ctx      context.Context
	fsys     durable.FS
	report   func(Finding)
	progress func(done, total int64)
	sum      CheckSummary

	done, total int64 // of progress
}

// Check reads a whole data directory and reports what is not sound. It changes
// nothing and takes no lock: a daemon may be at work, and what it clears or replaces meanwhile
// is passed over. report and progress may be nil. An error means that the check itself
// could not go on.
func Check(ctx context.Context, fsys durable.FS, report func(Finding), progress func(done, total int64)) (CheckSummary, error) {
	c := &checker{ctx: ctx, fsys: fsys, progress: progress}
	c.report = func(f Finding) {
		c.sum.Findings++
		if report != nil {
			report(f)
		}
	}
	if progress == nil {
		c.progress = func(int64, int64) {}
	}
	err := c.run()
	return c.sum, err
}

func (c *checker) run() error {
	top, err := c.fsys.ReadDir(".")
	if errors.Is(err, durable.ErrUnsafe) {
		c.report(Finding{".", "unsafe", err.Error()})
		return nil
	}
	if err != nil {
		return fmt.Errorf("list the data directory: %w", err)
	}
	var callers []directory
	for _, e := range top {
		switch e.Name {
		case transcriptsName:
			callers = c.callers(c.list(c.directory(e.Name, e)))
			continue
		case trashName, stagingName:
			c.list(c.directory(e.Name, e))
			continue
		}
		c.checkMode(e.Name, e)
		switch e.Name {
		case formatName:
			c.checkFormat()
		case lockName, "index", "lost+found":
		default:
			if e.Dir {
				c.report(Finding{e.Name, "unknown", nobodys})
			}
		}
	}
	for _, p := range callers {
		there, _ := c.fsys.List(p.dir) // what can't be listed is told when it is looked at
		c.total += int64(len(there))
	}
	for _, p := range callers {
		if err := c.caller(p); err != nil {
			return err
		}
	}
	return nil
}

const nobodys = "no part of a data directory: it is not checked, and no clear reaches what lies in it"

// callers are the directories of callers. What else lies in transcripts is reported.
func (c *checker) callers(kinds []durable.Entry) (dirs []directory) {
	for _, e := range kinds {
		name := transcriptsName + "/" + e.Name
		switch {
		case ofKind(e.Name):
			for _, d := range c.list(c.directory(name, e)) {
				dirs = append(dirs, c.directory(name+"/"+d.Name, d))
			}
		case passes(e):
			c.report(Finding{name, "unknown", nobodys})
		default:
			c.report(Finding{name, "unknown", "no part of a data directory, and no daemon starts while it is here: move it away"})
		}
	}
	return dirs
}

// passes tells whether a store opens with this in transcripts.
func passes(e durable.Entry) bool { return e.Dir && e.Mode.Perm()&0o077 == 0 }

// ofKind tells whether this in transcripts holds callers.
func ofKind(name string) bool {
	return name == string(identity.Operator) || name == string(identity.Mesh)
}

// caller checks the conversations of a caller, who counts when there are any, as in a Survey.
func (c *checker) caller(p directory) error {
	before := c.sum.Conversations
	for _, e := range c.list(p) {
		if err := c.ctx.Err(); err != nil {
			return err
		}
		c.done++
		if strings.HasPrefix(e.Name, stagingPrefix) {
			continue // an import under way, or left for the next start to remove
		}
		if d := c.directory(p.dir+"/"+e.Name, e); e.Dir {
			c.checkConversation(d)
		}
		c.progress(c.done, max(c.done, c.total))
	}
	if c.sum.Conversations > before {
		c.sum.Callers++
	}
	return nil
}

// A directory is a place for one. Where something was told of it, listing it tells nothing more: one fault, one finding.
type directory struct {
	dir  string
	told bool
}

// directory reports what lies where a directory belongs and is none, or lets others in.
func (c *checker) directory(dir string, e durable.Entry) directory {
	if e.Mode.IsRegular() {
		c.report(Finding{dir, "unsafe", "a file where a directory belongs: move it away"})
		return directory{dir, true}
	}
	return directory{dir, !c.checkMode(dir, e)}
}

// list reads a directory, and reports what keeps it from being read. One that lets others in is looked through, too.
func (c *checker) list(p directory) []durable.Entry {
	if p.told {
		entries, _ := c.fsys.List(p.dir)
		return entries
	}
	dir := p.dir
	entries, err := c.fsys.ReadDir(dir)
	switch {
	case err == nil, errors.Is(err, fs.ErrNotExist):
	case errors.Is(err, durable.ErrUnsafe):
		c.report(Finding{dir, "unsafe", "not a directory of ours closed to others"})
	default:
		c.report(Finding{dir, "damage", "cannot be listed"})
	}
	return entries
}

// checkMode reports what would let others in, and tells whether nothing does.
func (c *checker) checkMode(name string, e durable.Entry) bool {
	switch {
	case e.Mode&fs.ModeSymlink != 0, !e.Dir && !e.Mode.IsRegular():
		c.report(Finding{name, "unsafe", "neither a file nor a directory"})
	case e.Mode.Perm()&0o077 != 0:
		c.report(Finding{name, "unsafe", fmt.Sprintf("mode %o lets others in: chmod go= it", e.Mode.Perm())})
	default:
		return true
	}
	return false
}

func (c *checker) checkFormat() {
	f, err := c.fsys.Open(formatName, false)
	if err != nil {
		c.report(Finding{formatName, "unsafe", "cannot be opened"})
		return
	}
	defer f.Close()
	b := make([]byte, 64)
	n, err := f.ReadAt(b, 0)
	if err != nil && !errors.Is(err, io.EOF) || string(b[:n]) != formatText {
		c.report(Finding{formatName, "damage", "does not name the format of this historyd"})
	}
}

// mostLooks is how often a conversation in which something is found is looked at, at the most, until two looks find the same.
const mostLooks = 10

// checkConversation reports what is wrong with a conversation, once it is sure: a daemon that replaces or clears it
// meanwhile shows some of what was there, and some of what is.
func (c *checker) checkConversation(p directory) {
	report, before := c.report, c.sum
	defer func() { c.report = report }()
	var found, again []Finding
	c.report = func(f Finding) { again = append(again, f) }
	for look := 0; look < mostLooks; look++ {
		again, c.sum = nil, before
		if c.lookAt(p); len(again) == 0 || look > 0 && slices.Equal(found, again) {
			break
		}
		found = again
	}
	for _, f := range again {
		report(f)
	}
}

func (c *checker) lookAt(p directory) {
	dir := p.dir
	g := &segments{fsys: c.fsys, dir: dir}
	defer g.end()
	sizes, size, told, loose := map[int]int64{}, int64(0), map[string]bool{}, false
	for _, e := range c.list(p) {
		size += e.Size
		closed := c.checkMode(dir+"/"+e.Name, e)
		if e.Dir && (e.Name == attachmentsName || e.Name == typesName) {
			told[e.Name] = !closed
			continue
		}
		if e.Dir {
			c.report(Finding{dir + "/" + e.Name, "unsafe", "a directory where files belong"})
			continue
		}
		if n, ok := segmentNumber(e.Name); ok {
			g.numbers = append(g.numbers, n)
			sizes[n] = e.Size
			loose = loose || !closed
		} else if !strings.Contains(e.Name, ".torn-") {
			c.report(Finding{dir + "/" + e.Name, "unknown", "not a file of historyd's"})
		}
	}
	// After the sizes were taken: an attachment is there before the line that names it.
	k := &chain{checker: c, dir: dir, files: g, attachments: c.checkAttachments(dir, told)}
	// As a Survey counts them.
	if !strings.Contains(dir, "/.") && (len(g.numbers) > 0 || size > 0 || len(k.attachments) > 0) {
		c.sum.Conversations++
	}
	for i, n := range g.numbers {
		err := k.segment(n, sizes[n], i == len(g.numbers)-1)
		if loose && errors.Is(err, durable.ErrUnsafe) {
			return // its mode is told, and is why nobody reads it
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			c.report(Finding{g.path(n), "damage", "cannot be read"})
			return
		}
	}
}

// chain follows the checksums of one conversation from segment to segment.
type chain struct {
	*checker
	dir   string
	files *segments

	attachments map[string]bool // by hash; those that were missed are there and false

	rewound       rewound
	before        totals // of the line before
	begun         bool
	segmentBefore int
	sum           uint32
	last          int64
}

func (k *chain) found(n int, kind, detail string, args ...any) {
	k.report(Finding{k.files.path(n), kind, fmt.Sprintf(detail, args...)})
}

// segment checks one segment up to where the next one says that it ends.
func (k *chain) segment(n int, size int64, newest bool) error {
	void, end, behind, err := k.valid(n, size)
	if err != nil || void {
		return err
	}
	k.sum64(size)
	s := newScanner(k.files.reader(n), 0, end)
	s.chain, s.behind = chained{k.sum, k.begun}, behind
	first, goodEnd, ended := true, int64(0), true
	var bad []item
	for {
		it, err := s.next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return err
		}
		if !it.good {
			bad = append(bad, it)
			first = false
			continue
		}
		for _, b := range bad {
			k.found(n, "damage", "%d bytes at offset %d are no line", len(b.raw), b.off)
		}
		bad = nil
		k.line(n, it, first)
		first, goodEnd, ended = false, it.end(), it.ended
	}
	if len(bad) == 0 && (goodEnd == end || end < size) {
		return nil
	}
	return k.tail(n, goodEnd, end, ended, newest)
}

func (k *chain) sum64(size int64) {
	k.checker.sum.Segments++
	k.checker.sum.Bytes += size
}

// valid tells which part of a segment counts, and what the next one continues.
func (k *chain) valid(n int, size int64) (void bool, end int64, behind chained, err error) {
	next, h, err := k.files.following(n)
	if err != nil || next == 0 || !h.ok {
		return false, size, chained{}, err
	}
	if h.after.Segment < n {
		return true, 0, chained{}, nil
	}
	if h.after.Segment == n {
		if h.after.Offset > size {
			k.found(n, "damage", "is shorter than segment %d says", next)
		}
		size, err = k.files.sealedEnd(n, h)
	}
	return false, size, h.prev, err
}

// line checks one good line.
func (k *chain) line(n int, it item, first bool) {
	if it.broken && k.begun {
		k.found(n, "damage", "the line at offset %d does not continue the one before it", it.off)
	}
	c, err := parseCommit(it.raw)
	if err != nil {
		k.found(n, "damage", "the line at offset %d: %v", it.off, err)
		return
	}
	switch {
	case first && c.Header == nil:
		k.found(n, "damage", "the first line is no header")
	case c.Header != nil:
		k.identity(n, c.Header)
		for _, lost := range c.Header.Lost {
			k.report(Finding{k.files.path(lost), "damage", "no line of it could be read when the record went on"})
		}
		if before := c.Header.After.Segment; before != k.segmentBefore {
			k.found(n, "damage", "segment %d, which it continues, is missing", before)
		}
	}
	k.segmentBefore = n
	if k.begun && c.First > k.last+1 {
		k.found(n, "damage", "messages %d to %d are missing before offset %d", k.last+1, c.First-1, it.off)
	} else if k.begun && c.First <= k.last {
		k.found(n, "damage", "message %d comes again at offset %d", c.First, it.off)
	}
	seq := c.First
	for r, err := range recordsOf(c) {
		if err == nil {
			var m history.Message
			if m, err = r.Message(); err == nil && m.Seq != seq {
				err = errors.New("another seq")
			}
			k.named(n, &m)
		}
		if err != nil {
			k.found(n, "damage", "message %d cannot be decoded", seq)
		}
		seq++
		k.checker.sum.Messages++
	}
	if seq != c.Last+1 {
		k.found(n, "damage", "the line at offset %d holds another number of messages than it says", it.off)
	}
	k.rewind(n, it, c)
	k.summaries(n, it, c)
	k.begun, k.sum, k.last = true, it.sum, max(k.last, c.Last)
}

// identity compares a header with the directory that it is in.
func (k *chain) identity(n int, h *header) {
	caller, err := identity.NewCaller(h.Kind, h.Caller, h.PermissionScope, "")
	if err != nil {
		k.found(n, "foreign", "the header names no caller")
		return
	}
	scope := caller.Scope()
	if transcriptsName+"/"+scope.Dir()+"/"+scope.Conversation(h.Conversation) != k.dir {
		k.found(n, "foreign", "the header names another conversation or caller than the directory")
	}
}

// tail judges what follows the last good line, which ended with a newline or not.
func (k *chain) tail(n int, from, to int64, ended, newest bool) error {
	b := make([]byte, to-from)
	got, err := k.files.readAt(n, b, from)
	if err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	if newest && torn(b[:got]) && (ended || len(bytes.Trim(b[:got], "\x00")) == 0) {
		k.checker.sum.Torn++
		return nil
	}
	k.found(n, "damage", "%d bytes behind the last line at offset %d of %s", got, from, path.Base(k.files.path(n)))
	return nil
}
