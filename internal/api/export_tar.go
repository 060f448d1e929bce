package api

import (
	"archive/tar"
	"errors"
	"fmt"
	"io"
	"strings"

	"historyd/internal/history"
)

// writeTar writes an archive: the document first, then the attachments that it names,
// each of them once. The export has been scanned.
//
// The size of the document stands before it, so it is read twice, and a disk may lose
// more in between. A download is not broken off for that: both readings are of the same
// view, what the first one missed is left out by the second, and what only the second
// misses is told in damaged, with white space in its place.
func (d *exportWriter) writeTar() error {
	d.inline = false
	doc, err := d.measure()
	if err != nil {
		return err
	}
	w := tar.NewWriter(sinkWriter{d.out})
	h := tar.Header{
		Typeflag: tar.TypeReg, Name: "history.json", Size: doc.size, Mode: 0o600,
		ModTime: d.export.State.UpdatedAt, Format: tar.FormatPAX,
	}
	if err := w.WriteHeader(&h); err != nil {
		return err
	}
	d.out = writerSink{w}
	if err := d.writeMeasured(doc); err != nil {
		return err
	}
	for _, named := range d.export.Attachments() {
		a, err := d.export.Attachment(d.ctx, named.Name)
		if errors.Is(err, history.ErrNotFound) || errors.Is(err, history.ErrDamaged) {
			continue // the message that names it says so by not finding it
		}
		if err != nil {
			return err
		}
		hash, _ := history.AttachmentHash(a.Name)
		h.Name, h.Size = "attachments/"+hash+extension(named.MediaType), int64(len(a.Data))
		if err := w.WriteHeader(&h); err != nil {
			return err
		}
		if _, err := w.Write(a.Data); err != nil {
			return err
		}
	}
	return w.Close()
}

// A measured is a document that was written once to nobody.
type measured struct {
	size   int64
	head   []byte
	damage *history.Damage
	missed []stretch // seqs, ascending
}

// A stretch is the seqs from..to.
type stretch struct{ from, to int64 }

// measure finds out what there is to write, and how much.
func (d *exportWriter) measure() (*measured, error) {
	head, err := d.head()
	if err != nil {
		return nil, err
	}
	out, size, next := d.out, counter(0), int64(1)
	doc := &measured{head: head}
	miss := func(from, to int64) {
		if from <= to {
			doc.missed = append(doc.missed, stretch{from, to})
		}
	}
	d.out = &size
	some, err := d.writeMessages(head, func(seq int64) bool {
		miss(next, seq-1)
		next = max(next, seq+1)
		return true
	})
	d.out = out
	if err != nil {
		return nil, err
	}
	miss(next, d.export.State.LastSeq)
	doc.damage = d.export.Damage()
	tail, err := d.tail(some, doc.damage)
	doc.size = int64(size) + int64(len(tail)+len(ending))
	return doc, err
}

// wanted returns what writeMessages asks of each message in turn.
func (m *measured) wanted() func(seq int64) bool {
	rest := m.missed
	return func(seq int64) bool {
		for len(rest) > 0 && rest[0].to < seq {
			rest = rest[1:]
		}
		return len(rest) == 0 || seq < rest[0].from
	}
}

// writeMeasured writes a document in the size that it was found to have.
func (d *exportWriter) writeMeasured(doc *measured) error {
	out, size := d.out, counter(0)
	d.out = both{&size, out}
	some, err := d.writeMessages(doc.head, doc.wanted())
	d.out = out
	if err != nil {
		return err
	}
	room := doc.size - int64(size) - int64(len(ending))
	tail, err := d.tail(some, doc.damage)
	if err == nil && int64(len(tail)) < room { // messages are missing
		var told []byte
		if told, err = d.tail(some, d.export.Damage()); int64(len(told)) <= room {
			tail = told
		}
	}
	if err == nil && int64(len(tail)) > room {
		err = fmt.Errorf("the document has grown by %d bytes", int64(len(tail))-room)
	}
	if err != nil {
		return err
	}
	if err := out.write(tail); err != nil {
		return err
	}
	for room -= int64(len(tail)); room > 0; room -= int64(len(blank)) {
		if err := out.write([]byte(blank[:min(room, int64(len(blank)))])); err != nil {
			return err
		}
	}
	return out.write([]byte(ending))
}

// blank is white space in lines.
var blank = strings.Repeat("\n"+strings.Repeat(" ", 99), 100)

// counter is a sink that only measures.
type counter int64

func (c *counter) write(p []byte) error {
	*c += counter(len(p))
	return nil
}

// both is a sink that counts what it passes on.
type both struct {
	*counter
	sink
}

func (b both) write(p []byte) error {
	_ = b.counter.write(p)
	return b.sink.write(p)
}

// sinkWriter and writerSink put an archive's writer between a document and its sink.
type sinkWriter struct{ sink }

func (s sinkWriter) Write(p []byte) (int, error) { return len(p), s.write(p) }

type writerSink struct{ io.Writer }

func (w writerSink) write(p []byte) error {
	_, err := w.Write(p)
	return err
}

// extensions are the endings of files in an archive, for people: an import goes by the
// hash alone.
var extensions = map[string]string{
	"image/png": ".png", "image/jpeg": ".jpg", "image/gif": ".gif", "image/webp": ".webp",
	"application/pdf": ".pdf", "application/json": ".json", "text/plain": ".txt", "text/csv": ".csv",
	"text/html": ".html", "text/markdown": ".md", "audio/wav": ".wav", "audio/mpeg": ".mp3", "audio/mp3": ".mp3",
	"audio/ogg": ".ogg", "audio/flac": ".flac", "video/mp4": ".mp4",
}

func extension(mediaType string) string {
	if e, ok := extensions[mediaType]; ok {
		return e
	}
	return ".bin"
}
