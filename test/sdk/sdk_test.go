package sdk

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/anthropics/anthropic-sdk-go/v2"
	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/responses"
	"google.golang.org/genai"

	"historyd/internal/wire"
	"historyd/test/replay"
)

// A client is how a provider's SDK has the parts of a request.
type client struct {
	messages, system, tools, beta func() any
}

var clients = map[wire.Format]client{
	wire.OpenAI: {
		messages: func() any { return new([]openai.ChatCompletionMessageParamUnion) },
		tools:    func() any { return new([]openai.ChatCompletionToolUnionParam) },
	},
	wire.Responses: {
		messages: func() any { return new(responses.ResponseInputParam) },
		tools:    func() any { return new([]responses.ToolUnionParam) },
	},
	wire.Anthropic: {
		messages: func() any { return new([]anthropic.MessageParam) },
		beta:     func() any { return new([]anthropic.BetaMessageParam) },
		system:   func() any { return new([]anthropic.TextBlockParam) },
		tools:    func() any { return new([]anthropic.ToolUnionParam) },
	},
	wire.Gemini: {
		messages: func() any { return new([]*genai.Content) },
		system:   func() any { return new(genai.Content) },
		tools:    func() any { return new([]*genai.Tool) },
	},
}

// offered is a tool of the request in each format.
var offered = map[wire.Format]string{
	wire.OpenAI:    `{"type":"function","function":{"name":"look","description":"Look.","parameters":{"type":"object"}}}`,
	wire.Responses: `{"type":"function","name":"look","description":"Look.","parameters":{"type":"object"},"strict":true}`,
	wire.Anthropic: `{"name":"look","description":"Look.","input_schema":{"type":"object"}}`,
	wire.Gemini:    `{"functionDeclarations":[{"name":"look","description":"Look.","parameters":{"type":"OBJECT"}}]}`,
}

// unreadable are values that the clients do not have room for, with why.
var unreadable = map[string]string{
	"1e400":      "a number over all that a client can hold",
	`"2.5s"`:     "genai cuts fractions off durations",
	`"hologram"`: "made up", `"novel"`: "made up", `"fallback"`: "made up",
}

// requests visits replays of every sort: sample conversations, records in which
// everything went wrong, and each kind of message that the formats have.
func requests(t *testing.T, f wire.Format, visit func(name string, r replay.Request)) {
	t.Helper()
	make := func(name string, r replay.Request, err error) {
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		for text, why := range unreadable {
			if bytes.Contains(r.Messages, []byte(text)) {
				t.Logf("SKIPPED: %s of %s: %s is %s", name, f, text, why)
				return
			}
		}
		visit(name, r)
	}
	all, err := replay.Conversations()
	switch {
	case errors.Is(err, os.ErrNotExist):
		t.Log("SKIPPED: no sample conversations: set HISTORYD_TEST_DATA to the directory of airline.jsonl")
	case err != nil:
		t.Fatal(err)
	}
	for i, msgs := range all {
		r, err := replay.Make(f, msgs, replay.Asked{Tools: offered[f], Summary: "earlier"})
		make(fmt.Sprintf("conversation %d", i), r, err)
		for seed := range uint64(4) {
			seed += 4 * uint64(i)
			r, err := replay.Make(f, replay.Mutate(seed, msgs), replay.Asked{Role: "reviewer", Peer: seed%2 == 0})
			make(fmt.Sprintf("seed %d", seed), r, err)
		}
	}
	for _, from := range replay.Formats {
		corpus, err := replay.Corpus(from)
		if err != nil {
			t.Fatal(err)
		}
		for name, msgs := range corpus {
			r, err := replay.Make(f, msgs, replay.Asked{})
			make(string(from)+" "+name, r, err)
		}
	}
}

func TestClientsReadReplaysAndWriteThemAgain(t *testing.T) {
	for _, f := range replay.Formats {
		t.Run(string(f), func(t *testing.T) {
			n, kinds := 0, map[string]bool{}
			requests(t, f, func(name string, r replay.Request) {
				n++
				c := clients[f]
				for _, part := range []struct {
					name string
					into func() any
					text []byte
				}{{"messages", c.messages, r.Messages}, {"system", c.system, r.System}, {"tools", c.tools, r.Tools}} {
					if part.text == nil {
						continue
					}
					where, err := again(f, part.into, part.text)
					if err != nil && part.name == "messages" && c.beta != nil {
						// Some kinds of blocks are of the beta API still.
						if _, inBeta := again(f, c.beta, part.text); inBeta == nil {
							continue
						}
					}
					if kind := digits.ReplaceAllString(where, "N"); err != nil && !kinds[kind] {
						kinds[kind] = true
						t.Errorf("%s, %s, at %s: %v", name, part.name, where, err)
					}
				}
			})
			t.Logf("%d replays", n)
		})
	}
}

// digits are what makes places of one kind differ.
var digits = regexp.MustCompile(`\d+`)

// again reads a value with a client and writes it: it must be the same one. It returns
// where it is not.
func again(f wire.Format, into func() any, text []byte) (where string, err error) {
	if text[0] == '"' {
		// A text stands for a list of one text block; the client has only the list.
		text = append(append([]byte(`[{"type":"text","text":`), text...), "}]"...)
	}
	v := into()
	if err := json.Unmarshal(text, v); err != nil {
		return "reading", fmt.Errorf("%w\n%.3000s", err, text)
	}
	written, err := json.Marshal(v)
	if err != nil {
		return "writing", fmt.Errorf("%w\n%.3000s", err, text)
	}
	before, after := value(text), value(written)
	where = differ(f, before, after)
	if where == "" {
		return "", nil
	}
	return where, fmt.Errorf("the client writes another value: got\n%.700s\nwant\n%.700s", at(after, where), at(before, where))
}

// at shows the element of a list that a place is in.
func at(v any, where string) []byte {
	first, _, _ := strings.Cut(where, ".")
	if list, ok := v.([]any); ok {
		if n, err := strconv.Atoi(first); err == nil && n < len(list) {
			v = list[n]
		}
	}
	text, err := json.Marshal(v)
	if err != nil {
		return []byte(err.Error())
	}
	return text
}

// value decodes JSON; numbers as the clients have them.
func value(text []byte) any {
	dec := json.NewDecoder(bytes.NewReader(text))
	var v any
	if err := dec.Decode(&v); err != nil {
		panic(err)
	}
	return v
}

// none reports whether a client leaves a value out: null in all of them; what is zero
// too in genai, which has no other way to say that there is nothing.
func none(f wire.Format, v any) bool {
	if f == wire.Gemini && (v == "" || v == false) {
		return true
	}
	m, object := v.(map[string]any)
	return v == nil || f == wire.Gemini && object && len(m) == 0
}

// differ returns where two values are not the same.
func differ(f wire.Format, a, b any) string {
	switch a := a.(type) {
	case map[string]any:
		b, same := b.(map[string]any)
		if !same {
			return "here"
		}
		for name := range b {
			if _, there := a[name]; !there && !none(f, b[name]) {
				return name + " (added)"
			}
		}
		for name := range a {
			if _, there := b[name]; !there {
				if !none(f, a[name]) {
					return name + " (lost)"
				}
			} else if path := differ(f, a[name], b[name]); path != "" {
				return name + "." + path
			}
		}
		return ""
	case []any:
		b, same := b.([]any)
		if !same || len(a) != len(b) {
			return "here"
		}
		for i := range a {
			if path := differ(f, a[i], b[i]); path != "" {
				return fmt.Sprintf("%d.%s", i, path)
			}
		}
		return ""
	}
	if a != b {
		return "here"
	}
	return ""
}

func TestDifferTellsValuesApart(t *testing.T) {
	for _, tt := range []struct {
		f          wire.Format
		a, b, want string
	}{
		{wire.OpenAI, `{"a":[1,{"b":null}]}`, `{"a":[1.0,{}]}`, ""},
		{wire.OpenAI, `{"a":1}`, `{}`, "lost"}, {wire.OpenAI, `{}`, `{"a":1}`, "added"}, {wire.OpenAI, `{"a":""}`, `{}`, "lost"},
		{wire.OpenAI, `[1]`, `[1,2]`, "here"}, {wire.OpenAI, `{"a":["x"]}`, `{"a":["y"]}`, "a.0.here"}, {wire.OpenAI, `{}`, `[]`, "here"},
		{wire.Gemini, `{"a":"","b":{},"c":false}`, `{}`, ""}, {wire.Gemini, `{"a":[]}`, `{}`, "lost"}, {wire.Gemini, `{"a":"x"}`, `{"a":""}`, "here"},
	} {
		if got := differ(tt.f, value([]byte(tt.a)), value([]byte(tt.b))); !strings.Contains(got, tt.want) || (got == "") != (tt.want == "") {
			t.Errorf("differ(%s, %s, %s) = %q, want %q", tt.f, tt.a, tt.b, got, tt.want)
		}
	}
}
