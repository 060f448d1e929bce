package api

import (
	"context"
	"iter"
	"sync/atomic"

	"historyd/internal/history"
	"historyd/internal/identity"
	"historyd/internal/store"
)

// engine is the store, but for what a test lets fail.
type engine struct {
	*store.Store
	fail atomic.Pointer[func(op string) error]
	hang atomic.Pointer[string] // the operation that goes on until nobody waits for it
}

func (e *engine) wait(ctx context.Context, op string) error {
	if hung := e.hang.Load(); hung == nil || *hung != op {
		return e.failing(op)
	}
	<-ctx.Done()
	return ctx.Err()
}

func (e *engine) failing(op string) error {
	if f := e.fail.Load(); f != nil {
		return (*f)(op)
	}
	return nil
}

func (e *engine) Log(s identity.Scope, name string) history.Log {
	return failingLog{e.Store.Log(s, name), e}
}

func (e *engine) List(ctx context.Context, s identity.Scope, cursor string, limit int) (history.Listing, error) {
	if err := e.wait(ctx, "list"); err != nil {
		return history.Listing{}, err
	}
	return e.Store.List(ctx, s, cursor, limit)
}

func (e *engine) ClearAll(ctx context.Context, s identity.Scope) error {
	if err := e.wait(ctx, "clear"); err != nil {
		return err
	}
	return e.Store.ClearAll(ctx, s)
}

func (e *engine) Ready() error {
	if err := e.failing("ready"); err != nil {
		return err
	}
	return e.Store.Ready()
}

// indexed is what the index reads: no failure of a conversation that is meant for a request.
type indexed struct{ *engine }

func (i indexed) Log(s identity.Scope, name string) history.Log { return i.Store.Log(s, name) }

type failingLog struct {
	history.Log
	e *engine
}

func (l failingLog) State(ctx context.Context) (history.State, error) {
	if err := l.e.wait(ctx, "state"); err != nil {
		return history.State{}, err
	}
	return l.Log.State(ctx)
}

func (l failingLog) View(ctx context.Context) (history.View, error) {
	if err := l.e.wait(ctx, "view"); err != nil {
		return nil, err
	}
	v, err := l.Log.View(ctx)
	return failingView{v, l.e}, err
}

func (l failingLog) Clear(ctx context.Context) error {
	if err := l.e.wait(ctx, "clear"); err != nil {
		return err
	}
	return l.Log.Clear(ctx)
}

type failingView struct {
	history.View
	e *engine
}

func (v failingView) Records(from, to int64) iter.Seq2[history.Record, error] {
	return v.failing(v.View.Records(from, to))
}

func (v failingView) Backward(before int64) iter.Seq2[history.Record, error] {
	return v.failing(v.View.Backward(before))
}

func (v failingView) failing(records iter.Seq2[history.Record, error]) iter.Seq2[history.Record, error] {
	return func(yield func(history.Record, error) bool) {
		for r, err := range records {
			if err == nil {
				err = v.e.failing("record")
			}
			if !yield(r, err) || err != nil {
				return
			}
		}
	}
}

func (v failingView) Attachment(name string) (history.Attachment, error) {
	if err := v.e.failing("attachment"); err != nil {
		return history.Attachment{}, err
	}
	return v.View.Attachment(name)
}

func (v failingView) Named(name string) (history.Attachment, error) {
	if err := v.e.failing("attachment"); err != nil {
		return history.Attachment{}, err
	}
	return v.View.Named(name)
}

func (v failingView) Close() {
	_ = v.e.failing("close")
	v.View.Close()
}

func (l failingLog) Append(ctx context.Context, b history.Batch) (history.Receipt, error) {
	if err := l.e.wait(ctx, "append"); err != nil {
		return history.Receipt{}, err
	}
	return l.Log.Append(ctx, b)
}

func (l failingLog) Import(ctx context.Context, in history.Import) (history.Receipt, error) {
	if err := l.e.wait(ctx, "import"); err != nil {
		return history.Receipt{}, err
	}
	return l.Log.Import(ctx, in)
}

func (l failingLog) Rewind(ctx context.Context, r history.Rewind) (history.Receipt, error) {
	if err := l.e.wait(ctx, "rewind"); err != nil {
		return history.Receipt{}, err
	}
	return l.Log.Rewind(ctx, r)
}
