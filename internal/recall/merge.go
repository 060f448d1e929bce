package recall

import (
	"cmp"
	"slices"
	"strings"
	"unicode"
)

// batch is what one retriever found, best first.
type batch struct {
	name string
	hits []found
}

// merged is the block made of all batches.
type merged struct {
	text      string
	items     []Item
	truncated bool
}

// The shortest a row is made for want of room: text that is shorter says nothing.
const (
	leastText  = 24
	leastTitle = 16
)

// merge makes one block. Each retriever gets a share of the room; what one doesn't need goes to the others, so that a
// long answer takes no place from a short one.
// What says nothing but what is shown already is left out.
func (o *Options) merge(batches []batch, shown shown) merged {
	rows, cut := o.distinct(batches, shown)
	need, total := make([]int, len(rows)), 0
	var order []int
	for i, items := range rows {
		for _, it := range items {
			need[i] += rowSize(it)
		}
		if total += need[i]; need[i] > 0 {
			order = append(order, i)
		}
	}
	if len(order) == 0 {
		return merged{}
	}
	room := o.MaxTotalChars - frameSize
	if total > room {
		room -= leftOutSize
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(need[a], need[b]) })
	omitted := 0
	for n, i := range order {
		kept, used, shortened := pack(rows[i], room/(len(order)-n))
		omitted += len(rows[i]) - len(kept)
		cut = cut || shortened
		room -= used
		rows[i] = kept
	}
	items := slices.Concat(rows...)
	if len(items) == 0 {
		return merged{}
	}
	return merged{frame(items, omitted), items, cut || omitted > 0}
}

// distinct tidies, leaves out what says the same as an earlier hit or is a block of ours, and keeps the best of each
// retriever.
func (o *Options) distinct(batches []batch, shown shown) (rows [][]Item, cut bool) {
	seen := map[string]bool{}
	rows = make([][]Item, len(batches))
	for i, b := range batches {
		for _, h := range b.hits {
			if len(rows[i]) == o.TopK {
				break
			}
			// What is read is bounded, too: some of it may be hidden characters, but not without end.
			body, title := tidy(h.body, 4*o.MaxItemChars), oneLine(h.title, 4*o.MaxTitleChars)
			key := gist(body)
			if body == "" || seen[key] || framed(body) {
				continue
			}
			seen[key] = true
			it := Item{Retriever: b.name, Conversation: h.conversation, Epoch: h.epoch, Seq: h.seq, Score: h.score}
			var cutTitle, cutBody bool
			it.Title, cutTitle = shorten(title, o.MaxTitleChars)
			it.Body, cutBody = shorten(body, o.MaxItemChars)
			if shown.holds(it.Body) {
				continue
			}
			if it.Title == it.Body {
				it.Title = ""
			}
			cut = cut || cutTitle || cutBody
			rows[i] = append(rows[i], it)
		}
	}
	return rows, cut
}

// gist is what two hits have in common that say the same in other spelling: letters and digits, without case.
func gist(s string) string {
	g := strings.Map(func(r rune) rune {
		if unicode.In(r, unicode.L, unicode.N, unicode.M) {
			return unicode.ToLower(r)
		}
		return -1
	}, s)
	if g == "" {
		return s
	}
	return g
}

// pack keeps the first rows that fit, the last of them shortened if need be.
func pack(items []Item, room int) (kept []Item, used int, shortened bool) {
	for _, it := range items {
		if size := rowSize(it); size > room-used {
			var ok bool
			if it, ok = squeeze(it, room-used); !ok {
				return kept, used, shortened
			}
			shortened = true
		}
		kept = append(kept, it)
		used += rowSize(it)
		if shortened {
			break
		}
	}
	return kept, used, shortened
}

// squeeze shortens a row to a size: first its text, then its title, too. It reports false when that is too little.
func squeeze(it Item, size int) (Item, bool) {
	bare := it
	bare.Body = ""
	left := size - rowSize(bare)
	if left < leastText && it.Title != "" {
		it.Title, _ = shorten(it.Title, leastTitle)
		bare.Title = it.Title
		left = size - rowSize(bare)
	}
	if left < leastText {
		return Item{}, false
	}
	it.Body, _ = shorten(it.Body, left)
	return it, true
}
