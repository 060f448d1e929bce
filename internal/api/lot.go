package api

import (
	"net/http"
	"sync"
	"time"
)

// What is large and in memory for as long as its client likes is bounded for each caller, and for all callers: of one
// caller so many bodies until they are answered, so many replays until they are read, and of all callers eight times as many.
const (
	bodiesAtOnce  = 16
	replaysAtOnce = 8
	sharesAtOnce  = 8
)

// light is what a body may take, a record or a replay of it, for which nobody waits for a place.
const light = 1 << 20

// A lot is a caller's places for what is large. Each is one of all callers' places, too.
type lot struct {
	own, all chan struct{}
}

func newLot(n int, all chan struct{}) lot { return lot{make(chan struct{}, n), all} }

// take waits for a place. It returns what gives the place back; a second call of that does nothing.
func (l lot) take(r *http.Request, wait time.Duration) (give func(), err error) {
	began := time.Now()
	if err := take(r, l.own, wait); err != nil {
		return nil, err
	}
	if err := take(r, l.all, wait-time.Since(began)); err != nil {
		<-l.own
		return nil, err
	}
	return sync.OnceFunc(func() {
		<-l.all
		<-l.own
	}), nil
}
