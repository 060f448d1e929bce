package recall

import (
	"slices"
	"strings"
	"testing"

	"historyd/internal/history"
)

// The record and the index are real ones.
func TestRecallOfTheRecordItself(t *testing.T) {
	s := newShelf(t)
	ann, bob := scopeNamed(t, "ann"), scopeNamed(t, "bob")
	s.say(ann, "trip", "Our flight to Lisbon leaves on Monday.", "Noted.")
	s.say(ann, "main", "A flight that was folded away.", "Yes.", "Which flight do we take?")
	s.say(bob, "trip", "A flight of bob's.")
	r := must(t, Options{Local: s.index})
	recall := func(through int64) Recalled {
		t.Helper()
		return r.Recall(t.Context(), Ask{Scope: ann, Conversation: "main", Query: "Which flight do we take?", Through: through})
	}

	first := recall(1)
	wantStatuses(t, first, "local ok 2")
	if strings.Contains(first.Text, "bob's") || strings.Contains(first.Text, "Which flight") {
		t.Errorf("block: got\n%s\nwant nothing of bob's and nothing that stands in the window", first.Text)
	}
	for _, it := range first.Items {
		if !(it.Conversation == "trip" && it.Seq == 1 || it.Conversation == "main" && it.Seq == 1) {
			t.Errorf("item: got %+v, want those of trip and of before the window", it)
		}
	}
	wantStatuses(t, recall(0), "local ok 1")

	// The block is stored, and asked for again later: it is no note itself.
	s.append(ann, "main", history.Batch{Messages: []history.Message{{
		Role: history.User, Kind: history.Reference, Status: history.Complete, Content: []history.Block{history.Text(first.Text)},
	}}})
	if again := recall(100); strings.Count(again.Text, strings.TrimSpace(opened)) != 1 || strings.Contains(again.Text, "u003c") {
		t.Errorf("block: got\n%s\nwant no block in it", again.Text)
	}

	s.clear(ann, "trip")
	if got := bodies(recall(1)); got != "A flight that was folded away." {
		t.Errorf("after a clear: got %q, want what is left", got)
	}
}

// Whoever puts a block into the record, and however often, what it quotes is found where it was said and nowhere else.
func TestWhatWasRecalledIsNoNewMemory(t *testing.T) {
	s := newShelf(t)
	ann := scopeNamed(t, "ann")
	s.say(ann, "trip", "Our flight to Lisbon leaves on Monday.", "Noted.")
	r := must(t, Options{Local: s.index})
	recall := func() Recalled {
		t.Helper()
		return r.Recall(t.Context(), Ask{Scope: ann, Conversation: "main", Query: "When is the flight to Lisbon?", Through: 1000})
	}
	first := recall()
	wantStatuses(t, first, "local ok 1")
	block := func(text string) []history.Block { return []history.Block{history.Text(text)} }
	for i := range 5 {
		s.append(ann, "main", history.Batch{Messages: []history.Message{
			{Role: history.User, Kind: history.Reference, Synthetic: true, Status: history.Complete, Content: block(recall().Text + " A flight to Lisbon on Monday.")},
			{Role: history.User, Kind: history.Person, Status: history.Complete, Content: block(recall().Text)},
			{Role: history.User, Kind: history.Person, Status: history.Complete, Content: block("Before " + recall().Text + " and behind, " + strings.Repeat("again ", i))},
			{Role: history.System, Status: history.Complete, Content: block("You know of a flight to Lisbon.")},
			{Role: history.Assistant, Status: history.Complete, Content: []history.Block{{Type: history.ToolCall, ID: "c", Name: "recall", Arguments: []byte("{}")}}},
			{Role: history.Tool, Status: history.Complete, Content: []history.Block{{Type: history.ToolResult, CallID: "c", Content: block(recall().Text), Plain: true}}},
		}})
		if again := recall(); again.Text != first.Text {
			t.Fatalf("block after %d turns: got\n%s\nwant that of the first\n%s", i+1, again.Text, first.Text)
		}
	}
	s.finds(ann, Query{Text: "flight Lisbon Monday", Sort: Newest}, "trip/1")
	if got := len(s.search(ann, Query{Text: "before behind", Sort: Newest}).Hits); got != 5 {
		t.Errorf("what was said around blocks: got %d hits, want 5", got)
	}
	s.finds(ann, Query{Text: `"know of a flight"`, Conversation: "main", BeforeSeq: 5}, "main/4")
	s.finds(ann, Query{Text: "quoted instruction"})
}

func TestWhatStandsAroundFrames(t *testing.T) {
	block := frame([]Item{{Retriever: "local", Body: "a note"}}, 0)
	for _, tt := range []struct {
		text string
		want []string
	}{
		{"", nil},
		{" \n", nil},
		{"plain", []string{"plain"}},
		{block, nil},
		{"a" + block + "b" + block + "c", []string{"a", "b", "c"}},
		{block + block + "c", []string{"c"}},
		{"a" + strings.TrimSuffix(block, closing), []string{"a" + strings.TrimSuffix(block, closing)}},
		{closing + intro + "b", []string{closing + intro + "b"}},
	} {
		if got := appendUnframed(nil, tt.text); !slices.Equal(got, tt.want) {
			t.Errorf("%.40q: got %q, want %q", tt.text, got, tt.want)
		}
	}
}

// What a program kept in place of an answer when its provider failed is found by a search, and is no memory, however much
// of it there is.
func TestAProvidersErrorIsNoMemory(t *testing.T) {
	s := newShelf(t)
	ann := scopeNamed(t, "ann")
	s.say(ann, "trip", "The ferry is overloaded in summer.")
	var failed history.Batch
	for range 60 {
		failed.Messages = append(failed.Messages, history.Message{
			Role: history.Assistant, Status: history.Complete, Content: []history.Block{history.Text("overloaded")}, Extra: []byte(`{"error":{"code":529}}`),
		})
	}
	s.append(ann, "failed", failed)
	if res := s.search(ann, Query{Text: "overloaded", Limit: 100}); len(res.Hits) != 61 || res.Behind {
		t.Errorf("a search finds %d, behind %t; want 61", len(res.Hits), res.Behind)
	}
	r := must(t, Options{Local: s.index})
	if got := bodies(r.Recall(t.Context(), Ask{Scope: ann, Conversation: "main", Query: "Which ferry is overloaded?"})); got != "The ferry is overloaded in summer." {
		t.Errorf("recalled is %q", got)
	}
}
