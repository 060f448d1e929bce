package api

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-chi/chi/v5"
	"go.uber.org/goleak"

	"historyd/internal/history"
	"historyd/internal/projection"
)

// answers are a request for each route, and what it is answered. An N stands for a number that nobody had.
var answers = []struct {
	method, path, body string
	status             int
}{
	{"GET", "/healthz", "", 200}, {"GET", "/readyz", "", 200}, {"GET", "/metrics", "", 200}, {"GET", "/openapi.json", "", 200},
	{"GET", "/v1/whoami", "", 200}, {"GET", "/v1/conversations", "", 200}, {"GET", "/v1/search?q=xxxxxxxxxx", "", 200},
	{"GET", "/v1/conversations/xN", "", 200}, {"GET", "/v1/conversations/xN/messages", "", 200},
	{"GET", "/v1/conversations/xN/replay", "", 200}, {"GET", "/v1/conversations/xN/replay?mode=full&format=openai", "", 200},
	{"POST", "/v1/conversations/xN/replay", `{"mode":"full"}`, 200}, {"POST", "/v1/conversations/xN/replay", `{"recall":{"query":"xxxxxxxxxx","store":true}}`, 200},
	{"GET", "/v1/conversations/xN/export", "", 200}, {"GET", "/v1/conversations/xN/export?format=tar", "", 200},
	{"GET", "/v1/conversations/xN/export?format=anthropic", "", 200},
	{"GET", "/v1/conversations/xN/attachments/" + strings.TrimPrefix(history.AttachmentName([]byte("a picture")), "sha256:"), "", 200},
	{"POST", "/v1/conversations/xN/recall", `{"query":"xxxxxxxxxx"}`, 200}, {"POST", "/v1/conversations/xN/turns", `{"messages":[{"role":"user","content":"hi"}]}`, 201},
	{"POST", "/v1/conversations/newN/import", `{"version":1,"type":"historyd.history","messages":[{"role":"user","content":"hi"}]}`, 201},
	{"POST", "/v1/conversations/xN/import?mode=replace", `{"version":1,"type":"historyd.history","messages":[{"role":"user","content":"hi"}]}`, 201},
	{"POST", "/v1/conversations/xN/fork", `{"to":"newN"}`, 201}, {"POST", "/v1/conversations/xN/rewind", `{"through_seq":0}`, 200},
	{"DELETE", "/v1/conversations/xN", "", 204}, {"GET", "/nowhere", "", 404}, {"GET", "/v1/conversations/xN/turns", "", 405},
	{"DELETE", "/v1/conversations", "", 204},
}

// written is a request as it goes over the wire, in the version of HTTP and with more lines in its head.
func (d *daemon) written(method, path, body, version, more string) string {
	head := fmt.Sprintf("%s %s HTTP/%s\r\nHost: %s\r\nAuthorization: Bearer %s\r\n%s", method, path, version, d.host, d.tokens["ann"], more)
	if body != "" {
		head += fmt.Sprintf("Content-Type: application/json\r\nContent-Length: %d\r\n", len(body))
	}
	return head + "\r\n" + body
}

// statuses sends what is given, ends its side, and returns the statuses of the answers.
func statuses(t *testing.T, addr, text string) (got []int) {
	t.Helper()
	conn, err := net.Dial("tcp", addr)
	must(t, err)
	defer conn.Close()
	_, err = io.WriteString(conn, text)
	must(t, err)
	must(t, conn.(*net.TCPConn).CloseWrite())
	in := bufio.NewReader(conn)
	for {
		if _, err := in.Peek(1); err == io.EOF {
			return got
		}
		res, err := http.ReadResponse(in, nil)
		must(t, err)
		_, err = io.Copy(io.Discard, res.Body)
		must(t, err)
		got = append(got, res.StatusCode)
	}
}

// afterTheEnd has a request served when its client's context has ended.
func afterTheEnd(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			panic(err)
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		<-r.Context().Done()
		h.ServeHTTP(w, r)
	})
}

// Who ends its side of the connection behind the request, as a script may, gets the answer that anybody gets: always when
// net/http has ended the request's context before we began, and however the two come together.
func TestEveryRouteAnswersWhoSendsNoMore(t *testing.T) {
	routes := map[string]bool{}
	before := goleak.IgnoreCurrent()
	t.Run("clients", func(t *testing.T) {
		d := newDaemon(t, projection.Options{})
		must(t, chi.Walk(d.handler.(*server).router, func(method, pattern string, _ http.Handler, _ ...func(http.Handler) http.Handler) error {
			if method != http.MethodHead && !strings.HasPrefix(pattern, "/v1/history") {
				routes[method+" "+pattern] = false
			}
			return nil
		}))
		late := httptest.NewServer(afterTheEnd(d.handler))
		defer late.Close()
		n := 0
		for _, tt := range answers {
			rctx := chi.NewRouteContext()
			path, _, _ := strings.Cut(tt.path, "?")
			if d.handler.(*server).router.Match(rctx, tt.method, path) {
				routes[tt.method+" "+rctx.RoutePattern()] = true
			}
			// So that clearing or listing what earlier ones made does not take long.
			must(t, d.engine.ClearAll(t.Context(), d.caller("ann").Scope()))
			d.fill("old", 10) // which a search finds
			for i := range 100 {
				n++
				at := strings.NewReplacer("xN", fmt.Sprint("x", n), "newN", fmt.Sprint("new", n))
				if strings.Contains(tt.path, "xN") {
					d.picture(fmt.Sprint("x", n))
				}
				host, version, more := d.host, "1.1", ""
				if i%2 == 1 {
					host = late.Listener.Addr().String()
				}
				switch i % 3 {
				case 1:
					version = "1.0"
				case 2:
					more = "Connection: close\r\n"
				}
				text := d.written(tt.method, at.Replace(tt.path), at.Replace(tt.body), version, more)
				text = strings.Replace(text, "Host: "+d.host, "Host: "+host, 1)
				if got := statuses(t, host, text); !slices.Equal(got, []int{tt.status}) {
					t.Errorf("%s %s, HTTP/%s %q: got %d, want %d", tt.method, tt.path, version, more, got, tt.status)
				}
			}
		}
		if n := d.counted("5xx") + d.counted("canceled"); n != 0 {
			t.Errorf("%v requests count as failed or left", n)
		}
	})
	for route, asked := range routes {
		if !asked {
			t.Errorf("nobody asked for %s", route)
		}
	}
	if err := goleak.Find(before); err != nil {
		t.Error(err)
	}
}

// The context of a connection ends behind the first of many requests, and with it those of all that wait there.
func TestRequestsInARowWithNothingBehindThem(t *testing.T) {
	d := newDaemon(t, projection.Options{})
	d.fill("x", 10)
	for range 100 {
		var all strings.Builder
		var want []int
		for _, tt := range []struct {
			method, path, body string
			status             int
		}{
			{"GET", "/v1/whoami", "", 200}, {"GET", "/v1/conversations/x/replay?mode=full", "", 200}, {"POST", turns, leavers[0].body, 201},
			{"GET", "/v1/conversations/x/messages", "", 200}, {"GET", "/v1/conversations", "", 200}, {"DELETE", "/v1/conversations/other", "", 204},
			{"GET", "/v1/conversations/x/export", "", 200},
		} {
			all.WriteString(d.written(tt.method, tt.path, tt.body, "1.1", ""))
			want = append(want, tt.status)
		}
		if got := statuses(t, d.host, all.String()); !slices.Equal(got, want) {
			t.Fatalf("got %d, want %d", got, want)
		}
	}
}

// A duplex is the server's end of two pipes, of which a client can close one.
type duplex struct{ in, out net.Conn }

func (c duplex) Read(p []byte) (int, error)         { return c.in.Read(p) }
func (c duplex) Write(p []byte) (int, error)        { return c.out.Write(p) }
func (c duplex) LocalAddr() net.Addr                { return c.in.LocalAddr() }
func (c duplex) RemoteAddr() net.Addr               { return c.in.RemoteAddr() }
func (c duplex) SetReadDeadline(t time.Time) error  { return c.in.SetReadDeadline(t) }
func (c duplex) SetWriteDeadline(t time.Time) error { return c.out.SetWriteDeadline(t) }
func (c duplex) SetDeadline(t time.Time) error {
	_ = c.in.SetReadDeadline(t)
	return c.out.SetWriteDeadline(t)
}

func (c duplex) Close() error {
	_ = c.in.Close()
	return c.out.Close()
}

// dialDuplex serves h for one connection, of which the client has both ways.
func dialDuplex(t *testing.T, h http.Handler) (to, from net.Conn, stop func()) {
	to, in := net.Pipe()
	from, out := net.Pipe()
	stop = serveOne(t, h, duplex{in, out})
	t.Cleanup(func() { to.Close(); from.Close() })
	return to, from, stop
}

// What takes longer than the grace ends for a client that sends no more, and no sooner; when the server ends, at once.
func TestARequestEndsAMomentAfterItsClient(t *testing.T) {
	for _, tt := range leavers {
		if tt.op == "record" || tt.op == "attachment" || tt.op == "append" {
			continue
		}
		what := tt.method + " " + tt.path + " that waits for " + tt.op
		synctest.Test(t, func(t *testing.T) {
			d := newHandler(t, projection.Options{})
			d.fill("x", 10)
			d.engine.hang.Store(&tt.op)
			to, from, _ := dialDuplex(t, d.handler)
			must(t, d.request(t.Context(), tt.method, tt.path, tt.body).Write(to))
			synctest.Wait()
			to.Close()
			time.Sleep(grace - 1)
			synctest.Wait()
			if n := d.places(); n != 1 {
				t.Errorf("%s: %d are served before the grace is over", what, n)
			}
			time.Sleep(time.Nanosecond)
			res, err := http.ReadResponse(bufio.NewReader(from), nil)
			must(t, err)
			if res.StatusCode != 503 {
				t.Errorf("%s: answered %d", what, res.StatusCode)
			}
			_, _ = io.Copy(io.Discard, res.Body)
			synctest.Wait()
			d.mustHaveLeft(what)
			if n := d.sum("historyd_recall_retriever_total"); n != 0 {
				t.Errorf("%s: %v retrievers were asked", what, n)
			}
		})
		synctest.Test(t, func(t *testing.T) {
			d := newHandler(t, projection.Options{})
			d.fill("x", 10)
			d.engine.hang.Store(&tt.op)
			conn, stop := serve(t, d.handler)
			go func() { _, _ = io.Copy(io.Discard, conn) }()
			must(t, d.request(t.Context(), tt.method, tt.path, tt.body).Write(conn))
			synctest.Wait()
			stop()
			synctest.Wait()
			d.mustHaveLeft(what + ", at a server that ends")
		})
	}
}

// An append that stands still with the disk is answered for a client that sends no more.
func TestAnAppendThatHangsIsAnsweredAMomentAfterItsClient(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newHandler(t, projection.Options{})
		_, end := d.block("append")
		to, from, _ := dialDuplex(t, d.handler)
		d.tell(to, bodyOf(100))
		to.Close()
		began := time.Now()
		res, err := http.ReadResponse(bufio.NewReader(from), nil)
		must(t, err)
		if took := time.Since(began); res.StatusCode != 503 || !res.Close || took != grace {
			t.Errorf("after %s: %d %v", took, res.StatusCode, res.Header)
		}
		_, _ = io.Copy(io.Discard, res.Body)
		synctest.Wait()
		d.mustHaveLeft("an append that hangs")
		close(end)
		synctest.Wait()
		d.mustHaveLeft("an append that hung")
	})
	synctest.Test(t, func(t *testing.T) {
		d := newHandler(t, projection.Options{})
		_, end := d.block("append")
		conn, stop := serve(t, d.handler)
		go func() { _, _ = io.Copy(io.Discard, conn) }()
		d.tell(conn, bodyOf(100))
		synctest.Wait()
		stop()
		synctest.Wait()
		d.mustHaveLeft("an append that hangs at a server that ends")
		close(end)
	})
}

// A client that sends no more and reads slowly, but goes on, gets all of what is long; whether it ends its side before the
// answer or amid a piece of it.
func TestWhoSendsNoMoreMayReadSlowly(t *testing.T) {
	for _, path := range []string{"/export", "/messages"} {
		for _, amid := range []bool{false, true} {
			synctest.Test(t, func(t *testing.T) {
				d := newHandler(t, projection.Options{})
				for range 8 {
					d.fill("x", 2*holdBack)
				}
				to, from, _ := dialDuplex(t, d.handler)
				must(t, d.request(t.Context(), "GET", path, "").Write(to))
				if amid {
					synctest.Wait()
				}
				to.Close()
				if amid {
					time.Sleep(2 * grace)
				}
				res, err := http.ReadResponse(bufio.NewReaderSize(from, 16), nil)
				must(t, err)
				read := int64(0)
				for err == nil {
					time.Sleep(2 * grace)
					var n int64
					n, err = io.CopyN(io.Discard, res.Body, holdBack)
					read += n
				}
				if err != io.EOF || read < 16*holdBack {
					t.Errorf("%s, ended amid a piece %t: %d bytes, then %v", path, amid, read, err)
				}
			})
		}
	}
}

// asked is a context that counts who asks for its end.
type asked struct {
	context.Context
	n int
}

func (c *asked) Done() <-chan struct{} { c.n++; return c.Context.Done() }

// A replay from the cache waits for nothing, so it does without what a wait costs.
func TestAHotReplayWatchesNobody(t *testing.T) {
	d := newHandler(t, projection.Options{})
	d.fill("x", 10)
	ask := func() (int, *asked) {
		ctx := &asked{Context: context.WithValue(t.Context(), http.LocalAddrContextKey, &net.TCPAddr{Port: 80})}
		r := httptest.NewRequest("GET", "http://127.0.0.1"+replayOfX, nil).WithContext(ctx)
		r.Header.Set("Authorization", "Bearer "+d.tokens["ann"])
		w := httptest.NewRecorder()
		d.handler.ServeHTTP(w, r)
		return w.Code, ctx
	}
	ask()
	if code, ctx := ask(); code != 200 || ctx.n != 0 {
		t.Errorf("%d, watched %d times", code, ctx.n)
	}
}
