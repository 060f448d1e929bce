package pipeline

import (
	"bytes"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"historyd/internal/durable/crashfs"
	"historyd/internal/history"
	"historyd/internal/projection"
	"historyd/test/growth"
)

// An append costs what it costs, however long its conversation is: operations of the disk and bytes,
// folds included, which do not depend on the machine.
func TestAppendsTakeNoMoreOfTheDiskInALongConversation(t *testing.T) {
	b := newBench(t, projection.Options{})
	c := conversation(t, "ann")
	var ops, written atomic.Int64
	b.disk.FailWhen(func(op crashfs.Op) error {
		ops.Add(1)
		written.Add(int64(len(op.Data)))
		return nil
	})
	n := 0
	cost := func(turns int) (int64, int64) {
		o, w := ops.Load(), written.Load()
		for range turns {
			n++
			text := fmt.Sprintf("%05d %s", n, strings.Repeat("what is said ", 10))
			b.record(c, Turn{Messages: []history.Message{said(history.User, text), said(history.Assistant, text)}})
		}
		return ops.Load() - o, written.Load() - w
	}
	cost(1500) // until the digest has its full length
	o1, w1 := cost(200)
	cost(3000)
	o2, w2 := cost(200)
	if o2 > o1+o1/10 || w2 > w1+w1/10 {
		t.Errorf("200 turns behind 1500: %d operations and %d bytes written; behind 4700: %d and %d", o1, w1, o2, w2)
	}
}

// What is kept with a commit may be as large as the commit, and is read once, not once for each of its messages.
func TestAnExportReadsANoteOnce(t *testing.T) {
	if growth.Raced {
		t.Skip("SKIPPED: the race detector reads all of a note whenever it is handed on")
	}
	b := newBench(t, projection.Options{})
	read := func(name string, results int) time.Duration {
		c := conversation(t, "ann")
		c.Name = name
		turn := Turn{Messages: []history.Message{said(history.User, "a")}}
		for range results { // each is withheld, which the note tells
			turn.Messages = append(turn.Messages, shows("c", history.Text("a secret")))
		}
		b.record(c, turn)
		e, err := b.Export(t.Context(), c)
		if err != nil {
			t.Fatal(err)
		}
		defer e.Close()
		pass := func() {
			n := 0
			for _, err := range e.Records(t.Context()) {
				if err != nil {
					t.Fatal(err)
				}
				n++
			}
			if n != results+1 {
				t.Fatalf("%d records", n)
			}
		}
		pass() // it has scanned it by then
		return growth.Work(t, 4, pass)
	}
	const times = 16
	few, many := read("few", 1000), read("many", times*1000)
	if ratio := float64(many) / float64(few); ratio > 4*times {
		t.Errorf("an export of %d times as many messages takes %.0f times as long", times, ratio)
	}
}

// A fold writes a summary, and nothing again of what it covers: an image is on the disk once, however often the chat around it is folded.
func TestFoldsWriteNothingAgain(t *testing.T) {
	b := newBench(t, projection.Options{})
	c := conversation(t, "ann")
	pixels := bytes.Repeat([]byte("\x89PNG pixels"), 90_000)
	var total atomic.Int64
	b.disk.FailWhen(func(op crashfs.Op) error {
		total.Add(int64(len(op.Data)))
		return nil
	})
	look := said(history.User, "look")
	look.Content = append(look.Content, image(pixels))
	b.record(c, Turn{Messages: []history.Message{look, said(history.Assistant, "a picture")}})
	first := total.Load()
	if n := int64(len(pixels)); first < n || first > n+n/10 {
		t.Fatalf("%d bytes are written for an image of %d", first, n)
	}
	folds, last, texts := 0, int64(0), int64(0)
	for i := range 120 {
		text := fmt.Sprintf("%d %s", i, strings.Repeat("what is said ", 10))
		texts += int64(2 * len(text))
		b.record(c, Turn{Messages: []history.Message{said(history.User, text), said(history.Assistant, text)}})
		if s := b.replay(c, Ask{}).Summary; s != nil && s.ThroughSeq != last {
			folds, last = folds+1, s.ThroughSeq
		}
	}
	const summary, line = 9000, 1024 // what a fold and what stands around a turn take at most
	written := total.Load()
	if most := int64(folds)*summary + 120*line + 2*texts; folds < 20 || written-first > most {
		t.Errorf("%d folds, and %d bytes are written for %d of texts, want %d at most", folds, written-first, texts, most)
	}
	held := int64(0)
	for _, content := range b.disk.Files() {
		held += int64(len(content))
	}
	if most := written + 4096; held > most {
		t.Errorf("%d bytes are on the disk, want %d at most", held, most)
	}
}
