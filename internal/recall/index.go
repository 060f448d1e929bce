package recall

import (
	"context"
	"errors"
	"log/slog"
	"path"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"historyd/internal/durable"
	"historyd/internal/history"
	"historyd/internal/identity"
)

// A Record is where messages are read from, of every caller.
type Record interface {
	Log(scope identity.Scope, conversation string) history.Log
	// List returns one page of a caller's conversations.
	List(ctx context.Context, scope identity.Scope, cursor string, limit int) (history.Listing, error)
}

// SearchOptions configures an Index. FS and Record are required.
type SearchOptions struct {
	FS         durable.FS // of the data directory; all files are below "index"
	Record     Record
	Logger     *slog.Logger          // nil means no log
	Registerer prometheus.Registerer // nil means no metrics
	MaxMemory  int64                 // that lasts, of all callers together; 0 means 16 MiB
	Now        func() time.Time      // nil means time.Now
}

const (
	indexName        = "index"
	defaultMaxMemory = 16 << 20
	minMemory        = 1 << 20

	maxCallers  = 256  // that are looked after at a time, idle ones included
	maxTouched  = 2048 // callers that wait for the worker besides
	maxBehind   = 4096 // conversations of one caller that are known by name to be behind
	maxSearches = 8    // at a time, half of them of one caller; each may hold a megabyte or two
	retryAfter  = 30 * time.Second
)

// An Index finds text in the record, each caller's own. It holds nothing that the record does not hold: what is
// missing or wrong in it is read again. Nothing is read at start: a caller's files are looked at when something of
// theirs is touched, and their conversations are compared with the record when they first search. Safe for
// concurrent use.
type Index struct {
	fsys    durable.FS
	record  Record
	log     *slog.Logger
	metrics indexMetrics
	now     func() time.Time

	memLimit int64        // of memtables
	memory   atomic.Int64 // in memtables
	cache    *blockCache
	searches *doorway
	width    int // sources of one search at a time

	life context.Context // ends with Close
	end  context.CancelFunc
	work sync.WaitGroup // whoever uses a caller, and the worker
	wake chan struct{}
	// hurry says that notes of what is behind will soon not fit.
	hurry chan struct{}

	// mu is taken after a caller's lock, and nothing is waited for under it.
	mu      sync.Mutex
	callers map[identity.Scope]*caller
	clock   uint64
	closed  bool
}

// A caller is what is known of one caller's index.
type caller struct {
	scope identity.Scope
	dir   string
	mark  [32]byte

	// Guarded by Index.mu.
	users   int
	used    uint64
	behind  map[string]bool // conversations
	walk    bool            // all conversations have to be compared
	walked  bool            // that was done
	flight  chan struct{}   // open while catching up
	later   map[string]bool // what failed
	laterAt time.Time
	told    time.Time      // when the log last had it that conversations are not indexed
	untold  int            // how many times since
	held    map[string]int // conversations that are kept out, by how many changes of them are under way
	heldAll int

	size atomic.Int64 // of mem; changed under mu

	mu       sync.RWMutex // guards everything below, and the files
	loaded   bool
	gen      uint64 // counts what was forgotten
	segments []*segment
	mem      *memtable
}

// NewIndex returns an index, or an error that names the option which is missing. Close ends it.
func NewIndex(o SearchOptions) (*Index, error) {
	switch {
	case o.FS == nil:
		return nil, errors.New("recall: SearchOptions.FS is required")
	case o.Record == nil:
		return nil, errors.New("recall: SearchOptions.Record is required")
	case o.MaxMemory < 0 || o.MaxMemory > 0 && o.MaxMemory < minMemory:
		return nil, errors.New("recall: SearchOptions.MaxMemory must be at least 1 MiB")
	}
	if o.MaxMemory == 0 {
		o.MaxMemory = defaultMaxMemory
	}
	x := &Index{
		fsys: o.FS, record: o.Record, log: o.Logger, now: o.Now,
		memLimit: o.MaxMemory / 2,
		cache:    newBlockCache(o.MaxMemory / 2),
		searches: newDoorway(maxSearches, maxSearches/2),
		width:    min(maxScorers, runtime.NumCPU()),
		wake:     make(chan struct{}, 1),
		hurry:    make(chan struct{}, 1),
		callers:  map[identity.Scope]*caller{},
	}
	if x.log == nil {
		x.log = slog.New(slog.DiscardHandler)
	}
	if x.now == nil {
		x.now = time.Now
	}
	x.metrics = newIndexMetrics(o.Registerer, func() float64 { return float64(x.memory.Load()) })
	x.life, x.end = context.WithCancel(context.Background())
	x.work.Go(x.worker)
	return x, nil
}

// caller returns what is known of a caller, or begins it. x.mu is held.
func (x *Index) caller(scope identity.Scope) *caller {
	c := x.callers[scope]
	if c == nil {
		c = &caller{
			scope: scope, dir: path.Join(indexName, scope.Dir()), mark: callerMark(scope),
			behind: map[string]bool{}, later: map[string]bool{}, held: map[string]int{}, mem: newMemtable(),
		}
		x.callers[scope] = c
	}
	x.clock++
	c.used = x.clock
	return c
}

// acquire is for use until release.
func (x *Index) acquire(scope identity.Scope) (*caller, error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.closed {
		return nil, history.ErrClosed
	}
	c := x.caller(scope)
	c.users++
	x.work.Add(1)
	return c, nil
}

func (x *Index) release(c *caller) {
	x.mu.Lock()
	defer x.mu.Unlock()
	c.users--
	x.work.Done()
	if len(x.callers) > maxCallers {
		poke(x.wake)
	}
}

// poke makes the worker look up, if it does not already.
func poke(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// Touch says that a conversation has changed. It only takes a note; the conversation is read in the background, or by
// the next search. Call it after everything that has added messages.
func (x *Index) Touch(scope identity.Scope, conversation string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.closed || x.callers[scope] == nil && len(x.callers) >= maxCallers+maxTouched {
		return // The next search compares all conversations.
	}
	c := x.caller(scope)
	c.touch(conversation)
	poke(x.wake)
	if len(c.behind) > maxBehind/2 || len(x.callers) > maxCallers+maxTouched/2 {
		poke(x.hurry)
	}
}

// Doubt says that it is not known whether a conversation has changed or will: it is looked at now, and again later. Until
// then a search is behind.
func (x *Index) Doubt(scope identity.Scope, conversation string) {
	x.Touch(scope, conversation)
	x.mu.Lock()
	defer x.mu.Unlock()
	if c := x.callers[scope]; c != nil && !x.closed {
		c.postpone(x.now(), conversation)
	}
}

// touch notes that a conversation is behind. Index.mu is held.
func (c *caller) touch(conversation string) {
	delete(c.later, conversation)
	if len(c.behind) < maxBehind {
		c.behind[conversation] = true
	} else if !c.behind[conversation] {
		c.walk = true
	}
}

// Close ends the work in the background, waits for whoever is searching, and writes what is only in memory.
func (x *Index) Close() error {
	x.mu.Lock()
	if x.closed {
		x.mu.Unlock()
		return nil
	}
	x.closed = true
	x.mu.Unlock()
	x.end()
	x.work.Wait()
	var all error
	for _, c := range x.callers {
		c.mu.Lock()
		all = errors.Join(all, x.flush(c))
		c.mu.Unlock()
	}
	return all
}

// setMemtable is under the caller's lock.
func (x *Index) setMemtable(c *caller, m *memtable) {
	c.mem = m
	x.sized(c)
}

// sized counts what the caller's memtable takes now.
func (x *Index) sized(c *caller) {
	x.memory.Add(c.mem.size - c.size.Swap(c.mem.size))
}
