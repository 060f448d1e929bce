package retention

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"historyd/internal/identity"
)

// Why a conversation goes.
const (
	ForAge   = "age"
	ForBytes = "bytes"
)

// A Choice is a conversation that is to go, and why.
type Choice struct {
	Conversation
	Reason string
}

// maxChosen is how many conversations of one caller go in one sweep, so that no more are
// held in memory; the next one goes on.
const maxChosen = 1000

// A chooser goes through the conversations of one caller.
type chooser struct {
	rules  Rules
	now    time.Time
	most   int // that are chosen; 0 means all
	bytes  int64
	newest string // the highest id of those that are not too old

	aged, rest eldest // those that are too old, and the others
}

// eldest is the conversations with the lowest ids of those that it was given.
type eldest struct {
	list []Conversation // in no order
	more bool           // it was given others
}

func (e *eldest) add(v Conversation, most int) {
	e.list = append(e.list, v)
	if most > 0 && len(e.list) >= 2*most {
		e.cut(most)
	}
}

// cut sorts the list and keeps the beginning.
func (e *eldest) cut(most int) {
	slices.SortFunc(e.list, func(a, b Conversation) int { return strings.Compare(a.Newest, b.Newest) })
	if most > 0 && len(e.list) > most {
		e.list, e.more = e.list[:most], true
	}
}

func (c *chooser) add(v Conversation) {
	c.bytes += v.Bytes
	if c.rules.tooOld(v, c.now) {
		c.aged.add(v, c.most)
		return
	}
	c.rest.add(v, c.most)
	c.newest = max(c.newest, v.Newest)
}

// choose returns what has to go, oldest first, and whether there may be more. Whatever it
// takes, the newest conversation goes for its age alone: a caller is at work on it.
func (c *chooser) choose() (chosen []Choice, more bool) {
	c.aged.cut(c.most)
	for _, v := range c.aged.list {
		chosen = append(chosen, Choice{v, ForAge})
		c.bytes -= v.Bytes
	}
	if c.aged.more || c.rules.MaxBytes == 0 {
		return chosen, c.aged.more
	}
	c.rest.cut(c.most)
	for _, v := range c.rest.list {
		if c.bytes <= c.rules.MaxBytes || v.Newest == c.newest {
			return chosen, false
		}
		if c.most > 0 && len(chosen) == c.most {
			return chosen, true
		}
		chosen = append(chosen, Choice{v, ForBytes})
		c.bytes -= v.Bytes
	}
	return chosen, c.rest.more && c.bytes > c.rules.MaxBytes
}

func (r Rules) tooOld(v Conversation, now time.Time) bool {
	return r.MaxAge > 0 && now.Sub(v.At) > r.MaxAge
}

// Choose goes through a whole record and hands on what the rules say has to go at a
// moment, caller by caller, oldest first.
func Choose(ctx context.Context, r Rules, now time.Time, survey func(context.Context, func(Conversation) error) error, chosen func([]Choice) error) error {
	return choose(ctx, r, now, 0, survey, func(list []Choice, _ bool) error { return chosen(list) }, func(Conversation) {})
}

func choose(ctx context.Context, r Rules, now time.Time, most int, survey func(context.Context, func(Conversation) error) error,
	chosen func([]Choice, bool) error, stays func(Conversation)) error {
	var c *chooser
	var of identity.Scope
	end := func() error {
		if c == nil {
			return nil
		}
		list, more := c.choose()
		c = nil
		if len(list) == 0 {
			return nil
		}
		return chosen(list, more)
	}
	err := survey(ctx, func(v Conversation) error {
		if c != nil && v.Scope != of {
			if err := end(); err != nil {
				return err
			}
		}
		if c == nil {
			c, of = &chooser{rules: r, now: now, most: most}, v.Scope
		}
		c.add(v)
		if !r.tooOld(v, now) {
			stays(v)
		}
		return nil
	})
	if err != nil {
		return err
	}
	return end()
}

// sweep goes through the record once and removes what has to go now.
func (s *Sweeper) sweep(now time.Time) error {
	s.pace.begin()
	rules := s.rules
	if rules.MaxAge > 0 {
		held, err := s.held(now)
		if err != nil {
			return err
		}
		s.metrics.hold(held)
		if held {
			rules.MaxAge = 0
		}
	}
	s.again, s.due, s.failed = false, time.Time{}, nil
	err := choose(s.life, rules, now, maxChosen, s.paced, s.remove, func(v Conversation) {
		if due := v.At.Add(s.rules.MaxAge); s.rules.MaxAge > 0 && (s.due.IsZero() || due.Before(s.due)) {
			s.due = due
		}
	})
	return cmp.Or(err, s.failed)
}

// held reports whether nothing is too old, because the clock cannot be believed.
func (s *Sweeper) held(now time.Time) (bool, error) {
	if !s.clock.last.IsZero() {
		return now.Before(s.clock.heldUntil), nil
	}
	var newest time.Time
	err := s.paced(s.life, func(v Conversation) error {
		if v.At.After(newest) {
			newest = v.At
		}
		return nil
	})
	if err != nil {
		return true, err
	}
	return s.clock.witness(newest, now), nil
}

// paced is a survey that leaves most of the time to others.
func (s *Sweeper) paced(ctx context.Context, visit func(Conversation) error) error {
	return s.record.Survey(ctx, func(v Conversation) error {
		if err := s.rest(ctx); err != nil {
			return err
		}
		return visit(v)
	})
}

// rest pauses when it is time to, and looks at the clock meanwhile: a sweep may take long.
func (s *Sweeper) rest(ctx context.Context) error {
	rested, err := s.pace.rest(ctx)
	if rested {
		s.tick(s.wall())
	}
	return err
}

// remove clears what was chosen of one caller. One that can't be cleared keeps no other.
func (s *Sweeper) remove(list []Choice, more bool) error {
	s.again = s.again || more
	counts := map[string]int64{}
	var removed, bytes int64
	defer func() {
		if removed > 0 {
			s.log.Info("conversations removed by retention", "scope", list[0].Scope, "conversations", removed, "bytes", bytes,
				"for_age", counts[ForAge], "for_bytes", counts[ForBytes])
		}
	}()
	for i := range list {
		if err := s.rest(s.life); err != nil {
			return err
		}
		c := &list[i]
		gone, err := s.expire(c)
		if err != nil {
			s.failed = cmp.Or(s.failed, fmt.Errorf("remove a conversation: %w", err))
			continue
		}
		if !gone {
			s.again = true
			s.metrics.spared.Inc()
			continue
		}
		removed++
		bytes += c.Bytes
		counts[c.Reason]++
		s.metrics.removed.WithLabelValues(c.Reason).Inc()
		s.metrics.bytes.WithLabelValues(c.Reason).Add(float64(c.Bytes))
	}
	return nil
}

// expire clears one conversation, from the index, too, first, so that no crash leaves
// words of what is gone.
func (s *Sweeper) expire(c *Choice) (bool, error) {
	done := func() {}
	defer func() { done() }()
	return s.record.Expire(s.life, c.Scope, c.Name, c.Newest, func() error {
		if s.index == nil {
			return nil
		}
		forgotten, err := s.index.Forget(s.life, c.Scope, c.Name)
		if err == nil {
			done = forgotten
		}
		return err
	})
}

// Of each stretch of work so much is followed by so many times as long a pause.
const (
	stretch = 20 * time.Millisecond
	share   = 4
)

// A pace spreads work over time.
type pace struct{ since time.Time }

func (p *pace) begin() { p.since = time.Now() }

// rest pauses when it is time to, and reports whether it did. An error is the end of the
// context.
func (p *pace) rest(ctx context.Context) (bool, error) {
	if err := ctx.Err(); err != nil {
		return false, err
	}
	worked := time.Since(p.since)
	if worked < stretch {
		return false, nil
	}
	defer p.begin()
	timer := time.NewTimer(min(share*worked, 5*time.Second))
	defer timer.Stop()
	select {
	case <-timer.C:
		return true, nil
	case <-ctx.Done():
		return true, ctx.Err()
	}
}
