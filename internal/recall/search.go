package recall

import (
	"cmp"
	"context"
	"math"
	"slices"
	"time"

	"historyd/internal/history"
	"historyd/internal/identity"
)

// Results are one page of a search.
type Results struct {
	Hits   []Hit
	Next   string // cursor of the next page; empty on the last
	Total  int    // an estimate of all hits
	Behind bool   // not all of the record was searched: some of it is not indexed yet, or can't be
}

// A Hit is a message that was found. It is in the record, and not rewound, at the time of the search.
type Hit struct {
	Conversation string
	Epoch        string // of the conversation: another one later says that it was cleared or rewound
	Seq          int64
	ID           string
	Role         history.Role
	Kind         history.Kind
	At           time.Time
	Failed       bool    // it is a provider's error in place of an answer
	Score        float64 // comparable within one search only
	Relevance    float64 // how much of what was asked the message holds, by weight: 0 to 1
	Snippet      string  // of its text, on one line
	Marks        [][2]int
	// Marks are the words found in Snippet: code points from, included, to, excluded.
}

// The parameters of BM25, and what is made of it: answers count more than what was asked, because a question is much
// like another one that asks the same, and what was asked counts for its answers; words that say little count little
// beside others; words that stand next to each other in the query and in a message count more, and so do messages of
// a conversation that holds more of what was asked; and a message of a few words is no better for that than one of half
// the usual length.
const (
	bm25K1       = 1.2
	bm25B        = 0.75
	answerWeight = 1.2
	askedWeight  = 0.3
	commonWeight = 0.1
	nearWeight   = 0.6
	aroundWeight = 0.3
	shortLength  = 0.5 // of the average
)

// maxAside is how many messages before an answer are looked through for what was asked.
const maxAside = 64

const (
	maxExpansions = 256 // terms of a prefix, in one segment
	spareHits     = 32  // ranked besides a page, for those that the record does not confirm
)

// Search finds messages of one caller. What was touched before is found: it is indexed first. When ctx has a deadline,
// a part of the time is kept for searching what there is by then, and Results.Behind tells. Errors are ErrBadQuery,
// ErrBadCursor, history.ErrClosed, those of ctx, and those of reading files.
func (x *Index) Search(ctx context.Context, scope identity.Scope, q Query) (Results, error) {
	start := time.Now()
	res, err := x.search(ctx, scope, &q)
	x.metrics.searched(start, &res, err)
	return res, err
}

func (x *Index) search(ctx context.Context, scope identity.Scope, q *Query) (Results, error) {
	units, err := q.parse()
	if err != nil {
		return Results{}, err
	}
	after, err := q.place(scope)
	if err != nil {
		return Results{}, err
	}
	c, err := x.acquire(scope)
	if err != nil {
		return Results{}, err
	}
	defer x.release(c)
	f := &finder{ctx: ctx, query: q, after: after, max: q.limit() + spareHits, width: x.width}
	f.best.newest = q.Sort == Newest
	for mended := true; mended; {
		if err := x.await(ctx, c, q.Conversation); err != nil {
			return Results{}, err
		}
		f.units = slices.Clone(units)
		if mended, err = x.rank(ctx, c, f); err != nil {
			return Results{}, err
		}
	}
	return x.confirm(ctx, c, f)
}

// await has the index catch up, for as long as there is time.
func (x *Index) await(ctx context.Context, c *caller, conversation string) error {
	if conversation != "" {
		x.mu.Lock()
		c.touch(conversation)
		x.mu.Unlock()
	}
	done := x.catchUp(c, conversation == "")
	if done == nil {
		return ctx.Err()
	}
	var enough <-chan time.Time
	if d, ok := pause(ctx); ok {
		t := time.NewTimer(d)
		defer t.Stop()
		enough = t.C
	}
	select {
	case <-done:
	case <-enough:
	case <-ctx.Done():
	}
	return ctx.Err()
}

// A source is a part of an index: a segment or the memtable.
type source interface {
	counts() (docs int, tokens int64)
	find(term string) (entry, error)
	list(e entry) (termList, error) // may read much; find does not
	expand(prefix string, visit func(term []byte, df int, load func() (termList, error)) bool) error
	docRows() ([]byte, error) // docSize bytes of each document
	stretch(i uint32) (stretch, error)
	of(conversation string) ([]uint32, error)
}

// A termList is the postings of one term and how many documents they are of.
type termList struct {
	data []byte
	df   int
}

// A finder is one search at work.
type finder struct {
	ctx     context.Context
	query   *Query
	units   []unit
	after   *rank
	max     int
	width   int         // sources at a time
	weights [][]float64 // of the terms of each unit
	asked   float64     // their sum, of units that are not excluded
	docs    int         // in all sources
	average float64     // tokens of a document
	best    candidates
	total   int
	room    *scores // while a source is gone through
}

// rank finds the best documents of a caller. It reports whether something was found spoilt and removed, so that it has
// to be done again.
func (x *Index) rank(ctx context.Context, c *caller, f *finder) (mended bool, err error) {
	if err := x.searches.enter(ctx, c.scope); err != nil {
		return false, err
	}
	defer x.searches.leave(c.scope)
	bad, err := x.rankOnce(c, f)
	if bad == nil {
		return false, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if !slices.Contains(c.segments, bad) {
		return true, nil
	}
	return true, x.unread(c, bad, err)
}

// rankOnce returns the segment that was spoilt, if it was for that.
func (x *Index) rankOnce(c *caller, f *finder) (*segment, error) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	sources := []source{c.mem}
	at := func(i int) *segment {
		if i == 0 {
			return nil
		}
		return c.segments[i-1]
	}
	for _, s := range c.segments {
		r, err := x.open(c, s)
		if spoilt(err) {
			return s, err
		}
		if err != nil {
			return nil, err
		}
		defer r.close()
		sources = append(sources, r)
	}
	f.best.list, f.total = f.best.list[:0], 0
	i, err := f.weigh(sources)
	if err == nil {
		i, err = f.score(sources)
	}
	if spoilt(err) {
		return at(i), err
	}
	return nil, err
}

// weigh gives every term its weight, by how rare it is in all sources, and leaves out the commonest of too many words.
// It returns the number of the source that an error is of.
func (f *finder) weigh(sources []source) (int, error) {
	docs, tokens := 0, int64(0)
	for _, s := range sources {
		n, t := s.counts()
		docs, tokens = docs+n, tokens+t
	}
	f.average = max(1, float64(tokens)/float64(max(1, docs)))
	if k, err := f.aliases(sources); err != nil {
		return k, err
	}
	counts, k, err := f.frequencies(sources)
	if err != nil {
		return k, err
	}
	f.weights = make([][]float64, len(f.units))
	for i := range f.units {
		u := &f.units[i]
		f.weights[i] = make([]float64, len(u.terms))
		for j := range u.terms {
			n := float64(min(counts[i][j].most(), docs))
			f.weights[i][j] = math.Log(1 + (float64(docs)-n+0.5)/(n+0.5))
			if u.common {
				f.weights[i][j] *= commonWeight
			}
		}
	}
	f.fewer()
	f.docs, f.asked = docs, 0
	for i := range f.units {
		for _, w := range f.weights[i] {
			if !f.units[i].not {
				f.asked += w
			}
		}
	}
	return 0, nil
}

// In a record of so many messages hardly a word of a query is in any, whatever it is about; and in one of so many a word
// that is in none says that it is about something else.
const few, plenty = 100, 1000

// relevance is what a message holds of the query as a share of it, by weight. The fewer messages there are, the less is
// taken for all.
func (f *finder) relevance(held float64) float64 {
	all := f.asked * min(1, math.Log(float64(f.docs)/few)/math.Log(plenty/few))
	if held >= all {
		return 1
	}
	return held / all
}

// fewer leaves the rarest of too many optional words.
func (f *finder) fewer() {
	var optional []int
	for i := range f.units {
		if u := &f.units[i]; !u.must && !u.not {
			optional = append(optional, i)
		}
	}
	if len(optional) <= maxScored {
		return
	}
	heaviest := func(i int) float64 { return slices.Max(f.weights[i]) }
	slices.SortStableFunc(optional, func(a, b int) int { return cmp.Compare(heaviest(b), heaviest(a)) })
	drop := map[int]bool{}
	for _, i := range optional[maxScored:] {
		drop[i] = true
	}
	var units []unit
	var weights [][]float64
	for i := range f.units {
		if !drop[i] {
			units, weights = append(units, f.units[i]), append(weights, f.weights[i])
		}
	}
	f.units, f.weights = units, weights
}

// each visits the terms that a unit's term stands for in a source: how many documents, and a way to their postings. Of
// an optional prefix that is a bounded number of terms.
func (f *finder) each(s source, u *unit, term string, visit func(df int, load func() (termList, error)) error) error {
	if err := f.ctx.Err(); err != nil {
		return err
	}
	if u.prefix {
		n := 0
		var bad error
		err := s.expand(term, func(_ []byte, df int, load func() (termList, error)) bool {
			if n++; n > maxExpansions && !u.not && !u.must {
				return false
			}
			if n%256 == 0 {
				bad = f.ctx.Err()
			}
			bad = cmp.Or(bad, visit(df, load))
			return bad == nil
		})
		return cmp.Or(err, bad)
	}
	for _, t := range u.forms(term) {
		e, err := s.find(t)
		if err == nil && e.df > 0 {
			err = visit(e.df, func() (termList, error) { return s.list(e) })
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// choose keeps the best of the documents that were scored.
func (f *finder) choose(s source, within []uint32, must uint8) error {
	q, room := f.query, f.room
	filtered := within != nil || q.Role != "" || !q.After.IsZero() || !q.Before.IsZero() || q.AfterSeq > 0 || q.BeforeSeq > 0
	for i, score := range room.score {
		if score <= 0 || room.out[i] || room.hits[i] != must {
			continue
		}
		full := !filtered && !f.best.newest && f.after == nil && len(f.best.list) >= f.max
		if full && (score+askedWeight*room.best)*answerWeight < f.best.list[0].score {
			f.total++
			continue
		}
		d := readDoc(room.rows[i*docSize:])
		if filtered && !f.passes(d, within) {
			continue
		}
		f.total++
		held := room.held[i]
		if int(d.role) == roleNumber(history.Assistant) {
			if asked := room.asking(i, d.stretch); asked >= 0 && !room.out[asked] && room.hits[asked] == must {
				score, held = score+askedWeight*room.score[asked], max(held, room.held[asked])
			}
			score *= answerWeight
		}
		score *= 1 - aroundWeight + aroundWeight*min(1, float64(room.known[d.stretch])/f.asked)
		if full && score < f.best.list[0].score {
			continue
		}
		e, err := s.stretch(d.stretch)
		if err != nil {
			return err
		}
		f.offer(candidate{rank{score, d.at, e.name, d.seq}, e.epoch, held, d.role, d.ref})
	}
	return nil
}

func (f *finder) passes(d doc, within []uint32) bool {
	q := f.query
	switch {
	case within != nil && !slices.Contains(within, d.stretch),
		q.Role != "" && (int(d.role) >= len(roleNumbers) || string(roleNumbers[d.role]) != q.Role),
		!q.After.IsZero() && d.at < q.After.UnixMilli(), // of the same one the record knows more
		!q.Before.IsZero() && d.at > q.Before.UnixMilli(),
		q.AfterSeq > 0 && d.seq <= q.AfterSeq,
		q.BeforeSeq > 0 && d.seq >= q.BeforeSeq:
		return false
	}
	return true
}

// within reports whether a time is between the limits of the query.
func (q *Query) within(at time.Time) bool {
	return (q.After.IsZero() || at.After(q.After)) && (q.Before.IsZero() || at.Before(q.Before))
}

// offer takes a candidate if it is behind the cursor and among the best so far.
func (f *finder) offer(c candidate) {
	newest := f.best.newest
	if f.after != nil && !f.after.before(c.rank, newest) {
		return
	}
	if len(f.best.list) >= f.max && !c.before(f.best.list[0].rank, newest) {
		return
	}
	if f.query.Exclude != nil && f.query.Exclude(c.place()) {
		f.total--
		return
	}
	f.best.keep(c, f.max)
}
