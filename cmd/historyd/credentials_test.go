package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// allCredentials names a credential wherever one can be.
const allCredentials = `
callers_file: $CREDENTIALS_DIRECTORY/callers
tls: {cert: $CREDENTIALS_DIRECTORY/tls-cert, key: $CREDENTIALS_DIRECTORY/tls-key, client_ca: $CREDENTIALS_DIRECTORY/ca}
compaction: {model: {api_key_file: $CREDENTIALS_DIRECTORY/model-key}}
recall: {mcp: [{name: a, url: "http://127.0.0.1:1/mcp", preset: rag.search, shared: true, token_file: $CREDENTIALS_DIRECTORY/a}]}
`

func TestCredentialsAreFoundWhereTheUnitHasThem(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"callers", "tls-cert", "tls-key", "ca", "model-key", "a"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("secret"), 0o400); err != nil {
			t.Fatal(err)
		}
	}
	s, err := loadText(t, allCredentials, sources{env: []string{"HOME=/h", "CREDENTIALS_DIRECTORY=" + dir}})
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range s.paths() {
		if p.file && !strings.HasPrefix(*p.path, dir+"/") {
			t.Errorf("%s = %s, want it in %s", p.key, *p.path, dir)
		}
	}
	if err := s.needCredentials(); err != nil {
		t.Error(err)
	}
	// In the unit what is missing is missed.
	if _, err := loadText(t, strings.ReplaceAll(allCredentials, "/model-key", "/other"), sources{env: []string{"HOME=/h", "CREDENTIALS_DIRECTORY=" + dir}}); err == nil ||
		!strings.Contains(err.Error(), "api_key_file: stat "+dir+"/other") {
		t.Errorf("a credential that is not there: got %v", err)
	}
}

func TestCredentialsNeedNotBeThereInAShell(t *testing.T) {
	s, err := loadText(t, allCredentials, sources{})
	if err != nil {
		t.Fatalf("config check outside of the unit: %v", err)
	}
	for _, p := range s.paths() {
		if p.file && !strings.HasPrefix(*p.path, "$CREDENTIALS_DIRECTORY/") {
			t.Errorf("%s = %s, want it as it was", p.key, *p.path)
		}
	}
	if err := s.needCredentials(); err == nil || !strings.Contains(err.Error(), "callers_file: $CREDENTIALS_DIRECTORY is not set") {
		t.Errorf("to serve: got %v", err)
	}
}

func TestOnlyTheNameOfOneCredentialIsOne(t *testing.T) {
	for _, tt := range []struct{ file, want string }{
		{"callers_file: $CREDENTIALS_DIRECTORY/", "callers_file: want $CREDENTIALS_DIRECTORY/ and the name"},
		{"callers_file: $CREDENTIALS_DIRECTORY/../x", "callers_file: want $CREDENTIALS_DIRECTORY/ and the name"},
		{"callers_file: $CREDENTIALS_DIRECTORY/..", "callers_file: want $CREDENTIALS_DIRECTORY/ and the name"},
		{"callers_file: $CREDENTIALS_DIRECTORY/a/b", "callers_file: want $CREDENTIALS_DIRECTORY/ and the name"},
		{"data_dir: $CREDENTIALS_DIRECTORY/a", "data_dir: can't be a credential"},
		{"listen: {unix: $CREDENTIALS_DIRECTORY/a}", "listen.unix: can't be a credential"},
	} {
		for _, env := range [][]string{{"HOME=/h"}, {"HOME=/h", "CREDENTIALS_DIRECTORY=/run/c"}} {
			if _, err := loadText(t, tt.file, sources{env: env}); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("%s: got %v, want %q", tt.file, err, tt.want)
			}
		}
	}
	// No other variable is one.
	s, err := loadText(t, "callers_file: /a/$HOME/callers.json", sources{})
	if err != nil || s.CallersFile != "/a/$HOME/callers.json" {
		t.Errorf("got %q, %v", s.CallersFile, err)
	}
}

// Who only calls the daemon, or manages its tokens, may have no right to read its files.
func TestFilesOfTheDaemonNeedNotBeThereElsewhere(t *testing.T) {
	text := strings.ReplaceAll(allCredentials, "$CREDENTIALS_DIRECTORY", "/nowhere")
	if _, err := loadText(t, text, sources{elsewhere: true}); err != nil {
		t.Errorf("elsewhere: %v", err)
	}
	_, err := loadText(t, text, sources{})
	for _, key := range []string{"tls.cert", "tls.key", "tls.client_ca", "compaction.model.api_key_file", "recall.mcp[0].token_file"} {
		if !strings.Contains(fmt.Sprint(err), key) {
			t.Errorf("for the daemon: got %v, want to hear of %s", err, key)
		}
	}
}
