package main

import (
	"container/list"
	"context"
	"errors"
	"net"
	"net/http"
	"sync"
	"syscall"
	"time"

	"historyd/internal/api"
	"historyd/internal/identity"
)

// limitListener bounds the connections that are open. A connection over the
// number takes the place of one that is idle: of those of the caller who has most,
// the one that has been so for longest. While none is idle it waits, until one
// closes or turns idle. While one caller has most of all places it waits a moment
// for one of that caller's: who asks now and then keeps a connection when somebody
// floods.
type limitListener struct {
	net.Listener
	most   int
	handed chan struct{} // a place for each that was waited for; has room for all places
	closed chan struct{}
	once   sync.Once

	makeRoom []func() // each closes what can be spared when no connection can be opened, one after the other

	// mu guards all below, and in each connection those that say so. While
	// somebody waits no place is free, and no connection idle that gives way.
	mu      sync.Mutex
	free    int  // places
	waiting int  // connections that wait for a place
	pressed bool // they wait for long
	groups  map[identity.Scope]*group
	turns   uint64 // how often a connection has turned idle
	evicted uint64 // how many were closed for others
}

// A group is the open connections of one caller; those that have not said whose
// they are make one, too.
type group struct {
	open int
	idle *list.List // of *connection, the longest idle at the front
}

func newLimitListener(l net.Listener, most int) *limitListener {
	return &limitListener{
		Listener: l, most: most, handed: make(chan struct{}, most), closed: make(chan struct{}), free: most,
		groups: map[identity.Scope]*group{},
	}
}

func (l *limitListener) Accept() (net.Conn, error) {
	// First somebody must be there, or the last place would always be kept free.
	c, err := l.Listener.Accept()
	for _, makeRoom := range l.makeRoom {
		if !errors.Is(err, syscall.EMFILE) && !errors.Is(err, syscall.ENFILE) {
			break
		}
		makeRoom()
		c, err = l.Listener.Accept() // who has connected still waits
	}
	if err != nil {
		return nil, err
	}
	if !l.enter() && !l.await() {
		_ = c.Close() // nothing has been read of it
		return nil, net.ErrClosed
	}
	uid, ok := identity.PeerUID(c)
	in := &connection{Conn: c, listener: l, uid: uid, peer: ok}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.join(in, identity.Scope{})
	return in, nil
}

// join counts a connection among those of a caller. The caller holds mu.
func (l *limitListener) join(c *connection, of identity.Scope) {
	g := l.groups[of]
	if g == nil {
		g = &group{idle: list.New()}
		l.groups[of] = g
	}
	g.open++
	c.of = of
}

// part is the opposite of join. The caller holds mu.
func (l *limitListener) part(c *connection) {
	g := l.groups[c.of]
	if c.element != nil {
		g.idle.Remove(c.element)
		c.element = nil
	}
	if g.open--; g.open == 0 {
		delete(l.groups, c.of)
	}
}

// moment is how long the idle connections of others are spared while one caller has
// most places: nobody waits longer for an answer that is to come, or for a header.
const moment = 5 * time.Second

// await waits for a place; false when the listener was closed meanwhile.
func (l *limitListener) await() bool {
	long := time.NewTimer(moment)
	defer long.Stop()
	for {
		select {
		case <-l.handed:
			return true
		case <-l.closed:
			return false
		case <-long.C:
			l.mu.Lock()
			l.pressed = true
			l.settle()
			l.mu.Unlock()
		}
	}
}

// yielding is the connection that gives way to the next; nil when it has to wait.
// The caller holds mu.
func (l *limitListener) yielding() *connection {
	var best *connection
	largest := 0 // that a caller has
	for of, g := range l.groups {
		if of.Valid() {
			largest = max(largest, g.open)
		}
		e := g.idle.Front()
		if e == nil {
			continue
		}
		c := e.Value.(*connection)
		if best == nil || g.open > l.groups[best.of].open || g.open == l.groups[best.of].open && c.since < best.since {
			best = c
		}
	}
	if best == nil || !best.of.Valid() || l.groups[best.of].open == largest || l.pressed {
		return best
	}
	if g := l.groups[identity.Scope{}]; g != nil {
		largest += g.open // which may all be the same caller's
	}
	if largest > l.most/2 {
		return nil
	}
	return best
}

// settle makes way for who waits. The caller holds mu.
func (l *limitListener) settle() {
	for l.waiting > 0 {
		c := l.yielding()
		if c == nil {
			return
		}
		l.evict(c)
	}
}

func (l *limitListener) Close() error {
	l.once.Do(func() { close(l.closed) })
	return l.Listener.Close()
}

// addTo counts what is here.
func (l *limitListener) addTo(n *headcount) {
	l.mu.Lock()
	defer l.mu.Unlock()
	n.open += float64(l.most - l.free)
	n.limit += float64(l.most)
	n.waiting += float64(l.waiting)
	n.evicted += float64(l.evicted)
}

// pass returns when a connection could be let in, or kept waiting.
func (l *limitListener) pass() {
	l.mu.Lock()
	defer l.mu.Unlock()
}

// enter takes a place, a free one or that of a connection that gives way, or
// else counts one more that waits. A closed listener goes on counting those who
// waited: it lets nobody in again.
func (l *limitListener) enter() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.free == 0 && l.waiting == 0 {
		if c := l.yielding(); c != nil {
			l.evict(c)
		}
	}
	if l.free == 0 {
		l.waiting++
		return false
	}
	l.free--
	return true
}

// evict closes a connection that is idle. Its client may be sending at this
// moment, and must be ready for that on any connection that it keeps. The caller
// holds mu.
func (l *limitListener) evict(c *connection) {
	l.leave(c)
	l.evicted++
	_ = c.Conn.Close() // the server learns it from its next read
}

// sparedAtOnce is how many idle connections are closed when no other can be opened: that one needs a descriptor, and
// what it asks for some more.
const sparedAtOnce = 1 + filesOfRequest

// spare closes some idle connections for their descriptors.
func (l *limitListener) spare() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for range sparedAtOnce {
		c := l.yielding()
		if c == nil {
			return
		}
		l.evict(c)
	}
}

// leave gives the place of a connection to who waits, or back; once for each.
// The caller holds mu.
func (l *limitListener) leave(c *connection) {
	if c.left {
		return
	}
	c.left = true
	l.part(c)
	if l.waiting == 0 {
		l.free++
		return
	}
	l.waiting--
	l.pressed = l.pressed && l.waiting > 0
	l.handed <- struct{}{}
}

// connection is one of a limitListener, with the uid of its peer as it was when
// the connection was accepted.
type connection struct {
	net.Conn
	listener *limitListener
	uid      uint32
	peer     bool // uid is known: it came by a unix socket
	cork     cork

	// Guarded by listener.mu.
	of      identity.Scope // who spoke last on it
	element *list.Element  // in the idle ones of its group; nil while busy
	since   uint64         // its turn among all that turned idle
	left    bool           // its place is another's
}

// belong says whose request is on the connection.
func (c *connection) belong(to identity.Scope) {
	l := c.listener
	l.mu.Lock()
	defer l.mu.Unlock()
	if c.left || c.of == to {
		return
	}
	l.part(c)
	l.join(c, to)
	l.settle()
}

func (c *connection) Close() error {
	c.listener.mu.Lock()
	c.listener.leave(c)
	c.listener.mu.Unlock()
	return c.Conn.Close()
}

// mark says whether the connection waits for a request. If it would while another
// waits for a place, it may be closed instead.
func (c *connection) mark(idle bool) {
	l := c.listener
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case idle && c.element == nil && !c.left:
		l.turns++
		c.since = l.turns
		c.element = l.groups[c.of].idle.PushBack(c)
		l.settle()
	case !idle && c.element != nil:
		l.groups[c.of].idle.Remove(c.element)
		c.element = nil
	}
}

// connState is for http.Server.
func connState(c net.Conn, state http.ConnState) {
	if own := beneath(c); own != nil && (state == http.StateIdle || state == http.StateActive) {
		own.mark(state == http.StateIdle)
	}
}

// beneath is the connection that one of the server's is, or is a layer over; nil when it is
// none of a limitListener.
func beneath(c net.Conn) *connection {
	if inner, ok := c.(interface{ NetConn() net.Conn }); ok {
		c = inner.NetConn() // TLS
	}
	own, _ := c.(*connection)
	return own
}

type connectionKey struct{}

// connContext is for http.Server.
func connContext(ctx context.Context, c net.Conn) context.Context {
	own := beneath(c)
	if own == nil {
		return ctx
	}
	if own.peer {
		ctx = api.WithPeer(ctx, own.uid)
	}
	return context.WithValue(api.WithCork(ctx, own), connectionKey{}, own)
}

// heard says whose a request is, by its context.
func heard(ctx context.Context, caller identity.Scope) {
	if own, ok := ctx.Value(connectionKey{}).(*connection); ok {
		own.belong(caller)
	}
}
