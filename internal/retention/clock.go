package retention

import (
	"encoding/json/v2"
	"errors"
	"io"
	"io/fs"
	"log/slog"
	"time"

	"historyd/internal/durable"
)

// StateName is the file of a clock, in the data directory.
const StateName = "retention.json"

// A clock decides whether the time can be believed when conversations are too old by it.
// It remembers when it was last looked at, over restarts. When more time has passed since
// than goes by unnoticed, either nothing ran for that long or the clock was set: nobody
// can tell which, so nothing is too old for a while, in which somebody may set it right.
//
// Who has no such memory yet goes by the newest activity that there is.
type clock struct {
	fsys   durable.FS
	maxAge time.Duration // 0 when nothing is ever too old
	log    *slog.Logger

	begun     bool
	last      time.Time // zero when it was never looked at
	heldUntil time.Time // nothing is too old before
	saved     time.Time // last, as it is on disk
}

// clockState is the file.
type clockState struct {
	Seen      time.Time  `json:"seen"`
	HeldUntil *time.Time `json:"held_until"`
}

// jump is how much time goes by unnoticed: no more than half of the age at which
// conversations go, so that a clock that is wrong by that much removes none that was
// active in the younger half.
func jump(maxAge time.Duration) time.Duration {
	return max(time.Minute, min(maxAge/2, 7*24*time.Hour))
}

// hold is how long nothing is too old after a jump.
func hold(maxAge time.Duration) time.Duration { return min(maxAge, 24*time.Hour) }

// tick looks at the clock, and reports whether nothing is too old now, whatever it says.
func (c *clock) tick(now time.Time) (held bool) {
	if c.maxAge == 0 {
		return false
	}
	if !c.begun {
		c.begun = true
		c.read()
	}
	if c.last.IsZero() {
		return false // witness is still to come
	}
	c.pass(now)
	return now.Before(c.heldUntil)
}

// witness tells a clock without a memory of the newest activity there is, and reports
// whether nothing is too old.
func (c *clock) witness(newest, now time.Time) (held bool) {
	if c.maxAge == 0 {
		return false
	}
	if c.last.IsZero() {
		c.last = newest
		if newest.IsZero() || newest.After(now) {
			c.last = now
		}
		c.pass(now)
	}
	return now.Before(c.heldUntil)
}

// pass moves on to now.
func (c *clock) pass(now time.Time) {
	before, last := c.heldUntil, c.last
	tell := func() {}
	switch {
	case now.Sub(c.last) > jump(c.maxAge):
		c.heldUntil = now.Add(hold(c.maxAge))
		tell = func() {
			c.log.Warn("the clock has moved on by much since it was last looked at: nothing is removed for its age for a while",
				"last", last, "until", c.heldUntil)
		}
	case c.last.Sub(now) > jump(c.maxAge) && c.heldUntil.After(now):
		// It was set back: what it said before is no reason any more.
		c.heldUntil = time.Time{}
		tell = func() { c.log.Info("the clock was set back: conversations are removed for their age again") }
	}
	c.last = now
	if d := now.Sub(c.saved); c.heldUntil.Equal(before) && d >= 0 && d < min(jump(c.maxAge)/4, time.Hour) {
		return
	}
	c.write()
	tell() // who hears of it finds it written
}

// read takes what the process before has left. What is not understood is as nothing.
func (c *clock) read() {
	state, err := readState(c.fsys)
	if err != nil {
		if !errors.Is(err, fs.ErrNotExist) {
			c.log.Warn("the file that says when the clock was last looked at cannot be used", "file", StateName, "error", err)
		}
		return
	}
	c.last, c.saved = state.Seen, state.Seen
	if state.HeldUntil != nil {
		c.heldUntil = *state.HeldUntil
	}
}

func readState(fsys durable.FS) (state clockState, err error) {
	f, err := fsys.Open(StateName, false)
	if err != nil {
		return state, err
	}
	defer f.Close()
	b := make([]byte, 1024)
	n, err := f.ReadAt(b, 0)
	if err != nil && !errors.Is(err, io.EOF) {
		return state, err
	}
	return state, json.Unmarshal(b[:n], &state)
}

func (c *clock) write() {
	state := clockState{Seen: c.last.UTC()}
	if !c.heldUntil.IsZero() {
		until := c.heldUntil.UTC()
		state.HeldUntil = &until
	}
	text, err := json.Marshal(state)
	if err == nil {
		err = durable.WriteFile(c.fsys, StateName, append(text, '\n'))
	}
	if err != nil {
		c.log.Warn("when the clock was last looked at was not written down", "file", StateName, "error", err)
	}
	c.saved = c.last // or it is tried again when it is due the next time
}

// HeldUntil reads when the clock of a data directory may be believed again; zero when it
// may be believed, as far as is written down.
func HeldUntil(fsys durable.FS) (time.Time, error) {
	state, err := readState(fsys)
	if errors.Is(err, fs.ErrNotExist) || state.HeldUntil == nil {
		return time.Time{}, nil
	}
	return *state.HeldUntil, err
}
