package history

import (
	"encoding/json/jsontext"
	"strings"

	"historyd/internal/strictjson"
)

// Other formats carry tool calls and results in members and in blocks that historyd
// does not know. Kept as something unknown they would pass by every rule about tools.

// carriers are the members that do, in the spelling of squash.
var carriers = map[string]bool{
	"toolcall": true, "toolcalls": true, "toolcallid": true,
	"tooluse": true, "tooluses": true, "toolresult": true, "toolresults": true,
	"toolinvocation": true, "toolinvocations": true,
	"functioncall": true, "functioncalls": true, "functionresponse": true, "functionresponses": true,
	"parts": true,
}

// clientTools are the types of blocks, in the spelling of squash, that stand for
// calls and results of the client's tools. What a provider runs itself has others,
// such as server_tool_use and web_search_tool_result.
var clientTools = map[string]bool{
	"tooluse": true, "toolcall": true, "toolresult": true, "toolinvocation": true, "dynamictool": true,
	"function": true, "functioncall": true, "functioncalloutput": true, "functionresponse": true,
	"customtoolcall": true, "customtoolcalloutput": true,
}

// squash makes names alike that differ in case and in how their words are joined.
func squash(name string) string {
	return strings.NewReplacer("_", "", "-", "").Replace(strings.ToLower(strings.ToUpper(name)))
}

// saysNothing reports whether a member holds nothing. SDKs write such members.
func saysNothing(v strictjson.Value) bool {
	switch string(v.Compact()) {
	case "null", "[]", "{}", `""`:
		return true
	}
	return false
}

// CarriesTools reports whether unknown members, an object or nil, carry tool calls or
// results in the way of another format.
func CarriesTools(extra jsontext.Value) bool { return carriesTools(extra, "") }

// carriesTools passes over one member that may be there.
func carriesTools(extra jsontext.Value, but string) bool {
	if extra.Kind() != '{' {
		return false
	}
	for name, m := range (strictjson.Value{Raw: extra}).Members() {
		if name == but || saysNothing(m) {
			continue
		}
		if n := squash(name); carriers[n] || n == "additionalkwargs" && CarriesTools(m.Raw) {
			return true
		}
	}
	return false
}

// ClientTool reports whether what a provider's block holds is a call or a result of a
// tool of the client, which has a block of its own.
func ClientTool(v strictjson.Value) bool {
	switch v.Kind() {
	case '[':
		for _, e := range v.Elements() {
			if ClientTool(e) {
				return true
			}
		}
	case '{':
		for name, m := range v.Members() {
			switch n := squash(name); {
			case n == "type":
				if t, _ := m.Text(); clientTools[squash(t)] {
					return true
				}
			case n == "content" || n == "parts":
				if k := m.Kind(); (k == '[' || k == '{') && ClientTool(m) {
					return true
				}
			case carriers[n] && n != "toolcallid" && !saysNothing(m):
				return true
			}
		}
	}
	return false
}

const foreignMessage = "this is a message of another format: name it with the parameter format, or write tool calls as blocks of content"

// refuseForeign refuses a message of another format, which unknown members give away, or
// a type where no role is. That is told before what else is wrong with the message, of
// which there were so many faults before: the rest follows from it.
func (p *parser) refuseForeign(m *Message, v strictjson.Value, path string, before int) {
	if p.door == storedDoor {
		return
	}
	item := false
	if _, there := v.Member("role"); !there {
		typ, _ := memberOf(m.Extra, "type")
		name, _ := typ.Text()
		item = clientTools[squash(name)] || TypeFormat(name) != ""
	}
	if item || CarriesTools(m.Extra) {
		p.faults.Lead(before, path, CodeInvalidMessage, v.Offset, foreignMessage)
	}
}

// foreignRoles are the formats that have roles which are none of ours.
var foreignRoles = map[string]string{"developer": "openai or responses", "function": "openai", "model": "gemini"}

func (p *parser) role(v strictjson.Value, path string) Role {
	s, _ := v.Text()
	if format := foreignRoles[s]; format != "" {
		p.fault(v, path, "must be one of user, assistant, tool, system; %s is of another format: name it with the parameter format (%s)", s, format)
		return ""
	}
	return Role(p.oneOf(v, path, "user", "assistant", "tool", "system"))
}

// foreignTypes are types of blocks and of items that are none of ours: whose they are,
// and which block of ours is the same.
var foreignTypes = map[string]struct{ format, ours string }{
	"tool_use": {"anthropic", "a tool_call"}, "server_tool_use": {"anthropic", "an opaque"}, "redacted_thinking": {"anthropic", "a thinking"},
	"image_url": {"openai", "an image"}, "input_audio": {"openai", "an audio"}, "file": {"openai", "a document"},
	"input_text": {"responses", "a text"}, "output_text": {"responses", "a text"},
	"input_image": {"responses", "an image"}, "input_file": {"responses", "a document"}, "reasoning": {"responses", "a thinking"},
	"function_call": {"responses", "a tool_call"}, "function_call_output": {"responses", "a tool_result"},
	"custom_tool_call": {"responses", "a tool_call"}, "custom_tool_call_output": {"responses", "a tool_result"},
}

// TypeFormat names the format of which a type of block is that is none of ours, "" if
// that is not known.
func TypeFormat(name string) string { return foreignTypes[name].format }

// foreignBlock says what to do with a block of another format.
func foreignBlock(name string) string {
	if is := foreignTypes[name]; is.format != "" {
		return "; " + name + " is of another format: name it with the parameter format (" + is.format + "), or write " + is.ours + " block"
	}
	return ""
}

// foreignMember says whose block it is that has something else in place of a member of ours.
func foreignMember(missing string, extra jsontext.Value) string {
	theirs := map[string]string{"call_id": "tool_use_id", "url": "source", "text": "thinking"}[missing]
	if _, there := memberOf(extra, theirs); !there {
		return ""
	}
	return "; " + theirs + " is of another format: name it with the parameter format (anthropic)"
}

// refuseForeignBlock refuses a block in which another format's calls or results are.
func (p *parser) refuseForeignBlock(b *Block, v strictjson.Value, path string) {
	if p.door == storedDoor {
		return
	}
	const rewrite = "calls and results of tools do not go into other blocks: write it as a tool_call or tool_result block"
	marked := ""
	if b.Type == ToolCall {
		// A call that was a function_call of Chat Completions is marked so, and the mark
		// holds what else stood there.
		if mark, there := memberOf(b.Extra, "function_call"); there && mark.Kind() == '{' && !holdsCall(mark) {
			marked = "function_call"
		}
	}
	if carriesTools(b.Extra, marked) {
		p.fault(v, path, rewrite)
	}
	if b.Type == OpaqueBlock && b.Opaque != nil && ClientTool(strictjson.Value{Raw: b.Opaque}) {
		p.fault(v, path+".data", "this is tool traffic of the client: write it as a tool_call or tool_result block")
	}
}

func memberOf(extra jsontext.Value, name string) (strictjson.Value, bool) {
	if extra.Kind() != '{' {
		return strictjson.Value{}, false
	}
	return strictjson.Value{Raw: extra}.Member(name)
}

// holdsCall reports whether a mark is a call itself.
func holdsCall(mark strictjson.Value) bool {
	for name := range mark.Members() {
		if n := squash(name); n == "name" || n == "arguments" {
			return true
		}
	}
	return CarriesTools(mark.Raw)
}
