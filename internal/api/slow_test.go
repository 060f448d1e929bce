package api

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"historyd/internal/history"
	"historyd/internal/projection"
)

// pipe is a listener for one connection that is no socket, so that its time is the
// test's.
type pipe struct {
	conns chan net.Conn
}

type tcpLike struct{ net.Conn }

func (tcpLike) LocalAddr() net.Addr { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 4478} }

func (p pipe) Accept() (net.Conn, error) {
	c, ok := <-p.conns
	if !ok {
		return nil, net.ErrClosed
	}
	return tcpLike{c}, nil
}

func (p pipe) Close() error   { close(p.conns); return nil }
func (p pipe) Addr() net.Addr { return &net.TCPAddr{} }

// dial serves h for one connection.
func dial(t *testing.T, h http.Handler) net.Conn {
	conn, _ := serve(t, h)
	return conn
}

// serve also returns what stops the server as the daemon does: its requests end, then its connections.
func serve(t *testing.T, h http.Handler) (net.Conn, func()) {
	client, server := net.Pipe()
	stop := serveOne(t, h, server)
	t.Cleanup(func() { client.Close() })
	return client, stop
}

func serveOne(t *testing.T, h http.Handler, server net.Conn) (stop func()) {
	p := pipe{make(chan net.Conn, 1)}
	base, cut := context.WithCancelCause(context.Background())
	srv := &http.Server{Handler: h, BaseContext: func(net.Listener) context.Context { return base }}
	stop = func() {
		cut(errors.New("stopped"))
		srv.Close()
	}
	done := make(chan struct{})
	go func() {
		_ = srv.Serve(p)
		close(done)
	}()
	p.conns <- server
	t.Cleanup(func() {
		stop()
		<-done
	})
	return stop
}

func TestABodyMayTakeLongButNotStall(t *testing.T) {
	for _, tt := range []struct {
		name   string
		piece  int
		pause  time.Duration
		status int
	}{
		{"long and steady", 8 << 10, 25 * time.Second, 201},
		{"stalled", 8 << 10, 31 * time.Second, 400},
		{"drop by drop", 16, 20 * time.Second, 400},
	} {
		synctest.Test(t, func(t *testing.T) {
			d := newHandler(t, projection.Options{})
			conn := dial(t, d.handler)
			body := bodyOf(100 << 10)
			began := time.Now()
			var sender sync.WaitGroup
			sender.Go(func() {
				_, _ = fmt.Fprintf(conn, "POST %s HTTP/1.1\r\nHost: localhost:4478\r\nAuthorization: Bearer %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n", turns, d.tokens["ann"], len(body))
				for rest := body; rest != ""; {
					n := min(tt.piece, len(rest))
					if _, err := io.WriteString(conn, rest[:n]); err != nil {
						return // the daemon has closed the connection
					}
					rest = rest[n:]
					time.Sleep(tt.pause)
				}
			})
			in := bufio.NewReader(conn)
			res, err := http.ReadResponse(in, nil)
			must(t, err)
			text, _ := io.ReadAll(res.Body)
			if tt.status == 400 {
				_, _ = io.Copy(io.Discard, in)
				if took := time.Since(began); took > readStall+time.Second {
					t.Errorf("%s: the connection goes on for %s", tt.name, took)
				}
			}
			if res.StatusCode != tt.status || tt.status == 400 && !strings.Contains(string(text), "did not arrive in time") {
				t.Errorf("%s: %d %s", tt.name, res.StatusCode, text)
			}
			conn.Close()
			sender.Wait()
		})
	}
}

// Who has one of the places that all callers share must hurry, or a few who dawdle keep everybody's.
func TestALargeBodyKeepsThePace(t *testing.T) {
	const large = 4 << 20
	for _, tt := range []struct {
		name   string
		second int // bytes of it
		length bool
		status int
	}{
		{"steady", pace + pace/8, true, 201}, {"steady, of no told length", pace + pace/8, false, 201},
		{"slow", pace / 4, true, 400}, {"slow, of no told length", pace / 8, false, 400},
	} {
		synctest.Test(t, func(t *testing.T) {
			d := newHandler(t, projection.Options{})
			conn := dial(t, d.handler)
			body, length := bodyOf(large-100), fmt.Sprint("Content-Length: ", large)
			body += strings.Repeat(" ", large-len(body))
			if !tt.length {
				length = "Transfer-Encoding: chunked"
			}
			began := time.Now()
			var sender sync.WaitGroup
			sender.Go(func() {
				_, _ = fmt.Fprintf(conn, "POST %s HTTP/1.1\r\nHost: localhost:4478\r\nAuthorization: Bearer %s\r\nContent-Type: application/json\r\n%s\r\n\r\n", turns, d.tokens["ann"], length)
				for piece := range slices.Chunk([]byte(body), tt.second) {
					if !tt.length {
						piece = fmt.Appendf(nil, "%x\r\n%s\r\n", len(piece), piece)
					}
					if _, err := conn.Write(piece); err != nil {
						return // the daemon has closed the connection
					}
					time.Sleep(time.Second)
				}
				if !tt.length {
					_, _ = io.WriteString(conn, "0\r\n\r\n")
				}
			})
			in := bufio.NewReader(conn)
			res, err := http.ReadResponse(in, nil)
			must(t, err)
			text, _ := io.ReadAll(res.Body)
			if res.StatusCode == 400 {
				_, _ = io.Copy(io.Discard, in) // the connection ends
			}
			if res.StatusCode != tt.status || tt.status == 400 && !strings.Contains(string(text), "did not arrive in time") {
				t.Errorf("%s: %d %.300s", tt.name, res.StatusCode, text)
			}
			// What came before it was large may have come at any pace.
			most := light*time.Second/time.Duration(tt.second) + readStall + timeAtPace(2*large) + 2*time.Second
			if took := time.Since(began); took > most {
				t.Errorf("%s: is waited for %s, want at most %s", tt.name, took, most)
			}
			conn.Close()
			sender.Wait()
			v := d.handler.(*server).visit(d.caller("ann"))
			if len(v.bodies.own)+len(v.bodies.first)+len(v.bodies.all) > 0 {
				t.Errorf("%s: keeps its place", tt.name)
			}
		})
	}
}

// A large answer must be read at the same pace, and so must one to a large body.
func TestALargeAnswerIsReadInTime(t *testing.T) {
	for _, tt := range []struct {
		name  string
		body  string        // of an append; a replay has none
		pause time.Duration // before each next half of a step
		whole bool
	}{
		{"steadily", "", sendStep / 2 * time.Second / pace, true}, {"slowly", "", writeStall / 4, false},
		{"slowly, to a large body", crowdOf(8<<10, 150), writeStall / 4, false},
	} {
		synctest.Test(t, func(t *testing.T) {
			d := newHandler(t, projection.Options{})
			d.fill("x", 4*light)
			conn := dial(t, d.handler)
			began := time.Now()
			if tt.body == "" {
				d.ask(conn, "GET", "/v1/conversations/x/replay")
			} else {
				d.tell(conn, tt.body)
			}
			res, err := http.ReadResponse(bufio.NewReader(conn), nil)
			must(t, err)
			size, piece := 0, make([]byte, sendStep/2)
			for n := 0; err == nil; size += n {
				time.Sleep(tt.pause)
				n, err = io.ReadFull(res.Body, piece)
			}
			if whole := int64(size) == res.ContentLength; whole != tt.whole {
				t.Errorf("%s: %d bytes of %d after %s", tt.name, size, res.ContentLength, time.Since(began))
			}
			took, most := time.Since(began), writeStall+timeAtPace(res.ContentLength)+tt.pause
			synctest.Wait() // who has all of an answer has it before its handler returns
			v := d.handler.(*server).visit(d.caller("ann"))
			if took > most || len(v.replays.own)+len(v.bodies.own) > 0 {
				t.Errorf("%s: the answer is held for %s, want at most %s", tt.name, took, most)
			}
		})
	}
}

// The last of a large answer may leave when its handler has returned. What time the rest took
// must not be missing then.
func TestTheEndOfALargeAnswerHasItsOwnTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const path, chars, last = "/v1/conversations/%s/replay", 2 * light, 1000
		d := newHandler(t, projection.Options{})
		d.fill("x", chars)
		around := len(d.alone("ann", "GET", fmt.Sprintf(path, "x"), "").body) - chars
		d.fill("y", chars-around+last)
		conn := dial(t, d.handler)
		began := time.Now()
		d.ask(conn, "GET", fmt.Sprintf(path, "y"))
		time.Sleep(writeStall - time.Second)
		res, err := http.ReadResponse(bufio.NewReader(conn), nil)
		must(t, err)
		if res.ContentLength != chars+last {
			t.Fatalf("the answer has %d bytes, want %d, of which the last few wait in a buffer", res.ContentLength, chars+last)
		}
		_, err = io.CopyN(io.Discard, res.Body, chars)
		must(t, err)
		time.Sleep(time.Until(began.Add(writeStall + timeAtPace(res.ContentLength) + time.Minute)))
		if rest, err := io.ReadAll(res.Body); err != nil || len(rest) != last {
			t.Errorf("the end has %d bytes of %d, %v", len(rest), last, err)
		}
	})
}

// Between two reads of a body, and after its end, the server may take its time.
func TestTheServersOwnTimeIsNoStallOfABody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const size, step = 64 << 10, readStep / 4
		var got int
		var left error
		conn := dial(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			x := &exchange{ResponseWriter: w}
			body, err := x.openBody(r, size)
			for n := 0; err == nil; got += n {
				time.Sleep(readStall / 2)
				n, err = body.Read(make([]byte, step))
			}
			if err != io.EOF {
				t.Errorf("a body that was there, but for pauses of the server: %v", err)
			}
			time.Sleep(2 * readStall)
			left = r.Context().Err()
			x.WriteHeader(http.StatusOK)
		}))
		var sender sync.WaitGroup
		sender.Go(func() {
			_, _ = fmt.Fprintf(conn, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%s", size, strings.Repeat("x", size))
		})
		res, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil || res.StatusCode != 200 || got != size || left != nil {
			t.Errorf("got %v, %v after %d bytes of %d; the request ended with %v", res, err, got, size, left)
		}
		sender.Wait()
	})
}

// Whoever is refused before the body has arrived is told so, and need not send it.
func TestARefusalDoesNotWaitForTheBodyForEver(t *testing.T) {
	for _, tt := range []struct {
		path, token, length string
		status              int
	}{
		{"/nowhere", "ann", "Content-Length: 100", 404},
		{turns, "ann", "Content-Length: 100", 415},
		{turns, "ann", "Transfer-Encoding: chunked", 415},
		{turns, "nobody", "Content-Length: 100", 401},
	} {
		synctest.Test(t, func(t *testing.T) {
			d := newHandler(t, projection.Options{})
			conn := dial(t, d.handler)
			_, err := fmt.Fprintf(conn, "POST %s HTTP/1.1\r\nHost: localhost:4478\r\nAuthorization: Bearer %s\r\n%s\r\n\r\n", tt.path, d.tokens[tt.token], tt.length)
			must(t, err)
			began := time.Now()
			answered := time.AfterFunc(time.Hour, func() { conn.Close() })
			in := bufio.NewReader(conn)
			res, err := http.ReadResponse(in, nil)
			if err != nil || res.StatusCode != tt.status || !res.Close {
				t.Fatalf("%s of %s without a body: got %v, %v after %s, want %d and the end of the connection", tt.path, tt.token, res, err, time.Since(began), tt.status)
			}
			answered.Stop()
			_, _ = io.Copy(io.Discard, res.Body)
			if _, err := in.ReadByte(); err != io.EOF {
				t.Errorf("%s of %s: the connection goes on: %v", tt.path, tt.token, err)
			}
		})
	}
}

func TestAClientThatDoesNotReadIsLeft(t *testing.T) {
	for _, tt := range []struct {
		path  string
		chars int
	}{
		{"/export", 1_000_000}, {"/messages", 1_000_000}, {"/replay", 1_000_000},
		{"/replay", 20_000}, // a socket may be full of what was not read before
		{"/replay", 10}, {"", 10}, {"/turns", 10},
	} {
		synctest.Test(t, func(t *testing.T) {
			d := newHandler(t, projection.Options{})
			d.fill("x", tt.chars)
			conn := dial(t, d.handler)
			d.ask(conn, "GET", "/v1/conversations/x"+tt.path)
			time.Sleep(2 * writeStall)
			synctest.Wait()
			v, _ := d.handler.(*server).visitors.Load(d.caller("ann"))
			if n := len(v.(*visitor).places); n != 0 {
				t.Errorf("%s of %d characters: %d requests still wait for their readers", tt.path, tt.chars, n)
			}
			if got, err := io.ReadAll(conn); err != nil || len(got) > 0 {
				t.Errorf("%s of %d characters: the connection had %d bytes more and error %v, want its end", tt.path, tt.chars, len(got), err)
			}
		})
	}
}

// fill makes a conversation of one long message.
func (d *daemon) fill(name string, chars int) {
	d.t.Helper()
	long := history.Message{Role: history.User, Kind: history.Person, Status: history.Complete, Content: []history.Block{history.Text(strings.Repeat("x", chars))}}
	_, err := d.engine.Log(d.caller("ann").Scope(), name).Append(d.t.Context(), history.Batch{Messages: []history.Message{long}})
	must(d.t, err)
}

// ask sends a request without a body.
func (d *daemon) ask(conn net.Conn, method, path string) {
	d.t.Helper()
	_, err := fmt.Fprintf(conn, "%s %s HTTP/1.1\r\nHost: localhost:4478\r\nAuthorization: Bearer %s\r\n\r\n", method, path, d.tokens["ann"])
	must(d.t, err)
}

// tell sends an append.
func (d *daemon) tell(conn net.Conn, body string) {
	d.t.Helper()
	_, err := fmt.Fprintf(conn, "POST %s HTTP/1.1\r\nHost: localhost:4478\r\nAuthorization: Bearer %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s",
		turns, d.tokens["ann"], len(body), body)
	must(d.t, err)
}

// A reader that is slow but goes on gets all, and what limits one response is not
// felt by the next.
func TestAClientMayReadSlowly(t *testing.T) {
	for _, tt := range []struct {
		path           string
		messages, size int
	}{
		{"/export", 8, 8 * holdBack}, {"/messages", 8, 8 * holdBack}, {"/export", 1, 8 * holdBack}, {"/messages", 1, 8 * holdBack},
		{"/replay", 1, light - 1000},
	} {
		synctest.Test(t, func(t *testing.T) {
			path := tt.path
			d := newHandler(t, projection.Options{})
			for range tt.messages {
				d.fill("x", tt.size/tt.messages)
			}
			conn := dial(t, d.handler)
			d.ask(conn, "GET", "/v1/conversations/x"+path)
			in := bufio.NewReader(conn)
			res, err := http.ReadResponse(in, nil)
			must(t, err)
			piece, size := make([]byte, holdBack/2), 0
			for n, err := 0, error(nil); err == nil; size += n {
				time.Sleep(writeStall / 4)
				n, err = io.ReadFull(res.Body, piece)
			}
			if size < tt.size {
				t.Errorf("%s: %d bytes arrived, want %d and more", path, size, tt.size)
			}
			time.Sleep(2 * writeStall)
			body := bodyOf(100)
			_, err = fmt.Fprintf(conn, "POST %s HTTP/1.1\r\nHost: localhost:4478\r\nAuthorization: Bearer %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\nExpect: 100-continue\r\n\r\n", turns, d.tokens["ann"], len(body))
			must(t, err)
			for _, want := range []int{http.StatusContinue, http.StatusCreated} {
				res, err := http.ReadResponse(in, nil)
				if err != nil || res.StatusCode != want {
					t.Fatalf("%s: the next request: got %v, %v, want %d", path, res, err, want)
				}
				if want == http.StatusContinue {
					_, err = io.WriteString(conn, body)
					must(t, err)
				}
			}
		})
	}
}

// slowly lets what is done to the record take its time.
func (d *daemon) slowly(op string, each time.Duration) {
	slow := func(now string) error {
		if now == op {
			time.Sleep(each)
		}
		return nil
	}
	d.engine.fail.Store(&slow)
}

// The time between two writes is the server's own.
func TestADownloadMayTakeTheServerLong(t *testing.T) {
	for _, tt := range []struct{ op, path, end string }{
		{"record", "/export", "\n}\n"}, {"record", "/export?format=jsonl", "}\n"}, {"record", "/export?format=openai", "]"},
		{"record", "/export?format=tar", "\x00"}, {"attachment", "/export?format=tar", "\x00"}, {"attachment", "/export", "\n}\n"},
		{"record", "/messages", "}"}, {"record", "/messages?order=desc", "}"},
	} {
		synctest.Test(t, func(t *testing.T) {
			d := newHandler(t, projection.Options{})
			d.fill("x", 10)
			d.fill("x", holdBack)
			d.picture("x")
			d.slowly(tt.op, 2*deadline)
			conn := dial(t, d.handler)
			d.ask(conn, "GET", "/v1/conversations/x"+tt.path)
			res, err := http.ReadResponse(bufio.NewReader(conn), nil)
			must(t, err)
			body, err := io.ReadAll(res.Body)
			if res.StatusCode != 200 || err != nil || !strings.HasSuffix(string(body), tt.end) {
				t.Errorf("%s, each %s taking %s: %d, %v, ends with %.100q\n%s", tt.path, tt.op, 2*deadline, res.StatusCode, err, body[max(0, len(body)-100):], d.logs.String())
			}
		})
	}
}

// picture appends a message with an attachment.
func (d *daemon) picture(name string) {
	d.t.Helper()
	data := []byte("a picture")
	m := history.Message{Role: history.User, Kind: history.Person, Status: history.Complete, Content: []history.Block{
		{Type: history.ImageBlock, MediaType: "image/png", Data: data, Attachment: history.AttachmentName(data)},
	}}
	_, err := d.engine.Log(d.caller("ann").Scope(), name).Append(d.t.Context(), history.Batch{Messages: []history.Message{m}})
	must(d.t, err)
}

func TestNobodyWaitsForTheRecordForEver(t *testing.T) {
	for _, tt := range []struct{ op, method, path string }{
		{"state", "GET", ""}, {"state", "GET", "/replay"}, {"view", "GET", "/replay"}, {"view", "GET", "/messages"},
		{"view", "GET", "/export"}, {"clear", "DELETE", ""},
	} {
		synctest.Test(t, func(t *testing.T) {
			d := newHandler(t, projection.Options{})
			d.fill("x", 10)
			conn := dial(t, d.handler)
			in := bufio.NewReader(conn)
			d.ask(conn, "GET", "/v1/whoami")
			res, err := http.ReadResponse(in, nil)
			must(t, err)
			_, _ = io.Copy(io.Discard, res.Body)
			d.engine.hang.Store(&tt.op)
			began := time.Now()
			d.ask(conn, tt.method, "/v1/conversations/x"+tt.path)
			res, err = http.ReadResponse(in, nil)
			must(t, err)
			if took := time.Since(began); res.StatusCode != 503 || took < deadline || took > 2*deadline {
				t.Errorf("%s of %s%s: %d after %s", tt.op, tt.method, tt.path, res.StatusCode, took)
			}
		})
	}
}
