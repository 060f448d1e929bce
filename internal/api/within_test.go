package api

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"historyd/internal/projection"
)

// places is how many places of ann's are taken.
func (d *daemon) places() int {
	v, _ := d.handler.(*server).visitors.Load(d.caller("ann"))
	return len(v.(*visitor).places)
}

// inFlight is how many requests have no answer yet.
func (d *daemon) inFlight() float64 { return d.sum("historyd_http_requests_in_flight") }

// An append stands still with the disk, and no context ends that. Its client hears so in time, it is counted, its places are
// others', and when the disk comes back the connection ends and nothing is answered twice. One that can be ended, ends.
func TestAnAppendThatHangsIsAnsweredInTime(t *testing.T) {
	for _, stands := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			d := newHandler(t, projection.Options{})
			op := "append"
			_, end := d.block("nothing")
			if stands {
				_, end = d.block(op)
			} else {
				d.engine.hang.Store(&op)
			}
			conn := dial(t, d.handler)
			in := bufio.NewReader(conn)
			began := time.Now()
			d.tell(conn, bodyOf(100))
			synctest.Wait()
			if n := d.inFlight(); n != 1 {
				t.Errorf("%v in flight before the answer", n)
			}
			res, err := http.ReadResponse(in, nil)
			must(t, err)
			text, err := io.ReadAll(res.Body)
			must(t, err)
			if took := time.Since(began); res.StatusCode != 503 || !res.Close || took != deadline || !strings.Contains(string(text), `"unavailable"`) {
				t.Errorf("after %s: %d %v %s", took, res.StatusCode, res.Header, text)
			}
			synctest.Wait()
			if places, failed, flying := d.places(), d.counted("5xx"), d.inFlight(); places != 0 || failed != 1 || flying != 0 {
				t.Errorf("%d places are taken while the disk hangs, %v counted, %v in flight", places, failed, flying)
			}
			if stands {
				time.Sleep(time.Hour)
				close(end)
			}
			if rest, err := io.ReadAll(in); len(rest) > 0 || err != nil {
				t.Errorf("behind the answer: %q, %v", rest, err)
			}
			synctest.Wait()
			if failed, panics, flying := d.counted("5xx"), strings.Count(d.logs.String(), "panic"), d.inFlight(); failed != 1 || panics != 0 || flying != 0 {
				t.Errorf("counted %v, %v in flight, logged %s", failed, flying, d.logs.String())
			}
		})
	}
}

// A client that leaves while its append stands still is no failure, and keeps places for a moment only.
func TestAnAppendThatHangsIsLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newHandler(t, projection.Options{})
		reached, end := d.block("append")
		conn := dial(t, d.handler)
		d.tell(conn, bodyOf(100))
		<-reached
		conn.Close()
		time.Sleep(grace)
		synctest.Wait()
		d.mustHaveLeft("an append that hangs")
		close(end)
		synctest.Wait()
		d.mustHaveLeft("an append that hung")
	})
}

// A panic after the answer was given is told like any other.
func TestAPanicAfterTheMinuteIsTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newHandler(t, projection.Options{})
		late := func(op string) error {
			if op == "append" {
				time.Sleep(2 * deadline)
				panic("late")
			}
			return nil
		}
		d.engine.fail.Store(&late)
		conn := dial(t, d.handler)
		d.tell(conn, bodyOf(100))
		res, err := http.ReadResponse(bufio.NewReader(conn), nil)
		must(t, err)
		time.Sleep(2 * deadline)
		synctest.Wait()
		if logs := d.logs.String(); res.StatusCode != 503 || strings.Count(logs, "panic while serving") != 1 || d.counted("5xx") != 1 {
			t.Errorf("%d, %s", res.StatusCode, logs)
		}
	})
}

// Who ends its side of the connection behind the request, as a script may, gets the answer all the same.
func TestAnAppendWithNothingBehindIt(t *testing.T) {
	d := newDaemon(t, projection.Options{})
	addr := d.server.Listener.Addr().String()
	slow := func(op string) error {
		if op == "append" {
			time.Sleep(grace / 10) // until the end has come, too
		}
		return nil
	}
	d.engine.fail.Store(&slow)
	for range 3 {
		conn, err := net.Dial("tcp", addr)
		must(t, err)
		body := bodyOf(100)
		_, err = fmt.Fprintf(conn, "POST %s HTTP/1.1\r\nHost: %s\r\nAuthorization: Bearer %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s",
			turns, addr, d.tokens["ann"], len(body), body)
		must(t, err)
		must(t, conn.(*net.TCPConn).CloseWrite())
		res, err := http.ReadResponse(bufio.NewReader(conn), nil)
		must(t, err)
		if res.StatusCode != 201 {
			t.Errorf("answered %d", res.StatusCode)
		}
		conn.Close()
	}
}

// Who waits for the go-ahead and doesn't read it takes no place for ever.
func TestAGoAheadThatNobodyReads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newHandler(t, projection.Options{})
		conn := dial(t, d.handler)
		_, err := fmt.Fprintf(conn, "POST %s HTTP/1.1\r\nHost: localhost:4478\r\nAuthorization: Bearer %s\r\nContent-Type: application/json\r\nContent-Length: 10\r\nExpect: 100-continue\r\n\r\n",
			turns, d.tokens["ann"])
		must(t, err)
		synctest.Wait()
		if n := d.places(); n != 1 {
			t.Errorf("%d places are taken by the request", n)
		}
		time.Sleep(3 * writeStall)
		synctest.Wait()
		if n := d.places(); n != 0 {
			t.Errorf("%d places are taken for ever", n)
		}
	})
}
