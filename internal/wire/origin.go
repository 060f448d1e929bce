package wire

import (
	"encoding/json/jsontext"
	"slices"

	"historyd/internal/history"
)

// A message may have come in another format than the one that an export writes. Its
// extras hold that format's members then, and our marks of what stood there: they mean
// nothing here, and do not go out. Who answered does not tell, for one provider's answers
// are kept in another's format, too. So marks tell, and a message without any, whose
// members may be of any format, keeps them all: nothing of it may be lost where it came from.

// origins is a set of formats.
type origins uint8

const (
	fromOpenAI origins = 1 << iota
	fromAnthropic
	fromResponses
	fromGemini
	fromSiblings // OpenAI or Responses
)

func originOf(f Format) origins {
	return map[Format]origins{OpenAI: fromOpenAI, Anthropic: fromAnthropic, Responses: fromResponses, Gemini: fromGemini}[f]
}

// geminiAlone are members of parts that no other format has under such names.
var geminiAlone = []string{
	"thoughtSignature", "videoMetadata", "partMetadata", "mediaResolution", "mediaProcessing", "audioTranscription", "speechMetadata",
}

// responsesTypes are those that the decoder of Responses leaves in the extra of blocks.
var responsesTypes = map[history.BlockType][]string{
	history.TextBlock:     append([]string{"stdout", "stderr"}, textParts...),
	history.ImageBlock:    {"input_image", "computer_screenshot", "image_generation_call"},
	history.DocumentBlock: {"input_file"},
	history.AudioBlock:    {"input_audio"},
	history.ToolResult:    {"custom"},
}

// foreign reports whether a message came in a format other than f.
func foreign(f Format, m *history.Message) bool {
	marks := messageMarks(m.Extra)
	for i := range m.Content {
		marks |= blockMarks(&m.Content[i])
	}
	if marks == fromSiblings {
		return !siblings(f)
	}
	return marks != 0 && marks&originOf(f) == 0
}

func messageMarks(extra jsontext.Value) (marks origins) {
	if extra == nil {
		return 0
	}
	if geminiMarkOf(extra) != nil {
		marks |= fromGemini
	}
	if mark := memberNamed(extra, anthropicMark); mark.Kind() == '{' {
		for _, name := range []string{joinedMark, listMark, emptyMark} {
			if kindOf(mark.Raw, name) == 't' {
				marks |= fromAnthropic
			}
		}
	}
	switch textOf(extra, "role") {
	case "developer":
		marks |= fromSiblings
	case "function":
		marks |= fromOpenAI
	}
	if textOf(extra, "type") == typeless {
		marks |= fromResponses
	}
	if k := kindOf(extra, "content"); k == 'n' || k == 'f' || k == '[' {
		marks |= fromOpenAI
	}
	return marks
}

func blockMarks(b *history.Block) (marks origins) {
	for i := range b.Content {
		marks |= blockMarks(&b.Content[i])
	}
	switch {
	case b.Type != history.OpaqueBlock:
	case b.Provider == anthropicProvider:
		marks |= fromAnthropic
	case b.Provider == geminiProvider:
		marks |= fromGemini
	case isItem(b):
		marks |= fromResponses
	case b.Provider == openAIProvider:
		marks |= fromSiblings
	}
	if b.Extra == nil {
		return marks
	}
	if geminiMarkOf(b.Extra) != nil {
		marks |= fromGemini
	}
	kind := textOf(b.Extra, "type")
	switch member := textOf(b.Extra, "member"); {
	case slices.Contains(vendorMembers, member), member == "audio", member == "refusal":
		marks |= fromOpenAI
	case b.Type == history.ThinkingBlock && kind == redactedThinking:
		marks |= fromAnthropic
	case b.Type == history.ToolCall && kind == "custom":
		marks |= fromSiblings
	case b.Type == history.ToolCall && kind != "" && b.Name == "" && doingOf(kind) == nil:
		marks |= fromOpenAI
	case doingOf(kind) != nil, slices.Contains(responsesTypes[b.Type], kind):
		marks |= fromResponses
	case b.Type == history.ToolCall && kindOf(b.Extra, "id") == '"': // that of a call lies elsewhere in other formats
		marks |= fromResponses
	}
	for _, level := range levelMembers {
		if b.Type == history.ToolCall && kindOf(b.Extra, level) == '{' {
			marks |= fromOpenAI
		}
	}
	if phase := textOf(b.Extra, "phase"); phase == "commentary" || phase == "final_answer" {
		marks |= fromResponses
	}
	for name := range membersOf(b.Extra) {
		if slices.Contains(geminiAlone, name) {
			marks |= fromGemini
		}
	}
	return marks
}

// siblings are of one provider, and share some marks.
func siblings(f Format) bool { return f == OpenAI || f == Responses }

// translated returns what an export in f writes of a message that came in another
// format: what is the same in both.
func translated(f Format, m *history.Message) *history.Message {
	copied := *m
	copied.Extra = nil
	if role := memberNamed(m.Extra, "role"); siblings(f) && string(role.Raw) == `"developer"` {
		copied.Extra = jsontext.Value(`{"role":"developer"}`)
	}
	copied.Content = plainBlocks(m.Content, siblings(f))
	return &copied
}

// plainBlocks returns blocks without their extras. Among siblings those of opaque ones
// say what they are.
func plainBlocks(blocks []history.Block, sibling bool) []history.Block {
	out := slices.Clone(blocks)
	for i := range out {
		b := &out[i]
		switch {
		case b.Type == history.OpaqueBlock && sibling:
		case b.Type == history.ToolCall && sibling && textOf(b.Extra, "type") == "custom":
			b.Extra = jsontext.Value(`{"type":"custom"}`)
		default:
			b.Extra = nil
		}
		if b.Content != nil {
			b.Content = plainBlocks(b.Content, sibling)
		}
	}
	return out
}
