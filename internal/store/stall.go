package store

import (
	"fmt"
	"sync"
	"time"

	"historyd/internal/history"
)

// stallAfter is how long a commit, or the opening of a conversation, may be under way before the disk is said to hang.
const stallAfter = 10 * time.Second

// stalls knows since when what should take a moment is under way, so that a disk that hangs is told though nothing fails.
type stalls struct {
	mu    sync.Mutex // guards what follows
	under map[uint64]time.Time
	next  uint64
}

// begin notes that something is under way until end is called.
func (s *stalls) begin(now time.Time) (end func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.under == nil {
		s.under = map[uint64]time.Time{}
	}
	id := s.next
	s.next++
	s.under[id] = now
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.under, id)
	}
}

// ready is an error while something takes too long.
func (s *stalls) ready(now time.Time) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, began := range s.under {
		if now.Sub(began) >= stallAfter {
			return fmt.Errorf("%w: the disk hangs", history.ErrUnavailable)
		}
	}
	return nil
}
