package fault

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"
)

// TestKillsUnderLoad kills the daemon again and again while many clients use all of it. Each time all that was
// acknowledged is there once and in order, what got no answer is there whole or not at all and is not there twice when
// it is sent again, nothing that was cleared comes back, and nobody else's conversations are touched.
func TestKillsUnderLoad(t *testing.T) {
	cycles := *cycles
	if testing.Short() {
		cycles /= 5
	}
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	const daemons = 2
	var mu sync.Mutex
	var sum figures
	t.Run("daemons", func(t *testing.T) {
		for i := range daemons {
			t.Run(fmt.Sprint(i), func(t *testing.T) {
				t.Parallel()
				rng := rand.New(rand.NewPCG(seed, uint64(i)))
				f := kills(t, rng, (cycles+i)/daemons)
				mu.Lock()
				defer mu.Unlock()
				sum.add(f)
			})
		}
	})
	t.Logf("%v: 0 lost, 0 duplicated, 0 resurrected, 0 silent", sum)
	if sum.blows != cycles && !t.Failed() {
		t.Errorf("%d kills, want %d", sum.blows, cycles)
	}
}

func (f *figures) add(g figures) {
	f.blows += g.blows
	f.asked += g.asked
	f.acknowledged += g.acknowledged
	f.doubtful += g.doubtful
	f.retried += g.retried
	f.refused += g.refused
}

func kills(t *testing.T, rng *rand.Rand, cycles int) figures {
	s := newServer(t, scratch(t), nil)
	d := newDriver(t, s, 5)
	s.begin()
	bystander := d.bystander()
	began := time.Now()
	for cycle := range cycles {
		d.what = fmt.Sprintf("kill %d", cycle)
		d.load(rng, func() {})
		s.kill()
		d.figures.blows++
		d.again(rng)
		d.verify()
		bystander(t)
		d.sweep(filesOf(t, s.dir))
		d.prune(rng)
		if t.Failed() {
			d.fatalf("see above")
		}
		if (cycle+1)%500 == 0 {
			t.Logf("%v, %v", d.figures, time.Since(began).Round(time.Second))
		}
	}
	s.stop()
	if found := s.check(); len(found) > 0 {
		t.Errorf("in the end check finds %v", found)
	}
	return d.figures
}
