package built

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"
)

// A Clock is what a daemon of Clocked takes for the time of day: that of the machine, moved. As where a clock is
// set, what it measures between two moments stays right.
type Clock struct {
	file *os.File
	mem  []byte
}

// NewClock makes one, in a file, that is not moved yet.
func NewClock(name string) (*Clock, error) {
	f, err := os.Create(name)
	if err != nil {
		return nil, err
	}
	if err := f.Truncate(8); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	mem, err := syscall.Mmap(int(f.Fd()), 0, 8, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_SHARED)
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return &Clock{f, mem}, nil
}

// Env is what a daemon finds it by.
func (c *Clock) Env() string { return clockVariable + "=" + c.file.Name() }

// Set moves it by so much from the time of the machine, in whole seconds, for all that run by it. It is one aligned word,
// so that they find what was or what is, and nothing between.
func (c *Clock) Set(by time.Duration) {
	binary.NativeEndian.PutUint64(c.mem, uint64(int64(by/time.Second)))
}

// Close ends its use by the test.
func (c *Clock) Close() error { return errors.Join(syscall.Munmap(c.mem), c.file.Close()) }

const clockVariable = "HISTORYD_TEST_CLOCK"

// shift is added to package time.
const shift = `package time

import (
	"syscall"
	"unsafe"
)

var shifted = func() *int64 {
	name, ok := syscall.Getenv("` + clockVariable + `")
	if !ok {
		return new(int64)
	}
	fd, err := syscall.Open(name, syscall.O_RDONLY, 0)
	if err != nil {
		panic(err)
	}
	p, err := syscall.Mmap(fd, 0, 8, syscall.PROT_READ, syscall.MAP_SHARED)
	if err != nil {
		panic(err)
	}
	return (*int64)(unsafe.Pointer(&p[0]))
}()
`

var clocked = sync.OnceValues(buildClocked)

// Clocked builds the daemon at its first call with a standard library whose clock can be moved, and returns where it is:
// nobody may set the clock of the machine for a test, and a static program takes it from no library.
func Clocked() (string, error) { return clocked() }

func buildClocked() (string, error) {
	in, err := dir()
	if err != nil {
		return "", err
	}
	out, err := exec.Command("go", "env", "GOROOT").Output()
	if err != nil {
		return "", fmt.Errorf("go env: %w", err)
	}
	root := strings.TrimSpace(string(out))
	own := filepath.Join(in, "goroot")
	if err := shiftedRoot(root, own); err != nil {
		return "", err
	}
	to := filepath.Join(in, "historyd-clocked")
	cmd := exec.Command(filepath.Join(root, "bin", "go"), "build", "-o", to, "historyd/cmd/historyd")
	cmd.Env = append(os.Environ(), "GOROOT="+own, "GOTOOLCHAIN=local", "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build: %w: %s", err, out)
	}
	return to, nil
}

// shiftedRoot makes a root of Go of links to another, but for package time, which gets a clock that can be moved.
func shiftedRoot(root, own string) error {
	if err := os.MkdirAll(filepath.Join(own, "src", "time"), 0o755); err != nil {
		return err
	}
	for _, at := range []struct{ in, but string }{{"", "src"}, {"src", "time"}, {"src/time", "time.go"}} {
		entries, err := os.ReadDir(filepath.Join(root, at.in))
		if err != nil {
			return err
		}
		for _, e := range entries {
			if e.Name() == at.but {
				continue
			}
			if err := os.Symlink(filepath.Join(root, at.in, e.Name()), filepath.Join(own, at.in, e.Name())); err != nil {
				return err
			}
		}
	}
	text, err := os.ReadFile(filepath.Join(root, "src", "time", "time.go"))
	if err != nil {
		return err
	}
	const now = "func Now() Time {\n\tsec, nsec, mono := runtimeNow()\n"
	moved := bytes.Replace(text, []byte(now), []byte(now+"\tsec += *shifted\n"), 1)
	if len(moved) == len(text) {
		return errors.New("time.Now of this Go is not as expected")
	}
	return errors.Join(
		os.WriteFile(filepath.Join(own, "src", "time", "time.go"), moved, 0o600),
		os.WriteFile(filepath.Join(own, "src", "time", "shift.go"), []byte(shift), 0o600),
	)
}
