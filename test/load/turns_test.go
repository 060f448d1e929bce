package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"testing"
	"time"
)

// orders are the rounds of turns, the first that warms up included.
func orders(t *testing.T, seed uint64, rounds, n int) ([][]int, []*figure) {
	t.Helper()
	var figures []*figure
	for i := range n {
		figures = append(figures, &figure{name: fmt.Sprint(i)})
	}
	var all []int
	err := turns(newChance(seed), rounds, figures, func(i int) (sample, error) {
		all = append(all, i)
		return sample{rate: float64(i + 1), latency: []time.Duration{time.Second}, cpu: 2, later: 1, restless: i == 1}, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return slices.Collect(slices.Chunk(all, n)), figures
}

func TestEachIsMeasuredOnceARoundAndComesBehindEachOther(t *testing.T) {
	const rounds, n = 60, 5
	all, figures := orders(t, 1, rounds, n)
	if len(all) != rounds+1 {
		t.Errorf("%d rounds, want %d", len(all), rounds+1)
	}
	behind := map[[2]int]bool{}
	for _, round := range all {
		if got := slices.Sorted(slices.Values(round)); !slices.Equal(got, []int{0, 1, 2, 3, 4}) {
			t.Errorf("a round of %v, want each once", round)
		}
		for k := 1; k < len(round); k++ {
			behind[[2]int{round[k-1], round[k]}] = true
		}
	}
	if len(behind) != n*(n-1) {
		t.Errorf("%d pairs come behind each other, want all %d: %v", len(behind), n*(n-1), all)
	}
	for i, f := range figures {
		if len(f.rates) != rounds || len(f.ratios) != rounds || f.ratios[0] != 1/float64(i+1) || f.requests != rounds ||
			f.cpu != 2*rounds || f.later != rounds || f.restless != map[bool]int{true: rounds}[i == 1] {
			t.Errorf("figure %d: %+v", i, f)
		}
	}
}

func TestASeedRepeatsTheOrder(t *testing.T) {
	one, _ := orders(t, 1, 8, 6)
	again, _ := orders(t, 1, 8, 6)
	other, _ := orders(t, 2, 8, 6)
	if fmt.Sprint(one) != fmt.Sprint(again) {
		t.Errorf("seed 1 gives %v and then %v", one, again)
	}
	if fmt.Sprint(one) == fmt.Sprint(other) {
		t.Errorf("seeds 1 and 2 both give %v", one)
	}
}

// processors is a contender that notes how many may run Go code in this process while it appends.
type processors struct {
	pid   int
	procs int
}

func (p *processors) connect(int) error     { return nil }
func (p *processors) replay(int, int) error { return errCantReplay }
func (p *processors) process() int          { return p.pid }
func (p *processors) close()                {}
func (p *processors) append(int, int) error { p.procs = runtime.GOMAXPROCS(0); return nil }

// twoProcs lets this process run Go code on two processors for the time of a test, as a small machine does.
func twoProcs(t *testing.T, environment string) {
	t.Helper()
	t.Setenv("GOMAXPROCS", environment)
	old := runtime.GOMAXPROCS(2)
	t.Cleanup(func() { runtime.GOMAXPROCS(old) })
}

func TestAContenderInThisProcessHasTheRuntimeOfTheDaemonForItsSlice(t *testing.T) {
	for _, tt := range []struct {
		name        string
		environment string
		pid         int
		want        int
	}{
		{"in this process", "", 0, 8},
		{"in this process, with a word in the environment", "2", 0, 2},
		{"a server, whose clients are here", "", os.Getpid(), 2},
	} {
		t.Run(tt.name, func(t *testing.T) {
			twoProcs(t, tt.environment)
			p := &processors{pid: tt.pid}
			if _, err := (&standing{contender: p}).drive(t.Context(), workAppend, 1, 1, time.Millisecond); err != nil {
				t.Fatal(err)
			}
			if p.procs != tt.want || runtime.GOMAXPROCS(0) != 2 {
				t.Errorf("%d processors and %d after, want %d and 2", p.procs, runtime.GOMAXPROCS(0), tt.want)
			}
		})
	}
}

func TestTheRuntimeOfTheDaemonIsTakenBack(t *testing.T) {
	twoProcs(t, "")
	t.Setenv("GOGC", "")
	old := debug.SetGCPercent(150)
	defer debug.SetGCPercent(old)
	back := asDaemon()
	during := debug.SetGCPercent(400)
	back()
	if after := debug.SetGCPercent(150); during != 400 || after != 150 {
		t.Errorf("collected at %d %% and then at %d %%, want 400 and 150", during, after)
	}
}

// defaultProcs is what the runtime takes by itself, which is less than the cores have where a container may use fewer.
func defaultProcs() int {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(0))
	runtime.SetDefaultGOMAXPROCS()
	return runtime.GOMAXPROCS(0)
}

func TestTheBareServerHasTheRuntimeOfTheDaemon(t *testing.T) {
	t.Setenv("GOMAXPROCS", "")
	dir := t.TempDir()
	c, err := startBare(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer c.close()
	want := fmt.Sprintln("GOMAXPROCS", max(8, defaultProcs()))
	if said, err := os.ReadFile(filepath.Join(dir, "log")); err != nil || string(said) != want {
		t.Errorf("it says %q, %v, want %q", said, err, want)
	}
}

func TestTheDaemonHasIndexedWhatItWasGivenWhenItSettled(t *testing.T) {
	c, err := startHistoryd(scratch(t), daemon(t))
	if err != nil {
		t.Fatal(err)
	}
	defer c.close()
	h := c.(historyd)
	if err := h.connect(1); err != nil {
		t.Fatal(err)
	}
	for range window {
		if err := h.append(0, 0); err != nil {
			t.Fatal(err)
		}
	}
	s := &standing{contender: h, name: "historyd"}
	if err := s.settled(t.Context()); err != nil {
		t.Fatal(err)
	}
	if want := fmt.Sprintf("\nhistoryd_index_messages_total %d\n", window); !strings.Contains(metrics(t, h), want) {
		t.Errorf("no %q in\n%s", want, metrics(t, h))
	}
}

// metrics is what the daemon tells of itself.
func metrics(t *testing.T, h historyd) string {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+h.addr+"/metrics", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	_, token, _ := strings.Cut(strings.TrimSpace(h.headers), ": ")
	req.Header.Set("Authorization", token)
	resp, err := new(http.Client).Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	said, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(said)
}

func TestWhatDoesNotSettleIsWaitedForNoLongerThanThat(t *testing.T) {
	for name, serve := range map[string]http.HandlerFunc{
		"always behind": func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, `{"behind":true}`) },
		"no answer":     func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() },
	} {
		t.Run(name, func(t *testing.T) {
			srv := httptest.NewServer(serve)
			defer srv.Close()
			h := historyd{&web{server: &server{addr: srv.Listener.Addr().String()}}}
			s := &standing{contender: h}
			if settled, err := s.settle(t.Context(), 100*time.Millisecond); settled || err != nil {
				t.Errorf("settled: %t, %v; want false and no error", settled, err)
			}
			interrupted, stop := context.WithCancel(t.Context())
			stop()
			if settled, err := s.settle(interrupted, time.Minute); settled || err == nil {
				t.Errorf("interrupted: settled %t, %v; want false and an error", settled, err)
			}
		})
	}
}

// roll is a contender that notes who appended to what.
type roll struct {
	processors
	said [][2]int
}

func (r *roll) append(client, conversation int) error {
	r.said = append(r.said, [2]int{client, conversation})
	return nil
}

func TestEachClientSpeaksEarlyWhileAContenderIsFilled(t *testing.T) {
	for _, tt := range []struct{ clients, conversations int }{{4, 2}, {2, 4}, {3, 3}} {
		r := &roll{}
		s := &standing{contender: r}
		if err := s.fill(t.Context(), tt.clients, tt.conversations); err != nil {
			t.Fatal(err)
		}
		most := max(tt.clients, tt.conversations)
		spoke, filled := map[int]bool{}, map[int]int{}
		for i, said := range r.said {
			if i < most {
				spoke[said[0]] = true
			}
			filled[said[1]]++
		}
		if len(spoke) != tt.clients || len(filled) != tt.conversations || s.stored != most*window || len(r.said) != s.stored {
			t.Errorf("%+v: clients %v, conversations %v, %d stored", tt, spoke, filled, s.stored)
		}
		for c, n := range filled {
			if n < window {
				t.Errorf("%+v: conversation %d has %d messages, want %d", tt, c, n, window)
			}
		}
	}
}

func TestATableTellsWhoStillWorked(t *testing.T) {
	var out strings.Builder
	figures := []*figure{{name: "quick", rates: []float64{1}, ratios: []float64{1}}, {name: "slow", rates: []float64{1}, ratios: []float64{1}, restless: 3}}
	if err := table(&out, "", "", figures); err != nil {
		t.Fatal(err)
	}
	if want := "slow still worked 10s after 3 of its slices"; !strings.Contains(out.String(), want) || strings.Contains(out.String(), "quick still") {
		t.Errorf("want %q alone in\n%s", want, out.String())
	}
}
