package wire

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json/jsontext"
	"slices"
	"strconv"

	"historyd/internal/history"
	"historyd/internal/strictjson"
)

// geminiState is what one content has to know of those before it.
type geminiState struct {
	waiting      []geminiCall // of the last content with calls
	settled      int          // how many at the beginning of waiting are known to have theirs
	byName, byID map[string][]int
	results      bool // the content before ended with results
}

// geminiCall is a call that waits for its result.
type geminiCall struct {
	id, name string
	answered bool
}

// geminiContent is one content as it is read.
type geminiContent struct {
	model bool
	names map[string]int // how often each was called or answered without an id
	calls []geminiCall
}

func (geminiCodec) decode(d *decoder, v strictjson.Value, path string) []history.Message {
	if v.Kind() != '{' {
		d.fault(v, path, "a content is an object")
		return nil
	}
	var role, parts strictjson.Value
	rest := d.geminiObject(v, path, geminiMembers, func(name string, v strictjson.Value) bool {
		if name == "role" {
			role = v
		} else {
			parts = v
		}
		return false
	})
	d.refuseReserved(v, path, rest)
	d.refuseCarriers(v, path, rest.value())
	var c geminiContent
	mark := d.geminiRole(role, path, &c)
	var msgs []history.Message
	if parts.Kind() == '[' {
		msgs = d.geminiMessages(&c, parts, path+".parts")
	}
	if len(msgs) == 0 {
		switch {
		case parts.Raw != nil && parts.Kind() != '[' && !parts.IsNull():
			d.fault(parts, path+".parts", "is a list of parts")
			return nil
		case !c.model && (role.Raw != nil && !role.IsNull()):
			d.fault(or(parts, v), path+".parts", "holds at least one part")
			return nil
		}
		// An answer that broke off before it said anything; where nobody is named, nobody else comes without a word.
		d.refuseScattered(v, path+".parts")
		c.model = true
		msgs = []history.Message{{Role: history.Assistant, Status: history.Complete, Content: []history.Block{history.Text("")}}}
		if parts.Raw == nil {
			parts.Raw = jsontext.Value("false")
		}
		mark.add("parts", parts.Compact())
	}
	if msgs[0].Role == history.Tool && d.gemini.results {
		mark.add("apart", jsontext.Value("true"))
	}
	msgs[0].Extra = rest.marked(mark)
	d.gemini.results = msgs[len(msgs)-1].Role == history.Tool
	if len(c.calls) > 0 {
		d.gemini.wait(c.calls)
	}
	return msgs
}

// geminiRole reads whose the content is, and marks what stands there for a user.
func (d *decoder) geminiRole(role strictjson.Value, path string, c *geminiContent) (mark extra) {
	switch s, _ := role.Text(); {
	case s == "user":
	case s == "model":
		c.model = true
	case s == "function":
		mark.add("role", role.Compact())
	case role.Raw == nil:
		mark.add("role", jsontext.Value("false"))
	case role.IsNull():
		mark.add("role", jsontext.Value("null"))
	default:
		d.fault(role, path+".role", "must be user or model; the system instruction is no part of the contents")
	}
	return mark
}

// geminiMessages reads the parts, in their order: results go into messages of their own.
func (d *decoder) geminiMessages(c *geminiContent, parts strictjson.Value, path string) []history.Message {
	var msgs []history.Message
	for i, e := range parts.Elements() {
		b := d.geminiPart(c, e, path+"["+strconv.Itoa(i)+"]")
		role := history.User
		switch {
		case c.model:
			role = history.Assistant
		case b.Type == history.ToolResult:
			role = history.Tool
		}
		if n := len(msgs); n == 0 || msgs[n-1].Role != role {
			m := history.Message{Role: role, Status: history.Complete}
			if role == history.User {
				m.Kind = history.Person
			}
			if n > 0 {
				var mark extra
				mark.add("more", jsontext.Value("true"))
				m.Extra = extra(nil).marked(mark)
			}
			msgs = append(msgs, m)
		}
		m := &msgs[len(msgs)-1]
		m.Content = append(m.Content, b)
	}
	return msgs
}

func (d *decoder) refuseReserved(v strictjson.Value, path string, rest extra) {
	if rest == nil {
		return
	}
	for name := range (strictjson.Value{Raw: rest.value()}).Members() {
		if name == geminiMark || name == serverToolCall || name == serverToolResponse {
			d.fault(v, path, "a member has a name that is reserved for what is kept")
		}
	}
}

// geminiPart is one part as it is read: its members, and what to keep of them as they are.
type geminiPart struct {
	strictjson.Value
	path  string
	kind  string // the one member of geminiData
	value strictjson.Value
	rest  extra // all that is not modelled
	sign  string
	think bool
}

func (d *decoder) geminiPart(c *geminiContent, v strictjson.Value, path string) history.Block {
	if v.Kind() != '{' {
		d.fault(v, path, "a part is an object")
		return history.Block{}
	}
	p := geminiPart{Value: v, path: path}
	p.rest = d.geminiObject(v, path, geminiPartMembers, func(name string, v strictjson.Value) bool {
		switch {
		case v.IsNull():
			return true
		case !slices.Contains(geminiData, name):
			return d.geminiModifier(&p, name, v)
		case p.kind != "":
			d.fault(v, path+"."+name, "a part holds one of text, inlineData, fileData, functionCall, functionResponse and the like")
		}
		p.kind, p.value = name, v
		return false
	})
	d.refuseReserved(v, path, p.rest)
	switch p.kind {
	case "text":
		return d.geminiText(c, &p)
	case "inlineData", "fileData":
		b := d.geminiMedia(&p)
		p.keepModifiers(&b)
		return b
	case "functionCall":
		return d.geminiCall(c, &p)
	case "functionResponse":
		return d.geminiResult(c, &p)
	case "":
		if p.sign != "" && onlyNulls(p.rest) {
			// What is left of an empty text that carried a signature.
			b := history.Block{Type: history.TextBlock}
			var mark extra
			mark.add("text", jsontext.Value("false"))
			p.keepModifiers(&b)
			b.Extra = p.rest.marked(mark)
			return b
		}
	}
	return d.geminiOpaque(&p)
}

func onlyNulls(e extra) bool {
	if e == nil {
		return true
	}
	for _, v := range (strictjson.Value{Raw: e.value()}).Members() {
		if !v.IsNull() {
			return false
		}
	}
	return true
}

// geminiModifier reads a member beside the data, and reports whether to keep it as it is.
func (d *decoder) geminiModifier(p *geminiPart, name string, v strictjson.Value) (keep bool) {
	switch name {
	case "thought":
		if k := v.Kind(); k != 't' && k != 'f' {
			d.fault(v, p.path+".thought", "must be true or false")
		}
		p.think = v.Kind() == 't'
		return !p.think
	case "thoughtSignature":
		p.sign = d.text(v, p.path+".thoughtSignature", 0, 0)
		if _, ok := geminiBytes(p.sign); !ok && p.sign != "" {
			d.fault(v, p.path+".thoughtSignature", "must be base64")
		}
		return p.sign == ""
	}
	return true
}

// keepModifiers keeps the signature, and that it is a thought, of a block without a place for it.
func (p *geminiPart) keepModifiers(b *history.Block) {
	if p.think {
		p.rest.add("thought", jsontext.Value("true"))
	}
	if p.sign != "" {
		p.rest.add("thoughtSignature", history.AppendString(nil, p.sign))
	}
	if mark := objectOf(memberNamed(b.Extra, geminiMark)); mark != nil {
		p.rest.add(geminiMark, mark)
	}
	b.Extra = p.rest.value()
}

func (d *decoder) geminiText(c *geminiContent, p *geminiPart) history.Block {
	b := history.Text(d.text(p.value, p.path+".text", 0, 0))
	d.refuseCarriers(p.Value, p.path, p.rest.value())
	switch {
	case p.think && c.model:
		b.Type, b.Signature = history.ThinkingBlock, p.sign
		b.Extra = p.rest.value()
		return b
	case p.think:
		d.fault(p.Value, p.path+".thought", "only a model thinks")
	}
	p.keepModifiers(&b)
	return b
}

// geminiOpaque keeps a part as it came in, but for the spelling of names.
func (d *decoder) geminiOpaque(p *geminiPart) history.Block {
	var data extra
	if p.kind != "" {
		inner := jsontext.Value(nil)
		if p.value.Kind() == '{' {
			inner = orEmpty(d.geminiObject(p.value, p.path+"."+p.kind, geminiServerMembers[p.kind],
				func(string, strictjson.Value) bool { return true }).value())
		} else {
			d.fault(p.value, p.path+"."+p.kind, "must be an object")
			inner = p.value.Compact()
		}
		name := p.kind
		switch name {
		case "toolCall":
			name = serverToolCall
		case "toolResponse":
			name = serverToolResponse
		}
		data.add(name, inner)
	}
	p.keepModifiers(&history.Block{})
	if p.rest != nil {
		for name, v := range (strictjson.Value{Raw: p.rest.value()}).Members() {
			data.add(name, v.Raw)
		}
	}
	b := history.Block{Type: history.OpaqueBlock, Provider: geminiProvider, Opaque: orEmpty(data.value())}
	if history.ClientTool(strictjson.Value{Raw: b.Opaque}) {
		d.fault(p.Value, p.path, "calls stand in functionCall and results in functionResponse, not in other parts")
	}
	return b
}

func (d *decoder) geminiCall(c *geminiContent, p *geminiPart) history.Block {
	b := history.Block{Type: history.ToolCall, Signature: p.sign, Arguments: jsontext.Value("{}")}
	if !c.model {
		d.fault(p.Value, p.path+".functionCall", "calls stand in a content of role model")
	}
	if p.value.Kind() != '{' {
		d.fault(p.value, p.path+".functionCall", "must be an object")
		return b
	}
	path := p.path + ".functionCall"
	var id, name, args strictjson.Value
	level := d.geminiObject(p.value, path, geminiCallMembers, func(member string, v strictjson.Value) bool {
		switch member {
		case "id":
			id = v
		case "name":
			name = v
		case "args":
			args = v
		case "partialArgs":
			if !v.IsNull() && string(v.Compact()) != "[]" {
				// Kept unread, they would pass the redaction.
				d.fault(v, path+".partialArgs", "arguments that came in pieces must have been put together as args")
			}
			return true
		default:
			return true
		}
		return false
	})
	d.refuseCarriers(p.value, path, level.value())
	d.refuseCarriers(p.Value, p.path, p.rest.value())
	b.Name = d.geminiToolName(name, p.value, path)
	var mark extra
	switch {
	case args.Raw == nil:
		mark.add("args", jsontext.Value("false"))
	case args.IsNull():
		mark.add("args", args.Compact())
	case args.Kind() == '{':
		b.Arguments = args.Compact()
	default:
		d.fault(args, path+".args", "must be an object")
	}
	b.ID = d.geminiID(id, path, &mark)
	if b.ID == "" {
		b.ID = c.derived(b.Name)
	}
	c.calls = append(c.calls, geminiCall{id: b.ID, name: b.Name})
	if level != nil {
		mark.add("level", level.value())
	}
	if p.think {
		p.rest.add("thought", jsontext.Value("true"))
	}
	b.Extra = p.rest.marked(mark)
	return b
}

func (d *decoder) geminiToolName(name, in strictjson.Value, path string) string {
	if name.Raw == nil {
		d.fault(in, path+".name", "is missing: a string")
		return ""
	}
	return d.text(name, path+".name", 0, maxName)
}

// geminiID returns the id of a call or result, and marks how there was none.
func (d *decoder) geminiID(id strictjson.Value, path string, mark *extra) string {
	switch {
	case id.Raw == nil:
		mark.add("id", jsontext.Value("false"))
		return ""
	case id.IsNull() || string(id.Raw) == `""`:
		mark.add("id", id.Compact())
		return ""
	}
	return d.text(id, path+".id", 1, maxID)
}

// maxDerivedName is how much of a name an id holds, so that it is one that every provider takes.
const maxDerivedName = 28

// derived returns the id of the next call of that name, or of its result, in a content
// in which they have none: the same for both, also when they come in requests apart.
func (c *geminiContent) derived(name string) string {
	if c.names == nil {
		c.names = map[string]int{}
	}
	n := c.names[name]
	c.names[name]++
	if !(nameRule{max: maxDerivedName}).legal(name) {
		sum := sha256.Sum256([]byte(name))
		name = hex.EncodeToString(sum[:12])
	}
	return "gemini_" + strconv.Itoa(n) + "_" + name
}

// wait takes the calls that results in the contents that follow are for.
func (s *geminiState) wait(calls []geminiCall) {
	s.waiting, s.settled = calls, 0
	s.byName, s.byID = map[string][]int{}, map[string][]int{}
	for i, w := range calls {
		s.byName[w.name] = append(s.byName[w.name], i)
		s.byID[w.id] = append(s.byID[w.id], i)
	}
}

// answer returns the id of the call that a result without an id is for: the next of that
// name, else the next of any.
func (s *geminiState) answer(c *geminiContent, name string) string {
	derived := c.derived(name)
	if w := s.next(s.byName, name); w != nil {
		return w.id
	}
	for ; s.settled < len(s.waiting); s.settled++ {
		if w := &s.waiting[s.settled]; !w.answered {
			w.answered = true
			return w.id
		}
	}
	return derived
}

// answered notes a result that names its call.
func (s *geminiState) answered(id string) { s.next(s.byID, id) }

// next answers the next call of that name or id; nil when none waits.
func (s *geminiState) next(of map[string][]int, key string) *geminiCall {
	for list := of[key]; len(list) > 0; list = of[key] {
		w := &s.waiting[list[0]]
		of[key] = list[1:]
		if !w.answered {
			w.answered = true
			return w
		}
	}
	return nil
}
