package accept

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// While others write, search and clear, what was acknowledged is found at once, and what was cleared never again.
func TestASearchIsRightWhileMuchGoesOn(t *testing.T) {
	t.Parallel()
	d := newDaemon(t)
	c := caller{d, d.token("operator", "ann", "")}
	d.begin()
	look := func(word string) string {
		for range 1000 {
			status, b, _, err := c.try("GET", "/v1/search?q="+word, nil)
			var out found
			if err != nil || status != 200 || json.Unmarshal(b, &out) != nil {
				t.Errorf("a search is answered %d %.300s: %v", status, b, err)
			}
			if !out.Behind { // as it may be when others write or clear at that moment
				return out.places()
			}
		}
		return "behind for ever"
	}
	do := func(want int, method, path string, body []byte) {
		if status, b, _, err := c.try(method, path, body); err != nil || status != want {
			t.Errorf("%s %s: %d %.300s: %v", method, path, status, b, err)
		}
	}
	var all sync.WaitGroup
	for w := range 4 {
		all.Go(func() {
			for i := range 25 {
				name, word := fmt.Sprint("mine", w), fmt.Sprintf("gone%dx%d", w, i)
				do(201, "POST", "/v1/conversations/"+name+"/turns", said(t, "about "+word))
				if got := look(word); got != name+"#1" {
					t.Errorf("%s is found at %q", word, got)
				}
				do(201, "POST", "/v1/conversations/stays/turns", said(t, fmt.Sprintf("stays%dx%d", w, i)))
				do(204, "DELETE", "/v1/conversations/"+name, nil)
				if got := look(word); got != "" {
					t.Errorf("%s is found at %q after its clear", word, got)
				}
			}
		})
	}
	all.Wait()
	for w := range 4 {
		for i := range 25 {
			if got := look(fmt.Sprintf("stays%dx%d", w, i)); !strings.HasPrefix(got, "stays#") || strings.Contains(got, " ") {
				t.Errorf("what stays is found at %q", got)
			}
		}
	}
	d.stop()
	if bytes.Contains(contents(t, d.dir), []byte("gone")) {
		t.Error("what was cleared is in a file")
	}
}

// The first of many conversations is found as the last is.
func TestASearchReachesEveryConversation(t *testing.T) {
	t.Parallel()
	d := newDaemon(t)
	c := caller{d, d.token("operator", "ann", "")}
	d.begin()
	var all sync.WaitGroup
	for w := range 10 {
		all.Go(func() {
			for i := range 25 {
				name := fmt.Sprint("c", w*25+i)
				if status, b, _, err := c.try("POST", "/v1/conversations/"+name+"/turns", said(t, "the word of "+name)); err != nil || status != 201 {
					t.Errorf("append: %d %s %v", status, b, err)
				}
			}
		})
	}
	all.Wait()
	d.kill()
	d.begin()
	seen := map[string]bool{}
	page := c.search("word")
	for {
		for _, h := range page.Data {
			if seen[h.Conversation] {
				t.Errorf("%s is found twice", h.Conversation)
			}
			seen[h.Conversation] = true
		}
		if page.Next == nil {
			break
		}
		page = c.search("word", "cursor", *page.Next)
	}
	if len(seen) != 250 {
		t.Errorf("%d of 250 are found", len(seen))
	}
	for _, name := range []string{"c0", "c1", "c249"} {
		if got := c.search(name).places(); got != name+"#1" {
			t.Errorf("%s is found at %q", name, got)
		}
	}
}

// One message that can't be read, or one conversation, keeps nothing else from being found.
func TestASearchGoesPastDamage(t *testing.T) {
	t.Parallel()
	d := newDaemon(t)
	c := caller{d, d.token("operator", "ann", "")}
	d.begin()
	for _, name := range []string{"sound", "torn", "lost"} {
		for i := range 5 {
			c.do(201, "POST", "/v1/conversations/"+name+"/turns", said(t, fmt.Sprintf("%sword %d", name, i)))
		}
	}
	d.kill()
	err := filepath.WalkDir(filepath.Join(d.dir, "transcripts"), func(path string, e os.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, ".jsonl") {
			return err
		}
		text, err := os.ReadFile(path)
		switch {
		case bytes.Contains(text, []byte("tornword")):
			write(t, path, bytes.Replace(text, []byte("tornword 2"), []byte("tornw\x00rd 2"), 1))
		case bytes.Contains(text, []byte("lostword")):
			write(t, path, bytes.Repeat([]byte("\x00"), len(text)))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	d.begin()
	for range 2 {
		if got := c.search("soundword").places(); got != "sound#1 sound#2 sound#3 sound#4 sound#5" {
			t.Errorf("beside damage it finds %q", got)
		}
		if got := c.search("tornword").places(); got != "torn#1 torn#2 torn#4 torn#5" {
			t.Errorf("around damage it finds %q", got)
		}
		if got := c.search("lostword").places(); got != "" {
			t.Errorf("of what is lost it finds %q", got)
		}
		if out := c.ask("other", "what of the soundword"); out.Text == "" {
			t.Errorf("a recall beside damage: %s", out.statuses())
		}
		c.do(204, "DELETE", "/v1/conversations/new", nil)
		d.stop()
		d.begin()
	}
}

// Results of tools that are kept are found, as far as they are kept.
func TestASearchFindsWhatIsKeptOfResults(t *testing.T) {
	t.Parallel()
	d := newDaemon(t)
	c := caller{d, d.token("operator", "ann", "")}
	d.begin()
	long := "headword " + strings.Repeat("filling ", 500) + " middleword " + strings.Repeat("filling ", 500) + " tailword"
	c.do(201, "POST", "/v1/conversations/main/turns?format=openai", encode(t, map[string]any{
		"tool_categories": map[string]string{"look": "general"},
		"messages": []any{
			map[string]any{"role": "user", "content": "look it up"},
			map[string]any{"role": "assistant", "content": nil, "tool_calls": []any{
				map[string]any{"id": "a", "type": "function", "function": map[string]any{"name": "look", "arguments": `{"for":"argumentword"}`}},
				map[string]any{"id": "b", "type": "function", "function": map[string]any{"name": "other", "arguments": `{}`}},
			}},
			map[string]any{"role": "tool", "tool_call_id": "a", "content": long},
			map[string]any{"role": "tool", "tool_call_id": "b", "content": "withheldword"},
		},
	}))
	for _, again := range []string{"from memory", "from a file"} {
		for q, want := range map[string]string{"headword": "main#3", "tailword": "main#3", "middleword": "", "withheldword": "", "argumentword": "", "look": "main#1", "withheld": ""} {
			if got := c.search(q).places(); got != want {
				t.Errorf("%s: %s is found at %q, want %q", again, q, got, want)
			}
		}
		if got := c.search("headword", "role", "tool").places(); got != "main#3" {
			t.Errorf("%s: by role it is found at %q", again, got)
		}
		d.stop()
		d.begin()
	}
	if b := c.do(400, "GET", "/v1/search?q=x&role="+url.QueryEscape("nobody's"), nil); !bytes.Contains(b, []byte(`"field":"role"`)) {
		t.Errorf("a role that is none: %s", b)
	}
}
