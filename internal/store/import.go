package store

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"path"

	"encoding/json/jsontext"

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

// Import implements history.Log: the messages are taken while others have the
// conversation, then the new record is built beside the old one, made durable, and
// takes its place by one rename. For that appends to the conversation wait.
func (l *log) Import(ctx context.Context, imp history.Import) (history.Receipt, error) {
	if err := l.mayImport(ctx, imp); err != nil {
		return history.Receipt{}, err
	}
	in := l.newIntake(imp)
	defer in.giveUp()
	if err := in.take(ctx); err != nil {
		return history.Receipt{}, err
	}
	var receipt history.Receipt
	err := l.use(ctx, func(t *transcript) (err error) {
		if receipt, err = t.lockedImport(ctx, in); err == errRetry && in.begun {
			err = fmt.Errorf("%w: the record went away while an import was built", history.ErrUnavailable)
		}
		return err
	})
	return receipt, err
}

// mayImport refuses an import before its messages are taken that could do nothing.
func (l *log) mayImport(ctx context.Context, imp history.Import) error {
	return l.use(ctx, func(t *transcript) error { return t.mayImport(ctx, imp) })
}

func (t *transcript) mayImport(ctx context.Context, imp history.Import) error {
	snap := t.state.Load()
	err := refusal(snap, imp.Mode)
	if err == nil || imp.Key == "" || !snap.exists {
		return err
	}
	// The key may be one of an import that was done.
	if lerr := t.change.lock(ctx); lerr != nil {
		return lerr
	}
	defer t.change.unlock()
	if t.ended() {
		return errRetry
	}
	if lerr := t.loadKeys(t.state.Load()); lerr != nil {
		t.store.refused(lerr)
		return lerr
	}
	if _, known := t.keys.find(imp.Key); known {
		return nil
	}
	return err
}

// refusal tells whether a record allows for an import.
func refusal(snap *snapshot, mode history.ImportMode) error {
	if mode == history.Create && (snap.last > 0 || snap.unreadable) {
		return history.ErrNotEmpty
	}
	if mode == history.Extend && snap.unreadable {
		return history.ErrDamaged
	}
	return nil
}

func (t *transcript) lockedImport(ctx context.Context, in *intake) (history.Receipt, error) {
	if err := t.change.lock(ctx); err != nil {
		return history.Receipt{}, err
	}
	defer t.change.unlock()
	if t.ended() {
		return history.Receipt{}, errRetry
	}
	return t.takeImport(ctx, in)
}

// takeImport decides what an import has to do. t.change is held.
func (t *transcript) takeImport(ctx context.Context, in *intake) (history.Receipt, error) {
	old := t.state.Load()
	if in.Key != "" && old.exists {
		d := t.newDraft(old, &scratch{})
		if first, known, err := d.replayed(in.Key, in.fingerprint); err != nil || known {
			t.store.refused(err)
			return first, err
		}
	}
	if err := refusal(old, in.Mode); err != nil {
		return history.Receipt{}, err
	}
	snap, err := t.mendAlone(old)
	if err != nil {
		return history.Receipt{}, t.failure(err)
	}
	in.begun = true
	b := &build{t: t, old: snap, in: in, dir: in.dir, shelved: len(in.brought) > 0}
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
	in   *intake
	dir  string // where it is built
	made *transcript
	d    *draft

	have    map[idHash]struct{} // of the old record
	index   int64
	skipped []int64
	receipt history.Receipt
	line    []history.Message
	size    int
	fresh   int64 // bytes of attachments that no line counts yet
	shelved bool  // there are directories of attachments
	failed  bool  // by the file system, not by what was imported
}

// idHash stands for an id: a record has many.
type idHash [16]byte

func hashID(id string) idHash {
	sum := sha256.Sum256([]byte(id))
	return idHash(sum[:16])
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
	case b.receipt.Added == 0 && b.in.Mode == history.Extend:
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
		err = b.in.shelf().sync()
	}
	if err != nil {
		b.failed = true
		b.abandon()
		return history.Receipt{}, fmt.Errorf("sync an import: %w", err)
	}
	sp, err := b.spend()
	if err != nil {
		b.abandon()
		return history.Receipt{}, err
	}
	defer sp.end()
	if b.in.Before != nil {
		if err := b.in.Before(); err != nil {
			b.abandon()
			return history.Receipt{}, err
		}
	}
	place, ok := s.reserve(b.t.key, b.t)
	if !ok {
		b.abandon()
		return history.Receipt{}, history.ErrClosed
	}
	defer s.vacate(place)
	b.made.files.end()
	if b.in.Mode == history.Extend {
		s.retire(b.t)
	} else {
		s.endReads(b.t.key, b.t)
	}
	if err := b.swap(); err != nil {
		// Which of the two has the name is for the next to find out.
		b.failed, sp.lost = true, true
		s.doubt(b.t.key)
		s.noteLeft(b.t.key, leftover{b.dir, b.in.note})
		b.in.made = false
		return history.Receipt{}, err
	}
	sp.sure = true
	b.in.drop() // as long as nobody can open what took its place
	s.catalogues.touch(b.t.key, b.d.snap.id)
	s.metrics.messages.Add(float64(b.receipt.Added))
	s.outcome(b.t.key, nil, false)
	s.writes.Add(1)
	return b.receipt, nil
}

// prepare makes the directory, with the old segments in it for an import that extends.
func (b *build) prepare() error {
	fsys := b.t.store.fsys
	fail := func(action string, err error) error {
		b.failed = true
		return fmt.Errorf("%s: %w", action, err)
	}
	if err := b.in.prepare(); err != nil {
		b.failed = true
		return err
	}
	b.made = newTranscript(b.t.store, b.t.key, b.dir)
	b.made.state.Store(&snapshot{})
	if b.in.Mode != history.Extend || !b.old.exists {
		b.countBrought()
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
	b.countBrought()
	return b.collect()
}

// collect reads the ids that the old record holds.
func (b *build) collect() error {
	b.have = map[idHash]struct{}{}
	for r, err := range b.t.records(b.old, 1, b.old.last) {
		if err != nil {
			b.failed = !errors.Is(err, history.ErrDamaged)
			return err
		}
		id, err := idOf(r)
		if err != nil {
			return errors.Join(history.ErrDamaged, err)
		}
		b.have[hashID(id)] = struct{}{}
	}
	return nil
}

// idOf reads the id of a record, which is its first member.
func idOf(r history.Record) (string, error) {
	const name = `{"id":"`
	if rest, ok := bytes.CutPrefix(r.JSON, []byte(name)); ok {
		if i := bytes.IndexAny(rest, `"\`); i >= 0 && rest[i] == '"' {
			return string(rest[:i]), nil
		}
	}
	m, err := r.Message()
	return m.ID, err
}

// take writes the messages, and the line that ends the import.
func (b *build) take(ctx context.Context) error {
	b.d = b.made.newDraft(b.made.state.Load(), &scratch{})
	for m, err := range b.in.spool.all() {
		if err != nil {
			b.failed = true
			return err
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := b.message(m); err != nil {
			return err
		}
	}
	if b.receipt.Added == 0 && b.in.Mode == history.Extend {
		return nil
	}
	if err := b.flushLine(); err != nil {
		return err
	}
	// The last line carries the key, so that the receipt can be given again.
	e := b.entry()
	e.key, e.fingerprint, e.note, e.added, e.skipped = b.in.Key, b.in.fingerprint, b.noteText(), b.receipt.Added, b.receipt.Skipped
	if _, err := b.d.commit(e); err != nil {
		return err
	}
	b.receipt.Note, b.receipt.Epoch, b.receipt.LastSeq = e.note, b.d.snap.totals.Epoch, b.d.snap.last
	return b.writeOut()
}

// message takes one message, unless the record has it.
func (b *build) message(m history.Message) error {
	at := b.index
	b.index++
	if _, there := b.have[hashID(m.ID)]; there && m.ID != "" {
		if len(b.skipped) < history.MaxSkipped {
			b.skipped = append(b.skipped, at)
		}
		b.receipt.Skipped++
		return nil
	}
	if b.in.Mend != nil {
		b.in.Mend(&m)
	}
	if err := b.attached(&m); err != nil {
		return err
	}
	b.line = append(b.line, m)
	b.size += roughSize(&m)
	b.receipt.Added++
	if len(b.line) >= importLineMessages || b.size >= importLineBytes {
		return b.flushLine()
	}
	return nil
}

func (b *build) entry() newEntry {
	e := newEntry{keepIDs: true, fold: b.in.Fold, note: b.in.remember, attached: b.fresh}
	b.fresh = 0
	if !b.in.created.IsZero() {
		e.created = b.in.created.UTC().Format(history.TimeFormat)
	}
	return e
}

func (b *build) noteText() jsontext.Value {
	if b.in.Note == nil {
		return nil
	}
	return b.in.Note(b.skipped)
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
	b.receipt.Folded = b.receipt.Folded || r.Folded
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
	err := b.t.store.withRoom(int64(len(b.d.buf)), func() error { return b.made.write(b.d) })
	if err != nil {
		b.failed = true
		return err
	}
	b.d.snap.exists = true
	b.made.state.Store(&b.d.snap)
	if b.made.keys != nil {
		b.made.keys.take(b.d.keys, b.d.snap.totals.Keyed)
	}
	b.d = b.made.newDraft(&b.d.snap, &scratch{})
	return nil
}

// swap gives the new record the name, durably. After an error either may have it.
func (b *build) swap() error {
	s, fsys := b.t.store, b.t.store.fsys
	defer s.stalls.end(s.stalls.begin(s.now(), swapping), s.now)
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
	if b.in.Key == "" {
		return b.receipt, nil
	}
	sp, err := b.t.spend()
	if err != nil {
		return history.Receipt{}, b.t.failure(err)
	}
	defer sp.end()
	d := b.t.newDraft(b.old, &scratch{})
	if _, err := d.commit(newEntry{key: b.in.Key, fingerprint: b.in.fingerprint, note: b.receipt.Note, skipped: b.receipt.Skipped}); err != nil {
		return history.Receipt{}, err
	}
	if err := d.finish(sp, true, nil); err != nil {
		return history.Receipt{}, err
	}
	b.receipt.Epoch = d.snap.totals.Epoch
	return b.receipt, nil
}

func (b *build) abandon() {
	if b.made != nil {
		b.made.files.end()
	}
	b.in.drop()
}
