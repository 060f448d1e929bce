package fault

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"historyd/test/built"
)

// jumps are where a clock may be set, from the right time on.
var jumps = []time.Duration{
	time.Second, -time.Second, time.Hour, -time.Hour, 25 * time.Hour, -25 * time.Hour,
	400 * 24 * time.Hour, -400 * 24 * time.Hour, farthest, -50 * 365 * 24 * time.Hour, 0,
}

const farthest = 40 * 365 * 24 * time.Hour

// onClock has a server run by a clock that can be moved.
func onClock(t *testing.T, s *server) *built.Clock {
	t.Helper()
	path, err := built.Clocked()
	if err != nil {
		t.Fatal(err)
	}
	clock, err := built.NewClock(filepath.Join(t.TempDir(), "clock"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		s.kill()
		if err := clock.Close(); err != nil {
			t.Error(err)
		}
	})
	s.path, s.env = path, []string{clock.Env()}
	return clock
}

// TestTheClockJumps sets the clock to and fro, by up to 50 years, while many clients use the daemon, which is killed now
// and then. Nothing is lost, out of order, there twice or served under the id of another, and nobody waits for a time that
// is far away.
func TestTheClockJumps(t *testing.T) {
	t.Parallel()
	rounds := 30
	if *long {
		rounds = 500
	}
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	s := newServer(t, scratch(t), nil)
	clock := onClock(t, s)
	d := newDriver(t, s, 5)
	s.begin()
	bystander := d.bystander()
	for round := range rounds {
		by := jumps[rng.IntN(len(jumps))]
		d.what = fmt.Sprintf("jump %d, to %v", round, by)
		kill := rng.IntN(3) == 0
		d.work(rng, func() {
			clock.Set(by)
			d.figures.blows++
			time.Sleep(time.Duration(rng.IntN(40)) * time.Millisecond)
			if kill {
				s.Strike()
			}
		})
		if kill {
			s.kill()
			d.again(rng)
		}
		d.verify()
		bystander(t)
		d.distinct()
		d.prune(rng)
		if t.Failed() {
			d.fatalf("see above")
		}
	}
	if err := d.aged(clock); err != nil {
		d.fatalf("%v", err)
	}
	s.stop()
	if found := s.check(); len(found) > 0 {
		t.Errorf("in the end check finds %v", found)
	}
	t.Logf("%v: 0 lost, 0 duplicated, 0 out of order, 0 silent", d.figures)
}

// distinct wants no id twice in a conversation.
func (d *driver) distinct() {
	d.t.Helper()
	for _, c := range d.all() {
		all, err := d.messages(c.name)
		if err != nil {
			d.fatalf("conversation %s: %v", c.name, err)
		}
		seen := map[string]int64{}
		for _, m := range all {
			if first, ok := seen[m.ID]; ok || m.ID == "" {
				d.fatalf("%s: messages %d and %d have the id %q", c.name, first, m.Seq, m.ID)
			}
			seen[m.ID] = m.Seq
		}
	}
}

// aged wants the daemon to have lived by the clock that was moved: else nothing has been shown.
func (d *driver) aged(clock *built.Clock) error {
	clock.Set(farthest)
	a := d.s.try("POST", "/v1/conversations/aged/turns", []byte(`{"messages":[{"role":"user","content":"x"}]}`))
	if a.status != http.StatusCreated {
		return fmt.Errorf("append: %d %.300s", a.status, a.body)
	}
	year := fmt.Sprint(time.Now().UTC().Add(farthest).Year(), "-")
	if a = d.s.try("GET", "/v1/conversations/aged/messages", nil); !strings.Contains(string(a.body), `"`+year) {
		return fmt.Errorf("no message is of %s: %.300s", year, a.body)
	}
	return nil
}

// TestAClockThatIsSetRemovesNothing has conversations go at an age. When the clock is set to a time at which all are too old,
// they stay, before and after a restart, and until it is set right.
func TestAClockThatIsSetRemovesNothing(t *testing.T) {
	t.Parallel()
	s := newServer(t, scratch(t), map[string]any{"retention": map[string]any{"max_age": "30d"}})
	clock := onClock(t, s)
	s.begin()
	s.do(http.StatusCreated, "POST", "/v1/conversations/old/turns", body(t, false, batch{nameOf(1), 3}))
	looked := func(what string) {
		t.Helper()
		// There is a look when something was written.
		s.do(http.StatusCreated, "POST", "/v1/conversations/new/turns", body(t, false, batch{nameOf(2), 1}))
		for end := time.Now().Add(patience); !strings.Contains(s.log(), "the clock has moved on by much"); time.Sleep(20 * time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("%s: nobody looks at the clock: %s", what, s.log())
			}
		}
		// What it removes is gone when it is done.
		before := swept(s)
		s.do(http.StatusCreated, "POST", "/v1/conversations/new/turns", body(t, false, batch{nameOf(3), 1}))
		for end := time.Now().Add(patience); swept(s) == before; time.Sleep(20 * time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("%s: nothing is looked through: %s", what, s.log())
			}
		}
		s.do(http.StatusOK, "GET", "/v1/conversations/old", nil)
	}
	seen(t, s, "")
	clock.Set(400 * 24 * time.Hour)
	looked("while it runs")
	s.kill()
	clock.Set(800 * 24 * time.Hour)
	s.begin()
	looked("before a start")
	clock.Set(0)
	s.stop()
	s.begin()
	s.do(http.StatusOK, "GET", "/v1/conversations/old", nil)
	s.stop()
	if found := s.check(); len(found) > 0 {
		t.Errorf("check finds %v", found)
	}
}

// swept is how often all conversations were looked through.
func swept(s *server) string {
	_, count, _ := bytes.Cut(s.try("GET", "/metrics", nil).body, []byte(`historyd_retention_sweeps_total{result="done"} `))
	count, _, _ = bytes.Cut(count, []byte("\n"))
	return string(count)
}

// seen waits until a look at the clock is written down that differs from the one before, and returns it.
func seen(t *testing.T, s *server, before string) string {
	t.Helper()
	file := filepath.Join(s.dir, "retention.json")
	for end := time.Now().Add(patience); ; time.Sleep(20 * time.Millisecond) {
		if now := string(filesOf(t, s.dir)[file]); now != before {
			return now
		}
		if time.Now().After(end) {
			t.Fatalf("the clock is not looked at: %s", s.log())
		}
	}
}

// TestWhatIsOldGoesByTheClock has time pass quicker than it does. What is used stays, however old it is.
func TestWhatIsOldGoesByTheClock(t *testing.T) {
	t.Parallel()
	s := newServer(t, scratch(t), map[string]any{"retention": map[string]any{"max_age": "1h"}})
	clock := onClock(t, s)
	s.begin()
	for i, name := range []string{"idle", "used"} {
		s.do(http.StatusCreated, "POST", "/v1/conversations/"+name+"/turns", body(t, false, batch{nameOf(int64(i)), 3}))
	}
	const pass = 20 * time.Minute // less than what is taken for a clock that was set
	look := seen(t, s, "")
	for step := range 3 {
		s.do(http.StatusOK, "GET", "/v1/conversations/idle", nil)
		clock.Set(time.Duration(step+1)*pass + time.Minute)
		s.do(http.StatusCreated, "POST", "/v1/conversations/used/turns", body(t, false, batch{nameOf(int64(10 + step)), 1}))
		look = seen(t, s, look)
	}
	// Who reads a conversation to see whether it is there keeps it there.
	for end := time.Now().Add(patience); !bytes.Contains(s.try("GET", "/metrics", nil).body, []byte(`removed_total{reason="age"} 1`)); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("what is too old stays: %s", s.log())
		}
	}
	s.do(http.StatusNotFound, "GET", "/v1/conversations/idle", nil)
	s.do(http.StatusOK, "GET", "/v1/conversations/used", nil)
	s.stop()
	if found := s.check(); len(found) > 0 {
		t.Errorf("check finds %v", found)
	}
}

// TestTokensExpireByTheClock needs neither a restart nor a new connection for it.
func TestTokensExpireByTheClock(t *testing.T) {
	t.Parallel()
	s := newServer(t, scratch(t), nil)
	clock := onClock(t, s)
	out, err := exec.Command(s.path, "token", "create", "--data-dir", s.dir, "--kind", "operator", "--id", "ann", "--expires", "1h").Output()
	if err != nil {
		t.Fatal(err)
	}
	s.token = strings.TrimSpace(string(out))
	s.begin()
	for _, tt := range []struct {
		at     time.Duration
		status int
	}{{0, 200}, {59 * time.Minute, 200}, {61 * time.Minute, 401}, {-time.Hour, 200}, {farthest, 401}} {
		clock.Set(tt.at)
		if a := s.try("GET", "/v1/whoami", nil); a.status != tt.status {
			t.Errorf("after %v: %d %.200s, want %d", tt.at, a.status, a.body, tt.status)
		}
	}
	s.stop()
}
