package identity

import (
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"historyd/internal/durable"
)

const (
	// maxFile bounds what is read into memory, far above a file of 100,000
	// tokens.
	maxFile = 64 << 20

	// lockPatience is how long a change waits for another process's change,
	// which takes milliseconds: who holds the lock longer hangs.
	lockPatience = 10 * time.Second
	lockPoll     = 5 * time.Millisecond
)

// File is the callers file. A missing one is the same as one without callers.
//
// A change is made under the lock of the file (its name with ".lock" after
// it), against what the file says at that moment, and is durable when the
// method returns nil. After an error the file is what it was before, unless
// the error came from syncing its directory: then it may be either. A File is
// safe for concurrent use, also by several processes. It does not own the FS.
//
// A change takes no context: it waits for nothing but the lock, 10 s at the most
// behind each change of this process that waits before it. Reading never waits.
type File struct {
	fsys durable.FS
	name string
	now  func() time.Time

	// mu keeps the goroutines of this process from polling for the lock: one does
	// for all, and holds mu while it does.
	mu sync.Mutex
}

// OpenFile returns the callers file called name in fsys. Nothing is read yet.
func OpenFile(fsys durable.FS, name string) *File {
	return &File{fsys: fsys, name: name, now: time.Now}
}

// NewToken says whose token is to be made.
type NewToken struct {
	Caller  Caller
	UID     *uint32   // the uid that is this caller on the unix socket; nil leaves it as it is
	Expires time.Time // zero means never
}

// TokenInfo is what may be told of a token.
type TokenInfo struct {
	ID      string
	Caller  Caller
	UID     *uint32
	Created time.Time
	Expires time.Time // zero means never
	Revoked time.Time // zero means not revoked
}

// Create adds a caller with one token, or one more token to a caller that is
// there. The token is returned here and never again: the file has its hash.
//
// ErrInvalid means that the request can't be right, ErrConflict that the
// caller is there with another workspace or uid, or that the uid is another
// caller's.
func (f *File) Create(n NewToken) (token, tokenID string, err error) {
	if err := n.check(f.now()); err != nil {
		return "", "", err
	}
	token, tokenID = newToken(), newTokenID()
	sum := hashToken(token)
	err = f.change(func(doc *document) error {
		i, err := doc.admit(n.Caller, n.UID)
		if err != nil {
			return err
		}
		t := stored{ID: tokenID, Hash: hex.EncodeToString(sum[:]), Created: stampTime(f.now())}
		if !n.Expires.IsZero() {
			expires := stampTime(n.Expires)
			t.Expires = &expires
		}
		doc.Callers[i].Tokens = append(doc.Callers[i].Tokens, t)
		return nil
	})
	if err != nil {
		return "", "", fmt.Errorf("create token: %w", err)
	}
	return token, tokenID, nil
}

func (n NewToken) check(now time.Time) error {
	if err := n.Caller.check(); err != nil {
		return err
	}
	if n.UID != nil && !ValidUID(*n.UID) {
		return fmt.Errorf("%w: uid %d is never an identity", ErrInvalid, *n.UID)
	}
	if !n.Expires.IsZero() && !n.Expires.After(now) {
		return fmt.Errorf("%w: the token would have expired already", ErrInvalid)
	}
	return nil
}

// admit finds or adds the record of a caller and returns its index.
func (d *document) admit(c Caller, uid *uint32) (int, error) {
	at := slices.IndexFunc(d.Callers, func(r record) bool { return r.caller().Scope() == c.Scope() })
	if at >= 0 && d.Callers[at].Workspace != c.Workspace {
		return 0, fmt.Errorf("%w: this kind, id and permission scope is there with another workspace: "+
			"give the same workspace, or another id", ErrConflict)
	}
	if uid != nil {
		for i, r := range d.Callers {
			if r.UID != nil && *r.UID == *uid && i != at {
				return 0, fmt.Errorf("%w: uid %d is another caller", ErrConflict, *uid)
			}
		}
		if at >= 0 && d.Callers[at].UID != nil && *d.Callers[at].UID != *uid {
			return 0, fmt.Errorf("%w: this caller is there with uid %d", ErrConflict, *d.Callers[at].UID)
		}
	}
	if at < 0 {
		at = len(d.Callers)
		d.Callers = append(d.Callers, record{
			Kind: string(c.Kind), ID: c.ID, PermissionScope: c.PermissionScope, Workspace: c.Workspace,
		})
	}
	if uid != nil {
		own := *uid
		d.Callers[at].UID = &own
	}
	return at, nil
}

// List returns every token ever made, by time of making, then by id.
func (f *File) List() ([]TokenInfo, error) {
	doc, err := f.read(false)
	if err != nil {
		return nil, fmt.Errorf("list tokens: %w", err)
	}
	var list []TokenInfo
	for _, r := range doc.Callers {
		for _, t := range r.Tokens {
			info := TokenInfo{ID: t.ID, Caller: r.caller(), UID: r.UID, Created: t.Created}
			if t.Expires != nil {
				info.Expires = *t.Expires
			}
			if t.Revoked != nil {
				info.Revoked = *t.Revoked
			}
			list = append(list, info)
		}
	}
	slices.SortFunc(list, func(a, b TokenInfo) int {
		if c := a.Created.Compare(b.Created); c != 0 {
			return c
		}
		return strings.Compare(a.ID, b.ID)
	})
	return list, nil
}

// Revoke ends a token. Revoking it again is no error and keeps the first time;
// an id that the file does not have is ErrUnknownToken.
func (f *File) Revoke(tokenID string) error {
	err := f.change(func(doc *document) error {
		for i := range doc.Callers {
			for j := range doc.Callers[i].Tokens {
				t := &doc.Callers[i].Tokens[j]
				if t.ID != tokenID {
					continue
				}
				if t.Revoked == nil {
					revoked := stampTime(f.now())
					t.Revoked = &revoked
				}
				return nil // and write it again if it was: the earlier writer may have died before its last sync
			}
		}
		return fmt.Errorf("%w: historyd token list shows the ids", ErrUnknownToken)
	})
	if err != nil {
		return fmt.Errorf("revoke token: %w", err)
	}
	return nil
}

// stampTime is a time as the file keeps it.
func stampTime(t time.Time) time.Time { return t.UTC().Round(0) }

// change edits the file under its lock.
func (f *File) change(edit func(*document) error) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	// A file that is not ours must be refused before a lock file of ours
	// stands beside it, which its owner could not open.
	if _, err := f.read(true); err != nil {
		return err
	}
	lock, err := f.lock()
	if err != nil {
		return err
	}
	defer lock.Close()
	doc, err := f.read(true)
	if err != nil {
		return err
	}
	if err := edit(&doc); err != nil {
		return err
	}
	data, err := doc.format()
	if err != nil {
		return err
	}
	f.sweep()
	if err := durable.WriteFile(f.fsys, f.name, data); err != nil {
		return fmt.Errorf("write callers file: %w", err)
	}
	return nil
}

// sweep removes what a process that died while it wrote the file has left
// beside it. Best effort: a directory that we may not list is left as it is.
func (f *File) sweep() {
	dir, base := path.Split(f.name)
	entries, err := f.fsys.ReadDir(path.Clean(dir))
	if err != nil {
		return
	}
	for _, e := range entries {
		if strings.HasPrefix(e.Name, "."+base+".tmp-") {
			_ = f.fsys.Remove(dir + e.Name) // or the next change does it
		}
	}
}

// lock waits for the lock of the file, for lockPatience.
func (f *File) lock() (io.Closer, error) {
	for deadline := time.Now().Add(lockPatience); ; time.Sleep(lockPoll) {
		lock, err := f.fsys.Lock(f.name + ".lock")
		if err == nil {
			return lock, nil
		}
		if !errors.Is(err, durable.ErrLocked) {
			return nil, fmt.Errorf("lock callers file: %w", err)
		}
		if time.Now().After(deadline) {
			return nil, fmt.Errorf("lock callers file: another process is changing it: try again: %w", err)
		}
	}
}

// read returns what the file says. With write it also refuses a file that we
// may not write, because replacing it would give it another mode.
func (f *File) read(write bool) (document, error) {
	file, err := f.fsys.Open(f.name, write)
	if errors.Is(err, fs.ErrNotExist) {
		return document{Version: callersVersion}, nil
	}
	if err != nil {
		return document{}, fmt.Errorf("open callers file: %w", err)
	}
	defer file.Close()
	size, err := file.Size()
	if err != nil {
		return document{}, fmt.Errorf("read callers file: %w", err)
	}
	if size > maxFile {
		return document{}, fmt.Errorf("%w: it is longer than %d bytes", ErrCallersFile, maxFile)
	}
	data := make([]byte, size)
	if _, err := io.ReadFull(io.NewSectionReader(file, 0, size), data); err != nil {
		return document{}, fmt.Errorf("read callers file: %w", err)
	}
	return parse(data)
}

// CheckOwner refuses to let this process change the callers file at name when
// the file would get another owner by it, and says which user to run as. A
// missing file takes the owner of its directory into account.
func CheckOwner(name string) error {
	var st unix.Stat_t
	subject := "the callers file"
	err := unix.Lstat(name, &st)
	if errors.Is(err, fs.ErrNotExist) {
		subject = "the directory of the callers file"
		err = unix.Stat(filepath.Dir(name), &st)
		if errors.Is(err, fs.ErrNotExist) || err == nil && st.Uid == 0 {
			return nil // to be made, or the system's: /etc takes files of any owner who may write there
		}
	}
	if err != nil {
		return fmt.Errorf("look at the callers file: %w", err)
	}
	if uid := uint32(os.Geteuid()); st.Uid != uid {
		return fmt.Errorf("%s belongs to uid %d, and this runs as uid %d: run it as that user (sudo -u '#%d' …)",
			subject, st.Uid, uid, st.Uid)
	}
	return nil
}
