package api

import (
	"context"
	"errors"
	"net/http"
	"sync/atomic"
	"time"
)

// grace is how long a commit may go on for a client that has left, or sends no more, before its places are others'.
const grace = time.Second

// within does what may take longer than the end of its context, before any of an answer is written. If it takes longer
// than the limit, or than the client waits for it, another goroutine has the exchange: it answers the client that is
// there, gives the places back and counts. Then within does not return.
func (x *exchange) within(r *http.Request, limit time.Duration, do func(ctx context.Context) error) error {
	ctx, cancel := context.WithCancel(context.WithoutCancel(r.Context()))
	defer cancel()
	taken, done := atomic.Bool{}, make(chan struct{})
	timer := time.AfterFunc(limit, func() {
		if taken.CompareAndSwap(false, true) {
			x.overdue(r)
			close(done)
		}
		cancel()
	})
	defer timer.Stop()
	defer context.AfterFunc(r.Context(), func() { timer.Reset(grace) })()
	returned, err := false, error(nil)
	defer func() {
		if taken.CompareAndSwap(false, true) {
			return
		}
		<-done
		if !returned {
			return // the panic goes on
		}
		if err != nil && !errors.Is(err, context.Canceled) {
			x.tell(r, problemOf(err), err) // an operator has to know, whoever waits
		}
		abort()
	}()
	err = do(ctx)
	returned = true
	return err
}

// overdue ends an exchange while its handler stands still.
func (x *exchange) overdue(r *http.Request) {
	if x.gone = r.Context().Err() != nil; !x.gone {
		x.Header()["Connection"] = closing // nothing more is read from it until the handler has returned
		x.fail(r, context.DeadlineExceeded)
		_ = http.NewResponseController(x.ResponseWriter).Flush()
	}
	x.leave()
	x.account(r)
}
