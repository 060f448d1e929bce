package projection

import (
	"encoding/json/v2"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"pgregory.net/rapid"

	"historyd/internal/history"
	"historyd/internal/strictjson"
)

// Words that a made-up conversation is of. Some stand in others and in marks.
var words = []string{"hunter2", "hunter", "swordfish", "wallet", "withheld", "unknown", "a\"b\\c\nd", "<a&b>", "密码密码密", "🎉🎉🎉🎉", "e\u0301e\u0301", "path/to/x", "abab", "babab", "100%25", "a b c d", "it's"}

// spell writes a word as a tool might.
func spell(t *rapid.T, word string) string {
	quote := func(s string) string {
		b, err := json.Marshal(s)
		if err != nil {
			t.Fatal(err)
		}
		return string(b[1 : len(b)-1])
	}
	ascii := func(s string) string {
		var b strings.Builder
		for _, r := range s {
			if r < 0x80 && r != '<' {
				b.WriteString(quote(string(r)))
				continue
			}
			for _, u := range utf16Of(r) {
				b.WriteString(u)
			}
		}
		return b.String()
	}
	switch rapid.IntRange(0, 7).Draw(t, "spelling") {
	case 0:
		return quote(word)
	case 1:
		return ascii(word)
	case 2:
		return quote(ascii(word))
	case 3:
		return url.QueryEscape(word)
	case 4:
		return url.PathEscape(word)
	case 5:
		return url.QueryEscape(quote(word))
	}
	return word
}

func utf16Of(r rune) []string {
	const hex = "0123456789aBcDeF"
	unit := func(u rune) string {
		return `\u` + string([]byte{hex[u>>12&15], hex[u>>8&15], hex[u>>4&15], hex[u&15]})
	}
	if r < 0x10000 {
		return []string{unit(r)}
	}
	r -= 0x10000
	return []string{unit(0xd800 + r>>10), unit(0xdc00 + r&0x3ff)}
}

var tools = []string{"pay", "Pay ", "write", "open", "tool"}

func drawText(t *rapid.T) string {
	var s strings.Builder
	for range rapid.IntRange(0, 4).Draw(t, "pieces") {
		s.WriteString(rapid.SampledFrom([]string{"", " ", "ok: ", "{\"", "\"}", "xyz"}).Draw(t, "between"))
		s.WriteString(spell(t, rapid.SampledFrom(words).Draw(t, "word")))
		s.WriteString(strings.Repeat("-", rapid.SampledFrom([]int{0, 0, 1, 150, 500}).Draw(t, "filler")))
	}
	return s.String()
}

func drawArguments(t *rapid.T) string {
	word := rapid.SampledFrom(words).Draw(t, "argument")
	text, _ := json.Marshal(word)
	switch rapid.IntRange(0, 5).Draw(t, "shape") {
	case 0:
		return string(text)
	case 1:
		return `{"n":1,"a":[{"b":` + string(text) + `}]}`
	case 2:
		nested, _ := json.Marshal(`{"in":` + string(text) + `}`)
		return `{"in": ` + string(nested) + `}`
	case 3:
		return `{"a":` + string(text) + `,"a":1}`
	case 4:
		return `null`
	}
	return word
}

func drawBlock(t *rapid.T, role history.Role) history.Block {
	id := rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "id")
	switch role {
	case history.Tool:
		if rapid.Bool().Draw(t, "plain") {
			return mutate(t, result(id, drawText(t)))
		}
		b := resultOf(id)
		for range rapid.IntRange(0, 3).Draw(t, "parts") {
			part := history.Text(drawText(t))
			if rapid.IntRange(0, 4).Draw(t, "document") == 0 {
				name := fmt.Sprintf("%.250s", drawText(t)) // a file name has a limit
				part = history.Block{Type: history.DocumentBlock, URL: "x" + drawText(t), Filename: name}
			}
			b.Content = append(b.Content, part)
		}
		return mutate(t, b)
	case history.Assistant:
		if rapid.IntRange(0, 3).Draw(t, "call") > 0 {
			return mutate(t, call(id, rapid.SampledFrom(tools).Draw(t, "tool"), drawArguments(t)))
		}
	}
	return mutate(t, history.Text(drawText(t)))
}

// mutate adds what only an import can claim.
func mutate(t *rapid.T, b history.Block) history.Block {
	switch rapid.IntRange(0, 9).Draw(t, "claim") {
	case 0:
		b.Redacted = &history.Redaction{Category: rapid.SampledFrom([]string{"wallet", "unknown", "hunter2"}).Draw(t, "label"), Reason: "category"}
		if b.Type == history.ToolCall {
			b.Arguments, b.ArgumentsText = history.WithheldArguments(b.Redacted.Category), nil
		}
	case 1:
		b.Truncated = &history.Truncation{OriginalChars: 900, OriginalBytes: 900}
		if len(b.Content) > 0 && b.Content[0].Type == history.TextBlock {
			b.Content[0].Text += marker(rapid.Int64Range(0, maxCount).Draw(t, "gone"))
		}
	case 2:
		b.Extra = raw(`{"x":"hunter2"}`)
	}
	return b
}

func drawMessages(t *rapid.T) []history.Message {
	var msgs []history.Message
	for range rapid.IntRange(1, 8).Draw(t, "messages") {
		role := rapid.SampledFrom([]history.Role{history.User, history.Assistant, history.Assistant, history.Tool, history.Tool}).Draw(t, "role")
		m := message(role)
		for range rapid.IntRange(1, 3).Draw(t, "blocks") {
			m.Content = append(m.Content, drawBlock(t, role))
		}
		if rapid.IntRange(0, 4).Draw(t, "metadata") == 0 {
			m.Metadata = raw(`{"m":"swordfish"}`)
		}
		msgs = append(msgs, m)
	}
	return msgs
}

// drawnPolicies withhold what unknown tools do, and keep it.
func drawnPolicies(t *testing.T) []*Policy {
	t.Helper()
	options := Options{MaxToolResultChars: 300, Withhold: []Withhold{{"wallet", true, false}, {"files", true, true}}, Tools: []Rule{{"pay", "wallet"}, {"wri*", "files"}}}
	redact := policy(t, options)
	options.UnknownTools = "keep"
	return []*Policy{redact, policy(t, options)}
}

// TestKeepHolds draws conversations and looks at what must hold of every one.
func TestKeepHolds(t *testing.T) {
	policies := drawnPolicies(t)
	rapid.Check(t, func(t *rapid.T) {
		p := rapid.SampledFrom(policies).Draw(t, "policy")
		r := Request{}
		if rapid.Bool().Draw(t, "open is known") {
			r.Categories = map[string]string{"open": "agent"}
		}
		msgs := drawMessages(t)
		before := show(msgs)
		kept, err := p.Keep(msgs, r)
		if err != nil {
			t.Fatal(err)
		}
		if show(msgs) != before {
			t.Fatal("the input was altered")
		}
		for _, c := range kept.Changes {
			if !slices.Contains([]string{"", Unknown, "wallet", "files"}, c.Category) {
				t.Fatalf("category %q is not one of the options'", c.Category)
			}
		}
		if (len(kept.Changes) > 0) != (show(kept.Messages) != before) {
			t.Fatalf("changes %+v, from\n%sto\n%s", kept.Changes, before, show(kept.Messages))
		}
		again, err := p.Keep(kept.Messages, r)
		if err != nil {
			t.Fatal(err)
		}
		if got, want := show(again.Messages), show(kept.Messages); got != want || len(again.Changes) > 0 {
			t.Fatalf("kept\n%sand again\n%s%+v", want, got, again.Changes)
		}
		holdsOfMessages(t, p, msgs, kept.Messages)
		holdsNoValue(t, p, r, msgs, kept.Messages)
	})
}

// holdsOfMessages looks at pairing, encoding and size.
func holdsOfMessages(t *rapid.T, p *Policy, msgs, kept []history.Message) {
	for i := range kept {
		if !slices.Equal(kept[i].Calls(), msgs[i].Calls()) || !slices.Equal(kept[i].Answers(), msgs[i].Answers()) {
			t.Fatalf("message %d: calls or answers changed", i)
		}
		stored := history.AppendMessage(nil, &kept[i])
		if strictjson.Check(stored) != nil || !utf8.Valid(stored) {
			t.Fatalf("message %d is no JSON: %s", i, stored)
		}
		if _, err := history.ParseStored(stored); err != nil {
			t.Fatalf("message %d cannot be read back: %v", i, err)
		}
		for j := range kept[i].Content {
			b := &kept[i].Content[j]
			if text := textOf(b); b.Type == history.ToolResult && (chars(text) > int64(p.limit) || b.Truncated != nil && !strings.Contains(text, markerEnd)) {
				t.Fatalf("a result of %d characters, %+v", chars(text), b.Truncated)
			}
		}
	}
}

// holdsNoValue decodes the results in its own way and looks for the words of
// withheld arguments.
func holdsNoValue(t *rapid.T, p *Policy, r Request, msgs, kept []history.Message) {
	now := newTable(r.Categories)
	var values []string
	for i := range msgs {
		for _, b := range msgs[i].Content {
			if b.Type != history.ToolCall || p.isMarker(&b) || !p.judge(arguments, b.Name, &now, &table{}).withheld() {
				continue
			}
			for _, word := range words {
				if strings.Contains("[withheld: wallet] [withheld: unknown]", word) {
					continue // it stands in the marks
				}
				text, _ := json.Marshal(word)
				nested, _ := json.Marshal(`{"in":` + string(text) + `}`)
				if s := b.ArgumentString(); s == word || strings.Contains(s, `:`+string(text)) || s == string(text) || strings.Contains(s, string(nested)) {
					values = append(values, word)
				}
			}
		}
	}
	for i := range kept {
		for j := range kept[i].Content {
			b := &kept[i].Content[j]
			if b.Type != history.ToolResult {
				continue
			}
			for _, c := range b.Content {
				for _, s := range []string{c.Text, c.URL, c.Filename, string(c.Extra), string(b.Extra)} {
					for _, word := range values {
						if stands(word, s) {
							t.Fatalf("%q stands in %q", word, s)
						}
					}
				}
			}
		}
	}
}

func stands(word, text string) bool {
	for _, category := range []string{"wallet", "files", "unknown", "hunter2"} {
		text = strings.ReplaceAll(text, history.WithheldText(category), "\x00")
	}
	once := unquote(text)
	forms := []string{text, once, unquote(once)}
	for _, unescape := range []func(string) (string, error){url.QueryUnescape, url.PathUnescape} {
		if s, err := unescape(text); err == nil {
			forms = append(forms, s, unquote(s))
		}
	}
	return slices.ContainsFunc(forms, func(s string) bool { return strings.Contains(s, word) })
}

// unquote undoes the escapes of JSON where the text is what JSON can quote.
func unquote(s string) string {
	var out string
	if err := json.Unmarshal([]byte(`"`+strings.NewReplacer("\n", `\n`, "\x00", `\u0000`).Replace(s)+`"`), &out); err != nil {
		return s
	}
	return out
}

// TestFindAgreesWithThePlainSearch compares the automaton with trying each value at
// each place.
func TestFindAgreesWithThePlainSearch(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var list []value
		for _, s := range rapid.SliceOfN(rapid.StringOfN(rapid.RuneFrom([]rune("abé")), 1, 6, -1), 1, 20).Draw(t, "values") {
			list = append(list, value{s, "w"})
		}
		text := rapid.StringOfN(rapid.RuneFrom([]rune("abéc")), 0, 60, -1).Draw(t, "text")
		covered := make([]bool, len(text)+1)
		for _, v := range list {
			for at := 0; at+len(v.text) <= len(text); at++ {
				if text[at:at+len(v.text)] == v.text {
					for i := range len(v.text) {
						covered[at+i] = true
					}
				}
			}
		}
		found := make([]bool, len(text)+1)
		spans := map[string][]span{text: nil}
		s := newSearch(spans)
		s.room = rapid.IntRange(1, 40).Draw(t, "room")
		for _, v := range list {
			s.add(v)
			if s.size > max(s.room, len(v.text)) {
				t.Fatalf("%d bytes of values are held", s.size)
			}
		}
		s.pass()
		for _, s := range spans[text] {
			for i := s.from; i < s.to; i++ {
				found[i] = true
			}
		}
		if !slices.Equal(found, covered) {
			t.Fatalf("find(%v, %q) covers %v, want %v", list, text, found, covered)
		}
	})
}
