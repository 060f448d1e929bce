package fault

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestMoreConversationsThanFiles has more clients, each with a connection that it keeps, write to more conversations than
// files may be open, again and again: all goes in, nothing is refused, and all of it is read.
func TestMoreConversationsThanFiles(t *testing.T) {
	t.Parallel()
	for _, limit := range []int{64, 256} {
		s := newServer(t, scratch(t), nil)
		s.ulimit = fmt.Sprint("-n ", limit)
		s.begin()
		const rounds = 3
		many, callers := 2*limit, limit+20
		work := make(chan int)
		var clients sync.WaitGroup
		for range callers {
			clients.Go(func() {
				client := s.newClient()
				defer client.CloseIdleConnections()
				for i := range work {
					s.appendUntilAnswered(client, i%many, i/many)
				}
			})
		}
		for i := range rounds * many {
			work <- i
		}
		close(work)
		clients.Wait()
		for i := range many {
			var page struct{ Data []json.RawMessage }
			body := s.do(http.StatusOK, "GET", fmt.Sprintf("/v1/conversations/c%d/messages", i), nil)
			if err := json.Unmarshal(body, &page); err != nil || len(page.Data) != rounds {
				t.Errorf("conversation %d has %d messages, want %d: %v %.300s", i, len(page.Data), rounds, err, body)
			}
		}
		s.do(http.StatusOK, "GET", "/readyz", nil)
		s.stop()
		if found := s.check(); len(found) > 0 {
			t.Errorf("check finds %v", found)
		}
		if !strings.Contains(s.log(), "fewer files may be open than are needed") || !strings.Contains(s.log(), "LimitNOFILE=") {
			t.Errorf("with a limit of %d files the start says %q", limit, s.log())
		}
		if strings.Contains(s.log(), "request failed") || strings.Contains(s.log(), "too many open files") {
			t.Errorf("with a limit of %d files the log says %.2000s", limit, s.log())
		}
	}
}

// appendUntilAnswered appends as a client does that repeats what got no answer, as on a connection that gave way to another.
func (s *server) appendUntilAnswered(client *http.Client, conversation, round int) {
	body := fmt.Appendf(nil, `{"messages":[{"role":"user","content":"round %d"}]}`, round)
	key := fmt.Sprintf("k-%d-%d", conversation, round)
	for end := time.Now().Add(patience); ; {
		a := s.tryBy(client, "POST", fmt.Sprintf("/v1/conversations/c%d/turns", conversation), body, "Idempotency-Key", key)
		if a.status == http.StatusCreated || a.status == http.StatusOK {
			return
		}
		if a.status != 0 || time.Now().After(end) {
			s.t.Errorf("append to conversation %d, round %d: %d %.300s", conversation, round, a.status, a.body)
			return
		}
	}
}

// TestIdleConversationsGiveWayWhenFilesRunOut takes from a daemon what it has planned with: it goes on all the same.
func TestIdleConversationsGiveWayWhenFilesRunOut(t *testing.T) {
	t.Parallel()
	s := newServer(t, scratch(t), nil)
	s.env = []string{"HISTORYD_LOG_LEVEL=debug"}
	s.begin()
	const before, after = 50, 100
	for i := range before {
		s.appendUntilAnswered(s.client, i, 0)
	}
	s.limit(unix.RLIMIT_NOFILE, s.firstFree()+10)
	for i := range after {
		s.appendUntilAnswered(s.client, i, 1)
	}
	made := s.roomMade()
	if made == 0 {
		t.Error("no conversation is counted as closed for others")
	}
	// More connections than are left find room, too: that of conversations, then that of the connections before.
	for i := range 150 {
		other := s.newClient()
		defer other.CloseIdleConnections()
		if a := s.tryBy(other, "GET", "/healthz", nil); a.status != http.StatusOK {
			t.Fatalf("on connection %d: %d %s", i, a.status, a.body)
		}
	}
	last := s.newClient()
	defer last.CloseIdleConnections()
	s.appendUntilAnswered(last, 0, 2)
	if s.roomMade() == made || strings.Contains(s.log(), "Accept error") {
		t.Errorf("%d conversations were closed for connections; log: %s", s.roomMade()-made, s.log())
	}
	if n := strings.Count(s.log(), "no file can be opened: idle"); n != 1 {
		t.Errorf("told %d times, want once: %.1000s", n, s.log())
	}
	s.stop()
	if found := s.check(); len(found) > 0 {
		t.Errorf("check finds %v", found)
	}
}

// roomMade is how many conversations were closed for their descriptors.
func (s *server) roomMade() (n int) {
	s.t.Helper()
	found := regexp.MustCompile(`(?m)^historyd_store_room_made_total (\d+)$`).FindSubmatch(s.do(http.StatusOK, "GET", "/metrics", nil))
	if found == nil {
		s.t.Fatal("no metric of the conversations closed for others")
	}
	n, err := strconv.Atoi(string(found[1]))
	if err != nil {
		s.t.Fatal(err)
	}
	return n
}

// firstFree is the lowest descriptor that the daemon does not have. Some that it was started with may lie far above.
func (s *server) firstFree() (n uint64) {
	for {
		if _, err := os.Lstat(fmt.Sprintf("/proc/%d/fd/%d", s.Pid(), n)); err != nil {
			return n
		}
		n++
	}
}

// TestTheLimitOfFilesAtTheStart raises a soft limit by itself, and refuses a hard one with which nothing would work.
func TestTheLimitOfFilesAtTheStart(t *testing.T) {
	t.Parallel()
	s := newServer(t, scratch(t), nil)
	s.ulimit = "-S -n 64"
	s.begin()
	var soft unix.Rlimit
	if err := unix.Prlimit(s.Pid(), unix.RLIMIT_NOFILE, nil, &soft); err != nil {
		t.Fatal(err)
	}
	if soft.Cur+1 < soft.Max { // the runtime leaves one
		t.Errorf("the soft limit is %d, want that of the hard one, %d", soft.Cur, soft.Max)
	}
	if soft.Max >= 1<<14 && strings.Contains(s.log(), "files") {
		t.Errorf("with a soft limit that can be raised the start says %q", s.log())
	}
	s.stop()
	s.ulimit = "-n 32"
	if err := s.start(); err == nil || !strings.Contains(s.log(), "store.open_files: ") || !strings.Contains(s.log(), "doesn't start with fewer than") {
		t.Errorf("a start with 32 files: %v: %s", err, s.log())
	}
}
