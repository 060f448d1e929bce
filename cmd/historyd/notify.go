package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"

	sd "github.com/coreos/go-systemd/v22/daemon"
)

// notify tells systemd how we are, if it asked to be told.
func (d *daemon) notify(state string) {
	if _, err := sd.SdNotify(false, state); err != nil {
		d.log.Warn("systemd not told", "error", err)
	}
}

// watch pings the watchdog of systemd, if there is one, until the context ends.
// There is no ping without a self-check that passed, so that a daemon which
// lives but can't answer is restarted.
func (d *daemon) watch(ctx context.Context) {
	interval, err := sd.SdWatchdogEnabled(false)
	if err != nil {
		d.log.Warn("watchdog not understood", "error", err)
	}
	if interval <= 0 {
		return
	}
	tick := time.NewTicker(interval / 2)
	defer tick.Stop()
	for {
		if err := d.checkSelf(ctx, interval/4); err == nil {
			d.notify(sd.SdNotifyWatchdog)
		} else if ctx.Err() == nil {
			d.log.Error("self-check failed: no ping for the watchdog", "error", err)
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// checkSelf asks the daemon for /healthz as any client would, and the store for
// its state. What the store says is for /readyz: with a full disk we are not
// ready, but reads go on, and a restart would mend nothing.
func (d *daemon) checkSelf(ctx context.Context, patience time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	_ = d.store.Ready() // one that never answers is what we look for
	for _, e := range d.endpoints {
		if err := askHealth(ctx, e); err != nil {
			return fmt.Errorf("%s: %w", e.network, err)
		}
	}
	return nil
}

// askHealth makes one request on a new connection.
func askHealth(ctx context.Context, e endpoint) error {
	address, host := e.address, "localhost"
	if e.network == "tcp" {
		_, port, err := net.SplitHostPort(address)
		if err != nil {
			return err
		}
		host = net.JoinHostPort(host, port)
	}
	transport := &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, e.network, address)
		},
		// Who answers is known: the question is only whether.
		TLSClientConfig: &tls.Config{InsecureSkipVerify: true},
	}
	scheme := "http"
	if e.secure {
		scheme = "https"
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, scheme+"://"+host+"/healthz", nil)
	if err != nil {
		return err
	}
	resp, err := transport.RoundTrip(req)
	var refusal *net.OpError
	if errors.As(err, &refusal) && refusal.Op == "remote error" {
		return nil // an alert of TLS: it wants a certificate, so somebody is there
	}
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if _, err := io.Copy(io.Discard, resp.Body); err != nil {
		return err
	}
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("healthz answers %d", resp.StatusCode)
	}
	return nil
}
