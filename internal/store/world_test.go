package store

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"iter"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"historyd/internal/durable/crashfs"
	"historyd/internal/history"
	"historyd/internal/identity"
)

var seedsFlag = flag.Int("crash.seeds", 20, "random seeds of each crash test; CRASH_SEEDS overrides it")

// crashSeeds is how many random power cuts and scripts to try.
func crashSeeds() int {
	if n, err := strconv.Atoi(os.Getenv("CRASH_SEEDS")); err == nil {
		return n
	}
	return *seedsFlag
}

// thorough reports whether there is time for every combination.
func thorough() bool { return crashSeeds() >= 200 }

// A world knows what may be in the conversations of one caller: for each, the
// contents that are possible after what was asked and what was answered. A content is
// a list of batches. Those of one group may stand in any order, and are listed sorted.
type world struct {
	t    *testing.T
	what string // of the test, for messages
	may  map[string]map[string]bool
	open map[string]map[string]bool       // batches that a process that dies may yet leave behind the last one
	back map[string][]func(string) string // likewise rewinds
	keys map[string]sent                  // by batch, of those with a key
}

type sent struct {
	conversation string
	messages     int
}

func newWorld(t *testing.T, what string) *world {
	return &world{t: t, what: what, may: map[string]map[string]bool{}, open: map[string]map[string]bool{}, back: map[string][]func(string) string{}, keys: map[string]sent{}}
}

func (w *world) fatalf(format string, args ...any) {
	w.t.Helper()
	w.t.Fatalf("%s: %s", w.what, fmt.Sprintf(format, args...))
}

func (w *world) contents(conversation string) map[string]bool {
	if w.may[conversation] == nil {
		w.may[conversation] = map[string]bool{"": true}
	}
	return w.may[conversation]
}

// did notes an operation that makes one content of another, and whether it was acknowledged.
func (w *world) did(conversation string, err error, change func(content string) string) {
	after := map[string]bool{}
	for content := range w.contents(conversation) {
		after[change(content)] = true
		if err != nil {
			after[content] = true
		}
	}
	w.may[conversation] = after
	if err == nil {
		w.open[conversation], w.back[conversation] = nil, nil
	}
}

// bare is the name of a batch, rewound or not.
func bare(batch string) string { return strings.TrimPrefix(batch, "~") }

// added notes an append or an import at the end. One with a key that is there already adds nothing.
func (w *world) added(conversation, batch string, err error) {
	w.did(conversation, err, func(content string) string {
		if slices.ContainsFunc(strings.Fields(content), func(b string) bool { return bare(b) == batch }) {
			return content
		}
		return canonical(append(strings.Fields(content), batch))
	})
	if err != nil {
		if w.open[conversation] == nil {
			w.open[conversation] = map[string]bool{}
		}
		w.open[conversation][batch] = true
	}
}

// died notes that a process has ended: what it left open is settled when the next one starts.
func (w *world) died() {
	clear(w.open)
	clear(w.back)
}

// saw notes what a read has shown: it must have been possible, and it stays.
func (w *world) saw(conversation, content string) {
	w.t.Helper()
	may := w.contents(conversation)
	if !may[content] {
		w.fatalf("%s holds %q, possible are %q", conversation, content, slices.Sorted(maps.Keys(may)))
	}
	shown := strings.Fields(content)
	maps.DeleteFunc(may, func(c string, _ bool) bool {
		if slices.ContainsFunc(w.back[conversation], func(rewind func(string) string) bool { return rewind(content) == c }) {
			return false
		}
		settled := slices.DeleteFunc(strings.Fields(c), func(b string) bool { return w.open[conversation][bare(b)] && !slices.Contains(shown, b) })
		return strings.Join(settled, " ") != content
	})
}

// made makes the messages of a batch, each with the name of the batch in it.
func made(batch string, n int) (msgs []history.Message) {
	for i := range n {
		m := user(fmt.Sprintf("%s %d/%d %s", batch, i+1, n, strings.Repeat("x", 40*i)))
		if strings.HasPrefix(batch, "p") {
			m.Content = append(m.Content, pictures(batch)...)
		}
		msgs = append(msgs, m)
	}
	return msgs
}

// pictures are two blocks of a batch, the first of which all others have, too.
func pictures(batch string) []history.Block {
	blocks := []history.Block{{Type: history.ImageBlock, MediaType: "image/png"}, {Type: history.ImageBlock}}
	blocks[0].SetData([]byte("a picture that many show"))
	blocks[1].SetData([]byte("a picture of " + batch))
	return blocks
}

// seen compares the attachments of a message with what they were.
func (w *world) seen(v history.View, batch string, m *history.Message) error {
	if !strings.HasPrefix(batch, "p") {
		return nil
	}
	for i, want := range pictures(batch) {
		a, err := v.Attachment(m.Content[i+1].Attachment)
		if errors.Is(err, history.ErrNotFound) || errors.Is(err, history.ErrDamaged) {
			w.fatalf("picture %d of %s: %v", i, batch, err)
		}
		if err != nil {
			return err
		}
		if !bytes.Equal(a.Data, want.Data) || a.MediaType != want.MediaType {
			w.fatalf("picture %d of %s is %q of type %s", i, batch, a.Data, a.MediaType)
		}
	}
	return nil
}

// read lists the batches of a conversation, and checks that each is whole.
func (w *world) read(l history.Log) (string, error) {
	v, err := l.View(w.t.Context())
	if err != nil {
		return "", err
	}
	defer v.Close()
	var batches []string
	seq, next := int64(0), 0
	rewound := map[int64]bool{0: false}
	for r, err := range v.Records(1, 1<<40) {
		if err != nil {
			return "", err
		}
		m, err := r.Message()
		if err != nil {
			return "", err
		}
		var batch string
		var i, n int
		if _, err := fmt.Sscanf(m.Content[0].Text, "%s %d/%d", &batch, &i, &n); err != nil {
			w.fatalf("message %d says %q", m.Seq, m.Content[0].Text)
		}
		if seq++; m.Seq != seq {
			w.fatalf("seq %d follows %d", m.Seq, seq-1)
		}
		if err := w.seen(v, batch, &m); err != nil {
			return "", err
		}
		if rewound[m.Seq] = m.Rewound; m.Rewound {
			batch = "~" + batch
		}
		if i != next+1 || i > 1 && batches[len(batches)-1] != batch {
			w.fatalf("%s %d/%d follows %q and %d", batch, i, n, batches, next)
		}
		if i == 1 {
			batches = append(batches, batch)
		}
		if next = i; i == n {
			next = 0
		}
	}
	if next != 0 {
		w.fatalf("the last batch of %q ends after message %d", batches, next)
	}
	if s := v.State(); s.LastSeq != seq || s.Messages != seq || v.Damage() != nil || s.Damage != nil {
		w.fatalf("%d messages read, damage %+v, state %+v", seq, v.Damage(), s)
	}
	w.words(v.State(), rewound)
	return canonical(batches), nil
}

// canonical sorts the batches that belong to one group: their names are alike but for the last letter.
func canonical(batches []string) string {
	group := func(s string) string {
		if s = bare(s); strings.HasPrefix(s, "g") {
			return s[:len(s)-1]
		}
		return s
	}
	for i := 0; i < len(batches); {
		j := i + 1
		for j < len(batches) && group(batches[j]) == group(batches[i]) {
			j++
		}
		slices.SortFunc(batches[i:j], func(a, b string) int { return strings.Compare(bare(a), bare(b)) })
		i = j
	}
	return strings.Join(batches, " ")
}

// A step does one thing to a store and notes what came of it.
type step struct {
	conversation string
	writes       bool // one write: when it fails the store is not ready
	do           func(w *world, l history.Log) error
}

// appends is an append of n messages; with a key if keyed; folded now and then.
func appends(conversation, batch string, n int, keyed bool) step {
	return step{conversation, true, func(w *world, l history.Log) error {
		b := history.Batch{Messages: made(batch, n), Fold: everyThird{}}
		if keyed {
			b.Key = "key of " + batch
			w.keys[batch] = sent{conversation, n}
		}
		_, err := l.Append(w.t.Context(), b)
		w.added(conversation, batch, err)
		return err
	}}
}

// groups is several appends at once.
func groups(conversation, group string, n int) step {
	return step{conversation, false, func(w *world, l history.Log) error {
		errs := make([]error, n)
		var wg sync.WaitGroup
		for i := range n {
			wg.Go(func() {
				_, errs[i] = l.Append(w.t.Context(), history.Batch{Messages: made(group+string(rune('a'+i)), 2), Fold: everyThird{}})
			})
		}
		wg.Wait()
		for _, failed := range []bool{false, true} { // in whichever order: those that failed may come last
			for i, err := range errs {
				if failed == (err != nil) {
					w.added(conversation, group+string(rune('a'+i)), err)
				}
			}
		}
		return errors.Join(errs...)
	}}
}

// takes is an import. To a record with the batch in it, one that extends adds nothing.
func takes(conversation, batch string, n int, mode history.ImportMode) step {
	return step{conversation, true, func(w *world, l history.Log) error {
		msgs := made(batch, n)
		for i := range msgs {
			msgs[i].ID = fmt.Sprint(batch, "-", i)
		}
		imp := history.Import{Mode: mode, Messages: slices2(msgs), Fold: everyThird{}}
		if strings.HasPrefix(batch, "p") {
			// One of the pictures comes behind the messages.
			own := pictures(batch)[1]
			for i := range msgs {
				msgs[i].Content[2].Data = nil
			}
			imp.Attachments = func(yield func(history.Attachment, error) bool) {
				yield(history.Attachment{Name: own.Attachment, Data: own.Data}, nil)
			}
		}
		_, err := l.Import(w.t.Context(), imp)
		switch {
		case errors.Is(err, history.ErrNotEmpty):
			if w.contents(conversation)[""] && len(w.contents(conversation)) == 1 {
				w.fatalf("import %s: %v", batch, err)
			}
			delete(w.contents(conversation), "")
			return nil
		case mode == history.Replace:
			w.did(conversation, err, func(string) string { return batch })
		default:
			w.added(conversation, batch, err)
		}
		return err
	}}
}

func slices2(msgs []history.Message) iter.Seq2[history.Message, error] {
	return func(yield func(history.Message, error) bool) {
		for _, m := range msgs {
			if !yield(m, nil) {
				return
			}
		}
	}
}

func clears(conversation string) step {
	return step{conversation, true, func(w *world, l history.Log) error {
		err := l.Clear(w.t.Context())
		w.did(conversation, err, func(string) string { return "" })
		return err
	}}
}

// rewinds ends a conversation behind the first batches that are there.
func rewinds(conversation string, batches int) step {
	return step{conversation, false, func(w *world, l history.Log) error {
		content, err := w.read(l)
		if err != nil {
			return err
		}
		w.saw(conversation, content)
		state, err := l.State(w.t.Context())
		if err != nil || !state.Exists() {
			return err
		}
		through, kept, err := beginning(w, l, batches)
		if err != nil {
			return err
		}
		change := func(content string) string {
			fields := strings.Fields(content)
			for i, f := range fields {
				if !kept[bare(f)] {
					fields[i] = "~" + bare(f)
				}
			}
			return canonical(fields)
		}
		r, err := l.Rewind(w.t.Context(), history.Rewind{Through: through})
		if same := change(content) == content; err == nil && (!same && r.Epoch == state.Epoch || r.LastSeq != state.LastSeq) {
			w.fatalf("rewound to %+v from %+v, the same %t", r, state, same)
		}
		w.did(conversation, err, change)
		if err != nil {
			w.back[conversation] = append(w.back[conversation], change)
		}
		return err
	}}
}

// beginning counts the messages of the first batches of a conversation, and names those.
func beginning(w *world, l history.Log, batches int) (n int64, names map[string]bool, err error) {
	v, err := l.View(w.t.Context())
	if err != nil {
		return 0, nil, err
	}
	defer v.Close()
	names = map[string]bool{}
	for r, err := range v.Records(1, 1<<40) {
		if err != nil {
			return 0, nil, err
		}
		m, err := r.Message()
		if err != nil {
			return 0, nil, err
		}
		if strings.Contains(m.Content[0].Text, " 1/") {
			batches--
		}
		if batches < 0 {
			break
		}
		if !m.Rewound { // it can't end there again
			n = m.Seq
		}
		name, _, _ := strings.Cut(m.Content[0].Text, " ")
		names[name] = true
	}
	return n, names, nil
}

// summarises records words of what is folded. Whether they are there after a failure
// is not known; what is there is looked at by every read.
func summarises(conversation string) step {
	return step{conversation, false, func(w *world, l history.Log) error {
		state, err := l.State(w.t.Context())
		if err != nil || state.Summary == nil {
			return err
		}
		through := state.Summary.ThroughSeq
		err = l.Summarise(w.t.Context(), state.Epoch, history.Prose{Text: wordsOf(through), ThroughSeq: through, Model: "m"})
		if errors.Is(err, history.ErrPrecondition) {
			return nil // damage, or a failure that gave the conversation another epoch
		}
		if err != nil {
			return err
		}
		after, err := l.State(w.t.Context())
		if err == nil && (after.Prose == nil || after.ETag() != state.ETag() || after.LastID != state.LastID || !after.UpdatedAt.Equal(state.UpdatedAt)) {
			w.fatalf("after the words of %+v the state is %+v", state, after)
		}
		return err
	}}
}

func shows(conversation string) step {
	return step{conversation, false, func(w *world, l history.Log) error {
		content, err := w.read(l)
		if err == nil {
			w.saw(conversation, content)
		}
		return err
	}}
}

// restarts stops the store in good order. It is done by the one who runs the script.
var restarts = step{}

// everyThird folds all but the last turn once there are four.
type everyThird struct{}

func (everyThird) Due(_, after history.Window) bool { return after.Turns >= 4 }

func (everyThird) Fold(prev *history.Summary, window iter.Seq2[history.Message, error]) (*history.Summary, error) {
	next := history.Summary{}
	if prev != nil {
		next = *prev
	}
	if p := next.Next; p != nil {
		next.Text, next.TextSeq, next.Next = p.Text, p.ThroughSeq, nil
	}
	var msgs []history.Message
	for m, err := range window {
		if err != nil {
			return nil, err
		}
		msgs = append(msgs, m)
	}
	for _, m := range msgs[:len(msgs)-1] {
		if m.Seq <= next.ThroughSeq || m.Rewound {
			panic("the window has what does not belong there")
		}
		next.ThroughSeq, next.At, next.Turns = m.Seq, m.At, next.Turns+1
	}
	next.Lines = []string{fmt.Sprint(next.ThroughSeq)}
	return &next, nil
}

var ann = func() identity.Scope {
	c, err := identity.NewCaller(string(identity.Operator), "ann", "", "")
	if err != nil {
		panic(err)
	}
	return c.Scope()
}()

// start opens a store with small segments, and with quotas and a reserve that are never
// used up.
func start(fsys *crashfs.FS) (*Store, error) {
	s, err := Open(Options{FS: fsys, NewID: safeIDs(), SegmentBytes: 1500, OpenFiles: 2,
		Quota: Quota{Bytes: 1 << 40, Conversations: 1 << 20}, Reserve: 1})
	if err == nil {
		s.spoolMemory = 300
	}
	return s, err
}

func rng(seed int) *rand.Rand { return rand.New(rand.NewPCG(uint64(seed), 99)) }
