package accept

import (
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"historyd/test/chatmodel"
)

// shown is a text without what a person would not see or would see wrongly, as words of a model are kept.
func shown(s string) string {
	s = strings.Map(func(r rune) rune {
		switch {
		case r == '\r' || r == '\u0085' || unicode.In(r, unicode.Zl, unicode.Zp):
			return '\n'
		case r == '\t':
			return ' '
		case r != '\n' && r != '\u200c' && r != '\u200d' && unicode.In(r, unicode.Cc, unicode.Cf, unicode.Co):
			return -1
		}
		return r
	}, strings.ReplaceAll(s, "\r\n", "\n"))
	return strings.TrimSpace(s)
}

var entryNumber = regexp.MustCompile(`entry([0-9]+) `)

// What a model answers is one quotation in the summary, whatever it is; an answer that is no summary is not taken.
func TestNothingThatAModelWritesLeavesItsField(t *testing.T) {
	t.Parallel()
	all := forgeries(t)
	m := chatmodel.New(t, func(w http.ResponseWriter, c chatmodel.Chat) {
		n, err := strconv.Atoi(append(entryNumber.FindStringSubmatch(c.Said), "", "")[1])
		if err != nil || n >= len(all) {
			t.Errorf("the model is asked of no entry: %.300q", c.Said)
			return
		}
		chatmodel.Says(w, all[n].Text)
	})
	d, ann := newSummarised(t, m, "HISTORYD_COMPACTION_MODEL_MAX_INPUT_TOKENS=100000")
	mesh := caller{d, d.token("mesh", "ann", "")}
	d.begin()
	name := func(i int) string { return fmt.Sprint("c", i) }
	long := func(i int) string { return strings.Repeat(fmt.Sprintf("entry%d is spoken of at length. ", i), 400) }
	callers := []caller{ann, mesh}
	for i := range all {
		for _, c := range callers {
			for range 4 {
				c.do(201, "POST", "/v1/conversations/"+name(i)+"/turns", said(t, long(i), "Noted."))
			}
		}
	}
	await(t, "each conversation is summarised, or is not", func() bool {
		n := 0
		for _, result := range []string{"recorded", "refused", "failed", "overflow", "dropped"} {
			n += d.metric(fmt.Sprintf("historyd_summaries_total{result=%q}", result))
		}
		return n >= 2*len(all)
	})
	taken := 0
	for i, f := range all {
		want := shown(f.Text)
		for kind, c := range map[string]caller{"operator": ann, "mesh": mesh} {
			for range 2 {
				c.do(201, "POST", "/v1/conversations/"+name(i)+"/turns", said(t, "And now?", "Now this."))
			}
			for _, format := range replayFormats {
				s := c.replayAs(name(i), format, "text")
				read, err := readSummary(s.Summary.Text)
				if err != nil {
					t.Fatalf("%s, %s: %v in %.500q", f.Name, kind, err, s.Summary.Text)
				}
				// What is empty, longer than what was said, or a piece of the request is no summary.
				whole := want != "" && utf8.RuneCountInString(want) < 24_000 && !strings.Contains(want, "<said_since>")
				if (read.words != nil) != whole {
					t.Errorf("%s, %s, %s: words %.200s of %.200q", f.Name, kind, format, encode(t, read.words), want)
				}
				if read.words != nil {
					taken++
					words, cut := strings.CutSuffix(read.words.Text, "…")
					if !strings.HasPrefix(want, words) || read.words.More != 0 || cut == (words == want) {
						t.Errorf("%s, %s, %s: the words are %.300q, %d more, want %.300q", f.Name, kind, format, read.words.Text, read.words.More, want)
					}
				}
				if format != "native" && kind == "mesh" && (s.System != nil || !strings.HasPrefix(s.fields(t, format)[0].who, "user")) {
					t.Errorf("%s, %s: the words of a peer are in the system position", f.Name, format)
				}
			}
		}
	}
	if taken < 60*2*len(replayFormats) {
		t.Errorf("%d words of a model were looked at", taken)
	}
}

// letters are what is to be read of a text.
func letters(s string) string {
	return strings.Map(func(r rune) rune {
		if unicode.In(r, unicode.L, unicode.N, unicode.P, unicode.S) && !unicode.In(r, unicode.Other_Default_Ignorable_Code_Point) {
			return r
		}
		return -1
	}, s)
}

// What retrievers find and what this caller's own record holds stands in rows of its own, and what has no room is counted.
func TestNothingThatIsRecalledLeavesItsRow(t *testing.T) {
	t.Parallel()
	m := newRetriever(t)
	d := newDaemon(t)
	d.configure(recallOf("20s", m.memory()))
	c := caller{d, d.tokenIn("home", "operator", "ann", "")}
	d.begin()
	for i, f := range forgeries(t) {
		mine := fmt.Sprintf("zebraword%d ", i)
		c.do(201, "POST", fmt.Sprintf("/v1/conversations/own-%d/turns", i), said(t, mine+f.Text, "Noted."))
		hit := func(n int) map[string]string {
			return map[string]string{"title": f.Text, "text": fmt.Sprint(n, " ") + f.Text}
		}
		m.answers("memory_search", string(encode(t, asText(string(encode(t, []any{hit(1), hit(2), map[string]string{"title": "sound", "text": "what is sound"}}))))))
		out := c.recall("main", mine)
		rows, leftOut, err := readNotes(out.Text)
		if err != nil {
			t.Errorf("%s: %v in %.500q", f.Name, err, out.Text)
			continue
		}
		var items []note
		given := map[string]int{}
		for _, it := range out.Items {
			items = append(items, note{it.Retriever, it.Title, it.Body})
			given[it.Retriever]++
			from := "what is sound"
			if it.Retriever == "local" {
				from = mine + f.Text
			} else if n := it.Body[:1]; n == "1" || n == "2" {
				from = n + " " + f.Text
			}
			body, cut := strings.CutSuffix(it.Body, "…")
			if cut && !out.Truncated && it.Retriever != "local" || !strings.HasPrefix(letters(from), letters(strings.TrimPrefix(body, "…"))) {
				t.Errorf("%s: a row of %s says %.200q, want the beginning of %.200q", f.Name, it.Retriever, it.Body, from)
			}
		}
		if !slices.Equal(items, rows) {
			t.Errorf("%s: the rows are\n%.900q\nthe items\n%.900q", f.Name, rows, items)
		}
		// Notes of ours are not framed once more.
		want := 3
		if strings.Contains(f.Text, "<recalled_notes>") && strings.Contains(f.Text, "Notes that were looked up") {
			want = 1
		}
		if n := given["memory"] + int(leftOut); n != want {
			t.Errorf("%s: %d rows of the memory and %d left out, want %d: %.500q", f.Name, given["memory"], leftOut, want, out.Text)
		}
		if given["local"] != 1 {
			t.Errorf("%s: %d rows of the own record: %.500q", f.Name, given["local"], out.Text)
		}
	}
}

// A snippet and a title are of one line and of what was said, and nothing in them turns what stands beside.
func TestTitlesAndSnippetsAreOfOneLine(t *testing.T) {
	t.Parallel()
	d := newDaemon(t)
	c := caller{d, d.token("operator", "ann", "")}
	d.begin()
	oneLine := func(s string) bool {
		return !strings.ContainsFunc(s, func(r rune) bool {
			return unicode.In(r, unicode.Cc, unicode.Zl, unicode.Zp) || unicode.Is(unicode.Cf, r) && r != '\u200c' && r != '\u200d'
		})
	}
	for i, f := range forgeries(t) {
		name, mine := fmt.Sprint("c", i), fmt.Sprint("zebra", i)
		c.do(201, "POST", "/v1/conversations/"+name+"/turns", said(t, f.Text+" "+mine, f.Text))
		title := decode[struct{ Title string }](t, c.do(200, "GET", "/v1/conversations/"+name, nil)).Title
		if !oneLine(title) || utf8.RuneCountInString(title) > 80 || !strings.HasPrefix(letters(f.Text+mine), letters(title)) || letters(title) == "" {
			t.Errorf("%s: the title is %q", f.Name, title)
		}
		found := c.search(mine)
		if len(found.Data) != 1 || found.Data[0].Conversation != name {
			t.Errorf("%s: found %+v", f.Name, found.Data)
			continue
		}
		hit := found.Data[0]
		if !oneLine(hit.Snippet) || utf8.RuneCountInString(hit.Snippet) > 242 || !strings.Contains(letters(f.Text+mine), letters(strings.Trim(hit.Snippet, "…"))) || found.marked() != mine {
			t.Errorf("%s: the snippet is %q, marked is %q", f.Name, hit.Snippet, found.marked())
		}
	}
}

// Calls that are given as text, because more tools are named than may be declared, are one record each.
func TestNothingInACallThatIsGivenAsTextLeavesItsRecord(t *testing.T) {
	t.Parallel()
	d := newDaemon(t, "HISTORYD_REPLAY_MAX_CLOSURE_TOOLS=1", "HISTORYD_PROJECTION_UNKNOWN_TOOLS=keep")
	callers := map[string]caller{"operator": {d, d.token("operator", "ann", "")}, "mesh": {d, d.token("mesh", "ann", "")}}
	d.begin()
	call := func(id, tool, text string) []any {
		return []any{
			map[string]any{"role": "assistant", "content": []any{map[string]any{"type": "tool_call", "id": id, "name": tool, "arguments": map[string]any{"q": text}}}},
			map[string]any{"role": "tool", "content": []any{map[string]any{"type": "tool_result", "call_id": id, "content": text}}},
		}
	}
	for i, f := range forgeries(t) {
		name := fmt.Sprint("c", i)
		messages := slices.Concat([]any{map[string]any{"role": "user", "content": "go"}}, call("a", toolName(f.Text), f.Text), call("b", "declared", "fine"))
		for kind, c := range callers {
			c.do(201, "POST", "/v1/conversations/"+name+"/turns", encode(t, map[string]any{"messages": messages}))
			for _, format := range replayFormats {
				s := c.replayAs(name, format, "full")
				fields := s.fields(t, format)
				if len(fields) != 6 || fields[3] != (field{"assistant", "name", "declared"}) || fields[1].who != "assistant" || fields[2].who != "user" {
					t.Errorf("%s, %s, %s: fields %.900q", f.Name, kind, format, fields)
					continue
				}
				tool, arguments, result, err := readRecord(fields[1].text)
				if said := strings.ReplaceAll(decode[members](t, []byte(arguments)).text(t, "q"), "\x00", "\uFFFD"); err != nil || result || tool != toolName(f.Text) || said != strings.ReplaceAll(f.Text, "\x00", "\uFFFD") {
					t.Errorf("%s, %s, %s: a call of %.200q with %.200q, %t, %v in %.500q", f.Name, kind, format, tool, arguments, result, err, fields[1].text)
				}
				tool, text, result, err := readRecord(fields[2].text)
				if err != nil || !result || tool != toolName(f.Text) || !cutFrom(text, f.Text) {
					t.Errorf("%s, %s, %s: a result of %.200q with %.200q, %t, %v in %.500q", f.Name, kind, format, tool, text, result, err, fields[2].text)
				}
			}
		}
	}
}
