package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
)

// TestMain makes this binary the historyd that the scripts run.
func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"historyd": main})
}

// Each script has a home and a data directory of its own, and commands besides
// those of testscript:
//
//	start ARGS...                      run "historyd serve ARGS" until it says where it listens; sets $URL and $PID
//	send SIGNAL                        send it TERM, INT, HUP or KILL
//	ended CODE                         it ends within 10 s; an end by a signal is the code -1
//	end SIGNAL CODE                    send, then ended
//	hold FILE                          begin to append what is in the file, without the last byte
//	release STATUS                     send that byte, and see that it is answered
//	request STATUS METHOD PATH [FILE]  call it with the token in the file $TOKEN, if set; the answer is the stdout
//	logged PATTERN                     wait until its standard error matches; with ! see that it doesn't
//	told PATTERN                       wait until what systemd has been told matches
//	mode PERM PATH                     what is at the path has these permissions
//	gone FILE                          the process whose number is in the file ends
//	nowhere TEXT DIR                   no file under the directory holds the text; with ! one does
//
// The condition [root] holds for that user.
func TestTheCommandAsItIsRun(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata/script",
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		Setup: func(env *testscript.Env) error {
			env.Setenv("HOME", env.WorkDir+"/home")
			env.Setenv("DATA", env.WorkDir+"/data")
			d := &process{stdout: newBuffer(), stderr: newBuffer(), told: newBuffer()}
			env.Values[processKey{}] = d
			env.Defer(d.kill)
			return d.listenAsSystemd(env)
		},
		Condition: func(cond string) (bool, error) {
			if cond != "root" {
				return false, fmt.Errorf("unknown condition %q", cond)
			}
			return os.Getuid() == 0, nil
		},
		Cmds: map[string]func(ts *testscript.TestScript, neg bool, args []string){
			"start":   startCommand,
			"send":    sendCommand,
			"ended":   endedCommand,
			"end":     endCommand,
			"hold":    holdCommand,
			"release": releaseCommand,
			"request": requestCommand,
			"logged":  loggedCommand,
			"told":    toldCommand,
			"mode":    modeCommand,
			"gone":    goneCommand,
			"nowhere": nowhereCommand,
		},
	})
}

// longEnough is how long a script waits for what must happen.
const longEnough = 20 * time.Second

type processKey struct{}

// process is the daemon of a script.
type process struct {
	cmd            *exec.Cmd
	ended          chan struct{} // closed when cmd has ended
	stdout, stderr *buffer
	told           *buffer // by it to systemd, a line a message

	// Of hold.
	held       net.Conn
	heldReader *bufio.Reader
	last       string // byte of the body
}

func processOf(ts *testscript.TestScript) *process { return ts.Value(processKey{}).(*process) }

func (d *process) kill() {
	if d.cmd != nil {
		_ = d.cmd.Process.Kill() // it may have ended
		<-d.ended
	}
}

// listenAsSystemd receives what the daemon says at $NOTIFY_SOCKET.
func (d *process) listenAsSystemd(env *testscript.Env) error {
	// The path of a script's directory is too long for a socket.
	dir, err := os.MkdirTemp("", "historyd")
	if err != nil {
		return err
	}
	name := filepath.Join(dir, "notify")
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: name, Net: "unixgram"})
	if err != nil {
		return err
	}
	env.Setenv("NOTIFY_SOCKET", name)
	env.Setenv("SOCKETS", dir)
	var listening sync.WaitGroup
	listening.Go(func() { // ends when conn is closed
		message := make([]byte, 4096)
		for {
			n, err := conn.Read(message)
			if err != nil {
				return
			}
			fmt.Fprintf(d.told, "%s\n", message[:n])
		}
	})
	env.Defer(func() {
		_ = conn.Close()
		listening.Wait()
		_ = os.RemoveAll(dir)
	})
	return nil
}

// buffer keeps what is written to it for who waits for it.
type buffer struct {
	mu      sync.Mutex // guards text
	text    bytes.Buffer
	changed chan struct{}
}

func newBuffer() *buffer { return &buffer{changed: make(chan struct{}, 1)} }

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	select {
	case b.changed <- struct{}{}:
	default:
	}
	return b.text.Write(p)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

// await returns the submatches of the pattern once there is a match, or nil.
func (b *buffer) await(pattern string, ended <-chan struct{}) []string {
	re := regexp.MustCompile("(?m)" + pattern)
	late := time.After(longEnough)
	for last := false; ; {
		if found := re.FindStringSubmatch(b.String()); found != nil || last {
			return found
		}
		select {
		case <-b.changed:
		case <-ended:
			last = true
		case <-late:
			last = true
		}
	}
}

func startCommand(ts *testscript.TestScript, neg bool, args []string) {
	d := processOf(ts)
	d.kill()
	program, err := exec.LookPath("historyd")
	ts.Check(err)
	d.cmd = exec.Command(program, append([]string{"serve"}, args...)...)
	d.cmd.Dir = ts.MkAbs(".")
	for _, name := range []string{"HOME", "PATH", "NOTIFY_SOCKET", "WATCHDOG_USEC", "HISTORYD_DEBUG_LISTEN", "HISTORYD_RECALL_LOCAL"} {
		if value := ts.Getenv(name); value != "" {
			d.cmd.Env = append(d.cmd.Env, name+"="+value)
		}
	}
	d.stdout, d.stderr = newBuffer(), newBuffer()
	d.cmd.Stdout, d.cmd.Stderr = d.stdout, d.stderr
	ts.Check(d.cmd.Start())
	d.ended = make(chan struct{})
	go func() { // ends with the process; kill waits for it
		_ = d.cmd.Wait() // the code is in ProcessState
		close(d.ended)
	}()
	found := d.stdout.await(`^historyd listens on (.*)$`, d.ended)
	if found == nil {
		ts.Fatalf("it does not say where it listens: %s", d.stderr)
	}
	ts.Setenv("PID", strconv.Itoa(d.cmd.Process.Pid))
	ts.Setenv("URL", found[1])
	fmt.Fprint(ts.Stdout(), d.stdout) // all of it came in one write
}

func sendCommand(ts *testscript.TestScript, neg bool, args []string) {
	signals := map[string]syscall.Signal{
		"KILL": syscall.SIGKILL, "TERM": syscall.SIGTERM, "INT": syscall.SIGINT, "HUP": syscall.SIGHUP,
	}
	ts.Check(processOf(ts).cmd.Process.Signal(signals[args[0]]))
}

func endedCommand(ts *testscript.TestScript, neg bool, args []string) {
	d := processOf(ts)
	select {
	case <-d.ended:
	case <-time.After(10 * time.Second):
		ts.Fatalf("it has not ended after 10 s: %s", d.stderr)
	}
	if got := strconv.Itoa(d.cmd.ProcessState.ExitCode()); got != args[0] {
		ts.Fatalf("exit code %s, want %s: %s", got, args[0], d.stderr)
	}
}

func endCommand(ts *testscript.TestScript, neg bool, args []string) {
	sendCommand(ts, neg, args[:1])
	endedCommand(ts, neg, args[1:])
}

func holdCommand(ts *testscript.TestScript, neg bool, args []string) {
	d, body := processOf(ts), ts.ReadFile(args[0])
	address := strings.TrimPrefix(ts.Getenv("URL"), "http://")
	conn, err := net.Dial("tcp", address)
	ts.Check(err)
	ts.Defer(func() { _ = conn.Close() })
	ts.Check(conn.SetDeadline(time.Now().Add(longEnough)))
	_, err = fmt.Fprintf(conn, "POST /v1/history/turns HTTP/1.1\r\nHost: %s\r\nAuthorization: Bearer %s\r\n"+
		"Content-Type: application/json\r\nContent-Length: %d\r\nExpect: 100-continue\r\n\r\n",
		address, strings.TrimSpace(ts.ReadFile(ts.Getenv("TOKEN"))), len(body))
	ts.Check(err)
	d.held, d.heldReader, d.last = conn, bufio.NewReader(conn), body[len(body)-1:]
	resp, err := http.ReadResponse(d.heldReader, nil)
	ts.Check(err)
	if resp.StatusCode != http.StatusContinue { // it reads the body now
		ts.Fatalf("the append is answered %s", resp.Status)
	}
	_, err = io.WriteString(conn, body[:len(body)-1])
	ts.Check(err)
}

func releaseCommand(ts *testscript.TestScript, neg bool, args []string) {
	d := processOf(ts)
	_, err := io.WriteString(d.held, d.last)
	ts.Check(err)
	resp, err := http.ReadResponse(d.heldReader, nil)
	ts.Check(err)
	defer resp.Body.Close()
	if got := strconv.Itoa(resp.StatusCode); got != args[0] {
		ts.Fatalf("the append is answered %s, want %s", got, args[0])
	}
}

func requestCommand(ts *testscript.TestScript, neg bool, args []string) {
	url, path := ts.Getenv("URL"), args[2]
	var dialer net.Dialer
	transport := &http.Transport{DisableKeepAlives: true}
	if socket, ok := strings.CutPrefix(url, "unix:"); ok {
		url = "http://localhost"
		transport.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) {
			return dialer.DialContext(ctx, "unix", socket)
		}
	}
	var body io.Reader
	if len(args) > 3 {
		body = strings.NewReader(ts.ReadFile(args[3]))
	}
	req, err := http.NewRequest(args[1], url+path, body)
	ts.Check(err)
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	if file := ts.Getenv("TOKEN"); file != "" {
		req.Header.Set("Authorization", "Bearer "+strings.TrimSpace(ts.ReadFile(file)))
	}
	client := &http.Client{Transport: transport, Timeout: longEnough}
	resp, err := client.Do(req)
	ts.Check(err)
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	ts.Check(err)
	fmt.Fprintf(ts.Stdout(), "%s\n", answer)
	if got := strconv.Itoa(resp.StatusCode); got != args[0] {
		ts.Fatalf("%s %s answers %s, want %s: %s", args[1], path, got, args[0], answer)
	}
}

func loggedCommand(ts *testscript.TestScript, neg bool, args []string) {
	d := processOf(ts)
	if neg {
		if text := d.stderr.String(); regexp.MustCompile(args[0]).MatchString(text) {
			ts.Fatalf("%q is in the log: %s", args[0], text)
		}
		return
	}
	if d.stderr.await(args[0], d.ended) == nil {
		ts.Fatalf("nothing in the log matches %q: %s", args[0], d.stderr)
	}
}

func toldCommand(ts *testscript.TestScript, neg bool, args []string) {
	d := processOf(ts)
	if d.told.await(args[0], nil) == nil {
		ts.Fatalf("systemd was not told %q: %s", args[0], d.told)
	}
}

func modeCommand(ts *testscript.TestScript, neg bool, args []string) {
	info, err := os.Lstat(ts.MkAbs(args[1]))
	ts.Check(err)
	if got := fmt.Sprintf("%04o", info.Mode().Perm()); got != args[0] {
		ts.Fatalf("%s has mode %s, want %s", args[1], got, args[0])
	}
}

func goneCommand(ts *testscript.TestScript, neg bool, args []string) {
	pid := strings.TrimSpace(ts.ReadFile(args[0]))
	number, err := strconv.Atoi(pid)
	ts.Check(err)
	for late := time.Now().Add(longEnough); ; runtime.Gosched() {
		// One that waits to be reaped by somebody has ended.
		stat, err := os.ReadFile("/proc/" + pid + "/stat")
		_, state, _ := strings.Cut(string(stat), ") ")
		if err != nil || strings.HasPrefix(state, "Z") {
			return
		}
		if time.Now().After(late) {
			_ = syscall.Kill(number, syscall.SIGKILL)
			ts.Fatalf("process %s is still there", pid)
		}
	}
}

func nowhereCommand(ts *testscript.TestScript, neg bool, args []string) {
	found := errors.New("found")
	err := filepath.WalkDir(ts.MkAbs(args[1]), func(name string, entry fs.DirEntry, err error) error {
		if err != nil || !entry.Type().IsRegular() {
			return err
		}
		text, err := os.ReadFile(name)
		if err == nil && bytes.Contains(text, []byte(args[0])) {
			return fmt.Errorf("%w in %s", found, name)
		}
		return err
	})
	if neg && errors.Is(err, found) {
		return
	}
	if neg {
		ts.Fatalf("%q is nowhere under %s", args[0], args[1])
	}
	ts.Check(err)
}
