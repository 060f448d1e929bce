package main

import (
	"container/list"
	"net"
	"net/http"
	"sync"

	"historyd/internal/identity"
)

// limitListener bounds the connections that are open. A connection over the
// number takes the place of the one that has been idle longest; while none is
// idle it waits, until one closes or turns idle.
type limitListener struct {
	net.Listener
	handed chan struct{} // a place for each that was waited for; has room for all places
	closed chan struct{}
	once   sync.Once

	// mu guards all below, and in each connection element and left. While
	// somebody waits no place is free and no connection idle.
	mu      sync.Mutex
	free    int        // places
	waiting int        // connections that wait for a place
	idle    *list.List // of *connection, the longest idle at the front
}

func newLimitListener(l net.Listener, most int) *limitListener {
	return &limitListener{
		Listener: l, handed: make(chan struct{}, most), closed: make(chan struct{}), free: most, idle: list.New(),
	}
}

func (l *limitListener) Accept() (net.Conn, error) {
	// First somebody must be there, or the last place would always be kept free.
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	if !l.enter() {
		select {
		case <-l.handed:
		case <-l.closed:
			_ = c.Close() // nothing has been read of it
			return nil, net.ErrClosed
		}
	}
	uid, ok := identity.PeerUID(c)
	return &connection{Conn: c, listener: l, uid: uid, peer: ok}, nil
}

func (l *limitListener) Close() error {
	l.once.Do(func() { close(l.closed) })
	return l.Listener.Close()
}

// pass returns when a connection could be let in, or kept waiting.
func (l *limitListener) pass() {
	l.mu.Lock()
	defer l.mu.Unlock()
}

// enter takes a place, a free one or that of the connection idle longest, or
// else counts one more that waits. A closed listener goes on counting those who
// waited: it lets nobody in again.
func (l *limitListener) enter() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if front := l.idle.Front(); l.free == 0 && front != nil {
		l.evict(front.Value.(*connection))
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
	_ = c.Conn.Close() // the server learns it from its next read
}

// leave gives the place of a connection to who waits, or back; once for each.
// The caller holds mu.
func (l *limitListener) leave(c *connection) {
	if c.left {
		return
	}
	c.left = true
	if c.element != nil {
		l.idle.Remove(c.element)
		c.element = nil
	}
	if l.waiting == 0 {
		l.free++
		return
	}
	l.waiting--
	l.handed <- struct{}{}
}

// connection is one of a limitListener, with the uid of its peer as it was when
// the connection was accepted.
type connection struct {
	net.Conn
	listener *limitListener
	uid      uint32
	peer     bool // uid is known: it came by a unix socket

	element *list.Element // in listener.idle; nil while busy
	left    bool          // its place is another's
}

func (c *connection) Close() error {
	c.listener.mu.Lock()
	c.listener.leave(c)
	c.listener.mu.Unlock()
	return c.Conn.Close()
}

// mark says whether the connection waits for a request. If it would while another
// waits for a place, it is closed instead.
func (c *connection) mark(idle bool) {
	l := c.listener
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case idle && l.waiting > 0:
		l.evict(c)
	case idle && c.element == nil && !c.left:
		c.element = l.idle.PushBack(c)
	case !idle && c.element != nil:
		l.idle.Remove(c.element)
		c.element = nil
	}
}

// connState is for http.Server.
func connState(c net.Conn, state http.ConnState) {
	if inner, ok := c.(interface{ NetConn() net.Conn }); ok {
		c = inner.NetConn() // TLS
	}
	if own, ok := c.(*connection); ok && (state == http.StateIdle || state == http.StateActive) {
		own.mark(state == http.StateIdle)
	}
}
