package projection

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"historyd/internal/history"
)

// drawScript draws what may have become of a conversation: tidy turns, and then results
// that are gone, doubled, moved either way or orphaned, and ids that are all the same.
func drawScript(t *rapid.T) string {
	if rapid.IntRange(0, 3).Draw(t, "wild") == 0 {
		word := rapid.StringMatching(`U|Y|M|N|[MN]:(-|a|b|c)(,(-|a|b|c)){0,2}|T:(a|b|c|x|\?)(,(a|b|c|\?)){0,2}`)
		return strings.Join(rapid.SliceOfN(word, 0, 12).Draw(t, "words"), " ")
	}
	var words []string
	calls := 0
	for range rapid.IntRange(1, 5).Draw(t, "turns") {
		words = append(words, "U")
		for range rapid.IntRange(0, 3).Draw(t, "steps") {
			var ids []string
			speaker := rapid.SampledFrom([]string{"M:", "M:", "M:-,", "N:"}).Draw(t, "speaker")
			for range rapid.IntRange(1, 3).Draw(t, "calls") {
				calls++
				ids = append(ids, fmt.Sprintf("c%d", calls))
			}
			between := rapid.SampledFrom([]string{",", ",", " " + speaker}).Draw(t, "messages of calls")
			words = append(words, strings.Fields(speaker+strings.Join(ids, between))...)
			between = rapid.SampledFrom([]string{",", " T:"}).Draw(t, "messages of results")
			words = append(words, strings.Fields("T:"+strings.Join(ids, between))...)
		}
		words = append(words, rapid.SampledFrom([]string{"M", "N", "M:c0"}).Draw(t, "answer"))
	}
	for range rapid.IntRange(0, 4).Draw(t, "breaks") {
		at := rapid.IntRange(0, len(words)-1).Draw(t, "at")
		to := rapid.IntRange(0, len(words)-1).Draw(t, "to")
		word := words[at]
		switch rapid.SampledFrom([]string{"gone", "doubled", "moved", "orphaned", "cut"}).Draw(t, "how") {
		case "gone":
			words = slices.Delete(words, at, at+1)
		case "doubled":
			words = slices.Insert(words, to, word)
		case "moved":
			words = slices.Insert(slices.Delete(words, at, at+1), min(to, len(words)-1), word)
		case "orphaned":
			words[at] = strings.NewReplacer("T:c", "T:x", ",c", ",x").Replace(word)
		case "cut":
			words = words[:at+1]
		}
		if len(words) == 0 {
			return ""
		}
	}
	out := strings.Join(words, " ")
	if rapid.IntRange(0, 3).Draw(t, "equal ids") == 0 {
		for n := calls; n > 0; n-- {
			out = strings.ReplaceAll(out, fmt.Sprintf("c%d", n), "c")
		}
	}
	return out
}

// answersOf pairs calls and results the slow way: the number of the result that each
// call has, by the number of the call, and how many results are left over.
func answersOf(msgs []history.Message) (answers map[string]string, orphans, duplicates int64) {
	type block struct {
		*history.Block
		message int
	}
	answers = map[string]string{}
	var calls, early []block
	number := func(c block) string { return c.Name }
	for i := range msgs {
		for j := range msgs[i].Content {
			b := block{&msgs[i].Content[j], i}
			if b.Type == history.ToolCall {
				calls = append(calls, b)
			}
			if b.Type != history.ToolResult {
				continue
			}
			met, found := false, none
			for c := len(calls) - 1; c >= 0; c-- {
				if calls[c].ID != b.CallID {
					continue
				}
				met = true
				if answers[number(calls[c])] == "" && (found == none || calls[found].message == calls[c].message) {
					found = c
				}
			}
			switch {
			case found != none:
				answers[number(calls[found])] = textOf(b.Block)
			case met:
				duplicates++
			default:
				early = append(early, b)
			}
		}
	}
	for _, b := range early {
		first := slices.IndexFunc(calls, func(c block) bool { return c.ID == b.CallID })
		orphans++
		for c := max(first, 0); first >= 0 && c < len(calls) && calls[c].message == calls[first].message; c++ {
			if calls[c].ID == b.CallID && answers[number(calls[c])] == "" {
				answers[number(calls[c])] = textOf(b.Block)
				orphans--
				break
			}
		}
	}
	return answers, orphans, duplicates
}

// pairsOf reads the outcome as a provider does: results right behind their calls.
func pairsOf(t testing.TB, msgs []history.Message) map[string]string {
	t.Helper()
	answers := map[string]string{}
	var waiting []*history.Block
	for i := range msgs {
		m := &msgs[i]
		if m.Role != history.Tool && len(waiting) > 0 {
			t.Fatalf("message %d: %d calls before it have no result, in %s", i, len(waiting), scriptOf(msgs))
		}
		for j := range m.Content {
			switch b := &m.Content[j]; b.Type {
			case history.ToolCall:
				waiting = append(waiting, b)
			case history.ToolResult:
				at := slices.IndexFunc(waiting, func(c *history.Block) bool { return c.ID == b.CallID })
				if at < 0 {
					t.Fatalf("message %d: a result of no call before it, in %s", i, scriptOf(msgs))
				}
				if !b.Synthetic {
					answers[waiting[at].Name] = textOf(b)
				}
				waiting = slices.Delete(waiting, at, at+1)
			}
		}
	}
	if len(waiting) > 0 {
		t.Fatalf("%d calls have no result, in %s", len(waiting), scriptOf(msgs))
	}
	return answers
}

// saidOf is all but the results, in order; what a tool says beside results may go with them.
func saidOf(msgs []history.Message, role history.Role) string {
	var lines []string
	for i := range msgs {
		for j := range msgs[i].Content {
			if b := &msgs[i].Content[j]; b.Type != history.ToolResult && (msgs[i].Role == history.Tool) == (role == history.Tool) {
				lines = append(lines, string(history.AppendBlock(nil, b)))
			}
		}
	}
	if role == history.Tool {
		slices.Sort(lines)
	}
	return strings.Join(lines, "\n")
}

// placesOf has for each result the number of blocks before it that are no results'.
func placesOf(msgs []history.Message) map[string]int {
	places, passed := map[string]int{}, 0
	for i := range msgs {
		beside := slices.ContainsFunc(msgs[i].Content, func(b history.Block) bool { return b.Type == history.ToolResult })
		for j := range msgs[i].Content {
			if b := &msgs[i].Content[j]; b.Type == history.ToolResult {
				places[textOf(b)] = passed
			} else if !beside && b.Type != history.OpaqueBlock {
				passed++
			}
		}
	}
	return places
}

// holdsOfRepair looks at what must hold of every repair.
func holdsOfRepair(t testing.TB, in []history.Message) {
	t.Helper()
	before := show(in)
	out, counts := RepairPairs(in)
	if again, more := RepairPairs(in); show(again) != show(out) || more != counts {
		t.Fatalf("two repairs of %s differ", scriptOf(in))
	}
	if show(in) != before {
		t.Fatalf("%s was altered", scriptOf(in))
	}
	if again, more := RepairPairs(out); show(again) != show(out) || more != (Repairs{}) {
		t.Fatalf("%s is repaired again, to %s %+v", scriptOf(out), scriptOf(again), more)
	}
	if counts == (Repairs{}) && show(out) != before {
		t.Fatalf("%s became %s, which nothing tells", scriptOf(in), scriptOf(out))
	}

	want, orphans, duplicates := answersOf(in)
	got := pairsOf(t, out)
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Fatalf("%s became %s: results by call %v, want %v", scriptOf(in), scriptOf(out), got, want)
	}
	for _, role := range []history.Role{history.User, history.Tool} {
		if saidOf(out, role) != saidOf(in, role) {
			t.Fatalf("%s became %s: what was said by others than results differs", scriptOf(in), scriptOf(out))
		}
	}
	calls, speakers := int64(0), int64(0)
	for _, m := range in {
		calls += int64(len(m.Calls()))
		if m.Role == history.Assistant {
			speakers++
		}
	}
	for _, m := range out {
		if m.Role == history.Assistant {
			speakers--
		}
	}
	told := Repairs{calls - int64(len(want)), counts.Moved, orphans, duplicates, speakers}
	if counts != told {
		t.Fatalf("%s became %s: told %+v, want %+v", scriptOf(in), scriptOf(out), counts, told)
	}
	if !strings.Contains(scriptOf(in), "?") {
		moved, places := int64(0), placesOf(in)
		for result, place := range placesOf(out) {
			if was, real := places[result]; real && was != place {
				moved++
			}
		}
		if moved != counts.Moved {
			t.Fatalf("%s became %s: %d results told as moved, want %d", scriptOf(in), scriptOf(out), counts.Moved, moved)
		}
	}
}

// TestRepairHolds draws histories and looks at what must hold of every repair.
func TestRepairHolds(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) { holdsOfRepair(failing{t, rt}, script(drawScript(rt))) })
}

// failing fails as rapid wants it, so that what it drew is made smaller.
type failing struct {
	testing.TB
	rapid *rapid.T
}

func (f failing) Helper()                      {}
func (f failing) Fatalf(s string, args ...any) { f.rapid.Fatalf(s, args...) }

// TestRepairOfSoundHistoriesIsTheirCopy compares the short way with the long one.
func TestRepairOfSoundHistoriesIsTheirCopy(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		sound, _ := RepairPairs(script(drawScript(t)))
		r := &repairer{msgs: sound, ids: map[string]int{}}
		for i := range sound {
			r.read(i)
		}
		r.assignEarly()
		r.batch()
		r.write()
		if show(r.out) != show(sound) || r.counts != (Repairs{}) {
			t.Fatalf("%s became %s %+v", scriptOf(sound), scriptOf(r.out), r.counts)
		}
	})
}

// TestRepairsGrowByASuffix holds that what stands before the first call without a later
// result never changes when messages are added.
func TestRepairsGrowByASuffix(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		all := script(drawScript(t))
		whole, _ := RepairPairs(all)
		for n := range all {
			part, _ := RepairPairs(all[:n])
			stable := part[:stableBefore(all[:n], part)]
			if len(stable) > len(whole) || show(stable) != show(whole[:len(stable)]) {
				t.Fatalf("%s became %s, but its first %d messages %s", scriptOf(all), scriptOf(whole), n, scriptOf(part))
			}
		}
	})
}

// stableBefore returns the position in out of the first call in msgs that no later
// result answers.
func stableBefore(msgs, out []history.Message) int {
	// A result from before its call is one that a later one may still take the place of.
	without := slices.Clone(msgs)
	met := map[string]bool{}
	for i := range without {
		var kept []history.Block
		for _, b := range without[i].Content {
			if b.Type == history.ToolCall {
				met[b.ID] = true
			}
			if b.Type != history.ToolResult || met[b.CallID] {
				kept = append(kept, b)
			}
		}
		without[i].Content = kept
	}
	answers, _, _ := answersOf(without)
	for i := range out {
		for _, b := range out[i].Content {
			if b.Type == history.ToolCall && answers[b.Name] == "" {
				return i
			}
		}
	}
	return len(out)
}

// FuzzRepairPairs repairs whatever a script can say: each byte is a word of it, or
// more of the word before.
func FuzzRepairPairs(f *testing.F) {
	alphabet := []string{" U", " Y", " M:-", " N:-", " M:a", " M:b", " N:a", " T:a", " T:b", " T:?", ",a", ",b", ",c"}
	f.Add([]byte{0, 4, 11, 7, 0, 8})
	f.Add([]byte{4, 2, 11, 6, 7, 11, 12, 8, 0, 7, 1, 9, 7})
	f.Add([]byte{7, 10, 4, 10, 11, 0, 1, 4, 4, 8, 10})
	f.Fuzz(func(t *testing.T, letters []byte) {
		var words strings.Builder
		words.WriteString("M:-")
		for _, l := range letters[:min(len(letters), 200)] {
			word := alphabet[int(l)%len(alphabet)]
			if said := words.String(); word[0] == ',' && (strings.HasSuffix(said, "U") || strings.HasSuffix(said, "Y")) {
				continue
			}
			words.WriteString(word)
		}
		holdsOfRepair(t, script(words.String()))
	})
}
