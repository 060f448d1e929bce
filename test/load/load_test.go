package main

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// daemon builds the daemon of the tree around this module.
func daemon(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "historyd")
	build := exec.Command("go", "build", "-o", path, "./cmd/historyd")
	build.Dir = "../.."
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build: %v: %s", err, out)
	}
	return path
}

// scratch is a directory that another user may pass through, as PostgreSQL has to.
func scratch(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "historyd-load-test-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	return dir
}

// TestMain lets the test binary be the bare server, as the command is, and a child that burns.
func TestMain(m *testing.M) {
	if len(os.Args) == 2 && os.Args[1] == burnArg {
		burn()
		return
	}
	if len(os.Args) == 3 && os.Args[1] == bareServerArg {
		if err := serveBare(os.Args[2]); err != nil {
			os.Exit(1)
		}
	}
	os.Exit(m.Run())
}

// TestEveryContenderKeepsWhatItIsGiven appends more than a replay gives back and counts, in what
// each contender keeps on its disk, the messages that it was given.
func TestEveryContenderKeepsWhatItIsGiven(t *testing.T) {
	for _, k := range kinds(daemon(t)) {
		t.Run(k.name, func(t *testing.T) {
			dir := scratch(t)
			c, err := k.start(dir)
			var lacks missing
			if errors.As(err, &lacks) {
				t.Skipf("SKIPPED: %s", lacks.what)
			}
			if err != nil {
				t.Fatal(err)
			}
			closed := false
			defer func() {
				if !closed {
					c.close()
				}
			}()
			if err := c.connect(2); err != nil {
				t.Fatal(err)
			}
			for i := range 3 * window {
				if err := c.append(i%2, i%2); err != nil {
					t.Fatal(err)
				}
			}
			for client := range 2 {
				if err := c.replay(client, client); err != nil && !errors.Is(err, errCantReplay) {
					t.Error(err)
				}
			}
			if c.process() != 0 && (memory(c.process()) == 0 || processorTime(c.process()) == 0) {
				t.Errorf("memory %d, processor time %s", memory(c.process()), processorTime(c.process()))
			}
			c.close()
			closed = true
			if n := kept(t, dir); n < 3*window {
				t.Errorf("%d messages on disk, want %d", n, 3*window)
			}
		})
	}
}

// kept counts the messages in the files below a directory, which all contenders store as plain text.
func kept(t *testing.T, dir string) int {
	t.Helper()
	n := 0
	err := filepath.Walk(dir, func(path string, info os.FileInfo, err error) error {
		if err != nil || !info.Mode().IsRegular() {
			return err
		}
		content, err := os.ReadFile(path)
		n += bytes.Count(content, []byte(message()[:500]))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func TestTheMedianFavoursNobody(t *testing.T) {
	for want, v := range map[float64][]float64{2: {3, 1, 2}, 2.5: {4, 1, 3, 2}, 7: {7}} {
		if got := median(v); got != want {
			t.Errorf("median(%v) = %v, want %v", v, got, want)
		}
	}
}

func TestTheTablesTellOfEachContender(t *testing.T) {
	o := options{clients: []int{2}, rounds: 2, slice: 20 * time.Millisecond, work: []string{workAppend, workReplay},
		only: []string{"historyd", "disk", "net/http"}, historyd: daemon(t), records: 200, seed: 7}
	var out strings.Builder
	if err := compare(t.Context(), &out, scratch(t), o); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"-seed 7\n", "append, 2 clients, 2 conversations", "replay, 2 clients", "historyd", "disk", "net/http", "at the end"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in\n%s", want, out.String())
		}
	}
	out.Reset()
	if err := scale(t.Context(), &out, scratch(t), o); err != nil {
		t.Fatal(err)
	}
	if got := strings.Count(out.String(), "\n"); got != 7 {
		t.Errorf("%d lines, want 7:\n%s", got, out.String())
	}
}

func TestWhatCannotBeMeasuredIsRefused(t *testing.T) {
	for _, args := range [][]string{
		{"-clients", "0"}, {"-clients", "many"}, {"-only", "mongodb"}, {"-work", "sleep"},
		{"-rounds", "0"}, {"-slice", "0s"}, {"-conversations", "-1"}, {"-records", "1"}, {"-seed", "chance"}, {"more"},
	} {
		if _, err := parse(args); err == nil {
			t.Errorf("%q is taken", args)
		}
	}
	if o, err := parse(nil); err != nil || len(o.clients) != 4 || o.seed != 1 {
		t.Errorf("without arguments: %+v, %v", o, err)
	}
}
