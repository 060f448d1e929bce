package store

import (
	"errors"
	"fmt"
	"io/fs"

	"historyd/internal/history"
)

// linkAll gives the files of a directory of attachments a second name in the new
// record. Bytes that the import brings itself are those that stay.
func (b *build) linkAll(name string) error {
	if name != attachmentsName && name != typesName {
		return nil
	}
	if err := b.prepareShelf(); err != nil {
		return err
	}
	fsys := b.t.store.fsys
	entries, err := fsys.ReadDir(b.t.dir + "/" + name)
	if err != nil {
		return err
	}
	for _, e := range entries {
		err := fsys.Link(b.t.dir+"/"+name+"/"+e.Name, b.dir+"/"+name+"/"+e.Name)
		if err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
		if name == attachmentsName {
			b.in.brought[e.Name] = 0 // the old record counts them
		}
	}
	return nil
}

func (b *build) prepareShelf() error {
	if b.shelved {
		return nil
	}
	b.shelved = true
	return b.in.shelf().prepare()
}

// countBrought counts the bytes that are new to the record.
func (b *build) countBrought() {
	for _, size := range b.in.brought {
		b.fresh += size
	}
}

// attached makes sure that the new record holds what a message names. One that takes
// the place of another record may name what that one holds.
func (b *build) attached(m *history.Message) error {
	var err error
	m.MediaBlocks(func(block *history.Block) {
		if err == nil && block.Attachment != "" {
			err = b.adopt(block.Attachment)
		}
	})
	return err
}

func (b *build) adopt(name string) error {
	digits, ok := history.AttachmentHash(name)
	if !ok {
		return &history.NoAttachment{Name: name}
	}
	if _, there := b.in.brought[digits]; there {
		return nil
	}
	old, fsys := b.t.shelf(), b.t.store.fsys
	size, err := old.size(digits)
	if errors.Is(err, fs.ErrNotExist) || !b.old.exists {
		return &history.NoAttachment{Name: name}
	}
	if err == nil {
		err = b.prepareShelf()
	}
	if err == nil {
		err = fsys.Link(old.bytesOf(digits), b.in.shelf().bytesOf(digits))
	}
	if err == nil {
		err = fsys.Link(old.typeOf(digits), b.in.shelf().typeOf(digits))
		if errors.Is(err, fs.ErrNotExist) {
			err = nil
		}
	}
	if err != nil {
		b.failed = true
		return fmt.Errorf("link an old attachment: %w", err)
	}
	b.in.brought[digits] = 0
	b.fresh += size
	return nil
}

// size is how many bytes the file of that name has.
func (s shelf) size(digits string) (int64, error) {
	f, err := s.store.fsys.Open(s.bytesOf(digits), false)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	return f.Size()
}
