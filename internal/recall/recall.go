// Package recall finds what is already known. An Index is full-text search over one caller's own record; a Recaller
// asks it and the search tools of MCP servers, and makes one block of quoted notes of what they answer.
//
// It never writes to a record, and decides neither when to recall nor what becomes of the block: that is pipeline's.
// It calls no tool but the configured ones.
//
// Nothing here can fail or delay a turn: whatever a retriever does, Recall answers within its deadline with what the
// others found. What retrievers answer is data of strangers. It stays inside the quotes of its row, and nothing of it,
// of a query or of arguments goes into an error, a log or a metric.
package recall

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"regexp"
	"runtime/debug"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/prometheus/client_golang/prometheus"

	"historyd/internal/identity"
)

// State is how a retriever's part of a recall ended.
type State string

// The states.
const (
	OK            State = "ok"             // it found something
	Empty         State = "empty"          // it answered, and nothing was to the point
	Failed        State = "error"          // it could not be reached, or said that it failed
	TimedOut      State = "timeout"        // it did not answer in time
	NotConfigured State = "not_configured" // there is none, or it may not be asked for this caller
)

var states = []State{OK, Empty, Failed, TimedOut, NotConfigured}

// localName is what the search over the caller's own record is called among the retrievers.
const localName = "local"

// Limits of what a recall holds at a time, which no configuration changes.
const (
	maxQuery = 2000 // code points of a query that retrievers are asked; the rest is left out
	maxCalls = 4    // questions to one server at a time, half of them of one caller
	maxLocal = 64   // searches at a time, an eighth of them of one caller; most of them wait for the index
)

// A Searcher searches one caller's own record. *Index is one.
type Searcher interface {
	Search(ctx context.Context, scope identity.Scope, q Query) (Results, error)
}

// Options configures a Recaller. Zero values work: without Local and MCP there is nobody to ask.
type Options struct {
	Deadline      time.Duration // of a recall as a whole; 0 means 4 s
	MinQueryChars int           // shorter queries are not asked; 0 means 8
	TopK          int           // hits of one retriever; 0 means 5
	MaxItemChars  int           // of one hit's text; 0 means 600
	MaxTitleChars int           // of one hit's title; 0 means 120
	MaxTotalChars int           // of the block, with its frame; 0 means 2400

	// MinScore leaves out hits of Local that hold less than this share of what was asked; between 0, which keeps all,
	// and 1.
	MinScore float64

	Local Searcher // nil: none
	MCP   []Server

	Logger     *slog.Logger          // nil: no log
	Registerer prometheus.Registerer // nil: no metrics
}

// A Server is an MCP server with a search tool that only reads. Either URL or Command says where it is, and either
// Scoped or Shared whose its answers are.
type Server struct {
	Name string // letters, digits, - and _; at most 32, and not "local"

	URL       string   // of a streamable HTTP endpoint
	TokenFile string   // holds the bearer token for URL; read anew for each request
	Command   []string // a program that speaks MCP on its standard input and output

	Preset    string         // "memory_search" or "rag.search": tool and arguments are theirs
	Tool      string         // the one tool that is called
	Arguments map[string]any // of the tool; {query}, {limit} and {workspace} are filled in

	Scoped string // "workspace": the arguments name the caller's workspace
	Shared bool   // its answers are for every caller

	Timeout  time.Duration // 0: the deadline
	MinScore float64       // hits with a lower score, on the server's own scale, are left out; 0 keeps all
}

// An Ask is one question. Scope, Workspace and Conversation come from the caller's record and the route, never from
// what a request says.
type Ask struct {
	Scope        identity.Scope
	Workspace    string
	Conversation string
	Query        string
	Through      int64 // messages of Conversation after it are at hand anyway, so they are not recalled

	// Shown are blocks of earlier recalls that are at hand, too. What they say is not said again.
	Shown []string

	shown shown // what Shown says
}

// Recalled is what a recall found.
type Recalled struct {
	Text       string   // the framed block, "" when nothing was found
	Items      []Item   // the rows of Text, in order
	Retrievers []Status // in the order of the configuration, Local first
	Truncated  bool     // something was cut or left out for want of room
	Skipped    bool     // nobody was asked: the query is too short
}

// An Item is one row. Title and Body are as the row shows them: cleaned and cut.
type Item struct {
	Retriever    string
	Title        string
	Body         string
	Conversation string // of Local: where the message is
	Epoch        string // of that conversation when it was searched
	Seq          int64
	Score        float64
}

// A Status is one retriever's part. Hits counts what was delivered, not what was found.
type Status struct {
	Name   string
	Status State
	Hits   int
}

// A Recaller asks retrievers. Its methods may be called from many goroutines.
type Recaller struct {
	opts       Options
	retrievers []retriever
	doorways   []*doorway // by retriever: bounds the questions under way
	log        *slog.Logger
	meters     meters

	mu      sync.RWMutex // held for reading while questions start, so that Close waits for all of them
	closed  bool
	running sync.WaitGroup

	healthMu sync.Mutex // never held together with mu
	healths  map[string]*health
}

// A health is what the log knows of a retriever.
type health struct {
	failing bool
	since   time.Time // a period of so many changes
	changes int
}

// More changes than these in a period are not told: one caller's questions may fail where another one's do not.
const (
	healthPeriod = time.Minute
	maxChanges   = 6
)

// changed notes how a retriever did, and reports whether that is to be told. What is not told is as if it had not been.
func (h *health) changed(failing bool, now time.Time) bool {
	if h.failing == failing {
		return false
	}
	if now.Sub(h.since) >= healthPeriod {
		h.since, h.changes = now, 0
	}
	if h.changes == maxChanges {
		return false
	}
	h.changes++
	h.failing = failing
	return true
}

// A retriever answers questions. find returns hits, best first, soon after ctx ends at the latest; errors wrap
// errNotConfigured, errLate, or tell of any other failure.
type retriever interface {
	name() string
	places() (all, each int) // how many questions it is asked at a time, and how many of one caller
	find(ctx context.Context, ask Ask, limit int) ([]found, error)
	close()
}

// found is a hit as it came in.
type found struct {
	title, body  string
	conversation string
	epoch        string
	seq          int64
	score        float64
}

var (
	errNotConfigured = errors.New("not configured for this caller")
	errLate          = errors.New("no answer in time")
	errPanic         = errors.New("panic")
)

var serverName = regexp.MustCompile(`^[A-Za-z0-9_-]{1,32}$`)

// New checks the options and returns a Recaller. It connects to nothing yet. An error names the field.
func New(o Options) (*Recaller, error) {
	if err := o.setDefaults(); err != nil {
		return nil, err
	}
	r := &Recaller{opts: o, log: o.Logger, healths: map[string]*health{}}
	if r.log == nil {
		r.log = slog.New(slog.DiscardHandler)
	}
	if o.Local != nil {
		r.retrievers = append(r.retrievers, &local{search: o.Local, floor: o.MinScore})
	}
	names := map[string]bool{localName: true}
	for i, s := range o.MCP {
		field := fmt.Sprintf("mcp[%d].", i)
		if !serverName.MatchString(s.Name) || names[s.Name] {
			return nil, fmt.Errorf("%sname: must be 1 to 32 of A-Z a-z 0-9 _ -, other than %q, and once", field, localName)
		}
		names[s.Name] = true
		x, err := newMCPServer(s, o.Deadline)
		if err != nil {
			return nil, fmt.Errorf("%s%w", field, err)
		}
		r.retrievers = append(r.retrievers, x)
	}
	known := []string{localName}
	for _, x := range r.retrievers {
		r.doorways = append(r.doorways, newDoorway(x.places()))
		if x.name() != localName {
			known = append(known, x.name())
		}
	}
	r.meters = newMeters(o.Registerer, known)
	for _, x := range r.retrievers {
		if s, ok := x.(*mcpServer); ok && s.URL == "" {
			s.lines = r.meters.stderr.WithLabelValues(s.Name)
		}
	}
	return r, nil
}

func (o *Options) setDefaults() error {
	o.Deadline = cmp.Or(o.Deadline, 4*time.Second)
	if o.Deadline < 10*time.Millisecond || o.Deadline > time.Minute {
		return errors.New("deadline: must be between 10ms and 1m")
	}
	for _, n := range []struct {
		field         string
		value         *int
		def, min, max int
	}{
		{"min_query_chars", &o.MinQueryChars, 8, 1, maxQuery},
		{"top_k", &o.TopK, 5, 1, 50},
		{"max_item_chars", &o.MaxItemChars, 600, 40, 20_000},
		{"max_title_chars", &o.MaxTitleChars, 120, 10, 1000},
		{"max_total_chars", &o.MaxTotalChars, 2400, 600, 100_000},
	} {
		*n.value = cmp.Or(*n.value, n.def)
		if *n.value < n.min || *n.value > n.max {
			return fmt.Errorf("%s: must be between %d and %d", n.field, n.min, n.max)
		}
	}
	if !(o.MinScore >= 0 && o.MinScore <= 1) {
		return errors.New("min_score: must be between 0 and 1")
	}
	return nil
}

// answer is what became of one retriever's part.
type answer struct {
	at   int
	hits []found
	err  error
}

// Recall asks all retrievers at once and returns within the deadline, with what was found by then. It has no error:
// the statuses tell. A context that ends sooner ends it sooner.
func (r *Recaller) Recall(ctx context.Context, ask Ask) Recalled {
	start := time.Now()
	ask.Query = clip(strings.TrimSpace(strings.ToValidUTF8(ask.Query, "\uFFFD")), maxQuery)
	out := Recalled{Retrievers: make([]Status, len(r.retrievers))}
	for i, x := range r.retrievers {
		out.Retrievers[i] = Status{Name: x.name(), Status: Empty}
	}
	if utf8.RuneCountInString(ask.Query) < r.opts.MinQueryChars {
		out.Skipped = true
		return r.done(out, "skipped", start)
	}
	ask.shown = shownIn(ask.Shown)
	answers := r.gather(ctx, ask)
	batches := make([]batch, len(r.retrievers))
	for i, a := range answers {
		out.Retrievers[i].Status = stateOf(a)
		batches[i] = batch{out.Retrievers[i].Name, a.hits}
		if ctx.Err() == nil || !errors.Is(a.err, errLate) { // nobody is late for who has left
			r.told(out.Retrievers[i], a.err)
		}
	}
	merged := r.opts.merge(batches, ask.shown)
	out.Text, out.Items, out.Truncated = merged.text, merged.items, merged.truncated
	for _, item := range out.Items {
		for i := range out.Retrievers {
			if out.Retrievers[i].Name == item.Retriever {
				out.Retrievers[i].Hits++
			}
		}
	}
	if len(ask.shown) > 0 {
		for i := range out.Retrievers {
			if s := &out.Retrievers[i]; s.Status == OK && s.Hits == 0 {
				s.Status = Empty // it found nothing new
			}
		}
	}
	return r.done(out, resultOf(out), start)
}

// done adds who is not there, and counts.
func (r *Recaller) done(out Recalled, result string, start time.Time) Recalled {
	if r.opts.Local == nil {
		out.Retrievers = append([]Status{{Name: localName, Status: NotConfigured}}, out.Retrievers...)
	}
	r.meters.recalled(out, result, time.Since(start))
	return out
}

// gather returns one answer for each retriever, in order. Those that are not in when the deadline comes are late; what
// they still send goes nowhere.
func (r *Recaller) gather(ctx context.Context, ask Ask) []answer {
	// A part of the deadline is kept for merging.
	limit := r.opts.Deadline - min(r.opts.Deadline/20, 100*time.Millisecond)
	ctx, cancel := context.WithTimeoutCause(ctx, limit, errLate)
	defer cancel()

	all := make([]answer, len(r.retrievers))
	for i := range all {
		all[i] = answer{at: i, err: errLate}
	}
	in := make(chan answer, len(all)) // has room for all, so that nobody waits to answer
	if !r.start(ctx, ask, in) {
		for i := range all {
			all[i].err = errClosed
		}
		return all
	}
	for range all {
		select {
		case a := <-in:
			all[a.at] = a
		case <-ctx.Done():
			// What arrived at the same moment still counts.
			for {
				select {
				case a := <-in:
					all[a.at] = a
				default:
					return all
				}
			}
		}
	}
	return all
}

// start begins a question to each retriever, and reports whether the Recaller is open.
func (r *Recaller) start(ctx context.Context, ask Ask, in chan<- answer) bool {
	r.mu.RLock()
	defer r.mu.RUnlock()
	if r.closed {
		return false
	}
	for i, x := range r.retrievers {
		r.running.Go(func() {
			hits, err := r.ask(ctx, i, x, ask)
			in <- answer{i, hits, err}
		})
	}
	return true
}

// ask puts the question to one retriever when it is free. A panic is an error like another.
func (r *Recaller) ask(ctx context.Context, i int, x retriever, ask Ask) (hits []found, err error) {
	if r.doorways[i].enter(ctx, ask.Scope) != nil {
		return nil, errLate
	}
	defer r.doorways[i].leave(ask.Scope)
	if ctx.Err() != nil {
		return nil, errLate
	}
	defer func() {
		if p := recover(); p != nil {
			// The value may hold what was searched for: the stack alone is told.
			r.log.Error("a retriever panicked", "retriever", x.name(), "stack", string(debug.Stack()))
			hits, err = nil, errPanic
		}
	}()
	hits, err = x.find(ctx, ask, r.opts.TopK)
	if err != nil && ctx.Err() != nil {
		err = errLate
	}
	return hits, err
}

func stateOf(a answer) State {
	switch {
	case errors.Is(a.err, errNotConfigured):
		return NotConfigured
	case errors.Is(a.err, errLate):
		return TimedOut
	case a.err != nil:
		return Failed
	case len(a.hits) == 0:
		return Empty
	}
	return OK
}

// told logs when a retriever begins to fail and when it answers again, not each time.
func (r *Recaller) told(s Status, err error) {
	if s.Status == NotConfigured || errors.Is(err, errClosed) {
		return
	}
	failing := s.Status == Failed || s.Status == TimedOut
	r.healthMu.Lock()
	h := r.healths[s.Name]
	if h == nil {
		h = &health{}
		r.healths[s.Name] = h
	}
	changed := h.changed(failing, time.Now())
	r.healthMu.Unlock()
	switch {
	case changed && failing:
		r.log.Warn("a retriever fails", "retriever", s.Name, "status", string(s.Status), "cause", causeOf(err))
	case changed:
		r.log.Info("a retriever answers again", "retriever", s.Name)
	}
}

// Close ends connections and child processes, and waits for questions under way. A recall after it finds nothing.
func (r *Recaller) Close() error {
	r.mu.Lock()
	already := r.closed
	r.closed = true
	r.mu.Unlock()
	if already {
		return nil
	}
	var closing sync.WaitGroup
	for _, x := range r.retrievers {
		closing.Go(x.close)
	}
	closing.Wait()
	r.running.Wait()
	return nil
}
