package pipeline

import (
	"context"
	"errors"
	"testing"

	"historyd/internal/history"
	"historyd/internal/projection"
)

func TestAScanTellsAllBeforeAnythingIsWritten(t *testing.T) {
	b := newBench(t, projection.Options{UnknownTools: "keep"})
	ann, ctx := conversation(t, "ann"), context.Background()
	bare := named([]byte("one"))
	bare.MediaType = ""
	result := shows("c", image([]byte("inner")), image([]byte("inner")))
	b.record(ann, Turn{Messages: []history.Message{with(said(history.User, "a"), image([]byte("one")))}})
	b.record(ann, Turn{Messages: []history.Message{with(said(history.User, "b"), bare, image([]byte("lost")))}})
	b.record(ann, Turn{Messages: []history.Message{calls("c", "tx", "{}"), result}, Categories: map[string]string{"tx": "misc"}})
	b.corrupt([]byte("lost"))
	e, err := b.Export(ctx, ann)
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	if e.Categories() != nil || e.Attachments() != nil {
		t.Errorf("told before the scan: %v, %v", e.Categories(), e.Attachments())
	}
	for range 2 {
		if err := e.Scan(ctx); err != nil {
			t.Fatal(err)
		}
		want := []Attached{
			{history.AttachmentName([]byte("one")), "image/png"},
			{history.AttachmentName([]byte("lost")), "image/png"},
			{history.AttachmentName([]byte("inner")), "image/png"},
		}
		got := e.Attachments()
		if len(got) != len(want) {
			t.Fatalf("%d attachments, want %d", len(got), len(want))
		}
		for i := range want {
			if *got[i] != want[i] {
				t.Errorf("attachment %d is %+v, want %+v", i, *got[i], want[i])
			}
		}
	}
	if got := e.Categories(); len(got) != 1 || got["tx"] != "misc" {
		t.Errorf("Categories = %v", got)
	}
	n := 0
	for _, err := range e.Records(ctx) {
		if err != nil {
			t.Fatal(err)
		}
		n++
	}
	if n != 4 {
		t.Errorf("%d records", n)
	}
	if a, err := e.Attachment(ctx, history.AttachmentName([]byte("inner"))); err != nil || string(a.Data) != "inner" {
		t.Errorf("Attachment = %q, %v", a.Data, err)
	}
	if _, err := e.Attachment(ctx, history.AttachmentName([]byte("none"))); !errors.Is(err, history.ErrNotFound) {
		t.Errorf("no such attachment: %v", err)
	}
	ended, cancel := context.WithCancel(ctx)
	cancel()
	if err := e.Scan(ended); !errors.Is(err, context.Canceled) {
		t.Errorf("nobody waits: %v", err)
	}
}

func TestAnAttachmentIsReadOfItsConversationAlone(t *testing.T) {
	b := newBench(t, projection.Options{})
	ann, bob, ctx := conversation(t, "ann"), conversation(t, "bob"), context.Background()
	b.record(ann, Turn{Messages: []history.Message{with(said(history.User, "a"), image([]byte("one")))}})
	b.record(bob, Turn{Messages: []history.Message{said(history.User, "b")}})
	name := history.AttachmentName([]byte("one"))
	if a, err := b.Attachment(ctx, ann, name); err != nil || string(a.Data) != "one" || a.MediaType != "image/png" {
		t.Errorf("Attachment = %+v, %v", a, err)
	}
	for _, c := range []Conversation{bob, conversation(t, "cy"), {ann.Scope, "other"}} {
		if _, err := b.Attachment(ctx, c, name); !errors.Is(err, history.ErrNotFound) {
			t.Errorf("%v: %v", c, err)
		}
		if _, err := b.Record(ctx, c, Turn{Messages: []history.Message{with(said(history.User, "a"), named([]byte("one")))}}); !errors.Is(err, history.ErrNoAttachment) {
			t.Errorf("%v: an append that names it: %v", c, err)
		}
	}
	if n := b.counted("historyd_appends_total", "refused"); n != 3 {
		t.Errorf("%v refused appends were counted", n)
	}
}
