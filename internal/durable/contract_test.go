package durable_test

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"strings"
	"syscall"
	"testing"

	"historyd/internal/durable"
	"historyd/internal/durable/crashfs"
)

// both runs a test on the disk and on crashfs.
func both(t *testing.T, test func(t *testing.T, fsys durable.FS)) {
	t.Run("disk", func(t *testing.T) {
		fsys, _ := scratch(t)
		test(t, fsys)
	})
	t.Run("crashfs", func(t *testing.T) {
		f := crashfs.New()
		test(t, f)
		if n := f.OpenHandles(); n != 0 {
			t.Errorf("%d files or locks left open", n)
		}
	})
}

// scratch opens a new directory of the disk.
func scratch(t *testing.T) (durable.FS, string) {
	t.Helper()
	dir := t.TempDir()
	must(t, os.Chmod(dir, 0o700))
	fsys, err := durable.Open(dir)
	must(t, err)
	t.Cleanup(func() { must(t, fsys.Close()) })
	return fsys, dir
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func wantErr(t *testing.T, what string, got, want error) {
	t.Helper()
	if !errors.Is(got, want) {
		t.Errorf("%s: got error %v, want %v", what, got, want)
	}
}

func put(t *testing.T, fsys durable.FS, name, data string) {
	t.Helper()
	f, err := fsys.Create(name)
	must(t, err)
	_, err = f.WriteAt([]byte(data), 0)
	must(t, err)
	must(t, f.Close())
}

func content(t *testing.T, fsys durable.FS, name string) string {
	t.Helper()
	f, err := fsys.Open(name, false)
	must(t, err)
	data, err := io.ReadAll(io.NewSectionReader(f, 0, 1<<30))
	must(t, err)
	must(t, f.Close())
	return string(data)
}

// tree lists all that is below a directory, directories with a slash.
func tree(t *testing.T, fsys durable.FS, name string) string {
	t.Helper()
	entries, err := fsys.ReadDir(name)
	must(t, err)
	var out []string
	for _, e := range entries {
		path := strings.TrimPrefix(name+"/"+e.Name, "./")
		if !e.Dir {
			out = append(out, path)
			continue
		}
		out = append(out, path+"/")
		if below := tree(t, fsys, path); below != "" {
			out = append(out, below)
		}
	}
	return strings.Join(out, " ")
}

func TestAFileKeepsWhatIsWritten(t *testing.T) {
	both(t, func(t *testing.T, fsys durable.FS) {
		f, err := fsys.Create("a")
		must(t, err)
		for _, w := range []struct {
			off  int64
			data string
		}{{0, "hello"}, {8, "world"}, {1, "u"}} {
			if n, err := f.WriteAt([]byte(w.data), w.off); n != len(w.data) || err != nil {
				t.Fatalf("WriteAt(%q, %d) = %d, %v", w.data, w.off, n, err)
			}
		}
		must(t, f.Sync())
		must(t, f.DropCache())
		if got, want := content(t, fsys, "a"), "hullo\x00\x00\x00world"; got != want {
			t.Errorf("got %q, want %q", got, want)
		}
		must(t, f.Truncate(3))
		must(t, f.Truncate(5))
		if size, err := f.Size(); size != 5 || err != nil {
			t.Errorf("Size() = %d, %v, want 5", size, err)
		}
		buf := make([]byte, 4)
		if n, err := f.ReadAt(buf, 2); string(buf[:n]) != "l\x00\x00" || err != io.EOF {
			t.Errorf("ReadAt over the end = %q, %v", buf[:n], err)
		}
		if n, err := f.ReadAt(buf, 9); n != 0 || err != io.EOF {
			t.Errorf("ReadAt behind the end = %d, %v", n, err)
		}
		if _, err := f.ReadAt(buf, -1); err == nil {
			t.Error("ReadAt before the start: no error")
		}
		must(t, f.Close())
		wantErr(t, "second Close", f.Close(), fs.ErrClosed)
		wantErr(t, "Sync after Close", f.Sync(), fs.ErrClosed)
		_, err = f.WriteAt(buf, 0)
		wantErr(t, "WriteAt after Close", err, fs.ErrClosed)
	})
}

func TestAFileOpenedForReadingCannotBeWritten(t *testing.T) {
	both(t, func(t *testing.T, fsys durable.FS) {
		put(t, fsys, "a", "x")
		f, err := fsys.Open("a", false)
		must(t, err)
		if n, err := f.WriteAt([]byte("y"), 0); n != 0 || err == nil {
			t.Errorf("WriteAt = %d, %v, want an error", n, err)
		}
		if f.Truncate(0) == nil {
			t.Error("Truncate: no error")
		}
		must(t, f.Close())
	})
}

func TestEveryOperationSaysWhatIsWrong(t *testing.T) {
	both(t, func(t *testing.T, fsys durable.FS) {
		must(t, fsys.Mkdir("d"))
		must(t, fsys.Mkdir("d/full"))
		put(t, fsys, "d/full/x", "")
		put(t, fsys, "f", "")
		put(t, fsys, "g", "")
		create := func(name string) error { _, err := fsys.Create(name); return err }
		open := func(name string) error { _, err := fsys.Open(name, true); return err }
		read := func(name string) error { _, err := fsys.ReadDir(name); return err }
		lock := func(name string) error { _, err := fsys.Lock(name); return err }
		for _, tt := range []struct {
			what string
			got  error
			want error
		}{
			{"create over a file", create("f"), fs.ErrExist},
			{"create over a directory", create("d"), fs.ErrExist},
			{"create in no directory", create("no/x"), fs.ErrNotExist},
			{"create in a file", create("f/x"), durable.ErrUnsafe},
			{"open nothing", open("no"), fs.ErrNotExist},
			{"open a directory", open("d"), durable.ErrUnsafe},
			{"mkdir over a directory", fsys.Mkdir("d"), fs.ErrExist},
			{"mkdir over a file", fsys.Mkdir("f"), fs.ErrExist},
			{"mkdir in nothing", fsys.Mkdir("no/x"), fs.ErrNotExist},
			{"list nothing", read("no"), fs.ErrNotExist},
			{"list a file", read("f"), durable.ErrUnsafe},
			{"rename nothing", fsys.Rename("no", "x"), fs.ErrNotExist},
			{"rename over a file", fsys.Rename("f", "g"), fs.ErrExist},
			{"rename to itself", fsys.Rename("f", "f"), fs.ErrExist},
			{"rename to no directory", fsys.Rename("f", "no/x"), fs.ErrNotExist},
			{"rename into itself", fsys.Rename("d", "d/full/y"), syscall.EINVAL},
			{"replace a directory by a file", fsys.Replace("f", "d/full"), syscall.EISDIR},
			{"replace a file by a directory", fsys.Replace("d", "f"), syscall.ENOTDIR},
			{"replace with nothing", fsys.Replace("no", "f"), fs.ErrNotExist},
			{"exchange with nothing", fsys.Exchange("f", "no"), fs.ErrNotExist},
			{"exchange with what is inside", fsys.Exchange("d", "d/full"), syscall.EINVAL},
			{"link over a file", fsys.Link("f", "g"), fs.ErrExist},
			{"link to nothing", fsys.Link("no", "x"), fs.ErrNotExist},
			{"link to a directory", fsys.Link("d", "x"), fs.ErrPermission},
			{"remove nothing", fsys.Remove("no"), fs.ErrNotExist},
			{"remove a full directory", fsys.Remove("d/full"), syscall.ENOTEMPTY},
			{"sync nothing", fsys.SyncDir("no"), fs.ErrNotExist},
			{"sync a file as a directory", fsys.SyncDir("f"), durable.ErrUnsafe},
			{"lock a directory", lock("d"), durable.ErrUnsafe},
			{"lock in no directory", lock("no/x"), fs.ErrNotExist},
		} {
			wantErr(t, tt.what, tt.got, tt.want)
		}
		if got, want := tree(t, fsys, "."), "d/ d/full/ d/full/x f g"; got != want {
			t.Errorf("left %q, want %q", got, want)
		}
	})
}

func TestOnlyLocalNamesAreAccepted(t *testing.T) {
	both(t, func(t *testing.T, fsys durable.FS) {
		must(t, fsys.Mkdir("d"))
		put(t, fsys, "f", "")
		for _, name := range []string{"", "/", "/x", "..", "../x", "d/../x", "d/", "d//x", "./x", "d/./x", "a\x00b", "\x00/b"} {
			_, errCreate := fsys.Create(name)
			_, errOpen := fsys.Open(name, false)
			_, errList := fsys.ReadDir(name)
			_, errLock := fsys.Lock(name)
			for op, err := range map[string]error{
				"Create": errCreate, "Open": errOpen, "ReadDir": errList, "Lock": errLock,
				"Mkdir": fsys.Mkdir(name), "Remove": fsys.Remove(name), "SyncDir": fsys.SyncDir(name),
				"Rename": fsys.Rename("f", name), "Replace": fsys.Replace(name, "f"), "Exchange": fsys.Exchange("f", name),
				"Link": fsys.Link("f", name), "MkdirAll": durable.MkdirAll(fsys, name),
				"RemoveAll": durable.RemoveAll(fsys, name), "WriteFile": durable.WriteFile(fsys, name, nil),
			} {
				wantErr(t, op+" "+name, err, fs.ErrInvalid)
			}
		}
		wantErr(t, "remove the root", fsys.Remove("."), fs.ErrInvalid)
		wantErr(t, "open the root", func() error { _, err := fsys.Open(".", false); return err }(), fs.ErrInvalid)
		if got, want := tree(t, fsys, "."), "d/ f"; got != want {
			t.Errorf("left %q, want %q", got, want)
		}
	})
}

func TestNamesMove(t *testing.T) {
	both(t, func(t *testing.T, fsys durable.FS) {
		must(t, fsys.Mkdir("d"))
		must(t, fsys.Mkdir("e"))
		put(t, fsys, "d/a", "A")
		put(t, fsys, "e/b", "B")
		put(t, fsys, "c", "C")
		must(t, fsys.Exchange("d", "e"))
		must(t, fsys.Exchange("d/b", "c"))
		must(t, fsys.Rename("e/a", "a"))
		must(t, fsys.Link("a", "e/link"))
		must(t, fsys.Replace("a", "c"))
		must(t, fsys.Replace("c", "e/link")) // One file under two names: both stay.
		must(t, fsys.Rename("d", "e/d"))
		if got, want := tree(t, fsys, "."), "c e/ e/d/ e/d/b e/link"; got != want {
			t.Errorf("got %q, want %q", got, want)
		}
		for name, want := range map[string]string{"c": "A", "e/link": "A", "e/d/b": "C"} {
			if got := content(t, fsys, name); got != want {
				t.Errorf("%s: got %q, want %q", name, got, want)
			}
		}
		must(t, fsys.SyncDir("e/d"))
		must(t, fsys.SyncAll())
	})
}

func TestAListTellsKindSizeAndMode(t *testing.T) {
	both(t, func(t *testing.T, fsys durable.FS) {
		put(t, fsys, "b", "four")
		must(t, fsys.Mkdir("a"))
		entries, err := fsys.ReadDir(".")
		must(t, err)
		want := []durable.Entry{
			{Name: "a", Dir: true, Mode: fs.ModeDir | 0o700},
			{Name: "b", Size: 4, Mode: 0o600},
		}
		if len(entries) != 2 || entries[0] != want[0] || entries[1] != want[1] {
			t.Errorf("got %v, want %v", entries, want)
		}
	})
}

func TestARemovedFileLivesWhileItIsOpen(t *testing.T) {
	both(t, func(t *testing.T, fsys durable.FS) {
		put(t, fsys, "a", "still here")
		f, err := fsys.Open("a", true)
		must(t, err)
		must(t, fsys.Remove("a"))
		put(t, fsys, "a", "another")
		buf := make([]byte, 5)
		if _, err := f.ReadAt(buf, 0); string(buf) != "still" || err != nil {
			t.Errorf("ReadAt = %q, %v", buf, err)
		}
		must(t, f.Close())
	})
}

func TestALockShutsOthersOut(t *testing.T) {
	both(t, func(t *testing.T, fsys durable.FS) {
		lock, err := fsys.Lock("LOCK")
		must(t, err)
		_, err = fsys.Lock("LOCK")
		wantErr(t, "second lock", err, durable.ErrLocked)
		must(t, lock.Close())
		lock, err = fsys.Lock("LOCK")
		must(t, err)
		must(t, lock.Close())
	})
}

func TestFreeIsWhatFilesMayStillTake(t *testing.T) {
	disk, _ := scratch(t)
	free, size, err := disk.Free()
	if err != nil || free <= 0 || size < free {
		t.Errorf("disk: %d of %d bytes are free, error %v", free, size, err)
	}
	f := crashfs.New()
	if _, size, err := f.Free(); err != nil || size != 0 {
		t.Errorf("without a limit: size %d, error %v, want 0 for one that is not told", size, err)
	}
	f.SetCapacity(100)
	put(t, f, "a", strings.Repeat("x", 30))
	must(t, f.Link("a", "b"))
	if free, size, err := f.Free(); err != nil || free != 70 || size != 100 {
		t.Errorf("a file of 30 bytes in 100: %d of %d are free, error %v", free, size, err)
	}
}

func TestAClosedFSRefuses(t *testing.T) {
	disk, err := durable.OpenAny(t.TempDir())
	must(t, err)
	for name, fsys := range map[string]durable.FS{"disk": disk, "crashfs": crashfs.New()} {
		f, err := fsys.Create("f")
		must(t, err)
		must(t, fsys.Close())
		wantErr(t, name+" second Close", fsys.Close(), fs.ErrClosed)
		wantErr(t, name+" Mkdir", fsys.Mkdir("x"), fs.ErrClosed)
		wantErr(t, name+" SyncAll", fsys.SyncAll(), fs.ErrClosed)
		_, _, err = fsys.Free()
		wantErr(t, name+" Free", err, fs.ErrClosed)
		_, err = f.WriteAt([]byte("x"), 0)
		must(t, err)
		must(t, f.Close())
	}
}

func TestWriteFileReplaces(t *testing.T) {
	both(t, func(t *testing.T, fsys durable.FS) {
		must(t, fsys.Mkdir("d"))
		for _, want := range []string{"one", "", "three"} {
			must(t, durable.WriteFile(fsys, "d/f", []byte(want)))
			if got := content(t, fsys, "d/f"); got != want {
				t.Errorf("got %q, want %q", got, want)
			}
		}
		must(t, fsys.Mkdir("dir"))
		wantErr(t, "WriteFile over a directory", durable.WriteFile(fsys, "dir", nil), syscall.EISDIR)
		if got, want := tree(t, fsys, "."), "d/ d/f dir/"; got != want {
			t.Errorf("left %q, want %q", got, want)
		}
	})
}

func TestMkdirAllAndRemoveAll(t *testing.T) {
	both(t, func(t *testing.T, fsys durable.FS) {
		must(t, durable.MkdirAll(fsys, "."))
		must(t, durable.MkdirAll(fsys, "a/b/c"))
		must(t, durable.MkdirAll(fsys, "a/b"))
		must(t, durable.MkdirAll(fsys, "a/b/d"))
		put(t, fsys, "a/b/c/f", "")
		wantErr(t, "MkdirAll over a file", durable.MkdirAll(fsys, "a/b/c/f"), durable.ErrUnsafe)
		wantErr(t, "MkdirAll in a file", durable.MkdirAll(fsys, "a/b/c/f/g"), durable.ErrUnsafe)
		if got, want := tree(t, fsys, "."), "a/ a/b/ a/b/c/ a/b/c/f a/b/d/"; got != want {
			t.Errorf("got %q, want %q", got, want)
		}
		must(t, durable.RemoveAll(fsys, "a/b/c/f"))
		must(t, durable.RemoveAll(fsys, "no"))
		must(t, durable.RemoveAll(fsys, "a/no/no"))
		must(t, durable.RemoveAll(fsys, "a"))
		if got := tree(t, fsys, "."); got != "" {
			t.Errorf("left %q", got)
		}
	})
}

func TestManyGoroutinesShareAnFS(t *testing.T) {
	both(t, func(t *testing.T, fsys durable.FS) {
		shared, err := fsys.Create("shared")
		must(t, err)
		errs := make(chan error)
		for i := range int64(8) {
			go func() {
				_, err := shared.WriteAt([]byte{byte('a' + i)}, i)
				name := "own" + string(rune('a'+i))
				errs <- errors.Join(err, shared.Sync(), durable.WriteFile(fsys, name, []byte("x")), fsys.Remove(name))
			}()
		}
		for range 8 {
			must(t, <-errs)
		}
		if got := content(t, fsys, "shared"); got != "abcdefgh" {
			t.Errorf("got %q", got)
		}
		must(t, shared.Close())
	})
}
