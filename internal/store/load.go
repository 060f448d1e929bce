package store

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"strconv"

	"historyd/internal/history"
)

// tailWindow is how much of the end of the newest segment is verified when a
// transcript is opened. A shorter record is verified whole.
const tailWindow = 1 << 20

// load finds out what is there. It changes nothing, and opens for it to be changed if that is to come.
func (t *transcript) load(window int64, writes bool) error {
	unsure := t.store.isUnsure(t.key)
	if unsure {
		if err := t.settle(); err != nil {
			return classify(err)
		}
	}
	entries, err := t.store.fsys.ReadDir(t.dir)
	if errors.Is(err, fs.ErrNotExist) {
		t.state.Store(&snapshot{})
		return nil
	}
	if err != nil {
		return fmt.Errorf("list segments: %w", classify(err))
	}
	for _, e := range entries {
		if n, ok := segmentNumber(e.Name); ok {
			t.files.numbers = append(t.files.numbers, n)
			t.files.spent = n
		}
	}
	if n := len(t.files.numbers); writes && n > 0 {
		_ = t.files.openSegment(t.files.numbers[n-1], true) // where that fails, it may be read all the same
	}
	snap := &snapshot{}
	for i := len(t.files.numbers) - 1; i >= 0 && !snap.exists; i-- {
		if err := t.loadTail(t.files.numbers[i], window, snap); err != nil {
			return err
		}
		if !snap.exists {
			snap.begin = true
		}
	}
	snap.begin = snap.begin || unsure // a file whose sync may have failed is not written to
	snap.unreadable = !snap.exists && len(t.files.numbers) > len(snap.dead)
	if snap.exists {
		if err := t.loadRewound(snap); err != nil {
			return err
		}
	}
	if snap.exists && !snap.totals.Fold.none() {
		if err := t.loadSummary(snap); err != nil {
			return err
		}
	}
	if err := t.loadProse(snap); err != nil {
		return err
	}
	t.state.Store(snap)
	t.store.metrics.opens.Inc()
	return nil
}

// loadTail takes the state from the last good line of segment n, if it has one.
func (t *transcript) loadTail(n int, window int64, snap *snapshot) error {
	size, err := t.files.size(n)
	if err != nil {
		return classify(err)
	}
	if t.store.firstOpen(t.key) {
		// A process that died after a failed sync may have left lines in the page
		// cache that the disk never got.
		if err := t.believeDisk(n); err != nil {
			return classify(err)
		}
	}
	var tail tail
	for {
		if tail, err = t.readTail(n, size, window); err != nil {
			return classify(err)
		}
		if tail.last != nil || window >= size {
			break
		}
		window = max(2*window, t.lastLine(n, size))
	}
	if tail.last == nil {
		return t.loadDead(n, size, snap)
	}
	if err := t.checkHeader(n); err != nil {
		return err
	}
	for _, d := range tail.damage {
		t.tellDamage(place{n, d.off}, d.bytes, d.lost)
	}
	c := tail.last
	*snap = snapshot{exists: true, begin: snap.begin, newLife: snap.newLife, dead: snap.dead, lost: snap.lost, at: place{n, tail.lastOff}, seg: n, off: tail.end, sum: tail.sum,
		last: max(c.Last, tail.maxSeq), id: c.ID, when: c.At, totals: c.Totals}
	snap.totals.Bytes += tail.end - tail.lastOff
	return t.classifyTail(n, size, snap)
}

// lastLine is how much of the end of a segment its last line takes, by what it says
// itself; 0 when the end is not that of a line.
func (t *transcript) lastLine(n int, size int64) int64 {
	end, err := t.readStretch(n, max(0, size-frameTail), size)
	if err != nil {
		return 0
	}
	end = bytes.TrimSuffix(end, []byte("\n"))
	i, j := bytes.LastIndex(end, []byte(frameLen)), bytes.LastIndex(end, []byte(frameCRC))
	if i < 0 || j < i {
		return 0
	}
	payload, err := strconv.ParseInt(string(end[i+len(frameLen):j]), 10, 64)
	if err != nil || payload <= 0 {
		return 0
	}
	// One byte more: reading begins behind the newline of the line before.
	return payload + 2*frameTail
}

// believeDisk makes what is read of the segment what the disk has. After a failure
// of this process there may be bytes, too, that nobody has tried to sync yet.
func (t *transcript) believeDisk(n int) error {
	f, err := t.files.file(n, false)
	if err != nil {
		return err
	}
	if err := f.DropCache(); err != nil || !t.store.isUnsure(t.key) {
		return err
	}
	return f.Sync()
}

// settle makes durable which names there are, or are no more.
func (t *transcript) settle() error {
	for dir := t.dir; dir != "."; dir = path.Dir(dir) {
		if err := t.store.fsys.SyncDir(dir); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

// A tail is what the end of a segment tells.
type tail struct {
	last    *commit
	lastOff int64
	end     int64 // behind the last good line, without its newline
	sum     uint32
	maxSeq  int64
	damage  []badStretch
}

type badStretch struct {
	off, bytes, lost int64
}

func (t *transcript) readTail(n int, size, window int64) (tail, error) {
	var found tail
	s := newScanner(t.files.reader(n), max(0, size-window), size)
	s.chunk = int(min(size, window))
	if size > window {
		if more, err := s.skipLine(); err != nil || !more {
			return found, err
		}
	}
	var good []byte
	var waiting []badStretch // bad, with nothing good behind it so far
	for {
		it, err := s.next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return found, err
		}
		if !it.good {
			waiting = append(waiting, badStretch{it.off, int64(len(it.raw)), 0})
			continue
		}
		first, last, _ := seqsOf(it.raw)
		if good == nil && size > window {
			waiting = nil // the line before them, which tells glued lines apart, was not looked at
		}
		found.damage = append(found.damage, waiting...)
		at := it.off
		if len(waiting) > 0 {
			at = waiting[len(waiting)-1].off
		}
		if it.broken || good != nil && first != found.maxSeq+1 {
			found.damage = append(found.damage, badStretch{at, 0, max(0, first-found.maxSeq-1)})
		}
		waiting = nil
		found.maxSeq = max(found.maxSeq, last)
		good, found.lastOff, found.end, found.sum = it.raw, it.off, it.off+int64(len(it.raw)), it.sum
	}
	if good == nil {
		return found, nil
	}
	c, err := parseCommit(good)
	if err != nil {
		return found, fmt.Errorf("%w: %w", history.ErrDamaged, err)
	}
	found.last = c
	return found, nil
}

// classifyTail decides what follows the last good line of the newest segment.
func (t *transcript) classifyTail(n int, size int64, snap *snapshot) error {
	rest, err := t.readStretch(n, snap.off, size)
	if err != nil {
		return classify(err)
	}
	switch {
	case len(rest) == 0:
		snap.newline = true
		return nil
	case rest[0] == '\n':
		snap.off++
		snap.totals.Bytes++
		rest = rest[1:]
		if len(rest) == 0 {
			return nil
		}
		if torn(rest) {
			snap.torn = int64(len(rest))
			return nil
		}
	case len(bytes.Trim(rest, "\x00")) == 0:
		snap.newline, snap.torn = true, int64(len(rest))
		return nil
	}
	t.tellDamage(place{n, snap.off}, int64(len(rest)), 0)
	snap.begin, snap.newLife = true, true
	snap.off = size // the damage stays inside the record, where check and readers meet it
	return nil
}

// loadDead looks at a segment without a good line: either its creation was cut
// short, or it is damage.
func (t *transcript) loadDead(n int, size int64, snap *snapshot) error {
	content, err := t.readStretch(n, 0, size)
	if err != nil {
		return classify(err)
	}
	if torn(content) {
		snap.dead = append(snap.dead, n)
		return nil
	}
	t.tellDamage(place{n, 0}, size, 0)
	snap.newLife, snap.lost = true, append(snap.lost, n)
	return nil
}

func (t *transcript) readStretch(n int, from, to int64) ([]byte, error) {
	b := make([]byte, to-from)
	got, err := t.files.readAt(n, b, from)
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return b[:got], err
}

// ours compares the first line of a segment with who is asking, and with what is read here.
func (t *transcript) ours(n int) error {
	h, err := t.files.headerOf(n)
	switch {
	case err != nil:
	case h.version:
		err = fmt.Errorf("%w: %w", history.ErrDamaged, errVersion)
	case h.ok && !h.header.of(t.key):
		err = fmt.Errorf("%w: the segment is of another conversation", history.ErrDamaged)
	}
	return classify(err)
}

// checkHeader tells what the first line of a segment has to tell.
func (t *transcript) checkHeader(n int) error {
	if err := t.ours(n); err != nil {
		return err
	}
	h, err := t.files.headerOf(n)
	if err != nil {
		return classify(err)
	}
	if !h.ok {
		t.tellDamage(place{n, 0}, 0, 0)
		return nil
	}
	for _, lost := range h.header.Lost {
		t.tellDamage(place{lost, 0}, 0, 0)
	}
	return nil
}

func (h *header) of(k transcriptKey) bool {
	return h.Kind == string(k.scope.Kind()) && h.Caller == k.scope.ID() &&
		h.PermissionScope == k.scope.PermissionScope() && h.Conversation == k.name
}

// loadSummary reads the newest summary that can be read.
func (t *transcript) loadSummary(snap *snapshot) error {
	for tries := 0; tries < 8 && !snap.totals.Fold.none(); tries++ {
		at := snap.totals.Fold
		c, err := t.commitAt(at)
		if err != nil {
			return err
		}
		if c != nil && c.Summary != nil {
			snap.summary = c.Summary.value()
			return nil
		}
		t.tellDamage(at, 0, 0)
		before, err := t.commitBefore(snap, at)
		if err != nil {
			return err
		}
		if before == nil {
			break
		}
		snap.totals.OutMessages += snap.rewound.count(before.Totals.FoldedSeq+1, snap.totals.FoldedSeq)
		snap.totals.Fold, snap.totals.FoldedSeq, snap.totals.FoldedTurns =
			before.Totals.Fold, before.Totals.FoldedSeq, before.Totals.FoldedTurns
	}
	if snap.summary == nil {
		snap.totals.OutMessages += snap.rewound.count(1, snap.totals.FoldedSeq)
		snap.totals.Fold, snap.totals.FoldedSeq, snap.totals.FoldedTurns = place{}, 0, 0
	}
	return nil
}
