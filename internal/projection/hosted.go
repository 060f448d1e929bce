package projection

import (
	"cmp"
	"slices"
	"strings"
	"unicode"

	"historyd/internal/history"
	"historyd/internal/strictjson"
)

// Tools that a provider runs itself, or has servers run, leave their calls and results
// in opaque blocks, in images that they made, and in members that nobody knows. Those
// cannot be edited: what tells something of a tool of which anything is withheld goes
// whole, and so does what answers it. The tools of servers (MCP) are the client's
// choice, and as unknown as its own; a provider's own are kept unless something is said
// of them.

// hosted is a call or a result of such a tool.
type hosted struct {
	tools   []string // names: the one given, and the one in the type
	id      string   // of a call
	answers string   // of a result: the id of its call
	server  bool     // somebody other than the provider ran it
	bare    bool     // it is one, and does not say of which tool
	perhaps []string // names in a shape that nobody knows: they count if the rules know them as a tool's

	said, told []strictjson.Value // arguments, and what came of them
}

// hostedIn returns what there is of it anywhere in a provider's JSON.
func hostedIn(v strictjson.Value) []hosted { return hostedUnder("", v) }

// hostedUnder does the same for the value of a member.
func hostedUnder(member string, v strictjson.Value) []hosted {
	var list []hosted
	switch v.Kind() {
	case '[':
		for _, e := range v.Elements() {
			list = append(list, hostedUnder(member, e)...)
		}
	case '{':
		h, ok, nests := hostedOf(member, v)
		if ok {
			list = append(list, h)
		}
		if !nests {
			return list
		}
		for name, m := range v.Members() {
			if nested(m) {
				list = append(list, hostedUnder(spelt(name), m)...)
			}
		}
	}
	return list
}

func nested(v strictjson.Value) bool { return v.Kind() == '[' || v.Kind() == '{' }

// spelt makes the spellings of a member alike.
func spelt(name string) string {
	return strings.Map(func(r rune) rune {
		if r == '_' || r == '-' {
			return -1
		}
		return unicode.ToLower(r)
	}, name)
}

// Members of which the type alone does not tell what they are.
const (
	executedTools = "executedtools" // a vendor of Chat Completions: elements whose type is the name of a tool
	toolCall      = "toolcall"      // Gemini: a call of a tool that need not be named
	toolResponse  = "toolresponse"  // its id is that of the call
)

// A hostedObject is what one object of a provider's says.
type hostedObject struct {
	hosted
	name, typ, kind           string
	action, other             []strictjson.Value
	gathers                   bool // whether other is made: there may be very many, and few objects need them
	any, nests                bool // whether there are others, and objects or lists
	arguments, code, declares bool
}

func (o *hostedObject) take(member string, m strictjson.Value) {
	o.nests = o.nests || nested(m)
	switch member {
	case "type":
		o.typ, _ = m.Text()
	case "name", "tool", "toolname", "function", "functionname":
		name, ok := m.Text()
		if ok {
			o.perhaps = append(o.perhaps, name)
		}
		if member == "name" {
			o.name = name
		}
	case "id":
		o.id, _ = m.Text()
	case "tooluseid", "callid", "approvalrequestid":
		o.answers, _ = m.Text()
	case "input", "arguments", "args":
		o.arguments = true
		o.said = append(o.said, m)
	case "tooltype":
		o.kind, _ = m.Text()
	case "executablecode":
		o.code = true
		o.said = append(o.said, m)
	case "codeexecutionresult":
		o.code = true
		o.told = append(o.told, m)
	case "action":
		o.action = append(o.action, m)
	case "code", "queries", "revisedprompt":
		o.said = append(o.said, m)
	case "output", "outputs", "content", "result", "results", "response", "error", "reason", "searchresults", "coderesults":
		o.told = append(o.told, m)
	case "description":
	case "inputschema", "parametersjsonschema":
		o.declares = true
	case "parameters":
		o.declares = o.declares || isSchema(m)
		o.rest(m)
	default:
		o.rest(m)
	}
}

func (o *hostedObject) rest(m strictjson.Value) {
	o.any = true
	if o.gathers {
		o.other = append(o.other, m)
	}
}

// hostedOf reads one object, which is the value of that member, or in a list that is. nests
// tells that there are objects or lists in it.
func hostedOf(under string, v strictjson.Value) (h hosted, ok, nests bool) {
	var o hostedObject
	for name, m := range v.Members() {
		o.take(spelt(name), m)
	}
	tool, client := toolOfType(o.typ)
	if tool == "" && under == executedTools {
		tool = o.typ
	}
	if tool != "image_generation" { // which has one of three words there
		o.said = append(o.said, o.action...)
	}
	o.server = client || strings.HasPrefix(strings.ToLower(o.typ), "mcp")
	switch {
	case o.name != "" && o.arguments:
		o.tools, o.answers = append(o.tools, o.name), ""
	case strings.HasSuffix(under, toolResponse) && o.answers == "":
		o.answers, o.id = o.id, ""
	}
	for _, also := range []string{tool, o.kind} {
		if also != "" {
			o.tools = append(o.tools, also)
		}
	}
	if o.code {
		o.tools = append(o.tools, codeExecution)
	}
	within := strings.HasSuffix(under, toolCall) || strings.HasSuffix(under, toolResponse)
	o.bare = within && len(o.tools) == 0 && len(o.said)+len(o.told) > 0
	// A type that is none of a call or a result tells that a name is none of a tool.
	if o.declares || o.typ != "" && tool == "" || len(o.said)+len(o.told) == 0 && !o.any {
		o.perhaps = nil
	}
	if len(o.perhaps) > 0 && o.any {
		again := hostedObject{gathers: true}
		for name, m := range v.Members() {
			again.take(spelt(name), m)
		}
		o.said = append(o.said, again.other...)
	}
	return o.hosted, len(o.tools)+len(o.perhaps) > 0 || o.answers != "" || o.server && o.arguments || o.bare, o.nests
}

// isSchema reports whether parameters are those of a declaration, not of a call.
func isSchema(v strictjson.Value) bool {
	if v.Kind() != '{' {
		return false
	}
	properties, _ := v.Member("properties")
	typ, _ := v.Member("type")
	return properties.Kind() == '{' || typ.Kind() == '"'
}

// codeExecution is how code that Gemini runs is named.
const codeExecution = "code_execution"

// toolOfType returns the tool that a type names, such as web_search_call and
// web_search_tool_result, empty when it names none; client tells of those that the
// client runs, though the provider knows them.
func toolOfType(typ string) (tool string, client bool) {
	typ = strings.ToLower(typ)
	if typ == "program" {
		return typ, false
	}
	for _, end := range []string{"_tool_use", "_tool_result", "_call_output", "_call", "_output"} {
		tool, ok := strings.CutSuffix(typ, end)
		if !ok {
			continue
		}
		switch tool {
		case "server", "mcp":
			return "", false
		case "shell", "local_shell", "apply_patch", "computer":
			return tool, strings.HasPrefix(end, "_call")
		}
		return tool, false
	}
	return "", false
}

// carried returns what a block holds beside what is modelled, and whether the block is
// nothing but that. Calls and results of the client's tools are judged as such.
func carried(b *history.Block) (list []hosted, whole bool) {
	switch b.Type {
	case history.ToolCall, history.ToolResult:
		return nil, false
	case history.OpaqueBlock:
		return hostedIn(strictjson.Value{Raw: b.Opaque}), true
	}
	if b.Extra == nil {
		return nil, false
	}
	extra := strictjson.Value{Raw: b.Extra}
	if b.Media() && extra.Kind() == '{' {
		_, whole, _ = hostedOf("", extra)
	}
	return hostedIn(extra), whole
}

// beside is the place of what a message holds beside its blocks.
const beside = -1

// judgeHosted decides on what others ran.
func (k *keeping) judgeHosted(msgs []history.Message) {
	var called map[string]*group // everything called with an id
	var found map[place][]hosted
	note := func(at place, list []hosted) {
		if len(list) == 0 {
			return
		}
		if found == nil {
			called, found = map[string]*group{}, map[place][]hosted{}
		}
		found[at] = list
		for _, h := range list {
			if h.id != "" && h.answers == "" {
				g := called[h.id]
				if g == nil {
					g = &group{}
					called[h.id] = g
				}
				g.tools, g.server = append(g.tools, h.tools...), g.server || h.server
			}
		}
	}
	for i := range msgs {
		if extra := msgs[i].Extra; extra != nil {
			note(place{i, beside}, hostedIn(strictjson.Value{Raw: extra}))
		}
		for j := range msgs[i].Content {
			list, _ := carried(&msgs[i].Content[j])
			note(place{i, j}, list)
		}
	}
	if found == nil {
		return
	}
	for i := range msgs {
		drawn := verdict{} // of code whose pictures follow it
		for j := beside; j < len(msgs[i].Content); j++ {
			at := place{i, j}
			for _, h := range found[at] {
				v := k.judgeOne(k.next+int64(i), &h, called)
				if v.withheld() && !k.verdicts[at].withheld() {
					k.goes(at, v, found[at])
				}
				if v.withheld() && slices.Contains(h.tools, codeExecution) {
					drawn = v
				}
			}
			if drawn.withheld() && j >= 0 && msgs[i].Content[j].Media() && !k.verdicts[at].withheld() {
				k.goes(at, drawn, nil)
				k.pictures[at] = true
			}
		}
	}
}

// goes notes that what stands there goes, and its arguments.
func (k *keeping) goes(at place, v verdict, list []hosted) {
	if k.withheld == nil {
		k.withheld, k.pictures = map[place][]hosted{}, map[place]bool{}
	}
	k.verdicts[at], k.withheld[at] = v, list
	for _, h := range list {
		if len(h.said) > 0 {
			k.secrets = append(k.secrets, secret{members: h.said, category: v.category})
		}
	}
}

// judgeOne decides by the names of a call or result, and by the call that a result answers.
func (k *keeping) judgeOne(message int64, h *hosted, called map[string]*group) verdict {
	var g *group // of the calls that a result may answer
	server, lost := h.server, false
	switch {
	case h.answers != "":
		if g = k.hosted.answer(h.answers); g == nil {
			g, lost = called[h.answers], true
		}
		if g != nil {
			server = server || g.server
		}
	case h.id != "" && len(h.tools) > 0:
		own := k.hosted.call(message, h.id, h.tools[0])
		own.tools = append(own.tools, h.tools[1:]...)
		own.server = own.server || server
	}
	return k.judgeTraffic(h, g, server, lost)
}

// judgeTraffic decides by the names of tools, and by those of the calls that g has, which
// may be nil. lost tells that the call was not found. Without any name it is an unknown
// tool's, if it is a server's, or bare.
func (k *keeping) judgeTraffic(h *hosted, g *group, server, lost bool) verdict {
	var named leaning
	k.lean(&named, h.tools)
	v, nameless := named.verdict(server), len(h.tools) == 0
	if g != nil {
		if k.leanings == nil {
			k.leanings = map[*group]*leaning{}
		}
		of := k.leanings[g]
		if of == nil {
			of = &leaning{}
			k.leanings[g] = of
		}
		k.lean(of, g.tools)
		v, nameless = cmp.Or(v, of.verdict(server)), nameless && len(g.tools) == 0
	}
	for _, tool := range h.perhaps {
		for _, of := range []part{arguments, results} {
			if v := k.judge(of, tool, &k.now, &table{}); v.reason == reasonCategory {
				return v
			}
		}
	}
	switch {
	case v.withheld():
		return v
	case (server || h.bare) && lost && !k.whole:
		return verdict{Unknown, reasonCallNotFound}
	case (server || h.bare) && nameless:
		return k.unknown()
	}
	return verdict{}
}

// A leaning is what the names of tools decide. Many results may be of one group of many
// calls, so it goes on where it stopped.
type leaning struct {
	judged           int
	server, provider verdict // by who runs the tools; of a provider's own a category must be known
}

func (l *leaning) verdict(server bool) verdict {
	if server {
		return l.server
	}
	return l.provider
}

// lean goes on with the tools that l has not seen.
func (k *keeping) lean(l *leaning, tools []string) {
	for ; l.judged < len(tools); l.judged++ {
		for _, of := range []part{arguments, results} {
			v := k.judge(of, tools[l.judged], &k.now, &table{})
			l.server = cmp.Or(l.server, v)
			if v.reason == reasonCategory {
				l.provider = cmp.Or(l.provider, v)
			}
		}
	}
}

// judgeInner decides on a block inside of a result, by its names alone; whole tells that
// there is no more to it.
func (k *keeping) judgeInner(b *history.Block) (v verdict, whole bool) {
	list, whole := carried(b)
	for i := range list {
		if v := k.judgeTraffic(&list[i], nil, list[i].server, list[i].answers != ""); v.withheld() {
			return v, whole
		}
	}
	return verdict{}, false
}
