package store

import (
	"context"
	"errors"
	"strings"

	"historyd/internal/history"
)

// prose is history.Prose on disk.
type prose struct {
	Text       string `json:"text"`
	Model      string `json:"model"`
	ThroughSeq int64  `json:"through_seq"`
	Turns      int64  `json:"turns"`
	Messages   int64  `json:"messages"`
	InputHash  string `json:"input_sha256"`
	InputChars int64  `json:"input_chars"`
	At         string `json:"at"`
}

func proseLine(p *history.Prose) *prose {
	valid := func(s string) string { return strings.ToValidUTF8(s, "\uFFFD") }
	return &prose{valid(p.Text), valid(p.Model), p.ThroughSeq, p.Turns, p.Messages, valid(p.InputHash), p.InputChars,
		p.At.UTC().Format(history.TimeFormat)}
}

func (p *prose) value() *history.Prose {
	return &history.Prose{Text: p.Text, Model: p.Model, ThroughSeq: p.ThroughSeq, Turns: p.Turns, Messages: p.Messages,
		InputHash: p.InputHash, InputChars: p.InputChars, At: parseTime(p.At)}
}

// Summarise implements history.Log.
func (l *log) Summarise(ctx context.Context, epoch string, p history.Prose) error {
	return l.use(ctx, func(t *transcript) error { return t.lockedSummarise(ctx, epoch, &p) })
}

func (t *transcript) lockedSummarise(ctx context.Context, epoch string, p *history.Prose) error {
	if err := t.change.lock(ctx); err != nil {
		return err
	}
	defer t.change.unlock()
	if t.ended() {
		return errRetry
	}
	old := t.state.Load()
	switch {
	case p.Text == "":
		return errors.New("a prose without a text")
	case old.unreadable:
		return history.ErrDamaged
	case !old.exists, epoch != t.history(old).Epoch, old.totals.Fold.none(), p.ThroughSeq != old.totals.FoldedSeq:
		return history.ErrPrecondition
	}
	sp, err := t.spend()
	if err != nil {
		return t.failure(err)
	}
	defer sp.end()
	snap, err := t.mend(old)
	if err != nil {
		return t.failure(err)
	}
	if snap.newLife {
		return history.ErrPrecondition // the next line has another epoch
	}
	d := t.newDraft(snap, &scratch{})
	d.summarise(p)
	return d.finish(sp, false, nil)
}

// summarise appends the line of a prose. It has the id and the time of the line before,
// so that it moves no activity.
func (d *draft) summarise(p *history.Prose) {
	when := d.snap.when
	d.start(when)
	c := &commit{First: d.snap.last + 1, Last: d.snap.last, ID: d.snap.id, At: when, Prev: checksum(d.snap.sum),
		Totals: d.snap.totals, Prose: proseLine(p)}
	c.Totals.Prose = d.here()
	d.line(c)
	d.commits++
	d.snap.prose = c.Prose.value()
}

// loadProse reads what a model wrote and no fold has taken. It must be of all that the
// summary covers: where the line of a fold could not be read, it is not.
func (t *transcript) loadProse(snap *snapshot) error {
	at := snap.totals.Prose
	snap.totals.Prose = place{}
	if at.none() {
		return nil
	}
	c, err := t.commitAt(at)
	if err != nil {
		return err
	}
	if c == nil || c.Prose == nil {
		t.tellDamage(at, 0, 0)
		return nil
	}
	if !snap.totals.Fold.none() && c.Prose.ThroughSeq == snap.totals.FoldedSeq {
		snap.totals.Prose, snap.prose = at, c.Prose.value()
	}
	return nil
}

// summaries checks what a line says that was written by a model, or took it over.
func (k *chain) summaries(n int, it item, c *commit) {
	before := k.before
	k.before = c.Totals
	if k.checker.sum.Findings > 0 {
		return // it may be of a line that is missing
	}
	wrong := func(what string) { k.found(n, "damage", "the line at offset %d %s", it.off, what) }
	if p := c.Prose; p != nil {
		switch {
		case c.First <= c.Last || c.Summary != nil || p.Text == "":
			wrong("is not of the form of one with a model's words")
		case c.Totals.Epoch != before.Epoch:
			wrong("has a model's words of another life of the conversation")
		case before.Fold.none() || p.ThroughSeq != before.FoldedSeq:
			wrong("has a model's words of another fold than the newest")
		}
	}
	s := c.Summary
	switch {
	case s == nil:
	case !c.Totals.Prose.none():
		wrong("leaves a model's words waiting that it had to take or drop")
	case (s.Text == "") != (s.TextSeq == 0) || s.TextSeq > s.ThroughSeq:
		wrong("has a summary that covers less than its text")
	case !k.sourced(s, &before):
		wrong("has a summary with words that no line before it has")
	}
}

// sourced reports whether the text of a summary is that of the summary before it, or
// what a model wrote of all that that one covers. It is true where that cannot be read.
func (k *chain) sourced(s *summary, before *totals) bool {
	t := &transcript{files: k.files}
	last := &summary{}
	if !before.Fold.none() {
		c, err := t.commitAt(before.Fold)
		if err != nil || c == nil || c.Summary == nil {
			return true
		}
		last = c.Summary
	}
	if s.Text == last.Text && s.TextSeq == last.TextSeq {
		return true
	}
	if before.Prose.none() {
		return false
	}
	c, err := t.commitAt(before.Prose)
	if err != nil || c == nil {
		return true
	}
	p := c.Prose
	return p != nil && s.Text == p.Text && s.TextSeq == p.ThroughSeq && s.TextSeq == before.FoldedSeq
}
