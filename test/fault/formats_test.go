package fault

import (
	"testing"
)

// formatOf is the format that a batch is appended in, the same whenever it is sent.
func formatOf(b batch) string {
	switch format := []string{"native", "openai", "native", "anthropic", "native", "gemini", "native", "responses"}[(b.name[5]+b.name[6])%8]; {
	case format == "responses" && b.n > 2: // where a call is a message of its own
		return "native"
	default:
		return format
	}
}

// turns is an append in the format of the batch.
func turns(t testing.TB, b batch) []byte {
	var messages []object
	for _, m := range made(b) {
		messages = append(messages, inFormat(t, formatOf(b), m))
	}
	return encode(t, object{"messages": messages, "tool_categories": object{"pay": "wallet"}})
}

// inFormat writes a message that made made as a provider does.
func inFormat(t testing.TB, format string, m object) object {
	role, blocks := m["role"], m["content"].([]object)
	var parts, calls []object
	for _, b := range blocks {
		switch format {
		case "openai":
			switch b["type"] {
			case "tool_call":
				function := object{"name": b["name"], "arguments": string(encode(t, b["arguments"]))}
				calls = append(calls, object{"id": b["id"], "type": "function", "function": function})
			case "tool_result":
				return object{"role": role, "tool_call_id": b["call_id"], "content": b["content"]}
			case "image":
				parts = append(parts, object{"type": "image_url", "image_url": object{"url": urlOf(b)}})
			default:
				parts = append(parts, b)
			}
		case "anthropic":
			parts = append(parts, ofAnthropic(b))
		case "gemini":
			parts = append(parts, ofGemini(b))
		case "responses":
			parts = append(parts, ofResponses(role, b))
		}
	}
	switch {
	case format == "native":
		return m
	case format == "gemini":
		return object{"role": map[any]string{"user": "user", "assistant": "model", "tool": "user"}[role], "parts": parts}
	case role == "tool":
		return object{"role": "user", "content": parts}
	case calls != nil:
		return object{"role": role, "content": parts, "tool_calls": calls}
	}
	return object{"role": role, "content": parts}
}

func urlOf(b object) string {
	return "data:" + b["media_type"].(string) + ";base64," + b["data"].(string)
}

func ofAnthropic(b object) object {
	switch b["type"] {
	case "tool_call":
		return object{"type": "tool_use", "id": b["id"], "name": b["name"], "input": b["arguments"]}
	case "tool_result":
		return object{"type": "tool_result", "tool_use_id": b["call_id"], "content": b["content"]}
	case "image":
		return object{"type": "image", "source": object{"type": "base64", "media_type": b["media_type"], "data": b["data"]}}
	}
	return b
}

func ofGemini(b object) object {
	switch b["type"] {
	case "tool_call":
		return object{"functionCall": object{"id": b["id"], "name": b["name"], "args": b["arguments"]}}
	case "tool_result":
		return object{"functionResponse": object{"id": b["call_id"], "name": "pay", "response": object{"result": b["content"]}}}
	case "image":
		return object{"inlineData": object{"mimeType": b["media_type"], "data": b["data"]}}
	}
	return object{"text": b["text"]}
}

func ofResponses(role any, b object) object {
	switch {
	case b["type"] == "image":
		return object{"type": "input_image", "image_url": urlOf(b)}
	case role == "assistant":
		return object{"type": "output_text", "text": b["text"]}
	}
	return object{"type": "input_text", "text": b["text"]}
}
