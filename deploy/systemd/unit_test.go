// Package systemd_test holds the unit files to what systemd itself says of them, and to what this project
// promises about them.
package systemd_test

import (
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// maxExposure is ten times the worst exposure level that systemd-analyze may see in the service.
const maxExposure = "5"

// directive is one assignment of a unit file and whether a comment stands above it.
type directive struct {
	section, key, value string
	commented           bool
}

func TestSystemdAnalyzeVerifyIsContent(t *testing.T) {
	for _, dropIns := range [][]string{nil, {"network.conf"}} {
		dir := install(t, dropIns...)
		out, err := systemdAnalyze(t, "verify", filepath.Join(dir, "historyd.service"), filepath.Join(dir, "historyd.socket"))
		if err != nil || out != "" {
			t.Errorf("systemd-analyze verify with %q: got %v and\n%s\nwant no error and no output", dropIns, err, out)
		}
	}
}

// A socket unit runs no process, so there is nothing of it that could be exposed.
func TestSystemdAnalyzeSecurityIsLow(t *testing.T) {
	unit := filepath.Join(install(t), "historyd.service")
	out, err := systemdAnalyze(t, "security", "--offline=true", "--no-pager", "--threshold="+maxExposure, unit)
	level := regexp.MustCompile(`Overall exposure level[^\n]*?: ([0-9.]+)`).FindStringSubmatch(out)
	if level == nil {
		t.Fatalf("systemd-analyze security: %v, no exposure level in\n%s", err, out)
	}
	t.Logf("exposure level %s", level[1])
	if err != nil {
		t.Errorf("exposure level %s: want at most a tenth of %s; %v\n%s", level[1], maxExposure, err, out)
	}
	for _, d := range read(t, "historyd.socket") {
		if strings.HasPrefix(d.key, "Exec") {
			t.Errorf("the socket unit runs a process: %s=%s", d.key, d.value)
		}
	}
}

func TestUnitKeepsItsPromises(t *testing.T) {
	got := map[string]string{}
	for _, name := range []string{"historyd.service", "historyd.socket"} {
		for _, d := range read(t, name) {
			key := strings.TrimPrefix(name, "historyd.") + " " + d.section + "." + d.key
			got[key] = strings.TrimSpace(got[key] + " " + d.value)
		}
	}
	for _, want := range []struct{ key, value, why string }{
		{"service Unit.StartLimitIntervalSec", "0", "a daemon that can't start yet is not given up"},
		{"service Unit.Requires", "historyd.socket", "without its sockets it can't serve"},
		{"service Service.Restart", "always", "it comes back"},
		{"service Service.Type", "notify", "ready means recovered"},
		{"service Service.NotifyAccess", "main", "nobody else says so"},
		{"service Service.WatchdogSec", "60", "one that hangs is restarted"},
		{"service Service.StateDirectoryMode", "0700", "the daemon refuses a looser one"},
		{"service Service.UMask", "0077", "files are for their owner"},
		{"service Service.LimitCORE", "0", "a core file holds conversations"},
		{"service Service.MemorySwapMax", "0", "a swap area holds conversations"},
		{"service Service.PrivateNetwork", "yes", "it needs none"},
		{"service Service.RestrictAddressFamilies", "AF_UNIX", "and can open none"},
		{"service Service.IPAddressDeny", "any", "nothing but the loopback"},
		{"service Service.IPAddressAllow", "localhost", "nothing but the loopback"},
		{"service Service.PrivateUsers", "", "peers on the unix socket keep their uid"},
		{"service Service.CapabilityBoundingSet", "", "no capabilities"},
		{"service Install.Also", "historyd.socket", "one is not enabled without the other"},
		{"socket Socket.ListenStream", "127.0.0.1:4478 /run/historyd/historyd.sock", "both kinds, on this machine alone"},
		{"socket Socket.SocketMode", "0660", "systemd's default lets everybody connect"},
		{"socket Socket.SocketGroup", "historyd", "whom the operator has added"},
		{"socket Socket.DirectoryMode", "0755", "nobody but root puts another socket there"},
		{"socket Socket.TriggerLimitIntervalSec", "0", "the socket outlives any number of restarts"},
		{"socket Socket.IPAddressDeny", "any", "nothing but the loopback"},
		{"socket Socket.IPAddressAllow", "localhost", "nothing but the loopback"},
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

// install puts the units and some drop-ins of the service into a directory, with a program that exists on this machine,
// since verify insists on one.
func install(t *testing.T, dropIns ...string) string {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for _, name := range append([]string{"historyd.service", "historyd.socket"}, dropIns...) {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		to := filepath.Join(dir, name)
		switch path.Ext(name) {
		case ".conf":
			to = filepath.Join(dir, "historyd.service.d", name)
			if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
				t.Fatal(err)
			}
		case ".service":
			const program = "ExecStart=/usr/bin/historyd "
			if n := strings.Count(string(text), program); n != 1 {
				t.Fatalf("%q stands %d times in the unit, want 1", program, n)
			}
			text = []byte(strings.Replace(string(text), program, "ExecStart="+self+" ", 1))
		}
		if err := os.WriteFile(to, text, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
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
