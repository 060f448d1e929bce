package pipeline

import (
	"context"
	"encoding/json/jsontext"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"historyd/internal/history"
	"historyd/internal/projection"
)

func TestReplayShowsTextAlone(t *testing.T) {
	b := newBench(t, projection.Options{UnknownTools: "keep"})
	c := conversation(t, "ann")
	both := calls("c1", "look", `{"q":"tool-argument"}`)
	both.Content = append([]history.Block{history.Text("I look."), history.Text("  ")}, both.Content...)
	broken := said(history.Assistant, "503 from the provider")
	broken.Extra = jsontext.Value(`{"isApiErrorMessage":true}`)
	picture := said(history.User, "see")
	picture.Content = append(picture.Content, history.Block{Type: history.ImageBlock, URL: "https://e.example/x.png"})
	b.record(c, Turn{Messages: []history.Message{
		said(history.System, "be brief"), said(history.User, "hi <&>"), both, answers("c1", "tool-result"),
		calls("c2", "look", `{}`), said(history.Assistant, " \n"), broken, picture, said(history.Assistant, "done"),
	}})
	got := b.replay(c, Ask{})
	var texts []string
	for _, m := range got.Messages {
		for _, block := range m.Content {
			if block.Type != history.TextBlock {
				t.Errorf("a %s block is replayed", block.Type)
			}
			texts = append(texts, string(m.Role)+": "+block.Text)
		}
	}
	want := []string{"user: hi <&>", "assistant: I look.", "user: see", "assistant: done"}
	if !slices.Equal(texts, want) {
		t.Errorf("got %q, want %q", texts, want)
	}
	if want := (Report{DroppedBlank: 1, DroppedMedia: 1, ProviderErrors: 1}); got.Report != want {
		t.Errorf("report %+v, want %+v", got.Report, want)
	}
	if got.State.LastSeq != 9 || got.Tokens == 0 {
		t.Errorf("last %d, tokens %d", got.State.LastSeq, got.Tokens)
	}
}

func TestReplayOfNothingIsEmpty(t *testing.T) {
	b := newBench(t, projection.Options{})
	got := b.replay(conversation(t, "ann"), Ask{MaxTokens: 10})
	if got.State.Exists() || got.Summary != nil || len(got.Messages) > 0 || got.Tokens != 0 || got.Report != (Report{}) {
		t.Errorf("got %+v", got)
	}
	for name := range b.disk.Files() {
		if strings.HasPrefix(name, "transcripts/") {
			t.Errorf("a read made %s", name)
		}
	}
}

func TestReplaysGrowByASuffixBetweenFolds(t *testing.T) {
	b := newBench(t, projection.Options{})
	c := conversation(t, "ann")
	var last []string
	var lastSummary string
	changes := 0
	for i := range 60 {
		b.record(c, Turn{Messages: []history.Message{said(history.User, fmt.Sprintf("question %d", i))}})
		b.record(c, Turn{Messages: []history.Message{said(history.Assistant, fmt.Sprintf("answer %d", i))}})
		got := b.replay(c, Ask{})
		if again := b.replay(c, Ask{}); !reflect.DeepEqual(again, got) {
			t.Fatalf("turn %d: two replays differ", i)
		}
		now, summary := lines(got.Messages), ""
		if got.Summary != nil {
			summary = got.Summary.Text
		}
		if summary != lastSummary {
			changes++
		} else if len(now) < len(last) || !slices.Equal(now[:len(last)], last) {
			t.Fatalf("turn %d: the prefix changed without a fold", i)
		}
		last, lastSummary = now, summary
		if turns := (len(now) + 1) / 2; turns > 15 || i >= 15 && turns < 10 {
			t.Errorf("turn %d: the window has %d turns", i, turns)
		}
	}
	if changes == 0 || changes > 10 {
		t.Errorf("the summary changed %d times in 60 turns", changes)
	}
	if got := b.stored(c); len(got) != 120 {
		t.Errorf("the record has %d messages", len(got))
	}
}

func TestABudgetDropsWholeTurnsFromTheOldest(t *testing.T) {
	b := newBench(t, projection.Options{})
	c := conversation(t, "ann")
	for i := range 5 {
		b.record(c, Turn{Messages: []history.Message{
			said(history.User, fmt.Sprintf("%d %s", i, strings.Repeat("word ", 40))), said(history.Assistant, strings.Repeat("text ", 40)),
		}})
	}
	all := b.replay(c, Ask{})
	for n := all.Tokens + 1; n > 0; n -= 7 {
		got := b.replay(c, Ask{MaxTokens: n})
		if got.Tokens > n != got.Report.OverBudget {
			t.Errorf("max %d: %d tokens, over %t", n, got.Tokens, got.Report.OverBudget)
		}
		if len(got.Messages) < 2 || len(got.Messages) != 10-2*int(got.Report.DroppedTurns) || !got.Messages[0].StartsTurn() {
			t.Errorf("max %d: %d messages, %d turns dropped", n, len(got.Messages), got.Report.DroppedTurns)
		}
	}
	if got := b.replay(c, Ask{MaxTokens: all.Tokens}); got.Report != (Report{}) {
		t.Errorf("a budget that is just enough: %+v", got.Report)
	}
}

// However small a budget, the summary is never what crowds the turns out, and what gave
// way of it is told.
func TestTheSummaryGivesWayInABudget(t *testing.T) {
	b := newBench(t, projection.Options{})
	c := conversation(t, "ann")
	for i := range 60 {
		b.record(c, Turn{Messages: []history.Message{said(history.User, fmt.Sprintf("%d %s", i, strings.Repeat("word ", 30)))}})
	}
	all := b.replay(c, Ask{})
	if all.Summary == nil {
		t.Fatal("nothing was folded")
	}
	turns, summary := all.Tokens-all.summaryTokens(), all.summaryTokens()
	for n := all.Tokens; n > 0; n -= 11 {
		got := b.replay(c, Ask{MaxTokens: n})
		s := got.Summary
		if got.Tokens > n != got.Report.OverBudget || got.Report.OverBudget && (n > 200 || len(got.Messages) != 1) {
			t.Fatalf("max %d: %d tokens, %d messages, %+v", n, got.Tokens, len(got.Messages), got.Report)
		}
		if got.Report.ShortenedSummary != (s.Text != all.Summary.Text) || int64(len(s.Lines))+s.Omitted != s.Turns {
			t.Fatalf("max %d: %d lines and %d omitted of %d turns, %+v", n, len(s.Lines), s.Omitted, s.Turns, got.Report)
		}
		if left := n - got.Tokens; got.Report.DroppedTurns > 0 && got.summaryTokens() > n/4+4 && n > 400 {
			t.Fatalf("max %d: the summary has %d tokens, %d turns were left out, and %d are left", n, got.summaryTokens(), got.Report.DroppedTurns, left)
		}
	}
	if got := b.replay(c, Ask{MaxTokens: summary + 3*turns}); got.Report != (Report{}) {
		t.Errorf("a budget in which nothing has to give way: %+v", got.Report)
	}
	if got := b.replay(c, Ask{MaxTokens: 1}); !got.Report.OverBudget || len(got.Messages) != 1 {
		t.Errorf("the least budget: %+v with %d messages", got.Report, len(got.Messages))
	}
}

func TestDamageIsToldAndTheRestServed(t *testing.T) {
	b := newBench(t, projection.Options{})
	c := conversation(t, "ann")
	for i := range 5 {
		b.record(c, Turn{Messages: []history.Message{said(history.User, fmt.Sprintf("message-%d", i))}})
	}
	b.stop()
	for name, content := range b.disk.Files() {
		if strings.Contains(string(content), "message-2") {
			b.disk.Corrupt(name, func(d []byte) []byte { return []byte(strings.Replace(string(d), "message-2", "massage-2", 1)) })
		}
	}
	b.disk = b.disk.Kill()
	b.start(projection.Options{})
	got := b.replay(c, Ask{})
	if len(got.Messages) != 4 || got.Report.Damage == nil || got.Report.Damage.Lost != 1 {
		t.Errorf("%d messages, report %+v, damage %+v", len(got.Messages), got.Report, got.Report.Damage)
	}
	if page := b.page(c, Page{Before: Unbounded, Limit: 10}, func(history.Record) {}); page.Damage == nil || page.More {
		t.Errorf("page %+v", page)
	}
}

// page reads a page to its end.
func (b *bench) page(c Conversation, page Page, each func(history.Record)) *Paged {
	b.t.Helper()
	p, err := b.Messages(context.Background(), c, page)
	if err != nil {
		b.t.Fatalf("Messages: %v", err)
	}
	defer p.Close()
	for r, err := range p.Records(context.Background()) {
		if err != nil {
			b.t.Fatalf("Records: %v", err)
		}
		each(r)
	}
	return p
}

func TestPagesGiveEachMessageOnceInBothOrders(t *testing.T) {
	b := newBench(t, projection.Options{})
	c := conversation(t, "ann")
	const total = 50
	for range total / 5 {
		var batch []history.Message
		for range 5 {
			batch = append(batch, said(history.User, "x"))
		}
		b.record(c, Turn{Messages: batch})
	}
	for _, limit := range []int{1, 7, 25, 49, 50, 51, 1000} {
		for _, descending := range []bool{false, true} {
			var seqs []int64
			page := Page{Before: Unbounded, Limit: limit, Descending: descending}
			for more := true; more; {
				var in []int64
				got := b.page(c, page, func(r history.Record) { in = append(in, r.Seq) })
				if len(in) == 0 || len(in) > limit || slices.Min(in) != got.First || slices.Max(in) != got.Last {
					t.Fatalf("limit %d: page %+v holds %v", limit, got, in)
				}
				seqs = append(seqs, in...)
				if more = got.More; descending {
					page.Before = got.First
				} else {
					page.After = got.Last
				}
			}
			if descending {
				slices.Reverse(seqs)
			}
			for i, s := range seqs {
				if s != int64(i+1) {
					t.Fatalf("limit %d, descending %t: %v", limit, descending, seqs)
				}
			}
			if len(seqs) != total {
				t.Errorf("limit %d, descending %t: %d messages", limit, descending, len(seqs))
			}
		}
	}
}

func TestPagesKeepToBothBounds(t *testing.T) {
	b := newBench(t, projection.Options{})
	c := conversation(t, "ann")
	for range 10 {
		b.record(c, Turn{Messages: []history.Message{said(history.User, "x")}})
	}
	for after := int64(0); after <= 12; after++ {
		for before := int64(0); before <= 12; before++ {
			for _, descending := range []bool{false, true} {
				for _, limit := range []int{1, 3, 20} {
					var want []int64
					for s := max(after+1, 1); s < before && s <= 10; s++ {
						want = append(want, s)
					}
					if descending {
						slices.Reverse(want)
					}
					more := len(want) > limit
					want = want[:min(limit, len(want))]
					var got []int64
					page := Page{After: after, Before: before, Limit: limit, Descending: descending}
					p := b.page(c, page, func(r history.Record) { got = append(got, r.Seq) })
					if !slices.Equal(got, want) || p.More != more {
						t.Fatalf("%+v: got %v, more %t; want %v, more %t", page, got, p.More, want, more)
					}
				}
			}
		}
	}
}
