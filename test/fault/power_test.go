package fault

import (
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// goingDown is the request of ext4 and XFS to stop at once, without writing what is in memory, not even the journal's:
// for what is on the disk it is a power cut.
const goingDown, noFlush = 0x8004587d, 2

// cutPower does that to a mounted file system.
func cutPower(t testing.TB, dir string) {
	t.Helper()
	f, err := os.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := unix.IoctlSetPointerInt(int(f.Fd()), goingDown, noFlush); err != nil {
		t.Fatalf("cut the power of %s: %v", dir, err)
	}
}

// TestPowerCutsOfRealFileSystems cuts the power of a file system under load, and mounts it anew. In half of the runs the
// daemon was killed before, and another had shown what that one left.
func TestPowerCutsOfRealFileSystems(t *testing.T) {
	for _, tt := range []struct {
		name string
		mkfs []string
	}{
		{"ext4", []string{"mkfs.ext4", "-q", "-F"}},
		{"xfs", []string{"mkfs.xfs", "-q", "-f"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			cuts := 10
			switch {
			case *long:
				cuts = 300
			case testing.Short():
				cuts = 3
			}
			powerCuts(t, cuts, tt.mkfs)
		})
	}
}

func powerCuts(t *testing.T, cuts int, mkfs []string) {
	if _, err := exec.LookPath(mkfs[0]); err != nil {
		t.Skipf("there is no %s, so no power is cut", mkfs[0])
	}
	below := scratch(t)
	image := below + ".img"
	if err := os.WriteFile(image, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(image, 320<<20); err != nil { // the least that XFS takes
		t.Fatal(err)
	}
	if out, err := exec.Command(mkfs[0], append(mkfs[1:], image)...).CombinedOutput(); err != nil {
		t.Fatalf("%v: %v: %s", mkfs, err, out)
	}
	dir := t.TempDir()
	mount := func() error {
		if out, err := exec.Command("mount", "-o", "loop", image, dir).CombinedOutput(); err != nil {
			return fmt.Errorf("%w: %s", err, out)
		}
		return nil
	}
	if err := mount(); err != nil {
		t.Skipf("no image can be mounted here, so no power is cut: %v", err)
	}
	mounted := true
	t.Cleanup(func() {
		if mounted {
			unmount(t, dir)
		}
	})
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	s := newServer(t, filepath.Join(dir, "data"), nil)
	d := newDriver(t, s, 4)
	s.begin()
	bystander := d.bystander()
	for cut := range cuts {
		d.what = fmt.Sprintf("power cut %d", cut)
		d.load(rng, func() {
			if cut%2 == 0 {
				// While it goes down, XFS lets a sync succeed whose part of the journal is dropped.
				d.dark.Store(true)
				cutPower(t, dir)
			}
		})
		s.kill()
		d.dark.Store(false)
		if cut%2 == 1 {
			s.begin()
			d.verify()
			cutPower(t, dir)
			s.kill()
		}
		err := unix.Unmount(dir, 0)
		for end := time.Now().Add(patience); err == unix.EBUSY && time.Now().Before(end); err = unix.Unmount(dir, 0) {
			time.Sleep(time.Millisecond) // a process that is being forked has our files open for a moment
		}
		if err != nil {
			d.fatalf("unmount: %v", err)
		}
		mounted = false
		if err := mount(); err != nil {
			d.fatalf("mount: %v", err)
		}
		mounted = true
		d.again(rng)
		d.verify()
		bystander(t)
		d.sweep(filesOf(t, s.dir))
		d.prune(rng)
		d.figures.blows++
	}
	s.kill()
	t.Logf("%v: 0 lost, 0 duplicated, 0 resurrected, 0 silent", d.figures)
}

// load has clients use the daemon for a moment, and ends it in mid-air, after what blow does.
func (d *driver) load(rng *rand.Rand, blow func()) {
	d.work(rng, func() {
		blow()
		d.s.Strike()
	})
}

// work has many clients at work when the blow comes, and until it has come.
func (d *driver) work(rng *rand.Rand, blow func()) {
	var clients sync.WaitGroup
	stop := make(chan struct{})
	for range 6 {
		own := rand.New(rand.NewPCG(rng.Uint64(), 0))
		clients.Go(func() { d.client(own, stop) })
	}
	time.Sleep(time.Duration(rng.IntN(60_000)) * time.Microsecond)
	blow()
	close(stop)
	clients.Wait()
}
