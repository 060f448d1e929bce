package accept

import (
	"bytes"
	"cmp"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"historyd/test/canary"
	"historyd/test/chatmodel"
)

// carry gives a daemon all carriers, whole, in pieces and as imports, and returns the conversations. What was answered
// is in told.
func carry(c caller, told map[string][]byte) (names []string) {
	t := c.d.t
	seen := map[string]bool{}
	for i, carrier := range canary.Carriers() {
		messages := canary.Put(carrier.Messages, i)
		var pieces []json.RawMessage
		if err := json.Unmarshal([]byte("["+messages+"]"), &pieces); err != nil {
			t.Fatalf("%s: %v", messages, err)
		}
		for _, how := range []string{"whole", "pieces", "import"} {
			name := carrier.Format + "-" + how
			if !seen[name] {
				seen[name] = true
				names = append(names, name)
			}
			path := "/v1/conversations/" + name
			c.turn(name, "harmless")
			var out []byte
			body := carrier.Body(messages)
			switch {
			case how == "import":
				member := map[string]string{"responses": `"input":[`, "gemini": `"contents":[`, "native": `"version":1,"type":"historyd.history","messages":[`}
				body = bytes.Replace(body, []byte(`"messages":[`), []byte(cmp.Or(member[carrier.Format], `"messages":[`)), 1)
				want := 201
				if strings.Contains(messages, "nobody") {
					want = 422
				}
				out = c.do(want, "POST", path+"/import?mode=append&format="+carrier.Format, body)
			case how == "pieces" && !strings.Contains(messages, "kept_look"): // which is of one append by its nature
				for _, piece := range pieces {
					out = append(out, c.do(201, "POST", path+"/turns?format="+carrier.Format, carrier.Body(string(piece)))...)
				}
			default:
				out = c.do(201, "POST", path+"/turns?format="+carrier.Format, body)
			}
			told[fmt.Sprint("the answer to carrier ", i, ", ", how)] = out
		}
	}
	return names
}

// present holds what was told to hold anything: where there is nothing, nothing is absent.
func present(t *testing.T, told map[string][]byte) {
	t.Helper()
	for what, text := range told {
		if what != "the log" && what != "the metrics" && !strings.HasPrefix(what, "the answer") && !strings.HasPrefix(what, "the fork") && !bytes.Contains(text, []byte("harmless")) {
			t.Errorf("%s holds nothing at all: %.200s", what, text)
		}
	}
}

// ask gathers all that is made of the record and can be asked for.
func ask(c caller, names []string, told map[string][]byte) {
	get := func(path string) { told[path] = c.do(200, "GET", path, nil) }
	for _, name := range names {
		path := "/v1/conversations/" + name
		get(path)
		get(path + "/messages?limit=1000")
		get(path + "/export?format=tar")
		get(path + "/export?format=jsonl")
		for _, format := range []string{"native", "openai", "anthropic", "responses", "gemini"} {
			get(path + "/export?format=" + format)
			get(path + "/replay?format=" + format)
			get(path + "/replay?mode=full&format=" + format)
		}
		told["the recall of "+name] = c.do(200, "POST", path+"/recall", []byte(`{"query":"what of harmless things","store":true}`))
		told["the fork of "+name] = c.do(201, "POST", path+"/fork", []byte(`{"to":"`+name+`-fork"}`))
		get(path + "-fork/export")
	}
	for _, sort := range []string{"best", "newest"} {
		get("/v1/search?q=harmless&limit=100&sort=" + sort)
	}
}

func TestWithheldValuesAreInNothingThatIsMadeOfARecord(t *testing.T) {
	t.Parallel()
	m := chatmodel.New(t, func(w http.ResponseWriter, c chatmodel.Chat) {
		chatmodel.Says(w, fmt.Sprint("They spoke of harmless things, ", c.Number, "."))
	})
	r := newRetriever(t)
	d, c := newSummarised(t, m)
	d.configure(recallOf("20s", r.memory("scoped", nil, "shared", true)))
	d.begin()
	r.finds("memory_search", "A harmless note.")
	told := map[string][]byte{}
	names := carry(c, told)
	for _, name := range names {
		c.fold(name, "harmless", "harmless", "harmless", "harmless")
	}
	await(t, "every conversation has words by the model", func() bool {
		done := true
		for _, name := range names {
			if !strings.HasPrefix(c.replay(name).summary(), "model: ") {
				done = false
				c.fold(name, "harmless", "harmless")
			}
		}
		return done
	})
	ask(c, names, told)
	for _, q := range []string{canary.Word, canary.Word + "*", canary.Word + "07", `"the+` + canary.Word + `10"`, "zq*", base64.RawURLEncoding.EncodeToString([]byte("the " + canary.Word))} {
		if b := c.do(200, "GET", "/v1/search?q="+q, nil); !bytes.Contains(b, []byte(`"data":[],`)) {
			t.Errorf("a search for %s finds %s", q, b)
		}
		if out := c.ask("other", q+" or what"); strings.Contains(strings.ToLower(out.Text), canary.Word) {
			t.Errorf("a recall of %s finds %s", q, out.Text)
		}
	}
	told["the metrics"] = c.do(200, "GET", "/metrics", nil)
	d.stop()
	told["the data directory"] = contents(t, d.dir)
	// Made anew, the index holds no more.
	if err := os.RemoveAll(filepath.Join(d.dir, "index")); err != nil {
		t.Fatal(err)
	}
	d.begin()
	told["a search of a new index"] = c.do(200, "GET", "/v1/search?q=harmless&limit=100", nil)
	d.stop()
	told["the new index"] = contents(t, filepath.Join(d.dir, "index"))
	told["the log"] = d.Log()
	for _, chat := range m.Requests() {
		told["the requests to the model"] = append(told["the requests to the model"], chat.Raw...)
	}
	present(t, told)
	// The queries of the search above were asked of the server, too, but nothing else.
	for _, call := range r.calls() {
		if query := fmt.Sprint(call.Arguments["query"]); !strings.HasSuffix(query, " or what") {
			told["the calls of the server"] = append(told["the calls of the server"], query...)
		}
	}
	canary.Absent(t, told)
}
