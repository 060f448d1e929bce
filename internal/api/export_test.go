package api

import (
	"archive/tar"
	"bytes"
	"encoding/json/v2"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"historyd/internal/projection"
)

// spoil makes the message with that text unreadable, or readable again.
func (d *daemon) spoil(text string) {
	for name, content := range d.disk.Files() {
		if bytes.Contains(content, []byte(text)) && strings.HasPrefix(name, "transcripts/") {
			d.disk.Corrupt(name, func(b []byte) []byte {
				b[bytes.Index(b, []byte(text))+len(text)] ^= 1
				return b
			})
			return
		}
	}
	d.t.Fatalf("%s is in no transcript", text)
}

// What a disk loses while an archive is written is told in it. The download goes on.
func TestAnArchiveIsWholeWhateverIsLostMeanwhile(t *testing.T) {
	const messages = 4
	type blow struct {
		at   int // the how-manieth message read, of the three readings
		spot int // the message that it hits
	}
	var blows [][]blow
	for at := 1; at <= 3*messages; at++ {
		for spot := 1; spot <= messages; spot++ {
			blows = append(blows, []blow{{at, spot}})
			if at == messages+1 { // and it is well again in the last reading
				blows = append(blows, []blow{{at, spot}, {2*messages + 1, spot}})
				blows = append(blows, []blow{{at, spot}, {2*messages + 1, spot%messages + 1}})
			}
		}
	}
	blows = append(blows, []blow{{2*messages + 1, 1}, {2*messages + 1, 2}, {2*messages + 1, 3}, {2*messages + 1, 4}})
	for i, tt := range blows {
		if raced && i%3 != 0 { // nothing here happens at once
			continue
		}
		d := newDaemon(t, projection.Options{})
		for i := range messages {
			d.post("ann", turns, fmt.Sprintf(`{"messages":[{"role":"user","content":"number-%d-%s"}]}`, i+1, strings.Repeat("x", 100_000)))
		}
		read := 0
		hook := func(op string) error {
			if op != "record" {
				return nil
			}
			read++
			for _, b := range tt {
				if b.at == read {
					d.spoil(fmt.Sprintf("number-%d-", b.spot))
				}
			}
			return nil
		}
		d.engine.fail.Store(&hook)
		got := d.get("ann", "/v1/conversations/x/export?format=tar")
		want(t, got, 200, "")
		held, lost := archived(t, got.body)
		if held+lost != messages {
			t.Errorf("%v: the archive has %d messages, and says that %d are lost", tt, held, lost)
		}
		in := d.send(request{method: "POST", path: "/v1/conversations/y/import", caller: "ann", body: got.body, header: http.Header{"Content-Type": {tarType}}})
		if done := as[importReply](t, in); in.status != 201 || done.Imported != int64(held) {
			t.Errorf("%v: the import of an archive of %d messages: %d %s", tt, held, in.status, in.body)
		}
		if t.Failed() {
			return
		}
	}
}

// archived counts the messages of an archive, and what it says is lost.
func archived(t *testing.T, body string) (held, lost int) {
	t.Helper()
	in := tar.NewReader(strings.NewReader(body))
	_, err := in.Next()
	must(t, err)
	text, err := io.ReadAll(in)
	must(t, err)
	var doc struct {
		Messages []struct{} `json:"messages"`
		Damaged  struct {
			Lost int `json:"lost"`
		} `json:"damaged"`
	}
	must(t, json.Unmarshal(text, &doc))
	_, err = in.Next()
	if err != io.EOF {
		t.Errorf("behind the document of the archive: %v", err)
	}
	return len(doc.Messages), doc.Damaged.Lost
}

// What is nested deep would be many times as long on lines of its own. It stands on one, so that an export takes no more
// memory than its messages, and is imported again.
func TestAnExportIsNotMostlyWhiteSpace(t *testing.T) {
	d := newDaemon(t, projection.Options{UnknownTools: "keep"})
	for name, arguments := range map[string]string{
		"deep":    strings.Repeat("[", 50) + strings.Repeat("0,", 100_000) + "0" + strings.Repeat("]", 50),
		"wide":    "[" + strings.Repeat(`{"a":0},`, 50_000) + "0]",
		"text":    `"` + strings.Repeat(`[{,:\"`, 50_000) + `"`,
		"neither": `{"a":[1,{"b":2}],"c":"` + strings.Repeat("x", 1000) + `"}`,
	} {
		x := "/v1/conversations/" + name
		want(t, d.post("ann", x+"/turns", `{"messages":[`+callOf("native", arguments)+`]}`), 201, "")
		out := d.get("ann", x+"/export").body
		if len(out) > 3*len(arguments)+10_000 {
			t.Errorf("%s: %d bytes of arguments are exported in %d", name, len(arguments), len(out))
		}
		if short := strings.Contains(out, "\n          \"arguments\": "); short == (name == "deep" || name == "wide") {
			t.Errorf("%s: on lines of its own: %t", name, short)
		}
		want(t, d.post("bob", x+"/import", out), 201, "")
		if a, b := d.get("ann", x+"/messages").body, d.get("bob", x+"/messages").body; a != strings.ReplaceAll(b, `,"imported":true`, "") {
			t.Errorf("%s: the value changed", name)
		}
	}
}
