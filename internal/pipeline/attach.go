package pipeline

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"

	"historyd/internal/history"
	"historyd/internal/projection"
)

// maxNamed is how many attachments a document may name without their bytes, and be told
// which of them are missing.
const maxNamed = 100_000

// A naming is where an attachment is named first, of which there are no bytes so far.
type naming struct {
	block, inner int32 // inner is -1 outside of results
	said         bool  // it is named outside of results, too
	idle         bool  // none but messages that will be skipped name it
	message      int64
	kind         string // the media type that is said first
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
	idle := in.have != nil && m.ID != ""
	if idle {
		_, idle = in.have[markOf([]byte(m.ID))]
	}
	for i := range m.Content {
		in.nameBlock(&m.Content[i], naming{idle: idle, message: index, block: int32(i), inner: -1})
		for j := range m.Content[i].Content {
			in.nameBlock(&m.Content[i].Content[j], naming{idle: idle, message: index, block: int32(i), inner: int32(j)})
		}
	}
}

// nameBlock notes the attachment that a block names at that place.
func (in *intake) nameBlock(b *history.Block, at naming) {
	hash, ok := history.AttachmentSum(b.Attachment)
	if !b.Media() || !ok {
		return // a name that is none its reader has told
	}
	if _, there := in.there[mark(hash[:])]; there {
		return
	}
	if b.Data != nil {
		in.brought(hash)
		return
	}
	n, again := in.named[hash]
	if !again {
		if in.namings == maxNamed {
			in.faults.Add("messages", history.CodeInvalidMessage, -1, "the document names over %d attachments whose bytes do not come with the messages: split it", maxNamed)
		}
		if in.namings++; in.namings > maxNamed {
			return
		}
		n = at
	} else if n.idle && !at.idle {
		n.idle, n.message, n.block, n.inner = false, at.message, at.block, at.inner
	}
	n.said = n.said || at.inner < 0
	if n.kind == "" {
		n.kind = in.kinds.of(b.MediaType)
	}
	in.named[hash] = n
}

// brought notes that the bytes of an attachment are there.
func (in *intake) brought(hash [sha256.Size]byte) {
	in.there[mark(hash[:])] = struct{}{}
	delete(in.named, hash)
}

// kinds are media types, each held once however many attachments are of it. One that is
// longer than any that is in use, or one too many, is not held at all.
type kinds map[string]string

const (
	maxKind  = 256
	maxKinds = 1000
)

func (k kinds) of(mediaType string) string {
	kind, known := k[mediaType]
	if !known && len(mediaType) <= maxKind && len(k) < maxKinds {
		kind = strings.Clone(mediaType)
		k[kind] = kind
	}
	return kind
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
		n, wanted := in.named[hash]
		if !wanted {
			continue
		}
		in.brought(hash)
		a.MediaType = cmp.Or(a.MediaType, n.kind)
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

// miss notes the attachments of which there are no bytes.
func (in *intake) miss() error {
	var missing []naming
	for hash, n := range in.named {
		if n.idle {
			continue
		}
		held, err := in.holds(history.AttachmentScheme + hex.EncodeToString(hash[:]))
		if err != nil {
			return err
		}
		if !held {
			missing = append(missing, n)
			in.lost[hash] = struct{}{}
		}
	}
	slices.SortFunc(missing, func(a, b naming) int {
		return cmp.Or(cmp.Compare(a.message, b.message), cmp.Compare(a.block, b.block), cmp.Compare(a.inner, b.inner))
	})
	detail := "neither the document nor the conversation holds an attachment of this name: with repair=true a text says so in its place"
	if in.doc.Repair {
		detail = "neither the document nor the conversation holds an attachment of this name: a text says so in its place"
	}
	for i := range missing {
		in.checker.Wrong(missing[i].path(), projection.CodeMissingAttachment, detail)
	}
	return nil
}

// mend puts a text where an attachment is missing.
func (in *intake) mend(m *history.Message) {
	if len(in.lost) > 0 {
		projection.Missing(m, func(name string) bool {
			hash, _ := history.AttachmentSum(name)
			_, lost := in.lost[hash]
			return lost
		})
	}
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
