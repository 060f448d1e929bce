package api

import (
	"context"
	"errors"
	"net/http"
	"sync/atomic"
	"time"
)

// within does what may take longer than the end of its context, before any of an answer is written. If it takes longer
// than the limit, or than grace when the client has left, another goroutine has the exchange: it answers, gives the
// places back and counts. Then within does not return.
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
	client := x.presence.client
	defer context.AfterFunc(client, func() { timer.Reset(graceFor(client)) })()
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
	x.gone = x.presence.left()         // which is told all the same: it may only send no more
	x.Header()["Connection"] = closing // nothing more is read from it until the handler has returned
	x.fail(r, context.DeadlineExceeded)
	_ = http.NewResponseController(x.ResponseWriter).Flush()
	x.leave()
	x.account(r)
}
