package store

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"strings"
	"sync"

	"historyd/internal/history"
	"historyd/internal/identity"
)

// Quota bounds what the conversations of one caller take together. A zero bounds nothing.
type Quota struct {
	// Bytes are those of all files in the directories of the conversations: segments,
	// attachments with their types, and cut writes that were put aside.
	Bytes int64
	// Conversations are those that have begun, whatever is in them.
	Conversations int64
}

// overdraft is how far over a quota go the writes that must work on a full one: a
// rewind, and the receipt of an import that adds nothing.
const overdraft = 64 << 10

// A weight is what conversations take on disk.
type weight struct{ bytes, conversations int64 }

func (w weight) plus(o weight) weight {
	return weight{w.bytes + o.bytes, w.conversations + o.conversations}
}
func (w weight) minus(o weight) weight {
	return weight{w.bytes - o.bytes, w.conversations - o.conversations}
}

// positive is what of a change is growth.
func (w weight) positive() weight { return weight{max(w.bytes, 0), max(w.conversations, 0)} }

// A ledger knows what each caller's conversations take, and what is about to be
// written. Nothing of it is kept: a caller's directories are weighed when it first
// writes, and from then on each write tells what it added. A write of which nobody
// knows what it did has its conversation weighed again.
type ledger struct {
	store *Store
	quota Quota

	mu sync.Mutex // guards what follows, and the accounts
	of map[identity.Scope]*account

	room    sync.Mutex // guards what follows
	writing int64      // bytes that are about to be written, whoever writes them
}

// An account is of one caller. Who uses it keeps it from being weighed, so that nothing
// is missed or counted twice: nothing changes in a caller's directories but by one who
// uses its account.
type account struct {
	weighed chan struct{} // closed when used is known
	before  *account      // given up, and perhaps still in use; nil when there was none
	err     error

	begun      bool
	users      int
	left       chan struct{} // closed when it is given up and nobody uses it any more
	used, held weight
	missing    map[string]bool // directories that used does not count, because they could not be listed
	full       bool            // that was told, and nothing has been cleared since
}

// enter returns the account of a caller, weighed, for use until leave. It must be left
// soon: who finds it given up waits for that.
func (l *ledger) enter(scope identity.Scope) (*account, error) {
	l.mu.Lock()
	a := l.of[scope]
	if a == nil {
		a = newAccount(nil)
		l.of[scope] = a
	}
	first := !a.begun
	a.begun = true
	a.users++
	l.mu.Unlock()
	if first {
		l.weigh(scope, a)
	}
	<-a.weighed
	if a.err != nil {
		l.leave(scope, a)
		return nil, a.err
	}
	l.seek(a)
	return a, nil
}

// seek tries again to weigh what could not be listed.
func (l *ledger) seek(a *account) {
	l.mu.Lock()
	missing := slices.Collect(maps.Keys(a.missing))
	l.mu.Unlock()
	for _, dir := range missing {
		if w, err := l.store.weigh(dir); err == nil {
			l.found(a, dir, w)
		}
	}
}

// found counts a directory that was missing; nothing when it was not. Nobody has changed
// it since it was weighed: who does has called this before.
func (l *ledger) found(a *account, dir string, w weight) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if a.missing[dir] {
		delete(a.missing, dir)
		a.used = a.used.plus(w)
	}
}

func newAccount(before *account) *account {
	return &account{weighed: make(chan struct{}), left: make(chan struct{}), before: before}
}

// weigh finds out what a caller's conversations take.
func (l *ledger) weigh(scope identity.Scope, a *account) {
	defer close(a.weighed)
	if a.before != nil {
		<-a.before.left
		a.before = nil
	}
	used, missing, err := l.store.weighAll(scope)
	l.mu.Lock()
	defer l.mu.Unlock()
	a.used, a.missing, a.err = used, missing, classify(err)
	if err != nil && l.of[scope] == a {
		delete(l.of, scope) // the next one tries again
	}
}

func (l *ledger) leave(scope identity.Scope, a *account) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if a.users--; a.users == 0 && l.of[scope] != a {
		close(a.left)
	}
}

// giveUp has a caller weighed anew before its next write.
func (l *ledger) giveUp(scope identity.Scope) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch a := l.of[scope]; {
	case a == nil, !a.begun:
	case a.users == 0:
		delete(l.of, scope)
	default:
		l.of[scope] = newAccount(a)
	}
}

// hold keeps room in an account. QuotaExceeded when there is none.
func (l *ledger) hold(scope identity.Scope, a *account, w weight, over int64) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.refuse(scope, a, w, over); err != nil {
		return err
	}
	a.held = a.held.plus(w.positive())
	return nil
}

// foresee is hold of what is not to be written yet, if ever: it keeps nothing, and says
// no only where hold would. Nobody is told of it but by tell.
func (l *ledger) foresee(scope identity.Scope, w weight, tell bool) error {
	if l.quota == (Quota{}) {
		return nil
	}
	a, err := l.enter(scope)
	if err != nil {
		return err
	}
	defer l.leave(scope, a)
	l.mu.Lock()
	defer l.mu.Unlock()
	if !tell && l.quota.refuse(w, a.used.plus(a.held).plus(w), 0) != nil {
		return errForeseen
	}
	return l.refuse(scope, a, w, 0)
}

// errForeseen stands for a refusal that nobody has been told of.
var errForeseen = errors.New("there seems to be no room in a quota")

// refuse tells whether a change would pass a quota. l.mu is held.
func (l *ledger) refuse(scope identity.Scope, a *account, w weight, over int64) error {
	err := l.quota.refuse(w, a.used.plus(a.held).plus(w), over)
	if err == nil {
		return nil
	}
	l.store.metrics.refusals.WithLabelValues(err.What).Inc()
	if !a.full {
		a.full = true
		l.store.log.Warn("a caller's quota is used up", "scope", scope, "what", err.What, "limit", err.Limit)
	}
	return err
}

// refuse tells which quota a change passes that leads to a weight; nil when none. What
// does not grow is never refused.
func (q Quota) refuse(change, then weight, over int64) *history.QuotaExceeded {
	switch {
	case q.Bytes > 0 && change.bytes > 0 && then.bytes-over > q.Bytes:
		return &history.QuotaExceeded{What: "bytes", Limit: q.Bytes, Actual: then.bytes}
	case q.Conversations > 0 && change.conversations > 0 && then.conversations > q.Conversations:
		return &history.QuotaExceeded{What: "conversations", Limit: q.Conversations, Actual: then.conversations}
	}
	return nil
}

// maxMissing is how many conversations of a caller that cannot be listed keep it from no
// other one.
const maxMissing = 64

// weighAll is what a caller's conversations take, but for those that cannot be listed,
// which it returns by their directories.
func (s *Store) weighAll(scope identity.Scope) (all weight, missing map[string]bool, err error) {
	top := transcriptsName + "/" + scope.Dir()
	entries, err := s.fsys.List(top)
	if errors.Is(err, fs.ErrNotExist) {
		return all, nil, nil
	}
	if err != nil {
		return all, nil, fmt.Errorf("list the caller's conversations: %w", err)
	}
	for _, e := range entries {
		if !e.Dir || strings.HasPrefix(e.Name, ".") {
			continue
		}
		dir := top + "/" + e.Name
		w, err := s.weigh(dir)
		if err != nil && len(missing) == maxMissing {
			return all, nil, err
		}
		if err != nil {
			s.log.Error("a conversation counts nothing in its caller's quota until it can be listed", "scope", scope,
				"conversation", shortName(dir), "error", err)
			if missing == nil {
				missing = map[string]bool{}
			}
			missing[dir] = true
			continue
		}
		all = all.plus(w)
	}
	return all, missing, nil
}

// weigh is what a conversation's directory takes; nothing when there is none.
func (s *Store) weigh(dir string) (weight, error) {
	entries, err := s.fsys.List(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return weight{}, nil
	}
	if err != nil {
		return weight{}, fmt.Errorf("weigh a conversation: %w", err)
	}
	var w weight
	for _, e := range entries {
		w.bytes += e.Size
		if _, ok := segmentNumber(e.Name); ok && !e.Dir {
			w.conversations = 1
		}
		if !e.Dir || e.Name != attachmentsName && e.Name != typesName {
			continue
		}
		inner, err := s.fsys.List(dir + "/" + e.Name)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return weight{}, fmt.Errorf("weigh attachments: %w", err)
		}
		for _, e := range inner {
			w.bytes += e.Size
		}
	}
	return w, nil
}
