package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"runtime/debug"
	"time"
)

// sample is what was measured of one slice.
type sample struct {
	rate    float64
	latency []time.Duration
	// cpu is the processor time of the slice, and later that of what was put off until after it.
	cpu, later time.Duration
	// restless says that more was put off than was waited for.
	restless bool
}

// newChance is the same for the same seed, so that a run can be repeated.
func newChance(seed uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, seed)) }

// turns measures each figure once a round. Their order is left to chance: in a fixed one, or one that is only rotated,
// the same contender always comes behind the same other, and at the cost of it is what that does behind its answers.
// The ratios are of the first figure to each, round by round.
func turns(chance *rand.Rand, rounds int, figures []*figure, slice func(i int) (sample, error)) error {
	// The first round warms up and does not count.
	for round := range rounds + 1 {
		rates := make([]float64, len(figures))
		for _, i := range chance.Perm(len(figures)) {
			s, err := slice(i)
			if err != nil {
				return fmt.Errorf("%s: %w", figures[i].name, err)
			}
			if rates[i] = s.rate; round > 0 {
				figures[i].add(s)
			}
		}
		if round == 0 {
			continue
		}
		for i, f := range figures {
			f.ratios = append(f.ratios, rates[0]/rates[i])
		}
	}
	return nil
}

// settler is a contender that puts work off until after its answers and can be made to do it. That is
// waited for, so that it is not at the cost of whoever is measured next.
type settler interface {
	// settle returns when nothing is put off any longer, or false when the context came to its deadline before.
	settle(ctx context.Context) (bool, error)
}

const (
	// slicePatience is how long a contender may settle after a slice, and fillPatience after it was filled.
	slicePatience = 10 * time.Second
	fillPatience  = 10 * time.Minute
)

// settle has the contender do what it put off; true says that it did, or that it puts nothing off.
func (s *standing) settle(ctx context.Context, patience time.Duration) (bool, error) {
	c, ok := s.contender.(settler)
	if !ok {
		return true, nil
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	return c.settle(ctx)
}

// settled is for a contender that was filled: nothing is measured before it has settled.
func (s *standing) settled(ctx context.Context) error {
	ok, err := s.settle(ctx, fillPatience)
	if err == nil && !ok {
		err = fmt.Errorf("still at work %s after it was filled", fillPatience)
	}
	return err
}

// slice measures the contender once and lets it settle.
func (s *standing) slice(ctx context.Context, work string, clients, conversations int, d time.Duration) (sample, error) {
	before := processorTime(s.process())
	m, err := s.drive(ctx, work, clients, conversations, d)
	if err != nil {
		return m, err
	}
	after := processorTime(s.process())
	settled, err := s.settle(ctx, slicePatience)
	m.cpu, m.later, m.restless = after-before, processorTime(s.process())-after, !settled
	return m, err
}

// asDaemon gives this process what the daemon gives itself (docs/decisions/0014-the-runtime.md), and returns
// what takes it back. A goroutine in a sync keeps its place among those that may run Go code until the scheduler
// notices, so that with as many places as cores the contenders in Go would be slower than they have to be, and
// the daemon would look better beside them.
func asDaemon() (back func()) {
	const (
		procs     = 8
		gcPercent = 400
	)
	oldProcs, oldPercent := 0, 0
	if os.Getenv("GOMAXPROCS") == "" && runtime.GOMAXPROCS(0) < procs {
		oldProcs = runtime.GOMAXPROCS(procs)
	}
	setPercent := os.Getenv("GOGC") == ""
	if setPercent {
		oldPercent = debug.SetGCPercent(gcPercent)
	}
	return func() {
		// Nought leaves the number of processors as it is.
		runtime.GOMAXPROCS(oldProcs)
		if setPercent {
			debug.SetGCPercent(oldPercent)
		}
	}
}
