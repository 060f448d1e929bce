package pipeline

import (
	"bytes"
	"context"
	"encoding/json/jsontext"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"historyd/internal/history"
	"historyd/internal/projection"
)

// blocksOf writes messages as their roles and the types of their blocks.
func blocksOf(msgs []history.Message) string {
	var words []string
	for _, m := range msgs {
		word := string(m.Role)
		for _, b := range m.Content {
			word += " " + string(b.Type)
		}
		words = append(words, word)
	}
	return strings.Join(words, ", ")
}

func picture(data string) history.Block {
	b := history.Block{Type: history.ImageBlock, MediaType: "image/png"}
	b.SetData([]byte(data))
	return b
}

func TestAFullReplayShowsAllButTheSystemsWords(t *testing.T) {
	b := newBench(t, projection.Options{UnknownTools: "keep"})
	c := conversation(t, "ann")
	both := calls("c1", "look", `{"q":"x"}`)
	both.Content = append([]history.Block{{Type: history.ThinkingBlock, Text: "hm", Signature: "s"}, history.Text("I look.")}, both.Content...)
	broken := said(history.Assistant, "503 from the provider")
	broken.Extra = jsontext.Value(`{"isApiErrorMessage":true}`)
	see := said(history.User, "see")
	see.Content = append(see.Content, picture("bytes"))
	b.record(c, Turn{Messages: []history.Message{
		said(history.System, "be brief"), said(history.User, "hi"), both, answers("c1", "found"), broken, see, said(history.Assistant, " "),
	}})
	got := b.replay(c, Ask{Full: true, Tools: []string{"look"}})
	const want = "user text, assistant thinking text tool_call, tool tool_result, user text image, assistant text"
	if s := blocksOf(got.Messages); s != want {
		t.Errorf("got %s, want %s", s, want)
	}
	if want := (Report{ProviderErrors: 1}); got.Report != want || got.Added != nil {
		t.Errorf("report %+v, added %+v", got.Report, got.Added)
	}
	if text := b.replay(c, Ask{}); got.Tokens < text.Tokens+1000 {
		t.Errorf("%d tokens, in mode text %d", got.Tokens, text.Tokens)
	}
	if got := b.replay(conversation(t, "bob"), Ask{Full: true, Inline: true}); len(got.Messages) > 0 || got.Report != (Report{}) {
		t.Errorf("of nothing: %+v", got)
	}
}

func TestAFullReplayIsRepairedAndTellsIt(t *testing.T) {
	b := newBench(t, projection.Options{UnknownTools: "keep"})
	c := conversation(t, "ann")
	for _, m := range []history.Message{
		said(history.User, "go"),
		calls("a", "f", "{}"), calls("b", "f", "{}"), answers("b", "of b"),
		said(history.User, "well?"), answers("a", "of a"), answers("a", "again"), answers("x", "of nothing"),
		calls("c", "f", "{}"), said(history.User, "hello?"),
	} {
		b.record(c, Turn{Messages: []history.Message{m}})
	}
	got := b.replay(c, Ask{Full: true})
	const want = "user text, assistant tool_call tool_call, tool tool_result, tool tool_result, user text, assistant tool_call, tool tool_result, user text"
	if s := blocksOf(got.Messages); s != want {
		t.Errorf("got %s, want %s", s, want)
	}
	report := Report{SyntheticResults: 1, MovedResults: 1, DroppedOrphans: 1, DroppedDuplicates: 1, MergedCalls: 1}
	if got.Report != report {
		t.Errorf("report %+v, want %+v", got.Report, report)
	}
	for _, kind := range []string{"synthetic_results", "moved_results", "dropped_orphans", "dropped_duplicates", "merged_calls"} {
		if n := b.counted("historyd_replay_repairs_total", kind); n != 1 {
			t.Errorf("%s was counted %v times", kind, n)
		}
	}
	if again := b.replay(c, Ask{Full: true}); !reflect.DeepEqual(again, got) {
		t.Error("two replays differ")
	}
	if text := b.replay(c, Ask{}); text.Report != (Report{}) || len(text.Messages) != 3 {
		t.Errorf("mode text: %d messages, report %+v", len(text.Messages), text.Report)
	}
	if n := len(b.stored(c)); n != 10 {
		t.Errorf("the record has %d messages now", n)
	}
}

func TestAFullReplayIsClosedOverItsTools(t *testing.T) {
	b := newBench(t, projection.Options{UnknownTools: "keep"})
	p, err := New(Options{Engine: b.engine, Policy: b.policy.Load(), Compactor: b.compactor, MaxClosureTools: 2})
	if err != nil {
		t.Fatal(err)
	}
	c := conversation(t, "ann")
	for _, name := range []string{"old", "b.c", "a", "known"} {
		b.record(c, Turn{Messages: []history.Message{said(history.User, "go"), calls("c", name, "{}"), answers("c", "found")}})
	}
	ask := Ask{Full: true, Tools: []string{"known"}, Granted: []string{"a"}, Role: "reviewer"}
	got := b.replay(c, ask)
	names := func(r Replayed) (list []string) {
		for _, d := range r.Added {
			list = append(list, fmt.Sprintf("%s %t", d.Name, strings.Contains(d.Refusal, `"reviewer"`)))
		}
		return list
	}
	if list := names(got); !slices.Equal(list, []string{"a false", "b.c true", "old true"}) || got.Report != (Report{}) {
		t.Errorf("added %v, report %+v", list, got.Report)
	}
	few, err := p.Replay(context.Background(), c, ask)
	if list := names(few); err != nil || !slices.Equal(list, []string{"a false", "b.c true"}) || few.Report != (Report{ExchangesAsText: 1}) {
		t.Errorf("added %v, report %+v, %v", list, few.Report, err)
	}
	if s, want := blocksOf(few.Messages[:4]), "user text, assistant text, user text, user text"; s != want {
		t.Errorf("got %s, want %s", s, want)
	}
	// A tool that the request declares under the name that it writes takes no place.
	mapped := ask
	mapped.Tools, mapped.Written = []string{"known", "b_c"}, func(name string) string { return strings.ReplaceAll(name, ".", "_") }
	few, err = p.Replay(context.Background(), c, mapped)
	if list := names(few); err != nil || !slices.Equal(list, []string{"a false", "old true"}) || few.Report != (Report{}) {
		t.Errorf("mapped: added %v, report %+v, %v", list, few.Report, err)
	}
	// What the budget drops needs no declaration.
	ask.MaxTokens = got.Tokens - 1
	if less := b.replay(c, ask); !slices.Equal(names(less), []string{"a false", "b.c true"}) || less.Report != (Report{DroppedTurns: 1, DroppedMessages: 3}) || less.Tokens > ask.MaxTokens {
		t.Errorf("less budget: added %v, %d of %d tokens, report %+v", names(less), less.Tokens, ask.MaxTokens, less.Report)
	}
	if text := b.replay(c, Ask{Tools: ask.Tools, Granted: ask.Granted, Inline: true}); text.Added != nil || len(text.Messages) != 4 {
		t.Errorf("mode text: %+v", text)
	}
}

func TestWhatWasRewoundIsInNoReplay(t *testing.T) {
	b := newBench(t, projection.Options{UnknownTools: "keep"})
	c := conversation(t, "ann")
	b.record(c, Turn{Messages: []history.Message{said(history.User, "stays"), calls("c", "f", "{}"), answers("c", "rewound"), said(history.Assistant, "rewound")}})
	if _, err := b.open(c).Rewind(context.Background(), history.Rewind{Through: 2}); err != nil {
		t.Fatal(err)
	}
	b.record(c, Turn{Messages: []history.Message{said(history.User, "goes on")}})
	if got := b.replay(c, Ask{}); blocksOf(got.Messages) != "user text, user text" || got.Report != (Report{}) {
		t.Errorf("mode text: %s, report %+v", blocksOf(got.Messages), got.Report)
	}
	got := b.replay(c, Ask{Full: true})
	if s := blocksOf(got.Messages); s != "user text, assistant tool_call, tool tool_result, user text" || got.Report != (Report{SyntheticResults: 1}) {
		t.Errorf("mode full: %s, report %+v", s, got.Report)
	}
	for _, line := range lines(got.Messages) {
		if strings.Contains(line, "rewound") {
			t.Errorf("shown: %s", line)
		}
	}
}

func TestFullReplaysGrowByASuffixBetweenFolds(t *testing.T) {
	b := newBench(t, projection.Options{UnknownTools: "keep"})
	c := conversation(t, "ann")
	var stable []string
	var lastSummary string
	for i := range 40 {
		id := fmt.Sprintf("call_%d", i%2)
		turn := []history.Message{said(history.User, fmt.Sprintf("question %d", i)), calls(id, "f", "{}"), answers(id, "x"), said(history.Assistant, "so")}
		if i%5 == 0 {
			turn = slices.Delete(turn, 2, 3)
		}
		for _, m := range turn {
			b.record(c, Turn{Messages: []history.Message{m}})
			got := b.replay(c, Ask{Full: true})
			now, summary := lines(got.Messages), ""
			if got.Summary != nil {
				summary = got.Summary.Text
			}
			if summary == lastSummary && (len(now) < len(stable) || !slices.Equal(now[:len(stable)], stable)) {
				t.Fatalf("turn %d: the prefix changed without a fold", i)
			}
			lastSummary, stable = summary, now
			if n := len(now); got.Messages[n-1].Synthetic {
				stable = now[:n-2] // the call may still be answered
			}
		}
	}
}

func TestBytesOfAttachmentsComeWhereTheyAreWanted(t *testing.T) {
	b := newBench(t, projection.Options{UnknownTools: "keep"})
	c := conversation(t, "ann")
	see := said(history.User, "see")
	see.Content = append(see.Content, picture("one"), history.Block{Type: history.ImageBlock, URL: "https://e.example/x.png"})
	found := answers("c", "found")
	found.Content[0].Plain = false
	found.Content[0].Content = append(found.Content[0].Content, picture("two"), picture("damaged"))
	b.record(c, Turn{Messages: []history.Message{see, calls("c", "f", "{}"), found}})
	b.stop()
	for name, content := range b.disk.Files() {
		if string(content) == "damaged" {
			b.disk.Corrupt(name, func([]byte) []byte { return []byte("demaged") })
		}
	}
	b.disk = b.disk.Kill()
	b.start(projection.Options{})

	data := func(r Replayed) (list []string) {
		for i := range r.Messages {
			r.Messages[i].MediaBlocks(func(b *history.Block) {
				if b.Data != nil && history.AttachmentName(b.Data) != b.Attachment {
					t.Errorf("%q is not %s", b.Data, b.Attachment)
				}
				list = append(list, string(b.Data))
			})
		}
		return list
	}
	named := b.replay(c, Ask{Full: true})
	if got := data(named); !slices.Equal(got, []string{"", "", "", ""}) {
		t.Errorf("data that nobody wants: %q", got)
	}
	got := b.replay(c, Ask{Full: true, Inline: true})
	if data := data(got); !slices.Equal(data, []string{"one", "", "two", ""}) {
		t.Errorf("data: %q", data)
	}
	for i := range got.Messages {
		got.Messages[i] = got.Messages[i].StripData()
	}
	if !reflect.DeepEqual(lines(got.Messages), lines(named.Messages)) || got.Tokens != named.Tokens {
		t.Error("the rest differs")
	}
}

// shelf is a view of nothing but attachments.
type shelf struct {
	history.View
	attachment func(name string) ([]byte, error)
	reads      int
}

func (s *shelf) Named(name string) (history.Attachment, error) {
	s.reads++
	data, err := s.attachment(name)
	return history.Attachment{Name: name, Data: data}, err
}

func TestTheNewestAttachmentsComeWithinTheLimits(t *testing.T) {
	const mib = 1 << 20
	for _, tt := range []struct {
		name   string
		sizes  []int // of the attachments, oldest first; the same size is the same attachment
		filled int
		reads  int
	}{
		{"one many times", slices.Repeat([]int{10}, 150), 100, 1},
		{"many", func() (list []int) {
			for i := range 150 {
				list = append(list, i+1)
			}
			return list
		}(), 100, 100},
		{"five times 5 MiB", slices.Repeat([]int{5 * mib}, 5), 4, 1},
		{"one that is too long", []int{mib, 21 * mib, 2 * mib}, 2, 3},
		{"many that are too long", []int{1, 21 * mib, 22 * mib, 23 * mib}, 0, 2},
		{"exactly", []int{8 * mib, 12 * mib}, 2, 2},
		{"nothing in it", []int{0, 0, 1}, 1, 2},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := &shelf{attachment: func(name string) ([]byte, error) {
				var size int
				_, err := fmt.Sscan(name, &size)
				return make([]byte, size), err
			}}
			var msgs []history.Message
			for i, size := range tt.sizes {
				image := history.Block{Type: history.ImageBlock, Attachment: fmt.Sprint(size)}
				m := history.Message{Role: history.User, Content: []history.Block{image}}
				if i%2 == 0 {
					m = history.Message{Role: history.Tool, Content: []history.Block{{Type: history.ToolResult, Content: []history.Block{image}}}}
				}
				msgs = append(msgs, m)
			}
			before := slices.Clone(msgs)
			if err := inline(context.Background(), s, msgs); err != nil {
				t.Fatal(err)
			}
			filled, older, total := 0, false, 0
			for i := len(msgs) - 1; i >= 0; i-- {
				msgs[i].MediaBlocks(func(b *history.Block) {
					if b.Data != nil {
						filled++
						total += len(b.Data)
					}
				})
				before[i].MediaBlocks(func(b *history.Block) { older = older || b.Data != nil })
			}
			if filled != tt.filled || s.reads != tt.reads || total > 20*mib || older {
				t.Errorf("%d blocks of %d bytes from %d reads, want %d from %d; input altered: %t", filled, total, s.reads, tt.filled, tt.reads, older)
			}
		})
	}
}

func TestAClearEndsTheReadingOfAttachments(t *testing.T) {
	msgs := func() []history.Message {
		return []history.Message{{Role: history.User, Content: []history.Block{picture("a"), picture("b")}}}
	}
	for _, tt := range []struct {
		fails error
		want  error
		reads int
	}{{history.ErrGone, history.ErrGone, 1}, {history.ErrDamaged, nil, 2}, {history.ErrNotFound, nil, 2}, {history.ErrUnavailable, nil, 2}} {
		list := msgs()
		list[0] = list[0].StripData()
		s := &shelf{attachment: func(string) ([]byte, error) { return nil, tt.fails }}
		if err := inline(context.Background(), s, list); !errors.Is(err, tt.want) || s.reads != tt.reads {
			t.Errorf("%v: got %v after %d reads", tt.fails, err, s.reads)
		}
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	list := msgs()
	list[0] = list[0].StripData()
	s := &shelf{attachment: func(string) ([]byte, error) { return bytes.Repeat([]byte("x"), 5), nil }}
	if err := inline(ctx, s, list); !errors.Is(err, context.Canceled) || s.reads != 0 {
		t.Errorf("cancelled: got %v after %d reads", err, s.reads)
	}
}
