package systemd

import (
	"bytes"
	"debug/buildinfo"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
)

// TestInstalledByHand runs in a system without systemd: the package is installed, the daemon started by its user, used
// and stopped, and the package removed.
func TestInstalledByHand(t *testing.T) {
	inside(t, "chroot")
	for _, part := range []struct {
		name string
		test func(*testing.T)
	}{
		{"ItInstalls", installedByHand},
		{"ItIsUsed", usedByHand},
		{"ItIsRemoved", removedByHand},
	} {
		t.Run(part.name, part.test)
	}
}

func installedByHand(t *testing.T) {
	run(t, "dpkg", "-i", "/share/historyd.deb")
	if got := run(t, "stat", "-c", "%U %G %a", dataDir); got != "historyd historyd 700" {
		t.Errorf("the data directory is %s", got)
	}
	if got := run(t, "stat", "-c", "%U %G %a", config); got != "root root 644" {
		t.Errorf("the configuration is %s", got)
	}
	if got := run(t, "historyd", "version"); !strings.Contains(got, "historyd") {
		t.Errorf("version: %s", got)
	}
	if got := run(t, "sh", "-c", "zcat /usr/share/man/man1/historyd-token-create.1.gz"); !strings.Contains(got, "historyd token create") {
		t.Errorf("the manual page: %s", got)
	}
	if got := run(t, "bash", "-c", `. /usr/share/bash-completion/completions/historyd && declare -F __start_historyd`); got != "__start_historyd" {
		t.Errorf("the completion: %s", got)
	}
	for name, part := range map[string]string{
		"prometheus/historyd.alerts.yaml": "alert: HistorydDown",
		"prometheus/historyd.rules.yaml":  "record: instance:historyd_http_requests:rate5m",
		"prometheus/scrape.example.yaml":  "/usr/share/historyd/prometheus/historyd.alerts.yaml",
		"grafana/historyd.json":           `"uid": "historyd"`,
	} {
		if got := run(t, "cat", "/usr/share/historyd/"+name); !strings.Contains(got, part) {
			t.Errorf("%s is not in %s", part, name)
		}
	}
	if got := run(t, "zcat", "/usr/share/doc/historyd/OPERATIONS.md.gz"); !strings.Contains(got, "### HistorydDown") {
		t.Error("OPERATIONS.md does not say what to do for an alert")
	}
	licences := run(t, "zcat", "/usr/share/doc/historyd/third-party-licenses.gz")
	info, err := buildinfo.ReadFile("/usr/bin/historyd")
	if err != nil {
		t.Fatal(err)
	}
	for _, module := range info.Deps {
		if !strings.Contains(licences, "==== "+module.Path+" ") {
			t.Errorf("the licence of %s is not there", module.Path)
		}
	}
	if len(info.Deps) < 10 {
		t.Errorf("it is linked with %d modules only", len(info.Deps))
	}
}

func usedByHand(t *testing.T) {
	bearer := token(t, "first")
	daemon := exec.Command("setpriv", "--reuid=historyd", "--regid=historyd", "--init-groups", "historyd", "serve", "--bootstrap-operator", "local")
	var logs bytes.Buffer
	daemon.Stdout, daemon.Stderr = &logs, &logs
	if err := daemon.Start(); err != nil {
		t.Fatal(err)
	}
	await(t, "it listens", func() bool {
		conn, err := dial("tcp")
		if err == nil {
			_ = conn.Close()
		}
		return err == nil
	})
	wantWhoami(t, bearer, "first")
	conn, err := dial("tcp")
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if status, answer, err := ask(conn, "POST", "/v1/history/turns", bearer, `{"messages":[{"role":"user","content":"hello"}]}`); err != nil || status != 201 {
		t.Errorf("append: %d %s %v", status, answer, err)
	}
	if got := get(t, "tcp", "/v1/history/replay", bearer); !strings.Contains(got, "hello") {
		t.Errorf("replay: %s", got)
	}
	if got := run(t, "historyd", "check"); !strings.HasPrefix(got, "sound: 1 caller") {
		t.Errorf("check: %s", got)
	}
	if err := daemon.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := daemon.Wait(); err != nil {
		t.Errorf("it ends with %v: %s", err, &logs)
	}
	wantOwned(t)
}

func removedByHand(t *testing.T) {
	run(t, "dpkg", "-r", "historyd")
	if _, err := os.Stat("/usr/bin/historyd"); err == nil {
		t.Error("the program is left")
	}
	wantLeft(t)
	purged(t)
}
