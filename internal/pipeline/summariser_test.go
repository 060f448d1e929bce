package pipeline

import (
	"encoding/json/v2"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"historyd/internal/compaction"
	"historyd/internal/history"
	"historyd/internal/identity"
	"historyd/internal/projection"
)

// woken notes who is to be summarised.
type woken struct{ conversations []Conversation }

func (w *woken) Met(identity.Scope, string) bool { return true }

func (w *woken) Wake(scope identity.Scope, name string) {
	w.conversations = append(w.conversations, Conversation{scope, name})
}

func TestTheSummariserIsToldOfEachFold(t *testing.T) {
	b := newBench(t, projection.Options{})
	w := &woken{}
	b.writer = w
	c := conversation(t, "ann")
	var want []Conversation
	turn := func(i int) Turn {
		return Turn{Messages: []history.Message{said(history.User, "q"), said(history.Assistant, "a")}, Key: fmt.Sprint("k", i)}
	}
	for i := range 26 {
		for range 2 { // the second is a replay
			b.record(c, turn(i))
		}
		if i >= 14 && (i-14)%5 == 0 {
			want = append(want, c)
		}
		if !slices.Equal(w.conversations, want) {
			t.Fatalf("after %d turns it was woken %d times, want %d", i+1, len(w.conversations), len(want))
		}
	}
	to := Conversation{c.Scope, "fork"}
	if _, err := b.Fork(t.Context(), c, to, 0); err != nil {
		t.Fatal(err)
	}
	if want = append(want, to); !slices.Equal(w.conversations, want) {
		t.Errorf("after a fork it was woken for %v", w.conversations)
	}
}

// What was withheld is in nothing that leaves for a model, and between two folds each
// replay goes on where the one before it ended, whatever the model answers meanwhile.
func TestAModelsSummaryHoldsNothingWithheldAndChangesReplaysAtFoldsAlone(t *testing.T) {
	const canary = "CANARY-8d1f"
	var mu sync.Mutex
	var asked []string
	model := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		mu.Lock()
		asked = append(asked, string(body))
		n := len(asked)
		mu.Unlock()
		fmt.Fprintf(w, `{"choices":[{"message":{"content":"Words number %d."}}]}`, n)
	}))
	defer model.Close()
	b := newBench(t, projection.Options{})
	reg := prometheus.NewRegistry()
	s, err := compaction.NewSummariser(compaction.SummariserOptions{
		Record: b.engine, Endpoint: compaction.Endpoint{BaseURL: model.URL, Name: "m"}, Clean: b.Clean, Registerer: reg,
	})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	w := &woken{}
	b.writer = w
	c := conversation(t, "ann")
	var last []string
	summary, changes, folds := "", 0, 0
	for i := range 60 {
		id := fmt.Sprint("c", i)
		b.record(c, Turn{Categories: map[string]string{"send": "wallet"}, Messages: []history.Message{
			said(history.User, fmt.Sprint("please send it, number ", i)), calls(id, "send", `{"to":"`+canary+`"}`), answers(id, "sent to "+canary),
			said(history.Assistant, "It is on its way."),
		}})
		r := b.replay(c, Ask{})
		var now []string
		text := ""
		for _, m := range r.Messages {
			now = append(now, string(history.AppendMessage(nil, &m)))
		}
		if r.Summary != nil {
			text = r.Summary.Text
		}
		if text != summary || len(now) < len(last) || !slices.Equal(now[:len(last)], last) {
			changes++
		}
		last, summary = now, text
		if len(w.conversations) > folds {
			folds = len(w.conversations)
			s.Wake(c.Scope, c.Name)
			waitFor(t, func() bool { return b.stateOf(c).Prose != nil })
		}
	}
	if changes > folds || folds != 10 {
		t.Errorf("the prefix changed %d times in %d folds", changes, folds)
	}
	if state := b.stateOf(c); state.Summary.Source != "model" || !strings.Contains(summary, "Words number 9.") {
		t.Errorf("the summary is %+v", state.Summary)
	}
	if n := len(asked); n != folds || strings.Contains(strings.Join(asked, ""), canary) || strings.Contains(summary, canary) {
		t.Errorf("%d requests for %d folds, with a withheld value: %t", n, folds, strings.Contains(strings.Join(asked, ""), canary))
	}
	var first struct{ Messages []struct{ Content string } }
	if err := json.Unmarshal([]byte(asked[0]), &first, json.MatchCaseInsensitiveNames(true)); err != nil || !strings.Contains(first.Messages[1].Content, "calls: send") {
		t.Errorf("the first request: %s", asked[0])
	}
	if n, err := testutil.GatherAndCount(reg, "historyd_summaries_seconds"); err != nil || n != 1 {
		t.Errorf("%d histograms: %v", n, err)
	}
}

func (b *bench) stateOf(c Conversation) history.State {
	b.t.Helper()
	s, err := b.State(b.t.Context(), c)
	if err != nil {
		b.t.Fatal(err)
	}
	return s
}

// waitFor waits for what another goroutine does without telling.
func waitFor(t *testing.T, done func() bool) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); !done(); runtime.Gosched() {
		if time.Now().After(end) {
			t.Fatal("it does not come to pass")
		}
	}
}

// waking counts how often a summariser is woken.
type waking struct {
	*compaction.Summariser
	wakes int
}

func (w *waking) Wake(scope identity.Scope, name string) {
	w.wakes++
	w.Summariser.Wake(scope, name)
}

// A fold from before a restart gets its words when something is added to the
// conversation, once; reads and other conversations ask nobody.
func TestAFoldFromBeforeTheStartGetsItsWords(t *testing.T) {
	var asked atomic.Int64
	refuse := atomic.Bool{}
	model := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		asked.Add(1)
		if refuse.Load() {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		fmt.Fprint(w, `{"choices":[{"message":{"content":"Words."}}]}`)
	}))
	defer model.Close()
	b := newBench(t, projection.Options{})
	c := conversation(t, "ann")
	turn := func() Turn {
		return Turn{Messages: []history.Message{said(history.User, "a question"), said(history.Assistant, "an answer")}}
	}
	for range 16 {
		b.record(c, turn())
	}
	quiet := Conversation{c.Scope, "quiet"}
	b.record(quiet, turn())
	if s := b.stateOf(c); !compaction.Waits(s) {
		t.Fatalf("nothing waits: %+v", s)
	}
	var w *waking
	life := func() (end func()) {
		b.restart(projection.Options{})
		s, err := compaction.NewSummariser(compaction.SummariserOptions{
			Record: b.engine, Endpoint: compaction.Endpoint{BaseURL: model.URL, Name: "m"}, Clean: b.Clean,
		})
		if err != nil {
			t.Fatal(err)
		}
		w = &waking{Summariser: s}
		b.writer = w
		return s.Close
	}

	refuse.Store(true)
	end := life()
	b.replay(c, Ask{})
	b.record(quiet, turn())
	if w.wakes != 0 {
		t.Errorf("before anything is added it is woken %d times", w.wakes)
	}
	b.record(c, turn())
	waitFor(t, func() bool { return asked.Load() == 1 })
	b.record(c, turn())
	b.record(quiet, turn())
	end()
	if n := asked.Load(); n != 1 || w.wakes != 1 {
		t.Errorf("before the next fold it is woken %d times, with %d requests", w.wakes, n)
	}

	refuse.Store(false)
	end = life()
	defer func() { end() }()
	b.record(c, turn())
	waitFor(t, func() bool { return b.stateOf(c).Prose != nil })
	if s := b.stateOf(c); s.Prose.ThroughSeq != s.Summary.ThroughSeq || asked.Load() != 2 {
		t.Errorf("%d requests, and the words are %+v", asked.Load(), s.Prose)
	}
}
