package main

import (
	"database/sql"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"syscall"

	// The driver registers itself; it is the SQLite library in Go.
	_ "modernc.org/sqlite"
)

// disk is what the machine can do with nothing around it: each client writes to files of
// its own and syncs them.
type disk struct {
	dir   string
	mu    sync.Mutex
	files map[int]*os.File
	line  []byte
}

func startDisk(dir string) (contender, error) {
	return &disk{dir: dir, files: map[int]*os.File{}, line: []byte(message() + "\n")}, nil
}

func (d *disk) connect(int) error     { return nil }
func (d *disk) replay(int, int) error { return errCantReplay }
func (d *disk) process() int          { return 0 }
func (d *disk) append(_, conversation int) error {
	d.mu.Lock()
	f := d.files[conversation]
	if f == nil {
		var err error
		f, err = os.OpenFile(filepath.Join(d.dir, fmt.Sprint(conversation)), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
		if err != nil {
			d.mu.Unlock()
			return err
		}
		d.files[conversation] = f
	}
	d.mu.Unlock()
	if _, err := f.Write(d.line); err != nil {
		return err
	}
	return syscall.Fdatasync(int(f.Fd()))
}

func (d *disk) close() {
	for _, f := range d.files {
		_ = f.Close()
	}
}

// sqlite is a data base in this process, without a network between: one writer at a time,
// which is all that it allows, and a reader for each client.
type sqlite struct {
	path    string
	writer  *sql.DB
	insert  *sql.Stmt
	readers []*sql.DB
	selects []*sql.Stmt
	message string
}

func startSQLite(dir string) (contender, error) {
	s := &sqlite{path: filepath.Join(dir, "messages.db"), message: `{"role":"user","content":"` + message() + `"}`}
	var err error
	if s.writer, err = s.open(); err != nil {
		return nil, err
	}
	if _, err := s.writer.Exec(`CREATE TABLE messages (id INTEGER PRIMARY KEY, conversation INT NOT NULL, body TEXT NOT NULL);
		CREATE INDEX by_conversation ON messages (conversation, id)`); err != nil {
		return nil, err
	}
	s.insert, err = s.writer.Prepare(`INSERT INTO messages (conversation, body) VALUES (?, ?)`)
	return s, err
}

func (s *sqlite) open() (*sql.DB, error) {
	db, err := sql.Open("sqlite", "file:"+s.path+"?_pragma=journal_mode(WAL)&_pragma=synchronous(FULL)&_pragma=busy_timeout(10000)")
	if err == nil {
		db.SetMaxOpenConns(1)
	}
	return db, err
}

func (s *sqlite) connect(n int) error {
	s.closeReaders()
	// More readers than this only wait for each other on the cores.
	for range min(n, 8) {
		db, err := s.open()
		if err != nil {
			return err
		}
		s.readers = append(s.readers, db)
		st, err := db.Prepare(`SELECT body FROM messages WHERE conversation = ? ORDER BY id DESC LIMIT ?`)
		if err != nil {
			return err
		}
		s.selects = append(s.selects, st)
	}
	return nil
}

func (s *sqlite) append(_, conversation int) error {
	_, err := s.insert.Exec(conversation, s.message)
	return err
}

func (s *sqlite) replay(client, conversation int) error {
	rows, err := s.selects[client%len(s.selects)].Query(conversation, window)
	if err != nil {
		return err
	}
	defer func() { _ = rows.Close() }()
	var body sql.RawBytes
	for rows.Next() {
		if err := rows.Scan(&body); err != nil {
			return err
		}
	}
	return rows.Err()
}

func (s *sqlite) process() int { return 0 }

func (s *sqlite) closeReaders() {
	for _, db := range s.readers {
		_ = db.Close()
	}
	s.readers, s.selects = nil, nil
}

func (s *sqlite) close() {
	s.closeReaders()
	_ = s.writer.Close()
}
