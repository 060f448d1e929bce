package fault

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
	"testing"
)

// canary stands in arguments and results of a tool whose category is withheld, and nowhere else.
const canary = "zqcanary"

// named finds the names of batches, wherever they stand.
var named = regexp.MustCompile(`\bq[0-9]{6}z\b`)

// nameOf is a word that stands nowhere else.
func nameOf(n int64) string { return fmt.Sprintf("q%06dz", n) }

type object = map[string]any

// made makes the messages of a batch. The same name and number make the same messages.
func made(b batch) []object {
	var messages []object
	for i := range b.n {
		text := text(b, i)
		block := []object{{"type": "text", "text": text}}
		switch {
		case i == 0:
			for _, picture := range pictures(b) {
				data := base64.StdEncoding.EncodeToString([]byte(picture))
				block = append(block, object{"type": "image", "media_type": "image/png", "data": data})
			}
			messages = append(messages, object{"role": "user", "content": block})
		case i == 1 && b.n > 2:
			block = append(block, object{"type": "tool_call", "id": callOf(b), "name": "pay", "arguments": object{"to": canary + b.name}})
			messages = append(messages, object{"role": "assistant", "content": block})
		case i == 2:
			result := object{"type": "tool_result", "call_id": callOf(b), "content": "paid to " + canary + b.name}
			messages = append(messages, object{"role": "tool", "content": []object{result}})
		default:
			messages = append(messages, object{"role": "assistant", "content": block})
		}
	}
	return messages
}

// pictures are the bytes of those that a batch has, some of them: its own, and one that others have, too.
func pictures(b batch) []string {
	if !strings.HasSuffix(b.name, "7z") {
		return nil
	}
	return []string{"a picture that many show", "a picture of " + b.name}
}

func callOf(b batch) string { return fmt.Sprintf("%s 3/%d", b.name, b.n) }

func text(b batch, i int) string {
	return fmt.Sprintf("%s %d/%d %s", b.name, i+1, b.n, strings.Repeat(b.name[4:6], 10*i))
}

// body is an append or, of several batches, the document of an import, whose messages have ids.
func body(t testing.TB, doc bool, batches ...batch) []byte {
	v := object{"tool_categories": object{"pay": "wallet"}}
	var messages []object
	for _, b := range batches {
		for i, m := range made(b) {
			if doc {
				m["id"] = fmt.Sprint(b.name, "-", i)
			}
			messages = append(messages, m)
		}
	}
	if doc {
		v["version"], v["type"] = 1, "historyd.history"
	}
	v["messages"] = messages
	return encode(t, v)
}

// message is what is read of one.
type message struct {
	ID      string
	Seq     int64
	Role    string
	Kind    string
	Rewound bool
	// Synthetic is what the server made.
	Synthetic bool
	Metadata  struct {
		Recall struct{ Query string }
	}
	Content []struct {
		Type      string
		Text      string
		CallID    string `json:"call_id"`
		Arguments json.RawMessage
	}
}

// parse finds out which message of which batch it is, and whether it is as it was sent.
func (m *message) parse() (b batch, i int, err error) {
	if len(m.Content) == 0 {
		return b, 0, fmt.Errorf("message %d is empty", m.Seq)
	}
	if name, ok := m.note(); ok {
		return batch{name, 1}, 1, nil
	}
	first := m.Content[0]
	says := first.Text
	if first.Type == "tool_result" {
		says = first.CallID
	}
	if _, err := fmt.Sscanf(says, "%s %d/%d", &b.name, &i, &b.n); err != nil {
		return b, 0, fmt.Errorf("message %d says %.100q", m.Seq, says)
	}
	if first.Type == "text" && first.Text != text(b, i-1) {
		return b, 0, fmt.Errorf("message %d says %.200q, want %.200q", m.Seq, first.Text, text(b, i-1))
	}
	return b, i, nil
}

// gather makes batches of the messages of a conversation, which begins with seq 1 and has no gap.
func gather(messages []message) ([]placed, error) {
	var found []placed
	next := 0 // message of the last batch
	for at, m := range messages {
		b, i, err := m.parse()
		if err != nil {
			return nil, err
		}
		if m.Seq != int64(at+1) {
			return nil, fmt.Errorf("seq %d stands at place %d", m.Seq, at+1)
		}
		if i == 1 && next == 0 {
			found = append(found, placed{b, m.Seq, m.Rewound})
		}
		if i != next+1 || found[len(found)-1].batch != b || found[len(found)-1].rewound != m.Rewound {
			return nil, fmt.Errorf("torn: %s %d/%d (rewound %t) follows %v and its message %d", b.name, i, b.n, m.Rewound, found, next)
		}
		if next = i; i == b.n {
			next = 0
		}
	}
	if next != 0 {
		return nil, fmt.Errorf("torn: the last of %v ends after message %d", found, next)
	}
	return found, nil
}
