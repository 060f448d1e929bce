// Package store keeps conversations in files: one directory a conversation, whose
// segments hold one JSON line a commit. It promises what history.Log says, on any
// durable.FS. It decides nothing about content: what may be kept, and what a
// summary says, is settled before and beside it.
//
// A line is acknowledged after it is written and the file synced, and every
// directory in which an entry was made. A sync that failed is never repeated: the
// next append begins a new segment behind the last acknowledged line. Reads change
// nothing on disk; a cut write is put aside by the next append.
//
// docs/FORMAT.md is the book of the bytes.
package store

import (
	"container/list"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"historyd/internal/durable"
	"historyd/internal/history"
	"historyd/internal/identity"
)

// Names in the data directory.
const (
	lockName        = "LOCK"
	formatName      = "format"
	transcriptsName = "transcripts"
	trashName       = "trash"
	stagingName     = "staging"
)

const formatText = "historyd 1\n"

// Options configures a Store. FS and NewID are required.
type Options struct {
	FS durable.FS
	// NewID returns an id that sorts after the one given, which may be empty.
	NewID func(after string) string
	Now   func() time.Time // nil means time.Now
	// Logger gets what an operator would act on; nil discards it.
	Logger       *slog.Logger
	Registerer   prometheus.Registerer // nil means no metrics
	SegmentBytes int64                 // a segment is left when it is larger; 0 means 16 MiB
	OpenFiles    int                   // conversations kept open while idle; 0 means 512
	Quota        Quota                 // of each caller
	Reserve      int64                 // of the file system that appends and imports leave free, or a sixteenth of it; 0 means none
}

// A Store is a data directory in use by this process alone. Safe for concurrent use.
type Store struct {
	fsys         durable.FS
	newID        func(string) string
	now          func() time.Time
	log          *slog.Logger
	metrics      *metrics
	segmentBytes int64
	openFiles    int
	spoolMemory  int
	reserved     int64
	ledger       *ledger
	writes       atomic.Uint64 // see Writes
	lock         io.Closer
	reading      sync.WaitGroup // the goroutines that load a transcript or make a catalogue

	life sync.RWMutex // shared by whoever is at work on disk without a transcript; taken before mu

	mu      sync.Mutex // guards what follows
	closed  bool
	open    map[transcriptKey]*entry
	idle    *list.List                      // of *entry, least recently used last
	retired map[transcriptKey][]*transcript // an import took their place; they are read on
	opened  map[transcriptKey]struct{}
	failing map[transcriptKey]error    // why a sync has to work again
	unsure  map[transcriptKey]struct{} // what is seen of them may not be durable
	last    error                      // of the newest commit, whatever the conversation; see newest
	untidy  bool                       // a removal has failed half-way: from now on each makes sure of the trash
	left    map[transcriptKey][]leftover
	roomy   gossip // of opens that found no descriptor

	catalogues catalogues
	trails     trails
	stalls     stalls
	standing   atomic.Int64 // appends that commit on their own goroutines
	scratches  *sync.Pool   // of *scratch; not within, or what it holds would keep a closed store in memory
}

// entry is a transcript's place in the table of open ones. While it is not ready it
// is being loaded, or its place is reserved.
type entry struct {
	t     *transcript
	ready chan struct{} // closed when loaded
	err   error         // of the load; errRetry when the place was only reserved
	node  *list.Element // in idle; nil while in use
}

// Open takes the data directory for this process: it locks it, makes it durable as
// it is found, and empties what clears and imports left behind. It does not look at
// transcripts, so that its time does not depend on how many there are.
//
// durable.ErrLocked when another daemon has the directory.
func Open(o Options) (*Store, error) {
	if o.FS == nil || o.NewID == nil {
		return nil, errors.New("store: Options.FS and Options.NewID are required")
	}
	if o.SegmentBytes < 0 || o.OpenFiles < 0 || o.Reserve < 0 || o.Quota.Bytes < 0 || o.Quota.Conversations < 0 {
		return nil, errors.New("store: Options.SegmentBytes, OpenFiles, Reserve and Quota must not be negative")
	}
	s := &Store{newID: o.NewID, now: o.Now, log: o.Logger, segmentBytes: o.SegmentBytes, openFiles: o.OpenFiles, spoolMemory: spoolMemory,
		reserved: o.Reserve, open: map[transcriptKey]*entry{}, idle: list.New(), retired: map[transcriptKey][]*transcript{}, opened: map[transcriptKey]struct{}{},
		failing: map[transcriptKey]error{}, unsure: map[transcriptKey]struct{}{}, left: map[transcriptKey][]leftover{}, scratches: &sync.Pool{}}
	s.fsys = durable.WithRoom(o.FS, s.MakeRoom)
	if s.now == nil {
		s.now = time.Now
	}
	if s.log == nil {
		s.log = slog.New(slog.DiscardHandler)
	}
	if s.segmentBytes == 0 {
		s.segmentBytes = 16 << 20
	}
	if s.openFiles == 0 {
		s.openFiles = 512
	}
	s.ledger = &ledger{store: s, quota: o.Quota, of: map[identity.Scope]*account{}}
	s.metrics = newMetrics(o.Registerer, s)
	lock, err := s.fsys.Lock(lockName)
	if err != nil {
		return nil, fmt.Errorf("lock the data directory: %w", err)
	}
	s.lock = lock
	if err := s.prepare(); err != nil {
		_ = lock.Close()
		return nil, err
	}
	return s, nil
}

func (s *Store) prepare() error {
	if err := s.checkFormat(); err != nil {
		return err
	}
	for _, name := range []string{transcriptsName, trashName, stagingName} {
		if err := durable.MkdirAll(s.fsys, name); err != nil {
			return fmt.Errorf("make %s: %w", name, err)
		}
	}
	// What a process wrote that died before its sync is in the page cache only: it
	// must not be shown before it is durable.
	if err := s.fsys.SyncAll(); err != nil {
		return fmt.Errorf("sync the data directory: %w", err)
	}
	if err := s.emptyTrash(); err != nil {
		return err
	}
	if err := s.emptyStaging(); err != nil {
		return err
	}
	kinds, err := s.fsys.ReadDir(transcriptsName)
	if err != nil {
		return fmt.Errorf("list %s: %w", transcriptsName, err)
	}
	for _, e := range kinds {
		if passes(e) {
			continue
		}
		remedy := "move it away"
		if e.Dir && ofKind(e.Name) {
			remedy = "chmod go= it"
		}
		return fmt.Errorf("%w: %s/%s is not a directory closed to others: %s", durable.ErrUnsafe, transcriptsName, e.Name, remedy)
	}
	return nil
}

func (s *Store) checkFormat() error {
	f, err := s.fsys.Open(formatName, false)
	if errors.Is(err, fs.ErrNotExist) {
		if err := durable.WriteFile(s.fsys, formatName, []byte(formatText)); err != nil {
			return fmt.Errorf("write %s: %w", formatName, err)
		}
		return nil
	}
	if err != nil {
		return fmt.Errorf("open %s: %w", formatName, err)
	}
	defer f.Close()
	b := make([]byte, 64)
	n, err := f.ReadAt(b, 0)
	if err != nil && !errors.Is(err, io.EOF) {
		return fmt.Errorf("read %s: %w", formatName, err)
	}
	if string(b[:n]) != formatText {
		return fmt.Errorf("the data directory has another format than this historyd writes: its file %q must say %q", formatName, strings.TrimSpace(formatText))
	}
	return nil
}

// Close waits for what is being changed, ends all reads and gives the directory
// free. What was acknowledged is durable already.
func (s *Store) Close() error {
	s.life.Lock()
	s.mu.Lock()
	s.closed = true
	entries := slices.Collect(maps.Values(s.open))
	retired := slices.Concat(slices.Collect(maps.Values(s.retired))...)
	s.open = map[transcriptKey]*entry{}
	s.idle.Init()
	s.mu.Unlock()
	s.life.Unlock()
	for _, e := range entries {
		<-e.ready
		_ = e.t.change.lock(context.Background())
		e.t.files.end()
		e.t.change.unlock()
	}
	for _, t := range retired {
		t.files.end()
	}
	s.reading.Wait()
	return s.lock.Close()
}

// whileOpen does something on disk that no transcript is held for. Once the store is
// closed another process may have the directory.
func (s *Store) whileOpen(fn func() error) error {
	s.life.RLock()
	defer s.life.RUnlock()
	s.mu.Lock()
	closed := s.closed
	s.mu.Unlock()
	if closed {
		return history.ErrClosed
	}
	return fn()
}

// Ready reports whether a write would be accepted: nil, or why the last one was not.
func (s *Store) Ready() error {
	s.recover()
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.closed:
		return history.ErrClosed
	case s.last != nil:
		return s.last
	case len(s.failing) > 0:
		return fmt.Errorf("%w: %d conversations wait for a sync to work again", history.ErrUnavailable, len(s.failing))
	}
	return s.stalls.ready(s.now())
}

// outcome remembers how the newest commit of a conversation went.
func (s *Store) outcome(key transcriptKey, err error, failing bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.newest(err)
	switch {
	case failing && noFile(err) && s.failing[key] != nil: // what was before did not pass by itself
	case failing && len(s.failing) < 10_000:
		s.failing[key] = err
	case !failing:
		delete(s.failing, key)
	}
	if err == nil {
		delete(s.unsure, key)
	}
}

// refused remembers that a write could not even begin because of the file system.
func (s *Store) refused(err error) {
	if errors.Is(err, history.ErrUnavailable) || errors.Is(err, history.ErrFull) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.newest(err)
	}
}

// doubt notes that what is seen of a conversation from now on may not be durable,
// so that the next to open it makes it so. It may cost a sync too much, never too few.
func (s *Store) doubt(key transcriptKey) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.unsure[key] = struct{}{}
	delete(s.opened, key)
}

func (s *Store) isUnsure(key transcriptKey) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, unsure := s.unsure[key]
	return unsure
}

// firstOpen reports whether the conversation has not been opened by this process
// before. It may forget that it was, never invent it.
func (s *Store) firstOpen(key transcriptKey) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, before := s.opened[key]
	return !before
}

const rememberedOpens = 1 << 16

func (s *Store) noteOpened(key transcriptKey) {
	if len(s.opened) >= rememberedOpens {
		clear(s.opened)
	}
	s.opened[key] = struct{}{}
}

func (s *Store) dirOf(key transcriptKey) string {
	return transcriptsName + "/" + key.scope.Dir() + "/" + key.scope.Conversation(key.name)
}

// reserve takes a conversation's place in the table from old, or if that is nil from
// nobody, so that until vacate nobody opens what is about to be moved. False when
// another has the place, or the store is closed. Who holds old.change keeps it from
// being evicted meanwhile.
func (s *Store) reserve(key transcriptKey, old *transcript) (*entry, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.reserveLocked(key, old)
}

// reserveIdle is reserve unless others than who asks have the transcript.
func (s *Store) reserveIdle(key transcriptKey, old *transcript) (*entry, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if old.refs > 1 {
		return nil, false
	}
	return s.reserveLocked(key, old)
}

// reserveLocked is reserve under s.mu.
func (s *Store) reserveLocked(key transcriptKey, old *transcript) (*entry, bool) {
	there := s.open[key]
	if s.closed || old == nil && there != nil || old != nil && (there == nil || there.t != old) {
		return nil, false
	}
	e := &entry{t: newTranscript(s, key, s.dirOf(key)), ready: make(chan struct{}), err: errRetry}
	e.t.refs = 1 // until vacate: whoever gives up waiting does not give the place free
	s.open[key] = e
	delete(s.opened, key)
	return e, true
}

// vacate gives a reserved place free.
func (s *Store) vacate(e *entry) {
	s.mu.Lock()
	if s.open[e.t.key] == e {
		delete(s.open, e.t.key)
	}
	s.mu.Unlock()
	close(e.ready)
}

// retire lets a transcript whose place was reserved be read on by those who have it:
// an import has put its segments, and more, where they were.
func (s *Store) retire(t *transcript) {
	s.mu.Lock()
	defer s.mu.Unlock()
	t.retired = true
	s.retired[t.key] = append(s.retired[t.key], t)
}

// endReads ends all reads of a conversation whose place was reserved; t is its
// transcript, or nil when it could not be loaded.
func (s *Store) endReads(key transcriptKey, t *transcript) {
	s.mu.Lock()
	ended := s.retired[key]
	delete(s.retired, key)
	s.mu.Unlock()
	if t != nil {
		ended = append(ended, t)
	}
	for _, t := range ended {
		t.files.end()
	}
}

func (s *Store) countOpen() float64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return float64(len(s.open))
}
