package store

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"historyd/internal/durable/crashfs"
	"historyd/internal/history"
)

// shown is a message with bytes in it.
func shown(text string, data []byte) history.Message {
	m := user(text)
	b := history.Block{Type: history.ImageBlock, MediaType: "image/png"}
	b.SetData(data)
	m.Content = append(m.Content, b)
	return m
}

func attach(t testing.TB, l history.Log, text string, data []byte) {
	t.Helper()
	if _, err := l.Append(t.Context(), history.Batch{Messages: []history.Message{shown(text, data)}}); err != nil {
		t.Fatal(err)
	}
}

// attachmentIn reads an attachment through a view.
func attachmentIn(t testing.TB, l history.Log, data []byte) (history.Attachment, error) {
	t.Helper()
	v, err := l.View(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer v.Close()
	return v.Attachment(history.AttachmentName(data))
}

// fileOf is the name of the file of bytes in a conversation.
func fileOf(t testing.TB, s *Store, conversation string, data []byte) string {
	t.Helper()
	digits, _ := history.AttachmentHash(history.AttachmentName(data))
	return s.Log(ann, conversation).(*log).shelf().bytesOf(digits)
}

func (l *log) shelf() shelf { return shelf{l.store, l.key, l.store.dirOf(l.key)} }

func TestAttachmentWithOtherBytesIsToldAndWrittenAnew(t *testing.T) {
	t.Parallel()
	fsys, reg := crashfs.New(), prometheus.NewRegistry()
	s, err := Open(Options{FS: fsys, NewID: safeIDs(), Registerer: reg})
	if err != nil {
		t.Fatal(err)
	}
	l, data := s.Log(ann, "a"), []byte("what it is")
	attach(t, l, "1", data)
	for _, wrong := range []string{"what it iz", "", "what it is and more"} {
		fsys.Corrupt(fileOf(t, s, "a", data), func([]byte) []byte { return []byte(wrong) })
		for range 2 {
			if a, err := attachmentIn(t, l, data); !errors.Is(err, history.ErrDamaged) || a.Data != nil {
				t.Fatalf("with %q in the file: %q, %v", wrong, a.Data, err)
			}
		}
		if found, _ := check(t, fsys); len(found) != 1 || found[0].Kind != "damage" || found[0].Path != fileOf(t, s, "a", data) {
			t.Errorf("with %q in the file check finds %v", wrong, found)
		}
		attach(t, l, "again", data)
		if a, err := attachmentIn(t, l, data); err != nil || !bytes.Equal(a.Data, data) {
			t.Fatalf("brought again it is %q, %v", a.Data, err)
		}
		fsys = fsys.Crash(rng(1))
		if got := fsys.Files()[fileOf(t, s, "a", data)]; !bytes.Equal(got, data) {
			t.Fatalf("after a power cut it is %q", got)
		}
		mustCheck(t, fsys)
		s = mustOpen(t, fsys)
		l = s.Log(ann, "a")
	}
	got, err := testutil.GatherAndCount(reg, "historyd_store_damage_total")
	if err != nil || got != 1 {
		t.Fatalf("%d series, %v", got, err)
	}
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == "historyd_store_damage_total" && f.Metric[0].Counter.GetValue() != 1 {
			t.Errorf("the damage was counted %v times", f.Metric[0].Counter.GetValue())
		}
	}
}

func TestCheckTellsOfAttachments(t *testing.T) {
	t.Parallel()
	fsys := crashfs.New()
	s := mustOpen(t, fsys)
	data, other := []byte("one"), []byte("two")
	attach(t, s.Log(ann, "a"), "1", data)
	attach(t, s.Log(ann, "a"), "2", other)
	attach(t, s.Log(ann, "a"), "3", other)
	file := fileOf(t, s, "a", other)
	_ = s.Close()
	if sum := mustCheck(t, fsys); sum.Attachments != 2 {
		t.Errorf("check counts %d attachments", sum.Attachments)
	}
	if err := fsys.Remove(file); err != nil {
		t.Fatal(err)
	}
	stray := path.Dir(file) + "/" + strings.Repeat("a", 63) + "g"
	for _, name := range []string{stray, path.Dir(path.Dir(file)) + "/" + typesName + "/note"} {
		f, err := fsys.Create(name)
		if err != nil {
			t.Fatal(err)
		}
		_ = f.Close()
	}
	var got []string
	found, _ := check(t, fsys)
	for _, f := range found {
		got = append(got, f.Kind+" "+path.Base(f.Path)+": "+f.Detail)
	}
	want := []string{
		"unknown " + path.Base(stray) + ": not a file of historyd's",
		"unknown note: not a file of historyd's",
		"damage 00000001.jsonl: message 2 names an attachment that is not there",
	}
	if !slices.Equal(got, want) {
		t.Errorf("check finds %q, want %q", got, want)
	}
	s = mustOpen(t, fsys)
	if _, err := attachmentIn(t, s.Log(ann, "a"), other); !errors.Is(err, history.ErrNotFound) {
		t.Errorf("an attachment whose file is gone: %v", err)
	}
	_ = s.Close()
}

// TestCrashAttachmentsWithoutALineAreNoConversation ends a process between the two.
func TestCrashAttachmentsWithoutALineAreNoConversation(t *testing.T) {
	t.Parallel()
	data := []byte(canary + " picture")
	left := func() (*crashfs.FS, *Store) {
		fsys := crashfs.New()
		s := mustOpen(t, fsys)
		failOnce(fsys, "Create", ".jsonl")
		if _, err := s.Log(ann, "a").Append(t.Context(), history.Batch{Messages: []history.Message{shown("1", data)}}); err == nil {
			t.Fatal("the append went through")
		}
		fsys = fsys.Kill()
		if fsys.Files()[fileOf(t, s, "a", data)] == nil {
			t.Fatal("the attachment is not there")
		}
		mustCheck(t, fsys)
		return fsys, mustOpen(t, fsys)
	}
	for name, goOn := range map[string]func(s *Store, l history.Log) error{
		"nothing": func(*Store, history.Log) error { return nil },
		"append": func(_ *Store, l history.Log) error {
			attach(t, l, "1", data)
			return nil
		},
		"import": func(_ *Store, l history.Log) error {
			_, err := l.Import(t.Context(), history.Import{Mode: history.Create, Messages: slices2([]history.Message{shown("1", data)})})
			return err
		},
		"import that extends": func(_ *Store, l history.Log) error {
			_, err := l.Import(t.Context(), history.Import{Mode: history.Extend, Messages: slices2([]history.Message{shown("1", data)})})
			return err
		},
		"clear":     func(_ *Store, l history.Log) error { return l.Clear(t.Context()) },
		"clear all": func(s *Store, _ history.Log) error { return s.ClearAll(t.Context(), ann) },
	} {
		fsys, s := left()
		l := s.Log(ann, "a")
		state, err := l.State(t.Context())
		listing, lerr := s.List(t.Context(), ann, "", 10)
		if err != nil || lerr != nil || state.Exists() || len(listing.Items) != 0 {
			t.Errorf("before %s: %+v, %v, listed %+v, %v", name, state, err, listing, lerr)
		}
		if err := goOn(s, l); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		switch {
		case strings.HasPrefix(name, "clear"):
			wantNoCanary(t, name, fsys)
		case name != "nothing":
			if state, err := l.State(t.Context()); err != nil || state.Messages != 1 {
				t.Errorf("after %s: %+v, %v", name, state, err)
			}
			if a, err := attachmentIn(t, l, data); err != nil || !bytes.Equal(a.Data, data) {
				t.Errorf("after %s: %q, %v", name, a.Data, err)
			}
		}
		_ = s.Close()
		mustCheck(t, fsys)
	}
}

// TestCrashAttachmentIsDurableBeforeItsLine looks at the order of operations.
func TestCrashAttachmentIsDurableBeforeItsLine(t *testing.T) {
	t.Parallel()
	fsys := crashfs.New()
	s := mustOpen(t, fsys)
	l := s.Log(ann, "a")
	attach(t, l, "1", []byte("first"))
	ops := func(data []byte) string {
		digits, _ := history.AttachmentHash(history.AttachmentName(data))
		var mu sync.Mutex
		var done []string
		fsys.FailWhen(func(op crashfs.Op) error {
			mu.Lock()
			defer mu.Unlock()
			name := path.Base(op.Name)
			if strings.HasSuffix(name, partSuffix) {
				name = "part"
			}
			if op.To != "" {
				name += " to " + path.Base(path.Dir(op.To)) + "/" + strings.ReplaceAll(path.Base(op.To), digits, "hash")
			}
			if op.Kind != "ReadAt" && op.Kind != "Size" && op.Kind != "Open" {
				done = append(done, op.Kind+" "+name)
			}
			return nil
		})
		attach(t, l, "2", data)
		fsys.Heal()
		return strings.Join(done, ", ")
	}
	line := "WriteAt 00000001.jsonl, Sync 00000001.jsonl"
	want := "Create part, WriteAt part, Sync part, Replace part to attachments/hash, " +
		"Create part, WriteAt part, Sync part, Replace part to types/hash, SyncDir attachments, SyncDir types, " + line
	if got := ops([]byte("new")); got != want {
		t.Errorf("an append with an attachment does %s; want %s", got, want)
	}
	if got := ops([]byte("new")); got != line {
		t.Errorf("an append with the same attachment does %s; want %s", got, line)
	}
	_ = s.Close()
}

func TestAttachmentsAreForNobodyElse(t *testing.T) {
	t.Parallel()
	dir := privateDir(t)
	s, err := onDisk(dir)
	if err != nil {
		t.Fatal(err)
	}
	attach(t, s.Log(ann, "a"), "1", []byte("private"))
	err = filepath.WalkDir(dir, func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		if want := map[bool]fs.FileMode{true: 0o700, false: 0o600}[d.IsDir()]; info.Mode().Perm() != want {
			t.Errorf("%s has mode %o", name, info.Mode().Perm())
		}
		return nil
	})
	if err := errors.Join(err, s.Close()); err != nil {
		t.Fatal(err)
	}
}

func TestAttachmentThatIsPlantedIsNotFollowed(t *testing.T) {
	t.Parallel()
	data := []byte("what it is")
	for kind, plant := range plants {
		dir, outside := privateDir(t), t.TempDir()
		if err := os.WriteFile(filepath.Join(outside, "file"), data, 0o600); err != nil {
			t.Fatal(err)
		}
		s, err := onDisk(dir)
		if err != nil {
			t.Fatal(err)
		}
		l := s.Log(ann, "a")
		attach(t, l, "1", data)
		name := filepath.Join(dir, fileOf(t, s.Store, "a", data))
		if err := errors.Join(os.Remove(name), plant(name, outside)); err != nil {
			t.Fatal(err)
		}
		if !checkReports(t, dir) {
			t.Errorf("%s: check says nothing of it", kind)
		}
		inTime(t, func() {
			if a, err := attachmentIn(t, l, data); err == nil || a.Data != nil {
				t.Errorf("%s: it is read as %q", kind, a.Data)
			}
			_, err := l.Append(t.Context(), history.Batch{Messages: []history.Message{shown("2", data)}})
			if isDir := strings.Contains(kind, "directory") && !strings.Contains(kind, "link"); isDir == (err == nil) {
				t.Errorf("%s: brought again: %v", kind, err)
			}
		})
		if text, err := os.ReadFile(filepath.Join(outside, "file")); err != nil || !bytes.Equal(text, data) {
			t.Errorf("%s: the file outside says %q: %v", kind, text, err)
		}
		_ = s.Close()
	}
}

// TestClearWaitsForAttachmentsThatAreRead holds a read open while a clear comes.
func TestClearWaitsForAttachmentsThatAreRead(t *testing.T) {
	t.Parallel()
	fsys := crashfs.New()
	s := mustOpen(t, fsys)
	l, data := s.Log(ann, "a"), []byte(canary)
	attach(t, l, "1", data)
	reading, goOn := make(chan struct{}), make(chan struct{})
	var once sync.Once
	var gone atomic.Bool
	fsys.FailWhen(func(op crashfs.Op) error {
		if op.Kind == "Rename" {
			gone.Store(true)
		}
		if op.Kind == "ReadAt" && strings.Contains(op.Name, attachmentsName) {
			once.Do(func() {
				close(reading)
				<-goOn
			})
		}
		return nil
	})
	var wg sync.WaitGroup
	wg.Go(func() {
		if a, err := attachmentIn(t, l, data); err == nil && !bytes.Equal(a.Data, data) {
			t.Errorf("read %q", a.Data)
		}
	})
	<-reading
	s.mu.Lock()
	files := s.open[transcriptKey{ann, "a"}].t.files
	s.mu.Unlock()
	cleared := make(chan error)
	go func() { cleared <- l.Clear(t.Context()) }()
	// Until the clear has come to where it waits, or went past it.
	for files.whole.TryRLock() {
		files.whole.RUnlock()
		if gone.Load() {
			t.Error("the conversation went away while an attachment was read")
			break
		}
		runtime.Gosched()
	}
	close(goOn)
	if err := <-cleared; err != nil {
		t.Error(err)
	}
	wantNoCanary(t, "after a clear", fsys)
	wg.Wait()
	_ = s.Close()
}

func TestBytesCountAttachmentsOfFailedAppendsWhenTheyAreNamed(t *testing.T) {
	t.Parallel()
	fsys := crashfs.New()
	s := mustOpen(t, fsys)
	l, data := s.Log(ann, "a"), bytes.Repeat([]byte("x"), 10_000)
	attach(t, l, "1", []byte("first"))
	failOnce(fsys, "WriteAt", ".jsonl")
	if _, err := l.Append(t.Context(), history.Batch{Messages: []history.Message{shown("2", data)}}); err == nil {
		t.Fatal("the append went through")
	}
	fsys.Heal()
	bytesNow := func() int64 {
		state, err := l.State(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return state.Bytes
	}
	if n := bytesNow(); n > 5000 {
		t.Errorf("Bytes is %d before a message names the attachment", n)
	}
	for range 2 {
		attach(t, l, "2", data)
		if n := bytesNow(); n < 10_000 || n > 15_000 {
			t.Errorf("Bytes is %d", n)
		}
	}
	_ = s.Close()
}

// Types of attachments that come behind the messages are held once each, and not all.
func TestTypesOfAttachmentsTakeLittleMemory(t *testing.T) {
	s := mustOpen(t, crashfs.New())
	defer s.Close()
	in := s.Log(ann, "a").(*log).newIntake(history.Import{})
	for i := range 3 * maxTypes {
		name := history.AttachmentName([]byte(fmt.Sprint(i)))
		in.name(&history.Block{Type: history.ImageBlock, MediaType: fmt.Sprint("image/", i), Attachment: name})
		in.name(&history.Block{Type: history.ImageBlock, MediaType: "image/png", Attachment: name}) // it has one
	}
	in.name(&history.Block{Type: history.ImageBlock, MediaType: strings.Repeat("x", maxMediaType+1), Attachment: history.AttachmentName([]byte("long"))})
	if len(in.named) != 3*maxTypes+1 || len(in.types) != maxTypes {
		t.Errorf("%d names of %d types are held", len(in.named), len(in.types))
	}
	if sum, _ := history.AttachmentSum(history.AttachmentName([]byte("7"))); in.named[sum] != "image/7" {
		t.Errorf("the type is %q", in.named[sum])
	}
}

// Bytes that a message names and that are gone or others are damage, once somebody has met it, until they are there again.
func TestALostAttachmentIsToldUntilItIsMended(t *testing.T) {
	t.Parallel()
	fsys := crashfs.New()
	s := mustOpen(t, fsys)
	l, data, name := s.Log(ann, "a"), []byte("what it is"), history.AttachmentName([]byte("what it is"))
	attach(t, l, "1", data)
	file := fileOf(t, s, "a", data)
	told := func() *history.Damage { return mustStateOf(t, l).Damage }
	read := func(named bool) error {
		v, err := l.View(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer v.Close()
		if named {
			_, err = v.Named(name)
		} else {
			_, err = v.Attachment(name)
		}
		return err
	}
	for _, mend := range []string{"put back", "brought again"} {
		for _, lose := range []string{"gone", "altered"} {
			what := lose + ", " + mend
			want := history.ErrNotFound
			if lose == "gone" {
				if err := fsys.Remove(file); err != nil {
					t.Fatal(err)
				}
				if err := read(false); !errors.Is(err, want) || told() != nil {
					t.Errorf("%s: whoever asks for what may never have been there: %v, %+v", what, err, told())
				}
			} else {
				want = history.ErrDamaged
				fsys.Corrupt(file, func([]byte) []byte { return []byte("what it iz") })
			}
			for range 2 {
				if err := read(lose == "gone"); !errors.Is(err, want) {
					t.Errorf("%s: got %v, want %v", what, err, want)
				}
			}
			if d := told(); d == nil || d.Attachments != 1 || d.Places != 1 || d.Lost != 0 {
				t.Errorf("%s: told is %+v", what, d)
			}
			if done, err := s.Expire(t.Context(), ann, "a", mustStateOf(t, l).LastID, nil); done || err != nil {
				t.Fatalf("%s: retention took it: %v, %v", what, done, err)
			}
			if mend == "put back" {
				f, err := fsys.Create(file + "x")
				if err == nil {
					_, err = f.WriteAt(data, 0)
				}
				if err := errors.Join(err, f.Close(), fsys.Replace(file+"x", file), read(true)); err != nil {
					t.Fatal(err)
				}
			} else {
				attach(t, l, "again", data)
			}
			if d := told(); d != nil {
				t.Errorf("%s: told is still %+v", what, d)
			}
		}
	}
}
