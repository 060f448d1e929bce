package compaction

import (
	"hash/maphash"
	"slices"

	"historyd/internal/identity"
)

// maxWaiting is how many conversations may wait for a model.
const maxWaiting = 1024

// An agenda is who waits for a worker. Callers have turns, so that one with many
// conversations waits behind itself and nobody else; and when it is full, who has most of
// them waiting gives way. It is guarded by its owner.
type agenda struct {
	each    int // conversations of one caller at a time
	waiting int
	lanes   map[identity.Scope]*lane // of those who wait or are worked for
	turns   []*lane                  // in which somebody waits; the first one that may is the next
}

type lane struct {
	scope   identity.Scope
	running int
	waiting []subject
}

// newAgenda leaves one of several workers to others, whoever keeps the rest busy.
func newAgenda(workers int) *agenda {
	return &agenda{each: max(1, workers-1), lanes: map[identity.Scope]*lane{}}
}

// add notes a subject, and returns who gives way for it: nobody, another one, or itself.
func (a *agenda) add(j subject) (dropped subject, full bool) {
	l := a.lanes[j.scope]
	if l == nil {
		l = &lane{scope: j.scope}
		a.lanes[j.scope] = l
	}
	if a.waiting == maxWaiting {
		most := slices.MaxFunc(a.turns, func(x, y *lane) int { return len(x.waiting) - len(y.waiting) })
		if len(most.waiting) <= len(l.waiting)+1 {
			a.tidy(l)
			return j, true
		}
		last := len(most.waiting) - 1
		dropped, full = most.waiting[last], true
		most.waiting = most.waiting[:last]
		a.waiting--
	}
	if l.waiting = append(l.waiting, j); len(l.waiting) == 1 {
		a.turns = append(a.turns, l)
	}
	a.waiting++
	return dropped, full
}

// next takes the subject whose turn it is; false when there is none that may be taken.
// It is worked on until done.
func (a *agenda) next() (subject, bool) {
	at := slices.IndexFunc(a.turns, func(l *lane) bool { return l.running < a.each })
	if at < 0 {
		return subject{}, false
	}
	l := a.turns[at]
	j := l.waiting[0]
	l.waiting = l.waiting[1:]
	l.running++
	a.waiting--
	a.turns = slices.Delete(a.turns, at, at+1)
	if len(l.waiting) > 0 {
		a.turns = append(a.turns, l)
	}
	return j, true
}

func (a *agenda) done(j subject) {
	l := a.lanes[j.scope]
	l.running--
	a.tidy(l)
}

func (a *agenda) tidy(l *lane) {
	if l.running == 0 && len(l.waiting) == 0 {
		delete(a.lanes, l.scope)
	}
}

// maxMet is how many conversations are known to have been met before all but the newest
// half of them are forgotten, which are then taken for new.
const maxMet = 1 << 16

// An acquaintance knows which conversations were met, by hash.
type acquaintance struct {
	seed     maphash.Seed
	now, old map[uint64]struct{}
}

func newAcquaintance() acquaintance {
	return acquaintance{seed: maphash.MakeSeed(), now: map[uint64]struct{}{}}
}

// meet notes a subject, and reports whether it was met before.
func (a *acquaintance) meet(j subject) bool {
	h := maphash.Comparable(a.seed, j)
	if _, ok := a.now[h]; ok {
		return true
	}
	_, met := a.old[h]
	if len(a.now) == maxMet/2 {
		a.now, a.old = map[uint64]struct{}{}, a.now
	}
	a.now[h] = struct{}{}
	return met
}
