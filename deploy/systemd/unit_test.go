// Package systemd_test holds the unit files to what systemd itself says of them, and to what this project
// promises about them.
package systemd_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// maxExposure is ten times the worst exposure level that systemd-analyze may see. The service opens its TCP port
// itself and so can't do without the network; that alone is 0.8.
const maxExposure = "15"

// directive is one assignment of a unit file and whether a comment stands above it.
type directive struct {
	section, key, value string
	commented           bool
}

func TestSystemdAnalyzeVerifyIsContent(t *testing.T) {
	out, err := systemdAnalyze(t, "verify", "--man=no", stub(t))
	if err != nil || out != "" {
		t.Errorf("systemd-analyze verify: got %v and\n%s\nwant no error and no output", err, out)
	}
}

func TestSystemdAnalyzeSecurityIsLow(t *testing.T) {
	out, err := systemdAnalyze(t, "security", "--offline=true", "--no-pager", "--threshold="+maxExposure, stub(t))
	level := regexp.MustCompile(`Overall exposure level[^\n]*?: ([0-9.]+)`).FindStringSubmatch(out)
	if level == nil {
		t.Fatalf("systemd-analyze security: %v, no exposure level in\n%s", err, out)
	}
	t.Logf("exposure level %s", level[1])
	if err != nil {
		t.Errorf("exposure level %s: want at most a tenth of %s; %v\n%s", level[1], maxExposure, err, out)
	}
}

func TestUnitKeepsItsPromises(t *testing.T) {
	got := map[string]string{}
	for _, d := range read(t, "historyd.service") {
		got[d.section+"."+d.key] += d.value
	}
	for _, want := range []struct{ key, value, why string }{
		{"Unit.StartLimitIntervalSec", "0", "a daemon that can't start yet is not given up"},
		{"Service.Restart", "always", "it comes back"},
		{"Service.Type", "notify", "ready means recovered"},
		{"Service.StateDirectoryMode", "0700", "the daemon refuses a looser one"},
		{"Service.UMask", "0077", "files are for their owner"},
		{"Service.LimitCORE", "0", "a core file holds conversations"},
		{"Service.MemorySwapMax", "0", "a swap area holds conversations"},
		{"Service.IPAddressDeny", "any", "nothing but the loopback"},
		{"Service.IPAddressAllow", "localhost", "nothing but the loopback"},
		{"Service.PrivateUsers", "", "peers on the unix socket keep their uid"},
		{"Service.CapabilityBoundingSet", "", "no capabilities"},
	} {
		if got[want.key] != want.value {
			t.Errorf("%s = %q, want %q: %s", want.key, got[want.key], want.value, want.why)
		}
	}
}

func TestEveryHardeningLineSaysWhy(t *testing.T) {
	ds := read(t, "historyd.service")
	first := slices.IndexFunc(ds, func(d directive) bool { return d.key == "LimitNOFILE" })
	if first < 0 {
		t.Fatal("no LimitNOFILE, with which the limits begin")
	}
	for i, d := range ds[first:] {
		if d.section != "Service" {
			break
		}
		pair := d.key == "IPAddressAllow" && ds[first+i-1].key == "IPAddressDeny"
		if !d.commented && !pair {
			t.Errorf("%s=%s has no comment above it", d.key, d.value)
		}
	}
}

// stub writes the unit with a program that exists on this machine, since verify insists on one, and names it.
func stub(t *testing.T) string {
	t.Helper()
	unit, err := os.ReadFile("historyd.service")
	if err != nil {
		t.Fatal(err)
	}
	const program = "ExecStart=/usr/bin/historyd "
	if n := strings.Count(string(unit), program); n != 1 {
		t.Fatalf("%q stands %d times in the unit, want 1", program, n)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	name := filepath.Join(t.TempDir(), "historyd.service")
	text := strings.Replace(string(unit), program, "ExecStart="+self+" ", 1)
	if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	return name
}

// systemdAnalyze runs the tool and returns what it printed, or skips the test where there is none.
func systemdAnalyze(t *testing.T, args ...string) (string, error) {
	t.Helper()
	tool, err := exec.LookPath("systemd-analyze")
	if err != nil {
		t.Skip("no systemd-analyze here: the unit is not checked by systemd itself")
	}
	out, err := exec.Command(tool, args...).CombinedOutput()
	return strings.TrimSpace(string(out)), err
}

// read returns the assignments of a unit file in order.
func read(t *testing.T, name string) []directive {
	t.Helper()
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	var ds []directive
	section, commented := "", false
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSpace(line)
		key, value, found := strings.Cut(line, "=")
		switch {
		case strings.HasPrefix(line, "#"):
			commented = true
			continue
		case strings.HasPrefix(line, "["):
			section = strings.Trim(line, "[]")
		case found:
			ds = append(ds, directive{section, key, value, commented})
		}
		commented = false
	}
	return ds
}
