package store

import (
	"errors"
	"fmt"
	"io/fs"

	"historyd/internal/durable"
)

// Probe makes a few bytes durable in the data directory and removes them again, as an
// append would: nil when that worked. It waits for as long as the disk does, and
// changes nothing of what Ready says.
func (s *Store) Probe() error {
	return s.whileOpen(func() error {
		const name = stagingName + "/probe" + partSuffix
		f, err := s.fsys.Create(name)
		if errors.Is(err, fs.ErrExist) { // left by one that failed, or whose process died
			if err := s.fsys.Remove(name); err != nil {
				return fmt.Errorf("remove a probe: %w", classify(err))
			}
			f, err = s.fsys.Create(name)
		}
		if err != nil {
			return fmt.Errorf("make a probe: %w", classify(err))
		}
		err = errors.Join(fill(f), f.Close())
		err = errors.Join(err, s.fsys.Remove(name))
		if err != nil {
			return fmt.Errorf("write a probe: %w", classify(err))
		}
		return nil
	})
}

func fill(f durable.File) error {
	if _, err := f.WriteAt([]byte("probe\n"), 0); err != nil {
		return err
	}
	return f.Sync()
}
