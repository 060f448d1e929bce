package recall

import (
	"context"
	"errors"
	"fmt"
	"io/fs"

	"historyd/internal/durable"
	"historyd/internal/identity"
)

// errHeld is for what must not be indexed yet: the record is about to change.
var errHeld = errors.New("kept out of the index")

// Forget removes all of a conversation from the index, and keeps it out until done is called. Once it returns nil no
// byte of it is left in a file, and none comes back with a power cut. So it comes before the record is cleared, rewound
// or replaced: an index that can't forget keeps the change from being made, and a process that dies in between leaves
// nothing but a conversation to be indexed again. done comes after the change, once, whether that was made or not; it
// does not fail. From then on the conversation is indexed as it is then, and whatever was read of it before is not.
//
// After an error there is no done. Forget does not stop when the context ends. Whatever else was in the same files is
// indexed again in the background.
func (x *Index) Forget(_ context.Context, scope identity.Scope, conversation string) (done func(), err error) {
	c, err := x.acquire(scope)
	if err != nil {
		return nil, err
	}
	x.hold(c, conversation, 1) // before gen moves on: whoever sees that sees this
	done = func() {
		x.hold(c, conversation, -1)
		x.fellBehind(c, []string{conversation}, false)
		x.release(c)
	}
	if err := x.forget(c, conversation); err != nil {
		done()
		return nil, err
	}
	return done, nil
}

// ForgetAll is Forget for all of a caller's conversations.
func (x *Index) ForgetAll(_ context.Context, scope identity.Scope) (done func(), err error) {
	c, err := x.acquire(scope)
	if err != nil {
		return nil, err
	}
	x.holdAll(c, 1)
	done = func() {
		x.holdAll(c, -1)
		x.fellBehind(c, nil, true) // also what began meanwhile
		x.release(c)
	}
	if err := x.forgetAll(c); err != nil {
		done()
		return nil, err
	}
	return done, nil
}

func (x *Index) hold(c *caller, conversation string, n int) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if c.held[conversation] += n; c.held[conversation] == 0 {
		delete(c.held, conversation)
	}
}

func (x *Index) holdAll(c *caller, n int) {
	x.mu.Lock()
	defer x.mu.Unlock()
	c.heldAll += n
}

// isHeld reports whether a conversation is kept out. Whoever meets one leaves it: it is touched when it is let in.
func (x *Index) isHeld(c *caller, conversation string) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return c.heldAll > 0 || c.held[conversation] > 0
}

func (x *Index) forget(c *caller, conversation string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.gen++
	if err := x.load(c); err != nil {
		return err
	}
	err := x.drop(c, conversation)
	return errors.Join(err, x.syncGone(c.dir))
}

func (x *Index) forgetAll(c *caller) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.gen++
	for _, s := range c.segments {
		x.cache.drop(s)
	}
	c.segments, c.loaded = nil, false
	x.setMemtable(c, newMemtable())
	x.mu.Lock()
	c.walked = false
	x.mu.Unlock()
	err := durable.RemoveAll(x.fsys, c.dir)
	if errors.Is(err, durable.ErrUnsafe) {
		err = x.supplant(c)
	}
	return errors.Join(err, x.syncGone(c.dir))
}

// Discard removes what an index has left in a data directory that has none any more: nobody would take out of it what
// is cleared.
func Discard(fsys durable.FS) error {
	if err := durable.RemoveAll(fsys, indexName); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove the search index: %w", err)
	}
	if err := fsys.SyncDir("."); err != nil {
		return fmt.Errorf("sync after removing the search index: %w", err)
	}
	return nil
}
