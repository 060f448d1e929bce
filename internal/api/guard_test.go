package api

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"historyd/internal/identity"
	"historyd/internal/projection"
)

// everyPath is each route once, and paths that are none.
func everyPath(d *daemon) []request {
	list := []request{
		{method: "GET", path: "/"}, {method: "GET", path: "/nowhere"}, {method: "OPTIONS", path: "/v1/conversations"},
		{method: "PUT", path: "/v1/whoami"}, {method: "FOO", path: "/healthz"}, {method: "GET", path: "/debug/pprof/"}, {method: "GET", path: "/health%7A"},
	}
	for path, item := range d.doc.Paths.Map() {
		for method := range item.Operations() {
			list = append(list, request{method: method, path: strings.ReplaceAll(path, "{c}", "x"), body: bodyFor(method)})
		}
	}
	return list
}

func TestOnlyOurHostsAreServed(t *testing.T) {
	d := newDaemon(t, projection.Options{}, func(o *Options) {
		o.AllowedHosts = []string{"History.example", "proxy.example:8443"}
	})
	_, port, _ := net.SplitHostPort(d.host)
	for _, tt := range []struct {
		host string
		ours bool
	}{
		{"127.0.0.1:" + port, true}, {"localhost:" + port, true}, {"[::1]:" + port, true},
		{"history.example", true}, {"HISTORY.example:" + port, true}, {"proxy.example:8443", true},
		{"history.example:1", false}, {"proxy.example", false}, {"proxy.example:" + port, false},
		{"127.0.0.1", false}, {"localhost", false}, {"[::1]", false}, {"127.0.0.1:80", false}, {"127.0.0.1:0" + port, false},
		{"localhost.:" + port, false}, {"127.0.0.1.:" + port, false}, {"127.1:" + port, false}, {"0.0.0.0:" + port, false},
		{"evil.example:" + port, false}, {"localhost.evil.example:" + port, false}, {"localhost:" + port + ":" + port, false},
		{"2130706433:" + port, false}, {"127.0.0.2:" + port, false}, {"[::ffff:127.0.0.1]:" + port, false}, {"[0:0:0:0:0:0:0:1]:" + port, false},
		{"a@localhost:" + port, false}, {"::1:" + port, false}, {":" + port, false}, {"history.example.evil", false},
	} {
		for _, r := range everyPath(d) {
			r.host, r.caller = tt.host, "ann"
			got := d.send(r)
			if refused := strings.Contains(got.body, `"forbidden_host"`) && got.status == 403; refused == tt.ours {
				t.Errorf("Host %s, %s %s: %d %s", tt.host, r.method, r.path, got.status, got.body)
			}
		}
	}
}

// raw sends bytes as they are and returns the response.
func raw(t *testing.T, network, address, text string) *http.Response {
	t.Helper()
	conn, err := net.Dial(network, address)
	must(t, err)
	t.Cleanup(func() { conn.Close() })
	_, err = conn.Write([]byte(text))
	must(t, err)
	res, err := http.ReadResponse(bufio.NewReader(conn), nil)
	must(t, err)
	t.Cleanup(func() { res.Body.Close() })
	return res
}

func TestOddRequestLinesAreRefused(t *testing.T) {
	d := newDaemon(t, projection.Options{})
	for _, tt := range []struct {
		name, text string
		status     int
	}{
		{"no host", "GET /healthz HTTP/1.0\r\n\r\n", 403},
		{"an empty host", "GET /healthz HTTP/1.1\r\nHost: \r\n\r\n", 403},
		{"an absolute form of another host", "GET http://evil.example/healthz HTTP/1.1\r\nHost: " + d.host + "\r\n\r\n", 403},
		{"an absolute form of ours", "GET http://" + d.host + "/healthz HTTP/1.1\r\nHost: evil.example\r\n\r\n", 200},
		{"options of all", "OPTIONS * HTTP/1.1\r\nHost: " + d.host + "\r\n\r\n", 401},
		{"connect", "CONNECT evil.example:443 HTTP/1.1\r\nHost: evil.example:443\r\n\r\n", 403},
	} {
		if res := raw(t, "tcp", d.host, tt.text); res.StatusCode != tt.status || res.Header.Get("X-Request-Id") == "" {
			t.Errorf("%s: %s, %v", tt.name, res.Status, res.Header)
		}
	}
}

func TestWebPagesAreRefused(t *testing.T) {
	d := newDaemon(t, projection.Options{}, func(o *Options) { o.AllowedHosts = []string{"history.example"} })
	_, port, _ := net.SplitHostPort(d.host)
	origins := map[string]bool{
		"": true, "http://" + d.host: true, "http://localhost:" + port: true, "http://[::1]:" + port: true,
		"https://history.example": true, "http://history.example:" + port: true,
		"null": false, "http://evil.example": false, "http://localhost": false, "http://localhost:1": false, "https://evil.example:" + port: false,
		"http://" + d.host + ".evil.example": false, "http://evil.example@" + d.host: false, "file://": false, d.host: false,
		"http://" + d.host + "/": false, "chrome-extension://" + d.host: false, "http://" + d.host + " http://evil.example": false,
	}
	sites := map[string]bool{"": true, "none": true, "same-origin": true, "same-site": false, "cross-site": false, "x": false}
	for origin, originOK := range origins {
		for site, siteOK := range sites {
			for _, r := range everyPath(d) {
				r.caller, r.header = "ann", http.Header{}
				if origin != "" {
					r.header.Set("Origin", origin)
				}
				if site != "" {
					r.header.Set("Sec-Fetch-Site", site)
				}
				got := d.send(r)
				if refused := got.status == 403; refused == (originOK && siteOK) {
					t.Errorf("Origin %q, Sec-Fetch-Site %q, %s %s: %d", origin, site, r.method, r.path, got.status)
				}
			}
		}
	}
	two := d.send(request{method: "GET", path: "/healthz", header: http.Header{"Origin": {"http://" + d.host, "http://evil.example"}}})
	want(t, two, 403, "forbidden_origin")
}

func TestATokenInTheURLIsRefused(t *testing.T) {
	d := newDaemon(t, projection.Options{})
	for _, query := range []string{"token=x", "access_token=x", "a=b&token", "%74oken=x", "Token=x", "a=%zz&token=x", "token=x;y", "a;token=x", "token=%zz"} {
		for _, path := range []string{"/v1/whoami", "/healthz", "/metrics", "/nowhere"} {
			want(t, d.get("ann", path+"?"+query), 400, "token_in_url")
		}
	}
	want(t, d.get("ann", "/v1/conversations/x/messages?limit=1;2"), 400, "invalid_parameter")
}

var requestID = regexp.MustCompile(`"request_id":"[^"]*"`)

func TestEveryRouteAsksWhoIsCalling(t *testing.T) {
	d := newDaemon(t, projection.Options{}, func(o *Options) { o.MetricsAuth = true })
	expired := d.addToken(people["ann"], time.Now().Add(time.Hour))
	revoked, id := d.revocable()
	must(t, d.registry.Reload())
	for _, token := range []string{expired, revoked} {
		d.tokens["x"] = token
		want(t, d.get("x", "/v1/whoami"), 200, "")
	}
	must(t, d.file.Revoke(id))
	must(t, d.registry.Reload())
	d.setTime(time.Now().Add(2 * time.Hour))
	open := map[string]bool{"/healthz": true, "/readyz": true, "/openapi.json": true}
	body := ""
	for name, values := range map[string][]string{
		"none": nil, "empty": {""}, "no token": {"Bearer"}, "bad": {"Bearer x"}, "unknown": {"Bearer hd_" + strings.Repeat("a", 50)},
		"expired": {"Bearer " + expired}, "revoked": {"Bearer " + revoked}, "basic": {"Basic " + d.tokens["ann"]},
		"bare": {d.tokens["ann"]}, "two": {"Bearer " + d.tokens["ann"], "Bearer " + d.tokens["bob"]}, "trailing": {"Bearer " + d.tokens["ann"] + " x"},
	} {
		for _, r := range everyPath(d) {
			if r.header = (http.Header{}); values != nil {
				r.header["Authorization"] = values
			}
			got := d.send(r)
			if open[r.path] {
				if got.status == 401 {
					t.Errorf("%s: %s %s is not open", name, r.method, r.path)
				}
				continue
			}
			this := requestID.ReplaceAllString(got.body, "")
			if body == "" {
				body = this
			}
			if got.status != 401 || this != body || got.header.Get("WWW-Authenticate") != "Bearer" {
				t.Errorf("%s: %s %s: %d %s", name, r.method, r.path, got.status, got.body)
			}
		}
	}
	if strings.Contains(body, "hd_") {
		t.Errorf("the body tells of a token: %s", body)
	}
}

func (d *daemon) revocable() (token, id string) {
	d.t.Helper()
	c, err := identity.NewCaller("mesh", "guest", "", "")
	must(d.t, err)
	token, id, err = d.file.Create(identity.NewToken{Caller: c})
	must(d.t, err)
	return token, id
}

func TestMetricsAreOpenUnlessToldOtherwise(t *testing.T) {
	d := newDaemon(t, projection.Options{})
	got := d.get("", "/metrics")
	if got.status != 200 || !strings.Contains(got.body, "historyd_http_requests_in_flight 1") {
		t.Errorf("got %d %s", got.status, got.body)
	}
	d = newDaemon(t, projection.Options{}, func(o *Options) { o.MetricsAuth = true })
	want(t, d.get("", "/metrics"), 401, "unauthenticated")
	want(t, d.get("ann", "/metrics"), 200, "")

	// What listens on another address is not open either.
	r := httptest.NewRequest("GET", "http://10.0.0.1:4478/metrics", nil)
	r = r.WithContext(context.WithValue(r.Context(), http.LocalAddrContextKey, &net.TCPAddr{IP: net.IPv4(10, 0, 0, 1), Port: 4478}))
	open := newDaemon(t, projection.Options{}, func(o *Options) { o.AllowedHosts = []string{"10.0.0.1"} })
	w := httptest.NewRecorder()
	open.handler.ServeHTTP(w, r)
	if w.Code != 401 {
		t.Errorf("on another address: %d", w.Code)
	}
}

func TestOneConnectionMayServeSeveralCallers(t *testing.T) {
	d := newDaemon(t, projection.Options{})
	conn, err := net.Dial("tcp", d.host)
	must(t, err)
	defer conn.Close()
	in := bufio.NewReader(conn)
	for who := range people {
		d.say(who, "default", "of "+who+" alone")
	}
	ask := func(who, path string) string {
		_, err := fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: %s\r\nAuthorization: bearer %s\r\n\r\n", path, d.host, d.tokens[who])
		must(t, err)
		res, err := http.ReadResponse(in, nil)
		must(t, err)
		defer res.Body.Close()
		body, err := io.ReadAll(res.Body)
		must(t, err)
		return string(body)
	}
	for i := range 40 {
		who := []string{"ann", "bob", "mesh-ann", "ann-work"}[i%4]
		p := people[who]
		want := fmt.Sprintf(`{"kind":%q,"id":%q,"permission_scope":%q,"workspace":%q}`, p[0], p[1], p[2], p[3])
		if got := ask(who, "/v1/whoami"); got != want {
			t.Fatalf("request %d as %s: %s, want %s", i, who, got, want)
		}
		for _, path := range []string{"/v1/history/replay", "/v1/history/messages", "/v1/history"} {
			if got := ask(who, path); strings.Count(got, " alone") != 1 || !strings.Contains(got, "of "+who+" alone") {
				t.Fatalf("%s as %s: %s", path, who, got)
			}
		}
	}
}

func TestAUnixSocketKnowsItsPeers(t *testing.T) {
	d := newDaemon(t, projection.Options{})
	c, err := identity.NewCaller("mesh", "peer", "", "")
	must(t, err)
	uid := uint32(4711)
	_, _, err = d.file.Create(identity.NewToken{Caller: c, UID: &uid})
	must(t, err)
	must(t, d.registry.Reload())
	path := filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", path)
	must(t, err)
	var peer atomic.Uint32
	srv := &http.Server{Handler: d.handler, ConnContext: func(ctx context.Context, _ net.Conn) context.Context { return WithPeer(ctx, peer.Load()) }}
	go func() { _ = srv.Serve(l) }()
	defer srv.Close()
	for _, tt := range []struct {
		name   string
		uid    uint32
		header string
		want   string
	}{
		{"the peer", uid, "", `"id":"peer"`},
		{"a token goes before the peer", uid, "Authorization: Bearer " + d.tokens["ann"] + "\r\n", `"id":"ann"`},
		{"a bad token does not fall back", uid, "Authorization: Bearer x\r\n", "unauthenticated"},
		{"no header overrides", 1, "X-Uid: 4711\r\nX-Forwarded-User: peer\r\n", "unauthenticated"},
		{"nobody", 65534, "", "unauthenticated"},
		{"no credentials", 1<<32 - 1, "", "unauthenticated"},
		{"any host will do here", uid, "", `"id":"peer"`},
		{"no page calls over a socket", uid, "Origin: http://x\r\n", "forbidden_origin"},
	} {
		peer.Store(tt.uid)
		res := raw(t, "unix", path, "GET /v1/whoami HTTP/1.1\r\nHost: whatever\r\n"+tt.header+"Connection: close\r\n\r\n")
		var b strings.Builder
		_, err := bufio.NewReader(res.Body).WriteTo(&b)
		must(t, err)
		if !strings.Contains(b.String(), tt.want) {
			t.Errorf("%s: %s", tt.name, b.String())
		}
	}
}

func TestACallersPlacesAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		places := make(chan struct{}, 1)
		r := httptest.NewRequest("GET", "/", nil)
		must(t, take(r, places, patience))
		began := time.Now()
		err := take(r, places, patience)
		if p := problemOf(err); p.code != "rate_limited" || p.header["Retry-After"] != "1" || time.Since(began) != patience {
			t.Errorf("after %s: %+v", time.Since(began), p)
		}
		time.AfterFunc(time.Second, func() { <-places })
		must(t, take(r, places, patience))
		ctx, cancel := context.WithCancel(context.Background())
		time.AfterFunc(time.Second, cancel)
		if err := take(r.WithContext(ctx), places, patience); err != context.Canceled {
			t.Errorf("a client that went away: %v", err)
		}
	})
}

// heldAppends has ann make some appends, which get no further than the engine until they are let go. It tells of each that
// gets there; leave returns when all are answered.
func (d *daemon) heldAppends(n int) (entered <-chan struct{}, leave func()) {
	in, hold := make(chan struct{}, n), make(chan struct{})
	slow := func(op string) error {
		if op == "append" {
			in <- struct{}{}
			<-hold
		}
		return nil
	}
	d.engine.fail.Store(&slow)
	var wg sync.WaitGroup
	for range n {
		wg.Go(func() { d.say("ann", "x", "hi") })
	}
	return in, func() {
		close(hold)
		wg.Wait()
	}
}

func TestConcurrencyIsBoundedForEachCaller(t *testing.T) {
	d := newDaemon(t, projection.Options{}, func(o *Options) { o.Limits.PerCallerConcurrency = 2 })
	entered, leave := d.heldAppends(3)
	<-entered
	<-entered
	want(t, d.get("bob", "/v1/whoami"), 200, "") // while ann's are all taken
	select {
	case <-entered:
		t.Error("a third request of the caller was let in")
	default:
	}
	leave()
}

func TestNoMoreThanSomeRequestsOfACallerWait(t *testing.T) {
	d := newDaemon(t, projection.Options{}, func(o *Options) { o.Limits.PerCallerConcurrency, o.Limits.PerCallerWaiting = 1, 2 })
	entered, leave := d.heldAppends(3)
	<-entered
	v, _ := d.handler.(*server).visitors.Load(d.caller("ann"))
	for v.(*visitor).waiting.Load() < 2 {
		runtime.Gosched() // until both are there
	}
	for range 3 {
		got := d.get("ann", "/v1/whoami")
		want(t, got, 429, "rate_limited")
		if s := got.header.Get("Retry-After"); s != "1" {
			t.Errorf("Retry-After: %s", s)
		}
	}
	if n := v.(*visitor).waiting.Load(); n != 2 {
		t.Errorf("%d wait still, want the two that did", n)
	}
	want(t, d.get("bob", "/v1/whoami"), 200, "")
	leave()
	want(t, d.get("ann", "/v1/whoami"), 200, "")
}

func TestTheRateIsBoundedForEachCaller(t *testing.T) {
	d := newDaemon(t, projection.Options{}, func(o *Options) { o.Limits.PerCallerRate = 0.1 })
	want(t, d.get("ann", "/v1/whoami"), 200, "")
	got := d.get("ann", "/v1/whoami")
	want(t, got, 429, "rate_limited")
	if s := got.header.Get("Retry-After"); s != "5" {
		t.Errorf("Retry-After: %s", s)
	}
	want(t, d.get("bob", "/v1/whoami"), 200, "")
	want(t, d.get("", "/healthz"), 200, "")
}

func TestRoutesAndMethods(t *testing.T) {
	d := newDaemon(t, projection.Options{})
	d.say("ann", "x", "hi")
	for _, tt := range []struct {
		method, path string
		status       int
		allow        string
	}{
		{"GET", "/", 404, ""}, {"GET", "/v1", 404, ""}, {"GET", "/v1/", 404, ""}, {"GET", "/v1/conversations/", 404, ""},
		{"GET", "/v1/conversations/x/", 404, ""}, {"GET", "/v1/conversations/x/nothing", 404, ""}, {"GET", "/V1/whoami", 404, ""},
		{"GET", "/v1/conversations/x/recall", 405, "POST"}, {"POST", "/v1/search", 405, "GET, HEAD"}, {"GET", "/v1/conversations/x/fork", 405, "POST"},
		{"DELETE", "/v1/history/rewind", 405, "POST"}, {"GET", "/v1/conversations/x/attachments", 404, ""}, {"GET", "/health%7A", 404, ""},
		{"GET", "/v1/convers%61tions", 404, ""}, {"GET", "//v1/whoami", 404, ""}, {"BREW", "/nowhere", 404, ""},
		{"POST", "/v1/whoami", 405, "GET, HEAD"}, {"OPTIONS", "/v1/conversations", 405, "DELETE, GET, HEAD"}, {"PATCH", "/v1/conversations/x", 405, "DELETE, GET, HEAD"},
		{"GET", "/v1/conversations/x/turns", 405, "POST"}, {"PUT", "/v1/history/replay", 405, "GET, HEAD, POST"}, {"POST", "/healthz", 405, "GET, HEAD"}, {"BREW", "/v1/history/turns", 405, "POST"},
		{"HEAD", "/v1/whoami", 200, ""}, {"HEAD", "/v1/conversations/x", 200, ""}, {"HEAD", "/v1/conversations/x/export", 200, ""}, {"HEAD", "/v1/history/replay", 200, ""}, {"HEAD", "/metrics", 200, ""},
	} {
		got := d.send(request{method: tt.method, path: tt.path, caller: "ann"})
		if got.status != tt.status || got.header.Get("Allow") != tt.allow {
			t.Errorf("%s %s: %d, Allow %q; want %d, %q", tt.method, tt.path, got.status, got.header.Get("Allow"), tt.status, tt.allow)
		}
		if tt.method == "HEAD" && got.body != "" {
			t.Errorf("HEAD %s has a body", tt.path)
		}
		if tt.status == 404 && got.problem(t).Detail != noRoute {
			t.Errorf("%s %s: %s", tt.method, tt.path, got.body)
		}
	}
	// A route that finds nothing says something else.
	if got := d.get("ann", "/v1/conversations/none").problem(t); got.Code != "not_found" || got.Detail == noRoute {
		t.Errorf("a conversation that is not there: %+v", got)
	}
}

func TestConversationNames(t *testing.T) {
	d := newDaemon(t, projection.Options{})
	for name, valid := range map[string]bool{
		"x": true, "a.b": true, "~": true, "-": true, "_": true, "%41": true, "a%2Eb": true, strings.Repeat("n", 128): true, "con": true,
		strings.Repeat("n", 129): false, "a%2Fb": false, "..": false, ".": false, ".a": false, "%2e%2e": false, "..%2f..%2fetc": false,
		"a%00b": false, "a b": false, "a%20b": false, "a+b": false, "%C3%A9": false, "e%CC%81": false, "%2541": false, "a%252Fb": false, "a%zzb": false, "": false, "a;b": false, "a:b": false, "a%5Cb": false,
	} {
		if name == "a b" || name == "a%zzb" {
			continue // no client can send them
		}
		for _, r := range []request{
			{method: "GET", path: "/messages"}, {method: "GET", path: "/replay"}, {method: "POST", path: "/turns"}, {method: "POST", path: "/import"}, {method: "GET", path: "/export?zzz=1"}, {method: "POST", path: "/replay"},
		} {
			r.path, r.caller = "/v1/conversations/"+name+r.path, "ann"
			got := d.send(r)
			if refused := got.status == 400 && got.problem(t).Code == "invalid_conversation"; refused == valid {
				t.Errorf("%s %s: %d %s", r.method, r.path, got.status, got.body)
			}
		}
	}
	d.say("ann", "A", "by its letter")
	if got := d.get("ann", "/v1/conversations/%41/messages"); !strings.Contains(got.body, "by its letter") {
		t.Errorf("a name that is escaped without need: %s", got.body)
	}
	d.say("ann", "default", "the default one")
	if a, b := d.get("ann", "/v1/history/messages"), d.get("ann", "/v1/conversations/default/messages"); a.body != b.body || !strings.Contains(a.body, "the default one") {
		t.Errorf("two ways to the default conversation:\n%s\n%s", a.body, b.body)
	}
}
