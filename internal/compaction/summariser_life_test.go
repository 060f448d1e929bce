package compaction

import (
	"context"
	"encoding/json/jsontext"
	"fmt"
	"iter"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"historyd/internal/durable/crashfs"
	"historyd/internal/history"
	"historyd/test/chatmodel"
)

func TestAppendsDuringASummaryAllStandBehindIt(t *testing.T) {
	asked, answer := make(chan struct{}, 8), make(chan struct{})
	m := chatmodel.New(t, func(w http.ResponseWriter, c chatmodel.Chat) {
		asked <- struct{}{}
		<-answer
		chatmodel.Says(w, fmt.Sprint("Summary number ", c.Number))
	})
	b := newBench(t, m.URL, nil)
	keep := *b.c
	keep.keep, keep.batch = 60, 1000 // no fold meanwhile
	b.foldOnce("ann")
	b.s.Wake(scope(t, "ann"), "default")
	<-asked
	for i := range 50 {
		if _, err := b.log("ann").Append(t.Context(), history.Batch{Messages: []history.Message{person(fmt.Sprint("new ", i))}, Fold: &keep}); err != nil {
			t.Fatal(err)
		}
	}
	close(answer)
	waitFor(t, func() bool { return testutil.ToFloat64(b.s.results.WithLabelValues("recorded")) == 1 })
	v, err := b.log("ann").View(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer v.Close()
	s := v.State()
	if s.Prose == nil || s.Prose.ThroughSeq != 4 || s.LastSeq != 56 {
		t.Fatalf("state %+v", s)
	}
	next := int64(5)
	for r, err := range v.Records(5, 1<<40) {
		m, merr := r.Message()
		if err != nil || merr != nil || m.Seq != next || m.Seq > 6 && m.Content[0].Text != fmt.Sprint("new ", m.Seq-7) {
			t.Fatalf("behind the summary stands %+v: %v, %v", m, err, merr)
		}
		next++
	}
	if next != 57 {
		t.Errorf("%d messages stand behind the summary", next-5)
	}
	// The next fold takes it, and what came meanwhile is in the digest or the window.
	b.turn("ann", "last")
	b.turn("ann", "last")
	s = b.state("ann")
	if s.Summary.Text != "Summary number 1" || int64(len(s.Summary.Lines)) != s.Summary.Turns-2 || !strings.Contains(s.Summary.Lines[1], "new 0") {
		t.Errorf("the summary is %+v", s.Summary)
	}
}

// waitFor waits for what another goroutine does without telling.
func waitFor(t *testing.T, done func() bool) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); !done(); {
		if time.Now().After(end) {
			t.Fatal("it does not come to pass")
		}
		time.Sleep(time.Millisecond)
	}
}

func TestASummaryOfAnEarlierFoldIsDropped(t *testing.T) {
	asked, answer := make(chan struct{}, 8), make(chan struct{}, 8)
	m := chatmodel.New(t, func(w http.ResponseWriter, c chatmodel.Chat) {
		asked <- struct{}{}
		<-answer
		chatmodel.Says(w, fmt.Sprint("Summary number ", c.Number))
	})
	b := newBench(t, m.URL, nil)
	b.foldOnce("ann")
	for range 3 {
		b.s.Wake(scope(t, "ann"), "default")
	}
	<-asked
	b.turn("ann", "x")
	b.turn("ann", "y") // folds
	b.s.Wake(scope(t, "ann"), "default")
	b.s.Wake(scope(t, "ann"), "default")
	answer <- struct{}{}
	<-asked // the fold that came meanwhile, without another wake
	if s := b.state("ann"); s.Prose != nil || s.Summary.Text != "" {
		t.Errorf("a stale summary is there: %+v", s)
	}
	answer <- struct{}{}
	waitFor(t, func() bool { return b.state("ann").Prose != nil })
	if p := b.state("ann").Prose; p.Text != "Summary number 2" || p.ThroughSeq != 8 {
		t.Errorf("the prose is %+v", p)
	}
	waitFor(t, func() bool {
		b.s.mu.Lock()
		defer b.s.mu.Unlock()
		return len(b.s.known) == 0
	})
	if n := len(m.Requests()); n != 2 {
		t.Errorf("%d requests for two folds", n)
	}
	// What happens to the conversation meanwhile is not undone by a late answer.
	for name, change := range map[string]func() error{
		"a rewind": func() error { _, err := b.log("ann").Rewind(t.Context(), history.Rewind{Through: 2}); return err },
		"a clear":  func() error { return b.log("ann").Clear(t.Context()) },
	} {
		for b.state("ann").Prose != nil || b.state("ann").Summary == nil {
			b.turn("ann", long("again"))
		}
		done := make(chan string)
		go func() { done <- b.try("ann") }()
		<-asked
		if err := change(); err != nil {
			t.Fatal(err)
		}
		answer <- struct{}{}
		if got := <-done; got != "stale" || b.state("ann").Prose != nil {
			t.Errorf("after %s the attempt ended as %s: %+v", name, got, b.state("ann").Prose)
		}
	}
}

func TestTwoCallersSummariesAreNotSwapped(t *testing.T) {
	m := chatmodel.New(t, func(w http.ResponseWriter, c chatmodel.Chat) {
		for _, who := range []string{"alice", "bob", "carol", "dave"} {
			if strings.Contains(c.Said, "secret of "+who) {
				chatmodel.Says(w, "The secret of "+who+" was told.")
				return
			}
		}
		w.WriteHeader(400)
	})
	b := newBench(t, m.URL, func(o *SummariserOptions) { o.Workers = 4 })
	var wg sync.WaitGroup
	callers := []string{"alice", "bob", "carol", "dave"}
	for _, who := range callers {
		wg.Go(func() {
			for i := range 21 {
				if r := b.turn(who, fmt.Sprintf("%s secret of %s %d", long("matter"), who, i)); r.Folded {
					b.s.Wake(scope(t, who), "default")
				}
			}
		})
	}
	wg.Wait()
	waitFor(t, func() bool {
		b.s.mu.Lock()
		defer b.s.mu.Unlock()
		return len(b.s.known) == 0
	})
	for _, who := range callers {
		s := b.state(who)
		if s.Prose == nil || s.Prose.Text != "The secret of "+who+" was told." || s.Prose.ThroughSeq != s.Summary.ThroughSeq {
			t.Errorf("%s: %+v", who, s.Prose)
		}
		for _, line := range append([]string{s.Summary.Text}, s.Summary.Lines...) {
			if line != "" && !strings.Contains(line, who) && strings.Contains(line, "secret of") {
				t.Errorf("%s has %q", who, line)
			}
		}
	}
	for _, c := range m.Requests() {
		n := 0
		for _, who := range callers {
			if strings.Contains(c.Said, "secret of "+who) {
				n++
			}
		}
		if n != 1 {
			t.Errorf("a request holds words of %d callers", n)
		}
	}
}

func TestCloseEndsWhatIsUnderWay(t *testing.T) {
	asked := make(chan struct{}, 8)
	m := chatmodel.New(t, func(_ http.ResponseWriter, c chatmodel.Chat) {
		asked <- struct{}{}
		<-c.Request.Context().Done()
	})
	b := newBench(t, m.URL, nil)
	b.foldOnce("ann")
	b.foldOnce("bob")
	b.s.Wake(scope(t, "ann"), "default")
	b.s.Wake(scope(t, "bob"), "default")
	<-asked
	<-asked
	b.s.Close()
	b.s.Close()
	b.s.Wake(scope(t, "ann"), "default")
	if got := testutil.ToFloat64(b.s.results.WithLabelValues("stopping")); got != 2 {
		t.Errorf("%v attempts ended as stopping", got)
	}
	if b.state("ann").Prose != nil {
		t.Error("something was recorded")
	}
}

func TestAFullQueueDropsAndNeverWaits(t *testing.T) {
	asked := make(chan struct{}, 8)
	m := chatmodel.New(t, func(_ http.ResponseWriter, c chatmodel.Chat) {
		asked <- struct{}{}
		<-c.Request.Context().Done()
	})
	reg := prometheus.NewRegistry()
	b := newBench(t, m.URL, func(o *SummariserOptions) { o.Workers, o.Registerer = 1, reg })
	waiting := func(want int) {
		t.Helper()
		text := fmt.Sprintf("# HELP historyd_summaries_waiting Conversations that wait for a model.\n# TYPE historyd_summaries_waiting gauge\nhistoryd_summaries_waiting %d\n", want)
		if err := testutil.GatherAndCompare(reg, strings.NewReader(text), "historyd_summaries_waiting"); err != nil {
			t.Error(err)
		}
	}
	b.foldOnce("ann")
	b.s.Wake(scope(t, "ann"), "default")
	<-asked
	waiting(0)
	for i := range maxWaiting + 5 {
		b.s.Wake(scope(t, "bob"), fmt.Sprint("c", i))
		b.s.Wake(scope(t, "bob"), fmt.Sprint("c", i))
	}
	if got := testutil.ToFloat64(b.s.results.WithLabelValues("dropped")); got != 10 {
		t.Errorf("%v were dropped, want those of 5 conversations, twice", got)
	}
	waiting(maxWaiting)
}

func TestASlowModelIsNotWaitedForForEver(t *testing.T) {
	m := chatmodel.New(t, func(_ http.ResponseWriter, c chatmodel.Chat) { <-c.Request.Context().Done() })
	b := newBench(t, m.URL, func(o *SummariserOptions) { o.Endpoint.Timeout = time.Second })
	b.foldOnce("ann")
	if got := b.try("ann"); got != "failed" || len(m.Requests()) != 3 || !strings.Contains(b.logs.String(), "did not answer in time") {
		t.Errorf("ended as %s after %d requests: %s", got, len(m.Requests()), b.logs.String())
	}
	m.Close()
	if got := b.try("ann"); got != "failed" {
		t.Errorf("without a server it ends as %s", got)
	}
}

func TestTheKeyIsReadEachTimeAndToldNobody(t *testing.T) {
	m := chatmodel.New(t, func(w http.ResponseWriter, _ chatmodel.Chat) { w.WriteHeader(500) })
	file := filepath.Join(t.TempDir(), "key")
	b := newBench(t, m.URL, func(o *SummariserOptions) { o.Endpoint.APIKeyFile = file })
	b.foldOnce("ann")
	for _, key := range []string{"sk-one", "sk-two"} {
		if err := os.WriteFile(file, []byte(key+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		b.try("ann")
		reqs := m.Requests()
		if got := reqs[len(reqs)-1].Bearer; got != "Bearer "+key {
			t.Errorf("the key sent is %q", got)
		}
	}
	n := len(m.Requests())
	for _, bad := range []string{"", " \n", "sk-a\r\nX-Evil: 1", strings.Repeat("k", 5000)} {
		if err := os.WriteFile(file, []byte(bad), 0o600); err != nil {
			t.Fatal(err)
		}
		if got := b.try("ann"); got != "failed" || len(m.Requests()) != n {
			t.Errorf("with the key %.20q it ends as %s after %d requests", bad, got, len(m.Requests()))
		}
	}
	if s := b.logs.String(); strings.Contains(s, "sk-") || strings.Contains(s, "kkkk") {
		t.Errorf("the log holds a key: %s", s)
	}
}

func TestAGapIsNotSummarised(t *testing.T) {
	m := chatmodel.New(t, chatmodel.Always("short"))
	b := newBench(t, m.URL, nil)
	v := gapView{state: history.State{Epoch: "e", Summary: &history.Summary{ThroughSeq: 4, Turns: 2, Messages: 4}}}
	for _, missing := range []int64{1, 2, 4} {
		v.missing = missing
		if err := b.s.summarise(t.Context(), gapLog{view: v}); err == nil || !strings.Contains(err.Error(), errGap.Error()) {
			t.Errorf("without message %d: %v", missing, err)
		}
	}
	if len(m.Requests()) != 0 {
		t.Error("the model was asked about a part")
	}
}

// gapView is a view in which one message is missing.
type gapView struct {
	history.View
	state   history.State
	missing int64
}

type gapLog struct {
	history.Log
	view gapView
}

func (l gapLog) View(context.Context) (history.View, error) { return l.view, nil }

func (v gapView) State() history.State { return v.state }
func (v gapView) Close()               {}

func (v gapView) Records(from, to int64) iter.Seq2[history.Record, error] {
	return func(yield func(history.Record, error) bool) {
		for seq := from; seq <= to; seq++ {
			m := person("said")
			m.Seq, m.ID = seq, "i"
			if seq != v.missing && !yield(history.Record{Seq: seq, JSON: jsontext.Value(history.AppendMessage(nil, &m))}, nil) {
				return
			}
		}
	}
}

func TestSummariserOptionsAreHeldToTheirRange(t *testing.T) {
	st := openStore(t, crashfs.New())
	defer st.Close()
	good := func() SummariserOptions {
		return SummariserOptions{Record: st, Endpoint: Endpoint{BaseURL: "http://127.0.0.1:1/v1", Name: "m"}}
	}
	for want, change := range map[string]func(*SummariserOptions){
		"":                        func(*SummariserOptions) {},
		"Record":                  func(o *SummariserOptions) { o.Record = nil },
		"MaxSummaryChars":         func(o *SummariserOptions) { o.MaxSummaryChars = 999 },
		"Workers":                 func(o *SummariserOptions) { o.Workers = -1 },
		"Endpoint: Name":          func(o *SummariserOptions) { o.Endpoint.Name = "" },
		"Endpoint: Timeout":       func(o *SummariserOptions) { o.Endpoint.Timeout = -1 },
		"Endpoint: MaxInputToken": func(o *SummariserOptions) { o.Endpoint.MaxInputTokens = 999 },
		"Endpoint: BaseURL":       func(o *SummariserOptions) { o.Endpoint.BaseURL = "" },
	} {
		o := good()
		change(&o)
		s, err := NewSummariser(o)
		if s != nil {
			s.Close()
		}
		if (err == nil) != (want == "") || err != nil && !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%q: %v", want, err)
		}
	}
	if least := textLimit(MinModelChars); least < 200 {
		t.Errorf("the least limit leaves %d code points for a text", least)
	}
	for address, good := range map[string]bool{
		"http://127.0.0.1:11434/v1": true, "http://[::1]:80": true, "http://localhost:1/v1/": true, "https://api.example.com/v1": true,
		"http://api.example.com/v1": false, "http://10.0.0.1/v1": false, "https://user:key@example.com": false, "https://example.com/v1?key=1": false,
		"ftp://127.0.0.1": false, "127.0.0.1:1": false, "": false, "http://": false, "http://127.0.0.1.example.com": false,
	} {
		if err := CheckBaseURL(address); (err == nil) != good {
			t.Errorf("%q: %v", address, err)
		}
	}
}
