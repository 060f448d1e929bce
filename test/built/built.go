// Package built makes the binaries that tests and benchmarks drive. It is for them only.
package built

import (
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"sync"
)

var (
	dir       = sync.OnceValues(func() (string, error) { return os.MkdirTemp("", "historyd-built-") })
	daemon    = sync.OnceValues(func() (string, error) { return build("historyd/cmd/historyd") })
	mcpServer = sync.OnceValues(func() (string, error) { return build("historyd/test/mcpserver") })
)

func build(pkg string) (string, error) {
	in, err := dir()
	if err != nil {
		return "", err
	}
	// Tests run it as other users, too.
	if err := os.Chmod(in, 0o755); err != nil {
		return "", err
	}
	to := filepath.Join(in, path.Base(pkg))
	out, err := exec.Command("go", "build", "-o", to, pkg).CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("build: %w: %s", err, out)
	}
	return to, nil
}

// Path builds the daemon at its first call, and returns where it is.
func Path() (string, error) { return daemon() }

// MCPServer builds the server of test/mcpserver at its first call, and returns where it is.
func MCPServer() (string, error) { return mcpServer() }

// Remove removes what was made.
func Remove() {
	if in, err := dir(); err == nil {
		_ = os.RemoveAll(in)
	}
}
