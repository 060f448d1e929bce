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
// idle it waits in the kernel's queue.
type limitListener struct {
	net.Listener
	places chan struct{}
	closed chan struct{}
	once   sync.Once

	// mu guards idle, of *connection, and the element in each of them. The
	// longest idle is at the front.
	mu   sync.Mutex
	idle *list.List
}

func newLimitListener(l net.Listener, most int) *limitListener {
	return &limitListener{Listener: l, places: make(chan struct{}, most), closed: make(chan struct{}), idle: list.New()}
}

func (l *limitListener) Accept() (net.Conn, error) {
	// First somebody must be there, or the last place would always be kept free.
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	select {
	case l.places <- struct{}{}:
	default:
		l.evict()
		select {
		case l.places <- struct{}{}:
		case <-l.closed:
			_ = c.Close() // nothing has been read of it
			return nil, net.ErrClosed
		}
	}
	uid, ok := identity.PeerUID(c)
	own := &connection{Conn: c, listener: l, uid: uid, peer: ok}
	own.leave = sync.OnceFunc(func() { <-l.places })
	return own, nil
}

func (l *limitListener) Close() error {
	l.once.Do(func() { close(l.closed) })
	return l.Listener.Close()
}

// evict closes the connection that has been idle longest, if there is one. Its
// client may be sending at this moment, and must be ready for that on any
// connection that it keeps.
func (l *limitListener) evict() {
	l.mu.Lock()
	var c *connection
	if front := l.idle.Front(); front != nil {
		c = l.idle.Remove(front).(*connection)
		c.element = nil
	}
	l.mu.Unlock()
	if c != nil {
		_ = c.Close() // the server learns it from its next read
	}
}

// connection is one of a limitListener, with the uid of its peer as it was when
// the connection was accepted.
type connection struct {
	net.Conn
	listener *limitListener
	leave    func()
	uid      uint32
	peer     bool // uid is known: it came by a unix socket

	element *list.Element // in listener.idle; nil while busy
}

func (c *connection) Close() error {
	c.mark(false)
	c.leave()
	return c.Conn.Close()
}

// mark says whether the connection waits for a request.
func (c *connection) mark(idle bool) {
	c.listener.mu.Lock()
	defer c.listener.mu.Unlock()
	switch {
	case idle && c.element == nil:
		c.element = c.listener.idle.PushBack(c)
	case !idle && c.element != nil:
		c.listener.idle.Remove(c.element)
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
