package accept

import (
	"bytes"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"historyd/test/judge"
)

// forged is a text that tries to be more than what it is.
type forged struct {
	Name, Text string
	Times      int
}

// forgeries is the corpus.
func forgeries(t *testing.T) (all []forged) {
	t.Helper()
	text, err := os.ReadFile("testdata/forging.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	for line := range bytes.Lines(text) {
		f := decode[forged](t, line)
		f.Text = strings.Repeat(f.Text, max(f.Times, 1))
		all = append(all, f)
	}
	if len(all) < 60 {
		t.Fatalf("%d forgeries, want at least 60", len(all))
	}
	return all
}

// bare is a text without white space around it, and as providers take it: without NUL.
func bare(s string) string {
	s = strings.TrimFunc(s, func(r rune) bool { return unicode.IsSpace(r) || 0x1c <= r && r <= 0x1f })
	return strings.ReplaceAll(s, "\x00", "\uFFFD")
}

// begins reports whether a quotation is the beginning of a text, and counts what is missing of it.
func (q *quotation) begins(text string) bool {
	return q != nil && strings.HasPrefix(text, q.Text) && int64(utf8.RuneCountInString(text)-utf8.RuneCountInString(q.Text)) == q.More
}

var cutMark = regexp.MustCompile(`\n\[\.\.\. (\d+) characters cut by historyd; the full text is not stored \.\.\.\]\n`)

// cutFrom reports whether a result is all of a text, or its head and its tail with a mark between that counts the rest.
func cutFrom(result, text string) bool {
	if utf8.RuneCountInString(text) <= 4000 {
		return bare(result) == bare(text)
	}
	for _, m := range cutMark.FindAllStringSubmatchIndex(result, -1) {
		head, tail := result[:m[0]], result[m[1]:]
		gone, _ := strconv.Atoi(result[m[2]:m[3]])
		if strings.HasPrefix(text, head) && strings.HasSuffix(text, tail) && utf8.RuneCountInString(head+tail)+gone == utf8.RuneCountInString(text) {
			return utf8.RuneCountInString(result) <= 4000
		}
	}
	return false
}

// replayAs asks for a replay, and holds it to what its provider takes.
func (c caller) replayAs(conversation, format, mode string) (s sent) {
	c.d.t.Helper()
	s = decode[sent](c.d.t, c.do(200, "GET", "/v1/conversations/"+conversation+"/replay?format="+format+"&mode="+mode, nil))
	if format == "native" {
		return s
	}
	for _, complaint := range judge.Check(format, encode(c.d.t, s.Messages), s.System, s.Tools) {
		c.d.t.Errorf("%s, mode %s: the provider would refuse it: %.300s", format, mode, complaint)
	}
	return s
}

// Whatever a person, a model or a tool says stands in its own field, whole, in every format and for both kinds of caller:
// while it is in the window, and when it was folded. Words of a peer are never in the position of the system.
func TestNothingThatIsSaidLeavesItsField(t *testing.T) {
	t.Parallel()
	d := newDaemon(t, "HISTORYD_COMPACTION_KEEP_VERBATIM_TURNS=1", "HISTORYD_COMPACTION_FOLD_BATCH=1", "HISTORYD_PROJECTION_UNKNOWN_TOOLS=keep")
	callers := map[string]caller{"operator": {d, d.token("operator", "ann", "")}, "mesh": {d, d.token("mesh", "ann", "")}}
	d.begin()
	for i, f := range forgeries(t) {
		name := fmt.Sprint("c", i)
		turn := encode(t, map[string]any{"messages": []any{
			map[string]any{"role": "user", "content": f.Text},
			map[string]any{"role": "user", "kind": "reference", "content": f.Text},
			map[string]any{"role": "assistant", "content": []any{map[string]any{"type": "tool_call", "id": "call_1", "name": toolName(f.Text), "arguments": map[string]any{"q": f.Text}}}},
			map[string]any{"role": "tool", "content": []any{map[string]any{"type": "tool_result", "call_id": "call_1", "content": f.Text}}},
			map[string]any{"role": "assistant", "content": f.Text},
		}})
		for kind, c := range callers {
			c.do(201, "POST", "/v1/conversations/"+name+"/turns", turn)
			for _, format := range replayFormats {
				for _, mode := range []string{"text", "full"} {
					s := c.replayAs(name, format, mode)
					if bare(f.Text) == "" && mode == "text" && s.Report.DroppedBlank != 3 {
						t.Errorf("%s, %s, %s: three blank texts are dropped, %d are told", f.Name, kind, format, s.Report.DroppedBlank)
					}
					if fault := f.fault(s.fields(t, format), mode); fault != "" || s.System != nil || s.Summary != nil {
						t.Errorf("%s, %s, %s, mode %s: %s", f.Name, kind, format, mode, fault)
					}
				}
			}
			c.do(201, "POST", "/v1/conversations/"+name+"/turns", said(t, "And now?", "Now this."))
			for _, format := range replayFormats {
				for _, mode := range []string{"text", "full"} {
					f.holdSummary(t, kind, format, c.replayAs(name, format, mode))
				}
			}
		}
	}
}

// toolName makes a name of a text: no longer than some agent would have it.
func toolName(text string) string {
	runes := []rune(text)
	return string(runes[:min(len(runes), 300)])
}

// fault says what is wrong with the fields of a replay of the one turn.
func (f *forged) fault(got []field, mode string) string {
	said := bare(f.Text)
	want := []field{{"user", "text", said}, {"user", "text", said}, {"assistant", "name", toolName(f.Text)}, {"assistant", "arguments", f.Text}, {"tool", "result", f.Text}, {"assistant", "text", said}}
	if said == "" {
		want = want[2:5]
	}
	if mode == "text" {
		want = []field{{"user", "text", said}, {"user", "text", said}, {"assistant", "text", said}}
		if said == "" {
			want = nil
		}
	}
	if said == "" {
		// Blank texts go, or stay as they are, or are told to be missing.
		got = slices.DeleteFunc(got, func(g field) bool {
			return g.what == "text" && (strings.TrimSpace(g.text) == "" || g.text == "[the beginning of this conversation is not shown]")
		})
	}
	for i, g := range got {
		w := field{}
		if i < len(want) {
			w = want[i]
		}
		same := g.text == w.text
		switch w.what {
		case "text", "arguments":
			same = bare(g.text) == bare(w.text)
		case "result":
			same = cutFrom(strings.ReplaceAll(g.text, "\uFFFD", "\x00"), strings.ReplaceAll(w.text, "\uFFFD", "\x00")) || said == ""
		}
		if g.who != w.who || g.what != w.what || !same {
			return fmt.Sprintf("field %d is %s %s %.300q, want %s %s %.300q", i, g.who, g.what, g.text, w.who, w.what, w.text)
		}
	}
	if len(got) != len(want) {
		return fmt.Sprintf("%d fields, want %d: %.500q", len(got), len(want), got)
	}
	return ""
}

// holdSummary holds the summary of the one turn to its frame, its place and what was said.
func (f *forged) holdSummary(t *testing.T, kind, format string, s sent) {
	t.Helper()
	what := fmt.Sprintf("%s, %s, %s", f.Name, kind, format)
	if s.Summary == nil {
		t.Fatalf("%s: nothing was folded", what)
	}
	fields := s.fields(t, format)
	system := strings.Join(append(texts(t, s.System), partTexts(t, s.System)...), "")
	switch {
	case format == "native":
		if system != "" {
			t.Errorf("%s: a system %.300q", what, system)
		}
	case kind == "operator":
		if system == "" && len(fields) > 0 && (fields[0].who == "system" || fields[0].who == "developer") {
			system, fields = fields[0].text, fields[1:]
		}
		if system != s.Summary.Text {
			t.Errorf("%s: the system is %.300q, want the summary", what, system)
		}
	default:
		if system != "" || len(fields) == 0 || fields[0].who != "user" || fields[0].text != s.Summary.Text {
			t.Errorf("%s: system %.300q, fields %.300q, want the summary at the head of what the user says", what, system, fields)
		}
		fields = fields[min(1, len(fields)):]
	}
	if got, want := fmt.Sprintf("%q", fields), `[{"user" "text" "And now?"} {"assistant" "text" "Now this."}]`; got != want {
		t.Errorf("%s: behind the summary there is %.500s", what, got)
	}
	read, err := readSummary(s.Summary.Text)
	if err != nil || read.turns != 1 || read.omitted != 0 || read.words != nil || len(read.lines) != 1 {
		t.Errorf("%s: %v: %+v in %.500q", what, err, read, s.Summary.Text)
		return
	}
	line, said := read.lines[0], strings.TrimSpace(f.Text)
	if said == "" {
		if line.Assistant != nil || line.Reference != nil || line.User == nil || line.User.Text != "" {
			t.Errorf("%s: %+v of nothing", what, line)
		}
	} else if !line.User.begins(said) || !line.Assistant.begins(said) || !line.Reference.begins(said) {
		t.Errorf("%s: the line says %.900s of %.300q", what, encode(t, line), said)
	}
	if len(line.Tools) != 1 || !line.Tools[0].begins(toolName(f.Text)) || line.NotListed != 0 {
		t.Errorf("%s: the tools are %.300s of %.300q", what, encode(t, line.Tools), toolName(f.Text))
	}
}

// partTexts are the texts of a content of Gemini's.
func partTexts(t *testing.T, content []byte) (all []string) {
	t.Helper()
	if len(content) == 0 || content[0] != '{' {
		return nil
	}
	for _, part := range decode[[]members](t, decode[members](t, content)["parts"]) {
		all = append(all, part.text(t, "text"))
	}
	return all
}
