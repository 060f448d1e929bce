package fault

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
)

// A driver lets many clients use a daemon and knows what may be there. What it finds wrong fails the test.
type driver struct {
	t    *testing.T
	s    *server
	what string // happens, for messages

	shared []*conversation // that clients append to together
	count  atomic.Int64    // of names
	dark   atomic.Bool     // the power is going: an answer that comes now would never have arrived

	mu      sync.Mutex
	copies  []*conversation // made by forks, and of archives
	keyed   map[string]bool // names of batches with a key
	cleared map[string]bool // names of batches that an answered clear or import took away
	notes   map[string]note // by the names of their batches
	figures figures
}

// figures are what a run comes to.
type figures struct {
	blows, asked, acknowledged, doubtful, retried, refused int
}

func (f figures) String() string {
	return fmt.Sprintf("%d blows, %d writes asked for, %d acknowledged, %d in doubt, %d refused, %d sent again",
		f.blows, f.asked, f.acknowledged, f.doubtful, f.refused, f.retried)
}

func newDriver(t *testing.T, s *server, conversations int) *driver {
	d := &driver{t: t, s: s, keyed: map[string]bool{}, cleared: map[string]bool{}, notes: map[string]note{}}
	for i := range conversations {
		d.shared = append(d.shared, newConversation(fmt.Sprint("c", i)))
	}
	if conversations > 1 {
		d.shared[conversations-1].name = "default"
	}
	return d
}

// copy is a conversation that does not exist yet.
func (d *driver) copy() *conversation {
	to := newConversation(fmt.Sprint("f", d.count.Add(1)))
	d.mu.Lock()
	defer d.mu.Unlock()
	d.copies = append(d.copies, to)
	return to
}

func (d *driver) all() []*conversation {
	d.mu.Lock()
	defer d.mu.Unlock()
	return append(slices.Clone(d.shared), d.copies...)
}

func (d *driver) next(n int) batch { return batch{nameOf(d.count.Add(1)), n} }

// wrote counts a write, and says whether it was done. Only what is no fault of the client may keep it from that.
func (d *driver) wrote(a answer, want int, what string) (done bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.figures.asked++
	switch {
	case a.status == want && !d.dark.Load():
		d.figures.acknowledged++
		return true
	case a.status == 0 || a.status == want:
		d.figures.doubtful++
	case (a.status == http.StatusServiceUnavailable || a.status == http.StatusInsufficientStorage) && a.code() != "":
		d.figures.refused++
	default:
		d.t.Errorf("%s: %s: %d %.300s", d.what, what, a.status, a.body)
	}
	return false
}

// client does this and that until it is told to stop, or gets no answer any more.
func (d *driver) client(rng *rand.Rand, stop <-chan struct{}) {
	for {
		select {
		case <-stop:
			return
		default:
			d.step(rng)
		}
	}
}

func (d *driver) step(rng *rand.Rand) {
	c := d.shared[rng.IntN(len(d.shared))]
	switch p := rng.IntN(100); {
	case p < 1:
		d.clearAll()
	case p < 50:
		d.append(c, d.next(rng.IntN(4)+1), rng.IntN(3) > 0)
	case p < 54:
		d.conditional(c, d.next(rng.IntN(4)+1), d.next(1))
	case p < 70:
		d.read(rng, c)
	case p < 76:
		d.recall(rng, c)
	case p < 79:
		d.clear(c)
	case p < 83:
		d.replace(c, d.next(rng.IntN(4)+1), d.next(3))
	case p < 86:
		d.create(c, d.next(3))
	case p < 90:
		d.extend(c, d.next(rng.IntN(4)+1))
	case p < 94:
		d.rewind(rng, c)
	case p < 97:
		d.carry(c)
	default:
		d.fork(c)
	}
}

func (d *driver) append(c *conversation, b batch, keyed bool) answer {
	c.op.RLock()
	defer c.op.RUnlock()
	var header []string
	if keyed {
		header = []string{"Idempotency-Key", "key-of-" + b.name}
		d.mu.Lock()
		d.keyed[b.name] = true
		d.mu.Unlock()
	}
	return d.send(c, b, header...)
}

// send is an append by who holds op.
func (d *driver) send(c *conversation, b batch, header ...string) answer {
	a := d.s.try("POST", c.path()+"/turns?format="+formatOf(b), turns(d.t, b), header...)
	if !d.wrote(a, http.StatusCreated, "append") {
		c.doubt(b)
		return a
	}
	var ack struct {
		First int64 `json:"first_seq"`
		Last  int64 `json:"last_seq"`
	}
	if err := json.Unmarshal(a.body, &ack); err != nil || ack.Last-ack.First+1 != int64(b.n) {
		d.t.Errorf("append: %v: %s", err, a.body)
	}
	c.acked(b, ack.First)
	return a
}

// gone notes that all that was there is taken away for good.
func (d *driver) gone(c *conversation) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, name := range c.names() {
		d.cleared[name] = true
	}
}

func (d *driver) clear(c *conversation) answer {
	c.op.Lock()
	defer c.op.Unlock()
	a := d.s.try("DELETE", c.path(), nil)
	done := d.wrote(a, http.StatusNoContent, "clear")
	if done {
		d.gone(c)
	}
	c.becomes(done, func(*content) *content { return newContent() })
	return a
}

func (d *driver) replace(c *conversation, batches ...batch) answer {
	c.op.Lock()
	defer c.op.Unlock()
	a := d.s.try("POST", c.path()+"/import?mode=replace", body(d.t, true, batches...))
	done := d.wrote(a, http.StatusCreated, "import")
	if done {
		d.gone(c)
	}
	c.becomes(done, func(*content) *content { return sequence(batches) })
	return a
}

// extend is an import behind what is there.
func (d *driver) extend(c *conversation, b batch) answer {
	c.op.RLock()
	defer c.op.RUnlock()
	a := d.s.try("POST", c.path()+"/import?mode=append", body(d.t, true, b))
	if !d.wrote(a, http.StatusCreated, "import") {
		c.doubt(b)
		return a
	}
	var ack struct {
		Imported int   `json:"imported"`
		Last     int64 `json:"last_seq"`
	}
	if err := json.Unmarshal(a.body, &ack); err != nil || ack.Imported != b.n {
		d.t.Errorf("import: %v: %s", err, a.body)
	}
	c.acked(b, ack.Last-int64(b.n)+1)
	return a
}

// rewind ends a conversation behind one of its batches, where all is known of it.
func (d *driver) rewind(rng *rand.Rand, c *conversation) answer {
	c.op.Lock()
	defer c.op.Unlock()
	now, sure := c.sure()
	stands := slices.DeleteFunc(now.ordered(), func(p placed) bool { return p.rewound })
	if !sure || len(stands) == 0 {
		return answer{}
	}
	p := stands[rng.IntN(len(stands))]
	through := p.first + int64(p.n) - 1
	a := d.s.try("POST", c.path()+"/rewind", fmt.Appendf(nil, `{"through_seq":%d}`, through))
	done := d.wrote(a, http.StatusOK, "rewind")
	c.becomes(done, rewind(through))
	return a
}

// fork copies a conversation of which all is known.
func (d *driver) fork(c *conversation) answer {
	c.op.Lock()
	defer c.op.Unlock()
	now, sure := c.sure()
	var stands []batch
	for _, p := range now.ordered() {
		if !p.rewound {
			stands = append(stands, p.batch)
		}
	}
	if !sure || len(stands) == 0 {
		return answer{}
	}
	to := d.copy()
	a := d.s.try("POST", c.path()+"/fork", fmt.Appendf(nil, `{"to":%q}`, to.name))
	to.becomes(d.wrote(a, http.StatusCreated, "fork"), func(*content) *content { return sequence(stands) })
	return a
}

// retry sends what has a key and got no answer again: it is there once then, whether it was there before or not.
func (d *driver) retry(rng *rand.Rand) {
	d.t.Helper()
	for _, c := range d.shared {
		for _, b := range c.doubted() {
			if !d.keyed[b.name] || rng.IntN(2) == 0 {
				continue
			}
			if a := d.append(c, b, true); a.status != http.StatusCreated {
				d.fatalf("%s is sent again: %d %.300s", b.name, a.status, a.body)
			}
			d.figures.retried++
		}
	}
}

// messages reads a conversation.
func (d *driver) messages(name string) ([]message, error) {
	var all []message
	for {
		a := d.s.try("GET", fmt.Sprintf("/v1/conversations/%s/messages?limit=1000&after=%d", name, len(all)), nil)
		if a.status != http.StatusOK {
			return nil, fmt.Errorf("messages: %d %.300s", a.status, a.body)
		}
		var page struct {
			Data    []message
			HasMore bool `json:"has_more"`
			Report  json.RawMessage
		}
		if err := json.Unmarshal(a.body, &page); err != nil {
			return nil, fmt.Errorf("messages: %w: %.300s", err, a.body)
		}
		if page.Report != nil {
			return nil, fmt.Errorf("damage is told: %s", page.Report)
		}
		if all = append(all, page.Data...); !page.HasMore {
			return all, nil
		}
	}
}

func (d *driver) fatalf(format string, args ...any) {
	d.t.Helper()
	d.t.Fatalf("%s: %s; log: %s", d.what, fmt.Sprintf(format, args...), d.s.log())
}

// again starts what has ended, on a record that is sound, and sends again what got no answer.
func (d *driver) again(rng *rand.Rand) {
	d.t.Helper()
	if found := d.s.check(); len(found) > 0 {
		d.fatalf("check finds %v", found)
	}
	d.s.begin()
	d.retry(rng)
}

// verify reads everything there is and holds it to what may be there; then it is known.
func (d *driver) verify() {
	d.t.Helper()
	for _, c := range d.all() {
		all, err := d.messages(c.name)
		var found []placed
		var gone []string
		if err == nil {
			found, err = gather(all)
		}
		if err == nil {
			gone, err = c.settle(found, d.cleared)
		}
		if err != nil {
			d.fatalf("conversation %s: %v", c.name, err)
		}
		for _, name := range gone {
			d.cleared[name] = true
		}
		if err := errors.Join(d.attachments(c, found), d.known(c, all)); err != nil {
			d.fatalf("conversation %s: %v", c.name, err)
		}
		if rep := d.s.try("GET", "/v1/conversations/"+c.name+"/replay?mode=full&format=openai", nil); rep.status != http.StatusOK {
			d.fatalf("replay of %s: %d %.300s", c.name, rep.status, rep.body)
		}
	}
	d.search()
}

// alive are the batches that some conversation may hold.
func (d *driver) alive() map[string]bool {
	alive := map[string]bool{}
	for _, c := range d.all() {
		for _, name := range c.names() {
			alive[name] = true
		}
	}
	return alive
}

// quoted are those and what notes say of others: what is cleared stays where it was recalled.
func (d *driver) quoted() map[string]bool {
	quoted := d.alive()
	for name := range maps.Clone(quoted) {
		for _, word := range named.FindAllString(d.notes[name].text, -1) {
			quoted[word] = true
		}
	}
	return quoted
}

// search looks for some of what was cleared, and first of what notes say of that: nobody said those.
func (d *driver) search() {
	d.t.Helper()
	alive := d.alive()
	for _, words := range []map[string]bool{d.quoted(), d.cleared} {
		tries := 0
		for name := range words {
			if alive[name] || !named.MatchString(name) {
				continue
			}
			if tries++; tries > 2 {
				break
			}
			a := d.s.try("GET", "/v1/search?sort=newest&q="+name, nil)
			if a.status != http.StatusOK || !bytes.Contains(a.body, []byte(`"data":[]`)) {
				d.fatalf("search for %s, which was cleared: %d %.500s", name, a.status, a.body)
			}
		}
	}
}

// sweep wants no withheld value in any file, and nothing that was cleared. Read names what a directory holds.
func (d *driver) sweep(files map[string][]byte) {
	d.t.Helper()
	alive := d.quoted()
	for name, data := range files {
		if bytes.Contains(data, []byte(canary)) || strings.Contains(name, canary) {
			d.fatalf("a withheld value is in %s", name)
		}
		for _, word := range named.FindAll(data, -1) {
			if w := string(word); d.cleared[w] && !alive[w] {
				d.fatalf("resurrected: %s, which was cleared, is in %s", w, name)
			}
		}
	}
}

// filesOf reads all files under a directory.
func filesOf(t testing.TB, dir string) map[string][]byte {
	t.Helper()
	files := map[string][]byte{}
	err := filepath.WalkDir(dir, func(name string, e fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) { // what is put aside goes by itself
			return nil
		}
		if err != nil || !e.Type().IsRegular() {
			return err
		}
		b, err := os.ReadFile(name)
		if err == nil {
			files[name] = b
		}
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// prune clears what has grown, so that a long run stays quick, and forgets copies.
func (d *driver) prune(rng *rand.Rand) {
	d.t.Helper()
	for _, c := range d.all() {
		if now, _ := c.sure(); len(now.there) > 60 || strings.HasPrefix(c.name, "f") && rng.IntN(2) == 0 {
			d.clear(c)
		}
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.copies = slices.DeleteFunc(d.copies, func(c *conversation) bool {
		now, sure := c.sure()
		return sure && len(now.there) == 0
	})
	if len(d.cleared) > 20_000 {
		for name := range maps.Keys(d.cleared) {
			if delete(d.cleared, name); len(d.cleared) < 10_000 {
				break
			}
		}
	}
}

// bystander gives another caller conversations of the same names, and returns what looks whether they are as they were.
func (d *driver) bystander() func(testing.TB) {
	d.t.Helper()
	bob := &server{t: d.t, client: d.s.client, token: d.s.caller("mesh", "bob")}
	want := map[string][]byte{}
	for i, name := range []string{"c0", "default"} {
		bob.do(http.StatusCreated, "POST", "/v1/conversations/"+name+"/turns", body(d.t, false, batch{nameOf(int64(999_900 + i)), 4}))
		want[name] = bob.do(http.StatusOK, "GET", "/v1/conversations/"+name+"/messages", nil)
	}
	return func(t testing.TB) {
		t.Helper()
		for name, was := range want {
			if got := bob.try("GET", "/v1/conversations/"+name+"/messages", nil); !bytes.Equal(got.body, was) {
				t.Fatalf("%s of another caller is %d %.300s, was %.300s", name, got.status, got.body, was)
			}
		}
	}
}
