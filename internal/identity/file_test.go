package identity

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"historyd/internal/durable"
)

const callersName = "callers.json"

// bench is a directory with a callers file in it.
type bench struct {
	dir  string
	fsys durable.FS
	file *File
}

func newBench(t testing.TB) bench {
	t.Helper()
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	fsys, err := durable.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { fsys.Close() })
	return bench{dir, fsys, OpenFile(fsys, callersName)}
}

func (b bench) path() string { return filepath.Join(b.dir, callersName) }

// plant writes the callers file by hand.
func (b bench) plant(t testing.TB, text string) {
	t.Helper()
	if err := os.WriteFile(b.path(), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func (b bench) content(t testing.TB) string {
	t.Helper()
	data, err := os.ReadFile(b.path())
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

func mustCreate(t testing.TB, f *File, n NewToken) (token, tokenID string) {
	t.Helper()
	token, tokenID, err := f.Create(n)
	if err != nil {
		t.Fatal(err)
	}
	return token, tokenID
}

func mesh(id string) Caller { return Caller{Kind: Mesh, ID: id} }

func uid(n uint32) *uint32 { return &n }

func TestWhatIsCreatedIsListedUntilAndAfterItIsRevoked(t *testing.T) {
	b := newBench(t)
	if list, err := b.file.List(); err != nil || len(list) != 0 {
		t.Fatalf("a missing file lists %v, %v", list, err)
	}
	alice := Caller{Operator, "alice", "all", "home"}
	expires := time.Date(2100, 1, 2, 3, 4, 5, 678, time.FixedZone("", 3600))
	_, first := mustCreate(t, b.file, NewToken{Caller: alice, UID: uid(1000)})
	_, second := mustCreate(t, b.file, NewToken{Caller: alice, Expires: expires})
	_, third := mustCreate(t, b.file, NewToken{Caller: mesh("bob")})
	for range 2 {
		if err := b.file.Revoke(second); err != nil {
			t.Fatal(err)
		}
	}
	list, err := b.file.List()
	if err != nil || len(list) != 3 {
		t.Fatalf("got %v, %v", list, err)
	}
	for i, want := range []TokenInfo{
		{ID: first, Caller: alice, UID: uid(1000)},
		{ID: second, Caller: alice, UID: uid(1000), Expires: expires},
		{ID: third, Caller: mesh("bob")},
	} {
		got := list[i]
		if got.ID != want.ID || got.Caller != want.Caller || !got.Expires.Equal(want.Expires) || got.Created.IsZero() {
			t.Errorf("got %+v, want %+v", got, want)
		}
		if (got.UID == nil) != (want.UID == nil) || got.UID != nil && *got.UID != *want.UID {
			t.Errorf("token %d: got uid %v, want %v", i, got.UID, want.UID)
		}
		if got.Revoked.IsZero() != (i != 1) {
			t.Errorf("token %d: revoked at %v", i, got.Revoked)
		}
	}
	if err := b.file.Revoke("tok_unknown"); !errors.Is(err, ErrUnknownToken) {
		t.Errorf("revoking an unknown id: %v", err)
	}
}

func TestATokenIsInNoFileAndTheFilesArePrivate(t *testing.T) {
	b := newBench(t)
	token, _ := mustCreate(t, b.file, NewToken{Caller: mesh("bob")})
	other, otherID := mustCreate(t, b.file, NewToken{Caller: mesh("bob")})
	if err := b.file.Revoke(otherID); err != nil {
		t.Fatal(err)
	}
	entries, err := os.ReadDir(b.dir)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
		data, err := os.ReadFile(filepath.Join(b.dir, e.Name()))
		if err != nil {
			t.Fatal(err)
		}
		for _, secret := range []string{token, other} {
			if bytes.Contains(data, []byte(secret[len(tokenPrefix):tokenLen-tokenCheck])) {
				t.Errorf("a token is in %s", e.Name())
			}
		}
		if info, err := e.Info(); err != nil || info.Mode() != 0o600 {
			t.Errorf("mode of %s is %v, %v", e.Name(), info.Mode(), err)
		}
	}
	if want := []string{callersName, callersName + ".lock"}; !slices.Equal(names, want) {
		t.Errorf("got files %q, want %q", names, want)
	}
}

func TestCreateRefusesWhatDisagreesWithTheFile(t *testing.T) {
	b := newBench(t)
	alice := Caller{Mesh, "alice", "read", "home"}
	mustCreate(t, b.file, NewToken{Caller: alice, UID: uid(1000)})
	mustCreate(t, b.file, NewToken{Caller: mesh("carol")})
	before := b.content(t)
	for _, tt := range []struct {
		name string
		n    NewToken
		want error
		text string
	}{
		{"another workspace", NewToken{Caller: Caller{Mesh, "alice", "read", "away"}}, ErrConflict, "workspace"},
		{"no workspace", NewToken{Caller: Caller{Mesh, "alice", "read", ""}}, ErrConflict, "workspace"},
		{"uid of another caller", NewToken{Caller: mesh("bob"), UID: uid(1000)}, ErrConflict, "uid 1000"},
		{"uid of another caller for one that is there", NewToken{Caller: mesh("carol"), UID: uid(1000)}, ErrConflict, "uid 1000"},
		{"another uid", NewToken{Caller: alice, UID: uid(1001)}, ErrConflict, "uid 1000"},
		{"the uid nobody is mapped to", NewToken{Caller: mesh("bob"), UID: uid(65534)}, ErrInvalid, "uid 65534"},
		{"the uid that is none", NewToken{Caller: mesh("bob"), UID: uid(4294967295)}, ErrInvalid, "uid 4294967295"},
		{"expired", NewToken{Caller: mesh("bob"), Expires: time.Unix(1, 0)}, ErrInvalid, "expired"},
		{"nobody", NewToken{}, ErrInvalid, "kind"},
		{"no kind", NewToken{Caller: Caller{Kind: "x", ID: "bob"}}, ErrInvalid, "kind"},
		{"control character", NewToken{Caller: mesh("b\nb")}, ErrInvalid, "id"},
		{"too long", NewToken{Caller: mesh(strings.Repeat("x", 257))}, ErrInvalid, "id"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			token, id, err := b.file.Create(tt.n)
			if !errors.Is(err, tt.want) || token != "" || id != "" {
				t.Fatalf("got %q, %q, %v, want %v", token, id, err, tt.want)
			}
			if !strings.Contains(err.Error(), tt.text) || strings.Contains(err.Error(), "alice") {
				t.Errorf("the error says %q, which should speak of %q and name nobody", err, tt.text)
			}
			if after := b.content(t); after != before {
				t.Errorf("the file changed from %s to %s", before, after)
			}
		})
	}
	for name, n := range map[string]NewToken{
		"the same again":        {Caller: alice},
		"the same with uid":     {Caller: alice, UID: uid(1000)},
		"another kind":          {Caller: Caller{Operator, "alice", "read", "away"}},
		"another scope":         {Caller: Caller{Mesh, "alice", "", "away"}},
		"a uid for one at last": {Caller: mesh("carol"), UID: uid(0)},
	} {
		if _, _, err := b.file.Create(n); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

const createHelper = "HISTORYD_TEST_CREATE_IN"

// TestMain is also the process that creates tokens beside the test.
func TestMain(m *testing.M) {
	dir := os.Getenv(createHelper)
	if dir == "" {
		os.Exit(m.Run())
	}
	fsys, err := durable.Open(dir)
	if err == nil {
		err = createMany(OpenFile(fsys, callersName), fmt.Sprint("process ", os.Getpid()), perWriter)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

const perWriter = 5

func createMany(f *File, id string, n int) error {
	for range n {
		if _, _, err := f.Create(NewToken{Caller: mesh(id)}); err != nil {
			return err
		}
	}
	return nil
}

func TestConcurrentCreatesLoseNone(t *testing.T) {
	b := newBench(t)
	const processes, goroutines = 3, 6
	var wg sync.WaitGroup
	for range processes {
		wg.Go(func() {
			cmd := exec.Command(os.Args[0])
			cmd.Env = append(os.Environ(), createHelper+"="+b.dir)
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Errorf("process: %v: %s", err, out)
			}
		})
	}
	for i := range goroutines {
		wg.Go(func() {
			f := b.file
			if i%2 == 0 {
				f = OpenFile(b.fsys, callersName) // with no mutex in common
			}
			if err := createMany(f, fmt.Sprint("goroutine ", i), perWriter); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	list, err := b.file.List()
	if want := (processes + goroutines) * perWriter; err != nil || len(list) != want {
		t.Errorf("got %d tokens, %v, want %d", len(list), err, want)
	}
}

func TestOneCallerFromManyWritersIsOneCaller(t *testing.T) {
	b := newBench(t)
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			if err := createMany(b.file, "bob", 3); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	doc, err := b.file.read(false)
	if err != nil || len(doc.Callers) != 1 || len(doc.Callers[0].Tokens) != 12 {
		t.Errorf("got %+v, %v, want one caller with 12 tokens", doc, err)
	}
}

func TestAFileThatIsNotOursAloneIsRefused(t *testing.T) {
	for _, tt := range []struct {
		name string
		make func(b bench) error
		root bool
		text string
	}{
		{"symbolic link", func(b bench) error {
			if err := os.WriteFile(filepath.Join(b.dir, "elsewhere"), []byte(`{"version":1}`), 0o600); err != nil {
				return err
			}
			return os.Symlink("elsewhere", b.path())
		}, false, "link"},
		{"link to nothing", func(b bench) error { return os.Symlink("nothing", b.path()) }, false, "link"},
		{"directory", func(b bench) error { return os.Mkdir(b.path(), 0o700) }, false, ""},
		{"readable by others", func(b bench) error {
			if err := os.WriteFile(b.path(), []byte(`{"version":1}`), 0o600); err != nil {
				return err
			}
			return os.Chmod(b.path(), 0o644)
		}, false, "chmod 600"},
		{"another owner", func(b bench) error {
			if err := os.WriteFile(b.path(), []byte(`{"version":1}`), 0o600); err != nil {
				return err
			}
			return os.Chown(b.path(), 4321, 4321)
		}, true, "uid 4321"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if tt.root && os.Geteuid() != 0 {
				t.Skip("needs root")
			}
			b := newBench(t)
			if err := tt.make(b); err != nil {
				t.Fatal(err)
			}
			before, err := os.Lstat(b.path())
			if err != nil {
				t.Fatal(err)
			}
			_, _, err = b.file.Create(NewToken{Caller: mesh("bob")})
			if !errors.Is(err, durable.ErrUnsafe) || !strings.Contains(err.Error(), tt.text) {
				t.Errorf("create: got %v, want ErrUnsafe that says %q", err, tt.text)
			}
			if _, err := NewRegistry(Options{File: b.file, Path: b.path()}); !errors.Is(err, durable.ErrUnsafe) {
				t.Errorf("registry: got %v, want ErrUnsafe", err)
			}
			after, err := os.Lstat(b.path())
			if err != nil || !os.SameFile(before, after) || before.Mode() != after.Mode() {
				t.Errorf("the file was replaced: %v", err)
			}
			if _, err := os.Lstat(b.path() + ".lock"); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("a lock file of ours stands beside a file that is not: %v", err)
			}
		})
	}
}

func TestCheckOwnerNamesTheUserToRunAs(t *testing.T) {
	b := newBench(t)
	b.plant(t, `{"version":1}`)
	missing := filepath.Join(b.dir, "missing.json")
	for _, name := range []string{b.path(), missing, filepath.Join(b.dir, "no", "such", "directory.json")} {
		if err := CheckOwner(name); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	if os.Geteuid() != 0 {
		t.Skip("the rest needs root")
	}
	for _, name := range []string{b.path(), b.dir} {
		if err := os.Chown(name, 4321, 4321); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{b.path(), missing} {
		if err := CheckOwner(name); err == nil || !strings.Contains(err.Error(), "sudo -u '#4321'") {
			t.Errorf("%s: got %v", name, err)
		}
	}
}

func TestLeftoversOfAKilledWriterAreSwept(t *testing.T) {
	b := newBench(t)
	for _, name := range []string{".callers.json.tmp-ABC", "other.tmp-ABC"} {
		if err := os.WriteFile(filepath.Join(b.dir, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	mustCreate(t, b.file, NewToken{Caller: mesh("bob")})
	names, err := filepath.Glob(filepath.Join(b.dir, "*tmp-*"))
	if want := []string{filepath.Join(b.dir, "other.tmp-ABC")}; err != nil || !slices.Equal(names, want) {
		t.Errorf("got %q, %v, want %q", names, err, want)
	}
}
