package history

import (
	"encoding/json/jsontext"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"historyd/internal/strictjson"
)

// A Door is where a message comes in; it decides what of the server's own members counts.
type Door int

// The doors.
const (
	AppendDoor Door = iota // id becomes client_id; seq, at and the server's marks are ignored
	ImportDoor             // id, at and the marks are kept; seq is ignored
	storedDoor
)

// Limits of single members, in bytes.
const (
	maxID   = 1024
	maxName = 64 << 10 // names are whatever a model invented
	maxTag  = 1024     // model, provider, media type, category
)

// argumentDepth is how deep arguments given as text may nest to be kept as a
// value: they come back inside a message, which nests itself.
const argumentDepth = strictjson.MaxDepth - 10

// ParseMessage reads one native message of a document that strictjson.Check has
// passed. What is wrong is added to faults under path, and the message is then of
// no use. Unknown members go to Extra.
func ParseMessage(v strictjson.Value, path string, door Door, faults *Faults) Message {
	p := &parser{door: door, faults: faults}
	return p.message(v, path)
}

// ParseStored reads a message that AppendMessage wrote.
func ParseStored(raw jsontext.Value) (Message, error) {
	var faults Faults
	p := &parser{door: storedDoor, faults: &faults}
	m := p.message(strictjson.Document(raw), "")
	return m, faults.Err()
}

type parser struct {
	door   Door
	faults *Faults
}

func (p *parser) fault(v strictjson.Value, path, detail string, args ...any) {
	p.faults.Add(path, CodeInvalidMessage, v.Offset, detail, args...)
}

var messageMembers = []string{
	"id", "client_id", "seq", "at", "tz_assumed", "role", "kind", "model", "provider", "status",
	"content", "usage", "metadata", "synthetic", "imported", "forked_from",
	"redacted", "truncated", "extra", "rewound",
}

func (p *parser) message(v strictjson.Value, path string) Message {
	m := Message{Status: Complete}
	if v.Kind() != '{' {
		p.fault(v, path, "a message is an object")
		return m
	}
	hasContent, faultsBefore := false, len(p.faults.List)
	m.Extra = p.object(v, path, messageMembers, func(name string, v strictjson.Value) {
		at := path + "." + name
		switch name {
		case "id":
			m.ID = p.text(v, at, 0, maxID)
		case "client_id":
			m.ClientID = p.text(v, at, 0, maxID)
		case "seq":
			m.Seq = p.int(v, at)
		case "at":
			m.At, m.TZAssumed = p.time(v, at, m.TZAssumed)
		case "tz_assumed":
			m.TZAssumed = p.bool(v, at) || m.TZAssumed
		case "role":
			m.Role = p.role(v, at)
		case "kind":
			m.Kind = Kind(p.oneOf(v, at, "user", "reference"))
		case "model":
			m.Model = p.text(v, at, 0, maxTag)
		case "provider":
			m.Provider = p.text(v, at, 0, maxTag)
		case "status":
			m.Status = Status(p.oneOf(v, at, "complete", "incomplete"))
		case "content":
			hasContent = true
			m.Content = p.content(v, at)
		case "usage":
			m.Usage = p.usage(v, at)
		case "metadata":
			m.Metadata = p.rawObject(v, at)
		case "synthetic":
			m.Synthetic = p.bool(v, at)
		case "imported":
			m.Imported = p.bool(v, at)
		case "forked_from":
			m.Forked = p.forked(v, at)
		case "rewound":
			m.Rewound = p.bool(v, at)
		}
	})
	p.refuseForeign(&m, v, path, faultsBefore)
	if !hasContent || len(m.Content) == 0 && len(p.faults.List) == faultsBefore {
		p.fault(v, path+".content", "a message has at least one block of content, or a string")
	}
	p.settle(&m, v, path)
	return m
}

// settle checks what several members decide together, and drops what the door does not let in.
func (p *parser) settle(m *Message, v strictjson.Value, path string) {
	switch {
	case m.Role == "":
		if _, there := v.Member("role"); !there {
			p.fault(v, path+".role", "role is missing: user, assistant, tool or system")
		}
	case m.Role == User && m.Kind == "":
		m.Kind = Person
	case m.Role != User && m.Kind == Reference:
		p.fault(v, path+".kind", "only a user message can be a reference")
	case m.Role != User:
		m.Kind = ""
	}
	for i := range m.Content {
		if b := &m.Content[i]; m.Role != "" && b.Type != "" && !allowed(m.Role, b.Type) {
			p.fault(v, fmt.Sprintf("%s.content[%d].type", path, i), "a %s message cannot hold a %s block%s", m.Role, b.Type, instead(m.Role))
		}
	}
	switch p.door {
	case AppendDoor:
		if m.ID != "" {
			m.ClientID = m.ID
		}
		m.ID, m.Seq, m.At, m.TZAssumed = "", 0, time.Time{}, false
		m.Synthetic, m.Imported, m.Forked, m.Rewound = false, false, nil, false
		for i := range m.Content {
			b := &m.Content[i]
			b.Redacted, b.Truncated, b.Synthetic = nil, nil, false
		}
	case ImportDoor:
		m.Seq, m.Imported = 0, true
	}
}

// instead says what a message holds that holds one type of block alone.
func instead(r Role) string {
	if r == Tool {
		return ": write a tool_result block with its call_id"
	}
	return ""
}

func allowed(r Role, t BlockType) bool {
	switch t {
	case TextBlock:
		return r != Tool
	case ToolCall, ThinkingBlock:
		return r == Assistant
	case ToolResult:
		return r == Tool
	case OpaqueBlock:
		return true
	default:
		return r == User || r == Assistant
	}
}

func (p *parser) content(v strictjson.Value, path string) []Block {
	if s, ok := v.Text(); ok {
		return []Block{Text(s)}
	}
	if v.Kind() != '[' {
		p.fault(v, path, "content is a string or an array of blocks")
		return nil
	}
	blocks := []Block{}
	for i, e := range v.Elements() {
		blocks = append(blocks, p.block(e, fmt.Sprintf("%s[%d]", path, i)))
	}
	return blocks
}

// object walks the members of an object. Those named in known go to set; the
// others are gathered, compacted, as the value of extra. A name that differs from
// a known one only in case is refused: two readers could take it differently.
func (p *parser) object(v strictjson.Value, path string, known []string, set func(string, strictjson.Value)) jsontext.Value {
	var extra []byte
	var given strictjson.Value
	for name, m := range v.Members() {
		switch {
		case name == "extra" && slices.Contains(known, name):
			if m.Kind() != '{' {
				p.fault(m, path+".extra", "extra is an object")
				continue
			}
			given = m
		case slices.Contains(known, name):
			set(name, m)
		default:
			if i := slices.IndexFunc(known, func(k string) bool { return strings.EqualFold(k, name) }); i >= 0 {
				p.faults.Add(path+"."+known[i], CodeInvalidJSON, m.Offset, "the name of this member is written in another case")
				continue
			}
			extra = appendMember(extra, name, m)
		}
	}
	if given.Raw != nil {
		beside := map[string]bool{}
		if extra != nil {
			for name := range (strictjson.Value{Raw: closeExtra(extra)}).Members() {
				beside[name] = true
			}
		}
		for name, m := range given.Members() {
			if beside[name] {
				p.faults.Add(path+".extra", CodeInvalidJSON, m.Offset, "a member of extra stands beside it, too")
				continue
			}
			extra = appendMember(extra, name, m)
		}
	}
	return closeExtra(extra)
}

func appendMember(dst []byte, name string, v strictjson.Value) []byte {
	if dst == nil {
		dst = append(dst, '{')
	} else {
		dst = append(dst, ',')
	}
	dst = AppendString(dst, name)
	dst = append(dst, ':')
	return append(dst, v.Compact()...)
}

func closeExtra(open []byte) jsontext.Value {
	if open == nil {
		return nil
	}
	return append(slices.Clip(open), '}')
}

func (p *parser) text(v strictjson.Value, path string, min, max int) string {
	s, ok := v.Text()
	switch {
	case !ok:
		p.fault(v, path, "must be a string")
	case len(s) < min:
		p.fault(v, path, "must not be empty")
	case max > 0 && len(s) > max:
		p.fault(v, path, "is longer than %d bytes", max)
	}
	return s
}

func (p *parser) oneOf(v strictjson.Value, path string, choices ...string) string {
	s, ok := v.Text()
	if !ok || !slices.Contains(choices, s) {
		p.fault(v, path, "must be one of %s", strings.Join(choices, ", "))
		return ""
	}
	return s
}

func (p *parser) bool(v strictjson.Value, path string) bool {
	if k := v.Kind(); k != 't' && k != 'f' {
		p.fault(v, path, "must be true or false")
	}
	return v.Kind() == 't'
}

func (p *parser) int(v strictjson.Value, path string) int64 {
	n, err := strconv.ParseInt(string(v.Raw), 10, 64)
	if err != nil || n < 0 {
		p.fault(v, path, "must be a whole number from 0 on")
		return 0
	}
	return n
}

// time reads a time. One without a zone is taken as UTC, and the assumption is told.
func (p *parser) time(v strictjson.Value, path string, assumed bool) (time.Time, bool) {
	s := p.text(v, path, 0, maxTag)
	if p.door == AppendDoor {
		return time.Time{}, false
	}
	if t, err := time.Parse(time.RFC3339Nano, s); err == nil {
		// In UTC the year may have no four digits any more, and then it could not be read back.
		if t = t.UTC(); t.Year() >= 0 && t.Year() <= 9999 {
			return t.Truncate(time.Microsecond), assumed
		}
	}
	for _, layout := range []string{"2006-01-02T15:04:05.999999999", "2006-01-02 15:04:05.999999999"} {
		if t, err := time.Parse(layout, s); err == nil {
			return t.Truncate(time.Microsecond), true
		}
	}
	p.fault(v, path, "must be a time of RFC 3339, such as 2006-01-02T15:04:05Z")
	return time.Time{}, false
}

func (p *parser) rawObject(v strictjson.Value, path string) jsontext.Value {
	if v.Kind() != '{' {
		p.fault(v, path, "must be an object")
		return nil
	}
	return v.Compact()
}

// usage is an object of counters: numbers, null for unknown, or objects of such.
func (p *parser) usage(v strictjson.Value, path string) jsontext.Value {
	if v.IsNull() {
		return v.Compact()
	}
	raw := p.rawObject(v, path)
	if raw != nil && !counters(v) {
		p.fault(v, path, "holds numbers, null for unknown, or objects of such")
	}
	return raw
}

func counters(v strictjson.Value) bool {
	switch v.Kind() {
	case 'n', '0':
		return true
	case '{':
		for _, m := range v.Members() {
			if !counters(m) {
				return false
			}
		}
		return true
	}
	return false
}
