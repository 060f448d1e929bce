package store

import (
	"context"
	"fmt"
	"slices"

	"historyd/internal/history"
)

// pending is an append that waits for the leader.
type pending struct {
	batch   history.Batch
	receipt history.Receipt
	err     error
	done    chan struct{}
}

// Limits of one conversation: how many appends share a sync, and how many may wait.
const (
	maxGroup = 256
	maxQueue = 4096
)

// enqueue has the append wait for a leader, and reports whether whoever appends is to find one.
func (t *transcript) enqueue(p *pending) (leads bool, err error) {
	t.queueMu.Lock()
	defer t.queueMu.Unlock()
	if len(t.queue) >= maxQueue {
		return false, history.ErrBusy
	}
	t.queue = append(t.queue, p)
	leads = !t.leading
	t.leading = true
	return leads, nil
}

// withdraw takes an append that nobody waits for any more out of the queue; false
// when the leader has it already.
func (t *transcript) withdraw(p *pending) bool {
	t.queueMu.Lock()
	defer t.queueMu.Unlock()
	i := slices.Index(t.queue, p)
	if i < 0 {
		return false
	}
	t.queue = slices.Delete(t.queue, i, i+1)
	return true
}

// maxStanding is how many of those who append load and commit on their own goroutines at a time: so many stand still
// while a disk hangs.
const maxStanding = 128

// stand counts one more who does, if there may be one.
func (s *Store) stand() bool {
	if s.standing.Add(1) > maxStanding {
		s.standing.Add(-1)
		return false
	}
	return true
}

// startLeading has the queue committed, by the goroutine at hand as long as it stays: so no other has to be woken
// and waited for.
func (t *transcript) startLeading(ctx context.Context, stays bool) {
	over := false
	defer func() {
		if !over {
			go t.lead() // ends when the queue is empty; who waits may give up, the leader never does
		}
	}()
	over = stays && t.commitHere(ctx)
}

// commitHere commits one group. It reports whether that was all.
func (t *transcript) commitHere(ctx context.Context) bool {
	if !t.store.stand() {
		return false
	}
	defer t.store.standing.Add(-1)
	if t.change.lock(ctx) != nil {
		return false
	}
	t.commitNext()
	return t.idle()
}

// idle ends the time of a leader if nobody waits.
func (t *transcript) idle() bool {
	t.queueMu.Lock()
	defer t.queueMu.Unlock()
	t.leading = len(t.queue) > 0
	return !t.leading
}

// lead commits, group by group, until nobody waits.
func (t *transcript) lead() {
	for more := true; more; {
		_ = t.change.lock(context.Background())
		more = t.commitNext()
	}
}

// errPanicked is of others when a commit or a load panicked.
var errPanicked = fmt.Errorf("%w: it panicked", history.ErrUnavailable)

// commitNext commits the next group, if there is one, and lets go of t.change.
func (t *transcript) commitNext() bool {
	group := t.nextGroup()
	done := group == nil
	defer func() {
		if !done {
			t.panicked()
		}
		t.change.unlock()
		for _, p := range group {
			if !done {
				p.err = errPanicked
			}
			close(p.done)
		}
	}()
	if group != nil {
		t.commitGroup(group)
		done = true
	}
	return group != nil
}

// panicked is for a commit that ended anywhere: as after a failed sync, nothing is known of what lies behind the
// acknowledged line, and what is held besides the disk may not fit it. t.change is held.
func (t *transcript) panicked() {
	t.poison()
	t.keys, t.recent = nil, recent{}
	t.store.outcome(t.key, errPanicked, true)
}

// nextGroup takes from the queue what is to be committed next; nil ends the leader.
func (t *transcript) nextGroup() []*pending {
	t.queueMu.Lock()
	defer t.queueMu.Unlock()
	if len(t.queue) == 0 {
		t.leading = false
		return nil
	}
	n := min(len(t.queue), maxGroup)
	group := slices.Clone(t.queue[:n])
	t.queue = slices.Delete(t.queue, 0, n)
	return group
}
