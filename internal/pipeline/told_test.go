package pipeline

import (
	"context"
	"errors"
	"strings"
	"testing"

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
