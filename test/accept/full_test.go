package accept

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"
)

// took is the sizes of all files of a caller's conversations, by the kind of the caller.
func (d *daemon) took(kind string) (bytes int64) {
	d.t.Helper()
	err := filepath.WalkDir(filepath.Join(d.dir, "transcripts", kind), func(name string, e fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil || !e.Type().IsRegular() {
			return err
		}
		info, err := e.Info()
		if err == nil {
			bytes += info.Size()
		}
		return err
	})
	if err != nil {
		d.t.Fatal(err)
	}
	return bytes
}

// words is an append of so many bytes of text.
func words(n int) []byte {
	return []byte(`{"messages":[{"role":"user","content":"` + strings.Repeat("x", n) + `"}]}`)
}

type refused struct {
	Code, Field   string
	Limit, Actual int64
}

// TestQuotasHoldThroughKills fills up one caller from many clients, with kills in
// between, while another goes on.
func TestQuotasHoldThroughKills(t *testing.T) {
	t.Parallel()
	const quota = 400_000
	d := newDaemon(t)
	d.configure(map[string]any{"quota": map[string]any{"bytes": fmt.Sprint(quota)}, "store": map[string]any{"segment": "64KiB"}})
	ann, bob := caller{d, d.token("operator", "ann", "")}, caller{d, d.token("mesh", "bob", "")}
	d.begin()
	for life := range 4 {
		stop, answered := ann.crowd(uint64(life), quota)
		await(t, "some are answered", func() bool { return answered.Load() > 40 })
		bob.do(201, "POST", "/v1/conversations/mine/turns", words(100))
		d.kill()
		stop()
		if got := d.took("operator"); got > quota {
			t.Fatalf("life %d: %d bytes are there, of %d", life, got, quota)
		}
		d.begin()
	}
	fillUp(t, d, ann, quota)
	ann.do(200, "GET", "/v1/conversations/c0/replay", nil)
	ann.do(200, "POST", "/v1/conversations/c1/rewind", []byte(`{"through_seq":1}`))
	bob.do(201, "POST", "/v1/conversations/mine/turns", words(3000))
	ann.do(200, "GET", "/readyz", nil)
	ann.do(204, "DELETE", "/v1/conversations/c1", nil)
	ann.do(201, "POST", "/v1/conversations/c0/turns", words(2000))
	out, err := d.command("stats", d.dir, "--json", "--config", d.file).Output()
	var mine struct {
		Caller struct {
			Bytes     int64   `json:"bytes"`
			QuotaUsed float64 `json:"quota_used"`
		}
	}
	if line, _, _ := strings.Cut(string(out), "\n"); err != nil || json.Unmarshal([]byte(line), &mine) != nil || mine.Caller.Bytes != d.took("operator") ||
		mine.Caller.QuotaUsed != float64(mine.Caller.Bytes)/quota {
		t.Errorf("stats: %s, %v, want %d bytes", out, err, d.took("operator"))
	}
	d.stop()
	if out, err := d.command("check", d.dir).CombinedOutput(); err != nil {
		t.Errorf("check: %v: %s", err, out)
	}
}

// crowd is many clients of a caller that append until stop, and how often they were
// answered. Nothing but its quota may keep them from it while the daemon lives.
func (c caller) crowd(seed uint64, quota int64) (stop func(), answered *atomic.Int64) {
	answered = &atomic.Int64{}
	var clients sync.WaitGroup
	dead := make(chan struct{})
	one := func(rng *rand.Rand) {
		status, text, _, err := c.try("POST", fmt.Sprintf("/v1/conversations/c%d/turns", rng.IntN(4)), words(rng.IntN(4000)))
		switch {
		case err != nil, status == http.StatusServiceUnavailable: // killed meanwhile
		case status == http.StatusInsufficientStorage:
			if p := decode[refused](c.d.t, text); p.Code != "quota_exceeded" || p.Field != "quota.bytes" || p.Limit != quota || p.Actual <= quota {
				c.d.t.Errorf("refused: %s", text)
			}
		case status != http.StatusCreated:
			c.d.t.Errorf("append: %d %s", status, text)
		}
		answered.Add(1)
	}
	for client := range 6 {
		clients.Go(func() {
			rng := rand.New(rand.NewPCG(seed, uint64(client)))
			for {
				select {
				case <-dead:
					return
				default:
					one(rng)
				}
			}
		})
	}
	return func() {
		close(dead)
		clients.Wait()
	}, answered
}

// fillUp appends until there is no room for the smallest message.
func fillUp(t *testing.T, d *daemon, c caller, quota int64) {
	t.Helper()
	for size := 4000; size > 0; {
		status, text, _, err := c.try("POST", "/v1/conversations/c0/turns", words(size))
		if err != nil {
			t.Fatal(err)
		}
		if status == 201 {
			continue
		}
		p := decode[refused](t, text)
		if status != 507 || p.Actual <= quota || p.Actual-d.took("operator") < int64(size) {
			t.Fatalf("%d %s, with %d bytes on disk", status, text, d.took("operator"))
		}
		size /= 2
	}
}

// TestAFullFileSystem has the data directory on a small tmpfs.
func TestAFullFileSystem(t *testing.T) {
	d := newDaemon(t)
	mount := t.TempDir()
	if err := unix.Mount("tmpfs", mount, "tmpfs", 0, "size=6m,mode=0700"); err != nil {
		t.Skipf("no tmpfs can be mounted here, so no real file system is filled: %v", err)
	}
	t.Cleanup(func() {
		d.kill()
		if err := unix.Unmount(mount, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	d.dir = filepath.Join(mount, "data")
	ann := caller{d, d.token("operator", "ann", "")}
	d.begin()
	n := 0
	for ; ; n++ {
		status, text, _, err := ann.try("POST", "/v1/conversations/big/turns", words(20_000))
		if err != nil || status != 201 && status != 507 || n > 1000 {
			t.Fatalf("append %d: %d %s, %v", n, status, text, err)
		}
		if status == 507 {
			if !strings.Contains(string(text), "disk_full") {
				t.Errorf("append %d: %s", n, text)
			}
			break
		}
	}
	var st unix.Statfs_t
	if err := unix.Statfs(mount, &st); err != nil || int64(st.Bavail)*st.Bsize < 6<<20/16 {
		t.Errorf("%d bytes are free, want a sixteenth: %v", int64(st.Bavail)*st.Bsize, err)
	}
	if status, _, _, err := ann.try("GET", "/readyz", nil); err != nil || status != 503 {
		t.Errorf("readyz on a full disk: %d, %v", status, err)
	}
	ann.do(200, "POST", "/v1/conversations/big/rewind", []byte(`{"through_seq":2}`))
	d.token("mesh", "bob", "") // it is a file, too
	occupy(t, filepath.Join(mount, "other"))
	if status, text, _, err := ann.try("POST", "/v1/conversations/big/turns", words(10)); err != nil || status != 507 {
		t.Errorf("an append with nothing free: %d %s, %v", status, text, err)
	}
	state := decode[struct {
		Messages int `json:"messages"`
	}](t, ann.do(200, "GET", "/v1/conversations/big", nil))
	if state.Messages != n {
		t.Errorf("%d messages are there, want %d", state.Messages, n)
	}
	ann.do(204, "DELETE", "/v1/conversations/big", nil)
	ann.do(201, "POST", "/v1/conversations/big/turns", words(10))
	ann.do(200, "GET", "/readyz", nil)
	d.stop()
	if out, err := d.command("check", d.dir).CombinedOutput(); err != nil {
		t.Errorf("check: %v: %s", err, out)
	}
}

// occupy takes all that is left of a file system, as others may.
func occupy(t *testing.T, name string) {
	t.Helper()
	f, err := os.Create(name)
	if err != nil {
		t.Fatal(err)
	}
	for size := 64 << 10; size > 0; {
		if _, err := f.Write(make([]byte, size)); err != nil {
			size /= 2
		}
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
}
