package accept

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"historyd/test/judge"
)

// peak is the most memory that the daemon has had, in bytes.
func (d *daemon) peak() int64 {
	d.t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", d.Pid()))
	if err != nil {
		d.t.Skipf("SKIPPED: no /proc to read the memory of a process from: %v", err)
	}
	_, rest, _ := strings.Cut(string(status), "VmHWM:")
	kib, err := strconv.ParseInt(strings.Fields(rest)[0], 10, 64)
	if err != nil {
		d.t.Fatal(err)
	}
	return kib << 10
}

// size is what the files of the data directory take.
func (d *daemon) size() (n int64) {
	d.t.Helper()
	err := filepath.WalkDir(d.dir, func(_ string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		info, err := e.Info()
		n += info.Size()
		return err
	})
	if err != nil {
		d.t.Fatal(err)
	}
	return n
}

// endless yields lines of messages until there are that many bytes of them. Every turn
// has a call and its result; or all calls come first, and then their results.
type endless struct {
	left    int64
	n       int
	line    []byte
	filling string
	calls   int // that come first
}

func (e *endless) Read(p []byte) (int, error) {
	if len(e.line) == 0 {
		if e.left <= 0 {
			return 0, io.EOF
		}
		kind := e.n % 4
		switch {
		case e.calls > 0 && e.n < e.calls:
			kind = 4
		case e.calls > 0:
			kind = 5
		}
		switch kind {
		case 4:
			e.line = fmt.Appendf(nil, `{"role":"assistant","content":"%s","tool_calls":[{"id":"call_%d","type":"function","function":{"name":"look","arguments":"{\"n\":%[2]d}"}}]}`+"\n", e.filling, e.n)
		case 5:
			e.line = fmt.Appendf(nil, `{"role":"tool","tool_call_id":"call_%d","content":"%s"}`+"\n", e.n-e.calls, e.filling)
		case 0:
			e.line = fmt.Appendf(nil, `{"role":"user","content":"%d %s"}`+"\n", e.n, e.filling)
		case 1:
			e.line = fmt.Appendf(nil, `{"role":"assistant","content":null,"tool_calls":[{"id":"call_%d","type":"function","function":{"name":"look","arguments":"{\"n\":%[1]d}"}}]}`+"\n", e.n)
		case 2:
			e.line = fmt.Appendf(nil, `{"role":"tool","tool_call_id":"call_%d","content":"%s"}`+"\n", e.n-1, e.filling)
		default:
			e.line = fmt.Appendf(nil, `{"role":"assistant","content":"%d %s"}`+"\n", e.n, e.filling)
		}
		e.n++
		e.left -= int64(len(e.line))
	}
	n := copy(p, e.line)
	e.line = e.line[n:]
	return n, nil
}

// An import of 500 MB, its export, and the import of that take no more memory than
// 128 MiB. HISTORYD_TEST_IMPORT is the size in MB; without it, it is a fifth of that.
func TestALargeImportTakesLittleMemory(t *testing.T) {
	if testing.Short() {
		t.Skip("SKIPPED: imports a lot, and the tests are to be short")
	}
	megabytes := int64(100)
	if s := os.Getenv("HISTORYD_TEST_IMPORT"); s != "" {
		n, err := strconv.ParseInt(s, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		megabytes = n
	}
	d := newDaemon(t, "HISTORYD_PROJECTION_UNKNOWN_TOOLS=keep", "HISTORYD_LIMITS_IMPORT=2GiB")
	c := caller{d, d.token("operator", "ann", "")}
	d.start()
	d.awaitReady()
	post := func(path, contentType string, body io.Reader) (reply map[string]any) {
		req, err := http.NewRequest(http.MethodPost, "http://"+d.addr+path, body)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", "Bearer "+c.token)
		req.Header.Set("Content-Type", contentType)
		res, err := http.DefaultTransport.RoundTrip(req)
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		text, err := io.ReadAll(res.Body)
		if err != nil || res.StatusCode != http.StatusCreated {
			t.Fatalf("%s: %d %v %.500s", path, res.StatusCode, err, text)
		}
		return decode[map[string]any](t, text)
	}
	source := &endless{left: megabytes * 1e6, filling: strings.Repeat("and so on ", 200)}
	got := post("/v1/conversations/a/import?format=openai", "application/x-ndjson", source)
	messages := json.Number(strconv.Itoa(source.n))
	if got["imported"] != messages {
		t.Errorf("imported %v of %d", got["imported"], source.n)
	}
	imported := d.peak()
	req, err := http.NewRequest(http.MethodGet, "http://"+d.addr+"/v1/conversations/a/export", nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+c.token)
	res, err := http.DefaultTransport.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	if got := post("/v1/conversations/b/import", "application/json", res.Body); got["imported"] != messages {
		t.Errorf("imported %v of %d", got["imported"], source.n)
	}
	exported := d.peak()
	late := &endless{left: megabytes * 1e6, filling: strings.Repeat("and so on ", 100)}
	late.calls = int(late.left / 2 / int64(len(late.filling)+50))
	if got := post("/v1/conversations/c/import?format=openai", "application/x-ndjson", late); got["imported"] != json.Number(strconv.Itoa(late.n)) || late.n <= late.calls {
		t.Errorf("imported %v of %d, %d of them calls", got["imported"], late.n, late.calls)
	}
	peak := d.peak()
	t.Logf("%d messages, %d MB in: at most %d MiB of memory; the export of them in again: %d; %d calls with their results behind them: %d",
		source.n, megabytes, imported>>20, exported>>20, late.calls, peak>>20)
	if peak >= 128<<20 {
		t.Errorf("the daemon took %d MiB, want less than 128", peak>>20)
	}
	if out, err := d.command("check", d.dir).CombinedOutput(); err != nil {
		t.Errorf("check: %v: %s", err, out)
	}
}

// A picture that is sent in five turns is on the disk once, in whatever format it came.
func TestAPictureIsOnTheDiskOnce(t *testing.T) {
	d := newDaemon(t)
	c := caller{d, d.token("operator", "ann", "")}
	d.start()
	d.awaitReady()
	picture := make([]byte, 2_000_000)
	random := rand.NewChaCha8([32]byte{1})
	_, _ = random.Read(picture)
	copy(picture, "\x89PNG\r\n\x1a\n")
	data := base64.StdEncoding.EncodeToString(picture)
	for _, turn := range []struct{ format, message string }{
		{"native", `{"role":"user","content":[{"type":"image","media_type":"image/png","data":"` + data + `"}]}`},
		{"openai", `{"role":"user","content":[{"type":"image_url","image_url":{"url":"data:image/png;base64,` + data + `"}}]}`},
		{"anthropic", `{"role":"user","content":[{"type":"image","source":{"type":"base64","media_type":"image/png","data":"` + data + `"}}]}`},
		{"responses", `{"type":"message","role":"user","content":[{"type":"input_image","image_url":"data:image/png;base64,` + data + `","detail":"auto"}]}`},
		{"gemini", `{"role":"user","parts":[{"inlineData":{"mimeType":"image/png","data":"` + data + `"}}]}`},
	} {
		c.do(201, "POST", "/v1/conversations/x/turns?format="+turn.format, []byte(`{"messages":[`+turn.message+`]}`))
	}
	if n := d.size(); n > 2_100_000 {
		t.Errorf("the data directory takes %d bytes, want at most 2,100,000", n)
	}
	sum := sha256.Sum256(picture)
	path := "/v1/conversations/x/attachments/" + hex.EncodeToString(sum[:])
	d.kill()
	d.start()
	d.awaitReady()
	if got := c.do(200, "GET", path, nil); !bytes.Equal(got, picture) {
		t.Errorf("%d bytes come back, and not those", len(got))
	}
	for _, format := range []string{"openai", "anthropic", "responses", "gemini"} {
		r := decode[struct{ Messages, System, Tools json.RawMessage }](t, c.do(200, "GET", "/v1/conversations/x/replay?mode=full&format="+format, nil))
		if why := judge.Check(format, r.Messages, r.System, r.Tools); len(why) > 0 {
			t.Errorf("%s: %.300q", format, why)
		}
		if n := bytes.Count(r.Messages, []byte(data)); n != 5 {
			t.Errorf("%s: the picture is there %d times", format, n)
		}
	}
	tarred := c.do(200, "GET", "/v1/conversations/x/export?format=tar", nil)
	c.do(201, "POST", "/v1/conversations/y/import", tarred, "Content-Type", "application/x-tar")
	if a, b := c.do(200, "GET", "/v1/conversations/x/export", nil), c.do(200, "GET", "/v1/conversations/y/export", nil); !equalValues(t, a, b) {
		t.Error("the value changed on its way through an archive")
	}
	c.do(204, "DELETE", "/v1/conversations/x", nil)
	c.do(204, "DELETE", "/v1/conversations/y", nil)
	if n := d.size(); n > 10_000 {
		t.Errorf("after the clear the data directory takes %d bytes", n)
	}
	if out, err := d.command("check", d.dir).CombinedOutput(); err != nil {
		t.Errorf("check: %v: %s", err, out)
	}
}

// equalValues compares exports but for what an import makes anew.
func equalValues(t *testing.T, a, b []byte) bool {
	t.Helper()
	plain := func(text []byte) string {
		v := decode[map[string]any](t, text)
		delete(v, "conversation")
		for _, m := range v["messages"].([]any) {
			delete(m.(map[string]any), "seq")
			delete(m.(map[string]any), "imported")
		}
		out, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		return string(out)
	}
	return plain(a) == plain(b)
}

// Exports with their attachments inside, and imports of them, take little memory however
// large what they hold is.
func TestExportsOfLargeAttachmentsTakeLittleMemory(t *testing.T) {
	if testing.Short() {
		t.Skip("SKIPPED: exports a lot, and the tests are to be short")
	}
	d := newDaemon(t)
	c := caller{d, d.token("operator", "ann", "")}
	d.start()
	d.awaitReady()
	random := rand.NewChaCha8([32]byte{1})
	picture := make([]byte, 3_000_000)
	for range 20 {
		_, _ = random.Read(picture)
		copy(picture, "\x89PNG\r\n\x1a\n")
		image := `{"type":"image","media_type":"image/png","data":"` + base64.StdEncoding.EncodeToString(picture) + `"}`
		c.do(201, "POST", "/v1/conversations/x/turns", []byte(`{"messages":[{"role":"user","content":[`+image+`]}]}`))
	}
	// One message with all of them, as they are there already.
	var names []string
	for _, m := range decode[struct {
		Data []struct{ Content []struct{ Attachment string } }
	}](t, c.do(200, "GET", "/v1/conversations/x/messages", nil)).Data {
		names = append(names, `{"type":"image","media_type":"image/png","attachment":"`+m.Content[0].Attachment+`"}`)
	}
	c.do(201, "POST", "/v1/conversations/x/turns", []byte(`{"messages":[{"role":"user","content":[`+strings.Join(names, ",")+`]}]}`))
	d.kill()
	for _, format := range []string{"native", "jsonl", "tar", "openai", "anthropic", "responses", "gemini"} {
		d.start()
		d.awaitReady()
		before := d.peak()
		req, err := http.NewRequest(http.MethodGet, "http://"+d.addr+"/v1/conversations/x/export?format="+format, nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", "Bearer "+c.token)
		res, err := http.DefaultTransport.RoundTrip(req)
		if err != nil {
			t.Fatal(err)
		}
		n, err := io.Copy(io.Discard, res.Body)
		res.Body.Close()
		peak := d.peak()
		t.Logf("%s: %d MB, at most %d MiB of memory, %d before", format, n/1e6, peak>>20, before>>20)
		if err != nil || res.StatusCode != 200 || peak >= 128<<20 {
			t.Errorf("%s: %d, %v, the daemon took %d MiB, want less than 128", format, res.StatusCode, err, peak>>20)
		}
		d.kill()
	}
}
