// Command load measures durable appends and replays of the daemon over HTTP beside what a team would use
// without it, all of them on one machine, in turns, in one run, so that the figures are ratios.
//
// It is a module of its own: the daemon links none of what it compares itself with.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// options bound a run: each figure takes rounds times slice for each contender.
type options struct {
	clients       []int
	conversations int
	rounds        int
	slice         time.Duration
	only          []string
	work          []string
	scale         bool
	records       int
	seed          uint64
	historyd      string
}

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "load:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) == 2 && args[0] == bareServerArg {
		return serveBare(args[1])
	}
	o, err := parse(args)
	if errors.Is(err, flag.ErrHelp) {
		return nil
	}
	if err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	dir, err := os.MkdirTemp("", "historyd-load-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	// PostgreSQL refuses to run as root, so others pass through here.
	if err := os.Chmod(dir, 0o755); err != nil {
		return err
	}
	if o.scale {
		return scale(ctx, os.Stdout, dir, o)
	}
	return compare(ctx, os.Stdout, dir, o)
}

func parse(args []string) (options, error) {
	var o options
	f := flag.NewFlagSet("load", flag.ContinueOnError)
	clients := f.String("clients", "1,8,64,256", "numbers of clients to measure with")
	only := f.String("only", "", "contenders to measure, by name (all of "+strings.Join(names(), ",")+")")
	work := f.String("work", "append,replay", "what to measure")
	f.IntVar(&o.conversations, "conversations", 0, "conversations that the clients write to in turn (one each)")
	f.IntVar(&o.rounds, "rounds", 8, "rounds of each figure; the median of the rounds is told")
	f.DurationVar(&o.slice, "slice", 400*time.Millisecond, "how long each contender works in a round")
	f.IntVar(&o.records, "records", 100_000, "with -scale: messages of the long conversations, and how many the many are")
	f.Uint64Var(&o.seed, "seed", 1, "what the order of the contenders in each round is drawn by; the same one repeats it")
	f.StringVar(&o.historyd, "historyd", "../../bin/historyd", "the daemon to measure")
	f.BoolVar(&o.scale, "scale", false, "measure instead what an append costs from 1 to 100,000 messages and conversations")
	if err := f.Parse(args); err != nil {
		return o, err
	}
	if f.NArg() > 0 || o.rounds < 1 || o.slice <= 0 || o.conversations < 0 || o.records < burst {
		return o, errors.New("no arguments are taken, and numbers are above zero: see -h")
	}
	for _, s := range strings.Split(*clients, ",") {
		n, err := strconv.Atoi(s)
		if err != nil || n < 1 {
			return o, fmt.Errorf("-clients: %q is no number above zero", s)
		}
		o.clients = append(o.clients, n)
	}
	o.work = strings.Split(*work, ",")
	for _, w := range o.work {
		if w != workAppend && w != workReplay {
			return o, fmt.Errorf("-work: %q is not one of %s, %s", w, workAppend, workReplay)
		}
	}
	if *only != "" {
		o.only = strings.Split(*only, ",")
	}
	for _, n := range o.only {
		if !slices.Contains(names(), n) {
			return o, fmt.Errorf("-only: %q is not one of %s", n, strings.Join(names(), ", "))
		}
	}
	return o, nil
}
