package attack

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"
)

// whole are bodies that are wrong as such, whatever the route.
func whole() map[string][]byte {
	const turn = `{"messages":[{"role":"user","content":"zqmark"}]}`
	utf16 := func(text string, first, second int) []byte {
		b := []byte{}
		for _, r := range text {
			b = append(b, byte(r>>(8*first)), byte(r>>(8*second)))
		}
		return b
	}
	list := map[string][]byte{
		"nothing": {}, "white space": []byte(" \n\t"), "NULs": make([]byte, 100), "a byte order mark": []byte("\ufeff" + turn), "UTF-16, little end first": append([]byte{0xff, 0xfe}, utf16(turn, 0, 1)...),
		"UTF-16, big end first": append([]byte{0xfe, 0xff}, utf16(turn, 1, 0)...), "UTF-16 without a mark": utf16(turn, 0, 1), "gzip": []byte("\x1f\x8b\x08\x00\x00\x00\x00\x00"), "a form": []byte("messages=zqmark&to=zqmark"),
		"a multipart form": []byte("--zqmark\r\nContent-Disposition: form-data; name=\"x\"\r\n\r\n{}\r\n--zqmark--"), "XML": []byte(`<?xml version="1.0"?><!DOCTYPE x [<!ENTITY zqmark SYSTEM "file:///etc/passwd">]><x>&zqmark;</x>`), "YAML": []byte("messages:\n- role: zqmark"), "MessagePack": []byte("\x81\xa8messages\x90"), "CBOR": []byte("\xa1\x68messages\x80"),
		"two documents": []byte(turn + turn), "two documents on lines": []byte(turn + "\n" + turn), "a NUL behind": []byte(turn + "\x00"), "garbage behind": []byte(turn + "zqmark"), "a bracket behind": []byte(turn + "}"), "a comment behind": []byte(turn + "//zqmark"), "a comma behind": []byte(turn + ","),
		"a guard before": []byte(")]}',\n" + turn), "a call around": []byte("zqmark(" + turn + ")"), "parentheses around": []byte("(" + turn + ")"), "a text of it": fmt.Appendf(nil, "%q", turn), "100,000 members": []byte(`{` + members(100_000) + `}`), "a name of a megabyte": []byte(`{"` + strings.Repeat("zqmark ", 150_000) + `":1}`),
		"nine megabytes": []byte(`{"messages":[{"role":"user","content":"` + strings.Repeat("zqmark ", 1_350_000) + `"}]}`),
	}
	for i := 1; i < len(turn); i++ {
		list[fmt.Sprintf("cut at %d", i)] = []byte(turn[:i])
	}
	return list
}

// large says whether a place gets what is large, too.
func (p place) large() bool { return p.body == "HOLE" || p.any }

// takes are the types of JSON of which a place takes some value, in the order of their first letters.
type takes map[string]bool

func (v value) kind() string {
	switch strings.TrimSpace(v.text)[0] {
	case '{':
		return "object"
	case '[':
		return "array"
	case '"':
		return "string"
	case 'n':
		return "null"
	case 't', 'f':
		return "boolean"
	}
	return "number"
}

// An assault sends documents, and judges the answers.
type assault struct {
	d     *target
	w     *wire
	n     int
	taken map[string]takes // by name of a place
}

func (s *assault) send(p place, name string, body []byte) answer {
	t := s.d.t
	t.Helper()
	s.n++
	a := s.document(p.path, body)
	if a.status < 300 {
		if !json.Valid(a.body) {
			t.Errorf("%s ← %s: an answer that is no JSON: %.300s", p.name, name, a.body)
		}
		return a
	}
	if a.mustBeProblem(t, p.name+" ← "+name); a.status < 400 || a.status >= 500 {
		t.Errorf("%s ← %s: %d %.300s", p.name, name, a.status, a.body)
	}
	if bytes.Contains(bytes.ToLower(a.body), []byte(marker)) || bytes.Contains(a.body, []byte("4242424242")) {
		t.Errorf("%s ← %s: the answer repeats what was sent: %.300s", p.name, name, a.body)
	}
	return a
}

// document sends a body to a route of mallory's conversation x.
func (s *assault) document(path string, body []byte) answer {
	s.d.t.Helper()
	if s.w == nil {
		s.w = s.d.dial()
	}
	head := fmt.Sprintf("POST /v1/conversations/x/%s HTTP/1.1\r\nHost: %s\r\nAuthorization: Bearer %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n",
		path, s.d.addr, s.d.mallory.token, len(body))
	_ = s.w.conn.SetDeadline(time.Now().Add(patience))
	// What is refused for its size is answered before it is read, and the connection may be closed.
	_, werr := s.w.conn.Write(append([]byte(head), body...))
	a, err := s.w.next("POST")
	if err != nil {
		s.d.t.Fatalf("%s: %v, %v: %.300s", path, werr, err, body)
	}
	if a.last || werr != nil {
		s.w = nil
	}
	return a
}

// values puts values in a place; broken and odd ones in turn, so that a short run has some of each.
func (s *assault) values(i int, p place, all []value) {
	t := s.d.t
	t.Helper()
	for j, v := range all {
		every := 12
		if p.any {
			every = 2
		}
		if v.large && !p.large() || !*long && !*update && (i+j)%every != 0 {
			continue
		}
		a := s.send(p, v.name, p.with(v))
		switch fine := a.status < 300; {
		case fine && !v.valid:
			t.Errorf("%s ← %s: %d, it is no JSON", p.name, v.name, a.status)
		case p.any && v.valid && !fine:
			t.Errorf("%s ← %s: %d %.300s", p.name, v.name, a.status, a.body)
		case fine && p.any:
			s.d.mustBeStored(p, v, a)
		case fine:
			if s.taken[p.name] == nil {
				s.taken[p.name] = takes{}
			}
			s.taken[p.name][v.kind()] = true
		}
	}
}

func TestHostileDocumentsAreRefusedOrKeptAsTheyAre(t *testing.T) {
	t.Parallel()
	d := newTarget(t, nil)
	unharmed := d.bob.unharmed()
	d.mallory.do(201, "POST", "/v1/conversations/x/turns", said("mine"))
	s := &assault{d: d, taken: map[string]takes{}}
	all := slices.Concat(broken(), odd())
	for i, p := range places() {
		s.values(i, p, all)
	}
	for _, path := range []string{"turns", "turns?format=openai", "turns?format=gemini", "import?mode=replace", "import?mode=replace&format=openai", "replay", "recall", "fork", "rewind"} {
		for name, body := range whole() {
			if a := s.send(place{name: path, path: path}, name, body); a.status < 300 {
				t.Errorf("%s ← %s: %d %s", path, name, a.status, a.body)
			}
		}
	}
	mustBeListed(t, s.taken)
	t.Logf("%d documents", s.n)
	unharmed()
	if n := d.metric("historyd_http_panics_total"); n != 0 {
		t.Errorf("%v panics: %s", n, tail(d.Log()))
	}
	d.stop()
	d.check()
}

// mustBeListed compares what places take with the list of what they may take. A short run has not tried all.
func mustBeListed(t *testing.T, taken map[string]takes) {
	t.Helper()
	const name = "testdata/taken.txt"
	var list []string
	for place, kinds := range taken {
		for kind := range kinds {
			list = append(list, place+"\t"+kind)
		}
	}
	slices.Sort(list)
	if *update {
		if err := os.WriteFile(name, []byte(strings.Join(list, "\n")+"\n"), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	b, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	listed := strings.Split(strings.TrimSpace(string(b)), "\n")
	for _, line := range list {
		if !slices.Contains(listed, line) {
			t.Errorf("taken, and not in %s: %s", name, line)
		}
	}
	if *long && len(list) != len(listed) {
		t.Errorf("%d lines are in %s, %d are taken", len(listed), name, len(list))
	}
}

// mustBeStored looks whether what was taken is in the record to the byte, but for white space.
func (d *target) mustBeStored(p place, v value, a answer) {
	d.t.Helper()
	var ack struct {
		First int64 `json:"first_seq"`
	}
	if err := json.Unmarshal(a.body, &ack); err != nil {
		d.t.Fatal(err)
	}
	page := d.mallory.do(200, "GET", fmt.Sprintf("/v1/conversations/x/messages?after=%d", ack.First-1), nil)
	var want bytes.Buffer
	want.WriteString(p.stored)
	if err := json.Compact(&want, []byte(v.text)); err != nil {
		d.t.Fatal(err)
	}
	if !json.Valid(page) || !bytes.Contains(page, want.Bytes()) {
		d.t.Errorf("%s ← %s is stored as %.500s", p.name, v.name, page)
	}
}

// TestOddValuesSurviveExportAndImport takes what is odd to another conversation, as its owner would.
func TestOddValuesSurviveExportAndImport(t *testing.T) {
	t.Parallel()
	d := newTarget(t, nil)
	for _, p := range places() {
		for _, v := range odd() {
			if p.any && !v.large {
				d.mallory.do(201, "POST", "/v1/conversations/x/"+p.path, p.with(v))
			}
		}
	}
	messages := func(name string) string {
		page := d.mallory.do(200, "GET", "/v1/conversations/"+name+"/messages?limit=1000", nil)
		return strings.ReplaceAll(string(page), `,"imported":true`, "")
	}
	d.mallory.do(201, "POST", "/v1/conversations/y/import", d.mallory.do(200, "GET", "/v1/conversations/x/export", nil))
	if got, want := messages("y"), messages("x"); got != want {
		t.Errorf("after export and import: %s", firstDifference(got, want))
	}
	d.stop()
	d.check()
}

func firstDifference(got, want string) string {
	i := 0
	for i < min(len(got), len(want)) && got[i] == want[i] {
		i++
	}
	from := max(0, i-200)
	return fmt.Sprintf("at byte %d\n%.500s\nwant\n%.500s", i, got[min(from, len(got)):], want[min(from, len(want)):])
}
