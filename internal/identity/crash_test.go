package identity

import (
	"errors"
	"math/rand/v2"
	"strings"
	"syscall"
	"testing"

	"historyd/internal/durable/crashfs"
)

// promise is what a script of changes was told had happened.
type promise struct {
	live, revoked []string
}

// script makes and revokes tokens until it is refused once too often.
func script(f *File) promise {
	var p promise
	for _, id := range []string{"ann", "bob", "ann"} {
		token, tokenID, err := f.Create(NewToken{Caller: mesh(id)})
		if err != nil {
			continue
		}
		if id != "bob" {
			p.live = append(p.live, token)
		} else if f.Revoke(tokenID) == nil {
			p.revoked = append(p.revoked, token)
		}
	}
	return p
}

func (p promise) mustHold(t *testing.T, fsys *crashfs.FS) {
	t.Helper()
	r, err := NewRegistry(Options{File: OpenFile(fsys, callersName)})
	if err != nil {
		t.Fatal(err)
	}
	for _, token := range p.live {
		if _, err := r.Authenticate(token); err != nil {
			t.Errorf("a token that was handed out is refused: %v", err)
		}
	}
	for _, token := range p.revoked {
		if _, err := r.Authenticate(token); err == nil {
			t.Error("a token that was revoked is accepted")
		}
	}
}

func TestNoFaultLosesATokenOrARevocation(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for _, how := range []crashfs.How{crashfs.Before, crashfs.After, crashfs.Short} {
		for _, sticky := range []bool{false, true} {
			for at := 0; ; at++ {
				fsys := crashfs.New()
				fsys.FailAt(at, how, syscall.EIO, sticky)
				p := script(OpenFile(fsys, callersName))
				reached := fsys.Reached()
				fsys.Heal()
				p.mustHold(t, fsys)
				for _, end := range []func() *crashfs.FS{
					func() *crashfs.FS { return fsys.Kill() },
					func() *crashfs.FS { return fsys.Crash(rng) },
				} {
					fsys = end()
					p.mustHold(t, fsys)
				}
				token, _, err := OpenFile(fsys, callersName).Create(NewToken{Caller: mesh("eve")})
				if err != nil {
					t.Fatalf("no token can be made afterwards: %v", err)
				}
				p.live = append(p.live, token)
				for name := range fsys.Files() {
					if strings.Contains(name, ".tmp-") {
						t.Errorf("left behind: %s", name)
					}
				}
				p.mustHold(t, fsys.Crash(rng))
				if t.Failed() {
					t.Fatalf("operation %d failed %v, sticky %v", at, how, sticky)
				}
				if !reached {
					break
				}
			}
		}
	}
}

func TestAFullDiskKeepsTheOldFile(t *testing.T) {
	fsys := crashfs.New()
	f := OpenFile(fsys, callersName)
	token, tokenID := mustCreate(t, f, NewToken{Caller: mesh("bob")})
	before := string(fsys.Files()[callersName])
	fsys.SetCapacity(int64(len(before)) + 10)
	if _, _, err := f.Create(NewToken{Caller: mesh("eve")}); !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("create: got %v, want ENOSPC", err)
	}
	if err := f.Revoke(tokenID); !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("revoke: got %v, want ENOSPC", err)
	}
	if got := string(fsys.Files()[callersName]); got != before {
		t.Errorf("got %s, want %s", got, before)
	}
	promise{live: []string{token}}.mustHold(t, fsys)
	fsys.SetCapacity(-1)
	if err := f.Revoke(tokenID); err != nil {
		t.Error(err)
	}
	promise{revoked: []string{token}}.mustHold(t, fsys)
	if got := fsys.OpenHandles(); got != 0 {
		t.Errorf("%d files or locks are left open", got)
	}
}
