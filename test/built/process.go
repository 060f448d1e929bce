package built

import (
	"bytes"
	"io"
	"os/exec"
	"sync"
	"syscall"
)

// A Process is a program that a test runs, ends and may start again. It is safe for concurrent use.
type Process struct {
	mu   sync.Mutex
	cmd  *exec.Cmd
	told chan struct{} // closed when cmd has written its last
	logs bytes.Buffer
}

// Start starts a program, and keeps what it writes to its standard error behind what was written there before. The
// channel is closed when the program writes no more.
func (p *Process) Start(cmd *exec.Cmd) (told <-chan struct{}, err error) {
	stderr, err := cmd.StderrPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	done := make(chan struct{})
	p.mu.Lock()
	p.cmd, p.told = cmd, done
	p.mu.Unlock()
	go func() {
		defer close(done)
		_, _ = io.Copy((*logs)(p), stderr)
	}()
	return done, nil
}

// logs is a process that is written to.
type logs Process

func (l *logs) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.logs.Write(b)
}

// Log is what was written.
func (p *Process) Log() []byte {
	p.mu.Lock()
	defer p.mu.Unlock()
	return bytes.Clone(p.logs.Bytes())
}

// ForgetLog forgets what was written so far.
func (p *Process) ForgetLog() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.logs.Reset()
}

// Pid is that of the program that runs.
func (p *Process) Pid() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.cmd.Process.Pid
}

// Strike sends the signal that nobody survives, and does not wait.
func (p *Process) Strike() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cmd != nil {
		signal(p.cmd, syscall.SIGKILL)
	}
}

// End sends a signal to the program, waits for its end and returns how it ended; nil when nothing runs.
func (p *Process) End(how syscall.Signal) error {
	p.mu.Lock()
	cmd, told := p.cmd, p.told
	p.cmd = nil
	p.mu.Unlock()
	if cmd == nil {
		return nil
	}
	signal(cmd, how)
	<-told
	return cmd.Wait()
}

// signal reaches the whole group of a program that was given one.
func signal(cmd *exec.Cmd, how syscall.Signal) {
	if a := cmd.SysProcAttr; a != nil && a.Setpgid {
		_ = syscall.Kill(-cmd.Process.Pid, how)
		return
	}
	_ = cmd.Process.Signal(how)
}
