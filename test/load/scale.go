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

// scaleClients append at a time, each to a conversation of its own.
const scaleClients = 8

// burst is how many messages an append carries while a record is filled.
const burst = 100

// scale compares an append to an empty record with one to long conversations and with one
// among many, and writes what each costs.
func scale(ctx context.Context, w io.Writer, dir string, o options) error {
	var all []*standing
	defer func() {
		for _, s := range all {
			s.close()
		}
	}()
	for _, name := range []string{"new", "long", "many"} {
		own := filepath.Join(dir, name)
		if err := os.Mkdir(own, 0o755); err != nil {
			return err
		}
		c, err := startHistoryd(own, o.historyd)
		if err != nil {
			return err
		}
		all = append(all, &standing{contender: c, name: name, dir: own})
	}
	if err := fillRecords(ctx, all, o.records); err != nil {
		return err
	}
	// The daemon keeps no connection that says nothing, so they are made when they are used.
	for _, s := range all {
		if err := s.connect(scaleClients); err != nil {
			return err
		}
	}
	cases := []struct {
		what          string
		on            *standing
		conversations int
	}{
		{"a new record", all[0], scaleClients},
		{fmt.Sprintf("conversations of %d messages", o.records), all[1], scaleClients},
		{fmt.Sprintf("%d conversations, the same %d", o.records, scaleClients), all[2], scaleClients},
		{fmt.Sprintf("%d conversations, each in turn", o.records), all[2], o.records},
	}
	figures := make([]*figure, len(cases))
	for i, c := range cases {
		figures[i] = &figure{name: c.what}
	}
	for round := range o.rounds + 1 {
		rates := make([]float64, len(cases))
		for k := range cases {
			i := (k + round) % len(cases)
			c, f := cases[i], figures[i]
			before := processorTime(c.on.process())
			rate, latency, err := c.on.drive(ctx, workAppend, scaleClients, c.conversations, o.slice)
			if err != nil {
				return fmt.Errorf("%s: %w", c.what, err)
			}
			if rates[i] = rate; round > 0 { // The first round warms up.
				f.add(rate, latency, processorTime(c.on.process())-before)
			}
		}
		if round > 0 {
			for i, f := range figures {
				f.ratios = append(f.ratios, rates[0]/rates[i])
			}
		}
	}
	return scaleTable(w, figures)
}

// fillRecords gives the second record long conversations and the third many.
func fillRecords(ctx context.Context, all []*standing, n int) error {
	began := time.Now()
	long, many := all[1].contender.(*web), all[2].contender.(*web)
	several := strings.TrimSuffix(strings.Repeat(`{"role":"user","content":"`+message()+`"},`, burst), ",")
	body := []byte(`{"messages":[` + several + `]}`)
	if err := long.connect(scaleClients); err != nil {
		return err
	}
	err := together(ctx, func(i int) error {
		for range n / burst {
			if err := long.do(i, long.turn(i, body), 201); err != nil || ctx.Err() != nil {
				return errors.Join(err, ctx.Err())
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	if err := many.connect(scaleClients); err != nil {
		return err
	}
	err = together(ctx, func(i int) error {
		for c := i; c < n; c += scaleClients {
			if err := many.append(i, c); err != nil || ctx.Err() != nil {
				return errors.Join(err, ctx.Err())
			}
			if i == 0 && c%(scaleClients*1000) == 0 {
				fmt.Fprintf(os.Stderr, "\rfilling: %d of %d conversations", c, n)
			}
		}
		return nil
	})
	fmt.Fprintf(os.Stderr, "\rfilled in %s                      \n", time.Since(began).Round(time.Second))
	return err
}

func together(ctx context.Context, work func(client int) error) error {
	errs := make([]error, scaleClients)
	var wg sync.WaitGroup
	for i := range scaleClients {
		wg.Go(func() { errs[i] = work(i) })
	}
	wg.Wait()
	return errors.Join(append(errs, ctx.Err())...)
}

func scaleTable(w io.Writer, figures []*figure) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintf(t, "append to\tper second\ttimes a new one's cost\tp50\tp99\tprocessor\t\n")
	for _, f := range figures {
		slices.Sort(f.latency)
		fmt.Fprintf(t, "%s\t%.0f\t%.2f\t%s\t%s\t%s\t\n", f.name, median(f.rates), median(f.ratios),
			at(f.latency, 50), at(f.latency, 99), f.perRequest())
	}
	return t.Flush()
}
