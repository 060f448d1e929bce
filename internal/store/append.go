package store

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"time"

	"historyd/internal/durable"
	"historyd/internal/history"
)

// log is one conversation of one caller, in use or not.
type log struct {
	store *Store
	key   transcriptKey
}

var _ history.Log = (*log)(nil)

// errRetry tells that the transcript was cleared or replaced while an append waited.
var errRetry = errors.New("the transcript is gone, another may begin")

// use does something with the transcript, which stays open meanwhile: again, if it was cleared or replaced before fn had it.
func (l *log) use(ctx context.Context, fn func(*transcript) error) error {
	once := func() error {
		t, err := l.store.acquire(ctx, l.key)
		if err != nil {
			l.store.refused(err)
			return err
		}
		defer l.store.release(t)
		return fn(t)
	}
	for {
		if err := once(); err != errRetry {
			return err
		}
	}
}

// Append implements history.Log. Concurrent appends to one conversation share a
// write and a sync: a leader commits all that wait.
func (l *log) Append(ctx context.Context, b history.Batch) (history.Receipt, error) {
	for {
		if err := ctx.Err(); err != nil {
			return history.Receipt{}, err
		}
		if receipt, err := l.append(ctx, b); err != errRetry {
			return receipt, err
		}
	}
}

func (l *log) append(ctx context.Context, b history.Batch) (history.Receipt, error) {
	t, err := l.store.acquireFor(ctx, l.key, b.Stays)
	if err != nil {
		l.store.refused(err)
		return history.Receipt{}, err
	}
	held := true
	defer func() {
		if held {
			l.store.release(t)
		}
	}()
	p := &pending{batch: b, done: make(chan struct{})}
	leads, err := t.enqueue(p)
	if err != nil {
		return history.Receipt{}, err
	}
	if leads {
		t.startLeading(ctx, b.Stays)
	}
	select {
	case <-p.done: // what is known is told, though ctx has ended
		return p.receipt, p.err
	default:
	}
	select {
	case <-p.done:
		return p.receipt, p.err
	case <-ctx.Done():
	}
	if !t.withdraw(p) {
		// The leader has it and may commit it; until then the transcript stays in use.
		held = false
		go func() {
			<-p.done
			l.store.release(t)
		}()
	}
	return history.Receipt{}, ctx.Err()
}

// commitGroup makes the batches of the group durable with one write and one sync.
// Each gets its receipt or its error. t.change is held.
func (t *transcript) commitGroup(group []*pending) {
	fail := func(err error) {
		for _, p := range group {
			p.receipt, p.err = history.Receipt{}, err
		}
	}
	if t.ended() {
		fail(errRetry)
		return
	}
	t.begin()
	defer t.end()
	sp, err := t.spend()
	if err != nil {
		fail(t.failure(err))
		return
	}
	defer sp.end()
	snap, err := t.mend(t.state.Load())
	if err != nil {
		fail(t.failure(err))
		return
	}
	d := t.newDraft(snap, t.store.borrow())
	defer d.giveBack()
	for _, p := range group {
		p.receipt, p.err = d.add(p.batch, sp)
		t.store.refused(p.err)
	}
	if d.commits == 0 {
		sp.sure = true
		return // only replays and refusals, which nothing has to be written for
	}
	if err := t.write(d); err != nil {
		err = t.failure(err)
		for _, p := range group {
			if p.err == nil {
				p.receipt, p.err = history.Receipt{}, err
			}
		}
		return
	}
	sp.sure = true
	t.publish(d)
}

// ended reports whether the transcript may not be written to any more. t.change is held.
func (t *transcript) ended() bool { return t.retired || t.files.ended() }

// failure remembers and counts a failed group.
func (t *transcript) failure(err error) error {
	if errors.Is(err, history.ErrGone) {
		return errRetry
	}
	err = classify(err)
	snap := t.state.Load()
	class := "failed"
	if errors.Is(err, history.ErrFull) {
		class = "full"
	}
	t.store.metrics.failures.WithLabelValues(class).Inc()
	t.store.outcome(t.key, err, snap.failed)
	return err
}

func (t *transcript) publish(d *draft) {
	if d.snap.totals.Created != "" {
		d.snap.exists = true
	}
	snap := d.snap // alone, or all of the draft stays as long as it is published
	t.state.Store(&snap)
	if t.keys != nil {
		t.keys.take(d.keys, d.snap.totals.Keyed)
	}
	for _, digits := range d.counted {
		delete(t.strays, digits)
	}
	t.recent.take(d.staged, d.snap.totals.FoldedSeq)
	m := t.store.metrics
	m.commits.Add(float64(d.commits))
	m.messages.Add(float64(d.messages))
	m.bytes.Add(float64(len(d.buf)))
	m.batch.Observe(float64(d.commits))
	t.store.outcome(t.key, nil, false)
	t.store.catalogues.touch(t.key, d.snap.id)
	t.store.writes.Add(1)
}

// write puts the draft on disk. On error the transcript is as it was, or marked as
// failed, so that the next append begins a segment behind what is acknowledged.
func (t *transcript) write(d *draft) error {
	if t.doing.what == "" {
		t.begin()
		defer t.end()
	}
	if d.begin {
		return t.writeSegment(d)
	}
	f, err := t.files.file(d.seg, true)
	if err != nil {
		return err
	}
	if _, err := f.WriteAt(d.buf, d.off); err != nil {
		if cut := t.cutBack(f, d.off); cut != nil {
			t.poison()
			return errors.Join(err, cut)
		}
		return err
	}
	if err := t.sync(f); err != nil {
		t.poison()
		_ = f.DropCache() // so that what the disk does not have is not read as if it had
		return err
	}
	return nil
}

// cutBack undoes a write that failed half-way.
func (t *transcript) cutBack(f durable.File, off int64) error {
	if err := f.Truncate(off); err != nil {
		return err
	}
	return f.Sync()
}

func (t *transcript) sync(f durable.File) error {
	t.store.stalls.turn(&t.doing, syncing)
	start := time.Now()
	err := f.Sync()
	t.store.metrics.sync.Observe(time.Since(start).Seconds())
	return err
}

// writeSegment writes the draft as a new segment, header first.
func (t *transcript) writeSegment(d *draft) error {
	fsys := t.store.fsys
	if err := durable.MkdirAll(fsys, t.dir); err != nil {
		return fmt.Errorf("make the directory: %w", err)
	}
	path := t.files.path(d.seg)
	f, err := fsys.Create(path)
	if err != nil {
		// The file may be there all the same: its number is spent.
		t.files.burn(d.seg)
		t.poison()
		return fmt.Errorf("make the segment: %w", err)
	}
	_, err = f.WriteAt(d.buf, 0)
	if err == nil {
		err = t.sync(f)
	}
	if err == nil {
		err = fsys.SyncDir(t.dir)
	}
	if err != nil {
		_ = f.Close()
		// Whether the file is gone or not, the next segment's header says that it
		// does not count.
		if rerr := both(fsys.Remove(path), fsys.SyncDir(t.dir)); rerr != nil {
			t.files.burn(d.seg)
			t.poison()
			err = both(err, rerr)
		}
		return err
	}
	t.files.add(d.seg, f)
	return nil
}

// poison marks the newest segment: what lies behind the acknowledged line is unknown.
func (t *transcript) poison() {
	old := t.state.Load()
	if old.failed {
		return
	}
	snap := *old
	snap.failed, snap.begin = true, true
	t.state.Store(&snap)
	t.store.doubt(t.key)
	t.store.metrics.poisonings.Inc()
}

// mend prepares a transcript for writing: it puts a cut write aside, and looks again
// at a segment whose sync failed.
func (t *transcript) mend(old *snapshot) (*snapshot, error) {
	snap := *old
	t.disturbed = t.disturbed || snap.torn > 0 && !snap.begin || len(snap.dead) > 0
	if snap.failed && snap.exists {
		if err := t.lookAgain(&snap); err != nil {
			return nil, err
		}
	}
	if snap.torn > 0 && !snap.begin {
		if err := t.quarantine(&snap); err != nil {
			return nil, err
		}
	}
	for _, n := range snap.dead {
		if err := t.quarantineDead(n); err != nil {
			return nil, err
		}
	}
	if snap.torn != old.torn || len(snap.dead) > 0 {
		snap.dead = nil
		mended := snap
		mended.failed = old.failed
		t.state.Store(&mended)
	}
	return &snap, nil
}

// lookAgain makes sure, after a failed sync, that the disk has what was
// acknowledged: the page cache is dropped and the last line is read again.
func (t *transcript) lookAgain(snap *snapshot) error {
	n := snap.at.Segment
	f, err := t.files.file(n, false)
	if err != nil {
		return err
	}
	if err := f.DropCache(); err != nil {
		return fmt.Errorf("drop the page cache: %w", err)
	}
	s := newScanner(t.files.reader(n), snap.at.Offset, snap.off)
	it, err := s.next()
	if err != nil && !errors.Is(err, io.EOF) {
		return fmt.Errorf("read the last line again: %w", err) // it may be there: the next append looks
	}
	if err != nil || !it.good || it.sum != snap.sum {
		t.tellDamage(snap.at, snap.off-snap.at.Offset, 0)
		snap.newLife = true
	}
	snap.begin = true
	return nil
}

// quarantine copies a cut write to a file beside, and cuts it off.
func (t *transcript) quarantine(snap *snapshot) error {
	bytes, err := t.readStretch(snap.seg, snap.off, snap.off+snap.torn)
	if err != nil {
		return err
	}
	if err := t.putAside(snap.seg, snap.off, bytes); err != nil {
		return err
	}
	f, err := t.files.file(snap.seg, true)
	if err != nil {
		return err
	}
	if err := t.cutBack(f, snap.off); err != nil {
		t.poison()
		return fmt.Errorf("cut a torn line: %w", err)
	}
	snap.torn = 0
	return nil
}

func (t *transcript) quarantineDead(n int) error {
	size, err := t.files.size(n)
	if errors.Is(err, fs.ErrNotExist) {
		return nil // removed by an attempt that failed later
	}
	if err != nil {
		return err
	}
	bytes, err := t.readStretch(n, 0, size)
	if err != nil {
		return err
	}
	if err := t.putAside(n, 0, bytes); err != nil {
		return err
	}
	if err := t.store.fsys.Remove(t.files.path(n)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove a torn segment: %w", err)
	}
	if err := t.store.fsys.SyncDir(t.dir); err != nil {
		return fmt.Errorf("sync the directory: %w", err)
	}
	t.files.drop(n)
	return nil
}

// putAside keeps what is about to be cut, for people to look at; clear removes it.
func (t *transcript) putAside(n int, off int64, bytes []byte) error {
	if len(bytes) == 0 {
		return nil
	}
	name := fmt.Sprintf("%s/%08d.torn-%d", t.dir, n, off)
	if err := durable.WriteFile(t.store.fsys, name, bytes); err != nil {
		return fmt.Errorf("put a torn line aside: %w", err)
	}
	t.store.metrics.quarantines.Inc()
	t.store.log.Warn("a write that was cut short was put aside", "scope", t.key.scope,
		"conversation", shortName(t.dir), "segment", n, "offset", off, "bytes", len(bytes))
	return nil
}
