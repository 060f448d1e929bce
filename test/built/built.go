// Package built makes the binary that tests and benchmarks drive. It is for them only.
package built

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
)

var build = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "historyd-built-")
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, "historyd")
	out, err := exec.Command("go", "build", "-o", path, "historyd/cmd/historyd").CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("build: %w: %s", err, out)
	}
	return path, nil
})

// Path builds the daemon at its first call, and returns where it is.
func Path() (string, error) { return build() }

// Remove removes what Path has made.
func Remove() {
	if path, err := build(); err == nil {
		_ = os.RemoveAll(filepath.Dir(path))
	}
}
