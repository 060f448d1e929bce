package recall

import (
	"context"
	"slices"
	"sync"

	"historyd/internal/identity"
)

// A doorway lets so many through at a time, and so many of one caller. Whoever waits is let in by turns of callers, not in
// the order of arrival, so that one who asks a lot waits behind itself and nobody else. Safe for concurrent use.
type doorway struct {
	each int // places of one caller

	mu    sync.Mutex // guards the rest
	free  int
	lanes map[identity.Scope]*lane // of those who are in or wait
	turns []*lane                  // in which somebody waits; the next turn is the first one's that has a place left
}

// A lane is what a doorway knows of one caller.
type lane struct {
	scope   identity.Scope
	in      int
	waiting []chan struct{} // in order of arrival; closed to let in
}

func newDoorway(places, each int) *doorway {
	return &doorway{free: places, each: each, lanes: map[identity.Scope]*lane{}}
}

// enter waits for a place until ctx ends. Whoever got nil leaves again.
func (g *doorway) enter(ctx context.Context, scope identity.Scope) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	g.mu.Lock()
	l := g.lanes[scope]
	if l == nil {
		l = &lane{scope: scope}
		g.lanes[scope] = l
	}
	in := make(chan struct{})
	if l.waiting = append(l.waiting, in); len(l.waiting) == 1 {
		g.turns = append(g.turns, l)
	}
	g.admit()
	g.mu.Unlock()
	select {
	case <-in:
		return nil
	case <-ctx.Done():
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if at := slices.Index(l.waiting, in); at >= 0 {
		l.waiting = slices.Delete(l.waiting, at, at+1)
		g.tidy(l)
		return ctx.Err()
	}
	g.out(l) // it was let in at the same moment
	return ctx.Err()
}

func (g *doorway) leave(scope identity.Scope) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.out(g.lanes[scope])
}

// out takes one of a lane out, and lets in who can be. g.mu is held, as it is by the rest.
func (g *doorway) out(l *lane) {
	l.in--
	g.free++
	g.tidy(l)
	g.admit()
}

// admit gives away the places that are free, by turns.
func (g *doorway) admit() {
	for g.free > 0 {
		at := slices.IndexFunc(g.turns, func(l *lane) bool { return l.in < g.each })
		if at < 0 {
			return
		}
		l := g.turns[at]
		close(l.waiting[0])
		l.waiting = l.waiting[1:]
		l.in++
		g.free--
		g.turns = slices.Delete(g.turns, at, at+1)
		if len(l.waiting) > 0 {
			g.turns = append(g.turns, l)
		}
	}
}

// tidy forgets a lane that nobody uses, and its turn when nobody waits.
func (g *doorway) tidy(l *lane) {
	if len(l.waiting) > 0 {
		return
	}
	if at := slices.Index(g.turns, l); at >= 0 {
		g.turns = slices.Delete(g.turns, at, at+1)
	}
	if l.in == 0 {
		delete(g.lanes, l.scope)
	}
}
