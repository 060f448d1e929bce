package store

import (
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"unicode"

	"historyd/internal/history"
)

// A draft is the lines of one group before they are written, and the state as it
// will be when they are.
type draft struct {
	t     *transcript
	snap  snapshot
	seg   int
	off   int64 // where buf goes
	begin bool  // buf is a new segment, its header first
	buf   []byte
	paid  int // bytes of buf that room is kept for

	commits  int
	messages int64
	keys     []knownKey
	given    map[string]history.Receipt // of keyed batches in this draft
	staged   []history.Message          // of this draft, not folded yet; for folds
	counted  []string                   // hashes of attachments whose bytes this draft counts
	scratch  *scratch
}

func (t *transcript) newDraft(snap *snapshot, mem *scratch) *draft {
	d := &draft{t: t, snap: *snap, seg: snap.seg, off: snap.off, buf: mem.buf[:0], scratch: mem}
	d.snap.failed, d.snap.torn, d.snap.unreadable = false, 0, false
	if !snap.exists || snap.begin || snap.off >= t.store.segmentBytes {
		d.begin = true
	} else if snap.newline {
		d.buf = append(d.buf, '\n')
		d.snap.totals.Bytes++
	}
	return d
}

// start writes the header of a new segment before its first line.
func (d *draft) start(created string) {
	t := d.t
	if !d.begin || len(d.buf) > 0 {
		return
	}
	s := &d.snap
	if !s.exists || s.newLife {
		s.totals.Epoch = randomHex(8)
	}
	if s.totals.Created == "" {
		s.totals.Created = created
	}
	after := place{s.seg, s.off}
	d.seg, d.off = t.files.nextNumber(), 0
	k := t.key
	c := &commit{
		Header: &header{Version: formatVersion, Kind: string(k.scope.Kind()), Caller: k.scope.ID(),
			PermissionScope: k.scope.PermissionScope(), Conversation: k.name, CreatedAt: s.totals.Created,
			After: after, Lost: s.lost, Salt: randomHex(8)},
		First: s.last + 1, Last: s.last, ID: s.id, At: t.now(), Prev: checksum(s.sum), Totals: s.totals,
	}
	d.snap.when = c.At
	d.line(c)
	d.snap.newline, d.snap.begin, d.snap.newLife, d.snap.lost = false, false, false, nil
}

func (t *transcript) now() string { return t.store.now().UTC().Format(history.TimeFormat) }

// line appends one line to the draft, and moves the state behind it.
func (d *draft) line(c *commit) {
	before := len(d.buf)
	d.snap.at = place{d.seg, d.off + int64(before)}
	d.scratch.payload = c.payload(d.scratch.payload[:0])
	d.buf, d.snap.sum = appendFrame(d.buf, d.scratch.payload)
	d.snap.seg, d.snap.off = d.seg, d.off+int64(len(d.buf))
	d.snap.totals = c.Totals
	d.snap.totals.Bytes += int64(len(d.buf) - before)
	d.snap.last, d.snap.id, d.snap.when = c.Last, c.ID, c.At
	d.snap.newline = false
}

// here is where the next line will begin.
func (d *draft) here() place {
	return place{d.seg, d.off + int64(len(d.buf))}
}

// add checks a batch and gives it its place, for which sp keeps room.
func (d *draft) add(b history.Batch, sp *spending) (history.Receipt, error) {
	if b.Key != "" {
		first, known, err := d.replayed(b.Key, b.Fingerprint)
		if err != nil || known {
			return first, err
		}
	}
	if b.IfMatch != nil && !b.IfMatch(history.ETag(d.epochNow(), d.snap.last)) {
		return history.Receipt{}, history.ErrPrecondition
	}
	p, err := d.t.place(b.Messages)
	if err != nil && !errors.Is(err, history.ErrNoAttachment) {
		err = d.t.failure(err)
	}
	if err != nil {
		return history.Receipt{}, err
	}
	before := *d
	e := entryOf(b)
	e.attached = d.uncounted(&p)
	r, err := d.commit(e)
	if err == nil {
		err = d.pay(sp, &p)
	}
	if err != nil {
		d.back(&before)
		return history.Receipt{}, err
	}
	d.counted = append(d.counted, p.named...)
	return r, nil
}

// pay keeps room for what an entry takes, and makes its attachments durable.
func (d *draft) pay(sp *spending, p *placing) error {
	w := weight{bytes: int64(len(d.buf)-d.paid) + p.bytes}
	if d.begins(sp) {
		w.conversations = 1
	}
	err := sp.hold(w, false)
	if _, over := errors.AsType[*history.QuotaExceeded](err); over {
		return err
	}
	if err == nil {
		err = d.t.keep(p)
		d.t.disturbed = d.t.disturbed || err != nil
	}
	if err != nil {
		return d.t.failure(err)
	}
	d.paid = len(d.buf)
	return nil
}

// finish makes a draft without attachments durable. With vital it finds room where
// others find none. before is called when there is room; it may be nil.
func (d *draft) finish(sp *spending, vital bool, before func() error) error {
	w := weight{bytes: int64(len(d.buf))}
	if d.begins(sp) {
		w.conversations = 1
	}
	err := sp.hold(w, vital)
	if _, full := errors.AsType[*history.QuotaExceeded](err); full {
		return err
	}
	if err != nil {
		return d.t.failure(err)
	}
	if before != nil {
		if err := before(); err != nil {
			return err
		}
	}
	if err := d.t.write(d); err != nil {
		return d.t.failure(err)
	}
	sp.sure = true
	d.t.publish(d)
	return nil
}

// begins reports whether the conversation has no segment yet.
func (d *draft) begins(sp *spending) bool {
	return sp.before.conversations == 0 && sp.took.conversations == 0
}

// back takes back what was drafted since.
func (d *draft) back(before *draft) {
	d.snap, d.seg, d.off, d.begin = before.snap, before.seg, before.off, before.begin
	d.buf, d.keys, d.staged, d.counted = before.buf, before.keys, before.staged, before.counted
	d.commits, d.messages = before.commits, before.messages
}

// uncounted is the size of the attachments that no line counts yet.
func (d *draft) uncounted(p *placing) (bytes int64) {
	slices.Sort(p.named)
	p.named = slices.Compact(p.named)
	for _, digits := range p.named {
		if slices.Contains(d.counted, digits) {
			continue
		}
		if size, fresh := p.fresh[digits]; fresh {
			bytes += size
		} else {
			bytes += d.t.strays[digits]
		}
	}
	return bytes
}

// epochNow is the epoch that State would tell.
func (d *draft) epochNow() string {
	if !d.snap.exists && len(d.buf) == 0 {
		return ""
	}
	snap := d.snap
	snap.exists = true
	return d.t.history(&snap).Epoch
}

// newEntry is what one line is made of.
type newEntry struct {
	messages    []history.Message
	keepIDs     bool // an import: ids and times stay where given
	key         string
	fingerprint [32]byte
	note        []byte
	added       int64
	skipped     int64
	attached    int64 // bytes of attachments that were not there before
	fold        history.Folder
	created     string
}

func entryOf(b history.Batch) newEntry {
	return newEntry{messages: b.Messages, key: b.Key, fingerprint: b.Fingerprint, note: b.Note, fold: b.Fold}
}

// commit appends the line of an entry.
func (d *draft) commit(e newEntry) (history.Receipt, error) {
	now := stored(d.t.store.now())
	at := now.Format(history.TimeFormat)
	if e.created == "" {
		e.created = at
	}
	d.start(e.created)
	c := &commit{First: d.snap.last + 1, Last: d.snap.last, ID: d.snap.id, At: at, Prev: checksum(d.snap.sum),
		Totals: d.snap.totals, Note: e.note, Added: e.added, Skipped: e.skipped, Messages: d.scratch.messages[:0]}
	c.Totals.Bytes += e.attached
	receipt := history.Receipt{Epoch: c.Totals.Epoch, FirstSeq: c.First, Added: int64(len(e.messages)), Note: e.note}
	before := d.window()
	var staged []history.Message
	for i := range e.messages {
		m := e.messages[i].StripData()
		c.Last++
		c.ID = d.t.store.newID(c.ID)
		if !e.keepIDs || m.ID == "" {
			m.ID = c.ID
		}
		if !e.keepIDs || m.At.IsZero() {
			m.At = now
		}
		m.At = stored(m.At) // a folder must see what a reader will see
		m.Seq = c.Last
		if i > 0 {
			c.Messages = append(c.Messages, ',')
		}
		c.Messages = history.AppendMessage(c.Messages, &m)
		receipt.IDs = append(receipt.IDs, m.ID)
		d.count(&c.Totals, &m)
		staged = append(staged, m)
	}
	if len(e.messages) == 0 {
		c.ID = d.t.store.newID(c.ID)
		receipt.FirstSeq = 0
	}
	receipt.LastSeq = c.Last
	if e.key != "" {
		if err := d.setKey(c, e.key, e.fingerprint); err != nil {
			return history.Receipt{}, err
		}
	}
	d.staged = append(d.staged, staged...)
	if e.fold != nil {
		receipt.Folded = d.fold(c, e.fold, before)
	}
	d.line(c)
	d.scratch.messages = c.Messages
	d.commits++
	d.messages += int64(len(e.messages))
	if e.key != "" {
		if d.given == nil {
			d.given = map[string]history.Receipt{}
		}
		d.given[e.key] = receipt
	}
	return receipt, nil
}

// count moves the totals over one message.
func (d *draft) count(t *totals, m *history.Message) {
	t.Messages++
	if m.Rewound {
		t.OutMessages++
	}
	if m.StartsTurn() {
		t.Turns++
		if m.Rewound {
			t.OutTurns++
		}
		if t.Title.none() && titleOf(m) != "" {
			t.Title = d.here()
		}
	}
	if m.Role == history.Assistant {
		t.Answered = true
	}
}

func (d *draft) window() history.Window { return windowOf(&d.snap.totals, d.snap.last) }

// fold lets older turns leave the window, if they are due. Whatever goes wrong
// there, the append goes on. It reports whether they did.
func (d *draft) fold(c *commit, folder history.Folder, before history.Window) bool {
	after := windowOf(&c.Totals, c.Last)
	var met passed
	window := d.unfolded(c.Totals.FoldedSeq, &met)
	next, err := d.callFold(folder, before, after, window)
	if err != nil {
		d.t.store.log.Warn("a fold failed", "scope", d.t.key.scope, "conversation", shortName(d.t.dir), "error", err)
		return false
	}
	if next == nil || next.ThroughSeq <= c.Totals.FoldedSeq || next.ThroughSeq > c.Last {
		return false
	}
	if next.Next != nil {
		own := *next
		own.Next, next = nil, &own
	}
	c.Totals.FoldedTurns += upTo(met.starts, next.ThroughSeq)
	c.Totals.OutMessages -= upTo(met.rewound, next.ThroughSeq) + d.snap.rewound.count(c.Totals.FoldedSeq+1, next.ThroughSeq)
	c.Totals.FoldedSeq, c.Totals.Fold = next.ThroughSeq, d.here()
	c.Totals.Prose = place{} // it is in the summary, or of one that is not the newest any more
	c.Summary = summaryLine(next)
	d.snap.summary, d.snap.prose = next, nil
	for len(d.staged) > 0 && d.staged[0].Seq <= next.ThroughSeq {
		d.staged = d.staged[1:]
	}
	return true
}

// callFold keeps a panic of the folder from failing an append.
func (d *draft) callFold(folder history.Folder, before, after history.Window, window iter.Seq2[history.Message, error]) (next *history.Summary, err error) {
	defer func() {
		if v := recover(); v != nil {
			next, err = nil, fmt.Errorf("the folder panicked with a %T", v)
		}
	}()
	if !folder.Due(before, after) || !d.t.vain.over(&d.snap.totals, after) {
		return nil, nil
	}
	prev := d.snap.summary
	if prev != nil && d.snap.prose != nil {
		from := *prev
		from.Next, prev = d.snap.prose, &from
	}
	if next, err = folder.Fold(prev, window); next == nil && err == nil {
		d.t.vain = vain{d.snap.totals.Epoch, d.snap.totals.FoldedSeq, after.Messages}
	}
	return next, err
}

// A vain fold found that nothing could leave a window of so many messages. As it read
// all of them, the next one waits until there are half as many again: so reading costs
// a constant for each message, however long nothing can leave.
type vain struct {
	epoch    string
	folded   int64
	messages int64
}

// brief is how many messages a window may have that is read whenever a fold is due.
const brief = 256

// over reports whether a window may be read again.
func (v vain) over(t *totals, w history.Window) bool {
	return w.Messages <= brief || w.Messages >= v.messages+v.messages/2 || v.epoch != t.Epoch || v.folded != t.FoldedSeq
}

// passed is the seqs of what a window holds.
type passed struct {
	starts  []int64 // of messages that begin a turn
	rewound []int64 // of messages that came in as rewound
}

// upTo counts the seqs up to one.
func upTo(seqs []int64, last int64) (n int64) {
	for _, seq := range seqs {
		if seq <= last {
			n++
		}
	}
	return n
}

// unfolded yields the messages after seq that are not rewound, first those on disk,
// then those of the draft, and notes what it meets.
func (d *draft) unfolded(seq int64, met *passed) iter.Seq2[history.Message, error] {
	return func(yield func(history.Message, error) bool) {
		*met = passed{}
		emit := func(m history.Message) bool {
			if m.Rewound {
				met.rewound = append(met.rewound, m.Seq)
				return true
			}
			if m.StartsTurn() {
				met.starts = append(met.starts, m.Seq)
			}
			return yield(m, nil)
		}
		recent := d.t.recent.messages
		through := d.t.state.Load().last // of what has to be read
		if len(recent) > 0 {
			through = recent[0].Seq - 1
		}
		for m, err := range d.standing(seq+1, through) {
			if err != nil {
				yield(m, err)
				return
			}
			if !emit(m) {
				return
			}
		}
		for _, list := range [][]history.Message{recent, d.staged} {
			for _, m := range list {
				if m.Seq > seq && !d.snap.rewound.has(m.Seq) && !emit(m) {
					return
				}
			}
		}
	}
}

// standing yields what is on disk of from <= seq <= to, without the stretches that
// were rewound.
func (d *draft) standing(from, to int64) iter.Seq2[history.Message, error] {
	return func(yield func(history.Message, error) bool) {
		onDisk := d.t.state.Load()
		for from <= to {
			end := to
			i, in := d.snap.rewound.at(from)
			switch {
			case in:
				from = d.snap.rewound[i].to + 1
				continue
			case i < len(d.snap.rewound):
				end = min(to, d.snap.rewound[i].from-1)
			}
			for r, err := range d.t.records(onDisk, from, end) {
				var m history.Message
				if err == nil {
					m, err = r.Message()
				}
				if !yield(m, err) || err != nil {
					return
				}
			}
			from = end + 1
		}
	}
}

// maxTitle is the length of a title in code points.
const maxTitle = 80

// titleOf is the beginning of a message's first text, on one line, and without characters
// that are not seen or that turn the direction of what stands beside a title.
func titleOf(m *history.Message) string {
	for i := range m.Content {
		if !m.Content[i].Said() {
			continue
		}
		text := strings.ToValidUTF8(m.Content[i].Text[:min(len(m.Content[i].Text), 4096)], "")
		text = strings.Map(func(r rune) rune {
			if unicode.Is(unicode.Cf, r) && r != '\u200c' && r != '\u200d' { // joiners: scripts and emoji need them
				return -1
			}
			return r
		}, text)
		fields := strings.FieldsFunc(text, func(r rune) bool { return unicode.IsSpace(r) || unicode.IsControl(r) })
		runes := []rune(strings.Join(fields, " "))
		if len(runes) > 0 {
			return string(runes[:min(len(runes), maxTitle)])
		}
	}
	return ""
}
