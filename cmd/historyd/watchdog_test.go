package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

// guarded is a watchdog and what it does.
type guarded struct {
	watchdog
	pings, writes int
	counts        map[string]int
	logs          bytes.Buffer
	stop          func() // and wait
}

// guard runs a watchdog of one minute with these parts.
func guard(t *testing.T, ask func(context.Context) error, write func() error) *guarded {
	t.Helper()
	g := &guarded{counts: map[string]int{}}
	g.watchdog = watchdog{
		interval: time.Minute, ask: ask, write: func() error { g.writes++; return write() },
		ping: func() { g.pings++ }, count: func(result string) { g.counts[result]++ }, log: slog.New(slog.NewTextHandler(&g.logs, nil)),
	}
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { g.run(ctx) })
	g.stop = func() { cancel(); running.Wait() }
	return g
}

func fine() error                    { return nil }
func answered(context.Context) error { return nil }
func (g *guarded) after(d time.Duration) int {
	time.Sleep(d) // of synctest
	synctest.Wait()
	return g.pings
}

func TestTheWatchdogIsPingedOftenEnough(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := guard(t, answered, fine)
		defer g.stop()
		if got := g.after(10*time.Minute + time.Second); got != 31 {
			t.Errorf("%d pings in 10 minutes, want 31: one at once, and three a minute", got)
		}
		if want := map[string]int{checkOK: 31}; !maps.Equal(g.counts, want) {
			t.Errorf("counted %v, want %v", g.counts, want)
		}
	})
}

func TestAWedgedStoreGetsNoPing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		wedged := make(chan struct{})
		var hang atomic.Bool
		g := guard(t, answered, func() error {
			if hang.Load() {
				<-wedged
			}
			return nil
		})
		defer g.stop()
		before := g.after(time.Second)
		hang.Store(true)
		if got := g.after(time.Hour); got != before {
			t.Errorf("%d pings while a write hangs, want none", got-before)
		}
		if g.writes != 2 {
			t.Errorf("%d writes hang on top of each other, want 1", g.writes-1)
		}
		if !strings.Contains(g.logs.String(), "self-check failed") {
			t.Errorf("nothing is logged: %s", &g.logs)
		}
		hang.Store(false)
		close(wedged)
		if got := g.after(time.Minute); got == before {
			t.Error("no ping after the write came back")
		}
	})
}

func TestAServerThatDoesNotAnswerGetsNoPing(t *testing.T) {
	for name, ask := range map[string]func(context.Context) error{
		"it refuses": func(context.Context) error { return errors.New("refused") },
		"it hangs":   func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() },
	} {
		synctest.Test(t, func(t *testing.T) {
			g := guard(t, ask, fine)
			defer g.stop()
			if got := g.after(time.Hour); got != 0 {
				t.Errorf("%s: got %d pings, want none", name, got)
			}
		})
	}
}

func TestOnlyWhatARestartCouldMendEndsThePings(t *testing.T) {
	for _, tt := range []struct {
		err  error
		ping bool
	}{
		{syscall.ENOSPC, true}, {syscall.EDQUOT, true}, {syscall.EFBIG, true}, {syscall.EIO, true}, {syscall.EROFS, true},
		{syscall.EMFILE, false}, {syscall.ENFILE, false}, {syscall.EBADF, false}, {syscall.ENOMEM, false}, {fs.ErrNotExist, false},
	} {
		synctest.Test(t, func(t *testing.T) {
			g := guard(t, answered, func() error { return fmt.Errorf("write: %w", tt.err) })
			defer g.stop()
			got := g.after(10*time.Minute + time.Second)
			if (got == 31) != tt.ping || !tt.ping && got != 0 {
				t.Errorf("%v: got %d pings, want all %v", tt.err, got, tt.ping)
			}
			if want := map[bool]string{true: checkUnwritable, false: checkFailed}[tt.ping]; len(g.counts) != 1 || g.counts[want] == 0 {
				t.Errorf("%v: counted %v, want %s only", tt.err, g.counts, want)
			}
			if told := strings.Count(g.logs.String(), "\n"); tt.ping && told != 1 {
				t.Errorf("%v: %d lines of the log for one that lasts, want 1: %s", tt.err, told, &g.logs)
			}
		})
	}
}

func TestARequestToOurselvesGoesThroughTheServer(t *testing.T) {
	for _, tt := range []struct {
		status int
		ok     bool
	}{{200, true}, {503, true}, {500, false}, {403, false}} {
		d := &daemon{settings: onPort0(), log: slog.New(slog.DiscardHandler)}
		asked := ""
		server := d.newServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			asked = r.Method + " " + r.URL.Path
			w.WriteHeader(tt.status)
		}))
		l := newInside()
		var serving sync.WaitGroup
		serving.Go(func() { _ = server.Serve(l) })
		if err := askSelf(t.Context(), l); (err == nil) != tt.ok {
			t.Errorf("status %d: got %v, want ok %v", tt.status, err, tt.ok)
		}
		if asked != "GET /readyz" {
			t.Errorf("it was asked for %q", asked)
		}
		_ = server.Close()
		serving.Wait()
		if err := askSelf(t.Context(), l); err == nil {
			t.Error("a closed server answers")
		}
	}
}
