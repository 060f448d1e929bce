package projection

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"historyd/internal/history"
)

// inParts takes each of the parts through one Keeper.
func inParts(t testing.TB, p *Policy, categories map[string]string, parts ...[]history.Message) (kept [][]history.Message, k *Keeper) {
	t.Helper()
	k, err := p.Keeper(categories)
	if err != nil {
		t.Fatal(err)
	}
	for _, part := range parts {
		kept = append(kept, k.Keep(part).Messages)
	}
	return kept, k
}

func TestAHistoryInPartsIsKeptAsOne(t *testing.T) {
	p := policy(t, Options{Tools: []Rule{{"pay", "wallet"}, {"open", "misc"}}})
	thought := message(history.Assistant, history.Block{Type: history.ThinkingBlock, Text: "the balance is 4711 euros"}, history.Text("done"))
	kept, k := inParts(t, p, map[string]string{"look": "misc"},
		[]history.Message{calling("a", "pay", `{"pin":"hunter2"}`), calling("b", "open", "{}"), calling("l", "look", "{}")},
		[]history.Message{answering("a", "balance is 4711 euros"), answering("l", "seen")},
		[]history.Message{answering("b", "PIN hunter2 is wrong"), thought},
	)
	for _, tt := range []struct{ got, want string }{
		{textOf(&kept[1][0].Content[0]), "[withheld: wallet]"},
		{textOf(&kept[1][1].Content[0]), "seen"},
		{textOf(&kept[2][0].Content[0]), "PIN [withheld: wallet] is wrong"},
	} {
		if tt.got != tt.want {
			t.Errorf("kept %q, want %q", tt.got, tt.want)
		}
	}
	if got := kept[2][1].Content; len(got) != 1 || got[0].Type != history.TextBlock {
		t.Errorf("a thought that repeats a withheld result of an earlier part: %+v", got)
	}
	if got := k.Categories(); len(got) != 1 || got["look"] != "misc" {
		t.Errorf("Categories = %v", got)
	}
}

func TestAResultWhoseCallIsInNoPartIsWithheld(t *testing.T) {
	p := policy(t, Options{UnknownTools: "keep"})
	kept, _ := inParts(t, p, nil, []history.Message{answering("a", "early")}, []history.Message{calling("a", "f", "{}"), answering("a", "right"), answering("a", "second")})
	for _, b := range []history.Block{kept[0][0].Content[0], kept[1][2].Content[0]} {
		if b.Redacted == nil || *b.Redacted != (history.Redaction{Category: Unknown, Reason: reasonCallNotFound}) {
			t.Errorf("kept %+v", b)
		}
	}
	if got := textOf(&kept[1][1].Content[0]); got != "right" {
		t.Errorf("kept %q", got)
	}
}

func TestAKeeperHoldsTheNewestValues(t *testing.T) {
	p := policy(t, Options{Tools: []Rule{{"pay", "wallet"}, {"open", "misc"}}})
	k, err := p.Keeper(nil)
	if err != nil {
		t.Fatal(err)
	}
	k.Keep([]history.Message{calling("a", "pay", `{"pin":"the first value"}`), answering("a", "the first result")})
	filler := strings.Repeat("x", 1000)
	for i := range 3 * maxCarried / 1000 {
		id := fmt.Sprint(i)
		k.Keep([]history.Message{calling(id, "pay", fmt.Sprintf(`{"pin":"value %d %s"}`, i, filler)), answering(id, fmt.Sprintf("result %d %s", i, filler))})
		size := 0
		for _, v := range slices.Concat(k.carried.arguments, k.carried.results) {
			size += len(v.text)
		}
		if size > 2*maxCarried {
			t.Fatalf("after part %d %d bytes of values are held", i, size)
		}
		if i == 10 {
			// What comes again is new again.
			k.Keep([]history.Message{calling("z", "pay", `{"pin":"value 3 `+filler+`"}`)})
		}
	}
	if len(k.debts.open) != 1 || len(k.debts.below) > 0 || len(k.debts.last) > 1 || len(k.debts.verdicts) > 3 {
		t.Errorf("%d calls are held, one is unanswered", len(k.debts.open))
	}
	last := 3*maxCarried/1000 - 1
	kept := k.Keep([]history.Message{calling("o", "open", "{}"), answering("o", fmt.Sprintf("value %d %s", last, filler))})
	if got := textOf(&kept.Messages[1].Content[0]); got != "[withheld: wallet]" {
		t.Errorf("the newest value is kept: %.40s", got)
	}
}

func TestAnAttachmentThatComesLateIsLookedInto(t *testing.T) {
	k, err := policy(t, Options{Tools: []Rule{{"pay", "wallet"}}}).Keeper(nil)
	if err != nil {
		t.Fatal(err)
	}
	a := &history.Attachment{Data: []byte("the PIN is hunter%32")}
	if k.Repeats(a) {
		t.Error("nothing is withheld yet")
	}
	for _, pin := range []string{"swordfish", "hunter2"} {
		k.Keep([]history.Message{calling("c", "pay", `{"pin":"`+pin+`"}`), answering("c", "balance")})
		if got, want := k.Repeats(a), pin == "hunter2"; got != want {
			t.Errorf("after %s: %v, want %v", pin, got, want)
		}
	}
	if k.Repeats(&history.Attachment{Data: []byte("\x00\xffhunter2")}) {
		t.Error("a picture is looked into")
	}
}

func TestTheRequestOfAKeeperIsChecked(t *testing.T) {
	if _, err := policy(t, Options{}).Keeper(map[string]string{"f": strings.Repeat("x", maxCategory+1)}); err == nil {
		t.Error("a category without end is taken")
	}
}

// split cuts the messages at random.
func split(t *rapid.T, msgs []history.Message) [][]history.Message {
	var parts [][]history.Message
	for len(msgs) > 0 {
		n := rapid.IntRange(1, len(msgs)).Draw(t, "part")
		parts, msgs = append(parts, msgs[:n]), msgs[n:]
	}
	return parts
}

// TestPartsWithholdWhatTheWholeDoes draws histories and splits. What Keep withholds of
// everything up to a part, a Keeper withholds of that part.
func TestPartsWithholdWhatTheWholeDoes(t *testing.T) {
	policies := drawnPolicies(t)
	rapid.Check(t, func(t *rapid.T) {
		p := rapid.SampledFrom(policies).Draw(t, "policy")
		var categories map[string]string
		if rapid.Bool().Draw(t, "open is known") {
			categories = map[string]string{"open": "agent", "remote": "files"}
		}
		msgs := drawMessages(t)
		for range rapid.IntRange(0, 2).Draw(t, "hosted") {
			msgs = slices.Insert(msgs, rapid.IntRange(0, len(msgs)).Draw(t, "at"), drawHosted(t))
		}
		k, err := p.Keeper(categories)
		if err != nil {
			t.Fatal(err)
		}
		before, done := show(msgs), 0
		for _, part := range split(t, msgs) {
			got := k.Keep(part)
			whole, err := p.Keep(msgs[:done+len(part)], Request{Categories: categories})
			if err != nil {
				t.Fatal(err)
			}
			for i := range part {
				withholdsAsMuch(t, &got.Messages[i], &whole.Messages[done+i])
			}
			done += len(part)
		}
		if show(msgs) != before {
			t.Fatal("the input was altered")
		}
	})
}

// withholdsAsMuch holds that nothing stands in got that is withheld in want.
func withholdsAsMuch(t *rapid.T, got, want *history.Message) {
	g, w := string(history.AppendMessage(nil, got)), string(history.AppendMessage(nil, want))
	if g == w {
		return
	}
	withheld := func(b history.Block) bool { return b.Redacted != nil }
	for i, b := range want.Content {
		if len(got.Content) == len(want.Content) && withheld(b) && !withheld(got.Content[i]) {
			t.Fatalf("block %d is kept\n%s\nwant\n%s", i, g, w)
		}
	}
	for _, word := range words {
		word = string(history.AppendString(nil, word))
		word = word[1 : len(word)-1]
		if !strings.Contains("[withheld: wallet] [withheld: unknown]", word) && strings.Count(g, word) > strings.Count(w, word) {
			t.Fatalf("%q stands in\n%s\nnot in\n%s", word, g, w)
		}
	}
}

// TestPartsOfWholeTurnsAreKeptTheSame draws turns in which every call is answered.
func TestPartsOfWholeTurnsAreKeptTheSame(t *testing.T) {
	p := policy(t, Options{MaxToolResultChars: 300, Tools: []Rule{{"pay", "wallet"}, {"wri*", "files"}, {"open", "misc"}}})
	rapid.Check(t, func(t *rapid.T) {
		k, err := p.Keeper(nil)
		if err != nil {
			t.Fatal(err)
		}
		var msgs []history.Message
		for range rapid.IntRange(1, 4).Draw(t, "parts") {
			var part []history.Message
			for range rapid.IntRange(1, 3).Draw(t, "turns") {
				id := rapid.SampledFrom([]string{"a", "b"}).Draw(t, "id")
				part = append(part, said(drawText(t)), calling(id, rapid.SampledFrom(tools).Draw(t, "tool"), drawArguments(t)), answering(id, drawText(t)),
					message(history.Assistant, history.Block{Type: history.ThinkingBlock, Text: drawText(t)}, history.Text("ok")))
			}
			msgs = append(msgs, part...)
			got := k.Keep(part)
			whole, err := p.Keep(msgs, Request{})
			if err != nil {
				t.Fatal(err)
			}
			if got, want := show(got.Messages), show(whole.Messages[len(msgs)-len(part):]); got != want {
				t.Fatalf("kept\n%swant\n%s", got, want)
			}
		}
	})
}
