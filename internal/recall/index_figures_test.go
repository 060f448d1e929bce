package recall

import (
	"context"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"historyd/internal/durable"
	"historyd/internal/durable/crashfs"
	"historyd/internal/history"
)

// A writer makes text in which few words are common and most are rare, as in a language.
type writer struct {
	zipf  *rand.Zipf
	words []string
}

func newWriter(seed uint64) *writer {
	rng := rand.New(rand.NewPCG(seed, 1))
	const size = 60_000
	w := &writer{zipf: rand.NewZipf(rng, 1.1, 3, size-1)}
	for len(w.words) < size {
		var b strings.Builder
		for range 1 + rng.IntN(4) {
			b.WriteString([]string{"ba", "con", "de", "fir", "gu", "ho", "ing", "ka", "lo", "men", "na", "per", "re", "st", "ti", "vo", "xe"}[rng.IntN(17)])
		}
		w.words = append(w.words, b.String())
	}
	return w
}

func (w *writer) text(size int) string {
	var b strings.Builder
	for b.Len() < size {
		b.WriteString(w.words[w.zipf.Uint64()])
		b.WriteByte(' ')
	}
	return b.String()
}

// write appends n messages of about 1 KB over so many conversations, and returns the bytes of their text.
func (w *writer) write(t testing.TB, s *shelf, n, conversations int) int64 {
	t.Helper()
	scope := scopeNamed(t, "ann")
	total := int64(0)
	const batch = 10
	for i := 0; i < n; i += batch {
		var b history.Batch
		for range min(batch, n-i) {
			text := w.text(1000)
			total += int64(len(text))
			b.Messages = append(b.Messages, history.Message{
				Role: history.User, Kind: history.Person, Status: history.Complete, Content: []history.Block{history.Text(text)},
			})
		}
		if _, err := s.store.Log(scope, fmt.Sprintf("c%04d", i/batch%conversations)).Append(context.Background(), b); err != nil {
			t.Fatal(err)
		}
	}
	return total
}

func TestTheIndexIsSmallerThanTheTextAndItsMemoryBounded(t *testing.T) {
	s := newShelf(t)
	s.finish()
	total := newWriter(1).write(t, s, 6000, 10)
	const limit = 4 << 20
	x, err := NewIndex(SearchOptions{FS: s.disk, Record: s.store, MaxMemory: limit})
	if err != nil {
		t.Fatal(err)
	}
	s.index = x
	scope := scopeNamed(t, "ann")
	if res := s.search(scope, Query{Text: "bacon"}); res.Behind {
		t.Error("a search without a deadline: got behind, want all of it searched")
	}
	if got := x.memory.Load(); got > limit/2 {
		t.Errorf("what is not written: got %d bytes, want at most %d", got, limit/2)
	}
	for _, q := range []string{"ba con de fir gu ho ka lo", `"ba con"`, "ba* -con"} {
		s.search(scope, Query{Text: q})
	}
	if got := x.cache.size; got > limit/2 {
		t.Errorf("what is cached: got %d bytes, want at most %d", got, limit/2)
	}
	s.close()
	size := int64(0)
	for _, data := range s.disk.Files() {
		size += int64(len(data))
	}
	t.Logf("text %d bytes, index %d bytes: %.2f", total, size, float64(size)/float64(total))
	if size > total {
		t.Errorf("index: got %d bytes, want no more than the %d of the text", size, total)
	}
}

func TestManyCallersAreNotKeptInMemory(t *testing.T) {
	s := newShelf(t)
	for i := range maxCallers + 40 {
		s.say(scopeNamed(t, fmt.Sprintf("caller%d", i)), "a", fmt.Sprintf("apple number%d", i))
	}
	for i := range maxCallers + 40 {
		s.finds(scopeNamed(t, fmt.Sprintf("caller%d", i)), Query{Text: "apple"}, "a/1")
	}
	s.index.mu.Lock()
	n := len(s.index.callers)
	s.index.mu.Unlock()
	if n > maxCallers+40 {
		t.Errorf("callers in memory: got %d", n)
	}
	s.index.trim()
	s.index.mu.Lock()
	n = len(s.index.callers)
	s.index.mu.Unlock()
	if n > maxCallers {
		t.Errorf("callers in memory, after trim: got %d, want at most %d", n, maxCallers)
	}
	for i := range maxCallers + 40 {
		s.finds(scopeNamed(t, fmt.Sprintf("caller%d", i)), Query{Text: fmt.Sprintf("number%d", i)}, "a/1")
	}
}

// BenchmarkSearch measures 100,000 messages of 1 KB of one caller, on the disk of this machine.
func BenchmarkSearch(b *testing.B) {
	dir := b.TempDir()
	if err := os.Chmod(dir, 0o700); err != nil {
		b.Fatal(err)
	}
	fsys, err := durable.Open(dir)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { fsys.Close() })
	s := &shelf{t: b, store: openStore(b, fsys)}
	w := newWriter(1)
	total := w.write(b, s, 100_000, 500)
	scope := scopeNamed(b, "ann")
	open := func() {
		x, err := NewIndex(SearchOptions{FS: fsys, Record: s.store})
		if err != nil {
			b.Fatal(err)
		}
		s.index = x
	}
	open()
	before := heapInUse()
	start := time.Now()
	s.search(scope, Query{Text: "bacon"})
	indexing := time.Since(start)
	b.Logf("indexing %d MB of text: %.1f s, heap grew by %.1f MB", total>>20, indexing.Seconds(), float64(heapInUse()-before)/(1<<20))
	s.close()
	open()
	start = time.Now()
	s.search(scope, Query{Text: "bacon"})
	b.Logf("first search of a life, comparing 500 conversations: %.1f ms", float64(time.Since(start).Microseconds())/1000)
	size := int64(0)
	err = filepath.WalkDir(filepath.Join(dir, "index"), func(_ string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			info, err := d.Info()
			if err != nil {
				return err
			}
			size += info.Size()
		}
		return err
	})
	if err != nil {
		b.Fatal(err)
	}
	b.Logf("index %d MB, %.2f of the text", size>>20, float64(size)/float64(total))
	for _, kind := range []struct {
		name  string
		query func(i int) Query
	}{
		{"words", func(int) Query { return Query{Text: w.text(25)} }},
		{"common", func(int) Query { return Query{Text: strings.Join(w.words[:4], " ")} }},
		{"rare", func(i int) Query { return Query{Text: w.words[50_000+i%10_000]} }},
		{"phrase", func(i int) Query { return Query{Text: `"` + w.words[i%50] + " " + w.words[(i+7)%50] + `"`} }},
		{"prefix", func(i int) Query { return Query{Text: clipRunes(w.words[40_000+i%10_000], 4) + "*"} }},
		{"newest", func(int) Query { return Query{Text: w.text(15), Sort: Newest} }},
		{"plain200", func(int) Query { return Query{Text: w.text(1000), Plain: true} }},
	} {
		b.Run(kind.name, func(b *testing.B) {
			var took []time.Duration
			begun := processorTime(b)
			for i := 0; b.Loop(); i++ {
				q := kind.query(i)
				start := time.Now()
				s.search(scope, q)
				took = append(took, time.Since(start))
			}
			used := processorTime(b) - begun
			slices.Sort(took)
			b.ReportMetric(float64(used.Microseconds())/1000/float64(len(took)), "cpu-ms")
			b.ReportMetric(float64(took[len(took)/2].Microseconds())/1000, "p50-ms")
			b.ReportMetric(float64(took[len(took)*99/100].Microseconds())/1000, "p99-ms")
		})
	}
	b.Logf("heap after searching grew by %.1f MB", float64(heapInUse()-before)/(1<<20))
	b.Run("new", func(b *testing.B) {
		for i := 0; b.Loop(); i++ {
			s.say(scope, "c0000", fmt.Sprintf("novelty%d said", i))
			if res := s.search(scope, Query{Text: fmt.Sprintf("novelty%d", i)}); len(res.Hits) != 1 {
				b.Fatal("the new message was not found")
			}
		}
	})
	s.close()
}

// processorTime is what this process has used: other work on the machine doesn't count.
func processorTime(t testing.TB) time.Duration {
	t.Helper()
	var used syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &used); err != nil {
		t.Fatal(err)
	}
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}

func heapInUse() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

func BenchmarkTouch(b *testing.B) {
	s := &shelf{t: b, disk: crashfs.New(), store: openStore(b, crashfs.New())}
	s.open(s.store)
	scope := scopeNamed(b, "ann")
	for b.Loop() {
		s.index.Touch(scope, "a")
	}
}
