package fault

import (
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"historyd/internal/durable/crashfs"
	"historyd/test/fault/disk"
)

// An image is what a data directory with callers holds, and their tokens.
type image struct {
	files    map[string][]byte
	ann, bob string
}

func newImage(t testing.TB) image {
	t.Helper()
	s := newServer(t, filepath.Join(t.TempDir(), "data"), nil)
	im := image{files: map[string][]byte{}, ann: s.token, bob: s.caller("mesh", "bob")}
	for name, data := range filesOf(t, s.dir) {
		rel, err := filepath.Rel(s.dir, name)
		if err != nil {
			t.Fatal(err)
		}
		im.files[rel] = data
	}
	return im
}

// load is a disk with the image on it.
func (im image) load(t testing.TB) *crashfs.FS {
	t.Helper()
	fsys := crashfs.New()
	for name, data := range im.files {
		if strings.Contains(name, "/") {
			t.Fatalf("a new data directory has %s", name)
		}
		f, err := fsys.Create(name)
		if err == nil {
			_, err = f.WriteAt(data, 0)
		}
		if err == nil {
			err = f.Close()
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	fsys.WriteBack()
	return fsys
}

// broken is a daemon on a disk that breaks. It may be mounted and started again and again.
type broken struct {
	*driver
	fsys    *crashfs.FS
	mounted *disk.Disk
}

// mustMount skips a test where no FUSE file system can be mounted.
func mustMount(t *testing.T) {
	t.Helper()
	dir := t.TempDir()
	d, err := disk.Mount(dir, crashfs.New())
	if err != nil {
		t.Skipf("no FUSE file system can be mounted here, so the built daemon meets no broken disk: %v", err)
	}
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
}

// newBroken starts a daemon on a disk that is whole yet.
func newBroken(t *testing.T, im image, fsys *crashfs.FS, what string) *broken {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "data")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	s := prepare(t, dir, nil)
	s.token = im.ann
	b := &broken{driver: newDriver(t, s, 2)}
	b.what = what
	t.Cleanup(func() { b.unmount() })
	b.mount(fsys)
	return b
}

func (b *broken) mount(fsys *crashfs.FS) {
	b.t.Helper()
	d, err := disk.Mount(b.s.dir, fsys)
	if err != nil {
		b.fatalf("%v", err)
	}
	b.fsys, b.mounted = fsys, d
}

func (b *broken) unmount() {
	b.s.kill()
	if b.mounted == nil {
		return
	}
	b.fsys.Heal()
	if err := b.mounted.Close(); err != nil {
		b.t.Errorf("%s: unmount: %v", b.what, err)
	}
	b.mounted = nil
}

// cut ends the daemon and the power.
func (b *broken) cut(rng *rand.Rand) {
	b.t.Helper()
	b.s.kill()
	next := b.fsys.Crash(rng)
	b.unmount()
	b.mount(next)
}

// recover starts the daemon, and holds what it finds to what may be there.
func (b *broken) recover() {
	b.t.Helper()
	if found := b.s.check(); len(found) > 0 {
		b.fatalf("check finds %v", found)
	}
	if err := b.s.start(); err != nil {
		b.fatalf("the next process does not start: %v", err)
	}
	b.driver.verify()
	files := map[string][]byte{}
	for name, data := range b.fsys.Files() {
		if !strings.HasPrefix(name, "(deleted) ") {
			files[name] = data
		}
	}
	b.driver.sweep(files)
}

// script goes through everything that writes. It ends early when the daemon does.
func (b *broken) script() {
	c0, c1 := b.shared[0], b.shared[1]
	rng := rand.New(rand.NewPCG(1, 1))
	for _, step := range []func() answer{
		func() answer { return b.append(c0, b.next(1), true) },
		func() answer { return b.append(c0, b.next(4), false) },
		func() answer { return b.append(c0, b.next(3), true) },
		func() answer { return b.replace(c1, b.next(2), b.next(4)) },
		func() answer { b.together(c0); return answer{status: 200} },
		func() answer { return b.append(c1, b.next(2), true) }, // with pictures
		func() answer { return b.look(c1) },
		func() answer { return b.extend(c1, b.next(3)) },
		func() answer { return b.recall(rng, c0) },
		func() answer { return b.rewind(rng, c0) },
		func() answer { return b.carry(c1) },
		func() answer { return b.fork(c0) },
		func() answer { return b.append(c0, b.next(1), true) },
		func() answer { return b.clear(c1) },
		func() answer { return b.append(c1, b.next(4), true) },
		func() answer { return b.replace(c1, b.next(1)) },
		func() answer { return b.conditional(c0, b.next(2), b.next(1)) },
		func() answer { return b.clear(c0) },
		func() answer { return b.create(c0, b.next(2)) },
		func() answer { return b.recall(rng, c1) },
		func() answer { return b.clearAll() },
		func() answer { return b.append(c0, b.next(2), true) },
		func() answer { return b.look(c0) },
		func() answer { return b.append(c1, b.next(1), true) },
	} {
		if a := step(); a.status == 0 && a.header == nil && !b.answers() {
			return
		}
	}
}

// look reads in several ways.
func (b *broken) look(c *conversation) (a answer) {
	for _, path := range []string{
		"/v1/search?q=picture", "/v1/conversations/" + c.name + "/replay?mode=full&format=gemini",
		"/v1/conversations/" + c.name + "/export?format=jsonl", "/v1/conversations",
	} {
		// A disk that has no space for a read is none that there is, but it is told as what it says.
		if a = b.s.try("GET", path, nil); !slices.Contains([]int{0, 200, 404, 503, 507}, a.status) {
			b.t.Errorf("%s: GET %s: %d %.300s", b.what, path, a.status, a.body)
		}
	}
	return a
}

// together is two appends at once.
func (b *broken) together(c *conversation) {
	var both sync.WaitGroup
	for _, next := range []batch{b.next(2), b.next(1)} {
		both.Go(func() { b.append(c, next, true) })
	}
	both.Wait()
}

// answers reports whether anything answers.
func (b *broken) answers() bool { return b.s.try("GET", "/healthz", nil).status != 0 }
