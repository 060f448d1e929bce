package api

import (
	"cmp"
	"context"
	"net/http"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"
)

// What is large and in memory for as long as its client likes is bounded for each caller, and for all callers: of one
// caller so many bodies until they are answered, so many replays until they are read, and of all callers eight times as many
// besides the first of each.
const (
	bodiesAtOnce  = 16
	replaysAtOnce = 8
	filesAtOnce   = 8
	sharesAtOnce  = 8
)

// light is what a body may take, a record or a replay of it, for which nobody waits for a place.
const light = 1 << 20

// Many small objects take up to a hundred times the memory of their bytes while a body is worked on. Bodies of more than
// fewObjects share objectsAtOnce of their caller, and those of more than manyObjects also what all callers have: the same
// for each of crowdsAtOnce. No body counts for more than mostObjects, of which no two fit and beside which there is room
// for others. A brace in a text passes for an object. So do objectBytes of what is more than light, which take up to ten
// times as much: a body that waits is in memory once.
const (
	fewObjects    = 256
	manyObjects   = 4 << 10
	objectsAtOnce = 32 << 10
	mostObjects   = 24 << 10
	crowdsAtOnce  = 4
	objectBytes   = 512
)

// A crowd is what a caller may have of objects.
type crowd struct {
	own, all *semaphore.Weighted
}

func newCrowd(all *semaphore.Weighted) crowd {
	return crowd{semaphore.NewWeighted(objectsAtOnce), all}
}

// take waits for room for n objects. It returns what gives it back; a second call of that does nothing.
func (c crowd) take(r *http.Request, n int64, wait time.Duration) (give func(), err error) {
	ctx, cancel := context.WithTimeout(r.Context(), wait)
	defer cancel()
	n = min(n, mostObjects)
	if err := c.own.Acquire(ctx, n); err != nil {
		return nil, cmp.Or(r.Context().Err(), rateLimited(time.Second))
	}
	shared := n > manyObjects
	if shared {
		if err := c.all.Acquire(ctx, n); err != nil {
			c.own.Release(n)
			return nil, cmp.Or(r.Context().Err(), rateLimited(time.Second))
		}
	}
	return sync.OnceFunc(func() {
		if shared {
			c.all.Release(n)
		}
		c.own.Release(n)
	}), nil
}

// A lot is a caller's places for what is large. Each but the first is one of all callers' places, too: nobody
// can take that one from a caller.
type lot struct {
	own, first, all chan struct{}
}

func newLot(n int, all chan struct{}) lot {
	return lot{make(chan struct{}, n), make(chan struct{}, 1), all}
}

// take waits for a place. It returns what gives the place back; a second call of that does nothing.
func (l lot) take(r *http.Request, wait time.Duration) (give func(), err error) {
	began := time.Now()
	if err := take(r, l.own, wait); err != nil {
		return nil, err
	}
	taken, err := takeEither(r, l.first, l.all, wait-time.Since(began))
	if err != nil {
		<-l.own
		return nil, err
	}
	return sync.OnceFunc(func() {
		<-taken
		<-l.own
	}), nil
}

// take waits for a place among places.
func take(r *http.Request, places chan struct{}, wait time.Duration) error {
	_, err := takeEither(r, places, nil, wait)
	return err
}

// takeEither waits for a place in a or in b, and takes one of a if there is one now. It returns where.
func takeEither(r *http.Request, a, b chan struct{}, wait time.Duration) (chan struct{}, error) {
	select {
	case a <- struct{}{}:
		return a, nil
	default:
	}
	select {
	case b <- struct{}{}:
		return b, nil
	default:
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case a <- struct{}{}:
		return a, nil
	case b <- struct{}{}:
		return b, nil
	case <-timer.C:
		return nil, rateLimited(time.Second)
	case <-r.Context().Done():
		return nil, r.Context().Err()
	}
}
