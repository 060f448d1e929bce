package main

import (
	"errors"
	"net"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
)

func TestWhatIsKeptOpenFitsIntoTheLimitOfFiles(t *testing.T) {
	for _, tt := range []struct {
		name             string
		limit, listeners int
		set              func(c *Config)
		conversations    int
		connections      int
		hopeless         bool
	}{
		{"the unit", 16384, 2, nil, 512, 1024, false},
		{"just enough", 3864, 2, nil, 512, 1024, false},
		{"one too few", 3863, 2, nil, 512, 1023, false},
		{"a shell of old", 1024, 1, nil, 166, 244, false},
		{"few", 256, 2, nil, 39, 19, false},
		{"very few", 64, 1, nil, 7, 6, false},
		{"as few as may be", 42, 1, nil, 4, 2, false},
		{"too few", 41, 1, nil, 0, 0, true},
		{"few conversations leave room for connections", 1024, 1, func(c *Config) { c.Store.OpenFiles = 16 }, 16, 696, false},
		{"few connections leave room for conversations", 1024, 1, func(c *Config) { c.Limits.Connections = 10 }, 323, 10, false},
		{"servers that are asked need some", 256, 2, func(c *Config) { c.Recall.MCP = make([]MCPServer, 10) }, 32, 16, false},
		{"so does a model", 45, 1, func(c *Config) { c.Compaction.Summariser = "model" }, 0, 0, true},
	} {
		s := settings{Config: Default()}
		if tt.set != nil {
			tt.set(&s.Config)
		}
		p := s.planFiles(tt.limit, tt.listeners)
		lack, short := p.short()
		if p.hopeless() != tt.hopeless || short != (p.needs > tt.limit) {
			t.Errorf("%s: hopeless %t, short %t: %v", tt.name, p.hopeless(), short, lack)
		}
		if !tt.hopeless && (p.conversations != tt.conversations || p.connections != tt.connections) {
			t.Errorf("%s: %d conversations and %d connections, want %d and %d", tt.name, p.conversations, p.connections, tt.conversations, tt.connections)
		}
	}
}

// Whatever the limit and the settings are, what is planned needs no more than there is, and no less than is of use.
func TestEveryPlanOfFilesFits(t *testing.T) {
	for limit := range 6000 {
		for _, listeners := range []int{1, 2, 5} {
			for _, wanted := range [][2]int{{512, 1024}, {16, 1}, {16, 4000}, {4000, 1}} {
				s := settings{Config: Default()}
				s.Store.OpenFiles, s.Limits.Connections = wanted[0], wanted[1]
				p := s.planFiles(limit, listeners)
				if p.hopeless() {
					continue
				}
				fitted := s
				fitted.Store.OpenFiles, fitted.Limits.Connections = p.conversations, p.connections
				if needs := fitted.planFiles(limit, listeners).needs; needs > limit || p.conversations < leastConversations ||
					p.connections < min(leastConnections, wanted[1]) || p.conversations > wanted[0] || p.connections > wanted[1] {
					t.Fatalf("limit %d, %d listeners, %v wanted: %d conversations and %d connections need %d", limit, listeners, wanted, p.conversations, p.connections, needs)
				}
			}
		}
	}
}

func TestALackOfFilesSaysWhatToDo(t *testing.T) {
	s := settings{Config: Default()}
	p := s.planFiles(64, 1)
	lack, _ := p.short()
	for _, want := range []string{"store.open_files: ", "limits.connections", "2840 files", "may open 64", "keeps 7 idle", "6 connections", "LimitNOFILE=2840", "ulimit -n 2840"} {
		if !strings.Contains(lack.String(), want) {
			t.Errorf("%q does not say %q", lack, want)
		}
	}
	p = s.planFiles(30, 1)
	if lack, _ := p.short(); !strings.Contains(lack.String(), "doesn't start with fewer than 42") {
		t.Errorf("%q does not say how few are too few", lack)
	}
}

// A connection that finds no descriptor is let in when something was closed for it, and no more is closed than is needed.
func TestRoomIsMadeForAConnection(t *testing.T) {
	for _, fault := range []error{syscall.EMFILE, syscall.ENFILE} {
		for needed := range 3 {
			ours, theirs := net.Pipe()
			l := newLimitListener(&scanty{err: fault, times: needed, conn: theirs}, 1)
			made := ""
			l.makeRoom = []func(){func() { made += "a" }, func() { made += "b" }}
			c, err := l.Accept()
			if want := "ab"[:needed]; err != nil || made != want {
				t.Fatalf("%v, %d times: got error %v, closed %q, want %q", fault, needed, err, made, want)
			}
			_ = c.Close()
			_ = ours.Close()
		}
	}
	l := newLimitListener(&scanty{err: syscall.ECONNABORTED, times: 1}, 1)
	l.makeRoom = []func(){func() { t.Error("room made for a connection that was given up") }}
	if _, err := l.Accept(); !errors.Is(err, syscall.ECONNABORTED) {
		t.Errorf("got error %v", err)
	}
}

// Idle connections give their descriptors, those who have been so for longest, and busy ones never do.
func TestIdleConnectionsAreSpared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const open = sparedAtOnce + 3
		c := newCrowd(t, open)
		var clients []net.Conn
		for i := range open {
			clients = append(clients, c.arrive())
			if conn := c.next(); i > 0 {
				connState(conn, http.StateIdle)
			}
		}
		for _, gone := range []int{sparedAtOnce, open - 1, open - 1} {
			c.listener.spare()
			for i, client := range clients {
				if want := i > 0 && i <= gone; cutOff(client) != want {
					t.Errorf("connection %d is cut off: %t, want %t", i, !want, want)
				}
			}
		}
		_ = c.listener.Close()
		for _, client := range clients {
			_ = client.Close()
		}
	})
}

// scanty is a listener that fails some times.
type scanty struct {
	net.Listener
	err   error
	times int
	conn  net.Conn
}

func (l *scanty) Accept() (net.Conn, error) {
	if l.times == 0 {
		return l.conn, nil
	}
	l.times--
	return nil, &net.OpError{Op: "accept", Err: l.err}
}
