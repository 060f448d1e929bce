package pipeline

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"iter"
	"strings"
	"testing"

	"historyd/internal/history"
	"historyd/internal/projection"
	"historyd/internal/wire"
)

// manyNames is the beginning of an archive whose document names so many attachments, each
// of a type of its own as long as one may be.
func manyNames(n int) io.Reader {
	head, tail := `{"version":1,"type":"historyd.history","messages":[`, `]}`
	element := func(i int) string {
		sum := sha256.Sum256([]byte(fmt.Sprint(i)))
		return fmt.Sprintf(`{"role":"user","content":[{"type":"image","media_type":"image/%s%07d","attachment":"sha256:%x"}]}`, strings.Repeat("x", 1000), i, sum)
	}
	var b bytes.Buffer
	size := int64(len(head)+len(tail)) + int64(n)*int64(len(element(0))+1) - 1
	_ = tar.NewWriter(&b).WriteHeader(&tar.Header{Name: "history.json", Size: size, Mode: 0o600})
	b.WriteString(head)
	parts := []io.Reader{&b}
	for from := 0; from < n; from += 1000 {
		parts = append(parts, &made{func() string {
			var s strings.Builder
			for i := from; i < min(from+1000, n); i++ {
				s.WriteString(element(i))
				if i < n-1 {
					s.WriteByte(',')
				}
			}
			return s.String()
		}, nil})
	}
	pad := (512 - size%512) % 512
	return io.MultiReader(append(parts, strings.NewReader(tail), bytes.NewReader(make([]byte, pad+1024)))...)
}

// made is a text that is made when it is read.
type made struct {
	make func() string
	rest *strings.Reader
}

func (m *made) Read(p []byte) (int, error) {
	if m.rest == nil {
		m.rest = strings.NewReader(m.make())
	}
	return m.rest.Read(p)
}

// The names of attachments that come behind the messages take some bytes each, however
// long their types are, and only so many are held.
func TestNamesOfAttachmentsTakeLittleMemory(t *testing.T) {
	p := newPipeline(t, sinkEngine{}, projection.Options{}, nil)
	var w watcher
	w.look()
	r, err := wire.NewReader(wire.Tar, false, manyNames(maxNamed+10), 0)
	if err != nil {
		t.Fatal(err)
	}
	_, err = p.Import(context.Background(), conversation(t, "ann"), Document{Mode: history.Create, Source: looking{r, &w}})
	var faults *history.Faults
	if !errors.As(err, &faults) || faults.List[0].Path != "messages" || len(faults.List)+faults.More != maxNamed+1 {
		t.Errorf("%d names: %v, want that it is one too many", maxNamed+10, err)
	}
	if grown := w.grown() >> 20; grown > 40 {
		t.Errorf("%d names take %d MiB", maxNamed, grown)
	}
}

// looking looks at the memory when all messages have been taken.
type looking struct {
	Source
	w *watcher
}

func (l looking) Attachments() iter.Seq2[history.Attachment, error] {
	l.w.look()
	return l.Source.Attachments()
}

// What cannot be had of an import is mended when that is asked for, and told.
func TestMissingAttachmentsAreMended(t *testing.T) {
	b := newBench(t, projection.Options{})
	c, ctx := conversation(t, "ann"), context.Background()
	here, missing, broken := []byte("here"), []byte("missing"), []byte("broken")
	b.record(c, Turn{Messages: []history.Message{with(said(history.User, "first"), image(broken))}})
	b.corrupt(broken)
	doc := func() *listed {
		old := b.stored(c)[0]
		mine := with(said(history.User, "then"), named(missing), named(here), image([]byte("inline")))
		mine.ID = "mine"
		l := list(old, mine, with(said(history.User, "again"), named(broken), named(missing)))
		l.attachments = []history.Attachment{{Name: history.AttachmentName(here), Data: here}}
		return l
	}
	_, err := b.Import(ctx, c, Document{Mode: history.Extend, Source: doc()})
	if got, want := paths(err), "messages[1].content[1].attachment messages[2].content[1].attachment"; got != want {
		t.Errorf("faults at %s, want %s: %v", got, want, err)
	}
	done := b.load(c, Document{Mode: history.Extend, Source: doc(), Repair: true, Key: "k"})
	if done.Added != 2 || done.SkippedTotal != 1 || done.RepairedTotal != 2 {
		t.Fatalf("the import tells %+v", done)
	}
	for i, path := range []string{"messages[1].content[1].attachment", "messages[2].content[1].attachment"} {
		if r := done.Repaired[i]; r.Path != path || r.Code != "missing_attachment" || r.Detail == "" {
			t.Errorf("repaired: %+v, want %s", r, path)
		}
	}
	if again := b.load(c, Document{Mode: history.Extend, Source: doc(), Repair: true, Key: "k"}); !again.Replayed || again.RepairedTotal != 2 || len(again.Repaired) != 2 {
		t.Errorf("sent again it tells %+v", again)
	}
	if twice := b.load(c, Document{Mode: history.Extend, Source: doc(), Repair: true}); twice.Added != 0 || twice.RepairedTotal != 0 {
		t.Errorf("imported twice it tells %+v", twice)
	}
	if _, err := b.Import(ctx, c, Document{Mode: history.Extend, Source: doc()}); err != nil {
		t.Errorf("what is there already is refused: %v", err)
	}
	got := b.stored(c)
	for i, want := range []string{"text image", "text text image image", "text text text"} {
		var types []string
		for _, block := range got[i].Content {
			types = append(types, string(block.Type))
		}
		if strings.Join(types, " ") != want {
			t.Errorf("message %d holds %s, want %s", i, types, want)
		}
	}
	if block := got[1].Content[1]; block.Text != "[image: its bytes are missing]" || !block.Synthetic {
		t.Errorf("in its place stands %+v", block)
	}
	// An export of it can be taken anywhere.
	out, _ := b.dump(c)
	other := conversation(t, "bob")
	out[0].Content = out[0].Content[:1]
	more := list(out...)
	more.attachments = []history.Attachment{{Name: history.AttachmentName(here), Data: here}, {Name: history.AttachmentName([]byte("inline")), Data: []byte("inline")}}
	if done := b.load(other, Document{Mode: history.Create, Source: more}); done.RepairedTotal != 0 || b.stored(other)[1].Content[1].Text != got[1].Content[1].Text || !b.stored(other)[1].Content[1].Synthetic {
		t.Errorf("elsewhere it is %+v: %+v", done, b.stored(other)[1].Content[1])
	}
}
