package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"syscall"
	"time"

	sd "github.com/coreos/go-systemd/v22/daemon"
)

// notify tells systemd how we are, if it asked to be told.
func (d *daemon) notify(state string) {
	if _, err := sd.SdNotify(false, state); err != nil {
		d.log.Warn("systemd not told", "error", err)
	}
}

// Results of a check.
const (
	checkOK         = "ok"
	checkUnwritable = "unwritable" // by what a restart would not mend
	checkFailed     = "failed"
)

// watchdog tells systemd that the daemon does its work. There is no word without
// a check of ourselves that passed, so that a daemon which lives but can't serve
// or can't write is restarted.
type watchdog struct {
	interval time.Duration // within which systemd wants to hear from us

	ask   func(context.Context) error // makes a request, as a client would
	write func() error                // makes a write durable; it may hang
	ping  func()
	count func(result string) // of a check
	log   *slog.Logger

	writing chan error // gets what a write came to that has not come back; nil when none is under way
	failing bool       // the last write came back with an error that was told
}

// run checks and pings until the context ends. A check that begins a third of
// the interval after the one before and takes half of it is still in time.
func (w *watchdog) run(ctx context.Context) {
	defer func() {
		if w.writing != nil {
			<-w.writing
		}
	}()
	tick := time.NewTicker(w.interval / 3)
	defer tick.Stop()
	for {
		switch err := w.check(ctx); {
		case err == nil && w.failing:
			w.count(checkUnwritable)
			w.ping()
		case err == nil:
			w.count(checkOK)
			w.ping()
		case ctx.Err() == nil:
			w.count(checkFailed)
			w.log.Error("self-check failed: no ping for the watchdog", "error", err)
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// check reports whether a request is answered and a write comes back in time.
func (w *watchdog) check(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, w.interval/2)
	defer cancel()
	if err := w.ask(ctx); err != nil {
		return fmt.Errorf("a request to ourselves: %w", err)
	}
	if w.writing == nil {
		w.writing = make(chan error, 1)
		go func(done chan<- error) { done <- w.write() }(w.writing) // run waits for it
	}
	select {
	case err := <-w.writing:
		w.writing = nil
		return w.judge(err)
	case <-ctx.Done():
		return fmt.Errorf("a write to the data directory: %w", ctx.Err())
	}
}

// judge makes nothing of an error that a restart would not mend: with a full disk
// or a broken one reads go on.
func (w *watchdog) judge(err error) error {
	was := w.failing
	w.failing = err != nil
	for _, outside := range []error{syscall.ENOSPC, syscall.EDQUOT, syscall.EFBIG, syscall.EIO, syscall.EROFS} {
		if errors.Is(err, outside) {
			if !was {
				w.log.Error("the data directory can't be written to", "error", err)
			}
			return nil
		}
	}
	if err != nil {
		return fmt.Errorf("a write to the data directory: %w", err)
	}
	if was {
		w.log.Info("the data directory can be written to again")
	}
	return nil
}

// watch pings the watchdog of systemd, if there is one, until the context ends.
func (d *daemon) watch(ctx context.Context) {
	interval, err := sd.SdWatchdogEnabled(false)
	if err != nil {
		d.log.Warn("watchdog not understood", "error", err)
	}
	if interval <= 0 {
		return
	}
	inside := newInside()
	var serving sync.WaitGroup
	serving.Go(func() { _ = d.server.Serve(inside) }) // until it is closed
	w := &watchdog{
		interval: interval,
		ask: func(ctx context.Context) error {
			for _, e := range d.endpoints {
				e.gate.pass() // or hangs, and nobody is let in any more
			}
			return askSelf(ctx, inside)
		},
		write: d.store.Probe,
		ping:  func() { d.notify(sd.SdNotifyWatchdog) },
		count: func(result string) { d.selfchecks.WithLabelValues(result).Inc() },
		log:   d.log,
	}
	w.run(ctx)
	_ = inside.Close()
	serving.Wait()
}

// askSelf makes a request that goes through all that one of a client does but the
// network, which systemd may have taken from us.
func askSelf(ctx context.Context, l *insideListener) error {
	transport := &http.Transport{DisableKeepAlives: true, DialContext: l.dial}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://localhost/readyz", nil)
	if err != nil {
		return err
	}
	resp, err := transport.RoundTrip(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if _, err := io.Copy(io.Discard, resp.Body); err != nil {
		return err
	}
	// Not ready is an answer, too: it is for clients, and for the operator.
	if resp.StatusCode != http.StatusOK && resp.StatusCode != http.StatusServiceUnavailable {
		return fmt.Errorf("readyz answers %d", resp.StatusCode)
	}
	return nil
}

// insideListener accepts connections from this process alone.
type insideListener struct {
	conns  chan net.Conn
	closed chan struct{}
	once   sync.Once
}

func newInside() *insideListener {
	return &insideListener{conns: make(chan net.Conn), closed: make(chan struct{})}
}

func (l *insideListener) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	ours, theirs := net.Pipe()
	select {
	case l.conns <- insideConn{theirs}:
		return ours, nil
	case <-l.closed:
		return nil, net.ErrClosed
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (l *insideListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

func (l *insideListener) Close() error {
	l.once.Do(func() { close(l.closed) })
	return nil
}

func (l *insideListener) Addr() net.Addr { return insideAddr }

// insideAddr is for the rules of who may call: no web page can, as on a unix
// socket, and no uid is known.
var insideAddr = &net.UnixAddr{Name: "inside", Net: "unix"}

type insideConn struct{ net.Conn }

func (insideConn) LocalAddr() net.Addr { return insideAddr }
