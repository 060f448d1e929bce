package compaction

import (
	"encoding/json/jsontext"
	"encoding/json/v2"
	"errors"
	"fmt"
	"hash/maphash"
	"iter"
	"regexp"
	"strings"
	"unicode"
	"unicode/utf8"

	"historyd/internal/projection"
)

// errForm tells an answer that is none of a chat completion.
var errForm = errors.New("the answer is not of the form of a chat completion")

// completion is what is read of an answer.
type completion struct {
	Choices []struct {
		Message struct {
			Content jsontext.Value `json:"content"`
		} `json:"message"`
		FinishReason string `json:"finish_reason"`
	} `json:"choices"`
}

// readAnswer takes the text of an answer, which is a string or a list of parts of which
// only the text counts: reasoning is none.
func readAnswer(body []byte) (string, error) {
	var c completion
	// The decoder's own words may quote the answer.
	if json.Unmarshal(body, &c) != nil || len(c.Choices) == 0 {
		return "", errForm
	}
	first := c.Choices[0]
	switch first.FinishReason {
	case "length", "content_filter":
		return "", fmt.Errorf("%w: it was cut short", errRefused)
	}
	switch first.Message.Content.Kind() {
	case 'n', jsontext.KindInvalid:
		return "", nil
	case '"':
		var text string
		if json.Unmarshal(first.Message.Content, &text) != nil {
			return "", errForm
		}
		return text, nil
	}
	var parts []struct {
		Type string `json:"type"`
		Text string `json:"text"`
	}
	if json.Unmarshal(first.Message.Content, &parts) != nil {
		return "", errForm
	}
	var texts []string
	for _, p := range parts {
		if p.Type == "text" || p.Type == "output_text" {
			texts = append(texts, p.Text)
		}
	}
	return strings.Join(texts, "\n"), nil
}

// judge makes a summary of what the model said, or refuses it.
func (s *Summariser) judge(said string, in *input) (string, error) {
	text, whole := withoutReasoning(said)
	if !whole {
		return "", fmt.Errorf("%w: it ends in the middle of reasoning", errRefused)
	}
	text = strings.TrimSpace(s.clean(harmless(text)))
	switch {
	case text == "":
		return "", fmt.Errorf("%w: it is empty", errRefused)
	case int64(utf8.RuneCountInString(text)) > in.chars:
		return "", fmt.Errorf("%w: it is longer than what it is of", errRefused)
	case echoes(text, in):
		return "", fmt.Errorf("%w: it repeats what it is of", errRefused)
	}
	return s.capped(text), nil
}

// capped is as much of a text as a frame has room for, and as leaves room for what is
// said next in a request. What was cut ends so that it can be seen.
func (s *Summariser) capped(text string) string {
	var escaped []byte
	end, size := 0, 0
	for i, r := range text {
		escaped = appendEscaped(escaped[:0], r)
		if size += utf8.RuneCount(escaped); size > s.textLimit {
			break
		}
		if size < s.textLimit || i+utf8.RuneLen(r) == len(text) {
			end = i + utf8.RuneLen(r) // with room for the mark
		}
	}
	kept := text[:end]
	for projection.EstimateText(quoted(kept)) > s.mostText() {
		n := len(kept) * 3 / 4
		for n > 0 && !utf8.RuneStart(kept[n]) {
			n--
		}
		kept = kept[:n]
	}
	if kept = strings.TrimSpace(kept); len(kept) < len(strings.TrimSpace(text)) {
		kept += cutMark
	}
	return kept
}

// cutMark ends words that are not whole.
const cutMark = "…"

// reasoning is how models mark what they think when a server leaves it in the text.
var reasoning = regexp.MustCompile(`(?i)<(/?)(?:think|thinking|reasoning|thought)(?:\s[^<>]*)?>`)

// withoutReasoning drops blocks of reasoning, and all before an end of one whose
// beginning is not there. It is false when a block does not end.
func withoutReasoning(s string) (rest string, whole bool) {
	depth, from := 0, 0
	for _, m := range reasoning.FindAllStringSubmatchIndex(s, -1) {
		switch opens := m[2] == m[3]; {
		case opens && depth == 0:
			rest += s[from:m[0]]
			depth = 1
		case opens:
			depth++
		case depth > 0:
			depth--
		default:
			rest = ""
		}
		from = m[1]
	}
	if depth > 0 {
		return "", false
	}
	return rest + s[from:], true
}

// harmless takes out of a text what a person would not see or would see wrongly:
// control characters but for line breaks, and marks that turn the direction of text or
// hide other text.
func harmless(s string) string {
	s = strings.ReplaceAll(strings.ToValidUTF8(s, "\uFFFD"), "\r\n", "\n")
	return strings.Map(func(r rune) rune {
		switch {
		case r == '\n', r == '\u200c', r == '\u200d': // joiners: scripts and emoji need them
			return r
		case r == '\r', r == '\u0085', unicode.In(r, unicode.Zl, unicode.Zp):
			return '\n'
		case r == '\t':
			return ' '
		case unicode.In(r, unicode.Cc, unicode.Cf, unicode.Co):
			return -1
		}
		return r
	}, s)
}

// stretch is how many code points in a row are compared at a time.
const stretch = 24

// echoes reports whether a text copies what it should sum up: nearly all of it that is
// not in the summary so far is, to the letter, in what was said, and is much of that.
func echoes(text string, in *input) bool {
	if strings.Contains(text, strings.TrimSpace(soFar)) || strings.Contains(text, strings.TrimSpace(since)) {
		return true
	}
	const step = stretch / 3
	seed := maphash.MakeSeed()
	before, said := setOf(stretches(seed, in.before, 1)), setOf(stretches(seed, in.said, 1))
	fresh, known := 0, 0
	for h := range stretches(seed, text, step) {
		if before[h] {
			continue
		}
		if fresh++; said[h] {
			known++
		}
	}
	return fresh > 0 && known*5 >= fresh*4 && fresh*step*3 >= utf8.RuneCountInString(in.said)
}

// stretches yields the hash of every step-th stretch of a text, whatever its white space.
func stretches(seed maphash.Seed, s string, step int) iter.Seq[uint64] {
	return func(yield func(uint64) bool) {
		runes := []rune(strings.Join(strings.Fields(s), " "))
		for i := 0; i+stretch <= len(runes); i += step {
			if !yield(maphash.String(seed, string(runes[i:i+stretch]))) {
				return
			}
		}
	}
}

func setOf(hashes iter.Seq[uint64]) map[uint64]bool {
	set := map[uint64]bool{}
	for h := range hashes {
		set[h] = true
	}
	return set
}
