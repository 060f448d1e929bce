package pipeline

import (
	"cmp"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"iter"
	"slices"

	"historyd/internal/history"
)

// A naming is where an attachment is named first.
type naming struct {
	order        int // among all
	message      int64
	block, inner int  // inner is -1 outside of results
	said         bool // it is named outside of results, too
	there        bool // its bytes came with a message, or as an attachment
}

func (n *naming) path() string {
	path := fmt.Sprintf("messages[%d].content[%d]", n.message, n.block)
	if n.inner >= 0 {
		path += fmt.Sprintf(".content[%d]", n.inner)
	}
	return path + ".attachment"
}

// name notes the attachments that a kept message names.
func (in *intake) name(m *history.Message, index int64) {
	note := func(b *history.Block, block, inner int) {
		if !b.Media() || b.Attachment == "" {
			return
		}
		hash, ok := history.AttachmentSum(b.Attachment)
		if !ok {
			return // its reader has told
		}
		n := in.named[hash]
		if n == nil {
			n = &naming{order: len(in.named), message: index, block: block, inner: inner}
			in.named[hash] = n
		}
		n.said, n.there = n.said || inner < 0, n.there || b.Data != nil
	}
	for i := range m.Content {
		note(&m.Content[i], i, -1)
		for j := range m.Content[i].Content {
			note(&m.Content[i].Content[j], i, j)
		}
	}
}

// attachments yields those that kept messages name and did not bring, or ends with
// what is missing. What only withheld results name goes nowhere.
func (in *intake) attachments(ctx context.Context) iter.Seq2[history.Attachment, error] {
	return func(yield func(history.Attachment, error) bool) {
		wanted := true
		err := in.bring(ctx, func(a history.Attachment) bool {
			wanted = yield(a, nil)
			return wanted
		})
		if err = cmp.Or(err, in.verdict(nil)); err != nil && wanted {
			yield(history.Attachment{}, err)
		}
	}
}

// bring takes the attachments of the document, and notes as faults which there are none of.
func (in *intake) bring(ctx context.Context, hand func(history.Attachment) bool) error {
	for a, err := range in.doc.Source.Attachments() {
		if unread := in.unread(err); unread != nil {
			return in.verdict(unread)
		}
		if err != nil {
			return fromSource("attachments", err)
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		hash, _ := history.AttachmentSum(a.Name)
		n := in.named[hash]
		if n == nil || n.there {
			continue
		}
		n.there = true
		if !n.said && in.keeper.Repeats(&a) {
			in.faults.Add(n.path(), history.CodeInvalidMessage, -1, "the attachment repeats a value that is withheld: write its bytes into the message as data, and the block is left out")
		} else if !hand(a) {
			return nil
		}
	}
	if in.missed {
		return nil // they may be in what could not be read
	}
	return in.miss()
}

// miss notes as faults the attachments of which there are no bytes.
func (in *intake) miss() error {
	var missing []*naming
	for hash, n := range in.named {
		if n.there {
			continue
		}
		held, err := in.holds(history.AttachmentScheme + hex.EncodeToString(hash[:]))
		if err != nil {
			return err
		}
		if !held {
			missing = append(missing, n)
		}
	}
	slices.SortFunc(missing, func(a, b *naming) int { return cmp.Compare(a.order, b.order) })
	for _, n := range missing {
		in.faults.Add(n.path(), history.CodeInvalidMessage, -1, "neither the document nor the conversation holds an attachment of this name")
	}
	return nil
}

// holds reports whether the record has the bytes of an attachment.
func (in *intake) holds(name string) (bool, error) {
	if in.view == nil {
		return false, nil
	}
	_, err := in.view.Attachment(name)
	switch {
	case errors.Is(err, history.ErrNotFound), errors.Is(err, history.ErrDamaged):
		return false, nil
	case err != nil:
		return false, fmt.Errorf("look for an attachment: %w", err)
	}
	return true, nil
}

// Attachment reads bytes that a message of the conversation names, verified.
// history.ErrNotFound when it holds none of that name.
func (p *Pipeline) Attachment(ctx context.Context, c Conversation, name string) (history.Attachment, error) {
	view, err := p.open(c).View(ctx)
	if err != nil {
		return history.Attachment{}, fmt.Errorf("view: %w", err)
	}
	defer view.Close()
	a, err := view.Attachment(name)
	if err != nil {
		return history.Attachment{}, fmt.Errorf("attachment: %w", err)
	}
	return a, nil
}
