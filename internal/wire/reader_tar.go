package wire

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"strings"

	"historyd/internal/history"
	"historyd/internal/strictjson"
)

// An archive holds a native document, which names the attachments that follow it:
//
//	history.json
//	attachments/<64 hex digits>[.ext]
//	…
//
// Regular files, each attachment once, and nothing else.
const (
	tarDocument   = "history.json"
	tarFolder     = "attachments/"
	maxAttachment = 100_000 // attachments of one archive
)

// An archive is a tar under way.
type archive struct {
	whole *source
	tar   *tar.Reader
	tail  tail
	met   map[[sha256.Size]byte]struct{} // attachments so far
}

// ArchiveError tells that a tar cannot be read as one from some byte on.
type ArchiveError struct {
	Offset int64
	Reason string // and what to do
}

func (e *ArchiveError) Error() string { return fmt.Sprintf("%s (byte %d)", e.Reason, e.Offset) }

// tail counts the zeros at the end of what was read through it.
type tail struct {
	r     io.Reader
	zeros int64
}

func (t *tail) Read(p []byte) (int, error) {
	n, err := t.r.Read(p)
	if said := bytes.TrimRight(p[:n], "\x00"); len(said) > 0 {
		t.zeros = int64(n - len(said))
	} else {
		t.zeros += int64(n)
	}
	return n, err
}

// openTar goes to the document of an archive, and makes it what the reader reads.
func (d *Reader) openTar() error {
	a := &archive{whole: d.src, met: map[[sha256.Size]byte]struct{}{}}
	a.tail.r = d.src
	a.tar = tar.NewReader(&a.tail)
	d.src.lookAhead(2)
	if bytes.HasPrefix(d.src.ahead, []byte{0x1f, 0x8b}) {
		d.archiveFault(a, "", "the archive is compressed: send it as it is before gzip")
		d.ended = true
		return nil
	}
	h, err := a.tar.Next()
	if err != nil {
		if err == io.EOF {
			err = io.ErrUnexpectedEOF
		}
		return a.failure(err)
	}
	if h.Name != tarDocument || !ordinary(h) {
		d.archiveFault(a, "", "the first entry of the archive is the file %s", tarDocument)
		d.ended = true
		return nil
	}
	d.tar, d.src = a, &source{r: a.tar}
	return nil
}

// ordinary reports whether an entry is a plain file, and of one meaning to every reader.
func ordinary(h *tar.Header) bool {
	for key := range h.PAXRecords {
		if strings.HasPrefix(key, "GNU.") || key == "linkpath" {
			return false
		}
	}
	return h.Typeflag == tar.TypeReg && h.Linkname == "" && h.Size >= 0
}

func (d *Reader) archiveFault(a *archive, path, detail string, args ...any) {
	d.fault(strictjson.Value{Offset: a.whole.given}, path, detail, args...)
}

// failure turns what the archive's reader says into an error of ours.
func (a *archive) failure(err error) error {
	switch {
	case a.whole.err != nil:
		return a.whole.err
	case errors.Is(err, io.ErrUnexpectedEOF):
		return &ArchiveError{a.whole.given, "the archive ends too early: send all of it"}
	}
	return &ArchiveError{a.whole.given, "this is no tar archive, or a damaged one: send what an export with format=tar gives, as it is"}
}

// readAttachments reads what stands behind the document in an archive, to its end.
func (d *Reader) readAttachments(yield func(history.Attachment, error) bool) error {
	a := d.tar
	for i := 0; ; i++ {
		h, err := a.tar.Next()
		if err == io.EOF {
			return d.endTar()
		}
		if err != nil {
			return a.failure(err)
		}
		if h.Typeflag == tar.TypeDir && h.Name == tarFolder && i == 0 {
			i-- // programs that make archives of folders put the folder itself in
			continue
		}
		path := fmt.Sprintf("attachments[%d]", i)
		hash, ok := d.attachmentEntry(h, path)
		if !ok {
			continue
		}
		if d.maxMessage > 0 && h.Size > d.maxMessage {
			d.spoil(path, &TooLarge{path, d.maxMessage, h.Size})
			continue
		}
		var data bytes.Buffer
		if _, err := io.Copy(&data, a.tar); err != nil {
			return a.failure(err)
		}
		if sha256.Sum256(data.Bytes()) != hash {
			d.archiveFault(a, path, "is not what its name says: the name is the SHA-256 of the content")
			continue
		}
		found := history.Attachment{Name: history.AttachmentName(data.Bytes()), Data: data.Bytes()}
		if !yield(found, nil) {
			return errStopped
		}
	}
}

// attachmentEntry reads the name of an entry, and is false after a fault.
func (d *Reader) attachmentEntry(h *tar.Header, path string) (hash [sha256.Size]byte, ok bool) {
	a := d.tar
	name, inFolder := strings.CutPrefix(h.Name, tarFolder)
	digits, ext, dotted := strings.Cut(name, ".")
	if hash, ok = history.AttachmentSum(history.AttachmentScheme + digits); !inFolder || !ok || dotted && !plainExtension(ext) || !ordinary(h) {
		d.archiveFault(a, path, "after %s an archive holds nothing but files %s and 64 lower-case hex digits, which may have an extension", tarDocument, tarFolder)
		return hash, false
	}
	if _, twice := a.met[hash]; twice {
		d.archiveFault(a, path, "is in the archive twice")
		return hash, false
	}
	if len(a.met) >= maxAttachment {
		d.archiveFault(a, path, "an archive holds %d attachments at the most", maxAttachment)
		return hash, false
	}
	if h.Size == 0 {
		d.archiveFault(a, path, "an attachment has a byte at the least")
		return hash, false
	}
	a.met[hash] = struct{}{}
	return hash, true
}

func plainExtension(s string) bool {
	return s != "" && len(s) <= 16 && strings.Trim(s, "abcdefghijklmnopqrstuvwxyz0123456789") == ""
}

// endTar refuses an archive that was cut, or that something follows.
func (d *Reader) endTar() error {
	a := d.tar
	buf := make([]byte, 32<<10)
	for {
		at := a.whole.given
		n, err := a.tail.Read(buf)
		if said := leading(buf[:n], "\x00"); said < n {
			return &ArchiveError{at + int64(said), "data after the end of the archive: send one archive alone"}
		}
		if n == 0 && err != nil {
			break
		}
	}
	switch {
	case a.whole.err != nil:
		return a.whole.err
	case a.tail.zeros < 1024:
		return a.failure(io.ErrUnexpectedEOF)
	}
	return nil
}
