package main

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"historyd/internal/durable"
)

func TestADirectoryInMemoryIsWarnedOf(t *testing.T) {
	shared, err := os.MkdirTemp("/dev/shm", "historyd")
	if err != nil {
		t.Skipf("no file system in memory here: %v", err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(shared) })
	if log := logOfAStart(t, filepath.Join(shared, "data")); strings.Count(log, "data_dir is in memory: ") != 1 ||
		!strings.Contains(log, `"level":"WARN"`) || !strings.Contains(log, `"file_system":"tmpfs"`) {
		t.Errorf("want one warning: %s", log)
	}
}

func TestADirectoryOnADiskIsNotWarnedOf(t *testing.T) {
	dir := t.TempDir()
	if medium, kind, err := durable.MediumOf(dir); medium != durable.Disk || err != nil {
		t.Skipf("%s is on no disk: %s, %v", dir, kind, err)
	}
	if log := logOfAStart(t, filepath.Join(dir, "data")); strings.Contains(log, "WARN") {
		t.Errorf("want no warning: %s", log)
	}
}

// logOfAStart is what a daemon says that is started and stopped.
func logOfAStart(t *testing.T, dir string) string {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	stdout, stderr := newBuffer(), newBuffer()
	code := make(chan int)
	go func() {
		args := []string{"serve", "--data-dir", dir, "--listen", "127.0.0.1:0", "--bootstrap-operator", "alice"}
		code <- run(ctx, args, strings.NewReader(""), stdout, stderr)
	}()
	serving := stderr.await(`"msg":"serving"`, nil)
	cancel()
	if got := <-code; serving == nil || got != exitDone {
		t.Fatalf("exit code %d, want %d: %s", got, exitDone, stderr)
	}
	return stderr.String()
}
