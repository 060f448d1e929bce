package store

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"time"

	"historyd/internal/durable"
	"historyd/internal/identity"
)

// Directories in which nothing stays: of imports under way, and of what is being removed.
const (
	StagingDir = stagingName
	TrashDir   = trashName
)

// A Surveyed is a conversation as its directory and the ends of its newest segment show
// it. What cannot be read is zero, and told by Damaged.
type Surveyed struct {
	Dir   string         // relative to the data directory
	Scope identity.Scope // of whom it is; zero when no header tells
	Name  string

	LastID string // of the newest activity: it orders conversations
	LastAt time.Time

	Messages    int64
	Segments    int64
	Bytes       int64 // of all files, as in Quota
	Attachments int64
	Attached    int64 // bytes of them
	Aside       int64 // bytes of cut writes that were put aside
	Damaged     bool  // something that was looked at is not as it was written, or can't be read
}

// Survey looks at every conversation of a data directory, those of a caller next to each
// other, and hands each to visit, whose error ends it. It changes nothing and takes no
// lock: a daemon may be at work, and what goes meanwhile is passed over. It reads so much
// of the end of each conversation, so that its time depends on how many there are and not
// on how long they are; 0 means as much as an opening verifies. What was read is kept for
// no longer than visit. progress may be nil.
func Survey(ctx context.Context, fsys durable.FS, window int64, visit func(*Surveyed) error, progress func(done, total int64)) error {
	if window == 0 {
		window = tailWindow
	}
	var callers []string
	total := int64(0)
	for _, kind := range []identity.Kind{identity.Operator, identity.Mesh} {
		dir := transcriptsName + "/" + string(kind)
		entries, err := directories(fsys, dir)
		if err != nil {
			return err
		}
		for _, e := range entries {
			callers = append(callers, dir+"/"+e.Name)
		}
	}
	if progress != nil {
		for _, dir := range callers {
			entries, err := directories(fsys, dir)
			if err != nil {
				return err
			}
			total += int64(len(entries))
		}
	}
	done := int64(0)
	for _, dir := range callers {
		entries, err := directories(fsys, dir)
		if err != nil {
			return err
		}
		for _, e := range entries {
			if err := ctx.Err(); err != nil {
				return err
			}
			if done++; progress != nil {
				progress(done, max(done, total))
			}
			if found := survey(fsys, dir+"/"+e.Name, window); found != nil {
				if err := visit(found); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// directories are those in one, but for those in which imports are built; none where
// there is no such directory.
func directories(fsys durable.FS, dir string) (dirs []durable.Entry, err error) {
	entries, err := fsys.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list conversations: %w", err)
	}
	for _, e := range entries {
		if e.Dir && !strings.HasPrefix(e.Name, ".") {
			dirs = append(dirs, e)
		}
	}
	return dirs, nil
}

// survey looks at one directory; nil when there is no conversation in it, or no more. What
// keeps it from being read keeps nobody from looking at others.
func survey(fsys durable.FS, dir string, window int64) *Surveyed {
	found := &Surveyed{Dir: dir}
	entries, err := fsys.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		found.Damaged = true
		return found
	}
	t := newTranscript(&Store{fsys: fsys}, transcriptKey{}, dir)
	defer t.files.end()
	sizes := map[int]int64{}
	for _, e := range entries {
		found.Bytes += e.Size
		n, segment := segmentNumber(e.Name)
		switch {
		case segment && !e.Dir:
			t.files.numbers = append(t.files.numbers, n)
			sizes[n] = e.Size
		case e.Dir && (e.Name == attachmentsName || e.Name == typesName):
			found.shelf(fsys, dir, e.Name)
		case strings.Contains(e.Name, ".torn-"):
			found.Aside += e.Size
		}
	}
	found.Segments = int64(len(t.files.numbers))
	if err := found.read(t, sizes, window); errors.Is(err, fs.ErrNotExist) {
		return nil // cleared meanwhile
	} else if err != nil {
		found.Damaged = true
	}
	if found.Bytes == 0 && found.Segments == 0 {
		return nil
	}
	return found
}

// shelf counts the attachments.
func (f *Surveyed) shelf(fsys durable.FS, dir, name string) {
	entries, err := fsys.ReadDir(dir + "/" + name)
	f.Damaged = f.Damaged || err != nil && !errors.Is(err, fs.ErrNotExist)
	for _, e := range entries {
		f.Bytes += e.Size
		if name == attachmentsName {
			f.Attachments++
			f.Attached += e.Size
		}
	}
}

// read looks at the segments, from the newest on to one with a good line.
func (f *Surveyed) read(t *transcript, sizes map[int]int64, window int64) error {
	numbers := t.files.numbers
	for i := len(numbers) - 1; i >= 0; i-- {
		n := numbers[i]
		h, err := t.files.headerOf(n)
		if err != nil {
			return err
		}
		if h.ok && !f.Scope.Valid() {
			f.identify(&h.header)
		}
		if f.LastID != "" {
			if f.Scope.Valid() {
				break
			}
			continue // for its header alone
		}
		end, err := t.readEnd(n, sizes[n], window)
		if err != nil {
			return err
		}
		f.Damaged = f.Damaged || end.damaged || !h.ok && end.last != nil
		if c := end.last; c != nil {
			f.LastID, f.LastAt, f.Messages = c.ID, parseTime(c.At), c.Totals.Messages
		}
	}
	f.Damaged = f.Damaged || len(numbers) > 0 && f.LastID != "" && !f.Scope.Valid()
	return nil
}

// identify takes from a header whose conversation it is, if that fits the directory.
func (f *Surveyed) identify(h *header) {
	caller, err := identity.NewCaller(h.Kind, h.Caller, h.PermissionScope, "")
	if err == nil {
		if scope := caller.Scope(); transcriptsName+"/"+scope.Dir()+"/"+scope.Conversation(h.Conversation) == f.Dir {
			f.Scope, f.Name = scope, h.Conversation
			return
		}
	}
	f.Damaged = true
}

// An ending is what the end of a segment shows.
type ending struct {
	last    *commit
	damaged bool
}

// readEnd reads the last good line of a segment, and judges what is around it.
func (t *transcript) readEnd(n int, size, window int64) (ending, error) {
	for ; ; window *= 8 {
		found, err := t.readTail(n, size, window)
		if err != nil {
			return ending{}, err
		}
		if found.last == nil && window < size {
			continue
		}
		rest, err := t.readStretch(n, found.end, size)
		if err != nil {
			return ending{}, err
		}
		whole := found.last == nil // or the line before the rest has its newline
		if found.last != nil {
			rest, whole = bytes.CutPrefix(rest, []byte("\n"))
		}
		cut := len(bytes.Trim(rest, "\x00")) == 0 || whole && torn(rest)
		return ending{found.last, len(found.damage) > 0 || !cut}, nil
	}
}
