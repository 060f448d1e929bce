package store

import (
	"fmt"

	"historyd/internal/history"
	"historyd/internal/identity"
)

// A spending is one change to a conversation's files, from before it begins until it is
// known what it took. While it lasts the caller's account is in use, so it is short.
// Whoever has it holds the conversation's change, or its place.
type spending struct {
	store *Store
	scope identity.Scope
	dir   string
	t     *transcript // nil when it could not be loaded

	account *account // nil without quotas
	before  weight   // of the conversation
	took    weight   // what the change adds, as planned
	held    weight   // what of it is kept free in the account
	writing int64    // what of it is kept free on the file system

	sure bool // all of the change was made, and nothing else
	lost bool // before is not known
}

// spend begins a change to the conversation. t.change is held.
func (t *transcript) spend() (*spending, error) {
	s := &spending{store: t.store, scope: t.key.scope, dir: t.dir, t: t}
	l := t.store.ledger
	if l.quota == (Quota{}) {
		return s, nil
	}
	a, err := l.enter(s.scope)
	if err != nil {
		return nil, err
	}
	if !t.weighed {
		if t.weight, err = t.store.weigh(t.dir); err != nil {
			l.leave(s.scope, a)
			return nil, classify(err)
		}
		t.weighed = true
	}
	l.found(a, t.dir, t.weight)
	s.account, s.before = a, t.weight
	return s, nil
}

// spendToClear begins the removal of a conversation, which nothing may keep from
// happening: what is not known is found out before the caller's next write.
func (s *Store) spendToClear(scope identity.Scope, dir string, t *transcript) *spending {
	sp := &spending{store: s, scope: scope, dir: dir, t: t}
	if s.ledger.quota == (Quota{}) {
		return sp
	}
	a, err := s.ledger.enter(scope)
	if err != nil {
		return sp // nobody has counted it
	}
	sp.account = a
	if t != nil && t.weighed {
		sp.before = t.weight
	} else if sp.before, err = s.weigh(dir); err != nil {
		sp.lost = true
	}
	if !sp.lost {
		s.ledger.found(a, dir, sp.before)
	}
	sp.took = weight{}.minus(sp.before)
	return sp
}

// mendAlone is mend as a change by itself: what comes after it takes long.
func (t *transcript) mendAlone(old *snapshot) (*snapshot, error) {
	sp, err := t.spend()
	if err != nil {
		return nil, err
	}
	defer sp.end()
	snap, err := t.mend(old)
	sp.sure = err == nil
	return snap, err
}

// spend keeps room for what the new record takes more than the old one.
func (b *build) spend() (*spending, error) {
	sp, err := b.t.spend()
	if err != nil || sp.account == nil {
		b.failed = err != nil
		return sp, err
	}
	made, err := b.t.store.weigh(b.dir)
	if b.failed = err != nil; err == nil {
		err = sp.charge(made.minus(sp.before), 0)
	}
	if err != nil {
		sp.sure = true // nothing has been changed
		sp.end()
	}
	return sp, err
}

// hold keeps room for more of the change, in the quota and on the file system. What is vital
// may overdraw the quota, and take of the reserve. An error has kept nothing.
func (s *spending) hold(w weight, vital bool) error {
	l, over := s.store.ledger, int64(0)
	if vital {
		over = overdraft
	}
	if err := l.take(w.bytes, vital); err != nil {
		return err
	}
	if err := s.charge(w, over); err != nil {
		l.giveBack(w.bytes)
		return err
	}
	s.writing += w.bytes
	return nil
}

// charge is hold in the quota alone, which it may overdraw by so much.
func (s *spending) charge(w weight, over int64) error {
	if s.account != nil {
		if err := s.store.ledger.hold(s.scope, s.account, w, over); err != nil {
			return err
		}
	}
	s.took, s.held = s.took.plus(w), s.held.plus(w.positive())
	return nil
}

// end accounts for the change. Where it is not sure what has become of it, the
// conversation is weighed.
func (s *spending) end() {
	l := s.store.ledger
	l.giveBack(s.writing)
	if s.account == nil {
		return
	}
	after := s.before.plus(s.took)
	if !s.sure || s.t != nil && s.t.disturbed {
		if w, err := s.store.weigh(s.dir); err == nil {
			after = w
		} else {
			s.lost = true
		}
	}
	if s.t != nil {
		s.t.weight, s.t.weighed, s.t.disturbed = after, !s.lost, false
	}
	l.mu.Lock()
	s.account.used = s.account.used.plus(after.minus(s.before))
	s.account.held = s.account.held.minus(s.held)
	s.account.full = s.account.full && after.bytes >= s.before.bytes
	l.mu.Unlock()
	if s.lost {
		l.giveUp(s.scope)
	}
	l.leave(s.scope, s.account)
}

// reserveShare is the part of a file system that is kept free at the most: 1 in so many bytes.
const reserveShare = 16

// take notes that so many bytes will be written. ErrFull when that would leave less than
// the reserve, or for what is vital less than half of it: clears need some, too.
func (l *ledger) take(bytes int64, vital bool) error {
	if l.store.reserved == 0 {
		return nil
	}
	l.room.Lock()
	defer l.room.Unlock()
	free, size, err := l.store.fsys.Free()
	if err == nil && size > 0 {
		// What others are writing may be counted twice, and is never forgotten.
		reserve, whose := min(l.store.reserved, size/reserveShare), "the rest is reserved for rewinds and clears"
		if vital {
			reserve, whose = reserve/2, "the last half of the reserve is for clears alone"
		}
		if left := free - l.writing - bytes; left < reserve {
			return fmt.Errorf("%w: %s", history.ErrFull, whose)
		}
	}
	l.writing += bytes // where nothing is told, the write itself finds out
	return nil
}

// giveBack is for bytes that were taken, once they are written or will not be.
func (l *ledger) giveBack(bytes int64) {
	if l.store.reserved == 0 {
		return
	}
	l.room.Lock()
	defer l.room.Unlock()
	l.writing -= bytes
}

// withRoom does something that writes so many bytes.
func (s *Store) withRoom(bytes int64, fn func() error) error {
	if err := s.ledger.take(bytes, false); err != nil {
		return err
	}
	defer s.ledger.giveBack(bytes)
	return fn()
}
