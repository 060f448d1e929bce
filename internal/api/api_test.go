package api

import (
	"bytes"
	"encoding/json/jsontext"
	"encoding/json/v2"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"historyd/internal/compaction"
	"historyd/internal/durable/crashfs"
	"historyd/internal/history"
	"historyd/internal/identity"
	"historyd/internal/pipeline"
	"historyd/internal/projection"
	"historyd/internal/recall"
	"historyd/internal/store"
)

// daemon is the handler on a real store and a real callers file, on a disk in
// memory, behind a real listener.
type daemon struct {
	t        testing.TB
	url      string
	host     string
	handler  http.Handler
	server   *httptest.Server
	disk     *crashfs.FS
	engine   *engine
	file     *identity.File
	registry *identity.Registry
	tokens   map[string]string
	reg      *prometheus.Registry
	logs     *lockedBuffer
	now      *atomic.Pointer[time.Time]
	doc      *document
}

type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

var minted atomic.Int64

// people are the callers of a daemon, by the name that tests use.
var people = map[string][4]string{
	"ann":      {"operator", "ann", "", "home"},
	"bob":      {"operator", "bob", "", ""},
	"mesh-ann": {"mesh", "ann", "", ""},
	"ann-work": {"operator", "ann", "work", ""},
}

func newDaemon(t testing.TB, policy projection.Options, change ...func(*Options)) *daemon {
	t.Helper()
	d := newHandler(t, policy, change...)
	d.server = httptest.NewUnstartedServer(d.handler)
	d.server.Config.DisableGeneralOptionsHandler = true
	d.server.Start()
	t.Cleanup(d.server.Close)
	d.url, d.host = d.server.URL, d.server.Listener.Addr().String()
	d.doc = openDocument(t)
	return d
}

// newHandler is a daemon that nobody listens for.
func newHandler(t testing.TB, policy projection.Options, change ...func(*Options)) *daemon {
	t.Helper()
	d := &daemon{t: t, disk: crashfs.New(), reg: prometheus.NewRegistry(), url: "http://localhost:4478", logs: &lockedBuffer{}, tokens: map[string]string{}, now: &atomic.Pointer[time.Time]{}}
	d.setTime(time.Now())
	d.file = identity.OpenFile(d.disk, "callers.json")
	for name, p := range people {
		d.tokens[name] = d.addToken(p, time.Time{})
	}
	var err error
	d.registry, err = identity.NewRegistry(identity.Options{File: d.file, Now: func() time.Time { return *d.now.Load() }})
	must(t, err)
	s, err := store.Open(store.Options{
		FS: d.disk, Registerer: d.reg,
		NewID: func(string) string { return fmt.Sprintf("01%024d", minted.Add(1)) },
	})
	must(t, err)
	t.Cleanup(func() { _ = s.Close() })
	d.engine = &engine{Store: s}
	p, err := projection.New(policy)
	must(t, err)
	compactor, err := compaction.New(compaction.Options{Registerer: d.reg})
	must(t, err)
	log := slog.New(slog.NewJSONHandler(d.logs, &slog.HandlerOptions{Level: slog.LevelDebug}))
	index, err := recall.NewIndex(recall.SearchOptions{FS: d.disk, Record: indexed{d.engine}, Registerer: d.reg})
	must(t, err)
	t.Cleanup(func() { _ = index.Close() })
	recaller, err := recall.New(recall.Options{Local: index, Registerer: d.reg})
	must(t, err)
	t.Cleanup(func() { _ = recaller.Close() })
	pipe, err := pipeline.New(pipeline.Options{Engine: d.engine, Policy: p, Compactor: compactor, Index: index, Recaller: recaller, Registerer: d.reg, Logger: log})
	must(t, err)
	o := Options{Pipeline: pipe, Callers: d.registry, Gatherer: d.reg, Registerer: d.reg, Logger: log}
	for _, c := range change {
		c(&o)
	}
	d.handler, err = New(o)
	must(t, err)
	return d
}

// reopen has the store opened anew with other options, before anything is in it.
func (d *daemon) reopen(o store.Options) {
	d.t.Helper()
	must(d.t, d.engine.Close())
	o.FS, o.Logger = d.disk, slog.New(slog.NewJSONHandler(d.logs, nil))
	o.NewID = func(string) string { return fmt.Sprintf("01%024d", minted.Add(1)) }
	s, err := store.Open(o)
	must(d.t, err)
	d.t.Cleanup(func() { _ = s.Close() })
	d.engine.Store = s
}

// tb is what is needed of a test, also of one of rapid.
type tb interface {
	Helper()
	Errorf(format string, args ...any)
	Fatalf(format string, args ...any)
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func (d *daemon) setTime(at time.Time) { d.now.Store(&at) }

func (d *daemon) addToken(p [4]string, expires time.Time) string {
	d.t.Helper()
	c, err := identity.NewCaller(p[0], p[1], p[2], p[3])
	must(d.t, err)
	token, _, err := d.file.Create(identity.NewToken{Caller: c, Expires: expires})
	must(d.t, err)
	return token
}

// A reply is a whole response.
type reply struct {
	status int
	header http.Header
	body   string
}

// A request is one that tests make; caller "" sends no token.
type request struct {
	method, path string
	caller       string
	body         string
	header       http.Header
	chunked      bool
	host         string
}

func (d *daemon) send(r request) reply {
	d.t.Helper()
	var body io.Reader
	if r.body != "" {
		body = strings.NewReader(r.body)
		if r.chunked {
			body = io.MultiReader(body)
		}
	}
	req, err := http.NewRequest(r.method, d.url+r.path, body)
	must(d.t, err)
	for name, values := range r.header {
		req.Header[http.CanonicalHeaderKey(name)] = values
	}
	if r.body != "" && req.Header["Content-Type"] == nil {
		req.Header.Set("Content-Type", "application/json")
	}
	if r.caller != "" {
		req.Header.Set("Authorization", "Bearer "+d.tokens[r.caller])
	}
	if r.host != "" {
		req.Host = r.host
	}
	res, err := d.server.Client().Do(req)
	if err != nil {
		d.t.Fatalf("%s %s: %v", r.method, r.path, err)
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		d.t.Fatalf("%s %s: %v", r.method, r.path, err)
	}
	got := reply{res.StatusCode, res.Header, string(text)}
	d.mustBeOurs(req, got)
	return got
}

// mustBeOurs holds a response to what is said of all of them.
func (d *daemon) mustBeOurs(req *http.Request, got reply) {
	d.t.Helper()
	what := req.Method + " " + req.URL.RequestURI()
	if got.header.Get("X-Request-Id") == "" || got.header.Get("Cache-Control") != "no-store" {
		d.t.Errorf("%s: headers %v", what, got.header)
	}
	for name := range got.header {
		if strings.HasPrefix(name, "Access-Control-") {
			d.t.Errorf("%s: header %s", what, name)
		}
	}
	if got.status >= 400 && req.Method != http.MethodHead && got.header.Get("Content-Type") != "application/json" {
		if p := got.problem(d.t); p.Status != got.status || p.RequestID != got.header.Get("X-Request-Id") || got.header.Get("Content-Type") != "application/problem+json" {
			d.t.Errorf("%s: status %d, problem %+v", what, got.status, p)
		}
	}
	d.doc.mustAllow(d.t, req, got)
}

func (r reply) problem(t tb) problemBody {
	t.Helper()
	var p problemBody
	if err := json.Unmarshal([]byte(r.body), &p, json.RejectUnknownMembers(true)); err != nil {
		t.Errorf("status %d: no problem but %q: %v", r.status, r.body, err)
	}
	return p
}

// as decodes the body strictly.
func as[T any](t tb, r reply) T {
	t.Helper()
	var v T
	if err := json.Unmarshal([]byte(r.body), &v); err != nil {
		t.Fatalf("status %d, body %s: %v", r.status, r.body, err)
	}
	return v
}

func (d *daemon) get(caller, path string) reply {
	d.t.Helper()
	return d.send(request{method: "GET", path: path, caller: caller})
}

func (d *daemon) post(caller, path, body string, header ...string) reply {
	d.t.Helper()
	r := request{method: "POST", path: path, caller: caller, body: body, header: http.Header{}}
	for i := 0; i < len(header); i += 2 {
		r.header.Add(header[i], header[i+1])
	}
	return d.send(r)
}

// say appends one user message and one answer.
func (d *daemon) say(caller, conversation, text string) appendReply {
	d.t.Helper()
	body := fmt.Sprintf(`{"messages":[{"role":"user","content":%s},{"role":"assistant","content":"noted"}]}`, history.AppendString(nil, text))
	got := d.post(caller, "/v1/conversations/"+conversation+"/turns", body)
	want(d.t, got, 201, "")
	return as[appendReply](d.t, got)
}

// want checks status and code; no code for a success.
func want(t tb, got reply, status int, code string) {
	t.Helper()
	has := ""
	if got.status >= 400 {
		has = got.problem(t).Code
	}
	if got.status != status || has != code {
		t.Errorf("got %d %s, want %d %s: %s", got.status, has, status, code, got.body)
	}
}

type pageBody struct {
	Object   string           `json:"object"`
	Data     []jsontext.Value `json:"data"`
	FirstSeq int64            `json:"first_seq"`
	LastSeq  int64            `json:"last_seq"`
	HasMore  bool             `json:"has_more"`
}

type replayBody struct {
	Conversation string           `json:"conversation"`
	Mode         string           `json:"mode"`
	Format       string           `json:"format"`
	Messages     []jsontext.Value `json:"messages"`
	Summary      *struct {
		Text       string `json:"text"`
		ThroughSeq int64  `json:"through_seq"`
	} `json:"summary"`
	ThroughSeq      int64          `json:"through_seq"`
	EstimatedTokens int64          `json:"estimated_tokens"`
	Report          jsontext.Value `json:"report"`
}

// replaysCounted is the metric of replays with that value of a label, in all formats.
func (d *daemon) replaysCounted(value string) (n float64) {
	d.t.Helper()
	families, err := d.reg.Gather()
	must(d.t, err)
	for _, f := range families {
		if f.GetName() != "historyd_replays_total" {
			continue
		}
		for _, m := range f.GetMetric() {
			for _, l := range m.GetLabel() {
				if l.GetValue() == value {
					n += m.GetCounter().GetValue()
				}
			}
		}
	}
	return n
}
