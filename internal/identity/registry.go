package identity

import (
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// Options configures a Registry. File is required.
type Options struct {
	File *File

	// Path is where File is for the operating system. With it the registry
	// sees a change at the next question; without it, at Reload only.
	Path string

	Now    func() time.Time // nil means time.Now
	Logger *slog.Logger     // nil means no log
}

// Registry answers who is calling, from the callers file as it is now. It is
// safe for concurrent use; an answer takes no lock while the file is unchanged.
//
// A missing file means that there are no callers. A file that can't be read or
// understood changes nothing: the callers it had when it was last good stay,
// so that a slip of an editor doesn't lock everybody out, and the failure is
// logged once for each change of the file. The price is that a revocation
// written by hand into such a file waits until the file is mended; Revoke
// never writes one.
type Registry struct {
	file *File
	path string
	now  func() time.Time
	log  *slog.Logger

	current atomic.Pointer[view]

	// mu makes reading the file the work of one.
	mu   sync.Mutex
	told failure
	bad  bool // what was read last could not be used
}

// view is the callers file at one moment. It never changes once it is made.
type view struct {
	tokens  map[[sha256.Size]byte]*grant
	peers   map[uint32]*grant
	callers int
	seen    stamp // the state of the file that need not be read again
}

// grant is one way in.
type grant struct {
	hash    [sha256.Size]byte // of the token; unused for a peer
	caller  Caller
	expires time.Time // zero means never
}

func (g *grant) live(now time.Time) bool { return g.expires.IsZero() || now.Before(g.expires) }

// stamp tells two states of the file apart. It is the zero stamp while there
// is no file. Every change that File makes also changes the size, so a reused
// inode within one tick of the clock is no trap.
type stamp struct {
	dev, ino     uint64
	size         int64
	mtime, ctime unix.Timespec
}

// failure is what was last logged, so that it is logged once.
type failure struct {
	at   stamp
	text string
}

// NewRegistry reads the callers file, and fails if it is there and can't be
// understood.
func NewRegistry(o Options) (*Registry, error) {
	if o.File == nil {
		return nil, errors.New("identity: Options.File is required")
	}
	r := &Registry{file: o.File, path: o.Path, now: o.Now, log: o.Logger}
	if r.now == nil {
		r.now = time.Now
	}
	if r.log == nil {
		r.log = slog.New(slog.DiscardHandler)
	}
	r.current.Store(&view{})
	if err := r.Reload(); err != nil {
		return nil, err
	}
	return r, nil
}

// Authenticate returns the caller that token belongs to. Every other answer is
// ErrUnauthenticated: missing, malformed, unknown, revoked, expired.
func (r *Registry) Authenticate(token string) (Caller, error) {
	if !WellFormed(token) {
		return Caller{}, ErrUnauthenticated
	}
	v := r.fresh()
	sum := hashToken(token)
	// The look-up is by hash, so its timing tells of hashes at most; the
	// comparison that decides takes the same time for all of them.
	g, ok := v.tokens[sum]
	if !ok || subtle.ConstantTimeCompare(g.hash[:], sum[:]) != 1 || !g.live(r.now()) {
		return Caller{}, ErrUnauthenticated
	}
	return g.caller, nil
}

// Peer returns the caller that a peer's uid stands for, or ErrUnauthenticated.
// A uid stands for its caller until the last of the caller's tokens is revoked
// or has expired; a caller that never had one is known by uid alone.
func (r *Registry) Peer(uid uint32) (Caller, error) {
	if !ValidUID(uid) {
		return Caller{}, ErrUnauthenticated
	}
	g, ok := r.fresh().peers[uid]
	if !ok || !g.live(r.now()) {
		return Caller{}, ErrUnauthenticated
	}
	return g.caller, nil
}

// Len returns the number of callers, whether or not they have a live token.
func (r *Registry) Len() int { return r.fresh().callers }

// Usable reports whether the file as it is now is what is in force. While it is not, the
// last good one is.
func (r *Registry) Usable() bool {
	r.fresh()
	r.mu.Lock()
	defer r.mu.Unlock()
	_, err := r.stat()
	return err == nil && !r.bad
}

// Reload reads the file now, changed or not. After an error the registry
// answers as before it.
func (r *Registry) Reload() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	now, err := r.stat()
	if err != nil {
		return fmt.Errorf("look at callers file: %w", err)
	}
	return r.load(now)
}

// fresh returns the view of the file as it is now, reading it if it changed.
func (r *Registry) fresh() *view {
	v := r.current.Load()
	if r.path == "" {
		return v
	}
	if now, err := r.stat(); err == nil && now == v.seen {
		return v
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	now, err := r.stat()
	if err == nil {
		if v = r.current.Load(); now == v.seen {
			return v // somebody else read it while we waited
		}
		err = r.load(now)
	}
	if err != nil {
		r.tell(failure{at: now, text: err.Error()})
	}
	return r.current.Load()
}

// stat must be taken before the file is read: then a change in between is seen
// the next time.
func (r *Registry) stat() (stamp, error) {
	var st unix.Stat_t
	if r.path == "" {
		return stamp{}, nil
	}
	if err := unix.Lstat(r.path, &st); err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return stamp{}, nil
		}
		return stamp{}, err
	}
	return stamp{dev: st.Dev, ino: st.Ino, size: st.Size, mtime: st.Mtim, ctime: st.Ctim}, nil
}

// load reads the file and makes it the current view; the caller holds mu. A
// file that was read and not understood is not read again before it changes,
// one that could not be read is.
func (r *Registry) load(now stamp) error {
	doc, err := r.file.read(false)
	r.bad = err != nil
	if err != nil {
		if errors.Is(err, ErrCallersFile) {
			last := *r.current.Load()
			last.seen = now
			r.current.Store(&last)
		}
		return err
	}
	last := r.current.Load()
	next := newView(doc, now)
	r.current.Store(next)
	r.told = failure{}
	switch {
	case next.callers > 0:
		r.log.Info("callers file read", "callers", next.callers)
	case last.callers > 0:
		r.log.Warn("callers file has no callers any more: nobody is let in")
	}
	return nil
}

// tell logs a failure; the caller holds mu.
func (r *Registry) tell(f failure) {
	if f == r.told {
		return
	}
	r.told = f
	r.log.Error("callers file not usable: the last good one stays in force", "error", f.text)
}

// newView builds the answers from a document that parse has accepted.
func newView(doc document, seen stamp) *view {
	v := &view{
		tokens:  make(map[[sha256.Size]byte]*grant),
		peers:   make(map[uint32]*grant),
		callers: len(doc.Callers),
		seen:    seen,
	}
	for _, r := range doc.Callers {
		// The peer's grant ends with the longest-lived of the tokens.
		peer := &grant{caller: r.caller()}
		admitted := len(r.Tokens) == 0
		for _, t := range r.Tokens {
			sum, ok := parseHash(t.Hash)
			if !ok || t.Revoked != nil {
				continue
			}
			g := &grant{hash: sum, caller: peer.caller}
			if t.Expires != nil {
				g.expires = *t.Expires
			}
			v.tokens[sum] = g
			if !admitted || g.expires.IsZero() || !peer.expires.IsZero() && g.expires.After(peer.expires) {
				peer.expires = g.expires
			}
			admitted = true
		}
		if r.UID != nil && admitted {
			v.peers[*r.UID] = peer
		}
	}
	return v
}
