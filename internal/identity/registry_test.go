package identity

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"math"
	"os"
	"strings"
	"sync"
	"testing"
	"time"
)

// logBook keeps the messages that were logged.
type logBook struct {
	mu       sync.Mutex
	messages []string
}

func (l *logBook) Enabled(context.Context, slog.Level) bool { return true }
func (l *logBook) WithAttrs([]slog.Attr) slog.Handler       { return l }
func (l *logBook) WithGroup(string) slog.Handler            { return l }

func (l *logBook) Handle(_ context.Context, r slog.Record) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	text := r.Message
	r.Attrs(func(a slog.Attr) bool { text += " " + a.String(); return true })
	l.messages = append(l.messages, text)
	return nil
}

func (l *logBook) count(part string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := 0
	for _, m := range l.messages {
		if strings.Contains(m, part) {
			n++
		}
	}
	return n
}

func mustOpen(t testing.TB, o Options) *Registry {
	t.Helper()
	r, err := NewRegistry(o)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// mustKnow fails unless token is want's, or nobody's when want is the zero Caller.
func mustKnow(t testing.TB, r *Registry, token string, want Caller) {
	t.Helper()
	got, err := r.Authenticate(token)
	if got != want {
		t.Errorf("got %#v, want %#v", got, want)
	}
	if want == (Caller{}) && err != ErrUnauthenticated || want != (Caller{}) && err != nil {
		t.Errorf("got error %v for %#v", err, want)
	}
}

func TestARunningRegistrySeesEveryChange(t *testing.T) {
	b := newBench(t)
	r := mustOpen(t, Options{File: b.file, Path: b.path()})
	if got := r.Len(); got != 0 {
		t.Errorf("a missing file has %d callers", got)
	}
	mustKnow(t, r, newToken(), Caller{})

	// From here on the file changes behind the registry's back.
	other := OpenFile(b.fsys, callersName)
	bob, eve := mesh("bob"), mesh("eve")
	first, firstID := mustCreate(t, other, NewToken{Caller: bob})
	mustKnow(t, r, first, bob)
	second, _ := mustCreate(t, other, NewToken{Caller: bob})
	third, _ := mustCreate(t, other, NewToken{Caller: eve})
	for range 2 {
		mustKnow(t, r, first, bob)
		mustKnow(t, r, second, bob)
		mustKnow(t, r, third, eve)
	}
	if got := r.Len(); got != 2 {
		t.Errorf("got %d callers, want 2", got)
	}
	if err := other.Revoke(firstID); err != nil {
		t.Fatal(err)
	}
	mustKnow(t, r, first, Caller{})
	mustKnow(t, r, second, bob)
	if err := os.Remove(b.path()); err != nil {
		t.Fatal(err)
	}
	mustKnow(t, r, second, Caller{})
	if got := r.Len(); got != 0 {
		t.Errorf("a file that is gone has %d callers", got)
	}
}

func TestEveryBadTokenGetsTheSameAnswer(t *testing.T) {
	b := newBench(t)
	now := time.Now()
	r := mustOpen(t, Options{File: b.file, Path: b.path(), Now: func() time.Time { return now }})
	good, _ := mustCreate(t, b.file, NewToken{Caller: mesh("bob")})
	expired, _ := mustCreate(t, b.file, NewToken{Caller: mesh("bob"), Expires: now.Add(time.Hour)})
	revoked, revokedID := mustCreate(t, b.file, NewToken{Caller: mesh("bob")})
	if err := b.file.Revoke(revokedID); err != nil {
		t.Fatal(err)
	}
	now = now.Add(time.Hour - 1)
	mustKnow(t, r, expired, mesh("bob"))
	now = now.Add(1)
	sum := hashToken(good)
	for name, token := range map[string]string{
		"missing": "", "expired": expired, "revoked": revoked, "unknown": newToken(), "prefix": tokenPrefix,
		"cut": good[:tokenLen-1], "longer": good + "0", "a blank before": " " + good, "another case": strings.ToLower(good),
		"typing error": good[:10] + "0" + good[11:], "its id": revokedID, "its hash": fmt.Sprintf("%x", sum),
		"huge": strings.Repeat("x", 1<<20), "NUL": "\x00",
	} {
		if token == good {
			continue // the typing error was none
		}
		if c, err := r.Authenticate(token); err != ErrUnauthenticated || c != (Caller{}) {
			t.Errorf("%s: got %#v, %v", name, c, err)
		}
	}
	mustKnow(t, r, good, mesh("bob"))
}

func TestAPeerIsKnownByItsUIDWhileItsCallerHasALiveToken(t *testing.T) {
	b := newBench(t)
	now := time.Now()
	start := now
	r := mustOpen(t, Options{File: b.file, Path: b.path(), Now: func() time.Time { return now }})
	peer := func(uid uint32, want Caller) {
		t.Helper()
		got, err := r.Peer(uid)
		if got != want || (err == ErrUnauthenticated) != (want == Caller{}) {
			t.Errorf("uid %d: got %#v, %v, want %#v", uid, got, err, want)
		}
	}
	bob, eve := mesh("bob"), mesh("eve")
	_, firstID := mustCreate(t, b.file, NewToken{Caller: bob, UID: uid(1000), Expires: now.Add(2 * time.Hour)})
	_, secondID := mustCreate(t, b.file, NewToken{Caller: bob, Expires: now.Add(time.Hour)})
	mustCreate(t, b.file, NewToken{Caller: eve, UID: uid(0), Expires: now.Add(time.Hour)})
	mustCreate(t, b.file, NewToken{Caller: eve})
	mustCreate(t, b.file, NewToken{Caller: eve, Expires: now.Add(time.Minute)})
	peer(1000, bob)
	peer(0, eve)
	for _, nobody := range []uint32{1, 1001, 65533, 65534, 65535, math.MaxUint32 - 1, math.MaxUint32} {
		peer(nobody, Caller{})
	}
	now = start.Add(2*time.Hour - 1)
	peer(1000, bob)
	now = start.Add(2 * time.Hour)
	peer(1000, Caller{})
	peer(0, eve)

	now = start
	for _, id := range []string{firstID, secondID} {
		peer(1000, bob)
		if err := b.file.Revoke(id); err != nil {
			t.Fatal(err)
		}
	}
	peer(1000, Caller{})
	mustCreate(t, b.file, NewToken{Caller: bob})
	peer(1000, bob)
	now = start.Add(1000 * time.Hour)
	peer(1000, bob)
}

func TestABadFileLeavesTheLastGoodOneInForce(t *testing.T) {
	b := newBench(t)
	var book logBook
	r := mustOpen(t, Options{File: b.file, Path: b.path(), Logger: slog.New(&book)})
	token, _ := mustCreate(t, b.file, NewToken{Caller: mesh("bob")})
	mustKnow(t, r, token, mesh("bob"))
	good := b.content(t)
	usable := func(want bool) {
		t.Helper()
		if got := r.Usable(); got != want {
			t.Errorf("usable: got %v, want %v", got, want)
		}
	}
	usable(true)

	const told = "callers file not usable"
	for i, bad := range []string{"{", good + "x", strings.Replace(good, `"hash"`, `"hush"`, 1)} {
		b.plant(t, bad)
		usable(false)
		for range 3 {
			mustKnow(t, r, token, mesh("bob"))
		}
		if got, want := book.count(told), i+1; got != want {
			t.Errorf("logged %d times after %d bad files: %q", got, want, book.messages)
		}
		if err := r.Reload(); !errors.Is(err, ErrCallersFile) {
			t.Errorf("reload: %v", err)
		}
		usable(false)
		mustKnow(t, r, token, mesh("bob"))
	}
	if err := os.Chmod(b.path(), 0o644); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		mustKnow(t, r, token, mesh("bob"))
	}
	if got := book.count("chmod 600"); got != 1 {
		t.Errorf("the loose mode was logged %d times: %q", got, book.messages)
	}
	if err := os.Chmod(b.path(), 0o600); err != nil {
		t.Fatal(err)
	}
	usable(false) // what was planted last
	b.plant(t, `{"version": 1}`)
	usable(true)
	mustKnow(t, r, token, Caller{})
	if got := book.count("nobody is let in"); got != 1 {
		t.Errorf("logged %q", book.messages)
	}
	b.plant(t, good)
	mustKnow(t, r, token, mesh("bob"))
	if book.count(token) != 0 || book.count("bob") != 0 {
		t.Errorf("a token or an id was logged: %q", book.messages)
	}
	if _, err := os.Lstat(b.path()); errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}

	b.plant(t, "{")
	if _, err := NewRegistry(Options{File: b.file, Path: b.path()}); !errors.Is(err, ErrCallersFile) {
		t.Errorf("a registry starts on a bad file: %v", err)
	}
}

func TestAReadingIsLoggedOnceThereAreCallers(t *testing.T) {
	b := newBench(t)
	var book logBook
	r := mustOpen(t, Options{File: b.file, Path: b.path(), Logger: slog.New(&book)})
	mustCreate(t, b.file, NewToken{Caller: mesh("bob")})
	for range 3 {
		if got := r.Len(); got != 1 {
			t.Errorf("got %d callers, want 1", got)
		}
	}
	if got := book.count("callers file read"); got != 1 || book.count("callers=1") != 1 {
		t.Errorf("logged %q, want one reading of 1 caller", book.messages)
	}
}

func TestWithoutAPathAChangeIsSeenAtReload(t *testing.T) {
	b := newBench(t)
	r := mustOpen(t, Options{File: b.file})
	token, id := mustCreate(t, b.file, NewToken{Caller: mesh("bob")})
	mustKnow(t, r, token, Caller{})
	if err := r.Reload(); err != nil {
		t.Fatal(err)
	}
	mustKnow(t, r, token, mesh("bob"))
	if err := b.file.Revoke(id); err != nil {
		t.Fatal(err)
	}
	if err := r.Reload(); err != nil {
		t.Fatal(err)
	}
	mustKnow(t, r, token, Caller{})
	if _, err := NewRegistry(Options{}); err == nil || !strings.Contains(err.Error(), "Options.File") {
		t.Errorf("without a file: %v", err)
	}
}

func TestARevokedTokenIsRefusedAtOnceUnderLoad(t *testing.T) {
	b := newBench(t)
	r := mustOpen(t, Options{File: b.file, Path: b.path()})
	steady, _ := mustCreate(t, b.file, NewToken{Caller: mesh("steady")})
	done := make(chan struct{})
	var readers sync.WaitGroup
	for range 4 {
		readers.Go(func() {
			for {
				select {
				case <-done:
					return
				default:
					mustKnow(t, r, steady, mesh("steady"))
				}
			}
		})
	}
	var writers sync.WaitGroup
	for i := range 3 {
		writers.Go(func() {
			c := mesh(fmt.Sprint("caller ", i))
			for range 8 {
				token, id, err := b.file.Create(NewToken{Caller: c})
				if err != nil {
					t.Error(err)
					return
				}
				mustKnow(t, r, token, c)
				if err := b.file.Revoke(id); err != nil {
					t.Error(err)
					return
				}
				mustKnow(t, r, token, Caller{})
			}
		})
	}
	writers.Wait()
	close(done)
	readers.Wait()
}

func TestAuthenticateAllocatesNoMoreThanTheName(t *testing.T) {
	b := newBench(t)
	token, _ := mustCreate(t, b.file, NewToken{Caller: mesh("bob"), UID: uid(7)})
	r := mustOpen(t, Options{File: b.file, Path: b.path()})
	got := testing.AllocsPerRun(100, func() {
		if _, err := r.Authenticate(token); err != nil {
			t.Fatal(err)
		}
	})
	if got > 1 { // the path for the system call
		t.Errorf("got %v allocations, want 1 at most", got)
	}
}

func BenchmarkAuthenticate(b *testing.B) {
	for _, callers := range []int{1, 10_000} {
		bench := newBench(b)
		doc := document{Version: callersVersion}
		var token string
		for i := range callers {
			token = newToken()
			sum := hashToken(token)
			doc.Callers = append(doc.Callers, record{Kind: "mesh", ID: fmt.Sprint(i), Tokens: []stored{
				{ID: newTokenID(), Hash: fmt.Sprintf("%x", sum), Created: time.Now()},
			}})
		}
		data, err := doc.format()
		if err != nil {
			b.Fatal(err)
		}
		bench.plant(b, string(data))
		for name, path := range map[string]string{"watched": bench.path(), "unwatched": ""} {
			r := mustOpen(b, Options{File: bench.file, Path: path})
			b.Run(fmt.Sprintf("%s/callers=%d", name, callers), func(b *testing.B) {
				b.ReportAllocs()
				b.RunParallel(func(pb *testing.PB) {
					for pb.Next() {
						if _, err := r.Authenticate(token); err != nil {
							b.Error(err)
						}
					}
				})
			})
		}
	}
}
