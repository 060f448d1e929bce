package retention

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"historyd/internal/durable/crashfs"
	"historyd/internal/identity"
)

func rng(seed int) *rand.Rand { return rand.New(rand.NewPCG(uint64(seed), 3)) }

// shelf is a record of ten lines.
type shelf struct {
	mu      sync.Mutex // guards what follows
	list    []Conversation
	used    map[string]bool  // by name: somebody has it
	broken  map[string]error // by name: can't be cleared
	writes  uint64
	surveys int
	cost    time.Duration // of looking at one
	gone    []string
	worked  time.Duration
	index   *words
}

func (s *shelf) Survey(ctx context.Context, visit func(Conversation) error) error {
	s.mu.Lock()
	s.surveys++
	list, cost := slices.Clone(s.list), s.cost
	s.mu.Unlock()
	for _, v := range list {
		time.Sleep(cost)
		s.mu.Lock()
		s.worked += cost
		s.mu.Unlock()
		if err := visit(v); err != nil {
			return err
		}
	}
	return nil
}

func (s *shelf) Expire(_ context.Context, scope identity.Scope, name, newest string, before func() error) (bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	i := slices.IndexFunc(s.list, func(v Conversation) bool { return v.Scope == scope && v.Name == name })
	if i < 0 || s.list[i].Newest != newest || s.used[name] {
		return false, nil
	}
	if err := before(); err != nil {
		return false, err
	}
	if err := s.broken[name]; err != nil {
		return false, err
	}
	if s.index != nil && !s.index.out[name] {
		panic("the index may take in what is cleared")
	}
	s.list = slices.Delete(s.list, i, i+1)
	s.gone = append(s.gone, name)
	return true, nil
}

func (s *shelf) Writes() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.writes
}

// change does something to the record, as a request would.
func (s *shelf) change(fn func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	fn()
}

// looks is how often it was looked through.
func (s *shelf) looks() (n int) {
	s.change(func() { n = s.surveys })
	return n
}

// left are the names of what is there.
func (s *shelf) left() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var names []string
	for _, v := range s.list {
		names = append(names, v.Name)
	}
	return strings.Join(names, " ")
}

// words is an index.
type words struct {
	out       map[string]bool // kept out, by name
	forgotten []string
	err       error
}

func (w *words) Forget(_ context.Context, _ identity.Scope, name string) (func(), error) {
	if w.err != nil {
		return nil, w.err
	}
	w.out[name] = true
	w.forgotten = append(w.forgotten, name)
	return func() { delete(w.out, name) }, nil
}

// sweeping runs a Sweeper over a record in a time of its own, and fn beside it.
func sweeping(t *testing.T, r Rules, s *shelf, fn func(reg *prometheus.Registry)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		reg := prometheus.NewRegistry()
		// The times of conversations are from start on.
		offset := time.Until(start)
		o := Options{Rules: r, Record: s, FS: crashfs.New(), Now: func() time.Time { return time.Now().Add(offset) }, Registerer: reg}
		if s.index != nil {
			o.Index = s.index
		}
		sw, err := New(o)
		if err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		fn(reg)
		sw.Close()
	})
}

func counted(t *testing.T, reg *prometheus.Registry, name string, want string) {
	t.Helper()
	if err := testutil.GatherAndCompare(reg, strings.NewReader(want), name); err != nil {
		t.Error(err)
	}
}

func TestConversationsGoWhenTheyAreOldEnough(t *testing.T) {
	s := &shelf{index: &words{out: map[string]bool{}}, list: []Conversation{
		conversation("ann", 1, 59*time.Minute, 10), conversation("ann", 2, 30*time.Minute, 20), conversation("bob", 3, 0, 30)}}
	sweeping(t, Rules{MaxAge: time.Hour}, s, func(reg *prometheus.Registry) {
		if got := s.left(); got != "c1 c2 c3" {
			t.Errorf("at once %q is left", got)
		}
		time.Sleep(2 * time.Minute)
		if got := s.left(); got != "c2 c3" {
			t.Errorf("after 2 minutes %q is left", got)
		}
		s.change(func() { s.list[0].Newest, s.list[0].At = fmt.Sprintf("%026d", 9), start.Add(2*time.Minute) })
		s.change(func() { s.writes++ })
		time.Sleep(55 * time.Minute)
		if got := s.left(); got != "c2 c3" {
			t.Errorf("after an hour %q is left, and one was written to meanwhile", got)
		}
		time.Sleep(10 * time.Minute)
		if got := s.left(); got != "" {
			t.Errorf("after more than an hour %q is left", got)
		}
		synctest.Wait()
		if got := fmt.Sprint(s.index.forgotten, s.index.out); got != "[c1 c3 c2] map[]" {
			t.Errorf("the index has forgotten %s", got)
		}
		counted(t, reg, "historyd_retention_removed_total", `# HELP historyd_retention_removed_total Conversations removed, by reason: age, bytes.
# TYPE historyd_retention_removed_total counter
historyd_retention_removed_total{reason="age"} 3
historyd_retention_removed_total{reason="bytes"} 0
`)
		counted(t, reg, "historyd_retention_removed_bytes_total", `# HELP historyd_retention_removed_bytes_total Bytes of conversations removed, by reason: age, bytes.
# TYPE historyd_retention_removed_bytes_total counter
historyd_retention_removed_bytes_total{reason="age"} 60
historyd_retention_removed_bytes_total{reason="bytes"} 0
`)
	})
}

func TestConversationsGoWhenACallerHasTooMuch(t *testing.T) {
	s := &shelf{list: []Conversation{conversation("ann", 1, 0, 10), conversation("ann", 2, 0, 20), conversation("bob", 3, 0, 60)}}
	sweeping(t, Rules{MaxBytes: 30}, s, func(*prometheus.Registry) {
		if got := s.left(); got != "c1 c2 c3" {
			t.Errorf("%q is left, and nobody had too much but in the newest", got)
		}
		s.change(func() { s.list = append(s.list[:2:2], conversation("ann", 4, 0, 10), s.list[2]); s.writes++ })
		time.Sleep(11 * time.Second)
		if got := s.left(); got != "c2 c4 c3" {
			t.Errorf("%q is left, want the oldest of who had too much gone", got)
		}
	})
}

func TestWhatIsInUseStaysUntilItIsNot(t *testing.T) {
	s := &shelf{used: map[string]bool{"c1": true}, list: []Conversation{
		conversation("ann", 1, 2*time.Hour, 10), conversation("ann", 2, 2*time.Hour, 10), conversation("eve", 3, -time.Hour, 10)}}
	sweeping(t, Rules{MaxAge: time.Hour}, s, func(reg *prometheus.Registry) {
		time.Sleep(time.Minute)
		if got := s.left(); got != "c1 c3" {
			t.Errorf("%q is left, want the one in use and the newest", got)
		}
		s.change(func() { s.used = nil })
		time.Sleep(time.Minute)
		if got := s.left(); got != "c3" {
			t.Errorf("%q is left when nobody uses the other any more", got)
		}
	})
}

func TestOneThatCannotBeClearedKeepsNoOther(t *testing.T) {
	for _, forgets := range []bool{true, false} {
		s := &shelf{broken: map[string]error{"c1": errors.New("broken")}, list: []Conversation{
			conversation("ann", 1, 2*time.Hour, 10), conversation("ann", 2, 2*time.Hour, 10), conversation("bob", 3, 2*time.Hour, 10),
			conversation("eve", 4, -9*time.Hour, 10)}}
		if !forgets {
			s.index = &words{out: map[string]bool{}, err: errors.New("broken")}
		}
		sweeping(t, Rules{MaxAge: time.Hour}, s, func(reg *prometheus.Registry) {
			time.Sleep(time.Minute)
			if got, want := s.left(), map[bool]string{true: "c1 c4", false: "c1 c2 c3 c4"}[forgets]; got != want {
				t.Errorf("%q is left, want %q", got, want)
			}
			before := s.looks()
			time.Sleep(time.Hour)
			if n := s.looks() - before; n < 5 || n > 10 {
				t.Errorf("it is tried %d times in the next hour, want every ten minutes", n)
			}
			synctest.Wait()
			s.change(func() {
				s.broken = nil
				if s.index != nil {
					s.index.err = nil
				}
			})
			time.Sleep(10 * time.Minute)
			if got := s.left(); got != "c4" {
				t.Errorf("%q is left when all can be cleared", got)
			}
		})
	}
}

func TestAJumpOfTheClockRemovesNothing(t *testing.T) {
	s := &shelf{}
	for n := range 20 {
		s.list = append(s.list, conversation("ann", n, time.Duration(n)*time.Minute, 10))
	}
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		offset := time.Until(start)
		set := func(by time.Duration) {
			mu.Lock()
			defer mu.Unlock()
			offset += by
		}
		reg := prometheus.NewRegistry()
		sw, err := New(Options{Rules: Rules{MaxAge: 30 * 24 * time.Hour, MaxBytes: 1 << 40}, Record: s, FS: crashfs.New(), Registerer: reg, Now: func() time.Time {
			mu.Lock()
			defer mu.Unlock()
			return time.Now().Add(offset)
		}})
		if err != nil {
			t.Fatal(err)
		}
		defer sw.Close()
		time.Sleep(time.Minute)
		held := func() float64 { return testutil.ToFloat64(sw.metrics.held) }
		set(10 * 365 * 24 * time.Hour)
		for range 23 {
			s.change(func() { s.writes++ })
			time.Sleep(time.Hour)
			if got := len(strings.Fields(s.left())); got != 20 || held() != 1 {
				t.Fatalf("%d of 20 are left after a jump, held is %v", got, held())
			}
		}
		set(-10 * 365 * 24 * time.Hour)
		time.Sleep(48 * time.Hour)
		if got := len(strings.Fields(s.left())); got != 20 || held() != 0 {
			t.Fatalf("%d of 20 are left after it was set right, held is %v", got, held())
		}
		set(10 * 365 * 24 * time.Hour)
		time.Sleep(25 * time.Hour)
		if got := s.left(); got != "" {
			t.Errorf("%q is left, a day after a jump that nobody has set right", got)
		}
	})
}

func TestAnIdleRecordIsNotLookedThrough(t *testing.T) {
	s := &shelf{list: []Conversation{conversation("ann", 1, 0, 10)}}
	sweeping(t, Rules{MaxAge: 30 * 24 * time.Hour, MaxBytes: 100}, s, func(*prometheus.Registry) {
		time.Sleep(time.Minute)
		before := s.looks()
		time.Sleep(24 * time.Hour)
		if n := s.looks() - before; n != 0 {
			t.Errorf("%d times in a day in which nothing happens", n)
		}
		s.change(func() { s.writes++ })
		time.Sleep(time.Hour)
		if n := s.looks() - before; n != 1 {
			t.Errorf("%d times after a write, want once", n)
		}
	})
}

func TestASweepLeavesMostOfTheTimeToOthers(t *testing.T) {
	s := &shelf{cost: 3 * time.Millisecond}
	for n := range 5000 {
		s.list = append(s.list, conversation("ann", n, 0, 10))
	}
	sweeping(t, Rules{MaxBytes: 1 << 40}, s, func(*prometheus.Registry) {
		began := time.Now()
		time.Sleep(time.Minute)
		var worked time.Duration
		s.change(func() { worked = s.worked })
		if share := float64(worked) / float64(time.Since(began)); share < 0.15 || share > 0.21 {
			t.Errorf("it works for %.2f of the time, want a fifth", share)
		}
	})
}

func TestManyGoInSeveralSweeps(t *testing.T) {
	s := &shelf{list: []Conversation{conversation("eve", 0, -time.Hour, 10)}}
	for n := range 2*maxChosen + 500 {
		s.list = append(s.list, conversation("ann", n, 2*time.Hour, 10))
	}
	sweeping(t, Rules{MaxAge: time.Hour}, s, func(*prometheus.Registry) {
		s.change(func() {
			if got := len(s.gone); got != maxChosen {
				t.Errorf("%d go at once, want %d", got, maxChosen)
			}
		})
		time.Sleep(time.Minute)
		if got := s.left(); got != "c0" {
			t.Errorf("%q is left", got)
		}
	})
	for i, name := range s.gone {
		if name != fmt.Sprint("c", i) {
			t.Fatalf("%s goes as number %d", name, i)
		}
	}
}

func TestCloseEndsASweep(t *testing.T) {
	s := &shelf{cost: time.Second}
	for n := range 5000 {
		s.list = append(s.list, conversation("ann", n, 2*time.Hour, 10))
	}
	sweeping(t, Rules{MaxAge: time.Hour}, s, func(*prometheus.Registry) { time.Sleep(time.Minute) })
	if len(s.gone) != 0 {
		t.Errorf("%d went before all were looked at", len(s.gone))
	}
}

func TestOptionsAreChecked(t *testing.T) {
	good := Options{Rules: Rules{MaxAge: 1}, Record: &shelf{}, FS: crashfs.New()}
	for name, change := range map[string]func(*Options){
		"Record":   func(o *Options) { o.Record = nil },
		"FS":       func(o *Options) { o.FS = nil },
		"MaxAge":   func(o *Options) { o.MaxAge = -1 },
		"MaxBytes": func(o *Options) { o.MaxAge, o.MaxBytes = 0, -1 },
		"required": func(o *Options) { o.Rules = Rules{} },
	} {
		o := good
		change(&o)
		if s, err := New(o); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v, %v", name, s, err)
		}
	}
}
