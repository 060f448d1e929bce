package store

import (
	"bytes"
	"context"
	"errors"
	"io"
	"testing"

	"historyd/internal/durable/crashfs"
	"historyd/internal/identity"
)

// segmentContent is a segment as it is written: a header and three commits.
func segmentContent(tb testing.TB) []byte {
	tb.Helper()
	fsys := crashfs.New()
	s := mustOpen(tb, fsys)
	scope := scopeOf(tb, identity.Operator, "ann", "")
	for _, text := range []string{"one", `{"size":1,"seq":2}`, "three\n"} {
		if _, err := s.Log(scope, "c").Append(context.Background(), batch(text)); err != nil {
			tb.Fatal(err)
		}
	}
	return fsys.Files()[s.dirOf(transcriptKey{scope, "c"})+"/"+segmentName(1)]
}

// FuzzScan holds that the scanner takes any bytes apart without losing one, that a
// good prefix is read as it was written, and that no good frame is judged torn.
func FuzzScan(f *testing.F) {
	content := segmentContent(f)
	f.Add(content, 0)
	f.Add([]byte("\x00\x00\n{\"size\":5,"), 1)
	f.Add(append([]byte("garbage"), content...), 2)
	f.Add(bytes.ReplaceAll(content, []byte("\n"), []byte(" ")), 3)
	f.Fuzz(func(t *testing.T, tail []byte, lines int) {
		whole := bytes.SplitAfter(content, []byte("\n"))
		whole = whole[:len(whole)-1]
		prefix := bytes.Join(whole[:min(max(lines, 0), len(whole))], nil)
		all := append(bytes.Clone(prefix), tail...)
		s := newScanner(func(p []byte, off int64) (int, error) { return copy(p, all[off:]), nil }, 0, int64(len(all)))
		s.chunk = 16
		at, good := int64(0), 0
		for {
			it, err := s.next()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
			if it.off != at || !bytes.Equal(it.raw, all[it.off:it.off+int64(len(it.raw))]) {
				t.Fatalf("an item at %d, want at %d", it.off, at)
			}
			at = it.end()
			if it.good && at <= int64(len(prefix)) {
				good++
			}
			if it.good && torn(it.raw) {
				t.Fatal("a whole frame is taken for a torn one")
			}
		}
		if at != int64(len(all)) {
			t.Fatalf("%d of %d bytes were taken apart", at, len(all))
		}
		if want := bytes.Count(prefix, []byte("\n")); good != want {
			t.Fatalf("%d good lines in a prefix of %d", good, want)
		}
	})
}
