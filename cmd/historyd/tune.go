package main

import (
	"os"
	"runtime"
	"runtime/debug"
)

const (
	// besideCache is the memory that the process needs besides its cache. The
	// manual of store.cache gives it.
	besideCache = 24 << 20
	// gcPercent lets the small heap of an idle daemon grow before it is collected;
	// the memory limit takes over where that would be too much.
	gcPercent = 400
	// minProcs is how many goroutines may be in Go code at the least. One that waits
	// for a sync counts as such until the scheduler notices, some 20 µs to 10 ms; with
	// one or two cores the others would wait with it. Measured with make bench.
	minProcs = 8
)

// tuneRuntime sets what the environment (GOMEMLIMIT, GOGC, GOMAXPROCS) leaves open.
func tuneRuntime(cache int64) {
	if os.Getenv("GOMEMLIMIT") == "" {
		debug.SetMemoryLimit(cache + besideCache)
	}
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(gcPercent)
	}
	if os.Getenv("GOMAXPROCS") == "" && runtime.GOMAXPROCS(0) < minProcs {
		runtime.GOMAXPROCS(minProcs)
	}
}
