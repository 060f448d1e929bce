package main

import (
	"fmt"
	"os"
	"strings"
	"testing"
)

func TestTheManualsGiveTheMemoryBesideTheCache(t *testing.T) {
	want := fmt.Sprintf("plus %d MiB", besideCache>>20)
	for _, name := range []string{"config.go", exampleConfig, "../../docs/OPERATIONS.md"} {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(string(text), want) {
			t.Errorf("%s: got no %q", name, want)
		}
	}
}
