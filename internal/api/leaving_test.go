package api

import (
	"context"
	"errors"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"historyd/internal/history"
	"historyd/internal/projection"
)

// leavers are requests, and what each of them waits for when its client goes away.
var leavers = []struct{ op, method, path, body string }{
	{"append", "POST", "/turns", `{"messages":[{"role":"user","content":"hi"}]}`},
	{"state", "GET", "", ""}, {"state", "GET", "/replay", ""}, {"state", "POST", "/replay", "{}"},
	{"view", "GET", "/replay?mode=full", ""}, {"record", "GET", "/replay?max_tokens=9", ""},
	{"view", "GET", "/messages", ""}, {"record", "GET", "/messages", ""},
	{"view", "GET", "/export", ""}, {"record", "GET", "/export", ""}, {"record", "GET", "/export?format=tar", ""},
	{"record", "GET", "/export?format=openai", ""}, {"attachment", "GET", "/export?format=tar", ""}, {"attachment", "GET", "/export", ""},
	{"import", "POST", "/import?mode=append", `{"version":1,"type":"historyd.history","messages":[]}`},
	{"view", "POST", "/import?mode=append", `{"version":1,"type":"historyd.history","messages":[]}`},
	{"view", "POST", "/fork", `{"to":"y"}`}, {"record", "POST", "/fork", `{"to":"y"}`}, {"rewind", "POST", "/rewind", `{"through_seq":1}`},
	{"state", "POST", "/recall", `{"query":"hi"}`}, {"view", "POST", "/recall", `{}`}, {"append", "POST", "/recall", `{"query":"xxxxxxxxxx","store":true}`}, {"clear", "DELETE", "", ""},
	{"list", "GET", "!/v1/conversations", ""}, {"clear", "DELETE", "!/v1/conversations", ""}, {"list", "GET", "!/v1/search?q=hi", ""},
}

func (d *daemon) request(ctx context.Context, method, path, body string) *http.Request {
	d.t.Helper()
	if rest, other := strings.CutPrefix(path, "!"); other {
		path = rest
	} else {
		path = "/v1/conversations/x" + path
	}
	r, err := http.NewRequestWithContext(ctx, method, d.url+path, strings.NewReader(body))
	must(d.t, err)
	r.Header.Set("Authorization", "Bearer "+d.tokens["ann"])
	if body != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	return r
}

// counted is how many requests have the class.
func (d *daemon) counted(class string) float64 {
	d.t.Helper()
	return d.sum("historyd_http_requests_total", class)
}

// sum is that of a metric's series which have all of the values among those of their labels.
func (d *daemon) sum(metric string, values ...string) (n float64) {
	d.t.Helper()
	families, err := d.reg.Gather()
	must(d.t, err)
	for _, f := range families {
		if f.GetName() != metric {
			continue
		}
		for _, m := range f.GetMetric() {
			had := 0
			for _, l := range m.GetLabel() {
				if slices.Contains(values, l.GetValue()) {
					had++
				}
			}
			if had == len(values) {
				n += m.GetCounter().GetValue() + m.GetGauge().GetValue()
			}
		}
	}
	return n
}

// mustHaveLeft waits until no request is served, and holds what was counted to one whose
// client went away.
func (d *daemon) mustHaveLeft(what string) {
	d.t.Helper()
	v, _ := d.handler.(*server).visitors.Load(d.caller("ann"))
	if n, m := len(v.(*visitor).places), len(v.(*visitor).imports); n+m > 0 {
		d.t.Errorf("%s: %d requests and %d imports are served still", what, n, m)
	}
	if failed, left := d.counted("5xx"), d.counted("canceled"); failed != 0 || left != 1 {
		d.t.Errorf("%s: counted %v as 5xx and %v as canceled", what, failed, left)
	}
	if n := d.inFlight(); n != 0 {
		d.t.Errorf("%s: %v are in flight", what, n)
	}
	if logs := d.logs.String(); strings.Contains(logs, `"level":"ERROR"`) {
		d.t.Errorf("%s: logged %s", what, logs)
	}
}

// block holds up the operation until the test ends it. Unlike hang it ends with no context.
func (d *daemon) block(op string) (reached, end chan struct{}) {
	reached, end = make(chan struct{}), make(chan struct{})
	f := func(now string) error {
		if now == op {
			select {
			case <-reached:
			default:
				close(reached)
			}
			<-end
		}
		return nil
	}
	d.engine.fail.Store(&f)
	return reached, end
}

func TestAClientThatLeavesIsNoFailure(t *testing.T) {
	for _, tt := range leavers {
		what := tt.method + " " + tt.path + " that waits for " + tt.op
		synctest.Test(t, func(t *testing.T) {
			d := newHandler(t, projection.Options{})
			d.fill("x", 10)
			d.fill("old", 10) // which a recall finds
			d.picture("x")
			conn := dial(t, d.handler)
			reads := tt.op == "record" || tt.op == "attachment"
			reached, end := d.block("nothing")
			if reads {
				reached, end = d.block(tt.op)
			} else {
				d.engine.hang.Store(&tt.op)
			}
			must(t, d.request(t.Context(), tt.method, tt.path, tt.body).Write(conn))
			if reads {
				<-reached
			}
			synctest.Wait()
			conn.Close()
			time.Sleep(grace) // which an append has
			synctest.Wait()
			close(end)
			synctest.Wait()
			d.mustHaveLeft(what)
		})
	}
}

func TestAClientThatLeavesInTheMiddleIsNoFailure(t *testing.T) {
	for _, path := range []string{"/export", "/messages", "/replay"} {
		synctest.Test(t, func(t *testing.T) {
			d := newHandler(t, projection.Options{})
			for range 4 {
				d.fill("x", 2*holdBack)
			}
			conn := dial(t, d.handler)
			must(t, d.request(t.Context(), "GET", path, "").Write(conn))
			_, err := io.ReadFull(conn, make([]byte, 1000))
			must(t, err)
			conn.Close()
			synctest.Wait()
			d.mustHaveLeft("GET " + path)
		})
	}
	for _, path := range []string{"/turns", "/import", "/replay"} {
		synctest.Test(t, func(t *testing.T) {
			d := newHandler(t, projection.Options{})
			conn := dial(t, d.handler)
			d.ask(conn, "GET", "/v1/whoami")
			_, err := io.ReadFull(conn, make([]byte, 50))
			must(t, err)
			go func() { _, _ = io.Copy(io.Discard, conn) }()
			_, err = io.WriteString(conn, "POST /v1/conversations/x"+path+" HTTP/1.1\r\nHost: localhost:4478\r\nAuthorization: Bearer "+d.tokens["ann"]+
				"\r\nContent-Type: application/json\r\nContent-Length: 1000\r\n\r\n{\"messages\":[")
			must(t, err)
			synctest.Wait()
			conn.Close()
			synctest.Wait()
			d.mustHaveLeft("POST " + path)
		})
	}
}

// A daemon that stops closes the connections, and what was read for them ends.
func TestADownloadEndsWithTheServer(t *testing.T) {
	for _, tt := range leavers {
		if tt.op != "record" && tt.op != "attachment" {
			continue
		}
		synctest.Test(t, func(t *testing.T) {
			d := newHandler(t, projection.Options{})
			d.fill("x", 10)
			d.fill("x", 10)
			d.picture("x")
			conn, stop := serve(t, d.handler)
			read, end := 0, make(chan struct{})
			hook := func(op string) error {
				if op == tt.op {
					read++
					<-end
				}
				return nil
			}
			d.engine.fail.Store(&hook)
			must(t, d.request(t.Context(), tt.method, tt.path, tt.body).Write(conn))
			synctest.Wait()
			stop()
			synctest.Wait()
			close(end)
			synctest.Wait()
			if read != 1 {
				t.Errorf("%s %s: %d times a %s was read, want the one under way", tt.method, tt.path, read, tt.op)
			}
			d.mustHaveLeft(tt.method + " " + tt.path + " that reads a " + tt.op)
		})
	}
}

// A storage that fails is told of, whether its client waits or not.
func TestAFailureIsLoggedThoughItsClientHasLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newHandler(t, projection.Options{})
		conn := dial(t, d.handler)
		broken := func(op string) error {
			if op == "append" {
				time.Sleep(time.Second)
				return history.ErrUnavailable
			}
			return nil
		}
		d.engine.fail.Store(&broken)
		must(t, d.request(t.Context(), "POST", "/turns", leavers[0].body).Write(conn))
		synctest.Wait()
		conn.Close()
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if failed, left := d.counted("5xx"), d.counted("canceled"); failed != 0 || left != 1 {
			t.Errorf("counted %v as 5xx and %v as canceled", failed, left)
		}
		if logs := d.logs.String(); !strings.Contains(logs, `"code":"unavailable"`) {
			t.Errorf("logged %s", logs)
		}
	})
}

func TestClientsThatLeaveLeaveNoGoroutine(t *testing.T) {
	before := goleak.IgnoreCurrent()
	t.Run("clients", func(t *testing.T) {
		d := newDaemon(t, projection.Options{})
		d.fill("x", 10)
		d.picture("x")
		for _, tt := range leavers {
			reads := tt.op == "record" || tt.op == "attachment"
			reached, end := d.block("nothing")
			if reads {
				reached, end = d.block(tt.op)
			} else {
				d.engine.hang.Store(&tt.op)
			}
			ctx, cancel := context.WithCancel(t.Context())
			done := make(chan error)
			go func() {
				res, err := d.server.Client().Do(d.request(ctx, tt.method, tt.path, tt.body))
				if err == nil {
					res.Body.Close()
				}
				done <- err
			}()
			if reads {
				<-reached
			}
			cancel()
			if err := <-done; !errors.Is(err, context.Canceled) {
				t.Errorf("%s %s: %v", tt.method, tt.path, err)
			}
			close(end)
			d.engine.hang.Store(nil)
		}
	})
	if err := goleak.Find(before); err != nil {
		t.Error(err)
	}
}
