package wire

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"historyd/internal/history"
	"historyd/internal/strictjson"

	"pgregory.net/rapid"
)

// sane draws a message such as clients send, in the form in which it comes back.
func sane(t *rapid.T) map[string]any {
	text := rapid.StringN(0, 20, -1)
	m := map[string]any{}
	for i := range rapid.IntRange(0, 2).Draw(t, "unknown members") {
		m[fmt.Sprintf("x%d", i)] = anything(2).Draw(t, "value")
	}
	part := func() map[string]any {
		p := map[string]any{"type": "text", "text": text.Draw(t, "text")}
		if rapid.Bool().Draw(t, "marked") {
			p["prompt_cache_breakpoint"] = anything(1).Draw(t, "mark")
		}
		return p
	}
	content := func() any {
		if rapid.Bool().Draw(t, "plain") {
			return text.Draw(t, "content")
		}
		parts := []any{part(), part()}
		if rapid.Bool().Draw(t, "opaque") {
			parts = append(parts, map[string]any{"type": "video", "video": anything(2).Draw(t, "video")})
		}
		return parts
	}
	m["role"] = rapid.SampledFrom([]string{"user", "system", "developer", "assistant", "tool", "function"}).Draw(t, "role")
	m["content"] = content()
	switch m["role"] {
	case "assistant":
		var calls []any
		for range rapid.IntRange(0, 3).Draw(t, "calls") {
			calls = append(calls, saneCall(t, text))
		}
		if calls != nil {
			m["tool_calls"] = calls
			m["content"] = nil
		}
		if rapid.Bool().Draw(t, "refusal") {
			m["refusal"] = rapid.SampledFrom([]any{nil, "no"}).Draw(t, "why")
		}
	case "tool":
		m["tool_call_id"] = rapid.StringN(1, 40, 1024).Draw(t, "id")
	case "function":
		m["name"] = text.Draw(t, "name")
	}
	return m
}

func saneCall(t *rapid.T, text *rapid.Generator[string]) map[string]any {
	c := map[string]any{"id": rapid.StringN(1, 40, 1024).Draw(t, "id")}
	arguments, _ := json.Marshal(anything(3).Draw(t, "arguments"))
	input := rapid.SampledFrom([]string{string(arguments), " " + string(arguments), strings.TrimSuffix(string(arguments), "}"), "free"}).Draw(t, "input")
	switch rapid.IntRange(0, 2).Draw(t, "type") {
	case 0:
		c["type"], c["function"] = "function", map[string]any{"name": text.Draw(t, "name"), "arguments": input, "x": anything(1).Draw(t, "x")}
	case 1:
		c["type"], c["custom"], c["index"] = "custom", map[string]any{"name": text.Draw(t, "name"), "input": input}, 1
	default:
		c["type"], c["mcp"] = "mcp", anything(2).Draw(t, "mcp")
	}
	return c
}

// anything draws a JSON value.
func anything(depth int) *rapid.Generator[any] {
	return rapid.Custom(func(t *rapid.T) any {
		kinds := 4
		if depth > 0 {
			kinds = 6
		}
		switch rapid.IntRange(0, kinds-1).Draw(t, "kind") {
		case 0:
			return nil
		case 1:
			return rapid.Bool().Draw(t, "bool")
		case 2:
			return json.Number(rapid.SampledFrom([]string{"1.0", "2512292042121000001", "1e400", "-0", "7"}).Draw(t, "number"))
		case 3:
			return rapid.String().Draw(t, "string")
		case 4:
			return rapid.SliceOfN(anything(depth-1), 0, 3).Draw(t, "list")
		}
		return rapid.MapOfN(rapid.StringMatching(`[a-z]{1,6}_`), anything(depth-1), 0, 3).Draw(t, "object")
	})
}

func TestSaneMessagesComeBackAsTheyWere(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		in, err := json.Marshal([]any{sane(t), sane(t)})
		if err != nil {
			t.Fatal(err)
		}
		a, err := DecodeAppend(OpenAI, []byte(`{"messages":`+string(in)+`}`), 0)
		if err != nil {
			t.Fatalf("%v\n%s", err, in)
		}
		out := encode(OpenAI, a.Messages, ForExport)
		want, got := fmt.Sprintf("%#v", numbered(string(in))), fmt.Sprintf("%#v", numbered(out))
		if got != want {
			t.Fatalf("values differ\n got %s\nwant %s", out, in)
		}
	})
}

// Messages that are almost right: what of them is taken in must come back all the same.
func TestWhateverIsTakenInComesBack(t *testing.T) {
	for _, format := range []Format{OpenAI, Native} {
		t.Run(string(format), func(t *testing.T) {
			seeds := goldenMessages(t, format)
			for _, name := range slices.Sorted(maps.Keys(corpus(t, format))) {
				for _, e := range strictjson.Document([]byte(corpus(t, format)[name])).Elements() {
					seeds = append(seeds, string(e.Raw))
				}
			}
			names := []string{"Role", "TYPE", "extra", "x", "member", "refusal", "audio", "function_call"}
			almostRight(t, format, seeds, names, func(t *rapid.T, msgs []history.Message, _ any) {
				if format == OpenAI {
					checkOpenAI(t, msgs)
				} else {
					checkNative(t, msgs)
				}
			})
		})
	}
}

// almostRight changes messages with the values in them, and with names that may mean
// something there. Those that are taken in are checked.
func almostRight(t *testing.T, format Format, seeds, names []string, check func(t *rapid.T, msgs []history.Message, given any)) {
	t.Helper()
	var pool []any
	for _, msg := range seeds {
		pool, names = gather(numbered(msg), pool, names)
	}
	slices.Sort(names)
	names = slices.Compact(names)
	taken := 0
	rapid.Check(t, func(t *rapid.T) {
		v := numbered(rapid.SampledFrom(seeds).Draw(t, "seed"))
		for range rapid.IntRange(1, 4).Draw(t, "changes") {
			v = mutate(t, v, pool, names)
		}
		in, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		a, err := DecodeAppend(format, []byte(`{"messages":[`+string(in)+`]}`), 0)
		if err != nil {
			return
		}
		taken++
		check(t, a.Messages, v)
	})
	if taken == 0 {
		t.Error("nothing was taken in")
	}
}

// numbered decodes a document, its numbers as they are written.
func numbered(doc string) any {
	dec := json.NewDecoder(strings.NewReader(doc))
	dec.UseNumber()
	var v any
	if err := dec.Decode(&v); err != nil {
		panic(err)
	}
	return v
}

// gather collects the values and the names inside v.
func gather(v any, pool []any, names []string) ([]any, []string) {
	pool = append(pool, v)
	switch v := v.(type) {
	case map[string]any:
		for _, name := range sortedNames(v) {
			pool, names = gather(v[name], pool, append(names, name))
		}
	case []any:
		for _, e := range v {
			pool, names = gather(e, pool, names)
		}
	}
	return pool, names
}

func sortedNames(m map[string]any) []string {
	names := []string{}
	for name := range m {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// mutate changes one place in v, which it may share.
func mutate(t *rapid.T, v any, pool []any, names []string) any {
	deeper := rapid.IntRange(0, 3).Draw(t, "deeper") > 0
	switch v := v.(type) {
	case map[string]any:
		m := map[string]any{}
		for name, e := range v {
			m[name] = e
		}
		have := sortedNames(m)
		if deeper && len(have) > 0 {
			name := rapid.SampledFrom(have).Draw(t, "into")
			m[name] = mutate(t, m[name], pool, names)
		} else if len(have) > 0 && rapid.IntRange(0, 3).Draw(t, "remove") == 0 {
			delete(m, rapid.SampledFrom(have).Draw(t, "name"))
		} else {
			m[rapid.SampledFrom(names).Draw(t, "name")] = rapid.SampledFrom(pool).Draw(t, "value")
		}
		return m
	case []any:
		list := slices.Clone(v)
		if len(list) > 0 && deeper {
			i := rapid.IntRange(0, len(list)-1).Draw(t, "at")
			list[i] = mutate(t, list[i], pool, names)
			return list
		}
		return append(list, rapid.SampledFrom(pool).Draw(t, "element"))
	}
	if v == nil || deeper {
		return rapid.SampledFrom(pool).Draw(t, "value")
	}
	return nil
}
