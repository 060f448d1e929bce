package store

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
	"sync"

	"historyd/internal/durable"
	"historyd/internal/history"
)

// segmentName is the file name of segment n.
func segmentName(n int) string { return fmt.Sprintf("%08d.jsonl", n) }

func segmentNumber(name string) (int, bool) {
	digits, ok := strings.CutSuffix(name, ".jsonl")
	if !ok || len(digits) != 8 {
		return 0, false
	}
	n, err := strconv.Atoi(digits)
	return n, err == nil && n > 0
}

// extraHandles is how many segments beside the newest a transcript holds open.
const extraHandles = 2

// segments is the files of one transcript. Safe for concurrent use: reads share the
// lock, and ending them all waits for the reads under way.
type segments struct {
	fsys durable.FS
	dir  string

	whole sync.RWMutex // shared by reads of files that are none of the segments; taken before mu

	mu      sync.RWMutex // guards what follows
	numbers []int        // ascending
	spent   int          // highest number ever tried
	gone    bool         // cleared or closed: nothing may be read any more
	open    map[int]handle
	recent  []int // of open, oldest first
	headers map[int]headerInfo
}

type handle struct {
	durable.File
	write bool
}

// headerInfo is what reading needs to know of a segment's first line.
type headerInfo struct {
	ok      bool
	version bool  // another one: nothing of the segment is known
	first   int64 // the seq that comes next there
	prev    chained
	after   place
	header  header
}

func (g *segments) path(n int) string { return g.dir + "/" + segmentName(n) }

// readAt reads from segment n, opening it if need be.
func (g *segments) readAt(n int, p []byte, off int64) (int, error) {
	g.mu.RLock()
	f, gone := g.open[n], g.gone
	if f.File != nil && !gone {
		defer g.mu.RUnlock()
		return f.ReadAt(p, off)
	}
	g.mu.RUnlock()
	if gone {
		return 0, history.ErrGone
	}
	if err := g.openSegment(n, false); err != nil {
		return 0, err
	}
	return g.readAt(n, p, off)
}

func (g *segments) reader(n int) func([]byte, int64) (int, error) {
	return func(p []byte, off int64) (int, error) { return g.readAt(n, p, off) }
}

func (g *segments) size(n int) (int64, error) {
	g.mu.RLock()
	f, gone := g.open[n], g.gone
	if f.File != nil && !gone {
		defer g.mu.RUnlock()
		return f.Size()
	}
	g.mu.RUnlock()
	if gone {
		return 0, history.ErrGone
	}
	if err := g.openSegment(n, false); err != nil {
		return 0, err
	}
	return g.size(n)
}

func (g *segments) openSegment(n int, write bool) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.gone {
		return history.ErrGone
	}
	if h := g.open[n]; h.File != nil && (h.write || !write) {
		return nil
	}
	f, err := g.fsys.Open(g.path(n), write)
	if err != nil {
		return fmt.Errorf("open segment: %w", err)
	}
	g.hold(n, handle{f, write})
	return nil
}

// hold keeps a handle, and closes the oldest that is not the newest segment's. g.mu is held.
func (g *segments) hold(n int, f handle) {
	if old := g.open[n]; old.File != nil {
		_ = old.Close()
		g.recent = slices.DeleteFunc(g.recent, func(m int) bool { return m == n })
	}
	if g.open == nil {
		g.open = map[int]handle{}
	}
	g.open[n] = f
	g.recent = append(g.recent, n)
	newest := 0
	if len(g.numbers) > 0 {
		newest = g.numbers[len(g.numbers)-1]
	}
	for i := 0; i < len(g.recent) && len(g.recent) > extraHandles+1; {
		if m := g.recent[i]; m != newest && m != n {
			_ = g.open[m].Close()
			delete(g.open, m)
			g.recent = slices.Delete(g.recent, i, i+1)
			continue
		}
		i++
	}
}

// file returns the handle of segment n for whoever holds change, who alone writes;
// nobody else closes it.
func (g *segments) file(n int, write bool) (durable.File, error) {
	if err := g.openSegment(n, write); err != nil {
		return nil, err
	}
	g.mu.RLock()
	defer g.mu.RUnlock()
	return g.open[n].File, nil
}

// add makes a new segment known.
func (g *segments) add(n int, f durable.File) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.numbers = append(g.numbers, n)
	g.spent = max(g.spent, n)
	g.hold(n, handle{f, true})
}

// burn spends the number of a segment whose making failed half-way.
func (g *segments) burn(n int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.spent = max(g.spent, n)
}

// drop forgets a segment that was removed. Its number stays spent.
func (g *segments) drop(n int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.numbers = slices.DeleteFunc(g.numbers, func(m int) bool { return m == n })
	g.recent = slices.DeleteFunc(g.recent, func(m int) bool { return m == n })
	if h := g.open[n]; h.File != nil {
		_ = h.Close()
		delete(g.open, n)
	}
	delete(g.headers, n)
}

func (g *segments) nextNumber() int {
	g.mu.RLock()
	defer g.mu.RUnlock()
	return g.spent + 1
}

// end closes every handle; reads from now on find the conversation gone.
func (g *segments) end() {
	g.whole.Lock()
	defer g.whole.Unlock()
	g.mu.Lock()
	defer g.mu.Unlock()
	g.gone = true
	for _, f := range g.open {
		_ = f.Close()
	}
	g.open, g.recent = nil, nil
}

func (g *segments) ended() bool {
	g.mu.RLock()
	defer g.mu.RUnlock()
	return g.gone
}

func (g *segments) list() []int {
	g.mu.RLock()
	defer g.mu.RUnlock()
	return slices.Clone(g.numbers)
}

// headerOf reads the first line of segment n.
func (g *segments) headerOf(n int) (headerInfo, error) {
	g.mu.RLock()
	h, ok := g.headers[n]
	g.mu.RUnlock()
	if ok {
		return h, nil
	}
	size, err := g.size(n)
	if err != nil {
		return headerInfo{}, err
	}
	s := newScanner(g.reader(n), 0, size)
	s.chunk = probeChunk
	it, err := s.next()
	if err != nil && !errors.Is(err, io.EOF) {
		return headerInfo{}, err
	}
	if it.good {
		c, err := parseCommit(it.raw)
		if errors.Is(err, errVersion) {
			h.version = true
		} else if err == nil && c.Header != nil {
			h = headerInfo{ok: true, first: c.First, prev: chained{uint32(c.Prev), true}, after: c.Header.After, header: *c.Header}
		}
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.headers == nil || len(g.headers) > 4096 {
		g.headers = map[int]headerInfo{}
	}
	g.headers[n] = h
	return h, nil
}

// following returns the segment that continues segment n, or 0. Of several that were
// begun behind the same place only the last one counts: the making of the others failed.
func (g *segments) following(n int) (int, headerInfo, error) {
	numbers := g.list()
	i, _ := slices.BinarySearch(numbers, n)
	next, nextHeader := 0, headerInfo{}
	for _, m := range numbers[min(i+1, len(numbers)):] {
		h, err := g.headerOf(m)
		if err != nil {
			return 0, h, err
		}
		if next != 0 && (!h.ok || h.after.Segment >= next) {
			break
		}
		next, nextHeader = m, h
	}
	return next, nextHeader, nil
}

// sealedEnd is where the valid part of segment n ends by the header h behind it. What
// lies further on was never acknowledged, unless the line that the header continues
// does not end there: then bytes were put in before it, and it lies further on itself.
func (g *segments) sealedEnd(n int, h headerInfo) (int64, error) {
	size, err := g.size(n)
	if err != nil || size <= h.after.Offset || !h.prev.known {
		return min(size, h.after.Offset), err
	}
	end := make([]byte, min(frameTail, h.after.Offset))
	if _, err := g.readAt(n, end, h.after.Offset-int64(len(end))); err != nil {
		return 0, err
	}
	end, _ = bytes.CutSuffix(end, []byte("\n"))
	want := append(appendHex([]byte(frameCRC), h.prev.sum), frameClose...)
	if bytes.HasSuffix(end, want) {
		return h.after.Offset, nil
	}
	return size, nil
}

// firstSeq is where segment n begins; of one without a header, what its first frame says.
func (g *segments) firstSeq(n int) (int64, error) {
	h, err := g.headerOf(n)
	if err != nil || h.ok {
		return h.first, err
	}
	size, err := g.size(n)
	if err != nil {
		return 0, err
	}
	for s := newScanner(g.reader(n), 0, size); ; {
		it, err := s.next()
		if errors.Is(err, io.EOF) {
			return math.MaxInt64, nil
		}
		if err != nil {
			return 0, err
		}
		if first, _, ok := seqsOf(it.raw); it.good && ok {
			return first, nil
		}
	}
}

// segmentWith returns the index in numbers of the segment to look for seq in.
func (g *segments) segmentWith(numbers []int, seq int64) (int, error) {
	lo, hi := 0, len(numbers) // the answer is in [lo, hi)
	for hi-lo > 1 {
		mid := (lo + hi) / 2
		first, err := g.firstSeq(numbers[mid])
		if err != nil {
			return 0, err
		}
		if first <= seq {
			lo = mid
		} else {
			hi = mid
		}
	}
	return lo, nil
}

// linear is the stretch below which a line is looked for by reading on.
const linear = 64 << 10

// offsetOf returns the offset from where on a scan of segment n meets the first line
// whose last seq is at least seq, by halving the stretch [0, end), and what that scan
// continues from.
func (g *segments) offsetOf(n int, end, seq int64) (int64, chained, error) {
	lo, hi, chain := int64(0), end, chained{}
	for hi-lo > linear {
		mid := lo + (hi-lo)/2
		s := newScanner(g.reader(n), mid, hi)
		s.chunk = probeChunk
		it, err := firstGood(s)
		if err != nil {
			return 0, chain, err
		}
		_, last, ok := seqsOf(it.raw)
		switch {
		case !it.good || !ok:
			hi = mid
		case last < seq:
			lo, chain = it.end(), chained{it.sum, true}
		default:
			hi = mid
		}
	}
	return lo, chain, nil
}

// firstGood skips to the next line beginning and then to the first frame; an item
// that is not good when there is none.
func firstGood(s *scanner) (item, error) {
	if more, err := s.skipLine(); err != nil || !more {
		return item{}, err
	}
	for {
		it, err := s.next()
		if errors.Is(err, io.EOF) {
			return item{}, nil
		}
		if err != nil || it.good {
			return it, err
		}
	}
}
