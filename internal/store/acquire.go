package store

import (
	"context"
	"slices"

	"historyd/internal/history"
)

// acquire returns the transcript, loaded, and keeps it open until release.
func (s *Store) acquire(ctx context.Context, key transcriptKey) (*transcript, error) {
	return s.acquireFor(ctx, key, false)
}

// acquireFor is acquire for somebody who may stay until it is loaded, though ctx has ended, and then loads it.
func (s *Store) acquireFor(ctx context.Context, key transcriptKey, stays bool) (*transcript, error) {
	for {
		e, made, err := s.take(key)
		switch {
		case err != nil:
			return nil, err
		case made && stays && s.stand():
			s.loadHere(e)
		case made:
			go s.load(e, false) // ends with the load
		}
		if err := e.await(ctx); err != nil {
			s.release(e.t)
			return nil, err
		}
		if e.err == nil {
			return e.t, nil
		}
		s.discard(e)
		if e.err != errRetry {
			return nil, e.err
		}
	}
}

// take finds the entry of a transcript, or makes it for its caller to load; it may not be ready yet.
func (s *Store) take(key transcriptKey) (e *entry, made bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, false, history.ErrClosed
	}
	e, there := s.open[key]
	if !there {
		e = &entry{t: newTranscript(s, key, s.dirOf(key)), ready: make(chan struct{})}
		e.t.refs = 1 // the loader's, so that whoever gives up waiting does not end the load
		s.open[key] = e
		s.reading.Add(1)
	}
	e.t.refs++
	if e.node != nil {
		s.idle.Remove(e.node)
		e.node = nil
	}
	return e, !there, nil
}

// loadHere is load for an append, after stand.
func (s *Store) loadHere(e *entry) {
	defer s.standing.Add(-1)
	s.load(e, true)
}

// load makes an entry ready. Where it will be written to, its file need not be opened twice.
func (s *Store) load(e *entry, writes bool) {
	defer s.reading.Done()
	defer func() {
		close(e.ready)
		if e.err != nil {
			s.discard(e)
			return
		}
		s.release(e.t)
	}()
	defer s.stalls.end(s.stalls.begin(s.now(), opening), s.now)
	e.err = errPanicked
	e.err = e.t.load(tailWindow, writes)
}

// release gives a transcript back. Idle ones stay open, up to a number.
func (s *Store) release(t *transcript) {
	for _, v := range s.letGo(t) {
		v.files.end()
	}
}

// letGo counts a user less, and returns what has to be closed for it.
func (s *Store) letGo(t *transcript) (victims []*transcript) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if t.refs--; t.refs > 0 {
		return nil
	}
	e := s.open[t.key]
	if e == nil || e.t != t {
		s.retired[t.key] = slices.DeleteFunc(s.retired[t.key], func(r *transcript) bool { return r == t })
		if len(s.retired[t.key]) == 0 {
			delete(s.retired, t.key)
		}
		return append(victims, t)
	}
	snap := t.state.Load()
	if snap == nil || !snap.exists {
		delete(s.open, t.key)
		return append(victims, t)
	}
	if !snap.failed {
		s.noteOpened(t.key)
	}
	e.node = s.idle.PushFront(e)
	return s.beyond(s.openFiles)
}

// beyond takes out of the table what is idle beyond so many, the longest first. The caller holds mu, and closes them.
func (s *Store) beyond(most int) (victims []*transcript) {
	for s.idle.Len() > most {
		old := s.idle.Remove(s.idle.Back()).(*entry)
		delete(s.open, old.t.key)
		victims = append(victims, old.t)
	}
	return victims
}

// discard takes an entry out of the table: it failed to load. Those that still hold
// it find it ended.
func (s *Store) discard(e *entry) {
	s.mu.Lock()
	if s.open[e.t.key] == e {
		delete(s.open, e.t.key)
	}
	s.mu.Unlock()
	e.t.files.end()
}
