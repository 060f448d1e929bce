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
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"historyd/internal/durable"
	"historyd/internal/history"
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
	lock         io.Closer

	mu      sync.Mutex // guards what follows
	closed  bool
	open    map[transcriptKey]*entry
	idle    *list.List // of *entry, least recently used last
	opened  map[transcriptKey]struct{}
	failing map[transcriptKey]struct{}
	last    error // of the newest commit, whatever the conversation
	untidy  bool  // a clear may have left something half done

	catalogues catalogues
}

// entry is a transcript's place in the table of open ones.
type entry struct {
	t     *transcript
	ready chan struct{} // closed when loaded
	err   error         // of the load
	node  *list.Element // in idle; nil while in use
}

// Open takes the data directory for this process: it locks it, makes it durable as
// it is found, and empties what clears and imports left behind. It does not look at
// transcripts, so that its time does not depend on how many there are.
//
// durable.ErrLocked when another daemon has the directory.
func Open(o Options) (*Store, error) {
	if o.FS == nil || o.NewID == nil {
		return nil, errors.New("store: FS and NewID are required")
	}
	s := &Store{fsys: o.FS, newID: o.NewID, now: o.Now, log: o.Logger, segmentBytes: o.SegmentBytes, openFiles: o.OpenFiles,
		open: map[transcriptKey]*entry{}, idle: list.New(), opened: map[transcriptKey]struct{}{}, failing: map[transcriptKey]struct{}{}}
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
	s.metrics = newMetrics(o.Registerer, s.countOpen)
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
	return s.emptyStaging()
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

// Close ends all reads and gives the directory free. What was acknowledged is
// durable already.
func (s *Store) Close() error {
	s.mu.Lock()
	s.closed = true
	entries := make([]*entry, 0, len(s.open))
	for _, e := range s.open {
		entries = append(entries, e)
	}
	s.open = map[transcriptKey]*entry{}
	s.idle.Init()
	s.mu.Unlock()
	for _, e := range entries {
		<-e.ready
		e.t.change.Lock()
		e.t.files.end()
		e.t.change.Unlock()
	}
	return s.lock.Close()
}

// Ready reports whether a write would be accepted: nil, or why the last one was not.
func (s *Store) Ready() error {
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
	return nil
}

// outcome remembers how the newest commit of a conversation went.
func (s *Store) outcome(key transcriptKey, err error, failing bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.last = err
	if failing && len(s.failing) < 10_000 {
		s.failing[key] = struct{}{}
		delete(s.opened, key)
	} else if !failing {
		delete(s.failing, key)
	}
}

// firstOpen reports whether the conversation has not been opened by this process
// before. It may forget that it was, never invent it.
func (s *Store) firstOpen(key transcriptKey) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, before := s.opened[key]
	return !before
}

func (s *Store) isFailing(key transcriptKey) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, failing := s.failing[key]
	return failing
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

// acquire returns the transcript, loaded, and keeps it open until release.
func (s *Store) acquire(ctx context.Context, key transcriptKey) (*transcript, error) {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return nil, history.ErrClosed
	}
	e, ok := s.open[key]
	if ok {
		e.t.refs++
		if e.node != nil {
			s.idle.Remove(e.node)
			e.node = nil
		}
		s.mu.Unlock()
		select {
		case <-e.ready:
		case <-ctx.Done():
			s.release(e.t)
			return nil, ctx.Err()
		}
	} else {
		e = &entry{t: newTranscript(s, key, s.dirOf(key)), ready: make(chan struct{})}
		e.t.refs = 1
		s.open[key] = e
		s.mu.Unlock()
		e.err = e.t.load(ctx, tailWindow)
		close(e.ready)
	}
	if e.err != nil {
		s.discard(e)
		return nil, e.err
	}
	return e.t, nil
}

// release gives a transcript back. Idle ones stay open, up to a number.
func (s *Store) release(t *transcript) {
	s.mu.Lock()
	t.refs--
	e := s.open[t.key]
	var victims []*transcript
	if t.refs == 0 && e != nil && e.t == t {
		snap := t.state.Load()
		if snap == nil || !snap.exists {
			delete(s.open, t.key)
			victims = append(victims, t)
		} else {
			s.noteOpened(t.key)
			if snap.failed {
				delete(s.opened, t.key)
			}
			e.node = s.idle.PushFront(e)
			for s.idle.Len() > s.openFiles {
				old := s.idle.Remove(s.idle.Back()).(*entry)
				delete(s.open, old.t.key)
				victims = append(victims, old.t)
			}
		}
	}
	s.mu.Unlock()
	for _, v := range victims {
		v.files.end()
	}
}

// discard takes an entry out of the table: it failed to load, or what it stood for
// is gone. Those that still hold it find it ended.
func (s *Store) discard(e *entry) {
	s.mu.Lock()
	if s.open[e.t.key] == e {
		delete(s.open, e.t.key)
		if e.node != nil {
			s.idle.Remove(e.node)
			e.node = nil
		}
	}
	s.mu.Unlock()
	e.t.files.end()
}

func (s *Store) discardTranscript(t *transcript) {
	s.mu.Lock()
	e := s.open[t.key]
	delete(s.opened, t.key)
	s.mu.Unlock()
	if e != nil && e.t == t {
		s.discard(e)
		return
	}
	t.files.end()
}

func (s *Store) countOpen() float64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return float64(len(s.open))
}

// classify gives an error of the file system its class.
func classify(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, history.ErrGone), errors.Is(err, history.ErrFull), errors.Is(err, history.ErrUnavailable), errors.Is(err, history.ErrDamaged):
		return err
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT), errors.Is(err, syscall.EFBIG):
		return fmt.Errorf("%w: %w", history.ErrFull, err)
	}
	return fmt.Errorf("%w: %w", history.ErrUnavailable, err)
}

func randomHex(n int) string {
	b := make([]byte, n)
	_, _ = rand.Read(b) // never fails
	return hex.EncodeToString(b)
}

// shortName is what a log shows of a conversation: the beginning of its directory's hash.
func shortName(dir string) string {
	base := dir[strings.LastIndexByte(dir, '/')+1:]
	return base[:min(12, len(base))]
}
