package judge

import "unicode/utf8"

// openAI judges a request of Chat Completions.
func openAI(c *checker, messages, system, tools *value) {
	if system != nil {
		c.complain(system, "has no place in the request: a system message stands among the messages")
	}
	if tools != nil {
		atMostTools(c, tools, maxTools)
		for _, t := range tools.children {
			openAITool(c, t)
		}
	}
	p := chatPairs{checker: c}
	for _, m := range messages.children {
		p.message(m)
	}
	p.settle()
}

// chatPairs holds the calls of an assistant message until they are answered.
type chatPairs struct {
	*checker
	caller *value
	open   []string
	before *value
}

// settle complains about calls that are still open when something else follows.
func (p *chatPairs) settle() {
	for _, id := range p.open {
		p.complain(p.caller.member("tool_calls"), "has no answer to %q: an assistant message with 'tool_calls' must be followed by "+
			"tool messages responding to each 'tool_call_id'", id)
	}
	p.open = nil
}

func (p *chatPairs) message(m *value) {
	role := m.member("role")
	if m.kind != '{' || role == nil {
		p.complain(m, "must be a message with a role")
		return
	}
	if role.text != "tool" {
		p.settle()
	}
	switch role.text {
	case "system", "developer":
		p.object(m, need("role", anything), may("name", isString), need("content", chatContent("a system message", chatText)))
	case "user":
		p.object(m, need("role", anything), may("name", isString), need("content", chatContent("a user message", chatSaid)))
	case "assistant":
		p.assistant(m)
	case "tool":
		p.object(m, need("role", anything), need("content", chatContent("a tool message", chatText)), need("tool_call_id", atMost(40)))
		p.answer(m)
	case "function":
		p.object(m, need("role", anything), need("content", orNull(chatString)), need("name", toolName(64, "")))
		if called := p.before.member("function_call"); called == nil || called.str("name") != m.str("name") {
			p.complain(m, "must be a response to a preceding message with 'function_call'")
		}
	default:
		p.complain(role, "must be one of developer, system, user, assistant, tool and function")
	}
	p.before = m
}

// answer takes one call off those that are open.
func (p *chatPairs) answer(m *value) {
	id := m.str("tool_call_id")
	for i := range p.open {
		if p.open[i] == id {
			p.open = append(p.open[:i:i], p.open[i+1:]...)
			return
		}
	}
	p.complain(m, "answers no call: messages with role 'tool' must be a response to a preceding message with 'tool_calls'")
}

func (p *chatPairs) assistant(m *value) {
	p.object(m, need("role", anything), may("name", isString),
		may("content", orNull(chatContent("an assistant message", chatAnswered))),
		may("refusal", orNull(isString)),
		may("audio", orNull(func(c *checker, v *value) { c.object(v, need("id", nonEmpty)) })),
		may("tool_calls", listOf(1, chatCall)),
		may("function_call", func(c *checker, v *value) {
			c.object(v, need("name", toolName(64, "")), need("arguments", isString))
			c.call(v.member("name"))
		}),
		// What other vendors of this format want back.
		may("reasoning_content", isString), may("reasoning", isString), may("reasoning_details", isList), may("extra_content", isObject))
	calls := m.member("tool_calls")
	if m.member("content") == nil && calls == nil && m.member("function_call") == nil {
		p.complain(m, "lacks content: it may be absent only beside tool_calls or function_call")
	}
	if calls != nil {
		if n := len(calls.children); n > maxCalls {
			p.complain(calls, "has %d calls: array too long, expected an array with maximum length %d", n, maxCalls)
		}
		p.caller = m
		for _, call := range calls.children {
			p.open = append(p.open, call.str("id"))
		}
	}
}

func chatCall(c *checker, v *value) {
	held := []field{need("id", atMost(40)), need("type", anything), may("extra_content", isObject)}
	c.typed(v, "tool_calls", map[string]check{
		"function": func(c *checker, v *value) {
			c.object(v, append(held, need("function", func(c *checker, v *value) {
				c.object(v, need("name", toolName(64, "")), need("arguments", isString))
				c.call(v.member("name"))
			}))...)
		},
		"custom": func(c *checker, v *value) {
			c.object(v, append(held, need("custom", func(c *checker, v *value) {
				c.object(v, need("name", toolName(64, "")), need("input", isString))
				c.call(v.member("name"))
			}))...)
		},
	})
}

// chatContent is a string or a list of parts.
func chatContent(where string, parts map[string]check) check {
	return openAIContent(where, chatString, parts)
}

// openAIContent is a string or a list of parts, as both APIs of the provider have it.
func openAIContent(where string, text check, parts map[string]check) check {
	return func(c *checker, v *value) {
		switch v.kind {
		case '"':
			text(c, v)
		case '[':
			c.list(v, 1, func(c *checker, v *value) { c.typed(v, where, parts) })
		default:
			c.complain(v, "must be a string or a list of parts")
		}
	}
}

// upTo is a text of no more characters; it may be empty.
func upTo(max int) check {
	return func(c *checker, v *value) {
		isString(c, v)
		if n := utf8.RuneCountInString(v.text); n > max {
			c.complain(v, "has %d characters: string too long, expected a string with maximum length %d", n, max)
		}
	}
}

var chatString = upTo(maxContent)

// openAIPart is a part with the members of its type.
func openAIPart(fields ...field) check {
	fields = append(fields, need("type", anything), may("prompt_cache_breakpoint", isObject))
	return func(c *checker, v *value) { c.object(v, fields...) }
}

// The parts that the roles may hold.
var (
	chatText     = map[string]check{"text": openAIPart(need("text", chatString))}
	chatAnswered = map[string]check{"text": chatText["text"], "refusal": openAIPart(need("refusal", isString))}
	chatSaid     = map[string]check{
		"text": chatText["text"],
		"image_url": openAIPart(need("image_url", func(c *checker, v *value) {
			c.object(v, need("url", imageURL), may("detail", oneOf("auto", "low", "high")))
		})),
		"input_audio": openAIPart(need("input_audio", audio)),
		"file": openAIPart(need("file", func(c *checker, v *value) {
			c.object(v, may("file_data", fileData(isPDF)), may("file_id", nonEmpty), may("filename", isString))
			if v.member("file_data") == nil && v.member("file_id") == nil {
				c.complain(v, "lacks file_data and file_id: one of them is needed")
			}
		})),
	}
)

func audio(c *checker, v *value) {
	c.object(v, need("data", isBase64), need("format", oneOf("wav", "mp3")))
}

func openAITool(c *checker, v *value) {
	c.typed(v, "tools", map[string]check{
		"function": func(c *checker, v *value) {
			c.object(v, need("type", anything), need("function", func(c *checker, v *value) {
				c.object(v, need("name", toolName(64, "")), may("description", isString), may("parameters", schema), may("strict", orNull(isBool)))
				c.declare(v.member("name"))
			}))
		},
		"custom": func(c *checker, v *value) {
			c.object(v, need("type", anything), need("custom", func(c *checker, v *value) {
				c.object(v, need("name", toolName(64, "")), may("description", isString), may("format", isObject))
				c.declare(v.member("name"))
			}))
		},
	})
}
