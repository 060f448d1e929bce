package store

import (
	"errors"
	"fmt"
	"iter"
	"runtime"
	runtimemetrics "runtime/metrics"
	"strings"
	"testing"
	"time"

	"historyd/internal/durable"
	"historyd/internal/durable/crashfs"
	"historyd/internal/history"
)

func spoolOf(t *testing.T, fsys durable.FS, memory int, msgs []history.Message) *spool {
	t.Helper()
	s := newSpool(fsys, memory)
	for i := range msgs {
		if err := s.add(&msgs[i]); err != nil {
			t.Fatal(err)
		}
	}
	return s
}

func staged(t *testing.T) *crashfs.FS {
	t.Helper()
	fsys := crashfs.New()
	if err := fsys.Mkdir(stagingName); err != nil {
		t.Fatal(err)
	}
	return fsys
}

func TestSpoolGivesBackWhatItWasGiven(t *testing.T) {
	t.Parallel()
	var msgs []history.Message
	for i := range 300 {
		msgs = append(msgs, user(fmt.Sprint(i, " ", strings.Repeat("é", i*i%5000))))
	}
	for _, n := range []int{0, 1, 2, 299, 300} {
		for _, memory := range []int{1, 500, 100_000, spoolMemory} {
			fsys := staged(t)
			s := spoolOf(t, fsys, memory, msgs[:n])
			for range 2 {
				at := 0
				for m, err := range s.all() {
					if err != nil || m.Content[0].Text != msgs[at].Content[0].Text {
						t.Fatalf("%d messages, %d bytes of memory: message %d is %.20q, %v", n, memory, at, m.Content[0].Text, err)
					}
					at++
				}
				if at != n {
					t.Fatalf("%d messages, %d bytes of memory: %d came back", n, memory, at)
				}
			}
			if err := s.drop(); err != nil || len(fsys.Files()) != 0 || fsys.OpenHandles() != 0 {
				t.Fatalf("dropped: %v, %d files, %d open", err, len(fsys.Files()), fsys.OpenHandles())
			}
		}
	}
}

func TestSpoolThatIsNotAsItWasIsNoImport(t *testing.T) {
	t.Parallel()
	fsys := staged(t)
	s := spoolOf(t, fsys, 1, made("x", 5))
	whole := fsys.Files()[s.name]
	for at := 0; at <= len(whole); at += 7 {
		broken := []byte(string(whole[:at]))
		if at%2 == 0 && at < len(whole) {
			broken = []byte(string(whole))
			broken[at] ^= 1
		}
		if at == len(whole) {
			broken = broken[:at-1]
		}
		fsys.Corrupt(s.name, func([]byte) []byte { return broken })
		var last error
		n := 0
		for _, err := range s.all() {
			last = err
			n++
		}
		if !errors.Is(last, history.ErrUnavailable) || n > 5 {
			t.Fatalf("byte %d: %d messages, error %v", at, n, last)
		}
	}
}

// TestImportLeavesNothingInStaging looks after imports that end in each of the ways.
func TestImportLeavesNothingInStaging(t *testing.T) {
	t.Parallel()
	fsys := crashfs.New()
	s, err := start(fsys)
	if err != nil {
		t.Fatal(err)
	}
	l := s.Log(ann, "a")
	errBad := errors.New("bad")
	for _, tt := range []struct {
		name string
		imp  history.Import
		want error
	}{
		{"done", history.Import{Mode: history.Create, Messages: slices2(made("p1", 20))}, nil},
		{"refused", history.Import{Mode: history.Create, Messages: slices2(made("p2", 20))}, history.ErrNotEmpty},
		{"without bytes", history.Import{Mode: history.Extend, Messages: slices2([]history.Message{shown("p2 1/1", []byte("y")), naming("x")})}, history.ErrNoAttachment},
		{"with an error", history.Import{Mode: history.Extend, Messages: func(yield func(history.Message, error) bool) {
			for _, m := range made("p3", 20) {
				if !yield(m, nil) {
					return
				}
			}
			yield(history.Message{}, errBad)
		}}, errBad},
		{"of nothing", history.Import{Mode: history.Extend, Messages: slices2(nil)}, nil},
	} {
		if _, err := l.Import(t.Context(), tt.imp); !errors.Is(err, tt.want) {
			t.Errorf("%s: error %v, want %v", tt.name, err, tt.want)
		}
		for name := range fsys.Files() {
			if leftOver(name) {
				t.Errorf("%s: left over: %s", tt.name, name)
			}
		}
	}
	_ = s.Close()
	if n := fsys.OpenHandles(); n != 0 {
		t.Errorf("%d files are open", n)
	}
}

func naming(bytes string) history.Message {
	m := user("named")
	m.Content = append(m.Content, history.Block{Type: history.ImageBlock, Attachment: history.AttachmentName([]byte(bytes))})
	return m
}

// TestStartRemovesSpools kills a process in the middle of an import.
// A power cut may leave anything of a note that was not synced.
func TestStartRemovesNotesThatAreCut(t *testing.T) {
	t.Parallel()
	const whole = transcriptsName + "/operator/" + "0123/" + stagingPrefix + "4567"
	for _, text := range []string{"", whole[:8], whole[:len(whole)-2], whole[:len(whole)-3] + "\x00\x007", whole + "\x00", "\x00", whole + "/../..", whole + "//"} {
		fsys := crashfs.New()
		s := mustOpen(t, fsys)
		_ = s.Close()
		f, err := fsys.Create(stagingName + "/.note.tmp-1")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := f.WriteAt([]byte(text), 0); err != nil {
			t.Fatal(err)
		}
		_ = f.Close()
		if s, err = start(fsys); err != nil {
			t.Errorf("a start with a note of %q: %v", text, err)
			continue
		}
		_ = s.Close()
		for name := range fsys.Files() {
			if leftOver(name) {
				t.Errorf("of a note of %q %s is left", text, name)
			}
		}
	}
}

func TestStartRemovesSpools(t *testing.T) {
	t.Parallel()
	fsys := crashfs.New()
	s, err := start(fsys)
	if err != nil {
		t.Fatal(err)
	}
	var killed *crashfs.FS
	_, err = s.Log(ann, "a").Import(t.Context(), history.Import{Mode: history.Create, Messages: func(yield func(history.Message, error) bool) {
		for _, m := range made("p1", 20) {
			m.Content[0].Text += canary
			if !yield(m, nil) {
				return
			}
		}
		killed = fsys.Kill()
		yield(history.Message{}, errors.New("the end"))
	}})
	if err == nil {
		t.Fatal("the import went through")
	}
	spooled := false
	for name := range killed.Files() {
		spooled = spooled || strings.HasSuffix(name, partSuffix)
	}
	if !spooled {
		t.Fatal("there was no spool")
	}
	if s, err = start(killed); err != nil {
		t.Fatal(err)
	}
	_ = s.Close()
	wantNoCanary(t, "after a start", killed)
	for name := range killed.Files() {
		if leftOver(name) {
			t.Errorf("left over: %s", name)
		}
	}
	mustCheck(t, killed)
}

// TestImportOverACloseLeavesTheDirectoryAlone goes on with an import when the store
// is closed, and perhaps another process has the directory.
func TestImportOverACloseLeavesTheDirectoryAlone(t *testing.T) {
	t.Parallel()
	fsys := crashfs.New()
	s, err := start(fsys)
	if err != nil {
		t.Fatal(err)
	}
	ops := 0
	_, err = s.Log(ann, "a").Import(t.Context(), history.Import{Mode: history.Create, Messages: func(yield func(history.Message, error) bool) {
		for i, m := range made("p1", 20) {
			if i == 10 {
				if err := s.Close(); err != nil {
					t.Error(err)
				}
				ops = fsys.Ops()
			}
			if !yield(m, nil) {
				return
			}
		}
	}})
	if !errors.Is(err, history.ErrClosed) {
		t.Errorf("error %v", err)
	}
	if n := fsys.Ops(); n != ops {
		t.Errorf("%d operations after Close", n-ops)
	}
	if n := fsys.OpenHandles(); n != 0 {
		t.Errorf("%d files are open", n)
	}
}

// TestImportTakesLittleMemory imports a record many times larger than what it may hold.
func TestImportTakesLittleMemory(t *testing.T) {
	if testing.Short() {
		t.Skip("writes 100 MB")
	}
	if raced {
		t.Skip("the race detector takes memory of its own")
	}
	fsys, err := durable.Open(privateDir(t))
	if err != nil {
		t.Fatal(err)
	}
	defer fsys.Close()
	s := mustOpen(t, fsys)
	defer s.Close()
	const size, each = 100 << 20, 2000
	text, picture := strings.Repeat("words of a sentence ", each/20), make([]byte, 1<<20)
	peak := uint64(0)
	sample := []runtimemetrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}}
	look := func() {
		runtimemetrics.Read(sample)
		peak = max(peak, sample[0].Value.Uint64())
	}
	runtime.GC()
	look()
	base := peak
	began := time.Now()
	_, err = s.Log(ann, "a").Import(t.Context(), history.Import{Mode: history.Extend, Fold: sampling{look}, Messages: func(yield func(history.Message, error) bool) {
		for i := range size / each {
			m := user(text)
			if m.ID = fmt.Sprint("message ", i); i%5000 == 0 {
				picture[0] = byte(i / 5000)
				m = shown(text, picture)
			}
			if i%1000 == 0 {
				look()
			}
			if !yield(m, nil) {
				return
			}
		}
	}})
	look()
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("at most %d MiB over %d, in %v", (peak-base)>>20, base>>20, time.Since(began))
	if peak-base > 64<<20 {
		t.Errorf("the heap has grown by %d MiB", (peak-base)>>20)
	}
	if left, err := fsys.ReadDir(stagingName); len(left) > 0 || err != nil {
		t.Errorf("left over: %v, %v", left, err)
	}
}

// sampling is a folder that never folds, and is asked for each line.
type sampling struct{ look func() }

func (s sampling) Due(_, _ history.Window) bool { s.look(); return false }

func (s sampling) Fold(*history.Summary, iter.Seq2[history.Message, error]) (*history.Summary, error) {
	return nil, nil
}
