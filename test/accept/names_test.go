package accept

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// ids are such as meet when they are cut, cleaned, folded to one case or taken for a path or for the beginning of another.
func ids() []string {
	long := strings.Repeat("long-", 50)
	return []string{
		"a/b", "a_b", "a%2Fb", "a\\b", "../../x", "..", "/etc/passwd", "con", "bob", "bob2", "Bob", "bob/default", "é", "e\u0301", "ж", "日本", " ", "*",
		long + "aaaaaa", long + "aaaaab", long + "b",
	}
}

// Whatever a caller is called, what it has is its own, in one place that all of the daemon agrees on, and goes when it is cleared:
// record, attachments, summary and index.
func TestCallersOfAnyNameHaveTheirOwnThings(t *testing.T) {
	t.Parallel()
	d := newDaemon(t, "HISTORYD_COMPACTION_KEEP_VERBATIM_TURNS=2", "HISTORYD_COMPACTION_FOLD_BATCH=1")
	type one struct {
		caller
		word, pixels string
	}
	var all []one
	for i, id := range ids() {
		all = append(all, one{caller{d, d.token("operator", id, "")}, fmt.Sprintf("zqcanary%02dx", i), fmt.Sprintf("pixels of zq%02dx", i)})
	}
	for _, id := range []string{"", strings.Repeat("x", 257), strings.Repeat("x", 5000), "a\nb", "a\x7fb"} {
		if out, err := d.command("token", "create", "--data-dir", d.dir, "--kind", "operator", "--id", id).CombinedOutput(); err == nil {
			t.Errorf("a caller with an id of %d bytes is made: %s", len(id), out)
		}
	}
	d.begin()
	for _, c := range all {
		for i := range 4 {
			c.do(201, "POST", "/v1/history/turns", fmt.Appendf(nil, `{"messages":[{"role":"user","content":[{"type":"text","text":"%s %d"},{"type":"image","media_type":"image/png","data":"%s"}]},{"role":"assistant","content":"yes"}]}`,
				c.word, i, base64.StdEncoding.EncodeToString([]byte(c.pixels))))
		}
	}
	for i, c := range all {
		if f := c.search("zqcanary"); len(f.Data) != 0 {
			t.Errorf("%q finds %d by the beginning of a word", ids()[i], len(f.Data))
		}
		for j, other := range all {
			if n := len(c.search(other.word).Data); n != 0 && i != j || n != 4 && i == j {
				t.Errorf("%q finds %d messages of %q", ids()[i], n, ids()[j])
			}
		}
		told := string(c.do(200, "GET", "/v1/conversations", nil)) + string(c.do(200, "GET", "/v1/history/replay", nil)) + string(c.do(200, "GET", "/v1/history/export", nil))
		if strings.Count(told, "zqcanary") != strings.Count(told, c.word) || !strings.Contains(told, `"has_more":false`) || strings.Count(told, `"name":"default"`) != 1 || !strings.Contains(told, "earlier_conversation") {
			t.Errorf("%q is told %s", ids()[i], told)
		}
	}
	d.stop() // the index is in files by then
	d.begin()
	for i, c := range all {
		c.do(204, "DELETE", "/v1/conversations/default", nil)
		if i%5 > 0 && i < len(all)-1 {
			continue
		}
		left := contents(t, d.dir)
		for j, other := range all {
			for _, word := range []string{other.word, other.pixels} {
				if there := bytes.Contains(left, []byte(word)); there == (j <= i) {
					t.Errorf("with %q cleared, what %q said is in a file: %t", ids()[i], ids()[j], there)
				}
			}
		}
	}
	d.stop()
	checkSound(t, d)
	if entries, err := os.ReadDir(filepath.Dir(d.dir)); err != nil || len(entries) != 1 {
		t.Errorf("beside the data directory there is %v, %v", entries, err)
	}
}
