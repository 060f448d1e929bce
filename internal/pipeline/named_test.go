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
