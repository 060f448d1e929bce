package store

import (
	"bytes"
	"context"
	"errors"
	"io"
	"iter"
	"slices"

	"encoding/json/jsontext"

	"historyd/internal/history"
	"historyd/internal/strictjson"
)

// State implements history.Log.
func (l *log) State(ctx context.Context) (history.State, error) {
	t, err := l.store.acquire(ctx, l.key)
	if err != nil {
		return history.State{}, err
	}
	defer l.store.release(t)
	snap := t.state.Load()
	if snap.unreadable {
		return history.State{}, history.ErrDamaged
	}
	state := t.history(snap)
	state.Title = t.titleAt(snap)
	return state, nil
}

// titleAt reads the title once: it never changes in the life of a transcript.
func (t *transcript) titleAt(snap *snapshot) string {
	if snap.totals.Title.none() {
		return ""
	}
	t.titleOnce.Do(func() {
		c, err := t.commitAt(snap.totals.Title)
		if err != nil || c == nil {
			return
		}
		for r, err := range recordsOf(c) {
			if err != nil {
				return
			}
			m, err := r.Message()
			if err == nil && m.StartsTurn() && titleOf(&m) != "" {
				t.title = titleOf(&m)
				return
			}
		}
	})
	return t.title
}

// View implements history.Log.
func (l *log) View(ctx context.Context) (history.View, error) {
	t, err := l.store.acquire(ctx, l.key)
	if err != nil {
		return nil, err
	}
	snap := t.state.Load()
	if snap.unreadable {
		l.store.release(t)
		return nil, history.ErrDamaged
	}
	return &view{t: t, snap: snap, state: t.history(snap)}, nil
}

// view is a transcript as it was at one moment, pinned open.
type view struct {
	t      *transcript
	snap   *snapshot
	state  history.State
	closed bool
}

func (v *view) State() history.State { return v.state }

func (v *view) Damage() *history.Damage { return v.t.damaged() }

func (v *view) Close() {
	if !v.closed {
		v.closed = true
		v.t.store.release(v.t)
	}
}

func (v *view) Records(from, to int64) iter.Seq2[history.Record, error] {
	return v.t.records(v.snap, from, to)
}

func (v *view) Backward(before int64) iter.Seq2[history.Record, error] {
	return func(yield func(history.Record, error) bool) {
		for it, err := range v.t.backwardFrom(v.snap, before) {
			if err != nil {
				yield(history.Record{}, err)
				return
			}
			c, err := v.t.readable(it)
			if err != nil {
				yield(history.Record{}, err)
				return
			}
			if c == nil {
				continue
			}
			var records []history.Record
			for r, err := range recordsOf(c) {
				if err != nil {
					yield(history.Record{}, err)
					return
				}
				records = append(records, r)
			}
			for _, r := range slices.Backward(records) {
				if r.Seq < before && !yield(r, nil) {
					return
				}
			}
		}
	}
}

// place is an item and the segment that it is in.
type placed struct {
	item
	segment int
}

// readable decodes a placed item; nil, and the damage told, when it is none.
func (t *transcript) readable(p placed) (*commit, error) {
	if !p.good {
		t.tellDamage(place{p.segment, p.off}, int64(len(p.raw)), 0)
		return nil, nil
	}
	c, err := parseCommit(p.raw)
	if err != nil {
		return nil, errors.Join(history.ErrDamaged, err)
	}
	return c, nil
}

// records yields the messages of a snapshot with from <= seq <= to, ascending.
func (t *transcript) records(snap *snapshot, from, to int64) iter.Seq2[history.Record, error] {
	return func(yield func(history.Record, error) bool) {
		to = min(to, snap.last)
		if !snap.exists || from > to {
			return
		}
		seen := from - 1
		for p, err := range t.forward(snap, from) {
			if err != nil {
				yield(history.Record{}, classify(err))
				return
			}
			c, err := t.readable(p)
			if err != nil {
				yield(history.Record{}, err)
				return
			}
			if c == nil {
				continue
			}
			if c.First > to {
				return
			}
			if c.First > seen+1 {
				t.tellDamage(place{p.segment, p.off}, 0, c.First-seen-1)
			}
			for r, err := range recordsOf(c) {
				if err != nil {
					yield(r, err)
					return
				}
				if r.Seq >= from && r.Seq <= to && !yield(r, nil) {
					return
				}
			}
			seen = max(seen, c.Last)
			if c.Last >= to && c.First <= c.Last {
				return
			}
		}
	}
}

// forward yields the items from the line on that holds seq, to the end of the snapshot.
func (t *transcript) forward(snap *snapshot, seq int64) iter.Seq2[placed, error] {
	return func(yield func(placed, error) bool) {
		fail := func(err error) { yield(placed{}, err) }
		numbers := t.upTo(snap)
		i, err := t.files.segmentWith(numbers, seq)
		if err != nil {
			fail(err)
			return
		}
		for n, first := numbers[i], true; n != 0; first = false {
			next, end, err := t.extent(snap, n)
			if err != nil {
				fail(err)
				return
			}
			off := int64(0)
			if first {
				if off, err = t.files.offsetOf(n, end, seq); err != nil {
					fail(err)
					return
				}
			}
			s := newScanner(t.files.reader(n), off, end)
			for {
				it, err := s.next()
				if errors.Is(err, io.EOF) {
					break
				}
				if err != nil {
					fail(err)
					return
				}
				if !yield(placed{it, n}, nil) {
					return
				}
			}
			n = next
		}
	}
}

// upTo is the segments that a snapshot knows.
func (t *transcript) upTo(snap *snapshot) []int {
	numbers := t.files.list()
	i, found := slices.BinarySearch(numbers, snap.seg)
	if found {
		i++
	}
	return numbers[:max(1, i)]
}

// extent returns where the valid part of segment n ends, and the segment behind it.
func (t *transcript) extent(snap *snapshot, n int) (next int, end int64, err error) {
	if n == snap.seg {
		return 0, snap.off, nil
	}
	next, h, err := t.files.following(n)
	if err != nil {
		return 0, 0, err
	}
	if next > snap.seg {
		next = 0
	}
	size, err := t.files.size(n)
	if err != nil {
		return 0, 0, err
	}
	if next != 0 && h.ok && h.after.Segment == n {
		return next, min(size, h.after.Offset), nil
	}
	return next, size, nil
}

// backward yields the items before a place, the nearest first.
func (t *transcript) backward(snap *snapshot, at place) iter.Seq2[placed, error] {
	return func(yield func(placed, error) bool) {
		numbers := t.upTo(snap)
		i, found := slices.BinarySearch(numbers, at.Segment)
		if !found {
			i = len(numbers) - 1
		}
		end := at.Offset
		for n := numbers[i]; ; {
			if !t.backwardIn(n, end, yield) {
				return
			}
			prev, off, err := t.before(snap, numbers, n)
			if err != nil {
				yield(placed{}, err)
				return
			}
			if prev == 0 {
				return
			}
			n, end = prev, off
		}
	}
}

// before returns the segment that segment n continues, and where its valid part ends.
func (t *transcript) before(snap *snapshot, numbers []int, n int) (int, int64, error) {
	h, err := t.files.headerOf(n)
	if err != nil {
		return 0, 0, err
	}
	if h.ok {
		if !slices.Contains(numbers, h.after.Segment) {
			return 0, 0, nil
		}
		size, err := t.files.size(h.after.Segment)
		return h.after.Segment, min(size, h.after.Offset), err
	}
	i, _ := slices.BinarySearch(numbers, n)
	if i == 0 {
		return 0, 0, nil
	}
	size, err := t.files.size(numbers[i-1])
	return numbers[i-1], size, err
}

// backwardIn yields the items of [0, end) of one segment from the end; false when
// the reader has had enough or got an error.
func (t *transcript) backwardIn(n int, end int64, yield func(placed, error) bool) bool {
	size := int64(16 << 10)
	for end > 0 {
		from := max(0, end-size)
		chunk, err := t.readStretch(n, from, end)
		if err != nil {
			yield(placed{}, classify(err))
			return false
		}
		if from > 0 {
			// The stretch begins within a line: leave that one for the next round.
			i := bytes.IndexByte(chunk, '\n')
			if i < 0 || i == len(chunk)-1 {
				size *= 4
				continue
			}
			chunk, from = chunk[i+1:], from+int64(i+1)
		}
		items, err := itemsOf(chunk, from)
		if err != nil {
			yield(placed{}, err)
			return false
		}
		for _, it := range slices.Backward(items) {
			if !yield(placed{it, n}, nil) {
				return false
			}
		}
		end = from
		size = min(size*2, 1<<20)
	}
	return true
}

func itemsOf(chunk []byte, from int64) ([]item, error) {
	s := newScanner(func(p []byte, off int64) (int, error) {
		return copy(p, chunk[off-from:]), nil
	}, from, from+int64(len(chunk)))
	s.chunk = len(chunk)
	var items []item
	for {
		it, err := s.next()
		if errors.Is(err, io.EOF) {
			return items, nil
		}
		if err != nil {
			return nil, err
		}
		items = append(items, it)
	}
}

// backwardFrom yields the items with messages before seq, the nearest first.
func (t *transcript) backwardFrom(snap *snapshot, seq int64) iter.Seq2[placed, error] {
	return func(yield func(placed, error) bool) {
		if !snap.exists || seq <= 1 {
			return
		}
		end := place{snap.seg, snap.off}
		if seq <= snap.last {
			for p, err := range t.forward(snap, seq) {
				if err != nil {
					yield(placed{}, classify(err))
					return
				}
				first, last, ok := seqsOf(p.raw)
				if !p.good || !ok || last < seq {
					continue
				}
				end = place{p.segment, p.off}
				if first < seq && !yield(p, nil) {
					return
				}
				break
			}
		}
		t.backward(snap, end)(yield)
	}
}

// recordsOf yields the messages of a commit.
func recordsOf(c *commit) iter.Seq2[history.Record, error] {
	return func(yield func(history.Record, error) bool) {
		if len(c.Messages) == 0 {
			return
		}
		seq := c.First
		for _, v := range (strictjson.Value{Raw: c.Messages}).Elements() {
			if !yield(history.Record{Seq: seq, JSON: jsontext.Value(v.Raw)}, nil) {
				return
			}
			seq++
		}
	}
}

// lookBackBytes is how far FindCall goes back at the least, beside MinLookBack messages.
const lookBackBytes = 16 << 20

// FindCall implements history.Log. A line is decoded only when it has the id in it.
func (l *log) FindCall(ctx context.Context, id string) (history.FoundCall, error) {
	t, err := l.store.acquire(ctx, l.key)
	if err != nil {
		return history.FoundCall{}, err
	}
	defer l.store.release(t)
	snap := t.state.Load()
	if !snap.exists {
		return history.FoundCall{}, history.ErrNotFound
	}
	var seen int64
	for p, err := range t.backward(snap, place{snap.seg, snap.off}) {
		if err != nil {
			return history.FoundCall{}, classify(err)
		}
		seen += int64(len(p.raw))
		first, _, ok := seqsOf(p.raw)
		if seen > lookBackBytes && ok && first < snap.last-history.MinLookBack {
			return history.FoundCall{}, history.ErrTooFar
		}
		if !p.good || !lineCouldHold(p.raw, id) {
			continue
		}
		if found, ok, err := t.callIn(p, id); err != nil || ok {
			return found, err
		}
	}
	return history.FoundCall{}, history.ErrNotFound
}

func (t *transcript) callIn(p placed, id string) (history.FoundCall, bool, error) {
	c, err := t.readable(p)
	if err != nil || c == nil {
		return history.FoundCall{}, false, err
	}
	found, ok := history.FoundCall{Note: c.Note}, false
	for r, err := range recordsOf(c) {
		if err != nil {
			return found, false, err
		}
		m, err := r.Message()
		if err != nil {
			return found, false, errors.Join(history.ErrDamaged, err)
		}
		for i := range m.Content {
			if b := &m.Content[i]; b.Type == history.ToolCall && b.ID == id {
				found.Name, ok = b.Name, true
			}
		}
	}
	return found, ok, nil
}
