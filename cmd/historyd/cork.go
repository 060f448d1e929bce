package main

import (
	"net"
	"sync"
)

// A cork keeps what is written to a connection, so that it leaves together with what comes next.
// net/http writes the head of an answer that is larger than its buffer apart from the rest, and
// whoever waits for it is woken twice.
type cork struct {
	mu   sync.Mutex // a server that closes may write, too
	set  bool
	kept *[]byte // nil while nothing is
}

// corkRooms holds *[]byte for what is kept.
var corkRooms = sync.Pool{New: func() any { return new([]byte) }}

// Cork has the next write wait for the one after it, or for Uncork.
func (c *connection) Cork() {
	c.cork.mu.Lock()
	defer c.cork.mu.Unlock()
	c.cork.set = true
}

// Uncork writes what waits, if anything does.
func (c *connection) Uncork() error {
	if kept := c.cork.draw(); kept != nil {
		defer corkRooms.Put(kept)
		_, err := c.Conn.Write(*kept)
		return err
	}
	return nil
}

// draw ends the waiting, and returns what was kept.
func (k *cork) draw() (kept *[]byte) {
	k.mu.Lock()
	defer k.mu.Unlock()
	kept = k.kept
	k.set, k.kept = false, nil
	return kept
}

// keep takes what is the first to be written since Cork. It reports whether it did.
func (k *cork) keep(p []byte) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	if !k.set || k.kept != nil {
		return false
	}
	k.kept = corkRooms.Get().(*[]byte)
	*k.kept = append((*k.kept)[:0], p...)
	return true
}

func (c *connection) Write(p []byte) (int, error) {
	if c.cork.keep(p) {
		return len(p), nil
	}
	kept := c.cork.draw()
	if kept == nil {
		return c.Conn.Write(p)
	}
	defer corkRooms.Put(kept)
	both := net.Buffers{*kept, p}
	n, err := both.WriteTo(c.Conn)
	return max(0, int(n)-len(*kept)), err
}
