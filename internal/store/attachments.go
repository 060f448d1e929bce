package store

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"strings"

	"historyd/internal/durable"
	"historyd/internal/history"
)

// Directories of a conversation: the bytes of its attachments, and what they are.
// Both are named by the SHA-256 of the bytes.
const (
	attachmentsName = "attachments"
	typesName       = "types"
)

// partSuffix ends the name of a file in staging that is nobody's yet.
const partSuffix = ".part"

// maxMediaType is how long a media type is at the most that is kept beside the bytes.
const maxMediaType = 256

// A shelf holds the attachments of one conversation's directory.
type shelf struct {
	store *Store
	key   transcriptKey
	dir   string
}

func (t *transcript) shelf() shelf { return shelf{t.store, t.key, t.dir} }

func (s shelf) bytesOf(digits string) string { return s.dir + "/" + attachmentsName + "/" + digits }
func (s shelf) typeOf(digits string) string  { return s.dir + "/" + typesName + "/" + digits }

// prepare makes the directories, durably, also when they are there: whoever made them
// may have died or failed before its own sync.
func (s shelf) prepare() error {
	err := durable.MkdirAll(s.store.fsys, s.dir+"/"+attachmentsName)
	if err == nil {
		err = s.store.fsys.Mkdir(s.dir + "/" + typesName)
	}
	if err == nil || errors.Is(err, fs.ErrExist) {
		err = s.store.fsys.SyncDir(s.dir)
	}
	if err != nil {
		return fmt.Errorf("make a directory for attachments: %w", err)
	}
	return nil
}

// sync makes durable which attachments there are.
func (s shelf) sync() error {
	for _, name := range []string{attachmentsName, typesName} {
		if err := s.store.fsys.SyncDir(s.dir + "/" + name); err != nil {
			return fmt.Errorf("sync the attachments: %w", err)
		}
	}
	return nil
}

// has reports whether there is a file of that name, whatever is in it.
func (s shelf) has(digits string) (bool, error) {
	f, err := s.store.fsys.Open(s.bytesOf(digits), false)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("open an attachment: %w", err)
	}
	return true, f.Close()
}

// A lack is what has to be written so that a shelf holds an attachment.
type lack struct {
	digits, mediaType string
	data              []byte
	there, right      bool // a file of that name is there; it holds the bytes
	untyped           bool // the type has to be written, too
	replaces          bool // what is there is none of ours and goes
}

// nothing reports whether all is there.
func (l *lack) nothing() bool { return l.right && !l.untyped }

// bytes is what the files will take.
func (l *lack) bytes() (n int64) {
	if !l.right {
		n = int64(len(l.data))
	}
	if l.untyped {
		n += int64(len(l.mediaType))
	}
	return n
}

// lacks finds out what is missing of an attachment.
func (s shelf) lacks(digits, mediaType string, data []byte) (l lack, err error) {
	l = lack{digits: digits, mediaType: mediaType, data: data}
	if l.there, l.right, err = s.look(digits); err != nil {
		return l, err
	}
	l.replaces = l.there && !l.right
	if mediaType == "" || len(mediaType) > maxMediaType {
		return l, nil
	}
	f, err := s.store.fsys.Open(s.typeOf(digits), false)
	if err == nil {
		return l, f.Close()
	}
	unsafe := errors.Is(err, durable.ErrUnsafe)
	if l.replaces = l.replaces || unsafe; unsafe || errors.Is(err, fs.ErrNotExist) {
		l.untyped = true
		return l, nil
	}
	return l, fmt.Errorf("keep the type of an attachment: %w", err)
}

// put writes what is missing. A file is synced before it has its name, so that a file of that name is
// never one whose sync failed; the name itself is durable after sync.
func (s shelf) put(l *lack) error {
	if !l.right {
		if err := s.write(s.bytesOf(l.digits), l.data); err != nil {
			return fmt.Errorf("keep an attachment: %w", err)
		}
	}
	if l.untyped {
		if err := s.write(s.typeOf(l.digits), []byte(l.mediaType)); err != nil {
			return fmt.Errorf("keep the type of an attachment: %w", err)
		}
	}
	return nil
}

// look reports whether a file of that name is there, and holds what it should.
func (s shelf) look(digits string) (there, right bool, err error) {
	f, err := s.store.fsys.Open(s.bytesOf(digits), false)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return false, false, nil
	case errors.Is(err, durable.ErrUnsafe):
		return true, false, nil
	case err != nil:
		return false, false, fmt.Errorf("open an attachment: %w", err)
	}
	defer f.Close()
	sum := sha256.New()
	if err := readAll(f, sum); err != nil {
		return false, false, fmt.Errorf("read an attachment: %w", err)
	}
	return true, digitsOf(sum) == digits, nil
}

func digitsOf(h hash.Hash) string { return hex.EncodeToString(h.Sum(nil)) }

func readAll(f durable.File, w io.Writer) error {
	size, err := f.Size()
	if err != nil {
		return err
	}
	_, err = io.Copy(w, io.NewSectionReader(f, 0, size))
	return err
}

// write puts a file in its place whole: it is written and synced elsewhere, where the
// next start removes what a crash leaves.
func (s shelf) write(name string, data []byte) error {
	part := stagingName + "/" + randomHex(16) + partSuffix
	f, err := s.store.fsys.Create(part)
	if err == nil {
		_, err = f.WriteAt(data, 0)
		if err == nil {
			err = f.Sync()
		}
		err = errors.Join(err, f.Close())
	}
	if err == nil {
		err = s.store.fsys.Replace(part, name)
	}
	if err != nil {
		if rerr := s.store.fsys.Remove(part); rerr != nil && !errors.Is(rerr, fs.ErrNotExist) {
			s.store.noteLeft(s.key, leftover{note: part})
			err = both(err, rerr)
		}
	}
	return err
}

// read returns an attachment that is what its name says. ErrDamaged when it is not.
func (s shelf) read(digits string) (history.Attachment, error) {
	f, err := s.store.fsys.Open(s.bytesOf(digits), false)
	if errors.Is(err, fs.ErrNotExist) {
		return history.Attachment{}, history.ErrNotFound
	}
	if errors.Is(err, durable.ErrUnsafe) {
		return history.Attachment{}, history.ErrDamaged
	}
	if err != nil {
		return history.Attachment{}, fmt.Errorf("open an attachment: %w", classify(err))
	}
	defer f.Close()
	size, err := f.Size()
	data := make([]byte, size)
	if err == nil {
		_, err = f.ReadAt(data, 0)
	}
	if err != nil && !errors.Is(err, io.EOF) {
		return history.Attachment{}, fmt.Errorf("read an attachment: %w", classify(err))
	}
	name := history.AttachmentName(data)
	if name != history.AttachmentScheme+digits {
		return history.Attachment{}, history.ErrDamaged
	}
	mediaType, err := s.mediaType(digits)
	if err != nil {
		return history.Attachment{}, classify(err)
	}
	return history.Attachment{Name: name, MediaType: mediaType, Data: data}, nil
}

// mediaType reads what the first who brought the bytes said that they are; empty when
// that is not known any more.
func (s shelf) mediaType(digits string) (string, error) {
	f, err := s.store.fsys.Open(s.typeOf(digits), false)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, durable.ErrUnsafe) {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("open the type of an attachment: %w", err)
	}
	defer f.Close()
	b := make([]byte, maxMediaType+1)
	n, err := f.ReadAt(b, 0)
	if err != nil && !errors.Is(err, io.EOF) {
		return "", fmt.Errorf("read the type of an attachment: %w", err)
	}
	text := string(b[:n])
	if n > maxMediaType || strings.ContainsFunc(text, func(r rune) bool { return r < ' ' || r > '~' }) {
		return "", nil
	}
	return text, nil
}

// broughtBy lists the attachments that messages bring, and those that they name.
func broughtBy(msgs []history.Message) (brought []history.Attachment, named []string) {
	have := map[string]bool{}
	for i := range msgs {
		msgs[i].MediaBlocks(func(b *history.Block) {
			if b.Data != nil && !have[b.Attachment] {
				have[b.Attachment] = true
				brought = append(brought, history.Attachment{Name: history.AttachmentName(b.Data), MediaType: b.MediaType, Data: b.Data})
			}
			if b.Attachment != "" {
				named = append(named, b.Attachment)
			}
		})
	}
	return brought, named
}

// A placing is what has to be done for the attachments of a batch.
type placing struct {
	named []string         // hashes of all that it names
	lacks []lack           // of those that it brings
	fresh map[string]int64 // sizes of those that were not there, by hash
	bytes int64            // that the files will take
}

// place finds out what has to be done for the attachments of a batch. *NoAttachment
// when neither it brings one nor the conversation holds it. t.change is held.
func (t *transcript) place(msgs []history.Message) (p placing, err error) {
	brought, names := broughtBy(msgs)
	if len(names) == 0 {
		return p, nil
	}
	if p.named, err = t.holds(brought, names); err != nil {
		return p, err
	}
	for _, a := range brought {
		digits, _ := history.AttachmentHash(a.Name)
		l, err := t.shelf().lacks(digits, a.MediaType, a.Data)
		if err != nil {
			return p, err
		}
		if p.lacks = append(p.lacks, l); !l.there {
			if p.fresh == nil {
				p.fresh = map[string]int64{}
			}
			p.fresh[digits] = int64(len(a.Data))
		}
		p.bytes += l.bytes()
	}
	return p, nil
}

// keep makes the attachments of a batch durable. t.change is held.
func (t *transcript) keep(p *placing) error {
	if len(p.named) == 0 {
		return nil
	}
	here, settled := t.shelf(), t.shelved
	t.shelved = false // until all of it has worked
	if !settled {
		if err := here.prepare(); err != nil {
			return err
		}
	}
	for i := range p.lacks {
		l := &p.lacks[i]
		t.disturbed = t.disturbed || l.replaces
		if err := here.put(l); err != nil {
			return err
		}
		settled = settled && l.nothing()
		if !l.there {
			t.stray(l.digits, int64(len(l.data)))
		}
	}
	if !settled {
		if err := here.sync(); err != nil {
			return err
		}
	}
	for i := range p.lacks {
		t.mended(p.lacks[i].digits)
	}
	t.shelved = true
	return nil
}

// holds returns the hashes of attachments by their names, if each is brought or there.
func (t *transcript) holds(brought []history.Attachment, names []string) (named []string, err error) {
	have := map[string]bool{}
	for _, a := range brought {
		have[a.Name] = true
	}
	for _, name := range names {
		digits, ok := history.AttachmentHash(name)
		if ok && !have[name] {
			if ok, err = t.shelf().has(digits); err != nil {
				return nil, err
			}
		}
		if !ok {
			return nil, &history.NoAttachment{Name: name}
		}
		named = append(named, digits)
	}
	return named, nil
}

// maxStrays is how many attachments of failed appends are remembered.
const maxStrays = 1000

// stray notes an attachment that no line counts yet. t.change is held.
func (t *transcript) stray(digits string, size int64) {
	if t.strays == nil || len(t.strays) >= maxStrays {
		t.strays = map[string]int64{}
	}
	t.strays[digits] = size
}

// Attachment implements history.View.
func (v *view) Attachment(name string) (history.Attachment, error) {
	return v.t.attachment(name, false)
}

// Named implements history.View.
func (v *view) Named(name string) (history.Attachment, error) { return v.t.attachment(name, true) }

// attachment reads an attachment as long as the conversation is there: its end waits
// for the reading, so that nothing of it is open afterwards. That one which a message
// names is not there is damage.
func (t *transcript) attachment(name string, named bool) (history.Attachment, error) {
	digits, ok := history.AttachmentHash(name)
	if !ok {
		return history.Attachment{}, history.ErrNotFound
	}
	t.files.whole.RLock()
	defer t.files.whole.RUnlock()
	if t.files.ended() {
		return history.Attachment{}, history.ErrGone
	}
	a, err := t.shelf().read(digits)
	switch {
	case err == nil:
		t.mended(digits)
	case errors.Is(err, history.ErrDamaged), named && errors.Is(err, history.ErrNotFound):
		t.tellAttachment(digits)
	}
	return a, err
}

// mended forgets that an attachment was lost: its bytes were brought again, or put back.
func (t *transcript) mended(digits string) {
	t.damageMu.Lock()
	defer t.damageMu.Unlock()
	delete(t.toldAttachments, digits)
}

// tellAttachment counts and tells an attachment once that is not what its name says, or that is not there.
func (t *transcript) tellAttachment(digits string) {
	t.damageMu.Lock()
	defer t.damageMu.Unlock()
	if t.toldAttachments[digits] || len(t.toldAttachments) >= maxTold {
		return
	}
	if t.toldAttachments == nil {
		t.toldAttachments = map[string]bool{}
	}
	t.toldAttachments[digits] = true
	t.store.metrics.damage.Inc()
	t.store.log.Error("damage in an attachment", "scope", t.key.scope, "conversation", shortName(t.dir), "attachment", digits[:12])
}
