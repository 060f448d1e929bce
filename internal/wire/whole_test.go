package wire

import (
	"bytes"
	"errors"
	"time"

	"historyd/internal/history"
)

// What tests want whole, and the product takes message by message.

// A Document is a conversation to import.
type Document struct {
	CreatedAt  time.Time // zero when the document does not say
	Messages   []history.Message
	Categories map[string]string // of its tools, as in Append; nil when the document does not say
}

// Purpose says for whom messages are written.
type Purpose int

// The purposes.
const (
	ForModel  Purpose = iota // only what the provider takes in a request
	ForExport                // everything that came in comes back
)

// AppendMessages appends the messages as the elements of an array, separated by
// commas and without the brackets; in JSONL each ends with a line feed instead.
func AppendMessages(dst []byte, f Format, msgs []history.Message, p Purpose) []byte {
	switch f {
	case Native:
		for i := range msgs {
			if i > 0 {
				dst = append(dst, ',')
			}
			dst = history.AppendMessage(dst, &msgs[i])
		}
		return dst
	case JSONL:
		for i := range msgs {
			dst = append(history.AppendMessage(dst, &msgs[i]), '\n')
		}
		return dst
	}
	if p == ForModel {
		return append(dst, Render(f, Show{Messages: msgs}).Messages...)
	}
	e := NewExporter(f)
	for i := range msgs {
		dst = e.Append(dst, &msgs[i])
	}
	return e.End(dst)
}

// DecodeDocument reads a conversation to import as a Reader does. Beside *history.Faults
// it returns what it made out, each message in its place, so that whoever looks at the
// whole can add what else is wrong; it is good for nothing else.
func DecodeDocument(f Format, ndjson bool, body []byte, maxMessage int64) (Document, error) {
	r, err := NewReader(f, ndjson, bytes.NewReader(body), maxMessage)
	if err != nil {
		return Document{}, err
	}
	doc := Document{Messages: []history.Message{}}
	for m, err := range r.Messages() {
		var unread *Unreadable
		if errors.As(err, &unread) && !unread.Alone {
			break
		}
		if err != nil {
			return Document{}, err
		}
		m.Seq = 0
		doc.Messages = append(doc.Messages, m)
	}
	doc.CreatedAt, doc.Categories = r.CreatedAt(), r.Categories()
	return doc, r.Faults().Err()
}
