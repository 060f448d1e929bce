package attack

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"historyd/internal/api"
	"historyd/internal/compaction"
	"historyd/internal/durable/crashfs"
	"historyd/internal/identity"
	"historyd/internal/pipeline"
	"historyd/internal/projection"
	"historyd/internal/recall"
	"historyd/internal/store"
)

// here is the address that a handler takes itself to listen at.
const here = "127.0.0.1:4478"

// bench is the handler on a real store in memory, with bob's secret in it.
type bench struct {
	t            testing.TB
	handler      http.Handler
	reg          *prometheus.Registry
	disk         *crashfs.FS
	store        *store.Store
	file         *identity.File
	registry     *identity.Registry
	bob, mallory string
}

func newBench(t testing.TB) *bench {
	t.Helper()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	b := &bench{t: t, disk: crashfs.New(), reg: prometheus.NewRegistry()}
	b.file = identity.OpenFile(b.disk, "callers.json")
	b.bob, b.mallory = b.caller("mesh", "bob"), b.caller("operator", "mallory")
	var err error
	b.registry, err = identity.NewRegistry(identity.Options{File: b.file})
	must(err)
	var ids atomic.Int64
	b.store, err = store.Open(store.Options{FS: b.disk, Registerer: b.reg, NewID: func(string) string { return fmt.Sprintf("01%024d", ids.Add(1)) }})
	must(err)
	t.Cleanup(func() { _ = b.store.Close() })
	policy, err := projection.New(projection.Options{})
	must(err)
	compactor, err := compaction.New(compaction.Options{KeepVerbatimTurns: 4, FoldBatch: 2, Registerer: b.reg})
	must(err)
	index, err := recall.NewIndex(recall.SearchOptions{FS: b.disk, Record: b.store, Registerer: b.reg})
	must(err)
	t.Cleanup(func() { _ = index.Close() })
	recaller, err := recall.New(recall.Options{Local: index, Registerer: b.reg})
	must(err)
	t.Cleanup(func() { _ = recaller.Close() })
	log := slog.New(slog.DiscardHandler)
	pipe, err := pipeline.New(pipeline.Options{Engine: b.store, Policy: policy, Compactor: compactor, Index: index, Recaller: recaller, Registerer: b.reg, Logger: log})
	must(err)
	b.handler, err = api.New(api.Options{Pipeline: pipe, Callers: b.registry, Gatherer: b.reg, Registerer: b.reg, Logger: log})
	must(err)
	for _, name := range []string{"x", "default", "diary"} {
		b.send(b.request("POST", "/v1/conversations/"+name+"/turns", b.bob, said(secret)))
	}
	return b
}

func (b *bench) caller(kind, id string) string {
	b.t.Helper()
	c, err := identity.NewCaller(kind, id, "", "")
	if err != nil {
		b.t.Fatal(err)
	}
	token, _, err := b.file.Create(identity.NewToken{Caller: c})
	if err != nil {
		b.t.Fatal(err)
	}
	return token
}

func (b *bench) request(method, path, token string, body []byte) []byte {
	return fmt.Appendf(nil, "%s %s HTTP/1.1\r\nHost: HOST\r\nAuthorization: Bearer %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", method, path, token, len(body), body)
}

// errUnread tells that net/http refuses a request before a handler sees it.
var errUnread = errors.New("no request")

// send lets the handler serve a request.
func (b *bench) send(raw []byte) (a answer, err error) {
	raw = bytes.ReplaceAll(bytes.ReplaceAll(raw, []byte("HOST"), []byte(here)), []byte("MALLORY"), []byte(b.mallory))
	r, err := http.ReadRequest(bufio.NewReader(bytes.NewReader(raw)))
	if err != nil {
		return a, errUnread
	}
	local, _ := net.ResolveTCPAddr("tcp", here)
	w := httptest.NewRecorder()
	defer func() {
		if v := recover(); v != nil {
			err = fmt.Errorf("panic: %v", v)
		}
	}()
	b.handler.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), http.LocalAddrContextKey, local)))
	return answer{status: w.Code, header: w.Header(), body: w.Body.Bytes()}, nil
}

var errFailure = errors.New("a failure of the server")

// judge says what is wrong with the answer to a hostile request.
func judge(raw []byte, a answer) error {
	if bytes.Contains(a.body, []byte(secret)) || strings.Contains(fmt.Sprint(a.header), secret) {
		return errors.New("another caller's secret is in it")
	}
	ours := a.header.Get("X-Request-Id") != ""
	switch {
	case a.status >= 500 && ours:
		return errFailure
	case a.status >= 400 && ours && len(a.body) > 0 && (a.code() == "" || bytes.Contains(bytes.ToLower(a.body), []byte(marker))):
		return errors.New("no problem, or one that repeats what was sent")
	case a.status >= 300 && a.status < 400 && a.status != http.StatusNotModified:
		return errors.New("a redirection")
	}
	return nil
}

// series are the names of all time series.
func series(metrics []byte) map[string]bool {
	all := map[string]bool{}
	for line := range bytes.Lines(metrics) {
		if i := bytes.LastIndexByte(line, ' '); i > 0 && line[0] != '#' {
			all[string(line[:i])] = true
		}
	}
	return all
}

func (b *bench) metrics() []byte {
	a, err := b.send(b.request("GET", "/metrics", b.bob, nil))
	if err != nil || a.status != 200 {
		b.t.Fatalf("metrics: %d, %v", a.status, err)
	}
	return a.body
}

// warm asks each route once in each way, so that all series are there which there ever are.
func warm(send func(method, path string)) {
	for _, method := range []string{"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "CONNECT", "ZQMARK"} {
		for _, base := range []string{"/v1/conversations/x", "/v1/history"} {
			for _, rest := range []string{"/turns", "/messages", "/replay", "/recall", "/export", "/import", "/fork", "/rewind", "/attachments/x", ""} {
				send(method, base+rest)
			}
		}
		for _, path := range []string{"/v1/whoami", "/v1/search", "/v1/conversations", "/healthz", "/readyz", "/metrics", "/openapi.json", "/zqmark"} {
			send(method, path)
			send(method, path+"?token=x")
		}
	}
}

// all is everything that bob has.
func (b *bench) all() string {
	var all strings.Builder
	for _, path := range []string{"/v1/conversations", "/v1/conversations/x/messages", "/v1/conversations/diary/messages", "/v1/history/messages", "/v1/search?q=" + secret} {
		a, err := b.send(b.request("GET", path, b.bob, nil))
		if err != nil || a.status != 200 || !bytes.Contains(a.body, []byte(secret)) {
			b.t.Fatalf("%s: %d, %v: %s", path, a.status, err, a.body)
		}
		all.Write(a.body)
	}
	return all.String()
}

func TestHostileRequestsToTheHandler(t *testing.T) {
	b := newBench(t)
	was := b.all()
	warm(func(method, path string) { _, _ = b.send(b.request(method, path, b.mallory, []byte("{}"))) })
	before := series(b.metrics())
	var mu sync.Mutex
	seen, done := map[int]int{}, atomic.Int64{}
	var workers sync.WaitGroup
	for i := range uint64(4) {
		workers.Go(func() {
			f, mine := newForger(*seed*1000+i), map[int]int{}
			for done.Load() < int64(*inProcess) && !t.Failed() {
				raw := f.next()
				a, err := b.send(raw)
				if mine[a.status]++; errors.Is(err, errUnread) {
					continue
				}
				done.Add(1)
				if err == nil {
					err = judge(raw, a)
				}
				if err != nil {
					t.Errorf("seed %d: %v: %d %.500s, to\n%q", *seed, err, a.status, a.body, raw)
				}
			}
			mu.Lock()
			defer mu.Unlock()
			for status, n := range mine {
				seen[status] += n
			}
		})
	}
	workers.Wait()
	t.Logf("%d requests; by status (0: refused by net/http): %v", done.Load(), sorted(seen))
	b.mustBeCalm(was, before)
}

// mustBeCalm looks whether all is as it was behind an assault.
func (b *bench) mustBeCalm(was string, before map[string]bool) {
	t := b.t
	if now := b.all(); now != was {
		t.Errorf("bob's record is %s\nwas %s", now, was)
	}
	metrics := b.metrics()
	mustBeAsMany(t, before, series(metrics))
	if !bytes.Contains(metrics, []byte("historyd_http_panics_total 0\n")) {
		t.Error("there were panics")
	}
	for _, bad := range []string{marker, secret, "mallory"} {
		if bytes.Contains(metrics, []byte(bad)) {
			t.Errorf("%q is in the metrics", bad)
		}
	}
}

// begun are series that are there from the first event of their kind on: a kind is one of our words.
var begun = regexp.MustCompile(`^historyd_[a-z_]+\{((category|door|kind|mode|result)="[a-z_]+",?)+\}$`)

func mustBeAsMany(t testing.TB, before, after map[string]bool) {
	t.Helper()
	n := 0
	for name := range after {
		if n++; before[name] {
			n--
		} else if !begun.MatchString(name) {
			t.Errorf("a series that was not there: %s", name)
		}
	}
	if n > 60 {
		t.Errorf("%d series that were not there: %v", n, after)
	}
}

func sorted(seen map[int]int) string {
	var b strings.Builder
	for status := range 600 {
		if seen[status] > 0 {
			fmt.Fprintf(&b, "%d: %d  ", status, seen[status])
		}
	}
	return b.String()
}

func TestHostileRequestsOverTheWire(t *testing.T) {
	d := newTarget(t, map[string]any{"log": map[string]any{"level": "warn", "format": "json"}, "compaction": map[string]any{"keep_verbatim_turns": 4, "fold_batch": 2}})
	unharmed := d.bob.unharmed()
	put := strings.NewReplacer("HOST", d.addr, "MALLORY", d.mallory.token)
	warm(func(method, path string) { _, _ = d.mallory.try(method, path, []byte("{}")) })
	before := series(d.ann.do(200, "GET", "/metrics", nil))
	var mu sync.Mutex
	seen, done := map[int]int{}, atomic.Int64{}
	var workers sync.WaitGroup
	for i := range uint64(4) {
		workers.Go(func() {
			f, w, mine := newForger(*seed*1000+500+i), (*wire)(nil), map[int]int{}
			for done.Add(1) <= int64(*overWire) && !t.Failed() {
				raw := []byte(put.Replace(string(f.next())))
				if w == nil {
					w = d.dial()
				}
				var a answer
				var err error
				if w, a, err = d.exchange(w, raw, f.odds(4)); err == nil {
					err = judge(raw, a)
				}
				if mine[a.status]++; err != nil {
					t.Errorf("seed %d: %v: %d %.500s, to\n%q", *seed, err, a.status, a.body, raw)
				}
			}
			mu.Lock()
			defer mu.Unlock()
			for status, n := range mine {
				seen[status] += n
			}
		})
	}
	workers.Wait()
	t.Logf("%d requests; by status (0: no answer): %v", *overWire, sorted(seen))
	unharmed()
	mustBeAsMany(t, before, series(d.ann.do(200, "GET", "/metrics", nil)))
	if n := d.metric("historyd_http_panics_total"); n != 0 {
		t.Errorf("%v panics: %s", n, tail(d.Log()))
	}
	d.stop()
	if log := d.Log(); bytes.Contains(log, []byte(marker)) || bytes.Contains(log, []byte(secret)) || bytes.Contains(log, []byte(`"ERROR"`)) {
		t.Errorf("the log has errors, or what was said: %s", tail(log))
	}
	d.check()
}

// exchange sends a request and takes its answer, the last of a 100 and it. A request whose head was spoiled may be none
// that ends: then nothing comes, and the connection is given up. With another ahead of it, the daemon knows that nothing
// more comes when it begins with the request.
func (d *target) exchange(w *wire, raw []byte, ahead bool) (*wire, answer, error) {
	_ = w.conn.SetDeadline(time.Now().Add(patience))
	last := ahead || !complete(raw)
	if ahead {
		raw = fmt.Appendf(nil, "GET /v1/whoami HTTP/1.1\r\nHost: %s\r\nAuthorization: Bearer %s\r\n\r\n%s", d.addr, d.mallory.token, raw)
	}
	_, _ = w.conn.Write(raw)
	if last {
		if tcp, ok := w.conn.(*net.TCPConn); ok {
			_ = tcp.CloseWrite() // so that nobody waits for the rest
		}
	}
	if ahead {
		if a, err := w.next("GET"); err != nil || a.status != http.StatusOK {
			_ = w.conn.Close()
			return nil, a, fmt.Errorf("the request ahead: %d, %v", a.status, err)
		}
		raw = raw[bytes.Index(raw, []byte("\r\n\r\n"))+4:]
	}
	method, _, _ := bytes.Cut(raw, []byte(" "))
	a, err := w.next(string(method))
	if err == nil && a.status == 100 {
		a, err = w.next(string(method))
	}
	if a.last || err != nil || last {
		_ = w.conn.Close()
		w = nil
	}
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return w, a, err
}

// complete says whether a request is one, and no more and no less than that.
func complete(raw []byte) bool {
	in := bufio.NewReader(bytes.NewReader(raw))
	r, err := http.ReadRequest(in)
	if err != nil {
		return false
	}
	_, err = io.Copy(io.Discard, r.Body)
	return err == nil && in.Buffered() == 0
}

func FuzzRoutes(f *testing.F) {
	made := newForger(1)
	for range 200 {
		f.Add(made.next())
	}
	for _, path := range []string{"/v1/conversations/x/messages", "/v1/search?q=" + secret, "/v1/conversations/x/export?format=tar"} {
		f.Add([]byte("GET " + path + " HTTP/1.1\r\nHost: HOST\r\nAuthorization: Bearer MALLORY\r\n\r\n"))
	}
	b := newBench(f)
	n := 0
	f.Fuzz(func(t *testing.T, raw []byte) {
		if n++; n%1000 == 0 { // so that it stays quick
			_, _ = b.send(b.request("DELETE", "/v1/conversations", b.mallory, nil))
		}
		a, err := b.send(raw)
		if errors.Is(err, errUnread) {
			return
		}
		if err == nil {
			err = judge(raw, a)
		}
		if err != nil {
			t.Fatalf("%v: %d %.500s, to\n%q", err, a.status, a.body, raw)
		}
	})
}
