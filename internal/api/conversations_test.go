package api

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"testing"

	"historyd/internal/history"
	"historyd/internal/identity"
	"historyd/internal/projection"
)

func (d *daemon) caller(name string) identity.Caller {
	d.t.Helper()
	p := people[name]
	c, err := identity.NewCaller(p[0], p[1], p[2], p[3])
	must(d.t, err)
	return c
}

func TestOneCallerSeesNothingOfAnother(t *testing.T) {
	d := newDaemon(t, projection.Options{})
	for name := range people {
		for _, c := range []string{"default", "shared"} {
			d.say(name, c, "canary of "+name+".")
		}
	}
	for name := range people {
		for _, path := range []string{"/v1/history/messages", "/v1/history/replay", "/v1/history/export", "/v1/conversations", "/v1/conversations/shared", "/v1/history"} {
			got := d.get(name, path)
			want(t, got, 200, "")
			for other := range people {
				if has := strings.Contains(got.body, "canary of "+other+"."); has != (other == name) {
					t.Errorf("%s at %s: of %s %t: %s", name, path, other, has, got.body)
				}
			}
		}
	}
	want(t, d.send(request{method: "DELETE", path: "/v1/conversations", caller: "mesh-ann"}), 204, "")
	for name := range people {
		got := d.get(name, "/v1/history/messages")
		if cleared := !strings.Contains(got.body, "canary"); cleared != (name == "mesh-ann") {
			t.Errorf("%s after the clear of mesh-ann: %s", name, got.body)
		}
	}
}

func TestAnothersAndAMissingConversationAreTheSameBytes(t *testing.T) {
	d := newDaemon(t, projection.Options{})
	d.say("bob", "his", "hi")
	for _, path := range []string{"", "/export", "/messages", "/replay", "/export?format=openai"} {
		his, none := d.get("ann", "/v1/conversations/his"+path), d.get("ann", "/v1/conversations/its"+path)
		none.body = strings.ReplaceAll(none.body, `"its"`, `"his"`)
		if a, b := requestID.ReplaceAllString(his.body, ""), requestID.ReplaceAllString(none.body, ""); a != b || his.status != none.status || his.header.Get("ETag") != none.header.Get("ETag") {
			t.Errorf("%s\n%d %s\n%d %s", path, his.status, a, none.status, b)
		}
	}
	a := d.send(request{method: "DELETE", path: "/v1/conversations/his", caller: "ann"})
	b := d.send(request{method: "DELETE", path: "/v1/conversations/its", caller: "ann"})
	if a.status != 204 || b.status != 204 {
		t.Errorf("clears: %d, %d", a.status, b.status)
	}
	want(t, d.get("bob", "/v1/conversations/his"), 200, "")
}

func TestAConversationByItself(t *testing.T) {
	d := newDaemon(t, projection.Options{})
	want(t, d.get("ann", "/v1/conversations/x"), 404, "not_found")
	d.say("ann", "x", "A title\non two lines")
	got := d.get("ann", "/v1/conversations/x")
	if !strings.HasPrefix(got.body, `{"name":"x","title":"A title on two lines","messages":2,"turns":1,"bytes":`) ||
		!strings.HasSuffix(got.body, `,"last_seq":2,"summary":null,"damaged":false}`) || got.header.Get("ETag") == "" {
		t.Errorf("got %s", got.body)
	}
	for i := range 20 {
		d.say("ann", "x", fmt.Sprint(i))
	}
	if got := d.get("ann", "/v1/conversations/x"); !strings.Contains(got.body, `"summary":{"text":`) || !strings.HasSuffix(got.body, `"source":"digest"},"damaged":false}`) {
		t.Errorf("got %s", got.body)
	}
	tag := d.get("ann", "/v1/conversations/x").header.Get("ETag")
	if got := d.send(request{method: "GET", path: "/v1/conversations/x", caller: "ann", header: http.Header{"If-None-Match": {tag}}}); got.status != 304 {
		t.Errorf("If-None-Match: %d", got.status)
	}
}

func TestTheListHasEachConversationOnce(t *testing.T) {
	d := newDaemon(t, projection.Options{})
	want(t, d.get("ann", "/v1/conversations"), 200, "")
	if got := d.get("ann", "/v1/conversations"); got.body != `{"object":"list","data":[],"has_more":false,"next":null}` {
		t.Errorf("an empty list: %s", got.body)
	}
	var names []string
	for _, i := range rand.New(rand.NewPCG(1, 2)).Perm(25) {
		name := fmt.Sprintf("c%d", i)
		d.say("ann", name, "hi")
		names = append(names, name)
	}
	slices.Reverse(names) // newest activity first
	for _, limit := range []int{1, 7, 25, 1000} {
		var seen []string
		cursor := ""
		for {
			page := as[listReply](t, d.get("ann", fmt.Sprintf("/v1/conversations?limit=%d%s", limit, cursor)))
			for _, item := range page.Data {
				seen = append(seen, item.Name)
				if item.Summary != nil || item.Title != "hi" || item.LastSeq != 2 {
					t.Errorf("item %+v", item)
				}
			}
			if page.HasMore != (page.Next != nil) || len(page.Data) > limit {
				t.Fatalf("page %+v", page)
			}
			if page.Next == nil {
				break
			}
			cursor = "&cursor=" + *page.Next
		}
		if !slices.Equal(seen, names) {
			t.Errorf("limit %d: %q, want %q", limit, seen, names)
		}
	}
	for _, query := range []string{"limit=0", "limit=-1", "limit=1001", "limit=abc", "limit=", "limit=%2B5", "limit=99999999999999999999", "cursor=", "cursor=no%20such", "cursor=*", "cursor=01K00000000000000000000000", "page=0", "size=1000000000", "offset=-1"} {
		want(t, d.get("ann", "/v1/conversations?"+query), 400, "invalid_parameter")
	}
}

func TestPagesOfMessages(t *testing.T) {
	d := newDaemon(t, projection.Options{})
	const empty = `{"object":"list","data":[],"first_seq":0,"last_seq":0,"has_more":false}`
	if got := d.get("ann", "/v1/conversations/x/messages"); got.status != 200 || got.body != empty {
		t.Errorf("a conversation that does not exist: %d %s", got.status, got.body)
	}
	for range 25 {
		d.say("ann", "x", "hi")
	}
	const path = "/v1/conversations/x/messages"
	for _, tt := range []struct {
		query       string
		first, last int64
		more        bool
	}{
		{"", 1, 50, false}, {"?limit=10", 1, 10, true}, {"?limit=10&after=40", 41, 50, false}, {"?limit=10&after=41", 42, 50, false},
		{"?order=desc&limit=10", 41, 50, true}, {"?order=desc&limit=10&before=11", 1, 10, false}, {"?order=desc&limit=10&before=12", 2, 11, true},
		{"?after=10&before=21&order=desc", 11, 20, false}, {"?after=10&before=21&limit=5", 11, 15, true}, {"?after=10&before=12", 11, 11, false},
		{"?after=50", 0, 0, false}, {"?before=1", 0, 0, false}, {"?before=0", 0, 0, false}, {"?after=9223372036854775807", 0, 0, false}, {"?after=10&before=11", 0, 0, false},
	} {
		page := as[pageBody](t, d.get("ann", path+tt.query))
		if page.FirstSeq != tt.first || page.LastSeq != tt.last || page.HasMore != tt.more || page.Object != "list" {
			t.Errorf("%s: %d to %d, more %t; want %+v", tt.query, page.FirstSeq, page.LastSeq, page.HasMore, tt)
		}
	}
	for _, query := range []string{"limit=0", "limit=-1", "limit=1001", "limit=1e3", "limit=%201", "after=-1", "before=-1", "after=x", "order=ASC", "order=", "after=1&after=1", "page=1", "after=9223372036854775808"} {
		want(t, d.get("ann", path+"?"+query), 400, "invalid_parameter")
		want(t, d.get("ann", "/v1/conversations/none/messages?"+query), 400, "invalid_parameter")
	}
}

func TestPagesOfMuchTextAreWhole(t *testing.T) {
	d := newDaemon(t, projection.Options{})
	text := strings.Repeat("much text ", 20_000)
	for range 5 {
		d.say("ann", "x", text)
	}
	got := d.get("ann", "/v1/conversations/x/messages")
	if page := as[pageBody](t, got); len(page.Data) != 10 || page.LastSeq != 10 || len(got.body) < 5*len(text) {
		t.Errorf("%d messages in %d bytes", len(page.Data), len(got.body))
	}
	if got := d.get("ann", replayOfX); strings.Count(got.body, text) != 5 {
		t.Errorf("a replay of %d bytes", len(got.body))
	}
}

func TestClearAnswersTheSameAgain(t *testing.T) {
	d := newDaemon(t, projection.Options{})
	d.say("ann", "x", "canary")
	tag := d.get("ann", "/v1/conversations/x").header.Get("ETag")
	for range 2 {
		got := d.send(request{method: "DELETE", path: "/v1/conversations/x", caller: "ann"})
		if got.status != 204 || got.body != "" {
			t.Errorf("got %d %s", got.status, got.body)
		}
	}
	for name, content := range d.disk.Files() {
		if strings.Contains(string(content), "canary") {
			t.Errorf("the cleared text is in %s", name)
		}
	}
	want(t, d.post("ann", turns, `{"messages":[{"role":"user","content":"late"}]}`, "If-Match", tag), 412, "precondition_failed")
	if a := d.say("ann", "x", "anew"); a.FirstSeq != 1 {
		t.Errorf("the next life begins at %d", a.FirstSeq)
	}
	if now := d.get("ann", "/v1/conversations/x").header.Get("ETag"); now == tag || now[:5] == tag[:5] {
		t.Errorf("the next life has ETag %s, the last had %s", now, tag)
	}
	d.say("ann", "default", "x")
	want(t, d.send(request{method: "DELETE", path: "/v1/history", caller: "ann"}), 204, "")
	want(t, d.get("ann", "/v1/conversations/default"), 404, "not_found")
}

func TestAListTellsHowManyItCannotName(t *testing.T) {
	d := newDaemon(t, projection.Options{})
	d.say("ann", "x", "the first")
	d.say("ann", "y", "the second")
	d.say("bob", "y", "the third")
	for name, content := range d.disk.Files() {
		if bytes.Contains(content, []byte("the first")) {
			d.disk.Corrupt(name, func([]byte) []byte { return []byte("nothing\n") })
		}
	}
	if got := d.get("ann", "/v1/conversations").body; !strings.HasSuffix(strings.TrimSpace(got), `"has_more":false,"next":null,"unnamed":1}`) || strings.Count(got, `"name"`) != 1 {
		t.Errorf("her list is %s", got)
	}
	if got := d.get("bob", "/v1/conversations").body; strings.Contains(got, "unnamed") {
		t.Errorf("his list is %s", got)
	}
}

// A place in the list is not lost when the conversation there goes, or moves to the front, and it is of its caller alone.
func TestAPlaceInTheListOutlivesItsConversation(t *testing.T) {
	d := newDaemon(t, projection.Options{})
	for i := range 10 {
		d.say("ann", fmt.Sprint("c", i), "hi")
	}
	names := func(caller, query string) (list []string) {
		for _, item := range as[listReply](t, d.get(caller, "/v1/conversations?limit=3"+query)).Data {
			list = append(list, item.Name)
		}
		return list
	}
	next := "&cursor=" + *as[listReply](t, d.get("ann", "/v1/conversations?limit=3")).Next
	for _, what := range []string{"as it was", "cleared", "in use"} {
		switch what {
		case "cleared":
			want(t, d.send(request{method: "DELETE", path: "/v1/conversations/c7", caller: "ann"}), 204, "")
		case "in use":
			d.say("ann", "c7", "again")
		}
		if got := names("ann", next); !slices.Equal(got, []string{"c6", "c5", "c4"}) {
			t.Errorf("%s: the next page has %q", what, got)
		}
	}
	if got := names("bob", next); len(got) != 0 {
		t.Errorf("the place of another caller shows %q", got)
	}
}

// What is cleared takes along all that was made of it, and nothing of any other conversation, also where both hold the
// same bytes.
func TestAClearedConversationBeginsAnewAndTakesNothingOfOthers(t *testing.T) {
	d := newDaemon(t, projection.Options{})
	hash := strings.TrimPrefix(history.AttachmentName(picture(1)), "sha256:")
	image := `{"messages":[{"role":"user","content":[{"type":"text","text":"the title"},{"type":"image","media_type":"image/png","data":"` + base64.StdEncoding.EncodeToString(picture(1)) + `"}],"metadata":{"m":1}}]}`
	places := [][2]string{{"ann", "x"}, {"ann", "y"}, {"bob", "x"}}
	for _, p := range places {
		want(t, d.post(p[0], "/v1/conversations/"+p[1]+"/turns", image, "Idempotency-Key", "k"), 201, "")
		for i := range 20 {
			d.say(p[0], p[1], fmt.Sprint("turn ", i))
		}
		want(t, d.post(p[0], "/v1/conversations/"+p[1]+"/rewind", `{"through_seq":39}`), 200, "")
	}
	before := as[conversationReply](t, d.get("ann", "/v1/conversations/x"))
	if before.Title != "the title" || len(before.Summary) < 10 {
		t.Fatalf("before: %+v", before)
	}
	want(t, d.send(request{method: "DELETE", path: "/v1/conversations/x", caller: "ann"}), 204, "")
	for _, p := range places[1:] {
		got := d.get(p[0], "/v1/conversations/"+p[1]+"/attachments/"+hash)
		if want(t, got, 200, ""); got.body != string(picture(1)) {
			t.Errorf("%v: %d bytes come back", p, len(got.body))
		}
		if now := as[conversationReply](t, d.get(p[0], "/v1/conversations/"+p[1])); now.Title != "the title" || len(now.Summary) < 10 || now.Messages != before.Messages {
			t.Errorf("%v is now %+v", p, now)
		}
	}
	if got := d.post("ann", turns, `{"messages":[{"role":"assistant","content":"anew"}]}`, "Idempotency-Key", "k"); got.status != 201 || got.header.Get("Idempotent-Replayed") != "" {
		t.Errorf("a key of the last life: %d %s", got.status, got.body)
	}
	now := as[conversationReply](t, d.get("ann", "/v1/conversations/x"))
	if now.Title != "" || string(now.Summary) != "null" || now.Messages != 1 || now.Turns != 0 || now.CreatedAt == before.CreatedAt || now.Bytes >= before.Bytes/10 {
		t.Errorf("the next life begins as %+v", now)
	}
	want(t, d.get("ann", "/v1/conversations/x/attachments/"+hash), 404, "not_found")
	if got := d.get("ann", replayOfX).body; !strings.Contains(got, `"messages":[{`) || strings.Contains(got, "turn 1") || strings.Contains(got, `"summary"`) {
		t.Errorf("the next life is replayed as %s", got)
	}
}
