// Package samples finds the conversations by which tests try what is real. They are no part
// of the project: they lie beside it, or in the directory that HISTORYD_TEST_DATA names. It
// is for tests, and imports nothing of the project, so that the tests of every package may
// use it.
package samples

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
)

// Airline returns the lines of airline.jsonl, each a conversation in Chat Completions form,
// seen from a package two folders below the project. os.ErrNotExist tells that the file is
// not there.
func Airline() ([][]byte, error) {
	dir := os.Getenv("HISTORYD_TEST_DATA")
	if dir == "" {
		dir = filepath.Join("..", "..", "..", "shared", "data")
	}
	text, err := os.ReadFile(filepath.Join(dir, "airline.jsonl"))
	if err != nil {
		return nil, fmt.Errorf("read the sample conversations: %w", err)
	}
	var lines [][]byte
	for line := range bytes.Lines(text) {
		if line = bytes.TrimSpace(line); len(line) > 0 {
			lines = append(lines, line)
		}
	}
	return lines, nil
}

// Need is Airline for a test that goes without it: it is skipped, and says so.
func Need(t testing.TB) [][]byte {
	t.Helper()
	lines, err := Airline()
	if errors.Is(err, os.ErrNotExist) {
		t.Skip("SKIPPED: no sample conversations: set HISTORYD_TEST_DATA to the directory of airline.jsonl")
	}
	if err != nil {
		t.Fatal(err)
	}
	return lines
}
