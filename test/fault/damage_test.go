package fault

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// A record is a conversation of a few appends in one segment, which tests spoil and put right again.
type record struct {
	*driver
	name  string // of the segment
	whole []byte // what is in it
	lines []batch
}

func newRecord(t *testing.T) *record {
	t.Helper()
	s := newServer(t, scratch(t), map[string]any{
		"recall": map[string]any{"local": false}, "compaction": map[string]any{"keep_verbatim_turns": 1000},
	})
	r := &record{driver: newDriver(t, s, 1)}
	r.write()
	return r
}

// write makes the record, anew if there is one.
func (r *record) write() {
	r.t.Helper()
	r.s.begin()
	r.clear(r.shared[0])
	r.lines = nil
	for _, n := range []int{1, 3, 2} {
		b := r.next(n)
		r.append(r.shared[0], b, true)
		r.lines = append(r.lines, b)
	}
	r.s.stop()
	r.name = r.s.segmentOf("operator")
	whole, err := os.ReadFile(r.name)
	if err != nil {
		r.t.Fatal(err)
	}
	r.whole = whole
}

// split is the lines of the record, each with its newline.
func (r *record) split() [][]byte {
	lines := bytes.SplitAfter(r.whole, []byte("\n"))
	return lines[:len(lines)-1]
}

// spoil writes the segment, and returns what is served of it then: names of batches, each of which is as it was sent, and
// whether damage is told.
func (r *record) spoil(content []byte) (served []string, told bool, status int) {
	r.t.Helper()
	if err := os.WriteFile(r.name, content, 0o600); err != nil {
		r.t.Fatal(err)
	}
	r.s.begin()
	a := r.s.try("GET", "/v1/conversations/c0/messages?limit=1000", nil)
	var page struct {
		Data   []message
		Report json.RawMessage
	}
	if err := json.Unmarshal(a.body, &page); err != nil && a.status == 200 {
		r.fatalf("%v: %s", err, a.body)
	}
	for i, m := range page.Data {
		b, _, err := m.parse()
		if err != nil {
			r.fatalf("what is served is not what was sent: %v", err)
		}
		if i == 0 || served[len(served)-1] != b.name {
			served = append(served, b.name)
		}
	}
	return served, bytes.Contains(page.Report, []byte("damaged")), a.status
}

// repair puts the record right, and takes away what a daemon has made beside it.
func (r *record) repair() {
	r.t.Helper()
	r.s.kill()
	for name := range filesOf(r.t, r.s.dir) {
		if strings.HasPrefix(name, r.name[:strings.LastIndexByte(r.name, '/')+1]) && name != r.name {
			if err := os.Remove(name); err != nil {
				r.t.Fatal(err)
			}
		}
	}
	if err := os.MkdirAll(filepath.Dir(r.name), 0o700); err != nil {
		r.t.Fatal(err)
	}
	if err := os.WriteFile(r.name, r.whole, 0o600); err != nil {
		r.t.Fatal(err)
	}
}

// wipe clears the record: nothing of it is in any file then, what was put aside of a torn line neither.
func (r *record) wipe() {
	r.t.Helper()
	r.s.do(204, "DELETE", "/v1/conversations/c0", nil)
	for name, data := range filesOf(r.t, r.s.dir) {
		if word := named.Find(data); word != nil {
			r.fatalf("%s is in %s after a clear", word, name)
		}
	}
}

// TestOneWrongByteIsTold alters bytes of a record one at a time. The judge finds each; the daemon tells each, serves every
// line but the one that it is in, and none that is not as it was sent.
func TestOneWrongByteIsTold(t *testing.T) {
	t.Parallel()
	r := newRecord(t)
	step := every(131)
	runs, seed := 0, rand.Int()
	t.Logf("seed %d", seed)
	for at := rng(seed).IntN(step); at < len(r.whole); at += step {
		r.what = fmt.Sprintf("byte %d", at)
		content := bytes.Clone(r.whole)
		content[at] ^= byte(1 + (at*7+seed%255)%255)
		served, told, status := r.spoil(content)
		if found := r.s.check(); len(found) == 0 {
			r.fatalf("silent: check finds nothing")
		}
		if !told && status == 200 {
			r.fatalf("silent: no damage is told, served are %v", served)
		}
		if len(served) < len(r.lines)-1 {
			r.fatalf("status %d, served are %v of %v", status, served, r.lines)
		}
		if a := r.s.try("POST", "/v1/conversations/c0/turns", body(t, false, batch{nameOf(900_000 + int64(at)), 1})); a.status != 201 {
			r.fatalf("an append behind it: %d %.300s", a.status, a.body)
		}
		r.repair()
		runs++
	}
	t.Logf("%d of %d bytes altered: all told", runs, len(r.whole))
}

// TestATornTailIsRecovered cuts the last line short at its bytes, or has NULs or garbage in its place. What was cut is no
// finding, and is there once when it is sent again; garbage is damage, and everything before it is served.
func TestATornTailIsRecovered(t *testing.T) {
	t.Parallel()
	r := newRecord(t)
	last := r.lines[len(r.lines)-1]
	begin := bytes.LastIndexByte(r.whole[:len(r.whole)-1], '\n') + 1
	step := every(149)
	runs, seed := 0, rand.Int()
	t.Logf("seed %d", seed)
	for at := begin + rng(seed).IntN(min(step, len(r.whole)-1-begin)); at < len(r.whole)-1; at += step {
		nuls, garbage := bytes.Clone(r.whole), bytes.Clone(r.whole)
		for i := at; i < len(r.whole); i++ {
			nuls[i], garbage[i] = 0, byte(128+i%100)
		}
		for how, content := range map[string][]byte{"cut": r.whole[:at], "NULs": nuls, "garbage": garbage} {
			r.what = fmt.Sprintf("%s from byte %d", how, at)
			served, told, _ := r.spoil(content)
			found := r.s.check()
			if len(served) != len(r.lines)-1 || told != (how == "garbage") || (len(found) > 0) != told {
				r.fatalf("served are %v, told %t, check finds %v", served, told, found)
			}
			if a := r.append(newConversation("c0"), last, true); a.status != 201 {
				r.fatalf("sent again: %d %.300s", a.status, a.body)
			}
			all, err := r.messages("c0")
			if how != "garbage" && (err != nil || len(all) != 6) {
				r.fatalf("%d messages after it was sent again, %v", len(all), err)
			}
			r.wipe()
			r.repair()
			runs++
		}
	}
	t.Logf("%d torn tails", runs)
}

// TestALineOutOfPlaceIsTold takes whole lines out of a record, repeats them, has them change places, and puts those of an
// earlier record in their place. Each is right by itself, so only their chain tells.
func TestALineOutOfPlaceIsTold(t *testing.T) {
	t.Parallel()
	r := newRecord(t)
	earlier := r.split()
	r.write()
	lines := r.split()
	var spoilt [][]byte
	for i := 1; i < len(lines); i++ {
		if i < len(lines)-1 { // that the end is missing nobody can know
			spoilt = append(spoilt, bytes.Join(slices.Concat(lines[:i], lines[i+1:]), nil),
				bytes.Join(slices.Concat(lines[:i], [][]byte{lines[i+1], lines[i]}, lines[i+2:]), nil))
		}
		spoilt = append(spoilt, bytes.Join(slices.Concat(lines[:i+1], lines[i:]), nil),
			bytes.Join(slices.Concat(lines[:i], [][]byte{earlier[i]}, lines[i+1:]), nil))
	}
	for i, content := range spoilt {
		r.what = fmt.Sprintf("case %d of %d lines", i, len(lines))
		served, told, status := r.spoil(content)
		if found := r.s.check(); len(found) == 0 || !told || status != 200 {
			r.fatalf("silent: told %t, status %d, served are %v, check finds %v", told, status, served, found)
		}
		r.repair()
	}
	t.Logf("%d cases", len(spoilt))
}
