package pipeline

import (
	"context"
	"fmt"
	"iter"
	"math"

	"historyd/internal/history"
)

// Unbounded is a Page.Before that excludes nothing.
const Unbounded = math.MaxInt64

// A Page says which part of the record is wanted: After < seq < Before, at most
// Limit messages, from the one end or from the other.
type Page struct {
	After, Before int64
	Limit         int
	Descending    bool
}

// Paged is a page of a conversation that is pinned for reading it. Whoever opened it
// closes it.
type Paged struct {
	State history.State

	// The rest is known when Records has ended. First and Last are the smallest and the
	// largest seq of the page, 0 when it is empty.
	First, Last int64
	More        bool            // there is more in this direction
	Damage      *history.Damage // nil when nothing is known to be missing

	page Page
	view history.View
}

// Messages opens a page; ctx is for that alone.
func (p *Pipeline) Messages(ctx context.Context, c Conversation, page Page) (*Paged, error) {
	view, err := p.open(c).View(ctx)
	if err != nil {
		return nil, fmt.Errorf("view: %w", err)
	}
	return &Paged{State: view.State(), page: page, view: view}, nil
}

// Records yields the messages of the page, once. Each is good only until the next.
func (o *Paged) Records(ctx context.Context) iter.Seq2[history.Record, error] {
	return func(yield func(history.Record, error) bool) {
		n := 0
		for r, err := range o.page.records(o.view) {
			if err == nil {
				err = ctx.Err()
			}
			if err != nil {
				yield(history.Record{}, fmt.Errorf("read messages: %w", err))
				return
			}
			if o.page.Descending && r.Seq <= o.page.After {
				break
			}
			if n == o.page.Limit {
				o.More = true
				break
			}
			if n == 0 {
				o.First, o.Last = r.Seq, r.Seq
			}
			o.First, o.Last = min(o.First, r.Seq), max(o.Last, r.Seq)
			if !yield(r, nil) {
				return
			}
			n++
		}
		o.Damage = o.view.Damage()
	}
}

// Close ends the reading.
func (o *Paged) Close() { o.view.Close() }

func (page Page) records(view history.View) iter.Seq2[history.Record, error] {
	last := view.State().LastSeq
	if page.After >= last || page.Before <= 1 {
		return func(func(history.Record, error) bool) {}
	}
	if page.Descending {
		return view.Backward(min(page.Before, last+1))
	}
	return view.Records(page.After+1, min(page.Before-1, last))
}
