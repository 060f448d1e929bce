package recall

import (
	"strings"
	"testing"
)

func TestTermsOfText(t *testing.T) {
	for _, tt := range []struct {
		text  string
		query bool
		want  string
	}{
		{"Hello, WORLD 42!", false, "hello world 42"},
		{"Valparaíso Straße ﬁne Øre", false, "valparaiso strasse fine ore"},
		{"ｆｕｌｌ e\u0301te\u0301", false, "full ete"},
		{"東京都", false, "東京 京都 都"},
		{"東京都", true, "東京 京都"},
		{"iPhone用ケース", false, "iphone 用ケ ケー ース ス"},
		{"mia_li_3668 a\u0000b", false, "mia li 3668 a b"},
		{"so\u00adft", false, "soft"},
		{strings.Repeat("x", 70), false, strings.Repeat("x", 64)},
		{"", false, ""},
	} {
		var got []string
		eachToken(tt.text, tt.query, func(term []byte, from, to int) {
			if from < 0 || from >= to || to > len(tt.text) {
				t.Errorf("terms of %q: %q stands at %d..%d", tt.text, term, from, to)
			}
			if term != nil {
				got = append(got, string(term))
			}
		})
		if got := strings.Join(got, " "); got != tt.want {
			t.Errorf("terms of %q: got %q, want %q", tt.text, got, tt.want)
		}
	}
}

func TestSnippetsMarkWhatWasFound(t *testing.T) {
	s := newShelf(t)
	ann := scopeNamed(t, "ann")
	s.say(ann, "a", strings.Repeat("filler text ", 60)+"the älteste\nharbours of 東京都 "+strings.Repeat("more text ", 60))
	hit := s.search(ann, Query{Text: "Alteste harbour 京都"}).Hits[0]
	var got []string
	for _, m := range hit.Marks {
		got = append(got, string([]rune(hit.Snippet)[m[0]:m[1]]))
	}
	if want := "älteste harbours 京都"; strings.Join(got, " ") != want || strings.Contains(hit.Snippet, "\n") {
		t.Errorf("snippet %q: got marks %q, want %q", hit.Snippet, got, want)
	}
	if n := len([]rune(hit.Snippet)); n > snippetRunes+2 {
		t.Errorf("snippet: got %d code points", n)
	}
}

func FuzzTokens(f *testing.F) {
	f.Add("e\u0301 東京 \xff x", true)
	f.Fuzz(func(t *testing.T, text string, query bool) {
		eachToken(text, query, func(term []byte, from, to int) {
			if from < 0 || from > to || to > len(text) {
				t.Errorf("terms of %q: %q stands at %d..%d", text, term, from, to)
			}
		})
		(&Query{Text: text}).parse()
	})
}
