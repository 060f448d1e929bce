package wire

import (
	"encoding/json/jsontext"
	"slices"
	"strconv"
	"strings"
	"time"

	"historyd/internal/history"
	"historyd/internal/strictjson"
)

// maxTag is the longest model, provider or category in bytes, as in a native message.
const maxTag = 1024

// nativeRoom is how deep a native message may nest to fit into a document:
// the document and its list are two levels.
const nativeRoom = strictjson.MaxDepth - 2

// addedDepth is the most by which an element nests deeper in native form.
const addedDepth = 6

// DecodeAppend reads the body of a request to append. A message of more than
// maxMessage bytes is refused; 0 means no limit. Errors are *strictjson.SyntaxError,
// *history.Faults, *TooLarge or ErrUnsupported.
func DecodeAppend(f Format, body []byte, maxMessage int64) (Append, error) {
	if !f.Messages() {
		return Append{}, ErrUnsupported
	}
	if err := strictjson.Check(body); err != nil {
		return Append{}, err
	}
	var a Append
	d := decoder{format: f, door: history.AppendDoor, maxMessage: maxMessage}
	known := []string{"messages", "tool_categories", "model", "provider"}
	there := d.members(strictjson.Document(body), "request", known, func(name string, v strictjson.Value) {
		switch name {
		case "messages":
			a.Messages = d.messages(v)
			if v.Kind() == '[' && len(a.Messages) == 0 {
				d.fault(v, "messages", "holds at least one message")
			}
		case "tool_categories":
			a.Categories = d.categories(v, maxCategories)
			d.patterns(v, a.Categories)
		case "model":
			a.Model = d.text(v, name, 0, maxTag)
		case "provider":
			a.Provider = d.text(v, name, 0, maxTag)
		}
	})
	if there != nil && !there["messages"] {
		d.faults.Add("messages", history.CodeInvalidMessage, 0, "is missing: a list of messages")
	}
	if err := d.err(); err != nil {
		return Append{}, err
	}
	for i := range a.Messages {
		if m := &a.Messages[i]; m.Role == history.Assistant {
			if m.Model == "" {
				m.Model = a.Model
			}
			if m.Provider == "" {
				m.Provider = a.Provider
			}
			fillProvider(f, m)
		}
	}
	return a, nil
}

// fillProvider names who answered, where nobody said: the one whose format it is.
func fillProvider(f Format, m *history.Message) {
	if c := codecs[f]; c != nil && m.Role == history.Assistant && m.Provider == "" {
		m.Provider = c.provider()
	}
}

// decoder reads messages of one format through one door.
type decoder struct {
	reader
	format     Format
	door       history.Door
	maxMessage int64
	tooLarge   *TooLarge
	gemini     geminiState
}

func (d *decoder) err() error {
	if d.tooLarge != nil {
		return d.tooLarge
	}
	return d.faults.Err()
}

func (d *decoder) messages(v strictjson.Value) []history.Message {
	if v.Kind() != '[' {
		d.fault(v, "messages", "is a list of messages")
		return nil
	}
	msgs := []history.Message{}
	for i, e := range v.Elements() {
		if i == maxMessages {
			d.fault(v, "messages", "holds at most %d messages: append the others after these, or import them all", maxMessages)
			return msgs
		}
		msgs = append(msgs, d.element(e, i)...)
		if d.tooLarge != nil {
			return nil
		}
	}
	return msgs
}

// element reads what stands at a position of the list: a message, or several of ours.
func (d *decoder) element(v strictjson.Value, i int) []history.Message {
	path := "messages[" + strconv.Itoa(i) + "]"
	size := int64(len(v.Raw))
	if d.maxMessage > 0 && size > d.most() {
		d.tooLarge = &TooLarge{path, d.maxMessage, size}
		return nil
	}
	msgs := d.decode(v, path)
	if d.maxMessage > 0 && size > d.maxMessage && !d.light(msgs) {
		d.tooLarge = &TooLarge{path, d.maxMessage, size}
		return nil
	}
	return msgs
}

// refuseScattered refuses an answer of nothing with a member that a number names: so
// a list that was copied into an object leaves what was said, and nobody would find it.
func (d *decoder) refuseScattered(v strictjson.Value, path string) {
	for name := range v.Members() {
		if _, err := strconv.ParseUint(name, 10, 64); err == nil {
			d.fault(v, path, "holds nothing, and a number names a member beside it: send what it holds as a list")
			return
		}
	}
}

// A document says more of a message than was appended, and brings the bytes of
// attachments that the message named: so much more may stand there.
const (
	inlineRoom   = 8       // times the limit of a message, all in all
	envelopeRoom = 4 << 10 // bytes, beside attachments and white space
)

// most is the most bytes of an element; 0 means no limit.
func (d *decoder) most() int64 {
	if d.door == history.ImportDoor {
		return d.maxMessage * inlineRoom
	}
	return d.maxMessage
}

// light reports whether messages are within the limit without the bytes of their
// attachments, and each of those is.
func (d *decoder) light(msgs []history.Message) bool {
	if d.door != history.ImportDoor {
		return false
	}
	size, most := int64(0), int64(0)
	for i := range msgs {
		size += int64(len(history.AppendMessage(nil, &msgs[i])))
		msgs[i].MediaBlocks(func(b *history.Block) { most = max(most, int64(len(b.Data))) })
	}
	return size <= d.maxMessage+envelopeRoom && most <= d.maxMessage
}

func (d *decoder) decode(v strictjson.Value, path string) []history.Message {
	faultsBefore := d.count()
	c := codecs[d.format]
	if c == nil {
		msgs := []history.Message{history.ParseMessage(v, path, d.door, &d.faults)}
		d.depth(v, path, msgs, faultsBefore)
		return msgs
	}
	msgs := c.decode(d, v, path)
	for i := range msgs {
		if d.door == history.ImportDoor {
			msgs[i].Imported = true
			fillProvider(d.format, &msgs[i])
		}
	}
	d.depth(v, path, msgs, faultsBefore)
	return msgs
}

// properPlaces say where each format has calls and results.
var properPlaces = map[Format]string{
	Anthropic: "write calls as tool_use blocks of the assistant's, results as tool_result blocks of the user's",
	Gemini:    "write calls as functionCall parts, results as functionResponse parts",
	OpenAI:    "write calls as tool_calls, results as tool messages",
	Responses: "write calls and results as items of their own",
}

// refuseCarriers refuses unknown members in which other formats carry calls and
// results: kept unread they would pass the redaction.
func (d *decoder) refuseCarriers(v strictjson.Value, path string, unknown jsontext.Value) {
	if history.CarriesTools(unknown) {
		d.fault(v, path, "an unknown member carries tool calls or results: %s", properPlaces[d.format])
	}
}

// depth refuses an element of which a message would not fit into a native document.
func (d *decoder) depth(v strictjson.Value, path string, msgs []history.Message, faultsBefore int) {
	if d.count() > faultsBefore || nesting(v.Raw)+addedDepth <= nativeRoom {
		return
	}
	for i := range msgs {
		if nesting(history.AppendMessage(nil, &msgs[i])) > nativeRoom {
			d.fault(v, path, "nests over %d levels in native form", strictjson.MaxDepth)
			return
		}
	}
}

// nesting counts the levels of a value that strictjson.Check has passed.
func nesting(raw []byte) int {
	depth, deepest := 0, 0
	for i := 0; i < len(raw); i++ {
		switch raw[i] {
		case '"':
			for i++; raw[i] != '"'; i++ {
				if raw[i] == '\\' {
					i++
				}
			}
		case '[', '{':
			depth++
			deepest = max(deepest, depth)
		case ']', '}':
			depth--
		}
	}
	return deepest
}

// maxMessages and maxCategories bound what an append takes of the memory for its bytes.
const (
	maxMessages   = 50_000
	maxCategories = 10_000
)

// categories reads at most so many names. What a conversation has gathered over time may be more than an append has.
func (r *reader) categories(v strictjson.Value, most int) map[string]string {
	if v.Kind() != '{' {
		r.fault(v, "tool_categories", "is an object of tool names and their categories")
		return nil
	}
	var categories map[string]string
	for tool, category := range v.Members() {
		if len(categories) == most {
			r.fault(v, "tool_categories", "holds at most %d names: give the beginning of names and *", most)
			return nil
		}
		if categories == nil {
			categories = map[string]string{}
		}
		categories[tool] = r.text(category, "tool_categories", 1, maxTag)
	}
	return categories
}

// patterns refuses a name with * elsewhere than at its end: it would hold for no tool, and whoever wrote it thinks that
// something is withheld.
func (r *reader) patterns(v strictjson.Value, categories map[string]string) {
	for tool := range categories {
		if i := strings.IndexByte(tool, '*'); i >= 0 && i < len(tool)-1 {
			r.fault(v, "tool_categories", "a * stands at the end of a name only: give names, or the beginning of names and *")
			return
		}
	}
}

// reader reads members and notes what is wrong with them.
type reader struct {
	faults history.Faults
}

func (r *reader) fault(v strictjson.Value, path, detail string, args ...any) {
	r.faults.Add(path, history.CodeInvalidMessage, v.Offset, detail, args...)
}

func (r *reader) count() int { return len(r.faults.List) + r.faults.More }

// members walks an object in which unknown members are refused, and returns which
// were there; nil when it is no object.
func (r *reader) members(v strictjson.Value, what string, known []string, set func(string, strictjson.Value)) map[string]bool {
	if v.Kind() != '{' {
		r.fault(v, "", "the %s must be an object with %s", what, strings.Join(known, ", "))
		return nil
	}
	there := map[string]bool{}
	for name, m := range v.Members() {
		switch {
		case slices.Contains(known, name):
			there[name] = true
			set(name, m)
		case !r.variant(name, m, "", known):
			r.fault(m, "", "unknown member of the %s; it has %s%s", what, strings.Join(known, ", "), misplaced(name))
		}
	}
	return there
}

// misplaced says where that belongs which a client of a provider puts beside the messages.
func misplaced(name string) string {
	switch name {
	case "contents", "input", "history", "items":
		return ": in every format the list stands under messages"
	case "format":
		return ": the format goes into the query, such as ?format=openai"
	}
	return ""
}

// object walks an object. Known members go to set; those of them that it wants
// kept, and all unknown ones, are gathered. v is an object.
func (r *reader) object(v strictjson.Value, path string, known []string, set func(string, strictjson.Value) (keep bool)) extra {
	var e extra
	for name, m := range v.Members() {
		if slices.Contains(known, name) {
			if set(name, m) {
				e.add(name, m.Compact())
			}
		} else if !r.variant(name, m, path, known) {
			e.add(name, m.Compact())
		}
	}
	return e
}

// variant refuses a name that differs from a known one only in case: two readers
// could take it differently.
func (r *reader) variant(name string, v strictjson.Value, path string, known []string) bool {
	i := slices.IndexFunc(known, func(k string) bool { return strings.EqualFold(k, name) })
	if i < 0 {
		return false
	}
	r.faults.Add(path+"."+known[i], history.CodeInvalidJSON, v.Offset, "the name of this member is written in another case")
	return true
}

// typeless notes that an object has no type, unless a name tells that already: the type,
// or what may stand for it, is there in another case.
func (r *reader) typeless(v strictjson.Value, path string, instead ...string) {
	before := r.count()
	r.object(v, path, append(instead, "type"), func(string, strictjson.Value) bool { return false })
	if r.count() == before {
		r.fault(v, path+".type", "is missing")
	}
}

func (r *reader) text(v strictjson.Value, path string, min, max int) string {
	s, ok := v.Text()
	switch {
	case !ok:
		r.fault(v, path, "must be a string")
	case len(s) < min:
		r.fault(v, path, "must not be empty")
	case max > 0 && len(s) > max:
		r.fault(v, path, "is longer than %d bytes", max)
	}
	return s
}

func (r *reader) time(v strictjson.Value, path string) time.Time {
	s, _ := v.Text()
	t, err := time.Parse(time.RFC3339Nano, s)
	t = t.UTC().Truncate(time.Microsecond)
	if err != nil || t.Year() < 0 || t.Year() > 9999 {
		r.fault(v, path, "must be a time of RFC 3339, such as 2006-01-02T15:04:05Z")
		return time.Time{}
	}
	return t
}

// extra is an object that is being gathered; its last bracket is missing.
type extra []byte

func (e *extra) add(name string, value jsontext.Value) {
	if *e == nil {
		*e = append(*e, '{')
	} else {
		*e = append(*e, ',')
	}
	*e = append(history.AppendString(*e, name), ':')
	*e = append(*e, value...)
}

// first puts a mark of ours before the members that came in, in whatever order they did.
func (e *extra) first(name, text string) {
	rest := *e
	*e = nil
	e.add(name, history.AppendString(nil, text))
	if rest != nil {
		*e = append(append(*e, ','), rest[1:]...)
	}
}

// value returns the object, or nil when nothing was added.
func (e extra) value() jsontext.Value {
	if e == nil {
		return nil
	}
	return append(slices.Clip(jsontext.Value(e)), '}')
}
