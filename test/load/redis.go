package main

import (
	"fmt"
	"io"
	"net"
	"os/exec"
	"path/filepath"
	"strconv"
)

// redis keeps a list a conversation, and syncs before it answers.
type redis struct {
	*server
	conns   []*conn
	message string
}

func startRedis(dir string) (contender, error) {
	path, err := exec.LookPath("redis-server")
	if err != nil {
		return nil, missing{"no redis-server (Debian's package redis-server has it)"}
	}
	addr, err := freePort()
	if err != nil {
		return nil, err
	}
	host, port, _ := net.SplitHostPort(addr)
	s, err := launch(exec.Command(path, "--port", port, "--bind", host, "--dir", dir,
		"--appendonly", "yes", "--appendfsync", "always", "--save", ""), addr, filepath.Join(dir, "log"))
	if err != nil {
		return nil, err
	}
	return &redis{server: s, message: `{"role":"user","content":"` + message() + `"}`}, nil
}

func (r *redis) connect(n int) (err error) {
	closeAll(r.conns)
	r.conns, err = dialAll(r.addr, n, nil)
	return err
}

func (r *redis) close() {
	closeAll(r.conns)
	r.server.close()
}

func (r *redis) append(client, conversation int) error {
	return r.do(client, "RPUSH", fmt.Sprintf("c%d", conversation), r.message)
}

func (r *redis) replay(client, conversation int) error {
	return r.do(client, "LRANGE", fmt.Sprintf("c%d", conversation), fmt.Sprint(-window), "-1")
}

func (r *redis) do(client int, words ...string) error {
	request := fmt.Appendf(nil, "*%d\r\n", len(words))
	for _, w := range words {
		request = fmt.Appendf(request, "$%d\r\n%s\r\n", len(w), w)
	}
	c := r.conns[client]
	if _, err := c.Write(request); err != nil {
		return err
	}
	return readReply(c)
}

// readReply reads one answer of the protocol, and the elements of a list with it.
func readReply(c *conn) error {
	line, err := c.r.ReadSlice('\n')
	if err != nil {
		return err
	}
	kind, rest := line[0], string(line[1:len(line)-2])
	switch kind {
	case ':', '+':
		return nil
	case '$':
		n, err := strconv.ParseInt(rest, 10, 64)
		if err != nil {
			return err
		}
		_, err = io.CopyN(io.Discard, c.r, n+2)
		return err
	case '*':
		n, err := strconv.Atoi(rest)
		for range n {
			if err == nil {
				err = readReply(c)
			}
		}
		return err
	default:
		return fmt.Errorf("redis: %s", line)
	}
}
