package projection

import (
	"strings"
	"testing"
	"unicode/utf8"

	"historyd/internal/history"
)

// cutResult keeps one result under a limit.
func cutResult(t testing.TB, limit int, b history.Block) (history.Block, []Change) {
	t.Helper()
	kept := keep(t, policy(t, Options{MaxToolResultChars: limit, UnknownTools: "keep"}), Request{}, message(history.Tool, b))
	return kept.Messages[0].Content[0], kept.Changes
}

func textOf(b *history.Block) string {
	var s strings.Builder
	for _, c := range b.Content {
		s.WriteString(c.Text)
	}
	return s.String()
}

func chars(s string) int64 { return int64(utf8.RuneCountInString(s)) }

func TestALongResultKeepsHeadAndTail(t *testing.T) {
	in := "begin" + strings.Repeat("x", 5000) + "end"
	got, changes := cutResult(t, 0, result("c", in))
	text := textOf(&got)
	head, tail, _ := strings.Cut(text, "\n[... 1080 characters cut by historyd; the full text is not stored ...]\n")
	if len(head)+len(tail)+1080 != len(in) || !strings.HasPrefix(head, "begin") || !strings.HasSuffix(tail, "end") {
		t.Errorf("cut to %d characters:%s", len(text), text[len(text)/2-60:len(text)/2+60])
	}
	if len(head) != len(tail) && len(head) != len(tail)+1 {
		t.Errorf("head of %d and tail of %d characters", len(head), len(tail))
	}
	if want := (history.Truncation{OriginalChars: 5008, OriginalBytes: 5008}); got.Truncated == nil || *got.Truncated != want {
		t.Errorf("Truncated = %+v, want %+v", got.Truncated, want)
	}
	want := Change{Action: "truncated", OriginalChars: 5008}
	if len(changes) != 1 || changes[0] != want {
		t.Errorf("Changes = %+v, want %+v", changes, want)
	}
	if !got.Plain {
		t.Error("is no plain text any more")
	}
}

func TestCutAtTheEdgeOfTheLimit(t *testing.T) {
	const limit = 4000
	for _, unit := range []string{"x", "é", "密", "🎉", "👩‍👩‍👧", "e\u0301"} {
		for over := -3; over <= 3; over++ {
			n := limit + over
			in := strings.Repeat(unit, n/int(chars(unit))+1)
			in = in[:offset(in, int64(n))]
			got, _ := cutResult(t, limit, result("c", in))
			text := textOf(&got)
			switch {
			case !utf8.ValidString(text):
				t.Errorf("%d of %s: invalid UTF-8", n, unit)
			case over <= 0 && (text != in || got.Truncated != nil):
				t.Errorf("%d of %s: altered", n, unit)
			case over > 0 && (chars(text) > limit || len(text) > len(in) || got.Truncated == nil):
				t.Errorf("%d of %s: %d characters, %d bytes", n, unit, chars(text), len(text))
			}
		}
	}
}

func TestACutPartsNoCharacter(t *testing.T) {
	for _, unit := range []string{"🎉", "👩‍👩‍👧‍👦", "e\u0301\u0302", "👍🏽", "🇫🇷", "🏴\U000e0067\U000e0062\U000e007f", "❤\ufe0f"} {
		for shift := range 8 {
			// Single letters around, so that units of many code points stand where the cut falls.
			in := strings.Repeat("x", 58+shift) + strings.Repeat(unit+".", 3) + strings.Repeat("y", 500) + strings.Repeat(unit+".", 3) + strings.Repeat("z", 58+shift)
			got, _ := cutResult(t, 200, result("c", in))
			head, rest, _ := strings.Cut(textOf(&got), markerBegin)
			_, tail, _ := strings.Cut(rest, markerEnd)
			for _, part := range []string{head, tail} {
				part = strings.Trim(strings.ReplaceAll(part, unit, ""), "xyz.")
				if part != "" {
					t.Errorf("shift %d: %q is parted: %q left", shift, unit, part)
				}
			}
		}
	}
}

func TestACutOfEndlessMarksStillEnds(t *testing.T) {
	in := "e" + strings.Repeat("\u0301", 5000)
	got, _ := cutResult(t, 4000, result("c", in))
	if text := textOf(&got); chars(text) != 4000 && chars(text) != 3999 {
		t.Errorf("%d characters left", chars(text))
	}
}

func TestCutIsSummedOverTheBlocksOfAResult(t *testing.T) {
	image := history.Block{Type: history.ImageBlock, URL: "https://h.example/"}
	long := func(c string) history.Block { return history.Text(strings.Repeat(c, 100)) }
	for _, tt := range []struct {
		name string
		in   []history.Block
		want []history.Block
	}{
		{"at the limit", []history.Block{long("a"), image, long("b")}, []history.Block{long("a"), image, long("b")}},
		{"the middle goes, what is no text stays", []history.Block{long("a"), image, long("b"), image, long("c")},
			[]history.Block{history.Text(strings.Repeat("a", 65) + marker(171)), image, image, history.Text(strings.Repeat("c", 64))}},
		{"one block holds both ends", []history.Block{history.Text("a"), history.Text(strings.Repeat("b", 300)), history.Text("c")},
			[]history.Block{history.Text("a"), history.Text(strings.Repeat("b", 64) + marker(173) + strings.Repeat("b", 63)), history.Text("c")}},
		{"the head ends with a block", []history.Block{history.Text(strings.Repeat("a", 65)), history.Text(""), long("b"), history.Text(strings.Repeat("c", 64))},
			[]history.Block{history.Text(strings.Repeat("a", 65) + marker(100)), history.Text(""), history.Text(strings.Repeat("c", 64))}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, _ := cutResult(t, 200, resultOf("c", tt.in...))
			got.Truncated = nil
			want := resultOf("c", tt.want...)
			if got, want := string(history.AppendBlock(nil, &got)), string(history.AppendBlock(nil, &want)); got != want {
				t.Errorf("cut to\n%s, want\n%s", got, want)
			}
		})
	}
}

func TestACutCanBeMadeDeeper(t *testing.T) {
	in := strings.Repeat("a", 3000) + strings.Repeat("b", 3000)
	direct, _ := cutResult(t, 300, result("c", in))
	cut := result("c", in)
	for _, limit := range []int{4000, 4000, 1000, 999, 300, 300, 4000} {
		cut, _ = cutResult(t, limit, cut)
		if text := textOf(&cut); chars(text) > int64(limit) || strings.Count(text, markerEnd) != 1 || cut.Truncated.OriginalChars != 6000 {
			t.Fatalf("limit %d: %d characters, %d markers, %+v", limit, chars(text), strings.Count(text, markerEnd), cut.Truncated)
		}
	}
	if got, want := textOf(&cut), textOf(&direct); got != want {
		t.Errorf("cut in steps\n%s\nat once\n%s", got, want)
	}
}

func TestADeeperCutGrowsAroundTheEarlierOne(t *testing.T) {
	for _, tt := range []struct{ head, tail, wantHead, wantTail int }{
		{20, 500, 20, 108}, // of 200, the marker takes 72
		{500, 20, 108, 20},
		{500, 500, 64, 64},
		{0, 500, 0, 128},
	} {
		cut := result("c", strings.Repeat("a", tt.head)+marker(5000)+strings.Repeat("b", tt.tail))
		cut.Truncated = &history.Truncation{OriginalChars: int64(5000 + tt.head + tt.tail), OriginalBytes: 9999}
		got, _ := cutResult(t, 200, cut)
		want := strings.Repeat("a", tt.wantHead) + marker(int64(5000+tt.head+tt.tail-tt.wantHead-tt.wantTail)) + strings.Repeat("b", tt.wantTail)
		if text := textOf(&got); text != want || got.Truncated == nil || *got.Truncated != *cut.Truncated {
			t.Errorf("%d and %d around a cut became, as %+v,\n%s, want\n%s", tt.head, tt.tail, got.Truncated, text, want)
		}
	}
}

func TestWhatLooksLikeAMarkerIsText(t *testing.T) {
	in := marker(7) + strings.Repeat("a", 3000) + marker(8)
	first, _ := cutResult(t, 1000, result("c", in))
	if text := textOf(&first); strings.Count(text, markerEnd) != 3 || chars(text) > 1000 {
		t.Fatalf("first cut:\n%s", text)
	}
	second, _ := cutResult(t, 600, first)
	text := textOf(&second)
	if strings.Count(text, markerEnd) != 3 || chars(text) > 600 || second.Truncated.OriginalChars != chars(in) {
		t.Errorf("second cut, of %+v:\n%s", second.Truncated, text)
	}
	if !strings.HasPrefix(text, marker(7)) || !strings.HasSuffix(text, marker(8)) {
		t.Errorf("the tool's own text was taken for the marker:\n%s", text)
	}
}

func TestOnlyResultsAreCut(t *testing.T) {
	long := strings.Repeat("x", 50_000)
	msgs := []history.Message{said(long), message(history.Assistant, history.Text(long), call("c", "f", `{"leaf":"`+long+`"}`)), message(history.System, history.Text(long))}
	kept := keep(t, policy(t, Options{UnknownTools: "keep"}), Request{}, msgs...)
	if got, want := show(kept.Messages), show(msgs); got != want || len(kept.Changes) > 0 {
		t.Errorf("altered: %+v", kept.Changes)
	}
}

func TestWithholdingComesBeforeTheCut(t *testing.T) {
	in := strings.Repeat("x", 2000) + "hunter2" + strings.Repeat("hunter2 ", 1000)
	kept := keep(t, policy(t, Options{}), wallet, calling("c", "pay", `{"x":"hunter2"}`), calling("d", "open", "{}"), answering("d", in))
	b := kept.Messages[2].Content[0]
	text := textOf(&b)
	if strings.Contains(text, "hunter") || chars(text) > 4000 || b.Truncated == nil {
		t.Errorf("kept %d characters: %s", chars(text), text)
	}
}
