package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
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
	fmt.Fprintf(w, "the order of each round is by chance, -seed %d\n\n", o.seed)
	err := turns(newChance(o.seed), o.rounds, figures, func(i int) (sample, error) {
		return cases[i].on.slice(ctx, workAppend, scaleClients, cases[i].conversations, o.slice)
	})
	if err != nil {
		return err
	}
	return table(w, "append to", "times a new one's cost", figures)
}

// fillRecords gives the second record long conversations and the third many.
func fillRecords(ctx context.Context, all []*standing, n int) error {
	began := time.Now()
	long, many := all[1].contender.(historyd), all[2].contender.(historyd)
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
	for _, s := range all {
		if err == nil {
			err = s.settled(ctx)
		}
	}
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
