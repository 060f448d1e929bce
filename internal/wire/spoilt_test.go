package wire

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"

	"historyd/internal/history"
	"historyd/internal/strictjson"
)

// Elements of documents: none of the bad ones hides what is wrong with those behind it.
var (
	deep      = strings.Repeat(`[`, 70) + strings.Repeat(`]`, 70)
	badValues = []string{
		`{"role":"user","role":"user","content":"x"}`,
		`{"role":"user","content":"` + "\xff" + `"}`,
		`{"role":"user","content":"\ud800"}`,
		`{"role":"user","content":"x","extra":` + deep + `}`,
		`{"role":"user","content":"x","usage":{"n":` + strings.Repeat("1", 65) + `}}`,
		`{"role":"user","content":"` + strings.Repeat("long ", 1500) + `"}`,
	}
	badLines = append([]string{`{"role":"user","content":"x"`, `{"role":"user"}}`, `nothing`, `{"role":"user","content":"x"} {}`,
		`{"role":"user","content":"` + strings.Repeat("long ", 100_000) + `"}`}, badValues...)
)

const goodMessage = `{"role":"user","content":"x"}`

// toldOf returns path and code of each fault.
func toldOf(f *history.Faults) (list []string) {
	for _, fault := range f.List {
		list = append(list, fault.Path+" "+fault.Code)
	}
	return list
}

func TestABadLineHidesNoOther(t *testing.T) {
	var lines, want []string
	for i, bad := range badLines {
		lines = append(lines, bad, goodMessage, `{"role":"king","content":"x"}`)
		code := " invalid_json"
		if len(bad) > 5000 {
			code = " message_too_large"
		}
		want = append(want, place(3*i)+code, place(3*i+2)+".role invalid_message")
	}
	for _, f := range []Format{Native, JSONL, OpenAI} {
		got := read(f, true, strings.NewReader(strings.Join(lines, "\n")), 2000)
		if got.err != nil || !slices.Equal(toldOf(&got.faults), want) || len(got.messages) != len(lines) {
			t.Errorf("%s: %d messages of %d, %v, faults\n%q\nwant\n%q", f, len(got.messages), len(lines), got.err, toldOf(&got.faults), want)
		}
	}
}

func TestABadElementHidesNoOther(t *testing.T) {
	var elements, want []string
	for i, bad := range badValues {
		elements = append(elements, bad, goodMessage, `{"role":"king","content":"x"}`)
		code := " invalid_json"
		if len(bad) > 5000 {
			code = " message_too_large"
		}
		want = append(want, place(3*i)+code, place(3*i+2)+".role invalid_message")
	}
	list := strings.Join(elements, ", ")
	for _, tt := range []struct {
		f          Format
		head, tail string
		more       string
	}{
		{Native, nativeHead, `],"created_at":7}`, "created_at invalid_message"},
		{OpenAI, `[`, `]`, ""},
		{OpenAI, `{"messages":[`, `],"tool_categories":7}`, "tool_categories invalid_message"},
		// What is no JSON any more is the last fault.
		{Native, nativeHead, `,{"role":`, place(len(elements)) + " invalid_json"},
		{OpenAI, `[`, `,{"role" "user"},` + goodMessage + `]`, place(len(elements)) + " invalid_json"},
		{OpenAI, `[`, `] more`, " invalid_json"},
		{OpenAI, `[`, `,{"role":"user","content":"` + strings.Repeat("long ", 100_000) + `"}]`, place(len(elements)) + " message_too_large"},
	} {
		want := want
		if tt.more != "" {
			want = append(slices.Clone(want), tt.more)
		}
		got := read(tt.f, false, strings.NewReader(tt.head+list+tt.tail), 2000)
		if got.err != nil || !slices.Equal(toldOf(&got.faults), want) {
			t.Errorf("%s %s … %.20s: %v, faults\n%q\nwant\n%q", tt.f, tt.head, tt.tail, got.err, toldOf(&got.faults), want)
		}
	}
}

func TestWhatCannotBeReadIsToldAsThatAlone(t *testing.T) {
	for _, tt := range []struct {
		name   string
		ndjson bool
		body   string
		first  string // "" when something else is wrong, too
		faults int
	}{
		{"a line", true, goodMessage + "\n{\"role\":\n" + goodMessage, "the document ends too early at byte 38", 1},
		{"lines", true, "{\"a\":1,\"a\":1}\n{\n{} {}", "a duplicate name in one object at byte 7", 3},
		{"a torn tail", true, goodMessage + "\n" + goodMessage[:9], "the document ends too early at byte 39", 1},
		{"a torn list", false, "[" + goodMessage + "," + goodMessage[:9], "the document ends too early at byte 40", 1},
		{"elements", false, `[{"a":1,"a":1},{"a":1,"a":1}]`, "a duplicate name in one object at byte 8", 2},
		{"and a role", true, "{\n" + `{"role":"king","content":"x"}`, "", 2},
		{"and a size", true, "{\n" + `{"role":"user","content":"` + strings.Repeat("x", 9000) + `"}`, "", 2},
	} {
		d, err := NewReader(OpenAI, tt.ndjson, strings.NewReader(tt.body), 500)
		if err != nil {
			t.Fatal(err)
		}
		for _, err = range d.Messages() {
		}
		var unread *Unreadable
		var syntax *strictjson.SyntaxError
		var faults *history.Faults
		if !errors.As(err, &unread) || !errors.As(err, &syntax) || !errors.As(err, &faults) || unread.Alone != (tt.first != "") {
			t.Errorf("%s: ends with %v", tt.name, err)
		} else if tt.first != "" && (err.Error() != tt.first || faults != d.Faults()) {
			t.Errorf("%s: ends with %q, want %q", tt.name, err, tt.first)
		}
		if n := len(d.Faults().List); n != tt.faults {
			t.Errorf("%s: %d faults, want %d: %v", tt.name, n, tt.faults, d.Faults())
		}
	}
}

// Many bad lines are counted, and cost no more than good ones.
func TestManyBadLinesAreCounted(t *testing.T) {
	got := read(JSONL, true, strings.NewReader(strings.Repeat("{\n", 10_000)), 0)
	if len(got.faults.List) != history.MaxFaults || got.faults.More != 9900 || len(got.messages) != 10_000 {
		t.Errorf("%d messages, %d faults and %d more", len(got.messages), len(got.faults.List), got.faults.More)
	}
	if want := fmt.Sprint(got.faults.List[99].Path, got.faults.List[99].Offset); want != "messages[99]199" {
		t.Errorf("the last fault told is at %s", want)
	}
}

func BenchmarkReader(b *testing.B) {
	text := strings.Repeat("and so on ", 200)
	message := `{"role":"assistant","content":"` + text + `","tool_calls":[{"id":"c","type":"function","function":{"name":"f","arguments":"{\"n\":1}"}}]}`
	lines := strings.Repeat(message+"\n", 1000)
	list := "[" + strings.Repeat(message+",", 999) + message + "]"
	for name, doc := range map[string]string{"lines": lines, "list": list} {
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(len(doc)))
			for b.Loop() {
				d, err := NewReader(OpenAI, name == "lines", io.Reader(strings.NewReader(doc)), 0)
				if err != nil {
					b.Fatal(err)
				}
				for _, err := range d.Messages() {
					if err != nil {
						b.Fatal(err)
					}
				}
			}
		})
	}
}
