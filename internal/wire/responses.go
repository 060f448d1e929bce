package wire

import (
	"encoding/json/jsontext"
	"slices"

	"historyd/internal/history"
	"historyd/internal/strictjson"
)

// How an item of Responses lies in the model; each is one message:
//
//	message                  its role (developer: system, extra {"role":"developer"}), a block for each part,
//	                         extra {"id","status",…}, {"type":"none"} when it has no type; phase in the first block's extra
//	function_call            tool_call,   extra {"id","status","namespace",…}
//	custom_tool_call         tool_call,   extra {"type":"custom",…}
//	shell_call and the like  tool_call,   extra {"type":TYPE,…}, name = TYPE without _call, arguments = what is to be done
//	…_output                 tool_result, extra {…}, {"type":"custom",…}, {"type":TYPE,…}
//	reasoning                thinking,    extra {"id",…}, and {"summary","content"} when there is more than one summary text
//	image_generation_call    image,       extra {"type":TYPE,…}
//	any other                opaque,      data = the item, extra {"item":true}
//	part with a text         text,        extra {"type":TYPE,…}; none when the content is a string
//	parts with bytes, URLs   image, document, audio, extra {"type":TYPE,…}
//	other parts              opaque,      data = the part
//
// Marks stand under names that the item or part itself uses otherwise, so that no
// unknown member has the same. Given back are the same JSON values.

// typeless is the mark of a message without a type. It is no value that anybody sends: a
// null would be found in the messages of other formats, too.
const typeless = "none"

// isTypeless reports whether the extra of a message has the mark, or the one before it.
func isTypeless(extra jsontext.Value) bool {
	return textOf(extra, "type") == typeless || kindOf(extra, "type") == 'n'
}

// responsesCodec speaks the items of Responses and of Conversations.
type responsesCodec struct{}

func (responsesCodec) lists() []string { return []string{"input", "items"} }

func (responsesCodec) provider() string { return openAIProvider }

// alone makes a message of the text that a request may have in place of its items.
func (responsesCodec) alone(text strictjson.Value) strictjson.Value {
	item := append([]byte(`{"type":"message","role":"user","content":`), text.Raw...)
	return strictjson.Value{Raw: append(item, '}'), Offset: text.Offset}
}

// noConversation refuses a page of a list: Conversations lists the newest item first,
// and nothing on the page says how it was asked for.
func (responsesCodec) noConversation(name string, v strictjson.Value) string {
	if s, _ := v.Text(); name == "object" && s == "list" {
		return "this is a page of a list, and nothing says in which order: give all items, the oldest first, as an array"
	}
	return ""
}

func (responsesCodec) decode(d *decoder, v strictjson.Value, path string) []history.Message {
	return []history.Message{d.responsesItem(v, path)}
}

func (responsesCodec) exporter() exporter { return responsesExporter{} }

// A doing is a kind of call for which the client has no name: what the tool is to do
// stands in a member of the item.
type doing struct {
	item    string   // the type of the call; that of its answer ends in _output
	name    string   // that the tool has in the model
	payload string   // the member with what is to be done
	tools   []string // the types by which a request declares the tool
}

var doings = []doing{
	{"shell_call", "shell", "action", []string{"shell"}},
	{"local_shell_call", "local_shell", "action", []string{"local_shell"}},
	{"apply_patch_call", "apply_patch", "operation", []string{"apply_patch"}},
	{"computer_call", "computer", "action", []string{"computer", "computer_use_preview"}},
}

const answer = "_output"

// doingOf finds what a type of call, or of answer, is about.
func doingOf(item string) *doing {
	for i := range doings {
		if d := &doings[i]; item == d.item || item == d.item+answer {
			return d
		}
	}
	return nil
}

// hostedItems are what the provider does itself, and what steers it. Nothing of them
// is a call of a tool that the client runs.
var hostedItems = []string{
	"compaction", "item_reference", "file_search_call", "web_search_call", "code_interpreter_call",
	"mcp_list_tools", "mcp_approval_request", "mcp_approval_response", "mcp_call",
	"tool_search_call", "tool_search_output", "additional_tools", "configuration_update", "compaction_trigger",
	"program", "program_output",
}

// toolNames takes any declaration: a function and a custom tool have a name, a
// namespace has those of its functions, and a tool that the provider knows has the one
// under which its calls are recorded, or none when the client does not run it.
func (responsesCodec) toolNames(tool strictjson.Value) ([]string, bool) {
	kind := textOf(tool.Raw, "type")
	if kind == "" {
		return nil, false
	}
	if kind == "namespace" {
		var names []string
		inner := memberNamed(tool.Raw, "tools")
		if inner.Kind() != '[' {
			return nil, false
		}
		for _, e := range inner.Elements() {
			if name, ok := memberNamed(e.Raw, "name").Text(); ok {
				names = append(names, name)
			}
		}
		return names, true
	}
	name, ok := memberNamed(tool.Raw, "name").Text()
	switch {
	case ok:
		return []string{name}, true
	case kind == "function" || kind == "custom":
		return nil, false
	}
	for i := range doings {
		if slices.Contains(doings[i].tools, kind) {
			return []string{doings[i].name}, true
		}
	}
	return nil, true
}
