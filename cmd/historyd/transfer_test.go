package main

import (
	"archive/tar"
	"bytes"
	"context"
	"encoding/json/v2"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// transfer runs a command against a daemon that answers as told.
func transfer(t *testing.T, ctx context.Context, answer http.HandlerFunc, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	t.Setenv(tokenVariable, "hd_secret-canary\n")
	s := httptest.NewServer(answer)
	defer s.Close()
	var out, wrong bytes.Buffer
	code = run(ctx, append(args, "--url", s.URL, "--data-dir", t.TempDir()), strings.NewReader(""), &out, &wrong)
	if strings.Contains(out.String()+wrong.String(), "canary") {
		t.Errorf("the token is told: %s%s", &out, &wrong)
	}
	return code, out.String(), wrong.String()
}

func TestAHostileArchiveReachesNoOtherConversation(t *testing.T) {
	var archive bytes.Buffer
	w := tar.NewWriter(&archive)
	for _, h := range []tar.Header{
		{Name: "good.json"}, {Name: "../evil.json"}, {Name: "/etc/evil.json"}, {Name: "a/evil.json"}, {Name: ".evil.json"},
		{Name: "e\x1b[2Jvil.json"}, {Name: "evil.sh"}, {Name: "evil.json", Typeflag: tar.TypeSymlink, Linkname: "/etc/passwd"},
		{Name: "folder/", Typeflag: tar.TypeDir}, {Name: manifestName}, {Name: "./last.jsonl"},
	} {
		if h.Typeflag == 0 {
			h.Typeflag, h.Size = tar.TypeReg, 2
		}
		if err := w.WriteHeader(&h); err != nil {
			t.Fatal(err)
		}
		if h.Size > 0 {
			_, _ = io.WriteString(w, "{}") // into memory
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "x.tar")
	if err := os.WriteFile(path, archive.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	var asked []string
	code, stdout, stderr := transfer(t, t.Context(), func(w http.ResponseWriter, r *http.Request) {
		asked = append(asked, r.URL.Path)
		w.WriteHeader(http.StatusCreated)
		_, _ = io.WriteString(w, `{"imported":1,"repaired":[{}],"repaired_total":2000}`)
	}, "import", path, "--json")
	if want := []string{"/v1/conversations/good/import", "/v1/conversations/last/import"}; !slices.Equal(asked, want) {
		t.Errorf("asked for %q, want %q", asked, want)
	}
	if code != exitFail || strings.Contains(stderr, "\x1b") || strings.Count(stderr, "\n") != 7 {
		t.Errorf("code %d, told %q", code, stderr)
	}
	lines := strings.Split(strings.TrimSuffix(stdout, "\n"), "\n")
	for _, line := range lines {
		var v map[string]any
		if err := json.Unmarshal([]byte(line), &v); err != nil {
			t.Errorf("%s: %v", line, err)
		}
	}
	if len(lines) != 3 || !strings.Contains(lines[0], `"repaired":2000`) {
		t.Errorf("told %q", lines)
	}
}

func TestNamesOfADaemonLeaveNoDirectory(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"../evil", "/evil", ".", "a/b", ""} {
		list, err := json.Marshal(map[string]any{"data": []any{map[string]any{"name": name}}})
		if err != nil {
			t.Fatal(err)
		}
		code, _, stderr := transfer(t, t.Context(), func(w http.ResponseWriter, _ *http.Request) {
			_, _ = w.Write(list)
		}, "export", "--all", "-o", dir+"/in/")
		if code != exitFail || !strings.Contains(stderr, "is no name of one") {
			t.Errorf("%q: code %d, told %q", name, code, stderr)
		}
	}
	if left := filesIn(t, dir); len(left) > 0 {
		t.Errorf("left %q", left)
	}
}

func filesIn(t *testing.T, dir string) []string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

// An interrupt ends a transfer in the middle of a conversation.
func TestAnInterruptedTransferLeavesNothingBeside(t *testing.T) {
	for _, output := range []string{"a.json", "many.tar", "folder/"} {
		dir := t.TempDir()
		ctx, interrupt := context.WithCancel(t.Context())
		args := []string{"export", "a", "-o", filepath.Join(dir, output) + strings.Repeat("/", strings.Count(output, "/"))}
		if output == "many.tar" {
			args = append(args, "b")
		}
		code, _, stderr := transfer(t, ctx, func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.WriteString(w, "half")
			_ = http.NewResponseController(w).Flush()
			interrupt()
			<-r.Context().Done()
		}, args...)
		var left []string
		for _, name := range filesIn(t, dir) {
			if name != "folder" {
				left = append(left, name)
				continue
			}
			for _, name := range filesIn(t, filepath.Join(dir, name)) {
				if name != manifestName {
					left = append(left, name)
				}
			}
		}
		if code != exitFail || len(left) > 0 || stderr == "" {
			t.Errorf("%s: code %d, told %q, left %q", output, code, stderr, left)
		}
	}
	ctx, interrupt := context.WithCancel(t.Context())
	dir := t.TempDir()
	for _, name := range []string{"a.json", "b.json"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("{}"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	code, stdout, stderr := transfer(t, ctx, func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		interrupt()
		<-r.Context().Done()
	}, "import", dir)
	if code != exitFail || !strings.Contains(stdout, "0 failed") || strings.Contains(stderr, "takes no imports") {
		t.Errorf("import: code %d, told %q %q", code, stdout, stderr)
	}
}

func TestATokenFollowsNoRedirect(t *testing.T) {
	elsewhere := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("a redirect was followed") }))
	defer elsewhere.Close()
	code, _, stderr := transfer(t, t.Context(), func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer hd_secret-canary" {
			t.Errorf("Authorization is %q", r.Header.Get("Authorization"))
		}
		http.Redirect(w, r, elsewhere.URL, http.StatusTemporaryRedirect)
	}, "export", "a")
	if code != exitFail || !strings.Contains(stderr, "answered 307") {
		t.Errorf("code %d, told %q", code, stderr)
	}
}

func TestProgressOfOneFileIsByBytes(t *testing.T) {
	var told bytes.Buffer
	p := newProgress(&told, "byte", "exported")
	p.next = p.next.Add(-2 * progressEvery)
	w := &passing{io.Discard, 0, p}
	for range 3 {
		_, _ = w.Write(make([]byte, 1000)) // into nothing
	}
	if got := told.String(); got != "1000 of 1000 bytes exported\n" {
		t.Errorf("told %q", got)
	}
}
