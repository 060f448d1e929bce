package wire

import (
	"bytes"
	"encoding/json/jsontext"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/iotest"

	"historyd/internal/history"
	"historyd/internal/strictjson"
)

// reading is all that a Reader tells of a document.
type reading struct {
	messages   []string
	seqs       []int64
	categories map[string]string
	created    string
	faults     history.Faults
	err        error
}

func read(f Format, ndjson bool, r io.Reader, limit int64) (got reading) {
	d, err := NewReader(f, ndjson, r, limit)
	if err != nil {
		return reading{err: err}
	}
	for m, err := range d.Messages() {
		var unread *Unreadable
		if errors.As(err, &unread) {
			if unread.Alone {
				got.err = unread.First
			}
			continue
		}
		if err != nil {
			return reading{err: err}
		}
		got.seqs = append(got.seqs, m.Seq)
		m.Seq = 0
		got.messages = append(got.messages, string(history.AppendInline(nil, &m)))
	}
	got.categories, got.created, got.faults = d.Categories(), d.CreatedAt().String(), *d.Faults()
	return got
}

// wholeMessages reads the list of a document that lies in memory.
func wholeMessages(f Format, ndjson bool, body []byte) (msgs []string, seqs []int64, err error) {
	d := decoder{format: f, door: history.ImportDoor}
	take := func(v strictjson.Value, i int) {
		for _, m := range d.element(v, i) {
			msgs, seqs = append(msgs, string(history.AppendInline(nil, &m))), append(seqs, int64(i))
		}
	}
	if ndjson {
		n, at := 0, int64(0)
		for line := range bytes.Lines(body) {
			if trimmed := bytes.Trim(line, blanks); len(trimmed) > 0 {
				v := strictjson.Value{Raw: trimmed, Offset: at + int64(leading(line, blanks))}
				if err := strict(v, 0); err != nil {
					return nil, nil, err
				}
				take(v, n)
				n++
			}
			at += int64(len(line))
		}
		return msgs, seqs, d.faults.Err()
	}
	if err := strictjson.Check(body); err != nil {
		return nil, nil, err
	}
	list := strictjson.Document(body)
	if list.Kind() == '[' && f == Native {
		return nil, nil, nil // no native document is a list
	}
	if list.Kind() == '{' {
		names := []string{"messages"}
		if c := codecs[f]; c != nil {
			names = c.lists()
		}
		for name, v := range list.Members() {
			if slices.Contains(names, name) {
				list = v
				break
			}
		}
	}
	if list.Kind() == '[' {
		for i, e := range list.Elements() {
			take(e, i)
		}
	}
	return msgs, seqs, d.faults.Err()
}

// checkReader wants the same of any split of a document, and what a plain parse of it says.
func checkReader(t check, f Format, ndjson bool, body []byte, seed uint64) {
	t.Helper()
	got := read(f, ndjson, bytes.NewReader(body), 0)
	for name, r := range map[string]io.Reader{
		"byte by byte":     iotest.OneByteReader(bytes.NewReader(body)),
		"end with data":    iotest.DataErrReader(bytes.NewReader(body)),
		"in random pieces": &pieces{body, rand.New(rand.NewPCG(seed, 1))},
	} {
		if again := read(f, ndjson, r, 0); !reflect.DeepEqual(got, again) {
			t.Fatalf("%s, %s: %q\n got %+v\nwant %+v", f, name, body, again, got)
		}
	}
	msgs, seqs, err := wholeMessages(f, ndjson, body)
	var syntax *strictjson.SyntaxError
	switch {
	case errors.As(err, &syntax) && strings.Contains(syntax.Reason, "ends too early"):
		// What a decoder makes of half a token depends on what it expected.
		if !got.tells(nil) && !ended(got) {
			t.Fatalf("%s: %q: no error, want %v", f, body, err)
		}
	case errors.As(err, &syntax):
		if !ended(got) && !got.tells(syntax) && !bytes.HasPrefix(body, []byte("\ufeff")) {
			t.Fatalf("%s: %q\n got %v and %v\nwant %v", f, body, got.err, got.faults, err)
		}
	case got.err != nil:
		t.Fatalf("%s: %q: %v, and nothing is wrong with it", f, body, got.err)
	case ended(got):
	case !slices.Equal(got.messages, msgs) || !slices.Equal(got.seqs, seqs):
		t.Fatalf("%s: %q\n got %q\nwant %q", f, body, got.messages, msgs)
	case err != nil && len(got.faults.List) == 0:
		t.Fatalf("%s: %q: no faults, want %v", f, body, err)
	}
}

// tells reports whether something could not be read, and first of all for that reason.
func (r *reading) tells(why *strictjson.SyntaxError) bool {
	var syntax *strictjson.SyntaxError
	if errors.As(r.err, &syntax) {
		return why == nil || *syntax == *why
	}
	for _, f := range r.faults.List {
		if f.Code == history.CodeInvalidJSON && strings.Contains(f.Detail, " at byte ") {
			return why == nil || f.Detail == why.Error() && f.Offset == why.Offset
		}
	}
	return false
}

// ended reports whether a document was of another kind, so that its rest was not read.
func ended(r reading) bool {
	return slices.ContainsFunc(r.faults.List, func(f history.Fault) bool {
		return strings.Contains(f.Detail, "upgrade") || strings.Contains(f.Detail, "native document")
	})
}

// good counts the messages of which anything could be read.
func (r *reading) good() (n int) {
	for _, m := range r.messages {
		if strings.Contains(m, `"content":[{`) {
			n++
		}
	}
	return n
}

func firstPath(r reading) string {
	if len(r.faults.List) == 0 {
		return ""
	}
	return r.faults.List[0].Path
}

// pieces hands out a document in pieces of random length.
type pieces struct {
	rest []byte
	rng  *rand.Rand
}

func (p *pieces) Read(b []byte) (int, error) {
	if len(p.rest) == 0 {
		return 0, io.EOF
	}
	n := copy(b[:min(len(b), p.rng.IntN(9))], p.rest)
	p.rest = p.rest[n:]
	return n, nil
}

var readerSeeds = []struct {
	f      Format
	ndjson bool
	body   string
}{
	{Native, false, `{"version":1,"type":"historyd.history","created_at":"2026-11-29T21:32:05Z","messages":[{"id":"a","role":"user","content":"x"}, {"role":"king"}],"summary":null,"tool_categories":{"a":"b"}}`},
	{Native, false, `{"messages":[ ],"version":1,"type":"historyd.history"} x`},
	{Native, false, `{"messages":[{"role":"user","content":"x"}],"version":2}`},
	{Native, false, `{"messages":{},"messages":[]}`},
	{Native, false, `[]`},
	{Native, false, `[0]`},
	{Native, false, ``},
	{Native, false, `{"version":1,"type":"historyd.history","messages":[{"role":"user","content":"` + "\xff" + `"}]}`},
	{Native, false, `{"version":1,"a":[[[1]]],"messages":[` + strings.Repeat("[", 70)},
	{Native, false, `{"version":` + strings.Repeat("1", 70) + `,"messages":[}`},
	{OpenAI, false, `[{"role":"user","content":"x"},{"role":"tool","tool_call_id":"c","content":"y"}]`},
	{OpenAI, false, `{"tools":[1],"messages":[{"role":"user","content":"x"}],"Messages":1}`},
	{OpenAI, false, `{"messages":[{"role":"user","content":"x","content":1}]}`},
	{OpenAI, false, "\ufeff[]"},
	{OpenAI, false, `[1 2]`},
	{OpenAI, false, `[{t`},
	{Native, false, `{"00000000": {t0`},
	{OpenAI, true, "\v"},
	{OpenAI, false, `"x"`},
	{OpenAI, true, "{\"role\":\"user\",\"content\":\"x\"}\r\n\n  {\"role\":\"king\"}"},
	{JSONL, true, "{\"role\":\"user\",\"content\":\"x\"}\n{} {}\n"},
	{JSONL, true, "{\"role\":\n{\"role\":\"king\"}\n{\"a\":1,\"a\":1}\n{\"role\":\"user\",\"content\":\"x\"}"},
	{OpenAI, false, `[{"a":1,"a":1},{"role":"user","content":"\ud800"},{"role":"king"},` + strings.Repeat("[", 70) + strings.Repeat("]", 70) + `,{"role":"user","content":"x"}]`},
	{OpenAI, false, `{"x":1,"messages":[{"role":"user","content":"x"}],"x":2}`},
	{OpenAI, false, `{"x\ud800":1,"messages":[],"\u0078":2, "x":2}`},
}

func TestAReaderReadsAsAPlainParseDoes(t *testing.T) {
	for _, s := range readerSeeds {
		checkReader(t, s.f, s.ndjson, []byte(s.body), 1)
		for i := range s.body {
			checkReader(t, s.f, s.ndjson, []byte(s.body[:i]), uint64(i))
			checkReader(t, s.f, s.ndjson, []byte(s.body[:i]+`"`+s.body[i:]), uint64(i))
		}
	}
}

func FuzzReader(f *testing.F) {
	for _, s := range readerSeeds {
		how := byte(slices.Index(providerFormats(), s.f)+1) << 1
		if s.ndjson {
			how |= 1
		}
		f.Add([]byte(s.body), how, uint64(1))
	}
	f.Fuzz(func(t *testing.T, body []byte, how byte, seed uint64) {
		formats := append([]Format{Native}, providerFormats()...)
		checkReader(t, formats[int(how>>1)%len(formats)], how&1 == 1, body, seed)
	})
}

// stream is a document that is made while it is read.
type stream struct {
	head, tail string
	element    func(i int) string
	n, at      int
	rest       string
}

func (s *stream) Read(p []byte) (int, error) {
	for s.rest == "" {
		switch {
		case s.at == 0:
			s.rest = s.head
		case s.at <= s.n:
			s.rest = s.element(s.at - 1)
			if s.at > 1 {
				s.rest = "," + s.rest
			}
		case s.at == s.n+1:
			s.rest = s.tail
		default:
			return 0, io.EOF
		}
		s.at++
	}
	n := copy(p, s.rest)
	s.rest = s.rest[n:]
	return n, nil
}

const nativeHead = `{"version":1,"type":"historyd.history","messages":[`

func longStream(messages, size int, tail string) *stream {
	text := strings.Repeat("words ", size/6)
	return &stream{head: nativeHead, tail: tail, n: messages, element: func(i int) string {
		return fmt.Sprintf(`{"id":"m%d","role":"user","content":"%s"}`, i, text)
	}}
}

func TestAReaderHoldsOneMessageAndWhatItLooksAhead(t *testing.T) {
	d, err := NewReader(Native, false, longStream(12_000, 8<<10, `]}`), 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for m, err := range d.Messages() {
		if err != nil || m.Seq != int64(n) {
			t.Fatalf("message %d: seq %d, %v", n, m.Seq, err)
		}
		if n++; n%3000 == 0 {
			var stats runtime.MemStats
			runtime.GC()
			if runtime.ReadMemStats(&stats); stats.HeapAlloc > 40<<20 {
				t.Errorf("%d MiB in use after %d messages", stats.HeapAlloc>>20, n)
			}
		}
	}
	if n != 12_000 || d.Faults().Err() != nil {
		t.Errorf("%d messages, %v", n, d.Faults().Err())
	}
}

func TestCategoriesBehindTheMessagesAreKnownBeforeThem(t *testing.T) {
	tail := `],"created_at":"2026-11-29T21:32:05Z","tool_categories":{"pay":"wallet"}}`
	for _, tt := range []struct {
		name  string
		n     int
		want  map[string]string
		fault string
	}{
		{"short", 1, map[string]string{"pay": "wallet"}, ""},
		{"just within", 1800, map[string]string{"pay": "wallet"}, ""},
		{"too far", 2300, nil, "tool_categories"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			d, err := NewReader(Native, false, longStream(tt.n, 8<<10, tail), 0)
			if err != nil {
				t.Fatal(err)
			}
			n := 0
			for _, err := range d.Messages() {
				if n++; err != nil {
					t.Fatal(err)
				}
				if n == 1 && !maps.Equal(d.Categories(), tt.want) {
					t.Errorf("categories %v, want %v", d.Categories(), tt.want)
				}
			}
			if n != tt.n || d.CreatedAt().IsZero() {
				t.Errorf("%d messages, created at %v", n, d.CreatedAt())
			}
			if got := firstPath(reading{faults: *d.Faults()}); got != tt.fault {
				t.Errorf("fault at %q, want %q", got, tt.fault)
			}
		})
	}
}

func TestAMessageOverTheLimitIsTold(t *testing.T) {
	const limit = 1000
	small := `{"role":"user","content":"x"}`
	for _, size := range []int{limit + 2*envelopeRoom, 20_000, 1 << 20} {
		big := `{"role":"user","content":"` + strings.Repeat("x", size-28) + `"}`
		for _, tt := range []struct {
			name   string
			f      Format
			ndjson bool
			body   string
			good   int
		}{
			{"native", Native, false, nativeHead + small + " , " + big + `]}`, 1},
			{"list", OpenAI, false, "[" + small + "," + big + " ]", 1},
			{"object", OpenAI, false, `{"messages":[` + small + ",\n" + big + "]}", 1},
			{"lines", OpenAI, true, small + "\n\n " + big + " \n" + small, 2},
			{"jsonl", JSONL, true, small + "\n" + big, 1},
		} {
			want := &TooLarge{"messages[1]", limit, int64(len(big))}
			if got := read(tt.f, tt.ndjson, strings.NewReader(tt.body), limit); !reflect.DeepEqual(got.err, error(want)) || got.good() != tt.good || firstPath(got) != "messages[1]" {
				t.Errorf("%s, %d bytes: %d messages, %v, want %d and %v", tt.name, len(big), got.good(), got.err, tt.good, want)
			}
			if got := read(tt.f, tt.ndjson, strings.NewReader(tt.body), int64(len(big))); got.err != nil || got.good() < 2 {
				t.Errorf("%s, at the limit of %d: %v", tt.name, len(big), got.err)
			}
		}
	}
}

// What was appended at the limit comes back in an export with more around it.
func TestWhatWasAppendedCanBeImported(t *testing.T) {
	text := `{"role":"user","content":"` + strings.Repeat("x", 2000) + `"}`
	pictures := `{"role":"user","content":[` + strings.Repeat(`{"type":"image","media_type":"image/png","attachment":"`+history.AttachmentName(make([]byte, 1500))+`"},`, 5) + `{"type":"text","text":"x"}]}`
	limit := int64(len(text))
	for _, in := range []string{text, pictures} {
		a, err := DecodeAppend(Native, []byte(`{"messages":[`+in+`]}`), limit)
		if err != nil {
			t.Fatal(err)
		}
		m := a.Messages[0]
		m.ID, m.Seq = strings.Repeat("i", 40), 7
		m.MediaBlocks(func(b *history.Block) { b.SetData(make([]byte, 1500)) })
		line := jsontext.Value(history.AppendInline(nil, &m))
		if err := line.Indent(); err != nil {
			t.Fatal(err)
		}
		if got := read(Native, false, strings.NewReader(nativeHead+string(line)+"]}"), limit); got.err != nil || len(got.messages) != 1 {
			t.Errorf("%d bytes with a limit of %d: %v", len(line), limit, got.err)
		}
	}
	big := history.Block{Type: history.ImageBlock}
	big.SetData(make([]byte, limit+1))
	m := history.Message{Role: history.User, Content: []history.Block{big}}
	if got := read(Native, false, strings.NewReader(nativeHead+string(history.AppendInline(nil, &m))+"]}"), limit); got.err == nil {
		t.Error("an attachment over the limit is taken in")
	}
}

func TestEndlessThingsEnd(t *testing.T) {
	endless := func(head, more string) io.Reader {
		return &stream{head: head, n: 1 << 30, element: func(int) string { return more }}
	}
	for name, r := range map[string]io.Reader{
		"white space":       endless(nativeHead, strings.Repeat(" ", 1000)),
		"white space first": endless("", strings.Repeat("\n", 1000)),
		"a member":          endless(`{"summary":"`, strings.Repeat("x", 1000)),
		"a name":            endless(`{"`, strings.Repeat("x", 1000)),
		"names": &stream{head: `{"x":1`, n: 1 << 30, element: func(i int) string {
			return fmt.Sprintf(`%q:1`, fmt.Sprint(i)+strings.Repeat("y", 100))
		}},
	} {
		in := &counted{r: io.LimitReader(r, 64<<20)} // who goes on to the end has no bound
		got := read(Native, false, in, 1<<20)
		var large *TooLarge // a member is passed over to its end, so that its size can be told
		if told := errors.As(got.err, &large); got.err == nil || told != (name == "a member") || !told && in.n > 2*maxMember {
			t.Errorf("%s: %v after %d bytes", name, got.err, in.n)
		}
	}
}

func TestErrorsOfTheReaderBelowComeBack(t *testing.T) {
	wrong := errors.New("the line is down")
	lines := strings.Repeat(`{"role":"user","content":"x"}`+"\n", 3)
	for _, tt := range []struct {
		f      Format
		ndjson bool
		body   string
	}{{Native, false, readerSeeds[0].body}, {OpenAI, false, `[{"role":"user","content":"x"},{"role":"tool","tool_call_id":"c","content":"y"}]`}, {JSONL, true, lines}, {Tar, false, string(goodTar(t))}} {
		for i := range tt.body {
			r := io.MultiReader(strings.NewReader(tt.body[:i]), iotest.ErrReader(wrong))
			d, err := NewReader(tt.f, tt.ndjson, r, 0)
			if err == nil {
				for _, failure := range d.Messages() {
					err = failure
				}
				for _, failure := range d.Attachments() {
					err = failure
				}
			}
			if err != wrong {
				t.Fatalf("%s after %d bytes: %v, want %v", tt.f, i, err, wrong)
			}
		}
	}
}

func TestAllFaultsAreToldAndTheRestIsRead(t *testing.T) {
	s := &stream{head: nativeHead, tail: `]}`, n: 150, element: func(i int) string {
		if i%2 == 0 {
			return `{"role":"king","content":"x"}`
		}
		return `{"role":"user","content":[]}`
	}}
	got := read(Native, false, s, 0)
	if len(got.messages) != 150 || len(got.faults.List) != history.MaxFaults || got.faults.More != 50 {
		t.Errorf("%d messages, %d faults and %d more, want 150, 100, 50 (%v)", len(got.messages), len(got.faults.List), got.faults.More, got.err)
	}
}

func TestWhoStopsReadingHasStopped(t *testing.T) {
	d, err := NewReader(OpenAI, false, strings.NewReader(`[{"role":"user","content":"x"},{"role":"user","content":"y"}]`), 0)
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		for range d.Messages() {
			break
		}
	}
	for m, err := range d.Messages() {
		t.Errorf("read on: %v, %v", m, err)
	}
}

func TestAByteOrderMarkIsNamed(t *testing.T) {
	for _, ndjson := range []bool{false, true} {
		got := read(OpenAI, ndjson, strings.NewReader("\ufeff"+`[]`), 0)
		if got.err == nil || !strings.Contains(got.err.Error(), "byte order mark") {
			t.Errorf("%v, want an error that names it", got.err)
		}
	}
}
