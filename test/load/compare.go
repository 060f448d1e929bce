package main

import (
	"context"
	"errors"
	"fmt"
	"io"
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
	requests int
}

func (f *figure) add(rate float64, latency []time.Duration, cpu time.Duration) {
	f.rates = append(f.rates, rate)
	f.latency = append(f.latency, latency...)
	f.cpu += cpu
	f.requests += len(latency)
}

// perRequest is the processor time of one request.
func (f *figure) perRequest() time.Duration {
	return (f.cpu / time.Duration(max(1, f.requests))).Round(time.Microsecond)
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
	for _, clients := range o.clients {
		conversations := o.conversations
		if conversations == 0 {
			conversations = clients
		}
		for _, s := range all {
			if err := s.connect(clients); err != nil {
				return fmt.Errorf("%s: %w", s.name, err)
			}
			if err := s.fill(clients, conversations); err != nil {
				return fmt.Errorf("%s: %w", s.name, err)
			}
		}
		for _, work := range o.work {
			figures, err := measure(ctx, all, work, clients, conversations, o)
			if err != nil {
				return err
			}
			fmt.Fprintf(w, "\n%s, %d clients, %d conversations\n\n", work, clients, conversations)
			if err := table(w, figures); err != nil {
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

// fill gives each conversation what a replay reads.
func (s *standing) fill(clients, conversations int) error {
	for c := range conversations {
		for range window {
			if err := s.append(c%clients, c); err != nil {
				return err
			}
		}
	}
	s.stored += conversations * window
	return nil
}

// measure lets the contenders work in turns; the ratios are of the first to each, round by round.
func measure(ctx context.Context, all []*standing, work string, clients, conversations int, o options) ([]*figure, error) {
	var figures []*figure
	var able []*standing
	for _, s := range all {
		if work == workReplay && errors.Is(s.replay(0, 0), errCantReplay) {
			continue
		}
		able = append(able, s)
		figures = append(figures, &figure{name: s.name})
	}
	// The first round warms up and does not count.
	for round := range o.rounds + 1 {
		rates := make([]float64, len(able))
		for k := range able {
			i := (k + round) % len(able)
			s, f := able[i], figures[i]
			before := processorTime(s.process())
			rate, latency, err := s.drive(ctx, work, clients, conversations, o.slice)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", s.name, err)
			}
			if work == workAppend {
				s.stored += len(latency)
			}
			if round > 0 {
				rates[i] = rate
				f.add(rate, latency, processorTime(s.process())-before)
			}
		}
		if round > 0 {
			for i, f := range figures {
				f.ratios = append(f.ratios, rates[0]/rates[i])
			}
		}
	}
	return figures, nil
}

// drive lets the clients work for a time and returns requests a second and how long each took.
func (s *standing) drive(ctx context.Context, work string, clients, conversations int, slice time.Duration) (float64, []time.Duration, error) {
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
		return 0, nil, errors.New("interrupted")
	}
	return float64(len(all)) / elapsed.Seconds(), all, errors.Join(errs...)
}

func table(w io.Writer, figures []*figure) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintf(t, "\tper second\t%s is times it\tp50\tp99\tprocessor\t\n", figures[0].name)
	for _, f := range figures {
		slices.Sort(f.latency)
		fmt.Fprintf(t, "%s\t%.0f\t%.2f\t%s\t%s\t%s\t\n", f.name, median(f.rates), median(f.ratios),
			at(f.latency, 50), at(f.latency, 99), f.perRequest())
	}
	return t.Flush()
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
