package pipeline

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"historyd/internal/durable/crashfs"
	"historyd/internal/history"
	"historyd/internal/projection"
	"historyd/internal/recall"
	"historyd/internal/store"
)

// secret is a word that shares no beginning with another one.
const secret = "qzxsecret"

// A library is a record and its index on one disk.
type library struct {
	*Pipeline
	t     *testing.T
	disk  *crashfs.FS
	store *store.Store
	index *recall.Index
	ahead atomic.Int64 // nanoseconds, of the index's clock
	keep  Conversation // stays as it is
	gone  Conversation // says the secret
}

func openLibrary(t *testing.T, disk *crashfs.FS) *library {
	t.Helper()
	s, err := store.Open(store.Options{FS: disk, NewID: func(string) string { return fmt.Sprintf("01%024d", minted.Add(1)) }})
	if err != nil {
		t.Fatal(err)
	}
	ann := conversation(t, "ann")
	l := &library{t: t, disk: disk, store: s, keep: Conversation{ann.Scope, "keep"}, gone: Conversation{ann.Scope, "gone"}}
	now := func() time.Time { return time.Now().Add(time.Duration(l.ahead.Load())) }
	if l.index, err = recall.NewIndex(recall.SearchOptions{FS: disk, Record: s, Now: now}); err != nil {
		t.Fatal(err)
	}
	l.Pipeline = newPipeline(t, s, projection.Options{}, nil)
	l.Pipeline.index = l.index
	return l
}

// close ends a life; what a disk that is broken says of it does not matter.
func (l *library) close() {
	_ = l.index.Close()
	_ = l.store.Close()
}

func (l *library) say(c Conversation, texts ...string) {
	l.t.Helper()
	for _, text := range texts {
		if _, err := l.Record(context.Background(), c, Turn{Messages: []history.Message{said(history.User, text)}}); err != nil {
			l.t.Fatal(err)
		}
	}
}

// finds is how many messages a word finds.
func (l *library) finds(word string) int {
	l.t.Helper()
	res, err := l.Search(context.Background(), l.keep.Scope, Query{Text: word})
	if err != nil || res.Behind {
		l.t.Fatalf("search of %s: behind %t, %v", word, res.Behind, err)
	}
	return len(res.Hits)
}

// filled is a disk with the secret in the record and in two files of the index.
func filled(t *testing.T) *crashfs.FS {
	t.Helper()
	disk := crashfs.New()
	for range 2 {
		l := openLibrary(t, disk)
		l.say(l.gone, "the first is plain", "the word is "+secret)
		l.say(l.keep, "the station is near")
		if n := l.finds("station"); n == 0 {
			t.Fatal("nothing is found")
		}
		l.close()
		disk = disk.Kill()
	}
	if n := len(holding(disk, "index/")); n != 2 {
		t.Fatalf("the secret is in %d files of the index, want 2", n)
	}
	if err := disk.SyncAll(); err != nil {
		t.Fatal(err)
	}
	return disk
}

// holding lists the files below a directory that hold the secret.
func holding(disk *crashfs.FS, below string) (names []string) {
	for name, data := range disk.Files() {
		if strings.HasPrefix(name, below) && bytes.Contains(data, []byte(secret)) {
			names = append(names, name)
		}
	}
	return names
}

// secrets is how many messages of the conversation say the secret and are not rewound.
func (l *library) secrets() (n int) {
	l.t.Helper()
	v, err := l.open(l.gone).View(context.Background())
	if err != nil {
		l.t.Fatal(err)
	}
	defer v.Close()
	for r, err := range v.Records(1, v.State().LastSeq) {
		if err != nil {
			l.t.Fatal(err)
		}
		if m, err := r.Message(); err == nil && !m.Rewound && strings.Contains(m.Content[0].Text, secret) {
			n++
		}
	}
	return n
}

// A removal takes the secret out of a conversation.
type removal struct {
	name string
	do   func(*library) error
	left string // where the secret may still be: the record keeps what was rewound
}

var removals = []removal{
	{"a clear", func(l *library) error { return l.Clear(context.Background(), l.gone) }, ""},
	{"a clear of all", func(l *library) error { return l.ClearAll(context.Background(), l.gone.Scope) }, ""},
	{"a rewind", func(l *library) error {
		_, err := l.Rewind(context.Background(), l.gone, 1, nil)
		return err
	}, "transcripts/"},
	{"a replacing import", func(l *library) error {
		_, err := l.Import(context.Background(), l.gone, Document{Mode: history.Replace, Source: list(said(history.User, "nothing is left"))})
		return err
	}, ""},
}

// mustBeGone looks for the secret on a disk of which the record has it no more.
func (r *removal) mustBeGone(t *testing.T, what string, disk *crashfs.FS) {
	t.Helper()
	for _, name := range holding(disk, "") {
		if r.left == "" || !strings.HasPrefix(name, r.left) {
			t.Fatalf("%s: %s: the secret is in %s", r.name, what, name)
		}
	}
}

// From one operation on the disk is dead. Whoever starts next finds the word in no file, though nobody
// ever searches; what was answered is so; and what was not done is found.
func TestCrashNoWordOutlivesItsRecordInTheIndex(t *testing.T) {
	base := filled(t)
	rng := rand.New(rand.NewPCG(8, 5))
	for _, r := range removals {
		done, undone := 0, 0
		for _, how := range []crashfs.How{crashfs.Before, crashfs.After} {
			for _, power := range []bool{false, true} {
				for at, reached := 0, true; reached; at++ {
					l := openLibrary(t, base.Kill())
					l.say(l.gone, "once more "+secret) // is in memory alone
					if n := l.finds(secret); n != 3 {
						t.Fatalf("%d messages with the secret are found, want 3", n)
					}
					l.disk.FailAt(l.disk.Ops()+at, how, syscall.EIO, true)
					err := r.do(l)
					reached = l.disk.Reached()
					disk := l.disk.Kill()
					if power {
						disk = l.disk.Crash(rng)
					}
					l.close()
					what := fmt.Sprintf("from operation %d on all fail %s, power cut %t, answer %v", at, how, power, err)
					next := openLibrary(t, disk)
					if next.secrets() == 0 {
						done++
						r.mustBeGone(t, what, disk)
						if n := next.finds(secret); n > 0 {
							t.Fatalf("%s: %s: %d messages with the secret are found", r.name, what, n)
						}
					} else {
						undone++
						if err == nil {
							t.Fatalf("%s: %s: it is not done", r.name, what)
						}
						if n := next.finds(secret); n != next.secrets() {
							t.Fatalf("%s: %s: %d messages with the secret are found, want %d", r.name, what, n, next.secrets())
						}
					}
					if n := next.finds("station"); n != 2 && r.name != "a clear of all" {
						t.Fatalf("%s: %s: %d messages of the other conversation are found, want 2", r.name, what, n)
					}
					gone := next.secrets() == 0
					next.close()
					if gone {
						r.mustBeGone(t, what+", and a second cut", disk.Crash(rng))
					}
				}
			}
		}
		if done == 0 || undone == 0 {
			t.Errorf("%s: done %d times, not done %d times", r.name, done, undone)
		}
	}
}

// What is answered and what is so agree when the index alone fails, once or for good.
func TestAnIndexThatFailsMakesNoFailureOfWhatIsDone(t *testing.T) {
	base := filled(t)
	for _, r := range removals {
		for _, sticky := range []bool{false, true} {
			refused := 0
			for at, reached := int64(0), true; reached; at++ {
				l := openLibrary(t, base.Kill())
				l.finds(secret)
				var ops atomic.Int64
				l.disk.FailWhen(func(op crashfs.Op) error {
					if !strings.HasPrefix(op.Name, "index") {
						return nil
					}
					if n := ops.Add(1) - 1; n == at || sticky && n > at {
						return syscall.EIO
					}
					return nil
				})
				err := r.do(l)
				reached = l.disk.Reached()
				left := l.secrets()
				what := fmt.Sprintf("operation %d of the index fails, for good %t", at, sticky)
				switch {
				case err != nil && !errors.Is(err, history.ErrUnavailable):
					t.Errorf("%s: %s: %v, want it to be unavailable", r.name, what, err)
				case err != nil && left != 2:
					t.Errorf("%s: %s: %v, and it is done", r.name, what, err)
				case err == nil && left != 0:
					t.Errorf("%s: %s: no error, and it is not done", r.name, what)
				}
				l.disk.Heal()
				l.ahead.Add(int64(time.Hour)) // what failed is tried again after a while
				if err != nil {
					refused++
					if n := l.finds(secret); n != left {
						t.Errorf("%s: %s: %d messages are found afterwards, want %d", r.name, what, n, left)
					}
					if err := r.do(l); err != nil {
						t.Errorf("%s: %s: again, with the index well: %v", r.name, what, err)
					}
				}
				r.mustBeGone(t, what, l.disk)
				if n := l.finds(secret); n > 0 {
					t.Errorf("%s: %s: %d messages are found", r.name, what, n)
				}
				l.close()
				r.mustBeGone(t, what+", when all is written", l.disk)
			}
			if refused == 0 {
				t.Errorf("%s: it never failed", r.name)
			}
		}
	}
}

// What is refused leaves the index alone: to make it again costs much.
func TestARefusedChangeForgetsNothing(t *testing.T) {
	l := openLibrary(t, filled(t))
	defer l.close()
	l.finds(secret)
	before := len(holding(l.disk, "index/"))
	no := func(string) bool { return false }
	ctx := context.Background()
	for what, do := range map[string]func() error{
		"a rewind of another version": func() error { _, err := l.Rewind(ctx, l.gone, 1, no); return err },
		"a rewind to nowhere":         func() error { _, err := l.Rewind(ctx, l.gone, 99, nil); return err },
		"an import of nothing": func() error {
			_, err := l.Import(ctx, l.gone, Document{Mode: history.Replace, Source: list()})
			return err
		},
		"an import that breaks off": func() error {
			gone, cancel := context.WithCancel(ctx)
			cancel()
			_, err := l.Import(gone, l.gone, Document{Mode: history.Replace, Source: list(said(history.User, "x"))})
			return err
		},
		"an import to a conversation that is there": func() error {
			_, err := l.Import(ctx, l.gone, Document{Mode: history.Create, Source: list(said(history.User, "x"))})
			return err
		},
	} {
		if err := do(); err == nil {
			t.Errorf("%s: no error", what)
		}
		if n := len(holding(l.disk, "index/")); n != before {
			t.Errorf("%s: the secret is in %d files of the index, and was in %d", what, n, before)
		}
	}
}
