package projection

import (
	"cmp"
	"strings"

	"historyd/internal/history"
	"historyd/internal/strictjson"
)

// Tools that a provider runs itself, or has servers run, leave their calls and results
// in opaque blocks. Those cannot be edited: a block that tells something of a tool of
// which anything is withheld goes whole, and so does the block that answers it. The
// tools of servers (MCP) are the client's choice, and as unknown as its own; a
// provider's own are kept unless something is said of them.

// hosted is a call or a result of such a tool.
type hosted struct {
	tools   []string // names: the one given, and the one in the type
	id      string   // of a call
	answers string   // of a result: the id of its call
	server  bool     // a server ran it

	said, told []strictjson.Value // arguments, and what came of them
}

// hostedIn returns what there is of it anywhere in a provider's JSON.
func hostedIn(v strictjson.Value) []hosted {
	var list []hosted
	switch v.Kind() {
	case '[':
		for _, e := range v.Elements() {
			list = append(list, hostedIn(e)...)
		}
	case '{':
		if h, ok := hostedOf(v); ok {
			list = append(list, h)
		}
		for _, m := range v.Members() {
			list = append(list, hostedIn(m)...)
		}
	}
	return list
}

// hostedOf reads one object.
func hostedOf(v strictjson.Value) (h hosted, ok bool) {
	var name, typ, answers, kind string
	arguments, code := false, false
	for member, m := range v.Members() {
		switch spelt := strings.NewReplacer("_", "", "-", "").Replace(strings.ToLower(member)); spelt {
		case "type":
			typ, _ = m.Text()
		case "name":
			name, _ = m.Text()
		case "id":
			h.id, _ = m.Text()
		case "tooluseid", "callid", "approvalrequestid":
			answers, _ = m.Text()
		case "input", "arguments", "args":
			arguments = true
			h.said = append(h.said, m)
		case "tooltype":
			kind, _ = m.Text()
		case "executablecode":
			code = true
			h.said = append(h.said, m)
		case "codeexecutionresult":
			code = true
			h.told = append(h.told, m)
		case "action", "code", "queries":
			h.said = append(h.said, m)
		case "output", "outputs", "content", "result", "results", "response", "error", "reason":
			h.told = append(h.told, m)
		}
	}
	h.server = strings.HasPrefix(strings.ToLower(typ), "mcp")
	called := name != "" && arguments
	if called {
		h.tools = append(h.tools, name)
	} else {
		h.answers = answers
	}
	own := toolOfType(typ)
	if own != "" {
		h.tools = append(h.tools, own)
	}
	if kind != "" {
		h.tools = append(h.tools, kind)
	}
	if code {
		h.tools = append(h.tools, "code_execution")
	}
	return h, called || own != "" || kind != "" || code || h.answers != "" || h.server && arguments
}

// toolOfType returns the tool that a type names, such as web_search_call and
// web_search_tool_result; empty when it names none.
func toolOfType(typ string) string {
	for _, end := range []string{"_tool_use", "_tool_result", "_call_output", "_call"} {
		if tool, ok := strings.CutSuffix(strings.ToLower(typ), end); ok {
			if tool == "server" || tool == "mcp" {
				return ""
			}
			return tool
		}
	}
	return ""
}

// judgeHosted decides on the opaque blocks.
func (k *keeping) judgeHosted(msgs []history.Message) {
	var called map[string]*group // everything called with an id
	var found map[place][]hosted
	for i := range msgs {
		for j := range msgs[i].Content {
			b := &msgs[i].Content[j]
			if b.Type != history.OpaqueBlock {
				continue
			}
			if found == nil {
				called, found = map[string]*group{}, map[place][]hosted{}
			}
			list := hostedIn(strictjson.Value{Raw: b.Opaque})
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
			if len(list) > 0 {
				found[place{i, j}] = list
			}
		}
	}
	for i := range msgs {
		for j := range msgs[i].Content {
			at := place{i, j}
			for _, h := range found[at] {
				if v := k.judgeOne(k.next+int64(i), &h, called); v.withheld() && !k.verdicts[at].withheld() {
					k.goes(at, v, found[at])
				}
			}
		}
	}
}

// goes notes that a block goes, and the values of its arguments.
func (k *keeping) goes(at place, v verdict, list []hosted) {
	if k.withheld == nil {
		k.withheld = map[place][]hosted{}
	}
	k.verdicts[at], k.withheld[at] = v, list
	for _, h := range list {
		k.values.members(h.said, v.category)
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
	return k.judgeTraffic(h.tools, g, server, lost)
}

// judgeTraffic decides by the names of tools, and by those of the calls that g has, which
// may be nil. lost tells that the call was not found.
func (k *keeping) judgeTraffic(tools []string, g *group, server, lost bool) verdict {
	var named leaning
	k.lean(&named, tools)
	v, nameless := named.verdict(server), len(tools) == 0
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
	switch {
	case v.withheld():
		return v
	case server && lost && !k.whole:
		return verdict{Unknown, reasonCallNotFound}
	case server && nameless:
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

// judgeInner decides on an opaque block inside of a result, by its names alone.
func (k *keeping) judgeInner(b *history.Block) verdict {
	if b.Type != history.OpaqueBlock {
		return verdict{}
	}
	for _, h := range hostedIn(strictjson.Value{Raw: b.Opaque}) {
		if v := k.judgeTraffic(h.tools, nil, h.server, h.answers != ""); v.withheld() {
			return v
		}
	}
	return verdict{}
}
