package recall

import (
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"
)

func merging(t *testing.T, change func(*Options), batches ...batch) merged {
	t.Helper()
	var o Options
	if change != nil {
		change(&o)
	}
	if err := o.setDefaults(); err != nil {
		t.Fatal(err)
	}
	return o.merge(batches, nil)
}

func hitsOf(texts ...string) []found {
	var hits []found
	for _, s := range texts {
		hits = append(hits, found{body: s})
	}
	return hits
}

func rowsOf(m merged) string {
	var rows []string
	for _, it := range m.items {
		rows = append(rows, it.Retriever+":"+it.Body)
	}
	return strings.Join(rows, " ")
}

func TestTopKAndDuplicates(t *testing.T) {
	m := merging(t, func(o *Options) { o.TopK = 2 },
		batch{"a", hitsOf("One.", "one", "", " \u200b ", "TWO!", "three")},
		batch{"b", hitsOf("two", "Three", "!!!", "???")},
	)
	if got, want := rowsOf(m), "a:One. a:TWO! b:Three b:!!!"; got != want || m.truncated {
		t.Errorf("rows: got %q (cut: %t), want %q", got, m.truncated, want)
	}
}

func TestHitsAndTitlesAreCutWithAMark(t *testing.T) {
	m := merging(t, nil, batch{"a", []found{{title: strings.Repeat("t", 121), body: strings.Repeat("word ", 200)}}})
	it := m.items[0]
	if n := utf8.RuneCountInString(it.Title); n != 120 || !strings.HasSuffix(it.Title, "t…") {
		t.Errorf("title: got %d characters, %q, want 120 with a mark", n, it.Title)
	}
	if n := utf8.RuneCountInString(it.Body); n > 600 || n < 590 || !strings.HasSuffix(it.Body, "…") {
		t.Errorf("body: got %d characters, want 600 with a mark", n)
	}
	if !m.truncated {
		t.Error("truncated: got false, want true")
	}
	m = merging(t, nil, batch{"a", []found{{title: strings.Repeat("t", 120), body: strings.Repeat("w", 600)}}})
	if m.truncated || len(m.items[0].Body) != 600 {
		t.Errorf("at the limits: got cut, want whole")
	}
	// A mark that combines stays with its letter, or goes with it.
	if got, _ := shorten("abe\u0301f", 4); got != "ab…" {
		t.Errorf("shorten: got %q, want ab…", got)
	}
}

// Five times 50 kB take no place from two short ones, and say that they were cut.
func TestEachRetrieverGetsItsShare(t *testing.T) {
	var flood []found
	for i := range 5 {
		flood = append(flood, found{title: "flood", body: fmt.Sprint(i, strings.Repeat(" flood", 10_000))})
	}
	for _, order := range [][]batch{
		{{"flood", flood}, {"small", hitsOf("first", "second")}, {"other", flood[3:]}},
		{{"small", hitsOf("first", "second")}, {"other", flood[3:]}, {"flood", flood}},
	} {
		m := merging(t, nil, order...)
		count := map[string]int{}
		for _, it := range m.items {
			count[it.Retriever]++
		}
		if count["small"] != 2 || count["flood"] < 1 || !m.truncated {
			t.Errorf("rows: got %v (cut: %t), want both of small, some of flood", count, m.truncated)
		}
		size := utf8.RuneCountInString(m.text)
		if size > 2400 || size < 2200 {
			t.Errorf("block: got %d characters, want nearly 2400 and no more", size)
		}
		if !strings.Contains(m.text, leftOut) {
			t.Errorf("block: got no mark that rows were left out:\n%s", m.text)
		}
	}
}

func TestWhatIsShownIsLeftOut(t *testing.T) {
	var o Options
	if err := o.setDefaults(); err != nil {
		t.Fatal(err)
	}
	odd := found{title: `a: "b"`, body: "He said: \"<one>\\\ntwo\" three"}
	block := o.merge([]batch{{"a", []found{odd, {body: "next " + strings.Repeat("word ", 200)}}}}, nil).text
	for _, tt := range []struct {
		body string
		left bool
	}{
		{odd.body, true}, {"ONE, two", true}, {"said one two three four", false}, {"wo three", false}, {"???", false},
		{"next " + strings.Repeat("word ", 200), true}, {"b", false},
	} {
		got := o.merge([]batch{{"z", hitsOf(tt.body)}}, shownIn([]string{"- no block", block}))
		if left := got.text == ""; left != tt.left {
			t.Errorf("%q is left out: %t, want %t", tt.body, left, tt.left)
		}
	}
	if got := shownIn([]string{strings.Repeat("- a: \"x\"\n", maxShown+1)}); len(got) != maxShown {
		t.Errorf("%d rows count, want %d", len(got), maxShown)
	}
}
