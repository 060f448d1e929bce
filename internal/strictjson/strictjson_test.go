package strictjson

import (
	"errors"
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

// walked is Member by a decoder.
func walked(v Value, name string) (Value, bool) {
	for n, m := range v.Members() {
		if n == name {
			return m, true
		}
	}
	return Value{}, false
}

func sameMembers(t *testing.T, doc string, names ...string) {
	t.Helper()
	v := Document([]byte(doc))
	for name := range v.Members() {
		names = append(names, name)
	}
	for _, name := range names {
		got, there := v.Member(name)
		want, is := walked(v, name)
		if there != is || string(got.Raw) != string(want.Raw) || got.Offset != want.Offset {
			t.Errorf("%q of %s: got %q at %d, %v, want %q at %d, %v", name, doc, got.Raw, got.Offset, there, want.Raw, want.Offset, is)
		}
	}
}

func TestMembersAreFoundAsAWalkFindsThem(t *testing.T) {
	for _, doc := range []string{
		`{}`, ` { } `, `{"a":1}`, `{ "a" : 1 , "b" : -2.5e+3 }`, "{\n\t\"a\"\r:\ttrue\n,\"b\":null}", `{"a":{"b":1},"b":2}`, `{"x":["b",{"b":"]}"}],"b":[]}`,
		`{"x":"\"b\":","b":"\\"}`, `{"x":"\\\"","b":{"c":"}\""}}`, `{"\u0061":1,"a\u0062":2}`, `{"":0,"é":1,"\"":2}`, `{"b":1,"\u0062b":2,"c":3}`,
		`{"a":"` + strings.Repeat(`\u005c\\\"`, 20) + `","b":7}`, `{"a":[[[[]]],{"x":{}}],"b":false}`,
	} {
		sameMembers(t, doc, "a", "b", "", "c", "é", `"`, `\`, "x")
	}
}

func FuzzMember(f *testing.F) {
	f.Add(`{"a":{"b":"}"} , "\u0062":[1,2] }`, "b")
	f.Fuzz(func(t *testing.T, doc, name string) {
		if Check([]byte(doc)) == nil && Document([]byte(doc)).Kind() == '{' {
			sameMembers(t, doc, name)
		}
	})
}
