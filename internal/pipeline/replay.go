package pipeline

import (
	"context"
	"fmt"
	"strings"

	"historyd/internal/history"
	"historyd/internal/projection"
)

// An Ask says what a replay is for.
type Ask struct {
	MaxTokens int64 // what all that is counted may take together, by estimate; 0 means no limit
	Ahead     int64 // estimate of what else goes ahead of the messages, such as what was recalled

	// Full shows tool calls, results, thinking and media, too. The rest is for it alone.
	Full    bool
	Tools   []string // names that the request declares
	Granted []string // names that may be called, declared or not
	Role    string   // who asks, as a refusal names it; may be empty
	Inline  bool     // the bytes of attachments are wanted, not their names alone

	// Written returns the name under which the request writes a tool; nil when as it is.
	Written func(name string) string

	ToolTokens int64 // estimate of what the request declares
	ToolRoom   int   // how many tools the request can declare beside those; 0 means any number, less means none
}

// Replayed is what to send to the model now. The same record gives the same value.
type Replayed struct {
	State    history.State
	Summary  *Summary // what stands ahead of the messages; nil when nothing was folded
	Messages []history.Message
	// Added are the tools to be declared beside those of the request, by name.
	Added  []projection.Declaration
	Tokens int64 // estimate of summary, Ask.Ahead and messages, in mode full of all declarations, too
	Left   int64 // the newest message that was left out for max_tokens; 0 when none was
	Report Report

	meter   projection.Meter
	settled int64 // the message with which the last fold left the window; 0 when there was none
}

// A Report counts what a replay leaves out, and what it repairs. The zero Report says
// that nothing was.
type Report struct {
	DroppedTurns     int64           // whole turns, for max_tokens
	DroppedMessages  int64           // that those turns had to show
	OverBudget       bool            // even with the newest turn alone it is more than max_tokens
	ShortenedSummary bool            // for max_tokens
	DroppedBlank     int64           // messages of nothing but blank text
	DroppedMedia     int64           // images, documents and sounds, which are no text
	ProviderErrors   int64           // messages that hold a provider's error and no answer
	Damage           *history.Damage // what of the record cannot be read

	SyntheticResults  int64 // results made for calls that have none
	MovedResults      int64 // results brought to their call
	DroppedOrphans    int64 // results of no call
	DroppedDuplicates int64 // second results of a call
	MergedCalls       int64 // messages of calls joined with the one before
	ExchangesAsText   int64 // calls given as text, past the limit of added tools
	UndeclaredTools   int64 // granted tools past that limit that nothing calls
}

// Replay returns the running summary and the turns after it: in mode text what was
// said, in mode full all but system messages, repaired so that each call has its
// result, and closed over the tools that it names. What was rewound is in neither. A
// conversation that does not exist gives nothing.
func (p *Pipeline) Replay(ctx context.Context, c Conversation, ask Ask) (Replayed, error) {
	out, err := p.replay(ctx, c, ask)
	if err == nil {
		p.metrics.repaired(&out.Report)
	}
	return out, err
}

func (p *Pipeline) replay(ctx context.Context, c Conversation, ask Ask) (Replayed, error) {
	view, err := p.open(c).View(ctx)
	if err != nil {
		return Replayed{}, fmt.Errorf("view: %w", err)
	}
	defer view.Close()
	out := Replayed{State: view.State()}
	out.Summary = p.Frame(out.State.Summary)
	keep, batch := p.compactor.Turns()
	if err := out.read(ctx, view, ask.Full, keep); err != nil {
		return Replayed{}, err
	}
	if ask.Full {
		out.repair()
	}
	out.fit(ask, p, batch)
	if ask.Full && ask.Inline {
		if err := inline(ctx, view, out.Messages); err != nil {
			return Replayed{}, err
		}
	}
	out.Report.Damage = view.Damage() // when all has been read, attachments too
	return out, nil
}

// read takes the messages after the summary that are replayed. A fold leaves the window
// with so many turns, the last of them just begun.
func (r *Replayed) read(ctx context.Context, view history.View, full bool, turns int) error {
	from := int64(1)
	if r.Summary != nil {
		from = r.Summary.ThroughSeq + 1
	}
	for rec, err := range view.Records(from, r.State.LastSeq) {
		if err == nil {
			err = ctx.Err()
		}
		if err != nil {
			return fmt.Errorf("read the window: %w", err)
		}
		m, err := decode(rec)
		if err != nil {
			return err
		}
		if m.Rewound {
			continue
		}
		r.meter.Saw(&m)
		if m.StartsTurn() && r.Summary != nil {
			if turns--; turns == 0 {
				r.settled = m.Seq
			}
		}
		ok := m.Role != history.System
		if !full {
			m, ok = r.Report.text(&m)
		} else if m.ProviderError() {
			r.Report.ProviderErrors++
			ok = false
		}
		if ok {
			r.Messages = append(r.Messages, m)
		}
	}
	return nil
}

// repair gives each call its result.
func (r *Replayed) repair() {
	var done projection.Repairs
	r.Messages, done = projection.RepairPairs(r.Messages)
	r.Report.SyntheticResults = done.Synthetic
	r.Report.MovedResults = done.Moved
	r.Report.DroppedOrphans = done.Orphans
	r.Report.DroppedDuplicates = done.Duplicates
	r.Report.MergedCalls = done.Merged
}

// decode reads a stored message. One that was committed and cannot be read is
// damage; the error names no content, and is of no other class.
func decode(r history.Record) (history.Message, error) {
	m, err := r.Message()
	if err != nil {
		return m, fmt.Errorf("message %d: %w: %s", r.Seq, history.ErrDamaged, err)
	}
	return m, nil
}

// text returns what of the message is replayed in mode text, and counts what is not.
func (r *Report) text(m *history.Message) (history.Message, bool) {
	kept, ok := projection.Text(m)
	if m.Role != history.User && m.Role != history.Assistant || m.Synthetic {
		return kept, ok
	}
	blank, written, media := 0, 0, 0
	for i := range m.Content {
		switch b := &m.Content[i]; {
		case b.Said() && strings.TrimSpace(b.Text) == "":
			blank++
		case b.Said():
			written++
		case b.Media(), b.Type == history.TextBlock: // a text in the place of one
			media++
		}
	}
	r.DroppedMedia += int64(media)
	switch {
	case ok:
	case written > 0:
		// There is something to show, and projection took it for no answer.
		r.ProviderErrors++
	case blank == len(m.Content):
		r.DroppedBlank++
	}
	return kept, ok
}
