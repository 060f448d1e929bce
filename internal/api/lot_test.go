package api

import (
	"bufio"
	"context"
	"encoding/base64"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"

	"historyd/internal/history"
	"historyd/internal/projection"
)

// alone asks the handler without a connection, so that its time is the test's.
func (d *daemon) alone(caller, method, path, body string) reply {
	d.t.Helper()
	ctx := context.WithValue(d.t.Context(), http.LocalAddrContextKey, &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 4478})
	r := httptest.NewRequestWithContext(ctx, method, d.url+path, strings.NewReader(body))
	r.Header.Set("Authorization", "Bearer "+d.tokens[caller])
	r.Header.Set("Content-Type", "application/json")
	w := httptest.NewRecorder()
	d.handler.ServeHTTP(w, r)
	return reply{w.Code, w.Header(), w.Body.String()}
}

// occupy takes all of some places, and returns what gives them back.
func occupy(places ...chan struct{}) (leave func()) {
	for _, p := range places {
		for range cap(p) {
			p <- struct{}{}
		}
	}
	return func() {
		for _, p := range places {
			for range cap(p) {
				<-p
			}
		}
	}
}

func TestWhatIsLargeIsBoundedForACallerAndForAll(t *testing.T) {
	const large, small = light + 100, 1000
	asked := 0 // so that none is answered from what is known
	ways := []struct {
		name   string
		status int
		lot    func(*visitor) lot
		ask    func(d *daemon, caller string, size int) reply
	}{
		{"bodies", 201, func(v *visitor) lot { return v.bodies }, func(d *daemon, caller string, size int) reply {
			return d.alone(caller, "POST", turns, bodyOf(size))
		}},
		{"replays", 200, func(v *visitor) lot { return v.replays }, func(d *daemon, caller string, size int) reply {
			name := map[int]string{large: "large", small: "small"}[size]
			asked++
			return d.alone(caller, "GET", fmt.Sprintf("/v1/conversations/%s/replay?max_tokens=%d", name, 1_000_000+asked), "")
		}},
		{"replays that were answered before", 200, func(v *visitor) lot { return v.replays }, func(d *daemon, caller string, size int) reply {
			return d.alone(caller, "GET", "/v1/conversations/"+map[int]string{large: "large", small: "small"}[size]+"/replay", "")
		}},
		{"attachments", 200, func(v *visitor) lot { return v.files }, func(d *daemon, caller string, size int) reply {
			if size == small { // nobody knows before it is read
				return reply{status: 200}
			}
			return d.alone(caller, "GET", "/v1/conversations/small/attachments/"+strings.TrimPrefix(history.AttachmentName([]byte("a picture")), "sha256:"), "")
		}},
		{"replays with what is known", 200, func(v *visitor) lot { return v.replays }, func(d *daemon, caller string, size int) reply {
			if size == small { // may be large for what is recalled
				return reply{status: 200}
			}
			return d.alone(caller, "POST", "/v1/conversations/large/replay", `{"recall":{"query":"x"}}`)
		}},
	}
	for _, tt := range ways {
		synctest.Test(t, func(t *testing.T) {
			d := newHandler(t, projection.Options{})
			for _, who := range []string{"ann", "bob"} {
				for name, size := range map[string]int{"large": large, "small": small} {
					want(t, d.alone(who, "POST", "/v1/conversations/"+name+"/turns", bodyOf(size)), 201, "")
				}
			}
			for _, who := range []string{"ann", "bob"} {
				want(t, d.alone(who, "POST", "/v1/conversations/small/turns", `{"messages":[{"role":"user","content":[{"type":"image","media_type":"image/png","data":"`+base64.StdEncoding.EncodeToString([]byte("a picture"))+`"}]}]}`), 201, "")
				tt.ask(d, who, large)
			}
			lot := tt.lot(d.handler.(*server).visit(d.caller("ann")))
			for _, taken := range []struct {
				name     string
				places   []chan struct{}
				ann, bob int
			}{
				{"the caller's", []chan struct{}{lot.own}, 429, tt.status},
				{"all callers'", []chan struct{}{lot.all}, tt.status, tt.status}, // the first is everybody's own
				{"all callers' and the caller's first", []chan struct{}{lot.all, lot.first}, 429, tt.status},
			} {
				leave := occupy(taken.places...)
				if got := tt.ask(d, "ann", large); got.status != taken.ann || got.status == 429 && got.header.Get("Retry-After") != "1" {
					t.Errorf("%s, with %s places taken: %d %.200s", tt.name, taken.name, got.status, got.body)
				}
				if got := tt.ask(d, "ann", small); got.status != tt.status {
					t.Errorf("%s that are small, with %s places taken: %d %.200s", tt.name, taken.name, got.status, got.body)
				}
				if got := tt.ask(d, "bob", large); got.status != taken.bob {
					t.Errorf("%s of another, with %s places taken: %d %.200s", tt.name, taken.name, got.status, got.body)
				}
				leave()
				if got := tt.ask(d, "ann", large); got.status != tt.status || len(lot.own)+len(lot.first)+len(lot.all) > 0 {
					t.Errorf("%s, with no places taken: %d %.200s, and keeps %d, %d and %d", tt.name, got.status, got.body, len(lot.own), len(lot.first), len(lot.all))
				}
			}
		})
	}
}

// crowdOf is an append of so many messages.
func crowdOf(n, chars int) string {
	one := `{"role":"user","content":"` + strings.Repeat("x", chars) + `"},`
	return `{"messages":[` + strings.TrimSuffix(strings.Repeat(one, n), ",") + "]}"
}

// Bodies of many objects wait for room, however few bytes they have, and those of few don't.
func TestBodiesOfVeryManyObjectsAreBounded(t *testing.T) {
	tools := func(n int) string {
		return `{"tools":[` + strings.TrimSuffix(strings.Repeat("{},", n-1), ",") + "]}"
	}
	crowdOf := func(n int) string { return crowdOf(n-1, 1) }
	for _, tt := range []struct {
		name, path string
		body       func(objects int) string
		status     int
	}{
		{"an append", turns, crowdOf, 201}, {"a replay with tools", "/v1/conversations/x/replay", tools, 400},
	} {
		synctest.Test(t, func(t *testing.T) {
			d := newHandler(t, projection.Options{})
			crowd := d.handler.(*server).visit(d.caller("ann")).crowd
			for _, taken := range []struct {
				name                   string
				own, all               int64
				objects, ann, bob, few int
			}{
				{"none", 0, 0, mostObjects + manyObjects, tt.status, tt.status, tt.status},
				{"all of the caller's", objectsAtOnce, 0, fewObjects + 1, 429, tt.status, tt.status},
				{"some of the caller's", objectsAtOnce - manyObjects, 0, manyObjects, tt.status, tt.status, tt.status},
				{"more of the caller's", objectsAtOnce - manyObjects, 0, manyObjects + 1, 429, tt.status, tt.status},
				{"all callers'", 0, crowdsAtOnce * objectsAtOnce, manyObjects + 1, 429, 429, tt.status},
				{"all callers', but it is not so many", 0, crowdsAtOnce * objectsAtOnce, manyObjects, tt.status, tt.status, tt.status},
			} {
				must(t, crowd.own.Acquire(t.Context(), taken.own))
				must(t, crowd.all.Acquire(t.Context(), taken.all))
				if got := d.alone("ann", "POST", tt.path, tt.body(taken.objects)); got.status != taken.ann || got.status == 429 && got.header.Get("Retry-After") != "1" {
					t.Errorf("%s of %d objects, with %s taken: %d %.200s", tt.name, taken.objects, taken.name, got.status, got.body)
				}
				if got := d.alone("bob", "POST", tt.path, tt.body(taken.objects)); got.status != taken.bob {
					t.Errorf("%s of %d objects of another, with %s taken: %d %.200s", tt.name, taken.objects, taken.name, got.status, got.body)
				}
				if got := d.alone("ann", "POST", tt.path, tt.body(fewObjects)); got.status != taken.few {
					t.Errorf("%s of few objects, with %s taken: %d %.200s", tt.name, taken.name, got.status, got.body)
				}
				crowd.own.Release(taken.own)
				crowd.all.Release(taken.all)
				if !crowd.own.TryAcquire(objectsAtOnce) || !crowd.all.TryAcquire(crowdsAtOnce*objectsAtOnce) {
					t.Fatalf("%s of %d objects, after %s were taken: keeps some", tt.name, taken.objects, taken.name)
				}
				crowd.own.Release(objectsAtOnce)
				crowd.all.Release(crowdsAtOnce * objectsAtOnce)
			}
		})
	}
}

// Bytes count as objects do, from those on that anybody may have.
func TestBodiesOfManyBytesShareTheRoomOfObjects(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newHandler(t, projection.Options{})
		crowd := d.handler.(*server).visit(d.caller("ann")).crowd
		// The body has two objects of its own.
		few, more := bodyOf(light+(fewObjects-2)*objectBytes), bodyOf(light+(fewObjects-1)*objectBytes)
		for _, tt := range []struct {
			name   string
			taken  int64
			body   string
			status int
		}{
			{"few, without room", objectsAtOnce, few, 201}, {"more, without room", objectsAtOnce, more, 429},
			{"more, with too little room", objectsAtOnce - fewObjects, more, 429}, {"more, with room", objectsAtOnce - fewObjects - 1, more, 201},
		} {
			must(t, crowd.own.Acquire(t.Context(), tt.taken))
			if got := d.alone("ann", "POST", turns, tt.body); got.status != tt.status {
				t.Errorf("%s: %d %.200s", tt.name, got.status, got.body)
			}
			crowd.own.Release(tt.taken)
		}
	})
}

// Who has the answer to such a body, and reads it slowly, keeps no room from others.
func TestABodyOfVeryManyObjectsHasItsRoomUntilItIsAnswered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newHandler(t, projection.Options{})
		conn := dial(t, d.handler)
		d.tell(conn, crowdOf(2*manyObjects, 1))
		res, err := http.ReadResponse(bufio.NewReader(conn), nil)
		must(t, err)
		synctest.Wait() // the rest of the answer is ready to be read
		crowd := d.handler.(*server).visit(d.caller("ann")).crowd
		if res.StatusCode != 201 || res.ContentLength < sendStep || !crowd.own.TryAcquire(objectsAtOnce) || !crowd.all.TryAcquire(crowdsAtOnce*objectsAtOnce) {
			t.Errorf("the answer is %d, of %d bytes, or keeps some room", res.StatusCode, res.ContentLength)
		}
	})
}
