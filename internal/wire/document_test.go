package wire

import (
	"errors"
	"strings"
	"testing"

	"historyd/internal/history"
	"historyd/internal/strictjson"
)

func TestDocumentFaultsAreAllTold(t *testing.T) {
	for _, tt := range []struct{ name, doc, want string }{
		{"not an object", `[]`, ""},
		{"nothing", `{}`, "version type messages"},
		{"version 1.0", `{"version":1.0,"type":"historyd.history","messages":[]}`, "version"},
		{"version as a string", `{"version":"1","type":"historyd.history","messages":[]}`, "version"},
		{"version 0", `{"version":0,"type":"historyd.history","messages":[]}`, "version"},
		{"version -2", `{"version":-2,"type":"historyd.history","messages":[]}`, "version"},
		{"version 1e1", `{"version":1e1,"type":"historyd.history","messages":[]}`, "version"},
		{"version null", `{"version":null,"type":"historyd.history","messages":[]}`, "version"},
		{"a newer version alone", `{"future":1,"messages":7,"version":2}`, "version"},
		{"another type", `{"version":1,"type":"x","messages":[]}`, "type"},
		{"unknown member", `{"version":1,"type":"historyd.history","messages":[],"mesages":[]}`, ""},
		{"case variant", `{"version":1,"Version":2,"type":"historyd.history","messages":[]}`, "version!"},
		{"messages not a list", `{"version":1,"type":"historyd.history","messages":{}}`, "messages"},
		{"types", `{"version":1,"type":"historyd.history","conversation":1,"created_at":"today","summary":"x","messages":[]}`,
			"conversation created_at summary"},
		{"a time that has no year in UTC", `{"version":1,"type":"historyd.history","created_at":"9999-12-31T23:59:59-23:00","messages":[]}`, "created_at"},
		{"everything at once", `{"version":7.0,"type":"historyd.history","messages":[{"role":"user","content":"x"},
			{"role":"king","content":[{"type":"tool_call","id":"","name":"f","arguments":1},{"type":"nothing"}]}]}`,
			"version messages[1].role messages[1].content[0].id messages[1].content[1].type"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, err := DecodeDocument(Native, false, []byte(tt.doc), 0)
			if got := told(t, err); got != tt.want {
				t.Errorf("faults at %q, want %q (%v)", got, tt.want, err)
			}
		})
	}
}

func TestANewerVersionSaysToUpgrade(t *testing.T) {
	for _, version := range []string{"2", "10", "99999999999999999999"} {
		_, err := DecodeDocument(Native, false, []byte(`{"version":`+version+`,"messages":[]}`), 0)
		if err == nil || !strings.Contains(err.Error(), "upgrade") {
			t.Errorf("version %s: %v, want an error that says to upgrade", version, err)
		}
	}
}

func TestADocumentKeepsWhatWasSaid(t *testing.T) {
	doc, err := DecodeDocument(Native, false, []byte(` {"version":1,"type":"historyd.history","conversation":"c",
		"created_at":"2026-11-29T21:32:05.1234567+01:00","summary":{"any":"thing"},"messages":[
		{"id":"a","seq":9,"at":"2026-11-29T21:32:05Z","role":"user","content":"x"},
		{"role":"tool","content":[{"type":"tool_result","call_id":"c","content":"[withheld: wallet]","redacted":{"category":"wallet","reason":"r"}}]}]} `), 0)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := doc.CreatedAt.Format(history.TimeFormat), "2026-11-29T20:32:05.123456Z"; got != want {
		t.Errorf("created at %s, want %s", got, want)
	}
	want := `[{"id":"a","at":"2026-11-29T21:32:05.000000Z","role":"user","kind":"user","status":"complete","content":[{"type":"text","text":"x"}],"imported":true},` +
		`{"role":"tool","status":"complete","content":[{"type":"tool_result","call_id":"c","content":"[withheld: wallet]","is_error":false,"redacted":{"category":"wallet","reason":"r"}}],"imported":true}]`
	if got := encode(Native, doc.Messages, ForExport); got != want {
		t.Errorf("got %s\nwant %s", got, want)
	}
}

func TestAnEmptyDocumentHasNoMessages(t *testing.T) {
	for _, tt := range []struct {
		format Format
		lines  bool
		body   string
	}{
		{Native, false, `{"version":1,"type":"historyd.history","messages":[]}`},
		{OpenAI, false, `[]`},
		{OpenAI, false, `{"messages":[]}`},
		{Native, true, ""},
		{OpenAI, true, "\n \r\n\n"},
		{JSONL, false, "\n"},
	} {
		doc, err := DecodeDocument(tt.format, tt.lines, []byte(tt.body), 0)
		if err != nil || len(doc.Messages) != 0 || !doc.CreatedAt.IsZero() {
			t.Errorf("%s %q: %v, %v", tt.format, tt.body, doc, err)
		}
	}
}

func TestOpenAIDocumentsComeInAllShapes(t *testing.T) {
	msg := `{"role":"user","content":"x"}`
	want := `[{"role":"user","kind":"user","status":"complete","content":[{"type":"text","text":"x"}],"imported":true}]`
	for _, tt := range []struct {
		lines bool
		body  string
	}{
		{false, `[` + msg + `]`},
		{false, `{"model":"m","tools":[{}],"messages":[` + msg + `]}`},
		{false, `{"conversation":"c","messages":[` + msg + `]}`},
		{true, msg},
		{true, "\n" + msg + "\r\n"},
	} {
		doc, err := DecodeDocument(OpenAI, tt.lines, []byte(tt.body), 0)
		if err != nil {
			t.Errorf("%s: %v", tt.body, err)
		} else if got := encode(Native, doc.Messages, ForExport); got != want {
			t.Errorf("%s: got %s, want %s", tt.body, got, want)
		}
	}
	for _, tt := range []struct{ body, want string }{
		{`"x"`, ""},
		{`{}`, "messages"},
		{`{"Messages":[]}`, "messages! messages"},
		{`{"messages":{}}`, "messages"},
		{`{"version":1,"type":"historyd.history","messages":[]}`, "type"},
	} {
		_, err := DecodeDocument(OpenAI, false, []byte(tt.body), 0)
		if got := told(t, err); got != tt.want {
			t.Errorf("%s: faults at %q, want %q", tt.body, got, tt.want)
		}
	}
}

func TestLinesTellOffsetsOfTheWholeBody(t *testing.T) {
	msg := `{"role":"user","content":"x"}` + "\n"
	for _, tt := range []struct {
		name, body string
		offset     int64
	}{
		{"torn last line", msg + "\n" + `{"role":"user","cont`, 51},
		{"fault in a middle line", msg + `{"a":1,"a":2}` + "\n" + msg, 37},
		{"two values in a line", msg + `{} {}`, 33},
	} {
		for _, f := range []Format{Native, OpenAI, JSONL} {
			_, err := DecodeDocument(f, true, []byte(tt.body), 0)
			var se *strictjson.SyntaxError
			if !errors.As(err, &se) || se.Offset != tt.offset {
				t.Errorf("%s, %s: %v, want a fault at byte %d", tt.name, f, err, tt.offset)
			}
		}
	}
	for _, f := range []Format{Native, OpenAI} {
		_, err := DecodeDocument(f, true, []byte(msg+"\n"+`{"role":"king","content":"x"}`), 0)
		var faults *history.Faults
		if !errors.As(err, &faults) || faults.List[0].Path != "messages[1].role" {
			t.Errorf("%s: %v, want a fault at messages[1].role", f, err)
		} else if f == OpenAI && faults.List[0].Offset != 39 {
			t.Errorf("offset %d, want 39", faults.List[0].Offset)
		}
	}
}
