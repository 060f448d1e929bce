package systemd

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// TestBooted runs in a system that has booted, whose only test it is: its parts follow each other.
func TestBooted(t *testing.T) {
	inside(t, "boot")
	for _, part := range []struct {
		name string
		test func(*testing.T)
	}{
		{"ItIsInstalledAndStarted", installed},
		{"ReadyIsToldWhenItServes", readiness},
		{"ItServesTheLoopbackWithoutANetwork", network},
		{"RootMakesTokensForTheService", rootsTokens},
		{"PeersAreKnownByTheirUid", peers},
		{"AConnectionStartsIt", activation},
		{"NobodyIsRefusedThroughTwentyKills", kills},
		{"PingsAreHeard", pings},
		{"WhatAlertsNeedIsThereInTheSandbox", measured},
		{"AWedgedStoreIsRestarted", wedged},
		{"CredentialsAreRead", credentials},
		{"ADropInGivesTheNetworkBack", networkDropIn},
		{"AReloadReadsTheConfiguration", reload},
		{"NobodyIsRefusedThroughAnUpgrade", upgrade},
		{"AnUpgradeBringsAnotherSocket", upgradeOfTheSocket},
		{"ABackupIsRestored", backup},
		{"ItIsRemovedAndLeavesTheConversations", removed},
	} {
		if !t.Run(part.name, part.test) {
			out, _ := command(t, "journalctl", "--no-pager", "-n", "30", "-u", "historyd.service", "-u", "historyd.socket")
			t.Logf("the journal: %s", out)
		}
	}
}

func installed(t *testing.T) {
	run(t, "dpkg", "-i", "/share/historyd.deb")
	for _, unit := range []string{"historyd.socket", "historyd.service"} {
		if got := run(t, "systemctl", "is-enabled", unit); got != "enabled" {
			t.Errorf("%s is %s", unit, got)
		}
		await(t, unit+" is active", func() bool { return show(t, unit, "ActiveState") == "active" })
	}
	bearer, err := os.ReadFile(dataDir + "/operator.token")
	if err != nil {
		t.Fatal(err)
	}
	wantWhoami(t, strings.TrimSpace(string(bearer)), "local")
	wantOwned(t)
	for _, name := range []string{"/usr/share/man/man1/historyd.1.gz", "/usr/share/bash-completion/completions/historyd"} {
		if _, err := os.Stat(name); err != nil {
			t.Error(err)
		}
	}
	if got := run(t, "historyd", "config", "check"); got != "ok: read "+config {
		t.Errorf("the shipped configuration: %s", got)
	}
}

// A start returns when READY was told, and at that moment a write would be accepted.
func readiness(t *testing.T) {
	for range 3 {
		run(t, "systemctl", "restart", "historyd.service")
		wantAnswer(t)
	}
	if got := show(t, "historyd.service", "NRestarts"); got != "0" {
		t.Errorf("it was restarted %s times", got)
	}
}

func network(t *testing.T) {
	pid := show(t, "historyd.service", "MainPID")
	ours, err := os.Readlink("/proc/self/ns/net")
	if err != nil {
		t.Fatal(err)
	}
	theirs, err := os.Readlink("/proc/" + pid + "/ns/net")
	if err != nil {
		t.Fatal(err)
	}
	if ours == theirs {
		t.Error("the daemon has the network of the system")
	}
	wantAnswer(t)
	if out, err := command(t, "systemctl", "show", "-P", "PrivateNetwork", "historyd.service"); err != nil || out != "yes" {
		t.Errorf("PrivateNetwork: %s, %v", out, err)
	}
}

func rootsTokens(t *testing.T) {
	wantWhoami(t, token(t, "made-by-root"), "made-by-root")
	wantOwned(t)
	if _, err := os.Stat("/root/.local/state/historyd"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("root has a data directory of its own: %v", err)
	}
	if got := run(t, "historyd", "check"); !strings.HasPrefix(got, "sound") {
		t.Errorf("check by root: %s", got)
	}
	wantOwned(t)
}

func peers(t *testing.T) {
	group := groupID(t)
	token(t, "ann", "--uid", "64471")
	token(t, "bob", "--uid", "64472")
	for _, tt := range []struct {
		uid, group int
		want       string
	}{
		{64471, group, `"id":"ann"`},
		{64472, group, `"id":"bob"`},
		{64473, group, "401"},
		{65534, group, "401"},
		{0, 0, "401"},
		{64471, 0, "EACCES"},
	} {
		if got := as(t, tt.uid, tt.group); !strings.Contains(got, tt.want) {
			t.Errorf("uid %d with group %d: got %s, want %s", tt.uid, tt.group, got, tt.want)
		}
	}
}

func activation(t *testing.T) {
	for _, network := range []string{"tcp", "unix"} {
		run(t, "systemctl", "stop", "historyd.service")
		if got := show(t, "historyd.service", "ActiveState"); got != "inactive" {
			t.Fatalf("stopped, it is %s", got)
		}
		if got, want := get(t, network, "/healthz", ""), `200 {"status":"ok"}`; got != want {
			t.Errorf("%s: got %s, want %s", network, got, want)
		}
		// It answers a moment before systemd has heard of it.
		await(t, network+": it is active", func() bool { return show(t, "historyd.service", "ActiveState") == "active" })
	}
}

func kills(t *testing.T) {
	bearer := token(t, "killed")
	before := number(t, "historyd.service", "NRestarts")
	c := startCaller(t, bearer)
	for i := range 20 {
		pid := number(t, "historyd.service", "MainPID")
		if pid == 0 { // which would be all of us
			t.Fatal("it does not run")
		}
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		want := fmt.Sprintf("%d\nactive", before+i+1)
		await(t, "it is back", func() bool {
			return run(t, "systemctl", "show", "--property=NRestarts,ActiveState", "--value", "historyd.service") == want
		})
	}
	c.judge(t, bearer)
	if got := show(t, "historyd.socket", "ActiveState"); got != "active" {
		t.Errorf("the socket is %s", got)
	}
}

func pings(t *testing.T) {
	undo := dropIn(t, "[Service]\nWatchdogSec=2\n")
	defer undo()
	restarts := number(t, "historyd.service", "NRestarts")
	seen := map[string]bool{}
	await(t, "ten pings", func() bool {
		seen[show(t, "historyd.service", "WatchdogTimestampMonotonic")] = true
		return len(seen) > 10
	})
	if got := number(t, "historyd.service", "NRestarts"); got != restarts {
		t.Errorf("restarted %d times with a store that works", got-restarts)
	}
}

// A disk that answers nothing any more, until it does again: only then the process can end.
// measured is what alerts ask for and a sandbox could take away.
func measured(t *testing.T) {
	metrics := ""
	await(t, "a check of itself is counted", func() bool {
		metrics = get(t, "tcp", "/metrics", "")
		return strings.Contains(metrics, "\nhistoryd_selfchecks_total{result=\"ok\"} ") && !strings.Contains(metrics, "\nhistoryd_selfchecks_total{result=\"ok\"} 0\n")
	})
	for _, series := range []string{
		"historyd_ready 1", "historyd_start_time_seconds 1", "historyd_disk_free_bytes ", `historyd_connections{network="unix"} `,
		"process_resident_memory_bytes ", "process_open_fds ", "process_max_fds 16384", "go_gc_gomemlimit_bytes ",
	} {
		if !strings.Contains(metrics, "\n"+series) {
			t.Errorf("%s is not there", series)
		}
	}
}

func wedged(t *testing.T) {
	if os.Getenv("HISTORYD_TEST_DISK") == "" {
		t.Skip("no disk to freeze")
	}
	undo := dropIn(t, "[Service]\nWatchdogSec=2\n")
	defer undo()
	bearer := token(t, "wedged")
	restarts := number(t, "historyd.service", "NRestarts")
	disk, err := os.Open(dataDir)
	if err != nil {
		t.Fatal(err)
	}
	defer disk.Close()
	freeze := func(request uintptr) {
		if _, _, e := syscall.Syscall(syscall.SYS_IOCTL, disk.Fd(), request, 0); e != 0 {
			t.Fatal(e)
		}
	}
	const fifreeze, fithaw = 0xc0045877, 0xc0045878
	freeze(fifreeze)
	frozen := true
	defer func() {
		if frozen {
			freeze(fithaw)
		}
	}()
	await(t, "the watchdog", func() bool { return show(t, "historyd.service", "Result") == "watchdog" })
	freeze(fithaw)
	frozen = false
	await(t, "a restart", func() bool {
		return number(t, "historyd.service", "NRestarts") > restarts && show(t, "historyd.service", "ActiveState") == "active"
	})
	wantWhoami(t, bearer, "wedged")
	if out := run(t, "journalctl", "--no-pager", "-u", "historyd.service"); !strings.Contains(out, "self-check failed") {
		t.Error("the log does not say that the self-check failed")
	}
}

func credentials(t *testing.T) {
	const source = "/etc/credstore/historyd.callers"
	create := func(id string) string {
		out := run(t, "sh", "-c", "mkdir -p -m 700 /etc/credstore && HISTORYD_CALLERS_FILE="+source+" historyd token create --kind mesh --id "+id+" 2>/dev/null")
		return strings.TrimSpace(out)
	}
	first := create("from-credential")
	kept, err := os.ReadFile(config)
	if err != nil {
		t.Fatal(err)
	}
	write(t, config, "callers_file: $CREDENTIALS_DIRECTORY/callers\n")
	defer func() {
		write(t, config, string(kept))
		run(t, "systemctl", "restart", "historyd.service")
	}()
	if got := run(t, "historyd", "config", "check"); got != "ok: read "+config {
		t.Errorf("in a shell: %s", got)
	}
	run(t, "systemctl", "restart", "historyd.service")
	wantWhoami(t, first, "from-credential")
	if out, err := command(t, "historyd", "token", "create", "--kind", "mesh", "--id", "x"); err == nil || !strings.Contains(out, "is the credential callers of the service") {
		t.Errorf("a token in a shell: got %v, %s", err, out)
	}
	second := create("another")
	if got := get(t, "tcp", "/v1/whoami", second); !strings.HasPrefix(got, "401") {
		t.Errorf("before a restart: got %s", got)
	}
	run(t, "systemctl", "restart", "historyd.service")
	wantWhoami(t, second, "another")
}

// A retriever at an address is out of reach of the service, until it has the network back.
func networkDropIn(t *testing.T) {
	bearer := token(t, "recalls", "--workspace", "w")
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var calls atomic.Int64
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		calls.Add(1)
		w.WriteHeader(http.StatusServiceUnavailable)
	}), ReadHeaderTimeout: time.Second}
	go func() { _ = server.Serve(l) }()
	defer server.Close()
	kept, err := os.ReadFile(config)
	if err != nil {
		t.Fatal(err)
	}
	defer write(t, config, string(kept))
	write(t, config, "recall:\n  mcp: [{name: far, url: \"http://"+l.Addr().String()+"/mcp\", preset: rag.search, shared: true}]\n")
	ask := func() string {
		conn, err := dial("tcp")
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		_, answer, err := ask(conn, "POST", "/v1/conversations/c/recall", bearer, `{"query":"what was it that we said"}`)
		if err != nil {
			t.Fatal(err)
		}
		return answer
	}
	run(t, "systemctl", "restart", "historyd.service")
	if got := ask(); calls.Load() != 0 || !strings.Contains(got, `"far"`) {
		t.Errorf("without a network the retriever was called %d times: %s", calls.Load(), got)
	}
	conf, err := os.ReadFile("/usr/share/doc/historyd/examples/network.conf")
	if err != nil {
		t.Fatal(err)
	}
	undo := dropIn(t, string(conf))
	defer undo()
	if got := ask(); calls.Load() == 0 {
		t.Errorf("with network.conf the retriever was not called: %s", got)
	}
	wantAnswer(t)
}

func reload(t *testing.T) {
	pid := show(t, "historyd.service", "MainPID")
	kept, err := os.ReadFile(config)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		write(t, config, string(kept))
		run(t, "systemctl", "reload", "historyd.service")
	}()
	write(t, config, "log: {level: debug}\n")
	run(t, "systemctl", "reload", "historyd.service")
	await(t, "a request in the log", func() bool {
		get(t, "tcp", "/healthz", "")
		return strings.Contains(run(t, "journalctl", "--no-pager", "-n", "50", "-u", "historyd.service"), "healthz")
	})
	if got := show(t, "historyd.service", "MainPID"); got != pid {
		t.Error("it was restarted")
	}
}

func upgrade(t *testing.T) {
	bearer := token(t, "upgraded")
	pid := show(t, "historyd.service", "MainPID")
	since := show(t, "historyd.socket", "ActiveEnterTimestampMonotonic")
	c := startCaller(t, bearer)
	await(t, "an append", func() bool { return c.dials.Load() > 10 })
	run(t, "dpkg", "-i", "/share/historyd.deb")
	await(t, "the new one", func() bool {
		now := show(t, "historyd.service", "MainPID")
		return now != pid && show(t, "historyd.service", "ActiveState") == "active"
	})
	at := c.dials.Load()
	await(t, "more appends", func() bool { return c.dials.Load() > at+10 })
	c.judge(t, bearer)
	if got := show(t, "historyd.socket", "ActiveEnterTimestampMonotonic"); got != since {
		t.Error("the socket was restarted for nothing")
	}
}

// A version whose addresses were others.
func upgradeOfTheSocket(t *testing.T) {
	const unit = "/lib/systemd/system/historyd.socket"
	text, err := os.ReadFile(unit)
	if err != nil {
		t.Fatal(err)
	}
	write(t, unit, strings.Replace(string(text), address, "127.0.0.1:4479", 1))
	run(t, "systemctl", "daemon-reload")
	run(t, "systemctl", "restart", "historyd.socket", "historyd.service")
	if conn, err := dial("tcp"); err == nil {
		_ = conn.Close()
		t.Fatal("the former version listens at the address of the new one")
	}
	run(t, "dpkg", "-i", "/share/historyd.deb")
	await(t, "it is active", func() bool { return show(t, "historyd.service", "ActiveState") == "active" })
	wantAnswer(t)
}

// As in docs/OPERATIONS.md.
func backup(t *testing.T) {
	bearer := token(t, "saved")
	conn, err := dial("tcp")
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if status, answer, err := ask(conn, "POST", "/v1/history/turns", bearer, `{"messages":[{"role":"user","content":"remember me"}]}`); err != nil || status != http.StatusCreated {
		t.Fatalf("%d %s %v", status, answer, err)
	}
	run(t, "sh", "-c", "install -d -m 700 /backup && cp -aT "+dataDir+" /backup/historyd-new")
	if got := run(t, "historyd", "check", "/backup/historyd-new"); !strings.HasPrefix(got, "sound") {
		t.Errorf("check of the copy: %s", got)
	}
	run(t, "systemctl", "stop", "historyd.socket", "historyd.service")
	run(t, "sh", "-c", "find "+dataDir+" -mindepth 1 -delete && cp -a /backup/historyd-new/. "+dataDir)
	run(t, "systemctl", "start", "historyd.socket", "historyd.service")
	if got := get(t, "tcp", "/v1/history/replay", bearer); !strings.Contains(got, "remember me") {
		t.Errorf("after the restore: %s", got)
	}
	wantOwned(t)
}

func removed(t *testing.T) {
	run(t, "dpkg", "-r", "historyd")
	if conn, err := dial("tcp"); err == nil {
		_ = conn.Close()
		t.Error("somebody listens after it was removed")
	}
	for _, name := range []string{socket, "/usr/bin/historyd", "/lib/systemd/system/historyd.service"} {
		if _, err := os.Stat(name); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s is left: %v", name, err)
		}
	}
	wantLeft(t)
	if _, err := os.Stat(config); err != nil {
		t.Errorf("a removal takes the configuration: %v", err)
	}
	purged(t)
}

// wantLeft sees that the conversations are there.
func wantLeft(t *testing.T) {
	t.Helper()
	if found, err := filepath.Glob(dataDir + "/transcripts/*/*/*/*.jsonl"); err != nil || len(found) == 0 {
		t.Errorf("no conversations are left: %v", err)
	}
}

// purged purges the package, once as it comes and once with its data.
func purged(t *testing.T) {
	t.Helper()
	if out := run(t, "dpkg", "-P", "historyd"); !strings.Contains(out, "the conversations stay in "+dataDir) {
		t.Errorf("a purge does not say what stays: %s", out)
	}
	wantLeft(t)
	if _, err := os.Stat("/etc/historyd"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a purge leaves the configuration: %v", err)
	}
	if found, _ := filepath.Glob("/etc/systemd/system/*/historyd*"); len(found) > 0 {
		t.Errorf("a purge leaves %s", found)
	}
	run(t, "dpkg", "-i", "/share/historyd.deb")
	run(t, "env", "HISTORYD_PURGE_DATA=yes", "dpkg", "-P", "historyd")
	if found, err := filepath.Glob(dataDir + "/*"); err != nil || len(found) > 0 {
		t.Errorf("a purge of the data leaves %s", found)
	}
}
