// Package growth measures work, so that a test can tell what grows with its input from what grows with the
// square of it, on a machine that is busy with something else.
package growth

import (
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// Work is the least processor time of the calling goroutine's thread that work takes in so many runs. What
// other goroutines do for it, and the collector, does not count.
func Work(t testing.TB, runs int, work func()) time.Duration {
	t.Helper()
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	least := time.Duration(1<<63 - 1)
	for range runs {
		began := spent(t)
		work()
		least = min(least, spent(t)-began)
	}
	return least
}

func spent(t testing.TB) time.Duration {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &ts); err != nil {
		t.Fatal(err)
	}
	return time.Duration(ts.Nano())
}
