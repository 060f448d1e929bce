package crashfs_test

import (
	"bytes"
	"errors"
	"io/fs"
	"maps"
	"math/rand/v2"
	"slices"
	"syscall"
	"testing"

	"historyd/internal/durable"
	"historyd/internal/durable/crashfs"
)

const seeds = 300

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func create(t *testing.T, f *crashfs.FS, name string) durable.File {
	t.Helper()
	file, err := f.Create(name)
	must(t, err)
	return file
}

func write(t *testing.T, file durable.File, off int64, data string) {
	t.Helper()
	_, err := file.WriteAt([]byte(data), off)
	must(t, err)
}

// again returns what the process after f finds, with a file of it opened.
func again(t *testing.T, f *crashfs.FS, name string) (*crashfs.FS, durable.File) {
	t.Helper()
	f = f.Kill()
	file, err := f.Open(name, true)
	must(t, err)
	return f, file
}

// failSync makes one Sync of a file fail before its effect.
func failSync(t *testing.T, f *crashfs.FS, file durable.File) {
	t.Helper()
	f.FailAt(f.Ops(), crashfs.Before, syscall.EIO, false)
	if err := file.Sync(); !errors.Is(err, syscall.EIO) {
		t.Fatalf("Sync: got %v, want EIO", err)
	}
	f.Heal()
}

// outcomes crashes f many times and counts each content of a file; "-" is no file.
func outcomes(f *crashfs.FS, name string) map[string]int {
	counts := map[string]int{}
	for seed := range uint64(seeds) {
		got := "-"
		if data, ok := f.Crash(rand.New(rand.NewPCG(seed, 0))).Files()[name]; ok {
			got = string(data)
		}
		counts[got]++
	}
	return counts
}

// wantOutcomes says that after a crash a file is each of some contents at times, and never another one.
func wantOutcomes(t *testing.T, f *crashfs.FS, name string, want ...string) {
	t.Helper()
	got := outcomes(f, name)
	for _, w := range want {
		if got[w] == 0 {
			t.Errorf("%s: never %q after a crash", name, w)
		}
		delete(got, w)
	}
	if len(got) > 0 {
		t.Errorf("%s: also %v after a crash", name, got)
	}
}

func TestWhatIsSyncedStays(t *testing.T) {
	f := crashfs.New()
	a := create(t, f, "a")
	write(t, a, 0, "hello")
	must(t, a.Sync())
	wantOutcomes(t, f, "a", "-", "hello")

	f = f.Kill()
	must(t, f.SyncDir("."))
	wantOutcomes(t, f, "a", "hello")
}

func TestWhatIsNotSyncedMayBeLostOrTorn(t *testing.T) {
	f := crashfs.New()
	a := create(t, f, "a")
	must(t, f.SyncDir("."))
	write(t, a, 0, "xy")
	wantOutcomes(t, f, "a", "", "\x00", "\x00\x00", "x", "x\x00", "xy")

	f, a = again(t, f, "a")
	must(t, a.Sync())
	write(t, a, 0, "Z")
	write(t, a, 2, "!")
	wantOutcomes(t, f, "a", "xy", "Zy", "xy\x00", "Zy\x00", "xy!", "Zy!")

	f, a = again(t, f, "a")
	must(t, a.Sync())
	must(t, a.Truncate(1))
	wantOutcomes(t, f, "a", "Zy!", "Z")
}

func TestALostWriteReadsAsNULsBeforeOneThatWasKept(t *testing.T) {
	f := crashfs.New()
	a := create(t, f, "a")
	must(t, f.SyncAll())
	write(t, a, 0, "first")
	write(t, a, 5, "second")
	if got := outcomes(f, "a"); got["\x00\x00\x00\x00\x00second"] == 0 {
		t.Errorf("never: %q", slices.Collect(maps.Keys(got)))
	}
}

func TestWritesAreTornAtSectorsToo(t *testing.T) {
	f := crashfs.New()
	a := create(t, f, "a")
	must(t, f.SyncDir("."))
	write(t, a, 0, string(bytes.Repeat([]byte("x"), 4096)))
	sector, odd := 0, 0
	for got, n := range outcomes(f, "a") {
		switch kept := bytes.Count([]byte(got), []byte("x")); {
		case kept == 0 || kept == 4096:
		case kept%512 == 0:
			sector += n
		default:
			odd += n
		}
	}
	if sector == 0 || odd == 0 {
		t.Errorf("torn at sectors %d times, elsewhere %d times", sector, odd)
	}
}

func TestAFailedSyncLosesForGood(t *testing.T) {
	f := crashfs.New()
	a := create(t, f, "a")
	write(t, a, 0, "good")
	must(t, f.SyncAll())
	write(t, a, 4, "bad")
	failSync(t, f, a)
	must(t, a.Sync())
	if got := string(f.Files()["a"]); got != "goodbad" {
		t.Errorf("before a crash: got %q", got)
	}
	wantOutcomes(t, f, "a", "good", "good\x00", "good\x00\x00", "good\x00\x00\x00")
	f, a = again(t, f, "a")
	must(t, a.DropCache())
	must(t, a.Sync())
	wantOutcomes(t, f, "a", "good\x00\x00\x00")

	f, a = again(t, f, "a") // The page cache is still there, and so is the gap.
	write(t, a, 7, "!")
	must(t, a.Sync())
	wantOutcomes(t, f, "a", "good\x00\x00\x00!")

	f, a = again(t, f, "a")
	write(t, a, 5, "A")
	write(t, a, 8, "?")
	must(t, a.DropCache())
	if got, want := string(f.Files()["a"]), "good\x00A\x00!?"; got != want {
		t.Errorf("after DropCache: got %q, want %q", got, want)
	}
	must(t, a.Sync())
	wantOutcomes(t, f, "a", "good\x00A\x00!?")
}

func TestAFailedSyncDoesNotBringBackWhatWasCut(t *testing.T) {
	f := crashfs.New()
	a := create(t, f, "a")
	write(t, a, 0, "keep, secret")
	must(t, f.SyncAll())
	must(t, a.Truncate(4))
	write(t, a, 4, "!")
	failSync(t, f, a)
	must(t, a.Sync())
	wantOutcomes(t, f, "a", "keep", "keep\x00")
}

func TestAFailedSyncIsToldOnceToEveryFileThatWasOpen(t *testing.T) {
	f := crashfs.New()
	a := create(t, f, "a")
	other, err := f.Open("a", true)
	must(t, err)
	write(t, a, 0, "x")
	failSync(t, f, a)
	if err := other.Sync(); !errors.Is(err, syscall.EIO) {
		t.Errorf("other file: got %v, want EIO", err)
	}
	must(t, other.Sync())
	must(t, a.Sync())
	late, err := f.Open("a", true)
	must(t, err)
	must(t, late.Sync())

	write(t, a, 0, "y")
	f.FailAt(f.Ops(), crashfs.Before, syscall.EIO, false)
	if err := f.SyncAll(); !errors.Is(err, syscall.EIO) {
		t.Errorf("SyncAll: got %v, want EIO", err)
	}
	if err := a.Sync(); !errors.Is(err, syscall.EIO) {
		t.Errorf("file after a failed SyncAll: got %v, want EIO", err)
	}
}

func TestNamesAreLostFromTheEnd(t *testing.T) {
	f := crashfs.New()
	for _, name := range []string{"a", "b", "c"} {
		create(t, f, name)
	}
	got := map[string]int{}
	for seed := range uint64(seeds) {
		names := ""
		for _, name := range slices.Sorted(maps.Keys(f.Crash(rand.New(rand.NewPCG(seed, 0))).Files())) {
			names += name
		}
		got[names]++
	}
	if len(got) != 4 || got[""]*got["a"]*got["ab"]*got["abc"] == 0 {
		t.Errorf("got %v, want each of nothing, a, ab, abc and no other", got)
	}
}

func TestARenameInOneDirectoryIsAtomicAndBetweenTwoIsNot(t *testing.T) {
	f := crashfs.New()
	must(t, f.Mkdir("d"))
	must(t, f.Mkdir("d/sub"))
	a, b := create(t, f, "a"), create(t, f, "b")
	create(t, f, "d/sub/x")
	write(t, a, 0, "A")
	write(t, b, 0, "B")
	must(t, f.SyncAll())
	must(t, f.Exchange("a", "b"))
	must(t, f.Rename("d/sub", "sub"))
	seen := map[string]bool{}
	for seed := range uint64(seeds) {
		next := f.Crash(rand.New(rand.NewPCG(seed, 0)))
		files := next.Files()
		switch ab := string(files["a"]) + string(files["b"]); ab {
		case "AB", "BA":
			seen[ab] = true
		default:
			t.Fatalf("seed %d: an exchange was torn: %q", seed, ab)
		}
		_, before := files["d/sub/x"]
		_, after := files["sub/x"]
		switch {
		case before && after:
			seen["both"] = true
			must(t, durable.RemoveAll(next, "d/sub"))
			if _, ok := next.Files()["sub/x"]; !ok {
				t.Fatalf("seed %d: the two directories are one", seed)
			}
		case !before && !after:
			seen["neither"] = true
		}
	}
	for _, want := range []string{"AB", "BA", "both", "neither"} {
		if !seen[want] {
			t.Errorf("never %s", want)
		}
	}
}

func TestDirectoriesThatSwapPlacesDoNotMakeACircle(t *testing.T) {
	f := crashfs.New()
	must(t, durable.MkdirAll(f, "a/b"))
	must(t, f.SyncAll())
	must(t, f.Rename("a/b", "b"))
	must(t, f.Rename("a", "b/a"))
	for seed := range uint64(seeds) {
		next := f.Crash(rand.New(rand.NewPCG(seed, 0)))
		next.Files() // Would not end.
		must(t, durable.RemoveAll(next, "a"))
		must(t, durable.RemoveAll(next, "b"))
	}
}

func TestFaultsHitTheOperationTheyAreMeantFor(t *testing.T) {
	for _, tt := range []struct {
		how    crashfs.How
		sticky bool
		want   string // the content after three writes of two bytes, the second of which fails
	}{
		{crashfs.Before, false, "aa\x00\x00cc"},
		{crashfs.Before, true, "aa"},
		{crashfs.After, false, "aabbcc"},
		{crashfs.After, true, "aabbcc"},
		{crashfs.Short, false, "aab\x00cc"},
	} {
		f := crashfs.New()
		a := create(t, f, "a")
		f.FailAt(2, tt.how, syscall.EIO, tt.sticky)
		for i, data := range []string{"aa", "bb", "cc"} {
			n, err := a.WriteAt([]byte(data), int64(2*i))
			if fails := i == 1 || i == 2 && tt.sticky; fails != errors.Is(err, syscall.EIO) {
				t.Errorf("%v, sticky %t: write %d: %d, %v", tt.how, tt.sticky, i, n, err)
			}
		}
		got := string(f.Files()["a"])
		if tt.how == crashfs.Short && got == "aa\x00\x00cc" {
			got = tt.want // Nothing is a strict prefix too.
		}
		if got != tt.want || !f.Reached() || f.Ops() != 4 {
			t.Errorf("%v, sticky %t: got %q, want %q; reached %t, %d operations",
				tt.how, tt.sticky, got, tt.want, f.Reached(), f.Ops())
		}
		f.Heal()
		write(t, a, 0, "z")
	}
}

func TestAnOpenThatFailsAfterItsEffectLeavesNothingOpen(t *testing.T) {
	f := crashfs.New()
	f.FailAt(0, crashfs.After, syscall.EMFILE, true)
	_, errCreate := f.Create("a")
	_, errLock := f.Lock("LOCK")
	f.Heal()
	if !errors.Is(errCreate, syscall.EMFILE) || !errors.Is(errLock, syscall.EMFILE) || f.OpenHandles() != 0 {
		t.Errorf("got %v, %v, %d open", errCreate, errLock, f.OpenHandles())
	}
	if _, ok := f.Files()["a"]; !ok {
		t.Error("the file was not made")
	}
	_, err := f.Lock("LOCK")
	must(t, err)
}

func TestFailWhenSeesEveryOperation(t *testing.T) {
	f := crashfs.New()
	f.CountReads = false
	var ops []crashfs.Op
	f.FailWhen(func(op crashfs.Op) error {
		ops = append(ops, op)
		if op.Kind == "Link" {
			return syscall.EMLINK
		}
		return nil
	})
	a := create(t, f, "a")
	write(t, a, 3, "x")
	_, err := a.Size()
	must(t, err)
	if err := f.Link("a", "b"); !errors.Is(err, syscall.EMLINK) || !f.Reached() {
		t.Errorf("Link: got %v, reached %t", err, f.Reached())
	}
	want := []crashfs.Op{
		{Index: 0, Kind: "Create", Name: "a"},
		{Index: 1, Kind: "WriteAt", Name: "a", Off: 3, Data: []byte("x")},
		{Index: -1, Kind: "Size", Name: "a"},
		{Index: 2, Kind: "Link", Name: "a", To: "b"},
	}
	same := func(a, b crashfs.Op) bool {
		return a.Index == b.Index && a.Kind == b.Kind && a.Name == b.Name && a.To == b.To && a.Off == b.Off &&
			bytes.Equal(a.Data, b.Data)
	}
	if !slices.EqualFunc(ops, want, same) {
		t.Errorf("got %+v, want %+v", ops, want)
	}
}

func TestAFullDiskTakesWhatFits(t *testing.T) {
	f := crashfs.New()
	f.SetCapacity(6)
	a := create(t, f, "a")
	write(t, a, 0, "1234")
	if n, err := a.WriteAt([]byte("5678"), 4); n != 2 || !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("WriteAt over the limit = %d, %v, want 2, ENOSPC", n, err)
	}
	write(t, a, 1, "xxxxx")
	_, errCreate := f.Create("b")
	if errMkdir := f.Mkdir("d"); !errors.Is(errCreate, syscall.ENOSPC) || !errors.Is(errMkdir, syscall.ENOSPC) {
		t.Errorf("Create: %v, Mkdir: %v, want ENOSPC", errCreate, errMkdir)
	}
	must(t, f.Remove("a"))
	if _, err := f.Create("b"); !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("Create while the removed file is open: got %v, want ENOSPC", err)
	}
	if got := string(f.Files()["(deleted) a"]); got != "1xxxxx" {
		t.Errorf("removed file: got %q", got)
	}
	must(t, a.Close())
	create(t, f, "b")
	f.SetCapacity(-1)
	must(t, f.Mkdir("d"))
}

func TestKillEndsEveryHandleAndKeepsEveryByte(t *testing.T) {
	f := crashfs.New()
	a := create(t, f, "a")
	write(t, a, 0, "x")
	_, err := f.Lock("LOCK")
	must(t, err)
	next := f.Kill()
	_, errWrite := a.WriteAt([]byte("y"), 0)
	for what, err := range map[string]error{"Mkdir": f.Mkdir("d"), "WriteAt": errWrite, "Sync": a.Sync(), "Close": a.Close()} {
		if !errors.Is(err, fs.ErrClosed) {
			t.Errorf("%s after Kill: got %v, want %v", what, err, fs.ErrClosed)
		}
	}
	if got := string(next.Files()["a"]); got != "x" || next.OpenHandles() != 0 || next.Ops() != 0 {
		t.Errorf("got %q, %d open, %d operations", got, next.OpenHandles(), next.Ops())
	}
	_, err = next.Lock("LOCK")
	must(t, err)
}

func TestCorruptIsDurable(t *testing.T) {
	f := crashfs.New()
	write(t, create(t, f, "a"), 0, "abc")
	must(t, f.SyncDir("."))
	f.Corrupt("a", func(b []byte) []byte { b[1] = 'X'; return b })
	wantOutcomes(t, f, "a", "aXc")
}
