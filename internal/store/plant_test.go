package store

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"historyd/internal/durable"
	"historyd/internal/history"
	"historyd/internal/identity"
)

// plants are what may stand where a file or a directory of ours should be. Each gets
// the name to stand at, and a directory outside.
var plants = map[string]func(name, outside string) error{
	"a link to a file":         func(name, outside string) error { return os.Symlink(filepath.Join(outside, "file"), name) },
	"a link to a directory":    func(name, outside string) error { return os.Symlink(outside, name) },
	"a link to nothing":        func(name, outside string) error { return os.Symlink(filepath.Join(outside, "new"), name) },
	"a pipe":                   func(name, _ string) error { return syscall.Mkfifo(name, 0o600) },
	"a file that others read":  func(name, _ string) error { return looseFile(name, 0o644) },
	"a file that others write": func(name, _ string) error { return looseFile(name, 0o602) },
	"a directory open to others": func(name, _ string) error {
		return errors.Join(os.Mkdir(name, 0o700), os.Chmod(name, 0o755))
	},
	"a directory": func(name, _ string) error { return os.Mkdir(name, 0o700) },
	"a file":      func(name, _ string) error { return looseFile(name, 0o600) },
}

func looseFile(name string, mode fs.FileMode) error {
	return errors.Join(os.WriteFile(name, []byte("planted\n"), 0o600), os.Chmod(name, mode))
}

// garden is a data directory with two callers, the first of whom has two conversations.
func garden(t *testing.T) (dir string, callers map[string]identity.Scope) {
	t.Helper()
	dir = privateDir(t)
	s, err := onDisk(dir)
	if err != nil {
		t.Fatal(err)
	}
	callers = map[string]identity.Scope{"ann": ann, "bob": scopeOf(t, identity.Operator, "bob", "")}
	for _, c := range [][2]string{{"ann", "victim"}, {"ann", "other"}, {"bob", "other"}} {
		if _, err := s.Log(callers[c[0]], c[1]).Append(t.Context(), batch("text of "+c[0])); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	return dir, callers
}

func TestWhatIsPlantedIsNotFollowed(t *testing.T) {
	t.Parallel()
	conversation := transcriptsName + "/" + ann.Dir() + "/" + ann.Conversation("victim")
	for _, tt := range []struct {
		name  string
		isDir bool
		start bool     // the store starts all the same
		fine  []string // who goes on
	}{
		{name: lockName}, {name: formatName},
		{name: transcriptsName, isDir: true}, {name: trashName, isDir: true}, {name: stagingName, isDir: true},
		{name: stagingName + "/note"},
		{name: trashName + "/grave", isDir: true, start: true, fine: []string{"ann/other", "bob/other"}},
		{name: transcriptsName + "/operator", isDir: true},
		{name: transcriptsName + "/" + ann.Dir(), isDir: true, start: true, fine: []string{"bob/other"}},
		{name: conversation, isDir: true, start: true, fine: []string{"ann/other", "bob/other"}},
		{name: conversation + "/" + segmentName(1), start: true, fine: []string{"ann/other", "bob/other"}},
		{name: conversation + "/" + segmentName(2), start: true, fine: []string{"ann/other", "bob/other"}},
	} {
		for kind, plant := range plants {
			if tt.isDir && kind == "a directory" || !tt.isDir && kind == "a file" {
				continue // that is what belongs there
			}
			if tt.name == transcriptsName+"/"+ann.Dir() && kind == "a directory open to others" {
				continue // nobody comes as far, past the data directory; check tells
			}
			t.Run(strings.ReplaceAll(tt.name, "/", "_")+" "+kind, func(t *testing.T) {
				dir, callers := garden(t)
				outside := t.TempDir()
				if err := os.WriteFile(filepath.Join(outside, "file"), []byte("outside\n"), 0o600); err != nil {
					t.Fatal(err)
				}
				name := filepath.Join(dir, tt.name)
				if err := errors.Join(os.RemoveAll(name), plant(name, outside)); err != nil {
					t.Fatal(err)
				}
				reported := checkReports(t, dir)
				if !reported && tt.name != lockName && !strings.HasPrefix(tt.name, trashName+"/") && !strings.HasPrefix(tt.name, stagingName+"/") {
					t.Error("check says nothing of it")
				}
				inTime(t, func() { live(t, dir, callers, tt.start, tt.fine) })
				text, err := os.ReadFile(filepath.Join(outside, "file"))
				names, _ := os.ReadDir(outside)
				if err != nil || !bytes.Equal(text, []byte("outside\n")) || len(names) != 1 {
					t.Errorf("outside there is now %v, the file says %q: %v", names, text, err)
				}
			})
		}
	}
}

// inTime fails if fn does not return: it waits for a pipe.
func inTime(t *testing.T, fn func()) {
	t.Helper()
	done := make(chan struct{})
	go func() {
		defer close(done)
		fn()
	}()
	select {
	case <-done:
	case <-time.After(time.Minute):
		t.Fatal("it does not come back")
	}
}

// live starts a store and uses it.
func live(t *testing.T, dir string, callers map[string]identity.Scope, starts bool, fine []string) {
	s, err := onDisk(dir)
	if err != nil {
		if starts || !errors.Is(err, durable.ErrUnsafe) {
			t.Errorf("start: %v", err)
		}
		return
	}
	defer s.Close()
	if !starts {
		t.Error("the store starts")
	}
	victim := s.Log(ann, "victim")
	state, err := victim.State(t.Context())
	if !errors.Is(err, history.ErrUnavailable) && len(fine) < 2 {
		t.Errorf("the state of what stands in the wrong place: %+v, %v", state, err)
	}
	if _, err := victim.Append(t.Context(), batch("secret")); err == nil && len(fine) == 0 {
		t.Error("an append to it went through")
	}
	for _, who := range []string{"ann/other", "bob/other"} {
		caller, conversation, _ := strings.Cut(who, "/")
		l := s.Log(callers[caller], conversation)
		_, err := l.Append(t.Context(), batch("more"))
		if (err == nil) != slices.Contains(fine, who) {
			t.Errorf("append to %s: %v", who, err)
		}
		if err == nil {
			wantContent(t, who, l, []string{"1:text of " + caller, "2:more"})
		}
		if listing, err := s.List(t.Context(), callers[caller], "", 10); slices.Contains(fine, who) && (err != nil || len(listing.Items) == 0) {
			t.Errorf("list of %s: %+v, %v", caller, listing, err)
		}
	}
	if len(fine) == 2 { // what can be reached can be cleared
		if err := victim.Clear(t.Context()); err != nil {
			t.Errorf("Clear: %v", err)
		}
		if _, err := victim.Append(t.Context(), batch("again")); err != nil {
			t.Errorf("append after a clear: %v", err)
		}
	}
}

func checkReports(t *testing.T, dir string) bool {
	t.Helper()
	fsys, err := durable.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer fsys.Close()
	found := false
	if _, err := Check(context.Background(), fsys, func(Finding) { found = true }, nil); err != nil {
		return true
	}
	return found
}
