package wire

import (
	"encoding/base64"
	"encoding/json/jsontext"
	"slices"
	"strings"

	"historyd/internal/history"
	"historyd/internal/strictjson"
)

// How a content of Gemini lies in the model:
//
//	role model             role assistant; one empty text when there are no parts
//	role user, function,   role tool for each run of functionResponse parts, role user
//	or none                for the parts between; all but the first marked "more"
//	text                   text; with thought true thinking
//	functionCall           tool_call;   thoughtSignature in signature
//	functionResponse       tool_result; its name in extra; a response that is nothing but a
//	                       string as result, output or error is that text, and so is a string;
//	                       any other is its compact JSON as text
//	inlineData, fileData   image, audio or document, by mimeType
//	toolCall, toolResponse opaque, the part with serverToolCall or serverToolResponse instead
//	all other parts        opaque, data = the part
//	everything else        extra of the message or block, under its own name
//
// A mark in extra has what the model has no member for, such as an id that was not
// there. Names in snake_case, as one of the provider's libraries writes them, become
// camelCase. Bytes come back in standard base64, signatures as they were written.
// All else that came in comes back as the same JSON values.

// geminiProvider is whose format it is, and marks opaque blocks that it made.
const geminiProvider = "google"

// geminiMark is the member of an extra that is ours; nobody may send it in a content.
const geminiMark = "_gemini"

// Tools that the provider runs itself have parts with names by which others carry calls
// of the client's tools, so they are kept under names that tell them apart.
const (
	serverToolCall     = "serverToolCall"
	serverToolResponse = "serverToolResponse"
)

var (
	geminiMembers = []string{"role", "parts"}
	// geminiData are the members of a part of which it has one.
	geminiData = []string{
		"text", "inlineData", "fileData", "functionCall", "functionResponse",
		"executableCode", "codeExecutionResult", "toolCall", "toolResponse",
	}
	geminiModifiers = []string{
		"thought", "thoughtSignature", "videoMetadata", "partMetadata", "mediaResolution",
		"mediaProcessing", "audioTranscription", "speechMetadata",
	}
	geminiPartMembers         = append(slices.Clone(geminiData), geminiModifiers...)
	geminiCallMembers         = []string{"id", "name", "args", "partialArgs", "willContinue"}
	geminiResponseMembers     = []string{"id", "name", "response", "parts", "scheduling", "willContinue"}
	geminiResponsePartMembers = []string{"inlineData", "fileData", "mediaProcessing"}
	geminiBlobMembers         = []string{"mimeType", "data", "displayName"}
	geminiFileMembers         = []string{"mimeType", "fileUri", "displayName"}
	// geminiServerMembers are those of what is kept whole, whose names must be one way only.
	geminiServerMembers = map[string][]string{
		"executableCode":      {"id", "language", "code"},
		"codeExecutionResult": {"id", "outcome", "output"},
		"toolCall":            {"id", "toolType", "args"},
		"toolResponse":        {"id", "toolType", "response"},
	}
)

// geminiCodec speaks the contents of Gemini.
type geminiCodec struct{}

func (geminiCodec) lists() []string { return []string{"contents"} }

func (geminiCodec) provider() string { return geminiProvider }

func (geminiCodec) exporter() exporter { return &geminiExporter{} }

// toolNames takes an element that declares functions, or has the provider's own tools.
func (geminiCodec) toolNames(tool strictjson.Value) ([]string, bool) {
	if tool.Kind() != '{' {
		return nil, false
	}
	var names []string
	for member, v := range tool.Members() {
		if geminiFold(member) != "functiondeclarations" || v.IsNull() {
			continue
		}
		if v.Kind() != '[' {
			return nil, false
		}
		for _, e := range v.Elements() {
			name, ok := memberNamed(e.Raw, "name").Text()
			if !ok {
				return nil, false
			}
			names = append(names, name)
		}
	}
	return names, true
}

// geminiFold makes the spellings of one name alike.
func geminiFold(name string) string {
	return strings.NewReplacer("_", "", "-", "").Replace(strings.ToLower(strings.ToUpper(name)))
}

// geminiName returns the known name that a member has, or has in snake_case; clash
// tells of one that is only similar to a known name.
func geminiName(name string, known []string) (canonical string, clash bool) {
	if slices.Contains(known, name) {
		return name, false
	}
	folded := geminiFold(name)
	for _, k := range known {
		if geminiFold(k) == folded {
			return k, name != snake(k)
		}
	}
	return "", false
}

func snake(camel string) string {
	var b strings.Builder
	for _, r := range camel {
		if 'A' <= r && r <= 'Z' {
			b.WriteByte('_')
			r += 'a' - 'A'
		}
		b.WriteRune(r)
	}
	return b.String()
}

// geminiObject walks an object. Known members go to set, by their names in camelCase;
// those of them that it wants kept, and all unknown ones, are gathered. v is an object.
func (d *decoder) geminiObject(v strictjson.Value, path string, known []string, set func(string, strictjson.Value) (keep bool)) extra {
	var e extra
	var seen []string
	for name, m := range v.Members() {
		switch canonical, clash := geminiName(name, known); {
		case clash:
			d.faults.Add(path+"."+canonical, history.CodeInvalidJSON, m.Offset, "the name of this member is written in another way")
		case canonical == "":
			e.add(name, m.Compact())
		case slices.Contains(seen, canonical):
			d.faults.Add(path+"."+canonical, history.CodeInvalidJSON, m.Offset, "this member is there twice, in two spellings")
		default:
			seen = append(seen, canonical)
			if set(canonical, m) {
				e.add(canonical, m.Compact())
			}
		}
	}
	return e
}

// marked returns an extra with a mark of ours in it.
func (e extra) marked(mark extra) jsontext.Value {
	if mark != nil {
		e.add(geminiMark, mark.value())
	}
	return e.value()
}

// geminiMarkOf returns the mark in an extra, an object, or nil.
func geminiMarkOf(extra jsontext.Value) jsontext.Value {
	if extra == nil {
		return nil
	}
	return objectOf(memberNamed(extra, geminiMark))
}

// isFalse reports whether a mark says that a member was not there.
func isFalse(mark jsontext.Value, name string) bool { return kindOf(mark, name) == 'f' }

func isTrue(mark jsontext.Value, name string) bool { return kindOf(mark, name) == 't' }

// geminiBytes reads base64 of either alphabet, with or without its padding.
func geminiBytes(text string) ([]byte, bool) {
	if strings.ContainsAny(text, "-_") {
		text = strings.NewReplacer("-", "+", "_", "/").Replace(text)
	}
	text = strings.TrimSuffix(strings.TrimSuffix(text, "="), "=")
	if text == "" || strings.ContainsAny(text, "\r\n") {
		return nil, false
	}
	data, err := base64.RawStdEncoding.Strict().DecodeString(text)
	return data, err == nil
}
