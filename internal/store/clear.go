package store

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strings"

	"historyd/internal/durable"
	"historyd/internal/history"
	"historyd/internal/identity"
)

// Clear implements history.Log.
func (l *log) Clear(ctx context.Context) error {
	s := l.store
	for {
		t, err := s.acquire(ctx, l.key)
		done := false
		switch {
		case err == nil:
			func() {
				defer s.release(t)
				done, err = t.clear(ctx)
			}()
		case errors.Is(err, history.ErrClosed), ctx.Err() != nil:
			return cmp.Or(ctx.Err(), err)
		default:
			// What cannot be loaded can still be cleared.
			done, err = s.clear(l.key, nil)
		}
		if done {
			return err
		}
	}
}

func (t *transcript) clear(ctx context.Context) (done bool, err error) {
	if err := t.change.lock(ctx); err != nil {
		return true, err
	}
	defer t.change.unlock()
	if t.ended() {
		return false, nil
	}
	return t.store.clear(t.key, t)
}

// clear removes a conversation, whose transcript is t if it could be loaded; t.change
// is then held. Not done when somebody else was quicker to open it.
func (s *Store) clear(key transcriptKey, t *transcript) (done bool, err error) {
	place, ok := s.reserve(key, t)
	if !ok {
		return false, nil
	}
	return true, s.clearAt(key, t, place)
}

// clearAt is clear once the conversation's place is reserved, which it gives free.
func (s *Store) clearAt(key transcriptKey, t *transcript, place *entry) error {
	defer s.vacate(place)
	s.endReads(key, t)
	err := s.removeConversation(key.scope, s.dirOf(key), t)
	if err == nil {
		err = s.dropLeft(key)
	}
	if err == nil {
		err = s.settleStaging()
	}
	if err != nil {
		err = classify(err)
		s.doubt(key)
		s.outcome(key, err, false)
		return err
	}
	s.catalogues.remove(key)
	s.metrics.clears.Inc()
	s.outcome(key, nil, false)
	return nil
}

// removeConversation removes the directory of a caller's conversation, whose transcript
// is t if it could be loaded, and what earlier removals have left that did not come to
// their end.
func (s *Store) removeConversation(scope identity.Scope, dir string, t *transcript) error {
	sp := s.spendToClear(scope, dir, t)
	err := s.moveAndRemove(dir)
	sp.sure = err == nil
	sp.end()
	s.mu.Lock()
	s.untidy = s.untidy || err != nil
	untidy := s.untidy
	s.mu.Unlock()
	if err != nil || !untidy {
		return err
	}
	// The removal of this one may have failed before, with its name gone and no more.
	if err := s.fsys.SyncDir(path.Dir(dir)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("sync the caller's directory: %w", err)
	}
	return s.emptyTrash()
}

// moveAndRemove moves a directory to the trash, makes that durable, and removes it.
// Without both syncs a power cut could bring it back.
func (s *Store) moveAndRemove(dir string) error {
	grave := trashName + "/" + randomHex(16)
	if moved, err := s.move(dir, grave); err != nil || !moved {
		return err
	}
	if err := durable.RemoveAll(s.fsys, grave); err != nil {
		return fmt.Errorf("empty the trash: %w", err)
	}
	if err := s.fsys.SyncDir(trashName); err != nil {
		return fmt.Errorf("sync the trash: %w", err)
	}
	return nil
}

// move moves a directory to the trash, durably, if it is there.
func (s *Store) move(dir, grave string) (moved bool, err error) {
	defer s.stalls.end(s.stalls.begin(s.now(), clearing), s.now)
	err = s.fsys.Rename(dir, grave)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("move to the trash: %w", err)
	}
	if err := s.fsys.SyncDir(path.Dir(dir)); err != nil {
		return true, fmt.Errorf("sync after moving to the trash: %w", err)
	}
	if err := s.fsys.SyncDir(trashName); err != nil {
		return true, fmt.Errorf("sync the trash: %w", err)
	}
	return true, nil
}

func (s *Store) emptyTrash() error {
	entries, err := s.fsys.ReadDir(trashName)
	if err != nil {
		return fmt.Errorf("list the trash: %w", err)
	}
	for _, e := range entries {
		// A clear under way may be removing the same.
		if err := durable.RemoveAll(s.fsys, trashName+"/"+e.Name); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("empty the trash: %w", err)
		}
	}
	if err := s.fsys.SyncDir(trashName); err != nil {
		return fmt.Errorf("sync the trash: %w", err)
	}
	return nil
}

// ClearAll clears every conversation of one caller.
func (s *Store) ClearAll(ctx context.Context, scope identity.Scope) error {
	dir := transcriptsName + "/" + scope.Dir()
	entries, err := s.fsys.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return classify(err)
	}
	for _, e := range entries {
		if strings.HasPrefix(e.Name, stagingPrefix) {
			continue
		}
		name, err := s.nameOf(scope, e.Name)
		switch {
		case err == nil:
			err = s.Log(scope, name).Clear(ctx)
		case errors.Is(err, history.ErrDamaged), errors.Is(err, durable.ErrUnsafe), err == errNoRecord:
			err = s.clearNameless(ctx, scope, e.Name)
		case errors.Is(err, fs.ErrNotExist):
			err = nil // cleared meanwhile
		}
		if err != nil {
			return classify(err)
		}
	}
	if err := errors.Join(s.dropLeftOf(scope), s.settleStaging()); err != nil {
		return classify(err)
	}
	s.mu.Lock()
	untidy := s.untidy
	s.mu.Unlock()
	if !untidy {
		return nil
	}
	return classify(s.emptyTrash())
}

// clearNameless clears a conversation of which only the directory is known. One that
// is open, or was opened meanwhile, is cleared by the name that it was opened by.
func (s *Store) clearNameless(ctx context.Context, scope identity.Scope, hash string) error {
	for range 2 {
		if name, open := s.openName(scope, hash); open {
			return s.Log(scope, name).Clear(ctx)
		}
		if err := s.removeConversation(scope, transcriptsName+"/"+scope.Dir()+"/"+hash, nil); err != nil {
			return err
		}
		s.ledger.giveUp(scope) // somebody may have begun to write to it meanwhile
	}
	return nil
}

func (s *Store) openName(scope identity.Scope, hash string) (string, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for key := range s.open {
		if key.scope == scope && scope.Conversation(key.name) == hash {
			return key.name, true
		}
	}
	return "", false
}

// dropLeftOf removes what imports to a caller's conversations have left.
func (s *Store) dropLeftOf(scope identity.Scope) error {
	s.mu.Lock()
	keys := slices.Collect(maps.Keys(s.left))
	s.mu.Unlock()
	for _, key := range keys {
		if key.scope == scope {
			if err := s.dropLeft(key); err != nil {
				return err
			}
		}
	}
	return nil
}

// Log returns the conversation of that name, whether it exists or not.
func (s *Store) Log(scope identity.Scope, conversation string) history.Log {
	return &log{s, transcriptKey{scope, conversation}}
}

// errNoRecord is for a directory in which no conversation has begun: attachments are
// there before the first line.
var errNoRecord = errors.New("no segment")

// nameOf reads a conversation's name from the header of one of its segments.
func (s *Store) nameOf(scope identity.Scope, hash string) (string, error) {
	files := &segments{fsys: s.fsys, dir: transcriptsName + "/" + scope.Dir() + "/" + hash}
	defer files.end()
	entries, err := s.fsys.ReadDir(files.dir)
	if err != nil {
		return "", err
	}
	segments := 0
	for i := len(entries) - 1; i >= 0; i-- {
		n, ok := segmentNumber(entries[i].Name)
		if !ok {
			continue
		}
		segments++
		h, err := files.headerOf(n)
		if err != nil {
			return "", err
		}
		if h.ok && h.header.of(transcriptKey{scope, h.header.Conversation}) && scope.Conversation(h.header.Conversation) == hash {
			return h.header.Conversation, nil
		}
	}
	if segments == 0 {
		return "", errNoRecord
	}
	return "", fmt.Errorf("%w: no header tells the name", history.ErrDamaged)
}
