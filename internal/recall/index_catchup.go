package recall

import (
	"cmp"
	"context"
	"errors"
	"hash/maphash"
	"slices"
	"time"

	"historyd/internal/history"
)

// batchText is how much text is indexed under one hold of the caller's lock, so that searches wait for no more.
const batchText = 128 << 10

// walkPage is how many conversations are compared at a time.
const walkPage = 500

// The worker lets what changes gather, because to index one message of a conversation costs little less than to index
// ten, and rests for some times as long as it worked, so that a busy record has the processor.
const (
	gatherFor = time.Second
	restShare = 4
)

// errStale is for what was read before something was forgotten: it must not be indexed.
var errStale = errors.New("read before something was forgotten")

// worker catches up with what was touched, one caller at a time, and keeps the number of callers down. Nobody waits for
// it: a search has what it needs indexed at once. Close ends it.
func (x *Index) worker() {
	for rest := gatherFor; ; {
		select {
		case <-x.wake:
		case <-x.life.Done():
			return
		}
		select {
		case <-time.After(rest):
		case <-x.hurry:
		case <-x.life.Done():
			return
		}
		start := time.Now()
		for c := x.nextBehind(); c != nil; c = x.nextBehind() {
			if done := x.catchUp(c, false); done != nil {
				<-done
			}
			x.trim()
		}
		x.trim()
		rest = max(gatherFor, restShare*time.Since(start))
	}
}

// nextBehind returns a caller of whom something is behind and nobody is at it.
func (x *Index) nextBehind() *caller {
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, c := range x.callers {
		if c.flight == nil && (len(c.behind) > 0 || c.walk) && x.life.Err() == nil {
			return c
		}
	}
	return nil
}

// catchUp has everything indexed that is behind now, by one goroutine a caller. It returns a channel that is closed
// when that is done or has failed, or nil when there is nothing to do. With all, every conversation is compared with
// the record, unless that was done before.
func (x *Index) catchUp(c *caller, all bool) <-chan struct{} {
	x.mu.Lock()
	defer x.mu.Unlock()
	if len(c.later) > 0 && !x.now().Before(c.laterAt) {
		for name := range c.later {
			c.touch(name)
		}
		clear(c.later)
	}
	c.walk = c.walk || all && !c.walked
	if c.flight != nil || len(c.behind) == 0 && !c.walk || x.closed {
		return c.flight
	}
	done := make(chan struct{})
	c.flight = done
	c.users++
	x.work.Add(1) // as acquire does
	x.work.Go(func() {
		defer x.release(c)
		x.run(c)
		close(done)
	})
	return done
}

// run is a flight.
func (x *Index) run(c *caller) {
	for {
		name, walk, ok := x.next(c)
		if !ok {
			return
		}
		var err error
		if walk {
			err = x.walk(c)
		} else {
			err = x.index(c, name)
		}
		if err == nil || x.life.Err() != nil {
			continue
		}
		if !walk {
			x.fail(c, name, err)
			continue
		}
		x.metrics.failures.Inc()
		x.log.WarnContext(x.life, "conversations not compared with the index", "scope", c.scope, "error", err)
		x.mu.Lock()
		c.walked = false // The next search tries again.
		x.mu.Unlock()
	}
}

// next takes what to do next; when nothing is left it ends the flight.
func (x *Index) next(c *caller) (name string, walk, ok bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.life.Err() == nil {
		for name := range c.behind {
			delete(c.behind, name)
			return name, false, true
		}
		if c.walk {
			c.walk, c.walked = false, true
			return "", true, true
		}
	}
	c.flight = nil
	return "", false, false
}

// incomplete reports whether anything of the caller is known not to be indexed.
func (x *Index) incomplete(c *caller) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return len(c.behind) > 0 || len(c.later) > 0 || c.walk || !c.walked || c.flight != nil || len(c.held) > 0 || c.heldAll > 0
}

// walk compares every conversation with the record, and indexes what is missing. Conversations that are only in the
// index are looked at as well.
func (x *Index) walk(c *caller) error {
	seed := maphash.MakeSeed()
	listed := map[uint64]bool{}
	for cursor := ""; ; {
		page, err := x.record.List(x.life, c.scope, cursor, walkPage)
		if err != nil {
			return err
		}
		for i := range page.Items {
			s := &page.Items[i]
			listed[maphash.String(seed, s.Name)] = true
			if err := x.index(c, s.Name); err != nil {
				x.fail(c, s.Name, err)
			}
		}
		if cursor = page.Next; cursor == "" {
			break
		}
	}
	return x.missing(c, func(name string) bool { return listed[maphash.String(seed, name)] })
}

// missing has the conversations looked at that the index holds and the record does not list.
func (x *Index) missing(c *caller, listed func(name string) bool) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := x.load(c); err != nil {
		return err
	}
	var names []string
	see := func(s stretch) {
		if !listed(s.name) && len(names) < maxBehind {
			names = append(names, s.name)
		}
	}
	for _, s := range slices.Clone(c.segments) {
		r, err := x.open(c, s)
		if err == nil {
			err = r.all(see)
			r.close()
		}
		if err != nil {
			if err := x.unread(c, s, err); err != nil {
				return err
			}
		}
	}
	for _, s := range c.mem.stretches {
		see(s)
	}
	x.fellBehind(c, names, false)
	return nil
}

// A coverage is which messages of a conversation are indexed.
type coverage struct {
	epoch string // "" when none is
	torn  bool   // stretches are of more than one epoch
	runs  []stretch
}

// gaps returns what is missing of 1..last.
func (v *coverage) gaps(last int64) []stretch {
	var gaps []stretch
	next := int64(1)
	for _, r := range v.runs {
		if r.from > next {
			gaps = append(gaps, stretch{from: next, through: r.from - 1})
		}
		next = max(next, r.through+1)
	}
	if next <= last {
		gaps = append(gaps, stretch{from: next, through: last})
	}
	return gaps
}

// differs reports whether the record holds another message than the index where that ends, as it does when a copy of the
// conversation was put back.
func (v *coverage) differs(view history.View) (bool, error) {
	if len(v.runs) == 0 {
		return false, nil
	}
	end := slices.MaxFunc(v.runs, func(a, b stretch) int { return cmp.Compare(a.through, b.through) })
	id := ""
	for rec, err := range view.Records(end.through, end.through) {
		if err != nil {
			return false, err
		}
		if m, err := rec.Message(); err == nil {
			id = m.ID
		}
	}
	return id != end.last, nil
}

// coverage finds out what is indexed of a conversation, and how much was forgotten before.
func (x *Index) coverage(c *caller, name string) (coverage, uint64, error) {
	c.mu.RLock()
	if c.loaded {
		defer c.mu.RUnlock()
		v, bad, err := x.covered(c, name)
		if bad == nil {
			return v, c.gen, err
		}
		return v, c.gen, errStale // Under the other lock it is mended.
	}
	c.mu.RUnlock()
	return x.coverageLocked(c, name)
}

// coverageLocked is coverage that may load, and remove what is spoilt.
func (x *Index) coverageLocked(c *caller, name string) (coverage, uint64, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := x.load(c); err != nil {
		return coverage{}, 0, err
	}
	for {
		v, bad, err := x.covered(c, name)
		if bad == nil {
			return v, c.gen, err
		}
		if err := x.remove(c, bad, "torn"); err != nil {
			return coverage{}, 0, err
		}
	}
}

// covered returns what is indexed of a conversation, or a segment that is spoilt. c.mu is held.
func (x *Index) covered(c *caller, name string) (v coverage, bad *segment, err error) {
	add := func(s stretch) {
		v.torn = v.torn || v.epoch != "" && v.epoch != s.epoch
		v.epoch = s.epoch
		v.runs = append(v.runs, s)
	}
	for _, s := range c.segments {
		if err := x.stretches(c, s, name, add); spoilt(err) {
			return v, s, nil
		} else if err != nil {
			return v, nil, err
		}
	}
	of, _ := c.mem.of(name)
	for _, i := range of {
		add(c.mem.stretches[i])
	}
	slices.SortFunc(v.runs, func(a, b stretch) int { return int(a.from - b.from) })
	return v, nil, nil
}

// stretches visits those of a conversation in one segment.
func (x *Index) stretches(c *caller, s *segment, name string, visit func(stretch)) error {
	r, err := x.open(c, s)
	if err != nil {
		return err
	}
	defer r.close()
	of, err := r.of(name)
	for _, i := range of {
		e, bad := r.stretch(i)
		if bad != nil {
			return bad
		}
		visit(e)
	}
	return err
}

// index has a conversation in the index as it is in the record now.
func (x *Index) index(c *caller, name string) error {
	for {
		err := x.indexOnce(c, name)
		if errors.Is(err, errHeld) {
			return nil
		}
		if !errors.Is(err, errStale) && !errors.Is(err, history.ErrGone) {
			return err
		}
		if err := x.life.Err(); err != nil {
			return err
		}
	}
}

func (x *Index) indexOnce(c *caller, name string) error {
	have, gen, err := x.coverage(c, name)
	if errors.Is(err, errStale) {
		have, gen, err = x.coverageLocked(c, name)
	}
	if err != nil {
		return err
	}
	if x.isHeld(c, name) { // gen may be of after the forgetting, and the record still as before the change
		return errHeld
	}
	view, err := x.record.Log(c.scope, name).View(x.life)
	if err != nil {
		return err
	}
	defer view.Close()
	state := view.State()
	other := have.torn || have.epoch != "" && have.epoch != state.Epoch
	if !other {
		if other, err = have.differs(view); err != nil {
			return err
		}
	}
	if other {
		return x.outdated(c, name, gen)
	}
	if !state.Exists() {
		return nil
	}
	for _, gap := range have.gaps(state.LastSeq) {
		if err := x.fill(c, gen, view, stretch{name: name, epoch: state.Epoch, from: gap.from, through: gap.through}); err != nil {
			return err
		}
	}
	return nil
}

// outdated removes what is indexed of another life of the conversation, or of what was rewound since.
func (x *Index) outdated(c *caller, name string, gen uint64) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.gen != gen {
		return errStale
	}
	c.gen++
	if err := x.drop(c, name); err != nil {
		return err
	}
	return errStale // It is read again.
}

// fill indexes a stretch of a conversation.
func (x *Index) fill(c *caller, gen uint64, view history.View, part stretch) error {
	var batch []passage
	size, next := 0, part // next is what is not in the index yet
	for rec, err := range view.Records(part.from, part.through) {
		if err == nil {
			err = x.life.Err()
		}
		if err != nil {
			return err
		}
		next.through, next.last = rec.Seq, ""
		m, err := rec.Message()
		if err != nil { // It is in the record, and nothing will make it readable.
			x.metrics.failures.Inc()
			continue
		}
		next.last = m.ID
		p, ok := passageOf(&m)
		if !ok {
			continue
		}
		batch = append(batch, p)
		for _, t := range p.texts {
			size += len(t)
		}
		if size >= batchText {
			if err := x.add(c, gen, next, batch); err != nil {
				return err
			}
			batch, size = batch[:0], 0
			next.from, next.through = rec.Seq+1, rec.Seq
		}
	}
	if next.from > part.through {
		return nil
	}
	if next.through != part.through { // What is lost at the end is covered as well.
		next.through, next.last = part.through, ""
	}
	return x.add(c, gen, next, batch)
}

// add puts messages into the memtable, unless something was forgotten since they were read.
func (x *Index) add(c *caller, gen uint64, part stretch, batch []passage) error {
	if err := x.addLocked(c, gen, part, batch); err != nil {
		return err
	}
	for x.memory.Load() > x.memLimit {
		if err := x.relieve(); err != nil {
			return err
		}
	}
	return nil
}

func (x *Index) addLocked(c *caller, gen uint64, part stretch, batch []passage) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.gen != gen {
		return errStale
	}
	in := c.mem.cover(part)
	for i := range batch {
		c.mem.add(in, &batch[i])
	}
	x.sized(c)
	x.metrics.messages.Add(float64(len(batch)))
	if c.mem.text >= maxSegmentText || c.mem.docs() >= maxSegmentDocs || len(c.mem.stretches) >= maxSegmentStretches {
		return x.flush(c)
	}
	return nil
}

// pause is how long a search whose time is limited waits for the index to catch up.
func pause(ctx context.Context) (time.Duration, bool) {
	end, ok := ctx.Deadline()
	return time.Until(end) * 3 / 4, ok
}
