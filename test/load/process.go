package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// processorTime is what a process and its children have used, those that have ended included; of this process when pid is 0.
func processorTime(pid int) time.Duration {
	if pid == 0 {
		var u syscall.Rusage
		if syscall.Getrusage(syscall.RUSAGE_SELF, &u) != nil {
			return 0
		}
		return time.Duration(u.Utime.Nano() + u.Stime.Nano())
	}
	// A child that ends meanwhile would count twice or not at all, so it is counted again then.
	var sum time.Duration
	for range 10 {
		all := family(pid)
		before := ended(all)
		sum = before
		for _, p := range all {
			sum += clock(p)
		}
		if ended(all) == before {
			break
		}
	}
	return sum
}

// clock is what one process has used, by the clock that the kernel keeps of it: /proc tells hundredths of a second, and
// a server needs fewer than one for some slices.
func clock(pid int) time.Duration {
	const scheduled = 2
	var t unix.Timespec
	if unix.ClockGettime(int32(^pid<<3|scheduled), &t) != nil {
		return 0
	}
	return time.Duration(t.Nano())
}

// ended is what the children of processes had used that have ended and were waited for.
func ended(pids []int) time.Duration {
	// The kernel tells it in hundredths of a second.
	const tick = 10 * time.Millisecond
	var sum time.Duration
	for _, p := range pids {
		fields := statFields(p)
		if len(fields) < 15 {
			continue
		}
		user, _ := strconv.Atoi(fields[13])
		system, _ := strconv.Atoi(fields[14])
		sum += time.Duration(user+system) * tick
	}
	return sum
}

// memory is the resident set of a process and its children in bytes, shared pages counted once.
func memory(pid int) int64 {
	if pid == 0 {
		pid = os.Getpid()
	}
	var sum int64
	for _, p := range family(pid) {
		rollup, err := os.ReadFile(fmt.Sprintf("/proc/%d/smaps_rollup", p))
		if err != nil {
			continue
		}
		_, rest, ok := strings.Cut(string(rollup), "\nPss:")
		if fields := strings.Fields(rest); ok && len(fields) > 0 {
			kb, _ := strconv.ParseInt(fields[0], 10, 64)
			sum += kb << 10
		}
	}
	return sum
}

// family is a process and its children.
func family(pid int) []int {
	all := []int{pid}
	if pid == os.Getpid() {
		return all
	}
	paths, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, path := range paths {
		p, err := strconv.Atoi(filepath.Base(filepath.Dir(path)))
		if err != nil {
			continue
		}
		if fields := statFields(p); len(fields) > 1 && fields[1] == strconv.Itoa(pid) {
			all = append(all, p)
		}
	}
	return all
}

// statFields are the fields of /proc/PID/stat behind the name: the state is the first.
func statFields(pid int) []string {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return nil
	}
	return strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
}
