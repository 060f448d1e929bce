package store

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"sync"
	"sync/atomic"

	"historyd/internal/history"
	"historyd/internal/identity"
)

// A transcript is one conversation's record while it is in use.
//
// Readers take the published snapshot and need no lock. Whoever changes the record
// (the leader of a group of appends, an import, a clear) holds change. Locks are
// taken in the order change, queue, segments.mu.
type transcript struct {
	store *Store
	key   transcriptKey
	dir   string // relative to the data directory
	files *segments
	state atomic.Pointer[snapshot]

	change sync.Mutex
	keys   *keyTable // loaded when first needed; belongs to the holder of change

	queueMu sync.Mutex // guards the next two
	queue   []*pending
	leading bool

	damageMu sync.Mutex // guards the next two
	damage   history.Damage
	told     map[place]bool

	titleOnce sync.Once
	title     string

	refs int // guarded by Store.mu
}

type transcriptKey struct {
	scope identity.Scope
	name  string
}

// A snapshot is what is acknowledged: a reader never looks behind it. It is never
// changed once published.
type snapshot struct {
	exists  bool
	at      place  // of the last line
	seg     int    // where the next line goes, unless begin is set
	off     int64  // …
	sum     uint32 // checksum of the last line
	last    int64  // newest seq
	id      string // newest id
	when    string // of the last commit
	totals  totals // Bytes counts the last line, too
	summary *history.Summary

	newline bool  // the newline of the last line is missing
	torn    int64 // bytes behind off that a cut write left
	begin   bool  // the next line begins a new segment
	newLife bool  // acknowledged messages may be lost: versions that clients hold are void
	failed  bool  // a sync failed: nothing is known of what lies behind off
	dead    []int // segments that hold nothing but a cut write

	unreadable bool // there are segments, and no good line in any
}

func newTranscript(s *Store, key transcriptKey, dir string) *transcript {
	return &transcript{store: s, key: key, dir: dir, files: &segments{fsys: s.fsys, dir: dir}}
}

// tailWindow is how much of the end of the newest segment is verified when a
// transcript is opened. A shorter record is verified whole.
const tailWindow = 1 << 20

// load finds out what is there. It changes nothing.
func (t *transcript) load(ctx context.Context, window int64) error {
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
	snap := &snapshot{}
	for i := len(t.files.numbers) - 1; i >= 0 && !snap.exists; i-- {
		if err := t.loadTail(t.files.numbers[i], window, snap); err != nil {
			return err
		}
		if !snap.exists {
			snap.begin = true
		}
	}
	snap.unreadable = !snap.exists && len(t.files.numbers) > len(snap.dead)
	if snap.exists && !snap.totals.Fold.none() {
		if err := t.loadSummary(snap); err != nil {
			return err
		}
	}
	t.state.Store(snap)
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
		window *= 4
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
	*snap = snapshot{exists: true, begin: snap.begin, dead: snap.dead, at: place{n, tail.lastOff}, seg: n, off: tail.end, sum: tail.sum,
		last: max(c.Last, tail.maxSeq), id: c.ID, when: c.At, totals: c.Totals}
	snap.totals.Bytes += tail.end - tail.lastOff
	return t.classifyTail(n, size, snap)
}

// believeDisk makes the segment's content come from the disk, and its name durable
// if an attempt of this process to make it so failed.
func (t *transcript) believeDisk(n int) error {
	f, err := t.files.file(n, false)
	if err != nil {
		return err
	}
	if err := f.DropCache(); err != nil {
		return err
	}
	if !t.store.isFailing(t.key) {
		return nil
	}
	for dir := t.dir; dir != "."; dir = path.Dir(dir) {
		if err := t.store.fsys.SyncDir(dir); err != nil {
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
		found.damage = append(found.damage, waiting...)
		waiting = nil
		if it.broken || good != nil && first != found.maxSeq+1 {
			found.damage = append(found.damage, badStretch{it.off, 0, max(0, first-found.maxSeq-1)})
		}
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
	snap.newLife = true
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

// checkHeader compares the first line of a segment with who is asking.
func (t *transcript) checkHeader(n int) error {
	h, err := t.files.headerOf(n)
	if err != nil {
		return classify(err)
	}
	if !h.ok {
		t.tellDamage(place{n, 0}, 0, 0)
		return nil
	}
	if !h.header.of(t.key) {
		return fmt.Errorf("%w: the segment is of another conversation", history.ErrDamaged)
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
		snap.totals.Fold, snap.totals.FoldedSeq, snap.totals.FoldedTurns =
			before.Totals.Fold, before.Totals.FoldedSeq, before.Totals.FoldedTurns
	}
	if snap.summary == nil {
		snap.totals.Fold, snap.totals.FoldedSeq, snap.totals.FoldedTurns = place{}, 0, 0
	}
	return nil
}

// commitAt reads the line at a place; nil when there is no good one.
func (t *transcript) commitAt(at place) (*commit, error) {
	size, err := t.files.size(at.Segment)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, classify(err)
	}
	s := newScanner(t.files.reader(at.Segment), at.Offset, size)
	s.chunk = probeChunk
	it, err := s.next()
	if errors.Is(err, io.EOF) || err == nil && (!it.good || it.off != at.Offset) {
		return nil, nil
	}
	if err != nil {
		return nil, classify(err)
	}
	c, err := parseCommit(it.raw)
	if err != nil {
		return nil, nil //nolint:nilerr // no good line is there
	}
	return c, nil
}

// commitBefore reads the nearest good line before a place.
func (t *transcript) commitBefore(snap *snapshot, at place) (*commit, error) {
	for it, err := range t.backward(snap, at) {
		if err != nil {
			return nil, err
		}
		if it.good {
			c, err := parseCommit(it.raw)
			if err == nil {
				return c, nil
			}
		}
	}
	return nil, nil
}

// tellDamage counts and tells a bad place once.
func (t *transcript) tellDamage(at place, n, lost int64) {
	t.damageMu.Lock()
	defer t.damageMu.Unlock()
	if t.told[at] || len(t.told) >= 1000 {
		return
	}
	if t.told == nil {
		t.told = map[place]bool{}
	}
	t.told[at] = true
	t.damage.Places++
	t.damage.Bytes += n
	t.damage.Lost += lost
	if t.damage.Detail == "" {
		t.damage.Detail = fmt.Sprintf("segment %d, byte %d", at.Segment, at.Offset)
	}
	t.store.metrics.damage.Inc()
	t.store.log.Error("damage in a transcript", "scope", t.key.scope, "conversation", shortName(t.dir),
		"segment", at.Segment, "offset", at.Offset, "bytes", n)
}

func (t *transcript) damaged() *history.Damage {
	t.damageMu.Lock()
	defer t.damageMu.Unlock()
	if t.damage.Places == 0 {
		return nil
	}
	d := t.damage
	return &d
}

// history makes the public state of a snapshot.
func (t *transcript) history(snap *snapshot) history.State {
	damage := t.damaged()
	if !snap.exists || snap.last == 0 && damage == nil {
		return history.State{Name: t.key.name}
	}
	return history.State{
		Name: t.key.name, Epoch: snap.totals.Epoch,
		CreatedAt: parseTime(snap.totals.Created), UpdatedAt: parseTime(snap.when),
		LastSeq: snap.last, LastID: snap.id, Messages: snap.totals.Messages, Turns: snap.totals.Turns,
		Bytes: snap.totals.Bytes, Answered: snap.totals.Answered, Summary: snap.summary, Damage: damage,
	}
}
