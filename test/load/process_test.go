package main

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"testing"
	"time"
)

// burnArg makes the test binary use the processor for burnFor, say so, and end when its standard input says something.
const (
	burnArg = "burn"
	burnFor = 300 * time.Millisecond
)

func burn() {
	for processorTime(0) < burnFor {
	}
	fmt.Println("burnt")
	_, _ = bufio.NewReader(os.Stdin).ReadString('\n')
}

func TestTheProcessorTimeOfAChildCountsAlsoWhenItHasEnded(t *testing.T) {
	// The second line is for the shell, which must have waited for its child when it says that it ended.
	cmd := exec.Command("sh", "-c", `"$0" `+burnArg+`; echo ended; read line`, os.Args[0])
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = in.Close()
		_ = cmd.Wait()
	}()
	lines := bufio.NewScanner(out)
	for _, want := range []string{"burnt", "ended"} {
		if !lines.Scan() || lines.Text() != want {
			t.Fatalf("the child says %q, want %q: %v", lines.Text(), want, lines.Err())
		}
		// Of a child that has ended the kernel tells two times, each in whole hundredths of a second.
		if got := processorTime(cmd.Process.Pid); got < burnFor-20*time.Millisecond || got > burnFor*3/2 {
			t.Errorf("%s: processor time %s, want what the child used, %s", want, got, burnFor)
		}
		if _, err := fmt.Fprintln(in, "go on"); err != nil {
			t.Fatal(err)
		}
	}
}
