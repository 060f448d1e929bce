package strictjson

import (
	"bytes"
	"encoding/json/jsontext"
	"errors"
	"slices"
	"strings"
	"testing"
)

func TestCheckRefusesWhatTwoReadersCouldReadDifferently(t *testing.T) {
	for _, tt := range []struct {
		name, doc string
		offset    int64
		reason    string
	}{
		{"empty", "", 0, "the document ends too early"},
		{"cut", `{"a":[1,`, 8, "the document ends too early"},
		{"duplicate name", `{"a":1,"a":2}`, 7, "a duplicate name in one object"},
		{"duplicate name by escape", `{"a":1,"\u0061":2}`, 7, "a duplicate name in one object"},
		{"duplicate deep inside", `{"x":[{"k":{"a":1,"a":2}}]}`, 18, "a duplicate name in one object"},
		{"lone surrogate", `{"a":"\ud800"}`, 6, "not valid JSON"},
		{"invalid UTF-8", "{\"a\":\"\xff\"}", 6, "not valid JSON"},
		{"trailing value", `{"a":1} {"b":2}`, 8, "data after the value"},
		{"trailing comma", `[1,]`, 2, "not valid JSON"},
		{"NaN", `[NaN]`, 1, "not valid JSON"},
		{"comment", `[1/*x*/]`, 2, "not valid JSON"},
		{"raw control character", "[\"a\nb\"]", 3, "not valid JSON"},
		{"deep", strings.Repeat("[", 65) + strings.Repeat("]", 65), 64, "nesting over 64 levels"},
		{"long number", `[` + strings.Repeat("9", 65) + `]`, 1, "a number over 64 characters"},
		{"byte order mark", "\ufeff{}", 0, "not valid JSON"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			err := Check([]byte(tt.doc))
			var se *SyntaxError
			if !errors.As(err, &se) {
				t.Fatalf("Check(%q) = %v, want a *SyntaxError", tt.doc, err)
			}
			if se.Offset != tt.offset || se.Reason != tt.reason {
				t.Errorf("Check(%q) = %q at %d, want %q at %d", tt.doc, se.Reason, se.Offset, tt.reason, tt.offset)
			}
		})
	}
}

func TestCheckAcceptsTheLimits(t *testing.T) {
	for _, doc := range []string{
		"0", ` "x" `, strings.Repeat("[", 64) + strings.Repeat("]", 64),
		"[" + strings.Repeat("9", 64) + "]", `{"a":"\ud83c\udf89 \u0000"}`, `{"A":1,"a":2}`,
	} {
		if err := Check([]byte(doc)); err != nil {
			t.Errorf("Check(%q) = %v, want nil", doc, err)
		}
	}
}

func TestWalkKeepsTextAndOffsets(t *testing.T) {
	doc := []byte(` {"n": 2512292042121000001, "a" : [ 1.0 , "\u00e9<" ,{"k":null}] } `)
	if err := Check(doc); err != nil {
		t.Fatal(err)
	}
	root := Document(doc)
	n, _ := root.Member("n")
	a, _ := root.Member("a")
	if got, want := string(n.Raw), "2512292042121000001"; got != want {
		t.Errorf("n = %s, want %s", got, want)
	}
	var got []string
	for _, e := range a.Elements() {
		if at := string(doc[e.Offset : e.Offset+int64(len(e.Raw))]); at != string(e.Raw) {
			t.Errorf("offset %d holds %s, want %s", e.Offset, at, e.Raw)
		}
		got = append(got, string(e.Compact()))
	}
	if want := `1.0 "\u00e9<" {"k":null}`; strings.Join(got, " ") != want {
		t.Errorf("elements = %v, want %s", got, want)
	}
	if got, want := string(a.Compact()), `[1.0,"\u00e9<",{"k":null}]`; got != want {
		t.Errorf("Compact = %s, want %s", got, want)
	}
}

func FuzzCheckedDocumentsWalk(f *testing.F) {
	for _, s := range []string{`{"a":[1,{"b":"c"}]}`, `[]`, `"x"`, `{"a":{"a":{}}}`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, doc []byte) {
		if Check(doc) != nil {
			return
		}
		walk(t, doc, Document(doc))
	})
}

func walk(t *testing.T, doc []byte, v Value) {
	if string(doc[v.Offset:v.Offset+int64(len(v.Raw))]) != string(v.Raw) {
		t.Fatalf("value at %d is not where it says", v.Offset)
	}
	switch v.Kind() {
	case '{':
		for _, m := range v.Members() {
			walk(t, doc, m)
		}
	case '[':
		for _, e := range v.Elements() {
			walk(t, doc, e)
		}
	case '"':
		v.Text()
	}
	v.Compact()
}

// A part is a member or an element as a decoder finds it.
type part struct {
	name string
	raw  string
	at   int64
}

// decoded lists the parts of an object or an array.
func decoded(t *testing.T, v Value) (parts []part) {
	t.Helper()
	dec := jsontext.NewDecoder(bytes.NewReader(v.Raw), jsontext.AllowDuplicateNames(true))
	open, err := dec.ReadToken()
	for err == nil && dec.PeekKind() != ']' && dec.PeekKind() != '}' {
		var p part
		if open.Kind() == '{' {
			var name jsontext.Token
			if name, err = dec.ReadToken(); err != nil {
				break
			}
			p.name = name.String()
		}
		var raw jsontext.Value
		raw, err = dec.ReadValue()
		p.raw, p.at = string(raw), v.Offset+dec.InputOffset()-int64(len(raw))
		parts = append(parts, p)
	}
	if err != nil {
		t.Fatalf("%v: %s", err, v.Raw)
	}
	return parts
}

// sameParts holds a walk to what a decoder finds, at every level.
func sameParts(t *testing.T, v Value) {
	t.Helper()
	var got []part
	var inner []Value
	note := func(name string, m Value) {
		got, inner = append(got, part{name, string(m.Raw), m.Offset}), append(inner, m)
	}
	switch v.Kind() {
	case '{':
		for name, m := range v.Members() {
			note(name, m)
		}
	case '[':
		for i, e := range v.Elements() {
			if i != len(got) {
				t.Errorf("element %d is told as %d", len(got), i)
			}
			note("", e)
		}
	default:
		return
	}
	want := decoded(t, v)
	if !slices.Equal(got, want) {
		t.Errorf("%s\n got %+v\nwant %+v", v.Raw, got, want)
	}
	for _, p := range want {
		if v.Kind() != '{' {
			break
		}
		first := want[slices.IndexFunc(want, func(q part) bool { return q.name == p.name })]
		if m, there := v.Member(p.name); !there || string(m.Raw) != first.raw || m.Offset != first.at {
			t.Errorf("%q of %s: got %q at %d, %v, want %q at %d", p.name, v.Raw, m.Raw, m.Offset, there, first.raw, first.at)
		}
	}
	if v.Kind() == '{' {
		if m, there := v.Member("\x00nobody"); there {
			t.Errorf("a member that nobody wrote: %q", m.Raw)
		}
	}
	for _, m := range inner {
		sameParts(t, m)
	}
}

func TestAWalkFindsWhatADecoderFinds(t *testing.T) {
	for _, doc := range []string{
		`{}`, ` { } `, `[]`, `[ ]`, `{"a":1}`, `{ "a" : 1 , "b" : -2.5e+3 }`, "{\n\t\"a\"\r:\ttrue\n,\"b\":null}", `{"a":{"b":1},"b":2}`, `{"x":["b",{"b":"]}"}],"b":[]}`,
		`{"x":"\"b\":","b":"\\"}`, `{"x":"\\\"","b":{"c":"}\""}}`, `{"\u0061":1,"a\u0062":2}`, `{"":0,"é":1,"\"":2}`, `{"b":1,"\u0062b":2,"c":3}`,
		`{"a":"` + strings.Repeat(`\u005c\\\"`, 20) + `","b":7}`, `{"a":[[[[]]],{"x":{}}],"b":false}`, `[1, 2.50 ,"x",[],{},null,true]`, `[[1],[2,[3]]]`, `"x"`, `7`,
	} {
		sameParts(t, Document([]byte(doc)))
	}
}

func FuzzWalk(f *testing.F) {
	f.Add([]byte(`{"a":{"b":"}"} , "\u0062":[1,2,{"c":[]}] }`))
	f.Fuzz(func(t *testing.T, doc []byte) {
		if Check(doc) == nil {
			sameParts(t, Document(doc))
		}
	})
}
