package store

import (
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"historyd/internal/durable/crashfs"
	"historyd/internal/history"
)

// many makes a store with n conversations of one message.
func many(t *testing.T, n, openFiles int) (*crashfs.FS, *Store) {
	t.Helper()
	fsys := crashfs.New()
	s, err := Open(Options{FS: fsys, NewID: safeIDs(), OpenFiles: openFiles})
	if err != nil {
		t.Fatal(err)
	}
	for i := range n {
		if _, err := s.Log(ann, fmt.Sprint("c", i)).Append(t.Context(), batch("text")); err != nil {
			t.Fatal(err)
		}
		if open := fsys.OpenHandles(); open > 3*openFiles+10 {
			t.Fatalf("%d files are open after %d conversations, %d may be idle", open, i+1, openFiles)
		}
	}
	return fsys, s
}

func TestOpenFilesDoNotGrowWithConversations(t *testing.T) {
	t.Parallel()
	const n, openFiles = 10_000, 512
	fsys, s := many(t, n, openFiles)
	if open := fsys.OpenHandles(); open > openFiles+10 {
		t.Errorf("%d files are open, %d conversations may be idle", open, openFiles)
	}
	s.reading.Wait() // what loads a conversation lets go of it a moment later
	if open := int(s.countOpen()); open > openFiles {
		t.Errorf("%d conversations are held open", open)
	}
	for i := range n {
		state, err := s.Log(ann, fmt.Sprint("c", i)).State(t.Context())
		if err != nil || state.LastSeq != 1 {
			t.Fatalf("conversation %d: %+v, %v", i, state, err)
		}
	}
	if open := fsys.OpenHandles(); open > openFiles+10 {
		t.Errorf("%d files are open after reading, %d conversations may be idle", open, openFiles)
	}
	for i := range n {
		if _, err := s.Log(ann, fmt.Sprint("new", i)).State(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	s.reading.Wait()
	if open := int(s.countOpen()); open > openFiles {
		t.Errorf("%d conversations are held open after asking for what is not there", open)
	}
	if err := s.Close(); err != nil || fsys.OpenHandles() != 0 {
		t.Errorf("Close: %v, %d files stay open", err, fsys.OpenHandles())
	}
	wantStartOf(t, fsys.Kill(), 40)
}

// wantStartOf counts the operations of a start.
func wantStartOf(t *testing.T, fsys *crashfs.FS, most int) {
	t.Helper()
	read := 0
	fsys.FailWhen(func(op crashfs.Op) error {
		if strings.HasPrefix(op.Name, transcriptsName+"/") {
			read++
		}
		return nil
	})
	s, err := Open(Options{FS: fsys, NewID: safeIDs()})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if n := fsys.Ops(); n > most || read > 0 {
		t.Errorf("the start took %d operations, %d of them below %s", n, read, transcriptsName)
	}
}

func TestASegmentIsOpenedOnlyWhenItIsRead(t *testing.T) {
	t.Parallel()
	fsys := crashfs.New()
	s, err := Open(Options{FS: fsys, NewID: safeIDs(), SegmentBytes: 1, OpenFiles: 2})
	if err != nil {
		t.Fatal(err)
	}
	l := s.Log(ann, "a")
	for i := range 100 {
		if _, err := l.Append(t.Context(), batch(fmt.Sprint("m", i))); err != nil {
			t.Fatal(err)
		}
	}
	texts(t, l)
	if open := fsys.OpenHandles(); open > extraHandles+2 {
		t.Errorf("%d files are open of a conversation of 100 segments", open)
	}
	_ = s.Close()
}

// TestAConversationThatHangsHoldsUpNobodyElse blocks one conversation wherever it can be blocked.
func TestAConversationThatHangsHoldsUpNobodyElse(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"Open", "ReadAt", "Size", "WriteAt", "Sync", "ReadDir", "DropCache"} {
		fsys := crashfs.New()
		s, err := Open(Options{FS: fsys, NewID: safeIDs(), OpenFiles: 1})
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{"stuck", "fine"} {
			if _, err := s.Log(ann, name).Append(t.Context(), batch("text")); err != nil {
				t.Fatal(err)
			}
		}
		_ = s.Close()
		if s, err = Open(Options{FS: fsys, NewID: safeIDs(), OpenFiles: 1}); err != nil {
			t.Fatal(err)
		}
		stuck := s.dirOf(transcriptKey{ann, "stuck"})
		release, hung := make(chan struct{}), make(chan struct{})
		var once sync.Once
		fsys.FailWhen(func(op crashfs.Op) error {
			if op.Kind == kind && strings.HasPrefix(op.Name, stuck) {
				once.Do(func() { close(hung) })
				<-release
			}
			return nil
		})
		var users sync.WaitGroup
		users.Go(func() { _, _ = s.Log(ann, "stuck").Append(context.Background(), batch("more")) })
		<-hung
		users.Go(func() { _, _ = s.Log(ann, "stuck").State(context.Background()) })
		users.Go(func() { _ = s.Log(ann, "stuck").Clear(context.Background()) })
		inTime(t, func() { othersGoOn(t, kind, s) })
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
		if _, err := s.Log(ann, "stuck").Append(ctx, batch("more")); err == nil || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%s hangs: an append that waits 20 ms returned %v", kind, err)
		}
		if err := s.Log(ann, "stuck").Clear(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%s hangs: a clear that waits 20 ms returned %v", kind, err)
		}
		cancel()
		close(release)
		users.Wait()
		if err := s.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
	}
}

func othersGoOn(t *testing.T, kind string, s *Store) {
	for i := range 5 {
		l := s.Log(ann, "fine")
		if _, err := l.Append(t.Context(), batch("more")); err != nil {
			t.Errorf("%s hangs elsewhere: Append: %v", kind, err)
		}
		if got := texts(t, l); len(got) != i+2 {
			t.Errorf("%s hangs elsewhere: read %q", kind, got)
		}
		if err := s.Log(ann, fmt.Sprint("new", i)).Clear(t.Context()); err != nil {
			t.Errorf("%s hangs elsewhere: Clear: %v", kind, err)
		}
		if _, err := s.Log(ann, fmt.Sprint("new", i)).Import(t.Context(), history.Import{Mode: history.Create, Messages: slices2(made("1", 2))}); err != nil {
			t.Errorf("%s hangs elsewhere: Import: %v", kind, err)
		}
	}
}

// TestReadsTakeNoMoreOperationsInALongRecord counts operations, which do not depend on
// the machine.
func TestReadsTakeNoMoreOperationsInALongRecord(t *testing.T) {
	t.Parallel()
	cost := func(n int, do func(l history.Log)) int {
		fsys := crashfs.New()
		s, err := Open(Options{FS: fsys, NewID: safeIDs(), SegmentBytes: 1 << 20})
		if err != nil {
			t.Fatal(err)
		}
		msgs := make([]history.Message, n)
		for i := range msgs {
			msgs[i] = user(fmt.Sprint("m", i))
		}
		if _, err := s.Log(ann, "a").Import(t.Context(), history.Import{Mode: history.Create, Messages: slices2(msgs)}); err != nil {
			t.Fatal(err)
		}
		_ = s.Close()
		s = mustOpen(t, fsys)
		defer s.Close()
		before := fsys.Ops()
		do(s.Log(ann, "a"))
		return fsys.Ops() - before
	}
	page := func(from int64) func(history.Log) {
		return func(l history.Log) {
			v, err := l.View(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			defer v.Close()
			n := 0
			for r, err := range v.Records(from, from+19) {
				if n++; err != nil || r.Seq < from {
					t.Fatal(r.Seq, err)
				}
			}
			if n != 20 {
				t.Fatalf("%d messages of 20 from %d", n, from)
			}
		}
	}
	long := 40_000
	for _, tt := range []struct {
		name  string
		small func(history.Log)
		large func(history.Log)
	}{
		{"the tail", page(1000 - 19), page(int64(long) - 19)},
		{"the middle", page(500), page(int64(long) / 2)},
		{"an append", appendOne(t), appendOne(t)},
	} {
		small, large := cost(1000, tt.small), cost(long, tt.large)
		t.Logf("%s: %d operations in 1,000 messages, %d in %d", tt.name, small, large, long)
		if large > small+40 {
			t.Errorf("%s: %d operations in 1,000 messages, %d in %d", tt.name, small, large, long)
		}
	}
}

func appendOne(t *testing.T) func(history.Log) {
	return func(l history.Log) {
		if _, err := l.Append(t.Context(), batch("one")); err != nil {
			t.Fatal(err)
		}
	}
}

func TestListPagesThroughAll(t *testing.T) {
	t.Parallel()
	_, s := many(t, 250, 16)
	defer s.Close()
	if _, err := s.Log(ann, "c0").Append(t.Context(), batch("newest")); err != nil {
		t.Fatal(err)
	}
	if err := s.Log(ann, "c7").Clear(t.Context()); err != nil {
		t.Fatal(err)
	}
	want := []string{"c0"}
	for i := 249; i > 0; i-- {
		if i != 7 {
			want = append(want, fmt.Sprint("c", i))
		}
	}
	for range 2 {
		var got []string
		for cursor := ""; ; {
			page, err := s.List(t.Context(), ann, cursor, 7)
			if err != nil {
				t.Fatal(err)
			}
			for _, item := range page.Items {
				got = append(got, item.Name)
			}
			if cursor = page.Next; cursor == "" {
				break
			}
		}
		if !slices.Equal(got, want) {
			t.Fatalf("listed %q, want %q", got, want)
		}
	}
}

// What a list can't name it counts, as long as it is there and has no name.
func TestAListCountsWhatItCannotName(t *testing.T) {
	t.Parallel()
	b := newBook(t, 2)
	list := func(s *Store, cursor string, limit int) history.Listing {
		t.Helper()
		page, err := s.List(t.Context(), ann, cursor, limit)
		if err != nil {
			t.Fatal(err)
		}
		return page
	}
	for name, end := range map[string]func(s *Store, fsys *crashfs.FS) error{
		"written to": func(s *Store, _ *crashfs.FS) error {
			_, err := s.Log(ann, "a").Append(t.Context(), batch("anew"))
			return err
		},
		"cleared":     func(s *Store, _ *crashfs.FS) error { return s.Log(ann, "a").Clear(t.Context()) },
		"all cleared": func(s *Store, _ *crashfs.FS) error { return s.ClearAll(t.Context(), ann) },
		"moved away": func(_ *Store, fsys *crashfs.FS) error {
			return fsys.Rename(path.Dir(b.files["a"]), trashName+"/away")
		},
	} {
		fsys := b.broken("a", []byte("nothing\n"))
		s := mustOpen(t, fsys)
		if _, err := s.Log(ann, "c").Append(t.Context(), batch("c")); err != nil {
			t.Fatal(err)
		}
		for range 2 {
			first := list(s, "", 1)
			if first.Unnamed != 1 || len(first.Items) != 1 || first.Next == "" {
				t.Errorf("%s: before, the first page is %+v", name, first)
			}
			if second := list(s, first.Next, 1); second.Unnamed != 0 || len(second.Items) != 1 {
				t.Errorf("%s: before, the second page is %+v", name, second)
			}
		}
		if err := end(s, fsys); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if got := list(s, "", 10); got.Unnamed != 0 {
			t.Errorf("%s: the list is %+v", name, got)
		}
		_ = s.Close()
	}
}
