package recall

import (
	"bytes"
	"context"
	"io"
	"os"
	"os/exec"
	"syscall"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/prometheus/client_golang/prometheus"
)

// child makes a transport to a new child process. The child is the first of a group of its own, and gets no more of our
// environment than programs need to run: no secret, no socket of systemd's. The kernel ends it should we be killed. What
// it writes to its standard error may hold what it was asked, so it is counted and goes nowhere.
func (s *mcpServer) child() (mcp.Transport, func()) {
	cmd := exec.Command(s.Command[0], s.Command[1:]...)
	cmd.Env = []string{}
	for _, name := range []string{"PATH", "HOME", "LANG", "TMPDIR", "TZ", "USER"} {
		if v, ok := os.LookupEnv(name); ok {
			cmd.Env = append(cmd.Env, name+"="+v)
		}
	}
	cmd.Stderr = &lineCounter{s.lines}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	// Grandchildren may hold the pipes open.
	cmd.WaitDelay = endPatience
	p := &process{cmd: cmd}
	return p, func() { p.signal(syscall.SIGKILL) }
}

// A lineCounter counts the lines that are written to it, and keeps nothing.
type lineCounter struct{ lines prometheus.Counter }

func (c *lineCounter) Write(p []byte) (int, error) {
	c.lines.Add(float64(bytes.Count(p, []byte{'\n'})))
	return len(p), nil
}

// A process is a child that is spoken to by its standard input and output. It is what the library's own transport is,
// but for three things: a line of its is no longer than other responses, it may stop reading without holding us up, and
// it is reaped whatever comes.
type process struct {
	cmd   *exec.Cmd
	stdin io.WriteCloser
}

// Connect starts it.
func (p *process) Connect(ctx context.Context) (mcp.Connection, error) {
	stdout, err := p.cmd.StdoutPipe()
	if err == nil {
		p.stdin, err = p.cmd.StdinPipe()
	}
	if err == nil {
		err = p.cmd.Start()
	}
	if err != nil {
		return nil, err
	}
	ends := struct {
		io.Reader
		io.Closer
	}{stdout, p}
	c, err := (&mcp.IOTransport{Reader: ends, Writer: p.stdin, MaxLineLength: maxResponse}).Connect(ctx)
	if err != nil {
		_ = p.Close()
		return nil, err
	}
	return &patient{c}, nil
}

// Close ends its input, and it with signals where it does not heed that. It is called once.
func (p *process) Close() error {
	_ = p.stdin.Close() // what it has not read by now it need not
	ended := make(chan error, 1)
	go func() { ended <- p.cmd.Wait() }()
	for _, sig := range []syscall.Signal{syscall.SIGTERM, syscall.SIGKILL} {
		t := time.NewTimer(endPatience)
		select {
		case err := <-ended:
			t.Stop()
			return err
		case <-t.C:
			p.signal(sig)
		}
	}
	return <-ended
}

// signal reaches the whole group.
func (p *process) signal(sig syscall.Signal) {
	if p.cmd.Process != nil {
		_ = syscall.Kill(-p.cmd.Process.Pid, sig)
	}
}

// patient is a connection that waits no longer for who does not read than a context lasts.
type patient struct{ mcp.Connection }

func (c *patient) Write(ctx context.Context, m jsonrpc.Message) error {
	written := make(chan error, 1)
	go func() { written <- c.Connection.Write(ctx, m) }()
	select {
	case err := <-written:
		return err
	case <-ctx.Done():
		// A part of the message may be out, so there is no going on. This ends the write, too.
		go func() { _ = c.Connection.Close() }()
		return ctx.Err()
	}
}
