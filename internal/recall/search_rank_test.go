package recall

import (
	"context"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"historyd/test/growth"
)

func TestAbbreviationsThatTextsExplain(t *testing.T) {
	for _, tt := range []struct{ text, want string }{
		{"from Houston (IAH) to Las Vegas (LAS)", "houston iah, vegas las"},
		{"**Newark** (EWR), Chicago O'Hare (ORD)", "newark ewr, hare ord"},
		{"Málaga (AGP)", "malaga agp"},
		{"the harbour (ABC), no name", ""},
		{"World Health Organization (WHO)", ""},
		{"Houston (iah), Houston (I), Houston (ABCDEFG), Houston (IAH", ""},
		{"Houston\n(IAH)", ""},
		{"The (ABC)", ""},
		{"(IAH)", ""},
		{strings.Repeat("é", 80) + " Houston (IAH)", "houston iah"},
	} {
		var got []string
		eachAlias(tt.text, func(name, abbr string) { got = append(got, name+" "+abbr) })
		if strings.Join(got, ", ") != tt.want {
			t.Errorf("eachAlias(%q): got %q, want %q", tt.text, got, tt.want)
		}
	}
}

// What a text explains is looked for once, however much stands before it on its line.
func TestALongLineOfAbbreviationsIsReadOnce(t *testing.T) {
	read := func(line string) time.Duration {
		return growth.Work(t, 3, func() { eachAlias(line, func(_, _ string) {}) })
	}
	const times = 32
	line := strings.Repeat("Houston (IAH) ", 1000)
	if ratio := float64(read(strings.Repeat(line, times))) / float64(read(line)); ratio > 4*times {
		t.Errorf("a line %d times as long takes %.0f times as long", times, ratio)
	}
}

func TestAnAbbreviationAndItsNameFindEachOther(t *testing.T) {
	s := newShelf(t)
	ann := scopeNamed(t, "ann")
	s.say(ann, "a", "Fly me to Houston (IAH).", "Booked to Houston (IAH).")
	s.say(ann, "b", "The gate at IAH is B7.")
	s.say(ann, "c", "Rain in Houston.")
	s.say(ann, "d", "Once is a slip: Boston (BXS).", "BXS")
	look := func(when string) {
		t.Helper()
		for _, tt := range []struct {
			query string
			want  []string
		}{
			{"Houston", []string{"a/1", "a/2", "b/1", "c/1"}},
			{"iah", []string{"a/1", "a/2", "b/1", "c/1"}},
			{"Boston", []string{"d/1"}},
			{`"Houston"`, []string{"a/1", "a/2", "c/1"}},
			{"gate -Houston", []string{"b/1"}},
		} {
			got := hitPlaces(s.search(ann, Query{Text: tt.query}))
			if slices.Sort(got); !slices.Equal(got, tt.want) {
				t.Errorf("%s: %s: got %q, want %q", when, tt.query, got, tt.want)
			}
		}
		s.finds(ann, Query{Text: "Houston rain", Sort: Newest}, "c/1")
	}
	look("in memory")
	for _, h := range s.search(ann, Query{Text: "Houston"}).Hits {
		if h.Conversation == "b" && len(h.Marks) != 1 {
			t.Errorf("marks in %q: got %v, want the abbreviation", h.Snippet, h.Marks)
		}
	}
	s.reopen()
	look("in a segment")
	s.clear(ann, "a")
	s.finds(ann, Query{Text: "Houston"}, "c/1") // Nothing explains it any more.
}

// Each of these is about the order of two messages that would come the other way round, the newer one first.
func TestWhatStandsAroundAWordCounts(t *testing.T) {
	const filler = "a word and then another one that says nothing at all of what is asked here and goes on for some more words"
	for _, tt := range []struct {
		name, query string
		talks       [][]string // "a", "b", …
		want        []string   // of what is found, in this order
	}{
		{"words that stand together", "omar davis",
			[][]string{{"Omar Davis wrote that day to his friend of it"}, {"Davis wrote that day to his friend Omar of it"}}, []string{"a/1", "b/1"}},
		{"what was asked", "portree keeper",
			[][]string{{filler, "Yes.", "Portree?", "The keeper lives here."}, {"Portree?", "Yes.", filler, "The keeper lives here."}}, []string{"a/4", "b/4"}},
		{"what else was said", "portree keeper",
			[][]string{{"Hello", "The keeper lives here.", "Thanks", "All of this is in Portree."}, {"Hello", "The keeper lives here."}}, []string{"a/2", "b/2"}},
		{"ordinals", "24", [][]string{{"on the 24th"}}, []string{"a/1"}},
		{"words cut at an apostrophe", "couldn't ferry", [][]string{{"ferry"}, {"couldn't"}}, []string{"a/1", "b/1"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := newShelf(t)
			ann := scopeNamed(t, "ann")
			for i, texts := range tt.talks {
				s.say(ann, string(rune('a'+i)), texts...)
			}
			got := hitPlaces(s.search(ann, Query{Text: tt.query}))
			if others := slices.DeleteFunc(slices.Clone(got), func(p string) bool { return !slices.Contains(tt.want, p) }); !slices.Equal(others, tt.want) {
				t.Errorf("%q: got %q, want %q in this order", tt.query, got, tt.want)
			}
		})
	}
}

// A name alone is in fewer words than what is said of it, and says less.
func TestAFewWordsAreNoBetterForThat(t *testing.T) {
	s := newShelf(t)
	ann := scopeNamed(t, "ann")
	for i := range 40 {
		s.say(ann, "filler", fmt.Sprintf("number %d of many messages that are as long as messages are in most of all conversations that there are", i))
	}
	s.say(ann, "a", "I am Maud.")
	s.say(ann, "b", "Maud lives in the lighthouse.")
	got := s.search(ann, Query{Text: "maud"})
	if len(got.Hits) != 2 || got.Hits[0].Score != got.Hits[1].Score {
		t.Errorf("got %q with %v, want the same score for both", hitPlaces(got), got.Hits)
	}
}

// An index in many parts is gone through by several goroutines, and what is found is the same as by one.
func TestManyProcessorsFindWhatOneFinds(t *testing.T) {
	s := newShelf(t)
	s.finish()
	w := newWriter(2)
	w.write(t, s, 1000, 10)
	x, err := NewIndex(SearchOptions{FS: s.disk, Record: s.store, MaxMemory: minMemory})
	if err != nil {
		t.Fatal(err)
	}
	s.index = x
	defer s.close()
	scope := scopeNamed(t, "ann")
	s.search(scope, Query{Text: "bacon"})
	if n := len(x.callers[scope].segments); n < 2 {
		t.Fatalf("the index has %d segments, want more", n)
	}
	for i := range 4 {
		for _, q := range []Query{
			{Text: w.text(40)}, {Text: w.text(300), Plain: true}, {Text: w.text(15), Sort: Newest}, {Text: fmt.Sprintf("%q", w.words[i]+" "+w.words[i+1])},
			{Text: w.words[40_000+i][:2] + "*", Limit: 3}, {Text: w.text(40), Role: "user", Conversation: "c0003"},
		} {
			var want Results
			for _, x.width = range []int{1, 2, maxScorers} {
				got := s.search(scope, q)
				if x.width == 1 {
					want = got
				} else if !reflect.DeepEqual(got, want) {
					t.Errorf("%+v: by %d got %d hits %q, by one %d hits %q", q, x.width, got.Total, hitPlaces(got), want.Total, hitPlaces(want))
				}
			}
		}
	}
	t.Run("panics", func(t *testing.T) {
		defer func() {
			if v := recover(); v != "at the third" {
				t.Errorf("whoever asked got %v of a panic in the search", v)
			}
		}()
		asked := make(chan bool, 2)
		_, err := x.Search(context.Background(), scope, Query{Text: w.words[0], Exclude: func(Place) bool {
			select {
			case asked <- true:
				return false
			default:
				panic("at the third")
			}
		}})
		t.Errorf("got %v, want a panic", err)
	})
}
