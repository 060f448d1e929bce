package judge

import (
	"bytes"
	"encoding/base64"
	"image"
	"image/png"
	"strings"
	"testing"
)

// wide, wideGIF and wideWebP are headers of images of that size, in base64.
func wide(width, height int) string {
	var b bytes.Buffer
	if err := png.Encode(&b, image.NewGray(image.Rect(0, 0, width, height))); err != nil {
		panic(err)
	}
	return base64.StdEncoding.EncodeToString(b.Bytes())
}

func wideGIF(width int) string {
	return base64.StdEncoding.EncodeToString([]byte{'G', 'I', 'F', '8', '9', 'a', byte(width), byte(width >> 8), 1, 0, 0, 0, 0})
}

func wideWebP(kind string, width int) string {
	b := make([]byte, 40)
	copy(b, "RIFF")
	copy(b[8:], "WEBP"+kind)
	switch kind {
	case "VP8 ":
		b[26], b[27] = byte(width), byte(width>>8)
	case "VP8L":
		b[21], b[22] = byte(width-1), byte((width-1)>>8)
	default:
		b[24], b[25], b[26] = byte(width-1), byte((width-1)>>8), byte((width-1)>>16)
	}
	return base64.StdEncoding.EncodeToString(b)
}

func TestAnthropic(t *testing.T) {
	const (
		user   = `{"role":"user","content":"x"}`
		call   = user + `,{"role":"assistant","content":[{"type":"text","text":"x "},{"type":"tool_use","id":"a","name":"f","input":{"n":1}}]}`
		two    = user + `,{"role":"assistant","content":[{"type":"tool_use","id":"a","name":"f","input":{}},{"type":"tool_use","id":"b","name":"f","input":{}}]}`
		a      = `{"type":"tool_result","tool_use_id":"a","content":"x"}`
		b      = `{"type":"tool_result","tool_use_id":"b","content":[{"type":"text","text":"x"}],"is_error":true}`
		text   = `{"type":"text","text":"x"}`
		tools  = `{"name":"f","input_schema":{"type":"object"}}`
		search = `{"type":"server_tool_use","id":"srvtoolu_1","name":"web_search","input":{}}`
		found  = `{"type":"web_search_tool_result","tool_use_id":"srvtoolu_1","content":[]}`
		mcp    = `{"type":"mcp_tool_use","id":"m","name":"n","server_name":"s","input":{}}`
		mcpped = `{"type":"mcp_tool_result","tool_use_id":"m","is_error":false,"content":[]}`
	)
	say := func(blocks string) string { return `{"role":"user","content":[` + blocks + `]}` }
	answer := func(blocks string) string { return user + `,{"role":"assistant","content":[` + blocks + `]}` }
	source := func(kind, s string) string { return say(`{"type":"` + kind + `","source":{` + s + `}}`) }
	data := func(kind, media, data string) string {
		return source(kind, `"type":"base64","media_type":"`+media+`","data":"`+data+`"`)
	}
	swap := func(s, old, new string) string { return strings.ReplaceAll(s, old, new) }
	x := func(n int) string { return strings.Repeat("x", n) }
	image := `{"type":"image","source":{"type":"url","url":"https://x"}}`
	block := func(media, data string) string {
		return `{"type":"image","source":{"type":"base64","media_type":"` + media + `","data":"` + data + `"}}`
	}
	judged(t, "anthropic", tools, []verdict{
		{"a role that nobody has", user + `,{"role":"tool","content":"x"}`, user + `,{"role":"assistant","content":"x"}`, "", "must be one of"},
		{"a system message", user + `,{"role":"system","content":"x"}`, user, "", "must be one of"},
		{"no content", `{"role":"user"}`, user, "", "lacks content"},
		{"content of another type", `{"role":"user","content":null}`, user, "", "must be a string or a list of blocks"},
		{"the assistant first", `{"role":"assistant","content":"x"}`, user, "", "first message must use the user role"},
		{"a role twice", user + "," + user, user + `,{"role":"assistant","content":"x"},` + user, "", "roles must alternate"},
		{"no blocks", say(``), say(text), "", "all messages must have non-empty content"},
		{"an empty text", say(`{"type":"text","text":""},` + text), say(text + "," + text), "", "text content blocks must be non-empty"},
		{"an empty string", `{"role":"user","content":""}`, user, "", "text content blocks must be non-empty"},
		{"a blank string", `{"role":"user","content":" \n"}`, `{"role":"user","content":" x "}`, "", "must contain non-whitespace text"},
		{"a text of separators", say(`{"type":"text","text":"\u001f"}`), say(`{"type":"text","text":"\u001fx"}`), "", "must contain non-whitespace text"},
		{"a blank text alone", say(`{"type":"text","text":" "}`), say(`{"type":"text","text":" "},` + text), "", "must contain non-whitespace text"},
		{"a blank text beside an image", say(`{"type":"text","text":"\t"},` + image), say(text + "," + image), "", "must contain non-whitespace text"},
		{"a blank text before thinking", answer(`{"type":"text","text":" "},{"type":"thinking","thinking":"x","signature":"x"}`), answer(`{"type":"thinking","thinking":"x","signature":"x"},{"type":"text","text":" "},{"type":"thinking","thinking":"x","signature":"x"},` + text), "", "must contain non-whitespace text"},
		{"a marked empty text", say(`{"type":"text","text":"","cache_control":{"type":"ephemeral"}},` + text), say(`{"type":"text","text":"x","cache_control":{"type":"ephemeral","ttl":"1h"}}`), "", "marks an empty block"},
		{"a marker of another kind", say(`{"type":"text","text":"x","cache_control":{"type":"long"}}`), say(`{"type":"text","text":"x","cache_control":null}`), "", "must be one of"},
		{"white space at the end", answer(`{"type":"text","text":"x\n"}`), answer(`{"type":"text","text":"x\ny"}`), "", "cannot end with trailing whitespace"},
		{"white space at the end of a string", user + `,{"role":"assistant","content":"x "}`, user + `,{"role":"assistant","content":"x "},` + user, "", "cannot end with trailing whitespace"},
		{"an unknown block", say(`{"type":"video"}`), say(`{"type":"container_upload","file_id":"x"}`), "", "is no type that a user message may hold"},
		{"an image of the assistant", answer(image), say(image), "", "is no type that an assistant message may hold"},
		{"thinking of the user", say(`{"type":"thinking","thinking":"x","signature":"x"}`), answer(`{"type":"thinking","thinking":"","signature":"x"},` + text), "", "is no type that a user message may hold"},
		{"thinking without a signature", answer(`{"type":"thinking","thinking":"x"},` + text), answer(`{"type":"redacted_thinking","data":"x"},` + text), "", "lacks signature: field required"},
		{"thinking with an empty signature", answer(`{"type":"thinking","thinking":"x","signature":""},` + text), answer(`{"type":"thinking","thinking":"x","signature":"x"},` + text), "", "signature must not be empty"},
		{"a marker on thinking", answer(`{"type":"thinking","thinking":"x","signature":"x","cache_control":null}`), answer(text), "", "is no member"},
		{"redacted thinking of nothing", answer(`{"type":"redacted_thinking","data":""},` + text), answer(`{"type":"redacted_thinking","data":"x"},` + text), "", "must not be empty"},
		{"thinking at the end", answer(text + `,{"type":"redacted_thinking","data":"x"}`), answer(`{"type":"redacted_thinking","data":"x"},` + text), "", "the final block in an assistant message cannot be thinking"},
		{"input that is a string", swap(call, `{"n":1}`, `"{}"`) + "," + say(a), call + "," + say(a), "", "input must be an object"},
		{"an id with a sign", swap(call+","+say(a), `"a"`, `"a|b"`), swap(call+","+say(a), `"a"`, `"`+x(500)+`"`), "", "must match ^[a-zA-Z0-9_-]+$"},
		{"an empty id", swap(call+","+say(a), `"a"`, `""`), call + "," + say(a), "", "must match ^[a-zA-Z0-9_-]+$"},
		{"a name with a dot", swap(call, `"f"`, `"f.g"`) + "," + say(a), call + "," + say(a), "", "must match ^[a-zA-Z0-9_-]{1,128}$"},
		{"a name of 129", swap(call, `"f"`, `"`+x(129)+`"`) + "," + say(a), swap(call, `"f"`, `"`+x(128)+`"`) + "," + say(a), swap(tools, `"f"`, `"`+x(128)+`"`), "must match"},
		{"a call of the user", say(`{"type":"tool_use","id":"a","name":"f","input":{}}`), call + "," + say(a), "", "is no type that a user message may hold"},
		{"a result of the assistant", answer(a), call + "," + say(a), "", "is no type that an assistant message may hold"},
		{"a call without a result", call, call + "," + say(a+","+text), "", "without `tool_result` blocks immediately after"},
		{"a call whose result comes late", call + "," + say(text) + `,{"role":"assistant","content":"x"},` + say(a), call + "," + say(a) + `,{"role":"assistant","content":"x"},` + say(text), "", "without `tool_result` blocks immediately after"},
		{"a result without a call", say(a), call + "," + say(a), "", "must have a corresponding `tool_use` block in the previous message"},
		{"results in two messages", two + "," + say(a) + `,{"role":"assistant","content":"x"},` + say(b), two + "," + say(b+","+a), "", "immediately after"},
		{"a result after text", call + "," + say(text+","+a), call + "," + say(a+","+text+","+text), "", "come first in the content"},
		{"two results", call + "," + say(a+","+a), two + "," + say(a+","+b), "", "must have a single result"},
		{"an id twice", call + "," + say(a) + "," + strings.TrimPrefix(call, user+",") + "," + say(a), call + "," + say(a) + "," + swap(strings.TrimPrefix(call, user+","), `"a"`, `"b"`) + "," + say(b), "", "`tool_use` ids must be unique"},
		{"an empty result", call + "," + say(swap(a, `"x"`, `""`)), call + "," + say(swap(a, `,"content":"x"`, ``)), "", "must be non-empty"},
		{"a result of an empty text", call + "," + say(swap(a, `"x"`, `[{"type":"text","text":""}]`)), call + "," + say(swap(a, `"x"`, `[]`)), "", "must be non-empty"},
		{"a blank result", call + "," + say(swap(a, `"x"`, `[{"type":"text","text":" "}]`)), call + "," + say(swap(a, `"x"`, `[{"type":"text","text":" x"}]`)), "", "non-whitespace"},
		{"a result of an unknown block", call + "," + say(swap(a, `"x"`, `[`+search+`]`)), call + "," + say(swap(a, `"x"`, `[`+image+`,{"type":"tool_reference","tool_name":"f"}]`)), "", "is no type that a result may hold"},
		{"an error that is no flag", call + "," + say(swap(a, `"x"`, `"x","is_error":"yes"`)), call + "," + say(swap(a, `"x"`, `"x","is_error":false`)), "", "must be true or false"},
		{"an image of another type", data("image", "image/tiff", "AAAA"), data("image", "image/jpeg", "AAAA"), "", "media_type must be one of"},
		{"an image that is no base64", data("image", "image/png", "AAA"), data("image", "image/png", "AAAA"), "", "is not valid base64"},
		{"an image with line breaks", data("image", "image/png", `AAAA\nAAAA`), data("image", "image/gif", "AAAAAAAA"), "", "is not valid base64"},
		{"an image that is too large", data("image", "image/png", tooLarge), data("image", "image/webp", fits), "", "the limit is 5 MB"},
		{"an image from nowhere", source("image", `"type":"attachment"`), source("image", `"type":"file","file_id":"x"`), "", "is no type that an image may hold"},
		{"an image at no URL", source("image", `"type":"url","url":"ftp://x"`), source("image", `"type":"url","url":"http://x"`), "", "is no URL"},
		{"too many images", say(times(101, image)), say(times(100, image)), "", "at most 100"},
		{"an image that is too wide", data("image", "image/png", wide(8001, 1)), data("image", "image/png", wide(1, 8000)), "", "8001 pixels a side: at most 8000"},
		{"a wide image beside many", say(times(20, image) + "," + block("image/gif", wideGIF(2001))), say(times(20, image) + "," + block("image/gif", wideGIF(2000))), "", "over 2000 pixels a side"},
		{"a wide image beside few", data("image", "image/webp", wideWebP("VP8X", 8001)), say(times(19, image) + "," + block("image/webp", wideWebP("VP8X", 2001))), "", "8001 pixels a side"},
		{"a wide image in its own way", data("image", "image/webp", wideWebP("VP8L", 8001)), data("image", "image/webp", wideWebP("VP8 ", 8000)), "", "8001 pixels a side"},
		{"a document of another type", data("document", "text/html", "AAAA"), data("document", "application/pdf", "AAAA"), "", "media_type must be one of"},
		{"a text that is no text/plain", source("document", `"type":"text","media_type":"text/html","data":"x"`), source("document", `"type":"text","media_type":"text/plain","data":"x"`), "", "must be one of"},
		{"a document of nothing", source("document", `"type":"content","content":[]`), source("document", `"type":"content","content":[`+text+`,`+image+`]`), "", "is empty"},
		{"a document of a blank", source("document", `"type":"content","content":""`), source("document", `"type":"content","content":"x"`), "", "non-empty"},
		{"a document from nowhere", source("document", `"type":"s3"`), source("document", `"type":"url","url":"https://x"`) + `,{"role":"assistant","content":"x"},` + source("document", `"type":"file","file_id":"x"`), "", "is no type that a document may hold"},
		{"a document with other citations", say(`{"type":"document","source":{"type":"file","file_id":"x"},"citations":[]}`), say(`{"type":"document","source":{"type":"file","file_id":"x"},"title":"t","context":null,"citations":{"enabled":true}}`), "", "must be an object"},
		{"too many documents", say(times(101, `{"type":"document","source":{"type":"file","file_id":"x"}}`)), say(times(100, `{"type":"document","source":{"type":"file","file_id":"x"}}`)), "", "0 + 101 > 100"},
		{"documents beside many images", say(times(100, image) + `,{"type":"document","source":{"type":"file","file_id":"x"}}`), say(times(100, image)), "", "100 + 1 > 100"},
		{"a title that is too long", say(`{"type":"document","source":{"type":"file","file_id":"x"},"title":"` + strings.Repeat("é", maxTitle+1) + `"}`), say(`{"type":"document","source":{"type":"file","file_id":"x"},"title":"` + strings.Repeat("é", maxTitle) + `"}`), "", "maximum length 500"},
		{"a title of nothing", say(`{"type":"document","source":{"type":"file","file_id":"x"},"title":""}`), say(`{"type":"document","source":{"type":"file","file_id":"x"},"title":null}`), "", "must not be empty"},
		{"a search result of an image", say(`{"type":"search_result","source":"s","title":"t","content":[` + image + `]}`), say(`{"type":"search_result","source":"s","title":"t","content":[` + text + `]}`), "", "is no type that a search result may hold"},
		{"a search by the user", say(search + "," + found), answer(search + "," + found + "," + text), "", "is no type that a user message may hold"},
		{"a search without a result", answer(search), answer(search + "," + found), "", "has no result in the same message"},
		{"a result without a search", answer(found), answer(search + "," + found + `,{"type":"text","text":"x","citations":[]}`), "", "has no call before it in the same message"},
		{"a result before its search", answer(found + "," + search), answer(search + "," + found), "", "has no call before it"},
		{"a search with another id", answer(swap(search+","+found, "srvtoolu_1", "toolu_1")), answer(search + "," + found), "", "must match ^srvtoolu_"},
		{"a search of another name", answer(swap(search, `"web_search"`, `"look"`) + "," + found), answer(swap(search, `"web_search"`, `"tool_search_tool_regex"`) + "," + swap(swap(found, "web_search", "tool_search"), "[]", `{"type":"tool_search_tool_search_result","tool_references":[]}`)), "", "must be one of"},
		{"a result of another tool", answer(search + "," + swap(swap(found, "web_search", "web_fetch"), "[]", `{"type":"web_fetch_tool_result_error","error_code":"x"}`)), answer(swap(search, "web_search", "web_fetch") + "," + swap(swap(found, "web_search", "web_fetch"), "[]", `{"type":"web_fetch_tool_result_error","error_code":"x"}`)), "", "has no call before it"},
		{"what a search found without its encrypted part", answer(search + "," + swap(found, "[]", `[{"type":"web_search_result","url":"u","title":"t"}]`)), answer(search + "," + swap(found, "[]", `[{"type":"web_search_result","url":"u","title":"t","encrypted_content":"e","page_age":null}]`)), "", "lacks encrypted_content"},
		{"what a search found in another form", answer(search + "," + swap(found, "[]", `"x"`)), answer(search + "," + swap(found, "[]", `{"type":"web_search_tool_result_error","error_code":"unavailable"}`)), "", "must be a list"},
		{"what code gave in another form", answer(swap(search, "web_search", "code_execution") + "," + swap(swap(found, "web_search", "code_execution"), "[]", "{}")), answer(swap(search, "web_search", "code_execution") + "," + swap(swap(found, "web_search", "code_execution"), "[]", `{"type":"code_execution_result","stdout":"","stderr":"","return_code":0,"content":[]}`)), "", "lacks type"},
		{"an MCP result to a search", answer(search + "," + swap(mcpped, `"m"`, `"srvtoolu_1"`)), answer(mcp + "," + mcpped), "", "has no call before it"},
		{"an MCP call without a server", answer(swap(mcp, `"server_name":"s",`, ``) + "," + mcpped), answer(mcp + "," + swap(mcpped, `[]`, `[`+text+`]`)), "", "lacks server_name"},
		{"an empty compaction", answer(`{"type":"compaction","content":""},` + text), answer(`{"type":"compaction","content":null},{"type":"compaction","content":"x","encrypted_content":"y"},` + text), "", "must not be empty"},
	})
	large := data("document", "application/pdf", strings.Repeat("AAAA", maxFile/3+1))
	refused(t, Check("anthropic", []byte("["+large+"]"), nil, nil), "a large PDF", "the limit is 32 MB")
}
