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

// Paged tells what a page was. First and Last are the smallest and the largest seq
// of it, 0 when it is empty.
type Paged struct {
	State       history.State
	First, Last int64
	More        bool            // there is more in this direction
	Damage      *history.Damage // nil when nothing is known to be missing
}

// Messages hands each record of the page to each, as it is stored. The record is
// good only until each returns. An error of each ends the page and is returned.
func (p *Pipeline) Messages(ctx context.Context, c Conversation, page Page, each func(history.Record) error) (Paged, error) {
	view, err := p.open(c).View(ctx)
	if err != nil {
		return Paged{}, fmt.Errorf("view: %w", err)
	}
	defer view.Close()
	out := Paged{State: view.State()}
	n := 0
	for r, err := range page.records(view) {
		if err == nil {
			err = ctx.Err()
		}
		if err != nil {
			return Paged{}, fmt.Errorf("read messages: %w", err)
		}
		if page.Descending && r.Seq <= page.After {
			break
		}
		if n == page.Limit {
			out.More = true
			break
		}
		if n == 0 {
			out.First, out.Last = r.Seq, r.Seq
		}
		out.First, out.Last = min(out.First, r.Seq), max(out.Last, r.Seq)
		if err := each(r); err != nil {
			return Paged{}, err
		}
		n++
	}
	out.Damage = view.Damage()
	return out, nil
}

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
