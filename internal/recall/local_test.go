package recall

import (
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
