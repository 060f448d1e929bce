package history

import (
	"context"
	"encoding/json/jsontext"
	"errors"
	"iter"
	"strconv"
	"time"
)

// A Log is the record of one conversation: an ordered, append-only list of
// messages that lives until it is cleared. All methods may be called from many
// goroutines, for the same conversation too. A cancelled context stops the caller
// from waiting, but where Batch.Stays; it never undoes a commit.
//
// Errors are of the classes below. After ErrUnavailable or ErrFull from Append or
// Import it is not known whether the batch will be found in the record, but it is
// found there whole or not at all, and once a read has shown it, it stays. After
// ErrBusy it is not there, and may be sent again in a moment. Where callers have a quota
// Append and Import may also fail with a *QuotaExceeded.
type Log interface {
	// State returns what is known of the conversation without reading its messages.
	// A conversation that does not exist has the zero State and no error.
	State(context.Context) (State, error)

	// View pins the conversation as it is now, for reading. The caller closes it.
	View(context.Context) (View, error)

	// Append adds the batch at the end: all of its messages, in order, next to each
	// other, or none. Once it returns without error, the batch survives the death of
	// the process and a power cut. Order of checks: a remembered key first (the
	// first receipt comes back, or ErrKeyMismatch), then IfMatch, then attachments.
	//
	// A block with Data brings the bytes of its attachment: they are durable before
	// the message that names them, and kept once however often they are brought. A
	// block with Attachment alone names what the conversation holds already, else
	// *NoAttachment.
	Append(context.Context, Batch) (Receipt, error)

	// Import adds many messages as one: after a crash all of them are there or none.
	// ErrNotEmpty when Mode is Create and the conversation has messages, without a
	// message taken where that is known before. Messages are taken without keeping
	// others from the conversation, and memory does not grow with their number but
	// for a hash of each id.
	Import(context.Context, Import) (Receipt, error)

	// Rewind ends the conversation at a message: those after it stay in the record,
	// marked as rewound, and are no part of the window and the summary any more. The
	// next message still gets the next seq. Durable once it returns nil. The epoch is
	// a new one, so that versions that clients hold are void; but where the conversation
	// ends there already, and no append is in doubt, nothing is committed, and the receipt
	// tells what is. Through 0 rewinds everything. ErrNotFound without a conversation, ErrNoSuchMessage when Through
	// is no seq of the record or that of a message that is rewound already: the
	// conversation can't end there any more.
	Rewind(context.Context, Rewind) (Receipt, error)

	// Summarise records what a model wrote of all that the newest fold covers, for the
	// next fold to build on. It is no message and changes nothing that a reader sees:
	// seqs, ids, version, activity and summary stay. Durable once it returns nil.
	// ErrPrecondition, and nothing recorded, when the conversation is not of that epoch
	// any more, or the newest fold ends elsewhere than at p.ThroughSeq. One that was
	// recorded before and not taken yet gives way. The next fold voids it whether it
	// takes it or not, and so does a rewind that takes its fold back.
	Summarise(ctx context.Context, epoch string, p Prose) error

	// FindCalls looks for the calls that a new result of that id may answer, from the
	// end backwards: each result met answers one call of the id further back. Found
	// are the calls of the id in the first message that holds an unanswered one; when
	// none is unanswered, and with all, every call of the id, or ErrNotFound when
	// there is none. Rewound messages count as any other. Calls of one commit with the
	// same name may be told once. It may give up with ErrTooFar after MinLookBack
	// messages or more.
	FindCalls(ctx context.Context, id string, all bool) ([]FoundCall, error)

	// Clear removes the conversation and everything derived from it; nil when there
	// is none. Durable once it returns nil. Reads in flight end with ErrGone, and an
	// append that began before is either removed too or begins the next life.
	Clear(context.Context) error
}

// MinLookBack is how many messages FindCalls goes back at the least.
const MinLookBack = 1000

// RememberedKeys is how many keyed commits an engine remembers.
const RememberedKeys = 1000

// MaxSkipped is how many skipped positions an import tells.
const MaxSkipped = 1000

// A View is a conversation as it was at one moment.
type View interface {
	State() State
	// Records yields the messages with from <= Seq <= to, ascending. Its cost does
	// not depend on the length of the conversation. A gap in a damaged record is
	// passed over and told by Damage afterwards.
	Records(from, to int64) iter.Seq2[Record, error]
	// Backward yields the messages with Seq < before, descending.
	Backward(before int64) iter.Seq2[Record, error]
	// Attachment reads the bytes of that name, which are those that were brought: they
	// are verified. ErrNotFound when the conversation holds none of that name,
	// ErrDamaged when they are others now.
	Attachment(name string) (Attachment, error)
	// Named is Attachment of a name that a message of the view gives: when the conversation
	// does not hold it, that is damage, and told.
	Named(name string) (Attachment, error)
	// Damage tells what is known to be missing or unreadable so far; nil when nothing is.
	Damage() *Damage
	Close()
}

// A Record is a stored message: its JSON as the engine keeps it, in the form of
// AppendMessage, which the reader must not change. A rewound one is marked.
type Record struct {
	Seq  int64
	JSON jsontext.Value
	Note jsontext.Value // of the commit that it came with; nil when it had none
	Last int64          // seq of the last message of that commit: those up to it cost nothing to read as well
}

// Message decodes the record.
func (r Record) Message() (Message, error) { return ParseStored(r.JSON) }

// State is what is known of a conversation. The zero State is of one that does not exist.
type State struct {
	Name      string
	Epoch     string // random for each life of the conversation
	CreatedAt time.Time
	UpdatedAt time.Time
	LastSeq   int64
	LastID    string // of the last message minted here: it orders activity
	Messages  int64
	Turns     int64
	Bytes     int64  // that the record takes
	Title     string // the beginning of the first user text
	Answered  bool   // an assistant message is in the record
	Summary   *Summary
	Prose     *Prose // recorded for the next fold; nil when there is none
	Damage    *Damage
}

// Exists reports whether there is such a conversation.
func (s State) Exists() bool { return s.Epoch != "" }

// ETag is the conversation's version as HTTP wants it, quotes included. Folds do not move it.
func (s State) ETag() string { return ETag(s.Epoch, s.LastSeq) }

// ETag makes the version of a conversation as HTTP wants it, quotes included. A
// conversation that does not exist has "0-0".
func ETag(epoch string, lastSeq int64) string {
	if epoch == "" {
		epoch = "0"
	}
	return `"` + epoch + "-" + strconv.FormatInt(lastSeq, 10) + `"`
}

// Damage tells what cannot be read.
type Damage struct {
	Places      int64  // stretches of the record that hold no valid commit, and attachments
	Bytes       int64  // in those stretches
	Lost        int64  // messages known to be missing
	Attachments int64  // of which the bytes are known to be lost
	Detail      string // where, in words that name no content
}

// A Batch is what one append commits.
type Batch struct {
	Messages []Message // ID, Seq and At are ignored
	Key      string    // idempotency key; none when empty
	// Fingerprint is compared when the key is met again.
	Fingerprint [32]byte
	IfMatch     func(etag string) bool // nil means no condition
	// Note is kept with the commit, and comes back with a replayed receipt and with
	// FindCalls. It may be nil.
	Note jsontext.Value
	Fold Folder // nil means never

	// Stays says that whoever appends can stay until it is known what became of it, though ctx has
	// ended: an engine may then commit on the goroutine that calls it. How long a disk hangs, the call takes.
	Stays bool
}

// ImportMode says what an import does with what is there.
type ImportMode string

// The modes of import.
const (
	Create  ImportMode = "create"
	Extend  ImportMode = "append"
	Replace ImportMode = "replace"
)

// An Import is many messages that become the record together. IDs are kept where
// given, and so are times and the mark of rewound messages.
type Import struct {
	Mode ImportMode
	// Messages are taken once, in order, before anything else. One whose id the
	// record holds already (Extend) is skipped. An error ends the import with nothing
	// done.
	Messages iter.Seq2[Message, error]
	// Attachments are taken once, after Messages. Only those that a message names are
	// kept. It may be nil.
	Attachments iter.Seq2[Attachment, error]
	Key         string

	// The next three are called when all messages and attachments have been taken, in
	// this order and at most once. Each may be nil.

	CreatedAt   func() time.Time // zero means now; only a new record takes it
	Fingerprint func() [32]byte  // only with a key
	// Remember is kept with every commit of the import as Batch.Note is.
	Remember func() jsontext.Value

	// Note is called after them, when it is known which messages are skipped, with the
	// first MaxSkipped of their positions in Messages. It may be nil.
	Note func(skipped []int64) jsontext.Value
	// Mend is given each message that is not skipped when all have been taken, before it
	// becomes part of the record, with what it may change: its blocks. It may be nil.
	Mend func(*Message)
	// Before is called last, when the record is about to change, and at most once. An
	// error of it ends the import with nothing done. It may be nil.
	Before func() error
	Fold   Folder
}

// A Rewind says at which message a conversation ends.
type Rewind struct {
	Through int64
	IfMatch func(etag string) bool // nil means no condition
	// Before is as in Import.
	Before func() error
}

// A Receipt tells what was committed.
type Receipt struct {
	Epoch    string
	FirstSeq int64 // 0 when nothing was added
	LastSeq  int64 // of the record after this commit
	IDs      []string
	Added    int64
	Skipped  int64 // by an import: they were in the record
	Note     jsontext.Value
	Replayed bool // the key had been used before: this is the first receipt
	Folded   bool // turns left the window with this commit
}

// A FoundCall is a tool call in the record, and the note of the commit it came with.
type FoundCall struct {
	Name     string
	Withheld string // the category for which its arguments were withheld; empty when they were not
	Note     jsontext.Value
}

// Window counts what has not been folded and is not rewound.
type Window struct {
	Turns    int64
	Messages int64
}

// A Folder decides when older turns leave the window for the summary. An engine
// asks it while it gives a batch its place, so that the fold and the batch are one
// commit. It must not keep what it is given, and its failure fails no append. An engine
// may ask less often about a long window from which nothing could leave.
type Folder interface {
	// Due is cheap. before is the window without the batch, after with it.
	Due(before, after Window) bool
	// Fold returns the new summary, or nil to leave things as they are. window
	// yields the messages after prev.ThroughSeq, those of the batch included, and
	// none that is rewound. prev.Next is the prose that was recorded since, if it
	// covers what prev does; the new summary may begin with it, and has no Next.
	Fold(prev *Summary, window iter.Seq2[Message, error]) (*Summary, error)
}

// A Listing is one page of a caller's conversations, newest activity first.
type Listing struct {
	Items []State // without Summary
	Next  string  // cursor of the next page; empty on the last

	// Unnamed is, on the first page, how many conversations are not listed because not even their names can be read.
	Unnamed int64
}

// QuotaExceeded is for a batch or an import that would take a caller over its quota. It
// has done nothing. The record can be read, rewound and cleared all the same.
type QuotaExceeded struct {
	What   string // bytes or conversations
	Limit  int64
	Actual int64 // what there would be of it
}

func (e *QuotaExceeded) Error() string {
	return "the caller's quota of " + e.What + " is " + strconv.FormatInt(e.Limit, 10)
}

// NoAttachment is ErrNoAttachment, and says which one.
type NoAttachment struct{ Name string }

func (e *NoAttachment) Error() string { return ErrNoAttachment.Error() }
func (e *NoAttachment) Unwrap() error { return ErrNoAttachment }

// Classes of error. Test with errors.Is.
var (
	ErrNotFound      = errors.New("not found")
	ErrNotEmpty      = errors.New("the conversation has messages already")
	ErrPrecondition  = errors.New("the conversation has moved on")
	ErrKeyMismatch   = errors.New("the idempotency key was used with another request")
	ErrTooFar        = errors.New("not found in the part of the record that was searched")
	ErrBusy          = errors.New("too many appends wait for this conversation")
	ErrNoAttachment  = errors.New("the conversation holds no attachment of that name")
	ErrNoSuchMessage = errors.New("no message of that seq stands in the record")
	ErrFull          = errors.New("no space left on the device")
	ErrUnavailable   = errors.New("storage failed")
	ErrDamaged       = errors.New("the record is damaged")
	ErrGone          = errors.New("the conversation was cleared meanwhile")
	ErrClosed        = errors.New("shutting down")
)
