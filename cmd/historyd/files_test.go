package main

import (
	"errors"
	"net"
	"strings"
	"syscall"
	"testing"
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

// A connection that finds no descriptor is let in when something was closed for it.
func TestRoomIsMadeForAConnection(t *testing.T) {
	for _, fault := range []error{syscall.EMFILE, syscall.ENFILE} {
		ours, theirs := net.Pipe()
		l := newLimitListener(&scanty{err: fault, conn: theirs}, 1)
		made := 0
		l.makeRoom = func() { made++ }
		c, err := l.Accept()
		if err != nil || made != 1 {
			t.Fatalf("%v: got error %v, room made %d times", fault, err, made)
		}
		_ = c.Close()
		_ = ours.Close()
	}
	l := newLimitListener(&scanty{err: syscall.ECONNABORTED}, 1)
	l.makeRoom = func() { t.Error("room made for a connection that was given up") }
	if _, err := l.Accept(); !errors.Is(err, syscall.ECONNABORTED) {
		t.Errorf("got error %v", err)
	}
}

// scanty is a listener that fails once.
type scanty struct {
	net.Listener
	err  error
	conn net.Conn
}

func (l *scanty) Accept() (net.Conn, error) {
	err := l.err
	l.err = nil
	if err != nil {
		return nil, &net.OpError{Op: "accept", Err: err}
	}
	return l.conn, nil
}
