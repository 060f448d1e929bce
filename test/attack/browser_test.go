package attack

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// page is what an evil page tries.
//
//go:embed testdata/page.html
var page string

// A sight is what the page saw of one thing that it tried.
type sight struct {
	what, kind string
	status     int
	text       string
}

func (s *sight) UnmarshalJSON(b []byte) error {
	return json.Unmarshal(b, &[]any{&s.what, &s.kind, &s.status, &s.text})
}

// browser is where Chromium is, or the end of the test.
func browser(t *testing.T) string {
	t.Helper()
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	t.Skip("SKIPPED: there is no Chromium: apt-get install chromium")
	return ""
}

// evil serves the page, and takes what it saw.
type evil struct {
	*httptest.Server
	target, token string
	seen          chan []sight
}

func newEvil(t *testing.T, target, token string) *evil {
	e := &evil{target: target, token: token, seen: make(chan []sight, 1)}
	// The page holds the address of its own server, which is known before anything is served.
	e.Server = httptest.NewUnstartedServer(e)
	e.Start()
	t.Cleanup(e.Close)
	return e
}

func (e *evil) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path != "/seen" {
		w.Header().Set("Content-Type", "text/html")
		_, _ = io.WriteString(w, strings.NewReplacer("TARGET", e.target, "SOCKET", "ws"+strings.TrimPrefix(e.target, "http"), "TOKEN", e.token, "COLLECTOR", e.URL+"/seen").Replace(page))
		return
	}
	var seen []sight
	if err := json.NewDecoder(r.Body).Decode(&seen); err == nil {
		e.seen <- seen
	}
}

// visit opens an address in a new browser, to which names mean what the rules say, and returns what the page there saw.
func (e *evil) visit(t *testing.T, address, rules string) []sight {
	t.Helper()
	dir := t.TempDir()
	cmd := exec.Command(browser(t), "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking", "--disable-component-update",
		"--disable-sync", "--disable-dev-shm-usage", "--user-data-dir="+dir, "--host-resolver-rules="+rules, "--remote-debugging-port=0", address)
	cmd.Env = append(os.Environ(), "HOME="+dir)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	var said strings.Builder
	cmd.Stderr = &said
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
		_ = cmd.Wait()
	}()
	select {
	case seen := <-e.seen:
		return seen
	case <-time.After(2 * patience):
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
		_ = cmd.Wait()
		t.Fatalf("the page does not tell what it saw: %s", said.String())
		return nil
	}
}

// mustBeBlind holds that a page saw nothing but refusals.
func mustBeBlind(t *testing.T, seen []sight) {
	t.Helper()
	if len(seen) < 100 {
		t.Errorf("the page tried no more than %d things", len(seen))
	}
	for _, s := range seen {
		bad := s.status != 0 && s.status != http.StatusForbidden
		for _, word := range []string{secret, "mallory", `"status"`, "openapi", "historyd_", `"messages"`} {
			bad = bad || strings.Contains(s.text, word) && !strings.Contains(s.text, `"forbidden_`)
		}
		if bad {
			t.Errorf("a page saw: %+v", s)
		}
	}
}

// refusals is how often a page was refused with that code.
func (d *target) refusals(code string) float64 {
	return d.metric(`historyd_http_errors_total{code="` + code + `"}`)
}

func TestAPageInABrowserSeesAndChangesNothing(t *testing.T) {
	browser(t)
	d := newTarget(t, nil)
	d.mallory.do(201, "POST", "/v1/conversations/x/turns", said(secret))
	unharmed, unchanged := d.bob.unharmed(), d.mallory.unharmed()
	_, port, _ := strings.Cut(d.addr, ":")
	for _, name := range []string{"127.0.0.1", "localhost"} {
		e := newEvil(t, "http://"+name+":"+port, d.mallory.token)
		_, own, _ := strings.Cut(strings.TrimPrefix(e.URL, "http://"), ":")
		before := d.refusals("forbidden_origin")
		mustBeBlind(t, e.visit(t, "http://evil.example:"+own+"/", "MAP evil.example 127.0.0.1"))
		if n := d.refusals("forbidden_origin") - before; n < 50 {
			t.Errorf("no more than %v requests of the page came here", n)
		}
	}
	unharmed()
	unchanged()
}

// TestAPageWhoseNameIsReboundSeesAndChangesNothing has the name of the page come to mean the daemon: to the browser they
// are of one origin then. In place of a name server there is a door at the daemon's port of another loopback address, which
// opens to the page first, and to the daemon from then on.
func TestAPageWhoseNameIsReboundSeesAndChangesNothing(t *testing.T) {
	browser(t)
	d := newTarget(t, nil)
	d.mallory.do(201, "POST", "/v1/conversations/x/turns", said(secret))
	unharmed, unchanged := d.bob.unharmed(), d.mallory.unharmed()
	_, port, _ := strings.Cut(d.addr, ":")
	e := newEvil(t, "http://evil.example:"+port, d.mallory.token)
	door, err := net.Listen("tcp", "127.0.0.2:"+port)
	if err != nil {
		t.Skipf("SKIPPED: no second loopback address: %v", err)
	}
	defer door.Close()
	var served atomic.Bool
	go func() {
		for {
			conn, err := door.Accept()
			if err != nil {
				return
			}
			go pass(conn, func() string {
				if served.CompareAndSwap(false, true) {
					return strings.TrimPrefix(e.URL, "http://")
				}
				return d.addr
			})
		}
	}()
	e.Config.SetKeepAlivesEnabled(false) // each request comes to the door anew
	before := d.refusals("forbidden_host")
	seen := e.visit(t, fmt.Sprintf("http://evil.example:%s/", port), "MAP evil.example 127.0.0.2")
	mustBeBlind(t, seen)
	if n := d.refusals("forbidden_host") - before; n < 50 {
		t.Errorf("no more than %v requests of the page came here", n)
	}
	unharmed()
	unchanged()
}

// pass joins a connection to an address, which is chosen when the first byte comes: a browser opens more than it uses.
func pass(conn net.Conn, choose func() string) {
	defer conn.Close()
	first := make([]byte, 4096)
	n, err := conn.Read(first)
	if err != nil {
		return
	}
	other, err := net.Dial("tcp", choose())
	if err != nil {
		return
	}
	defer other.Close()
	if _, err := other.Write(first[:n]); err != nil {
		return
	}
	var both sync.WaitGroup
	for _, way := range [][2]net.Conn{{conn, other}, {other, conn}} {
		both.Go(func() {
			_, _ = io.Copy(way[0], way[1])
			if tcp, ok := way[0].(*net.TCPConn); ok {
				_ = tcp.CloseWrite()
			}
		})
	}
	both.Wait()
}

// A page that a naive server does not keep out proves that the others were kept out by the daemon, and not by the browser.
func TestThePageSeesAndChangesANaiveServer(t *testing.T) {
	browser(t)
	var mu sync.Mutex
	written := map[string]int{}
	naive := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Access-Control-Allow-Origin", "*")
		w.Header().Set("Access-Control-Allow-Headers", "*, Authorization")
		w.Header().Set("Access-Control-Allow-Methods", "*")
		b, _ := io.ReadAll(r.Body)
		if r.Method != "OPTIONS" && (r.Method != "POST" || strings.Contains(string(b), "by a page") || strings.Contains(string(b), "by+a+page")) {
			kind, _, _ := strings.Cut(r.Header.Get("Content-Type"), ";")
			mu.Lock()
			written[strings.TrimSpace(r.Method+" "+kind)]++
			mu.Unlock()
		}
		_, _ = io.WriteString(w, secret)
	}))
	defer naive.Close()
	e := newEvil(t, naive.URL, "hd_x")
	_, own, _ := strings.Cut(strings.TrimPrefix(e.URL, "http://"), ":")
	read := map[string]bool{}
	for _, s := range e.visit(t, "http://evil.example:"+own+"/", "MAP evil.example 127.0.0.1") {
		if s.text == secret {
			read[s.what] = true
		}
	}
	mu.Lock()
	defer mu.Unlock()
	for _, way := range []string{"GET cors", "GET with a token", "POST with a token application/json"} {
		if !read[way] {
			t.Errorf("the page did not read by %s: %v", way, read)
		}
	}
	for _, way := range []string{"POST text/plain", "POST application/x-www-form-urlencoded", "POST multipart/form-data", "POST application/json", "DELETE", "PUT"} {
		if written[way] == 0 {
			t.Errorf("the page did not write by %s: %v", way, written)
		}
	}
}
