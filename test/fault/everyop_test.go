package fault

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"historyd/internal/durable/crashfs"
)

// places runs fn for every operation of the script, or every so many, on two daemons at once. It goes on until fn reports
// some times on end that the script was shorter: what is done beside the requests is not always as much. None of them
// reached would be a disk that nobody broke.
func places(t *testing.T, stride int, fn func(t *testing.T, at int) (reached bool)) {
	var mu sync.Mutex
	next, missed, took, met := rand.IntN(stride), 0, 0, 0
	enough := max(1, 30/stride)
	t.Run("at", func(t *testing.T) {
		for range 2 {
			t.Run("each", func(t *testing.T) {
				t.Parallel()
				for {
					mu.Lock()
					at, done := next, missed >= enough
					next += stride
					mu.Unlock()
					if done || t.Failed() {
						return
					}
					reached := fn(t, at)
					mu.Lock()
					took++
					if missed++; reached {
						missed = 0
						met++
					}
					mu.Unlock()
				}
			})
		}
	})
	t.Logf("%d runs, at every %dth operation up to %d, %d reached", took, stride, next, met)
	if met == 0 && !t.Failed() {
		t.Error("no operation was reached")
	}
}

// every is 1 if there is time for all.
func every(stride int) int {
	switch {
	case *long:
		return 1
	case testing.Short():
		return 4 * stride
	}
	return stride
}

// TestKillAtEveryOperation kills the daemon at each operation of a script on its disk, before or after its effect, and in
// half of the runs ends the power with it. What is found then is there after another power cut, too.
func TestKillAtEveryOperation(t *testing.T) {
	mustMount(t)
	im := newImage(t)
	for _, tt := range []struct{ after, power bool }{{false, false}, {true, false}, {false, true}, {true, true}} {
		what := fmt.Sprintf("after its effect %t, power cut %t", tt.after, tt.power)
		t.Run(what, func(t *testing.T) {
			places(t, every(53), func(t *testing.T, at int) bool {
				rng := rand.New(rand.NewPCG(uint64(at), 3))
				b := newBroken(t, im, im.load(t), fmt.Sprintf("killed at operation %d, %s", at, what))
				defer b.unmount()
				b.s.begin()
				bystander := b.bystander()
				reached := b.killAt(at, tt.after)
				b.script()
				b.s.kill()
				b.fsys.Heal()
				if tt.power {
					b.cut(rng)
				}
				b.recover()
				b.cut(rng)
				b.recover()
				bystander(t)
				b.retry(rng)
				b.more()
				b.cut(rng)
				b.recover()
				return reached.load()
			})
		})
	}
}

// TestFaultAtEveryOperation has each operation of a script on the disk fail, once or from then on, in each of the ways in
// which it may. Then the disk is whole again, and the daemon goes on without a restart; and then it, or the power, ends.
func TestFaultAtEveryOperation(t *testing.T) {
	mustMount(t)
	im := newImage(t)
	hows := []crashfs.How{crashfs.Before, crashfs.After, crashfs.Short}
	for i, fault := range []syscall.Errno{syscall.EIO, syscall.ENOSPC, syscall.EROFS, syscall.EMFILE} {
		t.Run(unix.ErrnoName(fault), func(t *testing.T) {
			places(t, every(61), func(t *testing.T, at int) bool {
				reached := false
				for j, how := range hows {
					for k, sticky := range []bool{false, true} {
						// Each place fails in all ways, but with one error in each; otherwise in one way.
						if kind := at + i + j + 3*k; *long && kind%4 != 0 || !*long && kind%6 != 0 {
							continue
						}
						reached = im.faultAt(t, at, how, fault, sticky) || reached
					}
				}
				return reached || !*long && at < 400
			})
		})
	}
}

func (im image) faultAt(t *testing.T, at int, how crashfs.How, fault syscall.Errno, sticky bool) bool {
	rng := rand.New(rand.NewPCG(uint64(at), uint64(how)))
	fsys := im.load(t)
	fsys.CountReads = at%2 == 0
	b := newBroken(t, im, fsys, fmt.Sprintf("operation %d fails %s with %v, sticky %t", at, how, fault, sticky))
	defer b.unmount()
	b.s.begin()
	bystander := b.bystander()
	b.fsys.FailAt(b.fsys.Ops()+at, how, fault, sticky)
	b.script()
	reached := b.fsys.Reached()
	b.fsys.Heal()
	if b.figures.doubtful > 0 {
		b.fatalf("%d requests got no answer", b.figures.doubtful)
	}
	if n := b.figures.refused; n > 1 && !sticky {
		b.fatalf("%d requests are refused for one fault", n)
	}
	b.more()
	b.verify()
	if a := b.s.try("GET", "/readyz", nil); a.status != 200 {
		b.fatalf("not ready after the disk has healed: %s", a.body)
	}
	bystander(t)
	if rng.IntN(2) == 0 {
		b.cut(rng)
	}
	b.s.kill()
	b.recover()
	b.cut(rng)
	b.recover()
	bystander(t)
	return reached
}

// once is set by the disk and read by the test.
type once struct {
	mu  sync.Mutex
	set bool
}

func (f *once) load() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.set
}

// killAt kills the daemon at an operation from now.
func (b *broken) killAt(at int, after bool) *once {
	at += b.fsys.Ops()
	f := &once{}
	b.fsys.FailWhen(func(op crashfs.Op) error {
		f.mu.Lock()
		defer f.mu.Unlock()
		if op.Index >= at && !f.set {
			f.set = true
			b.s.Strike()
			if after {
				return nil
			}
		}
		if f.set {
			return syscall.EIO // what others of its threads are about to do is not done
		}
		return nil
	})
	return f
}

// more appends to what was found.
func (b *broken) more() {
	b.t.Helper()
	for _, c := range b.shared {
		if a := b.append(c, b.next(2), true); a.status != 201 {
			b.fatalf("an append after it: %d %.300s", a.status, a.body)
		}
	}
}

// TestAFailedSyncIsNotRepeated has the sync of an append fail once. The kernel answers another one with success for bytes
// that are gone, so the append is refused, and when it is sent again it is there after a power cut.
func TestAFailedSyncIsNotRepeated(t *testing.T) {
	mustMount(t)
	t.Parallel()
	im := newImage(t)
	b := newBroken(t, im, im.load(t), "a sync fails")
	defer b.unmount()
	b.s.begin()
	c := b.shared[0]
	b.append(c, b.next(2), true)
	for round := range 4 {
		next := b.next(2)
		if round%2 == 1 { // so that the page is in the kernel's cache
			b.verify()
		}
		var failed atomic.Bool
		b.fsys.FailWhen(func(op crashfs.Op) error {
			if op.Kind == "Sync" && strings.HasSuffix(op.Name, ".jsonl") && failed.CompareAndSwap(false, true) {
				return syscall.EIO
			}
			return nil
		})
		if a := b.append(c, next, true); a.status != 503 || a.code() != "unavailable" {
			b.fatalf("an append whose sync fails: %d %.300s", a.status, a.body)
		}
		if a := b.append(c, next, true); a.status != 201 {
			b.fatalf("sent again: %d %.300s", a.status, a.body)
		}
		b.verify()
		b.cut(rng(round))
		b.recover()
	}
}
