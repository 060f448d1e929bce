package store

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"strings"

	"historyd/internal/durable"
)

// emptyStaging removes what imports left that did not end: each has a note that
// names the directory it was building in.
func (s *Store) emptyStaging() error {
	entries, err := s.fsys.ReadDir(stagingName)
	if err != nil {
		return fmt.Errorf("list staging: %w", err)
	}
	parts := false
	for _, e := range entries {
		if strings.HasSuffix(e.Name, partSuffix) {
			parts = true
			if err := s.fsys.Remove(stagingName + "/" + e.Name); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return fmt.Errorf("empty staging: %w", err)
			}
			continue
		}
		if err := s.endStaging(stagingName + "/" + e.Name); err != nil {
			return err
		}
	}
	if !parts {
		return nil
	}
	return s.settleStaging()
}

// settleStaging makes durable which names are no more in staging: what was said has
// been in files there.
func (s *Store) settleStaging() error {
	if err := s.fsys.SyncDir(stagingName); err != nil {
		return fmt.Errorf("sync staging: %w", err)
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
	// A note that was cut by a crash names nothing: the directory is made after it is durable.
	dir := string(b[:n])
	if fs.ValidPath(dir) && strings.IndexByte(dir, 0) < 0 && strings.HasPrefix(dir, transcriptsName+"/") && strings.HasPrefix(path.Base(dir), stagingPrefix) {
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

// leftover is a directory that could not be removed, and the note of it; or only a
// file in staging.
type leftover struct{ dir, note string }

func (s *Store) drop(l leftover) error {
	if l.dir != "" {
		if err := s.dropStaging(l.dir); err != nil {
			return err
		}
	}
	if err := s.fsys.Remove(l.note); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove a note of staging: %w", err)
	}
	return nil
}

func (s *Store) noteLeft(key transcriptKey, l leftover) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.left[key] = append(s.left[key], l)
}

// dropLeft removes what imports to a conversation have left.
func (s *Store) dropLeft(key transcriptKey) error {
	s.mu.Lock()
	left := s.left[key]
	delete(s.left, key)
	s.mu.Unlock()
	for i, l := range left {
		if err := s.drop(l); err != nil {
			s.mu.Lock()
			s.left[key] = append(s.left[key], left[i:]...)
			s.mu.Unlock()
			return err
		}
	}
	return nil
}
