package wire

import (
	"bytes"
	"cmp"
	"encoding/base64"
	"encoding/json/jsontext"
	"iter"
	"slices"
	"strconv"
	"strings"

	"historyd/internal/history"
	"historyd/internal/strictjson"
)

// A step is what a provider takes as one exchange of a repaired history: a message,
// and the results that follow it at once.
type step struct {
	at      int               // position of message in the list; of results when there is none
	message *history.Message  // nil when results follow no message
	results []history.Message // tool messages
}

// steps walks the messages. What it yields points into them.
func steps(msgs []history.Message) iter.Seq[step] {
	return func(yield func(step) bool) {
		for i := 0; i < len(msgs); {
			st := step{at: i}
			if msgs[i].Role != history.Tool {
				st.message = &msgs[i]
				i++
			}
			from := i
			for i < len(msgs) && msgs[i].Role == history.Tool {
				i++
			}
			st.results = msgs[from:i]
			if !yield(st) {
				return
			}
		}
	}
}

// inCallOrder returns the messages with the results of each step in the order of the
// calls that they answer, whichever came first: that is how a provider wrote the calls,
// and how it wants them answered. A message that holds results of several calls is
// divided where it has to be. The messages stay as they are where nothing is to be moved.
func inCallOrder(msgs []history.Message) []history.Message {
	out, copied := msgs, 0
	for st := range steps(msgs) {
		if st.message == nil || inOrder(st.message, st.results) {
			continue
		}
		from := st.at + 1
		if copied == 0 {
			out = make([]history.Message, 0, len(msgs)+8)
		}
		out = append(append(out, msgs[copied:from]...), ordered(st.message, st.results)...)
		copied = from + len(st.results)
	}
	if copied > 0 {
		out = append(out, msgs[copied:]...)
	}
	return out
}

// inOrder reports whether the results answer the calls of the message one after the other.
func inOrder(m *history.Message, results []history.Message) bool {
	next := 0
	for i := range results {
		for j := range results[i].Content {
			b := &results[i].Content[j]
			if b.Type != history.ToolResult {
				continue
			}
			for next < len(m.Content) && m.Content[next].Type != history.ToolCall {
				next++
			}
			if next == len(m.Content) || m.Content[next].ID != b.CallID {
				return false
			}
			next++
		}
	}
	return true
}

// ordered divides the results of a message and puts them in order. What is no result
// stays with the one before it; a result of no call comes last.
func ordered(m *history.Message, results []history.Message) []history.Message {
	waiting := map[string][]int{} // places of the calls of an id
	for i := range m.Content {
		if b := &m.Content[i]; b.Type == history.ToolCall {
			waiting[b.ID] = append(waiting[b.ID], i)
		}
	}
	type answer struct {
		call int // its place
		part history.Message
	}
	var answers []answer
	for i := range results {
		for content := results[i].Content; len(content) > 0; {
			// The first that is no result goes with the one that follows it.
			n := 1 + slices.IndexFunc(content, isResult)
			if next := slices.IndexFunc(content[n:], isResult); next >= 0 {
				n += next
			} else {
				n = len(content)
			}
			a := answer{len(m.Content), results[i]}
			a.part.Content, content = content[:n:n], content[n:]
			for j := range a.part.Content {
				b := &a.part.Content[j]
				if of := waiting[b.CallID]; isResult(*b) && len(of) > 0 {
					a.call, waiting[b.CallID] = of[0], of[1:]
				}
			}
			answers = append(answers, a)
		}
	}
	slices.SortStableFunc(answers, func(a, b answer) int { return a.call - b.call })
	out := make([]history.Message, len(answers))
	for i := range answers {
		out[i] = answers[i].part
	}
	return out
}

func isResult(b history.Block) bool { return b.Type == history.ToolResult }

// The most of images, documents and sounds in one request. Sizes are of base64,
// which is what providers count.
const (
	maxMedia      = 100
	maxMediaSize  = 5_000_000
	maxMediaTotal = 20_000_000
)

// media knows which images, documents and sounds of a render stay.
type media map[*history.Block]bool

// chooseMedia takes the newest ones that have a URL, or bytes at hand, and that fits says
// have a place. fits is asked about opaque blocks, too, which count as one without a size.
//
// When they are too many the oldest give way, down to four fifths of each limit, so that
// the next ones have room and what a provider has cached stays good for a while. It is
// decided at each one by those up to it.
func chooseMedia(msgs []history.Message, fits func(m *history.Message, b *history.Block) bool) media {
	var found []*history.Block
	first, total := 0, 0 // of those that stay
	add := func(b *history.Block) {
		found = append(found, b)
		total += mediaSize(b)
		if len(found)-first <= maxMedia && total <= maxMediaTotal {
			return
		}
		for len(found)-first > maxMedia/5*4 || total > maxMediaTotal/5*4 {
			total -= mediaSize(found[first])
			first++
		}
	}
	var visit func(m *history.Message, blocks []history.Block)
	visit = func(m *history.Message, blocks []history.Block) {
		for i := range blocks {
			b := &blocks[i]
			there := b.Type == history.OpaqueBlock || b.URL != "" || b.Data != nil && mediaSize(b) <= maxMediaSize
			if (b.Media() || b.Type == history.OpaqueBlock) && there && fits(m, b) {
				add(b)
			}
			visit(m, b.Content)
		}
	}
	for i := range msgs {
		visit(&msgs[i], msgs[i].Content)
	}
	var chosen media
	for _, b := range found[first:] {
		if chosen == nil {
			chosen = media{}
		}
		chosen[b] = true
	}
	return chosen
}

// mediaSize is what a provider counts.
func mediaSize(b *history.Block) int {
	if b.Type == history.OpaqueBlock {
		return 0
	}
	return base64.StdEncoding.EncodedLen(len(b.Data))
}

// webURL reports whether a provider could fetch what a URL names.
func webURL(url string) bool {
	rest, ok := strings.CutPrefix(url, "https://")
	if !ok {
		rest, ok = strings.CutPrefix(url, "http://")
	}
	return ok && rest != "" && strings.IndexByte(rest, 0) < 0
}

// placeholder is the text that stands where an image, a document or a sound was.
func placeholder(b *history.Block) string { return "[" + string(b.Type) + ": not shown here]" }

// notShown is the text of a user's message, or of a result, of which only another model
// or provider may see anything: without a word it would seem that nothing was said.
const notShown = "[content: not shown here]"

// clean returns a text without the characters that providers refuse.
func clean(s string, r *Report) string {
	if strings.IndexByte(s, 0) < 0 {
		return s
	}
	r.ReplacedCharacters++
	return strings.ReplaceAll(s, "\x00", "\uFFFD")
}

// cleanRaw is clean for the strings inside of JSON.
func cleanRaw(v jsontext.Value, r *Report) jsontext.Value {
	const escape = `\u0000`
	if !bytes.Contains(v, []byte(escape)) {
		return v
	}
	out := make(jsontext.Value, 0, len(v))
	for i := 0; i < len(v); i++ {
		switch {
		case v[i] != '\\':
			out = append(out, v[i])
		case bytes.HasPrefix(v[i:], []byte(escape)):
			out = append(out, "\uFFFD"...)
			i += len(escape) - 1
		default:
			out = append(out, v[i], v[i+1])
			i++
		}
	}
	if !bytes.Equal(out, v) {
		r.ReplacedCharacters++
		if strictjson.Check(out) != nil {
			return oncePerName(out)
		}
	}
	return out
}

// oncePerName returns JSON in which names may be there twice, since two may have become
// one, with the first of each alone.
func oncePerName(v jsontext.Value) jsontext.Value {
	o := object{}
	switch v.Kind() {
	case '[':
		o.openList()
		for _, e := range (strictjson.Value{Raw: v}).Elements() {
			o.element()
			o.dst = append(o.dst, oncePerName(e.Raw)...)
		}
		o.closeList()
	case '{':
		seen := map[string]bool{}
		o.open()
		for name, m := range (strictjson.Value{Raw: v}).Members() {
			if !seen[name] {
				seen[name] = true
				m.Raw = oncePerName(m.Raw)
				o.member(name, m)
			}
		}
		o.close()
	default:
		return v
	}
	return o.dst
}

// argumentsObject returns the arguments of a call as an object: as they are when they
// are one, and else with their text as a member.
func argumentsObject(b *history.Block, r *Report) jsontext.Value {
	if b.Arguments.Kind() == '{' {
		return cleanRaw(b.Arguments, r)
	}
	r.WrappedArguments++
	text := b.ArgumentString()
	if strings.TrimSpace(text) == "" {
		return jsontext.Value("{}")
	}
	dst := history.AppendString([]byte(`{"_arguments":`), clean(text, r))
	return append(dst, '}')
}

// plainText returns the texts of blocks, one under the other, and whether there was
// nothing else.
func plainText(blocks []history.Block) (text string, all bool) {
	if len(blocks) == 1 && blocks[0].Type == history.TextBlock {
		return blocks[0].Text, true
	}
	all = true
	var b strings.Builder
	for i := range blocks {
		if blocks[i].Type != history.TextBlock {
			all = false
			continue
		}
		if b.Len() > 0 {
			b.WriteByte('\n')
		}
		b.WriteString(blocks[i].Text)
	}
	return b.String(), all
}

// declare writes the list of tools: those that the request gave, and the added ones
// under the names that n gives them, each by write, sorted by those. n may be nil.
func (s *Show) declare(n *naming, write func(o *object, d Declaration)) (tools []byte, refusals []Declaration) {
	o := object{dst: givenTools(s.Tools)}
	o.comma = len(o.dst) > 0
	added, refusals := s.declared(n)
	for _, d := range added {
		o.element()
		write(&o, d)
	}
	return o.dst, refusals
}

// declared returns the added tools under the names that n gives them, sorted, and
// those of them that may not be called. What the request declares under such a name is
// not added, and of two that share one the name may be called if one of them may be.
func (s *Show) declared(n *naming) (added, refusals []Declaration) {
	for _, d := range s.Added {
		if n != nil {
			d.Name = n.name(d.Name)
		}
		if !s.given[d.Name] {
			added = append(added, d)
		}
	}
	slices.SortFunc(added, func(a, b Declaration) int {
		return cmp.Or(strings.Compare(a.Name, b.Name), strings.Compare(a.Refusal, b.Refusal))
	})
	unique := added[:0]
	for _, d := range added {
		if last := len(unique) - 1; last >= 0 && unique[last].Name == d.Name {
			unique[last].Custom = unique[last].Custom && d.Custom
			continue
		}
		unique = append(unique, d)
	}
	for _, d := range unique {
		if d.Refusal != "" {
			refusals = append(refusals, d)
		}
	}
	return unique, refusals
}

// note finds the names that the request declares, where something could be added.
func (s *Show) note(f Format) {
	if len(s.Added) == 0 || s.Tools.Kind() != '[' {
		return
	}
	s.given = map[string]bool{}
	names, _ := ToolNames(f, s.Tools) // has been checked before
	for _, name := range names {
		s.given[name] = true
	}
}

// givenTools returns the elements of the request's list, as they were written.
func givenTools(tools jsontext.Value) []byte {
	if tools.Kind() != '[' {
		return nil
	}
	inner := bytes.TrimSpace(tools)
	return slices.Clone(bytes.TrimSpace(inner[1 : len(inner)-1]))
}

// schema writes a member that lets arguments be any object.
func (o *object) schema(name string) { o.raw(name, jsontext.Value(`{"type":"object"}`)) }

// ToolNames returns the names that a request's list of tools declares, in the shape
// of that format. The list has passed strictjson. Errors are *history.Faults.
func ToolNames(f Format, tools jsontext.Value) ([]string, error) {
	var r reader
	v := strictjson.Value{Raw: tools}
	if v.Kind() != '[' {
		r.fault(v, "tools", "is a list of declarations of tools")
		return nil, r.faults.Err()
	}
	named := nativeToolNames
	if c := codecs[f]; c != nil {
		named = c.toolNames
	}
	var names []string
	for i, e := range v.Elements() {
		found, ok := named(e)
		if !ok {
			r.fault(e, "tools["+strconv.Itoa(i)+"]", "is no declaration of a tool in this format")
		}
		names = append(names, found...)
	}
	return names, r.faults.Err()
}

// mostTools are how many tools a request may declare, where its provider has a limit.
var mostTools = map[Format]int{OpenAI: 128, Responses: 128, Gemini: 512}

// ToolRoom returns how many tools a request can declare beside those of its list, of which
// ToolNames has read so many names: 0 for any number, and less for none.
func ToolRoom(f Format, tools jsontext.Value, names int) int {
	most, limited := mostTools[f]
	if !limited {
		return 0
	}
	given := 0
	if tools.Kind() == '[' {
		for range (strictjson.Value{Raw: tools}).Elements() {
			given++
		}
	}
	if room := most - max(given, names); room > 0 {
		return room
	}
	return -1
}

// nativeToolNames takes a declaration in any of the usual shapes.
func nativeToolNames(tool strictjson.Value) ([]string, bool) {
	for _, level := range []string{"", "function", "custom"} {
		in := tool
		if level != "" {
			in = memberNamed(tool.Raw, level)
		}
		if name := memberNamed(in.Raw, "name"); name.Kind() == '"' {
			s, _ := name.Text()
			return []string{s}, true
		}
	}
	return nil, false
}
