package replay

import (
	"fmt"
	"slices"
	"strings"

	"historyd/internal/history"
)

// mark gives every text that is said, and every result, words that are nowhere else.
func (m *Mutator) mark() {
	said, result := 0, 0
	for i := range m.msgs {
		msg := &m.msgs[i]
		if msg.Role == history.System {
			continue
		}
		for j := range msg.Content {
			switch b := &msg.Content[j]; {
			case b.Type == history.TextBlock && strings.TrimSpace(b.Text) != "":
				said++
				b.Text = fmt.Sprintf("[[said %d]] %s", said, b.Text)
			case b.Type == history.OpaqueBlock && strings.Contains(string(b.Opaque), "words of another"):
				said++
				b.Opaque = []byte(strings.Replace(string(b.Opaque), "words of another", fmt.Sprintf("[[said %d]] refused", said), 1))
			case b.Type == history.ToolResult:
				result++
				b.Content = append([]history.Block{history.Text(fmt.Sprintf("[[result %d]]", result))}, slices.Clone(b.Content)...)
				if b.Plain {
					b.Content = []history.Block{history.Text(b.Content[0].Text + " " + b.Content[1].Text)}
				}
			}
		}
	}
}

// Said lists the marks of what users and assistants said, in order.
func Said(msgs []history.Message) []string {
	var out []string
	for i := range msgs {
		for j := range msgs[i].Content {
			b := &msgs[i].Content[j]
			if mark := markIn(b.Text, "[[said "); b.Type == history.TextBlock && mark != "" {
				out = append(out, mark)
			}
			if mark := markIn(string(b.Opaque), "[[said "); mark != "" {
				out = append(out, mark)
			}
		}
	}
	return out
}

// A Result is one that a record holds.
type Result struct {
	Mark string
	// Answers tells that an earlier call waited for it.
	Answers bool
	// Early tells that it stands before the first call of its id, and Due that the only
	// call of the id has no other.
	Early, Due bool
}

// Results lists the results in order, with what the record says of them: each answers
// the nearest earlier call of its id that has no result yet. It also counts the calls.
func Results(msgs []history.Message) (out []Result, calls int) {
	made, answered := map[string]int{}, map[string]int{}
	early := map[string]int{} // the first such result
	for i := range msgs {
		for j := range msgs[i].Content {
			switch b := &msgs[i].Content[j]; b.Type {
			case history.ToolCall:
				calls++
				made[b.ID]++
			case history.ToolResult:
				r := Result{Mark: markIn(b.Content[0].Text, "[[result "), Answers: made[b.CallID] > answered[b.CallID], Early: made[b.CallID] == 0}
				if r.Answers {
					answered[b.CallID]++
				}
				if _, there := early[b.CallID]; r.Early && !there {
					early[b.CallID] = len(out)
				}
				out = append(out, r)
			}
		}
	}
	for id, first := range early {
		out[first].Due = made[id] == 1 && answered[id] == 0
	}
	return out, calls
}

func markIn(text, begin string) string {
	_, rest, there := strings.Cut(text, begin)
	number, _, end := strings.Cut(rest, "]]")
	if !there || !end {
		return ""
	}
	return begin + number + "]]"
}
