package store

import (
	"context"
	"errors"

	"historyd/internal/durable"
	"historyd/internal/history"
	"historyd/internal/identity"
)

// Writes is a number that is another one after anything was added to any conversation.
func (s *Store) Writes() uint64 { return s.writes.Load() }

// Expire clears a conversation as history.Log says, if nobody else reads it or waits to
// write to it, and newest is the id of its newest activity still. False when it was left
// alone: whoever comes while it is cleared finds it gone, or begins it anew. before is
// called when it is about to go, and an error of it keeps it; it may be nil.
func (s *Store) Expire(ctx context.Context, scope identity.Scope, name, newest string, before func() error) (bool, error) {
	key := transcriptKey{scope, name}
	t, err := s.acquire(ctx, key)
	if errors.Is(err, history.ErrDamaged) || errors.Is(err, durable.ErrUnsafe) {
		return false, nil // nobody knows what its newest activity is
	}
	if err != nil {
		return false, err
	}
	defer s.release(t)
	if err := t.change.lock(ctx); err != nil {
		return false, err
	}
	defer t.change.unlock()
	snap := t.state.Load()
	if t.ended() || !snap.exists || snap.id != newest || t.damaged() != nil || !s.alone(t) {
		return false, nil
	}
	if before != nil {
		if err := before(); err != nil {
			return false, err
		}
	}
	place, ok := s.reserveIdle(key, t)
	if !ok {
		return false, nil
	}
	return true, s.clearAt(key, t, place)
}

// alone reports whether a transcript has no other user than who asks.
func (s *Store) alone(t *transcript) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return t.refs == 1
}
