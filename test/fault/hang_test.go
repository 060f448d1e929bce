package fault

import (
	"errors"
	"net"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"historyd/internal/durable/crashfs"
)

// watchdog is what systemd hears from the daemon.
func watchdog(t *testing.T) (env []string, pings *atomic.Int64) {
	t.Helper()
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: filepath.Join(t.TempDir(), "n"), Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	pings = &atomic.Int64{}
	var reader sync.WaitGroup
	reader.Go(func() {
		b := make([]byte, 1000)
		for {
			n, err := conn.Read(b)
			if errors.Is(err, net.ErrClosed) {
				return
			}
			if strings.Contains(string(b[:n]), "WATCHDOG=1") {
				pings.Add(1)
			}
		}
	})
	t.Cleanup(func() {
		_ = conn.Close()
		reader.Wait()
	})
	return []string{"NOTIFY_SOCKET=" + conn.LocalAddr().String(), "WATCHDOG_USEC=600000"}, pings
}

// await polls until something has come to pass.
func (b *broken) await(what string, done func() bool) {
	b.t.Helper()
	for end := time.Now().Add(2 * patience); !done(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			b.fatalf("it does not come to pass that %s", what)
		}
	}
}

// TestADiskThatHangs wedges the disk under requests of many clients. The process goes on answering, tells that it is not
// ready, and no longer feeds its watchdog; its log and its metrics tell of the disk within seconds; who waits is told so in
// time, and when the disk comes back all is well.
func TestADiskThatHangs(t *testing.T) {
	mustMount(t)
	t.Parallel()
	hanging := regexp.MustCompile(`(?m)^historyd_store_oldest_operation_seconds [1-9]`)
	over := regexp.MustCompile(`the disk no longer hangs after=\S+s operations=[1-9]`)
	im := newImage(t)
	b := newBroken(t, im, im.load(t), "the disk hangs")
	defer b.unmount()
	env, pings := watchdog(t)
	b.s.env = append(env, "HISTORYD_LOG_LEVEL=info")
	b.s.client.Timeout = 3 * patience
	b.s.begin()
	bystander := b.bystander()
	b.append(b.shared[0], b.next(2), true)
	b.await("the watchdog is fed", func() bool { return pings.Load() > 2 })
	wedged, heals := atomic.Bool{}, make(chan struct{})
	healed := sync.OnceFunc(func() { close(heals) })
	defer healed()
	wedged.Store(true)
	b.fsys.FailWhen(func(op crashfs.Op) error {
		if wedged.Load() {
			<-heals
		}
		return nil
	})
	var clients sync.WaitGroup
	answers := make(chan answer, 20)
	for i := range cap(answers) {
		clients.Go(func() { answers <- b.append(b.shared[i%2], b.next(1), true) })
	}
	b.await("the log says that the disk hangs", func() bool { return strings.Contains(b.s.log(), "the disk hangs: ") })
	if a := b.s.try("GET", "/metrics", nil); a.status != 200 || !hanging.Match(a.body) || !regexp.MustCompile(`(?m)^historyd_store_stalls_total 1$`).Match(a.body) {
		b.fatalf("the metrics of a disk that hangs: %d", a.status)
	}
	b.await("the daemon says that it is not ready", func() bool { return b.s.try("GET", "/readyz", nil).status == 503 })
	if a := b.s.try("GET", "/healthz", nil); a.status != 200 {
		b.fatalf("healthz: %d", a.status)
	}
	fed := pings.Load()
	b.await("nothing is said for two intervals", func() bool {
		time.Sleep(1200 * time.Millisecond)
		was := fed
		fed = pings.Load()
		return was == fed
	})
	if *long { // it takes the minute that a request may wait
		clients.Wait()
		for range cap(answers) {
			if a := <-answers; a.status != 503 || a.code() != "unavailable" {
				b.fatalf("an append that waited: %d %.300s", a.status, a.body)
			}
		}
	}
	if n := strings.Count(b.s.log(), "the disk hangs"); n != 1 {
		b.fatalf("told %d times that the disk hangs, want once: %s", n, b.s.log())
	}
	wedged.Store(false)
	healed()
	clients.Wait()
	b.await("the log says that it is over", func() bool { return over.MatchString(b.s.log()) })
	b.await("the daemon is ready again", func() bool { return b.s.try("GET", "/readyz", nil).status == 200 })
	b.await("the watchdog is fed again", func() bool { return pings.Load() > fed })
	b.retry(rng(1))
	b.verify()
	bystander(t)
	b.cut(rng(2))
	b.recover()
}
