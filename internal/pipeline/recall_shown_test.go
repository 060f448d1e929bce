package pipeline

import (
	"strings"
	"testing"

	"historyd/internal/history"
	"historyd/internal/projection"
	"historyd/internal/recall"
)

// A stored recall that is shown says it already, whatever the next query is.
func TestWhatAStoredRecallShowsIsNotRecalledAgain(t *testing.T) {
	b := newBench(t, projection.Options{})
	b.withRecall(recall.Options{})
	c := conversation(t, "ann")
	source := Conversation{c.Scope, "source"}
	b.record(source, Turn{Messages: []history.Message{said(history.User, "the lighthouse: \"keeper\" is\ncalled Ferreira")}})
	b.record(c, Turn{Messages: []history.Message{said(history.User, "hello")}})
	first := b.recall(c, RecallAsk{Query: "who is the lighthouse keeper?", Store: true})
	if first.Seq != 2 || !strings.Contains(first.Text, "Ferreira") {
		t.Fatalf("the first is %+v", first)
	}
	if again := b.recall(c, RecallAsk{Query: "who is the lighthouse keeper?", Store: true}); again.Seq != 2 || again.Text != first.Text {
		t.Errorf("a retry is answered %+v", again)
	}
	nothing := func(ask RecallAsk) {
		t.Helper()
		if got := b.recall(c, ask); got.Text != "" || got.Seq != 0 || got.Skipped || len(got.Retrievers) != 1 || got.Retrievers[0] != (recall.Status{Name: "local", Status: recall.Empty}) {
			t.Errorf("%+v is answered %+v", ask, got)
		}
	}
	nothing(RecallAsk{Query: "the keeper of the lighthouse", Store: true})
	b.record(c, Turn{Messages: []history.Message{said(history.Assistant, "noted"), said(history.User, "more")}})
	nothing(RecallAsk{Query: "who is the lighthouse keeper?", Store: true})
	nothing(RecallAsk{Query: "what is the lighthouse keeper called?"})
	b.record(source, Turn{Messages: []history.Message{said(history.User, "the lighthouse keeper has a dog")}})
	if got := b.recall(c, RecallAsk{Query: "what else of the lighthouse keeper?", Store: true}); got.Seq != 5 || !strings.Contains(got.Text, "dog") || strings.Contains(got.Text, "Ferreira") {
		t.Errorf("something new is answered %+v", got)
	}
	// What is rewound is shown no more.
	if _, err := b.Rewind(t.Context(), c, 1, nil); err != nil {
		t.Fatal(err)
	}
	if got := b.recall(c, RecallAsk{Query: "who is the lighthouse keeper?", Store: true}); !strings.Contains(got.Text, "Ferreira") || !strings.Contains(got.Text, "dog") {
		t.Errorf("after a rewind it is answered %+v", got)
	}
}

// A stored recall that a limit leaves out is shown nowhere.
func TestAStoredRecallThatIsNotShownIsRecalledAnew(t *testing.T) {
	b := newBench(t, projection.Options{})
	b.withRecall(recall.Options{})
	c := conversation(t, "ann")
	source := Conversation{c.Scope, "source"}
	b.record(source, Turn{Messages: []history.Message{said(history.User, "the lighthouse keeper is called Ferreira")}})
	b.record(c, Turn{Messages: []history.Message{said(history.User, "hello")}})
	ask := RecallAsk{Query: "who is the lighthouse keeper?", Store: true}
	b.recall(c, ask)
	b.record(c, Turn{Messages: []history.Message{said(history.Assistant, "noted")}})
	for range 5 {
		b.record(c, Turn{Messages: []history.Message{said(history.User, strings.Repeat("filler ", 300)), said(history.Assistant, "noted")}})
	}
	if got := b.recall(c, ask); got.Text != "" {
		t.Errorf("while it is shown: %+v", got)
	}
	ask.For = &Ask{MaxTokens: 800}
	if got := b.recall(c, ask); !strings.Contains(got.Text, "Ferreira") || got.Seq == 0 {
		t.Errorf("when it is not: %+v", got)
	}
}
