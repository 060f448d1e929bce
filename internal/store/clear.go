package store

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
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
		if errors.Is(err, history.ErrClosed) || ctx.Err() != nil {
			return errors.Join(err, ctx.Err())
		}
		if err != nil {
			// What cannot be loaded can still be cleared.
			t = newTranscript(s, l.key, s.dirOf(l.key))
			return s.clear(t)
		}
		t.change.Lock()
		if t.ended() {
			t.change.Unlock()
			s.release(t)
			continue
		}
		err = s.clear(t)
		t.change.Unlock()
		s.release(t)
		return err
	}
}

// clear ends the transcript and removes its directory. t.change is held.
func (s *Store) clear(t *transcript) error {
	s.discardTranscript(t)
	if err := s.removeConversation(t.dir); err != nil {
		err = classify(err)
		s.outcome(t.key, err, false)
		return err
	}
	s.catalogues.remove(t.key)
	s.metrics.clears.Inc()
	s.outcome(t.key, nil, false)
	return nil
}

// removeConversation moves a directory to the trash, makes that durable, and
// removes it. Without both syncs a power cut could bring it back.
func (s *Store) removeConversation(dir string) error {
	grave := trashName + "/" + randomHex(16)
	err := s.fsys.Rename(dir, grave)
	if errors.Is(err, fs.ErrNotExist) {
		return s.confirmAbsent(dir)
	}
	if err != nil {
		return fmt.Errorf("move to the trash: %w", err)
	}
	s.mu.Lock()
	s.untidy = true
	s.mu.Unlock()
	if err := s.fsys.SyncDir(path.Dir(dir)); err != nil {
		return fmt.Errorf("sync after moving to the trash: %w", err)
	}
	if err := s.fsys.SyncDir(trashName); err != nil {
		return fmt.Errorf("sync the trash: %w", err)
	}
	if err := durable.RemoveAll(s.fsys, grave); err != nil {
		return fmt.Errorf("empty the trash: %w", err)
	}
	if err := s.fsys.SyncDir(trashName); err != nil {
		return fmt.Errorf("sync the trash: %w", err)
	}
	return nil
}

// confirmAbsent makes the absence of a conversation durable: an earlier clear of it
// may have failed half-way.
func (s *Store) confirmAbsent(dir string) error {
	s.mu.Lock()
	untidy := s.untidy
	s.mu.Unlock()
	if !untidy {
		return nil
	}
	if err := s.fsys.SyncDir(path.Dir(dir)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("sync the caller's directory: %w", err)
	}
	return s.emptyTrash()
}

func (s *Store) emptyTrash() error {
	entries, err := s.fsys.ReadDir(trashName)
	if err != nil {
		return fmt.Errorf("list the trash: %w", err)
	}
	for _, e := range entries {
		if err := durable.RemoveAll(s.fsys, trashName+"/"+e.Name); err != nil {
			return fmt.Errorf("empty the trash: %w", err)
		}
	}
	if len(entries) == 0 {
		return nil
	}
	if err := s.fsys.SyncDir(trashName); err != nil {
		return fmt.Errorf("sync the trash: %w", err)
	}
	return nil
}

// emptyStaging removes what imports left that did not end: each has a note that
// names the directory it was building in.
func (s *Store) emptyStaging() error {
	entries, err := s.fsys.ReadDir(stagingName)
	if err != nil {
		return fmt.Errorf("list staging: %w", err)
	}
	for _, e := range entries {
		if err := s.endStaging(stagingName + "/" + e.Name); err != nil {
			return err
		}
	}
	return nil
}

func (s *Store) endStaging(note string) error {
	f, err := s.fsys.Open(note, false)
	if err != nil {
		return fmt.Errorf("open a note of staging: %w", err)
	}
	b := make([]byte, 512)
	n, err := f.ReadAt(b, 0)
	_ = f.Close()
	if err != nil && !errors.Is(err, io.EOF) {
		return fmt.Errorf("read a note of staging: %w", err)
	}
	if dir := string(b[:n]); strings.HasPrefix(dir, transcriptsName+"/") && strings.HasPrefix(path.Base(dir), stagingPrefix) {
		if err := s.dropStaging(dir); err != nil {
			return err
		}
	}
	if err := s.fsys.Remove(note); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove a note of staging: %w", err)
	}
	return nil
}

func (s *Store) dropStaging(dir string) error {
	if err := durable.RemoveAll(s.fsys, dir); err != nil {
		return fmt.Errorf("remove what an import left: %w", err)
	}
	if err := s.fsys.SyncDir(path.Dir(dir)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("sync after an import: %w", err)
	}
	return nil
}

// ClearAll clears every conversation of one caller.
func (s *Store) ClearAll(ctx context.Context, scope identity.Scope) error {
	dir := transcriptsName + "/" + scope.Dir()
	entries, err := s.fsys.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return classify(err)
	}
	for _, e := range entries {
		if strings.HasPrefix(e.Name, stagingPrefix) {
			continue
		}
		name, err := s.nameOf(scope, e.Name)
		if err != nil && !errors.Is(err, history.ErrDamaged) {
			return classify(err)
		}
		if err == nil {
			err = s.Log(scope, name).Clear(ctx)
		} else {
			err = classify(s.removeConversation(dir + "/" + e.Name))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// Log returns the conversation of that name, whether it exists or not.
func (s *Store) Log(scope identity.Scope, conversation string) history.Log {
	return &log{s, transcriptKey{scope, conversation}}
}

// nameOf reads a conversation's name from the header of one of its segments.
func (s *Store) nameOf(scope identity.Scope, hash string) (string, error) {
	files := &segments{fsys: s.fsys, dir: transcriptsName + "/" + scope.Dir() + "/" + hash}
	defer files.end()
	entries, err := s.fsys.ReadDir(files.dir)
	if err != nil {
		return "", err
	}
	for i := len(entries) - 1; i >= 0; i-- {
		n, ok := segmentNumber(entries[i].Name)
		if !ok {
			continue
		}
		h, err := files.headerOf(n)
		if err != nil {
			return "", err
		}
		if h.ok && h.header.of(transcriptKey{scope, h.header.Conversation}) && scope.Conversation(h.header.Conversation) == hash {
			return h.header.Conversation, nil
		}
	}
	return "", fmt.Errorf("%w: no header tells the name", history.ErrDamaged)
}
