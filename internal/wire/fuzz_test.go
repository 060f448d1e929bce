package wire

import (
	"slices"
	"testing"

	"historyd/internal/history"
	"historyd/internal/strictjson"
)

// checkNative wants messages to survive a native document, and to be strict JSON in
// every form.
func checkNative(t check, msgs []history.Message) {
	t.Helper()
	once := encode(Native, msgs, ForExport)
	doc, err := DecodeDocument(Native, false, []byte(`{"version":1,"type":"historyd.history","messages":`+once+`}`), 0)
	if err != nil {
		t.Fatalf("the native document cannot be imported: %v\n%s", err, once)
	}
	again := slices.Clone(doc.Messages)
	for i := range again {
		again[i].Imported = msgs[i].Imported
		again[i].Seq = msgs[i].Seq
		if again[i].ClientID = msgs[i].ClientID; doc.Messages[i].ClientID != msgs[i].ClientID {
			t.Fatalf("client id of message %d lost", i)
		}
	}
	if twice := encode(Native, again, ForExport); twice != once {
		t.Fatalf("native form is not stable\n got %s\nwant %s", twice, once)
	}
	if lines, err := DecodeDocument(JSONL, true, AppendMessages(nil, JSONL, msgs, ForExport), 0); err != nil {
		t.Fatalf("jsonl: %v", err)
	} else if got, want := encode(Native, lines.Messages, ForExport), encode(Native, doc.Messages, ForExport); got != want {
		t.Fatalf("jsonl\n got %s\nwant %s", got, want)
	}
	for i := range msgs {
		if _, err := history.ParseStored(history.AppendMessage(nil, &msgs[i])); err != nil {
			t.Fatalf("stored form: %v", err)
		}
	}
	for _, p := range []Purpose{ForModel, ForExport} {
		out := encode(OpenAI, msgs, p)
		// Decoded parts may lie a level deeper in native form, and so may what is made of them.
		if err := strictjson.CheckDepth([]byte(out), strictjson.MaxDepth+8); err != nil {
			t.Fatalf("openai form is not strict JSON: %v\n%s", err, out)
		}
	}
}

// checkOpenAI wants what was decoded to come back, and to be decoded to the same again.
func checkOpenAI(t check, msgs []history.Message) {
	t.Helper()
	checkNative(t, msgs)
	if len(msgs) == 0 {
		return
	}
	out := encode(OpenAI, msgs, ForExport)
	again, err := DecodeAppend(OpenAI, []byte(`{"messages":`+out+`}`), 0)
	if err != nil {
		t.Fatalf("the export cannot be decoded: %v\n%s", err, out)
	}
	for i := range again.Messages[:min(len(again.Messages), len(msgs))] {
		// The format has no place for who answered.
		again.Messages[i].Model, again.Messages[i].Provider = msgs[i].Model, msgs[i].Provider
	}
	if got, want := encode(Native, again.Messages, ForExport), encode(Native, msgs, ForExport); got != want {
		t.Fatalf("decoded again\n got %s\nwant %s\nfrom %s", got, want, out)
	}
	if twice := encode(OpenAI, again.Messages, ForExport); twice != out {
		t.Fatalf("encoded again\n got %s\nwant %s", twice, out)
	}
	if twice := encode(OpenAI, throughNative(t, msgs), ForExport); twice != out {
		t.Fatalf("encoded after a native document\n got %s\nwant %s", twice, out)
	}
	for _, f := range providerFormats() {
		judged(t, f, showing(msgs))
	}
}

func FuzzOpenAI(f *testing.F) {
	for _, msg := range goldenMessages(f, OpenAI) {
		f.Add([]byte(`{"messages":[` + msg + `]}`))
	}
	for _, list := range corpus(f, OpenAI) {
		f.Add([]byte(`{"messages":` + list + `}`))
	}
	f.Add([]byte(`{"messages":[{"role":"assistant","content":null,"refusal":"r","audio":{},"function_call":{"name":"f","arguments":"{"}}],"model":"m","tool_categories":{"*":"x"}}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		a, err := DecodeAppend(OpenAI, body, 1<<20)
		if err != nil {
			return
		}
		checkOpenAI(t, a.Messages)
	})
}

func FuzzNative(f *testing.F) {
	for _, msg := range goldenMessages(f, Native) {
		f.Add([]byte(`{"messages":[` + msg + `]}`))
	}
	f.Add([]byte(`{"messages":[{"role":"user","content":[{"type":"opaque","provider":"openai","data":[]}],"extra":{"role":"developer"}}]}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		if a, err := DecodeAppend(Native, body, 1<<20); err == nil {
			checkNative(t, a.Messages)
			s := showing(fromElsewhere(a.Messages))
			for _, to := range providerFormats() {
				judged(t, to, s)
			}
		}
	})
}

func FuzzDocument(f *testing.F) {
	f.Add([]byte(`{"version":1,"type":"historyd.history","created_at":"2026-11-29T21:32:05Z","messages":[{"id":"a","at":"2026-11-29T21:32:05","role":"user","content":"x"}]}`), byte(0))
	f.Add([]byte("{\"role\":\"user\",\"content\":\"x\"}\n\n{\"role\":\"tool\",\"tool_call_id\":\"c\",\"content\":\"\"}"), byte(3))
	f.Add([]byte(`[{"role":"developer","content":"x"}]`), byte(2))
	for _, msg := range goldenMessages(f, OpenAI) {
		f.Add([]byte(msg), byte(3))
	}
	f.Fuzz(func(t *testing.T, body []byte, how byte) {
		format := []Format{Native, OpenAI}[how>>1&1]
		doc, err := DecodeDocument(format, how&1 == 1, body, 1<<20)
		if err != nil {
			return
		}
		checkNative(t, doc.Messages)
		if format == OpenAI {
			for i := range doc.Messages {
				doc.Messages[i].Imported = false
			}
			checkOpenAI(t, doc.Messages)
		}
	})
}

// check is what the checks need of a test, of package testing or of rapid.
type check interface {
	Helper()
	Fatalf(format string, args ...any)
}
