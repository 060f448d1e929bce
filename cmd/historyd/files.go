package main

import (
	"fmt"
	"math"

	"golang.org/x/sys/unix"
)

// What descriptors are needed for. The manual of store.open_files and OPERATIONS.md give the sum.
const (
	// filesBeside are those of the process itself, such as its streams, its listeners and the locks; and what an
	// import, a search and a look for old conversations have open.
	filesBeside = 24
	// filesOfServer are those of one that is asked: a child's streams, or connections.
	filesOfServer = 4
	// filesOfConversation is how many segments of one are open at the most.
	filesOfConversation = 3
	// filesOfRequest are directories on the way to a file, and the file, while a request opens something; and
	// openingAtOnce is how many do so at a time.
	filesOfRequest = 2
	openingAtOnce  = 128

	leastConversations = 4
	leastConnections   = 2
)

// A filePlan is how many files may be open, how many the settings need, and what fits.
type filePlan struct {
	limit, needs  int
	least         int // without which nothing is worth starting
	listeners     int
	conversations int // kept open while idle
	connections   int // of each listener
}

// filesForConnections is how many files connections need, with what their requests open.
func filesForConnections(connections int) int {
	return connections + filesOfRequest*min(connections, openingAtOnce)
}

// connectionsFor is the opposite of filesForConnections.
func connectionsFor(files int) int {
	if n := files / (1 + filesOfRequest); n <= openingAtOnce {
		return n
	}
	return files - filesOfRequest*openingAtOnce
}

// planFiles divides what may be open. Where that is not enough connections and conversations get half each, and what
// the other one leaves.
func (s *settings) planFiles(limit, listeners int) filePlan {
	p := filePlan{limit: limit, listeners: max(1, listeners), conversations: s.Store.OpenFiles, connections: s.Limits.Connections}
	beside := filesBeside + filesOfServer*len(s.Recall.MCP)
	if s.Compaction.Summariser == "model" {
		beside += filesOfServer
	}
	room := limit - beside
	forConversations, forConnections := filesOfConversation*p.conversations, filesForConnections(p.listeners*p.connections)
	p.needs = beside + forConversations + forConnections
	p.least = beside + filesOfConversation*leastConversations + filesForConnections(p.listeners*min(leastConnections, p.connections))
	if p.needs <= limit || limit < p.least {
		return p
	}
	if forConnections > room/2 {
		const spared = filesOfConversation * leastConversations
		forConnections = min(max(room/2, room-forConversations, p.least-beside-spared), room-spared)
		p.connections = min(p.connections, connectionsFor(forConnections)/p.listeners)
		forConnections = filesForConnections(p.listeners * p.connections)
	}
	p.conversations = min(p.conversations, (room-forConnections)/filesOfConversation)
	return p
}

// hopeless reports whether nothing useful fits.
func (p *filePlan) hopeless() bool { return p.limit < p.least }

// short says in the words of the configuration what doesn't fit; false when all does.
func (p *filePlan) short() (problem, bool) {
	if p.needs <= p.limit {
		return problem{}, false
	}
	text := fmt.Sprintf("with limits.connections %d files may have to be open, and this process may open %d: ", p.needs, p.limit)
	if p.hopeless() {
		text += fmt.Sprintf("it doesn't start with fewer than %d", p.least)
	} else {
		text += fmt.Sprintf("it keeps %d idle conversations open, and lets in %d connections for each listener", p.conversations, p.connections)
	}
	return problem{key: "store.open_files", text: text + fmt.Sprintf("; set LimitNOFILE=%d in the unit, or ulimit -n %d before it starts, or lower both", p.needs, p.needs)}, true
}

// mayOpen is how many files this process may have open. The runtime has raised the soft limit to the hard one.
func mayOpen() int {
	var limit unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_NOFILE, &limit) != nil || limit.Cur > math.MaxInt32 {
		return math.MaxInt32
	}
	return int(limit.Cur)
}

// listeners is how many there will be, if systemd opens none.
func (s *settings) listeners() (n int) {
	for _, address := range []string{s.Listen.TCP, s.Listen.Unix} {
		if address != "" {
			n++
		}
	}
	return n
}

// fitFiles lowers what is kept open to what may be open, or refuses to begin.
func (d *daemon) fitFiles(inherited int) error {
	d.fitted = d.settings
	if inherited == 0 {
		inherited = d.settings.listeners()
	}
	p := d.settings.planFiles(mayOpen(), inherited)
	lack, short := p.short()
	if short && p.hopeless() {
		return problems{lack}
	}
	if short {
		d.log.Warn("fewer files may be open than are needed", "warning", lack.String())
	}
	d.fitted.Store.OpenFiles, d.fitted.Limits.Connections = p.conversations, p.connections
	return nil
}
