package store

import (
	"errors"
	"fmt"
	"time"

	"historyd/internal/durable"
)

// roomAtOnce is how many idle conversations are closed when no file can be opened. Each has a descriptor at the least,
// and a request holds two or three at a time while it opens something, so that a few find room by it.
const roomAtOnce = 8

// gossipEvery is how often the log has the same of what goes on.
const gossipEvery = time.Minute

// A gossip is what the log is told of that may happen very often.
type gossip struct {
	told  time.Time
	count int // since
}

// due says how many there were when it is time to tell of them.
func (g *gossip) due(now time.Time) (count int, tell bool) {
	if !g.told.IsZero() && now.Sub(g.told) < gossipEvery {
		return 0, false
	}
	count = g.count
	g.told, g.count = now, 0
	return count, true
}

// MakeRoom closes some idle conversations, those that were used least recently, because no file or connection can be
// opened. Whoever calls it may hold the locks of a conversation, which is then not idle.
func (s *Store) MakeRoom() {
	s.mu.Lock()
	victims := s.beyond(max(0, s.idle.Len()-roomAtOnce))
	s.roomy.count++
	times, tell := s.roomy.due(s.now())
	open := len(s.open)
	s.mu.Unlock()
	for _, t := range victims {
		t.files.end()
	}
	s.metrics.closings.Add(float64(len(victims)))
	if tell {
		s.log.Warn("no file can be opened: idle conversations are closed to make room; raise LimitNOFILE= of the unit or ulimit -n, "+
			"or lower store.open_files and limits.connections", "times", times, "closed", len(victims), "open", open)
	}
}

// noFile reports whether an error is for want of a descriptor, which passes by itself.
func noFile(err error) bool { return errors.Is(err, durable.ErrNoDescriptor) }

// both joins two errors, either of which may be nil. It is not for want of a descriptor unless both are: what else is wrong
// does not pass by itself.
func both(a, b error) error {
	switch {
	case a == nil || b == nil || noFile(a) == noFile(b):
		return errors.Join(a, b)
	case noFile(a):
		return fmt.Errorf("%v, %w", a, b) //nolint:errorlint // a lack is told, and no more
	}
	return fmt.Errorf("%w, %v", a, b) //nolint:errorlint // likewise
}

// newest remembers how the newest commit went. One that found no descriptor says nothing of the disk: what was wrong
// with it before still is. The caller holds mu.
func (s *Store) newest(err error) {
	if !noFile(err) || s.last == nil || noFile(s.last) {
		s.last = err
	}
}

// recover forgets what failed for want of a descriptor, once a file can be opened: nobody may come to write who would
// find out. A disk that hangs is not asked.
func (s *Store) recover() {
	s.mu.Lock()
	lacked := s.lacked()
	s.mu.Unlock()
	if !lacked || s.stalls.oldest(s.now()) >= lateAfter || s.whileOpen(s.tryToOpen) != nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if noFile(s.last) {
		s.last = nil
	}
	for key, err := range s.failing {
		if noFile(err) {
			delete(s.failing, key)
		}
	}
}

// lacked reports whether a descriptor is all that was wanting in something. The caller holds mu.
func (s *Store) lacked() bool {
	if noFile(s.last) {
		return true
	}
	for _, err := range s.failing {
		if noFile(err) {
			return true
		}
	}
	return false
}

// tryToOpen opens a file that is always there.
func (s *Store) tryToOpen() error {
	f, err := s.fsys.Open(formatName, false)
	if err != nil {
		return err
	}
	return f.Close()
}
