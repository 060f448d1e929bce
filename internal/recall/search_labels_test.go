package recall

import (
	"encoding/json/jsontext"
	"encoding/json/v2"
	"fmt"
	"os"
	"path/filepath"
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

func questions(t *testing.T, file string) []labelled {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", file))
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

// Questions whose words stand in the answer find it, asked as a person would and as a recall asks. Of those in other
// words a search by words finds some: how many is held here, so that no change of ranking loses them unseen. Ranking is
// tuned to every other question of the three files taken as one, from the first; the others tell what that is worth.
func TestQuestionsFindTheirAnswersAmongTheFirstFive(t *testing.T) {
	s := newShelf(t)
	airline(t, s)
	scope := scopeNamed(t, "airline")
	for _, plain := range []bool{true, false} {
		t.Run(fmt.Sprintf("plain=%t", plain), func(t *testing.T) {
			var half [2]tally
			n := 0
			for _, tt := range []struct {
				file             string
				questions, found int // at least
			}{
				{"questions.txt", 77, 71}, {"everyday.txt", 50, 31}, {"more.txt", 70, 47},
			} {
				var file tally
				for _, q := range questions(t, tt.file) {
					got := hitPlaces(s.search(scope, Query{Text: q.text, Plain: plain, Limit: 5}))
					found := slices.ContainsFunc(got, func(place string) bool { return slices.Contains(q.answers, place) })
					if !found {
						t.Logf("%s: %q: got %q, want one of %q", tt.file, q.text, got, q.answers)
					}
					file.add(found)
					half[n%2].add(found)
					n++
				}
				file.atLeast(t, tt.file, tt.questions, tt.found)
			}
			half[0].atLeast(t, "tuned to", 99, 81)
			half[1].atLeast(t, "not tuned to", 98, 69)
		})
	}
}

// A tally counts the questions whose answers were found.
type tally struct{ questions, found int }

func (a *tally) add(found bool) {
	a.questions++
	if found {
		a.found++
	}
}

func (a *tally) atLeast(t *testing.T, of string, questions, found int) {
	t.Helper()
	t.Logf("%s: recall@5 %.3f, %d of %d questions", of, float64(a.found)/float64(a.questions), a.found, a.questions)
	if a.questions < questions || a.found < found {
		t.Errorf("%s: got answers to %d of %d questions, want at least %d of %d", of, a.found, a.questions, found, questions)
	}
}

// Of two messages with the same words the answer comes first, and many words that say little do not outweigh one that does.
func TestAnswersAndTellingWordsComeFirst(t *testing.T) {
	s := newShelf(t)
	ann := scopeNamed(t, "ann")
	s.say(ann, "a", "hello", "The lighthouse keeper is Maud.")
	s.say(ann, "b", "The lighthouse keeper is Maud.", "noted")
	s.say(ann, "c", "It was what it was and how it is, as it is where you are.", "Where is it that you are?")
	for _, tt := range []struct {
		query string
		plain bool
		want  string
	}{
		{"lighthouse keeper", false, "a/2 b/1"},
		{"lighthouse keeper", true, "a/2 b/1"},
		{"how is it that it is you and what is where Maud", true, "a/2 b/1"},
	} {
		if got := strings.Join(hitPlaces(s.search(ann, Query{Text: tt.query, Plain: tt.plain})), " "); got != tt.want {
			t.Errorf("%q, plain %t: got %q, want %q", tt.query, tt.plain, got, tt.want)
		}
	}
	first := hitPlaces(s.search(ann, Query{Text: "how is it that it is you and what is where Maud"}))
	if got := strings.Join(first[:min(2, len(first))], " "); got != "a/2 b/1" {
		t.Errorf("beside words that say little: got %q first", got)
	}
	if got := hitPlaces(s.search(ann, Query{Text: "where you are"})); len(got) != 2 {
		t.Errorf("words that say little alone: got %q, want both messages with them", got)
	}
}

// What has nothing to do with the record brings no notes of it, and what has still does.
func TestTheFloorOfARecall(t *testing.T) {
	s := newShelf(t)
	airline(t, s)
	scope := scopeNamed(t, "airline")
	r := must(t, Options{Local: s.index, MinScore: 0.33}) // the default of the configuration
	ask := func(query string) Recalled {
		t.Helper()
		return r.Recall(t.Context(), Ask{Scope: scope, Conversation: "new", Query: query})
	}
	all, found := questions(t, "questions.txt"), 0
	for _, q := range all {
		out := ask(q.text)
		if slices.ContainsFunc(out.Items, func(it Item) bool {
			return slices.Contains(q.answers, fmt.Sprintf("%s/%d", it.Conversation, it.Seq))
		}) {
			found++
		}
	}
	t.Logf("answers in the block: %d of %d questions", found, len(all))
	if float64(found) < 0.9*float64(len(all)) {
		t.Errorf("answers in the block: got %d of %d, want nine in ten", found, len(all))
	}
	for _, query := range []string{
		"Tell me a joke about penguins please", "How do I bake sourdough bread at home?", "Write a haiku on autumn leaves",
		"What is the capital of Mongolia?", "Fix the bug in my Rust parser", "Wie spät ist es in Berlin gerade?",
		"Summarise this article about the history of Rome for me", "Which planets have rings?",
		"Please translate good morning to Japanese", "I want to learn to play the guitar, where do I start?",
		"Can you help me write a cover letter for a job as a nurse?", "Explain the difference between TCP and UDP",
		"Plan a birthday party for my daughter who turns six", "What should I cook tonight with chicken and rice?",
	} {
		if out := ask(query); out.Text != "" {
			t.Errorf("%q: got\n%s\nwant nothing", query, out.Text)
		}
	}
}

// In a record of few messages one word of the question is enough, and of many it is not.
func TestTheFloorGrowsWithTheRecord(t *testing.T) {
	s := newShelf(t)
	ann := scopeNamed(t, "ann")
	s.say(ann, "old", "My cat is called Tom.", "Tom is a nice name for a cat.")
	r := must(t, Options{Local: s.index, MinScore: 0.33})
	held := func(query string) int {
		t.Helper()
		return len(r.Recall(t.Context(), Ask{Scope: ann, Conversation: "new", Query: query}).Items)
	}
	const loose, close = "what is the favourite toy of my cat", "what is that cat called"
	if held(loose) != 2 || held(close) != 2 || held("anything about penguins") != 0 {
		t.Errorf("of two messages: got %d and %d, want both whatever is asked of the cat", held(loose), held(close))
	}
	var filler []string
	for i := range 1200 {
		filler = append(filler, fmt.Sprint("number ", i, " says nothing of that"))
	}
	s.say(ann, "filler", filler...)
	if held(loose) != 0 || held(close) == 0 {
		t.Errorf("of many messages: got %d and %d, want what is close alone", held(loose), held(close))
	}
}
