package store

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
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

	change  gate
	keys    *keyTable        // loaded when first needed; belongs to the holder of change
	recent  recent           // likewise
	vain    vain             // the last fold that let nothing leave; likewise
	shelved bool             // the directories of attachments are durable, and so is what is in them; likewise
	strays  map[string]int64 // sizes of the attachments that no line counts yet, by hash; likewise
	retired bool             // an import has taken its place: nothing is written to it any more; likewise

	weight    weight // what its files take, once weighed; likewise
	weighed   bool   // likewise
	disturbed bool   // files were changed besides what a spending says; likewise

	doing standing // a write that is under way; likewise

	queueMu sync.Mutex // guards the next two
	queue   []*pending
	leading bool

	damageMu sync.Mutex // guards the next three
	damage   history.Damage
	told     map[int][]badStretch // by segment

	toldAttachments map[string]bool // by hash

	trail *atomic.Pointer[trail] // nil in it as long as no search went far back

	title atomic.Pointer[string] // nil until it is read

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
	prose   *history.Prose // of all that the summary covers; nil when there is none
	rewound rewound
	rewinds int // since the one that lists all spans

	newline bool  // the newline of the last line is missing
	torn    int64 // bytes behind off that a cut write left
	begin   bool  // the next line begins a new segment
	newLife bool  // acknowledged messages may be lost: versions that clients hold are void
	failed  bool  // a sync failed: nothing is known of what lies behind off
	dead    []int // segments that hold nothing but a cut write
	lost    []int // segments in which no line can be read

	unreadable bool // there are segments, and no good line in any
}

func newTranscript(s *Store, key transcriptKey, dir string) *transcript {
	return &transcript{store: s, key: key, dir: dir, change: make(gate, 1), files: &segments{fsys: s.fsys, dir: dir}, trail: &atomic.Pointer[trail]{}}
}

// A gate is a mutex for which nobody waits longer than a context lasts.
type gate chan struct{}

func (g gate) lock(ctx context.Context) error {
	select {
	case g <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (g gate) unlock() { <-g }

// commitAt reads the line at a place; nil when there is no good one.
func (t *transcript) commitAt(at place) (*commit, error) {
	head, err := t.readStretch(at.Segment, at.Offset, at.Offset+probeChunk)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, classify(err)
	}
	size, err := t.files.size(at.Segment)
	if err != nil {
		return nil, classify(err)
	}
	n, ok := frameLength(head)
	if !ok || int64(n) > size-at.Offset {
		return nil, nil
	}
	line := head[:min(n, len(head))]
	if n > len(head) {
		if line, err = t.readStretch(at.Segment, at.Offset, at.Offset+int64(n)); err != nil {
			return nil, classify(err)
		}
	}
	if _, ok := frameIs(line); !ok {
		return nil, nil
	}
	c, err := parseCommit(line)
	if err != nil {
		return nil, nil //nolint:nilerr // no good line is there
	}
	return c, nil
}

// commitBefore reads the nearest good line before a place.
func (t *transcript) commitBefore(snap *snapshot, at place) (*commit, error) {
	for it, err := range t.backward(snap, at, chained{}) {
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

// tellDamage counts and tells a bad place once, whoever meets how much of it.
// Stretches that touch, or have but a newline between them, are one place.
func (t *transcript) tellDamage(at place, n, lost int64) {
	t.damageMu.Lock()
	defer t.damageMu.Unlock()
	places := t.told[at.Segment]
	for i := range places {
		p := &places[i]
		if at.Offset > p.off+p.bytes+1 || at.Offset+n+1 < p.off {
			continue
		}
		from, to := min(p.off, at.Offset), max(p.off+p.bytes, at.Offset+n)
		t.damage.Bytes += to - from - p.bytes
		t.damage.Lost += max(0, lost-p.lost)
		*p = badStretch{from, to - from, max(lost, p.lost)}
		return
	}
	if t.damage.Places >= maxTold {
		return
	}
	if t.told == nil {
		t.told = map[int][]badStretch{}
	}
	t.told[at.Segment] = append(places, badStretch{at.Offset, n, lost})
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

// maxTold is after how many bad places of one transcript no more are counted.
const maxTold = 1000

func (t *transcript) damaged() *history.Damage {
	t.damageMu.Lock()
	defer t.damageMu.Unlock()
	d := t.damage
	if d.Attachments = int64(len(t.toldAttachments)); d.Attachments > 0 && d.Detail == "" {
		d.Detail = attachmentsName
	}
	if d.Places += d.Attachments; d.Places == 0 {
		return nil
	}
	return &d
}

// history makes the public state of a snapshot.
func (t *transcript) history(snap *snapshot) history.State {
	damage := t.damaged()
	if !snap.exists || snap.last == 0 && (damage == nil || damage.Places == damage.Attachments) {
		return history.State{Name: t.key.name}
	}
	return history.State{
		Name: t.key.name, Epoch: snap.totals.Epoch,
		CreatedAt: parseTime(snap.totals.Created), UpdatedAt: parseTime(snap.when),
		LastSeq: snap.last, LastID: snap.id, Messages: snap.totals.Messages, Turns: snap.totals.Turns,
		Bytes: snap.totals.Bytes, Answered: snap.totals.Answered, Summary: snap.summary, Prose: snap.prose, Damage: damage,
	}
}

// await waits until the transcript is loaded, or could not be. What a context takes for
// a wait is saved where there is none, as nearly always.
func (e *entry) await(ctx context.Context) error {
	select {
	case <-e.ready:
		return nil
	default:
	}
	select {
	case <-e.ready:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
