// Package systemd installs the Debian package in a system of its own, which is this machine's under an overlay that is
// thrown away: once without systemd, as in a container image, and once booted under systemd. What happens there is
// tested by this same program, run inside.
//
// It needs root, Linux' overlay and systemd's container manager; "make systemd" runs it.
package systemd

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"testing"
	"time"
)

const (
	// packageVariable has the path of the package to test. Without it the tests are skipped: they take their time.
	packageVariable = "HISTORYD_TEST_DEB"
	// bootVariable is "no" where no system is to be booted, which takes minutes and a machine that lets it.
	bootVariable = "HISTORYD_TEST_BOOT"
	// insideVariable is set inside, to how: boot or chroot.
	insideVariable = "HISTORYD_TEST_INSIDE"
)

// inside is where a test runs that is for the system of its own.
func inside(t *testing.T, how string) {
	t.Helper()
	if os.Getenv(insideVariable) != how {
		t.Skip("it runs inside of the system that another test makes")
	}
}

func TestThePackageInABootedSystem(t *testing.T) {
	if os.Getenv(bootVariable) == "no" {
		t.Skip("make check boots no system; make systemd does")
	}
	if _, err := exec.LookPath("systemd-nspawn"); err != nil {
		t.Skip("no systemd-nspawn here (package systemd-container): the service is not tested under systemd")
	}
	runInside(t, "boot", "TestBooted")
}

func TestThePackageWithoutSystemd(t *testing.T) {
	runInside(t, "chroot", "TestInstalledByHand")
}

// runInside runs a test of this program in a system of its own, and reports what came of each of its parts.
func runInside(t *testing.T, how, test string) {
	deb := os.Getenv(packageVariable)
	switch {
	case os.Getenv(insideVariable) != "":
		t.Skip("this is the inside")
	case deb == "":
		t.Skip("make systemd runs it")
	case os.Geteuid() != 0:
		t.Skip("only root can make a system of its own")
	}
	share, err := os.MkdirTemp("", "historyd-system-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(share) })
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for from, to := range map[string]string{self: "inside", deb: "historyd.deb"} {
		if out, err := exec.Command("cp", from, filepath.Join(share, to)).CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	args := []string{"--mount", "--propagation", "private", "--fork", "--kill-child"}
	if how == "chroot" {
		args = append(args, "--net", "--pid")
	}
	args = append(args, "sh", "boot.sh", how, share, "/share/inside", "-test.run=^"+test, "-test.v", "-test.timeout=4m")
	cmd := exec.CommandContext(ctx, "unshare", args...)
	cmd.Env = append(os.Environ(), insideVariable+"="+how)
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = 10 * time.Second
	log, err := cmd.CombinedOutput()
	out, rerr := os.ReadFile(filepath.Join(share, "out"))
	if errors.Is(rerr, os.ErrNotExist) {
		t.Skipf("no system of its own can be made here: %v: %s", err, log)
	}
	results := regexp.MustCompile(`(?m)^\s*--- (PASS|FAIL|SKIP): \w+/(\S+)`).FindAllSubmatch(out, -1)
	for _, r := range results {
		t.Run(string(r[2]), func(t *testing.T) {
			switch string(r[1]) {
			case "FAIL":
				t.Fail()
			case "SKIP":
				t.Skip("skipped inside")
			}
		})
	}
	if len(results) == 0 || !bytes.Contains(out, []byte("\nPASS\n")) {
		t.Errorf("the tests inside did not pass: %v\n%s\n%s", err, log, out)
	} else {
		t.Logf("%s", out)
	}
}
