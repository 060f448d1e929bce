package accept

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
)

// indexed is a daemon with what it has indexed in files, stopped.
func indexed(t *testing.T) (*daemon, caller) {
	t.Helper()
	d := newDaemon(t)
	c := caller{d, d.token("operator", "ann", "")}
	d.begin()
	for i := range 20 {
		c.do(201, "POST", fmt.Sprintf("/v1/conversations/c%d/turns", i%4), said(t, fmt.Sprintf("question%02d about the harbour", i), fmt.Sprintf("answer%02d about the harbour", i)))
	}
	if out := c.search("harbour"); len(out.Data) != 40 {
		t.Fatalf("before any harm it finds %d", len(out.Data))
	}
	d.stop()
	if n := len(segments(t, d)); n != 1 {
		t.Fatalf("the index has %d files", n)
	}
	return d, c
}

// segments are the files of the index.
func segments(t *testing.T, d *daemon) (files []string) {
	t.Helper()
	err := filepath.WalkDir(filepath.Join(d.dir, "index"), func(path string, e fs.DirEntry, err error) error {
		if err == nil && !e.IsDir() {
			files = append(files, path)
		}
		return err
	})
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	return files
}

func write(t *testing.T, file string, text []byte) {
	t.Helper()
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
}

// A harm is what may happen to the index while the daemon is stopped. It is made of the record, so that none of them
// is more than some work.
type harm struct {
	name string
	do   func(t *testing.T, d *daemon, file string)
}

func harms() []harm {
	all := append(losses(), plants()...)
	// A byte in the beginning, in the words, in the tables and in the end.
	for _, place := range []int{0, 20, 30, 50, 70, 85, 95, 99} {
		all = append(all, harm{fmt.Sprintf("turned at %d%%", place), changed(func(text []byte) []byte {
			text[len(text)*place/100] ^= 0x20
			return text
		})})
	}
	return all
}

// changed rewrites the file.
func changed(change func(text []byte) []byte) func(*testing.T, *daemon, string) {
	return func(t *testing.T, _ *daemon, file string) {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		write(t, file, change(text))
	}
}

// losses take something away.
func losses() []harm {
	remove := func(path func(d *daemon, file string) string) func(*testing.T, *daemon, string) {
		return func(t *testing.T, d *daemon, file string) {
			if err := os.RemoveAll(path(d, file)); err != nil {
				t.Fatal(err)
			}
		}
	}
	return []harm{
		{"all removed", remove(func(d *daemon, _ string) string { return filepath.Join(d.dir, "index") })},
		{"the callers removed", remove(func(d *daemon, _ string) string { return filepath.Join(d.dir, "index", "operator") })},
		{"its directory removed", remove(func(_ *daemon, file string) string { return filepath.Dir(file) })},
		{"its file removed", remove(func(_ *daemon, file string) string { return file })},
		{"empty", changed(func([]byte) []byte { return nil })},
		{"half", changed(func(text []byte) []byte { return text[:len(text)/2] })},
		{"a byte short", changed(func(text []byte) []byte { return text[:len(text)-1] })},
		{"longer", changed(func(text []byte) []byte { return append(text, 0) })},
		{"another version", changed(func(text []byte) []byte { return bytes.Replace(text, []byte("index 1"), []byte("index 2"), 1) })},
		{"nothing but zeroes", changed(func(text []byte) []byte { return make([]byte, len(text)) })},
		{"something else", changed(func([]byte) []byte { return []byte("{}\n") })},
	}
}

// plants put something else in its place.
func plants() []harm {
	return []harm{
		{"a directory", func(t *testing.T, _ *daemon, file string) {
			if err := os.Remove(file); err != nil {
				t.Fatal(err)
			}
			if err := os.MkdirAll(filepath.Join(file, "deep"), 0o700); err != nil {
				t.Fatal(err)
			}
		}},
		{"a link", func(t *testing.T, d *daemon, file string) {
			to := filepath.Join(filepath.Dir(d.dir), "elsewhere")
			if err := os.Rename(file, to); err != nil {
				t.Fatal(err)
			}
			if err := os.Symlink(to, file); err != nil {
				t.Fatal(err)
			}
		}},
		{"a pipe", func(t *testing.T, _ *daemon, file string) {
			if err := os.Remove(file); err != nil {
				t.Fatal(err)
			}
			if err := syscall.Mkfifo(file, 0o600); err != nil {
				t.Fatal(err)
			}
		}},
		{"open to all", func(t *testing.T, _ *daemon, file string) {
			if err := os.Chmod(file, 0o666); err != nil {
				t.Fatal(err)
			}
		}},
		{"in an open directory", func(t *testing.T, _ *daemon, file string) {
			if err := os.Chmod(filepath.Dir(file), 0o755); err != nil {
				t.Fatal(err)
			}
		}},
		{"in a linked directory", func(t *testing.T, d *daemon, file string) {
			to := filepath.Join(t.TempDir(), "caller")
			if err := os.Rename(filepath.Dir(file), to); err != nil {
				t.Fatal(err)
			}
			if err := os.Symlink(to, filepath.Dir(file)); err != nil {
				t.Fatal(err)
			}
		}},
		{"a file instead of all", func(t *testing.T, d *daemon, _ string) {
			index := filepath.Join(d.dir, "index")
			if err := os.RemoveAll(index); err != nil {
				t.Fatal(err)
			}
			write(t, index, []byte("x"))
		}},
		{"beside others", func(t *testing.T, _ *daemon, file string) {
			dir := filepath.Dir(file)
			write(t, filepath.Join(dir, "notes.txt"), []byte("x"))
			write(t, filepath.Join(dir, "00000007.idx"), []byte("x"))
			write(t, filepath.Join(dir, ".tmp"), []byte("x"))
		}},
	}
}

func TestAnIndexThatIsHarmedIsMadeAgain(t *testing.T) {
	t.Parallel()
	d, c := indexed(t)
	for _, h := range harms() {
		outside := filepath.Join(filepath.Dir(d.dir), "elsewhere")
		h.do(t, d, segments(t, d)[0])
		d.begin()
		for i, q := range []string{"question07", `"answer19 about"`, "harb*", "harbour"} {
			out := c.search(q)
			if want := []int{1, 1, 40, 40}[i]; len(out.Data) != want || out.Behind {
				t.Errorf("%s: %s finds %d, want %d (behind: %v)", h.name, q, len(out.Data), want, out.Behind)
			}
			out.check(c)
		}
		if out := c.ask("other", "what of question07"); !strings.Contains(out.Text, "question07") {
			t.Errorf("%s: recalled is %s, %s", h.name, out.statuses(), out.Text)
		}
		// And it holds what comes then, and lets go of what goes.
		c.do(201, "POST", "/v1/conversations/new/turns", said(t, "a lighthouse"))
		if got := c.search("lighthouse").places(); got != "new#1" {
			t.Errorf("%s: what is new is found at %q", h.name, got)
		}
		c.do(204, "DELETE", "/v1/conversations/new", nil)
		if out := c.search("harbour"); len(out.Data) != 40 {
			t.Errorf("%s: after a clear it finds %d of the others", h.name, len(out.Data))
		}
		d.stop()
		private(t, d, h.name)
		if files := segments(t, d); bytes.Contains(contents(t, filepath.Join(d.dir, "index")), []byte("lighthouse")) || len(files) != 1 {
			t.Errorf("%s: after a clear the files %q hold what was cleared", h.name, files)
		}
		if h.name == "a link" {
			if info, err := os.Stat(outside); err != nil || info.Size() == 0 {
				t.Errorf("what the link named was touched: %v", err)
			}
		}
	}
	checkSound(t, d)
}

// Nor is it more than some work when that happens while it is served.
func TestAnIndexThatIsHarmedWhileServedIsMadeAgain(t *testing.T) {
	t.Parallel()
	for what, replace := range map[string]func(dir string) error{
		"nothing": func(string) error { return nil },
		"a file":  func(dir string) error { return os.WriteFile(dir, []byte("x"), 0o600) },
		"a link":  func(dir string) error { return os.Symlink(t.TempDir(), dir) },
	} {
		for depth := range 3 {
			d, c := indexed(t)
			d.begin()
			dir := segments(t, d)[0]
			for range 3 - depth {
				dir = filepath.Dir(dir)
			}
			if out := c.search("harbour"); len(out.Data) != 40 {
				t.Fatalf("before any harm it finds %d", len(out.Data))
			}
			if err := errors.Join(os.RemoveAll(dir), replace(dir)); err != nil {
				t.Fatal(err)
			}
			for range 2 {
				if out := c.search("harbour"); len(out.Data) != 40 || out.Behind {
					t.Errorf("%s for %s: it finds %d (behind: %v)", what, dir, len(out.Data), out.Behind)
				}
			}
			c.do(201, "POST", "/v1/conversations/new/turns", said(t, "another harbour"))
			c.do(204, "DELETE", "/v1/conversations/c1", nil)
			if out := c.search("harbour"); len(out.Data) != 31 || out.Behind {
				t.Errorf("%s for %s: after a clear it finds %d (behind: %v)", what, dir, len(out.Data), out.Behind)
			}
			d.stop()
			private(t, d, what)
			if n := len(segments(t, d)); n != 1 {
				t.Errorf("%s for %s: the index has %d files", what, dir, n)
			}
		}
	}
}

// private holds all of a data directory to its modes.
func private(t *testing.T, d *daemon, what string) {
	t.Helper()
	err := filepath.WalkDir(d.dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := e.Info()
		if err != nil {
			return err
		}
		if want := map[bool]fs.FileMode{true: 0o700 | fs.ModeDir, false: 0o600}[e.IsDir()]; info.Mode() != want {
			t.Errorf("%s: %s has mode %v", what, path, info.Mode())
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// While it is served, too, the index is for its owner alone, whatever the umask.
func TestAnIndexIsForItsOwnerAlone(t *testing.T) {
	d := newDaemon(t)
	c := caller{d, d.token("operator", "ann", "")}
	old := syscall.Umask(0)
	d.begin()
	syscall.Umask(old)
	// Enough that it is written while the daemon runs.
	word := strings.Repeat("word ", 2000)
	for i := range 30 {
		texts := []string{}
		for j := range 40 {
			texts = append(texts, fmt.Sprintf("needle%04d %s", i*40+j, word))
		}
		c.do(201, "POST", "/v1/conversations/main/turns", said(t, texts...))
	}
	if out := c.search("needle1199"); out.places() != "main#1200" {
		t.Errorf("found is %s", out.places())
	}
	await(t, "the index is in a file", func() bool { return len(segments(t, d)) > 0 })
	private(t, d, "while it is served")
}

func TestASearchFindsNothingThatWasClearedRewoundOrReplaced(t *testing.T) {
	t.Parallel()
	d := newDaemon(t)
	c := caller{d, d.token("operator", "ann", "")}
	other := caller{d, d.token("mesh", "ann", "")}
	d.begin()
	for _, who := range []caller{c, other} {
		for _, name := range []string{"cleared", "rewound", "replaced", "stays", "late"} {
			who.do(201, "POST", "/v1/conversations/"+name+"/turns", said(t, name+"early word", name+"late word"))
		}
	}
	c.search("word")
	other.search("word")
	d.stop() // all of it is in files now
	d.begin()
	c.do(204, "DELETE", "/v1/conversations/cleared", nil)
	c.do(200, "POST", "/v1/conversations/rewound/rewind", []byte(`{"through_seq":1}`))
	c.do(201, "POST", "/v1/conversations/replaced/import?mode=replace&format=openai", said(t, "anew word"))
	index := contents(t, filepath.Join(d.dir, "index", "operator"))
	for _, word := range []string{"clearedearly", "clearedlate", "rewoundlate", "replacedearly", "replacedlate"} {
		if got := c.search(word); len(got.Data) != 0 {
			t.Errorf("%s is found at %s", word, got.places())
		}
		if bytes.Contains(index, []byte(word)) {
			t.Errorf("%s is in a file of the index", word)
		}
	}
	if got, want := c.search("word").places(), "late#1 late#2 replaced#1 rewound#1 stays#1 stays#2"; got != want {
		t.Errorf("what is left is at %s, want %s", got, want)
	}
	c.do(204, "DELETE", "/v1/conversations", nil)
	if got := c.search("word").places(); got != "" {
		t.Errorf("after all was cleared %s is found", got)
	}
	if got := other.search("word"); len(got.Data) != 10 {
		t.Errorf("of another caller of that name %s is left", got.places())
	}
	d.stop()
	if left := contents(t, filepath.Join(d.dir, "index", "operator")); bytes.Contains(left, []byte("word")) {
		t.Error("a file of the index holds words that were cleared")
	}
}

// Whenever the process ends, all that was acknowledged is found after it, whether it was searched before or not.
func TestASearchFindsAllThatWasAcknowledgedBeforeAKill(t *testing.T) {
	t.Parallel()
	d := newDaemon(t)
	c := caller{d, d.token("operator", "ann", "")}
	d.begin()
	acked := map[string]string{} // where, by word
	var mu sync.Mutex
	for round := range 6 {
		var all sync.WaitGroup
		for w := range 3 {
			all.Go(func() {
				for i := 0; ; i++ {
					word := fmt.Sprintf("w%dx%dx%d", round, w, i)
					name := fmt.Sprint("c", i%3)
					status, b, _, err := c.try("POST", "/v1/conversations/"+name+"/turns", said(t, "about "+word))
					if err != nil {
						return // killed
					}
					if status != 201 {
						t.Errorf("append: %d %s", status, b)
						return
					}
					mu.Lock()
					acked[word] = fmt.Sprint(name, "#", decode[struct {
						Seq int64 `json:"first_seq"`
					}](t, b).Seq)
					enough := len(acked) > 60*(round+1)
					mu.Unlock()
					if i%7 == 0 && round%2 == 0 {
						_, _, _, _ = c.try("GET", "/v1/search?q="+word, nil)
					}
					if enough {
						d.kill()
					}
				}
			})
		}
		all.Wait()
		d.begin()
		if round == 3 {
			d.stop() // some of it is in files from now on
			d.begin()
		}
	}
	for word, place := range acked {
		out := c.search(word)
		if out.places() != place || out.Behind {
			t.Errorf("%s is found at %q, want %s", word, out.places(), place)
		}
	}
	if out := c.search("about", "sort", "newest"); len(out.Data) != 100 || out.Next == nil {
		t.Errorf("of %d it finds %d", len(acked), len(out.Data))
	}
	d.stop()
	checkSound(t, d)
	t.Logf("%d acknowledged", len(acked))
}
