package recall

import (
	"encoding/json/jsontext"
	"encoding/json/v2"
	"os"
	"slices"
	"strings"
	"testing"

	"historyd/internal/history"
	"historyd/test/samples"
)

// A labelled question is what somebody might ask, and the messages that answer it.
type labelled struct {
	text    string
	answers []string // "conversation/seq"
}

func questions(t *testing.T) []labelled {
	t.Helper()
	text, err := os.ReadFile("testdata/questions.txt")
	if err != nil {
		t.Fatal(err)
	}
	var all []labelled
	for line := range strings.Lines(string(text)) {
		if line = strings.TrimSpace(line); line == "" || line[0] == '#' {
			continue
		}
		answers, asked, _ := strings.Cut(line, " ")
		all = append(all, labelled{asked, strings.Split(answers, ",")})
	}
	return all
}

// airline stores the sample conversations, which lie beside the repository. A message's seq is its place in them.
func airline(t *testing.T, s *shelf) {
	t.Helper()
	scope := scopeNamed(t, "airline")
	for _, line := range samples.Need(t) {
		var given struct {
			Conversation string `json:"conversation"`
			Messages     []struct {
				Role    history.Role `json:"role"`
				Content *string      `json:"content"`
				CallID  string       `json:"tool_call_id"`
				Calls   []struct {
					ID       string `json:"id"`
					Function struct {
						Name      string `json:"name"`
						Arguments string `json:"arguments"`
					} `json:"function"`
				} `json:"tool_calls"`
			} `json:"messages"`
		}
		if err := json.Unmarshal(line, &given); err != nil {
			t.Fatal(err)
		}
		var batch history.Batch
		for _, g := range given.Messages {
			m := history.Message{Role: g.Role, Status: history.Complete}
			if g.Role == history.User {
				m.Kind = history.Person
			}
			if g.Content != nil && *g.Content != "" {
				m.Content = []history.Block{history.Text(*g.Content)}
			}
			for _, c := range g.Calls {
				m.Content = append(m.Content, history.Block{
					Type: history.ToolCall, ID: c.ID, Name: c.Function.Name, Arguments: jsontext.Value(c.Function.Arguments),
				})
			}
			if g.Role == history.Tool {
				m.Content = []history.Block{{Type: history.ToolResult, CallID: g.CallID, Content: m.Content, Plain: true}}
			}
			batch.Messages = append(batch.Messages, m)
		}
		s.append(scope, given.Conversation, batch)
	}
	if res := s.search(scope, Query{Text: "flight"}); res.Behind {
		t.Fatal("the sample conversations are not indexed")
	}
}

func TestQuestionsFindTheirAnswersAmongTheFirstFive(t *testing.T) {
	s := newShelf(t)
	airline(t, s)
	scope := scopeNamed(t, "airline")
	all := questions(t)
	if len(all) < 60 {
		t.Fatalf("questions: got %d, want at least 60", len(all))
	}
	found := 0
	for _, q := range all {
		got := hitPlaces(s.search(scope, Query{Text: q.text, Plain: true, Limit: 5}))
		if slices.ContainsFunc(got, func(place string) bool { return slices.Contains(q.answers, place) }) {
			found++
		} else {
			t.Logf("%q: got %q, want one of %q", q.text, got, q.answers)
		}
	}
	recall := float64(found) / float64(len(all))
	t.Logf("recall@5: %d of %d questions, %.3f", found, len(all), recall)
	if recall < 0.9 {
		t.Errorf("recall@5: got %.3f, want at least 0.9", recall)
	}
}
