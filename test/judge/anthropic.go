package judge

import (
	"strings"
	"unicode"
)

// maxFile is the size of a PDF.
const maxFile = 32 << 20

// anthropic judges a request of the Messages API, and of Bedrock, which is stricter
// about the order of roles.
func anthropic(c *checker, messages, system, tools *value) {
	if system != nil {
		anthropicSystem(c, system)
	}
	if tools != nil {
		for _, t := range tools.children {
			anthropicTool(c, t)
		}
	}
	a := anthropicPairs{checker: c, used: map[string]bool{}}
	for i, m := range messages.children {
		a.message(m)
		switch role := m.str("role"); {
		case i == 0 && role != "user":
			c.complain(m, "is the first message and not the user's: first message must use the user role")
		case i > 0 && role == messages.children[i-1].str("role"):
			c.complain(m, "has the role of the message before: roles must alternate")
		}
	}
	a.results(nil)
	if c.images <= maxImages && c.images+c.documents > maxImages {
		c.complain(messages, "has too many images and documents: %d + %d > %d", c.images, c.documents, maxImages)
	}
	if c.images > fewImages {
		for _, v := range c.wide {
			c.complain(v, "is an image of over %d pixels a side, in a request of more than %d", maxSideOfMany, fewImages)
		}
	}
	if n := len(messages.children); n > 0 {
		endsClean(c, messages.children[n-1])
	}
}

// endsClean refuses white space at the end of a final assistant message.
func endsClean(c *checker, m *value) {
	content := m.member("content")
	if m.str("role") != "assistant" || content == nil {
		return
	}
	if content.kind == '[' && len(content.children) > 0 {
		content = content.children[len(content.children)-1].member("text")
	}
	if content != nil && content.kind == '"' && content.text != strings.TrimRightFunc(content.text, isSpace) {
		c.complain(content, "ends with white space: final assistant content cannot end with trailing whitespace")
	}
}

// anthropicPairs holds the calls of the assistant message before.
type anthropicPairs struct {
	*checker
	used map[string]bool // ids of calls
	open []*value        // ids of calls that the next message answers
}

func (a *anthropicPairs) message(m *value) {
	a.object(m, need("role", oneOf("user", "assistant")), need("content", anything))
	content := m.member("content")
	if content == nil {
		return
	}
	role := m.str("role")
	kinds, where := anthropicSaid, "a user message"
	if role == "assistant" {
		kinds, where = anthropicAnswered, "an assistant message"
	}
	switch content.kind {
	case '"':
		spoken(a.checker, content)
	case '[':
		if len(content.children) == 0 {
			a.complain(content, "is empty: all messages must have non-empty content except for the optional final assistant message")
		}
		a.list(content, 0, func(c *checker, v *value) { c.typed(v, where, kinds) })
		notBlank(a.checker, content)
		if n := len(content.children); n > 0 && strings.HasSuffix(content.children[n-1].str("type"), "thinking") {
			a.complain(content.children[n-1], "ends the message: the final block in an assistant message cannot be thinking")
		}
	default:
		a.complain(content, "must be a string or a list of blocks")
	}
	a.results(m)
	if role == "assistant" && content.kind == '[' {
		a.calls(content)
		servedInside(a.checker, content)
	}
}

// results holds the results of a message to the calls of the one before.
func (a *anthropicPairs) results(m *value) {
	answered := map[string]bool{}
	first := true
	if content := m.member("content"); content != nil && content.kind == '[' {
		for _, b := range content.children {
			id := b.member("tool_use_id")
			if b.str("type") != "tool_result" || id == nil {
				first = first && b.str("type") == "tool_result"
				continue
			}
			if !first {
				a.complain(b, "stands after other blocks: tool_result blocks come first in the content")
			}
			switch {
			case answered[id.text]:
				a.complain(id, "has a result already: each tool_use must have a single result")
			case !a.take(id.text):
				a.complain(id, "answers no call: each `tool_result` block must have a corresponding `tool_use` block in the previous message")
			}
			answered[id.text] = true
		}
	}
	for _, id := range a.open {
		a.complain(id, "is not answered: `tool_use` ids were found without `tool_result` blocks immediately after")
	}
	a.open = nil
}

func (a *anthropicPairs) take(id string) bool {
	for i := range a.open {
		if a.open[i].text == id {
			a.open = append(a.open[:i:i], a.open[i+1:]...)
			return true
		}
	}
	return false
}

// calls notes the calls of an assistant message.
func (a *anthropicPairs) calls(content *value) {
	for _, b := range content.children {
		id := b.member("id")
		if id == nil {
			continue
		}
		switch b.str("type") {
		case "tool_use":
			a.open = append(a.open, id)
		case "server_tool_use", "mcp_tool_use":
		default:
			continue
		}
		if a.used[id.text] {
			a.complain(id, "is the id of a call before: `tool_use` ids must be unique")
		}
		a.used[id.text] = true
	}
}

// servedInside pairs the calls that the provider runs with their results, which stand
// in the same message.
func servedInside(c *checker, content *value) {
	open := map[string]*value{}
	for _, b := range content.children {
		kind := b.str("type")
		switch {
		case kind == "server_tool_use" || kind == "mcp_tool_use":
			open[b.str("id")] = b
		case isServed(kind):
			id := b.str("tool_use_id")
			if !answersCall(kind, open[id]) {
				c.complain(b, "has no call before it in the same message: a server_tool_use and its result stay together")
			}
			delete(open, id)
		}
	}
	for _, b := range content.children {
		if open[b.str("id")] == b {
			c.complain(b, "has no result in the same message: a server_tool_use and its result stay together")
		}
	}
}

// isServed reports whether a block is the result of a tool that the provider runs.
func isServed(kind string) bool {
	return kind != "tool_result" && strings.HasSuffix(kind, "_tool_result")
}

// answersCall reports whether a result of that type is one of that call.
func answersCall(kind string, call *value) bool {
	tool := strings.TrimSuffix(kind, "_tool_result")
	switch call.str("type") {
	case "mcp_tool_use":
		return tool == "mcp"
	case "server_tool_use":
		return tool == call.str("name") || tool == "tool_search" && strings.HasPrefix(call.str("name"), "tool_search_")
	}
	return false
}

// spoken is a text that says something.
func spoken(c *checker, v *value) {
	switch isString(c, v); {
	case v.kind != '"':
	case v.text == "":
		c.complain(v, "is empty: text content blocks must be non-empty")
	case blank(v.text):
		c.complain(v, "is blank: text content blocks must contain non-whitespace text")
	}
}

func blank(s string) bool { return strings.TrimFunc(s, isSpace) == "" }

// isSpace has a few more signs than Unicode, as the provider does.
func isSpace(r rune) bool { return unicode.IsSpace(r) || r >= 0x1c && r <= 0x1f }

// notBlank refuses blocks of blank text that stand beside no real text. Between blocks
// of thinking they stay: those are taken in place and order only.
func notBlank(c *checker, content *value) {
	var first *value
	thinks := func(i int) bool {
		return i >= 0 && i < len(content.children) && strings.HasSuffix(content.children[i].str("type"), "thinking")
	}
	for i, b := range content.children {
		text := b.member("text")
		switch {
		case b.str("type") != "text" || text == nil || text.text == "" || thinks(i-1) && thinks(i+1):
		case !blank(text.text):
			return
		case first == nil:
			first = text
		}
	}
	if first != nil {
		c.complain(first, "is blank, beside no other text: text content blocks must contain non-whitespace text")
	}
}

// anthropicSystem is a text or a list of text blocks.
func anthropicSystem(c *checker, v *value) {
	if v.kind == '"' {
		spoken(c, v)
		return
	}
	c.list(v, 1, func(c *checker, v *value) { c.typed(v, "system", map[string]check{"text": textBlock}) })
	notBlank(c, v)
}

func anthropicTool(c *checker, v *value) {
	name := need("name", toolName(128, ""))
	if kind := v.member("type"); kind != nil && kind.text != "custom" {
		if v.member("name") != nil {
			name.check(c, v.member("name"))
			c.declare(v.member("name"))
		}
		return
	}
	c.object(v, name, may("type", oneOf("custom")), may("description", isString), need("input_schema", schema),
		may("cache_control", cacheControl), may("strict", isBool), may("defer_loading", isBool), may("allowed_callers", isList),
		may("input_examples", isList), may("eager_input_streaming", orNull(isBool)))
	c.declare(v.member("name"))
}
