package store

import "historyd/internal/durable"

// Disposable is the data directory for what can be made again, such as an index: it fills
// no more of the file system than an append may.
func (s *Store) Disposable() durable.FS { return disposable{s.fsys, s} }

type disposable struct {
	durable.FS
	store *Store
}

func (d disposable) Create(name string) (durable.File, error) {
	f, err := d.FS.Create(name)
	if err != nil {
		return nil, err
	}
	return disposableFile{f, d.store}, nil
}

type disposableFile struct {
	durable.File
	store *Store
}

func (f disposableFile) WriteAt(p []byte, off int64) (n int, err error) {
	err = f.store.withRoom(int64(len(p)), func() error {
		n, err = f.File.WriteAt(p, off)
		return err
	})
	return n, err
}
