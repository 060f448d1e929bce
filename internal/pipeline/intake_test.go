package pipeline

import (
	"bytes"
	"context"
	"encoding/json/jsontext"
	"errors"
	"fmt"
	"iter"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"historyd/internal/durable"
	"historyd/internal/history"
	"historyd/internal/identity"
	"historyd/internal/projection"
	"historyd/internal/store"
	"historyd/test/growth"
)

// generated is a source of messages that are made when they are asked for.
type generated struct {
	n    int
	make func(i int) history.Message
	look func(i int) // called before each, and with n at the end
	end  error
	listed
}

func (g *generated) Messages() iter.Seq2[history.Message, error] {
	return func(yield func(history.Message, error) bool) {
		for i := range g.n {
			if g.look != nil {
				g.look(i)
			}
			m := g.make(i)
			m.Seq = int64(i)
			if !yield(m, nil) {
				return
			}
		}
		if g.look != nil {
			g.look(g.n)
		}
		if g.end != nil {
			yield(history.Message{}, g.end)
		}
	}
}

func image(data []byte) history.Block {
	b := history.Block{Type: history.ImageBlock, MediaType: "image/png"}
	b.SetData(data)
	return b
}

// named is an image of which only the name is at hand.
func named(data []byte) history.Block {
	b := image(data)
	b.Data = nil
	return b
}

func with(m history.Message, blocks ...history.Block) history.Message {
	m.Content = append(slices.Clone(m.Content), blocks...)
	return m
}

// shows is a result of these blocks.
func shows(id string, blocks ...history.Block) history.Message {
	m := answers(id, "")
	m.Content[0].Plain, m.Content[0].Content = false, blocks
	return m
}

// TestWithheldValuesReachNoFileOfALongImport looks at every file of the directory while
// an import of three parts is taken: at spools and staging, too.
func TestWithheldValuesReachNoFileOfALongImport(t *testing.T) {
	const canary, open = "canary-5521-hunter2", "harmless text"
	b := newBench(t, projection.Options{Tools: []projection.Rule{{Match: "wallet_*", Category: "wallet"}, {Match: "look", Category: "misc"}}})
	c := conversation(t, "ann")
	filler := strings.Repeat(open+" ", 40_000) // half a megabyte
	spooled, picture := false, []byte("\x89PNG\x00 picture "+canary)
	look := func(i int) {
		if i%7 != 0 {
			return
		}
		b.mustNotHold(canary)
		for name, content := range b.disk.Files() {
			spooled = spooled || strings.Contains(name, "staging/") && bytes.Contains(content, []byte(open))
		}
	}
	make := func(i int) history.Message {
		id := fmt.Sprintf("c%d", i/6)
		switch i % 6 {
		case 0:
			return said(history.User, filler)
		case 1:
			return calls(id, "wallet_send", `{"secret":"`+canary+`"}`)
		case 2:
			return shows(id, history.Text(canary), image(picture))
		case 3:
			return calls(id, "look", `{}`)
		case 4:
			return shows(id, history.Text("it says "+canary), named([]byte("shown")))
		}
		return with(said(history.Assistant, "ok"), history.Block{Type: history.ThinkingBlock, Text: "so " + canary},
			history.Block{Type: history.OpaqueBlock, Provider: "p", Opaque: jsontext.Value(`{"type":"mcp_call","name":"wallet_send","arguments":"{\"a\":\"` + canary + `\"}","output":"` + canary + `"}`)})
	}
	source := &generated{n: 300, make: make, look: look}
	source.attachments = []history.Attachment{
		{Name: history.AttachmentName(picture), Data: picture},
		{Name: history.AttachmentName([]byte("shown")), MediaType: "image/png", Data: []byte("shown")},
	}
	done, err := b.Import(context.Background(), c, Document{Mode: history.Create, Source: source})
	if err != nil {
		t.Fatal(err)
	}
	look(0)
	if done.Added != 300 || !spooled {
		t.Errorf("%d messages were added, seen in a spool: %v", done.Added, spooled)
	}
	if a, err := b.Attachment(context.Background(), c, history.AttachmentName([]byte("shown"))); err != nil || string(a.Data) != "shown" {
		t.Errorf("Attachment = %q, %v", a.Data, err)
	}
	if _, err := b.Attachment(context.Background(), c, history.AttachmentName(picture)); !errors.Is(err, history.ErrNotFound) {
		t.Errorf("the withheld picture: %v", err)
	}
	if n := b.counted("historyd_redactions_total", "wallet"); n != float64(done.Changed["redacted"]+done.Changed["dropped"]) || n < 50*5 {
		t.Errorf("%v values were counted, changed %v", n, done.Changed)
	}
	if got := b.stored(c)[10].Content[0].Content[0].Text; got != "it says [withheld: wallet]" {
		t.Errorf("an echo in a later part: %q", got)
	}
}

func TestACallIsAnsweredInALaterPart(t *testing.T) {
	const canary = "canary-later-77"
	b := newBench(t, projection.Options{Tools: []projection.Rule{{Match: "wallet", Category: "wallet"}, {Match: "look", Category: "misc"}}})
	c := conversation(t, "ann")
	long := said(history.User, strings.Repeat("x", maxPartBytes/2))
	b.load(c, Document{Mode: history.Create, Source: list(calls("w", "wallet", `{}`), calls("l", "look", `{}`), long, long, long, answers("w", canary), answers("l", "seen"))})
	b.mustNotHold(canary)
	if got := b.stored(c)[6].Content[0].Content[0].Text; got != "seen" {
		t.Errorf("got %q", got)
	}
}

func TestAttachmentsOfAnImport(t *testing.T) {
	b := newBench(t, projection.Options{Tools: []projection.Rule{{Match: "wallet", Category: "wallet"}}})
	c, ctx := conversation(t, "ann"), context.Background()
	one, two, three := []byte("one"), []byte("two"), []byte("three")
	archive := func(of ...[]byte) (list []history.Attachment) {
		for _, data := range of {
			list = append(list, history.Attachment{Name: history.AttachmentName(data), Data: data})
		}
		return list
	}
	source := list(with(said(history.User, "see"), named(one)), with(said(history.User, "and"), image(two)), with(said(history.User, "again"), named(two)))
	source.attachments = archive(one, one, three)
	b.load(c, Document{Mode: history.Create, Source: source})
	for name, want := range map[string]error{"one": nil, "two": nil, "three": history.ErrNotFound} {
		if a, err := b.Attachment(ctx, c, history.AttachmentName([]byte(name))); !errors.Is(err, want) || err == nil && string(a.Data) != name {
			t.Errorf("%s: %q, %v", name, a.Data, err)
		}
	}
	// A document that adds may name what the record holds.
	more := list(with(said(history.User, "more"), named(one)))
	if done := b.load(c, Document{Mode: history.Extend, Source: more}); done.Added != 1 {
		t.Errorf("more: %+v", done)
	}
	wallet := list(calls("w", "wallet", "{}"), shows("w", named(three), image([]byte("four"))))
	if done := b.load(c, Document{Mode: history.Extend, Source: wallet}); done.Added != 2 {
		t.Errorf("withheld ones: %+v", done)
	}
	bad := list(calls("f", "f", "{}"), with(said(history.User, "x"), named(three), named(one)), with(said(history.User, "x"), named([]byte("four"))), answers("nobody", "x"))
	bad.categories = map[string]string{"*": "misc"}
	for mode, want := range map[history.ImportMode]string{
		history.Extend:  "messages[3].content[0] messages[1].content[1].attachment messages[2].content[1].attachment",
		history.Replace: "messages[3].content[0] messages[1].content[1].attachment messages[1].content[2].attachment messages[2].content[1].attachment",
	} {
		_, err := b.Import(ctx, c, Document{Mode: mode, Source: bad})
		if got := paths(err); got != want {
			t.Errorf("%s: faults at %s, want %s: %v", mode, got, want, err)
		}
		bad.messages = bad.messages[:3] // with nothing else wrong
		_, err = b.Import(ctx, c, Document{Mode: mode, Source: bad})
		if got, want := paths(err), strings.TrimPrefix(want, "messages[3].content[0] "); got != want {
			t.Errorf("%s: faults at %s, want %s: %v", mode, got, want, err)
		}
		bad.messages = bad.messages[:4]
	}
	if n := len(b.stored(c)); n != 6 {
		t.Errorf("%d messages are stored", n)
	}
}

// A result may name bytes that repeat what is withheld, and a person may, too.
func TestAnAttachmentOfAResultRepeatsNothing(t *testing.T) {
	const canary = "canary-attached-4"
	b := newBench(t, projection.Options{Tools: []projection.Rule{{Match: "wallet", Category: "wallet"}, {Match: "look", Category: "misc"}}})
	c, note := conversation(t, "ann"), []byte("note: "+canary)
	msgs := []history.Message{calls("w", "wallet", `{"a":"`+canary+`"}`), calls("l", "look", "{}"), shows("l", history.Text("see"), named(note))}
	source := list(msgs...)
	source.attachments = []history.Attachment{{Name: history.AttachmentName(note), Data: note}}
	_, err := b.Import(context.Background(), c, Document{Mode: history.Create, Source: source})
	if got, want := paths(err), "messages[2].content[0].content[1].attachment"; got != want {
		t.Errorf("faults at %s, want %s: %v", got, want, err)
	}
	b.mustNotHold(canary)
	msgs[2] = shows("l", history.Text("see"), image(note))
	b.load(c, Document{Mode: history.Create, Source: list(msgs...)})
	b.mustNotHold(canary)
	source.messages = append(source.messages, with(said(history.User, "my note"), named(note)))
	b.load(c, Document{Mode: history.Replace, Source: source})
	if _, err := b.Attachment(context.Background(), c, history.AttachmentName(note)); err != nil {
		t.Errorf("what a person showed: %v", err)
	}
}

func paths(err error) string {
	var faults *history.Faults
	if !errors.As(err, &faults) {
		return fmt.Sprint(err)
	}
	var list []string
	for _, f := range faults.List {
		list = append(list, f.Path)
	}
	return strings.Join(list, " ")
}

func TestAllFaultsOfALongDocumentAreTold(t *testing.T) {
	b := newBench(t, projection.Options{})
	c, ctx := conversation(t, "ann"), context.Background()
	source := &generated{n: 30_000, make: func(i int) history.Message {
		if i%200 == 199 {
			return answers(fmt.Sprintf("nobody%d", i), "orphan")
		}
		return said(history.User, "hi")
	}}
	source.faults = &history.Faults{}
	source.faults.Add("messages[7].role", history.CodeInvalidMessage, 7, "wrong")
	source.categories = map[string]string{"f": strings.Repeat("long ", 100)}
	_, err := b.Import(ctx, c, Document{Mode: history.Create, Source: source})
	var faults *history.Faults
	if !errors.As(err, &faults) || len(faults.List) != history.MaxFaults || faults.More != 150+2-history.MaxFaults || faults.List[0].Path != "messages[7].role" {
		t.Fatalf("Import: %v", err)
	}
	source.end, source.faults = history.ErrUnavailable, nil
	if _, err := b.Import(ctx, c, Document{Mode: history.Create, Source: source}); !errors.Is(err, history.ErrUnavailable) {
		t.Errorf("a document that cannot be read: %v", err)
	}
	ended, cancel := context.WithCancel(ctx)
	source.end, source.look = nil, func(i int) {
		if i == 15_000 {
			cancel()
		}
	}
	if _, err := b.Import(ended, c, Document{Mode: history.Create, Source: source}); !errors.Is(err, context.Canceled) {
		t.Errorf("nobody waits any more: %v", err)
	}
	if st, err := b.State(ctx, c); err != nil || st.Exists() {
		t.Errorf("something was stored: %+v, %v", st, err)
	}
	for name := range b.disk.Files() {
		if strings.Contains(name, "staging/") {
			t.Errorf("%s is left", name)
		}
	}
}

func TestALongDocumentAddsOnlyWhatIsNew(t *testing.T) {
	b := newBench(t, projection.Options{Tools: []projection.Rule{{Match: "look", Category: "misc"}}})
	c := conversation(t, "ann")
	make := func(i int) history.Message {
		switch i % 4 {
		case 1:
			return calls("c", "look", fmt.Sprintf(`{"n":%d}`, i))
		case 2:
			return answers("c", "found")
		case 3:
			return calls(fmt.Sprint("o", i), "other", `{"a":"value"}`)
		}
		return said(history.User, fmt.Sprintf("question %d", i%50))
	}
	take := func(n int, key string) Imported {
		return b.load(c, Document{Mode: history.Extend, Source: &generated{n: n, make: make}, Key: key})
	}
	if first := take(22_000, ""); first.Added != 22_000 || first.Changed["redacted"] != 5500 {
		t.Errorf("first: %d added, changed %v", first.Added, first.Changed)
	}
	again := take(22_000, "k")
	if again.Added != 0 || again.SkippedTotal != 22_000 || len(again.Skipped) != MaxTold || again.Skipped[999].Index != 999 || again.Changed != nil {
		t.Errorf("again: %d added, %d skipped, %d told", again.Added, again.SkippedTotal, len(again.Skipped))
	}
	longer := take(26_000, "")
	if longer.Added != 4000 || longer.SkippedTotal != 22_000 || longer.Changed["redacted"] != 1000 || longer.LastSeq != 26_000 {
		t.Errorf("longer: %+v", longer.Receipt)
	}
	replayed := take(22_000, "k")
	if !replayed.Replayed || replayed.SkippedTotal != 22_000 || !slices.Equal(replayed.Skipped, again.Skipped) {
		t.Errorf("replayed: %+v, %d skipped", replayed.Receipt, replayed.SkippedTotal)
	}
	if n := b.counted("historyd_messages_total", "import"); n != 26_000 {
		t.Errorf("%v messages were counted", n)
	}
}

func TestManyRepairsAreCounted(t *testing.T) {
	b := newBench(t, projection.Options{})
	c := conversation(t, "ann")
	source := &generated{n: 3000, make: func(i int) history.Message {
		m := said(history.User, fmt.Sprint(i))
		m.ID = fmt.Sprint("id", i/2)
		return m
	}}
	doc := Document{Mode: history.Create, Repair: true, Source: source, Key: "k"}
	for range 2 {
		done := b.load(c, doc)
		if done.RepairedTotal != 1500 || len(done.Repaired) != MaxTold || done.Repaired[999].Path != "messages[1999]" || done.LastSeq != 1500 {
			t.Errorf("%d repaired, %d told, %+v", done.RepairedTotal, len(done.Repaired), done.Receipt)
		}
	}
	doc.Mode, doc.Key = history.Extend, ""
	if done := b.load(c, doc); done.SkippedTotal != 1500 || done.Skipped[1] != (Skipped{2, "id1"}) {
		t.Errorf("%d skipped, %v", done.SkippedTotal, done.Skipped[:2])
	}
}

func TestADocumentOfTooManyMessagesIsToBeSplit(t *testing.T) {
	p := newPipeline(t, sinkEngine{}, projection.Options{}, nil)
	if p.maxMessages != maxMessages {
		t.Errorf("the limit is %d", p.maxMessages)
	}
	p.maxMessages = 20_000
	hello := said(history.User, "hi")
	for n, want := range map[int]string{20_000: "<nil>", 20_005: "messages"} {
		_, err := p.Import(context.Background(), conversation(t, "ann"), Document{Mode: history.Create, Source: &generated{n: n, make: func(int) history.Message { return hello }}})
		if got := paths(err); got != want {
			t.Errorf("%d messages: faults at %s, want %s: %v", n, got, want, err)
		}
	}
}

// sinkEngine takes imports and keeps nothing.
type sinkEngine struct{ Engine }

func (sinkEngine) Log(identity.Scope, string) history.Log { return sinkLog{} }

type sinkLog struct{ history.Log }

func (sinkLog) Import(_ context.Context, imp history.Import) (r history.Receipt, err error) {
	for _, err := range imp.Messages {
		if err != nil {
			return r, err
		}
		r.Added++
	}
	for _, err := range imp.Attachments {
		if err != nil {
			return r, err
		}
	}
	imp.Fingerprint()
	r.Note, r.LastSeq = imp.Note(nil), r.Added
	return r, nil
}

// watcher watches how much memory is in use.
type watcher struct{ least, most uint64 }

func (w *watcher) look() {
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	if w.least == 0 {
		w.least = m.HeapAlloc
	}
	w.most = max(w.most, m.HeapAlloc)
}

func (w *watcher) grown() int64 { return int64(w.most) - int64(w.least) }

func long(n int, w *watcher) *generated {
	filler := strings.Repeat("long ", 100)
	return &generated{n: n, make: func(i int) history.Message {
		switch i % 4 {
		case 1:
			return calls("c", "look", fmt.Sprintf(`{"n":%d}`, i))
		case 2:
			return answers("c", "found "+filler)
		case 3:
			return said(history.Assistant, fmt.Sprint(i, filler))
		}
		return said(history.User, fmt.Sprint(i, filler))
	}, look: func(i int) {
		if i%(n/10) == 0 {
			w.look()
		}
	}}
}

// open is half of calls, half of their results, with ids and tools that are long.
func open(n int, w *watcher) *generated {
	id := func(i int) string { return fmt.Sprintf("call-%0100d", i) }
	return &generated{n: n, make: func(i int) history.Message {
		if i < n/2 {
			return calls(id(i), fmt.Sprintf("look-%0100d", i), `{}`)
		}
		return answers(id(i-n/2), "seen")
	}, look: func(i int) {
		if i%(n/10) == 0 {
			w.look()
		}
	}}
}

func TestTheMemoryOfAnImportIsThatOfItsHashes(t *testing.T) {
	for _, tt := range []struct {
		name string
		make func(n int, w *watcher) *generated
		n    int
		each int64 // bytes a message: 16 of its id, and as many twice of a call that waits
	}{
		{"turns", long, 200_000, 50}, {"more turns", long, 500_000, 50}, {"open calls", open, 200_000, 100},
	} {
		if (testing.Short() || growth.Raced) && tt.n > 200_000 {
			continue
		}
		p := newPipeline(t, sinkEngine{}, projection.Options{Tools: []projection.Rule{{Match: "look*", Category: "misc"}}}, nil)
		var w watcher
		done, err := p.Import(context.Background(), conversation(t, "ann"), Document{Mode: history.Create, Source: tt.make(tt.n, &w)})
		if err != nil || done.Added != int64(tt.n) {
			t.Fatalf("%s: %d added, %v", tt.name, done.Added, err)
		}
		t.Logf("%s: %d messages, %d MiB", tt.name, tt.n, w.grown()>>20)
		if limit := int64(tt.n)*tt.each + 20<<20; w.grown() > limit {
			t.Errorf("%s: %d messages took %d bytes, the limit is %d", tt.name, tt.n, w.grown(), limit)
		}
	}
}

func TestALongImportOnADiskTakesLittleMemory(t *testing.T) {
	n := 200_000
	if testing.Short() || growth.Raced {
		n = 20_000
	}
	dir := filepath.Join(t.TempDir(), "data")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	fsys, err := durable.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	id := 0
	s, err := store.Open(store.Options{FS: fsys, NewID: func(string) string { id++; return fmt.Sprintf("01%024d", id) }})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	p := newPipeline(t, s, projection.Options{Tools: []projection.Rule{{Match: "look", Category: "misc"}}}, nil)
	var w watcher
	start := time.Now()
	done, err := p.Import(context.Background(), conversation(t, "ann"), Document{Mode: history.Create, Source: long(n, &w)})
	if err != nil || done.Added != int64(n) {
		t.Fatalf("%d added, %v", done.Added, err)
	}
	t.Logf("%d messages in %s, %d MiB", n, time.Since(start).Round(time.Millisecond), w.grown()>>20)
	if limit := int64(n)*200 + 64<<20; w.grown() > limit {
		t.Errorf("%d messages took %d bytes, the limit is %d", n, w.grown(), limit)
	}
}

func TestADocumentThatCannotBeReadIsRefused(t *testing.T) {
	b, errBroken := newBench(t, projection.Options{}), errors.New("broken")
	if _, err := b.Import(context.Background(), conversation(t, "ann"), Document{Mode: history.Create, Source: &generated{end: errBroken}}); !errors.Is(err, errBroken) {
		t.Errorf("Import: %v, want the source's error", err)
	}
	if n := b.counted("historyd_imports_total", "refused"); n != 1 {
		t.Errorf("%v refused imports were counted, want 1", n)
	}
}
