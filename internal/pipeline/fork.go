package pipeline

import (
	"context"
	"encoding/json/jsontext"
	"errors"
	"fmt"
	"iter"

	"historyd/internal/history"
	"historyd/internal/projection"
)

// Fork makes a new conversation of the messages of another one, up to the one with
// that seq; 0 means all. Rewound ones are left out. The copies have ids of their own
// and say of what they are copies; all else about them is as it was, attachments
// included. What is stored has passed projection, and passes it no second time. Where
// the bytes of an attachment are lost, a text says so in its place, and Mended tells.
//
// It is whole or not at all. history.ErrNotFound when there is nothing to fork, or all
// of it is rewound, ErrNoSuchMessage when the seq is none of its record, ErrNotEmpty when the new
// conversation has messages already, as a fork to itself has.
func (p *Pipeline) Fork(ctx context.Context, from, to Conversation, through int64) (Forked, error) {
	out, err := p.fork(ctx, from, to, through)
	p.metrics.forked(err)
	p.added(to, out.Receipt, err)
	return out, err
}

// Forked tells what became of a fork.
type Forked struct {
	history.Receipt
	Mended      []Mended // the first MaxTold, in order
	MendedTotal int64
	Damage      *history.Damage // what of the source could not be read, and is not in the copy
}

// Mended names where an attachment of which there are no bytes is named first.
type Mended struct {
	Seq    int64  `json:"seq"` // of the message that was copied
	Code   string `json:"code"`
	Detail string `json:"detail"`
}

func (p *Pipeline) fork(ctx context.Context, from, to Conversation, through int64) (Forked, error) {
	view, err := p.open(from).View(ctx)
	if err != nil {
		return Forked{}, fmt.Errorf("view: %w", err)
	}
	defer view.Close()
	state := view.State()
	switch {
	case !state.Exists():
		return Forked{}, fmt.Errorf("fork: %w", history.ErrNotFound)
	case through < 0 || through > state.LastSeq:
		return Forked{}, fmt.Errorf("fork: %w", history.ErrNoSuchMessage)
	case from == to:
		return Forked{}, fmt.Errorf("fork: %w", history.ErrNotEmpty)
	case through == 0:
		through = state.LastSeq
	}
	f := &copying{policy: p.policy.Load(), view: view, from: from.Name, names: map[string]bool{}, lost: map[string]bool{}}
	receipt, err := p.open(to).Import(ctx, history.Import{
		Mode:        history.Create,
		Messages:    f.messages(ctx, through),
		Attachments: f.attachments(ctx),
		Remember:    f.remember,
		Mend:        f.mend,
		Fold:        p.compactor,
	})
	if err != nil {
		return Forked{}, fmt.Errorf("fork: %w", err)
	}
	p.folded(ctx, to, receipt)
	p.metrics.stored("fork", &f.tally)
	if n := len(f.lost); n > 0 {
		p.log.WarnContext(ctx, "a fork found attachments without their bytes", "scope", from.Scope, "attachments", n)
	}
	return Forked{receipt, f.mended, int64(len(f.lost)), view.Damage()}, nil
}

// namedAt is an attachment, and the message that names it first.
type namedAt struct {
	name string
	seq  int64
}

// A copying is a fork under way.
type copying struct {
	policy *projection.Policy
	view   history.View
	from   string

	names      map[string]bool // of attachments
	order      []namedAt
	lost       map[string]bool // those without their bytes
	mended     []Mended
	notes      noteReader
	categories map[string]string
	tally      tally
}

func (f *copying) messages(ctx context.Context, through int64) iter.Seq2[history.Message, error] {
	return func(yield func(history.Message, error) bool) {
		none := true
		for r, err := range f.view.Records(1, through) {
			if err == nil {
				err = ctx.Err()
			}
			var m history.Message
			if err == nil {
				m, err = f.copy(r)
			}
			if err != nil {
				yield(m, err)
				return
			}
			if m.Rewound {
				continue
			}
			f.tally.message(int64(len(r.JSON)))
			none = false
			if !yield(m, nil) {
				return
			}
		}
		if none {
			yield(history.Message{}, fmt.Errorf("all is rewound: %w", history.ErrNotFound))
		}
	}
}

// copy returns what the record is in the new conversation.
func (f *copying) copy(r history.Record) (history.Message, error) {
	m, err := decode(r)
	if err != nil || m.Rewound {
		return m, err
	}
	n, err := f.notes.read(r.Note)
	if err != nil {
		return m, err
	}
	f.take(n.Categories)
	m.MediaBlocks(func(b *history.Block) {
		if b.Attachment != "" && !f.names[b.Attachment] {
			f.names[b.Attachment], f.order = true, append(f.order, namedAt{b.Attachment, m.Seq})
		}
	})
	m.Forked = &history.Forked{Conversation: f.from, ID: m.ID, Seq: m.Seq}
	m.ID, m.Seq = "", 0
	return m, nil
}

// take notes what was said of tools; of different things the strictest, for nothing
// tells later which of their calls a result answers.
func (f *copying) take(categories map[string]string) {
	for tool, category := range categories {
		if known, there := f.categories[tool]; there {
			category = f.policy.Stricter(known, category)
		}
		if f.categories == nil {
			f.categories = map[string]string{}
		}
		f.categories[tool] = category
	}
}

func (f *copying) remember() jsontext.Value { return note{Categories: f.categories}.encode() }

func (f *copying) attachments(ctx context.Context) iter.Seq2[history.Attachment, error] {
	return func(yield func(history.Attachment, error) bool) {
		for _, named := range f.order {
			a, err := f.view.Named(named.name)
			if errors.Is(err, history.ErrNotFound) || errors.Is(err, history.ErrDamaged) {
				f.lose(named)
				continue
			}
			if err == nil {
				err = ctx.Err()
			}
			if err != nil {
				yield(history.Attachment{}, fmt.Errorf("copy an attachment: %w", err))
				return
			}
			if !yield(a, nil) {
				return
			}
		}
	}
}

// lose notes that there are no bytes of an attachment.
func (f *copying) lose(named namedAt) {
	f.lost[named.name] = true
	if len(f.mended) < MaxTold {
		f.mended = append(f.mended, Mended{named.seq, projection.CodeMissingAttachment, "the bytes of an attachment are lost: a text says so in its place"})
	}
}

func (f *copying) mend(m *history.Message) {
	if len(f.lost) > 0 {
		projection.Missing(m, func(name string) bool { return f.lost[name] })
	}
}

// Rewind ends the conversation at a message: those after it stay in the record, and
// are no part of replays and summaries any more. through 0 rewinds everything. Errors
// are those of history.Log.
func (p *Pipeline) Rewind(ctx context.Context, c Conversation, through int64, ifMatch func(etag string) bool) (history.Receipt, error) {
	f := forgetting{index: p.index}
	defer f.end()
	receipt, err := p.open(c).Rewind(ctx, history.Rewind{
		Through: through,
		IfMatch: ifMatch,
		Before:  func() error { return f.begin(ctx, c) },
	})
	p.added(c, receipt, err)
	if err != nil {
		err = fmt.Errorf("rewind: %w", err)
	}
	p.metrics.rewound(err)
	return receipt, err
}
