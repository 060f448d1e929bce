package main

import (
	"bytes"
	"encoding/json/v2"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"historyd/internal/durable"
	"historyd/internal/identity"
)

// tokenDir runs "token" on a directory of the test.
type tokenDir string

func newTokenDir(t *testing.T) tokenDir {
	t.Helper()
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	return tokenDir(dir)
}

func (d tokenDir) open(*cobra.Command) (durable.FS, *identity.File, error) {
	fsys, err := durable.Open(string(d))
	if err != nil {
		return nil, nil, err
	}
	return fsys, identity.OpenFile(fsys, "callers.json"), nil
}

func (d tokenDir) runTo(stdout io.Writer, args ...string) (stderr string, err error) {
	var errOut bytes.Buffer
	cmd := newTokenCommand(d.open)
	cmd.SilenceErrors, cmd.SilenceUsage = true, true
	cmd.SetArgs(append([]string{}, args...)) // nil would be the arguments of the test
	cmd.SetOut(stdout)
	cmd.SetErr(&errOut)
	err = cmd.Execute()
	return errOut.String(), err
}

func (d tokenDir) run(args ...string) (stdout, stderr string, err error) {
	var out bytes.Buffer
	stderr, err = d.runTo(&out, args...)
	return out.String(), stderr, err
}

func (d tokenDir) mustRun(t *testing.T, args ...string) (stdout, stderr string) {
	t.Helper()
	stdout, stderr, err := d.run(args...)
	if err != nil {
		t.Fatalf("token %q: %v", args, err)
	}
	return stdout, stderr
}

func (d tokenDir) caller(t *testing.T, token string) (identity.Caller, error) {
	t.Helper()
	fsys, file, err := d.open(nil)
	if err != nil {
		t.Fatal(err)
	}
	defer fsys.Close()
	r, err := identity.NewRegistry(identity.Options{File: file})
	if err != nil {
		t.Fatal(err)
	}
	return r.Authenticate(token)
}

func isUsage(err error) bool {
	var u usageError
	return errors.As(err, &u)
}

func TestATokenIsPrintedAloneAndOnce(t *testing.T) {
	d := newTokenDir(t)
	stdout, stderr := d.mustRun(t, "create", "--kind", "mesh", "--id", "bob b", "--permission-scope", "read", "--workspace", "home", "--uid", "1000", "--expires", "30d")
	token, ok := strings.CutSuffix(stdout, "\n")
	if !ok || !identity.WellFormed(token) {
		t.Fatalf("standard output is not a token on a line: %d bytes", len(stdout))
	}
	want := identity.Caller{Kind: identity.Mesh, ID: "bob b", PermissionScope: "read", Workspace: "home"}
	if got, err := d.caller(t, token); err != nil || got != want {
		t.Errorf("got %#v, %v, want %#v", got, err, want)
	}
	list, listErr := d.mustRun(t, "list")
	listJSON, _ := d.mustRun(t, "list", "--json")
	hash := storedHash(t, d)
	for name, text := range map[string]string{"stderr": stderr, "list": list + listErr, "list --json": listJSON} {
		if strings.Contains(text, token) || strings.Contains(text, hash) {
			t.Errorf("a token or a hash is in %s", name)
		}
	}
}

func storedHash(t *testing.T, d tokenDir) string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(string(d), "callers.json"))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, ok := strings.Cut(string(data), `"hash": "`)
	if !ok || len(rest) < 64 {
		t.Fatalf("no hash in %s", data)
	}
	return rest[:64]
}

func TestListTellsWhoseTokensThereAre(t *testing.T) {
	d := newTokenDir(t)
	if got, _ := d.mustRun(t, "list", "--json"); got != "{\n  \"object\": \"list\",\n  \"data\": []\n}\n" {
		t.Errorf("an empty list is %q", got)
	}
	d.mustRun(t, "create", "--kind", "operator", "--id", "alice", "--uid", "0")
	d.mustRun(t, "create", "--kind", "mesh", "--id", "a <b> \u202e", "--expires", "720h")
	d.mustRun(t, "create", "--kind", "mesh", "--id", "-")
	var list struct {
		Object string
		Data   []tokenLine
	}
	out, _ := d.mustRun(t, "list", "--json")
	if err := json.Unmarshal([]byte(out), &list, json.MatchCaseInsensitiveNames(true)); err != nil {
		t.Fatal(err)
	}
	if len(list.Data) != 3 || list.Data[1].ID != "a <b> \u202e" || !strings.Contains(out, "a <b> \u202e") {
		t.Fatalf("got %s", out)
	}
	if l := list.Data[0]; l.UID == nil || *l.UID != 0 || l.State != "live" || l.ExpiresAt != nil || l.RevokedAt != nil {
		t.Errorf("got %+v", l)
	}
	if l := list.Data[1]; l.UID != nil || l.ExpiresAt == nil || l.ExpiresAt.Sub(l.CreatedAt).Round(time.Minute) != 720*time.Hour {
		t.Errorf("got %+v", l)
	}
	if _, stderr := d.mustRun(t, "revoke", list.Data[0].TokenID); stderr != "Revoked.\n" {
		t.Errorf("revoke says %q", stderr)
	}
	out, _ = d.mustRun(t, "list")
	lines := strings.Split(strings.TrimSuffix(out, "\n"), "\n")
	for i, want := range []string{"TOKEN ID", " revoked ", `"a <b> \u202e"`, ` "-" `} {
		if i >= len(lines) || !strings.Contains(lines[i], want) {
			t.Errorf("line %d has no %q:\n%s", i, want, out)
		}
	}
	if len(lines) != 4 || strings.Contains(out, "\u202e") {
		t.Errorf("got %q", out)
	}
}

func TestARevokedTokenNoLongerWorks(t *testing.T) {
	d := newTokenDir(t)
	stdout, stderr := d.mustRun(t, "create", "--kind", "mesh", "--id", "bob")
	fields := strings.Fields(stderr) // Made token ID.
	id := strings.TrimSuffix(fields[2], ".")
	d.mustRun(t, "revoke", id)
	if c, err := d.caller(t, strings.TrimSpace(stdout)); err != identity.ErrUnauthenticated {
		t.Errorf("got %v, %v", c, err)
	}
	d.mustRun(t, "revoke", id)
	if _, _, err := d.run("revoke", "tok_unknown"); !errors.Is(err, identity.ErrUnknownToken) || isUsage(err) || !strings.Contains(err.Error(), "historyd token list") {
		t.Errorf("an unknown id: %v", err)
	}
}

func TestUsageErrorsAreToldFromFailures(t *testing.T) {
	d := newTokenDir(t)
	token, _ := d.mustRun(t, "create", "--kind", "mesh", "--id", "bob", "--uid", "1000")
	create := func(more ...string) []string {
		return slices.Concat([]string{"create", "--kind", "mesh", "--id", "eve"}, more)
	}
	for _, tt := range []struct {
		name  string
		args  []string
		usage bool
		text  string
	}{
		{"nothing", nil, true, "create, list, revoke"},
		{"unknown command", []string{"crate"}, true, `did you mean "create"`},
		{"unknown flag", create("--colour", "red"), true, "--colour"},
		{"no kind", []string{"create", "--id", "eve"}, true, "--kind"},
		{"no id", []string{"create", "--kind", "mesh"}, true, "--id"},
		{"another kind", []string{"create", "--kind", "admin", "--id", "eve"}, true, "operator or mesh"},
		{"a control character", create("--workspace", "a\nb"), true, "workspace"},
		{"invalid UTF-8", create("--permission-scope", "\xff"), true, "permission scope"},
		{"too long", create("--workspace", strings.Repeat("x", 257)), true, "256"},
		{"uid that is no number", create("--uid", "root"), true, "--uid"},
		{"uid below zero", create("--uid", "-1"), true, "--uid"},
		{"uid of nobody", create("--uid", "65534"), true, "65534"},
		{"uid that is none", create("--uid", "4294967295"), true, "4294967295"},
		{"uid too large", create("--uid", "4294967296"), true, "--uid"},
		{"expires without a unit", create("--expires", "30"), true, "720h"},
		{"expires in the past", create("--expires", "2020-01-01T00:00:00Z"), true, "future"},
		{"expires empty", create("--expires", ""), true, "720h"},
		{"an argument too many", create("x"), true, "x"},
		{"list with an argument", []string{"list", "x"}, true, "x"},
		{"revoke without an id", []string{"revoke"}, true, "TOKEN_ID is missing"},
		{"revoke of two", []string{"revoke", "a", "b"}, true, "TOKEN_ID"},
		{"revoke of a token", []string{"revoke", strings.TrimSpace(token)}, true, "id"},
		{"another workspace", []string{"create", "--kind", "mesh", "--id", "bob", "--workspace", "x"}, false, "workspace"},
		{"uid of another caller", create("--uid", "1000"), false, "uid 1000"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			stdout, stderr, err := d.run(tt.args...)
			if err == nil || isUsage(err) != tt.usage || !strings.Contains(err.Error(), tt.text) {
				t.Errorf("got %v, usage %v; want usage %v that says %q", err, isUsage(err), tt.usage, tt.text)
			}
			if stdout+stderr != "" {
				t.Errorf("it printed %q and %q", stdout, stderr)
			}
			if err != nil && strings.Contains(err.Error(), strings.TrimSpace(token)) {
				t.Error("the error shows the token")
			}
		})
	}
	out, _ := d.mustRun(t, "list", "--json")
	if got := strings.Count(out, "token_id"); got != 1 {
		t.Errorf("%d tokens after nothing but errors, want 1", got)
	}
}

func TestExpiresIsATimeToCome(t *testing.T) {
	now := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	for _, tt := range []struct {
		text string
		want time.Time // zero: refused
	}{
		{"1s", now.Add(time.Second)},
		{"720h", now.Add(720 * time.Hour)},
		{"1h30m", now.Add(90 * time.Minute)},
		{"30d", now.Add(720 * time.Hour)},
		{"36525d", now.Add(longestExpiry)},
		{"2026-11-30T12:00:01Z", now.Add(time.Second)},
		{"2026-11-30T13:00:01+01:00", now.Add(time.Second)},
		{"36526d", time.Time{}}, {"99999d", time.Time{}}, {"99999999999999999999d", time.Time{}}, {"0d", time.Time{}},
		{"-1d", time.Time{}}, {"+1d", time.Time{}}, {"d", time.Time{}}, {"1.5d", time.Time{}}, {"1d12h", time.Time{}},
		{"0s", time.Time{}}, {"-1h", time.Time{}}, {"30", time.Time{}}, {"never", time.Time{}}, {"", time.Time{}},
		{"2026-11-30T12:00:00Z", time.Time{}}, {"2226-11-30T12:00:00Z", time.Time{}}, {"2027-01-01", time.Time{}},
	} {
		got, err := parseExpires(tt.text, now)
		if (err != nil) != tt.want.IsZero() || !got.Equal(tt.want) {
			t.Errorf("parseExpires(%q) = %v, %v, want %v", tt.text, got, err, tt.want)
		}
	}
}

type fullWriter struct{}

func (fullWriter) Write([]byte) (int, error) { return 0, io.ErrShortWrite }

func TestATokenThatNobodySawIsRevoked(t *testing.T) {
	d := newTokenDir(t)
	stderr, err := d.runTo(fullWriter{}, "create", "--kind", "mesh", "--id", "bob")
	if !errors.Is(err, io.ErrShortWrite) || isUsage(err) || stderr != "" {
		t.Errorf("got %v and %q", err, stderr)
	}
	out, _ := d.mustRun(t, "list", "--json")
	if !strings.Contains(out, `"state": "revoked"`) {
		t.Errorf("got %s", out)
	}
}

func TestHelpNamesEveryFlag(t *testing.T) {
	d := newTokenDir(t)
	out, _ := d.mustRun(t, "create", "--help")
	for _, flag := range []string{"--kind", "--id", "--permission-scope", "--workspace", "--uid", "--expires"} {
		if !strings.Contains(out, flag) {
			t.Errorf("no %s in\n%s", flag, out)
		}
	}
	for _, sub := range []string{"create", "list", "revoke"} {
		if out, _ := d.mustRun(t, "--help"); !strings.Contains(out, sub) {
			t.Errorf("no %s in\n%s", sub, out)
		}
	}
}
