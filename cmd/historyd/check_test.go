package main

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"
)

func TestACheckThatCantBePrintedFails(t *testing.T) {
	for _, tt := range []struct {
		name string
		mode os.FileMode
	}{{"a sound directory", 0o700}, {"an unsafe one", 0o755}} {
		for _, asJSON := range []bool{false, true} {
			dir := t.TempDir()
			if err := os.Chmod(dir, tt.mode); err != nil {
				t.Fatal(err)
			}
			cmd := newCheckCommand()
			cmd.SetOut(fullWriter{})
			cmd.SetErr(io.Discard)
			cmd.SetContext(t.Context())
			if err := checkDir(cmd, dir, filepath.Join(dir, "callers.json"), asJSON); !errors.Is(err, io.ErrShortWrite) {
				t.Errorf("%s, JSON %v: got %v, want %v", tt.name, asJSON, err, io.ErrShortWrite)
			}
		}
	}
}
