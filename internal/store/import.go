package store

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"

	"encoding/json/jsontext"

	"historyd/internal/durable"
	"historyd/internal/history"
)

// stagingPrefix begins the name of a directory in which an import is built, beside
// the one that it will become.
const stagingPrefix = ".import-"

// An import is written as many lines of at most this much each.
const (
	importLineMessages = 128
	importLineBytes    = 256 << 10
	importWriteBytes   = 1 << 20
)

// Import implements history.Log: the new record is built beside the old one, made
// durable, and takes its place by one rename. Appends to the conversation wait.
func (l *log) Import(ctx context.Context, imp history.Import) (history.Receipt, error) {
	taken, err := gather(ctx, imp)
	if err != nil {
		return history.Receipt{}, err
	}
	for {
		t, err := l.store.acquire(ctx, l.key)
		if err != nil {
			l.store.refused(err)
			return history.Receipt{}, err
		}
		receipt, err := t.lockedImport(ctx, taken)
		l.store.release(t)
		if err != errRetry {
			return receipt, err
		}
	}
}

func (t *transcript) lockedImport(ctx context.Context, imp *gathered) (history.Receipt, error) {
	if err := t.change.lock(ctx); err != nil {
		return history.Receipt{}, err
	}
	defer t.change.unlock()
	if t.ended() {
		return history.Receipt{}, errRetry
	}
	return t.takeImport(ctx, imp)
}

// takeImport decides what an import has to do. t.change is held.
func (t *transcript) takeImport(ctx context.Context, imp *gathered) (history.Receipt, error) {
	old := t.state.Load()
	if imp.Key != "" && old.exists {
		d := t.newDraft(old)
		if first, known, err := d.replayed(imp.Key, imp.fingerprint); err != nil || known {
			t.store.refused(err)
			return first, err
		}
	}
	if imp.Mode == history.Create && (old.last > 0 || old.unreadable) {
		return history.Receipt{}, history.ErrNotEmpty
	}
	if imp.Mode == history.Extend && old.unreadable {
		return history.Receipt{}, history.ErrDamaged
	}
	snap, err := t.mend(old)
	if err != nil {
		return history.Receipt{}, t.failure(err)
	}
	b := &build{t: t, old: snap, imp: imp, note: stagingName + "/" + randomHex(16)}
	b.dir = path.Dir(t.dir) + "/" + stagingPrefix + path.Base(b.note)
	receipt, err := b.run(ctx)
	if err != nil && b.failed {
		err = t.failure(err)
	}
	return receipt, err
}

// A build is an import under way.
type build struct {
	t    *transcript
	old  *snapshot
	imp  *gathered
	dir  string // where it is built
	note string // names dir for a start after a crash
	made *transcript
	d    *draft

	have    map[string]bool // ids in the old record
	index   int64
	skipped []int64
	receipt history.Receipt
	line    []history.Message
	size    int
	fresh   int64 // bytes of attachments that no line counts yet
	shelved bool  // there are directories of attachments
	failed  bool  // by the file system, not by what was imported
}

func (b *build) run(ctx context.Context) (history.Receipt, error) {
	err := b.prepare()
	if err == nil {
		err = b.take(ctx)
	}
	switch {
	case err != nil:
		b.abandon()
		return history.Receipt{}, err
	case b.receipt.Added == 0 && b.imp.Mode == history.Extend:
		b.abandon()
		return b.nothingNew()
	}
	return b.install()
}

// install puts the new record in the place of the old one. While that is done nobody
// opens either. Views of a record that was extended are read on: their segments are
// in the new one, under the same names.
func (b *build) install() (history.Receipt, error) {
	s := b.t.store
	err := s.fsys.SyncDir(b.dir)
	if err == nil && b.shelved {
		err = b.shelf().sync()
	}
	if err != nil {
		b.failed = true
		b.abandon()
		return history.Receipt{}, fmt.Errorf("sync an import: %w", err)
	}
	place, ok := s.reserve(b.t.key, b.t)
	if !ok {
		b.abandon()
		return history.Receipt{}, history.ErrClosed
	}
	defer s.vacate(place)
	b.made.files.end()
	if b.imp.Mode == history.Extend {
		s.retire(b.t)
	} else {
		s.endReads(b.t.key, b.t)
	}
	if err := b.swap(); err != nil {
		// Which of the two has the name is for the next to find out.
		b.failed = true
		s.doubt(b.t.key)
		s.noteLeft(b.t.key, leftover{b.dir, b.note})
		return history.Receipt{}, err
	}
	b.tidy()
	s.catalogues.touch(b.t.key, b.d.snap.id)
	s.metrics.messages.Add(float64(b.receipt.Added))
	s.outcome(b.t.key, nil, false)
	return b.receipt, nil
}

// prepare makes the directory, with the old segments in it for an import that extends.
func (b *build) prepare() error {
	fsys := b.t.store.fsys
	fail := func(action string, err error) error {
		b.failed = true
		return fmt.Errorf("%s: %w", action, err)
	}
	if err := durable.WriteFile(fsys, b.note, []byte(b.dir)); err != nil {
		return fail("note an import", err)
	}
	if err := durable.MkdirAll(fsys, b.dir); err != nil {
		return fail("make a directory for an import", err)
	}
	b.made = newTranscript(b.t.store, b.t.key, b.dir)
	b.made.state.Store(&snapshot{})
	if b.imp.Mode != history.Extend || !b.old.exists {
		return nil
	}
	entries, err := fsys.ReadDir(b.t.dir)
	if err != nil {
		return fail("list the old record", err)
	}
	for _, e := range entries {
		if e.Dir {
			if err := b.linkAll(e.Name); err != nil {
				return fail("link the old attachments", err)
			}
			continue
		}
		if err := fsys.Link(b.t.dir+"/"+e.Name, b.dir+"/"+e.Name); err != nil {
			return fail("link the old record", err)
		}
		if n, ok := segmentNumber(e.Name); ok {
			b.made.files.numbers = append(b.made.files.numbers, n)
			b.made.files.spent = n
		}
	}
	// The old segments are shared with the record in use: only a new one is written.
	snap := *b.old
	snap.begin = true
	b.made.state.Store(&snap)
	return b.collect()
}

// collect reads the ids that the old record holds.
func (b *build) collect() error {
	b.have = map[string]bool{}
	for r, err := range b.t.records(b.old, 1, b.old.last) {
		if err != nil {
			b.failed = !errors.Is(err, history.ErrDamaged)
			return err
		}
		m, err := r.Message()
		if err != nil {
			return errors.Join(history.ErrDamaged, err)
		}
		b.have[m.ID] = true
	}
	return nil
}

// take writes the messages, and the line that ends the import.
func (b *build) take(ctx context.Context) error {
	b.d = b.made.newDraft(b.made.state.Load())
	for _, m := range b.imp.messages {
		if err := ctx.Err(); err != nil {
			return err
		}
		if m.ID != "" && b.have[m.ID] {
			if len(b.skipped) < history.MaxSkipped {
				b.skipped = append(b.skipped, b.index)
			}
			b.receipt.Skipped++
			b.index++
			continue
		}
		b.index++
		if err := b.keep(&m); err != nil {
			return err
		}
		b.line = append(b.line, m)
		b.size += roughSize(&m)
		b.receipt.Added++
		if len(b.line) >= importLineMessages || b.size >= importLineBytes {
			if err := b.flushLine(); err != nil {
				return err
			}
		}
	}
	if b.receipt.Added == 0 && b.imp.Mode == history.Extend {
		return nil
	}
	if err := b.flushLine(); err != nil {
		return err
	}
	// The last line carries the key, so that the receipt can be given again.
	e := b.entry()
	e.key, e.fingerprint, e.note, e.added, e.skipped = b.imp.Key, b.imp.fingerprint, b.noteText(), b.receipt.Added, b.receipt.Skipped
	if _, err := b.d.commit(e); err != nil {
		return err
	}
	b.receipt.Note, b.receipt.Epoch, b.receipt.LastSeq = e.note, b.d.snap.totals.Epoch, b.d.snap.last
	return b.writeOut()
}

func (b *build) entry() newEntry {
	e := newEntry{keepIDs: true, fold: b.imp.Fold, note: b.imp.remember, attached: b.fresh}
	b.fresh = 0
	if !b.imp.created.IsZero() {
		e.created = b.imp.created.UTC().Format(history.TimeFormat)
	}
	return e
}

func (b *build) noteText() jsontext.Value {
	if b.imp.Note == nil {
		return nil
	}
	return b.imp.Note(b.skipped)
}

func roughSize(m *history.Message) int {
	n := 256 + len(m.Metadata) + len(m.Extra)
	for i := range m.Content {
		n += len(m.Content[i].Text) + len(m.Content[i].Arguments)
		for j := range m.Content[i].Content {
			n += len(m.Content[i].Content[j].Text)
		}
	}
	return n
}

func (b *build) flushLine() error {
	if len(b.line) == 0 {
		return nil
	}
	e := b.entry()
	e.messages = b.line
	r, err := b.d.commit(e)
	if err != nil {
		return err
	}
	if b.receipt.FirstSeq == 0 {
		b.receipt.FirstSeq = r.FirstSeq
	}
	b.line, b.size = nil, 0
	if len(b.d.buf) >= importWriteBytes {
		return b.writeOut()
	}
	return nil
}

func (b *build) writeOut() error {
	if len(b.d.buf) == 0 {
		return nil
	}
	if err := b.made.write(b.d); err != nil {
		b.failed = true
		return err
	}
	b.d.snap.exists = true
	b.made.state.Store(&b.d.snap)
	if b.made.keys != nil {
		b.made.keys.take(b.d.keys, b.d.snap.totals.Keyed)
	}
	b.d = b.made.newDraft(&b.d.snap)
	return nil
}

// swap gives the new record the name, durably. After an error either may have it.
func (b *build) swap() error {
	fsys := b.t.store.fsys
	_, err := fsys.ReadDir(b.t.dir)
	switch {
	case err == nil:
		err = fsys.Exchange(b.dir, b.t.dir)
	case errors.Is(err, fs.ErrNotExist):
		err = fsys.Rename(b.dir, b.t.dir)
	}
	if err != nil {
		return fmt.Errorf("put an import in its place: %w", err)
	}
	if err := fsys.SyncDir(path.Dir(b.t.dir)); err != nil {
		return fmt.Errorf("sync after an import: %w", err)
	}
	return nil
}

// nothingNew answers an import of what is there already. Its key is remembered.
func (b *build) nothingNew() (history.Receipt, error) {
	b.receipt.Epoch, b.receipt.LastSeq, b.receipt.Note = b.old.totals.Epoch, b.old.last, b.noteText()
	if b.imp.Key == "" {
		return b.receipt, nil
	}
	d := b.t.newDraft(b.old)
	if _, err := d.commit(newEntry{key: b.imp.Key, fingerprint: b.imp.fingerprint, note: b.receipt.Note, skipped: b.receipt.Skipped}); err != nil {
		return history.Receipt{}, err
	}
	if err := b.t.write(d); err != nil {
		return history.Receipt{}, b.t.failure(err)
	}
	b.t.publish(d)
	b.receipt.Epoch = d.snap.totals.Epoch
	return b.receipt, nil
}

func (b *build) abandon() {
	if b.made != nil {
		b.made.files.end()
	}
	b.tidy()
}

// tidy removes the directory that is not wanted. What it leaves, a clear or the next
// start removes.
func (b *build) tidy() {
	s, l := b.t.store, leftover{b.dir, b.note}
	if err := s.drop(l); err != nil {
		s.noteLeft(b.t.key, l)
		s.log.Warn("an import left files, the next start removes them", "error", err)
	}
}

// leftover is a directory that an import could not remove, and the note of it.
type leftover struct{ dir, note string }

func (s *Store) drop(l leftover) error {
	if err := s.dropStaging(l.dir); err != nil {
		return err
	}
	if err := s.fsys.Remove(l.note); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove a note of staging: %w", err)
	}
	return nil
}

func (s *Store) noteLeft(key transcriptKey, l leftover) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.left[key] = append(s.left[key], l)
}

// dropLeft removes what imports to a conversation have left.
func (s *Store) dropLeft(key transcriptKey) error {
	s.mu.Lock()
	left := s.left[key]
	delete(s.left, key)
	s.mu.Unlock()
	for i, l := range left {
		if err := s.drop(l); err != nil {
			s.mu.Lock()
			s.left[key] = append(s.left[key], left[i:]...)
			s.mu.Unlock()
			return err
		}
	}
	return nil
}
