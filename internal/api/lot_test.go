package api

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"

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

// A body of very many objects waits for a place of its own kind, however few bytes it has.
func TestBodiesOfVeryManyObjectsAreBounded(t *testing.T) {
	for _, tt := range []struct {
		name, path, body string
		status           int
	}{
		{"an append", turns, crowdOf(crowded, 1), 201},
		{"a replay with tools", "/v1/conversations/x/replay", `{"tools":[` + strings.TrimSuffix(strings.Repeat("{},", crowded), ",") + "]}", 400},
	} {
		synctest.Test(t, func(t *testing.T) {
			d := newHandler(t, projection.Options{})
			s := d.handler.(*server)
			lot := s.visit(d.caller("ann")).crowds
			for _, taken := range []struct {
				name   string
				places chan struct{}
				bob    int
			}{
				{"the caller's", lot.own, tt.status}, {"all callers'", lot.all, 429},
			} {
				leave := occupy(taken.places)
				if got := d.alone("ann", "POST", tt.path, tt.body); got.status != 429 || got.header.Get("Retry-After") != "1" {
					t.Errorf("%s, with %s places taken: %d %.200s", tt.name, taken.name, got.status, got.body)
				}
				want(t, d.alone("ann", "POST", turns, crowdOf(crowded-1, 1)), 201, "")
				if got := d.alone("bob", "POST", tt.path, tt.body); got.status != taken.bob {
					t.Errorf("%s of another, with %s places taken: %d %.200s", tt.name, taken.name, got.status, got.body)
				}
				leave()
				if got := d.alone("ann", "POST", tt.path, tt.body); got.status != tt.status || len(lot.own)+len(lot.all) > 0 {
					t.Errorf("%s, with no places taken: %d %.200s, and keeps %d and %d", tt.name, got.status, got.body, len(lot.own), len(lot.all))
				}
			}
		})
	}
}

// Who has the answer to such a body, and reads it slowly, keeps others from no place.
func TestABodyOfVeryManyObjectsHasItsPlaceUntilItIsAnswered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newHandler(t, projection.Options{})
		conn := dial(t, d.handler)
		d.tell(conn, crowdOf(crowded, 1))
		res, err := http.ReadResponse(bufio.NewReader(conn), nil)
		must(t, err)
		synctest.Wait() // the rest of the answer is ready to be read
		lot := d.handler.(*server).visit(d.caller("ann")).crowds
		if res.StatusCode != 201 || res.ContentLength < sendStep || len(lot.own)+len(lot.all) > 0 {
			t.Errorf("the answer is %d, of %d bytes, and keeps %d and %d", res.StatusCode, res.ContentLength, len(lot.own), len(lot.all))
		}
	})
}
