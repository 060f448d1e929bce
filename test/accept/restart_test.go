package accept

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"historyd/test/chatmodel"
)

// zone writes a time zone that is always so many seconds ahead of UTC, and returns what to set TZ to.
func zone(t *testing.T, ahead int32) string {
	t.Helper()
	text := append([]byte("TZif"), make([]byte, 16)...)
	for _, count := range []uint32{0, 0, 0, 0, 1, 4} { // one kind of time, whose name has four bytes
		text = binary.BigEndian.AppendUint32(text, count)
	}
	text = append(binary.BigEndian.AppendUint32(text, uint32(ahead)), 0, 0)
	name := filepath.Join(t.TempDir(), "zone")
	if err := os.WriteFile(name, append(text, "ZZZ\x00"...), 0o600); err != nil {
		t.Fatal(err)
	}
	return "TZ=:" + name
}

// A daemon that starts again under another zone is the same one: a version stays a version, no time is another one, and new ones
// come behind.
func TestTheZoneOfTheMachineChangesNothing(t *testing.T) {
	t.Parallel()
	d := newDaemon(t)
	c := caller{d, d.token("operator", "ann", "")}
	env := d.env
	const path = "/v1/conversations/main"
	var tag, last string
	for i, ahead := range []int32{0, 19_800, -43_200, 50_400, 0} {
		d.env = append(env[:len(env):len(env)], zone(t, ahead))
		d.begin()
		begun := c.do(200, "GET", path+"/messages", nil)
		if i > 0 && string(begun) != last {
			t.Errorf("%d s ahead: the record is %s, was %s", ahead, begun, last)
		}
		header := []string{}
		if i > 0 {
			header = []string{"If-Match", tag}
		}
		status, body, got, err := c.try("POST", path+"/turns", said(t, fmt.Sprint("question ", i)), header...)
		if err != nil || status != http.StatusCreated {
			t.Fatalf("%d s ahead: %d %s, %v", ahead, status, body, err)
		}
		tag = got.Get("ETag")
		last = string(c.do(200, "GET", path+"/messages", nil))
		before := time.Time{}
		for _, m := range decode[struct {
			Data []struct{ At string }
		}](t, []byte(last)).Data {
			at, err := time.Parse(time.RFC3339Nano, m.At)
			if err != nil || !strings.HasSuffix(m.At, "Z") || at.Before(before) || time.Since(at).Abs() > time.Hour {
				t.Errorf("%d s ahead: a time is %s, behind %s: %v", ahead, m.At, before, err)
			}
			before = at
		}
		d.stop()
	}
}

// Which turns a model is shown is decided by the record alone: what left a window, for a summary or for a budget, does not come
// back when the process ends, and each way of leaving is told.
func TestAWindowIsTheSameAfterARestart(t *testing.T) {
	t.Parallel()
	m := chatmodel.New(t, status(503))
	d, c := newSummarised(t, m, "HISTORYD_COMPACTION_KEEP_VERBATIM_TURNS=20", "HISTORYD_COMPACTION_FOLD_BATCH=5")
	d.begin()
	for i := range 45 {
		c.turn("main", fmt.Sprint("word", i))
	}
	shown := func() map[string]string {
		all := map[string]string{}
		for _, format := range []string{"native", "openai", "anthropic", "responses", "gemini"} {
			for _, mode := range []string{"text", "full"} {
				for _, budget := range []int{0, 600, 2000, 60_000} {
					query := "?format=" + format + "&mode=" + mode
					if budget > 0 {
						query += fmt.Sprint("&max_tokens=", budget)
					}
					b := c.do(200, "GET", "/v1/conversations/main/replay"+query, nil)
					all[query] = string(b)
					if bytes.Contains(b, []byte("dropped_turns")) != (budget == 600 || budget == 2000) || !bytes.Contains(b, []byte(`"source":"digest"`)) {
						t.Errorf("%s: %.300s … %s", query, b, b[max(0, len(b)-200):])
					}
				}
			}
		}
		return all
	}
	before := shown()
	for _, end := range []func(){d.kill, d.stop} {
		end()
		d.begin()
		after := shown()
		for query, was := range before {
			if after[query] != was {
				t.Errorf("after a restart %s shows another window than %.300s", query, was)
			}
		}
	}
}
