package store

import (
	"bytes"
	"encoding/hex"
	"encoding/json/jsontext"
	"encoding/json/v2"
	"errors"
	"fmt"
	"strconv"
	"time"

	"historyd/internal/history"
)

// formatVersion is of the lines and of the data directory.
const formatVersion = 1

// A place is where a line begins: segment number and byte offset. The zero place is none.
type place struct {
	Segment int
	Offset  int64
}

func (p place) none() bool { return p.Segment == 0 }

// MarshalJSONTo and UnmarshalJSONFrom write a place as [segment, offset].
func (p place) MarshalJSONTo(enc *jsontext.Encoder) error {
	return json.MarshalEncode(enc, [2]int64{int64(p.Segment), p.Offset})
}

func (p *place) UnmarshalJSONFrom(dec *jsontext.Decoder) error {
	var pair [2]int64
	if err := json.UnmarshalDecode(dec, &pair); err != nil {
		return err
	}
	p.Segment, p.Offset = int(pair[0]), pair[1]
	return nil
}

// checksum is a CRC-32C as eight hex digits.
type checksum uint32

func (c checksum) MarshalText() ([]byte, error) { return appendHex(nil, uint32(c)), nil }

func (c *checksum) UnmarshalText(b []byte) error {
	sum, ok := parseHex(b)
	if !ok {
		return fmt.Errorf("a checksum has eight hex digits")
	}
	*c = checksum(sum)
	return nil
}

// header is in the first line of a segment.
type header struct {
	Version         int    `json:"historyd"`
	Kind            string `json:"kind"`
	Caller          string `json:"caller"`
	PermissionScope string `json:"permission_scope"`
	Conversation    string `json:"conversation"`
	CreatedAt       string `json:"created_at"`
	// After is where the record before this segment ends: what lies between there
	// and here was never acknowledged, or is the damage that made this segment begin.
	After place `json:"after"`
	// Lost lists the segments between After and this one in which no line could be
	// read: they may have held acknowledged messages.
	Lost []int  `json:"lost,omitempty"`
	Salt string `json:"salt"` // random: makes the checksums of the segment unguessable
}

// totals is carried by every line: enough to know the conversation from its last one.
type totals struct {
	Epoch    string `json:"epoch"`
	Messages int64  `json:"messages"`
	Turns    int64  `json:"turns"`
	Bytes    int64  `json:"bytes"` // of the record before this line
	Answered bool   `json:"answered"`
	Created  string `json:"created"`

	FoldedSeq   int64 `json:"folded_seq"`   // the summary covers messages up to this one
	FoldedTurns int64 `json:"folded_turns"` // turns that begin there
	Fold        place `json:"fold"`         // line with the newest summary
	Prose       place `json:"prose"`        // line with what a model wrote of all that the summary covers
	Title       place `json:"title"`        // line with the first user text
	Keyed       place `json:"keyed"`        // newest line with an idempotency key

	OutMessages int64 `json:"rewound_messages"` // rewound messages after folded_seq
	OutTurns    int64 `json:"rewound_turns"`    // turns that rewound messages begin, wherever
	Rewound     place `json:"rewound"`          // newest line with a rewind
}

// keyRecord makes the line answer for an idempotency key. From each keyed line the
// one before it can be found; every keyCheckpoint-th one lists all that are remembered.
type keyRecord struct {
	Key         string     `json:"key"`
	Fingerprint string     `json:"fingerprint"`
	Before      place      `json:"before"`
	Known       []knownKey `json:"known,omitempty"`
}

type knownKey struct {
	Key         string `json:"key"`
	Fingerprint string `json:"fingerprint"`
	At          place  `json:"at"`
}

// A commit is the payload of one line. First is greater than Last when it adds no message.
type commit struct {
	Header   *header        `json:"header,omitzero"`
	First    int64          `json:"seq"`
	Last     int64          `json:"last"`
	ID       string         `json:"id"` // newest id minted: orders activity
	At       string         `json:"at"`
	Prev     checksum       `json:"prev"`
	Totals   totals         `json:"totals"`
	Key      *keyRecord     `json:"key,omitzero"`
	Added    int64          `json:"added,omitzero"`   // by an import that ends here
	Skipped  int64          `json:"skipped,omitzero"` // likewise
	Rewind   *rewinding     `json:"rewind,omitzero"`
	Note     jsontext.Value `json:"note,omitzero"`
	Summary  *summary       `json:"summary,omitzero"`
	Prose    *prose         `json:"prose,omitzero"`
	Messages jsontext.Value `json:"messages,omitzero"` // array; last, so that appends need not move it
}

// summary is history.Summary on disk.
type summary struct {
	Lines      []string `json:"lines"`
	ThroughSeq int64    `json:"through_seq"`
	Turns      int64    `json:"turns"`
	Messages   int64    `json:"messages"`
	Omitted    int64    `json:"omitted"`
	At         string   `json:"at"`
	Source     string   `json:"source"`
	Text       string   `json:"text,omitzero"`
	TextSeq    int64    `json:"text_seq,omitzero"`
	Model      string   `json:"model,omitzero"`
}

func summaryLine(s *history.Summary) *summary {
	return &summary{s.Lines, s.ThroughSeq, s.Turns, s.Messages, s.Omitted, s.At.UTC().Format(history.TimeFormat), s.Source,
		s.Text, s.TextSeq, s.Model}
}

// append appends the summary as its tags say.
func (s *summary) append(dst []byte) []byte {
	dst = append(dst, `{"lines":[`...)
	for i, line := range s.Lines {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = history.AppendString(dst, line)
	}
	dst = append(dst, ']')
	for _, f := range []struct {
		name  string
		value int64
	}{{"through_seq", s.ThroughSeq}, {"turns", s.Turns}, {"messages", s.Messages}, {"omitted", s.Omitted}} {
		dst = strconv.AppendInt(appendName(dst, f.name), f.value, 10)
	}
	dst = history.AppendString(appendName(dst, "at"), s.At)
	dst = history.AppendString(appendName(dst, "source"), s.Source)
	if s.Text != "" {
		dst = history.AppendString(appendName(dst, "text"), s.Text)
	}
	if s.TextSeq != 0 {
		dst = strconv.AppendInt(appendName(dst, "text_seq"), s.TextSeq, 10)
	}
	if s.Model != "" {
		dst = history.AppendString(appendName(dst, "model"), s.Model)
	}
	return append(dst, '}')
}

// appendName appends the name of a member that is not the first.
func appendName(dst []byte, name string) []byte {
	dst = append(dst, `,"`...)
	dst = append(dst, name...)
	return append(dst, `":`...)
}

func (s *summary) value() *history.Summary {
	return &history.Summary{Lines: s.Lines, ThroughSeq: s.ThroughSeq, Turns: s.Turns, Messages: s.Messages,
		Omitted: s.Omitted, At: parseTime(s.At), Source: s.Source, Text: s.Text, TextSeq: s.TextSeq, Model: s.Model}
}

// stored is a time as it will be read back.
func stored(t time.Time) time.Time { return t.UTC().Truncate(time.Microsecond) }

func parseTime(s string) time.Time {
	t, _ := time.Parse(time.RFC3339Nano, s)
	return t
}

// payload appends the commit without the braces of its object.
func (c *commit) payload(dst []byte) []byte {
	if c.Header != nil {
		dst = append(dst, `"header":`...)
		dst = appendJSON(dst, c.Header)
		dst = append(dst, ',')
	}
	dst = append(dst, `"seq":`...)
	dst = strconv.AppendInt(dst, c.First, 10)
	dst = append(dst, `,"last":`...)
	dst = strconv.AppendInt(dst, c.Last, 10)
	dst = append(dst, `,"id":`...)
	dst = history.AppendString(dst, c.ID)
	dst = append(dst, `,"at":"`...)
	dst = append(dst, c.At...)
	dst = append(dst, `","prev":"`...)
	dst = appendHex(dst, uint32(c.Prev))
	dst = append(dst, `","totals":`...)
	dst = c.Totals.append(dst)
	if c.Key != nil {
		dst = append(dst, `,"key":`...)
		dst = appendJSON(dst, c.Key)
	}
	if c.Added != 0 {
		dst = append(dst, `,"added":`...)
		dst = strconv.AppendInt(dst, c.Added, 10)
	}
	if c.Skipped != 0 {
		dst = append(dst, `,"skipped":`...)
		dst = strconv.AppendInt(dst, c.Skipped, 10)
	}
	if c.Rewind != nil {
		dst = append(dst, `,"rewind":`...)
		dst = appendJSON(dst, c.Rewind)
	}
	if c.Note != nil {
		dst = append(dst, `,"note":`...)
		dst = append(dst, c.Note...)
	}
	if c.Summary != nil {
		dst = append(dst, `,"summary":`...)
		dst = c.Summary.append(dst)
	}
	if c.Prose != nil {
		dst = append(dst, `,"prose":`...)
		dst = appendJSON(dst, c.Prose)
	}
	dst = append(dst, `,"messages":[`...)
	dst = append(dst, c.Messages...)
	return append(dst, ']')
}

func (t *totals) append(dst []byte) []byte {
	dst = append(dst, `{"epoch":"`...)
	dst = append(dst, t.Epoch...)
	dst = append(dst, `","messages":`...)
	dst = strconv.AppendInt(dst, t.Messages, 10)
	dst = append(dst, `,"turns":`...)
	dst = strconv.AppendInt(dst, t.Turns, 10)
	dst = append(dst, `,"bytes":`...)
	dst = strconv.AppendInt(dst, t.Bytes, 10)
	dst = append(dst, `,"answered":`...)
	dst = strconv.AppendBool(dst, t.Answered)
	dst = append(dst, `,"created":"`...)
	dst = append(dst, t.Created...)
	dst = append(dst, `","folded_seq":`...)
	dst = strconv.AppendInt(dst, t.FoldedSeq, 10)
	dst = append(dst, `,"folded_turns":`...)
	dst = strconv.AppendInt(dst, t.FoldedTurns, 10)
	if t.OutMessages != 0 {
		dst = append(dst, `,"rewound_messages":`...)
		dst = strconv.AppendInt(dst, t.OutMessages, 10)
	}
	if t.OutTurns != 0 {
		dst = append(dst, `,"rewound_turns":`...)
		dst = strconv.AppendInt(dst, t.OutTurns, 10)
	}
	for _, p := range []struct {
		name string
		place
	}{{"fold", t.Fold}, {"prose", t.Prose}, {"title", t.Title}, {"keyed", t.Keyed}, {"rewound", t.Rewound}} {
		if p.none() {
			continue
		}
		dst = append(dst, `,"`...)
		dst = append(dst, p.name...)
		dst = append(dst, `":[`...)
		dst = strconv.AppendInt(dst, int64(p.Segment), 10)
		dst = append(dst, ',')
		dst = strconv.AppendInt(dst, p.Offset, 10)
		dst = append(dst, ']')
	}
	return append(dst, '}')
}

// appendJSON appends a value made only of types of this package.
func appendJSON(dst []byte, v any) []byte {
	b, err := json.Marshal(v)
	if err != nil {
		panic("store: a line does not encode: " + err.Error())
	}
	return append(dst, b...)
}

// errVersion is of a segment whose lines may mean something else than they say here.
var errVersion = errors.New("a segment of another version")

// parseCommit reads a whole frame.
func parseCommit(line []byte) (*commit, error) {
	c := &commit{}
	if err := json.Unmarshal(line, c, jsontext.AllowDuplicateNames(true)); err != nil {
		// The decoder's own words may quote the line.
		return nil, errors.New("a valid line of an unknown form")
	}
	if c.Header != nil && c.Header.Version != formatVersion {
		return nil, fmt.Errorf("%w: format version %d, this historyd reads %d", errVersion, c.Header.Version, formatVersion)
	}
	return c, nil
}

func fingerprintText(f [32]byte) string { return hex.EncodeToString(f[:]) }

// lineCouldHold tells quickly whether a raw line may hold the JSON string s.
func lineCouldHold(line []byte, s string) bool {
	return bytes.Contains(line, history.AppendString(nil, s))
}
