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
	MaxTokens int64 // what summary and messages may take together, by estimate; 0 means no limit
}

// Replayed is what to send to the model now. The same record gives the same value.
type Replayed struct {
	State    history.State
	Summary  *Summary // what stands ahead of the messages; nil when nothing was folded
	Messages []history.Message
	Tokens   int64 // estimate of summary and messages
	Report   Report
}

// A Report counts what a replay leaves out. The zero Report says that nothing was.
type Report struct {
	DroppedTurns   int64           // whole turns, for max_tokens
	OverBudget     bool            // the newest turn alone takes more than max_tokens
	DroppedBlank   int64           // messages of nothing but blank text
	DroppedMedia   int64           // images, documents and sounds, which are no text
	ProviderErrors int64           // messages that hold a provider's error and no answer
	Damage         *history.Damage // what of the record cannot be read
}

// Replay returns the running summary and the text of the turns after it: no tool
// traffic, no system messages. A conversation that does not exist gives nothing.
func (p *Pipeline) Replay(ctx context.Context, c Conversation, ask Ask) (Replayed, error) {
	view, err := p.open(c).View(ctx)
	if err != nil {
		return Replayed{}, fmt.Errorf("view: %w", err)
	}
	defer view.Close()
	out := Replayed{State: view.State()}
	out.Summary = p.Frame(out.State.Summary)
	from := int64(1)
	if out.Summary != nil {
		from = out.Summary.ThroughSeq + 1
	}
	for r, err := range view.Records(from, out.State.LastSeq) {
		if err == nil {
			err = ctx.Err()
		}
		if err != nil {
			return Replayed{}, fmt.Errorf("read the window: %w", err)
		}
		m, err := decode(r)
		if err != nil {
			return Replayed{}, err
		}
		if m, ok := out.Report.text(&m); ok {
			out.Messages = append(out.Messages, m)
		}
	}
	out.Report.Damage = view.Damage()
	out.fit(ask.MaxTokens)
	return out, nil
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

// fit drops whole turns from the oldest until summary and messages fit, and counts
// what is left.
func (r *Replayed) fit(maxTokens int64) {
	summary := int64(0)
	if r.Summary != nil {
		m := history.Message{Role: history.User, Content: []history.Block{history.Text(r.Summary.Text)}}
		summary = projection.EstimateTokens(&m)
	}
	if maxTokens > 0 {
		kept, dropped, over := projection.Fit(r.Messages, max(maxTokens-summary, 1))
		r.Messages, r.Report.DroppedTurns, r.Report.OverBudget = kept, int64(dropped), over
	}
	r.Tokens = summary
	for i := range r.Messages {
		r.Tokens += projection.EstimateTokens(&r.Messages[i])
	}
}

// text returns what of the message is replayed in mode text, and counts what is not.
func (r *Report) text(m *history.Message) (history.Message, bool) {
	kept, ok := projection.Text(m)
	if m.Role != history.User && m.Role != history.Assistant || m.Synthetic {
		return kept, ok
	}
	blank, written, media := 0, 0, 0
	for i := range m.Content {
		switch b := &m.Content[i]; b.Type {
		case history.TextBlock:
			if strings.TrimSpace(b.Text) == "" {
				blank++
			} else {
				written++
			}
		case history.ImageBlock, history.DocumentBlock, history.AudioBlock:
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
