package main

import (
	"context"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"go.uber.org/goleak"
)

var update = flag.Bool("update", false, "rewrite the golden files")

func TestNothingRunsOnAfterTheDaemonHasStopped(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent(),
		// The runtime's own, started once.
		goleak.IgnoreAnyFunction("os/signal.loop"))
	t.Setenv("HISTORYD_DEBUG_LISTEN", "127.0.0.1:0")
	dir := filepath.Join(t.TempDir(), "data")
	ctx, cancel := context.WithCancel(t.Context())
	stdout, stderr := newBuffer(), newBuffer()
	code := make(chan int)
	go func() {
		args := []string{"serve", "--data-dir", dir, "--listen", "127.0.0.1:0", "--bootstrap-operator", "alice"}
		code <- run(ctx, args, strings.NewReader(""), stdout, stderr)
	}()
	found := stdout.await(`^historyd listens on http://(.*)$`, nil)
	if found == nil {
		t.Fatalf("it does not listen: %s", stderr)
	}
	mustAnswer(t, endpoint{network: "tcp", address: found[1]})
	cancel()
	if got := <-code; got != exitDone {
		t.Errorf("exit code %d, want %d: %s", got, exitDone, stderr)
	}
}

func TestEveryCommandHasHelpWithAnExample(t *testing.T) {
	var visit func(cmd *cobra.Command)
	visit = func(cmd *cobra.Command) {
		if cmd.Short == "" || cmd.Long == "" || cmd.Example == "" {
			t.Errorf("%s: has short %v, long %v, example %v, want all three",
				cmd.CommandPath(), cmd.Short != "", cmd.Long != "", cmd.Example != "")
		}
		for _, c := range cmd.Commands() {
			visit(c)
		}
	}
	visit(newRootCommand())
}

func TestHelpIsAsItWas(t *testing.T) {
	var text strings.Builder
	for _, args := range [][]string{{"--help"}, {"serve", "--help"}, {"check", "--help"}, {"config", "--help"}} {
		var out, errs strings.Builder
		if code := run(t.Context(), args, strings.NewReader(""), &out, &errs); code != exitDone || errs.Len() > 0 {
			t.Errorf("%q: code %d, %s", args, code, errs.String())
		}
		text.WriteString("$ historyd " + strings.Join(args, " ") + "\n" + out.String() + "\n")
	}
	const golden = "testdata/help.golden"
	if *update {
		if err := os.WriteFile(golden, []byte(text.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if text.String() != string(want) {
		t.Errorf("help differs from %s (make golden rewrites it):\n%s", golden, text.String())
	}
}
