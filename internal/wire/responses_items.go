package wire

import (
	"encoding/json/jsontext"
	"slices"
	"strings"

	"historyd/internal/history"
	"historyd/internal/strictjson"
)

// declares reports whether the request has a tool of that type, or a function in that namespace.
func (r *responsesRender) declares(tool string) bool {
	if r.tools == nil {
		r.tools = map[string]bool{}
		if r.show.Tools.Kind() == '[' {
			for _, e := range (strictjson.Value{Raw: r.show.Tools}).Elements() {
				kind := textOf(e.Raw, "type")
				r.tools[kind] = true
				inner := memberNamed(e.Raw, "tools")
				if kind != "namespace" || inner.Kind() != '[' {
					continue
				}
				for _, f := range inner.Elements() {
					r.tools["namespace/"+textOf(e.Raw, "name")+"/"+textOf(f.Raw, "name")] = true
				}
			}
		}
	}
	return r.tools[tool]
}

// call writes a call. One of a tool that the provider knows has its own type where the
// request declares that tool and both halves are whole, and is else one of a function.
func (r *responsesRender) call(m *history.Message, i int, results []history.Message) {
	b := &m.Content[i]
	r.lead(m)
	kind := textOf(b.Extra, "type")
	if do := doingOf(kind); do != nil && kind == do.item && m.Provider == r.target.provider && r.doing(m, i, do, r.answerOf(m, i, results)) {
		return
	}
	given := r.calls.call(b.ID, m, i)
	form, payload := "function_call", "arguments"
	if kind == "custom" {
		form, payload = "custom_tool_call", "input"
	}
	r.item(form)
	r.text("call_id", given)
	name := r.names.name(b.Name)
	r.text("name", name)
	if space := textOf(b.Extra, "namespace"); space != "" && r.declares("namespace/"+space+"/"+name) {
		r.text("namespace", space)
	}
	r.text(payload, clean(b.ArgumentString(), &r.report))
	r.close()
	r.open[b.ID] = append(r.open[b.ID], openCall{given, form})
}

// answerOf finds the result of a call among those that follow its message; nil when
// there is none. Calls of one id are answered in order.
func (r *responsesRender) answerOf(m *history.Message, call int, results []history.Message) *history.Block {
	if r.results != nil {
		return r.results[call]
	}
	r.results = map[int]*history.Block{}
	calls := map[string][]int{}
	for i := range m.Content {
		if b := &m.Content[i]; b.Type == history.ToolCall {
			calls[b.ID] = append(calls[b.ID], i)
		}
	}
	for i := range results {
		for j := range results[i].Content {
			b := &results[i].Content[j]
			if waiting := calls[b.CallID]; b.Type == history.ToolResult && len(waiting) > 0 {
				r.results[waiting[0]], calls[b.CallID] = b, waiting[1:]
			}
		}
	}
	return r.results[call]
}

// answers writes the results of a tool message.
func (r *responsesRender) answers(m *history.Message) {
	r.forget()
	r.parting.thinks = false
	for i := range m.Content {
		b := &m.Content[i]
		if b.Type != history.ToolResult {
			r.report.WithheldOpaque++
			continue
		}
		waiting := r.open[b.CallID]
		if len(waiting) == 0 {
			continue // only of messages that were not repaired
		}
		r.open[b.CallID] = waiting[1:]
		r.answer(m, b, waiting[0])
	}
}

func (r *responsesRender) answer(m *history.Message, b *history.Block, c openCall) {
	r.item(c.form + answer)
	if c.form == "local_shell_call" {
		r.text("id", c.given)
	} else {
		r.text("call_id", c.given)
	}
	switch c.form {
	case "shell_call":
		r.name("output")
		r.ran(b)
	case "apply_patch_call":
		status := "completed"
		if b.IsError {
			status = "failed"
		}
		r.text("status", status)
		if text, _ := plainText(b.Content); text != "" {
			r.text("output", clean(text, &r.report))
		}
	case "local_shell_call":
		text, _ := plainText(b.Content)
		r.text("output", clean(text, &r.report))
	case "computer_call":
		r.screen(b)
	default:
		r.name("output")
		pieces, nothing := []responsesPiece(nil), true
		if !blankText(b.Content) { // which is shown as it is
			pieces, nothing = r.pieces(m, b.Content)
		}
		switch {
		case len(pieces) > 0:
		case nothing:
			pieces = []responsesPiece{{}}
		default:
			pieces = []responsesPiece{{text: notShown}}
		}
		r.content(pieces, false)
	}
	r.close()
}

// doing writes what a tool that the provider knows is to do, in its own type; false when
// it cannot be.
func (r *responsesRender) doing(m *history.Message, i int, do *doing, result *history.Block) bool {
	b := &m.Content[i]
	if b.Redacted != nil || b.ArgumentsText != nil || result == nil || result.Redacted != nil || result.Synthetic ||
		!slices.ContainsFunc(do.tools, r.declares) || !r.answerable(do, result) {
		return false
	}
	id := textOf(b.Extra, "id")
	switch do.item {
	case "shell_call":
		if !stringList(b.Arguments, "commands") {
			return false
		}
	case "apply_patch_call":
		kind := textOf(b.Arguments, "type")
		if !slices.Contains([]string{"create_file", "update_file", "delete_file"}, kind) || kindOf(b.Arguments, "path") != '"' ||
			kind != "delete_file" && kindOf(b.Arguments, "diff") != '"' {
			return false
		}
	case "local_shell_call":
		if textOf(b.Arguments, "type") != "exec" || !stringList(b.Arguments, "command") || !stringMap(b.Arguments, "env") || r.parting.parted || !r.take(id, "lsh_") {
			return false
		}
	case "computer_call":
		if !wholeActions(b) || r.parting.parted || !r.take(id, "cu_") {
			return false
		}
	}
	given := id
	if do.name != "local_shell" {
		given = r.calls.call(b.ID, m, i)
	} else if id != b.ID {
		// The answer has but one id, and it is to be that of the call in whichever way it is read.
		r.report.MappedIDs++
	}
	r.item(do.item)
	if do.name == "local_shell" || do.name == "computer" {
		r.text("id", id)
	}
	r.text("call_id", given)
	r.text("status", "completed")
	r.payload(b, do)
	r.close()
	r.open[b.ID] = append(r.open[b.ID], openCall{given, do.item})
	return true
}

// doingMembers are the members of what is to be done that a request may hold, by the
// kinds of their values.
var doingMembers = map[string]map[string]string{
	"shell_call":       {"commands": "[", "timeout_ms": "0n", "max_output_length": "0n"},
	"local_shell_call": {"type": "\"", "command": "[", "env": "{", "timeout_ms": "0n", "user": "\"n", "working_directory": "\"n"},
	"apply_patch_call": {"type": "\"", "path": "\"", "diff": "\""},
}

func (r *responsesRender) payload(b *history.Block, do *doing) {
	if do.name != "computer" {
		r.name(do.payload)
		r.chosen(b.Arguments, doingMembers[do.item])
		return
	}
	checks := memberNamed(b.Extra, "pending_safety_checks")
	if !identified(checks, "id") {
		checks.Raw = jsontext.Value("[]")
	}
	r.raw("pending_safety_checks", cleanRaw(checks.Raw, &r.report))
	switch arguments := cleanRaw(b.Arguments, &r.report); {
	case arguments.Kind() == '[':
		r.raw("actions", arguments)
	case kindOf(b.Extra, "action") == 't':
		r.raw("action", memberNamed(arguments, "action").Raw)
		r.raw("actions", memberNamed(arguments, "actions").Raw)
	default:
		r.raw("action", arguments)
	}
}

// chosen writes an object with only those members, of those kinds.
func (r *responsesRender) chosen(raw jsontext.Value, members map[string]string) {
	r.object.open()
	r.filtered(cleanRaw(raw, &r.report), func(name string, v strictjson.Value) bool {
		return strings.ContainsRune(members[name], rune(v.Kind()))
	})
	r.close()
}

// identified reports whether the value is a list of objects with a text by that name.
func identified(list strictjson.Value, name string) bool {
	if list.Kind() != '[' {
		return false
	}
	for _, e := range list.Elements() {
		if textOf(e.Raw, name) == "" {
			return false
		}
	}
	return true
}

func stringList(raw jsontext.Value, name string) bool {
	list := memberNamed(raw, name)
	if list.Kind() != '[' {
		return false
	}
	for _, e := range list.Elements() {
		if e.Kind() != '"' {
			return false
		}
	}
	return true
}

func stringMap(raw jsontext.Value, name string) bool {
	object := memberNamed(raw, name)
	for _, v := range membersOf(object.Raw) {
		if v.Kind() != '"' {
			return false
		}
	}
	return object.Kind() == '{'
}

// wholeActions reports whether the actions on a computer are there.
func wholeActions(b *history.Block) bool {
	typed := func(v strictjson.Value) bool { return textOf(v.Raw, "type") != "" }
	several := func(v strictjson.Value) bool { return identified(v, "type") }
	all := strictjson.Value{Raw: b.Arguments}
	if kindOf(b.Extra, "action") == 't' {
		return typed(memberNamed(b.Arguments, "action")) && several(memberNamed(b.Arguments, "actions"))
	}
	return typed(all) || several(all)
}

// answerable reports whether a result can be written in the type of its call.
func (r *responsesRender) answerable(do *doing, b *history.Block) bool {
	switch do.item {
	case "shell_call":
		if len(b.Content) == 0 || !ran(b.Content) {
			return false
		}
		for i := 1; i < len(b.Content); i += 2 {
			outcome := objectOf(memberNamed(b.Content[i].Extra, "outcome"))
			if kind := textOf(outcome, "type"); kind != "timeout" && (kind != "exit" || kindOf(outcome, "exit_code") != '0') {
				return false
			}
		}
		return true
	case "computer_call":
		return len(b.Content) == 1 && textOf(b.Content[0].Extra, "type") == "computer_screenshot" && r.media[&b.Content[0]]
	}
	_, all := plainText(b.Content)
	return all || len(b.Content) == 0
}

// ran writes what commands said, and how they ended.
func (r *responsesRender) ran(b *history.Block) {
	r.openList()
	for i := 0; i < len(b.Content); i += 2 {
		r.element()
		r.object.open()
		r.text("stdout", clean(b.Content[i].Text, &r.report))
		r.text("stderr", clean(b.Content[i+1].Text, &r.report))
		r.name("outcome")
		outcome := objectOf(memberNamed(b.Content[i+1].Extra, "outcome"))
		r.chosen(outcome, map[string]string{"type": "\"", "exit_code": "0"})
		r.close()
	}
	r.closeList()
}

// screen writes what a computer shows after an action.
func (r *responsesRender) screen(b *history.Block) {
	r.name("output")
	r.object.open()
	r.text("type", "computer_screenshot")
	r.where("image_url", &b.Content[0], imageType(&b.Content[0]))
	r.close()
	if checks := memberNamed(b.Extra, "acknowledged_safety_checks"); identified(checks, "id") {
		r.raw("acknowledged_safety_checks", cleanRaw(checks.Raw, &r.report))
	}
}

// drawable reports whether an image is one that the provider made for that model.
func (r *responsesRender) drawable(m *history.Message, b *history.Block) bool {
	return textOf(b.Extra, "type") == "image_generation_call" && textOf(b.Extra, "status") == "completed" && r.target.made(m)
}

// drawn writes an image that the provider made.
func (r *responsesRender) drawn(m *history.Message, b *history.Block) {
	r.lead(m)
	r.item("image_generation_call")
	r.text("id", textOf(b.Extra, "id"))
	r.text("status", "completed")
	r.base64("result", b.Data)
	r.close()
}

// A hostedForm is what makes an item of the provider's whole without what it stored.
type hostedForm struct {
	prefix string                   // of its id; "" when it goes without
	needs  map[string]jsontext.Kind // members by the kind of their value; 0 for a string that says something
	may    []string
}

var hostedForms = map[string]hostedForm{
	"compaction":            {"", map[string]jsontext.Kind{"encrypted_content": 0}, nil},
	"web_search_call":       {"ws_", map[string]jsontext.Kind{"action": '{', "status": 0}, nil},
	"file_search_call":      {"fs_", map[string]jsontext.Kind{"queries": '[', "status": 0, "results": '['}, nil},
	"code_interpreter_call": {"ci_", map[string]jsontext.Kind{"code": '"', "container_id": 0, "status": 0, "outputs": '['}, nil},
	"mcp_list_tools":        {"mcpl_", map[string]jsontext.Kind{"server_label": 0, "tools": '['}, nil},
	"mcp_call":              {"mcp_", map[string]jsontext.Kind{"server_label": 0, "name": 0, "arguments": '"', "output": '"'}, []string{"status"}},
	"mcp_approval_request":  {"mcpr_", map[string]jsontext.Kind{"server_label": 0, "name": 0, "arguments": '"'}, nil},
	"mcp_approval_response": {"", map[string]jsontext.Kind{"approval_request_id": 0, "approve": 't'}, []string{"reason"}},
}

// hosted writes an item that the provider made for that model, when it is whole.
func (r *responsesRender) hosted(m *history.Message, b *history.Block) {
	kind := textOf(b.Opaque, "type")
	form, known := hostedForms[kind]
	if !known || m.Role != history.Assistant || !r.target.made(m) || r.parting.parted && form.prefix != "" || !r.whole(b, form) {
		r.report.WithheldOpaque++
		r.forget()
		return
	}
	if kind == "mcp_approval_response" {
		r.forget()
	} else {
		r.lead(m)
	}
	r.item(kind)
	if form.prefix != "" {
		r.text("id", textOf(b.Opaque, "id"))
	}
	for name, v := range membersOf(cleanRaw(b.Opaque, &r.report)) {
		switch _, needed := form.needs[name]; {
		case kind == "mcp_list_tools" && name == "tools":
			r.listed(v)
		case needed || slices.Contains(form.may, name) && v.Kind() == '"':
			r.member(name, v)
		}
	}
	r.close()
}

// listed writes the tools of a server, without what it left open.
func (r *responsesRender) listed(tools strictjson.Value) {
	r.name("tools")
	r.openList()
	for _, tool := range tools.Elements() {
		r.element()
		r.object.open()
		r.filtered(tool.Raw, func(_ string, v strictjson.Value) bool { return !v.IsNull() })
		r.close()
	}
	r.closeList()
}

// whole reports whether an item has what it needs, and takes its id.
func (r *responsesRender) whole(b *history.Block, form hostedForm) bool {
	for name, kind := range form.needs {
		v := memberNamed(b.Opaque, name)
		switch got := v.Kind(); {
		case kind == 0:
			if s, _ := v.Text(); s == "" {
				return false
			}
		case kind == 't' && got == 'f':
		case got != kind:
			return false
		}
	}
	if asked := textOf(b.Opaque, "approval_request_id"); asked != "" && kindOf(b.Opaque, "approve") != 0 && !r.ids[asked] {
		return false // what was approved is not shown
	}
	return form.prefix == "" || r.take(textOf(b.Opaque, "id"), form.prefix)
}

// blankText reports whether blocks are one text of nothing.
func blankText(blocks []history.Block) bool {
	return len(blocks) == 1 && blocks[0].Type == history.TextBlock && blocks[0].Text == ""
}
