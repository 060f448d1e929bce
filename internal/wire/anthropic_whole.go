package wire

import (
	"encoding/base64"
	"encoding/json/jsontext"
	"slices"
	"strings"

	"historyd/internal/history"
	"historyd/internal/strictjson"
)

// whole reports whether a block of a known type has what the provider asks of it. What
// it made has; a native client may have written anything.
func whole(block jsontext.Value, typ string) bool {
	full := func(names ...string) bool {
		return !slices.ContainsFunc(names, func(name string) bool { return textOf(block, name) == "" })
	}
	switch content := memberNamed(block, "content"); typ {
	case "server_tool_use":
		return full("id", "name") && strings.HasPrefix(textOf(block, "id"), "srvtoolu_") &&
			anthropicIDs.legal(textOf(block, "id")) && kindOf(block, "input") == '{'
	case "mcp_tool_use":
		return full("id", "name", "server_name") && anthropicIDs.legal(textOf(block, "id")) && kindOf(block, "input") == '{'
	case "mcp_tool_result":
		return full("tool_use_id") && (content.Raw == nil || string(content.Raw) == "[]" || says(content, "text"))
	case "search_result":
		return full("source", "title") && content.Kind() == '[' && says(content, "text")
	case "container_upload":
		return full("file_id")
	case "compaction":
		return content.IsNull() || content.Kind() == '"' && full("content")
	case "web_search_tool_result":
		return full("tool_use_id") && (failed(content) || allFound(content))
	default:
		return !strings.HasSuffix(typ, "_tool_result") || full("tool_use_id") && typed(content)
	}
}

// typed reports whether content is an object with a type, as the results of the
// provider's tools are, and so are their errors.
func typed(content strictjson.Value) bool {
	return content.Kind() == '{' && textOf(content.Raw, "type") != ""
}

// failed reports whether content is the error of a search.
func failed(content strictjson.Value) bool {
	return content.Kind() == '{' && textOf(content.Raw, "type") == "web_search_tool_result_error" && textOf(content.Raw, "error_code") != ""
}

// allFound reports whether content is a list of what a search found. Its encrypted part
// is what the provider reads.
func allFound(content strictjson.Value) bool {
	if content.Kind() != '[' {
		return false
	}
	for _, e := range content.Elements() {
		if textOf(e.Raw, "type") != "web_search_result" || kindOf(e.Raw, "url") != '"' || kindOf(e.Raw, "title") != '"' || textOf(e.Raw, "encrypted_content") == "" {
			return false
		}
	}
	return true
}

// says reports whether content is a text, or blocks of those types, that says something.
func says(content strictjson.Value, types ...string) bool {
	if s, ok := content.Text(); ok {
		return !blank(s)
	}
	if content.Kind() != '[' {
		return false
	}
	something := false
	for _, e := range content.Elements() {
		typ, text := textOf(e.Raw, "type"), textOf(e.Raw, "text")
		if !slices.Contains(types, typ) || typ == "text" && text == "" || typ == "image" && !sourced(e.Raw) {
			return false
		}
		something = something || typ != "text" || !blank(text)
	}
	return something
}

// sourced reports whether an image inside of a document has bytes, or says where they are.
func sourced(image jsontext.Value) bool {
	source := memberNamed(image, "source").Raw
	switch textOf(source, "type") {
	case "base64":
		kind, text := textOf(source, "media_type"), textOf(source, "data")
		// The decoder passes line ends over, the provider does not.
		if !slices.Contains(imageTypes, kind) || len(text) > maxMediaSize || strings.ContainsAny(text, "\r\n") {
			return false
		}
		data, err := base64.StdEncoding.Strict().DecodeString(text)
		// The provider counts it among the images of the request, of which there may be many.
		return err == nil && len(data) > 0 && side(&history.Block{Type: history.ImageBlock, MediaType: kind, Data: data}) <= manySide
	case "url":
		return webURL(textOf(source, "url"))
	case "file":
		return textOf(source, "file_id") != ""
	}
	return false
}
