package main

import (
	"context"
	"errors"
	"net"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"sync"
	"syscall"
	"time"

	sd "github.com/coreos/go-systemd/v22/daemon"
	"github.com/spf13/cobra"
)

const (
	// drainTime is how long requests in flight may take to end after a signal.
	drainTime = 8 * time.Second
	// stopTime is when the daemon is gone in any case.
	stopTime = 10 * time.Second
)

// errCut is why requests end that have not ended by drainTime.
var errCut = errors.New("the daemon stops")

func newServeCommand() *cobra.Command {
	var operator string
	cmd := &cobra.Command{
		Use:        "serve",
		SuggestFor: []string{"start", "run", "daemon", "server"},
		Short:      "run the daemon",
		Long: "Run the daemon until SIGTERM or an interrupt; a second one ends it at once. SIGHUP reads the\n" +
			"callers, the rules of projection and the log level again.\n\n" +
			"Without callers nobody could be let in, so it doesn't start: make one with historyd token create,\n" +
			"or with --bootstrap-operator, which writes the token of a first operator to operator.token in the\n" +
			"data directory and prints a line to try it with. With callers there the flag makes nothing.\n\n" +
			"Only a loopback address is served without TLS. Sockets inherited from systemd are served instead\n" +
			"of the configured ones, and systemd is told when the daemon is ready.",
		Example: "  historyd serve --bootstrap-operator me\n" +
			"  historyd serve --config historyd.yaml --listen 127.0.0.1:0\n" +
			"  historyd serve --listen '' --socket /run/historyd/socket",
		Args: takes(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if cmd.Flag("bootstrap-operator").Changed && operator == "" {
				return usageError{errors.New("--bootstrap-operator needs an id")}
			}
			s, err := loadFor(cmd)
			if err != nil {
				return err
			}
			if err := s.needCredentials(); err != nil {
				return err
			}
			reread := func() (settings, error) { return loadFor(cmd) }
			// A hang-up must not end a daemon that is still starting, nor should
			// a reader of our output that goes away.
			hangup := make(chan os.Signal, 1)
			signal.Notify(hangup, syscall.SIGHUP)
			defer signal.Stop(hangup)
			signal.Ignore(syscall.SIGPIPE)
			d, err := openDaemon(cmd.Context(), s, operator, cmd.ErrOrStderr())
			if err != nil {
				return err
			}
			d.reread = reread
			if os.Getenv("INVOCATION_ID") != "" {
				operator = "" // a unit of systemd: nobody reads along who could paste a line
			}
			if err := d.announce(cmd.OutOrStdout(), operator); err != nil {
				d.log.Warn("address not printed", "error", err)
			}
			return d.serve(cmd.Context(), hangup)
		},
	}
	addFlags(cmd.Flags(), "data_dir", "listen.tcp", "listen.unix", "log.level")
	cmd.Flags().StringVar(&operator, "bootstrap-operator", "", "make the operator `ID`, if there are no callers yet")
	return cmd
}

// serve answers requests until the context ends, then drains and closes. It
// returns nil after a clean stop.
func (d *daemon) serve(ctx context.Context, hangup <-chan os.Signal) error {
	// Each listener has a goroutine that ends when its server is shut down, and
	// so have the watchdog and the watch over the disk, which end with watching.
	var running sync.WaitGroup
	failed := make(chan error, len(d.endpoints)+1)
	start := func(s *http.Server, l net.Listener) {
		running.Go(func() {
			if err := s.Serve(l); !errors.Is(err, http.ErrServerClosed) {
				failed <- err
			}
		})
	}
	for _, e := range d.endpoints {
		start(d.server, e)
	}
	if d.debugListener != nil {
		start(d.debugServer, d.debugListener)
	}
	watching, rest := context.WithCancel(ctx)
	defer rest()
	running.Go(func() { d.watch(watching) })
	running.Go(func() { d.store.Watch(watching) })

	d.log.Info("serving", "version", buildInfo().Version, "listen", d.where(),
		"data_dir", d.settings.DataDir, "callers", d.registry.Len())
	d.notify(sd.SdNotifyReady)
	var err error
	for done := false; !done; {
		select {
		case <-hangup:
			d.reload()
		case err = <-failed:
			done = true
		case <-ctx.Done():
			done = true
		}
	}
	rest()
	return errors.Join(err, d.stop(&running))
}

// where lists the addresses that are served.
func (d *daemon) where() string {
	urls := make([]string, len(d.endpoints))
	for i, e := range d.endpoints {
		urls[i] = e.url()
	}
	return strings.Join(urls, " ")
}

// stop lets the requests in flight end, for drainTime, and closes everything.
// What was acknowledged is durable already, so a stop that takes too long loses
// nothing by being cut off.
func (d *daemon) stop(running *sync.WaitGroup) error {
	last := time.AfterFunc(stopTime, func() {
		d.log.Error("stop takes too long: ending at once")
		os.Exit(exitFail)
	})
	defer last.Stop()
	// Whoever signals again doesn't want to wait.
	signal.Reset(syscall.SIGTERM, os.Interrupt)
	d.engine.stopping.Store(true)
	d.notify(sd.SdNotifyStopping)
	d.log.Info("stopping")
	ctx, cancel := context.WithTimeout(context.Background(), drainTime)
	defer cancel()
	if err := d.server.Shutdown(ctx); err != nil {
		d.log.Warn("requests cut off", "error", err)
		d.cutOff()
	}
	_ = d.debugServer.Close()
	running.Wait()
	err := d.close()
	d.log.Info("stopped")
	return err
}

// cutOff ends the requests that are served still, whose clients learn it from the connection. By their contexts first,
// with a cause: for a closed connection alone they would go on for a moment, as for a client that has left.
func (d *daemon) cutOff() {
	d.cut(errCut)
	_ = d.server.Close()
}

// reload reads callers, rules of projection and log level again. What can't be
// read or is wrong changes nothing.
func (d *daemon) reload() {
	d.notify(sd.SdNotifyReloading + "\n" + sd.SdNotifyMonotonicUsec())
	defer d.notify(sd.SdNotifyReady)
	err := d.registry.Reload()
	if err != nil {
		d.log.Error("callers not reloaded", "error", err)
	}
	d.reloadFailed.Store(err != nil)
	s, err := d.reread()
	if err != nil {
		d.reloadFailed.Store(true)
		d.log.Error("configuration not reloaded", "error", err)
		return
	}
	policy, p := s.policy()
	if p != nil {
		d.reloadFailed.Store(true)
		d.log.Error("configuration not reloaded", "error", p.String())
		return
	}
	d.tellMisspelt(&s)
	d.pipeline.SetPolicy(policy)
	d.level.Set(parseLevel(s.Log.Level))
	d.log.Info("reloaded", "callers", d.registry.Len())
	if later := d.settings.needRestart(&s); len(later) > 0 {
		d.log.Warn("some settings changed that need a restart", "keys", strings.Join(later, " "))
	}
}
