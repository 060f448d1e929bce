package wire

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"historyd/internal/history"
	"historyd/internal/strictjson"
)

func decodeAppend(t testing.TB, f Format, messages string) []history.Message {
	t.Helper()
	a, err := DecodeAppend(f, []byte(`{"messages":`+messages+`}`), 0)
	if err != nil {
		t.Fatalf("DecodeAppend(%s): %v", messages, err)
	}
	return a.Messages
}

func encode(f Format, msgs []history.Message, p Purpose) string {
	return "[" + string(AppendMessages(nil, f, msgs, p)) + "]"
}

// jsonValue decodes for a comparison in which the text of numbers counts.
func jsonValue(t testing.TB, doc string) any {
	t.Helper()
	dec := json.NewDecoder(strings.NewReader(doc))
	dec.UseNumber()
	var v any
	if err := dec.Decode(&v); err != nil {
		t.Fatalf("%s: %v", doc, err)
	}
	return v
}

func sameJSON(t testing.TB, got, want string) {
	t.Helper()
	if !reflect.DeepEqual(jsonValue(t, got), jsonValue(t, want)) {
		t.Errorf("values differ\n got %s\nwant %s", got, want)
	}
}

// told lists the faults of an error as path and code.
func told(t *testing.T, err error) string {
	t.Helper()
	var faults *history.Faults
	if !errors.As(err, &faults) {
		t.Fatalf("error %T %v, want *history.Faults", err, err)
	}
	var list []string
	for _, f := range faults.List {
		if f.Offset < 0 {
			t.Errorf("fault at %q has no offset", f.Path)
		}
		s := f.Path
		if f.Code == history.CodeInvalidJSON {
			s += "!"
		}
		list = append(list, s)
	}
	return strings.Join(list, " ")
}

func TestReservedAndUnknownFormatsAreUnsupported(t *testing.T) {
	for _, f := range []Format{Tar, JSONL, "", "Native", "xml"} {
		if _, err := DecodeAppend(f, []byte(`{`), 0); err != ErrUnsupported {
			t.Errorf("DecodeAppend(%q) = %v, want ErrUnsupported", f, err)
		}
		if f.Messages() {
			t.Errorf("%q.Messages() = true", f)
		}
		if f == JSONL || f == Tar {
			continue
		}
		if _, err := DecodeDocument(f, false, []byte(`{`), 0); err != ErrUnsupported {
			t.Errorf("DecodeDocument(%q) = %v, want ErrUnsupported", f, err)
		}
		if f.Documents() {
			t.Errorf("%q.Documents() = true", f)
		}
	}
}

func TestTheFirstSyntaxFaultIsTold(t *testing.T) {
	for _, f := range []Format{Native, OpenAI} {
		body := []byte(`{"messages":[{"role":"user","role":"user"}],"x":`)
		_, err := DecodeAppend(f, body, 1)
		var se *strictjson.SyntaxError
		if !errors.As(err, &se) || se.Offset != 28 {
			t.Errorf("DecodeAppend(%s) = %v, want a fault at byte 28", f, err)
		}
		if _, err = DecodeDocument(f, false, body, 1); !errors.As(err, &se) || se.Offset != 28 {
			t.Errorf("DecodeDocument(%s) = %v, want a fault at byte 28", f, err)
		}
	}
}

func TestEnvelopeFaultsAreAllTold(t *testing.T) {
	for _, tt := range []struct{ name, body, want string }{
		{"not an object", `[]`, ""},
		{"nothing", `{}`, "messages"},
		{"no message", `{"messages":[]}`, "messages"},
		{"null", `{"messages":null}`, "messages"},
		{"unknown member", `{"messages":[{"role":"user","content":"x"}],"mesages":1}`, ""},
		{"case variants", `{"Messages":[],"tool_Categories":1,"messages":[{"role":"user","content":"x"}]}`, "messages! tool_categories!"},
		{"wrong types", `{"messages":[{"role":"user","content":"x"}],"tool_categories":[],"model":null,"provider":1}`, "tool_categories model provider"},
		{"patterns that match nothing", `{"messages":[{"role":"user","content":"x"}],"tool_categories":{"*_wallet":"wallet","pay*now":"wallet","**":"wallet","a*":"wallet","*":"x"}}`,
			"tool_categories"},
		{"categories", `{"messages":[{"role":"user","content":"x"}],"tool_categories":{"a":"","b":1,"c":"ok","d":"` + strings.Repeat("x", 1025) + `"}}`,
			"tool_categories tool_categories tool_categories"},
		{"both", `{"model":1,"messages":[{"role":"user","content":"x"},{"role":"king","content":"x"},7]}`, "model messages[1].role messages[2]"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			for _, f := range []Format{Native, OpenAI} {
				_, err := DecodeAppend(f, []byte(tt.body), 0)
				if got := told(t, err); got != tt.want {
					t.Errorf("%s: faults at %q, want %q", f, got, tt.want)
				}
			}
		})
	}
}

func TestTheEnvelopeFillsInWhoAnswered(t *testing.T) {
	body := `{"model":"m","provider":"p","tool_categories":{"a":"wallet","*":"x"},"messages":[
		{"role":"user","content":"x"},{"role":"assistant","content":"y"},{"role":"assistant","content":"z","model":"own"}]}`
	for _, f := range []Format{Native, OpenAI} {
		a, err := DecodeAppend(f, []byte(body), 0)
		if err != nil {
			t.Fatal(err)
		}
		if got, want := fmt.Sprint(a.Categories), "map[*:x a:wallet]"; got != want {
			t.Errorf("%s: categories %s, want %s", f, got, want)
		}
		var got []string
		for _, m := range a.Messages {
			got = append(got, m.Model+"/"+m.Provider)
		}
		// In Chat Completions a message has no model of its own: that member is kept as unknown.
		want := map[Format]string{Native: "/ m/p own/p", OpenAI: "/ m/p m/p"}[f]
		if strings.Join(got, " ") != want {
			t.Errorf("%s: model/provider %q, want %q", f, got, want)
		}
	}
}

func TestAnAppendHasABoundOfMessagesAndCategories(t *testing.T) {
	list := func(n int, one string) string {
		return strings.TrimSuffix(strings.Repeat(one+",", n), ",")
	}
	names := func(n int) string {
		var b strings.Builder
		for i := range n {
			fmt.Fprintf(&b, `"t%d":"general",`, i)
		}
		return strings.TrimSuffix(b.String(), ",")
	}
	message := `{"role":"user","content":"x"}`
	for what, body := range map[string]func(over int) string{
		"messages": func(over int) string { return `{"messages":[` + list(maxMessages+over, message) + `]}` },
		"tool_categories": func(over int) string {
			return `{"messages":[` + message + `],"tool_categories":{` + names(maxCategories+over) + `}}`
		},
	} {
		for _, f := range []Format{Native, OpenAI, Anthropic} {
			if _, err := DecodeAppend(f, []byte(body(0)), 0); err != nil {
				t.Errorf("%s, %s at the bound: %v", f, what, err)
			}
			var faults *history.Faults
			if _, err := DecodeAppend(f, []byte(body(1)), 0); !errors.As(err, &faults) || len(faults.List) != 1 || faults.List[0].Path != what || !strings.Contains(err.Error(), "at most") {
				t.Errorf("%s, %s over the bound: %v", f, what, err)
			}
		}
	}
}

func TestALargeMessageIsRefusedByItsSize(t *testing.T) {
	small, big := `{"role":"user","content":"x"}`, `{"role":"user","content":"xyz"}`
	limit := int64(len(big))
	for _, tt := range []struct {
		name   string
		limit  int64
		decode func(f Format, limit int64) error
	}{
		{"append", limit, func(f Format, limit int64) error {
			_, err := DecodeAppend(f, []byte(`{"x":1,"messages":[`+small+`, `+big+` ]}`), limit)
			return err
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			for _, f := range []Format{Native, OpenAI} {
				var large *TooLarge
				if err := tt.decode(f, limit); errors.As(err, &large) {
					t.Errorf("%s at the limit: %v", f, err)
				}
				err := tt.decode(f, limit-1)
				if !errors.As(err, &large) || *large != (TooLarge{"messages[1]", limit - 1, limit}) {
					t.Errorf("%s over the limit: %v, want TooLarge of messages[1]", f, err)
				}
			}
		})
	}
}

// What nests 64 deep in one form could nest deeper in the document it is exported
// in, and would then never be imported again.
func TestNothingIsTakenInThatNativeFormCouldNotHold(t *testing.T) {
	nest := func(n int) string { return strings.Repeat("[", n) + strings.Repeat("]", n) }
	for _, tt := range []struct {
		name   string
		format Format
		msg    string // %s nests
		most   int
	}{
		{"arguments", Native, `{"role":"assistant","content":[{"type":"tool_call","id":"c","name":"f","arguments":%s}]}`, 59},
		{"metadata", Native, `{"role":"user","content":"[[[[\"[[[[","metadata":{"a":%s}}`, 60},
		{"extra", Native, `{"role":"user","content":"x","extra":{"a":%s}}`, 60},
		{"unknown member", Native, `{"role":"user","content":"x","a":%s}`, 60},
		{"unknown member", OpenAI, `{"role":"user","content":"x","a":%s}`, 60},
		{"part", OpenAI, `{"role":"user","content":[{"type":"x","a":%s}]}`, 58},
		{"call", OpenAI, `{"role":"assistant","tool_calls":[{"id":"c","type":"x","a":%s}]}`, 58},
		{"member of function", OpenAI, `{"role":"assistant","tool_calls":[{"id":"c","type":"function","function":{"name":"f","arguments":"","a":%s}}]}`, 57},
	} {
		t.Run(tt.name, func(t *testing.T) {
			msgs := decodeAppend(t, tt.format, "["+fmt.Sprintf(tt.msg, nest(tt.most))+"]")
			doc := `{"version":1,"type":"historyd.history","messages":` + encode(Native, msgs, ForExport) + `}`
			if _, err := DecodeDocument(Native, false, []byte(doc), 0); err != nil {
				t.Errorf("the export cannot be imported: %v", err)
			}
			if _, err := DecodeAppend(tt.format, []byte(`{"messages":[`+fmt.Sprintf(tt.msg, nest(tt.most+1))+`]}`), 0); err == nil {
				t.Errorf("%d levels are taken in", tt.most+1)
			}
		})
	}
}

func TestNoErrorTellsWhatAClientSent(t *testing.T) {
	const canary = "canary"
	for _, msg := range []string{
		`{"role":"canary","content":"canary"}`,
		`{"role":"user","canary":1,"content":{"canary":1},"CONTENT":"canary"}`,
		`{"role":"user","content":[{"type":"canary_tool"},{"type":"text"},{"canary":1},{"type":"image_url","image_url":{"url":"data:canary"}}]}`,
		`{"role":"assistant","tool_calls":[{"canary":1},{"id":"canary","type":"canary","TYPE":1},{"id":7,"type":"function","function":{"canary":"canary"},"custom":"canary"}]}`,
		`{"role":"user","content":"x","tool_calls":["canary"],"tool_call_id":"canary"}`,
		`{"role":"function","content":"canary"}`,
		`{"role":"tool","tool_call_id":"` + strings.Repeat(canary, 200) + `","content":null}`,
		`{"type":"canary","id":"canary","messages":"canary"}`,
	} {
		for _, body := range []string{
			`{"messages":[` + msg + `],"canary":1,"model":["canary"],"tool_categories":{"canary":0}}`,
			`{"version":"canary","type":"canary","created_at":"canary","canary":1,"messages":[` + msg + `]}`,
			`[` + msg + `]`, msg, `{"canary`,
		} {
			for _, f := range []Format{Native, OpenAI} {
				_, err := DecodeAppend(f, []byte(body), 0)
				_, err2 := DecodeDocument(f, false, []byte(body), 0)
				_, err3 := DecodeDocument(f, true, []byte(body), 0)
				for _, err := range []error{err, err2, err3} {
					if err == nil {
						continue
					}
					text := err.Error()
					var faults *history.Faults
					if errors.As(err, &faults) {
						text = fmt.Sprint(faults.List)
					}
					if strings.Contains(strings.ToLower(text), canary) {
						t.Errorf("%s: %s", body, text)
					}
				}
			}
		}
	}
}

func TestNativeAndLinesAreWrittenAsTheyAreStored(t *testing.T) {
	msgs := decodeAppend(t, Native, `[{"role":"user","content":"a && b < c"},{"role":"assistant","content":"é"}]`)
	one, two := history.AppendMessage(nil, &msgs[0]), history.AppendMessage(nil, &msgs[1])
	if got, want := AppendMessages([]byte("x"), Native, msgs, ForModel), joined("x", one, ",", two); !bytes.Equal(got, want) {
		t.Errorf("native: %s, want %s", got, want)
	}
	if got, want := AppendMessages(nil, JSONL, msgs, ForExport), joined("", one, "\n", two, "\n"); !bytes.Equal(got, want) {
		t.Errorf("jsonl: %s, want %s", got, want)
	}
}

func joined(parts ...any) []byte {
	var b bytes.Buffer
	for _, p := range parts {
		fmt.Fprintf(&b, "%s", p)
	}
	return b.Bytes()
}

func BenchmarkOpenAIWrite(b *testing.B) {
	msgs := decodeAppend(b, OpenAI, `[{"role":"user","content":"hello there"},
		{"role":"assistant","content":null,"tool_calls":[{"id":"c","type":"function","function":{"name":"f","arguments":"{\"a\":1}"}}]},
		{"role":"tool","tool_call_id":"c","name":"f","content":"`+strings.Repeat("x", 2000)+`"},{"role":"assistant","content":"done"}]`)
	for _, p := range []Purpose{ForModel, ForExport} {
		b.Run(fmt.Sprint(p), func(b *testing.B) {
			b.ReportAllocs()
			var dst []byte
			for b.Loop() {
				dst = AppendMessages(dst[:0], OpenAI, msgs, p)
			}
			b.SetBytes(int64(len(dst)))
		})
	}
}

func BenchmarkDecodeAppend(b *testing.B) {
	for _, f := range []Format{Native, OpenAI} {
		b.Run(string(f), func(b *testing.B) {
			body := []byte(`{"messages":[{"role":"user","content":"` + strings.Repeat("some words ", 90) + `"}]}`)
			b.ReportAllocs()
			b.SetBytes(int64(len(body)))
			for b.Loop() {
				if _, err := DecodeAppend(f, body, 1<<20); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func TestAMisplacedMemberIsToldItsPlace(t *testing.T) {
	for _, tt := range []struct {
		f          Format
		body, want string
	}{
		{Gemini, `{"contents":[{"role":"user","parts":[{"text":"x"}]}]}`, ": in every format the list stands under messages (and 1 more)"},
		{Responses, `{"input":[{"role":"user","content":"x"}]}`, ": in every format the list stands under messages (and 1 more)"},
		{Native, `{"format":"openai","messages":[{"role":"user","content":"x"}]}`, ": the format goes into the query, such as ?format=openai"},
		{OpenAI, `{"stream":true,"messages":[{"role":"user","content":"x"}]}`, "it has messages, tool_categories, model, provider"},
	} {
		_, err := DecodeAppend(tt.f, []byte(tt.body), 0)
		if err == nil || !strings.HasSuffix(err.Error(), tt.want) {
			t.Errorf("%s as %s: got %v, want an error that ends with %q", tt.body, tt.f, err, tt.want)
		}
	}
}
