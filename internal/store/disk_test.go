package store

import (
	"os"
	"path/filepath"
	"testing"
)

// privateDir makes a directory that durable.Open takes.
func privateDir(t testing.TB) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "data")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	return dir
}
