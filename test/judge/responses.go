package judge

import (
	"slices"
	"strconv"
	"strings"
)

// maxCompaction is the size of what a compaction item may hold.
const maxCompaction = 20 << 20

// responses judges the input items of the Responses API.
func responses(c *checker, messages, system, tools *value) {
	if system != nil {
		c.complain(system, "has no place in the request: a developer message stands among the items")
	}
	if tools != nil {
		atMostTools(c, tools, maxTools)
		for _, t := range tools.children {
			responsesTool(c, t)
		}
	}
	ids := map[string]bool{}
	for _, item := range messages.children {
		responsesItem(c, item)
		// The output of a local shell has the id of its call.
		if id := item.member("id"); id != nil && id.kind == '"' && item.str("type") != "local_shell_call_output" {
			if ids[id.text] {
				c.complain(id, "is the id of an item before: duplicate item found with id %q", id.text)
			}
			ids[id.text] = true
		}
	}
	c.followed(messages.children)
	c.paired(messages.children)
}

// Parted returns why the provider would refuse items of the Responses API that it made
// itself: one that it knows by its id is refused without the reasoning that led to it.
// made are the items as it gave them, messages those of a request.
func Parted(made, messages []byte) []string {
	c := &checker{}
	given, sent := new(checker).parse("made", made), c.parse("messages", messages)
	if given == nil || sent == nil {
		return append(c.complaints, "messages is missing.")
	}
	there := map[string]*value{}
	for _, item := range sent.children {
		if id := item.str("id"); id != "" {
			there[id] = item
		}
	}
	thinking, missing := false, ""
	for _, item := range given.children {
		id := item.str("id")
		switch {
		case item.str("type") == "reasoning":
			if !thinking {
				missing = ""
			}
			thinking = true
			if there[id] == nil {
				missing = strconv.Quote(id)
			}
			continue
		case !generated(item):
			missing = ""
		case missing != "" && there[id] != nil:
			c.complain(there[id], "was provided without its required 'reasoning' item: %s", missing)
		}
		thinking = false
	}
	return c.complaints
}

// followed holds reasoning to what it led to.
func (c *checker) followed(items []*value) {
	for i, item := range items {
		if item.str("type") != "reasoning" {
			continue
		}
		if i+1 == len(items) || !generated(items[i+1]) {
			c.complain(item, "is not followed by what it led to: item of type 'reasoning' was provided without its required following item")
		}
	}
}

// generated reports whether a model may have made the item.
func generated(item *value) bool {
	switch kind := item.str("type"); kind {
	case "", "message":
		return item.str("role") == "assistant"
	case "item_reference", "mcp_approval_response":
		return false
	default:
		return !strings.HasSuffix(kind, "_output")
	}
}

// answers are the types of the items that answer calls, by the type of the call.
var answers = map[string]string{
	"function_call": "function_call_output", "custom_tool_call": "custom_tool_call_output", "computer_call": "computer_call_output",
	"local_shell_call": "local_shell_call_output", "shell_call": "shell_call_output", "apply_patch_call": "apply_patch_call_output",
}

// paired holds outputs to earlier calls, one for each.
func (c *checker) paired(items []*value) {
	open := map[[2]string][]*value{}
	for _, item := range items {
		kind := item.str("type")
		id := item.str(naming(kind))
		if answer := answers[kind]; answer != "" {
			key := [2]string{answer, id}
			open[key] = append(open[key], item)
			continue
		}
		if !strings.HasSuffix(kind, "_call_output") {
			continue
		}
		key := [2]string{kind, id}
		if len(open[key]) == 0 {
			c.complain(item, "answers no call: no tool call found for function call output with call_id %q", id)
			continue
		}
		open[key] = open[key][1:]
	}
	for _, item := range items {
		id := item.str(naming(item.str("type")))
		if slices.Contains(open[[2]string{answers[item.str("type")], id}], item) {
			c.complain(item, "is not answered: no tool output found for function call %q", id)
		}
	}
}

// naming is the member that pairs items of a type.
func naming(kind string) string {
	if strings.HasPrefix(kind, "local_shell_call") {
		return "id"
	}
	return "call_id"
}

// itemID is an id of an item, with the beginning that the type asks for.
func itemID(prefix string) check {
	return func(c *checker, v *value) {
		atMost(64)(c, v)
		if !strings.HasPrefix(v.text, prefix) {
			c.complain(v, "must be an ID that begins with '%s'", prefix)
		}
	}
}

var isStatus = oneOf("in_progress", "completed", "incomplete")

func responsesItem(c *checker, v *value) {
	hosted, isHosted := responsesHosted[v.str("type")]
	switch {
	case v.kind == '{' && v.member("type") == nil:
		responsesMessage(c, v)
	case isHosted:
		hostedItem(c, v, hosted)
	default:
		c.typed(v, "the input", responsesItems)
	}
}

// responsesItems are the items of messages, of the client's tools and of reasoning.
var responsesItems = map[string]check{
	"message": responsesMessage,
	"function_call": func(c *checker, v *value) {
		item(c, v, "fc", need("call_id", atMost(64)), need("name", toolName(64, "")), may("namespace", isString),
			need("arguments", isString), may("status", isStatus))
		c.call(v.member("name"))
	},
	"custom_tool_call": func(c *checker, v *value) {
		item(c, v, "", need("call_id", atMost(64)), need("name", toolName(64, "")), may("namespace", isString),
			need("input", isString), may("status", isStatus))
		c.call(v.member("name"))
	},
	"function_call_output": responsesResult, "custom_tool_call_output": responsesResult,
	"reasoning": func(c *checker, v *value) {
		item(c, v, "rs", need("summary", listOf(0, reasoningText("summary_text"))),
			may("content", listOf(0, reasoningText("reasoning_text"))), may("encrypted_content", orNull(nonEmpty)), may("status", isStatus))
		if v.member("id") == nil {
			c.complain(v, "lacks id: field required")
		}
		if v.str("encrypted_content") == "" {
			c.complain(v, "lacks encrypted_content: item with this id not found, items are not persisted when store is set to false")
		}
	},
	"compaction": func(c *checker, v *value) {
		item(c, v, "", need("encrypted_content", nonEmpty))
		if n := len(v.str("encrypted_content")); n > maxCompaction {
			c.complain(v.member("encrypted_content"), "has %d bytes: the limit is 20 MB", n)
		}
	},
	"item_reference": func(c *checker, v *value) {
		c.object(v, need("type", anything), need("id", itemID("")))
		c.complain(v, "names an item: item with this id not found, items are not persisted when store is set to false")
	},
}

// item has the members of its type, and may have an id that begins so.
func item(c *checker, v *value, prefix string, fields ...field) {
	c.object(v, append(fields, need("type", anything), may("id", itemID(prefix)))...)
}

func responsesResult(c *checker, v *value) {
	item(c, v, "", need("call_id", atMost(64)), need("output", responsesContent("an output", responsesOutput)), may("status", isStatus))
}

// responsesHosted are the items of tools that the provider runs, with what they must have.
var responsesHosted = map[string][]field{
	"file_search_call": {need("id", nonEmpty), need("queries", listOf(0, isString)), need("status", nonEmpty), may("results", orNull(isList))},
	"web_search_call":  {need("id", nonEmpty), need("action", isObject), need("status", nonEmpty)},
	"computer_call": {
		need("id", nonEmpty), need("call_id", atMost(64)), may("action", isObject), may("actions", isList),
		need("pending_safety_checks", isList), need("status", nonEmpty),
	},
	"computer_call_output": {need("call_id", atMost(64)), need("output", isObject), may("acknowledged_safety_checks", orNull(isList))},
	"code_interpreter_call": {
		need("id", nonEmpty), need("code", orNull(isString)), need("container_id", isString), need("outputs", orNull(isList)), need("status", nonEmpty),
	},
	"image_generation_call":   {need("id", nonEmpty), need("result", orNull(isBase64)), need("status", nonEmpty)},
	"local_shell_call":        {need("id", nonEmpty), need("call_id", atMost(64)), need("action", isObject), need("status", isStatus)},
	"local_shell_call_output": {need("id", nonEmpty), need("output", isString)},
	"shell_call":              {need("call_id", atMost(64)), need("action", holding("commands", listOf(0, isString)))},
	"shell_call_output":       {need("call_id", atMost(64)), need("output", listOf(0, shellOutput))},
	"apply_patch_call": {
		need("call_id", atMost(64)), need("operation", holding("type", oneOf("create_file", "update_file", "delete_file"))), need("status", isStatus),
	},
	"apply_patch_call_output": {need("call_id", atMost(64)), need("status", oneOf("completed", "failed")), may("output", orNull(isString))},
	"mcp_list_tools":          {need("id", nonEmpty), need("server_label", isString), need("tools", listOf(0, holding("name", nonEmpty)))},
	"mcp_approval_request":    {need("id", nonEmpty), need("server_label", isString), need("name", nonEmpty), need("arguments", isString)},
	"mcp_approval_response":   {need("approval_request_id", nonEmpty), need("approve", isBool), may("reason", orNull(isString))},
	"mcp_call": {
		need("id", nonEmpty), need("server_label", isString), need("name", nonEmpty), need("arguments", isString),
		may("output", orNull(isString)), may("error", anything),
	},
	"tool_search_call": {need("arguments", anything)}, "tool_search_output": {need("tools", isList)},
}

// holding is an object with that member.
func holding(name string, each check) check {
	return func(c *checker, v *value) {
		switch isObject(c, v); {
		case v.kind != '{':
		case v.member(name) == nil:
			c.complain(v, "lacks %s: field required", name)
		default:
			each(c, v.member(name))
		}
	}
}

func shellOutput(c *checker, v *value) {
	c.object(v, need("stdout", isString), need("stderr", isString), need("outcome", func(c *checker, v *value) {
		c.typed(v, "an outcome", map[string]check{
			"timeout": func(c *checker, v *value) { c.object(v, need("type", anything)) },
			"exit":    func(c *checker, v *value) { c.object(v, need("type", anything), need("exit_code", anything)) },
		})
	}))
}

// hostedItem has members of its own besides those that are known.
func hostedItem(c *checker, v *value, fields []field) {
	if id := v.member("id"); id != nil {
		orNull(itemID(""))(c, id)
	}
	for _, f := range fields {
		switch m := v.member(f.name); {
		case m != nil:
			f.check(c, m)
		case f.needed:
			c.complain(v, "lacks %s: field required", f.name)
		}
	}
}

func reasoningText(kind string) check {
	return func(c *checker, v *value) { c.object(v, need("type", oneOf(kind)), need("text", isString)) }
}

// responsesMessage is a message in one of three forms: with an id it is one that the
// model gave, without one it may be written more easily.
func responsesMessage(c *checker, v *value) {
	kind, role := may("type", oneOf("message")), need("role", oneOf("user", "assistant", "system", "developer"))
	parts := map[string]map[string]check{"user": responsesSaid, "assistant": responsesAnswered}[v.str("role")]
	if parts == nil {
		parts = responsesTold
	}
	content := responsesContent("a message of this role", parts)
	phase := may("phase", func(c *checker, v *value) {
		oneOf("commentary", "final_answer")(c, v)
		if v.parent.str("role") != "assistant" {
			c.complain(v, "belongs to assistant messages")
		}
	})
	switch {
	case v.str("role") == "assistant" && (v.member("id") != nil || v.member("status") != nil):
		c.object(v, need("type", oneOf("message")), need("id", itemID("msg")), role, need("status", isStatus), phase,
			need("content", listOf(1, func(c *checker, v *value) { c.typed(v, "an assistant message", responsesAnswered) })))
	case v.member("status") != nil:
		c.object(v, kind, role, may("status", isStatus),
			need("content", listOf(1, func(c *checker, v *value) { c.typed(v, "a message of this role", parts) })))
	default:
		c.object(v, kind, role, phase, need("content", content))
	}
}

// responsesContent is a string or a list of parts.
func responsesContent(where string, parts map[string]check) check {
	return openAIContent(where, responsesText, parts)
}

// responsesText is a string of a length that the API reads.
var responsesText = upTo(10 * maxContent)

// The parts that the roles and the outputs may hold.
var (
	responsesTold = map[string]check{"input_text": openAIPart(need("text", responsesText))}
	responsesSaid = map[string]check{
		"input_text": responsesTold["input_text"], "input_image": inputImage, "input_file": inputFile,
		"input_audio": openAIPart(need("input_audio", audio)),
	}
	responsesOutput = map[string]check{
		"input_text": responsesTold["input_text"], "input_image": inputImage, "input_file": inputFile,
	}
	responsesAnswered = map[string]check{
		"output_text": openAIPart(need("text", responsesText), need("annotations", isList), may("logprobs", isList)),
		"refusal":     openAIPart(need("refusal", isString)),
	}
)

func inputImage(c *checker, v *value) {
	openAIPart(may("image_url", orNull(imageURL)), may("file_id", orNull(nonEmpty)),
		need("detail", oneOf("auto", "low", "high", "original")))(c, v)
	if (v.str("image_url") == "") == (v.str("file_id") == "") {
		c.complain(v, "must have one of image_url and file_id")
	}
}

func inputFile(c *checker, v *value) {
	openAIPart(may("file_id", orNull(nonEmpty)), may("file_data", fileData(isFile)), may("file_url", webURL),
		may("filename", nonEmpty), may("detail", oneOf("auto", "low", "high")))(c, v)
	given := 0
	for _, name := range []string{"file_id", "file_data", "file_url"} {
		if v.str(name) != "" {
			given++
		}
	}
	if given != 1 {
		c.complain(v, "must have one of file_id, file_data and file_url")
	}
	if v.member("file_data") != nil && v.member("filename") == nil {
		c.complain(v, "lacks filename: field required beside file_data")
	}
}

// responsesTool is a function, a custom tool, or one that the provider runs.
func responsesTool(c *checker, v *value) {
	kind, name := need("type", anything), need("name", toolName(64, ""))
	switch {
	case v.kind != '{':
		c.complain(v, "must be an object")
	case v.str("type") == "":
		c.complain(v, "lacks type: field required")
	case v.str("type") == "function":
		c.object(v, kind, name, may("description", orNull(isString)), need("parameters", orNull(schema)), may("strict", orNull(isBool)),
			may("defer_loading", isBool))
		c.declare(v.member("name"))
	case v.str("type") == "custom":
		c.object(v, kind, name, may("description", isString), may("format", isObject), may("defer_loading", isBool))
		c.declare(v.member("name"))
	case v.str("type") == "namespace":
		if tools := v.member("tools"); tools != nil && tools.kind == '[' {
			for _, t := range tools.children {
				responsesTool(c, t)
			}
		}
	case clientTools[v.str("type")] != "":
		c.declared[clientTools[v.str("type")]] = true
	}
}

// clientTools are those that the provider defines and the client runs, by type. A call
// that cannot be told in the type of its own is one of a function of that name.
var clientTools = map[string]string{
	"shell": "shell", "local_shell": "local_shell", "apply_patch": "apply_patch",
	"computer": "computer", "computer_use_preview": "computer",
}
