package main

import (
	"bufio"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

const (
	workAppend = "append"
	workReplay = "replay"

	// window is how many messages a replay gives back, and messageSize how long each is.
	window      = 20
	messageSize = 1024
)

// contender stores messages of conversations and gives the newest of them back.
type contender interface {
	// connect makes n clients, each with a connection of its own.
	connect(n int) error
	// append stores one message; it returns when the message would survive a power cut.
	append(client, conversation int) error
	// replay fetches the newest messages of a conversation.
	replay(client, conversation int) error
	// process is the one whose processor time and memory count, with its children; 0 is this very one.
	process() int
	close()
}

// errCantReplay is the answer of a contender that only writes.
var errCantReplay = errors.New("writes only")

// missing says that a contender is not on this machine.
type missing struct{ what string }

func (m missing) Error() string { return m.what }

// kind is one that can be started on an empty directory.
type kind struct {
	name  string
	start func(dir string) (contender, error)
}

func kinds(daemon string) []kind {
	return []kind{
		{"historyd", func(dir string) (contender, error) { return startHistoryd(dir, daemon) }},
		{"disk", startDisk},
		{"net/http", startBare},
		{"redis", startRedis},
		{"postgresql", startPostgres},
		{"sqlite", startSQLite},
	}
}

func names() []string {
	var all []string
	for _, k := range kinds("") {
		all = append(all, k.name)
	}
	return all
}

// message is what a client appends: as long as messageSize, and of words.
func message() string {
	return strings.Repeat("word ", messageSize/5+1)[:messageSize]
}

// server is a child process that listens on a loopback port.
type server struct {
	cmd  *exec.Cmd
	addr string
}

func (s *server) process() int { return s.cmd.Process.Pid }

func (s *server) close() {
	_ = s.cmd.Process.Signal(syscall.SIGTERM)
	done := make(chan struct{})
	go func() { _ = s.cmd.Wait(); close(done) }()
	select {
	case <-done:
	case <-time.After(20 * time.Second):
		_ = s.cmd.Process.Kill()
		<-done
	}
}

// launch starts a server and returns when its port takes connections.
func launch(cmd *exec.Cmd, addr, log string) (*server, error) {
	out, err := os.Create(log)
	if err != nil {
		return nil, err
	}
	defer func() { _ = out.Close() }()
	cmd.Stdout, cmd.Stderr = out, out
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	s := &server{cmd, addr}
	for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		if c, err := net.Dial("tcp", addr); err == nil {
			_ = c.Close()
			return s, nil
		}
		if time.Now().After(deadline) {
			s.close()
			said, _ := os.ReadFile(log)
			return nil, fmt.Errorf("%s does not listen: %s", filepath.Base(cmd.Path), said)
		}
	}
}

// freePort is a port that was free a moment ago.
func freePort() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	defer func() { _ = l.Close() }()
	return l.Addr().String(), nil
}

// conn is one connection of a client. Requests are made beforehand, so that the
// servers are measured and not their clients.
type conn struct {
	net.Conn
	r *bufio.Reader
}

func dial(addr string) (*conn, error) {
	c, err := net.Dial("tcp", addr)
	if err != nil {
		return nil, err
	}
	return &conn{c, bufio.NewReaderSize(c, 64<<10)}, nil
}

// dialAll makes n connections, each made ready by setup if there is one.
func dialAll(addr string, n int, setup func(*conn) error) ([]*conn, error) {
	all := make([]*conn, 0, n)
	for range n {
		c, err := dial(addr)
		if err == nil && setup != nil {
			err = setup(c)
		}
		if err != nil {
			return all, err
		}
		all = append(all, c)
	}
	return all, nil
}

func closeAll(all []*conn) {
	for _, c := range all {
		_ = c.Close()
	}
}

// diskUsage is what the files below a directory take on the disk, in bytes.
func diskUsage(dir string) int64 {
	var sum int64
	_ = filepath.Walk(dir, func(_ string, info os.FileInfo, err error) error {
		if err != nil {
			return nil
		}
		if st, ok := info.Sys().(*syscall.Stat_t); ok {
			sum += st.Blocks * 512
		}
		return nil
	})
	return sum
}
