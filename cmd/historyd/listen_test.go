package main

import (
	"bufio"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"io"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// serveOn opens the endpoints of the settings and answers "hello" there until
// the test ends.
func serveOn(t *testing.T, s settings) []endpoint {
	t.Helper()
	endpoints, err := openEndpoints(t.Context(), &s, nil)
	if err != nil {
		t.Fatal(err)
	}
	d := &daemon{settings: s, log: slog.New(slog.DiscardHandler)}
	server := d.newServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, "hello") }))
	var running sync.WaitGroup
	for _, e := range endpoints {
		running.Go(func() { _ = server.Serve(e) })
	}
	t.Cleanup(func() {
		_ = server.Close()
		running.Wait()
	})
	return endpoints
}

func onPort0() settings {
	s := settings{Config: Default()}
	s.Listen.TCP = "127.0.0.1:0"
	return s
}

// exchange sends one request on a connection that stays open, and returns the
// status line, or an error.
func exchange(conn net.Conn, request string) (string, error) {
	if err := conn.SetDeadline(time.Now().Add(longEnough)); err != nil {
		return "", err
	}
	if _, err := io.WriteString(conn, request); err != nil {
		return "", err
	}
	r := bufio.NewReader(conn)
	resp, err := http.ReadResponse(r, nil)
	if err != nil {
		return "", err
	}
	_, err = io.Copy(io.Discard, resp.Body)
	return resp.Status, errors.Join(err, resp.Body.Close())
}

const hello = "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"

func dial(t *testing.T, e endpoint) net.Conn {
	t.Helper()
	conn, err := net.Dial(e.network, e.address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// mustAnswer sees that somebody serves at an endpoint.
func mustAnswer(t *testing.T, e endpoint) {
	t.Helper()
	host := "localhost"
	if _, port, err := net.SplitHostPort(e.address); err == nil {
		host += ":" + port
	}
	if got, err := exchange(dial(t, e), "GET /healthz HTTP/1.1\r\nHost: "+host+"\r\n\r\n"); err != nil || got != "200 OK" {
		t.Errorf("%s: healthz: got %q, %v", e.url(), got, err)
	}
}

func TestIdleConnectionsGiveWay(t *testing.T) {
	s := onPort0()
	s.Limits.Connections = 3
	e := serveOn(t, s)[0]
	conns := make([]net.Conn, 5)
	for i := range conns {
		conns[i] = dial(t, e)
		if got, err := exchange(conns[i], hello); err != nil || got != "200 OK" {
			t.Fatalf("connection %d: got %q, %v", i, got, err)
		}
	}
	// Which of them is for TestTheLongestIdleConnectionGivesWay: a server says
	// that a connection is idle only after its client has the answer.
	gone := 0
	for i, conn := range conns {
		if got, err := exchange(conn, hello); err != nil {
			gone++
		} else if got != "200 OK" {
			t.Errorf("connection %d: got %q", i, got)
		}
	}
	if gone != 2 {
		t.Errorf("%d of 5 connections are gone with 3 places, want 2", gone)
	}
}

func TestABusyConnectionKeepsItsPlace(t *testing.T) {
	s := onPort0()
	s.Limits.Connections = 1
	e := serveOn(t, s)[0]
	busy := dial(t, e)
	if _, err := io.WriteString(busy, "GET / HTTP/1.1\r\n"); err != nil { // and no more
		t.Fatal(err)
	}
	waiting := dial(t, e)
	if _, err := io.WriteString(waiting, hello); err != nil {
		t.Fatal(err)
	}
	if got, err := exchange(busy, "Host: localhost\r\nConnection: close\r\n\r\n"); err != nil || got != "200 OK" {
		t.Errorf("the busy one: got %q, %v", got, err)
	}
	// Its place is free now.
	if got, err := exchange(waiting, ""); err != nil || got != "200 OK" {
		t.Errorf("the waiting one: got %q, %v", got, err)
	}
}

func TestAConnectionThatTurnsIdleGivesWayToOneThatWaits(t *testing.T) {
	s := onPort0()
	s.Limits.Connections = 1
	e := serveOn(t, s)[0]
	busy := dial(t, e)
	if _, err := io.WriteString(busy, "GET / HTTP/1.1\r\n"); err != nil { // and no more
		t.Fatal(err)
	}
	waiting := dial(t, e)
	if got, err := exchange(busy, "Host: localhost\r\n\r\n"); err != nil || got != "200 OK" {
		t.Errorf("the busy one: got %q, %v", got, err)
	}
	if got, err := exchange(waiting, hello); err != nil || got != "200 OK" {
		t.Errorf("the waiting one: got %q, %v", got, err)
	}
}

func TestHeadersAreBounded(t *testing.T) {
	e := serveOn(t, onPort0())[0]
	for _, tt := range []struct {
		bytes int
		want  string
	}{
		{15 << 10, "200 OK"},
		{17 << 10, "431 Request Header Fields Too Large"},
	} {
		request := "GET / HTTP/1.1\r\nHost: localhost\r\nX-Long: " + strings.Repeat("x", tt.bytes) + "\r\n\r\n"
		// The refusal is sent on a connection that is reset after it.
		if got, err := exchange(dial(t, e), request); got != tt.want {
			t.Errorf("a header of %d bytes: got %q, %v, want %q", tt.bytes, got, err, tt.want)
		}
	}
}

// certificates writes a certificate for localhost, which is also its own
// authority, and its key.
func certificates(t *testing.T) (cert, key string) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "localhost"}, DNSNames: []string{"localhost"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, private.Public(), private)
	if err != nil {
		t.Fatal(err)
	}
	secret, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	cert, key = filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	for name, block := range map[string]*pem.Block{
		cert: {Type: "CERTIFICATE", Bytes: der}, key: {Type: "PRIVATE KEY", Bytes: secret},
	} {
		if err := os.WriteFile(name, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return cert, key
}

func TestTLSMayListenAnywhereAndAsksForACertificate(t *testing.T) {
	cert, key := certificates(t)
	s := onPort0()
	s.Listen.TCP = "0.0.0.0:0"
	s.TLS.Cert, s.TLS.Key, s.TLS.ClientCA = cert, key, cert
	e := serveOn(t, s)[0]
	if !strings.HasPrefix(e.url(), "https://") {
		t.Errorf("the address is %s", e.url())
	}
	pair, err := tls.LoadX509KeyPair(cert, key)
	if err != nil {
		t.Fatal(err)
	}
	_, port, _ := net.SplitHostPort(e.address)
	for _, tt := range []struct {
		name  string
		certs []tls.Certificate
		ok    bool
	}{{"without a certificate", nil, false}, {"with one", []tls.Certificate{pair}, true}} {
		conn, err := tls.Dial("tcp", "127.0.0.1:"+port, &tls.Config{InsecureSkipVerify: true, Certificates: tt.certs})
		if err != nil {
			t.Fatal(err)
		}
		got, err := exchange(conn, hello)
		if ok := err == nil && got == "200 OK"; ok != tt.ok {
			t.Errorf("%s: got %q, %v, want ok %v", tt.name, got, err, tt.ok)
		}
		_ = conn.Close()
	}
}

func TestNamesAreLookedUpBeforeTheyAreListenedOn(t *testing.T) {
	for _, tt := range []struct {
		address string
		ok      bool
	}{
		{"localhost:0", true},
		{"127.0.0.2:0", true},
		{"[::ffff:127.0.0.1]:0", true},
		{"0.0.0.0:0", false},
		{"[::]:0", false},
		{"192.0.2.1:0", false},
		{"no-such-name.invalid:0", false},
	} {
		l, err := listenTCP(t.Context(), tt.address, false)
		if (err == nil) != tt.ok {
			t.Errorf("%s: got %v, want ok %v", tt.address, err, tt.ok)
		}
		if err != nil {
			continue
		}
		if ip := l.Addr().(*net.TCPAddr).IP; !ip.IsLoopback() {
			t.Errorf("%s listens on %v", tt.address, ip)
		}
		_ = l.Close()
	}
}

// The sockets of a unit are served instead of the configured ones.
func TestInheritedSocketsAreServed(t *testing.T) {
	dir := socketDir(t)
	tcp, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	unix, err := net.Listen("unix", filepath.Join(dir, "s"))
	if err != nil {
		t.Fatal(err)
	}
	debug, err := net.Listen("unix", filepath.Join(dir, "debug"))
	if err != nil {
		t.Fatal(err)
	}
	program, err := exec.LookPath("historyd")
	if err != nil {
		t.Fatal(err)
	}
	// Only the shell knows the process id that systemd would have written down.
	cmd := exec.Command("sh", "-c", `LISTEN_PID=$$ LISTEN_FDS=3 LISTEN_FDNAMES=api:debug:historyd.socket exec "$0" "$@"`, program, "serve",
		"--data-dir", filepath.Join(dir, "data"), "--listen", "127.0.0.1:1", "--bootstrap-operator", "alice")
	for _, l := range []net.Listener{tcp, debug, unix} {
		f, err := l.(interface{ File() (*os.File, error) }).File()
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		cmd.ExtraFiles = append(cmd.ExtraFiles, f)
	}
	stdout, stderr := newBuffer(), newBuffer()
	cmd.Stdout, cmd.Stderr = stdout, stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		_ = cmd.Wait()
		close(ended)
	}()
	defer func() {
		_ = cmd.Process.Kill()
		<-ended
	}()
	for _, l := range []net.Listener{tcp, unix} {
		e := endpoint{network: l.Addr().Network(), address: l.Addr().String()}
		if stdout.await("^historyd listens on "+e.url()+"$", ended) == nil {
			t.Fatalf("it doesn't say that it listens on %s: %s%s", e.url(), stdout, stderr)
		}
		mustAnswer(t, e)
	}
	if got := strings.Count(stdout.String(), "historyd listens on"); got != 2 {
		t.Errorf("it listens on %d addresses, want the 2 inherited: %s", got, stdout)
	}
	profiles := endpoint{network: "unix", address: debug.Addr().String()}
	for path, want := range map[string]string{"/debug/pprof/cmdline": "200 OK", "/healthz": "404 Not Found"} {
		if got, err := exchange(dial(t, profiles), "GET "+path+" HTTP/1.1\r\nHost: localhost\r\n\r\n"); err != nil || got != want {
			t.Errorf("the socket called debug: %s: got %q, %v, want %s", path, got, err, want)
		}
	}
	if stderr.await(`have no effect.*"?keys"?[=:]"?listen.tcp"?`, ended) == nil {
		t.Errorf("the log does not say that --listen has no effect: %s", stderr)
	}
}

func TestWhatIsInheritedMustBeListeningSockets(t *testing.T) {
	program, err := exec.LookPath("historyd")
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct{ names, want string }{
		{"api:api", "inherited sockets: api is no listening stream socket"},
		{"debug:debug", "inherited sockets: debug is no listening stream socket"},
	} {
		cmd := exec.Command("sh", "-c", `LISTEN_PID=$$ LISTEN_FDS=2 LISTEN_FDNAMES=`+tt.names+` exec "$0" "$@"`, program, "serve",
			"--data-dir", filepath.Join(t.TempDir(), "data"), "--bootstrap-operator", "alice")
		r, w, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		cmd.ExtraFiles = []*os.File{r, w}
		out, err := cmd.CombinedOutput()
		_ = errors.Join(r.Close(), w.Close())
		if err == nil || !strings.Contains(string(out), tt.want) {
			t.Errorf("pipes called %s: got %v, want %q: %s", tt.names, err, tt.want, out)
		}
	}
}

func TestProfilesAreNotForBrowsers(t *testing.T) {
	for _, tt := range []struct {
		host, origin string
		want         int
	}{
		{"localhost:6060", "", http.StatusOK},
		{"127.0.0.1:6060", "", http.StatusOK},
		{"[::1]:6060", "", http.StatusOK},
		{"localhost", "", http.StatusOK},
		{"rebound.example:6060", "", http.StatusForbidden},
		{"localhost.example", "", http.StatusForbidden},
		{"192.0.2.1:6060", "", http.StatusForbidden},
		{"localhost:6060", "http://localhost:6060", http.StatusForbidden},
	} {
		r := httptest.NewRequest(http.MethodGet, "http://"+tt.host+"/debug/pprof/cmdline", nil)
		if tt.origin != "" {
			r.Header.Set("Origin", tt.origin)
		}
		w := httptest.NewRecorder()
		newDebugServer().Handler.ServeHTTP(w, r)
		if w.Code != tt.want {
			t.Errorf("Host %s, Origin %q: got %d, want %d", tt.host, tt.origin, w.Code, tt.want)
		}
	}
}

// Whatever the configuration was checked for: a name may mean another address by now, and systemd opens what its unit says.
func TestProfilesAreServedOnTheLoopbackAlone(t *testing.T) {
	var s settings
	s.Debug.Listen = "0.0.0.0:0"
	if l, err := listenDebug(t.Context(), &s, nil); !errors.Is(err, errNotLoopback) {
		t.Errorf("%s: got %v, %v, want it refused", s.Debug.Listen, l, err)
	}
	open, err := net.Listen("tcp", "0.0.0.0:0")
	if err != nil {
		t.Fatal(err)
	}
	defer open.Close()
	if l, err := listenDebug(t.Context(), &settings{}, open); err == nil {
		t.Errorf("inherited: got %v, want it refused", l.Addr())
	}
	if l, err := listenDebug(t.Context(), &settings{}, nil); l != nil || err != nil {
		t.Errorf("without being told to listen: got %v, %v, want neither", l, err)
	}
}

func TestAWordForTheShellIsQuoted(t *testing.T) {
	for _, text := range []string{"", "plain", "/a/b-c_d.e:f@g", "two words", "it's", `a"b$c` + "`d`\\e", "a\nb", "*", "~", "é"} {
		out, err := exec.Command("sh", "-c", "printf %s "+quote(text)).Output()
		if err != nil || string(out) != text {
			t.Errorf("%q as %s becomes %q, %v", text, quote(text), out, err)
		}
	}
	if got, want := quote("/var/lib/historyd"), "/var/lib/historyd"; got != want {
		t.Errorf("got %s, want %s without quotes", got, want)
	}
}
