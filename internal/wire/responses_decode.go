package wire

import (
	"encoding/json/jsontext"
	"slices"
	"strconv"
	"strings"

	"historyd/internal/history"
	"historyd/internal/strictjson"
)

var (
	itemMembers      = []string{"type", "role", "content", "id", "status", "phase"}
	outputMembers    = []string{"type", "call_id", "output", "id", "status"}
	reasoningMembers = []string{"type", "id", "summary", "content", "encrypted_content", "status"}
	drawnMembers     = []string{"type", "id", "status", "result"}
	computerMembers  = []string{"type", "call_id", "id", "status", "action", "actions"}
)

func (d *decoder) responsesItem(v strictjson.Value, path string) history.Message {
	m := history.Message{Status: history.Complete, Role: history.Assistant}
	if v.Kind() != '{' {
		d.fault(v, path, "an item is an object")
		return m
	}
	kind, ok := d.responsesType(v, path)
	switch {
	case !ok:
	case kind == "message":
		d.responsesMessage(v, path, &m)
	case kind == "function_call":
		m.Content = d.responsesCall(v, path, kind, "arguments")
	case kind == "custom_tool_call":
		m.Content = d.responsesCall(v, path, kind, "input")
	case kind == "function_call_output" || kind == "custom_tool_call_output":
		m.Role = history.Tool
		m.Content = d.responsesOutput(v, path, kind)
	case doingOf(kind) != nil:
		if do := doingOf(kind); kind == do.item {
			m.Content = d.responsesDoing(v, path, do)
		} else {
			m.Role = history.Tool
			m.Content = d.responsesOutput(v, path, kind)
		}
	case kind == "reasoning":
		m.Content = d.responsesReasoning(v, path)
	case kind == "image_generation_call":
		m.Content = d.responsesDrawn(v, path)
	default:
		d.responsesHosted(v, path, kind)
		m.Content = hosted(v)
	}
	return m
}

// responsesType returns the type of an item; a message may have none.
func (d *decoder) responsesType(v strictjson.Value, path string) (string, bool) {
	typ, there := v.Member("type")
	if there {
		kind := d.text(typ, path+".type", 1, maxTag)
		return kind, kind != ""
	}
	if _, there = v.Member("role"); there {
		return "message", true
	}
	d.typeless(v, path, "role")
	return "", false
}

// stringOrNull checks a member that is kept as it is.
func (d *decoder) stringOrNull(v strictjson.Value, path string) bool {
	if v.Kind() != '"' && !v.IsNull() {
		d.fault(v, path, "must be a string")
	}
	return true
}

func (d *decoder) responsesMessage(v strictjson.Value, path string, m *history.Message) {
	m.Role = ""
	var role, content, phase strictjson.Value
	typed := false
	rest := d.object(v, path, itemMembers, func(name string, v strictjson.Value) bool {
		switch name {
		case "type":
			typed = true
		case "role":
			role = v
		case "content":
			content = v
		case "phase":
			d.stringOrNull(v, path+".phase")
			phase = v
		case "status":
			if s, _ := v.Text(); s == "incomplete" || s == "in_progress" {
				m.Status = history.Incomplete
			}
			return d.stringOrNull(v, path+".status")
		case "id":
			return d.stringOrNull(v, path+".id")
		}
		return false
	})
	if !typed {
		rest.add("type", history.AppendString(nil, typeless))
	}
	switch s, _ := role.Text(); s {
	case "user":
		m.Role, m.Kind = history.User, history.Person
	case "assistant":
		m.Role = history.Assistant
	case "developer":
		rest.first("role", s)
		m.Role = history.System
	case "system":
		m.Role = history.System
	default:
		d.fault(or(role, v), path+".role", "must be one of user, assistant, system, developer")
	}
	m.Extra = rest.value()
	d.refuseCarriers(v, path, m.Extra)
	switch content.Kind() {
	case '"':
		text, _ := content.Text()
		m.Content = []history.Block{history.Text(text)}
	case '[':
		m.Content = blocksOf(content, path+".content", d.responsesPart)
	default:
		d.fault(or(content, v), path+".content", "is a string or a list of parts")
	}
	d.settleMessage(v, content, phase, path, m)
}

// settleMessage checks what the parts of a message have to do with its role.
func (d *decoder) settleMessage(v, content, phase strictjson.Value, path string, m *history.Message) {
	for i := range m.Content {
		if b := &m.Content[i]; b.Media() && m.Role == history.System {
			d.fault(content, path+".content["+strconv.Itoa(i)+"].type", "a system message holds text")
		}
	}
	switch {
	case len(m.Content) > 0:
		if phase.Raw != nil {
			m.Content[0].Extra = with(m.Content[0].Extra, "phase", phase.Compact())
		}
	case content.Kind() != '[':
	case m.Role == history.Assistant:
		// An answer that broke off before it said anything.
		d.refuseScattered(v, path+".content")
		m.Extra, m.Content = nil, hosted(v)
	default:
		d.fault(content, path+".content", "holds at least one part")
	}
}

// or returns the value, or what it is missing in.
func or(v, around strictjson.Value) strictjson.Value {
	if v.Raw == nil {
		return around
	}
	return v
}

// responsesCall reads a call of a function, or of a custom tool, whose text is the payload.
func (d *decoder) responsesCall(v strictjson.Value, path, kind, payload string) []history.Block {
	b := history.Block{Type: history.ToolCall}
	seen := map[string]bool{}
	rest := d.object(v, path, []string{"type", "call_id", "name", payload, "id", "status"}, func(name string, v strictjson.Value) bool {
		seen[name] = true
		at := path + "." + name
		switch name {
		case "call_id":
			b.ID = d.text(v, at, 1, maxID)
		case "name":
			b.Name = d.text(v, at, 0, maxName)
		case payload:
			b.SetArguments(d.text(v, at, 0, 0))
		case "id", "status":
			return d.stringOrNull(v, at)
		}
		return false
	})
	for _, name := range []string{"call_id", "name", payload} {
		if !seen[name] {
			d.fault(v, path+"."+name, "is missing: a string")
		}
	}
	if kind == "custom_tool_call" {
		rest.first("type", "custom")
	}
	b.Extra = rest.value()
	d.refuseCarriers(v, path, b.Extra)
	return []history.Block{b}
}

// responsesDoing reads a call of a tool that the provider knows and the client runs.
func (d *decoder) responsesDoing(v strictjson.Value, path string, do *doing) []history.Block {
	b := history.Block{Type: history.ToolCall, Name: do.name}
	known := []string{"type", "call_id", do.payload, "id", "status"}
	if do.name == "computer" {
		known = computerMembers
	}
	var single, several strictjson.Value
	rest := d.object(v, path, known, func(name string, v strictjson.Value) bool {
		at := path + "." + name
		switch {
		case name == "call_id":
			b.ID = d.text(v, at, 1, maxID)
		case (name == "action" || name == "actions") && do.name == "computer" && v.IsNull():
			return true
		case name == do.payload:
			if single = v; v.Kind() != '{' {
				d.fault(v, at, "must be an object")
			}
		case name == "actions":
			if several = v; v.Kind() != '[' {
				d.fault(v, at, "must be a list")
			}
		case name == "id" || name == "status":
			return d.stringOrNull(v, at)
		}
		return false
	})
	if b.ID == "" {
		if _, there := v.Member("call_id"); !there {
			d.fault(v, path+".call_id", "is missing: a string")
		}
	}
	switch {
	case single.Raw != nil && several.Raw != nil:
		var both extra
		both.add("action", single.Compact())
		both.add("actions", several.Compact())
		b.Arguments = both.value()
		rest.add("action", jsontext.Value("true")) // it stands in the arguments, and so do actions
	case several.Raw != nil:
		b.Arguments = several.Compact()
	case single.Raw != nil:
		b.Arguments = single.Compact()
	default:
		d.fault(v, path+"."+do.payload, "is missing: an object")
	}
	rest.first("type", do.item)
	b.Extra = rest.value()
	d.refuseCarriers(v, path, b.Extra)
	return []history.Block{b}
}

// responsesOutput reads what answers a call.
func (d *decoder) responsesOutput(v strictjson.Value, path, kind string) []history.Block {
	b := history.Block{Type: history.ToolResult, Content: []history.Block{}}
	var id, output strictjson.Value
	rest := d.object(v, path, outputMembers, func(name string, v strictjson.Value) bool {
		switch name {
		case "call_id":
			b.CallID = d.text(v, path+".call_id", 1, maxID)
		case "output":
			output = v
			return v.IsNull() && kind == "apply_patch_call_output"
		case "id":
			id = v
			return d.stringOrNull(v, path+".id")
		case "status":
			s, _ := v.Text()
			b.IsError = s == "failed"
			return d.stringOrNull(v, path+".status")
		}
		return false
	})
	if _, there := v.Member("call_id"); !there {
		if kind != "local_shell_call_output" || id.Raw == nil {
			d.fault(v, path+".call_id", "is missing: a string")
		} else {
			// Such an answer may name its call by the id alone.
			b.CallID = d.text(id, path+".id", 1, maxID)
			rest.add("call_id", jsontext.Value("null"))
		}
	}
	if kind == "custom_tool_call_output" {
		rest.first("type", "custom")
	} else if kind != "function_call_output" {
		rest.first("type", kind)
	}
	b.Extra = rest.value()
	d.refuseCarriers(v, path, b.Extra)
	d.responsesAnswer(&b, v, output, path, kind)
	return []history.Block{b}
}

// responsesAnswer reads the output of an answer.
func (d *decoder) responsesAnswer(b *history.Block, v, output strictjson.Value, path, kind string) {
	at := path + ".output"
	switch k := output.Kind(); {
	case output.Raw == nil || output.IsNull():
		if kind != "apply_patch_call_output" {
			d.fault(or(output, v), at, "is missing: a string or a list of parts")
		}
	case k == '"':
		text, _ := output.Text()
		b.Content, b.Plain = append(b.Content, history.Text(text)), true
	case k == '{' && kind == "computer_call_output":
		b.Content = append(b.Content, d.responsesPart(output, at))
	case k == '[' && kind == "shell_call_output":
		for i, e := range output.Elements() {
			b.Content = append(b.Content, d.responsesRan(e, at+"["+strconv.Itoa(i)+"]")...)
		}
	case k == '[' && kind != "computer_call_output" && kind != "apply_patch_call_output":
		b.Content = blocksOf(output, at, d.responsesPart)
	default:
		d.fault(output, at, "must be a string, or what an answer of this type holds")
	}
}

// responsesRan reads what one command said: two texts, and beside the second one how it ended.
func (d *decoder) responsesRan(v strictjson.Value, path string) []history.Block {
	if v.Kind() != '{' {
		d.fault(v, path, "must be an object with stdout and stderr")
		return nil
	}
	said := map[string]history.Block{}
	rest := d.object(v, path, []string{"stdout", "stderr", "type"}, func(name string, v strictjson.Value) bool {
		if name == "type" {
			d.fault(v, path+".type", "does not belong here")
			return false
		}
		said[name] = history.Text(d.text(v, path+"."+name, 0, 0))
		return false
	})
	for _, name := range []string{"stdout", "stderr"} {
		if _, there := said[name]; !there {
			d.fault(v, path+"."+name, "is missing: a string")
		}
	}
	var first extra
	first.first("type", "stdout")
	rest.first("type", "stderr")
	stdout, stderr := said["stdout"], said["stderr"]
	stdout.Extra, stderr.Extra = first.value(), rest.value()
	d.refuseCarriers(v, path, stderr.Extra)
	return []history.Block{stdout, stderr}
}

func (d *decoder) responsesReasoning(v strictjson.Value, path string) []history.Block {
	b := history.Block{Type: history.ThinkingBlock}
	var summary, content strictjson.Value
	rest := d.object(v, path, reasoningMembers, func(name string, v strictjson.Value) bool {
		at := path + "." + name
		switch name {
		case "summary":
			if summary = v; v.Kind() != '[' {
				d.fault(v, at, "is a list of summary texts")
			}
		case "content":
			if content = v; v.Kind() != '[' && !v.IsNull() {
				d.fault(v, at, "is a list of texts")
			}
		case "encrypted_content":
			s, _ := v.Text()
			b.Encrypted = s
			return d.stringOrNull(v, at) && s == ""
		case "id", "status":
			return d.stringOrNull(v, at)
		}
		return false
	})
	if summary.Raw == nil {
		d.fault(v, path+".summary", "is missing: a list, [] when there is none")
	}
	texts := reasoned(summary)
	if b.Text = strings.Join(texts, "\n\n"); content.Raw != nil || string(appendSummary(nil, b.Text)) != string(summary.Compact()) {
		if len(texts) == 0 {
			b.Text = strings.Join(reasoned(content), "\n\n")
		}
		if summary.Raw != nil {
			rest.add("summary", summary.Compact())
		}
		if content.Raw != nil {
			rest.add("content", content.Compact())
		}
	}
	b.Extra = rest.value()
	d.refuseCarriers(v, path, b.Extra)
	return []history.Block{b}
}

// reasoned returns the texts of a list of summaries or of reasoning.
func reasoned(list strictjson.Value) []string {
	if list.Kind() != '[' {
		return nil
	}
	var texts []string
	for _, e := range list.Elements() {
		if s, ok := memberNamed(e.Raw, "text").Text(); ok {
			texts = append(texts, s)
		}
	}
	return texts
}

// appendSummary writes a summary of one text, which needs no mark.
func appendSummary(dst []byte, text string) []byte {
	if text == "" {
		return append(dst, "[]"...)
	}
	dst = append(dst, `[{"type":"summary_text","text":`...)
	return append(history.AppendString(dst, text), "}]"...)
}

// responsesDrawn reads an image that the provider made. One that is not there yet, or
// failed, stays as it is.
func (d *decoder) responsesDrawn(v strictjson.Value, path string) []history.Block {
	b := history.Block{Type: history.ImageBlock, MediaType: "image/png"}
	var result strictjson.Value
	rest := d.object(v, path, drawnMembers, func(name string, v strictjson.Value) bool {
		switch name {
		case "result":
			result = v
		case "id", "status":
			return d.stringOrNull(v, path+"."+name)
		}
		return false
	})
	d.refuseCarriers(v, path, rest.value())
	text, _ := result.Text()
	data, err := history.DecodeBase64(text)
	if err != nil {
		if text != "" {
			d.fault(result, path+".result", "%s", err)
		}
		return hosted(v)
	}
	b.SetData(data)
	if format := textOf(rest.value(), "output_format"); format == "jpeg" || format == "webp" {
		b.MediaType = "image/" + format
	}
	rest.first("type", "image_generation_call")
	b.Extra = rest.value()
	return []history.Block{b}
}

// responsesHosted checks an item that is kept as it is: a call of the client's tools
// in it would pass the redaction.
func (d *decoder) responsesHosted(v strictjson.Value, path, kind string) {
	const refusal = "is no known type, and items of this one may be calls or results of the client's tools"
	d.object(v, path, []string{"type", "id"}, func(string, strictjson.Value) bool { return false })
	known := slices.Contains(hostedItems, kind)
	if history.ClientTool(v) {
		d.fault(v, path+".type", refusal)
		return
	}
	if known {
		return
	}
	for name, m := range v.Members() {
		switch strings.ToLower(strings.ReplaceAll(name, "_", "")) {
		case "callid", "arguments":
			if !m.IsNull() {
				d.fault(v, path+".type", refusal)
				return
			}
		}
	}
	if history.CarriesTools(v.Raw) {
		d.fault(v, path+".type", refusal)
	}
}

// hosted keeps an item as it is.
func hosted(v strictjson.Value) []history.Block {
	return []history.Block{{
		Type: history.OpaqueBlock, Provider: openAIProvider, Opaque: v.Compact(), Extra: jsontext.Value(`{"item":true}`),
	}}
}
