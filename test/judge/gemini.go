package judge

// gemini judges contents, systemInstruction and tools of generateContent.
func gemini(c *checker, messages, system, tools *value) {
	if system != nil {
		c.object(system, may("role", oneOf("system", "user")), need("parts", listOf(1, func(c *checker, v *value) {
			c.object(v, need("text", nonEmpty))
		})))
	}
	if tools != nil {
		for _, t := range tools.children {
			geminiTool(c, t)
		}
		if n := len(c.declared); n > maxFunctions {
			c.complain(tools, "declares %d functions: at most %d function declarations can be specified", n, maxFunctions)
		}
	}
	turn := 0 // where the current turn begins
	for i, m := range messages.children {
		geminiContent(c, m)
		role := m.str("role")
		switch {
		case i == 0 && role != "user":
			c.complain(m, "is the first content and not the user's: contents must start with user")
		case i > 0 && role == messages.children[i-1].str("role"):
			c.complain(m, "has the role of the content before: roles must alternate")
		}
		if role == "user" && len(m.having("functionResponse")) < len(m.parts()) {
			turn = i
		}
	}
	for i, m := range messages.children {
		var next *value
		if i+1 < len(messages.children) {
			next = messages.children[i+1]
		}
		answeredNext(c, m, next)
		if i == 0 && len(m.having("functionResponse")) > 0 {
			c.complain(m, "answers no function call")
		}
		calls := m.having("functionCall")
		if i > turn && len(calls) > 0 && calls[0].member("thoughtSignature") == nil {
			c.complain(calls[0], "lacks thoughtSignature: function call is missing a thought_signature in functionCall parts")
		}
	}
}

// parts are the parts of a content that are objects.
func (v *value) parts() []*value {
	if parts := v.member("parts"); parts != nil && parts.kind == '[' {
		return parts.children
	}
	return nil
}

// having returns the parts that have a member.
func (v *value) having(name string) []*value {
	var out []*value
	for _, p := range v.parts() {
		if p.member(name) != nil {
			out = append(out, p)
		}
	}
	return out
}

// answeredNext holds the responses of a content to the calls of the one before: as
// many, in the same order.
func answeredNext(c *checker, m, next *value) {
	calls, got := m.having("functionCall"), next.having("functionResponse")
	if len(calls) != len(got) {
		at := m
		if next != nil && len(calls) == 0 {
			at = next
		}
		c.complain(at, "has %d calls and %d responses next: the number of function response parts is equal to the number of function call "+
			"parts of the function call turn", len(calls), len(got))
		return
	}
	for i := range calls {
		call, response := calls[i].member("functionCall"), got[i].member("functionResponse")
		if call.str("name") != response.str("name") {
			c.complain(response, "answers a call of another name: responses follow the order of the calls")
		}
		if call.str("id") != response.str("id") {
			c.complain(response, "answers a call of another id: responses follow the order of the calls")
		}
	}
}

func geminiContent(c *checker, m *value) {
	c.object(m, need("role", oneOf("user", "model")), need("parts", listOf(1, geminiPart)))
}

// geminiKinds are the members of which a part has one, with the roles that may.
var geminiKinds = map[string]string{
	"text": "user model", "inlineData": "user model", "fileData": "user model", "functionCall": "model", "functionResponse": "user",
	"executableCode": "model", "codeExecutionResult": "model", "toolCall": "model", "toolResponse": "user model",
}

func geminiPart(c *checker, v *value) {
	c.object(v, may("text", isString), may("inlineData", inlineData), may("fileData", geminiFile),
		may("functionCall", func(c *checker, v *value) {
			c.object(v, may("id", nonEmpty), need("name", geminiName), need("args", isObject))
			c.call(v.member("name"))
		}),
		may("functionResponse", func(c *checker, v *value) {
			c.object(v, may("id", nonEmpty), need("name", geminiName), need("response", isObject),
				may("scheduling", oneOf("SCHEDULING_UNSPECIFIED", "SILENT", "WHEN_IDLE", "INTERRUPT")),
				may("parts", listOf(1, func(c *checker, v *value) {
					c.object(v, may("inlineData", inlineData), may("fileData", geminiFile))
				})))
		}),
		may("executableCode", func(c *checker, v *value) {
			c.object(v, may("id", isString), need("language", nonEmpty), need("code", isString))
		}),
		may("codeExecutionResult", func(c *checker, v *value) {
			c.object(v, may("id", isString), need("outcome", nonEmpty), may("output", isString))
		}),
		may("toolCall", isObject), may("toolResponse", isObject),
		may("thought", isBool), may("thoughtSignature", isBase64), may("videoMetadata", isObject), may("partMetadata", isObject))
	if v.kind != '{' {
		return
	}
	kinds, role := 0, v.parent.parent.str("role")
	for _, m := range v.children {
		switch roles := geminiKinds[m.name]; {
		case roles == "":
		case role != "user" && role != "model":
			kinds++
		case roles != role && roles != "user model":
			c.complain(m, "does not belong into a content of this role")
			kinds++
		default:
			kinds++
		}
	}
	if kinds != 1 {
		c.complain(v, "holds %d kinds of data: a part is one of them", kinds)
	}
	if text := v.member("text"); text != nil && text.text == "" && v.member("thoughtSignature") == nil {
		c.complain(v, "is empty: empty parts are refused")
	}
	if t := v.member("thought"); t != nil && t.kind == 't' && role != "model" {
		c.complain(t, "does not belong into a content of this role")
	}
	if v.member("videoMetadata") != nil && v.member("inlineData") == nil && v.member("fileData") == nil {
		c.complain(v.member("videoMetadata"), "tells of a video, and there is none")
	}
}

var geminiName = toolName(64, "0123456789-")

func inlineData(c *checker, v *value) {
	c.object(v, need("mimeType", isMediaType), need("data", anything), may("displayName", isString))
	if data := v.member("data"); data != nil {
		isBase64(c, data)
		if media := v.str("mimeType"); len(media) > 6 && media[:6] == "image/" {
			c.image(data, data.text)
		}
	}
}

func geminiFile(c *checker, v *value) {
	c.object(v, need("fileUri", nonEmpty), need("mimeType", isMediaType), may("displayName", isString))
}

// geminiTool holds declarations, or is one that the provider runs.
func geminiTool(c *checker, v *value) {
	if isObject(c, v); v.kind == '{' && len(v.children) == 0 {
		c.complain(v, "is empty")
	}
	list := v.member("functionDeclarations")
	if list == nil {
		return
	}
	c.list(list, 1, func(c *checker, v *value) {
		c.object(v, need("name", geminiName), may("description", isString), may("parameters", geminiSchema), may("parametersJsonSchema", schema),
			may("response", isObject), may("responseJsonSchema", isObject), may("behavior", isString))
		if v.member("parameters") != nil && v.member("parametersJsonSchema") != nil {
			c.complain(v, "has both parameters and parametersJsonSchema: one of them is taken")
		}
		c.declare(v.member("name"))
	})
}

// geminiSchema may have its types in capitals.
func geminiSchema(c *checker, v *value) {
	if isObject(c, v); v.kind == '{' && v.str("type") != "OBJECT" && v.str("type") != "object" {
		c.complain(v, "must be a schema of type OBJECT")
	}
}
