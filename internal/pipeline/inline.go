package pipeline

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"historyd/internal/history"
)

// Limits of the attachments whose bytes a replay holds.
const (
	maxInlined      = 100      // blocks
	maxInlinedBytes = 20 << 20 // of all blocks
	maxInlinedReads = 2 * maxInlinedBytes
)

// inline gives the media blocks of the messages their bytes, the newest first. A block
// that has none afterwards is one over the limits, or whose bytes cannot be read.
func inline(ctx context.Context, view history.View, msgs []history.Message) error {
	in := inliner{ctx: ctx, view: view, known: map[string][]byte{}, blocks: maxInlined, bytes: maxInlinedBytes, reads: maxInlinedReads}
	for i := len(msgs) - 1; i >= 0; i-- {
		msgs[i].Content = in.fill(msgs[i].Content)
	}
	return in.err
}

type inliner struct {
	ctx   context.Context
	view  history.View
	known map[string][]byte // what was read; nil for what could not be
	// What is left of the limits.
	blocks, bytes, reads int
	err                  error // that ends the replay
}

// fill returns the blocks with their bytes: themselves when there is nothing to fill
// in, else a copy.
func (in *inliner) fill(blocks []history.Block) []history.Block {
	out := blocks
	change := func(i int) *history.Block {
		if &out[0] == &blocks[0] {
			out = slices.Clone(blocks)
		}
		return &out[i]
	}
	for i := len(blocks) - 1; i >= 0; i-- {
		b := &blocks[i]
		if len(b.Content) > 0 {
			if inner := in.fill(b.Content); &inner[0] != &b.Content[0] {
				change(i).Content = inner
			}
		}
		if b.Media() && b.Attachment != "" && b.Data == nil {
			if data := in.read(b.Attachment); data != nil {
				change(i).Data = data
			}
		}
	}
	return out
}

// read returns the bytes of an attachment; nil when they cannot be had.
func (in *inliner) read(name string) []byte {
	if in.err != nil || in.blocks == 0 {
		return nil
	}
	data, there := in.known[name]
	if !there {
		if in.reads <= 0 {
			return nil
		}
		if in.err = in.ctx.Err(); in.err != nil {
			return nil
		}
		a, err := in.view.Named(name)
		if errors.Is(err, history.ErrGone) {
			in.err = fmt.Errorf("read an attachment: %w", err)
		}
		if err == nil {
			data = a.Data
		}
		in.known[name] = data
		in.reads -= len(data)
	}
	if len(data) == 0 || len(data) > in.bytes {
		return nil
	}
	in.blocks--
	in.bytes -= len(data)
	return data
}
