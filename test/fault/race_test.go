package fault

import (
	"bytes"
	"math/rand/v2"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"
)

func rng(seed int) *rand.Rand { return rand.New(rand.NewPCG(uint64(seed), 7)) }

// TestDaemonsRaceForADirectory starts several daemons on one data directory at once, again and again, while the one that
// wins is written to and killed. Never do two of them serve, and each that loses says so.
func TestDaemonsRaceForADirectory(t *testing.T) {
	t.Parallel()
	races := 50
	switch {
	case *long:
		races = 1000
	case testing.Short():
		races = 10
	}
	const racers = 3
	dir := scratch(t)
	first := newServer(t, dir, nil)
	servers := []*server{first}
	for range racers - 1 {
		s := prepare(t, dir, nil)
		s.token = first.token
		servers = append(servers, s)
	}
	d := newDriver(t, first, 2)
	lost := 0
	for race := range races {
		var starts sync.WaitGroup
		errs := make([]error, racers)
		for i, s := range servers {
			starts.Go(func() { errs[i] = s.start() })
		}
		starts.Wait()
		var won []*server
		for i, s := range servers {
			switch {
			case errs[i] == nil:
				won = append(won, s)
			case !strings.Contains(s.log(), "another"):
				t.Fatalf("race %d: one that lost says %v: %s", race, errs[i], s.log())
			default:
				lost++
			}
		}
		if len(won) != 1 {
			t.Fatalf("race %d: %d daemons serve", race, len(won))
		}
		d.s = won[0]
		for _, c := range d.shared {
			d.append(c, d.next(2), true)
		}
		d.verify()
		if race%10 == 9 {
			d.clear(d.shared[race%2])
		}
		for _, s := range servers {
			s.kill()
		}
	}
	if found := first.check(); len(found) > 0 {
		t.Errorf("check finds %v", found)
	}
	t.Logf("%d races of %d: %d lost, %v", races, racers, lost, d.figures)
}

// TestCommandsRaceWithTheDaemon lets commands that read run while the daemon writes: they find nothing wrong.
func TestCommandsRaceWithTheDaemon(t *testing.T) {
	t.Parallel()
	s := newServer(t, scratch(t), nil)
	d := newDriver(t, s, 3)
	s.begin()
	stop := make(chan struct{})
	var clients sync.WaitGroup
	for i := range 4 {
		clients.Go(func() { d.client(rng(i), stop) })
	}
	for end := time.Now().Add(2 * time.Second); time.Now().Before(end); {
		var out bytes.Buffer
		cmd := exec.Command(s.path, "check", s.dir)
		cmd.Stdout, cmd.Stderr = &out, &out
		if err := cmd.Run(); err != nil {
			t.Errorf("check of a directory in use: %v: %s", err, out.Bytes())
			break
		}
	}
	close(stop)
	clients.Wait()
	d.verify()
}
