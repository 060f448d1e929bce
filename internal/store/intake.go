package store

import (
	"context"
	"crypto/sha256"
	"encoding/json/jsontext"
	"fmt"
	"path"
	"strings"
	"time"

	"historyd/internal/durable"
	"historyd/internal/history"
)

// An intake is an import whose messages are taken while others have the conversation:
// the messages go to a spool, the bytes of attachments to the directory in which the
// new record will be built. It belongs to one goroutine.
type intake struct {
	history.Import
	store *Store
	key   transcriptKey
	spool *spool
	dir   string // where the record is built
	note  string // names dir for a start after a crash
	made  bool   // dir may be there
	begun bool   // a build has used dir

	brought map[string]int64             // sizes of the attachments in dir, by hash
	bytes   int64                        // of them
	old     weight                       // of what is there, as last seen
	named   map[[sha256.Size]byte]string // types of those that a message names without bringing them
	types   map[string]string            // those in named, each once

	created     time.Time
	fingerprint [32]byte
	remember    jsontext.Value
}

func (l *log) newIntake(imp history.Import) *intake {
	in := &intake{Import: imp, store: l.store, key: l.key, spool: newSpool(l.store.fsys, l.store.spoolMemory), note: stagingName + "/" + randomHex(16),
		brought: map[string]int64{}, named: map[[sha256.Size]byte]string{}, types: map[string]string{}}
	in.spool.room = l.store.withRoom
	in.dir = path.Dir(l.store.dirOf(l.key)) + "/" + stagingPrefix + path.Base(in.note)
	return in
}

func (in *intake) shelf() shelf { return shelf{in.store, in.key, in.dir} }

// take takes all that the import brings.
func (in *intake) take(ctx context.Context) error {
	for m, err := range in.Messages {
		if err == nil {
			err = ctx.Err()
		}
		if err == nil {
			err = in.message(&m)
		}
		if err != nil {
			return err
		}
	}
	if in.Attachments != nil {
		for a, err := range in.Attachments {
			if err == nil {
				err = ctx.Err()
			}
			if err == nil {
				err = in.attachment(a)
			}
			if err != nil {
				return err
			}
		}
	}
	if in.CreatedAt != nil {
		in.created = in.CreatedAt()
	}
	if in.Key != "" && in.Fingerprint != nil {
		in.fingerprint = in.Fingerprint()
	}
	if in.Remember != nil {
		in.remember = in.Remember()
	}
	return nil
}

func (in *intake) message(m *history.Message) error {
	var err error
	m.MediaBlocks(func(b *history.Block) {
		switch {
		case err != nil || b.Attachment == "":
		case b.Data != nil:
			err = in.bring(b.MediaType, b.Data)
		case in.Attachments != nil:
			in.name(b)
		}
	})
	if err != nil {
		return err
	}
	bare := m.StripData()
	err = in.onDisk(func() error { return in.spool.add(&bare) })
	if err == nil {
		err = in.fits()
	}
	return err
}

// maxTypes is how many types are held of attachments that come behind the messages.
const maxTypes = 1000

// name notes an attachment whose bytes may come behind the messages.
func (in *intake) name(b *history.Block) {
	sum, ok := history.AttachmentSum(b.Attachment)
	if _, known := in.named[sum]; known || !ok {
		return
	}
	mediaType, known := in.types[b.MediaType]
	if !known && len(b.MediaType) <= maxMediaType && len(in.types) < maxTypes {
		mediaType = strings.Clone(b.MediaType)
		in.types[mediaType] = mediaType
	}
	in.named[sum] = mediaType
}

func (in *intake) attachment(a history.Attachment) error {
	mediaType, named := in.named[sha256.Sum256(a.Data)]
	if !named {
		return nil
	}
	if a.MediaType != "" {
		mediaType = a.MediaType
	}
	return in.bring(mediaType, a.Data)
}

// bring keeps the bytes of an attachment where the record is built.
func (in *intake) bring(mediaType string, data []byte) error {
	digits, _ := history.AttachmentHash(history.AttachmentName(data))
	if _, there := in.brought[digits]; there {
		return nil
	}
	in.bytes += int64(len(data))
	if err := in.fits(); err != nil {
		return err
	}
	return in.onDisk(func() error {
		if err := in.prepare(); err != nil {
			return err
		}
		if len(in.brought) == 0 {
			if err := in.shelf().prepare(); err != nil {
				return err
			}
		}
		l, err := in.shelf().lacks(digits, mediaType, data)
		if err == nil {
			err = in.store.withRoom(l.bytes(), func() error { return in.shelf().put(&l) })
		}
		if err != nil {
			return err
		}
		in.brought[digits] = int64(len(data))
		return nil
	})
}

// fits refuses an import as soon as what has been taken of it is too much for its
// caller's quota. What extends a record may be there already: how much of that is new is
// known at the end only.
func (in *intake) fits() error {
	if in.foresee(false) == nil {
		return nil
	}
	if now, err := in.store.weigh(in.store.dirOf(in.key)); err == nil {
		in.old = now
	}
	return in.foresee(true)
}

func (in *intake) foresee(tell bool) error {
	change := weight{conversations: 1 - in.old.conversations}
	if in.Mode != history.Extend {
		change.bytes = in.spool.text + in.bytes - in.old.bytes
	}
	return in.store.ledger.foresee(in.key.scope, change, tell)
}

// prepare makes the directory in which the record is built, once its note is written.
func (in *intake) prepare() error {
	if in.made {
		return nil
	}
	in.made = true
	s, fsys := in.store, in.store.fsys
	defer s.stalls.end(s.stalls.begin(s.now(), preparing), s.now)
	if err := durable.WriteFile(fsys, in.note, []byte(in.dir)); err != nil {
		return fmt.Errorf("note an import: %w", err)
	}
	if err := durable.MkdirAll(fsys, in.dir); err != nil {
		return fmt.Errorf("make a directory for an import: %w", err)
	}
	return nil
}

// onDisk does something on disk while no transcript is held.
func (in *intake) onDisk(fn func() error) error {
	err := classify(in.store.whileOpen(fn))
	in.store.refused(err)
	return err
}

// giveUp is drop when no transcript is held.
func (in *intake) giveUp() {
	err := in.store.whileOpen(func() error {
		in.drop()
		return nil
	})
	if err != nil {
		in.spool.close() // what is left is for the next start
	}
}

// drop removes what the import has in staging, and the directory that is not wanted
// any more. What it leaves, a clear or the next start removes.
func (in *intake) drop() {
	s := in.store
	leave := func(l leftover, err error) {
		s.noteLeft(in.key, l)
		s.log.Warn("an import left files, the next start removes them", "error", err)
	}
	if err := in.spool.drop(); err != nil {
		leave(leftover{note: in.spool.name}, err)
	}
	if l := (leftover{in.dir, in.note}); in.made {
		in.made = false
		if err := s.drop(l); err != nil {
			leave(l, err)
		}
	}
}
