package api

import (
	"context"
	"sync"
	"time"

	"github.com/go-chi/chi/v5"
)

// grace is how long a request goes on for a client that has left. One that ends its side of the connection behind its
// request, and reads, looks the same: net/http ends the request's context for both.
const grace = time.Second

// graceFor is how much of it there is once a context has ended: none when it was not for its client.
func graceFor(client context.Context) time.Duration {
	if context.Cause(client) != context.Canceled {
		return 0
	}
	return grace
}

// A presence is the context of a request. It ends grace after that of its client, whose values and deadline it has. It
// costs nothing until somebody waits for its end, and a goroutine and a timer when the client's has ended.
type presence struct {
	client  context.Context
	routing *chi.Context // the router's; it copies no request that has one

	mu     sync.Mutex      // guards all below
	lasts  context.Context // nil until somebody waits
	cancel context.CancelFunc
	forget func() bool // undoes that leave will be called
	timer  *time.Timer // nil until the grace began
	taking bool        // the client is being written to, which tells by itself whether it is there
	over   bool        // the request is
}

func (p *presence) Deadline() (time.Time, bool) { return p.client.Deadline() }

func (p *presence) Done() <-chan struct{} { return p.lasting().Done() }

func (p *presence) Err() error { return p.lasting().Err() }

// Value is what the client's context has, and to package context what a context under this one ends with.
func (p *presence) Value(key any) any {
	if key == chi.RouteCtxKey {
		return p.routing
	}
	p.mu.Lock()
	ctx := p.lasts
	p.mu.Unlock()
	if ctx == nil {
		ctx = p.client
	}
	return ctx.Value(key)
}

// left reports whether the client has left, or sends no more.
func (p *presence) left() bool { return p.client.Err() != nil }

func (p *presence) lasting() context.Context {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.lasts == nil {
		p.lasts, p.cancel = context.WithCancel(context.WithoutCancel(p.client))
		if p.over {
			p.cancel()
		} else {
			p.forget = context.AfterFunc(p.client, p.leave)
		}
	}
	return p.lasts
}

// leave is called when the client's context has ended.
func (p *presence) leave() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.over {
		return
	}
	p.timer = time.AfterFunc(graceFor(p.client), p.cancel)
	if p.taking {
		p.timer.Stop()
	}
}

// take does what writes to the client. No grace passes meanwhile, and then it begins anew: whoever takes
// what is written is there, and what has left makes the write fail.
func (p *presence) take(write func() error) error {
	p.mu.Lock()
	p.taking = true
	if p.timer != nil {
		p.timer.Stop()
	}
	p.mu.Unlock()
	err := write()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.taking = false
	if p.timer != nil && !p.over {
		p.timer.Reset(graceFor(p.client))
	}
	return err
}

// end is called when the request is over. A second call does nothing.
func (p *presence) end() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.over = true; p.lasts == nil {
		return
	}
	p.forget()
	if p.timer != nil {
		p.timer.Stop()
	}
	p.cancel()
}
