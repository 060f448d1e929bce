package accept

import (
	"bytes"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"testing"
	"unicode"
)

// found is a page of a search.
type found struct {
	Data []struct {
		Conversation, ID, Role, Kind, Snippet string
		Seq                                   int64
		Marks                                 [][2]int
	}
	HasMore bool `json:"has_more"`
	Next    *string
	Behind  bool
}

// search looks for a query, with more parameters by name and value.
func (c caller) search(q string, params ...string) found {
	c.d.t.Helper()
	v := url.Values{"q": {q}, "limit": {"100"}}
	for i := 0; i < len(params); i += 2 {
		v.Set(params[i], params[i+1])
	}
	return decode[found](c.d.t, c.do(200, "GET", "/v1/search?"+v.Encode(), nil))
}

// places are where the hits are, in order of the places.
func (f found) places() string {
	list := []string{}
	for _, h := range f.Data {
		list = append(list, fmt.Sprint(h.Conversation, "#", h.Seq))
	}
	slices.Sort(list)
	return strings.Join(list, " ")
}

// seen is a text without characters that nobody sees or that turn the direction of text; joiners are no such.
func seen(text string) string {
	return strings.Map(func(r rune) rune {
		if unicode.Is(unicode.Cf, r) && r != '\u200c' && r != '\u200d' {
			return -1
		}
		return r
	}, text)
}

// check fetches the page around each hit, and holds the snippet to it.
func (f found) check(c caller) {
	c.d.t.Helper()
	for _, h := range f.Data {
		path := fmt.Sprintf("/v1/conversations/%s/messages?after=%d&before=%d", h.Conversation, h.Seq-1, h.Seq+1)
		page := decode[struct{ Data []native }](c.d.t, c.do(200, "GET", path, nil))
		if len(page.Data) != 1 || page.Data[0].ID != h.ID || page.Data[0].Role != h.Role || page.Data[0].Seq != h.Seq {
			c.d.t.Errorf("the hit %+v is not on the page %+v", h, page.Data)
			continue
		}
		text := ""
		for _, b := range page.Data[0].Content {
			text += b.Text + " "
		}
		flat := strings.Join(strings.Fields(strings.ReplaceAll(seen(text), "\x00", " ")), " ")
		inner := strings.TrimSpace(strings.Trim(h.Snippet, "…"))
		if !strings.Contains(flat, inner) || inner == "" || strings.Contains(h.Snippet, "\n") {
			c.d.t.Errorf("the snippet %q is not of %q", h.Snippet, text)
		}
		runes := []rune(h.Snippet)
		for _, m := range h.Marks {
			if m[0] < 0 || m[0] >= m[1] || m[1] > len(runes) {
				c.d.t.Errorf("the mark %v is not in %q", m, h.Snippet)
			}
		}
	}
}

// marked are the words marked in the only hit.
func (f found) marked() string {
	list := []string{}
	for _, h := range f.Data {
		for _, m := range h.Marks {
			list = append(list, string([]rune(h.Snippet)[m[0]:m[1]]))
		}
	}
	return strings.Join(list, "|")
}

// A spelling is a query, where it is found, and what is marked there; "" is for no matter what.
type spelling struct{ q, want, marked string }

func spellings() []spelling {
	return []spelling{
		{"東京", "cjk#1", "東京"},
		{"タワー", "cjk#1", "タワー"},
		{"塔", "", ""},
		{"京", "cjk#1 cjk#2", ""},
		{"北京大学", "cjk#2", "北京大学"},
		{`"大学上课"`, "cjk#2", "大学上课"},
		{"서울역", "cjk#3", ""},
		{"เชียงใหม่", "cjk#4", ""},
		{"creme brulee", "accents#1", "Crème|brûlée"},
		{"CAFÉ", "accents#1 accents#2", ""},
		{"cafe\u0301", "accents#1 accents#2", ""},
		{"lodz", "accents#3", "Łódź"},
		{"AERO smorrebrod", "accents#3", "Ærø|smørrebrød"},
		{"viet", "accents#4", "Việt"},
		{"straße", "case#1 case#2", ""},
		{"οδός", "case#3", "ΟΔΟΣ"},
		{"ёлка", "case#4", "Ёлка"},
		{"abc123", "width#1", "ＡＢＣ１２３"},
		{"カタカナ", "width#2", "ｶﾀｶﾅ"},
		{`"quick brown"`, "words#1", "quick|brown"},
		{`fox -"quick brown"`, "words#2", ""},
		{"interna*", "words#3 words#4", ""},
		{"intern*ation", "", ""},
		{"flights", "words#3 words#4", ""},
		{`"flights"`, "words#3", "flights"},
		{"2024-05-20", "words#4", ""},
		{"ann.lee@example.com", "codes#1", ""},
		{"foo_bar", "codes#1", ""},
		{"needle", "codes#2", "needle"},
		{"zerowidth", "codes#3", ""},
		{"LIGHTHOUSE", "long#1", "lighthouse"},
	}
}

func TestASearchKnowsWordsHoweverTheyAreWritten(t *testing.T) {
	t.Parallel()
	d := newDaemon(t)
	c := caller{d, d.token("operator", "ann", "")}
	d.begin()
	for name, texts := range map[string][]string{
		"cjk":     {"昨日、東京タワーに行きました。", "我们明天去北京大学上课。", "서울역에서 만나요", "พรุ่งนี้เราจะไปเชียงใหม่"},
		"accents": {"Crème brûlée at the café", "Cafe\u0301 in decomposed form", "Łódź and Ærø, smørrebrød", "Việt Nam"},
		"case":    {"Die STRASSE ist lang", "in der Straße", "Η ΟΔΟΣ", "Ёлка и ЕЛЬ"},
		"width":   {"ＡＢＣ１２３ in full width", "ｶﾀｶﾅ in half width"},
		"words":   {"the quick brown fox", "a brown quick fox", "internationalisation of flights", "international flight UA100 on 2024-05-20"},
		"codes":   {"write to ann.lee@example.com about foo_bar", "a\u0000b needle\u0000haystack", "x\u202ey 👩\u200d🚀 zero\u200dwidth"},
		"long":    {strings.Repeat("filler words go on ", 400) + "but the lighthouse stands here " + strings.Repeat("and on it goes ", 400)},
	} {
		c.do(201, "POST", "/v1/conversations/"+name+"/turns", said(t, texts...))
	}
	for _, again := range []string{"from memory", "from files"} {
		for _, tt := range spellings() {
			out := c.search(tt.q)
			out.check(c)
			if got := out.places(); got != tt.want || out.Behind {
				t.Errorf("%s: %q finds %q, want %q", again, tt.q, got, tt.want)
			}
			if got := out.marked(); tt.marked != "" && strings.ReplaceAll(got, "|", " ") != strings.ReplaceAll(tt.marked, "|", " ") {
				t.Errorf("%s: %q marks %q, want %q", again, tt.q, got, tt.marked)
			}
		}
		d.stop()
		d.begin()
	}
	for _, q := range []string{"", " ", "-fox", `""`, "...", "*", `"`, strings.Repeat("x", 2001)} {
		c.do(400, "GET", "/v1/search?q="+url.QueryEscape(q), nil)
	}
}

// Nobody is told a word of another caller's, not even that there is one.
func TestASearchIsOfOneCallerAlone(t *testing.T) {
	t.Parallel()
	d := newDaemon(t)
	callers := []caller{
		{d, d.token("operator", "ann", "")}, {d, d.token("mesh", "ann", "")}, {d, d.token("operator", "ann", "read")}, {d, d.token("operator", "ann2", "")},
	}
	d.begin()
	for i, c := range callers {
		for _, name := range []string{"default", fmt.Sprint("of-", i)} {
			c.do(201, "POST", "/v1/conversations/"+name+"/turns", said(t, fmt.Sprintf("secretof%d is shared by nobody", i), "Noted."))
		}
	}
	for range 2 {
		for i, c := range callers {
			nothing := c.do(200, "GET", "/v1/search?q=neversaid", nil)
			for j := range callers {
				if i == j {
					out := c.search(fmt.Sprint("secretof", j))
					out.check(c)
					if want := fmt.Sprintf("default#1 of-%d#1", i); out.places() != want {
						t.Errorf("caller %d finds %q of its own, want %q", i, out.places(), want)
					}
					continue
				}
				for _, rest := range []string{"", "&conversation=default", fmt.Sprint("&conversation=of-", j), "&sort=newest"} {
					if got := c.do(200, "GET", fmt.Sprint("/v1/search?q=secretof", j, rest), nil); !bytes.Equal(got, nothing) {
						t.Errorf("caller %d finds of caller %d %s", i, j, got)
					}
				}
				if out := c.ask("other", fmt.Sprintf("what of secretof%d", j)); strings.Contains(out.Text, fmt.Sprint("secretof", j)) {
					t.Errorf("caller %d recalls of caller %d %s", i, j, out.Text)
				}
			}
			if out := c.search("shared nobody"); len(out.Data) != 2 {
				t.Errorf("caller %d finds %s", i, out.places())
			}
		}
		d.stop()
		d.begin()
	}
}

func TestASearchFindsWhatWasFoldedAndTakesFilters(t *testing.T) {
	t.Parallel()
	d := newDaemon(t, "HISTORYD_COMPACTION_KEEP_VERBATIM_TURNS=2", "HISTORYD_COMPACTION_FOLD_BATCH=2")
	c := caller{d, d.token("operator", "ann", "")}
	d.begin()
	for i := range 12 {
		c.do(201, "POST", "/v1/conversations/trip/turns", said(t, fmt.Sprintf("day%02d: which harbour?", i), fmt.Sprintf("day%02d: the harbour of Faro", i)))
	}
	if s := c.replay("trip"); s.Summary == nil || s.Summary.Turns < 8 {
		t.Fatalf("nothing was folded: %s", s.summary())
	}
	out := c.search("day00")
	out.check(c)
	if out.places() != "trip#1 trip#2" {
		t.Errorf("what was folded is found at %q", out.places())
	}
	// What stands in the window is at hand; a recall brings what does not.
	known := c.recall("trip", "what of day00 and day11")
	if !strings.Contains(known.Text, "day00") || strings.Contains(known.Text, "day11") {
		t.Errorf("recalled is %s", known.Text)
	}
	for _, tt := range []struct {
		params []string
		want   int
	}{
		{nil, 24},
		{[]string{"role", "user"}, 12},
		{[]string{"conversation", "trip", "after", "4", "before", "7"}, 2},
		{[]string{"conversation", "other"}, 0},
		{[]string{"after", "2100-01-01T00:00:00Z"}, 0},
		{[]string{"before", "2100-01-01T00:00:00Z", "role", "assistant"}, 12},
	} {
		if got := c.search("harbour", tt.params...); len(got.Data) != tt.want {
			t.Errorf("with %v it finds %d, want %d", tt.params, len(got.Data), tt.want)
		}
	}
	// Pages make the whole, in order, and nothing twice.
	for _, sort := range []string{"best", "newest"} {
		seen := []int64{}
		page := c.search("harbour", "sort", sort, "limit", "5")
		for {
			for _, h := range page.Data {
				seen = append(seen, h.Seq)
			}
			if page.Next == nil {
				break
			}
			page = c.search("harbour", "sort", sort, "limit", "5", "cursor", *page.Next)
		}
		if sort == "newest" && !slices.IsSortedFunc(seen, func(a, b int64) int { return int(b - a) }) {
			t.Errorf("%s: the order is %v", sort, seen)
		}
		slices.Sort(seen)
		if n := len(seen); n != 24 || len(slices.Compact(seen)) != 24 {
			t.Errorf("%s: the pages hold %d hits: %v", sort, n, seen)
		}
	}
}
