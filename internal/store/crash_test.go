package store

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"path"
	"slices"
	"strings"
	"syscall"
	"testing"

	"historyd/internal/durable/crashfs"
	"historyd/internal/history"
)

// script goes through everything that writes.
var script = []step{
	appends("a", "1", 1, true),
	appends("a", "p2", 3, false),
	takes("b", "3", 5, history.Create),
	shows("b"),
	groups("a", "g4", 3),
	summarises("a"),
	shows("a"),
	appends("a", "4z", 4, false),
	summarises("a"),
	appends("b", "5", 1, true),
	takes("b", "p6", 3, history.Extend),
	shows("b"),
	takes("b", "p6", 3, history.Extend),
	summarises("b"),
	takes("b", "6y", 5, history.Extend),
	rewinds("b", 2),
	appends("a", "7", 2, true),
	shows("b"),
	clears("a"),
	shows("a"),
	appends("a", "8", 1, true),
	takes("b", "9", 2, history.Replace),
	shows("b"),
	appends("c", "10", 1, false),
	clears("c"),
	shows("c"),
	appends("c", "p11", 1, true),
	appends("c", "11", 2, true),
	rewinds("c", 1),
	appends("c", "15", 1, false),
	restarts,
	appends("a", "12", 1, false),
	groups("b", "g13", 2),
	rewinds("b", 0),
	shows("c"),
	clears("b"),
	appends("c", "14", 1, true),
	shows("c"),
	expires("c"),
	shows("c"),
	appends("c", "16", 1, true),
	shows("c"),
}

var faults = []error{syscall.ENOSPC, syscall.EIO, syscall.EMFILE, syscall.EROFS}

// run does the script on a file system that may fail. If once, nothing but the step
// that met the fault may fail; healed is called after that one, if it is not nil.
func (w *world) run(fsys *crashfs.FS, script []step, once bool, healed func(s *Store, failed step)) {
	w.t.Helper()
	failed := false
	met := func(err error) bool {
		if err == nil {
			return false
		}
		if !fsys.Reached() || failed && (once || healed != nil) {
			w.fatalf("without a fault at that step: %v", err)
		}
		first := !failed
		failed = true
		return first
	}
	open := func() *Store {
		s, err := start(fsys)
		if met(err) {
			if healed != nil {
				fsys.Heal()
			}
			s, err = start(fsys)
			met(err)
		}
		return s
	}
	s := open()
	for _, step := range script {
		if s == nil {
			return
		}
		if step.do == nil {
			_ = s.Close()
			w.died()
			s = open()
			continue
		}
		if met(step.do(w, s.Log(ann, step.conversation))) && healed != nil {
			healed(s, step)
		}
		exact(w.t, w.what, s, fsys, ann)
	}
	if s != nil && !fsys.Reached() {
		_ = s.Close()
	}
}

// after looks at what the next process finds, twice with a power cut between, and
// then writes more.
func (w *world) after(rng *rand.Rand, fsys *crashfs.FS) {
	w.t.Helper()
	w.died()
	w.sound(fsys)
	s, err := start(fsys)
	if err != nil {
		w.fatalf("the next process does not start: %v", err)
	}
	w.look(s)
	fsys = fsys.Crash(rng)
	w.sound(fsys)
	if s, err = start(fsys); err != nil {
		w.fatalf("the process after that does not start: %v", err)
	}
	w.look(s)
	for _, batch := range slices.Sorted(maps.Keys(w.keys)) {
		w.retry(s, batch)
	}
	for _, conversation := range []string{"a", "b", "c", "d"} {
		for i := range 2 {
			w.must(s, appends(conversation, fmt.Sprint("more", i), 2, true))
		}
	}
	w.look(s)
	exact(w.t, w.what, s, fsys, ann)
	if _, ok, _ := booked(s, ann); !ok {
		w.fatalf("nobody has weighed what the caller has")
	}
	if err := s.Ready(); err != nil {
		w.fatalf("not ready: %v", err)
	}
	if err := s.Close(); err != nil {
		w.fatalf("Close: %v", err)
	}
	if n := fsys.OpenHandles(); n != 0 {
		w.fatalf("%d files are open after Close", n)
	}
	if sum := w.sound(fsys); sum.Torn != 0 {
		w.fatalf("torn ends are left: %+v", sum)
	}
	w.tidy(fsys)
}

// retry sends a batch with a key again, as a client does who got no answer. It must
// be there once, whether it was there before or not.
func (w *world) retry(s *Store, batch string) {
	w.t.Helper()
	k := w.keys[batch]
	w.must(s, appends(k.conversation, batch, k.messages, true))
}

func (w *world) must(s *Store, step step) {
	w.t.Helper()
	if err := step.do(w, s.Log(ann, step.conversation)); err != nil {
		w.fatalf("after recovery: %v", err)
	}
}

func (w *world) look(s *Store) {
	w.t.Helper()
	for _, conversation := range []string{"a", "b", "c"} {
		w.must(s, shows(conversation))
	}
}

// sound wants no finding of Check.
func (w *world) sound(fsys *crashfs.FS) CheckSummary {
	w.t.Helper()
	found, sum := check(w.t, fsys)
	if len(found) > 0 {
		w.fatalf("check finds %v", found)
	}
	return sum
}

// tidy wants nothing left of what was put aside for a moment.
func (w *world) tidy(fsys *crashfs.FS) {
	w.t.Helper()
	for name := range fsys.Files() {
		if leftOver(name) {
			w.fatalf("%s is left over", name)
		}
	}
}

// faultsAt runs fn for every operation and each way in which it can fail.
func faultsAt(t *testing.T, reads bool, fn func(at int, how crashfs.How, fault error, sticky bool) (reached bool)) {
	for _, sticky := range []bool{false, true} {
		for _, how := range []crashfs.How{crashfs.Before, crashfs.After, crashfs.Short} {
			// Other operations in each of the combinations, where there is not time for all:
			// each of them fails in each way, once or for good.
			skip := stride(17)
			if skip == 1 && !thorough() {
				skip = 2
			}
			first := int(how)
			if sticky {
				first++
			}
			for at, reached := first%skip, true; reached; at += skip {
				if reads && how == crashfs.Short {
					break
				}
				reached = false
				for i, fault := range faults {
					if thorough() || (at+int(how))%len(faults) == i {
						reached = fn(at, how, fault, sticky) || reached
					}
				}
			}
		}
	}
}

func TestCrashAtEveryWrite(t *testing.T) { crashAtEvery(t, false) }

func TestCrashAtEveryRead(t *testing.T) { crashAtEvery(t, true) }

func crashAtEvery(t *testing.T, reads bool) {
	t.Parallel()
	runs := 0
	faultsAt(t, reads, func(at int, how crashfs.How, fault error, sticky bool) bool {
		reached := false
		for end := range 2 {
			if !thorough() && (end+at/2)%2 == 1 {
				continue
			}
			rng := rand.New(rand.NewPCG(uint64(at), uint64(how)))
			w := newWorld(t, fmt.Sprintf("operation %d fails %s with %q, sticky %t, end %d", at, how, fault, sticky, end))
			fsys := crashfs.New()
			fsys.CountReads = reads
			fsys.FailAt(at, how, fault, sticky)
			w.run(fsys, script, !sticky, nil)
			reached = fsys.Reached()
			if runs++; end == 0 {
				w.after(rng, fsys.Kill())
			} else {
				w.after(rng, fsys.Crash(rng))
			}
		}
		return reached
	})
	t.Logf("%d runs", runs)
}

func TestCrashNotWhenTheDiskHeals(t *testing.T) {
	t.Parallel()
	faultsAt(t, false, func(at int, how crashfs.How, fault error, sticky bool) bool {
		w := newWorld(t, fmt.Sprintf("operation %d fails %s with %q, sticky %t, and heals", at, how, fault, sticky))
		fsys := crashfs.New()
		fsys.CountReads = false
		fsys.FailAt(at, how, fault, sticky)
		w.run(fsys, script, !sticky, func(s *Store, failed step) {
			if failed.writes && s.Ready() == nil {
				w.fatalf("ready after a failed write to %s", failed.conversation)
			}
			fsys.Heal()
			w.must(s, appends(failed.conversation, "healed", 2, false))
			if err := s.Ready(); err != nil {
				w.fatalf("not ready after the disk has healed: %v", err)
			}
			w.must(s, shows(failed.conversation))
		})
		rng := rand.New(rand.NewPCG(uint64(at), 1))
		w.after(rng, fsys.Crash(rng))
		return fsys.Reached()
	})
}

// TestCrashWhatIsShownAfterAFailureStays ends each script at its first failure, lets
// the disk heal, reads anew what the failure may have left, and cuts the power.
func TestCrashWhatIsShownAfterAFailureStays(t *testing.T) {
	t.Parallel()
	faultsAt(t, false, func(at int, how crashfs.How, fault error, sticky bool) bool {
		w := newWorld(t, fmt.Sprintf("operation %d fails %s with %q, sticky %t, and what is left is read", at, how, fault, sticky))
		fsys := crashfs.New()
		fsys.CountReads = false
		s, err := start(fsys)
		if err != nil {
			t.Fatal(err)
		}
		for _, conversation := range []string{"x", "y", "z"} {
			w.must(s, appends(conversation, "1", 1, false))
		}
		fsys.FailAt(fsys.Ops()+at, how, fault, sticky)
		for _, step := range script {
			if step.do == nil || step.do(w, s.Log(ann, step.conversation)) == nil {
				continue
			}
			fsys.Heal()
			for _, conversation := range []string{"x", "y", "z"} { // so that nothing else is open
				w.must(s, shows(conversation))
			}
			w.must(s, shows(step.conversation))
			w.must(s, shows(step.conversation))
			break
		}
		reached := fsys.Reached()
		w.after(rng(at), fsys.Crash(rng(at)))
		return reached
	})
}

// TestCrashOperationsAreInOrder looks at what no power cut shows: what is done before
// what, in case a file system keeps less than the one of these tests.
func TestCrashOperationsAreInOrder(t *testing.T) {
	t.Parallel()
	b := newBook(t, 2)
	dir := path.Dir(b.files["a"])
	ops := func(do func(l history.Log)) string {
		fsys := b.closed.Kill()
		s := mustOpen(t, fsys)
		l := s.Log(ann, "a")
		texts(t, l)
		var done []string
		failed := false
		fsys.FailWhen(func(op crashfs.Op) error {
			name := strings.NewReplacer(dir, "conversation", path.Dir(dir), "caller").Replace(op.Name)
			if i := strings.Index(name, trashName+"/"); i >= 0 {
				name = "grave"
			}
			if op.Kind != "ReadDir" && op.Kind != "List" && op.Kind != "ReadAt" {
				done = append(done, op.Kind+" "+path.Base(name))
			}
			if op.Kind == "WriteAt" && !failed {
				failed = true
				return syscall.ENOSPC
			}
			return nil
		})
		do(l)
		fsys.Heal()
		_ = s.Close()
		return strings.Join(done, ", ")
	}
	cleared := ops(func(l history.Log) { _ = l.Clear(t.Context()) })
	if want := "Rename conversation, SyncDir caller, SyncDir trash, Remove grave, Remove grave, Remove grave, SyncDir trash, SyncDir staging"; cleared != want {
		t.Errorf("a clear does %s; want %s", cleared, want)
	}
	failed := ops(func(l history.Log) { _, _ = l.Append(t.Context(), batch("more")) })
	if want := "Open 00000001.jsonl, WriteAt 00000001.jsonl, Truncate 00000001.jsonl, Sync 00000001.jsonl"; failed != want {
		t.Errorf("an append that the disk has no room for does %s; want %s", failed, want)
	}
}

// TestCrashRandomScripts lets several processes after one another do anything, each
// with a fault somewhere, each ended by a kill or a power cut.
func TestCrashRandomScripts(t *testing.T) {
	t.Parallel()
	for seed := range crashSeeds() * 10 / stride(8) {
		rng := rand.New(rand.NewPCG(uint64(seed), 7))
		w := newWorld(t, fmt.Sprintf("seed %d", seed))
		fsys := crashfs.New()
		fsys.CountReads = rng.IntN(3) == 0
		for life := range 4 {
			w.what = fmt.Sprintf("seed %d, life %d", seed, life)
			sticky := rng.IntN(2) == 0
			how, fault := crashfs.How(rng.IntN(3)), faults[rng.IntN(len(faults))]
			fsys.FailAt(rng.IntN(150), how, fault, sticky)
			w.run(fsys, w.randomScript(rng, life), !sticky, nil)
			if rng.IntN(2) == 0 {
				fsys = fsys.Kill()
			} else {
				fsys = fsys.Crash(rng)
			}
			w.died()
			w.sound(fsys)
		}
		w.what = fmt.Sprintf("seed %d, the end", seed)
		w.after(rng, fsys)
	}
}

func (w *world) randomScript(rng *rand.Rand, life int) []step {
	var steps []step
	for i := range 20 {
		conversation := []string{"a", "b", "c"}[rng.IntN(3)]
		batch := fmt.Sprintf("%d.%d", life, i)
		n := rng.IntN(4) + 1
		if rng.IntN(4) == 0 {
			batch = "p" + batch
		}
		switch rng.IntN(16) {
		case 15:
			steps = append(steps, expires(conversation), shows(conversation))
		case 13, 14:
			steps = append(steps, summarises(conversation))
		case 12:
			steps = append(steps, rewinds(conversation, rng.IntN(4)), shows(conversation))
		case 0:
			steps = append(steps, groups(conversation, "g"+strings.TrimPrefix(batch, "p"), n))
		case 1:
			steps = append(steps, takes(conversation, batch, n, history.Create))
		case 2:
			steps = append(steps, takes(conversation, batch, n, history.Replace))
		case 3:
			extend := takes(conversation, batch, n, history.Extend)
			steps = append(steps, extend, extend)
		case 4:
			steps = append(steps, clears(conversation))
		case 5:
			steps = append(steps, restarts)
		case 6, 7:
			steps = append(steps, shows(conversation))
		case 8, 9:
			once := appends(conversation, batch, n, true)
			steps = append(steps, once, once)
		default:
			steps = append(steps, appends(conversation, batch, n, rng.IntN(2) == 0))
		}
	}
	return steps
}
