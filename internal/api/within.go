package api

import (
	"context"
	"net/http"
	"time"
)

// within does what may take longer than the end of its context. If it takes longer than the limit, the client
// hears so from another goroutine, and gets its places back; the exchange is over then, and within does not return.
func (x *exchange) within(r *http.Request, limit time.Duration, do func(ctx context.Context)) {
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	told := make(chan struct{})
	timer := time.AfterFunc(limit, func() {
		defer close(told)
		x.Header()["Connection"] = closing // nothing more is read from it until do has returned
		x.fail(r, context.DeadlineExceeded)
		_ = http.NewResponseController(x.ResponseWriter).Flush()
		x.leave()
		cancel()
	})
	defer func() {
		if !timer.Stop() {
			<-told // until then the exchange is the other goroutine's
			abort()
		}
	}()
	do(ctx)
}
