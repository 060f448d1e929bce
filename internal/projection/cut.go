package projection

import (
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"historyd/internal/history"
)

// The marker of a cut stands where the middle of a result was, and says how much is
// gone and that nobody has it. It is ASCII, so that a cut result is shorter in bytes, too.
const (
	markerBegin = "\n[... "
	markerEnd   = " characters cut by historyd; the full text is not stored ...]\n"
	maxDigits   = 18 // of the count in a marker
	maxCount    = 999_999_999_999_999_999
)

func marker(n int64) string {
	return markerBegin + strconv.FormatInt(min(n, maxCount), 10) + markerEnd
}

// cut shortens a result whose text is over the limit, and takes a mark of cutting
// away from one that is not cut.
func (k *keeping) cut(s *scene, j int, b *history.Block) {
	if k.asked != nil {
		return
	}
	t := measure(b)
	if t.chars <= int64(k.limit) && (b.Truncated == nil || t.marked()) {
		return
	}
	if b.Truncated != nil && !t.marked() {
		b.Truncated = nil
		k.change(Change{Message: s.message, Block: j, Action: Dropped, Reason: reasonClaim})
		if t.chars <= int64(k.limit) {
			return
		}
	}
	was := history.Truncation{OriginalChars: t.chars, OriginalBytes: t.bytes}
	if b.Truncated != nil {
		was = *b.Truncated
	}
	b.Content = t.shorten(b.Content, int64(k.limit))
	b.Truncated = &was
	k.change(Change{Message: s.message, Block: j, Action: Truncated, OriginalChars: was.OriginalChars})
}

// A measured result: the text blocks are taken as one text.
type measured struct {
	chars, bytes int64 // of the text, the marker included

	block     int // that holds the marker of an earlier cut; -1 when there is none
	from, to  int // of the marker within the text of the block, in bytes
	gap, gone int64
}

// marked reports whether there is the marker of an earlier cut.
func (t *measured) marked() bool { return t.block >= 0 }

// measure looks at the text of a result, and for a marker when it is called cut:
// for the one whose count fits, else for the first. A tool's own text may look like one.
func measure(b *history.Block) measured {
	t := measured{block: -1}
	for i := range b.Content {
		if c := &b.Content[i]; c.Type == history.TextBlock {
			t.chars += int64(utf8.RuneCountInString(c.Text))
			t.bytes += int64(len(c.Text))
		}
	}
	if b.Truncated == nil {
		return t
	}
	before := int64(0)
	for i := range b.Content {
		c := &b.Content[i]
		if c.Type != history.TextBlock {
			continue
		}
		for at := 0; ; {
			from, to, n := findMarker(c.Text, at)
			if from < 0 {
				break
			}
			fits := t.chars-int64(to-from)+n == b.Truncated.OriginalChars
			if t.block < 0 || fits {
				t.block, t.from, t.to, t.gone = i, from, to, n
				t.gap = before + int64(utf8.RuneCountInString(c.Text[:from]))
			}
			if fits {
				return t
			}
			at = to
		}
		before += int64(utf8.RuneCountInString(c.Text))
	}
	return t
}

// findMarker returns the next marker in s from at on, and its count; from is -1
// when there is none.
func findMarker(s string, at int) (from, to int, n int64) {
	for {
		end := strings.Index(s[at:], markerEnd)
		if end < 0 {
			return -1, -1, 0
		}
		end += at
		digits := end
		for digits > 0 && end-digits < maxDigits && '0' <= s[digits-1] && s[digits-1] <= '9' {
			digits--
		}
		if digits < end && strings.HasSuffix(s[:digits], markerBegin) {
			n, _ := strconv.ParseInt(s[digits:end], 10, 64)
			return digits - len(markerBegin), end + len(markerEnd), n
		}
		at = end + len(markerEnd)
	}
}

// shorten returns the blocks with head and tail of their text and one marker
// between, at most limit code points. The text must be longer. What an earlier cut
// took stays counted.
func (t *measured) shorten(blocks []history.Block, limit int64) []history.Block {
	rest, gap := t.chars, int64(-1)
	texts := make([]string, len(blocks))
	for i := range blocks {
		if blocks[i].Type == history.TextBlock {
			texts[i] = blocks[i].Text
		}
	}
	if t.marked() {
		rest, gap = t.chars-int64(t.to-t.from), t.gap
		texts[t.block] = texts[t.block][:t.from] + texts[t.block][t.to:]
	}
	budget := limit - int64(len(marker(t.gone+rest)))
	head := budget - budget/2
	tail := budget / 2
	if gap >= 0 {
		tail = min(tail, rest-gap)
		head = min(budget-tail, gap)
		tail = min(budget-head, rest-gap)
	}
	head, tail = whole(texts, head, rest-tail)
	tail = rest - tail
	return assemble(blocks, texts, head, rest-tail, marker(t.gone+rest-head-tail))
}

// assemble puts the blocks together with their text before position head and from
// position tail on, and the marker where the head ends. Text blocks of which
// nothing is left go.
func assemble(blocks []history.Block, texts []string, head, tail int64, marker string) []history.Block {
	var kept []history.Block
	marked := false
	at := int64(0)
	for i, b := range blocks {
		if b.Type != history.TextBlock {
			kept = append(kept, b)
			continue
		}
		n := int64(utf8.RuneCountInString(texts[i]))
		text := texts[i][:offset(texts[i], head-at)]
		if !marked && at+n >= head {
			text += marker
			marked = true
		}
		text += texts[i][offset(texts[i], max(tail-at, 0)):]
		at += n
		if text == "" && b.Text != "" {
			continue
		}
		b.Text = text
		kept = append(kept, b)
	}
	return kept
}

// offset returns where in s code point n begins.
func offset(s string, n int64) int {
	at := 0
	for ; n > 0 && at < len(s); n-- {
		_, size := utf8.DecodeRuneInString(s[at:])
		at += size
	}
	return at
}

// maxJoined is how far a cut is moved so that it parts no character from its marks.
const maxJoined = 16

// whole moves the end of the head back and the beginning of the tail on, so that
// neither parts what is seen as one character, unless that goes on for too long.
func whole(texts []string, head, tail int64) (int64, int64) {
	at := int64(0)
	newHead, newTail := head, tail
	for _, s := range texts {
		n := int64(utf8.RuneCountInString(s))
		if at < head && head < at+n {
			newHead -= back(s, offset(s, head-at))
		}
		if at < tail && tail < at+n {
			newTail += on(s, offset(s, tail-at))
		}
		at += n
	}
	return newHead, newTail
}

// back returns how many code points before byte i belong to the one after it.
func back(s string, i int) int64 {
	for n := int64(0); n < maxJoined; n++ {
		before, size := utf8.DecodeLastRuneInString(s[:i])
		after, _ := utf8.DecodeRuneInString(s[i:])
		if size == 0 || !joined(before, after) {
			return n
		}
		i -= size
	}
	return 0
}

// on returns how many code points from byte i on belong to the one before it.
func on(s string, i int) int64 {
	for n := int64(0); n < maxJoined; n++ {
		before, _ := utf8.DecodeLastRuneInString(s[:i])
		after, size := utf8.DecodeRuneInString(s[i:])
		if size == 0 || !joined(before, after) {
			return n
		}
		i += size
	}
	return 0
}

// joined reports whether two code points are seen as one character: marks, emoji
// with modifiers, sequences with zero-width joiners, flags.
func joined(before, after rune) bool {
	const joiner = '\u200d'
	regional := func(r rune) bool { return 0x1f1e6 <= r && r <= 0x1f1ff }
	return before == joiner || after == joiner || unicode.Is(unicode.M, after) ||
		0x1f3fb <= after && after <= 0x1f3ff || 0xe0020 <= after && after <= 0xe007f ||
		regional(before) && regional(after)
}
