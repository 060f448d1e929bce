package store

import (
	"context"
	"fmt"
	"sync"
	"time"

	"historyd/internal/history"
)

const (
	// stallAfter is how long a commit, or the opening of a conversation, may be under way before the disk is said to hang.
	stallAfter = 10 * time.Second
	// lateAfter is after how long an operator may read of it.
	lateAfter = 3 * time.Second
	// watchEvery is how often it is looked whether something is late.
	watchEvery = time.Second
)

// What may be under way, in the words of the log.
const (
	opening   = "opening a conversation"
	writing   = "write"
	syncing   = "sync"
	clearing  = "moving a cleared conversation away"
	preparing = "preparing an import"
	swapping  = "putting an import in its place"
)

// A standing is something under way that should take a moment. Its fields are guarded by stalls.mu; whoever has it may
// read what without.
type standing struct {
	began time.Time
	what  string // empty when nothing is under way
	late  bool   // somebody was told, and is to be told how long it took
}

// stalls knows since when what should take a moment is under way, so that a disk that hangs is told though nothing fails.
type stalls struct {
	mu     sync.Mutex // guards what follows
	under  map[*standing]struct{}
	back   int           // late ones that have come back since they were looked at
	lasted time.Duration // the longest of them
}

// begin notes that something is under way until end is called with what it returns.
func (s *stalls) begin(now time.Time, what string) *standing {
	x := &standing{}
	s.start(x, now, what)
	return x
}

// start is begin with a standing that is not in use.
func (s *stalls) start(x *standing, now time.Time, what string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	*x = standing{began: now, what: what}
	if s.under == nil {
		s.under = map[*standing]struct{}{}
	}
	s.under[x] = struct{}{}
}

// turn says what has its turn in something that is under way.
func (s *stalls) turn(x *standing, what string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	x.what = what
}

// end is the opposite of begin. The clock is asked for what was late alone.
func (s *stalls) end(x *standing, now func() time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.under, x)
	if x.late {
		s.back++
		s.lasted = max(s.lasted, now().Sub(x.began))
	}
	*x = standing{}
}

// begin notes that the transcript is written to. t.change is held until end.
func (t *transcript) begin() { t.store.stalls.start(&t.doing, t.store.now(), writing) }

func (t *transcript) end() { t.store.stalls.end(&t.doing, t.store.now) }

// oldest is how long the one has been under way that began first; 0 when nothing is.
func (s *stalls) oldest(now time.Time) (age time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for x := range s.under {
		age = max(age, now.Sub(x.began))
	}
	return age
}

// ready is an error while something takes too long.
func (s *stalls) ready(now time.Time) error {
	if s.oldest(now) >= stallAfter {
		return fmt.Errorf("%w: the disk hangs", history.ErrUnavailable)
	}
	return nil
}

// A delay is what is late, and what was and has come back.
type delay struct {
	late   int
	what   string        // of the one that is late for longest
	age    time.Duration // of it
	back   int
	lasted time.Duration
}

// look says what is late, and what has come back since the last look.
func (s *stalls) look(now time.Time) (d delay) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for x := range s.under {
		age := now.Sub(x.began)
		if age < lateAfter {
			continue
		}
		x.late = true
		d.late++
		if age > d.age {
			d.what, d.age = x.what, age
		}
	}
	d.back, d.lasted = s.back, s.lasted
	s.back, s.lasted = 0, 0
	return d
}

// A hang is a time in which something was always late, as it is told.
type hang struct {
	gossip
	on     bool
	told   bool // that it began
	back   int
	lasted time.Duration
}

// Watch tells the log when the disk hangs, and when it is over, until the context ends.
func (s *Store) Watch(ctx context.Context) {
	tick := time.NewTicker(watchEvery)
	defer tick.Stop()
	var h hang
	for {
		select {
		case <-tick.C:
			s.tellHang(&h, s.stalls.look(s.now()))
		case <-ctx.Done():
			return
		}
	}
}

// tellHang tells what has changed.
func (s *Store) tellHang(h *hang, d delay) {
	if d.late > 0 && !h.on {
		*h = hang{gossip: h.gossip, on: true}
		h.count++
		s.metrics.stalls.Inc()
	}
	if d.late > 0 && !h.told { // one that begins soon after another is told when it lasts
		if times, tell := h.due(s.now()); tell {
			h.told = true
			s.log.Warn("the disk hangs: what should take a moment has not come back; see dmesg, and iostat -x 1 for the disk of data_dir",
				"operation", d.what, "for", d.age.Round(time.Millisecond), "late", d.late, "times", times)
		}
	}
	h.back, h.lasted = h.back+d.back, max(h.lasted, d.lasted)
	if d.late == 0 && h.on {
		h.on = false
		if h.told {
			s.log.Info("the disk no longer hangs", "after", h.lasted.Round(time.Millisecond), "operations", h.back)
		}
	}
}
