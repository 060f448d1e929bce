package attack

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"hash/crc32"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

// controls are characters that begin a line, turn the direction of text, or tell a terminal what to do.
const controls = "%0a%0d%00%1b%5b2J%08%7f%c2%85%c2%9b%e2%80%a8%e2%80%ae%22%5c"

// TestEachEventIsOneLineWhateverIsSent sends control characters in every field that there is.
func TestEachEventIsOneLineWhateverIsSent(t *testing.T) {
	t.Parallel()
	for _, format := range []string{"json", "text"} {
		d := newTarget(t, map[string]any{"log": map[string]any{"level": "debug", "format": format}})
		odd := d.caller("mesh", "a\u2028b\u202e\"\\'c\u200d=d e")
		answered := 3 // appends of bob's
		await(t, "a new caller is known", func() bool {
			answered++
			a, err := odd.try("GET", "/v1/whoami", nil)
			return err == nil && a.status == 200
		})
		answered += d.sendControls(odd)
		answered += d.sendControls(d.mallory)
		d.stop()
		requests := 0
		for line := range bytes.Lines(d.Log()) {
			text := strings.TrimSuffix(string(line), "\n")
			if i := strings.IndexFunc(text, func(r rune) bool { return r < ' ' || r >= 0x7f && r < 0xa0 || r == '\u2028' || r == '\u202e' }); i >= 0 || strings.Contains(text, marker) {
				t.Errorf("%s: %q", format, text)
			}
			if format == "json" && !json.Valid(line) {
				t.Errorf("a line that is no JSON: %q", text)
			}
			if regexp.MustCompile(`"msg":"request"| request request_id=`).MatchString(text) {
				requests++
			}
		}
		// The others say that it reads its callers, serves and stops.
		if others := bytes.Count(d.Log(), []byte("\n")) - requests; requests != answered || others > 8 {
			t.Errorf("%s: %d lines of requests, of %d, and %d others: %s", format, requests, answered, others, tail(d.Log()))
		}
	}
}

// sendControls sends all it can think of, and says how many requests were answered by us.
func (d *target) sendControls(c caller) (answered int) {
	plain := "\n\r\t\x1b[31m\u0085\u2028\u202e\\\"{}\x7f " + marker
	count := func(a answer, err error) {
		if err != nil {
			d.t.Fatal(err)
		}
		if a.header.Get("X-Request-Id") != "" {
			answered++
		}
	}
	for _, path := range []string{
		"/" + controls, "/v1/" + controls, "/v1/conversations/" + controls, "/v1/conversations/x" + controls + "/messages", "/v1/conversations/x/attachments/" + controls, "/v1/whoami?" + controls + "=" + controls,
		"/v1/search?q=" + controls + marker, "/v1/conversations/x/messages?after=" + controls, "/v1/conversations/x/replay?format=" + controls, "/v1/conversations?cursor=" + controls, "/healthz?token=" + controls, "/metrics/" + controls,
	} {
		for _, method := range []string{"GET", "POST", "DELETE", "ZQMARK"} {
			count(c.try(method, path, []byte("{}"), "User-Agent", "a\tb"+marker, "Idempotency-Key", marker, "If-Match", marker+"\"", "Referer", "http://x/"+marker, "X-A", "\u202e\u0085"+marker, "Content-Type", "text/"+marker))
		}
	}
	text, err := json.Marshal(plain)
	if err != nil {
		d.t.Fatal(err)
	}
	for _, p := range places() {
		if p.path == "turns" || p.path == "fork" || p.path == "recall" || p.path == "import?mode=replace" {
			count(c.try("POST", "/v1/conversations/x/"+p.path, p.with(value{text: string(text)})))
		}
	}
	for _, raw := range []string{"GET /\x1b[31m" + marker + " HTTP/1.1\r\n\r\n", "GET / HTTP/1.1\r\nHost: " + d.addr + "\r\nX-A: a\x00" + marker + "\r\n\r\n", marker + "\n\n", "GET / HTTP/1.1\r\nHost: \"\x1b" + marker + "\r\n\r\n"} {
		w := d.dial()
		_, _ = io.WriteString(w.conn, raw)
		if a, err := w.next("GET"); err == nil && a.header.Get("X-Request-Id") != "" {
			answered++
		}
		_ = w.conn.Close()
	}
	return answered
}

// forged is a token like the daemon's own, of which only the hash is in the callers file.
func forged(like string, rng *rand.Rand) string {
	const digits = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
	body := []byte("hd_")
	for len(body) < len(like)-6 {
		body = append(body, digits[rng.IntN(len(digits))])
	}
	sum, check := crc32.ChecksumIEEE(body), [6]byte{}
	for i := len(check) - 1; i >= 0; i-- {
		check[i] = digits[sum%62]
		sum /= 62
	}
	return string(body) + string(check[:])
}

// TestTenThousandCallersBeginNoSeries has each of them ask, and some of them write.
func TestTenThousandCallersBeginNoSeries(t *testing.T) {
	t.Parallel()
	d := newTarget(t, map[string]any{"log": map[string]any{"level": "warn", "format": "json"}})
	file := filepath.Join(d.dir, "callers.json")
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var doc struct {
		Version int              `json:"version"`
		Callers []map[string]any `json:"callers"`
	}
	if err := json.Unmarshal(text, &doc); err != nil {
		t.Fatal(err)
	}
	const n = 10_000
	rng, tokens := rand.New(rand.NewPCG(*seed, 3)), []string{}
	for i := range n {
		token := forged(d.ann.token, rng)
		sum := sha256.Sum256([]byte(token))
		tokens = append(tokens, token)
		doc.Callers = append(doc.Callers, map[string]any{"kind": "mesh", "id": fmt.Sprint("zqmark", i), "permission_scope": "", "workspace": fmt.Sprint("w", i),
			"tokens": []any{map[string]any{"id": fmt.Sprintf("tok_%012d", i), "hash": hex.EncodeToString(sum[:]), "created_at": "2026-01-01T00:00:00Z"}}})
	}
	if text, err = json.Marshal(doc); err == nil {
		err = os.WriteFile(file, text, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	last := caller{d, tokens[n-1]}
	await(t, "the new callers are known", func() bool {
		a, err := last.try("GET", "/v1/whoami", nil)
		return err == nil && a.status == 200
	})
	last.do(201, "POST", "/v1/history/turns", said("x"))
	d.ann.do(200, "GET", "/metrics", nil)
	before := series(d.ann.do(200, "GET", "/metrics", nil))
	every := 40
	if *long {
		every = 1
	}
	w := d.dial()
	for i, token := range tokens {
		_, _ = fmt.Fprintf(w.conn, "GET /v1/whoami HTTP/1.1\r\nHost: %s\r\nAuthorization: Bearer %s\r\n\r\n", d.addr, token)
		if a, err := w.next("GET"); err != nil || a.status != 200 {
			t.Fatalf("caller %d: %d, %v", i, a.status, err)
		}
		if i%every == 0 {
			caller{d, token}.do(201, "POST", "/v1/history/turns", said("x"))
		}
	}
	metrics := d.ann.do(200, "GET", "/metrics", nil)
	mustBeAsMany(t, before, series(metrics))
	if bytes.Contains(metrics, []byte(marker)) {
		t.Error("a caller is in the metrics")
	}
}

// TestAnothersConversationIsAsIfItWereNotThere compares what mallory is told of a conversation of bob's with what is told of
// one that nobody has.
func TestAnothersConversationIsAsIfItWereNotThere(t *testing.T) {
	t.Parallel()
	d := newTarget(t, nil)
	n := 50
	if *long {
		n = 1000
	}
	for i := range n {
		d.bob.do(201, "POST", fmt.Sprintf("/v1/conversations/his-%04d/turns", i), said(secret))
	}
	unharmed := d.bob.unharmed()
	without := regexp.MustCompile(`"request_id":"[^"]*"|(his|its)-\d{4}`)
	told := func(a answer, err error) string {
		if err != nil {
			t.Fatal(err)
		}
		a.header.Del("X-Request-Id")
		a.header.Del("Date")
		return without.ReplaceAllString(fmt.Sprint(a.status, a.header, string(a.body)), "")
	}
	sum := sha256.Sum256([]byte(secret))
	for i := range n {
		for _, r := range [][3]string{
			{"GET", "", ""}, {"HEAD", "", ""}, {"GET", "/messages", ""}, {"GET", "/replay", ""}, {"GET", "/replay?mode=full&format=openai", ""}, {"GET", "/export", ""}, {"GET", "/export?format=tar", ""}, {"GET", "/attachments/" + hex.EncodeToString(sum[:]), ""},
			{"POST", "/replay", "{}"}, {"POST", "/recall", `{"query":"` + secret + `"}`}, {"POST", "/fork", `{"to":"copy"}`}, {"POST", "/rewind", `{"through_seq":1}`}, {"POST", "/rewind", `{"through_seq":0}`}, {"POST", "/turns", "{}"}, {"DELETE", "", ""},
		} {
			ask := func(name string) string {
				return told(d.mallory.try(r[0], fmt.Sprintf("/v1/conversations/%s-%04d%s", name, i, r[1]), []byte(r[2])))
			}
			if his, none := ask("his"), ask("its"); his != none || strings.Contains(his, secret) {
				t.Errorf("%s %s: of bob's\n%s\nof nobody's\n%s", r[0], r[1], his, none)
			}
		}
		his := told(d.mallory.try("GET", fmt.Sprintf("/v1/search?q=x&conversation=his-%04d", i), nil))
		if none := told(d.mallory.try("GET", fmt.Sprintf("/v1/search?q=x&conversation=its-%04d", i), nil)); his != none {
			t.Errorf("a search in bob's\n%s\nin nobody's\n%s", his, none)
		}
	}
	unharmed()
}

// cleared is in all that is cleared.
const cleared = "zqclearedword"

// TestNothingIsLeftOfWhatIsCleared looks into all files, and into those that only the daemon has open still.
func TestNothingIsLeftOfWhatIsCleared(t *testing.T) {
	t.Parallel()
	settings := map[string]any{"compaction": map[string]any{"keep_verbatim_turns": 2, "fold_batch": 1}}
	d := newTarget(t, settings)
	for _, all := range []bool{false, true} {
		d.fill()
		d.stop() // the index is written by then
		d.start(settings)
		w := d.reader()
		for _, where := range []string{d.dir, filepath.Join(d.dir, "index")} {
			if !bytes.Contains(contents(t, where), []byte(cleared)) {
				t.Fatalf("nothing is in %s before", where)
			}
		}
		if all {
			d.mallory.do(204, "DELETE", "/v1/conversations", nil)
		} else {
			for _, name := range []string{"x", "copy", cleared} {
				d.mallory.do(204, "DELETE", "/v1/conversations/"+name, nil)
			}
		}
		for _, where := range []string{"files", "descriptors"} {
			text := d.held(where)
			for _, word := range []string{cleared, base64.StdEncoding.EncodeToString([]byte(cleared + "bytes"))[:16]} {
				if i := bytes.Index(text, []byte(word)); i >= 0 {
					t.Errorf("all %v: %s hold what was cleared: %q", all, where, text[max(0, i-200):min(len(text), i+100)])
				}
			}
		}
		for _, path := range []string{"/v1/search?q=" + cleared, "/v1/conversations", "/v1/conversations/x/replay", "/v1/conversations/" + cleared + "/messages"} {
			if b := d.mallory.do(200, "GET", path, nil); bytes.Contains(bytes.ReplaceAll(b, []byte(`"conversation":"`+cleared), nil), []byte(cleared)) {
				t.Errorf("%s: %s", path, b)
			}
		}
		// What is being read when it is cleared ends, and not as a whole.
		if got, err := io.ReadAll(w.conn); err == nil && bytes.HasSuffix(got, []byte("0\r\n\r\n")) && bytes.Count(got, []byte(cleared)) > 2*400 {
			t.Errorf("an export of what was cleared goes on to its end: %d bytes", len(got))
		}
	}
	d.stop()
	d.check()
}

// fill makes conversations that hold the word wherever one can.
func (d *target) fill() {
	d.t.Helper()
	m := d.mallory
	image := base64.StdEncoding.EncodeToString([]byte(cleared + "bytes of a picture"))
	for _, name := range []string{"x", cleared} {
		for i := range 6 {
			m.do(201, "POST", "/v1/conversations/"+name+"/turns", fmt.Appendf(nil, `{"messages":[{"role":"user","content":[{"type":"text","text":"what of %s %d"},{"type":"document","media_type":"text/plain","filename":"%s","data":"%s"}],"metadata":{"%s":1},"id":"%s%d"},
				{"role":"assistant","content":[{"type":"tool_call","id":"%s","name":"%s","arguments":{"%s":1}}]},{"role":"tool","content":[{"type":"tool_result","call_id":"%s","content":"%s"}]},{"role":"assistant","content":"%s"}],"tool_categories":{"*":"general"}}`,
				cleared, i, cleared, image, cleared, cleared, i, cleared, cleared, cleared, cleared, cleared, cleared), "Idempotency-Key", fmt.Sprint(cleared, i))
		}
	}
	for range 20 {
		m.do(201, "POST", "/v1/conversations/x/turns", said(strings.Repeat(cleared+" at length ", 10_000)))
	}
	m.do(200, "POST", "/v1/conversations/"+cleared+"/recall", []byte(`{"query":"what of `+cleared+`","store":true}`))
	m.do(201, "POST", "/v1/conversations/x/fork", []byte(`{"to":"copy"}`))
	m.do(200, "POST", "/v1/conversations/copy/rewind", []byte(`{"through_seq":3}`))
	m.do(201, "POST", "/v1/conversations/copy/import?mode=replace", m.do(200, "GET", "/v1/conversations/"+cleared+"/export", nil))
	m.do(200, "GET", "/v1/search?q="+cleared, nil)
}

// reader has the daemon search, replay from its cache, and be in the middle of an export.
func (d *target) reader() *wire {
	d.t.Helper()
	d.mallory.do(200, "GET", "/v1/search?q="+cleared, nil)
	for _, name := range []string{"x", "copy", cleared} {
		d.mallory.do(200, "GET", "/v1/conversations/"+name+"/replay?mode=full&format=anthropic", nil)
	}
	w := d.dial()
	_, _ = fmt.Fprintf(w.conn, "GET /v1/conversations/x/export HTTP/1.1\r\nHost: %s\r\nAuthorization: Bearer %s\r\n\r\n", d.addr, d.mallory.token)
	if _, err := w.in.Peek(1000); err != nil {
		d.t.Fatal(err)
	}
	_ = w.conn.SetDeadline(time.Now().Add(patience))
	return w
}

// held is what the files of the data directory hold, or what is open of them, though it has no name any more.
func (d *target) held(where string) []byte {
	d.t.Helper()
	if where == "files" {
		return contents(d.t, d.dir)
	}
	var all bytes.Buffer
	fds := fmt.Sprintf("/proc/%d/fd", d.Pid())
	list, err := os.ReadDir(fds)
	if err != nil {
		d.t.Skipf("SKIPPED: no /proc to see open files in: %v", err)
	}
	for _, fd := range list {
		name := filepath.Join(fds, fd.Name())
		to, err := os.Readlink(name)
		if err != nil || !strings.HasPrefix(to, d.dir) {
			continue
		}
		if info, err := os.Stat(name); err != nil || !info.Mode().IsRegular() {
			continue
		}
		b, err := os.ReadFile(name)
		if err != nil {
			d.t.Fatal(err)
		}
		fmt.Fprintln(&all, to)
		all.Write(b)
	}
	return all.Bytes()
}

// TestATokenIsNowhere looks for tokens in all that the daemon writes, and for what it says of bad ones.
func TestATokenIsNowhere(t *testing.T) {
	t.Parallel()
	d := newTarget(t, nil)
	told := map[string][]byte{}
	for _, header := range []string{"Bearer " + d.ann.token + "x", "Basic " + d.ann.token, d.ann.token, "Bearer " + d.ann.token + " " + d.ann.token} {
		a, err := caller{d, ""}.try("GET", "/v1/whoami", nil, "Authorization", header)
		if err != nil || a.status != http.StatusUnauthorized {
			t.Errorf("%q: %d, %v", header, a.status, err)
		}
		told["an answer"] = append(told["an answer"], a.body...)
	}
	a, err := d.ann.try("GET", "/v1/whoami?access_token="+d.ann.token, nil)
	if err != nil || a.code() != "token_in_url" {
		t.Errorf("a token in the URL: %d, %v", a.status, err)
	}
	told["another answer"] = a.body
	told["the metrics"] = d.ann.do(200, "GET", "/metrics", nil)
	told["the arguments"], _ = os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", d.Pid()))
	d.stop()
	told["the log"], told["the data directory"] = d.Log(), contents(t, d.dir)
	for where, text := range told {
		for _, token := range []string{d.ann.token, d.bob.token, d.mallory.token} {
			if bytes.Contains(text, []byte(token)) || bytes.Contains(text, []byte(token[3:30])) {
				t.Errorf("a token is in %s", where)
			}
		}
	}
}

// TestNothingIsServedForDebugging asks for what other daemons serve beside their API.
func TestNothingIsServedForDebugging(t *testing.T) {
	t.Parallel()
	d := newTarget(t, nil)
	for _, path := range []string{"/debug/pprof/", "/debug/pprof/heap", "/debug/pprof/cmdline", "/debug/vars", "/debug/requests", "/debug", "/pprof", "/vars", "/config", "/env", "/admin", "/.git/config", "/favicon.ico", "/index.html"} {
		for c, want := range map[caller]int{d.ann: 404, {d, ""}: 401} {
			a, err := c.try("GET", path, nil)
			if err != nil || a.status != want {
				t.Errorf("%s: %d, %v, want %d", path, a.status, err, want)
			}
		}
	}
	mapped, err := os.ReadFile(d.path)
	if err != nil {
		t.Fatal(err)
	}
	if bytes.Contains(mapped, []byte("expvar.Handler")) {
		t.Error("expvar is linked, which serves itself")
	}
}
