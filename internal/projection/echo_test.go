package projection

import (
	"fmt"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"

	"historyd/internal/history"
)

// TestEchoesInResults holds that what goes from arguments goes from the results
// beside them, in the spellings that tools answer in (T8).
func TestEchoesInResults(t *testing.T) {
	const m = "[withheld: wallet]"
	for _, tt := range []struct {
		name      string
		arguments string
		result    string
		want      string
	}{
		{"a value", `{"pin":"hunter2"}`, "wrong PIN hunter2!", "wrong PIN " + m + "!"},
		{"every time", `{"pin":"hunter2"}`, "hunter2, hunter2", m + ", " + m},
		{"a nested value", `{"a":[{"b":["hunter2"]}]}`, `["hunter2"]`, `["` + m + `"]`},
		{"four characters", `{"pin":"1234"}`, "1234", m},
		{"four characters of more bytes", `{"pin":"密码密码"}`, "密码密码。", m + "。"},
		{"three characters are everywhere", `{"pin":"123","b":"密码密"}`, "123 密码密", "123 密码密"},
		{"blanks are everywhere", `{"pin":"    "}`, "a      b", "a      b"},
		{"numbers are not looked for", `{"n":12345}`, "12345", "12345"},
		{"names of members are not", `{"amount":1}`, `{"amount":2}`, `{"amount":2}`},
		{"a string that holds JSON", `{"in":"{\"pin\":\"hunter2\"}"}`, "hunter2", m},
		{"JSON in JSON in JSON", `{"in":"{\"in\":\"[\\\"hunter2\\\"]\"}"}`, "hunter2", m},
		{"a string that holds almost JSON", `{"in":"{\"pin\":\"hunter2\""}`, "hunter2", m},
		{"an argument that is a string", `"PIN 'hunter2'\nto bob"`, "hunter2 / to bob", m + " / " + m},
		{"free text", "pay\nhunter2 now\n", "unknown: hunter2 now", "unknown: " + m},
		{"free text, quoted", `say "hunter2" and 'swordfish'`, "hunter2 swordfish", m + " " + m},
		{"free text, quoted and escaped", `say "hun\"ter2`, `hun"ter2`, m},
		{"a name twice is text", `{"a":"hunter2","a":"swordfish"}`, "hunter2 swordfish", m + " " + m},
		{"an escaped quotation mark, and the JSON stays whole", `{"h":"Authorization: Bearer abc\"","n":1}`,
			`{"h":"Authorization: Bearer abc\"","n":1}`, `{"h":"` + m + `","n":1}`},
		{"white space around it gets lost", `{"pin":" hunter2\n"}`, "<hunter2>", "<" + m + ">"},
		{"the longest wins", `{"a":"hunter","b":"hunter2"}`, "hunter2 hunter", m + " " + m},
		{"overlapping ones leave nothing", `{"a":"abcdef","b":"efghij"}`, "-abcdefghij-", "-" + m + "-"},
		{"a value inside another", `{"a":"-abcd-","b":"abcd"}`, "x-abcd-x", "x" + m + "x"},
		{"JSON", `{"pin":"a\"b\\c\nd/e"}`, `{"pin":"a\"b\\c\nd/e"}`, `{"pin":"` + m + `"}`},
		{"JSON of control characters", `{"pin":"a\tb\rc\bd\fe"}`, `"a\tb\rc\bd\fe"`, `"` + m + `"`},
		{"JSON, with more escapes than it needs", `{"pin":"hunter2"}`, `{"pin":"\u0068unter\u0032"}`, `{"pin":"` + m + `"}`},
		{"ASCII-only JSON", `{"pin":"пароль🎉"}`, `"\u043f\u0430\u0440\u043e\u043b\u044c\ud83c\udf89"`, `"` + m + `"`},
		{"ASCII-only JSON, upper case", `{"pin":"пароль🎉"}`, `"\u043F\u0430\u0440\u043E\u043B\u044C\uD83C\uDF89"`, `"` + m + `"`},
		{"HTML-safe JSON", `{"pin":"<a&b>"}`, `"\u003ca\u0026b\u003e"`, `"` + m + `"`},
		{"JSON in JSON", `{"pin":"a\"b<c"}`, `{"out":"{\"pin\":\"a\\\"b\\u003cc\"}"}`, `{"out":"{\"pin\":\"` + m + `\"}"}`},
		{"Python", `{"pin":"it's é"}`, `{'pin': 'it\'s \xe9'}`, `{'pin': '` + m + `'}`},
		{"a URL", `{"pin":"a b&ü"}`, "GET /?pin=a%20b%26%c3%BC&x=1", "GET /?pin=" + m + "&x=1"},
		{"a form", `{"pin":"a b&ü"}`, "pin=a+b%26%C3%BC&x=1", "pin=" + m + "&x=1"},
		{"JSON in a URL", `{"pin":"a\"bcd"}`, "/?q=%7B%22pin%22%3A%22a%5C%22bcd%22%7D", "/?q=%7B%22pin%22%3A%22" + m + "%22%7D"},
		{"a broken escape is no escape", `{"pin":"hunter2"}`, `\u00zz \ud83d %zz \x hunter2 \`, `\u00zz \ud83d %zz \x ` + m + ` \`},
		{"a backslash at the end", `{"path":"C:\\tmp\\"}`, `{"path":"C:\\tmp\\"}`, `{"path":"` + m + `"}`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p := policy(t, Options{Withhold: []Withhold{{"wallet", true, false}}})
			for _, msgs := range [][]history.Message{
				{calling("c", "pay", tt.arguments), answering("c", tt.result)},
				{calling("c", "pay", tt.arguments), calling("d", "open", "{}"), answering("d", tt.result)},
				{calling("d", "open", "{}"), answering("d", tt.result), calling("c", "pay", tt.arguments)},
			} {
				kept := keep(t, p, wallet, msgs...)
				i := slices.IndexFunc(msgs, func(m history.Message) bool { return m.Role == history.Tool })
				b := kept.Messages[i].Content[0]
				if got := b.Content[0].Text; got != tt.want {
					t.Errorf("Keep(%s, %s) = %s, want %s", tt.arguments, tt.result, got, tt.want)
				}
				told := slices.Contains(kept.Changes, Change{Message: i, Action: "redacted", Category: "wallet", Reason: "echo"})
				if told != (tt.want != tt.result) {
					t.Errorf("Changes = %+v", kept.Changes)
				}
			}
		})
	}
}

func TestEchoesBearTheCategoryOfTheirCall(t *testing.T) {
	p := policy(t, Options{Tools: []Rule{{"pay", "wallet"}, {"write", "files"}, {"open", "misc"}}})
	kept := keep(t, p, Request{}, calling("a", "pay", `{"x":"hunter2"}`), calling("b", "write", `{"x":"swordfish"}`), calling("c", "tool", `{"x":"unheard"}`),
		calling("d", "open", `{"x":"visible"}`), answering("d", "hunter2 swordfish unheard visible"))
	got := kept.Messages[4].Content[0].Content[0].Text
	if want := "[withheld: wallet] [withheld: files] [withheld: unknown] visible"; got != want {
		t.Errorf("result = %s, want %s", got, want)
	}
	kept = keep(t, p, Request{}, calling("a", "pay", `{"x":"abcdefgh"}`), calling("b", "write", `{"x":"ghij"}`), calling("c", "open", "{}"), answering("c", "abcdefghij"))
	if got, want := kept.Messages[3].Content[0].Content[0].Text, "[withheld: wallet]"; got != want {
		t.Errorf("overlapping values became %s, want the category of the longest, %s", got, want)
	}
}

func TestEchoesInEachCarrierOfAResult(t *testing.T) {
	document := func(alter func(*history.Block)) history.Block {
		b := history.Block{Type: history.DocumentBlock, MediaType: "text/plain", URL: "https://h.example/"}
		alter(&b)
		return b
	}
	annotated := history.Text("ok")
	annotated.Extra = raw(`{"a":"hunter2"}`)
	for _, tt := range []struct {
		name string
		in   []history.Block
		want []history.Block
	}{
		{"the second text", []history.Block{history.Text("ok"), history.Text("hunter2")}, []history.Block{history.Text("ok"), history.Text("[withheld: wallet]")}},
		{"a URL", []history.Block{document(func(b *history.Block) { b.URL += "?p=hunter2&q" })}, []history.Block{document(func(b *history.Block) { b.URL += "?p=[withheld: wallet]&q" })}},
		{"a file name, whole", []history.Block{document(func(b *history.Block) { b.Filename = "my hunter2.txt" })}, []history.Block{document(func(b *history.Block) { b.Filename = "[withheld: wallet]" })}},
		{"a media type, whole", []history.Block{document(func(b *history.Block) { b.MediaType = "text/hunter2" })}, []history.Block{document(func(b *history.Block) { b.MediaType = "[withheld: wallet]" })}},
		{"data", []history.Block{history.Text("ok"), document(func(b *history.Block) { b.URL, b.Data = "", []byte("my hunter2!") })}, []history.Block{history.Text("ok")}},
		{"something opaque", []history.Block{{Type: history.OpaqueBlock, Provider: "p", Opaque: raw(`["hunter2"]`)}, history.Text("ok")}, []history.Block{history.Text("ok")}},
		{"unknown members of a block", []history.Block{annotated}, []history.Block{history.Text("ok")}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			in := message(history.Tool, resultOf("d", tt.in...))
			kept := keep(t, policy(t, Options{}), wallet, calling("c", "pay", `{"x":"hunter2"}`), calling("d", "open", "{}"), in)
			if got, want := show(kept.Messages[2:]), show([]history.Message{message(history.Tool, resultOf("d", tt.want...))}); got != want {
				t.Errorf("kept %swant %s", got, want)
			}
			if len(kept.Changes) != 2 {
				t.Errorf("Changes = %+v, want one of the result", kept.Changes)
			}
		})
	}
	in := message(history.Tool, result("d", "ok"))
	in.Content[0].Extra, in.Extra, in.Metadata = raw(`{"a":"hunter2"}`), raw(`{"a":"hunter2"}`), raw(`{"a":"hunter2"}`)
	kept := keep(t, policy(t, Options{}), wallet, calling("c", "pay", `{"x":"hunter2"}`), calling("d", "open", "{}"), in)
	if got, want := show(kept.Messages[2:]), show([]history.Message{answering("d", "ok")}); got != want {
		t.Errorf("kept %swant %s", got, want)
	}
}

func TestEchoesAreOfOneAppend(t *testing.T) {
	p := policy(t, Options{})
	keep(t, p, wallet, calling("c", "pay", `{"x":"hunter2"}`))
	kept := keep(t, p, wallet, calling("d", "open", "{}"), answering("d", "hunter2"))
	if got := kept.Messages[1].Content[0].Content[0].Text; got != "hunter2" {
		t.Errorf("result = %s", got)
	}
}

func TestAMarkThatIsSentAgainHoldsNoValue(t *testing.T) {
	// A client may send back what it read here; its mark of redaction is not taken.
	p := policy(t, Options{})
	kept := keep(t, p, wallet, calling("c", "pay", `{"_withheld":"wallet"}`), calling("d", "open", "{}"), answering("d", "see [withheld: wallet]"))
	if got, want := kept.Messages[2].Content[0].Content[0].Text, "see [withheld: wallet]"; got != want {
		t.Errorf("result = %s, want %s", got, want)
	}
}

func TestManyAndLongValuesAreFoundInSeveralPasses(t *testing.T) {
	long := strings.Repeat("0123456789abcdef", maxNodes/16)
	values := []value{{long + "!", "a"}, {long + "?", "b"}, {"hunter2", "c"}}
	text := "hunter2 " + long + "? " + long
	got := find(values, []string{text})[text]
	want := []span{{0, 7, 7, "c"}, {8, 8 + len(long) + 1, len(long) + 1, "b"}}
	if !slices.Equal(got, want) {
		t.Errorf("find = %v, want %v", got, want)
	}
}

func TestOfEqualValuesInSeveralPassesTheFirstCounts(t *testing.T) {
	found := map[string][]span{"<hunter2>": nil}
	s := newSearch(found)
	s.room = 10
	for _, v := range []value{{"hunter2", "a"}, {"another", "b"}, {"hunter2", "c"}, {"another", "d"}} {
		s.add(v)
	}
	s.pass()
	if got, want := found["<hunter2>"], []span{{1, 8, 7, "a"}}; !slices.Equal(got, want) {
		t.Errorf("found %v, want %v", got, want)
	}
}

func TestValuesThatComeAgainCostNoPass(t *testing.T) {
	s := newSearch(map[string][]span{"hunter2 swordfish": nil})
	s.room = 50
	for i := range 100 {
		s.add(value{[]string{"hunter2", "swordfish"}[i%2], "w"})
	}
	if len(s.machine.values) > 0 {
		t.Errorf("a pass was made for two values of %d bytes", s.room)
	}
}

// What is withheld may be very many short strings, which must not take many times the memory of the message.
func TestManyShortValuesTakeLittleMemory(t *testing.T) {
	list := func(n int, format string) string {
		var b strings.Builder
		for i := range n {
			fmt.Fprintf(&b, format, i)
		}
		return strings.TrimSuffix(b.String(), ",")
	}
	const many = 300_000
	p := policy(t, Options{Tools: []Rule{{"pay", "wallet"}, {"open", "misc"}}})
	for _, tt := range []struct {
		name string
		msgs []history.Message
	}{
		{"of a list", []history.Message{calling("c", "pay", `{"a":[`+list(many, `"%06d",`)+`]}`)}},
		{"of an object", []history.Message{calling("c", "pay", `{`+list(many, `"%[1]d":"%06[1]d",`)+`}`)}},
		{"lines", []history.Message{calling("c", "pay", list(many, "%06d\n"))}},
		{"quotations in a result", []history.Message{calling("c", "pay", "{}"), answering("c", list(many, "'%06d"))}},
	} {
		size := 0
		for i := range tt.msgs {
			size += len(history.AppendMessage(nil, &tt.msgs[i]))
		}
		thought := message(history.Assistant, history.Block{Type: history.ThinkingBlock, Text: "no more of it"}, history.Text("done"))
		msgs := append(tt.msgs, calling("o", "open", "{}"), answering("o", "nothing \\n"), thought)
		if got := taken(func() { keep(t, p, Request{}, msgs...) }) / float64(size); got > 50 {
			t.Errorf("%s: %.1f times the message is asked for in all", tt.name, got)
		}
	}
}

// A long string may hold a document, of which a string holds another, and so on: they must not be in memory all at once.
func TestDocumentsInStringsAreReadOneAfterTheOther(t *testing.T) {
	inner := strings.Repeat("x", 1<<20)
	for range maxNested {
		inner = "[" + strconv.Quote(inner) + "]"
	}
	inUse := func() float64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		return float64(m.HeapAlloc) / float64(len(inner))
	}
	call := calling("c", "pay", `{"a":`+strconv.Quote(inner)+`}`).Content[0]
	before, most, met := inUse(), 0.0, 0
	vs := values{each: func(value) {
		met++
		most = max(most, inUse()-before)
	}}
	vs.arguments(&call, "wallet")
	if met < maxNested || most > 5 {
		t.Errorf("%d strings take %.1f times the bytes of one", met, most)
	}
	runtime.KeepAlive(call)
}

func TestTheLatestValuesAreHeld(t *testing.T) {
	var l latest
	const all = enough + enough/4
	for i := range all {
		l.add(value{fmt.Sprintf("%08d", i), "w"})
		l.add(value{fmt.Sprintf("%08d", i-i%1000), "again"})
		if len(l.list) > enough || len(l.seen) != len(l.list) {
			t.Fatalf("%d values are held, and %d are known", len(l.list), len(l.seen))
		}
	}
	got := newest(l.after(nil), maxCarried)
	if want := (value{fmt.Sprintf("%08d", all-maxCarried/8), "w"}); len(got) != maxCarried/8 || got[0] != want {
		t.Errorf("%d are carried on from %v, want %d from %v", len(got), got[0], maxCarried/8, want)
	}
}

func BenchmarkEchoesOfAdversaries(b *testing.B) {
	// Each text would cost the square of its length if values were tried one by one.
	var values []value
	for n := 4; n < 1500; n++ {
		values = append(values, value{strings.Repeat("a", n) + "b", "w"})
	}
	text := strings.Repeat("a", 1<<20)
	b.SetBytes(int64(len(text)))
	for b.Loop() {
		if len(find(values, []string{text})[text]) > 0 {
			b.Fatal("found")
		}
	}
}

// find returns where the values stand in the texts.
func find(values []value, texts []string) map[string][]span {
	found := map[string][]span{}
	for _, t := range texts {
		found[t] = nil
	}
	s := newSearch(found)
	for _, v := range values {
		s.add(v)
	}
	s.pass()
	return found
}
