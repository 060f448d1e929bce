package main

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"syscall"
	"time"
)

// postgres keeps a row a message, with an index by conversation, and the settings it comes with.
type postgres struct {
	*server
	conns   []*conn
	message string
}

// schema is made once; clients then run the two statements, prepared.
const (
	schema     = `CREATE TABLE messages (id bigserial PRIMARY KEY, conversation int NOT NULL, body text NOT NULL); CREATE INDEX ON messages (conversation, id)`
	insertRow  = `INSERT INTO messages (conversation, body) VALUES ($1, $2)`
	selectRows = `SELECT body FROM messages WHERE conversation = $1 ORDER BY id DESC LIMIT $2`
)

func startPostgres(dir string) (contender, error) {
	path, err := exec.LookPath("postgres")
	if err != nil {
		return nil, missing{"no postgres (Debian's package postgresql has it)"}
	}
	if path, err = filepath.EvalSymlinks(path); err != nil {
		return nil, err
	}
	as, err := unprivileged(dir)
	if err != nil {
		return nil, err
	}
	data := filepath.Join(dir, "data")
	initdb := exec.Command(filepath.Join(filepath.Dir(path), "initdb"), "-D", data, "-A", "trust", "-U", "load", "--no-sync")
	initdb.SysProcAttr, initdb.Dir = as, dir
	if out, err := initdb.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("initdb: %w: %s", err, out)
	}
	addr, err := freePort()
	if err != nil {
		return nil, err
	}
	host, port, _ := net.SplitHostPort(addr)
	cmd := exec.Command(path, "-D", data, "-p", port, "-h", host, "-k", "", "-c", "max_connections=300")
	cmd.SysProcAttr, cmd.Dir = as, dir
	s, err := launch(cmd, addr, filepath.Join(dir, "log"))
	if err != nil {
		return nil, err
	}
	p := &postgres{server: s, message: `{"role":"user","content":"` + message() + `"}`}
	if err := p.prepare(); err != nil {
		p.close()
		return nil, err
	}
	return p, nil
}

// prepare makes the table. The server listens before it lets anybody in.
func (p *postgres) prepare() error {
	for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(50 * time.Millisecond) {
		c, err := dial(p.addr)
		if err != nil {
			return err
		}
		if err = greet(c); err == nil {
			return errors.Join(roundTrip(c, packet('Q', schema, "\x00")), c.Close())
		}
		_ = c.Close()
		if time.Now().After(deadline) {
			return err
		}
	}
}

// unprivileged gives the directory to the user postgres where this process is root, which the server refuses to be.
func unprivileged(dir string) (*syscall.SysProcAttr, error) {
	if os.Getuid() != 0 {
		return nil, nil
	}
	u, err := user.Lookup("postgres")
	if err != nil {
		return nil, missing{"root runs no postgres, and there is no user postgres"}
	}
	uid, _ := strconv.ParseUint(u.Uid, 10, 32)
	gid, _ := strconv.ParseUint(u.Gid, 10, 32)
	if err := os.Chown(dir, int(uid), int(gid)); err != nil {
		return nil, err
	}
	return &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}}, nil
}

func (p *postgres) connect(n int) (err error) {
	closeAll(p.conns)
	p.conns, err = dialAll(p.addr, n, func(c *conn) error {
		if err := greet(c); err != nil {
			return err
		}
		prepare := append(packet('P', "i\x00", insertRow, "\x00", number16(0)), packet('P', "s\x00", selectRows, "\x00", number16(0))...)
		return roundTrip(c, append(prepare, packet('S')...))
	})
	return err
}

func (p *postgres) close() {
	closeAll(p.conns)
	p.server.close()
}

func (p *postgres) append(client, conversation int) error {
	return roundTrip(p.conns[client], call("i", strconv.Itoa(conversation), p.message))
}

func (p *postgres) replay(client, conversation int) error {
	return roundTrip(p.conns[client], call("s", strconv.Itoa(conversation), strconv.Itoa(window)))
}

// greet logs in.
func greet(c *conn) error {
	start := binary.BigEndian.AppendUint32(nil, 3<<16)
	start = append(start, "user\x00load\x00database\x00postgres\x00\x00"...)
	hello := append(binary.BigEndian.AppendUint32(nil, uint32(len(start)+4)), start...)
	return roundTrip(c, hello)
}

// packet is one message of the protocol: its kind, its length, its parts.
func packet(kind byte, parts ...string) []byte {
	size := 4
	for _, s := range parts {
		size += len(s)
	}
	b := binary.BigEndian.AppendUint32([]byte{kind}, uint32(size))
	for _, s := range parts {
		b = append(b, s...)
	}
	return b
}

func number16(n int) string { return string(binary.BigEndian.AppendUint16(nil, uint16(n))) }
func number32(n int) string { return string(binary.BigEndian.AppendUint32(nil, uint32(n))) }

// call binds values to a prepared statement and runs it.
func call(statement string, values ...string) []byte {
	bind := []string{"\x00", statement, "\x00", number16(0), number16(len(values))}
	for _, v := range values {
		bind = append(bind, number32(len(v)), v)
	}
	b := packet('B', append(bind, number16(0))...)
	b = append(b, packet('E', "\x00", number32(0))...)
	return append(b, packet('S')...)
}

// roundTrip sends and reads until the server is ready for the next one.
func roundTrip(c *conn, request []byte) error {
	if _, err := c.Write(request); err != nil {
		return err
	}
	var failed error
	for {
		head, err := c.r.Peek(5)
		if err != nil {
			return errors.Join(failed, err)
		}
		kind, size := head[0], int64(binary.BigEndian.Uint32(head[1:]))
		if _, err := c.r.Discard(5); err != nil {
			return err
		}
		if kind == 'E' {
			said := make([]byte, size-4)
			if _, err := io.ReadFull(c.r, said); err != nil {
				return err
			}
			failed = fmt.Errorf("postgresql: %q", said)
			continue
		}
		if _, err := io.CopyN(io.Discard, c.r, size-4); err != nil {
			return err
		}
		if kind == 'Z' {
			return failed
		}
	}
}
