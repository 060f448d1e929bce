package recall

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"

	"historyd/internal/history"
)

// A confirmation makes hits of candidates by reading them from the record.
type confirmation struct {
	*finder
	index  *Index
	caller *caller
	marker *marker
	views  map[string]history.View
	behind bool // a conversation that is in the index can't be read now
}

// confirm makes hits of candidates. Those that are not in the record any more are left out, and their conversations read
// again.
func (x *Index) confirm(ctx context.Context, c *caller, f *finder) (Results, error) {
	slices.SortFunc(f.best.list, func(a, b candidate) int {
		if a.before(b.rank, f.best.newest) {
			return -1
		}
		return 1
	})
	r := &confirmation{finder: f, index: x, caller: c, marker: f.marker(), views: map[string]history.View{}}
	defer func() {
		for _, v := range r.views {
			v.Close()
		}
	}()
	res := Results{Total: f.total, Behind: x.incomplete(c)}
	next, limit := 0, f.query.limit()
	for next < len(f.best.list) && len(res.Hits) < limit {
		some := f.best.list[next:min(next+limit-len(res.Hits), len(f.best.list))]
		hits, gone, err := r.read(ctx, some)
		if err != nil {
			return Results{}, err
		}
		res.Hits, res.Total, next = append(res.Hits, hits...), res.Total-gone, next+len(some)
	}
	if next > 0 && (next < len(f.best.list) || len(f.best.list) == f.max) {
		res.Next = f.query.cursor(c.scope, f.best.list[next-1].rank)
	}
	res.Behind = res.Behind || r.behind
	res.Total = max(res.Total, len(res.Hits))
	return res, ctx.Err()
}

// read returns the hits of some candidates, in their order, and how many of them are not there any more. Those of a
// conversation are read in its order.
func (r *confirmation) read(ctx context.Context, some []candidate) (hits []Hit, gone int, err error) {
	order := make([]int, len(some))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(a, b int) int {
		return cmp.Or(strings.Compare(some[a].name, some[b].name), cmp.Compare(some[a].seq, some[b].seq))
	})
	made := make([]*Hit, len(some))
	for len(order) > 0 {
		name, n := some[order[0]].name, 1
		for n < len(order) && some[order[n]].name == name {
			n++
		}
		of := order[:n]
		order = order[n:]
		view, err := r.view(ctx, name)
		if err != nil {
			return nil, 0, err
		}
		if view == nil {
			continue
		}
		gone += n
		of = slices.DeleteFunc(of, func(i int) bool { return some[i].epoch != view.State().Epoch })
		if len(of) < n {
			r.index.fellBehind(r.caller, []string{name}, false)
		}
		for len(of) > 0 {
			if err := ctx.Err(); err != nil {
				return nil, 0, err
			}
			of = pass(view, some, of, func(i int, rec history.Record) {
				if made[i] = r.hit(&some[i], rec); made[i] != nil {
					gone--
				}
			})
		}
	}
	for _, h := range made {
		if h != nil {
			hits = append(hits, *h)
		}
	}
	return hits, gone, nil
}

// view opens a conversation; nil when it can't be read now.
func (r *confirmation) view(ctx context.Context, name string) (history.View, error) {
	if v := r.views[name]; v != nil {
		return v, nil
	}
	v, err := r.index.record.Log(r.caller.scope, name).View(ctx)
	if err := cmp.Or(ctx.Err(), err); err != nil {
		if ctx.Err() != nil || errors.Is(err, history.ErrClosed) {
			return nil, err
		}
		r.behind = true
		return nil, nil
	}
	r.views[name] = v
	return v, nil
}

// pass reads the first of some candidates in a conversation, and those behind it in the same commit: one is read whole,
// whatever is wanted of it. It returns those that are left.
func pass(view history.View, some []candidate, of []int, take func(i int, rec history.Record)) []int {
	first := of[0]
	for rec, err := range view.Records(some[first].seq, some[of[len(of)-1]].seq) {
		if err != nil {
			break
		}
		for len(of) > 0 && some[of[0]].seq < rec.Seq { // in a gap
			of = of[1:]
		}
		if len(of) > 0 && some[of[0]].seq == rec.Seq {
			take(of[0], rec)
			of = of[1:]
		}
		if len(of) == 0 || some[of[0]].seq > rec.Last {
			break
		}
	}
	if len(of) > 0 && of[0] == first { // it can't be read
		of = of[1:]
	}
	return of
}

// hit returns what a candidate is in the record now; nil when it is no part of what is searched.
func (r *confirmation) hit(c *candidate, rec history.Record) *Hit {
	m, err := rec.Message()
	if err != nil {
		return nil
	}
	p, ok := passageOf(&m)
	if !ok || !r.query.within(m.At) {
		return nil
	}
	h := &Hit{
		Conversation: c.name, Epoch: c.epoch, Seq: c.seq, ID: m.ID, Role: m.Role, Kind: m.Kind, At: m.At, Score: c.score, Failed: m.ProviderError(),
		Relevance: r.relevance(float64(c.held)),
	}
	h.Snippet, h.Marks = r.marker.snippet(p.texts)
	return h
}
