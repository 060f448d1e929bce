package store

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"
	"testing"

	"historyd/internal/durable"
	"historyd/internal/durable/crashfs"
	"historyd/internal/history"
	"historyd/internal/identity"
)

// surveyed is what a survey finds, by directory.
func surveyed(t testing.TB, fsys *crashfs.FS, window int64) map[string]Surveyed {
	t.Helper()
	found := map[string]Surveyed{}
	var last, total int64
	err := Survey(context.Background(), fsys, window, func(s *Surveyed) error {
		found[s.Dir] = *s
		return nil
	}, func(done, of int64) { last, total = done, of })
	if err != nil {
		t.Fatalf("Survey: %v", err)
	}
	if last != total || last < int64(len(found)) {
		t.Errorf("progress ends at %d of %d, with %d found", last, total, len(found))
	}
	return found
}

func TestSurveyFindsWhatTheStoreHas(t *testing.T) {
	t.Parallel()
	fsys := crashfs.New()
	s, err := Open(Options{FS: fsys, NewID: counterIDs(), SegmentBytes: 1500})
	if err != nil {
		t.Fatal(err)
	}
	for i, scope := range []identity.Scope{ann, bob, ann, ann} {
		l := s.Log(scope, fmt.Sprint("c", i))
		for n := range 3*i + 1 {
			attach(t, l, fmt.Sprint(n), []byte(fmt.Sprint("picture ", n%3)))
		}
	}
	if _, err := s.Log(ann, "c2").Rewind(t.Context(), history.Rewind{Through: 1}); err != nil {
		t.Fatal(err)
	}
	for _, window := range []int64{0, 1, 100, 16 << 10} {
		before := fsys.Files()
		found := surveyed(t, fsys, window)
		if len(found) != 4 {
			t.Fatalf("%d conversations are found", len(found))
		}
		for i, scope := range []identity.Scope{ann, bob, ann, ann} {
			name := fmt.Sprint("c", i)
			key := transcriptKey{scope, name}
			state, err := s.Log(scope, name).State(t.Context())
			w, werr := s.weigh(s.dirOf(key))
			if err != nil || werr != nil {
				t.Fatal(err, werr)
			}
			got := found[s.dirOf(key)]
			pictures := int64(min(3, 3*i+1))
			want := Surveyed{Dir: s.dirOf(key), Scope: scope, Name: name, LastID: state.LastID, LastAt: state.UpdatedAt, Messages: state.Messages,
				Segments: got.Segments, Bytes: w.bytes, Attachments: pictures, Attached: pictures * int64(len("picture 0"))}
			if got != want || got.Segments < 1 || i == 3 && got.Segments < 2 {
				t.Errorf("window %d, %s:\n got %+v\nwant %+v", window, name, got, want)
			}
		}
		if !maps.EqualFunc(before, fsys.Files(), bytes.Equal) {
			t.Error("a survey changes files")
		}
	}
	if n := fsys.OpenHandles(); s.Close() != nil || n == 0 || fsys.OpenHandles() != 0 {
		t.Errorf("%d files stay open", fsys.OpenHandles())
	}
}

// TestSurveyTellsDamageThatAnOpeningTells has each byte of a small record wrong in turn,
// and the record cut at each.
func TestSurveyTellsDamageThatAnOpeningTells(t *testing.T) {
	t.Parallel()
	b := newBook(t, 3)
	text := b.text("a")
	told := 0
	try := func(what string, bad []byte) {
		fsys := b.broken("a", bad)
		got := surveyed(t, fsys, 0)[path.Dir(b.files["a"])]
		s := mustOpen(t, fsys)
		defer func() { _ = s.Close() }()
		state, err := s.Log(ann, "a").State(t.Context())
		if err != nil && !errors.Is(err, history.ErrDamaged) {
			t.Fatalf("%s: %v", what, err)
		}
		if want := err != nil || state.Damage != nil; got.Damaged != want {
			t.Errorf("%s: damaged: %t, an opening says %t (%v, %+v)", what, got.Damaged, want, err, state.Damage)
		} else if want {
			told++
		}
		if !got.Damaged && len(bad) > 0 && state.Exists() && (got.LastID != state.LastID || got.Name != "a") {
			t.Errorf("%s: %+v, an opening says %+v", what, got, state)
		}
	}
	for at := range text {
		bad := slices.Clone(text)
		bad[at] ^= []byte{1, 0x80}[at%2]
		try(fmt.Sprint("another byte at ", at), bad)
		if at%3 == 0 {
			try(fmt.Sprint("cut at ", at), text[:at])
			try(fmt.Sprint("NULs from ", at), append(slices.Clone(text[:at]), make([]byte, len(text)-at)...))
		}
	}
	if told < len(text)/2 {
		t.Errorf("damage was told %d times, of %d bytes that were wrong", told, len(text))
	}
	try("of another caller", bobs(t))
}

// TestSurveyPassesOver looks at a directory in which things are half done.
func TestSurveyPassesOver(t *testing.T) {
	t.Parallel()
	fsys := newBook(t, 2).closed.Kill()
	top := transcriptsName + "/" + ann.Dir()
	for name, text := range map[string]string{
		top + "/.import-x/00000001.jsonl":                                               "being built",
		top + "/" + strings.Repeat("0", 64):                                             "",
		top + "/" + strings.Repeat("1", 64) + "/attachments":                            "",
		top + "/" + strings.Repeat("2", 64) + "/attachments/" + strings.Repeat("a", 64): "of an append that failed",
	} {
		dir := name
		if text != "" {
			dir = path.Dir(name)
		}
		if err := durable.MkdirAll(fsys, dir); err != nil {
			t.Fatal(err)
		}
		if text == "" {
			continue
		}
		f, err := fsys.Create(name)
		if err != nil {
			t.Fatal(err)
		}
		_, err = f.WriteAt([]byte(text), 0)
		if err := errors.Join(err, f.Close()); err != nil {
			t.Fatal(err)
		}
	}
	found := surveyed(t, fsys, 0)
	stray := found[top+"/"+strings.Repeat("2", 64)]
	if len(found) != 3 || stray.Segments != 0 || stray.Bytes != 24 || stray.Attachments != 1 || stray.Damaged {
		t.Errorf("found are %d conversations, and %+v", len(found), stray)
	}
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	if err := Survey(cancelled, fsys, 0, func(*Surveyed) error { return nil }, nil); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
	stop := errors.New("stop")
	if err := Survey(t.Context(), fsys, 0, func(*Surveyed) error { return stop }, nil); !errors.Is(err, stop) {
		t.Errorf("stopped: %v", err)
	}
	if err := Survey(t.Context(), crashfs.New(), 0, func(*Surveyed) error { return stop }, nil); err != nil {
		t.Errorf("nothing there: %v", err)
	}
}
