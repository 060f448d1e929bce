// Package judge says why a provider would refuse what a replay hands out. It is
// written from what the providers document and knows nothing of how a replay is
// made. It is for tests.
//
// What is judged is the beginning of a request: the agent adds what is said next. So
// an empty list passes, and what a provider takes only at the end of a request does
// not.
//
// Not judged is what only the provider knows: whether a signature is genuine, what a file
// id names, how many pages a PDF has; nor what some servers of a format ask for beyond it,
// such as roles that take turns in Chat Completions. Parted judges, of what the provider
// made, whether all of it that it wants together is there.
//
// Requests of the Responses API are judged as with store false.
package judge

import "fmt"

// Limits that the providers have in common.
const (
	maxImage   = 5_000_000 // characters of the base64 of one
	maxImages  = 100       // of a request
	maxRequest = 32 << 20  // bytes
	maxContent = 1 << 20   // characters of one text, Chat Completions

	maxTools     = 128 // of a request, Chat Completions and Responses
	maxCalls     = 128 // of a message, Chat Completions
	maxFunctions = 512 // of a request, Gemini
	maxTitle     = 500 // characters of the title of a document, Anthropic
)

// Check returns why the provider would refuse the request, a sentence each that begins
// with a JSON path; none means accepted. messages is the JSON array, of items or of
// contents where the format has those; system and tools may be nil. The formats are
// openai, responses, anthropic and gemini.
func Check(format string, messages, system, tools []byte) []string {
	judges := map[string]func(c *checker, messages, system, tools *value){
		"openai": openAI, "responses": responses, "anthropic": anthropic, "gemini": gemini,
	}
	judge := judges[format]
	if judge == nil {
		return []string{"format is one of openai, responses, anthropic and gemini."}
	}
	c := &checker{declared: map[string]bool{}}
	if n := len(messages) + len(system) + len(tools); n > maxRequest {
		c.complaints = append(c.complaints, fmt.Sprintf("messages make a request of %d bytes: the limit is 32 MB.", n))
	}
	m, s, t := c.parse("messages", messages), c.parse("system", system), c.parse("tools", tools)
	if m == nil {
		return append(c.complaints, "messages is missing.")
	}
	if m.kind != '[' {
		c.complain(m, "must be a list")
	}
	if t != nil && t.kind != '[' {
		c.complain(t, "must be a list")
	}
	judge(c, m, s, t)
	c.checkDeclared(t != nil)
	if c.images > maxImages {
		c.complain(m, "holds %d images: at most %d are taken", c.images, maxImages)
	}
	return c.complaints
}

// A checker gathers complaints about one request.
type checker struct {
	complaints []string
	declared   map[string]bool // tools by name
	called     []*value        // names of tools in the history
	images     int
	documents  int
	wide       []*value // images that only few may stand beside
}

// complain adds a sentence about a value.
func (c *checker) complain(v *value, reason string, args ...any) {
	c.complaints = append(c.complaints, v.path()+" "+fmt.Sprintf(reason, args...)+".")
}

// call notes that the history calls a tool.
func (c *checker) call(name *value) {
	if name != nil && name.kind == '"' {
		c.called = append(c.called, name)
	}
}

// declare notes a tool of the request.
func (c *checker) declare(name *value) {
	if name == nil || name.kind != '"' {
		return
	}
	if c.declared[name.text] {
		c.complain(name, "is declared twice: tool names must be unique")
	}
	c.declared[name.text] = true
}

// checkDeclared holds the calls to the tools.
func (c *checker) checkDeclared(tools bool) {
	if !tools && len(c.called) > 0 {
		c.complain(c.called[0], "names a tool, and there are no tools: requests which include tool calls or results must define tools")
		return
	}
	told := map[string]bool{}
	for _, name := range c.called {
		if !c.declared[name.text] && !told[name.text] {
			told[name.text] = true
			c.complain(name, "is a tool that tools does not declare")
		}
	}
}

// list applies a check to each element.
func (c *checker) list(v *value, min int, each check) {
	if v.kind != '[' {
		c.complain(v, "must be a list")
		return
	}
	if len(v.children) < min {
		c.complain(v, "is empty: at least %d needed", min)
	}
	for _, e := range v.children {
		each(c, e)
	}
}

// A check looks at one value.
type check func(c *checker, v *value)

// atMostTools refuses a list of too many tools.
func atMostTools(c *checker, tools *value, most int) {
	if n := len(tools.children); n > most {
		c.complain(tools, "has %d tools: array too long, expected an array with maximum length %d", n, most)
	}
}

// A field is a member that an object may have.
type field struct {
	name   string
	needed bool
	check  check
}

func need(name string, each check) field { return field{name, true, each} }
func may(name string, each check) field  { return field{name, false, each} }

// object holds an object to the members that it may and must have.
func (c *checker) object(v *value, fields ...field) {
	if v.kind != '{' {
		c.complain(v, "must be an object")
		return
	}
	for _, m := range v.children {
		known := false
		for i := range fields {
			if fields[i].name == m.name {
				known = true
				fields[i].check(c, m)
				break
			}
		}
		if !known {
			c.complain(m, "is no member that a request may hold here")
		}
	}
	for i := range fields {
		if fields[i].needed && v.member(fields[i].name) == nil {
			c.complain(v, "lacks %s: field required", fields[i].name)
		}
	}
}

// typed passes an object to the check of its type.
func (c *checker) typed(v *value, where string, kinds map[string]check) {
	if v.kind != '{' {
		c.complain(v, "must be an object")
		return
	}
	kind := v.member("type")
	switch {
	case kind == nil:
		c.complain(v, "lacks type: field required")
	case kind.kind != '"':
		c.complain(kind, "must be a string")
	case kinds[kind.text] == nil:
		c.complain(kind, "is no type that %s may hold", where)
	default:
		kinds[kind.text](c, v)
	}
}

// Checks of single values.

func anything(*checker, *value) {}

func isString(c *checker, v *value) {
	if v.kind != '"' {
		c.complain(v, "must be a string")
	}
}

func nonEmpty(c *checker, v *value) {
	if isString(c, v); v.kind == '"' && v.text == "" {
		c.complain(v, "must not be empty")
	}
}

func isBool(c *checker, v *value) {
	if v.kind != 't' && v.kind != 'f' {
		c.complain(v, "must be true or false")
	}
}

func isObject(c *checker, v *value) {
	if v.kind != '{' {
		c.complain(v, "must be an object")
	}
}

func isList(c *checker, v *value) {
	if v.kind != '[' {
		c.complain(v, "must be a list")
	}
}

func orNull(each check) check {
	return func(c *checker, v *value) {
		if v.kind != 'n' {
			each(c, v)
		}
	}
}

func oneOf(choices ...string) check {
	return func(c *checker, v *value) {
		for _, choice := range choices {
			if v.kind == '"' && v.text == choice {
				return
			}
		}
		c.complain(v, "must be one of %q", choices)
	}
}

func listOf(min int, each check) check {
	return func(c *checker, v *value) { c.list(v, min, each) }
}

// atMost is a string of some characters that is not empty.
func atMost(max int) check {
	return func(c *checker, v *value) {
		nonEmpty(c, v)
		if v.kind == '"' {
			upTo(max)(c, v)
		}
	}
}
