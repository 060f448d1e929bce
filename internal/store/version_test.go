package store

import (
	"bytes"
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"

	"historyd/internal/history"
)

// What a directory of another version means nobody here knows: nothing in it is read, and nothing is changed.
func TestADirectoryOfAnotherVersionIsLeftAlone(t *testing.T) {
	b := newBook(t, 2)
	for _, text := range []string{"historyd 2\n", "historyd 0\n", "historyd 11\n", "historyd 1", ""} {
		fsys := b.closed.Kill()
		fsys.Corrupt(formatName, func([]byte) []byte { return []byte(text) })
		before := fsys.Files()
		s, err := Open(Options{FS: fsys, NewID: counterIDs()})
		if err == nil {
			_ = s.Close()
		}
		if err == nil || !strings.Contains(err.Error(), `must say "historyd 1"`) || !maps.EqualFunc(fsys.Files(), before, bytes.Equal) {
			t.Errorf("%q: opened with %v", text, err)
		}
	}
}

// inVersion is a segment as another version would have it: its header says so, and all checksums are good.
func inVersion(t *testing.T, text []byte, version int) []byte {
	t.Helper()
	var out []byte
	var sum uint32
	for line := range bytes.Lines(text) {
		c, err := parseCommit(bytes.TrimSuffix(line, []byte("\n")))
		if err != nil {
			t.Fatal(err)
		}
		if c.Header != nil {
			c.Header.Version = version
		}
		if len(out) > 0 {
			c.Prev = checksum(sum)
		}
		c.Messages = bytes.Trim(c.Messages, "[]") // payload writes the brackets
		out, sum = appendFrame(out, c.payload(nil))
	}
	return out
}

// A segment of another version is not read as one of this: no line of it is served, and no append is made to it.
func TestASegmentOfAnotherVersionIsNotGuessedAt(t *testing.T) {
	for _, batches := range []int{1, 3} {
		b := newBook(t, batches)
		fsys := b.broken("a", inVersion(t, b.text("a"), 1))
		mustCheck(t, fsys) // the making over is sound by itself
		fsys = b.broken("a", inVersion(t, b.text("a"), 2))
		if found, _ := check(t, fsys); len(found) == 0 {
			t.Errorf("%d batches: check finds nothing", batches)
		}
		s := mustOpen(t, fsys)
		l := s.Log(ann, "a")
		before := fsys.Files()[b.files["a"]]
		_, err := l.State(t.Context())
		_, err2 := l.View(t.Context())
		_, err3 := l.Append(t.Context(), batch("more"))
		for i, err := range []error{err, err2, err3} {
			if !errors.Is(err, history.ErrDamaged) {
				t.Errorf("%d batches: error %d is %v", batches, i, err)
			}
		}
		if !bytes.Equal(fsys.Files()[b.files["a"]], before) {
			t.Errorf("%d batches: the segment was changed", batches)
		}
		wantContent(t, "another conversation", s.Log(ann, "b"), b.want["b"])
		if err := l.Clear(t.Context()); err != nil {
			t.Errorf("%d batches: it can't be cleared: %v", batches, err)
		}
		if _, err := l.Append(t.Context(), batch("anew")); err != nil || !slices.Equal(texts(t, l), []string{"1:anew"}) {
			t.Errorf("%d batches: after a clear: %v", batches, err)
		}
		_ = s.Close()
	}
}
