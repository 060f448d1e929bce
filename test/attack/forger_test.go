package attack

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
)

// A forger makes hostile requests, the same ones from the same seed. HOST and MALLORY stand where the address and the
// token have to be put.
type forger struct {
	rng    *rand.Rand
	places []place
	values []value
}

func newForger(seed uint64) *forger {
	f := &forger{rng: rand.New(rand.NewPCG(seed, 17)), places: places()}
	for _, v := range slices.Concat(odd(), broken()) {
		if len(v.text) < 4096 {
			f.values = append(f.values, v)
		}
	}
	return f
}

func one[T any](f *forger, list ...T) T { return list[f.rng.IntN(len(list))] }

// odds is true in one of n.
func (f *forger) odds(n int) bool { return f.rng.IntN(n) == 0 }

func (f *forger) name() string {
	if f.odds(4) {
		return one(f, "..", ".", "%2e%2e", "x%2fy", "zqmark%00", "%ff", "", "zqmark/../diary", "%zz", strings.Repeat("n", 129), "é", "x;zqmark", "%25%32%66", "diary%20", "x%0d%0azqmark:1")
	}
	return one(f, "x", "y", "z", "diary", "default", "a.b", "~", "X", "d%69ary", "n"+fmt.Sprint(f.rng.IntN(8)))
}

func (f *forger) path() string {
	base := "/v1/conversations/" + f.name()
	if f.odds(5) {
		base = "/v1/history"
	}
	path := one(f, base, base+"/turns", base+"/turns", base+"/messages", base+"/replay", base+"/recall", base+"/export", base+"/import", base+"/fork", base+"/rewind",
		base+"/attachments/"+one(f, strings.Repeat("a", 64), "zqmark", strings.Repeat("A", 64), "..", "%00", ""), "/v1/conversations", "/v1/search", "/v1/whoami", "/healthz", "/readyz", "/metrics", "/openapi.json",
		"/", "/v1", "/zqmark", "/debug/pprof/heap", "/v1/../metrics", "//v1/whoami", "/v1/conversations/"+f.name()+"/"+f.name(), "*", "http://evil.example/zqmark", "http://HOST"+base)
	if f.odds(20) {
		return string(f.spoil([]byte(path)))
	}
	return path
}

func (f *forger) query() string {
	if f.odds(2) {
		return ""
	}
	var b strings.Builder
	for i := range f.rng.IntN(4) + 1 {
		b.WriteString(one(f, "&", "&", "&", ";", "&&")[:min(i, 1)])
		b.WriteString(one(f, "format", "mode", "limit", "after", "before", "order", "max_tokens", "q", "cursor", "conversation", "role", "sort", "repair", "zqmark", "token", "Format", "limit[]", "%00", "caller"))
		if !f.odds(10) {
			b.WriteByte('=')
		}
		b.WriteString(one(f, "native", "openai", "anthropic", "responses", "gemini", "jsonl", "tar", "text", "full", "asc", "desc", "create", "append", "replace", "true", "false", "0", "1", "5", "-1", "1000", "1001", "9223372036854775807", "9223372036854775808",
			"1e3", "0x10", "zqmark", "zqbobssecret", "%22zqbobssecret%22", "zq*", "-zq", "%00", "%zz", "%ff", "*", "%2a%2a", "(", "x"+strings.Repeat("%20OR%20x", 40), "2026-01-01T00:00:00Z", "NaN", "newest", "best", "user", "diary", "", "AQAA", strings.Repeat("A", 300), "01Q5VMWNNTRZRMT4D8624YZZDK"))
	}
	return "?" + b.String()
}

func (f *forger) headers() string {
	var b strings.Builder
	add := func(name, text string) { fmt.Fprintf(&b, "%s: %s\r\n", name, text) }
	if f.odds(40) {
		add("Host", one(f, "", "evil.example", "HOST.evil.example", "localhost", "zqmark@HOST", "[::]:1"))
	} else {
		add("Host", "HOST")
	}
	switch {
	case f.odds(20):
		add("Authorization", one(f, "", "Bearer", "Bearer ", "Basic MALLORY", "Bearer zqmark", "Bearer hd_"+strings.Repeat("a", 50), "bearer MALLORYx", "Bearer MALLORY MALLORY", "Bearer  MALLORY", "MALLORY"))
	case f.odds(40):
	default:
		add("Authorization", "Bearer MALLORY")
	}
	if !f.odds(10) {
		add("Content-Type", "application/json")
	} else {
		add("Content-Type", one(f, "", "application/json;charset=utf-8", "application/x-ndjson", "application/x-tar", "text/plain", "application/json;charset=zqmark", "zqmark", "multipart/form-data; boundary=zqmark", "application/json;;;"))
	}
	for _, h := range [][]string{
		{"If-Match", "*", `"0-0"`, `"zqmark-1"`, `W/"x"`, `"`, `"a","b"`, "zqmark", strings.Repeat(`"x",`, 200)}, {"If-None-Match", "*", `"0-0"`, "zqmark"}, {"Idempotency-Key", "k1", "k2", "", "zq mark", "é", strings.Repeat("k", 256), "zqmark"},
		{"Origin", "null", "http://evil.example", "http://HOST"}, {"Sec-Fetch-Site", "cross-site", "none", "zqmark"}, {"Content-Encoding", "gzip", "identity", "zqmark"}, {"Accept-Encoding", "gzip", "zqmark"}, {"Range", "bytes=0-10", "bytes=-1", "zqmark"},
		{"X-Request-Id", "zqmark"}, {"X-Forwarded-For", "127.0.0.1"}, {"X-Forwarded-Host", "HOST"}, {"X-HTTP-Method-Override", "DELETE"}, {"Cookie", "token=zqmark"}, {"Accept", "text/html", "*/*", "zqmark"}, {"Upgrade", "h2c", "websocket"},
		{"X-" + strings.Repeat("y", f.rng.IntN(300)), strings.Repeat("z", f.rng.IntN(3000))}, {"Connection", "close", "keep-alive", "Upgrade", "zqmark"},
	} {
		if f.odds(60) {
			add(h[0], one(f, h[1:]...))
		}
	}
	return b.String()
}

func (f *forger) body() []byte {
	if f.odds(5) {
		return fmt.Appendf(nil, one(f, `{"to":%q}`, `{"query":%q,"store":true}`, `{"messages":[{"role":"user","content":%q}]}`, `[{"role":"user","content":%q}]`, `{"version":1,"type":"historyd.history","messages":[{"role":"user","content":%q}]}`),
			one(f, "x", "y", "copy", "what is said of the diary", "diary"))
	}
	body := one(f, f.places...).with(one(f, f.values...))
	if f.odds(8) {
		return f.spoil(body)
	}
	return body
}

// spoil changes a few bytes, or cuts or repeats a part.
func (f *forger) spoil(b []byte) []byte {
	b = bytes.Clone(b)
	for range f.rng.IntN(3) + 1 {
		if len(b) == 0 {
			return b
		}
		i := f.rng.IntN(len(b))
		switch f.rng.IntN(5) {
		case 0:
			b[i] ^= 1 << f.rng.IntN(8)
		case 1:
			b = b[:i]
		case 2:
			b = slices.Delete(b, i, min(len(b), i+f.rng.IntN(9)))
		case 3:
			b = slices.Insert(b, i, b[i:min(len(b), i+f.rng.IntN(40))]...)
		case 4:
			b = slices.Insert(b, i, byte(one(f, 0, '"', '\\', '{', '}', '%', '/', '\n', 0xff, 0xc0, ' ', '0')))
		}
	}
	return b
}

// next is a whole request: in two of three cases one that a route is for, with something in it that is odd.
func (f *forger) next() []byte {
	method, path, body := f.wild()
	if !f.odds(3) {
		method, path, body = f.tame()
	}
	head := fmt.Sprintf("%s %s HTTP/1.1\r\n%s", method, path, f.headers())
	if f.odds(50) {
		head = string(f.spoil([]byte(head)))
	}
	if f.odds(15) {
		chunk := ""
		if len(body) > 0 { // a chunk of nothing is the last
			chunk = fmt.Sprintf("%x\r\n%s\r\n", len(body), body)
		}
		return fmt.Appendf(nil, "%sTransfer-Encoding: chunked\r\n\r\n%s0\r\n\r\n", head, chunk)
	}
	return fmt.Appendf(nil, "%sContent-Length: %d\r\n\r\n%s", head, len(body), body)
}

func (f *forger) wild() (method, path string, body []byte) {
	method = one(f, "GET", "GET", "GET", "POST", "POST", "DELETE", "HEAD", "PUT", "PATCH", "OPTIONS", "TRACE", "ZQMARK", "get")
	if method != "GET" && method != "HEAD" || f.odds(10) {
		body = f.body()
	}
	return method, f.path() + f.query(), body
}

func (f *forger) tame() (method, path string, body []byte) {
	base := "/v1/conversations/" + one(f, "x", "y", "z", "diary", "default", "d%69ary", "n"+fmt.Sprint(f.rng.IntN(8)))
	if f.odds(30) {
		return "DELETE", one(f, base, base, base, "/v1/history", "/v1/conversations"), nil
	}
	if f.odds(3) {
		path = one(f, base, base+"/messages", base+"/replay", base+"/export", "/v1/conversations", "/v1/search?q=x", "/v1/history/messages", "/metrics")
		if f.odds(2) {
			path += one(f, "?mode=full", "?limit=1", "?after=2", "?format=openai", "?format=gemini&mode=full", "?format=anthropic&mode=full&max_tokens=50", "?format=tar", "?format=jsonl", "?order=desc&before=3", "&sort=newest", "&role=user&conversation=diary")
		}
		return one(f, "GET", "GET", "GET", "HEAD"), path, nil
	}
	if f.odds(4) {
		return "POST", base + "/turns", fmt.Appendf(nil, `{"messages":[{"role":"user","content":%q},{"role":"assistant","content":[{"type":"tool_call","id":"c%d","name":"n","arguments":%s}]}]%s}`,
			"x "+fmt.Sprint(f.rng.IntN(1000)), f.rng.IntN(5), one(f, f.values[:80]...).text, one(f, "", `,"tool_categories":{"*":"general"}`, `,"tool_categories":{"*":"wallet"}`))
	}
	p := one(f, f.places...)
	return "POST", base + "/" + p.path, p.with(one(f, f.values...))
}
