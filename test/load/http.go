package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// web is a server of turns over HTTP: the daemon, or the least that net/http can do.
type web struct {
	*server
	headers string
	conns   []*conn
	body    []byte
}

func startHistoryd(dir, path string) (contender, error) {
	addr, err := freePort()
	if err != nil {
		return nil, err
	}
	data := filepath.Join(dir, "data")
	token, err := exec.Command(path, "token", "create", "--data-dir", data, "--kind", "operator", "--id", "load").Output()
	if err != nil {
		return nil, fmt.Errorf("token create: %w", err)
	}
	cmd := exec.Command(path, "serve", "--data-dir", data, "--listen", addr)
	cmd.Env = append(os.Environ(), "HISTORYD_LOG_LEVEL=warn", "HISTORYD_DEBUG_LISTEN="+os.Getenv("LOAD_DEBUG_LISTEN"))
	s, err := launch(cmd, addr, filepath.Join(dir, "log"))
	if err != nil {
		return nil, err
	}
	return historyd{newWeb(s, "Authorization: Bearer "+strings.TrimSpace(string(token))+"\r\n")}, nil
}

// historyd is the daemon, which indexes for its search a second after it answered.
type historyd struct{ *web }

// settle searches for what nobody said, which has everything indexed first. A search waits for so long and then
// says that it is behind.
func (h historyd) settle(ctx context.Context) (bool, error) {
	c, err := dial(h.addr)
	if err != nil {
		return false, err
	}
	defer func() { _ = c.Close() }()
	// The deadline of the context would come while an answer is waited for.
	defer context.AfterFunc(ctx, func() { _ = c.Close() })()
	request := fmt.Appendf(nil, "GET /v1/search?q=unsaid&limit=1 HTTP/1.1\r\nHost: %s\r\n%s\r\n", h.addr, h.headers)
	for {
		var said bytes.Buffer
		err := c.exchange(request, http.StatusOK, &said)
		switch {
		case errors.Is(ctx.Err(), context.DeadlineExceeded):
			return false, nil
		case ctx.Err() != nil:
			return false, ctx.Err()
		case err != nil:
			return false, err
		}
		var found struct{ Behind bool }
		if err := json.Unmarshal(said.Bytes(), &found); err != nil || !found.Behind {
			return err == nil, err
		}
		time.Sleep(50 * time.Millisecond)
	}
}

func newWeb(s *server, headers string) *web {
	body := []byte(`{"messages":[{"role":"user","content":"` + message() + `"}]}`)
	return &web{server: s, headers: headers, body: body}
}

func (w *web) connect(n int) (err error) {
	closeAll(w.conns)
	w.conns, err = dialAll(w.addr, n, nil)
	return err
}

func (w *web) close() {
	closeAll(w.conns)
	w.server.close()
}

func (w *web) append(client, conversation int) error {
	return w.do(client, w.turn(conversation, w.body), http.StatusCreated)
}

// turn is the request that appends a body to a conversation.
func (w *web) turn(conversation int, body []byte) []byte {
	return fmt.Appendf(nil, "POST /v1/conversations/c%d/turns HTTP/1.1\r\nHost: %s\r\n%s"+
		"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", conversation, w.addr, w.headers, len(body), body)
}

func (w *web) replay(client, conversation int) error {
	return w.do(client, fmt.Appendf(nil, "GET /v1/conversations/c%d/replay?format=openai HTTP/1.1\r\nHost: %s\r\n%s\r\n",
		conversation, w.addr, w.headers), http.StatusOK)
}

func (w *web) do(client int, request []byte, want int) error {
	return w.conns[client].exchange(request, want, io.Discard)
}

// exchange sends a request over HTTP and reads the whole answer, whose length is told.
func (c *conn) exchange(request []byte, want int, answer io.Writer) error {
	if _, err := c.Write(request); err != nil {
		return err
	}
	line, err := c.r.ReadSlice('\n')
	if err != nil || len(line) < 12 {
		return fmt.Errorf("status line %q: %w", line, err)
	}
	status, _ := strconv.Atoi(string(line[9:12]))
	length := -1
	for {
		if line, err = c.r.ReadSlice('\n'); err != nil {
			return err
		}
		if len(line) <= 2 {
			break
		}
		if v, ok := bytes.CutPrefix(line, []byte("Content-Length: ")); ok {
			if length, err = strconv.Atoi(string(bytes.TrimSpace(v))); err != nil {
				return err
			}
		}
	}
	var said bytes.Buffer
	if status != want {
		answer = &said
	}
	if _, err := io.CopyN(answer, c.r, int64(length)); err != nil {
		return err
	}
	if status != want {
		return fmt.Errorf("status %d: %s", status, said.Bytes())
	}
	return nil
}

// bareServerArg makes this program the least server that keeps turns durable: a file a
// conversation, a write and a sync for each, and for a replay as many bytes.
const bareServerArg = "serve-bare"

func startBare(dir string) (contender, error) {
	addr, err := freePort()
	if err != nil {
		return nil, err
	}
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(self, bareServerArg, addr)
	cmd.Dir = dir
	s, err := launch(cmd, addr, filepath.Join(dir, "log"))
	if err != nil {
		return nil, err
	}
	return newWeb(s, ""), nil
}

func serveBare(addr string) error {
	asDaemon()
	fmt.Println("GOMAXPROCS", runtime.GOMAXPROCS(0))
	var files sync.Map
	open := func(name string) (*os.File, error) {
		if f, ok := files.Load(name); ok {
			return f.(*os.File), nil
		}
		f, err := os.OpenFile(filepath.Base(name), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
		if err == nil {
			files.Store(name, f)
		}
		return f, err
	}
	window := []byte(strings.Repeat(`{"role":"user","content":"`+message()+`"},`, window))
	mux := http.NewServeMux()
	mux.HandleFunc("POST /v1/conversations/{id}/turns", func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err == nil {
			var f *os.File
			if f, err = open(r.PathValue("id")); err == nil {
				if _, err = f.Write(body); err == nil {
					err = syscall.Fdatasync(int(f.Fd()))
				}
			}
		}
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		w.Header().Set("Content-Length", "0")
		w.WriteHeader(http.StatusCreated)
	})
	mux.HandleFunc("GET /v1/conversations/{id}/replay", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", strconv.Itoa(len(window)))
		_, _ = w.Write(window)
	})
	l, err := new(net.ListenConfig).Listen(context.Background(), "tcp", addr)
	if err != nil {
		return err
	}
	return http.Serve(l, mux)
}
