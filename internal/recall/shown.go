package recall

import (
	"encoding/json/v2"
	"strings"
	"unicode"
)

// maxShown is how many rows of earlier blocks count, so that a recall has an end.
const maxShown = 1000

// shown is what earlier blocks say: the words of each of their rows.
type shown []string

// shownIn reads the rows of blocks. The colon before a text is the only one that an unescaped quotation mark follows.
func shownIn(blocks []string) (all shown) {
	for _, block := range blocks {
		for line := range strings.Lines(block) {
			_, quoted, ok := strings.Cut(strings.TrimSuffix(line, "\n"), `: "`)
			if !ok || !strings.HasPrefix(line, "- ") {
				continue
			}
			var body string
			if json.Unmarshal([]byte(`"`+quoted), &body) != nil {
				continue
			}
			if all = append(all, wordsOf(body)); len(all) == maxShown {
				return all
			}
		}
	}
	return all
}

// holds reports whether one of the rows says all of a text, in whatever spelling.
func (s shown) holds(text string) bool {
	if len(s) == 0 {
		return false
	}
	words := wordsOf(text)
	for _, row := range s {
		if strings.Contains(row, words) {
			return true
		}
	}
	return false
}

// wordsOf returns the words of a text as gist has them, with a space around each, so that none is found in another.
func wordsOf(text string) string {
	words := strings.FieldsFunc(text, func(r rune) bool { return !unicode.In(r, unicode.L, unicode.N, unicode.M) })
	if len(words) == 0 {
		return text
	}
	return " " + strings.ToLower(strings.Join(words, " ")) + " "
}
