package accept

import (
	"bytes"
	"encoding/json"
	"fmt"
	"index/suffixarray"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"
)

// native is what the tests read of a native message.
type native struct {
	ID      string `json:"id"`
	Seq     int64  `json:"seq"`
	Role    string `json:"role"`
	Content []struct {
		Type          string          `json:"type"`
		Text          string          `json:"text"`
		ID            string          `json:"id"`
		Name          string          `json:"name"`
		Arguments     json.RawMessage `json:"arguments"`
		ArgumentsText *string         `json:"arguments_text"`
		CallID        string          `json:"call_id"`
		Content       any             `json:"content"`
		Truncated     *struct {
			OriginalChars int `json:"original_chars"`
		} `json:"truncated"`
	} `json:"content"`
}

// post appends a conversation turn by turn, repeating what got no answer under the
// same key, until it is acknowledged.
func post(t *testing.T, c caller, conv conversation, categories map[string]string) {
	var seq int64
	for i, turn := range conv.turns() {
		body := appendBody(t, turn, categories)
		key := fmt.Sprintf("%s-%d", conv.Name, i)
		for tries := 0; ; tries++ {
			status, b, _, err := c.try("POST", "/v1/conversations/"+conv.Name+"/turns?format=openai", body, "Idempotency-Key", key)
			if err != nil {
				if tries > 2000 {
					t.Errorf("%s: no answer", conv.Name)
					return
				}
				time.Sleep(5 * time.Millisecond)
				continue
			}
			if status != 201 {
				t.Errorf("%s turn %d: status %d: %s", conv.Name, i, status, b)
				return
			}
			var ack struct {
				First int64 `json:"first_seq"`
				Last  int64 `json:"last_seq"`
			}
			if err := json.Unmarshal(b, &ack); err != nil || ack.First != seq+1 || ack.Last != seq+int64(len(turn)) {
				t.Errorf("%s turn %d: acknowledged %d to %d after %d: %v", conv.Name, i, ack.First, ack.Last, seq, err)
				return
			}
			seq = ack.Last
			break
		}
	}
}

func TestRealConversationsSurviveKillsAndComeBackEqual(t *testing.T) {
	convs := conversations(t)
	d := newDaemon(t, "HISTORYD_PROJECTION_UNKNOWN_TOOLS=keep")
	callers := []caller{
		{d, d.token("operator", "ann", "")}, {d, d.token("mesh", "ann", "")}, {d, d.token("operator", "ann", "trusted")},
	}
	spare := caller{d, d.token("mesh", "spare", "")}
	d.start()
	d.awaitReady()
	killWhile(d, func() {
		var wg sync.WaitGroup
		for _, c := range callers {
			wg.Go(func() {
				for _, conv := range convs {
					post(t, c, conv, nil)
				}
			})
		}
		wg.Wait()
	})
	if t.Failed() {
		return
	}
	for _, c := range callers {
		for _, conv := range convs {
			checkMessages(t, c, conv)
			checkReplay(t, c, conv)
		}
	}
	for _, conv := range convs {
		checkRoundTrip(t, callers[0], spare, conv.Name)
	}
	checkSound(t, d)
	checkClear(t, d, convs, append(callers, spare))
}

// killWhile kills the daemon and starts it again until work is done.
func killWhile(d *daemon, work func()) {
	done := make(chan struct{})
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		for kills := 0; ; kills++ {
			select {
			case <-done:
				return
			case <-time.After(time.Duration(100+rand.IntN(400)) * time.Millisecond):
				d.kill()
				d.start()
			}
		}
	}()
	work()
	close(done)
	<-stopped
	d.kill()
	d.start()
	d.awaitReady()
}

func messagesOf(t *testing.T, c caller, name string) []native {
	t.Helper()
	var all []native
	for {
		after := int64(0)
		if len(all) > 0 {
			after = all[len(all)-1].Seq
		}
		page := decode[struct {
			Data    []native `json:"data"`
			HasMore bool     `json:"has_more"`
		}](t, c.do(200, "GET", fmt.Sprintf("/v1/conversations/%s/messages?limit=7&after=%d", name, after), nil))
		all = append(all, page.Data...)
		if !page.HasMore {
			return all
		}
	}
}

func checkMessages(t *testing.T, c caller, conv conversation) {
	t.Helper()
	got := messagesOf(t, c, conv.Name)
	if len(got) != len(conv.parsed) {
		t.Errorf("%s: %d messages came back, want %d", conv.Name, len(got), len(conv.parsed))
		return
	}
	for i, want := range conv.parsed {
		m := got[i]
		if m.Seq != int64(i+1) || m.Role != want.Role {
			t.Errorf("%s: message %d has seq %d and role %s, want role %s", conv.Name, i+1, m.Seq, m.Role, want.Role)
			return
		}
		if why := differs(m, want); why != "" {
			t.Errorf("%s: message %d: %s", conv.Name, i+1, why)
		}
	}
}

// differs tells how a message that came back is not the one that was sent.
func differs(got native, want message) string {
	var text *string
	calls := 0
	for _, b := range got.Content {
		switch b.Type {
		case "text":
			text = &b.Text
		case "tool_call":
			if calls >= len(want.ToolCalls) {
				return "a call too many"
			}
			w := want.ToolCalls[calls]
			arguments := string(b.Arguments)
			if b.ArgumentsText != nil {
				arguments = *b.ArgumentsText
			}
			if b.ID != w.ID || b.Name != w.Function.Name || arguments != w.Function.Arguments {
				return fmt.Sprintf("call %s(%s), want %s(%s)", b.Name, arguments, w.Function.Name, w.Function.Arguments)
			}
			calls++
		case "tool_result":
			content, _ := b.Content.(string)
			chars := len([]rune(*want.Content))
			switch {
			case b.CallID != want.ToolCallID:
				return "answers another call"
			case chars <= 4000 && (content != *want.Content || b.Truncated != nil):
				return "the result differs"
			case chars > 4000 && (b.Truncated == nil || b.Truncated.OriginalChars != chars || len([]rune(content)) > 4000 ||
				!strings.HasPrefix(*want.Content, content[:1000]) || !strings.HasSuffix(*want.Content, content[len(content)-500:])):
				return "the result is not cut as promised"
			}
			return ""
		}
	}
	if calls != len(want.ToolCalls) {
		return "a call is missing"
	}
	if want.Content != nil && (text == nil || *text != *want.Content) {
		return "the text differs"
	}
	return ""
}

// checkReplay holds the text replay against the conversation: a summary, then the
// text of whole turns, and no tool traffic.
func checkReplay(t *testing.T, c caller, conv conversation) {
	t.Helper()
	raw := c.do(200, "GET", "/v1/conversations/"+conv.Name+"/replay?format=openai", nil)
	rep := decode[struct {
		Messages []map[string]any `json:"messages"`
		Summary  *struct {
			Turns   int    `json:"turns"`
			Through int    `json:"through_seq"`
			Text    string `json:"text"`
		} `json:"summary"`
	}](t, raw)
	turns := conv.turns()
	folded := 0
	if rep.Summary != nil {
		folded = rep.Summary.Turns
		if rep.Messages[0]["content"] != rep.Summary.Text {
			t.Errorf("%s: the replay does not begin with the summary", conv.Name)
		}
		rep.Messages = rep.Messages[1:]
	}
	if left := len(turns) - folded; len(turns) >= 15 && (left < 10 || left >= 15) {
		t.Errorf("%s: %d of %d turns are in the window", conv.Name, left, len(turns))
	}
	var want []map[string]any
	for _, turn := range turns[folded:] {
		for _, raw := range turn {
			m := decode[message](t, raw)
			if (m.Role == "user" || m.Role == "assistant") && m.Content != nil && strings.TrimSpace(*m.Content) != "" {
				want = append(want, map[string]any{"role": m.Role, "content": *m.Content})
			}
		}
	}
	if !reflect.DeepEqual(rep.Messages, want) {
		t.Errorf("%s: the replay holds %d messages, want the text of the last %d turns: %d", conv.Name, len(rep.Messages), len(turns)-folded, len(want))
	}
	if again := c.do(200, "GET", "/v1/conversations/"+conv.Name+"/replay?format=openai", nil); !bytes.Equal(raw, again) {
		t.Errorf("%s: two replays differ", conv.Name)
	}
}

// checkRoundTrip exports, imports into another caller, exports again and compares.
func checkRoundTrip(t *testing.T, from, to caller, name string) {
	t.Helper()
	for _, format := range []string{"native", "openai"} {
		first := from.do(200, "GET", "/v1/conversations/"+name+"/export?format="+format, nil)
		into := name + "-" + format
		to.do(201, "POST", "/v1/conversations/"+into+"/import?format="+format, first)
		second := to.do(200, "GET", "/v1/conversations/"+into+"/export?format="+format, nil)
		a, b := decode[any](t, first), decode[any](t, second)
		if format == "native" {
			strip(a)
			strip(b)
		}
		if !reflect.DeepEqual(a, b) {
			t.Errorf("%s: export, import, export differs in format %s", name, format)
		}
	}
}

// strip takes out what an import makes anew.
func strip(v any) {
	value := v.(map[string]any)
	delete(value, "conversation")
	for _, m := range value["messages"].([]any) {
		delete(m.(map[string]any), "seq")
		delete(m.(map[string]any), "imported")
	}
}

func checkSound(t *testing.T, d *daemon) {
	t.Helper()
	if out, err := d.command("check", d.dir).CombinedOutput(); err != nil {
		t.Errorf("check: %v: %s", err, out)
	}
}

func checkClear(t *testing.T, d *daemon, convs []conversation, callers []caller) {
	t.Helper()
	for _, c := range callers {
		c.do(204, "DELETE", "/v1/conversations", nil)
	}
	left := contents(t, d.dir)
	for _, conv := range convs {
		for _, m := range conv.parsed {
			if m.Content != nil && len(*m.Content) > 20 && bytes.Contains(left, []byte((*m.Content)[:20])) {
				t.Fatalf("%s: words are left in the data directory after the clear", conv.Name)
			}
		}
	}
}

// contents is the bytes of all files under a directory, and their names.
func contents(t *testing.T, dir string) []byte {
	t.Helper()
	var all bytes.Buffer
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		all.WriteString(path)
		if e.Type().IsRegular() {
			b, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			all.Write(b)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return all.Bytes()
}

func TestWithheldValuesAreNowhere(t *testing.T) {
	convs := conversations(t)
	d := newDaemon(t)
	unknown := caller{d, d.token("operator", "unknown", "")}
	wallet := caller{d, d.token("operator", "wallet", "")}
	d.start()
	d.awaitReady()
	killWhile(d, func() {
		var wg sync.WaitGroup
		for _, conv := range convs {
			wg.Go(func() { post(t, unknown, conv, nil) })
			wg.Go(func() { post(t, wallet, conv, map[string]string{"*": "wallet"}) })
		}
		wg.Wait()
	})
	var told bytes.Buffer
	for _, c := range []caller{unknown, wallet} {
		for _, conv := range convs {
			for _, path := range []string{"/export", "/export?format=openai", "/replay", "/replay?format=openai", "/messages?limit=1000", ""} {
				told.Write(c.do(200, "GET", "/v1/conversations/"+conv.Name+path, nil))
			}
			if texts := replayTexts(t, c, conv.Name); texts == 0 {
				t.Errorf("%s: nothing is replayed", conv.Name)
			}
		}
	}
	told.Write(unknown.do(200, "GET", "/metrics", nil))
	told.Write(d.Log())
	told.Write(contents(t, d.dir))
	checkAbsent(t, convs, told.Bytes())
	checkSound(t, d)
}

// TestCategoriesTravelWithAnExport keeps what an agent chose to keep through an
// export and an import, in a daemon that withholds what it does not know.
func TestCategoriesTravelWithAnExport(t *testing.T) {
	convs := conversations(t)[:10]
	d := newDaemon(t)
	from, to := caller{d, d.token("operator", "from", "")}, caller{d, d.token("operator", "to", "")}
	d.start()
	d.awaitReady()
	for _, conv := range convs {
		post(t, from, conv, map[string]string{"*": "travel"})
		checkMessages(t, from, conv)
		value := from.do(200, "GET", "/v1/conversations/"+conv.Name+"/export", nil)
		to.do(201, "POST", "/v1/conversations/"+conv.Name+"/import", value)
		checkMessages(t, to, conv)
		again := to.do(200, "GET", "/v1/conversations/"+conv.Name+"/export", nil)
		a, b := decode[any](t, value), decode[any](t, again)
		strip(a)
		strip(b)
		if !reflect.DeepEqual(a, b) {
			t.Errorf("%s: export, import, export differs", conv.Name)
		}
	}
}

func replayTexts(t *testing.T, c caller, name string) int {
	t.Helper()
	return len(decode[struct {
		Messages []any `json:"messages"`
	}](t, c.do(200, "GET", "/v1/conversations/"+name+"/replay", nil)).Messages)
}

// checkAbsent looks for every string and number of an argument or a result that
// nobody said in so many words.
func checkAbsent(t *testing.T, convs []conversation, told []byte) {
	t.Helper()
	index := suffixarray.New(told)
	var said strings.Builder
	values := map[string]bool{}
	for _, conv := range convs {
		for _, m := range conv.parsed {
			if m.Role == "tool" {
				values[*m.Content] = true
				leaves(*m.Content, values)
			} else if m.Content != nil {
				said.WriteString(*m.Content + "\n")
			}
			for _, call := range m.ToolCalls {
				values[call.Function.Arguments] = true
				leaves(call.Function.Arguments, values)
				said.WriteString(call.Function.Name + " " + call.ID + "\n")
			}
		}
	}
	spoken := suffixarray.New([]byte(said.String()))
	looked := 0
	for v := range values {
		if len(v) < 7 || len(v) < 16 && strings.Trim(v, "0123456789abcdef") == "" || len(spoken.Lookup([]byte(v), 1)) > 0 {
			continue // short, like a part of some hash, or said aloud
		}
		looked++
		if at := index.Lookup([]byte(v), 1); len(at) > 0 {
			t.Errorf("a withheld value of %d bytes is found: …%s…", len(v), told[max(0, at[0]-80):min(len(told), at[0]+len(v)+80)])
		}
	}
	if looked < 100 {
		t.Errorf("only %d values were looked for", looked)
	}
}

// leaves adds the strings and numbers that a JSON text holds as values.
func leaves(text string, into map[string]bool) {
	d := json.NewDecoder(strings.NewReader(text))
	d.UseNumber()
	var v any
	if d.Decode(&v) == nil {
		addLeaves(v, into)
	}
}

func addLeaves(v any, into map[string]bool) {
	switch v := v.(type) {
	case map[string]any:
		for _, e := range v {
			addLeaves(e, into)
		}
	case []any:
		for _, e := range v {
			addLeaves(e, into)
		}
	case string:
		into[v] = true
	case json.Number:
		into[v.String()] = true
	}
}
