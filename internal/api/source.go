package api

import (
	"iter"
	"time"

	"historyd/internal/history"
	"historyd/internal/wire"
)

// decoded is a document that has been read whole, as a pipeline.Source.
type decoded struct {
	doc    wire.Document
	faults *history.Faults
}

func (d *decoded) Messages() iter.Seq2[history.Message, error] {
	return func(yield func(history.Message, error) bool) {
		for i, m := range d.doc.Messages {
			m.Seq = int64(i)
			if !yield(m, nil) {
				return
			}
		}
	}
}

func (d *decoded) Attachments() iter.Seq2[history.Attachment, error] {
	return func(func(history.Attachment, error) bool) {}
}

func (d *decoded) Faults() *history.Faults       { return d.faults }
func (d *decoded) Categories() map[string]string { return d.doc.Categories }
func (d *decoded) CreatedAt() time.Time          { return d.doc.CreatedAt }
