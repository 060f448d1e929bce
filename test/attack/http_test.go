package attack

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"testing"
)

// A breach is a request that HTTP does not know, or that two readers would read differently.
type breach struct {
	name   string
	text   string // HOST, MALLORY and BOB are replaced
	status []int  // of the responses, in order
	closed bool   // the connection is closed behind them
}

// hidden is a request that would be bob's, if anybody took it for one.
const hidden = "POST /v1/conversations/smuggled/turns HTTP/1.1\r\nHost: HOST\r\nAuthorization: Bearer BOB\r\nContent-Type: application/json\r\nContent-Length: 45\r\n\r\n" + turn

// head is the beginning of an append of mallory's.
const head = "POST /v1/conversations/x/turns HTTP/1.1\r\nHost: HOST\r\nAuthorization: Bearer MALLORY\r\nContent-Type: application/json\r\n"

// ask is a request of mallory's that is in order, but for what is behind it.
const ask = "GET /v1/whoami HTTP/1.1\r\nHost: HOST\r\nAuthorization: Bearer MALLORY\r\n"

const turn = `{"messages":[{"role":"user","content":"hi"}]}`

const chunked = "2d\r\n" + turn + "\r\n0\r\n"

// framing is about where a request ends.
func framing() []breach {
	return []breach{
		{"two lengths that differ", head + "Content-Length: 45\r\nContent-Length: 3\r\n\r\n" + turn + hidden, []int{400}, true},
		{"two lengths in one line", head + "Content-Length: 45, 3\r\n\r\n" + turn + hidden, []int{400}, true},
		{"a length with a sign", head + "Content-Length: +45\r\n\r\n" + turn + hidden, []int{400}, true},
		{"a length below nothing", head + "Content-Length: -1\r\n\r\n" + turn + hidden, []int{400}, true},
		{"a length in hexadecimal", head + "Content-Length: 0x2d\r\n\r\n" + turn + hidden, []int{400}, true},
		{"a length with a point", head + "Content-Length: 45.0\r\n\r\n" + turn + hidden, []int{400}, true},
		{"a length that is no number", head + "Content-Length: zqmark\r\n\r\n" + turn + hidden, []int{400}, true},
		{"a length past all numbers", head + "Content-Length: 99999999999999999999\r\n\r\n" + turn + hidden, []int{400}, true},
		{"an empty length", head + "Content-Length: \r\n\r\n" + hidden, []int{400}, true},
		{"a space before the colon of a length", head + "Content-Length : 45\r\n\r\n" + turn + hidden, []int{400}, true},
		{"a space before the colon of an encoding", head + "Transfer-Encoding : chunked\r\n\r\n" + chunked + "\r\n" + hidden, []int{400}, true},
		{"a length and chunks", head + "Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n" + chunked + "\r\n" + hidden, []int{201}, true},
		{"chunks and a length", head + "Transfer-Encoding: chunked\r\nContent-Length: 4\r\n\r\n" + chunked + "\r\n" + hidden, []int{201}, true},
		{"chunks in HTTP/1.0", strings.Replace(head, "HTTP/1.1", "HTTP/1.0", 1) + "Connection: keep-alive\r\nContent-Length: 45\r\nTransfer-Encoding: chunked\r\n\r\n" + turn + hidden, []int{201}, true},
		{"an encoding that is none of ours", head + "Transfer-Encoding: gzip\r\n\r\n" + hidden, []int{501}, true},
		{"two encodings", head + "Transfer-Encoding: gzip, chunked\r\n\r\n" + chunked + "\r\n" + hidden, []int{501}, true},
		{"two lines of encodings", head + "Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n\r\n" + chunked + "\r\n" + hidden, []int{501}, true},
		{"chunked twice", head + "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n" + chunked + "\r\n" + hidden, []int{501}, true},
		{"an encoding like chunked", head + "Transfer-Encoding: xchunked\r\n\r\n" + chunked + "\r\n" + hidden, []int{501}, true},
		{"an encoding with a tab", head + "Transfer-Encoding:\x0bchunked\r\n\r\n" + chunked + "\r\n" + hidden, []int{400}, true},
		{"an encoding in quotes", head + "Transfer-Encoding: \"chunked\"\r\n\r\n" + chunked + "\r\n" + hidden, []int{501}, true},
		{"an empty encoding", head + "Transfer-Encoding:\r\nContent-Length: 45\r\n\r\n" + turn + hidden, []int{501}, true},
		{"a chunk with an extension", head + "Transfer-Encoding: chunked\r\n\r\n2d;a=\"b\"\r\n" + turn + "\r\n0\r\n\r\n" + hidden, []int{201}, true},
		{"a chunk of no size", head + "Transfer-Encoding: chunked\r\n\r\nzqmark\r\n" + turn + hidden, []int{400}, true},
		{"a chunk of a size with a sign", head + "Transfer-Encoding: chunked\r\n\r\n+2d\r\n" + turn + "\r\n0\r\n\r\n" + hidden, []int{400}, true},
		{"a chunk of a size with 0x", head + "Transfer-Encoding: chunked\r\n\r\n0x2d\r\n" + turn + "\r\n0\r\n\r\n" + hidden, []int{400}, true},
		{"a chunk of a size past all numbers", head + "Transfer-Encoding: chunked\r\n\r\nffffffffffffffffff\r\n" + turn + hidden, []int{400}, true},
		{"a chunk longer than it says", head + "Transfer-Encoding: chunked\r\n\r\n1\r\n" + turn + "\r\n0\r\n\r\n" + hidden, []int{400}, true},
		{"a chunk that ends in a bare line feed", head + "Transfer-Encoding: chunked\r\n\r\n2d\r\n" + turn + "\n0\r\n\r\n" + hidden, []int{400}, true},
		{"an extension with a bare line feed", head + "Transfer-Encoding: chunked\r\n\r\n2d;\n" + turn + "\r\n0\r\n\r\n" + hidden, []int{400}, true},
		{"an extension of 100 kB", head + "Transfer-Encoding: chunked\r\n\r\n2d;" + strings.Repeat("x", 100_000) + "\r\n" + turn + "\r\n0\r\n\r\n", []int{400}, true},
		{"a trailer with a token", head + "Trailer: Authorization\r\nTransfer-Encoding: chunked\r\n\r\n" + chunked + "Authorization: Bearer BOB\r\n\r\n" + hidden, []int{201}, true},
		{"a trailer that is no header", head + "Transfer-Encoding: chunked\r\n\r\n" + chunked + "zqmark\r\n\r\n" + hidden, []int{400}, true},
		{"a body of a GET", ask + "Content-Length: LENGTH\r\n\r\n" + hidden, []int{200}, false},
		{"a body of a refusal", strings.Replace(head, "Bearer MALLORY", "Bearer hd_none", 1) + "Content-Length: LENGTH\r\n\r\n" + hidden, []int{401}, false},
		{"a body of another type", strings.Replace(head, "application/json", "text/plain", 1) + "Content-Length: LENGTH\r\n\r\n" + hidden, []int{415}, false},
		{"a body of what is no route", strings.Replace(head, "/turns", "/nothing", 1) + "Content-Length: LENGTH\r\n\r\n" + hidden, []int{404}, false},
	}
}

// manners is about the rest of HTTP.
func manners() []breach {
	return []breach{
		{"HTTP/0.9", "GET /v1/whoami\r\n", []int{400}, true},
		{"HTTP/0.9 with a version", "GET /v1/whoami HTTP/0.9\r\n\r\n", []int{505}, true},
		{"HTTP/2 by its preface", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", []int{403}, true},
		{"HTTP/2 by an upgrade", ask + "Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAARAAAAAAAIAAAAA\r\n\r\n", []int{200}, false},
		{"a web socket", ask + "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n", []int{200}, false},
		{"a version of two digits", "GET /v1/whoami HTTP/1.10\r\nHost: HOST\r\n\r\n", []int{400}, true},
		{"another protocol", "GET /v1/whoami HTCPCP/1.0\r\nHost: HOST\r\n\r\n", []int{400}, true},
		{"a hand-shake of TLS", "\x16\x03\x01\x00\xa5\x01\x00\x00\xa1\x03\x03" + strings.Repeat("z", 40) + "\r\n\r\n", []int{400}, true},
		{"two spaces in the first line", "GET  /v1/whoami HTTP/1.1\r\nHost: HOST\r\n\r\n", []int{400}, true},
		{"a tab in the first line", "GET\t/v1/whoami\tHTTP/1.1\r\nHost: HOST\r\n\r\n", []int{400}, true},
		{"a space in the path", "GET /v1/who ami HTTP/1.1\r\nHost: HOST\r\n\r\n", []int{400}, true},
		{"a method that is no token", "G@T /v1/whoami HTTP/1.1\r\nHost: HOST\r\n\r\n", []int{400}, true},
		{"a NUL in the path", "GET /v1/\x00whoami HTTP/1.1\r\nHost: HOST\r\n\r\n", []int{400}, true},
		{"a NUL in a header", ask + "X-A: a\x00b\r\n\r\n", []int{400}, true},
		{"a NUL in the name of a header", ask + "X-\x00A: b\r\n\r\n", []int{400}, true},
		{"a bare carriage return in a header", ask + "X-A: a\rAuthorization: Bearer BOB\r\n\r\n", []int{400}, true},
		{"a header without a colon", ask + "zqmark\r\n\r\n", []int{400}, true},
		{"a header without a name", ask + ": zqmark\r\n\r\n", []int{400}, true},
		{"a header that is folded", ask + "X-A: a\r\n Authorization: Bearer BOB\r\n\r\n", []int{200}, false},
		{"a first header that is folded", "GET /v1/whoami HTTP/1.1\r\n Host: HOST\r\n\r\n", []int{400}, true},
		{"bare line feeds", strings.ReplaceAll(ask, "\r\n", "\n") + "\n", []int{200}, false},
		{"two hosts", ask + "Host: HOST\r\n\r\n", []int{400}, true},
		{"no host", "GET /healthz HTTP/1.1\r\n\r\n", []int{400}, true},
		{"a host with a space", "GET /healthz HTTP/1.1\r\nHost: HOST evil.example\r\n\r\n", []int{400}, true},
		{"two tokens", ask + "Authorization: Bearer BOB\r\n\r\n", []int{401}, false},
		{"a token behind a comma", strings.Replace(ask, "MALLORY", "MALLORY, Bearer BOB", 1) + "\r\n", []int{401}, false},
		{"who one is said to be", ask + "X-Forwarded-User: bob\r\nX-Remote-User: bob\r\nFrom: bob\r\nCookie: token=BOB\r\nProxy-Authorization: Bearer BOB\r\nX-Authorization: Bearer BOB\r\n\r\n", []int{200}, false},
		{"another method by a header", strings.Replace(ask, "/v1/whoami", "/v1/conversations/x", 1) + "X-HTTP-Method-Override: DELETE\r\nX-Method-Override: DELETE\r\n\r\n", []int{200}, false},
		{"another path by a header", ask + "X-Original-URL: /v1/conversations\r\nX-Rewrite-URL: /v1/conversations\r\n\r\n", []int{200}, false},
		{"an absolute form of ours", strings.Replace(ask, "GET /", "GET http://HOST/", 1) + "\r\n", []int{200}, false},
		{"an absolute form of another", strings.Replace(ask, "GET /", "GET http://evil.example/", 1) + "\r\n", []int{403}, false},
		{"an absolute form with a name", strings.Replace(ask, "GET /", "GET http://a:b@HOST/", 1) + "\r\n", []int{403}, false},
		{"an absolute form of a file", "GET file:///etc/passwd HTTP/1.1\r\nHost: HOST\r\n\r\n", []int{401}, false},
		{"a connect", "CONNECT evil.example:443 HTTP/1.1\r\nHost: evil.example:443\r\n\r\n", []int{403}, true},
		{"a connect to ourselves", "CONNECT HOST HTTP/1.1\r\nHost: HOST\r\nAuthorization: Bearer MALLORY\r\n\r\n", []int{404}, true},
		{"options of all", "OPTIONS * HTTP/1.1\r\nHost: HOST\r\n\r\n", []int{401}, false},
		{"a trace", strings.Replace(ask, "GET", "TRACE", 1) + "\r\n", []int{405}, false},
		{"an expectation of a go-ahead", head + "Content-Length: 45\r\nExpect: 100-continue\r\n\r\n" + turn, []int{100, 201}, false},
		{"an expectation by nobody", strings.Replace(head, "MALLORY", "hd_none", 1) + "Content-Length: 45\r\nExpect: 100-continue\r\n\r\n" + turn + hidden, []int{401}, true},
		{"an expectation of something else", ask + "Expect: zqmark\r\n\r\n", []int{417}, true},
		{"headers of 100 kB", ask + "X-A: " + strings.Repeat("x", 100_000) + "\r\n\r\n", []int{431}, true},
		{"10,000 headers", ask + strings.Repeat("X-A: b\r\n", 10_000) + "\r\n", []int{431}, true},
		{"a path of 100 kB", strings.Replace(ask, "/v1/whoami", "/"+strings.Repeat("x", 100_000), 1) + "\r\n", []int{431}, true},
		{"two callers in a row", ask + "\r\n" + strings.Replace(ask, "MALLORY", "BOB", 1) + "\r\n", []int{200, 200}, false},
		{"what is behind the last request", ask + "Connection: close\r\n\r\n" + hidden, []int{200}, true},
		{"line ends before a request", "\r\n\r\n" + ask + "\r\n", []int{400}, true},
	}
}

func TestBrokenHTTPIsRefusedAndHidesNoRequest(t *testing.T) {
	t.Parallel()
	d := newTarget(t, nil)
	unharmed := d.bob.unharmed()
	d.mallory.do(201, "POST", "/v1/conversations/x/turns", said("mine"))
	var all sync.WaitGroup // a connection that is closed takes half a second, so that its answer arrives
	for _, b := range slices.Concat(framing(), manners()) {
		all.Go(func() { t.Run(b.name, func(t *testing.T) { d.breach(t, b) }) })
	}
	all.Wait()
	unharmed()
	if all := d.mallory.all(); strings.Contains(all, `"smuggled"`) {
		t.Errorf("a hidden request was served: %s", all)
	}
}

// breach sends a request, and holds the answers and the connection to what is wanted.
func (d *target) breach(t *testing.T, b breach) {
	put := strings.NewReplacer("HOST", d.addr, "BOB", d.bob.token)
	put = strings.NewReplacer("HOST", d.addr, "MALLORY", d.mallory.token, "BOB", d.bob.token, "LENGTH", fmt.Sprint(len(put.Replace(hidden))))
	w := d.dial()
	defer w.conn.Close()
	_, _ = io.WriteString(w.conn, put.Replace(b.text)) // which may be refused before all of it is sent
	method, _, _ := strings.Cut(b.text, " ")
	var got []int
	for range b.status {
		a, err := w.next(method)
		if err != nil {
			t.Errorf("%v", err)
			break
		}
		got = append(got, a.status)
		text := string(a.body)
		if strings.Contains(text, secret) || strings.Contains(text, marker) || len(b.status) == 1 && strings.Contains(text, `"bob"`) {
			t.Errorf("%d %s", a.status, text)
		}
	}
	if !slices.Equal(got, b.status) {
		t.Fatalf("%v, want %v", got, b.status)
	}
	if !b.closed {
		_, _ = io.WriteString(w.conn, put.Replace(ask+"\r\n"))
	}
	switch a, err := w.next("GET"); {
	case b.closed && !errors.Is(err, io.EOF):
		t.Errorf("the connection is open still: %d %s, %v", a.status, a.body, err)
	case !b.closed && (err != nil || a.status != 200 || !strings.Contains(string(a.body), `"mallory"`)):
		t.Errorf("what comes next is answered with %d %s, %v", a.status, a.body, err)
	}
}

// paths are those of all routes, with conversation x, and some that are none.
func (d *target) paths() (list [][2]string) {
	d.t.Helper()
	var doc struct {
		Paths map[string]map[string]json.RawMessage
	}
	if err := json.Unmarshal(d.ann.do(200, "GET", "/openapi.json", nil), &doc); err != nil {
		d.t.Fatal(err)
	}
	for path, methods := range doc.Paths {
		path = strings.NewReplacer("{c}", "x", "{sha256}", strings.Repeat("a", 64)).Replace(path)
		for method := range methods {
			if method != "parameters" {
				list = append(list, [2]string{strings.ToUpper(method), path})
			}
		}
		list = append(list, [2]string{"OPTIONS", path})
	}
	if len(list) < 40 {
		d.t.Fatalf("no more than %d routes: %v", len(list), list)
	}
	return append(list, [2]string{"GET", "/"}, [2]string{"GET", "/nowhere"}, [2]string{"BREW", "/nowhere"}, [2]string{"GET", "/debug/pprof/"}, [2]string{"OPTIONS", "*"}, [2]string{"GET", "/metrics/"})
}

// TestOnlyOurNamesAreServed has every route asked under names that a page could have been loaded from.
func TestOnlyOurNamesAreServed(t *testing.T) {
	t.Parallel()
	d := newTarget(t, nil)
	_, port, _ := strings.Cut(d.addr, ":")
	for host, ours := range map[string]bool{
		d.addr: true, "localhost:" + port: true, "[::1]:" + port: true,
		"": false, "127.0.0.1": false, "localhost": false, "evil.example": false, "evil.example:" + port: false, "localhost.evil.example:" + port: false, "localhost.:" + port: false, "LOCALHOST.:" + port: false,
		"127.0.0.1.:" + port: false, "127.0.0.1.nip.io:" + port: false, "127.1:" + port: false, "0.0.0.0:" + port: false, "0:" + port: false, "2130706433:" + port: false, "0x7f.1:" + port: false, "127.0.0.2:" + port: false,
		"[::ffff:127.0.0.1]:" + port: false, "[::]:" + port: false, "localhost:1": false, "localhost:0" + port: false, "a@localhost:" + port: false, "localhost:" + port + ":1": false, "localhost%00:" + port: false, "localhost#:" + port: false,
	} {
		w := d.dial()
		for _, p := range d.paths() {
			_, _ = fmt.Fprintf(w.conn, "%s %s HTTP/1.1\r\nHost: %s\r\nAuthorization: Bearer %s\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}", p[0], p[1], host, d.mallory.token)
			a, err := w.next(p[0])
			if err != nil {
				t.Fatalf("Host %q, %s %s: %v", host, p[0], p[1], err)
			}
			if a.last {
				w = d.dial()
			}
			// What net/http refuses by itself is no answer of ours.
			if refused := a.status == 403 && (p[0] == "HEAD" || a.code() == "forbidden_host") || a.status == 400 && a.code() == ""; refused == ours {
				t.Errorf("Host %q, %s %s: %d %s", host, p[0], p[1], a.status, a.body)
			}
		}
	}
}

// TestNamesNeverLeaveTheirPlace has names of conversations that are paths of something else.
func TestNamesNeverLeaveTheirPlace(t *testing.T) {
	t.Parallel()
	d := newTarget(t, nil)
	unharmed := d.bob.unharmed()
	for _, name := range []string{
		"..", ".", "%2e", "%2e%2e", "%2E%2E%2F%2E%2E", "..%2f..%2f..%2fetc%2fpasswd", "..%5c..", "%00", "x%00", "x%00.json", "x%2f..%2fdiary", "x/../diary", "x//", "/x", "%2fetc%2fpasswd", "x%0a", "x%0d%0aX-A:%20b", "%ff", "%c0%ae%c0%ae", "%e2%80%ae", "x%20",
		"x;a=b", "x%3b", "x%23", "x%3f", "x?", "~root%2f", "%25%32%65%25%32%65", "%252e%252e", "con%3a", strings.Repeat("x", 129), strings.Repeat("%78", 129), "%F0%9F%98%80", "x%ZZ", "%", "%2", "x%u0041", "X%CC%81", "*", "x*", "%2a",
	} {
		for _, rest := range []string{"/messages", "/turns", "", "/export", "/attachments/" + strings.Repeat("a", 64)} {
			w, method, body := d.dial(), "GET", ""
			if rest == "/turns" {
				method, body = "POST", string(said("zqmark"))
			}
			_, _ = fmt.Fprintf(w.conn, "%s /v1/conversations/%s%s HTTP/1.1\r\nHost: %s\r\nAuthorization: Bearer %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", method, name, rest, d.addr, d.mallory.token, len(body), body)
			a, err := w.next(method)
			if err != nil {
				t.Fatalf("%s%s: %v", name, rest, err)
			}
			if a.status != 400 && a.status != 404 && a.status != 405 || strings.Contains(string(a.body), secret) || strings.Contains(string(a.body), marker) {
				t.Errorf("%s%s: %d %s", name, rest, a.status, a.body)
			}
			_ = w.conn.Close()
		}
	}
	unharmed()
	if all := string(contents(t, d.dir)); strings.Contains(all, marker) {
		t.Error("something was stored")
	}
}
