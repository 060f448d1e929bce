package api

import (
	"bytes"
	"errors"
	"io"
	"math"
	"mime"
	"net/http"
	"os"
	"slices"
	"strings"
	"time"

	"historyd/internal/strictjson"
)

// checkType refuses a body that is not of one of the media types, in UTF-8 and not
// compressed, and returns which it is of.
func checkType(r *http.Request, types ...string) (string, error) {
	unsupported := &problem{code: "unsupported_media_type"}
	if len(types) > 1 {
		unsupported.detail = "send a Content-Type, one of " + strings.Join(types, ", ") + ", in UTF-8, not compressed"
	}
	if encoding := r.Header["Content-Encoding"]; len(encoding) > 1 || len(encoding) == 1 && !strings.EqualFold(encoding[0], "identity") {
		return "", unsupported
	}
	given := r.Header["Content-Type"]
	if len(given) != 1 {
		return "", unsupported
	}
	if given[0] == types[0] {
		return types[0], nil
	}
	media, params, err := mime.ParseMediaType(given[0])
	if err != nil {
		return "", unsupported
	}
	if charset, ok := params["charset"]; ok && !strings.EqualFold(charset, "utf-8") {
		return "", unsupported
	}
	for _, t := range types {
		if media == t {
			return t, nil
		}
	}
	return "", unsupported
}

// A body may take long to arrive, but it may not stall: within readStall of waiting for
// it at least readStep bytes more must come, or its end.
const (
	readStall = 30 * time.Second
	readStep  = 4 << 10
)

// pace is how many bytes a second a client must send or take, readStall or writeStall aside, where it keeps a place from others.
const pace = 256 << 10

// readBody reads the whole body, of at most limit bytes. A large one takes a place until the request is over; until it has
// one, no more is read, and from then on the client must keep the pace.
func (x *exchange) readBody(r *http.Request, limit int64) ([]byte, error) {
	body, err := x.openBody(r, limit)
	if err != nil {
		return nil, err
	}
	buf := make([]byte, 0, min(max(r.ContentLength, 0), 64<<10)+512)
	for {
		if len(buf) > light && x.drop == nil {
			if x.drop, err = x.visitor.bodies.take(r, patience); err != nil { // whatever time the client took
				return nil, err
			}
			body.hurry()
			buf = slices.Grow(buf, int(max(r.ContentLength-int64(len(buf)), 0))+512)
		}
		if len(buf) == cap(buf) {
			buf = append(buf, 0)[:len(buf)]
		}
		n, err := body.Read(buf[len(buf):cap(buf)])
		buf = buf[:len(buf)+n]
		if err == io.EOF {
			return buf, x.crowd(r, buf)
		}
		if err != nil {
			return nil, err
		}
	}
}

// crowd takes room for a body of many objects or of many bytes, until the answer to it is there.
func (x *exchange) crowd(r *http.Request, body []byte) (err error) {
	if len(body) <= fewObjects {
		return nil
	}
	if n := bytes.Count(body, []byte("{")) + max(len(body)-light, 0)/objectBytes; n > fewObjects {
		x.uncrowd, err = x.visitor.crowd.take(r, int64(n), patience) // whatever time the client took
	}
	return err
}

// disperse gives the room of a body of many objects back. A second call does nothing.
func (x *exchange) disperse() {
	if x.uncrowd != nil {
		x.uncrowd()
	}
}

// readJSON reads a body that is one JSON value, and checks it.
func (x *exchange) readJSON(r *http.Request, limit int64) (strictjson.Value, error) {
	if _, err := checkType(r, "application/json"); err != nil {
		return strictjson.Value{}, err
	}
	body, err := x.readBody(r, limit)
	if err != nil {
		return strictjson.Value{}, err
	}
	if err := strictjson.Check(body); err != nil {
		return strictjson.Value{}, err
	}
	return strictjson.Document(body), nil
}

// A bodyReader reads a body while it arrives. Its errors are problems, and io.EOF.
type bodyReader struct {
	x      *exchange
	r      *http.Request
	limit  int64
	rc     *http.ResponseController
	reader io.Reader
	read   int64
	next   int64         // how much must have arrived before the client gets more time
	left   time.Duration // how long may be waited until then
	rest   time.Duration // how long may be waited for all that is to come
}

// openBody begins to read a body of at most limit bytes.
func (x *exchange) openBody(r *http.Request, limit int64) (*bodyReader, error) {
	if r.ContentLength > limit {
		return nil, x.tooLarge(limit, &r.ContentLength)
	}
	if len(r.Header["Expect"]) > 0 {
		x.boundWrites() // the first read writes that we are ready for more
	}
	return &bodyReader{
		x: x, r: r, limit: limit, rc: http.NewResponseController(x.ResponseWriter),
		reader: http.MaxBytesReader(x.ResponseWriter, r.Body, limit),
		next:   readStep, left: readStall, rest: math.MaxInt64,
	}, nil
}

// tooLarge refuses a body. What does not go into an append may go into an import.
func (x *exchange) tooLarge(limit int64, actual *int64) error {
	p := &problem{code: "body_too_large", limit: &limit, actual: actual}
	switch {
	case strings.HasSuffix(x.route.pattern, "/turns"):
		p.detail = "send less at a time, or use import for a whole conversation; limits.body is the limit"
	case strings.HasSuffix(x.route.pattern, "/import"):
		p.detail = "send less at a time; limits.import is the limit"
	}
	return p
}

// hurry makes the client keep the pace from now on.
func (b *bodyReader) hurry() {
	size := b.r.ContentLength
	if size < 0 {
		size = b.limit
	}
	b.rest = readStall + timeAtPace(size-b.read)
}

func timeAtPace(n int64) time.Duration { return time.Duration(n) * (time.Second / pace) }

// Read waits for the client. What the server does between two reads is no fault of the
// client's: only the time within them counts.
func (b *bodyReader) Read(p []byte) (int, error) {
	began := time.Now()
	_ = b.rc.SetReadDeadline(began.Add(min(b.left, b.rest)))
	n, err := b.reader.Read(p)
	// net/http waits for the end of the connection while a request is served, so a
	// deadline that were left would end the request.
	_ = b.rc.SetReadDeadline(time.Time{})
	took := time.Since(began)
	b.left -= took
	b.rest -= took
	if b.read += int64(n); b.read >= b.next {
		b.next, b.left = b.read+readStep, readStall
	}
	switch {
	case err == io.EOF:
		b.x.unread = false
	case err != nil:
		err = b.x.cutOff(b.limit, err)
	}
	return n, err
}

// cutOff says why a body could not be read.
func (x *exchange) cutOff(limit int64, err error) error {
	var large *http.MaxBytesError
	switch {
	case errors.As(err, &large):
		return x.tooLarge(limit, nil)
	case errors.Is(err, os.ErrDeadlineExceeded):
		x.stalled = true
		x.Header()["Connection"] = closing
		return &problem{code: "invalid_json", detail: "the body did not arrive in time"}
	}
	// The client went away, or its framing is broken: it will hardly read this.
	x.gone = x.presence.left()
	return &problem{code: "invalid_json", detail: "the body ended too early"}
}
