package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"text/tabwriter"
	"time"
)

// standing is a contender that runs, and what was measured of it.
type standing struct {
	contender
	name    string
	dir     string
	started int64
	stored  int
}

// figure is one line of the table.
type figure struct {
	name     string
	rates    []float64
	ratios   []float64
	latency  []time.Duration
	cpu      time.Duration
	later    time.Duration
	restless int
	requests int
}

func (f *figure) add(s sample) {
	f.rates = append(f.rates, s.rate)
	f.latency = append(f.latency, s.latency...)
	f.cpu += s.cpu
	f.later += s.later
	f.requests += len(s.latency)
	if s.restless {
		f.restless++
	}
}

// perRequest divides a time among the requests.
func (f *figure) perRequest(t time.Duration) time.Duration {
	return (t / time.Duration(max(1, f.requests))).Round(time.Microsecond)
}

// compare measures all contenders and writes a table for each number of clients.
func compare(ctx context.Context, w io.Writer, dir string, o options) error {
	all, err := startAll(w, dir, o)
	defer func() {
		for _, s := range all {
			s.close()
		}
	}()
	if err != nil {
		return err
	}
	chance := newChance(o.seed)
	fmt.Fprintf(w, "the order of each round is by chance, -seed %d\n", o.seed)
	for _, clients := range o.clients {
		conversations := o.conversations
		if conversations == 0 {
			conversations = clients
		}
		for _, s := range all {
			if err := s.connect(clients); err != nil {
				return fmt.Errorf("%s: %w", s.name, err)
			}
			if err := s.fill(ctx, clients, conversations); err != nil {
				return fmt.Errorf("%s: %w", s.name, err)
			}
		}
		for _, work := range o.work {
			figures, err := measure(ctx, chance, all, work, clients, conversations, o)
			if err != nil {
				return err
			}
			fmt.Fprintf(w, "\n%s, %d clients, %d conversations\n\n", work, clients, conversations)
			if err := table(w, "", figures[0].name+" is times it", figures); err != nil {
				return err
			}
		}
	}
	return sizes(w, all)
}

func startAll(w io.Writer, dir string, o options) ([]*standing, error) {
	var all []*standing
	for _, k := range kinds(o.historyd) {
		if len(o.only) > 0 && !slices.Contains(o.only, k.name) {
			continue
		}
		own := filepath.Join(dir, strings.ReplaceAll(k.name, "/", "-"))
		if err := os.Mkdir(own, 0o755); err != nil {
			return all, err
		}
		c, err := k.start(own)
		var lacks missing
		if errors.As(err, &lacks) {
			fmt.Fprintf(w, "SKIPPED: %s: %s\n", k.name, lacks.what)
			continue
		}
		if err != nil {
			return all, fmt.Errorf("%s: %w", k.name, err)
		}
		all = append(all, &standing{contender: c, name: k.name, dir: own, started: diskUsage(own)})
	}
	return all, nil
}

// fill gives each conversation what a replay reads. Each client says something early, because the daemon
// keeps no new connection for long that says nothing.
func (s *standing) fill(ctx context.Context, clients, conversations int) error {
	appends := max(clients, conversations)
	for range window {
		for i := range appends {
			if err := s.append(i%clients, i%conversations); err != nil {
				return err
			}
		}
	}
	s.stored += appends * window
	return s.settled(ctx)
}

// measure lets the contenders work in turns.
func measure(ctx context.Context, chance *rand.Rand, all []*standing, work string, clients, conversations int, o options) ([]*figure, error) {
	var figures []*figure
	var able []*standing
	for _, s := range all {
		if work == workReplay && errors.Is(s.replay(0, 0), errCantReplay) {
			continue
		}
		able = append(able, s)
		figures = append(figures, &figure{name: s.name})
	}
	err := turns(chance, o.rounds, figures, func(i int) (sample, error) {
		m, err := able[i].slice(ctx, work, clients, conversations, o.slice)
		if work == workAppend {
			able[i].stored += len(m.latency)
		}
		return m, err
	})
	return figures, err
}

// drive lets the clients work for a time and measures requests a second and how long each took.
func (s *standing) drive(ctx context.Context, work string, clients, conversations int, slice time.Duration) (sample, error) {
	if s.process() == 0 {
		// It works in this process, which for the others is but their clients.
		defer asDaemon()()
	}
	ctx, cancel := context.WithTimeout(ctx, slice)
	defer cancel()
	op := s.append
	if work == workReplay {
		op = s.replay
	}
	took := make([][]time.Duration, clients)
	errs := make([]error, clients)
	start := time.Now()
	var wg sync.WaitGroup
	for i := range clients {
		wg.Go(func() {
			// A client has conversations of its own, which it goes through in turn.
			for c := i; ctx.Err() == nil; c += clients {
				if c >= conversations {
					c = i % conversations
				}
				from := time.Now()
				if errs[i] = op(i, c); errs[i] != nil {
					return
				}
				took[i] = append(took[i], time.Since(from))
			}
		})
	}
	wg.Wait()
	elapsed := time.Since(start)
	all := slices.Concat(took...)
	if cause := context.Cause(ctx); errors.Is(cause, context.Canceled) {
		return sample{}, errors.New("interrupted")
	}
	return sample{rate: float64(len(all)) / elapsed.Seconds(), latency: all}, errors.Join(errs...)
}

// table has a line for each figure, and below it who had not done what it put off.
func table(w io.Writer, of, ratio string, figures []*figure) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintf(t, "%s\tper second\t%s\tp50\tp99\tprocessor\tlater\t\n", of, ratio)
	for _, f := range figures {
		slices.Sort(f.latency)
		fmt.Fprintf(t, "%s\t%.0f\t%.2f\t%s\t%s\t%s\t%s\t\n", f.name, median(f.rates), median(f.ratios),
			at(f.latency, 50), at(f.latency, 99), f.perRequest(f.cpu), f.perRequest(f.later))
	}
	if err := t.Flush(); err != nil {
		return err
	}
	for _, f := range figures {
		if f.restless > 0 {
			fmt.Fprintf(w, "%s still worked %s after %d of its slices, beside whoever came next\n", f.name, slicePatience, f.restless)
		}
	}
	return nil
}

// sizes tells what the contenders hold and take at the end.
func sizes(w io.Writer, all []*standing) error {
	fmt.Fprintf(w, "\nat the end\n\n")
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintf(t, "\tmessages\tbytes on disk a message\tmemory, MiB\t\n")
	for _, s := range all {
		held := "(the clients')"
		if s.process() != 0 {
			held = fmt.Sprintf("%.0f", float64(memory(s.process()))/(1<<20))
		}
		fmt.Fprintf(t, "%s\t%d\t%d\t%s\t\n", s.name, s.stored, (diskUsage(s.dir)-s.started)/int64(max(1, s.stored)), held)
	}
	return t.Flush()
}

// median is between the two in the middle when there are as many on both sides: the higher of
// them would flatter whom the ratios are of.
func median(v []float64) float64 {
	v = slices.Sorted(slices.Values(v))
	return (v[(len(v)-1)/2] + v[len(v)/2]) / 2
}

// at is a percentile of sorted times.
func at(sorted []time.Duration, percent int) time.Duration {
	if len(sorted) == 0 {
		return 0
	}
	return sorted[min(len(sorted)-1, len(sorted)*percent/100)].Round(time.Microsecond)
}
