package pipeline

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"historyd/internal/durable/crashfs"
	"historyd/internal/history"
	"historyd/internal/identity"
	"historyd/internal/projection"
)

// told notes what the index is told.
type told struct {
	nothing
	words []string
}

func (t *told) Touch(_ identity.Scope, name string) { t.words = append(t.words, "touch "+name) }
func (t *told) Doubt(_ identity.Scope, name string) { t.words = append(t.words, "doubt "+name) }

// Whatever becomes of a write, the index is told of what may be in the record.
func TestTheIndexIsToldOfWritesThatMayHaveBeenMade(t *testing.T) {
	for _, tt := range []struct {
		err  error
		want string
	}{
		{nil, "touch default"}, {context.Canceled, "doubt default"}, {context.DeadlineExceeded, "doubt default"},
		{history.ErrUnavailable, "doubt default"}, {history.ErrFull, "doubt default"}, {history.ErrPrecondition, ""}, {history.ErrClosed, ""},
	} {
		b := newBench(t, projection.Options{})
		c, index := conversation(t, "ann"), &told{}
		b.index = index
		b.engine = moving{b.engine, func(identity.Scope, string, history.Batch) error { return tt.err }}
		_, err := b.Record(t.Context(), c, Turn{Messages: []history.Message{said(history.User, "q")}})
		if got := strings.Join(index.words, " "); !errors.Is(err, tt.err) || got != tt.want {
			t.Errorf("%v: the index is told %q, want %q", tt.err, got, tt.want)
		}
	}
	b := newBench(t, projection.Options{})
	c, index := conversation(t, "ann"), &told{}
	b.index = index
	turn := Turn{Key: "k", Messages: []history.Message{said(history.User, "q")}}
	b.record(c, turn)
	b.record(c, turn) // a replay adds nothing
	_, err := b.Import(t.Context(), c, Document{Mode: history.Extend, Source: list(said(history.User, "r"))})
	if err == nil {
		_, err = b.Fork(t.Context(), c, Conversation{c.Scope, "y"}, 0)
	}
	if err == nil {
		_, err = b.Rewind(t.Context(), c, 1, nil)
	}
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, _ = b.Fork(ctx, c, Conversation{c.Scope, "z"}, 0)
	_, _ = b.Import(ctx, c, Document{Mode: history.Extend, Source: list(said(history.User, "s"))})
	want := "touch default touch default touch y touch default doubt z doubt default"
	if got := strings.Join(index.words, " "); got != want {
		t.Errorf("the index is told %q, want %q", got, want)
	}
}

// An append is done when its line is on the disk: an index that can't be written makes no failure of it, and what a client sends
// again with its key is there once.
func TestAnAppendIsDoneThoughItsIndexFails(t *testing.T) {
	l := openLibrary(t, crashfs.New())
	var failed atomic.Int64
	l.disk.FailWhen(func(op crashfs.Op) error {
		if strings.HasPrefix(op.Name, "index") {
			failed.Add(1)
			return syscall.EIO
		}
		return nil
	})
	turn := Turn{Key: "k", Messages: []history.Message{said(history.User, "the lighthouse")}}
	for i, want := range []bool{false, true, true} {
		done, err := l.Record(t.Context(), l.keep, turn)
		if err != nil || done.Replayed != want || done.FirstSeq != 1 || done.LastSeq != 1 {
			t.Errorf("time %d: %+v, %v", i+1, done, err)
		}
		_, _ = l.Search(t.Context(), l.keep.Scope, Query{Text: "lighthouse"}) // has the index tried
	}
	l.close()
	if failed.Load() == 0 {
		t.Error("the index was not tried")
	}
	l = openLibrary(t, l.disk.Kill())
	if n := l.finds("lighthouse"); n != 1 {
		t.Errorf("it is found %d times", n)
	}
	l.close()
}
