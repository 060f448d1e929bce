package store

import (
	"context"
	"fmt"
	"iter"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"historyd/internal/durable"
	"historyd/internal/history"
)

// benchText is a message of usual length.
var benchText = strings.Repeat("All work and no play makes Jack a dull boy. ", 12)

func benchStore(b *testing.B) (*Store, durable.FS) {
	b.Helper()
	fsys, err := durable.Open(privateDir(b))
	if err != nil {
		b.Fatal(err)
	}
	s, err := Open(Options{FS: fsys, NewID: safeIDs()})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		_ = s.Close()
		_ = fsys.Close()
	})
	return s, fsys
}

// BenchmarkAppend appends from as many writers to as many conversations, in turns with
// the same number of writers that write and sync as many bytes and do nothing else.
func BenchmarkAppend(b *testing.B) {
	for _, writers := range []int{1, 8, 64} {
		b.Run(fmt.Sprintf("writers=%d", writers), func(b *testing.B) {
			s, fsys := benchStore(b)
			logs, files, offsets := make([]history.Log, writers), make([]durable.File, writers), make([]int64, writers)
			for i := range writers {
				logs[i] = s.Log(ann, fmt.Sprint("c", i))
				if _, err := logs[i].Append(context.Background(), batch(benchText)); err != nil {
					b.Fatal(err)
				}
				f, err := fsys.Create(fmt.Sprint("raw", i))
				if err != nil {
					b.Fatal(err)
				}
				defer f.Close()
				files[i] = f
			}
			line := []byte(strings.Repeat("x", 1000))
			append1 := func(i int) error {
				_, err := logs[i].Append(context.Background(), batch(benchText))
				return err
			}
			raw1 := func(i int) error {
				if _, err := files[i].WriteAt(line, offsets[i]); err != nil {
					return err
				}
				offsets[i] += int64(len(line))
				return files[i].Sync()
			}
			var ours, raw time.Duration
			const turn = 20
			for done := 0; done < b.N; done += turn * writers {
				each := min(turn, (b.N-done+writers-1)/writers)
				raw += eachDoes(b, writers, each, raw1)
				ours += eachDoes(b, writers, each, append1)
			}
			b.ReportMetric(float64(ours)/float64(raw), "times-raw")
			b.ReportMetric(float64(ours.Nanoseconds())/float64(b.N), "ns/append")
			b.ReportMetric(0, "ns/op")
		})
	}
}

func eachDoes(b *testing.B, writers, times int, do func(i int) error) time.Duration {
	var wg sync.WaitGroup
	start := time.Now()
	for i := range writers {
		wg.Go(func() {
			for range times {
				if err := do(i); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	return time.Since(start)
}

// numbered yields messages 1 to n without keeping them.
func numbered(n int) iter.Seq2[history.Message, error] {
	return func(yield func(history.Message, error) bool) {
		for i := range n {
			if !yield(user(fmt.Sprint("message ", i+1, " ", benchText[:200])), nil) {
				return
			}
		}
	}
}

// BenchmarkLength compares a record of a million messages with one of a thousand: what a
// process pays that meets it for the first time.
func BenchmarkLength(b *testing.B) {
	if testing.Short() {
		b.Skip("makes a record of 400 MB")
	}
	const small, large = 1000, 1_000_000
	s, fsys := benchStore(b)
	for _, n := range []int{small, large} {
		if _, err := s.Log(ann, fmt.Sprint(n)).Import(context.Background(), history.Import{Mode: history.Create, Messages: numbered(n)}); err != nil {
			b.Fatal(err)
		}
	}
	_ = s.Close()
	read := func(l history.Log, from, to int64) error {
		v, err := l.View(context.Background())
		if err != nil {
			return err
		}
		defer v.Close()
		for _, err := range v.Records(from, to) {
			if err != nil {
				return err
			}
		}
		return nil
	}
	for _, op := range []struct {
		name string
		do   func(l history.Log, n int64) error
	}{
		{"state", func(l history.Log, _ int64) error { _, err := l.State(context.Background()); return err }},
		{"tail", func(l history.Log, n int64) error { return read(l, n-19, n) }},
		{"middle", func(l history.Log, n int64) error { return read(l, n/2, n/2+19) }},
		{"append", func(l history.Log, _ int64) error {
			_, err := l.Append(context.Background(), batch(benchText))
			return err
		}},
	} {
		b.Run(op.name, func(b *testing.B) {
			took := map[int][]time.Duration{}
			for range min(max(b.N, 5), 50) {
				for _, n := range []int{small, large} {
					s, err := Open(Options{FS: noSyncAll{fsys}, NewID: safeIDs()})
					if err != nil {
						b.Fatal(err)
					}
					start := time.Now()
					if err := op.do(s.Log(ann, fmt.Sprint(n)), int64(n)); err != nil {
						b.Fatal(err)
					}
					took[n] = append(took[n], time.Since(start))
					_ = s.Close()
				}
			}
			b.ReportMetric(float64(median(took[large]))/float64(median(took[small])), "times-1000")
			b.ReportMetric(float64(median(took[large]).Microseconds()), "µs/large")
			b.ReportMetric(0, "ns/op")
		})
	}
}

func median(d []time.Duration) time.Duration {
	slices.Sort(d)
	return d[len(d)/2]
}

// BenchmarkGrowth appends 20,000 times and compares the last thousand with the first.
func BenchmarkGrowth(b *testing.B) {
	if testing.Short() {
		b.Skip("20,000 syncs")
	}
	for range min(b.N, 1) { // once is as long as it takes
		s, _ := benchStore(b)
		l := s.Log(ann, "a")
		took := make([]time.Duration, 20_000)
		for i := range took {
			start := time.Now()
			if _, err := l.Append(context.Background(), batch(benchText)); err != nil {
				b.Fatal(err)
			}
			took[i] = time.Since(start)
		}
		first, last := took[:1000], took[len(took)-1000:]
		b.ReportMetric(float64(median(last))/float64(median(first)), "times-first")
		b.ReportMetric(float64(last[990])/float64(first[990]), "times-first-p99")
		b.ReportMetric(0, "ns/op")
	}
}
