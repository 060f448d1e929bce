package store

import (
	"context"
	"encoding/json/jsontext"
	"errors"
	"fmt"
	"io/fs"
	"time"

	"historyd/internal/history"
)

// gathered is an import whose messages have been taken.
type gathered struct {
	history.Import
	messages    []history.Message
	attachments map[string]history.Attachment
	created     time.Time
	fingerprint [32]byte
	remember    jsontext.Value
}

// gather takes the messages and attachments of an import, while others have the
// conversation.
func gather(ctx context.Context, imp history.Import) (*gathered, error) {
	g := &gathered{Import: imp, attachments: map[string]history.Attachment{}}
	for m, err := range imp.Messages {
		if err == nil {
			err = ctx.Err()
		}
		if err != nil {
			return nil, err
		}
		g.messages = append(g.messages, m)
	}
	if imp.Attachments != nil {
		for a, err := range imp.Attachments {
			if err == nil {
				err = ctx.Err()
			}
			if err != nil {
				return nil, err
			}
			g.attachments[a.Name] = a
		}
	}
	if imp.CreatedAt != nil {
		g.created = imp.CreatedAt()
	}
	if imp.Key != "" && imp.Fingerprint != nil {
		g.fingerprint = imp.Fingerprint()
	}
	if imp.Remember != nil {
		g.remember = imp.Remember()
	}
	return g, nil
}

func (b *build) shelf() shelf { return shelf{b.t.store.fsys, b.dir} }

// linkAll gives the files of a directory of attachments a second name in the new record.
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
	}
	return nil
}

func (b *build) prepareShelf() error {
	if b.shelved {
		return nil
	}
	b.shelved = true
	return b.shelf().prepare()
}

// keep keeps the attachments of a message that is added.
func (b *build) keep(m *history.Message) error {
	brought, named := broughtBy([]history.Message{*m})
	if len(named) == 0 {
		return nil
	}
	if err := b.prepareShelf(); err != nil {
		b.failed = true
		return err
	}
	for _, name := range named {
		if a, ok := b.imp.attachments[name]; ok {
			brought = append(brought, a)
		}
	}
	for _, a := range brought {
		digits, _ := history.AttachmentHash(a.Name)
		fresh, err := b.shelf().put(digits, a.MediaType, a.Data)
		if err != nil {
			b.failed = true
			return err
		}
		if fresh {
			b.fresh += int64(len(a.Data))
		}
	}
	for _, name := range named {
		digits, ok := history.AttachmentHash(name)
		if ok {
			var err error
			if ok, err = b.shelf().has(digits); err != nil {
				b.failed = true
				return fmt.Errorf("look for an attachment: %w", err)
			}
		}
		if !ok {
			return history.ErrNoAttachment
		}
	}
	return nil
}
