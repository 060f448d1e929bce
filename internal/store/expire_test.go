package store

import (
	"errors"
	"strings"
	"testing"

	"historyd/internal/durable/crashfs"
	"historyd/internal/history"
)

// stateOf is what is known of a conversation.
func stateOf(t testing.TB, l history.Log) history.State {
	t.Helper()
	s, err := l.State(t.Context())
	if err != nil {
		t.Fatalf("State: %v", err)
	}
	return s
}

func TestExpiredIsCleared(t *testing.T) {
	t.Parallel()
	fsys := newBook(t, 2).closed.Kill()
	s := openWith(t, fsys, Quota{Bytes: 1 << 20})
	l := s.Log(ann, "a")
	attach(t, l, "more", []byte("a picture that nobody shall see"))
	state, writes, called := stateOf(t, l), s.Writes(), 0
	gone, err := s.Expire(t.Context(), ann, "a", state.LastID, func() error {
		called++
		return nil
	})
	if !gone || err != nil || called != 1 {
		t.Fatalf("gone: %t, %v, before was called %d times", gone, err, called)
	}
	if stateOf(t, l).Exists() || s.Writes() != writes {
		t.Errorf("it is still there, or its going is a write: %+v, %d and %d", stateOf(t, l), s.Writes(), writes)
	}
	for name, text := range fsys.Files() {
		if strings.Contains(name, s.dirOf(transcriptKey{ann, "a"})) || strings.Contains(string(text), "nobody shall see") {
			t.Errorf("%s is left", name)
		}
	}
	exact(t, "expired", s, fsys, ann)
	if page, err := s.List(t.Context(), ann, "", 10); err != nil || len(page.Items) != 1 || page.Items[0].Name != "b" {
		t.Errorf("listed are %+v, %v", page.Items, err)
	}
	if _, err := l.Append(t.Context(), batch("anew")); err != nil || s.Writes() == writes {
		t.Errorf("an append after it: %v, %d writes", err, s.Writes())
	}
	if now := stateOf(t, l); now.LastSeq != 1 || now.Epoch == state.Epoch {
		t.Errorf("the next life is %+v", now)
	}
	_ = s.Close()
	mustCheck(t, fsys)
}

func TestExpireLeavesAlone(t *testing.T) {
	t.Parallel()
	b := newBook(t, 2)
	refused := errors.New("refused")
	damaged := b.text("a")
	damaged[lastLine(damaged)+20] ^= 1
	for _, tt := range []struct {
		name   string
		fsys   *crashfs.FS
		with   func(t *testing.T, l history.Log) func()
		newest string
		before error
	}{
		{name: "one that was written to since", fsys: b.closed.Kill(), newest: "00000000000000000000000001"},
		{name: "one that was never there", fsys: crashfs.New(), newest: ""},
		{name: "one that is being read", fsys: b.closed.Kill(), with: func(t *testing.T, l history.Log) func() {
			v, err := l.View(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			return v.Close
		}},
		{name: "one whose end is damaged", fsys: b.broken("a", damaged)},
		{name: "one of which nothing can be read", fsys: b.broken("a", []byte("nothing\n"))},
		{name: "one that before keeps", fsys: b.closed.Kill(), before: refused},
	} {
		s := mustOpen(t, tt.fsys)
		l := s.Log(ann, "a")
		done := func() {}
		if tt.with != nil {
			done = tt.with(t, l)
		}
		if state, err := l.State(t.Context()); tt.newest == "" && err == nil {
			tt.newest = state.LastID
		}
		before, called := len(tt.fsys.Files()), false
		gone, err := s.Expire(t.Context(), ann, "a", tt.newest, func() error {
			called = true
			return tt.before
		})
		if called != (tt.before != nil) {
			t.Errorf("%s: before is called: %t", tt.name, called)
		}
		if gone || !errors.Is(err, tt.before) || len(tt.fsys.Files()) != before {
			t.Errorf("%s: gone: %t, %v, %d files, there were %d", tt.name, gone, err, len(tt.fsys.Files()), before)
		}
		done()
		_ = s.Close()
	}
}

// TestExpireYieldsToAnAppend has an append come while one is about to go.
func TestExpireYieldsToAnAppend(t *testing.T) {
	t.Parallel()
	fsys := newBook(t, 2).closed.Kill()
	s := mustOpen(t, fsys)
	l := s.Log(ann, "a")
	state, appended := stateOf(t, l), make(chan error, 1)
	gone, err := s.Expire(t.Context(), ann, "a", state.LastID, func() error {
		go func() {
			_, err := l.Append(t.Context(), batch("in time"))
			appended <- err
		}()
		for waiting := false; !waiting; { // until it has the transcript
			s.mu.Lock()
			waiting = s.open[transcriptKey{ann, "a"}].t.refs == 2
			s.mu.Unlock()
		}
		return nil
	})
	if gone || err != nil {
		t.Errorf("gone: %t, %v", gone, err)
	}
	if err := <-appended; err != nil {
		t.Fatal(err)
	}
	if now := stateOf(t, l); now.Epoch != state.Epoch || now.LastSeq != 3 {
		t.Errorf("after it the conversation is %+v", now)
	}
}

// TestExpireIsNotUndoneByALateAppend has an append come while one goes.
func TestExpireIsNotUndoneByALateAppend(t *testing.T) {
	t.Parallel()
	fsys := newBook(t, 2).closed.Kill()
	s := mustOpen(t, fsys)
	l := s.Log(ann, "a")
	state, appended := stateOf(t, l), make(chan error, 1)
	fsys.FailWhen(func(op crashfs.Op) error {
		if op.Kind == "Rename" && strings.HasPrefix(op.To, trashName) {
			go func() {
				_, err := l.Append(t.Context(), batch("late"))
				appended <- err
			}()
			for waiting := false; !waiting; { // until it waits for the place
				s.mu.Lock()
				waiting = s.open[transcriptKey{ann, "a"}].t.refs == 2
				s.mu.Unlock()
			}
		}
		return nil
	})
	if gone, err := s.Expire(t.Context(), ann, "a", state.LastID, nil); !gone || err != nil {
		t.Errorf("gone: %t, %v", gone, err)
	}
	if err := <-appended; err != nil {
		t.Fatal(err)
	}
	if now := stateOf(t, l); now.Epoch == state.Epoch || now.LastSeq != 1 {
		t.Errorf("the late append has brought back %+v", now)
	}
	_ = s.Close()
	fsys = fsys.Crash(rng(1))
	s = mustOpen(t, fsys)
	if got := texts(t, s.Log(ann, "a")); len(got) != 1 || got[0] != "1:late" {
		t.Errorf("after a power cut there is %q", got)
	}
	_ = s.Close()
	mustCheck(t, fsys)
}

// expires clears a conversation of which nobody has heard since it was looked at.
func expires(conversation string) step {
	return step{conversation, false, func(w *world, l history.Log) error {
		state, err := l.State(w.t.Context())
		if err != nil || !state.Exists() {
			return err
		}
		gone, err := l.(*log).store.Expire(w.t.Context(), ann, conversation, state.LastID, nil)
		if gone {
			w.did(conversation, err, func(string) string { return "" })
		}
		return err
	}}
}
