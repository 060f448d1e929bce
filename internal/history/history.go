// Package history says what a conversation is: messages of ordered blocks, turns,
// a running summary; and what any engine that keeps one must promise (Log). It
// knows nothing of disks, of HTTP, of providers, nor of who may see what.
//
// A Message is a value: what holds one may share it, and nobody changes one that
// was handed on.
package history

import (
	"encoding/json/jsontext"
	"time"

	"historyd/internal/strictjson"
)

// Role says who speaks on the wire of every provider.
type Role string

// The roles. System messages are recorded and never replayed.
const (
	User      Role = "user"
	Assistant Role = "assistant"
	Tool      Role = "tool"
	System    Role = "system"
)

// Kind tells, for role user, a person or agent from software.
type Kind string

// The kinds. Only messages of kind Person begin a turn.
const (
	Person    Kind = "user"
	Reference Kind = "reference" // text that software put in: recalled memory, a skill
)

// Status tells a whole answer from an aborted one.
type Status string

// The statuses.
const (
	Complete   Status = "complete"
	Incomplete Status = "incomplete"
)

// BlockType names what a Block holds.
type BlockType string

// The block types.
const (
	TextBlock     BlockType = "text"
	ToolCall      BlockType = "tool_call"
	ToolResult    BlockType = "tool_result"
	ThinkingBlock BlockType = "thinking"
	ImageBlock    BlockType = "image"
	DocumentBlock BlockType = "document"
	AudioBlock    BlockType = "audio"
	OpaqueBlock   BlockType = "opaque"
)

// A Message is one completed message of a conversation. ID, Seq and At are given
// by the Log; Seq alone orders.
type Message struct {
	ID        string // minted by the server, sorts as text; kept as it was on import
	ClientID  string // the id that the client gave on append
	Seq       int64  // 1, 2, 3 … within the conversation
	At        time.Time
	TZAssumed bool // At came without a zone on import and was read as UTC

	Role     Role
	Kind     Kind // role User only
	Model    string
	Provider string
	Status   Status
	Content  []Block

	Usage    jsontext.Value // an object of counters, null for unknown; nil when absent
	Metadata jsontext.Value // an object of the client's; nil when absent

	Synthetic bool // made by the server, not said by anybody
	Imported  bool
	Forked    *Forked // where it was copied from; nil when it was said here

	Extra jsontext.Value // an object of the members that historyd does not know; nil when there were none

	// Rewound messages are in the record and no part of the conversation any more.
	Rewound bool
}

// Forked names the message that another one is a copy of.
type Forked struct {
	Conversation string
	ID           string
	Seq          int64
}

// A Block is one part of a message. Which fields count depends on Type; the table
// of blocks in docs/API.md is the list.
type Block struct {
	Type BlockType

	Text string // text, thinking

	ID            string         // tool_call
	Name          string         // tool_call
	Arguments     jsontext.Value // tool_call: compact JSON; nil when ArgumentsText is not strict JSON
	ArgumentsText *string        // tool_call: the text as received, when it is not Arguments to the byte

	CallID  string  // tool_result
	Content []Block // tool_result
	Plain   bool    // tool_result: Content is one text block and is written as a string
	IsError bool    // tool_result

	Signature string // tool_call, thinking
	Encrypted string // thinking

	MediaType  string // image, document, audio; with one of the next three
	Attachment string // the bytes are kept as, see AttachmentOf
	Data       []byte // the bytes of Attachment, where they are at hand; a record names them only
	URL        string // as given
	Filename   string

	Provider string         // opaque
	Opaque   jsontext.Value // opaque: the provider's JSON, verbatim

	Truncated *Truncation // tool_result
	Redacted  *Redaction  // tool_call, tool_result
	Synthetic bool        // made by a repair, not said by anybody

	Extra jsontext.Value // as in Message
}

// Truncation tells the size of a result before it was cut.
type Truncation struct {
	OriginalChars int64 // Unicode code points
	OriginalBytes int64 // of UTF-8
}

// Redaction tells why a value was withheld.
type Redaction struct {
	Category string
	Reason   string
}

// Text makes a text block.
func Text(s string) Block { return Block{Type: TextBlock, Text: s} }

// StartsTurn reports whether the message begins a turn. What comes before the
// first such message belongs to the first turn.
func (m *Message) StartsTurn() bool { return m.Role == User && m.Kind == Person }

// ProviderError reports whether a program kept the text of a provider's error in place of
// an answer, and marked it. Nobody said it.
func (m *Message) ProviderError() bool {
	if m.Role != Assistant || strictjson.Check(m.Extra) != nil || m.Extra.Kind() != '{' {
		return false
	}
	extra := strictjson.Document(m.Extra)
	if v, there := extra.Member("isApiErrorMessage"); there && v.Kind() == 't' {
		return true
	}
	v, there := extra.Member("error")
	return there && !v.IsNull() && v.Kind() != 'f'
}

// Calls lists the ids of the message's tool calls.
func (m *Message) Calls() []string {
	var ids []string
	for i := range m.Content {
		if m.Content[i].Type == ToolCall {
			ids = append(ids, m.Content[i].ID)
		}
	}
	return ids
}

// Answers lists the ids of the calls that the message's results answer.
func (m *Message) Answers() []string {
	var ids []string
	for i := range m.Content {
		if m.Content[i].Type == ToolResult {
			ids = append(ids, m.Content[i].CallID)
		}
	}
	return ids
}

// A Summary is the running account of the turns that have left the window: first
// what a model wrote of the older ones, if one did, then a line for each turn since.
type Summary struct {
	Text    string // in the words of a model; "" when none was asked, or none answered
	TextSeq int64  // the last message that Text covers; 0 without Text
	Model   string // that wrote Text

	Lines      []string  // one a turn after TextSeq, oldest first, each free of line breaks
	ThroughSeq int64     // the last message that it covers
	Turns      int64     // turns covered, also those in Text and those whose lines gave way
	Messages   int64     // messages covered
	Omitted    int64     // turns after TextSeq whose lines gave way to the size limit
	At         time.Time // of the last message covered
	Source     string    // "digest", or "model" when there is Text

	// Next is what a model has written meanwhile of all that this summary covers. A
	// folder is handed it, to build on it; it is nil everywhere else.
	Next *Prose
}

// A Prose is what a model wrote of all that a summary covers. It takes effect at the
// next fold, so that replays change at folds alone.
type Prose struct {
	Text       string
	Model      string
	ThroughSeq int64     // the last message that it covers
	Turns      int64     // turns covered
	Messages   int64     // messages covered
	InputHash  string    // SHA-256 of what the model was given, in lower-case hexadecimal
	InputChars int64     // of what the model was given, in code points
	At         time.Time // when it was written
}
